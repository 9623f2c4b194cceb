"""A run over time, from its log alone: what each held, what came and was answered, and how right each model was."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from executor.mig import Placement
from migrator.log import records
from migrator.log.account import could_serve, counts_of
from migrator.log.changes import INFERENCE, RETRAINING, LayoutChange, Tenure, changes_in, serving_instances
from migrator.log.live import known_of
from migrator.log.runlog import ReadLog
from migrator.log.surprise import by_second
from workloads.arrays import FloatArray

ON_LOAN = "retraining on a loan"

PHASES = ("creating", "starting", "serving", "retraining", ON_LOAN, "ending", "others")
"""What slices are used for: an instance is created, its worker starts, serves or retrains; it drains and is destroyed;
or others hold them."""


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """What a tenant or others held, and for what, in one span of time.

    Attributes:
        first_row: Of the GPU's memory slices, which those that share an instance have in equal parts; of its twentieths
            where tenants have shares.
        end_row: Behind the last one.
        begin_s: In seconds of the run.
        end_s: Not before ``begin_s``.
        tenant: Its name; ``None`` for others.
        phase: One of :data:`PHASES`.
        what: A placement, or a share.
    """

    first_row: float
    end_row: float
    begin_s: float
    end_s: float
    tenant: str | None
    phase: str
    what: str


@dataclass(frozen=True, slots=True)
class NewModel:
    """A tenant's model was replaced by what a retraining, or a part of one, had learned.

    Attributes:
        at_s: When.
        window: Whose data it learned.
        tenant: Whose.
        before: The share of right answers until then, as the run had it.
        after: From then on.
        is_part: Whether the retraining went on.
    """

    at_s: float
    window: int
    tenant: str
    before: float
    after: float
    is_part: bool


@dataclass(frozen=True, eq=False)
class TenantTrack:
    """A tenant by the second; arrays are ``(n_seconds,)`` of a part of the run, NaN where nothing is known.

    Attributes:
        arrivals: Requests that came.
        in_time: Of them, those answered in time.
        correct: Of these, those answered right.
        could: What served could have answered.
        mean: Forecast with which the window was planned,
        low: with its band.
        high: The same.
        accuracy: The share of right answers of the model that serves, as it was measured or given.
    """

    arrivals: FloatArray
    in_time: FloatArray
    correct: FloatArray
    could: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    accuracy: FloatArray


def n_seconds(log: ReadLog) -> int:
    """Whole seconds from the run's begin to the end of its last settled window, or of what the log tells beyond it.

    A window that has just begun has one.
    """
    window_s = round(log.header.window_s)
    settled_s = (1 + max(log.settled, default=-1)) * window_s
    begun_s = 1 + max((one.window for one in log.of(records.WindowStarted)), default=0) * window_s
    told_s = min(math.ceil(log.entries[-1].at_s), round(log.header.windows * log.header.window_s))
    return max(settled_s, begun_s, told_s)


@dataclass(frozen=True, slots=True)
class Holding:
    """A run's GPU over time.

    Attributes:
        is_sliced: Whether rows are the GPU's memory slices; else its twentieths.
        n_rows: How many there are.
        tenants: Their names, in the run's order, each with its model.
        spans: What each held; none where tenants take turns on the whole GPU.
    """

    is_sliced: bool
    n_rows: int
    tenants: tuple[tuple[str, str], ...]
    spans: tuple[HeldSpan, ...]


def holding(log: ReadLog) -> Holding:
    """The GPU over all of the run."""
    is_sliced = log.header.sharing == "instances"
    names = tuple((tenant.name, tenant.model) for tenant in log.header.tenants)
    return Holding(is_sliced, log.header.memory_slices if is_sliced else 20, names, tuple(held(log)))


def held(log: ReadLog) -> list[HeldSpan]:
    """What each holder held, clipped to the run; nothing where tenants take turns on the whole GPU."""
    end_s = float(n_seconds(log))
    match log.header.sharing:
        case "instances":
            found = [*_of_instances(log, end_s), *_of_others(log, end_s)]
        case "shares":
            found = list(_of_shares(log, end_s))
        case _:
            found = []
    return [span for span in found if span.end_s > span.begin_s]


def _of_instances(log: ReadLog, end_s: float) -> Iterator[HeldSpan]:
    gpu = log.gpu
    stopped = [item for change in log.of(records.Change) for item in change.stopped]
    drained_s = {(item.instance, item.end_s): item.drained_s for item in stopped}
    trained_s = {one.instance: one.finish_s for one in log.of(records.Finished)}
    for change in changes_in(log):
        for item in change.begun:
            placement = gpu.placement(item.placement)
            height = (placement.end - placement.start) / len(item.members)
            first_row = placement.start + item.members.index(item.tenant) * height
            last_s = min(trained_s.get(item.name, math.inf), item.end_s)
            is_lent = item in change.loans
            for own, from_s, to_s in _phases(change, item, last_s, drained_s.get((item.name, item.end_s), item.end_s)):
                if is_lent and own == "starting":
                    continue  # beside those who serve there
                phase = ON_LOAN if is_lent and own == "retraining" else own
                begin_s, until_s = (min(max(0.0, at_s), end_s) for at_s in (from_s, to_s))
                yield HeldSpan(first_row, first_row + height, begin_s, until_s, item.tenant, phase, item.placement)


def _phases(change: LayoutChange, item: Tenure, last_s: float, drained_s: float) -> Iterator[tuple[str, float, float]]:
    """What the instance did from when to when; ``last_s`` is when its worker had done all that it was there for."""
    created_s = next(
        (call.end_s for call in change.calls if call.call == "create" and call.placement == item.placement),
        item.begin_s,
    )
    yield "creating", item.begin_s, created_s
    doing = "serving" if item.task == INFERENCE else "retraining"
    at_s = created_s
    for ready_s, until_s in item.served:
        if (at_s, ready_s) not in item.lent:
            yield "starting", at_s, ready_s
        yield doing, ready_s, min(until_s, last_s)
        at_s = until_s
    if not item.served:
        yield "starting", at_s, item.up_s
        at_s = max(at_s, item.up_s)
    # What has failed for good holds its slices until it is destroyed, as what has done its work does.
    yield "ending", min(at_s, last_s, item.end_s), max(drained_s, item.gone_s)


def _of_others(log: ReadLog, end_s: float) -> Iterator[HeldSpan]:
    gpu = log.gpu
    since_s: dict[str, float] = {}
    last_s = 0.0
    for entry in log.entries:
        if isinstance(entry.record, records.Resumed):  # what they did since is unknown; those that stay are seen anew
            for name, from_s in since_s.items():
                yield _others(gpu.placement(name), from_s, last_s)
            since_s = {}
        elif isinstance(entry.record, records.Others):
            since_s = dict.fromkeys(entry.record.came, entry.at_s) | since_s
            for name in entry.record.left:
                yield _others(gpu.placement(name), since_s.pop(name, 0.0), entry.at_s)
        last_s = entry.at_s
    for name, from_s in since_s.items():
        yield _others(gpu.placement(name), from_s, end_s)


def _others(placement: Placement, from_s: float, to_s: float) -> HeldSpan:
    return HeldSpan(placement.start, placement.end, from_s, to_s, None, "others", str(placement))


def _of_shares(log: ReadLog, end_s: float) -> Iterator[HeldSpan]:
    entries = log.entries_of(records.Shares)
    times_s = [*(entry.at_s for entry in entries), end_s]
    for entry, (from_s, to_s) in zip(entries, pairwise(times_s), strict=True):
        row = 0
        of = "the time" if entry.record.in_turns else "the processors"
        for tenant, task, twentieths in entry.record.shares:
            phase = "retraining" if task == RETRAINING else "serving"
            yield HeldSpan(row, row + twentieths, from_s, to_s, tenant, phase, f"{twentieths}/20 of {of}")
            row += twentieths


def new_models(log: ReadLog) -> list[NewModel]:
    """In order of time."""
    found = []
    for name, steps in _accuracies(log).items():
        for (_, before, _), (at_s, after, learned) in pairwise(steps):
            if learned is not None:
                is_part = isinstance(learned, records.Checkpoint)
                found.append(NewModel(at_s, learned.window, name, before, after, is_part))
    return sorted(found, key=lambda one: one.at_s)


_Step = tuple[float, float, records.Finished | None]
"""From when, the share of right answers, and what was learned then; ``None`` as a window begins."""


def _accuracies(log: ReadLog) -> dict[str, list[_Step]]:
    """By tenant how right its model is from when on: as each window begins, and as retrainings end."""
    known = known_of(log)
    found: dict[str, list[_Step]] = {tenant.name: [] for tenant in log.header.tenants}
    for started in log.of(records.WindowStarted):
        for name, model in known[started.window].items():
            found[name].append((started.start_s, model.accuracy_before, None))
    for learned in (*log.of(records.Checkpoint), *log.of(records.Finished)):
        found[learned.tenant].append((learned.finish_s, learned.accuracy, learned))
    for back in log.of(records.RolledBack):
        found[back.tenant].append((back.served_s, back.accuracy, None))
    return {name: sorted(steps, key=lambda step: step[0]) for name, steps in found.items()}


def courses(log: ReadLog, from_s: int = 0, to_s: int | None = None) -> dict[str, TenantTrack]:
    """By tenant, in the log's order, the seconds ``[from_s, to_s)``; all from ``from_s`` on where no end is given."""
    instances, accuracies = serving_instances(log), _accuracies(log)
    end_s = n_seconds(log) if to_s is None else to_s
    return {
        tenant.name: _course(log, tenant, instances[tenant.name], accuracies[tenant.name], range(from_s, end_s))
        for tenant in log.header.tenants
    }


