"""The processes that are measured: started, brought into their instances, told what to do, and gone at the end."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from executor.driver import DriverGpu
from executor.errors import GpuError
from executor.gpu import GpuInstance
from executor.zygote import LIMIT_S, Event, Exited, Forked, Reached, Zygote
from migrator.profiling.subjects import Subject
from workloads.measuring import LIBRARY, MODEL, WARM, Load, Stretch

STUCK_S = 300.0
"""A process that says nothing for so long, where it should, is given up."""

_LEAD_S = 0.1
"""Between an order and the begin of what is measured, so that it has reached everybody."""

_LARGEST = 1 << 16
_FORKED, _ENTERED = "forked", "entered"


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a process belongs: the instance, and its number among the processes there, from 0."""

    instance: GpuInstance
    number: int


@dataclass(frozen=True, slots=True)
class StartPhases:
    """Seconds of one start, from being asked for until it could serve in its instance.

    Attributes:
        fork_s: Until the process ran.
        library_s: Until its libraries were loaded.
        model_s: Until the model was made.
        warm_up_s: Until it had answered a first batch.
        enter_s: Until it was in its instance, where its environment does not say that from the beginning.
    """

    fork_s: float
    library_s: float
    model_s: float
    warm_up_s: float
    enter_s: float

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.fork_s + self.library_s + self.model_s + self.warm_up_s + self.enter_s


@dataclass(eq=False)
class _Member:
    """A process as the crew knows it; ``lost`` says why it is of no more use."""

    name: str
    seat: Seat
    asked_s: float
    reached_s: dict[str, float] = field(default_factory=dict)
    connection: socket.socket | None = None
    told: dict[str, Any] = field(default_factory=dict)
    lost: str = ""
    is_gone: bool = False

    @property
    def is_ready(self) -> bool:
        return self.connection is not None and _ENTERED in self.reached_s

    @property
    def failure(self) -> str:
        return self.lost or str(self.told.get("error", ""))

    @property
    def start(self) -> StartPhases:
        moments = [self.asked_s, *(self.reached_s[phase] for phase in (_FORKED, LIBRARY, MODEL, WARM, _ENTERED))]
        return StartPhases(*(later - earlier for earlier, later in pairwise(moments)))


