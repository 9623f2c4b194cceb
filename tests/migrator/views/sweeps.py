"""Grids of plans made by hand, for the tests of their views."""

from __future__ import annotations

from migrator.whatif.grid import Point, read_grid
from migrator.whatif.search import Found, GoalSearch, read_conditions, verdict_of
from migrator.whatif.sweep import PlannedRetraining, PointOutcome, Sweep, TenantOutcome

REASON = "tenants.b: no profile <meets> [it]"


def planned(point: Point, goodput: float) -> PointOutcome:
    retraining = PlannedRetraining("full", "2g.10gb@2", 3, 9)
    return PointOutcome(
        point=point,
        status="feasible",
        model="physical",
        engine="physical",
        arrivals=200.0,
        goodput=goodput,
        bound=goodput * 1.25,
        gap=0.2,
        claimed_bound=goodput,
        claimed_gap=0.0,
        solve_s=1.5,
        tenants=(
            TenantOutcome("a", 150.0, goodput - 10.0, 100 * (goodput - 10) / 150, retraining, 71.0),
            TenantOutcome("b", 50.0, 10.0, 20.0, None, 33.0),
        ),
        slo_attainment_pct=61.5,
    )


def sweep(*vary: str) -> Sweep:
    """Every point planned, a little better each, except for the first, which has no plan."""
    grid = read_grid(vary)
    first, *others = grid.points
    planless = PointOutcome(first, "infeasible", "physical", "physical", reason=REASON)
    outcomes = [planned(point, 100.0 + n) for n, point in enumerate(others)]
    return Sweep("a name", "ewma", grid, (planless, *outcomes))


def searched(*keep: str) -> tuple[Sweep, Found]:
    """A grid, and what was found on it."""
    grid, conditions = sweep("load=1,2"), read_conditions(keep, ["a", "b"])
    search = GoalSearch("max", grid.grid.variations[0].choices)
    verdicts = tuple(verdict_of(conditions, outcome) for outcome in grid.outcomes)
    return grid, Found(search, conditions, grid.outcomes, verdicts)
