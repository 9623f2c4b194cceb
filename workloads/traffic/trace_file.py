"""Traces from files, and the traces that are shipped. Every refusal names file, line and value.

Six kinds of file, each plain or gzipped, with commas, semicolons or tabs between cells:

====================  ====================================================  =======================
format                a row                                                 the trace begins
====================  ====================================================  =======================
``counts``            the header ``second,count``, then a second and how    at the first row's
                      many requests came in it                              second
``timestamp-counts``  a time and how many requests came from it on to the   at the first row's
                      next row's; times at a constant interval of whole     time
                      seconds
``rates``             a time and how many requests came a second from it    as ``timestamp-counts``
                      on to the next row's
``plain-counts``      how many requests came in one second                  at the first row
``timestamps``        the time of one request                               at the first request's
                                                                            second
``azure``             the header ``TIMESTAMP,ContextTokens,                 at the first request
                      GeneratedTokens``, then a request
====================  ====================================================  =======================

Times are as :mod:`workloads.traffic.trace_times` has them. The kind follows from the header and the rows where only one
can be meant; elsewhere it has to be given. Answers of Prometheus and JSON lines are read as such rows of one of their
series. A cell without a number is a stretch without data.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import assert_never

import numpy as np

from executor.files import GZIP_MAGIC, alike_to, gunzipped, read_input, read_shipped
from executor.names import nearest
from workloads.arrays import FloatArray, IntArray
from workloads.errors import TraceError
from workloads.traffic import json_lines, prometheus
from workloads.traffic.arrivals import MAX_RATE_RPS, Trace, seconds_of_times
from workloads.traffic.gaps import (
    GapRuns,
    Gaps,
    described,
    interpolated,
    missing_runs,
    unusual_silences,
)
from workloads.traffic.quantities import Quantity, quantity_of, range_s
from workloads.traffic.servegen import SERVEGEN_TRACE
from workloads.traffic.trace_rows import TraceRows, is_number, listed, place_of, quoted, trace_rows
from workloads.traffic.trace_times import (
    EPOCH_FROM,
    MAX_SPAN_S,
    MILLISECONDS_FROM,
    Times,
    TimeUnit,
    dates_in_digits,
    hints_at_time,
    names_date,
    names_time,
    odd_unit,
    other_readings,
    times_in,
)

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


class TraceFormat(StrEnum):
    """The kinds of trace file."""

    COUNTS = "counts"
    TIMESTAMP_COUNTS = "timestamp-counts"
    RATES = "rates"
    PLAIN_COUNTS = "plain-counts"
    AZURE = "azure"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a trace file is to be read; hashable.

    Attributes:
        format: Its kind; ``None`` tells it from header and rows.
        sort: Whether rows may be in any order; else times out of order are refused.
        gaps: What stands for seconds without data. ``None``: refused where rows of counts are missing; where
            requests have times, a silence far from usual is named, and stays.
        column: The series that is read, of those beside the times; ``None`` where there is but one.
        unit: What times count, where they are no dates; ``None`` tells it from their size and name.
        time_column: The column of the times; ``None``: the first.
    """

    format: TraceFormat | None = None
    sort: bool = False
    gaps: Gaps | None = None
    column: str | None = None
    unit: TimeUnit | None = None
    time_column: str | None = None

    @property
    def has_times_named(self) -> bool:
        """Whether the config says that a column holds times."""
        return self.unit is not None or self.time_column is not None


@cache
def shipped_trace(name: str) -> Trace:
    """The shipped trace called ``name``, with the requests' own times (to the millisecond).

    Raises:
        TraceError: With the names that are shipped.
    """
    if name not in SHIPPED:
        raise TraceError(f"no trace {name!r} is shipped; there are {', '.join(SHIPPED)}")
    raw = read_shipped("workloads.data", SHIPPED[name])
    return _parse(name, raw, Reading(TraceFormat.TIMESTAMPS, unit=TimeUnit.S))


