import csv
import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from executor.catalogue import gpu_model, gpu_model_names
from workloads.errors import ProfileTableError, WorkloadError
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint, operating_points
from workloads.profiles.table import MeasuredStart, ServiceProfiles, ServiceRow, shipped_profiles
from workloads.tenants import (
    Drift,
    Tenant,
    WindowAccuracy,
    WorkerStart,
    accuracy_at_start,
    default_worker_start,
    drift_in,
    most_instances,
    retraining_times_s,
    worker_start,
)

TENANT = Tenant(
    name="vision",
    model="resnet50",
    slo_s=0.15,
    operating_points=operating_points(shipped_profiles(), "a100-80gb", "resnet50", 0.15),
    retraining_time_s={"1g.10gb": 60.0},
    accuracy=(WindowAccuracy(0.6, 0.8), WindowAccuracy(0.5, 0.9)),
    min_profile="1g.10gb",
    worker_start=WorkerStart(2.0, 0.5),
)


@pytest.mark.parametrize("gpu", gpu_model_names())
def test_most_instances_is_the_length_of_the_longest_layout(gpu: str) -> None:
    model = gpu_model(gpu)
    assert most_instances(model) == max(map(len, model.layouts()))


def test_capability_is_the_rate_of_each_operating_point() -> None:
    assert TENANT.capability_rps == {name: point.rate_rps for name, point in TENANT.operating_points.items()}


