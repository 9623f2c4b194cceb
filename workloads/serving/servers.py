"""What serves requests: servers, how fast they are, where requests wait for them, and how often answers are right."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter

from workloads.profiles.latency import LatencyCurve


class Dispatch(StrEnum):
    """Where requests wait."""

    PULL = "pull"
    """In one queue, from which idle servers take: :mod:`workloads.serving.pull`."""
    PUSH = "push"
    """At the server that would answer first, chosen at arrival: :mod:`workloads.serving.push`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A worker that answers one tenant's requests, in batches, from ``ready_s`` until ``end_s``.

    Attributes:
        tenant: The tenant of the requests that it answers.
        server_id: Unique among the tenant's servers; the same in every piece.
        ready_s: First moment at which it may begin a batch.
        end_s: From this moment on it begins no batch; ``inf`` where the end is not known yet.
        latency: Seconds by batch size.
        batch_limit: Most requests in one batch, ≥ 1.

    Raises:
        ValueError: A time is NaN, the limit is below 1, or a batch within it takes no time.
    """

    tenant: str
    server_id: str
    ready_s: float
    end_s: float
    latency: LatencyCurve
    batch_limit: int

    def __post_init__(self) -> None:
        if math.isnan(self.ready_s) or math.isnan(self.end_s):
            raise ValueError(f"server {self.server_id}: ready_s {self.ready_s}, end_s {self.end_s}: must be numbers")
        if self.batch_limit < 1:
            raise ValueError(f"server {self.server_id}: batch_limit {self.batch_limit}: must be at least 1")
        latency_table(self.latency, self.batch_limit)


@dataclass(frozen=True, slots=True)
class AccuracyTimeline:
    """A tenant's accuracy over time: ``accuracy[i]`` from ``from_s[i]`` on. The first also holds before its time.

    Attributes:
        from_s: Strictly ascending, at least one.
        accuracy: In [0, 1], as many.
    """

    from_s: tuple[float, ...]
    accuracy: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in pairwise(self.from_s))
        if not self.from_s or len(self.from_s) != len(self.accuracy) or not ascending:
            raise ValueError(f"an accuracy timeline needs ascending times and as many accuracies, got {self}")
        if not all(0 <= accuracy <= 1 for accuracy in self.accuracy):
            raise ValueError(f"accuracies must lie in [0, 1], got {self.accuracy}")

    @classmethod
    def of(cls, accuracies: Mapping[float, float]) -> AccuracyTimeline:
        """The timeline of these accuracies, by the moment from which on each holds, in any order."""
        moments_s = sorted(accuracies)
        return cls(tuple(moments_s), tuple(accuracies[at_s] for at_s in moments_s))

    def at(self, time_s: float) -> float:
        """The accuracy of a batch that begins at ``time_s``."""
        return self.accuracy[max(bisect_right(self.from_s, time_s) - 1, 0)]


def in_rank_order(servers: Sequence[Server], tenant: str) -> list[Server]:
    """The tenant's servers, by id: a server's place is its rank.

    Raises:
        ValueError: Two of them share an id.
    """
    ordered = sorted((one for one in servers if one.tenant == tenant), key=attrgetter("server_id"))
    ids = [one.server_id for one in ordered]
    if len(set(ids)) < len(ids):
        raise ValueError(f"server ids must differ within a tenant, got {ids}")
    return ordered


@lru_cache(maxsize=4096)
def latency_table(latency: LatencyCurve, batch_limit: int) -> tuple[float, ...]:
    """Seconds by batch size 0 … ``batch_limit`` (0 is never asked for)."""
    table = (0.0, *(latency.at(batch) for batch in range(1, batch_limit + 1)))
    if not all(0 < latency_s < math.inf for latency_s in table[1:]):
        raise ValueError(f"latencies up to batch {batch_limit} must be finite and above 0, got {table[1:]}")
    return table
