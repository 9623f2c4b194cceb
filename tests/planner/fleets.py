"""Small random fleets of made-up GPUs, the same for a seed every time, and what their sets of tenants are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from problems import physical_problem

from planner.budget import Budget
from planner.cluster.fleet import Apart, Fleet, FleetGpu, GpuClass, TenantSet
from planner.errors import ProblemError
from planner.problem import Problem, TenantTerms
from planner.solve import solve

MOST = 3


def random_fleet(seed: int, n_tenants: int = 5, n_gpus: int = 3, n_classes: int = 1) -> Fleet:
    """Tenants with problems of four steps on an A30, of which a second class is made up to be twice as fast.

    Now and then a tenant may not go somewhere, or not beside another, by GPU or by node.
    """
    rng = np.random.default_rng([seed, 60])
    names = tuple(f"t{i}" for i in range(n_tenants))
    alone = [_alone(seed, i, name) for i, name in enumerate(names)]
    fast = [replace(one, tenants=(_faster(one),)) if rng.random() < 0.8 else None for one in alone]
    classes = (GpuClass("made-up-a30", tuple(alone), MOST), GpuClass("made-up-fast", tuple(fast), MOST))[:n_classes]
    gpus = tuple(
        FleetGpu(f"g{g}", f"n{g % 2}", g % n_classes, frozenset(names[:1] if rng.random() < 0.2 else ()))
        for g in range(n_gpus)
    )
    pairs = list(combinations(names, 2))
    apart = [Apart(frozenset(pair), per_node=bool(rng.random() < 0.5)) for pair in pairs if rng.random() < 0.08]
    return Fleet(names, classes, gpus, tuple(apart))


def plain_fleet(seed: int, n_tenants: int = 6, n_gpus: int = 3) -> Fleet:
    """Like GPUs without rules between tenants, any of which can be served together, as many as a GPU takes."""
    fleet, alone = random_fleet(seed, n_tenants, n_gpus), []
    for one in fleet.classes[0].alone:
        assert one is not None
        (terms,) = one.tenants
        rates = {"1g.6gb": 0.3 * max(terms.capability_rps.values()), **terms.capability_rps}
        kind = replace(terms, capability_rps=rates, min_profile="1g.6gb", retraining_required=False)
        alone.append(replace(one, tenants=(kind,)))
    gpus = tuple(replace(gpu, barred=frozenset()) for gpu in fleet.gpus)
    return replace(fleet, classes=(replace(fleet.classes[0], alone=tuple(alone)),), gpus=gpus, apart=())


def _alone(seed: int, i: int, name: str) -> Problem:
    drawn = physical_problem(1000 * seed + i, 4, 1)
    return replace(drawn, initial=None, tenants=(replace(drawn.tenants[0], name=name),))


def _faster(alone: Problem) -> TenantTerms:
    (terms,) = alone.tenants
    return replace(terms, capability_rps={name: 2 * rate for name, rate in terms.capability_rps.items()})


def posed(fleet: Fleet, wanted: TenantSet) -> Problem | None:
    """The problem of these tenants on one GPU of the class; ``None`` where they are too many for it."""
    alone = [fleet.classes[wanted.gpu_class].alone[i] for i in wanted.members]
    problems = [one for one in alone if one is not None]
    if len(problems) < len(alone):
        return None
    try:
        return replace(problems[0], tenants=tuple(one.tenants[0] for one in problems))
    except ProblemError:
        return None


@dataclass
class Engine:
    """Values sets by their plans, and keeps them; ``asked`` are the batches."""

    fleet: Fleet
    budget: Budget | None = field(default_factory=lambda: Budget(max_nodes=10, proves=False))
    asked: list[Sequence[TenantSet]] = field(default_factory=list)
    known: dict[TenantSet, float | None] = field(default_factory=dict)

    def __call__(self, wanted: Sequence[TenantSet]) -> list[float | None]:
        self.asked.append(tuple(wanted))
        for one in wanted:
            if one not in self.known:
                problem = posed(self.fleet, one)
                self.known[one] = None if problem is None else solve(problem, "physical", self.budget).objective
        return [self.known[one] for one in wanted]


def all_sets(fleet: Fleet, gpu: int, most: int = MOST) -> list[TenantSet]:
    """Every set of tenants that the GPU may have, as far as that does not depend on other GPUs."""
    sizes = range(1, most + 1)
    members = [own for size in sizes for own in combinations(range(len(fleet.tenants)), size)]
    return [TenantSet(fleet.gpus[gpu].gpu_class, own) for own in members if fleet.may_hold(gpu, own)]


def values_by_gpu(
    fleet: Fleet, worths: Callable[[Sequence[TenantSet]], Sequence[float | None]]
) -> list[dict[int, float]]:
    """By GPU what each set is worth, by its tenants as bits; those that can be served."""
    found = []
    for gpu in range(len(fleet.gpus)):
        sets = all_sets(fleet, gpu)
        own = zip(sets, worths(sets), strict=True)
        found.append({sum(1 << i for i in one.members): worth for one, worth in own if worth is not None})
    return found
