"""An assignment of tenants to GPUs: climbed on estimates, searched on values, chosen once more by a master program.

1. From what rivals would do, and from where tenants are, moves and swaps are made as long as estimates gain by them.
   All of a fleet's moves and swaps are estimated at once: 160 tenants on 64 GPUs take a hundredth of a second.
2. The sets of the best are valued. Moves and swaps come in the order of what they are expected to gain; the best of a
   round are valued together, and those made that gain.
3. Of all sets ever valued the master takes those that are worth most together, and the search goes on from there.

All work is counted in sets valued, and rounds do not depend on how many processes value them. Where tenants have
GPUs already, a set is worth more on the GPU on which its tenants need not move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from statistics import median

import numpy as np

from planner.arrays import Floats, Int64s
from planner.cluster.bound import fleet_bound
from planner.cluster.estimate import Estimates, NetWorths
from planner.cluster.fleet import Assignment, Fleet, FleetBound, Present, TenantSet, Unplaced, Worths
from planner.cluster.master import best_of_sets, most_placed
from planner.cluster.rivals import rival, spread
from planner.partition import Members

WORTHWHILE = 1e-9
"""Share of all that is worth by which a change has to be better."""

MOST_LOOKED_AT = 10_000
"""Sets that are thought of at most to serve a tenant that is served nowhere; rules may forbid nearly all."""


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """What a search may spend.

    Attributes:
        sets: Sets that are valued at most, beside those that it starts from; as many again where a tenant is served
            nowhere.
        per_round: Changes that are valued together.
        per_gpu: Of these on one GPU at most.
    """

    sets: int = 120
    per_round: int = 12
    per_gpu: int = 3


ANEW = SearchEffort(sets=24)
"""The same where tenants have GPUs already: what serves them waits for it, and most of them stay."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A move or a swap: two GPUs, and the tenants that they have afterwards."""

    gpus: tuple[int, int]
    members: tuple[Members, Members]
    gain: float


class _Valued:
    """The sets that were valued, each once; a set that cannot be served counts as a loss beyond any gain."""

    def __init__(self, fleet: Fleet, worths: Worths, loss: float) -> None:
        self.fleet, self._worths, self._loss = fleet, worths, loss
        self.known: dict[TenantSet, float | None] = {}

    def on(self, gpu: int, members: Members) -> TenantSet:
        return TenantSet(self.fleet.gpus[gpu].gpu_class, members)

    def ask(self, wanted: Sequence[TenantSet]) -> None:
        new = [one for one in dict.fromkeys(wanted) if one.members and one not in self.known]
        self.known.update(zip(new, self._worths(new) if new else (), strict=True))

    def worth(self, gpu: int, members: Members) -> float:
        """What the set is worth there; it was asked for."""
        found = self.known[self.on(gpu, members)] if members else 0.0
        return -self._loss * len(members) if found is None else found

    @property
    def worths(self) -> dict[TenantSet, float]:
        """Of sets that can be served."""
        return {one: worth for one, worth in self.known.items() if worth is not None}


