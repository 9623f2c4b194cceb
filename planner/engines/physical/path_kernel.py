"""The compiled longest path over (step, held set) for one schedule of retrainings.

Symbols, for a node H (a held set) and a core C (a subset, any node):

=======  ==================================================================================
G[t][H]  best goodput over [0, t) with H held in step t − 1 and free to change at t
F[t][H]  best goodput over [0, min(t + Ω, n)) with an epoch into H at t
M[t][C]  max of G[t][H′] over H′ ⊇ C: by taking one instance away at a time, largest first
S[t][H]  max over C ⊆ H of M[t][C] + what C earns over [t, t + Ω_m) of each tenant m: the same
         way back, smallest first
=======  ==================================================================================

F[t][H] = S[t][H] + Σ_m what H_m earns over [t + Ω_m, t + Ω). The core of the best pair need not be
H′ ∩ H in the maxima: a smaller one earns no more, because gains never fall for a superset.
An epoch costs O(nodes · instances a node) this way instead of nodes².

All of it is one function with one signature, compiled once and kept on disk (``cache=True``).
"""

from __future__ import annotations

import numpy as np

from executor.compiled import compiled
from planner.arrays import Bools, Floats, Int64s, Ints


@compiled
def longest_path(  # noqa: C901, PLR0912, PLR0915, PLR0917 (one compiled loop; a call inside is a further signature)
    removal: Ints,
    column: Ints,
    first_column: Ints,
    is_held: Bools,
    lists: Ints,
    list_bounds: Int64s,
    hold_list: Int64s,
    epoch_list: Int64s,
    epoch_row: Int64s,
    earned: Floats,
    warm_steps: Int64s,
    epoch_steps: int,
    forced_step: int,
    first_step: int,
    free: Floats,
    came_from: Ints,
    by_epoch: Bools,
    best_by_step: Floats,
) -> Floats:
    """G by the last node, when the last epoch that may reach beyond the window is over, ``(n_nodes,)``.

    Args:
        removal: ``(n_nodes, most)``, see :class:`planner.engines.physical.nodes.Nodes`; indices grow with size.
        column: ``(n_tenants, n_nodes)``.
        first_column: Likewise, of what a kept node serves with while the forced epoch warms.
        is_held: ``(n_nodes,)``.
        lists: Node lists one after the other, each ascending and closed under subsets.
        list_bounds: List i is ``lists[list_bounds[i]:list_bounds[i + 1]]``; list 0 holds every node.
        hold_list: Which list may be held in each step, ``(n_steps,)``.
        epoch_list: Which list may be held over [t, t + Ω), ``(n_steps,)``.
        epoch_row: Row of ``came_from`` of an epoch at t, −1 where none is allowed, ``(n_steps,)``.
        earned: What each column earned in the steps before t, ``(n_tenants, n_steps + 1, n_columns)``.
        warm_steps: Ω_m, ``(n_tenants,)``.
        epoch_steps: Ω.
        forced_step: A step at which there is an epoch in any case; −1: none.
        first_step: The step to begin with.
        free: G there, ``(n_nodes,)``; used up.
        came_from: Out: H′ of an epoch's best predecessor, ``(n_epoch_rows, n_nodes)``; empty to save the work.
        by_epoch: Out: whether G[t][H] was reached by an epoch at t − Ω, ``(n_steps + Ω, n_nodes)`` or empty.
        best_by_step: Out: max of G[t][H] over H, ``(n_steps + 1,)`` or empty.
    """
    n_nodes, most = removal.shape
    n_tenants, n_steps = earned.shape[0], earned.shape[1] - 1
    tracing = came_from.shape[0] > 0
    held_list = 0
    above = np.empty(n_nodes)
    above_at = np.zeros(n_nodes, np.int32)
    below = np.empty(n_nodes)
    below_at = np.zeros(n_nodes, np.int32)
    moved = np.full((epoch_steps, n_nodes), -np.inf)
    swap = np.empty(n_nodes)
    step_gain = np.empty((n_tenants, earned.shape[2]))
    core_gain = np.empty((n_tenants, earned.shape[2]))
    rest_gain = np.empty((n_tenants, earned.shape[2]))
    # Beyond the window nothing is earned, and no epoch begins; where maxima by step are asked for, it does not matter.
    n_beyond = 0 if best_by_step.size else epoch_steps - 1
    for t in range(first_step, n_steps + n_beyond):
        slot = t % epoch_steps
        if t < n_steps and epoch_row[t] >= 0:
            until = min(t + epoch_steps, n_steps)
            for m in range(n_tenants):
                warm = min(t + warm_steps[m], n_steps)
                for c in range(earned.shape[2]):
                    core_gain[m, c] = earned[m, warm, c] - earned[m, t, c]
                    rest_gain[m, c] = earned[m, until, c] - earned[m, warm, c]
            # M: superset maximum, largest first. Only what could be held until now has a value.
            above[:] = -np.inf
            for k in range(list_bounds[held_list], list_bounds[held_list + 1]):
                node = lists[k]
                above[node] = free[node]
                above_at[node] = node
            for k in range(list_bounds[held_list + 1] - 1, list_bounds[held_list] - 1, -1):
                node = lists[k]
                value = above[node]
                if value == -np.inf:
                    continue
                for i in range(most):
                    part = removal[node, i]
                    if part < 0:
                        break
                    if value > above[part]:
                        above[part] = value
                        above_at[part] = above_at[node]
            # S: subset maximum, smallest first; then F.
            for k in range(list_bounds[epoch_list[t]], list_bounds[epoch_list[t] + 1]):
                node = lists[k]
                best, best_at = above[node], above_at[node]
                for m in range(n_tenants):
                    kept = first_column[m, node] if t == forced_step else column[m, node]
                    best += core_gain[m, kept]
                for i in range(most):
                    part = removal[node, i]
                    if part < 0:
                        break
                    if below[part] > best:
                        best, best_at = below[part], below_at[part]
                below[node] = best
                below_at[node] = best_at
                if is_held[node]:
                    for m in range(n_tenants):
                        best += rest_gain[m, column[m, node]]
                    moved[slot, node] = best
                    if tracing:
                        came_from[epoch_row[t], node] = best_at
        if t == forced_step:
            free[:] = -np.inf
        # G[t + 1]: hold on, or finish the warm-up of an epoch at t + 1 − Ω.
        if t < n_steps and hold_list[t] != held_list:
            swap[:] = -np.inf
            for k in range(list_bounds[hold_list[t]], list_bounds[hold_list[t] + 1]):
                swap[lists[k]] = free[lists[k]]
            free, swap = swap, free
            held_list = hold_list[t]
        for m in range(n_tenants):
            for c in range(earned.shape[2]):
                step_gain[m, c] = earned[m, min(t + 1, n_steps), c] - earned[m, min(t, n_steps), c]
        for k in range(list_bounds[held_list], list_bounds[held_list + 1]):
            node = lists[k]
            if is_held[node]:
                value = free[node]
                for m in range(n_tenants):
                    value += step_gain[m, column[m, node]]
                free[node] = value
            else:
                free[node] = -np.inf
        source = t + 1 - epoch_steps
        if source >= first_step and epoch_row[source] >= 0:
            slot = source % epoch_steps
            for k in range(list_bounds[epoch_list[source]], list_bounds[epoch_list[source] + 1]):
                node = lists[k]
                if is_held[node] and moved[slot, node] > free[node]:
                    free[node] = moved[slot, node]
                    if tracing:
                        by_epoch[t + 1, node] = True
        if best_by_step.size:
            for k in range(list_bounds[held_list], list_bounds[held_list + 1]):
                best_by_step[t + 1] = max(best_by_step[t + 1], free[lists[k]])
    return free
