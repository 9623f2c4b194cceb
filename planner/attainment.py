"""Floors of in-time answers: what they ask of each step or of the window, and what a plan promises.

T, A and q are those of :mod:`planner.problem`. Per window a plan needs Σ_s T ≥ q · Σ_s A + due. Per step it needs
T ≥ q · A in every step that *binds*: in which some decision can meet the floor. In ``paper``, and in ``physical``
without an initial state, those are all steps. With one, what was held before goes on serving until the first epoch,
and its kept part until that epoch's instances are ready, Ω_m steps later. Up to then a step binds only if all that
was held would meet the floor in it. So a plan may not give up what serves a floor, and is not blamed for what it found.

In ``physical`` the kept core that serves through a warm-up has to meet the floor. In ``paper`` T of a step with a
change is the throughput that is left of it, negative where the change takes longer than the step: the debt counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.course import Course, courses, opening_columns
from planner.plan import MigPlan
from planner.problem import FLOOR_TOLERANCE, AttainmentFloor, GainTable, Per, Problem, TenantTerms


@dataclass(frozen=True, slots=True)
class Attainment:
    """What a plan promises one tenant in time, beside what its floor asks for.

    Attributes:
        tenant: Its name.
        floor: ``None`` where there is none.
        in_time: Σ T, in requests; ``None`` where the gain table does not say.
        arrived: Σ A.
        shortfall: Requests that lack: of the window, or summed over the steps that bind.
        missed_steps: The steps that bind and are missed, per ``step``.
        worst_share: T/A of the missed step that lacks most; ``None`` without one.
        worst_step: That step.
    """

    tenant: str
    floor: AttainmentFloor | None
    in_time: float | None
    arrived: float
    shortfall: float = 0.0
    missed_steps: tuple[int, ...] = ()
    worst_step: int | None = None
    worst_share: float | None = None

    @property
    def share(self) -> float | None:
        """The promised share of in-time answers; ``None`` without arrivals, or where it is not known."""
        return None if self.in_time is None or self.arrived <= 0 else self.in_time / self.arrived

    @property
    def is_met(self) -> bool:
        """Whether there is no floor, or the plan keeps it."""
        return self.shortfall == 0.0

    def __str__(self) -> str:
        """What is missed, in words."""
        if self.is_met or self.floor is None:
            return f"{self.tenant}: {_percent(self.share)} in time"
        if self.floor.per is Per.WINDOW:
            owed = f", with {self.floor.due:+,.6g} requests due from before" if self.floor.due else ""
            return f"{self.tenant}: {_percent(self.share)} in time of {_percent(self.floor.share)} asked for{owed}"
        n = len(self.missed_steps)
        return (
            f"{self.tenant}: {n} step{'s' if n != 1 else ''} below {_percent(self.floor.share)} in time; "
            f"step {self.worst_step} has {_percent(self.worst_share)}"
        )


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.6g} %"


def lacks_in_all(attained: Iterable[Attainment]) -> float:
    """Requests that lack of all floors together; what rounding makes is left out."""
    return round(sum(one.shortfall for one in attained), 6)


def required(floor: AttainmentFloor, table: GainTable) -> float:
    """Requests that a floor per window asks for; ``table`` is one of :func:`~planner.gains.gain_tables`."""
    assert table.arrived is not None
    return floor.share * float(table.arrived.sum()) + floor.due


def out_of_reach(floor: AttainmentFloor, share: float | None, *, is_reached: bool) -> str:
    """That no plan keeps a floor per window, and the share that some plan has, or that none exceeds, if any arrive."""
    due = f" with {floor.due:+,.6g} requests due from before" if floor.due else ""
    return (
        f"no plan answers {_percent(floor.share)} of its requests in time over the window{due}; "
        f"its best reachable share is {'' if is_reached else 'at most '}{_percent(share)}"
    )


def slack(requests: float) -> float:
    """Requests by which a floor per window that asks for so many may be missed."""
    return FLOOR_TOLERANCE * max(1.0, abs(requests))


def served_at_start(problem: Problem, tenant: TenantTerms, table: GainTable) -> Floats | None:
    """T of what was held when the window opened, as it gets ready, until something else can serve, ``(n,)``.

    ``None`` where the first layout is free and serves at once.
    """
    state = problem.physical_initial
    if state is None:
        return None
    n_steps = min(problem.n_steps, state.next_epoch_step + problem.warm_up_steps(tenant))
    assert table.in_time is not None
    served: Floats = table.in_time[np.arange(n_steps), opening_columns(problem, tenant, table, n_steps)]
    return served


def least_by_step(problem: Problem, tenant: TenantTerms, table: GainTable) -> Floats:
    """T that a floor per step asks for, tolerance taken off; −inf in steps that do not bind, ``(n_steps,)``."""
    floor = tenant.min_slo_attainment
    assert floor is not None
    assert table.arrived is not None
    least = floor.share * table.arrived - FLOOR_TOLERANCE
    found = served_at_start(problem, tenant, table)
    if found is not None:
        least[: len(found)] = np.where(found >= least[: len(found)], least[: len(found)], -np.inf)
    return np.asarray(least, dtype=np.float64)


def attainments(problem: Problem, plan: MigPlan) -> tuple[Attainment, ...]:
    """What a plan that keeps the other rules promises every tenant, in the problem's order."""
    return tuple(map(_attainment, courses(problem, plan)))


def _attainment(course: Course) -> Attainment:
    tenant, table, served = course.tenant, course.table, course.in_time
    floor = tenant.min_slo_attainment
    assert table.arrived is not None
    arrived = float(table.arrived.sum())
    if served is None or floor is None:
        return Attainment(tenant.name, floor, None if served is None else float(served.sum()), arrived)
    total = float(served.sum())
    if floor.per is Per.WINDOW:
        asked = required(floor, table)
        return Attainment(tenant.name, floor, total, arrived, asked - total if total < asked - slack(asked) else 0.0)
    lacking = np.maximum(least_by_step(course.problem, tenant, table) - served, 0.0)
    missed = np.flatnonzero(lacking)
    if not len(missed):
        return Attainment(tenant.name, floor, total, arrived)
    worst = int(lacking.argmax())
    share = float(served[worst] / table.arrived[worst]) if table.arrived[worst] > 0 else None
    return Attainment(tenant.name, floor, total, arrived, float(lacking.sum()), tuple(missed.tolist()), worst, share)


def lacking(problem: Problem, tenant: TenantTerms, table: GainTable) -> tuple[Floats, Floats]:
    """Requests that a multiset lacks of a floor per step, settled and just changed, ``(n_steps, n_multisets)`` each."""
    least = least_by_step(problem, tenant, table)[:, None]
    assert table.in_time is not None
    changed = table.in_time if table.in_time_changed is None else table.in_time_changed
    return np.maximum(least - table.in_time, 0.0), np.maximum(least - changed, 0.0)
