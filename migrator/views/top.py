"""A run in a terminal while it goes on: its layout, a line a tenant, and what happened last; or a line a window."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from executor.catalogue import gpu_model
from executor.described import model_of
from executor.errors import ExecutorError
from executor.mig import GpuModel, OwnedLayout
from migrator.log.figures import RunFigures
from migrator.log.follow import FollowedLog, RunState
from migrator.log.live import rejection
from migrator.log.progress import OpenCounts, Progress
from migrator.log.records import (
    Blind,
    Change,
    Checkpoint,
    Failed,
    Finished,
    ForecastFailed,
    Interrupted,
    Judged,
    NotRevised,
    Others,
    Outcome,
    Outside,
    PlanRevised,
    Record,
    Resumed,
    RolledBack,
    RunFinished,
    ServiceStopped,
    TenantsChanged,
    WindowFinished,
    WindowStarted,
)
from migrator.terminal.console import counted, printable
from migrator.views.strips import COLOURS, layout_strip, tenant_letters
from planner.problem import Owner, Task

KEPT = 200
"""So many happenings are kept, of which as many are shown as there is room for."""

_NUMBERS = 35
"""Columns of a tenant's line behind its name."""

_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class _Row:
    """A tenant's line: requests, and shares of them, NaN where there are none or nobody knows."""

    name: str
    arrivals: int
    waiting: int | None
    in_time: float
    right: float
    promised: float


class RunTop:
    """What is shown of a run whose log is followed."""

    def __init__(self, followed: FollowedLog) -> None:
        self._followed, self._figures = followed, RunFigures()
        self._happened = deque[tuple[float, str]](maxlen=KEPT)
        self._progress: Progress | None = None
        self._window: int | None = None
        self._settled: int | None = None
        self._at_s = 0.0
        self.state = RunState.LEFT

    def look(self) -> list[str]:
        """Take what is new in the log; a line for each window that has been settled since."""
        news, lines = self._followed.read(), list[str]()
        for entry in news.entries:
            self._figures.take(entry)
            self._at_s = entry.at_s
            in_words = _WORDS.get(type(entry.record))
            if in_words is not None and (words := in_words(entry.record)) is not None:
                self._happened.append((entry.at_s, printable(words)))
            match entry.record:
                case WindowStarted(window=window):
                    self._window = window
                case WindowFinished(window=window):
                    self._settled = window
                    lines.append(f"window {window}: {'; '.join(self._shares())}")
                case _:
                    pass
        self.state, self._progress = news.state, news.progress
        return lines

    @property
    def heading(self) -> str:
        """The run, how far it is, and its state."""
        header = self._figures.header
        if header is None:
            return "no record yet"
        now_s = self._at_s if self._progress is None else self._progress.served_s
        where = "not begun" if self._window is None else f"window {self._window}, second {now_s:,.0f}"
        how = self._followed.damage or self.state.value
        return printable(f"{header.name}: {where}, {how}")

    def screen(self, width: int, height: int) -> Group:
        """All of it, in so many columns and lines."""
        rows = list(self._rows())
        parts: list[Text | Table] = [_cut(Text(self.heading, style="bold"), width)]
        if (strip := self._strip()) is not None:
            parts.append(_cut(strip, width))
        parts.append(_cut(Text(self._whose, style="dim"), width))
        parts.append(_table(rows, width))
        room = max(0, height - len(parts) - len(rows))
        for at_s, words in list(self._happened)[-room:] if room else ():
            parts.append(_cut(Text(f"{at_s:8,.0f} s  {words}", style="dim"), width))
        return Group(*parts)

    @property
    def _whose(self) -> str:
        """Whose figures are shown."""
        if self._progress is not None:
            return "requests of windows that are not settled; shares in %"
        if self._settled is None:
            return "no window is settled yet"
        return f"requests of window {self._settled}; shares in %"

    def _rows(self) -> Iterator[_Row]:
        open_ = {} if self._progress is None else self._progress.tenants
        for name, own in self._figures.tenants.items():
            if self._progress is None:
                shares = own.in_time_ratio, own.goodput_ratio, own.promised_ratio
                yield _Row(name, own.arrivals, None, *shares)
            elif name in open_:
                yield _row(name, open_[name], self._figures.promised_ratio(name))

    def _shares(self) -> Iterator[str]:
        """The last window's outcome, by tenant, in words."""
        for name, own in self._figures.tenants.items():
            known = [(own.in_time_ratio, "in time"), (own.goodput_ratio, "right"), (own.promised_ratio, "promised")]
            shares = [f"{100 * share:.1f} % {what}" for share, what in known if not math.isnan(share)]
            yield f"{printable(name)} {', '.join([counted(own.arrivals, 'request'), *shares])}"

    def _strip(self) -> Text | None:
        """The layout; none where there are no instances, or the log names a GPU that is unknown here."""
        gpu, layout = self._gpu, self._figures.layout if self._progress is None else self._progress.layout
        if gpu is None or not layout or self._figures.has_ended:
            return None
        held, names = [], dict.fromkeys(self._figures.tenants)
        for place, holder, task in layout:
            first, *others = (holder,) if isinstance(holder, str) else holder
            names |= dict.fromkeys((first, *others))
            try:
                held.append((gpu.placement(place), Owner(first, Task(task), tuple(others))))
            except (ExecutorError, ValueError):
                return None
        return layout_strip(OwnedLayout.of(held), [*names], gpu.memory_slices)

    @property
    def _gpu(self) -> GpuModel | None:
        header = self._figures.header
        try:
            return None if header is None else gpu_model(header.gpu) if header.card is None else model_of(header.card)
        except ExecutorError:
            return None


