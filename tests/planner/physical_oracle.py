"""The best objective of a tiny `physical` problem by trying everything, step by step.

Written straight from the rules of the design's section 4, to judge the engine and its bound. A state is what
inference holds and from when it serves whom, when the next epoch may be, and how far each retraining is; every held
set that fits and every start of a retraining is tried at every step. It shares no code with `planner` beyond the
`Problem` value itself.

Who holds is a pool, or a tenant alone: their places in ``stages.holders``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from operator import add
from typing import NamedTuple

from stages import (
    floor_per_step,
    floor_per_window,
    holders,
    in_time,
    is_kept,
    is_staged,
    not_ours,
    pool_of,
    rates_rps,
    stage,
    training_steps,
)

from executor.mig import GpuModel, Placement
from planner.plan import Lifetime
from planner.problem import HeldInstance, Problem

Place = tuple[str, int]
"""A placement as profile name and start."""

Held = frozenset[tuple[Place, int]]
"""What inference holds, each place with its holder."""

Warming = frozenset[tuple[Place, int, int]]
"""Held places and tenants that these do not serve yet, with the step from which they do."""


class Progress(NamedTuple):
    """How far one tenant's retraining is: place and end of a running one, level of one that is over.

    Where checkpoints or swaps matter, ``profile`` is what it runs or ran on, and its end is remembered, too.
    """

    state: str
    level: int = 0
    place: Place | None = None
    end_step: int = 0
    profile: str = ""
    was_running: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Standing:
    """What inference holds at the end of a step; there is one of a kind, so that none is looked into to find it."""

    held: Held
    warming: Warming
    next_epoch_step: int


Label = tuple[float, ...]
"""Goodput so far, requests that lack of floors per step, negative, then those in time of each floor per window."""

States = dict[tuple[Progress, ...], dict[Standing, set[Label]]]
"""By how far retrainings are and what inference holds: the labels of all ways to get there."""


def best_objective(problem: Problem, *, is_static: bool = False) -> float | None:
    """Goodput and salvage in requests of the best plan that keeps all floors; ``None`` if there is no plan.

    With ``is_static`` only plans count whose held set changes nowhere but at the first epoch that there may be.
    """
    found = outcomes(problem, is_static=is_static, keeps_steps=True)
    return max((worth for worth, lacks in found if lacks == 0), default=None)


def outcomes(problem: Problem, *, is_static: bool = False, keeps_steps: bool = False) -> list[tuple[float, float]]:
    """What plans are worth, and the requests that they lack of all floors; at least each that no other one beats.

    With ``keeps_steps`` only plans count that keep floors per step.
    """
    held_sets, tenants = HeldSets(problem), range(len(problem.tenants))
    floors = {m: asked for m in tenants if (asked := floor_per_window(problem, m)) is not None}
    progress, standing = _before(problem, held_sets)
    best: States = {progress: {standing: {(0.0,) * (2 + len(floors))}}}
    for s in range(problem.n_steps):
        may_change = not is_static or s == _first_epoch(problem)
        after: States = {}
        for progress, standings in best.items():
            for now in product(*(_retraining_ways(problem, m, one, s) for m, one in enumerate(progress))):
                found, earned = after.setdefault(now, {}), _Earned(held_sets, now, s, tuple(floors))
                busy = tuple(one.place for one in now if one.place is not None)
                for standing, labels in standings.items():
                    for standing_now in held_sets.ways_to_go_on(standing, busy, s, may_change=may_change):
                        more = earned[standing_now]
                        if not (keeps_steps and more[1]):
                            found.setdefault(standing_now, set()).update(
                                tuple(map(add, label, more)) for label in labels
                            )
        best = {
            now: {standing: _undominated(labels) for standing, labels in found.items()} for now, found in after.items()
        }
    return [
        (worth + _salvage(problem, progress), -by_step + sum(map(_lacking, in_time, floors.values())))
        for progress, standings in best.items()
        if _may_end(problem, progress)
        for labels in standings.values()
        for worth, by_step, *in_time in labels
    ]


class _Earned(dict[Standing, Label]):
    """What step ``s`` adds to labels, where retrainings are so far, by what inference holds; worked out when asked."""

    def __init__(self, held_sets: HeldSets, progress: tuple[Progress, ...], s: int, floored: tuple[int, ...]) -> None:
        super().__init__()
        self._held_sets, self._s, self._floored = held_sets, s, floored
        self._levels = [_worth(held_sets.problem, m, one, s) for m, one in enumerate(progress)]

    def __missing__(self, standing: Standing) -> Label:
        served, lacks = self._held_sets.served(standing, self._s)
        gain = _goodput(self._held_sets.problem, self._levels, served)
        self[standing] = (gain, -lacks, *(served[m] for m in self._floored))
        return self[standing]


def _lacking(in_time: float, asked: float) -> float:
    return 0.0 if is_kept(in_time, asked) else asked - in_time


def _first_epoch(problem: Problem) -> int:
    return 0 if problem.physical_initial is None else problem.physical_initial.next_epoch_step


def _undominated(labels: set[Label]) -> set[Label]:
    kept: list[Label] = []
    for label in sorted(labels, reverse=True):  # what beats one comes before it
        if not any(all(a >= b for a, b in zip(other, label, strict=True)) for other in kept):
            kept.append(label)
    return set(kept)


def _lacks_in_step(problem: Problem, m: int, got: float, s: int) -> float:
    """Requests that lack of tenant m's floor per step, if it has one and binds, in step s with so many in time."""
    state, asked = problem.physical_initial, floor_per_step(problem, m, s)
    if asked is None:
        return 0.0
    if state is not None and s < state.next_epoch_step + _warm_up(problem, m):
        # Nothing new can serve yet: what was held does not bind where even all of it is too little.
        held = frozenset((_place(item.placement), _heir(problem, item)) for item in state.held)
        if _in_time(problem, m, held, _warming_at_start(problem), s) < asked:
            return 0.0
    return max(0.0, asked - got)


