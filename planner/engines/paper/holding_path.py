"""``paper``: what can be held in the best way, step by step, beside retrainings that are fixed.

Exactly, as the longest path over joint states of :class:`planner.engines.paper.states.JointStates`; and as
per-step maxima without change costs, which bound it from above and cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.mig import Multiset
from planner.engines.paper.states import JointStates
from planner.engines.schedule import RetrainingChoices, TenantDecision
from planner.problem import FloatArray, GainTable, Problem


class HoldingPaths:
    """One ``paper`` problem's joint states and gains, used for many retraining choices."""

    def __init__(self, problem: Problem, tables: Sequence[GainTable], joint: JointStates | None = None) -> None:
        self.problem = problem
        self.joint = JointStates(problem, tables) if joint is None else joint
        self._best_steps: dict[tuple[Multiset, tuple[int, ...]], FloatArray] = {}

    @property
    def n_states(self) -> int:
        """JointStates states of the problem."""
        return self.joint.n_states

    def best_without_change(self, running: Multiset, levels: tuple[int, ...]) -> FloatArray:
        """The most that any step can earn with these retrainings running and these levels, ``(n_steps,)``.

        Changes cost nothing here, so sums of it are upper bounds. −inf where nothing fits.
        """
        key = (running, levels)
        if key not in self._best_steps:
            fits = self.joint.fitting([p for p, count in enumerate(running) for _ in range(count)])
            steady = sum(self.joint.steady[m, level][:, fits] for m, level in enumerate(levels))
            self._best_steps[key] = np.max(steady, axis=1, initial=-np.inf)
        return self._best_steps[key]

    def best(self, choices: RetrainingChoices) -> tuple[float, tuple[TenantDecision, ...]] | None:
        """The best decisions with these retrainings, and their value; ``None`` if some step has no room."""
        decisions = self.joint.path(choices)
        return None if decisions is None else (self.joint.value(choices), decisions)
