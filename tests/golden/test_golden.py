"""The code does what is written down beside this file; ``freeze.py`` says what that is, and writes it.

Objectives, bounds and other floats are compared to 1e-9, requests and other counts exactly. What a plan holds and what
work it took are left out, as another processor may break ties otherwise.

Only the script compares whole plans and their work; most of ``physical``, ``windows``, ``compare``, ``help``,
``answers`` and ``logs``, and what is slow of ``small``; and the rows of ``reproduce``, of which ``test_reproduce.py``
simulates a few.
"""

from __future__ import annotations

from typing import Any

import freeze
import pytest

TOLERANCE = 1e-9

SLOW = ("trace 0 4 × 200 exact", "random 0 4 × 40 exact")

CHOSEN = {
    "paper": tuple(freeze.golden("paper")),
    "physical": (*(f"random-{seed}" for seed in range(4)), "trace-0", "midway random-0"),
    "small": tuple(key for key in freeze.golden("small") if key not in SLOW),
    "windows": ("w8 window 0 greedy", "file paper exact"),
    "quickstart": ("report",),
    "compare": ("w8 policy-only 1",),
    "help": ("run", "gpu list"),
    "answers": ("forecast eval",),
    "logs": ("faulty 1", "faulty 6", "stand-in"),
    "live": ("report",),
}

OF_THE_PROCESSOR = ("plan", "work")
"""What a plan's entry has of ties that were broken, and of how it was found."""

SOLVED = [(section, key) for section in ("paper", "physical", "small", "windows") for key in CHOSEN[section]]
SIMULATED = [
    (section, key) for section in CHOSEN if section not in {one for one, _ in SOLVED} for key in CHOSEN[section]
]


def comparable(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in (*OF_THE_PROCESSOR, "problem")}


@pytest.mark.parametrize(("section", "key"), SOLVED)
def test_a_plan_is_worth_what_it_was(section: str, key: str) -> None:
    known, found = freeze.golden(section)[key], freeze.entries(section)[key]()
    assert isinstance(found, dict)
    assert found.get("problem") == known.get("problem"), "the problem is another one: what makes it has changed"
    assert freeze.differences(comparable(known), comparable(found), TOLERANCE) == []


@pytest.mark.parametrize(("section", "key"), SIMULATED)
def test_what_is_printed_and_logged_is_what_it_was(section: str, key: str) -> None:
    known, found = freeze.golden(section)[key], freeze.entries(section)[key]()
    assert freeze.differences(known, found, TOLERANCE) == []


@pytest.mark.parametrize("section", freeze.SECTIONS)
def test_what_is_written_down_is_what_is_computed(section: str) -> None:
    assert list(freeze.golden(section)) == list(freeze.entries(section))


def test_the_published_rows_are_those_written_down() -> None:
    assert freeze.differences(freeze.golden("reproduce"), freeze.published()) == []


@pytest.mark.parametrize(
    ("known", "found", "n_different"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, 0),
        ({"a": 1.0}, {"a": 1.0 + 1e-6}, 1),
        ({"a": 1}, {"a": 2}, 1),
        ({"a": 1}, {"a": 1.0}, 1),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": 0.0}]}, 1),
        ({"a": 1}, {"b": 1}, 2),
        ([1], [1, 2], 1),
    ],
)
def test_differences_are_found(known: object, found: object, n_different: int) -> None:
    assert len(freeze.differences(known, found, TOLERANCE)) == n_different
