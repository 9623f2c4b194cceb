"""From a `paper` plan to held sets and placed retrainings that hardware can have.

A `paper` plan names profiles only, may change in every step, and may move everything in every step. Here

- each retraining starts when the plan says, on a placement that it keeps. Of the ways to place all of them, the one is
  taken beside which the wanted set fits in most steps;
- the held set changes at epochs, Ω apart. A change that is wanted earlier waits, and then what is wanted *then* is
  taken. Of the wanted held sets that fit beside every retraining up to the next possible epoch, the one that keeps
  most capability is taken, then the one with most of the new capability on slices that are idle;
- a set that fits now, but not beside a retraining that starts before the next possible epoch, waits for that start;
- where no wanted set fits, the held set is taken that fits and has the highest min(a, C) up to the next possible
  epoch. This is done once for each change of what is wanted or retrains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Floats, Int64s
from planner.counts import multiset_of
from planner.engines.physical.held_sets import Entries, Held, HeldSets
from planner.engines.schedule import PlacedSchedule, Schedule, WindowFacts
from planner.plan import MigPlan
from planner.problem import Retraining

MOST_WAYS = 2_000
"""Ways to place the retrainings that are looked at; all of them for two retrainings."""

MOST_TRIALS = 20
"""Ways to place the retrainings, the best first, beside which held sets are looked for."""


@dataclass(frozen=True)
class Realised:
    """What a plan comes to on hardware.

    Attributes:
        held: (step, what inference holds from there on): the window's start, then every epoch.
        placed: The retrainings with their placements.
        n_planned_changes: Steps after the first in which the plan itself changes some tenant's profiles.
    """

    held: Held
    placed: PlacedSchedule[Placement]
    n_planned_changes: int


def realised(facts: WindowFacts, plan: MigPlan) -> Realised | None:
    """The `paper` plan as placements over time; ``None`` if no way was found.

    Args:
        facts: Of the ``physical`` problem, without retrainings in progress.
        plan: A plan of the steps from ``facts.first_step`` on; its retrainings last as long as they do physically.
    """
    ground, wanted = _Ground.of(facts), _wanted(facts, plan)
    for placed in ground.ways(_schedule(facts, plan), wanted)[:MOST_TRIALS]:
        held = _walk(ground, wanted, placed)
        if held is not None:
            changes = {span.from_step for schedule in plan.schedules for span in schedule.inference} - {0}
            return Realised(held, placed, len(changes))
    return None


def busy_in(placed: PlacedSchedule[Placement], start_step: int, end_step: int) -> frozenset[frozenset[Placement]]:
    """What retrainings hold together at the moments of ``[start_step, end_step)``."""
    starts = {run.start_step for run, _ in placed if start_step < run.start_step < end_step}
    ends = {run.end_step for run, _ in placed if start_step < run.end_step < end_step}
    return frozenset(
        frozenset(place for run, place in placed if run.start_step <= step < run.end_step)
        for step in starts | ends | {start_step}
    )


def _wanted(facts: WindowFacts, plan: MigPlan) -> Int64s:
    """The columns of the gain tables that the plan asks for, ``(n_steps, n_tenants)``; 0 before its first step."""
    out = np.zeros((facts.n_steps, len(facts.gains)), dtype=np.int64)
    for m, (table, schedule) in enumerate(zip(facts.gains, plan.schedules, strict=True)):
        for span in schedule.inference:
            column = table.column[multiset_of(facts.problem, span.profiles)]
            out[facts.first_step + span.from_step : facts.first_step + span.to_step, m] = column
    return out


def _schedule(facts: WindowFacts, plan: MigPlan) -> Schedule:
    """The plan's retrainings."""
    tenants, first = facts.problem.tenants, facts.first_step
    runs = ((m, schedule.retraining) for m, schedule in enumerate(plan.schedules))
    return tuple(
        Retraining(m, tenants[m].level_of(run.option), run.profile, first + run.start_step, first + run.end_step)
        for m, run in runs
        if run is not None
    )


