"""The motivation studies keep MIG's rules, add up, and are what simulating gives."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.held import Held, best_substitute, one_of, placed, substitutes
from benchmarks.paper.motivation import (
    ALLOCATIONS,
    SPLITS_2,
    SPLITS_4,
    best_by_second,
    config_at,
    config_of_both,
    config_with,
    fewest_changes,
    figure_5,
    histogram,
    in_time,
    rows_of_both,
    rows_of_split,
)
from executor.catalogue import gpu_model
from migrator.run.planning import PlannedWindow, Solving, plan_through
from migrator.setting import Setting, assemble
from migrator.traffic import RecordedTraffic
from planner.problem import Task

GPU = gpu_model("a100-80gb")


@pytest.fixture(scope="module")
def split_rows() -> list[dict[str, object]]:
    return rows_of_split(config_at(None).model_copy(update={"windows": 1}), (5, 2))


@pytest.fixture(scope="module")
def assembled_figure_3() -> tuple[Setting, RecordedTraffic]:
    return assemble(config_with("copies").model_copy(update={"windows": 1}), "figure-3")


def _planned(held: Held) -> PlannedWindow:
    assembled = assemble(config_of_both().model_copy(update={"windows": 1}), "figure-4")
    return plan_through(*assembled, 0, Solving(policy=held))[0]


@pytest.mark.parametrize(("gpcs", "beside"), [(6, ("1g.10gb",)), (5, ("2g.20gb",)), (5, ()), (6, ())])
def test_what_stands_for_five_or_six_gpcs_has_as_many(gpcs: int, beside: tuple[str, ...]) -> None:
    found = substitutes(GPU, gpcs, beside)
    assert {sum(GPU.profile(name).compute_slices for name in names) for names in found} == {gpcs}


@pytest.mark.parametrize(("gpcs", "beside"), [(6, ("1g.10gb",)), (5, ("2g.20gb",)), (4, ("3g.40gb",))])
def test_what_stands_for_gpcs_is_a_layout_with_what_is_beside_it(gpcs: int, beside: tuple[str, ...]) -> None:
    multisets = {tuple(sorted(p.profile.name for p in layout)) for layout in GPU.layouts()}
    assert all(tuple(sorted((*names, *beside))) in multisets for names in substitutes(GPU, gpcs, beside))


def test_two_instances_stand_for_five_gpcs() -> None:
    assert set(substitutes(GPU, 5, ("2g.20gb",))) == {("1g.10gb", "4g.40gb"), ("2g.20gb", "3g.40gb")}


def test_two_of_three_gpcs_do_not_stand_for_six_beside_a_retraining() -> None:
    assert substitutes(GPU, 6, ("1g.10gb",)) == (("2g.20gb", "4g.40gb"),)


def test_the_pair_that_answers_most_is_taken() -> None:
    rates = {"1g.10gb": 1.0, "2g.20gb": 2.0, "3g.40gb": 3.5, "4g.40gb": 4.0, "7g.80gb": 7.0}
    assert best_substitute(GPU, 5, ("2g.20gb",), rates) == ("3g.40gb", "2g.20gb")


def test_what_no_gpu_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing has 6 compute slices beside 2g"):
        substitutes(GPU, 6, ("2g.20gb",))


def test_parts_are_placed_on_one_gpu_without_overlap() -> None:
    parts = placed(GPU, (("1g.10gb",), ("1g.10gb",), ("2g.20gb", "3g.40gb")))
    assert GPU.fits([placement for part in parts for placement in part])


@pytest.mark.parametrize("split", SPLITS_4)
def test_a_held_plan_keeps_the_rules_and_the_split(split: tuple[int, int]) -> None:
    one, retraining = (one_of(GPU, 1),), tuple(one_of(GPU, gpcs) for gpcs in split)
    planned = _planned(Held((one, one), retraining))
    own = {item.owner.tenant: item for item in planned.plan.lifetimes if item.owner.task is Task.RETRAINING}
    assert planned.is_planned
    assert tuple(own[name].placement.profile.name for name in ("inception", "resnet50")) == retraining


def test_held_instances_never_change_and_retrainings_start_with_the_window() -> None:
    planned = _planned(Held((("1g.10gb",), ("1g.10gb",)), ("3g.40gb", "2g.20gb")))
    spans = {(item.create_step, item.end_step) for item in planned.plan.lifetimes if item.is_inference}
    starts = {item.create_step for item in planned.plan.lifetimes if not item.is_inference}
    assert (spans, starts) == ({(0, 200)}, {0})


def test_every_arrival_is_answered_or_dropped(split_rows: list[dict[str, Any]]) -> None:
    assert all(row["arrivals"] == row["in_time"] + row["late"] + row["dropped"] for row in split_rows)


def test_percentages_follow_from_the_counts(split_rows: list[dict[str, Any]]) -> None:
    for row in split_rows:
        answered, right = row["in_time"] + row["late"], row["correct"] + row["correct_late"]
        shares = row["in_time"] / row["arrivals"], right / answered, row["correct"] / row["arrivals"]
        assert (row["slo_pct"], row["accuracy_pct"], row["goodput_pct"]) == tuple(round(100 * x, 2) for x in shares)


def test_simulating_anew_gives_the_same(split_rows: list[dict[str, object]]) -> None:
    assert rows_of_split(config_at(None).model_copy(update={"windows": 1}), (5, 2)) == split_rows


def test_both_tenants_of_figure_4_are_asked_at_one_rate() -> None:
    _, traffic = assemble(config_of_both().model_copy(update={"windows": 1}), "figure-4")
    n_requests = [len(arrival_s) for arrival_s in traffic.hindsight.arrival_s]
    assert n_requests[0] == pytest.approx(n_requests[1], rel=0.02)


def test_a_row_of_figure_4_has_the_paper_s_number_of_its_window() -> None:
    rows = rows_of_both(config_of_both().model_copy(update={"windows": 1}), (3, 2))
    assert [row["paper_accuracy_pct"] for row in rows] == [89.72, None]


_RATES = st.floats(min_value=0.0, max_value=1000.0, allow_nan=False)
_CAPABILITIES = st.floats(min_value=1.0, max_value=1000.0, allow_nan=False)


@given(
    arrivals=st.lists(st.tuples(_RATES, _RATES), min_size=1, max_size=6),
    capability=st.lists(st.tuples(_CAPABILITIES, _CAPABILITIES), min_size=1, max_size=4),
)
def test_the_best_of_a_second_answers_no_less_than_any(
    arrivals: list[tuple[float, float]], capability: list[tuple[float, float]]
) -> None:
    best = best_by_second(np.array(arrivals), np.array(capability))
    for (a, b), chosen in zip(arrivals, best, strict=True):
        answered = [min(a, one) + min(b, other) for one, other in capability]
        assert answered[chosen] >= max(answered) - 1e-6


def test_of_allocations_that_answer_all_the_least_busy_counts() -> None:
    assert best_by_second(np.array([[10.0, 10.0]]), np.array([[11.0, 90.0], [50.0, 50.0], [90.0, 11.0]])).tolist() == [
        1
    ]


def test_what_is_in_time_is_limited_by_arrivals_and_capability() -> None:
    assert in_time(np.array([[5.0, 9.0]]), np.array([[3.0, 20.0], [8.0, 1.0]])).tolist() == [[12.0, 6.0]]


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3).filter(any), min_size=1, max_size=5))
def test_no_path_of_best_allocations_changes_less(are_best: list[list[bool]]) -> None:
    paths = product(*([k for k in range(3) if row[k]] for row in are_best))
    fewest = min(sum(one != other for one, other in pairwise(path)) for path in paths)
    assert fewest_changes(np.array(are_best)) == fewest


def test_the_histogram_counts_every_second_once(assembled_figure_3: tuple[Setting, RecordedTraffic]) -> None:
    rows, _ = histogram(*assembled_figure_3, "copies")
    assert sum(int(str(row["best_s"])) for row in rows) == 200


def test_a_second_in_which_one_is_best_is_one_in_which_it_is_among_the_best(
    assembled_figure_3: tuple[Setting, RecordedTraffic],
) -> None:
    rows: list[dict[str, Any]] = histogram(*assembled_figure_3, "copies")[0]
    assert all(row["alone_best_s"] <= row["best_s"] <= row["among_best_s"] for row in rows)


def test_allocations_share_out_seven_gpcs(assembled_figure_3: tuple[Setting, RecordedTraffic]) -> None:
    rows: list[dict[str, Any]] = histogram(*assembled_figure_3, "copies")[0]
    names = [(row["inception"].split(" + "), row["resnet50"].split(" + ")) for row in rows]
    sizes = [tuple(sum(GPU.profile(name).compute_slices for name in part) for part in pair) for pair in names]
    assert tuple(sizes) == ALLOCATIONS


def test_phases_add_up_to_the_reconfiguration() -> None:
    rows: Any = figure_5()["rows"]
    phases = ("destruction_ms", "initialisation_ms", "library_load_ms", "model_load_ms")
    assert all(sum(row[phase] for phase in phases) == row["total_ms"] for row in rows)


def test_only_measured_workers_are_called_measured() -> None:
    rows: Any = figure_5()["rows"]
    assert [row["model"] for row in rows if row["is_measured"]] == ["ResNet-50", "BERT-large"]


def test_splits_are_those_of_the_paper_s_figure() -> None:
    assert all(inference + retraining == 7 for inference, retraining in SPLITS_2)
