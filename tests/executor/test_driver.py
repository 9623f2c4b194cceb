"""Real GPUs by both doors, NVML and nvidia-smi, on a driver that refuses, half-does and lies."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path

import pynvml
import pytest

from executor import smi
from executor.driver import CardFacts, DriverFacts, DriverGpu
from executor.errors import (
    DriverError,
    GpuError,
    GpuLostError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    MigModeOffError,
    NoGpuError,
    NoPermissionError,
    OtherControllerError,
    PermanentGpuError,
)
from executor.gpu import GpuInstance, PartialChangeError, UnsureChangeError
from executor.journal import Journal
from executor.mig import Placement
from executor.nvml import NvmlGpu
from executor.opening import BackendName, card_facts, driver_facts, open_gpu
from executor.smi import SmiGpu
from tests.standin.cards import A30, A100_40, Card
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import (
    CREATE_CI,
    CREATE_GI,
    DESTROY_GI,
    INFOROM_CORRUPTED,
    NOT_SUPPORTED,
    READ,
    RESET_REQUIRED,
    UNKNOWN,
    StandIn,
)

KINDS = (NvmlGpu, SmiGpu)
Opened = Callable[..., tuple[StandIn, DriverGpu]]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.backend)
def opened(request: pytest.FixtureRequest, make_standin: MakeStandIn) -> Iterator[Opened]:
    """Makes a driver and opens its first GPU."""
    made: list[DriverGpu] = []

    def open_on(*cards: Card, index: int = 0) -> tuple[StandIn, DriverGpu]:
        standin = make_standin(*(cards or (A100_40,)))
        made.append(request.param(index))
        return standin, made[-1]

    yield open_on
    for gpu in made:
        gpu.close()


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.backend)


def at(gpu: DriverGpu, text: str):  # type: ignore[no-untyped-def]
    return gpu.model.placement(text)


def test_what_computes_outside_instances_keeps_to_the_cpu(opened: Opened) -> None:
    _, gpu = opened()
    assert [gpu.aside(busy=busy) for busy in (False, True)] == [{"CUDA_VISIBLE_DEVICES": ""}] * 2


def test_a_compute_instance_that_fails_takes_its_gpu_instance_along(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_CI, UNKNOWN, count=1)
    with pytest.raises(DriverError):
        gpu.create(at(gpu, "3g.20gb@4"))
    assert standin.standing() == ()


def test_a_creation_that_failed_after_its_effect_is_not_undone_as_nothing_tells_it_from_others(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_GI, UNKNOWN, count=1, after_effect=True)
    with pytest.raises(UnsureChangeError, match=r"3g\.20gb@4 exists, and nobody knows whose it is"):
        gpu.create(at(gpu, "3g.20gb@4"))
    assert [item.is_whole for item in gpu.instances()] == [False]


def test_what_a_failed_creation_named_is_remembered_where_nothing_can_be_read(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_CI, UNKNOWN, count=1)
    instances, looks = gpu.instances, []

    def once() -> tuple[GpuInstance, ...]:
        looks.append(1)
        if len(looks) > 1:
            raise DriverError("silent")
        return instances()

    gpu.instances = once  # type: ignore[method-assign]
    with pytest.raises(UnsureChangeError) as error:
        gpu.create(at(gpu, "3g.20gb@4"))
    assert [error.value.made_id] == [item.gi_id for item in standin.standing()]


def test_what_cannot_be_undone_is_named(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_CI, UNKNOWN, count=1)
    standin.fail(DESTROY_GI, UNKNOWN, count=1)
    with pytest.raises(PartialChangeError) as error:
        gpu.create(at(gpu, "3g.20gb@4"))
    assert error.value.standing == gpu.instances()[0]
    assert not gpu.instances()[0].is_whole


def test_a_destruction_that_stops_half_way_says_what_stands(opened: Opened) -> None:
    standin, gpu = opened()
    created = gpu.create(at(gpu, "1g.5gb@2"))
    standin.make_stubborn(created.gi_id, 1)
    with pytest.raises(PartialChangeError, match=r"1g\.5gb@2 is left without its compute instance"):
        gpu.destroy(created.gi_id)
    assert [item.is_whole for item in gpu.instances()] == [False]


def test_a_destruction_that_stopped_half_way_can_go_on(opened: Opened) -> None:
    standin, gpu = opened()
    created = gpu.create(at(gpu, "1g.5gb@2"))
    standin.make_stubborn(created.gi_id, 1)
    with pytest.raises(PartialChangeError):
        gpu.destroy(created.gi_id)
    gpu.destroy(created.gi_id)
    assert gpu.instances() == ()


def test_what_will_not_go_can_be_made_whole_again(opened: Opened) -> None:
    standin, gpu = opened()
    created = gpu.create(at(gpu, "1g.5gb@2"))
    standin.make_stubborn(created.gi_id, 1)
    with pytest.raises(PartialChangeError):
        gpu.destroy(created.gi_id)
    again = gpu.make_whole(created.gi_id)
    assert again.is_whole
    assert again.uuid != created.uuid
    assert gpu.make_whole(created.gi_id) == again


def test_a_driver_that_complains_about_what_it_did_is_believed_by_its_deeds(opened: Opened) -> None:
    standin, gpu = opened()
    created = gpu.create(at(gpu, "1g.5gb@2"))
    standin.fail(DESTROY_GI, UNKNOWN, count=1, after_effect=True)
    gpu.destroy(created.gi_id)
    assert standin.standing() == ()


def test_what_somebody_else_destroys_at_once_was_not_made(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = opened()
    make = gpu._create

    def stolen(placement: Placement) -> None:
        make(placement)
        standin.take_away(standin.standing()[0].gi_id)

    monkeypatch.setattr(gpu, "_create", stolen)
    with pytest.raises(DriverError, match="made, and is gone again"):
        gpu.create(at(gpu, "1g.5gb@2"))


def test_what_somebody_else_made_there_first_stays(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = opened()
    make = gpu._create

    def outrun(placement: Placement) -> None:
        standin.put("1g.5gb", 2)
        make(placement)

    monkeypatch.setattr(gpu, "_create", outrun)
    with pytest.raises(InsufficientResourcesError):
        gpu.create(at(gpu, "1g.5gb@2"))
    assert [(item.profile, item.start) for item in standin.standing()] == [("1g.5gb", 2)]


def test_what_others_made_there_though_we_were_refused_stays(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = opened()
    make = gpu._create

    def refused(placement: Placement) -> None:
        try:
            make(placement)
        finally:
            standin.put("3g.20gb", 4)

    monkeypatch.setattr(gpu, "_create", refused)
    standin.fail(CREATE_GI, UNKNOWN, count=1)
    with pytest.raises(UnsureChangeError, match=r"3g\.20gb@4 exists, and nobody knows whose it is"):
        gpu.create(at(gpu, "3g.20gb@4"))
    assert [item.is_whole for item in gpu.instances()] == [True]


@pytest.mark.parametrize(("profile", "start"), [("2g.10gb", 4), ("1g.5gb", 2)])
def test_an_id_that_others_got_meanwhile_is_theirs(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, profile: str, start: int
) -> None:
    standin, gpu = opened()
    created, destroy = gpu.create(at(gpu, "1g.5gb@2")), gpu._destroy

    def done_all_the_same(gi_id: int) -> None:
        try:
            destroy(gi_id)
        finally:
            standin.put(profile, start, gi_id=gi_id)

    monkeypatch.setattr(gpu, "_destroy", done_all_the_same)
    standin.fail(DESTROY_GI, UNKNOWN, count=1, after_effect=True)
    gpu.destroy(created.gi_id)
    assert [(item.gi_id, str(item.placement)) for item in gpu.instances()] == [(created.gi_id, f"{profile}@{start}")]


def test_a_destruction_is_not_believed_but_seen(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    _, gpu = opened()
    created = gpu.create(at(gpu, "1g.5gb@2"))
    monkeypatch.setattr(gpu, "_destroy", lambda _: None)
    with pytest.raises(DriverError, match=r"1g\.5gb@2 was to be destroyed, and exists, though"):
        gpu.destroy(created.gi_id)
    assert gpu.instances() == (created,)


def silent_after(standin: StandIn, gpu: DriverGpu, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the GPU's method of this name was called, the driver answers no question any more."""
    call = getattr(gpu, name)

    def then_silent(*arguments: object) -> None:
        try:
            call(*arguments)
        finally:
            standin.fail(READ, UNKNOWN, per_mille=1000)

    monkeypatch.setattr(gpu, name, then_silent)


