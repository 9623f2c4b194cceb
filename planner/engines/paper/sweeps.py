"""Compiled sweeps that lower the bound of ``statuses``: paths and schedules are made to agree, step by step.

A path goes over (step, status of every tenant, joint state). A tenant that may retrain waits, runs on a
profile, or is done at a level; a run may take any number of steps, and what durations cost is in the prices
of statuses.

===========  ==========================================================================
Σ            status vectors: those whose retrainings leave room for some layout, in the
             order of their state lists
block        the vectors of one state list, with the states in it: ``(states, vectors)``
entry        a vector with a state: a place in a block; blocks lie one after the other
A            actors: the tenants that may retrain
X            statuses of an actor: running by profile, done by level, waiting (the last)
columns      the status of each actor in each vector, ``(A, Σ)``
way          a profile and an option of an actor, the actors' one after the other
===========  ==========================================================================

Other symbols as in ``kernel``.

*Sweeps.* For every step and actor, the best path and the best schedule are known for each status that the actor
may have there. Where they differ, a share of the difference is moved from one to the other; neither's
best can rise by more than the other's falls, so no sweep raises the bound. On the way forth, the paths up to a step
are new and those after it are from the last way back. On the way back it is the other way round. A status that no path
has in a step is taken from the schedules, and one that no schedule has from the paths.

*Steps.* The vectors of a block are worked on side by side, a row at a time, which the compiler turns into vector
instructions. Let best[c][g] be the best value when exactly the tenants of subset c change, by group g of states
that agree on the other tenants. With t the highest tenant of c:

    up:    best[c][g] = max over the groups h of c − t within g of best[c − t][h]
    down:  best[c − t][h] = max(best[c − t][h], best[c][g]), for h within g

The loss of t is taken off on one of the two ways. A state's best over all subsets takes about as many rows as
there are groups.

All that is compiled together is in this one file: what is kept on disk is renewed when the file changes.

Source: sequential reweighted message passing (Kolmogorov, "Convergent tree-reweighted message passing for
energy minimization", 2006) with two trees: the chain of steps, and each actor's choice of a schedule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from executor.compiled import compiled
from planner.arrays import Bools, Floats, Int64s, Ints


class Moves(NamedTuple):
    """Changes of statuses from one vector to another, while a state is held.

    Attributes:
        vectors: The vector after each and that before, ``(n, 2)``.
        entries: Their entries, one move after the other, likewise.
        bounds: Those of move i are ``entries[bounds[i]:bounds[i + 1]]``.
    """

    vectors: Int64s
    entries: Int64s
    bounds: Int64s


class Blocks(NamedTuple):
    """What the path goes along; nothing of it depends on prices.

    Attributes:
        members: The vectors of block i are ``members[i]`` … ``members[i + 1]``.
        entries: Its entries begin at ``entries[i]``.
        vector: Of each entry, ``(n_entries,)``.
        raised: By block and subset, one after the other: for each group of the subset without its
            highest tenant, the group of the subset that it belongs to.
        owned: Likewise, what that tenant holds in the group, by its number among what it may hold in any state.
        raised_bounds: Those of block i and subset c begin at ``raised_bounds[i, c]``, ``(n_blocks, C + 1)``.
        n_groups: Groups of agreeing states; of the empty subset each state is one, ``(n_blocks, C)``.
        levels: Of each vector by tenant, ``(M, Σ)``.
        ends: Of one retraining each; a vector's own come after those into it.
        starts: Of any number of retrainings each.
        earned: What each entry earns in each step where nothing changes, ``(n_steps, n_entries)``.
        opening: What it earns in step 0, ``(n_entries,)``.
        lost: How much less a changed multiset earns by tenant, level and number, ``(n_steps, M, n_levels, n_held)``.
    """

    members: Int64s
    entries: Int64s
    vector: Int64s
    raised: Ints
    owned: Ints
    raised_bounds: Int64s
    n_groups: Ints
    levels: Ints
    ends: Moves
    starts: Moves
    earned: Floats
    opening: Floats
    lost: Floats


class Schedules(NamedTuple):
    """Every actor's schedules and what they are paid.

    Attributes:
        duration: Of each way in steps, ``(n_ways,)``.
        running: The status while it runs.
        done: The status from its end on.
        bounds: The ways of actor a are ``bounds[a]`` … ``bounds[a + 1]``.
        worth: By way and start; −inf where none is possible, ``(n_ways, n_steps + 1)``. What starts at the window's
            end waits throughout: that is not to retrain, a way of its own.
    """

    duration: Int64s
    running: Int64s
    done: Int64s
    bounds: Int64s
    worth: Floats


class Sweep(NamedTuple):
    """What a sweep works on; it changes what schedules are paid, and the last four.

    Attributes:
        blocks: What paths go along.
        columns: ``(A, Σ)``.
        schedules: Of all actors.
        multipliers: What schedules are paid for each status that some path and some schedule have, ``(n_steps, A, X)``.
        prices: What a path pays for a vector, the sum of its statuses'; ∞ where no schedule has one of them,
            ``(n_steps, Σ)``.
        forth: Best of the steps up to each, by entry, ``(n_steps, n_entries)``.
        back: Best of the steps after each, likewise.
    """

    blocks: Blocks
    columns: Int64s
    schedules: Schedules
    multipliers: Floats
    prices: Floats
    forth: Floats
    back: Floats


Scratch = tuple[Floats, Floats, Floats]
"""What :func:`_scratch_of` makes."""


@compiled
def _scratch_of(blocks: Blocks) -> Scratch:
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
def _raise(best: Floats, c: int, to: int, other: int, source: int, n: int, less: Floats) -> None:
    for i in range(n):
        best[c, to, i] = max(best[c, to, i], best[other, source, i] - less[i])


@compiled
def _change(blocks: Blocks, block: int, n: int, losses: Floats, is_back: bool, best: Floats) -> None:
    """Turn ``best[0]``, ``(states, ≥ n)``, from values before the step's changes into those after; or back."""
    raised, owned, bounds = blocks.raised, blocks.owned, blocks.raised_bounds[block]
    n_groups, n_subsets = blocks.n_groups[block], blocks.n_groups.shape[1]
    nothing = np.zeros(n)
    for c in range(1, n_subsets):
        top = _highest(c)
        below = c ^ (1 << top)
        for g in range(n_groups[c]):
            for i in range(n):
                best[c, g, i] = -np.inf
        for g in range(n_groups[below]):
            at = bounds[c] + g
            _raise(best, c, raised[at], below, g, n, losses[top, owned[at]] if is_back else nothing)
    for c in range(n_subsets - 1, 0, -1):
        top = _highest(c)
        below = c ^ (1 << top)
        for g in range(n_groups[below]):
            at = bounds[c] + g
            _raise(best, below, g, c, raised[at], n, nothing if is_back else losses[top, owned[at]])


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
def _pay(blocks: Blocks, prices: Floats, values: Floats) -> None:
    """Take each vector's price, ``(Σ,)``, off its entries."""
    for entry in range(len(values)):
        values[entry] -= prices[blocks.vector[entry]]


