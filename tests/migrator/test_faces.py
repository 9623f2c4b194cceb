"""Every face of the product says the same of one run and of one grid: a figure has one name and one value."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import migrator
from migrator.cli import main
from migrator.log.records import WindowStarted
from tests.migrator.conftest import SMALL, Inline, changed
from tests.migrator.views.pages import Tables, plain, plot

ROOT = Path(__file__).parents[2]

CROWDED = changed(
    SMALL,
    {
        "window_s": 30,
        "windows": 1,
        "tenants.0.arrivals.rate_rps": 2000,
        "tenants.1.arrivals.scale.factor": 70.0,
        "tenants.0.retraining.samples": 300,
        "tenants.1.retraining": {"samples": 300},
        "planner.max_schedules": 300,
        "planner.prove": "windows",
    },
)
"""Figures differ, a 99th percentile is over the SLO, and the plan is claimed to be better than is proven."""

COMMANDS = {
    "run": "run config.yaml --out run --against static --html page.html",
    "report": "report run --full",
    "report --by-window": "report run --by-window",
    "report --json": "report run --json",
    "verify": "verify run",
    "verify --json": "verify run --json",
    "plan": "plan config.yaml --explain 10 --changes --out plan.json --problem-out problem.json",
    "plan --json": "plan config.yaml --json",
    "verify PLAN": "verify plan.json problem.json",
    "verify PLAN --json": "verify plan.json problem.json --json",
    "whatif": "whatif config.yaml --vary step_s=1,2 --jobs 1 --out grid.csv --plot grid.html",
    "whatif --json": "whatif config.yaml --vary step_s=1,2 --jobs 1 --json",
    "compare": "compare config.yaml --policies migrator,static --jobs 1",
    "compare --json": "compare config.yaml --policies migrator,static --jobs 1 --json",
}

NAMES = {
    "arrivals": "arrivals",
    "slo_attainment_pct": "in time %",
    "accuracy_pct": "accuracy %",
    "goodput_pct": "goodput %",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}
"""A run's figures: for programs, and in the tables of terminals and pages."""

GAPS = ("bound", "gap", "claimed_bound", "claimed_gap")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each command says, in the folder that they leave their files in."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("faces"))
        patch.setenv("COLUMNS", "200")
        for name in ("compare", "whatif"):
            patch.setattr(f"migrator.commands.{name}.Processes", Inline)
        Path("config.yaml").write_text(yaml.safe_dump(CROWDED, sort_keys=False), "utf-8")
        for name, command in COMMANDS.items():
            patch.setattr("sys.argv", ["migrator", *command.split()])
            out, err = StringIO(), StringIO()
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ending:
                main()
            assert not ending.value.code, (name, err.getvalue())
            found[name] = out.getvalue() if "--json" in name else out.getvalue() + err.getvalue()
        yield found


def terminal(text: str, row: str) -> dict[str, str]:
    """The cells of the first row that begins so, right-aligned in a table of the text, by their headings."""
    lines = text.splitlines()
    rules = [place for place, line in enumerate(lines) if line.strip() and not line.strip(" ─")]
    rule, at = next((r, n) for r in rules for n in range(r, len(lines)) if re.match(rf" *{row} ", lines[n]))
    top = max(place for place in range(rule) if not lines[place].strip())
    ends = [cell.end() for cell in re.finditer(r"> SLO|\S+", lines[at])]
    found = {}
    for begin, end in pairwise((0, *ends)):
        words = (line[begin:end].strip() for line in lines[top:rule])
        found.setdefault(" ".join(filter(None, words)).replace("- ", ""), lines[at][begin:end].strip())
    return found


def in_words(figures: Mapping[str, Any]) -> dict[str, str]:
    """How people see figures of a run that programs get."""
    shown = {name: f"{figures[name]:.2f}" for name in ("slo_attainment_pct", "accuracy_pct", "goodput_pct")}
    for key in ("p50", "p99"):
        ms = figures.get(f"{key}_ms")
        shown[f"{key}_ms"] = f"{ms:,}" if ms is not None else "> SLO"
    return {NAMES[key]: text for key, text in {"arrivals": f"{figures['arrivals']:,}", **shown}.items()}


