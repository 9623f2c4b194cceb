"""A machine's CPU is cut as GPUs are, and nobody takes it for one."""

from __future__ import annotations

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.cpu.cut import Cut
from executor.errors import InvalidCutError, UnknownGpuModelError
from executor.mig import GpuModel


def geometry(model: GpuModel) -> set[tuple[int, int, tuple[int, ...], int, int]]:
    standard = map(model.profile, model.standard_profile_names)
    return {(p.compute_slices, p.memory_slices, p.starts, p.gi_profile_id, p.max_instances) for p in standard}


@pytest.mark.parametrize(("slices", "gpu"), [(7, "a100-40gb"), (4, "a30-24gb")])
def test_geometry_is_that_of_a_gpu_with_as_many_slices(slices: int, gpu: str) -> None:
    assert geometry(Cut(2.0, slices).model) == geometry(gpu_model(gpu))


@pytest.mark.parametrize(("slices", "gpu"), [(7, "a100-40gb"), (4, "a30-24gb")])
def test_layouts_are_as_many_as_that_gpus(slices: int, gpu: str) -> None:
    assert len(Cut(2.0, slices).model.layouts()) == len(gpu_model(gpu).layouts())


def test_profiles_are_named_after_cpu_slices() -> None:
    assert Cut(1.6).model.profile_names == ("1c", "2c", "3c", "4c", "7c")


def test_the_model_says_that_it_is_emulated() -> None:
    assert Cut(1.6).model.title == "1.6 CPU cores (emulated)"


def test_a_profile_has_its_slices_share_of_the_cores() -> None:
    cut = Cut(1.4)
    assert [cut.cores_of(profile) for profile in cut.model.profiles] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.4])


@pytest.mark.parametrize("cut", [Cut(1.6), Cut(0.7), Cut(12, 4), Cut(1 / 3 + 1)])
def test_a_cut_is_found_by_its_name(cut: Cut) -> None:
    assert Cut.named(cut.name.upper()) == Cut(float(f"{cut.cores:.10g}"), cut.slices)


@pytest.mark.parametrize("name", ["a100-40gb", "cpu", "cpu-1.6", "cpu-1.6-in-7x", "cpu--1-in-7", "cpu-nan-in-7"])
def test_other_names_are_no_cuts(name: str) -> None:
    assert Cut.named(name) is None


@pytest.mark.parametrize(
    ("cores", "slices", "said"),
    [
        (1.6, 5, "into 5 slices; allowed: 4 or 7"),
        (0.6, 7, "0.6 cores cannot be cut into 7 slices; allowed: 0.7 or more"),
        (0.3, 4, "allowed: 0.4 or more"),
        (float("inf"), 7, "inf cores"),
        (float("nan"), 7, "nan cores"),
    ],
)
def test_what_linux_cannot_give_is_refused(cores: float, slices: int, said: str) -> None:
    with pytest.raises(InvalidCutError, match=said):
        Cut(cores, slices)


def test_the_catalogue_knows_a_cut_by_its_name() -> None:
    assert gpu_model("CPU-1.60-in-7") == Cut(1.6).model


def test_the_catalogue_lists_no_cut() -> None:
    assert not [name for name in gpu_model_names() if name.startswith("cpu")]


def test_the_catalogue_says_why_there_is_no_such_cut() -> None:
    with pytest.raises(UnknownGpuModelError, match=r"'cpu-1-in-3': a CPU cannot be cut into 3 slices; allowed: 4 or 7"):
        gpu_model("cpu-1-in-3")
