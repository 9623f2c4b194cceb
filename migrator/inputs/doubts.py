"""What a config asks for and no plan can do, or what is surely a slip of a unit: a sentence each, before anything runs.

All of it is allowed, and a plan or a run goes on: optimal among what is possible, which is then not what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from executor.mig import GpuModel
from migrator.config.sections import Config
from planner.build import documented_warm_ups
from planner.feasibility import infeasibility
from planner.plan import Rule
from planner.problem import Checkpoint, Problem, Reconfiguration, RetrainingOption, TenantTerms
from workloads.tenants import Tenant
from workloads.training import TrainingOption

MOST_START = 0.1
"""Of a window: a start-up that takes more is doubtful, as every change of the layout waits for it."""

_EPS = 1e-9


def doubts_of(config: Config, gpu: GpuModel, tenants: Sequence[Tenant]) -> tuple[str, ...]:
    """What is doubtful of the tenants, who are as planning takes them, beside the windows of the config."""
    starts = documented_warm_ups(gpu, tenants)
    return tuple(
        doubt
        for number, tenant in enumerate(tenants)
        for found in (
            _long_slo(config, tenant),
            _long_starts(config, tenant),
            _retraining_without_a_window(
                config, gpu, tenants, number, starts.switch_s + starts.training_start_s[number]
            ),
            _falling_accuracy(config, tenant),
        )
        for doubt in found
    )


def _long_slo(config: Config, tenant: Tenant) -> Iterator[str]:
    if tenant.slo_s > config.window_s:
        yield (
            f"tenants.{tenant.name}.slo_ms is {1000 * tenant.slo_s:,.0f}, in milliseconds: longer than a window of "
            f"{_seconds(config.window_s)}"
        )


def _long_starts(config: Config, tenant: Tenant) -> Iterator[str]:
    serving_s, training_s = tenant.worker_start.base_s, tenant.trainer_start.base_s
    found = [("worker", serving_s, "change of the layout")]
    if training_s != serving_s and tenant.retraining_time_s:
        found.append(("retraining", training_s, "retraining"))
    for kind, start_s, what in found:
        if start_s > MOST_START * config.window_s + _EPS:
            yield (
                f"tenants.{tenant.name}.{kind}_start_s is {_seconds(start_s)}: more than a tenth of a window of "
                f"{_seconds(config.window_s)}, and every {what} waits for it"
            )


def _retraining_without_a_window(
    config: Config, gpu: GpuModel, tenants: Sequence[Tenant], number: int, before_s: float
) -> Iterator[str]:
    """Where no layout of the GPU has time and room for any retraining of the tenant, if it were the only one."""
    tenant = tenants[number]
    beside = [tenant] if config.sharing.may_pool else tenants  # who shares instances may need none of their own
    if len(beside) > gpu.compute_slices:
        return  # no layout has an instance for each, which is said where it matters
    if not tenant.retraining_time_s or _has_room(config, gpu, beside, tenant, tenant.options, before_s):
        return
    doubt = (
        f"tenants.{tenant.name}.retraining fits into no window of {_seconds(config.window_s)}, so that none will run"
    )
    ways = {(seconds, profile) for option in tenant.options for profile, seconds in option.time_s.items()}
    for training_s, profile in sorted(ways):
        if _has_room(config, gpu, beside, tenant, [TrainingOption("full", {profile: config.step_s})], 0.0):
            yield (
                f"{doubt}: the least that plans reckon for one is {_seconds(before_s + training_s)}, of which "
                f"{_seconds(training_s)} are training, on {profile}"
            )
            return
    yield f"{doubt}: no layout holds an instance for it beside those that every tenant needs"


def _has_room(
    config: Config,
    gpu: GpuModel,
    tenants: Sequence[Tenant],
    trained: Tenant,
    options: Sequence[TrainingOption],
    before_s: float,
) -> bool:
    """Whether a window may hold one of the options, judged by times and numbers of instances alone.

    ``before_s`` pass until it trains.
    """
    longest_s, n_steps = 2 * config.window_s, max(2, config.n_steps)  # what is longer is as much too long
    checkpoints = tuple(Checkpoint(part, 0.0) for part, _ in trained.checkpoints)
    asked = tuple(
        RetrainingOption(
            one.name,
            {name: min(seconds, longest_s) for name, seconds in one.time_s.items()},
            0.0,
            checkpoints,
            trained.checkpoint_s,
        )
        for one in options
    )
    problem = Problem(
        gpu=gpu,
        step_s=config.step_s,
        n_steps=n_steps,
        reconfiguration=Reconfiguration.PHYSICAL,
        tenants=tuple(
            TenantTerms(
                name=tenant.name,
                arrivals_rps=np.zeros(n_steps),
                capability_rps=tenant.capability_rps,
                accuracy_before=0.0,
                overhead_s=0.0,
                min_profile=tenant.min_profile,
                options=asked if tenant is trained else (),
                retraining_required=True,
                retraining_start_s=min(before_s, longest_s),
            )
            for tenant in tenants
        ),
        switch_s=0.0,
    )
    reason = infeasibility(problem)
    return reason is None or reason.rule != Rule.RETRAINING


def _falling_accuracy(config: Config, tenant: Tenant) -> Iterator[str]:
    n_windows = len(tenant.accuracy) if config.is_endless else config.windows  # the last one holds from then on
    windows = [window for window in range(n_windows) if tenant.retrains_in(window)]
    falls = [n for n in windows if tenant.accuracy_in(n).after < tenant.accuracy_in(n).before]
    if falls:
        first = tenant.accuracy_in(falls[0])
        more = f" and in {len(falls) - 1} more" if len(falls) > 1 else ""
        yield (
            f"tenants.{tenant.name}.accuracy falls by retraining, from {first.before:g} to {first.after:g} in window "
            f"{falls[0]}{more}"
        )


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"
