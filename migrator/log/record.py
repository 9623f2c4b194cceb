"""One record of a log as a line of bytes, and back: numbered, timed, and with a checksum of its own.

A line is canonical: a record has one way to be written. Reading writes the record again and compares, so that no byte
of a line can change unseen. Wall-clock facts have their own checksum; without them, two runs of one seed are equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from executor.summed import summed
from migrator.errors import LogError

Record = Mapping[str, Any]
"""A record in memory: ``n``, ``kind``, ``at_s``, its fields, and perhaps ``wall``; checksums stand in the file only."""

LATEST_S = 1e15
"""Seconds far beyond any run."""

ALTERED = "the file was altered after it was written"


def line_of(record: Record, wall: Mapping[str, object] | None = None) -> bytes:
    """The record's line, with its newline.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    line = summed(record)
    return line + b"\n" if wall is None else line[:-1] + b',"wall":' + summed(wall) + b"}\n"


def record_in(line: bytes) -> dict[str, Any]:
    """The record in a line without its newline, when the line is as :func:`line_of` writes it.

    Raises:
        LogError: It is not.
    """
    record = object_in(line)
    checksum, wall = record.pop("sum", None), record.pop("wall", None)
    n, at_s = record.get("n"), record.get("at_s")
    if checksum is None or not isinstance(n, int) or not isinstance(at_s, int | float) or abs(at_s) > LATEST_S:
        raise LogError(f"it is no whole record of this program; {ALTERED}")
    if wall is not None:
        if not isinstance(wall, dict):
            raise LogError(f"its wall is no object; {ALTERED}")
        wall.pop("sum", None)
    try:
        rewritten = line_of(record, wall)
    except (ValueError, RecursionError):
        rewritten = b""
    if rewritten != line + b"\n":
        raise LogError(f"checksum does not match; {ALTERED}")
    return record if wall is None else {**record, "wall": wall}


def object_in(line: bytes) -> dict[str, Any]:
    """The JSON object in a line, with its ``kind``.

    Raises:
        LogError: The line holds something else.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise LogError(f"it is no JSON; {ALTERED}") from None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise LogError(f"it is no record: it has no 'kind'; {ALTERED}")
    return found
