"""Compiled: the best that one ``physical`` tenant can do alone when it pays for every instance that it holds.

Alone it has epochs of its own, any two at least Ω apart. What survives an epoch from H′ to H is counted, not
placed: as many instances of each profile as both have. Symbols: nodes are multisets H, partial ones
included, numbered by size; E[s] what a node earned in the steps before s, paid[s] what it cost; u = min(t + Ω, n)
and w = min(t + Ω_m, u) end an epoch at t and its warm-up.

=======  ==================================================================================
G[t][H]  the best net value of [0, t) with H held and free to change at t, at level 0
M[t][C]  max of G[t][H′] over H′ ⊇ C
F[t][H]  the best net value of [0, u) with an epoch into H at t
B[t][H]  the best net value of [t, n) with H held and free to change at t, at one level
=======  ==================================================================================

The maxima over supersets and subsets go one instance at a time, as in ``path_kernel``.
"""

from __future__ import annotations

import numpy as np

from executor.compiled import compiled
from planner.engines.arrays import Bools, Floats, Int64s, Ints


@compiled
def _over_supersets(removal: Ints, values: Floats, best: Floats, best_at: Ints) -> None:
    """The best of each node's supersets, and which it is."""
    best[:] = values
    best_at[:] = np.arange(len(values))
    for node in range(len(values) - 1, -1, -1):
        for part in removal[node]:
            if part < 0:
                break
            if best[node] > best[part]:
                best[part], best_at[part] = best[node], best_at[node]


@compiled
def _over_cores(removal: Ints, above: Floats, above_at: Ints, core: Floats, best: Floats, best_at: Ints) -> None:
    """For each node the best core within it: what the core earns plus ``above`` of it."""
    for node in range(len(core)):
        best[node], best_at[node] = above[node] + core[node], above_at[node]
        for part in removal[node]:
            if part < 0:
                break
            if best[part] > best[node]:
                best[node], best_at[node] = best[part], best_at[part]


@compiled
def _forward(
    removal: Ints,
    is_held: Bools,
    earned: Floats,
    paid: Floats,
    first: int,
    warm: int,
    spacing: int,
    opening: Floats,
) -> tuple[Floats, Floats, Ints, Ints, Bools]:
    """G, M, where M is from, the H′ that F comes from, and whether G came by an epoch; ``(n + 1, K)`` each."""
    n_steps, n_nodes = len(earned) - 1, len(is_held)
    free = np.full((n_steps + 1, n_nodes), -np.inf)
    above = np.full((n_steps + 1, n_nodes), -np.inf)
    above_at = np.zeros((n_steps + 1, n_nodes), np.int32)
    moved = np.full((n_steps + 1, n_nodes), -np.inf)
    came_from = np.zeros((n_steps + 1, n_nodes), np.int32)
    by_epoch = np.zeros((n_steps + 1, n_nodes), np.bool_)
    best, best_at = np.empty(n_nodes), np.empty(n_nodes, np.int32)
    free[first] = opening
    for t in range(first, n_steps):
        _over_supersets(removal, free[t], above[t], above_at[t])
        until = min(t + spacing, n_steps)
        ready = min(t + warm, until)
        _over_cores(removal, above[t], above_at[t], earned[ready] - earned[t], best, best_at)
        for node in range(n_nodes):
            if is_held[node]:
                rest = earned[until, node] - earned[ready, node] - paid[until, node] + paid[t, node]
                moved[t, node] = best[node] + rest
                came_from[t, node] = best_at[node]
                step = earned[t + 1, node] - earned[t, node] - paid[t + 1, node] + paid[t, node]
                free[t + 1, node] = free[t, node] + step
        source = t + 1 - spacing
        if source >= first:
            for node in range(n_nodes):
                if moved[source, node] > free[t + 1, node]:
                    free[t + 1, node] = moved[source, node]
                    by_epoch[t + 1, node] = True
    return free, above, above_at, came_from, by_epoch


@compiled
def _backward(
    removal: Ints, is_held: Bools, earned: Floats, paid: Floats, first: int, warm: int, spacing: int
) -> tuple[Floats, Ints]:
    """B at one level, and the node of the epoch that makes it, −1 for holding on; ``(n + 1, K)`` each."""
    n_steps, n_nodes = len(earned) - 1, len(is_held)
    back = np.zeros((n_steps + 1, n_nodes))
    target = np.full((n_steps + 1, n_nodes), -1, np.int32)
    worth, above, best = np.empty(n_nodes), np.empty(n_nodes), np.empty(n_nodes)
    above_at, best_at = np.empty(n_nodes, np.int32), np.empty(n_nodes, np.int32)
    for t in range(n_steps - 1, first - 1, -1):
        until = min(t + spacing, n_steps)
        ready = min(t + warm, until)
        worth[:] = -np.inf
        for node in range(n_nodes):
            if is_held[node]:
                rest = earned[until, node] - earned[ready, node] - paid[until, node] + paid[t, node]
                worth[node] = rest + back[until, node]
        _over_supersets(removal, worth, above, above_at)
        _over_cores(removal, above, above_at, earned[ready] - earned[t], best, best_at)
        for node in range(n_nodes):
            stay = back[t + 1, node] + earned[t + 1, node] - earned[t, node] - paid[t + 1, node] + paid[t, node]
            back[t, node] = max(stay, best[node])
            target[t, node] = best_at[node] if best[node] > stay else -1
    return back, target


