"""The tight mixed-integer program of a ``paper`` problem, in PuLP.

===============  ======================================================================
h[m, k, s]       1 when m's inference holds multiset k in step s
stay[m, l, k, s] 1 when it holds k at level l and held k in step s − 1 too
new[m, l, k, s]  1 when it holds k at level l and pays for a change (never more worth than stay)
r[m, o, p, a]    1 when option o of m starts on profile p at step a
===============  ======================================================================

::

    max  Σ steady[m, l, s, k] · stay + changed[m, l, s, k] · new    (written as a minimum, see ``solver``)
    Σ_l stay + new = h                        every m, k, s
    Σ_k h = 1                                 every m, s
    Σ_l stay[m, l, k, s] ≤ h[m, k, s − 1]     every m, k, s ≥ 1
    Σ_k stay + new = Σ r with a + d ≤ s       every m, s, level l ≥ 1 (of option l − 1)
    Σ r = 1 (required) or ≤ 1                 every m
    facet · (Σ h · counts + running) ≤ bound  every s, facet of the hull of feasible counts

Only h and r are integer: with them fixed, levels and holdings leave one choice each. Where the
hull admits integer points that no layout has, binaries λ pick a maximal feasible multiset per step
that covers the counts.

Source: design, section 4, "A tight formulation".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pulp

from executor.mig import Multiset
from planner.counts import feasible_multisets, tenant_multisets, unit_multiset
from planner.engines.milp.hull import extra_integer_points, hull_facets, maximal_multisets
from planner.engines.paper.plan import TenantDecision, initial_multisets, level_at, running_at
from planner.engines.schedule import choices_of
from planner.problem import GainTable, Problem, Retraining

OBJECTIVE_SCALE = 1e3
"""The largest gain of a step after scaling, so that a solver's absolute tolerances are small beside it."""


@dataclass(frozen=True)
class MilpModel:
    """The program and what its variables mean.

    Attributes:
        problem: What it was made for.
        program: To be minimised; its objective is minus goodput, times ``scale``.
        scale: Units of the program's objective per request.
        holds: h by (tenant, step), in the order of the tenant's multisets.
        gains: (stay, new) by (tenant, level, step), in the same order.
        starts: r by tenant, with the choice that each stands for.
        covers: λ by step, with the maximal multiset that each stands for; empty where facets are enough.
        multisets: By tenant.
    """

    problem: Problem
    program: pulp.LpProblem
    scale: float
    holds: dict[tuple[int, int], list[pulp.LpVariable]]
    gains: dict[tuple[int, int, int], list[tuple[pulp.LpVariable, pulp.LpVariable]]]
    starts: dict[int, list[tuple[Retraining, pulp.LpVariable]]]
    covers: dict[int, list[tuple[Multiset, pulp.LpVariable]]]
    multisets: list[tuple[Multiset, ...]]

    def start_from(self, decisions: Sequence[TenantDecision]) -> None:
        """Give every variable the value that it has in these decisions, which keep the rules."""
        for variable in self.program.variables():
            variable.setInitialValue(0.0)
        ones = [variable for m, decision in enumerate(decisions) for variable in self._decided(m, decision)]
        for variable in [*ones, *self._covering(decisions)]:
            variable.setInitialValue(1.0)

    def _decided(self, m: int, decision: TenantDecision) -> Iterator[pulp.LpVariable]:
        """The variables of tenant m that are 1 in its decision."""
        initial = initial_multisets(self.problem)[m]
        before = decision.held[0] if initial is None else initial
        for step, multiset in enumerate(decision.held):
            k = self.multisets[m].index(multiset)
            stay, new = self.gains[m, level_at(decision.retraining, step), step][k]
            yield self.holds[m, step][k]
            yield stay if multiset == before else new
            before = multiset
        yield from (variable for choice, variable in self.starts[m] if choice == decision.retraining)

    def _covering(self, decisions: Sequence[TenantDecision]) -> Iterator[pulp.LpVariable]:
        """λ of the first maximal multiset of each step that has room for all that is held."""
        choices = tuple(decision.retraining for decision in decisions)
        for step, covers in self.covers.items():
            parts = [*(decision.held[step] for decision in decisions), running_at(self.problem, choices, step)]
            held = tuple(map(sum, zip(*parts, strict=True)))
            yield next(v for cover, v in covers if all(n <= most for n, most in zip(held, cover, strict=True)))

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


