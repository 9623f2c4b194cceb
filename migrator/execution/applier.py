"""What happens on one GPU: the instances in use, their owners, workers and servers, and the change in progress.

The order of one change: workers that end take no new batch, but finish the one in service. Instances are destroyed,
then created, one driver call after the other. A worker starts in each as soon as the instance is free. Calls are made
off the loop's thread where the clock runs by itself, so that a slow or refused one stops nothing else. What will not
go is given back to the owner it was taken from; what is not in use, and what others hold, counts as taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import ParamSpec, TypeVar

from executor.clock import Clock
from executor.errors import DriverError, GpuError, GpuLostError, NoGpuError
from executor.gpu import BELIEVE_FOR_S, LOOK_EVERY_S, Gpu, GpuInstance, UnsureChangeError
from executor.journal import Journal, Remembered
from executor.mig import OwnedLayout, OwnedTransition, Placement, owned_transition
from executor.reconcile import Call, Going, Patience, Reconciler, Steps, Undone, Users, Wait
from migrator.execution import events
from migrator.execution.changes import (
    FULLY,
    NEVER_S,
    Change,
    ChangeOutcome,
    Died,
    Loan,
    Made,
    Started,
    Stopped,
    Training,
)
from migrator.execution.happenings import Failed, Ready
from migrator.execution.seams import Note, Workers
from migrator.execution.watch import DriverWatch
from migrator.log.trouble import BlindSpan
from planner.problem import Owner, Task
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.pool import Lane
from workloads.serving.servers import Server
from workloads.tenants import Tenant

P = ParamSpec("P")
T = TypeVar("T")


MAX_STARTS = 3
"""How often a serving worker is started in a row without getting ready; then its instance is left as it is."""

STAYS_S = 30.0
"""Seconds for which plans do without another attempt at an instance that would not go and serves again."""


JointServings = Callable[[tuple[str, ...]], Mapping[str, Mapping[str, OperatingPoint]]]
"""How an instance serves a pool of these members, by profile and then by member: turns of a batch in each process."""


@dataclass(frozen=True)
class Backend:
    """One GPU, simulated or real, with its clock, its workers, and what on it is ours; the clock shows run seconds.

    ``begin`` is called as the run begins, with the clock running; ``end`` when it is over, however it ends, with
    whether the driver may be called once more. A driver that may fall silent is asked every second whether it answers,
    and waited for as long as ``silent_s``; ``None``: it always answers.
    """

    gpu: Gpu
    clock: Clock
    workers: Workers
    journal: Journal = field(default_factory=Remembered)
    patience: Patience = field(default_factory=Patience)
    begin: Callable[[], object] = lambda: None
    end: Callable[[bool], object] = lambda _: None
    silent_s: float | None = None


@dataclass(eq=False)
class Worker:
    """All processes of one tenant in an instance in use.

    Attributes:
        owner: The tenant's task.
        expected_s: When it is ready if its start takes as long as planned.
        servers: Those that serve; none until it is ready.
        is_over: Whether it runs no more: its retraining has ended or failed, or it was given up.
        has_failed: Whether it died since it was last ready.
        n_starts: Its starts since it was last ready.
    """

    owner: Owner
    expected_s: float
    servers: tuple[Server, ...] = ()
    is_over: bool = False
    has_failed: bool = False
    n_starts: int = 1

    @property
    def server_ids(self) -> tuple[str, ...]:
        """Of those that serve."""
        return tuple(server.server_id for server in self.servers)

    @property
    def stands(self) -> bool:
        """Whether there is one, idle ones too: not after a failure after which it was not started again."""
        return not (self.has_failed and self.is_over)


@dataclass(eq=False)
class Live:
    """An instance in use; or a retraining that has one on a loan, under an id of its own.

    Attributes:
        started: Which owner got it, and what the plan promises of it.
        gpu_instance: On the GPU.
        window: In which it was started.
        change_s: When the change began that brought it, or its latest workers,
        begun_s: and when they were started for the first time.
        workers: By tenant: one, but for a pool's, of which each member has its own.
        is_starting: Whether the workers that the change brought are started for the first time and not all ready yet.
        stays_until_s: Until when it is not worth trying to destroy it again; it would not go.
        training: How it retrains, if it does.
    """

    started: Started
    gpu_instance: GpuInstance
    window: int
    change_s: float
    begun_s: float
    workers: dict[str, Worker] = field(default_factory=dict)
    is_starting: bool = True
    stays_until_s: float = -NEVER_S
    training: Training = FULLY

    @property
    def instance_id(self) -> str:
        """Unique over the run."""
        return self.started.instance_id

    @property
    def owner(self) -> Owner:
        """Whose task."""
        return self.started.owner

    @property
    def placement(self) -> Placement:
        """Where the instance sits."""
        return self.started.placement

    def worker(self, tenant: str | None = None) -> Worker:
        """The tenant's; that of the owner's first where none is named."""
        return self.workers[tenant or self.owner.tenant]

    @property
    def servers(self) -> tuple[Server, ...]:
        """Those that serve."""
        return tuple(server for worker in self.workers.values() for server in worker.servers)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs in it any more."""
        return all(worker.is_over for worker in self.workers.values())

    @property
    def is_ready(self) -> bool:
        """Whether all that was started is ready."""
        return all(worker.n_starts == 0 for worker in self.workers.values())

    def end(self) -> None:
        """Note that its retraining is done."""
        self.worker().is_over = True

    def stopped_at(self, now_s: float) -> Stopped:
        """Its end where it is gone at once."""
        return Stopped(self.instance_id, self.placement, self.owner, now_s, now_s, now_s)

    @property
    def is_inference(self) -> bool:
        """Whether it serves, rather than trains."""
        return self.owner.task is Task.INFERENCE

    @property
    def holds_up(self) -> bool:
        """Whether a retraining is under way in it, which no change may end."""
        return not self.is_inference and not self.is_over

    @property
    def is_shared(self) -> bool:
        """Whether a pool serves there, by turns."""
        return bool(self.owner.others)

    def goes_to(self, owner: Owner) -> bool:
        """Whether some worker in it serves on for another owner."""
        return self.is_inference and owner.task is Task.INFERENCE and any(map(self._serves_on, owner.members))

    def lacks(self, owner: Owner) -> list[str]:
        """The owner's members whose workers would have to start, if it were the owner's."""
        return [name for name in owner.members if not self._serves_on(name)]

    def _serves_on(self, name: str) -> bool:
        return name in self.workers and not self.workers[name].is_over


