"""How near the request simulation comes to a live run: what was counted live, and what it makes of the same requests.

The simulation is given what the run has recorded: when each request was to arrive, when each instance served and ended,
which new weights were taken over when and how long that took each worker, and by window and tenant the share of right
answers before and after. The rest is the simulation's own: its dispatch rule, and the latencies of the service profile.
No figure is fitted.

Goodput of the simulation is *expected*: what it answers in time, times the share of right answers in that second. To
draw luck for single answers would only add noise to both sides' differences.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import assert_never

import numpy as np

from executor.extras import install
from migrator.config.reading import read_config
from migrator.config.sections import Config
from migrator.errors import LogError, MigratorError
from migrator.execution.applier import servers_of
from migrator.execution.requests import SimulatedQueues
from migrator.inputs.assembly import untraced
from migrator.inputs.setting import Setting
from migrator.log import records
from migrator.log.changes import INFERENCE, Tenure, changes_in
from migrator.log.live import LiveFacts, ModelWindow, known_of, live_facts
from migrator.log.records import Finished, Measured, Resumed, WindowStarted
from migrator.log.runlog import CONFIG_FILE, ReadLog, read_log
from workloads.arrays import BoolArray, FloatArray
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.pool import Lane
from workloads.serving.requests import Outcomes, Requests
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.serving.tally import Added, SecondCounts, Tally

BIN_S = 10
"""Lost goodput is compared by so many seconds, and beside the same series so much later."""

MOST_POINTS = 5.0
"""The share of requests that are answered in time should differ by no more percentage points."""

MOST_PCT = 15.0
"""Goodput should differ by no more percent of what was counted live."""


@dataclass(frozen=True, slots=True)
class Nearness(Added):
    """Some requests as they were counted live, and as they were simulated.

    Attributes:
        arrivals: The same on both sides.
        live_in_time: Answered in time.
        simulated_in_time: Likewise.
        live_goodput: Answered in time and right.
        simulated_goodput: Expected.
    """

    arrivals: int = 0
    live_in_time: int = 0
    simulated_in_time: int = 0
    live_goodput: int = 0
    simulated_goodput: float = 0.0

    @property
    def in_time_points(self) -> float | None:
        """By how many percentage points of the arrivals more is in time in the simulation; ``None`` without any."""
        return 100 * (self.simulated_in_time - self.live_in_time) / self.arrivals if self.arrivals else None

    @property
    def goodput_pct(self) -> float | None:
        """By how many percent of the live goodput the simulated one is larger; ``None`` where there was none live."""
        return 100 * (self.simulated_goodput / self.live_goodput - 1) if self.live_goodput else None

    @property
    def is_near(self) -> bool:
        """Whether both differences are known, and within the limits."""
        points, pct = self.in_time_points, self.goodput_pct
        return points is not None and abs(points) <= MOST_POINTS and pct is not None and abs(pct) <= MOST_PCT


@dataclass(frozen=True, slots=True)
class LostGoodput:
    """How far series of lost goodput by :data:`BIN_S` are from the live one: mean absolute differences, in requests.

    Lost is what arrives and is not answered in time and right. Differences are taken tenant by tenant, then added up,
    so that one tenant's do not make up for another's.

    Attributes:
        simulated: Of the simulation's series.
        shifted: Of the live series itself, :data:`BIN_S` later.
    """

    simulated: float
    shifted: float

    @property
    def ratio(self) -> float | None:
        """The simulation's over the other; ``None`` where the live series never changes."""
        return self.simulated / self.shifted if self.shifted else None

    @property
    def is_beaten(self) -> bool:
        """Whether the simulation comes nearer than the shifted series."""
        return self.simulated < self.shifted


@dataclass(frozen=True, eq=False)
class TenantSeconds:
    """One tenant's requests by the second of arrival; all arrays ``(n_seconds,)``, 0 in windows that do not count."""

    arrivals: FloatArray
    live_in_time: FloatArray
    simulated_in_time: FloatArray
    live_goodput: FloatArray
    simulated_goodput: FloatArray

    def nearness(self, seconds: slice = slice(None)) -> Nearness:
        """Sums over these seconds."""
        return Nearness(
            round(self.arrivals[seconds].sum()),
            round(self.live_in_time[seconds].sum()),
            round(self.simulated_in_time[seconds].sum()),
            round(self.live_goodput[seconds].sum()),
            float(self.simulated_goodput[seconds].sum()),
        )


