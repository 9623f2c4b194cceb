"""What ``sharing.pools`` means to each policy, and for how many tenants there is room under it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.errors import ConfigError, ExitCode, InfeasibleError, exit_code_of
from migrator.inputs.assembly import assemble
from migrator.inputs.assumed import assumed_in
from migrator.inputs.pools import as_shared, lacks_pools, require_shareable, sharing_in_words, without_turns
from planner.policies.registry import POLICIES, VARIANTS, policy_of
from tests.migrator.conftest import SMALL
from tests.seeds import daily
from workloads.profiles.table import shipped_profiles, text_of


def many(n_tenants: int, pools: Any = "off", **others: Any) -> dict[str, Any]:
    """The small config with so many tenants like its first."""
    tenants = [{**SMALL["tenants"][0], "name": f"t{number}"} for number in range(n_tenants)]
    return {"tenants": tenants, "sharing": {"pools": pools}, **others}


def test_our_planner_alone_has_pools_whatever_it_knows() -> None:
    has = {name for name in [*POLICIES, *VARIANTS] if policy_of(name).has_pools}
    assert has == {"migrator", "oracle", *(name for name in VARIANTS if name.startswith("lookahead-"))}


def test_a_policy_of_ones_own_has_pools_if_it_says_so(tmp_path: Path) -> None:
    text = "from planner.policies.policy import Knows\nclass POLICY:\n    name, knows = 'mine', Knows.FORECAST\n"
    for says, has in (("", False), ("    has_pools = True\n", True)):
        path = tmp_path / "mine.py"
        path.write_text(f"{text}{says}    def plan(self, window): return None\n")
        assert policy_of(str(path)).has_pools is has


@pytest.mark.parametrize("name", [*POLICIES, *VARIANTS])
def test_auto_is_off_to_a_policy_without_pools_and_said_to_be(write_config, name: str) -> None:
    policy = policy_of(name)
    setting, _ = assemble(read_config(write_config({"sharing": {"pools": "auto", "turn_cost": 0.1}})), "here")
    told = [item.source for item in assumed_in(setting, policy=policy) if item.what == "pools"]
    shared = as_shared(setting, policy).config.sharing
    assert lacks_pools(setting.config, policy) is not policy.has_pools
    assert (shared.pools, shared.turn_cost) == ("auto" if policy.has_pools else "off", 0.1)
    assert told == ([] if policy.has_pools else [f"policy {name} has none: sharing.pools auto means off"])


def test_memory_that_is_not_known_is_assumed_where_instances_may_be_shared(write_config) -> None:
    def told(policy: str, **changes: Any) -> dict[str, list[tuple[str | None, Any]]]:
        found: dict[str, list[tuple[str | None, Any]]] = {}
        for item in assumed_in(assemble(read_config(write_config(changes)), "here")[0], policy=policy_of(policy)):
            if item.what.startswith("memory of"):
                found.setdefault(item.what, []).append((item.tenant, item.value))
        return found

    auto = {"sharing": {"pools": "auto"}}
    assert (
        told("migrator", **auto)
        == told("migrator", sharing=None)
        == {
            "memory of a process beside weights": [("language", 400.0)],  # of ResNet-50 it was measured
            "memory of some batches": [("language", 0.0)],
        }
    )
    assert told("migrator", **auto, **{"tenants.1.alone": True}) == told("static", **auto) == {}
    assert told("migrator", sharing={"pools": "off"}) == {}


def with_turn_costs(path: Path, **costs: float) -> str:
    """The shipped table with what a turn costs on the first profile of these models."""
    rows = list(shipped_profiles().rows)
    for model, cost in costs.items():
        place = next(n for n, row in enumerate(rows) if row.model == model.replace("_", "-"))
        rows[place] = replace(rows[place], turn_cost=cost)
    path.write_text(text_of(rows))
    return str(path)


TOGETHER = [["vision", "language"]]
APART = [["vision"], ["language"]]
COSTS: list[tuple[dict[str, float], dict[str, Any], float, list[str]]] = [
    ({}, {"pools": "auto"}, 0.05, [""]),
    ({}, {"pools": TOGETHER}, 0.05, [""]),
    ({}, {"pools": TOGETHER, "turn_cost": 0.0}, 0.0, []),
    ({}, {"pools": "off"}, 0.05, []),
    ({}, {"pools": APART}, 0.05, []),
    ({"resnet50": 0.2, "bert_large": 0.01}, {"pools": "auto"}, 0.2, []),
    ({"resnet50": 0.2, "bert_large": 0.01}, {"pools": TOGETHER, "turn_cost": 0.1}, 0.1, []),
    ({"resnet50": 0.2, "bert_large": 0.01}, {"pools": APART}, 0.05, []),
    ({"resnet50": 0.01, "bert_large": 0.0}, {"pools": TOGETHER}, 0.01, []),
    ({"resnet50": 0.01}, {"pools": TOGETHER}, 0.05, [" of language"]),
    ({"resnet50": 1.5}, {"pools": "auto"}, 1.5, [" of language"]),
]


@pytest.mark.parametrize(("measured", "sharing", "cost", "assumed"), COSTS)
def test_a_turn_costs_what_the_config_says_else_the_dearest_measured_else_what_is_assumed(
    write_config, tmp_path: Path, measured: dict[str, float], sharing: dict[str, Any], cost: float, assumed: list[str]
) -> None:
    table = with_turn_costs(tmp_path / "own.csv", **measured)
    config = read_config(write_config({"profiles": table, "sharing": sharing, "tenants.0.batch": 2}))
    again = validate_config(yaml.safe_load(config_yaml(config)), "again")
    for setting in (assemble(config, "here")[0], assemble(again, "again")[0]):
        assert setting.turn_cost == cost
        told = [(item.tenant, item.value, item.source) for item in assumed_in(setting) if item.what == "turn_cost"]
        assert told == [(None, 0.05, f"not in the service profiles{whose}") for whose in assumed]


def test_points_have_the_measured_cost_in_every_turn(write_config, tmp_path: Path) -> None:
    def longer(cost: float, **given: float) -> list[float]:
        table = with_turn_costs(tmp_path / "own.csv", resnet50=cost, bert_large=cost)
        config = read_config(write_config({"profiles": table, "sharing": {"pools": TOGETHER, **given}}))
        points = assemble(config, "here")[0].joint_points.of(["vision", "language"]).by_member
        return [point.rate_rps / point.planned_rps for own in points.values() for point in own.values()]

    assert set(longer(0.0)) == set(longer(0.25, turn_cost=0.0)) == {1.0}
    assert longer(0.25) == pytest.approx([1.25] * len(longer(0.25)))


@pytest.mark.parametrize("pools", [TOGETHER, APART])
def test_listed_pools_are_refused_by_a_policy_without(write_config, pools: list[list[str]]) -> None:
    config = read_config(write_config({"sharing.pools": pools}))
    require_shareable(config, "here", policy_of("oracle"))
    with pytest.raises(ConfigError, match=r"^here: sharing\.pools lists pools, and policy static has none; off or"):
        require_shareable(config, "here", policy_of("static"))


def test_a_layout_is_refused_by_a_policy_without_pools(write_config) -> None:
    config = read_config(write_config({"sharing.pools": "auto", "planner.layout": ["3g.40gb", "4g.40gb"]}))
    require_shareable(config, "here", policy_of("oracle"))
    for name in ("static", "whole", "ekya"):
        with pytest.raises(
            ConfigError, match=rf"^here: planner\.layout is held by one pool.* and policy {name} has no"
        ):
            require_shareable(config, "here", policy_of(name))


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (["7g.80gb"], "tenant vision: its retraining fits no loan: of 7g.80gb@0, none .* what it needs"),
        (
            ["1g.10gb", "1g.10gb"],
            "tenant language: the layout 1g.10gb@., .* has nothing as large as min_profile 3g.40gb",
        ),
    ],
)
def test_a_layout_without_plan_ends_with_3_and_the_rule(write_config, call, layout: list[str], reason: str) -> None:
    changes = {"sharing.pools": "auto", "planner.layout": layout, "tenants.1.min_profile": "3g.40gb"}
    for verb in ("plan", "run"):
        code, _, err = call(verb, write_config(changes))
        assert (code, bool(re.search(reason, err))) == (3, True)


def test_room_is_for_as_many_owners_as_compute_slices(write_config) -> None:
    n_slices, names = 7, [f"t{number}" for number in range(8)]
    alone, paired = [[name] for name in names], [names[:2], *([name] for name in names[2:])]
    cases = [
        (n_slices, "off", "migrator", None),
        (n_slices + 1, "off", "migrator", f"tenants: {n_slices + 1} given.*none is left for t{n_slices}; with"),
        (n_slices + 1, "off", "static", f"tenants: {n_slices + 1} given.*none is left for t{n_slices}$"),
        (n_slices + 1, "auto", "static", f"tenants: {n_slices + 1} given.*under policy static"),
        (n_slices + 1, "auto", "migrator", None),
        (n_slices + 1, alone, "migrator", f"sharing.pools: {n_slices + 1} given.*none is left for t{n_slices}; with"),
        (n_slices + 1, paired, "migrator", None),
        (n_slices + 1, "off", "whole", None),
        (n_slices + 1, "off", "time-sharing", None),
    ]
    for n_tenants, pools, name, refusal in cases:
        setting, _ = assemble(read_config(write_config(many(n_tenants, pools))), "here")
        if refusal is None:
            as_shared(setting, policy_of(name))
            continue
        with pytest.raises(InfeasibleError, match=refusal) as caught:
            as_shared(setting, policy_of(name))
        assert exit_code_of(caught.value) is ExitCode.INFEASIBLE


def test_a_run_without_room_ends_with_3_and_leaves_no_folder(write_config, call) -> None:
    path = write_config(many(8))
    code, _, err = call("run", path, "--out", "runs/many")
    assert (code, err.splitlines()[-1].count("8 given"), Path("runs").exists()) == (3, 1, False)
    assert call("plan", path)[0] == 3
    assert call("run", path, "--policy", "static", "--set", "sharing.pools=auto", "--out", "runs/many")[0] == 3
    assert not Path("runs").exists()


@pytest.mark.usefixtures("in_this_process")
def test_a_grid_tells_where_there_is_no_room(write_config, call) -> None:
    code, out, _ = call("whatif", write_config(many(8)), "--vary", "tenants=2,8", "--json")
    assert (code, "none is left for t7" in out) == (0, True)


def test_paper_has_no_pools(write_config, call) -> None:
    assert call("whatif", write_config({"sharing": None}), "--vary", "model=paper")[0] == 0
    path = write_config({"sharing.pools": [["vision", "language"]]})
    code, _, err = call("whatif", path, "--vary", "model=paper")
    assert (code, "sharing.pools lists pools, and the paper model has none" in err, err.count("\n")) == (
        2,
        True,
        1,
    )


@pytest.mark.parametrize("policy", daily(["whole", "time-sharing"], ["time-sharing"]))
def test_turns_on_the_whole_gpu_take_more_tenants_than_compute_slices(write_config, call, policy: str) -> None:
    path = write_config(many(9, "auto", windows=1))
    assert call("run", path, "--policy", policy, "--out", "runs/many")[0] == 0
    assert f"pools: 0; policy {policy} has none" in call("report", "runs/many", "--assumed")[1]
    assert yaml.safe_load(Path("runs/many/config.yaml").read_text())["sharing"]["pools"] == "auto"


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("policy", ["ekya", "astraea"])
def test_more_tenants_than_shares_are_refused_in_one_line(write_config, call, policy: str) -> None:
    path = write_config(many(21, "auto", windows=1))
    refused = f"{path}: tenants: 21 given; policy {policy} divides a GPU into 20 shares and gives every tenant one: 20"
    for asked in (
        ("run", path, "--policy", policy),
        ("run", path, "--policy", "whole", "--against", policy),
        ("compare", path, "--policies", f"whole,{policy}"),
    ):
        code, _, err = call(*asked)
        assert (code, refused in err, err.count("\n")) == (2, True, 1)


@pytest.mark.usefixtures("in_this_process")
def test_a_policy_and_its_rival_take_the_same_config(write_config, call) -> None:
    path = write_config({"sharing.pools": "auto", "windows": 1})
    assert call("run", path, "--policy", "static", "--against", "whole", "--out", "runs/one")[0] == 0
    assert call("compare", path, "--policies", "static,whole")[0] == 0
    listed = ("--set", "sharing.pools=[[vision, language]]")
    for asked in (("run", path, "--against", "static", "--out", "runs/two"), ("compare", path, "--policies", "static")):
        code, _, err = call(*asked, *listed)
        assert (code, "policy static has none; off or auto is needed" in err) == (2, True)


def test_a_run_says_what_may_be_shared_and_that_nobody_shares_where_all_are_alone(write_config) -> None:
    policy = policy_of("migrator")

    def said(names: int, alone: int = 0, **changes: Any) -> str | None:
        config = read_config(write_config({**many(names, "auto"), **changes}))
        tenants = [one.model_copy(update={"alone": place < alone}) for place, one in enumerate(config.tenants)]
        return sharing_in_words(config.model_copy(update={"tenants": tenants}), policy)

    assert said(1) is None
    assert (said(2) or "").startswith("t0 and t1 may share instances by turns")
    assert (said(4, 1) or "").startswith("t1, t2 and t3 may share")
    assert (said(6) or "").startswith("6 tenants may share")
    assert (said(2, 1) or "").startswith("sharing.pools: as off, since at most one tenant is not")
    assert said(2, **{"sharing.pools": "off"}) is None
    assert sharing_in_words(read_config(write_config(many(2, "auto"))), policy_of("static")) is None


def test_where_an_instance_takes_one_process_pools_that_the_plan_chooses_are_off_in_live_runs(write_config) -> None:
    learns = {f"tenants.{place}.learning": {"benchmark": "digits"} for place in (0, 1)}
    live = read_config(write_config({**learns, "gpu.backend": "nvml", "sharing": None}))
    assert without_turns(live, None).sharing.pools == "off"
    assert without_turns(live, "MPS") is live
    assert without_turns(simulated := read_config(write_config()), None) is simulated
