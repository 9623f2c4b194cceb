"""``migrator run --resume DIR``: a run that was cut off goes on, or one line says why it cannot."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.log.resumed import ResumedLog
from migrator.log.runlog import CUT, EVENTS_FILE, LOST, config_sum, read_log
from migrator.views.progress import RunView
from tests.migrator.conftest import WriteConfig
from tests.migrator.execution.resuming import SHORT, same
from tests.migrator.log import records
from workloads.serving.tally import Totals

Call = Callable[..., tuple[int, str, str]]
RUN = Path("runs/small")
LOG = RUN / EVENTS_FILE

OWN = """from planner.policies.policy import Knows
from planner.solve import solve

class POLICY:
    name, knows = "{name}", Knows.FORECAST

    def plan(self, window):
        return solve(window.problem, "{engine}")
"""


@pytest.fixture
def config(write_config: WriteConfig) -> Path:
    return write_config({**SHORT, "windows": 2})


@pytest.fixture(name="whole")
def run_that_was_not_cut_off(call: Call, config: Path) -> bytes:
    """The log of a run that was not cut off; the run is in its folder."""
    assert call("run", config)[0] == 0
    return LOG.read_bytes()


def cut(whole: bytes) -> None:
    """Cut the log in the line of its second window's plan."""
    LOG.write_bytes(whole[: whole.index(b'"kind":"window_started","at_s":30') + 99])


def own(folder: Path, engine: str = "greedy", name: str = "own") -> Path:
    path = folder / "own.py"
    path.write_text(OWN.format(engine=engine, name=name), "utf-8")
    return path


def test_a_run_that_was_cut_off_goes_on_and_reports_as_if_it_had_not_been(call: Call, whole: bytes) -> None:
    report = call("report", RUN, "--json")[1]
    cut(whole)
    code, out, err = call("run", "--resume", RUN)
    assert (code, same(LOG.read_bytes())) == (0, same(whole))
    assert call("report", RUN, "--json")[1] == report
    assert "migrator report runs/small --full" in out
    assert "note: carried out again up to window 0" in err
    assert "left out: a line that was cut off" in err


def test_only_what_is_new_is_told_as_news(call: Call, whole: bytes) -> None:
    cut(whole)
    err = call("run", "--resume", RUN)[2]
    news = [" ".join(line.split()[:3]) for line in err.splitlines() if line.startswith("window")]
    assert news[:2] == ["window 0: goodput", "window 1: planned"]


def test_a_resumed_run_is_compared_with_another_policy_as_any_run_is(call: Call, whole: bytes) -> None:
    cut(whole)
    code, out, _ = call("run", "--resume", RUN, "--against", "equal")
    assert code == 0
    assert re.search(r"in time and right · equal \d+\.\d %", out)


def test_a_finished_run_is_reported_and_left_alone(call: Call, whole: bytes) -> None:
    (RUN / "config.yaml").unlink()
    code, out, err = call("run", "--resume", RUN)
    assert (code, err) == (0, f"note: the run in {RUN} is finished; nothing is left to do\n")
    assert out == call("report", RUN)[1]
    assert LOG.read_bytes() == whole


def test_a_finished_run_can_still_be_compared(call: Call, whole: bytes) -> None:
    code, out, _ = call("run", "--resume", RUN, "--against", "equal")
    assert (code, LOG.read_bytes()) == (0, whole)
    assert "against equal on the same" in call("report", RUN, "--full")[1]
    assert out == call("report", RUN)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["config.yaml"], "without CONFIG"),
        (["--windows", 3], "without --windows"),
        (["--seed", 0], "without --seed"),
        (["--out", "x"], "without --out"),
        (["--time-limit", 1], "without --time-limit"),
        (["--set", "seed=2", "--seed", 2], "without --seed, --set"),
        (["--policy", "static"], "--policy static: --resume takes a file of your own; this run's policy is migrator"),
        (["--against", "nobody"], "policy 'nobody': known are"),
    ],
)
def test_what_a_run_was_begun_with_cannot_be_changed(
    call: Call, whole: bytes, arguments: list[object], said: str
) -> None:
    cut(whole)
    before = LOG.read_bytes()
    code, out, err = call("run", "--resume", RUN, *arguments)
    assert (code, out, err.count("\n"), LOG.read_bytes()) == (2, "", 1, before)
    assert said in err


