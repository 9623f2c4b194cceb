"""What forecasts were worth, and one forecast beside what came: as tables, strips, JSON and pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape as escape_html
from operator import itemgetter
from pathlib import Path

import numpy as np
from rich.console import Console

from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast, is_within
from forecaster.neural import Check, FittedOn
from forecaster.scores import BANDS, Pooled, Share
from migrator.comparison.forecasts import SHOWN_BAND, Evaluation, Scored, scored
from migrator.terminal.console import escape
from migrator.views.figures import fields
from migrator.views.page import INK, Json, page, panel, require_plot_extra
from migrator.views.palette import TENANTS, VALUES
from migrator.views.strips import TimeScale, sparkline
from migrator.views.table import WORDS, Column, Row, Sheet, in_json, named

_DIGITS = 6
"""After the decimal point, in JSON."""

_PAST_S = 200
"""Of what came before a window, so much is drawn."""

_SHOWN_PATHS = 6

_GREY = "#8C8C8C"

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
"""Of methods: they differ also for readers who see no colours."""


# --- tables


def print_evaluations(evaluations: Sequence[Evaluation], console: Console) -> None:
    """Print each series' tables, and those of all together if there are several."""
    for evaluation in evaluations:
        _print_heading(evaluation, console)
        _print_tables(scored([evaluation]), console)
    if len(evaluations) > 1:
        console.print(f"[bold]all {len(evaluations)} series[/]: means over them, each with the same weight")
        _print_tables(scored(evaluations), console)
    console.print(
        "pinball: of all quantiles, over the mean rate; lower is better. within: share of what came inside the band, "
        "[95 % of resampled blocks]; it should be the band's own. total: of the window, by the sample paths.",
        style="dim",
    )


def _print_heading(evaluation: Evaluation, console: Console) -> None:
    series, terms = evaluation.series, evaluation.terms
    n_origins = max((trials.origins.size for trials in evaluation.trials.values()), default=0)
    console.print(
        f"[bold]{escape(series.name)}[/]: {series.n_seconds:,} s of {_tenants(series.tenants)}, mean "
        f"{series.rates_rps.mean():,.4g}/s; tested from second {series.first_s + terms.first_origin(series):,} on: "
        f"{n_origins:,} windows of {terms.window_s} s, one every {terms.stride(series)} s, from "
        f"{evaluation.history} before"
    )
    for note in evaluation.notes:
        console.print(f"  {escape(note)}", style="yellow")
    for name, reason in evaluation.left_out.items():
        console.print(f"  {escape(name)} is left out: {escape(reason)}", style="yellow")


def _tenants(names: Sequence[str]) -> str:
    return "one tenant" if len(names) == 1 else f"{len(names)} tenants"


def _print_tables(found: Mapping[str, Scored], console: Console) -> None:
    if found:
        for sheet in (overall_sheet(found), *lead_sheets(found)):
            console.print(sheet.drawn())


SCORES: Sequence[Column[Pooled]] = (
    Column("MAE", "mae_rps", "/s", ",.3g"),
    *fields("bias_rps"),
    Column("WAPE", "wape", "%", ".1f", factor=100),
    *fields("pinball_rps"),
    Column("pinball", "pinball_over_mean_rate", form=".4f", get=lambda one: one.relative_pinball),
    Column("within", text=lambda one: _share(one.coverage[SHOWN_BAND]), heading=f"within {100 * SHOWN_BAND:.0f} %"),
)
"""Of a method's forecasts; programs have every band."""


_TOTAL = ("total:\nWAPE %", "total:\npinball", f"within {100 * SHOWN_BAND:.0f} %")
"""Headings of a window's total."""


def overall_sheet(found: Mapping[str, Scored]) -> Sheet[tuple[str, Scored]]:
    """A row a method: of all steps, and of the window's total."""
    columns: list[Column[Scored]] = [column.of(lambda own: own.overall) for column in SCORES if column.name]
    for column, heading in zip(named(SCORES, ("WAPE", "pinball", "within")), _TOTAL, strict=True):
        columns.append(replace(column, name=f"total: {column.name}", heading=heading).of(lambda own: own.total))
    took: Column[Scored] = Column("ms", form=".1f", get=lambda own: 1000 * own.took_s)
    return methods_sheet("method", found, [*columns, took])


