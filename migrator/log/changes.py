"""What a log says of instances: the changes of the layout, the life of every instance, and the overhead of changes (Ψ).

The overhead is what the paper feeds back into its planner. A change begins when its workers stop taking batches; its
new instances serve when their workers are ready. The seconds between hold all that the paper's Figure 5 counts:
destruction and creation of instances, loading of libraries and model. The run's bring-up is no change.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from migrator.errors import LogError
from migrator.log.records import Change, Failed, Intent, Outcome, Ready, Resumed, Started
from migrator.log.runlog import ReadLog, read_log
from planner.problem import Problem, with_measured_overhead

INFERENCE, RETRAINING = "inference", "retraining"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance with one owner, from its creation to its end.

    Attributes:
        name: Unique over the run.
        placement: Where it lies.
        compute_slices: How many it holds.
        tenant: Whose it is.
        task: What its worker does.
        begin_s: Its slices are taken from here on.
        up_s: Its first start-up ends: the worker is ready or gives up, the instance ends, or the log does.
        served: From when until when its worker was ready; it is not while it is started again after a failure.
        end_s: No batch begins from here on; infinite while it lives.
        gone_s: Its slices are free; infinite while it lives.
        ready: The first ``ready`` record; ``None`` if its worker never was.
    """

    name: str
    placement: str
    compute_slices: int
    tenant: str
    task: str
    begin_s: float
    up_s: float
    served: tuple[tuple[float, float], ...]
    end_s: float
    gone_s: float
    ready: Ready | None

    @property
    def profile(self) -> str:
        """The profile's name."""
        return self.placement.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Call:
    """A driver call that did what it should: ``create`` or ``destroy``."""

    call: str
    placement: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One change of the layout; the bring-up is what was put up before a run's, or a joined run's, first window."""

    window: int
    begin_s: float
    calls: tuple[Call, ...]
    started: tuple[Instance, ...]
    stopped: tuple[Instance, ...]
    is_bring_up: bool


def changes_in(log: ReadLog) -> tuple[LayoutChange, ...]:
    """The log's changes, in order."""
    instances = _instances_in(log)
    intents = {entry.n: entry.record for entry in log.entries_of(Intent)}
    changes: list[LayoutChange] = []
    calls: list[Call] = []
    for entry in log.entries:
        match entry.record:
            case Resumed():
                calls = []  # of a change that was cut off
            case Outcome(intent=n, begin_s=begin_s, end_s=end_s, error=None):
                calls.append(Call(intents[n].call, intents[n].placement, begin_s, end_s))
            case Change() as change:
                changes.append(
                    LayoutChange(
                        window=change.window,
                        begin_s=change.begin_s,
                        calls=tuple(calls),
                        started=tuple(instances[item.instance] for item in change.started),
                        stopped=tuple(instances[item.instance] for item in change.stopped),
                        is_bring_up=change.begin_s < change.window * log.header.window_s,
                    )
                )
                calls = []
            case _:
                pass
    return tuple(changes)


def _instances_in(log: ReadLog) -> dict[str, Instance]:
    """By id."""
    changes = log.of(Change)
    stopped_s = {item.instance: (item.end_s, item.gone_s) for change in changes for item in change.stopped}
    stopped_s |= _cut_off(log, stopped_s.keys())
    workers: defaultdict[str | None, list[Ready | Failed]] = defaultdict(list)
    for entry in log.entries:
        if isinstance(entry.record, Ready | Failed):
            workers[entry.record.instance].append(entry.record)
    log_ends_s = log.entries[-1].at_s
    return {
        item.instance: _instance(item, stopped_s.get(item.instance, _NEVER_S), workers[item.instance], log_ends_s)
        for change in changes
        for item in change.started
    }


_NEVER_S = math.inf, math.inf


def _cut_off(log: ReadLog, stopped: Container[str]) -> dict[str, tuple[float, float]]:
    """What was in use when the run was cut off, with the last moment that is known of it as its end."""
    found: dict[str, tuple[float, float]] = {}
    alive: list[str] = []
    last_s = 0.0
    for entry in log.entries:
        if isinstance(entry.record, Resumed):
            found |= {name: (last_s, last_s) for name in alive if name not in stopped}
            alive = []
        elif isinstance(entry.record, Change):
            alive += [item.instance for item in entry.record.started]
        last_s = entry.at_s
    return found


def _instance(
    started: Started, stopped_s: tuple[float, float], workers: Sequence[Ready | Failed], log_ends_s: float
) -> Instance:
    end_s, gone_s = stopped_s
    first_s = [worker.ready_s if isinstance(worker, Ready) else worker.failed_s for worker in workers[:1]]
    return Instance(
        name=started.instance,
        placement=started.placement,
        compute_slices=started.compute_slices,
        tenant=started.tenant,
        task=started.task,
        begin_s=started.begin_s,
        up_s=min(first_s[0] if first_s else log_ends_s, end_s),
        served=_served(workers, end_s),
        end_s=end_s,
        gone_s=gone_s,
        ready=next((worker for worker in workers if isinstance(worker, Ready)), None),
    )


def _served(workers: Sequence[Ready | Failed], end_s: float) -> tuple[tuple[float, float], ...]:
    spans: list[tuple[float, float]] = []
    ready_s: float | None = None
    for worker in workers:
        if isinstance(worker, Ready):
            ready_s = worker.ready_s if ready_s is None else ready_s
        elif ready_s is not None:
            spans.append((ready_s, min(worker.failed_s, end_s)))
            ready_s = None
    return (*spans, (ready_s, end_s)) if ready_s is not None else tuple(spans)


@dataclass(frozen=True)
class MeasuredOverhead:
    """What the changes of a run took.

    Attributes:
        by_window: By window and tenant, the mean seconds from the beginning of a change until a new
            inference instance was ready; windows and tenants without any are left out.
        is_simulated: Whether they come from a simulated GPU.
    """

    by_window: Mapping[int, Mapping[str, float]]
    is_simulated: bool

    @property
    def last_s(self) -> dict[str, float]:
        """By tenant, the value of the last window that has one."""
        return {name: value for window in sorted(self.by_window) for name, value in self.by_window[window].items()}


def measured_overhead(log: ReadLog) -> MeasuredOverhead:
    """What the changes of a run took, whole or torn."""
    seconds: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for change in changes_in(log):
        for item in change.started:
            if not change.is_bring_up and item.task == INFERENCE and item.ready is not None:
                seconds[change.window][item.tenant].append(item.ready.ready_s - change.begin_s)
    by_window = {window: {name: fmean(taken) for name, taken in own.items()} for window, own in sorted(seconds.items())}
    return MeasuredOverhead(by_window, log.header.simulated)


def with_overhead_of_run(problem: Problem, folder: Path) -> tuple[Problem, MeasuredOverhead]:
    """``problem`` with what the run in ``folder`` measured last of its tenants, and all that it measured.

    Tenants that the run does not know, or never gave a new instance, keep their own overhead.

    Raises:
        LogError: The folder holds no run, or one that measured nothing of the problem's tenants.
        ProblemError: The problem is not ``paper``.
    """
    measured = measured_overhead(read_log(folder))
    own = {name: value for name, value in measured.last_s.items() if name in problem.tenant_names}
    if not own:
        known = ", ".join(measured.last_s) or "nobody"
        names = ", ".join(problem.tenant_names)
        raise LogError(f"{folder}: no change gave a new instance to {names}; the run's changes gave some to {known}")
    return with_measured_overhead(problem, own), measured
