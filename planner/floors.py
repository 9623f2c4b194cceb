"""Any engine under floors of in-time answers: engines know none, so floors are put into the gain tables that they get.

**Per step.** A multiset below the floor in a step that binds loses a penalty there, larger than the difference
between the most and the least that any plan can earn. A plan that keeps every floor per step earns what it did. One
that breaks one is worth less than any that keeps them. So the best plan with penalties is the best one under the
floors, a bound on the former is one on the latter, and a bound below the least that any plan can earn proves that
there is none. What is barred is closed upwards, as T is monotone, so tables stay monotone.

**Per window.** A multiplier λ_m ≥ 0 adds λ_m · T to m's gains. What the engine then finds at most, less λ_m times what
the floor asks for, bounds all plans that keep the floors (Lagrangian duality). λ is searched by cutting planes: every
plan found is worth goodput + Σ λ_m · (T − asked) for all λ, and the next λ is where the highest of these lines is
lowest. The best plan that keeps all floors is kept, and the lowest bound. Plans that no λ makes best are found only in
part (``_Search._splice``), so a gap may remain.
Source: Kelley, "The cutting-plane method for solving convex programs", 1960.

Work limits are divided over the solves by fixed shares, so that the same problem gives the same plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.compiled import working_s
from planner.attainment import Attainment, attainments, barred, least_by_step, required, slack
from planner.budget import Budget
from planner.course import courses
from planner.engines.effort import DEFAULT_WORK
from planner.feasibility import RULE_FLOOR, floor_out_of_reach, infeasibility
from planner.gains import gain_tables
from planner.plan import Certificate, Infeasibility, MigPlan, Status, StatusCertificate, salvage_of, status_of
from planner.problem import (
    FLOOR_TOLERANCE,
    AttainmentFloor,
    FloatArray,
    GainTable,
    Per,
    Problem,
    Reconfiguration,
    TenantTerms,
    without_floors,
    without_salvage,
)

Engine = Callable[[Problem, Budget, "MigPlan | None"], MigPlan]

ROUNDS = 14
"""Solves with multipliers at most; one floor takes four to eight."""

SHARE = 0.25
"""Share of the work and time left that one solve may take."""

GROWTH = 50.0
"""How fast the largest multiplier grows while no plan keeps the floors. It begins at one request for a request."""

CLOSED = 1e-9
"""Relative distance between the bound and what the cutting planes leave, at which λ is settled."""

WORTH_SPLICING = 2e-3
"""Relative gap above which plans are looked for that are strict in some steps only."""

SPLICES = 3
"""Solves for those once it is settled whether to be strict early or late."""

NEARING = 6
"""Solves at most for the plan that lacks least, where none keeps all floors."""

UNPROVEN = 1e-6
"""Share of the most goodput, or of the requests asked for, within which nothing is called proven infeasible."""


def solve_with_floors(
    problem: Problem,
    engine: Engine,
    budget: Budget,
    initial: MigPlan | None = None,
    *,
    name: str,
    takes_gains: bool = True,
    must_meet: bool = True,
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
        must_meet: Whether a plan that breaks a floor is none. Otherwise the one that lacks fewest requests is
            returned where none keeps all, then the one of most goodput; a step below a floor per step counts as one
            request more. ``missed`` says what it lacks, and it has a bound only where one holds for it, too.

    Without a plan the status is ``infeasible`` where that is proven, else ``timeout`` with what is ``missed``.
    """
    started_s = working_s()
    search = _Search(problem, engine, budget, initial, name=name, is_soft=not must_meet)
    reason = infeasibility(problem) or floor_out_of_reach(problem)
    if reason is not None and (must_meet or reason.rule != RULE_FLOOR):
        search.give_up(reason, asks=takes_gains)
    elif not takes_gains:
        search.ask_once()
    else:
        if reason is None:
            search.run()
        if not must_meet:
            search.come_near()
    return replace(search.answer(), solve_s=working_s() - started_s)


