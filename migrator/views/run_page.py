"""The page of a run, from its log alone: where its goodput went, who held what, and what came, on one axis of time.

Figures are plotly's, written as JSON into the page; texts and tables are in the template beside this file. Plotly
reads HTML in names, so that they are escaped for it, too.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import StringIO
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.text import Text

from executor.files import read_input
from migrator.log import records
from migrator.log.account import Account, SecondAccounts, accounts, waits_for_others
from migrator.log.diff import Diff
from migrator.log.progress import Progress
from migrator.log.report import Percentile, Report, WindowReport, report_of
from migrator.log.runlog import CONFIG_FILE, ReadLog, is_being_written
from migrator.log.timeline import TenantTrack, courses, held, holding, n_seconds, new_models
from migrator.log.trouble import Achieved, kept_in
from migrator.terminal.console import counted
from migrator.views.diff import cause_text, headline, row_name
from migrator.views.ending import LOSSES_IN_WORDS
from migrator.views.figures import EXPECTED, FIGURES
from migrator.views.held import (
    OTHERS,
    are_by_model,
    colour_legend,
    held_bars,
    rows_axis,
    rows_text,
    shown_phases,
    tenant_colours,
)
from migrator.views.page import INK, Json, page
from migrator.views.palette import LOSSES, shown
from migrator.views.report import print_report, what_is_simulated
from migrator.views.summary import tenants_sheet
from migrator.views.table import named
from migrator.whatif.search import Condition
from workloads.arrays import FloatArray, IntArray

MOST_POINTS = 4_000
"""Of a line; beyond it each pixel's least and most are drawn."""

_PIXELS = 1_000

_MOST_LINES = 60
"""Windows up to which each begin has a line through all panels."""

MOST_ROWS = 200
"""Of a table of things that happened; beyond it the rest is a number."""

UNAVOIDABLE = "wrong_new"
"""The loss that no plan could have avoided: errors of the newest model. All others are before it."""

AVOIDABLE = tuple(name for name in LOSSES_IN_WORDS if name != UNAVOIDABLE)

MOST_CAPACITY = 4
"""Times the most arrivals, beyond which what served could answer is cut: it would leave the others no room."""

N_PLACES = 3
"""Links from the first screen to where goodput was lost."""

_GPU_PX, _REQUESTS_PX, _ACCURACY_PX, _GAP_PX, _EDGE_PX = 230, 150, 70, 34, 40
"""Heights of the panels, between them, and above and below all of them."""


_COLUMNS = {
    True: ("arrivals", "in time", "accuracy", "goodput", "p50", "p99"),
    False: ("arrivals", "in time", "refused", "expected goodput", "p50", "p99"),
}
"""Of the table by window and tenant, by whether it is known what is right."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where goodput was lost."""

    window: int
    tenant: str
    requests: float
    words: str


