"""Schedules of retrainings, and what a window's problem says of every one of them; both cost models.

A schedule says when each retraining runs and on which profile. A *placed* schedule also says what each occupies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from executor.mig import Placement
from planner.arrays import Floats, Int64s, sums_before
from planner.counts import codes_fit, codes_of, multiset_of
from planner.course import opening_columns
from planner.feasibility import SearchLimitError, earliest_retrainings
from planner.gains import gain_tables
from planner.levels import LevelChange, level_changes, levels_of, lowered, running_changes, shares_of, swap_shares
from planner.problem import GainTable, Problem, Retraining

Token = TypeVar("Token")
"""What a retraining occupies: a profile name where counts decide, a placement where placements do."""

Answer = TypeVar("Answer")

Schedule = tuple[Retraining, ...]
"""The retrainings that start in the window, by tenant, at most one each."""

PlacedSchedule = tuple[tuple[Retraining, Token], ...]
"""The same, each with what it occupies."""

MOST_SEARCHED = 7
"""Tenants whose retrainings are moved in time and from profile to profile, alone and in pairs."""

TOLERANCE = 1e-12
"""Relative; values this close are the same one summed in another order."""


@dataclass(frozen=True, slots=True)
class Incumbent(Generic[Answer]):
    """The best answer that a search has found.

    Attributes:
        value: Goodput and salvage in requests; −inf where nothing was found.
        answer: What earns it.
        bound: What nothing exceeds; ∞ where that is not known.
    """

    value: float
    answer: Answer
    bound: float = np.inf


def best_of(found: Iterable[Incumbent[Answer]]) -> Incumbent[Answer] | None:
    """The one of the highest value, the first of equals."""
    return max(found, key=lambda incumbent: incumbent.value, default=None)


def above(value: float, share: float = TOLERANCE) -> float:
    """A value that is higher by ``share`` of its size; an infinite one is itself."""
    return value + share * abs(value) if np.isfinite(value) else value


def schedule_of(placed: PlacedSchedule[Token]) -> Schedule:
    """The retrainings without what they occupy."""
    return tuple(run for run, _ in placed)


def profiles_at(schedule: Schedule, step: int) -> tuple[str, ...]:
    """The profiles that the retrainings hold in ``step``."""
    return tuple(run.profile for run in schedule if run.start_step <= step < run.end_step)


def with_retraining(schedule: Schedule, retraining: Retraining | None) -> Schedule:
    """The schedule with one retraining more; itself for none."""
    return schedule if retraining is None else tuple(sorted((*schedule, retraining)))


def choices_of(problem: Problem, tenant: int) -> tuple[Retraining | None, ...]:
    """What the tenant may retrain in this window, started at step 0; ``None`` stands for not at all.

    Empty for a tenant that must retrain but for which nothing ends within the window.
    """
    own = problem.tenants[tenant]
    if not own.options or any(item.tenant == own.name for item in problem.opening.retrainings):
        return (None,)
    found = [
        Retraining(tenant, level, name, 0, problem.occupied_steps(own, option, name))
        for level, option in enumerate(own.options, start=1)
        for name in problem.profile_names
        if name in option.time_s
    ]
    in_time = [retraining for retraining in found if retraining.end_step <= problem.n_steps]
    return (*in_time,) if own.must_retrain else (None, *in_time)


def may_start(problem: Problem, tenant: int, retraining: Retraining | None) -> bool:
    """Whether this is one of the tenant's choices, started so that it ends within the window."""
    choices = choices_of(problem, tenant)
    if retraining is None:
        return None in choices
    return 0 <= retraining.start_step <= problem.n_steps - retraining.n_steps and retraining.at(0) in choices


def earliest_schedule(problem: Problem) -> Schedule | None:
    """The required retrainings, each as early as it fits; ``None`` if none were found within the search's limit."""
    try:
        found = earliest_retrainings(problem)
    except SearchLimitError:
        return None
    return None if found is None else tuple(sorted(found))


