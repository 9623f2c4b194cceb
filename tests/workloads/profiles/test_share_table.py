"""Measured shares: what a table says of latency and of neighbours, what is left out of it, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from executor.catalogue import gpu_model
from tests.workloads.profiles.share_rows import ALONE_MS, CARD, PERCENTS, mean_ms, share_rows, share_text
from workloads.errors import ProfileTableError
from workloads.profiles.share_table import ShareTable, on_shares, parse_share_table, read_share_table
from workloads.profiles.share_table import share_text as table_text
from workloads.profiles.shares import IMAGE, TEXT, Sensitivity, ShareProfile, slowdown
from workloads.profiles.table import ServiceProfiles, ServiceRow, shipped_profiles

GPU = gpu_model("a100-80gb")


def parsed(rows: list[str] | None = None) -> ShareTable:
    return parse_share_table("shares.csv", share_text(rows), GPU)


def with_cell(column: int, value: str, line: int = 2) -> list[str]:
    rows = share_rows()
    cells = rows[line - 2].split(",")
    cells[column] = value
    rows[line - 2] = ",".join(cells)
    return rows


@pytest.mark.parametrize("model", ALONE_MS)
@pytest.mark.parametrize("batch", [1, 8])
def test_curves_are_what_was_measured_alone(model: str, batch: int) -> None:
    curve = parsed().knees(model)[batch]
    for percent in (*PERCENTS, 40, 66):
        assert curve.at(percent / 100) * 1000 == pytest.approx(mean_ms(model, batch, percent))


def test_a_share_serves_as_its_curve_says() -> None:
    table = parsed()
    profile = ShareProfile.of(shipped_profiles(), GPU, "resnet50", 0.15, knees=table.knees("resnet50"))
    point = profile.point(0.4)
    assert (point.batch, point.processes) == (8, 1)
    assert point.latency.at(8) * 1000 == pytest.approx(mean_ms("resnet50", 8, 40))
    assert point.rate_rps == pytest.approx(8000 / mean_ms("resnet50", 8, 40))
    assert profile.point(0.4, 1.5).rate_rps == pytest.approx(point.rate_rps / 1.5)
    assert (
        ShareProfile.of(shipped_profiles(), GPU, "resnet50", 0.15, 1, knees=table.knees("resnet50")).point(1).batch == 1
    )


def test_without_a_table_a_share_serves_as_mig_does() -> None:
    of_mig = ShareProfile.of(shipped_profiles(), GPU, "resnet50", 0.15)
    assert of_mig.knees == {}
    assert of_mig.point(0.4) == ShareProfile.of(shipped_profiles(), GPU, "resnet50", 0.15, knees={}).point(0.4)


def test_misjudged_latencies_are_longer_by_the_factor_of_the_profile() -> None:
    profile = ShareProfile.of(shipped_profiles(), GPU, "resnet50", 0.15, knees=parsed().knees("resnet50"))
    factors = {name: 1.5 if GPU.profile(name).compute_slices == 3 else 1.0 for name in GPU.profile_names}
    wrong = profile.misjudged(factors)
    assert wrong.point(3 / 7).latency.at(1) == pytest.approx(1.5 * profile.point(3 / 7).latency.at(1))
    assert wrong.point(1.0) == profile.point(1.0)
    assert profile.point(0.1).latency.at(1) * 0.1 == pytest.approx(profile.point(0.05).latency.at(1) * 0.05)


def test_what_a_training_costs_is_the_mean_beside_it_over_that_alone() -> None:
    table = parsed(share_rows(beside={"resnet50": 1.2, "bert-large": 1.6}))
    assert table.beside("resnet50") == pytest.approx({"resnet50": 1.2, "bert-large": 1.6})
    own = table.sensitivity("resnet50", IMAGE, ["bert-large", "vit-b-16"])
    assert own.beside_inference == IMAGE.beside_inference
    assert own.by_trainer == pytest.approx({"bert-large": 1.6, "vit-b-16": 1.4})
    assert own.beside_retraining == pytest.approx(1.5)


def test_each_training_that_runs_costs_its_own() -> None:
    own = Sensitivity(2.0, 1.5, {"a": 1.2, "b": 1.8})
    assert slowdown(own, 1.0, (), 2, ["a", "a"]) == pytest.approx(1.4)
    assert slowdown(own, 0.5, (), 1, ["b"]) == pytest.approx(1.4)
    assert slowdown(own, 1.0, (), 2) == pytest.approx(2.0)
    assert slowdown(IMAGE, 1.0, (), 1, ["a"]) == pytest.approx(1.21)


def test_without_rows_beside_a_training_mudis_figures_stay() -> None:
    assert parsed(share_rows(beside={})).sensitivity("bert-large", TEXT, ["resnet50"]) is TEXT


def test_a_card_that_is_cut_is_planned_by_the_curves_beside_a_training() -> None:
    gpu = gpu_model(CARD)
    one = ServiceRow("me", CARD, "resnet50", "2m", 1, 1, 0.01, 100.0, training_rps=50.0)
    other = ServiceRow("me", CARD, "resnet50", "7m", 4, 2, 0.01, 800.0, batch_mib=3.0, weights_mib=90.0)
    table = parse_share_table("x/shares.csv", share_text(), gpu)
    found = on_shares(ServiceProfiles("t", (one, other)), gpu, table, {"resnet50": 1.2}).of(CARD, "resnet50")
    assert [(row.profile, row.batch, row.training_rps, row.weights_mib) for row in found] == [
        ("2m", 1, 50.0, None), ("2m", 8, None, None), ("7m", 1, None, 90.0), ("7m", 8, None, None),
    ]  # fmt: skip
    assert found[0].latency_s * 1000 == pytest.approx(1.2 * mean_ms("resnet50", 1, 200 / 7))
    assert found[2].latency_s * 1000 == pytest.approx(mean_ms("resnet50", 1, 90) * 0.9, rel=0.1)
    assert found[0].derived == "share curve of shares.csv, × 1.200 beside a training"
    assert found[2].derived == "share curve of shares.csv"


def test_a_row_that_is_slower_on_a_larger_share_is_left_out_and_named() -> None:
    rows = share_rows(["resnet50"], [1], {})
    rows.append(f"{CARD},resnet50,1,60,,9,9.1,")
    table = parsed(rows)
    assert table.warnings == ("shares.csv line 7: 9 ms on 60 %, 4 ms on 50 %: left out, more than its spread",)
    assert table.knees("resnet50")[1].at(0.5) * 1000 == pytest.approx(4.0)


def test_a_row_that_is_slower_within_its_spread_stays() -> None:
    rows = share_rows(["resnet50"], [1], {})
    rows.append(f"{CARD},resnet50,1,60,,4.2,4.5,")
    assert parsed(rows).warnings == ()
    assert len(parsed(rows).rows) == 6


def test_a_batch_of_fewer_than_five_shares_is_left_out() -> None:
    rows = [*share_rows(["resnet50"], [1], {}), *share_rows(["resnet50"], [8], {})[:4]]
    table = parsed(rows)
    assert list(table.knees("resnet50")) == [1]
    assert table.warnings == ("shares.csv: resnet50 at batch 8 has 4 shares; 5 are needed: left out",)


def test_a_table_that_only_rises_is_refused() -> None:
    rows = [f"{CARD},resnet50,1,{percent},,{percent},{percent}," for percent in PERCENTS]
    with pytest.raises(
        ProfileTableError, match=r"no curve can be used; 5 shares or more .* line 3: 30 ms on 30 %, 10 ms"
    ):
        parsed(rows)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (with_cell(0, "mps-a100-40gb-in-7"), "line 2: gpu is 'mps-a100-40gb-in-7'; the config's is a100-80gb"),
        (with_cell(0, "cpu-1.6-in-7"), "line 2: gpu is 'cpu-1.6-in-7'; the config's is a100-80gb"),
        (with_cell(1, ""), "line 2: model is empty"),
        (with_cell(2, "1.5"), "line 2: batch is '1.5'; a whole number ≥ 1 is needed"),
        (with_cell(3, "0"), "line 2: share is '0'; a number from"),
        (with_cell(3, "100"), "line 2: share is '100'; hundredths of the card, more than 0, less than 100"),
        (with_cell(5, "quick"), "line 2: mean_ms is 'quick'; a number from"),
        (with_cell(6, "0.1"), "line 2: p99_ms is 0.1, less than mean_ms, 10.4"),
        (with_cell(7, "3"), "line 2: step_ms is 3, and nothing trains beside"),
        (with_cell(7, "-3", 3), "line 3: step_ms is '-3'; a number from"),
        ([*share_rows(), share_rows()[1]], "resnet50 at batch 1 on 10 % beside resnet50 is in line 3 already"),
        (share_rows()[:3], "no curve can be used"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_line(rows: list[str], says: str) -> None:
    with pytest.raises(ProfileTableError, match=re.escape(says)):
        parsed(rows)


def test_another_header_is_refused() -> None:
    with pytest.raises(
        ProfileTableError,
        match=r"line 1: the header is 'a,b'; gpu,model,batch.*is needed; after that, derived may",
    ):
        parse_share_table("shares.csv", "a,b\n1,2\n", GPU)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileTableError, match="cannot be read"):
        read_share_table(tmp_path / "none.csv", GPU)


def test_a_model_without_rows_is_refused_with_what_there_is() -> None:
    with pytest.raises(ProfileTableError, match=r"no rows of the model 'resnet5' \(did you mean resnet50\?\); it has"):
        parsed().knees("resnet5")


def test_a_table_is_written_as_it_is_read() -> None:
    rows = parsed().rows
    again = parse_share_table("again", table_text(rows), GPU).rows
    assert [row.key for row in again] == [row.key for row in rows]
    for old, new in zip(rows, again, strict=True):
        assert (new.mean_s, new.p99_s) == pytest.approx((old.mean_s, old.p99_s), rel=1e-6)
        assert new.step_s == old.step_s


def test_the_shipped_set_is_of_four_models_beside_three_trainings() -> None:
    path = Path(__file__).parents[3] / "configs" / "live-cpu-shares.csv"
    table = read_share_table(path, gpu_model("cpu-1.6-in-7"))
    assert len(table.warnings) == 1
    for model in ("mlp", "cnn", "cnn_wide", "mobilenet_v2"):
        assert set(table.beside(model)) == {"mlp", "cnn", "cnn_wide"}
        assert set(table.knees(model)) == {1, 4, 16}
    assert table.knees("mobilenet_v2")[16].at(0.1) > 5 * table.knees("mobilenet_v2")[16].at(0.7)