@dataclass(frozen=True, eq=False)
class LiveFidelity:
    """A live run beside its simulation.

    Attributes:
        folder: The run's.
        window_s: Length of a window.
        n_windows: Windows that the run was to have.
        windows: Those that are settled and compared, ascending.
        tenants: By name, from second 0 to the end of the last of them.
        facts: What else is to be said of the run.
        is_resumed: Whether it was cut off and joined again: what is said of the whole run is of its last part then.
    """

    folder: Path
    window_s: int
    n_windows: int
    windows: tuple[int, ...]
    tenants: Mapping[str, TenantSeconds]
    facts: LiveFacts
    is_resumed: bool

    def of_window(self, window: int) -> Mapping[str, Nearness]:
        """By tenant."""
        seconds = slice(window * self.window_s, (window + 1) * self.window_s)
        return {name: own.nearness(seconds) for name, own in self.tenants.items()}

    @property
    def of_tenants(self) -> Mapping[str, Nearness]:
        """By tenant, all windows."""
        return {name: own.nearness() for name, own in self.tenants.items()}

    @property
    def total(self) -> Nearness:
        """All requests of all tenants."""
        return total_of(self.of_tenants.values())

    @property
    def lost(self) -> LostGoodput | None:
        """By :data:`BIN_S`; ``None`` where no two such pieces follow each other."""
        is_settled = np.repeat(np.isin(np.arange(max(self.windows) + 1), self.windows), self.window_s)
        pairs = _pairs(is_settled)
        if not pairs.any():
            return None
        live = np.array([_by_bin(own.arrivals - own.live_goodput) for own in self.tenants.values()])
        simulated = np.array([_by_bin(own.arrivals - own.simulated_goodput) for own in self.tenants.values()])
        return LostGoodput(
            float(np.abs(simulated - live).sum(axis=0)[1:][pairs].mean()),
            float(np.abs(np.diff(live, axis=1)).sum(axis=0)[pairs].mean()),
        )


def total_of(parts: Iterable[Nearness]) -> Nearness:
    """All of them together."""
    return sum(parts, Nearness())


def _by_bin(values: FloatArray) -> FloatArray:
    n_bins = len(values) // BIN_S
    sums: FloatArray = values[: n_bins * BIN_S].reshape(n_bins, BIN_S).sum(axis=1)
    return sums


def _pairs(is_settled: BoolArray) -> BoolArray:
    """By bin from the second on, whether it and the one before it lie in settled windows as a whole."""
    is_whole = _by_bin(is_settled.astype(np.float64)) == BIN_S
    pairs: BoolArray = is_whole[1:] & is_whole[:-1]
    return pairs


@dataclass(frozen=True, slots=True)
class FidelityVerdict:
    """What several live runs say together: medians of the differences' sizes over the runs that are not void.

    Attributes:
        n_runs: How many count.
        n_void: How many do not, because too much of their machine's CPU time was stolen.
        in_time_points: See :attr:`Nearness.in_time_points`; ``None`` where it is unknown.
        goodput_pct: See :attr:`Nearness.goodput_pct`.
        lost_ratio: See :attr:`LostGoodput.ratio`.
    """

    n_runs: int
    n_void: int
    in_time_points: float | None
    goodput_pct: float | None
    lost_ratio: float | None

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """What is not as wanted, a phrase each; empty: the simulation is near enough."""
        if not self.n_runs:
            return ("every run is void",)
        wanted = (
            (self.in_time_points, MOST_POINTS, "the share in time differs by {:.1f} points, more than {:g}"),
            (self.goodput_pct, MOST_PCT, "goodput differs by {:.1f} %, more than {:g} %"),
        )
        found = [text.format(value, most) for value, most, text in wanted if value is not None and value > most]
        if self.in_time_points is None:
            found.append("no request arrived")
        elif self.goodput_pct is None:
            found.append("no goodput was counted live")
        if self.lost_ratio is None:
            found.append(f"the lost goodput that was counted live does not change from {BIN_S} s to {BIN_S} s")
        elif self.lost_ratio >= 1:
            found.append(f"lost goodput by {BIN_S} s is no nearer than the live one of {BIN_S} s before")
        return tuple(found)


