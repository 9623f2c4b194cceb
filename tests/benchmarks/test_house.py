"""The house's limits: what is above one, or has none, is refused; and all that is measured has one."""

from __future__ import annotations

from benchmarks import house


def test_code_above_a_limit_is_refused_and_so_is_what_has_none() -> None:
    found = {"lines": {"executor": 101, "planner": 50, "forecaster": 7}, "functions": {"longest": 60}}
    allowed = {"lines": {"executor": 100, "planner": 50}, "functions": {"longest": 93}}
    assert house.exceeded(found, allowed) == [
        "lines: executor: 101; tests/house.toml allows 100",
        "lines: forecaster: 7; tests/house.toml has no limit of it",
    ]


def test_what_holds_no_code_is_not_counted() -> None:
    text = '"""A module."""\n\n# why\nX = 1\n\n\ndef f():\n    """What."""\n    return (\n        X\n    )\n'
    assert house.code_lines(text) == 5


def test_a_module_stands_one_floor_above_what_it_imports() -> None:
    found = house.floors("executor/cpu")
    assert found["gpu"] > max(found["duty"], found["shares"]) >= 1


def test_every_room_has_a_limit_and_files_are_in_one() -> None:
    assert house.limits()["lines"].keys() == house.lines_by_room().keys()
