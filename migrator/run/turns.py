"""Turns on one GPU without partitions: one tenant's batch at a time, and training in the gaps.

Batch limits, and the retrainings to be done, are settled when a window begins. A retraining goes on after a window's
end. A newer one of its tenant replaces one that has not begun, else waits behind it. It keeps the training batch with
which it was set up. Trainers that start together slow each other down as planned, without jitter. What estimating costs
is trained through first, and estimates are waited for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.mig import OwnedLayout
from forecaster.forecast import FloatArray, Forecast
from migrator.errors import ConfigError
from migrator.estimates import as_carried_out
from migrator.run.planning import Opening, PlannedWindow, estimates_in
from migrator.run.seams import Asked, Lost, Note, Trained
from migrator.setting import Setting, service_profiles
from planner.policies.whole import Whole, batch_limits, retraining_order, training_batch
from planner.problem import Owner
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests
from workloads.serving.turns import Batches, BatchServing, TrainingJob, TurnsState, advance
from workloads.tenants import RETRAINING_TO_INFERENCE
from workloads.traffic.luck import ServiceJitter


@dataclass(frozen=True)
class _Measured:
    """One tenant's model on the whole GPU, one process; by batch size.

    Attributes:
        latency_s: Seconds of a batch.
        rate_rps: Requests a second.
        servable: Those of the batch sizes in which it may be served.
        training_s: A retraining at the best batch, profiling included; 0 without one.
    """

    latency_s: Mapping[int, float]
    rate_rps: Mapping[int, float]
    servable: Sequence[int]
    training_s: float

    @property
    def serving_s(self) -> Mapping[int, float]:
        """Seconds of a batch that it may be served in."""
        return {batch: self.latency_s[batch] for batch in self.servable}


class Turns:
    """Sharing by turns: the tenant with the earliest deadline next, its batch as large as the policy allows."""

    kind = "turns"
    layout: OwnedLayout[Owner] | None = None
    strayed: str | None = None

    def __init__(self, setting: Setting, policy: Whole, jitter: ServiceJitter | None) -> None:
        """Look up what was measured on the whole GPU.

        Raises:
            ConfigError: Nothing was measured of a tenant's model with one process and a batch that it may use.
        """
        config = setting.config
        self._setting, self._policy, self._jitter = setting, policy, jitter
        self._measured = _measured(setting)
        self._state = TurnsState.at_start(len(setting.tenants))
        self._servings: list[BatchServing] = []
        self._batches: list[Batches] = []
        self._alone_rps = np.zeros((len(setting.tenants), round(config.windows * config.window_s)))
        self._ending: deque[Trained] = deque()
        self._tails = [0] * len(setting.tenants)

    @property
    def now_s(self) -> float:
        """The run's clock."""
        return self._state.now_s

    @property
    def queues(self) -> Sequence[QueueState]:
        """How the requests of each tenant stand; the GPU is one server for all of them."""
        state = self._state
        busy_until = {"gpu": state.busy_until_s} if state.busy_until_s > state.now_s else {}
        return [
            QueueState(head, tail, busy_until, state.now_s, n_batches)
            for head, tail, n_batches in zip(state.heads, self._tails, state.n_batches, strict=True)
        ]

    def plan(self, opening: Opening, forecast: Forecast) -> None:
        """Nothing yet: whose turn it is shows as requests come."""

    def begin(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None, note: Note) -> None:  # noqa: ARG002
        """Set batch limits and retrainings for the window."""
        config, slowdown, tenants = self._setting.config, self._policy.slowdown, self._setting.tenants
        start_s = opening.window * config.window_s
        rates_rps = opening.past_rps.mean(axis=0).tolist()
        slos_s = [tenant.slo_s for tenant in tenants]
        limits = batch_limits([own.serving_s for own in self._measured], slos_s, rates_rps, slowdown)
        self._servings = [_serving(own, limit, slowdown) for own, limit in zip(self._measured, limits, strict=True)]
        seconds = slice(round(start_s), round(start_s + config.window_s))
        full_s = [own.latency_s[limit] * slowdown for own, limit in zip(self._measured, limits, strict=True)]
        self._alone_rps[:, seconds] = (np.array(limits) / full_s)[:, None]
        self._add_jobs(opening, min(slos_s) - max(full_s), rates_rps)

    def wait(self, until_s: float) -> float:
        """The end of a retraining whose last step is under way, if that comes first."""
        return min(until_s, self._ending[0].at_s) if self._ending else until_s

    def serve(
        self, requests: Sequence[Requests], accuracies: Sequence[AccuracyTimeline], until_s: float
    ) -> tuple[float, Sequence[Outcomes]]:
        """Serve and train by turns, until then or until the last step of a retraining begins."""
        self._tails = [len(own) for own in requests]
        self._state, piece = advance(
            requests,
            self._state,
            self._servings,
            accuracies,
            until_s,
            self._jitter,
            trains_in_slack=self._policy.trains_in_slack,
        )
        self._batches.append(piece.batches)
        if piece.finished is not None:
            tenant = self._setting.tenants[piece.finished.tenant_index].name
            self._ending.append(Trained(self._state.busy_until_s, tenant, piece.finished.window))
        return self._state.now_s, piece.outcomes

    def act(self, now_s: float, note: Note) -> Sequence[Trained | Lost]:  # noqa: ARG002
        """Let the retrainings that have ended take effect."""
        ended = []
        while self._ending and self._ending[0].at_s <= now_s:
            ended.append(self._ending.popleft())
        return ended

    def revise(
        self, seen: Opening, forecast_from: Callable[[int], Forecast], reason: str, note: Note
    ) -> PlannedWindow | None:
        """Never: there is no plan."""
        del seen, forecast_from, reason, note
        return None

    def reconsider(self, seen: Opening, forecast_from: Callable[[int], Forecast], asked: Asked, note: Note) -> bool:
        """Never, for the same reason."""
        del seen, forecast_from, asked, note
        return False

    def close(self) -> None:
        """Do nothing: nothing is under way elsewhere."""

    def served_by_second(self, window: int) -> Mapping[str, Mapping[str, list[float]]]:
        """What the GPU could have served of each tenant in the part of a second that other tenants' batches left.

        So what training took counts as queueing.
        """
        window_s = round(self._setting.config.window_s)
        first, last = window * window_s, (window + 1) * window_s
        busy = np.stack([_busy_share(self._batches, index, first, last) for index in range(len(self._measured))])
        beside_others = np.maximum(0.0, 1.0 - (busy.sum(axis=0) - busy))
        serving = self._alone_rps[:, first:last] * beside_others
        return {
            tenant.name: {"could_serve": serving[index].tolist(), "changing": [0.0] * window_s}
            for index, tenant in enumerate(self._setting.tenants)
        }

    def _add_jobs(self, opening: Opening, longest_s: float, rates_rps: Sequence[float]) -> None:
        """Put the window's retrainings behind those that have begun, with steps of at most ``longest_s``."""
        setting = self._setting
        due = [index for index, tenant in enumerate(setting.tenants) if tenant.retrains_in(opening.window)]
        jobs = [self._job(index, opening.window, longest_s, len(due)) for index in due]
        estimates = estimates_in(setting, opening.window)
        order = retraining_order(
            [setting.tenants[i].weight * (estimates[i].accuracy_after - opening.accuracies[i]) for i in due],
            [rates_rps[i] for i in due],
            [job.left_s for job in jobs],
        )
        kept = [job for job in self._state.jobs if job.has_begun or job.tenant_index not in due]
        self._state = replace(self._state, jobs=(*kept, *(jobs[place] for place in order)))

    def _job(self, index: int, window: int, longest_s: float, n_at_once: int) -> TrainingJob:
        config, tenant, measured = self._setting.config, self._setting.tenants[index], self._measured[index]
        slowdown = self._policy.slowdown
        step_s = {b: RETRAINING_TO_INFERENCE * seconds * slowdown for b, seconds in measured.latency_s.items()}
        batch = training_batch(step_s, measured.rate_rps, longest_s)
        relative_rate = measured.rate_rps[batch] / max(measured.rate_rps.values())
        return TrainingJob(
            tenant_index=index,
            window=window,
            left_s=measured.training_s * slowdown / relative_rate,
            piece_s=step_s[batch],
            ready_s=window * config.window_s + config.estimates.delay_s + tenant.trainer_start.planned_s(n_at_once),
        )


