"""Engine ``milp``: the tight mixed-integer program of a ``paper`` problem, in PuLP, on any of the solvers.

===============  ======================================================================
h[m, k, s]       1 when m's inference holds multiset k in step s
stay[m, l, k, s] 1 when it holds k at level l and held k in step s − 1 too
new[m, l, k, s]  1 when it holds k at level l and pays for a change (never more worth than stay)
r[m, o, p, a]    1 when option o of m starts on profile p at step a
===============  ======================================================================

::

    max  Σ steady[m, l, s, k] · stay + changed[m, l, s, k] · new + (S[m, o] − S[m, 0]) · r    (written as a minimum)
    Σ_l stay + new = h                        every m, k, s
    Σ_k h = 1                                 every m, s
    Σ_l stay[m, l, k, s] ≤ h[m, k, s − 1]     every m, k, s ≥ 1
    Σ_k stay + new = Σ r at level l in s      every m, s, level l ≥ 1 (with swaps: and share of gains left)
    Σ r = 1 (required) or ≤ 1                 every m
    facet · (Σ h · counts + running) ≤ bound  every s, facet of the hull of counts feasible in s

Only h and r are integer: with them fixed, levels and holdings leave one choice each. The hull of every
catalogued GPU admits no integer point that fits no layout, whatever memory slices are not ours, so its facets alone
state rule 1. On a GPU model
whose hull had such points the program would be a relaxation: its bound would hold, and
:mod:`planner.engines.milp.program` would refuse a solution that breaks the rule.

Source: design, section 4, "A tight formulation".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pulp

from executor.mig import Multiset
from planner.budget import Budget
from planner.counts import tenant_multisets, unit_multiset
from planner.engines.arrays import Floats, Int64s
from planner.engines.milp.hull import hull_facets
from planner.engines.milp.program import solve_formulated
from planner.engines.milp.solvers import Solver, solver_of
from planner.engines.paper.plan import TenantDecision, course_of, initial_multisets
from planner.engines.schedule import choices_of
from planner.plan import MigPlan
from planner.problem import GainTable, Problem, Retraining

ENGINE = "milp"

OBJECTIVE_SCALE = 1e3
"""The largest gain of a step after scaling, so that a solver's absolute tolerances are small beside it."""


def solve_milp(
    problem: Problem,
    budget: Budget | None = None,
    initial: MigPlan | None = None,
    *,
    solver: Solver | str = Solver.HIGHS,
    presolve: bool = False,
) -> MigPlan:
    """The best plan found within ``budget``, with bound and gap; never worse than greedy's or ``initial``.

    Args:
        problem: A ``paper`` problem.
        budget: Limits; none by default.
        initial: A plan of an earlier solve, to start from; returned again where it is the better one.
        solver: ``highs``, ``cbc`` or ``gurobi``.
        presolve: Whether the solver may presolve; HiGHS was faster without.

    Raises:
        EngineError: The problem is not ``paper``, or the solver is unknown, missing, without a licence for a
            program of this size, or failed.
    """
    return solve_formulated(
        problem, ENGINE, milp_model, budget or Budget(), initial, solver=solver_of(solver), presolve=presolve
    )


Stage = tuple[int, float]
"""A level, and what taking weights over leaves of gains above zero."""

SETTLED: Stage = (0, 1.0)


