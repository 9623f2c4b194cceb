"""How the time of batches and steps is taken."""

from __future__ import annotations

import pytest

from migrator.profiling.crew import LEAST_PASSES, Stopwatch
from migrator.profiling.record import Stretch


class Process:
    """One that is timed, on a clock that the test moves; it uses half of a core."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.stopwatch = Stopwatch(8.0, lambda: self.now_s / 2)

    def passes(self, *took_s: float) -> Stretch | None:
        for seconds in took_s:
            self.now_s += seconds
            self.stopwatch.passed([seconds], self.now_s)
        return self.stopwatch.stretch


@pytest.fixture
def process() -> Process:
    return Process()


def test_nothing_is_measured_before_it_is_asked_for(process: Process) -> None:
    assert process.passes(*[1.0] * 100) is None
    assert process.stopwatch.n_passes == 100


def test_only_what_begins_and_ends_in_the_stretch_counts(process: Process) -> None:
    process.stopwatch.measure(10.0, 20.0)
    # they end at 9, 13, 14, 16, 19, 21 and 30
    assert process.passes(9.0, 4.0, 1.0, 2.0, 3.0, 2.0, 9.0) == Stretch(4, 32.0, 8.0, 2.0, 3.0, 4.0, p99_s=3.0)


def test_slow_batches_are_waited_for(process: Process) -> None:
    process.stopwatch.measure(0.0, 1.0)
    found = process.passes(1.0, *[50.0] * LEAST_PASSES)
    assert found is not None
    assert (found.n_passes, found.span_s) == (LEAST_PASSES, 50.0 * LEAST_PASSES)


def test_steps_that_are_told_together_count_one_by_one(process: Process) -> None:
    process.stopwatch.measure(10.0, 20.0)
    for took_s, at_s in (([5.0, 6.0], 11.0), ([4.0, 1.0, 1.0], 17.0), ([4.0], 21.0)):
        process.now_s = at_s
        process.stopwatch.passed(took_s, at_s)
    assert process.stopwatch.stretch == Stretch(4, 32.0, 10.0, 2.5, 4.0, 5.0, p99_s=4.0)
