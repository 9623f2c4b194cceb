"""Runs of a small cluster, one GPU beside a plan of it, rivals, and the fewest GPUs; all in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from migrator.cluster.answer import ClusterPlan
from migrator.cluster.fewest import Fewest, require_known
from migrator.cluster.planning import plan_cluster, plan_rival
from migrator.cluster.posing import Valuing
from migrator.cluster.simulation import GpuRun, carry_out, gpu_configs, likeness, outcome_of, require_simulated, total
from migrator.config.cluster import ClusterConfig, read_cluster
from migrator.config.reading import config_yaml, read_config
from migrator.errors import ConfigError, GridError
from migrator.log.report import report_of
from migrator.log.runlog import read_log
from migrator.whatif.search import Verdict, read_conditions
from tests.migrator.cluster.test_cluster import A, Here, foreseen_here, gpus, written
from workloads.serving.tally import Totals

Planned = tuple[ClusterConfig, Valuing, ClusterPlan]


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[Planned]:
    cluster = read_cluster(written(tmp_path), ["planner.max_schedules=20"])
    here = [patch(f"migrator.cluster.{room}.Processes", Here) for room in ("posing", "simulation")]
    with here[0], here[1], Valuing(foreseen_here(cluster), 1) as values:
        yield cluster, values, plan_cluster(cluster, values)


def test_sums_of_runs_are_those_of_their_logs_and_rivals_and_searches_stand_on_them(
    planned: Planned, tmp_path: Path
) -> None:
    cluster, values, plan = planned
    configs = gpu_configs(cluster, values.window, plan)
    done = carry_out([GpuRun(own, "cluster.yaml", tmp_path / name) for name, own in configs.items()], 1)
    found = outcome_of(cluster, plan, dict(zip(configs, done, strict=True)))
    reports = [report_of(read_log(tmp_path / name)).total for name in configs]
    assert found.total == total(done) == sum((one.requests for one in reports if one is not None), Totals())
    for name, own in configs.items():
        (tmp_path / f"{name}.yaml").write_text(config_yaml(own, tmp_path))
        assert read_config(tmp_path / f"{name}.yaml").tenants == own.tenants
    spread = plan_rival(cluster, values, "spread", plan.found.bound)
    assert spread.found.worth <= plan.found.worth
    assert not spread.unserved
    slopes = values.window.slopes()
    assert slopes.shape == (len(values.window.configs), len(values.window.tenants))
    assert (slopes > 0).all()
    assert plan_rival(cluster, values, "mudi", plan.found.bound).found.worth <= plan.found.worth


def test_the_fewest_gpus_are_those_that_runs_keep_it_on(planned: Planned) -> None:
    cluster, values, _ = planned
    fewest = Fewest(cluster, values, 1)
    found = fewest.find(read_conditions(["goodput>=0.05"], ["mobile"]))
    assert [outcome.status for outcome in found.outcomes][-1] == "infeasible"  # two replicas need two GPUs
    confirmed = fewest.confirm(found, lambda _: None, lambda _: None)
    assert confirmed.holds is not None
    assert (confirmed.holds.choice.value, confirmed.holds.verdict) == (2, Verdict.HOLDS)
    with pytest.raises(GridError, match="min:gpus"):
        require_known("max:load")


def test_runs_are_alike_on_gpus_of_one_model_alone(tmp_path: Path) -> None:
    other = {"name": "b", "model": "a100-40gb", "node": "n1", "index": 2}
    cluster = read_cluster(written(tmp_path, gpus({**A, "count": 2}, other)))
    first, second, third = (likeness(cluster.config_of(gpu, cluster.run.tenants)) for gpu in cluster.gpus)
    assert first == second != third


def test_runs_of_a_cluster_are_simulated(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, gpus({**A, "count": 2, "backend": "nvml"})))
    with pytest.raises(ConfigError, match=r"cluster\.gpus\.a\.backend is nvml"):
        require_simulated(cluster, "cluster.yaml")
