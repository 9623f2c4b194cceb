"""``time-sharing``: turns on the whole GPU as a competent engineer would have them, retrainings at a pace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from executor.compiled import compiled
from planner.counts import IntArray
from planner.policies.policy import Knows
from planner.policies.turns import (
    Course,
    PacedRetraining,
    TurnOption,
    TurnPolicy,
    TurnTenant,
    cheapest,
    in_steps,
)
from planner.problem import FloatArray
from workloads.profiles.shares import TURN_COST

N_PARTS = 40
"""Retrainings end at fortieths of the window: five seconds of 200. The fluid model is rougher than that."""

MARGIN_S = 1.0
"""So long before a window's end all retrainings are due, as a turn may be under way when the last step is."""

MOST_TRIES = 5000
"""Ways to do a retraining next, over all choices of those done before: three tenants may have eleven ways each, four
five, six two."""


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
    with which retrainings end at fortieths of the window: a longest path over (retrainings done, and how; time). Of
    several ways to do a retraining the course takes one; where the tenants have very many, some that are nearest to
    others are passed over (``MOST_TRIES``). A required retraining is left out only where no course has them all; then
    it is done in the gaps, in the way of the least work. Checkpoints are not served.
    Kind to it: a turn costs nothing but ``turn_cost``, and trainers stand ready while they wait.

    Attributes:
        turn_cost: The share by which what does not follow something of the same tenant and task lasts longer, ≥ 0.
    """

    name: str = "time-sharing"
    knows: Knows = Knows.PAST
    turn_cost: float = TURN_COST
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
        ways = _thinned([retraining.options for _, retraining in asked])
        self._is_required = [retraining.is_required for _, retraining in asked]
        self._n_ways = [len(own) for own in ways]
        # What is done is a number: for each retraining a digit that counts up to its ways, 0 as long as it is not done.
        self._digit = [math.prod(n + 1 for n in self._n_ways[:place]) for place in range(len(asked))]
        self._jobs = [
            _Job(place, way, in_steps(index, retraining, option, longest_s, longer))
            for place, (index, retraining) in enumerate(asked)
            for way, option in enumerate(ways[place], 1)
        ]
        begin_s = max((retraining.ready_s for _, retraining in asked), default=0.0)
        # What is under way when the last step is due ends before the window does.
        self._part_s = max(0.0, window_s - begin_s - MARGIN_S) / N_PARTS
        # More than all else could be worth, so that a required retraining is left out only where it must be.
        self._penalty = 1.0 + 2 * sum(
            one.weight * one.rate_rps * window_s
            + abs(one.salvage)
            + max((abs(option.salvage) for option in one.options), default=0.0)
            for one in tenants
        )
        self.value = self._solve()
        retrainings = tuple(self._retrainings(window_s, begin_s))
        self.course = Course(limits, retrainings, self._worth(retrainings))

    def _solve(self) -> float:
        """The best value; ``_choice`` has, by what is done and part, the job that is next and its parts.

        Shapes: ``_choice`` ``(n_states, N_PARTS + 1, 2)``, −1 where none is next.
        """
        n_states, parts = math.prod(n + 1 for n in self._n_ways), np.arange(N_PARTS + 1)
        values = np.empty((n_states, N_PARTS + 1))
        self._choice = np.full((n_states, N_PARTS + 1, 2), -1)
        for done in reversed(range(n_states)):
            richest = self._richest_first(done)
            best = (N_PARTS - parts) * self._part_s * _served(richest, np.ones(1)) + self._left(done)
            for number, job in enumerate(self._jobs):
                if self._way_done(done, job.place) or self._part_s <= 0:
                    continue
                after = values[done + job.way * self._digit[job.place]]
                least = max(1, math.ceil(self._longer * job.paced.work_s / self._part_s - 1e-9))
                n_parts = parts[least:]
                shares = 1.0 - self._longer * self._paces(job, n_parts)
                during = n_parts * self._part_s * _served(richest, shares)
                _let_be_next(number, least, during, after, best, self._choice[done])
            values[done] = best
        return float(values[0, 0])

    def _way_done(self, done: int, place: int) -> int:
        """In which way the retraining is done, counted from 1; 0 where it is not."""
        return done // self._digit[place] % (self._n_ways[place] + 1)

    def _trained(self, done: int) -> dict[int, TurnOption]:
        """By tenant, how it was retrained."""
        return {
            job.paced.tenant_index: job.paced.option for job in self._jobs if self._way_done(done, job.place) == job.way
        }

    def _paces(self, job: _Job, n_parts: IntArray) -> FloatArray:
        """The seconds of its work that the retraining does in a second, by how many parts it takes."""
        paces: FloatArray = np.minimum(1.0 / self._longer, job.paced.work_s / (n_parts * self._part_s))
        return paces

    def _richest_first(self, done: int) -> list[tuple[float, float]]:
        """What a second of a tenant's turns is worth, and its load; the best paid tenant first."""
        worths = self._worth_with(self._trained(done))
        return sorted(zip(worths, self._loads, strict=True), reverse=True)

    def _worth_with(self, trained: Mapping[int, TurnOption]) -> list[float]:
        """By tenant, what a second of its turns is worth after these retrainings."""
        return [
            tenant.weight * (trained[index].accuracy_after if index in trained else tenant.accuracy_before) / own_s
            for index, (tenant, own_s) in enumerate(zip(self._tenants, self._request_s, strict=True))
        ]

    def _left(self, done: int) -> float:
        """What the models are worth beyond the window, less a penalty for each required retraining that is not done."""
        trained = self._trained(done)
        missing = sum(required and not self._way_done(done, place) for place, required in enumerate(self._is_required))
        salvage = sum(
            trained[index].salvage if index in trained else tenant.salvage for index, tenant in enumerate(self._tenants)
        )
        return salvage - self._penalty * missing

    def _retrainings(self, window_s: float, begin_s: float) -> Iterator[PacedRetraining]:
        """Those of the best course in order; then, without a pace, the required ones for which there is no time."""
        done, part = 0, 0
        while self._choice[done, part, 0] >= 0:
            number, n_parts = self._choice[done, part].tolist()
            job = self._jobs[number]
            part += n_parts
            pace = float(self._paces(job, np.array([n_parts]))[0])
            worth = _least_worth_served(self._richest_first(done), 1.0 - self._longer * pace)
            yield replace(job.paced, pace=pace, due_s=begin_s + part * self._part_s, worth=worth)
            done += job.way * self._digit[job.place]
        for place, required in enumerate(self._is_required):
            if required and not self._way_done(done, place):
                ways = [job.paced for job in self._jobs if job.place == place]
                yield replace(min(ways, key=lambda paced: paced.work_s), due_s=window_s)

    def _worth(self, retrainings: Sequence[PacedRetraining]) -> tuple[tuple[float, float], ...]:
        """By tenant, what a second of its turns is worth before and after its retraining of the course."""
        trained = {one.tenant_index: one.option for one in retrainings}
        return tuple(zip(self._worth_with({}), self._worth_with(trained), strict=True))