def read_trace(path: Path, reading: Reading | None = None) -> Trace:
    """The trace in the file; a function of its content and ``reading`` alone.

    Raises:
        TraceError: No such file, or what it holds is no trace; names file, line, value and what is allowed.
    """
    try:
        raw = read_input(path)
    except FileNotFoundError:
        known = (*SHIPPED, SERVEGEN_TRACE)
        meant = nearest(path.name, known)
        hint = alike_to(path) or (f" (did you mean {meant}?)" if meant else f"; shipped traces: {', '.join(known)}")
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
    text = _text(name, raw)
    if json_lines.is_json_lines(text):
        table = json_lines.as_table(name, text, reading.column, reading.time_column)
        return _trace_of(trace_rows(name, table, n_made=1), reading)
    if json_lines.is_json_array(text):
        raise TraceError(f"{name}: a list of JSON; lines with an object each are needed: jq -c '.[]' makes them of it")
    if not prometheus.is_json(text):
        return _trace_of(trace_rows(name, text, reading.column, reading.time_column), reading)
    if reading.has_times_named:
        key = "unit" if reading.time_column is None else "time_column"
        raise TraceError(f"{name}: arrivals.{key} is of tables and JSON lines; Prometheus' answers say their times")
    table, warnings = prometheus.as_table(name, text, reading.column)
    trace = _trace_of(trace_rows(f"{name} as CSV", table), reading)
    return replace(trace, name=name, notes=(*warnings, *trace.notes))


def _trace_of(rows: TraceRows, reading: Reading) -> Trace:
    chosen = reading.format or _format_of(rows, reading)
    match chosen:
        case TraceFormat.COUNTS:
            return _from_counts(rows, reading)
        case TraceFormat.TIMESTAMP_COUNTS | TraceFormat.RATES:
            return _from_steps(rows, reading, chosen)
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
        plain = gunzipped(raw) if raw.startswith(GZIP_MAGIC) else raw
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror}") from None
    if (nul := plain.find(b"\0")) >= 0:
        raise TraceError(f"{name}: not a text file: a NUL character at byte {nul}; UTF-8 is needed")
    try:
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{name}: not a text file: {error.reason} at byte {error.start}; UTF-8 is needed") from None


# --- which kind of file it is


_AZURE_HEADER = ("timestamp", "contexttokens", "generatedtokens")
_COUNTS_HEADER = ("second", "count")

_ACCESS_LOG = re.compile(r"\[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d")


def _format_of(rows: TraceRows, reading: Reading) -> TraceFormat:
    """The one kind of file that header and rows allow.

    Raises:
        TraceError: None does, or several do; then it says what each would mean.
    """
    if rows.header is None:
        return _format_without_header(rows, reading)
    header, name = rows.header, ",".join(rows.header)
    if header == _AZURE_HEADER:
        return TraceFormat.AZURE
    if header == _COUNTS_HEADER:
        return TraceFormat.COUNTS
    where = f"{rows.name} line {rows.n_above}: the header {quoted(name)}"
    if _ACCESS_LOG.search(name):
        raise TraceError(f"{rows.name}: an access log, of which the times are needed; docs/traces.md has the command")
    if header[0] == _AZURE_HEADER[0] and not set(header).isdisjoint(_AZURE_HEADER[1:]):
        raise TraceError(
            f"{where} is not the full header of the Azure format, TIMESTAMP,ContextTokens,GeneratedTokens; "
            "arrivals.format: timestamps takes each row for a request all the same"
        )
    is_time = _is_time(rows, reading)
    if len(header) == 1 and is_time:
        return TraceFormat.TIMESTAMPS
    if len(header) == 1 and (rows.has_instants or is_number(rows.row(0)[1][0])):
        return _format_of_plain_numbers(rows, where)
    if len(header) == 2 and is_time:
        return _format_of_values(rows, header[1], where, reading)
    if len(header) == 2 and hints_at_time(header[0]):
        raise TraceError(
            f"{where} does not say what a row is: {quoted(header[0])} may be in another unit than seconds "
            f"(arrivals.unit says ms, us or ns), which every format takes it for; {_timed_readings(rows, reading)}"
        )
    if len(header) > 2 and is_time:
        _refuse_requests_or_series(rows, reading)
    raise TraceError(f"{where} opens no known kind of trace; {_needed_instead(rows)}; see docs/traces.md")


def _format_of_plain_numbers(rows: TraceRows, where: str) -> TraceFormat:
    """That of a column of numbers whose name means no time.

    Raises:
        TraceError: Nor does it mean counts.
    """
    name = rows.header[0] if rows.header else ""
    is_count = quantity_of(name) is Quantity.COUNT or name.startswith("value")
    if is_count and not rows.has_instants:
        return TraceFormat.PLAIN_COUNTS
    raise TraceError(f"{where} does not say what a row is; {_plain_readings(rows)}")


def _needed_instead(rows: TraceRows) -> str:
    """What would make a trace of a table whose first column has no times."""
    times = [name for name in rows.series if names_time(name.lower(), of_instants=True)]
    if times and not rows.time:
        return (
            f"the time comes first: put {quoted(times[0])} before the others, or say arrivals.time_column: {times[0]}"
        )
    return (
        "second,count or a time and a count (timestamp,requests), the full Azure header "
        "TIMESTAMP,ContextTokens,GeneratedTokens, or one column of times or counts is needed (arrivals.time_column "
        "names a column of times)"
    )


