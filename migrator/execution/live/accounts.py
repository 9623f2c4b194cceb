"""What became of requests that clients ask: the dispatcher's counts, window by window.

Which answers are right is not known, so nothing is said of it. Real workers answer whatever the loop knows of them:
what it says of servers and accuracies changes nothing here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple

import numpy as np

from migrator.errors import MigratorError
from migrator.execution.feedback import Feedback
from migrator.inputs.traffic import Traffic
from migrator.log.records import Queue
from workloads.arrays import FloatArray, IntArray
from workloads.live.messages import Closed, Counts, Labelled
from workloads.serving.pool import Kernel, Lane, Piece, PoolState
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.serving.tally import SecondCounts, SettledWindow, Totals, merge_histograms
from workloads.tenants import Tenant

AGAIN_S = 0.25
"""How long the loop waits for answers that are not there yet, at a run's end."""

GRACE_S = 10.0
"""What is not answered so long after the last deadline is dropped."""


class CountAccounts:
    """As :class:`migrator.execution.seams.Accounts`.

    A window is settled once its seconds are closed, and none of its requests waits.
    """

    are_real = True

    def __init__(
        self,
        tenants: Sequence[Tenant],
        window_s: float,
        end_s: float,
        drop_rest: Callable[[], object],
        first_window: int = 0,
        begin_s: float | None = None,
    ) -> None:
        """``end_s`` is the run's; after it ``drop_rest`` has what still waits dropped, in the end.

        What is asked before ``first_window`` is in no window: :meth:`outside` has it. The loop may begin then, at
        ``begin_s``.
        """
        self._tenants, self._window_s = [tenant.name for tenant in tenants], round(window_s)
        self._gone: dict[str, int] = {}  # who left, in which window
        self._came: dict[str, int] = {}  # who came, likewise; of windows that are not settled
        self._longest_s, self._drop_rest = max(tenant.slo_s for tenant in tenants), drop_rest
        self.end(end_s, math.ceil(end_s / self._window_s - 1e-9))
        self._next = first_window
        self._first_s, self._is_outside_told = first_window * self._window_s, first_window == 0
        self._words: dict[tuple[str, int], Counts] = {}  # of windows that are not settled, and of the last one
        self._sums: dict[tuple[str, int], Totals] = {}  # of these words, by tenant and window
        self._judged: dict[str, tuple[int, int]] = {}  # since the last window was settled
        self.feedback = Feedback()
        self._closed, self._settled_totals = 0, Totals()
        self.now_s = first_window * window_s if begin_s is None else begin_s

    def end(self, end_s: float, n_windows: int, is_over: Callable[[], bool] = lambda: True) -> None:
        """No request is taken from this second of the run on, so that its last window may be settled before its end.

        Beside the windows, it ``is_over`` that says when nobody waits any more.
        """
        self._end_s, self._give_up_s = end_s, end_s + self._longest_s + GRACE_S
        self._n_windows, self._is_over = n_windows, is_over

    def hear(self, word: Counts | Closed | Labelled) -> None:
        """Take in what the dispatcher says."""
        if isinstance(word, Closed):
            self._closed = max(self._closed, word.second)
        elif isinstance(word, Labelled):
            n_labels, n_right = self._judged.get(word.tenant, (0, 0))
            self._judged[word.tenant] = n_labels + word.labels, n_right + word.right
            self.feedback.add(word.tenant, word.labels, word.right, word.version)
        elif word.second < self._first_s:
            if not self._is_outside_told:
                self._words[word.tenant, word.second] = word
        elif word.second >= self._next * self._window_s:
            place, own = (word.tenant, word.second), (word.tenant, word.second // self._window_s)
            before = self._words.get(place)
            more = _totals(word) if before is None else _less(_totals(word), _totals(before))
            self._sums[own] = self._sums.get(own, Totals()) + more
            self._words[place] = word

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """Nothing is known of batches in service; workers say themselves when they are gone."""
        return {}

    @property
    def last_answer_s(self) -> float | None:
        """When to look again, after the run's end, while one of its windows is not settled."""
        if self._next >= self._n_windows and self._is_outside_told and self._is_over():
            return None
        if self.now_s > self._give_up_s:
            self._drop_rest()
        return None if self.now_s > self._give_up_s + 4 * GRACE_S else self.now_s + AGAIN_S

    @property
    def totals(self) -> Totals:
        """Of settled windows, and of the seconds since, as far as told."""
        return sum(self.open_totals.values(), self._settled_totals)

    @property
    def open_totals(self) -> Mapping[str, Totals]:
        """By tenant, of seconds since the last settled window, as far as told."""
        found = dict.fromkeys([*self._tenants, *self._gone], Totals())
        for (name, window), totals in self._sums.items():
            if window >= self._next:
                found[name] += totals
        return found

    @property
    def queues(self) -> Mapping[str, Queue]:
        """By tenant, how many wait."""
        waiting = Counter(dict.fromkeys(self._tenants, 0))
        for word in self._words.values():
            waiting[word.tenant] += word.waiting
        return {name: Queue(waiting=n, busy_until_s={}, batches=0) for name, n in waiting.items()}

    def in_time_shares(self, window: int) -> Mapping[str, float]:
        """By tenant, the share of the window's requests resolved so far that were answered in time; 1 without any."""
        told = {name: self._sums.get((name, window), Totals()) for name in self._tenants}
        return {name: own.in_time / own.arrivals if own.arrivals else 1.0 for name, own in told.items()}

    def others_shares(self, first_s: int, end_s: int) -> Mapping[str, FloatArray]:  # noqa: ARG002 - as the simulation's
        """Nothing: it is unknown how long real turns took."""
        return {}

    def serve(
        self,
        servers: Mapping[str, Sequence[Server]],  # noqa: ARG002 - these are real, and so are the next two
        accuracies: Mapping[str, AccuracyTimeline],  # noqa: ARG002
        until_s: float,
        lanes: Sequence[Lane] = (),  # noqa: ARG002
        known_s: float = math.inf,  # noqa: ARG002
    ) -> None:
        """The time is this; who asks is answered by itself."""
        self.now_s = until_s

    def serve_by(
        self, kernel: Kernel, state: PoolState, accuracies: Mapping[str, AccuracyTimeline], until_s: float
    ) -> tuple[PoolState, Piece]:
        """Never: no kernel serves real requests.

        Raises:
            MigratorError: Always.
        """
        del kernel, state, accuracies, until_s
        raise MigratorError("real requests are answered by workers, not by a kernel")

    def lose(self, tenant: str, server_ids: Iterable[str]) -> None:
        """Do nothing: another worker takes over what the dead one had."""

    def change_tenants(self, tenants: Sequence[Tenant], traffic: Traffic) -> None:  # noqa: ARG002 - others ask
        """These are the tenants from now on; who goes is counted up to the window in which it does."""
        names, window = [tenant.name for tenant in tenants], math.floor(self.now_s / self._window_s + 1e-9)
        self._gone |= {name: window for name in self._tenants if name not in names}
        self._came |= {name: window for name in names if name not in self._tenants and name not in self._gone}
        self._gone = {name: left for name, left in self._gone.items() if name not in names}
        self._tenants = names
        self._longest_s = max(self._longest_s, *(tenant.slo_s for tenant in tenants))

    def _there_in(self, window: int) -> list[str]:
        """Who was there in a window, or in a part of it."""
        gone = [name for name, left in self._gone.items() if left >= window]
        return [name for name in (*self._tenants, *gone) if self._came.get(name, window) <= window]

    def leave_out(self, from_s: float, to_s: float) -> None:
        """Nothing: requests were really answered, or not, whatever is known of the GPU."""

    def know(self, known_s: float) -> None:
        """Nothing likewise."""

    def knows(self, until_s: float) -> bool:  # noqa: ARG002 - as the simulation's
        """It does not matter what is known of the GPU."""
        return True

    def outside(self) -> tuple[SecondCounts, ...]:
        """What was asked before the first window, by tenant, once all is resolved; told once, else empty."""
        end_s = min(self._first_s, math.ceil(self._end_s))
        own = [word for word in self._words.values() if word.second < self._first_s]
        if self._is_outside_told or self._closed < end_s or any(word.waiting for word in own):
            return ()
        first = min((word.second for word in own), default=self._first_s)
        names = dict.fromkeys([*self._tenants, *(word.tenant for word in own)])  # some may have left since
        found = tuple(self._counts(name, first, self._first_s - first) for name in names)
        self._words = {key: word for key, word in self._words.items() if key[1] >= self._first_s}
        self._is_outside_told = True
        return found if own else ()

    def settled(self, through_window: int) -> list[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""
        found = []
        while self._next <= through_window and self._is_settled(self._next):
            first, told = self._next * self._window_s, self._judged
            counts = (
                self._counts(name, first, self._window_s, told.pop(name, None)) for name in self._there_in(self._next)
            )
            window = SettledWindow(self._next, tuple(counts))
            self._settled_totals += window.totals
            self._next += 1
            self._gone = {name: left for name, left in self._gone.items() if left >= self._next}
            least = (self._next - 1) * self._window_s if self._is_outside_told else 0
            self._words = {key: word for key, word in self._words.items() if key[1] >= least}
            self._sums = {key: totals for key, totals in self._sums.items() if key[1] >= self._next - 1}
            found.append(window)
        return found

    # --- inside

    def _is_settled(self, window: int) -> bool:
        own = (word for word in self._words.values() if word.second // self._window_s == window)
        end_s = min((window + 1) * self._window_s, math.ceil(self._end_s))
        return self._closed >= end_s and not any(word.waiting for word in own)

    def _counts(self, tenant: str, first: int, n_seconds: int, judged: tuple[int, int] | None = None) -> SecondCounts:
        by_second: dict[str, IntArray] = {
            name: np.zeros(n_seconds, np.int64)
            for name in ("arrivals", "in_time", "late", "dropped", "correct", "correct_late", "refused", "failed")
        }
        histograms = []
        for place in range(n_seconds):
            if (word := self._words.get((tenant, first + place))) is not None:
                by_second["arrivals"][place] = word.offered
                by_second["in_time"][place], by_second["late"][place] = word.in_time, word.late
                by_second["dropped"][place] = word.dropped + word.turned_away
                by_second["refused"][place] = word.refused + word.turned_away
                by_second["failed"][place] = word.failed
                histograms.append(dict(word.latency_ms))
        return SecondCounts(tenant, first, **by_second, latency_ms=merge_histograms(histograms), judged=judged)


def _totals(word: Counts) -> Totals:
    refused, resolved = word.refused + word.turned_away, word.offered - word.waiting
    dropped = word.dropped + word.turned_away
    told = word.in_time, word.late, dropped
    return Totals(resolved, *told, unlabelled=resolved, refused=refused, failed=word.failed)


def _less(totals: Totals, other: Totals) -> Totals:
    return Totals(*(mine - its for mine, its in zip(astuple(totals), astuple(other), strict=True)))
