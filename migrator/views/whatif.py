"""A grid of plans as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

from migrator.assumed import assumed_to_json
from migrator.console import escape
from migrator.views.assumed import assumed_lines
from migrator.whatif.grid import point_text
from migrator.whatif.sweep import Outcome, PlannedRetraining, Sweep, TenantOutcome

_BOUNDLESS = 10_000
"""Columns of a console on which every table fits, to measure a table's own width."""


def print_sweep(sweep: Sweep, console: Console) -> None:
    """Print a row for each point, the best one bold, and below the table why points have no plan."""
    console.print(
        f"[bold]{escape(sweep.name)}[/]: expected goodput of plans, nothing was run; arrivals: {escape(sweep.forecast)}"
    )
    for note in sweep.notes:
        console.print(f"  {escape(note)}")
    for line in assumed_lines(assumed_to_json(sweep.assumed)):
        console.print(f"  assumed: {escape(line)}", style="dim")
    _print_table(sweep, console)
    for line in _reasons(sweep):
        console.print(f"  {escape(line)}")
    console.print(
        "goodput: requests in time and correct, and their share of the expected arrivals; gap: to what no plan exceeds;"
        " solve: with all processes at work; retrains: where, and in which steps.",
        style="dim",
    )


def _reasons(sweep: Sweep) -> Iterator[str]:
    """Each reason why there is no plan, with its first point and the number of others."""
    first: dict[tuple[str, str], Outcome] = {}
    n_more: Counter[tuple[str, str]] = Counter()
    for outcome in sweep.outcomes:
        if outcome.reason is not None:
            key = (outcome.status, outcome.reason)
            n_more[key] += key in first
            first.setdefault(key, outcome)
    for (status, reason), outcome in first.items():
        more = n_more[status, reason]
        others = f" and {more} more" if more else ""
        yield f"{point_text(outcome.point)}{others}: {status}: {reason}"


def _print_table(sweep: Sweep, console: Console) -> None:
    """Print the widest table that fits: with tenants and retrainings, with tenants, or with neither."""
    boundless = console.options.update(width=_BOUNDLESS)
    for n_tenant_cells in (2, 1, 0):
        table = _table(sweep, n_tenant_cells)
        if console.measure(table, options=boundless).maximum <= console.width:
            break
    console.print(table)
    if n_tenant_cells < 2 and any(outcome.tenants for outcome in sweep.outcomes):
        left_out = "retrainings are" if n_tenant_cells == 1 else "tenants and retrainings are"
        console.print(f"{left_out} left out for want of width; --json and --out have them", style="dim")


def _table(sweep: Sweep, n_tenant_cells: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for variation in sweep.grid.variations:
        table.add_column(escape(variation.name), justify="right", overflow="fold")
    table.add_column("status", overflow="fold")
    for heading in ("goodput", "%", "gap %", "solve s"):
        table.add_column(heading, justify="right", overflow="fold")
    names = _tenant_names(sweep)
    for name in names:
        if n_tenant_cells > 0:
            table.add_column(f"{escape(name)}\n%", justify="right")
        if n_tenant_cells > 1:
            table.add_column("\nretrains")
    best = sweep.best
    for outcome in sweep.outcomes:
        table.add_row(*_cells(outcome, names, n_tenant_cells), style="bold" if outcome is best else None)
    return table


def _tenant_names(sweep: Sweep) -> tuple[str, ...]:
    """The tenants of the outcome with the most, in the config's order; others have the first of them."""
    return max((tuple(tenant.name for tenant in outcome.tenants) for outcome in sweep.outcomes), key=len, default=())


def _cells(outcome: Outcome, tenant_names: tuple[str, ...], n_tenant_cells: int) -> list[str]:
    tenants = {tenant.name: tenant for tenant in outcome.tenants}
    cells = [escape(choice.text) for choice in outcome.point]
    cells += [
        outcome.status,
        _number(outcome.goodput, 0),
        _number(outcome.goodput_pct, 2),
        _number(None if outcome.gap is None else 100 * outcome.gap, 3),
        _number(outcome.solve_s, 2),
    ]
    for name in tenant_names:
        cells += _tenant_cells(tenants.get(name))[:n_tenant_cells]
    return cells


def _tenant_cells(tenant: TenantOutcome | None) -> list[str]:
    if tenant is None:
        return ["", ""]
    return [_number(tenant.goodput_pct, 2), "–" if tenant.retraining is None else _retraining_text(tenant.retraining)]


def _retraining_text(retraining: PlannedRetraining) -> str:
    return f"{retraining.where} {retraining.start_step}–{retraining.end_step}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
