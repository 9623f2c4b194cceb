from collections.abc import Callable
from itertools import pairwise, product

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.errors import UnknownGpuModelError
from executor.mig import GpuModel, Layout, Placement, Profile, Variant

ALL_MODELS = tuple(map(gpu_model, gpu_model_names()))
ALL_PROFILES = tuple((model, profile) for model in ALL_MODELS for profile in model.profiles)
LIMITED = {(m.name, p.name) for m, p in ALL_PROFILES if p.variant is Variant.MEDIA}
"""Media engines are few, so the driver allows one such instance wherever others would fit."""

every_model = pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model.name)
PROFILE_IDS = [f"{model.name}-{profile}" for model, profile in ALL_PROFILES]
every_profile = pytest.mark.parametrize("profile", [profile for _, profile in ALL_PROFILES], ids=PROFILE_IDS)
every_profile_of_its_model = pytest.mark.parametrize(("model", "profile"), ALL_PROFILES, ids=PROFILE_IDS)


def standard_profiles(model: GpuModel) -> tuple[Profile, ...]:
    return tuple(map(model.profile, model.standard_profile_names))


def gigabytes_in_name(name: str) -> int:
    """80 for ``a100-80gb``, 10 for ``1g.10gb+me``."""
    return int(name.partition("gb")[0].replace("-", ".").rpartition(".")[2])


