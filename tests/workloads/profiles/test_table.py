"""Tables of service profiles: reading, the shipped one, what is derived, and what is freed of launching."""

import csv
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from executor.catalogue import gpu_model
from executor.mig import GpuModel
from workloads.errors import ProfileTableError
from workloads.profiles.operating_point import operating_points
from workloads.profiles.table import (
    COLUMNS,
    LAUNCH_FREE,
    OPTIONAL,
    MeasuredStart,
    ServiceProfiles,
    ServiceRow,
    is_launch_bound,
    latency_ratio,
    launch_free,
    linear_fit,
    of_similar_model,
    on_missing_profile,
    parse_profiles,
    read_profiles,
    shipped_profiles,
    text_of,
)

H100 = gpu_model("h100-80gb")
PCIE_SMS = {"1g.10gb": 14, "2g.20gb": 28, "3g.40gb": 50, "4g.40gb": 56, "7g.80gb": 114}
"""A card of the same chip and cut with fewer SMs; made up, but for their sum."""

GPU = "a100-80gb"
HEADER = ",".join(COLUMNS)
GOOD = ("mine", "a30-24gb", "vit", "1g.6gb", "8", "2", "12.5", "1200")
BAD_CELLS = {
    "source": ("", "line 3: source is empty"),
    "gpu": ("a30", "line 3: gpu: unknown GPU model 'a30'"),
    "model": (" ", "line 3: model is empty"),
    "profile": ("1g.5gb", "line 3: profile: a30-24gb has no MIG profile '1g.5gb'"),
    "batch": ("8.5", "line 3: batch is '8.5'; a whole number ≥ 1 is needed"),
    "processes": ("0", "line 3: processes is '0'; a whole number ≥ 1 is needed"),
    "latency_ms": ("fast", "line 3: latency_ms is 'fast'; a number from 1e-06 to 1e+09 is needed"),
    "throughput_rps": ("-3", "line 3: throughput_rps is '-3'; a number from 1e-06 to 1e+09 is needed"),
}
BAD_TABLES = {
    "header with another column": ("model,batch\n", "line 1: the header is 'model,batch'; source,gpu,"),
    "nothing": ("", "line 1: the header is ''"),
    "header alone": (HEADER + "\n", "no rows"),
    "missing cell": (f"{HEADER}\n{','.join(GOOD[:-1])}\n", "line 2: 7 cells; the 8 of the header"),
    "a row twice": (f"{HEADER}\n{','.join(GOOD)}\n{','.join(GOOD)}\n", "line 3: vit on a30-24gb 1g.6gb at batch 8"),
    "open quote": (f'{HEADER}\n"mine\n', "not CSV"),
}


def table(path: Path, *rows: tuple[str, ...]) -> Path:
    path.write_text("\n".join([HEADER, *(",".join(row) for row in rows)]) + "\n")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ProfileTableError) as caught:
        read_profiles(path)
    return str(caught.value)


@pytest.mark.parametrize("latency_ms", ["5e-324", "1e-300", "inf", "nan", "1e10"])
def test_a_figure_that_nobody_measured_is_refused(tmp_path: Path, latency_ms: str) -> None:
    path = table(tmp_path / "table.csv", (*GOOD[:6], latency_ms, GOOD[7]))
    assert f"line 2: latency_ms is '{latency_ms}'; a number from 1e-06 to 1e+09 is needed" in refusal(path)


def test_a_users_row_is_read_in_seconds(tmp_path: Path) -> None:
    profiles = read_profiles(table(tmp_path / "my.csv", GOOD))
    assert profiles.of("a30-24gb", "vit") == (ServiceRow("mine", "a30-24gb", "vit", "1g.6gb", 8, 2, 0.0125, 1200.0),)


@pytest.mark.parametrize("column", BAD_CELLS)
def test_a_malformed_cell_is_refused_naming_file_line_column_and_value(column: str, tmp_path: Path) -> None:
    value, message = BAD_CELLS[column]
    cells = tuple(value if name == column else cell for name, cell in zip(COLUMNS, GOOD, strict=True))
    good = (*GOOD[:4], "7", *GOOD[5:])
    path = table(tmp_path / "my.csv", good, cells)
    assert refusal(path).startswith(f"{path} {message}")


