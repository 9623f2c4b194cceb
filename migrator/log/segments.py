"""A log in segments, and what one that begins at a window has to know of all windows before.

The newest segment is ``events.jsonl``, those before are ``events-1.jsonl``, ``events-2.jsonl`` … Numbers of records go
on from one to the next. Each but the run's first begins with a :class:`~migrator.log.records.Snapshot`, so that it can
be read without those before.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, cast

from msgspec import ValidationError, convert, structs

from executor.files import open_input
from migrator.errors import LogError
from migrator.log.accuracies import Accuracies
from migrator.log.line import ALTERED, Entry, as_json, entry_in
from migrator.log.records import (
    AnyRecord,
    Blind,
    Change,
    Checkpoint,
    Failed,
    Finished,
    Intent,
    Others,
    Outcome,
    Ready,
    Record,
    Reloaded,
    Resumed,
    RolledBack,
    RunStarted,
    Shares,
    Snapshot,
    Started,
    TenantsChanged,
    Wall,
    WindowFinished,
    WindowStarted,
)

RecordT = TypeVar("RecordT", bound=Record)

SEGMENT = re.compile(r"events-([1-9]\d{0,14})\.jsonl")
"""The names of all segments but the newest one."""

N_LESSONS = 20
"""Of each tenant's retrainings so many are repeated, the newest that is served among them; what they teach fades."""


def segment_file(folder: Path, number: int) -> Path:
    """Where the segment lies once it is not the newest any more."""
    return folder / f"events-{number}.jsonl"


def older_segments(folder: Path) -> dict[int, Path]:
    """All but the newest one that are still there, by number, in order."""
    found = ((int(name[1]), path) for path in folder.iterdir() if (name := SEGMENT.fullmatch(path.name)))
    return dict(sorted(found))


def forget_segments(folder: Path, before_s: float) -> None:
    """Delete the segments that ended before this second of the run; one that cannot be deleted stays."""
    older = [*older_segments(folder).values()]
    for path, following in pairwise([*older, folder / "events.jsonl"]):
        with open_input(following) as file:
            if entry_in(file.readline()[:-1]).at_s > before_s:
                return
        with suppress(OSError):
            path.unlink()


