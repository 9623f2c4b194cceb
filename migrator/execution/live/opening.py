"""Puts a live run together: real processes on a GPU that is held, in a folder of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from executor.cpu.gpu import CpuGpu
from executor.driver import DriverGpu
from executor.messages import as_text
from executor.names import spelled_as
from migrator.config import FrontDoorConfig
from migrator.console import warn
from migrator.errors import ConfigError
from migrator.execution.instances import lead_s
from migrator.execution.live.learning import LiveModels, Served, options_of
from migrator.execution.live.queues import LiveQueues
from migrator.execution.live.site import LiveClock, Site
from migrator.execution.live.workers import LiveWorkers
from migrator.execution.parts import Joining, Parts, parts_on_instances
from migrator.execution.real import RealGpu
from migrator.log.records import Finished, LiveRequests, RunFinished
from migrator.log.runlog import ReadLog
from migrator.setting import Setting
from migrator.traffic import RecordedTraffic
from planner.policies.policy import Policy
from workloads.errors import LearningError, WorkloadError
from workloads.learning.datasets import BENCHMARKS
from workloads.learning.models import libraries
from workloads.live.messages import Counts, Status
from workloads.live.model import factory

if TYPE_CHECKING:
    from workloads.live import front_door

LEAST_PERIODS = 20
"""An SLO of fewer periods of a CPU's shares says more about the period than about the service."""

_TOTALS = ("arrived", "in_time", "late", "dropped", "refused", "failed", "correct", "goodput")


@contextmanager
def live_parts(
    real: RealGpu,
    setting: Setting,
    traffic: RecordedTraffic,
    policy: Policy,
    run: Path,
    *,
    joins: Joining | None = None,
    stands: ReadLog | None = None,
    time_limit_s: float | None = None,
) -> Iterator[Parts]:
    """The parts of a live run; its processes write into a new folder of the run's, and are gone when this is left.

    With ``joins``, it goes on with the weights that ``stands``, its log so far, tells of.

    Raises:
        ConfigError: An SLO is too short for the shares of this CPU; or a model or its data cannot be had.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder cannot be used.
        GpuError: The driver does not say what stands.
    """
    _refuse_unknown(setting)
    _mind_short_slos(setting, real.gpu)
    asked = setting.config.front_door
    if asked is not None:
        _door(setting, run, asked, lambda _: ("uint8", (1,)))  # so that mistakes are told before anything is trained
    imports = [name for entry in setting.config.tenants for name in libraries(entry.model)]
    with Site(_new_folder(run), imports) as site:
        end_s = setting.config.windows * setting.config.window_s
        served = {} if stands is None else _served(stands, run)
        models = LiveModels(
            setting.config, setting.tenants, site, traffic.requests(end_s), served, _of_profilers(real.gpu)
        )
        longest_s = max(tenant.slo_s for tenant in setting.tenants)
        queues = LiveQueues(site, len(setting.tenants), end_s + longest_s)
        door = None if asked is None else as_text(_door(setting, site.folder, asked, models.input_of))
        machine = _Machine()
        first_s = 0.0 if joins is None else joins.window * setting.config.window_s
        clock = LiveClock(first_s - lead_s(setting))
        site.prepare(models.streams(first_s))
        entries = {entry.name: entry.model for entry in setting.config.tenants}
        tenants = {tenant.name: tenant for tenant in setting.tenants}
        workers = LiveWorkers(site, real.gpu, clock, models, tenants, entries, setting.config.window_s, run)

        def begin() -> None:
            site.open(clock, [tenant.name for tenant in setting.tenants], door)
            machine.begin()

        yield parts_on_instances(
            setting,
            traffic,
            policy,
            lambda _: real.under(clock, workers, begin, site.close),
            queues=queues,
            models=models,
            ending=lambda: _ending(site, setting, workers, machine),
            joins=joins,
            time_limit_s=time_limit_s,
        )


def _ending(site: Site, setting: Setting, workers: LiveWorkers, machine: _Machine) -> RunFinished:
    """End the service; what is known of the requests then, and of the machine."""
    replayed = site.finish()
    return RunFinished(
        windows=setting.config.windows,
        requests={
            tenant.name: LiveRequests(
                sent=replayed["sent"].get(tenant.name, 0),
                **{status.value: replayed["answers"][tenant.name].get(status.value, 0) for status in Status},
                dispatcher=_totals(site, tenant.name),
            )
            for tenant in setting.tenants
        },
        sent_late_s=tuple(round(late_s, 6) for late_s in replayed["late_s"]),
        swaps=workers.n_swaps,
        stolen_share=machine.stolen_share,
    )


