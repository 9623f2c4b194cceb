"""One record of a log as a line of bytes, and back: numbered, timed, and with a checksum of its own.

The checksum is that of the bytes as they are in the file, and is checked before anything of them is believed, so that
no byte of a line can change unseen. Wall-clock facts have their own; without them, two runs of one seed are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar, get_args

from msgspec import DecodeError, Meta, Struct, ValidationError, to_builtins
from msgspec.json import Decoder

from executor.files import summed, without_sum
from migrator.errors import LogError
from migrator.log.records import AnyRecord, Count, Part, Record, Wall

LATEST_S = 1e15
"""Seconds far beyond any run."""

ALTERED = "the file was altered after it was written"

RecordT_co = TypeVar("RecordT_co", bound=Record, covariant=True)
DecodedT = TypeVar("DecodedT")


@dataclass(frozen=True, slots=True)
class Entry(Generic[RecordT_co]):
    """A record with what is written around it: its number, the run's clock, and facts of the wall clock."""

    n: int
    at_s: float
    record: RecordT_co
    wall: Wall


class _Frame(Struct):
    n: Count
    kind: str
    at_s: Annotated[float, Meta(ge=-LATEST_S, le=LATEST_S)]


_FRAMES, _RECORDS, _WALLS = Decoder(_Frame), Decoder(AnyRecord), Decoder(Wall)
_KINDS = frozenset(str(one.__struct_config__.tag) for one in get_args(AnyRecord))
_WALL = b',"wall":'
_PLACE = re.compile(r"(?s)(.*?)(?: - at `\$(.*)`)?")
_MISSING = re.compile(r"Object missing required field `(.*)`")


def line_of(n: int, at_s: float, record: Record, wall: Wall | None = None) -> bytes:
    """The record's line, with its newline, as :func:`entry_in` reads it.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have; or a field is not of its type, which would
            make the log one that nobody reads.
    """
    around = {"n": n, "kind": record.kind, "at_s": at_s}
    line = as_line(around | as_json(record), None if wall is None else as_json(wall))
    lasting, facts = _parts_of(line[:-1])
    _decoded(record.kind, _RECORDS, lasting)
    if facts:
        _decoded(f"{record.kind}.wall", _WALLS, facts)
    return line


def as_line(fields: Mapping[str, object], wall: Mapping[str, object] | None = None) -> bytes:
    """The fields as a line, with their checksums and a newline.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    line = summed(fields)
    return line + b"\n" if wall is None else line[:-1] + _WALL + summed(wall) + b"}\n"


def as_json(part: Part) -> dict[str, object]:
    """Its fields, as a log has them."""
    found: dict[str, object] = to_builtins(part, enc_hook=_plain)
    return found


def _plain(value: object) -> object:
    """A number of numpy's as Python's own."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{value!r} is no value of a record")


def without_wall(line: bytes) -> bytes:
    """A line without its newline, and without facts of the wall clock."""
    return line.rpartition(_WALL)[0] + b"}" if line.endswith(b'"}}') else line


def entry_in(line: bytes) -> Entry[Record]:
    """The record in a line without its newline, when the line is as :func:`line_of` writes it.

    Raises:
        LogError: It is not, or its record lacks a field, or has one of another type, or is of no kind that is known.
    """
    lasting, facts = _parts_of(line)
    try:
        without_sum(lasting)
        if facts:
            without_sum(facts)
    except ValueError:
        raise LogError(f"{_damage_in(line)}; {ALTERED}") from None
    try:
        frame = _FRAMES.decode(lasting)
    except DecodeError:
        raise LogError(f"it is no whole record of this program; {ALTERED}") from None
    if frame.kind not in _KINDS:
        raise LogError(f"kind {frame.kind!r} is unknown; another version wrote it, or the file was altered")
    try:
        record = _decoded(frame.kind, _RECORDS, lasting)
        wall = _decoded(f"{frame.kind}.wall", _WALLS, facts) if facts else Wall()
    except ValueError as error:
        raise LogError(f"{error}; another version wrote it, or the file was altered") from None
    return Entry(frame.n, frame.at_s, record, wall)


def _parts_of(line: bytes) -> tuple[bytes, bytes]:
    """A line without its newline: what lasts of it, and its facts of the wall clock, empty where there are none."""
    lasting = without_wall(line)
    return lasting, line[len(lasting) - 1 + len(_WALL) : -1]


def _decoded(kind: str, decoder: Decoder[DecodedT], raw: bytes) -> DecodedT:
    """What is there.

    Raises:
        ValueError: A field is not of its type; the message names it.
    """
    try:
        return decoder.decode(raw)
    except DecodeError as error:
        raise ValueError(_as_text(kind, error)) from None


def _damage_in(line: bytes) -> str:
    """What is wrong with a line whose checksum does not match."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "it is no JSON"
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        return "it is no record: it has no 'kind'"
    is_whole = {"n", "at_s", "sum"} <= found.keys()
    return "checksum does not match" if is_whole else "it is no whole record of this program"


def _as_text(kind: str, error: DecodeError) -> str:
    """The error in one line that names the field; half a character makes a text no JSON."""
    if not isinstance(error, ValidationError):
        return f"{kind} is no JSON"
    found = _PLACE.fullmatch(str(error))
    assert found is not None
    reason, where = found[1], found[2] or ""
    if missing := _MISSING.fullmatch(reason):
        reason, where = "field required", f"{where}.{missing[1]}"
    name = kind + where.replace("[...]", ".*").replace("[", ".").replace("]", "")
    return f"{name}: {reason[:1].lower()}{reason[1:]}"
