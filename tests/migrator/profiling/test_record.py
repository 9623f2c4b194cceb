"""What was measured so far, kept in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_

from executor.cuts import in_hundredths
from migrator.errors import MigratorError, OutputError
from migrator.profiling.record import (
    StageLog,
    failures,
    figures,
    measured_start,
    rounds_costs,
    rows,
    share_rows,
    turn_costs,
)
from migrator.profiling.stages import SharePlan, stages
from migrator.profiling.subjects import named
from tests.migrator.profiling.measured import ASKED, CPU, STAGES, rounds, start, stretch
from workloads.profiles.share_table import ShareRow
from workloads.profiles.table import MeasuredStart, ServiceProfiles, parse_profiles, text_of

SETTINGS = {"gpu": "a", "batches": [1, 8]}
FIGURES = {"1c": (stretch(0.1, 8),), "2c": "no memory"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profiles.csv.partial"


def begun(path: Path) -> None:
    with StageLog(path, SETTINGS) as record:
        record.add_starts("m", (start(1.0),))
        record.add_starts("m", (start(2.0), start(3.0)))
        record.add_stage("first", FIGURES)


def test_the_same_settings_go_on_with_what_is_there(path: Path) -> None:
    begun(path)
    with StageLog(path, SETTINGS) as record:
        assert record.stages == {"first": FIGURES}
        assert record.alone == {"m": [start(1.0)]}
        assert record.at_once == {"m": [(start(2.0), start(3.0))]}


def test_what_failed_is_to_be_tried_again(path: Path) -> None:
    with StageLog(path, SETTINGS) as record:
        record.add_stage("first", FIGURES)
        record.add_stage("second", {"1c": FIGURES["1c"]})
        assert [record.has(key) for key in ("first", "second", "third")] == [False, True, False]
        record.add_stage("first", {"1c": FIGURES["1c"]})
    with StageLog(path, SETTINGS) as record:
        assert record.has("first")


def test_a_line_that_was_cut_short_is_left_out(path: Path) -> None:
    begun(path)
    path.write_bytes(path.read_bytes()[:-5])
    with StageLog(path, SETTINGS) as record:
        assert record.stages == {}
        record.add_stage("first", FIGURES)
    with StageLog(path, SETTINGS) as record:
        assert record.stages == {"first": FIGURES}


def test_other_settings_are_refused_by_the_one_that_differs(path: Path) -> None:
    begun(path)
    with pytest.raises(MigratorError, match=r"batches was \[1, 8\], and is \[1\]; give the same options .* or remove"):
        StageLog(path, {**SETTINGS, "batches": [1]})


@pytest.mark.parametrize(
    "text",
    [
        "notes of mine\n",
        "[]\n",
        '{"schema": 2}\n',
        '{"record": "begun", "schema": 1, "settings": {}}\n',
        '{"record": "begun", "schema": 2, "settings": 3}\n',
        '{"record": "started", "model": "m", "phases": []}\n',
    ],
)
def test_a_file_of_something_else_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(MigratorError, match="line 1: not a record of a measurement"):
        StageLog(path, SETTINGS)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "line",
    [
        '{"record": "measured", "stage": "x"}',
        '{"record": "measured", "stage": "x", "figures": {"1c": [{}]}}',
        '{"record": "begun", "schema": 2, "settings": {}}',
        '{"record": "other"}',
        "3",
    ],
)
def test_a_line_of_something_else_is_refused_by_its_number(path: Path, line: str) -> None:
    begun(path)
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(MigratorError, match="line 5: not a record"):
        StageLog(path, SETTINGS)


def test_nothing_is_left_once_the_table_stands(path: Path) -> None:
    with StageLog(path, SETTINGS) as record:
        record.finish()
    assert not path.exists()


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        StageLog(tmp_path / "gone" / "x.partial", SETTINGS)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[StageLog]:
    """Everything measured: a batch takes a second over the slices of its instance."""
    with StageLog(tmp_path / "x.partial", {}) as record:
        for stage in STAGES:
            found = {}
            for profile in stage.profiles:
                one = stretch(1 / CPU.profile(profile).compute_slices, stage.load.batch)
                found[profile] = (one,) * stage.processes
            record.add_stage(stage.key, found)
        yield record


def table(record: StageLog) -> ServiceProfiles:
    found = list(figures(STAGES, record))
    return parse_profiles("made", text_of(list(rows(CPU, "me, here", ASKED.profiles, found, record))))


def test_latency_is_the_mean_and_throughput_that_of_the_whole_instance(record: StageLog) -> None:
    row = next(row for row in table(record).rows if (row.profile, row.batch, row.processes) == ("7c", 8, 2))
    assert (row.latency_s, row.throughput_rps) == (pytest.approx(1 / 7), pytest.approx(2 * 8 * 7))


def test_processes_of_unlike_pace_that_were_watched_for_unlike_long_make_one_row(record: StageLog) -> None:
    stage = next(stage for stage in STAGES if (stage.load.batch, stage.processes, stage.load.strategy) == (8, 2, None))
    record.add_stage(stage.key, {"7c": (stretch(0.01, 8, n_passes=10), stretch(0.05, 8, n_passes=6))})
    row = next(row for row in table(record).rows if (row.profile, row.batch, row.processes) == ("7c", 8, 2))
    assert (row.latency_s, row.throughput_rps) == (pytest.approx(1 / 60), pytest.approx(8 * (100 + 20)))


def test_no_row_is_doubtful(record: StageLog) -> None:
    assert table(record).warnings == ()


def test_what_lies_between_is_computed_and_says_so(record: StageLog) -> None:
    between = [row for row in table(record).rows if row.profile == "3c"]
    assert [(row.batch, row.processes) for row in between] == [(1, 1), (8, 1)]
    assert {row.derived for row in between} == {"throughput between 2c and 4c, by compute slices"}
    assert between[1].throughput_rps == pytest.approx(8 * 3)


def test_nothing_that_was_measured_says_that_it_is_computed(record: StageLog) -> None:
    assert {row.profile for row in table(record).rows if row.derived} == {"3c"}


def test_the_pace_of_a_retraining_stands_with_each_profile(record: StageLog) -> None:
    assert table(record).training_rps(CPU.name, "m") == {f"{n}c": pytest.approx(32 * n) for n in (1, 2, 3, 4, 7)}


def test_a_start_is_the_median_of_those_alone_and_slower_by_each_other(record: StageLog) -> None:
    for factor in (1.0, 2.0, 9.0):
        record.add_starts("m", (start(factor),))
    record.add_starts("m", (start(3.0), start(3.0), start(3.0)))
    assert measured_start("m", record) == MeasuredStart(
        pytest.approx(0.6), pytest.approx(1.4), pytest.approx((3 / 2 - 1) / 2)
    )
    found = table(record).start(CPU.name, "m")
    assert found is not None
    assert found[1] == "me, here"


def test_starts_that_were_never_seen_together_are_left_out(record: StageLog) -> None:
    record.add_starts("m", (start(1.0),))
    assert measured_start("m", record) is None


def test_what_failed_has_no_row_and_is_told(record: StageLog) -> None:
    stage = next(stage for stage in STAGES if stage.profiles == ("7c",) and stage.processes == 2)
    record.add_stage(stage.key, {"7c": "no memory"})
    assert ("7c", 1, 2) not in {(row.profile, row.batch, row.processes) for row in table(record).rows}
    assert list(failures(STAGES, record)) == [f"{stage.key}: nothing of 7c: no memory"]


def test_a_round_s_cost_is_that_of_both_models_whatever_slows_all_of_it_down() -> None:
    assert rounds_costs(rounds(0.1, 0.2, 0.1, -0.1, 9.0)) == pytest.approx([-0.1, 0.1, 0.1, 0.2, 9.0])


@pytest.mark.parametrize(("costs", "found"), [((0.3, 0.1), 0.2), ((-0.3, 0.1), 0.0)])
def test_a_table_has_one_cost_of_a_turn_for_each_measured_profile(
    record: StageLog, costs: tuple[float, float], found: float
) -> None:
    plan = stages(CPU, replace(ASKED, beside="n"), [("m", True)])
    told = [stage for stage in plan if stage.load.beside is not None]
    for stage in told:
        cost = costs[ASKED.batches.index(stage.load.batch)]
        record.add_stage(stage.key, dict.fromkeys(stage.profiles, rounds(cost, cost, cost)))
    record.add_stage(told[-1].key, {"7c": "no memory"})
    turns = turn_costs(plan, record)
    assert turns["m", "7c"] == {1: pytest.approx(costs[:1] * 3)}
    found_rows = list(rows(CPU, "me", ASKED.profiles, list(figures(plan, record)), record, turns))
    table_ = parse_profiles("made", text_of(found_rows))
    first = {row.profile: row.turn_cost for row in reversed(table_.rows)}
    middle = pytest.approx(found)
    assert first == {"1c": middle, "2c": middle, "3c": None, "4c": middle, "7c": pytest.approx(max(0.0, costs[0]))}
    assert sum(row.turn_cost is not None for row in table_.rows) == 4


def test_memory_is_the_largest_of_a_process_and_that_of_all_batches(record: StageLog) -> None:
    for place, stage in enumerate(stage for stage in STAGES if stage.load.strategy is None):
        memory = (40.0 + place, 100.0, 8.0 * stage.load.batch)
        one = stretch(0.1, stage.load.batch, memory=memory)
        record.add_stage(stage.key, dict.fromkeys(stage.profiles, (one,) * stage.processes))
    found = table(record).rows
    weights = [row.weights_mib for row in found if row.weights_mib is not None]
    assert weights == [40.0 + place]
    assert {row.profile: row.context_mib for row in reversed(found)} == dict.fromkeys(ASKED.profiles, 100.0)
    assert {(row.batch, row.processes, row.batch_mib) for row in found} == {
        (batch, processes, 8.0 * batch * processes) for batch in ASKED.batches for processes in ASKED.processes
    }


def test_what_one_process_does_not_tell_of_memory_is_left_out(record: StageLog) -> None:
    stage = next(stage for stage in STAGES if stage.processes == 2)
    record.add_stage(stage.key, {"7c": (stretch(0.1, 1, memory=(0.0, 5.0, 1.0)), stretch(0.1, 1))})
    assert {(row.weights_mib, row.context_mib, row.batch_mib) for row in table(record).rows} == {(None, None, None)}


def test_rows_of_shares_are_of_the_stages_that_have_figures(path: Path) -> None:
    asked = SharePlan((named("mlp"),), (named("cnn"),), (10, 50), (8,), 1.0)
    plan = asked.stages(in_hundredths(CPU))
    served, trained = with_(stretch(0.1, 8), p99_s=0.4), stretch(0.02, 32)
    with StageLog(path, SETTINGS) as record:
        record.add_stage(plan[0].key, {"10pc": (served,)})
        record.add_stage(plan[1].key, {"10pc": (served, trained)})
        record.add_stage(plan[2].key, {"50pc": "no memory"})
        found = list(share_rows("a", asked, plan, record))
    common = ("a", "mlp", 8, 0.1)
    assert found == [
        ShareRow(*common, "", pytest.approx(0.1), 0.4, None),
        ShareRow(*common, "cnn", pytest.approx(0.1), 0.4, pytest.approx(0.02)),
    ]
