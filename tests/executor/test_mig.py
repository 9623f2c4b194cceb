from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.catalogue import gpu_model, gpu_model_names
from executor.errors import InvalidPlacementError, UnknownProfileError
from executor.mig import (
    GpuModel,
    HandOver,
    Layout,
    OwnedLayout,
    Placement,
    Transition,
    Variant,
    owned_transition,
    placed,
    transition,
)
from tests.seeds import examples

ALL_MODELS = tuple(map(gpu_model, gpu_model_names()))
SEVEN_SLICE_MODELS = tuple(model for model in ALL_MODELS if model.compute_slices == 7)
FOUR_SLICE_MODELS = tuple(model for model in ALL_MODELS if model.compute_slices == 4)
A100 = gpu_model("a100-40gb")
A30 = gpu_model("a30-24gb")

every_model = pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model.name)
every_seven_slice_model = pytest.mark.parametrize("model", SEVEN_SLICE_MODELS, ids=lambda model: model.name)
every_four_slice_model = pytest.mark.parametrize("model", FOUR_SLICE_MODELS, ids=lambda model: model.name)


def with_double_memory(model: GpuModel) -> tuple[str, ...]:
    doubled = (profile.name for profile in model.profiles if profile.variant is Variant.DOUBLE_MEMORY)
    return (*model.standard_profile_names, *doubled)


def n_layouts_maximal_multisets(model: GpuModel, names: tuple[str, ...]) -> tuple[int, int, int]:
    maximal = model.maximal_layouts(names)
    return len(model.layouts(names)), len(maximal), len({layout.multiset(names) for layout in maximal})


def enumerated_sets(model: GpuModel, placements: tuple[Placement, ...]) -> set[frozenset[Placement]]:
    """Every subset that respects memory slices, compute slices and counts, tried one by one by bit masks."""
    memory = [((1 << p.profile.memory_slices) - 1) << p.start for p in placements]
    taken: dict[int, int | None] = {0: 0}
    for subset in range(1, 1 << len(placements)):
        top = subset.bit_length() - 1
        rest = taken[subset ^ (1 << top)]
        taken[subset] = None if rest is None or rest & memory[top] else rest | memory[top]
    free_of_overlap = (subset for subset, mask in taken.items() if mask is not None)
    chosen = ([p for i, p in enumerate(placements) if subset >> i & 1] for subset in free_of_overlap)
    return {
        frozenset(held)
        for held in chosen
        if sum(p.profile.compute_slices for p in held) <= model.compute_slices
        and all(sum(q.profile is p.profile for q in held) <= p.profile.max_instances for p in held)
    }


@every_seven_slice_model
def test_five_standard_profiles_give_298_layouts_19_maximal_14_multisets(model: GpuModel) -> None:
    assert n_layouts_maximal_multisets(model, model.standard_profile_names) == (298, 19, 14)


@every_seven_slice_model
def test_double_memory_1g_makes_it_723_78_38(model: GpuModel) -> None:
    assert n_layouts_maximal_multisets(model, with_double_memory(model)) == (723, 78, 38)


@every_four_slice_model
def test_four_slices_give_26_layouts_5_maximal_4_multisets(model: GpuModel) -> None:
    assert n_layouts_maximal_multisets(model, model.standard_profile_names) == (26, 5, 4)


def test_there_are_six_models_of_seven_slices_and_two_of_four() -> None:
    assert (len(SEVEN_SLICE_MODELS), len(FOUR_SLICE_MODELS)) == (6, 2)


@every_model
def test_layouts_are_exactly_the_legal_subsets_of_placements(model: GpuModel) -> None:
    found = [frozenset(layout) for layout in model.layouts()]
    assert len(found) == len(set(found))
    assert set(found) == enumerated_sets(model, model.placements())


def test_layouts_with_limited_profiles_are_exactly_the_legal_subsets() -> None:
    names = ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me")
    assert {frozenset(layout) for layout in A30.layouts(names)} == enumerated_sets(A30, A30.placements(names))


