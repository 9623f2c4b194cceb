"""``migrator verify``: what it tells of the gap that a plan claims and of the one that its certificate proves."""

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
    "claimed_bound": 50.0,
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
    """What ``verify`` says of the plan with these changes: exit code, standard output, standard error."""

    def check(*options: object, **changes: object) -> tuple[int, str, str]:
        (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
        (tmp_path / "plan.json").write_text(json.dumps({**PLAN, **changes}))
        code, out, err = call("verify", tmp_path / "plan.json", tmp_path / "problem.json", *options)
        return code, " ".join(out.split()), " ".join(err.split())

    return check


def test_proven_and_claimed_gap_stand_side_by_side(checked) -> None:
    code, out, _ = checked(certificate=FREE)
    assert (code, " gap 33.33 %: by its certificate" in out, "claimed gap 40 %" in out) == (0, True, True)


OPTIMAL = {"status": "optimal", "claimed_bound": 30.0}
"""The plan says that it is the best."""


def test_a_claim_beyond_the_certificate_is_refused_where_that_is_asked(checked) -> None:
    code, _, err = checked("--strict", **OPTIMAL, certificate=FREE)
    assert (code, "claims a gap of 0 %; its certificate proves 33.33 %" in err) == (2, True)
    assert checked("--strict", claimed_bound=45.0, certificate=FREE)[0] == 0
    code, _, err = checked("--strict", **OPTIMAL)
    assert (code, "the proven gap is none; --strict asks for one" in err) == (2, True)


def test_a_claim_beyond_the_certificate_is_told(checked) -> None:
    code, out, err = checked(**OPTIMAL, certificate=FREE)
    assert (code, err, " gap 33.33 %: by its certificate" in out, "only its engine's word" in out) == (
        0,
        "",
        True,
        True,
    )


def test_without_a_certificate_nothing_is_called_proven(checked) -> None:
    code, out, _ = checked(**OPTIMAL)
    assert (code, " gap –: it has no certificate" in out, "only its engine's word" in out) == (0, True, True)


def test_a_plan_that_claims_nothing_needs_no_certificate(checked) -> None:
    code, out, _ = checked(claimed_bound=None)
    assert (code, " gap –: it has no certificate" in out, "claimed gap –" in out) == (0, True, True)


@pytest.mark.parametrize(("largest", "code"), [(0.34, 0), (0.33, 2)])
def test_the_proven_gap_may_be_limited(checked, largest: float, code: int) -> None:
    assert checked("--max-gap", largest, certificate=FREE)[0] == code


def test_a_limit_needs_a_gap(checked) -> None:
    code, _, err = checked("--max-gap", 0.5, **OPTIMAL)
    assert (code, "the proven gap is none; --max-gap allows 50 %" in err) == (2, True)


def test_a_broken_rule_comes_before_all_claims(checked) -> None:
    code, out, err = checked(objective=31.0)
    assert (code, "rule 5" in out, "breaks 1 rule" in err) == (2, True, True)


def test_json_tells_proven_from_claimed(checked) -> None:
    answer = json.loads(checked("--json", certificate=FREE)[1])
    assert (answer["bound"], answer["gap"]) == pytest.approx((45.0, 1 / 3))
    assert (answer["claimed_bound"], answer["claimed_gap"], answer["claim_proven"]) == (50.0, 0.4, True)


def test_json_without_certificate_proves_nothing(checked) -> None:
    answer = json.loads(checked("--json")[1])
    assert (answer["bound"], answer["gap"], answer["claim_proven"]) == (None, None, False)


def test_a_run_that_told_which_floor_it_misses_is_no_broken_one(call, write_config) -> None:
    changes = {"tenants.0.arrivals.rate_rps": 4000, "tenants.0.min_slo_attainment": 1.0, "windows": 1}
    code, _, err = call("run", write_config(changes), "--out", "run")
    assert code == 0
    assert "; misses vision: " in err
    code, out, err = call("verify", "run")
    assert (code, err) == (0, "")
    assert "window 0 of run keeps all rules, but misses floors, as its run told:" in out
    assert json.loads(call("report", "run", "--json")[1])["windows"][0]["plan"].get("violation") is None
