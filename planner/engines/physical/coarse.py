"""``physical``: about the same problem on longer steps, and what is found there on the problem's own."""

from __future__ import annotations

from dataclasses import replace

from planner.arrays import Floats
from planner.engines.schedule import Schedule, WindowFacts, with_retraining
from planner.problem import GainTable, PhysicalState, TenantTerms
from planner.unavailable import unavailable_within


def coarse_facts(facts: WindowFacts, coarse_steps: int) -> WindowFacts:
    """About the same problem on steps ``coarse_steps`` times as long; the rest of the window is cut off.

    Durations are rounded up to whole steps; retrainings and the initial state are made to fit in the window.
    """
    problem, n_steps, step_s = facts.problem, facts.n_steps // coarse_steps, facts.problem.step_s * coarse_steps
    slowest_s = max([*(tenant.overhead_s for tenant in problem.tenants), *(pool.overhead_s for pool in problem.pools)])
    longest_s = max((n_steps - 2) * step_s - problem.switching_s - slowest_s, step_s)
    gains = tuple(
        GainTable(table.multisets, blocks(table.steady, n_steps, coarse_steps).sum(axis=2)) for table in facts.gains
    )
    coarse = replace(
        problem,
        step_s=step_s,
        n_steps=n_steps,
        tenants=tuple(_coarse_tenant(tenant, n_steps, coarse_steps, longest_s) for tenant in problem.tenants),
        switch_s=problem.switching_s,
        initial=_coarse_state(facts, n_steps, coarse_steps),
        gains=gains,
        unavailable=tuple(
            replace(
                item,
                from_step=item.from_step // coarse_steps,
                to_step=None if item.to_step is None else -(-item.to_step // coarse_steps),
            )
            for item in unavailable_within(problem.unavailable, 0, n_steps * coarse_steps)
        ),
    )
    return WindowFacts(coarse, gains)


def _coarse_tenant(tenant: TenantTerms, n_steps: int, coarse_steps: int, longest_s: float) -> TenantTerms:
    options = tuple(
        replace(option, time_s={name: min(time_s, longest_s) for name, time_s in option.time_s.items()})
        for option in tenant.options
    )
    arrivals = blocks(tenant.arrivals_rps[None, :, None], n_steps, coarse_steps).mean(axis=2)
    return replace(tenant, arrivals_rps=arrivals[0, :, 0], options=options)


def _coarse_state(facts: WindowFacts, n_steps: int, coarse_steps: int) -> PhysicalState | None:
    if facts.is_free:
        return None
    first = -(-facts.problem.opening.next_epoch_step // coarse_steps)
    held, running = facts.problem.opening.held, facts.problem.opening.retrainings
    return PhysicalState(
        tuple(replace(item, serve_step=min(item.serve_step // coarse_steps, first)) for item in held),
        tuple(replace(item, end_step=max(1, min(item.end_step // coarse_steps, n_steps))) for item in running),
        first,
    )


def refined_schedule(facts: WindowFacts, schedule: Schedule, coarse_steps: int) -> Schedule | None:
    """A schedule on coarse steps on the problem's own; ``None`` if one of its retrainings does not end there."""
    found: Schedule = ()
    for run in schedule:
        ways = [way for way in facts.ways(run.tenant) if (way.level, way.profile) == (run.level, run.profile)]
        if not ways:
            return None
        start = min(run.start_step * coarse_steps, facts.n_steps - ways[0].n_steps)
        found = with_retraining(found, ways[0].at(start))
    return found


def blocks(values: Floats, n_steps: int, coarse_steps: int) -> Floats:
    """``(k, n, n_columns) → (k, n_steps, coarse_steps, n_columns)``."""
    n_rows, _, n_columns = values.shape
    return values[:, : n_steps * coarse_steps].reshape(n_rows, n_steps, coarse_steps, n_columns)
