"""What a log says of instances: the changes of the layout, the life of every instance, and the overhead of changes (Ψ).

The overhead is what the paper feeds back into its planner. A change begins when its workers stop taking batches; its
new instances serve when their workers are ready. The seconds between hold all that the paper's Figure 5 counts:
destruction and creation of instances, loading of libraries and model. The run's bring-up is no change.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from migrator.errors import LogError
from migrator.log.records import Change, Failed, Finished, Intent, Outcome, Ready, Resumed, Started
from migrator.log.runlog import ReadLog, read_log
from planner.problem import Problem, with_measured_overhead

INFERENCE, RETRAINING = "inference", "retraining"


@dataclass(frozen=True, slots=True)
class Tenure:
    """An instance as one tenant has it, from its creation to its end, or while the same tenants share it.

    Attributes:
        name: Unique over the run; the same of all who share it, and when they are others.
        placement: Where it lies.
        compute_slices: How many it holds.
        tenant: Whose it is.
        task: What its worker does.
        begin_s: Its slices are taken from here on.
        up_s: Its first start-up ends: the worker is ready or gives up, the instance ends, or the log does.
        served: From when until when its worker was ready; it is not while it is started again after a failure, and
            serves nobody while it is lent.
        end_s: No batch begins from here on; infinite while it lives.
        gone_s: Its slices are free; infinite while it lives.
        ready: The first ``ready`` record; ``None`` if its worker never was.
        members: All tenants that share it; the tenant alone where none do.
        lent: From when until when a retraining computed in it, and it stayed its holders'.
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
    members: tuple[str, ...]
    lent: tuple[tuple[float, float], ...] = ()

    @property
    def profile(self) -> str:
        """The profile's name."""
        return self.placement.partition("@")[0]


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A driver call that did what it should: ``create`` or ``destroy``."""

    call: str
    placement: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One change of the layout; the bring-up is what was put up before the first window of a run, joined run or log.

    An instance of a pool is there once for each member. ``passed`` went on under other holders, as they have it.
    ``loans`` are retrainings in instances that stay others'.
    """

    window: int
    begin_s: float
    calls: tuple[MadeCall, ...]
    started: tuple[Tenure, ...]
    stopped: tuple[Tenure, ...]
    is_bring_up: bool
    passed: tuple[Tenure, ...] = ()
    loans: tuple[Tenure, ...] = ()

    @property
    def begun(self) -> tuple[Tenure, ...]:
        """All that begins with it."""
        return self.started + self.passed + self.loans


def changes_in(log: ReadLog) -> tuple[LayoutChange, ...]:
    """The log's changes, in order."""
    instances, n_passed = _instances_in(log), Counter[str]()
    intents = {entry.n: entry.record for entry in log.entries_of(Intent)}
    changes: list[LayoutChange] = []
    calls: list[MadeCall] = []
    for entry in log.entries:
        match entry.record:
            case Resumed():
                calls = []  # of a change that was cut off
            case Outcome(intent=n, begin_s=begin_s, end_s=end_s, error=None):
                calls.append(MadeCall(intents[n].call, intents[n].placement, begin_s, end_s))
            case Change() as change:
                n_passed.update(item.instance for item in change.passed)
                changes.append(
                    LayoutChange(
                        window=change.window,
                        begin_s=change.begin_s,
                        calls=tuple(calls),
                        started=tuple(one for item in change.started for one in instances[item.instance][0]),
                        stopped=tuple(one for item in change.stopped for one in instances[item.instance][-1]),
                        is_bring_up=change.window < log.first_window
                        or change.begin_s < change.window * log.header.window_s,
                        passed=tuple(
                            one for item in change.passed for one in instances[item.instance][n_passed[item.instance]]
                        ),
                        loans=tuple(one for item in change.loans for one in instances[item.instance][0]),
                    )
                )
                calls = []
            case _:
                pass
    return tuple(changes)


def serving_instances(log: ReadLog) -> dict[str, list[Tenure]]:
    """By tenant, in the log's order, all its inference instances, in the order in which they begin."""
    found: dict[str, list[Tenure]] = {tenant.name: [] for tenant in log.header.tenants}
    for item in (item for change in changes_in(log) for item in change.begun if item.task == INFERENCE):
        found[item.tenant].append(item)
    return found