def test_a_profile_that_is_named_twice_is_one_profile() -> None:
    assert A30.layouts(["4g.24gb", "4g.24gb"]) == A30.layouts(["4g.24gb"])


@every_model
def test_maximal_layouts_are_those_inside_no_other(model: GpuModel) -> None:
    held = [frozenset(layout) for layout in model.layouts()]
    inside_no_other = {small for small in held if not any(small < large for large in held)}
    assert {frozenset(layout) for layout in model.maximal_layouts()} == inside_no_other


@every_model
def test_layouts_are_ordered_by_size_then_start_then_name(model: GpuModel) -> None:
    keys = [(len(layout), [p.sort_key for p in layout]) for layout in model.layouts()]
    assert keys == sorted(keys)


@every_model
def test_multisets_are_those_of_the_layouts_without_repeats(model: GpuModel) -> None:
    names = model.standard_profile_names
    multisets = model.multisets(names)
    assert sorted(set(multisets)) == sorted(multisets)
    assert set(multisets) == {layout.multiset(names) for layout in model.layouts()}


def test_multiset_counts_in_the_order_asked_for() -> None:
    layout = A100.layout(map(A100.placement, ("2g.10gb@0", "1g.5gb@2", "1g.5gb@6")))
    assert layout.multiset(("2g.10gb", "7g.40gb", "1g.5gb")) == (1, 0, 2)


@pytest.mark.parametrize(
    "text",
    [
        "4g.20gb@0 3g.20gb@4",
        "3g.20gb@0 3g.20gb@4",
        "3g.20gb@0 2g.10gb@4 1g.5gb@6",
        "2g.10gb@0 2g.10gb@2 2g.10gb@4 1g.5gb@6",
        "1g.10gb@0 1g.10gb@2 1g.10gb@4 1g.10gb@6",
        "4g.20gb@0 1g.5gb@4 1g.5gb@5 1g.10gb@6",
        "1g.5gb+me@3 1g.5gb@0",
        "7g.40gb@0",
    ],
)
def test_these_placements_fit_an_a100(text: str) -> None:
    assert A100.fits(map(A100.placement, text.split()))


@pytest.mark.parametrize(
    "text",
    [
        "4g.20gb@0 3g.20gb@0",
        "7g.40gb@0 1g.5gb@6",
        "3g.20gb@4 1g.5gb@6",
        "3g.20gb@4 1g.10gb@6",
        "2g.10gb@2 1g.5gb@3",
        "1g.5gb@0 1g.5gb@0",
        "1g.5gb+me@0 1g.5gb+me@1",
    ],
)
def test_these_placements_do_not_fit_an_a100(text: str) -> None:
    assert not A100.fits(map(A100.placement, text.split()))


def test_compute_slices_bound_a_layout_even_where_memory_is_free() -> None:
    six_slices = GpuModel("cut", "A100 with six GPCs", 6, 8, A100.profiles)
    assert not six_slices.fits(map(A100.placement, ("4g.20gb@0", "3g.20gb@4")))


@every_seven_slice_model
def test_eighth_memory_slice_is_used_only_by_7g_3g_at_4_and_double_memory_at_6(model: GpuModel) -> None:
    users = {(p.profile.gi_profile_id, p.start) for p in model.placements(model.profile_names) if p.end == 8}
    assert users == {(0, 0), (9, 4), (15, 6)}


def test_a_profile_at_a_start_that_it_does_not_have_fits_nothing() -> None:
    assert not A100.fits([Placement(A100.profile("2g.10gb"), 1)])


def test_another_models_profile_fits_nothing() -> None:
    assert not A100.fits([A30.placement("1g.6gb@0")])


@given(st.sampled_from(A100.layouts(with_double_memory(A100))), st.data())
@settings(derandomize=True, max_examples=examples(200))
def test_every_part_of_a_layout_is_a_layout(layout: Layout, data: st.DataObject) -> None:
    left_out = data.draw(st.sets(st.sampled_from(layout.placements))) if len(layout) else set()
    assert A100.fits(placement for placement in layout if placement not in left_out)


