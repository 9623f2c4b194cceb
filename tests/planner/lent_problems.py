"""Small random problems with one layout that stays, all tenants in one pool, and retrainings on loans of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from problems import physical_problem, with_checkpoints, with_floors, with_gain_tables, with_salvage

from executor.mig import Placement
from planner.problem import HeldInstance, PhysicalState, Pool, Problem, RetrainingOption, RunningRetraining, TenantTerms

LAYOUTS = (
    ("2g.12gb@0", "2g.12gb@2"),
    ("2g.12gb@0", "1g.6gb@2", "1g.6gb@3"),
    ("1g.6gb@0", "1g.6gb@1", "1g.6gb@2", "1g.6gb@3"),
    ("1g.6gb@0", "1g.6gb@1", "2g.12gb@2"),
)
"""Of an A30; the last but one is drawn less often, as its loans are all alike."""


def lent_problem(seed: int) -> Problem:
    """One to three tenants, five to nine steps; each feature, a start that stands and a loan that runs in some."""
    rng = np.random.default_rng([seed, 63])
    n_tenants = int(rng.choice([1, 2, 3], p=[0.15, 0.55, 0.3]))
    problem = replace(physical_problem(4000 + seed, int(rng.integers(5, 10)), n_tenants), initial=None)
    layout = tuple(map(problem.gpu.placement, LAYOUTS[int(rng.choice(4, p=[0.4, 0.25, 0.1, 0.25]))]))
    sizes = {place.profile.name: place.profile.compute_slices for place in layout}
    tenants = tuple(_tenant(rng, own, sizes, problem.n_steps) for own in problem.tenants)
    rates = {
        name: {own.name: round(float(rng.uniform(20, 60)) * size**0.9, 1) for own in tenants}
        for name, size in sizes.items()
    }
    pools = (Pool(tuple(own.name for own in tenants), rates, float(rng.choice([0.0, 1.0, 2.0]))),)
    problem = replace(problem, tenants=tenants, pools=pools[: n_tenants > 1], layout=layout)
    if rng.random() < 0.5:
        problem = _standing(rng, problem)
    if rng.random() < 0.35:
        problem = with_checkpoints(problem, seed)
    elif rng.random() < 0.35:
        problem = with_floors(problem, seed, str(rng.choice(["step", "window"])))
    if rng.random() < 0.4:
        problem = with_salvage(problem, seed)
    return with_gain_tables(problem, seed) if rng.random() < 0.25 else problem


def _tenant(rng: np.random.Generator, own: TenantTerms, sizes: dict[str, int], n_steps: int) -> TenantTerms:
    """It may be served by all that stands, and retrains mostly on that, too; swaps take a step at most."""
    rates = {name: round(float(rng.uniform(20, 60)) * size**0.9, 1) for name, size in sizes.items()}
    names = [name for name in sizes if rng.random() < 0.8] or [*sizes]
    options = tuple(
        RetrainingOption(
            option.name, {name: float(rng.uniform(0.5, n_steps / 2)) for name in names}, option.accuracy_after
        )
        for option in own.options
    )
    least = own.min_profile if rng.random() < 0.15 else "1g.6gb"
    return replace(
        own, capability_rps=rates, options=options, min_profile=least, retraining_required=bool(rng.random() < 0.3)
    )


def _standing(rng: np.random.Generator, problem: Problem) -> Problem:
    """The problem that begins with its layout, part of it, or something else; in some a loan runs."""
    first, *others = problem.tenant_names
    kind, epoch_step = rng.random(), int(rng.integers(0, 3))
    places: tuple[Placement, ...] = problem.layout
    if kind < 0.2:
        places = places[:-1]
    elif kind < 0.3:
        places = tuple(map(problem.gpu.placement, LAYOUTS[0]))
    held = tuple(HeldInstance(place, first, int(rng.integers(0, epoch_step + 1)), tuple(others)) for place in places)
    running = list[RunningRetraining]()
    willing = [own.name for own in problem.tenants if own.options]
    if kind >= 0.3 and willing and rng.random() < 0.5:
        end_step = int(rng.integers(1, problem.n_steps + 1))
        held = tuple(replace(item, serve_step=0) for item in held)
        running.append(
            RunningRetraining(places[0], str(rng.choice(willing)), end_step, int(rng.integers(0, end_step + 1)))
        )
    try:
        return replace(problem, initial=PhysicalState(held, tuple(running), epoch_step))
    except ValueError:
        return problem
