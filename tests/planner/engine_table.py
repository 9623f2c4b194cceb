"""The engines that tests are run on, in one table: what each answers, and what it promises of small problems."""

from __future__ import annotations

from dataclasses import dataclass

from planner.budget import EngineOptions
from planner.plan import MigPlan
from planner.problem import Per, Problem, Reconfiguration
from planner.solve import solve


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine by name, for one model; an integer program with its solver.

    Attributes:
        proves: Finds the best plan of a small problem and says so, but where floors relax it.
        changes: Whether its plans change what inference holds.
    """

    name: str
    model: Reconfiguration
    proves: bool = False
    changes: bool = True
    solver: str | None = None

    def __str__(self) -> str:
        return self.name if self.solver is None else f"{self.name} on {self.solver}"

    def answers(self, problem: Problem) -> bool:
        """Whether it takes the problem, and in no time: an integer program only of an A30, without what it refuses."""
        if self.model is not problem.reconfiguration:
            return False
        is_plain = problem.gains is None and not any(tenant.has_swaps for tenant in problem.tenants)
        return self.solver is None or (is_plain and problem.gpu.name == "a30-24gb")

    def proves_best(self, problem: Problem) -> bool:
        """Whether it promises the best plan: not under floors per window, and an integer program under none."""
        floors = [tenant.min_slo_attainment for tenant in problem.tenants if tenant.min_slo_attainment is not None]
        is_relaxed = any(floor.per is Per.WINDOW for floor in floors) if self.solver is None else bool(floors)
        return self.proves and not is_relaxed

    @property
    def tolerance(self) -> float:
        """By how much of them its values and bounds may be off: an integer program's are its solver's."""
        return 1e-9 if self.solver is None else 1e-6

    def plan(self, problem: Problem) -> MigPlan:
        """What it answers without limits."""
        return solve(problem, self.name, options=EngineOptions(self.solver))


ENGINES = (
    Engine("exact", Reconfiguration.PAPER, proves=True),
    Engine("paper-ilp", Reconfiguration.PAPER, proves=True, solver="highs"),
    Engine("paper-ilp", Reconfiguration.PAPER, proves=True, solver="cbc"),
    Engine("greedy", Reconfiguration.PAPER),
    Engine("static", Reconfiguration.PAPER, changes=False),
    Engine("physical", Reconfiguration.PHYSICAL, proves=True),
    Engine("greedy", Reconfiguration.PHYSICAL),
    Engine("static", Reconfiguration.PHYSICAL, changes=False),
)
