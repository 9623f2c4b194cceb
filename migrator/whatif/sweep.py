"""What if the GPU, the load, an SLO … were another: the plan of a window at each point of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from executor.names import did_you_mean
from migrator.config.reading import validate_config
from migrator.config.sections import Config, GpuConfig
from migrator.errors import ConfigError, ConfigSloError, GridError, InfeasibleError
from migrator.execution.ahead import plan_through
from migrator.execution.planning import Solving, none_found
from migrator.inputs.assembly import assemble, unmoved_by_load
from migrator.inputs.assumed import assumed_in, assumed_in_any
from migrator.log.records import Assumed
from migrator.whatif.grid import Choice, Factor, Grid, Point, Variation, point_text
from planner.build import TYPICAL_INSTANCES
from planner.course import Course, courses
from planner.errors import PlannerError
from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration
from planner.solve import PAPER, PHYSICAL, default_engine, engine_names
from workloads.errors import ProfileTableError
from workloads.profiles.table import read_profiles
from workloads.tenants import default_worker_start, worker_start

_Entry = dict[str, Any]
"""A part of a config as plain values, to be changed and then validated anew."""


@dataclass(frozen=True)
class Case:
    """A point made concrete.

    Attributes:
        point: Where in the grid it lies.
        config: As changed.
        origin: The config's file and the point, for messages.
        window: Which one is planned.
        solving: How.
    """

    point: Point
    config: Config
    origin: str
    window: int
    solving: Solving


def cases_of(grid: Grid, config: Config, origin: str, time_limit_s: float | None = None) -> tuple[Case, ...]:
    """A case for every point, in the grid's order; ``origin`` is the config's file.

    Raises:
        ConfigError: The config itself cannot be used, or a load moves none of its tenants.
        GridError: A choice that the config has no place for; names it and what is allowed.
    """
    _check_tenants(grid, config, origin)
    resolved = _with_own_methods(assemble(config, origin)[0].config, config)
    load_followers = frozenset(tenant.name for tenant in config.tenants if tenant.arrivals.scale.factor is None)
    cases = []
    for point in grid.points:
        where = f"{origin} with {point_text(point)}"
        changed = validate_config(_changed(resolved, load_followers, point), where)
        for choice in filter(_is_load, point):
            unmoved_by_load(f"--vary {choice}", origin, config.tenants[: len(changed.tenants)])
        cases.append(Case(point, changed, where, _window(changed, point), _solving(point, time_limit_s)))
    return tuple(cases)


def unmoved(option: str, variations: Iterable[Variation], config: Config, origin: str) -> tuple[str, ...]:
    """Whom of the config's tenants a load that the option tries does not move, in a sentence.

    Raises:
        ConfigError: It moves none of them.
    """
    tried = [choice for variation in variations for choice in variation.choices if _is_load(choice)]
    if not tried or config.load is None:
        return ()
    return unmoved_by_load(f"{option} {tried[0]}", origin, config.tenants)


def _is_load(choice: Choice) -> bool:
    """Whether it takes the place of the config's load; factors move every tenant."""
    return choice.name == "load" and not isinstance(choice.value, Factor)


def _with_own_methods(resolved: Config, config: Config) -> Config:
    """The resolved config without the scale methods that followed from its factors: other factors, other methods."""
    tenants = []
    for made, given in zip(resolved.tenants, config.tenants, strict=True):
        scale = made.arrivals.scale.model_copy(update={"method": given.arrivals.scale.method})
        tenants.append(made.model_copy(update={"arrivals": made.arrivals.model_copy(update={"scale": scale})}))
    return resolved.model_copy(update={"tenants": tenants})


def check(case: Case) -> None:
    """Refuse a case that cannot be put together; an SLO that no profile meets is a result, not an error.

    Raises:
        ConfigError: It cannot be put together, or lists pools for ``paper``.
    """
    if case.solving.reconfiguration is Reconfiguration.PAPER and case.config.sharing.listed is not None:
        raise ConfigError(f"{case.origin}: sharing.pools lists pools, and the paper model has none; off is needed")
    with suppress(ConfigSloError):
        assemble(case.config, case.origin)


def misfit(case: Case) -> str | None:
    """Why a case cannot be put together, as :func:`check` says; ``None`` if it can."""
    try:
        check(case)
    except ConfigError as error:
        return str(error).removeprefix(f"{case.origin}: ")
    return None


