from dataclasses import replace

import numpy as np
import pytest

from benchmarks.speed.problems import (
    CASES,
    N_TRACE_PROBLEMS,
    REPLAN_SCHEDULES,
    REPLANNED_STEPS,
    RUN_CASES,
    SLOW_CASES,
    Case,
    free_window,
    labels,
    mid_window,
    profiles_with_double_memory,
    random_problem,
    tasks,
    trace_problem,
)
from migrator.config.sections import PlannerConfig
from planner.feasibility import infeasibility
from planner.files.problem_file import problem_to_json
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import Owner, Problem, Reconfiguration, RetrainingOption, Task
from planner.replan import remaining_plan, remaining_problem
from planner.solve import solve
from planner.verify import Rule, verify

SEEDS = range(20)


def load(problem: Problem) -> float:
    """Mean arrivals over what the whole GPU serves, summed over the tenants."""
    shares = []
    for tenant in problem.tenants:
        names = tuple(tenant.capability_rps)
        rates = [tenant.capability_rps[name] for name in names]
        most = max(float(np.dot(multiset, rates)) for multiset in problem.gpu.multisets(names))
        shares.append(float(tenant.arrivals_rps.mean()) / most)
    return sum(shares)


def compute_slices(problem: Problem, name: str) -> int:
    return problem.gpu.profile(name).compute_slices