@pytest.mark.parametrize("column", ["batch", "processes", "latency_ms", "throughput_rps"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "", "x"])
def test_no_number_column_takes_anything_but_a_positive_number(column: str, value: str, tmp_path: Path) -> None:
    cells = tuple(value if name == column else cell for name, cell in zip(COLUMNS, GOOD, strict=True))
    assert f"line 2: {column} is {value!r}" in refusal(table(tmp_path / "my.csv", cells))


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_malformed_table_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    text, message = BAD_TABLES[kind]
    path = tmp_path / "my.csv"
    path.write_text(text)
    refused = refusal(path)
    assert message in refused
    assert "\n" not in refused


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    assert "gone.csv: cannot be read" in refusal(tmp_path / "gone.csv")


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_bytes(b"\xff\xfe")
    assert "not a text file" in refusal(path)


def test_an_unknown_gpu_names_those_that_were_measured() -> None:
    with pytest.raises(ProfileTableError, match=r"no service profiles for the GPU model 'a30-24gb'; it has a100-80gb"):
        shipped_profiles().of("a30-24gb", "resnet50")


def test_an_unknown_model_names_the_nearest_and_all_others() -> None:
    with pytest.raises(ProfileTableError, match=r"did you mean resnet50\?\); it has resnet50, mobilenet-v2"):
        shipped_profiles().of("a100-80gb", "resnet-50")


def test_a_table_made_in_memory_holds_no_combination_twice() -> None:
    row = shipped_profiles().rows[0]
    with pytest.raises(ProfileTableError, match="is there 2 times"):
        ServiceProfiles("made", (row, row))


