from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.catalogue import gpu_model
from migrator.config.reading import validate_config
from migrator.config.sections import EstimatesConfig
from migrator.execution.ahead import plan_through
from migrator.execution.posing import estimates_in
from migrator.inputs.assembly import assemble
from migrator.inputs.estimates import Estimate, as_carried_out, as_estimated, estimate_of, service_factors
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from tests.migrator.conftest import SMALL, changed
from workloads.profiles.table import shipped_profiles
from workloads.tenants import Tenant

GPU = gpu_model("a100-80gb")
SPREAD = EstimatesConfig(accuracy_sigma=0.05, time_sigma=0.2)
ERRORS = st.builds(
    EstimatesConfig,
    accuracy_bias=st.floats(-1, 1),
    accuracy_sigma=st.floats(0, 1),
    time_bias=st.floats(-0.99, 10),
    time_sigma=st.floats(0, 2),
    cost_gpu_s=st.floats(0, 1e6),
)


def assembled(**estimates: float) -> tuple[Setting, RecordedTraffic]:
    data = changed(SMALL, {"estimates": estimates, "window_s": 30})
    return assemble(validate_config(data, "small.yaml"), "small.yaml")


def setting(**estimates: float) -> Setting:
    return assembled(**estimates)[0]


VISION: Tenant = setting().tenants[0]


def estimated(errors: EstimatesConfig, seed: int = 0, window: int = 0) -> Estimate:
    return estimate_of(errors, seed, GPU, VISION, window)


def test_without_errors_the_estimate_is_the_truth() -> None:
    estimate = estimated(EstimatesConfig())
    assert (estimate.accuracy_after, estimate.occupation_s) == (0.9, VISION.retraining_time_s)


def test_a_bias_moves_accuracy_and_time() -> None:
    estimate = estimated(EstimatesConfig(accuracy_bias=-0.2, time_bias=0.5))
    assert estimate.accuracy_after == pytest.approx(0.7)
    assert estimate.retraining_s["1g.10gb"] == pytest.approx(1.5 * VISION.retraining_time_s["1g.10gb"])


def test_the_same_window_is_misjudged_alike() -> None:
    assert estimated(SPREAD, window=3) == estimated(SPREAD, window=3)


@pytest.mark.parametrize("other", [{"seed": 1}, {"window": 1}])
def test_another_seed_or_window_is_misjudged_otherwise(other: dict[str, int]) -> None:
    assert estimated(SPREAD, **other).accuracy_after != estimated(SPREAD).accuracy_after


def test_tenants_are_misjudged_independently() -> None:
    vision, language = estimates_in(setting(accuracy_sigma=0.01), 0)
    assert vision.accuracy_after - 0.9 != pytest.approx(language.accuracy_after - 0.8)


def test_errors_do_not_depend_on_how_arrivals_are_forecast() -> None:
    known, _ = assemble(
        validate_config(changed(SMALL, {"forecast.method": "known", "estimates.time_sigma": 0.3}), "x"), "x"
    )
    assert estimates_in(known, 1) == estimates_in(setting(time_sigma=0.3), 1)


def test_spreads_are_those_asked_for() -> None:
    drawn = [estimated(SPREAD, window=window) for window in range(2000)]
    accuracy = np.array([estimate.accuracy_after for estimate in drawn if estimate.accuracy_after < 1]) - 0.9
    factor = np.array([estimate.retraining_s["1g.10gb"] for estimate in drawn]) / VISION.retraining_time_s["1g.10gb"]
    assert np.median(np.abs(accuracy)) == pytest.approx(0.6745 * 0.05, rel=0.1)
    assert (factor.mean(), np.log(factor).std()) == pytest.approx((1, 0.2), rel=0.05)


@given(ERRORS, st.integers(0, 100), st.integers(0, 100))
def test_any_estimate_is_one_that_a_planner_can_take(errors: EstimatesConfig, seed: int, window: int) -> None:
    estimate = estimated(errors, seed, window)
    assert 0 <= estimate.accuracy_after <= 1
    assert min(as_estimated(VISION, estimate).retraining_time_s.values()) > 0


def test_an_instance_profiles_with_its_share_of_the_gpu() -> None:
    profiling_s = estimated(EstimatesConfig(cost_gpu_s=3.0)).profiling_s
    assert (profiling_s["1g.10gb"], profiling_s["7g.80gb"]) == (21.0, 3.0)


