"""Sirius and SGDRC: what they are, what they refuse, and what comes of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import read_config
from migrator.errors import ConfigError
from migrator.inputs.assembly import assemble
from planner.policies.beside import MEMORY, Sgdrc, Sirius
from planner.policies.registry import policy_of
from planner.policies.turns import GivingWay
from planner.policies.whole import Whole
from tests.migrator.execution.simulation import Assembled, Run, run_of
from tests.planner.policies.beside_config import CONFIG
from workloads.profiles.shares import TWENTIETHS, ShareProfile

GIVES_WAY = Sirius().gives_way
assert GIVES_WAY is not None
RESIDENT = replace(Sirius(), gives_way=replace(GIVES_WAY, memory=None))


@pytest.fixture
def assembled(tmp_path: Path) -> Callable[..., Assembled]:
    def build(**changes: Any) -> Assembled:
        path = tmp_path / "two.yaml"
        path.write_text(CONFIG.format(**{"rate": 60, "interference": 0, **changes}), "utf-8")
        return assemble(read_config(path), str(path))

    return build


def first_end_s(run: Run) -> float:
    return min(item.finish_s for item in run.retrainings)


def test_beside_batches_a_retraining_goes_on_so_that_it_ends_before_one_that_takes_turns(
    assembled: Callable[..., Assembled],
) -> None:
    made = assembled()
    assert first_end_s(run_of(made, policy_of("sgdrc"))) < first_end_s(run_of(made, Whole()))


def test_what_a_handover_loses_makes_retrainings_end_later(assembled: Callable[..., Assembled]) -> None:
    made = assembled(rate=300)
    assert first_end_s(run_of(made, Sirius.discarding())) > first_end_s(run_of(made, Sirius()))


def test_interference_slows_sirius_down_and_sgdrc_by_its_own_parameter_alone(
    assembled: Callable[..., Assembled],
) -> None:
    late = {
        (policy.name, strength): run_of(assembled(rate=900, interference=strength), policy).totals
        for policy in (Sirius(), Sgdrc())
        for strength in (0, 1)
    }
    assert late["sgdrc", 0] == late["sgdrc", 1]
    assert late["sirius", 0] != late["sirius", 1]


@pytest.mark.parametrize(("name", "strength"), [("sirius", 1), ("sirius-discarding", 1), ("sgdrc", None)])
def test_the_log_says_whom_interference_slows_down(
    assembled: Callable[..., Assembled], name: str, strength: float | None
) -> None:
    header = run_of(assembled(interference=1), policy_of(name)).log.header
    assert header.interference == strength
    assert ("interference" in {one.what for one in header.assumed}) == (strength is not None)


def test_a_retraining_that_leaves_later_than_half_the_least_slack_is_refused(
    assembled: Callable[..., Assembled],
) -> None:
    own = Sirius(gives_way=GivingWay(give_way_s=0.08))
    with pytest.raises(ConfigError, match=r"policy sirius: give_way_s 0.08: at most half of the least slack, 0.07"):
        run_of(assembled(), own)


def test_a_model_that_does_not_fit_with_its_smallest_batch_is_refused(assembled: Callable[..., Assembled]) -> None:
    setting, traffic = assembled()
    small = replace(setting.gpu, profiles=tuple(replace(one, memory_gib=1.0) for one in setting.gpu.profiles))
    refused = r"policy sirius: tenants.vision: resnet50 takes 1,806 MiB with its smallest batch; .* has 1,024 MiB"
    with pytest.raises(ConfigError, match=refused):
        run_of((replace(setting, gpu=small), traffic), Sirius())
    unknown = replace(setting.gpu, profiles=tuple(replace(one, memory_gib=None) for one in setting.gpu.profiles))
    run_of((replace(setting, gpu=unknown), traffic), Sirius())


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Sirius(), "of 111 MiB of weights; they change hands by Algorithm 1 (T_idle 5 s, W 954 MiB), come at 11,365"),
        (Sgdrc(), "turns do not look at memory"),
    ],
)
def test_the_log_says_by_what_rule_memory_changes_hands(
    assembled: Callable[..., Assembled], policy: Sirius | Sgdrc, said: str
) -> None:
    (memory,) = (one for one in run_of(assembled(), policy).log.header.assumed if one.what == "memory")
    assert said in memory.source
    assert ("Algorithm 1" in memory.source) == isinstance(policy, Sirius)


def test_without_weights_all_is_resident_and_the_log_says_so(assembled: Callable[..., Assembled]) -> None:
    setting, traffic = assembled()
    rows = tuple(replace(row, weights_mib=None) for row in setting.profiles.rows)
    bare = replace(setting, profiles=replace(setting.profiles, rows=rows))
    run = run_of((bare, traffic), Sirius())
    (memory,) = (one for one in run.log.header.assumed if one.what == "memory")
    assert memory.source.endswith("Algorithm 1 is left out: weights are not known")
    assert run.totals == run_of((setting, traffic), RESIDENT).totals


def test_models_that_are_released_make_requests_late(assembled: Callable[..., Assembled]) -> None:
    hasty = replace(MEMORY, watermark_mib=0.0, idle_s=0.0, load_mib_s=200.0)
    late = run_of(assembled(), replace(Sirius(), gives_way=replace(GIVES_WAY, memory=hasty)))
    assert sum(one.in_time for one in late.totals) < sum(one.in_time for one in run_of(assembled(), RESIDENT).totals)


@pytest.mark.parametrize("name", ["watermark_mib", "idle_s", "load_mib_s", "discard_s"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_what_memory_is_given_is_finite_and_not_below_0(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(MEMORY, **{name: value})


@pytest.mark.parametrize("name", ["give_way_s", "discard_s", "window_s", "slack_s"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_times_are_finite_and_not_below_0(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(GivingWay(), **{name: value})


@pytest.mark.parametrize("slowdown", [0.9, math.inf, math.nan])
def test_a_slowdown_is_finite_and_at_least_1(slowdown: float) -> None:
    with pytest.raises(ValueError, match="slowdown"):
        GivingWay(slowdown=slowdown)


def test_a_floor_is_the_fewest_twentieths_on_which_a_batch_is_as_fast_as_asked(
    assembled: Callable[..., Assembled],
) -> None:
    setting, _ = assembled()
    profile = ShareProfile.of(setting.profiles, setting.gpu, "resnet50", 0.15, processes=1)
    strict, loose = profile.floors(1.0), profile.floors(1.2)
    assert all(1 <= loose[batch] <= strict[batch] <= TWENTIETHS for batch in strict)
    assert loose[1] < strict[max(strict)]
