"""Logs of schema 1 give the numbers that the version that wrote them gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import LogError
from migrator.log.account import accounts
from migrator.log.overhead import measured_overhead
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, log_in, read_log
from migrator.views.as_json import report_to_json

SAMPLE = Path(__file__).parent / "schema1"
"""A run with late starts, recorded by the last version that wrote schema 1, and what that version made of it."""


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLE / "expected.json").read_text())
    return found


def test_its_report_is_the_same(expected: dict[str, Any]) -> None:
    report = report_to_json(report_of(read_log(SAMPLE)))
    first = json.loads((SAMPLE / EVENTS_FILE).read_text().splitlines()[0])
    assert report.pop("run") == {key: value for key, value in first.items() if key not in ("kind", "wall")}
    assert report.pop("surprises") == []  # such logs do not say what each tenant was promised
    # What that version did not tell: the log has which retrainings ended, and when.
    finished = {(event["tenant"], event["window"]) for event in read_log(SAMPLE).of_kind("finished")}
    for window in report["windows"]:
        for tenant, age in window.pop("model_age").items():
            trained = [number for name, number in finished if name == tenant and number < window["window"]]
            assert age == window["window"] - max(trained, default=-1)
    assert report == expected["report"]


def test_its_account_is_the_same(expected: dict[str, Any]) -> None:
    assert {name: asdict(own.total) for name, own in accounts(read_log(SAMPLE)).items()} == expected["accounts"]


def test_its_overhead_is_the_same(expected: dict[str, Any]) -> None:
    measured = measured_overhead(read_log(SAMPLE)).by_window
    assert {str(window): own for window, own in measured.items()} == expected["overhead"]


def test_its_records_are_those_of_schema_2() -> None:
    log = read_log(SAMPLE)
    assert [event["n"] for event in log.events] == list(range(len(log.events)))
    assert len(log.of_kind("intent")) == len(log.of_kind("outcome")) > 0
    assert len(log.of_kind("ready")) == sum(len(event["started"]) for event in log.of_kind("change"))
    assert len(log.of_kind("finished")) == 3
    assert not any("calls" in event for event in log.of_kind("change"))


def test_it_ends_early_wherever_its_tail_is_cut() -> None:
    raw = (SAMPLE / EVENTS_FILE).read_bytes()
    for size in range(raw.index(b"\n") + 1, len(raw), 97):
        report = report_of(log_in(raw[:size], SAMPLE))
        settled = sum(line.startswith(b'{"kind":"window_finished"') for line in raw[:size].split(b"\n")[:-1])
        assert (report.ending, sum(not window.is_void for window in report.windows)) == ("torn", settled)


def lines_but(place: int, alter: Callable[[dict[str, Any]], object]) -> list[bytes]:
    lines = (SAMPLE / EVENTS_FILE).read_bytes().splitlines()
    event = json.loads(lines[place])
    alter(event)
    lines[place] = json.dumps(event, separators=(",", ":")).encode()
    return lines


@pytest.mark.parametrize(
    ("place", "alter", "message"),
    [
        (1, lambda event: event.pop("plan"), "line 2: window_started.plan: field required"),
        (2, lambda event: event.pop("started"), "line 3: it is not as schema 1 writes it"),
        (2, lambda event: event["started"][0].pop("ready_s"), "line 3: ready.ready_s: input should be a valid number"),
        (2, lambda event: event.update(n=2), "line 3: it has a number or a checksum, which schema 1 does not"),
        (2, lambda event: event.update(sum="0"), "line 3: it has a number or a checksum, which schema 1 does not"),
        (0, lambda event: event.update(n=0), "line 1: it is no whole record of this program"),
        (0, lambda event: event.update(schema=2), "does not start with a run_started record of schema 1 or 2"),
        (0, lambda event: event.update(kind="start"), "does not start with a run_started record of schema 1 or 2"),
    ],
)
def test_damage_is_named(place: int, alter: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(LogError, match=message):
        log_in(b"\n".join([*lines_but(place, alter), b""]), SAMPLE)


def test_another_way_to_write_the_same_is_named() -> None:
    raw = (SAMPLE / EVENTS_FILE).read_bytes()
    with pytest.raises(LogError, match="line 1: it is not written as this program writes it"):
        log_in(raw.replace(b'"schema":1', b'"schema": 1'), SAMPLE)


def test_two_headers_are_named() -> None:
    header = (SAMPLE / EVENTS_FILE).read_bytes().splitlines(keepends=True)[0]
    with pytest.raises(LogError, match="line 2: there is more than one run_started record"):
        log_in(header * 2, SAMPLE)


def test_counts_that_do_not_add_up_are_named() -> None:
    raw = (SAMPLE / EVENTS_FILE).read_bytes()
    lines = raw.splitlines()
    place = next(place for place, line in enumerate(lines) if b"window_finished" in line)
    altered = lines_but(place, lambda event: event["tenants"]["vision"]["in_time"].__setitem__(4, 0))
    with pytest.raises(
        LogError, match=f"line {place + 1}: window 0, tenant vision, second 4: .* arrivals but 0 in time"
    ):
        log_in(b"\n".join([*altered, b""]), SAMPLE)
