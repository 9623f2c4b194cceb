"""MPS shares of a GPU: their records, their processes, and their daemon, which is a stand-in here."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from executor import processes
from executor.catalogue import gpu_model
from executor.cuts import MpsCut
from executor.errors import (
    DriverError,
    GpuError,
    InstanceNotFoundError,
    InUseError,
    InvalidArgumentError,
    NoGpuError,
    OtherControllerError,
    PermanentGpuError,
)
from executor.gpu import GpuInstance
from executor.mps import MpsGpu
from executor.processes import born
from tests.standin.cards import A100_80
from tests.standin.fixtures import MakeStandIn
from tests.standin.mps import PATIENCE_S, MpsStandIn, running

CUT = MpsCut("a100-80gb")


@pytest.fixture
def gpu(mps: MpsStandIn) -> MpsGpu:
    return MpsGpu(CUT, 0, mps.state)


def made(gpu: MpsGpu, text: str) -> GpuInstance:
    return gpu.create(gpu.model.placement(text))


def test_a_process_is_told_our_daemon_its_limits_and_its_instance(gpu: MpsGpu, mps: MpsStandIn) -> None:
    item = made(gpu, "2m@0")
    assert gpu.environment(item.uuid) == {
        "CUDA_VISIBLE_DEVICES": mps.gpu_uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(mps.pipe),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "28",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
        "MIGRATOR_INSTANCE": item.uuid,
    }


def test_what_computes_outside_instances_is_our_daemons_client_too(gpu: MpsGpu, mps: MpsStandIn) -> None:
    alone = gpu.aside(busy=False)
    assert gpu.daemon.is_running()
    assert alone == {"CUDA_VISIBLE_DEVICES": mps.gpu_uuid, "CUDA_MPS_PIPE_DIRECTORY": str(mps.pipe)}
    assert gpu.aside(busy=True) == {
        **alone,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "14",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
    }
    gpu.close()
    assert not gpu.daemon.is_running()


def test_who_has_all_of_the_gpu_has_all_of_its_memory(gpu: MpsGpu) -> None:
    environment = gpu.environment(made(gpu, "7m@0").uuid)
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in environment


def test_percentages_of_a_full_gpu_are_no_more_than_100() -> None:
    assert [CUT.percentage_of(profile) for profile in gpu_model(CUT.name).profiles] == [14, 28, 42, 57, 100]


def test_nobody_is_told_how_to_get_into_an_instance_that_is_not_there(gpu: MpsGpu) -> None:
    with pytest.raises(InstanceNotFoundError, match="no process can be in MIG-MPS-0: there is no such instance"):
        gpu.environment("MIG-MPS-0")


def test_a_process_that_began_with_the_environment_is_in_the_instance(gpu: MpsGpu) -> None:
    item, _ = made(gpu, "2m@0"), made(gpu, "2m@2")
    with running(gpu.environment(item.uuid)) as pid:
        assert gpu.processes() == {item.gi_id: (pid,)}


def test_a_process_that_entered_is_in_the_instance(gpu: MpsGpu) -> None:
    item, _ = made(gpu, "2m@0"), made(gpu, "2m@2")
    with running() as pid:
        gpu.enter(item.uuid, pid)
        gpu.enter(item.uuid, pid)
        assert gpu.processes() == {item.gi_id: (pid,)}
    assert gpu.processes() == {}


def test_who_began_with_the_environment_and_entered_is_one_process(gpu: MpsGpu) -> None:
    item = made(gpu, "2m@0")
    with running(gpu.environment(item.uuid)) as pid:
        gpu.enter(item.uuid, pid)
        assert gpu.processes() == {item.gi_id: (pid,)}


def test_who_is_in_the_way_of_a_destruction_is_named(gpu: MpsGpu) -> None:
    item = made(gpu, "2m@0")
    with running(gpu.environment(item.uuid)) as pid:
        said = rf"Unable to destroy 2m@0 \(GPU instance ID {item.gi_id}\): In use by process {pid} \(sleep 1000"
        with pytest.raises(InUseError, match=said):
            gpu.destroy(item.gi_id)
    gpu.destroy(item.gi_id)


def test_another_process_that_got_the_number_of_one_is_not_in_the_instance(gpu: MpsGpu) -> None:
    item = made(gpu, "2m@0")
    own = os.getpid()
    (gpu._folder(item) / item.uuid / f"{own}.{(born(own) or 0) - 1}").mkdir()
    assert gpu.processes() == {}
    gpu.destroy(item.gi_id)
    assert gpu.instances() == ()


def test_marks_of_processes_that_are_gone_do_not_pile_up(gpu: MpsGpu) -> None:
    item = made(gpu, "2m@0")
    for _ in range(3):
        with running() as pid:
            gpu.enter(item.uuid, pid)
    gpu.enter(item.uuid, os.getpid())
    assert gpu.files.folders(gpu._folder(item) / item.uuid) == [f"{os.getpid()}.{born(os.getpid())}"]


def test_a_process_that_is_gone_cannot_enter(gpu: MpsGpu) -> None:
    item = made(gpu, "2m@0")
    with running() as pid:
        pass
    with pytest.raises(InvalidArgumentError, match=f"process {pid} cannot enter 2m@0: there is no such process"):
        gpu.enter(item.uuid, pid)


def test_a_process_cannot_go_from_one_instance_to_another(gpu: MpsGpu) -> None:
    first, second = made(gpu, "2m@0"), made(gpu, "2m@2")
    with running(gpu.environment(first.uuid)) as pid:
        with pytest.raises(InvalidArgumentError, match="it is in 2m@0, and MPS limits a process for life"):
            gpu.enter(second.uuid, pid)
        assert gpu.processes() == {first.gi_id: (pid,)}


def test_nobody_enters_an_instance_that_is_not_there(gpu: MpsGpu) -> None:
    with pytest.raises(InstanceNotFoundError, match="there is no such instance"):
        gpu.enter("MIG-MPS-0", os.getpid())


def test_to_look_starts_no_daemon_and_makes_nothing(gpu: MpsGpu, mps: MpsStandIn) -> None:
    assert (gpu.instances(), gpu.processes(), gpu.daemon.is_running(), gpu.daemon.clients()) == ((), {}, False, ())
    gpu.close()
    assert list(mps.state.iterdir()) == []


def test_the_first_instance_starts_the_daemon_and_others_use_it(gpu: MpsGpu, mps: MpsStandIn) -> None:
    first = made(gpu, "2m@0")
    pid = mps.pid
    made(gpu, "2m@2")
    gpu.environment(first.uuid)
    assert pid is not None
    assert mps.pid == pid


def test_only_we_may_look_into_the_daemons_folders(gpu: MpsGpu, mps: MpsStandIn) -> None:
    made(gpu, "2m@0")
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (mps.pipe.parent, mps.pipe, gpu.daemon.log)} == {0o700}


def test_the_daemon_has_its_gpu_and_no_setting_of_whoever_started_us(
    gpu: MpsGpu, mps: MpsStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("MIGRATOR_INSTANCE", "MIG-MPS-1")
    made(gpu, "2m@0")
    variables = Path(f"/proc/{mps.pid}/environ").read_text().split("\0")
    ours = {line for line in variables if line.startswith(("CUDA_", "MIGRATOR_INSTANCE"))}
    assert ours == {
        f"CUDA_VISIBLE_DEVICES={mps.gpu_uuid}",
        f"CUDA_MPS_PIPE_DIRECTORY={mps.pipe}",
        f"CUDA_MPS_LOG_DIRECTORY={gpu.daemon.log}",
    }


def test_instances_outlive_whoever_made_them_and_so_does_the_daemon(gpu: MpsGpu, mps: MpsStandIn) -> None:
    item, pid = made(gpu, "2m@0"), mps.pid
    gpu.close()
    with MpsGpu(CUT, 0, mps.state) as other:
        assert other.instances() == (item,)
    assert mps.pid == pid


def test_the_daemon_ends_with_whoever_leaves_no_instance(gpu: MpsGpu, mps: MpsStandIn) -> None:
    gpu.destroy(made(gpu, "2m@0").gi_id)
    assert gpu.daemon.is_running()
    gpu.close()
    assert not gpu.daemon.is_running()
    assert mps.pid is None
    assert [path.name for path in mps.state.glob("mps-*/shares")] == []


def test_a_daemon_that_died_is_started_anew_for_the_next_process(gpu: MpsGpu, mps: MpsStandIn) -> None:
    item, first = made(gpu, "2m@0"), mps.pid
    mps.kill()
    assert not gpu.daemon.is_running()
    assert gpu.instances() == (item,)
    gpu.environment(item.uuid)
    assert gpu.daemon.is_running()
    assert mps.pid != first


def test_without_a_daemon_no_process_is_let_start(gpu: MpsGpu, mps: MpsStandIn) -> None:
    item = made(gpu, "2m@0")
    mps.kill()
    mps.hinder("Failed to bind socket")
    with pytest.raises(DriverError, match=r"nvidia-cuda-mps-control -d: Failed to bind socket; see .*control\.log"):
        gpu.environment(item.uuid)


def test_a_daemon_that_starts_and_does_not_answer_is_not_waited_for_without_end(
    gpu: MpsGpu, mps: MpsStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(gpu, "2m@0")
    mps.kill()
    monkeypatch.setattr("executor.mps._STARTS_WITHIN_S", 0.1)
    monkeypatch.setattr(gpu.daemon, "is_running", lambda: False)
    with pytest.raises(DriverError, match=r"nvidia-cuda-mps-control -d: it does not answer; see"):
        made(gpu, "2m@2")


def test_a_refusal_of_the_daemon_is_told_in_its_words(gpu: MpsGpu, mps: MpsStandIn) -> None:
    item = made(gpu, "2m@0")
    mps.refuse("Failed to connect to control daemon")
    with pytest.raises(
        DriverError, match="nvidia-cuda-mps-control: get_server_list: Failed to connect to control daemon"
    ):
        gpu.environment(item.uuid)
    gpu.close()


def test_a_creation_that_the_daemon_refuses_leaves_nothing(gpu: MpsGpu, mps: MpsStandIn) -> None:
    item = made(gpu, "2m@0")
    mps.refuse("no")
    with pytest.raises(DriverError):
        made(gpu, "2m@2")
    assert gpu.instances() == (item,)


def test_a_daemon_that_hangs_is_not_waited_for_without_end(
    mps: MpsStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = MpsGpu(CUT, 0, mps.state)
    made(gpu, "2m@0")
    command = tmp_path / "nvidia-cuda-mps-control"
    command.write_text("#!/bin/sh\nexec sleep 1000\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    gpu.daemon._timeout_s = 0.1
    with pytest.raises(DriverError, match=r"nvidia-cuda-mps-control: get_server_list: no answer in 0\.1 s"):
        made(gpu, "2m@2")


def test_a_machine_without_the_command_is_told_so(gpu: MpsGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoGpuError, match="there is no nvidia-cuda-mps-control on this machine"):
        made(gpu, "2m@0")


def test_the_daemons_clients_are_told(gpu: MpsGpu, mps: MpsStandIn) -> None:
    made(gpu, "2m@0")
    assert gpu.daemon.clients() == ()
    mps.serve(100, 42, 7)
    mps.serve(101, 8)
    assert gpu.daemon.clients() == (7, 8, 42)


def test_a_second_daemon_on_the_gpu_is_refused(gpu: MpsGpu, mps: MpsStandIn) -> None:
    made(gpu, "2m@0")
    with MpsGpu(CUT, 0, mps.state / "o") as other:
        said = rf"another MPS daemon may serve this GPU.*: process {mps.pid} \("
        with pytest.raises(OtherControllerError, match=said):
            made(other, "2m@0")
        assert other.instances() == ()
    assert gpu.daemon.is_running()


def test_who_says_so_goes_beside_other_daemons(gpu: MpsGpu, mps: MpsStandIn) -> None:
    made(gpu, "2m@0")
    with MpsGpu(CUT, 0, mps.state / "o", beside_others=True) as other:
        item = made(other, "2m@0")
        assert other.daemon.is_running()
        other.destroy(item.gi_id)
    assert gpu.daemon.is_running()


def test_a_daemon_that_cannot_have_folders_is_a_permanent_error(mps: MpsStandIn) -> None:
    gpu = MpsGpu(CUT, 0, mps.state)
    gpu.folder.parent.write_text("")
    with pytest.raises(PermanentGpuError, match="the MPS daemon's folder cannot be made: File exists"):
        gpu.daemon.ensure()


def test_a_state_folder_with_a_name_too_long_for_sockets_is_refused(mps: MpsStandIn) -> None:
    with pytest.raises(NoGpuError, match=r"bytes too long for the MPS daemon's sockets; choose a state folder"):
        MpsGpu(CUT, 0, mps.state / ("x" * 70))


def test_reports_are_told_that_nothing_is_isolated(gpu: MpsGpu) -> None:
    assert gpu.label == "MPS, no memory isolation: 7 shares of the SMs of a100-80gb"
    assert gpu.backend == "mps"


def test_its_records_are_not_those_of_the_cards_mig_instances(gpu: MpsGpu, mps: MpsStandIn) -> None:
    assert gpu.uuid == f"{mps.gpu_uuid}-mps-a100-80gb-in-7"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("mig_current", 1, r"is in MIG mode, and MPS shares are of a whole GPU; .*nvidia-smi -i 0 -mig 0"),
        ("compute_mode", 2, r"lets no process compute; as root: nvidia-smi -i 0 -c DEFAULT"),
        ("compute_capability", 61, "is older than Volta: MPS does not limit processes on it"),
    ],
)
def test_a_gpu_that_mps_cannot_share_is_refused(make_standin: MakeStandIn, field: str, value: int, said: str) -> None:
    own = make_standin(A100_80).state.gpus[0]
    own.mig_current = 0
    setattr(own, field, value)
    with pytest.raises(NoGpuError, match=rf"^GPU 0 \(NVIDIA A100-SXM4-80GB\) {said}"):
        MpsGpu(CUT, 0, Path("/s"))


@pytest.mark.parametrize(("field", "value"), [("compute_mode", 3), ("compute_capability", 0)])
def test_exclusive_mode_and_drivers_that_tell_no_capability_will_do(
    make_standin: MakeStandIn, field: str, value: int
) -> None:
    own = make_standin(A100_80).state.gpus[0]
    own.mig_current = 0
    setattr(own, field, value)
    assert MpsGpu(CUT, 0, Path("/s")).model.name == "mps-a100-80gb-in-7"


@pytest.mark.usefixtures("mps")
def test_another_card_is_refused_with_the_name_that_it_has() -> None:
    said = r"GPU 0 \(NVIDIA A100-SXM4-80GB\) is no h100-80gb, but a100-80gb: name it mps-a100-80gb-in-7"
    with pytest.raises(NoGpuError, match=said):
        MpsGpu(MpsCut("h100-80gb"), 0, Path("/s"))


@pytest.mark.usefixtures("mps")
def test_a_gpu_that_is_not_there_is_told() -> None:
    with pytest.raises(NoGpuError, match="there is no GPU 1"):
        MpsGpu(CUT, 1, Path("/s"))


def test_a_card_that_is_not_in_the_catalogue_has_its_drivers_name(make_standin: MakeStandIn) -> None:
    own = make_standin(A100_80).state.gpus[0]
    own.mig_current, own.memory_mib, own.name = 0, 24_564, b"NVIDIA GeForce RTX 4090"
    with MpsGpu(MpsCut("geforce-rtx-4090"), 0, Path("/s")) as gpu:
        assert gpu.model.profile_names == ("1m", "2m", "3m", "4m", "7m")


def test_a_daemon_is_another_by_its_folder_and_serves_by_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    for pid, words, environ in (
        (41, "nvidia-cuda-mps-control\0-d\0", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\0CUDA_MPS_PIPE_DIRECTORY=/a\0"),
        (42, "/usr/bin/nvidia-cuda-mps-control\0-f\0", "HOME=/root\0"),
        (43, "nvidia-cuda-mps-control\0", ""),
        (44, "nvidia-cuda-mps-control\0-d\0", "CUDA_VISIBLE_DEVICES=0\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text(words)
        (tmp_path / str(pid) / "environ").write_text(environ)
    found, theirs = processes.mps_daemons(), "/tmp/nvidia-mps"  # noqa: S108 - the default
    assert [(item.process.pid, item.pipe) for item in found] == [
        (41, "/a"),
        (42, theirs),
        (44, theirs),
    ]
    assert [item.may_serve("GPU-3f") for item in found] == [False, True, True]
    assert found[0].may_serve("GPU-1f")


def test_a_worker_whose_environment_was_set_after_it_began_is_known_once_it_entered(gpu: MpsGpu) -> None:
    item = made(gpu, "2m@0")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # as forked from a zygote, it has no marker
        assert gpu.processes() == {}
        gpu.enter(item.uuid, process.pid)
        with pytest.raises(GpuError):
            gpu.destroy(item.gi_id)
        process.send_signal(signal.SIGTERM)
    until_s = time.monotonic() + PATIENCE_S
    while gpu.processes() and time.monotonic() < until_s:
        time.sleep(0.001)
    gpu.destroy(item.gi_id)
