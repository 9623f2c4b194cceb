"""Models in one instance: how long they take to start, what memory they take, and who gets what of their lane.

Run with ``python -m benchmarks.speed.lanes``; needs the extra ``live``. Targets: 42 of the catalogue's smallest model
all answer within 180 s, in at most 12 GB (Salus §5.3: 42 in one GPU); of three equal models that always have work each
gets 1/3 ± 0.05 of the lane's CPU time (Salus, Figure 11); the dispatcher takes at most 0.5 ms of CPU a turn.

Processes are forked from a warm one, as in a run, and enter no share: what they get is the dispatcher's doing alone.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic, process_time

from executor.cpu.duty import used_s
from executor.messages import as_text
from executor.zygote import Forked, Warm, Zygote
from migrator.execution.live.site import IMPORTS
from workloads.learning.datasets import benchmark
from workloads.live import dispatcher, worker
from workloads.live.lanes import Lanes
from workloads.live.messages import (
    TO_CLIENT,
    TO_CONTROLLER,
    Answer,
    Changed,
    Heartbeat,
    Request,
    State,
    Status,
    ToController,
    Watch,
)
from workloads.live.process import command
from workloads.live.queues import TenantQueue
from workloads.live.wire import CLIENTS, CONTROLLER, WORKERS, Peer, private_folder
from workloads.profiles.latency import LatencyCurve

N_SMALL = 42
N_EQUAL = 3
N_STARTS = 3
N_TURNS = 2000
FAIR_S = 20.0
UNDER_WAY = 24
SLO_S = 120.0
PATIENCE_S = 300.0
BATCH = 8
CURVE = ((1, BATCH), (0.005, 0.02))
PIXELS = bytes(64)


@dataclass
class Lane:
    """An instance that models share, as its controller and as a client."""

    folder: Path
    model: str
    zygote: Zygote
    controller: Peer[ToController]
    client: Peer[Answer]
    dispatcher_pid: int
    pids: dict[str, int] = field(default_factory=dict)
    serving: set[str] = field(default_factory=set)
    batches: dict[str, int] = field(default_factory=dict)

    def start(self, tenants: Sequence[str], *, at_once: bool) -> float:
        """Seconds until a worker of each tenant serves."""
        begin_s = monotonic()
        for number, tenant in enumerate(tenants):
            name, options = f"x/{tenant}", {**benchmark("digits").model_options, "weights": "random"}
            setup = worker.WorkerSetup(
                *(self.folder, name, tenant, self.model, BATCH, *CURVE, "x"),
                is_shared=True,
                options=options,
                sample_bytes=len(PIXELS),
            )
            arguments = {"setup": as_text(setup)}
            self.zygote.start("workloads.live.worker:forked", arguments, name=name, log=self.folder / "log")
            self._until_serving(number + 1 if not at_once else 0)
        self._until_serving(len(tenants))
        return monotonic() - begin_s

    def _until_serving(self, n_needed: int) -> None:
        until_s = monotonic() + PATIENCE_S
        while len(self.serving) < n_needed:
            if monotonic() > until_s:
                raise SystemExit(f"only {len(self.serving)} serve; see {self.folder / 'log'}")
            self.hear(1.0)
        self.pids |= {event.worker: event.pid for event in self.zygote.events() if isinstance(event, Forked)}

    def hear(self, timeout_s: float) -> None:
        """Take in what workers tell."""
        for message in self.controller.receive(timeout_s):
            match message:
                case Changed(state=State.SERVING):
                    self.serving.add(message.worker)
                case Heartbeat():
                    self.batches[message.worker] = message.batches

    def ask(self, number: int, tenant: str) -> None:
        """Send a request that arrives now."""
        now_s = monotonic()
        self.client.send(Request(number, tenant, now_s, now_s + SLO_S, PIXELS))


@contextmanager
def lane(model: str, tenants: Sequence[str]) -> Iterator[Lane]:
    """A lane without workers, of which the warm process has imported all that it needs."""
    with tempfile.TemporaryDirectory() as named, Zygote(IMPORTS) as zygote:
        while not any(isinstance(event, Warm) for event in zygote.events(1.0)):
            pass
        folder = private_folder(Path(named))
        setup = dispatcher.DispatcherSetup(folder, tuple(tenants), monotonic(), silence_s=PATIENCE_S, turn_cost=0.05)
        process = subprocess.Popen(command("workloads.live.dispatcher", as_text(setup)))  # noqa: S603 - our own
        peers = Peer(folder, WORKERS, CONTROLLER, TO_CONTROLLER), Peer(folder, CLIENTS, b"", TO_CLIENT)
        peers[0].send(Watch())
        try:
            yield Lane(folder, model, zygote, *peers, process.pid)
        finally:
            for peer in peers:
                peer.close()
            process.terminate()
            process.wait()


def proportional_mib(pids: Sequence[int]) -> float:
    """What the processes take of the memory, shared pages divided among those that share them (``Pss``)."""
    rolled = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    return sum(int(line.split()[1]) for lines in rolled for line in lines if line.startswith("Pss:")) / 1024


def starts_s(model: str, tenants: Sequence[str], *, at_once: bool) -> float:
    """Seconds until all of them serve."""
    with lane(model, tenants) as place:
        return place.start(tenants, at_once=at_once)


def crowd(model: str, n_models: int) -> tuple[float, float]:
    """Seconds until each of so many models has answered a request, and what all take in MiB."""
    tenants = [f"tenant-{number}" for number in range(n_models)]
    with lane(model, tenants) as place:
        begin_s = monotonic()
        place.start(tenants, at_once=True)
        for number, tenant in enumerate(tenants):
            place.ask(number, tenant)
        statuses = list[Status]()
        while len(statuses) < n_models:
            statuses += [answer.status for answer in place.client.receive(PATIENCE_S)]
        assert set(statuses) == {Status.IN_TIME}, statuses
        return monotonic() - begin_s, proportional_mib([place.zygote.pid, *place.pids.values()])


def shares(model: str, n_models: int) -> tuple[list[float], float]:
    """Each model's part of the CPU time that all took, always having work; the dispatcher's CPU in ms a turn."""
    tenants = [f"tenant-{number}" for number in range(n_models)]
    with lane(model, tenants) as place:
        place.start(tenants, at_once=True)
        pids = [place.pids[f"x/{tenant}"] for tenant in tenants]
        under_way, of, n_asked = dict.fromkeys(tenants, 0), dict[int, str](), 0
        before_s, before = [used_s(pid) for pid in pids], used_s(place.dispatcher_pid)
        until_s = monotonic() + FAIR_S
        while monotonic() < until_s:
            for tenant in tenants:
                for _ in range(UNDER_WAY - under_way[tenant]):
                    place.ask(n_asked, tenant)
                    of[n_asked], under_way[tenant], n_asked = tenant, UNDER_WAY, n_asked + 1
            for answer in place.client.receive(1.0):
                under_way[of.pop(answer.id)] -= 1
            place.hear(0.0)
        taken_s = [used_s(pid) - earlier for pid, earlier in zip(pids, before_s, strict=True)]
        n_turns = sum(place.batches.values())
        return [own / sum(taken_s) for own in taken_s], 1000 * (used_s(place.dispatcher_pid) - before) / n_turns


def decision_ms(n_members: int) -> float:
    """From a member's answers to the next turn, sockets aside: the median CPU time of ``N_TURNS`` turns."""
    names = [f"tenant-{number}" for number in range(n_members)]
    queues = {name: TenantQueue(name, 0.0, 2**28) for name in names}
    lanes, taken_s = Lanes(queues, 0.05), list[float]()
    for name, queue in queues.items():
        queue.join(f"x/{name}", LatencyCurve(*CURVE), BATCH)
        lanes.join("x", name, f"x/{name}", is_shared=True)
        queue.credit(f"x/{name}", BATCH)
        for number in range(UNDER_WAY):
            queue.arrive(b"", number, 0.0, SLO_S, PIXELS, 0.0)
    ((worker_name, batch),) = lanes.hand_out(0.0)
    for number in range(N_TURNS):
        queue = queues[worker_name.removeprefix("x/")]
        for _ in batch:
            queue.arrive(b"", UNDER_WAY + number, 0.0, SLO_S, PIXELS, 0.0)
        begin_s = process_time()
        queue.answer(worker_name, [one.number for one in batch], [PIXELS] * len(batch), "0", 0.0)
        queue.credit(worker_name, BATCH)
        ((worker_name, batch),) = lanes.hand_out(0.0)
        taken_s.append(process_time() - begin_s)
    return 1000 * median(taken_s)


