"""Runs on a real GPU's driver, which is the stand-in's: on its virtual clock, and in real time."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import migrator
from executor.catalogue import gpu_model
from executor.clock import WallClock
from executor.gpu import LOOK_EVERY_S, GpuInstance
from executor.journal import Journal
from executor.mig import Layout, OwnedLayout, Placement
from executor.opening import open_gpu
from executor.reconcile import Outcome, Reconciler
from executor.sim import SimGpu
from migrator.config.reading import validate_config
from migrator.config.sections import ENDLESS, Config
from migrator.errors import StoppedError
from migrator.execution.applier import Applier, Backend
from migrator.execution.changes import Change
from migrator.execution.instances import lead_s
from migrator.execution.real import RealGpu, rejoining
from migrator.execution.simulated import SimWorkers
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.log import records as recorded
from migrator.log.account import accounts
from migrator.log.changes import changes_in
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog, read_log
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL
from tests.migrator.execution.test_applier import tenant
from tests.migrator.log import records
from tests.standin.cards import A30, A100_80, H100_80, TWO_HALVES
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import READ, UNKNOWN, DriverClock, StandIn


@pytest.fixture
def standin(make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """An A100-80GB whose own clock is that of runs on it."""
    standin = make_standin(A100_80)
    monkeypatch.setattr("migrator.execution.real.WallClock", lambda start_s=0.0: DriverClock(standin, start_s))
    return standin


def driver_calls(log: ReadLog) -> list[tuple[str, str]]:
    return [(record.call, record.placement) for record in log.of(recorded.Intent)]


def plans(log: ReadLog) -> list[recorded.Plan | None]:
    return [record.plan for record in log.of(recorded.WindowStarted)]


def test_a_real_gpu_gets_the_plans_and_calls_of_the_simulated_one_by_either_backend(
    call, write_config, standin, tmp_path: Path
) -> None:
    asked = ["run", write_config({"planner.replan_every_s": 20, "planner.replan_schedules": 2})]
    assert call(*asked, "--out", "sim")[0] == 0
    sim = read_log(Path("sim"))
    assert driver_calls(sim)
    for backend in ("nvml", "smi"):
        code, out, _ = call(*asked, "--gpu", backend, "--state", tmp_path / backend, "--out", f"on {backend}")
        real = read_log(Path(f"on {backend}"))
        assert code == 0
        assert plans(real) == plans(sim)
        assert driver_calls(real) == driver_calls(sim)
        assert f"simulated requests on real MIG instances (GPU 0, by {backend})" in " ".join(out.split())
        assert standin.standing() == ()
        assert (real.header.simulated, real.header.backend, real.header.repeatable) == (True, backend, False)


LENT = {"sharing.pools": "auto", "planner.layout": ["2g.20gb", "2g.20gb", "3g.40gb"], "windows": 3}


@pytest.mark.parametrize("changes", [{}, {"planner.layout": "auto"}], ids=["listed", "auto"])
def test_with_a_layout_the_driver_is_not_called_after_the_first_one(
    call, write_config, standin, tmp_path: Path, changes: Mapping[str, Any]
) -> None:
    samples = {"tenants.0.retraining.samples": 300, "tenants.1.retraining": {"samples": 60}}
    asked = ["run", write_config({**LENT, **samples, **changes})]
    assert call(*asked, "--out", "sim")[0] == 0
    assert call(*asked, "--gpu", "nvml", "--state", tmp_path / "state", "--out", "real")[0] == 0
    sim, real = read_log(Path("sim")), read_log(Path("real"))
    assert [one.call for one in real.of(recorded.Intent)] == ["create"] * len(real.of(recorded.Intent))
    assert {entry.at_s < 0 for entry in real.entries_of(recorded.Intent)} == {True}
    assert plans(real) == plans(sim)
    loans = [loan.instance for change in real.of(recorded.Change) for loan in change.loans]
    assert loans == [one.instance for one in real.of(recorded.Finished)] != []
    assert standin.standing() == ()
    assert call("verify", "real")[0] == 0


def test_a_layout_that_others_leave_no_room_for_is_refused(call, write_config, standin, tmp_path: Path) -> None:
    standin.put("1g.10gb", 6)
    code, _, err = call("run", write_config(LENT), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    assert code == 3
    assert "layout" in err


def test_others_instances_stay_and_are_planned_around(call, write_config, standin, tmp_path: Path) -> None:
    theirs = standin.put("1g.10gb", 6)
    code, _, _ = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    assert code == 0
    assert standin.standing() == (theirs,)
    assert [record.unavailable for record in read_log(Path("run")).of(recorded.WindowStarted)] == 2 * [
        ({"memory_slices": [6], "from_step": 0},)
    ]
    assert call("verify", "run")[0] == 0


def test_adopted_instances_are_used_or_destroyed(call, write_config, standin, tmp_path: Path) -> None:
    standin.put("1g.10gb", 6)
    where = ("--gpu", "nvml", "--state", tmp_path / "state")
    assert call("run", write_config(), *where, "--adopt", "--out", "run")[0] == 0
    assert standin.standing() == ()


@pytest.mark.parametrize("adopt", [(), ("--adopt",)], ids=["others'", "adopted"])
def test_a_run_serves_in_no_part_of_a_split_instance(
    call, write_config, standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopt: tuple[str, ...]
) -> None:
    split, seen = standin.split(standin.put("7g.80gb" if adopt else "3g.40gb", 0 if adopt else 4).gi_id), list[int]()
    served = list[str]()
    hand = Applier.hand

    def handed(applier: Applier, instance: GpuInstance, *rest: Any, **named: Any) -> None:
        seen.append(max(len(item.uuids) for item in standin.standing() if item.gi_id == instance.gi_id))
        served.append(instance.uuid)
        hand(applier, instance, *rest, **named)

    monkeypatch.setattr(Applier, "hand", handed)
    code, _, _ = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run", *adopt)
    assert (code, set(seen), set(served) & set(split.uuids)) == (0, {1}, set())
    assert standin.standing() == (() if adopt else (split,))


def test_a_dry_run_prints_commands_and_changes_nothing(call, write_config, standin, tmp_path: Path) -> None:
    standin.put("1g.10gb", 6)
    n_calls = standin.state.n_calls
    where = ("--gpu", "nvml", "--state", tmp_path / "state")
    code, out, err = call("run", write_config(), *where, "--dry-run", "--adopt")
    assert (code, "warning" in err) == (0, False)
    assert all(line.startswith(("nvidia-smi mig -i 0 -", "keep ")) for line in out.splitlines())
    assert "-cgi" in out
    assert not (tmp_path / "state").exists()
    assert standin.state.n_calls == n_calls
    assert not Path("runs").exists()


def test_an_interrupted_run_takes_away_what_is_ours(call, write_config, standin, tmp_path, monkeypatch) -> None:
    theirs = standin.put("1g.10gb", 6)
    monkeypatch.setattr("migrator.views.progress.RunView.settled", interrupt)
    code, _, err = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    assert code == 130
    assert f"run --resume run --state {tmp_path / 'state'} goes on" in err
    assert "run --resume run, with --state DIR if it was begun with that" in call("report", "run")[1]
    assert standin.standing() == (theirs,)


def test_a_run_whose_folder_is_deleted_ends_and_leaves_nothing_on_the_gpu(
    call, write_config, standin, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("migrator.views.progress.RunView.settled", lambda *_: shutil.rmtree("run"))
    code, _, err = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    said = "error: run/events.jsonl: deleted, moved or replaced while the run wrote it"
    assert (code, err.splitlines()[-1]) == (1, said)
    assert (standin.standing(), Path("run").exists()) == ((), False)


def test_what_a_second_interrupt_leaves_is_told(call, write_config, standin, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("migrator.views.progress.RunView.settled", interrupt)
    monkeypatch.setattr("executor.reconcile.Reconciler.apply", interrupt)
    code, _, err = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    assert code == 130
    assert "not taken away: interrupted once more; later: " in " ".join(err.split())
    assert standin.standing() != ()


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def config(write_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Of a run that a Python program asks for, with its journal in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return migrator.load_config(write_config({"gpu.backend": "nvml"}))


@pytest.mark.parametrize(
    ("number", "ending", "code"),
    [
        (signal.SIGINT, KeyboardInterrupt, ()),
        (signal.SIGTERM, SystemExit, (143,)),
        (signal.SIGHUP, SystemExit, (129,)),
    ],
    ids=["INT", "TERM", "HUP"],
)
def test_a_signal_ends_a_program_s_run_as_it_ends_the_command_s(
    config, standin, monkeypatch, number: signal.Signals, ending: type[BaseException], code: tuple[int, ...]
) -> None:
    theirs = standin.put("1g.10gb", 6)
    monkeypatch.setattr("migrator.execution.loop.View.settled", lambda *_: signal.raise_signal(number))
    with pytest.raises(ending) as caught:
        migrator.run(config, out="run")
    assert (caught.value.args, report_of(read_log(Path("run"))).ending) == (code, "interrupted")
    assert (standin.standing(), signal.getsignal(signal.SIGTERM)) == ((theirs,), signal.SIG_DFL)


def test_a_signal_that_comes_while_a_finished_run_is_cleared_cuts_nothing_short(
    config, standin, monkeypatch, capsys
) -> None:
    apply = Reconciler.apply

    def ended(reconciler: Reconciler, target: Layout) -> Outcome:
        signal.raise_signal(signal.SIGTERM)
        return apply(reconciler, target)

    monkeypatch.setattr(Reconciler, "apply", ended)
    with pytest.raises(SystemExit):
        migrator.run(config, out="run")
    assert (standin.standing(), report_of(read_log(Path("run"))).ending) == ((), "finished")
    assert "not taken away" not in capsys.readouterr().err


def test_a_run_in_a_thread_ends_by_its_event(config, standin, monkeypatch) -> None:
    theirs, stop, ended = standin.put("1g.10gb", 6), threading.Event(), list[StoppedError]()
    monkeypatch.setattr("migrator.execution.loop.View.settled", lambda *_: stop.set())

    def run() -> None:
        with pytest.raises(StoppedError) as caught:
            migrator.run(config, out="run", stop=stop)
        ended.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert (len(ended), report_of(read_log(Path("run"))).ending) == (1, "interrupted")
    assert standin.standing() == (theirs,)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGKILL])
def test_what_another_signal_leaves_the_next_command_says(
    call, write_config, standin, tmp_path: Path, number: signal.Signals
) -> None:
    where = ("--state", str(tmp_path / "state"))
    config = write_config({"gpu.backend": "nvml"})
    command = [sys.executable, "-m", "migrator", "run", str(config), *where, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ) as process:
        while process.poll() is None and len(standin.standing()) < 2:  # the plan's first layout
            threading.Event().wait(0.01)
        process.send_signal(number)
    assert process.returncode == -number
    left = standin.standing()
    assert left
    _, listed, _ = call("gpu", "list", *where)
    said = [f"{one.profile}@{one.start} {one.gi_id} ours {one.uuids[0]}" for one in left]
    assert [" ".join(line.split()) for line in listed.splitlines() if " ours " in line] == said
    _, _, told = call("run", config, *where, "--out", "next")
    placed = ", ".join(f"{one.profile}@{one.start}" for one in left)
    assert f"ours are there already: {placed}" in " ".join(told.split())
    assert standin.standing() == ()


def cut_in(folder: Path, window: int) -> None:
    """Leave of the log what was written up to this window's last change."""
    log = read_log(folder)
    *_, last = (entry for entry in log.entries_of(recorded.Change) if entry.record.window == window)
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(lines[: last.n + 1]))