def test_a_row_may_say_from_what_it_was_computed(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text(f"{HEADER},derived\n{','.join(GOOD)},by hand\n{','.join((*GOOD[:4], '7', *GOOD[5:]))},\n")
    assert [row.derived for row in read_profiles(path).rows] == ["by hand", ""]


# --- the shipped table

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


# --- derived rows


def row(profile: str, batch: int, latency_s: float, model: str = "vit-b-16", processes: int = 1) -> ServiceRow:
    return ServiceRow("me", GPU, model, profile, batch, processes, latency_s, batch * processes / latency_s)


THREE = [row("3g.40gb", 1, 0.01), row("3g.40gb", 8, 0.10), row("3g.40gb", 16, 0.20), row("3g.40gb", 32, 0.40)]
FOUR = [row("4g.40gb", 1, 0.02), row("4g.40gb", 8, 0.08), row("4g.40gb", 16, 0.18), row("4g.40gb", 32, 0.32)]


def test_the_ratio_is_the_median_over_large_batches() -> None:
    assert latency_ratio([*THREE, *FOUR], "vit-b-16", "3g.40gb", "4g.40gb") == pytest.approx(0.8)


def test_several_processes_do_not_enter_the_ratio() -> None:
    packed = [row("3g.40gb", 64, 1.0, processes=2), row("4g.40gb", 64, 9.0, processes=2)]
    assert latency_ratio([*THREE, *FOUR, *packed], "vit-b-16", "3g.40gb", "4g.40gb") == pytest.approx(0.8)


def test_a_ratio_needs_a_batch_that_was_measured_on_both() -> None:
    with pytest.raises(ProfileTableError, match=r"no batch ≥ 8 was measured on both 3g\.40gb and 4g\.40gb"):
        latency_ratio([*THREE, FOUR[0]], "vit-b-16", "3g.40gb", "4g.40gb")


def test_a_missing_profile_follows_another_but_is_no_faster_than_the_largest() -> None:
    whole = [row("7g.80gb", 1, 0.009), row("7g.80gb", 8, 0.03)]
    made = on_missing_profile(
        [*THREE[:2], *whole], profile="4g.40gb", like="3g.40gb", ratio=0.5, faster="7g.80gb", origin="here"
    )
    assert [(r.profile, r.batch, r.latency_s) for r in made] == [("4g.40gb", 1, 0.009), ("4g.40gb", 8, 0.05)]
    assert {r.derived for r in made} == {"latency of 3g.40gb × 0.500 (here), no faster than 7g.80gb"}


def test_a_similar_model_takes_its_share_of_the_latency() -> None:
    (made,) = of_similar_model(THREE[:1], model="convnext-base", like="vit-b-16")
    assert (made.model, made.latency_s) == ("convnext-base", pytest.approx(0.01 * 15.36 / 17.56))
    assert made.throughput_rps == pytest.approx(1 / made.latency_s)
    assert made.derived == "latency of vit-b-16 × 15.36/17.56 (GFLOPs)"


# --- launch-free

LAUNCH_BOUND = {"resnet50", "mobilenet-v2", "inception-v3", "bert-large", "bert-base"}


def flat(*, small_s: float = 0.05) -> tuple[ServiceRow, ...]:
    """A model whose batch 1 takes the same on all profiles, and whose large batches follow 2 + batch milliseconds."""
    return tuple(
        row(profile, batch, small_s if batch < 8 else 0.002 + 0.001 * batch)
        for profile in ("1g.10gb", "7g.80gb")
        for batch in (1, 4, 8, 16, 32)
    )


def freed(rows: tuple[ServiceRow, ...]) -> dict[tuple[str, int], ServiceRow]:
    return {(r.profile, r.batch): r for r in launch_free(ServiceProfiles("made", rows)).rows}


def test_a_straight_line_is_found() -> None:
    assert linear_fit([8, 16, 64], [0.010, 0.018, 0.066]) == pytest.approx((0.002, 0.001))


def test_small_batches_follow_the_line_through_the_large_ones() -> None:
    made = freed(flat())["1g.10gb", 4]
    assert (made.latency_s, made.derived) == (pytest.approx(0.006), LAUNCH_FREE)
    assert made.throughput_rps == pytest.approx(4 / made.latency_s)


def test_large_batches_stay_as_recorded() -> None:
    made = freed(flat())
    assert [r for r in flat() if r.batch >= 8] == [r for (_, batch), r in made.items() if batch >= 8]


def test_nothing_becomes_slower() -> None:
    assert freed(flat(small_s=0.0029))["7g.80gb", 1].latency_s == 0.0029


def test_a_model_that_gains_from_larger_profiles_stays_as_recorded() -> None:
    rows = (row("1g.10gb", 1, 0.05), row("7g.80gb", 1, 0.02), *(r for r in flat() if r.batch >= 8))
    assert tuple(freed(rows).values()) == rows


def test_too_few_large_batches_say_nothing() -> None:
    rows = tuple(r for r in flat() if r.batch <= 8)
    assert tuple(freed(rows).values()) == rows


def test_a_line_that_crosses_zero_says_nothing() -> None:
    rows = tuple(r if r.batch < 8 else row(r.profile, r.batch, 0.001 * (r.batch - 4)) for r in flat())
    assert tuple(freed(rows).values()) == rows


def test_a_model_without_batch_1_is_not_called_launch_bound() -> None:
    assert not is_launch_bound([r for r in flat() if r.batch > 1], gpu_model(GPU))


@pytest.mark.parametrize("model", shipped_profiles().models(GPU))
def test_which_shipped_models_are_launch_bound(model: str) -> None:
    assert is_launch_bound(shipped_profiles().of(GPU, model), gpu_model(GPU)) == (model in LAUNCH_BOUND)


@pytest.mark.parametrize("model", shipped_profiles().models(GPU))
def test_every_shipped_rate_at_batch_1_is_at_least_the_recorded(model: str) -> None:
    recorded, free = (
        operating_points(table, GPU, model, 0.33, batch=1)
        for table in (shipped_profiles(), launch_free(shipped_profiles()))
    )
    gains = {name: free[name].rate_rps / recorded[name].rate_rps for name in recorded}
    assert min(gains.values()) >= 1
    assert (max(gains.values()) > 1.1) == (model in LAUNCH_BOUND)


def test_the_variant_stands_in_the_tables_name() -> None:
    assert launch_free(shipped_profiles()).name == "the shipped table, launch-free"


@pytest.mark.parametrize("batch", ["1" * 5000, "1" * 10])
def test_a_batch_of_thousands_of_digits_is_refused(batch: str) -> None:
    text = f"{','.join(COLUMNS)}\nme,a100-80gb,m,1g.10gb,{batch},1,10,100\n"
    with pytest.raises(ProfileTableError, match="line 2: batch is '1111") as caught:
        parse_profiles("t.csv", text)
    assert len(str(caught.value)) < 150


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProfileTableError, match="cannot be read: it is a pipe; a file is needed"):
        read_profiles(tmp_path / "pipe")


# --- throughput against latency


def with_throughput(path: Path, factor: float, batch: int = 8, processes: int = 2) -> Path:
    """A table of one row, whose throughput is a multiple of what its latency of 10 ms allows."""
    rate_rps = factor * 100 * batch * processes
    return table(path, ("mine", "a30-24gb", "vit", "1g.6gb", str(batch), str(processes), "10", f"{rate_rps:.10g}"))


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.0, 1.02])
def test_a_throughput_that_the_latency_allows_is_taken_without_a_word(factor: float, tmp_path: Path) -> None:
    assert read_profiles(with_throughput(tmp_path / "my.csv", factor)).warnings == ()


