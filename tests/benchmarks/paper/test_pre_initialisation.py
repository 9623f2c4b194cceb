"""The hidden share of reconfiguration overhead: two measures by hand, and a study that says what a match says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper.pre_initialisation import (
    COLD,
    PAPER,
    added,
    gained_points,
    hidden_as_goodput,
    hidden_in_seconds,
    study,
)
from migrator.comparison.matches import Match, score_of, standings
from migrator.config.reading import read_config

CONFIG = read_config(Path(__file__).parents[3] / "configs" / "w7.yaml", windows=2, sharing={"pools": "off"})

Rows = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return study(CONFIG, (PAPER, COLD))


def by_hand(lost: float, lost_cold: float) -> Rows:
    row = {"idle_s": 7.0, "left_s": 14.0, "exposed_s": 63.0, "arrivals": 1000.0, "goodput": 900.0 - lost}
    return {PAPER: {**row, "reconfiguration": lost}, COLD: {**row, "goodput": 860.0, "reconfiguration": lost_cold}}


@pytest.mark.long
def test_it_says_what_a_match_says(rows: Rows) -> None:
    score = score_of(Match(PAPER, CONFIG, "configs/w7.yaml", 0))
    lost = standings([score])[0].account.reconfiguration
    found = {key: rows[PAPER][key] for key in ("arrivals", "goodput", "reconfiguration")}
    assert found == {"arrivals": score.total.arrivals, "goodput": score.total.correct, "reconfiguration": lost}


def test_what_starts_beside_what_it_replaces_hides_some_of_it(rows: Rows) -> None:
    cold, warm = (hidden_in_seconds(rows[name]) for name in (COLD, PAPER))
    assert cold is not None
    assert warm is not None
    assert warm > cold
    assert (hidden_as_goodput(rows) or 0.0) > 0.0
    assert gained_points(rows) > 0.0


def test_in_seconds_it_is_the_part_in_which_nobody_gave_anything_up() -> None:
    assert hidden_in_seconds(by_hand(10.0, 40.0)[PAPER]) == 0.25


def test_as_goodput_it_is_what_is_no_longer_lost() -> None:
    assert hidden_as_goodput(by_hand(10.0, 40.0)) == 0.75
    assert gained_points(by_hand(10.0, 40.0)) == pytest.approx(3.0)


def test_it_may_be_negative() -> None:
    assert hidden_as_goodput(by_hand(50.0, 40.0)) == -0.25


def test_of_nothing_there_is_no_share() -> None:
    nothing = {**by_hand(0.0, 0.0)[PAPER], "idle_s": 0.0, "left_s": 0.0, "exposed_s": 0.0}
    assert hidden_in_seconds(nothing) is None
    assert hidden_as_goodput(by_hand(0.0, 0.0)) is None


def test_studies_add_up() -> None:
    total = added([by_hand(10.0, 40.0), by_hand(20.0, 40.0)])
    assert total[PAPER] == {
        "idle_s": 14.0,
        "left_s": 28.0,
        "exposed_s": 126.0,
        "arrivals": 2000.0,
        "goodput": 1770.0,
        "reconfiguration": 30.0,
    }
    assert hidden_as_goodput(total) == 0.625
