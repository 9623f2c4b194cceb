"""How long a worker takes for a batch: measured points, and straight lines between them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class LatencyCurve:
    """Seconds for one batch by batch size, for one worker on one profile with its neighbours running.

    Attributes:
        batches: Measured batch sizes, ascending, at least one.
        latency_s: Seconds for each, > 0.
    """

    batches: tuple[int, ...]
    latency_s: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in pairwise(self.batches))
        if not self.batches or len(self.batches) != len(self.latency_s) or not ascending:
            raise ValueError(f"a latency curve needs ascending batches and as many latencies, got {self}")

    def stretched(self, factor: float) -> LatencyCurve:
        """The curve of a worker that takes ``factor`` > 0 times as long."""
        return LatencyCurve(self.batches, tuple(seconds * factor for seconds in self.latency_s))

    def of_processes(self, processes: int, batch_limit: int) -> LatencyCurve:
        """The curve of that many workers that share a turn of up to ``processes * batch_limit`` requests equally.

        Each takes one of ⌈requests / processes⌉; the turn ends with the last. It is exact up to that many requests.
        """
        points: dict[int, float] = {}
        for part in range(1, batch_limit + 1):
            points[(part - 1) * processes + 1] = points[part * processes] = self.at(part)
        return LatencyCurve(tuple(points), tuple(points.values()))

    def at(self, batch: int) -> float:
        """Seconds for ``batch`` requests: linear between measured batches.

        Below the smallest measured batch its latency holds; above the largest, the last two
        points' line goes on (or the throughput of the only one).
        """
        index = bisect_left(self.batches, batch)
        if index < len(self.batches) and self.batches[index] == batch:
            return self.latency_s[index]
        if index == 0:
            return self.latency_s[0]
        if len(self.batches) == 1:
            return self.latency_s[0] * batch / self.batches[0]
        index = min(index, len(self.batches) - 1)
        low, high = self.batches[index - 1], self.batches[index]
        low_s, high_s = self.latency_s[index - 1], self.latency_s[index]
        return low_s + (high_s - low_s) * (batch - low) / (high - low)