@pytest.mark.parametrize("factor", [0.11, 0.59, 1.021, 1.1])
def test_a_throughput_off_what_the_latency_allows_is_warned_of(factor: float, tmp_path: Path) -> None:
    path = with_throughput(tmp_path / "my.csv", factor)
    (warning,) = read_profiles(path).warnings
    told = f"throughput_rps is {1600 * factor:g}, {factor:.4g} times the 1,600 a second"
    assert warning.startswith(f"{path} line 2: {told}")


@pytest.mark.parametrize("factor", [0.001, 0.099, 1.11, 60.0])
def test_a_throughput_far_off_what_the_latency_allows_is_refused(factor: float, tmp_path: Path) -> None:
    path = with_throughput(tmp_path / "my.csv", factor)
    message = refusal(path)
    assert message.startswith(f"{path} line 2: throughput_rps is {1600 * factor:g}, ")
    assert "the 1,600 a second that 2 processes × batch 8 / 10 ms allow" in message


@pytest.mark.parametrize(
    ("factor", "question"),
    [
        (1 / 1000, "is latency_ms in seconds?"),
        (1000.0, "is latency_ms in microseconds?"),
        (1 / 32, "is throughput_rps in batches a second, or latency_ms that of one request?"),
        (1 / 2, "is throughput_rps that of one process?"),
        (1 / 64, "is throughput_rps in batches a second of one process?"),
        (60.0, "is throughput_rps in requests a minute?"),
        (1.3, "the mean time of a batch at work, no percentile"),
    ],
)
def test_the_reading_that_explains_a_contradiction_is_named(factor: float, question: str, tmp_path: Path) -> None:
    path = with_throughput(tmp_path / "my.csv", factor, batch=32)
    try:
        told = read_profiles(path).warnings[0]
    except ProfileTableError as error:
        told = str(error)
    assert question in told


def test_doubtful_rows_are_told_once_with_their_number(tmp_path: Path) -> None:
    rows = [("mine", "a30-24gb", "vit", "1g.6gb", str(batch), "1", "10", str(105 * batch)) for batch in (1, 2, 4)]
    (warning,) = read_profiles(table(tmp_path / "my.csv", *rows)).warnings
    assert "line 2" in warning
    assert warning.endswith("(2 more rows are doubtful, too)")


def test_the_launch_free_variant_keeps_the_warnings(tmp_path: Path) -> None:
    profiles = read_profiles(with_throughput(tmp_path / "my.csv", 1.05))
    assert launch_free(profiles).warnings == profiles.warnings


def test_no_shipped_row_is_doubtful() -> None:
    assert shipped_profiles().warnings == ()
    most_rps = [row.processes * row.batch / row.latency_s for row in shipped_profiles().rows]
    ratios = [row.throughput_rps / most for row, most in zip(shipped_profiles().rows, most_rps, strict=True)]
    assert max(abs(ratio - 1) for ratio in ratios) < 2e-5


MEASURED = ("", "250", "0.4", "0.6", "0.1")
"""Cells of the first optional columns; the last ones are of memory."""

MEMORY = ("330.2", "1360", "12.5", "0")

TURN = ("0.08",)


def with_optional(*rows: tuple[str, ...]) -> str:
    header = (*COLUMNS, *OPTIONAL)
    lines = [",".join((*row, *[""] * (len(header) - len(row)))) for row in rows]
    return "\n".join([",".join(header), *lines]) + "\n"


def another(batch: str) -> tuple[str, ...]:
    return (*GOOD[:4], batch, *GOOD[5:6], str(float(batch) * 2), "1000")


def test_a_measured_pace_of_retraining_and_start_stand_in_one_row() -> None:
    table = parse_profiles("mine", with_optional((*GOOD, *MEASURED), (*another("4"), "", "", "", "", "")))
    assert table.training_rps("a30-24gb", "vit") == {"1g.6gb": 250.0}
    assert table.start("a30-24gb", "vit") == (MeasuredStart(0.4, 0.6, 0.1), "mine")


