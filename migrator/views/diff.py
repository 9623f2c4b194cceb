"""Two runs side by side, as a few lines and a table."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from migrator.log.diff import Diff, GainCause
from migrator.terminal.console import escape
from migrator.views.table import stacked

_MOST_LINES = 8
"""Of what is not the same; beyond it the rest is a number."""


def row_name(diff: Diff, row: str) -> str:
    """A class of the account, as people read it; ``mix`` is what other requests are worth."""
    if row == "capacity" and not diff.knows_forecast:
        return "capacity and forecast"
    return "other requests" if row == "mix" else row.replace("_", " ")


def headline(diff: Diff) -> str:
    """Both goodputs, how far they are apart, and of which requests."""
    one, other = diff.goodput_pct
    came = f"the same {diff.n_requests[0]:,} requests"
    if not diff.same_requests:
        came = f"of {diff.n_requests[0]:,} and {diff.n_requests[1]:,} other requests: shares alone are compared"
    return f"goodput {one:.2f} % against {other:.2f} %: {diff.points:+z.2f} points, {came}"


def cause_text(diff: Diff, cause: GainCause) -> str:
    """Where, for whom, of what kind, how much, and why."""
    why = f" ({cause.why})" if cause.why else ""
    return f"window {cause.window}, {cause.tenant}: {row_name(diff, cause.row)} {cause.points:+z.2f}{why}"


def unlike_lines(diff: Diff) -> list[str]:
    """What is not the same or in one run alone."""
    lines = [*diff.left_out, *diff.unlike]
    more = len(lines) - _MOST_LINES
    return lines if more <= 1 else [*lines[:_MOST_LINES], f"and {more} more, which --json has"]


def print_diff(diff: Diff, console: Console) -> None:
    """Print what is not the same, how far the runs are apart and in what, and the largest causes."""
    if diff.is_empty:
        console.print(f"no difference: {headline(diff)}, the same layouts, configs and versions")
        return
    is_pipe = not console.is_terminal
    console.print(f"[bold]{headline(diff)}[/]", soft_wrap=is_pipe)
    for line in unlike_lines(diff):
        console.print(f"  not the same: {escape(line)}", soft_wrap=is_pipe)
    if diff.layouts_differ_s is not None:
        console.print(f"the layouts differ from second {diff.layouts_differ_s:.1f} on")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("window", "tenant", "goodput", *(row_name(diff, row) for row in diff.by_row)):
        table.add_column(stacked(heading), justify="left" if heading == "tenant" else "right", overflow="fold")
    for gain in diff.gains:
        cells = (f"{gain.by_row[row]:+z.2f}" for row in diff.by_row)
        table.add_row(str(gain.window), escape(gain.tenant), f"{gain.points:+z.2f}", *cells)
    table.add_row("all", "all", f"{diff.points:+z.2f}", *(f"{v:+z.2f}" for v in diff.by_row.values()), style="bold")
    console.print(table)
    for number, cause in enumerate(diff.causes):
        console.print(
            f"{'largest in: ' if not number else '            '}{escape(cause_text(diff, cause))}", soft_wrap=is_pipe
        )
    console.print("Points of a run's own arrivals, gained where positive; rows add up to the goodput.", style="dim")
