"""Compiled sweeps that lower the bound of ``exact_status``: paths and schedules are made to agree, step by step.

For every step and actor, the best path and the best schedule are known for each status that the actor
may have there. Where they differ, a share of the difference is moved from one to the other; neither's
best can rise by more than the other's falls, so no sweep raises the bound. Going forth, the paths
up to a step have just been made anew and those after it are from the way back before; and the other
way round.

What cannot be part of a better plan than the known one is left out on the way: vectors in a step, and
schedules.

Source: sequential reweighted message passing (Kolmogorov, "Convergent tree-reweighted message passing for
energy minimization", 2006) with two trees: the chain of steps, and each actor's choice of a schedule.

Symbols as in ``exact_status_kernel``; besides:

===========  ==========================================================================
A            actors: the tenants that may retrain
X            statuses of an actor: running by profile, done by level, waiting (the last)
columns      the status of each actor in each vector, ``(A, Σ)``
way          a profile and an option of an actor, the actors' one after the other
===========  ==========================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.engines.exact_kernel import Floats, compiled
from planner.engines.exact_status_kernel import Blocks, pay, scratch_of, step, step_back

Int64s = NDArray[np.int64]


class Schedules(NamedTuple):
    """Every actor's schedules and what they are paid.

    Attributes:
        duration: Of each way in steps, ``(n_ways,)``.
        running: The status while it runs.
        done: The status from its end on.
        bounds: The ways of actor a are ``bounds[a]`` … ``bounds[a + 1]``.
        worth: By way and start; −inf where it is left out, ``(n_ways, n_steps)``.
        left: Starts that are left of each way lie within ``left[way, 0]`` … ``left[way, 1]``, ``(n_ways, 2)``.
        idle: What not retraining is paid; −inf where it is left out, ``(A,)``.
    """

    duration: Int64s
    running: Int64s
    done: Int64s
    bounds: Int64s
    worth: Floats
    left: Int64s
    idle: Floats


class Sweep(NamedTuple):
    """What a sweep works on; it changes what schedules are paid, and the last three.

    Attributes:
        blocks: What paths go along.
        columns: ``(A, Σ)``.
        n_statuses: X.
        schedules: Of all actors.
        prices: What a path pays for a vector, which is what schedules are paid for its statuses; ∞ where it is
            left out, ``(n_steps, Σ)``.
        forth: Best of the steps up to each, by entry, ``(n_steps, n_entries)``.
        back: Best of the steps after each, likewise.
    """

    blocks: Blocks
    columns: Int64s
    n_statuses: int
    schedules: Schedules
    prices: Floats
    forth: Floats
    back: Floats


@compiled
def _vector_tops(blocks: Blocks, forth: Floats, back: Floats, out: Floats) -> None:
    """The best path through each vector, ``(Σ,)``."""
    out[:] = -np.inf
    for block in range(len(blocks.members) - 1):
        first = blocks.members[block]
        n = blocks.members[block + 1] - first
        for j in range(blocks.n_groups[block, 0]):
            at = blocks.entries[block] + j * n
            for i in range(n):
                out[first + i] = max(out[first + i], forth[at + i] + back[at + i])


@compiled
def _schedule_tops(schedules: Schedules, a: int, s: int, out: Floats) -> None:
    """The best schedule of an actor by its status in step s, ``(X,)``."""
    waiting = len(out) - 1
    out[:] = -np.inf
    out[waiting] = schedules.idle[a]
    for way in range(schedules.bounds[a], schedules.bounds[a + 1]):
        worth, (first, ended, begun, last) = schedules.worth[way], _parts(schedules, way, s)
        for start in range(first, ended):
            out[schedules.done[way]] = max(out[schedules.done[way]], worth[start])
        for start in range(ended, begun):
            out[schedules.running[way]] = max(out[schedules.running[way]], worth[start])
        for start in range(begun, last):
            out[waiting] = max(out[waiting], worth[start])


@compiled
def _parts(schedules: Schedules, way: int, s: int) -> tuple[int, int, int, int]:
    """Borders between the starts of a way that have ended by step s, run in it, and are to come."""
    first, last = schedules.left[way]
    ended = min(max(first, s - schedules.duration[way] + 1), last)
    return first, ended, min(max(ended, s + 1), last), last


@compiled
def _pay_schedules(schedules: Schedules, a: int, s: int, more: Floats) -> None:
    """Pay the schedules of an actor more for their status in step s, ``(X,)``."""
    schedules.idle[a] += more[-1]
    for way in range(schedules.bounds[a], schedules.bounds[a + 1]):
        worth, (first, ended, begun, last) = schedules.worth[way], _parts(schedules, way, s)
        worth[first:ended] += more[schedules.done[way]]
        worth[ended:begun] += more[schedules.running[way]]
        worth[begun:last] += more[-1]


@compiled
def _agree(sweep: Sweep, s: int, share: float, tops: Floats, more: Floats) -> None:
    """Move a share of what paths and schedules differ by in step s.

    What is in ``tops``, the best path through each vector, is lowered by what they pay more: ``more``, ``(Σ,)``.
    """
    columns, n_statuses = sweep.columns, sweep.n_statuses
    n_actors, n_vectors = columns.shape
    by_path, by_schedule = np.empty(n_statuses), np.empty(n_statuses)
    charged, granted = np.zeros(n_statuses), np.zeros(n_statuses)
    more[:] = 0.0
    for turn in range(n_actors):
        # Who comes first gets most of what there is to move.
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
        _pay_schedules(sweep.schedules, a, s, granted)
        for i in range(n_vectors):
            if tops[i] > -np.inf:
                more[i] += charged[columns[a, i]]
                tops[i] -= charged[columns[a, i]]


@compiled
def _leave_out(sweep: Sweep, s: int, floor: float, tops: Floats, more: Floats) -> None:
    """Leave out what is below ``floor`` at best: vectors in step s, by an infinite price, and schedules."""
    schedules, columns = sweep.schedules, sweep.columns
    n_actors, n_vectors = columns.shape
    by_schedule = np.empty((n_actors, sweep.n_statuses))
    total = tops.max()
    for a in range(n_actors):
        _schedule_tops(schedules, a, s, by_schedule[a])
        total += by_schedule[a].max()
    for i in range(n_vectors):
        bound = tops[i]
        for a in range(n_actors):
            bound += by_schedule[a, columns[a, i]]
        if bound < floor:
            more[i] = np.inf
    for a in range(n_actors):
        least = floor - (total - by_schedule[a].max())
        if schedules.idle[a] < least:
            schedules.idle[a] = -np.inf
        for way in range(schedules.bounds[a], schedules.bounds[a + 1]):
            _leave_out_starts(schedules.worth[way], schedules.left[way], least)


@compiled
def _leave_out_starts(worth: Floats, left: Int64s, least: float) -> None:
    for start in range(left[0], left[1]):
        if worth[start] < least:
            worth[start] = -np.inf
    while left[0] < left[1] and worth[left[0]] == -np.inf:
        left[0] += 1
    while left[0] < left[1] and worth[left[1] - 1] == -np.inf:
        left[1] -= 1


@compiled
def _visit(sweep: Sweep, s: int, share: float, floor: float, tops: Floats, more: Floats) -> None:
    blocks = sweep.blocks
    _vector_tops(blocks, sweep.forth[s], sweep.back[s], tops)
    if tops.max() == -np.inf:
        return
    _agree(sweep, s, share, tops, more)
    _leave_out(sweep, s, floor, tops, more)
    sweep.prices[s] += more
    pay(blocks, more, sweep.forth[s])


@compiled
def sweep_forth(sweep: Sweep, share: float, floor: float) -> None:
    """From the first step to the last."""
    blocks, prices, forth = sweep.blocks, sweep.prices, sweep.forth
    scratch = scratch_of(blocks)
    tops, more = np.empty(prices.shape[1]), np.empty(prices.shape[1])
    for s in range(len(prices)):
        if s == 0:
            forth[0] = blocks.opening
            pay(blocks, prices[0], forth[0])
        else:
            step(blocks, s, prices[s - 1 :], forth[s - 1], scratch, forth[s])
        _visit(sweep, s, share, floor, tops, more)


@compiled
def sweep_back(sweep: Sweep, share: float, floor: float) -> float:
    """From the last step to the first, after ``sweep_forth``; what the best path earns net of prices then."""
    blocks, prices, back = sweep.blocks, sweep.prices, sweep.back
    scratch = scratch_of(blocks)
    tops, more = np.empty(prices.shape[1]), np.empty(prices.shape[1])
    back[-1] = 0.0
    for s in range(len(prices) - 1, -1, -1):
        if s + 1 < len(prices):
            step_back(blocks, s + 1, prices[s:], back[s + 1], scratch, back[s])
        _visit(sweep, s, share, floor, tops, more)
    return float((sweep.forth[0] + back[0]).max())