def _refuse_several(rows: TraceRows) -> None:
    """Raises TraceError: There are several series, and none is chosen."""
    if rows.names is not None and rows.n_columns > 2:
        place_of(rows.name, [(name,) for name in rows.series], None)


def _refuse_requests_or_series(rows: TraceRows, reading: Reading) -> None:
    """Refuse a time beside several columns, which may say something of a request each, or be series.

    Raises:
        TraceError: With what reads it; first what the names of the columns and the rows' distances speak for.
    """
    if any(quantity_of(name.lower()) in (Quantity.COUNT, Quantity.RATE) for name in rows.series):
        _refuse_several(rows)
    times = times_in(rows, _raw_times(rows), reading.unit)
    as_requests = f"arrivals.format: timestamps takes each row for a request, {times.values.size:,} in all"
    if doubt := None if times.is_told else other_readings(times.values.size, float(np.ptp(times.values))):
        as_requests += f" ({doubt})"
    as_series = f"arrivals.column names the one of {listed(rows.series)} that counts requests, or is their rate"
    first, second = (as_series, as_requests) if _are_at_an_interval(times) else (as_requests, as_series)
    raise TraceError(f"{rows.name}: it has {len(rows.series)} columns beside the time: {first}; or {second}")


def _are_at_an_interval(times: Times) -> bool:
    """Whether nearly all rows follow one another at one distance of whole seconds."""
    steps = np.diff(times.values) / times.per_s
    if not steps.size or steps.min() <= 0:
        return False
    usual = float(np.median(steps))
    return round(usual) >= 1 and bool(np.mean(np.abs(steps - round(usual)) <= _OFF * usual) > 0.9)


def _format_of_values(rows: TraceRows, name: str, where: str, reading: Reading) -> TraceFormat:
    """Whether the column beside the times holds counts or rates, as its name says or as both come to the same.

    Raises:
        TraceError: Neither; it says what each possible reading would come to.
    """
    quantity = quantity_of(name)
    match quantity:
        case Quantity.COUNT:
            return TraceFormat.TIMESTAMP_COUNTS
        case Quantity.RATE:
            return TraceFormat.RATES
        case Quantity.TOTAL:
            raise TraceError(f"{where} names a running total; export its rate(…), or give arrivals.format")
        case Quantity.INCREASE:
            interval_s = _steps(rows, replace(reading, format=None, sort=True)).interval_s
            if range_s(name) == interval_s:
                return TraceFormat.TIMESTAMP_COUNTS
            raise TraceError(
                f"{where}: rows are {interval_s:,} s apart, so that an increase over another time does not count each "
                "request once; export rate(…), or the increase over that interval"
            )
        case Quantity.UNSAID:
            steps = _steps(rows, replace(reading, format=None, sort=True))
            if steps.values.size > 1 and steps.interval_s == 1 and steps.are_whole:
                return TraceFormat.TIMESTAMP_COUNTS
            _running_total(rows, steps.values, steps.order, name, Reading())
            says = f"does not say whether {quoted(name)} counts requests or is a rate"
            raise TraceError(f"{where} {says}; {_readings(steps)}")
        case Quantity.OTHER:
            says = f"does not say what a row is: {quoted(name)} may be no count, or of another unit"
            raise TraceError(f"{where} {says}; {_timed_readings(rows, reading)}")
        case _:
            assert_never(quantity)


def _is_time(rows: TraceRows, reading: Reading) -> bool:
    """Whether the first column has times in a unit that is known: the config says it has, or its name does."""
    name = rows.header[0] if rows.header else ""
    if reading.has_times_named:
        return quantity_of(name) in (Quantity.OTHER, Quantity.UNSAID)
    if names_date(name) and not rows.has_instants:
        numbers = _raw_times(rows)
        if numbers.min() < EPOCH_FROM and dates_in_digits(numbers) is None:
            return False  # A number such as 17.
    return names_time(name, of_instants=rows.has_instants)


def _raw_times(rows: TraceRows, name: str = "time") -> FloatArray:
    """The numbers of the times' column, of dates microseconds of the epoch; ``(n_rows,)``. Messages say ``name``."""
    return rows.columns([name, *[None] * (rows.n_columns - 1)])[:, 0]


