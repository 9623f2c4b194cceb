"""Policies that know the next seconds: what they are told, and that they are told no more."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from forecaster.registry import HINDSIGHT
from migrator.config.reading import validate_config
from migrator.errors import ConfigError
from migrator.execution.foresight import Foresight, observe
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.execution.windows import Opening
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records as recorded
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog, log_in
from planner.errors import PolicyError
from planner.policies.registry import POLICIES, policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import begun
from tests.migrator.execution.test_seams import changed_after

BURSTY = {"tenants.1.arrivals.trace": "azure-code", "planner.replan_schedules": 1}


@cache
def small() -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, BURSTY), "small"), "small")


def foresight(ahead_s: float | None, traffic: RecordedTraffic | None = None) -> tuple[Foresight, Opening]:
    setting, own = small()
    traffic = traffic or own
    known = Foresight(setting, traffic, needs_hindsight=ahead_s is not None, ahead_s=ahead_s)
    return known, observe(setting, traffic, 0, [0.6, 0.5])


def test_it_knows_what_comes_in_the_next_seconds() -> None:
    known, opening = foresight(10.0)
    _, traffic = small()
    true_rps = traffic.hindsight.rates_rps(0.0, 1.0, 10)
    forecast = known.forecast(opening)
    for values in (forecast.mean_rps, *forecast.paths_rps, *forecast.quantiles_rps):
        np.testing.assert_array_equal(values[:10], true_rps)
    assert forecast.mean_rps.shape == (60, 2)
    assert known.name == f"ewma, and 10 s {HINDSIGHT}"


def test_beyond_them_it_has_the_forecast_of_whoever_has_seen_them() -> None:
    known, opening = foresight(10.0)
    plain, _ = foresight(None)
    setting, traffic = small()
    seen = replace(opening, past_rps=traffic.rates_before(10.0, 1.0, setting.config.n_history_steps))
    np.testing.assert_allclose(known.forecast(opening).paths_rps[:, 10:], plain.forecast(seen, 10).paths_rps)


@pytest.mark.parametrize("ahead_s", [1.0, 10.0, 30.0])
def test_it_knows_nothing_of_what_comes_later(ahead_s: float) -> None:
    setting, traffic = small()
    other = changed_after(setting, traffic, ahead_s, variant=3)
    one, two = (known.forecast(opening) for known, opening in (foresight(ahead_s), foresight(ahead_s, other)))
    np.testing.assert_array_equal(one.paths_rps, two.paths_rps)


def test_with_the_window_s_length_ahead_it_knows_all_of_it() -> None:
    known, opening = foresight(200.0)
    everything, _ = Foresight(*small(), needs_hindsight=True), None
    np.testing.assert_array_equal(known.forecast(opening).paths_rps, everything.forecast(opening).paths_rps)


def logged(tmp_path: Any, policy: str, every_s: object = "never") -> ReadLog:
    changes = {**BURSTY, "planner.replan_every_s": every_s, "windows": 2}
    return log_in(begun(tmp_path / policy, policy_of(policy), changes=changes), tmp_path)


@pytest.mark.parametrize(
    ("policy", "every_s", "pace_s"),
    [("lookahead-10", "never", 10), ("lookahead-10", 5, 5), ("lookahead-5", 10, 5), ("lookahead-200", "never", 200)],
)
def test_it_plans_anew_as_often_as_it_learns_more(tmp_path: Any, policy: str, every_s: object, pace_s: float) -> None:
    log = logged(tmp_path, policy, every_s)
    replans = report_of(log).replans
    assert replans is not None
    assert replans.every_s == pace_s


def test_its_log_says_what_it_knows(tmp_path: Any) -> None:
    log = logged(tmp_path, "lookahead-10")
    told = {key: getattr(log.header, key) for key in ("policy", "knows", "ahead_s", "forecaster")}
    assert told == {
        "policy": "lookahead-10",
        "knows": "ahead",
        "ahead_s": 10.0,
        "forecaster": f"ewma, and 10 s {HINDSIGHT}",
    }
    assert log.of(recorded.WindowStarted)[0].forecast.method == f"{HINDSIGHT}, then ewma"


def test_it_is_refused_where_nobody_knows_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedTraffic, "hindsight", None)
    setting, traffic = small()
    parts = simulated_parts(setting, traffic, policy_of("lookahead-10"))
    with pytest.raises(ConfigError, match="live traffic has no hindsight"):
        Loop(setting, parts)


def test_it_is_compared_only_where_it_is_named() -> None:
    assert not any(name.startswith("lookahead") for name in POLICIES)
    assert policy_of("lookahead-30").looks_ahead_s == 30


def test_one_that_there_is_not_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"'lookahead-7' \(did you mean lookahead-5\?\): known are .*, lookahead-10"):
        policy_of("lookahead-7")
