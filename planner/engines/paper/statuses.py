"""``paper``: a bound for any number of tenants that retrain, by pricing how long retrainings take.

Split in two: all tenants' layouts, with every tenant's status (waiting, running on a profile, done at
a level) free to change whenever it likes, as one longest path; and for each
tenant a schedule of its own, whose duration is right. Multipliers on (step, tenant, status) are what
the path pays for a status and the schedule is paid for it; where both agree nothing is lost. What remains between
this bound and the best plan is small, most often nothing, because layouts, change costs and room are
exact in the path, and only durations are relaxed.

The multipliers are made better by sweeps (``exact_sweep_kernel``), none of which raises the bound, and
which leave out what cannot be part of a better plan.

Every schedule of a tenant falls short of its best one by a *slack*. The bound less the slacks of a
combination of schedules bounds that combination, so with a good plan known few are left to value.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from planner.engines.arrays import Floats
from planner.engines.paper.states import Joint
from planner.engines.paper.status_blocks import blocks_of
from planner.engines.paper.status_vectors import StatusVectors
from planner.engines.paper.sweep_arrays import Schedules, Sweep
from planner.engines.paper.sweeps import sweep_back, sweep_forth
from planner.engines.schedule import RetrainingChoice, RetrainingChoices, choices_of

_ROUNDING = 1e-9
"""What is left out is below the known plan's value by more than this share of it."""


class Statuses:
    """The relaxation of one problem.

    Args:
        joint: The problem.
        actors: The tenants that may retrain.
        multipliers: To begin with, see ``from_prices``; ``None`` for none.

    Attributes:
        bound: On every plan that is better than the best one that a sweep was told of; −inf where none can be.
    """

    def __init__(self, joint: Joint, actors: Sequence[int], multipliers: Floats | None = None) -> None:
        self._joint, self._actors = joint, tuple(actors)
        ways = ways_of(joint, actors)
        vectors = StatusVectors(joint, actors, ways)
        self._ways = [way for own in ways for way in own]
        self._sweep = self._prepared(vectors, ways, multipliers)
        self.bound = self._improve(0.0, -np.inf)

    def sweep(self, share: float, value: float) -> float:
        """The bound after a sweep forth and back that moves this share of what differs; ``value`` is a plan's."""
        floor = value - _ROUNDING * abs(value) if np.isfinite(value) else -np.inf
        self.bound = min(self.bound, self._improve(share, floor))
        return self.bound

    @property
    def n_left(self) -> int:
        """How many combinations of schedules are not left out."""
        n_left = 1
        for a in range(len(self._actors)):
            n_left *= sum(int(np.isfinite(worth).sum()) for _, worth in self._worths(a)) + int(self._may_idle(a))
        return n_left

    def combinations(self, gap: float) -> Iterator[tuple[float, RetrainingChoices]]:
        """Combinations of schedules whose slacks sum up to at most ``gap``, least first, with that sum.

        A combination's value is at most that of paths and schedules now, which ``bound`` is unless
        rounding has raised it, less its slacks.
        """
        ranked = [self._ranked(a, gap) for a in range(len(self._actors))]
        if not all(ranked):
            return
        start = (0,) * len(ranked)
        heap = [(sum(options[0][0] for options in ranked), start)]
        while heap:
            total, index = heapq.heappop(heap)
            if total > gap:
                return
            yield total, self._choices([options[i][1] for options, i in zip(ranked, index, strict=True)])
            # Each index tuple has one parent: the one with its last non-zero entry lowered.
            last = max((a for a, i in enumerate(index) if i), default=0)
            for a in range(last, len(ranked)):
                if index[a] + 1 < len(ranked[a]):
                    more = total + ranked[a][index[a] + 1][0] - ranked[a][index[a]][0]
                    heapq.heappush(heap, (more, (*index[:a], index[a] + 1, *index[a + 1 :])))

    def slack_of(self, choices: RetrainingChoices) -> dict[int, float]:
        """How far each actor's retraining falls short of its own best, by tenant; ∞ for one that is left out."""
        found = {}
        for a, m in enumerate(self._actors):
            choice = choices[m]
            worth = float(self._sweep.schedules.idle[a]) if choice is None else -np.inf
            for way, worths in self._worths(a):
                if choice is not None and choice == way.at(choice.start_step):
                    worth = float(worths[choice.start_step])
            best = self._best_of(a)
            found[m] = best - worth if np.isfinite(worth) else np.inf
        return found

    def _improve(self, share: float, floor: float) -> float:
        sweep_forth(self._sweep, share, floor)
        path = sweep_back(self._sweep, share, floor)
        return path + sum(self._best_of(a) for a in range(len(self._actors)))

    def _worths(self, a: int) -> Iterator[tuple[RetrainingChoice, Floats]]:
        """An actor's ways with what they are paid by start."""
        schedules = self._sweep.schedules
        for number in range(schedules.bounds[a], schedules.bounds[a + 1]):
            yield self._ways[number], schedules.worth[number]

    def _may_idle(self, a: int) -> bool:
        return bool(np.isfinite(self._sweep.schedules.idle[a]))

    def _ranked(self, a: int, gap: float) -> list[tuple[float, RetrainingChoice | None]]:
        best = self._best_of(a)
        if not np.isfinite(best):
            return []
        found: list[tuple[float, RetrainingChoice | None]] = []
        for way, worth in self._worths(a):
            found += [(best - float(worth[i]), way.at(int(i))) for i in np.flatnonzero(np.isfinite(worth))]
        if self._may_idle(a):
            found.append((best - float(self._sweep.schedules.idle[a]), None))
        return sorted((item for item in found if item[0] <= gap), key=lambda item: item[0])

    def _best_of(self, a: int) -> float:
        """What an actor's best schedule is paid."""
        ways = (float(worth.max()) for _, worth in self._worths(a))
        return max(float(self._sweep.schedules.idle[a]), *ways)

    def _choices(self, chosen: Sequence[RetrainingChoice | None]) -> RetrainingChoices:
        out: list[RetrainingChoice | None] = [None] * len(self._joint.problem.tenants)
        for m, choice in zip(self._actors, chosen, strict=True):
            out[m] = choice
        return tuple(out)

    def _prepared(
        self, vectors: StatusVectors, ways: Sequence[Sequence[RetrainingChoice]], multipliers: Floats | None
    ) -> Sweep:
        problem, n_actors = self._joint.problem, len(self._actors)
        blocks, columns = blocks_of(self._joint, vectors), vectors.columns
        paid = np.zeros((problem.n_steps, n_actors, vectors.n_statuses))
        if multipliers is not None:
            paid[:, :, :-1] = multipliers
        prices = np.ascontiguousarray(sum(paid[:, a][:, columns[a]] for a in range(n_actors)))
        schedules = Schedules(
            duration=np.array([way.end_step for way in self._ways], dtype=np.int64),
            running=np.array([vectors.column(("runs", way.profile_index)) for way in self._ways], dtype=np.int64),
            done=np.array([vectors.column(("done", way.option_index + 1)) for way in self._ways], dtype=np.int64),
            bounds=np.cumsum([0, *map(len, ways)], dtype=np.int64),
            worth=np.full((len(self._ways), problem.n_steps), -np.inf),
            left=np.array([(0, problem.n_steps - way.end_step + 1) for way in self._ways], dtype=np.int64),
            idle=np.array([-np.inf if problem.tenants[m].must_retrain else 0.0 for m in self._actors]),
        )
        for a in range(n_actors):
            _pay_all(schedules, a, paid[:, a])
        no_path = np.empty_like(blocks.earned), np.zeros_like(blocks.earned)
        return Sweep(blocks, columns, vectors.n_statuses, schedules, prices, *no_path)


