from __future__ import annotations

import io

from rich.console import Console

from migrator.views.live import GridView
from tests.migrator.views.sweeps import sweep


def test_the_bar_counts_points_after_the_configs_and_keeps_the_best() -> None:
    console = Console(file=io.StringIO(), width=140, force_terminal=True)
    outcomes = sweep("load=1,2,3").outcomes
    with GridView(3, 2, console) as view:
        for n_done in (1, 2, 3):
            view.checking(n_done, 3)
        view.checked()
        (task,) = view._progress.tasks
        assert (task.completed, task.total, task.finished) == (0, 3, False)
        for outcome in (outcomes[2], outcomes[0], outcomes[1]):
            view.planned(outcome)
    assert (task.completed, task.finished) == (3, True)
    assert task.fields["best"] == "best 50.50 % at load=3"


def test_where_there_is_no_terminal_planning_is_announced_in_one_line() -> None:
    console = Console(file=io.StringIO(), width=80)
    with GridView(1, 1, console) as view:
        view.checking(1, 1)
        view.checked()
        view.planned(sweep("load=1,2").outcomes[1])
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "planning 1 point in one process\n"
