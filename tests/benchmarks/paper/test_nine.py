"""The table of nine systems, from rows made by hand, and its rows, from what simulating gives."""

from __future__ import annotations

import pytest

from benchmarks.paper import nine
from benchmarks.paper.matches import result_of
from benchmarks.paper.nine import SYSTEMS, Entrant
from migrator.comparison.matches import Fairness
from migrator.inputs.assumed import is_disturbed
from planner.policies.registry import policy_of
from planner.policies.shares import SharePolicy

TERMS = [terms.value for terms in Fairness]


def rows(**correct: tuple[int, ...]) -> list[list[object]]:
    """By system, right answers to 100 requests on each workload, whatever the terms; a disturbed one loses 10."""
    return [
        [one.name, terms, at, f"w{number}", 100, 100, n - (10 if at else 0)]
        for terms in TERMS
        for one in SYSTEMS
        for at in (nine.INTERFERENCE if one.is_disturbed else (None,))
        for number, n in enumerate(correct.get(one.name, (50, 60)), 1)
    ]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
def test_a_system_is_disturbed_where_its_policy_is(system: Entrant) -> None:
    policy = policy_of(system.name)
    sharing = "shares" if isinstance(policy, SharePolicy) else "turns"
    assert system.is_disturbed is is_disturbed(sharing, policy)


def test_ours_is_as_shipped_and_says_so() -> None:
    (ours,) = (one for system, _, one in nine.experiments() if system.name == "migrator" and one.batch == "auto")
    assert ours.changes["sharing"] == {"pools": "auto"}
    assert "`sharing.pools: auto`" in SYSTEMS[0].given


def test_a_cell_has_the_mean_and_how_far_it_is_ahead_of_ours() -> None:
    found = nine.table(rows(mudi=(40, 54)))
    assert list(found.columns) == [f"{terms}, {at}" for terms in TERMS for at in (0, 1)]
    assert found.loc["migrator"].tolist() == ["55.00"] * 4
    assert found.loc["salus"].tolist() == ["55.00 (+0.0 [+0.0, +0.0])"] * 4
    assert found.loc["mudi"].tolist() == ["47.00 (-8.0 [-33.4, +17.4])", "37.00 (-18.0 [-43.4, +7.4])"] * 2


def test_a_workload_on_which_one_has_no_plan_counts_for_none_and_is_named() -> None:
    known = rows(migrator=(50, 60, 90))
    known += [[*row[:3], "w3", *row[4:]] for row in rows(salus=(0, 0)) if row[3] == "w1" and row[0] != "migrator"]
    without = [[*row[:4], None, None, None] if row[0] == "paris" and row[3] == "w3" else row for row in known]
    assert nine.without_plan(known) == []
    assert nine.without_plan(without) == ["`paris` on w3"]
    assert nine.table(without).equals(nine.table(rows()))


def test_shares_by_workload_are_of_the_arrivals() -> None:
    (found,) = nine.by_workload(rows()[:1]).to_dict("records")
    assert (found["goodput %"], found["in time %"], found["workload"]) == ("50.00", "100.00", "w1")
    assert nine.by_workload([]).empty


def test_rows_are_the_same_every_time_and_all_have_the_same_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nine, "SYSTEMS", [one for one in SYSTEMS if one.name in ("salus", "sirius", "sgdrc")])
    monkeypatch.setattr(nine, "WINDOWS", 1)
    monkeypatch.setattr(nine, "results_of", lambda matches: map(result_of, matches))
    found = nine.rows(["w8"])
    assert found == nine.rows(["w8"])
    assert [row[:4] for row in found[:4]] == [
        ["salus", "policy-only", None, "w8"],
        ["sirius", "policy-only", 0.0, "w8"],
        ["sirius", "policy-only", 1.0, "w8"],
        ["sgdrc", "policy-only", None, "w8"],
    ]
    assert [len({row[4] for row in found if row[1] == terms}) for terms in TERMS] == [1, 1]
