"""Whether the records of a log fit together: what checksums and types cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any

from msgspec import inspect

from migrator.errors import LogError
from migrator.log import records
from migrator.log.line import ALTERED


class SoFar:
    """What the records read allow the next one to be; the first is a run's header."""

    def __init__(self, header: records.RunStarted, begins: records.Snapshot | None = None) -> None:
        """Begin with the header; the next ones are those that ``begins`` repeats, if the log does not begin before.

        Raises:
            LogError: It names a tenant whom it does not have.
        """
        self._header, self._begins = header, begins
        self._points: dict[str, Container[str]] = {one.name: one.operating_points for one in header.tenants}
        # The newest set may be all that is repeated of several, after records that name its tenants.
        for raw in () if begins is None else begins.entries:
            if raw.get("kind") == "tenants_changed":
                self._points |= {one["name"]: one["operating_points"] for one in raw["tenants"]}
        self._expected, self._have_changed = {tenant.name for tenant in header.tenants}, False
        self._n_started = self._n_finished = 0 if begins is None else begins.first_window
        self._ending: records.Record | None = None
        self._has_joined = False  # and no record has the requests before its first window yet
        self._open_intents: set[int] = set()
        self._instances: set[str] = set()
        self._stopped: set[str] = set()
        self._check_tenants(header)

    def _check_tenants(self, record: records.Record) -> None:
        """Refuse a record that names a tenant whom the run does not have."""
        for field, finder in _finders(type(record)).items():
            for name in finder(getattr(record, field)):
                if name not in self._points:
                    raise LogError(f"{record.kind}.{field}: the run has no tenant {name}; {ALTERED}")

    def take(self, n: int, record: records.Record) -> None:
        """Go on with the record of this number.

        Raises:
            LogError: It contradicts itself, or cannot be where it is.
        """
        self._take_tenants(record)
        self._check_tenants(record)
        self._take_outside(record)
        if isinstance(record, records.RunStarted):
            raise LogError(f"there is more than one run_started record; {ALTERED}")
        if isinstance(self._ending, records.ServiceStopped) and isinstance(record, records.Resumed):
            self._ending = None  # a service goes on
        if self._ending is not None:
            raise LogError(f"{record.kind} is after {self._ending.kind}, which ends a log; {ALTERED}")
        match record:
            case records.Resumed():
                self._take_resumed(record)
            case records.WindowStarted():
                self._expect_window(record, self._n_started)
                self._check_forecast(record)
                self._n_started += 1
            case records.WindowFinished():
                self._expect_window(record, self._n_finished)
                self._check_counts(record)
                self._n_finished += 1
            case records.Intent():
                self._open_intents.add(n)
            case records.Outcome():
                self._take_outcome(record)
            case records.Change():
                self._take_change(record)
            case records.Ready() | records.Finished() | records.Failed():
                self._check_worker(record)
            case records.RunFinished() | records.ServiceStopped() | records.Interrupted():
                self._take_ending(record)
            case _:
                pass

    def take_back(self) -> None:
        """Go on behind what was before an ``interrupted`` at the end: a run that is resumed takes that off."""
        self._ending = None

    def _take_tenants(self, record: records.Record) -> None:
        """Who comes may be named from now on, and so may who goes, until the last window of them is settled."""
        if isinstance(record, records.TenantsChanged):
            self._points |= {tenant.name: tenant.operating_points for tenant in record.tenants}
            self._expected, self._have_changed = {tenant.name for tenant in record.tenants}, True

    def _expect_window(self, record: records.WindowStarted | records.WindowFinished, expected: int) -> None:
        kind, window = record.kind, record.window
        if window != expected:
            raise LogError(f"{kind} of window {window} is where that of window {expected} must be; {ALTERED}")
        if isinstance(record, records.WindowFinished) and window >= self._n_started:
            raise LogError(f"window {window} is finished before it is started; {ALTERED}")

    def _check_worker(self, record: records.Ready | records.Finished | records.Failed) -> None:
        if self._begins is None and record.instance is not None and record.instance not in self._instances:
            raise LogError(f"{record.kind} names instance {record.instance}, which was not started; {ALTERED}")

    def _check_forecast(self, record: records.WindowStarted) -> None:
        missing = self._expected - record.forecast.tenants.keys()
        if missing:
            raise LogError(f"the forecast lacks tenant {min(missing)}; {ALTERED}")

    def _take_resumed(self, record: records.Resumed) -> None:
        window, self._has_joined = record.window, True
        if self._begins is not None and window <= self._begins.first_window and not record.void:
            return  # it is repeated
        if self._header.backend is None:
            raise LogError(f"resumed: a simulated run is carried out again instead; {ALTERED}")
        if record.void != tuple(range(self._n_finished, window)) or window < self._n_started:
            raise LogError(f"resumed with window {window} after {self._n_finished} finished ones; {ALTERED}")
        self._n_started = self._n_finished = window
        self._open_intents.clear()
        self._stopped = set(self._instances)

    def _take_outside(self, record: records.Record) -> None:
        """Requests before a first window follow a start, once, and add up."""
        if not isinstance(record, records.Outside):
            return
        if not self._has_joined:
            raise LogError(f"outside: no start is before it, or another one is since; {ALTERED}")
        self._has_joined = False
        for name, own in record.tenants.items():
            if own.arrivals != own.in_time + own.late + own.dropped or own.refused + own.failed > own.dropped:
                raise LogError(f"outside, tenant {name}: its {own.arrivals} arrivals do not add up; {ALTERED}")

    def _take_outcome(self, record: records.Outcome) -> None:
        if record.intent not in self._open_intents:
            raise LogError(f"outcome of record {record.intent}, which is no intent, or was answered before; {ALTERED}")
        self._open_intents.remove(record.intent)

    def _take_change(self, record: records.Change) -> None:
        for gone in record.stopped:
            if gone.instance not in self._instances or gone.instance in self._stopped:
                raise LogError(f"instance {gone.instance} stops, but is not there; {ALTERED}")
            self._stopped.add(gone.instance)
        for new in (*record.started, *record.loans):
            if new.instance in self._instances:
                raise LogError(f"instance {new.instance} starts twice; {ALTERED}")
            self._check_members(new)
            self._instances.add(new.instance)
        for passed in record.passed:
            if passed.instance not in self._instances or passed.instance in self._stopped:
                raise LogError(f"instance {passed.instance} goes on, but is not there; {ALTERED}")
            self._check_members(passed)

    def _check_members(self, new: records.Started) -> None:
        """Refuse an instance for a tenant that cannot use it; what serves a pool is not what serves each alone."""
        profile, is_shared = new.placement.partition("@")[0], len(new.members) > 1
        for name in new.members:
            if new.task == "inference" and not is_shared and profile not in self._points[name]:
                raise LogError(f"instance {new.instance} starts for {name}, which cannot use it; {ALTERED}")

    def _take_ending(self, record: records.RunFinished | records.ServiceStopped | records.Interrupted) -> None:
        if isinstance(record, records.RunFinished) and self._n_finished < self._header.windows:
            raise LogError(f"the run ends after {self._n_finished} of {self._header.windows} windows; {ALTERED}")
        if isinstance(record, records.ServiceStopped) and not self._header.service:
            raise LogError(f"service_stopped: the run is no service; {ALTERED}")
        self._ending = record

    def _check_counts(self, record: records.WindowFinished) -> None:
        if not self._have_changed and record.tenants.keys() != self._points.keys():
            raise LogError(f"window {record.window} has other tenants than the run; {ALTERED}")
        needed = _COUNTS if self._header.sharing == "instances" else (*_COUNTS, "could_serve", "changing")
        window_s = round(self._header.window_s)
        uncounted = _blind_places(record, window_s)
        for name, counts in record.tenants.items():
            try:
                _check_tenant(counts, needed, window_s, uncounted)
            except LogError as error:
                raise LogError(f"window {record.window}, tenant {name}{error}; {ALTERED}") from None


