"""``paris`` and ``paris-changing``: MIG partitions by compute demand, each request pushed where it is answered first.

Source: Kim, Choi and Rhu, "PARIS and ELSA: An Elastic Scheduling Algorithm for Reconfigurable Multi-GPU Inference
Servers" (DAC 2022, arXiv 2202.13481), and what MIGRator (section 5) says of it as a baseline. From memory of the
publication, not checked against its text: PARIS measures utilisation and latency by partition size and batch size. The
*knee* of a size is the batch from which on throughput grows little more (80 % of its highest). The distribution of
batch sizes is cut at the knees, and the size i answers the segment up to its knee. A size gets instances in proportion
to its segment's probability times the time that a query takes on it, so heavier models get larger instances and more of
the GPU. ELSA pushes each query to the instance with the smallest predicted completion. From MIGRator's text: the
partition is static and follows the model's computing intensity, blind to what retraining yields; where switching is
compared, PARIS reconfigures at the start and at the end of retraining.

Taken over: compute slices in proportion to rate times time per query, instance sizes by an 80 % knee, ELSA (the
trait ``pushes``), the config's batch. Adaptations:

* One model served many batch sizes there; here several tenants have one operating point a profile. A tenant stands
  for a segment: its demand is its mean rate over the capability of its largest profile, and it wants that share of
  all compute slices.
* Without batch curves there are no batch knees: a tenant's knee is the smallest profile whose capability per
  compute slice is within 80 % of its best one's.
* Retraining is unknown to PARIS. The GPU is shared out without it. Of the partitions that leave room for the window's
  retrainings, the one that falls least short of that is taken. The retrainings run when and where they are worth most
  beside it, those that may be left out as well: PARIS is blind to what they yield. Only where no partition has room for
  all, the optional ones claim none. Where its instances sit is chosen so that one retraining can be large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Self

import numpy as np

from executor.compiled import working_s
from planner.arrays import Floats
from planner.engines.answer import relaxed_bound
from planner.engines.physical.held_sets import Entries, HeldSets
from planner.engines.physical.plan import held_in, retrainings_in, with_held
from planner.engines.physical.static import search_of, solve_static_among
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan
from planner.policies.policy import Batching, Knows, Policy, Traits, Window
from planner.policies.static import with_most_retrainings
from planner.problem import Problem, TenantTerms

KNEE = 0.8
"""The smallest profile with this share of the best throughput per compute slice is a tenant's knee."""

TRAITS = Traits(batching=Batching.GIVEN, pushes=True)


@dataclass(frozen=True)
class Paris(Policy):
    """Holds one partition by compute demand for the whole run; it changes only where retrainings had no room else.

    Source and adaptations: see the module. Knows: the forecast; as published the rates before the window, of which
    window 0 decides. When and where retrainings run beside the partition follows from the forecast in either case.
    A window whose retrainings have no room beside what is held takes the next partition that leaves it.
    """

    name: str = "paris"
    knows: Knows = Knows.FORECAST
    traits: Traits = TRAITS

    def plan(self, window: Window) -> MigPlan:
        """What is held if it has room for the retrainings, else the nearest partition that has."""
        sets = HeldSets.of(window.problem)
        held = WindowFacts.of(window.problem).initial_held
        number, ranking = None if held is None else sets.index(held), Ranking.of(sets, _rates_rps(window))
        kept = [] if number is None else [number]
        return with_most_retrainings(window.problem, lambda posed: _plans(posed, chain(kept, ranking.nearest(held))))


@dataclass(frozen=True)
class ParisChanging(Policy):
    """Takes a partition by compute demand at each window's start, and another when its last retraining has ended.

    Source and adaptations: see the module. This is the variant of MIGRator's section 5.2, which "only conducts
    reconfiguration at the beginning and at the end of retraining". Knows: the forecast; as published the rates
    before the window. At the window's start the nearest partition that leaves room for the retrainings is taken, and
    the nearest of all when the last retraining has ended.
    Adaptations: with several tenants these are the moments at which the first retraining may start and the last one
    ends. The slices of those that end earlier stay idle until then. Of partitions equally near, the one that keeps most
    is taken. As published the second change may drop instances that still serve; else it only adds to them (make before
    break).
    """

    name: str = "paris-changing"
    knows: Knows = Knows.FORECAST
    traits: Traits = TRAITS

    def plan(self, window: Window) -> MigPlan:
        """The partition beside the retrainings, and the one after them."""
        started_s = working_s()
        problem, facts = window.problem, WindowFacts.of(window.problem)
        ranking = Ranking.of(HeldSets.of(problem), _rates_rps(window))
        first = with_most_retrainings(problem, lambda posed: _plans(posed, ranking.nearest(facts.initial_held)))
        if not first.status.has_plan:
            return first
        held, placed = held_in(problem, first), retrainings_in(problem, first)
        ends = [run.end_step for run, _ in (*facts.running, *placed)]
        step = max([*ends, first.next_epoch_step])
        if ends and step < problem.n_steps:
            beside = held[-1][1]
            after = ranking.nearest(beside) if window.as_published else ranking.nearest_around(beside)
            sets = map(ranking.sets.entries, after)
            is_ours = (e for e in sets if all(problem.is_ours(place, step, problem.n_steps) for place, _ in e))
            last = next(is_ours, beside)
            held = (*held, (step, last)) if last != beside else held
        bound = relaxed_bound(facts)
        return with_held(facts, held, placed, bound, self.name, started_s)