def _instances_in(log: ReadLog) -> dict[str, list[list[Tenure]]]:
    """By id, those of each time in which the same tenants held it, in order."""
    changes = log.of(Change)
    held: defaultdict[str, list[Started]] = defaultdict(list)
    for change in changes:
        for item in (*change.started, *change.passed, *change.loans):
            held[item.instance].append(item)
    stopped_s = {item.instance: (item.end_s, item.gone_s) for change in changes for item in change.stopped}
    stopped_s |= _cut_off(log, stopped_s.keys())
    workers: defaultdict[str | None, list[Ready | Failed]] = defaultdict(list)
    for entry in log.entries:
        if isinstance(entry.record, Ready | Failed):
            workers[entry.record.instance].append(entry.record)
    loans = {item.instance: item.placement for change in changes for item in change.loans}
    ended_s = [(one.instance, one.finish_s) for one in log.of(Finished)]
    ended_s += [(one.instance, one.failed_s) for one in log.of(Failed)]
    stopped_s |= {name: (at_s, at_s) for name, at_s in ended_s if name in loans}
    log_ends_s = log.entries[-1].at_s
    found = {name: _stays(own, stopped_s.get(name, _NEVER_S), workers[name], log_ends_s) for name, own in held.items()}
    lent: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, placement in loans.items():
        lent[placement] += found[name][0][0].served
    for name in found.keys() - loans.keys() if loans else ():
        found[name] = [[_but_for(one, lent[one.placement]) for one in own] for own in found[name]]
    return found


def _but_for(item: Tenure, lent: Sequence[tuple[float, float]]) -> Tenure:
    """The instance as it served beside these loans of what was in its place."""
    served = list(item.served)
    for from_s, to_s in lent:
        parts = (((a, min(b, from_s)), (max(a, to_s), b)) for a, b in served)
        served = [(a, b) for both in parts for a, b in both if a < b]
    return replace(item, served=tuple(served), lent=tuple(lent))


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


def _stays(
    held: Sequence[Started], stopped_s: tuple[float, float], workers: Sequence[Ready | Failed], log_ends_s: float
) -> list[list[Tenure]]:
    """An instance as each tenant has it, in each time in which the same tenants held it."""
    ends_s = [*((item.begin_s, item.begin_s) for item in held[1:]), stopped_s]
    since_s: dict[str, float] = {}
    found = []
    for item, (end_s, gone_s) in zip(held, ends_s, strict=True):
        since_s = {name: since_s.get(name, item.begin_s) for name in item.members}
        found.append(
            [
                _instance(item, name, (end_s, gone_s), workers if len(held) == len(since_s) == 1 else own, log_ends_s)
                for name, from_s in since_s.items()
                for own in ([one for one in workers if one.tenant == name and _at_s(one) >= from_s],)
            ]
        )
    return found


def _at_s(worker: Ready | Failed) -> float:
    return worker.ready_s if isinstance(worker, Ready) else worker.failed_s


def _instance(
    held: Started, tenant: str, stopped_s: tuple[float, float], workers: Sequence[Ready | Failed], log_ends_s: float
) -> Tenure:
    end_s, gone_s = stopped_s
    first_s = [_at_s(worker) for worker in workers[:1]]
    spans = ((max(from_s, held.begin_s), to_s) for from_s, to_s in _served(workers, end_s))
    return Tenure(
        name=held.instance,
        placement=held.placement,
        compute_slices=held.compute_slices,
        tenant=tenant,
        task=held.task,
        begin_s=held.begin_s,
        up_s=min(max(first_s[0] if first_s else log_ends_s, held.begin_s), end_s),
        served=tuple(span_s for span_s in spans if span_s[0] <= span_s[1]),
        end_s=end_s,
        gone_s=gone_s,
        ready=next((worker for worker in workers if isinstance(worker, Ready)), None),
        members=held.members,
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

    Tenants that the run does not know, or never had a new instance made, keep their own overhead.

    Raises:
        LogError: The folder holds no run, or one that measured nothing of the problem's tenants.
        ProblemError: The problem is not ``paper``.
    """
    measured = measured_overhead(read_log(folder))
    own = {name: value for name, value in measured.last_s.items() if name in problem.tenant_names}
    if not own:
        known = ", ".join(measured.last_s) or "no tenant"
        names = ", ".join(problem.tenant_names)
        raise LogError(f"{folder}: no change made a new instance for {names}; the run's changes gave some to {known}")
    return with_measured_overhead(problem, own), measured
