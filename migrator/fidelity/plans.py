"""How near a plan's promise comes to what the request simulation then makes of it, window by window.

Both sides are *expected* goodput: what is answered in time, times the accuracy at that moment. The luck
of single answers, which a run draws, is left out. Loss is what arrives and is not answered in time.

Plans have every change take one time, whatever it starts; in the simulation a small one is over sooner than a large
one. :func:`measured` can also have every worker ready exactly when the plan says; what differs then is the plan's
picture of queues alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.mig import Placement
from forecaster.forecast import FloatArray
from migrator.execution.loop import Loop, View, log_of
from migrator.execution.simulated import simulated_backend, simulated_parts
from migrator.execution.windows import PlannedWindow
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log.records import Finished, WindowFinished
from planner.course import courses
from planner.plan import MigPlan
from planner.problem import Owner, Problem
from workloads.serving.tally import Added


@dataclass(frozen=True, slots=True)
class Fulfilled(Added):
    """What a plan says of some tenants in a window, and what was achieved; requests, and goodput with weights.

    Attributes:
        arrivals: Requests of the seconds that the plan covers.
        expected_goodput: By the plan.
        achieved_goodput: In the simulation.
        expected_lost: Arrivals not answered in time, by the plan.
        achieved_lost: In the simulation.
    """

    arrivals: float = 0.0
    expected_goodput: float = 0.0
    achieved_goodput: float = 0.0
    expected_lost: float = 0.0
    achieved_lost: float = 0.0

    @property
    def goodput_excess(self) -> float:
        """By what share of the achieved goodput the plan promised too much; negative where too little."""
        return (self.expected_goodput - self.achieved_goodput) / max(self.achieved_goodput, 1e-9)


@dataclass(frozen=True, slots=True)
class WindowFidelity:
    """One window.

    Attributes:
        window: Its number.
        status: Its plan's.
        tenants: A promise for each in order.
        pools: Who share instances, by name; a tenant that shares none alone.
        use: By pool, how much of what serves it the forecast's arrivals take, in the mean over the window.
    """

    window: int
    status: str
    tenants: tuple[Fulfilled, ...]
    pools: tuple[tuple[str, ...], ...]
    use: tuple[float, ...]

    @property
    def total(self) -> Fulfilled:
        """All tenants together."""
        return sum(self.tenants, Fulfilled())


def measured(
    setting: Setting, traffic: RecordedTraffic, *, start_as_planned: bool = False
) -> tuple[WindowFidelity, ...]:
    """Run the setting, each window by the plan that it begins with, and hold the window against that.

    With ``start_as_planned`` every worker is ready when its plan says so.

    Raises:
        InfeasibleError: Window 0 has no plan.
    """
    planner = setting.config.planner.model_copy(update={"replan_every_s": "never"})
    setting = replace(setting, config=setting.config.model_copy(update={"planner": planner}))
    promises = _Promises(setting.config.window_s, setting.config.step_s)
    backend = simulated_backend(setting, promises.ready_s if start_as_planned else None)
    run = Loop(setting, simulated_parts(setting, traffic, backend=backend), promises)
    log = log_of(run, setting.config)
    finished = log.settled
    return tuple(
        WindowFidelity(
            planned.window,
            planned.plan.status.value,
            tuple(
                _promise(setting, planned, index, finished[planned.window], log.of(Finished))
                for index in range(len(setting.tenants))
            ),
            tuple(tuple(planned.problem.tenant_names[m] for m in members) for members in planned.problem.partition),
            _use(planned.problem, planned.plan),
        )
        for planned in promises.windows
    )


def _use(problem: Problem, plan: MigPlan) -> tuple[float, ...]:
    used = np.zeros((len(problem.partition), problem.n_steps))
    for m, course in enumerate(courses(problem, plan)):
        served_rps = course.serving @ problem.rates_rps(course.tenant)
        used[problem.holder_of[m]] += course.tenant.arrivals_rps / np.maximum(served_rps, 1e-9)
    # A step in which nothing serves is used up, no more.
    return tuple(np.minimum(used, 2.0).mean(axis=1).tolist())


class _Promises(View):
    """A view that keeps the plans as they are made."""

    def __init__(self, window_s: float, step_s: float) -> None:
        self.windows: list[PlannedWindow] = []
        self._window_s = window_s
        self._step_s = step_s

    def planned(self, planned: PlannedWindow) -> None:
        """Keep the plan."""
        self.windows.append(planned)

    def ready_s(self, placement: Placement, owner: Owner, begin_s: float) -> float | None:
        """When the latest plan lets what was begun there last before ``begin_s`` serve; ``None`` if it has none."""
        planned = self.windows[-1]
        start_s = planned.window * self._window_s + planned.plan_from_step * self._step_s
        own = [
            item
            for item in planned.plan.lifetimes
            if (item.placement, item.owner.task) == (placement, owner.task) and owner.tenant in item.owner.members
        ]
        begun = [item for item in own if start_s + item.create_step * self._step_s <= begin_s]
        last = max(begun, key=lambda item: item.create_step, default=None)
        return None if last is None else start_s + last.serve_step * self._step_s


def _promise(
    setting: Setting, planned: PlannedWindow, index: int, finished: WindowFinished, trained: Sequence[Finished]
) -> Fulfilled:
    tenant, step_s = setting.tenants[index], setting.config.step_s
    goodput, served = expected_by_step(planned.problem, planned.plan, index)
    first_second = math.ceil(planned.plan_from_step * step_s - 1e-9)
    counts = finished.tenants[tenant.name]
    in_time = np.array(counts.in_time, dtype=np.float64)[first_second:]
    accuracy = _accuracy_by_second(setting, planned, index, trained)[first_second:]
    arrivals = float(sum(counts.arrivals[first_second:]))
    return Fulfilled(
        arrivals=arrivals,
        expected_goodput=float(goodput.sum()),
        achieved_goodput=tenant.weight * float(in_time @ accuracy),
        expected_lost=float(planned.problem.tenants[index].arrivals_rps.sum()) * step_s - float(served.sum()),
        achieved_lost=arrivals - float(in_time.sum()),
    )


def expected_by_step(problem: Problem, plan: MigPlan, index: int) -> tuple[FloatArray, FloatArray]:
    """What a ``physical`` plan expects of one tenant: (goodput with weight, requests answered in time), each by step.

    Shapes: both ``(n_steps,)``. A tenant of weight 0 or accuracy 0 has its requests counted as unanswered.
    """
    course = courses(problem, plan)[index]
    goodput, worth = course.goodput, course.tenant.weight * np.array(course.tenant.accuracies)[course.level]
    return goodput, np.divide(goodput, worth, out=np.zeros_like(goodput), where=worth > 0)


def _accuracy_by_second(
    setting: Setting, planned: PlannedWindow, index: int, trained: Sequence[Finished]
) -> FloatArray:
    """The accuracy in each second of the window as it was in the simulation, ``(window_s,)``.

    The second in which a retraining ends has the mean of both.
    """
    tenant, window_s = setting.tenants[index], setting.config.window_s
    ends_s = [one.finish_s for one in trained if (one.window, one.tenant) == (planned.window, tenant.name)]
    end_s = min(ends_s, default=math.inf) - planned.window * window_s
    share_after = np.clip(np.arange(1, round(window_s) + 1) - end_s, 0.0, 1.0)
    before, after = planned.problem.tenants[index].accuracy_before, tenant.accuracy_in(planned.window).after
    accuracy: FloatArray = before + (after - before) * share_after
    return accuracy
