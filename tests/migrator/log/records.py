"""Records made by hand, as a log holds them, and a small log of two windows and two tenants with nearly all kinds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import convert, to_builtins

from migrator.log.line import Entry, as_line
from migrator.log.records import AnyRecord, Dispatched, Wall
from migrator.log.runlog import EVENTS_FILE, SCHEMA, ReadLog, RunLog

Json = dict[str, Any]
"""A record as JSON has it: its ``kind`` and fields, and perhaps ``at_s`` and ``wall``."""

RATE_RPS = {"1g.10gb": 10.0, "2g.20gb": 20.0, "7g.80gb": 70.0}

COUNTS = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")

PLAN: Json = {
    "status": "optimal",
    "objective": 5.0,
    "claimed_bound": 5.0,
    "claimed_gap": 0.0,
    "engine": "physical",
    "reconfiguration": "physical",
    "n_steps": 3,
    "work": {},
}


def header(window_s: float, *names: str, **fields: Any) -> Json:
    tenants = [
        {
            "name": name,
            "model": "m",
            "slo_ms": 9,
            "load": 0.5,
            "trace": "t",
            "scale": {"method": "none", "factor": 1.0, "smooth_s": None},
            "dispersion_before": 1.0,
            "dispersion_after": 1.0,
            "operating_points": {
                profile: {"batch": 1, "processes": 1, "rate_rps": rate, "derived": ""}
                for profile, rate in RATE_RPS.items()
            },
            "retraining_s": {},
            "worker_start": {"seconds": 1.0, "library_s": 0.5, "source": "them"},
        }
        for name in names or ("a",)
    ]
    return {
        "kind": "run_started",
        "schema": SCHEMA,
        "name": "tiny",
        "seed": 1,
        "simulated": True,
        "gpu": "a100-80gb",
        "compute_slices": 7,
        "memory_slices": 8,
        "window_s": window_s,
        "step_s": 1.0,
        "windows": 2,
        "forecaster": "ewma",
        "policy": "migrator",
        "knows": "forecast",
        "sharing": "instances",
        "profiles": "shipped",
        "profile_variant": "recorded",
        "assumed": [],
        "tenants": tenants,
        **fields,
    }


def window_started(window: int, window_s: float, *names: str, mean_rps: list[float] | None = None) -> Json:
    rates = [1.0] * round(window_s) if mean_rps is None else mean_rps
    of_all = names or ("a",)
    return {
        "kind": "window_started",
        "window": window,
        "start_s": window * window_s,
        "queues": {},
        "forecast": {
            "method": "ewma",
            "low_level": 0.1,
            "high_level": 0.9,
            "tenants": {name: tenant_forecast(rates) for name in of_all},
        },
        "plan_from_step": 0,
        "initial": None,
        "expected": None,
        "plan": PLAN,
        "violations": [],
        "rejected_plan": None,
        "model_age": dict.fromkeys(of_all, 1),
    }


def tenant_forecast(rates: list[float]) -> Json:
    return {"accuracy_before": 0.5, "mean_rps": rates, "low_rps": rates, "high_rps": rates}


def rest_of(kind: str, window: int, **fields: Any) -> Json:
    """A window's rest that was planned anew, or that was not."""
    told = {"from_step": 0, "reason": "why", "asked_s": 0.0, "initial": None, "rest": {}, "plan": PLAN}
    return {"kind": kind, "window": window, **told, "violations": [], **fields}


def change(window: int, begin_s: float, started: Iterable[Any] = (), stopped: Iterable[Any] = ()) -> Json:
    when = {"planned_s": begin_s, "begin_s": begin_s}
    return {"kind": "change", "window": window, **when, "stopped": [*stopped], "started": [*started], "layout": []}


def started(
    instance: str, begin_s: float, placement: str = "7g.80gb@0", tenant: str = "a", task: str = "inference"
) -> Json:
    slices = int(placement[0])
    return {
        "instance": instance,
        "placement": placement,
        "compute_slices": slices,
        "tenant": tenant,
        "task": task,
        "begin_s": begin_s,
        "promised_s": begin_s,
    }


