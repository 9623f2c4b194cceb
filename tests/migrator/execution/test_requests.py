"""Queues of all tenants over a run: what is settled, and that totals are of everything resolved so far."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from migrator.config.reading import read_config
from migrator.execution.accounts import QueueAccounts
from migrator.execution.requests import Ledger, SimulatedQueues
from migrator.inputs.assembly import assemble
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import Outcomes, Requests
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.serving.tally import SettledWindow, Totals

INF = math.inf
EDGES_S = (5.0, 59.9, 60.0, 60.1, 118.0, INF)


class Serving:
    """A run's requests with one server for each tenant: too slow for everybody, and started late."""

    def __init__(self, path: Path) -> None:
        setting, traffic = assemble(read_config(path), str(path))
        names = [tenant.name for tenant in setting.tenants]
        queues = SimulatedQueues(dict.fromkeys(names, 1.0), jitter=None)
        latency = LatencyCurve((1, 4), (0.03, 0.09))
        self._servers = {name: [Server(name, "a", 20.0, INF, latency, 4)] for name in names}
        self._accuracies = dict.fromkeys(names, AccuracyTimeline((0.0,), (0.5,)))
        self.accounts = QueueAccounts(traffic, setting.tenants, setting.config.window_s, queues)

    @property
    def totals(self) -> Totals:
        return self.accounts.totals

    def advance(self, until_s: float, known_s: float = INF) -> None:
        self.accounts.serve(self._servers, self._accuracies, until_s, known_s=known_s)

    def know(self, known_s: float) -> None:
        self.accounts.know(known_s)

    def blind(self, from_s: float, to_s: float) -> None:
        self.accounts.leave_out(from_s, to_s)

    def lose_in_service(self) -> int:
        """How many answers are lost as the servers die."""
        states = self.accounts._queues.states
        for name in states:
            self.accounts.lose(name, ["a"])
        return sum(len(state.in_service("a").index) for state in states.values())

    def in_time_shares(self, window: int) -> tuple[float, ...]:
        return tuple(self.accounts.in_time_shares(window).values())

    def settled(self, through_window: int) -> list[SettledWindow]:
        return self.accounts.settled(through_window)


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
    first, second, third = (run.in_time_shares(window) for window in range(3))
    assert third == (1.0, 1.0) != first
    assert [window.window for window in run.settled(0)] == [0]
    assert [run.in_time_shares(window) for window in (0, 1)] == [first, second]
    assert [window.window for window in run.settled(1)] == [1]
    assert run.settled(1) == []
    assert run.in_time_shares(1) == second


def test_a_window_with_unresolved_requests_is_not_settled(run: Serving) -> None:
    run.advance(60.0)
    assert run.settled(0) == []


def test_a_quiet_tenant_has_counts_too(write_config) -> None:
    quiet = Serving(write_config({"tenants.0.arrivals": {"rate_rps": 1e-9}}))
    quiet.advance(INF)
    counts = quiet.settled(1)[1].counts[0]
    assert (counts.tenant, counts.first_second, counts.n_seconds, counts.totals) == ("vision", 60, 60, Totals())


def counts_of(windows: list[SettledWindow]) -> list[list[list[int]]]:
    """By window and tenant, what came and what was answered in time in each second."""
    return [[[*own.arrivals.tolist(), *own.in_time.tolist()] for own in window.counts] for window in windows]


def test_what_waits_until_it_is_known_what_stood_counts_as_it_would_have_at_once(run: Serving, write_config) -> None:
    run.advance(INF)
    waits = Serving(write_config())
    for end_s, known_s in zip(EDGES_S, (0.0, 3.7, 55.0, 59.0, 60.2, 130.0), strict=True):
        waits.advance(end_s, known_s)
        waits.know(known_s)
    assert counts_of(waits.settled(1)) == counts_of(run.settled(1))


def test_a_window_is_settled_when_all_of_it_is_known_and_no_sooner(run: Serving) -> None:
    run.advance(INF, 0.0)
    assert run.totals == Totals()
    run.know(59.0)
    assert run.settled(1) == []
    run.know(61.0)
    assert [window.window for window in run.settled(1)] == [0]


