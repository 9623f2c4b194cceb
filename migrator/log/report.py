"""From a log to a report: per window and tenant, and totals. Reads the log and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from migrator.errors import LogError
from migrator.log.runlog import Event, ReadLog
from migrator.log.start_ups import StartUps, start_ups_of
from workloads.serving.tally import Totals, latency_percentile_ms, merge_histograms


@dataclass(frozen=True, slots=True)
class Figures:
    """What a tenant, a window, or a whole run came to.

    Attributes:
        requests: Counts of arrivals and what became of them.
        p50_ms: Median latency of the answered, to the next full millisecond; ``None`` without answers.
        p99_ms: The same for the 99th percentile.
        forecast_error_pct: Σ |forecast − arrivals| over the seconds, of the arrivals; ``None`` without arrivals.
        reconfigurations: Changes that started or stopped an inference instance.
        outage_s: Seconds in which the tenant had no serving instance (summed over tenants in totals).
        capacity_lost_s: Seconds of the whole GPU's compute that were held by inference instances not
            serving yet (creation, start-up) or no more (draining, destruction).
        late_ready_s: Seconds by which instances were ready later than planned, summed.
        retrainings: Retrainings that began.
    """

    requests: Totals
    p50_ms: int | None
    p99_ms: int | None
    forecast_error_pct: float | None
    reconfigurations: int
    outage_s: float
    capacity_lost_s: float
    late_ready_s: float
    retrainings: int


@dataclass(frozen=True, slots=True)
class WindowReport:
    """One window; ``tenants`` is empty and ``total`` ``None`` when the run ended before it was settled (void)."""

    window: int
    plan_status: str
    expected_goodput: float | None
    gap: float | None
    tenants: Mapping[str, Figures]
    total: Figures | None

    @property
    def is_void(self) -> bool:
        """Whether the run ended before every request of the window was resolved."""
        return self.total is None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run.

    Attributes:
        header: The log's ``run_started`` event.
        windows: Every window that was begun, in order.
        tenants: Totals by tenant over the settled windows.
        total: Over all tenants and settled windows; ``None`` when there are none.
        ending: ``finished``, ``interrupted`` or ``torn``: how the log ends.
        start_ups: What its changes took, by tenant and phase.
    """

    header: Event
    windows: tuple[WindowReport, ...]
    tenants: Mapping[str, Figures]
    total: Figures | None
    ending: str
    start_ups: StartUps


@dataclass(frozen=True, slots=True)
class _Part:
    """One tenant's raw figures in one window, from which any sum of them is made."""

    requests: Totals
    latency_ms: Mapping[int, int]
    forecast_error: float
    reconfigured_at: frozenset[float]
    outage_s: float
    capacity_lost_s: float
    late_ready_s: float
    retrainings: int


def report_of(log: ReadLog) -> Report:
    """The report of a log, whole or torn.

    Raises:
        LogError: An event lacks what it must hold: the log was altered, or another version wrote it.
    """
    try:
        return _report_of(log)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"an event is not as this version writes it ({reason}); the log was altered, or is another version's"
        raise LogError(f"{log.folder}: {message}") from error


def _report_of(log: ReadLog) -> Report:
    header = log.header
    names = [tenant["name"] for tenant in header["tenants"]]
    finished = {event["window"]: event for event in log.of_kind("window_finished")}
    changes = log.of_kind("change")
    windows: list[WindowReport] = []
    parts: dict[str, list[_Part]] = {name: [] for name in names}
    for started in log.of_kind("window_started"):
        closing = finished.get(started["window"])
        own = {} if closing is None else {n: _part(n, header, started, closing, changes) for n in names}
        for name, part in own.items():
            parts[name].append(part)
        plan = started["plan"]
        windows.append(
            WindowReport(
                window=started["window"],
                plan_status=plan["status"],
                expected_goodput=plan["objective"],
                gap=plan["gap"],
                tenants={name: _figures([part]) for name, part in own.items()},
                total=_figures(own.values()) if own else None,
            )
        )
    every = [part for own_parts in parts.values() for part in own_parts]
    return Report(
        header=header,
        windows=tuple(windows),
        tenants={name: _figures(own_parts) for name, own_parts in parts.items() if own_parts},
        total=_figures(every) if every else None,
        ending=_ending(log),
        start_ups=start_ups_of(changes),
    )


def _ending(log: ReadLog) -> str:
    kinds = {event["kind"] for event in log.events}
    if "run_finished" in kinds:
        return "finished"
    return "interrupted" if "interrupted" in kinds else "torn"