def test_layout_is_sorted_whatever_order_it_is_given_in() -> None:
    assert str(A100.layout(map(A100.placement, ("1g.5gb@6", "4g.20gb@0")))) == "4g.20gb@0 1g.5gb@6"


def test_empty_layout_says_so() -> None:
    assert str(Layout()) == "(empty)"


def test_layout_of_overlapping_placements_is_refused_naming_them() -> None:
    with pytest.raises(InvalidPlacementError, match=r"7g.40gb@0 1g.5gb@3 is no layout of a100-40gb: .*overlap"):
        A100.layout(map(A100.placement, ("1g.5gb@3", "7g.40gb@0")))


@every_model
def test_every_placement_is_read_back_from_its_text(model: GpuModel) -> None:
    placements = model.placements(model.profile_names)
    assert tuple(model.placement(str(placement)) for placement in placements) == placements


@pytest.mark.parametrize(
    "text", ["", "2g.10gb", "2g.10gb@", "@", "2g.10gb@x", "2g.10gb@-1", "2g.10gb@1.0", "2g.10gb@٢"]
)
def test_malformed_placement_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidPlacementError, match=r"is no placement; write profile@start, e.g. 1g.5gb@0"):
        A100.placement(text)


@pytest.mark.parametrize("start", ["1", "6", "8", "00", pytest.param("9" * 5000, id="huge")])
def test_impossible_start_is_refused_with_the_possible_ones(start: str) -> None:
    with pytest.raises(InvalidPlacementError, match=r"cannot start at memory slice .* on a100-40gb; allowed: 0, 2, 4$"):
        A100.placement(f"2g.10gb@{start}")


def test_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownProfileError, match=r"a30-24gb has no MIG profile '3g.20gb'; it has 1g.6gb, 1g.6gb\+me"):
        A30.placement("3g.20gb@0")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("4g.20gb@0", "3g.20gb@0", True),
        ("4g.20gb@0", "3g.20gb@4", False),
        ("1g.5gb@1", "2g.10gb@0", True),
        ("1g.5gb@2", "2g.10gb@0", False),
    ],
)
def test_placements_overlap_iff_they_share_a_memory_slice(first: str, second: str, *, expected: bool) -> None:
    a, b = A100.placement(first), A100.placement(second)
    assert (a.overlaps(b), b.overlaps(a)) == (expected, expected)


@pytest.mark.parametrize(
    ("large", "small", "expected"),
    [
        ("2g.10gb", "1g.10gb", True),
        ("1g.10gb", "2g.10gb", False),
        ("4g.20gb", "3g.20gb", True),
        ("3g.20gb", "4g.20gb", False),
        ("1g.5gb", "1g.10gb", False),
        ("3g.20gb", "3g.20gb", True),
    ],
)
def test_at_least_as_large_means_in_compute_and_memory(large: str, small: str, *, expected: bool) -> None:
    assert A100.profile(large).is_at_least(A100.profile(small)) is expected


def test_owned_layout_is_sorted_by_start() -> None:
    entries = [(A100.placement("1g.5gb@6"), "bert"), (A100.placement("4g.20gb@0"), "resnet")]
    assert OwnedLayout.of(entries).entries == tuple(reversed(entries))


def test_owned_layout_knows_each_owner_and_nobody_elsewhere() -> None:
    held, free = A100.placement("4g.20gb@0"), A100.placement("1g.5gb@6")
    owned = OwnedLayout.of([(held, "resnet")])
    assert (owned.owner(held), owned.owner(free)) == ("resnet", None)


def test_owned_layout_can_be_made_with_its_owners_type_spelled_out() -> None:
    assert OwnedLayout[str]().entries == ()


def test_owned_layout_without_owners_is_the_layout() -> None:
    layout = A100.layout(map(A100.placement, ("4g.20gb@0", "1g.5gb@6")))
    assert OwnedLayout.of((placement, "bert") for placement in layout).layout == layout


A100 = gpu_model("a100-40gb")
LAYOUTS = A100.layouts()

Pair = tuple[Layout, Layout, Transition]


