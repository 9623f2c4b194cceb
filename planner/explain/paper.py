"""``paper``: the joint states that could be held from a step on until the plan's next change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.counts import CountSpace, IntArray, joint_states, multiset_of, profiles_of, tenant_multisets
from planner.course import Course, column_of
from planner.explain.stretch import AFTER, BEFORE, HELD, Candidates
from planner.levels import lowered
from planner.problem import FloatArray, GainTable, Problem


def paper_candidates(problem: Problem, tables: Sequence[GainTable], courses: Sequence[Course], step: int) -> Candidates:
    """Every joint state that fits beside the retrainings of the steps, see :class:`Candidates`."""
    to_step = next((s for s in range(step + 1, problem.n_steps) if _changes(courses, s)), problem.n_steps)
    counts = _counts(problem)
    counts = counts[_fits(problem, courses, counts, step, to_step)]
    before, after = _before(problem, courses, step), None
    if to_step < problem.n_steps:
        after = np.stack([course.held[to_step] for course in courses])
    around = {HELD: np.stack([course.held[step] for course in courses]), BEFORE: before, AFTER: after}
    rows = {role: _row(counts, joint) for role, joint in around.items() if joint is not None}
    columns = [column_of(problem, table, counts[:, m]) for m, table in enumerate(tables)]
    switching = np.zeros(len(counts))
    for m, (table, course) in enumerate(zip(tables, courses, strict=True)):
        if before is not None:
            is_new = np.any(counts[:, m] != before[m], axis=1)
            switching += is_new * _costs(table, course, step)[columns[m]]
        if after is not None:
            is_new = np.any(counts[:, m] != after[m], axis=1)
            switching += is_new * _costs(table, course, to_step)[column_of(problem, table, after[m])]
    return Candidates(
        from_step=step,
        to_step=to_step,
        columns=np.stack(columns, axis=1),
        switching=switching,
        roles={role: row for role, row in rows.items() if row is not None},
        is_change=_changes(courses, step),
        fixed_because="",
        names=lambda row: tuple(profiles_of(problem, tuple(map(int, own))) for own in counts[row]),
    )


def _counts(problem: Problem) -> IntArray:
    """What each tenant holds in each joint state, ``(n, n_tenants, n_profiles)``."""
    states = joint_states(problem)
    own = [np.array(tenant_multisets(problem, tenant), dtype=np.int64) for tenant in problem.tenants]
    return np.stack([multisets[states[:, m]] for m, multisets in enumerate(own)], axis=1)


def _fits(problem: Problem, courses: Sequence[Course], counts: IntArray, begin: int, end: int) -> IntArray:
    """The joint states that fit beside the retrainings, and others' instances, of every step in [begin, end)."""
    space = CountSpace(problem.gpu, problem.profile_names)
    runs = [course.retraining for course in courses if course.retraining is not None]
    beside = {
        (
            tuple(run.where for run in runs if run.from_step <= step < run.to_step),
            problem.unavailable_in(step, step + 1),
        )
        for step in range(begin, end)
    }
    fits = np.ones(len(counts), dtype=np.bool_)
    for profiles, mask in beside:
        running = space.codes(np.array([multiset_of(problem, profiles)], dtype=np.int64))
        fits &= space.fits(space.codes(counts.sum(axis=1)) + running, mask)
    return np.flatnonzero(fits)


def _changes(courses: Sequence[Course], step: int) -> bool:
    return any(bool(course.has_changed[step]) for course in courses)


def _before(problem: Problem, courses: Sequence[Course], step: int) -> IntArray | None:
    """What was held before the step, ``(n_tenants, n_profiles)``; ``None`` where the first layout is free."""
    if step > 0:
        return np.stack([course.held[step - 1] for course in courses])
    state = problem.paper_initial
    if state is None:
        return None
    held = [multiset_of(problem, state.held.get(name, ())) for name in problem.tenant_names]
    return np.array(held, dtype=np.int64)


def _row(counts: IntArray, joint: IntArray) -> int | None:
    found = np.flatnonzero(np.all(counts == joint, axis=(1, 2)))
    return int(found[0]) if len(found) else None


def _costs(table: GainTable, course: Course, step: int) -> FloatArray:
    """What a change in the step takes from each column, ``(n_columns,)``."""
    assert table.changed is not None
    level, share = course.level[step], course.swap_share[step]
    costs: FloatArray = lowered(table.steady[level, step], share) - lowered(table.changed[level, step], share)
    return costs