def _course(
    log: ReadLog, tenant: records.Tenant, instances: Sequence[Tenure], steps: Sequence[_Step], seconds: range
) -> TenantTrack:
    n, window_s, from_s = len(seconds), round(log.header.window_s), seconds.start
    keys = ("arrivals", "in_time", "correct")
    counted = {key: counts_of(log, tenant.name, key, n, np.nan, from_s) for key in keys}
    if log.header.sharing == "instances":
        could, _ = could_serve(log, tenant, instances, np.arange(from_s, from_s + n, dtype=np.float64))
    else:
        could = counts_of(log, tenant.name, "could_serve", n, np.nan, from_s)
    forecast = {key: np.full(n, np.nan) for key in ("mean", "low", "high")}
    for started in log.of(records.WindowStarted):
        if (own_forecast := started.forecast.tenants.get(tenant.name)) is None:
            continue  # it came later, or had gone
        begin = round(started.start_s) - from_s
        first, end = max(0, begin), max(0, min(begin + window_s, n))
        for key, series in forecast.items():
            rates_rps = by_second(getattr(own_forecast, f"{key}_rps"), log.header.step_s, window_s)
            series[first:end] = rates_rps[first - begin : end - begin]
    accuracy = np.full(n, np.nan)
    for at_s, share, _ in steps:
        accuracy[max(0, math.ceil(at_s) - from_s) :] = share
    for closing in log.settled.values():
        for first, end in closing.blind:
            for series in (*counted.values(), could, accuracy):
                series[max(0, first - from_s) : max(0, end - from_s)] = np.nan
    return TenantTrack(**counted, could=could, **forecast, accuracy=accuracy)