@pytest.fixture(scope="module")
def all_pairs() -> list[Pair]:
    return [(before, after, transition(before, after)) for before in LAYOUTS for after in LAYOUTS]


def layout(text: str) -> Layout:
    return A100.layout(map(A100.placement, text.split()))


def owned(text: str) -> OwnedLayout[str]:
    """``4g.20gb@0=resnet 1g.5gb@6=bert``."""
    pairs = (entry.split("=") for entry in text.split())
    return OwnedLayout.of((A100.placement(placement), owner) for placement, owner in pairs)


MEMORY_MASK = {p: ((1 << p.profile.memory_slices) - 1) << p.start for p in A100.placements()}
COMPUTE_SLICES = {p: p.profile.compute_slices for p in A100.placements()}


def illegal_step(before: Layout, change: Transition) -> Placement | None:
    """The first step that no GPU could take: destroying what is not there, or creating where there is no room."""
    standing = set(before)
    memory = sum(MEMORY_MASK[p] for p in before)
    compute = sum(COMPUTE_SLICES[p] for p in before)
    for placement in change.destroyed:
        if placement not in standing:
            return placement
        standing.remove(placement)
        memory ^= MEMORY_MASK[placement]
        compute -= COMPUTE_SLICES[placement]
    for placement in change.created:
        compute += COMPUTE_SLICES[placement]
        if memory & MEMORY_MASK[placement] or compute > A100.compute_slices:
            return placement
        standing.add(placement)
        memory |= MEMORY_MASK[placement]
    return None


def outcome(before: Layout, change: Transition) -> set[Placement]:
    return (set(before) - set(change.destroyed)) | set(change.created)


def test_there_are_88804_pairs_of_layouts(all_pairs: list[Pair]) -> None:
    assert len(all_pairs) == 88_804


def test_every_step_between_any_two_layouts_is_legal(all_pairs: list[Pair]) -> None:
    assert not [(before, after) for before, after, change in all_pairs if illegal_step(before, change)]


def test_every_transition_ends_at_its_target(all_pairs: list[Pair]) -> None:
    targets = {after: set(after) for after in LAYOUTS}
    assert all(outcome(before, change) == targets[after] for before, after, change in all_pairs)


def test_no_transition_touches_what_stands_in_both_layouts(all_pairs: list[Pair]) -> None:
    held = {layout: frozenset(layout) for layout in LAYOUTS}
    for before, after, change in all_pairs:
        in_both = held[before] & held[after]
        assert in_both.isdisjoint((*change.destroyed, *change.created))
        assert in_both == set(change.kept)


def test_every_transition_creates_large_to_small(all_pairs: list[Pair]) -> None:
    for _, _, change in all_pairs:
        sizes = [COMPUTE_SLICES[placement] for placement in change.created]
        assert sizes == sorted(sizes, reverse=True)


def test_nothing_is_done_iff_the_layouts_are_equal(all_pairs: list[Pair]) -> None:
    assert all((change.destroyed + change.created == ()) == (before == after) for before, after, change in all_pairs)


def test_what_is_destroyed_is_in_order_of_start_and_what_is_created_from_large_to_small() -> None:
    change = transition(layout("4g.20gb@0 1g.5gb@4 1g.5gb@6"), layout("1g.5gb@0 2g.10gb@2 1g.5gb@4"))
    assert list(map(str, change.destroyed)) == ["4g.20gb@0", "1g.5gb@6"]
    assert list(map(str, change.created)) == ["2g.10gb@2", "1g.5gb@0"]


def test_memory_goes_before_start_among_as_many_compute_slices() -> None:
    change = transition(Layout(), layout("1g.5gb@0 1g.10gb@6"))
    assert list(map(str, change.created)) == ["1g.10gb@6", "1g.5gb@0"]


def test_compute_goes_before_start_among_as_many_memory_slices() -> None:
    change = transition(Layout(), layout("1g.10gb@0 2g.10gb@2"))
    assert list(map(str, change.created)) == ["2g.10gb@2", "1g.10gb@0"]


