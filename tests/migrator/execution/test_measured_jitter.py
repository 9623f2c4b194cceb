"""``service_jitter: measured`` from the config file on: what runs do with it, and what they say of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator.comparison.matches import matches_of, score_of
from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from migrator.inputs.provenance import MEASURED_JITTER, provenance
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, read_log
from planner.policies.ekya import Ekya
from planner.policies.whole import Whole
from tests.migrator.execution.simulation import Assembled, run_of

BUSY: dict[str, Any] = {"windows": 1, "tenants.0.arrivals.rate_rps": 3000, "tenants.1.arrivals.scale.factor": 60.0}
MEASURED = {**BUSY, "simulation": {"service_jitter": "measured"}}

Run = tuple[list[dict[str, Any]], str]


@pytest.fixture
def run(write_config: Callable[..., Path], call: Callable[..., Any]) -> Callable[[Mapping[str, Any], str], Run]:
    """Runs the small config with changes: its log without the wall clock's facts, and what the run printed."""

    def made(changes: Mapping[str, Any], name: str = "run") -> Run:
        code, printed, _ = call("run", write_config(changes), "--out", name)
        assert code == 0
        events = [json.loads(line) for line in (Path(name) / EVENTS_FILE).read_text().splitlines()]
        return [{key: value for key, value in event.items() if key != "wall"} for event in events], printed

    return made


@pytest.fixture
def assembled(write_config: Callable[..., Path]) -> Callable[[Mapping[str, Any]], Assembled]:
    def build(changes: Mapping[str, Any]) -> Assembled:
        path = write_config(changes)
        return assemble(read_config(path), str(path))

    return build


def test_answers_of_a_run_come_late(run) -> None:
    run(MEASURED)
    total = report_of(read_log(Path("run"))).total
    assert total is not None
    assert total.requests.late > 0


def test_two_runs_have_the_same_log(run) -> None:
    assert run(MEASURED, "once")[0] == run(MEASURED, "again")[0]


def test_only_the_answers_differ_from_a_run_without(run) -> None:
    kept = [
        [event["plan"] for event in run(changes, name)[0] if event["kind"] == "window_started"]
        for changes, name in ((BUSY, "without"), (MEASURED, "with"))
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(("changes", "told"), [(BUSY, None), (MEASURED, "measured")])
def test_the_log_has_a_field_for_it_where_it_is_set(run, changes: Mapping[str, Any], told: str | None) -> None:
    assert run(changes)[0][0].get("service_jitter") == told


@pytest.mark.parametrize(("changes", "is_told"), [(BUSY, False), (MEASURED, True)])
def test_the_report_says_that_training_was_measured(
    run, monkeypatch, changes: Mapping[str, Any], is_told: bool
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert (f"service jitter: {MEASURED_JITTER}" in run(changes)[1]) == is_told


@pytest.mark.parametrize("policy", [Ekya(), Whole()], ids=["shares", "whole GPU"])
def test_without_partitions_answers_come_late_as_well(assembled, policy: Ekya | Whole) -> None:
    n_late = [sum(one.late for one in run_of(assembled(changes), policy).totals) for changes in (BUSY, MEASURED)]
    assert n_late[0] == 0 < n_late[1]


def test_comparisons_say_that_training_was_measured(write_config) -> None:
    path = write_config(MEASURED)
    (match,) = matches_of(read_config(path), str(path), ["equal"], 1)
    assert ("service jitter", MEASURED_JITTER) in score_of(match).notes


def test_plans_are_made_without_jitter_and_do_not_mention_it(assembled) -> None:
    notes = [
        provenance(setting.config, setting.tenants, traffic) for setting, traffic in map(assembled, (MEASURED, BUSY))
    ]
    assert notes[0] == notes[1]
