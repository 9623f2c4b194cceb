"""From what stands on a GPU to what should: a decision by a pure function, and its effects, each call journalled.

``instances()`` is the truth. What is ours and wanted stays untouched. What is ours and not wanted goes, before anything
comes. What comes is made from large to small at explicit places. What is not ours is never touched, and whatever it is
in the way of is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from executor.clock import Clock
from executor.errors import GpuError, InstanceNotFoundError, RetryableGpuError
from executor.gpu import Gpu, GpuInstance, PartialChangeError
from executor.journal import Journal
from executor.mig import Layout, Placement
from executor.transition import transition


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
        repaired: Ours and wanted, but without a compute instance: it is made anew.
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
        """Whether everything that is wanted stands, and nothing else of ours does."""
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


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a refused call is tried again.

    Attributes:
        n_attempts: Attempts at one call, the first included.
        factor: Each wait is this much longer than the one before it.
        longest_s: No wait is longer.
    """

    n_attempts: int = 6
    factor: float = 2.0
    longest_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Undone:
    """What could not be done, and why: the last refusal, and the processes that hold the instance."""

    placement: Placement
    error: GpuError
    holders: tuple[int, ...] = ()

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
        """Whether the target stands."""
        return not (self.undone or self.blocked)


class Reconciler:
    """Carries decisions out, one driver call after the other."""

    def __init__(self, gpu: Gpu, journal: Journal, clock: Clock, patience: Patience = Patience()) -> None:
        self._gpu = gpu
        self._journal = journal
        self._clock = clock
        self._patience = patience

    def settle(self) -> None:
        """Make the journal agree with what stands, as after a crash or a reboot.

        Raises:
            GpuError: The driver does not answer.
        """
        self._journal.settle(self._gpu.instances())

    def decision(self, target: Layout) -> Decision:
        """What would be done, were ``target`` applied now.

        Raises:
            GpuError: The driver does not answer.
        """
        return decide(self._gpu.instances(), self._journal.is_ours, target)

    def adopt(self) -> tuple[GpuInstance, ...]:
        """Take over every instance that stands; those that were not ours before.

        Raises:
            GpuError: The driver does not answer.
        """
        found = tuple(item for item in self._gpu.instances() if not self._journal.is_ours(item))
        for item in found:
            self._journal.stands(item)
        return found

    def apply(self, target: Layout) -> Outcome:
        """Bring the GPU as near to ``target`` as it goes: kept instances and others' are untouched.

        Raises:
            GpuError: The driver does not even say what stands.
        """
        decision = self.decision(target)
        undone = [self._refused(item.placement, item.gi_id, partial(self._repair, item)) for item in decision.repaired]
        for item in decision.destroyed:
            refused = self._refused(item.placement, item.gi_id, partial(self._destroy, item))
            undone.append(refused)
            if refused is not None:
                self._keep_usable(item)
        stuck = [item for item in undone if item is not None]
        for placement in decision.created:
            way = next((item for item in stuck if placement.overlaps(item.placement)), None)
            if way is not None:  # what would not go is in its way
                undone.append(Undone(placement, way.error, way.holders))
            else:
                undone.append(self._refused(placement, None, partial(self._create, placement)))
        told = tuple(item for item in undone if item is not None)
        now = self.decision(target)
        missing = (*(item.placement for item in now.repaired), *now.created)
        lost = [placement for placement in missing if placement not in {item.placement for item in told}]
        gone = [Undone(placement, InstanceNotFoundError(f"{placement}: made, and gone again")) for placement in lost]
        return Outcome(now.kept, (*told, *gone), now.blocked)

    def _refused(self, placement: Placement, gi_id: int | None, call: Callable[[], None]) -> Undone | None:
        """Why the call did not succeed, after as many attempts as patience allows; ``None`` if it did."""
        wait_s = None
        for attempt in range(1, self._patience.n_attempts + 1):
            try:
                call()
            except RetryableGpuError as error:
                if attempt == self._patience.n_attempts:
                    return Undone(placement, error, self._holders(gi_id))
                wait_s = error.retry_after_s if wait_s is None else wait_s * self._patience.factor
                self._clock.sleep_until(self._clock.now_s + min(wait_s, self._patience.longest_s))
            except GpuError as error:
                return Undone(placement, error, self._holders(gi_id))
            else:
                break
        return None

    def _create(self, placement: Placement) -> None:
        standing = self._gpu.instances()
        half = next((item for item in standing if item.placement == placement and self._journal.is_ours(item)), None)
        if half is not None:  # an attempt before this one made it, and could not take it away
            self._repair(half)
            return
        self._journal.begin("create", placement, others=[item.gi_id for item in standing])
        try:
            made = self._gpu.create(placement)
        except PartialChangeError as error:
            self._journal.stands(error.standing)
            raise
        except GpuError:
            self._journal.nothing_done()
            raise
        self._journal.stands(made)

    def _destroy(self, instance: GpuInstance) -> None:
        self._journal.begin("destroy", instance.placement, instance.gi_id)
        try:
            self._gpu.destroy(instance.gi_id)
        except InstanceNotFoundError:
            pass  # somebody else has done it
        except PartialChangeError as error:
            self._journal.stands(error.standing)
            raise
        except GpuError:
            self._journal.nothing_done()
            raise
        self._journal.gone(instance.gi_id)

    def _repair(self, instance: GpuInstance) -> None:
        if instance.is_whole:
            self._journal.stands(instance)
            return
        self._journal.begin("repair", instance.placement, instance.gi_id)
        try:
            made = self._gpu.make_whole(instance.gi_id)
        except GpuError:
            self._journal.nothing_done()
            raise
        self._journal.stands(made)

    def _keep_usable(self, instance: GpuInstance) -> None:
        """What will not go gets its compute instance back: half an instance serves nobody, and would be an orphan."""
        left = next((item for item in self._gpu.instances() if item.gi_id == instance.gi_id), None)
        if left is not None and not left.is_whole:
            self._refused(left.placement, left.gi_id, partial(self._repair, left))

    def _holders(self, gi_id: int | None) -> tuple[int, ...]:
        try:
            return () if gi_id is None else tuple(self._gpu.processes().get(gi_id, ()))
        except GpuError:
            return ()
