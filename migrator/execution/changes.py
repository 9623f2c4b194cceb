"""Changes of the layout: what a plan's lifetimes ask for, and the outcome of carrying them out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from executor.errors import GpuError
from executor.gpu import GpuInstance
from executor.mig import OwnedLayout, Placement
from executor.reconcile import Undone
from planner.plan import Lifetime, MigPlan
from planner.problem import Owner, Problem, Task
from workloads.training import FULL

NEVER_S = math.inf
"""When what does not happen happens."""


@dataclass(frozen=True, slots=True)
class Training:
    """How a tenant is retrained: by which option, and after which parts of the work its weights are kept and served.

    Attributes:
        is_lent: Whether others serve where it starts up: it computes nothing before their last batches are answered.
    """

    option: str = FULL
    checkpoints: tuple[float, ...] = ()
    is_lent: bool = False


FULLY = Training()

NONE: Mapping[str, tuple[float, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Loan:
    """An instance that its pool goes on holding, lent to a retraining that begins to start up now."""

    placement: Placement
    owner: Owner
    promised_s: float
    training: Training


@dataclass(frozen=True, slots=True)
class Change:
    """One moment at which instances start or end.

    Attributes:
        planned_s: When it is due, seconds from the start of the run.
        layout: Who holds what from then on.
        promised_s: For each lifetime that begins, when the plan lets it serve (or train); all members of a pool that
            keeps an instance of others'. A retraining that was in progress when the plan was made begins nothing: it
            has no entry.
        trainings: How those retrain that begin to.
        lent: What of the layout is lent from then on, and to whom.
        loans: Those of them that begin.
    """

    planned_s: float
    layout: OwnedLayout[Owner]
    promised_s: tuple[tuple[Placement, float], ...]
    trainings: tuple[tuple[Placement, Training], ...] = ()
    lent: tuple[tuple[Placement, Owner], ...] = ()
    loans: tuple[Loan, ...] = ()


def changes_of(
    plan: MigPlan,
    start_s: float,
    step_s: float,
    checkpoints: Mapping[str, tuple[float, ...]] = NONE,
    problem: Problem | None = None,
) -> tuple[Change, ...]:
    """The changes of a ``physical`` plan whose step 0 is at ``start_s``, in order of time.

    The first is always at step 0, whether or not anything differs from before: what ended with
    the last window is cleared there. ``checkpoints`` are, by tenant, the parts of a retraining after which its weights
    are kept. What a pool keeps that others held is its own from the first step on at which the held set may change, by
    the plan's ``problem``.
    """
    lifetimes = plan.lifetimes if problem is None else tuple(_as_held(problem, plan))
    steps = {0}
    steps |= {lifetime.create_step for lifetime in lifetimes}
    steps |= {lifetime.end_step for lifetime in lifetimes if lifetime.end_step < plan.n_steps}
    return tuple(_change_at(step, lifetimes, start_s, step_s, checkpoints) for step in sorted(steps))


def _as_held(problem: Problem, plan: MigPlan) -> Iterator[Lifetime]:
    """The plan's lifetimes; one that a pool keeps, divided where it comes to be the pool's."""
    held = {item.placement: Owner(item.tenant, Task.INFERENCE, item.others) for item in problem.opening.held}
    first = problem.opening.next_epoch_step
    for item in plan.lifetimes:
        before = held.get(item.placement) if item.is_inference and item.create_step == 0 else None
        if before in (None, item.owner) or set(before.members).isdisjoint(item.owner.members):
            yield item
            continue
        serve_steps = (problem.joins_at(item.placement, problem.tenant(name)) for name in item.owner.members)
        if first > 0:
            yield replace(item, owner=before, end_step=min(first, item.end_step))
        if first < item.end_step:
            yield replace(item, create_step=first, serve_step=max(item.serve_step, *serve_steps))


def _change_at(
    step: int,
    lifetimes: Sequence[Lifetime],
    start_s: float,
    step_s: float,
    checkpoints: Mapping[str, tuple[float, ...]],
) -> Change:
    every = [item for item in lifetimes if item.create_step <= step < item.end_step]
    alive, lent = [item for item in every if not item.lent], [item for item in every if item.lent]
    begun = [item for item in alive if item.create_step == step and (item.is_inference or item.option is not None)]
    return Change(
        planned_s=start_s + step * step_s,
        layout=OwnedLayout.of((item.placement, item.owner) for item in alive),
        promised_s=tuple((item.placement, start_s + item.serve_step * step_s) for item in begun),
        trainings=tuple(
            (item.placement, Training(item.option, checkpoints.get(item.owner.tenant, ())))
            for item in begun
            if item.option is not None
        ),
        lent=tuple((item.placement, item.owner) for item in lent),
        loans=tuple(
            Loan(
                item.placement,
                item.owner,
                start_s + item.serve_step * step_s,
                Training(item.option, checkpoints.get(item.owner.tenant, ()), is_lent=True),
            )
            for item in lent
            if item.create_step == step and item.option is not None
        ),
    )


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of a driver call, in seconds of the run: the instance that it made, if any, or why it was refused."""

    begin_s: float
    end_s: float
    instance: GpuInstance | None
    error: GpuError | None


@dataclass(frozen=True, slots=True)
class Started:
    """A task that got an instance: it holds slices from ``begin_s``; the plan lets it serve from ``promised_s``."""

    instance_id: str
    placement: Placement
    owner: Owner
    begin_s: float
    promised_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task that lost its instance: its last batch began before ``end_s``, ended by ``drained_s``."""

    instance_id: str
    placement: Placement
    owner: Owner
    end_s: float
    drained_s: float
    gone_s: float


@dataclass(frozen=True, slots=True)
class Died:
    """A tenant's worker that was to finish its last batch and died over it; ``server_ids`` are its servers."""

    started: Started
    tenant: str
    server_ids: tuple[str, ...]
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What one change did, also where the driver refused a call.

    Attributes:
        planned_s: When it was due,
        begin_s: and when it began.
        started: Who got an instance.
        stopped: Who lost one.
        passed: What a pool holds now that others held who share members with it, or where such a member starts again.
        died: Whose worker died before it was stopped.
        undone: What is missing, or would not go, in spite of all attempts.
        left_over: What would not go in an earlier change already.
        lent: Whose retraining began to start up in an instance that is its pool's.
    """

    planned_s: float
    begin_s: float
    started: tuple[Started, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    passed: tuple[Started, ...] = ()
    died: tuple[Died, ...] = ()
    undone: tuple[Undone, ...] = ()
    left_over: frozenset[Placement] = frozenset()
    lent: tuple[Started, ...] = ()

    @property
    def news(self) -> tuple[Undone, ...]:
        """What is undone that no plan knew of."""
        return tuple(item for item in self.undone if item.placement not in self.left_over)

    @property
    def is_empty(self) -> bool:
        """Whether nothing had to be done."""
        return not (self.started or self.stopped or self.passed or self.undone or self.lent)
