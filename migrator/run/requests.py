"""All tenants' requests over a run: advanced together, tallied by window, told apart when a window is settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from migrator.setting import Setting
from workloads.serving.advance import advance
from workloads.serving.requests import AccuracyTimeline, Dispatch, QueueState, Requests, Server, requests_of
from workloads.serving.tally import SecondCounts, Tally, Totals
from workloads.traffic.luck import service_jitter


@dataclass(frozen=True)
class SettledWindow:
    """A window of which every request is resolved, with one tally a tenant."""

    window: int
    counts: tuple[SecondCounts, ...]


class ServingRun:
    """The queues of all tenants, from second 0 of the run on."""

    def __init__(self, setting: Setting, dispatch: Dispatch = Dispatch.PULL) -> None:
        config = setting.config
        self._dispatch = dispatch
        self._window_s = round(config.window_s)
        self._requests: tuple[Requests, ...] = tuple(
            requests_of(tenant.name, tenant.slo_s, arrivals.times_s, config.seed)
            for tenant, arrivals in zip(setting.tenants, setting.arrivals, strict=True)
        )
        self._states = [QueueState() for _ in self._requests]
        self._accuracies: list[dict[float, float]] = [{} for _ in self._requests]
        self._jitter = service_jitter(config.seed, config.simulation.service_jitter)
        self._tallies: dict[int, tuple[Tally, ...]] = {}
        self._n_settled = 0
        self._settled_totals = Totals()

    @property
    def now_s(self) -> float:
        """How far all queues have come."""
        return self._states[0].now_s

    @property
    def totals(self) -> Totals:
        """Everything resolved so far, all tenants together."""
        open_ = (tally.totals for tallies in self._tallies.values() for tally in tallies)
        return sum(open_, self._settled_totals)

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """By server id, when the batch in service at :attr:`now_s` ends."""
        return {server_id: end_s for state in self._states for server_id, end_s in state.busy_until.items()}

    def set_accuracy(self, tenant_index: int, from_s: float, accuracy: float) -> None:
        """From ``from_s``, which is not yet reached, the tenant's answers are right with this probability."""
        self._accuracies[tenant_index][from_s] = accuracy

    def advance(self, until_s: float, servers: Callable[[str], Sequence[Server]]) -> None:
        """Bring every queue to ``until_s`` (infinity drains them) with the servers of each tenant."""
        for index, requests in enumerate(self._requests):
            timeline = sorted(self._accuracies[index].items())
            state, outcomes = advance(
                requests,
                self._states[index],
                servers(requests.tenant),
                AccuracyTimeline(tuple(at for at, _ in timeline), tuple(value for _, value in timeline)),
                until_s,
                self._jitter,
                self._dispatch,
            )
            self._states[index] = state
            if outcomes.index.size:
                ends_s = requests.arrival_s[outcomes.index[[0, -1]]]  # outcomes are in the order of arrival
                first, last = np.floor(ends_s / self._window_s).astype(np.int64).tolist()
                for window in range(first, last + 1):
                    self._tallies_of(window)[index].add(requests, outcomes)

    def settled(self, through_window: int) -> list[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""
        done: list[SettledWindow] = []
        while self._n_settled <= through_window and self._is_settled(self._n_settled):
            tallies = self._tallies_of(self._n_settled)
            del self._tallies[self._n_settled]
            done.append(SettledWindow(self._n_settled, tuple(tally.counts for tally in tallies)))
            self._settled_totals = sum((tally.totals for tally in tallies), self._settled_totals)
            self._n_settled += 1
        return done

    def _is_settled(self, window: int) -> bool:
        end_s = (window + 1) * self._window_s
        return all(
            state.now_s >= end_s and state.head >= np.searchsorted(requests.arrival_s, end_s, side="left")
            for requests, state in zip(self._requests, self._states, strict=True)
        )

    def _tallies_of(self, window: int) -> tuple[Tally, ...]:
        """The window's, by tenant; a quiet window has them too."""
        if window not in self._tallies:
            self._tallies[window] = tuple(
                Tally(requests.tenant, self._window_s, window * self._window_s) for requests in self._requests
            )
        return self._tallies[window]
