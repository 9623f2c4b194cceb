"""Traces from files, and the traces that are shipped. Every refusal names file, line and value.

Three kinds of file, each plain or gzipped, are told apart by their first line:

=============  ====================================================  ===============================
format         first line                                            the trace begins
=============  ====================================================  ===============================
``counts``     the header ``second,count``                           at the first row's second
``azure``      a header whose first column is ``TIMESTAMP``, as in   at the first request
               the Azure LLM inference traces; other columns are
               ignored
``timestamps`` a number: seconds, one request a line, no header      at the first request's second
=============  ====================================================  ===============================

Seconds left out of a ``counts`` file had no requests. Requests may stand in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import assert_never

import numpy as np

from executor.input_file import GZIP_MAGIC, gunzipped, read_input
from workloads.errors import TraceError
from workloads.traffic.arrivals import MAX_RATE_RPS, Trace, seconds_of_times
from workloads.traffic.servegen import SERVEGEN_TRACE

MAX_SPAN_S = 366 * 86_400
"""Longest trace. A longer one is a wrong unit (milliseconds) or a wrong line."""

SHIPPED = {
    "azure-conv": "azure_llm_2023_conv_times.csv.gz",
    "azure-code": "azure_llm_2023_code_times.csv.gz",
    "apollo": "apollo_times.csv.gz",
    "disb-resnet152": "disb_resnet152_times.csv.gz",
    "disb-densenet201": "disb_densenet201_times.csv.gz",
    "disb-vgg19": "disb_vgg19_times.csv.gz",
    "disb-inceptionv3": "disb_inceptionv3_times.csv.gz",
    "disb-distilbert": "disb_distilbert_times.csv.gz",
}
"""The traces that are shipped: name, and file in ``workloads.data``."""

MOST_BYTES = 256 * 2**20
"""Size of the largest trace file, packed and unpacked; eight days of per-second rows have 10 MiB."""


class TraceFormat(StrEnum):
    """The kinds of trace file."""

    COUNTS = "counts"
    AZURE = "azure"
    TIMESTAMPS = "timestamps"


@cache
def shipped_trace(name: str) -> Trace:
    """The shipped trace called ``name``, with the requests' own times (to the millisecond).

    Raises:
        TraceError: With the names that are shipped.
    """
    if name not in SHIPPED:
        raise TraceError(f"no trace {name!r} is shipped; there are {', '.join(SHIPPED)}")
    raw = (files("workloads.data") / SHIPPED[name]).read_bytes()
    return _parse(name, raw, TraceFormat.TIMESTAMPS)


def read_trace(path: Path, trace_format: TraceFormat | None = None) -> Trace:
    """The trace in the file; its kind is seen from the first line unless it is given.

    Raises:
        TraceError: No such file, or what it holds is no trace; names file, line, value and what is allowed.
    """
    try:
        raw = read_input(path, MOST_BYTES)
    except FileNotFoundError:
        known = (*SHIPPED, SERVEGEN_TRACE)
        nearest = get_close_matches(path.name, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else f"; shipped traces: {', '.join(known)}"
        raise TraceError(f"{path}: no such trace file{hint}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _parse(str(path), raw, trace_format)


def find_trace(source: str, folder: Path, trace_format: TraceFormat | None = None) -> Trace:
    """The shipped trace of that name, else the trace in the file (relative to ``folder``).

    Raises:
        TraceError: As :func:`read_trace`.
    """
    return shipped_trace(source) if source in SHIPPED else read_trace(folder / source, trace_format)


def _parse(name: str, raw: bytes, trace_format: TraceFormat | None) -> Trace:
    lines = _numbered_lines(_text(name, raw))
    if not lines:
        raise TraceError(f"{name}: the file is empty; a trace needs at least one request line")
    chosen = trace_format or _format_of(name, lines[0][1])
    match chosen:
        case TraceFormat.COUNTS:
            return _from_counts(name, lines)
        case TraceFormat.AZURE:
            return _from_azure(name, lines)
        case TraceFormat.TIMESTAMPS:
            return _from_timestamps(name, lines)
        case _:
            assert_never(chosen)


def _text(name: str, raw: bytes) -> str:
    try:
        plain = gunzipped(raw, MOST_BYTES) if raw.startswith(GZIP_MAGIC) else raw
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror}") from None
    try:
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{name}: not a text file: {error.reason} at byte {error.start}; UTF-8 is needed") from None


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def _format_of(name: str, first_line: str) -> TraceFormat:
    header = [field.lower() for field in _fields(first_line)]
    if header == ["second", "count"]:
        return TraceFormat.COUNTS
    if header[0] == "timestamp":
        return TraceFormat.AZURE
    try:
        float(first_line)
    except ValueError:
        raise TraceError(
            f"{name} line 1: {_quoted(first_line)} opens no known kind of trace; the header second,count, a header "
            "that begins with TIMESTAMP, or a time in seconds is needed"
        ) from None
    return TraceFormat.TIMESTAMPS


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}…")


def _number(name: str, line: int, column: str, text: str) -> float:
    """The finite number ≥ 0 that the text writes."""
    try:
        # Python reads 1_000 as a number; in a data file it is a slip.
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise TraceError(f"{name} line {line}: {column} is {_quoted(text)}; a finite number ≥ 0 is needed")
    return value


def _whole(name: str, line: int, column: str, text: str) -> int:
    value = _number(name, line, column, text)
    if not value.is_integer():
        raise TraceError(f"{name} line {line}: {column} is {_quoted(text)}; a whole number ≥ 0 is needed")
    return int(value)


def _count_rows(name: str, lines: list[tuple[int, str]]) -> Iterator[tuple[int, int, int]]:
    """Each row's line number, second and count, checked one by one."""
    if (header := [field.lower() for field in _fields(lines[0][1])]) != ["second", "count"]:
        raise TraceError(f"{name} line {lines[0][0]}: the header is {','.join(header)!r}; second,count is needed")
    for line, text in lines[1:]:
        fields = _fields(text)
        if len(fields) != 2:
            raise TraceError(f"{name} line {line}: {_quoted(text)} has {len(fields)} columns; second,count is needed")
        count = _whole(name, line, "count", fields[1])
        if count > MAX_RATE_RPS:
            raise TraceError(f"{name} line {line}: count is {fields[1]}; at most {MAX_RATE_RPS} a second is allowed")
        yield line, _whole(name, line, "second", fields[0]), count


