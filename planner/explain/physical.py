"""``physical``: the held sets that could be held over a stretch between two epochs, or over what is left of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.mig import Placement
from planner.counts import IntArray
from planner.course import Course
from planner.engines.physical.held_sets import Entries, HeldSets
from planner.engines.physical.plan import held_in
from planner.engines.schedule import WindowFacts
from planner.explain.stretch import AFTER, BEFORE, HELD, Candidates
from planner.levels import lowered
from planner.plan import MigPlan
from planner.problem import FloatArray, GainTable, Problem


def physical_candidates(
    problem: Problem, plan: MigPlan, tables: Sequence[GainTable], courses: Sequence[Course], step: int
) -> Candidates:
    """Every held set that fits beside the retrainings of the steps, see :class:`Candidates`."""
    stretch = _stretch(WindowFacts(problem, tuple(tables)), plan, step)
    held_sets = HeldSets.of(problem)
    rows = _fitting(problem, plan, held_sets, stretch)
    around = {HELD: stretch.held, BEFORE: stretch.before, AFTER: stretch.after}
    indices = {role: held_sets.index(entries) for role, entries in around.items() if entries is not None}
    if stretch.fixed_because:
        rows = np.array([indices[HELD]], dtype=np.int64)
    earned = [_earned(table, course) for table, course in zip(tables, courses, strict=True)]
    columns = held_sets.columns(tables)
    switching = np.zeros(len(rows))
    if stretch.before is not None:
        kept = held_sets.columns(tables, stretch.before)[rows]
        switching += _warm_up(problem, earned, stretch.from_step, columns[rows], kept)
    if stretch.after is not None:
        kept = held_sets.columns(tables, stretch.after)[rows]
        switching += _warm_up(problem, earned, stretch.to_step, columns[indices[AFTER]][None, :], kept)
    position = {int(index): row for row, index in enumerate(rows)}
    return Candidates(
        from_step=stretch.from_step,
        to_step=stretch.to_step,
        columns=columns[rows],
        switching=switching,
        roles={role: position[index] for role, index in indices.items() if index is not None and index in position},
        is_change=stretch.before is not None and stretch.before != stretch.held,
        fixed_because=stretch.fixed_because,
        names=lambda row: _names(problem, held_sets.entries(int(rows[row]))),
    )


@dataclass(frozen=True)
class _Stretch:
    """The steps compared, and what the plan holds in them, before them and after them."""

    from_step: int
    to_step: int
    held: Entries
    before: Entries | None
    after: Entries | None
    fixed_because: str = ""


def _stretch(facts: WindowFacts, plan: MigPlan, step: int) -> _Stretch:
    problem, changes = facts.problem, list(held_in(facts, plan))
    number = max(n for n, (since, _) in enumerate(changes) if since <= step)
    held = changes[number][1]
    end, after = changes[number + 1] if number + 1 < len(changes) else (problem.n_steps, None)
    last_added = end - problem.epoch_steps if after is not None else problem.n_steps - 1
    if number > 0:
        begin, before = changes[number][0], changes[number - 1][1]
        if begin + problem.epoch_steps <= step <= last_added:
            return _Stretch(step, end, held, held, after)
        return _Stretch(begin, end, held, before, after)
    first_added = 1 if facts.is_free else facts.state.next_epoch_step
    if first_added <= step <= last_added:
        return _Stretch(step, end, held, held, after)
    if facts.is_free:
        return _Stretch(0, end, held, None, after)
    if first_added <= min(step, last_added):
        return _Stretch(first_added, end, held, held, after)
    why = f"what was in progress when the window opened keeps it as it is until step {first_added}"
    if step >= first_added:
        why = f"epochs are at least {problem.epoch_steps} steps apart, and the next one is at step {end}"
    return _Stretch(step, end, held, held, after, why)


def _fitting(problem: Problem, plan: MigPlan, held_sets: HeldSets, stretch: _Stretch) -> IntArray:
    """The held sets that fit beside the retrainings, and others' instances, of every step compared."""
    steps = range(stretch.from_step, stretch.to_step)
    runs = [item for item in plan.lifetimes if not item.is_inference]
    beside: set[tuple[Placement, ...]] = {
        tuple(item.placement for item in runs if item.create_step <= step < item.end_step) for step in steps
    }
    mask = problem.unavailable_in(stretch.from_step, stretch.to_step)
    fits = [
        not layout.memory_mask & mask and all(problem.gpu.fits((*layout, *busy)) for busy in beside)
        for layout in held_sets.layouts
    ]
    return np.flatnonzero(np.array(fits)[held_sets.layout])


def _earned(table: GainTable, course: Course) -> FloatArray:
    """What each column earns before each step at the plan's levels, ``(n_steps + 1, n_columns)``."""
    gains = lowered(table.steady[course.level, np.arange(len(course.level))], course.swap_share[:, None])
    return np.concatenate([np.zeros_like(gains[:1]), np.cumsum(gains, axis=0)])


def _warm_up(
    problem: Problem, earned: Sequence[FloatArray], step: int, columns: IntArray, kept: IntArray
) -> FloatArray:
    """What is lost while the new instances of an epoch warm up, by held set; ``(n, n_tenants)`` columns each."""
    lost = np.zeros(len(kept))
    for m, tenant in enumerate(problem.tenants):
        end = min(step + problem.warm_up_steps(tenant), problem.n_steps)
        gains = earned[m][end] - earned[m][step]
        lost += gains[columns[:, m]] - gains[kept[:, m]]
    return lost


def _names(problem: Problem, entries: Entries) -> tuple[tuple[str, ...], ...]:
    ordered = sorted(entries, key=lambda entry: entry[0].sort_key)
    return tuple(
        tuple(str(placement) for placement, tenant in ordered if tenant == m) for m in range(len(problem.tenants))
    )
