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
from itertools import combinations
from types import MappingProxyType

import numpy as np

from planner.engines.arrays import Bools, Floats, Int64s, Ints
from planner.engines.paper.states import JointStates
from planner.engines.paper.sweeps import Blocks, Schedules, Sweep, sweep_back, sweep_forth
from planner.engines.prices import rounded
from planner.engines.schedule import Schedule
from planner.plan import StatusCertificate, TenantStatus
from planner.problem import Retraining

Status = tuple[str, str | int]
"""``waits``, ``runs`` on a profile, or ``done`` at a level."""

WAITS: Status = ("waits", 0)


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
        self._ways = [way for m in self._actors for way in joint.facts.ways(m)]
        self._sweep = self._prepared(self._vectors, multipliers)
        self.bound = self._improve(0.0)

    def sweep(self, share: float) -> float:
        """The bound after a sweep forth and back that moves this share of what differs."""
        self.bound = min(self.bound, self._improve(share))
        return self.bound

    def n_left(self, value: float) -> int:
        """No more combinations of schedules than this may be worth more than ``value``."""
        n_left, gap = 1, self.bound - value
        for a in range(len(self._actors)):
            worth = self._all_worths(a)
            n_left *= int((np.isfinite(worth) & (worth >= worth.max() - gap)).sum())
        return n_left

    def certificate(self) -> StatusCertificate:
        """The multipliers as a plan carries them."""
        found: dict[TenantStatus, Floats] = {}
        for a, m in enumerate(self._actors):
            tenant, ways = self._joint.problem.tenants[m], self._joint.facts.ways(m)
            own: dict[Status, str] = {("runs", way.profile): way.profile for way in ways}
            own |= {("done", way.level): tenant.options[way.level - 1].name for way in ways}
            # Only differences count, so that waiting can cost nothing.
            paid = self._sweep.multipliers[:, a] - self._sweep.multipliers[:, a, -1:]
            for status, name in own.items():
                column = self._vectors.column(status)
                if column in self._vectors.columns[a] and paid[:, column].any():
                    found[TenantStatus(tenant.name, status[0], name)] = rounded(paid[:, column])
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

    def _worths(self, a: int) -> Iterator[tuple[Retraining, Floats]]:
        """An actor's ways with what they are paid by start."""
        schedules = self._sweep.schedules
        for number in range(schedules.bounds[a], schedules.bounds[a + 1]):
            yield self._ways[number], schedules.worth[number]

    def _ranked(self, a: int, gap: float) -> list[tuple[float, Retraining | None]]:
        best, idle = self._best_of(a), float(self._sweep.schedules.idle[a])
        if not np.isfinite(best):
            return []
        found: list[tuple[float, Retraining | None]] = []
        for way, worth in self._worths(a):
            starts = np.flatnonzero(np.isfinite(worth) & (best - worth <= gap))
            found += [(best - float(worth[i]), way.at(int(i))) for i in starts]
        if np.isfinite(idle) and best - idle <= gap:
            found.append((best - idle, None))
        return sorted(found, key=lambda item: item[0])

    def _all_worths(self, a: int) -> Floats:
        """What all of an actor's schedules are paid; −inf where one is not possible."""
        schedules = self._sweep.schedules
        return np.append(schedules.worth[schedules.bounds[a] : schedules.bounds[a + 1]], schedules.idle[a])

    def _best_of(self, a: int) -> float:
        """What an actor's best schedule is paid."""
        return float(self._all_worths(a).max())

    def _add(self, schedules: Schedules, a: int, none: float) -> None:
        """An actor's schedules earn what they add beside the path: salvage, and the most by checkpoints."""
        schedules.idle[a] += none
        for number in range(schedules.bounds[a], schedules.bounds[a + 1]):
            added = self._joint.facts.added(self._ways[number])
            schedules.worth[number, : len(added)] += added

    def _prepared(self, vectors: StatusVectors, multipliers: Floats | None) -> Sweep:
        problem, n_actors = self._joint.problem, len(self._actors)
        blocks, columns = blocks_of(self._joint, vectors), vectors.columns
        paid = np.zeros((problem.n_steps, n_actors, vectors.n_statuses))
        if multipliers is not None:
            paid[:, :, :-1] = multipliers
        prices = np.where(_has_room(self._joint, vectors), 0.0, np.inf)
        for a, column in enumerate(columns):
            prices += paid[:, a, column]
        schedules = Schedules(
            duration=np.array([way.n_steps for way in self._ways], dtype=np.int64),
            running=np.array([vectors.column(("runs", way.profile)) for way in self._ways], dtype=np.int64),
            done=np.array([vectors.column(("done", way.level)) for way in self._ways], dtype=np.int64),
            bounds=np.cumsum([0, *(len(self._joint.facts.ways(m)) for m in self._actors)], dtype=np.int64),
            worth=np.full((len(self._ways), problem.n_steps), -np.inf),
            idle=np.array([0.0 if None in self._joint.facts.choices[m] else -np.inf for m in self._actors]),
        )
        for a, m in enumerate(self._actors):
            _pay_all(schedules, a, paid[:, a])
            self._add(schedules, a, problem.tenants[m].salvages[0])
        no_path = np.empty_like(blocks.earned), np.zeros_like(blocks.earned)
        return Sweep(blocks, columns, vectors.n_statuses, schedules, paid, prices, *no_path)


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


