"""Every face of the product says the same of one run and of one grid: a figure has one name and one value."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

import migrator
from migrator.log.records import WindowStarted
from tests.migrator.conftest import WriteConfig
from tests.migrator.views.pages import Tables

SHORT = {"window_s": 30, "windows": 1, "tenants.0.retraining.samples": 300, "planner.max_schedules": 2}
ROOT = Path(__file__).parents[2]


def test_faces_of_a_run_agree_and_call_nothing_proven_that_is_claimed(
    call, write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call("run", write_config(SHORT), "--out", "run")[0] == 0
    terminal = " ".join(call("report", "run")[1].split())
    told = json.loads(call("report", "run", "--json")[1])["windows"][0]
    assert call("report", "run", "--html", "page.html")[0] == 0
    checked = json.loads(call("verify", "run", "--json")[1])["windows"][0]
    run = migrator.load_run("run")
    logged = run.log.of(WindowStarted)[0].plan
    gaps = {key: told["plan"][key] for key in ("gap", "claimed_gap")}
    assert gaps["gap"] > gaps["claimed_gap"]
    assert {key: checked[key] for key in gaps} == pytest.approx(gaps, abs=1e-9)
    assert {key: getattr(logged, key) for key in gaps} == gaps
    assert {key: getattr(run.report.windows[0], key) for key in gaps} == gaps
    assert f"proven within {100 * gaps['gap']:.2f} % of the best" in terminal
    assert f"claimed within {100 * gaps['claimed_gap']:.2f} %" in terminal
    tables = Tables(Path("page.html").read_text("utf-8")).found
    heading, row = tables["Plans"][:2]
    page = dict(zip(heading, row, strict=True))
    assert (page["gap %"], page["claimed gap %"]) == tuple(f"{100 * gap:.2f}" for gap in gaps.values())
    assert {row["tenant"]: row["p99_ms"] for row in run.windows()} == {
        name: own["p99_ms"] for name, own in told["tenants"].items()
    }


def test_faces_of_a_grid_agree_with_the_plan_and_its_certificate(
    call, write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    config = write_config(SHORT)
    asked = ("whatif", config, "--vary", "step_s=1,2", "--jobs", 1)
    out = call(*asked, "--out", "grid.csv")[1]
    (one, _) = json.loads(call(*asked, "--json")[1])["results"]
    plan = migrator.plan(migrator.load_config(config))
    shown = json.loads(call("plan", config, "--json", "--out", "plan.json", "--problem-out", "problem.json")[1])
    proven = json.loads(call("verify", "plan.json", "problem.json", "--json")[1])
    names = ("bound", "gap", "claimed_bound", "claimed_gap")
    figures = {name: one[name] for name in names}
    assert figures["bound"] > figures["claimed_bound"]
    for found in (shown, proven, {name: getattr(plan.planned.plan, name) for name in names}):
        assert {name: found[name] for name in names} == pytest.approx(figures, rel=1e-9, abs=1e-9)
    assert (plan.gap, plan.claimed_gap) == pytest.approx((figures["gap"], figures["claimed_gap"]), abs=1e-9)
    line = next(csv.DictReader(Path("grid.csv").read_text("utf-8").splitlines()))
    assert {name: float(line[name]) for name in names} == pytest.approx(figures)
    (row,) = [line.split() for line in out.splitlines() if line.split()[:1] == ["1"]]
    assert [f"{100 * figures[name]:.3f}" for name in ("gap", "claimed_gap")] == row[5:7]
    text = " ".join(call("plan", config, "--no-floors")[1].split())
    assert f" gap {100 * figures['gap']:.4g} %: by its certificate no plan exceeds {figures['bound']:.2f}" in text
    assert f"claimed gap {100 * figures['claimed_gap']:.4g} %: by its engine's word" in text


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_no_sample_of_a_page_shows_a_gap_under_a_former_name(page: Path) -> None:
    for block in re.findall(r"^```.*?^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        assert not re.search(r"proven_gap|proven_bound|gap +proven|claimed 0 %: that", block)
