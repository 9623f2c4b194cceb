"""``paper``: a bound for any number of tenants that retrain, by pricing how long retrainings take.

Split in two: all tenants' layouts, with every tenant's status (waiting, running on a profile, done at
a level) free to change whenever it likes, as one longest path (``exact_status_kernel``); and for each
tenant a schedule of its own, whose duration is right. Multipliers on (step, tenant, status) are what
the path pays for a status and the schedule is paid for it; where both agree nothing is lost. What remains between
this bound and the best plan is small, most often nothing, because layouts, change costs and room are
exact in the path, and only durations are relaxed.

Every schedule of a tenant falls short of its best one by a *slack*. The bound less the slacks of a
combination of schedules bounds that combination, so with a good plan known few are left to value.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner.engines.exact_kernel import Floats
from planner.engines.exact_status_kernel import status_path
from planner.engines.joint import Joint
from planner.engines.joint_groups import ListGroups
from planner.engines.schedule import RetrainingChoice, RetrainingChoices, choices_of

_Int64s = NDArray[np.int64]

_WAITS = ("waits", 0)
_Status = tuple[str, int]
"""``waits``, ``runs`` on a profile index, or ``done`` at a level."""


class Statuses:
    """The relaxation of one problem; calling it evaluates it at multipliers.

    Attributes:
        shape: Of the multipliers, ``(n_steps, n_actors, n_profiles + n_levels)``: of running on each
            profile, then of being done at each level; waiting is free.
        bound: From the last call.
        schedule: The tenants' own best schedules, from the last call.
    """

    def __init__(self, joint: Joint, actors: Sequence[int]) -> None:
        problem = joint.problem
        self._joint, self._actors = joint, tuple(actors)
        self._n_profiles = len(problem.profile_names)
        self._ways = [choices_of(problem, problem.tenants[m]) for m in actors]
        self._optional = [not problem.tenants[m].must_retrain for m in actors]
        n_levels = max(way.option_index + 1 for ways in self._ways for way in ways)
        self.shape = (problem.n_steps, len(self._actors), self._n_profiles + n_levels)
        # Schedules that could be part of a better plan; the last entry stands for not retraining.
        self._alive = [
            [*(np.ones(problem.n_steps - way.end_step + 1, dtype=np.bool_) for way in ways), np.array([optional])]
            for ways, optional in zip(self._ways, self._optional, strict=True)
        ]
        self._vectors = self._all_vectors()
        self._number = {vector: i for i, vector in enumerate(self._vectors)}
        self._ends = self._all_ends()
        self._before, self._before_bounds = self._all_before()
        self._beside = np.array([self._list_of(vector) for vector in self._vectors], dtype=np.int64)
        self._levels, number = np.unique(
            np.array([self._levels_of(vector) for vector in self._vectors], dtype=np.int32), axis=0, return_inverse=True
        )
        self._possible = self._windows()
        self._number_of_levels = number.reshape(-1).astype(np.int64)
        self._columns = np.array([[self._column(status) for status in vector] for vector in self._vectors])
        self._groups = ListGroups.of(joint)
        bounds = self._groups.bounds
        n_entries = int((bounds[self._beside + 1] - bounds[self._beside]).sum())
        self._values = np.empty((problem.n_steps, n_entries))
        self._course = np.zeros(problem.n_steps, dtype=np.int64)
        self._worth: list[list[Floats]] = []
        self.bound = np.inf
        self.schedule: RetrainingChoices = (None,) * len(problem.tenants)

    def __call__(self, multipliers: Floats) -> tuple[float, Floats]:
        """The bound and its slope."""
        joint = self._joint
        free = np.concatenate([multipliers, np.zeros((*multipliers.shape[:2], 1))], axis=2)
        prices = sum(free[:, a][:, self._columns[:, a]] for a in range(len(self._actors)))
        self.bound = status_path(
            joint.steady,
            joint.loss,
            joint.group,
            joint.opening,
            self._groups.lists,
            self._groups.bounds,
            self._groups.slots,
            self._groups.parent,
            self._groups.raised,
            self._groups.raised_bounds,
            self._groups.n_groups,
            self._beside,
            self._levels,
            self._number_of_levels,
            self._ends,
            self._before,
            self._before_bounds,
            self._possible,
            np.ascontiguousarray(prices),
            self._values,
            self._course,
        )
        slope = self._path_slope()
        self._worth = self._schedule_worths(multipliers)
        taken: list[RetrainingChoice | None] = [None] * len(joint.problem.tenants)
        for a, m in enumerate(self._actors):
            value, choice = self._best_of(a)
            self.bound += value
            taken[m] = choice
            if choice is not None:
                slope[choice.start_step : choice.end_step, a, choice.profile_index] += 1.0
                slope[choice.end_step :, a, self._n_profiles + choice.option_index] += 1.0
        self.schedule = tuple(taken)
        return self.bound, slope

    def from_prices(self, prices: Floats, switched: Sequence[Floats]) -> Floats:
        """Multipliers that are about as good as prices of instances (``planner.engines.prices``).

        Running costs the instance's price; being done in a step is worth what the tenant alone gains
        by a level that is there one step earlier.
        """
        out = np.zeros(self.shape)
        for a, m in enumerate(self._actors):
            out[:, a, : self._n_profiles] = -prices
            for level in range(1, len(switched[m])):
                by_end = switched[m][level].copy()
                first = min((way.end_step for way in self._ways[a] if way.option_index + 1 == level), default=None)
                if first is not None:
                    by_end[:first] = by_end[first]
                    out[:, a, self._n_profiles + level - 1] = by_end[:-1] - by_end[1:]
        return out

    def combinations(self, gap: float) -> Iterator[tuple[float, RetrainingChoices]]:
        """Combinations of schedules whose slacks sum up to at most ``gap``, least first, with that sum.

        As of the last call; a combination's value is at most ``bound`` less its slacks.
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
        """How far each actor's retraining falls short of its own best, as of the last call, by tenant."""
        found = {}
        for a, m in enumerate(self._actors):
            worth, choice = 0.0, choices[m]
            for way, worths in zip(self._ways[a], self._worth[a], strict=True):
                if choice is not None and choice == way.at(choice.start_step):
                    worth = float(worths[choice.start_step])
            found[m] = self._best_of(a)[0] - worth
        return found

    def narrow(self, gap: float) -> int:
        """Leave out schedules whose slack, as of the last call, is above ``gap``; how many combinations are left.

        From then on bounds hold for what is better than the plan that is ``gap`` below the last one.
        """
        n_left = 1
        for a, (alive, worths) in enumerate(zip(self._alive, self._worth, strict=True)):
            least = self._best_of(a)[0] - gap
            for way, worth in enumerate([*worths, np.zeros(1)]):
                alive[way] &= worth >= least
            n_left *= sum(int(kept.sum()) for kept in alive)
        if n_left:
            self._possible = self._windows()
        return n_left

    def _ranked(self, a: int, gap: float) -> list[tuple[float, RetrainingChoice | None]]:
        best, _ = self._best_of(a)
        found: list[tuple[float, RetrainingChoice | None]] = []
        for way, worth in zip(self._ways[a], self._worth[a], strict=True):
            found += [(best - float(worth[i]), way.at(int(i))) for i in np.flatnonzero(worth >= best - gap)]
        if self._alive[a][-1][0] and best <= gap:
            found.append((best, None))
        return sorted(found, key=lambda item: item[0])

    def _best_of(self, a: int) -> tuple[float, RetrainingChoice | None]:
        best: tuple[float, RetrainingChoice | None] = (0.0 if self._alive[a][-1][0] else -np.inf, None)
        for way, worth in zip(self._ways[a], self._worth[a], strict=True):
            start = int(worth.argmax())
            if worth[start] > best[0]:
                best = float(worth[start]), way.at(start)
        return best

    def _choices(self, chosen: Sequence[RetrainingChoice | None]) -> RetrainingChoices:
        out: list[RetrainingChoice | None] = [None] * len(self._joint.problem.tenants)
        for m, choice in zip(self._actors, chosen, strict=True):
            out[m] = choice
        return tuple(out)

    def _schedule_worths(self, multipliers: Floats) -> list[list[Floats]]:
        """What each schedule is paid, by actor and way, ``(n_starts,)``."""
        n_steps = len(multipliers)
        sums = np.concatenate([np.zeros((1, *multipliers.shape[1:])), np.cumsum(multipliers, axis=0)])
        out = []
        for a, ways in enumerate(self._ways):
            worths = []
            for way, alive in zip(ways, self._alive[a], strict=False):
                start = np.arange(n_steps - way.end_step + 1)
                end, done = start + way.end_step, self._n_profiles + way.option_index
                running = sums[end, a, way.profile_index] - sums[start, a, way.profile_index]
                worths.append(np.where(alive, running + sums[n_steps, a, done] - sums[end, a, done], -np.inf))
            out.append(worths)
        return out

    def _path_slope(self) -> Floats:
        slope = np.zeros(self.shape)
        steps = np.arange(self.shape[0])
        for a in range(len(self._actors)):
            columns = self._columns[self._course, a]
            is_priced = columns >= 0
            slope[steps[is_priced], a, columns[is_priced]] -= 1.0
        return slope

    # What does not depend on the multipliers.

    def _all_vectors(self) -> list[tuple[_Status, ...]]:
        vectors: list[tuple[_Status, ...]] = [()]
        for ways in self._ways:
            running = [("runs", profile) for profile in sorted({way.profile_index for way in ways})]
            done = [("done", level) for level in sorted({way.option_index + 1 for way in ways})]
            longer = ((*vector, status) for vector in vectors for status in (_WAITS, *running, *done))
            vectors = [vector for vector in longer if self._has_room(vector)]
        return vectors

    def _has_room(self, vector: tuple[_Status, ...]) -> bool:
        return len(self._joint.fitting([value for kind, value in vector if kind == "runs"])) > 0

    def _list_of(self, vector: tuple[_Status, ...]) -> int:
        counts = [0] * self._n_profiles
        for kind, value in vector:
            if kind == "runs":  # the value is a profile; of one that is done it is a level
                counts[value] += 1
        return self._joint.list_number(tuple(counts))

    def _levels_of(self, vector: tuple[_Status, ...]) -> list[int]:
        levels = [0] * len(self._joint.problem.tenants)
        for m, (kind, value) in zip(self._actors, vector, strict=True):
            levels[m] = value if kind == "done" else 0
        return levels

    def _column(self, status: _Status) -> int:
        kind, value = status
        return {"waits": -1, "runs": value, "done": self._n_profiles + value - 1}[kind]

    def _all_ends(self) -> _Int64s:
        """(to, from): one actor's retraining ends; by actor, so that several can end in one step."""
        found = []
        for a, ways in enumerate(self._ways):
            for vector, number in self._number.items():
                kind, level = vector[a]
                for profile in sorted(
                    {w.profile_index for w in ways if kind == "done" and w.option_index + 1 == level}
                ):
                    source = (*vector[:a], ("runs", profile), *vector[a + 1 :])
                    if source in self._number:
                        found.append((number, self._number[source]))
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    def _all_before(self) -> tuple[_Int64s, _Int64s]:
        """Every vector with any of its running actors still waiting, itself first."""
        found, bounds = [], [0]
        for vector in self._vectors:
            running = [a for a, (kind, _) in enumerate(vector) if kind == "runs"]
            for size in range(len(running) + 1):
                for starting in combinations(running, size):
                    source = tuple(_WAITS if a in starting else status for a, status in enumerate(vector))
                    found.append(self._number[source])
            bounds.append(len(found))
        return np.array(found, dtype=np.int64), np.array(bounds, dtype=np.int64)

    def _windows(self) -> _Int64s:
        """The first and last step in which the schedules that are left can make each vector, ``(Σ, 2)``."""
        by_status = [self._status_windows(a) for a in range(len(self._actors))]
        windows = [
            [windows[status] for windows, status in zip(by_status, vector, strict=True)] for vector in self._vectors
        ]
        return np.array(
            [(max(first for first, _ in vector), min(last for _, last in vector)) for vector in windows], dtype=np.int64
        )

    def _status_windows(self, a: int) -> dict[_Status, tuple[int, int]]:
        n_steps = self.shape[0]
        windows: dict[_Status, tuple[int, int]] = {}

        def widen(status: _Status, first: int, last: int) -> None:
            known = windows.get(status, (n_steps, -1))
            windows[status] = min(known[0], first), max(known[1], last)

        widen(_WAITS, 0 if self._alive[a][-1][0] else n_steps, n_steps - 1 if self._alive[a][-1][0] else -1)
        for way, alive in zip(self._ways[a], self._alive[a], strict=False):
            starts = np.flatnonzero(alive)
            first, last = (int(starts[0]), int(starts[-1])) if len(starts) else (n_steps, -1 - way.end_step)
            if last > 0:
                widen(_WAITS, 0, last - 1)
            widen(("runs", way.profile_index), first, last + way.end_step - 1)
            widen(("done", way.option_index + 1), first + way.end_step, n_steps - 1 if len(starts) else -1)
        return windows
