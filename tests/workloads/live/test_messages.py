"""Messages: what is packed comes back, and nothing else comes in."""

from __future__ import annotations

import math
import pickle
from typing import get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.live.messages import (
    MOST_BYTES,
    VERSION,
    Answer,
    Answers,
    Batch,
    Beat,
    Counts,
    Credit,
    Heartbeat,
    Hello,
    Message,
    MessageError,
    Request,
    State,
    Status,
    packed,
    unpacked,
)

ALL = frozenset(Message.__args__)
REQUEST = (7, "vision", 1.0, 1.5, b"x", None)


def raw(*parts: object) -> bytes:
    return bytes(msgpack.packb(parts))


COUNTS, NUMBERS = st.integers(0, 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)
FIELDS: dict[object, st.SearchStrategy[object]] = {
    int: COUNTS,
    float: NUMBERS,
    str: st.text(max_size=1000),
    bytes: st.binary(),
    bytes | None: st.none() | st.binary(),
    State: st.sampled_from(State),
    Status: st.sampled_from(Status),
    tuple[int, ...]: st.tuples(COUNTS, COUNTS),
    tuple[float, ...]: st.tuples(NUMBERS, NUMBERS),
    tuple[bytes, ...]: st.tuples(st.binary(), st.binary()),
    tuple[bytes | str, ...]: st.tuples(st.binary(), st.text(max_size=1000)),
}


def of_kind(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{name: FIELDS[hint] for name, hint in get_type_hints(kind).items()})


@given(st.sampled_from(Message.__args__).flatmap(of_kind))
def test_what_is_packed_comes_back(message: Message) -> None:
    back = unpacked(packed(message), ALL)
    assert (back, type(back)) == (message, type(message))


@pytest.mark.parametrize(
    "message",
    [
        Request(*REQUEST),
        Answer(7, Status.LATE, 2.0, "v1", b"y"),
        Hello("vision", 12, 8, (1, 8), (0.1, 0.2)),
        Batch((1, 2), (b"a", b"")),
        Answers((1, 2), (b"a", "it raised"), "v1", 0.1, 8),
        Heartbeat("a", State.SERVING, 0.5, 1, 2, 0),
        Beat(),
    ],
)
def test_a_message_survives_the_wire(message: Message) -> None:
    assert unpacked(packed(message), ALL) == message


def test_states_come_back_as_states() -> None:
    back = unpacked(packed(Heartbeat("a", State.SERVING, 0.5, 1, 2, 0)), frozenset([Heartbeat]))
    assert isinstance(back, Heartbeat)
    assert type(back.state) is State


@pytest.mark.parametrize(
    ("arrived", "said"),
    [
        (b"", "no msgpack"),
        (pickle.dumps(Request(*REQUEST)), "no msgpack"),
        (raw(VERSION, "Request", *REQUEST)[:-3], "no msgpack"),
        (raw(VERSION, "Beat") + b"x", "no msgpack: ExtraData"),
        (bytes(msgpack.packb(msgpack.ExtType(5, b"x"))), "extension type 5"),
        (raw(VERSION), "allowed: [1, kind, fields …]"),
        (raw(2, "Beat"), "message of version 2; allowed: 1"),
        (raw(VERSION, "Answer", 1), "'Answer': has no business here; allowed: Request"),
        (raw(VERSION, ["Request"], 1), "has no business here"),
        (raw(VERSION, "Request", *REQUEST[:5]), "Request: has 5 fields; 6 are needed"),
        (raw(VERSION, "Request", -1, *REQUEST[1:]), "id: -1; allowed: a whole number of at least 0"),
        (raw(VERSION, "Request", True, *REQUEST[1:]), "id: True; allowed: a whole number"),
        (raw(VERSION, "Request", 7, b"vision", *REQUEST[2:]), "tenant: b'vision'; allowed: text"),
        (raw(VERSION, "Request", 7, "v" * 1001, *REQUEST[2:]), "tenant: 'vvv"),
        (raw(VERSION, "Request", 7, "v", math.nan, *REQUEST[3:]), "arrival_s: nan; allowed: a finite number"),
        (raw(VERSION, "Request", 7, "v", 1.0, 2.0, "text", None), "payload: 'text'; allowed: bytes"),
        (b"x" * (MOST_BYTES + 1), f"allowed: at most {MOST_BYTES}"),
    ],
)
def test_what_is_no_request_is_refused(arrived: bytes, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        unpacked(arrived, frozenset([Request]))
    assert said in str(caught.value)


@pytest.mark.parametrize("fields", [((1, 2), (b"",)), ((), ())])
def test_a_batch_has_a_payload_for_each_request(fields: tuple[tuple[int, ...], tuple[bytes, ...]]) -> None:
    with pytest.raises(MessageError, match="allowed: 1–4096"):
        unpacked(raw(VERSION, "Batch", *fields), frozenset([Batch]))


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(MessageError, match="state: 'idle'; allowed: starting warm serving draining gone"):
        unpacked(raw(VERSION, "Heartbeat", "a", "idle", 0.0, 0, 0, 0), frozenset([Heartbeat]))


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(MessageError, match="message Request: 16777"):
        packed(Request(7, "vision", 1.0, 1.5, bytes(MOST_BYTES), None))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(arrived: bytes) -> None:
    try:
        unpacked(arrived, ALL)
    except MessageError:
        return
    assert msgpack.unpackb(arrived)[0] == VERSION


@given(st.recursive(st.none() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(), st.lists))
def test_any_fields_are_a_message_or_refused(fields: object) -> None:
    try:
        message = unpacked(raw(VERSION, "Credit", fields), frozenset([Credit]))
    except MessageError:
        return
    assert isinstance(message, Credit)


def test_what_is_neither_answered_nor_dropped_waits() -> None:
    assert Counts("vision", 3, 10, 4, 1, 2, 1, 1, 5, 3, 2).waiting == 3