def _in_time(problem: Problem, m: int, held: Held, warm: Warming, s: int) -> float:
    """Requests of tenant m that are served in time in step s."""
    warming = {place for place, waiting, serve in warm if waiting == m and serve > s}
    own, rates = _holder(problem, m), rates_rps(problem, m)
    serving = [place[0] for place, holder in held if holder == own and place not in warming]
    return in_time(problem, m, s, [name for name in serving if name in rates])


def _steps(problem: Problem, duration_s: float) -> int:
    return max(1, math.ceil(duration_s / problem.step_s - 1e-9))


def _warm_up(problem: Problem, m: int) -> int:
    return _steps(problem, problem.switching_s + (pool_of(problem, m) or problem.tenants[m]).overhead_s)


def _holder(problem: Problem, m: int) -> int:
    return next(h for h, members in enumerate(holders(problem)) if m in members)


def _heir(problem: Problem, item: HeldInstance) -> int:
    """Who keeps what was held: of those who may be served by it the one that shares most tenants, then the first."""
    names, profile = [tenant.name for tenant in problem.tenants], item.placement.profile.name

    def rank(h: int) -> tuple[bool, int, int]:
        members = holders(problem)[h]
        return profile in rates_rps(problem, members[0]), sum(names[m] in item.members for m in members), -h

    return max({_holder(problem, names.index(name)) for name in item.members}, key=rank)


def _warming_at_start(problem: Problem) -> Warming:
    """Whom what is kept does not serve at first: nobody before it is ready, none without a process before Ω is over."""
    state = problem.physical_initial
    found = set()
    for item in state.held if state is not None else ():
        for m in holders(problem)[_heir(problem, item)]:
            is_there = problem.tenants[m].name in item.members
            serve = item.serve_step if is_there else state.next_epoch_step + _warm_up(problem, m)
            found.add((_place(item.placement), m, serve))
    return frozenset(entry for entry in found if entry[2] > 0)


def _is_repartitioned(problem: Problem) -> bool:
    """Whether something is held by others than the tenants that keep it: there is an epoch as soon as may be."""
    state, names = problem.physical_initial, [tenant.name for tenant in problem.tenants]
    items = () if state is None else state.held
    return any({names[m] for m in holders(problem)[_heir(problem, item)]} != set(item.members) for item in items)


def _before(problem: Problem, held_sets: HeldSets) -> tuple[tuple[Progress, ...], Standing]:
    """What there is before step 0; without an initial state nothing is held, and step 0 is not an epoch."""
    state = problem.physical_initial
    waiting = tuple(Progress("waiting") for _ in problem.tenants)
    if state is None:
        return waiting, held_sets.standing(frozenset(), frozenset(), 0)
    index = {name: m for m, name in enumerate(problem.tenant_names)}
    progress = list(waiting)
    for item in state.retrainings:
        profile = item.placement.profile.name if is_staged(problem.tenants[index[item.tenant]]) else ""
        is_known = bool(profile)
        progress[index[item.tenant]] = Progress("running", 1, _place(item.placement), item.end_step, profile, is_known)
    held = frozenset((_place(item.placement), _heir(problem, item)) for item in state.held)
    return tuple(progress), held_sets.standing(held, _warming_at_start(problem), state.next_epoch_step)


