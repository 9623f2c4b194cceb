"""What forecasts were worth, and one forecast beside what came: as tables, strips, JSON and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape as escape_html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from forecaster.forecast import FloatArray, Forecast
from forecaster.neural import Check, Seen
from forecaster.scores import Score, Share, bands_of, pooled_coverage, score, score_of_total
from migrator.console import escape
from migrator.evaluation import Evaluation
from migrator.views.html import page, require_plot_extra
from migrator.views.palette import TENANTS, VALUES
from migrator.views.strips import TimeScale, sparkline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Json = dict[str, Any]

_WANTED_BAND = 0.8
"""The band that tables show where forecasts have it; else their widest."""

_DIGITS = 6
"""After the decimal point, in JSON."""

_PAST_S = 200
"""Of what came before a window, so much is drawn."""

_SHOWN_PATHS = 6

_GREY, _BLACK = "#999999", "#222222"


@dataclass(frozen=True, eq=False)
class Scored:
    """All scores of one method on one series, or on several.

    Attributes:
        overall: Over all steps; one for each series.
        leads: By lead in seconds, likewise.
        total: Of the window's total, likewise.
        took_s: The median of what a forecast took.
    """

    overall: tuple[Score, ...]
    leads: Mapping[int, tuple[Score, ...]]
    total: tuple[Score, ...]
    took_s: float


def scored(evaluations: Sequence[Evaluation]) -> dict[str, Scored]:
    """The scores by method, of methods that have trials on every series; leads that every series has."""
    names = [name for name in evaluations[0].trials if all(name in one.trials for one in evaluations)]
    leads = [lead for lead in evaluations[0].leads if all(lead in one.leads for one in evaluations)]
    found = {}
    for name in names:
        own = [one.trials[name] for one in evaluations]
        found[name] = Scored(
            overall=tuple(map(score, own)),
            leads={lead: tuple(score(trials, lead) for trials in own) for lead in leads},
            total=tuple(map(score_of_total, own)),
            took_s=float(np.median(np.concatenate([trials.took_s for trials in own]))),
        )
    return found


def relative_pinball(scores: Sequence[Score]) -> float | None:
    """The mean over series of the pinball loss over the mean rate; ``None`` where nothing came in one of them."""
    values = [one.relative_pinball for one in scores]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


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
        f"{series.rates_rps.mean():.4g}/s; tested from second {series.first_s + terms.first_origin(series):,} on: "
        f"{n_origins} windows of {terms.window_s} s, one every {terms.stride(series)} s, from "
        f"{terms.history_s} s before"
    )
    for note in evaluation.notes:
        console.print(f"  {escape(note)}", style="yellow")
    for name, reason in evaluation.left_out.items():
        console.print(f"  {escape(name)} is left out: {escape(reason)}", style="yellow")


def _tenants(names: Sequence[str]) -> str:
    return "one tenant" if len(names) == 1 else f"{len(names)} tenants"


def _print_tables(found: Mapping[str, Scored], console: Console) -> None:
    if not found:
        return
    band = shown_band(found)
    console.print(_overall_table(found, band))
    leads = list(next(iter(found.values())).leads)
    console.print(_lead_table("pinball / mean rate at lead", leads, found, relative_pinball, "{:.3f}", best=min))
    if band is not None:
        title = f"within the {100 * band:.0f} % band, %, at lead"
        console.print(_lead_table(title, leads, found, lambda one: 100 * pooled_coverage(one, band).value, "{:.1f}"))


def shown_band(found: Mapping[str, Scored]) -> float | None:
    """The band that tables and plots show: 80 % where every method has it, else the widest that all have."""
    bands = [list(one.within) for own in found.values() for one in own.overall]
    shared = [band for band in bands[0] if all(band in others for others in bands)]
    return _WANTED_BAND if _WANTED_BAND in shared else next(iter(shared), None)


def _overall_table(found: Mapping[str, Scored], band: float | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", overflow="fold")
    within = [] if band is None else [f"within {100 * band:.0f} %"]
    for heading in ("MAE\n/s", "WAPE\n%", "pinball", *within, "total:\nWAPE %", "total:\npinball", *within, "ms"):
        table.add_column(heading, justify="right", overflow="fold")
    best = {key: _best(found, key) for key in ("overall", "total")}
    for name, own in found.items():
        cells = [escape(name), _mean([one.mae_rps for one in own.overall], "{:.3g}")]
        for key in ("overall", "total"):
            scores = getattr(own, key)
            if key == "total" and band is not None:
                cells.append(_share(pooled_coverage(own.overall, band)))
            cells.append(_mean([None if one.wape is None else 100 * one.wape for one in scores], "{:.1f}"))
            shown = _text(relative_pinball(scores), "{:.4f}")
            cells.append(f"[bold]{shown}[/]" if name == best[key] else shown)
        if band is not None:
            cells.append(_share(pooled_coverage(own.total, band)))
        table.add_row(*cells, f"{1000 * own.took_s:.1f}")
    return table


def _best(found: Mapping[str, Scored], key: str) -> str | None:
    losses = {name: relative_pinball(getattr(own, key)) for name, own in found.items()}
    known = {name: loss for name, loss in losses.items() if loss is not None}
    return min(known, key=known.__getitem__) if len(known) > 1 else None


def _lead_table(
    title: str,
    leads: Sequence[int],
    found: Mapping[str, Scored],
    value: Callable[[Sequence[Score]], float | None],
    form: str,
    best: Callable[[Sequence[float]], float] | None = None,
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(title, overflow="fold")
    columns = {lead: {name: value(own.leads[lead]) for name, own in found.items()} for lead in leads}
    for lead in leads:
        table.add_column(f"{lead} s", justify="right")
    for name in found:
        cells = []
        for column in columns.values():
            known = [item for item in column.values() if item is not None]
            is_best = best is not None and len(known) > 1 and column[name] == best(known)
            cells.append(f"[bold]{_text(column[name], form)}[/]" if is_best else _text(column[name], form))
        table.add_row(escape(name), *cells)
    return table


def _share(share: Share) -> str:
    interval = "" if share.low is None or share.high is None else f" \\[{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return f"{100 * share.value:.1f}{interval}"


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return _text(float(np.mean(known)) if known and len(known) == len(values) else None, form)


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


# --- JSON


def evaluations_to_json(evaluations: Sequence[Evaluation]) -> Json:
    """Every figure, by series and method; ``wall`` holds what depends on the machine."""
    pooled = {"pooled": _methods_to_json(scored(evaluations))} if len(evaluations) > 1 else {}
    return {"series": [_evaluation_to_json(one) for one in evaluations], **pooled}


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


def _score_to_json(scores: Sequence[Score]) -> Json:
    wapes = [one.wape for one in scores]
    loss = relative_pinball(scores)
    return {
        "mae_rps": round(float(np.mean([one.mae_rps for one in scores])), _DIGITS),
        "bias_rps": round(float(np.mean([one.bias_rps for one in scores])), _DIGITS),
        "wape": None if None in wapes else round(float(np.mean([one for one in wapes if one is not None])), _DIGITS),
        "pinball_rps": round(float(np.mean([one.pinball_rps for one in scores])), _DIGITS),
        "pinball_over_mean_rate": None if loss is None else round(loss, _DIGITS),
        "coverage": {f"{band:g}": _share_to_json(pooled_coverage(scores, band)) for band in scores[0].within},
    }


def _share_to_json(share: Share) -> Json:
    ends = {"low": share.low, "high": share.high}
    return {"share": round(share.value, _DIGITS), **{k: v if v is None else round(v, _DIGITS) for k, v in ends.items()}}


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
    return page("forecast.html.j2", evaluations=evaluations, notes=notes, scores=_scores_figure(groups))


def _scores_figure(groups: Mapping[str, Mapping[str, Scored]]) -> Figure:
    """A row of panels for each group: pinball by lead, coverage by lead, coverage of the window's total."""
    from plotly.subplots import make_subplots  # noqa: PLC0415 - heavy, and an optional extra

    titles = [
        f"{escape_html(title)}: {what}"
        for title in groups
        for what in ("pinball / mean rate", "within the band, %", "total within it, %")
    ]
    figure = make_subplots(rows=len(groups), cols=3, subplot_titles=titles, column_widths=[0.4, 0.4, 0.2])
    names = list(dict.fromkeys(name for found in groups.values() for name in found))
    for row, found in enumerate(groups.values(), start=1):
        band = shown_band(found)
        for name, own in found.items():
            look = {"color": VALUES[names.index(name) % len(VALUES)]}
            shared = {"name": escape_html(name), "legendgroup": name, "row": row, "marker": look}
            leads = list(own.leads)
            losses = [relative_pinball(own.leads[lead]) for lead in leads]
            figure.add_scatter(x=leads, y=losses, col=1, mode="lines+markers", line=look, showlegend=row == 1, **shared)
            if band is None:
                continue
            covered = [pooled_coverage(own.leads[lead], band) for lead in leads]
            figure.add_scatter(
                x=leads,
                y=[100 * share.value for share in covered],
                error_y=_error_bars(covered),
                col=2,
                mode="lines+markers",
                line=look,
                showlegend=False,
                **shared,
            )
            total = pooled_coverage(own.total, band)
            figure.add_bar(
                x=[escape_html(name)],
                y=[100 * total.value],
                error_y=_error_bars([total]),
                col=3,
                showlegend=False,
                **shared,
            )
        if band is not None:
            for column in (2, 3):
                figure.add_hline(y=100 * band, row=row, col=column, line={"color": _GREY, "dash": "dot"})
                figure.update_yaxes(range=[0, 102], row=row, col=column)
    figure.update_xaxes(type="log", tickvals=[1, 5, 10, 30, 60, 200], title_text="lead, s", col=1)
    figure.update_xaxes(type="log", tickvals=[1, 5, 10, 30, 60, 200], title_text="lead, s", col=2)
    figure.update_yaxes(rangemode="tozero", col=1)
    figure.update_annotations(font_size=12)
    figure.update_layout(template="simple_white", width=1150, height=120 + 280 * len(groups), margin={"t": 60})
    return figure


