"""The page of a run: its figures are the log's and the report's, and nothing of a log acts in a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import LogError
from migrator.log.account import accounts
from migrator.log.records import Intent
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog, log_in, read_log
from migrator.log.timeline import held, new_models
from migrator.views.as_json import report_to_json
from migrator.views.run_page import MOST_POINTS, extremes, run_to_html
from tests.migrator.log import records

STORED = Path("tests/golden/live").resolve()


class Tables(HTMLParser):
    """All tables of a page, by the title above them: rows of texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self.texts: list[str] = []
        self._title = self._part = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._part = tag
        if tag == "h2":
            self._title = ""
        elif tag == "tr":
            self.found.setdefault(self._title.strip(), []).append([])
        elif tag in ("td", "th"):
            self.found[self._title.strip()][-1].append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._part = ""

    def handle_data(self, data: str) -> None:
        if self._part == "h2":
            self._title += data
        elif self._part in ("td", "th"):
            self.found[self._title.strip()][-1][-1] += data
        elif self._part not in ("script", "style"):
            self.texts.append(data)


def page(log: ReadLog, **part: Any) -> str:
    return run_to_html(log, **part)


def data_in(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    parsed: dict[str, Any] = json.loads(found.group(1))
    return parsed


def panel(text: str, title: str) -> list[dict[str, Any]]:
    """The traces of the panel of the page's time figure that has this title."""
    figure = data_in(text)["time"]
    (axis,) = (axis for name, axis in figure["panels"] if name == title)
    return [trace for trace in figure["data"] if trace["yaxis"] == axis]


def plain(number: str) -> float | None:
    return None if number == "–" else float(number.replace(",", ""))


@pytest.fixture
def small(call, write_config):
    def run(changes: dict[str, object] | None = None, *options: str) -> ReadLog:
        assert call("run", write_config(changes), "--out", "run", *options)[0] == 0
        return read_log(Path("run"))

    return run


def check_tables(log: ReadLog, text: str) -> None:
    """Every number of the page's tables is the report's, the account's or the log's."""
    told, found = report_to_json(report_of(log)), Tables(text).found
    settled = [window for window in told["windows"] if not window["void"]]
    latency = [row for row in found["Latency against the SLO"][1:] if len(row) > 2]
    keys = ("arrivals", "slo_attainment_pct", "accuracy_pct", "goodput_pct", "p50_ms", "p99_ms")
    expected = [
        [window["window"], name, *(own[key] for key in keys)]
        for window in settled
        for name, own in window["tenants"].items()
    ]
    assert [[int(row[0]), row[1], *map(plain, row[2:8])] for row in latency] == [
        [number, name, *(None if value is None else pytest.approx(value, abs=0.0051) for value in values)]
        for number, name, *values in expected
    ]
    plans = found["Plans"][1 : 1 + len(told["windows"])]
    for row, window in zip(plans, told["windows"], strict=True):
        plan = window["plan"]
        for cell, value, scale in (
            (row[2], plan["expected_goodput"], 1),
            (row[4], plan["proven_gap"], 100),
            (row[5], plan["gap"], 100),
        ):
            assert plain(cell) == (
                None if value is None else pytest.approx(scale * value, abs=0.51 if scale == 1 else 0.0051)
            )
    window_s = round(log.header.window_s)
    for row in found["Where the arrivals went"][1:]:
        window, own = int(row[0]), accounts(log)[row[1]]
        seconds = slice(window * window_s, (window + 1) * window_s)
        named = ("goodput", "wrong_old", "wrong_new", "capacity", "reconfiguration", "queueing")
        assert [plain(cell) for cell in row[2:]] == [
            pytest.approx(float(getattr(own, name)[seconds].sum()), abs=0.51) for name in named
        ]
    models = found.get("When models got better", [[]])[1:]
    assert [(float(row[0]), row[1]) for row in models] == [
        (pytest.approx(one.at_s, abs=0.051), one.tenant) for one in new_models(log)
    ]


def test_the_page_s_figures_are_the_log_s(small) -> None:
    log = small({"window_s": 40})
    text = page(log)
    check_tables(log, text)
    (bars,) = ([t for t in data_in(text)["time"]["data"] if t["type"] == "bar"],)
    drawn = {(row[0], row[1], row[2]) for trace in bars for row in trace["customdata"]}
    assert drawn == {(span.what, round(span.begin_s, 3), round(span.end_s, 3)) for span in held(log)}
    for name in ("vision", "language"):
        lines = {trace["name"]: trace["y"] for trace in panel(text, f"{name}: requests a second")}
        for key, label in (("arrivals", "arrivals"), ("in_time", "answered in time")):
            of_log = [n for closing in log.settled.values() for n in getattr(closing.tenants[name], key)]
            assert lines[label] == of_log
    total = report_of(log).total
    assert total is not None
    assert f"<dd>{total.requests.goodput_pct:.2f} %</dd>" in text
    assert page(log) == text


@pytest.mark.parametrize("policy", ["ekya", "time-sharing"])
def test_a_policy_without_instances_has_a_page(small, policy: str) -> None:
    log = small({"windows": 1}, "--policy", policy)
    check_tables(log, page(log))


def test_a_stored_live_run_has_a_page() -> None:
    log = read_log(STORED)
    text = page(log)
    check_tables(log, text)
    assert "simulated requests" not in text


def test_refused_calls_and_failed_workers_are_told(small) -> None:
    faults = {"simulation": {"driver": {"error_share": 0.5}}, "windows": 1}
    log = small(faults)
    rows = Tables(page(log)).found["What the driver did and refused"]
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
    text = page(records.log_of(*lines[:-2]))
    layout = data_in(text)["time"]["layout"]
    assert [note["text"] for note in layout["annotations"] if note["text"] in ("blind", "void")] == ["blind", "void"]
    hatched = [trace for trace in data_in(text)["time"]["data"] if trace["name"] in ("blind", "void")]
    assert [(trace["base"], trace["x"]) for trace in hatched] == [([1], [1]), ([3.0], [3.0])]
    assert "cut off: seen up to second 4.0" in text
    assert "void: in no total" in text


def test_a_run_that_goes_on_says_so_and_how_far_it_was_seen(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "seed: 1\n") as log:
        records.append(log, *records.tiny()[:-2])
        text = page(read_log(tmp_path / "run"))
    assert "still running: seen up to second 4.0" in text
    assert "cut off: seen up to second 4.0" in page(read_log(tmp_path / "run"))


def test_a_part_of_a_run_has_the_seconds_and_windows_that_were_asked_for(small) -> None:
    text = page(small(), from_s=70, to_s=90)
    assert data_in(text)["time"]["layout"]["xaxis"]["range"] == [70, 90]
    (line, *_) = [t for t in panel(text, "vision: requests a second") if t["name"] == "arrivals"]
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
    assert call("report", "run", "--html", "run.html")[0] == 0
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
    lines[0]["forecaster"] = lines[0]["profiles"] = lines[0]["tenants"][1]["trace"] = EVIL
    text = page(records.log_of(*lines))
    assert "<img" not in text.partition("</head>")[2]
    assert text.count("<script") == 3
    assert "alert(2)</script" not in text
    names = [trace["name"] for trace in data_in(text)["time"]["data"]]
    assert not any("<" in name for name in names)
    assert any(EVIL[:10] in words for words in Tables(text).texts)


@settings(max_examples=200)
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
        check_tables(log, page(log))
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
    (line,) = (trace for trace in panel(text, "a: requests a second") if trace["name"] == "arrivals")
    assert len(line["y"]) < n
    assert (line["x"][line["y"].index(99)], min(line["y"])) == (3000, 7)


def test_the_page_needs_no_network_and_is_small(small) -> None:
    text = page(small({"windows": 1}))
    assert not re.search(r'(src|href)="(?!#)', text.partition("</head>")[2])
    assert len(text.encode()) < 8e6
    assert (Path("run") / EVENTS_FILE).is_file()
