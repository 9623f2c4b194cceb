"""``paper``: from a problem through a mixed-integer program to a plan, whatever the program and the solver.

What is returned never rests on the solver's arithmetic alone: its solution is rounded, checked
against the rules, and valued anew. Greedy's plan, or the one to start from, is given to the solver as its start, and
stands in when it is better or the only one. The bound is the solver's, or greedy's where that is lower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pulp

from executor.compiled import working_s
from planner.budget import Budget
from planner.engines.answer import relaxed_bound, require_model, without_plan
from planner.engines.milp.solvers import Solver, SolverAnswer, ask
from planner.engines.paper.greedy import candidates
from planner.engines.paper.plan import Decisions, TenantDecision, broken_rule, schedule_in, value_of, with_decisions
from planner.engines.paper.states import JointStates
from planner.engines.schedule import Incumbent, WindowFacts, best_of
from planner.feasibility import RULE_RETRAINING, infeasibility
from planner.plan import Infeasibility, MigPlan, Status
from planner.problem import GainTable, Problem, Reconfiguration

PROOF_TOLERANCE = 1e-6
"""A solver that says "optimal" at gap 0 means it within this, relatively: its feasibility tolerance.

Where its bound lies at most this far above the recomputed objective, the plan is called optimal.
"""


class Formulation(Protocol):
    """A program, to be minimised, and what its variables mean."""

    @property
    def program(self) -> pulp.LpProblem:
        """The program; its objective is minus goodput, times ``scale``."""
        ...

    @property
    def scale(self) -> float:
        """Units of the program's objective per request."""
        ...

    @property
    def constant(self) -> float:
        """Requests that every plan is worth beside what the program's objective says."""
        ...

    def start_from(self, decisions: Sequence[TenantDecision]) -> None:
        """Give every variable the value that it has in these decisions, which keep the rules."""
        ...

    def decisions(self) -> tuple[TenantDecision, ...]:
        """What the variables' values decide, rounded; not checked."""
        ...


Formulate = Callable[[Problem, Sequence[GainTable], Callable[[], None]], Formulation]
"""Makes the program of a problem with its gain tables; what it calls in every step may raise to end that."""


class _TimeUpError(Exception):
    """Time was up before the program was made."""


@dataclass(frozen=True)
class _Solved:
    joint: JointStates
    formulation: Formulation
    answer: SolverAnswer
    floor: tuple[Incumbent[Decisions], ...]


def solve_formulated(
    problem: Problem,
    engine: str,
    formulate: Formulate,
    budget: Budget,
    initial: MigPlan | None,
    *,
    solver: Solver,
    presolve: bool,
) -> MigPlan:
    """The best plan found within ``budget``, with bound and gap; never worse than greedy's or ``initial``.

    Raises:
        EngineError: The problem is not ``paper``, or the solver is missing or failed.
    """
    started_s = working_s()
    require_model(problem, Reconfiguration.PAPER, engine)
    reason = infeasibility(problem)
    if reason is not None:
        return replace(without_plan(problem, Status.INFEASIBLE, engine, started_s), infeasibility=reason)
    facts = WindowFacts.of(problem)
    joint = JointStates(facts)
    floor = candidates(joint, initial)
    start = best_of(floor)

    def look_at_the_clock(more_s: float = 0.0) -> None:
        if start is not None and _is_late(budget, started_s, more_s):
            raise _TimeUpError

    begun_s = working_s()
    try:
        formulation = formulate(problem, facts.gains, look_at_the_clock)
        if start is not None:
            formulation.start_from(start.answer)
        # To hand the program to a solver takes about as long as to make it.
        look_at_the_clock(working_s() - begun_s)
    except _TimeUpError:
        assert start is not None
        return with_decisions(problem, start, max(start.value, relaxed_bound(facts)), engine, started_s)
    left = _left(budget, working_s() - started_s)
    answer = ask(solver, formulation.program, left, presolve=presolve, has_start=start is not None)
    if answer.is_infeasible and not floor:
        text = "no schedule of the required retrainings fits beside every tenant's min_profile"
        plan = without_plan(problem, Status.INFEASIBLE, engine, started_s)
        return replace(plan, infeasibility=Infeasibility(None, RULE_RETRAINING, text))
    return _best_plan(problem, engine, _Solved(joint, formulation, answer, tuple(floor)), started_s)


def _is_late(budget: Budget, started_s: float, more_s: float) -> bool:
    """Whether a limit of seconds is met, or will be in ``more_s`` seconds."""
    return budget.time_limit_s is not None and working_s() - started_s + more_s >= budget.time_limit_s


def _left(budget: Budget, spent_s: float) -> Budget:
    if budget.time_limit_s is None:
        return budget
    return replace(budget, time_limit_s=max(0.01, budget.time_limit_s - spent_s))


