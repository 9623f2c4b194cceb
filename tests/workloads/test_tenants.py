import math
from dataclasses import replace

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from workloads.errors import WorkloadError
from workloads.profiles.operating_point import operating_points
from workloads.profiles.shipped import shipped_profiles
from workloads.tenants import Tenant, WindowAccuracy, most_instances
from workloads.worker_start import WorkerStart

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


@pytest.mark.parametrize(("gpu", "n_at_once"), [("a100-80gb", 7), ("a30-24gb", 4)])
def test_the_overhead_is_the_start_with_all_instances_at_once(gpu: str, n_at_once: int) -> None:
    assert TENANT.overhead_s(gpu_model(gpu)) == TENANT.worker_start.planned_s(n_at_once)


def test_the_overhead_has_no_jitter() -> None:
    shaky = replace(TENANT, worker_start=replace(TENANT.worker_start, jitter=1.0))
    assert shaky.overhead_s(gpu_model("a100-80gb")) == TENANT.overhead_s(gpu_model("a100-80gb"))


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