def test_shipped_memory_of_one_process_is_what_was_measured() -> None:
    measured_mib = {  # of MIGPerf's files: device memory in use, mean
        ("vit-b-16", "1g.10gb", 64): 2480.0,
        ("vit-b-16", "7g.80gb", 128): 3597.3,
        ("bert-base", "2g.20gb", 256): 2354.0,
        ("resnet50", "3g.40gb", 32): 2092.8,
        ("resnet50", "1g.10gb", 1): 1447.8,
    }
    for (model, profile, batch), mib in measured_mib.items():
        rows = shipped_profiles().with_memory("a100-80gb", model)
        (row,) = (one for one in rows if (one.profile, one.batch, one.processes) == (profile, batch, 1))
        assert row.weights_mib is not None
        assert row.context_mib is not None
        assert row.batch_mib is not None
        assert abs(row.weights_mib + row.context_mib + row.batch_mib - mib) <= 1.1


def test_every_shipped_model_has_weights_of_its_own_in_fp32() -> None:
    weights_mib = {}
    for model in shipped_profiles().models("a100-80gb"):
        rows = shipped_profiles().with_memory("a100-80gb", model)
        (weights_mib[model],) = {row.weights_mib for row in rows}
    parameters = {model: round((mib or 0) * 2**20 / 4e6, 1) for model, mib in weights_mib.items()}
    assert parameters == {
        "resnet50": 25.6,
        "mobilenet-v2": 3.5,
        "inception-v3": 27.2,
        "bert-large": 340.0,
        "vit-b-16": 86.6,
        "bert-base": 110.0,
        "convnext-base": 88.6,
    }
    derived = shipped_profiles().with_memory("a100-80gb", "convnext-base")
    assert {(row.context_mib, row.batch_mib) for row in derived} == {(None, None)}


def test_memory_stands_in_one_row_of_a_model_but_that_of_batches() -> None:
    text = with_optional((*GOOD, *MEASURED, *MEMORY), (*another("4"), "", "", "", "", "", "", "", "40", ""))
    first, second = parse_profiles("mine", text).rows
    told = [(row.weights_mib, row.context_mib, row.batch_mib, row.training_mib) for row in (first, second)]
    assert told == [(330.2, 1360.0, 12.5, 0.0), (None, None, 40.0, None)]


def test_a_turn_s_cost_stands_in_one_row_of_a_profile_and_holds_for_all_of_them() -> None:
    costly = (*GOOD, *[""] * 9, "0.08"), another("4"), (*GOOD[:3], "2g.12gb", *GOOD[4:])
    table = parse_profiles("mine", with_optional(*costly))
    assert [row.turn_cost for row in table.rows] == [0.08, None, None]
    assert [row.turn_cost for row in table.with_memory("a30-24gb", "vit")] == [0.08, 0.08, None]


def test_a_table_without_them_has_neither() -> None:
    table = parse_profiles("mine", f"{HEADER}\n{','.join(GOOD)}\n")
    assert (table.training_rps("a30-24gb", "vit"), table.start("a30-24gb", "vit")) == ({}, None)


BAD_MEASURED = {
    "a pace of nothing": ((*GOOD, "", "0", "", "", ""), "line 2: training_rps is '0'; a number from 1e-06"),
    "half a start": ((*GOOD, "", "", "1", "", ""), "line 2: library_s without the rest"),
    "no weights at all": ((*GOOD, *[""] * 5, "0", "", "", ""), "line 2: weights_mib is '0'; a number from 1e-06 to"),
    "a context below": ((*GOOD, *[""] * 5, "", "-1", "", ""), "line 2: context_mib is '-1'; a number from 0 to"),
    "a batch of none": ((*GOOD, *[""] * 5, "", "", "nan", ""), "line 2: batch_mib is 'nan'; a number from 0 to"),
    "training in words": ((*GOOD, *[""] * 5, "", "", "", "2 GiB"), "line 2: training_mib is '2 GiB'; a number"),
    "a turn that saves time": ((*GOOD, *[""] * 9, "-0.01"), "line 2: turn_cost is '-0.01'; a number from 0 to 1e"),
    "a turn without end": ((*GOOD, *[""] * 9, "inf"), "line 2: turn_cost is 'inf'; a number from 0 to 1e"),
    "a turn in percent": ((*GOOD, *[""] * 9, "5 %"), "line 2: turn_cost is '5 %'; a number from 0 to 1e"),
    "a start before it": ((*GOOD, "", "", "1", "-1", "0"), "line 2: model_s is '-1'; a number from 0 to"),
}


