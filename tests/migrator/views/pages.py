"""Reads pages, and holds every number on that of a run to the log and to what ``report --json`` has."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from migrator.log.account import SecondAccounts, accounts
from migrator.log.records import Intent, Outcome, PlanRevised, WindowStarted
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog
from migrator.log.timeline import courses, held, n_seconds, new_models
from migrator.views.as_json import report_to_json
from migrator.views.ending import LOSSES_IN_WORDS
from migrator.views.run_page import AVOIDABLE, MOST_POINTS, MOST_ROWS, most_capacity, run_to_html
from migrator.whatif.goals import judged

CLASSES = ("goodput", "wrong_old", "wrong_new", "capacity", "reconfiguration", "queueing")
"""Of the account of one log, which cannot tell what a forecast cost from ``capacity``."""

HALF = 0.5 + 1e-6
"""Of the last digit that is shown."""


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
    """The page of the log, or of a part of it."""
    return run_to_html(log, **part)


def data_in(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    parsed: dict[str, Any] = json.loads(found.group(1))
    return parsed


def plot(text: str, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The traces and the layout of one of a page's figures."""
    figure = data_in(text)[name]
    return figure["data"], figure["layout"]


def looks_of_lines(layout: dict[str, Any]) -> list[tuple[float, float]]:
    """The width and the opacity of every line across a panel."""
    return [(line["line"].get("width", 2), line.get("opacity", 1)) for line in layout["shapes"]]


def panel(text: str, title: str) -> list[dict[str, Any]]:
    """The traces of the panel of the page's time figure that has this title."""
    figure = data_in(text)["time"]
    (axis,) = (axis for name, axis in figure["panels"] if name == title)
    return [trace for trace in figure["data"] if trace["yaxis"] == axis]


def plain(number: str) -> float | None:
    return None if number == "–" else float(number.replace(",", ""))


def near(value: float | None, digits: int = 2) -> Any:
    """What a number shown with so many digits has to be."""
    return None if value is None else pytest.approx(value, abs=HALF * 10**-digits)


def check_page(log: ReadLog) -> str:
    """Hold every number of the log's page to the log; the page."""
    text = page(log)
    tables, data = Tables(text).found, data_in(text)
    told = report_to_json(report_of(log))
    settled = [window for window in told["windows"] if not window["void"]]
    known = accounts(log)
    _check_first_screen(log, text, told, known)
    _check_losses(log, tables, data, known)
    latency = [row for row in tables["Latency against the SLO"][1:] if len(row) > 2]
    slo_ms = {tenant["name"]: tenant["slo_ms"] for tenant in told["run"]["tenants"]}
    shares = tuple((key, 2) for key in ("slo_attainment_pct", "accuracy_pct", "goodput_pct"))
    keys = (("arrivals", 0), *shares)
    assert [[int(row[0]), row[1], *map(plain, row[2:6]), *row[6:8], plain(row[8])] for row in latency] == [
        [window["window"], name, *(near(own[key], digits) for key, digits in keys), *_latencies(own), slo_ms[name]]
        for window in settled
        for name, own in window["tenants"].items()
    ]
    lines = iter(data["latency"]["data"])
    for name, slo in slo_ms.items():
        for key in ("p50_ms", "p99_ms"):
            ms = [window["tenants"].get(name, {}).get(key) for window in told["windows"]]
            assert next(lines)["y"] == [None if one is None else pytest.approx(100 * one / slo) for one in ms]
    over = [mark for window in told["windows"] for own in window["tenants"].values() for mark in _latencies(own)]
    assert [len(line["y"]) for line in lines] == ([over.count("> SLO")] if "> SLO" in over else [])
    _check_plans(log, tables, told, known)
    _check_what_happened(log, tables)
    _check_time(log, data["time"])
    return text


def _latencies(own: dict[str, Any]) -> list[str]:
    """How a page shows both percentiles of a report."""
    return [
        f"{own[f'{key}_ms']:,}" if own[f"{key}_ms"] is not None else "> SLO" if own[f"{key}_over_slo"] else "–"
        for key in ("p50", "p99")
    ]


def _sums(own: SecondAccounts, first: int, end: int) -> dict[str, float]:
    return {name: float(getattr(own, name)[first:end].sum()) for name in CLASSES}


