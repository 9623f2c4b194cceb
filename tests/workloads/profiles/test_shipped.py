import csv
from collections import Counter
from pathlib import Path

import pytest

from workloads.profiles.shipped import shipped_profiles

GPU = "a100-80gb"
SOURCES = {
    "parvagpu": {"resnet50", "mobilenet-v2", "inception-v3", "bert-large"},
    "migperf": {"vit-b-16", "bert-base", "convnext-base"},
}
RECORDED = Path(__file__).parents[4] / "shared" / "data" / "mig_profiles" / "profiles.csv"


def test_the_shipped_table_has_seven_models_on_five_profiles_each() -> None:
    found = Counter((row.gpu, row.model) for row in {r.key[:3]: r for r in shipped_profiles().rows}.values())
    assert found == {(GPU, model): 5 for models in SOURCES.values() for model in models}


def test_every_model_has_one_source() -> None:
    found = {(row.source, row.model) for row in shipped_profiles().rows}
    assert found == {(source, model) for source, models in SOURCES.items() for model in models}


def test_what_is_derived_is_the_missing_4g_and_all_of_convnext() -> None:
    derived = {(row.model, row.profile) for row in shipped_profiles().rows if row.derived}
    convnext = {("convnext-base", row.profile) for row in shipped_profiles().of(GPU, "convnext-base")}
    assert derived == {("vit-b-16", "4g.40gb"), ("bert-base", "4g.40gb")} | convnext


@pytest.mark.parametrize("model", ["vit-b-16", "bert-base", "convnext-base"])
def test_a_derived_4g_lies_between_3g_and_7g(model: str) -> None:
    latency_s = {(row.profile, row.batch): row.latency_s for row in shipped_profiles().of(GPU, model)}
    for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        seven_s, four_s, three_s = (latency_s[profile, batch] for profile in ("7g.80gb", "4g.40gb", "3g.40gb"))
        assert seven_s <= four_s < three_s * 1.02, batch


def test_convnext_is_faster_than_vit_by_its_gflops() -> None:
    vit, convnext = (shipped_profiles().of(GPU, model) for model in ("vit-b-16", "convnext-base"))
    ratios = {own.latency_s / like.latency_s for like, own in zip(vit, convnext, strict=True)}
    assert all(ratio == pytest.approx(15.36 / 17.56) for ratio in ratios)


@pytest.mark.skipif(not RECORDED.is_file(), reason="the project's measured data is not beside this checkout")
def test_the_shipped_migperf_rows_are_the_sources() -> None:
    recorded = {
        (row["model"], row["profile"], int(row["batch"]), float(row["latency_ms_mean"]))
        for row in csv.DictReader(RECORDED.read_text().splitlines())
        if row["source"] == "migperf-a100-80" and row["mode"] == "infer" and row["seq_len"] in ("", "64")
    }
    own = [row for row in shipped_profiles().rows if row.source == "migperf" and not row.derived]
    assert len(own) == 72
    assert {(row.model, row.profile, row.batch, round(row.latency_s * 1000, 4)) for row in own} <= recorded


def test_a_shipped_rows_latency_is_that_of_a_batch_on_one_process() -> None:
    for row in shipped_profiles().rows:
        assert row.latency_s == pytest.approx(row.batch * row.processes / row.throughput_rps, rel=2e-4), row


@pytest.mark.parametrize(
    ("model", "batch", "processes", "rates"),
    [
        ("resnet50", 1, 1, [197, 213, 213, 215, 196]),
        ("resnet50", 32, 1, [412, 789, 1292, 1492, 2396]),
        ("bert-large", 2, 1, [86]),
    ],
)
def test_the_shipped_rates_are_those_quoted_in_the_design(
    model: str, batch: int, processes: int, rates: list[int]
) -> None:
    rows = [r for r in shipped_profiles().of("a100-80gb", model) if (r.batch, r.processes) == (batch, processes)]
    assert [round(row.throughput_rps) for row in rows][: len(rates)] == rates
