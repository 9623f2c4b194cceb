"""A run's report in a screen: how much was answered, which tenant fails and why, and what would help.

Figures that do not fit beside each other make a second block; on a very narrow terminal each has a line.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from operator import itemgetter
from statistics import fmean
from typing import TypeAlias

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from executor.mig import OwnedLayout
from forecaster.registry import HINDSIGHT
from migrator.log.account import Account, accounts, counts_of, had_same_requests, waits_for_others
from migrator.log.changes import changes_in
from migrator.log.live import known_of
from migrator.log.records import Tenant, WindowStarted
from migrator.log.report import Figures, Report
from migrator.log.runlog import CONFIG_FILE, ReadLog
from migrator.log.slow_plans import slow_plans
from migrator.log.timeline import NewModel, new_models
from migrator.terminal.console import escape, printable, program
from migrator.views.palette import shown
from migrator.views.report import alarms, lines_of_assumed, unusual, what_is_simulated
from migrator.views.sentences import share_text
from migrator.views.strips import SHARED, layout_strip, sparkline, tenant_letters
from migrator.views.table import WORDS, Column, Sheet
from migrator.whatif.goals import Judgement, judged
from migrator.whatif.search import Condition
from planner.problem import Owner, Task

NARROW = 60
"""Columns below which each figure of a tenant has a line."""

MOST_TENANTS, FEW_TENANTS = 8, 5
"""Of more tenants than the first, a second block and what would help are of fewer: those that lose most."""

MOST_RETRAINED = 4
"""Tenants whose retrainings have a line each."""

MOST_WINDOWS = 8
"""Characters of a trend; of more windows several share one."""

MOST_NOTES = 6
"""Lines of what to be careful with."""

_BOUNDLESS = 10_000
"""Columns of a console on which every table fits, to measure a table's own width."""

MISSED = "missed mostly because of"

_CAUSES = {
    "capacity": "capacity",
    "reconfiguration": "changes",
    "forecast": "forecast",
    "queueing": "queues",
    "waits": "turns",
}
"""What requests are missed because of, each in a word: classes of an account, and waits for others of a pool."""

_LEAST_CAUSE = 0.05
"""Share of a tenant's missed requests below which a cause is left out."""

_MOST_CAUSES = 2

_HELPS = {
    "capacity": "lack of capacity: less load, fewer tenants or a larger GPU",
    "reconfiguration": "missed while instances changed: a plan says why they do",
    "forecast": "bursts that nobody foresaw: room to spare, by less load or a larger GPU",
    "queueing": "bursts, and waits for a batch: a longer SLO, or less load",
    "waits": "waits for turns of those that share its instances: less load or a larger GPU",
    "wrong": "wrong answers: retrainings that end late, or teach too little",
}
"""By what a tenant loses most to, what would help."""

_LESS_LOAD = "whatif {} --vary load=x0.25,x0.5,x0.75"

_TRIES = {"capacity": _LESS_LOAD, "waits": _LESS_LOAD, "reconfiguration": "plan {} --window 0"}
"""A call that shows how much it would help, where there is one."""

_MOST_HELPS = 2

_MOST_NAMES = 3


_Line: TypeAlias = "tuple[str, str | Text]"
"""A label, and markup or a text beside it."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A tenant over all settled windows.

    Attributes:
        letter: Stands for it in layouts; empty where its name begins with it.
        trend: Its share in time by window, as blocks.
        account: Where its requests went; ``None`` where nobody knows which answers are right.
        waited: Of those that queued too long, those that waited for others of their pool.
    """

    tenant: Tenant
    letter: str
    figures: Figures
    judged: Judgement | None
    trend: str
    account: Account | None
    waited: float

    @property
    def mark(self) -> str:
        kept = None if self.judged is None else self.judged.is_kept
        return " " if kept is None else "✓" if kept else "✗"

    @property
    def missed(self) -> list[tuple[float, str]]:
        """Requests by cause, the largest first."""
        if self.account is None:
            return []
        own = replace(self.account, queueing=self.account.queueing - self.waited)
        found = [(self.waited if cause == "waits" else getattr(own, cause), cause) for cause in _CAUSES]
        return sorted((one for one in found if one[0] >= 1), reverse=True)