def test_a_figure_of_a_run_has_one_name_and_one_value(said: dict[str, str]) -> None:
    told, run = json.loads(said["report --json"]), migrator.load_run("run")
    total = {name.removesuffix(" %"): text for name, text in in_words(told["total"]).items()}
    (window,), api = told["windows"], {row["tenant"]: row for row in run.windows()}
    page = Path("page.html").read_text("utf-8")
    heading, *rows = Tables(page).found["Latency against the SLO"]
    on_page = {row[1]: dict(zip(heading, row, strict=True)) for row in rows}
    assert "> SLO" in [in_words(own)["p99 ms"] for own in window["tenants"].values()]
    for text in (said["report --by-window"], said["report"]):
        for name, own in window["tenants"].items():
            seen = terminal(text, f"(?:0 )?{name}")
            assert {key: api[name][key] for key in own} == own
            assert {key: seen[key] for key in NAMES.values()} == in_words(own)
            assert {key: on_page[name][key] for key in NAMES.values()} == in_words(own)
        assert in_words(told["total"]).items() - terminal(text, "all all").items() == {("arrivals", total["arrivals"])}
    assert f"window 0: goodput {total['goodput']} % of {total['arrivals']} requests" in said["run"]
    first = dict(re.findall(r"<dt>([^<]*)</dt><dd>([\d.]+) %</dd>", page))
    shown = ("goodput, in time and right", "in time", "accuracy, of the answered")
    assert [first[name] for name in shown] == [total[name] for name in ("goodput", "in time", "accuracy")]
    for name, own in window["tenants"].items():
        counts = run.log.settled[0].tenants[name]
        assert (sum(counts.arrivals), sum(counts.in_time)) == (own["arrivals"], own["in_time"])
        assert 100 * sum(counts.correct) / sum(counts.arrivals) == pytest.approx(own["goodput_pct"], abs=1e-5)


def test_a_policy_in_a_comparison_has_the_names_of_a_run(said: dict[str, str]) -> None:
    for own in json.loads(said["compare --json"])["overall"]:
        seen = terminal(said["compare"], own["policy"])
        for name in ("slo_attainment_pct", "accuracy_pct", "goodput_pct"):
            assert seen[NAMES[name]] == f"{own[name]:.2f}"


def test_a_gap_is_what_is_proven_on_every_face_of_a_run(said: dict[str, str]) -> None:
    told = json.loads(said["report --json"])["windows"][0]["plan"]
    (checked,) = json.loads(said["verify --json"])["windows"]
    run = migrator.load_run("run")
    logged = run.log.of(WindowStarted)[0].plan
    figures = {name: getattr(logged, name) for name in GAPS}
    assert figures["gap"] > figures["claimed_gap"] + 0.01
    assert {name: checked[name] for name in GAPS} == pytest.approx(figures, rel=1e-9, abs=1e-9)
    gaps = {name: figures[name] for name in ("gap", "claimed_gap")}
    assert {name: told[name] for name in gaps} == gaps
    assert {name: getattr(run.report.windows[0], name) for name in gaps} == gaps
    heading, row = Tables(Path("page.html").read_text("utf-8")).found["Plans"][:2]
    page = dict(zip(heading, row, strict=True))
    assert (page["gap %"], page["claimed gap %"]) == tuple(f"{100 * gap:.2f}" for gap in gaps.values())
    assert f"claimed within {100 * gaps['claimed_gap']:.2f} %" in said["report"]
    for name, by in (("", "by its certificate no plan"), ("claimed_", "it says that none")):
        words = f"{100 * figures[f'{name}gap']:.4g} %: {by} exceeds {figures[f'{name}bound']:,.10g}"
        assert f"  {f'{name}gap'.replace('_', ' '):<11}  {words}" in said["verify"]


def test_a_figure_of_a_grid_has_one_name_and_one_value(said: dict[str, str]) -> None:
    (one, _) = json.loads(said["whatif --json"])["results"]
    line = next(csv.DictReader(Path("grid.csv").read_text("utf-8").splitlines()))
    names = ("arrivals", "goodput", "goodput_pct", "slo_attainment_pct", *GAPS)
    assert {name: float(line[name]) for name in names} == {name: one[name] for name in names}
    seen = terminal(said["whatif"], "1")
    assert plain(seen["goodput"]) == round(one["goodput"])
    shares = {"%": "goodput_pct", "in time %": "slo_attainment_pct"}
    assert {name: seen[name] for name in shares} == {name: f"{one[key]:.2f}" for name, key in shares.items()}
    gaps = {name: f"{100 * one[name]:.3f}" for name in ("gap", "claimed_gap")}
    assert (seen["gap %"], seen["claimed gap %"]) == tuple(gaps.values())
    page = Path("grid.html").read_text("utf-8")
    heading, row = Tables(page).found[""][:2]
    assert dict(zip(heading, row, strict=True)).items() >= {
        ("goodput", f"{one['goodput']:,.0f}"),
        ("share %", f"{one['goodput_pct']:.2f}"),
        ("in time %", f"{one['slo_attainment_pct']:.2f}"),
        ("gap %", gaps["gap"]),
        ("claimed gap %", gaps["claimed_gap"]),
    }
    text = plot(page, "goodput-0")[0][0]["hovertext"][0]
    assert f"goodput {one['goodput']:,.0f} requests, {one['goodput_pct']:.2f} % of {one['arrivals']:,.0f}" in text
    assert f"planned in time {one['slo_attainment_pct']:.2f} %" in text
    assert f"gap {gaps['gap']} %, claimed gap {gaps['claimed_gap']} %" in text


