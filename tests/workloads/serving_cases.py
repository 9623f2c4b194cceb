"""What the tests of the request simulations draw their cases from: few moments, so that many of them are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import Outcomes, Requests, Server, requests_of

INF = math.inf
TENANT = "bert"


def joined(pieces: Sequence[Outcomes]) -> Outcomes:
    names = ("index", "answer_s", "in_time", "correct")
    return Outcomes(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))


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
