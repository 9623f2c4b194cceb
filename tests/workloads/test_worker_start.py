import csv
import math
import statistics
from pathlib import Path

import numpy as np
import pytest

from workloads.errors import WorkloadError
from workloads.worker_start import WorkerStart, default_worker_start

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
