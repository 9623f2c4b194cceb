"""What a solve returns: which instances each task holds at each step, and how good that provably is.

A plan speaks of profiles (``paper``) or placements (``physical``), never of instance ids or UUIDs.
Steps are half-open: ``[from_step, to_step)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.arrays import Floats
from planner.problem import Owner, Per, Problem, Reconfiguration, Task, TenantTerms

OPTIMAL_GAP = 1e-9
"""A plan whose relative gap is at most this counts as optimal."""

ANYWHERE = -1
"""The start of an instance in ``paper``, where it may sit elsewhere in every step."""

LARGEST_PRICE = 1e100
"""Prices of a certificate beyond this are refused: sums of them could overflow."""


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    TIMEOUT = "timeout"
    INFEASIBLE = "infeasible"

    @property
    def has_plan(self) -> bool:
        """Whether there is something to execute."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)


class Rule(StrEnum):
    """What a violation, or the reason of an infeasible problem, is about.

    A rule of the design's section 4, or the plan's own consistency.
    """

    LAYOUT = "rule 1"
    PROFILE = "rule 2"
    RETRAINING = "rule 3"
    MIN_PROFILE = "rule 4"
    OBJECTIVE = "rule 5"
    FLOOR = "min_slo_attainment"
    EPOCHS = "epochs"
    WARM_UP = "warm-up"
    LOAN = "loan"
    SHAPE = "shape"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class InferenceSpan:
    """``paper``: the profiles that inference holds over ``[from_step, to_step)``, in catalogue order."""

    from_step: int
    to_step: int
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetrainingSpan:
    """``paper``: a retraining holds one instance of ``profile`` over ``[start_step, end_step)``."""

    profile: str
    start_step: int
    end_step: int
    option: str


@dataclass(frozen=True, slots=True)
class TenantSchedule:
    """``paper``: all that one tenant holds over the window."""

    name: str
    inference: tuple[InferenceSpan, ...]
    retraining: RetrainingSpan | None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``physical``: one instance from its creation to its destruction.

    Attributes:
        placement: Where it sits.
        owner: The task that holds it.
        create_step: Its slices are taken from here on (0 for what the window starts with).
        serve_step: Serves, or trains, from here on; at or after ``create_step``.
        end_step: First step in which it is gone; ``n_steps`` if it outlives the window. An instance
            whose ``serve_step`` ≥ n_steps is still warming when the window ends.
        option: Which retraining option runs in it, for a retraining that starts in the window; ``None`` for one that
            was in progress when the window opened.
        lent: Whether it is a retraining in an instance that its tenant's pool goes on holding: no member is served
            there from ``serve_step`` to ``end_step``. Its trainer starts at ``create_step``; no driver is called.
    """

    placement: Placement
    owner: Owner
    create_step: int
    serve_step: int
    end_step: int
    option: str | None = None
    lent: bool = False

    @property
    def is_inference(self) -> bool:
        """Whether the instance serves requests."""
        return self.owner.task is Task.INFERENCE

    @property
    def where(self) -> str:
        """The placement; in ``paper``, where that may change, the profile."""
        return self.placement.profile.name if self.placement.start == ANYWHERE else str(self.placement)


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why no plan exists: the tenant (if one is to blame), the rule of the design's section 4, a sentence."""

    tenant: str | None
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{f'tenant {self.tenant}: ' if self.tenant else ''}{self.message} ({self.rule})"


class _Prices:
    """What both kinds of certificates have: a table of prices, and multipliers of floors per window."""

    prices: Floats
    multipliers: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        prices = np.array(self.prices, dtype=np.float64)
        prices.setflags(write=False)
        object.__setattr__(self, "prices", prices)

    def left(self, step: int) -> Self:
        """What is left of it for the problem of the steps from ``step`` on: any prices are a certificate."""
        return replace(self, prices=self.prices[step:], multipliers=())  # type: ignore[type-var] # both kinds are dataclasses

    def _misfit(self, problem: Problem, shape: tuple[int, int]) -> str | None:
        """Why its numbers are no such certificate's; ``None`` if they are."""
        if self.prices.shape != shape:
            return f"the certificate's prices have shape {self.prices.shape}; {shape} is needed"
        if not (np.abs(self.prices) <= LARGEST_PRICE).all():
            return f"the certificate's prices are not all finite and from {-LARGEST_PRICE:g} to {LARGEST_PRICE:g}"
        floors = {tenant.name: tenant.min_slo_attainment for tenant in problem.tenants}
        for name, value in self.multipliers:
            floor = floors.get(name)
            if floor is None or floor.per is not Per.WINDOW:
                return f"the certificate has a multiplier for {name}, which is no tenant with a floor per window"
            if [other for other, _ in self.multipliers].count(name) > 1:
                return f"the certificate has two multipliers for {name}; one is allowed"
            if not 0 <= value <= LARGEST_PRICE:
                return (
                    f"the certificate's multiplier of {name} is {value}; a number from 0 to {LARGEST_PRICE:g} is needed"
                )
        return None