def main() -> None:
    """Print what was measured for each question."""
    print(f"{os.cpu_count()} CPUs; processes forked from one that has imported torch; a lane for all of a case")
    print(f"\n{'models':>20} {'all at once, s':>22} {'one after another, s':>22}   (until all serve; alternately)")
    for model, n_models in (("mlp", 3), ("cnn_wide", 3), ("cnn_wide", 20)):
        tenants = [f"tenant-{number}" for number in range(n_models)]
        runs = [[starts_s(model, tenants, at_once=at_once) for at_once in (True, False)] for _ in range(N_STARTS)]
        shown = [" ".join(f"{seconds:.2f}" for seconds in column) for column in zip(*runs, strict=True)]
        print(f"{f'{n_models} {model}':>20} {shown[0]:>22} {shown[1]:>22}")
    seconds, mib = crowd("mlp", N_SMALL)
    print(
        f"\n{N_SMALL} mlp: all have answered after {seconds:.1f} s; they and the warm process take {mib:,.0f} MiB (Pss)"
    )
    parts, turn_ms = shares("cnn_wide", N_EQUAL)
    print(
        f"\n{N_EQUAL} cnn_wide that always have work, {FAIR_S:g} s: parts of the CPU time",
        *(f"{one:.3f}" for one in parts),
    )
    print(
        f"the dispatcher's CPU time: {turn_ms:.2f} ms a turn of at most {BATCH} requests, each taken and answered alone"
    )
    decisions = ", ".join(f"{decision_ms(n_members):.2f} ms with {n_members}" for n_members in (3, 5, 20, N_SMALL))
    print(f"of it from a member's answers to the next turn, sockets aside: {decisions} members")


if __name__ == "__main__":
    main()
