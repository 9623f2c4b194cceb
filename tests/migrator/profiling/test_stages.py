"""What is measured, and in which layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.cuts import in_hundredths
from executor.mig import GpuModel
from migrator.errors import MigratorError
from migrator.profiling.stages import TRAINING_BATCH, BusyLoad, MeasuringPlan, SharePlan, Stage, stages
from migrator.profiling.subjects import named

A100 = gpu_model("a100-40gb")


def asked(gpu: GpuModel, *profiles: str, is_coarse: bool = False) -> MeasuringPlan:
    return MeasuringPlan(profiles or gpu.standard_profile_names, (1, 8), (1, 2), 1.0, is_coarse=is_coarse)


def layouts(found: tuple[Stage, ...]) -> dict[str, tuple[str, ...]]:
    return {str(stage.layout): stage.profiles for stage in found}


@pytest.mark.parametrize("name", [*gpu_model_names(), "cpu-1.6-in-7", "cpu-1-in-4"])
def test_every_profile_is_measured_once_for_all_batches_and_processes(name: str) -> None:
    gpu = gpu_model(name)
    found = stages(gpu, asked(gpu), [("m", False)])
    kept = [(profile, stage.load.batch, stage.processes) for stage in found for profile in stage.profiles]
    assert sorted(kept) == sorted((p, b, n) for p in gpu.standard_profile_names for b in (1, 8) for n in (1, 2))


@pytest.mark.parametrize("name", gpu_model_names())
def test_no_instance_can_be_added_to_a_layout(name: str) -> None:
    gpu = gpu_model(name)
    full = set(gpu.maximal_layouts())
    assert all(stage.layout in full for stage in stages(gpu, asked(gpu), [("m", False)]))


def test_few_layouts_hold_all_profiles() -> None:
    assert layouts(stages(A100, asked(A100), [("m", False)])) == {
        "4g.20gb@0 2g.10gb@4 1g.5gb@6": ("1g.5gb", "2g.10gb", "4g.20gb"),
        "4g.20gb@0 3g.20gb@4": ("3g.20gb",),
        "7g.40gb@0": ("7g.40gb",),
    }


def test_a_coarse_measurement_leaves_out_what_lies_between_and_packs_the_whole_gpu_alone() -> None:
    found = stages(A100, asked(A100, is_coarse=True), [("m", False)])
    assert layouts(found) == {
        "4g.20gb@0 2g.10gb@4 1g.5gb@6": ("1g.5gb", "2g.10gb", "4g.20gb"),
        "7g.40gb@0": ("7g.40gb",),
    }
    assert {stage.profiles for stage in found if stage.processes > 1} == {("7g.40gb",)}


def test_models_that_learn_are_retrained_in_every_layout_with_one_process() -> None:
    found = stages(A100, asked(A100), [("m", True), ("n", False)])
    training = [stage for stage in found if stage.load.strategy is not None]
    assert [(stage.model, stage.processes, stage.load) for stage in training] == 3 * [
        ("m", 1, BusyLoad(TRAINING_BATCH, "replay"))
    ]


def test_turns_are_taken_by_one_process_of_each_in_every_layout_before_anything_trains() -> None:
    plain, beside = asked(A100), replace(asked(A100), beside="other")
    found = stages(A100, beside, [("m", True)])
    turns = [stage for stage in found if stage.load.beside is not None]
    assert [(stage.load, stage.processes) for stage in turns] == 3 * [
        (BusyLoad(batch, beside="other"), 1) for batch in beside.batches
    ]
    assert tuple(stage for stage in found if stage not in turns) == stages(A100, plain, [("m", True)])
    order = [(stage.load.beside is not None, stage.load.strategy is not None) for stage in found[:7]]
    assert order == sorted(order, key=lambda pair: (pair[1], pair[0]))
    assert len({stage.key for stage in found}) == len(found)


def test_what_others_hold_is_left_to_them() -> None:
    others = [A100.placement("1g.5gb@6")]
    found = stages(A100, asked(A100, "1g.5gb", "3g.20gb"), [("m", False)], others)
    assert all(A100.fits((*stage.layout, *others)) for stage in found)
    assert {profile for stage in found for profile in stage.profiles} == {"1g.5gb", "3g.20gb"}


def test_a_profile_without_room_is_told() -> None:
    with pytest.raises(MigratorError, match=r"7g\.40gb cannot be measured: there is no room beside 1g\.5gb@6"):
        stages(A100, asked(A100), [("m", False)], [A100.placement("1g.5gb@6")])


def test_no_two_stages_are_taken_for_each_other() -> None:
    found = stages(A100, asked(A100), [("m", True), ("n", True)])
    assert len({stage.key for stage in found}) == len(found)


PARTS = in_hundredths(gpu_model("cpu-1.6-in-7"))


def on_shares(*percents: int) -> SharePlan:
    return SharePlan((named("mlp"), named("cnn")), (named("cnn"),), percents, (1, 8), 1.0)


def test_on_shares_every_batch_is_measured_alone_and_beside_each_training() -> None:
    found = on_shares(10, 50).stages(PARTS)
    assert [(str(stage.layout), stage.model, stage.load.trainer, stage.load.batch) for stage in found] == [
        (layout, model, trainer, batch)
        for layout in ("10pc@0 90pc@1", "50pc@0 50pc@1")
        for model in ("mlp", "cnn")
        for trainer in (None, "cnn:digits")
        for batch in (1, 8)
    ]
    assert {stage.profiles for stage in found} == {("10pc",), ("50pc",)}
    assert len({stage.key for stage in found}) == len(found)


def test_a_share_that_the_card_does_not_have_is_refused() -> None:
    with pytest.raises(MigratorError, match=r"--shares: 3 %: 1.6 CPU cores \(emulated\) has shares of 7 to 93 %"):
        on_shares(3, 50).stages(PARTS)