def run_to_html(
    log: ReadLog,
    rival: ReadLog | None = None,
    from_s: int = 0,
    to_s: int | None = None,
    conditions: Sequence[Condition] = (),
    *,
    progress: Progress | None = None,
    reload_s: int | None = None,
) -> str:
    """The page of a run, or of its seconds ``[from_s, to_s)``; the same for the same log.

    ``rival`` is the log of another policy's run on the same requests. Tenants are judged by the ``conditions`` of
    ``--keep``, else by their floors, else by what is usual. Of a run that goes on ``progress`` is what its log does not
    have yet; the page is to load itself again after ``reload_s``.
    """
    first_s = round(log.first_window * log.header.window_s)
    from_s = max(from_s, first_s)
    end_s = n_seconds(log) if to_s is None else min(to_s, n_seconds(log))
    until_s = math.inf if end_s == n_seconds(log) else end_s  # what ends a run may come after its last second
    report = report_of(log)
    known = accounts(log, first_s, needs_labels=False)
    windows = [one for one in report.windows if _overlaps(log, one.window, from_s, end_s)]
    total = sum((account.total for account in known.values()), Account())
    by_window = _by_window(log, known, windows, first_s)
    figures = {
        "time": _time_figure(log, report, from_s, end_s),
        "losses-figure": _losses_figure(by_window, _classes(report)),
        "latency": _latency_figure(log, windows),
    }
    avoidable = max((100 * total.shares[name], LOSSES_IN_WORDS[name]) for name in AVOIDABLE)
    whole = holding(log)
    return page(
        "run.html.j2",
        figures,
        columns=named((*FIGURES, *EXPECTED), _COLUMNS[report.is_labelled]),
        header=report.header,
        n_windows=counted(len(report.windows) if report.header.service else report.header.windows, "window"),
        report=report,
        what=Text.from_markup(what_is_simulated(report.header)).plain,
        policy=shown(report.header.policy),
        rival=None if rival is None else shown(rival.header.policy),
        ahead=None if rival is None else _ahead(log, rival),
        tenants=tenants_sheet(log, report, rival, conditions),
        avoidable=avoidable if avoidable[0] else None,
        unavoidable_pct=100 * total.shares[UNAVOIDABLE],
        places=_places(by_window),
        state=_state(log, report),
        progress=progress,
        reload_s=reload_s,
        windows=windows,
        first_window=log.first_window,
        by_window=by_window,
        waits=_waits(log, known, by_window, first_s),
        classes=_classes(report),
        kept=_kept(log),
        slo_ms={tenant.name: tenant.slo_ms for tenant in report.header.tenants},
        models=[one for one in new_models(log) if _is_in(one.at_s, from_s, until_s)],
        calls=_calls(log, from_s, until_s),
        refusals=[one for one in _refusals(log) if _is_in(one[0], from_s, until_s)],
        replans=[
            (entry.at_s, entry.record)
            for entry in log.entries_of(records.PlanRevised)
            if _is_in(entry.at_s, from_s, until_s)
        ],
        most_rows=MOST_ROWS,
        colours=colour_legend(whole),
        are_by_model=are_by_model(whole),
        phases=shown_phases([whole]),
        assumed=report.header.assumed,
        wall=log.entries[0].wall,
        config=_config(log),
        text=_as_text(report),
        part=(from_s, end_s) if from_s or end_s < n_seconds(log) else None,
    )


def _overlaps(log: ReadLog, window: int, from_s: float, to_s: float) -> bool:
    return window * log.header.window_s < to_s and (window + 1) * log.header.window_s > from_s


def _kept(log: ReadLog) -> dict[int, Achieved | None]:
    """By settled window without blind seconds, what its first plan promised and what came."""
    pairs = [(started, log.settled.get(started.window)) for started in log.of(records.WindowStarted)]
    return {
        started.window: kept_in(log, [(started, closing)])
        for started, closing in pairs
        if closing is not None and not closing.blind
    }


def _is_in(at_s: float, from_s: float, to_s: float) -> bool:
    """Whether it lies in these seconds; the bring-up, before second 0, counts as second 0."""
    return from_s <= max(0.0, at_s) < to_s


def _ahead(log: ReadLog, rival: ReadLog) -> float | None:
    """Points of goodput by which the run is ahead over its settled windows; ``None`` where the two cannot be compared.

    They cannot where the rival has not settled all of them, or where it counted other requests: none in blind seconds.
    """
    totals = []
    for one in (log, rival):
        if not log.settled or not set(log.settled) <= set(one.settled):
            return None
        counts = [own for window in log.settled for own in one.settled[window].tenants.values()]
        totals.append((sum(sum(own.correct) for own in counts), sum(sum(own.arrivals) for own in counts)))
    (own_correct, own_arrivals), (correct, arrivals) = totals
    return 100 * (own_correct - correct) / arrivals if own_arrivals == arrivals > 0 else None


def _state(log: ReadLog, report: Report) -> str | None:
    """What is to be said of a run that is not whole; ``None`` of one that is."""
    match report.ending:
        case "finished":
            return None
        case "stopped":
            return "the service was stopped"
        case "interrupted":
            return "the run was interrupted" if report.reason is None else f"the run ended: {report.reason}"
        case _:
            how = "still running" if is_being_written(log.folder) else "cut off"
            return f"{how}: seen up to second {log.entries[-1].at_s:.1f}"


def _config(log: ReadLog) -> str:
    try:
        return read_input(log.folder / CONFIG_FILE).decode()
    except (OSError, ValueError):
        return "not there any more"


