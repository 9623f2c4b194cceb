"""A run in which tenants take turns on one GPU without partitions.

The counterpart of :mod:`migrator.run.loop` for :class:`planner.policies.whole.Whole`: the same requests, luck and
accuracies. Batch limits, and the retrainings to be done, are settled when a window begins. A retraining that a window's
end meets goes on; a newer one of its tenant replaces one that has not begun, else waits behind it. It keeps the
training batch with which it was set up. Trainers that start together slow each other down as planned, without jitter;
what estimating costs is trained through first, and estimates are waited for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from migrator.errors import ConfigError
from migrator.estimates import as_carried_out
from migrator.log.account import FloatArray, SecondAccounts, second_accounts
from migrator.run.models_in_service import ModelsInService
from migrator.run.planning import estimates_in
from migrator.setting import Setting, service_profiles
from planner.policies.whole import Whole, batch_limits, retraining_order, training_batch
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, requests_of
from workloads.serving.tally import Tally, Totals
from workloads.serving.turns import Batches, BatchServing, Piece, TrainingJob, TurnsState, advance
from workloads.tenants import RETRAINING_TO_INFERENCE, Tenant
from workloads.traffic.luck import service_jitter

_COUNTS = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")


@dataclass(frozen=True, slots=True)
class FinishedRetraining:
    """A retraining that was done.

    Attributes:
        tenant: Whose model.
        window: With whose data.
        finish_s: When the new model began to answer.
    """

    tenant: str
    window: int
    finish_s: float


@dataclass(frozen=True)
class WholeRun:
    """What came of a run.

    Attributes:
        totals: Requests of all tenants by window.
        accounts: Where each tenant's requests went. What could have been served is what the GPU serves alone, in
            the part of the second that other tenants' batches left; so what training took is ``queueing``.
        retrainings: Those that were done, in order.
    """

    totals: tuple[Totals, ...]
    accounts: Mapping[str, SecondAccounts]
    retrainings: tuple[FinishedRetraining, ...]


def whole_run(setting: Setting, policy: Whole) -> WholeRun:
    """All windows of the setting under the policy, and the last answers; same arguments, same run.

    Raises:
        ConfigError: A tenant's model was not measured on the whole GPU with one process and a batch that it may use.
    """
    return _Run(setting, policy).all_windows()


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


class _Run:
    def __init__(self, setting: Setting, policy: Whole) -> None:
        config = setting.config
        self._setting, self._policy, self._slowdown = setting, policy, policy.slowdown
        self._measured = _measured(setting)
        self._requests = [
            requests_of(tenant.name, tenant.slo_s, arrivals.times_s, config.seed)
            for tenant, arrivals in zip(setting.tenants, setting.arrivals, strict=True)
        ]
        self._jitter = service_jitter(config.seed, config.simulation.service_jitter)
        self._models = ModelsInService(setting.tenants, config.window_s)
        self._accuracies: list[dict[float, float]] = [{} for _ in setting.tenants]
        self._state = TurnsState.at_start(len(setting.tenants))
        self._servings: list[BatchServing] = []
        n_seconds = round(config.windows * config.window_s)
        self._tallies = [Tally(tenant.name, n_seconds) for tenant in setting.tenants]
        self._batches: list[Batches] = []
        self._alone_rps = np.zeros((len(setting.tenants), n_seconds))
        self._done: list[FinishedRetraining] = []

    def all_windows(self) -> WholeRun:
        """The run, from its first second to the last answer."""
        config = self._setting.config
        for window in range(config.windows):
            self._open(window)
            self._advance((window + 1) * config.window_s)
        self._advance(math.inf)
        by_second = [tally.counts for tally in self._tallies]
        counts = np.array([[getattr(own, name) for name in _COUNTS] for own in by_second])
        by_window = counts.sum(axis=0).reshape(len(_COUNTS), config.windows, -1).sum(axis=2)
        return WholeRun(
            tuple(Totals(*column) for column in by_window.T.tolist()), self._accounts(counts), tuple(self._done)
        )

    def _open(self, window: int) -> None:
        """Set accuracies, batch limits and retrainings for the window."""
        config, slowdown = self._setting.config, self._slowdown
        start_s = window * config.window_s
        accuracies = self._models.at_start(window)
        for own, accuracy in zip(self._accuracies, accuracies, strict=True):
            own[start_s] = accuracy
        rates_rps = self._setting.history_rps(window).mean(axis=0).tolist()
        slos_s = [tenant.slo_s for tenant in self._setting.tenants]
        limits = batch_limits([own.serving_s for own in self._measured], slos_s, rates_rps, slowdown)
        self._servings = [_serving(own, limit, slowdown) for own, limit in zip(self._measured, limits, strict=True)]
        seconds = slice(round(start_s), round(start_s + config.window_s))
        full_s = [own.latency_s[limit] * slowdown for own, limit in zip(self._measured, limits, strict=True)]
        self._alone_rps[:, seconds] = (np.array(limits) / full_s)[:, None]
        self._add_jobs(window, min(slos_s) - max(full_s), rates_rps, accuracies)

    def _add_jobs(self, window: int, longest_s: float, rates_rps: Sequence[float], accuracies: Sequence[float]) -> None:
        """Put the window's retrainings behind those that have begun, with steps of at most ``longest_s``."""
        setting = self._setting
        due = [index for index, tenant in enumerate(setting.tenants) if tenant.retrains_in(window)]
        jobs = [self._job(index, window, longest_s, len(due)) for index in due]
        estimates = estimates_in(setting, window)
        order = retraining_order(
            [setting.tenants[i].weight * (estimates[i].accuracy_after - accuracies[i]) for i in due],
            [rates_rps[i] for i in due],
            [job.left_s for job in jobs],
        )
        kept = [job for job in self._state.jobs if job.has_begun or job.tenant_index not in due]
        self._state = replace(self._state, jobs=(*kept, *(jobs[place] for place in order)))

    def _job(self, index: int, window: int, longest_s: float, n_at_once: int) -> TrainingJob:
        config, tenant, measured = self._setting.config, self._setting.tenants[index], self._measured[index]
        step_s = {b: RETRAINING_TO_INFERENCE * seconds * self._slowdown for b, seconds in measured.latency_s.items()}
        batch = training_batch(step_s, measured.rate_rps, longest_s)
        relative_rate = measured.rate_rps[batch] / max(measured.rate_rps.values())
        return TrainingJob(
            tenant_index=index,
            window=window,
            left_s=measured.training_s * self._slowdown / relative_rate,
            piece_s=step_s[batch],
            ready_s=window * config.window_s + config.estimates.delay_s + tenant.trainer_start.planned_s(n_at_once),
        )

    def _advance(self, until_s: float) -> None:
        """Go to ``until_s``, from the last piece of a retraining on with what the new model gives once it is done."""
        while self._state.now_s < until_s:
            timelines = [_timeline(own) for own in self._accuracies]
            self._state, piece = advance(
                self._requests,
                self._state,
                self._servings,
                timelines,
                until_s,
                self._jitter,
                trains_in_slack=self._policy.trains_in_slack,
            )
            self._keep(piece)
            if piece.finished is not None:
                self._retrained(piece.finished, self._state.busy_until_s)

    def _keep(self, piece: Piece) -> None:
        for tally, requests, outcomes in zip(self._tallies, self._requests, piece.outcomes, strict=True):
            tally.add(requests, outcomes)
        self._batches.append(piece.batches)

    def _retrained(self, job: TrainingJob, finish_s: float) -> None:
        accuracy = self._models.retrained(job.tenant_index, job.window, finish_s)
        self._accuracies[job.tenant_index][finish_s] = accuracy
        name = self._setting.tenants[job.tenant_index].name
        self._done.append(FinishedRetraining(name, job.window, finish_s))

    def _accounts(self, counts: NDArray[np.int64]) -> dict[str, SecondAccounts]:
        """By tenant; ``counts`` is ``(n_tenants, n_counts, n_seconds)``."""
        n_tenants, _, n_seconds = counts.shape
        busy = np.stack([_busy_share(self._batches, index, n_seconds) for index in range(n_tenants)])
        beside_others = np.maximum(0.0, 1.0 - (busy.sum(axis=0) - busy))
        found = {}
        for index, tenant in enumerate(self._setting.tenants):
            arrivals, in_time, correct = (
                counts[index, _COUNTS.index(name)].astype(np.float64) for name in ("arrivals", "in_time", "correct")
            )
            serving = self._alone_rps[index] * beside_others[index]
            is_new = self._is_new(tenant, n_seconds)
            found[tenant.name] = second_accounts(arrivals, in_time, correct, serving, np.zeros(n_seconds), is_new)
        return found

    def _is_new(self, tenant: Tenant, n_seconds: int) -> NDArray[np.bool_]:
        """In which seconds the model retrained with the window's own data answers, ``(n_seconds,)``."""
        starts_s, is_new = np.arange(n_seconds, dtype=np.float64), np.zeros(n_seconds, dtype=np.bool_)
        for item in self._done:
            if item.tenant == tenant.name:
                end_s = (item.window + 1) * self._setting.config.window_s
                is_new |= (starts_s >= item.finish_s) & (starts_s < end_s)
        return is_new


