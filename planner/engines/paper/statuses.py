"""``paper``: a bound for any number of tenants that retrain, by pricing how long retrainings take.

The problem is split in two. One longest path goes over all tenants' layouts and statuses: waiting, running on a
profile, or done at a level. It may change a status at any step. Beside it each tenant has a schedule of its own,
whose duration is right. The path pays a multiplier for every (step, tenant, status), and the schedule is paid it;
where both agree nothing is lost. Layouts, change costs and room are exact in the path and only durations are
relaxed, so the gap to the best plan is small, and most often there is none.

Sweeps (``sweeps``) improve the multipliers, and none of them raises the bound. It holds for any multipliers, so that
those of the last sweep are the plan's certificate.

Every schedule of a tenant falls short of its best one by a *slack*. The bound less the slacks of a
combination of schedules bounds that combination, so with a good plan known few are left to value.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, groupby
from types import MappingProxyType

import numpy as np

from planner.arrays import Bools, Floats, Int64s, Ints
from planner.engines.paper.states import JointStates
from planner.engines.paper.sweeps import Blocks, Moves, Schedules, Sweep, pay_schedules, sweep_back, sweep_forth
from planner.engines.prices import rounded
from planner.engines.schedule import Schedule
from planner.plan import StatusCertificate, TenantStatus
from planner.problem import Retraining


class StatusRelaxation:
    """The relaxation of one problem.

    Args:
        joint: The problem.
        multipliers: To begin with, see ``from_prices``; ``None`` for none.

    Attributes:
        bound: Of every plan; −inf where there can be none.
    """

    def __init__(self, joint: JointStates, multipliers: Floats | None = None) -> None:
        self._joint, self._actors = joint, joint.facts.actors
        self._vectors = StatusVectors(joint)
        self._choices = [(m, way) for m in self._actors for way in joint.facts.choices[m]]
        self._sweep = self._prepared(multipliers)
        self.bound = self._improve(0.0)

    def sweep(self, share: float) -> float:
        """The bound after a sweep forth and back that moves this share of what differs."""
        self.bound = min(self.bound, self._improve(share))
        return self.bound

    def n_left(self, value: float) -> int:
        """No more combinations of schedules than this may be worth more than ``value``."""
        n_left, gap = 1, self.bound - value
        for a in range(len(self._actors)):
            worth = self._worth(a)
            n_left *= int((np.isfinite(worth) & (worth >= worth.max() - gap)).sum())
        return n_left

    def certificate(self) -> StatusCertificate:
        """The multipliers as a plan carries them."""
        found: dict[TenantStatus, Floats] = {}
        for a, m in enumerate(self._actors):
            # Only differences count, so that waiting can cost nothing.
            paid = self._sweep.multipliers[:, a] - self._sweep.multipliers[:, a, -1:]
            for status in np.unique(self._vectors.columns[a]).tolist():
                if paid[:, status].any():
                    found[self._vectors.named(m, status)] = rounded(paid[:, status])
        prices = np.array(list(found.values())).reshape(len(found), self._joint.problem.n_steps)
        return StatusCertificate(tuple(found), prices.T)

    def combinations(
        self, gap: float, settled: Mapping[int, Retraining | None] = MappingProxyType({})
    ) -> Iterator[tuple[float, Schedule]]:
        """Combinations of schedules whose slacks sum up to at most ``gap``, least first, with that sum.

        A combination's value is at most that of paths and schedules now, which ``bound`` is unless
        rounding has raised it, less its slacks. Tenants in ``settled`` have these retrainings, which count no slack.
        """
        ranked = [[(0.0, settled[m])] if m in settled else self._ranked(a, gap) for a, m in enumerate(self._actors)]
        if not all(ranked):
            return
        start = (0,) * len(ranked)
        heap = [(sum(options[0][0] for options in ranked), start)]
        while heap:
            total, index = heapq.heappop(heap)
            if total > gap:
                return
            chosen = (options[i][1] for options, i in zip(ranked, index, strict=True))
            yield total, tuple(retraining for retraining in chosen if retraining is not None)
            # Each index tuple has one parent: the one with its last non-zero entry lowered.
            last = max((a for a, i in enumerate(index) if i), default=0)
            for a in range(last, len(ranked)):
                if index[a] + 1 < len(ranked[a]):
                    more = total + ranked[a][index[a] + 1][0] - ranked[a][index[a]][0]
                    heapq.heappush(heap, (more, (*index[:a], index[a] + 1, *index[a + 1 :])))

    def _improve(self, share: float) -> float:
        sweep_forth(self._sweep, share)
        path = sweep_back(self._sweep, share)
        others = (own.salvages[0] for m, own in enumerate(self._joint.problem.tenants) if m not in self._actors)
        return path + sum(self._best_of(a) for a in range(len(self._actors))) + sum(others)

    def _worth(self, a: int) -> Floats:
        """What an actor's schedules are paid, by choice and start; −inf where one is not possible."""
        schedules = self._sweep.schedules
        return schedules.worth[schedules.bounds[a] : schedules.bounds[a + 1]]

    def _best_of(self, a: int) -> float:
        """What an actor's best schedule is paid."""
        return float(self._worth(a).max(initial=-np.inf))

    def _ranked(self, a: int, gap: float) -> list[tuple[float, Retraining | None]]:
        first, worth = self._sweep.schedules.bounds[a], self._worth(a)
        found: list[tuple[float, Retraining | None]] = []
        for number, start in np.argwhere(np.isfinite(worth) & (self._best_of(a) - worth <= gap)).tolist():
            way = self._choices[first + number][1]
            found.append((self._best_of(a) - float(worth[number, start]), None if way is None else way.at(start)))
        return sorted(found, key=lambda item: item[0])

    def _prepared(self, multipliers: Floats | None) -> Sweep:
        problem, facts, vectors, n_actors = self._joint.problem, self._joint.facts, self._vectors, len(self._actors)
        blocks, n_steps = blocks_of(self._joint, vectors), problem.n_steps
        paid = np.zeros((n_steps, n_actors, vectors.n_statuses))
        if multipliers is not None:
            paid[:, :, :-1] = multipliers
        prices = np.zeros((n_steps, len(vectors.vectors)))
        for a, column in enumerate(vectors.columns):
            prices += paid[:, a, column]
        for begin, end, mask in problem.unavailable_spans if problem.unavailable else ():
            prices[begin:end, ~vectors.fits(mask).any(axis=1)] = np.inf
        ways = [way for _, way in self._choices]
        schedules = Schedules(
            duration=np.array([0 if way is None else way.n_steps for way in ways], dtype=np.int64),
            running=np.array([vectors.waits if way is None else vectors.running(way) for way in ways], dtype=np.int64),
            done=np.array([vectors.waits if way is None else vectors.done(way) for way in ways], dtype=np.int64),
            bounds=np.cumsum([0, *(len(facts.choices[m]) for m in self._actors)], dtype=np.int64),
            worth=np.full((len(ways), n_steps + 1), -np.inf),
        )
        # Schedules earn what they add beside the path: salvage, and the most by checkpoints.
        for (m, way), worth in zip(self._choices, schedules.worth, strict=True):
            if way is None:
                worth[-1] = problem.tenants[m].salvages[0]
            else:
                worth[: n_steps - way.n_steps + 1] = facts.added(way)
        for s in range(n_steps):
            for a in range(n_actors):
                pay_schedules(schedules, a, s, paid[s, a])
        no_path = np.empty_like(blocks.earned), np.zeros_like(blocks.earned)
        return Sweep(blocks, vectors.columns, schedules, paid, prices, *no_path)