def print_summary(
    log: ReadLog, report: Report, rival: ReadLog | None, conditions: Sequence[Condition], console: Console
) -> None:
    """Print the run; ``rival`` is the log of another policy, printed if it had the same requests.

    Tenants are marked by the ``conditions`` of ``--keep``, else by their floors, else by what is usual.
    """
    rival = rival if rival is not None and had_same_requests(log, rival) else None
    rows = _rows(log, report, rival, judged(report, conditions))
    if report.live is not None and report.live.is_void:
        console.print(f"[bold red]✗[/] void: {escape(report.live.void_because)}, so that times say nothing")
    _print_head(report, rival, console)
    if rows:
        _print_tenants(rows, console, is_labelled=report.is_labelled)
    folder = shlex.quote(str(log.folder))
    helped = _helped(rows)
    lines: list[_Line] = [
        *_retrained(log, report),
        *_labelled(log, report),
        *_layouts(log, report, console.width),
        *(line for _, line in helped),
    ]
    _print_lines(lines, console)
    if helped and (call := _TRIES.get(helped[0][0])):
        call = f"{program()} {call.format(f'{folder}/{CONFIG_FILE}')}"
        console.print(f"            {escape(call)}", soft_wrap=True)
    _print_lines([("[bold yellow]![/]", text) for text in _notes(log, report)], console, label_width=3)
    n_assumed = len(lines_of_assumed(report.header))
    assumed = f" ({n_assumed} figure{'s' if n_assumed > 1 else ''})" if n_assumed else ""
    options = f"--full · --by-window · --assumed{assumed} · --html FILE"
    _print_lines([("more", f"{escape(program())} report {escape(folder)} {options}")], console)


def tenants_sheet(log: ReadLog, report: Report, rival: ReadLog | None, conditions: Sequence[Condition]) -> Sheet[_Row]:
    """A row a tenant for the run's page, judged and told as in :func:`print_summary`; none without figures."""
    rival = rival if rival is not None and had_same_requests(log, rival) else None
    rows = _rows(log, report, rival, judged(report, conditions))
    return Sheet(_columns(rows, stacked=False, is_labelled=report.is_labelled) if rows else (), [rows])


def _rows(log: ReadLog, report: Report, rival: ReadLog | None, marks: Mapping[str, Judgement]) -> list[_Row]:
    is_known = all(closing.is_labelled for closing in log.settled.values())  # not so where no client asked anything
    known = accounts(log) if is_known and log.settled else {}
    waits = waits_for_others(log, known) if known else {}
    if rival is not None and rival.header.policy == "oracle":
        n = {name: len(own.arrivals) for name, own in known.items()}
        known = {name: own.with_forecast(counts_of(rival, name, "in_time", n[name])) for name, own in known.items()}
    tenants = [tenant for tenant in report.header.tenants if tenant.name in report.tenants]
    letters = tenant_letters([tenant.name for tenant in report.header.tenants])
    of_name = {tenant.name: letter for tenant, letter in zip(report.header.tenants, letters, strict=True)}
    are_firsts = all(name[:1].upper() == letter for name, letter in of_name.items())
    return [
        _Row(
            tenant=tenant,
            letter="" if are_firsts else of_name[tenant.name],
            figures=report.tenants[tenant.name],
            judged=marks.get(tenant.name),
            trend=_trend(report, tenant.name),
            account=known[tenant.name].total if tenant.name in known else None,
            waited=float(waits[tenant.name].sum()) if tenant.name in waits else 0.0,
        )
        for tenant in tenants
    ]


def _trend(report: Report, name: str) -> str:
    """A block a window, from none to all in time; empty of one window alone."""
    windows = [one.tenants[name].requests for one in report.windows if name in one.tenants]
    if len(windows) < 2:
        return ""
    groups = np.array_split(np.arange(len(windows)), min(MOST_WINDOWS, len(windows)))
    sums = [[sum(getattr(windows[n], key) for n in group) for key in ("in_time", "arrivals")] for group in groups]
    return sparkline(np.array([in_time / arrivals if arrivals else 0.0 for in_time, arrivals in sums]), 1.0)


def _print_head(report: Report, rival: ReadLog | None, console: Console) -> None:
    header, total = report.header, report.total
    policy = "" if header.policy == "migrator" else f" · policy {escape(header.policy)}"
    n = sum(not window.is_void for window in report.windows) if header.service else header.windows
    n_windows = f"{n:,} window{'s' if n != 1 else ''}{' so far' if header.service else ''} × {header.window_s:g} s"
    what = f"{what_is_simulated(header)}{escape(header.gpu)}{policy}"
    console.print(f"[bold]{escape(header.name)}[/]   {what} · {n_windows} · seed {header.seed}")
    if header.forecaster == HINDSIGHT:
        console.print(f"  forecast by {HINDSIGHT}")
    for line in unusual(header):
        console.print(f"  {line}")
    if total is None:
        console.print("  no window was settled: there are no figures yet")
        return
    requests = total.requests
    if not report.is_labelled:
        share = f"[bold]{_percent(total.expected_goodput_pct)}[/]"
        offered = f"{requests.arrivals:,} offered · {requests.refused:,} refused"
        console.print(f"  expected goodput {share} of {offered} (in time × the accuracy in force)")
        return
    answer = f"[bold]{_percent(requests.goodput_pct)}[/] of {requests.arrivals:,} requests in time and right"
    console.print(f"  {answer}{'' if rival is None else f' · {_goodput_of_rival(rival, report)}'}")


