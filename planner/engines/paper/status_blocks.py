"""``paper``: the arrays along which ``exact_sweep_kernel`` goes, made once for a problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.engines.arrays import Floats, Ints
from planner.engines.paper.states import Joint
from planner.engines.paper.status_vectors import StatusVectors
from planner.engines.paper.sweep_arrays import Blocks

_Int64s = NDArray[np.int64]


def blocks_of(joint: Joint, vectors: StatusVectors) -> Blocks:
    """The blocks of a problem's status vectors: one for each state list that some vector is beside."""
    numbers, members = np.unique(vectors.beside, return_index=True)
    members = np.append(members, len(vectors.beside))
    lists, bounds = joint.lists()
    states = [lists[bounds[number] : bounds[number + 1]] for number in numbers]
    entries = np.cumsum([0, *(len(own) * n for own, n in zip(states, np.diff(members), strict=True))])
    entry = _entry_table(joint, states, members, entries)
    ends, starts = (np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in (vectors.ends(), vectors.starts()))
    end_entries, end_bounds = _entry_pairs(entry, ends)
    start_entries, start_bounds = _entry_pairs(entry, starts)
    held = np.array([np.unique(own, return_inverse=True)[1] for own in joint.states.T], dtype=np.int32)
    raised, owned, raised_bounds, n_groups = _groups(joint, states, held)
    opening = np.empty(entries[-1])
    vector, state = np.nonzero(entry >= 0)
    opening[entry[vector, state]] = joint.opening[state]
    return Blocks(
        members=members.astype(np.int64),
        entries=entries.astype(np.int64),
        raised=raised,
        owned=owned,
        raised_bounds=raised_bounds,
        n_groups=n_groups,
        levels=vectors.levels,
        ends=ends,
        starts=starts,
        end_entries=end_entries,
        end_bounds=end_bounds,
        start_entries=start_entries,
        start_bounds=start_bounds,
        earned=_earned(joint, vectors.levels, entry),
        opening=opening,
        lost=_lost(joint, held),
    )


def _entry_table(joint: Joint, states: Sequence[Ints], members: _Int64s, entries: _Int64s) -> _Int64s:
    """The entry of each vector with each state; −1 where that does not fit, ``(Σ, K)``."""
    table = np.full((members[-1], joint.n_states), -1, dtype=np.int64)
    for block, own in enumerate(states):
        n = members[block + 1] - members[block]
        places = entries[block] + np.arange(len(own)) * n
        table[members[block] : members[block + 1], own] = places + np.arange(n)[:, None]
    return table


def _entry_pairs(entry: _Int64s, pairs: _Int64s) -> tuple[_Int64s, _Int64s]:
    """For each pair of vectors the pairs of their entries with the same state, and where each pair's begin."""
    both = (entry[pairs] >= 0).all(axis=1)
    number, state = np.nonzero(both)
    found = np.stack([entry[pairs[number, 0], state], entry[pairs[number, 1], state]], axis=1)
    return found, np.concatenate([[0], np.cumsum(both.sum(axis=1))]).astype(np.int64)


def _earned(joint: Joint, levels: Ints, entry: _Int64s) -> Floats:
    """What each entry earns in each step where nothing changes, ``(n_steps, n_entries)``."""
    vector, state = np.nonzero(entry >= 0)
    out = np.zeros((joint.problem.n_steps, len(vector)))
    place = entry[vector, state]
    for steady, level in zip(joint.steady, levels, strict=True):
        out[:, place] += steady[level[vector], :, state].T
    return out


def _lost(joint: Joint, held: Ints) -> Floats:
    """What a changed multiset costs, ``(n_steps, M, n_levels, n_held)``; 0 beyond what a tenant may hold."""
    n_tenants, n_levels, n_steps, _ = joint.loss.shape
    out = np.zeros((n_steps, n_tenants, n_levels, int(held.max()) + 1))
    for m, own in enumerate(held):
        _, state = np.unique(own, return_index=True)
        out[:, m, :, : len(state)] = joint.loss[m][:, :, state].transpose(1, 0, 2)
    return out


def _groups(joint: Joint, states: Sequence[Ints], held: Ints) -> tuple[Ints, Ints, _Int64s, Ints]:
    """``raised``, ``owned``, ``raised_bounds`` and ``n_groups``."""
    n_subsets = len(joint.group)
    n_groups = np.zeros((len(states), n_subsets), dtype=np.int32)
    raised_bounds = np.zeros((len(states), n_subsets + 1), dtype=np.int64)
    raised: list[Ints] = [np.zeros(0, dtype=np.int32)]
    owned: list[Ints] = [np.zeros(0, dtype=np.int32)]
    n_raised = 0
    for block, own in enumerate(states):
        n_groups[block, 0] = len(own)
        raised_bounds[block, :2] = n_raised
        for c in range(1, n_subsets):
            top = c.bit_length() - 1
            names, slot = np.unique(joint.group[c, own], return_inverse=True)
            _, first = np.unique(joint.group[c ^ (1 << top), own], return_index=True)
            n_groups[block, c] = len(names)
            raised.append(slot.reshape(-1)[first].astype(np.int32))
            owned.append(held[top, own[first]])
            n_raised += len(first)
            raised_bounds[block, c + 1] = n_raised
    return np.concatenate(raised), np.concatenate(owned), raised_bounds, n_groups
