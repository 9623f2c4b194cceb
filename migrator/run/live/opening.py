"""Puts a live run together: real processes on a GPU that is held, in a folder of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from executor.cpu.gpu import CpuGpu
from executor.driver import DriverGpu
from executor.names import spelled_as
from migrator.config import FrontDoorConfig
from migrator.console import warn
from migrator.errors import ConfigError
from migrator.log.runlog import ReadLog
from migrator.run.applier import Backend
from migrator.run.live.learning import LiveModels, Served, options_of
from migrator.run.live.queues import LiveQueues
from migrator.run.live.site import LiveClock, Site
from migrator.run.live.workers import LiveWorkers
from migrator.run.loop import Joining
from migrator.run.real import RealGpu
from migrator.setting import Setting
from migrator.traffic import RecordedTraffic
from workloads.errors import LearningError, WorkloadError
from workloads.learning.datasets import BENCHMARKS
from workloads.learning.models import libraries
from workloads.live.messages import Counts, Status
from workloads.live.model import factory
from workloads.live.process import setup_text

if TYPE_CHECKING:
    from workloads.live import front_door

LEAST_PERIODS = 20
"""An SLO of fewer periods of a CPU's shares says more about the period than about the service."""

_TOTALS = ("arrived", "in_time", "late", "dropped", "refused", "failed", "correct", "goodput")


@dataclass(frozen=True)
class LiveParts:
    """The parts of a live run, as :class:`migrator.run.policy_run.PolicyRun` takes them, by its arguments' names.

    Attributes:
        backend: Opens the GPU for the run.
        queues: What becomes of the requests.
        models: What answers them.
        ending: Ends the service; what else is known then.
    """

    backend: Callable[[float], Backend]
    queues: LiveQueues
    models: LiveModels
    ending: Callable[[], Mapping[str, object]]


@contextmanager
def live_run(
    real: RealGpu,
    setting: Setting,
    traffic: RecordedTraffic,
    run: Path,
    joins: Joining | None = None,
    stands: ReadLog | None = None,
) -> Iterator[LiveParts]:
    """All that a live run needs; its processes write into a new folder of the run's, and are gone when this is left.

    With ``joins``, it goes on with the weights that ``stands``, its log so far, tells of.

    Raises:
        ConfigError: An SLO is too short for the shares of this CPU; or a model or its data cannot be had.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder cannot be used.
    """
    _refuse_unknown(setting)
    _mind_short_slos(setting, real.gpu)
    asked = setting.config.front_door
    if asked is not None:
        _door(setting, run, asked, lambda _: ("uint8", (1,)))  # so that mistakes are told before anything is trained
    imports = [name for entry in setting.config.tenants for name in libraries(entry.model)]
    with Site(_new_folder(run), imports) as site:
        end_s = setting.config.windows * setting.config.window_s
        requests = traffic.requests(end_s)
        served = {} if stands is None else _served(stands, run)
        models = LiveModels(setting, site, requests, served, _of_clerks(real.gpu))
        from_s = 0.0 if joins is None else joins.window * setting.config.window_s
        longest_s = max(tenant.slo_s for tenant in setting.tenants)
        queues = LiveQueues(site, len(setting.tenants), end_s + longest_s)
        machine = _Machine()
        door = None if asked is None else setup_text(_door(setting, site.folder, asked, models.input_of))
        made: list[LiveWorkers] = []

        def opened(start_s: float) -> Backend:
            clock = LiveClock(start_s)
            site.prepare(models.streams(from_s))

            def begin() -> None:
                site.open(clock, [tenant.name for tenant in setting.tenants], door)
                machine.begin()

            entries = {entry.name: entry.model for entry in setting.config.tenants}
            tenants = {tenant.name: tenant for tenant in setting.tenants}
            workers = LiveWorkers(site, real.gpu, clock, models, tenants, entries, setting.config.window_s, run)
            made.append(workers)
            return real.under(clock, workers, begin, site.close)

        def ending() -> Mapping[str, object]:
            replayed = site.finish()
            return {
                "requests": {
                    tenant.name: {
                        "sent": replayed["sent"].get(tenant.name, 0),
                        **{status.value: replayed["answers"][tenant.name].get(status.value, 0) for status in Status},
                        "dispatcher": _totals(site, tenant.name),
                    }
                    for tenant in setting.tenants
                },
                "sent_late_s": [round(late_s, 6) for late_s in replayed["late_s"]],
                "swaps": made[0].n_swaps,
                "stolen_share": machine.stolen_share,
            }

        yield LiveParts(opened, queues, models, ending)


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


def _of_clerks(gpu: DriverGpu) -> Mapping[str, str]:
    """The environment of clerks: on MIG they keep to the CPU, as all of the GPU is tenants'."""
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
    for record in stands.of_kind("finished"):
        file = run / record.get("weights", "")
        if file.is_file():
            found[record["tenant"]] = Served(file, record["version"], record["accuracy"])
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
