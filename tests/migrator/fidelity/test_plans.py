"""With arrivals known, plans promise what the request simulation then achieves: the quickstart and nine more configs.

The configs stand beside it, each saying what is special about it; `benchmarks/speed/fidelity.py` prints figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forecaster.forecast import Forecast
from migrator.config.reading import read_config, validate_config
from migrator.execution.ahead import plan_through
from migrator.execution.foresight import Foresight, observe
from migrator.execution.planning import Solving, plan_window
from migrator.execution.windows import Opening, PlannedWindow
from migrator.fidelity.plans import Fulfilled, WindowFidelity, expected_by_step, measured
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records as recorded
from migrator.log.runlog import read_log
from planner.problem import PhysicalState
from planner.unavailable import Unavailable
from tests.migrator.conftest import SMALL, changed
from tests.seeds import daily

CONFIGS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}
CONFIGS["quickstart"] = Path(__file__).parents[3] / "configs" / "quickstart.yaml"

Assembled = tuple[Setting, RecordedTraffic]

DAILY = ("a30_half_steps", "alone_with_bursts", "shared")
HELD_TO_IT = daily(sorted(CONFIGS), DAILY)


@pytest.fixture(scope="module", autouse=True)
def _plan_once() -> Iterator[None]:
    """Windows that start alike are planned once: both ways of starting workers get the same plans."""
    known: dict[object, PlannedWindow] = {}

    def once(
        setting: Setting,
        opening: Opening,
        forecast: Forecast,
        state: PhysicalState | None,
        solving: Solving,
        unavailable: tuple[Unavailable, ...],
    ) -> PlannedWindow:
        key = (setting.config.name, opening.window, state, opening.accuracies, opening.warm_ups, unavailable)
        if key not in known:
            known[key] = plan_window(setting, opening, forecast, state, solving, unavailable)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("migrator.execution.instances.plan_window", once)
        yield


def assembled(name: str) -> Assembled:
    config = read_config(CONFIGS[name])
    known = config.forecast.model_copy(update={"method": "known"})
    planner = config.planner.model_copy(update={"planning_s": config.planner.planning_s or 0.0})
    return assemble(config.model_copy(update={"forecast": known, "planner": planner}), name)


@cache
def windows_of(name: str) -> tuple[WindowFidelity, ...]:
    return measured(*assembled(name))


def small(**changes: object) -> Assembled:
    return assemble(validate_config(changed(SMALL, {"forecast.method": "known", **changes}), "small"), "small")


def test_there_are_eleven_configs_in_two_of_which_tenants_may_share() -> None:
    assert len(CONFIGS) == 11
    sharing = {name for name, path in CONFIGS.items() if read_config(path).sharing.pools != "off"}
    assert sharing == {"shared", "quickstart"}
    for window in windows_of("shared"):
        assert window.pools == (("vision", "scenes"), ("language",))
        assert all(0.1 < use < 1.2 for use in window.use)


@pytest.mark.parametrize("name", HELD_TO_IT)
def test_goodput_is_promised_within_two_percent(name: str) -> None:
    assert max(abs(window.total.goodput_excess) for window in windows_of(name)) <= 0.02


@pytest.mark.parametrize("name", HELD_TO_IT)
def test_loss_is_promised_within_a_tenth_or_six_thousandths_of_arrivals(name: str) -> None:
    for total in (window.total for window in windows_of(name)):
        assert abs(total.expected_lost - total.achieved_lost) <= max(0.1 * total.achieved_lost, 0.006 * total.arrivals)


@pytest.mark.parametrize("name", HELD_TO_IT)
def test_nothing_but_the_times_of_starts_sets_promise_and_outcome_apart(name: str) -> None:
    punctual = measured(*assembled(name), start_as_planned=True)
    most = 0.015 if name == "alone_with_bursts" else 0.01  # bursts from idle, as docs/fidelity.md explains
    assert max(abs(window.total.goodput_excess) for window in punctual) <= most


def test_what_tenants_expect_adds_up_to_the_objective_of_the_plan() -> None:
    for planned in plan_through(*small(), 1):
        sums = [expected_by_step(planned.problem, planned.plan, index)[0].sum() for index in range(2)]
        assert sum(sums) == pytest.approx(planned.plan.objective)


def test_no_step_expects_more_answers_than_arrivals() -> None:
    planned = plan_through(*small(), 0)[0]
    for index, tenant in enumerate(planned.problem.tenants):
        served = expected_by_step(planned.problem, planned.plan, index)[1]
        assert (served <= tenant.arrivals_rps * planned.problem.step_s + 1e-9).all()


def test_promises_add_up() -> None:
    total = sum([Fulfilled(10, 6, 5, 4, 5), Fulfilled(10, 4, 5, 6, 2)], Fulfilled())
    assert total == Fulfilled(20, 10, 10, 10, 7)
    assert total.goodput_excess == 0.0


@pytest.mark.parametrize("step_s", [0.5, 1.0, 2.0])
def test_known_arrivals_are_those_of_the_window(step_s: float) -> None:
    setting, traffic = small(step_s=step_s)
    forecast = Foresight(setting, traffic).forecast(observe(setting, traffic, 1, (0.6, 0.4)))
    times_s = traffic.hindsight.arrivals[0].times_s
    edges_s = 60 + step_s * np.arange(setting.config.n_steps + 1)
    assert (forecast.mean_rps[:, 0] * step_s == np.histogram(times_s, edges_s)[0]).all()
    assert (forecast.paths_rps == forecast.mean_rps).all()


def test_hindsight_is_named_in_the_log_and_in_the_report(call, write_config) -> None:
    code, out, _ = call("run", write_config({"forecast.method": "known"}), "--windows", 1)
    log = read_log(Path("runs/small"))
    assert (code, log.header.forecaster) == (0, "known (hindsight)")
    assert log.of(recorded.WindowStarted)[0].forecast.method == "known (hindsight)"
    assert "forecast by known (hindsight)" in " ".join(out.split())