def ways_of(joint: Joint, actors: Sequence[int]) -> list[tuple[RetrainingChoice, ...]]:
    """By actor, its options and profiles as schedules that start in step 0."""
    return [choices_of(joint.problem, joint.problem.tenants[m]) for m in actors]


def from_prices(joint: Joint, actors: Sequence[int], prices: Floats, switched: Sequence[Floats]) -> Floats:
    """Multipliers that are about as good as prices of instances (``planner.engines.prices``).

    Running costs the instance's price; being done in a step is worth what the tenant alone gains
    by a level that is there one step earlier.
    """
    ways, n_profiles = ways_of(joint, actors), len(joint.problem.profile_names)
    n_levels = max(way.option_index + 1 for own in ways for way in own)
    out = np.zeros((joint.problem.n_steps, len(ways), n_profiles + n_levels))
    for a, m in enumerate(actors):
        out[:, a, :n_profiles] = -prices
        for level in range(1, len(switched[m])):
            by_end = switched[m][level].copy()
            first = min((way.end_step for way in ways[a] if way.option_index + 1 == level), default=None)
            if first is not None:
                by_end[:first] = by_end[first]
                out[:, a, n_profiles + level - 1] = by_end[:-1] - by_end[1:]
    return out


def _pay_all(schedules: Schedules, a: int, paid: Floats) -> None:
    """Pay an actor's schedules, which had nothing, what each status is worth, ``(n_steps, X)``."""
    n_steps, waiting = len(paid), paid.shape[1] - 1
    sums = np.concatenate([np.zeros((1, paid.shape[1])), np.cumsum(paid, axis=0)])
    schedules.idle[a] += sums[n_steps, waiting]
    for number in range(schedules.bounds[a], schedules.bounds[a + 1]):
        start = np.arange(n_steps - schedules.duration[number] + 1)
        end, running, done = start + schedules.duration[number], schedules.running[number], schedules.done[number]
        schedules.worth[number, : len(start)] = (
            sums[start, waiting] + sums[end, running] - sums[start, running] + sums[n_steps, done] - sums[end, done]
        )
