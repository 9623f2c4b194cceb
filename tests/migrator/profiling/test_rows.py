"""From measurements to the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.profiling.record import Record
from migrator.profiling.rows import failures, figures, measured_start, rows
from tests.migrator.profiling.measured import ASKED, CPU, STAGES, start, stretch
from workloads.profiles.table import MeasuredStart, ServiceProfiles, parse_profiles, text_of


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Everything measured: a batch takes a second over the slices of its instance."""
    with Record(tmp_path / "x.partial", {}) as record:
        for stage in STAGES:
            found = {}
            for profile in stage.profiles:
                one = stretch(1 / CPU.profile(profile).compute_slices, stage.load.batch)
                found[profile] = (one,) * stage.processes
            record.add_stage(stage.key, found)
        yield record


def table(record: Record) -> ServiceProfiles:
    found = list(figures(STAGES, record))
    return parse_profiles("made", text_of(list(rows(CPU, "me, here", ASKED.profiles, found, record))))


def test_latency_is_the_mean_and_throughput_that_of_the_whole_instance(record: Record) -> None:
    row = next(row for row in table(record).rows if (row.profile, row.batch, row.processes) == ("7c", 8, 2))
    assert (row.latency_s, row.throughput_rps) == (pytest.approx(1 / 7), pytest.approx(2 * 8 * 7))


def test_no_row_is_doubtful(record: Record) -> None:
    assert table(record).warnings == ()


def test_what_lies_between_is_computed_and_says_so(record: Record) -> None:
    between = [row for row in table(record).rows if row.profile == "3c"]
    assert [(row.batch, row.processes) for row in between] == [(1, 1), (8, 1)]
    assert {row.derived for row in between} == {"throughput between 2c and 4c, by compute slices"}
    assert between[1].throughput_rps == pytest.approx(8 * 3)


def test_nothing_that_was_measured_says_that_it_is_computed(record: Record) -> None:
    assert {row.profile for row in table(record).rows if row.derived} == {"3c"}


def test_the_pace_of_a_retraining_stands_with_each_profile(record: Record) -> None:
    assert table(record).training_rps(CPU.name, "m") == {f"{n}c": pytest.approx(32 * n) for n in (1, 2, 3, 4, 7)}


def test_a_start_is_the_median_of_those_alone_and_slower_by_each_other(record: Record) -> None:
    for factor in (1.0, 2.0, 9.0):
        record.add_starts("m", (start(factor),))
    record.add_starts("m", (start(3.0), start(3.0), start(3.0)))
    assert measured_start("m", record) == MeasuredStart(
        pytest.approx(0.6), pytest.approx(1.4), pytest.approx((3 / 2 - 1) / 2)
    )
    found = table(record).start(CPU.name, "m")
    assert found is not None
    assert found[1] == "me, here"


def test_starts_that_were_never_seen_together_are_left_out(record: Record) -> None:
    record.add_starts("m", (start(1.0),))
    assert measured_start("m", record) is None


def test_what_failed_has_no_row_and_is_told(record: Record) -> None:
    stage = next(stage for stage in STAGES if stage.profiles == ("7c",) and stage.processes == 2)
    record.add_stage(stage.key, {"7c": "no memory"})
    assert ("7c", 1, 2) not in {(row.profile, row.batch, row.processes) for row in table(record).rows}
    assert list(failures(STAGES, record)) == [f"{stage.key}: nothing of 7c: no memory"]
