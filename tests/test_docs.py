"""What the documentation tells readers to type works as it stands."""

from __future__ import annotations

import json
import os
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
from migrator.commands.serve import service_of
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


def test_what_the_demo_of_a_service_types_stands_in_the_docs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "serve.md").read_text("utf-8")
    model, weights, config, clients = re.findall(r"^```(?:python|yaml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for name, source in (("digits.py", model), ("weights.py", weights), ("clients.py", clients)):
        compile(source, name, "exec")
    (tmp_path / "own.yaml").write_text(config, "utf-8")
    asked = service_of(read_config(tmp_path / "own.yaml"), "own.yaml")
    assert [tenant.name for tenant in asked.tenants] == ["digits", "forms"]
    assert "from safetensors.numpy import save_file" in weights
    assert "sys.argv" in clients


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
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
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


def test_a_run_reports_what_the_first_day_shows_at_80_columns(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    shown = re.findall(r"```console\n(\$ migrator run quickstart.*?)```", START, re.DOTALL)[0]
    command, _, said = shown.removeprefix("$ migrator ").partition("\n")
    assert call("init", "quickstart")[0] == 0
    out = call(*shlex.split(command))[1].splitlines()
    assert [line for line in map(str.rstrip, out) if " were charged: " not in line] == said.splitlines()


def test_the_report_in_the_readme_is_that_of_the_first_day() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert f"$ migrator run quickstart.yaml\n{shown}" in START


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


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
    (shown,) = (text for text in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "optimal physical" in text)
    command, _, said = shown.removeprefix("$ migrator ").partition("\n")
    assert call("init", "quickstart")[0] == 0
    _, out, _ = call(*shlex.split(command))
    took = r"in \d+\.\d\d s|,\s+after\s+\d+\.\d\d\s+s\s+of\s+loading"
    told, found = (re.sub(took, "", re.sub(r"\s+", " ", text)).split() for text in (said, out))
    assert told == found


TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")


def missing(said: str, out: str) -> str:
    """The first part of what a page shows that is not in the output after the parts before it; … leaves lines out."""
    rest = "\n".join(map(str.rstrip, out.splitlines()))
    for part in re.split(r"^…\n", said, flags=re.MULTILINE):
        _, found, after = rest.partition(part.rstrip("\n")) if part.strip() else ("", "…", rest)
        if not found:
            return part
        rest = after
    return ""


@pytest.mark.skipif(sys.platform != "linux", reason="GNU date")
def test_the_tutorial_leads_from_a_log_to_a_layout_with_the_output_that_it_shows_at_80_columns(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    steps = TUTORIAL.partition("## 1. ")[2].partition("## 6. ")[0]
    script, config = re.findall(r"```(?:python|yaml)\n(.*?)```", steps, re.DOTALL)
    (tmp_path / "log.py").write_text(script, "utf-8")
    (tmp_path / "shop.yaml").write_text(config, "utf-8")
    for block in re.findall(r"```console\n\$ (.*?)```", steps, re.DOTALL):
        for one in block.split("\n$ "):
            command, _, said = one.partition("\n")
            if command.startswith("migrator "):
                code, out, _ = call(*shlex.split(command)[1:])
            else:
                done = subprocess.run(
                    ["bash", "-c", command], cwd=tmp_path, check=False, capture_output=True, text=True
                )
                code, out = done.returncode, done.stdout
            assert (code, missing(said, out)) == (0, ""), command


def test_the_service_of_the_tutorial_takes_the_traces_of_its_log(tmp_path: Path) -> None:
    (text,) = re.findall(r"`service.yaml`:\n\n```yaml\n(.*?)```", TUTORIAL, re.DOTALL)
    (tmp_path / "service.yaml").write_text(text, "utf-8")
    asked = service_of(read_config(tmp_path / "service.yaml"), "service.yaml")
    histories = [Path(str(tenant.arrivals.history)).name for tenant in asked.tenants]
    assert histories == ["vision.csv", "language.csv"]


@pytest.mark.live
def test_the_service_of_the_tutorial_answers_as_it_shows(tmp_path: Path) -> None:
    """Its commands, but for the port, and without what the machine's speed decides: whether the answer was in time."""
    script = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)[0]
    step = TUTORIAL.partition("## 6. ")[2]
    own = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "serve.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    files = {"log.py": script, "digits.py": own[0], "weights.py": own[1], "service.yaml": step.split("```yaml\n")[1]}
    for name, text in files.items():
        (tmp_path / name).write_text(text.partition("```")[0], "utf-8")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "HERE": sys.executable}
    typed = [line[2:] for line in TUTORIAL.splitlines() if line.startswith("$ ")]

    def bash(begin: str, url: str = "") -> str:
        (command,) = (line for line in typed if line.startswith(begin))
        command = re.sub(r"\bmigrator (?=profile)", '"$HERE" -m migrator ', command).replace("python3 ", '"$HERE" ')
        command = command.replace("curl ", "curl -s --retry 60 --retry-delay 1 ").replace("localhost:8000", url)
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout

    for begin in ("python3 log", "for model", "python3 weights", "migrator profile", "python3 -c"):
        bash(begin)
    command = [
        sys.executable,
        "-m",
        "migrator",
        "serve",
        "service.yaml",
        "--out",
        "service",
        "--set",
        "front_door.port=0",
    ]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            told = next(line for line in service.stderr if "the front door is open" in line)
            url = told.split()[-1].removesuffix("/v2")
            shown = re.findall(r"^(\{.*\})$", step, re.MULTILINE)
            assert bash("curl localhost:8000/v2/health", url) == shown[0]
            answer, said = json.loads(bash("curl localhost:8000/v2/models", url)), json.loads(shown[1])
            assert (answer.pop("parameters").keys(), answer) == (said.pop("parameters").keys(), said)
        finally:
            service.terminate()
        service.communicate(timeout=60)
    assert service.returncode == 0
