"""A comparison of policies as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Console
from rich.table import Table

from migrator.comparison.matches import CEILING, FLOOR, LEAST_SEGMENTS, Difference, MatchScore, Standing, standings
from migrator.inputs.assumed import assumed_in_any
from migrator.log.records import Assumed
from migrator.log.surprise import Surprise
from migrator.terminal.console import counted, escape
from migrator.views.fitted import stacked
from migrator.views.palette import shown
from migrator.views.sentences import assumed_lines

_HEADINGS = ("goodput %", "in time %", "accuracy %", "gap closed %", f"over {FLOOR} %", "changes")


def by_workload(scores: Sequence[MatchScore]) -> dict[str, list[MatchScore]]:
    """The scores of each workload, in the order in which workloads first appear."""
    found: dict[str, list[MatchScore]] = {}
    for score in scores:
        found.setdefault(score.workload, []).append(score)
    return found


def assumed_by_all(scores: Sequence[MatchScore]) -> tuple[Assumed, ...]:
    """What was assumed under any policy, on any segment."""
    return assumed_in_any(score.assumed for score in scores)


def far_from_plans(scores: Sequence[MatchScore]) -> list[str]:
    """By policy, how many windows came out far from their plans, and which of them the farthest."""
    found: dict[str, list[tuple[MatchScore, Surprise]]] = {}
    for score in scores:
        found.setdefault(score.policy, []).extend((score, item) for item in score.surprises if item.tenant is None)
    lines = []
    for policy, own in found.items():
        if own:
            score, farthest = max(own, key=lambda pair: abs(pair[1].points))
            where = f"{score.workload}, segment {score.segment}, " if len(scores) > len(found) else ""
            more = f" (and {len(own) - 1:,} more)" if len(own) > 1 else ""
            lines.append(f"{shown(policy)}: {where}{farthest}{more}")
    return lines


def extent(scores: Sequence[MatchScore], stride_s: int | None = None) -> str:
    """How much was simulated: segments, windows and requests, which are the same for every policy."""
    first = scores[0]
    n_segments, n_windows = len({(score.workload, score.segment) for score in scores}), len(first.totals)
    segments = "one segment" if n_segments == 1 else f"{n_segments:,} segments"
    segments += "" if stride_s is None else f", {stride_s} s from one begin to the next,"
    n_requests = sum(score.total.arrivals for score in scores if score.policy == first.policy)
    return f"{segments} of {counted(n_windows, 'window')}, {n_requests:,} requests"


def setup_text(scores: Sequence[MatchScore]) -> str:
    """On what a workload was simulated, in a line; empty where scores do not say."""
    return "; ".join(f"{kind}: {text}" for kind, text in scores[0].setup)


def print_comparison(scores: Sequence[MatchScore], console: Console, stride_s: int | None = None) -> None:
    """Print a table for each workload, then one over all of them if there are several."""
    workloads = by_workload(scores)
    for name, own in workloads.items():
        _print_table(name, own, console, stride_s)
    if len(workloads) > 1:
        every = [replace(score, notes=(), assumed=(), surprises=(), setup=(), refusals=()) for score in scores]
        _print_table(f"all {len(workloads)} workloads", every, console, stride_s)
    console.print(
        "Simulated. Goodput: in time and correct, of all arrivals. "
        f"Gap closed: of what lies between {FLOOR} (best fixed layout in hindsight) and {shown(CEILING)} ({CEILING}). "
        f"Over {FLOOR}: relative. Ahead: points of goodput %, the mean of the same segments, each counted once, "
        f"with the interval of 95 % of resampled segments where there are at least {LEAST_SEGMENTS}. "
        "Arrivals: where they went; see docs/policies.md.",
        style="dim",
    )


def _print_table(title: str, scores: Sequence[MatchScore], console: Console, stride_s: int | None) -> None:
    found, is_pipe = standings(scores), not console.is_terminal
    console.print(f"[bold]{escape(title)}[/]: {extent(scores, stride_s)}")
    if setup := setup_text(scores):
        console.print(f"  {escape(setup)}", style="dim", soft_wrap=is_pipe)
    for kind, text in dict.fromkeys(note for score in scores for note in score.notes):
        console.print(f"  {kind}: {escape(text)}", style="dim", soft_wrap=is_pipe)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(stacked(heading), justify="right")
    if len(found) > 1:
        table.add_column(stacked(f"ahead of {escape(shown(found[0].policy))}"), justify="right")
    best = max(found, key=lambda item: item.total.correct)
    for item in found:
        table.add_row(*_cells(item, len(found) > 1), style="bold" if item is best else None)
    console.print(table)
    console.print(_accounts(found))
    for line in far_from_plans(scores):
        console.print(f"  [bold red]far from its plan:[/] {escape(line)}", soft_wrap=is_pipe)
    for item in found:
        if item.n_unplanned:
            windows = counted(item.n_unplanned, "window")
            console.print(f"  {escape(shown(item.policy))}: no plan in {windows}; the layout before was kept")
    for score in scores:
        for refusal in score.refusals:
            place = f"segment {score.segment}, {refusal}" if score.segment else refusal
            console.print(f"  {escape(shown(score.policy))}: its plan was refused: {escape(place)}", soft_wrap=is_pipe)
    for line in assumed_lines(assumed_by_all(scores), left_out=("capability",)):
        console.print(f"  assumed: {escape(line)}", style="dim", soft_wrap=is_pipe)


def _accounts(found: Sequence[Standing]) -> Table:
    """Where the arrivals went, in percent."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("arrivals\n%", no_wrap=True)
    for name in found[0].account.shares:
        table.add_column(stacked(name.replace("_", " ")), justify="right")
    for item in found:
        table.add_row(escape(shown(item.policy)), *(_number(100 * share) for share in item.account.shares.values()))
    return table


def _cells(item: Standing, has_reference: bool) -> list[str]:
    total = item.total
    cells = [
        escape(shown(item.policy)),
        _number(total.goodput_pct),
        _number(total.slo_attainment_pct),
        _number(total.accuracy_pct),
        _number(_percent(item.gap_closed), 0),
        _number(_percent(item.relative_gain), sign=True),
        f"{item.n_changes:,}",
    ]
    return [*cells, _ahead_text(item.ahead)] if has_reference else cells


def _ahead_text(ahead: Difference | None) -> str:
    if ahead is None:
        return "–"
    if ahead.low is None or ahead.high is None:
        return f"{ahead.points:+z.2f}"
    return f"{ahead.points:+z.2f} [{ahead.low:+z.2f}, {ahead.high:+z.2f}]".replace("[", r"\[")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    return "" if value is None else f"{value:{'+' if sign else ''}z,.{digits}f}"
