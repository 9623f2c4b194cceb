"""Live runs beside their simulation, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from rich.console import Console

from migrator.fidelity.live import BIN_S, MOST_PCT, MOST_POINTS, FidelityVerdict, LiveFidelity, Nearness, total_of
from migrator.terminal.console import escape
from migrator.views.table import NAME, Column, Sheet


def print_fidelity(runs: Sequence[LiveFidelity], verdict: FidelityVerdict, console: Console) -> None:
    """Print each run by window and tenant, then what all of them say."""
    for run in runs:
        _print_run(run, console)
    _print_verdict(verdict, console)


_Row = tuple[str, str, Nearness]
"""Window, tenant, and how near the simulation comes there."""


def _share(name: str, key: str, heading: str) -> Column[_Row]:
    def share(row: _Row) -> float | None:
        return getattr(row[2], key) / row[2].arrivals if row[2].arrivals else None

    return Column(name, get=share, factor=100, heading=heading)


def _difference(name: str, key: str, heading: str) -> Column[_Row]:
    def mark(row: _Row) -> str:
        return "" if row[2].is_near or not row[2].arrivals else "yellow"

    return Column(name, form="+z.2f", get=lambda row: getattr(row[2], key), heading=heading, mark=mark)


_COLUMNS: Sequence[Column[_Row]] = (
    Column("window", get=itemgetter(0), heading="win-\ndow"),
    Column("tenant", get=itemgetter(1), layout=NAME),
    Column("arrivals", get=lambda row: row[2].arrivals),
    _share("in time live", "live_in_time", "in time %\nlive"),
    _share("in time simulated", "simulated_in_time", "simu-\nlated"),
    _difference("difference in time", "in_time_points", "differs\nby points"),
    _share("goodput live", "live_goodput", "goodput %\nlive"),
    _share("goodput simulated", "simulated_goodput", "simu-\nlated"),
    _difference("difference of goodput", "goodput_pct", "differs\nby %"),
)


def _print_run(run: LiveFidelity, console: Console) -> None:
    console.print(f"[bold]{escape(str(run.folder))}[/]: counted live, and simulated with what the run recorded")
    sections: list[list[_Row]] = []
    for window in run.windows:
        own = run.of_window(window)
        every = [*own.items(), *([("all", total_of(own.values()))] if len(own) > 1 else [])]
        sections.append([("" if place else str(window), *item) for place, item in enumerate(every)])
    total = ("all", "all", run.total)
    sections.append([*(("all", *item) for item in run.of_tenants.items()), total])
    console.print(Sheet(_COLUMNS, sections, lambda row: "bold" if row is total else None).drawn())
    for line in _lines(run):
        console.print(line, soft_wrap=True)
    console.print()


def _lines(run: LiveFidelity) -> list[str]:
    """What is to be said of the run beside its table."""
    found = []
    if (lost := run.lost) is not None:
        word = "nearer" if lost.is_beaten else "[yellow]no nearer[/]"
        found.append(
            f"lost goodput by {BIN_S} s: the simulation differs by {lost.simulated:,.0f} requests on average, the live "
            f"series {BIN_S} s later by {lost.shifted:,.0f}: the simulation is {word}"
        )
    if len(run.windows) < run.n_windows:
        found.append(f"{len(run.windows)} of {run.n_windows} windows were finished; the others are left out")
    facts, part = run.facts, " since it was joined again" if run.is_resumed else ""
    if facts.sent_late_s is not None:
        _, p99_s, worst_s = facts.sent_late_s
        found.append(
            f"sent late by the generator itself{part}, which is not simulated: {1000 * p99_s:,.1f} ms at the 99th "
            f"percentile, at most {1000 * worst_s:,.0f} ms"
        )
    if facts.of_others:
        found.append(
            f"{facts.of_others:,} requests of others, on both sides left out, took time of the workers{part}, which is "
            "not simulated"
        )
    if facts.is_void:
        found.append(f"[bold red]void[/]: {facts.void_because}{part}; the run does not count")
    elif facts.stolen_share is None:
        found.append("how much of its CPU time the machine was refused is not known")
    else:
        others = "" if facts.others_share is None else f", and others took {facts.others_share:.1%} of it"
        found.append(f"the machine was refused {facts.stolen_share:.1%} of its CPU time{others}{part}")
    return found


def _print_verdict(verdict: FidelityVerdict, console: Console) -> None:
    if verdict.n_runs:
        of = "in all" if verdict.n_runs == 1 else f"median of {verdict.n_runs} runs"
        void = f" ({verdict.n_void} void)" if verdict.n_void else ""
        console.print(
            f"{of}{void}: in time {_size(verdict.in_time_points, ' points')} (at most {MOST_POINTS:g}), "
            f"goodput {_size(verdict.goodput_pct, ' %')} (at most {MOST_PCT:g}), "
            f"lost goodput by {BIN_S} s {_size(verdict.lost_ratio, '', 2)} of the shifted series' difference (below 1)",
            soft_wrap=True,
        )
    if shortfalls := verdict.shortfalls:
        console.print(f"[bold yellow]not near enough[/]: {'; '.join(shortfalls)}", soft_wrap=True)
    else:
        console.print("[bold green]near enough[/]")


def _size(value: float | None, unit: str, digits: int = 1) -> str:
    return "not known" if value is None else f"{value:.{digits}f}{unit}"
