"""A whole GPU is cut by MPS as MIG cuts the card, and nobody takes its shares for instances with memory."""

from __future__ import annotations

import pytest

from executor.catalogue import gpu_model, gpu_model_names, mps_cut
from executor.catalogue.mps import MpsCut
from executor.errors import UnknownGpuModelError
from executor.mig import GpuModel


def geometry(model: GpuModel) -> set[tuple[int, int, tuple[int, ...], int]]:
    standard = map(model.profile, model.standard_profile_names)
    return {(p.compute_slices, p.memory_slices, p.starts, p.max_instances) for p in standard}


@pytest.mark.parametrize("card", gpu_model_names())
def test_geometry_is_that_of_mig_on_the_card(card: str) -> None:
    model = gpu_model(mps_cut(card).name)
    assert geometry(model) == geometry(gpu_model(card))
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


def test_the_model_says_that_nothing_is_isolated() -> None:
    model = gpu_model("mps-a100-80gb-in-7")
    assert model.title == "NVIDIA A100 80GB (MPS, no memory isolation)"
    assert any("no isolation of memory" in note for note in model.notes)


def test_memory_and_sms_of_an_instance_are_not_claimed() -> None:
    profiles = gpu_model("mps-a100-80gb-in-7").profiles
    assert {(profile.memory_gib, profile.sm_count) for profile in profiles} == {(None, None)}


def test_a_card_that_the_catalogue_does_not_know_is_cut_as_an_a100_and_says_so() -> None:
    model = gpu_model("mps-geforce-rtx-4090-in-7")
    assert geometry(model) == geometry(gpu_model("a100-80gb"))
    assert model.notes[-1] == "the catalogue does not know this card: geometry of an A100 80GB"


@pytest.mark.parametrize("cut", [MpsCut("a100-80gb"), MpsCut("a30-24gb", 4), MpsCut("l4")])
def test_a_cut_is_found_by_its_name(cut: MpsCut) -> None:
    assert MpsCut.named(cut.name.upper()) == cut


@pytest.mark.parametrize("name", ["a100-80gb", "mps", "mps-in-7", "mps-a100-80gb", "mps--in-7", "mps-a/b-in-7"])
def test_other_names_are_no_cuts(name: str) -> None:
    assert MpsCut.named(name) is None


@pytest.mark.parametrize("name", ["mps-a100-80gb-in-4", "mps-a30-24gb-in-7", "mps-l4-in-3"])
def test_another_number_of_shares_is_refused_with_the_one_that_is_allowed(name: str) -> None:
    card = name.removeprefix("mps-").rpartition("-in-")[0]
    with pytest.raises(UnknownGpuModelError, match=f"cannot be cut into . shares; allowed: {mps_cut(card).name}"):
        gpu_model(name)