def _check_tenants(grid: Grid, config: Config, origin: str) -> None:
    names = [tenant.name for tenant in config.tenants]
    for variation in grid.variations:
        tenant = variation.choices[0].tenant
        if tenant is not None and tenant not in names:
            hint = did_you_mean(tenant, names)
            raise GridError(f"--vary {variation.name}{hint}: {origin} has the tenants {', '.join(names)}")


def _changed(resolved: Config, load_followers: frozenset[str], point: Point) -> _Entry:
    """The resolved config with the point's choices, for every tenant's first, then for single ones.

    Raises:
        GridError: A choice that has no meaning there.
    """
    data: _Entry = resolved.model_dump()
    for choice in sorted(point, key=_order):
        match choice.key:
            case "gpu":
                data["gpu"]["model"] = choice.value
            case "step_s":
                data["step_s"] = choice.value
            case "tenants":
                data["tenants"] = _first_tenants(data["tenants"], choice)
                _leave_out_others(data)
            case "window" | "model" | "engine":
                pass  # no part of a config
            case _:
                for entry in _concerned(data["tenants"], choice, point):
                    _change_tenant(entry, choice, data, load_followers)
    return data


def _order(choice: Choice) -> tuple[bool, bool, bool]:
    # The number of tenants decides whom a choice concerns; the GPU, how many workers may start at once.
    return (choice.key != "tenants", choice.key != "gpu", choice.tenant is not None)


def _first_tenants(entries: Sequence[_Entry], choice: Choice) -> Sequence[_Entry]:
    assert isinstance(choice.value, int)
    if choice.value > len(entries):
        raise GridError(f"--vary {choice}: the config has {len(entries)} tenants; 1 to {len(entries)} are allowed")
    return entries[: choice.value]


def _leave_out_others(data: _Entry) -> None:
    """Leave those that are no tenants any more out of pools, and out of who has tokens."""
    names, sharing, door = {entry["name"] for entry in data["tenants"]}, data["sharing"], data["front_door"]
    if not isinstance(sharing["pools"], str):
        left = ([name for name in pool if name in names] for pool in sharing["pools"])
        sharing["pools"] = [pool for pool in left if pool]
    if door is not None:
        door["tokens"] = {name: path for name, path in door["tokens"].items() if name in names}


def _concerned(entries: Sequence[_Entry], choice: Choice, point: Point) -> Sequence[_Entry]:
    found = [entry for entry in entries if choice.tenant in (None, entry["name"])]
    if not found:
        raise GridError(f"--vary {choice}: {point_text(point)} leaves no tenant {choice.tenant}")
    return found


def _change_tenant(entry: _Entry, choice: Choice, config: _Entry, load_followers: frozenset[str]) -> None:
    value = choice.value
    match choice.key:
        case "slo_ms":
            entry["slo_ms"] = entry["slo_ms"] * value.by if isinstance(value, Factor) else value
        case "batch":
            entry["batch"], entry["max_batch"] = "auto", None if value == "auto" else value
        case "load":
            entry["arrivals"]["scale"]["factor"] *= _load_factor(entry, choice, config["load"], load_followers)
        case "overhead_s":
            _change_overhead(entry, choice, config["gpu"], config["profiles"])
        case _:
            raise AssertionError(choice.key)


def _load_factor(entry: _Entry, choice: Choice, load: float | None, load_followers: frozenset[str]) -> float:
    """The growth of the tenant's arrivals. A load that is no factor moves only what follows the config's ``load``."""
    if isinstance(choice.value, Factor):
        return choice.value.by
    assert isinstance(choice.value, float)
    if choice.tenant is not None:
        raise GridError(f"--vary {choice}: a load is that of all tenants; for one, a factor such as x1.5 is needed")
    if load is None:
        raise GridError(f"--vary {choice}: the config has no load to replace; a factor such as x1.5 is needed")
    return choice.value / load if entry["name"] in load_followers else 1.0