class Past:
    """What whoever begins to read a log in its middle has to know of the records before; it does not grow with the run.

    Attributes:
        first_window: The first one that is not settled.
        n_instances: How many were started, loans included.
    """

    def __init__(self) -> None:
        self.first_window = self.n_instances = 0
        self._once: dict[type[Record], Entry[Record]] = {}  # the newest of a kind, where only that one matters
        self._changes: list[Entry[Change]] = []
        self._workers: dict[tuple[str | None, str], list[Entry[Record]]] = {}
        self._learned: defaultdict[str, list[Entry[Finished]]] = defaultdict(list)
        self._rolled_back = dict[str, Entry[Record]]()  # who answers with older weights
        self._n_trained = Counter[str]()
        self._calls: list[Entry[Record]] = []
        self._others: dict[str, Entry[Others]] = {}
        self._tenants: list[Entry[TenantsChanged]] = []
        self._accuracies = Accuracies()
        self._open: list[Entry[Record]] = []  # from the begin of the first window on that is not settled

    @classmethod
    def of(cls, snapshot: Snapshot | None, entries: Iterable[Entry[Record]]) -> Past:
        """That of a log with these records, whose first ones the snapshot repeats if there is one."""
        past, entries = cls(), list(entries)
        n_repeated = 0 if snapshot is None else len(snapshot.entries)
        for entry in entries[:n_repeated]:
            past.take(entry)
        if snapshot is not None:
            past.first_window, past.n_instances = snapshot.first_window, snapshot.n_instances
            past._n_trained = Counter(snapshot.n_trained)
            past._accuracies = Accuracies.of(snapshot, entries[:n_repeated])
        for entry in entries[n_repeated:]:
            past.take(entry)
        return past

    def take(self, entry: Entry[Record]) -> None:
        """Go on with the next record."""
        record = entry.record
        self._accuracies.take(record)
        match record:
            case Change():
                self.n_instances += len(record.started) + len(record.loans)
            case Resumed(window=window):  # all instances are gone, and no window before goes on
                self.close(window)
                self._changes, self._calls = [], []
                self._workers.clear()
                self._others.clear()
            case WindowFinished(window=window):
                self._settle(window + 1)
                return
            case _:
                pass
        if self._open or isinstance(record, WindowStarted):
            self._open.append(entry)
        else:
            self._fold(entry)

    def close(self, window: int) -> None:
        """No window before this one matters any more."""
        for entry in self._open:
            self._fold(entry)
        self._open, self.first_window = [], window
        self._forget_sets(window)

    def _settle(self, window: int) -> None:
        """All windows before this one are settled."""
        later = (
            place for place, entry in enumerate(self._open) if _is_started(entry.record) and _window(entry) >= window
        )
        rest = self._open[next(later, len(self._open)) :]
        self._open = self._open[: len(self._open) - len(rest)]
        self.close(window)
        self._open = rest

    @property
    def entries(self) -> list[Entry[Record]]:
        """The records that say all that is to be known, in order."""
        workers = (entry for own in self._workers.values() for entry in own)
        learned = (entry for own in self._learned.values() for entry in own)
        folded = [
            *self._once.values(),
            *self._tenants,
            *self._rolled_back.values(),
            *self._changes,
            *workers,
            *learned,
            *self._calls,
        ]
        came: defaultdict[int, list[str]] = defaultdict(list)
        for placement, entry in self._others.items():
            came[entry.n].append(placement)
        folded += [
            _with(entry, structs.replace(entry.record, gone=(), came=tuple(came[entry.n]), left=()))
            for entry in {entry.n: entry for entry in self._others.values()}.values()
        ]
        return [*sorted(folded, key=lambda entry: entry.n), *self._open]

    def snapshot(self, window: int, segment: int, run: str | None = None) -> tuple[Snapshot, Wall]:
        """The first record of a segment that begins with this window, in the log that goes by ``run``."""
        entries = self.entries
        snapshot = Snapshot(
            window=window,
            segment=segment,
            first_window=self.first_window,
            n_instances=self.n_instances,
            n_trained={name: n for name, n in sorted(self._n_trained.items()) if n},
            accuracies=self._accuracies.moments,
            entries=tuple({"n": entry.n, "at_s": entry.at_s, **as_json(entry.record)} for entry in entries),
        )
        return snapshot, Wall(entries=tuple(as_json(entry.wall) for entry in entries), run=run)

    # --- inside

    def _fold(self, entry: Entry[Record]) -> None:
        record = entry.record
        match record:
            case RunStarted() | Resumed() | Shares() | Blind() | Reloaded():
                once = entry
                if isinstance(record, Resumed):
                    once = _with(entry, structs.replace(record, void=(), unknown={}))
                self._once[type(record)] = once
                if isinstance(record, Blind) and record.to_s is not None:
                    del self._once[Blind]
            case RolledBack():
                self._rolled_back[record.tenant] = entry
            case TenantsChanged():
                self._tenants.append(cast("Entry[TenantsChanged]", entry))
            case Intent() | Outcome():
                self._calls.append(entry)
            case Change():
                answered = {one.record.intent for one in self._calls if isinstance(one.record, Outcome)}
                self._calls = [one for one in self._calls if isinstance(one.record, Intent) and one.n not in answered]
                self._changes.append(cast("Entry[Change]", entry))
                self._come(record)
                self._trim({item.instance for item in record.stopped})
            case Ready() | Failed():
                self._work(entry, record)
            case Finished():
                self._learn(cast("Entry[Finished]", entry), record)
            case Others():
                self._others |= dict.fromkeys(
                    [one for one in record.came if one not in self._others], cast("Entry[Others]", entry)
                )
                for placement in record.left:
                    self._others.pop(placement, None)
            case _:
                pass

    def _forget_sets(self, window: int) -> None:
        """Forget what those learned who have gone, and earlier sets of which nobody is named any more.

        Who goes is named until its last window is settled, which may be after the next has begun. The set with which
        somebody came stays as long: what it had learned before does not count.
        """
        if not self._tenants:
            return
        newest, there = self._tenants[-1], set[str]()
        kept, next_window = list[Entry[TenantsChanged]](), window
        holding = self._changes[-1].record.layout if self._changes else ()
        holders = {name for _, holder, _ in holding for name in ([holder] if isinstance(holder, str) else holder)}
        holders |= {name for change in self._changes for one in _begun(change.record) for name in one.members}
        came = {tenant.name for tenant in newest.record.tenants}
        for one in reversed(self._tenants):
            names = {tenant.name for tenant in one.record.tenants}
            if one is newest or next_window >= window - 1 or names & holders - there:
                kept.append(one)
                there |= names
            elif one.record.accuracies.keys() & came:
                kept.append(one)
            came -= one.record.accuracies.keys()
            next_window = one.record.window
        self._tenants = kept[::-1]
        for name in self._learned.keys() - there:
            del self._learned[name]
            del self._n_trained[name]

    def _come(self, change: Change) -> None:
        """Who holds an instance anew has another worker in it."""
        for passed in change.passed:
            before = self._held(passed.instance)[-2:][0]
            for name in set(passed.members) - set(before.members):
                self._workers.pop((passed.instance, name), None)

    def _work(self, entry: Entry[Record], record: Ready | Failed) -> None:
        """Of a worker the first word counts, and the last one where that is another."""
        first, *_ = self._workers.setdefault((record.instance, record.tenant), [entry])
        is_other = type(first.record) is not type(record)
        self._workers[record.instance, record.tenant] = [first, entry] if is_other else [first]
        if isinstance(record, Failed) and record.instance is not None and self._is_loan(record.instance):
            self._trim({record.instance})

    def _learn(self, entry: Entry[Finished], record: Finished) -> None:
        own = self._learned[record.tenant]
        if record.rejected is None:
            self._rolled_back.pop(record.tenant, None)
        if own and isinstance(own[-1].record, Checkpoint):
            own.pop()  # the newest word is enough
        own.append(entry)
        if len(own) > N_LESSONS:
            serving = next((one for one in reversed(own) if one.record.rejected is None), None)
            own.remove(next(one for one in own if one is not serving))
            self._n_trained[record.tenant] += 1
        if not isinstance(record, Checkpoint) and record.instance is not None and self._is_loan(record.instance):
            self._trim({record.instance})

    def _is_loan(self, instance: str) -> bool:
        return any(item.instance == instance for entry in self._changes for item in entry.record.loans)

    def _held(self, instance: str) -> list[Started]:
        """The instance as it was held, in order."""
        return [one for entry in self._changes for one in _begun(entry.record) if one.instance == instance]

    def _trim(self, gone: set[str]) -> None:
        """Forget instances that are gone, and of the others who held them once."""
        kept: dict[str, list[Started]] = defaultdict(list)
        for entry in self._changes:
            for one in _begun(entry.record):
                if one.instance not in gone:
                    kept[one.instance].append(one)
        needed = {id(one) for held in kept.values() for one in _needed(held)}
        changes = []
        for entry in self._changes:
            change = entry.record
            started, passed, loans = (
                tuple(one for one in some if id(one) in needed)
                for some in (change.started, change.passed, change.loans)
            )
            if started or passed or loans or entry is self._changes[-1]:
                own = structs.replace(change, stopped=(), undone=(), started=started, passed=passed, loans=loans)
                changes.append(_with(entry, own))
        self._changes = changes
        for key in [key for key in self._workers if key[0] in gone]:
            del self._workers[key]


