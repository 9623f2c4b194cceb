"""A small cluster from its config to its answer, and the check of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pytest
import yaml

from migrator.cluster.answer import ClusterPlan, plan_to_json, read_plan_file
from migrator.cluster.planning import plan_cluster
from migrator.cluster.posing import FirstWindow, Valuing, first_window
from migrator.cluster.simulation import gpu_configs
from migrator.config.cluster import ClusterConfig, read_cluster
from migrator.errors import ConfigError, InfeasibleError
from planner.errors import PlanFileError


def tenant(name: str, model: str, slo_ms: int, offset_s: int, **more: Any) -> dict[str, Any]:
    arrivals = {"trace": "azure-conv", "offset_s": offset_s}
    accuracy = {"before": 0.7, "after": 0.85}
    return {"name": name, "model": model, "slo_ms": slo_ms, "arrivals": arrivals, "accuracy": accuracy, **more}


def document() -> dict[str, Any]:
    return {
        "name": "small",
        "seed": 1,
        "window_s": 40,
        "step_s": 1,
        "windows": 1,
        "load": 0.6,
        "forecast": {"n_paths": 4},
        "sharing": {"pools": "off"},
        "cluster": {"gpus": [{"name": "a", "model": "a100-80gb", "node": "n1", "count": 2}]},
        "tenants": [
            tenant("vision", "resnet50", 150, 900, replicas=2),
            tenant("language", "bert-large", 330, 1500, retraining={"samples": 100}),
            tenant("mobile", "mobilenet-v2", 100, 2000, keep_apart=["language"]),
        ],
    }


def written(folder: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
    data = document()
    change(data)
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def gpus(*entries: dict[str, Any]) -> Callable[[dict[str, Any]], object]:
    return lambda data: data["cluster"].update(gpus=list(entries))


A = {"name": "a", "model": "a100-80gb", "node": "n1"}

B = {"name": "b", "model": "a100-80gb", "node": "n2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (gpus({**A, "model": "h900"}), r"cluster\.gpus\.a\.model: unknown GPU model 'h900'"),
        (gpus({**A, "count": 0}), r"cluster\.gpus\.a\.count: at least 1"),
        (gpus(A, {**A, "node": "n2"}), "two entries are called 'a'"),
        (gpus(A, {**A, "name": "b"}), r"gpus\.b\.index is 0"),
        (gpus(), r"cluster\.gpus"),
        (lambda data: data["tenants"][1].update(only_on=["n2"]), "'n2' is no model and no node"),
        (lambda data: data["tenants"][1].update(keep_apart=["language"]), "the tenant itself"),
        (lambda data: data["tenants"][1].update(keep_apart=["nobody"]), "'nobody' is no tenant"),
        (lambda data: data["tenants"][0].update(replicas=0), r"vision\.replicas: at least 1"),
        (lambda data: data["tenants"][0].update(replicas=3), "2 may have it"),
        (lambda data: data["tenants"][2].update(name="vision.1", keep_apart=[]), "'vision.1' is a tenant"),
        (lambda data: data.update(gpu={"model": "a100-80gb"}), "gpu is beside cluster"),
        (lambda data: data.pop("cluster"), "cluster is missing"),
        (lambda data: data["sharing"].update(pools=[["vision", "mobile"]]), "off or auto"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_told(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_cluster(written(tmp_path, change))


def test_replicas_are_tenants_of_a_part_of_the_arrivals(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path))
    assert [one.name for one in cluster.run.tenants] == ["vision.0", "vision.1", "language", "mobile"]
    assert [one.load_share for one in cluster.run.tenants] == [0.5, 0.5, 1.0, 1.0]
    assert cluster.replicas_of() == (("vision.0", "vision.1"),)
    assert cluster.apart() == (("vision.0", "vision.1"), ("language", "mobile"))
    assert [gpu.name for gpu in cluster.gpus] == ["a.0", "a.1"]
    assert [gpu.config.index for gpu in cluster.gpus] == [0, 1]


Small = tuple[ClusterConfig, Valuing, dict[str, Any], Path]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    folder = tmp_path_factory.mktemp("cluster")
    cluster = read_cluster(written(folder))
    with Valuing(foreseen_here(cluster), 2) as values:
        answer = plan_to_json(cluster, plan_cluster(cluster, values))
        (folder / "plan.json").write_text(json.dumps(answer))
        yield cluster, values, answer, folder / "plan.json"


def foreseen_here(cluster: ClusterConfig) -> FirstWindow:
    """The first window, found in this process."""
    with patch("migrator.cluster.posing.Processes", Here):
        return first_window(cluster, "cluster.yaml", 1)


class Here:
    """Stands for processes: all is done here."""

    def __init__(self, _: int, prepare: Callable[[], None] | None = None) -> None:
        self._prepare = prepare

    def __enter__(self) -> Self:
        if self._prepare is not None:
            self._prepare()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return enumerate(map(function, items))


def planned_here(cluster: ClusterConfig, begun: Path | None = None) -> ClusterPlan:
    """Who goes where, found in this process."""
    with patch("migrator.cluster.posing.Processes", Here), Valuing(foreseen_here(cluster), 1) as values:
        return plan_cluster(cluster, values, None if begun is None else read_plan_file(begun).sets)


def test_an_answer_keeps_rules_and_has_sums_and_a_bound(small: Small) -> None:
    _, _, answer, _ = small
    members = [set(gpu["tenants"]) for gpu in answer["gpus"]]
    assert all(len(own & {"vision.0", "vision.1"}) == 1 for own in members)
    assert all(not {"language", "mobile"} <= own for own in members)
    assert answer["worth"] == pytest.approx(sum(gpu["worth"] for gpu in answer["gpus"]))
    assert answer["bound"] == answer["bound_exclusive"] >= answer["worth"]
    assert answer["status"] == ("optimal" if answer["gap"] <= 1e-9 else "feasible")


def test_in_one_process_and_with_tenants_in_another_order_it_is_the_same(small: Small, tmp_path: Path) -> None:
    _, _, answer, _ = small
    cluster = read_cluster(written(tmp_path, lambda data: data["tenants"].reverse()))
    assert plan_to_json(cluster, planned_here(cluster)) == answer


def test_where_all_stand_well_nobody_moves(small: Small) -> None:
    cluster, values, answer, path = small
    again = plan_to_json(cluster, plan_cluster(cluster, values, read_plan_file(path).sets))
    assert again["moved"] == []
    assert again["worth"] == pytest.approx(answer["worth"])


def live(data: dict[str, Any]) -> None:
    """Two nodes with real GPUs, whose clients are yet to come."""
    arrivals = {"live": True, "expect_rps": 20}
    serves = {"input": {"dtype": "float32", "shape": [4]}, "classes": 3, "arrivals": arrivals, "retraining": None}
    gpus({**A, "backend": "nvml", "index": 2}, {**B, "backend": "nvml"})(data)
    data.update(front_door={"port": 8100}, tenants=[{**one, **serves} for one in data["tenants"]])
    del data["load"], data["windows"]


def test_who_waits_for_clients_is_placed_by_what_is_expected_and_written_as_a_service(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, live))
    with patch("migrator.cluster.posing.Processes", Here), Valuing(window := foreseen_here(cluster), 1) as values:
        plan = plan_cluster(cluster, values)
    configs = gpu_configs(cluster, window, plan)
    assert plan.unserved == ()
    assert {name: own.front_door.port for name, own in configs.items() if own.front_door} == {"a.0": 8102, "b.0": 8100}
    assert all(own.is_endless for own in configs.values())
    assert sum(one.load for one in window.tenants) > 0


def test_a_node_that_is_lost_has_no_tenants_and_others_stay(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, live))
    with patch("migrator.cluster.posing.Processes", Here), Valuing(foreseen_here(cluster), 1) as values:
        plan = plan_cluster(replace(cluster, lost=frozenset({"n1"})), values, {"b.0": ("vision.1", "mobile")})
    placed = dict(zip([gpu.name for gpu in cluster.gpus], map(set, plan.found.sets), strict=True))
    assert placed["a.0"] == set()
    assert {"vision.1", "mobile"} <= placed["b.0"]
    assert {"vision.0", "language"} == set(plan.unserved), "replicas are apart, and language is from mobile"


def test_with_pools_no_bound_is_known_but_that_of_plans_without(small: Small, tmp_path: Path) -> None:
    _, _, answer, _ = small
    cluster = read_cluster(written(tmp_path, lambda data: data["sharing"].update(pools="auto")))
    pooled = plan_to_json(cluster, planned_here(cluster))
    assert pooled["bound"] is pooled["gap"] is None
    assert pooled["bound_exclusive"] == pytest.approx(answer["bound_exclusive"])
    assert pooled["worth"] >= answer["worth"] - 1e-6


def test_a_model_without_profiles_on_the_gpus_that_may_have_it_is_refused(tmp_path: Path) -> None:
    other = {"name": "b", "model": "a30-24gb", "node": "n2"}
    cluster = read_cluster(written(tmp_path, gpus({**A, "count": 2}, other)), ["tenants.language.only_on=[n2]"])
    with pytest.raises(ConfigError, match=r"tenants\.language\.model is 'bert-large', .* on a30-24gb"):
        foreseen_here(cluster)


def test_a_table_of_one_entry_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, gpus({**A, "count": 2}, {**B, "profiles": "no.csv"})))
    with pytest.raises(ConfigError, match=r"profiles: .*no\.csv: cannot be read"):
        foreseen_here(cluster)


@pytest.mark.parametrize(("first", "only_on"), [("a100-80gb", "n2"), ("a30-24gb", "a100-80gb")])
def test_where_no_gpu_serves_a_tenant_any_more_it_is_unplaced(first: str, only_on: str, tmp_path: Path) -> None:
    mobile = tenant("mobile", "mobilenet-v2", 100, 2000, only_on=[only_on])
    path = written(tmp_path, lambda data: (data.update(tenants=[mobile]), gpus({**A, "model": first}, B)(data)))
    cluster = read_cluster(path)
    with patch("migrator.cluster.posing.Processes", Here), Valuing(foreseen_here(cluster), 1) as values:
        plan = plan_cluster(replace(cluster, gpus=cluster.gpus[:1]), values)
    assert (plan.status, plan.unserved) == ("infeasible", ("mobile",))
    assert (plan.shortfall or "").startswith("tenant mobile is on no GPU: ")


def test_what_is_no_answer_is_told_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=r"cluster\.yaml: unknown key"):
        read_plan_file(written(tmp_path))


def test_a_tenant_whose_slo_no_profile_meets_fits_nowhere(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path), ["tenants.language.slo_ms=1"])
    with pytest.raises(InfeasibleError, match=r"tenants\.language: .*1 ms"):
        foreseen_here(cluster)


def test_a_tenant_that_brings_more_than_a_gpu_serves_is_told_its_least_replicas(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path), ["load=0.9", "tenants.mobile.load_share=6"])
    with pytest.raises(InfeasibleError, match=r"tenant mobile fits on no GPU: .* tenants\.mobile\.replicas: 2"):
        planned_here(cluster)
