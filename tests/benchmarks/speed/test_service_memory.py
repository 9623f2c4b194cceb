"""The service whose memory is measured does what a service does: windows are settled, and seconds stored."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("zmq")

from benchmarks.speed.service_memory import RPS, WINDOW_S, Service, slope_kib


def test_each_window_is_settled_with_what_came(tmp_path: Path) -> None:
    service = Service(tmp_path)
    for window in range(3):
        service.window(window)
    assert service.n_settled == 2  # the last one's last second is not closed yet
    assert service.accounts.totals.in_time == sum(2 * (RPS + second % 3) for second in range(3 * WINDOW_S))
    assert service.traffic.rates_before(14.0, 1.0, 12)[:, 0].tolist()[:3] == [RPS + 2, RPS, RPS + 1]


def test_a_slope_is_what_each_window_adds() -> None:
    assert slope_kib([10, 20, 30], [100.0, 130.0, 160.0]) == pytest.approx(3.0)