@dataclass(frozen=True)
class _Job:
    """A retraining in one of its ways.

    Attributes:
        place: Which retraining of the window.
        way: Which of its ways, from 1 on.
        paced: What it takes.
    """

    place: int
    way: int
    paced: PacedRetraining


def _served(richest: Sequence[tuple[float, float]], shares: FloatArray) -> FloatArray:
    """Weighted right answers a second with these shares of the GPU, the best paid first; ``(k,)`` → ``(k,)``.

    ``richest`` has what a second of a tenant's turns is worth, and its load.
    """
    total = np.zeros_like(shares)
    for worth, needed in richest:
        got = np.minimum(needed, shares)
        total += worth * got
        shares = shares - got
    return total


@compiled
def _let_be_next(
    number: int, least: int, during: FloatArray, after: FloatArray, best: FloatArray, choice: IntArray
) -> None:
    """Let the job be next wherever that is better by more than rounding; of equal lengths the shorter.

    Shapes: ``during`` ``(n,)``, the worth of ``least`` parts and of each number of them above; ``after`` and ``best``
    ``(parts,)``, the worth from a part on, once the job is done, and so far; ``choice`` ``(parts, 2)``. The last two
    are updated.
    """
    for place in range(during.shape[0]):
        n_parts = least + place
        for part in range(best.shape[0] - n_parts):
            found = during[place] + after[part + n_parts]
            if found > best[part] + 1e-9:
                best[part] = found
                choice[part, 0], choice[part, 1] = number, n_parts


def _least_worth_served(richest: Sequence[tuple[float, float]], share: float) -> float:
    """The worth of those of whom some are not served, else of the worst paid."""
    for worth, needed in richest:
        share -= needed
        if share < 0:
            return worth
    return richest[-1][0]


def _thinned(ways: Sequence[tuple[TurnOption, ...]]) -> list[list[TurnOption]]:
    """By retraining, its ways but those that cannot be best; of too many, those whose work is nearest to another's go.

    The first of a retraining that can be best stays in any case.
    """
    kept = [[way for way in own if not any(_is_beaten(way, other, own) for other in own)] for own in ways]
    while _n_tries(kept) > MOST_TRIES and any(len(own) > 1 for own in kept):
        most = max(kept, key=len)
        gap_s = {way.name: min(abs(way.work_s - other.work_s) for other in most if other is not way) for way in most}
        most.remove(min(most[1:], key=lambda way: gap_s[way.name]))
    return kept


def _is_beaten(way: TurnOption, other: TurnOption, ways: Sequence[TurnOption]) -> bool:
    """Whether the other one is as good in everything, and better in something or first."""
    own_terms, terms = ((-one.work_s, one.accuracy_after, one.salvage) for one in (way, other))
    as_good = all(b >= a for a, b in zip(own_terms, terms, strict=True))
    return as_good and (own_terms != terms or ways.index(other) < ways.index(way))


def _n_tries(ways: Sequence[Sequence[TurnOption]]) -> int:
    """How often one of the ways may come next."""
    n_states = math.prod(len(own) + 1 for own in ways)
    return sum(len(own) * n_states // (len(own) + 1) for own in ways)
