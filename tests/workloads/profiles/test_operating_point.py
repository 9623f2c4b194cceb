import csv
import math
from importlib.resources import files
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.catalogue import gpu_model
from tests.seeds import examples
from workloads.errors import ProfileTableError, UnmetSloError
from workloads.profiles.operating_point import OperatingPoint, highest_capability_rps, operating_points
from workloads.profiles.table import ServiceProfiles, ServiceRow, shipped_profiles

GPU = "a100-80gb"
MODELS = shipped_profiles().models(GPU)
SLOS_S = [0.02, 0.05, 0.15, 0.33, 1.0, math.inf]
NOT_RUN = list(csv.DictReader((files("workloads.data") / "parvagpu_did_not_run.csv").read_text().splitlines()))
cases = pytest.mark.parametrize(("model", "slo_s"), list(product(MODELS, SLOS_S)))


def points(model: str, slo_s: float) -> dict[str, OperatingPoint]:
    """The points of the model; none where none meets the SLO."""
    try:
        return dict(operating_points(shipped_profiles(), GPU, model, slo_s))
    except UnmetSloError:
        return {}


def made(*rows: tuple[str, int, int, float, float]) -> ServiceProfiles:
    return ServiceProfiles("made", tuple(ServiceRow("me", GPU, "m", *row) for row in rows))


@cases
def test_a_point_is_the_fastest_row_whose_two_batches_meet_the_slo(model: str, slo_s: float) -> None:
    fastest: dict[str, float] = {}
    for row in shipped_profiles().of(GPU, model):
        if 2 * row.latency_s <= slo_s:
            fastest[row.profile] = max(row.throughput_rps, fastest.get(row.profile, 0))
    assert {name: point.rate_rps for name, point in points(model, slo_s).items()} == fastest


@cases
def test_a_point_is_one_measured_row(model: str, slo_s: float) -> None:
    rows = {(r.profile, r.batch, r.processes, r.throughput_rps, r.latency_s) for r in shipped_profiles().rows}
    for name, point in points(model, slo_s).items():
        assert (name, point.batch, point.processes, point.rate_rps, point.batch_latency_s) in rows


@cases
def test_a_points_curve_holds_every_measured_batch_up_to_its_own(model: str, slo_s: float) -> None:
    for point in points(model, slo_s).values():
        measured = {
            row.batch: row.latency_s
            for row in shipped_profiles().of(GPU, model)
            if (row.profile, row.processes) == (point.profile, point.processes) and row.batch <= point.batch
        }
        assert dict(zip(point.latency.batches, point.latency.latency_s, strict=True)) == measured


@pytest.mark.parametrize("row", NOT_RUN, ids=lambda row: "-".join(list(row.values())[2:]))
def test_what_the_source_records_as_not_run_cannot_be_placed(row: dict[str, str]) -> None:
    try:
        placed = operating_points(
            shipped_profiles(), row["gpu"], row["model"], math.inf, int(row["batch"]), int(row["processes"])
        )
    except ProfileTableError:
        return  # it ran on no profile at all
    assert row["profile"] not in placed


def test_the_record_of_what_did_not_run_is_the_sources() -> None:
    assert len(NOT_RUN) == 176


def test_a_chosen_batch_and_process_count_are_kept() -> None:
    placed = operating_points(shipped_profiles(), GPU, "resnet50", 1.0, batch=8, processes=2)
    assert {(point.batch, point.processes) for point in placed.values()} == {(8, 2)}


def test_a_profile_on_which_the_chosen_batch_never_ran_is_absent() -> None:
    placed = operating_points(shipped_profiles(), GPU, "resnet50", math.inf, batch=256, processes=1)
    assert set(placed) == {"7g.80gb"}


@pytest.mark.parametrize(("batch", "processes"), [(3, "auto"), ("auto", 9), (256, 5)])
def test_a_batch_or_process_count_that_never_ran_is_refused_with_what_did(
    batch: int | str, processes: int | str
) -> None:
    with pytest.raises(ProfileTableError, match=r"resnet50 on a100-80gb fits no instance .* batches 1, 2, 4, 8, 16"):
        operating_points(shipped_profiles(), GPU, "resnet50", 1.0, batch, processes)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_batch", [1, 4, 64])
