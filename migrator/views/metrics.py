"""A run's figures as Prometheus reads them, from the log that is followed; ``docs/metrics.md`` lists them.

Counters of requests have whole windows alone, so that none ever falls: what becomes of a window's requests is in the
log once it is settled. Needs the extra ``metrics``.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator import __version__
from migrator.log.follow import FollowedLog
from migrator.log.line import Entry
from migrator.log.records import (
    Cause,
    Change,
    Counts,
    Failed,
    Finished,
    Intent,
    Interrupted,
    NotRevised,
    Outcome,
    PlanKept,
    PlanRevised,
    Promise,
    Ready,
    Record,
    Resumed,
    RunFinished,
    RunStarted,
    Tenant,
    TenantsChanged,
    WindowFinished,
    WindowStarted,
)

BOUNDS = (0.5, 1.0, 2.0)
"""Of a tenant's latencies, in its SLOs; one more is infinite."""

MUST = "must"
"""The cause of a plan that had to be made anew, as the one in force could not be followed."""


class _TenantFigures:
    """What became of a tenant's requests of all settled windows, and shares of the last one."""

    def __init__(self, tenant: Tenant, *, is_live: bool) -> None:
        self.slo_s = tenant.slo_ms / 1000
        self.floor = None if tenant.min_slo_attainment is None else tenant.min_slo_attainment.share
        self.requests = Counter[str](in_time=0, late=0, dropped=0)
        if is_live:  # from the start: Prometheus sees no increase where a counter appears above 0
            self.requests["refused"] = 0
        self.retrainings = Counter[str](finished=0, failed=0)
        self.goodput: int | None = 0
        self.correct: int | None = 0
        self.within = [0] * len(BOUNDS)
        self.latency_s = 0.0
        self.in_time_ratio = self.goodput_ratio = self.promised_ratio = math.nan

    @property
    def n_requests(self) -> int:
        return sum(self.requests.values())

    def settle(self, counts: Counts) -> None:
        """Add a window; once it is not known which answers are right, nothing more is said of that."""
        arrivals, in_time = sum(counts.arrivals), sum(counts.in_time)
        refused = sum(counts.refused)
        self.requests.update(in_time=in_time, late=sum(counts.late), dropped=sum(counts.dropped) - refused)
        if counts.refused:
            self.requests["refused"] += refused
        goodput = sum(counts.correct) if counts.is_labelled else None
        self.in_time_ratio = in_time / arrivals if arrivals else math.nan
        self.goodput_ratio = goodput / arrivals if arrivals and goodput is not None else math.nan
        if goodput is None or self.goodput is None or self.correct is None:
            self.goodput = self.correct = None
        else:
            self.goodput, self.correct = self.goodput + goodput, self.correct + goodput + sum(counts.correct_late)
        for place, share in enumerate(BOUNDS):
            most_ms = math.floor(1000 * share * self.slo_s + 1e-9)
            self.within[place] += sum(n for upper_ms, n in counts.latency_ms if upper_ms <= most_ms)
        self.latency_s += sum(upper_ms * n for upper_ms, n in counts.latency_ms) / 1000

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Requests answered within each bound; those without an answer are in the infinite one."""
        bounds = (f"{share * self.slo_s:g}" for share in BOUNDS)
        return [*zip(bounds, map(float, self.within), strict=True), ("+Inf", float(self.n_requests))]


class RunFigures:
    """What the records of a run, taken one after the other, add up to."""

    def __init__(self) -> None:
        self.header: RunStarted | None = None
        self.version = __version__
        self.tenants: dict[str, _TenantFigures] = {}
        self.n_worker_failures = self.n_changes = self.blind_s = 0
        self.calls = Counter[tuple[str, str]]()
        self.replans = Counter[tuple[str, str]]()
        for call in ("create", "destroy", "repair"):
            self.calls.update({(call, "done"): 0, (call, "refused"): 0})
        for cause in Cause:
            self.replans.update({(cause.value, "revised"): 0, (cause.value, "kept"): 0})
        self.replans.update({(MUST, "revised"): 0, (MUST, "none"): 0})
        self.layout: tuple[tuple[str, tuple[str, ...], str], ...] = ()
        self.serving: set[tuple[str | None, str]] = set()
        self.gap: float | None = None
        self.has_ended = False
        self._intents: dict[int, str] = {}
        self._promises: dict[int, dict[str, Promise]] = {}
        self._there: frozenset[str] = frozenset()

    def take(self, entry: Entry[Record]) -> None:
        """Add the next record."""
        self.has_ended = isinstance(entry.record, RunFinished | Interrupted)
        match entry.record:
            case RunStarted() as header:
                self.header, self.version = header, entry.wall.version or __version__
                self._set_tenants(header.tenants)
            case TenantsChanged(tenants=tenants):
                self._set_tenants(tenants)
            case WindowStarted() as started:
                self._promises[started.window] = started.expected or {}
                self.gap = None if started.plan is None else started.plan.gap
            case PlanRevised() | PlanKept() | NotRevised() as anew:
                self._take_replan(anew)
            case Intent(call=call):
                self._intents[entry.n] = call
            case Outcome(intent=intent, error=error):
                self.calls[self._intents.pop(intent), "done" if error is None else "refused"] += 1
            case WindowFinished() as finished:
                self._settle(finished)
            case other:
                self._take_worker(other)

    def _set_tenants(self, tenants: Iterable[Tenant]) -> None:
        is_live = self.header is not None and not self.header.simulated
        for tenant in tenants:
            self.tenants.setdefault(tenant.name, _TenantFigures(tenant, is_live=is_live))
        self._there = frozenset(tenant.name for tenant in tenants)

    def _take_replan(self, anew: PlanRevised | PlanKept | NotRevised) -> None:
        match anew:
            case PlanRevised(cause=cause, plan=plan):
                self.replans[MUST if cause is None else cause.value, "revised"] += 1
                self.gap = plan.gap
            case PlanKept(cause=cause):
                self.replans[cause.value, "kept"] += 1
            case NotRevised():
                self.replans[MUST, "none"] += 1

    def _take_worker(self, record: Record) -> None:
        """What stands, who serves in it, and what became of retrainings."""
        match record:
            case Change() as change:
                self._change(change)
            case Ready(instance=instance, tenant=tenant, task="inference"):
                self.serving.add((instance, tenant))
            case Failed(instance=instance, tenant=tenant, task="inference"):
                self.n_worker_failures += 1
                self.serving.discard((instance, tenant))
            case Failed(tenant=tenant):
                self.tenants[tenant].retrainings["failed"] += 1
            case Finished(tenant=tenant) if type(record) is Finished:
                self.tenants[tenant].retrainings["finished"] += 1
            case Resumed():
                self.layout, self.serving = (), set()
            case _:
                pass

    def _change(self, change: Change) -> None:
        self.n_changes += 1
        self.layout = tuple(
            (placement, (holder,) if isinstance(holder, str) else holder, task)
            for placement, holder, task in change.layout
        )
        gone = {stopped.instance for stopped in change.stopped}
        members = {passed.instance: passed.members for passed in change.passed}
        self.serving = {
            (instance, tenant)
            for instance, tenant in self.serving
            if instance not in gone and (instance not in members or tenant in members[instance])
        }

    def _settle(self, finished: WindowFinished) -> None:
        promises = self._promises.get(finished.window, {})
        self._promises = {window: kept for window, kept in self._promises.items() if window > finished.window}
        for name, counts in finished.tenants.items():
            own = self.tenants[name]
            own.settle(counts)
            own.promised_ratio = _promised_ratio(promises.get(name))
        self.blind_s += finished.blind_s
        self.tenants = {n: own for n, own in self.tenants.items() if n in self._there or n in finished.tenants}


def _promised_ratio(promise: Promise | None) -> float:
    """The goodput that a plan promised, as a share of the arrivals that it expected; NaN where it promised none."""
    if promise is None or promise.goodput is None or promise.arrivals <= 0:
        return math.nan
    return promise.goodput / promise.arrivals


class RunMetrics(Collector):
    """The metrics of a run, read from its log whenever they are asked for."""

    def __init__(self, followed: FollowedLog, tell: Callable[[str], object]) -> None:
        """``tell`` is given the reason, once, when no more can be read of a log that could be read before."""
        self._followed, self._tell, self._figures = followed, tell, RunFigures()
        self._lock = Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def look(self) -> None:
        """Take what is new in the log."""
        with self._lock:
            was_read = bool(self._followed.identity) and not self._followed.damage
            for entry in self._followed.read().entries:
                self._figures.take(entry)
            if was_read and self._followed.damage:
                self._tell(self._followed.damage)

    def text(self) -> bytes:
        """All metrics now, in the text format of Prometheus."""
        self.look()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics as of the last look."""
        with self._lock:
            yield from (family for family in self._families() if family.samples)

    def _families(self) -> Iterator[Metric]:
        figures = self._figures
        ok = GaugeMetricFamily("migrator_log_ok", "Whether the log can be read; else the other figures are old.")
        ok.add_metric((), 0 if self._followed.damage else 1)
        yield ok
        if figures.header is None:
            return
        info = GaugeMetricFamily("migrator_run_info", "What the run is.", labels=("policy", "gpu", "version"))
        info.add_metric((figures.header.policy, figures.header.gpu, figures.version), 1)
        yield info
        if not figures.has_ended:
            age = GaugeMetricFamily(
                "migrator_record_age_seconds", "Since the last record; none once the run has ended."
            )
            age.add_metric((), max(time.time() - self._followed.written_s, 0.0))
            yield age
        yield from _of_tenants(figures)
        yield from _of_gpu(figures)


