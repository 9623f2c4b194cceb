from __future__ import annotations

import io
import json

import pytest
from plans import physical_case
from rich.console import Console
from windows import tenant, window

from migrator.views.explain_json import explanation_to_json
from migrator.views.explain_text import print_explanation
from planner.explain.explain import Explanation, explain
from planner.solve import solve


def printed(found: Explanation, width: int = 80) -> str:
    text = io.StringIO()
    print_explanation(found, Console(file=text, width=width, highlight=False))
    return text.getvalue()


def test_the_step_the_layouts_and_the_reason_are_printed() -> None:
    found = explain(*physical_case(), step=5)
    text = printed(found, 120)
    assert "Step 5" in text
    assert "What could be held in steps 5–6" in text
    assert "held" in text
    assert found.reason in text


def test_profiles_held_more_than_once_are_counted() -> None:
    problem = window(tenant(arrivals_rps=[280.0] * 6, capability_rps={"1g.5gb": 40.0}, retraining_s={}))
    assert "7 × 1g.5gb" in printed(explain(problem, solve(problem), 0))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = printed(explain(*physical_case(), step=3), width)
    assert max(map(len, text.splitlines())) <= width


def test_a_narrow_terminal_leaves_figures_out_but_no_names() -> None:
    found = explain(*physical_case(), step=3)
    text = printed(found, 40)
    assert max(map(len, text.splitlines())) <= 40
    assert "…" not in text
    for words in ("A a", "B b", "goodput", "net", *found.held.holds[0]):
        assert words in text
    assert "switching" not in text


def test_json_holds_everything_by_name() -> None:
    found = explain(*physical_case(), step=2)
    document = json.loads(json.dumps(explanation_to_json(found), allow_nan=False))
    assert document["held"]["holds"] == {"a": ["2g.12gb@0"], "b": ["1g.6gb@2"]}
    assert document["held"]["net"] == document["held"]["stretch_goodput"] - document["held"]["switching"]
    assert [tenant["name"] for tenant in document["tenants"]] == ["a", "b"]
    assert document["reason"] == found.reason
