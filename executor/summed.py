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
    body = canonical(fields)
    return body[:-1] + (b',"sum":"%08x"}' if fields else b'"sum":"%08x"}') % zlib.crc32(body)


def fields_in(line: bytes) -> dict[str, Any]:
    """The fields of a line that is as :func:`summed` writes it.

    Raises:
        ValueError: It is not.
    """
    try:
        fields = json.loads(line)
        has_sum = isinstance(fields, dict) and fields.pop("sum", None) is not None
        is_as_written = has_sum and summed(fields) == line
    except RecursionError:
        is_as_written = False
    if not is_as_written:
        raise ValueError("checksum does not match")
    return dict(fields)


def is_torn(tail: bytes) -> bool:
    """Whether a kill can have left ``tail`` after the last whole line: the beginning of one record, or nothing."""
    try:
        _, end = json.JSONDecoder().raw_decode(tail.decode("latin-1"))
    except (ValueError, RecursionError):
        return True
    return end == len(tail)