def _of_tenants(figures: RunFigures) -> Iterator[Metric]:
    """What became of requests and retrainings, by tenant."""
    own, each = ("tenant",), ("tenant", "outcome")
    requests = CounterMetricFamily("migrator_requests", "Requests of settled windows.", labels=each)
    goodput = CounterMetricFamily("migrator_goodput_requests", "Answered in time and right.", labels=own)
    correct = CounterMetricFamily("migrator_correct_answers", "Answered right, in time or late.", labels=own)
    retrainings = CounterMetricFamily("migrator_retrainings", "Retrainings that ended.", labels=each)
    latency = HistogramMetricFamily(
        "migrator_latency_seconds",
        "Of answers, each rounded up to a millisecond; requests without an answer are in +Inf alone.",
        labels=own,
    )
    up = GaugeMetricFamily("migrator_tenant_up", "Whether an instance serves it.", labels=own)
    tells_up = figures.header is not None and figures.header.sharing == "instances"  # else no log says who serves
    shares = {
        field: GaugeMetricFamily(f"migrator_{name}", f"{text}.", labels=own)
        for field, name, text in (
            ("in_time_ratio", "window_in_time_ratio", "Of the last settled window's requests, answered in time"),
            ("goodput_ratio", "window_goodput_ratio", "The same, answered in time and right"),
            ("promised_ratio", "window_promised_ratio", "The same, as the plan promised as the window began"),
        )
    }
    floors = GaugeMetricFamily("migrator_floor_ratio", "The tenant's floor of in-time answers.", labels=own)
    serving = set() if figures.has_ended else {tenant for _, tenant in figures.serving}
    for name, tenant in figures.tenants.items():
        for outcome, n in tenant.requests.items():
            requests.add_metric((name, outcome), n)
        for outcome, n in tenant.retrainings.items():
            retrainings.add_metric((name, outcome), n)
        if tenant.goodput is not None and tenant.correct is not None:
            goodput.add_metric((name,), tenant.goodput)
            correct.add_metric((name,), tenant.correct)
        latency.add_metric((name,), tenant.buckets, tenant.latency_s)
        if tells_up:
            up.add_metric((name,), int(name in serving))
        for field, family in shares.items():
            if not math.isnan(share := getattr(tenant, field)):
                family.add_metric((name,), share)
        if tenant.floor is not None:
            floors.add_metric((name,), tenant.floor)
    yield from (requests, goodput, correct, retrainings, latency, up, *shares.values(), floors)