@compiled
def _follow(moves: Moves, e: int, is_back: bool, values: Floats, out: Floats) -> None:
    """Raise what is at the end of a move, its beginning where it goes back, to the value at its other side."""
    to, source = (1, 0) if is_back else (0, 1)
    for i in range(moves.bounds[e], moves.bounds[e + 1]):
        at = moves.entries[i, to]
        out[at] = max(out[at], values[moves.entries[i, source]])


@compiled
def _step(blocks: Blocks, s: int, prices: Floats, before: Floats, scratch: Scratch, out: Floats) -> None:
    """The values of step s, its prices paid, from those of the step before; −inf where nothing leads.

    ``prices`` are those of the steps from s − 1 on, ``(≥ 2, Σ)``; ∞ where a vector is not possible.
    """
    (earned, best, losses), ends, starts = scratch, blocks.ends.vectors, blocks.starts.vectors
    is_live, is_possible = np.isfinite(prices[0]), np.isfinite(prices[1])
    earned[:] = before
    for e in range(len(ends)):
        if is_live[ends[e, 1]]:
            is_live[ends[e, 0]] = True
            _follow(blocks.ends, e, False, earned, earned)
    _all_changed(blocks, s, is_live, False, earned, best, losses)
    earned += blocks.earned[s]
    out[:] = earned
    # Starting changes no level, so that what is earned on the way does not depend on who starts.
    for e in range(len(starts)):
        if is_possible[starts[e, 0]] and is_live[starts[e, 1]]:
            _follow(blocks.starts, e, False, earned, out)
    _pay(blocks, prices[1], out)


@compiled
def _step_back(blocks: Blocks, s: int, prices: Floats, after: Floats, scratch: Scratch, out: Floats) -> None:
    """The best of the steps from s on by what is held in the step before, from ``after``, that of the steps after s.

    ``prices`` as in ``step``; −inf where nothing leads on.
    """
    (earned, best, losses), ends, starts = scratch, blocks.ends.vectors, blocks.starts.vectors
    is_possible = np.isfinite(prices[1])
    is_live = is_possible.copy()  # what leads to a possible one joins them
    earned[:] = after
    earned += blocks.earned[s]
    _pay(blocks, prices[1], earned)
    out[:] = earned
    for e in range(len(starts)):
        if is_possible[starts[e, 0]]:
            is_live[starts[e, 1]] = True
            _follow(blocks.starts, e, True, earned, out)
    _all_changed(blocks, s, is_live, True, out, best, losses)
    for e in range(len(ends) - 1, -1, -1):
        if is_live[ends[e, 0]]:
            is_live[ends[e, 1]] = True
            _follow(blocks.ends, e, True, out, out)


