"""``migrator-paper``: the paper's own method as published, and ``migrator-paper-cold``, the same without its §4.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from executor.compiled import working_s
from planner.engines.answer import relaxed_bound
from planner.engines.physical.plan import with_held
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan, Status
from planner.policies.paper.pre_initialisation import fed_back_overhead_s, pre_initialised, served, simple_facts
from planner.policies.paper.realised import Realised, realised
from planner.policies.policy import Batching, Knows, Policy, Traits, Window
from planner.problem import (
    PaperState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    TenantTerms,
    without_floors,
)
from planner.solve import solve
from planner.unavailable import unavailable_within
from planner.verify import verify

AS_GIVEN = Traits(batching=Batching.GIVEN)

FALLBACKS = ("greedy", "static", "physical")
"""Engines that plan the window where the paper's plan cannot be carried out, the first that has a plan."""


@dataclass(frozen=True)
class MigratorPaper(Policy):
    """Plans the window in the paper's cost model, realises that, and pre-initialises afterwards.

    Source: MIGRator, §4.1 (the program, corrected as in ``planner.engines.milp.paper_ilp``) and §4.2.
    Knows: the forecast's mean, estimates of accuracy and retraining time. Batches as given.
    Taken: one plan a window, free to change in every second at the price R·Ψ/N·C. Goodput is min(arrivals, capacity).
    Pre-initialisation is found by going through the finished plan, and lowers Ψ by what it hid in the last window.
    Adaptations: the program is solved to optimality within the budget by the engine ``exact``, not by Gurobi. It
    begins where the layout may first change. Retraining times include start-up as it is physically. Instances stay
    where they are and changes are Ω apart, which the paper's program does not know: see
    :mod:`planner.policies.paper.realised`. An engine of ``FALLBACKS`` plans a window for which that finds no way, in
    which a retraining is in progress at the start, or for which the program has no plan. The plan's ``work`` counts
    that, as ``fallback_greedy`` and so on.
    Kind to it, beyond the paper: slices that a retraining leaves at a change count as unused from then on, and what the
    new instances replace goes on for Ω. A window is planned with the lowered Ψ and with the whole one, and the plan is
    taken that is worth more by min(a, C) once carried out: after a window with idle slices the next need not have any.
    Nothing is trimmed from the program's plan: see "The paper's method on hardware" in docs/policies.md.

    Attributes:
        pre_initialises: Whether new instances are created on unused slices beside what they replace, and Ψ is
            lowered by what was created ahead.
    """

    name: str = "migrator-paper"
    knows: Knows = Knows.FORECAST
    traits: Traits = AS_GIVEN
    pre_initialises: bool = True

    @property
    def recalls_all(self) -> bool:
        """It looks for the last window that had warm-up."""
        return True

    def plan(self, window: Window) -> MigPlan:
        """The paper's plan of the window as hardware can carry it out."""
        started_s = working_s()
        problem = without_floors(window.problem)
        window = replace(window, problem=problem)
        facts = WindowFacts.of(problem)
        if facts.first_step == facts.n_steps or facts.running:
            return self._fallback(window)
        simple = simple_facts(problem)
        ways = [way for overhead_s in self._overheads_s(window) if (way := self._way(window, facts, overhead_s))]
        if not ways:
            return self._fallback(window)
        best = max(ways, key=lambda way: served(simple, way.held, way.placed))
        bound = relaxed_bound(facts)
        answer = with_held(facts, best.held, best.placed, bound, self.name, started_s)
        if verify(problem, answer).violations:  # what is held before the first change may break a rule already
            return self._fallback(window)
        return replace(answer, work=(("planned_changes", best.n_planned_changes), ("epochs", len(best.held) - 1)))

    def _overheads_s(self, window: Window) -> list[tuple[float, ...]]:
        """The Ψ to plan with: fed back, and in full where that differs."""
        full = tuple(tenant.overhead_s for tenant in window.problem.tenants)
        fed_back = fed_back_overhead_s(window.problem, window.plans) if self.pre_initialises else full
        return list(dict.fromkeys((fed_back, full)))

    def _way(self, window: Window, facts: WindowFacts, overhead_s: Sequence[float]) -> Realised | None:
        """The program's plan with these Ψ, carried out; ``None`` where there is none or it cannot be."""
        wanted = solve(paper_problem(window.problem, overhead_s), "exact", window.budget)
        found = realised(facts, wanted) if wanted.status.has_plan else None
        if found is None or not self.pre_initialises:
            return found
        return replace(found, held=pre_initialised(facts, found.held, found.placed))

    def _fallback(self, window: Window) -> MigPlan:
        """The plan of the first of ``FALLBACKS`` that has one; else the last one's answer."""
        for engine in FALLBACKS:
            plan = solve(window.problem, engine, window.budget)
            if plan.status.has_plan or plan.status is Status.INFEASIBLE:
                break
        return replace(plan, work=(*plan.work, (f"fallback_{engine}", 1)))


@dataclass(frozen=True)
class MigratorPaperCold(MigratorPaper):
    """``migrator-paper`` without pre-initialisation: what §4.2 of the paper is worth is the difference."""

    name: str = "migrator-paper-cold"
    pre_initialises: bool = False


def paper_problem(problem: Problem, overhead_s: Sequence[float]) -> Problem:
    """A ``physical`` problem, from where its layout may first change, as the paper poses it, with these Ψ.

    Each retraining takes as many steps as it does physically, start-up included; gains are min(a, C).
    """
    first = min(problem.opening.next_epoch_step, problem.n_steps)
    return replace(
        problem,
        n_steps=problem.n_steps - first,
        reconfiguration=Reconfiguration.PAPER,
        tenants=tuple(
            _paper_tenant(problem, tenant, psi_s, first)
            for tenant, psi_s in zip(problem.tenants, overhead_s, strict=True)
        ),
        initial=_paper_state(problem),
        gains=None,
        unavailable=unavailable_within(problem.unavailable, first, problem.n_steps - first),
    )


def _paper_tenant(problem: Problem, tenant: TenantTerms, psi_s: float, first: int) -> TenantTerms:
    def time_s(option: RetrainingOption) -> dict[str, float]:
        return {name: problem.occupied_steps(tenant, option, name) * problem.step_s for name in option.time_s}

    options = tuple(replace(option, time_s=time_s(option)) for option in tenant.options)
    return replace(tenant, arrivals_rps=tenant.arrivals_rps[first:], overhead_s=psi_s, options=options)


def _paper_state(problem: Problem) -> PaperState | None:
    held = [(item.tenant, item.placement.profile.name) for item in problem.opening.held]
    by_tenant = {own: tuple(profile for name, profile in held if name == own) for own in problem.tenant_names}
    return None if problem.initial is None else PaperState(by_tenant)
