"""``migrator rollback``: what a service answers is said in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.log.orders import AnyOrder, Rollback
from migrator.log.records import Answer, OrderRefused, RolledBack
from migrator.log.runlog import RunLog
from tests.migrator.log import records

Call = Callable[..., tuple[int, str, str]]


def folder(*, is_service: bool) -> None:
    header, *_ = records.tiny()
    with RunLog(Path("run"), "seed: 1\n") as log:
        log.append(records.record_of({**header, "service": is_service}), 0.0)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, AnyOrder | Answer]:
    """The order that a service hears, and what it answers."""
    found: dict[str, AnyOrder | Answer] = {}

    def give(_: Path, order: AnyOrder) -> AnyOrder | Answer:
        found["order"] = order
        return found["answer"]

    monkeypatch.setattr("migrator.commands.rollback.give", give)
    return found


def test_which_weights_answer_again_is_said(call: Call, given: dict[str, AnyOrder | Answer]) -> None:
    folder(is_service=True)
    answer = records.record_of(records.rolled_back(5.0))
    assert isinstance(answer, RolledBack)
    given["answer"] = answer
    assert call("rollback", "run", "a")[:2] == (0, "a answers with window-0 again, in place of window-2\n")
    assert given["order"] == Rollback(tenant="a")
    call("rollback", "run", "a", "first")
    assert given["order"] == Rollback(tenant="a", version="first")


def test_a_refusal_is_one_line(call: Call, given: dict[str, AnyOrder | Answer]) -> None:
    folder(is_service=True)
    given["answer"] = OrderRefused(what="rollback", reason="there is no tenant 'b'; there is: a")
    assert call("rollback", "run", "b") == (2, "", "error: there is no tenant 'b'; there is: a\n")


def test_a_run_is_no_service(call: Call) -> None:
    folder(is_service=False)
    assert call("rollback", "run", "a") == (2, "", "error: run: holds a run, which is no service\n")


def test_a_service_that_is_gone_takes_no_order(call: Call) -> None:
    folder(is_service=True)
    assert call("rollback", "run", "a") == (
        2,
        "",
        "error: run: no service runs there; migrator serve starts it again\n",
    )