def _measured(setting: Setting) -> list[_Measured]:
    """What was measured of every tenant on the whole GPU.

    Raises:
        ConfigError: Nothing that a tenant may use was measured.
    """
    profiles, gpu = service_profiles(setting.config), setting.gpu
    whole = max(gpu.profiles, key=lambda profile: (profile.compute_slices, profile.memory_slices)).name
    found = []
    for tenant, entry in zip(setting.tenants, setting.config.tenants, strict=True):
        rows = [row for row in profiles.of(gpu.name, tenant.model) if (row.profile, row.processes) == (whole, 1)]
        rows.sort(key=lambda row: row.batch)
        most = math.inf if entry.max_batch is None else entry.max_batch
        servable = [row.batch for row in rows if entry.batch in ("auto", row.batch) and row.batch <= most]
        if not servable:
            raise ConfigError(
                f"tenants.{tenant.name}: {profiles.name} has no row of {tenant.model} on {whole} with one process and "
                f"batch {entry.batch}{'' if entry.max_batch is None else f' (at most {entry.max_batch})'}; "
                "sharing the whole GPU needs one"
            )
        training_s = as_carried_out(setting.config.estimates, gpu, tenant).retraining_time_s
        found.append(
            _Measured(
                latency_s={row.batch: row.latency_s for row in rows},
                rate_rps={row.batch: row.throughput_rps for row in rows},
                servable=servable,
                training_s=training_s.get(whole, 0.0),
            )
        )
    return found


def _serving(measured: _Measured, limit: int, slowdown: float) -> BatchServing:
    """Batches up to ``limit``, as long as measured times ``slowdown``."""
    points = {batch: seconds * slowdown for batch, seconds in measured.latency_s.items() if batch <= limit}
    return BatchServing(LatencyCurve(tuple(points), tuple(points.values())), limit)


def _busy_share(pieces: Sequence[Batches], tenant_index: int, first: int, last: int) -> FloatArray:
    """Which share of each second from ``first`` to ``last`` the GPU spends on the tenant's batches."""
    own = [piece.tenant_index == tenant_index for piece in pieces]
    begin_s = np.concatenate([[], *(piece.begin_s[mask] for piece, mask in zip(pieces, own, strict=True))])
    end_s = np.concatenate([[], *(piece.end_s[mask] for piece, mask in zip(pieces, own, strict=True))])
    if not begin_s.size:
        return np.zeros(last - first)
    # Busy seconds so far: level between batches, rising in them.
    moments_s = np.stack([begin_s, end_s], axis=1).ravel()
    so_far_s = np.cumsum(np.stack([np.zeros_like(begin_s), end_s - begin_s], axis=1).ravel())
    shares: FloatArray = np.diff(np.interp(np.arange(first, last + 1.0), moments_s, so_far_s))
    return shares
