"""Which level a tenant has in each step, and what taking new weights over leaves of a step's gains.

A retraining of option o that starts at step a, with a warm-up of Ω_r steps (0 in ``paper``) and d of training, brings
checkpoint i of those *kept* at e_i = a + Ω_r + max(1, ⌈f_i · d − 1e-9⌉), and its own accuracy at a + Ω_r + d if that is
above the last kept one. Of changes in one step the last counts. A checkpoint is kept if it is better than the model in
service and than those kept before it; that is settled before planning.

Each change of level takes ``swap_s``: with u = swap_s/step_s, the gains of the ⌈u⌉ steps from it on are multiplied by
1 − min(1, u − j), j = 0, 1, …; where changes follow each other closely, factors multiply. A gain below zero, the debt
of a ``paper`` change, stays what it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from planner.arrays import Floats
from planner.plan import Lifetime
from planner.problem import STEP_TOLERANCE, Problem, TenantTerms

LevelChange = tuple[int, int]
"""A step, and the level that holds from it on."""


def level_changes(problem: Problem, tenant: TenantTerms, level: int, profile: str) -> tuple[LevelChange, ...]:
    """The changes of a retraining that leads to ``level`` on ``profile``, in steps from its start, ascending."""
    option, kept = tenant.options[level - 1], tenant.kept_checkpoints(level)
    n_warming, n_training = problem.retraining_warm_up_steps(tenant), problem.training_steps(option, profile)
    found: dict[int, int] = {}
    for own, checkpoint in kept:
        found[n_warming + max(1, math.ceil(checkpoint.fraction * n_training - STEP_TOLERANCE))] = own
    if not kept or option.accuracy_after > kept[-1][1].accuracy:
        found[n_warming + n_training] = level
    return tuple(sorted(found.items()))


def changes_until(
    problem: Problem, tenant: TenantTerms, level: int, profile: str, end_step: int
) -> tuple[LevelChange, ...]:
    """The same of one that ends before ``end_step``, in steps of the window; only those in it.

    On a profile that its option does not offer it has no checkpoints.
    """
    option = tenant.options[level - 1]
    if profile not in option.time_s:
        return ((end_step, level),)
    started = end_step - problem.occupied_steps(tenant, option, profile)
    changes = ((started + step, own) for step, own in level_changes(problem, tenant, level, profile))
    return tuple(change for change in changes if change[0] >= 0)


def running_changes(problem: Problem, tenant: TenantTerms, profile: str, end_step: int) -> tuple[LevelChange, ...]:
    """The same of a retraining in progress: option 0's; only those still to come.

    What serves may be a checkpoint of it: where it has some, its end counts only if it is better than what serves then.
    """
    option = tenant.options[0]
    may_have_served = profile in option.time_s and option.checkpoints and not tenant.kept_checkpoints(1)
    if may_have_served and option.accuracy_after <= tenant.accuracy_before:
        return ()
    return changes_until(problem, tenant, 1, profile, end_step)


def changes_by(problem: Problem, tenant: TenantTerms, run: Lifetime) -> tuple[LevelChange, ...]:
    """The same of a plan's retraining."""
    name = run.placement.profile.name
    if run.option is None:
        return running_changes(problem, tenant, name, run.end_step)
    return changes_until(problem, tenant, tenant.level_of(run.option), name, run.end_step)


def swap_shares(problem: Problem, tenant: TenantTerms) -> tuple[float, ...]:
    """What a change of level leaves of the gains of the steps from it on; empty where it takes no time."""
    n_steps = tenant.swap_s / problem.step_s
    return tuple(1.0 - min(1.0, n_steps - j) for j in range(math.ceil(n_steps - STEP_TOLERANCE)))


def levels_of(changes: Iterable[LevelChange], n_steps: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The level in each step, ``(n_steps,)``, from changes in ascending order; 0 before the first."""
    levels = np.zeros(n_steps, dtype=np.int64)
    for step, level in changes:
        levels[step:] = level
    return levels


def shares_of(changes: Iterable[LevelChange], swap: Iterable[float], n_steps: int) -> Floats:
    """What taking weights over leaves of each step's gains, ``(n_steps,)``; 1 where nothing is taken over."""
    shares, swap = np.ones(n_steps), tuple(swap)
    for step, _ in changes:
        for j, share in enumerate(swap):
            if step + j < n_steps:
                shares[step + j] *= share
    return shares


def lowered(gains: Floats, shares: Floats | float) -> Floats:
    """Gains of which only these shares are left; those below zero stay."""
    return np.minimum(gains, shares * gains)
