"""Where simulated and real part: what the loop knows of either side.

Here are :class:`Workers` (who serves and trains), :class:`Sharing` (what a policy's answer becomes on the GPU) and
:class:`Accounts` (outcomes of requests); the other seams are :class:`migrator.inputs.traffic.Traffic`,
:class:`migrator.execution.models.Models` and :class:`executor.gpu.Gpu`. None of them tells the loop the future. A
worker is ready when a :class:`Ready` says so, and a retraining ends with a :class:`Finished`; either may never come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from executor.gpu import GpuInstance
from executor.mig import OwnedLayout
from forecaster.forecast import Forecast
from migrator.errors import MigratorError
from migrator.execution.changes import Training
from migrator.execution.feedback import Feedback
from migrator.execution.happenings import Asked, Failed, Happened, Happening, PlannedAhead, Replanned, Replanning
from migrator.execution.windows import Opening, PlannedWindow
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Traffic
from migrator.log.records import Queue, Record, Wall
from planner.problem import Owner
from workloads.arrays import FloatArray
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.pool import Kernel, Lane, Piece, PoolState
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.serving.tally import SecondCounts, SettledWindow, Totals
from workloads.tenants import Tenant


class Workers(Protocol):
    """The worker processes inside GPU instances: started, stopped, and reported on when something happens to them.

    All processes of one tenant in an instance are a worker. In an instance of a pool each member has one.
    """

    def start(
        self,
        instance_id: str,
        instance: GpuInstance,
        owner: Owner,
        n_at_once: int,
        training: Training,
        joint: OperatingPoint | None = None,
    ) -> None:
        """Start a worker now, as one of ``n_at_once`` that start together; one that retrains, like this.

        ``owner`` is one tenant's task, also in an instance of a pool; ``joint`` is how it is served in such a one.
        """

    def serve_by(self, instance_id: str, tenant: str, joint: OperatingPoint | None) -> None:
        """Let a worker serve on, as a member of another pool by ``joint``, or for its tenant alone (``None``)."""

    def change_tenants(self, tenants: Mapping[str, Tenant]) -> None:
        """Workers of these may be started from now on, too."""

    def drain(self, instance_id: str, tenant: str) -> float:
        """Give the worker no further work; returns when it will be done with what it has."""

    def stop(self, instance_id: str, tenant: str) -> Failed | None:
        """Stop the worker. Returns its pending failure, if any; no further happenings of it follow."""

    def hold(self, instance_id: str, for_s: float) -> None:
        """Let a trainer that is ready on a loan begin so much later: a last batch is still in service beside it.

        Real ones are not ready before it is answered.
        """

    def happenings(self, until_s: float) -> Sequence[Happening]:
        """Wait for the first happenings, until the clock shows ``until_s`` at the latest; all of one moment, in order.

        What happened between two calls comes first, with its own time.
        """


class Counted(Protocol):
    """Outcomes of requests, in numbers."""

    @property
    def totals(self) -> Totals:
        """All requests resolved, all tenants together."""

    @property
    def open_totals(self) -> Mapping[str, Totals]:
        """By tenant, those of windows that are not settled; they may fall, as where a worker dies over its answers."""

    @property
    def queues(self) -> Mapping[str, Queue]:
        """By tenant, who waits, and until when servers are busy."""


class Accounts(Counted, Protocol):
    """Outcomes of requests. Nothing else of a run sees one.

    Attributes:
        are_real: Whether requests really were answered, or not: then it does not matter what is known of the GPU.
        feedback: What clients said of answers.
    """

    are_real: bool
    feedback: Feedback

    @property
    def now_s(self) -> float:
        """How far all tenants' requests have come."""

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """By server id, when the batch in service ends, where that is known."""

    @property
    def last_answer_s(self) -> float | None:
        """When the last answer that is under way is there; ``None`` where none is."""

    def in_time_shares(self, window: int) -> Mapping[str, float]:
        """By tenant, the share of the window's resolved requests that were answered in time; 1 without any.

        The window is open, or the one that was settled last.
        """

    def others_shares(self, first_s: int, end_s: int) -> Mapping[str, FloatArray]:
        """By tenant that shared lanes in these seconds, which part of them others had, ``(end_s − first_s,)``.

        From 0 to 1; a lane counts by its rate. What was before is forgotten.
        """

    def serve(
        self,
        servers: Mapping[str, Sequence[Server]],
        accuracies: Mapping[str, AccuracyTimeline],
        until_s: float,
        lanes: Sequence[Lane] = (),
        known_s: float = math.inf,
    ) -> None:
        """Serve all that arrives before ``until_s`` with what is there.

        ``servers`` are those that each tenant has alone, ``lanes`` those of pools. Outcomes count at
        once if ``known_s``, up to when GPU state is confirmed, is infinite; else it waits for :meth:`know`.
        """

    def serve_by(
        self, kernel: Kernel, state: PoolState, accuracies: Mapping[str, AccuracyTimeline], until_s: float
    ) -> tuple[PoolState, Piece]:
        """Serve all tenants together by this kernel, up to ``until_s`` or until it stops itself."""

    def lose(self, tenant: str, server_ids: Iterable[str]) -> None:
        """Count as dropped what the tenant's servers had in service: they died over it."""

    def change_tenants(self, tenants: Sequence[Tenant], traffic: Traffic) -> None:
        """These are the tenants from now on: who comes has requests from here on, who goes has none any more.

        What waits of who goes is still served, dropped or counted as lost.
        """

    def leave_out(self, from_s: float, to_s: float) -> None:
        """Count no request of these seconds: the GPU's state, or what answered, is unknown."""

    def know(self, known_s: float) -> None:
        """Count what waited for GPU state to be confirmed up to here."""

    def knows(self, until_s: float) -> bool:
        """Whether every resolved request that arrived before is counted or left out."""

    def outside(self) -> Sequence[SecondCounts]:
        """By tenant, requests that arrived before the first window, once all are resolved; told once, else empty.

        Only clients ask then: a service that was started again answers before it has planned a window.
        """

    def settled(self, through_window: int) -> Sequence[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""


class Note(Protocol):
    """Writes a record to the log, at the run's clock; returns the record's number."""

    def __call__(self, record: Record, wall: Wall | None = None) -> int:
        """The record's number."""


class Sharing(Protocol):
    """What a policy's answer becomes on the GPU: MIG instances, shares of its processors, or turns on all of it.

    The loop goes from moment to moment: ``wait`` says up to when nothing changes, ``serve`` serves the requests until
    then, ``act`` does what is due then. Window after window, ``plan`` and then ``begin`` come first.

    Attributes:
        kind: ``instances``, ``shares`` or ``turns``.
        layout: Which owner holds which instance; ``None`` without instances.
        promised: By tenant whose retraining is to end in the running window, in which way; ``None`` where no window is
            planned ahead.
    """

    @property
    def kind(self) -> str:
        """How the log calls it."""

    @property
    def layout(self) -> OwnedLayout[Owner] | None:
        """Which owner holds which instance."""

    @property
    def promised(self) -> Mapping[str, str] | None:
        """Which retrainings are to end in the running window."""

    @property
    def known_s(self) -> float:
        """GPU state is confirmed up to this time: later requests are not counted yet. Infinite if all are."""

    def plan(self, opening: Opening, forecast: Forecast) -> PlannedWindow | None:
        """What is to be done in the window; ``None`` where it is decided from moment to moment."""

    def plan_ahead(self, opening: Opening, forecast: Forecast) -> PlannedAhead | None:
        """Begin to plan a window that has not begun, from what is promised for its start; ``None`` if that cannot be.

        The caller that asked for it asks for no plan that there may be until then.
        """

    def change_tenants(self, setting: Setting, opening: Opening | None, forecast: Forecast | None) -> None:
        """These are the tenants from now on.

        Inside a window, of whose rest ``opening`` and ``forecast`` are, that asks for another plan which must be.

        Raises:
            MigratorError: Tenants cannot come and go with this way to share.
        """

    def hold(self, layout: OwnedLayout[Owner], window: int, note: Note) -> None:
        """Put up what was there before; it serves until the window begins, which is planned from it."""

    def begin(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None, note: Note) -> None:
        """Take up the window; before window 0, have everything in place first, unless that was held."""

    def wait(self, until_s: float) -> float:
        """Wait for the next moment at which something is due or happens; that moment, ``until_s`` at the latest."""

    def serve(self, accounts: Accounts, accuracies: Mapping[str, AccuracyTimeline], until_s: float) -> float:
        """Have the accounts serve until then, or until what serving alone can tell has happened: how far it came."""

    def act(self, now_s: float, note: Note) -> Iterable[Happened]:
        """Take note of what happened and do what is due, requests being served up to ``now_s``.

        Yields what happened before it calls the driver, so that the log has it even if a call fails. If the
        rest of the window must be planned anew, and that can be now, it ends with asking for that.

        Raises:
            NoAnswerError: The driver has not answered for too long, or MIG mode is off.
        """

    def replan(
        self, seen: Opening, forecast: Callable[[], Forecast], asked: Asked, note: Note
    ) -> Iterable[Replanning | Replanned]:
        """Begin to plan the rest of the window anew, if that can be now; yields what follows at once.

        ``act`` yields the rest. ``seen`` is what is known now; ``forecast`` has the steps after it in the
        window.
        """

    def close(self) -> None:
        """End what is under way on other threads; nothing follows."""

    def served_by_second(self, window: int) -> Mapping[str, Mapping[str, list[float]]]:
        """By tenant what could have been served in each second of a window, where instances do not show it."""


class WithoutInstances:
    """What is the same in every :class:`Sharing` of a simulated GPU that has no instances.

    Attributes:
        layout: Always ``None``.
        known_s: All is known: the GPU is simulated.
    """

    layout: OwnedLayout[Owner] | None = None
    known_s = math.inf

    def plan(self, opening: Opening, forecast: Forecast) -> None:
        """Nothing yet: it is decided from moment to moment."""

    def replan(
        self, seen: Opening, forecast: Callable[[], Forecast], asked: Asked, note: Note
    ) -> Sequence[Replanning | Replanned]:
        """Never: there is no plan."""
        del seen, forecast, asked, note
        return ()

    def change_tenants(self, setting: Setting, opening: Opening | None, forecast: Forecast | None) -> None:
        """Never: shares and turns are of the tenants that a run begins with.

        Raises:
            MigratorError: Always.
        """
        del setting, opening, forecast
        raise MigratorError("tenants come and go only where the GPU is shared by MIG instances")

    def hold(self, layout: OwnedLayout[Owner], window: int, note: Note) -> None:
        """Never: a simulated run is carried out again instead.

        Raises:
            MigratorError: Always.
        """
        del layout, window, note
        raise MigratorError("only instances on a real GPU are held for a window")

    def close(self) -> None:
        """Do nothing: nothing is under way elsewhere."""
