"""Any engine under floors of in-time answers: engines know none, so floors are put into the gain tables that they get.

**Per step.** A multiset below the floor in a step that binds loses a penalty there, larger than the difference
between the most and the least that any plan can earn. A plan that keeps every floor per step earns what it did. One
that breaks one is worth less than any that keeps them. So the best plan with penalties is the best one under the
floors, a bound on the former is one on the latter, and a bound below the least that any plan can earn proves that
there is none. What is barred is closed upwards, as T is monotone, so tables stay monotone.

**Per window.** A multiplier λ_m ≥ 0 adds λ_m · T to m's gains. What the engine then finds at most, less λ_m times what
the floor asks for, bounds all plans that keep the floors (Lagrangian duality). λ is searched by cutting planes: every
plan found is worth goodput + Σ λ_m · (T − asked) for all λ, and the next λ is where the highest of these lines is
lowest. As long as that is at the largest λ allowed, more is allowed, up to where a request in time is worth more than
all goodput: so the search ends beside the plan that lacks least where none keeps all floors. Plans that no λ makes
best are found only in part (``_Search._splice``), so a gap may remain.
Source: Kelley, "The cutting-plane method for solving convex programs", 1960.

**Within a cost.** Where plans may miss floors, what floors cost is limited. Of the plans that near the best one without
floors, it seeks the one that lacks fewest requests in time. That is a problem of
the same kind, with lines in one multiplier more: the price of the objective in lacking requests. Its λ are between 0
and 1, a request that lacks of a floor per step counts 1, and all are divided by the price to pose it. Of plans that are
worth the same, one within the cost and one beyond it, there is one on the way from the one to the other (``_splice``).

The search needs plans and no proofs. One solve at its end proves: that no plan that keeps the floors is worth more than
a bound at the last λ; where none was found, that none answers enough requests in time, whatever it earns; where the
plan taken misses floors, that no plan at all is worth more.

Work limits are divided over the solves by fixed shares, so the same problem has the same plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from executor.compiled import working_s
from planner.arrays import Floats
from planner.attainment import Attainment, attainments, lacking, lacks_in_all, out_of_reach, required
from planner.budget import Budget
from planner.course import courses
from planner.engines.effort import DEFAULT_WORK
from planner.feasibility import floor_out_of_reach, infeasibility
from planner.gains import gain_tables
from planner.plan import AnyCertificate, Infeasibility, MigPlan, Rule, Status, salvage_of, status_of, without_plan
from planner.problem import GainTable, Per, Problem, Reconfiguration, without_floors, without_salvage

Engine = Callable[[Problem, Budget, "MigPlan | None"], MigPlan]

Multipliers = Mapping[int, "float | Floats"]
"""λ by tenant: what a request in time is worth beside goodput, in all steps or, ``(n_steps,)``, in each.

