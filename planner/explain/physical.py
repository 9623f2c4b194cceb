"""``physical``: the held sets that could be held over a stretch between two epochs, or over what is left of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.mig import Placement
from planner.course import Course
from planner.engines.physical.held_sets import Entries, HeldSets
from planner.explain.stretch import AFTER, BEFORE, HELD, Candidates, IntArray
from planner.plan import MigPlan
from planner.problem import FloatArray, GainTable, Problem


def physical_candidates(
    problem: Problem, plan: MigPlan, tables: Sequence[GainTable], courses: Sequence[Course], step: int
) -> Candidates:
    """Every held set that fits beside the retrainings of the steps, see :class:`Candidates`."""
    stretch = _stretch(problem, plan, step)
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


def _stretch(problem: Problem, plan: MigPlan, step: int) -> _Stretch:
    epochs, state = _epochs(problem, plan), problem.physical_initial
    begin = max((epoch for epoch in epochs if epoch <= step), default=None)
    end = min((epoch for epoch in epochs if epoch > step), default=problem.n_steps)
    held = _held(problem, plan, step)
    after = _held(problem, plan, end) if end < problem.n_steps else None
    last_added = end - problem.epoch_steps if end < problem.n_steps else problem.n_steps - 1
    first_added = 1 if state is None else state.next_epoch_step
    if begin is not None:
        first_added = begin + problem.epoch_steps
    if first_added <= step <= last_added:
        return _Stretch(step, end, held, held, after)
    if begin is not None:
        return _Stretch(begin, end, held, _initial(problem) if begin == 0 else _held(problem, plan, begin - 1), after)
    if state is None:
        return _Stretch(0, end, held, None, after)
    if first_added <= min(step, last_added):
        return _Stretch(first_added, end, held, held, after)
    why = f"what was in progress when the window opened keeps it as it is until step {first_added}"
    if step >= first_added:
        why = f"epochs are at least {problem.epoch_steps} steps apart, and the next one is at step {end}"
    return _Stretch(step, end, held, held, after, why)


def _held(problem: Problem, plan: MigPlan, step: int) -> Entries:
    names = problem.tenant_names
    alive = [item for item in plan.lifetimes if item.is_inference and item.create_step <= step < item.end_step]
    return frozenset((item.placement, names.index(item.owner.tenant)) for item in alive)


def _initial(problem: Problem) -> Entries | None:
    state, names = problem.physical_initial, problem.tenant_names
    if state is None:
        return None
    return frozenset((item.placement, names.index(item.tenant)) for item in state.held)


def _epochs(problem: Problem, plan: MigPlan) -> list[int]:
    """The steps at which the plan changes the held set, ascending."""
    own = [item for item in plan.lifetimes if item.is_inference]
    steps = sorted({step for item in own for step in (item.create_step, item.end_step) if 0 < step < problem.n_steps})
    epochs = [step for step in steps if _held(problem, plan, step) != _held(problem, plan, step - 1)]
    initial = _initial(problem)
    return [0, *epochs] if initial is not None and _held(problem, plan, 0) != initial else epochs


def _fitting(problem: Problem, plan: MigPlan, held_sets: HeldSets, stretch: _Stretch) -> IntArray:
    """The held sets that fit beside the retrainings of every step compared."""
    steps = range(stretch.from_step, stretch.to_step)
    runs = [item for item in plan.lifetimes if not item.is_inference]
    beside: set[tuple[Placement, ...]] = {
        tuple(item.placement for item in runs if item.create_step <= step < item.end_step) for step in steps
    }
    fits = [all(problem.gpu.fits((*layout, *busy)) for busy in beside) for layout in held_sets.layouts]
    return np.flatnonzero(np.array(fits)[held_sets.layout])


def _earned(table: GainTable, course: Course) -> FloatArray:
    """What each column earns before each step at the plan's levels, ``(n_steps + 1, n_columns)``."""
    gains = table.steady[course.level, np.arange(len(course.level))]
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
