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
    slots: Ints,
    first: Int64s,
    ends: Int64s,
    values: Floats,
    held: Floats,
    is_live: Bools,
) -> None:
    """The values of the step before by vector and place in its list, once the retrainings that end have ended."""
    for i in range(len(beside)):
        if is_live[i]:
            n = first[i + 1] - first[i]
            held[i, :n] = values[first[i] : first[i + 1]]
    for e in range(len(ends)):
        to, source = ends[e, 0], ends[e, 1]
        if not is_live[source]:
            continue
        if not is_live[to]:
            is_live[to] = True
            held[to, : first[to + 1] - first[to]] = -np.inf
        begin, place = list_bounds[beside[source]], slots[beside[to], 0]
        for j in range(first[source + 1] - first[source]):
            at = place[lists[begin + j]]
            held[to, at] = max(held[to, at], held[source, j])


@compiled
def _best_of_groups(parent: Int64s, raised: Ints, raised_bounds: Int64s, n_groups: Ints, best: Floats) -> None:
    """The best of each group of a list's states by who changes, from the groups of one changing tenant less.

    ``best[0]`` is what is held, by place in the list.
    """
    for c in range(1, len(parent)):
        for g in range(n_groups[c]):
            best[c, g] = -np.inf
        begin, below = raised_bounds[c], parent[c]
        for g in range(n_groups[below]):
            to = raised[begin + g]
            best[c, to] = max(best[c, to], best[below, g])


@compiled
def _entered(
    states: Ints, slots: Ints, gain: Floats, sources: Int64s, beside: Int64s, is_live: Bools, best: Floats, out: Floats
) -> None:
    """Raise ``out``, by place in a vector's list, to what is reached from the vectors ``sources``."""
    for source in sources:
        if is_live[source]:
            own = beside[source]
            for c in range(len(gain)):
                for j in range(len(states)):
                    k = states[j]
                    out[j] = max(out[j], best[source, c, slots[own, c, k]] + gain[c, k])


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
    slots: Ints,
    parent: Int64s,
    raised: Ints,
    raised_bounds: Int64s,
    n_groups: Ints,
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
        slots: By list, subset and state: the number of the state's group among the list's; for the empty
            subset the state's place in the list, ``(n_lists, C, K)``.
        parent: Of each subset, one with a tenant less, ``(C,)``.
        raised: For each group of the parent the group that it belongs to; by list and subset, one after the other.
        raised_bounds: Those of list i and subset c begin at ``raised_bounds[i, c]``, ``(n_lists, C + 1)``.
        n_groups: ``(n_lists, C)``.
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
    best = np.empty((n_vectors, n_subsets, n_states))
    is_live = np.zeros(n_vectors, np.bool_)
    for s in range(1, n_steps):
        _gains(steady, loss, levels, s, gain)
        is_live[:] = (possible[:, 0] < s) & (s <= possible[:, 1] + 1)
        _as_step_begins(lists, list_bounds, beside, slots, first, ends, values[s - 1], best[:, 0], is_live)
        for i in range(n_vectors):
            if is_live[i]:
                own = beside[i]
                _best_of_groups(parent, raised, raised_bounds[own], n_groups[own], best[i])
        for i in range(n_vectors):
            if possible[i, 0] <= s <= possible[i, 1]:
                states = lists[list_bounds[beside[i]] : list_bounds[beside[i] + 1]]
                reached = values[s, first[i] : first[i + 1]]
                sources = before[before_bounds[i] : before_bounds[i + 1]]
                _entered(states, slots, gain[number_of_levels[i]], sources, beside, is_live, best, reached)
                reached -= prices[s, i]
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
