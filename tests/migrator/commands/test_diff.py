"""``migrator diff``, ``migrator runs`` and the pages of runs, as they are called."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from migrator.commands.pages import how_to_open
from migrator.log.runlog import EVENTS_FILE, RunLog
from tests.migrator.log import records


@pytest.fixture
def two_runs(call, write_config) -> None:
    """A run under two policies."""
    for name in ("migrator", "ekya"):
        assert call("run", write_config({"windows": 1}), "--policy", name, "--out", name)[0] == 0


@pytest.mark.usefixtures("two_runs")
def test_two_runs_side_by_side_as_text_json_and_page(call) -> None:
    code, out, _ = call("diff", "migrator", "ekya", "--html", "diff.html")
    assert code == 0
    told = json.loads(call("diff", "migrator", "ekya", "--json")[1])
    assert f"{told['points']:+.2f} points, the same {told['n_requests'][0]:,} requests" in " ".join(out.split())
    assert sum(told["by_row"].values()) == pytest.approx(told["points"], abs=1e-9)
    assert "capacity and forecast" in out
    text = Path("diff.html").read_text("utf-8")
    assert all(f"{gain['points']:+z.3f}" in text for gain in told["gains"])
    with_hindsight = json.loads(call("diff", "migrator", "migrator", "--json", "--hindsight")[1])
    assert set(with_hindsight["by_row"]) - set(told["by_row"]) == {"forecast"}
    assert (
        call("diff", "migrator", "ekya", "--hindsight")[2]
        == "error: ekya: ekya has no instances, so that nothing tells what a forecast cost it\n"
    )
    assert call("diff", "ekya", "ekya")[1].startswith("no difference: goodput ")


@pytest.mark.usefixtures("two_runs")
def test_bad_input_is_refused_with_one_line(call, write_config) -> None:
    assert call("run", write_config({"windows": 1, "seed": 9}), "--out", "another")[0] == 0
    inputs, own = "migrator/events.jsonl", "ekya/config.yaml"
    for arguments, why in (
        (("diff", "migrator", "nothing"), "nothing is no run: it holds no events.jsonl"),
        (("diff", "migrator", "another", "--hindsight"), "--hindsight: migrator and another had other requests"),
        (("diff", "migrator", "ekya", "--html", inputs), f"--html {inputs}: is the same file as {inputs}"),
        (("diff", "migrator", "ekya", "--html", own), f"--html {own}: is the same file as {own}"),
        (("report", "migrator", "--html", inputs), f"--html {inputs}: is the same file as {inputs}"),
        (("report", "migrator", "--html", "ekya"), "--html ekya: is a folder; a file is needed"),
        (("report", "migrator", "--html", "a.html", "--from", "60"), "--from 60: the page has seconds 0 to 60"),
        (("report", "migrator", "--from", "6"), "--from and --to are of a page; give --html FILE as well"),
        (("runs", "nowhere"), "nowhere: is no folder"),
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (2, ""), arguments
        assert why in " ".join(err.split()), arguments
    assert not Path("a.html").exists()


def test_a_run_s_page_may_lie_in_its_own_folder_and_is_the_last_word(call, write_config) -> None:
    config = write_config({"windows": 1})
    code, out, _ = call("run", config, "--out", "r", "--html", "r/run.html")
    assert (code, out.splitlines()[-1].endswith("r/run.html")) == (0, True)
    assert Path("r/run.html").is_file()
    for name in ("events.jsonl", "config.yaml", "against"):
        code, _, err = call("run", config, "--out", "other", "--html", f"other/{name}")
        assert (code, Path("other").exists()) == (2, False)
        assert err == f"error: --html other/{name}: there is no folder other\n"


def test_a_page_without_its_libraries_names_the_extra(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.views.page.lacking", lambda extra: f"needs the extra {extra}")
    for arguments in (("report", "run", "--html", "a.html"), ("diff", "a", "b", "--html", "a.html")):
        code, _, err = call(*arguments)
        assert (code, err) == (2, "error: --html needs the extra plot\n")


@pytest.mark.usefixtures("two_runs")
def test_a_folder_s_runs_are_listed_with_how_they_stand(call) -> None:
    lines = records.write(Path("torn"), *records.tiny()).splitlines(keepends=True)
    (Path("torn") / EVENTS_FILE).write_bytes(b"".join(lines[:-2]))
    shutil.copytree("torn", "damaged")
    (Path("damaged") / EVENTS_FILE).write_bytes(b"{}\n")
    records.write(Path("stopped"), *records.tiny()[:-1], {"kind": "interrupted"})
    Path("no run").mkdir()
    with RunLog(Path("running"), "seed: 1\n") as log:
        records.append(log, *records.tiny()[:-2])
        told = {one.pop("run"): one for one in json.loads(call("runs", ".", "--json")[1])["runs"]}
        out = call("runs", ".")[1]
    states = {name: one["state"] for name, one in told.items()}
    assert states.pop("damaged").startswith("damaged: damaged/events.jsonl: line 1")
    finished = {"ekya": "finished", "migrator": "finished", "stopped": "interrupted"}
    assert states == {**finished, "running": "running", "torn": "torn"}
    assert {key: told["torn"][key] for key in ("policy", "workload", "windows_done", "windows")} == {
        "policy": "migrator",
        "workload": "tiny",
        "windows_done": 1,
        "windows": 2,
    }
    assert told["stopped"]["goodput_pct"] == 100 * 24 / 48
    assert all(name in out for name in told)
    Path("empty").mkdir()
    assert call("runs", "empty")[1] == "no runs in empty\n"


def test_names_of_a_log_act_neither_on_the_terminal_nor_in_json_or_page(call) -> None:
    evil = '<img src=x onerror="alert(1)"></script>[bold red]\x1b[31m'
    for name in ("one", "other"):
        lines = json.loads(json.dumps(records.tiny()).replace('"a"', json.dumps(evil)))
        lines[0] |= {"name": evil, "policy": evil, "forecaster": evil, "profiles": f"{evil} {name}"}
        records.write(Path(name), *lines)
    for arguments in (
        ("diff", "one", "other", "--html", "diff.html"),
        ("runs", "."),
        ("report", "one", "--html", "a.html"),
    ):
        code, out, _ = call(*arguments)
        assert code == 0
        assert "\x1b" not in out
        assert "[bold" in out  # told as it is written, and no style
    assert json.loads(call("diff", "one", "other", "--json")[1])["gains"][0]["tenant"] == evil
    assert json.loads(call("runs", ".", "--json")[1])["runs"][0]["policy"] == evil
    for page in ("diff.html", "a.html"):
        assert "<img" not in Path(page).read_text("utf-8").partition("</head>")[2]


@pytest.mark.parametrize(
    ("platform", "display", "has_opener", "said"),
    [
        ("linux", ":0", True, "xdg-open 'my page.html'"),
        ("linux", None, True, "in a browser: file://"),
        ("linux", ":0", False, "in a browser: file://"),
        ("darwin", None, True, "open 'my page.html'"),
    ],
)
def test_how_to_open_a_page_is_said_for_this_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, display: str | None, has_opener: bool, said: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("shutil.which", lambda name: name if has_opener else None)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    if display is not None:
        monkeypatch.setenv("DISPLAY", display)
    assert how_to_open(Path("my page.html")).startswith(said)
