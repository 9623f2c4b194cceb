"""Engine ``paper-ilp``: the paper's own integer program, with its corrections, as the measure for other engines.

Each formula has one function below. The program is slow: a binary for every step, task and instance of every
configuration, many of them interchangeable.

What is returned never rests on the solver's arithmetic alone: its solution is rounded, checked against the rules, and
valued anew. Greedy's plan, or the one to start from, replaces it when better or the only one. The bound is the
solver's, or greedy's where that is lower.

===================== ==============================================================================
paper's Table 2       here
===================== ==============================================================================
s of S                step s of ``problem.n_steps``, from 0
(m,i), (m,r)          inference of tenant m; for each of its options one retraining task, of which one runs
λ of Λ, (λ,γ)         a configuration; an instance of it: ``Instance``
X(m,i), X(m,r)        binaries ``held[s]`` of a task, by instance
N, Y                  sums of X, written out; Y of a retraining is the number of its profile, from 1
F                     binary of each configuration: something is held of it
C, z, E, k, Compl.    binaries of each retraining task: runs, starts, holds what it held, has just ended, is done
equal, R              binaries of each tenant: as many of a profile as before; its multiset has changed
RT, L, Ψ              ``durations``, ``min_profile``, ``overhead_s``
capability, Recv      capacity and arrivals of a step, in ``unit`` requests
Throughput            Σ G, where G[level] is Throughput at the level that the tenant has and 0 at the others
H                     the least number that is large enough, instead of 10000
===================== ==============================================================================

The step before the first one held, ran and ended nothing. Times are rounded up to steps, rates multiplied by the step.

Where the paper's formulas and text disagree, the text is followed:

======= ==============================================================================================================
formula what was corrected, and why
======= ==============================================================================================================
2       for every instance (λ,γ); printed as "for all s, γ"
3b      H is 1, since N ≤ 1; a binary may be off by 1e-6, times 10000 that made CBC call feasible programs infeasible
3d, 3e  Y is the number of the profile, not its GPCs: 1g.10gb and 1g.20gb have one GPC each; Equals is three binaries
3f      printed as an equation, it has no solution where z = 0, and a retraining that does not pay is held for ever; now
        z = 1 on a profile with RT steps ⇒ E = 1 in the RT − 1 steps that follow, and C = 0 in the step after them
4       Σ z = 1 (≤ 1 where not required): "Σ C > 0" allows a second run; starts that would end after S are forbidden
5b      Σ X over instances as large as ``min_profile``, in compute and memory, ≥ 1; printed as a sum of GPCs
7, 8    tenants have weights
9       Throughput × Completion is a product: least · [level] ≤ G ≤ Recv · [level]
10      R · Ψ / N · capability is not linear: a binary tells N and bounds the loss; Ψ in steps; a debt may be negative
11      printed inverted, and too coarse: 1g+3g and 2g+2g have equal GPC and Inst; now R = 1 iff some profile's number
        differs, at step 0 only with an initial state
======= ==============================================================================================================

Minimum(A, B) needs no binary, as the larger Σ G is the better. Formula 6 is what a run measures. What the formulas do
not say stays so: every second each instance may move to another place, a retraining's too. A tighter program (commit
c9a63a9: a variable for each multiset, the convex hull of the counts that fit) was proven up to 20 steps of two tenants.

Source: MIGRator, section 4.1 and Table 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from operator import le
from typing import Any

import numpy as np
import pulp

from executor.compiled import working_s
from executor.mig import Multiset
from planner.budget import Budget
from planner.counts import feasible_multisets, large_enough_profiles, tenant_multisets
from planner.engines.answer import relaxed_bound, require_model
from planner.engines.milp.solvers import UNSOLVED, Solver, SolverAnswer, ask, one_of
from planner.engines.paper.plan import (
    Decisions,
    TenantDecision,
    broken_rule,
    initial_multisets,
    schedule_in,
    value_of,
    with_decisions,
    without_room,
)
from planner.engines.paper.states import JointStates
from planner.engines.paper.static import candidates
from planner.engines.schedule import Incumbent, WindowFacts, best_of
from planner.errors import EngineError
from planner.feasibility import infeasibility
from planner.plan import MigPlan, Status, without_plan
from planner.problem import Problem, Reconfiguration, Retraining, RetrainingOption

ENGINE = "paper-ilp"

STEP_REQUESTS = 1e3
"""The most requests of a step after scaling: large beside a solver's absolute tolerances."""

