"""What happens around a training's steps, on a clock that the tests move."""

from __future__ import annotations

import math

import pytest

from workloads.learning.course import Checkpoint, Finished, Progress, Started, Stepped, Told
from workloads.learning.watch import Cut, StepWatch, TimedSteps


class Bench:
    """A watched training whose steps and checkpoints take as long as the test says."""

    def __init__(self, shares: tuple[float, ...] = (), *, time_s: float = math.inf, keep_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.told: list[Told] = []
        self.leaving: tuple[str, str] | None = None
        self.keep_s = keep_s
        self.watch = StepWatch(
            shares,
            measure=self._measure,
            write=lambda share, _accuracy: f"{share:.2f}",
            tell=self.told.append,
            time_s=time_s,
            leaving=lambda: self.leaving,
            now=lambda: self.now_s,
        )
        self.watch.begin("random")

    def _measure(self) -> float:
        self.now_s += self.keep_s
        return 0.5

    def steps(self, n: int, of: int, step_s: float = 0.1, loss: float = 1.0) -> None:
        for _ in range(n):
            self.now_s += step_s
            self.watch.step(loss, of)

    def shares(self) -> list[float]:
        return [told.share for told in self.told if isinstance(told, Checkpoint)]


def test_the_old_accuracy_is_told_first() -> None:
    assert Bench().told == [Started(0.5, "random", 0.0)]


def test_checkpoints_are_kept_at_their_shares() -> None:
    bench = Bench((0.25, 0.5, 0.75))
    bench.steps(8, 8)
    assert bench.shares() == [0.25, 0.5, 0.75]


def test_shares_passed_in_one_step_leave_one_checkpoint() -> None:
    bench = Bench((0.25, 0.5, 0.75))
    bench.steps(2, 2)
    assert bench.shares() == [0.5]


def test_a_checkpoint_names_its_file_and_accuracy() -> None:
    bench = Bench((0.5,), keep_s=1.0)
    bench.steps(2, 4)
    assert bench.told[1] == Checkpoint(0.5, 0.5, "0.50", pytest.approx(2.2))


def test_progress_is_told_about_every_second() -> None:
    bench = Bench()
    bench.steps(40, 100, step_s=0.1)
    assert len([told for told in bench.told if isinstance(told, Progress)]) == pytest.approx(4, abs=1)


def test_progress_says_the_pace_and_what_is_left_without_the_slow_first_step() -> None:
    bench = Bench()
    bench.steps(1, 100, step_s=50.0)
    bench.steps(19, 100, step_s=0.5)
    told = bench.told[-1]
    assert isinstance(told, Progress)
    assert (told.steps_per_s, told.left_s) == (pytest.approx(2.0), pytest.approx(50.0 * (1 - told.share), abs=0.2))


def test_the_first_step_says_nothing_of_what_is_left() -> None:
    bench = Bench()
    bench.steps(1, 100, step_s=5.0)
    assert isinstance(bench.told[-1], Progress)
    assert bench.told[-1].left_s is None


def test_time_that_runs_out_leaves_a_checkpoint_and_a_reason() -> None:
    bench = Bench(time_s=10.0, keep_s=0.5)
    with pytest.raises(
        Cut, match=r"\d+% done when its 10 s were nearly over; all takes 10[12]\.\d s, .* 0\.5 s each time"
    ):
        bench.steps(1000, 1000)
    assert len(bench.shares()) == 1


def test_time_that_is_gone_before_the_first_step_is_said() -> None:
    with pytest.raises(Cut, match=r"its 8 s are too few: 6\.0 s were gone before the first step"):
        Bench(time_s=8.0, keep_s=6.0)


def test_a_checkpoint_that_is_due_is_left_out_where_it_would_not_fit() -> None:
    bench = Bench((0.1,), time_s=16.0, keep_s=6.0)
    with pytest.raises(Cut):
        bench.steps(1, 10, step_s=4.0)
    assert bench.shares() == []


def test_it_ends_inside_its_time() -> None:
    bench = Bench(time_s=10.0, keep_s=0.5)
    with pytest.raises(Cut):
        bench.steps(1000, 1000)
    assert bench.now_s - 100.0 <= 10.0


def test_a_training_that_just_fits_is_not_cut() -> None:
    bench = Bench(time_s=10.0, keep_s=0.1)
    bench.steps(90, 90)
    assert isinstance(bench.watch.finish(), Finished)


def test_whoever_wants_it_to_leave_is_heard_at_the_next_step() -> None:
    bench = Bench((0.5,))
    bench.leaving = ("stopped", "SIGTERM")
    with pytest.raises(Cut, match="SIGTERM"):
        bench.steps(1, 2)
    assert bench.shares() == []


def test_a_long_measurement_ends_with_its_time() -> None:
    bench = Bench(time_s=10.0)
    bench.now_s += 10.5
    with pytest.raises(Cut, match="its 10 s were over while an accuracy was measured"):
        bench.watch.check()


def test_a_long_measurement_ends_when_somebody_wants_it_to() -> None:
    bench = Bench()
    bench.leaving = ("parent", "gone")
    with pytest.raises(Cut, match="gone"):
        bench.watch.check()


def test_a_loss_that_is_no_number_ends_it_before_the_weights_are_kept() -> None:
    bench = Bench((0.5,))
    with pytest.raises(Cut, match="loss is nan at step 1 of 2; try a lower learning rate"):
        bench.steps(1, 2, loss=math.nan)
    assert bench.shares() == []


def test_the_end_is_kept_and_told() -> None:
    bench = Bench()
    bench.steps(2, 2)
    assert bench.watch.finish() == bench.told[-1] == Finished(0.5, "1.00", pytest.approx(0.2))


def test_what_each_step_took_is_told_once_in_a_while() -> None:
    told: list[Told] = []
    now_s = iter([100.0, 100.25, 100.75, 101.0, 103.0, 103.5])
    steps = TimedSteps(1.0, tell=told.append, since_s=90.0, now=lambda: next(now_s))
    for _ in range(5):
        steps.step(math.nan, 100)
    assert told == [Stepped((0.25, 0.5, 0.25), 11.0), Stepped((2.0,), 13.0)]


def test_a_training_that_is_only_timed_leaves_when_it_is_asked_to() -> None:
    steps = TimedSteps(1.0, tell=lambda _: None, since_s=0.0, leaving=lambda: ("stopped", "SIGTERM"))
    with pytest.raises(Cut, match="SIGTERM"):
        steps.step(1.0, 100)