def _from_counts(name: str, lines: list[tuple[int, str]]) -> Trace:
    seconds: list[int] = []
    counts: list[int] = []
    for line, second, count in _count_rows(name, lines):
        if seconds and second <= seconds[-1]:
            raise TraceError(f"{name} line {line}: second {second} follows {seconds[-1]}; seconds must ascend")
        seconds.append(second)
        counts.append(count)
    if not seconds:
        raise TraceError(f"{name}: no rows below the header; a trace needs at least one second")
    _check_span(name, seconds[-1] - seconds[0])
    dense = np.zeros(seconds[-1] - seconds[0] + 1, dtype=np.int64)
    dense[np.asarray(seconds, dtype=np.int64) - seconds[0]] = counts
    return Trace(name, dense)


def _from_azure(name: str, lines: list[tuple[int, str]]) -> Trace:
    if _fields(lines[0][1])[0].lower() != "timestamp":
        raise TraceError(f"{name} line {lines[0][0]}: {_quoted(lines[0][1])} is no header beginning with TIMESTAMP")
    instants = sorted(_instant(name, line, _fields(text)[0]) for line, text in lines[1:])
    if not instants:
        raise TraceError(f"{name}: no rows below the header; a trace needs at least one request")
    # Whole microseconds: a time never moves to another second by rounding.
    return _from_times(name, [(instant - instants[0]) / timedelta(seconds=1) for instant in instants])


def _instant(name: str, line: int, text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(
            f"{name} line {line}: TIMESTAMP is {_quoted(text)}; a time like 2023-11-16 18:17:03.9799600 is needed"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _from_timestamps(name: str, lines: list[tuple[int, str]]) -> Trace:
    times = sorted(_number(name, line, "time", text.strip()) for line, text in lines)
    begin = math.floor(times[0])
    return _from_times(name, [time - begin for time in times])


def _from_times(name: str, times: list[float]) -> Trace:
    _check_span(name, times[-1])
    times_s = np.asarray(times, dtype=np.float64)
    return Trace(name, seconds_of_times(times_s, 1), times_s)


def _check_span(name: str, span_s: float) -> None:
    if span_s >= MAX_SPAN_S:
        raise TraceError(
            f"{name}: {span_s:.0f} s lie between its first and last line; at most {MAX_SPAN_S} (366 days) are allowed, "
            "and times are in seconds"
        )