def _as_text(report: Report) -> str:
    """What ``migrator report`` prints."""
    out = StringIO()
    print_report(report, Console(file=out, width=140, no_color=True, highlight=False, emoji=False))
    return out.getvalue()


# --- where goodput was lost


def _by_window(
    log: ReadLog, known: Mapping[str, SecondAccounts], windows: Iterable[WindowReport], first_s: int
) -> dict[int, dict[str, Account]]:
    """The account of each settled window, by tenant; ``known`` begin with second ``first_s``."""
    window_s = round(log.header.window_s)
    begins = {one.window: one.window * window_s - first_s for one in windows if not one.is_void}
    return {
        window: {name: own.between(first, first + window_s) for name, own in known.items()}
        for window, first in begins.items()
    }


def _waits(
    log: ReadLog, known: Mapping[str, SecondAccounts], windows: Iterable[int], first_s: int
) -> dict[int, dict[str, float]] | None:
    """Of what queued too long, what waited for others of its pool, as in :func:`_by_window`; ``None`` if not known."""
    window_s, waits = round(log.header.window_s), waits_for_others(log, known, first_s)
    if not waits:
        return None
    places = {window: window * window_s - first_s for window in windows}
    return {
        window: {name: float(own[first : first + window_s].sum()) for name, own in waits.items()}
        for window, first in places.items()
    }


def _places(by_window: Mapping[int, Mapping[str, Account]]) -> list[Place]:
    """The windows and tenants that lost most that could be avoided, by cause."""
    each = [
        (getattr(account, name), window, tenant, name)
        for window, own in by_window.items()
        for tenant, account in own.items()
        for name in AVOIDABLE
    ]
    largest = sorted((one for one in each if one[0] >= 1), key=lambda one: -one[0])[:N_PLACES]
    return [Place(window, tenant, requests, LOSSES_IN_WORDS[name]) for requests, window, tenant, name in largest]


def _figure_by_window(
    title: str, data: Sequence[Json], windows: Sequence[int], height: int, top: int, axes: Json, **bars: str
) -> Json:
    """A figure of one panel over windows, with a legend in its ``top`` pixels; ``bars`` is how several lie together."""
    layout = {
        **bars,
        "height": height,
        "xaxis": {
            "title": {"text": "window"},
            "dtick": math.ceil(max(1, len(windows)) / 12),
            "range": [min(windows, default=0) - 0.5, max(windows, default=0) + 0.5],
            "fixedrange": True,
        },
        **axes,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "margin": {"l": 50, "r": 10, "t": top, "b": 45},
    }
    return {"data": data, "layout": layout, "panels": [[title, "y"]]}


def _classes(report: Report) -> dict[str, str]:
    """The classes of accounts that the page shows, with their names on it; without labels, what is right is unknown."""
    unknown = ("forecast",) if report.is_labelled else ("forecast", "wrong_old", "wrong_new")  # one log cannot tell
    names = {name: name.replace("_", " ") for name in LOSSES if name not in unknown}
    return names if report.is_labelled else names | {"goodput": "in time"}


def _losses_figure(by_window: Mapping[int, Mapping[str, Account]], classes: Mapping[str, str]) -> Json:
    """A stacked bar a window: where its arrivals went, %."""
    sums = {window: sum(own.values(), Account()) for window, own in by_window.items()}
    bars = [
        {
            "type": "bar",
            "name": title,
            "x": [*sums],
            "y": [100 * account.shares[name] for account in sums.values()],
            "marker": {"color": LOSSES[name]},
            "hovertemplate": f"window %{{x}}: {title} %{{y:.2f}} %<extra></extra>",
        }
        for name, title in classes.items()
    ]
    axis = {"title": {"text": "% of arrivals"}, "range": [0, 100], "fixedrange": True}
    title = "where the arrivals went, %"
    return _figure_by_window(title, bars, list(sums), 300, 70, {"yaxis": axis}, barmode="stack")


