"""Arrivals from traces and from past runs' logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from migrator.errors import LogError
from migrator.log.runlog import read_log
from migrator.series import Series, SeriesError, _longest_stretch, read_series
from workloads.errors import TraceError


def test_a_shipped_trace_is_one_tenant() -> None:
    series = read_series("azure-conv")
    assert series.tenants == ("azure-conv",)
    assert series.rates_rps.shape == (3502, 1)
    assert series.rates_rps.sum() == 19366


def test_a_part_of_a_file_is_its_seconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("second,count\n" + "".join(f"{second},{second % 7}\n" for second in range(50)))
    series = read_series(str(path), (10, 20))
    assert (series.first_s, series.rates_rps[:, 0].tolist()) == (10, [second % 7 for second in range(10, 20)])
    with pytest.raises(SeriesError, match=r"--seconds 10:60: .*trace.csv has seconds 0 to 50"):
        read_series(str(path), (10, 60))


def test_the_synthetic_trace_says_so() -> None:
    series = read_series("alibaba-servegen", (1200, 1500))
    assert (series.n_seconds, series.first_s) == (300, 1200)
    assert series.notes == (
        "alibaba-servegen (synthetic at second scale): seconds 1,200 to 1,500 of its fourteen days, drawn with seed 0",
    )


def test_a_run_gives_each_tenants_arrivals(call, write_config) -> None:
    assert call("run", write_config(), "--policy", "equal", "--out", "past")[0] == 0
    series = read_series("past")
    assert (series.tenants, series.rates_rps.shape) == (("vision", "language"), (120, 2))
    arrivals = [window.tenants["language"].arrivals for window in read_log(Path("past")).settled.values()]
    np.testing.assert_array_equal(series.rates_rps[:, 1], np.concatenate(arrivals))


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is no run"):
        read_series(str(tmp_path))
    with pytest.raises(TraceError, match="no such trace file; did you mean azure-conv"):
        read_series("azure-con")


def test_of_windows_with_gaps_the_longest_stretch_counts() -> None:
    assert [list(_longest_stretch(windows)) for windows in ([0], [0, 2, 3, 7], [0, 1, 5, 6])] == [[0], [2, 3], [0, 1]]


def test_the_fingerprint_is_of_what_was_seen() -> None:
    first, second = (Series("a", ("a",), np.array([[1.0], [2.0], [last]])) for last in (3.0, 4.0))
    assert first.fingerprint(2) == second.fingerprint(2)
    assert first.fingerprint(3) != second.fingerprint(3)
