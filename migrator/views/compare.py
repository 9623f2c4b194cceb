"""A comparison of policies as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import attrgetter

from rich.console import Console

from migrator.comparison.matches import CEILING, FLOOR, LEAST_SEGMENTS, MatchScore, Standing, standings
from migrator.inputs.assumed import assumed_in_any
from migrator.log.records import Assumed
from migrator.log.surprise import Surprise
from migrator.terminal.console import counted, escape
from migrator.views.figures import TOTALS
from migrator.views.palette import shown
from migrator.views.sentences import assumed_lines
from migrator.views.table import Column, Sheet, named


def _ahead_text(item: Standing) -> str:
    """Points, and in which interval they lie where that is known."""
    if (ahead := item.ahead) is None:
        return "–"
    interval = "" if ahead.low is None or ahead.high is None else f" [{ahead.low:+z.2f}, {ahead.high:+z.2f}]"
    return f"{ahead.points:+z.2f}{interval}"


STANDINGS: Sequence[Column[Standing]] = (
    Column("policy", "policy", text=lambda one: shown(one.policy), layout={"justify": "left", "no_wrap": True}),
    *(column.of(attrgetter("total")) for column in TOTALS),
    Column("changes", "changes", get=lambda one: one.n_changes),
    Column("", "windows_without_plan", get=lambda one: one.n_unplanned),
    Column("gap closed", "gap_closed", "%", ",.0f", factor=100, unknown=""),
    Column(f"over {FLOOR}", "relative_gain", "%", "+z,.2f", factor=100, unknown=""),
    Column("", "account", get=lambda one: asdict(one.account)),
    Column("ahead", "ahead", get=lambda one: one.ahead and asdict(one.ahead), text=_ahead_text),
)
_SHOWN = ("policy", "goodput", "in time", "accuracy", "gap closed", f"over {FLOOR}", "changes")
"""Of a policy's figures, those in a terminal."""


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
    for sheet in (standings_sheet(found), accounts_sheet(found)):
        console.print(sheet.drawn())
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


def standings_sheet(found: Sequence[Standing]) -> Sheet[Standing]:
    """A row a policy, the one with the most goodput bold."""
    columns = named(STANDINGS, _SHOWN)
    if len(found) > 1:
        columns.append(replace(STANDINGS[-1], name=f"ahead of {shown(found[0].policy)}"))
    best = max(found, key=lambda item: item.total.correct)
    return Sheet(columns, [found], lambda item: "bold" if item is best else None)


def accounts_sheet(found: Sequence[Standing]) -> Sheet[Standing]:
    """Where the arrivals went, in percent."""

    def share(name: str) -> Column[Standing]:
        return Column(name.replace("_", " "), form=",.2f", get=lambda one: one.account.shares[name], factor=100)

    policy = replace(STANDINGS[0], heading="arrivals\n%")
    return Sheet([policy, *map(share, found[0].account.shares)], [found])
