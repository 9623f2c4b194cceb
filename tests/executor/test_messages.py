"""Messages: what is packed comes back, and nothing else comes in."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from executor.messages import Allowed, Count, Message, MessageError, Moment, Seconds, as_text, packed, value_in

MOST_BYTES = 1000


class Asked(Message, frozen=True):
    most_bytes: ClassVar[int] = MOST_BYTES
    number: Count
    name: str
    at_s: Moment
    limit_s: Seconds = 1.0
    payload: bytes | None = None


class Done(Message, frozen=True):
    most_bytes: ClassVar[int] = MOST_BYTES


EITHER: Allowed[Asked | Done] = Allowed(Asked | Done)
ASKED = {"type": "Asked", "number": 7, "name": "a", "at_s": 1.5}


def raw(**changes: Any) -> bytes:
    return msgpack.encode({**ASKED, **changes})


@pytest.mark.parametrize("message", [Asked(7, "a", -1.5, 0.5, b"x"), Asked(2**64 - 1, "", 0.0), Done()])
def test_what_is_packed_comes_back(message: Asked | Done) -> None:
    assert EITHER.message(packed(message)) == message


@pytest.mark.parametrize(
    ("arrived", "said"),
    [
        (b"", "truncated"),
        (pickle.dumps(ASKED), "message: "),
        (raw()[:-3], "truncated"),
        (raw() + b"x", "trailing characters"),
        (msgpack.encode(msgpack.Ext(5, b"x")), "got `ext`"),
        (b"\x91" * 100, "Expected `object`, got `array`"),
        (raw(type="Stop"), "Invalid value 'Stop' - at `$.type`; kinds allowed here: Asked Done"),
        (raw(type="x" * 900), "x" * 150),
        (raw(more=1), "unknown field `more`"),
        (msgpack.encode({"type": "Asked", "number": 7}), "missing required field `name`"),
        (raw(number=-1), "Expected `int` >= 0 - at `$.number`"),
        (raw(number=True), "Expected `int`, got `bool`"),
        (raw(number=1.0), "Expected `int`, got `float`"),
        (raw(name=b"a"), "Expected `str`, got `bytes` - at `$.name`"),
        (raw(name="?").replace(b"?", b"\xff"), "can't decode"),
        (raw(at_s=math.nan), "Expected `float` >= -1.797"),
        (raw(at_s=-math.inf), "Expected `float` >= -1.797"),
        (raw(at_s=math.inf), "Expected `float` <= 1.797"),
        (raw(limit_s=math.nan), "Expected `float` >= 0.0 - at `$.limit_s`"),
        (raw(limit_s=-0.1), "Expected `float` >= 0.0"),
        (raw(payload="text"), "Expected `bytes | null`, got `str`"),
        (b"x" * (MOST_BYTES + 1), f"allowed: at most {MOST_BYTES}"),
    ],
)
def test_what_is_no_message_is_refused(arrived: bytes, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        EITHER.message(arrived)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(MessageError, match=r"message Asked: 10\d\d bytes; allowed: at most 1000"):
        packed(Asked(7, "a", 1.0, payload=bytes(MOST_BYTES)))


def test_the_largest_kind_says_how_much_is_allowed() -> None:
    class Large(Message, frozen=True):
        most_bytes: ClassVar[int] = 3 * MOST_BYTES
        payload: bytes

    message = Large(bytes(2 * MOST_BYTES))
    assert Allowed(Done | Large).message(packed(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(arrived: bytes) -> None:
    try:
        message = EITHER.message(arrived)
    except MessageError:
        return
    assert isinstance(message, Asked | Done)


@given(st.recursive(st.none() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary() | st.floats(), st.lists))
def test_any_field_is_right_or_refused(value: object) -> None:
    try:
        message = EITHER.message(raw(limit_s=value))
    except MessageError:
        return
    assert isinstance(message, Asked)
    assert 0 <= message.limit_s < math.inf


@dataclass(frozen=True, slots=True)
class Setup:
    folder: Path
    limits_s: tuple[float, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None

    def __post_init__(self) -> None:
        if not self.limits_s:
            raise ValueError("limits_s: at least one is needed")


@pytest.mark.parametrize("setup", [Setup(Path("/a b"), (1.0,)), Setup(Path("x"), (1.0, 2.0), {"n": ["é"]}, Path("y"))])
def test_what_a_process_is_started_with_survives_its_line(setup: Setup) -> None:
    line = as_text(setup)
    assert "\n" not in line
    assert value_in(line, Setup) == setup


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "Setup: Input data was truncated"),
        ("[]", "Setup: Expected `object`, got `array`"),
        ("{}", "Setup: Object missing required field `folder`"),
        ('{"folder": 3, "limits_s": [1]}', "Setup: Expected `str`, got `int` - at `$.folder`"),
        ('{"folder": "x", "limits_s": ["1"]}', "Setup: Expected `float`, got `str` - at `$.limits_s[0]`"),
        ('{"folder": "x", "limits_s": []}', "Setup: limits_s: at least one is needed"),
    ],
)
def test_a_line_of_something_else_is_refused(line: str, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        value_in(line, Setup)
    assert str(caught.value).startswith(said)
