"""The page of a run: its figures are the log's and the report's, and nothing of a log acts in a browser."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import LogError
from migrator.log.account import Account, accounts
from migrator.log.diff import diff_of
from migrator.log.records import Intent
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog, log_in, read_log
from migrator.log.timeline import TenantTrack, courses
from migrator.views.ending import LOSSES_IN_WORDS
from migrator.views.palette import PAGE_TENANTS
from migrator.views.run_page import MOST_CAPACITY, MOST_POINTS, UNAVOIDABLE, diff_to_html, extremes, most_capacity
from migrator.whatif.search import read_conditions
from tests.migrator.log import records
from tests.migrator.views.pages import Tables, check_page, data_in, page, panel
from tests.seeds import examples

STORED = Path("tests/golden/live").resolve()


@pytest.fixture
def small(call, write_config):
    def run(changes: dict[str, object] | None = None, *options: str) -> ReadLog:
        assert call("run", write_config(changes), "--out", "run", *options)[0] == 0
        return read_log(Path("run"))

    return run


def test_the_page_s_figures_are_the_log_s(small) -> None:
    log = small({"window_s": 40})
    text = check_page(log)
    for name in ("vision", "language"):
        lines = {trace["name"]: trace["y"] for trace in panel(text, f"requests a second: {name}")}
        for key, label in (("arrivals", "arrivals"), ("in_time", "answered in time")):
            of_log = [n for closing in log.settled.values() for n in getattr(closing.tenants[name], key)]
            assert lines[label] == of_log
    assert page(log) == text


@pytest.mark.parametrize("policy", ["ekya", "time-sharing"])
def test_a_policy_without_instances_has_a_page(small, policy: str) -> None:
    log = small({"windows": 1}, "--policy", policy)
    check_page(log)


def test_a_stored_live_run_has_a_page() -> None:
    log = read_log(STORED)
    assert "simulated requests" not in check_page(log)


def test_refused_calls_and_failed_workers_are_told(small) -> None:
    faults = {"simulation": {"driver": {"error_share": 0.5}}, "windows": 1}
    log = small(faults)
    rows = Tables(check_page(log)).found["What the driver did and refused"]
    refused = [row for row in rows if len(row) == 4 and row[0] not in ("call", "second", "create", "destroy", "repair")]
    assert refused
    trouble = report_of(log).trouble
    assert trouble is not None
    assert (
        sum(int(row[2]) for row in rows if row[0] in ("create", "destroy", "repair")) == trouble.refused == len(refused)
    )


def test_a_void_window_and_blind_seconds_are_hatched_and_named() -> None:
    lines = records.timed(records.tiny())
    (closing,) = (line for line in lines if line["kind"] == "window_finished" and line["window"] == 0)
    closing["blind"] = [[1, 2]]
    text = check_page(records.log_of(*lines[:-2]))
    layout = data_in(text)["time"]["layout"]
    assert [note["text"] for note in layout["annotations"] if note["text"] in ("blind", "void")] == ["blind", "void"]
    hatched = [trace for trace in data_in(text)["time"]["data"] if trace["name"] in ("blind", "void")]
    assert [(trace["base"], trace["x"]) for trace in hatched] == [([1], [1]), ([3.0], [3.0])]
    assert "cut off: seen up to second 4.0" in text
    assert "void: in no total" in text


def many(n_tenants: int, ending: str = "") -> ReadLog:
    """Tenants of two models that share an instance; the first has another one as well."""
    names = [f"t{n}{ending}" for n in range(n_tenants)]
    rates = {"members": names, "overhead_s": 1.0, "capability_rps": {"1g.10gb": dict.fromkeys(names, 1.0)}}
    counted = {name: records.counts([1] * 3, [0] * 3, [1] * 3) for name in names}
    pool = {**records.started("1g.10gb@0#1", 0.0, "1g.10gb@0"), "tenant": names}
    alone = records.started("2g.20gb@2#2", 0.0, "2g.20gb@2", names[0])
    ready = [records.ready(0, "1g.10gb@0#1", 1.0, tenant=name) for name in names]
    header = records.header(3.0, *names)
    for n, tenant in enumerate(header["tenants"]):
        tenant["model"] = ("small", "large")[n % 2]
    lines = [
        header,
        records.window_started(0, 3.0, *names) | {"pools": [rates]},
        records.change(0, 0.0, [pool, alone]),
        *ready,
        records.ready(0, "2g.20gb@2#2", 1.0, tenant=names[0]),
        records.window_finished(0, **counted),
    ]
    return records.log_of(*records.timed(lines))


def test_bars_of_a_pool_of_many_are_seen_and_named_and_have_their_model_s_colour() -> None:
    text = check_page(many(13))
    bars = [bar for bar in panel(text, "who holds which memory slices") if bar["name"].endswith("serving")]
    assert [(bar["name"], bar["text"]) for bar in bars[:2]] == [
        ("t0, serving", ["1g t0", "2g t0"]),
        ("t1, serving", ["1g t1"]),
    ]
    assert bars[0]["marker"]["line"]["width"] == [0, 0.5]  # an outline would cover what is thin
    assert [bar["marker"]["color"] for bar in bars] == [PAGE_TENANTS[n % 2] for n in range(13)]
    assert "Colours are of models." in text
    assert re.findall(r'<i style="background:(#\w+)"></i>(\w+)', text) == [
        (PAGE_TENANTS[0], "small"),
        (PAGE_TENANTS[1], "large"),
    ]


def test_as_many_tenants_as_there_are_colours_have_one_each() -> None:
    text = page(many(len(PAGE_TENANTS)))
    bars = [bar for bar in panel(text, "who holds which memory slices") if bar["name"].endswith("serving")]
    assert [bar["marker"]["color"] for bar in bars] == [*PAGE_TENANTS]
    assert "Colours are of models." not in text


def _counted(arrivals: int, in_time: int, correct: int, **more: Any) -> ReadLog:
    """One window of a tenant, in each second so many requests."""
    counts = records.counts([in_time] * 3, [arrivals - in_time] * 3, [correct] * 3)
    header = records.header(3.0, "a")
    header["tenants"][0] |= more
    lines = [header, records.window_started(0, 3.0, "a"), records.window_finished(0, a=counts)]
    return records.log_of(*records.timed(lines))


def _verdict(text: str) -> tuple[str, str, list[str]]:
    """The class of the first tenant's row, what it was judged by, and its cells."""
    (place,) = re.findall(r"<th[^>]*>((?:in time|goodput) ≥ .*?)</th>", text)
    (kind, cells), *_ = re.findall(r'<tr class="(\w*)">(.*?)</tr>', text)
    return kind, place, re.findall(r"<td[^>]*>(.*?)</td>", cells)


