"""A live run's workers, its dispatcher and all processes in memory, on one virtual clock: nothing sleeps or is started.

The controller's :class:`LiveWorkers` and the dispatcher are the product's; sockets, files of processes and the warm
process are played, and so are servers and trainers, which may be killed or stopped at any moment.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from executor.gpu import GpuInstance
from executor.messages import packed, value_in
from executor.zygote import Exited, Forked, Reached
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Happening
from migrator.execution.live.workers import LiveWorkers
from planner.problem import Owner, Task
from tests.migrator.execution.live.test_workers import GPU, JOINT, Gpu, Models
from workloads.learning import course
from workloads.live import dispatcher, worker
from workloads.live.messages import (
    TO_CONTROLLER,
    TO_WORKER,
    Answers,
    Batch,
    Changed,
    Credit,
    Drain,
    Goodbye,
    Heartbeat,
    Hello,
    Hung,
    Lent,
    Load,
    Loaded,
    NotDone,
    Ready,
    Request,
    Serve,
    State,
    Stop,
    Watch,
)
from workloads.live.wire import CONTROLLER, HEART, WORKER
from workloads.profiles.latency import LatencyCurve

ORIGIN_S = 3600.0
"""The machine's clock at second 0."""

WINDOW_S = 60.0

ON_LOAN = Training("full", is_lent=True)

_BEATS_S = 1.0


@dataclass
class Process:
    """A server or a trainer: what it has been sent, what it computes, whether it lives and runs."""

    name: str
    pid: int
    lane: str
    is_alive: bool = True
    is_stopped: bool = False
    killed_s: float = math.inf
    asked: bool = False
    beat_s: float = 0.0


@dataclass
class Server(Process):
    """``batch`` is what it was handed and has not answered, ``loads`` what it was sent to load and has not."""

    setup: worker.WorkerSetup | None = None
    state: State | None = None
    inbox: list[Any] = field(default_factory=list)
    batch: tuple[int, ...] = ()
    n_loads: int = 0
    is_leaving: bool = False


@dataclass
class Trainer(Process):
    """It computes from when it may go until it is gone."""

    course: Path = Path()
    go: str = ""
    told: int = 0  # warm, begun, ended

    @property
    def computes(self) -> bool:
        return bool(self.is_alive and self.go and Path(self.go).exists())


class _Wire:
    """A socket of the dispatcher: what it sends is told at once, and fails where nobody is there."""

    def __init__(self, deliver: Callable[[bytes, bytes], None]) -> None:
        self._deliver = deliver

    def send_multipart(self, frames: list[bytes], _: int) -> None:
        self._deliver(*frames)

    def close(self) -> None:
        pass


