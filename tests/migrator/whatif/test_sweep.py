from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from migrator.config import validate_config
from migrator.execution.ahead import plan_through
from migrator.execution.planning import Solving
from migrator.inputs import assemble
from migrator.whatif.cases import cases_of
from migrator.whatif.grid import read_grid
from migrator.whatif.sweep import Outcome, best_of, outcome_of
from planner.errors import EngineError
from planner.problem import Reconfiguration
from tests.migrator.conftest import SMALL, changed

SHORT = {"window_s": 30}
TO_THE_END = {"planner.max_schedules": 10_000}


def outcomes(*vary: str, changes: Mapping[str, Any] | None = None) -> list[Outcome]:
    config = validate_config(changed(SMALL, {**SHORT, **(changes or {})}), "small.yaml")
    return [outcome_of(case) for case in cases_of(read_grid(vary), config, "small.yaml")]


def outcome(*vary: str, changes: Mapping[str, Any] | None = None) -> Outcome:
    (only,) = outcomes(*vary, changes=changes)
    return only


@pytest.mark.parametrize("window", [0, 1])
def test_a_point_that_changes_nothing_is_the_plan_of_the_config(window: int) -> None:
    found = outcome(f"window={window}")
    plan = plan_through(*assemble(validate_config(changed(SMALL, SHORT), "small.yaml"), "small.yaml"), window)[-1].plan
    assert (found.status, found.goodput, found.bound) == (plan.status, plan.objective, plan.bound)


def test_a_paper_point_is_the_paper_plan_of_the_same_window() -> None:
    found = outcome("model=paper", "engine=greedy", "window=1")
    assembled = assemble(validate_config(changed(SMALL, SHORT), "small.yaml"), "small.yaml")
    plan = plan_through(*assembled, 1, Solving(Reconfiguration.PAPER, "greedy"))[-1].plan
    assert (found.model, found.engine, found.goodput) == ("paper", "greedy", plan.objective)


def is_ascending(values: Sequence[float | None]) -> bool:
    assert None not in values
    return list(values) == sorted(values)  # type: ignore[type-var]


def test_more_load_never_lowers_the_expected_goodput() -> None:
    found = outcomes("load=x0.5,x1,x2,x4,x8,x16", changes=TO_THE_END)
    assert {item.status for item in found} == {"optimal"}
    assert is_ascending([item.goodput for item in found])
    assert found[0].goodput < found[-1].goodput  # type: ignore[operator]


def test_a_slower_start_never_raises_the_expected_goodput() -> None:
    found = outcomes("overhead_s=20,10,6,3,1,0", changes={**TO_THE_END, "tenants.0.arrivals.rate_rps": 900})
    assert {item.status for item in found} == {"optimal"}
    assert is_ascending([item.goodput for item in found])
    assert found[0].goodput < found[-1].goodput  # type: ignore[operator]


def test_the_tenants_goodput_adds_up_with_their_weights() -> None:
    found = outcome("window=0", changes={"tenants.1.weight": 2.5})
    vision, language = found.tenants
    assert vision.goodput is not None
    assert language.goodput is not None
    assert found.goodput == pytest.approx(vision.goodput + 2.5 * language.goodput)
    assert found.arrivals == pytest.approx(vision.arrivals + 2.5 * language.arrivals)


def test_a_tenant_without_weight_has_no_goodput_of_its_own() -> None:
    _, language = outcome("window=0", changes={"tenants.1.weight": 0.0}).tenants
    assert (language.goodput, language.goodput_pct) == (None, None)


@pytest.mark.parametrize("model", ["physical", "paper"])
def test_the_retraining_chosen_is_told(model: str) -> None:
    vision, language = outcome(f"model={model}", "engine=greedy").tenants
    assert vision.retraining is not None
    assert vision.retraining.option == "full"
    assert ("@" in vision.retraining.where) == (model == "physical")
    assert 0 <= vision.retraining.start_step < vision.retraining.end_step <= 30
    assert language.retraining is None


def test_known_arrivals_are_those_of_the_trace() -> None:
    found = outcome("window=1", changes={"forecast.method": "known"})
    config = validate_config(changed(SMALL, SHORT), "small.yaml")
    traffic = assemble(config, "small.yaml")[1]
    actual_rps = traffic.hindsight.rates_rps(config.window_s, config.step_s, config.n_steps)
    assert [tenant.arrivals for tenant in found.tenants] == pytest.approx(list(actual_rps.sum(axis=0)))


def test_an_slo_that_no_profile_meets_is_infeasible_with_the_least_that_would_do() -> None:
    found = outcome("vision.slo_ms=1", "engine=greedy")
    assert (found.status, found.engine, found.goodput, found.tenants) == ("infeasible", "greedy", None, ())
    assert found.reason is not None
    assert found.reason.startswith("tenants.vision: ")
    assert "or more would do" in found.reason


def test_a_retraining_that_cannot_end_is_infeasible_naming_tenant_and_rule() -> None:
    found = outcome("overhead_s=x1", changes={"tenants.0.retraining.samples": 10_000_000})
    assert (found.status, found.goodput, found.gap) == ("infeasible", None, None)
    assert "vision" in str(found.reason)
    assert "rule 3" in str(found.reason)


def test_an_engine_that_cannot_answer_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("no licence")

    monkeypatch.setattr("migrator.whatif.sweep.plan_through", refuse)
    found = outcome("engine=paper-ilp")
    assert (found.status, found.reason) == ("failed", "no licence")


def test_the_best_is_the_first_with_the_highest_share() -> None:
    some = outcome("window=0")
    low, high = replace(some, goodput=1.0), replace(some, goodput=2.0)
    planless = replace(some, goodput=None)
    assert best_of([planless, low, high, replace(high)]) is high
    assert best_of([planless]) is None


def test_the_planned_slo_attainment_is_the_goodput_before_accuracy() -> None:
    accuracy = {"before": 0.5, "after": 0.5}
    found = outcome("engine=greedy", changes={"tenants.0.accuracy": accuracy, "tenants.1.accuracy": accuracy})
    for tenant in found.tenants:
        assert tenant.goodput_pct is not None
        assert tenant.slo_attainment_pct == pytest.approx(min(100.0, 2 * tenant.goodput_pct))


def test_the_planned_slo_attainment_lies_between_goodput_and_all() -> None:
    found = outcome("engine=greedy", "load=x8", "model=physical")
    in_time = [tenant.arrivals * (tenant.slo_attainment_pct or 0.0) for tenant in found.tenants]
    assert found.slo_attainment_pct == pytest.approx(sum(in_time) / sum(tenant.arrivals for tenant in found.tenants))
    for tenant in found.tenants:
        assert tenant.goodput_pct is not None
        assert tenant.slo_attainment_pct is not None
        assert tenant.goodput_pct < tenant.slo_attainment_pct <= 100.0


def test_where_no_answer_is_right_they_are_planned_in_time_all_the_same() -> None:
    never = {"before": 0.0, "after": 0.0}
    _, tenant = outcome("engine=greedy", changes={"tenants.1.accuracy": never}).tenants
    assert tenant.goodput_pct == 0
    assert tenant.slo_attainment_pct is not None
    assert tenant.slo_attainment_pct > 0