@dataclass(frozen=True, eq=False)
class Certificate(_Prices):
    """Dual values from which anyone can recompute a bound on every plan of a problem.

    They are prices of instances. Pay for all that a plan holds, and be paid for the dearest set that
    fits the GPU: that never takes goodput from a plan, since what it holds in a step fits. With
    prices the tenants no longer depend on each other, so each one's best is a small path problem::

        bound = Σ_s max over feasible counts n of prices[s] · n
              + Σ_m max over what m alone could do of (its goodput − prices of all that it holds)

    It holds for any prices; good ones make it low. Source: Lagrangian duality, with what
    fits the GPU relaxed.

    Floors of in-time answers: per step, what a tenant alone could do keeps them too, or pays more than it can win. Per
    window, a multiplier λ_m ≥ 0 of requests for each in time is added to its goodput, and λ_m times what its floor asks
    for is taken off the bound. That holds for any multipliers, as no plan that keeps the floor loses by it.

    Attributes:
        profile_names: The columns of ``prices``.
        prices: Requests per instance held through a step, ``(n_steps, n_profiles)``, read-only.
        multipliers: (tenant, λ) of tenants with a floor per window, in the problem's order; 0 for others.
    """

    profile_names: tuple[str, ...]
    prices: Floats
    multipliers: tuple[tuple[str, float], ...] = ()

    def misfit(self, problem: Problem, n_steps: int) -> str | None:
        """Why this is no certificate for the problem with so many steps; ``None`` if it is one."""
        names, known = self.profile_names, problem.gpu.profile_names
        if not set(names) <= set(known) or len(set(names)) < len(names):
            return f"the certificate prices {', '.join(names)}; different ones of {', '.join(known)} are allowed"
        return self._misfit(problem, (n_steps, len(names)))


class TenantStatus(NamedTuple):
    """How far a tenant's retraining is: it ``runs`` on a profile or is ``done`` with an option, else it waits.

    Attributes:
        tenant: Its name.
        kind: One of the two.
        of: Name of the profile or of the option.
    """

    tenant: str
    kind: str
    of: str

    def __str__(self) -> str:
        return " ".join(self)


def statuses_of(tenant: TenantTerms) -> tuple[TenantStatus, ...]:
    """All that a tenant's retraining can be in but waiting; none where it has no retraining."""
    profiles = dict.fromkeys(name for option in tenant.options for name in option.time_s)
    runs = (TenantStatus(tenant.name, "runs", name) for name in profiles)
    done = (TenantStatus(tenant.name, "done", option.name) for option in tenant.options)
    return *runs, *done


@dataclass(frozen=True, eq=False)
class StatusCertificate(_Prices):
    """The same for plans of ``paper``, from prices of statuses; most often it leaves no gap.

    Two views of a plan have to agree on every tenant's status in every step: a path of all tenants together over the
    steps, which knows what fits the GPU and what changes cost but not how long a retraining takes; and each tenant's
    schedule, a way to retrain with its start, which knows durations alone. The path pays for each status, and the
    schedule is paid for it::

        bound = max over paths of Σ_s (what is earned in s − Σ_m prices[s, status of m in the path])
              + Σ_m max over schedules of m of (Σ_s prices[s, status of m in the schedule]
                                                + salvage + the most that checkpoints add)

    In a path a tenant that waits may begin to run in any step on any profile that has a way, and one that runs for a
    step or longer may be done with any option that this profile has a way for. It earns what the old model does until
    then. All that is held, retrainings too, fits the GPU in each step.

    Any plan is one of the paths and, for each tenant, one of the schedules. With them the prices cancel out, so the
    bound holds for any numbers; good ones make it low. Source: Lagrangian duality, with the agreement relaxed; what
    lowers it is sequential reweighted message passing (Kolmogorov, 2006), in ``planner.engines.paper.sweeps``.

    Floors of in-time answers are as in :class:`Certificate`.

    Attributes:
        statuses: The columns of ``prices``; other statuses, and waiting, cost nothing.
        prices: Requests per step in a status, ``(n_steps, n_statuses)``, read-only.
        multipliers: (tenant, λ) of tenants with a floor per window, in the problem's order; 0 for others.
    """

    statuses: tuple[TenantStatus, ...]
    prices: Floats
    multipliers: tuple[tuple[str, float], ...] = ()

    def misfit(self, problem: Problem, n_steps: int) -> str | None:
        """Why this is no certificate for the problem with so many steps; ``None`` if it is one."""
        if problem.reconfiguration is not Reconfiguration.PAPER:
            return f"the certificate prices statuses; that of a {problem.reconfiguration} plan prices profiles"
        known = dict.fromkeys(status for tenant in problem.tenants for status in statuses_of(tenant))
        for status in self.statuses:
            if status not in known or self.statuses.count(status) > 1:
                allowed = ", ".join(map(str, known)) or "none: no tenant has a retraining"
                return f"the certificate prices {status}; different ones of these are allowed: {allowed}"
        return self._misfit(problem, (n_steps, len(self.statuses)))


