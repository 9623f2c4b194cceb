"""A forecaster that fails, in whatever way, does not end the run: what takes its place, and that it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from forecaster.ewma import Ewma
from forecaster.forecast import FloatArray, Forecast
from forecaster.registry import make_forecaster
from migrator.config.reading import config_yaml, validate_config
from migrator.execution.foresight import Foresight, observe
from migrator.execution.loop import Loop
from migrator.execution.reposing import RunCheck
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records as recorded
from migrator.log.report import Report, report_of
from migrator.log.runlog import ReadLog, RunLog, read_log
from migrator.views.report import print_report
from tests.migrator.conftest import SMALL, changed
from tests.seeds import daily

ROLLING = {"planner.replan_every_s": 20, "planner.replan_schedules": 1}
Fault = Callable[[Forecast], Forecast]


@dataclass
class Failing:
    """Ewma, but for the calls whose numbers are given: these fail."""

    fault: Fault
    fails_at: tuple[int, ...]
    name: str = "failing"
    min_history_steps: int = 2
    n_calls: int = field(default=0, init=False)

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        self.n_calls += 1
        made = Ewma(10).forecast(history_rps, n_steps, n_paths, rng)
        return self.fault(made) if self.n_calls - 1 in self.fails_at else made


def raises(made: Forecast) -> Forecast:
    del made
    raise RuntimeError("out of memory")


def is_huge(made: Forecast) -> Forecast:
    return replace(made, mean_rps=made.mean_rps + 1e19)


def has_nan(made: Forecast) -> Forecast:
    return replace(made, paths_rps=np.where(made.paths_rps > 0, np.nan, 0.0))


def is_short(made: Forecast) -> Forecast:
    parts = made.mean_rps[1:].copy(), made.quantiles_rps[:, 1:].copy(), made.paths_rps[:, 1:].copy()
    return replace(made, mean_rps=parts[0], quantiles_rps=parts[1], paths_rps=parts[2])


def setting_of(fault: Fault, *fails_at: int, planning_s: float = 0.0) -> tuple[Setting, RecordedTraffic]:
    config = changed(SMALL, ROLLING | {"planner.planning_s": planning_s})
    setting, traffic = assemble(validate_config(config, "small"), "small")
    return replace(setting, forecaster=Failing(fault, fails_at)), traffic


def logged(folder: Path, setting: Setting, traffic: RecordedTraffic) -> ReadLog:
    with RunLog(folder, config_yaml(setting.config)) as log:
        Loop(setting, simulated_parts(setting, traffic)).carry_out(log)
    return read_log(folder)


def failed_at(folder: Path, fault: Fault, *fails_at: int, planning_s: float = 0.0) -> tuple[ReadLog, Report]:
    log = logged(folder, *setting_of(fault, *fails_at, planning_s=planning_s))
    return log, report_of(log)


@pytest.mark.parametrize("planning_s", daily([0.0, 3.0], [3.0]))
@pytest.mark.parametrize("fault", [raises, has_nan, is_huge, is_short])
def test_whatever_fails_the_run_goes_on_and_tells(tmp_path: Path, fault: Fault, planning_s: float) -> None:
    log, report = failed_at(tmp_path / "run", fault, *range(100), planning_s=planning_s)
    before_windows = [one.from_step for one in log.of(recorded.ForecastFailed) if one.from_step < 0]
    assert before_windows == ([-3] if planning_s else [])  # of the second window, whose plan is begun so long before
    assert report.ending == "finished"
    assert not any(window.is_void for window in report.windows)
    assert len(log.of(recorded.ForecastFailed)) == len(report.failed_forecasts) > 2
    assert {window.plan_status for window in report.windows} <= {"optimal", "feasible"}


def test_at_a_window_s_start_the_windows_take_its_place(tmp_path: Path) -> None:
    setting, traffic = setting_of(raises, 0)
    log = logged(tmp_path / "run", setting, traffic)
    (failed,) = log.of(recorded.ForecastFailed)
    told = log.of(recorded.WindowStarted)[0].forecast
    assert (failed.window, failed.from_step, failed.instead) == (0, 0, told.method)
    assert told.method.startswith("window")
    assert failed.reason == "RuntimeError: out of memory"
    windows = replace(setting, forecaster=make_forecaster("window"))
    said = Foresight(windows, traffic).forecast(observe(windows, traffic, 0, [0.6, 0.5]))
    assert told.tenants["vision"].mean_rps == pytest.approx(said.mean_rps[:, 0].tolist(), abs=1e-4)


def test_inside_a_window_the_rest_of_the_last_forecast_takes_its_place() -> None:
    setting, traffic = setting_of(raises, 1)
    foresight, opening = Foresight(setting, traffic), observe(setting, traffic, 0, [0.6, 0.5])
    whole, rest = foresight.forecast(opening), foresight.forecast(opening, 25)
    np.testing.assert_array_equal(rest.paths_rps, whole.paths_rps[:, 25:])
    assert [item.instead for item in foresight.failures] == ["the rest of its last forecast"]


def test_a_forecast_of_another_window_takes_no_place() -> None:
    setting, traffic = setting_of(raises, 1)
    foresight = Foresight(setting, traffic)
    foresight.forecast(observe(setting, traffic, 0, [0.6, 0.5]))
    assert foresight.forecast(observe(setting, traffic, 1, [0.6, 0.4])).method.startswith("window")


def test_a_forecast_that_is_late_has_failed() -> None:
    never = threading.Event()

    def hangs(made: Forecast) -> Forecast:
        never.wait()
        return made

    setting, traffic = setting_of(hangs, 0)
    foresight = Foresight(setting, traffic, limit_s=0.01)
    forecast = foresight.forecast(observe(setting, traffic, 0, [0.6, 0.5]))
    never.set()
    assert forecast.method.startswith("window")
    assert [item.reason for item in foresight.failures] == ["TimeoutError: not there within 0.01 s"]


def test_windows_that_began_with_what_took_its_place_can_be_checked(tmp_path: Path) -> None:
    setting, traffic = setting_of(raises, 0)
    log = logged(tmp_path / "run", setting, traffic)
    again, _ = setting_of(raises, 0)
    found = next(RunCheck(log, again, traffic).plans(0))
    assert found.verification is not None
    assert found.verification.is_valid


def test_the_report_says_how_often_and_why(tmp_path: Path) -> None:
    _, report = failed_at(tmp_path / "run", raises, 0, 1)
    console = Console(width=200, record=True, file=StringIO())
    print_report(report, console)
    assert "the forecaster failed 2 times: window 0, step 0: failing failed (RuntimeError: out of memory)" in (
        console.export_text()
    )