def _of_gpu(figures: RunFigures) -> Iterator[Metric]:
    """What stands, and what was done to it."""
    for name, text, n in (
        ("worker_failures", "Serving workers that died, or did not start.", figures.n_worker_failures),
        ("changes", "Changes of what stands.", figures.n_changes),
        ("blind_seconds", "Seconds that are in no count.", figures.blind_s),
    ):
        yield CounterMetricFamily(f"migrator_{name}", text, value=n)
    calls = CounterMetricFamily("migrator_driver_calls", "Calls of the driver.", labels=("call", "outcome"))
    for (call, outcome), n in figures.calls.items():
        calls.add_metric((call, outcome), n)
    replans = CounterMetricFamily("migrator_replans", "Plans of a window's rest.", labels=("cause", "outcome"))
    for (cause, outcome), n in figures.replans.items():
        replans.add_metric((cause, outcome), n)
    placed = GaugeMetricFamily(
        "migrator_placement", "1 while it is held; a pool is a+b.", labels=("placement", "tenant", "task")
    )
    for placement, holders, task in () if figures.has_ended else figures.layout:
        placed.add_metric((placement, "+".join(holders), task), 1)
    gap = GaugeMetricFamily("migrator_plan_gap_ratio", "How far the plan is from the best at most, as proven.")
    if figures.gap is not None:
        gap.add_metric((), figures.gap)
    yield from (calls, replans, placed, gap)
