"""The worker processes of a live run, as the loop's ``Workers``: forked when they are started, drained when they stop.

A worker loads outside its instance and enters it when it is warm. All workers of an instance are in one lane of the
dispatcher. In an instance of a pool each member has a worker of its own, whose processes take turns with the others'.
One that dies, hangs or falls silent has failed, whatever it was doing; the dispatcher gives its requests to others. A
retraining has finished when its weights answer, not when it has written them: workers take them over one after the
other, between two batches. One that failed and has left a better checkpoint is told when that is served.

A trainer that is lent an instance loads beside those who serve there, and computes nothing until the dispatcher says
that no batch is there any more. The instance serves again once the trainer's process is gone, however it ended.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from executor.driver import DriverGpu
from executor.errors import ExecutorError, GpuError
from executor.files import make_new
from executor.gpu import GpuInstance
from executor.messages import as_text
from executor.zygote import Exited, Forked, Reached, Warm
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Failed, Finished, Happening, Ready
from migrator.execution.live.learning import LiveModels, Taught
from migrator.execution.live.site import LiveClock, Received, Site
from migrator.log.weights import Served
from planner.problem import Owner, Task
from workloads.learning.course import Checkpoint, CourseFile, Started
from workloads.learning.course import Failed as Broken
from workloads.learning.course import Finished as Learned
from workloads.learning.retraining import GRACE_S
from workloads.live import worker
from workloads.live.messages import (
    Changed,
    Drain,
    Heartbeat,
    Hung,
    Lend,
    Lent,
    Load,
    Loaded,
    NotDone,
    Return,
    Serve,
    Share,
    State,
    Worth,
)
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant

LEAVING_S = 3.0
"""A worker that was told to leave is killed after so long."""

MOST_BUSY_S = 120.0
"""A worker that is at its start, or at loading weights, for longer hangs."""

HANGS_S = GRACE_S + 1.0
"""A trainer that has not ended by itself is killed so long after its time is over."""

EXIT_S = 0.1
"""What a process takes to end, once its last batch is done."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a tenant is served in an instance: by which point, and whether in turns with a pool's others."""

    point: OperatingPoint
    is_shared: bool


@dataclass
class _Server:
    """A serving process.

    Attributes:
        way: As it was told to serve.
        is_leaving: It is one more than the way of its group takes.
    """

    name: str
    way: _Way
    state: State | None = None
    library_s: float = 0.0
    model_s: float = 0.0
    version: str = ""
    is_leaving: bool = False


@dataclass
class _Group:
    """The processes in one instance, of one worker in the loop's eyes.

    Attributes:
        way: How its tenant is served.
        trainer: The retraining, where it is one; else ``servers`` answer requests.
        is_ready: That was told.
        is_leaving: They were told to, or have failed: what becomes of them is no news.
    """

    instance_id: str
    gi_uuid: str
    profile: str
    tenant: str
    way: _Way | None = None
    servers: dict[str, _Server] = field(default_factory=dict)
    trainer: _Trainer | None = None
    is_ready: bool = False
    is_leaving: bool = False

    @property
    def member(self) -> str | None:
        """The tenant that is served."""
        return self.tenant if self.trainer is None else None


@dataclass
class _Trainer:
    """A retraining process, and what it has told. Times are seconds of the run.

    Attributes:
        option: How it retrains, by name.
        course: What it tells.
        until_s: When it is killed.
        go: The file that lets it go, where it is lent its instance.
        has_asked: Whether that was asked for.
        begun_s: When data and model were there, and it could begin.
        old: What it told as it began.
        checkpoints: Each with when it was told.
        ending: Its last word; ``None`` while it is at work.
        expected: What it was to answer right, before correction; ``None`` where nothing was expected.
    """

    name: str
    window: int
    option: str
    course: CourseFile
    until_s: float
    go: Path | None = None
    has_asked: bool = False
    begun_s: float = 0.0
    old: Started | None = None
    checkpoints: list[tuple[Checkpoint, float]] = field(default_factory=list)
    ending: Learned | Broken | None = None
    expected: float | None = None