_RIVALS = {"static": "best fixed layout"}
"""What rivals are called in a word or three; others have their own names."""


def _goodput_of_rival(rival: ReadLog, report: Report) -> str:
    """Over the windows that the report has."""
    counts = [own for one in report.windows if not one.is_void for own in rival.settled[one.window].tenants.values()]
    correct, arrivals = (sum(sum(getattr(own, key)) for own in counts) for key in ("correct", "arrivals"))
    policy = rival.header.policy
    share = f"{100 * correct / arrivals:.1f} %" if arrivals else "–"
    return f"{escape(_RIVALS.get(policy, shown(policy)))} {share}"


# --- the tenants' block


def _print_tenants(rows: Sequence[_Row], console: Console, *, is_labelled: bool) -> None:
    """Print a line a tenant; what they missed below them where it does not fit; a figure a line where nothing does."""
    for has_missed, stacked in product((True, False), (False, True)):
        columns = [
            one for one in _columns(rows, stacked=stacked, is_labelled=is_labelled) if has_missed or one.name != MISSED
        ]
        table = _drawn(columns, rows)
        if console.width >= NARROW and _width(table, console) <= console.width:
            console.print(table)
            break
    else:
        grid = Table.grid()
        for row in rows:
            grid.add_row(_name(row))
            for column in _columns(rows, stacked=False, is_labelled=is_labelled)[1:]:
                grid.add_row(Padding(Text(f"{column.heading}: ").append(column.shown(row)), (0, 0, 0, 4)))
        console.print(grid)
        return
    if is_labelled and not has_missed:
        _print_missed(rows, console)


def _drawn(columns: Sequence[Column[_Row]], rows: Sequence[_Row]) -> Table:
    frame = {"box": None, "padding": (0, 2, 0, 0), "show_header": any(column.heading for column in columns)}
    return Sheet(columns, [rows], layout={"no_wrap": True}, frame=frame).drawn()


def _width(table: Table, console: Console) -> int:
    """The columns that the table needs, so that nothing is cut."""
    return console.measure(table, options=console.options.update(width=_BOUNDLESS)).maximum


def _print_missed(rows: Sequence[_Row], console: Console) -> None:
    """Print what tenants missed requests because of; of many tenants those that missed most."""
    most = len(rows) if len(rows) <= MOST_TENANTS else FEW_TENANTS
    ranked = sorted(rows, key=lambda row: -sum(n for n, _ in row.missed))[:most]
    told = [row for row in rows if row in ranked and row.missed]
    if told:
        which = f", the {len(told)} with the most" if len(told) < len(rows) > MOST_TENANTS else ""
        console.print(f"  {MISSED}{which}", style="bold")
        console.print(_drawn([_NAME, Column("", text=_missed_text, heading="", layout=WORDS)], told))


def _columns(rows: Sequence[_Row], *, stacked: bool, is_labelled: bool) -> list[Column[_Row]]:
    asked = [() if row.judged is None else tuple(map(_asked, row.judged.conditions)) for row in rows]
    by = {None if row.judged is None else row.judged.by for row in rows}
    is_one = len({*asked}) == 1 and len(asked[0]) == 1 and len(by) == 1
    metric, goal = asked[0][0] if is_one else ("", "")
    each = " a window" if by == {"floor"} else ""
    between = "\n" if stacked else " "
    heads = {name: f"{name}{between}{goal}{each}" if name == metric else name for name in ("in time", "goodput")}
    columns: list[Column[_Row]] = [
        _NAME,
        Column("SLO", text=lambda row: f"{row.tenant.slo_ms:,g} ms", heading="SLO"),
        Column("in time", text=_in_time, heading=heads["in time"], layout={"justify": "left"}),
    ]
    if not is_one and any(asked):
        columns.append(Column("asked for", text=_asked_text, heading="asked for", layout={"justify": "left"}))
    if not is_labelled:
        return [
            *columns,
            Column(
                "expected goodput",
                text=lambda row: _percent(row.figures.expected_goodput_pct),
                heading=f"expected{between}goodput",
            ),
            Column("refused", text=lambda row: f"{row.figures.requests.refused:,}", heading="refused"),
        ]
    return [
        *columns,
        Column("right", text=lambda row: _percent(row.figures.requests.accuracy_pct), heading="right"),
        Column("goodput", text=_goodput_of, heading=heads["goodput"]),
        Column(MISSED, text=_missed_text, heading=MISSED, layout={**WORDS, "no_wrap": True}),
    ]


