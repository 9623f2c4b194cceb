"""``time-sharing``: turns on the whole GPU as a competent engineer would have them, retrainings at a pace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from planner.policies.policy import Knows
from planner.policies.turns import (
    Course,
    PacedRetraining,
    SecondsByBatch,
    TurnPolicy,
    TurnRetraining,
    TurnTenant,
    cheapest,
    training_batch,
)

N_PARTS = 40
"""Retrainings end at fortieths of the window: five seconds of 200. The fluid model is rougher than that."""

MARGIN_S = 1.0
"""So long before a window's end all retrainings are due, as a turn may be under way when the last step is."""


@dataclass(frozen=True)
class TimeSharing(TurnPolicy):
    """Takes turns on the whole GPU, with the order and pace of retrainings that a fluid model of the window favours.

    Source: none publishes it. It is what MIG has to beat: time sharing by somebody who knows all that our planner
    knows but the forecast. Knows: the arrivals before the window. While serving, only which requests wait.

    What it does. The earliest deadline goes first, but nobody goes whose turn would make requests late on which a
    second of the GPU earns more. All processes of a tenant serve together in its turn. A retraining's step goes first
    whenever it lags its pace, and also where all that waits can wait. Before a window, from the past's mean rates: the
    longest turn that any request may have to wait for (it sets batches in serving and training), which retrainings are
    done, in which order, and at which pace.
    The fluid model. A share p of the GPU trains, the rest serves those first on whom a second earns most: weight ·
    accuracy over the seconds of a request in full turns. A retraining of W seconds at pace p takes W / p, and only then
    its accuracy holds. With the salvage of the models at the window's end, the best course is found exactly, for paces
    with which retrainings end at fortieths of the window: a longest path over (retrainings done, time). A required
    retraining is left out only where no course has them all; then it is done in the gaps.
    Kind to it: a turn costs nothing but ``turn_cost``, and trainers stand ready while they wait.

    Attributes:
        turn_cost: The share by which what does not follow something of the same tenant and task lasts longer, ≥ 0.
    """

    name: str = "time-sharing"
    knows: Knows = Knows.PAST
    turn_cost: float = 0.05
    chooses: bool = True
    has_joint_turns: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.turn_cost < math.inf:
            raise ValueError(f"{self.name}: turn_cost {self.turn_cost}: must be finite and at least 0")

    @classmethod
    def at_cost(cls, percent: int) -> Self:
        """The policy whose turns cost so much."""
        return cls(f"time-sharing-{percent}", turn_cost=percent / 100)

    def course(self, tenants: Sequence[TurnTenant], window_s: float) -> Course:
        """The best course over all longest turns; of equal ones that of the shortest."""
        best, best_value = None, -math.inf
        for limits, longest_s in self._choices(tenants):
            fluid = _Fluid(tenants, limits, longest_s, window_s, 1.0 + self.turn_cost)
            if best is None or fluid.value > best_value:
                best, best_value = fluid, fluid.value
        assert best is not None  # there is always a choice
        return best.course

    def _choices(self, tenants: Sequence[TurnTenant]) -> Iterator[tuple[tuple[int, ...], float]]:
        """The longest training steps that come into question, with the batch limits beside which they leave SLOs."""
        longer = 1.0 + self.turn_cost
        steps_s = {longer * s for t in tenants if t.retraining is not None for s in t.retraining.step_s.values()}
        found = False
        for step_s in sorted(steps_s) or [0.0]:
            limits = self._limits(tenants, step_s)
            if limits is not None:
                found = True
                yield limits, step_s
        if not found:
            yield tuple(min(tenant.serving_s) for tenant in tenants), min(steps_s, default=0.0)

    def _limits(self, tenants: Sequence[TurnTenant], step_s: float) -> tuple[int, ...] | None:
        """The batch limits with which the GPU is least busy; ``None`` where none meet all SLOs.

        A request that just missed its turn waits for a training step and for the longest turn of anybody, and then is
        answered in time in a full one.
        """
        longer, best, least = 1.0 + self.turn_cost, None, math.inf
        for longest_s in sorted({longer * seconds for tenant in tenants for seconds in tenant.serving_s.values()}):
            limits = [cheapest(t.serving_s, min(longest_s, t.slo_s - longest_s - step_s) / longer) for t in tenants]
            chosen = tuple(limit for limit in limits if limit is not None)
            if len(chosen) < len(tenants):
                continue
            busy = sum(max(t.rate_rps, 1e-9) * t.serving_s[n] / n for t, n in zip(tenants, chosen, strict=True))
            if busy < least:
                best, least = chosen, busy
        return best


