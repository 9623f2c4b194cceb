"""Progress of a run, and of a grid of plans: a live line in a terminal, plain lines anywhere else, and a file."""

from __future__ import annotations

import time
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Self

from rich import progress
from rich.console import Console

from executor.files import open_input, write_whole
from executor.mig import OwnedLayout
from migrator.config.sections import Config
from migrator.execution.events import held
from migrator.execution.loop import View
from migrator.execution.seams import Counted
from migrator.execution.windows import PlannedWindow
from migrator.log.progress import OpenCounts, Progress
from migrator.log.runlog import EVENTS_FILE, PROGRESS_FILE, identity_of
from migrator.log.trouble import BlindSpan
from migrator.terminal.console import counted, escape
from migrator.views.sentences import floors_in_words
from migrator.views.strips import layout_strip
from migrator.whatif.grid import point_text
from migrator.whatif.sweep import PointOutcome, best_of
from planner.problem import Owner
from workloads.serving.tally import Totals

PROGRESS_EVERY_S = 1.0
"""Of the wall clock: how often ``progress.json`` is written."""


def moving_line(console: Console, *columns: progress.ProgressColumn) -> progress.Progress:
    """A description, a bar and these columns, in a terminal alone, and only until they are stopped."""
    first = (progress.TextColumn("{task.description}"), progress.BarColumn(bar_width=20))
    return progress.Progress(*first, *columns, console=console, transient=True, disable=not console.is_terminal)


