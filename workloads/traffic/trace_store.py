"""Traces by file, each read once in this process, however many runs, segments or points of a grid ask for it.

A process that begins beside others is handed what the first one has read, and reads nothing that has not changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from workloads.traffic.arrivals import Trace
from workloads.traffic.trace_file import SHIPPED, Reading, find_trace

MOST_KEPT = 16
"""Traces; the one that was read first goes."""

_Key: TypeAlias = "tuple[str, Reading | None, int, int, int]"
"""Absolute path, how it is read, and what shows that a file was written anew: inode, modification time, size."""

_kept: dict[_Key, Trace] = {}


def trace_once(source: str, folder: Path, reading: Reading | None = None) -> Trace:
    """What :func:`~workloads.traffic.trace_file.find_trace` finds; a file that has not changed is not read again.

    Raises:
        TraceError: As ``find_trace``.
    """
    key = None if source in SHIPPED else _key(folder / source, reading)
    if key is None:
        return find_trace(source, folder, reading)
    if key not in _kept:
        trace = find_trace(source, folder, reading)
        while len(_kept) >= MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = trace
    return _kept[key]


def _key(path: Path, reading: Reading | None) -> _Key | None:
    """What stands for the file; ``None`` where there is none to keep, so that reading it says what is wrong."""
    try:
        found = path.stat()
        return (str(path.resolve()), reading, found.st_ino, found.st_mtime_ns, found.st_size)
    except (OSError, ValueError):
        return None


def kept_traces() -> Mapping[_Key, Trace]:
    """What this process has read, for :func:`keep_traces` in another."""
    return dict(_kept)


def keep_traces(traces: Mapping[_Key, Trace]) -> None:
    """Take over what another process has read."""
    _kept.update(traces)