def test_profiling_takes_as_long_in_truth_as_in_the_plan() -> None:
    errors = EstimatesConfig(cost_gpu_s=2.0)
    told, true = as_estimated(VISION, estimated(errors)), as_carried_out(errors, GPU, VISION)
    assert told.retraining_time_s == true.retraining_time_s


def test_a_plan_is_made_from_the_biased_values() -> None:
    planned = plan_through(*assembled(accuracy_bias=0.05, time_bias=-0.3, cost_gpu_s=1.0), 0)[0]
    (option,) = planned.problem.tenants[0].options
    assert option.accuracy_after == pytest.approx(0.95)
    assert option.time_s["1g.10gb"] == pytest.approx(0.7 * VISION.retraining_time_s["1g.10gb"] + 7.0)


def test_what_serves_at_the_start_is_known_exactly() -> None:
    planned = plan_through(*assembled(accuracy_bias=0.05), 0)[0]
    assert [tenant.accuracy_before for tenant in planned.problem.tenants] == [0.6, 0.5]


@pytest.mark.parametrize(("planning_s", "step"), [(0, 3), (4, 0)])
def test_a_later_window_s_plan_waits_for_the_estimates_unless_it_is_made_ahead(planning_s: float, step: int) -> None:
    data = changed(SMALL, {"estimates": {"delay_s": 2.5}, "planner.planning_s": planning_s, "window_s": 30})
    planned = plan_through(*assemble(validate_config(data, "x"), "x"), 1)
    assert [window.plan_from_step for window in planned] == [0, step]


def test_without_a_spread_planning_knows_the_tenants_themselves() -> None:
    made = setting()
    assert all(known is own for known, own in zip(made.known_tenants, made.tenants, strict=True))


@pytest.mark.parametrize("other", [{"seed": 1}, {"model": "bert-base"}])
def test_latencies_are_misjudged_by_seed_model_and_profile_within_the_spread(other: dict[str, Any]) -> None:
    def factors(seed: int = 0, model: str = "resnet50") -> dict[str, float]:
        return dict(service_factors(EstimatesConfig(service_spread=0.2), seed, GPU, model))

    assert factors() == factors() != factors(**other)
    assert set(factors()) == set(GPU.profile_names)
    assert len(set(factors().values())) == len(GPU.profile_names)
    assert all(0.8 <= factor <= 1.2 for factor in factors().values())


def test_misjudged_latencies_spread_evenly() -> None:
    errors = EstimatesConfig(service_spread=0.2)
    drawn = [service_factors(errors, seed, GPU, "resnet50")["7g.80gb"] for seed in range(2000)]
    assert (np.mean(drawn), np.std(drawn)) == pytest.approx((1.0, 0.2 / np.sqrt(3)), rel=0.05)


def test_plans_go_by_misjudged_rates_and_what_runs_does_not() -> None:
    made = setting(service_spread=0.2)
    planned = plan_through(*assembled(service_spread=0.2), 0)[0]
    for terms, tenant in zip(planned.problem.tenants, made.tenants, strict=True):
        factors = service_factors(made.config.estimates, made.config.seed, GPU, tenant.model)
        known = {name: point.rate_rps / factors[name] for name, point in tenant.operating_points.items()}
        assert terms.capability_rps == pytest.approx(known)
        assert tenant.capability_rps != pytest.approx(known)
        true = {(row.profile, row.batch, row.processes): row for row in shipped_profiles().of(GPU.name, tenant.model)}
        for point in tenant.operating_points.values():
            row = true[point.profile, point.batch, point.processes]
            assert (point.rate_rps, point.batch_latency_s) == (row.throughput_rps, row.latency_s)


def test_retrainings_take_as_long_as_known_where_only_latencies_are_misjudged() -> None:
    planned = plan_through(*assembled(service_spread=0.2), 0)[0]
    (option,) = planned.problem.tenants[0].options
    assert option.time_s == VISION.retraining_time_s


def test_the_same_requests_come_whatever_planning_takes_latencies_for() -> None:
    arrivals = []
    for spread in (0.0, 0.5):
        data = changed(SMALL, {"estimates.service_spread": spread, "load": 0.7, "tenants.1.arrivals": {"rate_rps": 5}})
        traffic = assemble(validate_config(data, "x"), "x")[1]
        assert traffic.hindsight is not None
        arrivals.append([own.tolist() for own in traffic.hindsight.arrival_s])
    assert arrivals[0] == arrivals[1]
