"""Whole runs through the command line: what they log, what reports make of it, and what survives a kill."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import to_builtins

from migrator.commands.run import run_command
from migrator.log import records as recorded
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, RunLog, read_log
from migrator.views.progress import RunView
from planner.files.plan_file import WALL_KEYS
from planner.plan import MigPlan
from planner.problem import Problem
from planner.solve import solve
from tests.migrator.conftest import SMALL, changed

COUNTS = ("arrivals", "in_time", "late", "dropped", "correct")


def written(folder: Path, changes: dict[str, Any], name: str) -> Path:
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(changed(SMALL, changes)))
    return config


def run_process(folder: Path, changes: dict[str, Any], name: str = "run", **options: Any) -> subprocess.Popen[bytes]:
    config = written(folder, changes, name)
    command = [sys.executable, "-m", "migrator", "run", str(config), "--out", str(folder / name)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


def wait_for_log(process: subprocess.Popen[bytes], log: Path, n_bytes: int) -> None:
    while process.poll() is None and not (log.exists() and log.stat().st_size >= n_bytes):
        threading.Event().wait(0.001)  # a look now and then: the run needs the processor


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    process.stderr.close() if process.stderr else None


JITTER = {
    "simulation": {"start_jitter": 3.0, "service_jitter": 0.4},
    "tenants.0.arrivals.rate_rps": 2000,
    "tenants.1.arrivals.scale.factor": 60.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds three finished runs: twice the same one, once in another process, and one with jitter."""
    folder = tmp_path_factory.mktemp("runs")
    again = run_process(folder, {}, "again")
    for name, changes in {"run": {}, "jitter": JITTER}.items():
        run_command(written(folder, changes, name), out=folder / name)
    finish(again)
    return folder


def without_wall(path: Path) -> list[str]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [json.dumps({key: value for key, value in event.items() if key != "wall"}) for event in events]


def test_same_seed_gives_the_same_log(folder: Path) -> None:
    assert without_wall(folder / "run" / EVENTS_FILE) == without_wall(folder / "again" / EVENTS_FILE)


def test_wall_is_where_the_two_logs_differ(folder: Path) -> None:
    assert (folder / "run" / EVENTS_FILE).read_text() != (folder / "again" / EVENTS_FILE).read_text()


def test_report_totals_are_sums_over_the_raw_log(folder: Path) -> None:
    sums = dict.fromkeys(COUNTS, 0)
    for line in (folder / "run" / EVENTS_FILE).read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "window_finished":
            for counts in event["tenants"].values():
                for key in COUNTS:
                    sums[key] += sum(counts[key])
    total = report_of(read_log(folder / "run")).total
    assert total is not None
    assert {key: getattr(total.requests, key) for key in COUNTS} == sums


@pytest.mark.parametrize("name", ["run", "jitter"])
def test_every_second_adds_up(folder: Path, name: str) -> None:
    finished = read_log(folder / name).of(recorded.WindowFinished)
    for event in finished:
        for counts in event.tenants.values():
            for arrivals, in_time, late, dropped in zip(*(getattr(counts, key) for key in COUNTS[:4]), strict=True):
                assert arrivals == in_time + late + dropped
    assert len(finished) == 2


def test_with_jitter_instances_and_answers_come_late(folder: Path) -> None:
    total = report_of(read_log(folder / "jitter")).total
    assert total is not None
    assert total.late_ready_s > 0
    assert total.requests.late > 0


def test_without_jitter_nothing_is_late(folder: Path) -> None:
    total = report_of(read_log(folder / "run")).total
    assert total is not None
    assert (total.late_ready_s, total.requests.late) == (0, 0)


def test_every_plan_passed_the_check_and_every_window_was_settled(folder: Path) -> None:
    log = read_log(folder / "run")
    assert [event.violations for event in log.of(recorded.WindowStarted)] == [(), ()]
    assert report_of(log).ending == "finished"


def test_a_retraining_raises_the_accuracy_when_it_finishes(folder: Path) -> None:
    log = read_log(folder / "run")
    finishes = [event.finish_s for event in log.of(recorded.Finished)]
    for window, finish_s in enumerate(sorted(finishes)):
        counts = log.of(recorded.WindowFinished)[window].tenants["vision"]
        done = round(finish_s) - 60 * window
        assert sum(counts.correct[:done]) / sum(counts.in_time[:done]) == pytest.approx(0.6, abs=0.06)
        assert sum(counts.correct[done:]) / sum(counts.in_time[done:]) == pytest.approx(0.9, abs=0.03)
    assert len(finishes) == 2


def test_the_config_as_resolved_lies_beside_the_log(folder: Path) -> None:
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert config["tenants"][1]["arrivals"]["scale"]["factor"] == 4.0
    assert {path.name for path in (folder / "run").iterdir()} == {"config.yaml", EVENTS_FILE}


