"""What the documentation tells readers to type works as it stands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executor.clock import VirtualClock
from executor.sim_card import SimCard
from migrator.commands.gpu import watch
from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from migrator.views.traffic import traffic_lines
from workloads.traffic.gaps import Gaps
from workloads.traffic.trace_file import Reading, read_trace

ROOT = Path(__file__).parents[1]
START = (ROOT / "docs" / "start.md").read_text("utf-8")
TRACE = ROOT / "migrator" / "configs" / "my-traces" / "trace.csv"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", START, re.DOTALL)
    return str(found)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Any]:
    from migrator import cli

    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["migrator", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            cli.main()
        captured = capsys.readouterr()
        return int(ending.value.code or 0), captured.out, captured.err

    return run


def test_a_model_and_trace_of_ones_own_run_as_the_first_day_says(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "profiles.csv").write_text(block("csv"), "utf-8")
    (tmp_path / "mine.yaml").write_text(block("yaml"), "utf-8")
    shutil.copy(TRACE, tmp_path)
    assert call("plan", "mine.yaml", "--window", 0)[0] == 0
    assert call("run", "mine.yaml", "--windows", 1)[0] == 0
    report = json.loads(call("report", "runs/mine", "--json")[1])
    assert report["total"]["goodput_pct"] > 70


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.skipif(sys.platform != "linux", reason="GNU date")
def test_the_command_for_an_access_log_makes_a_trace_of_it(tmp_path: Path) -> None:
    (command,) = re.findall(r"\$ (\(echo second,count; .*)", (ROOT / "docs" / "traces.md").read_text("utf-8"))
    line = '10.0.0.{0} - - [10/May/2024:12:00:{0:02} +0000] "GET /a,b HTTP/1.1" 200 5 "-" "curl (KHTML, like)"\n'
    (tmp_path / "access.log").write_text("".join(line.format(second) for second in (3, 1, 3, 7)))
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert read_trace(tmp_path / "trace.csv", Reading(gaps=Gaps.ZERO)).counts.tolist() == [1, 0, 2, 0, 0, 0, 1]


def test_every_file_and_folder_that_the_architecture_names_is_there() -> None:
    text = "".join((ROOT / "docs" / page).read_text("utf-8") for page in ("architecture.md", "architecture-map.md"))
    named = set(re.findall(r"`((?:executor|forecaster|workloads|planner|migrator|tests)/[\w./]+)`", text))
    named |= {
        name.replace(".", "/")
        for name in re.findall(r"`((?:executor|forecaster|workloads|planner|migrator)(?:\.[a-z_]+)+)", text)
    }
    missing = [
        name
        for name in sorted(named)
        if not any((ROOT / part).exists() or (ROOT / f"{part}.py").exists() for part in (name, name.rpartition("/")[0]))
    ]
    assert not missing


def test_the_first_day_shows_what_arrives_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "profiles.csv").write_text(block("csv"), "utf-8")
    (tmp_path / "mine.yaml").write_text(block("yaml"), "utf-8")
    shutil.copy(TRACE, tmp_path)
    config = read_config(tmp_path / "mine.yaml")
    assert [block("text").strip()] == list(traffic_lines(config, assemble(config, "mine.yaml")[1]))


def test_the_figures_of_readme_and_first_day_are_those_of_the_results_page() -> None:
    def rows(page: str) -> list[list[str]]:
        text = (ROOT / page).read_text("utf-8")
        return [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)]

    full = {row[0]: [*row[:2], *row[6:8]] for row in reversed(rows("docs/results.md")) if len(row) > 7}
    shown, chosen = rows("README.md"), [row for row in rows("docs/start.md") if row[0] in full]
    assert (len(shown), len(chosen)) == (3, 4)
    assert shown == [full[name] for name, *_ in shown]
    assert [row[:2] for row in chosen] == [full[name][:2] for name, *_ in chosen]


OF_THE_DAY = (r"MIG-SIM-[0-9a-f-]{36}", r"\d\d:\d\d:\d\d")
"""UUIDs and times, which no two days show alike."""


def as_on_any_day(text: str) -> list[str]:
    for pattern in OF_THE_DAY:
        text = re.sub(pattern, "…", text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_a_simulated_card_says_what_the_page_shows_at_80_columns(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"XDG_STATE_HOME": str(tmp_path), "COLUMNS": "80", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)

    class Clock(VirtualClock):
        """While it waits, another terminal clears the card; then somebody presses Ctrl-C."""

        def sleep_until(self, time_s: float) -> None:
            super().sleep_until(time_s)
            with SimCard("a100-80gb", tmp_path / "migrator") as card:
                if not card.instances():
                    raise KeyboardInterrupt
                for item in card.instances():
                    card.destroy(item.gi_id)

    monkeypatch.setattr(watch, "WallClock", Clock)
    page = (ROOT / "docs" / "gpu.md").read_text("utf-8")
    shown = re.findall(r"```console\n(.*?)```", page.partition("## To learn without a card")[2], re.DOTALL)[0]
    for one in shown.split("$ migrator ")[1:]:
        command, _, said = one.partition("\n")
        _, out, err = call(*shlex.split(command, comments=True))
        assert as_on_any_day(said) == as_on_any_day(out + err), command


@pytest.mark.long
def test_what_if_says_what_its_page_shows(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    page = (ROOT / "docs" / "whatif.md").read_text("utf-8")
    shown = re.findall(r"```console\n(.*?)```", page, re.DOTALL)[0].split("$ migrator ")[1:]
    for one in shown:
        command, _, said = one.partition("\n")
        _, out = call(*shlex.split(command, comments=True))[:2]
        told, found = (re.sub(r"(0\.000 +)\d+\.\d+", r"\1…", text).split() for text in (said, out))
        assert not said or told == found


def test_a_plan_says_what_its_page_shows_at_80_columns(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    page = (ROOT / "docs" / "plan.md").read_text("utf-8")
    blocks = re.findall(r"```(?:console)?\n(.*?)```", page, re.DOTALL)
    first, second = (text for text in blocks if text.startswith("Step ") or text.partition("\n")[0].endswith("100"))
    command, _, said = first.removeprefix("$ migrator ").partition("\n")
    assert call("init", "quickstart")[0] == 0
    _, out, _ = call(*shlex.split(command))
    told, found = ([*re.sub(r"in \d+\.\d\d s", "…", text).split()] for text in (said + second, out))
    assert told == found
