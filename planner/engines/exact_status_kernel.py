"""The compiled steps of paths over (status of every tenant, joint state) of the ``paper`` model, forth and back.

A tenant that may retrain waits, runs on a profile, or is done at a level. Here a run may take any
number of steps; what durations cost is in the prices of statuses, see ``exact_status``. Symbols as in
``exact_kernel``; besides:

===========  ==========================================================================
Σ            status vectors: those whose retrainings leave somebody's layout room, in the
             order of their state lists
block        the vectors of one state list, with the states in it: ``(states, vectors)``
entry        a vector with a state: a place in a block; blocks lie one after the other
===========  ==========================================================================

What differs from vector to vector of a block is worked on side by side, a row at a time, which the
compiler turns into vector instructions.

Whoever changes in a step, the best of the groups of a subset of tenants comes from those of the subset
without its highest tenant; and from there on to the states again, from the larger subset to the
smaller, losses taken off on one of the two ways: a state's best over all subsets in about as many rows
as there are groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.engines.exact_kernel import Floats, Ints, compiled

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Blocks(NamedTuple):
    """What the path goes along; nothing of it depends on prices.

    Attributes:
        members: The vectors of block i are ``members[i]`` … ``members[i + 1]``.
        entries: Its entries begin at ``entries[i]``.
        raised: By block and subset, one after the other: for each group of the subset without its
            highest tenant, the group of the subset that it belongs to.
        owned: Likewise, what that tenant holds in the group, by its number among what it may hold in any state.
        raised_bounds: Those of block i and subset c begin at ``raised_bounds[i, c]``, ``(n_blocks, C + 1)``.
        n_groups: Groups of agreeing states; of the empty subset each state is one, ``(n_blocks, C)``.
        levels: Of each vector by tenant, ``(M, Σ)``.
        ends: Of a retraining: the vector after it and that before; a vector's own come after those into it, ``(n, 2)``.
        starts: Of any number of retrainings, likewise.
        end_entries: The entries after and before an end, one end after the other, ``(n, 2)``.
        end_bounds: Those of end i are ``end_entries[end_bounds[i]:end_bounds[i + 1]]``.
        start_entries: Likewise of starts.
        start_bounds: Likewise.
        earned: What each entry earns in each step where nothing changes, ``(n_steps, n_entries)``.
        opening: What it earns in step 0, ``(n_entries,)``.
        lost: How much less a changed multiset earns by tenant, level and number, ``(n_steps, M, n_levels, n_held)``.
    """

    members: Int64s
    entries: Int64s
    raised: Ints
    owned: Ints
    raised_bounds: Int64s
    n_groups: Ints
    levels: Ints
    ends: Int64s
    starts: Int64s
    end_entries: Int64s
    end_bounds: Int64s
    start_entries: Int64s
    start_bounds: Int64s
    earned: Floats
    opening: Floats
    lost: Floats


@compiled
def scratch_of(blocks: Blocks) -> tuple[Floats, Floats, Floats]:
    """Scratch for the steps: values, a block's groups by subset, and losses."""
    n_states = n_most = 0
    for block in range(len(blocks.members) - 1):
        n_states = max(n_states, blocks.n_groups[block, 0])
        n_most = max(n_most, blocks.members[block + 1] - blocks.members[block])
    _, n_tenants, _, n_held = blocks.lost.shape
    return (
        np.empty(blocks.earned.shape[1]),
        np.empty((blocks.n_groups.shape[1], n_states, n_most)),
        np.empty((n_tenants, n_held, n_most)),
    )


@compiled
def _losses(blocks: Blocks, s: int, live: Int64s, out: Floats) -> None:
    """What a change costs in step s by tenant, what it holds then, and place among ``live``, ``(M, n_held, ≥ n)``."""
    lost, levels = blocks.lost[s], blocks.levels
    for m in range(lost.shape[0]):
        for h in range(lost.shape[2]):
            for i in range(len(live)):
                out[m, h, i] = lost[m, levels[m, live[i]], h]


@compiled
def _highest(subset: int) -> int:
    """The highest tenant of a subset."""
    top = 0
    while subset >> (top + 1):
        top += 1
    return top


@compiled
def _raise(best: Floats, c: int, to: int, other: int, source: int, n: int) -> None:
    for i in range(n):
        best[c, to, i] = max(best[c, to, i], best[other, source, i])


@compiled
def _raise_less(best: Floats, c: int, to: int, other: int, source: int, n: int, less: Floats) -> None:
    for i in range(n):
        best[c, to, i] = max(best[c, to, i], best[other, source, i] - less[i])


