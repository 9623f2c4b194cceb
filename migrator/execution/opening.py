"""Simulated, real, or live: asked here, where a run's parts are opened, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.execution.parts import Joining, Parts
from migrator.execution.real import RealGpu, real_parts
from migrator.execution.simulated import simulated_parts
from migrator.log.runlog import ReadLog
from migrator.setting import Setting
from migrator.traffic import RecordedTraffic
from planner.policies.policy import AnyPolicy, Policy


@contextmanager
def opened_parts(
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy,
    *,
    real: RealGpu | None = None,
    run: Path | None = None,
    joins: Joining | None = None,
    stands: ReadLog | None = None,
    time_limit_s: float | None = None,
) -> Iterator[Parts]:
    """What a run is made of; on ``real`` if it is given, and live if ``run`` is given, too: the folder of the run.

    ``joins`` says where a run that was cut off is joined again, and ``stands`` is its log so far.

    Raises:
        ConfigError: The policy cannot run on what was measured; or, live, a model or its data cannot be had.
        GpuError: The driver does not say what stands.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder of the processes cannot be used.
    """
    if real is None:
        yield simulated_parts(setting, traffic, policy, time_limit_s=time_limit_s)
        return
    assert isinstance(policy, Policy)  # others share a GPU without MIG instances, and are refused before
    if run is None:
        yield real_parts(real, setting, traffic, policy, joins=joins, time_limit_s=time_limit_s)
        return
    from migrator.execution.live.opening import live_parts  # noqa: PLC0415 - needs an extra

    with live_parts(
        real, setting, traffic, policy, run, joins=joins, stands=stands, time_limit_s=time_limit_s
    ) as parts:
        yield parts