def lead_sheets(found: Mapping[str, Scored]) -> Iterator[Sheet[tuple[str, Scored]]]:
    """By lead: what forecasts lost, and how much came within their band."""

    def at(lead: int, column: Column[Pooled]) -> Column[Scored]:
        return replace(column.of(lambda own: own.leads[lead]), name=f"{column.name}, {lead} s", heading=f"{lead} s")

    leads = next(iter(found.values())).leads
    pinball: Column[Pooled] = Column("pinball", form=".3f", get=lambda one: one.relative_pinball)
    yield methods_sheet("pinball / mean rate at lead", found, [at(lead, pinball) for lead in leads])
    covered: Column[Pooled] = Column("within", form=".1f", get=lambda one: one.coverage[SHOWN_BAND].value, factor=100)
    title = f"within the {100 * SHOWN_BAND:.0f} % band, %, at lead"
    yield methods_sheet(title, found, [at(lead, covered) for lead in leads])


def methods_sheet(title: str, found: Mapping[str, Row], columns: Sequence[Column[Row]]) -> Sheet[tuple[str, Row]]:
    """A row a method, beside it its figures; the least ``pinball`` is bold, if there is another."""
    rows = list(found.items())
    names: Column[tuple[str, Row]] = Column(title, get=itemgetter(0), heading=title, layout=WORDS)
    figures: list[Column[tuple[str, Row]]] = [_marked(column.of(itemgetter(1)), rows) for column in columns]
    return Sheet([names, *figures], [rows], layout={"overflow": "fold"})


def _marked(column: Column[Row], rows: Sequence[Row]) -> Column[Row]:
    known = [value for row in rows if "pinball" in column.name and (value := column.value(row)) is not None]
    return replace(column, mark=lambda row: "bold" if len(known) > 1 and column.value(row) == min(known) else "")


def _share(share: Share) -> str:
    interval = "" if share.low is None or share.high is None else f" [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return f"{100 * share.value:.1f}{interval}"


# --- JSON


def evaluations_to_json(evaluations: Sequence[Evaluation]) -> Json:
    """Every figure, by series and method; ``wall`` holds what depends on the machine."""
    together = {"pooled": _methods_to_json(scored(evaluations))} if len(evaluations) > 1 else {}
    return {"series": [_evaluation_to_json(one) for one in evaluations], **together}


def _evaluation_to_json(evaluation: Evaluation) -> Json:
    series, terms = evaluation.series, evaluation.terms
    return {
        "name": series.name,
        "tenants": list(series.tenants),
        "n_seconds": series.n_seconds,
        "mean_rps": round(float(series.rates_rps.mean()), _DIGITS),
        "tested_from_s": series.first_s + terms.first_origin(series),
        "n_origins": max((trials.origins.size for trials in evaluation.trials.values()), default=0),
        "stride_s": terms.stride(series),
        "window_s": terms.window_s,
        "history_s": terms.history_s,
        "notes": list(evaluation.notes),
        "left_out": dict(evaluation.left_out),
        "methods": _methods_to_json(scored([evaluation])),
    }


def _methods_to_json(found: Mapping[str, Scored]) -> Json:
    return {
        name: {
            "all": _score_to_json(own.overall),
            "leads": {str(lead): _score_to_json(scores) for lead, scores in own.leads.items()},
            "total": _score_to_json(own.total),
            "wall": {"median_forecast_s": round(own.took_s, _DIGITS)},
        }
        for name, own in found.items()
    }