def joined(call, write_config, standin: StandIn, tmp_path: Path) -> tuple[ReadLog, ReadLog]:
    """A run of four windows, and the same cut off in window 1 and joined again."""
    where = ("--state", tmp_path / "state")
    config = write_config({"windows": 4, "window_s": 30, "tenants.0.retraining.samples": 300, "gpu.backend": "nvml"})
    assert call("run", config, *where, "--out", "whole")[0] == 0
    assert call("run", config, *where, "--out", "cut")[0] == 0
    cut_in(Path("cut"), 1)
    code, _, err = call("run", "--resume", "cut", *where)
    assert (code, standin.standing()) == (0, ())
    assert "joined at window 2; void, and in no total: 1" in err
    return read_log(Path("whole")), read_log(Path("cut"))


def test_a_run_that_was_cut_off_is_joined_at_the_next_window_and_the_torn_one_is_void(
    call, write_config, standin, tmp_path: Path
) -> None:
    whole, cut = joined(call, write_config, standin, tmp_path)
    (resumed,) = cut.of(recorded.Resumed)
    windows = report_of(cut).windows
    assert (resumed.window, resumed.void) == (2, (1,))
    assert [window.window for window in windows if window.is_void] == [1]
    assert [window.window for window in windows] == [0, 1, 2, 3]
    for window, record in cut.settled.items():
        arrivals = {name: own.arrivals for name, own in whole.settled[window].tenants.items()}
        assert {name: own.arrivals for name, own in record.tenants.items()} == arrivals