@dataclass
class MilpModel:
    """The program and what its variables mean; a ``Formulation``.

    Attributes:
        problem: What it was made for.
        tables: Its gain tables.
        multisets: What each tenant may hold.
        scale: Units of the program's objective per request.
        program: To be minimised; its objective is minus goodput, times ``scale``.
        objective: The terms of the program's objective.
        holds: h by (tenant, step), in the order of the tenant's multisets.
        gains: (stay, new) by (tenant, stage, step), in the same order.
        courses: By tenant, in the order of ``starts``, each choice's level and share in each step.
        starts: r by tenant, with the choice that each stands for.
    """

    problem: Problem
    tables: Sequence[GainTable]
    multisets: list[tuple[Multiset, ...]]
    scale: float
    program: pulp.LpProblem
    objective: list[tuple[pulp.LpVariable, float]] = field(default_factory=list)
    holds: dict[tuple[int, int], list[pulp.LpVariable]] = field(default_factory=dict)
    gains: dict[tuple[int, Stage, int], list[tuple[pulp.LpVariable, pulp.LpVariable]]] = field(default_factory=dict)
    starts: dict[int, list[tuple[Retraining, pulp.LpVariable]]] = field(default_factory=dict)
    courses: dict[int, list[tuple[Int64s, Floats]]] = field(default_factory=dict)

    @property
    def constant(self) -> float:
        """Σ S[m, 0]: requests that every plan is worth beside what the program's objective says."""
        return sum(tenant.salvages[0] for tenant in self.problem.tenants)

    def binary(self, name: str) -> pulp.LpVariable:
        """A new variable that is 0 or 1."""
        return self.program.add_variable(name, cat=pulp.LpBinary)

    def add_sum(self, terms: Iterable[tuple[pulp.LpVariable, float]], sense: int, bound: float) -> None:
        """A new constraint: the sum of the terms compared with ``bound``."""
        expression = pulp.LpAffineExpression(list(terms))
        self.program.addConstraint(pulp.LpConstraint(expression, sense, rhs=bound))

    def start_from(self, decisions: Sequence[TenantDecision]) -> None:
        """Give every variable the value that it has in these decisions, which keep the rules."""
        for variable in self.program.variables():
            variable.setInitialValue(0.0)
        for m, decision in enumerate(decisions):
            for variable in self._decided(m, decision):
                # A start below a floor is none that the program allows; the solver passes over it.
                variable.setInitialValue(1.0, check=False)

    def _decided(self, m: int, decision: TenantDecision) -> Iterator[pulp.LpVariable]:
        """The variables of tenant m that are 1 in its decision."""
        initial = initial_multisets(self.problem)[m]
        before = decision.held[0] if initial is None else initial
        levels, shares = course_of(self.problem, self.problem.tenants[m], decision.retraining)
        for step, multiset in enumerate(decision.held):
            k = self.multisets[m].index(multiset)
            stay, new = self.gains[m, (int(levels[step]), float(shares[step])), step][k]
            yield self.holds[m, step][k]
            yield stay if multiset == before else new
            before = multiset
        yield from (variable for choice, variable in self.starts[m] if choice == decision.retraining)

    def decisions(self) -> tuple[TenantDecision, ...]:
        """The solver's solution, each choice rounded to the variable nearest to 1."""
        decided = []
        for m, multisets in enumerate(self.multisets):
            held = tuple(multisets[_largest(self.holds[m, step])] for step in range(self.problem.n_steps))
            started = [choice for choice, variable in self.starts[m] if (variable.value() or 0.0) > 0.5]
            decided.append(TenantDecision(held, started[0] if started else None))
        return tuple(decided)


def _largest(variables: Sequence[pulp.LpVariable]) -> int:
    values = [variable.value() or 0.0 for variable in variables]
    return values.index(max(values))


def milp_model(
    problem: Problem, tables: Sequence[GainTable], in_every_step: Callable[[], None] = lambda: None
) -> MilpModel:
    """The tight formulation of a ``paper`` problem with these gain tables (which have ``changed``)."""
    largest = max(map(_largest_gain, tables))
    scale = OBJECTIVE_SCALE / largest if largest > 0 else 1.0
    multisets = [tenant_multisets(problem, tenant) for tenant in problem.tenants]
    model = MilpModel(problem, tables, multisets, scale, pulp.LpProblem("goodput", pulp.LpMinimize))
    for m in range(len(problem.tenants)):
        _add_starts(model, m)
        for step in range(problem.n_steps):
            in_every_step()
            _add_step(model, m, step)
    for step in range(problem.n_steps):
        _add_layout(model, step)
    model.program.setObjective(pulp.LpAffineExpression(model.objective))
    return model


def _largest_gain(table: GainTable) -> float:
    """Of what is not barred."""
    found = 0.0
    for number, gains in enumerate((table.steady, table.changed)):
        if gains is not None:
            kept = gains if table.barred is None else np.where(table.barred[number], 0.0, gains)
            found = max(found, float(abs(kept).max()))
    return found


