"""The stand-in behaves as drivers do; every text and code here stands in its README with a source."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pynvml
import pytest

from executor.clock import VirtualClock
from executor.gpu import GpuInstance
from executor.journal import Journal
from executor.nvml import NvmlGpu
from executor.reconcile import Reconciler
from tests.standin.cards import A30, A100_40, CARDS, H100_80, RTX_PRO_6000, TWO_HALVES, Card
from tests.standin.fixtures import MakeStandIn
from tests.standin.near_smi import NearSmiGpu
from tests.standin.standin import (
    CREATE_CI,
    CREATE_GI,
    GPU_IS_LOST,
    IN_USE,
    INSUFFICIENT_RESOURCES,
    READ,
    UNKNOWN,
    StandIn,
    State,
)


@pytest.fixture
def a100(make_standin: MakeStandIn) -> StandIn:
    return make_standin(A100_40)


@contextmanager
def session() -> Iterator[None]:
    pynvml.nvmlInit()
    yield
    pynvml.nvmlShutdown()


@pytest.fixture
def nvml(a100: StandIn) -> Iterator[None]:  # noqa: ARG001 - the driver is there before the session
    with session():
        yield


def smi(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def gpu_handle(index: int = 0) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def nvml_code(error: pytest.ExceptionInfo[pynvml.NVMLError]) -> int:
    return int(error.value.value)


def create(profile_id: int, start: int) -> object:
    placement = ctypes.byref(pynvml.c_nvmlGpuInstancePlacement_t(start, 0))
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu_handle(), profile_id, placement)


def test_both_sides_lay_the_state_out_alike(a100: StandIn) -> None:
    assert a100.state.size == ctypes.sizeof(State)
    assert smi("--query-gpu=driver_version") == (0, ["580.65.06"])  # the C side refuses a file of another size


def test_creation_is_told_in_the_drivers_words(a100: StandIn) -> None:
    code, lines = smi("mig", "-i", "0", "-cgi", "9:4", "-C")
    (made,) = a100.standing()
    profile = "using profile MIG 3g.20gb (ID  2)"
    assert code == 0
    assert lines == [
        f"Successfully created GPU instance ID {made.gi_id:>2} on GPU  0 using profile MIG 3g.20gb (ID  9)",
        f"Successfully created compute instance ID  0 on GPU  0 GPU instance ID {made.gi_id:>2} {profile}",
    ]


def test_destruction_is_told_in_the_drivers_words(a100: StandIn) -> None:
    gi_id = a100.put("1g.5gb", 0).gi_id
    assert smi("mig", "-i", "0", "-dci", "-gi", str(gi_id)) == (
        0,
        [f"Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID {gi_id:>2}"],
    )
    assert smi("mig", "-i", "0", "-dgi", "-gi", str(gi_id)) == (
        0,
        [f"Successfully destroyed GPU instance ID {gi_id:>2} from GPU  0"],
    )


def test_a_list_of_profiles_succeeds_in_part(a100: StandIn) -> None:
    code, lines = smi("mig", "-i", "0", "-cgi", "19,19,14,9")
    assert code != 0
    assert [item.profile for item in a100.standing()] == ["2g.10gb", "1g.5gb", "1g.5gb"]
    assert lines[-2:] == [
        "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources",
        "Failed to create GPU instances: Insufficient Resources",
    ]


@pytest.mark.parametrize("name", ["9", "3g.20gb", "MIG 3g.20gb"])
def test_profiles_are_named_by_id_short_or_full_name(a100: StandIn, name: str) -> None:
    assert smi("mig", "-i", "0", "-cgi", f"{name}:4")[0] == 0
    assert a100.standing()[0].profile == "3g.20gb"


@pytest.mark.usefixtures("nvml")
def test_an_overlap_is_refused_with_23(a100: StandIn) -> None:
    a100.put("2g.10gb", 2)
    with pytest.raises(pynvml.NVMLError) as error:
        create(19, 3)
    assert nvml_code(error) == INSUFFICIENT_RESOURCES


@pytest.mark.usefixtures("nvml")
def test_a_start_that_the_profile_lacks_is_an_invalid_argument() -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        create(14, 1)


def test_a_gpu_instance_with_a_compute_instance_is_in_use(a100: StandIn) -> None:
    gi_id = a100.put("1g.5gb", 0).gi_id
    code, lines = smi("mig", "-i", "0", "-dgi", "-gi", str(gi_id))
    assert code != 0
    assert lines == [
        f"Unable to destroy GPU instance ID {gi_id:>2} from GPU  0: In use by another client",
        "Failed to destroy GPU instances: In use by another client",
    ]


def test_a_compute_instance_with_a_process_is_in_use(a100: StandIn) -> None:
    gi_id = a100.put("1g.5gb", 0, pids=[4711]).gi_id
    assert smi("mig", "-i", "0", "-dci", "-gi", str(gi_id))[0] != 0
    a100.detach(gi_id, 4711)
    assert smi("mig", "-i", "0", "-dci", "-gi", str(gi_id))[0] == 0


@pytest.mark.usefixtures("nvml")
def test_a_busy_neighbour_makes_a_destruction_fail_for_a_while(a100: StandIn) -> None:
    gi_id = a100.put("1g.5gb", 0, with_ci=False).gi_id
    a100.make_stubborn(gi_id, 2)
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu_handle(), gi_id)
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError) as error:
            pynvml.nvmlGpuInstanceDestroy(instance)
        assert nvml_code(error) == IN_USE
    pynvml.nvmlGpuInstanceDestroy(instance)
    assert a100.standing() == ()


@pytest.mark.usefixtures("nvml")
def test_a_full_gpu_instance_takes_no_second_compute_instance(a100: StandIn) -> None:
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu_handle(), a100.put("3g.20gb", 0).gi_id)
    with pytest.raises(pynvml.NVMLError) as error:
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    assert nvml_code(error) == INSUFFICIENT_RESOURCES


@pytest.mark.usefixtures("nvml")
def test_a_gpu_instance_takes_compute_instances_up_to_its_slices(a100: StandIn) -> None:
    gi_id = a100.put("3g.20gb", 0, with_ci=False).gi_id
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu_handle(), gi_id)
    for _ in range(2):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    assert smi("mig", "-cci", "0", "-gi", str(gi_id))[1][0].endswith("using profile MIG 1c.3g.20gb (ID  0)")
    assert len(a100.standing()[0].uuids) == 3


def test_ids_come_again_and_uuids_do_not(a100: StandIn) -> None:
    seen = []
    for _ in range(20):
        item = a100.put("7g.40gb", 0)
        seen.append((item.gi_id, *item.uuids))
        a100.take_away(item.gi_id)
    assert len({gi_id for gi_id, _ in seen}) < len(seen)
    assert len({uuid for _, uuid in seen}) == len(seen)


@pytest.mark.usefixtures("nvml")
def test_without_permission_nothing_changes(a100: StandIn) -> None:
    a100.state.permitted = 0
    with pytest.raises(pynvml.NVMLError_NoPermission):
        create(19, 0)
    assert smi("mig", "-cgi", "19:0")[1][-1] == "Failed to create GPU instances: Insufficient Permissions"


@pytest.mark.usefixtures("nvml")
def test_a_fault_hits_as_often_as_it_was_told(a100: StandIn) -> None:
    a100.fail(CREATE_GI, UNKNOWN, count=1)
    with pytest.raises(pynvml.NVMLError_Unknown):
        create(19, 0)
    create(19, 0)


@pytest.mark.usefixtures("nvml")
def test_a_fault_may_strike_after_its_call_took_effect(a100: StandIn) -> None:
    a100.fail(CREATE_GI, UNKNOWN, count=1, after_effect=True)
    with pytest.raises(pynvml.NVMLError_Unknown):
        create(19, 0)
    assert [item.profile for item in a100.standing()] == ["1g.5gb"]


def test_a_compute_instance_that_fails_leaves_its_gpu_instance(a100: StandIn) -> None:
    a100.fail(CREATE_CI, UNKNOWN, count=1)
    assert smi("mig", "-i", "0", "-cgi", "9:0", "-C")[0] != 0
    assert [item.uuids for item in a100.standing()] == [()]


@pytest.mark.usefixtures("nvml")
def test_a_lost_gpu_answers_nothing(a100: StandIn) -> None:
    handle = gpu_handle()
    a100.state.gpus[0].lost = 1
    with pytest.raises(pynvml.NVMLError) as error:
        pynvml.nvmlDeviceGetName(handle)
    assert nvml_code(error) == GPU_IS_LOST


@pytest.mark.usefixtures("nvml")
def test_reads_can_fail_too(a100: StandIn) -> None:
    handle = gpu_handle()
    a100.fail(READ, UNKNOWN, count=1)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetMigMode(handle)


@pytest.mark.parametrize(("card", "mode"), [(A100_40, 1), (H100_80, 0)], ids=["ampere", "hopper"])
def test_a_reboot_takes_the_instances_and_on_hopper_the_mode(make_standin: MakeStandIn, card: Card, mode: int) -> None:
    standin = make_standin(card)
    standin.put(card.profiles[0].name, 0)
    standin.reboot()
    assert standin.standing() == ()
    assert standin.state.gpus[0].mig_current == mode


@pytest.mark.usefixtures("nvml")
def test_a_change_is_an_event(a100: StandIn) -> None:
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu_handle(), pynvml.nvmlEventMigConfigChange, events)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait(events, 0)
    a100.put("1g.5gb", 0)
    assert pynvml.nvmlEventSetWait(events, 0).eventType == pynvml.nvmlEventMigConfigChange
    pynvml.nvmlEventSetFree(events)


@pytest.mark.usefixtures("nvml")
def test_calls_move_the_drivers_clock(a100: StandIn) -> None:
    create(0, 0)
    assert a100.now_s == pytest.approx(0.24)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_profiles_are_found_by_their_enumerators(make_standin: MakeStandIn, card: Card, version: int) -> None:
    make_standin(card)
    found = {}
    with session():
        for enumerator in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            with suppress(pynvml.NVMLError_NotSupported):
                info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu_handle(), enumerator, version=version)
                found[info.id] = (info.sliceCount, info.multiprocessorCount, info.instanceCount)
    assert found == {item.id: (item.compute_slices, item.sms, item.max_instances) for item in card.profiles}


def test_a_hopper_3g_spans_four_slices(make_standin: MakeStandIn) -> None:
    gi_id = make_standin(H100_80).put("3g.40gb", 0).gi_id
    with session():
        instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu_handle(), gi_id)
        span = pynvml.nvmlComputeInstanceGetInfo(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)).placement
    assert (span.start, span.size) == (0, 4)


@pytest.mark.parametrize("card", [A30, RTX_PRO_6000, TWO_HALVES], ids=lambda card: card.name)
def test_what_remains_is_counted(make_standin: MakeStandIn, card: Card) -> None:
    make_standin(card)
    with session():
        left = [pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu_handle(), facts.id) for facts in card.profiles]
    assert left == [facts.max_instances for facts in card.profiles]


def test_without_instances_or_mode_the_command_says_so(a100: StandIn) -> None:
    assert smi("mig", "-dci") == (6, ["No compute instances found: Not Found"])
    assert smi("mig", "-dgi") == (6, ["No GPU instances found: Not Found"])
    a100.state.gpus[0].mig_current = 0
    assert smi("mig", "-cgi", "19:0") == (6, ["No MIG-enabled devices found."])


def test_without_a_driver_nothing_answers(a100: StandIn) -> None:
    a100.state.driver_loaded = 0
    assert smi("mig", "-dgi")[1][0].startswith(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    )
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()


@pytest.mark.usefixtures("nvml")
def test_calls_that_nobody_wrote_are_not_supported() -> None:
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetPowerUsage(gpu_handle())


def nvitop(*arguments: str) -> str:
    """What unmodified nvitop prints, meeting the library as any other program does."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "HOME": home, "COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def made_by_us(a100: StandIn, tmp_path: Path) -> tuple[GpuInstance, ...]:
    """The instances of a layout that our own code has brought about, by way of another one."""
    layouts = ("1g.5gb@0", "2g.10gb@2", "3g.20gb@4"), ("1g.5gb@0", "1g.5gb@1", "1g.10gb@2", "2g.10gb@4", "1g.5gb@6")
    with NvmlGpu() as gpu, Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock())
        for names in layouts:
            outcome = reconciler.apply(gpu.model.layout(map(gpu.model.placement, names)))
    assert outcome.is_complete
    assert [f"{item.profile}@{item.start}" for item in a100.standing()] == list(layouts[-1])
    return outcome.standing


