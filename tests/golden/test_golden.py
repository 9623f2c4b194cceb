"""The code does what is written down beside this file; ``freeze.py`` says what that is, and writes it.

Plans are compared by value: where the plan written down is optimal, the objective is the same to 1e-9; elsewhere it
may be higher, or lower by 0.02 % at most; and no bound is below what some plan is known to earn. What is simulated with
such plans, the quickstart and comparisons, is compared by its goodput. What is printed and logged is compared exactly.

Only the script compares whole plans and their work, and ``compare``; most of ``physical``, ``windows``, ``help``,
``answers`` and ``logs``, and what is slow of ``small``; and the rows of ``reproduce``, of which ``test_reproduce.py``
simulates a few.
"""

from __future__ import annotations

from typing import Any

import freeze
import pytest

from tests.seeds import daily

TOLERANCE = 1e-9

SLOW = ("trace 0 4 × 200 exact", "random 0 4 × 40 exact")

CHOSEN = {
    "paper": tuple(freeze.golden("paper")),
    "physical": (*(f"random-{seed}" for seed in range(4)), "trace-0", "midway random-0"),
    "small": tuple(key for key in freeze.golden("small") if key not in SLOW),
    "windows": ("w8 window 0 greedy", "file paper exact"),
    "quickstart": ("report",),
    "help": ("run", "gpu list"),
    "answers": ("forecast eval",),
    "logs": ("faulty 1", "stand-in"),
    "live": ("report",),
}

MOST_LOST = 2e-4
"""Share by which a plan that is not optimal may be worth less than the one written down."""

MOST_POINTS_LOST, MOST_POINTS_LOST_ON_AVERAGE = 0.3, 0.05
"""Points by which goodput may be lower in one row, and on average over rows."""

SOLVED = [(section, key) for section in ("paper", "physical", "small", "windows") for key in CHOSEN[section]]
SIMULATED = [("quickstart", key) for key in CHOSEN["quickstart"]]
PRINTED = [(section, key) for section in ("help", "answers", "live", "logs") for key in CHOSEN[section]]


def claims(known: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What of a plan's value and bound is not as it has to be."""
    if known.get("objective") is None or found.get("objective") is None:  # no plan, or the engine refuses the problem
        return freeze.differences(known.get("status", known), found.get("status", found))
    worth, value, slack = known["objective"], found["objective"], TOLERANCE * max(1.0, abs(known["objective"]))
    least = worth - (slack if known["status"] == "optimal" else MOST_LOST * abs(worth))
    wrong = [f"worth {value}; {worth} is written down"] if value < least else []
    wrong += (
        [f"worth {value}; {worth} is claimed the best"]
        if known["status"] == "optimal" and value > worth + slack
        else []
    )
    bound, most = found["claimed_bound"], max(value, worth)
    return wrong + ([f"bound {bound} below {most}"] if bound is not None and bound < most - slack else [])


@pytest.mark.parametrize("one", daily(SOLVED, SOLVED[::4]), ids=" ".join)
def test_a_plan_is_worth_what_it_was(one: tuple[str, str]) -> None:
    section, key = one
    known, found = freeze.golden(section)[key], freeze.entries(section)[key]()
    assert isinstance(found, dict)
    assert found.get("problem") == known.get("problem"), "the problem is another one: what makes it has changed"
    assert claims(known, found) == []


def goodput_of(value: object) -> list[float]:
    """Every goodput in percent that a JSON value holds, in order."""
    if isinstance(value, dict):
        own = [value["goodput_pct"]] if isinstance(value.get("goodput_pct"), float) else []
        return own + [found for item in value.values() for found in goodput_of(item)]
    return [found for item in value for found in goodput_of(item)] if isinstance(value, list) else []


@pytest.mark.long
@pytest.mark.parametrize(("section", "key"), SIMULATED)
def test_goodput_is_what_it_was_or_more(section: str, key: str) -> None:
    known, found = goodput_of(freeze.golden(section)[key]), goodput_of(freeze.entries(section)[key]())
    assert len(known) == len(found) > 0
    lost = [before - now for before, now in zip(known, found, strict=True)]
    assert max(lost) <= MOST_POINTS_LOST
    assert sum(lost) / len(lost) <= MOST_POINTS_LOST_ON_AVERAGE


@pytest.mark.parametrize(
    ("found", "n_wrong"),
    [
        ({"objective": 10.0, "claimed_bound": 10.0}, 0),
        ({"objective": 9.9, "claimed_bound": 10.0}, 1),
        ({"objective": 10.1, "claimed_bound": 10.1}, 1),
        ({"objective": 10.0, "claimed_bound": 9.9}, 1),
        ({"objective": None, "claimed_bound": None, "status": "timeout"}, 1),
    ],
)
def test_wrong_claims_are_found(found: dict[str, Any], n_wrong: int) -> None:
    assert len(claims({"status": "optimal", "objective": 10.0}, {"status": "optimal", **found})) == n_wrong


@pytest.mark.parametrize("one", daily(PRINTED, PRINTED[:-1]), ids=" ".join)
def test_what_is_printed_and_logged_is_what_it_was(one: tuple[str, str]) -> None:
    section, key = one
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