def test_each_tenant_s_verdict_stands_first() -> None:
    text = page(_counted(100, 98, 90))
    kind, judged_by, cells = _verdict(text)
    assert (kind, judged_by, cells[0].split()) == ("failed", "in time ≥ 99 %", ["✗", "a"])
    assert cells[2:5] == ["98.0 %", "91.8 %", "90.0 %"]
    assert text.index('<tr class="failed">') < text.index('<dl class="first">')
    assert _verdict(page(_counted(100, 99, 90)))[0] == "kept"


def test_a_floor_or_what_was_asked_for_is_what_a_tenant_is_judged_by() -> None:
    log = _counted(100, 98, 90, min_slo_attainment={"share": 0.97, "per": "window"})
    assert _verdict(page(log))[:2] == ("kept", "in time ≥ 97 % a window")
    asked = read_conditions(["goodput:a>=0.95"], ["a"])
    assert _verdict(page(log, conditions=asked))[:2] == ("failed", "goodput ≥ 95 %")


def test_keep_judges_the_page_of_a_run_and_of_a_report(call, write_config) -> None:
    keep = ("--keep", "goodput>=0.001")
    assert call("run", write_config(), "--out", "run", "--html", "run.html", *keep)[0] == 0
    assert call("report", "run", "--html", "report.html", *keep)[0] == 0
    texts = [Path(name).read_text("utf-8") for name in ("run.html", "report.html")]
    assert [_verdict(text)[:2] for text in texts] == [("kept", "goodput ≥ 0.1 %")] * 2


