"""The processes that are measured: ordinary workers and trainers, in their instances, kept busy, and gone at the end.

A crew plays the dispatcher of live workers: one that has answered a batch is given the next at once. The time
from the end of one batch to the end of the next is taken here, messages included, as a dispatcher would see it. What
the steps of a retraining take comes from its trainer. Two models take turns as in a lane of the dispatcher: when one
has answered, the other is given its batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import zmq
from msgspec.structs import replace as with_

from executor.cpu.gpu import CpuGpu
from executor.driver import DriverGpu
from executor.errors import GpuError
from executor.files import read_input
from executor.gpu import GpuInstance
from executor.messages import MessageError, as_text, packed
from executor.zygote import LIMIT_S, Event, Exited, Forked, Reached, Zygote
from migrator.profiling.record import StartPhases, Stretch
from migrator.profiling.stages import BusyLoad
from migrator.profiling.subjects import Subject
from workloads.learning.course import CourseFile, Failed, Option, Stepped
from workloads.live.messages import (
    FROM_WORKER,
    MOST_BATCH_BYTES,
    Answers,
    Batch,
    Beat,
    FromWorker,
    Goodbye,
    NoAnswer,
    Ready,
    Stop,
)
from workloads.live.wire import HEART, WORKER, WORKERS, private_folder, router
from workloads.live.worker import WorkerSetup

LEAST_PASSES = 3
"""A stretch holds no fewer batches or steps, however long they take."""

TURN_ROUNDS = 5
"""So often batches in succession and in turns are measured, by turns; an odd number has a middle one."""


def together(told: Iterable[tuple[Stretch, ...] | str]) -> tuple[Stretch, ...] | str:
    """All stretches, or why one is missing."""
    found: tuple[Stretch, ...] = ()
    for one in told:
        if isinstance(one, str):
            return one
        found += one
    return found


class Stopwatch:
    """Takes the time of one process's passes, which follow each other without a pause.

    Attributes:
        n_passes: Done.
        stretch: What was measured; ``None`` until it is.
    """

    def __init__(self, samples_per_pass: float, cpu_s: Callable[[], float]) -> None:
        """``cpu_s`` is the CPU time that the process has used."""
        self.n_passes = 0
        self.stretch: Stretch | None = None
        self._samples_per_pass, self._cpu_s = samples_per_pass, cpu_s
        self._from_s = self._until_s = self._cpu_since_s = 0.0
        self._is_asked = False
        self._took_s: list[float] | None = None

    def measure(self, from_s: float, until_s: float) -> None:
        """Measure what begins after the one moment, until something ends after the other."""
        self._is_asked, self._from_s, self._until_s = True, from_s, until_s

    def passed(self, took_s: Sequence[float], at_s: float) -> None:
        """These passes are done, the last of them at ``at_s``."""
        self.n_passes += len(took_s)
        if not self._is_asked or self.stretch is not None:
            return
        if self._took_s is None:
            if at_s >= self._from_s:  # the next pass is the first that counts
                self._took_s, self._cpu_since_s = [], self._cpu_s()
            return
        self._took_s += took_s
        if at_s >= self._until_s and len(self._took_s) >= LEAST_PASSES:
            self.stretch = Stretch(
                n_passes=len(self._took_s),
                n_samples=len(self._took_s) * self._samples_per_pass,
                span_s=sum(self._took_s),
                median_s=float(np.median(self._took_s)),
                p95_s=float(np.quantile(self._took_s, 0.95, method="higher")),
                cpu_s=self._cpu_s() - self._cpu_since_s,
                p99_s=float(np.quantile(self._took_s, 0.99, method="higher")),
            )


STUCK_S = 300.0
"""A process that says nothing for so long, where it should, is given up."""

WARM = "warm"
"""The phase at which a worker or trainer has loaded everything."""

_AT_ONCE = 256
"""Messages of workers that are taken before the zygote is asked again."""

_N_BEFORE = 2
"""Batches or steps before a load counts as running: libraries come to life in the first."""

_STEPS_EVERY_S = 0.1
"""So often trainers tell what their steps took."""

_ENDLESS = 10**9
"""Epochs of a retraining that goes on until it is asked to leave."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a process belongs: the instance, its number among the processes there, from 0, and whose model it has."""

    instance: GpuInstance
    number: int
    is_beside: bool = False