def test_what_was_in_use_when_a_run_was_cut_off_counts_no_longer(call, write_config, standin, tmp_path: Path) -> None:
    _, cut = joined(call, write_config, standin, tmp_path)
    (resumed,) = cut.entries_of(recorded.Resumed)
    before = [item for change in changes_in(cut) if change.window < resumed.record.window for item in change.started]
    assert before
    assert all(item.gone_s <= resumed.at_s for item in before)
    account = accounts(cut)["vision"]
    torn = slice(30, 60)
    assert (account.arrivals[torn].sum(), account.goodput[torn].sum()) == (0, 0)
    assert account.total.arrivals == sum(sum(own.tenants["vision"].arrivals) for own in cut.settled.values())


BEGAN = "2026-11-29T12:00:00+00:00"


def served_before(*more: Mapping[str, Any]) -> tuple[ReadLog, Setting, float]:
    """A service of windows of 10 s that was cut off in window 1, and what the wall clock showed at its second 0."""
    setting, _ = assemble(validate_config({**SMALL, "window_s": 10, "forecast": {"history_s": 10}}, "small"), "small")
    setting = replace(setting, config=setting.config.model_copy(update={"windows": ENDLESS}))
    header = records.header(10.0, "vision", "language", service=True, backend="nvml", index=0)
    begun = {**header, "at_s": -3.5, "wall": {"started_at": BEGAN}}
    return records.log_of(begun, *more), setting, datetime.fromisoformat(BEGAN).timestamp() + 3.5