def test_errors_of_the_newest_model_are_no_avoidable_loss(small) -> None:
    log = small({"window_s": 40})
    lost = sum((one.total for one in accounts(log).values()), Account())
    assert lost.wrong_new > 1
    screen = page(log).partition('<h2 id="time-title">')[0]
    assert LOSSES_IN_WORDS[UNAVOIDABLE] not in screen
    assert f"<dt>unavoidable: errors of the newest models</dt><dd>{100 * lost.shares[UNAVOIDABLE]:.1f} %</dd>" in screen


def test_capacity_far_beyond_the_arrivals_is_cut_and_said(small) -> None:
    log = small({"tenants.0.arrivals.rate_rps": 2, "windows": 1})
    text = check_page(log)
    lines = {trace["name"]: trace for trace in panel(text, "requests a second: vision")}
    most, course = max(lines["arrivals"]["y"]), courses(log)["vision"]
    assert np.nanmax(course.could) > MOST_CAPACITY * most
    assert max(one for one in lines["what served could answer"]["y"] if one is not None) == MOST_CAPACITY * most
    told = f"cut at 4 times the most arrivals: vision, which goes up to {np.nanmax(course.could):,.0f}/s"
    assert told in data_in(text)["time"]["note"]
    assert told in text


def test_where_nothing_came_capacity_is_drawn_whole() -> None:
    nothing = np.zeros(3)
    track = TenantTrack(nothing, nothing, nothing, np.full(3, 7.0), nothing, nothing, nothing, nothing)
    assert most_capacity(track) == math.inf


def test_a_run_that_goes_on_says_so_and_how_far_it_was_seen(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "seed: 1\n") as log:
        records.append(log, *records.tiny()[:-2])
        text = page(read_log(tmp_path / "run"))
    assert "still running: seen up to second 4.0" in text
    assert "cut off: seen up to second 4.0" in page(read_log(tmp_path / "run"))


def test_a_run_of_one_window_is_told_in_the_singular_and_has_one_place_on_the_axis(small) -> None:
    text = page(small({"windows": 1}))
    assert "1 window of 60 s" in text
    for name in ("losses-figure", "latency"):
        assert data_in(text)[name]["layout"]["xaxis"]["range"] == [-0.5, 0.5]


def test_a_difference_too_small_to_show_is_0_and_not_less() -> None:
    def log(n_right: int) -> ReadLog:
        counted = records.counts([100_000] * 3, [0] * 3, [n_right, 50_000, 50_000])
        started, finished = records.window_started(0, 3.0, "a"), records.window_finished(0, a=counted)
        return records.log_of(*records.timed([records.header(3.0, "a"), started, finished]))

    one, other = log(49_999), log(50_000)
    pages = [diff_to_html(diff_of(one, other), "one", "other"), page(one, rival=other)]
    assert "<td>+0.000</td>" in pages[0]
    assert "+0.00 points" in pages[1]
    for text in pages:
        assert not re.search(r"-0\.0+(?![0-9])", text.partition("</head>")[2].partition("<script>")[0])


def test_a_part_of_a_run_has_the_seconds_and_windows_that_were_asked_for(small) -> None:
    text = page(small(), from_s=70, to_s=90)
    assert data_in(text)["time"]["layout"]["xaxis"]["range"] == [70, 90]
    (line, *_) = [t for t in panel(text, "requests a second: vision") if t["name"] == "arrivals"]
    assert (line["x0"], len(line["y"])) == (70, 20)
    assert [row[0] for row in Tables(text).found["Latency against the SLO"][1:]] == ["1", "1"]


def test_how_far_it_is_ahead_stands_on_the_first_screen(call, write_config) -> None:
    assert call("run", write_config(), "--out", "run", "--against", "static", "--html", "run.html")[0] == 0
    own, rival = (report_of(read_log(Path(folder))).total for folder in ("run", "run/against"))
    assert own is not None
    assert rival is not None
    points = (own.requests.goodput_pct or 0) - (rival.requests.goodput_pct or 0)
    assert f"<dt>over static, simulated</dt><dd>{points:+.2f} points</dd>" in Path("run.html").read_text("utf-8")


