"""The calls from Python: what the command line says, as values; and every block of ``docs/python.md`` works."""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import migrator
from migrator.api import Table
from migrator.errors import ConfigError, LogError, MigratorError, StoppedError
from migrator.views.as_json import report_to_json
from tests.migrator.conftest import SMALL, WriteConfig, changed
from tests.seeds import daily

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
NEEDS_TORCH = "migrator.execution.live"
SHORT = {"window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 2}


def import_all() -> None:
    """Every module of ours that needs no extra: one that is called as a function of ours would hide it."""
    for found in pkgutil.walk_packages(migrator.__path__, "migrator."):
        if not found.name.startswith(NEEDS_TORCH) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def test_every_block_of_the_page_works_whatever_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_all()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart.yaml").write_text(json.dumps(changed(SMALL, SHORT | {"load": 0.5})))
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    exec("\n".join(blocks), {})  # noqa: S102 - as a reader would run them, one after the other
    printed = capsys.readouterr().out
    assert "finished" in printed
    assert "load" in printed.splitlines()[-1]


def test_importing_it_is_quick_and_the_calls_are_named() -> None:
    code = "import sys, migrator; dir(migrator); print(*sorted({'numpy', 'torch', 'typer'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == ""
    assert {"run", "plan", "compare", "load_config", "load_run"} <= set(dir(migrator))
    with pytest.raises(AttributeError, match="no attribute 'best'"):
        _ = migrator.best  # type: ignore[attr-defined]


def test_rows_are_those_of_the_report(write_config: WriteConfig, tmp_path: Path) -> None:
    config = migrator.load_config(write_config(SHORT), set={"windows": 2, "tenants.vision.slo_ms": 140})
    assert config.tenants[0].slo_ms == 140
    run = migrator.run(config, policy="static", out=tmp_path / "run")
    document = report_to_json(run.report)
    windows, seconds = run.windows(), run.seconds()
    assert [(row["window"], row["tenant"]) for row in windows] == [
        (window, name) for window in (0, 1) for name in ("vision", "language")
    ]
    assert sum(row["arrivals"] for row in windows) == document["total"]["arrivals"]
    assert len(seconds) == 2 * 60
    for key in ("arrivals", "in_time", "late", "dropped", "goodput"):
        assert sum(row[key] for row in seconds) == document["total"][key]
    assert {row["tenant"] for row in run.instances()} == {"vision", "language"}
    assert migrator.load_run(tmp_path / "run").instances() == run.instances()


def test_values_print_as_one_line_and_become_frames(write_config: WriteConfig, tmp_path: Path) -> None:
    config = migrator.load_config(write_config(SHORT | {"windows": 1}))
    plan = migrator.plan(config)
    run = migrator.run(config, out=tmp_path / "run")
    table = migrator.compare(config, policies=["migrator", "static"])
    for value in (plan, plan.planned, plan.planned.plan, run, table):
        assert len(repr(value)) < 300
        assert "\n" not in repr(value)
    assert f"objective={plan.objective!r}" in repr(plan)
    frames = ((plan, plan.instances()), (run, run.windows()), (table, table.rows()), (run.seconds(), run.seconds()))
    for value, rows in frames:
        assert value.to_frame().to_dict("list") == {key: [row[key] for row in rows] for key in rows[0]}


def test_without_pandas_a_frame_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MigratorError, match=r"^to_frame needs pandas: pip install pandas$"):
        Table([{"a": 1}]).to_frame()


def test_a_plan_is_the_one_that_the_command_line_shows(write_config: WriteConfig, call) -> None:
    path = write_config(SHORT)
    shown = json.loads(call("plan", path, "--window", 1, "--json", "--no-floors")[1])
    plan = migrator.plan(migrator.load_config(path), window=1)
    assert plan.objective == shown["objective"]
    assert [row["placement"] for row in plan.instances()] == [one["placement"] for one in shown["lifetimes"]]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("jobs", daily([1, 2], [2]))
