"""A machine's CPU, and a whole GPU by MPS, are cut as GPUs are, and nobody takes them for what they are not."""

from __future__ import annotations

import pytest

from executor.catalogue import gpu_model, gpu_model_names, mps_cut
from executor.cuts import CpuCut, MpsCut, in_hundredths
from executor.errors import InvalidCutError, UnknownGpuModelError
from executor.mig import GpuModel


def geometry(model: GpuModel) -> set[tuple[int, int, tuple[int, ...], int, int]]:
    standard = map(model.profile, model.standard_profile_names)
    return {(p.compute_slices, p.memory_slices, p.starts, p.gi_profile_id, p.max_instances) for p in standard}


@pytest.mark.parametrize(("slices", "gpu"), [(7, "a100-40gb"), (4, "a30-24gb")])
def test_geometry_is_that_of_a_gpu_with_as_many_slices(slices: int, gpu: str) -> None:
    assert geometry(gpu_model(CpuCut(2.0, slices).name)) == geometry(gpu_model(gpu))


@pytest.mark.parametrize(("slices", "gpu"), [(7, "a100-40gb"), (4, "a30-24gb")])
def test_layouts_are_as_many_as_that_gpus(slices: int, gpu: str) -> None:
    assert len(gpu_model(CpuCut(2.0, slices).name).layouts()) == len(gpu_model(gpu).layouts())


def test_profiles_are_named_after_cpu_slices() -> None:
    assert gpu_model(CpuCut(1.6).name).profile_names == ("1c", "2c", "3c", "4c", "7c")


def test_the_model_says_that_it_is_emulated() -> None:
    assert gpu_model(CpuCut(1.6).name).title == "1.6 CPU cores (emulated)"


def test_a_profile_has_its_slices_share_of_the_cores() -> None:
    cut = CpuCut(1.4)
    profiles = gpu_model(cut.name).profiles
    assert [cut.cores_of(profile) for profile in profiles] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.4])


@pytest.mark.parametrize("cut", [CpuCut(1.6), CpuCut(0.7), CpuCut(12, 4), CpuCut(1 / 3 + 1)])
def test_a_cut_is_found_by_its_name(cut: CpuCut) -> None:
    assert CpuCut.named(cut.name.upper()) == CpuCut(float(f"{cut.cores:.10g}"), cut.slices)


@pytest.mark.parametrize("name", ["a100-40gb", "cpu", "cpu-1.6", "cpu-1.6-in-7x", "cpu--1-in-7", "cpu-nan-in-7"])
def test_other_names_are_no_cuts(name: str) -> None:
    assert CpuCut.named(name) is None


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
        CpuCut(cores, slices)


def test_the_catalogue_knows_a_cut_by_its_name() -> None:
    assert gpu_model("CPU-1.60-in-7") == gpu_model(CpuCut(1.6).name)


def test_the_catalogue_lists_no_cut() -> None:
    assert not [name for name in gpu_model_names() if name.startswith("cpu")]


def test_the_catalogue_says_why_there_is_no_such_cut() -> None:
    with pytest.raises(UnknownGpuModelError, match=r"'cpu-1-in-3': a CPU cannot be cut into 3 slices; allowed: 4 or 7"):
        gpu_model("cpu-1-in-3")


def shape(model: GpuModel) -> set[tuple[int, int, tuple[int, ...], int]]:
    standard = map(model.profile, model.standard_profile_names)
    return {(p.compute_slices, p.memory_slices, p.starts, p.max_instances) for p in standard}


@pytest.mark.parametrize("card", gpu_model_names())
def test_mps_has_the_geometry_of_mig_on_the_card(card: str) -> None:
    model = gpu_model(mps_cut(card).name)
    assert shape(model) == shape(gpu_model(card))
    assert (model.compute_slices, model.memory_slices) == (
        gpu_model(card).compute_slices,
        gpu_model(card).memory_slices,
    )


@pytest.mark.parametrize("card", gpu_model_names())
def test_per_cents_of_a_layout_are_no_more_than_100(card: str) -> None:
    cut = mps_cut(card)
    for layout in gpu_model(cut.name).maximal_layouts():
        assert sum(cut.percentage_of(placement.profile) for placement in layout) <= 100


def test_profiles_are_named_after_mps_shares() -> None:
    assert gpu_model("mps-h100-80gb-in-7").profile_names == ("1m", "2m", "3m", "4m", "7m")


def test_the_model_says_that_mps_isolates_nothing() -> None:
    model = gpu_model("mps-a100-80gb-in-7")
    assert model.title == "NVIDIA A100 80GB (MPS, no memory isolation)"
    assert any("no isolation of memory" in note for note in model.notes)


def test_memory_and_sms_of_an_instance_are_not_claimed() -> None:
    profiles = gpu_model("mps-a100-80gb-in-7").profiles
    assert {(profile.memory_gib, profile.sm_count) for profile in profiles} == {(None, None)}


def test_a_card_that_the_catalogue_does_not_know_is_cut_as_an_a100_and_says_so() -> None:
    model = gpu_model("mps-geforce-rtx-4090-in-7")
    assert shape(model) == shape(gpu_model("a100-80gb"))
    assert model.notes[-1] == "the catalogue does not know this card: geometry of an A100 80GB"


@pytest.mark.parametrize("cut", [MpsCut("a100-80gb"), MpsCut("a30-24gb", 4), MpsCut("l4")])
def test_a_cut_by_mps_is_found_by_its_name(cut: MpsCut) -> None:
    assert MpsCut.named(cut.name.upper()) == cut


@pytest.mark.parametrize("name", ["a100-80gb", "mps", "mps-in-7", "mps-a100-80gb", "mps--in-7", "mps-a/b-in-7"])
def test_other_names_are_no_cuts_by_mps(name: str) -> None:
    assert MpsCut.named(name) is None


@pytest.mark.parametrize("name", ["mps-a100-80gb-in-4", "mps-a30-24gb-in-7", "mps-l4-in-3"])
def test_another_number_of_shares_is_refused_with_the_one_that_is_allowed(name: str) -> None:
    card = name.removeprefix("mps-").rpartition("-in-")[0]
    with pytest.raises(UnknownGpuModelError, match=f"cannot be cut into . shares; allowed: {mps_cut(card).name}"):
        gpu_model(name)


@pytest.mark.parametrize("name", ["cpu-1.6-in-7", "cpu-0.7-in-4", "mps-a100-80gb-in-7"])
def test_in_hundredths_a_share_and_the_rest_fill_the_card(name: str) -> None:
    model = in_hundredths(gpu_model(name))
    assert (model.name, model.compute_slices) == (name, 100)
    for profile in model.profiles:
        both = [model.placement(f"{profile.name}@0"), model.placement(f"{100 - profile.compute_slices}pc@1")]
        assert model.fits(both)
        assert not model.fits([*both, model.placement(f"{profile.name}@1")])


def test_hundredths_of_a_cpu_are_no_less_than_linux_can_give() -> None:
    sizes = [profile.compute_slices for profile in in_hundredths(gpu_model("cpu-0.7-in-7")).profiles]
    assert (sizes[0], sizes[-1]) == (15, 85)
    assert [profile.compute_slices for profile in in_hundredths(gpu_model("mps-a30-24gb-in-4")).profiles] == [
        *range(1, 100)
    ]
