"""What the driver says becomes a GPU model; the catalogue is compared, not believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from executor.catalogue import gpu_model
from executor.discovery import card_name, disagreements, discovered_model
from executor.mig import GpuModel, Profile, Variant
from tests.standin.cards import A30, A100_40, A100_80, CARDS, H100_80, RTX_PRO_6000, TWO_HALVES, Card


def profiles_of(card: Card) -> list[Profile]:
    return [
        Profile(
            name=facts.name,
            gi_profile_id=facts.id,
            compute_slices=facts.compute_slices,
            max_instances=facts.max_instances,
            sm_count=facts.sms,
            memory_gib=facts.memory_gib,
            starts=facts.starts,
            memory_slices=facts.memory_slices,
        )
        for facts in card.profiles
    ]


def discovered(card: Card) -> GpuModel:
    return discovered_model(card.name, profiles_of(card))


@pytest.mark.parametrize(
    ("card", "name"),
    [
        (A100_40, "a100-40gb"),
        (A100_80, "a100-80gb"),
        (H100_80, "h100-80gb"),
        (A30, "a30-24gb"),
        (RTX_PRO_6000, "rtx-pro-6000-96gb"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_card_that_the_catalogue_knows_has_its_name(card: Card, name: str) -> None:
    assert discovered(card).name == name


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_sizes_are_the_drivers(card: Card) -> None:
    model = discovered(card)
    assert (model.compute_slices, model.memory_slices) == (card.compute_slices, card.memory_slices)


@pytest.mark.parametrize("card", [A100_40, A100_80, H100_80, A30, RTX_PRO_6000], ids=lambda card: card.name)
def test_layouts_are_those_of_the_catalogue(card: Card) -> None:
    model = discovered(card)
    assert set(map(str, model.layouts())) == set(map(str, gpu_model(model.name).layouts()))


def test_an_unknown_card_is_named_after_its_title() -> None:
    assert discovered(TWO_HALVES).name == "imaginary-two-way-gpu"
    assert disagreements(discovered(TWO_HALVES)) == (
        "Imaginary two-way GPU is not in the catalogue: the driver's word alone counts",
    )


def test_a_card_of_another_chip_is_not_taken_for_a_known_one() -> None:
    assert discovered_model("NVIDIA A800-SXM4-80GB", profiles_of(A100_80)).name == "a800-sxm4-80gb"


def test_a_known_card_agrees_with_the_catalogue() -> None:
    assert disagreements(discovered(A100_80)) == ()


def test_a_driver_that_disagrees_is_quoted() -> None:
    first, *others = profiles_of(A100_80)
    model = discovered_model(
        A100_80.name, [replace(first, sm_count=15), *others[:-1], replace(others[-1], name="7g.81gb")]
    )
    assert disagreements(replace(model, name="a100-80gb")) == (
        "1g.10gb: sm_count is 15 by the driver, 14 in the catalogue",
        "7g.81gb: name is 7g.81gb by the driver, 7g.80gb in the catalogue",
    )


def test_profiles_are_known_by_their_cut_and_memory_and_keep_the_drivers_names() -> None:
    renamed = [
        replace(p, name=p.name.replace("1g.10gb", "1g.9gb"), memory_gib=p.memory_gib * 0.985)
        for p in profiles_of(A100_80)
        if p.memory_gib
    ]
    model = discovered_model(A100_80.name, renamed)
    assert (model.name, model.profile("1g.9gb").create_s) == (
        "a100-80gb",
        gpu_model("a100-80gb").profile("1g.10gb").create_s,
    )


@pytest.mark.parametrize(
    "change", [{"memory_gib": 9.2}, {"gi_profile_id": 18}, {"starts": (0, 1, 2)}, {"sm_count": 15}], ids=str
)
def test_a_card_with_another_profile_is_not_the_catalogues(change: dict[str, Any]) -> None:
    first, *others = profiles_of(A100_80)
    assert discovered_model(A100_80.name, [replace(first, **change), *others]).name == "a100-sxm4-80gb"


def test_suffixes_tell_the_variant() -> None:
    variants = {profile.name: profile.variant for profile in discovered(RTX_PRO_6000).profiles}
    assert variants["1g.24gb"] is Variant.STANDARD
    assert variants["1g.24gb+me"] is variants["1g.24gb+me.all"] is Variant.MEDIA
    assert variants["1g.24gb+gfx"] is Variant.GRAPHICS
    assert variants["1g.24gb-me"] is Variant.NO_MEDIA


def test_the_1g_with_twice_the_memory_is_a_variant() -> None:
    assert discovered(A100_80).profile("1g.20gb").variant is Variant.DOUBLE_MEMORY


def test_times_of_calls_are_the_catalogues() -> None:
    assert discovered(A100_80).profile("7g.80gb").create_s == gpu_model("a100-80gb").profile("7g.80gb").create_s


@pytest.mark.parametrize(
    ("title", "memory_mib", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", 40_960, "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", 81_559, "h100-80gb"),
        ("NVIDIA H100 NVL", 95_830, "h100-nvl-94gb"),
        ("NVIDIA A30", 24_576, "a30-24gb"),
        ("NVIDIA B200", 183_359, "b200-180gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, "rtx-pro-6000-96gb"),
        ("NVIDIA RTX 6000 Ada Generation", 49_140, "rtx-6000-ada-generation"),
        ("NVIDIA GeForce RTX 4090", 24_564, "geforce-rtx-4090"),
        ("Tesla V100-SXM2-16GB", 16_384, "tesla-v100-sxm2-16gb"),
    ],
)
def test_a_whole_card_is_known_by_its_chip_and_memory(title: str, memory_mib: int, name: str) -> None:
    assert card_name(title, memory_mib / 1024) == name