def _add_starts(model: MilpModel, m: int) -> None:
    problem, tenant = model.problem, model.problem.tenants[m]
    model.starts[m] = [
        (earliest.at(a), model.binary(f"r_{m}_{index}_{a}"))
        for index, earliest in enumerate(way for way in choices_of(problem, m) if way is not None)
        for a in range(problem.n_steps - earliest.n_steps + 1)
    ]
    model.courses[m] = [course_of(problem, tenant, choice) for choice, _ in model.starts[m]]
    for choice, variable in model.starts[m] if tenant.salvage else ():
        model.objective.append((variable, -model.scale * (tenant.salvages[choice.level] - tenant.salvages[0])))
    if model.starts[m]:
        sense = pulp.LpConstraintEQ if tenant.must_retrain else pulp.LpConstraintLE
        model.add_sum([(variable, 1.0) for _, variable in model.starts[m]], sense, 1.0)


def _add_step(model: MilpModel, m: int, step: int) -> None:
    """Holdings, stays, changes and levels of tenant m in one step."""
    multisets = model.multisets[m]
    holds = [model.binary(f"h_{m}_{k}_{step}") for k in range(len(multisets))]
    model.holds[m, step] = holds
    reached: dict[Stage, list[pulp.LpVariable]] = {SETTLED: []}
    for (_, variable), (levels, shares) in zip(model.starts[m], model.courses[m], strict=True):
        if levels[step]:
            reached.setdefault((int(levels[step]), float(shares[step])), []).append(variable)
    initial = initial_multisets(model.problem)[m]
    all_stay: dict[int, list[pulp.LpVariable]] = defaultdict(list)
    all_hold: dict[int, list[pulp.LpVariable]] = defaultdict(list)
    for stage in sorted(reached):
        at_stage = []
        pairs = [_add_gains(model, (m, stage, step), k, multiset) for k, multiset in enumerate(multisets)]
        model.gains[m, stage, step] = pairs
        for k, (multiset, (stay, new)) in enumerate(zip(multisets, pairs, strict=True)):
            if step == 0 and initial is not None and multiset != initial:
                stay.upBound = 0.0
            all_stay[k].append(stay)
            all_hold[k] += [stay, new]
            at_stage += [stay, new]
        if stage != SETTLED:
            terms = [(v, 1.0) for v in at_stage] + [(v, -1.0) for v in reached[stage]]
            model.add_sum(terms, pulp.LpConstraintEQ, 0.0)
    model.add_sum([(v, 1.0) for v in holds], pulp.LpConstraintEQ, 1.0)
    for k, hold in enumerate(holds):
        model.add_sum([*((v, 1.0) for v in all_hold[k]), (hold, -1.0)], pulp.LpConstraintEQ, 0.0)
        if step:
            before = model.holds[m, step - 1][k]
            model.add_sum([*((v, 1.0) for v in all_stay[k]), (before, -1.0)], pulp.LpConstraintLE, 0.0)


def _add_gains(
    model: MilpModel, where: tuple[int, Stage, int], k: int, multiset: Multiset
) -> tuple[pulp.LpVariable, pulp.LpVariable]:
    """The stay and new variables of (tenant, stage, step) and multiset k, with their gains in the objective."""
    m, (level, share), step = where
    named = f"{m}_{level}" if share == 1.0 else f"{m}_{level}_{share!r}"
    table = model.tables[m]
    column = table.column[multiset]
    assert table.changed is not None
    variables = []
    for number, (letter, gains) in enumerate((("s", table.steady), ("n", table.changed))):
        # Below a floor of in-time answers: penalties would leave a solver no digits for the rest.
        is_barred = table.barred is not None and bool(table.barred[number][step, column])
        variable = model.program.add_variable(f"{letter}_{named}_{k}_{step}", 0.0, 0.0 if is_barred else 1.0)
        gain = float(gains[level, step, column])
        model.objective.append((variable, 0.0 if is_barred else -model.scale * min(gain, share * gain)))
        variables.append(variable)
    return variables[0], variables[1]


def _add_layout(model: MilpModel, step: int) -> None:
    """Rule 1 in one step: all that is held lies in the hull of what fits."""
    problem = model.problem
    held = [
        (multiset, variable)
        for m, own in enumerate(model.multisets)
        for multiset, variable in zip(own, model.holds[m, step], strict=True)
    ]
    held += [
        (unit_multiset(problem, choice.profile), variable)
        for started in model.starts.values()
        for choice, variable in started
        if choice.start_step <= step < choice.end_step
    ]
    for facet in hull_facets(problem.gpu, problem.profile_names, problem.unavailable_in(step, step + 1)):
        terms = [(variable, float(facet.load(multiset))) for multiset, variable in held]
        model.add_sum([term for term in terms if term[1]], pulp.LpConstraintLE, float(facet.bound))
