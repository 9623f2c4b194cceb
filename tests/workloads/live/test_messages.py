"""What the processes of live serving say: each kind comes back as it was, and what has no sense is refused."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, msgpack
from msgspec.structs import fields

from executor.messages import Allowed, Count, Mebibytes, MessageError, Moment, Seconds, packed
from workloads.live.messages import (
    FROM_HEART,
    MOST_BATCH,
    MOST_BYTES,
    Answer,
    Answers,
    Batch,
    Counts,
    FromController,
    FromWorker,
    Heartbeat,
    Message,
    NoAnswer,
    Request,
    State,
    Status,
    Text,
    ToController,
    ToWorker,
)

KINDS = Request | Answer | FromWorker | ToWorker | FromController | ToController
ANY: Allowed[Message] = Allowed(KINDS)

COUNTS, TEXTS = st.integers(0, 2**64 - 1), st.text(max_size=1000)
SECONDS = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)
VALUES: dict[object, st.SearchStrategy[object]] = {
    Count: COUNTS,
    Moment: st.floats(allow_nan=False, allow_infinity=False),
    Seconds: SECONDS,
    Mebibytes | None: st.none() | SECONDS,
    Text: TEXTS,
    bool: st.booleans(),
    bytes: st.binary(),
    bytes | None: st.none() | st.binary(),
    State: st.sampled_from(State),
    Status: st.sampled_from(Status),
    tuple[Text, ...]: st.tuples(TEXTS, TEXTS),
    tuple[Count, ...]: st.tuples(COUNTS, COUNTS),
    tuple[tuple[Count, Count], ...]: st.tuples(st.tuples(COUNTS, COUNTS)),
    Annotated[tuple[Count, ...], Meta(max_length=MOST_BATCH)]: st.tuples(COUNTS, COUNTS),
    Annotated[tuple[Seconds, ...], Meta(max_length=MOST_BATCH)]: st.tuples(SECONDS, SECONDS),
    tuple[bytes, ...]: st.tuples(st.binary(), st.binary()),
    tuple[bytes | NoAnswer, ...]: st.tuples(st.binary(), st.builds(NoAnswer, TEXTS)),
}


def of_kind(kind: type[Message]) -> st.SearchStrategy[Message]:
    types = {field.name: field.type for field in fields(kind)}
    return st.builds(kind, **{name: VALUES[hint] for name, hint in types.items()})


@given(st.one_of(map(of_kind, get_args(KINDS))))
def test_what_is_packed_comes_back(message: Message) -> None:
    back = ANY.message(packed(message))
    assert (back, type(back)) == (message, type(message))


def test_states_come_back_as_states() -> None:
    back = FROM_HEART.message(packed(Heartbeat("a", State.SERVING, 0.5, 1, 2, 0)))
    assert type(back.state) is State


def raw(kind: str, **values: object) -> bytes:
    return msgpack.encode({"type": kind, **values})


@pytest.mark.parametrize(
    ("arrived", "said"),
    [
        (raw("Batch", ids=[1, 2], payloads=[b""]), f"2 ids, 1 payloads; allowed: 1–{MOST_BATCH}"),
        (raw("Batch", ids=[], payloads=[]), f"allowed: 1–{MOST_BATCH}"),
        (raw("Batch", ids=[1] * 4097, payloads=[b""] * 4097), f"allowed: 1–{MOST_BATCH}"),
        (raw("Batch", ids=[-1], payloads=[b""]), "Expected `int` >= 0 - at `$.ids[0]`"),
        (raw("Answers", ids=[1], answers=[], version="", service_s=0.0, credit=1), "0 answers to 1 requests"),
        (raw("Drain", worker="a" * 1001), "Expected `str` of length <= 1000 - at `$.worker`"),
        (raw("Credit", requests=None), "Expected `int`, got `None`"),
    ],
)
def test_what_has_no_sense_is_refused(arrived: bytes, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        ANY.message(arrived)
    assert said in str(caught.value)


def test_an_unknown_state_is_refused() -> None:
    beat: dict[str, Any] = {"worker": "a", "busy_s": 0.0, "batches": 0, "answers": 0, "failures": 0}
    with pytest.raises(MessageError, match=r"Invalid enum value 'idle' - at `\$.state`"):
        FROM_HEART.message(raw("Heartbeat", state="idle", **beat))


def test_only_batches_and_their_answers_may_be_larger_than_a_request() -> None:
    payload = bytes(MOST_BYTES)
    assert len(packed(Batch((1,), (payload,)))) > MOST_BYTES
    assert len(packed(Answers((1,), (payload,), "", 0.0, 1))) > MOST_BYTES
    with pytest.raises(MessageError, match="message Request: 16777"):
        packed(Request(7, "vision", 1.0, 1.5, payload))


def test_what_is_neither_answered_nor_dropped_waits() -> None:
    assert Counts("vision", 3, 10, 4, 1, 2, 1, 1, 5, 3, 2).waiting == 3