def most_at_once(model: GpuModel, profile: Profile) -> int:
    """How many fit by geometry alone; first fit from the left is best for intervals of one length."""
    n_fitting, free_from = 0, 0
    for placement in (Placement(profile, start) for start in profile.starts):
        if placement.start >= free_from:
            n_fitting, free_from = n_fitting + 1, placement.end
    return min(n_fitting, model.compute_slices // profile.compute_slices)


def test_a_model_is_found_whatever_the_case_of_its_name() -> None:
    assert gpu_model("A100-80GB") is gpu_model("a100-80gb")


def is_ascending(values: list[float]) -> bool:
    return all(smaller < larger for smaller, larger in pairwise(values))


def test_eight_gpu_models_are_catalogued() -> None:
    assert gpu_model_names() == (
        "a100-40gb",
        "a100-80gb",
        "a30-24gb",
        "b200-180gb",
        "h100-80gb",
        "h100-nvl-94gb",
        "h200-141gb",
        "rtx-pro-6000-96gb",
    )


@pytest.mark.parametrize("name", gpu_model_names())
def test_model_bears_the_name_that_it_is_asked_by(name: str) -> None:
    assert gpu_model(name).name == name


@pytest.mark.parametrize(("typed", "meant"), [("a100-80", "a100-80gb"), ("a30", "a30-24gb"), ("H200", "h200-141gb")])
def test_unknown_model_is_refused_with_the_nearest_name(typed: str, meant: str) -> None:
    with pytest.raises(UnknownGpuModelError, match=rf"'{typed}' \(did you mean {meant}\?\); known: a100-40gb, a100"):
        gpu_model(typed)


@pytest.mark.parametrize("typed", ["h20", "gb200", "a10-80gb", "h800", "rtx-pro-5000-72gb", "gh200-144gb"])
def test_no_other_chip_is_offered(typed: str) -> None:
    with pytest.raises(UnknownGpuModelError, match=rf"^unknown GPU model '{typed}'; known: "):
        gpu_model(typed)


def test_a_path_is_no_model() -> None:
    with pytest.raises(UnknownGpuModelError):
        gpu_model("../catalogue/a100-80gb")


@pytest.mark.parametrize(
    ("name", "memory_slices"),
    [("a100-40gb", 8), ("h200-141gb", 8), ("b200-180gb", 8), ("a30-24gb", 4), ("rtx-pro-6000-96gb", 12)],
)
def test_memory_slices_are_in_the_gpus_own_units(name: str, memory_slices: int) -> None:
    assert gpu_model(name).memory_slices == memory_slices


@every_model
def test_profile_names_and_ids_are_unique(model: GpuModel) -> None:
    assert len(set(model.profile_names)) == len({p.gi_profile_id for p in model.profiles}) == len(model.profiles)


@every_model
def test_sources_are_named(model: GpuModel) -> None:
    assert model.sources


@every_model
def test_one_standard_profile_takes_the_whole_gpu(model: GpuModel) -> None:
    whole = standard_profiles(model)[-1]
    assert (whole.compute_slices, whole.memory_slices, whole.starts) == (
        model.compute_slices,
        model.memory_slices,
        (0,),
    )


@every_model
def test_whole_gpu_profile_is_named_after_the_cards_memory(model: GpuModel) -> None:
    assert gigabytes_in_name(standard_profiles(model)[-1].name) == gigabytes_in_name(model.name)


@every_model
def test_standard_profiles_ascend_in_compute_slices(model: GpuModel) -> None:
    assert is_ascending([profile.compute_slices for profile in standard_profiles(model)])


@every_model
def test_standard_profiles_never_shrink_in_memory(model: GpuModel) -> None:
    known = [(p.memory_slices, p.memory_gib) for p in standard_profiles(model) if p.memory_gib is not None]
    assert known == sorted(known)


@every_model
def test_standard_profiles_ascend_in_sms(model: GpuModel) -> None:
    assert is_ascending([p.sm_count for p in standard_profiles(model) if p.sm_count is not None])


@every_model
def test_no_profile_has_more_sms_than_the_gpu(model: GpuModel) -> None:
    assert all(p.sm_count is None or p.sm_count <= (model.sm_total or p.sm_count) for p in model.profiles)


@every_model
def test_what_is_unknown_is_noted(model: GpuModel) -> None:
    has_gaps = model.sm_total is None or any(None in (p.memory_gib, p.sm_count) for p in model.profiles)
    assert any("unknown" in note for note in model.notes) == has_gaps


@every_profile
def test_name_begins_with_the_compute_slices(profile: Profile) -> None:
    assert profile.name.startswith(f"{profile.compute_slices}g.")


@every_profile
def test_usable_memory_is_at_most_that_of_the_name(profile: Profile) -> None:
    assert profile.memory_gib is None or 0 < profile.memory_gib <= gigabytes_in_name(profile.name)


@every_profile_of_its_model
def test_starts_ascend_within_the_gpu(model: GpuModel, profile: Profile) -> None:
    assert is_ascending(list(profile.starts))
    assert profile.starts[0] == 0
    assert profile.starts[-1] + profile.memory_slices <= model.memory_slices


@every_profile_of_its_model
def test_max_instances_is_what_geometry_allows_or_one_for_media(model: GpuModel, profile: Profile) -> None:
    expected = 1 if (model.name, profile.name) in LIMITED else most_at_once(model, profile)
    assert profile.max_instances == expected


def most_within(model: GpuModel, weight: Callable[[Layout], int], names: tuple[str, ...]) -> dict[int, int]:
    """By set of memory slices, one bit each: the heaviest layout on them."""
    most = dict.fromkeys(range(1 << model.memory_slices), 0)
    for layout in model.layouts(names):
        most[layout.memory_mask] = max(most[layout.memory_mask], weight(layout))
    for mask, number in product(sorted(most), range(model.memory_slices)):
        most[mask] = max(most[mask], most[mask & ~(1 << number)])
    return most


@every_model
def test_what_fits_the_memory_slices_that_others_leave_fits_their_compute_slices_too(model: GpuModel) -> None:
    most = most_within(model, lambda layout: sum(p.profile.compute_slices for p in layout), model.profile_names)
    everything = (1 << model.memory_slices) - 1
    assert all(own + most[everything & ~mask] <= model.compute_slices for mask, own in most.items())


@every_profile_of_its_model
def test_only_media_engines_are_shared_with_others_beyond_their_memory_slices(
    model: GpuModel, profile: Profile
) -> None:
    most, everything = most_within(model, len, (profile.name,)), (1 << model.memory_slices) - 1
    together = max(own + most[everything & ~mask] for mask, own in most.items())
    assert together <= profile.max_instances or (model.name, profile.name) in LIMITED


@every_profile_of_its_model
def test_max_instances_is_reached_by_a_layout_and_exceeded_by_none(model: GpuModel, profile: Profile) -> None:
    assert max(len(layout) for layout in model.layouts([profile.name])) == profile.max_instances


@every_profile
def test_driver_times_are_tenths_of_a_second(profile: Profile) -> None:
    assert 0.05 <= profile.destroy_s <= 0.5
    assert 0.05 <= profile.create_s <= 0.5


@every_profile_of_its_model
def test_variant_is_standard_iff_the_name_has_no_suffix_and_memory_is_not_doubled(
    model: GpuModel, profile: Profile
) -> None:
    has_suffix = profile.name.partition("gb")[2] != ""
    smallest = model.profiles[0]
    is_doubled = profile.compute_slices == smallest.compute_slices and profile.memory_slices > smallest.memory_slices
    assert (profile.variant is Variant.STANDARD) == (not has_suffix and not is_doubled)


def test_double_memory_1g_has_more_sms_on_hopper_but_not_on_ampere() -> None:
    h100, a100 = gpu_model("h100-80gb"), gpu_model("a100-80gb")
    assert h100.profile("1g.20gb").sm_count == 26
    assert a100.profile("1g.20gb").sm_count == 14


def test_profile_ids_mean_different_profiles_on_different_gpus() -> None:
    named_14 = {p.name for m, p in ALL_PROFILES if p.gi_profile_id == 14 and m.name in ("a100-40gb", "a30-24gb")}
    assert named_14 == {"2g.10gb", "1g.6gb"}
