"""From a few measured points to what each way to retrain would reach, and what the last windows say about that.

The curve is Optimus' (Peng et al., EuroSys 2018, §3.1): the error after x is 1 / (β₀·x + β₁) + β₂ with all β ≥ 0, by
non-negative least squares. Where new classes are learned nothing is right at first, and then much at once: so here x
may begin to count late, after a lag. Ekya (Bhardwaj et al., NSDI 2022, §4.3) fits the curve to accuracies of a small
subset in a few epochs and reads it further out, and the MIGRator paper follows it (§4.1.4). Here x counts *sample
passes*, samples times epochs, so that one curve tells options apart that differ in both. Free of torch; scipy is
imported when fitting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from workloads.errors import LearningError
from workloads.learning.course import Option

N_FLOORS = 21
"""How many values of β₂ are tried; for a given one the other two follow from a linear problem."""

N_ROUNDS = 8
"""How often the rows of the linear problem are weighted anew."""

MEMORY_WINDOWS = 4
"""A correction is a mean over about so many windows, and one more in which nothing was wrong: older ones fade."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: accuracy in [0, 1] after ``passes`` > 0 sample passes, which took ``train_s`` ≥ 0 seconds."""

    passes: int
    accuracy: float
    train_s: float


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """Error after x sample passes: 1 / (``rise`` · max(x − ``lag``, 0) + ``start``) + ``floor``.

    Seconds: ``base_s`` + ``pass_s`` · x.

    Attributes:
        lag: Sample passes that bring nothing yet, ≥ 0.
        rise: β₀ ≥ 0.
        start: β₁ ≥ 0.
        floor: β₂ in [0, 1].
        base_s: Seconds that any training takes, ≥ 0.
        pass_s: Seconds a sample pass, ≥ 0.
        residual: Mean absolute difference of accuracies between the curve and its points.
    """

    lag: float
    rise: float
    start: float
    floor: float
    base_s: float
    pass_s: float
    residual: float

    def accuracy(self, passes: float) -> float:
        """The accuracy after so many sample passes, in [0, 1]; it never falls with them."""
        return _accuracy(self.lag, self.rise, self.start, self.floor, passes)

    def seconds(self, passes: float) -> float:
        """How long they take where the points were measured."""
        return self.base_s + self.pass_s * passes


def fitted(points: Sequence[Point]) -> ErrorCurve:
    """The curve through these points with the least squared difference of accuracies, to first order.

    For each lag, 0 or a number of passes that were measured, and each of :data:`N_FLOORS` values of β₂ below the least
    error e, the rest is linear: 1 / (e − β₂) = β₀·x + β₁. A difference of the left side, times (e − β₂) · (ê − β₂) with
    ê the curve's own error, is exactly one of e. So rows are weighted with that, ê from the round before, and the best
    round counts; of equal ones that with the shortest lag.

    Raises:
        LearningError: There are fewer than two different numbers of passes, or a figure is none.
    """
    _check(points)
    passes = np.array([point.passes for point in points], float)
    errors = np.clip([1.0 - point.accuracy for point in points], 1e-3, 1.0)
    scale = float(passes.max())
    best: tuple[float, tuple[float, float, float, float]] = (math.inf, (0.0, 0.0, 1.0, 0.0))
    for lag in [0.0, *np.unique(passes)[:-1]]:
        beyond = np.maximum(passes - lag, 0.0) / scale
        for floor in np.linspace(0.0, errors.min() - 5e-4, N_FLOORS):
            above = errors - floor
            weights = np.ones_like(above)
            for _ in range(N_ROUNDS):
                rise, start = _least_squares(beyond, weights, 1.0 / above)
                curve = 1.0 / np.maximum(rise * beyond + start, 1.0)  # no error is above 1
                misfit = float(np.sum((curve - above) ** 2))
                if misfit < best[0] - 1e-12:
                    best = (misfit, (float(lag), rise / scale, start, float(floor)))
                weights = above * curve
    seconds = np.array([point.train_s for point in points])
    pass_s, base_s = _least_squares(passes / scale, np.ones_like(passes), seconds)
    residual = float(np.mean([abs(_accuracy(*best[1], point.passes) - point.accuracy) for point in points]))
    return ErrorCurve(*best[1], base_s, pass_s / scale, residual)


