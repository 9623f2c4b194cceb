"""What a run says at its end: the layout over time, and what it won over a rival."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from migrator.log.account import Account
from migrator.log.runlog import ReadLog, log_in, read_log
from migrator.views import ending
from migrator.views.ending import MOST_RETRAININGS, print_against, print_layout_over_time, print_retrainings
from tests.migrator.log import records

WIDTH = 11 + 60


def console() -> Console:
    return Console(file=StringIO(), width=WIDTH)


def printed(log: ReadLog) -> list[str]:
    out = console()
    print_layout_over_time(log, out)
    assert isinstance(out.file, StringIO)
    return out.file.getvalue().splitlines()


@pytest.fixture
def log(call, write_config) -> ReadLog:
    assert call("run", write_config({"windows": 1}), "--policy", "equal", "--out", "run")[0] == 0
    return read_log(Path("run"))


def test_each_slice_has_a_line_with_a_column_a_second(log: ReadLog) -> None:
    lines = printed(log)
    rows = [line for line in lines if line.strip().startswith("slice")]
    assert len(rows) == 8
    assert {len(row) for row in rows} == {WIDTH}


def test_the_tenants_letters_are_explained(log: ReadLog) -> None:
    assert "V: vision, L: language" in printed(log)[1]


def test_the_chart_ends_where_the_run_does(log: ReadLog) -> None:
    (axis,) = (line for line in printed(log) if line.strip().startswith("second"))
    assert axis.split()[-1] == "60"


def test_without_instances_there_is_no_chart(call, write_config) -> None:
    assert call("run", write_config({"windows": 1}), "--policy", "ekya", "--out", "run")[0] == 0
    assert printed(read_log(Path("run"))) == []


def retrainings(*log: records.Json) -> list[str]:
    out = Console(file=StringIO(), width=200)
    print_retrainings(records.log_of(*records.timed(log)), out)
    assert isinstance(out.file, StringIO)
    return [line.strip() for line in out.file.getvalue().splitlines()[2:]]


def test_a_retraining_is_told_with_its_end_and_the_accuracy_before_and_after() -> None:
    log = records.tiny()
    for tenant in log[0]["tenants"]:
        tenant["retraining_s"] = {"1g.10gb": 9.0}
    assert retrainings(*log) == ["a: 4 s 50.0 → 90.0", "b: none ended"]
    part = {**records.finished(0, "1g.10gb@6#4", 3.25), "kind": "checkpoint", "accuracy": 0.7, "part": 0.5}
    assert retrainings(*log[:18], part, *log[18:])[0] == "a: 3 s 50.0 → 70.0 (in part), 4 s 70.0 → 90.0"
    many = [{**records.finished(0, "1g.10gb@6#4", 3.5 + n / 10), "at_s": 3.5} for n in range(MOST_RETRAININGS + 2)]
    assert retrainings(*log[:18], *many, *log[19:])[-2].endswith("and 2 more")


def test_without_anything_to_retrain_nothing_is_told() -> None:
    assert retrainings(*records.tiny()) == []


def test_a_log_without_a_whole_window_has_no_chart(tmp_path: Path) -> None:
    raw = records.write(tmp_path / "run", *records.tiny()).splitlines(keepends=True)
    assert printed(log_in(b"".join(raw[:3]), tmp_path)) == []


def against(monkeypatch: pytest.MonkeyPatch, own: Account, other: Account) -> str:
    accounts_of = iter((own, other))
    monkeypatch.setattr(ending, "account_in", lambda *_: next(accounts_of))
    rival = records.log_of(records.header(3.0, policy="static"))
    out = console()
    print_against(rival, rival, out)
    assert isinstance(out.file, StringIO)
    return " ".join(out.file.getvalue().split())


def test_what_was_won_is_told_with_where_it_came_from_and_what_it_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Account(goodput=700, wrong_old=100, capacity=200)
    other = Account(goodput=500, wrong_old=400, capacity=100)
    text = against(monkeypatch, own, other)
    assert "Won against static, the best layout that never changes, chosen in hindsight, on the same 1,000" in text
    assert "70.0 % were answered in time and right, static has 50.0 %: 200 more (+40.0 %)" in text
    assert (
        "30.0 points fewer wrong answers of models not yet retrained against 10.0 points more requests beyond" in text
    )


def test_what_is_lost_all_the_same_is_told_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Account(goodput=700, wrong_old=100, capacity=200)
    text = against(monkeypatch, own, own)
    assert "Lost all the same: 20.0 % requests beyond what the instances could serve; 10.0 % wrong answers" in text


def test_of_what_queued_too_long_it_is_told_what_waited_for_others_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "waits_for_others", lambda *_: {"a": np.array([20.0, 30.0])})
    text = against(monkeypatch, Account(goodput=900, queueing=100), Account(goodput=900, queueing=100))
    assert "10.0 % requests that waited too long in a burst or for a batch (5.0 % for others of their pool)" in text


def test_a_run_that_is_behind_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = against(monkeypatch, Account(goodput=1, queueing=9), Account(goodput=2, queueing=8))
    assert "Lost against static" in text
    assert ": 1 fewer (-50.0 %)" in text


def test_both_are_simulated_on_the_same_requests(call, write_config) -> None:
    code, out, _ = call("run", write_config({"windows": 1}), "--policy", "equal", "--against", "equal", "--out", "run")
    assert code == 0
    assert re.search(r"(\d+\.\d %) of [\d,]+ requests in time and right · equal \1", out)
    assert ": 0 more (+0.0 %)" in call("report", "run", "--full")[1]


def test_an_unknown_rival_is_refused_before_anything_runs(call, write_config) -> None:
    code, out, err = call("run", write_config(), "--against", "nobody")
    assert (code, out) == (2, "")
    assert err.startswith("error: policy 'nobody': known are ")
    assert not Path("runs").exists()