def _format_without_header(rows: TraceRows, reading: Reading) -> TraceFormat:
    if rows.n_columns == 1:
        if rows.has_instants or reading.unit is not None:
            return TraceFormat.TIMESTAMPS
        values = rows.columns(["time"])[:, 0]
        if dates_in_digits(values) is not None:
            return TraceFormat.TIMESTAMPS
        # Counts are whole and bounded: other numbers can only be times.
        if np.all(values == np.floor(values)) and values.max() <= MAX_RATE_RPS:
            raise TraceError(f"{rows.name}: plain numbers may be counts or times; {_plain_readings(rows)}")
        if np.all(values == np.floor(values)) and values.max() < EPOCH_FROM:
            raise TraceError(
                f"{rows.name}: plain whole numbers up to {_shown(values.max())} do not say their unit; "
                "arrivals.unit says it: s, ms, us or ns"
            )
        if np.any(np.diff(values) < 0):
            raise TraceError(
                f"{rows.name}: plain numbers that are neither whole counts nor ascending times; arrivals.format: "
                "timestamps, with arrivals.sort: true, takes them for times"
            )
        return TraceFormat.TIMESTAMPS
    if rows.n_columns == 2:
        raise TraceError(f"{rows.name}: two columns without a header; {_timed_readings(rows, reading)}")
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


def _timed_readings(rows: TraceRows, reading: Reading) -> str:
    """What each kind of file with a time and a number in each row would make of it."""
    n = len(rows.columns(["time", None]))
    as_times = f"timestamps takes each row for a request, {n:,} in all"
    try:
        return f"{_readings(_steps(rows, replace(reading, format=None, sort=True)))}; {as_times}"
    except TraceError:
        return (
            "its second column holds no counts or rates at one interval of whole seconds: give requests, not another "
            f"quantity; or arrivals.format: {as_times}"
        )


def _readings(steps: _Steps) -> str:
    """What a column of numbers beside times comes to as counts and as rates."""
    n = steps.values.size
    with np.errstate(over="ignore"):
        total = float(np.nansum(steps.values))
    as_counts = f"as counts, {_shown(total)} requests, they would have to be whole (not increase(…): export rate(…))"
    if steps.are_whole:
        as_counts = f"arrivals.format: timestamp-counts takes its numbers for counts, {_shown(total)} requests"
    if n < 2:
        return as_counts
    requests = _shown(total * steps.interval_s)
    as_rates = f"rates takes them for requests a second over {steps.interval_s:,} s each, {requests} requests"
    return f"{as_counts}; {as_rates}" if steps.are_whole else f"arrivals.format: {as_rates}; {as_counts}"


def _requests(n: int) -> str:
    return "request" if n == 1 else "requests"


def _shown(whole: float) -> str:
    """A whole number, with all of its digits unless they are very many."""
    return f"{whole:,.0f}" if whole < 1e15 else f"{whole:.3g}"


# --- counts and rates by row

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
    _refuse_unit(rows, reading, "the header second,count says seconds")
    table = rows.columns(["second", "count"], blanks=True)
    seconds = table[:, 0]
    _check_whole(rows, seconds, 0, "second")
    if seconds.max() >= MILLISECONDS_FROM or dates_in_digits(seconds) is not None:
        line = rows.row(int(seconds.argmax()))[0]
        kind = "milliseconds of the epoch" if dates_in_digits(seconds) is None else "dates"
        raise TraceError(
            f"{rows.name} line {line}: second is {_shown(seconds.max())}, which is no second; the header "
            f"timestamp,count takes {kind}"
        )
    order = _order(rows, seconds, reading.sort, "second", strictly=True)
    places = seconds[order].astype(np.int64)
    made = _dense(rows, table[:, 1], places - places[0], order, 1, reading)
    return replace(made, last_s=_last_s(rows, Times(seconds, 1), order))


def _refuse_unit(rows: TraceRows, reading: Reading, why: str) -> None:
    """Raises TraceError: A unit is given, other than seconds, where there is none to give."""
    if reading.unit not in (None, TimeUnit.S):
        raise TraceError(f"{rows.name}: arrivals.unit is {reading.unit}; {why}; leave it out")


@dataclass(frozen=True, slots=True)
class _Steps:
    """Rows of a time and a number at one interval.

    Attributes:
        values: The numbers in the file's order, NaN where a cell holds none, ``(n_rows,)``.
        order: The rows' order in time, ``(n_rows,)``.
        places: How many intervals after the first each row lies, ascending, ``(n_rows,)``.
        interval_s: From one row to the next.
        notes: What was taken for granted of the times.
        last_s: As :class:`~workloads.traffic.arrivals.Trace` has it.
    """

    values: FloatArray
    order: IntArray
    places: IntArray
    interval_s: int
    notes: tuple[str, ...]
    last_s: float | None

    @property
    def are_whole(self) -> bool:
        """Whether no value has a fraction."""
        known = self.values[~np.isnan(self.values)]
        return bool(np.all(known == np.floor(known)))