def _error_bars(shares: Sequence[Share]) -> Json | None:
    if any(share.low is None or share.high is None for share in shares):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [100 * ((share.high or 0) - share.value) for share in shares],
        "arrayminus": [100 * (share.value - (share.low or 0)) for share in shares],
        "thickness": 1,
    }


# --- a fitted model


def print_fit(folder: Path, method: str, curve: Sequence[Check], console: Console) -> None:
    """Print the learning curve, which weights were kept, and how to use them."""
    best = min(curve, key=lambda one: one.held_out)
    losses = np.array([one.held_out for one in curve])
    scale = TimeScale.within(len(losses), max(20, min(console.width, 140) - _LABEL))
    console.print(f"[bold]{escape(method)}[/] in {escape(str(folder))}: {curve[-1].update:,} updates", soft_wrap=True)
    console.print(f"{'held out':>8} {sparkline(scale.means(losses), float(losses.max()))}", soft_wrap=True)
    console.print(
        f"{'':>8} pinball loss {curve[0].held_out:.4f} after {curve[0].update} updates, least {best.held_out:.4f} "
        f"after {best.update}, whose weights are kept; {curve[-1].held_out:.4f} at the end",
        style="dim",
        soft_wrap=True,
    )
    console.print(f"To use it: forecast: {{method: {method}, model: {escape(str(folder))}}}", soft_wrap=True)