def test_a_limit_on_batches_leaves_the_best_of_those_below_it(max_batch: int) -> None:
    rows = tuple(row for row in shipped_profiles().rows if row.batch <= max_batch)
    below = ServiceProfiles("below", rows)
    limited = operating_points(shipped_profiles(), GPU, "resnet50", 0.15, max_batch=max_batch)
    unlimited = operating_points(below, GPU, "resnet50", 0.15)
    assert {name: point.rate_rps for name, point in limited.items()} == {
        name: point.rate_rps for name, point in unlimited.items()
    }


def test_a_chosen_batch_above_the_limit_is_refused_naming_both() -> None:
    with pytest.raises(ProfileTableError, match=r"with batch 8 \(at most 4\)"):
        operating_points(shipped_profiles(), GPU, "resnet50", 1.0, batch=8, max_batch=4)


@pytest.mark.parametrize("model", MODELS)
def test_an_unmet_slo_names_the_least_that_would_do(model: str) -> None:
    with pytest.raises(UnmetSloError, match=r"meets an SLO of 1 ms on no profile .* ms or more would do, on \dg") as e:
        operating_points(shipped_profiles(), GPU, model, 0.001)
    named_ms = float(str(e.value).split(" ms or more")[0].rsplit(" ", 1)[1])
    assert points(model, named_ms / 1000)
    assert not points(model, named_ms / 1000 - 2e-5)


def test_an_unmet_slo_is_judged_on_the_chosen_rows_alone() -> None:
    profiles = made(("1g.10gb", 1, 1, 0.010, 100.0), ("1g.10gb", 2, 1, 0.015, 130.0))
    with pytest.raises(UnmetSloError, match=r"30 ms or more would do, on 1g\.10gb with batch 2 and 1 process$"):
        operating_points(profiles, GPU, "m", 0.025, batch=2)


def test_an_slo_of_exactly_two_batches_is_met() -> None:
    assert "1g.10gb" in operating_points(made(("1g.10gb", 1, 1, 0.25, 4.0)), GPU, "m", 0.5)


def test_of_equal_rates_the_shorter_batch_wins() -> None:
    profiles = made(("1g.10gb", 2, 1, 0.2, 100.0), ("1g.10gb", 1, 1, 0.1, 100.0), ("1g.10gb", 4, 1, 0.4, 100.0))
    assert operating_points(profiles, GPU, "m", 9.0)["1g.10gb"].batch == 1


@settings(derandomize=True, max_examples=examples(30))
@given(st.dictionaries(st.sampled_from(gpu_model(GPU).standard_profile_names), st.floats(1, 1000), min_size=1))
def test_the_highest_capability_is_that_of_the_best_layout(rates: dict[str, float]) -> None:
    gpu = gpu_model(GPU)
    profiles = made(*((name, 1, 1, 0.1, rate) for name, rate in rates.items()))
    best = max(sum(rates.get(placement.profile.name, 0.0) for placement in layout) for layout in gpu.layouts())
    assert highest_capability_rps(gpu, operating_points(profiles, GPU, "m", 1.0).values()) == pytest.approx(best)


@cases
def test_points_chosen_by_misjudged_latencies_are_those_of_the_misjudged_table_as_they_are(
    model: str, slo_s: float
) -> None:
    factors = {row.profile: 0.7 + 0.1 * index for index, row in enumerate(shipped_profiles().of(GPU, model))}
    rows = tuple(row.stretched(factors[row.profile]) for row in shipped_profiles().of(GPU, model))
    try:
        believed = dict(operating_points(ServiceProfiles("wrong", rows), GPU, model, slo_s))
    except UnmetSloError:
        with pytest.raises(UnmetSloError):
            operating_points(shipped_profiles(), GPU, model, slo_s, misjudged=factors)
        return
    found = operating_points(shipped_profiles(), GPU, model, slo_s, misjudged=factors)
    assert {name: point.stretched(factors[name]) for name, point in found.items()} == believed


def test_an_slo_that_latencies_seem_to_miss_is_unmet_and_says_so() -> None:
    table = made(("7g.80gb", 4, 1, 0.5, 8.0))
    needed = "as planning misjudges it\\); 1,200 ms or more would do"
    with pytest.raises(UnmetSloError, match=needed):
        operating_points(table, GPU, "m", 1.0, misjudged={"7g.80gb": 1.2})


def test_an_slo_that_latencies_seem_to_meet_may_be_missed_in_truth() -> None:
    point = operating_points(made(("7g.80gb", 4, 1, 0.6, 8.0)), GPU, "m", 1.0, misjudged={"7g.80gb": 0.8})["7g.80gb"]
    assert (point.batch_latency_s, point.rate_rps) == (0.6, 8.0)
