"""Arrivals from clients: what the front door has counted, as the traffic of a run.

A second is known once it is closed, a second after its end, and does not change then: it goes into the run's
:class:`~migrator.inputs.arrival_store.ArrivalStore`. Of the last :data:`LAG_S` before now none is taken for known; all
that were counted before them are, and are waited for, so that a forecast can be made again from what was stored. The
newest ones are taken to be as the mean of the last :data:`LIKE_S`.

A second without a door is *unknown*. It is taken to be as the same second a day before, where that was counted; else as
the mean of what was counted on both sides. Before the run lies the config's past: a trace, or one rate all along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy

import numpy as np

from migrator.inputs.arrival_store import DAY_S, UNKNOWN, ArrivalStore
from migrator.inputs.traffic import Filled, Origin
from workloads.arrays import BoolArray, FloatArray, IntArray

LIKE_S = 5
"""Seconds whose mean stands for others: the newest ones, which are not known yet, and unknown ones beside them."""

LAG_S = 2
"""So many seconds before now are not known yet: the next one is already closed, but not yet reported."""

_EPS_S = 1e-9


class LiveTraffic:
    """As :class:`migrator.inputs.traffic.Traffic`; nobody knows what comes.

    Attributes:
        origins: What each tenant's past is.
        hindsight: None.
        closed_s: The seconds before this one do not change any more.
    """

    hindsight = None

    def __init__(self, tenants: Sequence[str], origins: Sequence[Origin], past: Sequence[IntArray]) -> None:
        """``past`` are requests by second before the run, by tenant and of one length, ``(n_seconds,)`` each."""
        self.origins = tuple(origins)
        self._past = np.stack(past, axis=1).astype(np.float64)
        self._places = {name: place for place, name in enumerate(tenants)}
        self._open: dict[int, IntArray] = {}
        self._store: ArrivalStore | None = None
        self._wait: Callable[[int], object] = lambda _: None
        self.closed_s = 0
        self._door_s = math.inf
        self._known_s = 2**63 - 1

    def change_tenants(self, other: LiveTraffic, store: ArrivalStore) -> None:
        """From now on these are the tenants of another, whose past they have; ``store`` is theirs.

        Who comes has for its past what its config says, up to the last second that is closed; it is stored, unless
        something of that is there: then it was here before.

        Raises:
            OSError: It cannot be stored.
        """
        names, n_past = list(other._places), len(other._past)
        kept = [self._places.get(name) for name in names]
        for place, name in enumerate(names):
            alone = store.of(name)
            if kept[place] is None and (alone.read(self.closed_s - n_past, self.closed_s) == UNKNOWN).all():
                alone.write(self.closed_s - n_past, other._past[:, [place]].astype(np.int64))
        none = np.zeros(len(self._places) + 1, np.int64)
        order = [len(self._places) if place is None else place for place in kept]
        self._open = {second: np.append(own, none[-1:])[order] for second, own in self._open.items()}
        past = np.hstack([self._past, np.zeros((len(self._past), 1))])[:, order]
        for place, name in enumerate(names):
            if name not in self._places:
                past[:, place] = other._past[:, place]
        self._past, self.origins = past, other.origins
        self._places = {name: place for place, name in enumerate(names)}
        if self._store is not None:
            self._store = store

    # --- what is heard

    def keep_in(self, store: ArrivalStore, wait: Callable[[int], object] = lambda _: None) -> None:
        """What was stored is known; what is closed from now on is stored, once there is a door.

        ``wait`` waits until the seconds before one are closed.
        """
        self._store, self._wait = store, wait

    def has_door(self, from_s: int) -> None:
        """Clients can ask from this second on. What was stored stays: no second is counted twice.

        The past before the run is stored with the first second: a history file may change, or go.

        Raises:
            OSError: It cannot be stored.
        """
        assert self._store is not None
        if self._door_s == math.inf:
            self._door_s = max(from_s, self._store.end_s)
            if (self._store.read(-len(self._past), 0) == UNKNOWN).any():
                self._store.write(-len(self._past), self._past.astype(np.int64))

    def take(self, tenant: str, second: int, offered: int) -> None:
        """The newest word on a second that is not closed; on others there is nothing new."""
        if second >= self.closed_s and tenant in self._places:
            own = self._open.setdefault(second, np.zeros(len(self._places), np.int64))
            own[self._places[tenant]] = offered

    def close(self, before_s: int) -> None:
        """The seconds before this one do not change any more.

        Raises:
            OSError: They cannot be stored.
        """
        first_s = max(self.closed_s, self._door_s)
        if self._store is not None and first_s < before_s:
            none = np.zeros(len(self._places), np.int64)
            seconds = range(int(first_s), before_s)
            self._store.write(seconds[0], np.stack([self._open.get(second, none) for second in seconds]))
        self.closed_s = max(self.closed_s, before_s)
        self._open = {second: own for second, own in self._open.items() if second >= self.closed_s}

    # --- what is asked

    def up_to(self, known_s: int) -> LiveTraffic:
        """The traffic as if no second from this one on had been counted."""
        own = copy(self)
        own._known_s = known_s
        return own

    def sums(self, first_s: int, end_s: int) -> dict[str, str]:
        """As :meth:`migrator.inputs.traffic.Traffic.sums`; they are on the disk then."""
        if self._store is None:
            return {}
        self._waited(end_s + LAG_S)
        self._store.sync(first_s, end_s)
        return self._store.sums(first_s, end_s)

    def rates_before(self, now_s: float, step_s: float, n_steps: int | None = None) -> FloatArray:
        """As :meth:`migrator.inputs.traffic.Traffic.rates_before`."""
        end_s = math.floor(now_s + _EPS_S)
        n_seconds = len(self._past) + end_s if n_steps is None else math.ceil(n_steps * step_s)
        counts = self._counts(end_s, n_seconds)
        so_far = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
        steps = math.floor(len(counts) / step_s + _EPS_S) if n_steps is None else n_steps
        edges_s = len(counts) + step_s * np.arange(-steps, 1, dtype=np.float64)
        seconds = np.arange(len(so_far))
        arrived = np.stack([np.interp(edges_s, seconds, column) for column in so_far.T], axis=1)
        rates_rps: FloatArray = np.diff(arrived, axis=0) / step_s
        return rates_rps

    def filled_before(self, now_s: float, n_seconds: int) -> Filled:
        """As :meth:`migrator.inputs.traffic.Traffic.filled_before`."""
        end_s = math.floor(now_s + _EPS_S)
        first_s, known_s = end_s - n_seconds, self._waited(end_s)
        unknown = np.isnan(self._found(max(0, first_s), known_s)).any(axis=1)
        return Filled(
            unknown_s=int(unknown.sum()),
            expected_s=min(n_seconds, max(0, -first_s)),
            known_s=self._stored_s if known_s > 0 and self._door_s == math.inf else None,
        )

    # --- inside

    @property
    def _stored_s(self) -> int:
        return 0 if self._store is None else self._store.end_s

    def _waited(self, end_s: int) -> int:
        """The end of the seconds before ``end_s`` that are known if they were counted: they are closed now."""
        known_s = end_s - LAG_S
        if self._door_s < known_s > self.closed_s:
            self._wait(known_s)
        return known_s

    def _found(self, first_s: int, end_s: int) -> FloatArray:
        """What was offered in these seconds, ``(n_seconds, n_tenants)``: nan where that is unknown."""
        counts = np.full((max(0, end_s - first_s), len(self._places)), np.nan)
        before = np.arange(first_s, min(0, end_s))
        counts[: len(before)] = self._past[np.maximum(0, len(self._past) + before)]
        if self._store is not None and end_s > max(0, first_s):
            stored = self._store.read(max(0, first_s), end_s)
            is_unknown = stored == UNKNOWN
            is_unknown[max(0, min(self._known_s, end_s) - max(0, first_s)) :] = True
            counts[len(before) :] = np.where(is_unknown, np.nan, stored)
        return counts

    def _counts(self, end_s: int, n_seconds: int) -> FloatArray:
        """Requests of the last seconds before ``end_s``, ``(n_seconds, n_tenants)``; what is not known is filled."""
        first_s, known_s = end_s - n_seconds - LIKE_S, self._waited(end_s)
        counts = self._found(first_s, max(known_s, min(0, end_s)))
        n_known, unknown = len(counts), np.isnan(counts)
        if unknown.any():
            day_before = self._found(first_s - DAY_S, first_s - DAY_S + n_known)
            day_before[: max(0, DAY_S - first_s)] = np.nan  # before the run nothing was counted
            for place in range(counts.shape[1]):
                for begin, end in _runs(unknown[:, place]):
                    sides = self._beside(counts[:, place], unknown[:, place], begin, end, first_s, place)
                    own = day_before[begin:end, place]
                    counts[begin:end, place] = np.where(np.isnan(own), sides, own)
        newest = np.tile(counts[-LIKE_S:].mean(axis=0), (end_s - first_s - n_known, 1))
        return np.concatenate([counts, newest])[LIKE_S:]

    def _beside(self, counts: FloatArray, unknown: BoolArray, begin: int, end: int, first_s: int, place: int) -> float:
        """The mean of what was counted on both sides of a run of unknown seconds, or on the one side where it was."""
        before = counts[:begin][~unknown[:begin]][-LIKE_S:]
        if not before.size:
            before = self._last_before(first_s, place)
        after = counts[end:][~unknown[end:]][:LIKE_S]
        return float(np.mean([before.mean(), *([after.mean()] if after.size else [])]))

    def _last_before(self, second: int, place: int) -> FloatArray:
        """What was counted last before a second, or the config's past."""
        while second > 0:
            found = self._found(max(0, second - DAY_S), second)[:, place]
            if (known := found[~np.isnan(found)]).size:
                return known[-LIKE_S:]
            second -= DAY_S
        last: FloatArray = self._past[-LIKE_S:, place]
        return last


def _runs(flags: BoolArray) -> Iterator[tuple[int, int]]:
    """First and end of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
