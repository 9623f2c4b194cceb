"""Explanations: exchanging one layout is valued as the plan's own goodput is, and never beats a plan proven best."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from lent_problems import lent_problem
from plans import continued_case, lent_case, physical_case
from problems import case_name, paper_problem, physical_problem, pooled_problem
from windows import tenant, window

from executor.catalogue import gpu_model
from planner.course import courses
from planner.engines.physical.plan import with_held
from planner.engines.schedule import WindowFacts
from planner.errors import ProblemError
from planner.explain import AFTER, BEFORE, HELD, LoanWorth, explain
from planner.plan import InferenceSpan, Lifetime, MigPlan, RetrainingSpan, Status, TenantSchedule, with_plan
from planner.problem import (
    AttainmentFloor,
    HeldInstance,
    PaperState,
    Per,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    Retraining,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.solve import solve
from planner.unavailable import Unavailable
from planner.verify import verify
from tests.seeds import daily

CASES = [
    *((paper_problem, seed) for seed in range(25)),
    *((physical_problem, seed) for seed in range(25)),
    *((pooled_problem, seed) for seed in range(0, 40, 4)),
]


@cache
def solved(case) -> tuple[Problem, MigPlan]:
    problem = case[0](case[1])
    return problem, solve(problem)


@pytest.mark.parametrize("case", daily(CASES, CASES[::2]), ids=case_name)
def test_no_alternative_beats_what_a_plan_proven_best_holds(case) -> None:
    problem, plan = solved(case)
    if plan.status is not Status.OPTIMAL:
        return
    for step in range(problem.n_steps):
        found = explain(problem, plan, step)
        slack = 1e-6 * max(1.0, plan.objective or 0.0)
        assert all(choice.net <= found.held.net + slack for choice in found.alternatives)
        assert "better" not in found.reason


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_the_net_of_what_is_held_is_what_the_plan_earns_there(case) -> None:
    problem, plan = solved(case)
    if not plan.status.has_plan:
        return
    by_step = sum(course.goodput for course in courses(problem, plan))
    for step in range(problem.n_steps):
        found = explain(problem, plan, step)
        if found.to_step == problem.n_steps:
            earned = float(by_step[found.from_step :].sum())
            assert found.held.net == pytest.approx(earned, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_exchanging_a_layout_in_a_paper_plan_changes_goodput_by_the_difference_of_net(seed: int) -> None:
    problem, plan = solved((paper_problem, seed))
    if not plan.status.has_plan:
        return
    for step in (0, problem.n_steps // 2):
        found = explain(problem, plan, step)
        for choice in found.alternatives:
            other = exchanged(plan, found.from_step, found.to_step, choice.holds)
            checked = verify(problem, other)
            assert {item.rule.value for item in checked.violations} <= {"rule 5", "certificate"}
            difference = choice.net - found.held.net
            assert checked.objective == pytest.approx((plan.objective or 0.0) + difference, rel=1e-9, abs=1e-6)


def exchanged(plan: MigPlan, begin: int, end: int, holds: tuple[tuple[str, ...], ...]) -> MigPlan:
    """The plan with other profiles held over [begin, end)."""
    schedules = []
    for schedule, own in zip(plan.schedules, holds, strict=True):
        by_step = [span.profiles for span in schedule.inference for _ in range(span.from_step, span.to_step)]
        by_step[begin:end] = [own] * (end - begin)
        spans = tuple(InferenceSpan(step, step + 1, profiles) for step, profiles in enumerate(by_step))
        schedules.append(replace(schedule, inference=spans))
    return replace(plan, schedules=tuple(schedules), status=Status.FEASIBLE)


@pytest.mark.parametrize("seed", range(12))
def test_exchanging_a_held_set_in_a_physical_plan_changes_goodput_by_the_difference_of_net(seed: int) -> None:
    problem, plan = solved((physical_problem, seed))
    if not plan.status.has_plan:
        return
    for step in range(problem.n_steps):
        found = explain(problem, plan, step)
        for choice in found.alternatives:
            other = with_held_set(problem, plan, found.from_step, found.to_step, choice.holds)
            assert verify(problem, other).violations == ()
            difference = choice.net - found.held.net
            assert other.objective == pytest.approx((plan.objective or 0.0) + difference, rel=1e-9, abs=1e-6)


def with_held_set(problem: Problem, plan: MigPlan, begin: int, end: int, holds: tuple[tuple[str, ...], ...]) -> MigPlan:
    """The plan with another held set over [begin, end)."""
    terms, names = WindowFacts.of(problem), problem.tenant_names
    by_step = [
        frozenset(
            (item.placement, names.index(item.owner.tenant))
            for item in plan.lifetimes
            if item.is_inference and item.create_step <= step < item.end_step
        )
        for step in range(problem.n_steps)
    ]
    exchanged = frozenset((problem.gpu.placement(text), m) for m, own in enumerate(holds) for text in own)
    by_step[begin:end] = [exchanged] * (end - begin)
    if problem.physical_initial is not None:
        by_step.insert(0, frozenset((h.placement, names.index(h.tenant)) for h in problem.physical_initial.held))
    offset = len(by_step) - problem.n_steps
    changes = [(0, by_step[0])]
    changes += [(step - offset, now) for step, now in enumerate(by_step) if step and now != by_step[step - 1]]
    runs = [
        (Retraining(names.index(item.owner.tenant), 1 + option_index(problem, item), *where(item)), item.placement)
        for item in plan.lifetimes
        if item.option is not None
    ]
    return with_held(terms, changes, runs, np.inf, "exchanged", 0.0)


def option_index(problem: Problem, item: Lifetime) -> int:
    tenant = next(tenant for tenant in problem.tenants if tenant.name == item.owner.tenant)
    return [option.name for option in tenant.options].index(str(item.option))


def where(item: Lifetime) -> tuple[str, int, int]:
    return item.placement.profile.name, item.create_step, item.end_step


def switching_plan(overhead_s: float) -> tuple[Problem, MigPlan]:
    """Two tenants whose arrivals change places in the middle; the plan gives 4g and 3g to whoever needs the 4g."""
    arrivals = ([160.0] * 3 + [120.0] * 3, [120.0] * 3 + [160.0] * 3)
    capability = {"3g.20gb": 120.0, "4g.20gb": 160.0}
    terms = [
        tenant(name, own, retraining_s={}, capability_rps=capability, overhead_s=overhead_s)
        for name, own in zip("ab", arrivals, strict=True)
    ]
    problem = window(*terms)
    return problem, solve(problem)


def test_a_change_is_explained_by_what_was_held_before() -> None:
    found = explain(*switching_plan(0.1), step=3)
    assert found.held.roles == (HELD,)
    assert {choice.roles for choice in found.alternatives if choice.roles} == {(BEFORE,)}
    # Three steps with 40 requests less, at an accuracy of a half; the change costs a tenth of 280 requests at a half.
    assert "would earn 60.00 requests less until the window ends; changing takes away 14.00" in found.reason


def test_staying_is_explained_by_what_earns_more_but_costs_too_much() -> None:
    found = explain(*switching_plan(0.9), step=3)
    assert found.held.roles == (HELD, BEFORE)
    assert found.reason.startswith("The plan stays: the layout that earns most until the window ends would bring 60.00")


def test_what_is_held_after_is_listed() -> None:
    found = explain(*switching_plan(0.1), step=1)
    assert (found.from_step, found.to_step) == (1, 3)
    assert any(AFTER in choice.roles for choice in found.alternatives)


def test_a_plan_that_can_be_bettered_is_told_as_such() -> None:
    problem = window(tenant(retraining_s={}))
    span = InferenceSpan(0, 6, ("1g.5gb",))
    poor = replace(solve(problem), schedules=(TenantSchedule("resnet50", (span,), None),), status=Status.FEASIBLE)
    assert "would be 180.00 requests better" in explain(problem, poor, 0).reason


def test_alternatives_fit_beside_the_retrainings_of_the_stretch() -> None:
    problem = window(tenant(), tenant("b", retraining_s={}))
    plan = solve(problem)
    run = plan.schedules[0].retraining
    assert isinstance(run, RetrainingSpan)
    found = explain(problem, plan, run.start_step, n_alternatives=1000)
    slices = {"1g": 1, "2g": 2, "3g": 3, "4g": 4, "7g": 7}
    sizes = [sum(slices[name[:2]] for held in choice.holds for name in held) for choice in found.alternatives]
    assert max(sizes) <= 5


@pytest.mark.parametrize("model", Reconfiguration)
def test_alternatives_leave_free_what_is_not_ours(model: Reconfiguration) -> None:
    problem = replace(window(tenant(retraining_s={}), model=model), unavailable=(Unavailable((4, 5, 6, 7), 2),))
    found = explain(problem, solve(problem), 4, n_alternatives=1000)
    most = max(sum(int(name[0]) for held in choice.holds for name in held) for choice in found.alternatives)
    assert most == 4


def test_a_change_that_makes_room_for_others_is_told_as_such() -> None:
    terms = tenant(arrivals_rps=(280.0,) * 6, retraining_s={})
    problem = replace(window(terms), unavailable=(Unavailable((4, 5, 6, 7), 2),))
    reason = explain(problem, solve(problem), 2).reason
    assert reason.endswith("does not fit beside the retrainings and the memory slices that are not ours.")


def test_an_initial_state_is_what_was_held_before() -> None:
    problem = window(tenant(retraining_s={}), initial=PaperState({"resnet50": ("3g.20gb",)}))
    found = explain(problem, solve(problem), 0)
    assert any(BEFORE in choice.roles for choice in (found.held, *found.alternatives))


def test_a_step_too_close_to_an_epoch_is_compared_from_that_epoch_on() -> None:
    problem, plan = physical_case()
    # a's second instance comes at step 3, and epochs are at least 2 apart.
    assert explain(problem, plan, 4).from_step == 3
    assert explain(problem, plan, 5).from_step == 5


def test_steps_before_the_first_possible_epoch_have_no_choice() -> None:
    found = explain(*continued_case(), step=1)
    assert found.alternatives == ()
    assert found.reason.endswith("keeps it as it is until step 2.")


def test_where_a_pool_s_processes_start_is_an_epoch_that_others_keep_their_distance_from() -> None:
    gpu, rates = gpu_model("a100-40gb"), {"3g.20gb": 20.0}
    retraining = (RetrainingOption("full", {"3g.20gb": 4.0}, 0.5),)
    a = TenantTerms("a", [10.0] * 6 + [40.0] * 2, rates, 0.5, 3.5, "3g.20gb", retraining, retraining_required=False)
    b = TenantTerms("b", [1.0] * 8, rates, 0.5, 3.5, "3g.20gb")
    running = (RunningRetraining(gpu.placement("3g.20gb@4"), "a", 2),)
    state = PhysicalState((HeldInstance(gpu.placement("3g.20gb@0"), "a", 0),), running)
    pool = Pool(("a", "b"), {"3g.20gb": {"a": 20.0, "b": 20.0}}, 3.5)
    problem = Problem(gpu, 1.0, 8, Reconfiguration.PHYSICAL, (a, b), switch_s=0.5, initial=state, pools=(pool,))
    plan = solve(problem)
    assert plan.status is Status.OPTIMAL
    found = explain(problem, plan, 2)
    less = "what was held before would earn 20.00 requests less until the window ends"
    assert found.reason == f"The plan changes here: {less}; changing takes away 0.00."
    # No process of b's is there yet.
    assert found.pools[0].together == sum(one.goodput for one in found.tenants) == 5.0


def test_a_layout_that_may_miss_a_floor_is_no_better_plan() -> None:
    gpu, rates = gpu_model("a100-40gb"), {"1g.5gb": 10.0}
    floor = AttainmentFloor(0.9, Per.STEP)
    a = TenantTerms("a", [40.0] * 10, rates, 0.5, 0.4, "1g.5gb", min_slo_attainment=floor)
    b = TenantTerms("b", [60.0] * 10, rates, 0.9, 0.4, "1g.5gb")
    problem = Problem(gpu, 1.0, 10, Reconfiguration.PHYSICAL, (a, b), switch_s=0.5)
    plan = solve(problem)
    assert plan.status is Status.OPTIMAL
    assert explain(problem, plan, 3).reason.endswith(
        "better until the window ends: if it keeps the floors of in-time answers."
    )


def test_the_step_itself_is_told_by_tenant() -> None:
    problem, plan = physical_case()
    a, b = explain(problem, plan, 2).tenants
    assert (a.name, a.retraining, a.arrivals_rps, a.capability_rps, a.accuracy) == ("a", "1g.6gb@3", 30.0, 25.0, 0.5)
    assert (a.goodput, b.goodput) == (12.5, 20.0)


def test_a_step_that_the_window_lacks_is_refused() -> None:
    with pytest.raises(ProblemError, match="steps 0 to 5"):
        explain(*physical_case(), step=6)


def test_nothing_is_explained_without_a_plan() -> None:
    problem = window(tenant(retraining_s={"2g.10gb": 60.0}))
    with pytest.raises(ProblemError, match="infeasible"):
        explain(problem, solve(problem), 0)


def test_a_loan_worked_out_by_hand_is_explained() -> None:
    found = explain(*lent_case(), step=1)
    # Without it a is right half the time: 15 in each step, 120. While it is lent, a has 20 of its 30 answered.
    assert found.loans == (LoanWorth("a", "full", "1g.6gb@2", 0, 1, 3, (-10.0, 0.0), 75.0),)
    assert found.loans[0].net == 65.0
    assert found.held.holds == (("2g.12gb@0", "1g.6gb@2"),) * 2
    assert "takes 10.00 requests while the rest of the layout serves all, until step 3, and wins 75.00" in found.reason
    assert "starts; the whole layout serves until step 1" in explain(*lent_case(), step=0).reason
    assert "the whole layout serves, and no loan begins later" in explain(*lent_case(), step=3).reason


@pytest.mark.parametrize("seed", daily(range(40), range(10)))
def test_a_loan_s_worth_is_what_the_plan_has_more_than_without_it(seed: int) -> None:
    problem, plan = solved((lent_problem, seed))
    if not plan.status.has_plan:
        return
    worth = sum(course.goodput.sum() for course in courses(problem, plan)) + plan.salvage
    for loan in explain(problem, plan, problem.n_steps - 1).loans:
        kept = [one for one in plan.lifetimes if not one.lent or one.owner.tenant != loan.tenant]
        other = with_plan(problem, 0.0, 0.0, "hand", 0.0, lifetimes=tuple(kept))
        without = sum(course.goodput.sum() for course in courses(problem, other)) + other.salvage
        assert loan.net == pytest.approx(worth - without, rel=1e-9, abs=1e-6)


def test_figures_are_finite() -> None:
    found = explain(*switching_plan(0.1), step=2)
    for choice in (found.held, *found.alternatives):
        assert np.isfinite([choice.step_goodput, choice.stretch_goodput, choice.switching, choice.net]).all()