def test_a_creation_after_which_nothing_can_be_read_is_unsure(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = opened()
    silent_after(standin, gpu, "_create", monkeypatch)
    with pytest.raises(UnsureChangeError, match=r"1g\.5gb@2 was to be made; the GPU's state is unknown"):
        gpu.create(at(gpu, "1g.5gb@2"))


def test_a_refusal_after_which_nothing_can_be_read_is_unsure(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = opened()
    created = gpu.create(at(gpu, "1g.5gb@2"))
    standin.make_stubborn(created.gi_id, 1)
    silent_after(standin, gpu, "_destroy", monkeypatch)
    with pytest.raises(UnsureChangeError, match="In use by another client; the GPU's state is unknown"):
        gpu.destroy(created.gi_id)


def half(standin: StandIn) -> int:
    return standin.put("1g.5gb", 2, with_ci=False).gi_id


def test_a_repair_after_which_nothing_can_be_read_is_unsure(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = opened()
    silent_after(standin, gpu, "_create_compute", monkeypatch)
    with pytest.raises(UnsureChangeError):
        gpu.make_whole(half(standin))


def test_a_refused_repair_changes_nothing(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_CI, UNKNOWN, count=1)
    with pytest.raises(DriverError):
        gpu.make_whole(half(standin))
    assert [item.is_whole for item in gpu.instances()] == [False]


def test_a_driver_that_complains_about_a_repair_is_believed_by_its_deeds(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_CI, UNKNOWN, count=1, after_effect=True)
    assert gpu.make_whole(half(standin)) == gpu.instances()[0]


def test_an_instance_that_goes_while_it_is_looked_at_is_not_listed(
    make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = make_standin(A100_40)
    going, staying = standin.put("1g.5gb", 0), standin.put("1g.5gb", 1)
    look = pynvml.nvmlGpuInstanceGetInfo

    def slow_look(handle: object) -> object:
        if going in standin.standing():
            standin.take_away(going.gi_id)
        return look(handle)

    with NvmlGpu() as gpu:
        monkeypatch.setattr(pynvml, "nvmlGpuInstanceGetInfo", slow_look)
        assert [item.gi_id for item in gpu.instances()] == [staying.gi_id]


def test_others_instances_are_listed_and_orphans_are_not_whole(opened: Opened) -> None:
    standin, gpu = opened()
    standin.put("2g.10gb", 0)
    standin.put("3g.20gb", 4, with_ci=False)
    assert [(str(item.placement), item.is_whole) for item in gpu.instances()] == [
        ("2g.10gb@0", True),
        ("3g.20gb@4", False),
    ]


def test_each_instance_has_its_own_uuid(opened: Opened) -> None:
    standin, gpu = opened()
    for start in (6, 0, 3):
        standin.put("1g.5gb", start)
    assert [(item.placement.start, item.gi_id, (item.uuid,)) for item in gpu.instances()] == [
        (item.start, item.gi_id, item.uuids) for item in standin.standing()
    ]


def test_a_deed_of_others_is_a_change(opened: Opened) -> None:
    standin, gpu = opened()
    gpu.changed()
    standin.put("2g.10gb", 0)
    assert gpu.changed()


def test_nvml_tells_of_a_change_once(make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40)
    with NvmlGpu() as gpu:
        gpu.changed()
        standin.put("2g.10gb", 0)
        assert [gpu.changed(), gpu.changed()] == [True, False]


def test_a_driver_without_the_event_may_have_changed_at_any_time(
    make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise pynvml.NVMLError_NotSupported

    make_standin(A100_40)
    monkeypatch.setattr("pynvml.nvmlDeviceRegisterEvents", refuse)
    with NvmlGpu() as gpu:
        assert [gpu.changed(), gpu.changed()] == [True, True]


def test_a_lost_gpu_may_have_changed(make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40)
    with NvmlGpu() as gpu:
        gpu.changed()
        standin.state.gpus[0].lost = 1
        assert gpu.changed()


@pytest.mark.parametrize("question", ["check", "instances"])
def test_a_gpu_that_is_lost_or_not_in_mig_mode_says_so_and_answers_again_when_it_is_back(
    opened: Opened, question: str
) -> None:
    standin, gpu = opened()
    ask = methodcaller(question)
    theirs = standin.put("2g.10gb", 0)
    standin.lose()
    with pytest.raises(GpuLostError):
        ask(gpu)
    standin.find()
    gpu.check()
    assert [item.gi_id for item in gpu.instances()] == [theirs.gi_id]
    standin.turn_mig_mode(on=False)
    with pytest.raises(MigModeOffError):
        ask(gpu)
    standin.turn_mig_mode(on=True)
    gpu.check()
    assert gpu.instances() == ()


def test_nvml_tells_of_changes_after_its_driver_was_gone(make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40)
    with NvmlGpu() as gpu:
        gpu.changed()
        standin.state.driver_loaded = 0
        for _ in range(3):
            with pytest.raises(GpuError):
                gpu.check()
        standin.state.driver_loaded = 1
        gpu.check()
        assert [gpu.changed(), gpu.changed()] == [True, False]


def test_processes_are_told_by_instance(opened: Opened) -> None:
    standin, gpu = opened()
    busy = standin.put("2g.10gb", 0, pids=[41, 42])
    standin.put("1g.5gb", 6)
    assert gpu.processes() == {busy.gi_id: (41, 42)}


def test_only_the_gpu_that_was_asked_for_is_touched(opened: Opened) -> None:
    standin, gpu = opened(A100_40, A30, index=1)
    standin.put("1g.5gb", 0, gpu=0)
    gpu.create(at(gpu, "2g.12gb@2"))
    assert [item.profile for item in standin.standing(0)] == ["1g.5gb"]
    assert [item.profile for item in standin.standing(1)] == ["2g.12gb"]


def test_a_gpu_that_has_another_number_by_now_is_changed_itself_or_not_at_all(opened: Opened) -> None:
    standin, gpu = opened(A100_40, A100_40)
    ours, theirs = standin.put("3g.20gb", 0), standin.put("2g.10gb", 0, gpu=1)
    assert ours.gi_id == theirs.gi_id
    standin.lose()
    with pytest.raises(GpuLostError):
        gpu.check()
    standin.find()
    standin.renumber(0, 1)
    if gpu.backend == "smi":
        for change in (gpu.check, partial(gpu.destroy, ours.gi_id), partial(gpu.create, at(gpu, "1g.5gb@6"))):
            with pytest.raises(GpuError, match="another one now"):
                change()
        assert standin.standing(1) == (ours,)
    else:
        gpu.check()
        gpu.destroy(ours.gi_id)
        assert standin.standing(1) == ()
    assert standin.standing(0) == (theirs,)


def test_without_the_right_to_change_nothing_changes(opened: Opened) -> None:
    standin, gpu = opened()
    standin.state.permitted = 0
    with pytest.raises(NoPermissionError, match="Insufficient Permissions"):
        gpu.create(at(gpu, "1g.5gb@0"))
    assert standin.standing() == ()


def test_a_read_that_fails_is_worth_another_attempt(opened: Opened) -> None:
    standin, gpu = opened()
    standin.fail(READ, UNKNOWN, count=1)
    with pytest.raises(DriverError):
        gpu.instances()
    assert gpu.instances() == ()


def test_a_lost_gpu_is_told(opened: Opened) -> None:
    standin, gpu = opened()
    standin.state.gpus[0].lost = 1
    with pytest.raises(GpuLostError):
        gpu.instances()


def test_an_instance_with_a_process_keeps_its_compute_instance(opened: Opened) -> None:
    standin, gpu = opened()
    busy = standin.put("2g.10gb", 0, pids=[41])
    with pytest.raises(InUseError):
        gpu.destroy(busy.gi_id)
    assert standin.standing() == (busy,)


def test_an_id_that_nobody_has_is_not_found(opened: Opened) -> None:
    _, gpu = opened()
    with pytest.raises(InstanceNotFoundError):
        gpu.make_whole(3)


@every_kind
def test_a_gpu_that_is_not_there_is_told(make_standin: MakeStandIn, kind: Callable[[int], DriverGpu]) -> None:
    make_standin(A100_40)
    with pytest.raises(NoGpuError, match="there is no GPU 1; the driver has 1, counted from 0"):
        kind(1)


@every_kind
def test_mig_mode_that_is_off_is_told_with_what_to_do(make_standin: MakeStandIn, kind: Callable[[], DriverGpu]) -> None:
    gpu = make_standin(A100_40).state.gpus[0]
    gpu.mig_current = gpu.mig_pending = 0
    with pytest.raises(
        NoGpuError, match=r"GPU 0 \(NVIDIA A100-SXM4-40GB\) is not in MIG mode; as root: nvidia-smi -i 0"
    ):
        kind()


@every_kind
def test_mig_mode_that_waits_for_a_reset_is_told(make_standin: MakeStandIn, kind: Callable[[], DriverGpu]) -> None:
    make_standin(A100_40).state.gpus[0].mig_current = 0
    with pytest.raises(
        NoGpuError, match=r"not in MIG mode yet, only from its next reset on; .* --gpu-reset, or reboot"
    ):
        kind()


@every_kind
def test_mig_mode_that_ends_with_the_next_reset_is_known(make_standin: MakeStandIn, kind: type[DriverGpu]) -> None:
    standin = make_standin(A100_40)
    with kind() as gpu:
        assert gpu.keeps_mig_mode
    standin.state.gpus[0].mig_pending = 0
    with kind() as gpu:
        assert not gpu.keeps_mig_mode


@every_kind
def test_a_driver_without_gpus_says_so(make_standin: MakeStandIn, kind: Callable[[], DriverGpu]) -> None:
    make_standin()
    with pytest.raises(NoGpuError, match="the driver sees no GPU"):
        kind()


def test_a_driver_says_its_version_and_how_many_gpus_it_has(make_standin: MakeStandIn) -> None:
    make_standin(A100_40, A30)
    assert driver_facts() == DriverFacts("580.65.06", 2)
    assert smi.command_facts() == smi.CommandFacts("580.65.06", ())


def test_a_corrupted_inforom_is_a_warning_of_what_has_succeeded(make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40)
    standin.state.gpus[0].inforom_corrupted = 1
    with SmiGpu() as gpu:
        made = gpu.create(at(gpu, "3g.20gb@4"))
        assert standin.state.n_calls == 2  # a GPU instance and its compute instance, once each
        gpu.destroy(made.gi_id)
    assert (standin.state.n_calls, standin.standing()) == (4, ())
    warned = ("WARNING: infoROM is corrupted at gpu 00000000:01:00.0",)
    assert smi.command_facts() == smi.CommandFacts("580.65.06", warned)


def test_a_corrupted_inforom_hides_no_refusal(make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40)
    standin.state.gpus[0].inforom_corrupted = 1
    standin.fail(CREATE_GI, INFOROM_CORRUPTED, count=1)
    with SmiGpu() as gpu, pytest.raises(DriverError, match="Unable to create a GPU instance"):
        gpu.create(at(gpu, "3g.20gb@4"))


@pytest.mark.parametrize("code", [NOT_SUPPORTED, RESET_REQUIRED])
def test_what_no_wait_mends_is_not_tried_again(opened: Opened, code: int) -> None:
    standin, gpu = opened()
    standin.fail(CREATE_GI, code, count=1)
    with pytest.raises(PermanentGpuError):
        gpu.create(at(gpu, "3g.20gb@4"))


def test_a_command_without_gpus_tells_no_version(make_standin: MakeStandIn) -> None:
    make_standin()
    with pytest.raises(NoGpuError, match="nvidia-smi sees no GPU"):
        smi.command_facts()


@pytest.mark.parametrize("backend", ["auto", "nvml", "smi"])
def test_without_nvmls_module_no_backend_works(backend: BackendName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.opening.find_spec", lambda _: None)
    with pytest.raises(NoGpuError, match=rf"^backend {backend} needs pynvml: pip install '.*\[nvml\]'$"):
        open_gpu(backend)


@every_kind
def test_processes_take_turns_in_an_instance_unless_the_compute_mode_gives_it_to_one(
    make_standin: MakeStandIn, kind: Callable[[], DriverGpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_standin(A100_40).state.gpus[0]
    with kind() as gpu:
        assert gpu.turns_by == "time slices of NVIDIA's driver"
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/pipe")
        assert gpu.turns_by == "MPS, as CUDA_MPS_PIPE_DIRECTORY is set"
        own.compute_mode = 3
        assert gpu.turns_by is None


def test_a_whole_card_is_read_where_mig_mode_is_off(make_standin: MakeStandIn) -> None:
    own = make_standin(A100_40, A30).state.gpus[1]
    assert card_facts(1).is_in_mig_mode
    own.mig_current = 0
    facts = CardFacts("NVIDIA A30", own.uuid.decode(), False, 24_576, True, 8.0)
    assert card_facts(1) == facts
    own.compute_mode, own.compute_capability = 2, 0
    assert card_facts(1) == replace(facts, lets_compute=False, compute_capability=None)
    with pytest.raises(NoGpuError, match="there is no GPU 2; the driver has 2"):
        card_facts(2)


def test_a_library_of_another_version_than_its_driver_asks_for_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr("pynvml.nvmlInit", refuse)
    with pytest.raises(NoGpuError, match="library and driver differ, as after an update: reboot"):
        driver_facts()


@every_kind
def test_a_driver_that_is_not_loaded_is_told(make_standin: MakeStandIn, kind: Callable[[], DriverGpu]) -> None:
    make_standin(A100_40).state.driver_loaded = 0
    with pytest.raises(NoGpuError):
        kind()


@every_kind
def test_placements_that_the_driver_keeps_to_itself_are_told(
    make_standin: MakeStandIn, kind: Callable[[], DriverGpu]
) -> None:
    make_standin(A100_40).state.permitted = 0
    with pytest.raises(NoPermissionError):
        kind()


def test_a_machine_without_the_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "COMMAND", "nosuch-smi")
    with pytest.raises(NoGpuError, match="there is no nosuch-smi on this machine; install NVIDIA's driver"):
        SmiGpu()


def test_a_command_that_never_answers_is_given_up(
    tmp_path: Path, make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = make_standin(A100_40)
    (slow := tmp_path / "slow-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(smi, "COMMAND", str(slow))
    monkeypatch.setattr(smi, "TIMEOUT_S", 0.05)
    with SmiGpu() as gpu, pytest.raises(DriverError, match=r"no answer in 0\.05 s"):
        gpu.create(at(gpu, "1g.5gb@0"))
    assert standin.standing() == ()


def test_a_refusal_is_read_whatever_the_exit_code(
    tmp_path: Path, make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_standin(A100_40).put("1g.5gb", 2)
    (lax := tmp_path / "lax-smi").write_text("#!/bin/sh\necho 'Unable to destroy: In use by another client'\n")
    lax.chmod(0o755)
    monkeypatch.setattr(smi, "COMMAND", str(lax))
    with SmiGpu() as gpu, pytest.raises(InUseError):
        gpu.destroy(gpu.instances()[0].gi_id)


def test_a_command_that_outlives_us_keeps_others_away(
    tmp_path: Path, make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_standin(A100_40)
    (slow := tmp_path / "slow-smi").write_text(f"#!/bin/sh\nsleep 60 > /dev/null 2>&1 &\necho $! > {tmp_path}/pid\n")
    slow.chmod(0o755)
    monkeypatch.setattr(smi, "COMMAND", str(slow))
    with SmiGpu() as gpu, Journal(tmp_path / "journal"), pytest.raises(DriverError):
        gpu.create(at(gpu, "1g.5gb@0"))
    with pytest.raises(OtherControllerError):
        Journal(tmp_path / "journal")
    outlives = os.pidfd_open(int((tmp_path / "pid").read_text()))
    signal.pidfd_send_signal(outlives, signal.SIGKILL)
    select.select([outlives], [], [])
    os.close(outlives)
    Journal(tmp_path / "journal").close()


def test_every_error_is_the_executors(opened: Opened) -> None:
    standin, gpu = opened()
    for code in (3, 6, 7, 10, 13, 25, 27, 29, 999):
        standin.fail(CREATE_GI, code, count=1)
        with pytest.raises(GpuError):
            gpu.create(at(gpu, "1g.5gb@0"))


@every_kind
def test_a_profile_that_can_be_placed_nowhere_is_left_out(kind: type[DriverGpu], make_standin: MakeStandIn) -> None:
    standin = make_standin(A30)
    (number,) = (n for n, facts in enumerate(A30.profiles) if facts.name == "2g.12gb")
    standin.state.gpus[0].profiles[number].n_starts = 0
    with kind(0) as gpu:
        assert gpu.model.profile_names == tuple(facts.name for facts in A30.profiles if facts.name != "2g.12gb")


def test_a_session_that_the_driver_has_ended_can_be_closed(make_standin: MakeStandIn) -> None:
    make_standin(A30)
    with NvmlGpu(0) as gpu:
        gpu.changed()
        pynvml.nvmlShutdown()


@pytest.mark.parametrize("with_ci", [False, True], ids=["half made", "whole"])
def test_what_somebody_else_makes_at_the_same_place_in_the_same_moment_stays_his(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, *, with_ci: bool
) -> None:
    standin, gpu = opened()
    create = gpu._create

    def too_late(placement: Placement) -> None:
        standin.put("3g.20gb", 4, with_ci=with_ci)
        create(placement)

    monkeypatch.setattr(gpu, "_create", too_late)
    with pytest.raises(InsufficientResourcesError):
        gpu.create(at(gpu, "3g.20gb@4"))
    assert [item.profile for item in standin.standing()] == ["3g.20gb"]


def test_a_process_is_in_an_instance_by_its_environment(opened: Opened) -> None:
    _, gpu = opened()
    instance = gpu.create(gpu.model.placement("3g.20gb@0"))
    assert gpu.environment(instance.uuid) == {"CUDA_VISIBLE_DEVICES": instance.uuid}
