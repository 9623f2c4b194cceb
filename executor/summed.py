"""Lines of JSON that carry a checksum each: there is one way to write one, so that no byte of it can change unseen."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any


def canonical(fields: Mapping[str, object]) -> bytes:
    """The one way in which the fields are written.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    return _ENCODER.encode(fields).encode()


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def summed(fields: Mapping[str, object]) -> bytes:
    """The fields and their checksum, a CRC-32 of what stands before it, as an object.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    return _with_sum(canonical(fields))


def _with_sum(body: bytes) -> bytes:
    return body[:-1] + (b'"sum":"%08x"}' if body == b"{}" else b',"sum":"%08x"}') % zlib.crc32(body)


_SUM_BYTES = len(b'"sum":"01234567"}')


def without_sum(line: bytes) -> bytes:
    """The object, as it stands in the line, that :func:`summed` gave its checksum.

    Raises:
        ValueError: The checksum is not there, or does not match.
    """
    body = line[:-_SUM_BYTES].removesuffix(b",") + b"}"
    if _with_sum(body) != line:
        raise ValueError("checksum does not match")
    return body


def fields_in(line: bytes) -> dict[str, Any]:
    """The fields of a line that is as :func:`summed` writes it.

    Raises:
        ValueError: It is not.
    """
    return dict(json.loads(without_sum(line)))


def is_torn(tail: bytes) -> bool:
    """Whether a kill can have left ``tail`` after the last whole line: the beginning of one record, or nothing."""
    try:
        _, end = json.JSONDecoder().raw_decode(tail.decode("latin-1"))
    except (ValueError, RecursionError):
        return True
    return end == len(tail)
