"""Puts a live run together: real processes on a GPU that is held, in a folder of the run.

What became of real requests takes the form in which the loop's ledger counts simulated ones. The generator appends what
it hears to a file, so that reading it never holds up what is still to be sent. Nothing is reckoned here: statuses and
right answers are those that clients saw, times are the dispatcher's.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
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
from migrator.execution.events import tenants_changed
from migrator.execution.live.accounts import AGAIN_S, GRACE_S, CountAccounts
from migrator.execution.live.learning import LiveModels, options_of
from migrator.execution.live.orders import Attending, Reloading, RollingBack, Serving
from migrator.execution.live.site import TOTALS, LiveClock, Site
from migrator.execution.live.workers import LiveWorkers
from migrator.execution.parts import Joining, Parts, begins_s, parts_on_instances
from migrator.execution.real import RealGpu, rejoining
from migrator.execution.requests import Queues
from migrator.execution.seams import Accounts
from migrator.inputs.arrival_store import ARRIVALS, DAY_S, ArrivalStore
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.pools import require_turns
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic, Traffic
from migrator.log.orders import Reload, Rollback
from migrator.log.records import (
    Dispatched,
    LiveRequests,
    Record,
    RunFinished,
    RunStarted,
    ServiceStopped,
    TenantsChanged,
)
from migrator.log.runlog import ReadLog, arrival_sums, counted_until
from migrator.log.segments import forget_segments
from migrator.log.weights import first_weights, kept_weights, served_weights
from migrator.terminal.console import counted, note, warn
from planner.policies.policy import Policy
from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.errors import LearningError, WorkloadError
from workloads.learning.datasets import BENCHMARKS
from workloads.learning.models import libraries
from workloads.live.generator import OUTCOME, STATUSES
from workloads.live.messages import Closed, Counts, Labelled, Status
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
    told: Sequence[Record] = (),
    time_limit_s: float | None = None,
) -> Iterator[Parts]:
    """The parts of a live run; its processes write into a new folder of the run's, and are gone when this is left.

    With ``joins``, it goes on with the weights that ``stands``, its log so far, tells of. A service's log has what is
    ``told`` of that, too.

    Raises:
        ConfigError: An SLO is too short for the shares of this CPU, pools are listed where an instance takes one
            process, or no profile serves one; or a model or its data cannot be had.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder cannot be used.
        GpuError: The driver does not say what stands.
    """
    _refuse(setting, real.gpu)
    turns_by = real.gpu.turns_by if setting.config.sharing.may_pool else None
    asked = setting.config.front_door
    if asked is not None:
        _door(setting, run, asked, _configured_input(setting))  # so that mistakes are told before anything is trained
    imports = [name for entry in setting.config.tenants for name in libraries(entry.model)]
    with Site(_new_folder(run), imports) as site:
        end_s = setting.config.windows * setting.config.window_s
        recorded = traffic if isinstance(traffic, RecordedTraffic) else None
        requests = None if recorded is None else recorded.requests(0, round(end_s))
        before = () if stands is None else (served_weights(stands), _first_weights(setting, run), kept_weights(stands))
        models = LiveModels(setting.config, setting.tenants, site, requests, real.gpu.aside, *before)
        longest_s = max(tenant.slo_s for tenant in setting.tenants)
        door = None if asked is None else as_text(_door(setting, site.folder, asked, models.input_of))
        machine = _Machine()
        store = _store(run, setting, stands)
        if stands is not None:
            others = partial(_other_tenants, stands, setting, traffic, models, is_other=bool(told))
            joins = _joined(stands, setting, store, joins, lambda window: (*told, *others(window)))
        first_s, start_s = begins_s(setting, joins)
        if stands is not None:
            models.recall(stands, first_s)
        clock = LiveClock(start_s)
        first_window = 0 if joins is None else joins.window
        if recorded is None:
            accounts: Accounts = _counted(site, setting, traffic, store, end_s, joins)
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
            ending=lambda: _ending(site, setting, workers, machine, keeps_layout=real.keeps),
            joins=joins,
            time_limit_s=time_limit_s,
        )
        if setting.config.is_endless:
            assert isinstance(accounts, CountAccounts)  # a service answers clients
            assert isinstance(traffic, LiveTraffic)
            serving = Serving(
                run=run,
                gpu=real.gpu,
                policy=policy,
                clock=clock,
                traffic=traffic,
                models=models,
                site=site,
                coming=parts.coming,
                check=partial(_refuse, gpu=real.gpu),
                door=partial(_door_again, site, models),
            )
            rolling = RollingBack(run, clock, models, workers)
            attend = Attending(run, {Reload: Reloading(serving, setting), Rollback: rolling}, rolling.later)
            forget = partial(forget_old, run, site.folder, models)
            parts = replace(parts, drain=partial(_drain, site, accounts), forget=forget, attend=attend)
        yield replace(parts, turns_by=turns_by)


CLOSES_S = 1.0
"""A second of live arrivals is closed so long after its end."""


def _store(run: Path, setting: Setting, stands: ReadLog | None) -> ArrivalStore:
    """The run's store of arrivals; what is not as its log so far has it, is taken as unknown."""
    store = ArrivalStore(run / ARRIVALS, [tenant.name for tenant in setting.tenants], warn)
    if stands is not None:
        store.hold_against(arrival_sums(stands))
    return store