def _steps(rows: TraceRows, reading: Reading) -> _Steps:
    """The rows, read.

    Raises:
        TraceError: Cells are no times and numbers, or times lie out of order, twice, or at no interval.
    """
    _refuse_several(rows)
    time, value = rows.header if rows.header is not None and rows.n_columns == 2 else ("time", "count")
    table = rows.columns([time, value], blanks=True)
    times = times_in(rows, table[:, 0], reading.unit)
    order = _order(rows, times.values, reading.sort, time, strictly=True)
    ascending_s = (times.values[order] - times.values[order[0]]) / times.per_s
    _check_span(rows.name, float(ascending_s[-1]), times)
    interval_s, odd = _interval_s(rows, ascending_s, order, times, reading, table[:, 1])
    places = np.round(ascending_s / interval_s).astype(np.int64)
    notes = (*times.notes, *odd, *_unit_taken(times))
    return _Steps(table[:, 1], order, places, interval_s, notes, _last_s(rows, times, order))


def _from_steps(rows: TraceRows, reading: Reading, chosen: TraceFormat) -> Trace:
    steps = _steps(rows, reading)
    name = "count" if rows.header is None else rows.header[1]
    values, notes = steps.values, list(steps.notes)
    told = {Quantity.COUNT: TraceFormat.TIMESTAMP_COUNTS, Quantity.RATE: TraceFormat.RATES}.get(
        quantity_of(name), chosen
    )
    if told is not chosen and steps.interval_s > 1:
        notes.append(f"the header {quoted(name)} says {told}; taken for {chosen}, as arrivals.format has it")
    if chosen is TraceFormat.RATES:
        if values.size < 2:
            raise TraceError(f"{rows.name}: one row does not say for how long its rate holds; two are needed")
        _refuse_totals(rows, steps, name)
        if (range_s(name) or steps.interval_s) < steps.interval_s:
            notes.append(f"{quoted(name)} looks back for less than the {steps.interval_s:,} s between rows")
        values = _requests_of_rates(rows, steps, name)
        reading = replace(reading, format=TraceFormat.TIMESTAMP_COUNTS)
    made = _dense(rows, values, steps.places, steps.order, steps.interval_s, reading, name)
    return replace(made, notes=(*made.notes, *notes), last_s=steps.last_s)


def _refuse_totals(rows: TraceRows, steps: _Steps, column: str) -> None:
    """Refuse a running total among rates: by its name, or by whole numbers that hardly ever fall.

    Rates that look far back rise without a fall as well, but have fractions.

    Raises:
        TraceError: It is one.
    """
    quantity = quantity_of(column)
    if quantity is Quantity.TOTAL:
        raise TraceError(f"{rows.name}: {quoted(column)} names a running total; rates takes its rate(…)")
    if steps.are_whole and quantity is not Quantity.RATE:
        _running_total(rows, steps.values, steps.order, column, Reading(TraceFormat.RATES))


def _requests_of_rates(rows: TraceRows, steps: _Steps, column: str) -> FloatArray:
    """Whole requests of each row: what rounding leaves is carried on, so that the sum is that of the rates, rounded."""
    _check_most(rows, steps.values, MAX_RATE_RPS, column)
    known = steps.order[~np.isnan(steps.values[steps.order])]
    requests = np.full_like(steps.values, np.nan)
    requests[known] = np.diff(np.round(np.cumsum(steps.values[known] * steps.interval_s)), prepend=0.0)
    return requests