def from_prices(joint: JointStates, prices: Floats, switched: Sequence[Floats]) -> Floats:
    """Multipliers that are about as good as prices of instances (``planner.engines.prices``).

    Running costs the instance's price; being done in a step is worth what the tenant alone gains
    by a level that is there one step earlier.
    """
    ways, n_profiles = [joint.facts.ways(m) for m in joint.facts.actors], len(joint.problem.profile_names)
    n_levels = max((way.level for own in ways for way in own), default=0)
    out = np.zeros((joint.problem.n_steps, len(ways), n_profiles + n_levels))
    for a, m in enumerate(joint.facts.actors):
        out[:, a, :n_profiles] = -prices
        for level in range(1, len(switched[m])):
            by_end = switched[m][level].copy()
            first = min((way.n_steps for way in ways[a] if way.level == level), default=None)
            if first is not None:
                by_end[:first] = by_end[first]
                out[:, a, n_profiles + level - 1] = by_end[:-1] - by_end[1:]
    return out


class StatusVectors:
    """All vectors of statuses whose retrainings leave room for some layout; equal retrainings are adjacent.

    A status is its number among an actor's X: running by profile, done by level, waiting.

    Attributes:
        vectors: A status for every actor.
        n_statuses: X.
        waits: The status of an actor that waits, the last.
    """

    def __init__(self, joint: JointStates) -> None:
        self._joint, self._names = joint, joint.problem.profile_names
        self._ways = [joint.facts.ways(m) for m in joint.facts.actors]
        self.waits = len(self._names) + max((way.level for ways in self._ways for way in ways), default=0)
        self.n_statuses = self.waits + 1
        vectors: list[tuple[int, ...]] = [()]
        for ways in self._ways:
            own = (self.waits, *sorted({status for way in ways for status in (self.running(way), self.done(way))}))
            longer = ((*vector, status) for vector in vectors for status in own)
            vectors = [vector for vector in longer if len(joint.fitting(self.profiles(vector)))]
        self.vectors = sorted(vectors, key=self.profiles)
        self._number = {vector: i for i, vector in enumerate(self.vectors)}

    def running(self, way: Retraining) -> int:
        """The status while a way runs."""
        return self._names.index(way.profile)

    def done(self, way: Retraining) -> int:
        """The status after it."""
        return len(self._names) + way.level - 1

    def named(self, m: int, status: int) -> TenantStatus:
        """A status of tenant m, but for waiting, in words."""
        tenant, number = self._joint.problem.tenants[m], status - len(self._names)
        kind = ("runs", self._names[status]) if number < 0 else ("done", tenant.options[number].name)
        return TenantStatus(tenant.name, *kind)

    def profiles(self, vector: tuple[int, ...]) -> tuple[str, ...]:
        """The profiles on which a vector's retrainings run, equal ones side by side."""
        return tuple(self._names[status] for status in sorted(vector) if status < len(self._names))

    def fits(self, unavailable: int) -> Bools:
        """Whether each vector may have each state where these memory slices are not ours, ``(Σ, K)``."""
        out = np.zeros((len(self.vectors), self._joint.n_states), dtype=np.bool_)
        for row, vector in zip(out, self.vectors, strict=True):
            row[self._joint.fitting(self.profiles(vector), unavailable)] = True
        return out

    @cached_property
    def columns(self) -> Int64s:
        """Each actor's status in each vector, ``(n_actors, Σ)``."""
        return np.ascontiguousarray(np.array(self.vectors, dtype=np.int64).T)

    @cached_property
    def levels(self) -> Ints:
        """Of each vector by tenant, ``(M, Σ)``."""
        levels = np.zeros((len(self._joint.problem.tenants), len(self.vectors)), dtype=np.int32)
        for m, own in zip(self._joint.facts.actors, self.columns, strict=True):
            is_done = (len(self._names) <= own) & (own < self.waits)
            levels[m] = np.where(is_done, own - len(self._names) + 1, 0)
        return levels

    def ends(self) -> list[tuple[int, int]]:
        """(to, from): one actor's retraining ends; by actor, so that several can end in one step."""
        found = []
        for a, ways in enumerate(self._ways):
            for vector, number in self._number.items():
                for running in sorted(self.running(way) for way in ways if self.done(way) == vector[a]):
                    source = (*vector[:a], running, *vector[a + 1 :])
                    if source in self._number:
                        found.append((number, self._number[source]))
        return found

    def starts(self) -> list[tuple[int, int]]:
        """(to, from): retrainings start, of any number of actors at once."""
        found = []
        for vector, number in self._number.items():
            running = [a for a, status in enumerate(vector) if status < len(self._names)]
            for size in range(1, len(running) + 1):
                for starting in combinations(running, size):
                    source = tuple(self.waits if a in starting else status for a, status in enumerate(vector))
                    found.append((number, self._number[source]))
        return found