def _score_to_json(one: Pooled) -> Json:
    return {
        **{key: _rounded(value) for key, value in in_json(SCORES, one).items()},
        "coverage": {
            f"{band:g}": {"share": _rounded(share.value), "low": _rounded(share.low), "high": _rounded(share.high)}
            for band, share in one.coverage.items()
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


# --- pages


def evaluations_to_html(evaluations: Sequence[Evaluation]) -> str:
    """The page of an evaluation; the same for the same trials.

    Raises:
        MigratorError: The libraries of the extra are not installed.
    """
    require_plot_extra()
    groups = {one.series.name: scored([one]) for one in evaluations}
    if len(evaluations) > 1:
        groups = {f"all {len(evaluations)} series": scored(evaluations), **groups}
    groups = {title: found for title, found in groups.items() if found}
    notes = [(one.series.name, note) for one in evaluations for note in one.notes]
    notes += [(one.series.name, f"{n} is left out: {why}") for one in evaluations for n, why in one.left_out.items()]
    names = list(dict.fromkeys(name for found in groups.values() for name in found))
    figures = {title: _scores_figures(found, names) for title, found in groups.items()}
    placed = {title: [f"scores-{at}-{n}" for n in range(len(own))] for at, (title, own) in enumerate(figures.items())}
    return page(
        "forecast.html.j2",
        {place: own for title in figures for place, own in zip(placed[title], figures[title], strict=True)},
        evaluations=evaluations,
        notes=notes,
        placed=placed,
        sheets={title: (overall_sheet(found), *lead_sheets(found)) for title, found in groups.items()},
    )


def _scores_figures(found: Mapping[str, Scored], names: Sequence[str]) -> tuple[Json, ...]:
    """Pinball by lead, coverage by lead, coverage of the window's total; ``names`` are all methods of the page."""
    losses: list[Json] = []
    covered: list[Json] = []
    totals: list[Json] = []
    for name, own in found.items():
        look: Json = {"color": VALUES[names.index(name) % len(VALUES)]}
        mark = {**look, "symbol": _SYMBOLS[names.index(name) % len(_SYMBOLS)], "size": 8}
        line = {"type": "scatter", "mode": "lines+markers", "name": escape_html(name), "x": list(own.leads)}
        marked = {**line, "line": look, "marker": mark}
        losses.append({**marked, "y": [scores.relative_pinball for scores in own.leads.values()]})
        shares = [scores.coverage[SHOWN_BAND] for scores in own.leads.values()]
        covered.append({**marked, "y": [100 * share.value for share in shares], "error_y": _error_bars(shares)})
        total = own.total.coverage[SHOWN_BAND]
        bar = {"type": "bar", "orientation": "h", "name": escape_html(name), "y": [escape_html(name)]}
        pale = {**look, "opacity": 0.5}  # error bars are seen on it
        totals.append({**bar, "x": [100 * total.value], "error_x": _error_bars([total]), "marker": pale})
    band = f"{100 * SHOWN_BAND:.0f} % band"
    leads_axis = {"type": "log", "tickvals": [1, 5, 10, 30, 60, 200], "title": {"text": "lead, s"}}
    wanted_pct = 100 * SHOWN_BAND
    stroke: Json = {"type": "line", "line": {"color": INK, "width": 1.5, "dash": "dot"}}
    across = [{**stroke, "xref": "paper", "x0": 0, "x1": 1, "y0": wanted_pct, "y1": wanted_pct}]
    upright = [{**stroke, "yref": "paper", "y0": 0, "y1": 1, "x0": wanted_pct, "x1": wanted_pct}]
    shares_axis = {"range": [0, 102]}
    return (
        panel("pinball / mean rate", losses, has_table=True, xaxis=leads_axis, yaxis={"rangemode": "tozero"}),
        panel(f"within the {band}, %", covered, has_table=True, xaxis=leads_axis, yaxis=shares_axis, shapes=across),
        panel(
            f"the window's total within the {band}, %",
            totals,
            has_table=True,
            xaxis=shares_axis,
            yaxis={"autorange": "reversed"},
            margin={"l": 10, "r": 10, "t": 10, "b": 45},
            showlegend=False,
            shapes=upright,
        ),
    )


def _error_bars(shares: Sequence[Share]) -> Json:
    if any(share.low is None or share.high is None for share in shares):
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * ((share.high or 0) - share.value) for share in shares],
        "arrayminus": [100 * (share.value - (share.low or 0)) for share in shares],
        "thickness": 1,
        "color": INK,
    }


# --- a fitted model


