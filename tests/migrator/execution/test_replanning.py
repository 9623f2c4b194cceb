"""Plans of windows' rests that there must be, made while the run goes on: planning takes long."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import validate_config
from migrator.execution.instances import Instances
from migrator.execution.loop import View
from migrator.inputs.assembly import assemble
from migrator.log.records import Change, PlanRevised, WindowStarted
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog
from planner.errors import EngineError
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.asking import ask, once_after
from tests.migrator.execution.test_seams import logged

ASKED_S = 25.0
"""When a plan is asked for: three seconds later a retraining ends, and the layout is to change."""

BUSY: dict[str, Any] = {
    "tenants.0.arrivals.rate_rps": 900,
    "tenants.1.arrivals.scale.factor": 20.0,
    "tenants.0.retraining.samples": 12000,
}


class Answered(Future[Any]):
    """An answer that is there from a moment of the run on."""

    def __init__(self, sharing: Instances, answer: Any, from_s: float) -> None:
        super().__init__()
        self._sharing, self._from_s = sharing, from_s
        self.set_result(answer)

    def done(self) -> bool:
        return self._sharing._accounts.now_s >= self._from_s


class Moments(View):
    """Keeps how far the run had come whenever it told."""

    def __init__(self) -> None:
        self.reached_s: list[float] = []

    def reached(self, now_s: float, *_: object) -> None:
        self.reached_s.append(now_s)


def run_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_s: float, view: View, error: EngineError | None = None
) -> ReadLog:
    """The log of a run that is asked for a plan at ``ASKED_S``, which takes so long, or comes to this error."""

    def submitted(sharing: Instances, answer: Any) -> Answered:
        return Answered(sharing, answer() if error is None else error, sharing._accounts.now_s + takes_s)

    monkeypatch.setattr(Instances, "_submitted", submitted)
    ask(monkeypatch, once_after(ASKED_S))
    setting, traffic = assemble(validate_config(changed(SMALL, BUSY), "small"), "small")
    return logged(tmp_path / "run", setting, traffic, view=view)


@pytest.mark.parametrize("takes_s", [0.0, 7.0])
def test_while_a_plan_that_there_must_be_is_made_requests_are_served_and_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    moments = Moments()
    log = run_with(tmp_path, monkeypatch, takes_s, moments)
    (revised,) = log.entries_of(PlanRevised)
    asked_s, at_s = revised.record.asked_s, revised.at_s
    begun_s = [record.begin_s for record in log.of(Change)]
    assert at_s >= asked_s + takes_s
    assert not [begin_s for begin_s in begun_s if asked_s < begin_s < at_s]
    assert takes_s == 0 or [moment for moment in moments.reached_s if asked_s < moment < at_s]
    assert max(begun_s) > at_s  # the new plan is followed
    assert report_of(log).ending == "finished"


def test_a_plan_that_is_not_there_before_its_window_ends_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = run_with(tmp_path, monkeypatch, 40.0, View())
    assert not log.of(PlanRevised)
    assert [record.window for record in log.of(WindowStarted)] == [0, 1]
    assert all(record.begin_s <= ASKED_S or record.window == 1 for record in log.of(Change))
    assert report_of(log).ending == "finished"


def test_where_a_policy_cannot_answer_though_there_must_be_a_plan_the_run_ends_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="the solver is gone"):
        run_with(tmp_path, monkeypatch, 3.0, View(), EngineError("the solver is gone"))
