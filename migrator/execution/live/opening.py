"""Puts a live run together: real processes on a GPU that is held, in a folder of the run.

What became of real requests takes the form in which the loop's ledger counts simulated ones. The generator appends what
it hears to a file, so that reading it never holds up what is still to be sent. Nothing is reckoned here: statuses and
right answers are those that clients saw, times are the dispatcher's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from executor.cpu.gpu import CpuGpu
from executor.driver import DriverGpu
from executor.files import open_input, read_input
from executor.messages import as_text
from executor.names import spelled_as
from executor.processes import family_ticks
from migrator.config.sections import FrontDoorConfig, TenantConfig
from migrator.errors import ConfigError
from migrator.execution.accounts import QueueAccounts
from migrator.execution.instances import lead_s
from migrator.execution.live.accounts import AGAIN_S, GRACE_S, CountAccounts
from migrator.execution.live.learning import LiveModels, Served, options_of
from migrator.execution.live.site import TOTALS, LiveClock, Site
from migrator.execution.live.workers import LiveWorkers
from migrator.execution.parts import Joining, Parts, parts_on_instances
from migrator.execution.real import RealGpu
from migrator.execution.requests import Queues
from migrator.execution.seams import Accounts
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic, Traffic
from migrator.log.records import Dispatched, Finished, LiveRequests, RunFinished
from migrator.log.runlog import ReadLog
from migrator.terminal.console import warn
from planner.policies.policy import Policy
from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.errors import LearningError, WorkloadError
from workloads.learning.datasets import BENCHMARKS
from workloads.learning.models import libraries
from workloads.live.generator import OUTCOME, STATUSES
from workloads.live.messages import Closed, Counts, Status
from workloads.live.model import factory
from workloads.serving.pool import Lane
from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Server

if TYPE_CHECKING:
    from workloads.live import front_door


_RECORD = np.dtype([("stream", "<u2"), ("place", "<u4"), ("status", "u1"), ("right", "u1"), ("at_s", "<f8")])
assert _RECORD.itemsize == OUTCOME.size

_IN_TIME, _LATE = STATUSES.index(Status.IN_TIME), STATUSES.index(Status.LATE)


class LiveQueues(Queues):
    """The servers that stand do not matter, for these are real."""

    are_real = True

    def __init__(self, site: Site, tenants: Sequence[str], end_s: float) -> None:
        """``tenants`` are in the order of the generator's streams; ``end_s`` is the last deadline."""
        super().__init__(tenants)
        self._site, self._end_s = site, end_s
        self._known = {name: _Known() for name in tenants}
        self._first = np.zeros(len(tenants), np.int64)
        self._n_read = 0
        self._coming: NDArray[np.void] = np.empty(0, _RECORD)

    def begin(self, n_before: Mapping[str, int], start_s: float) -> None:
        """Begin at a later second; so many requests arrived before it, and are in no queue."""
        super().begin(n_before, start_s)
        self._first = np.array([*n_before.values()])
        self._known = {name: _Known(n) for name, n in n_before.items()}

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """Nothing is known of batches in service; workers say themselves when they are gone."""
        return {}

    def advance(
        self,
        requests: Mapping[str, Requests],
        servers: Mapping[str, Sequence[Server]],  # noqa: ARG002 - as the simulation's
        accuracies: Mapping[str, AccuracyTimeline],  # noqa: ARG002
        until_s: float,
        lanes: Sequence[Lane] = (),  # noqa: ARG002
    ) -> dict[str, Outcomes]:
        """What has become known of the requests that arrived before ``until_s``."""
        records = self._fresh(requests)
        found = {}
        for stream, (name, known) in enumerate(self._known.items()):
            outcomes = _outcomes(records[records["stream"] == stream])
            known.resolve(outcomes.index)
            self._states[name] = self._state(known.head, requests[name].end, until_s)
            found[name] = outcomes
        return found

    def others_shares(self, first_s: int, end_s: int) -> Mapping[str, FloatArray]:  # noqa: ARG002 - as the simulation's
        """Nothing: it is unknown how long real turns took."""
        return {}

    def _fresh(self, requests: Mapping[str, Requests]) -> NDArray[np.void]:
        """What was appended since, of requests that have arrived as far as the loop knows; the rest is kept."""
        raw = _read(self._site.outcomes, self._n_read, OUTCOME.size)
        self._n_read += len(raw)
        fresh = np.frombuffer(raw, _RECORD).copy()
        fresh["place"] += self._first[fresh["stream"]].astype(np.uint32)  # streams begin where the run does
        records = np.concatenate([self._coming, fresh])
        n_arrived = np.array([requests[name].end for name in self._known])
        is_here = records["place"] < n_arrived[records["stream"]]
        self._coming = records[~is_here]
        here: NDArray[np.void] = records[is_here]
        return here

    def _state(self, head: int, tail: int, until_s: float) -> QueueState:
        """As far as known. After the last deadline, what is still open is told as in service: the loop waits for it."""
        if head >= tail or until_s < self._end_s:
            return QueueState(head=head, tail=tail, now_s=until_s)
        if until_s > self._end_s + 4 * GRACE_S:  # no process can say: they stay without a fate, as the report tells
            return QueueState(head=tail, tail=tail, now_s=until_s)
        if until_s > self._end_s + GRACE_S:
            self._site.drop_rest()
        open_ = (Outcomes.all_dropped(np.empty(0, np.int64)), range(head, head + 1))
        return QueueState(
            head=head,
            tail=tail,
            now_s=until_s,
            busy_until={"answers": until_s + AGAIN_S},
            batches={"answers": open_},
        )


