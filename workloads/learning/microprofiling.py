"""Measures the first stretch of a learning curve: a small subset, a few epochs, on a copy of the served model.

What is not trained on is a part of the *training* sets held out for this: the test set stays unseen until a real
retraining is judged by it. :mod:`workloads.learning.curve` reads the curve further out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from workloads.learning.course import Option
from workloads.learning.curve import Point
from workloads.learning.experiences import Benchmark, Samples, held_out
from workloads.learning.models import Classifier
from workloads.learning.retraining import fit_of
from workloads.learning.watch import Cut

SHARES = (0.1, 0.25)
"""Of the training set: how much the subsets hold."""

LEAST_SAMPLES = 128
"""A subset holds no less, as far as there is as much: a handful of steps shows no curve."""

N_EPOCHS = 6
"""Epochs on each subset; a point is measured after each."""

HELD_OUT = 0.2
"""Share of the training set, and of the memory, that the points are measured with."""


def measured(
    classifier: Classifier,
    benchmark: Benchmark,
    number: int,
    option: Option,
    *,
    seed: int,
    budget_s: float,
    shares: Sequence[float] = SHARES,
    now: Callable[[], float] = time.monotonic,
) -> list[Point]:
    """Points of the learning curve of experience ``number``; the classifier itself is left as it is.

    Args:
        classifier: The served model.
        benchmark: Whose training sets are used.
        number: Of the experience that is to be learned.
        option: Strategy, batch, learning rate and memory; its samples and epochs are not used.
        seed: The same seed gives the same accuracies on a CPU.
        budget_s: Seconds after which no further step is made. What is measured until then is returned, maybe nothing.
        shares: Of the training set, one subset each.
        now: A clock in seconds.
    """
    rng = np.random.default_rng((seed, number, 4))
    train, new_judge = held_out(benchmark.train(number, None, seed), HELD_OUT, rng)
    memory, judges = benchmark.memory(number, option.memory, seed), [(1.0, new_judge)]
    if benchmark.asked == "seen" and len(memory):
        memory, old_judge = held_out(memory, HELD_OUT, rng)
        judges = [(1 / (number + 1), new_judge), (number / (number + 1), old_judge)]
    end_s = now() + budget_s
    points: list[Point] = []
    for size in sorted({min(len(train), max(LEAST_SAMPLES, round(share * len(train)))) for share in shares}):
        copied, subset = classifier.copied(), train.drawn(size, rng)
        epochs = _Epochs(copied, judges, size, -(-size // option.batch), end_s, now)
        try:
            fit_of(option)(copied, subset, memory, replace(option, n_epochs=N_EPOCHS), seed=seed, steps=epochs)
        except Cut:
            return points + epochs.points
        points += epochs.points
    return points


class _Epochs:
    """Measures after each epoch, and ends the training when its time is up."""

    def __init__(
        self,
        classifier: Classifier,
        judges: list[tuple[float, Samples]],
        size: int,
        n_steps: int,
        end_s: float,
        now: Callable[[], float],
    ) -> None:
        self.points: list[Point] = []
        self._classifier = classifier
        self._judges = judges
        self._size = size
        self._n_steps = n_steps
        self._end_s = end_s
        self._now = now
        self._n_done = 0
        self._trained_s = 0.0
        self._since_s = now()

    def step(self, loss: float, n_steps: int) -> None:
        del loss, n_steps
        self._n_done += 1
        if self._now() >= self._end_s:
            raise Cut("deadline", "the time of micro-profiling is up")
        epoch, more = divmod(self._n_done, self._n_steps)
        if more:
            return
        self._trained_s += self._now() - self._since_s
        accuracy = sum(weight * self._classifier.accuracy(s.inputs, s.labels) for weight, s in self._judges)
        self.points.append(Point(self._size * epoch, min(1.0, accuracy), self._trained_s))
        self._since_s = self._now()