AnyCertificate: TypeAlias = Certificate | StatusCertificate


@dataclass(frozen=True)
class MigPlan:
    """A plan on MIG instances with its certificate.

    Attributes:
        status: ``optimal`` iff ``claimed_gap`` ≤ 1e-9: what the engine's search says, whatever a certificate proves.
        objective: Goodput and salvage in requests; recomputed from the decoded plan, not the solver's figure.
        claimed_bound: No plan is better than this, by its engine's word.
        solve_s: Wall seconds from Problem value to Plan value, but for ``load_s``.
        engine: Which engine made it.
        reconfiguration: Which model it answers.
        n_steps: Steps of the window.
        schedules: ``paper``: one a tenant, in the problem's order.
        lifetimes: ``physical``: sorted by create step, then placement.
        next_epoch_step: ``physical``: first step at which a following window may change the held set;
            counted from this window's start, so it may exceed n_steps.
        infeasibility: Set iff the status is ``infeasible``.
        work: What the engine did (schedules, nodes …), for reports and work budgets.
        certificate: Dual values from which ``planner.verify`` recomputes a bound; it may lie above ``claimed_bound``,
            which a search can lower further. ``None`` where the engine has none.
        bound: No plan is better than this, by the certificate. ``None`` until ``planner.verify.with_proof`` puts it
            here, and where the certificate proves none; engines leave it to that.
        missed: What this plan, or without one the nearest that was found, lacks of floors of in-time answers; a
            sentence for each.
        floor_costs: How far the objective is below the best plan's without floors, as a share of the requests that
            arrive, weighted as goodput is; ``None`` where it was not asked what floors cost.
        keeping_costs: The same of the best plan found that keeps all floors; ``None`` where none was found, too.
        burst_loss: Set iff this is a layout that stays, chosen in the place of a plan worth more on average: the share
            of the requests of the worst tenth of arrivals that the other would have lost by it (``planner.bursts``).
        load_s: Wall seconds in which ``planner.solve`` loaded the engine and loaded or compiled its loops.
        salvage: What of the objective is salvage: what the levels at the window's end are worth beyond it.
    """

    status: Status
    objective: float | None
    claimed_bound: float | None
    solve_s: float
    engine: str
    reconfiguration: Reconfiguration
    n_steps: int
    schedules: tuple[TenantSchedule, ...] = ()
    lifetimes: tuple[Lifetime, ...] = ()
    next_epoch_step: int = 0
    infeasibility: Infeasibility | None = None
    work: tuple[tuple[str, int], ...] = ()
    certificate: AnyCertificate | None = field(default=None, compare=False)
    bound: float | None = field(default=None, compare=False)
    missed: tuple[str, ...] = ()
    floor_costs: float | None = None
    keeping_costs: float | None = None
    burst_loss: float | None = None
    load_s: float = field(default=0.0, compare=False)
    salvage: float = 0.0

    def __repr__(self) -> str:
        """One line: what it is worth, not what it holds."""
        figures = ("objective", "claimed_bound", "bound", "engine", "n_steps")
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in figures)
        n_held = len(self.schedules or self.lifetimes)
        held = "schedules" if self.reconfiguration is Reconfiguration.PAPER else "lifetimes"
        return f"MigPlan({self.status}, {told}, {n_held} {held})"

    @property
    def expected_goodput(self) -> float | None:
        """The objective without salvage: what the window itself is expected to earn; ``None`` without a plan."""
        return None if self.objective is None else self.objective - self.salvage

    @property
    def goodput_gap(self) -> float | None:
        """The gap over the bound without this plan's salvage; ``None`` where there is no gap.

        What a plan may be short of its bound, in shares of goodput alone: salvage, the same in both, hides none of it.
        """
        return gap_between(self.bound, self.objective, self.salvage)

    @property
    def gap(self) -> float | None:
        """How far a plan may be better, by the certificate; ``None`` without a plan, or where nothing is proven."""
        return gap_between(self.bound, self.objective)

    @property
    def claimed_gap(self) -> float | None:
        """The same by the engine's word; ``None`` without a plan, or a claim."""
        return gap_between(self.claimed_bound, self.objective)


