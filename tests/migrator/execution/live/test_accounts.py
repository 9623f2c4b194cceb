"""The accounts of what clients ask: the dispatcher's words on seconds become windows, each once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.migrator.conftest import SMALL
from workloads.live.messages import Closed, Counts

pytest.importorskip("zmq")

from migrator.config.reading import validate_config
from migrator.errors import MigratorError
from migrator.execution import events
from migrator.execution.live.accounts import GRACE_S, CountAccounts
from migrator.inputs.assembly import assemble
from migrator.log.report import totals_of

WINDOW_S = 4


class Dropping:
    def __init__(self) -> None:
        self.n_asked = 0

    def __call__(self) -> None:
        self.n_asked += 1


def accounts(dropping: Dropping | None = None) -> CountAccounts:
    setting, _ = assemble(validate_config(SMALL, "small"), "small")
    return CountAccounts(setting.tenants, WINDOW_S, 2 * WINDOW_S, dropping or Dropping())


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
    own.hear(word("vision", 1, 5, 3, late=1, dropped=1))
    (settled,) = own.settled(1)
    assert [counts.totals.arrivals for counts in settled.counts] == [5, 0]
    assert own.settled(1) == []


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


def test_tenants_stay_and_no_kernel_serves() -> None:
    own = accounts()
    with pytest.raises(MigratorError, match="come and go"):
        own.change_tenants([], None)
    with pytest.raises(MigratorError, match="by workers"):
        own.serve_by(None, None, {}, 1.0)