@dataclass
class _Known:
    """Of which requests is known what became of them: all below ``head``, and some above."""

    head: int = 0
    beyond: set[int] = field(default_factory=set)

    def resolve(self, index: IntArray) -> None:
        self.beyond.update(index.tolist())
        while self.head in self.beyond:
            self.beyond.remove(self.head)
            self.head += 1


def _outcomes(records: NDArray[np.void]) -> Outcomes:
    """The records as the ledger takes them, in the order of arrival."""
    ordered = records[np.argsort(records["place"], kind="stable")]
    status = ordered["status"]
    in_time: BoolArray = status == _IN_TIME
    is_answered = in_time | (status == _LATE)
    index: IntArray = ordered["place"].astype(np.int64)
    answer_s: FloatArray = np.where(is_answered, ordered["at_s"], np.nan)
    right: BoolArray = is_answered & (ordered["right"] != 0)
    return Outcomes(index, answer_s, in_time, right)


def _read(path: Path, begin: int, size: int) -> bytes:
    """What stands in the file from there on, in whole records."""
    with open_input(path) as file:
        file.seek(begin)
        raw = file.read()
    return raw[: len(raw) // size * size]


LEAST_PERIODS = 20
"""An SLO of fewer periods of a CPU's shares says more about the period than about the service."""


@contextmanager
def live_parts(
    real: RealGpu,
    setting: Setting,
    traffic: Traffic,
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
        ConfigError: An SLO is too short for the shares of this CPU, pools are listed where an instance takes one
            process, or no profile serves one; or a model or its data cannot be had.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder cannot be used.
        GpuError: The driver does not say what stands.
    """
    _refuse_unknown(setting)
    _refuse_unserved(setting)
    _mind_short_slos(setting, real.gpu)
    turns_by = _turns_of_pools(setting, real.gpu)
    asked = setting.config.front_door
    if asked is not None:
        _door(setting, run, asked, _configured_input(setting))  # so that mistakes are told before anything is trained
    imports = [name for entry in setting.config.tenants for name in libraries(entry.model)]
    with Site(_new_folder(run), imports) as site:
        end_s = setting.config.windows * setting.config.window_s
        recorded = traffic if isinstance(traffic, RecordedTraffic) else None
        served = {} if stands is None else _served(stands, run)
        requests = None if recorded is None else recorded.requests(0, round(end_s))
        models = LiveModels(setting.config, setting.tenants, site, requests, served, real.gpu.aside)
        longest_s = max(tenant.slo_s for tenant in setting.tenants)
        door = None if asked is None else as_text(_door(setting, site.folder, asked, models.input_of))
        machine = _Machine()
        first_s = 0.0 if joins is None else joins.window * setting.config.window_s
        clock = LiveClock(first_s - lead_s(setting))
        first_window = 0 if joins is None else joins.window
        if recorded is None:
            accounts: Accounts = _counted(site, setting, traffic, end_s, first_window)
        else:
            site.prepare(models.streams(first_s))
            queues = LiveQueues(site, [tenant.name for tenant in setting.tenants], end_s + longest_s)
            accounts = QueueAccounts(recorded, setting.tenants, setting.config.window_s, queues, first_window)
        tenants = {tenant.name: tenant for tenant in setting.tenants}
        workers = LiveWorkers(site, real.gpu, clock, models, tenants, setting.config.window_s, run)

        def begin() -> None:
            kept_s = 2 * setting.config.window_s + 2 * longest_s + GRACE_S
            closes_s = CLOSES_S if recorded is None else None
            names = [tenant.name for tenant in setting.tenants]
            site.open(clock, names, door, setting.turn_cost, kept_s, closes_s)
            machine.begin()

        parts = parts_on_instances(
            setting,
            traffic,
            policy,
            lambda _: real.under(clock, workers, begin, site.close),
            accounts=accounts,
            models=models,
            ending=lambda: _ending(site, setting, workers, machine),
            joins=joins,
            time_limit_s=time_limit_s,
        )
        yield replace(parts, turns_by=turns_by)


CLOSES_S = 1.0
"""A second of live arrivals is closed so long after its end."""


def _counted(site: Site, setting: Setting, traffic: Traffic, end_s: float, first_window: int) -> CountAccounts:
    """The accounts of what clients ask; they and the traffic hear what the dispatcher counts."""
    assert isinstance(traffic, LiveTraffic)
    window_s = setting.config.window_s
    traffic.begin(first_window * round(window_s))
    accounts = CountAccounts(setting.tenants, window_s, end_s, site.drop_rest, first_window)

    def hear(word: Counts | Closed) -> None:
        accounts.hear(word)
        if isinstance(word, Closed):
            traffic.close(word.second)
        else:
            traffic.take(word.tenant, word.second, word.offered)

    site.hear = hear
    return accounts


def _ending(site: Site, setting: Setting, workers: LiveWorkers, machine: _Machine) -> RunFinished:
    """End the service; what is known of the requests then, and of the machine."""
    replayed, shares = site.finish(), machine.shares or (None, None)
    if replayed is None:
        return RunFinished(
            windows=setting.config.windows, swaps=workers.n_swaps, stolen_share=shares[0], others_share=shares[1]
        )
    return RunFinished(
        windows=setting.config.windows,
        requests={
            tenant.name: LiveRequests(
                sent=replayed["sent"].get(tenant.name, 0),
                **{status.value: replayed["answers"][tenant.name].get(status.value, 0) for status in Status},
                dispatcher=Dispatched(**{name: site.totals[tenant.name][name] for name in TOTALS}),
            )
            for tenant in setting.tenants
        },
        sent_late_s=tuple(round(late_s, 6) for late_s in replayed["late_s"]),
        swaps=workers.n_swaps,
        stolen_share=shares[0],
        others_share=shares[1],
    )


def _door(
    setting: Setting, folder: Path, asked: FrontDoorConfig, input_of: Callable[[str], tuple[str, tuple[int, ...]]]
) -> front_door.DoorSetup:
    """The setup of the front door; ``input_of`` says by tenant of which type and shape an input is.

    Raises:
        ConfigError: It may not be opened so.
    """
    from workloads.live.front_door import DoorSetup, ServedModel, tokens_of  # noqa: PLC0415 - Starlette is for this alone
    from workloads.live.open_inference import DATATYPES, Tensor  # noqa: PLC0415

    names = {dtype.name: name for name, dtype in DATATYPES.items()}
    try:
        tenants = []
        for tenant in setting.tenants:
            dtype, shape = input_of(tenant.name)
            token = asked.tokens.get(tenant.name)
            tenants.append(
                ServedModel(
                    tenant.name,
                    tenant.slo_s,
                    Tensor("input", names[dtype], shape),
                    Tensor("label", "UINT16", (1,)),
                    None if token is None else Path(token),
                )
            )
        setup = DoorSetup(folder, tuple(tenants), asked.host, asked.port, tuple(asked.origins))
        tokens_of(setup)
    except (WorkloadError, ValueError) as error:
        raise ConfigError(f"front_door: {error}") from None
    return setup


def _configured_input(setting: Setting) -> Callable[[str], tuple[str, tuple[int, ...]]]:
    """Says by tenant what an input is, as far as the config does: a benchmark's is not known yet, and fits any door."""
    given = {entry.name: entry.input for entry in setting.config.tenants}

    def input_of(tenant: str) -> tuple[str, tuple[int, ...]]:
        one = given[tenant]
        return ("uint8", (1,)) if one is None else (one.dtype, tuple(one.shape))

    return input_of


def _turns_of_pools(setting: Setting, gpu: DriverGpu) -> str | None:
    """By what members of a pool take turns in an instance; ``None`` where no tenants share one.

    Raises:
        ConfigError: They are to, and an instance takes one process alone.
    """
    if not setting.config.sharing.may_pool:
        return None
    turns_by = gpu.turns_by
    if turns_by is None:
        raise ConfigError(
            f"config {setting.config.name}: sharing.pools: an instance of GPU {gpu.index} takes one process alone, by "
            f"its compute mode; off is needed, or as root: nvidia-smi -i {gpu.index} -c DEFAULT"
        )
    return turns_by


def _refuse_unknown(setting: Setting) -> None:
    """Refuse what is wrong with the tenants' models and benchmarks, before anything is started.

    Raises:
        ConfigError: Naming the tenant.
    """
    for entry in setting.config.tenants:
        try:
            _check_learning(entry)
            if ":" not in entry.model:
                factory(entry.model)
            if entry.weights is not None:
                open_input(Path(entry.weights)).close()
        except OSError as error:
            raise ConfigError(f"tenants.{entry.name}.weights: {entry.weights}: {error.strerror}") from None
        except WorkloadError as error:
            raise ConfigError(f"tenants.{entry.name}: {error}") from None


def _check_learning(entry: TenantConfig) -> None:
    """Raise :class:`LearningError` where what the tenant is to learn, or how, is unknown."""
    if entry.learning is None:
        return
    if spelled_as(entry.learning.benchmark, BENCHMARKS) not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise LearningError(f"learning.benchmark {entry.learning.benchmark!r}: unknown; {known} are allowed")
    options_of(entry)


def _refuse_unserved(setting: Setting) -> None:
    """Refuse pools that no profile serves, as for want of memory, before anything is trained.

    Raises:
        ConfigError: Naming the pool, the table, the profile, and what is too little.
    """
    for pool in setting.config.sharing.listed or ():
        reason = setting.joint_points.of(pool).infeasible if len(pool) > 1 else None
        if reason is not None:
            raise ConfigError(f"sharing.pools: the pool of {', '.join(pool)} ({setting.profiles.name}): {reason}")


def _new_folder(run: Path) -> Path:
    """Where the processes write: ``live``, and after each resumption another one."""
    names = ("live", *(f"live-{number}" for number in range(2, 1000)))
    return next(run / name for name in names if not (run / name).exists())


def _served(stands: ReadLog, run: Path) -> dict[str, Served]:
    """The weights that each tenant's retrainings have brought, where they are still there."""
    return {
        ended.tenant: Served(run / ended.weights, ended.version, ended.accuracy)
        for ended in stands.of(Finished)
        if ended.weights is not None and ended.version is not None and (run / ended.weights).is_file()
    }


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


class _Machine:
    """What had the CPU time of the cores that this process may use."""

    def begin(self) -> None:
        """Count from now on."""
        self._begun, self._own_begun = _cpu_ticks(), family_ticks(os.getpid())

    @property
    def shares(self) -> tuple[float, float] | None:
        """Of all CPU time since, what the host of a virtual machine refused, and what processes of others took.

        0 to 1 each; ``None`` where the system does not say.
        """
        now, begun, own = _cpu_ticks(), self._begun, family_ticks(os.getpid()) - self._own_begun
        if now is None or begun is None:
            return None
        passed = [int(ticks) for ticks in (now - begun)[:8]]
        user, nice, system, _, _, irq, softirq, steal = passed
        others = max(0, user + nice + system + irq + softirq - own)
        return round(steal / max(1, sum(passed)), 6), round(others / max(1, sum(passed)), 6)


def _cpu_ticks() -> IntArray | None:
    """Of our cores in ``/proc/stat``, in ticks (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal."""
    try:
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in read_input(Path("/proc/stat"), 2**24).decode("ascii").splitlines()]
        ticks: IntArray = np.array([line[1:] for line in lines if line[0] in cores], np.int64).sum(axis=0)
    except (OSError, ValueError):
        return None
    return ticks
