"""Windows planned before they begin: what is expected of one by the plan in force, and all of a run's, one by one.

A window's plan is begun so long before the window that it is there in time. Its models' accuracies are not known by
then, nor what retraining them would bring: they are expected to be what they were, less the usual drift.
``migrator run`` and ``migrator plan CONFIG --window K`` pose windows alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from migrator.config.sections import Config
from migrator.execution.foresight import Foresight, observe
from migrator.execution.layout import with_layout
from migrator.execution.models import DIGITS, Lessons, TabledModels, outlooks
from migrator.execution.planning import Solving, plan_window
from migrator.execution.posing import estimates_of
from migrator.execution.windows import Opening, PlannedWindow, begun_s
from migrator.inputs.estimates import Estimate, as_estimated
from migrator.inputs.pools import as_shared
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Traffic
from migrator.log.accuracies import AccuracyHistory
from migrator.log.records import Outlook
from planner.build import WarmUps
from planner.course import courses
from planner.plan import Lifetime, MigPlan
from planner.policies.ours import Migrator
from planner.problem import PhysicalState, Task
from workloads.training import FULL, reached


def expected_opening(
    setting: Setting,
    traffic: Traffic,
    opening: Opening,
    promised: Mapping[str, str],
    accuracies: Mapping[str, AccuracyHistory],
    trained: Lessons,
    in_time: Mapping[str, float],
    plans: Sequence[MigPlan] = (),
) -> Opening:
    """What is expected, as its plan is begun, of the window after that of ``opening``.

    Args:
        setting: What the run is about.
        traffic: What has arrived before then is seen.
        opening: Of the running window, the measured part. The next window's retrainings are expected to bring
            what its own were estimated to; whoever learns what others write has none until that is measured.
        promised: By tenant whose retraining is to end in the running window, in which way.
        accuracies: Each tenant's accuracy.
        trained: Which retrainings have ended before then: tenant, and with which window's data.
        in_time: By tenant, the share of the running window's requests that were answered in time.
        plans: What was in force in the windows before, the running one included.
    """
    config, running, window = setting.config, opening.window, opening.window + 1
    estimates = estimates_of(setting, opening)
    coming = {name: option for name, option in promised.items() if trained.last(name) != running}
    by_then = trained.but(more=((name, running) for name in coming))
    expected = outlooks(setting.tenants, config, window, accuracies, by_then, in_time)
    begin = []
    for m, (tenant, view) in enumerate(zip(setting.tenants, expected, strict=True)):
        accuracy = accuracies[tenant.name].timeline.at(begun_s(setting, window))
        if (option := coming.get(tenant.name)) is not None:
            known = as_estimated(tenant, estimates[m]).option(option)
            accuracy = reached(opening.accuracies[m], estimates[m].accuracy_after, known.gain)
        begin.append(fallen(accuracy, view.drift if tenant.retrains_in(running) else 1.0))
    # Nobody knows what others will have written to learn from.
    known_then = [
        Estimate(accuracy, {}, {}) if entry.reads else own
        for entry, own, accuracy in zip(config.tenants, estimates, begin, strict=True)
    ]
    ahead = observe(setting, traffic, window, begin, plans, known_then, config.ahead_steps)
    ages = tuple(by_then.last(tenant.name) for tenant in setting.tenants)
    return replace(ahead, last_trained=ages, outlooks=expected)


def fallen(accuracy: float, drift: float) -> float:
    """The accuracy that is expected of a model as a window begins, as the log has it."""
    return round(accuracy * drift, DIGITS)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run had seen as a window began, of warm-ups and of how its models fare; ``None`` where that is unknown."""

    warm_ups: WarmUps | None = None
    outlooks: tuple[Outlook, ...] | None = None


def plan_through(
    setting: Setting,
    traffic: Traffic,
    last_window: int,
    solving: Solving | None = None,
    seen: Mapping[int, Seen] = MappingProxyType({}),
) -> list[PlannedWindow]:
    """The plans of windows 0 … ``last_window``, each from the state that the one before promises.

    ``solving`` is how the last one is solved; those before it are planned as a run does it. ``seen``, by window, is
    what a run had seen until then; by default changes take what a typical one does, and plans keep what they promise.

    Raises:
        InfeasibleError: There are more tenants, or pools, than compute slices.
    """
    config = setting.config
    setting = with_layout(as_shared(setting, Migrator()), traffic)
    foresight, models = Foresight(setting, traffic), TabledModels(setting.tenants, config.window_s)
    state: PhysicalState | None = None
    opening: Opening | None = None
    trained, shares = Lessons(), dict.fromkeys((one.name for one in setting.tenants), 1.0)
    planned: list[PlannedWindow] = []
    for window in range(last_window + 1):
        if opening is not None and config.ahead_steps:
            by_then = trained.but(less=_ended_after(planned[-1], begun_s(setting, window), config))
            opening = expected_opening(
                setting, traffic, opening, planned[-1].retrained, models.accuracies, by_then, shares
            )
            accuracies = models.open(window)
        else:
            accuracies = models.open(window)
            opening = replace(
                observe(setting, traffic, window, accuracies),
                last_trained=tuple(trained.last(tenant.name) for tenant in setting.tenants),
                outlooks=outlooks(setting.tenants, config, window, models.accuracies, trained, shares),
            )
        told = seen.get(window, Seen())
        opening = replace(opening, warm_ups=told.warm_ups, outlooks=told.outlooks or opening.outlooks)
        how = solving if window == last_window else None
        planned.append(plan_window(setting, opening, foresight.forecast(opening), state, how))
        opening, state = opening.measured(accuracies, None), planned[-1].next_state
        _train(models, planned[-1], config)
        trained = trained.but(more=((name, window) for name in planned[-1].retrained))
        shares = _promised_shares(planned[-1])
    return planned


def _train(models: TabledModels, planned: PlannedWindow, config: Config) -> None:
    """Let the models learn what the plan promises, when it does."""
    start_s, end_s = planned.window * config.window_s, (planned.window + 1) * config.window_s
    for item in planned.plan.lifetimes:
        if item.owner.task is Task.RETRAINING:
            at_s = min(_end_s(planned, item, config), math.nextafter(end_s, start_s))  # with the window: of this one
            models.trained(item.owner.tenant, planned.window, at_s, item.option or FULL)


def _ended_after(planned: PlannedWindow, at_s: float, config: Config) -> set[tuple[str, int]]:
    """The plan's retrainings that end later than that: tenant, and window."""
    return {
        (item.owner.tenant, planned.window)
        for item in planned.plan.lifetimes
        if item.owner.task is Task.RETRAINING and _end_s(planned, item, config) > at_s
    }


def _end_s(planned: PlannedWindow, item: Lifetime, config: Config) -> float:
    """The second in which a lifetime of the plan ends."""
    return planned.window * config.window_s + (planned.plan_from_step + item.end_step) * config.step_s


def _promised_shares(planned: PlannedWindow) -> dict[str, float]:
    """By tenant, the share of the requests that the plan promises to answer in time; 1 where it says nothing."""
    if not planned.is_planned:
        return {tenant.name: 1.0 for tenant in planned.problem.tenants}
    found = {}
    for course in courses(planned.problem, planned.plan):
        n_requests = float(course.tenant.arrivals_rps.sum()) * planned.problem.step_s
        n_in_time = n_requests if course.in_time is None else float(course.in_time.sum())
        found[course.tenant.name] = min(1.0, n_in_time / n_requests) if n_requests > 0 else 1.0
    return found