def _best_plan(problem: Problem, engine: str, solved: _Solved, started_s: float) -> MigPlan:
    """The better of the solver's plan and the floor, with the lower of both bounds."""
    answer = solved.answer
    own = _solver_candidates(problem, solved) if answer.has_solution else []
    best = best_of([*own, *solved.floor])
    bound = relaxed_bound(solved.joint.facts)
    if answer.bound is not None:
        bound = min(bound, -answer.bound / solved.formulation.scale + solved.formulation.constant)
    work = (("variables", len(solved.formulation.program.variables())), ("nodes", answer.n_nodes))
    if best is None:
        return replace(without_plan(problem, Status.TIMEOUT, engine, started_s, bound), work=work)
    certified = _certified_bound(best.value, bound, solved)
    return with_decisions(problem, best, certified, engine, started_s, work)


def _certified_bound(value: float, bound: float, solved: _Solved) -> float:
    """The bound that goes with a plan worth ``value``: never below it, and equal to it where that is proven."""
    tolerance = PROOF_TOLERANCE * max(abs(bound), 1.0 / solved.formulation.scale)
    if bound < value - tolerance:
        # The solver contradicts a plan that was checked: its bound is worth nothing.
        return max(value, relaxed_bound(solved.joint.facts))
    if bound < value or (solved.answer.is_proven and bound <= value + tolerance):
        return value
    return bound


def _solver_candidates(problem: Problem, solved: _Solved) -> list[Incumbent[Decisions]]:
    """The solver's decisions; where they are not proven best, also the best path beside their retrainings."""
    decisions = solved.formulation.decisions()
    found: list[Incumbent[Decisions]] = []
    if broken_rule(problem, decisions) is None:
        found.append(Incumbent(value_of(problem, solved.joint.facts.gains, decisions), decisions))
    if not found or not solved.answer.is_proven:
        path = solved.joint.path(schedule_in(decisions))
        if path is not None and broken_rule(problem, path) is None:
            found.append(Incumbent(value_of(problem, solved.joint.facts.gains, path), path))
    return found


Expression = Any
"""A number, a variable of PuLP, or a sum of them."""


def present_value(expression: Expression) -> float:
    """What the expression comes to at the variables' present values."""
    return float(pulp.value(expression))


def meaning_positive(expression: Expression) -> Callable[[], float]:
    """1 where the expression is above 0, else 0."""
    return lambda: float(present_value(expression) > 0)


def meaning_number(expression: Expression, number: int) -> Callable[[], float]:
    """1 where the integer expression is ``number``, else 0."""
    return lambda: float(round(present_value(expression)) == number)


class MeantVariables:
    """Makes the variables and constraints of one program, which is to be minimised.

    A variable's meaning is the value that those made before it give it. A solver's start then needs the decisions
    only: all other variables are worked out in the order in which they were made.
    """

    def __init__(self, name: str) -> None:
        self.program = pulp.LpProblem(name, pulp.LpMinimize)
        self._meanings: list[tuple[pulp.LpVariable, Callable[[], float]]] = []

    def decision(self, name: str) -> pulp.LpVariable:
        """A binary that no other variable determines."""
        return self.program.add_variable(name, cat=pulp.LpBinary)

    def binary(self, name: str, meaning: Callable[[], float]) -> pulp.LpVariable:
        """A binary that means ``meaning()``."""
        return self._meant(self.program.add_variable(name, cat=pulp.LpBinary), meaning)

    def real(self, name: str, least: float, most: float, meaning: Callable[[], float]) -> pulp.LpVariable:
        """A number in ``[least, most]`` that means ``meaning()``; sums that round beyond a bound are that bound."""

        def within() -> float:
            return min(max(meaning(), least), most)

        return self._meant(self.program.add_variable(name, least, most), within)

    def _meant(self, variable: pulp.LpVariable, meaning: Callable[[], float]) -> pulp.LpVariable:
        self._meanings.append((variable, meaning))
        return variable

    def require(self, *constraints: pulp.LpConstraint) -> None:
        """Add the constraints."""
        for constraint in constraints:
            self.program.addConstraint(constraint)

    def equals(self, name: str, one: Expression, other: Expression, most: int) -> pulp.LpVariable:
        """Equals(A, B) of two integers in ``[0, most]``: 1 if they are equal, else 0.

        Exactly one of A = B, A > B and A < B holds, each with a binary.
        """
        difference = pulp.lpSum([one, -other])
        equal = self.binary(f"{name}_eq", meaning_number(difference, 0))
        more = self.binary(f"{name}_gt", meaning_positive(difference))
        less = self.binary(f"{name}_lt", meaning_positive(-difference))
        self.require(equal + more + less == 1)
        self.require(difference <= most * more - less, difference >= more - most * less)
        return equal

    def work_out(self) -> None:
        """Give every variable but the decisions the value that it means."""
        for variable, meaning in self._meanings:
            variable.setInitialValue(meaning())