def gap_between(bound: float | None, objective: float | None, salvage: float = 0.0) -> float | None:
    """(bound − objective) / max(|bound − salvage|, 1e-9), never negative; ``None`` where one of both is missing."""
    if objective is None or bound is None:
        return None
    return max(bound - objective, 0.0) / max(abs(bound - salvage), 1e-9)  # in this order NaN stays NaN


def salvage_of(problem: Problem, schedules: Sequence[TenantSchedule], lifetimes: Sequence[Lifetime]) -> float:
    """What the levels at the end of a plan of these schedules or lifetimes are worth beyond the window, in requests."""
    options: dict[str, str | None]
    options = {item.name: item.retraining.option for item in schedules if item.retraining is not None}
    options |= {item.owner.tenant: item.option for item in lifetimes if not item.is_inference}
    levels = {name: problem.tenant(name).level_of(option) for name, option in options.items()}
    return sum(tenant.salvages[levels.get(tenant.name, 0)] for tenant in problem.tenants)


def next_epoch_step(problem: Problem, lifetimes: Sequence[Lifetime], before_step: int) -> int:
    """First step at which the held set may change again after the epochs before a step of a ``physical`` plan."""
    held = [item for item in lifetimes if item.is_inference and item.create_step < item.end_step]
    epochs = {step for item in held for step in (item.create_step, item.end_step) if 0 < step < before_step}
    at_start = {(item.placement, item.owner) for item in held if item.create_step == 0}
    if problem.initial is not None and at_start != problem.kept_at_start.keys():
        epochs.add(0)
    if problem.is_repartitioned and problem.opening.next_epoch_step < before_step:
        epochs.add(problem.opening.next_epoch_step)
    return max([problem.opening.next_epoch_step, *(epoch + problem.epoch_steps for epoch in epochs)])


def status_of(objective: float, bound: float) -> Status:
    """``optimal`` or ``feasible`` by the gap between a plan's objective and its bound."""
    gap = gap_between(bound, objective)
    return Status.OPTIMAL if gap is not None and gap <= OPTIMAL_GAP else Status.FEASIBLE


def with_plan(
    problem: Problem,
    value: float,
    bound: float,
    engine: str,
    started_s: float,
    *,
    schedules: tuple[TenantSchedule, ...] = (),
    lifetimes: tuple[Lifetime, ...] = (),
    work: tuple[tuple[str, int], ...] = (),
) -> MigPlan:
    """A plan worth ``value``, where no plan is worth more than ``bound``.

    ``started_s`` is on ``executor.compiled.working_s``. Plans of ``paper`` have schedules, of ``physical`` lifetimes.
    """
    return replace(
        without_plan(problem, status_of(value, bound), engine, started_s, bound),
        objective=value,
        schedules=schedules,
        lifetimes=lifetimes,
        next_epoch_step=next_epoch_step(problem, lifetimes, problem.n_steps),
        work=work,
        salvage=salvage_of(problem, schedules, lifetimes),
    )


def without_plan(
    problem: Problem,
    status: Status,
    engine: str,
    started_s: float,
    bound: float | None = None,
    infeasibility: Infeasibility | None = None,
) -> MigPlan:
    """The answer when there is no plan, or none was found."""
    return MigPlan(
        status=status,
        objective=None,
        claimed_bound=bound,
        solve_s=working_s() - started_s,
        engine=engine,
        reconfiguration=problem.reconfiguration,
        n_steps=problem.n_steps,
        infeasibility=infeasibility,
    )