_COUNTS: tuple[str, ...] = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")


def _blind_places(record: records.WindowFinished, window_s: int) -> frozenset[int]:
    """The seconds of the window, from 0, in which nothing was counted."""
    start_s = record.window * window_s
    for first, end in record.blind:
        if not start_s <= first < end <= start_s + window_s:
            raise LogError(f"window {record.window}: blind seconds {first} to {end} are not its own; {ALTERED}")
    return frozenset(second - start_s for second in record.blind_seconds)


def _check_refused(counts: records.Counts) -> None:
    failed_by_second = counts.failed or [0] * len(counts.refused)
    told = zip(counts.dropped, counts.refused, failed_by_second, strict=False)
    for second, (dropped, refused, failed) in enumerate(told):
        if refused + failed > dropped:
            what = f"{refused} refused and {failed} failed" if failed else f"{refused} refused"
            raise LogError(f", second {second}: {what} of {dropped} dropped")


def _check_tenant(counts: records.Counts, needed: Sequence[str], n_seconds: int, uncounted: frozenset[int]) -> None:
    if not counts.is_labelled:
        needed = [key for key in needed if not key.startswith("correct")] + ["refused"]
    for key in (*needed, *(key for key in ("others_share", "failed") if getattr(counts, key))):
        if (n_counted := len(getattr(counts, key))) != n_seconds:
            raise LogError(f": {key} has {n_counted} seconds, the window {n_seconds}")
    nothing = [0] * n_seconds
    columns = zip(*(getattr(counts, key) or nothing for key in _COUNTS), strict=True)
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
    _check_refused(counts)
    if not all(0 <= share <= 1 for share in counts.others_share):
        raise LogError(f": others had {max(counts.others_share, key=lambda one: abs(one - 0.5))} of what it shared")
    answered, in_histogram = sum(counts.in_time) + sum(counts.late), sum(n for _, n in counts.latency_ms)
    if answered != in_histogram:
        raise LogError(f": {answered} answered, but the latencies are those of {in_histogram}")


