"""The layout that the config's ``planner.layout: auto`` comes to: chosen once, before a run, by what came before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from executor.mig import placed
from forecaster.forecast import QUANTILE_LEVELS, Forecast
from migrator.errors import InfeasibleError
from migrator.execution.foresight import observe
from migrator.execution.planning import Solving, plan_window
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Traffic
from workloads.arrays import FloatArray
from workloads.tenants import accuracy_at_start


def with_layout(setting: Setting, traffic: Traffic) -> Setting:
    """The setting with the layout that ``auto`` comes to, where its config says that; else as it is.

    Of the card's maximal layouts of standard profiles it is the one whose plan of the first window is worth most, if
    the arrivals before the run came again. Of equals it has the fewest instances.

    Raises:
        InfeasibleError: None of them has a plan.
    """
    config, gpu = setting.config, setting.gpu
    if config.planner.layout != "auto":
        return setting
    accuracies = [accuracy_at_start(tenant, 0, -1) for tenant in setting.tenants]
    opening = observe(setting, traffic, 0, accuracies)
    again = _again(opening.past_rps, config.n_steps)
    multisets = {
        tuple(sorted(one.profile.name for one in layout)) for layout in gpu.maximal_layouts(gpu.standard_profile_names)
    }
    best: tuple[float, int, Setting] | None = None
    for names in sorted(multisets):
        if placed(gpu, Counter(names), (), ()) is None:
            continue
        planner = config.planner.model_copy(update={"layout": list(names)})
        own = replace(setting, config=config.model_copy(update={"planner": planner}))
        try:
            planned = plan_window(own, opening, again, None, Solving(proves=False))
        except InfeasibleError:
            continue
        worth = planned.plan.objective
        if planned.is_planned and worth is not None and (best is None or (worth, -len(names)) > best[:2]):
            best = worth, -len(names), own
    if best is None:
        raise InfeasibleError(
            f"config {config.name}: planner.layout: auto: no maximal layout of {gpu.name} has a plan in which one pool "
            "of all tenants holds it"
        )
    return best[2]


def _again(past_rps: FloatArray, n_steps: int) -> Forecast:
    """What came, expected to come again, from its begin; the last of it first where there is more than a window."""
    mean_rps = np.resize(past_rps[-n_steps:], (n_steps, past_rps.shape[1]))
    quantiles_rps = np.broadcast_to(mean_rps, (len(QUANTILE_LEVELS), *mean_rps.shape)).copy()
    return Forecast("as it came", mean_rps, quantiles_rps, mean_rps[None].copy())