def blocks_of(joint: JointStates, vectors: StatusVectors) -> Blocks:
    """The blocks of a problem's status vectors: one for each state list that some vector is beside."""
    beside = [(running, len(list(own))) for running, own in groupby(map(vectors.profiles, vectors.vectors))]
    states, sizes = [joint.fitting(running) for running, _ in beside], [n for _, n in beside]
    members = np.cumsum([0, *sizes], dtype=np.int64)
    entries = np.cumsum([0, *(len(own) * n for own, n in zip(states, sizes, strict=True))], dtype=np.int64)
    # The entries of a block: one state after the other, each with all vectors.
    state = np.concatenate([np.repeat(own, n) for own, n in zip(states, sizes, strict=True)])
    vector = np.concatenate(
        [np.tile(np.arange(n) + i, len(own)) for own, n, i in zip(states, sizes, members[:-1], strict=True)]
    )
    entry = np.full((len(vectors.vectors), joint.n_states), -1, dtype=np.int64)
    entry[vector, state] = np.arange(len(state))
    held = np.array([np.unique(own, return_inverse=True)[1] for own in joint.states.T], dtype=np.int32)
    raised, owned, raised_bounds, n_groups = _groups(joint, states, held)
    earned, opening = np.zeros((joint.problem.n_steps, len(state))), joint.opening[state]
    for steady, level in zip(joint.steady, vectors.levels, strict=True):
        earned += steady[level[vector], :, state].T
    for begin, end, mask in joint.problem.unavailable_spans if joint.problem.unavailable else ():
        is_barred = ~vectors.fits(mask)[vector, state]
        earned[begin:end, is_barred] = -np.inf
        if begin == 0:
            opening[is_barred] = -np.inf
    return Blocks(
        members=members,
        entries=entries,
        vector=vector,
        raised=raised,
        owned=owned,
        raised_bounds=raised_bounds,
        n_groups=n_groups,
        levels=vectors.levels,
        ends=_moves(entry, vectors.ends()),
        starts=_moves(entry, vectors.starts()),
        earned=earned,
        opening=opening,
        lost=_lost(joint, held),
    )