class Crew:
    """The processes of one model in one layout. A context, at whose end they are gone. For the zygote's thread."""

    def __init__(self, gpu: DriverGpu, zygote: Zygote, subject: Subject, folder: Path) -> None:
        """Nobody yet; sockets and logs are in ``folder``."""
        self._gpu, self._zygote, self._subject, self._folder = gpu, zygote, subject, folder
        self._members: dict[Seat, _Member] = {}
        self._address, self._sockets = folder / "orders.sock", folder / "feeder"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self._address))
        self._listener.listen(64)
        self._n_named = 0
        self._feeder = ""

    def __enter__(self) -> Self:
        arguments = {"folder": str(self._sockets), "sample": str(self._subject.sample)}
        self._feeder = self._zygote.start("workloads.measuring:feeds", arguments, log=self._folder / "workers.log")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._zygote.stop(self._feeder, 0.0)
            self.dismiss()
        finally:
            self._listener.close()
            self._address.unlink(missing_ok=True)

    def start(self, seats: Iterable[Seat]) -> dict[Seat, StartPhases | str]:
        """Those who are not there yet are asked for at the same time: how long each took, or why it is not there."""
        wanted = [seat for seat in seats if seat not in self._members]
        members = [self._asked_for(seat) for seat in wanted]
        self._await(members, lambda member: member.is_ready)
        return {member.seat: member.lost or member.start for member in members}

    def measured(self, seats: Sequence[Seat], load: Load, seconds: float) -> dict[Seat, Stretch | str]:
        """What each did, all of them at the same time, for so long; or why there is no figure of it."""
        members = [self._members[seat] for seat in seats]
        for member in members:
            member.told.clear()
            self._send(member, {"run": asdict(load)})
        self._await(members, lambda member: "running" in member.told)
        from_s = time.monotonic() + _LEAD_S
        running = [member for member in members if not member.failure]
        for member in running:
            self._send(member, {"measure": [from_s, from_s + seconds]})
        self._await(running, lambda member: "measured" in member.told)
        for member in members:
            self._send(member, {"rest": True})
        return {member.seat: member.failure or Stretch(**member.told["measured"]) for member in members}

    def dismiss(self) -> None:
        """All are told to end; back when they have."""
        for member in self._members.values():
            if member.connection is not None:
                member.connection.close()
                member.connection = None
            self._zygote.stop(member.name)
        until_s = time.monotonic() + 2 * LIMIT_S  # the zygote kills who does not go
        while not all(member.is_gone for member in self._members.values()) and time.monotonic() < until_s:
            self._hear(until_s - time.monotonic())
        self._members.clear()

    def _asked_for(self, seat: Seat) -> _Member:
        self._n_named += 1
        subject, name = self._subject, f"{seat.instance.placement}.{seat.number} ({self._n_named})"
        member = _Member(name, seat, time.monotonic())
        arguments = {
            "worker": name,
            "address": str(self._address),
            "feeder": str(self._sockets),
            "model": subject.model,
            "options": subject.options,
            "imports": subject.imports,
            "sample": str(subject.sample),
            "samples": None if subject.samples is None else str(subject.samples),
        }
        self._zygote.start(
            "workloads.measuring:measures",
            arguments,
            name=name,
            environment=self._gpu.environment(seat.instance.uuid),
            log=self._folder / "workers.log",
        )
        self._members[seat] = member
        return member

    def _await(self, members: Sequence[_Member], is_done: Callable[[_Member], bool]) -> None:
        """Until each is done, or lost; who says nothing for too long is ended."""
        until_s = time.monotonic() + STUCK_S
        while waiting := [member for member in members if not (member.failure or is_done(member))]:
            left_s = until_s - time.monotonic()
            if left_s > 0:
                self._hear(left_s)
                continue
            for member in waiting:
                member.lost = f"it said nothing for {STUCK_S:g} s"
                self._zygote.stop(member.name, 0.0)

    def _hear(self, timeout_s: float) -> None:
        """Take what anybody says; waits until somebody has, or ``timeout_s`` have passed."""
        connected = {m.connection: m for m in self._members.values() if m.connection is not None}
        sources: list[Any] = [self._zygote, self._listener, *connected]
        ready, _, _ = select.select(sources, [], [], timeout_s)
        for source in ready:
            if source is self._zygote:
                for event in self._zygote.events():
                    self._note(event)
            elif source is self._listener:
                connection, _ = self._listener.accept()
                name = _message(connection).get("worker")
                member = next((member for member in self._members.values() if member.name == name), None)
                if member is None:
                    connection.close()
                else:
                    member.connection = connection
            else:
                member = connected[source]
                message = _message(source)
                member.told |= message
                if not message:  # it is dying, and the zygote will tell of what
                    source.close()
                    member.connection = None

    def _note(self, event: Event) -> None:
        if not isinstance(event, Forked | Reached | Exited):
            return
        if isinstance(event, Exited) and event.worker == self._feeder and not event.was_asked:
            for one in self._members.values():
                one.lost = one.lost or f"nobody feeds it: {event.reason}"
        member = next((member for member in self._members.values() if member.name == event.worker), None)
        if member is None:
            return
        match event:
            case Forked():
                member.reached_s[_FORKED] = event.at_s
                if not self._gpu.is_entered_warm:
                    self._bring_in(member)
            case Reached():
                member.reached_s[event.phase] = event.at_s
                if event.phase == WARM:
                    if self._gpu.is_entered_warm:
                        self._bring_in(member)
                    member.reached_s[_ENTERED] = time.monotonic()
            case Exited():
                member.lost, member.is_gone = member.lost or event.reason.removeprefix("ModelError: "), True

    def _bring_in(self, member: _Member) -> None:
        pid = self._zygote.workers.get(member.name)
        if pid is None:
            return
        try:
            self._gpu.enter(member.seat.instance.uuid, pid)
        except GpuError as error:
            member.lost = str(error)
            self._zygote.stop(member.name)

    def _send(self, member: _Member, order: Mapping[str, object]) -> None:
        if member.connection is None:
            return
        try:
            member.connection.send(json.dumps(order).encode())
        except OSError:  # it is dying
            member.connection.close()
            member.connection = None


def _message(connection: socket.socket) -> dict[str, Any]:
    """What it says; nothing if it is gone."""
    try:
        raw = connection.recv(_LARGEST)
    except OSError:
        return {}
    message: dict[str, Any] = json.loads(raw) if raw else {}
    return message