@pytest.mark.parametrize(("window", "before"), [(0, 0.6), (1, 0.5), (9, 0.5)])
def test_the_last_accuracy_holds_for_all_later_windows(window: int, before: float) -> None:
    assert TENANT.accuracy_in(window).before == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "a name is empty"),
        ({"operating_points": {}}, "vision: no profile can serve resnet50"),
        ({"accuracy": ()}, "vision.accuracy is empty"),
        ({"slo_s": 0.0}, r"vision.slo_s is 0.0; a finite number > 0"),
        ({"slo_s": math.nan}, "vision.slo_s is nan"),
        ({"weight": -1.0}, "vision.weight is -1.0; a finite number ≥ 0"),
        ({"retraining_time_s": {"1g.10gb": 0.0}}, "vision.retraining_time_s.1g.10gb is 0.0"),
        ({"n_retraining_windows": -1}, "vision.n_retraining_windows is -1"),
    ],
)
def test_a_value_out_of_range_is_refused_naming_tenant_and_key(change: dict[str, object], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        replace(TENANT, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("key", ["before", "after"])
def test_an_accuracy_lies_between_0_and_1(key: str, value: float) -> None:
    with pytest.raises(WorkloadError, match=rf"accuracy\.{key} is {value}; a number from 0 to 1"):
        WindowAccuracy(**{"before": 0.5, "after": 0.5, key: value})


def test_a_tenants_tables_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TENANT.retraining_time_s["2g.20gb"] = 1.0  # type: ignore[index]


def test_a_tenant_may_have_no_retraining() -> None:
    assert replace(TENANT, retraining_time_s={}).retraining_time_s == {}


# --- how long workers take to start

SOURCE = Path(__file__).parents[3] / "shared" / "data" / "mig_reconfig"
needs_source = pytest.mark.skipif(not SOURCE.is_dir(), reason="the project's measured data is not beside this checkout")


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((SOURCE / name).read_text().splitlines()))


def test_each_other_worker_adds_its_share() -> None:
    assert WorkerStart(2.0, 0.25).planned_s(4) == 2.0 * 1.75


def test_without_jitter_a_start_takes_what_is_planned() -> None:
    start = WorkerStart(2.0, 0.25)
    assert start.start_s(3, np.random.default_rng(0)) == start.planned_s(3)


def test_jitter_is_lognormal_around_the_planned_time() -> None:
    start, rng = WorkerStart(2.0, 0.25, jitter=0.3), np.random.default_rng(0)
    logs = np.log([start.start_s(2, rng) / start.planned_s(2) for _ in range(4000)])
    assert (float(logs.mean()), float(logs.std())) == pytest.approx((0.0, 0.3), abs=0.02)


def test_the_same_generator_gives_the_same_start() -> None:
    start = WorkerStart(2.0, jitter=0.3)
    assert start.start_s(1, np.random.default_rng(4)) == start.start_s(1, np.random.default_rng(4))


@pytest.mark.parametrize("key", ["base_s", "slowdown_per_other", "jitter", "library_s"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_figure_out_of_range_is_refused(key: str, value: float) -> None:
    with pytest.raises(WorkloadError, match=rf"worker_start\.{key} is {value}; a finite number ≥ 0"):
        WorkerStart(**{"base_s": 1.0, key: value})


def test_libraries_take_their_share_of_every_start() -> None:
    assert WorkerStart(2.0, library_s=0.5).phases_s(8.0) == (2.0, 6.0)


def test_a_start_that_takes_no_time_has_no_phases() -> None:
    assert WorkerStart(0.0).phases_s(0.0) == (0.0, 0.0)


def test_a_start_of_another_length_keeps_its_proportions() -> None:
    longer = WorkerStart(2.0, 0.25, source="measured", library_s=0.5).lasting(6.0, "config")
    assert longer == WorkerStart(6.0, 0.25, source="config", library_s=1.5)


def test_libraries_take_no_longer_than_the_whole_start() -> None:
    with pytest.raises(WorkloadError, match=r"worker_start\.library_s is 3\.0; at most base_s, 2\.0, is allowed"):
        WorkerStart(2.0, library_s=3.0)


def test_no_worker_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="n_at_once is 0"):
        WorkerStart(1.0).planned_s(0)


@pytest.mark.parametrize("model", ["resnet50", "bert-large", "mobilenet-v2", "a user's own"])
def test_every_model_has_a_default_with_its_source(model: str) -> None:
    assert default_worker_start(model).source.startswith("gpuless-thesis")


@needs_source
@pytest.mark.parametrize(("model", "source"), [("resnet50", "resnet50_py"), ("bert-large", "BERT_SQuAD"), ("?", "")])
def test_a_default_is_the_sources_median_load_and_first_inference(model: str, source: str) -> None:
    times_s = {row["model"]: float(row["load_s_p50"]) + float(row["first_infer_s_p50"]) for row in cold_starts()}
    expected_s = times_s.get(source, statistics.median(times_s.values()))
    assert default_worker_start(model).base_s == pytest.approx(expected_s, abs=0.001)


@needs_source
@pytest.mark.parametrize(
    ("model", "source"), [("resnet50", "resnet50_py"), ("bert-large", "BERT_SQuAD"), ("?", "yolop")]
)
def test_a_default_s_libraries_are_the_sources_first_inference(model: str, source: str) -> None:
    (first_s,) = (float(row["first_infer_s_p50"]) for row in cold_starts() if row["model"] == source)
    assert default_worker_start(model).library_s == pytest.approx(first_s, abs=0.001)


@needs_source
def test_the_default_slowdown_is_the_sources_median_without_its_outlier() -> None:
    starts = [(int(row["instances"]), float(row["model_start_s"])) for row in partition_starts()]
    alone_s = statistics.median(start_s for n, start_s in starts if n == 1)
    median = statistics.median((start_s / alone_s - 1) / (n - 1) for n, start_s in starts if n > 1)
    assert default_worker_start("resnet50").slowdown_per_other == pytest.approx(median, abs=0.005)


def cold_starts() -> list[dict[str, str]]:
    return rows("cold_start_full_a100.csv")


def partition_starts() -> list[dict[str, str]]:
    return rows("resnet50_start_by_partition.csv")[1:]  # the first line is the outlier


# --- how long retrainings take

GPU = "a100-80gb"
PROFILES = ServiceProfiles(
    "made",
    (
        ServiceRow("me", GPU, "m", "1g.10gb", 1, 1, 0.01, 100.0),
        ServiceRow("me", GPU, "m", "1g.10gb", 8, 1, 0.04, 200.0),
        ServiceRow("me", GPU, "m", "1g.10gb", 8, 2, 0.04, 400.0),
        ServiceRow("me", GPU, "m", "2g.20gb", 8, 1, 0.02, 400.0),
        ServiceRow("me", GPU, "m", "3g.40gb", 8, 2, 0.02, 800.0),
        ServiceRow("me", GPU, "packed", "3g.40gb", 8, 2, 0.02, 800.0),
    ),
)


def test_it_is_three_times_the_inference_time_at_the_best_batch_of_one_process() -> None:
    times_s = retraining_times_s(PROFILES, GPU, "m", n_samples=1000, n_epochs=2)
    assert times_s == {"1g.10gb": 3 * 2000 / 200, "2g.20gb": 3 * 2000 / 400}


@pytest.mark.parametrize("model", shipped_profiles().models(GPU))
def test_every_shipped_model_retrains_faster_on_a_larger_profile(model: str) -> None:
    times_s = retraining_times_s(shipped_profiles(), GPU, model, n_samples=100, n_epochs=1)
    assert list(times_s) == ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]
    assert list(times_s.values()) == sorted(times_s.values(), reverse=True)


@pytest.mark.parametrize(("n_samples", "n_epochs"), [(0, 1), (1, 0), (-5, 1)])
def test_nothing_to_train_on_is_refused(n_samples: int, n_epochs: int) -> None:
    with pytest.raises(ProfileTableError, match="both must be ≥ 1"):
        retraining_times_s(PROFILES, GPU, "m", n_samples=n_samples, n_epochs=n_epochs)


def test_a_model_that_never_ran_alone_cannot_be_retrained() -> None:
    with pytest.raises(ProfileTableError, match="packed on a100-80gb has no row with processes 1"):
        retraining_times_s(PROFILES, GPU, "packed", n_samples=1, n_epochs=1)


MEASURED = ServiceProfiles(
    "measured",
    tuple(
        replace(row, training_rps=50.0, start=MeasuredStart(0.5, 1.5, 0.2)) if row.profile == "1g.10gb" else row
        for row in PROFILES.of(GPU, "m")
        if (row.profile, row.batch) != ("1g.10gb", 8)  # one row of the profile has the pace
    ),
)
"""The same with a pace on the smallest profile, and a start."""


def test_a_measured_pace_goes_before_the_rule_on_its_profile() -> None:
    times_s = retraining_times_s(MEASURED, GPU, "m", n_samples=1000, n_epochs=2)
    assert times_s == {"1g.10gb": 2000 / 50, "2g.20gb": 3 * 2000 / 400}


def test_a_measured_start_goes_before_the_shipped_one() -> None:
    start = worker_start(MEASURED, GPU, "m")
    assert (start.base_s, start.library_s, start.slowdown_per_other, start.assumed) == (2.0, 0.5, 0.2, ())
    assert worker_start(PROFILES, GPU, "m") == default_worker_start("m")


BEFORE = (0.6, 0.8, 0.5, 0.9, 0.7)


def tenant(n_retraining_windows: int | None = None) -> Tenant:
    return Tenant(
        name="a",
        model="m",
        slo_s=0.1,
        operating_points={"1g.5gb": OperatingPoint("1g.5gb", 1, 1, 10.0, 0.05, LatencyCurve((1,), (0.05,)))},
        retraining_time_s={"1g.5gb": 20.0},
        accuracy=tuple(WindowAccuracy(before, 0.95) for before in BEFORE),
        min_profile="1g.5gb",
        worker_start=WorkerStart(1.0),
        n_retraining_windows=n_retraining_windows,
    )


@pytest.mark.parametrize("window", range(5))
def test_a_model_retrained_in_the_last_window_starts_at_before(window: int) -> None:
    assert accuracy_at_start(tenant(), window, window - 1) == BEFORE[window]


@pytest.mark.parametrize(
    ("window", "last_retrained", "accuracy"),
    [(1, -1, 0.6), (2, -1, 0.5), (3, -1, 0.5), (4, -1, 0.5), (2, 0, 0.5), (3, 0, 0.5), (4, 2, 0.7), (3, 1, 0.5)],
)
def test_a_model_whose_retraining_is_missing_never_recovers(window: int, last_retrained: int, accuracy: float) -> None:
    assert accuracy_at_start(tenant(), window, last_retrained) == accuracy


def test_a_tenant_that_is_not_to_be_retrained_any_more_follows_before() -> None:
    assert [accuracy_at_start(tenant(1), window, 0) for window in range(1, 5)] == list(BEFORE[1:])


def test_a_skipped_last_retraining_is_missed_for_good() -> None:
    assert [accuracy_at_start(tenant(1), window, -1) for window in range(1, 5)] == [0.6, 0.5, 0.5, 0.5]


def test_a_tenant_that_is_never_retrained_follows_before() -> None:
    assert [accuracy_at_start(tenant(0), window, -1) for window in range(5)] == list(BEFORE)


COMPOUND = replace(tenant(), accuracy=(WindowAccuracy(0.6, 0.9), WindowAccuracy(0.72, 0.8)), drift=Drift.COMPOUND)
"""Keeps 0.8 of its accuracy after window 0, and 0.9 after each later one."""


@pytest.mark.parametrize(("window", "kept"), [(0, 0.8), (1, 0.9), (5, 0.9)])
def test_a_window_takes_what_the_retrained_model_loses(window: int, kept: float) -> None:
    assert drift_in(COMPOUND, window) == pytest.approx(kept)


@pytest.mark.parametrize(
    "own",
    [
        replace(COMPOUND, n_retraining_windows=0),
        replace(COMPOUND, accuracy=(WindowAccuracy(0.6, 0.0),)),
        replace(COMPOUND, accuracy=(WindowAccuracy(0.9, 0.8),)),
    ],
)
def test_nothing_is_lost_where_nothing_can_be_learned_or_more_is_given(own: Tenant) -> None:
    assert drift_in(own, 0) == 1


def test_compound_drift_takes_from_who_skips_window_after_window() -> None:
    found = [accuracy_at_start(COMPOUND, window, -1) for window in range(4)]
    assert found == pytest.approx([0.6, 0.6 * 0.8, 0.6 * 0.8 * 0.9, 0.6 * 0.8 * 0.9**2])


def test_whoever_was_retrained_as_named_begins_with_before_whatever_the_drift() -> None:
    assert accuracy_at_start(COMPOUND, 1, 0) == 0.72


@pytest.mark.parametrize(("drift", "accuracy"), [(Drift.COMPOUND, 0.75 * 0.8), (Drift.AS_GIVEN, 0.72)])
def test_what_another_option_gave_falls_by_the_drift(drift: Drift, accuracy: float) -> None:
    assert accuracy_at_start(replace(COMPOUND, drift=drift), 1, 0, 0.75) == pytest.approx(accuracy)


def test_a_retraining_that_ends_two_windows_late_meets_the_drift_of_both() -> None:
    assert accuracy_at_start(COMPOUND, 2, 0) == pytest.approx(0.9 * 0.8 * 0.9)