def test_neither_a_config_nor_a_folder_is_refused(call: Call) -> None:
    code, out, err = call("run")
    assert (code, out) == (2, "")
    assert err.endswith("give a CONFIG, or --resume DIR\n")


def _changed_config() -> None:
    path = RUN / "config.yaml"
    path.write_text(path.read_text().replace("max_schedules: 2", "max_schedules: 3"))


def _no_config() -> None:
    (RUN / "config.yaml").unlink()


def _no_log() -> None:
    LOG.unlink()


def _torn_log() -> None:
    LOG.write_bytes(b'{"n":0')


def _empty_log() -> None:
    LOG.write_bytes(b"")


NOTHING_BEGUN = "holds no whole record: nothing was begun; `run CONFIG --out runs/small` begins it"


def _live() -> None:
    shutil.rmtree(RUN)
    records.write(RUN, records.header(3.0, simulated=False))


def _schema_2() -> None:
    LOG.write_bytes(records.lines_of(records.header(3.0, schema=2)))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_changed_config, "config.yaml: was changed after the run began"),
        (_no_config, "config.yaml"),
        (_no_log, "is no run: it holds no events.jsonl"),
        (_torn_log, NOTHING_BEGUN),
        (_empty_log, NOTHING_BEGUN),
        (_schema_2, "does not start with a run_started record of schema 4"),
    ],
)
def test_what_cannot_be_resumed_is_refused_in_one_line(
    call: Call, whole: bytes, damage: Callable[[], None], said: str
) -> None:
    cut(whole)
    damage()
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    code, out, err = call("run", "--resume", RUN)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert {path: path.read_bytes() for path in RUN.iterdir()} == before