@pytest.mark.parametrize(("from_s", "to_s", "blind"), [(30.0, 31.0, (29, 31)), (30.5, 32.2, (30, 33))])
def test_blind_seconds_are_in_no_count_with_those_whose_last_requests_may_have_been_answered_in_them(
    run: Serving, write_config, from_s: float, to_s: float, blind: tuple[int, int]
) -> None:
    run.advance(INF)
    sees_not = Serving(write_config())
    sees_not.advance(50.0, from_s)
    sees_not.know(from_s)
    sees_not.blind(from_s, to_s)
    sees_not.know(to_s)
    sees_not.advance(INF, to_s)
    sees_not.know(130.0)
    first, second = sees_not.settled(1)
    assert (first.blind, second.blind) == ((blind,), ())
    for whole, own in zip(run.settled(0)[0].counts, first.counts, strict=True):
        for name in ("arrivals", "in_time", "late", "dropped", "correct"):
            expected = getattr(whole, name).copy()
            expected[slice(*blind)] = 0
            np.testing.assert_array_equal(getattr(own, name), expected)
        assert sum(own.latency_ms.values()) == own.totals.in_time + own.totals.late


def test_blind_seconds_over_a_window_s_end_are_both_windows_and_stretches_that_touch_are_one(run: Serving) -> None:
    run.advance(INF, 0.0)
    for from_s, to_s in ((50.9, 52.0), (58.5, 60.5), (52.6, 53.0), (61.6, 62.0)):
        run.blind(from_s, to_s)
    run.know(130.0)
    assert [window.blind for window in run.settled(1)] == [((50, 53), (58, 60)), ((60, 62),)]


@pytest.mark.parametrize("known_s", [0.0, 30.0, INF])
def test_answers_that_died_with_their_server_are_dropped_whether_they_wait_or_are_counted(
    run: Serving, write_config, known_s: float
) -> None:
    run.advance(INF)
    dies = Serving(write_config())
    dies.advance(30.0, known_s)
    dies.know(known_s)
    assert dies.lose_in_service() > 0
    dies.know(known_s if known_s == INF else 31.0)
    found = dies.totals
    assert found.arrivals == found.in_time + found.late + found.dropped
    assert min(found.in_time, found.late, found.correct, found.correct_late) >= 0


def test_of_what_was_left_out_nothing_can_be_lost_any_more(run: Serving) -> None:
    run.advance(30.0, 20.0)
    run.blind(20.0, 40.0)
    run.know(40.0)
    before = run.totals
    assert run.lose_in_service() > 0
    assert run.totals == before


@pytest.mark.parametrize(
    ("piece", "windows"),
    [
        (range(7), {0: 2, 1: 2, 2: 1, 3: 2}),
        (range(1), {0: 1}),
        (range(1, 3), {0: 1, 1: 1}),
        (range(2, 4), {1: 2}),
        (range(4, 7), {2: 1, 3: 2}),
        (range(0), {}),
    ],
)
def test_a_piece_is_counted_in_the_windows_in_which_its_requests_arrived(
    write_config, piece: range, windows: dict[int, int]
) -> None:
    setting, _ = assemble(read_config(write_config({"windows": 4})), "small")
    arrival_s = np.array([0.0, 59.999, 60.0, 119.9, 120.0, 180.0, 239.9])
    one, other = (tenant.name for tenant in setting.tenants)
    requests = {name: Requests(name, 0.1, arrival_s, np.zeros(7)) for name in (one, other)}
    ledger = Ledger(dict.fromkeys((one, other), 0.1), setting.config.window_s)
    nothing = Outcomes.all_dropped(np.arange(0))
    ledger.add(requests, {one: Outcomes.all_dropped(np.array(piece, np.int64)), other: nothing})
    found = {window: [own.totals.arrivals for own in tallies.values()] for window, tallies in ledger._tallies.items()}
    assert found == {window: [n_arrived, 0] for window, n_arrived in windows.items()}
