"""Watching a grid being planned: a bar with the best so far in a terminal, one line anywhere else."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from migrator.whatif.grid import shown_point
from migrator.whatif.sweep import Outcome, best_of


class GridView:
    """A bar that moves; use it as a context, so that it goes away whatever happens."""

    def __init__(self, n_points: int, n_processes: int, console: Console) -> None:
        self._best: Outcome | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[best]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._console = console
        self._n_points, self._n_processes = n_points, n_processes
        self._task = self._progress.add_task("checking", total=n_points, best="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def checking(self, n_done: int, n_configs: int) -> None:
        """Say how many of the grid's configs have been looked over."""
        self._progress.update(self._task, description="checking", completed=n_done, total=n_configs)

    def checked(self) -> None:
        """Say that planning begins."""
        self._progress.reset(self._task, description="planning", total=self._n_points)
        if not self._console.is_terminal:
            points = "1 point" if self._n_points == 1 else f"{self._n_points} points"
            where = "one process" if self._n_processes == 1 else f"{self._n_processes} processes"
            self._console.print(f"planning {points} in {where}", soft_wrap=True)

    def planned(self, outcome: Outcome) -> None:
        """Move on by one point."""
        self._best = best_of(item for item in (self._best, outcome) if item is not None)
        self._progress.update(self._task, advance=1, best=_shown_best(self._best))


def _shown_best(best: Outcome | None) -> str:
    return "" if best is None else f"best {best.goodput_pct:.2f} % at {escape(shown_point(best.point))}"