def test_the_same_seed_gives_the_same_problem_and_another_seed_another() -> None:
    first, again, other = (problem_to_json(random_problem(seed, n_tenants=2)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", SEEDS)
def test_capability_grows_with_a_power_of_the_compute_slices(seed: int) -> None:
    problem = random_problem(seed, n_tenants=2)
    for tenant in problem.tenants:
        one, seven = tenant.capability_rps["1g.5gb"], tenant.capability_rps["7g.40gb"]
        exponent = np.log(seven / one) / np.log(7)
        assert 30 <= one <= 90
        assert 0.7499 <= exponent <= 1.0001
        for name, rate in tenant.capability_rps.items():
            assert rate == pytest.approx(one * compute_slices(problem, name) ** exponent, rel=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_times_and_accuracies_lie_in_their_ranges(seed: int) -> None:
    problem = random_problem(seed, n_tenants=2)
    for tenant in problem.tenants:
        (option,) = tenant.options
        assert 80 <= option.time_s["1g.5gb"] <= 150
        assert option.time_s["4g.20gb"] == pytest.approx(option.time_s["1g.5gb"] / 4**0.85, abs=0.01)
        assert 0.0199 <= option.accuracy_after - tenant.accuracy_before <= 0.3001
        assert 0.5 <= tenant.overhead_s <= 6


@pytest.mark.parametrize("n_tenants", [1, 2, 3, 6])
def test_the_tenants_bring_together_about_what_the_gpu_serves(n_tenants: int) -> None:
    loads = [load(random_problem(seed, n_tenants=n_tenants)) for seed in SEEDS]
    assert min(loads) >= 0.799
    assert max(loads) <= 1.101
    assert len(set(loads)) == len(loads)


def test_a_third_of_the_tenants_has_bursts_in_a_tenth_of_the_seconds() -> None:
    # Without bursts fewer than one step in a hundred lies so high above the median.
    tenants = [t for seed in range(40) for t in random_problem(seed, n_tenants=3, n_steps=2000).tenants]
    n_high = [(t.arrivals_rps > 4.5 * np.median(t.arrivals_rps)).mean() for t in tenants]
    assert 0.2 < np.mean(np.array(n_high) > 0.02) < 0.46


@pytest.mark.parametrize("seed", SEEDS)
def test_half_as_long_steps_make_the_same_kind_of_problem(seed: int) -> None:
    coarse = random_problem(seed, n_tenants=2, n_steps=200, step_s=1.0)
    fine = random_problem(seed, n_tenants=2, n_steps=400, step_s=0.5)
    assert load(fine) == pytest.approx(load(coarse), rel=1e-3)
    for a, b in zip(coarse.tenants, fine.tenants, strict=True):
        assert (a.options, dict(a.capability_rps), a.overhead_s) == (b.options, dict(b.capability_rps), b.overhead_s)


def test_the_model_changes_nothing_but_the_model() -> None:
    paper, physical = (random_problem(3, n_tenants=2, model=model) for model in ("paper", "physical"))
    assert physical.reconfiguration is Reconfiguration.PHYSICAL
    assert problem_to_json(paper)["tenants"] == problem_to_json(physical)["tenants"]


def test_the_double_memory_1g_is_worth_having() -> None:
    names = profiles_with_double_memory("h100-80gb")
    assert names == ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    problem = random_problem(0, n_tenants=2, gpu="h100-80gb", profiles=names)
    for tenant in problem.tenants:
        ratio = tenant.capability_rps["1g.20gb"] / tenant.capability_rps["1g.10gb"]
        assert 1 < ratio <= 1.301
        times = tenant.options[0].time_s
        assert times["1g.10gb"] / times["1g.20gb"] == pytest.approx(ratio, rel=1e-3)


@pytest.mark.parametrize("index", range(N_TRACE_PROBLEMS))
def test_a_trace_problem_has_the_load_of_its_cut(index: int) -> None:
    problem = trace_problem(index, n_tenants=2)
    assert load(problem) == pytest.approx(0.8 + 0.1 * index, rel=0.03)
    assert problem_to_json(problem) == problem_to_json(trace_problem(index, n_tenants=2))


def test_a_trace_problem_on_another_gpu_takes_figures_of_as_many_compute_slices() -> None:
    small = trace_problem(0, n_tenants=1)
    large = trace_problem(0, n_tenants=1, gpu="h100-80gb", profiles=profiles_with_double_memory("h100-80gb"))
    a, b = small.tenants[0].capability_rps, large.tenants[0].capability_rps
    assert (a["1g.5gb"], a["4g.20gb"]) == (b["1g.10gb"], b["4g.40gb"])
    assert b["1g.20gb"] == b["1g.10gb"]


def test_an_unknown_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        trace_problem(N_TRACE_PROBLEMS, n_tenants=2)


@pytest.mark.parametrize(("model", "n_tenants"), [("paper", 2), ("paper", 4), ("physical", 2), ("physical", 3)])
def test_every_problem_can_be_met(model: str, n_tenants: int) -> None:
    problems = [random_problem(seed, n_tenants=n_tenants, model=model) for seed in SEEDS]
    problems += [trace_problem(index, n_tenants=n_tenants, model=model) for index in range(N_TRACE_PROBLEMS)]
    assert [infeasibility(problem) for problem in problems] == [None] * len(problems)


def window() -> tuple[Problem, MigPlan]:
    """Ninety steps: tenant-0 retrains in 10–39, the held set changes at 40 and 60, tenant-1 retrains in 60–89."""
    problem = random_problem(1, n_tenants=2, n_steps=90, model="physical")
    tenants = []
    for tenant in problem.tenants:
        options = (RetrainingOption("other", {"1g.5gb": 1.0}, 0.9), RetrainingOption("full", {"1g.5gb": 23.0}, 0.8))
        tenants.append(replace(tenant, overhead_s=4.0, options=options))
    problem = replace(problem, tenants=tuple(tenants), switch_s=3.0)
    rows = (
        ("3g.20gb@0", "tenant-0", Task.INFERENCE, 0, 0, 90),
        ("2g.10gb@4", "tenant-1", Task.INFERENCE, 0, 0, 60),
        ("1g.5gb@6", "tenant-0", Task.RETRAINING, 10, 17, 40),
        ("1g.5gb@6", "tenant-0", Task.INFERENCE, 40, 47, 90),
        ("1g.5gb@5", "tenant-1", Task.INFERENCE, 60, 67, 90),
        ("1g.5gb@4", "tenant-1", Task.RETRAINING, 60, 67, 90),
    )
    lifetimes = tuple(
        Lifetime(
            problem.gpu.placement(place),
            Owner(tenant, task),
            create,
            serve,
            end,
            "full" if task is Task.RETRAINING else None,
        )
        for place, tenant, task, create, serve, end in rows
    )
    plan = MigPlan(
        Status.FEASIBLE, None, None, 0.0, "hand", Reconfiguration.PHYSICAL, 90, lifetimes=lifetimes, next_epoch_step=67
    )
    return problem, plan


def claims(problem: Problem, plan: MigPlan) -> list[str]:
    """Violations other than that the plan states no objective."""
    return [str(found) for found in verify(problem, plan).violations if found.rule is not Rule.OBJECTIVE]


def test_the_hand_made_window_keeps_every_rule() -> None:
    assert claims(*window()) == []


@pytest.mark.parametrize("step", [1, 10, 11, 39, 40, 41, 46, 47, 59, 60, 61, 66, 67, 89])
def test_the_rest_of_a_plan_answers_the_window_from_its_middle(step: int) -> None:
    problem, plan = window()
    assert claims(mid_window(problem, plan, step), remaining_plan(plan, step)) == []


def test_a_retraining_that_runs_goes_on_and_is_option_0() -> None:
    problem, plan = window()
    at = mid_window(problem, plan, 20)
    state = at.physical_initial
    assert state is not None
    assert [(str(item.placement), item.tenant, item.end_step) for item in state.retrainings] == [
        ("1g.5gb@6", "tenant-0", 20)
    ]
    assert [option.name for option in at.tenants[0].options] == ["full", "other"]


def test_a_retraining_that_has_ended_is_the_accuracy_before() -> None:
    problem, plan = window()
    tenant = mid_window(problem, plan, 40).tenants[0]
    assert (tenant.options, tenant.accuracy_before) == ((), 0.8)


def test_warming_instances_keep_their_time_and_no_epoch_comes_too_early() -> None:
    problem, plan = window()
    state = mid_window(problem, plan, 44).physical_initial
    assert state is not None
    assert {str(item.placement): item.serve_step for item in state.held} == {
        "3g.20gb@0": 0,
        "2g.10gb@4": 0,
        "1g.5gb@6": 3,
    }
    assert state.next_epoch_step == 3


def test_a_change_that_is_due_at_the_step_has_not_been_made() -> None:
    problem, plan = window()
    state = mid_window(problem, plan, 60).physical_initial
    assert state is not None
    assert {str(item.placement) for item in state.held} == {"3g.20gb@0", "2g.10gb@4", "1g.5gb@6"}
    assert state.next_epoch_step == 0


def test_a_new_forecast_differs_by_seed_and_stays_near() -> None:
    problem, plan = window()
    one, again, other = (mid_window(problem, plan, 30, seed=seed) for seed in (1, 1, 2))
    rest = problem.tenants[0].arrivals_rps[30:]
    assert np.array_equal(one.tenants[0].arrivals_rps, again.tenants[0].arrivals_rps)
    assert not np.array_equal(one.tenants[0].arrivals_rps, other.tenants[0].arrivals_rps)
    assert one.tenants[0].arrivals_rps.mean() == pytest.approx(rest.mean(), rel=0.25)


@pytest.mark.parametrize(("first", "second"), [(44, 20), (44, 2), (60, 1), (60, 6), (60, 8), (61, 3)])
def test_a_window_can_be_planned_anew_twice(first: int, second: int) -> None:
    problem, plan = window()
    at, rest = mid_window(problem, plan, first), remaining_plan(plan, first)
    twice = mid_window(at, rest, second)
    assert claims(twice, remaining_plan(rest, second)) == []
    assert twice.initial == mid_window(problem, plan, first + second).initial


def test_a_case_has_twenty_random_problems_and_four_from_traces() -> None:
    found = list(labels(24))
    assert sorted(found) == sorted([f"random-{n}" for n in range(20)] + [f"trace-{n}" for n in range(4)])
    assert found[:7] == ["random-0", "random-1", "random-2", "random-3", "random-4", "trace-0", "random-5"]


def test_no_two_cases_have_the_same_name() -> None:
    names = [case.name for case in (*CASES, *SLOW_CASES, *RUN_CASES)]
    assert len(set(names)) == len(names)


def test_run_cases_have_the_budget_of_a_run() -> None:
    assert {case.max_schedules for case in RUN_CASES} == {PlannerConfig().max_schedules}
    assert PlannerConfig().replan_schedules == REPLAN_SCHEDULES


def test_free_windows_may_be_left_out_and_have_three_options_with_three_checkpoints() -> None:
    for label in ("w1-0", "w1-1"):
        for tenant in free_window(label).tenants:
            full = tenant.options[0].time_s
            assert not tenant.must_retrain
            shares = {option.name: option.time_s["1g.10gb"] / full["1g.10gb"] for option in tenant.options}
            assert shares == pytest.approx({"full": 1, "half": 1 / 3, "whole": 2 / 3}, rel=0.05)
            assert [len(option.checkpoints) for option in tenant.options] == [3, 3, 3]


def test_a_free_window_is_planned_anew_at_its_steps() -> None:
    case = next(case for case in CASES if case.is_free and case.is_replan)
    found = list(tasks(case, 3))
    assert [task.label for task in found] == [f"w1-0-{step}" for step in REPLANNED_STEPS]
    assert [task.problem.n_steps for task in found] == [case.n_steps - step for step in REPLANNED_STEPS]


def test_gain_tables_follow_the_new_forecast() -> None:
    problem, plan = free_window("w1-0"), solve(free_window("w1-0"), engine="greedy")
    rest, anew = remaining_problem(problem, plan, 40), mid_window(problem, plan, 40)
    assert rest.gains is not None
    assert anew.gains is not None
    for m, (old, new) in enumerate(zip(rest.gains, anew.gains, strict=True)):
        scale = anew.tenants[m].arrivals_rps / rest.tenants[m].arrivals_rps
        assert new.steady[0, :, -1] == pytest.approx(old.steady[0, :, -1] * scale, rel=1e-5)


def test_retrainings_of_a_run_case_are_shortened() -> None:
    short, whole = (next(case for case in RUN_CASES if case.name == name) for name in ("run-3", "run-2"))
    (full,) = random_problem(0, n_tenants=1, model="physical").tenants[0].options
    (task,), (other,) = tasks(short, 1), tasks(whole, 1)
    assert task.problem.tenants[0].options[0].time_s["7g.40gb"] == round(0.3 * full.time_s["7g.40gb"], 2)
    assert other.problem.tenants[0].options[0] == full


@pytest.mark.parametrize("case", [*CASES, *SLOW_CASES, *RUN_CASES], ids=lambda case: case.name)
def test_a_case_makes_the_problems_that_it_names(case: Case) -> None:
    (task,) = tasks(case, 1)
    problem = task.problem
    assert (problem.gpu.name, problem.step_s, len(problem.tenants)) == (case.gpu, case.step_s, case.n_tenants)
    assert problem.reconfiguration is Reconfiguration(case.model)
    assert (problem.n_steps < case.n_steps) == (task.initial is not None) == case.is_replan


def test_other_problems_have_other_fingerprints() -> None:
    case = CASES[0]
    first, second = tasks(case, 2)
    (again,) = tasks(case, 1)
    assert first.fingerprint == again.fingerprint != second.fingerprint
