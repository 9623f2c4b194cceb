"""What the compiled sweeps of ``exact_sweep_kernel`` work on, as arrays.

===========  ==========================================================================
Σ            status vectors: those whose retrainings leave somebody's layout room, in the
             order of their state lists
block        the vectors of one state list, with the states in it: ``(states, vectors)``
entry        a vector with a state: a place in a block; blocks lie one after the other
A            actors: the tenants that may retrain
X            statuses of an actor: running by profile, done by level, waiting (the last)
columns      the status of each actor in each vector, ``(A, Σ)``
way          a profile and an option of an actor, the actors' one after the other
===========  ==========================================================================

Symbols else as in ``exact_kernel``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.engines.arrays import Floats, Ints

Int64s = NDArray[np.int64]


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