def _without(problem: Problem, engine: str, reason: Infeasibility | None) -> MigPlan:
    """The answer without a plan."""
    return MigPlan(
        status=Status.TIMEOUT if reason is None else Status.INFEASIBLE,
        objective=None,
        bound=None,
        solve_s=0.0,
        engine=engine,
        reconfiguration=problem.reconfiguration,
        n_steps=problem.n_steps,
        infeasibility=reason,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """A plan, what it is worth with its salvage, and what it lacks of the floors."""

    plan: MigPlan
    goodput: float
    attained: tuple[Attainment, ...]

    @classmethod
    def of(cls, problem: Problem, plan: MigPlan) -> _Found:
        """The plan valued by the problem's own gain tables."""
        values = (value for course in courses(problem, plan) for value in course.goodput.tolist())
        goodput = math.fsum([*values, salvage_of(problem, plan.schedules, plan.lifetimes)])
        return cls(plan, goodput, attainments(problem, plan))

    @property
    def is_met(self) -> bool:
        return all(one.is_met for one in self.attained)

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(str(one) for one in self.attained if not one.is_met)

    @property
    def rank(self) -> tuple[float, float]:
        """The less it lacks the better, then the more it is worth."""
        return -sum(one.shortfall + len(one.missed_steps) for one in self.attained), self.goodput


class _Search:
    """One problem with floors: its solves, the best plan, and the lowest bound with the answer that gave it."""

    def __init__(
        self, problem: Problem, engine: Engine, budget: Budget, initial: MigPlan | None, *, name: str, is_soft: bool
    ) -> None:
        self._name = name
        self._problem, self._engine, self._initial, self._is_soft = problem, engine, initial, is_soft
        self._tables = gain_tables(problem)
        floors = [(m, tenant.min_slo_attainment) for m, tenant in enumerate(problem.tenants)]
        self._asked = {m: required(f, self._tables[m]) for m, f in floors if f is not None and f.per is Per.WINDOW}
        self._has_step_floors = any(floor is not None and floor.per is Per.STEP for _, floor in floors)
        self._least = sum(float(_extremes(table)[0].sum()) for table in self._tables)
        self._most = 1.0 + 2.0 * sum(float((high - low).sum()) for low, high in map(_extremes, self._tables))
        self._most += 2.0 * _salvage_at_stake(problem)
        self._purse = _Purse(budget, problem)
        self._best: _Found | None = None
        self._bound = np.inf
        self._bounded: tuple[MigPlan, dict[int, float]] | None = None
        self._free_bound: float | None = None
        self._cuts: list[tuple[float, list[float]]] = []
        self._seen: list[tuple[dict[int, float], _Found]] = []
        self._work: Counter[str] = Counter()
        self._end: MigPlan | None = None

    def give_up(self, reason: Infeasibility, *, asks: bool) -> None:
        """There is no plan; what a floor per window could reach is asked for, if it may be."""
        if asks and reason.rule == RULE_FLOOR and reason.tenant is not None:
            m = self._problem.tenant_names.index(reason.tenant)
            if m in self._asked:
                reason = self._window_reason(m, None)
        self._end = self._empty(reason)

    def ask_once(self) -> None:
        """Solve without floors, for an engine that knows no gain tables."""
        self._record(self._engine(without_floors(self._problem), self._purse.slice(1.0), self._initial), {})

    def run(self) -> None:
        """Solve with the floors per step alone; then, if floors per window ask for it, with multipliers."""
        self._solve({}, SHARE if self._asked else 1.0)
        if not self._asked or (self._is_over and not self._is_met):
            return
        if self._is_met:
            # No floor per window binds: what is left of the budget goes into the same question.
            if self._best is not None and self._best.plan.status is not Status.OPTIMAL:
                self._solve({}, 1.0)
            return
        self._search_multipliers()
        self._splice()
        if not (self._is_over or self._is_soft or self._purse.is_empty):
            # Whoever keeps its share in each step keeps it over the window: not the best way, but one.
            self._record(self._engine(self._posed({}, as_steps=True), self._purse.slice(SHARE), None), None)
            if not self._is_over:
                self._prove()

    def come_near(self) -> None:
        """Look for the plan that lacks least, unless one keeps all.

        A request that lacks costs more than all that can be earned, and one beyond a floor earns nothing: so the
        multiplier of a tenant that has more than enough falls, by cutting planes, until another would lack for it.
        """
        multipliers, tried = dict.fromkeys(self._asked, self._most), 0
        while not self._is_over:
            tried += 1
            is_last = tried == NEARING or len(self._asked) < 2
            posed = self._posed(multipliers, is_soft=True)
            self._record(self._engine(posed, self._purse.slice(1.0 if is_last else SHARE), None), None)
            if is_last or not self._cuts or self._purse.is_empty:
                return
            lowest, _ = _lowest(self._cuts, [self._most] * len(self._asked))
            if np.allclose(lowest, list(multipliers.values()), rtol=1e-6):
                return
            multipliers = dict(zip(self._asked, lowest, strict=True))

    def answer(self) -> MigPlan:
        """The best plan that was found, or why there is none."""
        best, work = self._best, (*self._work.items(),)
        if self._end is not None and (best is None or not (best.is_met or self._is_soft)):
            return replace(self._end, work=work)
        if best is None or not (best.is_met or self._is_soft):
            plan = self._empty(None)
            bound = self._bound if np.isfinite(self._bound) else None
            return replace(plan, bound=bound, work=work, missed=() if best is None else best.missed)
        if best.is_met:
            bound = max(best.goodput, self._bound)
            certificate = self._certificate()
            status = status_of(best.goodput, bound)
        else:
            # Bounds under floors say nothing of plans that break them.
            free = self._free_bound
            bound, certificate, status = None if free is None else max(free, best.goodput), None, Status.FEASIBLE
        return replace(
            best.plan,
            status=status,
            objective=best.goodput,
            bound=bound if bound is None or np.isfinite(bound) else None,
            certificate=certificate,
            work=work,
            missed=best.missed,
        )

    @property
    def _is_met(self) -> bool:
        return self._best is not None and self._best.is_met

    @property
    def _is_over(self) -> bool:
        """Whether some plan keeps all floors, or there is none."""
        return self._is_met or self._end is not None

    def _certificate(self) -> Certificate | StatusCertificate | None:
        """That of the lowest bound, with its multipliers."""
        if self._bounded is None or self._bounded[0].certificate is None:
            return None
        plan, by_tenant = self._bounded
        assert plan.certificate is not None
        names = self._problem.tenant_names
        return replace(plan.certificate, multipliers=tuple((names[m], by_tenant[m]) for m in sorted(by_tenant)))

    def _solve(self, multipliers: dict[int, float], share: float) -> _Found | None:
        start = self._initial if self._best is None else self._best.plan
        return self._record(self._engine(self._posed(multipliers), self._purse.slice(share), start), multipliers)

    def _record(self, plan: MigPlan, multipliers: dict[int, float] | None) -> _Found | None:
        """Note what a solve has found; ``multipliers`` is ``None`` where its bound is none under the floors."""
        self._work.update(dict(plan.work))
        self._work["solves"] += 1
        if plan.status is Status.INFEASIBLE:
            self._end = plan
            return None
        if plan.bound is not None and multipliers is not None:
            bound = plan.bound - sum(weight * self._asked[m] for m, weight in multipliers.items())
            if not multipliers and not self._has_step_floors:
                self._free_bound = bound
            if bound < self._bound:
                self._bound, self._bounded = bound, (plan, multipliers)
        found = _Found.of(self._problem, plan) if plan.status.has_plan else None
        if found is not None and (self._best is None or found.rank > self._best.rank):
            self._best = found
        if found is not None and not any(one.missed_steps for one in found.attained):
            gaps = [(found.attained[m].in_time or 0.0) - asked for m, asked in self._asked.items()]
            self._cuts.append((found.goodput, gaps))
            if multipliers is not None:
                self._seen.append((multipliers, found))
        too_low = self._least - UNPROVEN * max(1.0, self._problem.most_goodput)
        if not (self._is_met or self._is_soft) and self._bound < too_low:
            self._end = self._empty(self._reason())
        return found

    def _search_multipliers(self) -> None:
        """Cutting planes: lower the bound until it meets what the plans found leave, or nothing new comes."""
        highest = {m: max(1.0, self._problem.tenants[m].weight) for m in self._asked}
        tried: list[list[float]] = []
        for _ in range(ROUNDS):
            if not self._cuts or self._purse.is_empty:
                return
            multipliers, left = _lowest(self._cuts, list(highest.values()))
            is_settled = left >= self._bound - CLOSED * max(1.0, abs(self._bound))
            is_new = not any(np.allclose(multipliers, other, rtol=1e-9, atol=1e-12) for other in tried)
            if is_settled or not is_new:
                return
            tried.append(multipliers)
            found = self._solve(dict(zip(self._asked, multipliers, strict=True)), SHARE)
            if found is None or (self._end is not None and not self._is_met):
                return
            for at, (m, asked) in enumerate(self._asked.items()):
                is_short = (found.attained[m].in_time or 0.0) < asked - slack(asked)
                if is_short and multipliers[at] >= highest[m] * (1 - 1e-9):
                    highest[m] = min(self._most, GROWTH * highest[m])

    def _splice(self) -> None:
        """Mix the best plan that keeps the floors with the nearest that does not, which no constant λ does.

        Multipliers are those of the one up to a step and those of the other from there on. Bounds gain nothing by it.
        """
        strict = max((one for one in self._seen if one[1].is_met), key=lambda one: one[1].rank, default=None)
        loose = max((one for one in self._seen if not one[1].is_met), key=lambda one: one[1].rank, default=None)
        if strict is None or loose is None or self._bound - strict[1].goodput <= WORTH_SPLICING * abs(self._bound):
            return

        def spliced(n_strict: int, *, is_early: bool) -> _Found | None:
            steps = np.arange(self._problem.n_steps)
            is_strict = steps < n_strict if is_early else steps >= self._problem.n_steps - n_strict
            # At the multipliers themselves both plans may be worth the same.
            mixed = {m: np.where(is_strict, 2 * strict[0].get(m, 0.0), loose[0].get(m, 0.0) / 2) for m in self._asked}
            plan = self._engine(self._posed(mixed), self._purse.slice(SHARE), None)
            return self._record(plan, None)

        half = self._problem.n_steps // 2
        low, high = 0, self._problem.n_steps
        ways = [(spliced(half, is_early=is_early), is_early) for is_early in (True, False)]
        found, is_early = max(ways, key=lambda way: (-np.inf, -np.inf) if way[0] is None else way[0].rank)
        n_strict = half
        for _ in range(SPLICES):
            low, high = (low, n_strict) if found is not None and found.is_met else (n_strict, high)
            n_strict = (low + high) // 2
            if self._purse.is_empty or n_strict in (low, high):
                return
            found = spliced(n_strict, is_early=is_early)

    def _prove(self) -> None:
        """Ask for in-time answers alone, in the proportion that bounded most; too few prove that there is no plan."""
        found = {} if self._bounded is None else self._bounded[1]
        most = max(found.values(), default=0.0)
        multipliers = {m: found.get(m, 0.0) / most if most > 0 else 1.0 for m in self._asked}
        plan = self._engine(self._posed(multipliers, counts_goodput=False), self._purse.slice(SHARE), None)
        self._record(plan, None)
        asked = sum(weight * self._asked[m] for m, weight in multipliers.items())
        size = sum(weight * abs(self._asked[m]) for m, weight in multipliers.items())
        is_proven = plan.bound is not None and plan.bound < asked - UNPROVEN * max(1.0, size)
        if is_proven and not self._is_over:
            self._end = self._empty(self._reason())

    def _reason(self) -> Infeasibility:
        """Whose floor the nearest plan misses, and what it could reach."""
        attained = () if self._best is None else self._best.attained
        missed = [one for one in attained if one.floor is not None and not one.is_met]
        if not missed:
            return Infeasibility(None, RULE_FLOOR, "no plan keeps every tenant's floor of in-time answers")
        one = max(missed, key=lambda item: item.shortfall)
        assert one.floor is not None
        if one.floor.per is Per.WINDOW:
            return self._window_reason(self._problem.tenant_names.index(one.tenant), one)
        share = "none arrive" if one.worst_share is None else f"it reaches {100 * one.worst_share:.6g} %"
        text = (
            f"no plan answers {100 * one.floor.share:.6g} % of its requests in time in every step beside the other "
            f"rules; in the nearest plan {share} in step {one.worst_step}"
        )
        return Infeasibility(one.tenant, RULE_FLOOR, text)

    def _window_reason(self, m: int, nearest: Attainment | None) -> Infeasibility:
        """That tenant m's floor per window cannot be kept, and the share that it could reach."""
        tenant, arrived = self._problem.tenants[m], self._tables[m].arrived
        floor = tenant.min_slo_attainment
        assert floor is not None
        assert arrived is not None
        due = f" with {floor.due:+.6g} requests due from before" if floor.due else ""
        text = f"no plan answers {100 * floor.share:.6g} % of its requests in time over the window{due}"
        if self._purse.is_empty:
            return Infeasibility(tenant.name, RULE_FLOOR, text)
        plan = self._engine(self._posed({m: 1.0}, counts_goodput=False), self._purse.slice(SHARE), None)
        self._work["solves"] += 1
        total = float(arrived.sum())
        if plan.status.has_plan and plan.bound is not None and total > 0:
            reached = (_Found.of(self._problem, plan).attained[m].in_time or 0.0) / total
            most = max(reached, plan.bound / total)
            share = f"{100 * reached:.6g} %" if most - reached <= UNPROVEN else f"at most {100 * most:.6g} %"
            is_alone = nearest is None or most * total < self._asked[m] - slack(self._asked[m])
            beside = "" if is_alone or nearest is None else f" without the other tenants' floors, {nearest} beside them"
            text += f"; its best reachable share is {share}{beside}"
        return Infeasibility(tenant.name, RULE_FLOOR, text)

    def _empty(self, reason: Infeasibility | None) -> MigPlan:
        return _without(self._problem, self._name, reason)

    def _posed(
        self,
        multipliers: Mapping[int, float | FloatArray],
        *,
        counts_goodput: bool = True,
        as_steps: bool = False,
        is_soft: bool = False,
    ) -> Problem:
        """The problem with its floors in its gain tables.

        ``as_steps`` asks for each window's share in each of its steps; then bounds hold for those plans alone.
        ``is_soft`` tells plans that miss floors per step apart by how much they lack.
        """
        problem = self._problem
        tables = [
            _with_multiplier(table if counts_goodput else _worthless(table), multipliers.get(m, 0.0))
            for m, table in enumerate(self._tables)
        ]
        penalty = 1.0 + 2.0 * sum(float((high - low).sum()) for low, high in map(_extremes, tables))
        penalty += 2.0 * _salvage_at_stake(problem)
        for m, (tenant, table) in enumerate(zip(problem.tenants, self._tables, strict=True)):
            floor = tenant.min_slo_attainment
            if floor is not None and floor.per is Per.WINDOW and as_steps and table.arrived is not None:
                share = self._asked[m] / max(float(table.arrived.sum()), FLOOR_TOLERANCE)
                floor = AttainmentFloor(min(max(share, FLOOR_TOLERANCE), 1.0), Per.STEP)
            if floor is not None and floor.per is Per.STEP:
                stepwise = replace(tenant, min_slo_attainment=floor)
                tables[m] = _penalised(problem, stepwise, table, tables[m], penalty, is_soft=is_soft)
        posed = replace(without_floors(problem), gains=tuple(tables))
        return posed if counts_goodput else without_salvage(posed)


class _Purse:
    """A budget that several solves share."""

    def __init__(self, budget: Budget, problem: Problem) -> None:
        self._budget, self._begin_s, self._n_left = budget, working_s(), budget.max_nodes
        self._default = None
        if problem.reconfiguration is Reconfiguration.PHYSICAL and budget.time_limit_s is None:
            self._default = DEFAULT_WORK * 200 // max(problem.n_steps, 200)

    @property
    def is_empty(self) -> bool:
        """Whether time is up. Work never is: every solve takes a share of what is left."""
        limit_s = self._budget.time_limit_s
        return limit_s is not None and working_s() - self._begin_s >= limit_s

    def slice(self, share: float) -> Budget:
        """The budget of one solve: this share of what is left."""
        budget = self._budget
        if share < 1.0 and self._n_left is None:
            self._n_left = self._default
        if self._n_left is not None:
            n_nodes = max(1, int(share * self._n_left))
            self._n_left = max(1, self._n_left - n_nodes)
            budget = replace(budget, max_nodes=n_nodes)
        if budget.time_limit_s is not None:
            left_s = budget.time_limit_s - (working_s() - self._begin_s)
            budget = replace(budget, time_limit_s=max(0.01, share * left_s))
        return budget


def _extremes(table: GainTable) -> tuple[FloatArray, FloatArray]:
    """The least and the most that a step can be worth, ``(n_steps,)`` each."""
    lowest = table.steady if table.changed is None else table.changed
    return lowest.min(axis=(0, 2)), table.steady.max(axis=(0, 2))


def _salvage_at_stake(problem: Problem) -> float:
    """The difference between the most and the least that salvage can be."""
    return sum(max(tenant.salvages) - min(tenant.salvages) for tenant in problem.tenants)


def _worthless(table: GainTable) -> GainTable:
    """The table as if goodput counted nothing."""
    changed = None if table.changed is None else np.zeros_like(table.changed)
    return replace(table, steady=np.zeros_like(table.steady), changed=changed)


def _with_multiplier(table: GainTable, multiplier: float | FloatArray) -> GainTable:
    """Gains with so much for each request in time, in all steps or by step; without what floors are measured by."""
    bare = replace(table, in_time=None, in_time_changed=None)
    if not np.any(multiplier) or table.in_time is None:
        return bare
    by_step = np.reshape(multiplier, (-1, 1))
    steady, changed = table.steady + by_step * table.in_time, table.changed
    if changed is not None and table.in_time_changed is not None:
        changed = changed + by_step * table.in_time_changed
    return replace(bare, steady=steady, changed=changed)


def _penalised(
    problem: Problem, tenant: TenantTerms, table: GainTable, gains: GainTable, penalty: float, *, is_soft: bool
) -> GainTable:
    """``gains`` less a penalty where ``table`` is below the tenant's floor per step, and for each request that lacks.

    The latter only where the floor may be missed at all: large sums cost digits.
    """
    below, below_changed = barred(problem, tenant, table)
    lacks, lacks_changed = below.astype(np.float64), below_changed.astype(np.float64)
    if is_soft:
        least = least_by_step(problem, tenant, table)[:, None]
        assert table.in_time is not None
        changed = table.in_time if table.in_time_changed is None else table.in_time_changed
        lacks += np.where(below, least - table.in_time, 0.0)
        lacks_changed += np.where(below_changed, least - changed, 0.0)
    return replace(
        gains,
        steady=gains.steady - penalty * lacks,
        changed=None if gains.changed is None else gains.changed - penalty * lacks_changed,
        barred=(below, below_changed),
    )


def _lowest(cuts: Sequence[tuple[float, list[float]]], highest: Sequence[float]) -> tuple[list[float], float]:
    """Where the highest of the lines value + λ · slope is lowest, 0 ≤ λ ≤ ``highest``, and how high that is."""
    import highspy  # noqa: PLC0415 (heavy)

    from planner.highs import SilentHighs  # noqa: PLC0415 (heavy)

    program = SilentHighs()
    for upper in highest:
        program.addVar(0.0, upper)
    program.addVar(-highspy.kHighsInf, highspy.kHighsInf)
    program.changeColCost(len(highest), 1.0)
    scale = max(1.0, *(abs(value) for value, _ in cuts))
    for value, slopes in cuts:
        row = np.array([*(-slope / scale for slope in slopes), 1.0])
        program.addRow(value / scale, highspy.kHighsInf, len(row), np.arange(len(row), dtype=np.int32), row)
    program.run()
    solved = program.getSolution().col_value
    return [min(max(0.0, x), upper) for x, upper in zip(solved[:-1], highest, strict=True)], scale * solved[-1]
