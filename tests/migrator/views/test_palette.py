"""One colour, one meaning."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
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


DARK_PAPER = "#16191d"
"""Of pages in the dark, as ``page.css.j2`` has it."""

NUMBER_ON_PALE, NUMBER_ON_STRONG = "#444444", "#ffffff"
"""What plotly writes on bars that are light, and on others."""


def _light(colour: str) -> float:
    """Relative luminance, as WCAG has it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted(map(_light, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _number_on(colour: str) -> str:
    """The colour that plotly's ``Color.contrast`` picks for it."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return NUMBER_ON_STRONG if (299 * red + 587 * green + 114 * blue) / 1000 < 128 else NUMBER_ON_PALE


@pytest.mark.parametrize("colour", [*palette.LOSSES.values(), *map(palette.IN_THE_DARK.get, palette.LOSSES.values())])
def test_numbers_on_bars_can_be_read_in_the_light_and_in_the_dark(colour: str) -> None:
    assert _contrast(_number_on(colour), colour) >= 4.5


@pytest.mark.parametrize("is_dark", [False, True])
def test_goodput_stands_out_from_the_page_more_than_any_loss(is_dark: bool) -> None:
    paper = DARK_PAPER if is_dark else "#ffffff"
    shown = {name: palette.IN_THE_DARK[colour] if is_dark else colour for name, colour in palette.LOSSES.items()}
    goodput = _contrast(shown.pop("goodput"), paper)
    assert goodput >= 2 * max(_contrast(colour, paper) for colour in shown.values())


def test_nothing_wrong_is_green() -> None:
    for name in ("wrong_old", "wrong_new"):
        for colour in (palette.LOSSES[name], palette.IN_THE_DARK[palette.LOSSES[name]]):
            red, green, _ = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            assert green <= red + 3


def test_every_colour_of_a_mark_is_seen_in_the_dark() -> None:
    marks = [*palette.PAGE_TENANTS, *palette.POLICIES.values(), *palette.OWN_POLICIES, *palette.VALUES]
    assert [one for one in marks if _contrast(palette.IN_THE_DARK.get(one, one), DARK_PAPER) < 2.95] == []


def test_what_takes_a_colour_s_place_in_the_dark_is_no_other_s() -> None:
    assert len(set(palette.IN_THE_DARK.values())) == len(palette.IN_THE_DARK)
    every = {*palette.PAGE_TENANTS, *palette.POLICIES.values(), *palette.OWN_POLICIES, *palette.VALUES}
    assert not {*palette.IN_THE_DARK.values()} & {*every, *palette.LOSSES.values(), palette.ALL_WORKLOADS}


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
