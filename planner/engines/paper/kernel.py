"""Compiled loops of the ``paper`` model over joint states: one step forward or back, and whole stretches.

Symbols:

===========  ==========================================================================
K            joint states; every tenant has a multiset in each (``planner.counts.joint_states``)
C            subsets of tenants whose multiset changes, 2^M of them; bit m is tenant m, 0 is no change
gain         ``(n_steps, C, K)``: what state k earns in step s when exactly the subset has changed
group        ``(C, K)``: number of k among what agrees with it on the tenants outside the subset
V            ``(K,)``: best value of the steps before s, by the state held in step s − 1; −inf: impossible
B            ``(K,)``: best value of the steps from s on, given the state held in step s − 1
states       the states that fit beside what retrainings hold, ascending
===========  ==========================================================================

A step finds the best predecessor of every state through the best of each group: O(K · 2^M) instead
of O(K²). Before step 0 nothing is held; ``opening`` ``(K,)`` is then what a state earns in it.
"""

from __future__ import annotations

import numpy as np

from executor.compiled import compiled
from planner.engines.arrays import Bools, Floats, Int64s, Ints


@compiled
def _forward(gain: Floats, group: Ints, before: Ints, values: Floats, states: Ints, best: Floats, out: Floats) -> None:
    """One step: ``out`` from ``values`` over ``before``; ``best`` is scratch, all −inf before and after."""
    n_subsets = group.shape[0]
    for c in range(1, n_subsets):
        for k in before:
            g = group[c, k]
            best[c, g] = max(best[c, g], values[k])
    out[:] = -np.inf
    for k in states:
        value = values[k] + gain[0, k]
        for c in range(1, n_subsets):
            value = max(value, best[c, group[c, k]] + gain[c, k])
        out[k] = value
    for c in range(1, n_subsets):
        for k in before:
            best[c, group[c, k]] = -np.inf


@compiled
def _backward(gain: Floats, group: Ints, before: Ints, states: Ints, values: Floats, best: Floats, out: Floats) -> None:
    """One step back: ``out[k′]`` from ``values`` over ``states``, for the states k′ in ``before``."""
    n_subsets = group.shape[0]
    out[:] = -np.inf
    for k in states:
        out[k] = values[k] + gain[0, k]
        for c in range(1, n_subsets):
            g = group[c, k]
            best[c, g] = max(best[c, g], values[k] + gain[c, k])
    for k in before:
        for c in range(1, n_subsets):
            out[k] = max(out[k], best[c, group[c, k]])
    for c in range(1, n_subsets):
        for k in states:
            best[c, group[c, k]] = -np.inf


@compiled
def chain(gain: Floats, group: Ints, states: Ints, opening: Floats, joins: Floats) -> Floats:
    """V before every step of a stretch that may begin anywhere, ``(n_steps + 1, K)``.

    Beside the symbols above:
        opening: What is earned in step 0; all −inf when the stretch does not begin there.
        joins: V of what joins the stretch before each step, ``(n_steps + 1, K)``.
    """
    n_steps = len(gain)
    out = np.full((n_steps + 1, group.shape[1]), -np.inf)
    best = np.full(group.shape, -np.inf)
    for s in range(n_steps):
        if s == 0:
            for k in states:
                out[1, k] = opening[k]
        else:
            _forward(gain[s], group, states, out[s], states, best, out[s + 1])
        out[s + 1] = np.maximum(out[s + 1], joins[s + 1])
    return out


@compiled
def chain_back(gain: Floats, group: Ints, states: Ints, until: int, last: Floats) -> Floats:
    """B before every step up to ``until``, ``(until + 1, K)``, from ``last``, that before step ``until``."""
    out = np.full((until + 1, group.shape[1]), -np.inf)
    best = np.full(group.shape, -np.inf)
    out[until] = last
    everywhere = np.arange(group.shape[1], dtype=np.int32)
    for s in range(until - 1, -1, -1):
        _backward(gain[s], group, everywhere, states, out[s + 1], best, out[s])
    return out