Finder = Callable[[Any], Iterator[str]]
"""Finds the names of tenants in a value of one type."""


@cache
def _finders(kind: type[records.Record]) -> dict[str, Finder]:
    """By field of a kind of records, what finds tenants in it; fields whose type has none are left out."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return {field.name: finder for field in found.fields if (finder := _finder(field.type)) is not None}


def _finder(kind: inspect.Type) -> Finder | None:
    """What finds tenants in values of the type, if there can be any; numbers by second are not looked through."""
    if isinstance(kind, inspect.Metadata):
        return (lambda name: iter((name,))) if records.NAMES_TENANT in (kind.extra or {}) else _finder(kind.type)
    able = [(parts, finder) for parts, inner in _parts(kind) if (finder := _finder(inner)) is not None]
    if not able:
        return None
    return lambda value: (name for parts, finder in able for part in parts(value) for name in finder(part))


def _parts(kind: inspect.Type) -> list[tuple[Callable[[Any], Iterable[Any]], inspect.Type]]:
    """How to get at the parts of a value of the type, each with the parts' type."""
    match kind:
        case inspect.UnionType(types=types):
            return [(_a_text if _is_text(one) else _no_text, one) for one in types]
        case inspect.DictType(key_type=keys, value_type=values):
            return [(dict.keys, keys), (dict.values, values)]
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [(iter, item)]
        case inspect.TupleType(item_types=items):
            return [(partial(_part, itemgetter(place)), item) for place, item in enumerate(items)]
        case inspect.StructType(fields=fields):
            return [(partial(_part, attrgetter(field.name)), field.type) for field in fields]
        case _:
            return []


def _part(get: Callable[[Any], Any], value: object) -> tuple[Any]:
    return (get(value),)


def _a_text(value: object) -> tuple[object, ...]:
    return (value,) if isinstance(value, str) else ()


def _no_text(value: object) -> tuple[object, ...]:
    return () if value is None or isinstance(value, str) else (value,)


def _is_text(kind: inspect.Type) -> bool:
    return isinstance(kind.type if isinstance(kind, inspect.Metadata) else kind, inspect.StrType)