def _moves(entry: Int64s, found: Sequence[tuple[int, int]]) -> Moves:
    """The moves between these pairs of vectors; ``entry`` is that of each vector and state, −1 for none, ``(Σ, K)``."""
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    both = (entry[pairs] >= 0).all(axis=1)
    number, state = np.nonzero(both)
    entries = np.stack([entry[pairs[number, 0], state], entry[pairs[number, 1], state]], axis=1)
    return Moves(pairs, entries, np.concatenate([[0], np.cumsum(both.sum(axis=1))]).astype(np.int64))


def _lost(joint: JointStates, held: Ints) -> Floats:
    """What a changed multiset costs, ``(n_steps, M, n_levels, n_held)``; 0 beyond what a tenant may hold."""
    n_tenants, n_levels, n_steps, _ = joint.loss.shape
    out = np.zeros((n_steps, n_tenants, n_levels, int(held.max()) + 1))
    for m, own in enumerate(held):
        _, state = np.unique(own, return_index=True)
        out[:, m, :, : len(state)] = joint.loss[m][:, :, state].transpose(1, 0, 2)
    return out


def _groups(joint: JointStates, states: Sequence[Ints], held: Ints) -> tuple[Ints, Ints, Int64s, Ints]:
    """``raised``, ``owned``, ``raised_bounds`` and ``n_groups``."""
    n_subsets = len(joint.group)
    n_groups = np.zeros((len(states), n_subsets), dtype=np.int32)
    raised_bounds = np.zeros((len(states), n_subsets + 1), dtype=np.int64)
    raised: list[Ints] = [np.zeros(0, dtype=np.int32)]
    owned: list[Ints] = [np.zeros(0, dtype=np.int32)]
    n_raised = 0
    for block, own in enumerate(states):
        n_groups[block, 0] = len(own)
        raised_bounds[block, :2] = n_raised
        for c in range(1, n_subsets):
            top = c.bit_length() - 1
            names, slot = np.unique(joint.group[c, own], return_inverse=True)
            _, first = np.unique(joint.group[c ^ (1 << top), own], return_index=True)
            n_groups[block, c] = len(names)
            raised.append(slot.reshape(-1)[first].astype(np.int32))
            owned.append(held[top, own[first]])
            n_raised += len(first)
            raised_bounds[block, c + 1] = n_raised
    return np.concatenate(raised), np.concatenate(owned), raised_bounds, n_groups