PROOF_TOLERANCE = 1e-6
"""A solver that says "optimal" at gap 0 means it within this, relatively: its feasibility tolerance.

Where its bound lies at most this far above the recomputed objective, the plan is called optimal.
"""

PROVABLE = 1000
"""About as many binaries of who holds what as HiGHS proves a plan for in a minute: 5 steps of two tenants, an A100."""

PAPER12_COMPUTE_SLICES = (1, 2, 3, 4, 7)
"""Sizes of the profiles in the paper's Figure 1."""

Expression = Any
"""A number, a variable of PuLP, or a sum of them."""

Held = Mapping[int, pulp.LpVariable]
"""X of one task in one step, by the index of the instance."""


class Configs(StrEnum):
    """Which configurations Λ holds."""

    PAPER12 = "paper12"
    ALL = "all"


def solve_paper_ilp(
    problem: Problem,
    budget: Budget | None = None,
    initial: MigPlan | None = None,
    *,
    solver: Solver | str = Solver.HIGHS,
    configs: Configs | str = Configs.ALL,
) -> MigPlan:
    """The best plan found within ``budget``, with bound and gap; never worse than greedy's or ``initial``.

    Args:
        problem: A ``paper`` problem without gain tables of its own.
        budget: Limits; none by default.
        initial: A plan of an earlier solve; returned again where none better is found.
        solver: ``highs``, ``cbc`` or ``gurobi``.
        configs: ``paper12`` or ``all``.

    Raises:
        EngineError: The problem is not ``paper``, has gain tables, checkpoints or ``swap_s``, the configurations do not
            go with it, or the solver is unknown, missing, without a licence for a program of this size, or failed.
    """
    started_s, budget = working_s(), budget or Budget()
    _refuse_what_has_no_formula(problem)
    chosen, solver = configurations(problem, configs), one_of(Solver, "solver", solver)
    reason = infeasibility(problem)
    if reason is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, started_s, infeasibility=reason)
    facts = WindowFacts.of(problem)
    joint = JointStates(facts)
    found, model = candidates(joint, initial), PaperModel.of(problem, chosen)

    def left_s() -> float:
        return math.inf if budget.time_limit_s is None else budget.time_limit_s - (working_s() - started_s)

    begun_s, answer = working_s(), UNSOLVED
    is_made = formulate(model, lambda: bool(found) and left_s() <= 0.0)
    # To hand the program to a solver takes about as long as to make it.
    if is_made and not (found and left_s() <= working_s() - begun_s):
        limit_s = None if budget.time_limit_s is None else max(0.01, left_s())
        answer = ask(solver, model.program, replace(budget, time_limit_s=limit_s))
    if answer.is_infeasible and not found:
        return without_room(problem, ENGINE, started_s)
    best = best_of([*_solver_candidates(joint, model, answer), *found])
    bound = _bound(model, answer, -math.inf if best is None else best.value, relaxed_bound(facts))
    work = (("variables", len(model.program.variables())), ("nodes", answer.n_nodes))
    if best is None:
        return replace(without_plan(problem, Status.TIMEOUT, ENGINE, started_s, bound), work=work)
    return with_decisions(problem, best, bound, ENGINE, started_s, work)