def _other_tenants(
    log: ReadLog, setting: Setting, traffic: Traffic, models: LiveModels, window: int, *, is_other: bool
) -> tuple[TenantsChanged, ...]:
    """That the tenants, or what is asked for them, are others than they were last in the log.

    So they are in any case where the config ``is_other``.
    """
    changed = log.of(TenantsChanged)
    told: RunStarted | TenantsChanged = changed[-1] if changed else log.header
    names = {tenant.name for tenant in told.tenants}
    came = {tenant.name: models.served(tenant.name).accuracy for tenant in setting.tenants if tenant.name not in names}
    now = tenants_changed(setting, traffic.origins, window, came)

    def terms(record: RunStarted | TenantsChanged) -> list[object]:
        each = ([one.name, one.slo_ms, one.min_slo_attainment, one.operating_points] for one in record.tenants)
        return [record.pinned, *each]

    return (now,) if is_other or terms(told) != terms(now) else ()


def _joined(
    log: ReadLog,
    setting: Setting,
    store: ArrivalStore,
    joins: Joining | None,
    told: Callable[[int], Sequence[Record]],
) -> Joining | None:
    """Where the run of the log goes on; a service does at once. It knows the requests stored that the log lacks."""
    if setting.config.is_endless:
        joins = rejoining(log, setting, time.time())
        note(_taken_up(joins))
    if joins is None:
        return None
    counts = store.read(math.ceil(counted_until(log)), store.end_s)
    sums = np.maximum(counts, 0).sum(axis=0).tolist()  # unknown seconds are below 0
    unknown = {tenant.name: n for tenant, n in zip(setting.tenants, sums, strict=True) if n}
    return replace(joins, unknown=unknown, told=told(joins.window))


def _counted(
    site: Site, setting: Setting, traffic: Traffic, store: ArrivalStore, end_s: float, joins: Joining | None
) -> CountAccounts:
    """The accounts of what clients ask; they and the traffic hear what the dispatcher counts."""
    assert isinstance(traffic, LiveTraffic)
    window_s = setting.config.window_s
    traffic.keep_in(store, lambda second: site.hear_until(lambda: traffic.closed_s >= second, second + CLOSES_S))
    begin_s = None if joins is None or joins.held is None else joins.from_s
    first_window = 0 if joins is None else joins.window
    accounts = CountAccounts(setting.tenants, window_s, end_s, site.drop_rest, first_window, begin_s)

    def hear(word: Counts | Closed | Labelled) -> None:
        accounts.hear(word)
        if isinstance(word, Labelled):
            return
        if isinstance(word, Counts):
            traffic.take(word.tenant, word.second, word.offered)
            return
        if site.opened_s is not None:
            traffic.has_door(max(1, math.ceil(site.opened_s)))  # whatever came before second 0 counts in it
        traffic.close(word.second)

    site.hear = hear
    return accounts


N_WEIGHTS = 10
"""Of a service's retrainings the newest weights stay, so many of each tenant."""


def forget_old(run: Path, present: Path, models: LiveModels, now_s: float) -> None:
    """Delete what a service does not keep: old segments, what processes of earlier starts wrote, and older weights.

    ``present`` is the folder of the present processes. The weights that a tenant began with and those that are served
    stay. What cannot be deleted stays, too.
    """
    config = models.config
    keep_s = config.log.keep_days * DAY_S
    forget_segments(run, now_s - keep_s)
    kept = set[Path]()
    for tenant in config.tenants:
        trained = sorted(run.glob(f"live*/weights/{tenant.name}/window-*"), key=_written_s)
        files = models.files_in_use(tenant.name)
        kept |= {*trained[-N_WEIGHTS:], *(one for one in trained if any(file.is_relative_to(one) for file in files))}
        for one in trained:
            if one not in kept:
                shutil.rmtree(one, ignore_errors=True)
        kept.update(run.glob(f"live*/weights/{tenant.name}/first"))
    for folder in run.glob("live*"):
        inside = [*folder.iterdir()]
        if folder == present or max(map(_written_s, [folder, *inside])) > time.time() - keep_s:
            continue
        for one in inside if any(one.is_relative_to(folder) for one in kept) else [folder]:
            if one.name != "weights":
                _delete(one)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _written_s(path: Path) -> float:
    return path.lstat().st_mtime


