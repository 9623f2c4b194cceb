"""The accounts of what clients ask: the dispatcher's words on seconds become windows, each once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.migrator.conftest import SMALL
from workloads.live.messages import Closed, Counts, Labelled

pytest.importorskip("zmq")

from migrator.config.reading import validate_config
from migrator.errors import MigratorError
from migrator.execution import events
from migrator.execution.live.accounts import GRACE_S, CountAccounts
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.assembly import assemble
from migrator.log.report import totals_of

WINDOW_S = 4
TRAFFIC = LiveTraffic(["vision"], [], [np.zeros(3, np.int64)])


class Dropping:
    def __init__(self) -> None:
        self.n_asked = 0

    def __call__(self) -> None:
        self.n_asked += 1


def accounts(dropping: Dropping | None = None, first_window: int = 0) -> CountAccounts:
    setting, _ = assemble(validate_config(SMALL, "small"), "small")
    end_s = (first_window + 2) * WINDOW_S
    return CountAccounts(setting.tenants, WINDOW_S, end_s, dropping or Dropping(), first_window)


def word(tenant: str, second: int, arrived: int, in_time: int, **own: int) -> Counts:
    counts: Mapping[str, int] = {"late": 0, "dropped": 0, "refused": 0, "failed": 0, **own}
    named = {key: counts[key] for key in ("late", "dropped", "refused", "failed")}
    labels = {"judged": 0, "correct": 0, "goodput": 0, "turned_away": counts.get("turned_away", 0)}
    return Counts(tenant, second, arrived, in_time, **named, **labels, latency_ms=((3, in_time),) if in_time else ())


def test_a_window_is_settled_once_its_seconds_are_closed_and_none_of_its_requests_waits() -> None:
    own = accounts()
    own.hear(word("vision", 1, 5, 3))
    own.hear(Closed(WINDOW_S - 1))
    assert own.settled(1) == []
    own.hear(Closed(WINDOW_S))
    assert own.settled(1) == []
    assert own.queues["vision"].waiting == 2
    assert own.open_totals["vision"] == own.totals
    assert (own.totals.in_time, own.totals.arrivals) == (3, 3)
    own.hear(word("vision", 1, 5, 3, late=1, dropped=1))
    (settled,) = own.settled(1)
    assert [counts.totals.arrivals for counts in settled.counts] == [5, 0]
    assert own.settled(1) == []
    assert {totals.arrivals for totals in own.open_totals.values()} == {0}


def test_who_comes_is_in_windows_from_its_own_on_and_who_goes_up_to_its_last() -> None:
    own = accounts()
    vision, language = assemble(validate_config(SMALL, "small"), "small")[0].tenants
    third = replace(vision, name="third")
    own.hear(word("vision", 1, 5, 5))
    own.now_s = 2.0
    own.change_tenants([vision, language, third], TRAFFIC)
    own.hear(word("third", 2, 3, 3))
    own.now_s = 5.0
    own.change_tenants([language, third], TRAFFIC)
    own.hear(word("vision", 5, 2, 1))  # one of these waits
    assert {*own.open_totals} == {"vision", "language", "third"}
    assert {*own.in_time_shares(0)} == {"language", "third"}
    own.hear(Closed(2 * WINDOW_S))
    (first,) = own.settled(1)
    assert {one.tenant: one.totals.arrivals for one in first.counts} == {"language": 0, "third": 3, "vision": 5}
    own.now_s = 9.0
    own.hear(word("vision", 5, 2, 2))
    (second,) = own.settled(1)
    assert {one.tenant: one.totals.arrivals for one in second.counts} == {"language": 0, "third": 0, "vision": 2}
    own.change_tenants([vision, language, third], TRAFFIC)
    own.hear(word("vision", 9, 1, 1))
    own.hear(Closed(3 * WINDOW_S))
    (last,) = own.settled(2)
    assert [one.tenant for one in last.counts] == ["vision", "language", "third"]
    assert own.totals.arrivals == 11


def test_who_comes_later_is_in_no_window_before() -> None:
    own = accounts()
    vision, language = assemble(validate_config(SMALL, "small"), "small")[0].tenants
    own.now_s = 4.5
    own.change_tenants([vision, replace(vision, name="third")], TRAFFIC)
    own.hear(Closed(2 * WINDOW_S))
    first, second = own.settled(1)
    assert [one.tenant for one in first.counts] == ["vision", "language"]
    assert [one.tenant for one in second.counts] == ["vision", "third", "language"]
    assert language.name not in own.queues


def test_a_service_s_last_window_is_settled_once_the_seconds_that_it_served_are_closed() -> None:
    own = accounts()
    own.hear(word("vision", 0, 2, 1))
    own.now_s = 1.5
    has_drained = threading.Event()
    own.end(2.0, 1, has_drained.is_set)
    assert own.last_answer_s is not None
    own.hear(Closed(2))
    assert own.settled(0) == []  # one waits
    own.hear(word("vision", 0, 2, 1, late=1))
    own.hear(word("vision", 3, 0, 0, turned_away=1))  # what was refused meanwhile is of the window, too
    (settled,) = own.settled(0)
    assert settled.totals.arrivals == 3
    assert own.last_answer_s is not None  # somebody may wait whose request is in no window
    has_drained.set()
    assert own.last_answer_s is None


def test_clients_labels_are_counted_over_windows() -> None:
    own = accounts()
    for _ in range(2):
        own.hear(Labelled("vision", "first", 100, 30))
    own.hear(Closed(WINDOW_S))
    (settled,) = own.settled(0)
    assert settled.counts[0].judged == (200, 60)
    own.hear(Labelled("vision", "first", 10, 10))
    own.hear(Labelled("vision", "window-1", 5, 5))
    assert [own.feedback.newest("vision", one) for one in ("first", "window-1", "window-2")] == [
        (210, 70),
        (5, 5),
        (0, 0),
    ]
    assert own.feedback.share("language", "first") is None


def test_what_was_refused_is_offered_and_dropped_and_nobody_knows_what_is_right() -> None:
    own = accounts()
    own.hear(word("vision", 0, 6, 4, dropped=2, refused=1, turned_away=3))
    own.hear(Closed(WINDOW_S))
    (settled,) = own.settled(0)
    totals = settled.totals
    assert (totals.arrivals, totals.in_time, totals.dropped, totals.refused) == (9, 4, 5, 4)
    assert (totals.goodput, totals.goodput_pct, totals.accuracy_pct) == (None, None, None)
    record = events.window_finished(settled, {})
    assert not record.is_labelled
    told = record.tenants["vision"]
    assert (told.arrivals[0], told.refused[0], told.correct, told.latency_ms) == (9, 4, [], [(3, 4)])
    assert totals_of(told) == totals == own.totals
    assert told.failed == []


def test_what_clients_say_of_answers_is_in_the_next_window_that_is_settled_and_in_no_other() -> None:
    own = accounts()
    own.hear(Labelled("vision", "first", 3, 2))
    own.hear(Labelled("vision", "window-1", 1, 1))
    found = list[dict[str, tuple[int, int] | None]]()
    for window in (0, 1):
        own.hear(Closed((window + 1) * WINDOW_S))
        (settled,) = own.settled(1)
        found.append({name: one.judged for name, one in events.window_finished(settled, {}).tenants.items()})
    assert found == [{"vision": (4, 3), "language": None}, {"vision": None, "language": None}]


def test_what_workers_could_not_answer_is_dropped_and_told_apart() -> None:
    own = accounts()
    own.hear(word("vision", 1, 9, 4, dropped=5, refused=1, failed=3))
    assert (own.open_totals["vision"].dropped, own.open_totals["vision"].failed) == (5, 3)
    own.hear(Closed(WINDOW_S))
    (settled,) = own.settled(0)
    told = events.window_finished(settled, {}).tenants["vision"]
    assert (told.dropped, told.refused, told.failed) == ([0, 5, 0, 0], [0, 1, 0, 0], [0, 3, 0, 0])
    assert totals_of(told) == settled.totals


def test_each_word_on_a_second_stands_in_the_place_of_the_one_before() -> None:
    own = accounts()
    for in_time in (0, 2, 5):
        own.hear(word("vision", 2, 5, in_time))
        own.hear(word("vision", 6, 5, in_time))
    assert (own.totals.in_time, own.in_time_shares(0)) == (10, {"vision": 1.0, "language": 1.0})
    own.hear(Closed(2 * WINDOW_S))
    assert [one.window for one in own.settled(1)] == [0, 1]
    own.hear(word("vision", 2, 5, 5))  # the dispatcher's last word says all again
    assert (own.totals.in_time, own.settled(1)) == (10, [])
    assert own.in_time_shares(1)["vision"] == 1.0


def test_after_the_last_deadline_the_loop_waits_for_what_is_open_and_then_has_it_dropped() -> None:
    dropping = Dropping()
    own = accounts(dropping)
    own.hear(word("vision", 7, 1, 0))
    own.hear(Closed(2 * WINDOW_S))
    own.settled(1)
    own.serve({}, {}, 2.0 * WINDOW_S)
    assert own.last_answer_s == 2 * WINDOW_S + 0.25
    own.serve({}, {}, 2 * WINDOW_S + GRACE_S + 2)
    assert (own.last_answer_s is not None, dropping.n_asked) == (True, 1)
    own.hear(word("vision", 7, 1, 0, dropped=1))
    own.settled(1)
    assert own.last_answer_s is None


def test_what_comes_before_the_first_window_is_told_once_and_in_no_window() -> None:
    own = accounts(first_window=3)
    own.hear(word("vision", 9, 4, 2, dropped=1, refused=1))
    own.hear(word("vision", 11, 6, 6))
    own.hear(word("language", 11, 3, 1, late=1, turned_away=2))
    own.hear(word("vision", 12, 5, 5))
    own.hear(Closed(3 * WINDOW_S))
    assert (own.outside(), own.queues["vision"].waiting) == ((), 1)
    own.hear(word("vision", 9, 4, 2, late=1, dropped=1, refused=1))
    own.hear(word("language", 11, 3, 1, late=2, turned_away=2))
    record = events.outside(3, own.outside())
    vision, language = (record.tenants[name] for name in ("vision", "language"))
    assert (vision.arrivals, vision.in_time, vision.late, vision.dropped, vision.refused) == (10, 8, 1, 1, 1)
    assert (language.arrivals, language.in_time, language.dropped) == (5, 1, 2)
    own.hear(word("vision", 9, 99, 99))
    assert own.outside() == ()
    own.hear(Closed(4 * WINDOW_S))
    (settled,) = own.settled(3)
    assert (settled.window, settled.totals.arrivals, own.totals.arrivals) == (3, 5, 5)


def test_a_service_that_stops_before_its_first_window_waits_for_what_it_took() -> None:
    own = accounts(first_window=3)
    own.hear(word("vision", 9, 1, 0))
    own.end(10.0, 3)
    own.hear(Closed(10))
    assert (own.outside(), own.last_answer_s is not None) == ((), True)
    own.hear(word("vision", 9, 1, 1))
    assert sum(one.totals.in_time for one in own.outside()) == 1
    assert own.last_answer_s is None


def test_where_nobody_asks_before_the_first_window_there_is_nothing_to_tell() -> None:
    own = accounts(first_window=3)
    assert own.last_answer_s is not None
    own.hear(Closed(3 * WINDOW_S))
    assert own.outside() == ()


def test_no_kernel_serves() -> None:
    own = accounts()
    with pytest.raises(MigratorError, match="by workers"):
        own.serve_by(None, None, {}, 1.0)