class _Fluid:
    """The window as a fluid, for one choice of batch limits and longest turn.

    Attributes:
        value: Weighted right answers, salvage included, of the best course.
        course: That course.
    """

    def __init__(
        self, tenants: Sequence[TurnTenant], limits: tuple[int, ...], longest_s: float, window_s: float, longer: float
    ) -> None:
        self._tenants, self._longer = tenants, longer
        self._request_s = [longer * t.serving_s[n] / n for t, n in zip(tenants, limits, strict=True)]
        self._loads = [one.rate_rps * own_s for one, own_s in zip(tenants, self._request_s, strict=True)]
        asked = [(index, one.retraining) for index, one in enumerate(tenants) if one.retraining is not None]
        self._jobs = [_in_steps(index, retraining, longest_s, longer) for index, retraining in asked]
        self._is_required = [retraining.is_required for _, retraining in asked]
        begin_s = max((retraining.ready_s for _, retraining in asked), default=0.0)
        # What is under way when the last step is due ends before the window does.
        self._part_s = max(0.0, window_s - begin_s - MARGIN_S) / N_PARTS
        # More than all else could be worth, so that a required retraining is left out only where it must be.
        self._penalty = 1.0 + 2 * sum(
            one.weight * one.rate_rps * window_s + abs(one.salvage[0]) + abs(one.salvage[1]) for one in tenants
        )
        self.value = self._solve()
        self.course = Course(limits, tuple(self._retrainings(window_s, begin_s)), self._worth())

    def _solve(self) -> float:
        """The best value; ``_choice`` has, by the retrainings done, a bit each, and part, which is next and its parts.

        Shapes: ``_choice`` ``(n_sets, N_PARTS + 1, 2)``, −1 where none is next.
        """
        n_sets, parts = 2 ** len(self._jobs), np.arange(N_PARTS + 1)
        values = np.empty((n_sets, N_PARTS + 1))
        self._choice = np.full((n_sets, N_PARTS + 1, 2), -1)
        for done in reversed(range(n_sets)):
            best = (N_PARTS - parts) * self._part_s * self._served(done, 1.0) + self._left(done)
            for place, job in enumerate(self._jobs):
                if done >> place & 1 or self._part_s <= 0:
                    continue
                after = values[done | 1 << place]
                least = math.ceil(self._longer * job.work_s / self._part_s - 1e-9)
                for n_parts in range(max(1, least), N_PARTS + 1):
                    share = 1.0 - self._longer * self._pace(place, n_parts)
                    during = n_parts * self._part_s * self._served(done, share)
                    found = during + after[n_parts:]
                    better = np.flatnonzero(found > best[: len(found)] + 1e-9)
                    best[better], self._choice[done, better] = found[better], (place, n_parts)
            values[done] = best
        return float(values[0, 0])

    def _pace(self, place: int, n_parts: int) -> float:
        """The seconds of its work that the retraining does in one of so many parts."""
        return min(1.0 / self._longer, self._jobs[place].work_s / (n_parts * self._part_s))

    def _worth_when(self, done: int) -> list[float]:
        """By tenant, what a second of its turns is worth."""
        trained = {job.tenant_index for place, job in enumerate(self._jobs) if done >> place & 1}
        return [
            tenant.weight * (tenant.accuracy_after if index in trained else tenant.accuracy_before) / own_s
            for index, (tenant, own_s) in enumerate(zip(self._tenants, self._request_s, strict=True))
        ]

    def _served(self, done: int, share: float) -> float:
        """Weighted right answers a second with that share of the GPU, the best paid first."""
        total = 0.0
        for worth, needed in sorted(zip(self._worth_when(done), self._loads, strict=True), reverse=True):
            total += worth * min(needed, share)
            share -= min(needed, share)
        return total

    def _least_worth_served(self, done: int, share: float) -> float:
        """The worth of those of whom some are not served, else of the worst paid."""
        richest_first = sorted(zip(self._worth_when(done), self._loads, strict=True), reverse=True)
        for worth, needed in richest_first:
            share -= needed
            if share < 0:
                return worth
        return richest_first[-1][0]

    def _left(self, done: int) -> float:
        """What the models are worth beyond the window, less a penalty for each required retraining that is not done."""
        trained = {job.tenant_index for place, job in enumerate(self._jobs) if done >> place & 1}
        missing = sum(required and not done >> place & 1 for place, required in enumerate(self._is_required))
        salvage = sum(tenant.salvage[index in trained] for index, tenant in enumerate(self._tenants))
        return salvage - self._penalty * missing

    def _retrainings(self, window_s: float, begin_s: float) -> Iterator[PacedRetraining]:
        """Those of the best course in order; then, without a pace, the required ones for which there is no time."""
        done, part = 0, 0
        while self._choice[done, part, 0] >= 0:
            place, n_parts = self._choice[done, part].tolist()
            job = self._jobs[place]
            part += n_parts
            pace = self._pace(place, n_parts)
            worth = self._least_worth_served(done, 1.0 - self._longer * pace)
            yield replace(job, pace=pace, due_s=begin_s + part * self._part_s, worth=worth)
            done |= 1 << place
        for place, job in enumerate(self._jobs):
            if self._is_required[place] and not done >> place & 1:
                yield replace(job, due_s=window_s)

    def _worth(self) -> tuple[tuple[float, float], ...]:
        return tuple(
            (tenant.weight * tenant.accuracy_before / own_s, tenant.weight * tenant.accuracy_after / own_s)
            for tenant, own_s in zip(self._tenants, self._request_s, strict=True)
        )


def _in_steps(index: int, asked: TurnRetraining, longest_s: float, longer: float) -> PacedRetraining:
    """The retraining in the best steps that are no longer, or in the shortest."""
    step_s: SecondsByBatch = {batch: longer * seconds for batch, seconds in asked.step_s.items()}
    batch = training_batch(step_s, asked.rate_rps, longest_s)
    relative_rate = asked.rate_rps[batch] / max(asked.rate_rps.values())
    return PacedRetraining(index, asked.work_s / relative_rate, asked.step_s[batch])
