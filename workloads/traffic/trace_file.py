"""Traces from files, and the traces that are shipped. Every refusal names file, line and value.

Five kinds of file, each plain or gzipped, with commas, semicolons or tabs between cells:

====================  ====================================================  =======================
format                a row                                                 the trace begins
====================  ====================================================  =======================
``counts``            the header ``second,count``, then a second and how    at the first row's
                      many requests came in it                              second
``timestamp-counts``  a time and how many requests came from it on to the   at the first row's
                      next row's; times at a constant interval of whole     time
                      seconds
``plain-counts``      how many requests came in one second                  at the first row
``timestamps``        the time of one request                               at the first request's
                                                                            second
``azure``             the header ``TIMESTAMP,ContextTokens,                 at the first request
                      GeneratedTokens``, then a request
====================  ====================================================  =======================

Times are seconds, or dates and times of ISO 8601, or seconds, milli-, micro- or nanoseconds of the epoch. The kind is
told from the header and the rows where only one can be meant; elsewhere it has to be given.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import assert_never

import numpy as np

from executor.files import GZIP_MAGIC, gunzipped, read_input
from workloads.arrays import FloatArray, IntArray
from workloads.errors import TraceError
from workloads.traffic.arrivals import MAX_RATE_RPS, Trace, seconds_of_times
from workloads.traffic.gaps import (
    GapRuns,
    Gaps,
    described,
    interpolated,
    missing_runs,
    unusual_silences,
)
from workloads.traffic.servegen import SERVEGEN_TRACE
from workloads.traffic.trace_rows import TraceRows, quoted, trace_rows

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
    TIMESTAMP_COUNTS = "timestamp-counts"
    PLAIN_COUNTS = "plain-counts"
    AZURE = "azure"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a trace file is to be read; hashable.

    Attributes:
        format: Its kind; ``None`` tells it from header and rows.
        sort: Whether rows may stand in any order; else times out of order are refused.
        gaps: What stands for seconds without data. ``None``: refused where rows of counts are missing; where
            requests have times, a silence far from usual is named, and stays.
    """

    format: TraceFormat | None = None
    sort: bool = False
    gaps: Gaps | None = None


@cache
def shipped_trace(name: str) -> Trace:
    """The shipped trace called ``name``, with the requests' own times (to the millisecond).

    Raises:
        TraceError: With the names that are shipped.
    """
    if name not in SHIPPED:
        raise TraceError(f"no trace {name!r} is shipped; there are {', '.join(SHIPPED)}")
    raw = (files("workloads.data") / SHIPPED[name]).read_bytes()
    return _parse(name, raw, Reading(TraceFormat.TIMESTAMPS))


