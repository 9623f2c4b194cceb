"""How accurate models were over a run: what its drift is learned from, also by a run that is joined again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from migrator.log.line import Entry
from migrator.log.records import (
    Finished,
    Measured,
    Moments,
    Record,
    Resumed,
    RolledBack,
    RunStarted,
    Snapshot,
    TenantsChanged,
    WindowStarted,
)
from workloads.serving.servers import AccuracyTimeline

LASTING = 2
"""What is remembered whole of a run are the last windows, as many as this: a retraining may end one window late."""

N_KEPT = 50
"""Of a model's windows before those, so many are remembered by what their begins left of its accuracy, the newest."""


class AccuracyHistory:
    """A tenant's accuracy: of the last windows from moment to moment, of those before what their begins left of it."""

    def __init__(
        self,
        by_s: Mapping[float, float] = MappingProxyType({}),
        kept: Mapping[float, float] = MappingProxyType({}),
    ) -> None:
        """``by_s`` are accuracies by the second of the run from which on they hold, ``kept`` as :meth:`kept` has it."""
        self._by_s, self._kept = dict(by_s), dict(kept)
        self._timeline: AccuracyTimeline | None = None

    def note(self, at_s: float, accuracy: float) -> None:
        """The model in service has this accuracy from now on."""
        self._by_s[at_s], self._timeline = accuracy, None

    @property
    def is_unknown(self) -> bool:
        """Whether nothing was measured since the run began, or was joined again."""
        return not self._by_s

    @property
    def timeline(self) -> AccuracyTimeline:
        """From moment to moment; there is at least one."""
        if self._timeline is None:
            self._timeline = AccuracyTimeline.of(self._by_s)
        return self._timeline

    @property
    def newest(self) -> float:
        """The accuracy of the model in service."""
        return self.timeline.accuracy[-1]

    @property
    def moments(self) -> Moments:
        """All that is remembered, for the log."""
        return Moments(by_s=tuple(sorted(self._by_s.items())), kept=tuple(sorted(self._kept.items())))

    def kept(self, at_s: float) -> float | None:
        """Which part of the accuracy before a window's begin was left at it; ``None``: there was none, or no word."""
        if at_s in self._kept:
            return self._kept[at_s]
        before = max((from_s for from_s in self._by_s if from_s < at_s), default=None)
        if before is None or self._by_s[before] == 0 or at_s not in self._by_s:
            return None
        return min(1.0, self._by_s[at_s] / self._by_s[before])

    def behind(self, begin_s: float, until_s: float) -> float | None:
        """Accuracy at a window's begin as a share of what retraining raised it to; ``None``: not yet raised."""
        if begin_s not in self._by_s:
            return None
        raised = max(accuracy for at_s, accuracy in self._by_s.items() if begin_s <= at_s <= until_s)
        return self._by_s[begin_s] / raised if raised > self._by_s[begin_s] else None

    def lasting(self, window_s: float) -> dict[int, float]:
        """By window, which part was left at its begin, of the newest :data:`N_KEPT` for which that is known."""
        begins = sorted(at_s for at_s in {*self._kept, *self._by_s} if at_s == _begin(at_s, window_s))
        found = {round(at_s / window_s): part for at_s in begins if (part := self.kept(at_s)) is not None}
        return dict([*found.items()][-N_KEPT:])

    def forget(self, window: int, window_s: float) -> None:
        """Keep of all before the last two windows only what their begins left; ``window`` begins."""
        least_s = (window - LASTING) * window_s
        if not any(at_s < least_s for at_s in self._by_s):
            return
        self._fold((at_s for at_s in self._by_s if at_s <= least_s), window_s)
        last_s = max(at_s for at_s in self._by_s if at_s < least_s)
        self._by_s = {at_s: accuracy for at_s, accuracy in self._by_s.items() if at_s >= last_s}
        self._timeline = None

    def join(self, window_s: float) -> None:
        """The run is joined again: what the model lost meanwhile says nothing of a window, and is not counted."""
        self._fold(self._by_s, window_s)
        self._by_s, self._timeline = {}, None

    def _fold(self, moments: Iterable[float], window_s: float) -> None:
        parts = ((at_s, self.kept(at_s)) for at_s in moments if at_s == _begin(at_s, window_s))
        self._kept |= {at_s: part for at_s, part in parts if part is not None}
        self._kept = dict(sorted(self._kept.items())[-N_KEPT:])


def _begin(at_s: float, window_s: float) -> float:
    """The begin of a window that is nearest."""
    return round(at_s / window_s) * window_s


class Accuracies:
    """What a log's records say of how accurate each tenant's model was.

    Attributes:
        by_tenant: Their histories.
    """

    def __init__(self, moments: Mapping[str, Moments] = MappingProxyType({})) -> None:
        """``moments`` are those of a snapshot."""
        self.by_tenant = {name: AccuracyHistory(dict(own.by_s), dict(own.kept)) for name, own in moments.items()}
        self._window_s = 0.0
        self._is_anew = all(own.is_unknown for own in self.by_tenant.values())  # no window has begun since the start

    @classmethod
    def of(cls, snapshot: Snapshot | None, entries: Iterable[Entry[Record]]) -> Accuracies:
        """Those of a log with these records; the ``snapshot``, if there is one, repeats the first of them."""
        own = cls({} if snapshot is None else snapshot.accuracies)
        n_repeated = 0 if snapshot is None else len(snapshot.entries)
        for place, entry in enumerate(entries):
            if place >= n_repeated or isinstance(entry.record, RunStarted):
                own.take(entry.record)
        return own

    @property
    def moments(self) -> dict[str, Moments]:
        """By tenant, what a snapshot has of it."""
        return {name: own.moments for name, own in sorted(self.by_tenant.items())}

    def take(self, record: Record) -> None:
        """Go on with the next record."""
        match record:
            case RunStarted(window_s=window_s):
                self._window_s = window_s
            case WindowStarted(asked_s=asked_s):
                if asked_s is None or self._is_anew:
                    told = {name: own.accuracy_before for name, own in record.forecast.tenants.items()}
                    self._note(record.window, told)
                self._is_anew = False
            case Measured():
                self._note(record.window, {name: own.accuracy_before for name, own in record.tenants.items()})
            case Finished(tenant=tenant, finish_s=finish_s, accuracy=accuracy) if tenant in self.by_tenant:
                self.by_tenant[tenant].note(finish_s, accuracy)
            case RolledBack(tenant=tenant, served_s=served_s, accuracy=accuracy) if tenant in self.by_tenant:
                self.by_tenant[tenant].note(served_s, accuracy)
            case TenantsChanged(tenants=tenants):
                there = {tenant.name for tenant in tenants}
                self.by_tenant = {name: own for name, own in self.by_tenant.items() if name in there}
            case Resumed():
                self.join()
            case _:
                pass

    def join(self) -> None:
        """The run is joined again."""
        self._is_anew = True
        for own in self.by_tenant.values():
            own.join(self._window_s)

    def _note(self, window: int, known: Mapping[str, float]) -> None:
        for name, accuracy in known.items():
            own = self.by_tenant.setdefault(name, AccuracyHistory())
            own.note(window * self._window_s, accuracy)
            own.forget(window, self._window_s)
