"""The config's models over a run: what they give, window after window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.config.sections import DecisionConfig
from migrator.execution.models import (
    STILL,
    AccuracyHistory,
    Lessons,
    TabledModels,
    outlooks,
    salvage_of,
    unseen,
    windows_ahead,
)
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.log import records as recorded
from migrator.log.records import Outlook
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.simulation import run_of
from tests.workloads.test_tenants import COMPOUND
from workloads.serving.servers import AccuracyTimeline
from workloads.tenants import Tenant, accuracy_at_start
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
    assert own.accuracies["a"].timeline.at(60.0) == pytest.approx(now)
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


def test_a_model_that_answers_with_older_weights_is_as_old_as_they_are_until_it_is_retrained() -> None:
    lessons = Lessons([("a", 1), ("a", 2)])
    lessons.roll_back("a", 1)
    assert (lessons.last("a"), lessons.but(more=[("a", 3)]).last("a"), lessons.but().last("a")) == (1, 3, 1)
    lessons.add("a", 3)
    assert lessons.last("a") == 3
    lessons.roll_back("a", -1)
    assert (lessons.last("a"), lessons.last("b")) == (-1, -1)


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


@pytest.mark.parametrize("policy", ["migrator", "static", "time-sharing", "ekya", "salus"])
def test_a_model_that_is_good_enough_is_not_retrained(policy: str) -> None:
    begins = [0.6, 0.8, 0.79, 0.81]
    changes = {
        "windows": 4,
        "tenants.0.accuracy": [{"before": own, "after": 0.9} for own in begins],
        "tenants.0.retraining.below": 0.8,
    }
    found = run_of(assemble(validate_config(changed(SMALL, changes), "small"), "small"), policy_of(policy))
    assert [own.window for own in found.retrainings if own.tenant == "vision"] == [0, 2]


ALL = (True, True, True)


def setting(changes: dict[str, Any] | None = None) -> Setting:
    return assemble(validate_config(changed(SMALL, changes or {}), "x"), "x")[0]


def tenant(changes: dict[str, Any] | None = None) -> Tenant:
    return setting(changes).tenants[0]


def outlook(window: int, timeline: AccuracyTimeline, *trained: int, changes: dict[str, Any] | None = None) -> Outlook:
    past, seen = (
        Lessons(("vision", number) for number in trained),
        AccuracyHistory(dict(zip(timeline.from_s, timeline.accuracy, strict=True))),
    )
    own = setting({"retraining.drift_prior": 0.7, **(changes or {})})
    return outlooks(own.tenants[:1], own.config, window, {"vision": seen}, past, {"vision": 0.5})[0]


def test_before_anything_was_seen_the_priors_count() -> None:
    first = Outlook(drift=0.7, stays=0.25, in_time=0.5, ahead=ALL, still=STILL)
    assert outlook(0, AccuracyTimeline((0.0,), (0.6,))) == first
    own = setting({"retraining.drift_prior": 0.7})
    assert unseen(own.tenants[0], own.config, 0) == Outlook(drift=0.7, stays=0.25, in_time=1.0, ahead=ALL, still=STILL)


@pytest.mark.parametrize(
    ("until_s", "changes", "drift"),
    [
        (49.0, {}, 0.7),
        (51.0, {}, 0.5 / 0.9),
        (51.0, {"planner.planning_s": 12}, 0.7),
        (51.0, {"tenants.0.retraining.windows": 0}, 0.7),
    ],
    ids=["before it ended", "once it ended", "after the plan was begun", "nothing to learn"],
)
def test_until_a_drift_was_seen_a_model_is_expected_to_fall_as_far_behind_as_it_was(
    until_s: float, changes: dict[str, Any], drift: float
) -> None:
    seen = AccuracyTimeline((0.0, 50.0), (0.5, 0.9)) if until_s > 50.0 else AccuracyTimeline((0.0,), (0.5,))
    assert outlook(1, seen, changes={"planner.planning_s": 6, **changes}).drift == pytest.approx(drift, abs=1e-6)


SEEN = AccuracyTimeline((0.0, 30.0, 60.0, 120.0, 180.0), (0.5, 0.9, 0.45, 0.36, 0.36))
"""Keeps 0.5, 0.8 and 1 of its accuracy."""


def test_drift_is_the_median_of_what_was_kept_and_retrained_windows_are_counted() -> None:
    assert outlook(3, SEEN, 0) == Outlook(drift=0.8, stays=1 - 1.75 / 4, in_time=0.5, ahead=ALL, still=STILL)


def test_of_windows_long_past_only_what_was_learned_is_kept() -> None:
    rng, own = np.random.default_rng(1), tenant()
    seen, whole, lessons, ended = AccuracyHistory(), AccuracyHistory(), Lessons(), list[tuple[str, int]]()
    for window in range(40):
        for at_s in (60.0 * window, 60.0 * window + rng.uniform(1, 59)):
            accuracy = rng.uniform(0.3, 0.9)
            seen.note(at_s, accuracy)
            whole.note(at_s, accuracy)
        seen.forget(window, 60.0)
        if rng.random() < 0.6:
            ended.append((own.name, window - int(window > 0 and rng.random() < 0.3)))  # some end a window late
            lessons.add(*ended[-1])
        assert [seen.kept(60.0 * k) for k in range(window + 1)] == [whole.kept(60.0 * k) for k in range(window + 1)]
        first_s, *later_s = seen.timeline.from_s
        assert later_s == [at_s for at_s in whole.timeline.from_s if at_s > first_s]
        assert lessons.counted(own, window + 1) == (window + 1, len({*ended}))
        assert lessons.last(own.name) == max((w for _, w in ended), default=-1)
        newest = [one for one in ended if one[1] >= window - 1]
        older = max((w for _, w in ended if w < window - 1), default=-1)
        assert lessons.but(less=newest).last(own.name) == older
    assert len(seen.timeline.from_s) <= 7


def test_windows_with_nothing_to_learn_teach_nothing() -> None:
    changes = {"tenants.0.retraining.windows": 2}
    stays = round(1 - 1.75 / 3, 6)  # one of two was retrained
    assert outlook(3, SEEN, 0, changes=changes) == Outlook(0.65, stays, 0.5, (False,) * 3, STILL)  # of 0.5 and 0.8


@pytest.mark.parametrize(
    ("ahead", "lasting"),
    [
        ((), 0),
        ((True,), 0.8 * 0.75),
        (ALL, (0.8 + 0.8 * 0.5 * 0.8 + 0.8 * 0.5 * 0.8 * 0.5 * 0.8) * 0.75),
        ((True, True, False), (0.8 + 0.8 * 0.5 * 0.8) * 0.75 + 0.8 * 0.5 * 0.8 * 0.5),
        ((True, False, False), 0.8 * 0.75 + 0.8 * 0.5 + 0.8 * 0.5),
        ((False, False, False), 3),
        ((False,), 1),
    ],
)
def test_salvage_is_what_the_windows_ahead_earn(ahead: tuple[bool, ...], lasting: float) -> None:
    found = salvage_of(Outlook(0.8, 0.5, 0.9, ahead, STILL), 1000, 2.0, [0.5, 0.75])
    assert found == pytest.approx([2 * 1000 * 0.9 * accuracy * lasting for accuracy in (0.5, 0.75)])


@pytest.mark.parametrize(("still", "part"), [(1.0, 1.0), (0.0, 0.3), (0.5, 0.65)])
def test_with_something_to_learn_in_every_window_salvage_is_a_geometric_sum(still: float, part: float) -> None:
    expected = part * 1000 * 0.7 * 0.6 * sum((0.7 * 0.3) ** j for j in range(3))
    assert salvage_of(Outlook(0.7, 0.3, 1.0, ALL, still), 1000, 1.0, [0.6]) == pytest.approx([expected])


@pytest.mark.parametrize(("window", "n"), [(0, 3), (2, 1), (3, 0)])
def test_a_run_that_ends_counts_no_window_after_its_end(window: int, n: int) -> None:
    ending = setting({"windows": 4, "retraining.ends": True, "tenants.1.accuracy": {"before": 0.5, "after": 0.8}})
    assert windows_ahead(ending.tenants[0], ending.config, window) == (True,) * n
    going_on = ending.config.model_copy(update={"retraining": DecisionConfig()})
    assert windows_ahead(ending.tenants[0], going_on, window) == ALL


@pytest.mark.parametrize(
    ("window", "ahead"),
    [(0, ALL), (1, (True, True, False)), (2, (True, False, False)), (3, (False, False, False))],
)
def test_the_config_says_in_which_windows_ahead_there_is_something_to_learn(
    window: int, ahead: tuple[bool, ...]
) -> None:
    own = setting({"tenants.0.retraining.windows": 4})
    assert windows_ahead(own.tenants[0], own.config, window) == ahead
    assert windows_ahead(own.tenants[1], own.config, window) == (False,) * 3  # it is never retrained


def test_a_run_keeps_what_its_outlook_counts_on_once_there_is_nothing_to_learn() -> None:
    changes = {
        "retraining": {"required": False, "drift": "compound"},
        "tenants.0.retraining.windows": 2,
        "tenants.0.accuracy": [
            {"before": 0.6, "after": 0.9},
            {"before": 0.72, "after": 0.9},
            {"before": 0.9, "after": 0.9},
        ],
    }
    one = tenant(changes)
    skipped, retrained = [accuracy_at_start(one, 1, last) for last in (-1, 0)]
    assert (skipped, retrained) == (pytest.approx(0.48), 0.72)
    assert [accuracy_at_start(one, window, -1) for window in (2, 3, 4)] == pytest.approx([0.48] * 3)
    assert [accuracy_at_start(one, window, 1) for window in (2, 3, 4)] == [0.9] * 3


@pytest.mark.parametrize(
    ("decision", "own", "counts"),
    [
        ({"required": True, "drift": "compound"}, {}, False),
        ({"required": True, "drift": "compound"}, {"options": [{"name": "half", "samples": 500}]}, True),
        ({"required": False, "drift": "compound"}, {}, True),
        ({"required": False, "drift": "compound"}, {"required": True}, False),
        ({"required": False, "drift": "as_given"}, {}, False),
        ({"required": True, "drift": "as_given", "salvage": True}, {}, True),
        ({"required": False, "drift": "compound", "salvage": False}, {}, False),
    ],
)
def test_salvage_counts_where_it_decides_something(decision: Any, own: Any, counts: bool) -> None:
    one = tenant({"retraining": decision, "tenants.0.retraining": {"samples": 1000, **own}})
    assert one.counts_salvage(DecisionConfig(**decision).salvage) == counts
