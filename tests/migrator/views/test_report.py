"""What the report's tables say about a log's end."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, log_in, read_log
from migrator.views.report import print_report
from tests.migrator.log import records


def text_of(raw: bytes) -> str:
    out = StringIO()
    print_report(report_of(log_in(raw, Path("run"))), Console(file=out, width=100))
    return out.getvalue()


def test_a_log_that_ends_early_says_so_and_how_many_windows_are_void(tmp_path: Path) -> None:
    lines = records.write(tmp_path / "run", *records.tiny()).splitlines(keepends=True)
    assert "The log ends early; 1 window void and in no total." in text_of(b"".join(lines[:-2]))


@pytest.mark.parametrize(("n_void", "row"), [(3, " 2 void"), (9, "1–9 void")])
def test_many_windows_that_a_service_left_out_are_one_row(n_void: int, row: str) -> None:
    header, *begun = records.tiny()
    upto = next(n for n, record in enumerate(begun) if record["kind"] == "window_finished")
    again = {"kind": "resumed", "window": n_void + 1, "void": [*range(1, n_void + 1)], "at_s": 9.0}
    service = {**header, "service": True, "backend": "nvml", "index": 0}
    left = [record for record in begun[: upto + 1] if record.get("window") != 1]
    text = text_of(records.lines_of(service, *left, again))
    assert row in text
    assert f"{n_void} windows void and in no total" in text


def test_a_log_that_ends_within_a_driver_call_says_which(tmp_path: Path) -> None:
    lines = records.write(tmp_path / "run", *records.tiny()).splitlines(keepends=True)
    text = text_of(b"".join(lines[:5]))
    assert "The log ends early while the driver was asked to create 2g.20gb@2; 1 window void" in text


def test_a_whole_log_says_nothing_of_its_end(tmp_path: Path) -> None:
    assert "early" not in text_of(records.write(tmp_path / "run", *records.tiny()))


def test_another_policy_is_named_with_how_the_gpu_is_shared(call, write_config) -> None:
    changes = {"windows": 1, "window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 4}
    code, out, _ = call("run", write_config(changes), "--policy", "ekya", "--out", "run")
    assert code == 0
    assert "policy ekya" in out.splitlines()[0]
    assert "policy: ekya, on shares of the processors (MPS), without partitions" in out
    assert "interference: 1 of what Mudi measured" in out
    assert "policy" not in call("run", write_config(changes), "--out", "ours")[1]


def test_misjudged_latencies_are_told(call, write_config) -> None:
    changes = {"windows": 1, "window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 4}
    code, out, _ = call("run", write_config({**changes, "estimates.service_spread": 0.2}), "--out", "run")
    assert code == 0
    assert "each model's latency on each profile is planned with as 0.8 to 1.2 times itself" in " ".join(out.split())
    assert "planned with as" not in call("run", write_config(changes), "--out", "ours")[1]


@pytest.mark.parametrize("width", [40, 48, 56, 64, 72, 80])
def test_no_number_is_broken_on_a_narrow_terminal(call, write_config, width: int) -> None:
    assert call("run", write_config({"windows": 1}), "--out", "run")[0] == 0
    report = report_of(read_log(Path("run")))
    out = StringIO()
    print_report(report, Console(file=out, width=width))
    assert report.total is not None
    assert "…" not in out.getvalue()
    words = out.getvalue().split()
    assert {f"{report.total.requests.arrivals:,}", f"{report.total.requests.goodput_pct:.2f}"} <= set(words)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_what_a_live_run_learned_is_whole_on_a_narrow_terminal(width: int) -> None:
    report = report_of(read_log(Path(__file__).parents[2] / "golden" / "live"))
    out = StringIO()
    print_report(report, Console(file=out, width=width))
    assert report.live is not None
    assert "…" not in out.getvalue()
    assert {f"{one.after_pct:.1f}" for one in report.live.learned} <= set(out.getvalue().split())


def test_promised_and_achieved_shares_stand_beside_each_floor(call, write_config) -> None:
    changes = {"windows": 1, "tenants.0.min_slo_attainment": 0.9, "tenants.1.min_slo_attainment": 0.2}
    code, out, _ = call("run", write_config(changes), "--out", "run")
    assert "asked for" in out
    out = call("report", "run", "--full")[1]
    rows = [line.split() for line in out.splitlines() if "/ window" in line]
    assert code == 0
    assert [(row[1], row[2]) for row in rows] == [("vision", "90"), ("language", "20")]
    assert all(float(cell) >= float(row[2]) for row in rows for cell in row[-2:])


def test_a_floor_that_no_plan_keeps_is_told_and_stops_nothing(call, write_config) -> None:
    changes = {
        "windows": 1,
        "tenants.0.arrivals.rate_rps": 30_000,
        "tenants.0.min_slo_attainment": {"share": 0.9, "per": "step"},
    }
    assert call("run", write_config(changes), "--out", "run")[0] == 0
    assert "! Window 0: vision ended " in call("report", "run")[1]
    out = call("report", "run", "--full")[1]
    assert "Window 0: the plan misses vision: 60 steps below 90 % in time" in out
    assert "points of goodput for floors, and no plan was found that keeps them all." in " ".join(out.split())
    assert "Window 0: vision ended " in out


def test_what_is_proven_of_plans_stands_beside_what_is_claimed(call, write_config) -> None:
    assert call("run", write_config({"windows": 2, "planner.prove": "windows"}), "--out", "run")[0] == 0
    out = call("report", "run", "--full")[1]
    plans = [window["plan"] for window in json.loads(call("report", "run", "--json")[1])["windows"]]
    worst = max(plan["gap"] for plan in plans)
    checked = json.loads(call("verify", "run", "--json")[1])["windows"]
    assert worst == pytest.approx(max(one["gap"] for one in checked if "anew_from_step" not in one), rel=1e-9)
    assert worst > 0
    claimed = max(plan["claimed_gap"] for plan in plans)
    proven = f"plans of whole windows: proven within {100 * worst:.2f} % of the best"
    assert proven in " ".join(out.split())
    assert f"claimed within {100 * claimed:.2f} %" in " ".join(out.split())


def test_a_policy_without_plans_is_measured_against_the_floor(call, write_config) -> None:
    changes = {"windows": 1, "window_s": 30, "tenants.0.retraining.samples": 300, "tenants.0.min_slo_attainment": 0.5}
    assert call("run", write_config(changes), "--policy", "whole", "--out", "run")[0] == 0
    code, out, _ = call("report", "run", "--full")
    row = next(line.split() for line in out.splitlines() if "/ window" in line)
    assert code == 0
    assert row[-2] == "–"


def test_damage_ends_the_report_with_2_and_one_line(tmp_path: Path, call) -> None:
    raw = records.write(tmp_path / "run", *records.tiny())
    (tmp_path / "run" / EVENTS_FILE).write_bytes(raw.replace(b'"dropped":[0,1,9]', b'"dropped":[0,1,8]'))
    code, out, err = call("report", tmp_path / "run")
    assert (code, out) == (2, "")
    path = tmp_path / "run" / EVENTS_FILE
    assert err == f"error: {path}: line 20: checksum does not match; the file was altered after it was written\n"


def test_nothing_that_a_log_holds_is_markup_or_acts_on_the_terminal(tmp_path: Path, call) -> None:
    evil = "[red]\x1b[31m\nx"
    header = records.header(3.0, name=evil, gpu=evil, forecaster=evil, policy=evil, profile_variant=evil)
    header["tenants"][0] |= {"model": evil, "trace": evil, "scale": {"method": evil, "factor": 1, "smooth_s": None}}
    records.write(tmp_path / "run", header)
    for option, n_shown in (((), 5), (("--full",), 8)):
        code, out, _ = call("report", tmp_path / "run", *option)
        assert (code, out.count("[red]\\x1b[31m\\nx"), "\x1b" in out) == (0, n_shown, False)


def test_a_tenant_whose_requests_follow_a_rate_has_no_trace(call, write_config) -> None:
    assert call("run", write_config({"windows": 1}), "--out", "run")[0] == 0
    out = " ".join(call("report", "run", "--full")[1].split())
    assert "poisson 60/s, drawn × 1" in out
    assert "trace azure-conv" in out