def _interval_s(
    rows: TraceRows, ascending_s: FloatArray, order: IntArray, times: Times, reading: Reading, values: FloatArray
) -> tuple[int, tuple[str, ...]]:
    """Whole seconds from one row to the next, and a note where a unit that is given makes them doubtful.

    Where rows are missing, it is the distance to the one after the next, and so on.

    Raises:
        TraceError: Rows lie otherwise, half of them and more are missing, or the unit is doubtful.
    """
    if ascending_s.size == 1:
        return 1, ()
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
            f"median of all rows is {np.median(steps_s):g} s; rows of counts or rates need one interval of whole "
            "seconds (if a row is a request: arrivals.format: timestamps"
            + (f"; arrivals.unit is {times.given})" if times.given else ")")
        )
    is_thousands = interval_s % 1000 == 0
    is_hundreds = reading.format is None and interval_s >= 100 and interval_s % 60 != 0
    if (is_thousands or is_hundreds) and not times.is_told:
        line, _ = rows.row(int(order[0]))
        readings = "seconds or milliseconds"
        if is_thousands:
            total = _shown(float(np.nansum(values)))
            span_s = _shown(ascending_s[-1] + interval_s), _shown((ascending_s[-1] + interval_s) / 1000)
            readings += f" ({total} over {span_s[0]} s, or over {span_s[1]} s)"
        raise TraceError(
            f"{rows.name} line {line}: rows are {interval_s:,} apart, which may be {readings}; arrivals.unit: s or ms "
            "says which, as dates do"
            + (", or time_s in the header" if rows.header else "")
            + ("" if is_thousands else "; arrivals.format: timestamp-counts takes them for seconds")
        )
    if is_thousands and times.given is not None and not times.notes:
        made = f"arrivals.unit: {times.given} makes rows {interval_s:,} s apart"
        return interval_s, (f"{made}; a unit a thousandth of it would make them {interval_s // 1000:,} s apart",)
    return interval_s, ()


def _from_plain_counts(rows: TraceRows, reading: Reading) -> Trace:
    _refuse_unit(rows, reading, "plain-counts has no times")
    if rows.n_columns != 1:
        line, cells = rows.row(0)
        raise TraceError(
            f"{rows.name} line {line}: {quoted(rows.separator.join(cells))} has {len(cells)} columns; plain-counts "
            "needs one count a line (counts and timestamp-counts have times, too)"
        )
    values = rows.columns(["count"], blanks=True)
    order = np.arange(len(values), dtype=np.int64)
    column = "count" if rows.header is None else rows.header[0]
    # A cell that holds nothing is a blank line here.
    lines = np.array([line for line, _ in rows.rows()]) if rows.has_blank_lines else order
    return _dense(rows, values[:, 0], lines - lines[0], order, 1, reading, column)


def _dense(
    rows: TraceRows,
    counts: FloatArray,
    places: IntArray,
    order: IntArray,
    interval_s: int,
    reading: Reading,
    column: str = "count",
) -> Trace:
    """The trace of counts; row ``order[i]`` stands for the ``interval_s`` seconds from ``places[i]`` intervals on.

    Of rows whose count is NaN as little is known as of rows that are not there.
    """
    _check_whole(rows, counts, -1, column)
    _check_most(rows, counts, MAX_RATE_RPS * interval_s, column)
    _check_span(rows.name, float(places[-1]) * interval_s, None)
    notes = _running_total(rows, counts, order, column, reading)
    found = np.full(int(places[-1]) + 1, np.nan)
    found[places] = counts[order]
    runs = missing_runs(np.isnan(found))
    if runs.total == found.size:
        raise TraceError(f"{rows.name}: no row of {quoted(column)} holds a number; one at least is needed")
    found = np.nan_to_num(found).astype(np.int64)
    if runs.total:
        in_seconds = GapRuns(runs.start * interval_s, runs.length * interval_s)

        def begin(gap: int) -> str:
            row = int(np.searchsorted(places, runs.start[gap]))
            line, cells = rows.row(int(order[max(0, row - 1)]))
            return f"{'after' if row else 'from'} {cells[0]} (line {line}){'' if row else ' on'}"

        words = described(in_seconds, found.size * interval_s, begin)
        found, word = _filled(rows.name, found, runs, reading.gaps or Gaps.REFUSE, words, interval_s)
        notes.append(word)
    if interval_s > 1:
        found = _spread(found, interval_s)
        notes.append(f"a row stands for {interval_s:,} s, over which its requests are spread evenly")
    return Trace(rows.name, found, notes=tuple(notes))


