"""What a training costs that was never run beside a model: guessed from its modules, where that beats the mean.

Source: Mudi (EuroSys '25), §4.1.2, which learns slopes and cut-off points of each service by random forests and others.
Here it is the factor of :mod:`workloads.profiles.share_table`. Ways are judged by leaving one known training out after
the other; a way is used only where its mean error is below that of the mean of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workloads.arrays import FloatArray

MEAN = "mean"

Way = Callable[[FloatArray, FloatArray, FloatArray], float]
"""From features of the known trainings ``(n, n_kinds)``, their factors ``(n,)`` and one's features, to its factor."""


@dataclass(frozen=True)
class Guess:
    """The factor of a training that was not measured.

    Attributes:
        factor: Latency beside it over that alone, ≥ 1.
        way: Which way was used.
        errors: By way, the mean relative error with each known training left out; empty below three of them.
    """

    factor: float
    way: str
    errors: Mapping[str, float]

    @property
    def told(self) -> str:
        """How it was made, in words."""
        if not self.errors:
            return "mean of the measured trainings"
        errors = ", ".join(f"{name} {100 * error:.1f} %" for name, error in self.errors.items())
        made = "mean of the measured trainings" if self.way == MEAN else f"{self.way} on counts of modules"
        return f"{made}; errors with one left out: {errors}"


def guessed(counts: Mapping[str, Sequence[int]], factors: Mapping[str, float], unseen: Sequence[int]) -> Guess:
    """The factor of a training with these counts of modules; ``counts`` and ``factors`` are by known training.

    A random forest is tried where scikit-learn is installed.
    """
    names = sorted(factors)
    known = np.log1p(np.array([counts[name] for name in names], dtype=np.float64))
    true = np.array([factors[name] for name in names])
    ways: dict[str, Way] = {MEAN: _mean, "ridge": _ridge}
    if (forest := _forest()) is not None:
        ways["random forest"] = forest
    errors: dict[str, float] = {}
    for way, guess in ways.items() if len(names) >= 3 else ():
        left_out = [np.arange(len(names)) != place for place in range(len(names))]
        found = [guess(known[rest], true[rest], known[place]) for place, rest in enumerate(left_out)]
        errors[way] = float(np.mean(np.abs(np.array(found) / true - 1)))
    best = min(errors, key=errors.__getitem__, default=MEAN)  # the mean is the first, and stays where it is as good
    return Guess(max(1.0, ways[best](known, true, np.log1p(np.array(unseen, dtype=np.float64)))), best, errors)


def _mean(_known: FloatArray, true: FloatArray, _one: FloatArray) -> float:
    return float(true.mean())


def _ridge(known: FloatArray, true: FloatArray, one: FloatArray, strength: float = 1.0) -> float:
    """Around the mean, on features of equal spread; by the dual, as there are more kinds than trainings."""
    spread = known.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    features, own = (known - known.mean(axis=0)) / scale, (one - known.mean(axis=0)) / scale
    kernel = features @ features.T + strength * len(true) * np.eye(len(true))
    return float(true.mean() + own @ features.T @ np.linalg.solve(kernel, true - true.mean()))


def _forest() -> Way | None:
    try:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - of the extra `live`
    except ImportError:
        return None

    def guess(known: FloatArray, true: FloatArray, one: FloatArray) -> float:
        forest = RandomForestRegressor(n_estimators=50, random_state=0).fit(known, true)
        return float(forest.predict(one[None])[0])

    return guess
