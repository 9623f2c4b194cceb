"""What of a service's config may change while it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from migrator.config.changing import changes_of, in_words, require_layout, restarts
from migrator.config.reading import validate_config
from migrator.config.sections import Config
from migrator.errors import ConfigError
from tests.migrator.config.test_models import SERVES, both_live
from tests.migrator.conftest import SMALL, changed

TOKENS = {"vision": "a", "language": "b"}


def config(changes: Mapping[str, Any]) -> Config:
    given = changed(SMALL, {**both_live(SERVES, SERVES), "windows": None, **changes})
    return validate_config({key: one for key, one in given.items() if one is not None}, "small")


def test_tokens_and_origins_of_the_door_may_change() -> None:
    before = config({"front_door": {"tokens": TOKENS}, "name": "one"})
    after = config({"front_door": {"tokens": TOKENS | {"language": "c"}, "origins": ["https://a.b"]}, "name": "other"})
    assert in_words(changes_of(before, after, "f")) == (
        "front_door.tokens.language: 'b' becomes 'c'",
        "front_door.origins: [] becomes ['https://a.b']",
    )
    assert changes_of(before, before, "f") == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tenants.1.slo_ms": 900}, ["tenants.language.slo_ms: 330.0 becomes 900.0"]),
        ({"tenants.1.weight": 2}, ["tenants.language.weight: 1.0 becomes 2.0"]),
        ({"tenants.1.alone": True}, ["tenants.language.alone: False becomes True"]),
        ({"tenants.1.min_slo_attainment": 0.9}, ["tenants.language.min_slo_attainment: nothing becomes {"]),
        ({"sharing": {"pools": "auto"}}, ["sharing.pools: 'off' becomes 'auto'"]),
        ({"pin": {"layout": True}}, ["pin: nothing becomes {'layout': True"]),
        ({"tenants.1.pin": {"weights": "first"}}, ["tenants.language.pin: nothing becomes {'weights': 'first'}"]),
        ({"tenants.1.name": "third"}, ["tenant language goes", "tenant third comes"]),
        (
            {"tenants.1.name": "third", "tenants.1.weights_from": "window-3 of a.0"},
            ["tenant language goes", "tenant third comes; its weights are window-3 of a.0"],
        ),
    ],
)
def test_tenants_may_come_and_go_and_other_things_be_asked_for_them(changes: dict[str, Any], said: list[str]) -> None:
    found = changes_of(config({}), config(changes), "f")
    for line, begin in zip(in_words(found), said, strict=True):
        assert line.startswith(begin)
    assert all(one.is_of_plans for one in found)
    assert any(one.is_of_set for one in found) == ("tenant language goes" in said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 9}, "f: seed: 3 becomes 9; a service keeps it: set it as it was, or serve with another --out"),
        ({"window_s": 120}, "window_s: 60.0 becomes 120.0"),
        ({"step_s": 2}, "step_s: 1.0 becomes 2.0"),
        ({"gpu.model": "h100-80gb"}, "gpu.model: 'a100-80gb' becomes 'h100-80gb'"),
        ({"front_door": {"port": 9}}, "front_door.port: 0 becomes 9"),
        ({"tenants.1.model": "bert-base"}, "tenants.language.model"),
        (
            {"tenants.1.arrivals": {"live": True, "expect_rps": 9}},
            "tenants.language.arrivals.expect_rps: 5.0 becomes 9.0",
        ),
        ({"sharing": {"turn_cost": 0.5}}, "sharing.turn_cost"),
    ],
)
def test_all_else_stays_and_the_first_such_key_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        changes_of(config({}), config(changes), "f")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"front_door": {"port": 0, "tokens": TOKENS}}, "nothing restarts"),
        ({"tenants.1.weight": 2}, "nothing restarts; plans go by it from the next window on"),
        ({"tenants.1.weight": 2, "pin": {"layout": True}}, "nothing restarts"),
        ({"tenants.1.name": "third"}, "who goes ends, who comes starts; the plan of the window's rest says what else"),
        ({"tenants.1.name": "third", "pin": {"layout": True}}, "nothing restarts: the layout stays"),
    ],
)
def test_what_restarts_is_said_as_far_as_it_is_known_before_there_is_a_plan(changes: dict[str, Any], said: str) -> None:
    after = config(changes)
    assert restarts(after, changes_of(config({}), after, "f")).startswith(said)


@pytest.mark.parametrize(("layout", "is_refused"), [("auto", True), (["3g.40gb", "4g.40gb"], False)])
def test_beside_a_layout_that_was_chosen_for_them_terms_stay(layout: Any, is_refused: bool) -> None:
    held = {"planner.layout": layout, "sharing": {"pools": "auto"}}
    before, after = config(held), config({**held, "tenants.1.weight": 2})
    require_layout(before, changes_of(before, before, "f"), "f")
    if not is_refused:
        require_layout(after, changes_of(before, after, "f"), "f")
        return
    with pytest.raises(
        ConfigError, match=r"^f: tenants\.language\.weight: 1\.0 becomes 2\.0; planner\.layout: auto was"
    ):
        require_layout(after, changes_of(before, after, "f"), "f")
