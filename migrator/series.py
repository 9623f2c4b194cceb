"""Arrivals second by second, of a trace or of a run that was logged: what forecasters are fitted to and judged on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from forecaster.forecast import FloatArray
from migrator.errors import MigratorError
from migrator.log.records import Counts
from migrator.log.runlog import read_log
from workloads.traffic.arrivals import Span, cut
from workloads.traffic.servegen import SERVEGEN_TRACE, servegen_piece
from workloads.traffic.trace_store import trace_once

SERVEGEN_S = 86_400
"""Of the synthetic trace so many seconds are drawn where nobody says how many; all of its fourteen days take long."""


class SeriesError(MigratorError):
    """What was named gives no arrivals to work with; names it, and what is needed."""


@dataclass(frozen=True, eq=False)
class Series:
    """Arrivals of n tenants in T consecutive seconds. The array is read-only.

    Attributes:
        name: Of the trace or the run.
        tenants: Their names; a trace is one tenant.
        rates_rps: Requests in each second, ``(T, n)``.
        first_s: The second of the trace, or of the run, at which they begin.
        notes: What was left out or made up, a sentence each.
    """

    name: str
    tenants: tuple[str, ...]
    rates_rps: FloatArray
    first_s: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.rates_rps.setflags(write=False)

    @property
    def n_seconds(self) -> int:
        """Its length, T."""
        return len(self.rates_rps)

    def fingerprint(self, n_seconds: int) -> str:
        """SHA-256 of the first ``n_seconds``, by which a fitted model tells what it has seen."""
        part = np.ascontiguousarray(self.rates_rps[:n_seconds])
        return sha256(repr(part.shape).encode() + part.tobytes()).hexdigest()


def read_series(source: str, seconds: tuple[int, int] | None = None) -> Series:
    """The arrivals of a run's folder, of a shipped trace by its name, or of a trace file.

    ``seconds`` is the half-open part that is wanted; everything by default, and a day of the synthetic trace.

    Raises:
        SeriesError: The part lies outside, or a run has no finished window.
        LogError: The folder holds no log of ours.
        TraceError: The file holds no trace.
    """
    path = Path(source)
    if source == SERVEGEN_TRACE:
        return _synthetic(seconds)
    if path.is_dir():
        whole = _of_run(path)
    else:
        trace = trace_once(source, Path())
        whole = Series(source, (source,), trace.counts[:, np.newaxis].astype(np.float64), notes=trace.notes)
    if seconds is None:
        return whole
    first, end = seconds
    if end > whole.n_seconds:
        raise SeriesError(f"--seconds {first}:{end}: {source} has seconds 0 to {whole.n_seconds}")
    return Series(whole.name, whole.tenants, whole.rates_rps[first:end], first, whole.notes)


def _synthetic(seconds: tuple[int, int] | None) -> Series:
    first, end = seconds or (0, SERVEGEN_S)
    trace, span = servegen_piece(Span(first, end - first), seed=0)
    counts = cut(trace, span.offset_s, span.duration_s).counts
    note = f"{trace.name}: seconds {first:,} to {end:,} of its fourteen days, drawn with seed 0"
    return Series(SERVEGEN_TRACE, (SERVEGEN_TRACE,), counts[:, np.newaxis].astype(np.float64), first, (note,))


def _of_run(folder: Path) -> Series:
    """The arrivals in the longest unbroken stretch of a run's finished windows."""
    log = read_log(folder)
    settled = log.settled
    if not settled:
        raise SeriesError(f"{folder}: no window of the run is finished, so that its log holds no arrivals")
    windows = _longest_stretch(sorted(settled))
    names = tuple(tenant.name for tenant in log.header.tenants)
    rates = np.concatenate([_rates(settled[window].tenants, names) for window in windows])
    notes: tuple[str, ...] = ()
    if len(windows) < len(settled):
        notes = (f"{folder}: of windows with gaps between them the longest stretch, {windows[0]} to {windows[-1]}",)
    return Series(str(folder), names, rates, round(windows[0] * log.header.window_s), notes)


def _rates(tenants: Mapping[str, Counts], names: tuple[str, ...]) -> FloatArray:
    return np.array([tenants[name].arrivals for name in names], dtype=np.float64).T


def _longest_stretch(windows: list[int]) -> range:
    """The first of the longest runs of consecutive numbers in an ascending list."""
    best = range(0)
    start = windows[0]
    for window, following in zip(windows, [*windows[1:], -1], strict=True):
        if following != window + 1:
            best = max(best, range(start, window + 1), key=len)
            start = following
    return best