def _change_overhead(entry: _Entry, choice: Choice, gpu: _Entry, profiles: str | None) -> None:
    """Set the start-up of inference and retraining workers so that the plan's overheads are as chosen."""
    start = default_worker_start(entry["model"])
    if profiles is not None:
        with suppress(ProfileTableError):  # which the check of the case tells
            card = GpuConfig.model_validate(gpu).cut
            start = worker_start(read_profiles(Path(profiles), card).on(card), card.name, entry["model"])
    if isinstance(choice.value, Factor):
        serving_s = start.base_s if entry["worker_start_s"] is None else entry["worker_start_s"]
        training_s = serving_s if entry["retraining_start_s"] is None else entry["retraining_start_s"]
        entry["worker_start_s"], entry["retraining_start_s"] = serving_s * choice.value.by, training_s * choice.value.by
    else:
        assert isinstance(choice.value, float)
        # The plan's overhead is the start of one of several at once, which takes longer than one alone.
        slowdown = 1.0 + start.slowdown_per_other * (TYPICAL_INSTANCES - 1)
        entry["worker_start_s"] = entry["retraining_start_s"] = choice.value / slowdown


def _window(config: Config, point: Point) -> int:
    window = next((choice.value for choice in point if choice.key == "window"), 0)
    assert isinstance(window, int)
    if window >= config.windows:
        raise GridError(f"--vary window={window}: the config has windows 0 to {config.windows - 1}")
    return window


def _solving(point: Point, time_limit_s: float | None) -> Solving:
    chosen = {choice.key: str(choice.value) for choice in point}
    engine = chosen.get("engine")
    model = chosen.get("model") or (PHYSICAL if engine is None or engine in engine_names(PHYSICAL) else PAPER)
    if engine is not None and engine not in engine_names(model):
        raise GridError(
            f"--vary engine={engine}, model={model}: engines for {model} are {', '.join(engine_names(model))}"
        )
    return Solving(Reconfiguration(model), engine, time_limit_s=time_limit_s)


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
        slo_attainment_pct: Requests that the plan expects in time, of arrivals; ``None`` where that is unknown.
    """

    name: str
    arrivals: float
    goodput: float | None
    goodput_pct: float | None
    retraining: PlannedRetraining | None
    slo_attainment_pct: float | None = None


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """What planning came to at one point.

    Attributes:
        point: Where in the grid.
        status: The plan's (``optimal``, ``feasible``, ``timeout``, ``infeasible``), ``invalid`` where the plan
            breaks a rule, ``failed`` where the engine cannot answer, ``unmeasured`` without service profiles.
        model: The cost model.
        engine: Who planned.
        arrivals: Expected requests times their tenants' weights; ``None`` where no profile meets an SLO.
        goodput: The plan's, without salvage, in the same unit; ``None`` without a plan, as are those that follow.
        bound: No plan has more goodput and salvage, by the certificate; ``None`` where it proves none.
        gap: Between that and the plan's goodput and salvage, relative.
        claimed_bound: No plan has more, by the engine's word.
        claimed_gap: To that.
        solve_s: Wall seconds of the engine; the only figure that differs from one time to the next.
        tenants: In the config's order; empty without a plan.
        reason: Why there is no plan.
        assumed: What was neither given nor measured.
        slo_attainment_pct: Requests that the plan expects in time, of all expected ones whatever their weight; ``None``
            where that is unknown.
        salvage: What the plan expects models to be worth beyond the window; ``None`` where plans do not count that.
        least_salvage: Every plan has as much of it.
    """

    point: Point
    status: str
    model: str
    engine: str
    arrivals: float | None = None
    goodput: float | None = None
    bound: float | None = None
    gap: float | None = None
    claimed_bound: float | None = None
    claimed_gap: float | None = None
    solve_s: float | None = None
    tenants: tuple[TenantOutcome, ...] = ()
    reason: str | None = None
    assumed: tuple[Assumed, ...] = ()
    slo_attainment_pct: float | None = None
    salvage: float | None = None
    least_salvage: float = 0.0

    @property
    def goodput_pct(self) -> float | None:
        """Expected goodput of expected arrivals."""
        return None if self.goodput is None or not self.arrivals else 100 * self.goodput / self.arrivals

    @property
    def goodput_bound(self) -> float | None:
        """No plan has more goodput, by the certificate."""
        return None if self.bound is None else self.bound - self.least_salvage


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
    outcomes: tuple[PointOutcome, ...]
    notes: tuple[str, ...] = ()

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What was neither given nor measured, at any point."""
        return assumed_in_any(outcome.assumed for outcome in self.outcomes)

    @property
    def best(self) -> PointOutcome | None:
        """The first of those with the highest share of goodput; ``None`` where there is no plan at all."""
        return best_of(self.outcomes)