def _refuse_what_has_no_formula(problem: Problem) -> None:
    require_model(problem, Reconfiguration.PAPER, ENGINE)
    if problem.gains is not None:
        message = "counts min(arrivals, capability), the paper's formula 10; this problem has gain tables of its own"
        raise EngineError(f"engine {ENGINE!r} {message}")
    for tenant in problem.tenants:
        if tenant.has_swaps:
            message = f"knows no checkpoints and no swap_s, which tenant {tenant.name} has; exact does"
            raise EngineError(f"engine {ENGINE!r} {message}")


def _solver_candidates(joint: JointStates, model: PaperModel, answer: SolverAnswer) -> list[Incumbent[Decisions]]:
    """The solver's decisions, and the best path beside their retrainings; without what breaks a rule."""
    if not answer.has_solution:
        return []
    own = model.decisions()
    kept = [one for one in (own, joint.path(schedule_in(own))) if one and broken_rule(model.problem, one) is None]
    return [Incumbent(value_of(joint.facts, one), one) for one in kept]


def _bound(model: PaperModel, answer: SolverAnswer, value: float, relaxed: float) -> float:
    """The solver's bound, or the relaxed one where that is lower; that of a plan worth ``value`` is never below it."""
    bound = relaxed
    if answer.bound is not None:
        bound = min(bound, -answer.bound / model.scale + model.constant)
    tolerance = PROOF_TOLERANCE * max(abs(bound), 1.0 / model.scale)
    if bound < value - tolerance:
        # The solver contradicts a plan that was checked: its bound is worth nothing.
        return max(value, relaxed)
    return value if bound < value or (answer.is_proven and bound <= value + tolerance) else bound


def size_note(problem: Problem, *, solver: Solver | str = Solver.HIGHS, configs: Configs | str = Configs.ALL) -> str:
    """How large the program is beside what HiGHS proves within a minute (``docs/results/paper-ilp.csv``), in words.

    Raises:
        EngineError: As of :func:`solve_paper_ilp`, before anything is solved.
    """
    _refuse_what_has_no_formula(problem)
    one_of(Solver, "solver", solver)
    n_of = dict(enumerate(map(sum, zip(*configurations(problem, configs), strict=True))))
    usable = [list(tenant.capability_rps) for tenant in problem.tenants]
    usable += [list(option.time_s) for tenant in problem.tenants for option in tenant.options]
    own = sum(n_of[problem.profile_names.index(name)] for names in usable for name in names)
    size = f"engine {ENGINE!r} has {problem.n_steps * own:,} binaries of who holds which instance here"
    return f"{size}; a minute proves plans up to about {PROVABLE:,}, and beyond them most often ends with greedy's"


def configurations(problem: Problem, configs: Configs | str) -> tuple[Multiset, ...]:
    """Λ as counts over ``problem.profile_names``, none contained in another one of all profiles considered.

    Where some memory slices are not ours, these are joined by those that the slices left can be cut into.

    ``all``: every way to cut the GPU into the problem's profiles. ``paper12``: the paper's twelve, without
    instances of profiles that no task of the problem uses.

    Raises:
        EngineError: There is no such set, or it is ``paper12`` for a GPU or a profile that the twelve do not have.
    """
    is_paper12 = one_of(Configs, "configs", configs) is Configs.PAPER12
    names = _paper12_profiles(problem) if is_paper12 else problem.profile_names
    masks = dict.fromkeys(mask for _, _, mask in problem.unavailable_spans)
    cuts = (_maximal(feasible_multisets(problem.gpu, names, mask)) for mask in masks)
    found = (dict(zip(names, counts, strict=True)) for counts in dict.fromkeys(chain.from_iterable(cuts)))
    return tuple(tuple(counts.get(name, 0) for name in problem.profile_names) for counts in found)


def _maximal(multisets: Sequence[Multiset]) -> list[Multiset]:
    """The multisets that are not contained in another one of them, sorted."""
    return sorted(m for m in multisets if not any(m != other and all(map(le, m, other)) for other in multisets))