def _part(name: str, header: Event, started: Event, closing: Event, changes: Sequence[Event]) -> _Part:
    counts = closing["tenants"][name]
    begin_s = started["start_s"]
    end_s = begin_s + header["window_s"]
    own = [_of_tenant(event, name) for event in changes if event["window"] == started["window"]]
    moved = [event for event in own if event["begin_s"] >= 0 and (event["started"] or event["stopped"])]
    end_of = {item["instance"]: item["end_s"] for event in changes for item in event["stopped"]}
    forecast = started["forecast"]["tenants"][name]["mean_rps"]
    return _Part(
        requests=Totals(*(sum(counts[key]) for key in _COUNT_KEYS)),
        latency_ms={int(upper_ms): n for upper_ms, n in counts["latency_ms"]},
        forecast_error=_absolute_error(counts["arrivals"], forecast, header["step_s"]),
        reconfigured_at=frozenset(event["begin_s"] for event in moved),
        outage_s=_uncovered_s(_serving_spans([_of_tenant(event, name) for event in changes]), begin_s, end_s),
        capacity_lost_s=sum(_held_idle_s(event, end_of) for event in moved) / header["compute_slices"],
        late_ready_s=sum(item["late_ready_s"] for event in own for item in (*event["started"], *event["trained"])),
        retrainings=sum(len(event["trained"]) for event in own),
    )


_COUNT_KEYS = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")


def _of_tenant(event: Event, name: str) -> dict[str, Any]:
    """A change as far as it concerns one tenant: inference started and stopped, and retrainings begun."""

    def own(key: str, task: str) -> list[Mapping[str, Any]]:
        return [item for item in event[key] if item["tenant"] == name and item["task"] == task]

    return {
        "begin_s": event["begin_s"],
        "started": own("started", "inference"),
        "stopped": own("stopped", "inference"),
        "trained": own("started", "retraining"),
    }


def _held_idle_s(event: Mapping[str, Any], end_of: Mapping[str, float]) -> float:
    """Compute-slice seconds that the change's inference instances held without serving, or until they were dropped."""

    def warm_s(item: Mapping[str, Any]) -> float:
        return float(min(item["ready_s"], end_of.get(item["instance"], math.inf)) - item["begin_s"])

    warming = sum(warm_s(item) * item["compute_slices"] for item in event["started"])
    leaving = sum((item["gone_s"] - item["end_s"]) * item["compute_slices"] for item in event["stopped"])
    return float(warming + leaving)


def _serving_spans(changes: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """When each inference instance served, ``[ready, end)``; the end is infinite while it lives."""
    spans: dict[str, tuple[float, float]] = {}
    for event in changes:
        for item in event["stopped"]:
            ready_s, _ = spans[item["instance"]]
            spans[item["instance"]] = (ready_s, item["end_s"])
        for item in event["started"]:
            spans[item["instance"]] = (item["ready_s"], float("inf"))
    return list(spans.values())


def _uncovered_s(spans: Iterable[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Seconds of ``[begin_s, end_s)`` in which no span holds."""
    uncovered_s, covered_until_s = 0.0, begin_s
    for from_s, to_s in sorted(spans):
        if to_s <= from_s:
            continue
        uncovered_s += max(0.0, min(from_s, end_s) - covered_until_s)
        covered_until_s = min(end_s, max(covered_until_s, to_s))
    return uncovered_s + max(0.0, end_s - covered_until_s)


def _absolute_error(arrivals: Sequence[int], mean_rps: Sequence[float], step_s: float) -> float:
    """Σ |forecast − arrivals| in requests, compared second by second; a step's forecast is spread evenly over it."""
    expected = [0.0, *accumulate(rate * step_s for rate in mean_rps)]

    def until(second: int) -> float:
        step, share = divmod(second / step_s, 1.0)
        index = min(int(step), len(expected) - 1)
        return expected[index] + (share * (expected[index + 1] - expected[index]) if index + 1 < len(expected) else 0.0)

    return sum(abs(until(s + 1) - until(s) - count) for s, count in enumerate(arrivals))


def _figures(parts: Iterable[_Part]) -> Figures:
    parts = list(parts)
    requests = sum((part.requests for part in parts), Totals())
    latency_ms = merge_histograms([part.latency_ms for part in parts])
    error = sum(part.forecast_error for part in parts)
    return Figures(
        requests=requests,
        p50_ms=latency_percentile_ms(latency_ms, 0.5),
        p99_ms=latency_percentile_ms(latency_ms, 0.99),
        forecast_error_pct=100 * error / requests.arrivals if requests.arrivals else None,
        reconfigurations=len(frozenset().union(*(part.reconfigured_at for part in parts))),
        outage_s=sum(part.outage_s for part in parts),
        capacity_lost_s=sum(part.capacity_lost_s for part in parts),
        late_ready_s=sum(part.late_ready_s for part in parts),
        retrainings=sum(part.retrainings for part in parts),
    )
