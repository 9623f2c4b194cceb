from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.config.sections import Config
from migrator.errors import ConfigError, GridError
from migrator.execution.ahead import plan_through
from migrator.execution.planning import Solving
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.whatif.grid import read_grid
from migrator.whatif.sweep import Case, PointOutcome, best_of, cases_of, check, outcome_of, unmoved
from planner.build import documented_warm_ups
from planner.errors import EngineError
from planner.problem import Reconfiguration
from tests.migrator.conftest import SMALL, changed

SHORT = {"window_s": 30}
TO_THE_END = {"planner.max_schedules": 10_000}


def outcomes(*vary: str, changes: Mapping[str, Any] | None = None) -> list[PointOutcome]:
    config = validate_config(changed(SMALL, {**SHORT, **(changes or {})}), "small.yaml")
    return [outcome_of(case) for case in cases_of(read_grid(vary), config, "small.yaml")]


def outcome(*vary: str, changes: Mapping[str, Any] | None = None) -> PointOutcome:
    (only,) = outcomes(*vary, changes=changes)
    return only


@pytest.mark.parametrize("window", [0, 1])
def test_a_point_that_changes_nothing_is_the_plan_of_the_config(window: int) -> None:
    found = outcome(f"window={window}")
    assembled = assemble(validate_config(changed(SMALL, SHORT), "small.yaml"), "small.yaml")
    plan = plan_through(*assembled, window, Solving())[-1].plan
    assert (found.status, found.goodput) == (plan.status, plan.objective)
    assert (found.bound, found.claimed_bound) == (plan.bound, plan.claimed_bound)


def test_a_paper_point_is_the_paper_plan_of_the_same_window() -> None:
    found = outcome("model=paper", "engine=greedy", "window=1")
    assembled = assemble(validate_config(changed(SMALL, SHORT), "small.yaml"), "small.yaml")
    plan = plan_through(*assembled, 1, Solving(Reconfiguration.PAPER, "greedy"))[-1].plan
    assert (found.model, found.engine, found.goodput) == ("paper", "greedy", plan.objective)


def test_salvage_stands_apart_and_no_plan_has_more_goodput_than_the_bound_without_it() -> None:
    changes = {**TO_THE_END, "retraining": {"required": False}, "tenants.0.retraining.samples": 8000}
    changes["tenants.0.arrivals.rate_rps"] = 3500
    counted = outcome("window=0", changes=changes)
    alone = outcome("window=0", changes={**changes, "retraining.salvage": False})
    assert (alone.status, alone.salvage, alone.goodput_bound) == ("optimal", None, alone.bound)
    assert counted.gap == pytest.approx((counted.bound - counted.goodput - counted.salvage) / counted.bound)
    # For the sake of salvage it retrains, which costs the window goodput.
    assert counted.goodput < alone.goodput <= counted.goodput_bound < counted.bound


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


FOLLOWS_LOAD = {
    "load": 0.4,
    "tenants.0.arrivals": {"trace": "azure-conv", "offset_s": 100},
    "tenants.1.arrivals": {"trace": "azure-code", "offset_s": 100},
}


def config(changes: Mapping[str, Any] | None = None) -> Config:
    return validate_config(changed(SMALL, changes or {}), "small.yaml")


def case(*vary: str, changes: Mapping[str, Any] | None = None) -> Case:
    (only,) = cases_of(read_grid(vary), config(changes), "small.yaml")
    return only


def setting(*vary: str, changes: Mapping[str, Any] | None = None) -> Setting:
    return assembled(*vary, changes=changes)[0]


def assembled(*vary: str, changes: Mapping[str, Any] | None = None) -> tuple[Setting, RecordedTraffic]:
    return assemble(case(*vary, changes=changes).config, "small.yaml")


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("step_s=2", {"step_s": 2.0}),
        ("slo_ms=200", {"tenants.0.slo_ms": 200.0, "tenants.1.slo_ms": 200.0}),
        ("slo_ms=x0.5", {"tenants.0.slo_ms": 75.0, "tenants.1.slo_ms": 165.0}),
        ("language.slo_ms=x0.5", {"tenants.1.slo_ms": 165.0}),
        ("batch=4", {"tenants.0.max_batch": 4, "tenants.1.max_batch": 4}),
        ("vision.batch=4", {"tenants.0.max_batch": 4}),
        ("load=x2", {"tenants.0.arrivals.scale.factor": 2.0, "tenants.1.arrivals.scale.factor": 8.0}),
        ("language.load=x2", {"tenants.1.arrivals.scale.factor": 8.0}),
    ],
)
def test_a_point_is_the_config_with_that_key_changed(argument: str, changes: dict[str, Any]) -> None:
    # The config's factor for vision is 1 where none is given; resolved, it stands in the config.
    expected = changed(SMALL, {"tenants.0.arrivals.scale.factor": 1.0, **changes})
    assert case(argument).config == validate_config(expected, "expected")


