"""The worker processes of a live run, as the loop's ``Workers``: forked when they are started, drained when they stop.

A worker loads outside its instance and enters it when it is warm. In an instance of a pool each member has a worker of
its own, whose processes take turns with the others' in one lane of the dispatcher. One that dies, hangs or falls silent
has failed, whatever it was doing; the dispatcher gives its requests to others. A retraining has finished when its
weights answer, not when it has written them: workers take them over one after the other, between two batches. One that
failed and has left a better checkpoint is told when that is served.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from executor.driver import DriverGpu
from executor.errors import ExecutorError, GpuError
from executor.gpu import GpuInstance
from executor.messages import as_text
from executor.zygote import Exited, Forked, Reached, Warm
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Failed, Finished, Happening, Ready
from migrator.execution.live.learning import LiveModels, Served, Taught
from migrator.execution.live.site import LiveClock, Received, Site
from planner.problem import Owner, Task
from workloads.learning.course import Checkpoint, CourseFile, Started
from workloads.learning.course import Failed as Broken
from workloads.learning.course import Finished as Learned
from workloads.live import worker
from workloads.live.messages import Changed, Drain, Heartbeat, Hung, Load, Loaded, NotDone, Serve, State, Worth
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant

LEAVING_S = 3.0
"""A worker that was told to leave is killed after so long."""

MOST_BUSY_S = 120.0
"""A worker that is at its start, or at loading weights, for longer hangs."""

EXIT_S = 0.1
"""What a process takes to end, once its last batch is done."""


@dataclass
class _Server:
    """A serving process."""

    name: str
    state: State | None = None
    library_s: float = 0.0
    model_s: float = 0.0
    version: str = ""


@dataclass
class _Group:
    """The processes in one instance, of one worker in the loop's eyes.

    Attributes:
        lane: That of a pool's instance.
        batch_s: What a full batch of its tenant takes there.
        trainer: The retraining, where it is one; else ``servers`` answer requests.
        is_leaving: They were told to, or have failed: what becomes of them is no news.
    """

    instance_id: str
    gi_uuid: str
    profile: str
    tenant: str
    lane: str = ""
    batch_s: float = 0.0
    servers: dict[str, _Server] = field(default_factory=dict)
    trainer: _Trainer | None = None
    is_leaving: bool = False

    @property
    def member(self) -> str | None:
        """The tenant, where others have workers in the instance, too."""
        return self.tenant if self.lane else None


@dataclass
class _Trainer:
    """A retraining process, and what it has told. Times are seconds of the run.

    Attributes:
        option: How it retrains, by name.
        course: What it tells.
        begun_s: When data and model were there.
        old: What it told as it began.
        checkpoints: Each with when it was told.
        ending: Its last word; ``None`` while it is at work.
    """

    name: str
    window: int
    option: str
    course: CourseFile
    begun_s: float = 0.0
    old: Started | None = None
    checkpoints: list[tuple[Checkpoint, float]] = field(default_factory=list)
    ending: Learned | Broken | None = None


@dataclass
class _Swap:
    """New weights on their way into the tenant's workers, one after the other.

    Attributes:
        group: That of the retraining.
        served: The new weights.
        before: Those that stay if no worker can load the new ones.
        at_s: When the retraining had them, in seconds of the run.
        loading: The worker whose turn it is.
        swap_s: What each worker's swap took, in seconds.
    """

    group: _Group
    served: Served
    before: Served
    at_s: float
    loading: str | None = None
    swap_s: list[float] = field(default_factory=list)


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
        group = _Group(instance_id, instance.uuid, profile, owner.tenant, instance_id if joint else "")
        self._groups[instance_id, owner.tenant] = group
        if owner.task is Task.RETRAINING:
            self._start_trainer(group, training.option)
            return
        point = joint or self._tenants[owner.tenant].operating_points[profile]
        group.batch_s = point.batch_latency_s
        if group.lane:
            self._tell_worth(owner.tenant)
        for process in range(point.processes):
            self._start_server(group, point, process)
            if group.is_leaving:
                return  # nothing can get into the instance, and that is told

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

    def happenings(self, until_s: float) -> Sequence[Happening]:
        """What comes first, until ``until_s`` at the latest, or until the clock is woken."""
        for tenant in self._worth:
            self._tell_worth(tenant)
        self._take(self._site.received(-math.inf))
        while not self._news and self._clock.now_s < until_s:
            received = self._site.received(until_s)
            self._take(received)
            if not received:
                break  # woken, or it is time
        if not self._news:
            return ()
        self._news.sort()
        return (self._news.pop(0)[2],)

    # --- starting and leaving

    def _start_server(self, group: _Group, point: OperatingPoint, process: int) -> None:
        served = self._models.served(group.tenant)
        of_member = f"{group.tenant}/" if group.lane else ""
        name = self._name(f"{group.instance_id}/{of_member}{process}")
        setup = worker.WorkerSetup(
            folder=self._site.folder,
            worker=name,
            tenant=group.tenant,
            lane=group.lane,
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
        group.servers[name] = _Server(name)
        self._fork("workloads.live.worker:forked", {"setup": as_text(setup)}, name, group)

    def _start_trainer(self, group: _Group, option: str) -> None:
        window = max(0, math.floor(self._clock.now_s / self._window_s))
        name = self._name(f"{group.instance_id}/retraining")
        out = self._models.out(group.tenant, window, self._n_started)
        out.mkdir()  # its tenant's folder is there since the first weights, unless the run's was deleted
        # It has to end, and its weights to be taken over, inside its window.
        time_s = max(0.1, (window + 1) * self._window_s - self._clock.now_s - 2 * EXIT_S)
        job = self._models.job(group.tenant, window, out, time_s, option)
        group.trainer = _Trainer(name, window, option, CourseFile(out / "course.jsonl"))
        arguments = {"job": as_text(job), "course": str(group.trainer.course.path)}
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
        return group.batch_s + EXIT_S

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
                case Reached():
                    self._reached(group, one)
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
                if changed.version != served.version and not self._is_swapping(group.tenant):
                    self._site.order(Load(changed.worker, str(served.file), served.version))
                self._site.order(Serve(changed.worker))
            case State.SERVING:
                if all(one.state is State.SERVING for one in group.servers.values()) and not group.is_leaving:
                    servers = group.servers.values()
                    library_s, model_s = max(one.library_s for one in servers), max(one.model_s for one in servers)
                    self._tell(Ready(at_s, group.instance_id, library_s, model_s, group.member))
            case State.GONE:
                self._forget(changed.worker)
                self._fail(group, at_s, changed.reason or "it has left")
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

    def _reached(self, group: _Group, reached: Reached) -> None:
        if group.trainer is None:
            return
        at_s = reached.at_s - self._clock.origin_s
        if reached.phase == "warm":
            group.trainer.begun_s = at_s
            if self._gpu.is_entered_warm:
                self._enter(group, reached.worker, at_s)
            if not group.is_leaving:
                self._tell(Ready(at_s, group.instance_id))
        else:
            self._read(group, group.trainer, at_s)

    def _exited(self, group: _Group, exited: Exited) -> None:
        del self._of[exited.worker]
        at_s = exited.at_s - self._clock.origin_s
        if group.trainer is not None:
            self._read(group, group.trainer, at_s)
            if group.trainer.ending is None:
                self._fail(group, at_s, exited.reason)
        else:
            self._forget(exited.worker)
            self._fail(group, at_s, exited.reason)

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
                    trainer.ending = told
                    lesson = Taught(trainer.window, trainer.option, told.accuracy, at_s - trainer.begun_s)
                    self._models.ended(group.tenant, lesson, group.profile)
                    self._take_over(group, Path(told.file), f"window-{trainer.window}", told.accuracy, at_s)
                case Broken():
                    trainer.ending = told
                    if not self._keeps_last(group, trainer, at_s):
                        self._fail(group, at_s, _reason(told))
                case _:
                    pass

    def _keeps_last(self, group: _Group, trainer: _Trainer, at_s: float) -> bool:
        """Begin to serve the last checkpoint of a failed retraining, if it is better than what is served."""
        old = 0.0 if trainer.old is None else trainer.old.accuracy
        if not (trainer.checkpoints and trainer.checkpoints[-1][0].accuracy > old):
            return False
        last, _ = trainer.checkpoints[-1]
        version = f"window-{trainer.window}@{last.share:.2f}.{self._n_started}"  # there may be another attempt
        self._take_over(group, Path(last.file), version, last.accuracy, at_s)
        return True

    # --- new weights

    def _take_over(self, group: _Group, file: Path, version: str, accuracy: float, at_s: float) -> None:
        """Bring new weights into the tenant's workers; what is started from now on has them from the start."""
        # A swap that is not through yet would only bring its weights back.
        for older in [swap for swap in self._swaps if swap.group.tenant == group.tenant]:
            self._swaps.remove(older)
            self._end(older, "is served no more" if older.swap_s else "was overtaken by newer weights")
        before, served = self._models.served(group.tenant), Served(file, version, accuracy)
        self._models.serve(group.tenant, served)
        self._swaps.append(_Swap(group, served, before, at_s))

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
            if server.state in (State.WARM, State.SERVING) and server.version != version
        ]

    def _is_swapping(self, tenant: str) -> bool:
        return any(swap.group.tenant == tenant for swap in self._swaps)

    def _swap_on(self) -> None:
        """Let the next worker of each swap load; a swap that is through is told."""
        for swap in list(self._swaps):
            if swap.loading is not None:
                continue
            waiting = self._serving(swap.group.tenant, swap.served.version)
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
        trainer, file = swap.group.trainer, swap.served.file
        assert trainer is not None
        assert file is not None  # what was learned lies in one
        if swap.group.is_leaving:
            return
        if (failure := _failure(swap, came)) is not None:
            self._fail(swap.group, swap.at_s, failure)
            return
        facts: dict[str, object] = {
            "version": swap.served.version,
            "weights": os.path.relpath(file, self._run),
            "accuracy_before": None if trainer.old is None else round(trainer.old.accuracy, 6),
            "trained_s": round(swap.at_s - trainer.begun_s, 6),
            "swap_s": tuple(round(seconds, 6) for seconds in swap.swap_s),
            "checkpoints": tuple(
                (round(told.share, 6), round(told.accuracy, 6), round(at_s, 6)) for told, at_s in trainer.checkpoints
            ),
        }
        self._tell(Finished(self._clock.now_s, swap.group.instance_id, facts))


def _is_of(happening: Happening, group: _Group) -> bool:
    tenant = happening.tenant if isinstance(happening, Ready | Failed) else None
    return happening.instance_id == group.instance_id and tenant in (None, group.tenant)


def _reason(broken: Broken) -> str:
    return f"{broken.cause}: {broken.reason}"


def _failure(swap: _Swap, came: str) -> str | None:
    """How the retraining failed, and what became of its checkpoint, in words; ``None`` where it has learned."""
    trainer = swap.group.trainer
    assert trainer is not None
    if not isinstance(trainer.ending, Broken):
        return None
    last, _ = trainer.checkpoints[-1]
    checkpoint = f"its checkpoint at {last.share:.0%}, which answers {last.accuracy:.0%} right,"
    return f"{_reason(trainer.ending)}; {checkpoint} {came}"