def _door(
    setting: Setting, folder: Path, asked: FrontDoorConfig, input_of: Callable[[str], tuple[str, tuple[int, ...]]]
) -> front_door.Setup:
    """The setup of the front door; ``input_of`` says by tenant of which type and shape an input is.

    Raises:
        ConfigError: It may not be opened so.
    """
    from workloads.live.front_door import Setup, Tenant, tokens_of  # noqa: PLC0415 - Starlette is for this alone
    from workloads.live.open_inference import Tensor  # noqa: PLC0415

    try:
        tenants = []
        for tenant in setting.tenants:
            dtype, shape = input_of(tenant.name)
            token = asked.tokens.get(tenant.name)
            tenants.append(
                Tenant(
                    tenant.name,
                    tenant.slo_s,
                    Tensor("input", dtype.upper(), shape),
                    Tensor("label", "UINT16", (1,)),
                    None if token is None else Path(token),
                )
            )
        setup = Setup(folder, tuple(tenants), asked.host, asked.port, tuple(asked.origins))
        tokens_of(setup)
    except (WorkloadError, ValueError) as error:
        raise ConfigError(f"front_door: {error}") from None
    return setup


def _of_profilers(gpu: DriverGpu) -> Mapping[str, str]:
    """The environment of profilers: on MIG they keep to the CPU, as all of the GPU is tenants'."""
    match gpu.backend:
        case "cpu":
            return {}
        case "mps":
            return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(gpu.index)}
        case _:
            return {"CUDA_VISIBLE_DEVICES": ""}


def _refuse_unknown(setting: Setting) -> None:
    """Refuse what is wrong with the tenants' models and benchmarks, before anything is started.

    Raises:
        ConfigError: Naming the tenant.
    """
    for entry in setting.config.tenants:
        assert entry.learning is not None
        try:
            if spelled_as(entry.learning.benchmark, BENCHMARKS) not in BENCHMARKS:
                known = ", ".join(BENCHMARKS)
                raise LearningError(f"learning.benchmark {entry.learning.benchmark!r}: unknown; {known} are allowed")
            if ":" not in entry.model:
                factory(entry.model)
            options_of(entry)
        except WorkloadError as error:
            raise ConfigError(f"tenants.{entry.name}: {error}") from None


def _new_folder(run: Path) -> Path:
    """Where the processes write: ``live``, and after each resumption another one."""
    names = ("live", *(f"live-{number}" for number in range(2, 1000)))
    return next(run / name for name in names if not (run / name).exists())


def _served(stands: ReadLog, run: Path) -> dict[str, Served]:
    """The weights that each tenant's retrainings have brought, where they are still there."""
    found = {}
    for ended in stands.of(Finished):
        if ended.weights is None or ended.version is None:
            continue
        file = run / ended.weights
        if file.is_file():
            found[ended.tenant] = Served(file, ended.version, ended.accuracy)
    return found


def _mind_short_slos(setting: Setting, gpu: DriverGpu) -> None:
    """Refuse SLOs of few periods; where shares are coarse anyway, warn of them."""
    if not isinstance(gpu, CpuGpu):
        return
    least_s = LEAST_PERIODS * gpu.shares.period_s
    for tenant in setting.tenants:
        if tenant.slo_s < least_s - 1e-9:
            said = (
                f"tenants.{tenant.name}.slo_ms: {1000 * tenant.slo_s:g}; at least {1000 * least_s:g} are needed, "
                f"{LEAST_PERIODS} periods, on a CPU that is shared by {gpu.shares.way}"
            )
            if not gpu.shares.is_coarse:
                raise ConfigError(said)
            warn(f"{said}; what comes of it says little")


def _totals(site: Site, tenant: str) -> dict[str, int]:
    """The dispatcher's own sums; requests of others, as by the front door, are among them."""
    own: list[Counts] = [counts for (name, _), counts in site.counts.items() if name == tenant]
    return {key: sum(getattr(counts, key) for counts in own) for key in _TOTALS}


class _Machine:
    """How much of its CPU time the machine was refused by whoever runs it, as a virtual machine is."""

    def begin(self) -> None:
        """Count from now on."""
        self._begun = _cpu_ticks()

    @property
    def stolen_share(self) -> float | None:
        """Of all CPU time since, 0 to 1; ``None`` where the system does not say."""
        now, begun = _cpu_ticks(), self._begun
        if now is None or begun is None:
            return None
        passed = now - begun
        return round(float(passed[7] / max(1, passed[:8].sum())), 6)


def _cpu_ticks() -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The first line of ``/proc/stat``, in ticks (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal."""
    try:
        first = Path("/proc/stat").read_text("ascii").split("\n", 1)[0]
        return np.array(first.split()[1:], np.int64)
    except (OSError, ValueError):
        return None
