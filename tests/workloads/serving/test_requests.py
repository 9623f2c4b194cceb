"""The values of the request simulation: luck, timelines, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from serving_cases import INF, TENANT, server

from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import Requests, requests_of
from workloads.serving.servers import AccuracyTimeline


def test_luck_depends_on_seed_tenant_and_index_alone() -> None:
    few = requests_of(TENANT, 1.0, np.arange(3.0), seed=7)
    many = requests_of(TENANT, 2.0, np.arange(9.0) / 2, seed=7)
    np.testing.assert_array_equal(few.luck, many.luck[:3])


@pytest.mark.parametrize(("tenant", "seed"), [("resnet", 7), (TENANT, 8)])
def test_luck_differs_by_tenant_and_seed(tenant: str, seed: int) -> None:
    ours, other = requests_of(TENANT, 1.0, np.arange(9.0), 7), requests_of(tenant, 1.0, np.arange(9.0), seed)
    assert not (ours.luck == other.luck).any()


@pytest.mark.parametrize(
    ("times_s", "luck", "slo_s"),
    [([1, 0], [0, 0], 1), ([0, math.nan], [0, 0], 1), ([0], [1], 1), ([0], [0, 0], 1), ([0], [0], 0), ([0], [0], INF)],
)
def test_malformed_requests_are_refused(times_s: list[float], luck: list[float], slo_s: float) -> None:
    with pytest.raises(ValueError, match="requests of bert"):
        Requests(TENANT, slo_s, np.array(times_s, dtype=float), np.array(luck, dtype=float))


@pytest.mark.parametrize(
    "change", [{"ready_s": math.nan}, {"end_s": math.nan}, {"limit": 0}, {"latency": LatencyCurve((1,), (0.0,))}]
)
def test_malformed_servers_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|above 0"):
        server(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("from_s", "accuracy"), [((), ()), ((0.0,), (0.5, 0.6)), ((1.0, 1.0), (0.5, 0.6)), ((0.0,), (1.1,))]
)
def test_malformed_accuracy_timelines_are_refused(from_s: tuple[float, ...], accuracy: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="accurac"):
        AccuracyTimeline(from_s, accuracy)


@pytest.mark.parametrize(("time_s", "expected"), [(-1.0, 0.5), (0.0, 0.5), (1.5, 0.5), (2.0, 0.7), (9.0, 0.7)])
def test_accuracy_holds_from_its_time_on(time_s: float, expected: float) -> None:
    assert AccuracyTimeline((0.0, 2.0), (0.5, 0.7)).at(time_s) == expected


def test_requests_do_not_share_memory_with_their_source() -> None:
    times_s = np.array([0.0, 1.0])
    requests = requests_of(TENANT, 1.0, times_s, 0)
    times_s[0] = 0.5
    assert requests.arrival_s[0] == 0.0
