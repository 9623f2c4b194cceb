"""What a solve returns: which instances each task holds at each step, and how good that provably is.

A plan speaks of profiles (``paper``) or placements (``physical``), never of instance ids or UUIDs.
Steps are half-open: ``[from_step, to_step)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from executor.mig import Placement
from planner.problem import Owner, Per, Problem, Reconfiguration, Task, TenantTerms

OPTIMAL_GAP = 1e-9
"""A plan whose relative gap is at most this counts as optimal."""

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
        option: Which retraining option runs in it, for a retraining that starts in the window.
    """

    placement: Placement
    owner: Owner
    create_step: int
    serve_step: int
    end_step: int
    option: str | None = None

    @property
    def is_inference(self) -> bool:
        """Whether the instance serves requests."""
        return self.owner.task is Task.INFERENCE


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why no plan exists: the tenant (if one is to blame), the rule of the design's section 4, a sentence."""

    tenant: str | None
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{f'tenant {self.tenant}: ' if self.tenant else ''}{self.message} ({self.rule})"


@dataclass(frozen=True, eq=False)
class Certificate:
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
    prices: NDArray[np.float64]
    multipliers: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        prices = np.array(self.prices, dtype=np.float64)
        prices.setflags(write=False)
        object.__setattr__(self, "prices", prices)

    def left(self, step: int) -> Certificate:
        """What is left of it for the problem of the steps from ``step`` on: any prices are a certificate."""
        return Certificate(self.profile_names, self.prices[step:])

    def misfit(self, gpu_profile_names: Sequence[str], n_steps: int) -> str | None:
        """Why this is no certificate for a problem on such a GPU with as many steps; ``None`` if it is one."""
        names, shape = self.profile_names, (n_steps, len(self.profile_names))
        if not set(names) <= set(gpu_profile_names) or len(set(names)) < len(names):
            allowed = ", ".join(gpu_profile_names)
            return f"the certificate prices {', '.join(names)}; different ones of {allowed} are allowed"
        if self.prices.shape != shape:
            return f"the certificate's prices have shape {self.prices.shape}; {shape} is needed"
        if not (np.abs(self.prices) <= LARGEST_PRICE).all():
            return f"the certificate's prices are not all finite and from {-LARGEST_PRICE:g} to {LARGEST_PRICE:g}"
        return None

    def multiplier_misfit(self, tenants: Sequence[TenantTerms]) -> str | None:
        """Why its multipliers do not go with these tenants' floors; ``None`` if they do."""
        floors = {tenant.name: tenant.min_slo_attainment for tenant in tenants}
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


@dataclass(frozen=True)
class MigPlan:
    """A plan on MIG instances with its certificate.

    Attributes:
        status: ``optimal`` iff ``gap`` ≤ 1e-9.
        objective: Goodput and salvage in requests; recomputed from the decoded plan, not the solver's figure.
        bound: No plan is better than this.
        solve_s: Wall seconds from Problem value to Plan value, but for ``load_s``.
        engine: Who made it.
        reconfiguration: Which model it answers.
        n_steps: Steps of the window.
        schedules: ``paper``: one a tenant, in the problem's order.
        lifetimes: ``physical``: sorted by create step, then placement.
        next_epoch_step: ``physical``: first step at which a following window may change the held set;
            counted from this window's start, so it may exceed n_steps.
        infeasibility: Set iff the status is ``infeasible``.
        work: What the engine did (schedules, nodes …), for reports and work budgets.
        certificate: Dual values from which ``planner.verify`` recomputes a bound; it may lie above ``bound``,
            which a search can lower further. ``None`` where the engine has none.
        missed: What this plan, or without one the nearest that was found, lacks of floors of in-time answers; a
            sentence for each.
        burst_loss: Set iff this is a layout that stays, chosen in the place of a plan worth more on average: the share
            of the requests of the worst tenth of arrivals that the other would have lost by it (``planner.bursts``).
        load_s: Wall seconds in which ``planner.solve`` loaded the engine and loaded or compiled its loops.
        salvage: What of the objective is salvage: what the levels at the window's end are worth beyond it.
    """

    status: Status
    objective: float | None
    bound: float | None
    solve_s: float
    engine: str
    reconfiguration: Reconfiguration
    n_steps: int
    schedules: tuple[TenantSchedule, ...] = ()
    lifetimes: tuple[Lifetime, ...] = ()
    next_epoch_step: int = 0
    infeasibility: Infeasibility | None = None
    work: tuple[tuple[str, int], ...] = ()
    certificate: Certificate | None = field(default=None, compare=False)
    missed: tuple[str, ...] = ()
    burst_loss: float | None = None
    load_s: float = field(default=0.0, compare=False)
    salvage: float = 0.0

    @property
    def expected_goodput(self) -> float | None:
        """The objective without salvage: what the window itself is expected to earn; ``None`` without a plan."""
        return None if self.objective is None else self.objective - self.salvage

    @property
    def goodput_gap(self) -> float | None:
        """(bound − objective) over the bound without this plan's salvage, never negative; ``None`` without a plan.

        What a plan may be short of its bound, in shares of goodput alone: salvage, the same in both, hides none of it.
        """
        if self.objective is None or self.bound is None:
            return None
        return max(0.0, self.bound - self.objective) / max(abs(self.bound - self.salvage), 1e-9)

    @property
    def gap(self) -> float | None:
        """(bound − objective) / max(|bound|, 1e-9), never negative; ``None`` without a plan."""
        if self.objective is None or self.bound is None:
            return None
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-9)


def salvage_of(problem: Problem, schedules: Sequence[TenantSchedule], lifetimes: Sequence[Lifetime]) -> float:
    """What the levels at the end of a plan of these schedules or lifetimes are worth beyond the window, in requests.

    A retraining without an option's name was in progress when the window opened: always the first option.
    """
    by_tenant = {item.name: item.retraining.option for item in schedules if item.retraining is not None}
    by_tenant |= {item.owner.tenant: item.option or "" for item in lifetimes if not item.is_inference}
    total = 0.0
    for tenant in problem.tenants:
        level, names = 0, [option.name for option in tenant.options]
        if tenant.name in by_tenant:
            level = 1 + names.index(by_tenant[tenant.name] or names[0])
        total += tenant.salvages[level]
    return total


def status_of(objective: float, bound: float) -> Status:
    """``optimal`` or ``feasible`` by the gap between a plan's objective and its bound."""
    gap = (bound - objective) / max(abs(bound), 1e-9)
    return Status.OPTIMAL if gap <= OPTIMAL_GAP else Status.FEASIBLE
