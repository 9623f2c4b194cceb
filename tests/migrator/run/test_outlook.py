"""The outlook of a model and its salvage, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.config import DecisionConfig, validate_config
from migrator.run.outlook import Outlook, horizon, outlook_of, outlooks, salvage_of
from migrator.setting import assemble, counts_salvage
from tests.migrator.conftest import SMALL, changed
from workloads.serving.requests import AccuracyTimeline
from workloads.tenants import Tenant


def tenant(changes: dict[str, Any] | None = None) -> Tenant:
    return assemble(validate_config(changed(SMALL, changes or {}), "x"), "x")[0].tenants[0]


def outlook(window: int, timeline: AccuracyTimeline, *trained: int) -> Outlook:
    past = {("vision", number) for number in trained}
    return outlooks([tenant()], DecisionConfig(drift_prior=0.7), window, 60.0, [timeline], past, [0.5])[0]


def test_before_anything_was_seen_the_priors_count() -> None:
    assert outlook(0, AccuracyTimeline((0.0,), (0.6,))) == Outlook(drift=0.7, stays=0.5, in_time=0.5)


def test_drift_is_the_median_of_what_was_kept_and_retrained_windows_are_counted() -> None:
    seen = AccuracyTimeline((0.0, 30.0, 60.0, 120.0, 180.0), (0.5, 0.9, 0.45, 0.36, 0.36))
    assert outlook(3, seen, 0) == Outlook(drift=0.8, stays=1 - 1.5 / 4, in_time=0.5)  # of 0.5, 0.8 and 1


def test_an_outlook_is_told_as_it_is() -> None:
    one = Outlook(0.8, 0.25, 1.0)
    assert outlook_of(one.to_json()) == one


@pytest.mark.parametrize(("n", "lasting"), [(0, 0), (1, 1), (3, 1 + 0.4 + 0.16)])
def test_salvage_is_what_the_windows_ahead_earn(n: int, lasting: float) -> None:
    found = salvage_of(Outlook(0.8, 0.5, 0.9), 1000, 2.0, [0.5, 0.75], n)
    assert found == pytest.approx([2 * 1000 * 0.9 * 0.8 * accuracy * lasting for accuracy in (0.5, 0.75)])


@pytest.mark.parametrize(("window", "n"), [(0, 3), (2, 1), (3, 0)])
def test_a_run_that_ends_counts_no_window_after_its_end(window: int, n: int) -> None:
    assert horizon(DecisionConfig(ends=True), window, 4) == n
    assert horizon(DecisionConfig(), window, 4) == 3


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
    assert counts_salvage(one, DecisionConfig(**decision)) == counts