def sums_along(maxima: Floats) -> Floats:
    """The sum of per-step maxima before each step, and how many of them are −inf and left out, ``(2, n + 1)``."""
    is_void = np.isneginf(maxima)
    return sums_before(np.stack([np.where(is_void, 0.0, maxima), is_void]), axis=1)


def by_stage(n_steps: int, before: Floats, during: Floats, after: Floats) -> Floats:
    """What is earned by start of a retraining, from the :func:`sums_along` of each stage, ``(n_starts,)``."""
    last = before.shape[1] - n_steps
    worth, n_void = before[:, :last] + during[:, n_steps:] - during[:, :last] + after[:, -1:] - after[:, n_steps:]
    return np.where(n_void > 0, -np.inf, worth)


@dataclass(frozen=True)
class WindowFacts:
    """A window's problem with its gain tables, and what follows from both for every schedule.

    Attributes:
        problem: The problem.
        gains: Its gain tables.
    """

    problem: Problem
    gains: tuple[GainTable, ...]

    @classmethod
    def of(cls, problem: Problem) -> WindowFacts:
        """The facts of a problem, with its own or the simple gain tables."""
        return cls(problem, gain_tables(problem))

    @property
    def n_steps(self) -> int:
        """Steps of the window."""
        return self.problem.n_steps

    @property
    def is_free(self) -> bool:
        """Whether the first held set is free and serves at once."""
        return self.problem.initial is None

    @property
    def initial_held(self) -> frozenset[tuple[Placement, int]] | None:
        """(placement, holder) of what inference holds when the window opens; ``None`` if that is free.

        A holder is a place in ``Problem.partition``. What cannot serve its holder is left out: it goes at step 0, or
        there is no plan.
        """
        problem = self.problem
        if self.is_free:
            return None
        pairs = zip(problem.opening.held, problem.heirs, strict=True)
        return frozenset((item.placement, heir) for item, heir in pairs if problem.may_serve(heir, item.placement))

    @cached_property
    def kept_by_tenant(self) -> tuple[frozenset[tuple[Placement, int]], ...]:
        """By tenant, the part of ``initial_held`` in which it has a process when the window opens."""
        joins_at = self.problem.joins_at
        return tuple(
            frozenset((place, heir) for place, heir in self.initial_held or () if not joins_at(place, tenant))
            for tenant in self.problem.tenants
        )

    @cached_property
    def initial_columns(self) -> Int64s:
        """Each tenant's column by what serves it while the initial set is held, ``(first_step, n_tenants)``."""
        pairs = zip(self.problem.tenants, self.gains, strict=True)
        return np.stack([opening_columns(self.problem, *own, self.first_step) for own in pairs], axis=1)

    @property
    def first_step(self) -> int:
        """The first step at which the held set may differ from the initial one; within the window."""
        return min(self.problem.opening.next_epoch_step, self.n_steps)

    @cached_property
    def warm_steps(self) -> Int64s:
        """Ω_m, ``(n_tenants,)``."""
        return np.array([self.problem.warm_up_steps(tenant) for tenant in self.problem.tenants], dtype=np.int64)

    @cached_property
    def epoch_steps(self) -> int:
        """Ω."""
        return self.problem.epoch_steps

    def borders(self, schedule: Schedule) -> set[int]:
        """The steps in which these retrainings start and end, and slices become ours or others'."""
        found = {step for retraining in schedule for step in (retraining.start_step, retraining.end_step)}
        return found | {begin for begin, _, _ in self.problem.unavailable_spans[1:]}

    def around(self, steps: Iterable[int]) -> set[int]:
        """These steps and those an Ω before and after them, where the window has them."""
        near = {step + shift for step in steps for shift in (-self.epoch_steps, 0, self.epoch_steps)}
        return {step for step in near if 0 <= step < self.n_steps}

    @cached_property
    def running(self) -> PlacedSchedule[Placement]:
        """The retrainings in progress when the window opens; their outcome is option 0's."""
        names = self.problem.tenant_names
        return tuple(
            (Retraining(names.index(item.tenant), 1, item.placement.profile.name, 0, item.end_step), item.placement)
            for item in self.problem.opening.retrainings
        )

    @cached_property
    def choices(self) -> tuple[tuple[Retraining | None, ...], ...]:
        """:func:`choices_of` of every tenant."""
        return tuple(choices_of(self.problem, tenant) for tenant in range(len(self.problem.tenants)))

    def ways(self, tenant: int) -> tuple[Retraining, ...]:
        """The tenant's choices but for not retraining."""
        return tuple(way for way in self.choices[tenant] if way is not None)

    @cached_property
    def movers(self) -> tuple[int, ...]:
        """The tenants that may start a retraining."""
        return tuple(m for m, choices in enumerate(self.choices) if choices != (None,))

    @cached_property
    def searched(self) -> tuple[int, ...]:
        """The movers whose retrainings a search moves: all, or those with the most to gain a second of work."""
        if len(self.movers) <= MOST_SEARCHED:
            return self.movers
        return tuple(sorted(self._by_gain[:MOST_SEARCHED]))

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The other movers, most to gain a second of work first: they follow where there is room."""
        return tuple(m for m in self._by_gain if m not in self.searched)

    @cached_property
    def _by_gain(self) -> tuple[int, ...]:
        def gain_a_step(m: int) -> float:
            tenant = self.problem.tenants[m]
            requests = tenant.weight * float(tenant.arrivals_rps.sum()) * self.problem.step_s
            return max(
                ((tenant.accuracies[way.level] - tenant.accuracy_before) * requests + tenant.salvages[way.level])
                / way.n_steps
                for way in self.ways(m)
            )

        # A tenant that must retrain but has no way that ends in time comes first: there is no plan.
        gains = {m: gain_a_step(m) if self.ways(m) else np.inf for m in self.movers}
        return tuple(sorted(self.movers, key=lambda m: (-gains[m], m)))

    @cached_property
    def running_tenants(self) -> frozenset[int]:
        """The tenants whose retraining is in progress when the window opens."""
        return frozenset(run.tenant for run, _ in self.running)

    @cached_property
    def courses(self) -> tuple[tuple[Retraining | None, ...], ...]:
        """By tenant, what may raise its level: its choices, or nothing but the retraining in progress."""
        running = {run.tenant: run for run, _ in self.running}
        return tuple((running[m],) if m in running else choices for m, choices in enumerate(self.choices))

    @cached_property
    def actors(self) -> tuple[int, ...]:
        """The tenants whose level may rise in the window."""
        return tuple(m for m, courses in enumerate(self.courses) if courses != (None,))

    def salvage(self, schedule: Schedule) -> float:
        """What the levels at the window's end are worth beyond it under the schedule, in requests."""
        ended = {run.tenant: run.level for run in (*schedule_of(self.running), *schedule)}
        return sum(tenant.salvages[ended.get(m, 0)] for m, tenant in enumerate(self.problem.tenants))

    def best_salvage(self, tenant: int) -> float:
        """The most that a tenant's level at the window's end can be worth."""
        salvages = self.problem.tenants[tenant].salvages
        return max((salvages[way.level if way is not None else 0] for way in self.courses[tenant]), default=0.0)

    @property
    def most_salvage(self) -> float:
        """The most that levels at the window's end can be worth together."""
        return sum(self.best_salvage(m) for m in range(len(self.gains)))

    def changes(self, retraining: Retraining) -> tuple[LevelChange, ...]:
        """The steps at which a retraining, started or in progress, changes its tenant's level, ascending."""
        tenant = self.problem.tenants[retraining.tenant]
        if retraining.tenant in self.running_tenants:
            return running_changes(self.problem, tenant, retraining.profile, retraining.end_step)
        changes = level_changes(self.problem, tenant, retraining.level, retraining.profile)
        return tuple((retraining.start_step + step, level) for step, level in changes)

    def shares(self, retraining: Retraining) -> Floats:
        """What taking weights over leaves of each step's gains of its tenant, ``(n_steps,)``."""
        swap = swap_shares(self.problem, self.problem.tenants[retraining.tenant])
        return shares_of(self.changes(retraining), swap, self.n_steps)

    def along(self, retraining: Retraining, gains: Floats) -> Floats:
        """A tenant's gains, ``(n_levels, n_steps, …)``, at its levels under its retraining, ``(n_steps, …)``."""
        shares = self.shares(retraining).reshape(-1, *(1,) * (gains.ndim - 2))
        own: Floats = gains[levels_of(self.changes(retraining), self.n_steps), np.arange(self.n_steps)]
        return lowered(own, shares)

    def by_start(self, way: Retraining, gains: Floats, earned: Floats) -> Floats:
        """What a tenant earns that starts a way at each step, ``(n, n_starts)``.

        Args:
            way: The way, started at step 0.
            gains: By level, step and holding, ``(n_levels, n_steps, n)``.
            earned: Their sums before each step, ``(n_levels, n_steps + 1, n)``.
        """
        starts = np.arange(self.n_steps - way.n_steps + 1)
        if self.problem.tenants[way.tenant].swap_s > 0:
            return np.stack([self.along(way.at(int(start)), gains).sum(axis=0) for start in starts], axis=1)
        value: Floats = np.zeros((len(starts), gains.shape[2]))
        begin, level = np.zeros_like(starts), 0
        for step, later in self.changes(way.at(0)):
            value += earned[level][starts + step] - earned[level][begin]
            begin, level = starts + step, later
        value += earned[level][self.n_steps] - earned[level][begin]
        return value.T

    def added(self, way: Retraining) -> Floats:
        """The most that a way adds, by start, to what level 0 earns until its end and its own level from there on.

        That is its salvage, and what its checkpoints can earn more at best: by step, with what gains most by them
        beside the retraining. A way in progress has one start. ``(n_starts,)``.
        """
        tenant, is_running = self.problem.tenants[way.tenant], way.tenant in self.running_tenants
        starts = np.arange(1 if is_running else max(0, self.n_steps - way.n_steps + 1), dtype=np.int64)
        if not tenant.options[way.level - 1].checkpoints:
            return np.full(len(starts), tenant.salvages[way.level])
        if way not in self._added:
            added, run = np.full(len(starts), tenant.salvages[way.level]), way if is_running else way.at(0)
            changes = ((starts + step, level) for step, level in self.changes(run))
            first, last, end = np.zeros_like(starts), np.full_like(starts, self.n_steps), starts + run.end_step
            for (step, level), (until, _) in pairwise([(first, 0), *changes, (last, 0)]):
                added += self._more(way, level, 0, step, np.minimum(until, end))
                added += self._more(way, level, way.level, np.maximum(step, end), until)
            self._added[way] = added
        return self._added[way]

    @cached_property
    def _added(self) -> dict[Retraining, Floats]:
        return {}

    def _more(self, way: Retraining, level: int, least: int, step: Int64s, until: Int64s) -> Floats:
        """The most that a level can earn more than level ``least`` from each ``step`` to its ``until``, ``(n,)``."""
        if level == least or not (step < until).any():
            return np.zeros(len(step))
        key = (way.tenant, way.profile if least == 0 else "", level, least)
        if key not in self._sums_of_more:
            problem, table = self.problem, self.gains[way.tenant]
            beside = multiset_of(problem, [way.profile] if least == 0 else [])
            codes = codes_of(np.array(table.multisets)) + codes_of(np.array(beside))
            fits = codes_fit(problem.gpu, problem.profile_names, codes)
            kinds = [gains[:, :, fits] for gains in (table.steady, table.changed) if gains is not None]
            most = np.max([(gains[level] - gains[least]).max(axis=1, initial=0.0) for gains in kinds], axis=0)
            self._sums_of_more[key] = sums_before(most)
        own = self._sums_of_more[key]
        return np.where(step < until, own[until] - own[step], 0.0)

    @cached_property
    def _sums_of_more(self) -> dict[tuple[int, str, int, int], Floats]:
        return {}

    @cached_property
    def earned_by_level(self) -> tuple[Floats, ...]:
        """By tenant, what each column earns in the steps before s, ``(n_levels, n_steps + 1, n_columns)``."""
        return tuple(sums_before(table.steady, axis=1) for table in self.gains)

    @cached_property
    def earned_at_best(self) -> tuple[Floats, ...]:
        """By tenant, the same at the best level possible in that step, ``(n_steps + 1, n_columns)``."""
        return tuple(sums_before(self.best_steady(tenant)) for tenant in range(len(self.gains)))

    def earned(self, schedule: Schedule) -> Floats:
        """What each column earns before each step under the schedule, ``(n_tenants, n_steps + 1, n_columns)``."""
        most = max(len(table.multisets) for table in self.gains)
        out = np.zeros((len(self.gains), self.n_steps + 1, most))
        for tenant, by_level in enumerate(self.earned_by_level):
            out[tenant, :, : by_level.shape[2]] = by_level[0]
        for retraining in (*schedule, *schedule_of(self.running)):
            if self.problem.tenants[retraining.tenant].has_swaps:
                own = self.along(retraining, self.gains[retraining.tenant].steady)
                out[retraining.tenant, 1:, : own.shape[1]] = np.cumsum(own, axis=0)
                continue
            by_level, end = self.earned_by_level[retraining.tenant], retraining.end_step
            tail = by_level[0, end] + (by_level[retraining.level, end:] - by_level[retraining.level, end])
            out[retraining.tenant, end:, : by_level.shape[2]] = tail
        return out

    def earned_at_levels(self, levels: Sequence[int | None]) -> Floats:
        """The same when every tenant keeps one level throughout; ``None`` takes the best possible in each step."""
        most = max(len(table.multisets) for table in self.gains)
        out = np.zeros((len(self.gains), self.n_steps + 1, most))
        for tenant, own in enumerate(self.earned_by_tenant(levels)):
            out[tenant, :, : own.shape[1]] = own
        return out

    def earned_by_tenant(self, levels: Sequence[int | None]) -> list[Floats]:
        """The same by tenant, ``(n_steps + 1, n_columns)`` each: no copies."""
        own = zip(levels, self.earned_by_level, self.earned_at_best, strict=True)
        return [at_best if level is None else by_level[level] for level, by_level, at_best in own]

    def best_steady(self, tenant: int) -> Floats:
        """What each column earns in each step at the best level possible there, ``(n_steps, n_columns)``."""
        steady = self.gains[tenant].steady
        best: Floats = steady[0].copy()
        for retraining in self.courses[tenant]:
            if retraining is not None:
                for step, level in self.changes(retraining):
                    best[step:] = np.maximum(best[step:], steady[level, step:])
        return best

    def placements(self, retraining: Retraining) -> tuple[Placement, ...]:
        """Where the retraining's instance may sit."""
        places = self.problem.gpu.placements([retraining.profile])
        return tuple(p for p in places if self.problem.is_ours(p, retraining.start_step, retraining.end_step))

    def can_stand(self, placed: PlacedSchedule[Placement]) -> bool:
        """Whether these retrainings, and those in progress, leave each other and what is not ours alone."""
        runs = (*placed, *self.running)
        moments = {run.start_step for run, _ in runs}
        are_ours = (self.problem.is_ours(place, run.start_step, run.end_step) for run, place in placed)
        return all(are_ours) and all(
            self.problem.gpu.fits([place for run, place in runs if run.start_step <= step < run.end_step])
            for step in moments
        )
