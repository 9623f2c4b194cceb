"""Arrivals from clients: what the front door has counted, as the traffic of a run.

A second is known once it is closed, a second after its end, and does not change then. Of the last :data:`LAG_S` before
now none is taken for known, so that a forecast can be made again from the log. They are taken to be as the mean of the
last :data:`LIKE_S` that are, and so is what was not counted. Before the run lies the config's past: a trace, or one
rate all along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from migrator.inputs.traffic import Origin
from workloads.arrays import FloatArray, IntArray

LIKE_S = 5
"""Seconds whose mean stands for the newest ones, which are not known yet."""

LAG_S = 2
"""So many seconds before now are not known yet: the next one is closed by now, but that may not have been told."""

_EPS_S = 1e-9


class LiveTraffic:
    """As :class:`migrator.inputs.traffic.Traffic`; nobody knows what comes.

    Attributes:
        origins: What each tenant's past is.
        hindsight: None.
    """

    hindsight = None

    def __init__(self, tenants: Sequence[str], origins: Sequence[Origin], past: Sequence[IntArray]) -> None:
        """``past`` are requests by second before the run, by tenant and of one length, ``(n_seconds,)`` each."""
        self.origins = tuple(origins)
        self._past = np.stack(past, axis=1)
        self._open: dict[int, dict[str, int]] = {}
        self._places = {name: place for place, name in enumerate(tenants)}
        self._closed = np.zeros((1024, len(tenants)), np.int64)
        self._from_s = self._n_closed = 0

    def begin(self, from_s: int) -> None:
        """Nothing is counted before this second: the config's past ends with it."""
        self._from_s = from_s

    def take(self, tenant: str, second: int, offered: int) -> None:
        """The newest word on a second that is not closed; on others there is nothing new."""
        if second - self._from_s >= self._n_closed and tenant in self._places:
            self._open.setdefault(second - self._from_s, {})[tenant] = offered

    def close(self, before_s: int) -> None:
        """The seconds before this one do not change any more."""
        n_closed = before_s - self._from_s
        while len(self._closed) < n_closed:
            self._closed = np.concatenate([self._closed, np.zeros_like(self._closed)])
        for place in range(self._n_closed, n_closed):
            for name, offered in self._open.pop(place, {}).items():
                self._closed[place, self._places[name]] = offered
        self._n_closed = max(self._n_closed, n_closed)

    def rates_before(self, now_s: float, step_s: float, n_steps: int | None = None) -> FloatArray:
        """As :meth:`migrator.inputs.traffic.Traffic.rates_before`."""
        end_s = math.floor(now_s + _EPS_S) - self._from_s
        n_seconds = len(self._past) + end_s if n_steps is None else math.ceil(n_steps * step_s)
        counts = self._counts(end_s, n_seconds)
        so_far = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
        steps = math.floor(len(counts) / step_s + _EPS_S) if n_steps is None else n_steps
        edges_s = len(counts) + step_s * np.arange(-steps, 1, dtype=np.float64)
        seconds = np.arange(len(so_far))
        arrived = np.stack([np.interp(edges_s, seconds, column) for column in so_far.T], axis=1)
        rates_rps: FloatArray = np.diff(arrived, axis=0) / step_s
        return rates_rps

    def _counts(self, end_s: int, n_seconds: int) -> FloatArray:
        """Requests in the last seconds before ``end_s``, from the first that is counted, ``(n_seconds, n_tenants)``."""
        n_known = max(0, min(self._n_closed, end_s - LAG_S))
        known = np.concatenate([self._past, self._closed[:n_known]]).astype(np.float64)
        if end_s < 0:
            known = known[: len(known) + end_s]
        like = known[-LIKE_S:].mean(axis=0)
        whole = np.concatenate([known, np.tile(like, (max(0, end_s - n_known), 1))])
        if len(whole) < n_seconds:
            whole = np.concatenate([np.tile(whole[0], (n_seconds - len(whole), 1)), whole])
        return whole[len(whole) - n_seconds :]