def _filled(
    name: str, counts: IntArray, runs: GapRuns, gaps: Gaps, words: str, interval_s: int = 1
) -> tuple[IntArray, str]:
    """The counts with gaps filled, and what was done, in words."""
    match gaps:
        case Gaps.REFUSE:
            raise TraceError(f"{name}: {words}; arrivals.gaps: zero (no requests came), interpolate or refuse")
        case Gaps.ZERO:
            return counts, f"{words}, taken as without requests"
        case Gaps.INTERPOLATE:
            filled = interpolated(counts, runs.mask(counts.size), interval_s)
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
    """A note on counts (in the file's order) that hardly ever fall; with a given format they are taken for counts.

    Raises:
        TraceError: They do, and the format was not given, or is that of rates.
    """
    order = order[~np.isnan(counts[order])]
    counts = counts[order]
    steps = np.diff(counts)
    n_rises, falls = int(np.sum(steps > 0)), np.flatnonzero(steps < 0)
    is_named = column.endswith(("total", "totals"))
    if counts.size < (_LEAST_ROWS_OF_A_NAMED_TOTAL if is_named else _LEAST_ROWS_OF_A_TOTAL):
        return []
    # A counter that is called a total may rest, and so may a rate.
    if not n_rises and not (is_named and counts.any() and reading.format is not TraceFormat.RATES):
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
            f"the {counts.size:,} values of {quoted(column)} fall only {times}, first to {cells[-1]} in line {line}, "
            "as those of a running total that starts anew"
        )
    else:
        words = f"its {counts.size:,} values never fall, as those of a running total"
    if reading.format is None:
        raise TraceError(
            f"{rows.name}: {words}; give each row's own requests (of a counter its rate(…)), or arrivals.format if "
            "they are that"
        )
    if reading.format is TraceFormat.RATES:
        raise TraceError(f"{rows.name}: {words}; rates takes a counter's rate(…), or a column called req/s")
    return [words]


def _check_whole(rows: TraceRows, values: FloatArray, place: int, column: str) -> None:
    broken = np.flatnonzero((values != np.floor(values)) & ~np.isnan(values))
    if broken.size:
        line, cells = rows.row(int(broken[0]))
        hint = "" if column == "second" else " (rate(…), requests a second: arrivals.format: rates)"
        raise TraceError(
            f"{rows.name} line {line}: {column} is {quoted(cells[place])}; a whole number ≥ 0 is needed{hint}"
        )


def _check_most(rows: TraceRows, values: FloatArray, most: float, column: str) -> None:
    above = np.flatnonzero(values > most)
    if above.size:
        line, cells = rows.row(int(above[0]))
        raise TraceError(
            f"{rows.name} line {line}: {column} is {cells[-1]}; at most {MAX_RATE_RPS} a second is allowed"
        )


# --- one request a row


def _from_azure(rows: TraceRows, reading: Reading) -> Trace:
    if rows.header != _AZURE_HEADER:
        line, cells = (rows.n_above, list(rows.header)) if rows.header else rows.row(0)
        raise TraceError(
            f"{rows.name} line {line}: {quoted(rows.separator.join(cells))} is not the header "
            "TIMESTAMP,ContextTokens,GeneratedTokens, which the Azure format needs in full"
        )
    times = times_in(rows, _raw_times(rows, "TIMESTAMP"), reading.unit)
    order = _order(rows, times.values, reading.sort, "TIMESTAMP", strictly=False)
    # In whole microseconds: a time never moves to another second by rounding.
    return _from_times(rows, times, order, float(times.values[order[0]]), reading)


def _from_timestamps(rows: TraceRows, reading: Reading) -> Trace:
    column = "time" if rows.header is None else rows.header[0]
    others = [name for name in (rows.header or ())[1:] if name]
    counted = next((name for name in others if quantity_of(name) is not Quantity.OTHER), None)
    if counted is not None:
        raise TraceError(
            f"{rows.name}: timestamps takes each row for one request, but the column {quoted(counted)} seems to count "
            "them; arrivals.format: counts, timestamp-counts and rates read such columns"
        )
    # Other columns say something of the request; only a given format gets here with any.
    raw = _raw_times(rows, column)
    _refuse_rows_of_metrics(rows)
    times = times_in(rows, raw, reading.unit)
    order = _order(rows, times.values, reading.sort, column, strictly=False)
    begin = math.floor(times.values[order[0]] / times.per_s) * times.per_s
    return _from_times(rows, times, order, begin, reading)


_METRICS = ("metric_name", "metric", "measurement", "_measurement", "_field")
"""How load generators and databases call the column that says which figure of a request a row is."""


def _refuse_rows_of_metrics(rows: TraceRows) -> None:
    """Refuse a table with rows for several figures of each request, which are not as many requests.

    Raises:
        TraceError: It is one.
    """
    header = ["", *(name.lower() for name in rows.series)]
    place = next((header.index(name) for name in _METRICS if name in header), None)
    if place is None:
        return
    every = replace(rows, chosen=None)
    found = dict.fromkeys(cells[place] for _, cells in every.rows())
    if len(found) > 1:
        shown = ", ".join([*found][:4]) + (" …" if len(found) > 4 else "")
        raise TraceError(
            f"{rows.name}: the rows are of {len(found):,} figures, by {quoted(header[place])} ({shown}), so that not "
            "each is a request; keep those of one that has a row a request, as http_reqs of k6; see docs/traces.md"
        )