def test_the_gpu_is_changed() -> None:
    assert case("gpu=h100-80gb").config.gpu.model == "h100-80gb"


def test_tenants_are_the_first_of_the_config() -> None:
    both, one = ["vision", "language"], ["vision"]
    named = {"sharing": {"pools": [[name] for name in both]}, "front_door": {"tokens": dict.fromkeys(both, "token")}}
    found = [item.config for item in cases_of(read_grid(["tenants=2,1"]), config(named), "small.yaml")]
    assert [[tenant.name for tenant in item.tenants] for item in found] == [both, one]
    assert [item.sharing.listed for item in found] == [[["vision"], ["language"]], [["vision"]]]
    assert [item.front_door and [*item.front_door.tokens] for item in found] == [both, one]


def test_a_single_tenants_value_goes_before_that_of_all_wherever_it_stands() -> None:
    tenants = case("vision.slo_ms=99", "slo_ms=300").config.tenants
    assert [tenant.slo_ms for tenant in tenants] == [99.0, 300.0]


def test_factors_of_one_and_of_all_tenants_multiply() -> None:
    tenants = case("vision.load=x3", "load=x2").config.tenants
    assert [tenant.arrivals.scale.factor for tenant in tenants] == [6.0, 8.0]


def test_a_method_that_is_not_given_follows_the_varied_factor() -> None:
    found = (setting(f"load=x{factor}").config.tenants[1].arrivals.scale for factor in (0.25, 0.5))
    assert [(scale.method, scale.factor) for scale in found] == [("thin", 1.0), ("poisson", 2.0)]


def test_batch_auto_considers_every_batch_again() -> None:
    tenants = case("batch=auto", changes={"tenants.0.batch": 8, "tenants.1.max_batch": 2}).config.tenants
    assert [(tenant.batch, tenant.max_batch) for tenant in tenants] == [("auto", None)] * 2


def test_no_operating_point_has_a_larger_batch() -> None:
    points = [point for tenant in setting("batch=4").tenants for point in tenant.operating_points.values()]
    assert max(point.batch for point in points) == 4


def test_a_load_replaces_the_configs() -> None:
    as_varied, as_configured = (
        setting("load=0.8", changes=FOLLOWS_LOAD),
        assemble(config({**FOLLOWS_LOAD, "load": 0.8}), "small.yaml")[0],
    )
    factors = [
        [tenant.arrivals.scale.factor for tenant in found.config.tenants] for found in (as_varied, as_configured)
    ]
    assert factors[0] == pytest.approx(factors[1])


LANGUAGE_STAYS = {**FOLLOWS_LOAD, "tenants.1.arrivals.scale": {"factor": 3.0}}
ALL_STAY = {**LANGUAGE_STAYS, "tenants.0.arrivals.scale": {"factor": 3.0}}
VISION_STAYS = {**FOLLOWS_LOAD, "tenants.0.arrivals.scale": {"factor": 3.0}}


