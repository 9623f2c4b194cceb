"""``physical``: schedules of retrainings as values, and what the tenants earn under them.

A schedule says when each retraining runs and on which profile; a *placed* schedule also says where.
Given one, the rest of the plan is a longest path (``physical_program``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from executor.mig import Placement
from planner.gains import gain_tables
from planner.problem import FloatArray, GainTable, PhysicalState, Problem


@dataclass(frozen=True, slots=True, order=True)
class Training:
    """A retraining that holds one instance of ``profile`` over ``[start_step, end_step)``.

    Attributes:
        tenant: Index of the tenant.
        level: The tenant's level from ``end_step`` on; option ``level − 1`` runs.
        profile: Name of the profile.
        start_step: From here on the placement is taken.
        end_step: First step with the new accuracy.
    """

    tenant: int
    level: int
    profile: str
    start_step: int
    end_step: int

    @property
    def n_steps(self) -> int:
        """Steps of start-up and training."""
        return self.end_step - self.start_step

    def at(self, start_step: int) -> Training:
        """The same retraining, started at another step."""
        return replace(self, start_step=start_step, end_step=start_step + self.n_steps)


Schedule = tuple[Training, ...]
"""The retrainings that start in the window, by tenant, at most one each."""


@dataclass(frozen=True)
class Terms:
    """What does not change from one schedule to the next.

    Attributes:
        problem: A ``physical`` problem.
        gains: Its gain tables.
        state: Its initial state; an empty one stands for none.
    """

    problem: Problem
    gains: tuple[GainTable, ...]

    @classmethod
    def of(cls, problem: Problem) -> Terms:
        """The terms of a ``physical`` problem, with its own or the simple gain tables."""
        return cls(problem, gain_tables(problem))

    @property
    def n_steps(self) -> int:
        """Steps of the window."""
        return self.problem.n_steps

    @property
    def state(self) -> PhysicalState:
        """The initial state; an empty one where there is none."""
        return self.problem.physical_initial or PhysicalState()

    @property
    def is_free(self) -> bool:
        """Whether the first held set is free and serves at once."""
        return self.problem.initial is None

    @property
    def first_step(self) -> int:
        """The first step at which the held set may differ from the initial one; within the window."""
        return min(self.state.next_epoch_step, self.n_steps)

    @cached_property
    def warm_steps(self) -> NDArray[np.int64]:
        """Ω_m, ``(n_tenants,)``."""
        return np.array([self.problem.warm_up_steps(tenant) for tenant in self.problem.tenants], dtype=np.int64)

    @cached_property
    def epoch_steps(self) -> int:
        """Ω."""
        return self.problem.epoch_steps

    @cached_property
    def running(self) -> tuple[tuple[Training, Placement], ...]:
        """The retrainings in progress when the window opens; their outcome is option 0's."""
        names = self.problem.tenant_names
        return tuple(
            (Training(names.index(item.tenant), 1, item.placement.profile.name, 0, item.end_step), item.placement)
            for item in self.state.retrainings
        )

    @cached_property
    def choices(self) -> tuple[tuple[Training | None, ...], ...]:
        """By tenant, what it may retrain in this window, started at step 0; ``None`` stands for not at all.

        Empty for a tenant that must retrain but for which nothing ends within the window.
        """
        busy = {training.tenant for training, _ in self.running}
        return tuple(self._choices(index, index in busy) for index in range(len(self.problem.tenants)))

    def _choices(self, index: int, is_running: bool) -> tuple[Training | None, ...]:
        tenant = self.problem.tenants[index]
        if is_running or not tenant.options:
            return (None,)
        found = [
            Training(index, level, name, 0, self.problem.occupied_steps(tenant, option, name))
            for level, option in enumerate(tenant.options, start=1)
            for name in self.problem.profile_names
            if name in option.time_s
        ]
        in_time = [training for training in found if training.end_step <= self.n_steps]
        return (*in_time,) if tenant.must_retrain else (None, *in_time)

    @cached_property
    def earned_by_level(self) -> tuple[FloatArray, ...]:
        """By tenant, what each column earns in the steps before s, ``(n_levels, n_steps + 1, n_columns)``."""
        return tuple(
            np.concatenate([np.zeros_like(table.steady[:, :1]), np.cumsum(table.steady, axis=1)], axis=1)
            for table in self.gains
        )

    def earned(self, schedule: Schedule) -> FloatArray:
        """What each column earns before each step under the schedule, ``(n_tenants, n_steps + 1, n_columns)``."""
        most = max(len(table.multisets) for table in self.gains)
        out = np.zeros((len(self.gains), self.n_steps + 1, most))
        for tenant, by_level in enumerate(self.earned_by_level):
            out[tenant, :, : by_level.shape[2]] = by_level[0]
        for training in (*schedule, *(training for training, _ in self.running)):
            by_level, end = self.earned_by_level[training.tenant], training.end_step
            tail = by_level[0, end] + (by_level[training.level, end:] - by_level[training.level, end])
            out[training.tenant, end:, : by_level.shape[2]] = tail
        return out

    def earned_at_levels(self, levels: Sequence[int | None]) -> FloatArray:
        """The same when every tenant keeps one level throughout; ``None`` takes the best that can be by then."""
        most = max(len(table.multisets) for table in self.gains)
        out = np.zeros((len(self.gains), self.n_steps + 1, most))
        for tenant, (level, by_level) in enumerate(zip(levels, self.earned_by_level, strict=True)):
            own = self._best_earned(tenant) if level is None else by_level[level]
            out[tenant, :, : own.shape[1]] = own
        return out

    def _best_earned(self, tenant: int) -> FloatArray:
        steady = self.gains[tenant].steady
        best = steady[0].copy()
        for training in (*self.choices[tenant], *(training for training, _ in self.running)):
            if training is not None and training.tenant == tenant:
                end = training.end_step
                best[end:] = np.maximum(best[end:], steady[training.level, end:])
        return np.concatenate([np.zeros_like(best[:1]), np.cumsum(best, axis=0)])

    def placements(self, training: Training) -> tuple[Placement, ...]:
        """Where the retraining's instance may sit."""
        return self.problem.gpu.placements([training.profile])

    def placed(self, schedule: Schedule) -> tuple[tuple[Placement, ...], ...]:
        """Every way to place the schedule's retrainings so that no two that overlap in time exclude each other."""
        found: list[tuple[Placement, ...]] = [()]
        for number, training in enumerate(schedule):
            found = [
                (*places, place)
                for places in found
                for place in self.placements(training)
                if self._can_join(schedule[:number], places, training, place)
            ]
        return tuple(found)

    def can_stand(self, schedule: Schedule, places: Sequence[Placement]) -> bool:
        """Whether the schedule at these places, and the retrainings in progress, leave each other alone."""
        pairs = enumerate(zip(schedule, places, strict=True))
        return all(self._can_join(schedule[:n], places[:n], training, place) for n, (training, place) in pairs)

    def _can_join(
        self, others: Schedule, places: Sequence[Placement], training: Training, placement: Placement
    ) -> bool:
        """Whether the retraining leaves those that are placed, and those in progress, alone."""
        spans = [*zip(others, places, strict=True), *self.running]
        beside = [
            (other, place)
            for other, place in spans
            if other.start_step < training.end_step and training.start_step < other.end_step
        ]
        steps = {max(training.start_step, other.start_step) for other, _ in beside}
        return all(
            self.problem.gpu.fits(
                [placement, *(place for other, place in beside if other.start_step <= step < other.end_step)]
            )
            for step in steps
        )