def _from_times(rows: TraceRows, times: Times, order: IntArray, begin: float, reading: Reading) -> Trace:
    """The trace of requests at the times, in their ``order``, which begins at the time ``begin``."""
    times_s = (times.values[order] - begin) / times.per_s
    span_s = float(times_s[-1] - times_s[0])
    doubt = None if times.is_told else other_readings(times_s.size, span_s)
    if doubt:
        raise TraceError(f"{rows.name}: its times do not say their unit: {doubt}")
    _check_span(rows.name, float(times_s[-1]), times)
    odd = () if times.given is None or times.notes else odd_unit(times_s.size, span_s, times.given)
    counts = seconds_of_times(times_s, 1)
    if counts.max() > MAX_RATE_RPS:
        raise TraceError(f"{rows.name}: {counts.max():,} requests in one second; at most {MAX_RATE_RPS:,} are allowed")
    trace = _without_silences(rows, Trace(rows.name, counts, times_s), order, reading)
    notes = (*times.notes, *odd, *trace.notes, *_unit_taken(times))
    return replace(trace, notes=notes, last_s=_last_s(rows, times, order))


def _without_silences(rows: TraceRows, trace: Trace, order: IntArray, reading: Reading) -> Trace:
    """The trace with silences far from usual named, and filled as asked."""
    counts, times_s = trace.counts, trace.times_s
    assert times_s is not None
    places = unusual_silences(times_s)
    # Whole seconds inside each silence.
    start = np.floor(times_s[places]).astype(np.int64) + 1
    runs = GapRuns(start, np.floor(times_s[places + 1]).astype(np.int64) - start)
    if not runs.total:
        return trace

    def begin(gap: int) -> str:
        line, cells = rows.row(int(order[places[gap]]))
        return f"after {cells[0]} (line {line})"

    words = f"a silence far from usual: {described(runs, counts.size, begin)}"
    if reading.gaps is None:
        words += "; arrivals.gaps: zero says that none came, interpolate fills it"
        return replace(trace, notes=(words,))
    filled, word = _filled(rows.name, counts, runs, reading.gaps, words)
    added = filled - counts
    seconds = np.repeat(np.arange(added.size), added)
    within = np.arange(seconds.size) - np.repeat(np.cumsum(added) - added, added)
    times_s = np.sort(np.concatenate([times_s, seconds + (within + 0.5) / np.repeat(added, added)]))
    return Trace(rows.name, filled, times_s, (word,))


# --- times

_EASTERNMOST_S = 14 * 3600.0
"""By how much the clocks of a time zone are ahead of UTC at most."""


def _last_s(rows: TraceRows, times: Times, order: IntArray) -> float | None:
    """The Unix time of the last row, at the earliest: dates without a zone may be of any."""
    last_s = float(times.values[order[-1]]) / times.per_s
    if times.per_s == 1_000_000 and not rows.has_zone:  # as dates have it
        last_s -= _EASTERNMOST_S
    return last_s if last_s >= EPOCH_FROM else None


def _unit_taken(times: Times) -> tuple[str, ...]:
    """A note that times are taken for seconds, where nothing says so."""
    return (
        ()
        if times.is_told
        else ("times are taken for seconds, which neither their size nor a header says (arrivals.unit: s does)",)
    )


def _order(rows: TraceRows, times: FloatArray, sort: bool, column: str, *, strictly: bool) -> IntArray:
    """The rows' order in time; ``strictly`` no time comes twice.

    Raises:
        TraceError: Without ``sort`` a time is less than the one before it, or one comes twice that must not.
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
            f"{rows.name} line {line}: {column} {cells[0]} is in line {first} already; a time may have one count"
        )
    return order


def _check_span(name: str, span_s: float, times: Times | None) -> None:
    """Refuse what is longer than :data:`MAX_SPAN_S`.

    Raises:
        TraceError: It is; says what to do about the unit, where there are ``times``.
    """
    if span_s >= MAX_SPAN_S:
        hint = "times are in seconds"
        if times is not None and times.given is not None:
            hint = f"arrivals.unit is {times.given}"
        elif times is not None and not times.is_told:
            hint = "times are taken for seconds (arrivals.unit: ms, us or ns)"
        raise TraceError(
            f"{name}: {_shown(span_s)} s lie between its first and last line; at most {MAX_SPAN_S} (366 days) are "
            f"allowed, and {hint}"
        )