def read_trace(path: Path, reading: Reading | None = None) -> Trace:
    """The trace in the file; a function of its content and ``reading`` alone.

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
    return _parse(str(path), raw, reading or Reading())


def find_trace(source: str, folder: Path, reading: Reading | None = None) -> Trace:
    """The shipped trace of that name, else the trace in the file (relative to ``folder``).

    Raises:
        TraceError: As :func:`read_trace`.
    """
    return shipped_trace(source) if source in SHIPPED else read_trace(folder / source, reading)


def _parse(name: str, raw: bytes, reading: Reading) -> Trace:
    rows = trace_rows(name, _text(name, raw))
    chosen = reading.format or _format_of(rows)
    match chosen:
        case TraceFormat.COUNTS:
            return _from_counts(rows, reading)
        case TraceFormat.TIMESTAMP_COUNTS:
            return _from_timestamp_counts(rows, reading)
        case TraceFormat.PLAIN_COUNTS:
            return _from_plain_counts(rows, reading)
        case TraceFormat.AZURE:
            return _from_azure(rows, reading)
        case TraceFormat.TIMESTAMPS:
            return _from_timestamps(rows, reading)
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


# --- which kind of file it is


_AZURE_HEADER = ("timestamp", "contexttokens", "generatedtokens")
_COUNTS_HEADER = ("second", "count")

_TIME_WORDS = re.compile(
    r"(?:dates?|times?|stamps?|epoch|unix|seconds?|secs?|instant|when|utc|gmt|local|iso|start|begin"
    r"|arrival|arrived|received|created|requested|request|event|log)+|ts|t|s|at|in"
)
_SAYS_TIME = re.compile(r".*(time|date|stamp|epoch|unix|second|sec|instant|when).*|ts|t|at")
_SAYS_SECONDS = re.compile(r"s|secs?|(?:time|timestamp|epoch|unix)?seconds?")
_SUBSECOND_WORDS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("us", "usec", "usecs", "micros", "microsecond", "microseconds"), 1_000_000),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), 1_000_000_000),
}
_CALENDAR_WORDS = {"minute", "minutes", "min", "hour", "hours", "day", "days"}
_COUNT_WORDS = re.compile(
    r"(?:requests?|reqs?|quer(?:y|ies)|hits?|calls?|invocations?|arrivals?|inferences?|events?|counts?|cnt|totals?"
    r"|numbers?|num|https?|api|rpc|grpc|incoming|received|all|sum)+|n|of|the"
)
_SAYS_COUNT = re.compile(
    r".*(requests|reqs?$|queries|hits|calls|invocations|arrivals|inferences|count|cnt|total).*|n|num.*"
)
_VALUE = re.compile(r"value( #\w+)?")
"""Words of which names of columns are made, as far as they are taken without being asked: a name with any other word
(``in_flight``, ``rpm``, ``length``, ``k``) names another quantity or another unit."""


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+|[%$]", name)


def _format_of(rows: TraceRows) -> TraceFormat:
    """The one kind of file that header and rows allow.

    Raises:
        TraceError: None does, or several do; then it says what each would mean.
    """
    if rows.header is None:
        return _format_without_header(rows)
    header, name = rows.header, ",".join(rows.header)
    if header == _AZURE_HEADER:
        return TraceFormat.AZURE
    if header == _COUNTS_HEADER:
        return TraceFormat.COUNTS
    where = f"{rows.name} line {rows.n_above}: the header {quoted(name)}"
    if header[0] == _AZURE_HEADER[0] and not set(header).isdisjoint(_AZURE_HEADER[1:]):
        raise TraceError(
            f"{where} is not the full header of the Azure format, TIMESTAMP,ContextTokens,GeneratedTokens; "
            "arrivals.format: timestamps takes each row for a request all the same"
        )
    if len(header) == 1:
        if _is_time(rows, header[0]):
            return TraceFormat.TIMESTAMPS
        if _is_count(header[0]) and not rows.has_instants:
            return TraceFormat.PLAIN_COUNTS
        raise TraceError(f"{where} does not say what a row is; {_plain_readings(rows)}")
    if len(header) == 2 and (_is_time(rows, header[0]) or _hints_at_time(header[0])):
        if not _is_time(rows, header[0]):
            raise TraceError(
                f"{where} does not say what a row is: {quoted(header[0])} may be in another unit than seconds, which "
                f"every format takes it for; {_timed_readings(rows)}"
            )
        if _is_count(header[1]):
            return TraceFormat.TIMESTAMP_COUNTS
        raise TraceError(
            f"{where} does not say what a row is: {quoted(header[1])} may be no count; {_timed_readings(rows)}"
        )
    raise TraceError(
        f"{where} opens no known kind of trace; second,count or a time and a count (timestamp,requests), the full "
        "Azure header TIMESTAMP,ContextTokens,GeneratedTokens, or one column of times or counts is needed"
    )


def _is_time(rows: TraceRows, name: str) -> bool:
    """Whether the name of the first column means times in a unit that is known: seconds, or what their size tells."""
    words = _words(name)
    if rows.has_instants:
        words = ["time" if word in _CALENDAR_WORDS else word for word in words]
    elif not {"date", "dates"}.isdisjoint(words) and "time" not in words and _times(rows).min() < _EPOCH_FROM:
        return False  # A number such as 20240510.
    per_s = next((_SUBSECOND_WORDS[word] for word in words if word in _SUBSECOND_WORDS), None)
    if per_s is not None and not rows.has_instants and _ticks(rows, _times(rows))[0] != per_s:
        return False  # Their size does not say the same.
    words = [word for word in words if word not in _SUBSECOND_WORDS]
    # A server's request time is how long it took.
    is_duration = re.search(r"request(?=times?$)", "".join(words)) is not None
    is_known = all(_TIME_WORDS.fullmatch(word) for word in words)
    return is_known and not is_duration and any(_SAYS_TIME.fullmatch(word) for word in words)


def _times(rows: TraceRows) -> FloatArray:
    return rows.columns(["time", *[None] * (rows.n_columns - 1)])[:, 0]


def _hints_at_time(name: str) -> bool:
    return any(
        word in _SUBSECOND_WORDS or word in _CALENDAR_WORDS or _SAYS_TIME.fullmatch(word) for word in _words(name)
    )


def _is_count(name: str) -> bool:
    words = _words(name)
    if _VALUE.fullmatch(name):
        return True
    # Behind another word they number a request: request_no, request_number.
    is_ordinal = len(words) > 1 and words[-1] in {"n", "num", "number"}
    is_plain = re.fullmatch(r"[\w #()-]*", name) is not None
    is_known = is_plain and all(_COUNT_WORDS.fullmatch(word) for word in words)
    return is_known and not is_ordinal and any(_SAYS_COUNT.fullmatch(word) for word in words)


def _format_without_header(rows: TraceRows) -> TraceFormat:
    if rows.n_columns == 1:
        if rows.has_instants:
            return TraceFormat.TIMESTAMPS
        values = rows.columns(["time"])[:, 0]
        # Counts are whole and bounded: other numbers can only be times.
        if np.all(values == np.floor(values)) and values.max() <= MAX_RATE_RPS:
            raise TraceError(f"{rows.name}: plain numbers may be counts or times; {_plain_readings(rows)}")
        if np.all(values == np.floor(values)) and values.max() < _EPOCH_FROM:
            raise TraceError(
                f"{rows.name}: plain whole numbers up to {_shown(values.max())} do not say their unit; "
                "arrivals.format: timestamps takes them for seconds"
            )
        if np.any(np.diff(values) < 0):
            raise TraceError(
                f"{rows.name}: plain numbers that are neither whole counts nor ascending times; arrivals.format: "
                "timestamps, with arrivals.sort: true, takes them for times"
            )
        return TraceFormat.TIMESTAMPS
    if rows.n_columns == 2:
        raise TraceError(f"{rows.name}: two columns without a header; {_timed_readings(rows)}")
    line, cells = rows.row(0)
    raise TraceError(
        f"{rows.name} line {line}: {quoted(rows.separator.join(cells))} opens no known kind of trace; a header such as "
        "second,count or timestamp,requests, or one column of times is needed"
    )


def _plain_readings(rows: TraceRows) -> str:
    """What the two kinds of file with one column would make of it."""
    if rows.has_instants:
        return "arrivals.format: timestamps takes each row for a request"
    values = rows.columns(["time"])[:, 0]
    n, span_s = values.size, np.floor(values.max()) - np.floor(values.min()) + 1
    as_counts = f"arrivals.format: plain-counts makes {_shown(values.sum())} requests over {n:,} s of them"
    as_times = f"timestamps {n:,} {_requests(n)} over {_shown(span_s)} s"
    if np.any(np.diff(values) < 0):
        as_times += ", once sorted (arrivals.sort: true)"
    return f"{as_counts}, {as_times}"


def _timed_readings(rows: TraceRows) -> str:
    """What the two kinds of file with a time and a number in each row would make of it."""
    n = len(rows.columns(["time", None]))
    try:
        counts = rows.columns(["time", "count"])[:, 1]
        are_whole = bool(np.all(counts == np.floor(counts)))
    except TraceError:
        are_whole = False
    if not are_whole:
        return (
            "its second column holds no whole counts: give requests, not a rate or another quantity; or "
            f"arrivals.format: timestamps takes each row for a request, {n:,} in all"
        )
    return (
        "arrivals.format: timestamp-counts takes the second column for counts, "
        f"{_shown(counts.sum())} requests in {n:,} rows; timestamps takes each row for a request, {n:,} in all"
    )


def _requests(n: int) -> str:
    return "request" if n == 1 else "requests"


def _shown(whole: float) -> str:
    """A whole number, with all of its digits unless they are very many."""
    return f"{whole:,.0f}" if whole < 1e15 else f"{whole:.3g}"


# --- counts by row

_OFF = 0.05
"""By which part of the interval a row of counts may lie beside its place."""

_LEAST_ROWS_OF_A_TOTAL = 20
"""Fewer counts may well ascend by chance."""

_LEAST_ROWS_OF_A_NAMED_TOTAL = 5
"""The same where the column is called a total."""

_RISES_OF_A_TOTAL = 50
"""As many rises without falls are no chance, however many rows are the same as the one before."""

_FALLS_PER_RISE = 0.1
"""Counts that fall more often than this are no running total."""

_NEAR_ZERO = 0.25
"""To which part of itself a running total falls where it starts anew, at most."""


def _from_counts(rows: TraceRows, reading: Reading) -> Trace:
    if rows.header != _COUNTS_HEADER:
        line, shown = (rows.n_above, ",".join(rows.header)) if rows.header else (rows.n_above + 1, "none")
        raise TraceError(f"{rows.name} line {line}: the header is {quoted(shown)}; second,count is needed")
    table = rows.columns(["second", "count"])
    seconds = table[:, 0]
    _check_whole(rows, seconds, 0, "second")
    if seconds.max() >= _MILLISECONDS_FROM:
        line = rows.row(int(seconds.argmax()))[0]
        raise TraceError(
            f"{rows.name} line {line}: second is {_shown(seconds.max())}, which is no second; the header "
            "timestamp,count takes milliseconds of the epoch"
        )
    order = _order(rows, seconds, reading.sort, "second", strictly=True)
    places = seconds[order].astype(np.int64)
    return _dense(rows, table[:, 1], places - places[0], order, 1, reading)


def _from_timestamp_counts(rows: TraceRows, reading: Reading) -> Trace:
    time, count = rows.header if rows.header is not None and rows.n_columns == 2 else ("time", "count")
    table = rows.columns([time, count])
    times = table[:, 0]
    per_s, unit = _ticks(rows, times)
    order = _order(rows, times, reading.sort, time, strictly=True)
    ascending_s = (times[order] - times[order[0]]) / per_s
    _check_span(rows.name, float(ascending_s[-1]))
    interval_s = _interval_s(rows, ascending_s, order, float(times[order[0]]), reading)
    places = np.round(ascending_s / interval_s).astype(np.int64)
    made = _dense(rows, table[:, 1], places, order, interval_s, reading, count)
    return replace(made, notes=(*unit, *made.notes, *_unit_taken(rows, float(times[order[0]]), reading)))


def _interval_s(rows: TraceRows, ascending_s: FloatArray, order: IntArray, first: float, reading: Reading) -> int:
    """Whole seconds from one row to the next; where rows are missing, to the one after the next, and so on.

    Raises:
        TraceError: Rows lie otherwise, or half of them and more are missing.
    """
    if ascending_s.size == 1:
        return 1
    steps_s = np.diff(ascending_s)
    interval_s = max(1, round(float(steps_s.min())))
    intervals = ascending_s / interval_s
    is_off = np.abs(intervals - np.round(intervals)) > _OFF
    is_next = np.diff(np.round(intervals)) == 1
    is_none = np.diff(np.round(intervals)) == 0
    if is_off.any() or is_none.any() or (interval_s > 1 and is_next.mean() < 0.5):
        wrong = np.flatnonzero(is_off[1:] | is_none | ((interval_s > 1) & is_next))
        line, cells = rows.row(int(order[wrong[0] + 1]))
        raise TraceError(
            f"{rows.name} line {line}: {quoted(cells[0])} comes {steps_s[wrong[0]]:g} s after the row before, and the "
            f"median of all rows is {np.median(steps_s):g} s; rows of counts need one interval of whole seconds (if a "
            "row is a request: arrivals.format: timestamps)"
        )
    line, cells = rows.row(int(order[0]))
    is_thousands = interval_s % 1000 == 0
    is_hundreds = reading.format is None and interval_s >= 100 and interval_s % 60 != 0
    if (is_thousands or is_hundreds) and _is_of_unknown_unit(rows, first):
        raise TraceError(
            f"{rows.name} line {line}: rows are {interval_s:,} apart, which may be seconds or milliseconds; write "
            "dates, or seconds of the epoch"
            + (", or time_s in the header" if rows.header else "")
            + ("" if is_thousands else "; arrivals.format: timestamp-counts takes them for seconds")
        )
    return interval_s


def _from_plain_counts(rows: TraceRows, reading: Reading) -> Trace:
    if rows.n_columns != 1:
        line, cells = rows.row(0)
        raise TraceError(
            f"{rows.name} line {line}: {quoted(rows.separator.join(cells))} has {len(cells)} columns; plain-counts "
            "needs one count a line (counts and timestamp-counts have times, too)"
        )
    values = rows.columns(["count"])
    order = np.arange(len(values), dtype=np.int64)
    column = "count" if rows.header is None else rows.header[0]
    return _dense(rows, values[:, 0], order, order, 1, reading, column)


def _dense(
    rows: TraceRows,
    counts: FloatArray,
    places: IntArray,
    order: IntArray,
    interval_s: int,
    reading: Reading,
    column: str = "count",
) -> Trace:
    """The trace of counts; row ``order[i]`` stands for the ``interval_s`` seconds from ``places[i]`` intervals on."""
    most = MAX_RATE_RPS * interval_s
    _check_whole(rows, counts, -1, column)
    if counts.max() > most:
        line, cells = rows.row(int(np.flatnonzero(counts > most)[0]))
        raise TraceError(
            f"{rows.name} line {line}: {column} is {cells[-1]}; at most {MAX_RATE_RPS} a second is allowed"
        )
    _check_span(rows.name, float(places[-1]) * interval_s)
    notes = _running_total(rows, counts[order], order, column, reading)
    found = np.zeros(int(places[-1]) + 1, dtype=np.int64)
    found[places] = counts[order].astype(np.int64)
    runs = missing_runs(places)
    if runs.total:
        in_seconds = GapRuns(runs.start * interval_s, runs.length * interval_s)

        def begin(gap: int) -> str:
            line, cells = rows.row(int(order[np.searchsorted(places, runs.start[gap]) - 1]))
            return f"{cells[0]} (line {line})"

        words = described(in_seconds, found.size * interval_s, begin)
        found, word = _filled(rows.name, found, runs, reading.gaps or Gaps.REFUSE, words)
        notes.append(word)
    if interval_s > 1:
        found = _spread(found, interval_s)
        notes.append(f"a row stands for {interval_s:,} s, over which its requests are spread evenly")
    return Trace(rows.name, found, notes=tuple(notes))


def _filled(name: str, counts: IntArray, runs: GapRuns, gaps: Gaps, words: str) -> tuple[IntArray, str]:
    """The counts with gaps filled, and what was done, in words."""
    match gaps:
        case Gaps.REFUSE:
            raise TraceError(f"{name}: {words}; arrivals.gaps: zero (no requests came), interpolate or refuse")
        case Gaps.ZERO:
            return counts, f"{words}, taken as without requests"
        case Gaps.INTERPOLATE:
            filled = interpolated(counts, runs.mask(counts.size))
            return filled, f"{words}, interpolated with {int(filled.sum() - counts.sum()):,} requests"
        case _:
            assert_never(gaps)


def _spread(counts: IntArray, n: int) -> IntArray:
    """Each count as ``n`` whole numbers, as even as can be, with that sum; ``(n · n_counts,)``."""
    edges = np.zeros_like(counts)
    parts = np.empty((counts.size, n), dtype=np.int64)
    for place in range(n):
        later = (2 * counts * (place + 1) + n) // (2 * n)
        parts[:, place] = later - edges
        edges = later
    return parts.reshape(-1)


def _running_total(rows: TraceRows, counts: FloatArray, order: IntArray, column: str, reading: Reading) -> list[str]:
    """A note on counts that grow and hardly ever fall; with a given format they are taken for counts all the same.

    Raises:
        TraceError: They do, and the format was not given.
    """
    steps = np.diff(counts)
    n_rises, falls = int(np.sum(steps > 0)), np.flatnonzero(steps < 0)
    is_named = column.endswith(("total", "totals"))
    if counts.size < (_LEAST_ROWS_OF_A_NAMED_TOTAL if is_named else _LEAST_ROWS_OF_A_TOTAL) or not n_rises:
        return []
    if not is_named and n_rises < min(_RISES_OF_A_TOTAL, steps.size / 2):
        return []
    # Noise falls about as often as it rises. A total falls only where its counter starts anew, or one of several does.
    is_reset = counts[falls + 1] <= _NEAR_ZERO * counts[falls]
    if falls.size > _FALLS_PER_RISE * n_rises or not (is_named or np.all(is_reset)):
        return []
    if falls.size:
        times = "once" if falls.size == 1 else f"{falls.size:,} times"
        line, cells = rows.row(int(order[falls[0] + 1]))
        words = (
            f"the {counts.size:,} counts of {quoted(column)} fall only {times}, first to {cells[-1]} in line {line}, "
            "as those of a running total that starts anew"
        )
    else:
        words = f"its {counts.size:,} counts never fall, as those of a running total"
    if reading.format is None:
        raise TraceError(f"{rows.name}: {words}; give each row's own requests, or arrivals.format if they are that")
    return [words]


def _check_whole(rows: TraceRows, values: FloatArray, place: int, column: str) -> None:
    broken = np.flatnonzero(values != np.floor(values))
    if broken.size:
        line, cells = rows.row(int(broken[0]))
        raise TraceError(f"{rows.name} line {line}: {column} is {quoted(cells[place])}; a whole number ≥ 0 is needed")


# --- one request a row


def _from_azure(rows: TraceRows, reading: Reading) -> Trace:
    if rows.header != _AZURE_HEADER:
        line, cells = (rows.n_above, list(rows.header)) if rows.header else rows.row(0)
        raise TraceError(
            f"{rows.name} line {line}: {quoted(rows.separator.join(cells))} is not the header "
            "TIMESTAMP,ContextTokens,GeneratedTokens, which the Azure format needs in full"
        )
    times = rows.columns(["TIMESTAMP", None, None])[:, 0]
    per_s, unit = _ticks(rows, times)
    order = _order(rows, times, reading.sort, "TIMESTAMP", strictly=False)
    # In whole microseconds: a time never moves to another second by rounding.
    return _from_times(rows, (times[order] - times[order[0]]) / per_s, order, reading, unit)


def _from_timestamps(rows: TraceRows, reading: Reading) -> Trace:
    column = "time" if rows.header is None else rows.header[0]
    counted = next((name for name in (rows.header or ())[1:] if _is_count(name)), None)
    if counted is not None:
        raise TraceError(
            f"{rows.name}: timestamps takes each row for one request, but the column {quoted(counted)} seems to count "
            "them; arrivals.format: counts and timestamp-counts read such columns"
        )
    # Other columns say something of the request; only a given format gets here with any.
    others: list[str | None] = [None] * (rows.n_columns - 1)
    times = rows.columns([column, *others])[:, 0]
    per_s, unit = _ticks(rows, times)
    order = _order(rows, times, reading.sort, column, strictly=False)
    begin = math.floor(times[order[0]] / per_s) * per_s
    trace = _from_times(rows, (times[order] - begin) / per_s, order, reading, unit)
    return replace(trace, notes=(*trace.notes, *_unit_taken(rows, float(times[order[0]]), reading)))


def _from_times(
    rows: TraceRows, times_s: FloatArray, order: IntArray, reading: Reading, unit: tuple[str, ...]
) -> Trace:
    _check_span(rows.name, float(times_s[-1]))
    counts = seconds_of_times(times_s, 1)
    if counts.max() > MAX_RATE_RPS:
        raise TraceError(f"{rows.name}: {counts.max():,} requests in one second; at most {MAX_RATE_RPS:,} are allowed")
    places = unusual_silences(times_s)
    # Whole seconds inside each silence.
    start = np.floor(times_s[places]).astype(np.int64) + 1
    runs = GapRuns(start, np.floor(times_s[places + 1]).astype(np.int64) - start)
    if not runs.total:
        return Trace(rows.name, counts, times_s, unit)

    def begin(gap: int) -> str:
        line, cells = rows.row(int(order[places[gap]]))
        return f"{cells[0]} (line {line})"

    words = f"a silence far from usual: {described(runs, counts.size, begin)}"
    if reading.gaps is None:
        words += "; arrivals.gaps: zero says that none came, interpolate fills it"
        return Trace(rows.name, counts, times_s, (*unit, words))
    filled, word = _filled(rows.name, counts, runs, reading.gaps, words)
    added = filled - counts
    seconds = np.repeat(np.arange(added.size), added)
    within = np.arange(seconds.size) - np.repeat(np.cumsum(added) - added, added)
    times_s = np.sort(np.concatenate([times_s, seconds + (within + 0.5) / np.repeat(added, added)]))
    return Trace(rows.name, filled, times_s, (*unit, word))


# --- times

_EPOCH_FROM = 1e8
"""Numbers from here on are seconds of the epoch (March 1973)."""

_MILLISECONDS_FROM = 1e11
"""Numbers from here on are milliseconds of the epoch; as seconds they would lie in the year 5138."""

_UNITS = ((1e17, 1_000_000_000, "nano"), (1e14, 1_000_000, "micro"), (_MILLISECONDS_FROM, 1_000, "milli"))
"""From which number on times are of which unit, and how many of it make a second."""


def _ticks(rows: TraceRows, times: FloatArray) -> tuple[int, tuple[str, ...]]:
    """How many of the times' unit make a second, and a note on the unit where it had to be told from their size."""
    if rows.has_instants:
        return 1_000_000, ()
    for least, per_s, prefix in _UNITS:
        if times.min() >= least:
            return per_s, (f"times are taken for {prefix}seconds of the epoch",)
    return 1, ()


