import pytest

from executor.catalogue import gpu_model
from executor.mig import Layout, OwnedLayout, Placement
from executor.transition import (
    Create,
    Destroy,
    HandOver,
    Transition,
    owned_transition,
    transition,
)

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


def illegal_step(before: Layout, change: Transition) -> str | None:
    """The first step that no GPU could take: destroying what is not there, or creating where there is no room."""
    standing = set(before)
    memory = sum(MEMORY_MASK[p] for p in before)
    compute = sum(COMPUTE_SLICES[p] for p in before)
    for step in change.steps:
        placement = step.placement
        if isinstance(step, Destroy):
            if placement not in standing:
                return str(step)
            standing.remove(placement)
            memory ^= MEMORY_MASK[placement]
            compute -= COMPUTE_SLICES[placement]
        else:
            compute += COMPUTE_SLICES[placement]
            if memory & MEMORY_MASK[placement] or compute > A100.compute_slices:
                return str(step)
            standing.add(placement)
            memory |= MEMORY_MASK[placement]
    return None


def outcome(before: Layout, change: Transition) -> set[Placement]:
    standing = set(before)
    for step in change.steps:
        if isinstance(step, Destroy):
            standing.remove(step.placement)
        else:
            standing.add(step.placement)
    return standing


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
        assert in_both.isdisjoint(step.placement for step in change.steps)
        assert in_both == set(change.kept)


def test_every_transition_destroys_before_it_creates(all_pairs: list[Pair]) -> None:
    for _, _, change in all_pairs:
        creates = [isinstance(step, Create) for step in change.steps]
        assert creates == sorted(creates)


def test_every_transition_creates_large_to_small(all_pairs: list[Pair]) -> None:
    for _, _, change in all_pairs:
        sizes = [COMPUTE_SLICES[step.placement] for step in change.steps if isinstance(step, Create)]
        assert sizes == sorted(sizes, reverse=True)


def test_nothing_is_done_iff_the_layouts_are_equal(all_pairs: list[Pair]) -> None:
    assert all((change.steps == ()) == (before == after) for before, after, change in all_pairs)


def test_steps_read_as_the_driver_calls_they_stand_for() -> None:
    change = transition(layout("4g.20gb@0 1g.5gb@4 1g.5gb@6"), layout("1g.5gb@0 2g.10gb@2 1g.5gb@4"))
    assert list(map(str, change.steps)) == [
        "destroy 4g.20gb@0",
        "destroy 1g.5gb@6",
        "create 2g.10gb@2",
        "create 1g.5gb@0",
    ]


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
    assert change.steps == ()


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
            assert owned_transition(before, after).steps == transition(before.layout, after.layout).steps


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