def print_fit(folder: Path, method: str, curve: Sequence[Check], console: Console) -> None:
    """Print the learning curve, which weights were kept, and how to use them."""
    best = min(curve, key=lambda one: one.held_out)
    losses = np.array([one.held_out for one in curve])
    console.print(f"[bold]{escape(method)}[/] in {escape(str(folder))}: {curve[-1].update:,} updates", soft_wrap=True)
    _print_strip("held out", losses, float(losses.max()), console)
    console.print(
        f"{'':>8} pinball loss {curve[0].held_out:.4f} after {curve[0].update:,} updates, least {best.held_out:.4f} "
        f"after {best.update:,}, whose weights are kept; {curve[-1].held_out:.4f} at the end",
        style="dim",
        soft_wrap=True,
    )
    console.print(f"To use it: forecast: {{method: {method}, model: {escape(str(folder))}}}", soft_wrap=True)


def fit_to_json(folder: Path, method: str, seen: Sequence[FittedOn], curve: Sequence[Check]) -> Json:
    """The model's folder, what it has seen, and the learning curve."""
    return {
        "model": str(folder),
        "method": method,
        "seen": [asdict(one) for one in seen],
        "n_updates": curve[-1].update,
        "best_update": min(curve, key=lambda one: one.held_out).update,
        "learning_curve": [asdict(one) for one in curve],
    }


# --- one forecast


@dataclass(frozen=True, eq=False)
class ShownForecast:
    """One window's forecast beside what came before and then.

    Attributes:
        title: The config's name.
        window: Its number.
        start_s: When it begins, in seconds of the run.
        known_until_s: Up to when arrivals were known as its plan was begun.
        step_s: Seconds a step.
        tenants: Their names.
        past_rps: Before that, oldest first, ``(T, n)``.
        forecast: Of the window, ``(H, n)``.
        came_rps: What came in it, ``(H, n)``; steps that are parts of a second have the rate of theirs.
    """

    title: str
    window: int
    start_s: float
    known_until_s: float
    step_s: float
    tenants: tuple[str, ...]
    past_rps: FloatArray
    forecast: Forecast
    came_rps: FloatArray

    @property
    def band(self) -> tuple[float, FloatArray, FloatArray]:
        """The widest band: its share, its lower and its upper end, ``(H, n)`` each."""
        quantiles = self.forecast.quantiles_rps
        return BANDS[0], quantiles[0], quantiles[-1]

    def total(self, tenant: int) -> tuple[float, float, float, float]:
        """Requests of the window: expected, both ends of the paths' widest band, and what came."""
        paths = self.forecast.paths_rps[:, :, tenant].sum(axis=1) * self.step_s
        low, high = np.quantile(paths, [QUANTILE_LEVELS[0], QUANTILE_LEVELS[-1]]).tolist()
        expected = float(self.forecast.mean_rps[:, tenant].sum() * self.step_s)
        return expected, low, high, float(self.came_rps[:, tenant].sum() * self.step_s)


def print_shown(shown: ShownForecast, console: Console) -> None:
    """Print for each tenant the past, the forecast and what came as strips, and the window's total."""
    band, low, high = shown.band
    end_s = shown.start_s + shown.step_s * len(shown.came_rps)
    before = "" if shown.known_until_s == shown.start_s else f" second {shown.known_until_s:g}"
    console.print(
        f"[bold]{escape(shown.title)}[/], window {shown.window}, seconds {shown.start_s:g} to {end_s:g}: forecast by "
        f"{escape(shown.forecast.method)} from the {len(shown.past_rps) * shown.step_s:g} s before{before}"
    )
    for tenant, name in enumerate(shown.tenants):
        expected, least, most, came = shown.total(tenant)
        inside = float(is_within(shown.came_rps, low, high)[:, tenant].mean())
        console.print(
            f"\n[bold {TENANTS[tenant % len(TENANTS)]}]{escape(name)}[/]: expected {expected:,.0f} requests, "
            f"{100 * band:.0f} % band {least:,.0f} to {most:,.0f}; came {came:,.0f}. {100 * inside:.0f} % of the steps "
            "came within their band"
        )
        rows = {
            "before": shown.past_rps,
            f"{100 * (1 + band) / 2:.0f} %": high,
            "mean": shown.forecast.mean_rps,
            f"{100 * (1 - band) / 2:.0f} %": low,
            "came": shown.came_rps,
        }
        top = max(float(values[:, tenant].max(initial=0.0)) for values in rows.values())
        for label, values in rows.items():
            _print_strip(label, values[:, tenant], top, console)
        console.print(f"{'':>8} 0 to {top:,.4g}/s", style="dim")


