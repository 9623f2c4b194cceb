"""The config's models over a run: what they give, window after window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.config import validate_config
from migrator.execution.models import TabledModels
from migrator.inputs import assemble
from migrator.log import records as recorded
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.simulation import run_of
from tests.workloads.test_drift import COMPOUND
from workloads.training import TrainingOption

WINDOW_S = 100.0
TENANT = replace(COMPOUND, other_options=(TrainingOption("half", {"1g.5gb": 10.0}, 0.5),), checkpoints=((0.25, 0.5),))
"""Before 0.6 and after 0.9 in window 0, then 0.72 and 0.8; keeps 0.8, then 0.9 of its accuracy."""


def models() -> TabledModels:
    made = TabledModels([TENANT], WINDOW_S)
    made.open(0)
    return made


def test_a_model_that_nobody_retrains_falls_behind() -> None:
    own = models()
    assert [own.open(window)[0] for window in (1, 2)] == pytest.approx([0.6 * 0.8, 0.6 * 0.8 * 0.9])


@pytest.mark.parametrize(
    ("option", "checkpoint", "now", "next_"),
    [
        ("full", None, 0.9, 0.72),
        ("half", None, 0.75, 0.75 * 0.8),
        ("full", 0.25, 0.75, 0.75 * 0.8),
        ("half", 0.25, 0.675, 0.675 * 0.8),
    ],
)
def test_what_was_learned_answers_now_and_falls_by_the_drift(
    option: str, checkpoint: float | None, now: float, next_: float
) -> None:
    own = models()
    assert own.trained("a", 0, 50.0, option, checkpoint) == pytest.approx(now)
    assert own.timelines[0].at(60.0) == pytest.approx(now)
    assert own.open(1)[0] == pytest.approx(next_)


def test_a_checkpoint_that_is_no_better_is_not_served() -> None:
    own = models()
    own.trained("a", 0, 50.0)
    assert own.trained("a", 0, 60.0, "half", 0.25) == 0.9
    assert own.open(1) == (0.72,)


def test_a_retraining_that_ends_in_the_next_window_meets_the_drift() -> None:
    own = models()
    own.open(1)
    assert own.trained("a", 0, 120.0, "half") == pytest.approx(0.75 * 0.8)
    assert own.open(2)[0] == pytest.approx(0.75 * 0.8 * 0.9)


@pytest.mark.parametrize("policy", ["migrator", "static", "window"])
@pytest.mark.parametrize(
    ("max_skipped", "trained", "ages"),
    [(None, [], [1, 2, 3, 4]), (0, [0, 1, 2, 3], [1] * 4), (1, [1, 3], [1, 2, 1, 2])],
)
def test_a_run_leaves_out_as_many_retrainings_as_it_may(
    policy: str, max_skipped: int | None, trained: list[int], ages: list[int]
) -> None:
    changes = {
        "windows": 4,
        "retraining": {"required": False, "drift": "compound", "max_skipped": max_skipped},
        "tenants.0.accuracy": {"before": 0.9, "after": 0.85},  # each costs right answers
    }
    found = run_of(assemble(validate_config(changed(SMALL, changes), "small"), "small"), policy_of(policy))
    assert [own.window for own in found.retrainings if own.tenant == "vision"] == trained
    assert [own.model_age["vision"] for own in found.log.of(recorded.WindowStarted)] == ages
