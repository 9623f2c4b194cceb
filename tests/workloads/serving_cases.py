"""What the tests of the request simulations draw their cases from: few moments, so that many of them are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import Outcomes, Requests, requests_of
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter

INF = math.inf
TENANT = "bert"
COLUMNS = ("index", "answer_s", "in_time", "correct")
ALWAYS = AccuracyTimeline((0.0,), (1.0,))
TIMELINE = AccuracyTimeline((0.0, 2.0, 3.5), (0.3, 0.8, 0.6))
ONE_SECOND = LatencyCurve((1,), (1.0,))  # a batch of b takes b seconds
FLAT = LatencyCurve((1, 100), (1.0, 1.0))  # any batch takes a second


def arrivals(*times_s: float, slo_s: float = 9.0, luck: float = 0.5, tenant: str = TENANT) -> Requests:
    return Requests(tenant, slo_s, np.array(times_s, dtype=float), np.full(len(times_s), luck))


def server(
    server_id: str = "a", ready_s: float = 0.0, end_s: float = INF, latency: LatencyCurve = ONE_SECOND, limit: int = 1
) -> Server:
    return Server(TENANT, server_id, ready_s, end_s, latency, limit)


def listed(outcomes: Outcomes) -> list[float | None]:
    return [None if math.isnan(answer_s) else answer_s for answer_s in outcomes.answer_s.tolist()]


def bits(columns: Sequence[np.ndarray[Any, Any]]) -> list[tuple[str, bytes]]:
    return [(column.dtype.str, column.tobytes()) for column in columns]


def bits_of(outcomes: Outcomes) -> list[tuple[str, bytes]]:
    return bits([getattr(outcomes, name) for name in COLUMNS])


def joined(pieces: Sequence[Outcomes]) -> Outcomes:
    """All pieces' outcomes by index: with push dispatch one piece fills the gaps of another."""
    columns = [np.concatenate([getattr(piece, name) for piece in pieces]) for name in COLUMNS]
    by_index = np.argsort(columns[0], kind="stable")
    return Outcomes(*(column[by_index] for column in columns))


def factor(jitter: ServiceJitter | None, tenant: str, batch_number: int) -> float:
    """What the latency of this batch is multiplied by."""
    if jitter is None:
        return 1.0
    block, place = divmod(batch_number, JITTER_BLOCK)
    return float(jitter.factors(tenant, block)[place])


# Multiples of 1/4 are exact, so equal moments are equal, and ties are common.
def quarters(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda n: n / 4)


@st.composite
def curves(draw: st.DrawFn) -> LatencyCurve:
    batches = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=3)))
    latencies = draw(st.lists(quarters(1, 6), min_size=len(batches), max_size=len(batches)))
    return LatencyCurve(tuple(batches), tuple(sorted(latencies)))


@st.composite
def server_lists(draw: st.DrawFn, max_size: int = 4) -> list[Server]:
    servers = []
    for number in range(draw(st.integers(0, max_size))):
        ready_s = draw(quarters(0, 16))
        end_s = draw(st.one_of(st.just(INF), quarters(0, 24).map(lambda lasts_s, r=ready_s: r + lasts_s)))
        servers.append(Server(TENANT, f"s{number}", ready_s, end_s, draw(curves()), draw(st.integers(1, 6))))
    return draw(st.permutations(servers))


@st.composite
def request_lists(draw: st.DrawFn) -> Requests:
    times_s = sorted(draw(st.lists(quarters(0, 24), max_size=40)))
    return requests_of(TENANT, draw(quarters(1, 10)), np.array(times_s), seed=draw(st.integers(0, 3)))


# --- real moments, more of everything


def bursts(generator: np.random.Generator, n_requests: int, lasts_s: float) -> Requests:
    """Arrivals in clumps, some of them at one moment."""
    times_s = generator.choice(generator.uniform(0, lasts_s, max(n_requests // 4, 1)), n_requests)
    spread_s = generator.choice([0.0, 0.02, 0.5]) * generator.exponential(size=n_requests)
    return requests_of(TENANT, generator.uniform(0.02, 0.4), np.sort(times_s + spread_s), seed=1)


def random_curve(generator: np.random.Generator, longest_s: float = 0.1) -> LatencyCurve:
    return LatencyCurve((1, 4, 16), tuple(np.sort(generator.uniform(0.01 * longest_s, longest_s, 3)).tolist()))


def comers_and_goers(generator: np.random.Generator, n_servers: int, lasts_s: float) -> list[Server]:
    """Servers that join and end, of few kinds, so that some are as fast as others."""
    curves = [random_curve(generator) for _ in range(3)]
    servers = []
    for number in generator.permutation(n_servers).tolist():
        ready_s = max(generator.uniform(-1, 1) * lasts_s, 0.0)
        end_s = generator.choice([INF, ready_s + generator.exponential(lasts_s / 2)])
        latency, limit = curves[generator.integers(3)], int(generator.choice([1, 3, 8, 32]))
        servers.append(Server(TENANT, f"s{number:02}", ready_s, float(end_s), latency, limit))
    return servers


def random_case(seed: int) -> tuple[Requests, list[Server], list[float]]:
    """Requests, servers, and where time is cut into pieces."""
    generator = np.random.default_rng(seed)
    lasts_s = generator.uniform(0.5, 20)
    requests = bursts(generator, int(generator.integers(0, 1500)), lasts_s)
    servers = comers_and_goers(generator, int(generator.integers(0, 22)), lasts_s)
    return requests, servers, generator.uniform(0, 1.2 * lasts_s, generator.integers(0, 30)).tolist()


def many_batches() -> tuple[Requests, list[Server]]:
    """More batches than a block of jitter has factors."""
    generator = np.random.default_rng(2)
    requests = bursts(generator, 4000, 10.0)
    return requests, [Server(TENANT, f"s{k}", 0.0, INF, random_curve(generator), 2) for k in range(9)]
