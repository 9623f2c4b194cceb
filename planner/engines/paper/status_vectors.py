"""``paper``: the vectors of retraining tenants' statuses, and how one becomes another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner.engines.arrays import Ints
from planner.engines.paper.states import Joint
from planner.engines.schedule import RetrainingChoice

_Int64s = NDArray[np.int64]

WAITS = ("waits", 0)

Status = tuple[str, int]
"""``waits``, ``runs`` on a profile index, or ``done`` at a level."""


class StatusVectors:
    """All vectors of statuses that leave somebody's layout room; those beside the same retrainings follow each other.

    Args:
        joint: The problem.
        actors: The tenants that may retrain; the others stay at level 0.
        ways: By actor, its options and profiles as schedules that start in step 0.

    Attributes:
        vectors: A status for every actor.
    """

    def __init__(self, joint: Joint, actors: Sequence[int], ways: Sequence[Sequence[RetrainingChoice]]) -> None:
        self._joint, self._actors, self._ways = joint, tuple(actors), ways
        self._n_profiles = len(joint.problem.profile_names)
        self.vectors = sorted(self._all(), key=self._list_of)
        self._number = {vector: i for i, vector in enumerate(self.vectors)}

    @property
    def n_statuses(self) -> int:
        """X: running by profile, done by level, waiting."""
        return self._n_profiles + max(way.option_index + 1 for ways in self._ways for way in ways) + 1

    def column(self, status: Status) -> int:
        """The status's place among an actor's X."""
        kind, value = status
        return {"waits": self.n_statuses - 1, "runs": value, "done": self._n_profiles + value - 1}[kind]

    @cached_property
    def columns(self) -> _Int64s:
        """The column of each actor's status in each vector, ``(n_actors, Σ)``."""
        by_vector = [[self.column(status) for status in vector] for vector in self.vectors]
        return np.ascontiguousarray(np.array(by_vector, dtype=np.int64).T)

    @cached_property
    def beside(self) -> _Int64s:
        """The state list of each vector, ascending, ``(Σ,)``."""
        return np.array([self._list_of(vector) for vector in self.vectors], dtype=np.int64)

    @cached_property
    def levels(self) -> Ints:
        """Of each vector by tenant, ``(M, Σ)``."""
        levels = np.zeros((len(self._joint.problem.tenants), len(self.vectors)), dtype=np.int32)
        for i, vector in enumerate(self.vectors):
            for m, (kind, value) in zip(self._actors, vector, strict=True):
                levels[m, i] = value if kind == "done" else 0
        return levels

    def ends(self) -> list[tuple[int, int]]:
        """(to, from): one actor's retraining ends; by actor, so that several can end in one step."""
        found = []
        for a, ways in enumerate(self._ways):
            for vector, number in self._number.items():
                kind, level = vector[a]
                profiles = {w.profile_index for w in ways if kind == "done" and w.option_index + 1 == level}
                for profile in sorted(profiles):
                    source = (*vector[:a], ("runs", profile), *vector[a + 1 :])
                    if source in self._number:
                        found.append((number, self._number[source]))
        return found

    def starts(self) -> list[tuple[int, int]]:
        """(to, from): retrainings start, of any number of actors at once."""
        found = []
        for vector, number in self._number.items():
            running = [a for a, (kind, _) in enumerate(vector) if kind == "runs"]
            for size in range(1, len(running) + 1):
                for starting in combinations(running, size):
                    source = tuple(WAITS if a in starting else status for a, status in enumerate(vector))
                    found.append((number, self._number[source]))
        return found

    def _all(self) -> list[tuple[Status, ...]]:
        vectors: list[tuple[Status, ...]] = [()]
        for ways in self._ways:
            running = [("runs", profile) for profile in sorted({way.profile_index for way in ways})]
            done = [("done", level) for level in sorted({way.option_index + 1 for way in ways})]
            longer = ((*vector, status) for vector in vectors for status in (WAITS, *running, *done))
            vectors = [vector for vector in longer if self._has_room(vector)]
        return vectors

    def _has_room(self, vector: tuple[Status, ...]) -> bool:
        return len(self._joint.fitting([value for kind, value in vector if kind == "runs"])) > 0

    def _list_of(self, vector: tuple[Status, ...]) -> int:
        counts = [0] * self._n_profiles
        for kind, value in vector:
            if kind == "runs":  # the value is a profile; of one that is done it is a level
                counts[value] += 1
        return self._joint.list_number(tuple(counts))
