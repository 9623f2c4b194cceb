"""Learning curves from points, and what past windows say about them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workloads.errors import LearningError
from workloads.learning.course import Option
from workloads.learning.curve import Correction, Point, estimates, fitted


def points(rise: float = 0.004, start: float = 1.5, floor: float = 0.05) -> list[Point]:
    """On a true curve, with 0.5 s and a millisecond a pass."""
    return [Point(x, 1 - floor - 1 / (rise * x + start), 0.5 + 0.001 * x) for x in (100, 200, 400, 800)]


def test_a_true_curve_is_found_again_far_outside_its_points() -> None:
    assert fitted(points()).accuracy(5000) == pytest.approx(0.95 - 1 / 21.5, abs=0.005)


def test_the_time_of_a_pass_is_found() -> None:
    assert fitted(points()).seconds(5000) == pytest.approx(5.5)


def test_points_on_the_curve_leave_no_residual() -> None:
    assert fitted(points()).residual < 1e-3


def test_points_of_another_shape_are_met_as_well_as_the_formula_allows() -> None:
    found = fitted([Point(x, y, 0.0) for x, y in ((128, 0.0), (256, 0.4), (384, 0.8), (512, 0.9), (640, 0.95))])
    assert found.residual < 0.15  # weighted by observed errors alone, the start takes all the weight: 0.5


def test_what_begins_to_rise_late_is_read_from_there() -> None:
    measured = [Point(x, y, 0.0) for x, y in ((128, 0.0), (256, 0.0), (384, 0.0), (512, 0.6), (640, 0.8), (768, 0.9))]
    found = fitted(measured)
    assert found.lag == 384
    assert found.accuracy(300) == pytest.approx(0.0, abs=0.02)
    assert found.accuracy(1000) > 0.85


def test_a_model_that_does_not_learn_stays_where_it_is() -> None:
    assert fitted([Point(x, 0.5, 0.0) for x in (100, 200, 300)]).accuracy(10_000) == pytest.approx(0.5, abs=0.01)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1), st.floats(0, 100)), min_size=2, max_size=12))
def test_accuracy_stays_in_bounds_and_never_falls(rows: list[tuple[int, float, float]]) -> None:
    assume(len({row[0] for row in rows}) >= 2)
    found = fitted([Point(*row) for row in rows])
    values = [found.accuracy(x) for x in (0, 1, 10, 10**3, 10**6, 10**9)]
    assert values == sorted(values)
    assert 0 <= values[0] <= values[-1] <= 1


@pytest.mark.parametrize("wrong", [[], [Point(5, 0.5, 0.0)], [Point(5, 0.5, 0.0), Point(5, 0.6, 1.0)]])
def test_one_number_of_passes_shows_no_curve(wrong: list[Point]) -> None:
    with pytest.raises(LearningError, match="two with different numbers of passes are needed"):
        fitted(wrong)


def test_a_point_that_cannot_be_is_named() -> None:
    with pytest.raises(LearningError, match=r"accuracy=1\.5"):
        fitted([Point(5, 0.5, 0.0), Point(6, 1.5, 0.0)])


def test_more_samples_and_more_epochs_are_told_apart() -> None:
    options = [Option("half", n_samples=500, n_epochs=2), Option("full", n_epochs=2), Option("long", n_epochs=4)]
    found = estimates(fitted(points()), options, n_all=1000, slowdown={"1g": 1.0})
    assert found[0].accuracy < found[1].accuracy < found[2].accuracy


def test_checkpoints_lie_on_the_curve() -> None:
    curve = fitted(points())
    (found,) = estimates(curve, [Option("full", n_epochs=2, checkpoints=(0.5,))], n_all=1000, slowdown={})
    assert found.checkpoints == ((0.5, curve.accuracy(1000)),)


def test_time_is_told_for_each_profile() -> None:
    (found,) = estimates(fitted(points()), [Option("full", n_epochs=2)], n_all=1000, slowdown={"1g": 3.0, "7g": 1.0})
    assert found.time_s == {"1g": pytest.approx(7.5), "7g": pytest.approx(2.5)}


@pytest.mark.parametrize(("n_all", "slowdown"), [(0, 1.0), (5, 0.0), (5, float("nan"))])
def test_sizes_and_slowdowns_that_cannot_be_are_refused(n_all: int, slowdown: float) -> None:
    with pytest.raises(LearningError, match="a number ≥ 1 and numbers > 0"):
        estimates(fitted(points()), [], n_all=n_all, slowdown={"1g": slowdown})


def test_a_lasting_error_is_corrected() -> None:
    correction = Correction()
    for _ in range(6):
        correction = correction.learned([(0.7, 0.8), (0.6, 0.7)])
    assert correction.corrected(0.75) == pytest.approx(0.85, abs=0.03)


def test_one_window_is_half_believed() -> None:
    assert Correction().learned([(0.7, 0.8)]).bias == pytest.approx(0.05)


def test_the_error_is_that_of_what_was_said_at_the_time() -> None:
    before = Correction(bias=0.1, error=0.0, n_windows=0)
    assert before.learned([(0.7, 0.8)]).error == pytest.approx(0.0)


def test_a_corrected_accuracy_stays_one() -> None:
    assert Correction(bias=0.5).corrected(0.9) == 1.0


def test_estimates_carry_what_they_were_before_correction() -> None:
    (found,) = estimates(
        fitted(points()), [Option("full")], n_all=100, slowdown={}, correction=Correction(bias=-0.1, n_windows=3)
    )
    assert found.raw - found.accuracy == pytest.approx(0.1)


@pytest.mark.parametrize("outcomes", [[], [(0.5, 1.5)], [(float("nan"), 0.5)]])
def test_outcomes_that_cannot_be_are_refused(outcomes: list[tuple[float, float]]) -> None:
    with pytest.raises(LearningError, match="pairs of numbers from 0 to 1 are needed"):
        Correction().learned(outcomes)