def _place(placement: Placement) -> Place:
    return placement.profile.name, placement.start


class HeldSets:
    """Every set of (placement, holder) that fits the GPU and gives each tenant what its smallest profile asks.

    With it what is asked for again and again: each holder's warm-up in steps, and what is served and warms in a step.
    """

    def __init__(self, problem: Problem) -> None:
        self._gpu = problem.gpu
        self.problem = problem
        self._standings: dict[tuple[Held, Warming, int], Standing] = {}
        self._served: dict[tuple[Standing, int], tuple[tuple[float, ...], float]] = {}
        self._entered: dict[tuple[Standing, Held, int], Standing] = {}
        self._ways: dict[tuple[Standing, tuple[Place, ...], int, bool], list[Standing]] = {}
        self._holders, self._is_repartitioned = holders(problem), _is_repartitioned(problem)
        self._warm_ups = [_warm_up(problem, members[0]) for members in self._holders]
        self.epoch_steps = max(self._warm_ups)
        pairs = [
            ((profile.name, start), h)
            for h, members in enumerate(self._holders)
            for profile in problem.gpu.profiles
            if profile.name in rates_rps(problem, members[0])
            for start in profile.starts
        ]
        fitting: set[Held] = {frozenset()}
        for pair in pairs:
            fitting |= {held | {pair} for held in fitting if _fits(problem.gpu, [pair[0], *_places(held)])}
        tenants = range(len(problem.tenants))
        self._all = {held for held in fitting if all(_has_large_one(problem, m, held) for m in tenants)}
        self._fitting: dict[tuple[tuple[Place, ...], frozenset[int]], set[Held]] = {}

    def standing(self, held: Held, warming: Warming, next_epoch_step: int) -> Standing:
        """The one of its kind."""
        key = (held, warming, next_epoch_step)
        if key not in self._standings:
            self._standings[key] = Standing(*key)
        return self._standings[key]

    def served(self, standing: Standing, s: int) -> tuple[tuple[float, ...], float]:
        """Requests of each tenant that are served in time in step s, and those that lack of all floors per step."""
        if (standing, s) not in self._served:
            tenants = range(len(self.problem.tenants))
            served = tuple(_in_time(self.problem, m, standing.held, standing.warming, s) for m in tenants)
            self._served[standing, s] = served, sum(_lacks_in_step(self.problem, m, served[m], s) for m in tenants)
        return self._served[standing, s]

    def ways_to_go_on(self, standing: Standing, busy: tuple[Place, ...], s: int, *, may_change: bool) -> list[Standing]:
        """All that may stand at step s beside retrainings on these places, after this."""
        key = (standing, busy, s, may_change)
        if key not in self._ways:
            is_first = s == 0 and self.problem.physical_initial is None
            is_free = may_change and (is_first or s >= standing.next_epoch_step)
            fitting = self._beside(busy, not_ours(self.problem, s))
            chosen = fitting if is_free else fitting & {standing.held}
            self._ways[key] = [self._enter(standing, held, s) for held in chosen]
        return self._ways[key]

    def _enter(self, standing: Standing, held: Held, s: int) -> Standing:
        """What stands at step s where ``held`` is held then, after this."""
        key = (standing, held, s)
        if key not in self._entered:
            self._entered[key] = self.standing(held, *self._after(standing, held, s))
        return self._entered[key]

    def is_epoch(self, before: Standing, held: Held, s: int) -> bool:
        """Whether step s is an epoch: something changes, or missing processes start in what is kept."""
        state = self.problem.physical_initial
        is_forced = self._is_repartitioned and state is not None and s == state.next_epoch_step
        return not (s == 0 and state is None) and (held != before.held or is_forced)

    def _after(self, before: Standing, held: Held, s: int) -> tuple[Warming, int]:
        """What warms and when the next epoch may be from step s on, in which ``held`` is held, after this."""
        if s == 0 and self.problem.physical_initial is None:
            return frozenset(), 0
        kept = set(_places(held & before.held))
        warming = {(place, m, serve) for place, m, serve in before.warming if place in kept and serve > s}
        warming |= {(place, m, s + self._warm_ups[h]) for place, h in held - before.held for m in self._holders[h]}
        next_epoch_step = before.next_epoch_step
        if self.is_epoch(before, held, s):
            next_epoch_step = s + self.epoch_steps
        # From the next step on all steps before it are the same.
        return frozenset(warming), next_epoch_step if next_epoch_step > s + 1 else 0

    def _beside(self, busy: tuple[Place, ...], others: frozenset[int]) -> set[Held]:
        """Those that fit beside the retrainings' placements and touch none of these memory slices; nor may those."""
        key = (busy, others)
        if key not in self._fitting:
            free = set() if _touches(self._gpu, list(busy), others) else self._all
            self._fitting[key] = {
                held
                for held in free
                if _fits(self._gpu, [*busy, *_places(held)]) and not _touches(self._gpu, _places(held), others)
            }
        return self._fitting[key]


