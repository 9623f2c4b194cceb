"""``migrator verify``: what it says of the bound that a plan states and of the one that its certificate proves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PROBLEM = {
    "schema": 1,
    "gpu": "a100-40gb",
    "step_s": 1.0,
    "n_steps": 2,
    "reconfiguration": "paper",
    "tenants": [
        {
            "name": "vision",
            "arrivals_rps": [50, 40],
            "capability_rps": {"1g.5gb": 30},
            "retraining_s": {},
            "accuracy": {"before": 0.5, "after": 0.5},
            "overhead_s": 1.0,
            "min_profile": "1g.5gb",
        }
    ],
}
PLAN = {
    "status": "feasible",
    "objective": 30.0,
    "bound": 50.0,
    "solve_s": 0.0,
    "engine": "hand",
    "reconfiguration": "paper",
    "n_steps": 2,
    "tenants": [{"name": "vision", "inference": [[0, 2, ["1g.5gb"]]], "retraining": None}],
}
FREE = {"profiles": ["1g.5gb"], "prices": [[0.0], [0.0]]}
"""Without prices two 1g serve all 90 requests, 45 of them correctly."""


@pytest.fixture
def checked(call, tmp_path: Path):
    """What ``verify`` prints of the plan with these changes."""

    def check(*options: str, **changes: object) -> str:
        (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
        (tmp_path / "plan.json").write_text(json.dumps({**PLAN, **changes}))
        code, out, err = call("verify", tmp_path / "plan.json", tmp_path / "problem.json", *options)
        assert (code, err) == (0, "")
        return " ".join(out.split())

    return check


def test_stated_bound_and_proven_bound_stand_side_by_side(checked) -> None:
    out = checked(certificate=FREE)
    assert "the plan says that none exceeds 50: gap 40 %" in out
    assert "its certificate proves that no plan exceeds 45: gap 33.33 %" in out


def test_a_plan_without_certificate_is_told_so(checked) -> None:
    assert "it has no certificate: no bound is proven here" in checked()


def test_json_has_the_certified_bound_and_gap(checked) -> None:
    answer = json.loads(checked("--json", certificate=FREE))
    assert (answer["certified_bound"], answer["certified_gap"]) == pytest.approx((45.0, 1 / 3))


def test_json_without_certificate_has_neither(checked) -> None:
    answer = json.loads(checked("--json"))
    assert (answer["certified_bound"], answer["certified_gap"]) == (None, None)