@dataclass
class _Builder:
    """Collects the program's parts; used once by :func:`milp_model`."""

    problem: Problem
    tables: Sequence[GainTable]
    scale: float
    program: pulp.LpProblem
    objective: list[tuple[pulp.LpVariable, float]] = field(default_factory=list)
    holds: dict[tuple[int, int], list[pulp.LpVariable]] = field(default_factory=dict)
    gains: dict[tuple[int, int, int], list[tuple[pulp.LpVariable, pulp.LpVariable]]] = field(default_factory=dict)
    starts: dict[int, list[tuple[Retraining, pulp.LpVariable]]] = field(default_factory=dict)
    covers: dict[int, list[tuple[Multiset, pulp.LpVariable]]] = field(default_factory=dict)

    def binary(self, name: str) -> pulp.LpVariable:
        return self.program.add_variable(name, cat=pulp.LpBinary)

    def add_sum(self, terms: Iterable[tuple[pulp.LpVariable, float]], sense: int, bound: float) -> None:
        expression = pulp.LpAffineExpression(list(terms))
        self.program.addConstraint(pulp.LpConstraint(expression, sense, rhs=bound))


def milp_model(problem: Problem, tables: Sequence[GainTable]) -> MilpModel:
    """The tight formulation of a ``paper`` problem with these gain tables (which have ``changed``)."""
    largest = max(float(abs(t).max()) for table in tables for t in (table.steady, table.changed) if t is not None)
    scale = OBJECTIVE_SCALE / largest if largest > 0 else 1.0
    builder = _Builder(problem, tables, scale, pulp.LpProblem("goodput", pulp.LpMinimize))
    multisets = [tenant_multisets(problem, tenant) for tenant in problem.tenants]
    for m in range(len(problem.tenants)):
        _add_starts(builder, m)
        for step in range(problem.n_steps):
            _add_step(builder, m, step, multisets[m])
    for step in range(problem.n_steps):
        _add_layout(builder, step, multisets)
    builder.program.setObjective(pulp.LpAffineExpression(builder.objective))
    return MilpModel(
        problem=problem,
        program=builder.program,
        scale=scale,
        holds=builder.holds,
        gains=builder.gains,
        starts=builder.starts,
        covers=builder.covers,
        multisets=multisets,
    )


def _add_starts(builder: _Builder, m: int) -> None:
    problem, tenant = builder.problem, builder.problem.tenants[m]
    builder.starts[m] = [
        (earliest.at(a), builder.binary(f"r_{m}_{index}_{a}"))
        for index, earliest in enumerate(way for way in choices_of(problem, m) if way is not None)
        for a in range(problem.n_steps - earliest.n_steps + 1)
    ]
    if builder.starts[m]:
        sense = pulp.LpConstraintEQ if tenant.must_retrain else pulp.LpConstraintLE
        builder.add_sum([(variable, 1.0) for _, variable in builder.starts[m]], sense, 1.0)


