"""``migrator doctor`` sees what is wrong, says what to do, and touches nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from executor import processes
from executor.catalogue import gpu_model
from executor.cpu.shares import NoSharesError
from executor.extras import install
from executor.journal import Journal
from executor.mig import Layout
from migrator.commands import doctor
from migrator.commands.doctor import Finding
from tests.standin.cards import A30, A100_40, TWO_HALVES
from tests.standin.fixtures import MakeStandIn
from tests.standin.mps import MpsStandIn
from tests.standin.standin import NO_PERMISSION, PROCESSES, StandIn

UUID = "GPU-00000000-0000-4000-8000-000000000000"
"""Of the stand-in's first GPU."""


@pytest.fixture(autouse=True)
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing else runs, and a user without a past."""
    folder = tmp_path / "proc"
    folder.mkdir()
    monkeypatch.setattr(processes, "PROC", folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def start(proc: Path, pid: int, command: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cmdline").write_bytes(command.replace(" ", "\0").encode())


@pytest.fixture
def a100(make_standin: MakeStandIn) -> StandIn:
    return make_standin(A100_40)


@pytest.fixture
def seen(call) -> Callable[..., tuple[int, list[Finding]]]:
    def look(*options: str) -> tuple[int, list[Finding]]:
        code, out, err = call("doctor", "--json", *options)
        assert err == ""
        answer = json.loads(out)
        assert answer["can_run"] is (code == 0)
        return code, [Finding(**check) for check in answer["checks"]]

    return look


def about(found: list[Finding], what: str, level: str) -> list[str]:
    return [f"{item.said}; {item.advice}" for item in found if (item.about, item.level) == (what, level)]


@pytest.mark.usefixtures("a100")
def test_where_nothing_is_wrong_a_run_could_work(call, seen) -> None:
    code, found = seen()
    assert code == 0
    assert about(found, "driver", "ok") == ["580.65.06, 1 GPU, by NVML and nvidia-smi; "]
    assert {item.level for item in found} <= {"ok", "note"}
    assert call("doctor")[1].endswith("A real run could work here.\n")


@pytest.mark.parametrize("backend", ["auto", "smi"])
def test_a_corrupted_inforom_is_a_warning(a100: StandIn, seen, backend: str) -> None:
    a100.state.gpus[0].inforom_corrupted = 1
    code, found = seen("--backend", backend)
    (warned,) = about(found, "nvidia-smi", "warning")
    assert (code, warned.startswith("WARNING: infoROM is corrupted at gpu 00000000:01:00.0; ")) == (0, True)


def test_processes_that_the_driver_does_not_tell_are_a_warning(a100: StandIn, seen) -> None:
    a100.put("1g.5gb", 0)
    a100.fail(PROCESSES, NO_PERMISSION, per_mille=1000)
    code, found = seen()
    assert (code, len([said for said in about(found, "GPU 0", "warning") if "processes unknown" in said])) == (0, 1)


def test_it_tells_whether_an_instance_takes_the_processes_of_a_pool(a100: StandIn, seen) -> None:
    assert [said for said in about(seen()[1], "GPU 0", "ok") if "several processes" in said]
    a100.state.gpus[0].compute_mode = 3
    code, found = seen()
    (said,) = (said for said in about(found, "GPU 0", "note") if "one process alone" in said)
    assert (code, said.endswith("as root: nvidia-smi -i 0 -c DEFAULT")) == (0, True)


def test_without_a_driver_everything_else_is_told(seen, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        from executor.errors import NoGpuError

        raise NoGpuError("no driver")

    monkeypatch.setattr(doctor, "driver_facts", refuse)
    code, found = seen()
    assert code == 4
    assert {item.about for item in found if item.level == "problem"} == {"NVML"}
    assert {"permission", "node", "state", "highs", "cbc", "gurobi", "extra plot"} <= {item.about for item in found}


@pytest.mark.usefixtures("a100")
def test_the_command_is_needed_by_the_backend_that_changes_by_it_alone(seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, found = seen()
    assert code == 0
    assert about(found, "nvidia-smi", "warning")[0].endswith("NVML is enough")
    code, found = seen("--backend", "smi")
    assert code == 4
    assert about(found, "nvidia-smi", "problem")[0].startswith("there is no nvidia-smi on this machine")
    assert not [item for item in seen("--backend", "nvml")[1] if item.about == "nvidia-smi"]


@pytest.mark.usefixtures("a100")
@pytest.mark.parametrize(
    ("version", "expected"), [("12.560.30", "is 12.560.30, which does not know"), (None, "absent")]
)
def test_nvmls_module_has_to_be_new_enough(seen, monkeypatch, version: str | None, expected: str) -> None:
    def installed(_: str) -> str:
        if version is None:
            raise doctor.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(doctor.metadata, "version", installed)
    code, found = seen("--backend", "smi")
    assert code == 4
    (line,) = about(found, "NVML", "problem")
    assert expected in line
    assert line.endswith("pip install 'nvidia-ml-py>=12.570'; ")


@pytest.mark.usefixtures("a100")
def test_two_drivers_are_a_problem(seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pynvml.nvmlSystemGetDriverVersion", lambda: "570.1")
    code, found = seen()
    assert code == 4
    assert about(found, "driver", "problem")[0].startswith("570.1 by NVML, 580.65.06 by nvidia-smi")


def test_without_a_gpu_in_mig_mode_only_mps_could_share_one(
    a100: StandIn, seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    a100.state.gpus[0].mig_current = 0
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    code, found = seen()
    assert code == 0
    assert "only from its next reset on" in about(found, "GPU 0", "warning")[0]
    assert about(found, "GPUs", "warning") == ["none can be cut by MIG; by MPS a run could work, see below"]
    assert "GPU 0 can be shared, as mps-a100-40gb-in-7: run --gpu mps --set gpu.model=mps-a100-40gb-in-7; " in about(
        found, "MPS shares", "ok"
    )
    assert about(found, "permission", "note")
    for way in ("--backend=nvml", "without the command"):
        if way == "without the command":
            monkeypatch.setenv("PATH", "/nowhere")
        code, found = seen(*[way] * way.startswith("--"))
        assert code == 4
        assert about(found, "GPUs", "problem") == ["there is none to run on; see above"]
        assert about(found, "permission", "problem")


def test_one_gpu_in_mig_mode_is_enough(make_standin: MakeStandIn, seen) -> None:
    make_standin(A100_40, A30).state.gpus[0].mig_current = 0
    assert seen()[0] == 0


def test_mig_mode_that_will_end_is_told(a100: StandIn, seen) -> None:
    a100.state.gpus[0].mig_pending = 0
    assert about(seen()[1], "GPU 0", "warning") == ["its MIG mode ends with the next reset; nvidia-smi -i 0 -mig 1"]


def test_a_driver_that_refuses_this_user_is_told(a100: StandIn, seen) -> None:
    a100.state.permitted = 0
    code, found = seen()
    assert code == 4
    assert "Insufficient Permissions; run as root" in about(found, "GPU 0", "warning")[0]


@pytest.mark.usefixtures("a100")
@pytest.mark.parametrize("can_read", [True, False])
def test_a_user_needs_read_access_to_the_capability(seen, proc: Path, monkeypatch, can_read: bool) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    if can_read:
        config = proc / "driver" / "nvidia" / "capabilities" / "mig" / "config"
        config.parent.mkdir(parents=True)
        config.touch()
    code, found = seen()
    assert code == (0 if can_read else 4)
    assert len(about(found, "permission", "ok" if can_read else "problem")) == 1


def test_what_stands_is_ours_or_others(call, a100: StandIn, seen) -> None:
    call("gpu", "apply", "1g.5gb@0")
    mine = a100.standing()[0]
    theirs = a100.put("1g.5gb", 6)
    found = seen()[1]
    assert f"ours: 1g.5gb@0 (GPU instance ID {mine.gi_id}); " in about(found, "GPU 0", "ok")
    assert about(found, "GPU 0", "warning")[0].startswith(
        f"others': 1g.5gb@6 (GPU instance ID {theirs.gi_id}); they stay"
    )


def test_an_instance_of_ours_that_is_held_is_told_with_its_holder(call, a100: StandIn, seen, proc: Path) -> None:
    start(proc, 41, "python train.py")
    call("gpu", "apply", "1g.5gb@0")
    a100.attach(a100.standing()[0].gi_id, 41)
    assert about(seen()[1], "GPU 0", "warning") == [
        "1g.5gb@0 is held by 41 (python train.py); it cannot be destroyed before they end"
    ]


def test_a_half_instance_is_told(a100: StandIn, seen) -> None:
    a100.put("1g.5gb", 6, with_ci=False)
    assert any("has no compute instance" in line for line in about(seen()[1], "GPU 0", "warning"))


def test_a_layout_that_was_lost_can_be_restored(call, a100: StandIn, seen) -> None:
    call("gpu", "apply", "1g.5gb@0")
    a100.reboot()
    (line,) = about(seen()[1], "GPU 0", "warning")
    assert line == "last asked for: 1g.5gb@0, which is not what we have there; migrator gpu restore -i 0"


@pytest.mark.usefixtures("a100")
def test_a_card_as_catalogued_has_no_notes_on_it(seen) -> None:
    assert about(seen()[1], "GPU 0", "note") == []


def test_a_card_that_nobody_knows_is_noted(make_standin: MakeStandIn, seen) -> None:
    make_standin(TWO_HALVES)
    code, found = seen()
    assert code == 0
    assert "Imaginary two-way GPU is not in the catalogue" in about(found, "GPU 0", "note")[0]


@pytest.mark.usefixtures("a100")
def test_another_manager_is_a_problem_and_a_usual_holder_a_warning(seen, proc: Path) -> None:
    start(proc, 7, "/usr/bin/nvidia-mig-manager")
    start(proc, 8, "nv-hostengine -n")
    code, found = seen()
    assert code == 4
    assert len(about(found, "node", "problem")) == len(about(found, "node", "warning")) == 1


@pytest.mark.usefixtures("a100")
def test_whoever_has_the_drivers_devices_open_is_noted_once(seen, proc: Path) -> None:
    for pid, command in ((7, "nv-hostengine -n"), (8, "python train.py")):
        start(proc, pid, command)
        (proc / str(pid) / "fd").mkdir()
        (proc / str(pid) / "fd" / "3").symlink_to("/dev/nvidia0")
    assert about(seen()[1], "node", "note") == ["process 8 (python train.py) has devices of NVIDIA's driver open; "]


@pytest.mark.usefixtures("a100")
def test_another_controller_is_a_problem(seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROC", Path("/proc"))
    with Journal(tmp_path / "state" / "migrator" / f"{UUID}.jsonl"):
        code, found = seen()
    assert code == 4
    assert about(found, "GPU 0", "problem")[0].startswith("another controller has it: process ")


@pytest.mark.usefixtures("a100")
def test_a_journal_that_is_not_ours_is_a_problem(seen, tmp_path: Path) -> None:
    (tmp_path / f"{UUID}.jsonl").write_text("no json\n")
    code, found = seen("--state", str(tmp_path))
    assert code == 4
    assert "line 1: not a record of ours" in about(found, "GPU 0", "problem")[0]


@pytest.mark.usefixtures("a100")
def test_a_folder_that_cannot_be_written_is_a_problem(seen, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, found = seen("--state", str(tmp_path / "file" / "below"))
    assert code == 4
    assert about(found, "state", "problem")[0].endswith("cannot be written; choose another folder: --state DIR")


def with_shares(monkeypatch: pytest.MonkeyPatch, **ways: Callable[[str], SimpleNamespace]) -> list[Finding]:
    monkeypatch.setattr(doctor, "ways", lambda _: ways)
    return list(doctor._cpu_shares(None))


def no_shares(_: str) -> SimpleNamespace:
    raise NoSharesError("nobody may")


def test_exact_cpu_shares_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = SimpleNamespace(is_coarse=False, way="magic")
    assert with_shares(monkeypatch, magic=lambda _: exact) == [Finding("ok", "CPU shares", "exact ones, by magic")]


def test_of_coarse_cpu_shares_it_is_told_why_there_are_no_better_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = SimpleNamespace(is_coarse=True, way="luck")
    (found,) = with_shares(monkeypatch, magic=no_shares, luck=lambda _: coarse)
    assert (found.level, found.said) == ("note", "coarse ones only, by luck")
    assert found.advice.endswith("that this user may write to: no magic: nobody may")


def test_where_the_cpu_cannot_be_cut_a_real_run_could_work_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = with_shares(monkeypatch, magic=no_shares)
    assert (found.level, found.said.endswith("no magic: nobody may")) == ("note", True)


def test_nothing_is_changed(call, a100: StandIn, tmp_path: Path) -> None:
    a100.put("1g.5gb", 6, with_ci=False)
    before = sorted(tmp_path.rglob("*")), a100.standing()
    call("doctor")
    assert (sorted(tmp_path.rglob("*")), a100.standing()) == before


def test_what_was_written_before_is_left_as_it_is(call, a100: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "state" / "migrator" / f"{UUID}.jsonl"
    with Journal(path) as journal:
        journal.begin("create", gpu_model("a100-40gb").placement("1g.5gb@0"))
        journal.aim(Layout())
    written = path.read_bytes()
    a100.put("1g.5gb", 0)
    call("doctor")
    assert path.read_bytes() == written


def fake_gurobi(monkeypatch: pytest.MonkeyPatch, failure: Exception | None, *, at_start: bool = False) -> None:
    """A Gurobi that starts, or does not, and then solves, or does not."""

    class GurobiError(Exception):
        errno = 10010 if failure is not None and not at_start else 10009

    class Part:
        def __init__(self, **_: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def setParam(self, *_: object) -> None: ...  # noqa: N802 - Gurobi's name

        def addVars(self, _: int) -> None: ...  # noqa: N802

        def start(self) -> None:
            if failure is not None and at_start:
                raise GurobiError(str(failure))

        def optimize(self) -> None:
            if failure is not None:
                raise GurobiError(str(failure))

    module = SimpleNamespace(
        Env=Part,
        Model=Part,
        GurobiError=GurobiError,
        GRB=SimpleNamespace(Error=SimpleNamespace(SIZE_LIMIT_EXCEEDED=10010)),
        gurobi=SimpleNamespace(version=lambda: (13, 0, 3)),
    )
    monkeypatch.setitem(sys.modules, "gurobipy", module)


def solver(name: str) -> Finding:
    return next(item for item in doctor._solvers() if item.about == name)


def test_a_licence_for_any_size_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gurobi(monkeypatch, None)
    assert solver("gurobi").said == "Gurobi 13.0.3, with a licence for any size"


def test_the_free_licence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gurobi(monkeypatch, ValueError("too large"))
    assert solver("gurobi").said == "Gurobi 13.0.3, with its free licence: 2,000 variables and rules at most"


def test_a_licence_that_has_run_out_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gurobi(monkeypatch, ValueError("License expired\n2020-01-01"), at_start=True)
    found = solver("gurobi")
    assert (found.level, found.said) == ("warning", "License expired 2020-01-01")


def test_solvers_that_are_there_are_tried() -> None:
    assert solver("highs").said.endswith("works")
    assert solver("cbc").said.startswith("CBC works")


def test_a_solver_that_does_not_solve_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulp.LpProblem.solve", lambda *_: -3)
    assert solver("cbc").level == "warning"


def test_an_extra_that_is_absent_says_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name == "plotly" else object())
    found = next(item for item in doctor._extras() if item.about == "extra plot")
    assert (found.level, found.advice) == ("note", install("plot"))


def test_whether_a_gpu_can_be_shared_by_mps_is_told(seen, mps: MpsStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert about(seen()[1], "MPS shares", "ok") == [
        "nvidia-cuda-mps-control is there, for a GPU with MIG off; such shares isolate no memory; ",
        "GPU 0 can be shared, as mps-a100-80gb-in-7: run --gpu mps --set gpu.model=mps-a100-80gb-in-7; ",
    ]
    monkeypatch.setenv("PATH", "/nowhere")
    (line,) = about(seen()[1], "MPS shares", "note")
    assert line.startswith("there is no nvidia-cuda-mps-control; it comes with NVIDIA's driver")
    assert list(mps.state.iterdir()) == []


@pytest.mark.usefixtures("a100")
def test_our_mps_daemon_is_told_from_anothers(proc: Path, seen, tmp_path: Path) -> None:
    for pid, pipe in ((41, tmp_path / "state" / "migrator" / "mps-1" / "pipe"), (42, "/a")):
        start(proc, pid, "nvidia-cuda-mps-control -d")
        (proc / str(pid) / "environ").write_text(f"CUDA_MPS_PIPE_DIRECTORY={pipe}\0")
    _, found = seen()
    assert about(found, "MPS shares", "ok")[1] == "our daemon runs: process 41 (nvidia-cuda-mps-control -d); "
    (line,) = about(found, "MPS shares", "note")
    assert line.startswith("another MPS daemon runs: process 42 (nvidia-cuda-mps-control -d); on a GPU that it may")