@compiled
def runs(
    gain: Floats, group: Ints, everywhere: Ints, states: Ints, opening: Floats, begins: Floats, n_run: int, stop: Bools
) -> tuple[Floats, Floats]:
    """A retraining of ``n_run`` steps from every start: V at its end and the best V on its way.

    Beside the symbols above:
        everywhere: The states that may be held before it starts.
        states: Those that fit beside it.
        opening: What is earned in step 0 beside it.
        begins: V before it starts, by start, ``(n_steps + 1, K)``.
        stop: Whether to leave off, ``(1,)``; another thread may set it. What is returned then is of no use.

    Returns:
        V at the end by start, ``(n_starts, K)``, and the maximum of V by start and steps run,
        ``(n_starts, n_run + 1)``.
    """
    n_starts, n_states = max(0, len(gain) - n_run + 1), group.shape[1]
    ends = np.full((n_starts, n_states), -np.inf)
    most = np.full((n_starts, n_run + 1), -np.inf)
    best = np.full(group.shape, -np.inf)
    now, after = np.empty(n_states), np.empty(n_states)
    for start in range(n_starts):
        if stop[0]:
            break
        now[:] = begins[start]
        most[start, 0] = 0.0 if start == 0 and opening.max() > -np.inf else now.max()
        for i in range(n_run):
            if start + i == 0:
                after[:] = -np.inf
                for k in states:
                    after[k] = opening[k]
            else:
                _forward(gain[start + i], group, everywhere if i == 0 else states, now, states, best, after)
            now, after = after, now
            for k in states:
                most[start, i + 1] = max(most[start, i + 1], now[k])
        ends[start] = now
    return ends, most


@compiled
def tails(gain: Floats, group: Ints, states: Ints, done: Floats, n_run: int, stop: Bools) -> Floats:
    """The most that the rest can earn when ``i`` steps of a retraining are left, by its end and i.

    ``(n_steps + 1, n_run + 1)``; ``done`` is B before every step when it has ended, ``(n_steps + 1, K)``. ``stop`` as
    of :func:`runs`.
    """
    n_steps = len(gain)
    out = np.full((n_steps + 1, n_run + 1), -np.inf)
    best = np.full(group.shape, -np.inf)
    now, after = np.empty(group.shape[1]), np.empty(group.shape[1])
    for end in range(n_run, n_steps + 1):
        if stop[0]:
            break
        now[:] = done[end]
        out[end, 0] = now.max()
        for i in range(1, n_run + 1):
            s = end - i
            for k in states:
                out[end, i] = max(out[end, i], now[k] + gain[s, 0, k])
            # What is held before fits beside the retraining too, but for its first step, whose past is never asked for.
            _backward(gain[s], group, states, states, now, best, after)
            now, after = after, now
    return out


@compiled
def stretches(gain: Floats, group: Ints, states: Ints, longest: int, stop: Bools) -> Floats:
    """The most that can be earned over [s, s + i) with nothing but ``states``, ends free: by s and i.

    ``(n_steps + 1, longest + 1)``; ``stop`` as of :func:`runs`.
    """
    n_steps = len(gain)
    out = np.full((n_steps + 1, longest + 1), -np.inf)
    best = np.full(group.shape, -np.inf)
    now, after = np.empty(group.shape[1]), np.empty(group.shape[1])
    for start in range(n_steps + 1):
        if stop[0]:
            break
        out[start, 0] = 0.0
        for i in range(min(longest, n_steps - start)):
            s = start + i
            if i == 0:
                now[:] = -np.inf
                for k in states:
                    now[k] = gain[s, 0, k]
            else:
                _forward(gain[s], group, states, now, states, best, after)
                now, after = after, now
            for k in states:
                out[start, i + 1] = max(out[start, i + 1], now[k])
    return out


