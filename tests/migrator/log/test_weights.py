"""Which weights a tenant answers with, by its log: what it learned before it left does not count once it is back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.log.line import Entry
from migrator.log.records import Record
from migrator.log.runlog import ReadLog
from migrator.log.segments import Past
from migrator.log.weights import first_weights, kept_weights, served_weights
from tests.migrator.log import records

BOTH, ONE = records.header(3.0, "a", "b")["tenants"], records.header(3.0, "b")["tenants"]


def learned(folder: Path, window: int, **more: Any) -> records.Json:
    (folder / f"w{window}").touch()
    return records.finished(window, None, 3.0 * window, "a") | {
        "version": f"window-{window}",
        "weights": f"w{window}",
        **more,
    }


def changed(window: int, tenants: Any, **came: float) -> records.Json:
    return {"kind": "tenants_changed", "window": window, "tenants": tenants, "accuracies": came}


def log_in(folder: Path, *told: records.Json) -> ReadLog:
    return replace(records.log_of(records.header(3.0, "a", "b"), *told), folder=folder)


def versions(log: ReadLog) -> tuple[str | None, list[str]]:
    served = served_weights(log).get("a")
    return served and served.version, [one.version for one in kept_weights(log).get("a", [])]


def test_the_newest_that_serve_count_and_older_ones_that_serve_again(tmp_path: Path) -> None:
    told = [learned(tmp_path, 0), learned(tmp_path, 1), learned(tmp_path, 2, rejected=0.2)]
    assert versions(log_in(tmp_path, *told)) == ("window-1", ["window-0", "window-1"])
    back = records.rolled_back(9.0) | {"weights": "w0"}
    assert versions(log_in(tmp_path, *told, back)) == ("window-0", ["window-0", "window-1"])
    (tmp_path / "w1").unlink()
    assert versions(log_in(tmp_path, *told)) == ("window-0", ["window-0"])


def test_what_was_learned_before_a_tenant_left_does_not_count_once_it_is_back(tmp_path: Path) -> None:
    gone, back = changed(1, ONE), changed(4, BOTH, a=0.9)
    before = [learned(tmp_path, 0), gone, back]
    assert versions(log_in(tmp_path, *before)) == (None, [])
    assert versions(log_in(tmp_path, *before, learned(tmp_path, 4), changed(5, BOTH))) == ("window-4", ["window-4"])


@pytest.mark.parametrize("until", range(3, 9))
def test_so_it_is_in_later_segments(tmp_path: Path, until: int) -> None:
    later = [changed(3, BOTH), changed(4, BOTH), changed(6, BOTH)]
    told = [learned(tmp_path, 0), changed(1, ONE), changed(2, BOTH, a=0.9), *later]
    past, entries = Past(), log_in(tmp_path, *told).entries
    for entry in entries:
        past.take(entry)
    for window in range(until):
        past.close(window)
    again: list[Entry[Record]] = past.entries
    assert versions(replace(log_in(tmp_path), entries=tuple(again))) == (None, [])


def test_first_weights_are_those_that_the_run_trained_first(tmp_path: Path) -> None:
    assert first_weights(tmp_path, "a") is None
    for live in ("live", "live-2"):
        folder = tmp_path / live / "weights" / "a" / "first"
        folder.mkdir(parents=True)
        (folder / "final.safetensors").touch()
    assert first_weights(tmp_path, "a") == tmp_path / "live" / "weights" / "a" / "first" / "final.safetensors"