def _name(row: _Row) -> Text:
    style = {"✓": "green", "✗": "bold red"}.get(row.mark, "")
    letter = f"{row.letter} " if row.letter else ""
    return Text("  ").append(row.mark, style=style).append(f" {letter}{printable(row.tenant.name)}")


_NAME = Column("tenant", text=_name, heading="", layout={"justify": "left"})


def _asked(condition: Condition) -> tuple[str, str]:
    """The name of the figure, and how much of it was asked for."""
    sign = {">=": "≥", "<=": "≤"}[condition.sign]
    return "goodput" if condition.metric == "goodput" else "in time", f"{sign} {100 * condition.share:.10g} %"


def _asked_text(row: _Row) -> str:
    if row.judged is None:
        return "–"
    each = " a window" if row.judged.by == "floor" else ""
    return ", ".join(f"{name} {goal}" for name, goal in map(_asked, row.judged.conditions)) + each


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def _told(row: _Row, metric: str, share_pct: float | None) -> str:
    """A share, with as many digits as tell it from what was asked for."""
    asked = [] if row.judged is None else [one.share for one in row.judged.conditions if one.metric == metric]
    if share_pct is None or not asked:
        return _percent(share_pct)
    return max((share_text(share_pct / 100, share) for share in asked), key=len)


def _in_time(row: _Row) -> str:
    share = _told(row, "slo_attainment", row.figures.requests.slo_attainment_pct)
    return f"{share} {row.trend}".rstrip()


def _goodput_of(row: _Row) -> str:
    return _told(row, "goodput", row.figures.requests.goodput_pct)


def _missed_text(row: _Row) -> str:
    """The largest causes, with their requests."""
    total = sum(n for n, _ in row.missed)
    weighty = [(n, cause) for n, cause in row.missed if n >= _LEAST_CAUSE * total][:_MOST_CAUSES]
    return " · ".join(f"{_CAUSES[cause]} {_short(n)}" for n, cause in weighty) or "–"


def _short(count: float) -> str:
    """A number of requests in few characters: 489, 3.1 k, 98 k, 1.2 M."""
    if count < 999.5:
        return f"{count:.0f}"
    if count < 999_500:
        return f"{count / 1000:.1f} k" if count < 9950 else f"{count / 1000:.0f} k"
    return f"{count / 1e6:,.1f} M"


# --- what follows the block


def _print_lines(lines: Iterable[_Line], console: Console, label_width: int = 11) -> None:
    """Print texts beside their labels; those that do not fit go on below themselves."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=label_width)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(f"  {label}", text)
    if grid.row_count:
        console.print(grid)


def _retrained(log: ReadLog, report: Report) -> Iterator[tuple[str, str]]:
    """How many windows' retrainings ended, how long after the window began, and right answers before and after."""
    trained = [tenant.name for tenant in report.header.tenants if tenant.retraining_s]
    n_windows = sum(not window.is_void for window in report.windows)
    if not trained or not n_windows:
        return
    window_s, found = log.header.window_s, new_models(log)
    ended = {name: [_whole(list(own)) for _, own in _by_window(found, name) if not own[-1].is_part] for name in trained}
    if len(trained) <= MOST_RETRAINED:
        for place, name in enumerate(trained):
            told = f": {_gain(ended[name], window_s)}" if ended[name] else ""
            yield "" if place else "retrained", f"{escape(name)} {len(ended[name])} of {n_windows}{told}"
        return
    every = [one for own in ended.values() for one in own]
    told = f": {_gain(every, window_s)}" if every else ""
    least = min(trained, key=lambda name: len(ended[name]))
    fewest = "" if len(ended[least]) == n_windows else f"; fewest: {escape(least)}, {len(ended[least])} of {n_windows}"
    yield "retrained", f"{len(every):,} of {n_windows * len(trained):,}{told}{fewest}"