def test_kept_needs_the_same_owner() -> None:
    change = owned_transition(owned("4g.20gb@0=resnet 1g.5gb@6=bert"), owned("4g.20gb@0=resnet 1g.5gb@6=resnet"))
    assert change.kept == ((A100.placement("4g.20gb@0"), "resnet"),)


def test_another_owner_gets_the_gpu_instance_as_it_stands() -> None:
    change = owned_transition(owned("4g.20gb@0=resnet"), owned("4g.20gb@0=bert"))
    assert change.handed_over == (HandOver(A100.placement("4g.20gb@0"), "resnet", "bert"),)
    assert not change.destroyed + change.created


def test_destroyed_names_the_owner_that_loses_it() -> None:
    change = owned_transition(owned("4g.20gb@0=resnet"), owned("3g.20gb@0=bert"))
    assert change.destroyed == ((A100.placement("4g.20gb@0"), "resnet"),)


def test_created_names_the_owner_that_gets_it_from_large_to_small() -> None:
    change = owned_transition(OwnedLayout[str](), owned("1g.5gb@0=bert 3g.20gb@4=resnet"))
    assert change.created == ((A100.placement("3g.20gb@4"), "resnet"), (A100.placement("1g.5gb@0"), "bert"))


OWNED_SMALL = tuple(
    OwnedLayout.of(zip(held, owners, strict=True))
    for held in LAYOUTS
    if len(held) == 2
    for owners in (("a", "a"), ("a", "b"), ("b", "a"))
)


def test_owned_steps_are_those_of_the_layouts_alone() -> None:
    for before in OWNED_SMALL[::3]:
        for after in OWNED_SMALL[::2]:
            owned_change, change = owned_transition(before, after), transition(before.layout, after.layout)
            assert tuple(placement for placement, _ in owned_change.destroyed) == change.destroyed
            assert tuple(placement for placement, _ in owned_change.created) == change.created


def test_every_owned_placement_is_accounted_for_once() -> None:
    for before in OWNED_SMALL[::2]:
        for after in OWNED_SMALL[::3]:
            change = owned_transition(before, after)
            stays = [*change.kept, *((item.placement, item.from_owner) for item in change.handed_over)]
            comes = [*change.kept, *((item.placement, item.to_owner) for item in change.handed_over)]
            assert OwnedLayout.of([*stays, *change.destroyed]) == before
            assert OwnedLayout.of([*comes, *change.created]) == after


def test_handed_over_always_changes_the_owner() -> None:
    for before in OWNED_SMALL[::2]:
        for after in OWNED_SMALL:
            handed_over = owned_transition(before, after).handed_over
            assert all(item.from_owner != item.to_owner for item in handed_over)


def test_counts_keep_as_much_of_what_stands_as_any_layout_of_these_counts() -> None:
    names = A30.standard_profile_names
    for standing, target in product(A30.layouts(), A30.layouts()):
        counts = {name: n for name, n in zip(names, target.multiset(names), strict=True) if n}
        found = placed(A30, counts, (), standing)
        assert found is not None
        assert found.multiset(names) == target.multiset(names)
        assert len(set(found) & set(standing)) >= len(set(target) & set(standing))


@pytest.mark.parametrize("counts", [{"1g.10gb": 4, "1g.5gb": 3}, {"7g.40gb": 1, "1g.5gb": 1}, {"2g.10gb": 4}])
def test_counts_that_no_layout_has_find_no_place(counts: dict[str, int]) -> None:
    assert placed(A100, counts, (), ()) is None


def test_counts_leave_room_for_what_may_come() -> None:
    assert str(placed(A100, {"1g.5gb": 1}, (), ())) == "1g.5gb@6"


def test_counts_stand_beside_placements_and_outside_what_is_avoided() -> None:
    at = A100.placement("2g.10gb@2")
    assert str(placed(A100, {"2g.10gb": 1}, [at], (), avoided=0b00110000)) == "2g.10gb@0 2g.10gb@2"
    assert placed(A100, {"3g.20gb": 1}, [at], (), avoided=0b00110000) is None