def _row(name: str, counts: OpenCounts, promised: float) -> _Row:
    arrivals = counts.resolved
    right = math.nan if counts.right is None or not arrivals else counts.right / arrivals
    return _Row(name, arrivals, counts.waiting, counts.in_time / arrivals if arrivals else math.nan, right, promised)


def _table(rows: list[_Row], width: int) -> Table:
    """A line a tenant: a name that is too long for the terminal is cut."""
    longest = max((len(printable(row.name)) for row in rows), default=0)
    name_width = max(1, min(longest + 2, _LONGEST_NAME, width - _NUMBERS))
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, header_style="dim")
    table.add_column("", width=name_width, no_wrap=True, overflow="ellipsis")
    for name, columns in (("came", 7), ("wait", 6), ("in time", 7), ("right", 5), ("plan", 5)):
        table.add_column(name, width=columns, justify="right", no_wrap=True, overflow="ellipsis")
    for number, (letter, row) in enumerate(zip(tenant_letters([row.name for row in rows]), rows, strict=True)):
        shown = Text(f"{letter} {printable(row.name)}", style=COLOURS[number % len(COLOURS)])
        waiting = "–" if row.waiting is None else _number(row.waiting)
        shares = ("–" if math.isnan(one) else f"{100 * one:.1f}" for one in (row.in_time, row.right, row.promised))
        table.add_row(shown, _number(row.arrivals), waiting, *shares)
    return table


def _number(n: int) -> str:
    """In six characters, up to a billion."""
    return str(n) if n < 10**6 else f"{n / 1e6:.1f}M"


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _of_others(others: Others) -> str:
    return f"others: {len(others.gone)} of ours gone, {len(others.came)} of theirs came, {len(others.left)} left"


def _right(what: str, finished: Finished) -> str:
    if finished.rejected is not None:
        return f"{finished.tenant}: retraining rejected, {rejection(finished)}"
    return f"{finished.tenant}: {what}, {100 * finished.accuracy:.1f} % right from now on"


_WORDS: Mapping[type[Record], Callable[[Any], str | None]] = {
    WindowStarted: lambda one: f"window {one.window} begins",
    WindowFinished: lambda one: f"window {one.window} is settled",
    PlanRevised: lambda one: f"planned anew: {one.reason}",
    NotRevised: lambda one: f"no other plan: {one.reason}",
    RolledBack: lambda one: f"{one.tenant}: {one.version} answers again, in place of {one.before}",
    Judged: lambda one: f"{one.tenant}: clients call {one.right} of {one.labels} answers right",
    ForecastFailed: lambda one: f"forecast by {one.forecaster} failed: {one.reason}",
    Resumed: lambda one: f"joined again at window {one.window}",
    Outside: lambda one: f"before window {one.window}: {sum(own.arrivals for own in one.tenants.values()):,} requests",
    TenantsChanged: lambda one: f"tenants now: {', '.join(tenant.name for tenant in one.tenants)}",
    Outcome: lambda one: None if one.error is None else f"the driver refused: {one.error}",
    Change: lambda one: f"layout changed: {len(one.started)} started, {len(one.stopped)} stopped",
    Others: _of_others,
    Blind: lambda one: f"{'blind' if one.to_s is None else 'seen again'}: {one.reason}",
    Failed: lambda one: f"{one.tenant}: {one.task} failed: {one.reason}",
    Finished: partial(_right, "retraining ended"),
    Checkpoint: partial(_right, "checkpoint"),
    Interrupted: lambda one: "interrupted" if one.reason is None else f"interrupted: {one.reason}",
    RunFinished: lambda _: "finished",
    ServiceStopped: lambda _: "stopped",
}
"""What happened, by kind of record, in a line; what is no news has none."""