class World:
    """Everything; ``step`` passes time, ``deliver`` what is under way, ``act`` has a process do its next thing."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, tenants: tuple[str, ...] = ("a", "b")) -> None:
        self.folder, self.clock = folder, SimpleNamespace(now_s=1.0, origin_s=ORIGIN_S)
        self.log, self.processes = folder / "log", dict[str, Process]()
        self.zygote = SimpleNamespace(workers=dict[str, int](), start=self._fork, stop=self._end)
        self.to_controller: list[Any] = []
        self.to_dispatcher: list[tuple[bytes, bytes]] = []
        self.news: list[Happening] = []
        self._dead: list[int] = []
        self._n_requests, self._tick_s = 0, 0.0
        for name, fake in {
            "monotonic": lambda: self.machine_s,
            "private_folder": lambda own: own,
            "router": lambda _, __, name, ___: _Wire(self._to_worker if name == "workers" else self._to_client),
            "os": SimpleNamespace(pidfd_open=lambda pid: pid, close=lambda _: None),
            "signal": SimpleNamespace(SIGKILL=signal.SIGKILL, pidfd_send_signal=lambda pid, _: self._killed_by(pid)),
            "zmq": SimpleNamespace(
                Context=lambda: None, Poller=_Poller, POLLIN=1, NOBLOCK=1, Again=zmq.Again, ZMQError=zmq.ZMQError
            ),
        }.items():
            patch.setattr(dispatcher, name, fake)
        parent: Any = SimpleNamespace(is_gone=False)
        self.dispatcher = dispatcher._Dispatcher(dispatcher.DispatcherSetup(folder, tenants, ORIGIN_S), parent)
        self.lanes = self.dispatcher._lanes
        curve = LatencyCurve((1, 4), (0.01, 0.02))
        own = SimpleNamespace(
            operating_points={"1c": SimpleNamespace(batch=4, processes=1, latency=curve, batch_latency_s=0.02)},
            weight=0.5,
            model="mlp",
        )
        parts: tuple[Any, ...] = self, Gpu(), self.clock, Models(folder), dict.fromkeys(tenants, own)
        self.workers = LiveWorkers(*parts, WINDOW_S, folder)
        self.order(Watch())

    # --- the site's and the warm process's side

    @property
    def machine_s(self) -> float:
        return ORIGIN_S + self.clock.now_s

    def order(self, order: Any) -> None:
        self.to_dispatcher.append((CONTROLLER + b"1", packed(order)))

    def received(self, _: float) -> list[Any]:
        found, self.to_controller = self.to_controller, []
        return [one for one in found if isinstance(one, _HEARD)]

    def _fork(
        self, function: str, arguments: Mapping[str, Any], *, name: str, environment: Mapping[str, str], **_: object
    ) -> str:
        pid, lane = 100 + len(self.processes), environment["WHERE"]
        if function.startswith("workloads.live.worker"):
            setup = value_in(arguments["setup"], worker.WorkerSetup)
            self.processes[name] = Server(name, pid, lane, setup=setup, beat_s=self.clock.now_s)
        else:
            self.processes[name] = Trainer(name, pid, lane, course=Path(arguments["course"]), go=arguments["go"])
        self.zygote.workers[name] = pid
        self.to_controller.append(Forked(name, pid, self.machine_s, self.machine_s))
        return name

    def _end(self, name: str, limit_s: float) -> None:
        process = self.processes[name]
        if process.is_alive:
            process.asked = True
            process.killed_s = min(process.killed_s, self.clock.now_s + limit_s)

    # --- the dispatcher's side

    def _to_worker(self, identity: bytes, raw: bytes) -> None:
        if identity[:1] == CONTROLLER:
            self.to_controller.append(TO_CONTROLLER.message(raw))
            return
        own, message = self.processes.get(identity[1:].decode()), TO_WORKER.message(raw)
        if not isinstance(own, Server) or not own.is_alive:
            raise zmq.ZMQError
        if identity[:1] == WORKER or isinstance(message, Stop):
            own.inbox.append(message)
        if isinstance(message, Batch):
            own.batch = message.ids
        own.n_loads += isinstance(message, Load)

    def _to_client(self, _: bytes, __: bytes) -> None:
        pass

    def _killed_by(self, pid: int) -> None:
        for process in self.processes.values():
            if process.pid == pid:
                self.kill(process)

    # --- what happens

    def kill(self, process: Process, code: int | None = None) -> None:
        """The process ends: by a signal, or with a code."""
        if not process.is_alive:
            return
        process.is_alive = False
        self._dead.append(process.pid)
        self.zygote.workers.pop(process.name)
        number = signal.SIGKILL if code is None else None
        self.to_controller.append(Exited(process.name, process.pid, code, number, "", process.asked, self.machine_s))

    def ask(self, tenant: str, slo_s: float = 50.0) -> None:
        self._n_requests += 1
        request = Request(self._n_requests, tenant, self.machine_s, self.machine_s + slo_s, b"x")
        self.dispatcher._from_client(b"client", packed(request))

    def deliver(self, most: int = 1_000_000) -> None:
        """The dispatcher takes so many of its messages, hears of deaths, and hands out what it can."""
        for _ in range(min(most, len(self.to_dispatcher))):
            self.dispatcher._from_workers(*self.to_dispatcher.pop(0))
        dead, self._dead = self._dead, []
        self.dispatcher._reap(dead)
        if self.clock.now_s >= self._tick_s:
            self.dispatcher._tick(self.machine_s, is_behind=False)
            self._tick_s = self.clock.now_s + self.dispatcher._setup.tick_s
        self.dispatcher._hand_out(self.machine_s)

    def hear(self) -> list[Happening]:
        """What the loop is told."""
        found: list[Happening] = []
        while news := self.workers.happenings(-math.inf):
            found += news
        self.news += found
        return found

    def act(self, process: Process) -> None:
        """Its next thing to do, if it runs."""
        if not process.is_alive or process.is_stopped:
            return
        (self._serve if isinstance(process, Server) else self._train)(process)

    def _say(self, process: Process, *messages: Any) -> None:
        self.to_dispatcher.extend((WORKER + process.name.encode(), packed(message)) for message in messages)

    def _serve(self, own: Any) -> None:
        setup: worker.WorkerSetup = own.setup
        own.is_leaving |= own.asked
        if own.state is None:
            own.state = State.STARTING
            measured = setup.batch_limit, setup.batches, setup.latency_s
            self._say(own, Hello(setup.tenant, own.pid, *measured, setup.lane, setup.is_shared))
        elif own.state is State.STARTING:
            own.state = State.WARM
            self._say(own, Ready(0.1, 0.1, 0.1, setup.version))
        elif own.inbox:
            self._heed(own, own.inbox.pop(0))
        elif own.is_leaving:
            own.state = State.DRAINING
            self._say(own, Goodbye("drained"))
            own.is_leaving = own.asked = False

    def _heed(self, own: Server, message: Any) -> None:
        assert own.setup is not None
        match message:
            case Serve():
                own.state = State.SERVING
                self._say(own, Credit(own.setup.batch_limit))
            case Batch():
                credit = 0 if own.is_leaving else own.setup.batch_limit
                self._say(own, Answers(message.ids, (b"y",) * len(message.ids), "first", 0.01, credit))
                own.batch = ()
            case Load():
                own.n_loads -= 1
                self._say(own, Loaded(own.name, message.version, 0.1))
            case Drain():
                own.is_leaving = True
            case Stop():
                self.kill(own, 0)

    def _train(self, own: Any) -> None:
        if own.asked:
            self.kill(own, 0)
        elif own.told == 0:
            own.told = 1
            self.to_controller.append(Reached(own.name, "warm", self.machine_s))
        elif own.told == 1 and own.computes:
            own.told = 2
            self._write(own, course.Started(0.4, "first", 0.1))

    def _write(self, own: Trainer, told: course.Told) -> None:
        with own.course.open("ab") as file:
            file.write(course.line_of(told))
        self.to_controller.append(Reached(own.name, told.kind, self.machine_s))

    def ends(self, own: Process, *, well: bool = True) -> None:
        """A trainer that is at work has its last word."""
        if isinstance(own, Trainer) and own.told == 2 and own.is_alive and not own.is_stopped:
            own.told = 3
            last = course.Finished(0.9, "/w/final", 2.0) if well else course.Failed("deadline", "it was late", 1.5)
            self._write(own, last)

    def step(self, for_s: float) -> None:
        """Time passes: hearts beat, and who has not ended by its limit is killed."""
        self.clock.now_s += for_s
        for own in [*self.processes.values()]:
            if own.is_alive and own.killed_s <= self.clock.now_s:
                self.kill(own)
            if isinstance(own, Server) and own.is_alive and not own.is_stopped and own.state is not None:
                while own.beat_s + _BEATS_S <= self.clock.now_s:
                    own.beat_s += _BEATS_S
                    beat = Heartbeat(own.name, own.state, 0.0, 0, 0, 0)
                    self.to_dispatcher.append((HEART + own.name.encode(), packed(beat)))

    def settle(self, for_s: float, by_s: float = 0.1) -> None:
        """All do what they can, and everything is delivered, for so long."""
        until_s = self.clock.now_s + for_s
        while self.clock.now_s < until_s - 1e-9:
            for own in [*self.processes.values()]:
                self.act(own)
            self.deliver()
            self.hear()
            self.step(min(by_s, until_s - self.clock.now_s))

    # --- what the loop asks for

    def instance(self, lane: int) -> GpuInstance:
        return GpuInstance(lane, GPU.placement(f"1c@{lane}"), f"uuid-{lane}")

    def serve(self, lane: int, tenant: str, *, is_shared: bool = True) -> None:
        joint = JOINT if is_shared else None
        self.workers.start(f"1c@{lane}#0", self.instance(lane), Owner(tenant, Task.INFERENCE), 2, FULLY, joint)

    def lend(self, lane: int, tenant: str, number: int) -> str:
        """The loan's id."""
        name = f"1c@{lane}#{number}"
        self.workers.start(name, self.instance(lane), Owner(tenant, Task.RETRAINING), 1, ON_LOAN)
        return name

    # --- what is true

    def computing(self, lane: int) -> set[str]:
        """Who computes in the instance: tenants that are served, and trainers."""
        here = [one for one in self.processes.values() if one.lane == f"uuid-{lane}" and one.is_alive]
        servers = [one for one in here if isinstance(one, Server) and (one.batch or one.n_loads)]
        trainers = [one for one in here if isinstance(one, Trainer) and one.computes]
        return {one.setup.tenant for one in servers if one.setup is not None} | {one.name for one in trainers}

    def is_lent(self, lane: int) -> bool:
        own = self.lanes._lanes.get(f"uuid-{lane}")
        return own is not None and bool(own.lent_to)


_HEARD = Changed | Hung | Lent | Loaded | NotDone | Heartbeat | Forked | Exited | Reached


class _Poller:
    def register(self, *_: object) -> None:
        pass

    def unregister(self, *_: object) -> None:
        pass
