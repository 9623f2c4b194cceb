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
from migrator.inputs.traffic import Traffic
from migrator.log.records import Queue
from workloads.arrays import FloatArray, IntArray
from workloads.live.messages import Closed, Counts
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
    ) -> None:
        """``end_s`` is the run's; after it ``drop_rest`` has what still waits dropped, in the end."""
        self._tenants, self._window_s = [tenant.name for tenant in tenants], round(window_s)
        self._give_up_s = end_s + max(tenant.slo_s for tenant in tenants) + GRACE_S
        self._end_s, self._drop_rest = end_s, drop_rest
        self._next = first_window
        self._words: dict[tuple[str, int], Counts] = {}  # of windows that are not settled, and of the last one
        self._sums: dict[tuple[str, int], Totals] = {}  # of these words, by tenant and window
        self._closed, self._settled_totals = 0, Totals()
        self.now_s = first_window * window_s

    def hear(self, word: Counts | Closed) -> None:
        """Take in what the dispatcher says."""
        if isinstance(word, Closed):
            self._closed = max(self._closed, word.second)
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
        n_windows = math.ceil(self._end_s / self._window_s - 1e-9)
        if self._next >= n_windows:
            return None
        if self.now_s > self._give_up_s:
            self._drop_rest()
        return None if self.now_s > self._give_up_s + 4 * GRACE_S else self.now_s + AGAIN_S

    @property
    def totals(self) -> Totals:
        """Of settled windows, and of the seconds since, as far as told."""
        told = (totals for (_, window), totals in self._sums.items() if window >= self._next)
        return sum(told, self._settled_totals)

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
        """Nothing: what a worker had that died is given to another one."""

    def change_tenants(self, tenants: Sequence[Tenant], traffic: Traffic) -> None:
        """Never: a door is opened for all tenants at once.

        Raises:
            MigratorError: Always.
        """
        del tenants, traffic
        raise MigratorError("tenants cannot come and go in a live run")

    def leave_out(self, from_s: float, to_s: float) -> None:
        """Nothing: requests were really answered, or not, whatever is known of the GPU."""

    def know(self, known_s: float) -> None:
        """Nothing likewise."""

    def knows(self, until_s: float) -> bool:  # noqa: ARG002 - as the simulation's
        """It does not matter what is known of the GPU."""
        return True

    def settled(self, through_window: int) -> list[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""
        found = []
        while self._next <= through_window and self._is_settled(self._next):
            window = SettledWindow(self._next, tuple(self._counts(name, self._next) for name in self._tenants))
            self._settled_totals += window.totals
            self._next += 1
            least = (self._next - 1) * self._window_s
            self._words = {key: word for key, word in self._words.items() if key[1] >= least}
            self._sums = {key: totals for key, totals in self._sums.items() if key[1] >= self._next - 1}
            found.append(window)
        return found

    # --- inside

    def _is_settled(self, window: int) -> bool:
        own = (word for word in self._words.values() if word.second // self._window_s == window)
        return self._closed >= (window + 1) * self._window_s and not any(word.waiting for word in own)

    def _counts(self, tenant: str, window: int) -> SecondCounts:
        first = window * self._window_s
        by_second: dict[str, IntArray] = {
            name: np.zeros(self._window_s, np.int64)
            for name in ("arrivals", "in_time", "late", "dropped", "correct", "correct_late", "refused")
        }
        histograms = []
        for place in range(self._window_s):
            if (word := self._words.get((tenant, first + place))) is not None:
                by_second["arrivals"][place] = word.offered
                by_second["in_time"][place], by_second["late"][place] = word.in_time, word.late
                by_second["dropped"][place] = word.dropped + word.turned_away
                by_second["refused"][place] = word.refused + word.turned_away
                histograms.append(dict(word.latency_ms))
        return SecondCounts(tenant, first, **by_second, latency_ms=merge_histograms(histograms))


def _totals(word: Counts) -> Totals:
    refused, resolved = word.refused + word.turned_away, word.offered - word.waiting
    dropped = word.dropped + word.turned_away
    return Totals(resolved, word.in_time, word.late, dropped, unlabelled=resolved, refused=refused)


def _less(totals: Totals, other: Totals) -> Totals:
    return Totals(*(mine - its for mine, its in zip(astuple(totals), astuple(other), strict=True)))