def _latency_figure(log: ReadLog, windows: Sequence[WindowReport]) -> Json:
    """By window each tenant's median and 99th percentile, % of its SLO; those that were never answered lie on top."""
    lines: list[Json] = []
    unanswered: list[tuple[int, str]] = []
    colours = tenant_colours(holding(log))
    for tenant in log.header.tenants:
        for name, dash in (("p50", "dot"), ("p99", "solid")):
            found = [getattr(one.tenants.get(tenant.name), name, Percentile()) for one in windows]
            shown = f"{escape(tenant.name)} {name}"
            unanswered += [
                (window.window, shown)
                for window, one in zip(windows, found, strict=True)
                if one.ms is None and one.is_over_slo
            ]
            lines.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": shown,
                    "x": [one.window for one in windows],
                    "y": [None if one.ms is None else 100 * one.ms / tenant.slo_ms for one in found],
                    "line": {"color": colours[tenant.name], "dash": dash},
                    "hovertemplate": "window %{x}: %{y:.0f} % of the SLO<extra>%{fullData.name}</extra>",
                }
            )
    top = 1.15 * max([100.0, *(value for line in lines for value in line["y"] if value is not None)])
    if unanswered:
        lines.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "> SLO: not answered",
                "x": [window for window, _ in unanswered],
                "y": [top] * len(unanswered),
                "text": [name for _, name in unanswered],
                "marker": {"symbol": "triangle-up-open", "size": 10, "color": OTHERS},
                "hovertemplate": "window %{x}: %{text} > SLO, of requests that were not answered<extra></extra>",
            }
        )
    place = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 100, "y1": 100}
    slo = {**place, "line": {"width": 1, "dash": "dash", "color": INK}}
    axis = {"title": {"text": "latency, % of SLO"}, "rangemode": "tozero", "fixedrange": True}
    numbers = [one.window for one in windows]
    figure = _figure_by_window("latency, % of the SLO", lines, numbers, 260, 50, {"yaxis": axis, "shapes": [slo]})
    if are_by_model(holding(log)):
        figure["layout"]["showlegend"] = False  # it would be higher than the figure
        figure["note"] = (
            "Colours are of models; the 99th percentile is solid, the median dotted. Point at a mark for its tenant."
        )
    return figure


# --- two runs


def diff_to_html(diff: Diff, one: str, other: str) -> str:
    """The page of two runs side by side, which are named ``one`` and ``other``."""
    windows = list(diff.windows)
    bars = [
        {
            "type": "bar",
            "name": row_name(diff, row),
            "x": windows,
            "y": [
                round(sum(gain.by_row[row] for gain in diff.gains if gain.window == window), 3) + 0.0  # no -0
                for window in windows
            ],
            "marker": {"color": LOSSES.get(row, OTHERS)},
            "hovertemplate": "window %{x}: %{y:+.3f} points<extra>%{fullData.name}</extra>",
        }
        for row in diff.by_row
    ]
    axes = {"yaxis": {"title": {"text": "points gained"}, "fixedrange": True}}
    figures = {"gains": _figure_by_window("points gained", bars, windows, 340, 80, axes, barmode="relative")}
    return page(
        "diff.html.j2",
        figures,
        one=one,
        other=other,
        headline=headline(diff),
        unlike=[*diff.left_out, *diff.unlike],
        causes=[cause_text(diff, cause) for cause in diff.causes],
        rows={row: row_name(diff, row) for row in diff.by_row},
        diff=diff,
    )


# --- what happened to the driver


def _calls(log: ReadLog, from_s: float, to_s: float) -> list[tuple[str, int, int, float | None]]:
    """By kind of driver call in these seconds: how many, how many refused, and the mean seconds of those done."""
    asked = {entry.n: entry.record for entry in log.entries_of(records.Intent) if _is_in(entry.at_s, from_s, to_s)}
    counts, refused = Counter(intent.call for intent in asked.values()), Counter[str]()
    took_s: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in log.of(records.Outcome):
        if outcome.intent in asked and outcome.error is None:
            took_s[asked[outcome.intent].call].append(outcome.end_s - outcome.begin_s)
        elif outcome.intent in asked:
            refused[asked[outcome.intent].call] += 1
    return [
        (call, n, refused[call], fmean(took_s[call]) if took_s[call] else None) for call, n in sorted(counts.items())
    ]


def _refusals(log: ReadLog) -> list[tuple[float, int, str, str]]:
    """When, in which window, what was asked, and what the driver said."""
    asked = {entry.n: entry.record for entry in log.entries_of(records.Intent)}
    return [
        (one.begin_s, one.window, f"{asked[one.intent].call} {asked[one.intent].placement}", one.error)
        for one in log.of(records.Outcome)
        if one.error is not None
    ]


