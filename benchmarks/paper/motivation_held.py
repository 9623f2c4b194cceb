"""A policy that holds given instances from the first second to the last, and how a config fares under it.

Retrainings run beside the held instances, each on an instance of the profile given for it, from the window's first
second on; when one has ended its slices stay idle until the next window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.paper.motivation_layouts import Names, placed
from migrator.compare import Match, Score, score_of
from migrator.config import Config
from planner.engines.physical.held_sets import HeldSets
from planner.engines.static import solve_static_among
from planner.plan import MigPlan
from planner.policies.policy import Knows, Policy, Window
from planner.problem import Problem


@dataclass(frozen=True)
class Held(Policy):
    """Holds the same instances all the time, whatever comes.

    Attributes:
        inference: By tenant, the profiles of its inference's instances.
        retraining: By tenant, the profile of its retraining's instance.
    """

    inference: tuple[Names, ...]
    retraining: Names
    name: str = "held"
    knows: Knows = Knows.FORECAST

    def plan(self, window: Window) -> MigPlan:
        """The instances given, with each retraining on its own; the engine ``static`` says when it starts."""
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

from benchmarks.paper.motivation_held import Held

POLICY = partial(Held, {inference!r}, {retraining!r})
"""


def score_held(config: Config, held: Held) -> Score:
    """The config simulated with what is held; same config, same score."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "held.py"
        path.write_text(_FILE.format(inference=held.inference, retraining=held.retraining), "utf-8")
        return score_of(Match(str(path), config, config.name, 0))
