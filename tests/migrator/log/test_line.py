"""What a record must hold: fields that readers rely on are there, of their type, and within what can be computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migrator.errors import LogError
from migrator.log.line import entry_in, line_of
from migrator.log.records import Cause, Kept
from migrator.log.runlog import log_in
from tests.migrator.log import records


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy", 1),
        ("policy", None),
        ("profile_variant", ["x"]),
        ("interference", "x"),
        ("service_jitter", {}),
        ("name", None),
        ("gpu", 3),
        ("seed", "1"),
        ("window_s", 0),
        ("window_s", "60"),
        ("window_s", 1e300),
        ("window_s", 10**400),
        ("step_s", 1e-300),
        ("windows", -1),
        ("compute_slices", 0),
        ("compute_slices", 7.5),
        ("forecaster", []),
        ("simulated", "yes"),
        ("sharing", "halves"),
        ("tenants", {}),
        ("tenants", [1]),
    ],
)
def test_a_header_with_an_ill_typed_field_is_refused_by_its_name(tmp_path: Path, key: str, value: object) -> None:
    raw = records.lines_of({**records.header(3.0), key: value})
    with pytest.raises(LogError, match=rf"line 1: run_started\.{key}"):
        log_in(raw, tmp_path)


@pytest.mark.parametrize("key", ["name", "gpu", "seed", "window_s", "step_s", "windows", "forecaster", "tenants"])
def test_a_header_without_a_field_is_refused_by_its_name(tmp_path: Path, key: str) -> None:
    header = records.header(3.0)
    del header[key]
    with pytest.raises(LogError, match=rf"line 1: run_started\.{key}: field required"):
        log_in(records.lines_of(header), tmp_path)


@pytest.mark.parametrize("at_s", [1e300, -1e16])
def test_a_time_beyond_any_run_is_refused(tmp_path: Path, at_s: float) -> None:
    raw = records.write(tmp_path / "run", {**records.header(3.0), "at_s": -9.0})
    line = records.lines_of({"kind": "interrupted", "at_s": at_s})
    with pytest.raises(LogError, match="line 2: it is no whole record of this program"):
        log_in(raw + line, tmp_path)


def check(record: dict[str, Any]) -> None:
    entry_in(records.lines_of(record).removesuffix(b"\n"))


def kept(**fields: Any) -> dict[str, Any]:
    told = {"cause": "pace", "reason": "it is time", "asked_s": 1.0, "n_steps": 3, "why": str(Kept.LATE)}
    return {"kind": "plan_kept", "at_s": 1.0, "window": 0, **told, **fields}


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_may_stand_in_a_log(cause: Cause) -> None:
    check(kept(cause=str(cause.value)))


def test_a_cause_that_nobody_knows_is_refused() -> None:
    with pytest.raises(LogError, match=r"plan_kept\.cause: invalid enum value 'whim'"):
        check(kept(cause="whim"))


def test_half_a_character_is_no_json() -> None:
    with pytest.raises(LogError, match="it is no whole record of this program; the file was altered"):
        check(kept(reason="\ud800"))
    with pytest.raises(LogError, match=r"plan_kept\.wall is no JSON; another version"):
        check(kept(wall={"solve_s": 1.0, "load_s": 0.5, "version": "\ud800"}))


def test_a_field_that_a_later_version_has_added_is_left_alone() -> None:
    check(kept(mood="good"))


def test_a_time_that_is_no_number_is_refused_in_facts_of_the_wall_clock_too() -> None:
    fields = kept(wall={"solve_s": 1, "load_s": 0.5})
    check(fields)
    with pytest.raises(LogError, match=r"plan_kept\.wall\.solve_s: expected `float \| null`, got `str`"):
        check(kept(wall={"solve_s": "1.0"}))


def test_an_integer_in_the_place_of_a_fraction_keeps_its_checksum() -> None:
    line = records.lines_of(kept(asked_s=1)).removesuffix(b"\n")
    entry = entry_in(line)
    assert b'"asked_s":1,' in line
    assert line_of(entry.n, entry.at_s, entry.record) != line + b"\n"
