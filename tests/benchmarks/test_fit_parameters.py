"""Parameters are fixed on what the evaluation does not use, and what is taken is the best that was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import fit_parameters as fit
from benchmarks.fit_parameters import GRIDS, N_WINDOWS, Grid, Measured, Setting
from benchmarks.paper.experiments import AT_ONCE
from benchmarks.paper.workloads import CONFIGS, workloads
from migrator.compare import Match, over_each_segment
from migrator.config import REPLAN_EVERY_S, ForecastConfig, read_config
from planner.policies.astraea import Astraea
from planner.policies.reactive import Reactive
from planner.policies.registry import policy_of
from workloads.traffic.servegen import RATE_WINDOW_S, SERVEGEN_TRACE, shipped_rates
from workloads.traffic.trace_file import shipped_trace

every_workload = pytest.mark.parametrize("workload", workloads(), ids=lambda workload: f"w{workload.number}")
every_grid = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
w16 = workloads()[-1]
IN_USE = GRIDS["migrator"].in_use


def length_s(trace: str) -> int:
    return shipped_rates().n_seconds if trace == SERVEGEN_TRACE else shipped_trace(trace).n_seconds


@every_workload
def test_a_run_with_its_history_lies_in_the_first_half_of_each_trace(workload: fit.Workload) -> None:
    config = fit.config_of(workload, IN_USE)
    for arrivals in (tenant.arrivals for tenant in config.tenants):
        assert arrivals.offset_s >= config.forecast.history_s
        assert arrivals.offset_s + config.windows * config.window_s <= length_s(arrivals.trace) / 2


@every_workload
def test_a_run_ends_before_the_one_that_is_reported_begins(workload: fit.Workload) -> None:
    config, reported = fit.config_of(workload, IN_USE), read_config(CONFIGS / f"w{workload.number}.yaml")
    ends_s = [tenant.arrivals.offset_s + config.windows * config.window_s for tenant in config.tenants]
    assert all(end_s <= tenant.arrivals.offset_s for end_s, tenant in zip(ends_s, reported.tenants, strict=True))


@every_workload
def test_servegen_s_rates_change_within_the_same_windows_as_in_the_reported_run(workload: fit.Workload) -> None:
    config, reported = fit.config_of(workload, IN_USE), read_config(CONFIGS / f"w{workload.number}.yaml")
    here, there = (
        [tenant.arrivals.offset_s % RATE_WINDOW_S for tenant in one.tenants if tenant.arrivals.trace == SERVEGEN_TRACE]
        for one in (config, reported)
    )
    assert here == there


@every_workload
def test_nothing_but_where_it_begins_how_long_it_is_and_the_name_of_defaults_differs(workload: fit.Workload) -> None:
    moved = fit.config_of(workload, IN_USE)
    path = CONFIGS / f"w{workload.number}.yaml"
    reported = over_each_segment(read_config(path, windows=N_WINDOWS, forecast={"method": "ewma"}, **AT_ONCE))
    tenants = [
        tenant.model_copy(update={"arrivals": tenant.arrivals.model_copy(update={"offset_s": there.arrivals.offset_s})})
        for tenant, there in zip(moved.tenants, reported.tenants, strict=True)
    ]
    assert moved.model_copy(update={"tenants": tenants}) == reported


def test_the_grids_hold_the_defaults_in_use() -> None:
    in_use = {policy: grid.in_use.values for policy, grid in GRIDS.items()}
    assert in_use == {
        "reactive": {"n_seen": Reactive().n_seen, "threshold": Reactive().threshold},
        "astraea": {"n_seen": Astraea().n_seen, "headroom": Astraea().headroom, "floor": Astraea().floor},
        "migrator": {"method": "ewma", "half_life_s": ForecastConfig().half_life_s},
        "pace": {"replan_every_s": REPLAN_EVERY_S},
    }


@every_grid
def test_what_is_in_use_is_tried_once(grid: Grid) -> None:
    assert grid.settings.count(grid.in_use) == 1


@pytest.mark.parametrize("policy", ["reactive", "astraea"])
def test_a_policy_file_sets_the_parameters(policy: str, tmp_path: Path) -> None:
    setting = GRIDS[policy].settings[0]
    (made,) = (getattr(policy, "own", policy) for policy in [policy_of(fit.policy_in(tmp_path, setting))])
    assert type(made) is type(policy_of(policy))
    assert {name: getattr(made, name) for name in setting.parameters} == setting.parameters


def test_a_setting_s_forecaster_is_in_the_config() -> None:
    forecasts = [fit.config_of(w16, setting).forecast for setting in GRIDS["migrator"].settings]
    assert [own.half_life_s for own in forecasts if own.method == "ewma"] == [15, 30, 60, 120, 240]
    assert [own.method for own in forecasts if own.method != "ewma"] == ["seasonal-naive"]


def test_a_setting_s_pace_is_in_the_config_and_planning_stays_free() -> None:
    planners = [fit.config_of(w16, setting).planner for setting in GRIDS["pace"].settings]
    assert [own.replan_every_s for own in planners] == ["never", 1, 5, 10, 20, 50]
    assert {own.planning_s for own in planners} == {0}


def here(function: Callable[[Match], float], items: Sequence[Match]) -> Iterator[tuple[int, float]]:
    return reversed(list(enumerate(map(function, items))))


def test_a_small_grid_is_simulated_and_its_maximum_taken(tmp_path: Path) -> None:
    now = GRIDS["astraea"].in_use
    slow = Setting("astraea", {**now.parameters, "n_seen": 300}, {})
    grid = Grid((slow, now), slow, interferences=(1.0, 0.0))
    found = fit.measured(grid, [w16], here, n_windows=1)
    means_pct = [
        fmean(fit.goodput_pct(Match(policy, fit.config_of(w16, now, strength, 1), "w16", 0)) for strength in (1.0, 0.0))
        for policy in (fit.policy_in(tmp_path, slow), "astraea")
    ]
    assert [one.mean_pct for one in found] == means_pct
    assert fit.best_of(grid, found) == grid.settings[means_pct.index(max(means_pct))]


@pytest.mark.parametrize(("gain", "is_taken"), [(0.2, True), (0.06, True), (0.04, False), (0.0, False), (-1.0, False)])
def test_another_setting_is_taken_only_where_it_is_enough_better(gain: float, is_taken: bool) -> None:
    grid = GRIDS["reactive"]
    other = next(setting for setting in grid.settings if setting != grid.in_use)
    found = [Measured(grid.in_use, ((60.0, 80.0),)), Measured(other, ((60.0, 80.0 + 2 * gain),))]
    assert (fit.best_of(grid, found) == other) is is_taken


def test_every_workload_and_every_interference_counts_the_same() -> None:
    assert Measured(IN_USE, ((10.0, 20.0), (30.0, 60.0))).mean_pct == 30.0


def test_the_table_says_how_far_each_setting_is_ahead_and_which_is_best() -> None:
    first, second = settings = tuple(Setting("any", {"x": x}, {}) for x in (1, 2))
    found = [Measured(first, ((50.0, 60.0),)), Measured(second, ((54.0, 59.0),))]
    assert fit.table(Grid(settings, first), found).splitlines() == [
        "| x | goodput %, mean of workloads | over the one in use | better on |  |",
        "|---|---|---|---|---|",
        "| 1 | 55.00 | +0.00 | 0 of 2 | in use |",
        "| 2 | 56.50 | +1.50 | 1 of 2 | best |",
    ]


def test_a_policy_without_a_grid_is_refused_in_one_line() -> None:
    with pytest.raises(SystemExit, match=r"^policy 'ekya': known are reactive, astraea, migrator, pace$"):
        fit.main(["ekya"])
