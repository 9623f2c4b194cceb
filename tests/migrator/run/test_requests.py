"""Queues of all tenants over a run: what is settled, and that totals are of everything resolved so far."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from migrator.config import read_config
from migrator.run.requests import Ledger, SettledWindow, SimulatedQueues
from migrator.setting import assemble
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, Server
from workloads.serving.tally import Totals

INF = math.inf
EDGES_S = (5.0, 59.9, 60.0, 60.1, 118.0, INF)


class Serving:
    """A run's requests with one server for each tenant: too slow for everybody, and started late."""

    def __init__(self, path: Path) -> None:
        self._setting, self._traffic = assemble(read_config(path), str(path))
        self._queues, self._ledger = SimulatedQueues(2, jitter=None), Ledger(self._setting)

    @property
    def totals(self) -> Totals:
        return self._ledger.totals

    def advance(self, until_s: float) -> None:
        latency = LatencyCurve((1, 4), (0.03, 0.09))
        names = [tenant.name for tenant in self._setting.tenants]
        servers = {name: [Server(name, "a", 20.0, INF, latency, 4)] for name in names}
        accuracies = [AccuracyTimeline((0.0,), (0.5,))] * 2
        requests = self._traffic.requests(until_s)
        self._ledger.add(requests, self._queues.advance(requests, servers, accuracies, until_s))

    def settled(self, through_window: int) -> list[SettledWindow]:
        requests = self._traffic.requests(self._queues.now_s)
        return self._ledger.settled(through_window, requests, self._queues.states)


@pytest.fixture
def run(write_config) -> Serving:
    return Serving(write_config())


def test_totals_are_those_of_all_settled_windows_once_drained(run: Serving) -> None:
    for end_s in EDGES_S:
        run.advance(end_s)
    windows = run.settled(1)
    assert run.totals == sum((counts.totals for window in windows for counts in window.counts), Totals())


def test_totals_only_grow_when_windows_are_settled_on_the_way(run: Serving) -> None:
    seen = [run.totals.arrivals]
    for end_s in EDGES_S:
        run.advance(end_s)
        seen.append(run.totals.arrivals)
        run.settled(1)
        seen.append(run.totals.arrivals)
    assert seen == sorted(seen)


def test_pieces_that_cross_a_window_s_end_count_like_those_that_do_not(run: Serving, write_config) -> None:
    run.advance(INF)
    other = Serving(write_config())
    for end_s in EDGES_S:
        other.advance(end_s)
    for whole, pieces in zip(run.settled(1), other.settled(1), strict=True):
        for one, two in zip(whole.counts, pieces.counts, strict=True):
            np.testing.assert_array_equal(one.arrivals, two.arrivals)
            np.testing.assert_array_equal(one.in_time, two.in_time)
            assert dict(one.latency_ms) == dict(two.latency_ms)


def test_windows_are_settled_in_order_and_once(run: Serving) -> None:
    run.advance(INF)
    assert [window.window for window in run.settled(0)] == [0]
    assert [window.window for window in run.settled(1)] == [1]
    assert run.settled(1) == []


def test_a_window_with_unresolved_requests_is_not_settled(run: Serving) -> None:
    run.advance(60.0)
    assert run.settled(0) == []


def test_a_quiet_tenant_has_counts_too(write_config) -> None:
    quiet = Serving(write_config({"tenants.0.arrivals": {"rate_rps": 1e-9}}))
    quiet.advance(INF)
    counts = quiet.settled(1)[1].counts[0]
    assert (counts.tenant, counts.first_second, counts.n_seconds, counts.totals) == ("vision", 60, 60, Totals())