class RunView(View):
    """A run's progress: two lines a window and, in a terminal, a line that moves. Close it to remove that line.

    A window's plan is printed after the window before, though it is made earlier. New plans of a window's rest are
    told only with ``verbose``. Of a run that is resumed, windows whose plan (``n_planned``) or end (``n_settled``)
    stands in the log are not news.
    """

    def __init__(
        self,
        config: Config,
        memory_slices: int,
        console: Console,
        n_planned: int = 0,
        n_settled: int = 0,
        *,
        verbose: bool = False,
    ) -> None:
        self._n_planned, self._n_settled, self._verbose = n_planned, n_settled, verbose
        self._n_told = n_settled
        self._waiting: dict[int, list[str]] = {}  # lines of windows before whose predecessor's end they came
        self._names = [tenant.name for tenant in config.tenants]
        self._memory_slices = memory_slices
        self._n_windows = None if config.is_endless else config.windows
        self._window_s = config.window_s
        self._console = console
        fields = (progress.TextColumn("{task.fields[strip]}"), progress.TextColumn("{task.fields[goodput]}"))
        self._progress = moving_line(console, progress.TaskProgressColumn(), *fields, progress.TimeElapsedColumn())
        self._task = self._progress.add_task("starting", total=self._total_s, strip="", goodput="")
        self._progress.start()

    def planning(self, window: int) -> None:
        """Show that the solver works."""
        doing = "again" if window < self._n_planned else "planning"
        self._progress.update(self._task, description=f"{self._of(window)}: {doing}")

    def planned(self, planned: PlannedWindow) -> None:
        """Print what the plan promises."""
        if planned.window >= self._n_planned:
            self._tell_plan(planned.window, f"window {planned.window}: {_promise(planned)}")

    def revised(self, planned: PlannedWindow, reason: str) -> None:
        """Print why there is a new plan, and what it promises."""
        # The log may have been cut off in the last of those windows.
        if self._verbose and planned.window >= self._n_planned - 1:
            self._tell_plan(planned.window, f"window {planned.window}, {escape(reason)}: {_promise(planned)}")

    def _tell_plan(self, window: int, line: str) -> None:
        self._waiting.setdefault(window, []).append(line)
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        """Print what waits for no window's end any more; a service may have left some out."""
        for window in sorted(one for one in self._waiting if self._n_windows is None or one <= self._n_told):
            for line in self._waiting.pop(window):
                self._print(line, style="dim")

    def blind(self, seen: BlindSpan) -> None:
        """Print that the driver does not answer, or which seconds have unknown GPU state."""
        self._print(f"[bold red]blind[/]: {escape(str(seen))}")

    def reached(self, now_s: float, counted: Counted, layout: OwnedLayout[Owner] | None, n_records: int) -> None:
        """Move the line: window, second, its goodput, and the strip of the layout, if there is one."""
        del n_records
        window = int(min(now_s // self._window_s, inf if self._n_windows is None else self._n_windows - 1))
        second = now_s - window * self._window_s
        for _, owner in () if layout is None else layout.entries:
            self._names += [name for name in owner.members if name not in self._names]  # who has come
        strip = "" if layout is None else layout_strip(layout, self._names, self._memory_slices).markup
        self._progress.update(
            self._task,
            completed=now_s,
            description=f"{self._of(window)}, second {second:3,.0f}",
            strip=strip,
            goodput=f"goodput {_goodput(counted.totals)}",
        )

    def settled(self, window: int, totals: Totals) -> None:
        """Print the window's goodput."""
        if window >= self._n_settled:
            self._print(f"window {window}: goodput {_goodput(totals)} of {totals.arrivals:,} requests")
        self._n_told = max(self._n_told, window + 1)
        self._tell_waiting()

    def close(self) -> None:
        """Remove the line that moves, and print what still waits."""
        self._progress.stop()
        self._n_told = max(self._waiting, default=0)
        self._tell_waiting()

    @property
    def _total_s(self) -> float | None:
        return None if self._n_windows is None else self._n_windows * self._window_s

    def _of(self, window: int) -> str:
        """Which window of how many."""
        return f"window {window}" if self._n_windows is None else f"window {window} (last {self._n_windows - 1})"

    def _print(self, line: str, style: str | None = None) -> None:
        self._console.print(line, style=style, soft_wrap=not self._console.is_terminal)


def _goodput(totals: Totals) -> str:
    return "–" if totals.goodput_pct is None else f"{totals.goodput_pct:.2f} %"


def _promise(planned: PlannedWindow) -> str:
    plan = planned.plan
    if planned.verification is None:
        reason = str(plan.infeasibility or "none within the budget")
        return f"no plan: {escape(reason)}; the old layout stays"
    if planned.rejected is not None:
        instead = "the old layout stays" if planned.problem.initial else "one fixed layout is held instead"
        return f"the plan breaks a rule ({escape(str(planned.verification.broken_rules[0]))}); {instead}"
    most = planned.problem.most_goodput
    share = ""
    if plan.expected_goodput is not None and most > 0:
        begin = planned.plan_from_step * planned.problem.step_s
        since = f" from second {begin:,g} on" if begin else ""
        share = f": {100 * plan.expected_goodput / most:.2f} % expected goodput{since}"
    gaps = "" if plan.gap is None else f", {_within('proven', plan.gap)}, {_within('claimed', plan.claimed_gap)}"
    told = floors_in_words(plan.missed, plan.floor_costs, plan.keeping_costs)
    floors = "" if told is None else f"; {escape(told)}"
    return f"planned in {plan.solve_s:.1f} s{share}{gaps}{floors}"


def _within(word: str, gap: float | None) -> str:
    """How far the plan is from the best at most, by its certificate or by its engine's word."""
    return f"nothing {word}" if gap is None else f"{word} within {100 * gap:.2f} % of the best"


class ProgressFile(View):
    """Keeps ``progress.json`` in the folder of a run that goes on; close it to remove that.

    A disk that does not take it ends no run: whoever reads it sees that it is old.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._identity, self._written_s = "", -inf

    def begun(self, folder: Path) -> None:
        """See which log it belongs to."""
        self._path = folder / PROGRESS_FILE
        with open_input(folder / EVENTS_FILE) as log:
            self._identity = identity_of(log.readline())

    def reached(self, now_s: float, counted: Counted, layout: OwnedLayout[Owner] | None, n_records: int) -> None:
        """Write it anew, once a second at most."""
        if self._path is None or time.monotonic() - self._written_s < PROGRESS_EVERY_S:
            return
        queues, totals = counted.queues, counted.open_totals
        progress = Progress(
            log=self._identity,
            record=n_records - 1,
            wall_s=time.time(),
            served_s=float(now_s),
            tenants={name: _open_counts(own, queues[name].waiting) for name, own in totals.items() if name in queues},
            layout=() if layout is None else held(layout),
        )
        with suppress(OSError):
            write_whole(self._path, progress.as_json, waits=False)
        self._written_s = time.monotonic()

    def close(self) -> None:
        """Remove it: the log says all."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def _open_counts(totals: Totals, n_waiting: int) -> OpenCounts:
    return OpenCounts(
        in_time=totals.in_time,
        late=totals.late,
        dropped=totals.dropped - totals.refused - totals.failed,
        refused=totals.refused,
        failed=totals.failed,
        right=totals.goodput,
        waiting=n_waiting,
    )


class GridView:
    """A bar with the best point found. Use it as a context, so that it is removed whatever happens."""

    def __init__(self, n_points: int, n_processes: int, console: Console) -> None:
        self._best: PointOutcome | None = None
        best = progress.TextColumn("{task.fields[best]}")
        done = progress.TextColumn("{task.completed:,}/{task.total:,}")
        self._progress = moving_line(console, done, progress.TimeElapsedColumn(), best)
        self._console = console
        self._n_points, self._n_processes = n_points, n_processes
        self._task = self._progress.add_task("checking", total=n_points, best="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def checking(self, n_done: int, n_configs: int) -> None:
        """Show how many of the grid's configs have been checked."""
        self._progress.update(self._task, description="checking", completed=n_done, total=n_configs)

    def checked(self) -> None:
        """Show that planning begins."""
        self._progress.reset(self._task, description="planning", total=self._n_points)
        if not self._console.is_terminal:
            where = "one process" if self._n_processes == 1 else f"{self._n_processes} processes"
            self._console.print(f"planning {counted(self._n_points, 'point')} in {where}", soft_wrap=True)

    def planned(self, outcome: PointOutcome) -> None:
        """Move on by one point."""
        self._best = best_of(item for item in (self._best, outcome) if item is not None)
        self._progress.update(self._task, advance=1, best=_best_text(self._best))


def _best_text(best: PointOutcome | None) -> str:
    return "" if best is None else f"best {best.goodput_pct:.2f} % at {escape(point_text(best.point))}"