_LABEL = 10
"""Columns before a strip."""


def _print_strip(label: str, values: FloatArray, top: float, console: Console) -> None:
    scale = TimeScale.within(len(values), max(20, min(console.width, 140) - _LABEL))
    console.print(f"{label:>8} {sparkline(scale.means(values), top)}", soft_wrap=True)


def shown_to_json(shown: ShownForecast) -> Json:
    """The arrays by tenant, ``quantiles_rps`` by level, and the window's total."""

    def rounded(values: FloatArray) -> list[float]:
        return [round(value, _DIGITS) for value in values.tolist()]

    forecast, tenants = shown.forecast, {}
    for index, name in enumerate(shown.tenants):
        expected, low, high, came = shown.total(index)
        levels = {
            f"{level:g}": rounded(own[:, index])
            for level, own in zip(QUANTILE_LEVELS, forecast.quantiles_rps, strict=True)
        }
        tenants[name] = {
            "before_rps": rounded(shown.past_rps[:, index]),
            "mean_rps": rounded(forecast.mean_rps[:, index]),
            "quantiles_rps": levels,
            "paths_rps": [rounded(path[:, index]) for path in forecast.paths_rps],
            "came_rps": rounded(shown.came_rps[:, index]),
            "total": {
                "expected": round(expected, _DIGITS),
                "low": round(low, _DIGITS),
                "high": round(high, _DIGITS),
                "came": round(came, _DIGITS),
            },
        }
    return {
        "name": shown.title,
        "window": shown.window,
        "start_s": shown.start_s,
        "known_until_s": shown.known_until_s,
        "step_s": shown.step_s,
        "method": forecast.method,
        "band": shown.band[0],
        "tenants": tenants,
    }


def shown_to_html(shown: ShownForecast) -> str:
    """The page of one window's forecast.

    Raises:
        MigratorError: The libraries of the extra are not installed.
    """
    require_plot_extra()
    totals = {name: shown.total(index) for index, name in enumerate(shown.tenants)}
    figures = {f"window-{tenant}": _window_figure(shown, tenant) for tenant in range(len(shown.tenants))}
    return page("forecast-window.html.j2", figures, shown=shown, totals=totals)


def _window_figure(shown: ShownForecast, tenant: int) -> Json:
    """What came before the window, the forecast of it, and what came in it."""
    n_past = min(len(shown.past_rps), max(1, round(_PAST_S / shown.step_s)))
    before_s = shown.known_until_s + shown.step_s * np.arange(-n_past, 0, dtype=np.float64)
    window_s = shown.start_s + shown.step_s * np.arange(len(shown.came_rps), dtype=np.float64)
    forecast, (band, low, high) = shown.forecast, shown.band

    def line(x: FloatArray, y: FloatArray, name: str, colour: str, width: float = 1.5, **more: object) -> Json:
        look = {"color": colour, "width": width}
        values = {"x": x.tolist(), "y": y[:, tenant].tolist()}
        return {"type": "scatter", "mode": "lines", "name": name, "line": look, **values, **more}

    paths = [
        line(window_s, path, f"path {n}", _GREY, 0.6, showlegend=False, hoverinfo="skip")
        for n, path in enumerate(forecast.paths_rps[:_SHOWN_PATHS], start=1)
    ]
    within = {"fill": "tonexty", "fillcolor": "rgba(136, 204, 238, 0.35)"}
    lines = [
        *paths,
        line(window_s, high, f"{100 * (1 + band) / 2:.0f} %", VALUES[4], 0, showlegend=False),
        line(window_s, low, f"{100 * band:.0f} % band, low end", VALUES[4], 0, **within),
        line(before_s, shown.past_rps[-n_past:], "before", _GREY),
        line(window_s, shown.came_rps, "came", INK),
        line(window_s, forecast.mean_rps, "mean", VALUES[0], 2.5),
    ]
    seconds = {"title": {"text": "second of the run"}}
    title = f"requests a second: {shown.tenants[tenant]}"
    return panel(title, lines, height=320, xaxis=seconds, yaxis={"rangemode": "tozero"})
