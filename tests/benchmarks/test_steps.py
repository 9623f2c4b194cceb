"""Steps of traffic, and what is measured after them, from courses that are made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper import matches
from benchmarks.paper.plots import drawing, svg_of
from benchmarks.steps import (
    AFTER_S,
    ARMS,
    BEFORE_S,
    EVERY_S,
    HISTORY_S,
    KINDS,
    REFERENCE,
    STEADY,
    TITLE,
    Course,
    Measured,
    Outcome,
    course_of,
    document,
    figure_of,
    held_after_s,
    match_of,
    measured,
    rates_of,
    shown_seconds,
    step_second,
    table_of,
)

BURST, RAMP, SHIFT, DEAD, RESTART = KINDS


def factors(knots: tuple[tuple[float, float], ...], draw: int = 1) -> np.ndarray:
    """By what each second is multiplied, from the step on."""
    return (rates_of(knots, draw, 0) / rates_of(STEADY, draw, 0))[HISTORY_S + step_second(draw) :]


def course(lost: dict[int, float]) -> Course:
    """100 requests a second, and so many lost in these seconds after the step."""
    arrivals = np.full(BEFORE_S + AFTER_S, 100.0)
    goodput = arrivals.copy()
    for second, number in lost.items():
        goodput[BEFORE_S + second] -= number
    return Course(goodput, arrivals, changes=len(lost))


def made_up() -> list[Outcome]:
    """An arm with n others after it loses 10 requests in each of the first n seconds, and in the second draw of 2 n."""
    return [
        Outcome(
            kind,
            {
                arm.label: [course(dict.fromkeys(range(-times * number), 10.0)) for times in (1, 2)]
                for number, arm in enumerate(ARMS, 1 - len(ARMS))
            },
        )
        for kind in (BURST, RESTART)
    ]


def test_traffic_is_as_ever_until_the_step() -> None:
    before = slice(HISTORY_S + step_second(3))
    for kind in KINDS:
        assert (rates_of(kind.vision, 3, 0)[before] == rates_of(STEADY, 3, 0)[before]).all()


@pytest.mark.parametrize(
    ("knots", "second", "factor"),
    [
        (BURST.vision, 0, 3),
        (BURST.vision, 29, 3),
        (BURST.vision, 30, 1),
        (SHIFT.vision, 0, 2),
        (SHIFT.vision, AFTER_S, 2),
        (RAMP.vision, RAMP.from_s // 2, 1 + 30.5 / 60),
        (RAMP.vision, RAMP.from_s, 2),
        (DEAD.language, 0, 0),
        (DEAD.vision, 0, 2),
        (RESTART.vision, RESTART.from_s - 1, 0),
        (RESTART.vision, RESTART.from_s, 1),
        (RESTART.language, RESTART.from_s - 1, 2),
    ],
)
def test_traffic_steps_in_the_second_it_should(
    knots: tuple[tuple[float, float], ...], second: int, factor: float
) -> None:
    assert factors(knots)[second] == pytest.approx(factor)


def test_draws_differ_and_repeat() -> None:
    assert (rates_of(STEADY, 1, 0) == rates_of(STEADY, 1, 0)).all()
    assert (rates_of(STEADY, 1, 0) != rates_of(STEADY, 2, 0))[1:].all()
    assert (rates_of(STEADY, 1, 0) != rates_of(STEADY, 1, 1))[1:].all()


@pytest.mark.parametrize(
    ("shares", "seconds"),
    [
        ([1.0] * 8, 0),
        ([0.5, 0.5, *[0.95] * 5], 2),
        ([1.0, 0.5, *[1.0] * 4, 0.94, *[1.0] * 5], 7),
        ([1.0, 1.0, 1.0, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0], None),
    ],
)
def test_traffic_is_held_once_five_seconds_in_a_row_are(shares: list[float], seconds: int | None) -> None:
    assert held_after_s(100 * np.array(shares), np.full(len(shares), 100.0)) == seconds


def test_losses_count_from_the_step_and_behind_wherever_it_comes() -> None:
    own, known = course({0: 50, 1: 50, 100: 20}), course({1: 10})
    assert measured(own, known, 0) == Measured(2, pytest.approx(90), 3, pytest.approx(0.55), 3)


def test_a_trace_that_begins_again_is_held_from_then_on() -> None:
    own = course({61: 50, 62: 50})
    assert measured(own, course({}), 0).held_after_s == 0
    found = measured(own, course({}), 60)
    assert (found.held_after_s, found.lost_till_then) == (3, pytest.approx(100))


def test_what_is_never_held_loses_till_the_end() -> None:
    found = measured(course(dict.fromkeys(range(AFTER_S), 10.0)), course({}), 0)
    assert (found.held_after_s, found.lost_till_then) == (None, pytest.approx(10 * AFTER_S))


def test_a_course_is_that_of_the_seconds_around_the_step() -> None:
    counts = np.arange(400.0)
    tenant = {"goodput": counts.tolist(), "arrivals": (2 * counts).tolist()}
    found = course_of({"seconds": {"vision": tenant, "language": tenant}, "changes": 2}, draw=1)
    assert found.goodput[BEFORE_S] == 2 * step_second(1)
    assert found.arrivals[0] == 4 * (step_second(1) - BEFORE_S)
    assert found.goodput.size == found.arrivals.size == BEFORE_S + AFTER_S


def test_a_policy_without_a_plan_is_named() -> None:
    with pytest.raises(ValueError, match="static on burst, draw 1: no layout"):
        course_of({"policy": "static", "workload": "burst", "error": "no layout"}, draw=1)


def test_all_arms_meet_the_same_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "CACHE", tmp_path)
    found = [match_of(BURST, arm, 1).config for arm in ARMS]
    assert len({str((config.tenants, config.seed)) for config in found}) == 1
    paces = [config.planner.replan_every_s for config in found]
    assert paces == [EVERY_S if arm.every_s else "never" for arm in ARMS]
    assert [config.forecast.method for config in found] == [arm.forecast["method"] for arm in ARMS]


def test_the_load_is_that_of_traffic_without_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "CACHE", tmp_path)
    scales = [[t.arrivals.scale for t in match_of(kind, ARMS[0], 1).config.tenants] for kind in (BURST, DEAD)]
    assert scales[0] == scales[1]


def test_seconds_are_told_with_the_least_and_the_most() -> None:
    draws = [Measured(seconds, 0.0, 0, 0.0, 0) for seconds in (4, None, 6)]
    assert shown_seconds(draws) == "6 [4, never]"
    assert shown_seconds(draws[:1]) == "4"


def test_the_figure_has_every_kind_and_says_that_it_is_simulated() -> None:
    with drawing():
        drawn = [svg_of(figure_of(made_up()), TITLE) for _ in range(2)]
    assert drawn[0] == drawn[1]
    told = (TITLE, BURST.label, RESTART.label, "auto, once: 6 [4, 8]")
    assert all(text in drawn[0] for text in told)


def test_table_and_json_have_every_arm() -> None:
    found = made_up()
    assert table_of(found).row_count == len(found) * len(ARMS)
    kinds = json.loads(json.dumps(document(found), allow_nan=False))["kinds"]
    assert list(kinds["burst"]["arms"]) == [arm.label for arm in ARMS]
    assert kinds["burst"]["arms"][REFERENCE]["draws"][0]["lost_till_then"] == 0
