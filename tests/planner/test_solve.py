"""The one entry: which engine answers, and that importing it brings in nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from plans import lent_case
from windows import tenant, window

import planner
from planner.budget import EngineOptions
from planner.errors import EngineError
from planner.plan import MigPlan, Status
from planner.problem import PhysicalState, Problem, Reconfiguration, RunningRetraining, TenantTerms
from planner.solve import default_engine, engine_names, solve, start_misfit
from planner.verify import verify


def test_importing_planner_brings_in_nothing_heavy() -> None:
    code = "import sys, planner; print([m for m in ('numpy', 'pulp', 'numba', 'highspy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_planner_solve_is_the_function_however_it_was_imported() -> None:
    code = "import planner.solve, planner; print(callable(planner.solve), planner.Problem.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True Problem"


def test_an_unknown_name_is_no_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = planner.nothing


def test_the_default_engine_answers_unless_told_otherwise() -> None:
    assert planner.solve(window(tenant(retraining_s={}))).engine == default_engine("paper")


@pytest.mark.parametrize("engine", engine_names("paper"))
def test_every_paper_engine_answers(engine: str) -> None:
    assert solve(window(), engine=engine).status.has_plan


@pytest.mark.parametrize("engine", engine_names("paper"))
def test_every_paper_engine_says_why_there_is_no_plan(engine: str) -> None:
    plan = solve(window(tenant(retraining_s={"7g.40gb": 1.0})), engine=engine)
    assert plan.status is Status.INFEASIBLE
    assert plan.infeasibility is not None
    assert (plan.infeasibility.tenant, plan.infeasibility.rule) == ("resnet50", "rule 3")


def test_what_is_loaded_is_told_apart_from_what_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    read = iter([100.0, 107.0])
    monkeypatch.setattr(sys.modules["planner.solve"], "loading_s", lambda: next(read))
    assert solve(window(tenant(retraining_s={})), engine="static").load_s >= 7.0


def test_an_unknown_engine_is_told_with_those_known() -> None:
    with pytest.raises(EngineError, match=f"unknown engine 'mlip'; known: {', '.join(engine_names())}$"):
        solve(window(), engine="mlip")


def test_an_engine_of_the_other_model_is_told() -> None:
    message = f"'exact' answers paper problems; this one is physical, for {', '.join(engine_names('physical'))}$"
    with pytest.raises(EngineError, match=message):
        solve(window(model=Reconfiguration.PHYSICAL), engine="exact")


@pytest.mark.parametrize("model", Reconfiguration)
def test_every_model_has_a_default_engine(model: Reconfiguration) -> None:
    assert default_engine(model) == engine_names(model)[0]


def test_an_option_that_the_engine_does_not_take_is_told() -> None:
    with pytest.raises(EngineError, match=r"engine 'exact' does not take configs; it takes no options$"):
        solve(window(), engine="exact", options=EngineOptions(configs="all"))


def test_an_engine_without_options_refuses_them() -> None:
    with pytest.raises(EngineError, match=r"engine 'greedy' does not take solver; it takes no options$"):
        solve(window(), engine="greedy", options=EngineOptions(solver="cbc"))


def started(problem: Problem) -> MigPlan:
    return solve(problem, engine="greedy")


@pytest.mark.parametrize("model", Reconfiguration)
def test_a_plan_is_a_start_of_its_own_problem(model: Reconfiguration) -> None:
    problem = window(model=model, switch_s=0.0)
    assert start_misfit(problem, started(problem)) is None


@pytest.mark.parametrize(("model", "engine"), [("paper", "static"), ("physical", "static"), ("physical", "greedy")])
def test_an_engine_that_starts_from_no_plan_says_so(model: str, engine: str) -> None:
    problem = window(model=Reconfiguration(model), switch_s=0.0)
    assert start_misfit(problem, started(problem), engine) == f"engine '{engine}' starts from no plan"


def test_loans_beside_a_layout_start_from_no_plan() -> None:
    assert "the problem sets the layout" in (start_misfit(*lent_case()) or "")


def test_an_unknown_engine_has_no_start_either() -> None:
    with pytest.raises(EngineError, match="unknown engine 'mlip'"):
        start_misfit(window(), started(window()), "mlip")


@pytest.mark.parametrize("model", Reconfiguration)
def test_an_answer_without_a_plan_is_no_start(model: Reconfiguration) -> None:
    problem = window(tenant(retraining_s={"7g.40gb": 1.0}), model=model)
    assert start_misfit(problem, started(problem)) == "its status is infeasible: there is no plan in it"


OTHER = [
    (window(tenant("bert")), "it schedules resnet50; the problem's tenants are bert"),
    (window(tenant(arrivals_rps=(100.0,) * 5)), "its spans of resnet50 do not follow each other within steps 0 to 5"),
    (window(tenant(arrivals_rps=(100.0,) * 7)), "resnet50 holds what it may not, or not at each of 7 steps"),
    (window(tenant(capability_rps={"1g.5gb": 40.0})), "it gives resnet50 3g.20gb, which the problem has no use for"),
    (window(tenant(retraining_s={"2g.10gb": 3.0})), "rule 3: resnet50 cannot retrain on 2g.10gb over steps "),
    (window(tenant(retraining_s={})), "it retrains resnet50 by 'full', which is none of its options"),
]


@pytest.mark.parametrize(("problem", "reason"), OTHER)
def test_a_paper_plan_of_another_problem_is_no_start(problem: Problem, reason: str) -> None:
    assert reason in (start_misfit(problem, started(window())) or "")


def test_a_plan_without_the_retraining_that_is_needed_is_no_start() -> None:
    plan = started(window(tenant(retraining_s={})))
    assert start_misfit(window(), plan) == "rule 3: resnet50 does not retrain, which it has to"


OTHER_PHYSICAL = [
    (tenant("bert"), "it does not start the retraining that bert needs"),
    (tenant(retraining_s={"2g.10gb": 3.0}), "resnet50 cannot retrain on 2g.10gb over steps "),
    (tenant(retraining_s={"1g.5gb": 2.0}), "resnet50 cannot retrain on 2g.10gb over steps "),
]


@pytest.mark.parametrize(("terms", "reason"), OTHER_PHYSICAL)
def test_a_physical_plan_of_another_problem_is_no_start(terms: TenantTerms, reason: str) -> None:
    one, other = (window(it, model=Reconfiguration.PHYSICAL, switch_s=0.0) for it in (tenant(), terms))
    assert reason in (start_misfit(other, started(one)) or "")


def test_retrainings_in_the_way_of_one_in_progress_are_no_start() -> None:
    plan = started(window(tenant("a"), model=Reconfiguration.PHYSICAL, switch_s=0.0))
    place = next(item.placement for item in plan.lifetimes if not item.is_inference)
    state = PhysicalState((), (RunningRetraining(place, "b", 6),))
    problem = window(tenant("a"), tenant("b"), model=Reconfiguration.PHYSICAL, switch_s=0.0, initial=state)
    assert start_misfit(problem, plan) == "its retrainings do not fit beside each other and those in progress"


def test_a_plan_that_retrains_a_tenant_twice_is_no_start() -> None:
    problem = window(model=Reconfiguration.PHYSICAL, switch_s=0.0)
    plan = started(problem)
    retraining = next(item for item in plan.lifetimes if not item.is_inference)
    twice = replace(plan, lifetimes=(*plan.lifetimes, retraining))
    assert start_misfit(problem, twice) == "it retrains resnet50 more than once"
    assert not verify(problem, solve(problem, initial=twice)).violations