@dataclass(frozen=True, slots=True)
class Correction:
    """What past windows say about estimates of one tenant: a number to add, small enough to store with it.

    Attributes:
        bias: Mean of truth − raw estimate, fading over :data:`MEMORY_WINDOWS`.
        error: Mean absolute difference between the truth and what was estimated with the correction of its time.
        n_windows: Windows that it is fitted to.
    """

    bias: float = 0.0
    error: float = 0.0
    n_windows: int = 0

    def corrected(self, accuracy: float) -> float:
        """The estimate with what was learned, in [0, 1]."""
        return min(1.0, max(0.0, accuracy + self.bias))

    def learned(self, outcomes: Sequence[tuple[float, float]]) -> Correction:
        """After one more window whose ``(raw estimate, truth)`` of checkpoints and the end are these.

        Raises:
            LearningError: There is none, or one is not from 0 to 1.
        """
        if not outcomes or any(not 0 <= value <= 1 for outcome in outcomes for value in outcome):
            raise LearningError(f"outcomes are {list(outcomes)}; pairs of numbers from 0 to 1 are needed")
        bias = float(np.mean([truth - raw for raw, truth in outcomes]))
        error = float(np.mean([abs(truth - self.corrected(raw)) for raw, truth in outcomes]))
        weight = 1 / (min(self.n_windows, MEMORY_WINDOWS) + 2)
        return Correction(
            self.bias + weight * (bias - self.bias), self.error + weight * (error - self.error), self.n_windows + 1
        )


@dataclass(frozen=True)
class Estimate:
    """What one option would reach.

    Attributes:
        option: The option.
        raw: Accuracy at the end, before correction: what :meth:`Correction.learned` takes back.
        accuracy: Accuracy at the end.
        checkpoints: ``(share of the steps, accuracy)``, rising shares inside (0, 1), accuracies that never fall.
        time_s: Seconds of training by profile, start-up apart.
    """

    option: Option
    raw: float
    accuracy: float
    checkpoints: tuple[tuple[float, float], ...]
    time_s: Mapping[str, float]


def estimates(
    curve: ErrorCurve,
    options: Sequence[Option],
    *,
    n_all: int,
    slowdown: Mapping[str, float],
    correction: Correction | None = None,
) -> list[Estimate]:
    """What each option would reach on each profile.

    Args:
        curve: Fitted to points of the same strategy and batch.
        options: Ways to retrain; their order is kept.
        n_all: Samples of the experience, for options that take all.
        slowdown: By profile, how often longer a step takes there than where the points were measured, > 0.
        correction: What past windows say.

    Raises:
        LearningError: ``n_all`` is below 1, or a slowdown is no number > 0.
    """
    if n_all < 1 or any(not (math.isfinite(times) and times > 0) for times in slowdown.values()):
        raise LearningError(f"n_all is {n_all}, slowdown {dict(slowdown)}; a number ≥ 1 and numbers > 0 are needed")
    known = Correction() if correction is None else correction

    def one(option: Option) -> Estimate:
        passes = min(n_all, option.n_samples or n_all) * option.n_epochs
        raw = curve.accuracy(passes)
        kept = tuple((share, known.corrected(curve.accuracy(share * passes))) for share in option.checkpoints)
        times = {profile: times * curve.seconds(passes) for profile, times in slowdown.items()}
        return Estimate(option, raw, known.corrected(raw), kept, MappingProxyType(times))

    return [one(option) for option in options]


def _accuracy(lag: float, rise: float, start: float, floor: float, passes: float) -> float:
    below = rise * max(passes - lag, 0.0) + start
    return min(1.0, max(0.0, 1.0 - floor - (1.0 / below if below > 0 else math.inf)))


def _least_squares(x: np.ndarray, weights: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """``(slope, offset)`` ≥ 0 with the least sum of (weight · (slope·x + offset − y))²."""
    from scipy.optimize import nnls  # noqa: PLC0415 (of the extra `live`)

    (slope, offset), _ = nnls(np.column_stack([x, np.ones_like(x)]) * weights[:, None], y * weights)
    return float(slope), float(offset)


def _check(points: Sequence[Point]) -> None:
    if len({point.passes for point in points}) < 2:
        raise LearningError(
            f"{len(points)} points of a learning curve; two with different numbers of passes are needed"
        )
    for point in points:
        if not (point.passes > 0 and 0 <= point.accuracy <= 1 and math.isfinite(point.train_s) and point.train_s >= 0):
            raise LearningError(f"{point}: passes > 0, an accuracy from 0 to 1 and seconds ≥ 0 are needed")
