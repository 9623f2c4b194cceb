"""About the same problem on longer steps: good enough for multipliers to begin with, at a fraction of the work.

Bounds are always taken on the problem's own steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.problem import FloatArray, GainTable, InitialState, Problem, TenantTerms


def coarse_problem(
    problem: Problem, tables: tuple[GainTable, ...], coarse_steps: int, initial: InitialState | None, longest_s: float
) -> Problem:
    """The ``physical`` problem on steps ``coarse_steps`` times as long; the rest of the window is cut off.

    Durations are rounded up to whole steps, those of retrainings at most to ``longest_s``.
    """
    n_steps = problem.n_steps // coarse_steps
    return Problem(
        gpu=problem.gpu,
        step_s=problem.step_s * coarse_steps,
        n_steps=n_steps,
        reconfiguration=problem.reconfiguration,
        tenants=tuple(_coarse(problem, tenant, n_steps, coarse_steps, longest_s) for tenant in problem.tenants),
        switch_s=problem.switching_s,
        initial=initial,
        gains=tuple(_joined(table, n_steps, coarse_steps) for table in tables),
    )


def _coarse(problem: Problem, tenant: TenantTerms, n_steps: int, coarse_steps: int, longest_s: float) -> TenantTerms:
    least_s = problem.step_s * coarse_steps
    options = []
    for option in tenant.options:
        time_s = {name: min(time_s, max(longest_s, least_s)) for name, time_s in option.time_s.items()}
        options.append(replace(option, time_s=time_s))
    arrivals = _blocks(tenant.arrivals_rps[None, :, None], n_steps, coarse_steps).mean(axis=2)
    return replace(tenant, arrivals_rps=arrivals[0, :, 0], options=tuple(options))


def _joined(table: GainTable, n_steps: int, coarse_steps: int) -> GainTable:
    return GainTable(table.multisets, _blocks(table.steady, n_steps, coarse_steps).sum(axis=2))


def joined(multipliers: FloatArray, coarse_steps: int) -> FloatArray:
    """Multipliers of steps as multipliers of coarse steps: sums, ``(n, …) → (n // coarse_steps, …)``."""
    n_steps = len(multipliers) // coarse_steps
    blocks = multipliers[: n_steps * coarse_steps].reshape(n_steps, coarse_steps, *multipliers.shape[1:])
    return np.asarray(blocks.sum(axis=1))


def spread(multipliers: FloatArray, coarse_steps: int, fine: FloatArray) -> FloatArray:
    """The same back again, in equal parts; ``fine`` is kept for the steps that were cut off."""
    out = fine.copy()
    parts = np.repeat(multipliers / coarse_steps, coarse_steps, axis=0)
    out[: len(parts)] = parts
    return out


def _blocks(values: FloatArray, n_steps: int, coarse_steps: int) -> FloatArray:
    """``(n_levels, n, n_columns) → (n_levels, n_steps, coarse_steps, n_columns)``."""
    n_levels, _, n_columns = values.shape
    return values[:, : n_steps * coarse_steps].reshape(n_levels, n_steps, coarse_steps, n_columns)