@compiled
def _change(blocks: Blocks, block: int, n: int, losses: Floats, is_back: bool, best: Floats) -> None:
    """In ``best[0]``, ``(states, ≥ n)``: from what is held to what is held once anybody has changed; or back."""
    raised, owned, bounds = blocks.raised, blocks.owned, blocks.raised_bounds[block]
    n_groups, n_subsets = blocks.n_groups[block], blocks.n_groups.shape[1]
    for c in range(1, n_subsets):
        top = _highest(c)
        below = c ^ (1 << top)
        for g in range(n_groups[c]):
            for i in range(n):
                best[c, g, i] = -np.inf
        for g in range(n_groups[below]):
            at = bounds[c] + g
            if is_back:
                _raise_less(best, c, raised[at], below, g, n, losses[top, owned[at]])
            else:
                _raise(best, c, raised[at], below, g, n)
    for c in range(n_subsets - 1, 0, -1):
        top = _highest(c)
        below = c ^ (1 << top)
        for g in range(n_groups[below]):
            at = bounds[c] + g
            if is_back:
                _raise(best, below, g, c, raised[at], n)
            else:
                _raise_less(best, below, g, c, raised[at], n, losses[top, owned[at]])


@compiled
def _all_changed(
    blocks: Blocks, s: int, is_live: Bools, is_back: bool, values: Floats, best: Floats, losses: Floats
) -> None:
    """``_change`` in step s for all vectors that are live; ``values`` of the others are −inf and stay so."""
    for block in range(len(blocks.members) - 1):
        first = blocks.members[block]
        n = blocks.members[block + 1] - first
        live = np.flatnonzero(is_live[first : first + n])
        if not len(live):
            continue
        _losses(blocks, s, live + first, losses)
        for j in range(blocks.n_groups[block, 0]):
            at = blocks.entries[block] + j * n
            for i in range(len(live)):
                best[0, j, i] = values[at + live[i]]
        _change(blocks, block, len(live), losses, is_back, best)
        for j in range(blocks.n_groups[block, 0]):
            at = blocks.entries[block] + j * n
            for i in range(len(live)):
                values[at + live[i]] = best[0, j, i]


@compiled
def pay(blocks: Blocks, prices: Floats, values: Floats) -> None:
    """Take each vector's price, ``(Σ,)``, off its entries."""
    for block in range(len(blocks.members) - 1):
        first, begin = blocks.members[block], blocks.entries[block]
        n = blocks.members[block + 1] - first
        for j in range(blocks.n_groups[block, 0]):
            for i in range(n):
                values[begin + j * n + i] -= prices[first + i]


@compiled
def step(
    blocks: Blocks, s: int, prices: Floats, before: Floats, scratch: tuple[Floats, Floats, Floats], out: Floats
) -> None:
    """The values of step s, its prices paid, from those of the step before; −inf where nothing leads.

    ``prices`` are those of the steps from s − 1 on, ``(≥ 2, Σ)``; ∞ where a vector is not possible.
    """
    earned, best, losses = scratch
    ends, starts, end_entries, start_entries = blocks.ends, blocks.starts, blocks.end_entries, blocks.start_entries
    is_live, is_possible = np.isfinite(prices[0]), np.isfinite(prices[1])
    earned[:] = before
    for e in range(len(ends)):
        if is_live[ends[e, 1]]:
            is_live[ends[e, 0]] = True
            for i in range(blocks.end_bounds[e], blocks.end_bounds[e + 1]):
                to, source = end_entries[i]
                earned[to] = max(earned[to], earned[source])
    _all_changed(blocks, s, is_live, False, earned, best, losses)
    earned += blocks.earned[s]
    out[:] = earned
    # Starting changes no level, so that what is earned on the way does not depend on who starts.
    for e in range(len(starts)):
        if is_possible[starts[e, 0]] and is_live[starts[e, 1]]:
            for i in range(blocks.start_bounds[e], blocks.start_bounds[e + 1]):
                to, source = start_entries[i]
                out[to] = max(out[to], earned[source])
    pay(blocks, prices[1], out)


@compiled
def step_back(
    blocks: Blocks, s: int, prices: Floats, after: Floats, scratch: tuple[Floats, Floats, Floats], out: Floats
) -> None:
    """The best of the steps from s on by what is held in the step before, from ``after``, that of the steps after s.

    ``prices`` as in ``step``; −inf where nothing leads on.
    """
    earned, best, losses = scratch
    ends, starts, end_entries, start_entries = blocks.ends, blocks.starts, blocks.end_entries, blocks.start_entries
    is_possible = np.isfinite(prices[1])
    is_live = is_possible.copy()  # what leads to a possible one joins them
    earned[:] = after
    earned += blocks.earned[s]
    pay(blocks, prices[1], earned)
    out[:] = earned
    for e in range(len(starts)):
        if is_possible[starts[e, 0]]:
            is_live[starts[e, 1]] = True
            for i in range(blocks.start_bounds[e], blocks.start_bounds[e + 1]):
                to, source = start_entries[i]
                out[source] = max(out[source], earned[to])
    _all_changed(blocks, s, is_live, True, out, best, losses)
    for e in range(len(ends) - 1, -1, -1):
        if is_live[ends[e, 0]]:
            is_live[ends[e, 1]] = True
            for i in range(blocks.end_bounds[e], blocks.end_bounds[e + 1]):
                to, source = end_entries[i]
                out[source] = max(out[source], out[to])