@dataclass(frozen=True)
class _Ground:
    """All held sets of a problem, and which of them fit beside which retrainings."""

    facts: WindowFacts
    sets: HeldSets
    columns: Int64s
    _fitting: dict[tuple[frozenset[Placement], int], Bools] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: WindowFacts) -> _Ground:
        sets = HeldSets.of(facts.problem)
        return cls(facts, sets, sets.columns(facts.gains))

    def layouts_beside(self, busy: frozenset[Placement], start_step: int, end_step: int) -> Bools:
        """Whether each layout fits beside these retrainings, and others' instances then, ``(n_layouts,)``."""
        mask = self.facts.problem.unavailable_in(start_step, end_step)
        if (busy, mask) not in self._fitting:
            table, ordered = self.sets.table, sorted(busy, key=lambda place: place.sort_key)
            # Where others' instances come only later, a retraining may have ended before.
            fits = table.fits_beside(self.facts.problem.gpu, ordered)
            self._fitting[busy, mask] = fits & (table.memory & mask == 0)
        return self._fitting[busy, mask]

    def fitting(self, placed: PlacedSchedule[Placement], start_step: int, end_step: int) -> Bools:
        """Whether each held set fits beside the retrainings all through ``[start_step, end_step)``, ``(n,)``."""
        moments = busy_in(placed, start_step, end_step)
        beside = [self.layouts_beside(busy, start_step, end_step) for busy in moments]
        return np.asarray(np.all(beside, axis=0)[self.sets.layout], dtype=np.bool_)

    @cached_property
    def capacity(self) -> tuple[Floats, ...]:
        """C in requests by the columns of each tenant's gain table."""
        problem = self.facts.problem
        pairs = zip(problem.tenants, self.facts.gains, strict=True)
        return tuple(problem.step_s * np.array(table.multisets) @ problem.rates_rps(tenant) for tenant, table in pairs)

    @cached_property
    def parts(self) -> tuple[Int64s, Int64s, Floats]:
        """By held set and instance: a code of placement and owner (−1 beyond the end), memory mask, capability."""
        places, owners = self.sets.table.places, self.sets.owners
        rates = np.zeros((len(places) + 1, len(self.facts.problem.tenants) + 1))
        for m, tenant in enumerate(self.facts.problem.tenants):
            rates[:-1, m] = [tenant.capability_rps.get(place.profile.name, 0.0) for place in places]
        masks = np.array([*(place.memory_mask for place in places), 0], dtype=np.int64)
        at = self.sets.table.place_of[self.sets.layout]  # −1 beyond the end, where all is 0
        return np.where(owners >= 0, at * len(rates[0]) + owners, -1), masks[at], rates[at, owners]

    def nearest_to(self, candidates: Bools, current: int | None, busy: frozenset[Placement]) -> int:
        """Of the candidates the one that keeps most of the current one, then has most of the new on idle slices."""
        numbers = np.flatnonzero(candidates)
        if current is None:
            return int(numbers[0])
        codes, masks, rates = self.parts
        taken = int(np.bitwise_or.reduce(masks[current])) | sum(place.memory_mask for place in busy)
        is_kept = np.isin(codes[numbers], codes[current]) & (codes[numbers] >= 0)
        kept = np.where(is_kept, rates[numbers], 0.0).sum(axis=1)
        idle = np.where(~is_kept & (masks[numbers] & taken == 0), rates[numbers], 0.0).sum(axis=1)
        return int(numbers[np.lexsort((-np.round(idle, 6), -np.round(kept, 6)))[0]])

    def served(self, placed: PlacedSchedule[Placement], start_step: int, end_step: int) -> Floats:
        """What each held set is worth in ``[start_step, end_step)`` by min(a, C), at the accuracies then, ``(n,)``."""
        problem, value = self.facts.problem, np.zeros(len(self.sets))
        for m, tenant in enumerate(problem.tenants):
            level = max((r.level for r, _ in placed if r.tenant == m and r.end_step <= start_step), default=0)
            arrivals = problem.step_s * tenant.arrivals_rps[start_step:end_step, None]
            own = np.minimum(arrivals, self.capacity[m]).sum(axis=0) * tenant.weight * tenant.accuracies[level]
            value += own[self.columns[:, m]]
        return value

    def ways(self, schedule: Schedule, wanted: Int64s) -> list[PlacedSchedule[Placement]]:
        """Ways to place the retrainings beside which some held set fits at all times, the best first."""
        found = ((self._n_fitting(way, wanted), way) for way in islice(_placed(self.facts, schedule), MOST_WAYS))
        valid = [(score, way) for score, way in found if score is not None]
        return [way for _, way in sorted(valid, key=lambda item: -item[0])]

    def _n_fitting(self, placed: PlacedSchedule[Placement], wanted: Int64s) -> int | None:
        """Steps in which the wanted set fits beside the retrainings; ``None`` if in some step no set fits."""
        edges = {run.start_step for run, _ in placed} | {run.end_step for run, _ in placed}
        edges |= {step for step, _, _ in self.facts.problem.unavailable_spans if step > self.facts.first_step}
        n_fitting = 0
        for start, end in pairwise(sorted(edges | {self.facts.first_step, self.facts.n_steps})):
            (busy,) = busy_in(placed, start, start + 1)
            fits = self.layouts_beside(busy, start, end)
            if not fits[self.sets.layout].any():
                return None
            there = set(map(tuple, self._counts[fits].tolist()))
            asked = Counter(map(tuple, wanted[start:end].tolist()))
            n_fitting += sum(n for columns, n in asked.items() if self._total(columns) in there)
        return n_fitting

    @cached_property
    def _counts(self) -> Int64s:
        return self.sets.table.counts(self.facts.problem.profile_names)

    def _total(self, columns: Sequence[int]) -> tuple[int, ...]:
        """The profiles that the tenants hold together."""
        own = [table.multisets[column] for table, column in zip(self.facts.gains, columns, strict=True)]
        return tuple(map(sum, zip(*own, strict=True)))


