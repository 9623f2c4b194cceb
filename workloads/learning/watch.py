"""What happens around the steps of a training, by any trainer: progress, checkpoints, deadline, leaving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from workloads.learning.course import Checkpoint, Finished, Progress, Started, Stepped, Told

TOLD_EVERY_S = 1.0
"""Seconds between two lines of progress."""

WRITING_S = 0.1
"""What writing weights is taken to last until the first ones are written."""


class Cut(Exception):  # noqa: N818 (it ends a training, which need not be an error)
    """Ends a training from inside its loop; ``cause`` is one of :class:`~workloads.learning.course.Failed`'s."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


class Steps(Protocol):
    """Receives each step that a trainer has made."""

    def step(self, loss: float, n_steps: int) -> None:
        """One more of ``n_steps`` is done. Raises :class:`Cut` where it shall be the last."""


class StepWatch:
    """Watches a training: keeps checkpoints at their shares, tells progress, and ends it inside its time.

    Args:
        shares: At which shares of the steps weights are kept, rising, inside (0, 1).
        measure: The accuracy of the weights as they are now.
        write: Writes them to a file whose name says the share, and returns that name.
        tell: Takes what happens.
        time_s: Seconds from ``since_s`` after which the training must have ended.
        since_s: The reading of ``now`` from which time counts.
        leaving: A cause and a reason to leave at the next step, or ``None``.
        now: A clock in seconds that only rises.
    """

    def __init__(
        self,
        shares: tuple[float, ...],
        *,
        measure: Callable[[], float],
        write: Callable[[float, float], str],
        tell: Callable[[Told], None],
        time_s: float = math.inf,
        since_s: float | None = None,
        leaving: Callable[[], tuple[str, str] | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shares = list(shares)
        self._measure = measure
        self._write = write
        self._tell = tell
        self._leaving = leaving
        self._now = now
        self._since_s = now() if since_s is None else since_s
        self._time_s = time_s
        self._n_done = 0
        self._begun_s = self._told_s = self._done_s
        self._keep_s = 0.0  # what keeping a checkpoint has taken at most
        self._kept_s = 0.0  # what all of them took together
        self._first_s = 0.0  # what the first step took: libraries come to life in it, so no pace is taken from it

    @property
    def _done_s(self) -> float:
        return self._now() - self._since_s

    def begin(self, weights: str) -> None:
        """Measure and tell the old accuracy; stepping begins.

        Raises:
            Cut: Too little time is left to make a step and keep its weights.
        """
        before_s = self._done_s
        accuracy = self._measure()
        self._begun_s = self._told_s = self._done_s
        self._keep_s = self._begun_s - before_s + WRITING_S
        self._tell(Started(accuracy, weights, self._done_s))
        if self._time_s - self._begun_s <= 1.5 * self._keep_s:
            gone = f"{self._begun_s:.1f} s were gone before the first step"
            raise Cut(
                "deadline", f"its {self._time_s:g} s are too few: {gone}, and weights take {self._keep_s:.1f} s to keep"
            )

    def step(self, loss: float, n_steps: int) -> None:
        """Account for one more step of ``n_steps``.

        Raises:
            Cut: It is to leave, the loss is no number, or just enough time is left to keep what there is.
        """
        self._n_done += 1
        if self._n_done == 1:
            self._first_s = self._done_s - self._begun_s
        share = min(1.0, self._n_done / n_steps)
        if leaving := self._leaving():
            raise Cut(*leaving)
        if not math.isfinite(loss):
            raise Cut("error", f"the loss is {loss} at step {self._n_done} of {n_steps}; try a lower learning rate")
        if share < 1.0:
            self._end_in_time(share)
            self._keep_what_is_due(share)
        self._tell_progress(share, loss)

    def check(self) -> None:
        """Between two parts of a long measurement: end it where it is to leave, or time is up.

        Raises:
            Cut: One of both.
        """
        if leaving := self._leaving():
            raise Cut(*leaving)
        if self._done_s > self._time_s:
            raise Cut("deadline", f"its {self._time_s:g} s were over while an accuracy was measured")

    def finish(self) -> Finished:
        """Keep the last weights and tell it."""
        accuracy, file = self._kept(1.0)
        told = Finished(accuracy, file, self._done_s)
        self._tell(told)
        return told

    def _keep_what_is_due(self, share: float) -> None:
        due = [at for at in self._shares if at <= share + 1e-9]
        if due:
            # Steps may be longer than the way between two checkpoints: one file stands for those passed together.
            del self._shares[: len(due)]
            self._tell_checkpoint(due[-1])

    def _end_in_time(self, share: float) -> None:
        step_s = self._step_s
        left_s = self._time_s - self._done_s
        if left_s > 1.5 * self._keep_s + 2 * step_s:
            return
        if left_s > self._keep_s:
            self._tell_checkpoint(share)
        needed_s = self._done_s + step_s * self._n_done * (1 - share) / share + self._keep_s
        costs = f"all takes {needed_s:.1f} s, of which keeping and measuring weights {self._keep_s:.1f} s each time"
        raise Cut("deadline", f"{share:.0%} done when its {self._time_s:g} s were nearly over; {costs}")

    @property
    def _step_s(self) -> float:
        """Seconds a step takes, keeping apart."""
        stepping_s = self._done_s - self._begun_s - self._kept_s
        return stepping_s if self._n_done < 2 else (stepping_s - self._first_s) / (self._n_done - 1)

    def _tell_checkpoint(self, share: float) -> None:
        accuracy, file = self._kept(share)
        self._tell(Checkpoint(share, accuracy, file, self._done_s))

    def _kept(self, share: float) -> tuple[float, str]:
        before_s = self._done_s
        accuracy = self._measure()
        file = self._write(share, accuracy)
        took_s = self._done_s - before_s
        self._keep_s = max(self._keep_s, took_s) if self._kept_s else took_s
        self._kept_s += took_s
        return accuracy, file

    def _tell_progress(self, share: float, loss: float) -> None:
        done_s = self._done_s
        if done_s - self._told_s < TOLD_EVERY_S:
            return
        self._told_s = done_s
        step_s = max(self._step_s, 1e-9)
        left_s = step_s * self._n_done * (1 - share) / share + self._keep_s * (len(self._shares) + 1)
        self._tell(Progress(done_s, share, loss, 1 / step_s, left_s if self._n_done > 1 else None))


class TimedSteps:
    """Watches a training that is only timed: tells what each step took. No weights are kept or measured.

    Args:
        every_s: Seconds between two lines.
        tell: Takes them.
        since_s: The reading of ``now`` from which they count.
        leaving: As :class:`StepWatch` takes it.
        now: A clock in seconds that only rises. The first step begins at once.
    """

    def __init__(
        self,
        every_s: float,
        *,
        tell: Callable[[Told], None],
        since_s: float,
        leaving: Callable[[], tuple[str, str] | None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s, self._tell, self._since_s, self._leaving, self._now = every_s, tell, since_s, leaving, now
        self._begun_s = self._told_s = now()
        self._took_s: list[float] = []

    def step(self, loss: float, n_steps: int) -> None:
        """One more of ``n_steps`` is done.

        Raises:
            Cut: It is to leave.
        """
        del loss, n_steps
        now_s = self._now()
        self._took_s.append(now_s - self._begun_s)
        self._begun_s = now_s
        if now_s - self._told_s >= self._every_s:
            self._tell(Stepped(tuple(self._took_s), now_s - self._since_s))
            self._told_s, self._took_s = now_s, []
        if leaving := self._leaving():
            raise Cut(*leaving)