@compiled
def overlapping(
    n_steps: int,
    n_first: int,
    n_second: int,
    is_strict: bool,
    heads: Floats,
    both: Floats,
    tails_of_second: Floats,
    tails_of_first: Floats,
    to_beat: float,
) -> tuple[Floats, Ints]:
    """Bounds above ``to_beat`` of two retrainings of which the second starts while the first runs.

    Beside the symbols above:
        n_first: Steps that the first takes.
        n_second: Steps that the second takes.
        is_strict: Whether starts in the same step are left out (the other order has them).
        heads: ``runs`` of the first.
        both: ``stretches`` while both run.
        tails_of_second: ``tails`` of the second once the first has ended.
        tails_of_first: ``tails`` of the first once the second has ended.

    Returns:
        Bounds ``(n,)`` and starts ``(n, 2)``.
    """
    n_found, room = 0, 1024
    bounds, starts = np.empty(room), np.empty((room, 2), np.int32)
    for a in range(n_steps - n_first + 1):
        end = a + n_first
        for b in range(a + 1 if is_strict else a, min(end, n_steps - n_second + 1)):
            other = b + n_second
            bound = heads[a, b - a] + both[b, min(end, other) - b]
            bound += tails_of_second[other, other - end] if end <= other else tails_of_first[end, end - other]
            if bound <= to_beat:
                continue
            if n_found == room:
                room *= 2
                more, also = np.empty(room), np.empty((room, 2), np.int32)
                more[:n_found], also[:n_found] = bounds, starts
                bounds, starts = more, also
            bounds[n_found], starts[n_found, 0], starts[n_found, 1] = bound, a, b
            n_found += 1
    return bounds[:n_found], starts[:n_found]


@compiled
def _kept(gain: float, share: float) -> float:
    """What taking weights over leaves of a gain: all of a debt."""
    return min(gain, share * gain)


@compiled
def along(
    steady: Floats,
    loss: Floats,
    group: Ints,
    lists: Ints,
    list_bounds: Int64s,
    levels: Ints,
    shares: Floats,
    beside: Int64s,
    first: int,
    before: Floats,
    opening: Floats,
    table: Floats,
) -> Floats:
    """V after the steps from ``first`` on of a given course of retrainings, ``(K,)``.

    Beside the symbols above:
        steady: What each tenant earns by level, step and state, ``(M, n_levels, n_steps, K)``.
        loss: How much less where its multiset has changed, likewise.
        lists: State lists one after the other; list i is ``lists[list_bounds[i]:list_bounds[i + 1]]``.
        levels: The tenants' levels in each step from ``first`` on, ``(n, M)``.
        shares: What taking weights over leaves of gains above zero, likewise.
        beside: State list in each of those steps, ``(n,)``.
        before: V before ``first``; not looked at if that is 0.
        opening: What is earned in step 0.
        table: Out: V after each of the steps, ``(n, K)``; empty to save the work.
    """
    n_tenants = steady.shape[0]
    best = np.full(group.shape, -np.inf)
    gain = np.empty(group.shape)
    now, after = before.copy(), np.empty(len(before))
    last = lists[list_bounds[0] : list_bounds[1]]
    for i in range(len(levels)):
        s = first + i
        states = lists[list_bounds[beside[i]] : list_bounds[beside[i] + 1]]
        if s == 0:
            after[:] = -np.inf
            for k in states:
                after[k] = opening[k]
        else:
            for k in states:
                total = 0.0
                for m in range(n_tenants):
                    total += _kept(steady[m, levels[i, m], s, k], shares[i, m])
                gain[0, k] = total
            for m in range(n_tenants):
                bit = 1 << m
                for k in states:
                    lost = loss[m, levels[i, m], s, k]
                    if shares[i, m] != 1.0:
                        settled = steady[m, levels[i, m], s, k]
                        lost = _kept(settled, shares[i, m]) - _kept(settled - lost, shares[i, m])
                    for c in range(bit):
                        gain[bit + c, k] = gain[c, k] - lost
            _forward(gain, group, last, now, states, best, after)
        now, after = after, now
        last = states
        if len(table):
            table[i] = now
    return now