def fit_to_json(folder: Path, method: str, seen: Sequence[Seen], curve: Sequence[Check]) -> Json:
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
class Shown:
    """One window's forecast beside what came before and then.

    Attributes:
        title: The config's name.
        window: Its number.
        start_s: When it begins, in seconds of the run.
        step_s: Seconds a step.
        tenants: Their names.
        past_rps: Before it, oldest first, ``(T, n)``.
        forecast: Of the window, ``(H, n)``.
        came_rps: What came in it, ``(H, n)``.
    """

    title: str
    window: int
    start_s: float
    step_s: float
    tenants: tuple[str, ...]
    past_rps: FloatArray
    forecast: Forecast
    came_rps: FloatArray

    @property
    def band(self) -> tuple[float, FloatArray, FloatArray]:
        """The widest band: its share, its lower and its upper end, ``(H, n)`` each."""
        quantiles = self.forecast.quantiles_rps
        return bands_of(self.forecast.quantile_levels)[0], quantiles[0], quantiles[-1]

    def total(self, tenant: int) -> tuple[float, float, float, float]:
        """Requests of the window: expected, both ends of the paths' widest band, and what came."""
        paths = self.forecast.paths_rps[:, :, tenant].sum(axis=1) * self.step_s
        levels = self.forecast.quantile_levels
        low, high = np.quantile(paths, [levels[0], levels[-1]]).tolist()
        expected = float(self.forecast.mean_rps[:, tenant].sum() * self.step_s)
        return expected, low, high, float(self.came_rps[:, tenant].sum() * self.step_s)


