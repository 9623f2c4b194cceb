"""``physical``: what the floors ``static`` and ``greedy`` share: from held sets and placed retrainings to a plan."""

from __future__ import annotations

import time
from collections.abc import Sequence

from executor.mig import Placement
from planner.engines.physical.held_sets import Entries
from planner.engines.physical.plan import lifetimes, next_epoch_step, objective
from planner.engines.schedule import Terms, Training
from planner.plan import MigPlan, status_of
from planner.problem import Reconfiguration


def with_held(
    terms: Terms,
    held: Sequence[tuple[int, Entries]],
    occupied: Sequence[tuple[Training, Placement]],
    bound: float,
    engine: str,
    started_s: float,
) -> MigPlan:
    """The plan that holds these sets beside these retrainings, valued anew.

    Args:
        terms: The problem.
        held: (step, what is held from there on).
        occupied: The retrainings that start in the window, with their placements.
        bound: What no plan exceeds.
        engine: Who made it.
        started_s: When the solve began, on ``time.perf_counter``.
    """
    found = lifetimes(terms, held, tuple(run for run, _ in occupied), tuple(place for _, place in occupied))
    value = objective(terms, found)
    bound = max(value, bound)
    return MigPlan(
        status=status_of(value, bound),
        objective=value,
        bound=bound,
        solve_s=time.perf_counter() - started_s,
        engine=engine,
        reconfiguration=Reconfiguration.PHYSICAL,
        n_steps=terms.n_steps,
        lifetimes=found,
        next_epoch_step=next_epoch_step(terms, held),
    )
