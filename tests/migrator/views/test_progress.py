from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from executor.catalogue import gpu_model
from executor.mig import OwnedLayout
from migrator.config.reading import config_yaml, validate_config
from migrator.execution.loop import Loop, View, Views
from migrator.execution.simulated import simulated_parts
from migrator.execution.windows import PlannedWindow
from migrator.inputs.assembly import assemble
from migrator.log.progress import Progress, progress_in
from migrator.log.records import Queue
from migrator.log.runlog import EVENTS_FILE, RunLog, read_log
from migrator.views.progress import GridView, ProgressFile, RunView
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import SHORT, same
from tests.migrator.views.sweeps import sweep
from workloads.serving.tally import Totals

GPU = gpu_model("a30-24gb")
CONFIG: Any = SimpleNamespace(tenants=[SimpleNamespace(name="a")], windows=2, window_s=60.0, is_endless=False)
TOTALS = Totals(arrivals=4, in_time=4, correct=3)
COUNTED: Any = SimpleNamespace(
    totals=TOTALS, open_totals={"a": TOTALS}, queues={"a": Queue(waiting=2, busy_until_s={}, batches=1)}
)


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
    view.reached(75.0, COUNTED, layout, 3)
    view.close()
    (task,) = view._progress.tasks
    assert (task.description, task.fields["goodput"]) == ("window 1 (last 1), second  15", "goodput 75.00 %")
    assert "AA" in task.fields["strip"]


def test_of_a_service_no_window_is_the_last() -> None:
    endless: Any = SimpleNamespace(**{**vars(CONFIG), "is_endless": True})
    view = RunView(endless, GPU.memory_slices, Console(file=io.StringIO(), width=140, force_terminal=True))
    view.planning(7)
    (task,) = view._progress.tasks
    assert (task.description, task.total) == ("window 7: planning", None)
    view.reached(6075.0, COUNTED, None, 3)
    view.close()
    assert task.description == "window 101, second  15"


def test_where_there_is_no_terminal_a_run_prints_only_lines_that_stay() -> None:
    console = Console(file=io.StringIO(), width=80)
    view = RunView(CONFIG, GPU.memory_slices, console)
    view.planning(0)
    view.reached(30.0, COUNTED, None, 3)
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


class Watched(ProgressFile):
    """Keeps what it has written, and what was counted then."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Progress, Totals, int]] = []

    def reached(self, now_s: float, counted: Any, layout: Any, n_records: int) -> None:
        super().reached(now_s, counted, layout, n_records)
        assert self._path is not None
        folder = self._path.parent
        if (written := progress_in(folder)) is not None:
            n_settled = sum(
                sum(own.arrivals) for one in read_log(folder).settled.values() for own in one.tenants.values()
            )
            self.seen.append((written, counted.totals, n_settled))


def run_watched(folder: Path, monkeypatch: pytest.MonkeyPatch, *views: View) -> bytes:
    monkeypatch.setattr("migrator.views.progress.PROGRESS_EVERY_S", 0.0)
    setting, traffic = assemble(validate_config(changed(SMALL, SHORT), "small"), "small")
    run = Loop(setting, simulated_parts(setting, traffic), Views(*views))
    with RunLog(folder, config_yaml(setting.config)) as log:
        run.carry_out(log)
    return (folder / EVENTS_FILE).read_bytes()


def test_open_windows_and_settled_ones_together_are_all_that_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Watched()) as watched:
        raw = run_watched(tmp_path / "run", monkeypatch, watched)
        assert (tmp_path / "run/progress.json").exists()
    assert len(watched.seen) > 10
    for progress, totals, n_settled in watched.seen:
        n_open = sum(own.in_time + own.late + own.dropped for own in progress.tenants.values())
        assert n_open + n_settled == totals.arrivals
    records = [progress.record for progress, _, _ in watched.seen]
    assert (records[0] > 0, records == sorted(records), records[-1] < raw.count(b"\n")) == (True, True, True)
    assert {(place, task) for place, _, task in watched.seen[-1][0].layout} != set()


def test_the_file_is_gone_at_the_end_and_the_log_is_that_of_a_run_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ProgressFile()) as file:
        watched = run_watched(tmp_path / "watched", monkeypatch, file)
    assert {path.name for path in (tmp_path / "watched").iterdir()} == {"config.yaml", EVENTS_FILE}
    assert same(watched) == same(run_watched(tmp_path / "alone", monkeypatch))


def test_it_is_written_once_a_second_at_most_and_a_disk_that_does_not_take_it_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        n_asked.append(1)
        raise OSError(28, "No space left on device")

    n_asked: list[int] = []
    monkeypatch.setattr("migrator.views.progress.write_whole", refuse)
    (tmp_path / EVENTS_FILE).write_bytes(b"{}\n")
    for _ in range(2):
        with closing(ProgressFile()) as file:
            file.reached(1.0, COUNTED, None, 1)  # before the log is begun
            file.begun(tmp_path)
            file.reached(1.0, COUNTED, None, 1)
            file.reached(2.0, COUNTED, None, 1)
    assert len(n_asked) == 2
