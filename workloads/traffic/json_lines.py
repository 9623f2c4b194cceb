"""JSON lines, an object each with a time, as a table that the readers of trace files take."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from executor.files import has_more_values
from executor.names import did_you_mean, spelled_as
from workloads.errors import TraceError
from workloads.traffic.trace_rows import lines_of, listed, place_of, quoted
from workloads.traffic.trace_times import names_time

_MOST_VALUES = 100_000
"""Of a line."""

_TWO_LINES = re.compile(r"\s*\{[^\n]*\n\s*\{")
_ARRAY = re.compile(r"\s*\[\s*\{")


def is_json_array(text: str) -> bool:
    """Whether the text begins as a list of objects does."""
    return _ARRAY.match(text) is not None


def is_json_lines(text: str) -> bool:
    """Whether the text begins with two lines that begin as objects do."""
    return _TWO_LINES.match(text) is not None


def as_table(name: str, text: str, column: str | None, time_column: str | None) -> str:
    """Each object as a line of its time and its other values, below a header; line ``n`` of the file is line ``n + 1``.

    The time is the value of ``time_column``, by default of the only key whose name means one. Other keys are those of
    the first object whose values are neither lists nor objects. Only the values that may be read are kept: those of
    ``column``, or of the only other key.

    Raises:
        TraceError: A line is no object, or has no time; or no key, or several, may be the time's.
    """
    objects = _objects(name, text)
    _, first = next(objects)
    time = _time_key(name, first, time_column)
    others = [key for key, value in first.items() if key != time and not isinstance(value, dict | list)]
    if column is not None:
        others = [others[place_of(name, [(key,) for key in others], column)]]
    kept = others if len(others) == 1 else []
    blanks = [""] * (len(others) - len(kept))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([time, *others])
    at = 0
    for number, found in _objects(name, text):
        if found.get(time) is None or isinstance(found[time], dict | list):
            raise TraceError(f"{name} line {number}: {quoted(time)} has no time, as it has in line 1")
        table.write("\n" * (number - at - 1))
        at = number
        cells = [found[time], *(found.get(key, "") for key in kept), *blanks]
        writer.writerow(["" if cell is None else _line_of(cell) for cell in cells])
    return table.getvalue()


def _line_of(cell: object) -> str:
    """A value as a cell, on one line, so that lines keep their numbers."""
    return " ".join(str(cell).split("\n"))


def _objects(name: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each line's number and object; blank lines are left out."""
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        if has_more_values(line, _MOST_VALUES):
            raise TraceError(f"{name} line {number}: holds more than {_MOST_VALUES:,} values, the most that are read")
        try:
            found = json.loads(line, parse_float=str, parse_int=str)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{name} line {number}: is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise TraceError(f"{name} line {number}: {quoted(line.strip())} is no object of JSON, as line 1 is")
        yield number, found


def _time_key(name: str, first: Mapping[str, Any], time_column: str | None) -> str:
    keys = [key for key, value in first.items() if not isinstance(value, dict | list)]
    shown = listed(keys)
    if not keys:
        raise TraceError(
            f"{name} line 1: has lists and objects alone ({listed([*first])}); take the time out of them, as "
            "docs/traces.md has it"
        )
    if time_column is not None:
        known = spelled_as(time_column, keys)
        if known in keys:
            return known
        hint = did_you_mean(time_column, keys)
        raise TraceError(f"{name}: arrivals.time_column is {quoted(time_column)}{hint}; the keys of line 1: {shown}")
    fitting = [key for key in keys if names_time(key.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise TraceError(
            f"{name}: JSON lines, in which {len(fitting)} keys may be the time; arrivals.time_column names one of "
            f"{listed(fitting)}"
        )
    raise TraceError(
        f"{name}: JSON lines, in which no key is known as a time; arrivals.time_column names one of {shown} (times in "
        "objects inside have to be taken out: docs/traces.md)"
    )
