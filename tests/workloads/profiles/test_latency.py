"""Latencies of batches, and of turns that several processes share."""

from __future__ import annotations

import math

import pytest

from workloads.profiles.latency import LatencyCurve

CURVE = LatencyCurve((1, 4, 16), (0.007, 0.019, 0.0523))


@pytest.mark.parametrize("processes", range(1, 8))
def test_in_a_turn_each_process_takes_its_part_rounded_up(processes: int) -> None:
    turn = CURVE.of_processes(processes, 16)
    sizes = range(1, 16 * processes + 1)
    assert [turn.at(size) for size in sizes] == [CURVE.at(math.ceil(size / processes)) for size in sizes]
