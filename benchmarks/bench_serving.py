"""Seconds that the request simulation takes for 200 s × 2 tenants × 300 requests/s.

Run with ``python benchmarks/bench_serving.py``. The target is 2 s for two tenants at any batch limit.
"""

from __future__ import annotations

import time

import numpy as np

from workloads.latency import LatencyCurve
from workloads.serving import AccuracyTimeline, QueueState, Requests, Server, advance, requests_of

RATE_RPS = 300.0
WINDOW_S = 200.0
N_TENANTS = 2
SLO_S = 0.15
LATENCY = LatencyCurve(batches=(1, 8, 32), latency_s=(0.010, 0.022, 0.060))


def poisson_requests(tenant: str, seed: int) -> Requests:
    """A window of Poisson arrivals."""
    generator = np.random.default_rng(seed)
    n_arrivals = generator.poisson(RATE_RPS * WINDOW_S)
    return requests_of(tenant, SLO_S, np.sort(generator.uniform(0, WINDOW_S, n_arrivals)), seed)


def seconds_to_simulate(batch_limit: int, n_servers: int, n_pieces: int) -> tuple[float, float]:
    """Wall seconds for all tenants, and the fraction of requests answered in time."""
    accuracy = AccuracyTimeline(from_s=(0.0, 100.0), accuracy=(0.6, 0.8))
    edges = [*np.linspace(0, WINDOW_S, n_pieces + 1)[1:-1].tolist(), float("inf")]
    n_requests = n_in_time = 0
    wall_s = 0.0
    for number in range(N_TENANTS):
        tenant = f"tenant-{number}"
        requests = poisson_requests(tenant, number)
        servers = [Server(tenant, f"s{k}", 0.0, float("inf"), LATENCY, batch_limit) for k in range(n_servers)]
        state = QueueState()
        start_s = time.perf_counter()
        for edge_s in edges:
            state, outcomes = advance(requests, state, servers, accuracy, edge_s)
            n_in_time += int(outcomes.in_time.sum())
        wall_s += time.perf_counter() - start_s
        n_requests += len(requests)
    return wall_s, n_in_time / n_requests


def main() -> None:
    """Prints the table, the best of three runs a line."""
    print(f"request simulation: {N_TENANTS} tenants × {WINDOW_S:.0f} s × {RATE_RPS:.0f} requests/s")
    print(f"{'batch limit':>11} {'servers':>8} {'pieces':>7} {'in time %':>10} {'wall_s':>8}")
    for batch_limit, n_servers, n_pieces in (
        (1, 7, 1),
        (1, 7, 200),
        (1, 4, 1),  # under-loaded, at capacity, and overloaded below
        (1, 3, 1),
        (1, 2, 200),
        (8, 1, 200),
        (32, 2, 200),
    ):
        runs = [seconds_to_simulate(batch_limit, n_servers, n_pieces) for _ in range(3)]
        wall_s, in_time = min(runs)
        print(f"{batch_limit:>11} {n_servers:>8} {n_pieces:>7} {100 * in_time:>10.1f} {wall_s:>8.3f}")


if __name__ == "__main__":
    main()
