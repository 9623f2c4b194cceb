"""One colour, one meaning."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

from rich.style import Style

from executor.catalogue import gpu_model, gpu_model_names
from migrator.log.account import Account
from migrator.views import palette
from planner.policies.registry import POLICIES


def test_no_colour_of_pages_and_plots_has_two_meanings() -> None:
    meanings = Counter(
        [
            *palette.PAGE_TENANTS,
            *palette.POLICIES.values(),
            *palette.OWN_POLICIES,
            palette.UNKNOWN_POLICY,
            *palette.LOSSES.values(),
            *palette.VALUES,
            palette.ALL_WORKLOADS,
        ]
    )
    assert [colour for colour, times in meanings.items() if times > 1] == []


def test_a_tenant_s_colour_is_neither_another_s_nor_a_warning() -> None:
    assert len(set(palette.TENANTS)) == len(palette.TENANTS)
    assert not set(palette.TENANTS) & {palette.SHORT, "red", "yellow"}
    assert all(Style.parse(f"black on {colour}").bgcolor for colour in palette.TENANTS)


def test_there_is_a_colour_for_every_tenant_that_a_gpu_can_hold() -> None:
    assert (
        len(palette.PAGE_TENANTS)
        == len(palette.TENANTS)
        >= max(gpu_model(name).compute_slices for name in gpu_model_names())
    )


def test_every_policy_and_every_class_of_an_account_has_a_colour() -> None:
    assert list(POLICIES) == [name for name in POLICIES if name in palette.POLICIES]
    assert set(palette.LOSSES) == {item.name for item in fields(Account)}


def test_a_policy_has_its_colour_whoever_it_is_compared_with() -> None:
    assert palette.policy_looks(["own", "static"])["static"] == palette.policy_looks(["static"])["static"]


def test_policies_from_files_have_colours_of_their_own_then_patterns() -> None:
    names = [f"own-{number}" for number in range(6)]
    looks = palette.policy_looks(["migrator", *names])
    first = palette.OWN_POLICIES[0]
    assert [looks[name] for name in names] == [*((colour, 0) for colour in palette.OWN_POLICIES), (first, 1)]


def test_only_the_oracle_is_called_otherwise_for_people() -> None:
    assert [name for name in POLICIES if palette.shown(name) != name] == ["oracle"]