Of a tenant with a floor per step: what a request costs that lacks; without an entry its floor has to be kept.
"""

ROUNDS = 14
"""Solves with multipliers at most; one floor takes four to eight."""

TRADES = 6
"""Solves at most for the plan that lacks fewest within what floors may cost."""

SHARE = 0.25
"""Share of what the search has left that one of its solves may take."""

PROOF = 0.25
"""Share of the budget that is put by for the proof."""

GROWTH = 50.0
"""How fast the largest multiplier grows while it is the best. It begins at one request for a request."""

WORTH_SPLICING = 2e-3
"""Relative gap above which plans are looked for that are strict in some steps only; a share of requests that lack."""

SPLICES = 3
"""Solves for those once it is settled whether to be strict early or late."""

TOLERANCE = 1e-6
"""Between objectives that are the same: relative, and in requests near zero."""

ROUNDING = 1e-6
"""Share of goodput, or of requests, that makes no difference: λ is settled, and nothing is proven infeasible by it."""


def solve_with_floors(
    problem: Problem,
    engine: Engine,
    budget: Budget,
    initial: MigPlan | None = None,
    *,
    name: str,
    takes_gains: bool = True,
    costs_at_most: float | None = None,
) -> MigPlan:
    """The best plan found that keeps every floor, with a bound on all such plans.

    Args:
        problem: One with floors.
        engine: Solves problems without.
        budget: For all its solves together.
        initial: A plan of an earlier solve, to start from.
        name: The engine's.
        takes_gains: Whether the engine takes gain tables. Otherwise it is asked once, without floors, and its plan
            is returned if it happens to keep them.
        costs_at_most: What floors may cost, in hundredths of the requests that arrive, weighted as goodput is. Of the
            plans within that distance of the best one without floors, the one that lacks fewest
            requests is returned, of equals the one worth most: ``missed`` says what it lacks, ``floor_costs`` what it
            costs. One that misses floors has a bound on all plans. ``None``: a plan that misses a floor is none.

    Without a plan the status is ``infeasible`` where that is proven, else ``timeout`` with what is ``missed``.
    """
    started_s = working_s()
    search = _Search(problem, engine, _SharedBudget(budget, problem), initial, takes_gains, costs_at_most)
    search.run(infeasibility(problem) or floor_out_of_reach(problem))
    return replace(search.answer(name), work=(*search.work.items(),), solve_s=working_s() - started_s)


def is_better(problem: Problem, plan: MigPlan, other: MigPlan, costs_at_most: float) -> bool:
    """Whether ``plan``, an answer of :func:`solve_with_floors`, is to be followed rather than the other one.

    It is where it lacks fewer requests of floors, or as many and is worth more than rounding makes, and where the other
    one costs more than floors may. Both plans keep the other rules and have their objectives.
    """
    assert plan.objective is not None
    assert other.objective is not None
    slack = TOLERANCE * max(1.0, abs(other.objective))
    free = plan.objective + (plan.floor_costs or 0.0) * problem.most_goodput
    if other.objective < free - _allowed(problem, costs_at_most) - slack:
        return True
    lack, lacked = (lacks_in_all(attainments(problem, one)) if problem.has_floors else 0.0 for one in (plan, other))
    return (-lack, plan.objective) > (-lacked, other.objective + slack)


def without_multipliers(problem: Problem, certificate: AnyCertificate) -> AnyCertificate | None:
    """What the certificate proves of all plans, not only of those that keep the floors: ``None`` under floors per step.

    Those are checked whatever a certificate says.
    """
    floors = [tenant.min_slo_attainment for tenant in problem.tenants]
    is_by_step = any(floor is not None and floor.per is Per.STEP for floor in floors)
    return None if is_by_step else replace(certificate, multipliers=())


def _allowed(problem: Problem, costs_at_most: float) -> float:
    """What floors may cost of the objective."""
    return costs_at_most / 100 * problem.most_goodput


@dataclass(frozen=True, eq=False)
class _Found:
    """A plan, what it is worth with its salvage, what it promises in time, and the multipliers that found it."""

    plan: MigPlan
    goodput: float
    attained: tuple[Attainment, ...]
    multipliers: Multipliers

    @classmethod
    def of(cls, problem: Problem, plan: MigPlan, multipliers: Multipliers) -> _Found:
        """The plan valued by the problem's own gain tables."""
        values = (value for course in courses(problem, plan) for value in course.goodput.tolist())
        goodput = math.fsum([*values, salvage_of(problem, plan.schedules, plan.lifetimes)])
        return cls(plan, goodput, attainments(problem, plan), multipliers)

    @property
    def is_met(self) -> bool:
        return all(one.is_met for one in self.attained)

    @property
    def lacks(self) -> float:
        """Requests that lack of all floors."""
        return lacks_in_all(self.attained)

    @property
    def rank(self) -> tuple[float, float]:
        """The less it lacks the better, then the more it is worth."""
        return -self.lacks, self.goodput

    @property
    def misses_steps(self) -> bool:
        return any(one.missed_steps for one in self.attained)

    def beyond(self, asked: Mapping[int, float]) -> list[float]:
        """Requests in time less those asked for, by tenant with a floor per window."""
        return [(self.attained[m].in_time or 0.0) - requests for m, requests in asked.items()]


