"""The answer of Prometheus' ``/api/v1/query_range``, as a table that the readers of trace files take."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from executor.files import has_more_values
from workloads.errors import TraceError
from workloads.traffic.trace_rows import place_of, quoted

_MOST_CHARACTERS = 64 * 2**20
"""Of JSON, which takes many times its size to read; Prometheus returns at most 11,000 points a series."""

_VALUES_BEYOND, _CHARACTERS_A_VALUE = 500_000, 5
"""Values that are read, and one more in so many characters; a point and its two values take 15 at least."""


def is_json(text: str) -> bool:
    """Whether the text begins as an object of JSON does, as no table with a time in its first column can."""
    return text.lstrip().startswith("{")


def as_table(name: str, text: str, column: str | None) -> tuple[str, tuple[str, ...]]:
    """One series as lines of time and value below a header, and the server's warnings.

    ``column`` is the metric as Prometheus writes it (``requests_total{job="api"}``), or the value of one of its labels.

    Raises:
        TraceError: The text is no such answer, or ``column`` does not name one of its series.
    """
    if len(text) > _MOST_CHARACTERS:
        raise TraceError(f"{name}: JSON of more than 64 Mi characters, the most that is read; tables may be larger")
    if has_more_values(text, _VALUES_BEYOND + len(text) // _CHARACTERS_A_VALUE):
        raise TraceError(f"{name}: JSON of more values than an answer of Prometheus has in {len(text):,} characters")
    try:
        answer = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: begins as JSON, but is none: {error}; see docs/traces.md") from None
    found = _matrix(name, answer)
    metrics = [one["metric"] for one in found]
    place = place_of(name, [(_shown(labels), *map(str, labels.values())) for labels in metrics], column)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("time", _shown(metrics[place])))
    for number, point in enumerate(found[place]["values"], 1):
        match point:
            case [str(time), str() | float() | None as value]:
                writer.writerow((time, "" if value is None else value))
            case _:
                raise TraceError(f"{name}: value {number} is {quoted(str(point))}; a time and a number are needed")
    warnings = answer.get("warnings") or ()
    return table.getvalue(), tuple(f"Prometheus warns: {quoted(str(one))}" for one in warnings)


def _matrix(name: str, answer: Any) -> list[dict[str, Any]]:
    """The series of the answer, each with ``metric`` and ``values``."""
    match answer:
        case {"status": "error"}:
            raise TraceError(f"{name}: Prometheus answered with an error: {quoted(str(answer.get('error', '')))}")
        case {"status": "success", "data": {"resultType": "matrix", "result": [_, *_] as found}}:
            for one in found:
                match one:
                    case {"metric": {}, "values": [_, *_]}:
                        continue
                raise TraceError(f"{name}: a series without values (a native histogram?) is no trace")
            return list(found)
        case {"status": "success", "data": {"resultType": "matrix", "result": []}}:
            raise TraceError(f"{name}: the answer holds no series: the query found nothing in that time")
        case {"status": "success", "data": {"resultType": kind}}:
            raise TraceError(f"{name}: the answer is a {kind}; /api/v1/query_range returns a matrix, which is needed")
    raise TraceError(f"{name}: JSON that is no answer of Prometheus' /api/v1/query_range; see docs/traces.md")


def _shown(labels: Mapping[str, Any]) -> str:
    """The metric as Prometheus writes it; braces also where it has no labels."""
    pairs = (f"{key}={json.dumps(str(text), ensure_ascii=False)}" for key, text in labels.items() if key != "__name__")
    return f"{labels.get('__name__', '')}{{{','.join(pairs)}}}"