@pytest.mark.parametrize(
    ("changes", "vary"), [(ALL_STAY, ["load=0.5,0.9"]), (VISION_STAYS, ["tenants=2,1", "load=0.5,0.9"])]
)
def test_a_load_that_moves_no_tenant_is_refused(changes: Mapping[str, Any], vary: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--vary load=0.5: small.yaml has a scale.factor for every tenant"):
        cases_of(read_grid(vary), config(changes), "small.yaml")


@pytest.mark.parametrize(("vary", "names"), [("load=0.5,0.9", ["language"]), ("load=x2", []), ("slo_ms=x1", [])])
def test_whom_a_load_does_not_move_is_told(vary: str, names: list[str]) -> None:
    told = unmoved("--vary", read_grid([vary]).variations, config(LANGUAGE_STAYS), "small.yaml")
    assert list(told) == [
        f"--vary load=0.5 does not move {name} of small.yaml, with a scale.factor of its own" for name in names
    ]


def test_a_load_leaves_those_alone_who_have_a_factor_of_their_own() -> None:
    before = setting("load=0.4", changes=LANGUAGE_STAYS).config.tenants
    after = setting("load=0.8", changes=LANGUAGE_STAYS).config.tenants
    ratios = [b.arrivals.scale.factor / a.arrivals.scale.factor for a, b in zip(before, after, strict=True)]
    assert ratios == pytest.approx([2.0, 1.0])


def arrivals_s(argument: str) -> tuple[np.ndarray, ...]:
    """When each tenant's requests arrive, where the load is given and the factors follow it."""
    return assembled(argument, changes=FOLLOWS_LOAD)[1].hindsight.arrival_s


@pytest.mark.parametrize("argument", ["slo_ms=x0.2", "batch=1", "tenants=2", "overhead_s=9", "step_s=0.5"])
def test_only_load_changes_the_traffic(argument: str) -> None:
    before, after = arrivals_s("slo_ms=x1"), arrivals_s(argument)
    for old_s, new_s in zip(before, after, strict=True):
        np.testing.assert_array_equal(old_s, new_s)


def test_the_tenants_that_stay_keep_their_traffic() -> None:
    np.testing.assert_array_equal(arrivals_s("tenants=2")[0], arrivals_s("tenants=1")[0])


def test_an_overhead_is_the_one_that_plans_are_made_with() -> None:
    found = setting("overhead_s=7")
    planned = documented_warm_ups(found.gpu, found.tenants)
    assert [*planned.start_s, *planned.training_start_s] == pytest.approx([7.0] * 4)


def test_an_overheads_factor_is_on_what_the_config_gives_or_what_was_measured() -> None:
    changes = {"tenants.0.retraining_start_s": 3.0, "tenants.1.worker_start_s": None}
    before, after = setting("overhead_s=x1", changes=changes), setting("overhead_s=x2", changes=changes)
    old, new = (documented_warm_ups(one.gpu, one.tenants) for one in (before, after))
    assert new.start_s == pytest.approx([2 * start_s for start_s in old.start_s])
    assert new.training_start_s == pytest.approx([2 * start_s for start_s in old.training_start_s])
    assert before.tenants[0].trainer_start.base_s == 3.0


@pytest.mark.parametrize(
    ("vary", "model", "engine"),
    [
        (["window=0"], "physical", None),
        (["engine=physical"], "physical", "physical"),
        (["engine=greedy"], "physical", "greedy"),
        (["engine=paper-ilp"], "paper", "paper-ilp"),
        (["model=paper"], "paper", None),
        (["model=paper", "engine=greedy"], "paper", "greedy"),
    ],
)
def test_an_engine_answers_the_model_given_or_physical_where_it_can(vary: list[str], model: str, engine: Any) -> None:
    solving = case(*vary).solving
    assert (solving.reconfiguration, solving.engine) == (Reconfiguration(model), engine)


BAD = [
    (["vison.load=x1"], "--vary vison.load (did you mean vision?): small.yaml has the tenants vision, language"),
    (["tenants=3"], "--vary tenants=3: the config has 2 tenants; 1 to 2 are allowed"),
    (["tenants=1", "language.load=x2"], "leaves no tenant language"),
    (["window=2"], "--vary window=2: the config has windows 0 to 1"),
    (["load=0.5"], "the config has no load to replace"),
    (["vision.load=0.5"], "a load is that of all tenants"),
    (["model=physical", "engine=paper-ilp"], "engines for physical are"),
]


@pytest.mark.parametrize(("vary", "message"), BAD, ids=[message for _, message in BAD])
def test_a_choice_without_a_place_in_the_config_is_refused(vary: list[str], message: str) -> None:
    with pytest.raises(GridError, match="--vary") as refusal:
        cases_of(read_grid(vary), config(), "small.yaml")
    assert message in str(refusal.value)


def test_a_step_that_does_not_divide_the_window_is_refused_naming_the_point() -> None:
    with pytest.raises(ConfigError, match=r"small.yaml with step_s=7: window_s is 60"):
        case("step_s=7")


def test_a_gpu_without_profiles_is_refused_naming_the_point() -> None:
    with pytest.raises(ConfigError, match=r"small.yaml with gpu=h100-80gb: .* it has a100-80gb"):
        check(case("gpu=h100-80gb"))


def test_an_slo_that_no_profile_meets_is_not_refused() -> None:
    check(case("slo_ms=0.1"))