def _paper12_profiles(problem: Problem) -> tuple[str, ...]:
    gpu, names = problem.gpu, problem.gpu.standard_profile_names
    if tuple(gpu.profile(name).compute_slices for name in names) != PAPER12_COMPUTE_SLICES:
        raise EngineError(
            f"configs 'paper12' are those of a GPU with 7 compute slices; {gpu.name} has {gpu.compute_slices}: "
            "use configs 'all'"
        )
    for tenant in problem.tenants:
        used = {*tenant.capability_rps, *(name for option in tenant.options for name in option.time_s)}
        foreign = [name for name in gpu.profile_names if name in used and name not in names]
        if foreign:
            raise EngineError(
                f"configs 'paper12' have no {', '.join(foreign)}, which tenant {tenant.name} may use; they have "
                f"{', '.join(names)}: use configs 'all'"
            )
    return names


@dataclass(frozen=True, slots=True)
class Instance:
    """(λ, γ): one instance of configuration ``config``."""

    config: int
    profile_index: int


@dataclass
class RetrainingTask:
    """(m, r) with one option: RT in steps by profile index, and its variables by step."""

    name: str
    durations: Mapping[int, int]
    held: list[Held] = field(default_factory=list)
    runs: list[pulp.LpVariable] = field(default_factory=list)
    starts: list[pulp.LpVariable] = field(default_factory=list)
    same: list[Expression] = field(default_factory=list)
    done: list[pulp.LpVariable] = field(default_factory=list)


@dataclass
class PaperModel:
    """The paper's program of a problem by its symbols.

    Attributes:
        problem: The problem.
        configs: Λ: counts over ``problem.profile_names``.
        instances: (λ, γ), by configuration.
        unit: Requests that are one unit of capability and throughput.
        worth: Weight times accuracy that is one unit of the objective.
        held: X of (m, i), by tenant and step.
        tasks: (m, r), by tenant and option.
        program: To be minimised; its objective is minus goodput, times ``scale``.
    """

    problem: Problem
    configs: tuple[Multiset, ...]
    instances: tuple[Instance, ...]
    unit: float
    worth: float
    held: list[list[Held]]
    tasks: list[list[RetrainingTask]]
    program: pulp.LpProblem

    @classmethod
    def of(cls, problem: Problem, configs: Sequence[Multiset]) -> PaperModel:
        """The symbols of a ``paper`` problem's program over these configurations, before any formula."""
        most = max(
            max(_most_capacity(problem, m), float(tenant.arrivals_rps.max()) * problem.step_s)
            for m, tenant in enumerate(problem.tenants)
        )
        numbered = ((config, p, n) for config, own in enumerate(configs) for p, n in enumerate(own))

        def task(name: str, option: RetrainingOption) -> RetrainingTask:
            steps = {problem.profile_names.index(name): problem.training_steps(option, name) for name in option.time_s}
            return RetrainingTask(name, steps)

        tasks = [
            [task(f"{m}_{o}", option) for o, option in enumerate(tenant.options)]
            for m, tenant in enumerate(problem.tenants)
        ]
        return cls(
            problem=problem,
            configs=tuple(configs),
            instances=tuple(Instance(config, p) for config, p, n in numbered for _ in range(n)),
            unit=most / STEP_REQUESTS,
            worth=max(tenant.weight * max(tenant.accuracies) for tenant in problem.tenants) or 1.0,
            held=[[] for _ in problem.tenants],
            tasks=tasks,
            program=pulp.LpProblem("paper", pulp.LpMinimize),
        )

    @property
    def scale(self) -> float:
        """Units of the program's objective per request."""
        return 1.0 / (self.unit * self.worth)

    @property
    def constant(self) -> float:
        """Requests that every plan is worth beside what the program's objective says."""
        return sum(tenant.salvages[0] for tenant in self.problem.tenants)

    def binary(self, name: str) -> pulp.LpVariable:
        """A new variable that is 0 or 1."""
        return self.program.add_variable(name, cat=pulp.LpBinary)

    def require(self, *constraints: pulp.LpConstraint) -> None:
        """Add the constraints."""
        for constraint in constraints:
            self.program.addConstraint(constraint)

    def equals(self, name: str, one: Expression, other: Expression, most: int) -> pulp.LpVariable:
        """Equals(A, B) of two integers in ``[0, most]``: 1 if they are equal, else 0.

        Exactly one of A = B, A > B and A < B holds, each with a binary.
        """
        difference = pulp.lpSum([one, -other])
        equal, more, less = (self.binary(f"{name}_{relation}") for relation in ("eq", "gt", "lt"))
        self.require(equal + more + less == 1)
        self.require(difference <= most * more - less, difference >= more - most * less)
        return equal

    def count(self, held: Held, profile_index: int) -> Expression:
        """How many instances of the profile are held."""
        return pulp.lpSum(x for i, x in held.items() if self.instances[i].profile_index == profile_index)

    def usable(self, name: str, profile_indices: Container[int]) -> Held:
        """X of a task in one step: of the instances of these profiles."""
        own = (i for i, instance in enumerate(self.instances) if instance.profile_index in profile_indices)
        return {i: self.binary(f"{name}_{i}") for i in own}

    def decisions(self) -> tuple[TenantDecision, ...]:
        """What the variables' values decide, each binary rounded; not checked."""
        return tuple(
            TenantDecision(tuple(self._counts(held) for held in self.held[m]), self._started(m))
            for m in range(len(self.problem.tenants))
        )

    def _counts(self, held: Held) -> Multiset:
        profiles = [self.instances[i].profile_index for i, x in held.items() if _is_one(x)]
        return tuple(profiles.count(p) for p in range(len(self.problem.profile_names)))

    def _started(self, m: int) -> Retraining | None:
        """The retraining that starts first, if one does and holds an instance."""
        for option_index, task in enumerate(self.tasks[m]):
            for step, (starts, held) in enumerate(zip(task.starts, task.held, strict=True)):
                profiles = [p for p, count in enumerate(self._counts(held)) if count]
                if _is_one(starts) and profiles:
                    end_step = step + task.durations[profiles[0]]
                    profile = self.problem.profile_names[profiles[0]]
                    return Retraining(m, option_index + 1, profile, step, end_step)
        return None


