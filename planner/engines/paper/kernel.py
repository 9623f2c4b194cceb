"""The compiled loop of the ``paper`` model over joint states: the best path beside given retrainings.

Symbols:

===========  ==========================================================================
K            joint states; every tenant has a multiset in each (``planner.counts.joint_states``)
C            subsets of tenants whose multiset changes, 2^M of them; bit m is tenant m, 0 is no change
gain         ``(n_steps, C, K)``: what state k earns in step s when exactly the subset has changed
group        ``(C, K)``: number of k among what agrees with it on the tenants outside the subset
V            ``(K,)``: best value of the steps before s, by the state held in step s − 1; −inf: impossible
states       the states that fit beside what retrainings hold, ascending
===========  ==========================================================================

A step finds the best predecessor of every state through the best of each group: O(K · 2^M) instead
of O(K²). Before step 0 nothing is held; ``opening`` ``(K,)`` is then what a state earns in it.
"""

from __future__ import annotations

import numpy as np

from executor.compiled import compiled
from planner.arrays import Floats, Int64s, Ints


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
    opening: Floats,
    table: Floats,
) -> Floats:
    """V after all steps of a given course of retrainings, ``(K,)``.

    Beside the symbols above:
        steady: What each tenant earns by level, step and state, ``(M, n_levels, n_steps, K)``.
        loss: How much less where its multiset has changed, likewise.
        lists: State lists one after the other; list i is ``lists[list_bounds[i]:list_bounds[i + 1]]``.
        levels: The tenants' levels in each step, ``(n, M)``.
        shares: What taking weights over leaves of gains above zero, likewise.
        beside: State list in each step, ``(n,)``.
        opening: What is earned in step 0.
        table: Out: V after each of the steps, ``(n, K)``; empty to save the work.
    """
    n_tenants = steady.shape[0]
    best = np.full(group.shape, -np.inf)
    gain = np.empty(group.shape)
    now, after = np.full(len(opening), -np.inf), np.empty(len(opening))
    last = lists[list_bounds[0] : list_bounds[1]]
    for s in range(len(levels)):
        states = lists[list_bounds[beside[s]] : list_bounds[beside[s] + 1]]
        if s == 0:
            after[:] = -np.inf
            for k in states:
                after[k] = opening[k]
        else:
            for k in states:
                total = 0.0
                for m in range(n_tenants):
                    total += _kept(steady[m, levels[s, m], s, k], shares[s, m])
                gain[0, k] = total
            for m in range(n_tenants):
                bit = 1 << m
                for k in states:
                    lost = loss[m, levels[s, m], s, k]
                    if shares[s, m] != 1.0:
                        settled = steady[m, levels[s, m], s, k]
                        lost = _kept(settled, shares[s, m]) - _kept(settled - lost, shares[s, m])
                    for c in range(bit):
                        gain[bit + c, k] = gain[c, k] - lost
            _forward(gain, group, last, now, states, best, after)
        now, after = after, now
        last = states
        if len(table):
            table[s] = now
    return now