def test_a_comparison_is_the_one_that_the_command_line_shows(
    write_config: WriteConfig, call, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    if jobs == 1:  # a script without a guard is not imported anew
        monkeypatch.delattr("migrator.api.Processes")
    path = write_config(SHORT)
    shown = json.loads(call("compare", path, "--windows", 1, "--policies", "static,whole", "--jobs", 1, "--json")[1])
    table = migrator.compare(migrator.load_config(path), policies=["static", "whole"], windows=1, jobs=jobs)
    found = json.loads(json.dumps(table.to_json()))
    assert found["overall"] == shown["overall"]
    assert [row["policy"] for row in table.rows()] == ["static", "whole"]
    for row in table.rows():
        lost = sum(row[cause] for cause in ("wrong_old", "wrong_new", "capacity", "reconfiguration", "queueing"))
        assert row["correct"] + lost == pytest.approx(row["arrivals"])


def test_what_is_wrong_is_told_in_the_line_of_the_command_line(write_config: WriteConfig, tmp_path: Path) -> None:
    path = write_config(SHORT)
    with pytest.raises(ConfigError, match="load"):
        migrator.load_config(path, set={"load": -1})
    config = migrator.load_config(path)
    with pytest.raises(MigratorError, match="window is 5; config small has windows 0 to 1"):
        migrator.plan(config, window=5)
    with pytest.raises(MigratorError, match="static, static: one is given twice"):
        migrator.compare(config, policies=["static", "static"])
    for call in (migrator.run, migrator.plan, partial(migrator.compare, policies=["static"])):
        with pytest.raises(MigratorError, match=r"config is 'small.yaml'; what load_config returns is needed"):
            call("small.yaml")  # type: ignore[arg-type]
    with pytest.raises(LogError, match=r"events\.jsonl"):
        migrator.load_run(tmp_path)
    for wrong in (None, 3, "", "a\0b"):
        with pytest.raises(MigratorError, match=re.escape(f"folder is {wrong!r}; a path is needed")):
            migrator.load_run(wrong)  # type: ignore[arg-type]
        with pytest.raises(MigratorError, match=re.escape(f"path is {wrong!r}; a path is needed")):
            migrator.load_config(wrong)  # type: ignore[arg-type]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_text("{}\n")
    with pytest.raises(MigratorError):
        migrator.run(config, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        *(
            ("compare", {"policies": ["static"], argument: wrong}, f"{argument} is ")
            for argument in ("windows", "segments", "jobs")
            for wrong in (0, -3, 1.5, "2", True, *([None] if argument != "windows" else []))
        ),
        ("compare", {"policies": ["static"], "segments": 10**6}, "1,000,000 segments; at most 1,000 are simulated"),
        *(("compare", {"policies": wrong}, "policies is ") for wrong in ([], "static")),
        *(
            (call, {"time_limit_s": wrong}, "time_limit_s is ")
            for call in ("run", "plan")
            for wrong in (-1, math.nan, math.inf, "x", True)
        ),
        *(("plan", {"window": wrong}, "window is ") for wrong in (1.5, "1", -1)),
        ("run", {"policy": 3}, "policy is 3"),
        *(("run", {"out": wrong}, f"out is {wrong!r}; a path is needed") for wrong in (3, "", b"run")),
        ("run", {"out": "a\0b"}, r"out is 'a\\x00b'; a path is needed"),
        ("compare", {"policies": [3]}, "policy is 3"),
    ],
)
def test_wrong_arguments_are_told_and_nothing_is_done(
    write_config: WriteConfig, name: str, arguments: dict[str, object], said: str
) -> None:
    config = migrator.load_config(write_config(SHORT))
    with pytest.raises(MigratorError, match=said):
        getattr(migrator, name)(config, **arguments)


def test_values_of_every_kind_are_set_as_the_command_line_would(write_config: WriteConfig, tmp_path: Path) -> None:
    path = write_config(SHORT)
    changed = migrator.load_config(path, set={"windows": np.int64(1), "load": np.float64(0.5)})
    assert (changed.windows, changed.load) == (1, 0.5)
    for wrong in ({1}, object(), complex(1)):
        with pytest.raises(ConfigError, match="--set load"):
            migrator.load_config(path, set={"load": wrong})
    with pytest.raises(ConfigError, match="a dictionary is needed"):
        migrator.load_config(path, set="load=1")  # type: ignore[arg-type]
    moved = migrator.load_config(path, set={"profiles": tmp_path / "é\u2028😀.csv"})
    assert moved.profiles == str(tmp_path / "é\u2028😀.csv")
    with pytest.raises(ConfigError, match=r"😀\.csv"):
        migrator.plan(moved)


def test_doubts_and_slow_plans_are_told_as_by_the_command_line(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.log.slow_plans._SEEN_S", 0.0)
    config = migrator.load_config(write_config(SHORT), set={"load": 4, "planner.planning_s": 1e-6, "windows": 2})
    for do in (lambda: migrator.plan(config), lambda: migrator.compare(config, policies=["static"])):
        do()
        assert "load is 4" in capsys.readouterr().err
    migrator.run(config, out=tmp_path / "run")
    told = capsys.readouterr().err
    assert "load is 4" in told
    assert "s, 1e-06 s were charged" in told


@pytest.mark.parametrize("jobs", daily([1, 2], [1]))
def test_a_comparison_ends_by_its_event(write_config: WriteConfig, jobs: int) -> None:
    stop = threading.Event()
    stop.set()
    config = migrator.load_config(write_config(SHORT))
    with pytest.raises(StoppedError):
        migrator.compare(config, policies=["static", "whole"], windows=1, jobs=jobs, stop=stop)


def test_jobs_may_be_asked_for_in_a_thread(write_config: WriteConfig) -> None:
    config = migrator.load_config(write_config(SHORT))
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(migrator.compare(config, policies=["static", "whole"], windows=1, jobs=2).rows())
    )
    thread.start()
    thread.join()
    assert found == [migrator.compare(config, policies=["static", "whole"], windows=1).rows()]