AGAIN_AFTER_S = 5.0
"""After how many seconds whoever asks a service that is stopping may ask again."""


def _drain(site: Site, accounts: CountAccounts, end_s: float, n_windows: int) -> None:
    """Take no further request from now on."""
    site.drain(AGAIN_AFTER_S)
    accounts.end(end_s, n_windows, lambda: site.is_drained)


def _ending(
    site: Site, setting: Setting, workers: LiveWorkers, machine: _Machine, *, keeps_layout: bool
) -> RunFinished | ServiceStopped:
    """End the processes; what is known of the requests then, and of the machine."""
    replayed, shares = site.finish(), machine.shares or (None, None)
    if setting.config.is_endless:
        return ServiceStopped(keeps_layout=keeps_layout)
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
        setup = DoorSetup(
            folder, tuple(tenants), asked.host, asked.port, tuple(asked.origins), feedback_s=asked.feedback_s
        )
        tokens_of(setup)
    except (WorkloadError, ValueError) as error:
        raise ConfigError(f"front_door: {error}") from None
    return setup


def _door_again(site: Site, models: LiveModels, setting: Setting) -> str:
    """The front door's setup for another setting.

    Raises:
        ConfigError: It may not be opened so.
    """
    asked = setting.config.front_door
    assert asked is not None  # live arrivals need one
    return as_text(_door(setting, site.folder, asked, models.input_of))


def _configured_input(setting: Setting) -> Callable[[str], tuple[str, tuple[int, ...]]]:
    """Says by tenant what an input is, as far as the config does: a benchmark's is not known yet, and fits any door."""
    given = {entry.name: entry.input for entry in setting.config.tenants}

    def input_of(tenant: str) -> tuple[str, tuple[int, ...]]:
        one = given[tenant]
        return ("uint8", (1,)) if one is None else (one.dtype, tuple(one.shape))

    return input_of


def _refuse(setting: Setting, gpu: DriverGpu) -> None:
    """Refuse what cannot be served live on the GPU, before anything is started.

    Raises:
        ConfigError: Naming the tenant, or the pool.
    """
    _refuse_unknown(setting)
    _refuse_unserved(setting)
    _mind_short_slos(setting, gpu)
    require_turns(setting.config, gpu.index, gpu.turns_by)


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
    if entry.reads:
        assert entry.learning.folder is not None
        _check_folder(Path(entry.learning.folder))
    options_of(entry)


def _check_folder(folder: Path) -> None:
    """Raise :class:`LearningError` where samples cannot be taken from the folder, or anybody could teach root."""
    try:
        status = folder.stat()
    except OSError as error:
        raise LearningError(f"learning.folder {folder}: {error.strerror}") from None
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise LearningError(f"learning.folder {folder}: a folder that can be read and written is needed")
    if os.geteuid() == 0 and (status.st_uid != 0 or status.st_mode & 0o022):
        raise LearningError(f"learning.folder {folder}: others may write it, and this is root; chown root, chmod go-w")


def _refuse_unserved(setting: Setting) -> None:
    """Refuse pools that no profile serves, as for want of memory, before anything is trained.

    Raises:
        ConfigError: Naming the pool, the table, the profile, and what is too little.
    """
    layout, pools = {one.profile.name for one in setting.config.layout}, setting.config.sharing.listed or ()
    for pool in [[tenant.name for tenant in setting.tenants]] if layout else pools:
        found = setting.joint_points.of(pool)
        reason = found.infeasible if len(pool) > 1 else None
        if reason is not None:
            raise ConfigError(f"sharing.pools: the pool of {', '.join(pool)} ({setting.profiles.name}): {reason}")
        if layout and len(pool) > 1 and layout.isdisjoint(found.by_member):
            raise ConfigError(f"planner.layout: no profile of it can serve the pool of {', '.join(pool)}")


def _new_folder(run: Path) -> Path:
    """Where the processes write: ``live``, and after each resumption another one."""
    names = chain(["live"], (f"live-{number}" for number in count(2)))
    return next(run / name for name in names if not (run / name).exists())


def _taken_up(joins: Joining) -> str:
    """What a service that is started again does, in a line."""
    void = f"; {counted(len(joins.void), 'window')} void, and in no window's figures" if joins.void else ""
    if joins.held is None:
        return f"started again; window {joins.window} is the first{void}"
    return f"started again, with the layout of before; window {joins.window} is the first that is planned{void}"


def _first_weights(setting: Setting, run: Path) -> dict[str, Path]:
    """By tenant, of those that trained some."""
    found = {tenant.name: first_weights(run, tenant.name) for tenant in setting.tenants}
    return {name: file for name, file in found.items() if file is not None}


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