@compiled
def _across(
    removal: Ints,
    is_held: Bools,
    earned: Floats,
    later: Floats,
    paid: Floats,
    span: tuple[int, int, int, int],
    above: Floats,
    above_at: Ints,
    back: Floats,
    out: tuple[Floats, Ints],
) -> tuple[float, int, int]:
    """The best net value with an epoch under way when the level changes: value, its node, and the one before."""
    t, ready, until, switch = span
    best, best_at = out
    # ``later`` counts from the change of level on.
    core = earned[min(ready, switch)] - earned[t]
    if ready > switch:
        core = core + later[ready] - later[switch]
    _over_cores(removal, above, above_at, core, best, best_at)
    most, at, source = -np.inf, -1, -1
    mixed = min(max(switch, ready), until)
    for node in range(len(is_held)):
        if is_held[node]:
            value = best[node] + earned[mixed, node] - earned[ready, node] + later[until, node] - later[mixed, node]
            value += back[node] - paid[until, node] + paid[t, node]
            if value > most:
                most, at, source = value, node, best_at[node]
    return most, at, source


@compiled
def best_alone_placed(  # noqa: PLR0917 (compiled code takes arrays by position)
    removal: Ints,
    is_held: Bools,
    earned: Floats,
    paid: Floats,
    first: int,
    warm: int,
    spacing: int,
    initial: int,
    fixed: Floats,
    earliest: Int64s,
    switched: Floats,
    switched_by: Int64s,
    courses: Ints,
) -> None:
    """The best net value by level and by the step at which the level changes, and how it comes about.

    Beside the symbols above:
        removal: The node without one of its instances, −1 fills the row's end, ``(K, most)``.
        is_held: Whether it holds an instance as large as ``min_profile``, ``(K,)``.
        earned: ``(n_levels, n + 1, K)``.
        paid: ``(n + 1, K)``.
        first: First step with an epoch; before it ``initial`` is held, with ``fixed`` net values.
        initial: Node of the initial held set, −1 where the first one is free.
        fixed: Net value of the steps before s at each level, ``(n_levels, first + 1)``.
        earliest: First step at which the level can change to each one, ``(n_levels,)``.
        switched: Out: ``(n_levels, n + 1)``; level 0 at n is the value without any change.
        switched_by: Out: epoch under way (its step, node and the node before it; or −1 and the node
            held) at the change, ``(n_levels, n + 1, 3)``.
        courses: Out: for ``traced``, ``(1 + n_levels, n + 1, K)``.
    """
    n_levels, n_steps, n_nodes = earned.shape[0], earned.shape[1] - 1, len(is_held)
    opening = np.full(n_nodes, -np.inf)
    if initial >= 0:
        opening[initial] = fixed[0, first]
    else:
        for node in range(n_nodes):
            opening[node] = 0.0 if is_held[node] else -np.inf
    free, above, above_at, came_from, by_epoch = _forward(
        removal, is_held, earned[0], paid, first, warm, spacing, opening
    )
    courses[0] = came_from
    courses[1] = by_epoch
    out = (np.empty(n_nodes), np.empty(n_nodes, np.int32))
    switched[:] = -np.inf
    for level in range(n_levels):
        if level == 0:
            back = np.zeros((n_steps + 1, n_nodes))
        else:
            back, target = _backward(removal, is_held, earned[level], paid, first, warm, spacing)
            courses[1 + level] = target
        for switch in range(earliest[level], n_steps + 1):
            if initial >= 0 and switch <= first:
                value = fixed[0, switch] + fixed[level, first] - fixed[level, switch] + back[first, initial]
                switched[level, switch] = value
                switched_by[level, switch] = (-1, initial, first)
                continue
            node = int(np.argmax(free[switch] + back[switch]))
            switched[level, switch] = free[switch, node] + back[switch, node]
            switched_by[level, switch] = (-1, node, switch)
            for t in range(max(first, switch - spacing + 1), min(switch, n_steps)):
                until = min(t + spacing, n_steps)
                span = (t, min(t + warm, until), until, switch)
                value, node, source = _across(
                    removal, is_held, earned[0], earned[level], paid, span, above[t], above_at[t], back[until], out
                )
                if value > switched[level, switch]:
                    switched[level, switch] = value
                    switched_by[level, switch] = (t, node, source)


@compiled
def traced(by: Int64s, level: int, first: int, spacing: int, courses: Ints, counts: Floats, used: Floats) -> None:
    """Add what the course with a change of level holds to ``used``, ``(n, P)``; ``by`` is its row."""
    n_steps = len(used)
    t, node, source = by
    if t >= 0:
        until = min(t + spacing, n_steps)
        for s in range(t, until):
            used[s] += counts[node]
        behind, ahead, k = t, until, source
    else:
        behind = ahead = source
        k = node
    # Back to the first step from which the tenant may choose, then to the window's start.
    step = behind
    while step > first:
        if courses[1, step, k]:
            for s in range(step - spacing, step):
                used[s] += counts[k]
            step -= spacing
            k = courses[0, step, k]
        else:
            step -= 1
            used[step] += counts[k]
    for s in range(min(step, first)):
        used[s] += counts[k]
    k = node
    step = ahead
    while step < n_steps:
        to = courses[1 + level, step, k] if level else -1
        if to < 0:
            used[step] += counts[k]
            step += 1
        else:
            k = to
            until = min(step + spacing, n_steps)
            for s in range(step, until):
                used[s] += counts[k]
            step = until