def _pay_all(schedules: Schedules, a: int, paid: Floats) -> None:
    """Pay an actor's schedules for the first time: what each status is worth, ``(n_steps, X)``."""
    n_steps, waiting = len(paid), paid.shape[1] - 1
    sums = np.concatenate([np.zeros((1, paid.shape[1])), np.cumsum(paid, axis=0)])
    schedules.idle[a] += sums[n_steps, waiting]
    for number in range(schedules.bounds[a], schedules.bounds[a + 1]):
        start = np.arange(n_steps - schedules.duration[number] + 1)
        end, running, done = start + schedules.duration[number], schedules.running[number], schedules.done[number]
        schedules.worth[number, : len(start)] = (
            sums[start, waiting] + sums[end, running] - sums[start, running] + sums[n_steps, done] - sums[end, done]
        )


class StatusVectors:
    """All vectors of statuses whose retrainings leave room for some layout; equal retrainings are adjacent.

    Args:
        joint: The problem; tenants that may not retrain stay at level 0.

    Attributes:
        vectors: A status for every actor.
        n_statuses: X: running by profile, done by level, waiting.
    """

    def __init__(self, joint: JointStates) -> None:
        self._joint, self._actors = joint, joint.facts.actors
        self._ways = [joint.facts.ways(m) for m in self._actors]
        self._profile_names = joint.problem.profile_names
        self.n_statuses = (
            len(self._profile_names) + max((way.level for ways in self._ways for way in ways), default=0) + 1
        )
        self.vectors = sorted(self._all(), key=lambda vector: joint.list_number(_running(vector)))
        self._number = {vector: i for i, vector in enumerate(self.vectors)}

    def column(self, status: Status) -> int:
        """The status's place among an actor's X."""
        match status:
            case ("runs", str(profile)):
                return self._profile_names.index(profile)
            case ("done", int(level)):
                return len(self._profile_names) + level - 1
        return self.n_statuses - 1

    @cached_property
    def columns(self) -> Int64s:
        """The column of each actor's status in each vector, ``(n_actors, Σ)``."""
        by_vector = [[self.column(status) for status in vector] for vector in self.vectors]
        return np.ascontiguousarray(np.array(by_vector, dtype=np.int64).T)

    @cached_property
    def beside(self) -> Int64s:
        """The state list of each vector, ascending, ``(Σ,)``."""
        return np.array([self._joint.list_number(_running(vector)) for vector in self.vectors], dtype=np.int64)

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
                own = [way.profile for way in ways if kind == "done" and way.level == level]
                for profile in sorted(own, key=self._profile_names.index):
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
            profiles = sorted({way.profile for way in ways}, key=self._profile_names.index)
            running = [("runs", profile) for profile in profiles]
            done = [("done", level) for level in sorted({way.level for way in ways})]
            longer = ((*vector, status) for vector in vectors for status in (WAITS, *running, *done))
            vectors = [vector for vector in longer if len(self._joint.fitting(_running(vector)))]
        return vectors


def _running(vector: tuple[Status, ...]) -> tuple[str, ...]:
    """The profiles on which a vector's retrainings run."""
    return tuple(profile for kind, profile in vector if kind == "runs" and isinstance(profile, str))


