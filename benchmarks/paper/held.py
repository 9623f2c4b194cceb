"""A policy that holds given instances from the first second to the last, where they sit, and how a config fares.

Retrainings run beside the held instances, each on an instance of the profile given for it, from the window's first
second on; when one has ended its slices stay idle until the next window.

The paper divides a GPU's seven GPCs into parts of one to six. MIG has no instance of five or six GPCs, so two
instances stand for one: of the multisets with the fewest instances that fit beside everything else, the one that
answers most requests a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from tempfile import TemporaryDirectory

from executor.mig import GpuModel, Placement
from migrator.compare import Match, Score, score_of
from migrator.config import Config
from planner.counts import feasible_multisets
from planner.engines.physical.held_sets import HeldSets
from planner.engines.static import solve_static_among
from planner.plan import MigPlan
from planner.policies.policy import Knows, Policy, Window
from planner.problem import Problem

Names = tuple[str, ...]
"""Profiles of the instances that one task holds."""


@dataclass(frozen=True)
class Held(Policy):
    """Holds the same instances in all windows.

    Attributes:
        inference: By tenant, the profiles of its inference's instances.
        retraining: By tenant, the profile of its retraining's instance.
    """

    inference: tuple[Names, ...]
    retraining: Names
    name: str = "held"
    knows: Knows = Knows.FORECAST

    def plan(self, window: Window) -> MigPlan:
        """The given instances with each retraining on its own; the engine ``static`` chooses when it starts."""
        problem = _on_given_profiles(window.problem, self.retraining)
        parts = placed(problem.gpu, (*self.inference, self.retraining))[: len(self.inference)]
        entries = frozenset((placement, tenant) for tenant, part in enumerate(parts) for placement in part)
        number = HeldSets.of(problem).index(entries)
        return solve_static_among(problem, [] if number is None else [number])


def _on_given_profiles(problem: Problem, profile_names: Sequence[str]) -> Problem:
    """The problem in which each tenant's retraining may run on one profile only; a plan of it is one of the problem."""
    tenants = []
    for tenant, name in zip(problem.tenants, profile_names, strict=True):
        options = tuple(replace(option, time_s={name: option.time_s[name]}) for option in tenant.options)
        tenants.append(replace(tenant, options=options))
    return replace(problem, tenants=tuple(tenants))


_FILE = """from functools import partial

from benchmarks.paper.held import Held

POLICY = partial(Held, {inference!r}, {retraining!r})
"""


def score_held(config: Config, held: Held) -> Score:
    """The config simulated with what is held; same config, same score."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "held.py"
        path.write_text(_FILE.format(inference=held.inference, retraining=held.retraining), "utf-8")
        return score_of(Match(str(path), config, config.name, 0))


def substitutes(gpu: GpuModel, gpcs: int, beside: Sequence[str]) -> tuple[Names, ...]:
    """Every multiset of ``gpcs`` compute slices with the fewest instances that fits the GPU together with ``beside``.

    A single one where MIG has an instance of that size.

    Raises:
        ValueError: There is none.
    """
    slices = {name: gpu.profile(name).compute_slices for name in gpu.standard_profile_names}
    for n_instances in range(1, gpcs + 1):
        chosen = combinations_with_replacement(slices, n_instances)
        found = [names for names in chosen if sum(slices[name] for name in names) == gpcs]
        fitting = tuple(names for names in found if fit_together(gpu, (*names, *beside)))
        if fitting:
            return fitting
    raise ValueError(f"{gpu.name}: nothing has {gpcs} compute slices beside {', '.join(beside) or 'nothing'}")


def best_substitute(gpu: GpuModel, gpcs: int, beside: Sequence[str], capability_rps: Mapping[str, float]) -> Names:
    """Of the ``substitutes``, the one of the highest capability, its larger instances first."""
    best = max(substitutes(gpu, gpcs, beside), key=lambda names: capability_of(names, capability_rps))
    return tuple(reversed(best))


def capability_of(names: Sequence[str], capability_rps: Mapping[str, float]) -> float:
    """Requests a second that these instances answer together."""
    return sum(capability_rps[name] for name in names)


def one_of(gpu: GpuModel, gpcs: int) -> str:
    """The standard profile of ``gpcs`` compute slices."""
    return next(name for name in gpu.standard_profile_names if gpu.profile(name).compute_slices == gpcs)


def fit_together(gpu: GpuModel, names: Sequence[str]) -> bool:
    """Whether some layout has exactly these instances."""
    standard = gpu.standard_profile_names
    return tuple(map(list(names).count, standard)) in feasible_multisets(gpu, standard)


def placed(gpu: GpuModel, parts: Sequence[Names]) -> list[list[Placement]]:
    """Where each part's instances sit, in the first layout that has exactly the instances of all parts.

    Raises:
        ValueError: No layout has them.
    """
    wanted = sorted(name for part in parts for name in part)
    for layout in gpu.layouts(sorted(set(wanted))):
        left = list(layout)
        if sorted(placement.profile.name for placement in left) == wanted:
            return [[left.pop(_first(left, name)) for name in part] for part in parts]
    raise ValueError(f"{gpu.name}: no layout has {', '.join(wanted)}")


def _first(placements: Sequence[Placement], name: str) -> int:
    return next(index for index, placement in enumerate(placements) if placement.profile.name == name)