@dataclass(frozen=True)
class Ranking:
    """Held sets by how near they are to what the tenants want; accuracy and weight play no part.

    Attributes:
        sets: The held sets.
        keys: Of each, from the most important on and the smaller the better: how far it falls short of the wanted
            compute slices (squared, over those wanted, summed over the tenants; what one has beyond is of no use and
            does not count), how far it is from holding all that is wanted in knee profiles, and, with the sign
            turned, the most compute slices that one retraining could have beside it, ``(n, 3)``.
    """

    sets: HeldSets
    keys: Floats

    @classmethod
    def of(cls, sets: HeldSets, rates_rps: Floats) -> Self:
        """The ranking when these are the tenants' rates, ``(n_tenants,)``."""
        wanted, by_profile = wanted_slices(sets.problem, rates_rps), _slices(sets)
        in_knees = np.zeros(by_profile.shape[1:])
        for m, tenant in enumerate(sets.problem.tenants):
            in_knees[m, sets.problem.profile_names.index(knee_profile(sets.problem, tenant))] = wanted[m]
        short = np.maximum(wanted - by_profile.sum(axis=2), 0.0)
        parts = np.divide(short**2, wanted, out=np.zeros_like(short), where=wanted > 0)
        from_knees = np.abs(by_profile - in_knees).sum(axis=(1, 2))
        keys = np.column_stack([parts.sum(axis=1), from_knees, -_left_to_one(sets)])
        return cls(sets, keys.round(9))  # equal sums added in another order have to tie

    def nearest(self, held: Entries | None) -> Iterator[int]:
        """All held sets, the nearest first; of those equally near the one that keeps most of ``held``, then the first.

        Args:
            held: What is held before.
        """
        numbers = np.lexsort(self.keys.T[::-1])
        for _, group in groupby(map(int, numbers), key=lambda number: tuple(self.keys[number])):
            tied = list(group)
            yield from tied if held is None else sorted(tied, key=lambda n: -len(self.sets.entries(n) & held))

    def nearest_around(self, held: Entries) -> Iterator[int]:
        """The same of those only that keep all of ``held``."""
        return (number for number in self.nearest(None) if self.sets.entries(number) >= held)


def wanted_slices(problem: Problem, rates_rps: Floats) -> Floats:
    """All compute slices shared out by demand, ``(n_tenants,)``; equally if there is none."""
    most = [tenant.capability_rps[_by_size(problem, tenant)[-1]] for tenant in problem.tenants]
    demand = rates_rps / np.array(most)
    if demand.sum() <= 0:
        demand = np.ones_like(demand)
    return np.asarray(problem.gpu.compute_slices * demand / demand.sum(), dtype=np.float64)


def knee_profile(problem: Problem, tenant: TenantTerms) -> str:
    """The smallest profile whose capability per compute slice is within 80 % of the tenant's best."""
    names = _by_size(problem, tenant)
    per_slice = [tenant.capability_rps[name] / problem.gpu.profile(name).compute_slices for name in names]
    return next(name for name, rate in zip(names, per_slice, strict=True) if rate >= KNEE * max(per_slice))


def _by_size(problem: Problem, tenant: TenantTerms) -> list[str]:
    """The tenant's serving profiles, the smallest first."""

    def size(name: str) -> tuple[int, int]:
        profile = problem.gpu.profile(name)
        return profile.compute_slices, profile.memory_slices

    return sorted((name for name in problem.profile_names if name in tenant.capability_rps), key=size)


def _slices(sets: HeldSets) -> Floats:
    """Compute slices in each held set, ``(n, n_tenants, n_profiles)``."""
    names, places = sets.problem.profile_names, sets.table.places
    by_place = np.zeros((len(places) + 1, len(names)))  # the last for what is beyond a layout's end
    for placement, number in places.items():
        by_place[number, names.index(placement.profile.name)] = placement.profile.compute_slices
    held = by_place[sets.table.place_of[sets.layout]]
    own = [sets.owners == m for m in range(len(sets.problem.tenants))]
    return np.stack([np.einsum("nk,nkp->np", mask, held) for mask in own], axis=1)


def _left_to_one(sets: HeldSets) -> Floats:
    """Compute slices of the largest instance beside each held set on which some tenant could retrain, ``(n,)``."""
    gpu = sets.problem.gpu
    retrains_on = {name for tenant in sets.problem.tenants for option in tenant.options for name in option.time_s}
    places = gpu.placements([name for name in sets.problem.profile_names if name in retrains_on])
    by_layout = [
        max((place.profile.compute_slices for place in places if gpu.fits((*layout, place))), default=0)
        for layout in sets.table.layouts
    ]
    return np.array(by_layout, dtype=np.float64)[sets.layout]


def _rates_rps(window: Window) -> Floats:
    """The tenants' mean rates that the policy may know, ``(n_tenants,)``."""
    if window.as_published and len(window.past_rps):
        return np.asarray(window.past_rps.mean(axis=0), dtype=np.float64)
    return np.array([float(tenant.arrivals_rps.mean()) for tenant in window.problem.tenants])


def _plans(problem: Problem, ranked: Iterable[int]) -> Iterator[MigPlan]:
    """The answers of the held sets that leave room for the required retrainings, in the order given.

    The room that a set leaves decides, and there are few different ones. Each is tried once before a plan is made.
    """
    search, has_room = search_of(WindowFacts.of(problem)), dict[int, bool]()
    for number in ranked:
        room = int(search.room[number])
        if room not in has_room:
            has_room[room] = search.run(among=[number]) is not None
        if has_room[room]:
            yield solve_static_among(problem, [number])
