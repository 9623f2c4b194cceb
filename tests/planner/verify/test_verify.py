"""What a plan claims, and each `paper` rule: broken once in a plan made by hand, it is reported."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from plans import broken_rules, continued_case, paper_case, physical_case, with_terms

from executor.catalogue import gpu_model
from executor.mig import Placement, Variant
from planner.errors import ProblemError
from planner.plan import ANYWHERE, InferenceSpan, MigPlan, RetrainingSpan, Status, TenantSchedule
from planner.problem import GainTable, PaperState, Problem, Reconfiguration, TenantTerms
from planner.unavailable import Unavailable
from planner.verify import Rule, Verification, verify
from planner.verify.rules import _fits

CASES = (paper_case, physical_case, continued_case)


def with_inference(plan: MigPlan, m: int, *spans: tuple[int, int, tuple[str, ...]]) -> MigPlan:
    schedules = list(plan.schedules)
    schedules[m] = replace(schedules[m], inference=tuple(InferenceSpan(*span) for span in spans))
    return replace(plan, schedules=tuple(schedules))


def with_retraining(plan: MigPlan, m: int, retraining: RetrainingSpan | None) -> MigPlan:
    schedules = list(plan.schedules)
    schedules[m] = replace(schedules[m], retraining=retraining)
    return replace(plan, schedules=tuple(schedules))


@pytest.mark.parametrize("case", CASES)
def test_a_right_plan_has_no_violation(case):
    assert verify(*case()).violations == ()


@pytest.mark.parametrize(("case", "requests"), [(paper_case, 368.0), (physical_case, 237.5), (continued_case, 207.5)])
def test_objective_is_the_one_worked_out_by_hand(case, requests):
    assert verify(*case()).objective == pytest.approx(requests, rel=1e-12)


def test_weight_scales_a_tenants_goodput():
    problem, plan = paper_case()
    assert verify(with_terms(problem, 1, weight=3.0), plan).objective == pytest.approx(368 + 2 * 120)


@pytest.mark.parametrize("case", CASES)
def test_an_overstated_objective_is_a_violation(case):
    problem, plan = case()
    found = verify(
        problem, replace(plan, objective=plan.objective * 1.00001, claimed_bound=plan.claimed_bound * 1.00001)
    )
    assert [violation.rule for violation in found.violations] == [Rule.OBJECTIVE]


@pytest.mark.parametrize(
    ("claims", "rule"),
    [
        ({"claimed_bound": 367.0}, Rule.CERTIFICATE),
        ({"claimed_bound": 369.0}, Rule.CERTIFICATE),
        ({"status": Status.FEASIBLE}, Rule.CERTIFICATE),
        ({"claimed_bound": None}, Rule.CERTIFICATE),
        ({"objective": None, "status": Status.FEASIBLE}, Rule.OBJECTIVE),
        ({"objective": float("nan"), "status": Status.FEASIBLE}, Rule.OBJECTIVE),
        ({"status": Status.INFEASIBLE}, Rule.CERTIFICATE),
        ({"status": Status.TIMEOUT}, Rule.CERTIFICATE),
        ({"n_steps": 5}, Rule.SHAPE),
        ({"reconfiguration": Reconfiguration.PHYSICAL}, Rule.SHAPE),
    ],
)
def test_a_wrong_claim_about_the_plan_is_a_violation(claims, rule):
    problem, plan = paper_case()
    assert rule in {violation.rule for violation in verify(problem, replace(plan, **claims)).violations}


@pytest.mark.parametrize("bound", [370.0, None])
def test_a_feasible_plan_needs_no_proof(bound):
    problem, plan = paper_case()
    assert verify(problem, replace(plan, status=Status.FEASIBLE, claimed_bound=bound)).is_valid


def test_the_claimed_gap_is_that_of_the_recomputed_objective():
    problem, plan = paper_case()
    assert verify(problem, replace(plan, objective=400.0, claimed_bound=400.0)).claimed_gap == pytest.approx(0.08)


def test_a_violation_names_tenant_step_and_what_is_allowed():
    problem, plan = paper_case()
    (violation,) = [
        item
        for item in verify(problem, with_inference(plan, 0, (0, 2, ("2g.10gb",)), (2, 4, ("1g.5gb",)))).violations
        if item.rule is Rule.MIN_PROFILE
    ]
    assert (violation.tenant, violation.step, "2g.10gb" in violation.message) == ("a", 2, True)


# ---- `paper` ----


@pytest.mark.parametrize(
    ("m", "spans", "rule"),
    [
        (1, [(0, 4, ("3g.20gb", "3g.20gb"))], Rule.LAYOUT),
        (1, [(0, 4, ("2g.10gb",))], Rule.PROFILE),
        (0, [(0, 4, ("1g.5gb", "1g.5gb"))], Rule.MIN_PROFILE),
        (1, [(0, 3, ("3g.20gb",)), (3, 4, ())], Rule.MIN_PROFILE),
        (1, [(0, 3, ("3g.20gb",))], Rule.SHAPE),
        (1, [(0, 5, ("3g.20gb",))], Rule.SHAPE),
        (1, [(0, 2, ("3g.20gb",)), (1, 4, ("3g.20gb",))], Rule.SHAPE),
        (1, [(0, 2, ("3g.20gb",)), (3, 4, ("3g.20gb",))], Rule.SHAPE),
        (1, [(0, 4, ("3g.20gb",)), (4, 4, ("3g.20gb",))], Rule.SHAPE),
        (1, [(0, 4, ("3g.40gb",))], Rule.SHAPE),
    ],
)
def test_wrong_inference_spans_are_violations(m, spans, rule):
    problem, plan = paper_case()
    assert rule in broken_rules(problem, with_inference(plan, m, *spans))


@pytest.mark.parametrize(
    ("m", "retraining"),
    [
        (0, None),
        (0, RetrainingSpan("2g.10gb", 0, 2, "full")),
        (0, RetrainingSpan("1g.5gb", 0, 2, "half")),
        (0, RetrainingSpan("1g.5gb", 0, 1, "full")),
        (0, RetrainingSpan("1g.5gb", 0, 3, "full")),
        (0, RetrainingSpan("1g.5gb", 3, 5, "full")),
        (0, RetrainingSpan("1g.5gb", -1, 1, "full")),
        (1, RetrainingSpan("1g.5gb", 0, 2, "full")),
    ],
)
def test_a_wrong_retraining_breaks_rule_3(m, retraining):
    problem, plan = paper_case()
    assert broken_rules(problem, with_retraining(plan, m, retraining)) == {Rule.RETRAINING}


def test_an_optional_retraining_may_be_left_out():
    problem, plan = paper_case()
    assert not broken_rules(with_terms(problem, 0, retraining_required=False), with_retraining(plan, 0, None))


def test_a_retraining_may_end_with_the_window():
    problem, plan = paper_case()
    assert not broken_rules(problem, with_retraining(plan, 0, RetrainingSpan("1g.5gb", 2, 4, "full")))


def test_a_break_over_several_steps_is_reported_once_at_its_first():
    problem, plan = paper_case()
    spans = (0, 4, ("3g.20gb", "3g.20gb", "3g.20gb"))
    found = verify(problem, with_inference(plan, 1, spans)).violations
    assert [violation.step for violation in found if violation.rule is Rule.LAYOUT] == [0]


def test_an_initial_state_charges_a_change_at_step_0():
    problem, plan = paper_case()
    problem = replace(problem, initial=PaperState({"a": ("2g.10gb",), "b": ("1g.5gb",)}))
    assert verify(problem, plan).objective == pytest.approx(368 - 30)  # b loses its capacity, all 60 · 1 s


def test_an_overhead_longer_than_a_step_makes_a_negative_throughput():
    problem, plan = paper_case()
    problem = with_terms(problem, 0, overhead_s=4.0)
    assert verify(problem, plan).objective == pytest.approx(368 - 78 - 130 * 0.8)  # 130 − 4/2 · 130 = −130


def test_spans_split_without_a_change_cost_nothing():
    problem, plan = paper_case()
    split = with_inference(plan, 1, (0, 2, ("3g.20gb",)), (2, 4, ("3g.20gb",)))
    assert verify(problem, split).objective == pytest.approx(368)


@pytest.mark.parametrize("gpu_name", ["a30-24gb", "a100-40gb", "h100-80gb", "rtx-pro-6000-96gb"])
def test_the_placement_search_finds_exactly_the_multisets_of_layouts(gpu_name):
    gpu = gpu_model(gpu_name)
    names = [p.name for p in gpu.profiles if p.variant in (Variant.STANDARD, Variant.DOUBLE_MEMORY, Variant.MEDIA)]
    counts = product(*(range(gpu.profile(name).max_instances + 2) for name in names))
    places = [Placement(gpu.profile(name), ANYWHERE) for name in names]
    # Sorted by size backwards as in a check: with the smallest first the search takes long.
    found = {n for n in counts if _fits(gpu, [x for x, k in zip(places[::-1], n[::-1], strict=True) for _ in range(k)])}
    assert found == set(gpu.multisets(names))


def test_half_as_long_steps_bring_half_the_requests_and_lose_twice_the_share():
    problem, plan = paper_case()
    # a: 45 · 0.5 twice, 65 − 0.5/0.5/2 · 65 = 32.5 and min(50, 65) at 0.8; b: 25 · 0.6 four times.
    assert verify(replace(problem, step_s=0.5), plan).objective == pytest.approx(45 + 26 + 40 + 60)


@pytest.mark.parametrize(("m", "min_profile"), [(1, "4g.20gb"), (0, "1g.10gb")])
def test_as_large_means_compute_and_memory_slices(m, min_profile):
    problem, plan = paper_case()
    small = with_inference(plan, 0, (0, 4, ("1g.5gb",)))
    problem = with_terms(with_terms(problem, 0, min_profile="1g.5gb"), m, min_profile=min_profile)
    assert broken_rules(problem, small) == {Rule.MIN_PROFILE}


def table(problem: Problem, steady: float, changed: float | None) -> GainTable:
    multisets = ((0, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1))
    rows = np.full((2, problem.n_steps, len(multisets)), steady) + np.arange(2)[:, None, None]
    return GainTable(multisets, rows, None if changed is None else np.full_like(rows, changed))


def test_given_gain_tables_replace_the_simple_one():
    problem, plan = paper_case()
    problem = replace(problem, gains=(table(problem, 5.0, 3.0), table(problem, 7.0, 0.0)))
    assert verify(problem, plan).objective == pytest.approx(5 + 5 + 3 + 6 + 4 * 7)


def test_a_paper_gain_table_without_changed_steps_is_refused():
    problem, plan = paper_case()
    with pytest.raises(ProblemError, match="changed"):
        verify(replace(problem, gains=(table(problem, 5.0, None),) * 2), plan)


@pytest.mark.parametrize(
    # A 1g, a 2g and a 3g, in some order, fill slices 0 to 6 or leave slice 3 or 7 free.
    ("slices", "rules"),
    [((3,), set()), ((7,), set()), ((6,), {Rule.LAYOUT}), ((3, 7), {Rule.LAYOUT}), ((0, 1, 2, 3), {Rule.LAYOUT})],
)
def test_profiles_that_do_not_fit_beside_what_is_not_ours_break_rule_1(slices, rules):
    problem, plan = paper_case()
    assert broken_rules(replace(problem, unavailable=(Unavailable(slices, 2, 3),)), plan) == rules


def test_a_paper_placement_may_differ_from_step_to_step():
    problem, plan = paper_case()
    spans = (InferenceSpan(0, 4, ("2g.10gb",)),)
    plan = replace(plan, schedules=(replace(plan.schedules[0], inference=spans), plan.schedules[1]))
    # The 3g sits on the other half of the GPU in each of these.
    items = (Unavailable((0,), 0, 1), Unavailable((2,), 1, 2), Unavailable((3,), 2))
    assert broken_rules(replace(problem, unavailable=items), plan) == set()


# ---- windows of many steps ----


def long_case(n_steps: int) -> tuple[Problem, MigPlan]:
    """One tenant that changes between a 1g and a 2g in every other step; the overhead takes half a step."""
    gpu = gpu_model("a100-40gb")
    tenant = TenantTerms("a", np.full(n_steps, 60.0), {"1g.5gb": 20.0, "2g.10gb": 40.0}, 0.5, 0.5, "1g.5gb")
    problem = Problem(gpu, 1.0, n_steps, Reconfiguration.PAPER, (tenant,))
    spans = [InferenceSpan(s, s + 2, ("2g.10gb",) if s % 4 else ("1g.5gb",)) for s in range(0, n_steps, 2)]
    # Half of (20 + 20 + 40 + 40) each four steps, less half a step of each change, but the first.
    objective = n_steps * 15.0 - (n_steps // 4) * 15.0 + 5.0
    schedule = TenantSchedule("a", tuple(spans), None)
    return problem, MigPlan(
        Status.FEASIBLE, objective, objective + 1, 0.0, "hand", Reconfiguration.PAPER, n_steps, schedules=(schedule,)
    )


def test_a_plan_of_20000_steps_is_valued_step_by_step():
    problem, plan = long_case(20_000)
    assert verify(problem, plan).violations == ()


def test_the_memory_of_a_check_grows_no_faster_than_the_steps():
    most = []
    for n_steps in (2_000, 8_000):
        problem, plan = long_case(n_steps)
        tracemalloc.start()
        verify(problem, plan)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 6 * most[0]


# ---- what a plan claims, and what its certificate proves ----


@pytest.mark.parametrize(
    ("claimed", "proven", "is_proven"),
    [
        (110.0, 110.0, True),
        (120.0, 110.0, True),
        (110.0 - 1e-5, 110.0, True),
        (109.9, 110.0, False),
        (110.0, None, False),
    ],
)
def test_a_claimed_bound_is_proven_where_the_certificate_reaches_as_low(claimed, proven, is_proven):
    assert Verification((), 100.0, claimed, 100.0, proven).is_claim_proven is is_proven


def test_a_plan_without_a_bound_claims_nothing():
    assert Verification((), 100.0, None, 100.0).is_claim_proven
