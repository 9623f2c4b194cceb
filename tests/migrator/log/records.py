"""Records made by hand, as a log holds them, and a small log of two windows and two tenants with nearly all kinds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from migrator.log.record import Record
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog

RATE_RPS = {"1g.10gb": 10.0, "2g.20gb": 20.0, "7g.80gb": 70.0}


def header(window_s: float, *names: str, **fields: Any) -> dict[str, Any]:
    tenants = [
        {
            "name": name,
            "model": "m",
            "slo_ms": 9,
            "load": 0.5,
            "trace": "t",
            "scale": {"method": "none", "factor": 1},
            "dispersion_before": 1,
            "dispersion_after": 1,
            "operating_points": {profile: {"rate_rps": rate} for profile, rate in RATE_RPS.items()},
        }
        for name in names or ("a",)
    ]
    return {
        "kind": "run_started",
        "schema": 2,
        "name": "tiny",
        "seed": 1,
        "simulated": True,
        "gpu": "a100-80gb",
        "compute_slices": 7,
        "window_s": window_s,
        "step_s": 1.0,
        "windows": 2,
        "forecaster": "ewma",
        "policy": "migrator",
        "knows": "forecast",
        "sharing": "instances",
        "tenants": tenants,
        **fields,
    }


def window_started(window: int, window_s: float, *names: str, mean_rps: list[float] | None = None) -> dict[str, Any]:
    forecast = {"mean_rps": [1.0] * round(window_s) if mean_rps is None else mean_rps}
    return {
        "kind": "window_started",
        "window": window,
        "start_s": window * window_s,
        "forecast": {"tenants": dict.fromkeys(names or ("a",), forecast)},
        "plan": {"status": "optimal", "objective": 5.0, "gap": 0.0},
    }


def change(window: int, begin_s: float, started: Iterable[Any] = (), stopped: Iterable[Any] = ()) -> dict[str, Any]:
    return {"kind": "change", "window": window, "begin_s": begin_s, "started": [*started], "stopped": [*stopped]}


def started(
    instance: str, begin_s: float, placement: str = "7g.80gb@0", tenant: str = "a", task: str = "inference"
) -> dict[str, Any]:
    slices = int(placement[0])
    return {
        "instance": instance,
        "placement": placement,
        "compute_slices": slices,
        "tenant": tenant,
        "task": task,
        "begin_s": begin_s,
    }


def stopped(instance: str, end_s: float, gone_s: float) -> dict[str, Any]:
    return {"instance": instance, "end_s": end_s, "gone_s": gone_s}


def ready(window: int, instance: str | None, ready_s: float, late_s: float = 0.0, tenant: str = "a") -> dict[str, Any]:
    times = {"ready_s": ready_s, "late_ready_s": late_s, "library_s": 0.5, "model_s": 1.5}
    return {"kind": "ready", "window": window, "instance": instance, "tenant": tenant, **times}


def failed(window: int, instance: str | None, failed_s: float, tenant: str = "a") -> dict[str, Any]:
    why = {"failed_s": failed_s, "reason": "killed"}
    return {"kind": "failed", "window": window, "instance": instance, "tenant": tenant, **why}


def finished(window: int, instance: str | None, finish_s: float, tenant: str = "a") -> dict[str, Any]:
    what = {"finish_s": finish_s, "accuracy": 0.9}
    return {"kind": "finished", "window": window, "instance": instance, "tenant": tenant, **what}


def intent(window: int, call: str, placement: str) -> dict[str, Any]:
    return {"kind": "intent", "window": window, "call": call, "placement": placement, "gi_id": None}


def outcome(window: int, intent_n: int, begin_s: float, end_s: float, error: str | None = None) -> dict[str, Any]:
    moments = {"begin_s": begin_s, "end_s": end_s}
    return {"kind": "outcome", "window": window, "intent": intent_n, "gi_id": 1, **moments, "error": error}


def counts(in_time: list[int], dropped: list[int], correct: list[int], **more: Any) -> dict[str, Any]:
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


def window_finished(window: int, **tenants: Any) -> dict[str, Any]:
    return {"kind": "window_finished", "window": window, "tenants": tenants}


def log_of(*records: Record) -> ReadLog:
    return ReadLog(Path("run"), tuple({"n": n, **record} for n, record in enumerate(records)), torn=False)


def write(folder: Path, *records: Record) -> bytes:
    """Write the records through ``RunLog``, each at its own ``at_s``, or else at the time of the one before."""
    with RunLog(folder, "seed: 1\n") as log:
        at_s = -9.0
        for record in records:
            fields = {key: value for key, value in record.items() if key not in ("kind", "at_s", "wall")}
            at_s = record.get("at_s", at_s)
            log.append(record["kind"], at_s, fields, record.get("wall"))
    return (folder / EVENTS_FILE).read_bytes()


def tiny() -> list[dict[str, Any]]:
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