def test_the_curves_of_a_grid_have_the_figures_of_its_points(said: dict[str, str]) -> None:
    results, page = json.loads(said["whatif --json"])["results"], Path("grid.html").read_text("utf-8")
    for key, panel in (("goodput_pct", "goodput-0"), ("slo_attainment_pct", "slo_attainment-0")):
        drawn = {trace["name"]: trace["y"] for trace in plot(page, panel)[0]}
        assert drawn == {
            "all": [one[key] for one in results],
            **{name: [one["tenants"][name][key] for one in results] for name in ("vision", "language")},
        }


def test_a_grid_agrees_with_the_plan_and_its_certificate(said: dict[str, str]) -> None:
    (one, _) = json.loads(said["whatif --json"])["results"]
    plan = migrator.plan(migrator.load_config("config.yaml"))
    shown, proven = (json.loads(said[name]) for name in ("plan --json", "verify PLAN --json"))
    figures = {name: one[name] for name in GAPS}
    for found in (shown, proven, {name: getattr(plan.planned.plan, name) for name in GAPS}):
        assert {name: found[name] for name in GAPS} == pytest.approx(figures, rel=1e-9, abs=1e-9)
    assert (plan.gap, plan.claimed_gap) == pytest.approx((figures["gap"], figures["claimed_gap"]), abs=1e-9)
    assert (shown["objective"], plan.objective) == pytest.approx((one["goodput"], one["goodput"]))
    text = " ".join(said["plan"].split())
    assert (
        f"goodput {one['goodput']:,.2f} requests expected, {one['goodput_pct']:.2f} % of {one['arrivals']:,.2f}" in text
    )
    assert f" gap {100 * figures['gap']:.4g} %: by its certificate no plan exceeds {figures['bound']:,.2f}" in text
    assert f"claimed gap {100 * figures['claimed_gap']:.4g} %: by its engine's word" in text


def test_only_what_a_certificate_shows_is_called_proven(said: dict[str, str]) -> None:
    gap = json.loads(said["report --json"])["windows"][0]["plan"]["gap"]
    texts = {name: text for name, text in said.items() if "--json" not in name}
    texts |= {name: " ".join(Tables(Path(name).read_text("utf-8")).texts) for name in ("page.html", "grid.html")}
    shares = {name: re.findall(r"proven\D{1,30}?([\d.]+) %", text) for name, text in texts.items()}
    assert {name for name, found in shares.items() if found} == {"run", "report", "page.html"}
    assert {share for found in shares.values() for share in found} == {f"{100 * gap:.2f}"}


def test_people_see_no_number_of_four_digits_without_separators(said: dict[str, str]) -> None:
    texts = {name: text for name, text in said.items() if "--json" not in name}
    for page in ("page.html", "grid.html"):
        tables = Tables(Path(page).read_text("utf-8")).found
        texts[page] = " ".join(cell for rows in tables.values() for row in rows for cell in row)
    texts["points of grid.html"] = " ".join(
        text
        for panel in ("goodput-0", "slo_attainment-0")
        for trace in plot(Path("grid.html").read_text("utf-8"), panel)[0]
        for text in trace.get("hovertext", trace.get("text"))
    )
    of_traffic = r"poisson \d+/s"  # as the config has it
    for name, text in texts.items():
        assert not re.findall(r"(?<![\d.])\d{4,}", re.sub(of_traffic, "", text)), name
    assert [name for name, text in texts.items() if not re.search(r"\d,\d{3}", text)] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_samples_of_pages_have_the_names_and_the_gap_of_their_own_figures(page: Path) -> None:
    for block in re.findall(r"^```.*?^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        assert not re.search(r"proven_gap|proven_bound|gap +proven|claimed 0 %: that|SLO\n? *%|right %", block)
        for gap_pct, bound in re.findall(
            r"^ +gap +([\d.]+) %: by its certificate no plan exceeds ([\d,.]+)$", block, re.MULTILINE
        ):
            (goodput,) = re.findall(r"goodput +([\d,.]+) requests", block)
            later = re.findall(r"([\d,.]+) (?:requests beyond the window|of salvage)", block)
            worth = plain(goodput) + sum(map(plain, later))
            assert 1 - worth / plain(bound) == pytest.approx(float(gap_pct) / 100, abs=5.1e-6)