STOOD = [
    {
        **records.change(0, -3.0, [records.started("x", -3.0, "3g.40gb@0", "vision")]),
        "layout": [["3g.40gb@0", "vision", "inference"], ["1g.10gb@4", "language", "retraining"]],
        "at_s": -2.0,
    },
    {
        **records.window_finished(
            0,
            vision=records.counts([1] * 10, [0] * 10, [1] * 10),
            language=records.counts([1] * 10, [0] * 10, [1] * 10),
        ),
        "at_s": 11.0,
    },
]


@pytest.mark.parametrize(("away_s", "from_s"), [(100.0, 111.0), (-500.0, 11.0)], ids=["later", "a clock set back"])
def test_a_service_goes_on_at_once_with_what_served_and_plans_the_next_window(away_s: float, from_s: float) -> None:
    stands, setting, zero_s = served_before(*STOOD)
    joins = rejoining(stands, setting, zero_s + 11.0 + away_s)
    assert joins.held is not None
    assert [(str(at), who.members) for at, who in joins.held.entries] == [("3g.40gb@0", ("vision",))]
    assert joins.from_s == pytest.approx(from_s)
    ready_s = from_s + lead_s(setting) + setting.config.ahead_steps
    assert 10 * (joins.window - 1) < ready_s <= 10 * joins.window
    assert joins.void == tuple(range(1, joins.window))


