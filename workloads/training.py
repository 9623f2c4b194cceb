"""Ways to retrain a model, and what the part of a retraining that is done has gained.

A *gain* is a share of the way from the accuracy that the model had when the window began to the one that the whole
retraining brings: 0 is nothing learned, 1 all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from workloads.errors import WorkloadError

FULL = "full"
"""Name of the retraining that a tenant's samples and epochs are of."""

FOLDER = "folder"
"""The benchmark whose samples others write."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a part of a retraining gains.

    Attributes:
        exponent: Of the power of the part that is done, where no points are given: 1 is a straight line, ½ the square
            root, as accuracy rises fast at first and slowly in the end.
        points: Part done and gain, both in (0, 1) and rising; between them, and from (0, 0) and to (1, 1), a line.

    Raises:
        WorkloadError: The points do not rise, or lie outside.
    """

    exponent: float = 0.5
    points: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        last = (0.0, 0.0)
        for part, gain in self.points:
            if not (last[0] < part < 1 and last[1] <= gain <= 1):
                raise WorkloadError(
                    f"curve has the point ({part:g}, {gain:g}) after ({last[0]:g}, {last[1]:g}); parts that rise "
                    "from 0 to 1, both left out, and gains that do not fall, from 0 to 1, are needed"
                )
            last = part, gain

    def gain(self, part: float) -> float:
        """The gain of this part, ≥ 0, of the whole; 1 from the whole on."""
        if part >= 1:
            return 1.0
        if not self.points:
            return math.pow(part, self.exponent)
        low = (0.0, 0.0)
        for high in (*self.points, (1.0, 1.0)):
            if part <= high[0]:
                return low[1] + (high[1] - low[1]) * (part - low[0]) / (high[0] - low[0])
            low = high
        raise AssertionError("the last point is at 1")


CURVES: Mapping[str, Curve] = MappingProxyType({"linear": Curve(1.0), "square-root": Curve(0.5)})
"""Curves by name. Source: assumptions, to be swept; learning curves with diminishing returns lie between."""


@dataclass(frozen=True)
class TrainingOption:
    """One way to retrain.

    Attributes:
        name: Unique among the tenant's.
        time_s: Seconds of training by profile name, start-up apart.
        gain: Of the whole option, in [0, 1]; 1 for ``full``.
    """

    name: str
    time_s: Mapping[str, float]
    gain: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_s", MappingProxyType(dict(self.time_s)))


def reached(before: float, after: float, gain: float) -> float:
    """The accuracy at this gain on the way from ``before`` to ``after``; exactly ``after`` at 1."""
    return after if gain == 1 else before + gain * (after - before)
