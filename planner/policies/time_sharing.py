"""``time-sharing``: turns on the whole GPU as a competent engineer would have them, retrainings at a pace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from executor.compiled import compiled
from planner.arrays import Floats, Int64s
from planner.policies.policy import Knows
from planner.policies.turns import (
    PacedRetraining,
    TurnOption,
    TurnPolicy,
    TurnSchedule,
    TurnTenant,
    in_steps,
    least_busy,
)
from workloads.profiles.shares import TURN_COST

N_PARTS = 40
"""Retrainings end at fortieths of the window: five seconds of 200. The fluid model is rougher than that."""

MARGIN_S = 1.0
"""So long before a window's end all retrainings are due, as a turn may be under way when the last step is."""

MOST_TRIES = 5000
"""Ways to do a retraining next, over all choices of those done before: three tenants may have eleven ways each, four
five, six two. A way with checkpoints counts as often as it has parts. So many are tried for the best longest turn, and
as many to find it."""

MOST_SEARCHED = 7
"""Retrainings whose order and pace are searched: a window of so many has 128 states of what is done."""

MOST_PATHS = 32
"""Ways in which the window may go that count; of more, so many evenly spaced ones."""


@dataclass(frozen=True)
class TimeSharing(TurnPolicy):
    """Takes turns on the whole GPU, with the order and pace of retrainings that a fluid model of the window favours.

    Source: none publishes it. It is what MIG has to beat: time sharing with all that our planner knows when it plans a
    window. Knows: the forecast. While serving, only which requests wait.

    What it does. The earliest deadline goes first, but no tenant goes whose turn would make requests late on which a
    second of the GPU earns more. All processes of a tenant serve together in its turn. A retraining's step goes first
    whenever it lags its pace, and also where all that waits can wait. Before a window, from the forecast: the longest
    turn that any request may have to wait for (it sets batches in serving and training, by mean rates), which
    retrainings are done, in which order, and at which pace.
    The fluid model. A share p of the GPU trains, the rest serves those first on whom a second earns most: weight ·
    accuracy over the seconds of a request in full turns. A retraining of W seconds at pace p is due after W / p, and
    takes the gaps first, so that it is ahead and behind. It is done when it is due, or as soon as gaps alone have held
    its work: a pace is what it gets at least, for the paths with few gaps, and must not make it late on the others.
    Only then its accuracy holds; a checkpoint's holds from its part of the work on, where it is better. The next one
    begins when the one before was due. What is served is the mean over the forecast's sample paths, each by its mean
    rates in fortieths of the window. With the salvage of the models at the window's end, the best course is found
    exactly, for paces with which retrainings end at such fortieths: a longest path over (retrainings done, and how;
    time). Of several ways to do a retraining the course takes one; where the tenants have very many, some that are
    nearest to others are passed over (``MOST_TRIES``). Of more than seven retrainings those are searched that gain most
    for a second of work, salvage included; the others that are required or gain anything follow them in that order, in
    the gaps. A required retraining is left out only where no course has them all; then it is done in the gaps, in the
    way of the least work.
    Kind to it: a turn costs nothing but ``turn_cost``, trainers are ready while they wait, and a new model's weights
    take no time to load.

    Attributes:
        turn_cost: The share by which what does not follow something of the same tenant and task lasts longer, ≥ 0.
    """

    name: str = "time-sharing"
    knows: Knows = Knows.FORECAST
    turn_cost: float = TURN_COST
    chooses: bool = True
    has_joint_turns: bool = True
    serves_checkpoints: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.turn_cost < math.inf:
            raise ValueError(f"{self.name}: turn_cost {self.turn_cost}: must be finite and at least 0")

    @classmethod
    def at_cost(cls, percent: int) -> Self:
        """The policy whose turns cost so much."""
        return cls(f"time-sharing-{percent}", turn_cost=percent / 100)

    def course(self, tenants: Sequence[TurnTenant], window_s: float) -> TurnSchedule:
        """The best course over all longest turns; of equal ones that of the shortest.

        Where there are very many ways to retrain, the longest turn is the one that is best with few of them.
        """
        choices = self._choices(tenants)
        rest = _ranked(tenants, window_s)[MOST_SEARCHED:]
        later = {index for index, _, _ in rest}
        searched = [replace(one, retraining=None) if n in later else one for n, one in enumerate(tenants)]
        fluid = self._best(searched, choices, window_s)
        return fluid.followed_by(tenants, rest, window_s) if rest else fluid.course

    def _best(
        self, tenants: Sequence[TurnTenant], choices: Sequence[tuple[tuple[int, ...], float]], window_s: float
    ) -> _Fluid:
        """The window with the best of these choices."""
        all_ways = [tenant.options for tenant in tenants]
        few, many = _thinned(all_ways, MOST_TRIES // len(choices)), _thinned(all_ways, MOST_TRIES)
        longer = 1.0 + self.turn_cost
        fluids = [_Fluid(tenants, few, limits, longest_s, window_s, longer) for limits, longest_s in choices]
        best = max(range(len(fluids)), key=lambda place: fluids[place].value)
        return fluids[best] if few == many else _Fluid(tenants, many, *choices[best], window_s, longer)

    def _choices(self, tenants: Sequence[TurnTenant]) -> list[tuple[tuple[int, ...], float]]:
        """The longest training steps that come into question, with the batch limits beside which they leave SLOs."""
        asked, longer = [own.retraining for own in tenants if own.retraining is not None], 1.0 + self.turn_cost
        steps_s = sorted({longer * seconds for own in asked for seconds in own.step_s.values()}) or [0.0]
        found = [(limits, step_s) for step_s in steps_s if (limits := self._limits(tenants, step_s)) is not None]
        return found or [(tuple(min(tenant.serving_s) for tenant in tenants), steps_s[0])]

    def _limits(self, tenants: Sequence[TurnTenant], step_s: float) -> tuple[int, ...] | None:
        """The batch limits with which the GPU is least busy; ``None`` where none meet all SLOs.

        A request that just missed its turn waits for a training step and for the longest turn of any tenant, and then
        is answered in time in a full one.
        """
        longer, rates_rps = 1.0 + self.turn_cost, [max(tenant.rate_rps, 1e-9) for tenant in tenants]
        longest_s = (longer * seconds for tenant in tenants for seconds in tenant.serving_s.values())
        return least_busy(tenants, rates_rps, longest_s, lambda most, slo: min(most, slo - most - step_s) / longer)


class _Fluid:
    """The window as a fluid, for one choice of batch limits and longest turn.

    What is served in S seconds of the GPU, the best paid tenants first, is the sum over their order of (worth − worth
    of the next) · min(S, seconds that all up to here can use). So the ways in which the window may go are looked at
    once for each set of tenants, job and length, and not for each course.

    Attributes:
        value: Weighted right answers, salvage included, of the best course; the mean over the ways the window may go.
        course: That course.
    """

    def __init__(
        self,
        tenants: Sequence[TurnTenant],
        ways: Sequence[Sequence[TurnOption]],
        limits: tuple[int, ...],
        longest_s: float,
        window_s: float,
        longer: float,
    ) -> None:
        """``ways`` are those of each tenant's retraining that count."""
        self._tenants, self._longer = tenants, longer
        self._request_s = [longer * t.serving_s[n] / n for t, n in zip(tenants, limits, strict=True)]
        asked = [(index, one.retraining) for index, one in enumerate(tenants) if one.retraining is not None]
        self._is_required = [retraining.is_required for _, retraining in asked]
        self._n_ways = [len(ways[index]) for index, _ in asked]
        # What is done is a number: for each retraining a digit that counts up to its ways, 0 as long as it is not done.
        self._digit = [math.prod(n + 1 for n in self._n_ways[:place]) for place in range(len(asked))]
        self._begin_s = max((retraining.ready_s for _, retraining in asked), default=0.0)
        # What is under way when the last step is due ends before the window does.
        self._part_s = max(0.0, window_s - self._begin_s - MARGIN_S) / N_PARTS
        self._jobs = [
            self._job(place, way, in_steps(index, retraining, option, longest_s, longer))
            for place, (index, retraining) in enumerate(asked)
            for way, option in enumerate(ways[index], 1)
        ]
        by_part = [_by_part(tenant, self._begin_s, self._part_s, window_s) for tenant in tenants]
        rates_rps = np.broadcast_arrays(*by_part)
        self._loads = [own_rps * own_s for own_rps, own_s in zip(rates_rps, self._request_s, strict=True)]
        # More than all else could be worth, so that a required retraining is left out only where it must be.
        self._penalty = 1.0 + 2 * sum(
            one.weight * float(own_rps.mean()) * window_s
            + abs(one.salvage)
            + max((abs(option.salvage) for option in one.options), default=0.0)
            for one, own_rps in zip(tenants, rates_rps, strict=True)
        )
        gone_s = self._part_s * np.arange(N_PARTS + 1)[:, None]
        self._gaps_s: Floats = gone_s - self._so_far_s(frozenset(range(len(tenants))))
        self._known_s: dict[tuple[frozenset[int], int], list[Floats]] = {}
        self.value = self._solve()
        retrainings = tuple(self._retrainings(window_s))
        self.course = TurnSchedule(limits, retrainings, self._worth(retrainings))
        self._longest_s = longest_s

    def followed_by(
        self, tenants: Sequence[TurnTenant], rest: Sequence[tuple[int, TurnOption, float]], window_s: float
    ) -> TurnSchedule:
        """The course, and then these retrainings of other tenants in the gaps, those that are required or gain."""
        retrainings = list(self.course.retrainings)
        for index, option, gain in rest:
            retraining = tenants[index].retraining
            assert retraining is not None  # it has an option
            if gain <= 0 and not retraining.is_required:
                continue
            paced = in_steps(index, retraining, option, self._longest_s, self._longer)
            retrainings += [replace(own, due_s=window_s) for own in _in_phases(paced)]
        return TurnSchedule(self.course.limits, tuple(retrainings), self._worth(retrainings))

    def _job(self, place: int, way: int, paced: PacedRetraining) -> _Job:
        """The retraining in one of its ways, at all paces at which it has time."""
        least = N_PARTS + 1
        if self._part_s > 0:
            least = max(1, math.ceil(self._longer * paced.work_s / self._part_s - 1e-9))
        n_parts = np.arange(least, N_PARTS + 1)
        paces: Floats = np.minimum(1.0 / self._longer, paced.work_s / (n_parts * self._part_s))
        return _Job(place, way, paced, n_parts, paces)

    def _solve(self) -> float:
        """The best value; ``_choice`` has, by what is done and part, the job that is next and its parts.

        Shapes: ``_choice`` ``(n_states, N_PARTS + 1, 2)``, −1 where none is next.
        """
        n_states = math.prod(n + 1 for n in self._n_ways)
        values = np.empty((n_states, N_PARTS + 1))
        self._choice = np.full((n_states, N_PARTS + 1, 2), -1)
        for done in reversed(range(n_states)):
            accuracies = self._accuracies(done)
            best = np.full(N_PARTS + 1, self._left(done))
            for worth, who in self._layers(accuracies):
                so_far_s = self._so_far_s(who).mean(axis=1)
                best += worth * (so_far_s[-1] - so_far_s)
            for number, job in enumerate(self._jobs):
                if not self._way_done(done, job.place) and job.n_parts.size:
                    after = values[done + job.way * self._digit[job.place]]
                    _let_be_next(number, job.n_parts, self._during(number, accuracies), after, best, self._choice[done])
            values[done] = best
        return float(values[0, 0])

    def _during(self, number: int, accuracies: Sequence[float]) -> Floats:
        """What is served until the job is due, its checkpoints included, ``(n_lengths, N_PARTS)``: by first part."""
        job = self._jobs[number]
        found: Floats = np.zeros((len(job.n_parts), N_PARTS))
        during = [job.with_checkpoint(accuracies, reached) for _, _, reached in _phases(job.paced)]
        for phase, own in enumerate([*during, job.after(accuracies)]):
            for worth, who in self._layers(own):
                if (who, number) not in self._known_s:
                    self._known_s[who, number] = self._phases_s(who, job)
                found += worth * self._known_s[who, number][phase]
        return found

    def _phases_s(self, who: frozenset[int], job: _Job) -> list[Floats]:
        """Seconds of the GPU that go to these tenants in each phase of the job, and after it until it is due.

        Shapes: each ``(n_lengths, N_PARTS)``.
        """
        so_far_s, work_s = self._so_far_s(who), self._longer * job.paced.work_s
        parts = [0.0, *(end for _, end, _ in _phases(job.paced)), 1.0]
        reached = [_reached(self._gaps_s, part * work_s) for part in parts[:-1]]
        reached.append(np.full_like(reached[0], math.inf))
        return [
            _served_s(so_far_s, job.n_parts, begin, end, *between, (end - begin) * work_s, self._part_s)
            for (begin, end), between in zip(pairwise(parts), pairwise(reached), strict=True)
        ]

    def _so_far_s(self, who: frozenset[int]) -> Floats:
        """Seconds that these tenants can use before each part, ``(N_PARTS + 1, n_paths)``."""
        needed = sum((self._loads[index] for index in who), np.zeros(1))
        so_far_s = np.cumsum(np.minimum(needed, 1.0), axis=1) * self._part_s
        return np.concatenate([np.zeros((1, len(so_far_s))), so_far_s.T])

    def _way_done(self, done: int, place: int) -> int:
        """In which way the retraining is done, counted from 1; 0 where it is not."""
        return done // self._digit[place] % (self._n_ways[place] + 1)

    def _trained(self, done: int) -> dict[int, TurnOption]:
        """By tenant, how it was retrained."""
        return {
            job.paced.tenant_index: job.paced.option for job in self._jobs if self._way_done(done, job.place) == job.way
        }

    def _accuracies(self, done: int) -> list[float]:
        """By tenant, what its model is worth after what is done."""
        trained = self._trained(done)
        return [
            trained[index].accuracy_after if index in trained else tenant.accuracy_before
            for index, tenant in enumerate(self._tenants)
        ]

    def _worths(self, accuracies: Sequence[float]) -> list[float]:
        """By tenant, what a second of its turns is worth with these models."""
        terms = zip(self._tenants, accuracies, self._request_s, strict=True)
        return [tenant.weight * accuracy / own_s for tenant, accuracy, own_s in terms]

    def _layers(self, accuracies: Sequence[float]) -> Iterator[tuple[float, frozenset[int]]]:
        """By how much a second on the best paid so many tenants is worth more than on the next one, and who these are.

        The best paid come first; where there is nothing between two, the first of them is left out.
        """
        worths = self._worths(accuracies)
        order = sorted(range(len(worths)), key=lambda index: -worths[index])
        for place, index in enumerate(order, 1):
            more = worths[index] - (worths[order[place]] if place < len(order) else 0.0)
            if more > 0:
                yield more, frozenset(order[:place])

    def _left(self, done: int) -> float:
        """What the models are worth beyond the window, less a penalty for each required retraining that is not done."""
        trained = self._trained(done)
        missing = sum(required and not self._way_done(done, place) for place, required in enumerate(self._is_required))
        salvage = sum(
            trained[index].salvage if index in trained else tenant.salvage for index, tenant in enumerate(self._tenants)
        )
        return salvage - self._penalty * missing

    def _retrainings(self, window_s: float) -> Iterator[PacedRetraining]:
        """Those of the best course in order; then, without a pace, the required ones for which there is no time."""
        done, part = 0, 0
        while self._choice[done, part, 0] >= 0:
            number, n_parts = self._choice[done, part].tolist()
            job, accuracies = self._jobs[number], self._accuracies(done)
            pace = float(job.paces[n_parts - job.n_parts[0]])
            for own, (begin, end, reached) in zip(_in_phases(job.paced), _phases(job.paced), strict=True):
                worths = self._worths(job.with_checkpoint(accuracies, reached))
                parts = slice(math.floor(part + begin * n_parts), math.ceil(part + end * n_parts))
                worth = self._least_worth_served(worths, 1.0 - self._longer * pace, parts)
                yield replace(own, pace=pace, due_s=self._begin_s + (part + end * n_parts) * self._part_s, worth=worth)
            part += n_parts
            done += job.way * self._digit[job.place]
        for place, required in enumerate(self._is_required):
            if required and not self._way_done(done, place):
                ways = [job for job in self._jobs if job.place == place]
                least = min(ways, key=lambda job: job.paced.work_s)
                yield from (replace(own, due_s=window_s) for own in _in_phases(least.paced))

    def _least_worth_served(self, worths: Sequence[float], share: float, parts: slice) -> float:
        """The worth of the best paid of whom none are served in these parts, by mean rates; else of the worst paid.

        Where some are not, it is not for a training step to choose them: going first makes many more late than it must.
        """
        loads = [float(own.mean(axis=0)[parts].mean()) for own in self._loads]
        for worth, needed in sorted(zip(worths, loads, strict=True), reverse=True):
            if share <= 0:
                return worth
            share -= needed
        return min(worths)

    def _worth(self, retrainings: Sequence[PacedRetraining]) -> tuple[tuple[float, ...], ...]:
        """By tenant, what a second of its turns is worth at first, and after each retraining of the course."""
        before = [tenant.accuracy_before for tenant in self._tenants]
        found = [[worth] for worth in self._worths(before)]
        for one in retrainings:
            index = one.tenant_index
            reached = one.option.accuracy_after
            if one.checkpoint is not None:
                reached = max(before[index], dict(one.option.checkpoints)[one.checkpoint])
            before[index] = reached
            found[index].append(self._worths(before)[index])
        return tuple(map(tuple, found))


@dataclass(frozen=True, eq=False)
class _Job:
    """A retraining in one of its ways.

    Attributes:
        place: Which retraining of the window.
        way: Which of its ways, from 1 on.
        paced: What it takes.
        n_parts: How many parts it may take, ascending, ``(n_lengths,)``; empty where it has no time.
        paces: The seconds of its work that it then does in a second.
    """

    place: int
    way: int
    paced: PacedRetraining
    n_parts: Int64s
    paces: Floats

    def with_checkpoint(self, accuracies: Sequence[float], reached: float | None) -> Sequence[float]:
        """What the models are worth with that checkpoint: it is served only where it is better."""
        index = self.paced.tenant_index
        if reached is None or reached <= accuracies[index]:
            return accuracies
        return [reached if other == index else own for other, own in enumerate(accuracies)]

    def after(self, accuracies: Sequence[float]) -> Sequence[float]:
        """What the models give once it is done."""
        index, reached = self.paced.tenant_index, self.paced.option.accuracy_after
        return [reached if other == index else own for other, own in enumerate(accuracies)]


def _phases(paced: PacedRetraining) -> list[tuple[float, float, float | None]]:
    """Which part of its work is done before and after each phase; the checkpoint's accuracy that is served in it.

    ``None`` before the first checkpoint.
    """
    checkpoints = paced.option.checkpoints
    ends = [0.0, *(part for part, _ in checkpoints), 1.0]
    return list(zip(ends, ends[1:], [None, *(accuracy for _, accuracy in checkpoints)], strict=False))


def _in_phases(paced: PacedRetraining) -> Iterator[PacedRetraining]:
    """One retraining after the other, each but the last up to a checkpoint."""
    for begin, end, _ in _phases(paced):
        yield replace(paced, work_s=(end - begin) * paced.work_s, checkpoint=None if end == 1 else end)


def _by_part(tenant: TurnTenant, begin_s: float, part_s: float, window_s: float) -> Floats:
    """Its mean rates in the parts of the window, ``(n_paths, N_PARTS)``."""
    if tenant.paths_rps is None or part_s <= 0:
        return np.full((1, N_PARTS), tenant.rate_rps)
    n_paths, n_steps = tenant.paths_rps.shape
    taken = np.linspace(0, n_paths - 1, min(n_paths, MOST_PATHS)).round().astype(int)
    arrived = np.concatenate([np.zeros((len(taken), 1)), np.cumsum(tenant.paths_rps[taken], axis=1)], axis=1)
    edges = (begin_s + part_s * np.arange(N_PARTS + 1)) * n_steps / window_s
    step_s = window_s / n_steps
    found: Floats = np.diff(_between(arrived, np.tile(edges, (len(taken), 1))), axis=1) * step_s / part_s
    return found


def _between(rows: Floats, places: Floats) -> Floats:
    """The rows' values at places between their points, by straight lines; ``(k, n)``, ``(k, j)`` → ``(k, j)``."""
    before = np.minimum(places.astype(np.int64), rows.shape[1] - 2)
    left, right = (np.take_along_axis(rows, own, axis=1) for own in (before, before + 1))
    found: Floats = left + (places - before) * (right - left)
    return found


@compiled
def _reached(so_far_s: Floats, needed_s: float) -> Floats:
    """By first part, when so many more seconds have come, ``(N_PARTS, n_paths)`` in parts; inf: never.

    ``so_far_s`` ``(N_PARTS + 1, n_paths)`` are those that have come before each part.
    """
    last, n_paths = so_far_s.shape[0] - 1, so_far_s.shape[1]
    found = np.full((last, n_paths), np.inf)
    for path in range(n_paths):
        part = 0
        for first in range(last):
            wanted_s, part = so_far_s[first, path] + needed_s, max(part, first)
            while part < last and so_far_s[part + 1, path] < wanted_s:
                part += 1
            if part == last:
                break
            before_s, come_s = so_far_s[part, path], so_far_s[part + 1, path] - so_far_s[part, path]
            found[first, path] = part + (wanted_s - before_s) / come_s if come_s > 0.0 else float(part)
    return found


@compiled
def _served_s(
    so_far_s: Floats,
    n_parts: Int64s,
    begin: float,
    end: float,
    begun: Floats,
    ended: Floats,
    work_s: float,
    part_s: float,
) -> Floats:
    """Seconds that are served between two moments of a job, ``(n_lengths, N_PARTS)`` by its first part.

    The moments are parts of its length, or come on a path when ``begun`` and ``ended`` ``(N_PARTS, n_paths)`` say, if
    that is earlier. ``so_far_s`` ``(N_PARTS + 1, n_paths)`` are seconds that can be used before each part, ``work_s``
    those that the job takes between the moments.
    """
    last, n_paths = so_far_s.shape[0] - 1, so_far_s.shape[1]
    found = np.zeros((n_parts.shape[0], last))
    for length in range(n_parts.shape[0]):
        for first in range(last - n_parts[length] + 1):
            total_s = 0.0
            for path in range(n_paths):
                from_part = min(first + begin * n_parts[length], begun[first, path])
                to_part = min(first + end * n_parts[length], ended[first, path])
                low, high = min(int(from_part), last - 1), min(int(to_part), last - 1)
                low_part, high_part = from_part - low, to_part - high
                before_s = so_far_s[low, path] + low_part * (so_far_s[low + 1, path] - so_far_s[low, path])
                until_s = so_far_s[high, path] + high_part * (so_far_s[high + 1, path] - so_far_s[high, path])
                room_s = max(0.0, (to_part - from_part) * part_s - work_s)
                total_s += min(room_s, until_s - before_s)
            found[length, first] = total_s / n_paths
    return found


@compiled
def _let_be_next(number: int, n_parts: Int64s, during: Floats, after: Floats, best: Floats, choice: Int64s) -> None:
    """Let the job be next wherever that is better by more than rounding; of equal lengths the shorter.

    Shapes: ``during`` ``(n, parts)``, the worth of each of the ``n_parts`` ``(n,)`` by first part; ``after`` and
    ``best`` ``(parts + 1,)``, the worth from a part on, once the job is done, and before; ``choice``
    ``(parts + 1, 2)``. The last two are updated.
    """
    for length in range(during.shape[0]):
        for part in range(best.shape[0] - n_parts[length]):
            found = during[length, part] + after[part + n_parts[length]]
            if found > best[part] + 1e-6:
                best[part] = found
                choice[part, 0], choice[part, 1] = number, n_parts[length]


def _ranked(tenants: Sequence[TurnTenant], window_s: float) -> list[tuple[int, TurnOption, float]]:
    """Tenants with a retraining, its best way, and what that gains for a second of work; the highest gain comes first.

    A gain counts as if it held for the whole window, and with salvage beyond it. Ties keep the tenants' order.
    """
    found = []
    for index, tenant in enumerate(tenants):
        request_worth = tenant.weight * tenant.rate_rps * window_s
        gains = [
            (request_worth * (option.accuracy_after - tenant.accuracy_before) + option.salvage - tenant.salvage)
            / option.work_s
            for option in tenant.options
        ]
        if gains:
            best = gains.index(max(gains))
            found.append((index, tenant.options[best], gains[best]))
    return sorted(found, key=lambda one: -one[2])


def _thinned(ways: Sequence[tuple[TurnOption, ...]], most_tries: int) -> list[list[TurnOption]]:
    """By tenant, its ways but those that cannot be best; of too many, those whose work is nearest to another's go.

    The first of a tenant's that can be best stays in any case.
    """
    kept = [[way for way in own if not any(_is_beaten(way, other, own) for other in own)] for own in ways]
    while _n_tries(kept) > most_tries and any(len(own) > 1 for own in kept):
        most = max(kept, key=len)
        gap_s = {way.name: min(abs(way.work_s - other.work_s) for other in most if other is not way) for way in most}
        most.remove(min(most[1:], key=lambda way: gap_s[way.name]))
    return kept


def _is_beaten(way: TurnOption, other: TurnOption, ways: Sequence[TurnOption]) -> bool:
    """Whether the other one is as good in everything, and better in something or first."""
    own_terms, terms = (
        (-one.work_s, one.accuracy_after, one.salvage, *(accuracy for _, accuracy in one.checkpoints))
        for one in (way, other)
    )
    as_good = all(b >= a for a, b in zip(own_terms, terms, strict=True))
    return as_good and (own_terms != terms or ways.index(other) < ways.index(way))


def _n_tries(ways: Sequence[Sequence[TurnOption]]) -> int:
    """How often one of the ways may come next."""
    n_states = math.prod(len(own) + 1 for own in ways)
    return sum(sum(1 + len(way.checkpoints) for way in own) * n_states // (len(own) + 1) for own in ways)