def test_a_service_that_held_nothing_yet_begins_with_a_window() -> None:
    stands, setting, zero_s = served_before()
    joins = rejoining(stands, setting, zero_s + 1.0)
    assert (joins.held, joins.void) == (None, tuple(range(joins.window)))


@pytest.mark.parametrize(
    ("card", "hint"),
    [
        (H100_80, "set gpu.model to h100-80gb"),
        (A30, "set gpu.model to a30-24gb"),
        (TWO_HALVES, "to imaginary-two-way-gpu"),
    ],
)
def test_another_card_than_the_configs_is_told(call, write_config, make_standin, tmp_path, card, hint) -> None:
    make_standin(card)
    code, _, err = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state")
    assert code == 4
    assert hint in " ".join(err.split())
    assert not Path("runs").exists()


@pytest.mark.usefixtures("standin")
def test_a_rival_is_simulated(call, write_config, tmp_path: Path) -> None:
    where = ("--gpu", "nvml", "--state", tmp_path / "state")
    code, out, _ = call("run", write_config(), *where, "--against", "static")
    assert code == 0
    assert "· best fixed layout " in out


@pytest.mark.usefixtures("standin")
def test_faults_are_the_simulated_gpus_alone(call, write_config) -> None:
    code, _, err = call("run", write_config({"simulation.driver": {"error_share": 0.1}}), "--gpu", "nvml")
    assert code == 2
    assert "faults of the simulated GPU alone" in " ".join(err.split())


def test_a_run_beside_another_manager_of_the_node_is_refused(
    call, write_config, standin, tmp_path, monkeypatch
) -> None:
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "cmdline").write_bytes(b"/usr/bin/nvidia-mig-manager")
    monkeypatch.setattr("executor.processes.PROC", tmp_path / "proc")
    where = ("--gpu", "nvml", "--state", tmp_path / "state")
    code, _, err = call("run", write_config(), *where, "--out", "run")
    assert (code, standin.standing(), Path("run").exists()) == (4, (), False)
    assert "--beside-other-managers" in err
    assert call("run", write_config(), *where, "--out", "run", "--beside-other-managers")[0] == 0


@pytest.mark.usefixtures("standin")
def test_policies_without_instances_do_not_run_on_a_real_gpu(call, write_config) -> None:
    code, _, err = call("run", write_config(), "--gpu", "smi", "--policy", "ekya")
    assert code == 2
    assert "shares the GPU without MIG instances" in " ".join(err.split())


RATE = 20
"""A wall clock that runs as many times as fast."""


