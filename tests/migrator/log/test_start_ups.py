from __future__ import annotations

from typing import Any

import pytest

from migrator.log.start_ups import PHASES, Phase, start_ups_of


def change(begin_s: float = 10.0) -> dict[str, Any]:
    """Tenant a loses a 2g and gets a 1g on its slices; tenant b starts in an instance that was there."""
    return {
        "begin_s": begin_s,
        "calls": [
            {"call": "destroy", "placement": "2g.20gb@0", "begin_s": 10.0, "end_s": 10.25},
            {"call": "create", "placement": "1g.10gb@0", "begin_s": 10.25, "end_s": 10.5},
        ],
        "stopped": [{"tenant": "a", "placement": "2g.20gb@0"}],
        "started": [
            {"tenant": "a", "placement": "1g.10gb@0", "library_s": 0.5, "model_s": 1.5},
            {"tenant": "b", "placement": "3g.40gb@4", "library_s": 0.25, "model_s": 4.0},
        ],
    }


def test_every_phase_is_told_apart() -> None:
    found = start_ups_of([change()])
    assert found["a"] == dict(zip(PHASES, (Phase(1, 0.25), Phase(1, 0.25), Phase(1, 0.5), Phase(1, 1.5)), strict=True))


def test_a_tenant_in_an_instance_that_was_there_has_no_driver_call() -> None:
    found = start_ups_of([change()])["b"]
    assert [found[phase].count for phase in PHASES] == [0, 0, 1, 1]
    assert found["destruction"].mean_s is None


def test_changes_add_up() -> None:
    assert start_ups_of([change(), change()])["b"]["model_load"] == Phase(2, 8.0)


def test_the_bring_up_is_no_change() -> None:
    assert start_ups_of([change(begin_s=-3.0)]) == {}


def test_a_log_without_phases_gives_the_driver_s_alone() -> None:
    event = change()
    for item in event["started"]:
        del item["library_s"], item["model_s"]
    assert [start_ups_of([event])["a"][phase].count for phase in PHASES] == [1, 1, 0, 0]


def test_the_mean_is_that_of_one() -> None:
    assert Phase(4, 2.0).mean_s == pytest.approx(0.5)
