"""What was measured so far, kept in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import MigratorError, OutputError
from migrator.profiling.record import Record
from tests.migrator.profiling.measured import start, stretch

SETTINGS = {"gpu": "a", "batches": [1, 8]}
FIGURES = {"1c": (stretch(0.1, 8),), "2c": "no memory"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profiles.csv.partial"


def begun(path: Path) -> None:
    with Record(path, SETTINGS) as record:
        record.add_starts("m", (start(1.0),))
        record.add_starts("m", (start(2.0), start(3.0)))
        record.add_stage("first", FIGURES)


def test_the_same_settings_go_on_with_what_is_there(path: Path) -> None:
    begun(path)
    with Record(path, SETTINGS) as record:
        assert record.stages == {"first": FIGURES}
        assert record.alone == {"m": [start(1.0)]}
        assert record.at_once == {"m": [(start(2.0), start(3.0))]}


def test_what_failed_is_to_be_tried_again(path: Path) -> None:
    with Record(path, SETTINGS) as record:
        record.add_stage("first", FIGURES)
        record.add_stage("second", {"1c": FIGURES["1c"]})
        assert [record.has(key) for key in ("first", "second", "third")] == [False, True, False]
        record.add_stage("first", {"1c": FIGURES["1c"]})
    with Record(path, SETTINGS) as record:
        assert record.has("first")


def test_a_line_that_was_cut_short_is_left_out(path: Path) -> None:
    begun(path)
    path.write_bytes(path.read_bytes()[:-5])
    with Record(path, SETTINGS) as record:
        assert record.stages == {}
        record.add_stage("first", FIGURES)
    with Record(path, SETTINGS) as record:
        assert record.stages == {"first": FIGURES}


def test_other_settings_are_refused_by_the_one_that_differs(path: Path) -> None:
    begun(path)
    with pytest.raises(MigratorError, match=r"batches was \[1, 8\], and is \[1\]; give the same options .* or remove"):
        Record(path, {**SETTINGS, "batches": [1]})


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
        Record(path, SETTINGS)
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
        Record(path, SETTINGS)


def test_nothing_is_left_once_the_table_stands(path: Path) -> None:
    with Record(path, SETTINGS) as record:
        record.finish()
    assert not path.exists()


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        Record(tmp_path / "gone" / "x.partial", SETTINGS)
