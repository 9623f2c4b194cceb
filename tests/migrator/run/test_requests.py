"""Queues of all tenants over a run: what is settled, and that totals are of everything resolved so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from migrator.config import read_config
from migrator.run.requests import ServingRun
from migrator.setting import assemble
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import Server
from workloads.serving.tally import Totals

INF = math.inf
EDGES_S = (5.0, 59.9, 60.0, 60.1, 118.0, INF)


def one_server(tenant: str) -> Sequence[Server]:
    """Too slow for everybody, and started late."""
    return [Server(tenant, "a", 20.0, INF, LatencyCurve((1, 4), (0.03, 0.09)), 4)]


def run_of(path: Path) -> ServingRun:
    found = ServingRun(assemble(read_config(path), str(path)))
    for index in range(2):
        found.set_accuracy(index, 0.0, 0.5)
    return found


@pytest.fixture
def run(write_config) -> ServingRun:
    return run_of(write_config())


def test_totals_are_those_of_all_settled_windows_once_drained(run: ServingRun) -> None:
    for end_s in EDGES_S:
        run.advance(end_s, one_server)
    windows = run.settled(1)
    assert run.totals == sum((counts.totals for window in windows for counts in window.counts), Totals())


def test_totals_only_grow_when_windows_are_settled_on_the_way(run: ServingRun) -> None:
    seen = [run.totals.arrivals]
    for end_s in EDGES_S:
        run.advance(end_s, one_server)
        seen.append(run.totals.arrivals)
        run.settled(1)
        seen.append(run.totals.arrivals)
    assert seen == sorted(seen)


def test_pieces_that_cross_a_window_s_end_count_like_those_that_do_not(run: ServingRun, write_config) -> None:
    run.advance(INF, one_server)
    other = run_of(write_config())
    for end_s in EDGES_S:
        other.advance(end_s, one_server)
    for whole, pieces in zip(run.settled(1), other.settled(1), strict=True):
        for one, two in zip(whole.counts, pieces.counts, strict=True):
            np.testing.assert_array_equal(one.arrivals, two.arrivals)
            np.testing.assert_array_equal(one.in_time, two.in_time)
            assert dict(one.latency_ms) == dict(two.latency_ms)


def test_windows_are_settled_in_order_and_once(run: ServingRun) -> None:
    run.advance(INF, one_server)
    assert [window.window for window in run.settled(0)] == [0]
    assert [window.window for window in run.settled(1)] == [1]
    assert run.settled(1) == []


def test_a_window_with_unresolved_requests_is_not_settled(run: ServingRun) -> None:
    run.advance(60.0, one_server)
    assert run.settled(0) == []


def test_a_quiet_tenant_has_counts_too(write_config) -> None:
    quiet = run_of(write_config({"tenants.0.arrivals": {"rate_rps": 1e-9}}))
    quiet.advance(INF, one_server)
    counts = quiet.settled(1)[1].counts[0]
    assert (counts.tenant, counts.first_second, counts.n_seconds, counts.totals) == ("vision", 60, 60, Totals())
