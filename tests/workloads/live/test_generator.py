"""The generator: what it is given it sends, at its times or as arrivals of those times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from live_site import PATIENCE_S, Site, site_in

from workloads.live import generator
from workloads.live.generator import (
    OUTCOME,
    STATUSES,
    Exchange,
    Stream,
    StreamError,
    read_streams,
    replay,
    write_streams,
)
from workloads.live.messages import Answer, Counts, Message, Request, Status
from workloads.live.process import Parent
from workloads.live.wire import private_folder

STREAM = Stream("vision", 20.0, (0.0, 0.05, 0.1), (0, 1, 0), (b"a", b"b"), (b"a", b"wrong"))


class StandIn(Parent):
    """A parent that lives, or not, as asked."""

    def __init__(self, is_gone: bool = False) -> None:
        self._gone = is_gone

    @property
    def is_gone(self) -> bool:
        return self._gone


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path / "s") as site:
        yield site


def replayed(site: Site, *streams: Stream, origin_s: float | None = None) -> Exchange:
    return replay(site.folder, streams, site.origin_s if origin_s is None else origin_s, StandIn())


def test_every_request_is_sent_and_answered(site: Site) -> None:
    site.dispatcher("vision", "text")
    site.worker("a")
    site.worker("b", tenant="text")
    told = replayed(site, STREAM, replace(STREAM, tenant="text"))
    assert told.sent == {"vision": 3, "text": 3}
    assert told.answers == {"vision": {"in_time": 3}, "text": {"in_time": 3}}


def test_the_dispatcher_judges_by_the_expected_answers(site: Site) -> None:
    site.dispatcher()
    site.worker("a")
    replayed(site, STREAM)
    assert site.finish()["correct"] == 2


def test_generator_and_dispatcher_count_alike(site: Site) -> None:
    site.dispatcher(queue_bytes=2000)
    site.worker("a", "Busy", options={"batch_s": 0.01}, latency_s=(0.01, 0.01))
    many = Stream("vision", 0.03, tuple(0.0005 * number for number in range(400)), (0,) * 400, (b"a" * 300,))
    answers = replayed(site, many).answers["vision"]
    counts = site.finish()
    assert sum(answers.values()) == counts["arrived"] == 400
    assert answers.get("in_time", 0) == counts["in_time"]
    assert answers.get("refused", 0) == counts["refused"] > 0


def test_a_request_that_is_sent_late_counts_from_when_it_should_have_arrived(site: Site) -> None:
    site.origin_s -= 10.0
    site.dispatcher()
    told = replayed(site, replace(STREAM, slo_s=0.5))
    site.finish()
    assert (told.answers, min(told.late_s) > 9.5) == ({"vision": {"dropped": 3}}, True)
    assert {one.second for one in site.told if isinstance(one, Counts)} == {0}


class VirtualPeer:
    """A dispatcher that answers each request at once, on a clock on which only waiting takes time."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self.sent_s: list[float] = []
        self.waiting: list[Message] = []

    def send(self, request: Request) -> None:
        self.sent_s.append(self.now_s)
        self.waiting.append(Answer(request.id, Status.IN_TIME, self.now_s))

    def receive(self, timeout_s: float) -> list[Message]:
        if not self.waiting:
            self.now_s += max(timeout_s, 1e-6)
        found, self.waiting = self.waiting, []
        return found

    def close(self) -> None:
        """Nothing is open."""


def test_requests_are_sent_when_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = VirtualPeer(now_s=100.0)
    monkeypatch.setattr(generator, "monotonic", lambda: peer.now_s)
    monkeypatch.setattr(generator, "Peer", lambda *_: peer)
    told = replay(tmp_path, [replace(STREAM, arrival_s=(1.2, 1.2, 2.3))], 100.0, StandIn())
    assert peer.sent_s == pytest.approx([101.2, 101.2, 102.3], abs=1e-5)
    assert all(sent_s >= 100.0 + due_s for sent_s, due_s in zip(peer.sent_s, (1.2, 1.2, 2.3), strict=True))
    assert (told.answers, told.late_s[2] < 1e-5) == ({"vision": {"in_time": 3}}, True)


def test_without_answers_it_leaves_after_a_while(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "s")
    told = replay(folder, [replace(STREAM, slo_s=0.1)], monotonic(), StandIn(), grace_s=0.1)
    assert (told.sent, told.answers) == ({"vision": 3}, {"vision": {}})


def test_without_its_parent_it_sends_nothing(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "s")
    assert replay(folder, [STREAM], monotonic(), StandIn(is_gone=True)).sent == {}


def test_nothing_to_send_is_soon_sent(tmp_path: Path) -> None:
    assert replay(private_folder(tmp_path / "s"), [], monotonic(), StandIn()) == Exchange({}, {}, (0.0, 0.0, 0.0))


def test_as_a_process_it_prints_what_came_of_it(site: Site, tmp_path: Path) -> None:
    site.dispatcher()
    site.worker("a")
    write_streams(tmp_path / "streams", [STREAM])
    files = str(tmp_path / "streams"), str(site.origin_s), str(tmp_path / "outcomes")
    process = site.start("workloads.live.generator", str(site.folder), *files)
    said, _ = process.communicate(timeout=PATIENCE_S)
    outcomes = list(OUTCOME.iter_unpack((tmp_path / "outcomes").read_bytes()))
    assert json.loads(said)["answers"] == {"vision": {"in_time": 3}}
    assert sorted(place for _, place, *_ in outcomes) == [0, 1, 2]
    assert {STATUSES[status] for _, _, status, _, _ in outcomes} == {Status.IN_TIME}


def test_streams_survive_their_file(tmp_path: Path) -> None:
    write_streams(tmp_path / "streams", [STREAM])
    assert read_streams(tmp_path / "streams") == [STREAM]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"\xc1", "not a file of streams"),
        (b"\x93\x01\x02\x03", "not a file of streams"),
        (b"\x91\x81\xa6tenant\xa1a", "missing required field `slo_s`"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "streams"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StreamError, match=said) as caught:
        read_streams(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"slo_s": 0.0}, "slo_s: 0.0; must be finite and above 0"),
        ({"samples": (0,)}, "1 samples for 3 arrivals"),
        ({"arrival_s": (1.0, 0.0, 2.0)}, "must be finite and ascending"),
        ({"samples": (0, 1, 2)}, "must be places in the 2 payloads"),
        ({"expected": (b"a",)}, "1 expected answers for 2 payloads"),
    ],
)
def test_a_stream_without_sense_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(StreamError, match=said):
        replace(STREAM, **change)
