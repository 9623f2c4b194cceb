"""From what is on a GPU to what should be: a decision by a pure function, and its effects, each call journalled.

``instances()`` is the truth. What is ours and wanted stays untouched. What is ours and not wanted goes, before anything
comes. What comes is made from large to small at explicit places. What is not ours is never touched: a refusal names
the placement that it blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from executor.clock import Clock
from executor.errors import GpuError, InstanceNotFoundError, InUseError, RetryableGpuError, UnrecordedError
from executor.gpu import Gpu, GpuInstance, PartialChangeError, UnsureChangeError
from executor.journal import Journal, Verb
from executor.mig import Layout, Placement, transition
from executor.processes import Process, born, gpu_process


@dataclass(frozen=True, slots=True)
class Blocked:
    """A placement that is wanted, and the instances of others that are in its way."""

    placement: Placement
    by: tuple[GpuInstance, ...]

    def __str__(self) -> str:
        holders = ", ".join(f"{item.placement} (GPU instance ID {item.gi_id})" for item in self.by)
        return f"{self.placement} is not free: {holders} {'is' if len(self.by) == 1 else 'are'} not ours"


@dataclass(frozen=True, slots=True)
class Decision:
    """What has to be done, in order; made by :func:`decide`.

    Attributes:
        kept: Ours, wanted and whole: untouched.
        repaired: Ours and wanted, but without a compute instance that takes all of it: that is made anew.
        destroyed: Ours and not wanted, by start.
        created: Wanted and absent, from large to small.
        blocked: Wanted, but others are there.
    """

    kept: tuple[GpuInstance, ...]
    repaired: tuple[GpuInstance, ...]
    destroyed: tuple[GpuInstance, ...]
    created: tuple[Placement, ...]
    blocked: tuple[Blocked, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether everything that is wanted exists, and nothing else of ours."""
        return not (self.repaired or self.destroyed or self.created or self.blocked)


def decide(standing: Iterable[GpuInstance], ours: Callable[[GpuInstance], bool], target: Layout) -> Decision:
    """How ``standing`` becomes ``target``, of which only what is ``ours`` may be touched."""
    instances = tuple(standing)
    own = {item.placement: item for item in instances if ours(item)}
    others = tuple(item for item in instances if not ours(item))
    ways = {placement: tuple(o for o in others if o.placement.overlaps(placement)) for placement in target}
    blocked = tuple(Blocked(placement, by) for placement, by in ways.items() if by)
    free = Layout(tuple(placement for placement in target if not ways[placement]))
    change = transition(Layout(tuple(sorted(own, key=lambda placement: placement.sort_key))), free)
    kept = tuple(own[placement] for placement in change.kept)
    return Decision(
        kept=tuple(item for item in kept if item.is_whole),
        repaired=tuple(item for item in kept if not item.is_whole),
        destroyed=tuple(own[placement] for placement in change.destroyed),
        created=change.created,
        blocked=blocked,
    )


