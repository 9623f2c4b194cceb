"""A trace file is read once, in this process and in those beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from migrator.terminal.parallel import Processes
from workloads.errors import TraceError
from workloads.traffic import trace_store
from workloads.traffic.trace_file import Reading, TraceFormat
from workloads.traffic.trace_store import MOST_KEPT, keep_traces, kept_traces, trace_once


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    trace_store._kept.clear()
    yield
    trace_store._kept.clear()


def counts_file(folder: Path, count: int = 3, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(f"second,count\n0,{count}\n")
    return path


def unreadable(path: Path) -> None:
    """The file keeps what it is told by, but holds no trace any more."""
    stamp = path.stat()
    path.write_text("x" * stamp.st_size)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = counts_file(tmp_path)
    first = trace_once(str(path), Path())
    unreadable(path)
    assert trace_once("trace.csv", tmp_path) is first


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = counts_file(tmp_path)
    trace_once(str(path), Path())
    counts_file(tmp_path, count=4711)
    assert trace_once(str(path), Path()).counts.tolist() == [4711]


def test_a_file_read_as_another_format_is_another_trace(tmp_path: Path) -> None:
    path = counts_file(tmp_path)
    trace_once(str(path), Path())
    with pytest.raises(TraceError):
        trace_once(str(path), Path(), Reading(format=TraceFormat.TIMESTAMPS))


def test_what_is_wrong_with_a_file_is_told_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(TraceError, match="no such trace file"):
            trace_once("gone.csv", tmp_path)


def test_no_more_are_kept_than_fit(tmp_path: Path) -> None:
    for number in range(MOST_KEPT + 2):
        trace_once(str(counts_file(tmp_path, name=f"{number}.csv")), Path())
    assert len(kept_traces()) == MOST_KEPT


def total_of(path: str) -> int:
    return int(trace_once(path, Path()).counts.sum())


def test_other_processes_need_not_read_it_again(tmp_path: Path) -> None:
    path = counts_file(tmp_path)
    trace_once(str(path), Path())
    unreadable(path)
    with Processes(2, partial(keep_traces, kept_traces())) as processes:
        assert sorted(processes.each(total_of, [str(path)] * 3)) == [(0, 3), (1, 3), (2, 3)]
