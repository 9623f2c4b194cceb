"""The compiled longest path over (step, status of every tenant, joint state) of the ``paper`` model.

A tenant that may retrain waits, runs on a profile, or is done at a level. Here a run may take any
number of steps; what durations cost is in the prices of statuses, see ``exact_status``. Symbols as in
``exact_kernel``; besides:

===========  ==========================================================================
Σ            status vectors: those whose retrainings leave somebody's layout room
entry        a status vector with a joint state that fits beside it; those of vector i are
             ``first[i]`` … ``first[i + 1]`` in the order of its state list
===========  ==========================================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.engines.exact_kernel import Floats, Ints, compiled

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@compiled
def _gains(steady: Floats, loss: Floats, levels: Ints, s: int, out: Floats) -> None:
    """What every state earns in step s by level vector and by who has changed, ``(n, C, K)``."""
    n_tenants, n_states = steady.shape[0], steady.shape[3]
    for n in range(len(levels)):
        for k in range(n_states):
            total = 0.0
            for m in range(n_tenants):
                total += steady[m, levels[n, m], s, k]
            out[n, 0, k] = total
        for m in range(n_tenants):
            bit = 1 << m
            for c in range(bit):
                for k in range(n_states):
                    out[n, bit + c, k] = out[n, c, k] - loss[m, levels[n, m], s, k]


@compiled
def _as_step_begins(
    lists: Ints,
    list_bounds: Int64s,
    beside: Int64s,
    first: Int64s,
    ends: Int64s,
    values: Floats,
    held: Floats,
    is_live: Bools,
) -> None:
    """The values of the step before by vector and state, once the retrainings that end have ended."""
    for i in range(len(beside)):
        if is_live[i]:
            begin = list_bounds[beside[i]]
            for j in range(begin, list_bounds[beside[i] + 1]):
                held[i, lists[j]] = values[first[i] + j - begin]
    for e in range(len(ends)):
        to, source = ends[e, 0], ends[e, 1]
        if not is_live[source]:
            continue
        if not is_live[to]:
            is_live[to] = True
            for j in range(list_bounds[beside[to]], list_bounds[beside[to] + 1]):
                held[to, lists[j]] = -np.inf
        for j in range(list_bounds[beside[source]], list_bounds[beside[source] + 1]):
            k = lists[j]
            held[to, k] = max(held[to, k], held[source, k])


@compiled
def _best_of_groups(group: Ints, states: Ints, held: Floats, best: Floats) -> None:
    """The best of each group among ``states``, ``(C, K)``; groups without any of them are left as they are."""
    for c in range(1, len(group)):
        for k in states:
            best[c, group[c, k]] = -np.inf
        for k in states:
            g = group[c, k]
            best[c, g] = max(best[c, g], held[k])


@compiled
def _entered(group: Ints, k: int, gain: Floats, sources: Int64s, is_live: Bools, held: Floats, best: Floats) -> float:
    """The best value of state k after the step, from any of the vectors ``sources``."""
    value = -np.inf
    for source in sources:
        if is_live[source]:
            value = max(value, held[source, k] + gain[0, k])
            for c in range(1, len(group)):
                value = max(value, best[source, c, group[c, k]] + gain[c, k])
    return value


@compiled
def _origins(ends: Int64s, sources: Int64s, is_origin: Bools) -> None:
    """Mark the vectors of the step before from which one of ``sources`` is reached by ends alone."""
    is_origin[:] = False
    for source in sources:
        is_origin[source] = True
    for e in range(len(ends) - 1, -1, -1):
        if is_origin[ends[e, 0]]:
            is_origin[ends[e, 1]] = True


@compiled
def _explained(
    loss: Floats,
    group: Ints,
    lists: Ints,
    list_bounds: Int64s,
    beside: Int64s,
    first: Int64s,
    level: Ints,
    is_origin: Bools,
    s: int,
    k: int,
    values: Floats,
) -> tuple[int, int]:
    """The vector and state of the step before s that make the value of state k in step s."""
    whole = len(group) - 1
    most, vector, state = -np.inf, 0, 0
    for i in range(len(beside)):
        if not is_origin[i]:
            continue
        begin = list_bounds[beside[i]]
        for j in range(begin, list_bounds[beside[i] + 1]):
            value, other = values[first[i] + j - begin], lists[j]
            if value <= most:
                continue
            for m in range(len(level)):
                # States agree on m alone if they share the group of everybody else's change.
                if group[whole - (1 << m), other] != group[whole - (1 << m), k]:
                    value -= loss[m, level[m], s, k]
            if value > most:
                most, vector, state = value, i, other
    return vector, state


@compiled
def status_path(  # noqa: PLR0917 (compiled code takes arrays by position)
    steady: Floats,
    loss: Floats,
    group: Ints,
    opening: Floats,
    lists: Ints,
    list_bounds: Int64s,
    beside: Int64s,
    levels: Ints,
    number_of_levels: Int64s,
    ends: Int64s,
    before: Int64s,
    before_bounds: Int64s,
    possible: Int64s,
    prices: Floats,
    values: Floats,
    course: Int64s,
) -> float:
    """The most that any path earns after paying for its statuses; the path's vectors are left in ``course``.

    Beside the symbols above:
        steady: ``(M, n_levels, n_steps, K)``; likewise ``loss``.
        opening: What is earned in step 0 at level 0, ``(K,)``.
        beside: State list of each vector, ``(Σ,)``.
        levels: Distinct level vectors, ``(n, M)``.
        number_of_levels: Which of them each vector has, ``(Σ,)``.
        ends: (to, from) of every end of a retraining; a vector's own ends come after those into it, ``(n, 2)``.
        before: Vectors from which some tenants start to get to each vector, itself first, one after the other.
        before_bounds: Those of vector i are ``before[before_bounds[i]:before_bounds[i + 1]]``.
        possible: First and last step in which each vector is possible, ``(Σ, 2)``.
        prices: Of each vector by step, ``(n_steps, Σ)``.
        values: Scratch, ``(n_steps, n_entries)``.
        course: Out: the vector in each step, ``(n_steps,)``.
    """
    n_steps, n_states = steady.shape[2], steady.shape[3]
    n_vectors, n_subsets = len(beside), len(group)
    first = np.zeros(n_vectors + 1, np.int64)
    for i in range(n_vectors):
        first[i + 1] = first[i] + list_bounds[beside[i] + 1] - list_bounds[beside[i]]
    values[:] = -np.inf
    for i in range(n_vectors):
        if possible[i, 0] == 0 and possible[i, 1] >= 0:
            for j in range(first[i + 1] - first[i]):
                values[0, first[i] + j] = opening[lists[list_bounds[beside[i]] + j]] - prices[0, i]
    gain = np.empty((len(levels), n_subsets, n_states))
    held = np.full((n_vectors, n_states), -np.inf)
    best = np.full((n_vectors, n_subsets, n_states), -np.inf)
    is_live = np.zeros(n_vectors, np.bool_)
    for s in range(1, n_steps):
        _gains(steady, loss, levels, s, gain)
        is_live[:] = (possible[:, 0] < s) & (s <= possible[:, 1] + 1)
        _as_step_begins(lists, list_bounds, beside, first, ends, values[s - 1], held, is_live)
        for i in range(n_vectors):
            if is_live[i]:
                _best_of_groups(group, lists[list_bounds[beside[i]] : list_bounds[beside[i] + 1]], held[i], best[i])
        for i in range(n_vectors):
            if possible[i, 0] <= s <= possible[i, 1]:
                sources, begin = before[before_bounds[i] : before_bounds[i + 1]], list_bounds[beside[i]]
                for j in range(begin, list_bounds[beside[i] + 1]):
                    value = _entered(group, lists[j], gain[number_of_levels[i]], sources, is_live, held, best)
                    values[s, first[i] + j - begin] = value - prices[s, i]
    last = int(np.argmax(values[n_steps - 1]))
    at = int(np.searchsorted(first, last, side="right")) - 1
    k = lists[list_bounds[beside[at]] + last - first[at]]
    course[n_steps - 1] = at
    for s in range(n_steps - 1, 0, -1):
        _origins(ends, before[before_bounds[at] : before_bounds[at + 1]], is_live)
        level = levels[number_of_levels[at]]
        at, k = _explained(loss, group, lists, list_bounds, beside, first, level, is_live, s, k, values[s - 1])
        course[s - 1] = at
    return float(values[n_steps - 1, last])