@dataclass(eq=False)
class _Search:
    """One problem with floors: its solves, the plans that they found, and the bounds with the answers they are from."""

    problem: Problem
    engine: Engine
    budget_left: _SharedBudget
    initial: MigPlan | None
    takes_gains: bool
    costs_at_most: float | None
    found: list[_Found] = field(default_factory=list)
    bounds: list[tuple[float, Multipliers, MigPlan]] = field(default_factory=list)
    work: Counter[str] = field(default_factory=Counter)
    reason: Infeasibility | None = None

    def __post_init__(self) -> None:
        self.tables = gain_tables(self.problem)
        terms = self.problem.tenants if self.takes_gains else ()
        floors = {m: own.min_slo_attainment for m, own in enumerate(terms) if own.min_slo_attainment is not None}
        self.asked = {m: required(own, self.tables[m]) for m, own in floors.items() if own.per is Per.WINDOW}
        self.by_step = [m for m in floors if m not in self.asked]
        self.none: Multipliers = dict.fromkeys(floors, 0.0)  # as if there were no floors
        self.must_meet = self.costs_at_most is None

    def run(self, reason: Infeasibility | None) -> None:
        """Search, then prove; ``reason`` says why no plan keeps the floors, where that is known."""
        last: Multipliers = {}
        if reason is not None and (self.must_meet or reason.rule != Rule.FLOOR):
            last = {m: 1.0 for m in self.asked if self.problem.tenant_names[m] == reason.tenant}
            if last and reason.rule == Rule.FLOOR:
                self._solve(last, proves=True, counts_goodput=False)
            self.reason = self.reason or reason
            return
        if not self.must_meet:
            self._solve(self.none)
        if self.asked or not self.must_meet:
            last = self._keep()
        best = self.best
        if not self.must_meet and best is not None and not best.is_met and self.none:
            self._trade()
        if self.asked and self.must_meet and self.found and not self.is_met:
            self._solve(last, proves=True, counts_goodput=False)
        else:
            # Multipliers bound plans that keep the floors; without them all are.
            keeps = self.must_meet or ((best := self.best) is not None and best.is_met)
            self._solve(last if keeps else self.none, proves=True)

    def answer(self, engine: str) -> MigPlan:
        """The best plan that was found, or why there is none."""
        best, bounds = self.best, self.bounds
        missed = () if best is None else tuple(str(one) for one in best.attained if not one.is_met)
        if missed and not self.must_meet:
            bounds = [one for one in bounds if all(one[1].get(m) == 0.0 for m in self.none)]
        bound = min((value for value, _, _ in bounds), default=None)
        if self.reason is not None and not self.is_met:
            return without_plan(self.problem, Status.INFEASIBLE, engine, 0.0, infeasibility=self.reason)
        if best is None or (missed and self.must_meet):
            return replace(without_plan(self.problem, Status.TIMEOUT, engine, 0.0, bound), missed=missed)
        bound = None if bound is None else max(best.goodput, bound)
        certified = min((one for one in bounds if one[2].certificate), key=lambda one: one[0], default=None)
        if missed and self.by_step:
            certified = None  # checked under floors per step, which this plan does not keep
        kept = max((one.goodput for one in self.found if one.is_met), default=None)
        return replace(
            best.plan,
            status=Status.FEASIBLE if bound is None else status_of(best.goodput, bound),
            objective=best.goodput,
            claimed_bound=bound,
            certificate=None if certified is None else certified[2].certificate,
            missed=missed,
            floor_costs=None if self.must_meet else self._costs(best.goodput),
            keeping_costs=None if self.must_meet or kept is None else self._costs(kept),
        )

    @property
    def best(self) -> _Found | None:
        """Of the plans that cost no more than they may, the one that lacks fewest; of equals the one worth most."""
        return max((one for one in self.found if one.goodput >= self.least), key=lambda one: one.rank, default=None)

    @property
    def least(self) -> float:
        """What a plan has to be worth so that floors cost no more than they may."""
        if self.costs_at_most is None:
            return -math.inf
        free = max((one.goodput for one in self.found), default=-math.inf)
        return free - _allowed(self.problem, self.costs_at_most)

    def _costs(self, goodput: float) -> float:
        """How far a plan's worth is below the best one's without floors, as a share of the requests."""
        lost, most = max(one.goodput for one in self.found) - goodput, self.problem.most_goodput
        return lost / most if most > 0 else 0.0

    @property
    def is_met(self) -> bool:
        return any(one.is_met for one in self.found)

    def _solve(self, multipliers: Multipliers, *, proves: bool = False, counts_goodput: bool = True) -> _Found | None:
        """The plan found at these multipliers, ``None`` where the search should end; bounds and proofs are noted.

        Nothing is solved when time is up, nor proven twice.
        """
        best, is_final = self.best, proves and counts_goodput
        known = [plan for _, other, plan in self.bounds if is_final and other == multipliers]
        is_known = any(plan.certificate and plan.status is Status.OPTIMAL for plan in known)
        if best is not None and (is_known or not self.budget_left.allows(proves=proves)):
            return None
        posed, budget = self._posed(multipliers, counts_goodput=counts_goodput), self.budget_left.slice(proves=proves)
        plan = self.engine(posed, budget, self.initial if best is None else best.plan)
        self.work.update({**dict(plan.work), "solves": 1})
        self.reason = plan.infeasibility
        found = _Found.of(self.problem, plan, multipliers) if plan.status.has_plan else None
        self.found += [found] if found is not None else []
        if plan.claimed_bound is None or any(np.ndim(weight) for weight in multipliers.values()):
            return found
        weighed = {m: float(weight) for m, weight in multipliers.items() if m in self.asked}
        owed = {m: weight * self.asked[m] for m, weight in weighed.items()}
        bound, least, size = plan.claimed_bound - sum(owed.values()), 0.0, sum(map(abs, owed.values()))
        if counts_goodput:
            weights = tuple((self.problem.tenant_names[m], weight) for m, weight in weighed.items())
            certificate = None if plan.certificate is None else replace(plan.certificate, multipliers=weights)
            self.bounds.append((bound, multipliers, replace(plan, certificate=certificate)))
            least, size = _reach(self.tables)[0], self.problem.most_goodput
        if not self.must_meet or self.is_met or bound >= least - ROUNDING * max(1.0, size):
            return found
        if proves:
            self.reason = self._unmet({m: plan.claimed_bound / weight for m, weight in weighed.items() if weight})
        return None

    def _keep(self) -> Multipliers:
        """Cutting planes to the best plan that keeps the floors, until they say no more than it is worth.

        They end as well where whatever keeps the floors costs more than it may. The last multipliers are returned.
        """
        highest = [max(1.0, self.problem.tenants[m].weight) for m in self.asked]
        most, at, left = self._penalty(self.tables), [0.0] * len(highest), -math.inf
        for _ in range(ROUNDS):
            last = dict(zip(self.asked, at, strict=True))
            found = next((one for one in self.found if one.multipliers == last), None) or self._solve(last)
            if found is None or not self.asked or (found.is_met and not any(at)):
                break
            is_highest = [upper < most and x >= upper * (1 - 1e-9) for x, upper in zip(at, highest, strict=True)]
            worth = found.goodput + float(np.dot(at, found.beyond(self.asked)))
            if not self.must_meet and (found.misses_steps or max(worth, left) < self.least):
                if not self.is_met:
                    self._solve(dict.fromkeys(self.asked, most))  # to say what it costs to keep them
                return last
            if worth <= left + ROUNDING * max(1.0, abs(left)) and not any(is_highest):
                break
            highest = [min(most, GROWTH * x) if grows else x for x, grows in zip(highest, is_highest, strict=True)]
            # A plan that misses a floor per step says nothing of those that keep it.
            known = [one for one in self.found if not one.misses_steps] or self.found
            at, left = _lowest([(one.goodput, one.beyond(self.asked)) for one in known], highest)
        strict = max((one for one in self.found if one.is_met), key=lambda one: one.rank, default=None)
        loose = max((one for one in self.found if not one.is_met), key=lambda one: one.rank, default=None)
        if strict is not None and loose is not None and left - strict.goodput > WORTH_SPLICING * abs(left):
            self._splice(strict, loose, self.asked, lambda found: found.is_met)
        return dict(zip(self.asked, at, strict=True))

    def _trade(self) -> None:
        """Cutting planes to the plan that lacks fewest requests of those that cost no more than they may."""
        most, height, at = self._penalty(self.tables), -math.inf, list[float]()

        def above(one: _Found, at: Sequence[float]) -> float:
            lacks, slopes = self._line(one)
            return lacks + float(np.dot(at, slopes))

        for _ in range(TRADES):
            at, height = _lowest([self._line(one) for one in self.found], [*[1.0] * len(self.asked), most])
            *weights, price = at
            worth = 1.0 / max(price, 1.0 / most)
            found = self._solve(
                {m: worth * weight for m, weight in zip(self.asked, weights, strict=True)}
                | dict.fromkeys(self.by_step, worth)
            )
            if found is None or above(found, at) <= height + ROUNDING * max(1.0, abs(height)):
                break
        beyond, loose = [one for one in self.found if one.goodput < self.least], self.best
        requests = sum(float(table.arrived.sum()) for table in self.tables if table.arrived is not None)
        if beyond and loose is not None and loose.lacks + height > WORTH_SPLICING * requests:
            strict = max(beyond, key=lambda one: above(one, at))
            self._splice(strict, loose, self.none, lambda found: found.goodput < self.least)

    def _line(self, one: _Found) -> tuple[float, list[float]]:
        """What a plan has beyond floors per step, and by multiplier: beyond those per window, and what it may cost."""
        by_step = sum(one.attained[m].shortfall for m in self.by_step)
        return -by_step, [*one.beyond(self.asked), one.goodput - self.least]

    def _splice(
        self, strict: _Found, loose: _Found, tenants: Iterable[int], may_loosen: Callable[[_Found], bool]
    ) -> None:
        """Mix a plan that is strict about floors with one that is less so, which no constant λ does.

        Multipliers are those of the one up to a step and those of the other from there on, and the other way round.
        Bounds gain nothing by it.
        """
        # At the multipliers themselves both plans may be worth the same.
        most = self._penalty(self.tables)
        ends = {m: (2 * strict.multipliers.get(m, most), loose.multipliers.get(m, most) / 2) for m in tenants}
        steps = np.arange(self.problem.n_steps)
        for order in (steps, steps[::-1]):
            low, high = 0, self.problem.n_steps
            for _ in range(SPLICES):
                n_strict = (low + high) // 2
                found = self._solve({m: np.where(order < n_strict, *pair) for m, pair in ends.items()})
                low, high = (low, n_strict) if found is not None and may_loosen(found) else (n_strict, high)

    def _unmet(self, most: Mapping[int, float]) -> Infeasibility:
        """Whose floor is missed in the nearest plan; ``most`` says how many requests one alone could have in time."""
        attained = () if self.best is None else self.best.attained
        is_alone = len(most) == 1 and not any(one.missed_steps for one in attained)
        missed = [one for m, one in enumerate(attained) if (m in most if is_alone else not one.is_met)]
        one = max(missed, key=lambda item: item.shortfall, default=None)
        if one is None or one.floor is None:
            return Infeasibility(None, Rule.FLOOR, "no plan keeps every tenant's floor of in-time answers")
        text = f"no plan keeps its floor beside the other floors and rules; the nearest: {one}"
        if is_alone and one.share is not None:
            share = max(one.share, sum(most.values()) / one.arrived)
            text = out_of_reach(one.floor, share, is_reached=share - one.share <= ROUNDING)
        return Infeasibility(one.tenant, Rule.FLOOR, text)

    def _penalty(self, tables: Sequence[GainTable]) -> float:
        """More than the difference between the most and the least that any plan can be worth by these tables."""
        least, most = _reach(tables)
        salvage = sum(max(tenant.salvages) - min(tenant.salvages) for tenant in self.problem.tenants)
        return 1.0 + 2.0 * (most - least + salvage)

    def _posed(self, multipliers: Multipliers, *, counts_goodput: bool) -> Problem:
        """The problem with its floors in its gain tables."""
        posed = without_floors(self.problem)
        if not self.takes_gains:
            return posed
        goodput = 1.0 if counts_goodput else 0.0
        weights = [multipliers.get(m, 0.0) if m in self.asked else 0.0 for m in range(len(self.tables))]
        tables = [_weighted(own, goodput, weight) for own, weight in zip(self.tables, weights, strict=True)]
        penalty = self._penalty(tables)
        for m in self.by_step:
            lacks = lacking(self.problem, self.problem.tenants[m], self.tables[m])
            weight = np.reshape(multipliers.get(m, penalty), (-1, 1))
            tables[m] = _plus(tables[m], *(-weight * (lack if m in multipliers else lack > 0) for lack in lacks))
        posed = replace(posed, gains=tuple(tables))
        return posed if counts_goodput else without_salvage(posed)