class _Standing:
    """Where tenants are during the search, and what changes are estimated to gain.

    Attributes:
        sets: By GPU its tenants.
    """

    def __init__(self, estimates: Estimates, sets: Sequence[Members], stays: Floats) -> None:
        self._estimates, self.fleet, self._stays = estimates, estimates.fleet, stays
        self._of_class = np.array([gpu.gpu_class for gpu in self.fleet.gpus])
        self._most = np.array([self.fleet.classes[c].most_tenants for c in self._of_class])
        self.sets = list(sets)

    def estimated(self, gpu: int) -> float:
        """What the GPU's tenants are worth at most there, with what they save as they stay."""
        members = self.sets[gpu]
        return self._estimates.of_set(int(self._of_class[gpu]), members) + self.staying(gpu, members)

    def staying(self, gpu: int, members: Members) -> float:
        """What these tenants save on the GPU as they need not move there."""
        return float(self._stays[gpu, list(members)].sum())

    def make(self, change: _Change) -> None:
        """Put the tenants where the change has them."""
        for gpu, members in zip(change.gpus, change.members, strict=True):
            self.sets[gpu] = members

    def is_allowed(self, change: _Change) -> bool:
        """Whether rules allow the change."""
        after = list(self.sets)
        for gpu, members in zip(change.gpus, change.members, strict=True):
            after[gpu] = members
        return self.fleet.allows(after, change.gpus)

    def changes(self, present: Floats, share: float = 1.0) -> Iterator[_Change]:
        """All moves and swaps, best gain first, whether or not rules between tenants allow them.

        What GPUs are worth now is ``present``, ``(n_gpus,)``; what they are worth then is ``share`` of the estimate.
        """
        of = np.full(len(self.fleet.tenants), -1, dtype=np.int64)
        for g, members in enumerate(self.sets):
            of[list(members)] = g
        placed = np.flatnonzero(of >= 0).astype(np.int64)
        moves, swaps = self._gains(placed, of[placed], present, share)
        gains = np.concatenate([moves.ravel(), swaps.ravel()])
        for at in np.argsort(-gains, kind="stable"):
            if not np.isfinite(gains[at]):
                return
            is_move = at < moves.size
            first, second = divmod(int(at) - (0 if is_move else moves.size), (moves if is_move else swaps).shape[1])
            i, j = int(placed[first]), None if is_move else int(placed[second])
            a, b = int(of[i]), second if j is None else int(of[j])
            left, joined = _without(self.sets[a], i), _with(_without(self.sets[b], j), i)
            yield _Change((a, b), (_with(left, j), joined), float(gains[at]))

    def _gains(self, placed: Int64s, of: Int64s, present: Floats, share: float) -> tuple[Floats, Floats]:
        """Of moves, ``(n_placed, n_gpus)``, and of swaps of the first with the second, ``(n_placed, n_placed)``.

        −inf stands for what changes nothing, and for what the two GPUs do not take.
        """
        own, stays, may = self._estimates, self._stays[:, placed].T, self.fleet.may_go[:, placed].T
        each = list(zip(self._of_class, self.sets, strict=True))
        base = np.stack([own.costs[c] + own.nets[c][:, list(members)].sum(axis=1) for c, members in each])
        nets = own.nets[:, :, placed].transpose(0, 2, 1)
        n = np.arange(len(placed))
        without = base[of] - nets[self._of_class[of], n]
        left = share * without.min(axis=1) - stays[n, of]
        joined = np.stack([(base[g] + nets[c]).min(axis=1) for g, c in enumerate(self._of_class)], axis=1)
        moves = left[:, None] + share * joined + stays - present[of][:, None] - present
        kept = np.array([self._stays[g, list(s)].sum() for g, s in enumerate(self.sets)])
        moves += kept[of][:, None] + kept
        is_full = np.array([len(s) for s in self.sets]) >= self._most
        moves[~may | is_full | (of[:, None] == np.arange(len(self.sets)))] = -np.inf
        taken = np.array([(row + nets[c]).min(axis=1) for row, c in zip(without, self._of_class[of], strict=True)])
        taken = taken.reshape(len(n), len(n))  # also where no tenant is placed
        value = share * taken + stays[:, of].T - stays[n, of][:, None] + kept[of][:, None] - present[of][:, None]
        swaps = value + value.T
        swaps[~(may[:, of] & may[:, of].T) | (of[:, None] == of) | (n[:, None] >= n)] = -np.inf
        return moves, swaps