@pytest.mark.parametrize("case", BAD_MEASURED)
def test_what_is_measured_of_a_model_is_checked(case: str) -> None:
    row, told = BAD_MEASURED[case]
    with pytest.raises(ProfileTableError, match=told):
        parse_profiles("mine", with_optional(row))


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (("", "9", "", "", ""), "training_rps"),
        (("", "", "1", "1", "1"), "library_s"),
        (("", "", "", "", "", "5"), "weights_mib"),
        (("", "", "", "", "", "", "5"), "context_mib"),
        (("", "", "", "", "", "", "", "", "5"), "training_mib"),
        (("", "", "", "", "", "", "", "", "", "5"), "turn_cost"),
    ],
)
def test_what_holds_for_several_rows_is_told_once(cells: tuple[str, ...], what: str) -> None:
    with pytest.raises(ProfileTableError, match=f"line 3: {what} of vit on a30-24gb.* is in line 2 already"):
        parse_profiles("mine", with_optional((*GOOD, *MEASURED, *MEMORY, *TURN), (*another("4"), *cells)))


def test_a_column_twice_is_refused() -> None:
    with pytest.raises(ProfileTableError, match="line 1: the header"):
        parse_profiles("mine", f"{HEADER},derived,derived\n")


def test_what_is_written_reads_the_same() -> None:
    costly = (*GOOD, *MEASURED, *MEMORY, *TURN)
    rows = parse_profiles("mine", with_optional(costly, (*another("4"), "guessed"))).rows
    assert parse_profiles("again", text_of(rows)).rows == rows


def h100_pcie(**names: str) -> GpuModel:
    """A card whose driver names some profiles otherwise."""
    profiles = tuple(
        replace(p, name=names.get(p.name.replace(".", "_"), p.name), sm_count=PCIE_SMS.get(p.name))
        for p in H100.profiles
    )
    return replace(H100, name="h100-pcie", title="NVIDIA H100 PCIe", profiles=profiles)


ON_H100 = "".join(f"mine,h100-80gb,vit,{name},8,1,8,1000\n" for name in PCIE_SMS)


def test_rows_of_another_variant_serve_under_the_cards_own_names_and_both_sm_counts_are_told() -> None:
    profiles = parse_profiles("mine.csv", f"{HEADER}\n{ON_H100}").on(h100_pcie(**{"1g_10gb": "1g.11gb"}))
    assert [row.profile for row in profiles.of("h100-pcie", "vit")] == ["1g.11gb", *list(PCIE_SMS)[1:]]
    (told,) = profiles.warnings
    assert told.startswith("mine.csv: measured on another variant of the card, NVIDIA H100 80GB")
    assert "with other SMs: 1g.11gb 16 there, 14 here, 2g.20gb 32 there, 28 here" in told


def test_rows_of_the_card_itself_go_before_those_of_a_variant() -> None:
    own = ON_H100.replace("h100-80gb", "H100-PCIe")
    card = h100_pcie()
    profiles = parse_profiles("mine.csv", f"{HEADER}\n{ON_H100}{own}", card)
    assert profiles.on(card) is profiles
    assert {row.gpu for row in profiles.rows} == {"h100-80gb", "h100-pcie"}


def test_the_catalogues_names_are_taken_for_a_driver_that_has_others() -> None:
    card = replace(H100, profiles=tuple(replace(p, name=p.name.replace("1g.10gb", "1g.9gb")) for p in H100.profiles))
    rows = parse_profiles("mine.csv", f"{HEADER}\n{ON_H100}", card).on(card).of("h100-80gb", "vit")
    assert [row.profile for row in rows] == ["1g.9gb", *list(PCIE_SMS)[1:]]


def test_what_the_card_has_no_profile_for_is_left_out_and_told_and_all_of_it_refused() -> None:
    card = replace(H100, profiles=tuple(p for p in H100.profiles if p.name != "1g.10gb"))
    profiles = parse_profiles("mine.csv", f"{HEADER}\n{ON_H100}").on(card)
    assert [row.profile for row in profiles.rows] == list(PCIE_SMS)[1:]
    assert "has no profile like 1g.10gb of h100-80gb; no row of it is used" in profiles.warnings[0]
    alone = parse_profiles("mine.csv", f"{HEADER}\n{ON_H100.splitlines()[0]}\n")
    with pytest.raises(ProfileTableError, match=r"^mine.csv has 1g.10gb of h100-80gb; this NVIDIA H100 80GB"):
        alone.on(card)


def test_another_chip_of_the_same_cut_is_no_variant() -> None:
    card = replace(h100_pcie(), name="h800", title="NVIDIA H800")
    with pytest.raises(ProfileTableError, match="no service profiles for the GPU model 'h800'; it has h100-80gb"):
        parse_profiles("mine.csv", f"{HEADER}\n{ON_H100}").on(card).models("h800")