def _is_one(variable: pulp.LpVariable) -> bool:
    return bool((variable.value() or 0.0) > 0.5)


def formulate(model: PaperModel, is_late: Callable[[], bool] = lambda: False) -> bool:
    """Write all formulas down; whether that was done before it was late."""
    problem, goodput = model.problem, list[Expression]()
    for s in range(problem.n_steps):
        if is_late():
            return False
        _allocation(model, s)
        for m, tasks in enumerate(model.tasks):
            _deployment(model, m, s)
            for task in tasks:
                _running(model, task, s)
                _completion(model, task, s)
            goodput.append(_goodput(model, m, s))
    for tenant, tasks in zip(problem.tenants, model.tasks, strict=True):
        if tasks:  # formula 4: one of them starts, once; none or one where that is left open
            n_starts = pulp.lpSum(z for task in tasks for z in task.starts)
            model.require(n_starts == 1 if tenant.must_retrain else n_starts <= 1)
        for task in tasks:
            _no_interruption(model, task)
    goodput += [_salvage(model, m) for m, tenant in enumerate(problem.tenants) if tenant.salvage]
    model.program.setObjective(-pulp.lpSum(goodput))  # formulas 7 and 8
    return True


def _most_capacity(problem: Problem, m: int) -> float:
    """The most requests that any multiset of tenant m's inference can serve in a step."""
    tenant = problem.tenants[m]
    return problem.step_s * float(np.max(np.array(tenant_multisets(problem, tenant)) @ problem.rates_rps(tenant)))