def print_shown(shown: Shown, console: Console) -> None:
    """Print for each tenant the past, the forecast and what came as strips, and the window's total."""
    band, low, high = shown.band
    end_s = shown.start_s + shown.step_s * len(shown.came_rps)
    console.print(
        f"[bold]{escape(shown.title)}[/], window {shown.window}, seconds {shown.start_s:g} to {end_s:g}: forecast by "
        f"{escape(shown.forecast.method)} from the {len(shown.past_rps) * shown.step_s:g} s before"
    )
    width = max(20, min(console.width, 140) - _LABEL)
    for tenant, name in enumerate(shown.tenants):
        expected, least, most, came = shown.total(tenant)
        inside = float(((low <= shown.came_rps) & (shown.came_rps <= high))[:, tenant].mean())
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
            scale = TimeScale.within(len(values), width)
            strip = sparkline(scale.means(values[:, tenant]), top)
            console.print(f"{label:>8} {strip}", soft_wrap=True)
        console.print(f"{'':>8} 0 to {top:.4g}/s", style="dim")


_LABEL = 10
"""Columns before a strip."""


def shown_to_json(shown: Shown) -> Json:
    """The arrays by tenant, ``quantiles_rps`` by level, and the window's total."""

    def rounded(values: FloatArray) -> list[float]:
        return [round(value, _DIGITS) for value in values.tolist()]

    forecast, tenants = shown.forecast, {}
    for index, name in enumerate(shown.tenants):
        expected, low, high, came = shown.total(index)
        levels = {
            f"{level:g}": rounded(own[:, index])
            for level, own in zip(forecast.quantile_levels, forecast.quantiles_rps, strict=True)
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
        "step_s": shown.step_s,
        "method": forecast.method,
        "band": shown.band[0],
        "tenants": tenants,
    }


def shown_to_html(shown: Shown) -> str:
    """The page of one window's forecast.

    Raises:
        MigratorError: The libraries of the extra are not installed.
    """
    require_plot_extra()
    totals = {name: shown.total(index) for index, name in enumerate(shown.tenants)}
    return page("forecast-window.html.j2", shown=shown, totals=totals, window=_window_figure(shown))


def _window_figure(shown: Shown) -> Figure:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - heavy, and an optional extra

    figure = make_subplots(rows=len(shown.tenants), cols=1, subplot_titles=list(map(escape_html, shown.tenants)))
    n_past = min(len(shown.past_rps), max(1, round(_PAST_S / shown.step_s)))
    before_s = shown.start_s + shown.step_s * np.arange(-n_past, 0, dtype=np.float64)
    window_s = shown.start_s + shown.step_s * np.arange(len(shown.came_rps), dtype=np.float64)
    forecast, (band, _, _) = shown.forecast, shown.band
    for tenant in range(len(shown.tenants)):

        def line(
            x: FloatArray,
            y: FloatArray,
            name: str,
            colour: str,
            width: float = 1.5,
            tenant: int = tenant,
            **more: object,
        ) -> None:
            figure.add_scatter(
                x=x,
                y=y,
                row=tenant + 1,
                col=1,
                name=name,
                legendgroup=name,
                mode="lines",
                line={"color": colour, "width": width},
                showlegend=tenant == 0 and bool(name),
                **more,
            )

        for path in forecast.paths_rps[:_SHOWN_PATHS, :, tenant]:
            line(window_s, path, "", "#C9D6DF", 0.8)
        line(window_s, forecast.quantiles_rps[-1, :, tenant], "", VALUES[4], 0)
        line(
            window_s,
            forecast.quantiles_rps[0, :, tenant],
            f"{100 * band:.0f} % band",
            VALUES[4],
            0,
            fill="tonexty",
            fillcolor="rgba(136, 204, 238, 0.35)",
        )
        line(before_s, shown.past_rps[-n_past:, tenant], "before", _GREY)
        line(window_s, shown.came_rps[:, tenant], "came", _BLACK)
        line(window_s, forecast.mean_rps[:, tenant], "mean", VALUES[0], 2.5)
    figure.update_xaxes(title_text="second of the run", row=len(shown.tenants))
    figure.update_yaxes(title_text="requests/s", rangemode="tozero")
    figure.update_layout(template="simple_white", width=1100, height=100 + 260 * len(shown.tenants), margin={"t": 50})
    return figure
