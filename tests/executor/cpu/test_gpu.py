"""What is special about a CPU as a ``Gpu``; all else is in the contract."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from executor.cpu.gpu import CpuGpu, find_shares, standing_cuts, ways
from executor.cpu.shares import NoSharesError, Shares
from executor.cuts import CpuCut
from executor.errors import (
    InstanceNotFoundError,
    InUseError,
    InvalidArgumentError,
    NoGpuError,
    PermanentGpuError,
)
from executor.gpu import GpuInstance
from executor.processes import PROC, python_command
from executor.zygote import Reached, Zygote
from tests.executor.cpu.kernel import Faulty, Kernel
from tests.executor.cpu.real import PATIENCE_S, in_share, real_way, sleeper

CUT = CpuCut(1.6)
WAYS = tuple(ways(Path()))


@pytest.fixture(params=[1, 2])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "cgroup", request.param)


@pytest.fixture
def gpu(kernel: Kernel, tmp_path: Path) -> CpuGpu:
    return CpuGpu(CUT, tmp_path, kernel.ways())


def made(gpu: CpuGpu, text: str) -> GpuInstance:
    return gpu.create(gpu.model.placement(text))


def folder_of(gpu: CpuGpu, item: GpuInstance) -> Path:
    return gpu.shares.folder / f"{item.placement}.{item.gi_id}"


@pytest.mark.parametrize(("text", "quota_us"), [("1c@6", 2286), ("2c@0", 4571), ("4c@0", 9143), ("7c@0", 16000)])
def test_the_quota_each_10_ms_is_the_slices_share_of_the_cores(
    gpu: CpuGpu, kernel: Kernel, text: str, quota_us: int
) -> None:
    folder = folder_of(gpu, made(gpu, text))
    if kernel.version == 2:
        assert (folder / "cpu.max").read_text() == f"{quota_us} 10000"
    else:
        assert [(folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")] == [f"{quota_us}", "10000"]


def test_where_instances_press_each_other_they_weigh_what_their_slices_do(gpu: CpuGpu, kernel: Kernel) -> None:
    name = "cpu.weight" if kernel.version == 2 else "cpu.shares"
    weights = [int((folder_of(gpu, made(gpu, text)) / name).read_text()) for text in ("1c@6", "2c@4", "4c@0")]
    assert [weight // weights[0] for weight in weights] == [1, 2, 4]


def test_instances_go_before_whoever_else_presses(gpu: CpuGpu, kernel: Kernel) -> None:
    made(gpu, "1c@0")
    name, most = ("cpu.weight", "10000") if kernel.version == 2 else ("cpu.shares", "262144")
    assert (gpu.shares.folder / name).read_text() == most


def test_a_process_that_entered_is_in_the_instances_folder(gpu: CpuGpu) -> None:
    item = made(gpu, "2c@0")
    gpu.enter(item.uuid, 4711)
    assert (folder_of(gpu, item) / item.uuid / "cgroup.procs").read_text() == "4711\n"


def test_processes_are_told_by_the_instances_id(gpu: CpuGpu) -> None:
    item, _ = made(gpu, "2c@0"), made(gpu, "2c@2")
    for pid in (4712, 4711):
        gpu.enter(item.uuid, pid)
    assert gpu.processes() == {item.gi_id: (4711, 4712)}


def test_a_process_can_go_from_one_instance_to_another(gpu: CpuGpu) -> None:
    first, second = made(gpu, "2c@0"), made(gpu, "2c@2")
    for item in (first, second):
        gpu.enter(item.uuid, 4711)
    assert gpu.processes() == {second.gi_id: (4711,)}


def test_nobody_enters_an_instance_that_is_not_there(gpu: CpuGpu) -> None:
    with pytest.raises(InstanceNotFoundError, match="process 4711 cannot enter MIG-CPU-0: there is no such instance"):
        gpu.enter("MIG-CPU-0", 4711)


def test_nobody_enters_half_an_instance(gpu: CpuGpu, kernel: Kernel) -> None:
    item = made(gpu, "2c@0")
    kernel.remove(folder_of(gpu, item) / item.uuid)
    with pytest.raises(InstanceNotFoundError):
        gpu.enter("", 4711)


def test_who_is_in_the_way_of_a_destruction_is_named(gpu: CpuGpu) -> None:
    item = made(gpu, "2c@0")
    gpu.enter(item.uuid, os.getpid())
    with pytest.raises(InUseError, match=f"destroy 2c@0 .*In use by process {os.getpid()} "):
        gpu.destroy(item.gi_id)


def test_a_process_that_somebody_put_beside_the_compute_instance_counts(gpu: CpuGpu, kernel: Kernel) -> None:
    item = made(gpu, "2c@0")
    kernel.write(folder_of(gpu, item) / "cgroup.procs", "4711")
    with pytest.raises(InUseError):
        gpu.destroy(item.gi_id)
    assert gpu.instances() == (item,)


def test_an_instance_without_a_limit_gets_it_before_processes_can_enter(gpu: CpuGpu, kernel: Kernel) -> None:
    gpu.shares.prepare()
    kernel.make(gpu.shares.folder / "2c@0.3")  # where its maker was killed
    assert gpu.shares.limit_of("2c@0.3") is None
    gpu.make_whole(3)
    assert gpu.shares.limit_of("2c@0.3") == pytest.approx(1.6 * 2 / 7, abs=1e-4)


def test_nothing_is_left_when_the_last_instance_is_gone(gpu: CpuGpu, kernel: Kernel) -> None:
    gpu.destroy(made(gpu, "7c@0").gi_id)
    assert kernel.folders(kernel.base) == []


def test_nothing_is_left_of_a_creation_that_failed_once_the_cpu_is_let_go(gpu: CpuGpu, kernel: Kernel) -> None:
    gpu.shares.prepare()
    gpu.close()
    assert kernel.folders(kernel.base) == []


def test_instances_outlive_whoever_made_them(gpu: CpuGpu, kernel: Kernel, tmp_path: Path) -> None:
    item = made(gpu, "2c@0")
    gpu.close()
    assert CpuGpu(CUT, tmp_path, kernel.ways()).instances() == (item,)


def test_two_state_folders_do_not_meet(gpu: CpuGpu, kernel: Kernel, tmp_path: Path) -> None:
    made(gpu, "7c@0")
    other = CpuGpu(CUT, tmp_path / "other", kernel.ways())
    assert (other.instances(), other.uuid == gpu.uuid) == ((), False)


def test_a_state_folder_is_the_same_by_whatever_path(gpu: CpuGpu, kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert CpuGpu(CUT, tmp_path / "link" / ".", kernel.ways()).uuid == gpu.uuid


def test_what_stands_of_another_cut_is_told(gpu: CpuGpu, kernel: Kernel, tmp_path: Path) -> None:
    made(gpu, "7c@0")
    other = CpuGpu(CpuCut(1.2, 4), tmp_path, kernel.ways())
    assert (other.instances(), standing_cuts(tmp_path, kernel.ways())) == ((), (CUT,))


def test_folders_of_other_names_are_no_instances(gpu: CpuGpu, kernel: Kernel) -> None:
    item = made(gpu, "1c@0")
    for name in ("notes", "9c@0.1", "1c@9.1", "1c@1.x"):
        kernel.make(gpu.shares.folder / name)
    assert gpu.instances() == (item,)


def test_no_more_cores_are_cut_than_there_are(kernel: Kernel, tmp_path: Path) -> None:
    n_cores = len(os.sched_getaffinity(0))
    with pytest.raises(NoGpuError, match=f"{n_cores + 1} cores are asked for; this machine lets us use {n_cores}"):
        CpuGpu(CpuCut(n_cores + 1), tmp_path, kernel.ways())


def test_a_call_that_this_user_may_not_make_is_no_use_to_try_again(gpu: CpuGpu, kernel: Kernel) -> None:
    gpu.files = gpu.shares.files = files = Faulty(kernel)
    files.refuses = lambda call, _: errno.EACCES if call == "make" else 0
    with pytest.raises(PermanentGpuError, match="Permission denied; shares of the CPU need write access to"):
        made(gpu, "1c@0")


def fails(_: str) -> Shares:
    raise NoSharesError("it is Tuesday")


def test_the_first_way_that_works_is_taken_and_it_is_told_why_those_before_do_not(kernel: Kernel) -> None:
    shares, why_not = find_shares({"magic": fails, **kernel.ways(), "worse": fails}, "ours")
    assert (shares.folder.parent, why_not) == (kernel.base, ("no magic: it is Tuesday",))


def test_a_machine_on_which_no_way_works_is_told_all_reasons() -> None:
    with pytest.raises(NoGpuError, match="no magic: it is Tuesday; no luck: it is Tuesday"):
        find_shares({"magic": fails, "luck": fails}, "ours")


def test_reports_are_told_that_it_is_emulated(gpu: CpuGpu, kernel: Kernel) -> None:
    assert gpu.label == (f"emulated: 1.6 CPU cores in 7 slices by control groups v{kernel.version}, a quota each 10 ms")


def test_a_quota_is_waited_for_10_ms_and_a_duty_cycle_for_100(gpu: CpuGpu, tmp_path: Path) -> None:
    duty = CpuGpu(CpuCut(0.8), tmp_path, real_way("duty cycle", tmp_path))
    assert (gpu.shares.period_s, duty.shares.period_s) == (0.01, 0.1)


def test_reports_are_told_that_a_duty_cycle_is_coarse(tmp_path: Path) -> None:
    assert CpuGpu(CpuCut(0.8), tmp_path, real_way("duty cycle", tmp_path)).label.startswith("emulated, coarse: 0.8 CPU")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    named: str = request.param
    return named


@pytest.fixture
def real(way: str, tmp_path: Path) -> Iterator[CpuGpu]:
    with CpuGpu(CpuCut(0.8), tmp_path, real_way(way, tmp_path)) as gpu:
        yield gpu
        for item in gpu.instances():
            gpu.destroy(item.gi_id)


def test_a_share_of_this_machine_has_the_cores_of_its_slices(real: CpuGpu) -> None:
    made(real, "3c@0")
    (name,) = real.shares.files.folders(real.shares.folder)
    assert real.shares.limit_of(name) == pytest.approx(0.8 * 3 / 7, abs=1e-4)


def test_a_process_of_this_machine_is_in_its_share(real: CpuGpu) -> None:
    item = made(real, "3c@0")
    with in_share(real, item):
        (pid,) = real.processes()[item.gi_id]
        assert real.shares.is_coarse or f"/{item.uuid}\n" in (PROC / str(pid) / "cgroup").read_text()


def test_a_process_that_is_gone_cannot_enter(real: CpuGpu) -> None:
    item = made(real, "3c@0")
    with sleeper() as process:
        process.kill()
        process.wait()
        with pytest.raises(InvalidArgumentError, match=f"process {process.pid} cannot enter 3c@0: there is no such"):
            real.enter(item.uuid, process.pid)


def test_what_a_killed_controller_has_made_is_found_and_taken_away(real: CpuGpu, way: str, tmp_path: Path) -> None:
    command = python_command("tests.executor.cpu.controller", "makes_one_and_hangs", str(tmp_path), way)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        made_uuid = controller.stdout.readline().strip()
        controller.send_signal(signal.SIGKILL)
    (item,) = real.instances()
    assert item.uuid == made_uuid
    real.destroy(item.gi_id)
    assert not real.shares.folder.exists()


def test_a_worker_loads_outside_its_share_and_holds_it_from_then_on_until_it_ends(real: CpuGpu) -> None:
    item = made(real, "3c@0")
    with Zygote() as zygote:
        worker = zygote.start("tests.executor.zygote_workers:waits")
        events = list(zygote.events(PATIENCE_S))
        while not any(isinstance(event, Reached) for event in events):
            events += zygote.events(PATIENCE_S)
        assert real.processes() == {}
        pid = zygote.workers[worker]
        assert pid is not None
        real.enter(item.uuid, pid)
        assert real.processes() == {item.gi_id: (pid,)}
        zygote.stop(worker)
    assert goes_soon(real, item)


def goes_soon(gpu: CpuGpu, item: GpuInstance) -> bool:
    """Whether the instance goes, though it may be in use for a moment yet."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        with suppress(InUseError):
            gpu.destroy(item.gi_id)
            return True
    return False