def best_of(outcomes: Iterable[PointOutcome]) -> PointOutcome | None:
    """The first of those with the highest share of goodput; ``None`` where none has one."""
    planned = (outcome for outcome in outcomes if outcome.goodput_pct is not None)
    return max(planned, key=lambda outcome: outcome.goodput_pct or 0.0, default=None)


def outcome_of(case: Case) -> PointOutcome:
    """The case's window planned; same case, same outcome, but for ``solve_s`` and what a time limit cuts off."""
    model = case.solving.reconfiguration.value
    engine = case.solving.engine or default_engine(model)
    try:
        setting, traffic = assemble(case.config, case.origin)
        planned = plan_through(setting, traffic, case.window, case.solving)[-1]
    except (ConfigSloError, InfeasibleError) as error:
        reason = str(error).removeprefix(f"{case.origin}: ")
        return PointOutcome(case.point, Status.INFEASIBLE.value, model, engine, reason=reason)
    except PlannerError as error:
        return PointOutcome(case.point, "failed", model, engine, reason=str(error))
    problem, plan = planned.problem, planned.plan
    outcome = PointOutcome(
        case.point,
        plan.status.value,
        model,
        plan.engine,
        arrivals=problem.most_goodput,
        solve_s=plan.solve_s,
        assumed=assumed_in(setting),
    )
    if planned.is_planned:
        tenants = tuple(tenant_outcomes(problem, plan))
        return replace(
            outcome,
            goodput=plan.expected_goodput,
            bound=plan.bound,
            gap=plan.gap,
            claimed_bound=plan.claimed_bound,
            claimed_gap=plan.claimed_gap,
            tenants=tenants,
            slo_attainment_pct=attainment_pct(tenants),
            salvage=plan.salvage if any(tenant.salvage for tenant in problem.tenants) else None,
            least_salvage=least_salvage(problem),
        )
    if planned.verification is not None:
        reason = f"the plan breaks a rule: {planned.verification.broken_rules[0]}"
        return replace(outcome, status="invalid", reason=reason)
    found_none = none_found(plan) if plan.missed else "no plan within the budget"
    return replace(outcome, reason=str(plan.infeasibility or found_none))


def least_salvage(problem: Problem) -> float:
    """What models are worth beyond the window under any plan."""
    return sum(min(tenant.salvages[int(tenant.must_retrain) :]) for tenant in problem.tenants)


def tenant_outcomes(problem: Problem, plan: MigPlan) -> Iterator[TenantOutcome]:
    """What the plan promises each tenant of its problem."""
    for course in courses(problem, plan):
        tenant = course.tenant
        arrivals = float(tenant.arrivals_rps.sum()) * problem.step_s
        goodput = float(course.goodput.sum()) / tenant.weight if tenant.weight > 0 else None
        share = None if goodput is None or arrivals == 0 else 100 * goodput / arrivals
        yield TenantOutcome(tenant.name, arrivals, goodput, share, _retraining(course), _in_time_pct(course, arrivals))


def _in_time_pct(course: Course, arrivals: float) -> float | None:
    """At most 100: gain tables are means over sample paths, which may bring more than the forecast's mean."""
    if course.in_time is None or arrivals == 0:
        return None
    return min(100.0, max(0.0, 100 * float(course.in_time.sum()) / arrivals))


def attainment_pct(tenants: Iterable[TenantOutcome]) -> float | None:
    """All tenants' requests in time, of all their arrivals."""
    busy = [(tenant.arrivals, tenant.slo_attainment_pct) for tenant in tenants if tenant.arrivals > 0]
    known = [arrivals * share for arrivals, share in busy if share is not None]
    return sum(known) / sum(arrivals for arrivals, _ in busy) if busy and len(known) == len(busy) else None


def _retraining(course: Course) -> PlannedRetraining | None:
    """The retraining that the plan starts; one that was running before has no option."""
    run = course.retraining
    if run is None or run.option is None:
        return None
    return PlannedRetraining(run.option, run.where, run.create_step, run.end_step)