@pytest.fixture
def in_real_time(make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """An A100-80GB whose calls really take their time, on a wall clock; both run fast."""
    standin = make_standin(A100_80)
    standin.state.sleep_per_mille = 1000 // RATE
    monkeypatch.setattr("migrator.execution.real.WallClock", partial(WallClock, rate=RATE))
    return standin


def layouts(log: ReadLog) -> list[object]:
    return [record.layout for record in log.of(recorded.Change)]


def test_in_real_time_the_same_layouts_stand_in_order_and_lateness_is_logged(
    call, write_config, in_real_time, tmp_path: Path
) -> None:
    config = write_config({"window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 4})
    assert call("run", config, "--out", "sim")[0] == 0
    assert call("run", config, "--gpu", "nvml", "--state", tmp_path / "state", "--out", "real")[0] == 0
    sim, real = read_log(Path("sim")), read_log(Path("real"))
    assert layouts(real) == layouts(sim)
    first = real.of(recorded.Change)[1]  # later ones may follow a retraining that ended early
    assert first.begin_s > first.planned_s
    assert in_real_time.standing() == ()


@pytest.mark.usefixtures("in_real_time")
def test_a_journal_that_cannot_be_written_ends_the_run_and_what_is_left_on_the_gpu_is_told(
    call, write_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = [], Journal._write

    def full(journal: Journal, record: Mapping[str, Any]) -> None:
        written.append(record)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(journal.path))
        write(journal, record)

    monkeypatch.setattr(Journal, "_write", full)
    code, _, err = call("run", write_config(), "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    left, said = (next(line for line in err.splitlines() if kind in line) for kind in ("not taken away", "error:"))
    assert code == 1
    assert all("jsonl: No space left on device" in line for line in (left, said))
    assert left.endswith(f"migrator gpu clear --index 0 --state {tmp_path / 'state'}")


@pytest.mark.usefixtures("in_real_time")
def test_whoever_does_not_wait_for_the_call_in_progress_is_told_what_is_left(
    call, write_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.execution.applier._DriverThread.shutdown", interrupt)
    config = write_config({"windows": 1, "window_s": 10})
    code, _, err = call("run", config, "--gpu", "nvml", "--state", tmp_path / "state", "--out", "run")
    assert code == 130
    assert "not taken away: what the run has made, if anything; later: " in " ".join(err.split())


def test_a_driver_that_falls_silent_for_a_moment_does_not_keep_our_instances(standin, tmp_path: Path) -> None:
    with open_gpu("nvml") as gpu, Journal(tmp_path / "journal") as journal:
        real = RealGpu(gpu, journal, partial(DriverClock, standin))
        Reconciler(gpu, journal, real.clock(0.0)).apply(gpu.model.layout([gpu.model.placement("1g.10gb@0")]))
        standin.fail(READ, UNKNOWN, count=1)
        real.clear()
        assert (standin.standing(), real.left) == ((), [])


class SlowGpu(SimGpu):
    """A GPU whose calls take until they are let go."""

    def __init__(self) -> None:
        super().__init__(gpu_model("a100-80gb"), WallClock())
        self.may_go_on = threading.Event()

    def create(self, placement: Placement) -> GpuInstance:
        self.may_go_on.wait()
        return super().create(placement)


def test_a_slow_call_stops_nobody() -> None:
    clock, gpu = WallClock(), SlowGpu()
    tenants = {"a": tenant("a")}
    applier = Applier(Backend(gpu, clock, SimWorkers(None, clock, tenants, 0, 60.0)), tenants, clock.now_s)
    layout = OwnedLayout.of([(gpu.model.placement("1g.10gb@0"), Owner("a", Task.INFERENCE))])
    kinds: list[str] = []

    def note(record: recorded.Record, *_: object) -> int:
        kinds.append(record.kind)
        return len(kinds)

    assert applier.apply(Change(0.0, layout, ()), 0, {}, note) is None
    assert (applier.is_busy, applier.layout.entries, kinds) == (True, (), ["intent"])
    gpu.may_go_on.set()
    outcome = None
    while outcome is None:
        clock.wait(clock.now_s + 60)  # until the driver's thread wakes it
        outcome = applier.go_on()
    applier.close()
    assert [str(item.placement) for item in outcome.started] == ["1g.10gb@0"]
    assert kinds == ["intent", "outcome"]


class TellingClock(WallClock):
    """A clock that tells whether it was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.was_woken = threading.Event()

    def wake(self) -> None:
        self.was_woken.set()


def test_the_end_of_a_look_wakes_the_loop_and_the_next_one_comes_within_a_second() -> None:
    clock, gpu = TellingClock(), SimGpu(gpu_model("a100-80gb"), WallClock())
    tenants = {"a": tenant("a")}
    applier = Applier(Backend(gpu, clock, SimWorkers(None, clock, tenants, 0, 60.0)), tenants, clock.now_s)
    while applier.resumes_s <= clock.now_s:
        applier.look()
    assert clock.was_woken.wait(10)
    applier.look()
    assert clock.now_s - 60 < applier.resumes_s <= clock.now_s + LOOK_EVERY_S
    applier.close()