_GONE = "gone from under us"


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a look has shown.

    Attributes:
        standing: The GPU's instances; ``None`` where the driver was only asked whether it answers, or saw no change.
        believed_until_s: Until when it is believed that says that nothing has.
    """

    standing: tuple[GpuInstance, ...] | None
    believed_until_s: float


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at the GPU has shown to be other than it was.

    Attributes:
        gone: Instances in use that are gone, or were on a GPU that was lost for a while, with whatever ran there.
        loans: Retrainings that ran in them on a loan.
        came: Where others have instances now, and had none,
        left: and where they have none any more.
        blind: Seconds of unknown GPU state, or their beginning.
    """

    gone: tuple[Live, ...] = ()
    came: tuple[Placement, ...] = ()
    left: tuple[Placement, ...] = ()
    blind: BlindSpan | None = None
    loans: tuple[Live, ...] = ()

    def __str__(self) -> str:
        parts = (
            (_GONE, tuple(live.placement for live in self.gone)),
            ("taken by others", self.came),
            ("left by others", self.left),
        )
        return "; ".join(f"{' '.join(map(str, places))} {what}" for what, places in parts if places)


class Applier:
    """Owns what happens on one GPU; one change at a time."""

    def __init__(
        self,
        backend: Backend,
        tenants: Mapping[str, Tenant],
        start_s: float,
        n_started: int = 0,
        joint_servings: JointServings | None = None,
    ) -> None:
        """List instances; ours are not in use yet. ``n_started`` instances were started before.

        ``joint_servings`` are how pools are served, where there may be some.

        The clock is not looked at, as it may begin to run then; it shows ``start_s``.

        Raises:
            GpuError: The driver does not list instances.
        """
        self._gpu, self._clock, self._workers = backend.gpu, backend.clock, backend.workers
        self._journal = backend.journal
        self._reconciler = Reconciler(backend.gpu, backend.journal, backend.clock, backend.patience)
        self._end = backend.end
        self._calls: Executor = _DriverThread() if backend.clock.runs_by_itself else Inline()
        self._watch = DriverWatch(backend.silent_s, start_s)
        self._silence: BlindSpan | None = None
        self._asked_s = -NEVER_S
        self._tenants, self._joint_servings = tenants, joint_servings or (lambda _: {})
        self._there = frozenset(tenants)
        self._live: dict[Placement, Live] = {}
        self._loans: dict[Placement, Live] = {}
        self._idle: dict[Placement, GpuInstance] = {}
        self._stuck: set[Placement] = set()
        self._refused: set[Placement] = set()
        self._others: tuple[Placement, ...] = ()
        self._failed_retrainings: set[Owner] = set()
        self._n_started = n_started
        self._doing: _Doing | None = None
        self._looking: Future[_Looked] | None = None
        self._believed_until_s = -NEVER_S
        self._next_look_s = -NEVER_S
        self._must_look = False
        standing = self._gpu.instances()
        self._idle = {item.placement: item for item in standing if self._journal.is_ours(item)}  # of a run before
        self._seen(standing)

    @property
    def now_s(self) -> float:
        """The clock's time; in a simulation the applier is busy with driver calls until then."""
        return self._clock.now_s

    @property
    def layout(self) -> OwnedLayout[Owner]:
        """Which owner holds what now."""
        return OwnedLayout.of((placement, live.owner) for placement, live in self._live.items())

    @property
    def taken(self) -> tuple[Placement, ...]:
        """Where no plan may put anything, by start: others are there, ours would not go, or none could be made."""
        return tuple(sorted({*self._others, *self._stuck, *self._refused}, key=lambda placement: placement.sort_key))

    @property
    def has_idle(self) -> bool:
        """Whether instances of ours are there that are not in use."""
        return bool(self._idle)

    @property
    def servers(self) -> Mapping[str, Sequence[Server]]:
        """By tenant, what serves it alone now."""
        found: dict[str, list[Server]] = {}
        for live in self._serving:
            if live.servers and not live.is_shared:
                found.setdefault(live.owner.tenant, []).extend(live.servers)
        return found

    @property
    def lanes(self) -> Sequence[Lane]:
        """What serves pools now: each instance, with those of its members whose workers are ready."""
        return [Lane(live.instance_id, live.servers) for live in self._serving if live.servers and live.is_shared]

    @property
    def _serving(self) -> Iterator[Live]:
        """The instances in use, but for those in which a retraining that is ready has the turn."""
        lent = {placement for placement, loan in self._loans.items() if loan.is_ready}
        return (live for placement, live in self._live.items() if placement not in lent)

    @property
    def loans(self) -> tuple[Live, ...]:
        """The retrainings that are under way on a loan."""
        return tuple(self._loans.values())

    def training_from_s(self, window: int) -> Mapping[Owner, float]:
        """Of each retraining that was started in this window and is under way, when it trains or should."""
        under_way = (live for live in self._live.values() if live.holds_up and live.window == window)
        return {live.owner: live.worker().expected_s for live in under_way}

    @property
    def serving_from_s(self) -> tuple[tuple[Placement, Owner, float], ...]:
        """Of each instance that serves or starts to: where it is, whose, and when all in it are or should be ready.

        Members of a pool whose workers were given up are not among the owners.
        """
        found = []
        for live in sorted(self._live.values(), key=lambda live: live.placement.sort_key):
            workers = {name: worker for name, worker in live.workers.items() if not worker.is_over}
            if live.is_inference and workers:
                first, *others = workers
                ready_s = max(map(self._expected_s, workers.values()))
                found.append((live.placement, Owner(first, Task.INFERENCE, tuple(others)), ready_s))
        return tuple(found)

    @property
    def stays_until_s(self) -> float:
        """Until when some instance in use is not worth another attempt at destroying it."""
        return max((live.stays_until_s for live in self._live.values()), default=-NEVER_S)

    def needs_replan(self, now_s: float) -> bool:
        """Whether a serving worker failed and is not back, or is not ready though the plan already lets it serve."""
        return any(
            worker.has_failed or (not worker.servers and live.started.promised_s <= now_s)
            for live in self._live.values()
            if live.is_inference
            for worker in live.workers.values()
        )

    @property
    def failed_retrainings(self) -> frozenset[Owner]:
        """Those whose last retraining died before it was done, whether or not it still holds its instance."""
        return frozenset(self._failed_retrainings)

    def live(self, instance_id: str) -> Live | None:
        """The instance of that id, if it is in use."""
        every = (*self._live.values(), *self._loans.values())
        return next((live for live in every if live.instance_id == instance_id), None)

    def is_blocked(self, change: Change) -> bool:
        """Whether the change would end a retraining that is not done, or what is lent, or begin a loan beside another.

        A retraining that takes longer than planned is neither killed nor moved, until :meth:`give_up`. The whole change
        waits for it, so that no instance stops serving for one that cannot be created yet.
        """
        if self._loans and (change.loans or not {*change.lent} >= {(one.placement, one.owner) for one in self.loans}):
            return True
        leaving = self._leaving(owned_transition(self.layout, change.layout), change)
        return any(placement in self._loans or self._live[placement].holds_up for placement in leaving)

    def apply(self, change: Change, window: int, busy_until_s: Mapping[str, float], note: Note) -> ChangeOutcome | None:
        """Begin a change, and carry out what is possible at once: see :meth:`go_on`.

        ``busy_until_s`` says, by server id, until when a batch is in service. Each driver call is noted before it is
        made and after it.

        Raises:
            OSError: The log, or the journal of our instances, cannot be written.
        """
        self._looking = None
        doing = _Doing(self, change, window, note, self._clock.now_s)
        step = owned_transition(self.layout, change.layout)
        leaving = self._leaving(step, change)
        heirs = [placement for placement in leaving if change.layout.owner(placement) is not None]
        passing = {placement: owner for placement, owner in change.layout.entries if self._passes(placement, change)}
        n_joining = sum(len(self._live[placement].lacks(owner)) for placement, owner in passing.items())
        new = [change.layout.owner(placement) for placement in heirs] + [owner for _, owner in step.created]
        # One that would not go starts again.
        doing.n_at_once = max(1, n_joining + sum(len(owner.members) for owner in new if owner is not None))
        self._close(leaving, busy_until_s, doing)
        going = [
            Going(live.gpu_instance, drained_s, placement in heirs)
            for placement, (live, drained_s) in doing.closed.items()
        ]
        for placement, owner in passing.items():
            self._pass_on(self._live[placement], owner, busy_until_s, doing)
        idle, self._idle = self._idle, {}
        stuck, self._stuck = self._stuck, set()
        going += [
            Going(item, stays=change.layout.owner(placement) is not None, is_left_over=placement in stuck)
            for placement, item in idle.items()
            if item.is_whole or change.layout.owner(placement) is None
        ]
        halves = [item for placement, item in idle.items() if not item.is_whole and change.layout.owner(placement)]
        coming = [placement for placement, _ in step.created if placement not in idle]
        doing.coming, doing.left_over = frozenset(coming), frozenset(stuck)
        self._journal.aim(change.layout.layout)
        doing.steps = self._reconciler.change(going, coming, halves, doing)
        for loan in change.loans:
            self._lend(loan, doing)
        self._doing = doing
        return self.go_on()

    @property
    def is_busy(self) -> bool:
        """Whether a change is in progress, or the GPU's state is unknown: after one, or while the driver is silent."""
        return self._doing is not None or self._must_look or self._watch.is_blind

    def change_tenants(self, tenants: Mapping[str, Tenant], joint_servings: JointServings | None) -> None:
        """These are the tenants from now on; what others hold is theirs until a change takes it away, but for loans."""
        for loan in self.loans:
            if loan.owner.tenant not in tenants:
                self.give_back(loan)
        tenants = {name: _as_before_if_unserved(own, self._tenants.get(name)) for name, own in tenants.items()}
        self._tenants, self._there = {**self._tenants, **tenants}, frozenset(tenants)
        self._workers.change_tenants(tenants)
        self._joint_servings = joint_servings or self._joint_servings
        for live in self._live.values():
            self._serve_as_asked(live)

    def _serve_as_asked(self, live: Live) -> None:
        """Have an instance serve those who are there as is asked of them now, where its profile allows that."""
        members = tuple(name for name in live.owner.members if name in self._there)
        if not live.is_inference or live.is_shared != (len(members) > 1):
            return  # who is left there has another plan soon
        profile = live.placement.profile.name
        joint = self._joint_servings(members).get(profile, {}) if live.is_shared else {}
        for name in members:
            worker = live.workers[name]
            if worker.is_over or (live.is_shared and name not in joint):
                continue
            self._workers.serve_by(live.instance_id, name, joint.get(name))
            if worker.servers:
                ready_s = max(server.ready_s for server in worker.servers)
                worker.servers = self._servers_of(worker, live, ready_s)

    @property
    def known_s(self) -> float:
        """GPU state is confirmed up to this time, but for the blind seconds reported."""
        return self._watch.known_s

    @property
    def resumes_s(self) -> float:
        """When the change in progress goes on by itself, or the next look is due; never where the driver is at work."""
        # During a change only a driver that may fall silent is asked, and only whether it answers.
        is_asked = self._watch.is_on or (self._clock.runs_by_itself and self._doing is None)
        look_s = max(self._next_look_s, self._clock.now_s) if is_asked and self._looking is None else NEVER_S
        if self._doing is None:
            return look_s
        return min(self._doing.step.until_s, look_s) if isinstance(self._doing.step, Wait) else NEVER_S

    def go_on(self) -> ChangeOutcome | None:
        """Carry the change in progress on; what it did, also where the driver refused calls, once it is over.

        In a simulation that is at once, and the clock is then behind the last driver call.

        Raises:
            OSError: The log, or the journal of our instances, cannot be written.
        """
        doing = self._doing
        if doing is None:
            return None
        while doing.undone is None:
            if isinstance(doing.step, Wait) and doing.step.until_s > self._clock.now_s:
                if self._clock.runs_by_itself or self._watch.is_on:
                    return None
                self._clock.sleep_until(doing.step.until_s)
            if not self._answered(doing):
                return None
        self._doing = None
        outcome = doing.outcome()
        if doing.undone:
            missing = {item.placement for item in doing.undone} & doing.coming
            self._refused |= {item for item in missing if not any(map(item.overlaps, self._live))}
            self._must_look, self._next_look_s, self._believed_until_s = True, -NEVER_S, -NEVER_S  # what is in the way?
        return outcome

    def so_far_of_change_with(self, live: Live) -> ChangeOutcome | None:
        """What the change in progress has done, if it began this instance and has not told so yet."""
        doing = self._doing
        told = () if doing is None else (*doing.started, *doing.passed, *doing.lent)
        return doing.outcome() if doing is not None and live.started in told else None

    def _answered(self, doing: _Doing) -> bool:
        """Give the step in progress its answer, and take the next one; ``False`` if there is no answer yet."""
        answer: GpuInstance | None = None
        refusal: GpuError | None = None
        if isinstance(doing.step, Call):
            if doing.call is None:
                doing.call = self._begin_call(doing.step, doing)
            if not doing.call.done():
                return False
            made, doing.call = doing.call.result(), None
            answer, refusal = made.instance, made.error
            doing.call_begin_s = made.begin_s
            doing.note(events.outcome(doing.window, doing.intent, doing.step, made))
            self._answers(doing.asked_s, refusal)
        try:
            doing.step = doing.steps.send(answer) if refusal is None else doing.steps.throw(refusal)
        except StopIteration as end:
            doing.step, doing.undone = None, end.value
        return True

    def _answers(self, asked_s: float, refusal: GpuError | None) -> None:
        """Take note of what a driver call that has ended says of the driver.

        Raises:
            NoAnswerError: It has not answered for too long, or MIG mode is off.
        """
        match refusal:
            case GpuLostError() | NoGpuError():
                self._silence = self._watch.refused(asked_s, self._clock.now_s, refusal) or self._silence
            case DriverError() | UnsureChangeError():
                pass  # it may be this call alone
            case _:
                self._watch.answered(asked_s)

    def _begin_call(self, call: Call, doing: _Doing) -> Future[Made]:
        doing.asked_s = self._clock.now_s
        doing.intent = doing.note(events.intent(doing.window, call.verb, call.placement, call.gi_id))
        return self._submitted(partial(self._made, call))

    def _submitted(self, call: Callable[[], T]) -> Future[T]:
        """Have the driver called on its thread; the thread that waits on the clock is woken when that is over."""
        begun = self._calls.submit(call)
        begun.add_done_callback(lambda _: self._clock.wake())
        return begun

    def _made(self, call: Call) -> Made:
        """Make the call, on whatever thread this is."""
        begin_s = self._clock.now_s
        try:
            instance = call.make()
        except GpuError as error:
            return Made(begin_s, self._clock.now_s, None, error)
        return Made(begin_s, self._clock.now_s, instance, None)

    def look(self, since_s: float = -NEVER_S) -> Sight | None:
        """What is other on the GPU than it was, if a look has shown something; in a change only whether it answers.

        Instances are read anew if that was last done before ``since_s``, and that is past.

        Raises:
            NoAnswerError: The driver has not answered for too long, or MIG mode is off.
        """
        now_s, doing = self._clock.now_s, self._doing
        silence, self._silence = self._silence, None
        calling = doing if doing is not None and doing.call is not None else None
        is_anew = doing is None and self._watch.known_s < since_s <= now_s
        if self._looking is None and (doing is None or (self._watch.is_on and calling is None)):
            if now_s < self._next_look_s and not is_anew:
                return _sight(silence)
            self._next_look_s, self._asked_s = now_s + LOOK_EVERY_S, now_s
            # A driver tells once that something has changed: a look that comes to nothing is made again.
            believed_until_s, self._believed_until_s = self._believed_until_s, -NEVER_S
            self._looking = self._submitted(
                self._checked if doing is not None else partial(self._looked, -NEVER_S if is_anew else believed_until_s)
            )
        if self._looking is None or not self._looking.done():
            asked_s = now_s if calling is None else calling.asked_s
            asked_s = asked_s if self._looking is None else min(asked_s, self._asked_s)
            return _sight(self._watch.waited(asked_s, now_s) or silence)
        looking, self._looking = self._looking, None
        try:
            looked = looking.result()
        except GpuError as error:  # the next one may tell, and so may the next change
            self._must_look = False
            return _sight(self._watch.refused(self._asked_s, self._clock.now_s, error) or silence)
        self._believed_until_s = looked.believed_until_s
        if looked.standing is None:
            self._watch.answered(self._asked_s)
            return _sight(silence)
        return self._compared(looked.standing, silence)

    def _compared(self, standing: Sequence[GpuInstance], silence: BlindSpan | None) -> Sight | None:
        """What is other than it was, and of which seconds that is unknown."""
        self._must_look = False
        if self._watch.is_blind:
            self.reset_failures()
        sight = self._seen(standing)
        gone = () if sight is None else sight.gone
        missing = tuple(live for live in gone if live.gpu_instance not in standing)
        lost = str(Sight(missing)) if missing else None
        blind = self._watch.read(self._asked_s, self._clock.now_s, lost)
        return _sight(blind or silence, sight)

    def _checked(self) -> _Looked:
        """Nothing but that the driver answers, and MIG mode is on."""
        self._gpu.check()
        return _Looked(None, believed_until_s=-NEVER_S)

    def _looked(self, believed_until_s: float) -> _Looked:
        """The instances, if the driver says that it has changed, or is believed no more that it has not."""
        now_s = self._clock.now_s
        self._gpu.check()
        if not self._gpu.changed() and now_s < believed_until_s:
            return _Looked(None, believed_until_s)
        return _Looked(self._reconciler.look(), now_s + BELIEVE_FOR_S)

    def _seen(self, standing: Sequence[GpuInstance]) -> Sight | None:
        others = tuple(item.placement for item in standing if not self._journal.is_ours(item))
        before, self._others = self._others, others
        was_lost = self._watch.was_lost
        gone = tuple(live for live in self._live.values() if was_lost or live.gpu_instance not in standing)
        for live in gone:
            del self._live[live.placement]
            self.stop(live)
        loans = tuple(self._loans[live.placement] for live in gone if live.placement in self._loans)
        for loan in loans:
            self.stop(loan)
            self.failed(loan)
        self._idle = {placement: item for placement, item in self._idle.items() if item in standing}
        self._stuck &= self._idle.keys()
        used = {live.gpu_instance for live in self._live.values()} | {*self._idle.values()}
        for item in standing:
            if self._journal.is_ours(item) and item not in used:  # of a call whose outcome was not known
                self.leave_idle(item)
        known = (*others, *self._stuck, *self._live)
        self._refused = {item for item in self._refused if not any(map(item.overlaps, known))}
        came = tuple(placement for placement in others if placement not in before)
        left = tuple(placement for placement in before if placement not in others)
        return Sight(gone, came, left, loans=loans) if gone or came or left else None

    def doubt(self, instance: GpuInstance) -> None:
        """Say that an instance of ours, with all that served in it, was gone, and it is unknown since when."""
        self._watch.doubt(f"{instance.placement} {_GONE}")

    def close(self) -> None:
        """Let the call in progress end, unless the driver is silent; then do what is to be done at the end."""
        may_be_called = not self._watch.is_blind or not self._is_calling
        self._calls.shutdown(wait=may_be_called)
        self._end(may_be_called)

    @property
    def _is_calling(self) -> bool:
        """Whether the driver has not come back from a call."""
        calls = (self._looking, None if self._doing is None else self._doing.call)
        return any(call is not None and not call.done() for call in calls)

    def ready(self, live: Live, happening: Ready) -> None:
        """The instance's worker, or that of the member named, serves, or trains."""
        worker = live.worker(happening.tenant)
        worker.n_starts, worker.has_failed = 0, False
        worker.expected_s = happening.at_s
        if live.is_inference:
            worker.servers = self._servers_of(worker, live, happening.at_s)

    def hold(self, loan: Live, busy_until_s: Mapping[str, float]) -> None:
        """Let a trainer that is ready wait for the last batch in the instance that is lent: no other begins there."""
        if self._loans.get(loan.placement) is not loan:
            return
        now_s = loan.worker().expected_s
        free_s = _busy_s(self._live[loan.placement], busy_until_s, now_s)
        self._workers.hold(loan.instance_id, free_s - now_s)
        loan.worker().expected_s = free_s

    def give_back(self, loan: Live) -> None:
        """The retraining has ended: the instance serves again if it was lent."""
        if self._loans.get(loan.placement) is loan:
            self._workers.stop(loan.instance_id, loan.owner.tenant)
            del self._loans[loan.placement]

    def take_over(self, tenant: str, at_s: float, busy_until_s: Mapping[str, float]) -> None:
        """The tenant's servers take new weights over: each pauses for that once its batch in service has ended.

        In a pool's instance that may be another member's batch; the others are served on.
        """
        swap_s = self._tenants[tenant].swap_s
        if swap_s == 0:
            return
        for live in self._live.values():
            if tenant in live.workers:
                worker, shared_s = live.workers[tenant], _busy_s(live, busy_until_s, at_s) if live.is_shared else at_s
                worker.servers = tuple(
                    replace(one, ready_s=max(shared_s, one.ready_s, busy_until_s.get(one.server_id, at_s)) + swap_s)
                    for one in worker.servers
                )

    def failed(self, live: Live, tenant: str | None = None) -> None:
        """The instance's worker is gone: one that served is started again, a few times in a row at most.

        ``tenant`` is the member of a pool whose it was; what others have there runs on. A loan ends. Of a tenant that
        has gone nothing is started.
        """
        if self._loans.get(live.placement) is live:
            del self._loans[live.placement]
        worker = live.worker(tenant)
        worker.servers, worker.has_failed, live.is_starting = (), True, False
        if not live.is_inference and not worker.is_over:
            self._failed_retrainings.add(live.owner)
        if not live.is_inference or worker.n_starts >= MAX_STARTS or worker.owner.tenant not in self._there:
            worker.is_over = True
            return
        worker.n_starts += 1
        worker.expected_s = self._start(live, worker.owner, 1)

    def reset_failures(self) -> None:
        """Count what could not be made as free again: it may be tried."""
        self._refused = set()

    def give_up(self, window: int) -> list[Live]:
        """Stop the retrainings that began two windows before this one or earlier and are not done.

        A trainer that hangs would hold up every change for ever. What could not be made may be tried again.
        """
        self.reset_failures()
        every = (*self._live.values(), *self._loans.values())
        overdue = [live for live in every if live.holds_up and live.window < window - 1]
        for live in overdue:
            self._workers.stop(live.instance_id, live.owner.tenant)
            self.failed(live)
        return overdue

    def _expected_s(self, worker: Worker) -> float:
        """When it is ready; one that should be ready and is not takes another start from now on."""
        if worker.servers or worker.expected_s >= self.now_s:
            return worker.expected_s
        return self.now_s + self._tenants[worker.owner.tenant].worker_start.planned_s(1)

    def _leaving(self, step: OwnedTransition[Owner], change: Change) -> list[Placement]:
        """Where the change ends what runs in an instance."""
        leaving = [placement for placement, _ in step.destroyed]
        leaving += [
            over.placement for over in step.handed_over if not self._live[over.placement].goes_to(over.to_owner)
        ]
        begun = {placement for placement, _ in change.promised_s}
        # A retraining may begin where the tenant's last one has just ended, and what was given up may be tried again:
        # the instance stays, the worker is new.
        return leaving + [p for p, _ in step.kept if p in begun and self._has_new_worker(self._live[p])]

    def _has_new_worker(self, live: Live) -> bool:
        return live.is_over or not live.is_inference

    def _passes(self, placement: Placement, change: Change) -> bool:
        """Whether the instance stays, and others serve there than did: they come to hold it, or start again in it."""
        owner = change.layout.owner(placement)
        live = self._live.get(placement)
        if live is None or owner is None or not live.goes_to(owner):
            return False
        return owner != live.owner or bool(live.lacks(owner) and placement in dict(change.promised_s))

    def _pass_on(self, live: Live, owner: Owner, busy_until_s: Mapping[str, float], doing: _Doing) -> None:
        """Let the instance be its new owner's: shared workers serve on, those that leave stop, missing ones start.

        What is in service there ends first, whichever worker began it.
        """
        now_s = self._clock.now_s
        busy_s = _busy_s(live, busy_until_s, now_s)
        promised_s = doing.promised_s.get(live.placement, now_s)
        live.started = replace(live.started, owner=owner, begin_s=doing.begin_s, promised_s=promised_s)
        doing.passed.append(live.started)
        before, lacking = live.workers, live.lacks(owner)
        live.workers = {name: before[name] for name in owner.members if name not in lacking}
        for name, worker in live.workers.items():
            self._workers.serve_by(live.instance_id, name, self._joint_point(live, name) if live.is_shared else None)
            if worker.servers:
                ready_s = max(busy_s, *(server.ready_s for server in worker.servers))
                worker.servers = self._servers_of(worker, live, ready_s)
        leaving = [(name, worker) for name, worker in before.items() if name not in live.workers and worker.stands]
        doing.tell_died(live.started, self._ended(live, leaving))
        if lacking:
            live.change_s, live.begun_s, live.is_starting = doing.begin_s, now_s, True
        for name in lacking:
            self._begin(live, name, doing.n_at_once)
        live.workers = {name: live.workers[name] for name in owner.members}

    def _close(self, placements: Sequence[Placement], busy_until_s: Mapping[str, float], doing: _Doing) -> None:
        """Take the instances out of use now."""
        for placement in placements:
            live = self._live.pop(placement)
            standing = [name for name, worker in live.workers.items() if worker.stands]
            drained_s = [self._workers.drain(live.instance_id, name) for name in standing]
            doing.closed[placement] = live, max([_busy_s(live, busy_until_s, doing.begin_s), *drained_s])

    def may_serve(self, owner: Owner, placement: Placement) -> bool:
        """Whether the owner can serve in the instance."""
        points = self._joint_servings(owner.members) if owner.others else self._tenants[owner.tenant].operating_points
        return placement.profile.name in points

    def hand(
        self, instance: GpuInstance, owner: Owner, taken_s: float, doing: _Doing, *, will_stay: bool = False
    ) -> None:
        """Give the instance, which is free, to its new owner; with ``will_stay``, because it would not go."""
        self._n_started += 1
        placement = instance.placement
        promised_s = doing.promised_s.get(placement, self._clock.now_s)
        started = Started(f"{placement}#{self._n_started}", placement, owner, taken_s, promised_s)
        stays_until_s = self._clock.now_s + STAYS_S if will_stay else -NEVER_S
        begun_s = self._clock.now_s
        live = Live(started, instance, doing.window, doing.begin_s, begun_s, stays_until_s=stays_until_s)
        live.training = doing.trainings.get(placement, FULLY)
        self._live[placement] = live
        self._failed_retrainings.discard(owner)
        doing.started.append(started)
        for name in owner.members:
            self._begin(live, name, doing.n_at_once)

    def _lend(self, loan: Loan, doing: _Doing) -> None:
        """Start a retraining in an instance that is in use; until it is ready, that serves on."""
        host = self._live.get(loan.placement)
        if host is None or not host.is_inference:
            return
        self._n_started += 1
        instance_id, now_s = f"{loan.placement}#{self._n_started}", self._clock.now_s
        started = Started(instance_id, loan.placement, loan.owner, now_s, loan.promised_s)
        live = Live(started, host.gpu_instance, doing.window, doing.begin_s, now_s, training=loan.training)
        self._loans[loan.placement] = live
        self._failed_retrainings.discard(loan.owner)
        doing.lent.append(started)
        self._begin(live, loan.owner.tenant, doing.n_at_once)

    def stop(self, live: Live) -> list[tuple[Worker, Failed]]:
        """End the instance's workers; how they failed, those that had by now and unheard."""
        return self._ended(live, [item for item in live.workers.items() if item[1].stands])

    def _ended(self, live: Live, workers: Sequence[tuple[str, Worker]]) -> list[tuple[Worker, Failed]]:
        ended = [(worker, self._workers.stop(live.instance_id, name)) for name, worker in workers]
        return [(worker, failure) for worker, failure in ended if failure is not None]

    def leave_idle(self, instance: GpuInstance) -> None:
        """The instance is not in use, and would not go; the next change will try again, or use it."""
        self._idle[instance.placement] = instance
        self._stuck.add(instance.placement)

    def _begin(self, live: Live, name: str, n_at_once: int) -> None:
        """Start the tenant's worker in the instance for the first time."""
        owner = Owner(name, live.owner.task)
        live.workers[name] = Worker(owner, self._start(live, owner, n_at_once))

    def _start(self, live: Live, owner: Owner, n_at_once: int) -> float:
        """Start a tenant's worker in the instance; when it is ready if that takes as long as planned."""
        tenant = self._tenants[owner.tenant]
        joint = self._joint_point(live, owner.tenant) if live.is_shared else None
        self._workers.start(live.instance_id, live.gpu_instance, owner, n_at_once, live.training, joint)
        start_up = tenant.worker_start if live.is_inference else tenant.trainer_start
        return self._clock.now_s + start_up.planned_s(n_at_once)

    def _servers_of(self, worker: Worker, live: Live, ready_s: float) -> tuple[Server, ...]:
        """What serves the worker's tenant in the instance: one server for each process, or its turns in a pool's."""
        name = worker.owner.tenant
        if live.is_shared:
            return servers_of(name, live.instance_id, self._joint_point(live, name), ready_s, is_shared=True)
        point = self._tenants[name].operating_points[live.placement.profile.name]
        return servers_of(name, live.instance_id, point, ready_s, is_shared=False)

    def _joint_point(self, live: Live, tenant: str) -> OperatingPoint:
        """How the tenant is served in the pool's instance, with the members that are there."""
        members, profile = (
            tuple(name for name in live.owner.members if name in self._there),
            live.placement.profile.name,
        )
        if len(members) > 1 and tenant in members and profile in (joint := self._joint_servings(members)):
            return joint[profile][tenant]
        return self._tenants[tenant].operating_points[profile]


