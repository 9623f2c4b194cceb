from __future__ import annotations

import json

from plans import physical_case

from migrator.views.as_json import explanation_to_json
from planner.explain.explain import explain


def test_json_holds_everything_by_name() -> None:
    found = explain(*physical_case(), step=2)
    document = json.loads(json.dumps(explanation_to_json(found), allow_nan=False))
    assert document["held"]["holds"] == {"a": ["2g.12gb@0"], "b": ["1g.6gb@2"]}
    assert document["held"]["net"] == document["held"]["stretch_goodput"] - document["held"]["switching"]
    assert [tenant["name"] for tenant in document["tenants"]] == ["a", "b"]
    assert document["reason"] == found.reason