@pytest.mark.parametrize("cut", [0, 20])
def test_a_rival_that_has_not_settled_what_the_run_has_is_left_out(call, write_config, cut: int) -> None:
    assert call("run", write_config(), "--out", "run", "--against", "static")[0] == 0
    log = Path("run/against") / EVENTS_FILE
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:cut]))
    assert len(lines) > cut
    code, _, err = call("report", "run", "--html", "run.html")
    assert (code, "left out: run/against/events.jsonl: holds no whole record" in err) == (0, not cut)
    assert "over static" not in Path("run.html").read_text("utf-8")


def test_a_part_of_a_run_tells_what_happened_in_it_alone(small) -> None:
    log = small({"planner.replan_every_s": 10.0, "planner.planning_s": 0})
    whole, part = (Tables(page(log, **seconds)).found for seconds in ({}, {"from_s": 60, "to_s": 61}))
    asked = [
        sum(int(row[1]) for row in found.get("What the driver did and refused", [[]])[1:]) for found in (whole, part)
    ]
    assert asked[0] == len(log.of(Intent)) > asked[1]
    assert all(60 <= float(row[0]) < 61 for row in part.get("When models got better", [[]])[1:])


EVIL = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>&amp;\x1b[31m'


def test_names_act_neither_in_a_browser_nor_in_a_figure() -> None:
    lines = json.loads(json.dumps(records.timed(records.tiny())).replace('"a"', json.dumps(EVIL)))
    lines[0]["forecaster"] = lines[0]["profiles"] = lines[0]["policy"] = EVIL
    lines[0]["tenants"][1]["trace"] = lines[0]["tenants"][1]["model"] = EVIL
    text = page(records.log_of(*lines))
    assert "<img" not in text.partition("</head>")[2]
    assert text.count("<script") == 4
    assert "alert(2)</script" not in text
    names = [trace["name"] for trace in data_in(text)["time"]["data"]]
    assert not any("<" in name for name in names)
    assert any(EVIL[:10] in words for words in Tables(text).texts)


@settings(max_examples=examples(200))
@given(data=st.data())
def test_a_log_cut_or_altered_anywhere_is_refused_in_a_line_or_has_the_report_s_numbers(data: st.DataObject) -> None:
    raw = records.lines_of(*records.tiny())
    cut = data.draw(st.integers(0, len(raw)))
    if data.draw(st.booleans()) and cut < len(raw):
        raw = raw[:cut] + bytes([raw[cut] ^ data.draw(st.integers(1, 255))]) + raw[cut + 1 :]
    else:
        raw = raw[:cut]
    try:
        log = log_in(raw, Path("run"))
    except LogError as error:
        refusal = str(error)
    else:
        check_page(log)
        return
    assert "\n" not in refusal


@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=300).map(np.array),
    n_pixels=st.integers(1, 40),
)
def test_a_thinned_line_keeps_each_stretch_s_least_and_most(values: np.ndarray, n_pixels: int) -> None:
    kept = extremes(values, n_pixels)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert len(kept) <= 3 * n_pixels
    width = -(-len(values) // n_pixels)
    for first in range(0, len(values), width):
        own, own_kept = values[first : first + width], [values[at] for at in kept if first <= at < first + width]
        assert np.isnan(own).any() <= np.isnan(own_kept).any()
        if not np.isnan(own).all():
            assert (np.nanmin(own), np.nanmax(own)) == (np.nanmin(own_kept), np.nanmax(own_kept))


def test_a_long_run_is_thinned_and_still_has_its_extremes() -> None:
    n = MOST_POINTS + 1
    arrivals = [7] * n
    arrivals[3000] = 99
    counted = records.counts(arrivals, [0] * n, [5] * n)
    lines = [records.header(float(n), "a"), records.window_started(0, n, "a"), records.window_finished(0, a=counted)]
    text = page(records.log_of(*records.timed(lines)))
    (line,) = (trace for trace in panel(text, "requests a second: a") if trace["name"] == "arrivals")
    assert len(line["y"]) < n
    assert (line["x"][line["y"].index(99)], min(line["y"])) == (3000, 7)


def test_the_page_needs_no_network_and_is_small(small) -> None:
    text = page(small({"windows": 1}))
    assert not re.search(r'(src|href)="(?!#)', text.partition("</head>")[2])
    assert len(text.encode()) < 2.3e6
    assert (Path("run") / EVENTS_FILE).is_file()