def _touches(gpu: GpuModel, places: list[Place], others: frozenset[int]) -> bool:
    claimed = {s for name, start in places for s in range(start, start + gpu.profile(name).memory_slices)}
    return bool(claimed & others)


def _places(held: Held) -> list[Place]:
    return [place for place, _ in held]


def _has_large_one(problem: Problem, m: int, held: Held) -> bool:
    least = problem.gpu.profile(problem.tenants[m].min_profile)
    own = [problem.gpu.profile(name) for (name, _), holder in held if holder == _holder(problem, m)]
    return any(p.compute_slices >= least.compute_slices and p.memory_slices >= least.memory_slices for p in own)


def _fits(gpu: GpuModel, places: list[Place]) -> bool:
    names = [name for name, _ in places]
    claimed = [s for name, start in places for s in range(start, start + gpu.profile(name).memory_slices)]
    few_enough = all(names.count(name) <= gpu.profile(name).max_instances for name in names)
    compute_slices = sum(gpu.profile(name).compute_slices for name in names)
    return len(claimed) == len(set(claimed)) and few_enough and compute_slices <= gpu.compute_slices


def _start_up(problem: Problem, m: int) -> int:
    tenant = problem.tenants[m]
    start_s = tenant.overhead_s if tenant.retraining_start_s is None else tenant.retraining_start_s
    return _steps(problem, problem.switching_s + start_s)


def _retraining_ways(problem: Problem, m: int, one: Progress, s: int) -> list[Progress]:
    """What tenant m's retraining may be in step s, given what it was in the step before."""
    if one.state == "running":
        is_over = Progress("done", one.level, None, one.end_step if one.profile else 0, one.profile, one.was_running)
        return [one if s < one.end_step else is_over]
    ways = [one]
    tenant = problem.tenants[m]
    if one.state == "waiting":
        starting = _start_up(problem, m)
        for index, option in enumerate(tenant.options):
            for name in option.time_s:
                end_step = s + starting + training_steps(problem, option, name)
                profile = name if is_staged(tenant) else ""
                starts = problem.gpu.profile(name).starts if end_step <= problem.n_steps else ()
                ways += [Progress("running", 1 + index, (name, start), end_step, profile) for start in starts]
    return ways


def _worth(problem: Problem, m: int, one: Progress, s: int) -> float:
    """Accuracy of tenant m in step s, times what swaps leave of the step."""
    tenant = problem.tenants[m]
    if one.profile:
        accuracy, share = stage(
            problem, tenant, one.level - 1, one.profile, one.end_step, s, in_progress=one.was_running
        )
        return accuracy * share
    return tenant.options[one.level - 1].accuracy_after if one.state == "done" else tenant.accuracy_before


def _goodput(problem: Problem, levels: list[float], served: tuple[float, ...]) -> float:
    """Rule 5: what serves, that is, what is held and does not warm."""
    return sum(tenant.weight * levels[m] * served[m] for m, tenant in enumerate(problem.tenants))


def _salvage(problem: Problem, progress: tuple[Progress, ...]) -> float:
    """What the levels at the window's end are worth beyond it; what runs in the last step has ended by then."""
    pairs = zip(problem.tenants, progress, strict=True)
    return sum(tenant.salvage[one.level] for tenant, one in pairs if tenant.salvage)


def _may_end(problem: Problem, progress: tuple[Progress, ...]) -> bool:
    """Whether every required retraining ran; one that is running ends with the window at the latest."""
    return all(
        one.state != "waiting" or not (tenant.options and tenant.retraining_required)
        for tenant, one in zip(problem.tenants, progress, strict=True)
    )