def verdict_of(runs: Sequence[LiveFidelity]) -> FidelityVerdict:
    """What the runs say together."""
    counted = [run for run in runs if not run.facts.is_void]
    lost = [run.lost for run in counted]
    return FidelityVerdict(
        len(counted),
        len(runs) - len(counted),
        _median([run.total.in_time_points for run in counted]),
        _median([run.total.goodput_pct for run in counted]),
        _median([None if one is None else one.ratio for one in lost]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    """Of the sizes; what is unknown is larger than any other."""
    found = median([math.inf if value is None else abs(value) for value in values]) if values else math.inf
    return found if math.isfinite(found) else None


# --- a run beside its simulation


def replayed(folder: Path) -> LiveFidelity:
    """Simulate the requests of the live run in ``folder`` with what it recorded; settled windows only.

    Raises:
        LogError: No live run, a damaged one, or one of which no window is settled.
        ConfigError: Its config cannot be used.
        StreamError: Its requests cannot be read.
        MigratorError: Its service profile is not the one that it began with; or an extra is missing.
    """
    log = read_log(folder)
    facts = live_facts(log)
    if facts is None:
        raise LogError(f"{folder}: its requests were simulated; only a live run can be held against the simulation")
    if not log.settled:
        raise LogError(f"{folder}: no window of it was finished, so there is nothing to compare")
    if not all(closing.is_labelled for closing in log.settled.values()):
        raise LogError(f"{folder}: its requests came from clients; they are not kept, and nobody knows what is right")
    setting = _setting(log, read_config(folder / CONFIG_FILE))
    requests = _requests(folder, [tenant.name for tenant in log.header.tenants])
    simulated = _Replay(log, setting, requests).counts(round(log.header.window_s) * (1 + max(log.settled)))
    return LiveFidelity(
        folder=folder,
        window_s=round(log.header.window_s),
        n_windows=log.header.windows,
        windows=tuple(sorted(log.settled)),
        tenants={counts.tenant: _seconds(log, facts, counts) for counts in simulated},
        facts=facts,
        is_resumed=bool(log.of(Resumed)),
    )


def _setting(log: ReadLog, config: Config) -> Setting:
    """How the run's tenants are served, with the latencies of the service profile that its config names.

    Raises:
        MigratorError: They are not those that the run began with, or cannot be had.
    """
    path, entries = log.folder / CONFIG_FILE, {entry.name: entry for entry in config.tenants}
    if missing := [one.name for one in log.header.tenants if one.name not in entries]:
        raise MigratorError(f"{path}: tenants.{missing[0]}: is missing; the run had this tenant")
    tenants = [entries[tenant.name] for tenant in log.header.tenants]
    setting = untraced(config.model_copy(update={"tenants": tenants}), str(path), log.gpu)
    for begun, tenant in zip(log.header.tenants, setting.tenants, strict=True):
        for profile, begun_with in begun.operating_points.items():
            if (now := _named(tenant.operating_points.get(profile))) != (then := _named(begun_with)):
                where = f"{path}: tenants.{tenant.name}"
                raise MigratorError(f"{where}: serves on {profile} {now} by the service profile; the run began {then}")
    return setting


def _named(point: OperatingPoint | records.OperatingPoint | None) -> str:
    if point is None:
        return "nothing"
    return f"with batch {point.batch}, processes {point.processes}, {point.rate_rps:.4f} requests/s"


def _requests(folder: Path, names: Iterable[str]) -> list[Requests]:
    """Each tenant's requests that the run was to have; all of them wait for a generator when a run begins."""
    try:
        from workloads.live.generator import read_streams  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        raise MigratorError(f"a live run's requests need {error.name}: {install('live')}") from None
    path = folder / "live" / "requests.msgpack"
    streams = {stream.tenant: stream for stream in read_streams(path)}
    found = []
    for name in names:
        if (stream := streams.get(name)) is None:
            raise LogError(f"{path}: has no requests of tenant {name}")
        arrival_s = np.array(stream.arrival_s, dtype=np.float64)
        found.append(Requests(name, stream.slo_s, arrival_s, np.zeros(len(arrival_s))))
    return found


def _seconds(log: ReadLog, facts: LiveFacts, simulated: SecondCounts) -> TenantSeconds:
    """One tenant's requests, live and simulated.

    Raises:
        LogError: The requests are not those that the log counts.
    """
    window_s, n_seconds, name = round(log.header.window_s), simulated.n_seconds, simulated.tenant
    is_settled, accuracy = np.zeros(n_seconds, np.bool_), np.zeros(n_seconds)
    live = {key: np.zeros(n_seconds) for key in ("arrivals", "in_time", "correct")}
    learned = {one.window: one for one in facts.learned if one.tenant == name}
    begun_with = {window: known[name] for window, known in known_of(log).items()}
    for window, closing in log.settled.items():
        place = slice(window * window_s, (window + 1) * window_s)
        is_settled[place] = True
        accuracy[place] = _accuracy(learned[window], begun_with[window].accuracy_before, window_s)
        for key, column in live.items():
            column[place] = getattr(closing.tenants[name], key)
    if (wrong := np.flatnonzero(is_settled & (simulated.arrivals != live["arrivals"]))).size:
        second = int(wrong[0])
        raise LogError(
            f"{log.folder}: in second {second} {simulated.arrivals[second]} requests of {name} arrive by "
            f"live/requests.msgpack, {live['arrivals'][second]:.0f} by the log; they are not of one run"
        )
    in_time = np.where(is_settled, simulated.in_time, 0.0)
    return TenantSeconds(live["arrivals"], live["in_time"], in_time, live["correct"], in_time * accuracy)


def _accuracy(learned: ModelWindow, measured_before: float, n_seconds: int) -> FloatArray:
    """The share of right answers in each second of a window, ``(n_seconds,)``.

    Where nothing was answered, it is the model's accuracy on its training data, or the retrained one on the test set.
    The second in which new weights came has the mean of both, by how long each answered.
    """
    before = measured_before if learned.before_pct is None else learned.before_pct / 100
    if learned.finish_s is None:
        return np.full(n_seconds, before)
    after_pct = learned.tested_pct if learned.after_pct is None else learned.after_pct
    assert after_pct is not None  # what was finished was tested
    is_new = np.clip(np.arange(1, n_seconds + 1) - learned.finish_s, 0.0, 1.0)
    accuracy: FloatArray = before + (after_pct / 100 - before) * is_new
    return accuracy


# --- the simulation


@dataclass(frozen=True, slots=True)
class _Failure:
    """A worker dies; the answers under way are lost, as they are in a simulated run."""

    tenant: str
    server_id: str


@dataclass(frozen=True, slots=True)
class _Swap:
    """A tenant's workers take new weights over, one after the other, each when its lane is free, which then waits.

    Attributes:
        tenant: Whose they are.
        swap_s: What each takes that is still to come.
        server_ids: Those of the workers; ``None`` as long as it has not begun.
    """

    tenant: str
    swap_s: tuple[float, ...]
    server_ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Joined:
    """The run goes on after it was cut off: what came before is in no queue any more."""


_Happening = _Failure | _Swap | _Joined


@dataclass(slots=True)
class _Standing:
    """A worker that serves, in the lane that its instance is; ``is_shared`` with workers of others in it."""

    lane: str
    is_shared: bool
    server: Server


class _Replay:
    """All tenants' requests, served by a live run's instances: those of a pool by turns."""

    def __init__(self, log: ReadLog, setting: Setting, requests: Sequence[Requests]) -> None:
        self._requests = {own.tenant: own for own in requests}
        weights = {tenant.name: tenant.weight for tenant in setting.tenants}
        self._queues = SimulatedQueues(weights, None, turn_cost=setting.turn_cost)
        self._accuracies = {name: _in_service(log, name) for name in self._requests}
        self._standing: list[_Standing] = []  # in the order in which they were started
        self._due: list[tuple[float, int, _Happening]] = []
        self._n_expected = 0
        begun = [instance for change in changes_in(log) for instance in change.begun]
        for instance in begun:
            if instance.task == INFERENCE:
                self._add(instance, setting)
        ready_s = {instance.name: instance.ready.ready_s for instance in begun if instance.ready is not None}
        for ended in log.of(Finished):
            if ended.swap_s:
                assert ended.instance is not None
                assert ended.trained_s is not None
                self._expect(ready_s[ended.instance] + ended.trained_s, _Swap(ended.tenant, ended.swap_s))
        for joined in log.of(Resumed):
            self._expect(joined.window * log.header.window_s, _Joined())

    def counts(self, n_seconds: int) -> list[SecondCounts]:
        """By tenant, the outcomes of the requests of the first seconds, each of them resolved."""
        tallies = {name: Tally(name, n_seconds) for name in self._requests}
        while self._due:
            at_s, _, happening = heapq.heappop(self._due)
            self._advance(at_s, tallies)
            states = self._queues.states
            match happening:
                case _Failure(tenant=tenant, server_id=server_id):
                    tallies[tenant].lose(self._requests[tenant], states[tenant].in_service(server_id))
                case _Swap():
                    self._swap(happening, at_s)
                case _Joined():
                    for name, state in states.items():
                        waiting = np.arange(state.head, state.tail, dtype=np.int64)
                        tallies[name].add(self._requests[name], Outcomes.all_dropped(waiting))
                    now_s = self._queues.now_s
                    self._queues.begin({name: own.n_before(now_s) for name, own in self._requests.items()}, now_s)
                case _:
                    assert_never(happening)
        self._advance(math.inf, tallies)
        return [tally.counts for tally in tallies.values()]

    def _add(self, instance: Tenure, setting: Setting) -> None:
        is_shared, name = len(instance.members) > 1, instance.tenant
        if is_shared:
            point = setting.joint_servings(instance.members)[instance.profile][name]
        else:
            point = next(one for one in setting.tenants if one.name == name).operating_points[instance.profile]
        for begin_s, end_s in instance.served:
            for server in servers_of(name, instance.name, point, begin_s, is_shared=is_shared):
                self._standing.append(_Standing(instance.name, is_shared, replace(server, end_s=end_s)))
                if end_s < instance.end_s:
                    self._expect(end_s, _Failure(name, server.server_id))

    def _expect(self, at_s: float, happening: _Happening) -> None:
        self._n_expected += 1
        heapq.heappush(self._due, (at_s, self._n_expected, happening))

    def _advance(self, until_s: float, tallies: Mapping[str, Tally]) -> None:
        now_s = self._queues.now_s
        if until_s <= now_s:
            return  # it happened before second 0
        alone, shared = defaultdict[str, list[Server]](list), defaultdict[str, list[Server]](list)
        for one in self._standing:
            if one.server.ready_s < until_s and one.server.end_s > now_s:
                (shared[one.lane] if one.is_shared else alone[one.server.tenant]).append(one.server)
        lanes = [Lane(name, tuple(servers)) for name, servers in shared.items()]
        outcomes = self._queues.advance(self._requests, alone, self._accuracies, until_s, lanes)
        for name, found in outcomes.items():
            tallies[name].add(self._requests[name], found)

    def _swap(self, swap: _Swap, at_s: float) -> None:
        """Pause the first of the workers that still serves; the next one takes its turn when that is done."""
        serving = {
            one.server.server_id: one
            for one in self._standing
            if one.server.tenant == swap.tenant and one.server.ready_s <= at_s < one.server.end_s
        }
        server_ids = tuple(serving) if swap.server_ids is None else swap.server_ids
        left = [server_id for server_id in server_ids if server_id in serving]
        if not left or not swap.swap_s:
            return  # a worker that loads the weights as it starts is not awaited
        first = serving[left[0]]
        held_up = [one for one in self._standing if one is first or (first.is_shared and one.lane == first.lane)]
        busy_until_s = self._queues.busy_until_s
        begin_s = max(at_s, *(busy_until_s.get(one.server.server_id, at_s) for one in held_up))
        end_s = begin_s + swap.swap_s[0]
        for one in held_up:
            one.server = replace(one.server, ready_s=max(one.server.ready_s, end_s))
        self._expect(end_s, _Swap(swap.tenant, swap.swap_s[1:], tuple(left[1:])))


def _in_service(log: ReadLog, tenant: str) -> AccuracyTimeline:
    """What the tenant's model was taken to give: turns of a pool go by it.

    What is measured as a window begins counts from when the run knew it, unless newer weights answered before.
    """
    trained = {one.finish_s: one.accuracy for one in log.of(Finished) if one.tenant == tenant}
    begun = {one.start_s: one.forecast.tenants for one in log.of(WindowStarted) if one.asked_s is None}
    measured = {
        one.measured_s: one.tenants
        for one in log.of(Measured)
        if not any(one.window * log.header.window_s < at_s <= one.measured_s for at_s in trained)
    }
    known = {at_s: models[tenant].accuracy_before for at_s, models in (begun | measured).items()}
    return AccuracyTimeline.of(trained | known)
