from __future__ import annotations

import csv
import json

from plans import lent_case, physical_case

from migrator.views.as_json import explanation_to_json, sweep_to_csv, sweep_to_json
from planner.explain import explain
from tests.migrator.views.sweeps import REASON, sweep


def test_json_holds_everything_by_name() -> None:
    found = explain(*physical_case(), step=2)
    document = json.loads(json.dumps(explanation_to_json(found), allow_nan=False))
    assert document["held"]["holds"] == {"a": ["2g.12gb@0"], "b": ["1g.6gb@2"]}
    assert document["held"]["net"] == document["held"]["stretch_goodput"] - document["held"]["switching"]
    assert [tenant["name"] for tenant in document["tenants"]] == ["a", "b"]
    assert document["reason"] == found.reason


def test_json_holds_loans_with_what_they_take_and_win() -> None:
    document = explanation_to_json(explain(*lent_case(), step=1))
    (loan,) = document["loans"]
    assert (loan["meanwhile"], loan["later"], loan["net"]) == ({"a": -10.0, "b": 0.0}, 75.0, 65.0)
    assert (loan["placement"], loan["create_step"], loan["serve_step"], loan["end_step"]) == ("1g.6gb@2", 0, 1, 3)


def test_json_holds_numbers_as_numbers_and_factors_as_typed() -> None:
    found = json.loads(json.dumps(sweep_to_json(sweep("load=0.5,x2", "window=1", "engine=greedy"))))
    assert found["vary"] == [
        {"key": "load", "values": [0.5, "x2"]},
        {"key": "window", "values": [1]},
        {"key": "engine", "values": ["greedy"]},
    ]
    planless, some = found["results"]
    assert (planless["goodput"], planless["reason"], planless["tenants"]) == (None, REASON, {})
    assert some["values"] == {"load": "x2", "window": 1, "engine": "greedy"}
    assert (some["goodput"], some["goodput_pct"], some["gap"], some["bound"]) == (100.0, 50.0, 0.2, 125.0)
    assert (some["claimed_gap"], some["claimed_bound"]) == (0.0, 100.0)
    assert (some["salvage"], some["goodput_bound"]) == (None, 125.0)
    assert some["tenants"]["a"]["retraining"] == {
        "option": "full",
        "where": "2g.10gb@2",
        "start_step": 3,
        "end_step": 9,
    }
    assert some["tenants"]["b"]["retraining"] is None


def test_csv_has_a_line_a_point_with_its_values_first() -> None:
    lines = sweep_to_csv(sweep("load=0.5,x2", "a.slo_ms=x1")).splitlines()
    assert lines[0].startswith(
        "load,a.slo_ms,status,model,engine,arrivals,goodput,goodput_pct,slo_attainment_pct,"
        "salvage,bound,goodput_bound,gap,claimed_bound,claimed_gap,solve_s,reason,"
    )
    planless, some = csv.DictReader(lines)
    assert (planless["load"], planless["goodput"], planless["a.retraining"]) == ("0.5", "", "")
    assert (some["load"], some["a.slo_ms"], some["a.retraining"]) == ("x2", "x1", "2g.10gb@2 3-9")
