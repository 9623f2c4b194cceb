"""What is remembered of models' accuracies does not grow, and is in the log: a run that is joined again knows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from migrator.config.reading import read_config
from migrator.execution.reposing import RunCheck, _Retold
from migrator.inputs.assembly import assemble
from migrator.log.accuracies import N_KEPT, Accuracies, AccuracyHistory
from migrator.log.line import Entry
from migrator.log.records import Finished, Resumed, WindowStarted
from migrator.log.runlog import CONFIG_FILE
from tests.migrator.log import records
from tests.migrator.log.test_segments import made

WINDOW_S = 60.0


def test_what_is_remembered_does_not_grow_and_is_the_newest() -> None:
    rng, seen, whole = np.random.default_rng(1), AccuracyHistory(), AccuracyHistory()
    sizes = set[int]()
    for window in range(4 * N_KEPT):
        for at_s in (WINDOW_S * window, WINDOW_S * window + rng.uniform(1, 59)):
            accuracy = rng.uniform(0.3, 0.9)
            seen.note(at_s, accuracy)
            whole.note(at_s, accuracy)
        seen.forget(window, WINDOW_S)
        assert seen.lasting(WINDOW_S) == whole.lasting(WINDOW_S)
        sizes.add(len(seen.moments.by_s) + len(seen.moments.kept))
    assert [*seen.lasting(WINDOW_S)] == [*range(3 * N_KEPT, 4 * N_KEPT)]
    assert max(sizes) <= N_KEPT + 7


def test_a_model_that_is_lost_sight_of_keeps_what_windows_taught_and_its_next_begin_teaches_nothing() -> None:
    seen = AccuracyHistory({0.0: 0.8, 60.0: 0.4, 90.0: 0.9})
    seen.join(WINDOW_S)
    assert (seen.is_unknown, seen.lasting(WINDOW_S)) == (True, {1: 0.5})
    seen.note(300.0, 0.1)
    seen.note(360.0, 0.05)
    assert seen.lasting(WINDOW_S) == {1: 0.5, 6: 0.5}


def test_a_retraining_shows_how_far_its_model_was_behind_as_soon_as_it_has_ended() -> None:
    seen = AccuracyHistory({60.0: 0.6, 80.0: 0.7, 100.0: 0.8})
    assert [seen.behind(60.0, until_s) for until_s in (79.0, 80.0, 110.0)] == [None, 0.6 / 0.7, 0.6 / 0.8]
    assert seen.behind(0.0, 110.0) is None


@pytest.mark.parametrize("case", ["drift", "re-planned"])
def test_a_snapshot_has_all_that_the_records_before_say(case: str) -> None:
    log = made(case)
    whole = Accuracies.of(None, log.entries).moments
    assert all(own.kept for own in whole.values())
    for started in log.of(WindowStarted):
        rest = log.since(started.window)
        assert Accuracies.of(rest.begins, rest.entries).moments == whole


def test_a_drift_that_does_not_follow_is_found_out_from_a_snapshot_on() -> None:
    rest = made("drift").since(3)
    setting, traffic = assemble(read_config(rest.folder / CONFIG_FILE), "small")
    assert {one.reason for one in RunCheck(rest, setting, traffic).plans()} == {""}
    (place,) = (
        n for n, one in enumerate(rest.entries) if isinstance(one.record, WindowStarted) and one.record.window == 5
    )
    entry = rest.entries[place]
    assert isinstance(entry.record, WindowStarted)
    views = {name: structs.replace(own, drift=own.drift / 2) for name, own in entry.record.outlook.items()}
    altered = Entry(entry.n, entry.at_s, structs.replace(entry.record, outlook=views), entry.wall)
    log = replace(rest, entries=(*rest.entries[:place], altered, *rest.entries[place + 1 :]))
    (said,) = {one.reason for one in RunCheck(log, setting, traffic).plans() if one.window == 5}
    assert "vision has in its outlook drift" in said


def test_records_that_a_snapshot_repeats_tell_a_check_no_accuracy_again() -> None:
    rest = made("drift").since(4)
    setting, _ = assemble(read_config(rest.folder / CONFIG_FILE), "small")
    retold = _Retold(rest, setting)
    known = {name: own.moments for name, own in retold._measured.items()}
    assert all(own.kept for own in known.values())
    assert rest.begins is not None
    repeated = [one.record for one in rest.entries[: len(rest.begins.entries)] if isinstance(one.record, Finished)]
    assert repeated
    retold.is_known = True
    for ended in repeated:
        retold.learned(ended)
    retold.resumed()
    assert {name: own.moments for name, own in retold._measured.items()} == known
    retold.is_known = False
    retold.resumed()
    assert all(own.is_unknown and own.moments.kept for own in retold._measured.values())


def test_after_an_outage_what_was_learned_is_still_known_and_the_outage_teaches_nothing() -> None:
    def begun(window: int, accuracy: float, at_s: float) -> records.Json:
        told = records.window_started(window, 10.0)
        told["forecast"]["tenants"]["a"]["accuracy_before"] = accuracy
        return {**told, "at_s": at_s}

    header = {**records.header(10.0), "service": True, "backend": "cpu", "simulated": False}
    log = records.log_of(
        *(header, begun(0, 0.8, 0.0), begun(1, 0.4, 10.0)),
        {"kind": "resumed", "window": 5, "void": [0, 1, 2, 3, 4], "at_s": 45.0},
        *({**begun(5, 0.1, 50.0), "asked_s": 46.0}, begun(6, 0.09, 60.0)),
    )
    assert Accuracies.of(None, log.entries).by_tenant["a"].lasting(10.0) == {1: 0.5, 6: pytest.approx(0.9)}
    assert Accuracies.of(None, log.entries[:4]).by_tenant["a"].is_unknown
    rest = log.since(6)
    assert rest.begins is not None
    assert Resumed in {type(entry.record) for entry in rest.entries}
    again = Accuracies.of(rest.begins, rest.entries)
    assert again.moments == Accuracies.of(None, log.entries).moments
    older = structs.replace(rest.begins, accuracies={})
    assert Accuracies.of(older, rest.entries[: len(older.entries)]).moments == {}


def test_older_weights_before_the_first_window_after_an_outage_leave_its_begin_measured() -> None:
    begun = [{**records.window_started(window, 10.0), "at_s": 10.0 * window} for window in (0, 5)]
    log = records.log_of(
        *({**records.header(10.0), "service": True, "backend": "cpu", "simulated": False}, begun[0]),
        {"kind": "resumed", "window": 5, "void": [1, 2, 3, 4], "at_s": 45.0},
        *({**records.rolled_back(47.0), "at_s": 47.0}, {**begun[1], "asked_s": 46.0}),
    )
    assert [at_s for at_s, _ in Accuracies.of(None, log.entries).moments["a"].by_s] == [47.0, 50.0]