def _needed(held: Sequence[Started]) -> Iterator[Started]:
    """Of an instance's holders in order: the first, the newest, and those with whom a present one came."""
    since = {len(held) - 1, 0}
    for name in held[-1].members:
        away = (place for place in range(len(held) - 1, -1, -1) if name not in held[place].members)
        since.add(next(away, -1) + 1)
    return (held[place] for place in sorted(since))


def _begun(change: Change) -> tuple[Started, ...]:
    return (*change.started, *change.passed, *change.loans)


def _is_started(record: Record) -> bool:
    return isinstance(record, WindowStarted)


def _window(entry: Entry[Record]) -> int:
    return int(cast("WindowStarted", entry.record).window)


def _with(entry: Entry[Record], record: RecordT) -> Entry[RecordT]:
    return Entry(entry.n, entry.at_s, record, entry.wall)


def repeated(entry: Entry[Record]) -> list[Entry[Record]]:
    """The records that a segment's first one repeats; none where it is no snapshot.

    Raises:
        LogError: They are no records, or in another order than they were written.
    """
    snapshot = entry.record
    if not isinstance(snapshot, Snapshot):
        return []
    walls = entry.wall.entries or ({},) * len(snapshot.entries)
    if len(walls) != len(snapshot.entries):
        raise LogError(f"snapshot: repeats {len(snapshot.entries)} records, with facts of {len(walls)}; {ALTERED}")
    found: list[Entry[Record]] = []
    before_n, before_s = -1, float("-inf")
    for raw, wall in zip(snapshot.entries, walls, strict=True):
        try:
            n, at_s = convert(raw["n"], int), convert(raw["at_s"], float)
            record, facts = convert(raw, AnyRecord), convert(wall, Wall)
        except (ValidationError, KeyError) as error:
            raise LogError(f"snapshot: repeats what is no record: {error}; {ALTERED}") from None
        if not (before_n < n < entry.n and before_s <= at_s <= entry.at_s) or isinstance(record, Snapshot):
            raise LogError(f"snapshot: record {n} has no place in it; {ALTERED}")
        found.append(Entry(n, at_s, record, facts))
        before_n, before_s = n, at_s
    return found
