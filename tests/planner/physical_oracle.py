"""The best objective of a tiny `physical` problem by trying everything, step by step.

Written straight from the rules of the design's section 4, to judge the engine and its bound. A state is what
inference holds and from when it serves, when the next epoch may be, and how far each retraining is; every held set
that fits and every start of a retraining is tried at every step. It shares no code with `planner` beyond the
`Problem` value itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from operator import add
from typing import NamedTuple

from stages import floor_per_step, floor_per_window, in_time, is_kept, is_staged, not_ours, stage, training_steps

from executor.mig import GpuModel, Placement
from planner.problem import Problem, TenantTerms

Place = tuple[str, int]
"""A placement as profile name and start."""

Held = frozenset[tuple[Place, int]]
"""What inference holds, each place with its tenant's index."""

Warming = frozenset[tuple[Place, int]]
"""Held places that do not serve yet, with the step from which they do."""


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
    tenant, state = problem.tenants[m], problem.physical_initial
    asked = floor_per_step(problem, m, s)
    if asked is None:
        return 0.0
    if state is not None and s < state.next_epoch_step + _warm_up(problem, tenant):
        # Nothing new can serve yet: what was held does not bind where even all of it is too little.
        held = frozenset((_place(item.placement), m) for item in state.held if item.tenant == tenant.name)
        warming = frozenset((_place(item.placement), item.serve_step) for item in state.held)
        if _in_time(problem, m, held, warming, s) < asked:
            return 0.0
    return max(0.0, asked - got)


def _in_time(problem: Problem, m: int, held: Held, warm: Warming, s: int) -> float:
    """Requests of tenant m that are served in time in step s."""
    warming = {place for place, serve in warm if serve > s}
    return in_time(problem, m, s, [place[0] for place, owner in held if owner == m and place not in warming])


def _steps(problem: Problem, duration_s: float) -> int:
    return max(1, math.ceil(duration_s / problem.step_s - 1e-9))


def _warm_up(problem: Problem, tenant: TenantTerms) -> int:
    return _steps(problem, problem.switching_s + tenant.overhead_s)


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
    held = frozenset((_place(item.placement), index[item.tenant]) for item in state.held)
    warming = frozenset((_place(item.placement), item.serve_step) for item in state.held if item.serve_step > 0)
    return tuple(progress), held_sets.standing(held, warming, state.next_epoch_step)


def _place(placement: Placement) -> Place:
    return placement.profile.name, placement.start


class HeldSets:
    """Every set of (placement, tenant) that fits the GPU and gives each tenant what its smallest profile asks.

    With it what is asked for again and again: each tenant's warm-up in steps, and what is served and warms in a step.
    """

    def __init__(self, problem: Problem) -> None:
        self._gpu = problem.gpu
        self.problem = problem
        self._standings: dict[tuple[Held, Warming, int], Standing] = {}
        self._served: dict[tuple[Standing, int], tuple[tuple[float, ...], float]] = {}
        self._entered: dict[tuple[Standing, Held, int], Standing] = {}
        self._ways: dict[tuple[Standing, tuple[Place, ...], int, bool], list[Standing]] = {}
        self._warm_ups = [_warm_up(problem, tenant) for tenant in problem.tenants]
        pairs = [
            ((profile.name, start), m)
            for m, tenant in enumerate(problem.tenants)
            for profile in problem.gpu.profiles
            if profile.name in tenant.capability_rps
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
            self._entered[key] = self.standing(held, *_entered(self.problem, self._warm_ups, standing, held, s))
        return self._entered[key]

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
    own = [problem.gpu.profile(name) for (name, _), owner in held if owner == m]
    return any(p.compute_slices >= least.compute_slices and p.memory_slices >= least.memory_slices for p in own)


def _fits(gpu: GpuModel, places: list[Place]) -> bool:
    names = [name for name, _ in places]
    claimed = [s for name, start in places for s in range(start, start + gpu.profile(name).memory_slices)]
    few_enough = all(names.count(name) <= gpu.profile(name).max_instances for name in names)
    compute_slices = sum(gpu.profile(name).compute_slices for name in names)
    return len(claimed) == len(set(claimed)) and few_enough and compute_slices <= gpu.compute_slices


def _entered(problem: Problem, warm_ups: list[int], before: Standing, held: Held, s: int) -> tuple[Warming, int]:
    if s == 0 and problem.physical_initial is None:
        return frozenset(), 0
    kept = set(_places(held & before.held))
    warming = {(place, serve) for place, serve in before.warming if place in kept and serve > s}
    warming |= {(place, s + warm_ups[m]) for place, m in held - before.held}
    next_epoch_step = before.next_epoch_step
    if held != before.held:
        next_epoch_step = s + max(warm_ups)
    # From the next step on all steps before it are the same.
    return frozenset(warming), next_epoch_step if next_epoch_step > s + 1 else 0


def _retraining_ways(problem: Problem, m: int, one: Progress, s: int) -> list[Progress]:
    """What tenant m's retraining may be in step s, given what it was in the step before."""
    if one.state == "running":
        is_over = Progress("done", one.level, None, one.end_step if one.profile else 0, one.profile, one.was_running)
        return [one if s < one.end_step else is_over]
    ways = [one]
    tenant = problem.tenants[m]
    if one.state == "waiting":
        start_s = tenant.overhead_s if tenant.retraining_start_s is None else tenant.retraining_start_s
        starting = _steps(problem, problem.switching_s + start_s)
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