def test_a_log_cut_anywhere_is_reported(folder: Path, tmp_path: Path) -> None:
    content = (folder / "run" / EVENTS_FILE).read_bytes()
    first_line = content.index(b"\n") + 1
    cut = tmp_path / "cut"
    cut.mkdir()
    for size in random.Random(0).sample(range(first_line, len(content)), 40):
        (cut / EVENTS_FILE).write_bytes(content[:size])
        report = report_of(read_log(cut))
        whole_lines = content[:size].split(b"\n")[:-1]
        settled = sum(json.loads(line)["kind"] == "window_finished" for line in whole_lines)
        assert sum(not window.is_void for window in report.windows) == settled


@pytest.mark.long
def test_a_run_killed_at_any_moment_is_reported(tmp_path: Path) -> None:
    moments = random.Random(1)
    for number in range(3):  # test_crash.py has more, of runs that are taken up again
        process = run_process(tmp_path, {"windows": 3}, f"run{number}")
        log = tmp_path / f"run{number}" / EVENTS_FILE
        enough = moments.randint(1, 12_000)
        wait_for_log(process, log, enough)
        process.kill()
        process.communicate()
        report = report_of(read_log(log.parent))
        assert report.ending in ("torn", "finished")


def test_an_interrupt_with_the_first_record_is_told(
    call, write_config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    append = RunLog.append

    def interrupted(log: RunLog, record: recorded.Record, *rest: Any) -> int:
        number = append(log, record, *rest)
        if number == 0:
            raise KeyboardInterrupt
        return number

    monkeypatch.setattr(RunLog, "append", interrupted)
    assert call("run", write_config(), "--out", tmp_path / "run")[0] == 130
    assert report_of(read_log(tmp_path / "run")).ending == "interrupted"


def test_a_terminal_that_is_closed_ends_a_run_as_its_signal_does(
    call, write_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view cannot write to it any more."""

    def closed(_: RunView) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(RunView, "settled", lambda *_: signal.raise_signal(signal.SIGHUP))
    monkeypatch.setattr(RunView, "close", closed)
    code, _, err = call("run", write_config(), "--out", tmp_path / "run")
    assert (code, err.splitlines()[-1]) == (129, "error: interrupted by SIGHUP")
    assert report_of(read_log(tmp_path / "run")).ending == "interrupted"


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGINT, 130, "error: interrupted"),
        pytest.param(signal.SIGTERM, 143, "error: interrupted by SIGTERM", marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, "error: interrupted by SIGHUP", marks=pytest.mark.long),
    ],
    ids=["INT", "TERM", "HUP"],
)
def test_what_interrupts_ends_with_its_code_and_an_intact_log(
    tmp_path: Path, number: signal.Signals, code: int, line: str
) -> None:
    process = run_process(tmp_path, {"windows": 40})  # of which it makes a few before it is interrupted
    log = tmp_path / "run" / EVENTS_FILE
    wait_for_log(process, log, 1)
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, errors.decode().splitlines()[-1]) == (code, line)
    assert "Traceback" not in errors.decode()
    assert report_of(read_log(log.parent)).ending == "interrupted"
    assert not read_log(log.parent).torn


def test_a_full_disk_is_told_in_one_line_and_leaves_a_readable_log(tmp_path: Path) -> None:
    def no_file_above_8_kib() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    process = run_process(tmp_path, {}, preexec_fn=no_file_above_8_kib)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1] == f"error: {tmp_path / 'run' / EVENTS_FILE}: File too large"
    assert "Traceback" not in errors.decode()
    assert report_of(read_log(tmp_path / "run")).ending == "torn"


def test_planning_offline_gives_the_plan_that_the_run_executed(folder: Path, call) -> None:
    code, out, _ = call("plan", folder / "run" / "config.yaml", "--window", 1, "--json")
    executed = read_log(folder / "run").of(recorded.WindowStarted)[1].plan
    added = {*WALL_KEYS, "assumed", "partitions", "plan_from_step"}
    by_proof = {"status", "bound", "gap", "claimed_bound", "claimed_gap", "certificate", "work"}
    planned = {key: value for key, value in json.loads(out).items() if key not in added}
    assert (code, planned | dict.fromkeys(by_proof)) == (0, to_builtins(executed) | dict.fromkeys(by_proof))


def test_a_run_prints_what_its_report_is(call, write_config) -> None:
    code, out, err = call("run", write_config(), "--windows", 1)
    assert (code, err.count("window 0:")) == (0, 2)
    assert out.startswith("small   simulated a100-80gb · 1 window × 60 s · seed 3\n")
    assert call("report", "runs/small")[1] == out
    says = "plans of whole windows: not proven as they were made; migrator verify RUN proves them"
    assert (says in out, says in call("report", "runs/small", "--full")[1]) == (False, True)


def test_the_second_run_of_a_name_gets_its_own_folder(call, write_config) -> None:
    for _ in range(2):
        assert call("run", write_config(), "--windows", 1)[0] == 0
    assert {path.name for path in Path("runs").iterdir()} == {"small", "small-2"}


def test_report_as_json_has_the_log_s_totals(folder: Path, call) -> None:
    answer = json.loads(call("report", folder / "run", "--json")[1])
    tenants = answer["tenants"].values()
    assert answer["total"]["arrivals"] == sum(tenant["arrivals"] for tenant in tenants)
    assert answer["run"]["simulated"] is True
    assert [window["void"] for window in answer["windows"]] == [False, False]


def test_the_old_layout_serves_while_estimates_are_waited_for(call, write_config) -> None:
    changes = {"estimates.delay_s": 9, "tenants.0.arrivals.rate_rps": 1500}
    assert call("run", write_config(changes))[0] == 0
    log = read_log(Path("runs/small"))
    assert [event.plan_from_step for event in log.of(recorded.WindowStarted)] == [0, 9]
    assert all(event.begin_s >= 69 for event in log.of(recorded.Change) if event.window == 1)
    assert log.of(recorded.WindowStarted)[1].plan.n_steps == 51


def test_three_tenants_that_do_not_fit_end_with_3_and_write_nothing(call, write_config) -> None:
    vision = changed(SMALL, {})["tenants"][0] | {"min_profile": "3g.40gb"}
    tenants = [{**vision, "name": name} for name in "abc"]
    code, _, err = call("run", write_config({"tenants": tenants, "sharing": {"pools": "off"}}))
    *arrivals, error = err.splitlines()
    assert (code, [line[:3] for line in arrivals]) == (3, ["a: ", "b: ", "c: "])
    assert "rule 4" in error
    assert not Path("runs").exists()


def test_a_window_without_a_plan_keeps_the_layout(call, write_config) -> None:
    # From window 1 on estimates come so late that the retraining cannot end: no plan, old layout, old accuracy.
    accuracy = [{"before": before, "after": 0.95} for before in (0.6, 0.8, 0.9)]
    changes = {
        "tenants.0.retraining.samples": 8000,
        "estimates.delay_s": 70,
        "window_s": 80,
        "windows": 3,
        "tenants.0.accuracy": accuracy,
    }
    code, out, err = call("run", write_config(changes))
    log = read_log(Path("runs/small"))
    assert code == 0
    assert [event.plan.status == "infeasible" for event in log.of(recorded.WindowStarted)] == [False, True, True]
    assert "No plan for window 1, 2" in out
    assert "the old layout stays" in err
    started = [event.forecast.tenants["vision"].accuracy_before for event in log.of(recorded.WindowStarted)]
    assert started == [0.6, 0.8, 0.8]  # window 1 was not retrained, so its model goes on in window 2


def test_a_plan_that_breaks_a_rule_is_kept_in_the_log_and_not_carried_out(call, write_config, monkeypatch) -> None:
    def flattered(problem: Problem, *options: Any, **named: Any) -> MigPlan:
        plan = solve(problem, *options, **named)
        return replace(plan, objective=plan.objective * 2) if problem.initial is not None else plan

    monkeypatch.setattr("planner.policies.ours.solve", flattered)
    code, out, err = call("run", write_config())
    log = read_log(Path("runs/small"))
    second = log.of(recorded.WindowStarted)[1]
    assert code == 0
    assert "rule 5" in second.violations[0]
    assert second.rejected_plan.status in ("optimal", "feasible")
    assert second.plan.status == "timeout"
    assert not [item for event in log.of(recorded.Change) if event.window == 1 for item in event.started]
    assert "Window 1: the plan of migrator breaks a rule: rule 5" in out
    assert "the layout before it was kept" in " ".join(out.split())
    assert "breaks a rule" in err


def broken_solve(monkeypatch) -> None:
    for module in ("migrator.execution.planning", "planner.policies.ours"):
        monkeypatch.setattr(f"{module}.solve", lambda *a, **o: replace(solve(*a, **o), objective=1.0))


def test_a_first_plan_that_breaks_a_rule_gives_way_to_a_fixed_layout(call, write_config, monkeypatch) -> None:
    broken_solve(monkeypatch)
    code, out, err = call("run", write_config())
    log = read_log(Path("runs/small"))
    first = log.of(recorded.WindowStarted)[0]
    (change,) = log.of(recorded.Change)
    assert (code, {(tenant, task) for _, tenant, task in change.layout}) == (
        0,
        {("vision", "inference"), ("language", "inference")},
    )
    assert first.rejected_plan.objective == 1.0
    assert "Window 0: the plan of migrator breaks a rule: rule 5" in out
    assert "one fixed layout was held, none retrained" in " ".join(out.split())
    assert "one fixed layout is held instead" in err


def test_a_report_as_json_names_the_rule_that_a_refused_plan_breaks(call, write_config, monkeypatch) -> None:
    broken_solve(monkeypatch)
    call("run", write_config())
    report = json.loads(call("report", "runs/small", "--json")[1])
    assert [window["plan"]["violation"].split(":")[0] for window in report["windows"]] == ["rule 5", "rule 5"]


def test_a_config_whose_plan_breaks_a_rule_ends_with_3(call, write_config, monkeypatch) -> None:
    broken_solve(monkeypatch)
    code, _, err = call("plan", write_config())
    assert code == 3
    assert "breaks a rule: rule 5" in err
