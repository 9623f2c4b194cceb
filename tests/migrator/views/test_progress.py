from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from executor.catalogue import gpu_model
from executor.mig import OwnedLayout
from migrator.execution.windows import PlannedWindow
from migrator.views.progress import GridView, RunView
from planner.problem import Owner, Task
from tests.migrator.views.sweeps import sweep
from workloads.serving.tally import Totals

GPU = gpu_model("a30-24gb")
CONFIG: Any = SimpleNamespace(tenants=[SimpleNamespace(name="a")], windows=2, window_s=60.0)
TOTALS = Totals(arrivals=4, in_time=4, correct=3)


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


def test_in_a_terminal_a_run_has_a_line_with_window_second_layout_and_goodput() -> None:
    view = RunView(CONFIG, GPU.memory_slices, Console(file=io.StringIO(), width=140, force_terminal=True))
    layout = OwnedLayout.of([(GPU.placement("2g.12gb@0"), Owner("a", Task.INFERENCE))])
    view.reached(75.0, TOTALS, layout)
    view.close()
    (task,) = view._progress.tasks
    assert (task.description, task.fields["goodput"]) == ("window 1 (last 1), second  15", "goodput 75.00 %")
    assert "AA" in task.fields["strip"]


def test_where_there_is_no_terminal_a_run_prints_only_lines_that_stay() -> None:
    console = Console(file=io.StringIO(), width=80)
    view = RunView(CONFIG, GPU.memory_slices, console)
    view.planning(0)
    view.reached(30.0, TOTALS, None)
    view.settled(0, TOTALS)
    view.close()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "window 0: goodput 75.00 % of 4 requests\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_a_run_tells_windows_in_their_order_and_new_plans_of_the_rest_only_if_asked(verbose: bool) -> None:
    console = Console(file=io.StringIO(), width=80)
    view = RunView(CONFIG, GPU.memory_slices, console, verbose=verbose)
    planned = [
        SimpleNamespace(window=window, plan=SimpleNamespace(infeasibility=None), verification=None) for window in (0, 1)
    ]
    for one in planned:  # the second one is planned ahead
        view.planned(cast("PlannedWindow", one))
    view.revised(cast("PlannedWindow", planned[0]), "10 s after the last plan")
    view.settled(0, TOTALS)
    view.settled(1, TOTALS)
    view.close()
    assert isinstance(console.file, io.StringIO)
    told = [line.partition(": ")[0] for line in console.file.getvalue().splitlines()]
    again = ["window 0, 10 s after the last plan"] if verbose else []
    assert told == ["window 0", *again, "window 0", "window 1", "window 1"]