def assign(
    fleet: Fleet,
    worths: Worths,
    *,
    present: Present | None = None,
    nets: NetWorths | None = None,
    effort: SearchEffort | None = None,
    seed: int = 0,
) -> Assignment:
    """Sets of tenants for the fleet's GPUs that are worth most together, of those found within the effort.

    Every tenant is placed that rules allow somewhere, also where it would pay to leave it out.

    Args:
        fleet: What there is to assign.
        worths: Values sets.
        present: Where tenants are; ``None``: a move costs nothing.
        nets: Says what tenants earn net of prices; by default in this process.
        effort: What may be spent; less by default where tenants have GPUs already.
        seed: Of the rival ``random``, from which the search starts as well.
    """
    effort = effort or (SearchEffort() if present is None else ANEW)
    bound, estimates = fleet_bound(Estimates.of(fleet, nets))
    fleet, stays = estimates.fleet, _stays(fleet, present)
    valued = _Valued(fleet, worths, loss=1.0 + bound.value)
    starts = [_climbed(_Standing(estimates, sets, stays)) for sets in _starts(estimates, present, seed)]
    n_placed = max(sum(map(len, one.sets)) for one in starts)
    starts = [one for one in starts if sum(map(len, one.sets)) == n_placed]
    best, *others = sorted(starts, key=lambda one: -sum(one.estimated(g) for g in range(len(fleet.gpus))))
    n_begun = len({valued.on(g, members) for g, members in enumerate(best.sets)})
    n_most = n_begun + effort.sets
    for standing, limit in ((best, (n_begun + n_most) // 2), (best, n_most), *((other, n_most) for other in others)):
        if standing is not best and len(valued.known) >= limit:
            break
        _search(standing, valued, effort, limit)
        found = best_of_sets(fleet, valued.worths, stays, max(_n_served(one.sets, valued) for one in (best, standing)))
        for sets in (standing.sets, found):
            if sets is not None and _total(best, sets, valued) > _total(best, best.sets, valued):
                best.sets = list(sets)
    if present is not None:
        _keep_what_pays(best, _as_present(fleet, present), valued)
    _serve_more(best, valued, effort, stays)
    return _answer(best.sets, valued, bound, present)


def _climbed(standing: _Standing) -> _Standing:
    """The same with every change made that gains by estimates."""
    while True:
        present = np.array([standing.estimated(g) for g in range(len(standing.sets))])
        least = WORTHWHILE * max(1.0, float(np.abs(present).sum()))
        taken, changed = list[_Change](), set[int]()
        for change in standing.changes(present):
            if change.gain <= least or len(changed) >= len(standing.sets) - 1:
                break
            if changed.isdisjoint(change.gpus) and standing.is_allowed(change):
                standing.make(change)
                taken.append(change)
                changed.update(change.gpus)
        if not taken:
            return standing


def _search(standing: _Standing, valued: _Valued, effort: SearchEffort, n_most: int) -> None:
    """Make changes that gain by values, until so many sets are valued or nothing is left to try."""
    valued.ask([valued.on(g, members) for g, members in enumerate(standing.sets)])
    tried = set[frozenset[TenantSet]]()
    while len(valued.known) < n_most:
        present = np.array([valued.worth(g, own) + standing.staying(g, own) for g, own in enumerate(standing.sets)])
        round_ = _round(standing, valued, effort, present, tried)
        if not round_:
            return
        valued.ask([valued.on(g, own) for change in round_ for g, own in zip(change.gpus, change.members, strict=True)])
        least, changed = WORTHWHILE * max(1.0, float(np.abs(present).sum())), set[int]()
        for change in sorted((_as_valued(one, standing, valued, present) for one in round_), key=lambda one: -one.gain):
            if change.gain > least and changed.isdisjoint(change.gpus) and standing.is_allowed(change):
                standing.make(change)
                changed.update(change.gpus)


def _keep_what_pays(best: _Standing, present: Sequence[Members], valued: _Valued) -> None:
    """Leave tenants where they are unless the moves pay by values: some were made by estimates alone."""
    if sum(map(len, present)) < sum(map(len, best.sets)):
        return
    valued.ask([valued.on(g, own) for g, own in enumerate(present)])
    if _total(best, present, valued) >= _total(best, best.sets, valued):
        best.sets = list(present)


def _serve_more(best: _Standing, valued: _Valued, effort: SearchEffort, stays: Floats) -> None:
    """Where a tenant is served nowhere, value more sets, and take those that serve the most tenants."""
    fleet = valued.fleet
    best.sets = [_served(valued, g, own) for g, own in enumerate(best.sets)]
    there = {i for own in best.sets for i in own}
    lacking = [i for i in np.flatnonzero(fleet.may_go.any(axis=0)).tolist() if i not in there]
    if not lacking:
        return
    new = (one for one in _sets_with(fleet, lacking, best.sets) if one not in valued.known)
    valued.ask(list(islice(new, effort.sets)))
    for n in range(len(there), len(fleet.tenants) + 1):
        found = best_of_sets(fleet, valued.worths, stays, n)
        if found is None:
            return
        if n > len(there) or _total(best, found, valued) > _total(best, best.sets, valued):
            best.sets = list(found)


def _sets_with(fleet: Fleet, lacking: Sequence[int], sets: Sequence[Members]) -> Iterator[TenantSet]:
    """Sets that a GPU may have: these tenants beside what it has, then any, small ones first and those with them."""
    joined = [_with(own, i) for i in lacking for own in dict.fromkeys(sets)]
    order = sorted(range(len(fleet.tenants)), key=lambda i: i not in lacking)
    of_size = (combinations(order, size) for size in range(1, max(own.most_tenants for own in fleet.classes) + 1))
    any_ = (tuple(sorted(own)) for one in of_size for own in one)
    for members in islice(chain(joined, any_), MOST_LOOKED_AT):
        may = {fleet.gpus[group[0]].gpu_class for group in fleet.alike if fleet.may_hold(group[0], members)}
        yield from (TenantSet(number, members) for number in sorted(may))


def _round(
    standing: _Standing, valued: _Valued, effort: SearchEffort, present: Floats, tried: set[frozenset[TenantSet]]
) -> list[_Change]:
    """The changes to value next: those expected to gain most, few on any one GPU, none twice."""
    ratios = [worth / most for one, worth in valued.worths.items() if (most := standing._estimates.of_set(*one)) > 0]
    found, n_on = list[_Change](), dict[int, int]()
    for change in standing.changes(present, median(ratios) if ratios else 1.0):
        key = frozenset(valued.on(g, own) for g, own in zip(change.gpus, change.members, strict=True))
        busy = max(n_on.get(g, 0) for g in change.gpus) >= effort.per_gpu
        if busy or key in tried or not standing.is_allowed(change):
            continue
        tried.add(key)
        found.append(change)
        n_on.update((g, n_on.get(g, 0) + 1) for g in change.gpus)
        if len(found) == effort.per_round:
            break
    return found


def _as_valued(change: _Change, standing: _Standing, valued: _Valued, present: Floats) -> _Change:
    pairs = list(zip(change.gpus, change.members, strict=True))
    after = sum(valued.worth(g, own) + standing.staying(g, own) for g, own in pairs)
    return replace(change, gain=after - float(present[list(change.gpus)].sum()))


def _total(standing: _Standing, sets: Sequence[Members], valued: _Valued) -> float:
    return sum(valued.worth(g, own) + standing.staying(g, own) for g, own in enumerate(sets))


def _n_served(sets: Sequence[Members], valued: _Valued) -> int:
    """Tenants of the sets that were valued and can be served."""
    return sum(len(own) for g, own in enumerate(sets) if own and valued.known.get(valued.on(g, own)) is not None)


def _starts(estimates: Estimates, present: Present | None, seed: int) -> list[tuple[Members, ...]]:
    """Where climbs begin."""
    fleet = estimates.fleet
    starts = [rival(name, fleet, seed) for name in ("spread", "best-fit", "random")]
    if present is not None:
        starts.append(_as_present(fleet, present))
    if all(sum(map(len, sets)) < fleet.may_go.any(axis=0).sum() for sets in starts):
        starts.append(most_placed(fleet))
    return starts


def _as_present(fleet: Fleet, present: Present) -> tuple[Members, ...]:
    """Tenants where they are, if rules allow, and the others spread."""
    sets = [tuple[int, ...]() for _ in fleet.gpus]
    for g, gpu in enumerate(fleet.gpus):
        for i, name in enumerate(fleet.tenants):
            with_it = [*sets[:g], _with(sets[g], i), *sets[g + 1 :]]
            if present.gpu_of.get(name) == gpu.name and fleet.allows(with_it, (g,)):
                sets = with_it
    return spread(fleet, sets)


def _stays(fleet: Fleet, present: Present | None) -> Floats:
    """What a tenant saves a window on the GPU on which it is, ``(n_gpus, n_tenants)``."""
    stays = np.zeros((len(fleet.gpus), len(fleet.tenants)))
    if present is not None:
        numbers = {gpu.name: g for g, gpu in enumerate(fleet.gpus)}
        for i, name in enumerate(fleet.tenants):
            g = numbers.get(present.gpu_of.get(name, ""))
            if g is not None:
                stays[g, i] = present.move_costs.get(name, 0.0) / present.horizon_windows
    return stays


def _answer(sets: Sequence[Members], valued: _Valued, bound: FleetBound, present: Present | None) -> Assignment:
    fleet = valued.fleet
    served = [_served(valued, g, members) for g, members in enumerate(sets)]
    names = tuple(tuple(fleet.tenants[i] for i in members) for members in served)
    there = {i: gpu.name for gpu, members in zip(fleet.gpus, served, strict=True) for i in members}
    at = {} if present is None else present.gpu_of
    moved = [fleet.tenants[i] for i in sorted(there) if at.get(fleet.tenants[i], there[i]) != there[i]]
    missing = [i for i in range(len(fleet.tenants)) if i not in there]
    return Assignment(
        sets=names,
        worths=tuple(valued.worth(g, members) for g, members in enumerate(served)),
        bound=bound,
        unplaced=tuple(Unplaced(fleet.tenants[i], _reason(fleet, i)) for i in missing),
        evaluations=len(valued.known),
        columns=len(valued.worths),
        moved=tuple(moved),
    )


def _served(valued: _Valued, gpu: int, members: Members) -> Members:
    """The tenants without those that the GPU cannot serve beside the others."""
    while members and valued.known[valued.on(gpu, members)] is None:
        fewer = [_without(members, i) for i in members]
        valued.ask([valued.on(gpu, own) for own in fewer])
        members = max(fewer, key=lambda own: valued.worth(gpu, own))
    return members


def _reason(fleet: Fleet, tenant: int) -> str:
    if not fleet.may_go[:, tenant].any():
        return "no GPU may have it, or its retraining has no time on any"
    return "no GPU that may have it has room, with those beside it from whom it is not kept apart"


def _with(members: Members, tenant: int | None) -> Members:
    return members if tenant is None else tuple(sorted((*members, tenant)))


def _without(members: Members, tenant: int | None) -> Members:
    return tuple(i for i in members if i != tenant)