def _add_step(builder: _Builder, m: int, step: int, multisets: Sequence[Multiset]) -> None:
    """Holdings, stays, changes and levels of tenant m in one step."""
    holds = [builder.binary(f"h_{m}_{k}_{step}") for k in range(len(multisets))]
    builder.holds[m, step] = holds
    ended: dict[int, list[pulp.LpVariable]] = {0: []}
    for choice, variable in builder.starts[m]:
        if choice.end_step <= step:
            ended.setdefault(choice.level, []).append(variable)
    initial = initial_multisets(builder.problem)[m]
    all_stay: dict[int, list[pulp.LpVariable]] = defaultdict(list)
    all_hold: dict[int, list[pulp.LpVariable]] = defaultdict(list)
    for level in sorted(ended):
        at_level = []
        pairs = [_add_gains(builder, (m, level, step), k, multiset) for k, multiset in enumerate(multisets)]
        builder.gains[m, level, step] = pairs
        for k, (multiset, (stay, new)) in enumerate(zip(multisets, pairs, strict=True)):
            if step == 0 and initial is not None and multiset != initial:
                stay.upBound = 0.0
            all_stay[k].append(stay)
            all_hold[k] += [stay, new]
            at_level += [stay, new]
        if level:
            terms = [(v, 1.0) for v in at_level] + [(v, -1.0) for v in ended[level]]
            builder.add_sum(terms, pulp.LpConstraintEQ, 0.0)
    builder.add_sum([(v, 1.0) for v in holds], pulp.LpConstraintEQ, 1.0)
    for k, hold in enumerate(holds):
        builder.add_sum([*((v, 1.0) for v in all_hold[k]), (hold, -1.0)], pulp.LpConstraintEQ, 0.0)
        if step:
            before = builder.holds[m, step - 1][k]
            builder.add_sum([*((v, 1.0) for v in all_stay[k]), (before, -1.0)], pulp.LpConstraintLE, 0.0)


def _add_gains(
    builder: _Builder, where: tuple[int, int, int], k: int, multiset: Multiset
) -> tuple[pulp.LpVariable, pulp.LpVariable]:
    """The stay and new variables of (tenant, level, step) and multiset k, with their gains in the objective."""
    m, level, step = where
    table = builder.tables[m]
    column = table.column[multiset]
    assert table.changed is not None
    stay = builder.program.add_variable(f"s_{m}_{level}_{k}_{step}", 0.0, 1.0)
    new = builder.program.add_variable(f"n_{m}_{level}_{k}_{step}", 0.0, 1.0)
    builder.objective.append((stay, -builder.scale * float(table.steady[level, step, column])))
    builder.objective.append((new, -builder.scale * float(table.changed[level, step, column])))
    return stay, new


def _add_layout(builder: _Builder, step: int, multisets: Sequence[Sequence[Multiset]]) -> None:
    """Rule 1 in one step: all that is held lies in the hull of what fits."""
    problem = builder.problem
    held = [
        (multiset, variable)
        for m, own in enumerate(multisets)
        for multiset, variable in zip(own, builder.holds[m, step], strict=True)
    ]
    held += [
        (unit_multiset(problem, choice.profile), variable)
        for started in builder.starts.values()
        for choice, variable in started
        if choice.start_step <= step < choice.end_step
    ]
    for facet in hull_facets(problem.gpu, problem.profile_names):
        terms = [(variable, float(facet.load(multiset))) for multiset, variable in held]
        builder.add_sum([term for term in terms if term[1]], pulp.LpConstraintLE, float(facet.bound))
    if extra_integer_points(problem.gpu, problem.profile_names):
        _add_covering(builder, step, held)


def _add_covering(builder: _Builder, step: int, held: Sequence[tuple[Multiset, pulp.LpVariable]]) -> None:
    """λ: one maximal feasible multiset is chosen that holds at least as much of every profile."""
    problem = builder.problem
    covers = maximal_multisets(feasible_multisets(problem.gpu, problem.profile_names))
    chosen = [builder.binary(f"c_{index}_{step}") for index in range(len(covers))]
    builder.covers[step] = list(zip(covers, chosen, strict=True))
    builder.add_sum([(variable, 1.0) for variable in chosen], pulp.LpConstraintEQ, 1.0)
    for p in range(len(problem.profile_names)):
        terms = [(variable, float(multiset[p])) for multiset, variable in held if multiset[p]]
        terms += [(variable, -float(cover[p])) for cover, variable in zip(covers, chosen, strict=True) if cover[p]]
        builder.add_sum(terms, pulp.LpConstraintLE, 0.0)
