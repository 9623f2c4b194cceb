from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.speed import best_known
from benchmarks.speed.best_known import BestKnown

KNOWN = BestKnown(value=100.0, bound=102.0, engine="physical", seconds=20.0, problem="abc")


@pytest.fixture(autouse=True)
def _empty_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(best_known, "PATH", tmp_path / "best_known.json")


def test_without_a_file_nothing_is_known() -> None:
    assert best_known.read() == {}


def test_what_is_stored_is_read_back() -> None:
    best_known.store("set", "random-10", KNOWN)
    best_known.store("set", "random-9", replace(KNOWN, value=90.0))
    best_known.store("other × 2", "trace-0", KNOWN)
    values = best_known.read()
    assert values["set"] == {"random-9": replace(KNOWN, value=90.0), "random-10": KNOWN}
    assert list(values["set"]) == ["random-9", "random-10"]
    assert values["other × 2"] == {"trace-0": KNOWN}


def test_a_worse_plan_can_still_lower_the_bound() -> None:
    best_known.store("set", "trace-0", KNOWN)
    best_known.store("set", "trace-0", replace(KNOWN, value=99.0, bound=101.0, engine="greedy"))
    assert best_known.read()["set"]["trace-0"] == replace(KNOWN, bound=101.0)


def test_a_better_plan_replaces_the_value_and_how_it_was_found() -> None:
    found = BestKnown(value=101.0, bound=110.0, engine="exact", seconds=3.0, problem="abc")
    assert KNOWN.with_found(found) == replace(found, bound=102.0)


def test_the_bound_is_never_below_the_value() -> None:
    found = replace(KNOWN, value=102.0 + 1e-9, bound=103.0)
    assert KNOWN.with_found(found).bound == found.value


def test_a_changed_problem_voids_what_was_known() -> None:
    found = BestKnown(value=1.0, bound=2.0, engine="exact", seconds=3.0, problem="def")
    assert KNOWN.with_found(found) == found