def _labelled(log: ReadLog, report: Report) -> Iterator[tuple[str, str]]:
    """What clients said of answers, what was expected of these, and the accuracy that the last window began with."""
    told = [(name, own.judged) for name, own in report.tenants.items() if own.judged and own.judged[0]]
    known = known_of(log)
    for place, (name, (n, n_right)) in enumerate(told):
        in_force = known[max(known)][name].accuracy_before
        worths = [*_worths(report, name)]
        n_known = sum(n_own for n_own, _ in worths)
        expected = f"expected {sum(map(math.prod, worths)) / n_known:.1%}, " if n_known else ""
        said = f"{n_right / n:.1%} right of {n:,} answers"
        text = f"{escape(name)}: {said}; {expected}now in force {in_force:.1%}"
        yield "" if place else "labels", text


def _worths(report: Report, name: str) -> Iterator[tuple[int, float]]:
    """By window how many labels there are, and the tenant's accuracy as it was in force for answers in time."""
    for own in (window.tenants[name] for window in report.windows if name in window.tenants):
        if own.judged is not None and own.expected_goodput is not None and own.requests.in_time:
            yield own.judged[0], own.expected_goodput / own.requests.in_time


def _by_window(found: Sequence[NewModel], name: str) -> Iterator[tuple[int, list[NewModel]]]:
    own = sorted((one for one in found if one.tenant == name), key=lambda one: (one.window, one.at_s))
    for window, group in groupby(own, key=lambda one: one.window):
        yield window, list(group)


def _whole(parts: Sequence[NewModel]) -> NewModel:
    """A window's retraining, from what it began with to its end."""
    return replace(parts[-1], before=parts[0].before)


def _gain(ended: Sequence[NewModel], window_s: float) -> str:
    after_s = fmean(one.at_s - one.window * window_s for one in ended)
    before, after = (fmean(getattr(one, key) for one in ended) for key in ("before", "after"))
    return f"ready after {after_s:,.0f} s, {100 * before:.0f} → {100 * after:.0f} % right"


def _layouts(log: ReadLog, report: Report, width: int) -> Iterator[tuple[str, Text]]:
    """The layout with which each window begins, as many as fit, and how often it changed; loans change none."""
    if log.header.sharing != "instances" or report.total is None:
        return
    names = [tenant.name for tenant in log.header.tenants]
    tenures = [one for change in changes_in(log) for one in (*change.started, *change.passed)]
    changes = report.total.reconfigurations
    ending = f"  {changes:,} change{'s' if changes != 1 else ''}"
    line = Text()
    for started in log.of(WindowStarted):
        at_s = started.start_s + log.header.step_s
        held = [one for one in tenures if one.begin_s <= at_s < one.gone_s and one.tenant == one.members[0]]
        entries = [
            (log.gpu.placement(one.placement), Owner(one.tenant, Task(one.task), one.members[1:])) for one in held
        ]
        strip = layout_strip(OwnedLayout.of(entries), names, log.header.memory_slices)
        more = Text(f"w{started.window} ").append_text(strip).append(" ")
        if line and len(line) + len(more) + len(ending) + 2 > width - len("  retrained "):
            line.append("…")
            break
        line.append_text(more)
    yield "layout", line.append(ending)
    if SHARED in line.plain:
        yield "", Text(f"{SHARED} is shared by turns", style="dim")


def _helped(rows: Sequence[_Row]) -> list[tuple[str, _Line]]:
    """What most is lost to by tenants that fail, the largest first, each with a line: whose it is, what would help."""
    lost: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for row in rows:
        if row.mark == "✗" and row.judged is not None and row.account is not None:
            causes = row.missed
            if any(one.metric == "goodput" for one in row.judged.conditions):
                causes = [*causes, (row.account.wrong_old + row.account.wrong_new, "wrong")]
            if causes and all(one.sign == ">=" for one in row.judged.conditions):
                n_lost, cause = max(causes)
                lost[cause].append((n_lost, escape(row.tenant.name)))
    found: list[tuple[str, _Line]] = []
    most = _MOST_HELPS if len(rows) <= MOST_TENANTS else 1
    for cause in sorted(lost, key=lambda cause: -sum(n for n, _ in lost[cause]))[:most]:
        names = [name for _, name in sorted(lost[cause], key=itemgetter(0), reverse=True)]
        more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        told = f"{', '.join([*names[:_MOST_NAMES], *more])}: {_HELPS[cause]}"
        found.append((cause, ("" if found else "to help", told)))
    return found


def _notes(log: ReadLog, report: Report) -> list[str]:
    """What to be careful with, a line each; of many the first ones."""
    notes = list(alarms(report))
    if told := slow_plans(log):
        notes.append(escape(told))
    more = len(notes) - MOST_NOTES
    return notes if more <= 0 else [*notes[: MOST_NOTES - 1], f"and {more + 1} more: --full"]
