"""The times of a trace's rows: in which unit they are, by config, header or size; and dates written as bare digits.

What tells the unit, first to last: ISO 8601, ``arrivals.unit``, digits that read as dates, the size of times of the
epoch, the name of the column. Where nothing does, times are seconds, unless that is doubtful (:func:`other_readings`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from workloads.arrays import FloatArray
from workloads.errors import TraceError
from workloads.traffic.quantities import words_of
from workloads.traffic.trace_rows import TraceRows, quoted

MAX_SPAN_S = 366 * 86_400
"""Longest trace. A longer one is a wrong unit (milliseconds) or a wrong line."""


class TimeUnit(StrEnum):
    """What a trace's times count, from the epoch or any other begin."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"

    @property
    def per_s(self) -> int:
        """How many make a second."""
        return {TimeUnit.S: 1, TimeUnit.MS: 1_000, TimeUnit.US: 1_000_000, TimeUnit.NS: 1_000_000_000}[self]

    @property
    def words(self) -> str:
        """Its name in messages."""
        return {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[self.value]


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a trace's rows.

    Attributes:
        values: In the file's order, ``(n_rows,)``.
        per_s: How many of their unit make a second.
        notes: What follows from their size, or speaks against the unit that was given.
        is_told: Whether anything says the unit; else it was taken for seconds.
        given: The config's unit.
    """

    values: FloatArray
    per_s: int
    notes: tuple[str, ...] = ()
    is_told: bool = True
    given: TimeUnit | None = None


EPOCH_FROM = 1e8
"""Numbers from here on are seconds of the epoch (March 1973)."""

MILLISECONDS_FROM = 1e11
"""Numbers from here on are milliseconds of the epoch; as seconds they would lie in the year 5138."""

_SIZES = ((1e17, TimeUnit.NS), (1e14, TimeUnit.US), (MILLISECONDS_FROM, TimeUnit.MS), (EPOCH_FROM, TimeUnit.S))
"""From which number on times of the epoch are of which unit."""


def times_in(rows: TraceRows, values: FloatArray, unit: TimeUnit | None) -> Times:
    """The times of rows of which ``values`` were read; ``unit`` is the config's.

    Raises:
        TraceError: A unit is given for dates; header and size contradict each other; or one of digits is no date.
    """
    if rows.has_instants:
        if unit is not None:
            line, cells = rows.row(0)
            raise TraceError(
                f"{rows.name} line {line}: {quoted(cells[0])} is a date and time, which has no unit; leave out "
                f"arrivals.unit ({unit})"
            )
        return Times(values, 1_000_000)
    named, sized = unit_named(rows.header[0]) if rows.header else None, _unit_by_size(values)
    if unit is not None:
        notes = _contradictions(rows, values, unit, named, sized)
        return Times(values, unit.per_s, notes, given=unit)
    dates = dates_in_digits(values)
    if dates is not None:
        return _of_dates(rows, dates)
    if sized is not None:
        if named not in (None, TimeUnit.S, sized):
            raise TraceError(
                f"{rows.name} line {rows.n_above}: the header {quoted(rows.header[0] if rows.header else '')} says "
                f"{named.words}, the size of its times {sized.words} of the epoch; arrivals.unit: {named} or {sized} "
                "says which"
            )
        note = f"times are taken for {sized.words} of the epoch"
        return Times(values, sized.per_s, () if sized is TimeUnit.S else (note,))
    return Times(values, (named or TimeUnit.S).per_s, is_told=named is not None)


def _unit_by_size(values: FloatArray) -> TimeUnit | None:
    """The unit of times of the epoch; ``None`` where they may count from any begin."""
    least = float(values.min())
    return next((unit for size, unit in _SIZES if least >= size), None)


def _contradictions(
    rows: TraceRows, values: FloatArray, unit: TimeUnit, named: TimeUnit | None, sized: TimeUnit | None
) -> tuple[str, ...]:
    """A note on what speaks against a unit that was given."""
    if (dates := dates_in_digits(values)) is not None and not np.isnan(dates).any():
        return (f"arrivals.unit is {unit}, where the digits of the times read as dates",)
    if sized is not None and sized is not unit:
        return (f"arrivals.unit is {unit}, where the size of the times says {sized.words} of the epoch",)
    if named is not None and named is not unit:
        name = quoted(rows.header[0] if rows.header else "")
        return (f"arrivals.unit is {unit}, where the header {name} says {named.words}",)
    return ()


# --- dates without signs between their parts

_DATE_SHAPES = {8: "YYYYMMDD", 10: "YYYYMMDDHH", 12: "YYYYMMDDHHMM", 14: "YYYYMMDDHHMMSS"}


def dates_in_digits(values: FloatArray) -> FloatArray | None:
    """Microseconds of the epoch of numbers such as 2024051000, read as dates of this century; NaN for any that is none.

    ``None`` where fewer than half are dates: seconds of the epoch reach such numbers in 2033. All have as many digits
    as the first, which are 8, 10, 12 or 14.
    """
    n_digits = len(f"{values[0]:.0f}")
    if n_digits not in _DATE_SHAPES:
        return None
    is_whole = (values == np.floor(values)) & (values < 1e15)
    digits = np.where(is_whole, values, 0).astype(np.int64) * 10 ** (14 - n_digits)
    date, clock = digits // 1_000_000, digits % 1_000_000
    year, month, day = date // 10_000, date // 100 % 100, date % 100
    hour, minute, second = clock // 10_000, clock // 100 % 100, clock % 100
    is_date = (year >= 2000) & (year < 2100) & (month >= 1) & (month <= 12)
    months = (np.where(is_date, 12 * (year - 1970) + month - 1, 0)).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    n_days = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    is_date &= (day >= 1) & (day <= n_days) & (hour < 24) & (minute < 60) & (second < 60)
    if is_date.mean() < 0.5:
        return None
    seconds = (first + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second
    found: FloatArray = np.where(is_date, seconds * 1e6, np.nan)
    return found


def _of_dates(rows: TraceRows, dates: FloatArray) -> Times:
    _, cells = rows.row(0)
    shape = _DATE_SHAPES[len(f"{float(cells[0]):.0f}")]
    wrong = np.flatnonzero(np.isnan(dates))
    if wrong.size:
        line, found = rows.row(int(wrong[0]))
        raise TraceError(
            f"{rows.name} line {line}: {quoted(found[0])} is no date of this century, as others are ({shape}, such as "
            f"{cells[0]}); write ISO 8601, such as 2024-05-10 23:00, or say arrivals.unit if they are numbers"
        )
    return Times(dates, 1_000_000, (f"times are taken for dates written as {shape}, such as {cells[0]}",))


# --- names of times

_TIME_WORDS = re.compile(
    r"(?:dates?|times?|stamps?|epoch|unix|seconds?|secs?|instant|when|utc|gmt|local|iso|start|begin|end"
    r"|arrival|arrived|received|created|requested|request|event|log)+|ts|t|s|at|in"
)
_SAYS_TIME = re.compile(r".*(time|date|stamp|epoch|unix|second|sec|instant|when).*|ts|t|at")
_SAYS_SECONDS = re.compile(r"s|secs?|(?:time|timestamp|epoch|unix)?seconds?")
_SUBSECOND_WORDS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), TimeUnit.MS),
    **dict.fromkeys(("us", "usec", "usecs", "micros", "microsecond", "microseconds"), TimeUnit.US),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), TimeUnit.NS),
}
_CALENDAR_WORDS = {"minute", "minutes", "min", "hour", "hours", "day", "days"}


def unit_named(name: str) -> TimeUnit | None:
    """The unit that the name of a column of times says, in lower case; ``None`` where it says none."""
    words = words_of(name)
    below = next((_SUBSECOND_WORDS[word] for word in words if word in _SUBSECOND_WORDS), None)
    if below is not None:
        return below
    return TimeUnit.S if any(_SAYS_SECONDS.fullmatch(word) for word in words) else None


def names_time(name: str, *, of_instants: bool = False) -> bool:
    """Whether every word of the name, in lower case, means times in a unit that it says, or that their size may tell.

    Of dates and times (``of_instants``) the unit is known, so that ``minute`` will do.
    """
    words = [word for word in words_of(name) if of_instants or word not in _SUBSECOND_WORDS]
    if of_instants:
        words = ["time" if word in _CALENDAR_WORDS or word in _SUBSECOND_WORDS else word for word in words]
    # A server's request time is how long it took.
    is_duration = re.search(r"request(?=times?$)", "".join(words)) is not None
    is_known = all(_TIME_WORDS.fullmatch(word) for word in words)
    return is_known and not is_duration and any(_SAYS_TIME.fullmatch(word) for word in words)


def names_date(name: str) -> bool:
    """Whether the name says a date alone, whose numbers may be anything but seconds."""
    words = words_of(name)
    return not {"date", "dates"}.isdisjoint(words) and "time" not in words


def hints_at_time(name: str) -> bool:
    """Whether any word of the name, in lower case, has to do with time, in whatever unit."""
    return any(
        word in _SUBSECOND_WORDS or word in _CALENDAR_WORDS or _SAYS_TIME.fullmatch(word) for word in words_of(name)
    )


# --- doubts

_LONG_S = 1_000.0
"""As seconds, times that span less are not doubted: as milliseconds they would span less than a second."""

_USUAL_RPS = 1.0
"""Requests that come less often, by times of a unit that nothing tells, may as well come a thousand times as often."""

_SPARSE_RPS = 0.1
"""The same where the unit was given: it is noted."""

_DENSE_RPS = 10_000.0
"""Requests that come more often are noted where the unit was given."""


def other_readings(n: int, span: float) -> str | None:
    """What ``n`` requests over ``span`` come to in each unit that is likely; ``None`` if seconds are not doubted."""
    if n < 2 or span < _LONG_S or n >= _USUAL_RPS * span:
        return None
    fitting = [unit for unit in TimeUnit if 1 <= span / unit.per_s <= MAX_SPAN_S][:3]
    words = "; ".join(f"{unit.words} make {n:,} requests over {span / unit.per_s:,.0f} s" for unit in fitting)
    return f"{words}; arrivals.unit: {' or '.join(fitting)} says which" if len(fitting) > 1 else None


def odd_unit(n: int, span_s: float, unit: TimeUnit) -> tuple[str, ...]:
    """A note on a given unit by which requests come hardly ever, or all at once, where another makes them usual."""
    units = list(TimeUnit)
    place = units.index(unit)
    if n < 2:
        return ()
    if span_s >= _LONG_S and n < _SPARSE_RPS * span_s and place + 1 < len(units):
        other, other_s = units[place + 1], span_s / 1_000
    elif place and (span_s < 1 or n > _DENSE_RPS * span_s):
        other, other_s = units[place - 1], span_s * 1_000
    else:
        return ()
    made = f"arrivals.unit: {unit} makes {n:,} requests over {_lasting(span_s)}"
    return (f"{made}; {other} would make it {_lasting(other_s)}",)


def _lasting(seconds: float) -> str:
    for least, name in ((86_400 * 2, "days"), (3_600 * 2, "hours"), (60 * 2, "minutes")):
        if seconds >= least:
            return f"{seconds / least * 2:,.1f} {name}"
    return f"{seconds:,.3g} s"