def blocks_of(joint: JointStates, vectors: StatusVectors) -> Blocks:
    """The blocks of a problem's status vectors: one for each state list that some vector is beside."""
    numbers, members = np.unique(vectors.beside, return_index=True)
    members = np.append(members, len(vectors.beside))
    lists, bounds = joint.lists()
    states = [lists[bounds[number] : bounds[number + 1]] for number in numbers]
    entries = np.cumsum([0, *(len(own) * n for own, n in zip(states, np.diff(members), strict=True))])
    entry = _entry_table(joint, states, members, entries)
    ends, starts = (np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in (vectors.ends(), vectors.starts()))
    end_entries, end_bounds = _entry_pairs(entry, ends)
    start_entries, start_bounds = _entry_pairs(entry, starts)
    held = np.array([np.unique(own, return_inverse=True)[1] for own in joint.states.T], dtype=np.int32)
    raised, owned, raised_bounds, n_groups = _groups(joint, states, held)
    opening = np.empty(entries[-1])
    vector, state = np.nonzero(entry >= 0)
    opening[entry[vector, state]] = joint.opening[state]
    earned = _earned(joint, vectors.levels, entry)
    _bar(joint, vectors, entry, earned, opening)
    return Blocks(
        members=members.astype(np.int64),
        entries=entries.astype(np.int64),
        raised=raised,
        owned=owned,
        raised_bounds=raised_bounds,
        n_groups=n_groups,
        levels=vectors.levels,
        ends=ends,
        starts=starts,
        end_entries=end_entries,
        end_bounds=end_bounds,
        start_entries=start_entries,
        start_bounds=start_bounds,
        earned=earned,
        opening=opening,
        lost=_lost(joint, held),
    )


def _entry_table(joint: JointStates, states: Sequence[Ints], members: Int64s, entries: Int64s) -> Int64s:
    """The entry of each vector with each state; −1 where that does not fit, ``(Σ, K)``."""
    table = np.full((members[-1], joint.n_states), -1, dtype=np.int64)
    for block, own in enumerate(states):
        n = members[block + 1] - members[block]
        places = entries[block] + np.arange(len(own)) * n
        table[members[block] : members[block + 1], own] = places + np.arange(n)[:, None]
    return table


def _entry_pairs(entry: Int64s, pairs: Int64s) -> tuple[Int64s, Int64s]:
    """For each pair of vectors the pairs of their entries with the same state, and where each pair's begin."""
    both = (entry[pairs] >= 0).all(axis=1)
    number, state = np.nonzero(both)
    found = np.stack([entry[pairs[number, 0], state], entry[pairs[number, 1], state]], axis=1)
    return found, np.concatenate([[0], np.cumsum(both.sum(axis=1))]).astype(np.int64)


def _earned(joint: JointStates, levels: Ints, entry: Int64s) -> Floats:
    """What each entry earns in each step where nothing changes, ``(n_steps, n_entries)``."""
    vector, state = np.nonzero(entry >= 0)
    out = np.zeros((joint.problem.n_steps, len(vector)))
    place = entry[vector, state]
    for steady, level in zip(joint.steady, levels, strict=True):
        out[:, place] += steady[level[vector], :, state].T
    return out


def _has_room(joint: JointStates, vectors: StatusVectors) -> Bools:
    """Whether some state fits beside a vector's retrainings in each step, ``(n_steps, Σ)``."""
    out = np.ones((joint.problem.n_steps, len(vectors.vectors)), dtype=np.bool_)
    for begin, end, mask in joint.problem.unavailable_spans if joint.problem.unavailable else ():
        out[begin:end] = [len(joint.fitting(_running(vector), mask)) > 0 for vector in vectors.vectors]
    return out


def _bar(joint: JointStates, vectors: StatusVectors, entry: Int64s, earned: Floats, opening: Floats) -> None:
    """Take out of ``earned`` and ``opening`` the entries that do not fit the memory slices that are ours."""
    for begin, end, mask in joint.problem.unavailable_spans if joint.problem.unavailable else ():
        for own, vector in zip(entry, vectors.vectors, strict=True):
            is_barred = own >= 0
            is_barred[joint.fitting(_running(vector), mask)] = False
            earned[begin:end, own[is_barred]] = -np.inf
            if begin == 0:
                opening[own[is_barred]] = -np.inf


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