def _check_first_screen(log: ReadLog, text: str, told: dict[str, Any], known: dict[str, SecondAccounts]) -> None:
    screen = text.partition('<h2 id="time-title">')[0].partition("<body>")[2]
    if told["total"] is None:
        assert "no window is settled" in screen
        return
    for key in ("goodput_pct", "slo_attainment_pct", "accuracy_pct"):
        value = told["total"][key]
        assert f"<dd>{'–' if value is None else f'{value:.2f}'} %</dd>" in screen
    n = max((own.arrivals.size for own in known.values()), default=0)
    sums = {name: sum(_sums(own, 0, n)[name] for own in known.values()) for name in CLASSES}
    wrong = sums["wrong_new"]
    lost, words = max((sums.get(name, 0.0), LOSSES_IN_WORDS[name]) for name in AVOIDABLE)
    for label, value in (
        (f"largest avoidable loss: {words}", lost),
        ("unavoidable: errors of the newest models", wrong),
    ):
        found = re.search(rf"<dt>{re.escape(label)}</dt><dd>([\d.]+) %</dd>", screen)
        assert (found is None) == (value == 0)
        assert found is None or float(found.group(1)) == near(100 * value / sum(sums.values()), 1)
    marks = re.findall(r'<tr class="(kept|failed|)"><td class="name">', screen)
    kept = [one.is_kept for one in judged(report_of(log), ()).values()]
    assert marks == [{None: "", True: "kept", False: "failed"}[one] for one in kept if told["total"]]
    window_s = round(log.header.window_s)
    each = sorted(
        (
            value
            for window in log.settled
            for own in known.values()
            for name, value in _sums(own, window * window_s, (window + 1) * window_s).items()
            if name in AVOIDABLE and value >= 1
        ),
        reverse=True,
    )[:3]
    places = re.findall(r'data-from="([\d.]+)" data-to="([\d.]+)">window (\d+), .*?</a>: ([\d,]+) ', screen)
    assert [float(requests.replace(",", "")) for *_, requests in places] == [near(value, 0) for value in each]
    assert all((float(a), float(b)) == (int(w) * window_s, (int(w) + 1) * window_s) for a, b, w, _ in places)


def _check_losses(
    log: ReadLog, tables: dict[str, list[list[str]]], data: dict[str, Any], known: dict[str, SecondAccounts]
) -> None:
    window_s = round(log.header.window_s)
    rows = {(int(row[0]), row[1]): row[2:] for row in tables["Where the arrivals went"][1:]}
    assert set(rows) == {(window, name) for window in log.settled for name in known}
    for (window, name), row in rows.items():
        own = _sums(known[name], window * window_s, (window + 1) * window_s)
        assert list(map(plain, row)) == [near(own[kind], 0) for kind in CLASSES]
    bars = {bar["name"].replace(" ", "_"): bar for bar in data["losses-figure"]["data"]}
    assert set(bars) == set(CLASSES)
    for place, window in enumerate(sorted(log.settled)):
        each = [_sums(own, window * window_s, (window + 1) * window_s) for own in known.values()]
        arrivals = sum(sum(own.values()) for own in each)
        for kind in CLASSES:
            share = 100 * sum(own[kind] for own in each) / arrivals if arrivals else 0.0
            assert (bars[kind]["x"][place], bars[kind]["y"][place]) == (window, pytest.approx(share))


def _check_plans(
    log: ReadLog, tables: dict[str, list[list[str]]], told: dict[str, Any], known: dict[str, SecondAccounts]
) -> None:
    plans = tables["Plans"][1 : 1 + len(told["windows"])]
    begun = {one.window: one for one in log.of(WindowStarted)}
    for row, window in zip(plans, told["windows"], strict=True):
        number, plan, closing = window["window"], window["plan"], log.settled.get(window["window"])
        assert (int(row[0]), row[1]) == (number, plan["status"] or "–")
        assert row[6] == ("–" if (made := window.get("driver_changes")) is None else f"{made:,}")
        for cell, gap in zip(row[4:6], (plan["gap"], plan["claimed_gap"]), strict=True):
            assert plain(cell) == near(None if gap is None else 100 * gap)
        promised = [] if closing is None or closing.blind else [*(begun[number].expected or {}).items()]
        promised = [(name, one) for name, one in promised if one.goodput is not None]
        expected = sum(one.arrivals for _, one in promised)
        window_s = round(log.header.window_s)
        from_step = begun[number].plan_from_step if number in begun else 0
        seconds = slice(number * window_s + math.ceil(from_step * log.header.step_s - 1e-9), (number + 1) * window_s)
        came = sum(float(known[name].arrivals[seconds].sum()) for name, _ in promised)
        if not expected or not came:
            assert row[2:4] == ["–", "–"]
        else:
            right = sum(float(known[name].goodput[seconds].sum()) for name, _ in promised)
            assert plain(row[2]) == near(100 * sum(one.goodput for _, one in promised) / expected)
            assert plain(row[3]) == near(100 * right / came)
    replans = [(entry.at_s, entry.record) for entry in log.entries_of(PlanRevised)][:MOST_ROWS]
    rows = [row for row in tables["Plans"][1 + len(told["windows"]) :] if row[0] != "second"]
    assert [(plain(row[0]), int(row[1]), int(row[2]), plain(row[4])) for row in rows] == [
        (near(at_s, 1), one.window, one.from_step, near(one.gain, 0)) for at_s, one in replans
    ]