def _allocation(model: PaperModel, s: int) -> None:
    """X, and formulas 1a, 1b and 2: one configuration is chosen, and each of its instances has one task at most."""
    problem, names = model.problem, model.problem.profile_names
    for m, tenant in enumerate(problem.tenants):
        model.held[m].append(model.usable(f"Xi_{m}_{s}", {names.index(name) for name in tenant.capability_rps}))
        for task in model.tasks[m]:
            task.held.append(model.usable(f"Xr_{task.name}_{s}", task.durations))
    held = [own[s] for own in model.held] + [task.held[s] for tasks in model.tasks for task in tasks]
    takers = [[xs[i] for xs in held if i in xs] for i in range(len(model.instances))]
    ours, chosen = feasible_multisets(problem.gpu, names, problem.unavailable_in(s, s + 1)), []
    for config, counts in enumerate(model.configs):
        own = [xs for i, xs in enumerate(takers) if xs and model.instances[i].config == config]
        total = pulp.lpSum(x for xs in own for x in xs)
        chosen.append(model.binary(f"F_{config}_{s}"))
        model.require(chosen[-1] <= total, len(own) * chosen[-1] >= total)
        if own and counts not in ours:
            model.require(total <= 0)
    model.require(pulp.lpSum(chosen) == 1)
    model.require(*(pulp.lpSum(xs) <= 1 for xs in takers if len(xs) > 1))


def _running(model: PaperModel, task: RetrainingTask, s: int) -> None:
    """Formulas 3a to 3e: whether the task runs, starts, and holds the profile that it held."""
    held = task.held[s]
    n_held = pulp.lpSum(held.values())
    runs = model.binary(f"C_{task.name}_{s}")
    model.require(n_held <= 1, runs <= n_held, runs >= n_held)
    ran = task.runs[-1] if s else 0
    starts = model.binary(f"z_{task.name}_{s}")
    model.require(starts <= 1 - ran, starts <= runs, starts >= runs - ran)
    task.runs.append(runs)
    task.starts.append(starts)
    if s == 0:
        task.same.append(0)
        return
    before, now, most = _number(model, task.held[s - 1]), _number(model, held), len(model.problem.profile_names)
    task.same.append(model.equals(f"E_{task.name}_{s}", before, now, most))


def _number(model: PaperModel, held: Held) -> Expression:
    """Y: the number of the profile that is held, from 1; 0 when none is."""
    return pulp.lpSum((model.instances[i].profile_index + 1) * x for i, x in held.items())


def _no_interruption(model: PaperModel, task: RetrainingTask) -> None:
    """Formulas 3f and 4: from its start the task holds its profile for RT steps, then nothing, within the window."""
    n_steps = model.problem.n_steps
    for s, starts in enumerate(task.starts):
        for profile_index, n_run in task.durations.items():
            begins = starts + model.count(task.held[s], profile_index) - 1  # 1 iff it starts here on this profile
            end = s + n_run
            if end > n_steps:
                model.require(begins <= 0)
                continue
            model.require(pulp.lpSum(task.same[s + 1 : end]) >= (n_run - 1) * begins)
            if end < n_steps:
                model.require(task.runs[end] <= 1 - begins)


def _completion(model: PaperModel, task: RetrainingTask, s: int) -> None:
    """Formula 12: whether the task has ended before step s."""
    runs = task.runs[s]
    ran, was_done = (task.runs[s - 1], task.done[s - 1]) if s else (0, 0)
    ended = model.binary(f"k_{task.name}_{s}")
    model.require(ended >= ran - runs, ended <= ran, ended <= 1 - runs)
    done = model.binary(f"Completion_{task.name}_{s}")
    model.require(done >= was_done, done >= ended, done <= was_done + ended)
    task.done.append(done)


def _deployment(model: PaperModel, m: int, s: int) -> None:
    """Formulas 5a and 5b: inference holds an instance as large as its least."""
    problem = model.problem
    enough = [problem.profile_names.index(p.name) for p in large_enough_profiles(problem, problem.tenants[m])]
    model.require(pulp.lpSum(model.count(model.held[m][s], p) for p in enough) >= 1)