def destructions(instances: Iterable[GpuInstance], index: int) -> list[str]:
    """The commands that take the instances away."""
    lines = []
    for item in instances:
        compute = [f"nvidia-smi mig -i {index} -dci -gi {item.gi_id}"] if item.uuids else []
        lines += [*compute, f"nvidia-smi mig -i {index} -dgi -gi {item.gi_id}"]
    return lines


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a refused call is tried again.

    Attributes:
        n_attempts: Attempts at one call, the first included.
        factor: Each wait is this much longer than the one before it, while refusals are alike.
        longest_s: No wait is longer.
        waits_for_holders: Whether an instance in use is waited for while the driver lists a living process in it. A run
            has told its processes to leave; whoever asks for another layout is better told at once who is there.
    """

    n_attempts: int = 8
    factor: float = 1.5
    longest_s: float = 4.0
    waits_for_holders: bool = True

    def wait_s(self, error: RetryableGpuError, n_alike: int) -> float:
        """Seconds until the next attempt, after as many refusals of this kind in a row."""
        return min(error.retry_after_s * self.factor ** (n_alike - 1), self.longest_s)


@dataclass(frozen=True, slots=True)
class Undone:
    """What could not be done, and why.

    Attributes:
        placement: Where.
        error: The last refusal.
        holders: The processes that hold the instance.
        left: The instance that exists although it should not; ``None`` where nothing does.
    """

    placement: Placement
    error: GpuError
    holders: tuple[Process, ...] = ()
    left: GpuInstance | None = None

    def __str__(self) -> str:
        held = f"; held by process {', '.join(map(str, self.holders))}" if self.holders else ""
        return f"{self.error}{held}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reconciliation came to.

    Attributes:
        standing: Ours and wanted, all whole.
        undone: What is missing, or would not go.
        blocked: What others are in the way of.
    """

    standing: tuple[GpuInstance, ...]
    undone: tuple[Undone, ...]
    blocked: tuple[Blocked, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the target is reached."""
        return not (self.undone or self.blocked)


@dataclass(frozen=True, slots=True)
class Call:
    """A driver call that is to be made now, on whatever thread; it journals itself.

    Attributes:
        verb: What it does.
        placement: Where.
        gi_id: To which instance; ``None`` for a creation.
        make: Makes it: the instance that was created or repaired, ``None`` for one that is gone.

    Raises:
        GpuError: By ``make``; it goes back into the steps.
    """

    verb: Verb
    placement: Placement
    gi_id: int | None
    make: Callable[[], GpuInstance | None]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done before ``until_s``."""

    until_s: float


T = TypeVar("T")

Steps = Generator[Call | Wait, GpuInstance | None, T]
"""A change of instances, one step after the other; its caller carries out each, and sends back its result."""


def carried_out(steps: Steps[T], clock: Clock) -> T:
    """What the steps come to when they are all taken here, one after the other."""
    answer: GpuInstance | None = None
    refusal: GpuError | None = None
    while True:
        try:
            step = steps.send(answer) if refusal is None else steps.throw(refusal)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, refusal = None, None
        match step:
            case Wait():
                clock.sleep_until(step.until_s)
            case Call():
                try:
                    answer = step.make()
                except GpuError as error:
                    refusal = error


class Users:
    """Receives what happens to instances during a change; these methods do nothing."""

    def left(self, instance: GpuInstance) -> None:
        """No process is to be in it from now on: it is about to be destroyed, or handed on."""

    def gone(self, instance: GpuInstance) -> None:
        """It is destroyed."""

    def lost(self, instance: GpuInstance) -> None:
        """It was gone before we came to destroy it: another program has done it, or the GPU was reset."""

    def made(self, instance: GpuInstance) -> None:
        """It is created, or repaired, and whole."""

    def stuck(self, instance: GpuInstance) -> None:
        """It will not go, or is still not whole; it stays as it is."""


@dataclass(frozen=True, slots=True)
class Going:
    """An instance whose user leaves.

    Attributes:
        instance: Which.
        idle_s: When the user has left.
        stays: Whether it is not to be destroyed, because another user gets it.
        is_left_over: Whether it would not go before: nothing waits for it any more, so one attempt is enough.
    """

    instance: GpuInstance
    idle_s: float = -math.inf
    stays: bool = False
    is_left_over: bool = False


@dataclass(eq=False)
class _Task:
    """Something that a change has to do, with the attempts already made at it.

    Attributes:
        verb: What.
        placement: Where.
        due_s: Not before.
        instance: To which instance; ``None`` for a creation.
        stays: Whether its user leaves it and it is not destroyed.
        mends_stuck: Whether it repairs what would not go: whole again, the instance is stuck, and made for no user.
        n_attempts: How often it is tried at most; ``None`` for what the patience says.
        n_refused: How often it was refused,
        n_alike: and how often of these in a row by refusals that are waited out alike.
        last: The last refusal.
        holders: The processes that held the instance then, if it was the last attempt.
        is_held: Whether it is in use by a living process, which nothing waits for.
    """

    verb: Verb
    placement: Placement
    due_s: float = -math.inf
    instance: GpuInstance | None = None
    stays: bool = False
    mends_stuck: bool = False
    n_attempts: int | None = None
    n_refused: int = 0
    n_alike: int = 0
    last: GpuError | None = None
    holders: tuple[Process, ...] = ()
    is_held: bool = False

    def stands_in_the_way_of(self, other: _Task) -> bool:
        """Whether ``other`` can be created only after this one is gone: slices, or the number of a profile."""
        is_going = self.verb == "destroy" and not self.stays
        profile = other.placement.profile
        is_one_of_few = self.placement.profile.name == profile.name and profile.max_instances < len(profile.starts)
        return is_going and (is_one_of_few or self.placement.overlaps(other.placement))


class Reconciler:
    """Brings a GPU to what it should be: what changes, in which order, and what is done about refusals."""

    def __init__(self, gpu: Gpu, journal: Journal, clock: Clock, patience: Patience = Patience()) -> None:
        self._gpu = gpu
        self._journal = journal
        self._clock = clock
        self._patience = patience

    def settle(self) -> None:
        """Make the journal agree with the GPU, as after a crash or a reboot.

        Raises:
            GpuError: The driver does not answer.
        """
        self.look()

    def decision(self, target: Layout) -> Decision:
        """What would be done, were ``target`` applied now.

        Raises:
            GpuError: The driver does not answer.
        """
        return decide(self._gpu.instances(), self._journal.is_ours, target)

    def adopt(self) -> tuple[GpuInstance, ...]:
        """Take over every instance; those that were not ours before.

        Raises:
            GpuError: The driver does not answer.
        """
        found = tuple(item for item in self.look() if not self._journal.is_ours(item))
        for item in found:
            self._journal.stands(item)
        return found

    def apply(self, target: Layout) -> Outcome:
        """Bring the GPU as near to ``target`` as it goes: kept instances and others' are untouched.

        Raises:
            GpuError: The driver does not even list instances.
        """
        self.look()
        decision = self.decision(target)
        steps = self.change(map(Going, decision.destroyed), decision.created, decision.repaired)
        told = carried_out(steps, self._clock)
        self.look()
        now = self.decision(target)
        missing = (*(item.placement for item in now.repaired), *now.created)
        lost = [placement for placement in missing if placement not in {item.placement for item in told}]
        gone = [Undone(placement, InstanceNotFoundError(f"{placement}: made, and gone again")) for placement in lost]
        return Outcome(now.kept, (*told, *gone), now.blocked)

    def change(
        self,
        going: Iterable[Going],
        coming: Iterable[Placement],
        halves: Iterable[GpuInstance] = (),
        users: Users | None = None,
    ) -> Steps[tuple[Undone, ...]]:
        """The steps of one change; what could not be done.

        Halves become whole. Instances go as they become idle, then others come, in the order given. A call that is
        refused for now is tried again later, with growing waits; meanwhile comes what does not need its slices. What
        will not go gets its compute instance back, so that it can be used. No step raises a ``GpuError`` but:

        Raises:
            UnrecordedError: An instance of ours could neither be written down nor taken away.
        """
        tasks = [
            *(_Task("repair", item.placement, instance=item) for item in halves),
            *(
                _Task(
                    "destroy",
                    item.instance.placement,
                    item.idle_s,
                    item.instance,
                    item.stays,
                    n_attempts=1 if item.is_left_over else None,
                )
                for item in sorted(going, key=lambda item: (item.idle_s, item.instance.placement.sort_key))
            ),
            *(_Task("create", placement) for placement in coming),
        ]
        users, undone = users or Users(), []
        while tasks:
            task = self._next(tasks)
            if task.due_s > self._clock.now_s:
                yield Wait(task.due_s)
            if task.n_refused == 0 and task.verb == "destroy" and task.instance is not None:
                users.left(task.instance)
                if task.stays:
                    tasks.remove(task)
                    continue
            try:
                gi_id = None if task.instance is None else task.instance.gi_id
                made = yield Call(task.verb, task.placement, gi_id, partial(self._attempted, task))
            except GpuError as error:
                if task.verb == "destroy" and task.instance is not None and isinstance(error, InstanceNotFoundError):
                    tasks.remove(task)
                    users.lost(task.instance)
                    users.gone(task.instance)
                    continue
                self._refuse(task, error)
                if task.due_s == math.inf:
                    undone += self._give_up(task, tasks, users)
            else:
                tasks.remove(task)
                if task.mends_stuck and made is not None:
                    users.stuck(made)
                elif made is not None:
                    users.made(made)
                elif task.instance is not None:
                    users.gone(task.instance)
        return tuple(undone)

    def _next(self, tasks: Sequence[_Task]) -> _Task:
        """The first that is due, else the one that is due first; nothing comes before all goings were tried once."""
        untried = any(task.verb == "destroy" and task.n_refused == 0 for task in tasks)
        ready = [
            task
            for task in tasks
            if task.verb != "create" or not (untried or any(other.stands_in_the_way_of(task) for other in tasks))
        ]
        now_s = self._clock.now_s
        return next((task for task in ready if task.due_s <= now_s), min(ready, key=lambda task: task.due_s))

    def _attempted(self, task: _Task) -> GpuInstance | None:
        """The task's call; when it is refused for good, the holders of the instance are looked up, too."""
        try:
            if task.instance is None:
                return self._create(task.placement)
            if task.verb == "repair":
                return self._repair(task.instance)
            self._destroy(task.instance)
        except GpuError as error:
            if isinstance(error, InstanceNotFoundError) and isinstance(task.last, UnsureChangeError):
                return None  # our own attempt before this one has done it
            if isinstance(error, InUseError) and not self._patience.waits_for_holders:
                task.holders = self._holders(task.instance)
                task.is_held = any(born(holder.pid) is not None for holder in task.holders)
            elif self._is_last(task, task.n_refused + 1, error):
                task.holders = self._holders(task.instance)
            raise
        return None

    def _refuse(self, task: _Task, error: GpuError) -> None:
        """Take note of a refusal: when the task is due again, if ever.

        Raises:
            UnrecordedError: It is that: nothing that follows could be written down either.
        """
        if isinstance(error, UnrecordedError):
            raise error
        is_alike = task.last is not None and task.last.retry_after_s == error.retry_after_s
        task.n_alike = task.n_alike + 1 if is_alike else 1
        task.n_refused, task.last = task.n_refused + 1, error
        if isinstance(error, PartialChangeError) and task.verb == "destroy":
            task.instance = error.standing
        if isinstance(error, RetryableGpuError) and not self._is_last(task, task.n_refused, error):
            task.due_s = self._clock.now_s + self._patience.wait_s(error, task.n_alike)
        else:
            task.due_s = math.inf

    def _is_last(self, task: _Task, n_refused: int, error: GpuError) -> bool:
        n_attempts = self._patience.n_attempts if task.n_attempts is None else task.n_attempts
        if task.is_held:
            return True
        return not isinstance(error, RetryableGpuError) or n_refused >= n_attempts

    def _give_up(self, task: _Task, tasks: list[_Task], users: Users) -> list[Undone]:
        """What is undone by the task's last refusal; what it is in the way of will not come either."""
        assert task.last is not None
        tasks.remove(task)
        left = task.last.standing if isinstance(task.last, PartialChangeError) else task.instance
        found = [Undone(task.placement, task.last, task.holders, None if task.verb == "repair" else left)]
        if task.verb == "destroy":
            assert left is not None
            ways = [other for other in tasks if other.verb == "create" and task.placement.overlaps(other.placement)]
            found += [Undone(other.placement, task.last, task.holders) for other in ways]
            tasks[:] = [other for other in tasks if other not in ways]
            if not left.is_whole:  # half an instance serves nothing, and would be an orphan
                tasks.insert(0, _Task("repair", task.placement, instance=left, mends_stuck=True))
                return found
        if left is not None:
            users.stuck(left)
        return found

    def look(self) -> tuple[GpuInstance, ...]:
        """The GPU's instances, with which the journal now agrees.

        Raises:
            GpuError: The driver does not answer.
        """
        standing = self._gpu.instances()
        named = self._journal.named_in(standing)
        with self._undone_unless_written(named):
            self._journal.settle(standing)
        return standing

    def _own(self, instance: GpuInstance) -> GpuInstance | None:
        """The instance as it is now; ``None`` if it is gone, even if another program's now has its id."""
        return next((i for i in self.look() if i.gi_id == instance.gi_id and self._journal.is_ours(i)), None)

    def _create(self, placement: Placement) -> GpuInstance:
        standing = self.look()
        half = next((item for item in standing if item.placement == placement and self._journal.is_ours(item)), None)
        if half is not None:  # an attempt before this one made it, and could not take it away
            return self._repair(half)
        with self._begun("create", placement, others=[item.gi_id for item in standing]):
            made = self._gpu.create(placement)
        return self._written(made)

    def _destroy(self, instance: GpuInstance) -> None:
        if self._own(instance) is None:
            raise InstanceNotFoundError(
                f"{instance.placement}: gone already, or not ours any more; somebody else was there"
            )
        with self._begun("destroy", instance.placement, instance.gi_id):
            self._gpu.destroy(instance.gi_id)
        self._journal.gone(instance.gi_id)

    def _repair(self, instance: GpuInstance) -> GpuInstance:
        standing = self._own(instance)
        if standing is None:
            raise InstanceNotFoundError(f"{instance.placement}: gone, or not ours any more; somebody else was there")
        if standing.is_whole:
            return self._written(standing)
        with self._begun("repair", instance.placement, instance.gi_id):
            made = self._gpu.make_whole(instance.gi_id)
        return self._written(made)

    def _written(self, made: GpuInstance) -> GpuInstance:
        """The instance, recorded as ours.

        Raises:
            OSError: That could not be; it is gone again.
            UnrecordedError: Nor would it go.
        """
        with self._undone_unless_written(made):
            self._journal.stands(made)
        return made

    @contextmanager
    def _undone_unless_written(self, made: GpuInstance | None) -> Iterator[None]:
        """Take an instance away that the journal did not take, as on a full disk: no later process would know it."""
        try:
            yield
        except OSError as error:
            if made is None:
                raise
            refusal = self._refused_to_go(made)
            if refusal is None:
                with suppress(OSError):
                    self._journal.gone(made.gi_id)
                raise
            what = f"{made.placement} (GPU instance ID {made.gi_id}) was made, and cannot be written down"
            told = f"{error.filename}: {error.strerror or error}; nor would it go again: {refusal}"
            by_hand = f"; once it lets go: {'; '.join(destructions([made], self._gpu.index))}"
            advice = by_hand if self._gpu.backend in ("nvml", "smi") else ""
            raise UnrecordedError(f"{what}: {told}{advice}") from error

    def _refused_to_go(self, instance: GpuInstance) -> GpuError | None:
        """Why the instance, which nothing is in yet, cannot be destroyed without a word in the journal."""
        refusal: GpuError | None = None
        for n in range(1, self._patience.n_attempts + 1):
            try:
                self._gpu.destroy(instance.gi_id)
            except InstanceNotFoundError:
                return None
            except RetryableGpuError as error:
                refusal = error
                self._clock.sleep_until(self._clock.now_s + self._patience.wait_s(error, n))
            except GpuError as error:
                return error
            else:
                return None
        return refusal

    @contextmanager
    def _begun(
        self, verb: Verb, placement: Placement, gi_id: int | None = None, others: Iterable[int] = ()
    ) -> Iterator[None]:
        """Write that a call is about to be made; if it fails, record what is then known to exist."""
        self._journal.begin(verb, placement, gi_id, others)
        try:
            yield
        except UnsureChangeError as error:
            self._journal.named(error.made_id)
            if verb == "destroy" and gi_id is not None:
                self._journal.disown(gi_id)
            raise
        except PartialChangeError as error:
            self._written(error.standing)
            raise
        except GpuError as error:
            if verb == "destroy" and gi_id is not None and isinstance(error, InstanceNotFoundError):
                self._journal.gone(gi_id)
            else:
                self._journal.nothing_done()
            raise

    def _holders(self, instance: GpuInstance | None) -> tuple[Process, ...]:
        try:
            return () if instance is None else tuple(map(gpu_process, self._gpu.processes().get(instance.gi_id, ())))
        except GpuError:
            return ()
