"""The one entry: which engine answers, and that importing it brings in nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from windows import tenant, window

import planner
from planner.errors import EngineError
from planner.options import EngineOptions
from planner.plan import Status
from planner.problem import Reconfiguration
from planner.solve import default_engine, engine_names, solve


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


def test_an_unknown_engine_is_told_with_those_known() -> None:
    with pytest.raises(EngineError, match=f"unknown engine 'mlip'; known: {', '.join(engine_names())}$"):
        solve(window(), engine="mlip")


def test_an_engine_of_the_other_model_is_told() -> None:
    message = f"'milp' answers paper problems; this one is physical, for {', '.join(engine_names('physical'))}$"
    with pytest.raises(EngineError, match=message):
        solve(window(model=Reconfiguration.PHYSICAL), engine="milp")


@pytest.mark.parametrize("model", Reconfiguration)
def test_every_model_has_a_default_engine(model: Reconfiguration) -> None:
    assert default_engine(model) == engine_names(model)[0]


def test_an_option_that_the_engine_does_not_take_is_told() -> None:
    with pytest.raises(EngineError, match=r"engine 'milp' does not take configs; it takes solver$"):
        solve(window(), engine="milp", options=EngineOptions(configs="all"))


def test_an_engine_without_options_refuses_them() -> None:
    with pytest.raises(EngineError, match=r"engine 'greedy' does not take solver; it takes no options$"):
        solve(window(), engine="greedy", options=EngineOptions(solver="cbc"))