def _check_what_happened(log: ReadLog, tables: dict[str, list[list[str]]]) -> None:
    models = tables.get("When models got better", [[]])[1:]
    assert [(plain(row[0]), row[1], int(row[2]), float(row[3]), float(row[4])) for row in models] == [
        (near(one.at_s, 1), one.tenant, one.window, near(100 * one.before), near(100 * one.after))
        for one in new_models(log)[:MOST_ROWS]
    ]
    asked = {entry.n: entry.record for entry in log.entries_of(Intent)}
    outcomes = log.of(Outcome)
    rows = tables.get("What the driver did and refused", [])
    n_calls = len({intent.call for intent in asked.values()})
    for call, n, refused, mean_s in rows[1 : 1 + n_calls]:
        own = [one for one in outcomes if asked[one.intent].call == call]
        took_s = [one.end_s - one.begin_s for one in own if one.error is None]
        assert plain(n) == sum(intent.call == call for intent in asked.values())
        assert plain(refused) == len(own) - len(took_s)
        assert plain(mean_s) == near(sum(took_s) / len(took_s) if took_s else None)
    told = [(plain(row[0]), int(row[1]), row[2], row[3]) for row in rows[1 + n_calls :] if row[0] != "second"]
    assert (
        told
        == [
            (near(one.begin_s, 1), one.window, f"{asked[one.intent].call} {asked[one.intent].placement}", one.error)
            for one in outcomes
            if one.error is not None
        ][:MOST_ROWS]
    )


def _check_time(log: ReadLog, figure: dict[str, Any]) -> None:
    bars = [trace for trace in figure["data"] if trace["type"] == "bar" and trace["name"] not in ("blind", "void")]
    for trace in bars:
        for (_, begin_s, end_s), base, length in zip(trace["customdata"], trace["base"], trace["x"], strict=True):
            assert (base, base + length) == (begin_s, pytest.approx(end_s, abs=0.002))
    drawn = [
        (*row, y, width)
        for trace in bars
        for row, y, width in zip(trace["customdata"], trace["y"], trace["width"], strict=True)
    ]
    spans = sorted((one.what, one.begin_s, one.end_s, one.first_row, one.end_row) for one in held(log))
    for (*row, y, width), (what, begin_s, end_s, first, end) in zip(sorted(drawn), spans, strict=True):
        assert row == [what, pytest.approx(begin_s, abs=0.001), pytest.approx(end_s, abs=0.001)]
        assert y == pytest.approx((first + end) / 2, abs=0.001)
        assert 0.84 < width / (end - first) < 1  # the gap between bars takes little of them, however thin they are
    assert figure["layout"]["xaxis"]["range"] == [0, n_seconds(log)]
    if n_seconds(log) > MOST_POINTS:
        return  # what is thinned has a test of its own
    for name, course in courses(log).items():
        requests = {"forecast, low": course.low, "forecast, high": course.high, "forecast": course.mean}
        requests |= {
            "what served could answer": np.minimum(course.could, most_capacity(course)),
            "arrivals": course.arrivals,
        }
        requests |= {"answered in time": course.in_time}
        right = {"right answers of the model in service, %": 100 * course.accuracy}
        for title, expected in ((f"requests a second: {name}", requests), (f"{next(iter(right))}: {name}", right)):
            (axis,) = (axis for shown, axis in figure["panels"] if shown == title)
            traces = {trace["name"]: trace for trace in figure["data"] if trace["yaxis"] == axis}
            assert set(traces) == set(expected)
            for label, series in expected.items():
                values = [None if np.isnan(value) else pytest.approx(value, abs=0.00051) for value in series.tolist()]
                assert (traces[label]["x0"], traces[label]["y"]) == (0, values)
