"""What arrives: the seam between a run and where its requests come from.

A run is handed a :class:`Traffic`. It asks for rates *before* now, so that it cannot know what comes. What needs the
future, such as a clairvoyant policy, needs a :class:`Hindsight`, which only recorded traffic can give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.arrays import FloatArray, IntArray
from workloads.serving.requests import Requests, requests_of
from workloads.tenants import Tenant
from workloads.traffic.scaling import Arrivals, Recorded, Scale

_EPS_S = 1e-9

CLIENTS = "clients"
"""The source of live arrivals begins so."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tenant's requests come from, for the log's first record.

    Attributes:
        source: The trace's name.
        scale: How it was scaled.
        load: Mean arrivals over the highest capability of any layout given to the tenant alone.
        dispersion_before: Variance/mean of the trace's per-second counts.
        dispersion_after: The same of the requests.
        n_requests: Of the run.
        n_seconds: The run's length.
        recorded: What the trace holds; ``None`` where there is none.
        notes: What was taken for granted or made up when the trace was read, and what else a reader should know.
    """

    source: str
    scale: Scale
    load: float
    dispersion_before: float
    dispersion_after: float
    n_requests: int = 0
    n_seconds: int = 0
    recorded: Recorded | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """What of the past nobody has counted.

    Attributes:
        unknown_s: Seconds without a front door, or whose counts are damaged, of one tenant or more.
        expected_s: Seconds before the run, of which only the config says something.
        known_s: Where no second from this one on was known yet, though some may have been stored since.
    """

    unknown_s: int = 0
    expected_s: int = 0
    known_s: int | None = None


class Traffic(Protocol):
    """All tenants' arrivals, up to now."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where each tenant's requests come from."""

    @property
    def hindsight(self) -> Hindsight | None:
        """The arrivals to come, where they are recorded; ``None`` with live traffic."""

    def rates_before(self, now_s: float, step_s: float, n_steps: int | None = None) -> FloatArray:
        """Requests a second in the last ``n_steps`` steps before ``now_s``, oldest first, ``(n_steps, n_tenants)``.

        ``None`` asks for all seconds that are known, those before the run included. The last step ends with the last
        full second.
        """

    def filled_before(self, now_s: float, n_seconds: int) -> Filled:
        """What of the last seconds before ``now_s`` was not counted, and is as it was taken to be."""

    def sums(self, first_s: int, end_s: int) -> Mapping[str, str]:
        """By tenant, a checksum of these seconds in the run's store of arrivals; empty where it has none."""


def whole_seconds(seconds: float, step_s: float) -> int:
    """The most steps that fit into these seconds and last full seconds together."""
    n_steps = math.floor((math.floor(seconds + _EPS_S) + _EPS_S) / step_s)
    while n_steps > 0 and abs(n_steps * step_s - round(n_steps * step_s)) > _EPS_S:
        n_steps -= 1
    return n_steps


@dataclass(frozen=True, eq=False)
class Hindsight:
    """Every tenant's arrivals as they will be: counts of all seconds, times only of the seconds asked for."""

    arrivals: tuple[Arrivals, ...]

    @property
    def arrival_s(self) -> tuple[FloatArray, ...]:
        """All times of the run, drawn at once, by tenant."""
        return tuple(own.times_s for own in self.arrivals)

    def rates_rps(self, start_s: float, step_s: float, n_steps: int) -> FloatArray:
        """Requests a second in the steps from ``start_s`` on, by each request's own time, ``(n_steps, n_tenants)``."""
        edges_s: FloatArray = start_s + step_s * np.arange(n_steps + 1, dtype=np.float64)
        before = np.stack([_n_before(own, edges_s) for own in self.arrivals], axis=1)
        rates_rps: FloatArray = np.diff(before, axis=0) / step_s
        return rates_rps