@dataclass
class _Swap:
    """New weights on their way into the tenant's workers, one after the other.

    Attributes:
        tenant: Whose.
        group: That of the retraining; ``None`` where older weights serve again.
        served: The new weights.
        before: Those that stay if no worker can load the new ones.
        at_s: When the retraining had them, in seconds of the run.
        loading: The worker whose turn it is.
        swap_s: What each worker's swap took, in seconds.
        failed: Hears that no worker can load older ones.
    """

    tenant: str
    group: _Group | None
    served: Served
    before: Served
    at_s: float
    loading: str | None = None
    swap_s: list[float] = field(default_factory=list)
    failed: Callable[[], object] = lambda: None


class LiveWorkers:
    """See :class:`migrator.execution.seams.Workers`; for the thread that opened the site."""

    def __init__(
        self,
        site: Site,
        gpu: DriverGpu,
        clock: LiveClock,
        models: LiveModels,
        tenants: Mapping[str, Tenant],
        window_s: float,
        run: Path,
    ) -> None:
        """``run`` is the run's folder."""
        self._site, self._gpu, self._clock, self._models = site, gpu, clock, models
        self._tenants, self._window_s, self._run = tenants, window_s, run
        self._groups: dict[tuple[str, str], _Group] = {}  # by instance and tenant
        self._worth: dict[str, float] = {}  # as the dispatcher was told
        self._of: dict[str, _Group] = {}  # by the name of a process
        self._swaps: list[_Swap] = []
        self._news: list[tuple[float, int, Happening]] = []
        self._n_started = self._n_news = 0
        self.n_swaps = 0

    # --- the loop's side

    def start(
        self,
        instance_id: str,
        instance: GpuInstance,
        owner: Owner,
        n_at_once: int,  # noqa: ARG002
        training: Training = FULLY,
        joint: OperatingPoint | None = None,
    ) -> None:
        """Fork the owner's processes; they enter the instance when they are warm."""
        profile = instance.placement.profile.name
        group = self._groups[instance_id, owner.tenant] = _Group(instance_id, instance.uuid, profile, owner.tenant)
        if owner.task is Task.RETRAINING:
            self._start_trainer(group, training)
        else:
            self._serve(group, joint)

    def serve_by(self, instance_id: str, tenant: str, joint: OperatingPoint | None) -> None:
        """The processes are told; those that are missing are started, and those that are too many leave."""
        group = self._groups[instance_id, tenant]
        if not group.is_leaving:
            self._serve(group, joint)

    def change_tenants(self, tenants: Mapping[str, Tenant]) -> None:
        """Workers of these may be started from now on, too."""
        self._tenants = {**self._tenants, **tenants}

    def drain(self, instance_id: str, tenant: str) -> float:
        """They take no further batch; when they should be gone."""
        group = self._groups[instance_id, tenant]
        batch_s = self._dismiss(group)
        return self._clock.now_s + batch_s

    def stop(self, instance_id: str, tenant: str) -> Failed | None:
        """End the processes; how they failed, if they had by now and unheard."""
        group = self._groups.pop((instance_id, tenant))
        self._take(self._site.received(-math.inf))
        for swap in self._swaps:
            if swap.group is group and (failure := _failure(swap, "is being loaded")) is not None:
                self._fail(group, swap.at_s, failure)
        self._dismiss(group)
        unheard = [happening for _, _, happening in sorted(self._news) if _is_of(happening, group)]
        self._news = [item for item in self._news if not _is_of(item[2], group)]
        return next((happening for happening in unheard if isinstance(happening, Failed)), None)

    def hold(self, instance_id: str, for_s: float) -> None:
        """Nothing: a trainer on a loan is ready when the last batch is answered."""

    def happenings(self, until_s: float) -> Sequence[Happening]:
        """What comes first, until ``until_s`` at the latest, or until the clock is woken."""
        for tenant in self._worth:
            self._tell_worth(tenant)
        self._take(self._site.received(-math.inf))
        self._end_overdue()
        while not self._news and self._clock.now_s < until_s:
            due_s = min([until_s, *(trainer.until_s for _, trainer in self._training)])
            received = self._site.received(due_s)
            self._take(received)
            if not received and (due_s == until_s or self._clock.now_s < due_s):
                break  # woken, or it is time
            self._end_overdue()
        if not self._news:
            return ()
        self._news.sort()
        return (self._news.pop(0)[2],)

    # --- starting and leaving

    def _serve(self, group: _Group, joint: OperatingPoint | None) -> None:
        """Have as many processes serve as it takes, each as it is to."""
        way = group.way = _Way(joint or self._tenants[group.tenant].operating_points[group.profile], joint is not None)
        if way.is_shared:
            self._tell_worth(group.tenant)
        staying = [server for server in group.servers.values() if not server.is_leaving]
        for server in staying[way.point.processes :]:
            self._release(server)
        for server in staying[: way.point.processes]:
            self._tell_way(group, server)
        for process in range(len(staying), way.point.processes):
            self._start_server(group, way, process)
            if group.is_leaving:
                return  # nothing can get into the instance, and that is told

    def _release(self, server: _Server) -> None:
        """Have one process leave, of which the group needs no more."""
        server.is_leaving = True
        if server.state not in (None, State.GONE):
            self._site.order(Drain(server.name))
        self._site.zygote.stop(server.name, LEAVING_S)

    def _tell_way(self, group: _Group, server: _Server) -> None:
        """Tell the process how it serves, once it is known to the dispatcher."""
        way = group.way
        if way is None or server.way == way or server.state not in (State.WARM, State.SERVING):
            return
        server.way, curve = way, way.point.latency
        self._site.order(Share(server.name, way.is_shared, way.point.batch, curve.batches, curve.latency_s))

    def _start_server(self, group: _Group, way: _Way, process: int) -> None:
        served, point = self._models.served(group.tenant), way.point
        of_member = f"{group.tenant}/" if way.is_shared else ""
        name = self._name(f"{group.instance_id}/{of_member}{process}")
        setup = worker.WorkerSetup(
            folder=self._site.folder,
            worker=name,
            tenant=group.tenant,
            lane=group.gi_uuid,
            is_shared=way.is_shared,
            model=self._tenants[group.tenant].model,
            batch_limit=point.batch,
            batches=point.latency.batches,
            latency_s=point.latency.latency_s,
            options=self._models.model_options(group.tenant),
            weights=served.file,
            version=served.version,
            sample_bytes=self._models.input_bytes(group.tenant),
            hold=True,
        )
        group.servers[name] = _Server(name, way)
        self._fork("workloads.live.worker:forked", {"setup": as_text(setup)}, name, group)

    @property
    def _training(self) -> list[tuple[_Group, _Trainer]]:
        """The trainers whose processes are not known to be gone."""
        return [(group, group.trainer) for group in self._of.values() if group.trainer is not None]

    def _end_overdue(self) -> None:
        """Kill the trainers whose time is over; one that has told its end before is no failure."""
        for group, trainer in self._training:
            if trainer.until_s <= self._clock.now_s:
                trainer.until_s = math.inf
                self._site.zygote.stop(trainer.name, 0.0)
                if trainer.ending is None:
                    self._hangs(group, "its time is over")

    def _start_trainer(self, group: _Group, training: Training) -> None:
        window = max(0, math.floor(self._clock.now_s / self._window_s))
        name = self._name(f"{group.instance_id}/retraining")
        out = self._models.out(group.tenant, window, self._n_started)
        out.mkdir()  # its tenant's folder is there since the first weights, unless the run's was deleted
        # It has to end, and its weights to be taken over, inside its window.
        time_s = max(0.1, (window + 1) * self._window_s - self._clock.now_s - 2 * EXIT_S)
        job = self._models.job(group.tenant, window, out, time_s, training.option)
        course, until_s = CourseFile(out / "course.jsonl"), self._clock.now_s + time_s + HANGS_S
        group.trainer = _Trainer(
            name, window, training.option, course, until_s, out / "go" if training.is_lent else None
        )
        arguments = {"job": as_text(job), "course": str(course.path), "go": str(group.trainer.go or "")}
        self._fork("workloads.learning.retraining:forked", arguments, name, group)

    def _name(self, what: str) -> str:
        """Of a process; another one for each of a run."""
        self._n_started += 1
        return f"{what}.{self._n_started}"

    def _fork(self, function: str, arguments: Mapping[str, str], name: str, group: _Group) -> None:
        self._of[name] = group
        try:
            environment = dict(self._gpu.environment(group.gi_uuid))
        except GpuError as error:
            self._fail(group, self._clock.now_s, f"cannot enter its instance: {error}")
            return
        self._site.zygote.start(function, arguments, name=name, environment=environment, log=self._site.log)

    def _dismiss(self, group: _Group) -> float:
        """Tell the processes to leave, and have those killed that do not; seconds until they should be gone."""
        group.is_leaving = True
        for name, server in group.servers.items():
            if server.state not in (None, State.GONE):
                self._site.order(Drain(name))
            self._site.zygote.stop(name, LEAVING_S)
        if group.trainer is not None:
            self._site.zygote.stop(group.trainer.name, LEAVING_S)
        return (0.0 if group.way is None else group.way.point.batch_latency_s) + EXIT_S

    def _fail(self, group: _Group, at_s: float, reason: str) -> None:
        """The group's processes end, and the loop is told once."""
        if group.is_leaving:
            return
        group.is_leaving = True
        for name in [*group.servers, *([group.trainer.name] if group.trainer else [])]:
            self._site.zygote.stop(name, 0.0)
        self._tell(Failed(min(at_s, self._clock.now_s), group.instance_id, reason, group.member))

    def _tell(self, happening: Happening) -> None:
        self._n_news += 1
        self._news.append((happening.at_s, self._n_news, happening))

    # --- receiving

    def _take(self, received: Sequence[Received]) -> None:
        for one in received:
            # Nothing waits for the warm process; the rest is of a worker that is gone by now.
            if isinstance(one, Warm | NotDone) or (group := self._of.get(one.worker)) is None:
                continue
            match one:
                case Changed():
                    self._changed(group, one)
                case Hung():
                    self._hangs(group, f"a batch has taken {one.batch_s:.1f} s")
                case Heartbeat():  # of batches the dispatcher knows better
                    if one.busy_s > MOST_BUSY_S:
                        self._hangs(group, f"{one.state.value}, and busy for {one.busy_s:.0f} s")
                case Loaded():
                    self._loaded(group, one)
                case Reached() | Lent():
                    self._trains_on(group, one)
                case Exited():
                    self._exited(group, one)
                case Forked():
                    if not self._gpu.is_entered_warm:
                        self._enter(group, one.worker, one.at_s - self._clock.origin_s)
                case _:
                    assert_never(one)
        self._swap_on()

    def _hangs(self, group: _Group, reason: str) -> None:
        self._fail(group, self._clock.now_s, f"hangs: {reason}")

    def _changed(self, group: _Group, changed: Changed) -> None:
        if changed.worker not in group.servers:
            return
        server, at_s = group.servers[changed.worker], changed.at_s - self._clock.origin_s
        server.state = changed.state
        match changed.state:
            case State.WARM:
                server.library_s, server.model_s = changed.library_s, changed.model_s + changed.warm_up_s
                server.version = changed.version
                if self._gpu.is_entered_warm:
                    self._enter(group, changed.worker, at_s)
                served = self._models.served(group.tenant)
                if changed.version != served.version and not self.is_swapping(group.tenant):
                    self._site.order(Load(changed.worker, str(served.file), served.version))
                self._tell_way(group, server)
                self._site.order(Serve(changed.worker))
            case State.SERVING:
                servers = [one for one in group.servers.values() if not one.is_leaving]
                is_ready = all(one.state is State.SERVING for one in servers) and not group.is_leaving
                if is_ready and not group.is_ready:
                    group.is_ready = True
                    library_s, model_s = max(one.library_s for one in servers), max(one.model_s for one in servers)
                    self._tell(Ready(at_s, group.instance_id, library_s, model_s, group.member))
            case State.GONE:
                self._lost(group, changed.worker, at_s, changed.reason or "it has left")
            case State.STARTING | State.DRAINING:
                pass

    def _enter(self, group: _Group, name: str, at_s: float) -> None:
        """Have the process compute in its instance from now on."""
        pid = self._site.zygote.workers.get(name)
        if pid is None:
            return  # it is gone; that is told, too
        try:
            self._gpu.enter(group.gi_uuid, pid)
        except ExecutorError as error:
            self._fail(group, at_s, f"cannot enter its instance: {error}")

    def _trains_on(self, group: _Group, told: Reached | Lent) -> None:
        """A trainer has come further; on a loan it is let go once nobody computes in its instance any more."""
        trainer, at_s = group.trainer, told.at_s - self._clock.origin_s
        if trainer is None:
            return
        if isinstance(told, Reached) and told.phase != "warm":
            self._read(group, trainer, at_s)
            return
        if isinstance(told, Reached) and self._gpu.is_entered_warm:
            self._enter(group, told.worker, at_s)
        if group.is_leaving:
            return  # what it was lent is given back as soon as it is gone
        if isinstance(told, Reached) and trainer.go is not None:
            trainer.has_asked = True
            self._site.order(Lend(group.gi_uuid, trainer.name))
            return
        if trainer.go is not None:
            make_new(trainer.go)
        trainer.begun_s = at_s
        self._tell(Ready(at_s, group.instance_id))

    def _exited(self, group: _Group, exited: Exited) -> None:
        del self._of[exited.worker]
        at_s = exited.at_s - self._clock.origin_s
        if group.trainer is not None:
            if group.trainer.has_asked:
                self._site.order(Return(exited.worker))
            self._read(group, group.trainer, at_s)
            if group.trainer.ending is None:
                self._fail(group, at_s, exited.reason)
        else:
            self._lost(group, exited.worker, at_s, exited.reason)

    def _lost(self, group: _Group, name: str, at_s: float, reason: str) -> None:
        """A serving process is gone: a failure of its group, unless it was to leave by itself."""
        self._forget(name)
        if group.servers[name].is_leaving:
            group.servers[name].state = State.GONE
        else:
            self._fail(group, at_s, reason)

    # --- retraining

    def _read(self, group: _Group, trainer: _Trainer, at_s: float) -> None:
        """Read what the retraining has told since."""
        if group.is_leaving:
            return
        for told in trainer.course.news():
            match told:
                case Started():
                    trainer.old = told
                case Checkpoint():
                    trainer.checkpoints.append((told, at_s))
                case Learned():
                    self._let_end(trainer, told)
                    lesson = Taught(trainer.window, trainer.option, told.accuracy, at_s - trainer.begun_s)
                    trainer.expected = self._models.ended(group.tenant, lesson, group.profile)
                    version = f"window-{trainer.window}"
                    pinned = self._models.pinned(group.tenant)
                    if pinned is None and self._models.serves(group.tenant, told.accuracy, trainer.old):
                        self._take_over(group, Path(told.file), version, told.accuracy, at_s)
                    else:
                        facts = self._facts(trainer, version, Path(told.file), at_s)
                        facts |= {"rejected": round(told.accuracy, 6), "pinned": pinned}
                        self._tell(Finished(self._clock.now_s, group.instance_id, facts))
                case Broken():
                    self._let_end(trainer, told)
                    if not self._keeps_last(group, trainer, at_s):
                        self._fail(group, at_s, _reason(told))
                case _:
                    pass

    def _let_end(self, trainer: _Trainer, told: Learned | Broken) -> None:
        """See to it that the process is gone soon: what it was lent serves again then."""
        trainer.ending = told
        self._site.zygote.stop(trainer.name, LEAVING_S)

    def _keeps_last(self, group: _Group, trainer: _Trainer, at_s: float) -> bool:
        """Begin to serve the last checkpoint of a failed retraining, if it is better than what is served."""
        old = 0.0 if trainer.old is None else trainer.old.accuracy
        is_better = bool(trainer.checkpoints) and trainer.checkpoints[-1][0].accuracy > old
        if not is_better or self._models.pinned(group.tenant) is not None:
            return False
        last, _ = trainer.checkpoints[-1]
        version = f"window-{trainer.window}@{last.share:.2f}.{self._n_started}"  # there may be another attempt
        self._take_over(group, Path(last.file), version, last.accuracy, at_s)
        return True

    # --- new weights

    def _take_over(self, group: _Group, file: Path, version: str, accuracy: float, at_s: float) -> None:
        """Bring new weights into the tenant's workers; what is started from now on has them from the start."""
        # A swap that is not through yet would only bring its weights back.
        for older in [swap for swap in self._swaps if swap.tenant == group.tenant]:
            self._swaps.remove(older)
            self._end(older, "is served no more" if older.swap_s else "was overtaken by newer weights")
        before, served = self._models.served(group.tenant), Served(file, version, accuracy)
        self._models.serve(group.tenant, served)
        self._swaps.append(_Swap(group.tenant, group, served, before, at_s))

    def roll_back(self, tenant: str, served: Served, before: Served, failed: Callable[[], object]) -> None:
        """Bring older weights into the tenant's workers; ``failed`` is called if none can load them."""
        self._swaps.append(_Swap(tenant, None, served, before, self._clock.now_s, failed=failed))
        self._swap_on()

    def _tell_worth(self, tenant: str) -> None:
        """Tell the dispatcher what the tenant's answers are worth by now, whose lane others want."""
        worth = self._tenants[tenant].weight * self._models.accuracy(tenant)
        if self._worth.get(tenant) != worth:
            self._worth[tenant] = worth
            self._site.order(Worth(tenant, worth))

    def _serving(self, tenant: str, version: str) -> list[str]:
        """The tenant's workers that are warm or serve, and have other weights."""
        return [
            name
            for group in self._groups.values()
            if group.tenant == tenant and not group.is_leaving
            for name, server in group.servers.items()
            if not server.is_leaving and server.state in (State.WARM, State.SERVING) and server.version != version
        ]

    def is_swapping(self, tenant: str) -> bool:
        """Whether other weights are on their way into the tenant's workers."""
        return any(swap.tenant == tenant for swap in self._swaps)

    def _swap_on(self) -> None:
        """Let the next worker of each swap load; a swap that is through is told."""
        for swap in list(self._swaps):
            if swap.loading is not None:
                continue
            waiting = self._serving(swap.tenant, swap.served.version)
            if waiting:
                swap.loading = waiting[0]
                self._site.order(Load(swap.loading, str(swap.served.file), swap.served.version))
            else:
                self._swaps.remove(swap)
                self._end(swap, "is served" if swap.swap_s else "is what workers begin with from now on")

    def _loaded(self, group: _Group, loaded: Loaded) -> None:
        group.servers[loaded.worker].version = loaded.version
        self.n_swaps += 0 if loaded.error else 1
        swap = next((swap for swap in self._swaps if swap.loading == loaded.worker), None)
        if swap is None:
            if loaded.error:
                self._fail(group, self._clock.now_s, f"cannot load its weights: {loaded.error}")
            return
        swap.loading = None
        if not loaded.error:
            swap.swap_s.append(loaded.swap_s)
        elif swap.swap_s:
            self._fail(group, self._clock.now_s, f"cannot load its weights: {loaded.error}")
        else:  # no worker has them: the old ones stay
            self._swaps.remove(swap)
            if swap.group is None:
                swap.failed()
                return
            self._models.serve(group.tenant, swap.before)
            failure = _failure(swap, f"cannot be loaded: {loaded.error}")
            self._fail(swap.group, self._clock.now_s, failure or f"its weights cannot be loaded: {loaded.error}")

    def _forget(self, name: str) -> None:
        """A worker is gone: no swap waits for it."""
        for swap in self._swaps:
            if swap.loading == name:
                swap.loading = None

    def _end(self, swap: _Swap, came: str) -> None:
        """Tell how the retraining went whose weights were swapped; ``came`` is what became of a checkpoint."""
        if swap.group is None or swap.group.is_leaving:
            return
        trainer, file = swap.group.trainer, swap.served.file
        assert trainer is not None
        assert file is not None  # what was learned lies in one
        if (failure := _failure(swap, came)) is not None:
            self._fail(swap.group, swap.at_s, failure)
            return
        facts = self._facts(trainer, swap.served.version, file, swap.at_s)
        facts["swap_s"] = tuple(round(seconds, 6) for seconds in swap.swap_s)
        self._tell(Finished(self._clock.now_s, swap.group.instance_id, facts))

    def _facts(self, trainer: _Trainer, version: str, file: Path, at_s: float) -> dict[str, object]:
        """What the log says of a retraining that had its last weights at this second."""
        return {
            "version": version,
            "weights": os.path.relpath(file, self._run),
            "accuracy_before": None if trainer.old is None else round(trainer.old.accuracy, 6),
            "expected": trainer.expected,
            "trained_s": round(at_s - trainer.begun_s, 6),
            "checkpoints": tuple(
                (round(told.share, 6), round(told.accuracy, 6), round(at_s, 6)) for told, at_s in trainer.checkpoints
            ),
        }


def _is_of(happening: Happening, group: _Group) -> bool:
    tenant = happening.tenant if isinstance(happening, Ready | Failed) else None
    return happening.instance_id == group.instance_id and tenant in (None, group.tenant)


def _reason(broken: Broken) -> str:
    return f"{broken.cause}: {broken.reason}"


def _failure(swap: _Swap, came: str) -> str | None:
    """How the retraining failed, and what became of its checkpoint, in words; ``None`` where it has learned."""
    trainer = None if swap.group is None else swap.group.trainer
    assert trainer is not None
    if not isinstance(trainer.ending, Broken):
        return None
    last, _ = trainer.checkpoints[-1]
    checkpoint = f"its checkpoint at {last.share:.0%}, which answers {last.accuracy:.0%} right,"
    return f"{_reason(trainer.ending)}; {checkpoint} {came}"