class _SharedBudget:
    """A budget that the search and the proof share."""

    def __init__(self, budget: Budget, problem: Problem) -> None:
        limit_s, self._n_nodes = budget.time_limit_s, budget.max_nodes
        if self._n_nodes is None and limit_s is None and problem.reconfiguration is Reconfiguration.PHYSICAL:
            self._n_nodes = DEFAULT_WORK * 200 // max(problem.n_steps, 200)
        self._end_s = math.inf if limit_s is None else working_s() + limit_s
        self._budget, self._share_left = budget, 1.0

    def allows(self, *, proves: bool) -> bool:
        """Whether time is left, and a proof is wanted. Work is always left: every solve takes a share of it."""
        return working_s() < self._end_s and (self._budget.proves or not proves)

    def slice(self, *, proves: bool) -> Budget:
        """What one solve of the search may spend; the proof may spend all that is left."""
        n_nodes, limit_s = self._n_nodes, self._budget.time_limit_s
        share = self._share_left if proves else SHARE * (self._share_left - PROOF)
        self._share_left -= share
        if n_nodes is not None:
            n_nodes = max(1, int(share * n_nodes))
        if limit_s is not None:
            left_s = self._end_s - working_s()
            limit_s = max(0.01, left_s if proves else SHARE * (left_s - PROOF * limit_s))
        return replace(self._budget, max_nodes=n_nodes, time_limit_s=limit_s, proves=proves and self._budget.proves)


