"""How the time of batches and steps is taken, on a clock that tests move."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from workloads import measuring
from workloads.measuring import LEAST_PASSES, _Gone, _Orders, _Pace, _Rest


class Measurer:
    """The other end of the orders, and the clock."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.now_s = 0.0

    def order(self, **order: object) -> None:
        self._connection.send(json.dumps(order).encode())

    def heard(self) -> dict[str, object]:
        told: dict[str, object] = json.loads(self._connection.recv(1 << 16))
        return told

    def monotonic(self) -> float:
        return self.now_s

    process_time = monotonic

    def passes(self, pace: _Pace, *took_s: float) -> None:
        for seconds in took_s:
            self.now_s += seconds
            pace.passed()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        ours.settimeout(5)
        yield ours, its


@pytest.fixture
def measurer(ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> Measurer:
    made = Measurer(ends[0])
    monkeypatch.setattr(measuring, "time", made)
    return made


@pytest.fixture
def pace(ends: tuple[socket.socket, socket.socket]) -> _Pace:
    return _Pace(_Orders(ends[1]), 8.0)


def test_a_load_runs_once_libraries_have_come_to_life(measurer: Measurer, pace: _Pace) -> None:
    measurer.passes(pace, 5.0, 1.0)
    assert measurer.heard() == {"running": True}


def test_only_what_begins_and_ends_in_the_stretch_counts(measurer: Measurer, pace: _Pace) -> None:
    measurer.order(measure=[10.0, 20.0])
    measurer.passes(pace, 9.0, 4.0, 1.0, 2.0, 3.0, 2.0)  # ends at 9, 13, 14, 16, 19, 21
    assert measurer.heard()["measured"] == {
        "n_passes": 4,
        "n_samples": 32.0,
        "span_s": 8.0,
        "median_s": 2.0,
        "p95_s": 3.0,
        "cpu_s": 8.0,
    }


def test_slow_batches_are_waited_for(measurer: Measurer, pace: _Pace) -> None:
    measurer.order(measure=[0.0, 1.0])
    measurer.passes(pace, 1.0, *[50.0] * LEAST_PASSES, 50.0)
    told = measurer.heard()["measured"]
    assert isinstance(told, dict)
    assert (told["n_passes"], told["span_s"]) == (LEAST_PASSES, 50.0 * LEAST_PASSES)


def test_a_load_goes_on_after_it_was_measured_until_it_may_rest(measurer: Measurer, pace: _Pace) -> None:
    measurer.order(measure=[0.0, 1.0])
    measurer.passes(pace, *[1.0] * 6)
    measurer.order(rest=True)
    with pytest.raises(_Rest):
        measurer.passes(pace, 1.0)


def test_it_ends_when_whoever_measures_is_gone(
    measurer: Measurer, pace: _Pace, ends: tuple[socket.socket, socket.socket]
) -> None:
    ends[0].close()
    with pytest.raises(_Gone):
        measurer.passes(pace, 1.0)
