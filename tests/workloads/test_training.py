from __future__ import annotations

import pytest

from workloads.errors import WorkloadError
from workloads.training import CURVES, Curve, reached

BY_HAND = Curve(points=((0.25, 0.6), (0.5, 0.8)))


@pytest.mark.parametrize(("name", "gain"), [("linear", 0.25), ("square-root", 0.5)])
def test_curves_by_name_gain_what_they_are_called(name: str, gain: float) -> None:
    assert [CURVES[name].gain(part) for part in (0.25, 1, 2)] == [gain, 1, 1]


@pytest.mark.parametrize(("part", "gain"), [(0, 0), (0.125, 0.3), (0.25, 0.6), (0.375, 0.7), (0.75, 0.9), (1, 1)])
def test_points_are_joined_by_lines(part: float, gain: float) -> None:
    assert BY_HAND.gain(part) == pytest.approx(gain)


@pytest.mark.parametrize("points", [((0.5, 0.5), (0.5, 0.6)), ((0.5, 0.5), (0.7, 0.4)), ((1.0, 0.5),), ((0.5, 1.1),)])
def test_points_that_do_not_rise_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(WorkloadError, match="parts that rise"):
        Curve(points=points)


def test_the_whole_gain_is_the_accuracy_after_to_the_last_bit() -> None:
    assert reached(0.1, 0.7, 1.0) == 0.7
    assert reached(0.5, 0.9, 0.5) == pytest.approx(0.7)
