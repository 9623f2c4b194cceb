"""Live runs beside their simulation, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from migrator.fidelity.live import BIN_S, MOST_PCT, MOST_POINTS, FidelityVerdict, LiveFidelity, Nearness, total_of
from migrator.terminal.console import escape


def print_fidelity(runs: Sequence[LiveFidelity], verdict: FidelityVerdict, console: Console) -> None:
    """Print each run by window and tenant, then what all of them say."""
    for run in runs:
        _print_run(run, console)
    _print_verdict(verdict, console)


def _print_run(run: LiveFidelity, console: Console) -> None:
    console.print(f"[bold]{escape(str(run.folder))}[/]: counted live, and simulated with what the run recorded")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    titles = "win-\ndow", "tenant", "arrivals", "in time %\nlive", "simu-\nlated", "differs\nby points"
    for title in (*titles, "goodput %\nlive", "simu-\nlated", "differs\nby %"):
        table.add_column(title, justify="left" if title == "tenant" else "right")
    for window in run.windows:
        own = run.of_window(window)
        for place, (name, nearness) in enumerate(own.items()):
            table.add_row("" if place else str(window), escape(name), *_cells(nearness))
        if len(own) > 1:
            table.add_row("", "all", *_cells(total_of(own.values())))
        table.add_row()
    for name, nearness in run.of_tenants.items():
        table.add_row("all", escape(name), *_cells(nearness))
    table.add_row("all", "all", *_cells(run.total), style="bold")
    console.print(table)
    for line in _lines(run):
        console.print(line, soft_wrap=True)
    console.print()


def _cells(one: Nearness) -> list[str]:
    style = "" if one.is_near or not one.arrivals else "[yellow]"
    points, pct = _signed(one.in_time_points), _signed(one.goodput_pct)
    return [
        f"{one.arrivals:,}",
        *(_share(value, one.arrivals) for value in (one.live_in_time, one.simulated_in_time)),
        f"{style}{points}",
        *(_share(value, one.arrivals) for value in (one.live_goodput, one.simulated_goodput)),
        f"{style}{pct}",
    ]


def _share(value: float, arrivals: int) -> str:
    return f"{100 * value / arrivals:.2f}" if arrivals else "–"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+z.2f}"


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
