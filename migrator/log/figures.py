"""What the records of a run, taken one after the other, add up to: for whoever watches it while it runs.

Counts of requests have whole windows alone, so that none ever falls: the outcome of a window's requests is in the
log once it is settled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from migrator import __version__
from migrator.log.line import Entry
from migrator.log.records import (
    Cause,
    Change,
    Counts,
    Failed,
    Finished,
    Intent,
    Interrupted,
    Measured,
    NotRevised,
    Outcome,
    Outside,
    OutsideCounts,
    PlanKept,
    PlanRevised,
    Promise,
    Ready,
    Record,
    Resumed,
    RolledBack,
    RunFinished,
    RunStarted,
    ServiceStopped,
    Tenant,
    TenantsChanged,
    WindowFinished,
    WindowStarted,
)
from migrator.log.report import worth_in_time

BOUNDS = (0.5, 1.0, 2.0)
"""Of a tenant's latencies, in its SLOs; one more is infinite."""

MUST = "must"
"""The cause of a plan that had to be made anew, as the one in force could not be followed."""


class TenantFigures:
    """Outcomes of a tenant's requests of settled windows and of none, how many came in the last one, and shares."""

    def __init__(self, tenant: Tenant, *, is_live: bool) -> None:
        self.ask(tenant)
        self.requests = Counter[str](in_time=0, late=0, dropped=0)
        self.offered = 0 if is_live else None
        if is_live:  # from the start: Prometheus sees no increase where a counter appears above 0
            self.requests.update(refused=0, failed=0)
        self.outside = self.requests.copy() if is_live else Counter[str]()
        self.retrainings = Counter[str](finished=0, failed=0, **{"rejected": 0} if is_live else {})
        self.labels = Counter[str](right=0, wrong=0) if is_live else Counter[str]()
        self.goodput: int | None = 0
        self.correct: int | None = 0
        self.within = [0] * len(BOUNDS)
        self.latency_s = 0.0
        self.arrivals = 0
        self.in_time_ratio = self.goodput_ratio = self.expected_ratio = self.promised_ratio = math.nan

    def ask(self, tenant: Tenant) -> None:
        """This is asked for it from now on."""
        self.slo_s = tenant.slo_ms / 1000
        self.floor = None if tenant.min_slo_attainment is None else tenant.min_slo_attainment.share

    @property
    def n_requests(self) -> int:
        """Of all settled windows."""
        return sum(self.requests.values())

    def answer_outside(self, counts: OutsideCounts) -> None:
        """Add what a service answered before its first window after a start."""
        refused, failed = counts.refused, counts.failed
        dropped = counts.dropped - refused - failed
        self.outside.update(in_time=counts.in_time, late=counts.late, dropped=dropped, refused=refused, failed=failed)

    def settle(self, counts: Counts, worth: float | None) -> None:
        """Add a window; once it is not known which answers are right, nothing more is said of that.

        Then ``worth`` is what they are expected to be worth, in requests.
        """
        self.arrivals, in_time = sum(counts.arrivals), sum(counts.in_time)
        refused, failed = sum(counts.refused), sum(counts.failed)
        self.requests.update(in_time=in_time, late=sum(counts.late), dropped=sum(counts.dropped) - refused - failed)
        if counts.refused:
            self.requests.update(refused=refused, failed=failed)
        goodput = sum(counts.correct) if counts.is_labelled else None
        self.in_time_ratio = in_time / self.arrivals if self.arrivals else math.nan
        self.goodput_ratio = goodput / self.arrivals if self.arrivals and goodput is not None else math.nan
        self.expected_ratio = worth / self.arrivals if self.arrivals and worth is not None else math.nan
        if self.offered is not None:
            self.offered += self.arrivals
        if counts.judged is not None:
            n_labels, n_right = counts.judged
            self.labels.update(right=n_right, wrong=n_labels - n_right)
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
        self.tenants: dict[str, TenantFigures] = {}
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
        self._begun: dict[int, WindowStarted] = {}
        self._measured: dict[int, Measured] = {}
        self._ended = list[Finished | RolledBack]()
        self._there: frozenset[str] = frozenset()

    def promised_ratio(self, tenant: str) -> float:
        """Goodput that the plan of the newest window promised when it began; NaN where it promised none."""
        newest = max(self._promises, default=None)
        return math.nan if newest is None else _promised_ratio(self._promises[newest].get(tenant))

    def take(self, entry: Entry[Record]) -> None:
        """Add the next record."""
        self.has_ended = isinstance(entry.record, RunFinished | ServiceStopped | Interrupted)
        match entry.record:
            case RunStarted() as header:
                self.header, self.version = header, entry.wall.version or __version__
                self._set_tenants(header.tenants)
            case TenantsChanged(tenants=tenants):
                self._set_tenants(tenants)
            case WindowStarted() as started:
                self._promises[started.window] = started.expected or {}
                self._begun[started.window] = started
                self.gap = None if started.plan is None else started.plan.gap
            case Measured() as measured:
                self._measured[measured.window] = measured
            case PlanRevised() | PlanKept() | NotRevised() as anew:
                self._take_replan(anew)
            case Intent(call=call):
                self._intents[entry.n] = call
            case Outcome(intent=intent, error=error):
                self.calls[self._intents.pop(intent), "done" if error is None else "refused"] += 1
            case WindowFinished() as finished:
                self._settle(finished)
            case Outside(tenants=tenants):
                for name, counts in tenants.items():
                    self.tenants[name].answer_outside(counts)
            case other:
                self._take_worker(other)

    def _set_tenants(self, tenants: Iterable[Tenant]) -> None:
        is_live = self.header is not None and not self.header.simulated
        for tenant in tenants:
            self.tenants.setdefault(tenant.name, TenantFigures(tenant, is_live=is_live)).ask(tenant)
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
        """The instances, who serves in them, and outcomes of retrainings."""
        match record:
            case Change() as change:
                self._change(change)
            case Ready(instance=instance, tenant=tenant, task="inference"):
                self.serving.add((instance, tenant))
            case Failed(instance=instance, tenant=tenant, task="inference"):
                self.n_worker_failures += 1
                self.serving.discard((instance, tenant))
            case Failed(tenant=tenant) if tenant in self.tenants:  # it may have left long ago
                self.tenants[tenant].retrainings["failed"] += 1
            case Finished(tenant=tenant) if type(record) is Finished and tenant in self.tenants:
                self.tenants[tenant].retrainings["finished" if record.rejected is None else "rejected"] += 1
                self._ended.append(record)
            case RolledBack():
                self._ended.append(record)
            case Resumed():
                self.layout, self.serving = (), set()
            case _:
                pass

    def _change(self, change: Change) -> None:
        self.n_changes += bool(change.started or change.stopped or change.passed or change.undone)
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
            own.settle(counts, None if counts.is_labelled else self._worth(finished.window, name, counts))
            own.promised_ratio = _promised_ratio(promises.get(name))
        self.blind_s += finished.blind_s
        begun = self._begun.pop(finished.window, None)
        self._measured.pop(finished.window, None)
        self._ended = [one for one in self._ended if begun is None or one.from_s > begun.start_s]
        self.tenants = {n: own for n, own in self.tenants.items() if n in self._there or n in finished.tenants}

    def _worth(self, window: int, tenant: str, counts: Counts) -> float | None:
        """What the tenant's answers in time are expected to be worth; ``None`` where its accuracy is unknown."""
        begun, measured = self._begun.get(window), self._measured.get(window)
        if begun is None:
            return None
        known = (begun.forecast.tenants if measured is None else measured.tenants).get(tenant)
        ended = (one for one in self._ended if one.tenant == tenant)
        return None if known is None else worth_in_time(counts, begun.start_s, known.accuracy_before, ended)


def _promised_ratio(promise: Promise | None) -> float:
    """The goodput that a plan promised, as a share of the arrivals that it expected; NaN where it promised none."""
    if promise is None or promise.goodput is None or promise.arrivals <= 0:
        return math.nan
    return promise.goodput / promise.arrivals
