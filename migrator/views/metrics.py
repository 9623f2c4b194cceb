"""A run's figures as Prometheus reads them, from the log that is followed; ``docs/metrics.md`` lists them.

Needs the extra ``metrics``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from threading import Lock

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.log.figures import RunFigures
from migrator.log.follow import FollowedLog
from migrator.log.progress import Progress


class RunMetrics(Collector):
    """The metrics of a run, read from its log whenever they are asked for."""

    def __init__(self, followed: FollowedLog, tell: Callable[[str], object]) -> None:
        """``tell`` is given the reason, once, when no more can be read of a log that could be read before."""
        self._followed, self._tell, self._figures = followed, tell, RunFigures()
        self._progress: Progress | None = None
        self._lock = Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def look(self) -> None:
        """Take what is new in the log."""
        with self._lock:
            was_read = bool(self._followed.identity) and not self._followed.damage
            news = self._followed.read()
            for entry in news.entries:
                self._figures.take(entry)
            self._progress = news.progress
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
        yield from _of_open_windows(figures, self._progress)
        yield from _of_gpu(figures)


def _of_tenants(figures: RunFigures) -> Iterator[Metric]:
    """Outcomes of requests and retrainings, by tenant."""
    own, each = ("tenant",), ("tenant", "outcome")
    requests = CounterMetricFamily("migrator_requests", "Requests of settled windows.", labels=each)
    outside = CounterMetricFamily(
        "migrator_requests_outside_windows", "Answered after a start, before the first window.", labels=each
    )
    offered = CounterMetricFamily("migrator_offered_requests", "All that came, refused ones too.", labels=own)
    goodput = CounterMetricFamily("migrator_goodput_requests", "Answered in time and right.", labels=own)
    correct = CounterMetricFamily("migrator_correct_answers", "Answered right, in time or late.", labels=own)
    retrainings = CounterMetricFamily("migrator_retrainings", "Retrainings that ended.", labels=each)
    labels = CounterMetricFamily("migrator_labels", "Answers that clients labelled.", labels=("tenant", "answer"))
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
            ("expected_ratio", "window_expected_goodput_ratio", "In time × accuracy, where nobody knows what is right"),
            ("promised_ratio", "window_promised_ratio", "The same, as the plan promised as the window began"),
        )
    }
    floors = GaugeMetricFamily("migrator_floor_ratio", "The tenant's floor of in-time answers.", labels=own)
    serving = set() if figures.has_ended else {tenant for _, tenant in figures.serving}
    for name, tenant in figures.tenants.items():
        for outcome, n in tenant.requests.items():
            requests.add_metric((name, outcome), n)
        for outcome, n in tenant.outside.items():
            outside.add_metric((name, outcome), n)
        for outcome, n in tenant.retrainings.items():
            retrainings.add_metric((name, outcome), n)
        if tenant.goodput is not None and tenant.correct is not None:
            goodput.add_metric((name,), tenant.goodput)
            correct.add_metric((name,), tenant.correct)
        for answer, n in tenant.labels.items():
            labels.add_metric((name, answer), n)
        if tenant.offered is not None:
            offered.add_metric((name,), tenant.offered)
        latency.add_metric((name,), tenant.buckets, tenant.latency_s)
        if tells_up:
            up.add_metric((name,), int(name in serving))
        for field, family in shares.items():
            if not math.isnan(share := getattr(tenant, field)):
                family.add_metric((name,), share)
        if tenant.floor is not None:
            floors.add_metric((name,), tenant.floor)
    yield from (requests, outside, offered, goodput, correct, retrainings, labels, latency, up)
    yield from (*shares.values(), floors)


def _of_open_windows(figures: RunFigures, progress: Progress | None) -> Iterator[Metric]:
    """What no window's end has told yet, by tenant; nothing where nobody says it."""
    requests = GaugeMetricFamily(
        "migrator_open_requests", "Requests of windows that are not settled; may fall.", labels=("tenant", "outcome")
    )
    waiting = GaugeMetricFamily("migrator_queue_requests", "Requests that wait.", labels=("tenant",))
    for name, counts in ({} if progress is None else progress.tenants).items():
        if name in figures.tenants:
            for outcome in figures.tenants[name].requests:
                requests.add_metric((name, outcome), getattr(counts, outcome))
            waiting.add_metric((name,), counts.waiting)
    yield from (requests, waiting)


def _of_gpu(figures: RunFigures) -> Iterator[Metric]:
    """The GPU's instances, and what was done to them."""
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