@dataclass(eq=False)
class _Member:
    """A process as the crew knows it.

    Attributes:
        course: What it tells, if it is a trainer.
        forked_s: When it ran; ``warm_s``: when it had loaded everything; ``entered_s``: when it was in its instance.
        ready: What it told as it became warm, if it is a worker.
        batch: With what it is kept busy; ``None`` while it may rest.
        then: Who is given its batch when this one has answered; ``None``: itself.
        batch_mib: What its batches take of memory, by size.
        sent_s: When it was given the batch that it has, or had ended the one before; ``None``: it has none.
        error: Why there is no figure of the load under way.
        lost: Why it is of no more use.
    """

    name: str
    slot: Slot
    asked_s: float
    course: CourseFile | None = None
    forked_s: float = 0.0
    warm_s: float = 0.0
    entered_s: float = 0.0
    ready: Ready | None = None
    batch: bytes | None = None
    then: _Member | None = None
    batch_mib: dict[int, float] = field(default_factory=dict)
    sent_s: float | None = None
    stopwatch: Stopwatch = field(default_factory=lambda: Stopwatch(1.0, lambda: 0.0))
    error: str = ""
    lost: str = ""
    is_gone: bool = False

    @property
    def is_ready(self) -> bool:
        return self.ready is not None and self.entered_s > 0.0

    @property
    def failure(self) -> str:
        return self.lost or self.error or ("" if self.then is None else self.then.lost or self.then.error)

    def measured(self, n_requests: int) -> tuple[Stretch] | str:
        """What was measured of batches so large, or of a retraining; or why nothing was."""
        stretch = self.stopwatch.stretch
        if stretch is None:
            return self.failure
        if (ready := self.ready) is None:
            return (stretch,)
        memory = {"weights_mib": ready.weights_mib, "context_mib": ready.context_mib}
        return (with_(stretch, **memory, batch_mib=self.batch_mib.get(n_requests)),)

    @property
    def start(self) -> StartPhases:
        assert self.ready is not None
        model_s, warm_up_s = self.ready.model_s, self.ready.warm_up_s
        return StartPhases(
            fork_s=self.forked_s - self.asked_s,
            library_s=max(0.0, self.warm_s - self.forked_s - model_s - warm_up_s),
            model_s=model_s,
            warm_up_s=warm_up_s,
            enter_s=self.entered_s - self.warm_s,
        )