# --- over time


def _time_figure(log: ReadLog, report: Report, from_s: int, to_s: int) -> Json:
    """Who held what, and below it two panels a tenant; one axis of time, so that zooming one zooms all."""
    spans = [span for span in held(log) if span.begin_s < to_s and span.end_s > from_s]
    heights = [_GPU_PX] if spans else []
    heights += [_REQUESTS_PX, _ACCURACY_PX] * len(log.header.tenants)
    height: float = sum(heights) + _GAP_PX * len(heights) + 2 * _EDGE_PX
    domains: list[list[float]] = []
    top: float = height - _EDGE_PX - _GAP_PX / 2
    for one in heights:
        domains.append([(top - one - _EDGE_PX) / (height - 2 * _EDGE_PX), (top - _EDGE_PX) / (height - 2 * _EDGE_PX)])
        top -= one + _GAP_PX
    layout: Json = {
        "height": height,
        "barmode": "overlay",
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "hovermode": "closest",
        "showlegend": False,
        "dragmode": "zoom",
        "margin": {"l": 56, "r": 12, "t": _EDGE_PX, "b": _EDGE_PX},
        "xaxis": {"title": {"text": "second of the run"}, "range": [from_s, to_s], "anchor": f"y{len(heights)}"},
        "annotations": [],
        "shapes": _window_lines(log, from_s, to_s),
    }
    if len(heights) == 1:
        layout["xaxis"]["anchor"] = "y"
    data: list[Json] = []
    panels: list[list[str]] = []

    def add(title: str, axis: Json, traces: Iterable[Json]) -> None:
        number = len(panels) + 1
        name = "y" if number == 1 else f"y{number}"
        domain = domains[number - 1]
        layout[f"yaxis{'' if number == 1 else number}"] = {"domain": domain, "anchor": "x", "fixedrange": True, **axis}
        where = {"xref": "paper", "yref": "paper", "x": 0, "y": domain[1], "xanchor": "left", "yanchor": "bottom"}
        layout["annotations"].append({**where, "text": escape(title), "showarrow": False, "font": {"size": 13}})
        data.extend({**trace, "yaxis": name} for trace in traces)
        panels.append([title, name])

    whole, cut = holding(log), []
    colours = tenant_colours(whole)
    if spans:
        unknown = list(_unknown(log, report))
        bars = held_bars(replace(whole, spans=tuple(spans)))
        add(rows_text(whole), rows_axis(whole), [*bars, *_hatched(unknown, whole.n_rows)])
    assumed = {one.tenant for one in report.header.assumed if one.what == "accuracy"}
    for name, course in courses(log, from_s, to_s).items():
        colour, most = colours[name], most_capacity(course)
        if np.nanmax(course.could, initial=0.0) > most:
            cut.append(f"{name}, which goes up to {np.nanmax(course.could):,.0f}/s")
        add(f"requests a second: {name}", {"rangemode": "tozero"}, _request_lines(course, colour, from_s))
        shares = f"right answers of the model in service, {'assumed, ' if name in assumed else ''}%"
        right = _line(100 * course.accuracy, from_s, shares, {"color": colour})
        add(f"{shares}: {name}", {"range": [0, 100], "nticks": 3}, [right])
    for begin_s, end_s, what in _unknown(log, report):
        layout["shapes"].append(_across(begin_s, end_s))
        layout["annotations"].append(
            {"xref": "x", "yref": "paper", "x": begin_s, "y": 1, "text": what, "showarrow": False, "xanchor": "left"}
        )
    cut_at = f"cut at {MOST_CAPACITY} times the most arrivals: {'; '.join(cut)}."
    note = {"note": f"What served could answer is {cut_at}"} if cut else {}
    return {"data": data, "layout": layout, "panels": panels, **note}


def most_capacity(course: TenantTrack) -> float:
    """What served could answer is drawn up to here, in requests a second; all of it where nothing came."""
    most = float(np.nanmax(course.arrivals, initial=0.0))
    return MOST_CAPACITY * most or math.inf