def _is_of_unknown_unit(rows: TraceRows, first: float) -> bool:
    """Whether neither the times' size nor their name tells their unit; ``first`` is the earliest."""
    if rows.has_instants or first >= _EPOCH_FROM:
        return False
    return rows.header is None or not any(_SAYS_SECONDS.fullmatch(word) for word in _words(rows.header[0]))


def _unit_taken(rows: TraceRows, first: float, reading: Reading) -> tuple[str, ...]:
    """A note that times are taken for seconds, where nothing says so."""
    is_taken = reading.format is None and _is_of_unknown_unit(rows, first)
    return ("times are taken for seconds, which neither their size nor a header says",) if is_taken else ()


def _order(rows: TraceRows, times: FloatArray, sort: bool, column: str, *, strictly: bool) -> IntArray:
    """The rows' order in time; ``strictly`` no time may stand twice.

    Raises:
        TraceError: Without ``sort`` a time is less than the one before it, or one stands twice that must not.
    """
    back = np.flatnonzero(np.diff(times) < 0)
    if back.size and not sort:
        (_, before), (line, cells) = rows.row(int(back[0])), rows.row(int(back[0]) + 1)
        raise TraceError(
            f"{rows.name} line {line}: {column} {cells[0]} follows {before[0]}; times must ascend, or arrivals.sort: "
            "true sorts them"
        )
    order = np.argsort(times, kind="stable") if back.size else np.arange(times.size)
    same = np.flatnonzero(np.diff(times[order]) == 0) if strictly else np.zeros(0, dtype=np.int64)
    if same.size:
        (line, cells), first = rows.row(int(order[same[0] + 1])), rows.row(int(order[same[0]]))[0]
        raise TraceError(
            f"{rows.name} line {line}: {column} {cells[0]} stands in line {first} already; a time may have one count"
        )
    return order


def _check_span(name: str, span_s: float) -> None:
    if span_s >= MAX_SPAN_S:
        raise TraceError(
            f"{name}: {_shown(span_s)} s lie between its first and last line; at most {MAX_SPAN_S} (366 days) are "
            "allowed, and times are in seconds"
        )
