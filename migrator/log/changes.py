"""What a log says of instances: the changes of the layout, and the life of every instance that they started."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass

from migrator.log.record import Record
from migrator.log.runlog import ReadLog

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
    ready: Record | None

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
    intents = {record["n"]: record for record in log.of_kind("intent")}
    changes: list[LayoutChange] = []
    calls: list[Call] = []
    for record in log.events:
        if record["kind"] == "resumed":
            calls = []  # of a change that was cut off
        elif record["kind"] == "outcome" and record["error"] is None:
            intent = intents[record["intent"]]
            calls.append(Call(intent["call"], intent["placement"], record["begin_s"], record["end_s"]))
        elif record["kind"] == "change":
            changes.append(
                LayoutChange(
                    window=record["window"],
                    begin_s=record["begin_s"],
                    calls=tuple(calls),
                    started=tuple(instances[item["instance"]] for item in record["started"]),
                    stopped=tuple(instances[item["instance"]] for item in record["stopped"]),
                    is_bring_up=record["begin_s"] < record["window"] * log.header["window_s"],
                )
            )
            calls = []
    return tuple(changes)


def _instances_in(log: ReadLog) -> dict[str, Instance]:
    """By id."""
    changes = log.of_kind("change")
    stopped = {item["instance"]: item for record in changes for item in record["stopped"]}
    stopped |= _cut_off(log, stopped.keys())
    workers: defaultdict[str | None, list[Record]] = defaultdict(list)
    for record in log.events:
        if record["kind"] in ("ready", "failed"):
            workers[record["instance"]].append(record)
    log_ends_s = log.events[-1].get("at_s", math.inf)
    return {
        item["instance"]: _instance(item, stopped.get(item["instance"], {}), workers[item["instance"]], log_ends_s)
        for record in changes
        for item in record["started"]
    }


def _cut_off(log: ReadLog, stopped: Container[str]) -> dict[str, Record]:
    """What was in use when the run was cut off, with the last moment that is known of it."""
    found: dict[str, Record] = {}
    alive: list[str] = []
    last_s = 0.0
    for record in log.events:
        if record["kind"] == "resumed":
            found |= {name: {"end_s": last_s, "gone_s": last_s} for name in alive if name not in stopped}
            alive = []
        elif record["kind"] == "change":
            alive += [item["instance"] for item in record["started"]]
        last_s = record.get("at_s", last_s)
    return found


def _instance(started: Record, stopped: Record, workers: list[Record], log_ends_s: float) -> Instance:
    end_s = stopped.get("end_s", math.inf)
    first_s = [record["ready_s"] if record["kind"] == "ready" else record["failed_s"] for record in workers[:1]]
    return Instance(
        name=started["instance"],
        placement=started["placement"],
        compute_slices=started["compute_slices"],
        tenant=started["tenant"],
        task=started["task"],
        begin_s=started["begin_s"],
        up_s=min(first_s[0] if first_s else log_ends_s, end_s),
        served=_served(workers, end_s),
        end_s=end_s,
        gone_s=stopped.get("gone_s", math.inf),
        ready=next((record for record in workers if record["kind"] == "ready"), None),
    )


def _served(workers: list[Record], end_s: float) -> tuple[tuple[float, float], ...]:
    spans: list[tuple[float, float]] = []
    ready_s: float | None = None
    for record in workers:
        if record["kind"] == "ready":
            ready_s = record["ready_s"] if ready_s is None else ready_s
        elif ready_s is not None:
            spans.append((ready_s, min(record["failed_s"], end_s)))
            ready_s = None
    return (*spans, (ready_s, end_s)) if ready_s is not None else tuple(spans)
