"""What processes of one machine say to each other: values tagged with their kind, in msgpack, checked as they arrive.

A message is a map of its fields, beside ``type``, its kind. One that lacks a field, has another one, or holds a value
of another type or outside its bounds is refused. What a process is started with is a line of JSON, checked likewise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

from msgspec import Meta, MsgspecError, Struct, json, msgpack

from executor.errors import ExecutorError

Count = Annotated[int, Meta(ge=0)]
"""A whole number of at least 0; truth values are none."""

Moment = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Seconds on a clock: finite, since neither NaN nor infinity lies within bounds."""

Seconds = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]
"""How long something takes: finite, and at least 0."""

Mebibytes = Seconds
"""How much memory something takes; likewise."""

Kind = TypeVar("Kind")


class MessageError(ExecutorError, ValueError):
    """What arrived is no message, or one that has no business here; or a message is too large to be sent."""


class Message(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """What all messages have in common.

    Attributes:
        most_bytes: Of one message of this kind.
    """

    most_bytes: ClassVar[int]


class Allowed(Generic[Kind]):
    """The kinds of message that have business at one place, and how they are read there."""

    def __init__(self, kinds: Any) -> None:
        """``kinds`` is one kind, or a union of kinds."""
        self._decoder: msgpack.Decoder[Kind] = msgpack.Decoder(kinds)
        members: tuple[type[Message], ...] = get_args(kinds) or (kinds,)
        self._names = " ".join(sorted(kind.__name__ for kind in members))
        self._most_bytes = max(kind.most_bytes for kind in members)

    def message(self, raw: bytes) -> Kind:
        """The message that ``raw`` holds.

        Raises:
            MessageError: It holds none of these kinds; says which field is wrong, and what is allowed.
        """
        if len(raw) > self._most_bytes:
            raise MessageError(f"message: {len(raw)} bytes; allowed: at most {self._most_bytes}")
        try:
            return self._decoder.decode(raw)
        except (MsgspecError, ValueError, RecursionError) as error:  # text that is not UTF-8 raises a ValueError
            raise MessageError(f"message: {str(error)[:200]}; kinds allowed here: {self._names}") from None


def packed(message: Message) -> bytes:
    """The message as it is sent.

    Raises:
        MessageError: It is too large.
    """
    raw = msgpack.encode(message)
    if len(raw) > message.most_bytes:
        raise MessageError(f"message {type(message).__name__}: {len(raw)} bytes; allowed: at most {message.most_bytes}")
    return raw


def as_text(value: object) -> str:
    """The value, such as a dataclass, as one line of JSON; numbers in it are to be finite."""
    return json.encode(value, enc_hook=os.fspath).decode()


def value_in(text: str | bytes, kind: type[Kind]) -> Kind:
    """What :func:`as_text` wrote.

    Raises:
        MessageError: It is no such value; says which field is wrong.
    """
    try:
        return json.decode(text, type=kind, dec_hook=_path)
    except (MsgspecError, ValueError, RecursionError) as error:
        raise MessageError(f"{kind.__name__}: {str(error)[:300]}") from None


def _path(kind: type, text: Any) -> Path:
    if kind is not Path or not isinstance(text, str):
        raise ValueError(f"Expected `str`, got `{type(text).__name__}`")
    return Path(text)