@compiled
def _vector_tops(blocks: Blocks, forth: Floats, back: Floats, out: Floats) -> None:
    """The best path through each vector, ``(Σ,)``."""
    out[:] = -np.inf
    for entry in range(len(forth)):
        v = blocks.vector[entry]
        out[v] = max(out[v], forth[entry] + back[entry])


@compiled
def _schedule_tops(schedules: Schedules, a: int, s: int, out: Floats) -> None:
    """The best schedule of an actor by its status in step s, ``(X,)``."""
    out[:] = -np.inf
    for way in range(schedules.bounds[a], schedules.bounds[a + 1]):
        worth, running, done = schedules.worth[way], schedules.running[way], schedules.done[way]
        begun, ended = s + 1, max(0, s + 1 - schedules.duration[way])
        for start in range(ended):
            out[done] = max(out[done], worth[start])
        for start in range(ended, begun):
            out[running] = max(out[running], worth[start])
        for start in range(begun, len(worth)):
            out[-1] = max(out[-1], worth[start])


@compiled
def pay_schedules(schedules: Schedules, a: int, s: int, more: Floats) -> None:
    """Pay the schedules of an actor more for their status in step s, ``(X,)``."""
    for way in range(schedules.bounds[a], schedules.bounds[a + 1]):
        worth, begun, ended = schedules.worth[way], s + 1, max(0, s + 1 - schedules.duration[way])
        worth[:ended] += more[schedules.done[way]]
        worth[ended:begun] += more[schedules.running[way]]
        worth[begun:] += more[-1]


@compiled
def _agree(sweep: Sweep, s: int, share: float, tops: Floats, more: Floats) -> None:
    """Move a share of what paths and schedules differ by in step s.

    What is in ``tops``, the best path through each vector, is lowered by what they pay more: ``more``, ``(Σ,)``.
    """
    columns, n_statuses = sweep.columns, sweep.multipliers.shape[2]
    n_actors, n_vectors = columns.shape
    by_path, by_schedule = np.empty(n_statuses), np.empty(n_statuses)
    charged, granted = np.zeros(n_statuses), np.zeros(n_statuses)
    more[:] = 0.0
    for turn in range(n_actors):
        # The first actor gets most of what there is to move.
        a = turn if s % 2 else n_actors - 1 - turn
        by_path[:] = -np.inf
        for i in range(n_vectors):
            by_path[columns[a, i]] = max(by_path[columns[a, i]], tops[i])
        _schedule_tops(sweep.schedules, a, s, by_schedule)
        for x in range(n_statuses):
            charged[x] = granted[x] = 0.0
            if by_path[x] == -np.inf:
                granted[x] = -np.inf
            elif by_schedule[x] == -np.inf:
                charged[x] = np.inf
            else:
                charged[x] = granted[x] = share * (by_path[x] - by_schedule[x])
                sweep.multipliers[s, a, x] += granted[x]
        pay_schedules(sweep.schedules, a, s, granted)
        for i in range(n_vectors):
            if tops[i] > -np.inf:
                more[i] += charged[columns[a, i]]
                tops[i] -= charged[columns[a, i]]


@compiled
def _visit(sweep: Sweep, s: int, share: float, tops: Floats, more: Floats) -> None:
    blocks = sweep.blocks
    _vector_tops(blocks, sweep.forth[s], sweep.back[s], tops)
    if tops.max() == -np.inf:
        return
    _agree(sweep, s, share, tops, more)
    sweep.prices[s] += more
    _pay(blocks, more, sweep.forth[s])


@compiled
def sweep_forth(sweep: Sweep, share: float) -> None:
    """From the first step to the last."""
    blocks, prices, forth = sweep.blocks, sweep.prices, sweep.forth
    scratch = _scratch_of(blocks)
    tops, more = np.empty(prices.shape[1]), np.empty(prices.shape[1])
    for s in range(len(prices)):
        if s == 0:
            forth[0] = blocks.opening
            _pay(blocks, prices[0], forth[0])
        else:
            _step(blocks, s, prices[s - 1 :], forth[s - 1], scratch, forth[s])
        _visit(sweep, s, share, tops, more)


@compiled
def sweep_back(sweep: Sweep, share: float) -> float:
    """From the last step to the first, after ``sweep_forth``; what the best path earns net of prices then."""
    blocks, prices, back = sweep.blocks, sweep.prices, sweep.back
    scratch = _scratch_of(blocks)
    tops, more = np.empty(prices.shape[1]), np.empty(prices.shape[1])
    back[-1] = 0.0
    for s in range(len(prices) - 1, -1, -1):
        if s + 1 < len(prices):
            _step_back(blocks, s + 1, prices[s:], back[s + 1], scratch, back[s])
        _visit(sweep, s, share, tops, more)
    return float((sweep.forth[0] + back[0]).max())