class _Doing(Users):
    """A change in progress, and what it has done."""

    def __init__(self, applier: Applier, change: Change, window: int, note: Note, begin_s: float) -> None:
        self._applier, self._change = applier, change
        self.window, self.note, self.begin_s = window, note, begin_s
        self.promised_s, self.trainings = dict(change.promised_s), dict(change.trainings)
        self.n_at_once = 0
        self.coming: frozenset[Placement] = frozenset()
        self.left_over: frozenset[Placement] = frozenset()
        self.closed: dict[Placement, tuple[Live, float]] = {}  # taken out of use, each with when it is idle
        self.steps: Steps[tuple[Undone, ...]]
        self.step: Call | Wait | None = None
        self.call: Future[Made] | None = None
        self.asked_s = self.call_begin_s = begin_s
        self.intent = 0
        self.undone: tuple[Undone, ...] | None = None
        self.started: list[Started] = []
        self.stopped: list[Stopped] = []
        self.passed: list[Started] = []
        self.lent: list[Started] = []
        self.died: list[Died] = []

    def outcome(self) -> ChangeOutcome:
        """What it has done since this was last asked."""
        parts = tuple(self.started), tuple(self.stopped), tuple(self.passed), tuple(self.died)
        lent, undone = tuple(self.lent), self.undone or ()
        self.started, self.stopped, self.passed, self.died, self.lent = [], [], [], [], []
        return ChangeOutcome(self._change.planned_s, self.begin_s, *parts, undone, self.left_over, lent)

    def left(self, instance: GpuInstance) -> None:
        """Stop the workers in it, and hand it on if it has an heir."""
        now_s = self._applier.now_s
        live, _ = self.closed.get(instance.placement, (None, 0.0))
        if live is not None:
            self.tell_died(live.started, self._applier.stop(live))
        heir = self._change.layout.owner(instance.placement)
        if heir is not None:
            self._end(instance.placement)
            self._applier.hand(instance, heir, now_s, self)

    def tell_died(self, started: Started, ended: Sequence[tuple[Worker, Failed]]) -> None:
        """Note which workers had died when they were stopped."""
        for worker, failure in ended:
            name = worker.owner.tenant
            self.died.append(Died(started, name, worker.server_ids, failure.at_s, failure.reason))

    def gone(self, instance: GpuInstance) -> None:
        """No worker is in it any more."""
        self._end(instance.placement)

    def lost(self, instance: GpuInstance) -> None:
        """What was in it may have been nothing for a while."""
        self._applier.doubt(instance)

    def made(self, instance: GpuInstance) -> None:
        """Give it to the owner that it was made for."""
        owner = self._change.layout.owner(instance.placement)
        if owner is not None:
            self._applier.hand(instance, owner, self.call_begin_s, self)

    def stuck(self, instance: GpuInstance) -> None:
        """Give it to the owner that had it, to serve there; else it is not in use."""
        live = self._end(instance.placement)
        owner = None if live is None else replace(live.owner, task=Task.INFERENCE)
        if owner is not None and instance.is_whole and self._applier.may_serve(owner, instance.placement):
            self._applier.hand(instance, owner, self._applier.now_s, self, will_stay=True)
        else:
            self._applier.leave_idle(instance)

    def _end(self, placement: Placement) -> Live | None:
        """Note that the owner that was there has stopped, if one was."""
        live, drained_s = self.closed.pop(placement, (None, 0.0))
        if live is not None:
            end = Stopped(live.instance_id, placement, live.owner, self.begin_s, drained_s, self._applier.now_s)
            self.stopped.append(end)
        return live