def _measured(setting: Setting) -> list[_Measured]:
    """Of every tenant what was measured on the whole GPU.

    Raises:
        ConfigError: Nothing that it may use was.
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


def _timeline(accuracies: Mapping[float, float]) -> AccuracyTimeline:
    ordered = sorted(accuracies.items())
    return AccuracyTimeline(tuple(at_s for at_s, _ in ordered), tuple(accuracy for _, accuracy in ordered))


def _busy_share(pieces: Sequence[Batches], tenant_index: int, n_seconds: int) -> FloatArray:
    """Which share of each second the GPU spends on the tenant's batches, ``(n_seconds,)``."""
    own = [piece.tenant_index == tenant_index for piece in pieces]
    begin_s = np.concatenate([[], *(piece.begin_s[mask] for piece, mask in zip(pieces, own, strict=True))])
    end_s = np.concatenate([[], *(piece.end_s[mask] for piece, mask in zip(pieces, own, strict=True))])
    if not begin_s.size:
        return np.zeros(n_seconds)
    # Busy seconds so far: level between batches, rising in them.
    moments_s = np.stack([begin_s, end_s], axis=1).ravel()
    so_far_s = np.cumsum(np.stack([np.zeros_like(begin_s), end_s - begin_s], axis=1).ravel())
    shares: FloatArray = np.diff(np.interp(np.arange(n_seconds + 1.0), moments_s, so_far_s))
    return shares