def worth_of(held_sets: HeldSets, lifetimes: Sequence[Lifetime], next_epoch_step: int) -> float | None:
    """Goodput and salvage of a plan that holds this; ``None`` if it breaks a rule, or promises an epoch too early."""
    problem, worth = held_sets.problem, 0.0
    progress, standing = _before(problem, held_sets)
    got, epochs = [0.0 for _ in problem.tenants], list[int]()
    if not all(_is_whole(problem, item, standing) for item in lifetimes):
        return None
    for s in range(problem.n_steps):
        alive = [item for item in lifetimes if item.create_step <= s < item.end_step]
        runs = [
            [item for item in alive if not item.is_inference and item.owner.tenant == t.name] for t in problem.tenants
        ]
        found = [_going_on(problem, m, progress[m], s, own) for m, own in enumerate(runs)]
        entries = [(_place(item.placement), _named(problem, item)) for item in alive if item.is_inference]
        if None in found or len(set(entries)) < len(entries):
            return None
        progress = tuple(one for one in found if one is not None)
        busy = tuple(one.place for one in progress if one.place is not None)
        ways = held_sets.ways_to_go_on(standing, busy, s, may_change=True)
        now = next((one for one in ways if one.held == set(entries)), None)
        begun = [item for item in alive if item.create_step == s]
        if now is None or any(_serves_at(problem, item, standing) != item.serve_step for item in begun):
            return None
        epochs += [s] if held_sets.is_epoch(standing, now.held, s) else []
        standing, (served, lacks) = now, held_sets.served(now, s)
        if lacks:
            return None
        got = list(map(add, got, served))
        worth += _goodput(problem, [_worth(problem, m, one, s) for m, one in enumerate(progress)], served)
    due = max(_first_epoch(problem), *(epoch + held_sets.epoch_steps for epoch in epochs), 0)
    asked = [floor_per_window(problem, m) for m in range(len(got))]
    is_kept_by_all = all(least is None or is_kept(own, least) for own, least in zip(got, asked, strict=True))
    if not (is_kept_by_all and _may_end(problem, progress) and next_epoch_step >= due):
        return None
    return worth + _salvage(problem, progress)


def _named(problem: Problem, item: Lifetime) -> int | None:
    """The holder that the lifetime names."""
    names = [tuple(problem.tenants[m].name for m in members) for members in holders(problem)]
    return names.index(item.owner.members) if item.owner.members in names else None


def _is_whole(problem: Problem, item: Lifetime, before: Standing) -> bool:
    """Whether the lifetime is somebody's, in the window, at a place of the GPU; that of what step 0 drops is empty."""
    profile, (name, start) = item.placement.profile, _place(item.placement)
    if profile not in problem.gpu.profiles or start not in profile.starts:
        return False
    if item.is_inference and item.create_step == item.end_step == 0:
        return ((name, start), _named(problem, item)) in before.held
    is_some = 0 <= item.create_step < item.end_step <= problem.n_steps and item.serve_step >= item.create_step
    tenants = [tenant.name for tenant in problem.tenants]
    is_known = item.owner.members[0] in tenants and len(item.owner.members) == 1
    return is_some and (_named(problem, item) is not None if item.is_inference else is_known)


def _serves_at(problem: Problem, item: Lifetime, before: Standing) -> int | None:
    """The step from which a lifetime that begins after this standing has to serve, or to train.

    ``None`` where it goes on: what is kept is one lifetime.
    """
    names, s = [tenant.name for tenant in problem.tenants], item.create_step
    m = names.index(item.owner.tenant)
    if not item.is_inference:
        runs = [] if problem.physical_initial is None else problem.physical_initial.retrainings
        is_running = s == 0 and any(run.tenant == item.owner.tenant for run in runs)
        return item.serve_step if is_running and item.serve_step <= item.end_step else s + _start_up(problem, m)
    if s == 0 and problem.physical_initial is None:
        return 0
    if (_place(item.placement), _named(problem, item)) in before.held:
        opening = () if s or problem.physical_initial is None else problem.physical_initial.held
        return next((own.serve_step for own in opening if own.placement == item.placement), None)
    return s + _warm_up(problem, m)


def _going_on(problem: Problem, m: int, one: Progress, s: int, runs: Sequence[Lifetime]) -> Progress | None:
    """What tenant m's retraining is in step s by these lifetimes; ``None`` where that cannot be."""
    if len(runs) > 1:
        return None
    place, end = (_place(runs[0].placement), runs[0].end_step) if runs else (None, 0)
    options, is_new = [option.name for option in problem.tenants[m].options], one.state == "waiting"
    for way in _retraining_ways(problem, m, one, s):
        is_same = way.place == place and (way.place is None or way.end_step == end)
        if is_same and not (runs and is_new and runs[0].option != options[way.level - 1]):
            return way if not runs or (runs[0].create_step == s) == (is_new or s == 0) else None
    return None