def _changed(model: PaperModel, m: int, s: int) -> pulp.LpVariable | None:
    """Formula 11: R, 1 iff inference holds another number of some profile than before; ``None`` where that is free."""
    problem, held = model.problem, model.held[m]
    initial = initial_multisets(problem)[m]
    if s == 0 and initial is None:
        return None
    differ = []
    for p, name in enumerate(problem.profile_names):
        n_before = 0 if s or initial is None else initial[p]
        if name in problem.tenants[m].capability_rps or n_before:
            before, now = model.count(held[s - 1], p) if s else n_before, model.count(held[s], p)
            most = max(n_before, *(counts[p] for counts in model.configs))
            differ.append(1 - model.equals(f"equal_{m}_{s}_{p}", before, now, most))
    changed = model.binary(f"R_{m}_{s}")
    model.require(*(changed >= differs for differs in differ), changed <= pulp.lpSum(differ))
    return changed


def _salvage(model: PaperModel, m: int) -> Expression:
    """What tenant m's retraining adds to its salvage, in units of the objective; no formula of the paper's."""
    none, *ended = model.problem.tenants[m].salvages
    tasks = zip(ended, model.tasks[m], strict=True)
    return pulp.lpSum(model.scale * (own - none) * z for own, task in tasks for z in task.starts)


def _goodput(model: PaperModel, m: int, s: int) -> Expression:
    """Formula 9: Throughput at the present accuracy, in units of the objective; 10 bounds Throughput."""
    problem = model.problem
    tenant = problem.tenants[m]
    received = float(tenant.arrivals_rps[s]) * problem.step_s / model.unit
    debt_factor = max(0.0, tenant.overhead_s / problem.step_s - 1.0)
    least = -debt_factor * _most_capacity(problem, m) / model.unit
    capability = _capability(model, m, s)
    done = [task.done[s] for task in model.tasks[m]]
    levels = [1 - pulp.lpSum(done), *done]
    parts = []
    for level, is_level in enumerate(levels):
        part = model.program.add_variable(f"G_{m}_{level}_{s}", least, received)
        model.require(part <= received * is_level, part >= least * is_level)
        parts.append(part)
    model.require(pulp.lpSum(parts) <= capability)  # Throughput = minimum(Recv, capability)
    worth = [tenant.weight * accuracy / model.worth for accuracy in tenant.accuracies]
    return pulp.lpSum(w * part for w, part in zip(worth, parts, strict=True))


def _capability(model: PaperModel, m: int, s: int) -> Expression:
    """Formula 10: capability of all that is held, less what a change costs."""
    problem, held = model.problem, model.held[m][s]
    rates = (problem.rates_rps(problem.tenants[m]) * problem.step_s / model.unit).tolist()
    steady = pulp.lpSum(rates[model.instances[i].profile_index] * x for i, x in held.items())
    changed = _changed(model, m, s)
    return steady if changed is None else steady - _loss(model, (m, s), steady, changed)


def _loss(model: PaperModel, at: tuple[int, int], steady: Expression, changed: pulp.LpVariable) -> Expression:
    """R · Ψ / N · capability of all that is held: each N has a binary, and the one that holds bounds the loss."""
    (m, s), problem = at, model.problem
    tenant = problem.tenants[m]
    share = tenant.overhead_s / problem.step_s
    most = share * _most_capacity(problem, m) / model.unit
    n_held = pulp.lpSum(model.held[m][s].values())
    loss = model.program.add_variable(f"loss_{m}_{s}", 0.0, most)
    counted = []
    for n in range(1, max(map(sum, tenant_multisets(problem, tenant))) + 1):
        is_count = model.binary(f"N_{m}_{s}_{n}")
        model.require(loss >= share / n * steady - most / n * (2 - changed - is_count))
        counted.append(is_count)
    model.require(pulp.lpSum(counted) == 1, pulp.lpSum(n * x for n, x in enumerate(counted, start=1)) == n_held)
    return loss