def _unknown(log: ReadLog, report: Report) -> Iterator[tuple[float, float, str]]:
    """Seconds that are in no figure, and why."""
    for closing in log.settled.values():
        for first, end in closing.blind:
            yield first, end, "blind"
    for window in report.windows:
        if window.is_void:
            begin_s = window.window * log.header.window_s
            yield begin_s, begin_s + log.header.window_s, "void"


def _across(begin_s: float, end_s: float) -> Json:
    place = {"type": "rect", "xref": "x", "yref": "paper", "x0": begin_s, "x1": end_s, "y0": 0, "y1": 1}
    return {**place, "fillcolor": "rgba(128,128,128,0.25)", "line": {"width": 1, "dash": "dot", "color": OTHERS}}


def _window_lines(log: ReadLog, from_s: int, to_s: int) -> list[Json]:
    window_s = log.header.window_s
    first, last = math.ceil(from_s / window_s), math.floor(to_s / window_s)
    if last - first > _MOST_LINES:
        return []
    line = {"width": 1, "dash": "dot", "color": OTHERS}
    at_s = [window * window_s for window in range(first, last + 1)]
    return [
        {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line} for x in at_s
    ]


def _hatched(unknown: Sequence[tuple[float, float, str]], n_rows: int) -> Iterator[Json]:
    for kind in dict.fromkeys(what for _, _, what in unknown):
        own = [(begin_s, end_s) for begin_s, end_s, what in unknown if what == kind]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "base": [begin_s for begin_s, _ in own],
            "x": [end_s - begin_s for begin_s, end_s in own],
            "y": [n_rows / 2] * len(own),
            "width": [n_rows] * len(own),
            "marker": {"color": "rgba(128,128,128,0.15)", "pattern": {"shape": "/", "fgcolor": OTHERS, "size": 10}},
            "customdata": [[kind, begin_s, end_s] for begin_s, end_s in own],
            "hovertemplate": f"{kind}: %{{customdata[1]:,}} to %{{customdata[2]:,}} s<extra></extra>",
        }


def _request_lines(course: TenantTrack, colour: str, from_s: int) -> Iterator[Json]:
    faint = {"width": 0.5, "color": colour}
    yield _line(course.low, from_s, "forecast, low", faint)
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    band = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.25)"}
    yield _line(course.high, from_s, "forecast, high", faint) | band
    yield _line(course.mean, from_s, "forecast", {"width": 1, "dash": "dash", "color": colour})
    could = np.minimum(course.could, most_capacity(course))
    yield _line(could, from_s, "what served could answer", {"width": 1.5, "dash": "dot", "color": INK})
    yield _line(course.arrivals, from_s, "arrivals", {"width": 1, "color": INK})
    yield _line(course.in_time, from_s, "answered in time", {"width": 1.5, "color": colour})


def _line(own: FloatArray, from_s: int, name: str, line: Json) -> Json:
    """The values of the seconds from ``from_s`` on as steps; of many, each pixel's least and most."""
    style = {"type": "scatter", "mode": "lines", "name": name, "line": {**line, "shape": "hv"}}
    style["hovertemplate"] = f"%{{x:,.0f}} s: %{{y:,.1f}}<extra>{name}</extra>"
    if len(own) <= MOST_POINTS:
        return {**style, "x0": from_s, "dx": 1, "y": np.round(own, 3).tolist()}
    kept = extremes(own, _PIXELS)
    return {**style, "x": (kept + from_s).tolist(), "y": np.round(own[kept], 3).tolist()}


def extremes(values: FloatArray, n_pixels: int) -> IntArray:
    """Where, in order, each of at most so many equal stretches of values ``(n,)`` has its least, its most and a NaN."""
    n = len(values)
    width = math.ceil(n / n_pixels)
    padded = np.full(math.ceil(n / width) * width, np.nan)
    padded[:n] = values
    rows = padded.reshape(-1, width)
    is_gap = np.isnan(rows)
    places = np.where(is_gap, np.inf, rows).argmin(axis=1), np.where(is_gap, -np.inf, rows).argmax(axis=1)
    found = np.concatenate([np.arange(len(rows)) * width + place for place in (*places, is_gap.argmax(axis=1))])
    return np.unique(found[found < n]).astype(np.int64)
