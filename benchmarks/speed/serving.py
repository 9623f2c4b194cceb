"""Requests a second that the simulation of requests gets through, with pull and push dispatch, and in a pool.

Run with ``python -m benchmarks.speed.serving``. Target: 2 million requests a second on one core while servers come and
go.

A case is one tenant's 200 s. Its servers join and end: every 20 s another one is replaced by its like, which is ready
a second later. A run advances in pieces of at most 5 s, shorter where its layout changes; 200 s is all in one.
In a pool two tenants share all servers, which are its lanes; target: 1.5 million. Target with trainings that give way,
and go on beside batches: half of what the pool gets through without.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from workloads.profiles.latency import LatencyCurve
from workloads.serving import pool
from workloads.serving.advance import advance
from workloads.serving.requests import QueueState, Requests, requests_of
from workloads.serving.servers import AccuracyTimeline, Dispatch, Server
from workloads.traffic.luck import ServiceJitter

WINDOW_S = 200.0
REPLACED_S = 20.0
SLO_S = 0.15
LATENCY = LatencyCurve(batches=(1, 8, 32), latency_s=(0.010, 0.022, 0.060))
ACCURACY = AccuracyTimeline(from_s=(0.0, 100.0), accuracy=(0.6, 0.8))
N_RUNS = 3


@dataclass(frozen=True)
class Case:
    """Requests a second against servers, in pieces."""

    rate_rps: float
    batch_limit: int
    n_servers: int
    piece_s: float
    sigma: float = 0.0

    def requests(self, tenant: str = "tenant", seed: int = 0) -> Requests:
        """A window of Poisson arrivals."""
        generator = np.random.default_rng(seed)
        n_arrivals = generator.poisson(self.rate_rps * WINDOW_S)
        return requests_of(tenant, SLO_S, np.sort(generator.uniform(0, WINDOW_S, n_arrivals)), 0)

    def servers(self) -> list[Server]:
        """``n_servers`` at a time, one of them replaced every ``REPLACED_S``."""
        alive = dict.fromkeys(range(self.n_servers), 0.0)
        server = partial(Server, "tenant", latency=LATENCY, batch_limit=self.batch_limit)
        ended = []
        for number, at_s in enumerate(np.arange(REPLACED_S, WINDOW_S, REPLACED_S).tolist()):
            place = number % self.n_servers
            ended.append(server(server_id=f"{place}-{number}", ready_s=alive[place], end_s=at_s))
            alive[place] = at_s + 1.0
        return ended + [
            server(server_id=f"{place}-last", ready_s=at_s, end_s=float("inf")) for place, at_s in alive.items()
        ]


CASES = (
    Case(300, 1, 7, 1.0),
    Case(300, 1, 4, 1.0),  # under-loaded above, at capacity, overloaded below
    Case(300, 1, 2, 1.0),
    Case(300, 32, 2, 1.0),
    Case(300, 32, 2, WINDOW_S),
    Case(300, 32, 2, 1.0, sigma=0.1),
    Case(3000, 8, 7, 1.0),
    Case(3000, 32, 7, 1.0),
    Case(3000, 32, 7, WINDOW_S),
    Case(3000, 32, 7, WINDOW_S, sigma=0.1),
)
PUSH_CASES = tuple(case for case in CASES if case.rate_rps <= 300 or case.batch_limit == 32)
POOL_CASES = (
    Case(150, 1, 4, 1.0),
    Case(150, 1, 4, WINDOW_S),
    Case(900, 32, 4, 1.0),
    Case(900, 32, 4, WINDOW_S),
    Case(900, 32, 4, WINDOW_S, sigma=0.1),
)
"""Each of two tenants has the rate."""


def seconds_to_simulate(dispatch: Dispatch, case: Case, requests: Requests) -> tuple[float, int]:
    """Wall seconds, and the number of requests answered in time."""
    known = case.servers()
    edges = [*np.arange(case.piece_s, WINDOW_S, case.piece_s).tolist(), float("inf")]
    pieces = [(edge_s, [one for one in known if one.ready_s < edge_s]) for edge_s in edges]
    jitter = ServiceJitter(0, case.sigma) if case.sigma else None
    state, n_in_time = QueueState(), 0
    start_s = time.perf_counter()
    for edge_s, joined in pieces:
        servers = [one for one in joined if one.end_s > state.now_s]
        state, outcomes = advance(requests, state, servers, ACCURACY, edge_s, jitter, dispatch)
        n_in_time += int(np.count_nonzero(outcomes.in_time))
    return time.perf_counter() - start_s, n_in_time


TRAINING = pool.TrainingJob(0, 0, left_s=1e6, piece_s=1.0, ready_s=0.0)
"""Beside all requests of a case."""


def beside_of(case: Case) -> pool.Beside:
    """Batches that need from a quarter to three quarters of the GPU."""
    floors = tuple(5 + 10 * size // case.batch_limit for size in range(case.batch_limit + 1))
    speeds = tuple(units / 20 for units in range(21))
    return pool.Beside((floors,) * 2, (speeds,) * 2, give_way_s=0.005, discard_s=0.05, window_s=1.0)


def seconds_in_a_pool(case: Case, requests: Sequence[Requests], *, trains: bool = False) -> tuple[float, int]:
    """Wall seconds, and the number of requests answered in time, of tenants that share all servers."""
    known = [
        pool.Lane(one.server_id, tuple(replace(one, tenant=own.tenant) for own in requests)) for one in case.servers()
    ]
    edges = [*np.arange(case.piece_s, WINDOW_S, case.piece_s).tolist(), float("inf")]
    pieces = [(edge_s, [one for one in known if one.servers[0].ready_s < edge_s]) for edge_s in edges]
    jitter = ServiceJitter(0, case.sigma) if case.sigma else None
    state, n_in_time = pool.PoolState.at_start(len(requests)), 0
    if trains:  # one on each lane, from when it is made
        jobs = (replace(TRAINING, window=place, lane_id=one.lane_id) for place, one in enumerate(known))
        state = replace(state, jobs=tuple(jobs))
    kernel = partial(pool.give_way, beside=beside_of(case)) if trains else pool.advance
    start_s = time.perf_counter()
    for edge_s, joined in pieces:
        lanes = [one for one in joined if one.servers[0].end_s > state.now_s]
        accuracies = [ACCURACY] * len(requests)
        state, piece = kernel(requests, state, lanes, accuracies, edge_s, jitter, turn_cost=0.05)
        n_in_time += sum(int(np.count_nonzero(one.in_time)) for one in piece.outcomes)
    return time.perf_counter() - start_s, n_in_time


def first_call_s(dispatch: Dispatch | None, *, trains: bool = False) -> float:
    """Seconds of the first call (None: in a pool), which compiles where nothing is kept from an earlier process."""
    requests, start_s = requests_of("tenant", SLO_S, np.zeros(1), 0), time.perf_counter()
    if trains:
        beside = pool.Beside(((0,),), ((1.0,),))
        pool.give_way([requests], pool.PoolState.at_start(1), [], [ACCURACY], 0.0, beside=beside)
    elif dispatch is None:
        pool.advance([requests], pool.PoolState.at_start(1), [], [ACCURACY], 0.0)
    else:
        advance(requests, QueueState(), [], ACCURACY, 0.0, None, dispatch)
    return time.perf_counter() - start_s


def print_row(case: Case, n_requests: int, runs: Iterable[tuple[float, int]]) -> None:
    """The best of some runs."""
    seconds, n_in_time = min(runs)
    print(f"{case.rate_rps:>5} {case.batch_limit:>6} {case.n_servers:>8} {case.piece_s:>8}", end="")
    print(f" {case.sigma:>7} {100 * n_in_time / n_requests:>10.1f} {n_requests / seconds / 1e3:>9,.0f}")


def main() -> None:
    """Print a table for each kind of dispatch, with the best of ``N_RUNS`` runs a case."""
    print(f"one tenant, or two in a pool × {WINDOW_S:.0f} s; thousands of requests simulated a second")
    head = f"{'rps':>5} {'limit':>6} {'servers':>8} {'piece_s':>8} {'jitter':>7} {'in time %':>10} {'compiled':>9}"
    for dispatch, cases in ((Dispatch.PULL, CASES), (Dispatch.PUSH, PUSH_CASES)):
        print(f"{dispatch}: first compiled call {first_call_s(dispatch):.2f} s")
        print(head)
        for case in cases:
            requests = case.requests()
            runs = (seconds_to_simulate(dispatch, case, requests) for _ in range(N_RUNS))
            print_row(case, len(requests), runs)
    for trains in (False, True):
        what = "pool with a training that gives way on each lane" if trains else "pool"
        print(f"{what}: first compiled call {first_call_s(None, trains=trains):.2f} s")
        print(head)
        for case in POOL_CASES:
            both = [case.requests(tenant, seed) for seed, tenant in enumerate(("tenant", "other"))]
            runs = (seconds_in_a_pool(case, both, trains=trains) for _ in range(N_RUNS))
            print_row(case, sum(map(len, both)), runs)


if __name__ == "__main__":
    main()
