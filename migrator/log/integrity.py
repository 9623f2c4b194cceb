"""Whether the records of a log fit together: what checksums cannot tell, and all that is checked of schema 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from migrator.errors import LogError
from migrator.log.record import ALTERED, Record
from migrator.log.schema import check_fields


def check_records(numbered: Iterable[tuple[int, Record]]) -> None:
    """Raise unless the records, each with its line number, are a run's beginning, or all of it.

    The first one is a ``run_started``.

    Raises:
        LogError: A record lacks a field, contradicts itself, or cannot stand where it stands.
    """
    so_far = _SoFar()
    for line, record in numbered:
        try:
            check_fields(record)
            so_far.take(record)
        except LogError as error:
            raise LogError(f"line {line}: {error}") from None


class _SoFar:
    """What the records read so far allow the next one to be."""

    def __init__(self) -> None:
        self._header: Record = {}
        self._n_started = 0
        self._n_finished = 0
        self._ending: str | None = None
        self._open_intents: set[int] = set()
        self._instances: set[str] = set()
        self._stopped: set[str] = set()

    def take(self, record: Record) -> None:
        """Go on with one record that holds its fields."""
        kind = record["kind"]
        if self._header and kind == "run_started":
            raise LogError(f"there is more than one run_started record; {ALTERED}")
        if self._ending is not None:
            raise LogError(f"{kind} stands after {self._ending}, which ends a log; {ALTERED}")
        match kind:
            case "run_started":
                self._header = record
            case "resumed":
                self._take_resumed(record)
            case "window_started":
                self._expect_window(record, self._n_started)
                self._check_forecast(record)
                self._n_started += 1
            case "window_finished":
                self._expect_window(record, self._n_finished)
                self._check_counts(record)
                self._n_finished += 1
            case "intent":
                self._open_intents.add(record["n"])
            case "outcome":
                self._take_outcome(record)
            case "change":
                self._take_change(record)
            case "ready" | "checkpoint" | "finished" | "failed":
                self._check_worker(record)
            case "run_finished" | "interrupted":
                self._take_ending(kind)

    def _expect_window(self, record: Record, expected: int) -> None:
        kind, window = record["kind"], record["window"]
        if window != expected:
            raise LogError(f"{kind} of window {window} stands where that of window {expected} must; {ALTERED}")
        if kind == "window_finished" and window >= self._n_started:
            raise LogError(f"window {window} is finished before it is started; {ALTERED}")

    def _check_worker(self, record: Record) -> None:
        kind, instance = record["kind"], record["instance"]
        if instance is not None and instance not in self._instances:
            raise LogError(f"{kind} names instance {instance}, which was not started; {ALTERED}")

    def _check_forecast(self, record: Record) -> None:
        missing = {tenant["name"] for tenant in self._header["tenants"]} - set(record["forecast"]["tenants"])
        if missing:
            raise LogError(f"the forecast lacks tenant {min(missing)}; {ALTERED}")
        strange = set(record.get("expected") or ()) - {tenant["name"] for tenant in self._header["tenants"]}
        if strange:
            raise LogError(f"expected has tenant {min(strange)}, whom the run does not know; {ALTERED}")

    def _take_resumed(self, record: Record) -> None:
        window = record["window"]
        if self._header.get("backend", "sim") == "sim":
            raise LogError(f"resumed: a simulated run is carried out again instead; {ALTERED}")
        if record["void"] != list(range(self._n_finished, window)) or window < self._n_started:
            raise LogError(f"resumed with window {window} after {self._n_finished} finished ones; {ALTERED}")
        self._n_started = self._n_finished = window
        self._open_intents.clear()
        self._stopped = set(self._instances)

    def _take_outcome(self, record: Record) -> None:
        intent = record["intent"]
        if intent not in self._open_intents:
            raise LogError(f"outcome of record {intent}, which is no intent, or was answered before; {ALTERED}")
        self._open_intents.remove(intent)

    def _take_change(self, record: Record) -> None:
        for item in record["stopped"]:
            instance = item["instance"]
            if instance not in self._instances or instance in self._stopped:
                raise LogError(f"instance {instance} stops, but is not there; {ALTERED}")
            self._stopped.add(instance)
        points = {tenant["name"]: tenant["operating_points"] for tenant in self._header["tenants"]}
        for item in record["started"]:
            instance, tenant, profile = item["instance"], item["tenant"], item["placement"].partition("@")[0]
            if instance in self._instances:
                raise LogError(f"instance {instance} starts twice; {ALTERED}")
            if tenant not in points or (item["task"] == "inference" and profile not in points[tenant]):
                raise LogError(f"instance {instance} starts for {tenant}, which cannot use it; {ALTERED}")
            self._instances.add(instance)

    def _take_ending(self, kind: str) -> None:
        if kind == "run_finished" and self._n_finished < self._header["windows"]:
            raise LogError(f"the run ends after {self._n_finished} of {self._header['windows']} windows; {ALTERED}")
        self._ending = kind

    def _check_counts(self, record: Record) -> None:
        names = [tenant["name"] for tenant in self._header["tenants"]]
        if sorted(record["tenants"]) != sorted(names):
            raise LogError(f"window {record['window']} has other tenants than the run; {ALTERED}")
        needed = _COUNTS
        if self._header.get("sharing", "instances") != "instances":
            needed += ("could_serve", "changing")
        window_s = round(self._header["window_s"])
        uncounted = _blind_places(record, window_s)
        for name, counts in record["tenants"].items():
            try:
                _check_tenant(counts, needed, window_s, uncounted)
            except LogError as error:
                raise LogError(f"window {record['window']}, tenant {name}{error}; {ALTERED}") from None


_COUNTS: tuple[str, ...] = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")


def _blind_places(record: Record, window_s: int) -> frozenset[int]:
    """The seconds of the window, from 0, in which nothing was counted."""
    start_s, found = record["window"] * window_s, set[int]()
    for first, end in record.get("blind", ()):
        if not start_s <= first < end <= start_s + window_s:
            raise LogError(f"window {record['window']}: blind seconds {first} to {end} are not its own; {ALTERED}")
        found |= set(range(first - start_s, end - start_s))
    return frozenset(found)


def _check_tenant(counts: Mapping[str, Any], needed: Sequence[str], n_seconds: int, uncounted: frozenset[int]) -> None:
    for key in needed:
        n_counted = len(counts.get(key) or ())
        if n_counted != n_seconds:
            raise LogError(f": {key} has {n_counted} seconds, the window {n_seconds}")
    columns = zip(*(counts[key] for key in _COUNTS), strict=True)
    for second, (arrivals, in_time, late, dropped, correct, correct_late) in enumerate(columns):
        if arrivals and second in uncounted:
            reason = f"{arrivals} arrivals in a blind second"
        elif arrivals != in_time + late + dropped:
            reason = f"{arrivals} arrivals but {in_time} in time + {late} late + {dropped} dropped"
        elif correct > in_time:
            reason = f"{correct} correct of {in_time} in time"
        elif correct_late > late:
            reason = f"{correct_late} correct of {late} late"
        else:
            continue
        raise LogError(f", second {second}: {reason}")
    answered, in_histogram = sum(counts["in_time"]) + sum(counts["late"]), sum(n for _, n in counts["latency_ms"])
    if answered != in_histogram:
        raise LogError(f": {answered} answered, but the latencies are those of {in_histogram}")
