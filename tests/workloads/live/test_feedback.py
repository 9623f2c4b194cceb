"""What clients say of answers, and for how long it is known what they were."""

from __future__ import annotations

import tracemalloc

import pytest

from workloads.learning import experiences
from workloads.live import feedback
from workloads.live.feedback import LABEL_BYTES, Answered, judgement
from workloads.live.open_inference import ProtocolError


def label(*labels: int) -> bytes:
    return b"".join(experiences.encoded(one) for one in labels)


def test_a_label_has_as_many_bytes_as_elsewhere() -> None:
    assert LABEL_BYTES == experiences.LABEL_BYTES


def test_an_answer_is_judged_once_by_the_last_request_of_its_id() -> None:
    own = Answered(10.0)
    own.keep("a", label(3), ["first"], 0.0)
    own.keep("a", label(65535), ["window-1"], 1.0)
    assert own.judge("a", (65535,), 2.0) == {"window-1": (1, 1)}
    with pytest.raises(ProtocolError, match=r"^id 'a': no answer to it within 10 s waits for a label$"):
        own.judge("a", (65535,), 2.0)


def test_what_is_too_old_or_too_much_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "MOST_REMEMBERED", 2)
    own = Answered(10.0)
    for number, name in enumerate("abc"):
        own.keep(name, label(1, 2), ["first", "first"], float(number))
    assert len(own) == 2
    assert own.judge("b", (1, 3), 11.0) == {"first": (2, 1)}
    with pytest.raises(ProtocolError) as caught:
        own.judge("c", (1, 2), 13.0)
    assert (caught.value.status, len(own)) == (404, 0)


def test_answers_of_several_versions_are_told_apart_as_long_as_there_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feedback, "_N_VERSIONS", 2)
    own = Answered(10.0)
    own.keep("several", label(1, 2, 3), ["first", "window-1", "first"], 0.0)
    assert own.judge("several", (1, 2, 4), 1.0) == {"first": (2, 1), "window-1": (1, 1)}
    for number in range(5):
        own.keep(str(number), label(7), [f"window-{number}"], 0.0)
        assert own.judge(str(number), (7,), 1.0) == {f"window-{number}": (1, 1)}
    own.keep("again", label(7), ["window-3"], 0.0)
    assert own.judge("again", (8,), 1.0) == {"window-3": (1, 0)}


def test_an_answer_takes_little_memory() -> None:
    own = Answered(1e9)
    tracemalloc.start()
    for number in range(20_000):
        own.keep(f"request {number}", label(number % 10), [f"window-{number // 100}"], 1e6 + number)
    n_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert n_bytes / 20_000 <= 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is no JSON"),
        (b"[]", "id: it is missing"),
        (b'{"id": 3, "label": 1}', "id: it is missing"),
        (b'{"id": "a"}', "label, or labels with one for each sample, is needed"),
        (b'{"id": "a", "label": 1, "labels": [1]}', "label, or labels with one for each sample, is needed"),
        (b'{"id": "a", "label": -1}', r"labels: \[-1\]; whole numbers from 0 to 65535 are needed"),
        (b'{"id": "a", "label": true}', r"labels: \[True\]; whole numbers"),
        (b'{"id": "a", "labels": 3}', "labels: 3; whole numbers"),
        (b'{"id": "a", "labels": [65536]}', r"labels: \[65536\]; whole numbers"),
    ],
)
def test_what_says_no_label_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{said}"):
        judgement(body)


def test_one_label_or_one_for_each_sample_is_read() -> None:
    assert judgement(b'{"id": "a", "label": 4}') == ("a", (4,))
    assert judgement(b'{"id": "a", "labels": [4, 5]}') == ("a", (4, 5))