class Crew:
    """The processes of one model in one layout, and those of a model that takes turns with it, if there is one.

    A context manager: its end ends them. Only the zygote's thread uses it.
    """

    def __init__(
        self, gpu: DriverGpu, zygote: Zygote, subject: Subject, folder: Path, beside: Subject | None = None
    ) -> None:
        """No process yet; sockets, logs and what trainers tell are in ``folder``."""
        self._gpu, self._zygote, self._subject, self._folder = gpu, zygote, subject, folder
        self._beside = subject if beside is None else beside
        self._members: dict[Slot, _Member] = {}
        self._sockets = private_folder(folder / "sockets")
        self._context = zmq.Context()
        self._router = router(self._context, self._sockets, WORKERS, MOST_BATCH_BYTES)
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(zygote.fileno(), zmq.POLLIN)
        self._n_named = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.dismiss()
        finally:
            self._router.close()
            self._context.term()

    def start(self, slots: Iterable[Slot], *, weighs: bool = True) -> dict[Slot, StartPhases | str]:
        """Workers that are not there yet are asked for at the same time: how long each took, or why it is not there.

        If it ``weighs`` itself, it takes longer.
        """
        members = [self._worker(slot, weighs=weighs) for slot in slots if slot not in self._members]
        self._await(members, lambda member: member.is_ready)
        return {member.slot: member.lost or member.start for member in members}

    def measured(
        self, slots: Sequence[Slot], load: BusyLoad, seconds: float
    ) -> Mapping[Slot, tuple[Stretch, ...] | str]:
        """What each did, all of them at the same time, for so long; or why there is no figure of it.

        In turns a process has four stretches a round: its batches in succession, those of the other model there, and
        both when each batch follows one of the other. All rounds together have each of them for so long.
        """
        if load.beside is not None:
            return self._in_turns(slots, load.batch, seconds / TURN_ROUNDS)
        if load.strategy is None:
            members = [self._members[slot] for slot in slots]
            for member in members:
                self._prepare(member, load.batch)
                self._feed(member, time.monotonic())
        else:
            self.dismiss()  # a model of its own beside the trainer's might not fit
            members = [self._trainer(slot, load, load.strategy) for slot in slots]
        self._time(members, seconds)
        if load.strategy is not None:
            self.dismiss()
        return {member.slot: member.measured(load.batch) for member in members}

    def beside_training(
        self, slot: Slot, n_requests: int, seconds: float, training: tuple[Slot, BusyLoad, Subject] | None
    ) -> tuple[Stretch, ...] | str:
        """What the worker did, for so long; and a training meanwhile, which goes on, if there is one."""
        members = [self._members[slot]]
        self._prepare(members[0], n_requests)
        if training is not None:
            at, load, subject = training
            if at not in self._members:
                self._trainer(at, load, load.strategy or "", subject)
                self._await([self._members[at]], lambda member: member.stopwatch.n_passes >= _N_BEFORE)
            other = self._members[at]
            other.stopwatch = self._steps_of(other, load, subject)
            members.append(other)
        self._feed(members[0], time.monotonic())
        self._time(members, seconds)
        return together(member.measured(n_requests) for member in members)

    def _in_turns(
        self, slots: Sequence[Slot], n_requests: int, seconds: float
    ) -> dict[Slot, tuple[Stretch, ...] | str]:
        own = [self._members[slot] for slot in slots]
        others = [self._members[replace(slot, is_beside=True)] for slot in slots]
        found: dict[Slot, list[tuple[Stretch, ...] | str]] = {slot: [] for slot in slots}
        for fed, waiting in ((own, []), (others, []), (own, others)) * TURN_ROUNDS:
            for member, other in zip(own, others, strict=True):
                self._prepare(member, n_requests, other if waiting else None)
                self._prepare(other, n_requests, member if waiting else None)
            for member in fed:
                self._feed(member, time.monotonic())
            self._time([*fed, *waiting], seconds)
            for member in (*fed, *waiting):
                found[replace(member.slot, is_beside=False)].append(member.measured(n_requests))
        return {slot: together(told) for slot, told in found.items()}

    def _time(self, members: Sequence[_Member], seconds: float) -> None:
        """Take the time of those at work for so long, then let them rest."""
        self._await(members, lambda member: member.stopwatch.n_passes >= _N_BEFORE)
        from_s = time.monotonic()
        running = [member for member in members if not member.failure]
        for member in running:
            member.stopwatch.measure(from_s, from_s + seconds)
        self._await(running, lambda member: member.stopwatch.stretch is not None)
        for member in members:
            member.batch = None
        self._await(members, lambda member: member.sent_s is None)

    def dismiss(self) -> None:
        """Ask all to end; return when they have."""
        for member in self._members.values():
            self._send(WORKER, member, packed(Stop(member.name, "it was measured")))
            self._zygote.stop(member.name)
        until_s = time.monotonic() + 2 * LIMIT_S  # the zygote kills what does not go
        while not all(member.is_gone for member in self._members.values()) and time.monotonic() < until_s:
            self._receive(until_s - time.monotonic())
        self._members.clear()

    # --- starting

    def _worker(self, slot: Slot, *, weighs: bool) -> _Member:
        subject, member = self._beside if slot.is_beside else self._subject, self._named(slot)
        setup = WorkerSetup(
            folder=self._sockets,
            worker=member.name,
            tenant=subject.model,
            model=subject.model,
            batch_limit=1,  # of the warm-up alone: batches are as large as the crew makes them
            batches=(),
            latency_s=(),
            options=subject.options,
            imports=subject.imports,
            sample=subject.sample,
            splits_batches=False,
            weighs="nowhere" if not weighs else "cpu" if isinstance(self._gpu, CpuGpu) else "cuda",
            silence_s=STUCK_S,
        )
        self._fork(member, "workloads.live.worker:forked", {"setup": as_text(setup)})
        return member

    def _steps_of(self, member: _Member, load: BusyLoad, subject: Subject) -> Stopwatch:
        assert subject.lesson is not None  # it trains
        return Stopwatch(subject.lesson.samples_per_step(load.batch), partial(self._cpu_s, member))

    def _trainer(self, slot: Slot, load: BusyLoad, strategy: str, subject: Subject | None = None) -> _Member:
        from workloads.learning.retraining import RetrainingJob  # noqa: PLC0415 - of models that learn

        subject = subject or self._subject
        lesson, member = subject.lesson, self._named(slot)
        assert lesson is not None
        course = self._folder / f"course-{self._n_named}.jsonl"
        job = RetrainingJob(
            model=subject.model,
            benchmark=lesson.benchmark,
            experience=lesson.experience,
            option=Option("measured", strategy, n_epochs=_ENDLESS, batch=load.batch, learning_rate=load.learning_rate),
            out=self._folder,
            folder=lesson.folder,
            timed_every_s=_STEPS_EVERY_S,
        )
        course.unlink(missing_ok=True)  # of another crew's trainer
        member.course = CourseFile(course)
        member.stopwatch = self._steps_of(member, load, subject)
        arguments = {"job": as_text(job), "course": str(course)}
        self._fork(member, "workloads.learning.retraining:forked", arguments)
        return member

    def _named(self, slot: Slot) -> _Member:
        self._n_named += 1
        name = f"{slot.instance.placement}.{slot.number} ({self._n_named})"
        member = self._members[slot] = _Member(name, slot, time.monotonic())
        return member

    def _fork(self, member: _Member, function: str, arguments: Mapping[str, str]) -> None:
        environment = self._gpu.environment(member.slot.instance.uuid)
        log = self._folder / "workers.log"
        self._zygote.start(function, arguments, name=member.name, environment=environment, log=log)

    # --- what they do

    def _prepare(self, member: _Member, n_requests: int, then: _Member | None = None) -> None:
        member.error, member.then = "", then
        member.stopwatch = Stopwatch(n_requests, partial(self._cpu_s, member))
        subject = self._beside if member.slot.is_beside else self._subject
        member.batch = packed(Batch(tuple(range(n_requests)), (read_input(subject.sample),) * n_requests))

    def _feed(self, member: _Member, now_s: float) -> None:
        assert member.batch is not None
        member.sent_s = now_s
        self._send(WORKER, member, member.batch)

    def _await(self, members: Sequence[_Member], is_done: Callable[[_Member], bool]) -> None:
        """Until each is done, or has failed; those that say nothing for too long are ended."""
        until_s = time.monotonic() + STUCK_S
        while waiting := [member for member in members if not (member.failure or is_done(member))]:
            left_s = until_s - time.monotonic()
            if left_s > 0:
                self._receive(left_s)
                continue
            for member in waiting:
                self._give_up(member, f"it said nothing for {STUCK_S:g} s")

    def _give_up(self, member: _Member, reason: str) -> None:
        member.lost = member.lost or reason
        self._zygote.stop(member.name, 0.0)

    def _receive(self, timeout_s: float) -> None:
        """Take what there is; waits for something, ``timeout_s`` at most."""
        ready = dict(self._poller.poll(math.ceil(1000 * max(0.0, timeout_s))))
        if self._zygote.fileno() in ready:
            for event in self._zygote.events():
                self._note(event)
        with suppress(zmq.Again):
            for _ in range(_AT_ONCE):
                identity, *frames = self._router.recv_multipart(zmq.NOBLOCK)
                member = self._member_of(identity[1:].decode("utf-8", "replace"))
                if member is None or member.lost:
                    continue
                if identity[:1] == HEART:
                    self._send(HEART, member, packed(Beat()))
                else:
                    self._take_raw(member, b"".join(frames))

    def _take_raw(self, member: _Member, raw: bytes) -> None:
        try:
            self._take(member, FROM_WORKER.message(raw))
        except MessageError as error:
            self._give_up(member, str(error))

    def _take(self, member: _Member, message: FromWorker) -> None:
        match message:
            case Ready():
                member.ready = message
            case Answers():
                self._answered(member, message)
            case Goodbye():
                member.lost = message.reason
                self._send(WORKER, member, packed(Stop(member.name, message.reason)))
            case _:  # it says who it is, or that it takes batches
                pass

    def _answered(self, member: _Member, message: Answers) -> None:
        now_s, begun_s, member.sent_s = time.monotonic(), member.sent_s, None
        reasons = [answer.reason for answer in message.answers if isinstance(answer, NoAnswer)]
        if reasons:
            member.error = reasons[0]
        elif member.batch is not None:
            self._feed(member.then or member, now_s)  # before anything else: it waits for this
        if message.batch_mib is not None:
            member.batch_mib[len(message.ids)] = message.batch_mib
        if begun_s is not None and not reasons:
            self._passed(member, [now_s - begun_s], now_s)

    def _passed(self, member: _Member, took_s: Sequence[float], at_s: float) -> None:
        with suppress(OSError):  # it has just ended, which the zygote will tell
            member.stopwatch.passed(took_s, at_s)

    def _note(self, event: Event) -> None:
        if not isinstance(event, Forked | Reached | Exited):
            return
        member = self._member_of(event.worker)
        if member is None:
            return
        self._read_course(member, event.at_s)
        match event:
            case Forked():
                member.forked_s = event.at_s
                if not self._gpu.is_entered_warm:
                    self._bring_in(member)
            case Reached(phase=phase):
                if phase == WARM:
                    member.warm_s = event.at_s
                    if self._gpu.is_entered_warm:
                        self._bring_in(member)
                    member.entered_s = time.monotonic()
            case Exited():
                member.lost, member.is_gone = member.failure or event.reason, True

    def _read_course(self, member: _Member, at_s: float) -> None:
        for told in () if member.course is None else member.course.news():
            if isinstance(told, Stepped):
                self._passed(member, told.took_s, at_s)
            elif isinstance(told, Failed):
                member.lost = member.lost or told.reason

    def _bring_in(self, member: _Member) -> None:
        pid = self._zygote.workers.get(member.name)
        if pid is None:
            return
        try:
            self._gpu.enter(member.slot.instance.uuid, pid)
        except GpuError as error:
            member.lost = str(error)
            self._zygote.stop(member.name)

    def _send(self, role: bytes, member: _Member, raw: bytes) -> None:
        with suppress(zmq.ZMQError):  # it is not connected yet, or no longer
            self._router.send_multipart((role + member.name.encode(), raw), zmq.NOBLOCK)

    def _member_of(self, name: str) -> _Member | None:
        return next((member for member in self._members.values() if member.name == name), None)

    def _cpu_s(self, member: _Member) -> float:
        """CPU seconds that the process has used.

        Source: the clock that clock_getcpuclockid(3) names; Linux makes its id of the process's.

        Raises:
            OSError: The process is gone.
        """
        pid = self._zygote.workers.get(member.name)
        if pid is None:
            raise ProcessLookupError(f"{member.name} is gone")
        return time.clock_gettime(~pid << 3 | 2)