def stopped(instance: str, end_s: float, gone_s: float) -> Json:
    was = started(instance, end_s)
    del was["begin_s"], was["promised_s"]
    return {**was, "end_s": end_s, "drained_s": end_s, "gone_s": gone_s}


def ready(window: int, instance: str | None, ready_s: float, late_s: float = 0.0, tenant: str = "a") -> Json:
    times = {"ready_s": ready_s, "late_ready_s": late_s, "library_s": 0.5, "model_s": 1.5}
    who = {"instance": instance, "tenant": tenant, "task": "inference"}
    return {"kind": "ready", "window": window, **who, **times}


def failed(window: int, instance: str | None, failed_s: float, tenant: str = "a") -> Json:
    who = {"instance": instance, "tenant": tenant, "task": "inference"}
    return {"kind": "failed", "window": window, **who, "failed_s": failed_s, "reason": "killed"}


def finished(window: int, instance: str | None, finish_s: float, tenant: str = "a") -> Json:
    what = {"finish_s": finish_s, "accuracy": 0.9}
    return {"kind": "finished", "window": window, "instance": instance, "tenant": tenant, **what}


def rolled_back(served_s: float, tenant: str = "a", learned: int = 0) -> Json:
    what = {"version": f"window-{learned}", "before": "window-2", "weights": "w", "accuracy": 0.5, "learned": learned}
    return {"kind": "rolled_back", "served_s": served_s, "tenant": tenant, **what}


def intent(window: int, call: str, placement: str) -> Json:
    return {"kind": "intent", "window": window, "call": call, "placement": placement, "gi_id": None}


def outcome(window: int, intent_n: int, begin_s: float, end_s: float, error: str | None = None) -> Json:
    moments = {"begin_s": begin_s, "end_s": end_s}
    return {"kind": "outcome", "window": window, "intent": intent_n, "gi_id": 1, **moments, "error": error}


def counts(in_time: list[int], dropped: list[int], correct: list[int], **more: Any) -> Json:
    nothing = [0] * len(in_time)
    return {
        "arrivals": [a + b for a, b in zip(in_time, dropped, strict=True)],
        "in_time": in_time,
        "late": nothing,
        "dropped": dropped,
        "correct": correct,
        "correct_late": nothing,
        "latency_ms": [[20, sum(in_time)]],
        **more,
    }


def dispatched(**counts: int) -> Json:
    """What a dispatcher counted; nothing but these."""
    return dict.fromkeys(Dispatched.__struct_fields__, 0) | counts


def window_finished(window: int, **tenants: Any) -> Json:
    """Counts that a tenant's lack are 0."""
    whole = {
        name: {**dict.fromkeys(COUNTS, [0] * len(own["arrivals"])), "latency_ms": [], **own}
        for name, own in tenants.items()
    }
    return {"kind": "window_finished", "window": window, "tenants": whole}


def record_of(record: Mapping[str, Any]) -> AnyRecord:
    return convert({key: value for key, value in record.items() if key not in ("n", "at_s", "wall")}, AnyRecord)


def log_of(*records: Mapping[str, Any]) -> ReadLog:
    """The log that holds these records; without a time of their own they are endlessly late."""
    entries = []
    for n, record in enumerate(records):
        at_s, wall = record.get("at_s", math.inf), convert(record.get("wall", {}), Wall)
        entries.append(Entry(record.get("n", n), at_s, record_of(record), wall))
    return ReadLog(Path("run"), tuple(entries), torn=False)


def timed(records: Iterable[Json]) -> list[Json]:
    """The records, each at its own time, or else at that of the one before, as a written log has them."""
    at_s, found = -9.0, []
    for record in records:
        at_s = record.get("at_s", at_s)
        found.append({**record, "at_s": at_s})
    return found


