"""What the records say of an instance's life."""

from __future__ import annotations

import math

from migrator.log.changes import Call, Instance, changes_in
from tests.migrator.log import records
from tests.migrator.log.records import Json, change, failed, ready, started, stopped

HEADER = records.header(60.0)
BEGUN = change(0, 10.0, [started("x", 10.5, "2g.20gb@2")])
ENDED = change(0, 30.0, [], [stopped("x", 30.0, 31.5)])


def life(*events: Json) -> Instance:
    return changes_in(records.log_of(HEADER, *events))[0].started[0]


def test_an_instance_serves_from_ready_until_it_ends() -> None:
    instance = life(BEGUN, ready(0, "x", 14.0), ENDED)
    assert (instance.begin_s, instance.up_s, instance.end_s, instance.gone_s) == (10.5, 14.0, 30.0, 31.5)
    assert instance.served == ((14.0, 30.0),)
    assert instance.profile == "2g.20gb"


def test_an_instance_that_lives_serves_without_end() -> None:
    assert life(BEGUN, ready(0, "x", 14.0)).served == ((14.0, math.inf),)


def test_a_failed_worker_serves_again_when_it_is_ready_again() -> None:
    served = life(BEGUN, ready(0, "x", 14.0), failed(0, "x", 20.0), ready(0, "x", 24.0), ENDED).served
    assert served == ((14.0, 20.0), (24.0, 30.0))


def test_a_start_that_was_given_up_ends_the_start_up() -> None:
    instance = life(BEGUN, failed(0, "x", 12.0), ENDED)
    assert (instance.up_s, instance.served, instance.ready) == (12.0, (), None)


def test_an_instance_that_ended_before_it_was_ready_never_served() -> None:
    instance = life(BEGUN, ENDED)
    assert (instance.up_s, instance.served) == (30.0, ())


def test_calls_belong_to_the_change_after_them_and_refused_ones_to_none() -> None:
    calls = [records.intent(0, "create", "2g.20gb@2"), records.outcome(0, 1, 10.0, 10.5)]
    refused = [records.intent(0, "destroy", "2g.20gb@2"), records.outcome(0, 4, 30.0, 30.5, "busy")]
    first, then = changes_in(records.log_of(HEADER, *calls, BEGUN, *refused, ENDED))
    assert (first.calls, then.calls) == ((Call("create", "2g.20gb@2", 10.0, 10.5),), ())


def test_the_first_layout_is_the_bring_up() -> None:
    changes = changes_in(records.log_of(HEADER, change(0, -9.0, [started("x", -9.0)]), change(0, 0.0)))
    assert [item.is_bring_up for item in changes] == [True, False]


def test_calls_of_a_change_that_was_cut_off_are_no_later_changes() -> None:
    log = records.log_of(
        records.header(10.0),
        records.intent(0, "create", "1g.10gb@0"),
        records.outcome(0, 1, 3.0, 3.2),
        {"kind": "resumed", "window": 1, "void": [0], "at_s": 4.0},
        records.intent(1, "create", "1g.10gb@1"),
        records.outcome(1, 4, 12.0, 12.2),
        records.change(1, 12.0, [records.started("x", 12.0, "1g.10gb@1")]),
    )
    (found,) = changes_in(log)
    assert [call.placement for call in found.calls] == ["1g.10gb@1"]
