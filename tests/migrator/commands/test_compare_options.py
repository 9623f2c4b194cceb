"""What ``migrator compare`` lets change without another config file, and what it says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from migrator.comparison.matches import matches_of
from migrator.config.reading import read_config
from migrator.errors import ConfigError
from workloads.profiles.table import shipped_profiles

pytestmark = pytest.mark.usefixtures("in_this_process")

LOADED = {
    "load": 0.3,
    "windows": 1,
    "tenants.0.arrivals": {"trace": "azure-conv", "offset_s": 100},
    "tenants.1.arrivals": {"trace": "azure-conv", "offset_s": 700},
}
WITH_FACTOR = {"trace": "azure-conv", "offset_s": 700, "scale": {"factor": 2.0}}
CHEAP = ["--policies", "equal", "--jobs", 1]


def compared(call, *arguments: object) -> dict:
    code, out, err = call("compare", *arguments, *CHEAP, "--json")
    assert code == 0, err
    return json.loads(out)


def arrivals(document: dict) -> int:
    return document["overall"][0]["arrivals"]


def test_a_load_takes_the_place_of_the_config_s(call, write_config) -> None:
    config = write_config(LOADED)
    low, high = compared(call, config), compared(call, config, "--load", 0.6)
    assert arrivals(high) == pytest.approx(2 * arrivals(low), rel=0.05)
    assert [document["setup"]["small"]["load"] for document in (low, high)] == ["0.3", "0.6"]


def test_a_load_and_a_set_load_are_the_same(call, write_config) -> None:
    config = write_config(LOADED)
    assert arrivals(compared(call, config, "--load", 0.6)) == arrivals(compared(call, config, "--set", "load=0.6"))


def test_a_load_that_moves_no_tenant_is_refused(call, write_config) -> None:
    factors = {f"tenants.{index}.arrivals": WITH_FACTOR for index in (0, 1)}
    code, _, err = call("compare", write_config(LOADED | factors), "--load", 0.5, *CHEAP)
    assert code == 2
    assert "--load 0.5: " in err
    assert "has a scale.factor for every tenant" in err


def test_tenants_that_a_load_does_not_move_are_told(call, write_config) -> None:
    config = write_config(LOADED | {"tenants.1.arrivals": WITH_FACTOR})
    code, _, err = call("compare", config, "--load", 0.5, *CHEAP)
    assert code == 0
    assert "warning: --load 0.5 does not move language" in err


def profiles_file(folder: Path) -> Path:
    """The shipped table, with every latency doubled."""
    path = folder / "slow.csv"
    lines = ["source,gpu,model,profile,batch,processes,latency_ms,throughput_rps"]
    lines += [
        f"{row.source},{row.gpu},{row.model},{row.profile},{row.batch},{row.processes},"
        f"{2000 * row.latency_s},{row.throughput_rps / 2}"
        for row in shipped_profiles().rows
    ]
    path.write_text("\n".join(lines))
    return path


def test_another_table_of_profiles_is_used_and_named_in_table_json_and_page(call, write_config, tmp_path: Path) -> None:
    path, page = profiles_file(tmp_path), tmp_path / "page.html"
    arguments = ["compare", write_config(LOADED), "--profiles", path, "--plot", page, *CHEAP]
    assert "service profiles: the shipped table, recorded" in call("compare", write_config(LOADED), *CHEAP)[1]
    code, out, _ = call(*arguments)
    assert code == 0
    for text in (out, page.read_text("utf-8")):
        assert "GPU: a100-80gb, simulated" in text
        assert f"service profiles: {path.name}, recorded" in text
        assert "interference without partitions: 1 of what Mudi measured" in text


def test_a_stride_sets_segments_apart(write_config) -> None:
    config = read_config(write_config(LOADED))
    matches = matches_of(config, "x", ["equal"], 3, stride_s=500)
    assert [match.config.tenants[0].arrivals.offset_s for match in matches] == [100, 600, 1100]


def test_segments_that_would_overlap_are_refused(write_config) -> None:
    config = read_config(write_config(LOADED))
    with pytest.raises(ConfigError, match="x: --stride 59: segments of 60 s would overlap; at least 60 is needed"):
        matches_of(config, "x", ["equal"], 3, stride_s=59)


def test_a_stride_stands_in_the_table_and_in_the_json(call, write_config) -> None:
    arguments = [write_config(LOADED), "--segments", 2, "--stride", 300]
    assert compared(call, *arguments)["stride_s"] == 300
    assert "2 segments, 300 s from one begin to the next, of 1 window" in call("compare", *arguments, *CHEAP)[1]


def test_at_80_columns_every_word_is_whole(call, write_config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = call("compare", write_config(LOADED), "--policies", "static-history,migrator-paper-cold")[1]
    assert ("migrator-paper-cold" in out, "figu-" in out, "…" in out) == (True, True, False)
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines())) <= 80


def test_a_stride_without_segments_is_refused(call, write_config) -> None:
    code, _, err = call("compare", write_config(LOADED), "--stride", 300, *CHEAP)
    assert (code, "--stride 300 is between segments; give --segments as well" in err) == (2, True)


REFUSED = """from dataclasses import replace
from planner.policies.policy import Knows
from planner.solve import solve

class POLICY:
    name, knows = "boaster", Knows.FORECAST

    def plan(self, window):
        plan = solve(window.problem, "greedy")
        return replace(plan, objective=2 * plan.objective, claimed_bound=9e9)
"""


def test_a_plan_that_breaks_a_rule_is_named_beside_the_figures(call, write_config, tmp_path: Path) -> None:
    (tmp_path / "boaster.py").write_text(REFUSED)
    arguments = ["compare", write_config(LOADED), "--policies", tmp_path / "boaster.py", "--jobs", 1]
    code, out, _ = call(*arguments)
    assert code == 0
    assert "boaster: no plan in 1 window" in out
    assert "boaster: its plan was refused: window 0: rule 5: the plan claims" in out
    (refusal,) = json.loads(call(*arguments, "--json")[1])["scores"][0]["refusals"]
    assert refusal.startswith("window 0: rule 5")