def as_json(log: ReadLog) -> list[Json]:
    """The log's records, to be altered and made a log of again."""
    return [to_builtins({"at_s": one.at_s, **to_builtins(one.record), "wall": one.wall}) for one in log.entries]


def lines_of(*records: Mapping[str, Any]) -> bytes:
    """The records as lines, whatever they hold, each at its own ``at_s``, or else at the time of the one before."""
    at_s, lines = -9.0, []
    for n, record in enumerate(records):
        at_s = record.get("at_s", at_s)
        fields = {key: value for key, value in record.items() if key not in ("n", "at_s", "wall")}
        lines.append(as_line({"n": n, "kind": record["kind"], "at_s": at_s} | fields, record.get("wall")))
    return b"".join(lines)


def write(folder: Path, *records: Mapping[str, Any]) -> bytes:
    """Write the records through ``RunLog``, timed as :func:`lines_of` has them."""
    with RunLog(folder, "seed: 1\n") as log:
        append(log, *records)
    return (folder / EVENTS_FILE).read_bytes()


def append(log: RunLog, *records: Mapping[str, Any]) -> None:
    at_s = -9.0
    for record in records:
        at_s = record.get("at_s", at_s)
        log.append(record_of(record), at_s, convert(record["wall"], Wall) if "wall" in record else None)


def tiny() -> list[Json]:
    """Bring-up, a failed worker that is started again, a move with a retraining, and a call that the driver refused."""
    both = ("a", "b")
    up = [started("1g.10gb@0#1", -9.0, "1g.10gb@0"), started("2g.20gb@2#2", -9.0, "2g.20gb@2", "b")]
    moved = [started("2g.20gb@4#3", 1.5, "2g.20gb@4"), started("1g.10gb@6#4", 1.5, "1g.10gb@6", task="retraining")]
    return [
        {**header(3.0, *both), "wall": {"started_at": "2026-01-01T00:00:00+00:00", "version": "1"}},
        {**window_started(0, 3.0, *both), "wall": {"solve_s": 0.25}},
        intent(0, "create", "1g.10gb@0"),
        outcome(0, 2, -9.0, -8.5),
        intent(0, "create", "2g.20gb@2"),
        outcome(0, 4, -8.5, -8.0),
        change(0, -9.0, up),
        {**ready(0, "1g.10gb@0#1", -6.0), "at_s": -6.0},
        {**ready(0, "2g.20gb@2#2", -5.5, 0.25, "b"), "at_s": -5.5},
        {**failed(0, "2g.20gb@2#2", 0.5, "b"), "at_s": 0.5},
        {**intent(0, "destroy", "1g.10gb@0"), "at_s": 1.0},
        outcome(0, 10, 1.0, 1.25),
        intent(0, "create", "2g.20gb@4"),
        outcome(0, 12, 1.5, 1.75),
        {**change(0, 1.0, moved, [stopped("1g.10gb@0#1", 1.0, 1.25)]), "at_s": 1.75},
        {**ready(0, "2g.20gb@2#2", 2.0, 0.0, "b"), "at_s": 2.0},
        {**ready(0, "2g.20gb@4#3", 2.75, 0.25), "at_s": 2.75},
        {**window_started(1, 3.0, *both), "at_s": 3.0, "wall": {"solve_s": 0.5}},
        {**finished(0, "1g.10gb@6#4", 3.5), "at_s": 3.5},
        {**window_finished(0, a=counts([4, 2, 0], [0, 1, 9], [3, 2, 0]), b=counts([5, 0, 7], [1, 8, 0], [5, 0, 6]))},
        {**intent(1, "create", "1g.10gb@0"), "at_s": 4.0},
        outcome(1, 20, 4.0, 4.5, "the driver is busy"),
        {**window_finished(1, a=counts([3, 3, 3], [0, 0, 0], [2, 2, 3]), b=counts([1, 1, 0], [0, 0, 0], [1, 0, 0]))}
        | {"at_s": 6.5},
        {"kind": "run_finished", "windows": 2},
    ]
