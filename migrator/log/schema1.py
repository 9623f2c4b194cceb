"""Logs of schema 1, in memory as if schema 2 had written them.

Schema 1 had neither numbers nor checksums. A ``change`` held its driver calls, and of each instance that it started
also when its worker would be ready and its retraining would end; schema 2 has records of their own for these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from executor.summed import canonical
from migrator.errors import LogError
from migrator.log.record import ALTERED, Record, object_in

_OF_READY = ("ready_s", "late_ready_s", "library_s", "model_s")


def records_of_schema_1(lines: Iterable[bytes]) -> list[tuple[int, Record]]:
    """The records of a log of schema 1 in the form of schema 2, each with the line that it comes from.

    Raises:
        LogError: A line is not as schema 1 writes it.
    """
    found: list[tuple[int, Record]] = []
    for number, line in enumerate(lines, start=1):
        try:
            for event in _upgraded(_event_in(line), len(found)):
                found.append((number, {"n": len(found), **event}))
        except LogError as error:
            raise LogError(f"line {number}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise LogError(f"line {number}: it is not as schema 1 writes it ({reason}); {ALTERED}") from None
    return found


def _event_in(line: bytes) -> dict[str, Any]:
    event = object_in(line)
    if canonical(event) != line:
        raise LogError(f"it is not written as this program writes it; {ALTERED}")
    if not {"n", "sum"}.isdisjoint(event):
        raise LogError(f"it has a number or a checksum, which schema 1 does not; {ALTERED}")
    return event


def _upgraded(event: dict[str, Any], n: int) -> Iterable[dict[str, Any]]:
    """The records for one event; the first of them gets the number ``n``."""
    if event["kind"] != "change":
        yield event
        return
    window = event["window"]
    calls, started = event.pop("calls", []), event["started"]
    for index, call in enumerate(calls):
        gi_id = call["gi_id"]
        intent = {"call": call["call"], "placement": call["placement"], "gi_id": gi_id}
        moments = {"begin_s": call["begin_s"], "end_s": call["end_s"]}
        yield {"kind": "intent", "window": window, **intent}
        yield {"kind": "outcome", "window": window, "intent": n + 2 * index, "gi_id": gi_id, **moments, "error": None}
    dropped = {*_OF_READY, "finish_s"}
    yield {**event, "started": [{key: item[key] for key in item if key not in dropped} for item in started]}
    for item in started:
        who = {"window": window, "instance": item["instance"], "tenant": item["tenant"]}
        # The first runs of schema 1 did not tell libraries and model apart.
        yield {"kind": "ready", **who, "task": item["task"], **{key: item.get(key) for key in _OF_READY}}
        if item["finish_s"] is not None:
            yield {"kind": "finished", **who, "finish_s": item["finish_s"], "accuracy": None}