def _placed(
    facts: WindowFacts, schedule: Schedule, placed: PlacedSchedule[Placement] = ()
) -> Iterator[PlacedSchedule[Placement]]:
    """Every way to place the retrainings so that they leave each other alone."""
    if len(placed) == len(schedule):
        yield placed
        return
    run = schedule[len(placed)]
    for place in facts.placements(run):
        longer = (*placed, (run, place))
        if facts.can_stand(longer):
            yield from _placed(facts, schedule, longer)


def _walk(ground: _Ground, wanted: Int64s, placed: PlacedSchedule[Placement]) -> Held | None:
    """The held sets, epoch by epoch; ``None`` if at some step a retraining leaves room for none."""
    facts = ground.facts
    initial = facts.initial_held
    held: list[tuple[int, Entries]] = [] if initial is None else [(0, initial)]
    current = None if initial is None else ground.sets.index(initial)
    allowed, answered = facts.first_step, None
    for step in range(facts.first_step, facts.n_steps):
        if step < allowed:
            continue
        (busy,) = busy_in(placed, step, step + 1)
        beside = ground.layouts_beside(busy, step, step + 1)
        may_stay = current is not None and bool(beside[ground.sets.layout[current]])
        asked = (tuple(wanted[step].tolist()), busy, facts.problem.unavailable_in(step, step + 1))
        if may_stay and (asked == answered or (ground.columns[current] == wanted[step]).all()):
            continue
        # The first held set of a window that starts from nothing is no epoch: the next may follow at once.
        until = step + (facts.epoch_steps if held else 1)
        candidates = _candidates(ground, placed, wanted, step, until, may_stay=may_stay)
        if not candidates.any():
            if may_stay:
                continue
            return None
        answered, chosen = asked, ground.nearest_to(candidates, current, busy)
        if chosen != current:
            held.append((step, ground.sets.entries(chosen)))
            current, allowed = chosen, until
    return tuple(held)


def _candidates(
    ground: _Ground, placed: PlacedSchedule[Placement], wanted: Int64s, step: int, until: int, *, may_stay: bool
) -> Bools:
    """The held sets to choose from at an epoch; none if the wanted set waits for a retraining's start."""
    is_wanted = np.all(ground.columns == wanted[step], axis=1)
    is_fine = is_wanted & ground.fitting(placed, step, until)
    waits = may_stay and bool((is_wanted & ground.fitting(placed, step, step + 1)).any())
    if is_fine.any() or waits:
        return np.asarray(is_fine, dtype=np.bool_)
    return _best(ground, placed, step, until)


def _best(ground: _Ground, placed: PlacedSchedule[Placement], step: int, until: int) -> Bools:
    """The held sets that fit up to ``until`` and have the highest min(a, C) of those."""
    fits = ground.fitting(placed, step, until)
    value = np.where(fits, ground.served(placed, step, min(until, ground.facts.n_steps)), -np.inf)
    best = value.max(initial=-np.inf)
    return fits & (value >= best - 1e-9 * abs(best)) if np.isfinite(best) else fits