def _sight(blind: BlindSpan | None, sight: Sight | None = None) -> Sight | None:
    """The sight with the blind seconds; ``None`` where there is neither."""
    return sight if blind is None else replace(sight or Sight(), blind=blind)


class _DriverThread(Executor):
    """Makes calls one after the other, on a thread that does not keep the process from ending: a driver may hang."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="driver", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future of what the call returns or raises."""
        done: Future[T] = Future()

        def make() -> None:
            try:
                done.set_result(call(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                done.set_exception(error)

        self._todo.put(make)
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Take no call after those that were given."""
        self._todo.put(None)
        if wait:
            self._thread.join()

    def _work(self) -> None:
        for make in iter(self._todo.get, None):
            make()


class Inline(Executor):
    """Makes each call at once, on the caller's thread: for clocks that stand still while nothing waits on them."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call now. GPU errors go into the future; others propagate."""
        done: Future[T] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except GpuError as error:
            done.set_exception(error)
        return done


def _as_before_if_unserved(own: Tenant, before: Tenant | None) -> Tenant:
    """The tenant with its earlier way on profiles that cannot serve it as is asked: a worker there may start again."""
    points = {} if before is None else before.operating_points
    return (
        own
        if points.keys() <= own.operating_points.keys()
        else replace(own, operating_points={**points, **own.operating_points})
    )


def _busy_s(live: Live, busy_until_s: Mapping[str, float], now_s: float) -> float:
    """When the last batch in service in the instance ends; now where there is none."""
    return max([now_s, *(busy_until_s.get(server.server_id, now_s) for server in live.servers)])


def servers_of(
    tenant: str, instance_id: str, point: OperatingPoint, ready_s: float, *, is_shared: bool
) -> tuple[Server, ...]:
    """What serves a tenant in an instance from then on: one server for each process, or one that takes its turns."""
    if is_shared:
        latency, limit = point.latency.of_processes(point.processes, point.batch), point.processes * point.batch
        return (Server(tenant, f"{instance_id}/{tenant}", ready_s, NEVER_S, latency, limit),)
    return tuple(
        Server(tenant, f"{instance_id}/{process}", ready_s, NEVER_S, point.latency, point.batch)
        for process in range(point.processes)
    )