def test_nvitop_shows_our_layout_and_nothing_else(made_by_us: tuple[GpuInstance, ...]) -> None:
    rows = re.findall(r"(\S+) @ GI/CI: ?(\d+)/0", nvitop("-m", "nvitop", "-1"))
    assert sorted(rows) == sorted((item.placement.profile.name, str(item.gi_id)) for item in made_by_us)


def test_nvitop_knows_our_instances_by_their_uuids_and_memory(made_by_us: tuple[GpuInstance, ...]) -> None:
    code = (
        "import json, nvitop; print(json.dumps([[m.uuid(), m.gpu_instance_id(), m.name().split()[-1], "
        "m.memory_total()] for m in nvitop.Device(0).mig_devices()]))"
    )
    mib = {facts.name: round(facts.memory_gib * 1024) for facts in A100_40.profiles}
    assert sorted(json.loads(nvitop("-c", code))) == sorted(
        [item.uuid, item.gi_id, item.placement.profile.name, mib[item.placement.profile.name] * 2**20]
        for item in made_by_us
    )


@pytest.mark.usefixtures("a100")
def test_the_library_is_found_by_other_processes(tmp_path: Path) -> None:
    code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == A100_40.name


@pytest.mark.parametrize(
    "arguments", ["--query-gpu=driver_version", "mig -dgi", "mig -cgi 9:4", "mig -dgi -gi 99", "-x y"]
)
def test_the_command_says_the_same_in_this_process(a100: StandIn, arguments: str) -> None:
    a100.put("3g.20gb", 4)
    near = NearSmiGpu(a100.programs)._run(*arguments.split())
    done = subprocess.run(["nvidia-smi", *arguments.split()], capture_output=True, text=True, check=False)
    assert (near.code, near.text) == (done.returncode, done.stdout + done.stderr)
