"""What if the GPU, the load, an SLO … were another: the plan of a window at one point of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from migrator.assumed import assumed_in
from migrator.errors import ConfigSloError
from migrator.execution.ahead import plan_through
from migrator.execution.planning import none_found
from migrator.inputs import assemble
from migrator.log.records import Assumed
from migrator.whatif.cases import Case
from migrator.whatif.grid import Grid, Point
from planner.course import Course, courses
from planner.errors import PlannerError
from planner.plan import MigPlan, Status
from planner.problem import Problem, Task
from planner.solve import default_engine


@dataclass(frozen=True, slots=True)
class PlannedRetraining:
    """A retraining that a plan starts: its option, its placement (``paper``: profile), its half-open steps."""

    option: str
    where: str
    start_step: int
    end_step: int


@dataclass(frozen=True, slots=True)
class TenantOutcome:
    """What the plan promises one tenant.

    Attributes:
        name: The tenant's.
        arrivals: Expected requests.
        goodput: Expected requests in time and answered correctly; ``None`` where its weight is 0.
        goodput_pct: Goodput of arrivals; ``None`` without arrivals, or where its weight is 0.
        retraining: The one that the plan starts, if any.
        slo_attainment_pct: Requests that the plan expects in time, of arrivals; ``None`` where that cannot be told.
    """

    name: str
    arrivals: float
    goodput: float | None
    goodput_pct: float | None
    retraining: PlannedRetraining | None
    slo_attainment_pct: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What planning came to at one point.

    Attributes:
        point: Where in the grid.
        status: The plan's (``optimal``, ``feasible``, ``timeout``, ``infeasible``), ``invalid`` where the plan
            breaks a rule, ``failed`` where the engine cannot answer, ``unmeasured`` without service profiles.
        model: The cost model.
        engine: Who planned.
        arrivals: Expected requests times their tenants' weights; ``None`` where no profile meets an SLO.
        goodput: The plan's objective, in the same unit; ``None`` without a plan, as are those that follow.
        bound: No plan has more goodput.
        gap: Between the two, relative.
        solve_s: Wall seconds of the engine; the only figure that differs from one time to the next.
        tenants: In the config's order; empty without a plan.
        reason: Why there is no plan.
        assumed: What was neither given nor measured.
        slo_attainment_pct: Requests that the plan expects in time, of all expected ones whatever their weight; ``None``
            where that cannot be told.
    """

    point: Point
    status: str
    model: str
    engine: str
    arrivals: float | None = None
    goodput: float | None = None
    bound: float | None = None
    gap: float | None = None
    solve_s: float | None = None
    tenants: tuple[TenantOutcome, ...] = ()
    reason: str | None = None
    assumed: tuple[Assumed, ...] = ()
    slo_attainment_pct: float | None = None

    @property
    def goodput_pct(self) -> float | None:
        """Expected goodput of expected arrivals."""
        return None if self.goodput is None or not self.arrivals else 100 * self.goodput / self.arrivals


@dataclass(frozen=True, slots=True)
class Sweep:
    """The plans of a config over a grid.

    Attributes:
        name: The config's name.
        forecast: Where the planned arrivals come from.
        grid: What was varied.
        outcomes: One for each of its points, in its order.
        notes: What of the config's traces and profiles is not as recorded.
    """

    name: str
    forecast: str
    grid: Grid
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What was neither given nor measured, at any point."""
        found: list[Assumed] = []
        for outcome in self.outcomes:
            found += [item for item in outcome.assumed if item not in found]
        return tuple(found)

    @property
    def best(self) -> Outcome | None:
        """The first of those with the highest share of goodput; ``None`` where there is no plan at all."""
        return best_of(self.outcomes)


def best_of(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The first of those with the highest share of goodput; ``None`` where none has one."""
    planned = (outcome for outcome in outcomes if outcome.goodput_pct is not None)
    return max(planned, key=lambda outcome: outcome.goodput_pct or 0.0, default=None)


def outcome_of(case: Case) -> Outcome:
    """The case's window planned; same case, same outcome, but for ``solve_s`` and what a time limit cuts off."""
    model = case.solving.reconfiguration.value
    engine = case.solving.engine or default_engine(model)
    try:
        setting, traffic = assemble(case.config, case.origin)
        planned = plan_through(setting, traffic, case.window, case.solving)[-1]
    except ConfigSloError as error:
        reason = str(error).removeprefix(f"{case.origin}: ")
        return Outcome(case.point, Status.INFEASIBLE.value, model, engine, reason=reason)
    except PlannerError as error:
        return Outcome(case.point, "failed", model, engine, reason=str(error))
    problem, plan = planned.problem, planned.plan
    outcome = Outcome(
        case.point,
        plan.status.value,
        model,
        plan.engine,
        arrivals=problem.most_goodput,
        solve_s=plan.solve_s,
        assumed=assumed_in(setting),
    )
    if planned.is_planned:
        tenants = tuple(_tenant_outcomes(problem, plan))
        return replace(
            outcome,
            goodput=plan.expected_goodput,
            bound=plan.bound,
            gap=plan.gap,
            tenants=tenants,
            slo_attainment_pct=_attainment_pct(tenants),
        )
    if planned.verification is not None:
        reason = f"the plan breaks a rule: {planned.verification.broken_rules[0]}"
        return replace(outcome, status="invalid", reason=reason)
    found_none = none_found(plan) if plan.missed else "no plan within the budget"
    return replace(outcome, reason=str(plan.infeasibility or found_none))


def _tenant_outcomes(problem: Problem, plan: MigPlan) -> Iterator[TenantOutcome]:
    retrainings = _retrainings(plan)
    for course in courses(problem, plan):
        tenant = course.tenant
        arrivals = float(tenant.arrivals_rps.sum()) * problem.step_s
        goodput = float(course.goodput.sum()) / tenant.weight if tenant.weight > 0 else None
        share = None if goodput is None or arrivals == 0 else 100 * goodput / arrivals
        yield TenantOutcome(
            tenant.name, arrivals, goodput, share, retrainings.get(tenant.name), _in_time_pct(course, arrivals)
        )


def _in_time_pct(course: Course, arrivals: float) -> float | None:
    """At most 100: gain tables are means over sample paths, which may bring more than the forecast's mean."""
    if course.in_time is None or arrivals == 0:
        return None
    return min(100.0, max(0.0, 100 * float(course.in_time.sum()) / arrivals))


def _attainment_pct(tenants: Iterable[TenantOutcome]) -> float | None:
    """All tenants' requests in time, of all their arrivals."""
    busy = [(tenant.arrivals, tenant.slo_attainment_pct) for tenant in tenants if tenant.arrivals > 0]
    known = [arrivals * share for arrivals, share in busy if share is not None]
    return sum(known) / sum(arrivals for arrivals, _ in busy) if busy and len(known) == len(busy) else None


def _retrainings(plan: MigPlan) -> Mapping[str, PlannedRetraining]:
    """The retrainings that the plan starts, by tenant; one that was running before has no option."""
    found = {
        item.owner.tenant: PlannedRetraining(item.option, str(item.placement), item.create_step, item.end_step)
        for item in plan.lifetimes
        if item.owner.task is Task.RETRAINING and item.option is not None
    }
    for schedule in plan.schedules:
        if (run := schedule.retraining) is not None:
            found[schedule.name] = PlannedRetraining(run.option, run.profile, run.start_step, run.end_step)
    return found
