"""What traffic does at once, and after how many seconds a window that is planned anew holds it again.

Two tenants share the GPU for one window of 200 s, planned from a minute of steady traffic; at second 60 it changes.
Language weighs more, so a plan gives it the slices that nobody is expected to need: vision's burst finds none idle.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from migrator.config.reading import config_yaml, validate_config
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.runlog import ReadLog, RunLog, read_log
from tests.migrator.conftest import SMALL, changed
from tests.seeds import daily

HISTORY_S, STEP_S, WINDOW_S = 60, 60, 200
HELD = 0.95
"""Share of a second's requests in time from which on the second counts as held."""


def traffic(kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Requests of vision and language in each second, the history's first."""
    vision, language = np.full(HISTORY_S + WINDOW_S, 500.0), np.full(HISTORY_S + WINDOW_S, 60.0)
    step = HISTORY_S + STEP_S
    match kind:
        case "a burst of three times as much for 30 s":
            vision[step : step + 30] *= 3
        case "a level three times as high":
            vision[step:] *= 3
        case "a ramp to three times as much in 60 s":
            vision[step : step + 60] *= np.linspace(1, 3, 60)
            vision[step + 60 :] *= 3
        case "a tenant that goes silent, and the other needs its instances":
            language[step:] = 0
            vision[step:] *= 4
        case "a tenant that begins again":
            vision[:step] = 0
    return vision, language


@cache
def run(kind: str, every_s: float | str) -> ReadLog:
    with TemporaryDirectory() as name:
        folder = Path(name)
        changes: dict[str, Any] = {
            "planner.replan_every_s": every_s,
            "planner.replan_schedules": 4,
            "forecast.n_paths": 16,
            "forecast.history_s": 60,
        }
        changes |= {"window_s": WINDOW_S, "windows": 1, "tenants.0.retraining": None, "tenants.1.weight": 50.0}
        for number, counts in enumerate(traffic(kind)):
            lines = ["second,count", *(f"{second},{int(count)}" for second, count in enumerate(counts))]
            (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
            changes[f"tenants.{number}.arrivals"] = {
                "trace": str(folder / f"{number}.csv"),
                "format": "counts",
                "offset_s": HISTORY_S,
                "scale": {"method": "thin", "factor": 1.0},
            }
        setting, recorded = assemble(validate_config(changed(SMALL, changes), "step"), "step")
        with RunLog(folder / "run", config_yaml(setting.config)) as log:
            Loop(setting, simulated_parts(setting, recorded)).carry_out(log)
        return read_log(folder / "run")


def held_after_s(log: ReadLog) -> int:
    """Seconds after the change from which on every second is held, for all tenants; at least 1."""
    tenants = log.of(recorded.WindowFinished)[0].tenants.values()
    arrivals, in_time = (np.array([getattr(tenant, key) for tenant in tenants]) for key in ("arrivals", "in_time"))
    is_held = (in_time >= HELD * arrivals).all(axis=0)
    return int(np.flatnonzero(~is_held[STEP_S:]).max(initial=-1)) + 1


KINDS = {
    "a burst of three times as much for 30 s": 8,
    "a level three times as high": 8,
    "a tenant that goes silent, and the other needs its instances": 8,
    "a tenant that begins again": 8,
}
"""What changes at once, and after how many seconds it is held: three to notice, the rest to warm up."""


@pytest.mark.parametrize("kind", daily(KINDS, [*KINDS][::2]))
def test_what_changes_at_once_is_held_after_seconds(kind: str) -> None:
    assert held_after_s(run(kind, 5)) <= KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_that_is_made_once_never_holds_it(kind: str) -> None:
    lasts_s = 30 if "30 s" in kind else WINDOW_S - STEP_S
    assert held_after_s(run(kind, "never")) == lasts_s


def test_a_ramp_is_held_all_along_but_for_a_few_seconds() -> None:
    kind = "a ramp to three times as much in 60 s"
    lost = {}
    for every_s in (5, "never"):
        counts = run(kind, every_s).of(recorded.WindowFinished)[0].tenants["vision"]
        lost[every_s] = 1 - sum(counts.in_time[STEP_S:]) / sum(counts.arrivals[STEP_S:])
    assert lost[5] < 0.01
    assert lost["never"] > 0.3


def test_steady_traffic_is_left_alone() -> None:
    log = run("nothing", 5)
    assert log.of(recorded.PlanKept)
    assert not log.of(recorded.PlanRevised)
    assert held_after_s(log) == 0