def _n_before(arrivals: Arrivals, edges_s: FloatArray) -> IntArray:
    """Requests of the run before each of these moments, ascending."""
    first_s = min(max(math.floor(edges_s[0]), 0), arrivals.counts.size)
    n_before = int(arrivals.counts[:first_s].sum())
    if np.array_equal(edges_s, np.floor(edges_s)):  # no time inside a second matters
        so_far = np.concatenate([[0], np.cumsum(arrivals.counts)])
        whole: IntArray = so_far[np.clip(edges_s, 0, arrivals.counts.size).astype(np.int64)]
        return whole
    times_s = arrivals.times_between(first_s, math.ceil(edges_s[-1]))
    return n_before + np.searchsorted(times_s, edges_s)


class RecordedTraffic:
    """Requests drawn from traces, each with its luck, whenever they are asked for, and each time the same.

    Attributes:
        origins: Where each tenant's requests come from.
    """

    def __init__(
        self, tenants: Sequence[Tenant], arrivals: Sequence[Arrivals], loads: Sequence[float], seed: int
    ) -> None:
        self._slos_s = {tenant.name: tenant.slo_s for tenant in tenants}
        self._seed, self._arrivals = seed, tuple(arrivals)
        self._counts = tuple(np.concatenate([own.history_counts, own.counts]) for own in arrivals)
        self._history_s = tuple(own.history_counts.size for own in arrivals)
        self.origins = tuple(
            Origin(
                own.source,
                own.scale,
                load,
                own.dispersion_before,
                own.dispersion_after,
                int(own.counts.sum()),
                own.counts.size,
                own.recorded,
                own.notes,
            )
            for own, load in zip(arrivals, loads, strict=True)
        )

    @property
    def hindsight(self) -> Hindsight:
        """All arrivals."""
        return Hindsight(self._arrivals)

    def rates_before(self, now_s: float, step_s: float, n_steps: int | None = None) -> FloatArray:
        """As :meth:`Traffic.rates_before`, from the per-second counts."""
        end_s = math.floor(now_s + _EPS_S)
        if n_steps is None:
            n_steps = math.floor((min(self._history_s) + end_s) / step_s + _EPS_S)
        edges_s = end_s + step_s * np.arange(-n_steps, 1, dtype=np.float64)
        columns = [_mean_rps(counts, n, edges_s) for counts, n in zip(self._counts, self._history_s, strict=True)]
        return np.stack(columns, axis=1)

    def filled_before(self, now_s: float, n_seconds: int) -> Filled:  # noqa: ARG002 - as the protocol's
        """As :meth:`Traffic.filled_before`: the trace knows every second."""
        return Filled()

    def sums(self, first_s: int, end_s: int) -> Mapping[str, str]:  # noqa: ARG002 - as the protocol's
        """As :meth:`Traffic.sums`: the trace itself can be read again."""
        return {}

    def requests(self, first_s: int, end_s: int) -> tuple[Requests, ...]:
        """Every tenant's requests of the run's seconds from ``first_s`` up to ``end_s``."""
        found = []
        for (name, slo_s), own in zip(self._slos_s.items(), self._arrivals, strict=True):
            n_before = int(own.counts[:first_s].sum())
            found.append(requests_of(name, slo_s, own.times_between(first_s, end_s), self._seed, n_before))
        return tuple(found)

    def is_over(self, second: int) -> bool:
        """Whether the run has no requests from this second on."""
        return all(second >= own.counts.size for own in self._arrivals)

    def rate_in(self, second: int) -> FloatArray:
        """Requests of one second of the run, the last one's after its end, ``(n_tenants,)``.

        This is the load on a simulated GPU. Policies must not see it: the second may not be over.
        """
        places = [min(n + second, len(counts) - 1) for counts, n in zip(self._counts, self._history_s, strict=True)]
        return np.array([counts[place] for counts, place in zip(self._counts, places, strict=True)], dtype=np.float64)


def _mean_rps(counts: NDArray[np.int64], n_history: int, edges_s: FloatArray) -> FloatArray:
    """Requests a second between consecutive edges, ``(n_edges − 1,)``; ``counts[n_history]`` is second 0."""
    seconds = np.arange(counts.size + 1) - n_history
    arrived = np.interp(edges_s, seconds, np.concatenate([[0.0], np.cumsum(counts)]))
    rates_rps: FloatArray = np.diff(arrived) / np.diff(edges_s)
    return rates_rps