def test_a_trace_that_has_changed_is_refused_with_the_record_that_differs(
    call: Call, write_config: WriteConfig, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("second,count\n" + "".join(f"{n},{20 + n % 7}\n" for n in range(200)))
    assert call("run", write_config({**SHORT, "tenants.1.arrivals": {"trace": "trace.csv", "offset_s": 100}}))[0] == 0
    cut(LOG.read_bytes())
    before = LOG.read_bytes()
    trace.write_text("second,count\n" + "".join(f"{n},{20 + n % 5}\n" for n in range(200)))
    code, out, err = call("run", "--resume", RUN)
    assert (code, out, LOG.read_bytes()) == (2, "", before)
    assert f"error: {LOG}: record 0, run_started: " in err.splitlines()[-1]


def test_a_log_that_another_run_still_writes_is_refused(call: Call, whole: bytes) -> None:
    cut(whole)
    with ResumedLog(RUN):
        code, out, err = call("run", "--resume", RUN)
    assert (code, out, err) == (2, "", f"error: {LOG}: another process still writes it; one at a time\n")


def test_a_policy_of_one_s_own_is_named_again_by_its_file(call: Call, config: Path, tmp_path: Path) -> None:
    path = own(tmp_path)
    assert call("run", config, "--policy", path)[0] == 0
    whole = LOG.read_bytes()
    cut(whole)
    code, _, err = call("run", "--resume", RUN)
    assert (code, err) == (2, f"error: {RUN}: its policy, own, is one of your own; name its file by --policy\n")
    assert call("run", "--resume", RUN, "--policy", path)[0] == 0
    assert same(LOG.read_bytes()) == same(whole)


@pytest.mark.parametrize(
    ("engine", "name", "said"),
    [("greedy", "other", "is other; the run in runs/small was begun under own"), ("static", "own", "record 1")],
)
def test_another_policy_than_that_of_the_run_is_refused(
    call: Call, config: Path, tmp_path: Path, engine: str, name: str, said: str
) -> None:
    assert call("run", config, "--policy", own(tmp_path))[0] == 0
    cut(LOG.read_bytes())
    before = LOG.read_bytes()
    code, _, err = call("run", "--resume", RUN, "--policy", own(tmp_path, engine, name))
    assert (code, LOG.read_bytes()) == (2, before)
    assert said in err.splitlines()[-1]


def test_a_run_under_a_limit_of_seconds_stays_one(call: Call, config: Path) -> None:
    assert call("run", config, "--time-limit", 5)[0] == 0
    before = LOG.read_bytes()
    cut(before)
    code, out, _ = call("run", "--resume", RUN)
    assert code == 0
    assert "not repeatable: each plan is the best found within 5 s" in out


def test_another_version_is_told(call: Call, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    cut(whole)
    monkeypatch.setattr("migrator.commands.run.__version__", "99")
    assert "began this run, and this is 99" in call("run", "--resume", RUN)[2]


@pytest.mark.parametrize("place", ["settled", "reached"])
def test_an_interrupt_on_the_way_leaves_a_log_that_can_be_resumed(
    call: Call, whole: bytes, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    cut(whole)
    before = LOG.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(f"migrator.views.progress.RunView.{place}", interrupted)
        code, _, err = call("run", "--resume", RUN)
    assert code == 130
    assert f"run --resume {RUN} goes on" in err
    assert LOG.read_bytes() == before or place == "settled"
    assert call("run", "--resume", RUN)[0] == 0
    assert same(LOG.read_bytes()) == same(whole)


def test_a_run_that_was_interrupted_goes_on(
    call: Call, whole: bytes, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("migrator.views.progress.RunView.settled", interrupted)
        assert call("run", config, "--out", "again")[0] == 130
    assert "To go on with it: migrator run --resume again" in call("report", "again")[1]
    code, _, err = call("run", "--resume", "again")
    assert code == 0
    assert "left out: that it was interrupted" in err
    assert same((Path("again") / EVENTS_FILE).read_bytes()) == same(whole)


def test_a_disk_that_is_full_on_the_way_leaves_a_log_that_can_be_resumed(call: Call, whole: bytes) -> None:
    cut(whole)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) - 500, limits[1]))
    try:
        code, _, err = call("run", "--resume", RUN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, err.splitlines()[-1]) == (1, f"error: {LOG}: File too large")
    assert read_log(RUN).torn
    assert call("run", "--resume", RUN)[0] == 0
    assert same(LOG.read_bytes()) == same(whole)


@pytest.mark.parametrize(
    ("lose", "what"),
    [
        (lambda: shutil.rmtree(RUN), LOST),
        (lambda: os.truncate(LOG, 0), CUT),
    ],
    ids=["deleted", "copytruncate"],
)
def test_a_run_whose_log_is_lost_ends_within_a_window(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[], None], what: str
) -> None:
    settled = RunView.settled
    found = list[int]()

    def lost(view: RunView, window: int, totals: Totals) -> None:
        settled(view, window, totals)
        found.append(window)
        lose()

    monkeypatch.setattr(RunView, "settled", lost)
    code, out, err = call("run", config, "--windows", 5)
    assert (code, out, err.splitlines()[-1]) == (1, "", f"error: {LOG}: {what}")
    assert (err.count("warning"), found) == (0, [0])


@pytest.mark.parametrize("damage", [_empty_log, _torn_log])
def test_where_nothing_was_begun_a_run_can_begin(
    call: Call, config: Path, whole: bytes, damage: Callable[[], None]
) -> None:
    damage()
    assert call("run", config, "--out", RUN)[0] == 0
    assert same(LOG.read_bytes()) == same(whole)


def test_a_report_says_how_to_go_on_only_where_that_can_be(call: Call, whole: bytes) -> None:
    says = "To go on with it: migrator run --resume runs/small"
    assert says not in call("report", RUN)[1]
    cut(whole)
    assert says in call("report", RUN)[1]
    assert json.loads(call("report", RUN, "--json")[1])["ending"] == "torn"
    _live()
    assert says in call("report", RUN)[1]


@pytest.mark.usefixtures("whole")
def test_the_begin_of_a_run_tells_its_config_s_checksum() -> None:
    assert read_log(RUN).entries[0].wall.config_sum == config_sum((RUN / "config.yaml").read_text("utf-8"))