def _reach(tables: Sequence[GainTable]) -> tuple[float, float]:
    """The least and the most that any plan can be worth by these tables, without salvage."""
    lowest = [table.steady if table.changed is None else table.changed for table in tables]
    least = sum(float(values.min(axis=(0, 2)).sum()) for values in lowest)
    return least, sum(float(table.steady.max(axis=(0, 2)).sum()) for table in tables)


def _plus(table: GainTable, settled: Floats, just_changed: Floats) -> GainTable:
    """The table with so much more in each step."""
    changed = None if table.changed is None else table.changed + just_changed
    return replace(table, steady=table.steady + settled, changed=changed)


def _weighted(table: GainTable, goodput: float, in_time: float | Floats) -> GainTable:
    """So much for each request of goodput, and for each in time, in all steps or by step; without T itself."""
    changed = None if table.changed is None else goodput * table.changed
    bare = replace(table, steady=goodput * table.steady, changed=changed, in_time=None, in_time_changed=None)
    if table.in_time is None or not np.any(in_time):
        return bare
    just_changed = table.in_time if table.in_time_changed is None else table.in_time_changed
    return _plus(bare, *(np.reshape(in_time, (-1, 1)) * served for served in (table.in_time, just_changed)))


def _lowest(cuts: Sequence[tuple[float, list[float]]], highest: Sequence[float]) -> tuple[list[float], float]:
    """Where the highest of the lines value + λ · slope is lowest, 0 ≤ λ ≤ ``highest``, and how high that is."""
    import highspy  # noqa: PLC0415 (heavy)

    from planner.highs import SilentHighs  # noqa: PLC0415 (heavy)

    program = SilentHighs()
    at = [program.addVariable(0.0, upper) for upper in highest]
    height = program.addVariable(-highspy.kHighsInf)
    scale = max(1.0, *(abs(value) for value, _ in cuts))
    for value, slopes in cuts:
        line = sum(slope / scale * x for x, slope in zip(at, slopes, strict=True))
        program.addConstr(height - line >= value / scale)
    program.minimize(height)
    *solved, lowest = program.getSolution().col_value
    return [min(max(0.0, x), upper) for x, upper in zip(solved, highest, strict=True)], scale * lowest
