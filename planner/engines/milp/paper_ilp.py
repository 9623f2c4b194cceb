"""Engine ``paper-ilp``: the paper's own integer program, with its corrections, as the measure for other engines.

Formulas 1 to 12 stand below, each in one place; ``docs/paper-ilp.md`` says what was corrected and why. The
program is slow: a binary for every step, task and instance of every configuration, many of them interchangeable.

What is returned never rests on the solver's arithmetic alone: its solution is rounded, checked against the rules, and
valued anew. Greedy's plan, or the one to start from, is given to the solver as its start, and stands in when it is
better or the only one. The bound is the solver's, or greedy's where that is lower.

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

The step before the first one held, ran and ended nothing.

Source: MIGRator, section 4.1 and Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import assert_never

import pulp

from executor.compiled import working_s
from executor.mig import GpuModel, Multiset
from planner.budget import Budget
from planner.counts import feasible_multisets, large_enough_profiles, tenant_multisets
from planner.engines.answer import relaxed_bound, require_model, without_plan
from planner.engines.milp.solvers import Solver, SolverAnswer, ask, solver_of
from planner.engines.milp.variables import (
    Expression,
    MeantVariables,
    meaning_number,
    meaning_positive,
    present_value,
)
from planner.engines.paper.plan import (
    Decisions,
    TenantDecision,
    broken_rule,
    initial_multisets,
    running_at,
    schedule_in,
    value_of,
    with_decisions,
)
from planner.engines.paper.states import JointStates
from planner.engines.paper.static import candidates
from planner.engines.schedule import Incumbent, WindowFacts, best_of
from planner.errors import EngineError
from planner.feasibility import RULE_RETRAINING, infeasibility
from planner.plan import Infeasibility, MigPlan, Status
from planner.problem import Problem, Reconfiguration, Retraining, TenantTerms

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
    presolve: bool = True,
) -> MigPlan:
    """The best plan found within ``budget``, with bound and gap; never worse than greedy's or ``initial``.

    Args:
        problem: A ``paper`` problem without gain tables of its own.
        budget: Limits; none by default.
        initial: A plan of an earlier solve, to start from; returned again where it is the better one.
        solver: ``highs``, ``cbc`` or ``gurobi``.
        configs: ``paper12`` or ``all``.
        presolve: Whether the solver may presolve.

    Raises:
        EngineError: The problem is not ``paper``, has gain tables, checkpoints or ``swap_s``, the configurations do not
            go with it, or the solver is unknown, missing, without a licence for a program of this size, or failed.
    """
    started_s, budget = working_s(), budget or Budget()
    _refuse_what_has_no_formula(problem)
    chosen, solver = configurations(problem, configs), solver_of(solver)
    reason = infeasibility(problem)
    if reason is not None:
        return replace(without_plan(problem, Status.INFEASIBLE, ENGINE, started_s), infeasibility=reason)
    facts = WindowFacts.of(problem)
    joint = JointStates(facts)
    floor = candidates(joint, initial)
    start = best_of(floor)

    def look_at_the_clock(more_s: float = 0.0) -> None:
        if start is not None and _is_late(budget, started_s, more_s):
            raise _TimeUpError

    begun_s = working_s()
    try:
        model = paper_model(problem, chosen, look_at_the_clock)
        if start is not None:
            model.start_from(start.answer)
        # To hand the program to a solver takes about as long as to make it.
        look_at_the_clock(working_s() - begun_s)
    except _TimeUpError:
        assert start is not None
        return with_decisions(problem, start, max(start.value, relaxed_bound(facts)), ENGINE, started_s)
    left = _left(budget, working_s() - started_s)
    answer = ask(solver, model.program, left, presolve=presolve, has_start=start is not None)
    if answer.is_infeasible and not floor:
        text = "no schedule of the required retrainings fits beside every tenant's min_profile"
        plan = without_plan(problem, Status.INFEASIBLE, ENGINE, started_s)
        return replace(plan, infeasibility=Infeasibility(None, RULE_RETRAINING, text))
    return _best_plan(problem, _Solved(joint, model, answer, tuple(floor)), started_s)


def _refuse_what_has_no_formula(problem: Problem) -> None:
    require_model(problem, Reconfiguration.PAPER, ENGINE)
    if problem.gains is not None:
        message = "counts min(arrivals, capability), the paper's formula 10; this problem has gain tables of its own"
        raise EngineError(f"engine {ENGINE!r} {message}")
    for tenant in problem.tenants:
        if tenant.has_swaps:
            message = f"knows no checkpoints and no swap_s, which tenant {tenant.name} has; exact does"
            raise EngineError(f"engine {ENGINE!r} {message}")


class _TimeUpError(Exception):
    """Time was up before the program was made."""


@dataclass(frozen=True)
class _Solved:
    joint: JointStates
    model: PaperModel
    answer: SolverAnswer
    floor: tuple[Incumbent[Decisions], ...]


def _is_late(budget: Budget, started_s: float, more_s: float) -> bool:
    """Whether a limit of seconds is met, or will be in ``more_s`` seconds."""
    return budget.time_limit_s is not None and working_s() - started_s + more_s >= budget.time_limit_s


def _left(budget: Budget, spent_s: float) -> Budget:
    if budget.time_limit_s is None:
        return budget
    return replace(budget, time_limit_s=max(0.01, budget.time_limit_s - spent_s))


def _best_plan(problem: Problem, solved: _Solved, started_s: float) -> MigPlan:
    """The better of the solver's plan and the floor, with the lower of both bounds."""
    answer = solved.answer
    own = _solver_candidates(problem, solved) if answer.has_solution else []
    best = best_of([*own, *solved.floor])
    bound = relaxed_bound(solved.joint.facts)
    if answer.bound is not None:
        bound = min(bound, -answer.bound / solved.model.scale + solved.model.constant)
    work = (("variables", len(solved.model.program.variables())), ("nodes", answer.n_nodes))
    if best is None:
        return replace(without_plan(problem, Status.TIMEOUT, ENGINE, started_s, bound), work=work)
    certified = _certified_bound(best.value, bound, solved)
    return with_decisions(problem, best, certified, ENGINE, started_s, work)


def _certified_bound(value: float, bound: float, solved: _Solved) -> float:
    """The bound that goes with a plan worth ``value``: never below it, and equal to it where that is proven."""
    tolerance = PROOF_TOLERANCE * max(abs(bound), 1.0 / solved.model.scale)
    if bound < value - tolerance:
        # The solver contradicts a plan that was checked: its bound is worth nothing.
        return max(value, relaxed_bound(solved.joint.facts))
    if bound < value or (solved.answer.is_proven and bound <= value + tolerance):
        return value
    return bound


def _solver_candidates(problem: Problem, solved: _Solved) -> list[Incumbent[Decisions]]:
    """The solver's decisions; where they are not proven best, also the best path beside their retrainings."""
    decisions = solved.model.decisions()
    found: list[Incumbent[Decisions]] = []
    if broken_rule(problem, decisions) is None:
        found.append(Incumbent(value_of(problem, solved.joint.facts.gains, decisions), decisions))
    if not found or not solved.answer.is_proven:
        path = solved.joint.path(schedule_in(decisions))
        if path is not None and broken_rule(problem, path) is None:
            found.append(Incumbent(value_of(problem, solved.joint.facts.gains, path), path))
    return found


def size_note(problem: Problem, *, solver: Solver | str = Solver.HIGHS, configs: Configs | str = Configs.ALL) -> str:
    """How large the program is beside what HiGHS proves within a minute (``docs/paper-ilp.md``), in words.

    Raises:
        EngineError: As of :func:`solve_paper_ilp`, before anything is solved.
    """
    _refuse_what_has_no_formula(problem)
    solver_of(solver)
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
    match _configs_of(configs):
        case Configs.ALL:
            return _maximal(problem, problem.profile_names)
        case Configs.PAPER12:
            names = _paper12_profiles(problem.gpu)
            _check_paper12(problem, names)
            return tuple(
                tuple(counts[names.index(name)] if name in names else 0 for name in problem.profile_names)
                for counts in _maximal(problem, names)
            )
        case other:
            assert_never(other)


def _maximal(problem: Problem, names: Sequence[str]) -> tuple[Multiset, ...]:
    """Ways to cut the memory slices that are ours in some step into profiles."""
    masks = dict.fromkeys(mask for _, _, mask in problem.unavailable_spans)
    cuts = (maximal_multisets(feasible_multisets(problem.gpu, names, mask)) for mask in masks)
    return tuple(dict.fromkeys(counts for own in cuts for counts in own))


def maximal_multisets(multisets: Iterable[Multiset]) -> tuple[Multiset, ...]:
    """The multisets that are not contained in another one of them, sorted."""
    found = sorted(set(multisets))
    return tuple(m for m in found if not any(m != other and _is_below(m, other) for other in found))


def _is_below(lower: Sequence[int], upper: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(lower, upper, strict=True))


def _configs_of(name: Configs | str) -> Configs:
    try:
        return Configs(name)
    except ValueError:
        raise EngineError(f"unknown configs {name!r}; known: {', '.join(Configs)}") from None


def _paper12_profiles(gpu: GpuModel) -> tuple[str, ...]:
    names = gpu.standard_profile_names
    if tuple(gpu.profile(name).compute_slices for name in names) != PAPER12_COMPUTE_SLICES:
        raise EngineError(
            f"configs 'paper12' are those of a GPU with 7 compute slices; {gpu.name} has {gpu.compute_slices}: "
            "use configs 'all'"
        )
    return names


def _check_paper12(problem: Problem, names: Sequence[str]) -> None:
    for tenant in problem.tenants:
        used = {*tenant.capability_rps, *(name for option in tenant.options for name in option.time_s)}
        foreign = [name for name in problem.gpu.profile_names if name in used and name not in names]
        if foreign:
            raise EngineError(
                f"configs 'paper12' have no {', '.join(foreign)}, which tenant {tenant.name} may use; they have "
                f"{', '.join(names)}: use configs 'all'"
            )


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
        open_configs: Those of Λ that fit the memory slices that are ours, by step.
        instances: (λ, γ), by configuration.
        variables: The program that they are of; to be minimised.
        unit: Requests that are one unit of capability and throughput.
        worth: Weight times accuracy that is one unit of the objective.
        held: X of (m, i), by tenant and step.
        tasks: (m, r), by tenant and option.
    """

    problem: Problem
    configs: tuple[Multiset, ...]
    open_configs: tuple[frozenset[int], ...]
    instances: tuple[Instance, ...]
    variables: MeantVariables
    unit: float
    worth: float
    held: list[list[Held]]
    tasks: list[list[RetrainingTask]]

    def count(self, held: Held, profile_index: int) -> Expression:
        """How many instances of the profile are held."""
        return pulp.lpSum(x for i, x in held.items() if self.instances[i].profile_index == profile_index)

    @property
    def program(self) -> pulp.LpProblem:
        """To be minimised; its objective is minus goodput, times ``scale``."""
        return self.variables.program

    @property
    def scale(self) -> float:
        """Units of the program's objective per request."""
        return 1.0 / (self.unit * self.worth)

    @property
    def constant(self) -> float:
        """Requests that every plan is worth beside what the program's objective says."""
        return sum(tenant.salvages[0] for tenant in self.problem.tenants)

    def start_from(self, decisions: Sequence[TenantDecision]) -> None:
        """Give every variable the value that it has in these decisions, which keep the rules."""
        for step in range(self.problem.n_steps):
            free = self._free_instances(decisions, step)
            for m, decision in enumerate(decisions):
                _hold(self.held[m][step], _take(free, decision.held[step]))
                for option_index, task in enumerate(self.tasks[m]):
                    choice = decision.retraining
                    own = choice if choice is not None and choice.level == option_index + 1 else None
                    _hold(task.held[step], _take(free, running_at(self.problem, (own,), step)))
        self.variables.work_out()

    def _free_instances(self, decisions: Sequence[TenantDecision], step: int) -> list[list[int]]:
        """The instances, by profile, of the first configuration that has room for all that is held in the step."""
        running = running_at(self.problem, tuple(decision.retraining for decision in decisions), step)
        total = [sum(counts) for counts in zip(*(d.held[step] for d in decisions), running, strict=True)]
        config = next(
            index
            for index, counts in enumerate(self.configs)
            if index in self.open_configs[step] and all(n <= most for n, most in zip(total, counts, strict=True))
        )
        own = [(i, instance.profile_index) for i, instance in enumerate(self.instances) if instance.config == config]
        return [[i for i, profile in own if profile == p] for p in range(len(total))]

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


def _take(free: list[list[int]], counts: Multiset) -> list[int]:
    """As many instances of each profile as ``counts`` says, which are then free no more."""
    return [free[p].pop() for p, count in enumerate(counts) for _ in range(count)]


def _hold(held: Held, taken: Iterable[int]) -> None:
    chosen = set(taken)
    for i, x in held.items():
        x.setInitialValue(float(i in chosen))


def _is_one(variable: pulp.LpVariable) -> bool:
    return bool((variable.value() or 0.0) > 0.5)


def paper_model(
    problem: Problem, configs: Sequence[Multiset], in_every_step: Callable[[], None] = lambda: None
) -> PaperModel:
    """The paper's program of a ``paper`` problem over these configurations, counts over its profiles."""
    model = _symbols(problem, configs)
    goodput: list[Expression] = []
    for s in range(problem.n_steps):
        in_every_step()
        _allocation(model, s)
        for m, tasks in enumerate(model.tasks):
            _deployment(model, m, s)
            for task in tasks:
                _running(model, task, s)
                _completion(model, task, s)
            goodput.append(_goodput(model, m, s))
    for tenant, tasks in zip(problem.tenants, model.tasks, strict=True):
        _launch(model, tenant, tasks)
        for task in tasks:
            _no_interruption(model, task)
    goodput += [_salvage(model, m) for m, tenant in enumerate(problem.tenants) if tenant.salvage]
    model.variables.program.setObjective(-pulp.lpSum(goodput))  # formulas 7 and 8
    return model


def _symbols(problem: Problem, configs: Sequence[Multiset]) -> PaperModel:
    """The symbols of a problem's program over these configurations, before any formula."""
    instances = [
        Instance(config, p) for config, counts in enumerate(configs) for p, n in enumerate(counts) for _ in range(n)
    ]
    most = max(
        max(_most_capacity(problem, m), float(tenant.arrivals_rps.max()) * problem.step_s)
        for m, tenant in enumerate(problem.tenants)
    )
    tasks = [
        [
            RetrainingTask(
                f"{m}_{o}",
                {problem.profile_names.index(name): problem.training_steps(option, name) for name in option.time_s},
            )
            for o, option in enumerate(tenant.options)
        ]
        for m, tenant in enumerate(problem.tenants)
    ]
    return PaperModel(
        problem=problem,
        configs=tuple(configs),
        open_configs=_open_configs(problem, configs),
        instances=tuple(instances),
        variables=MeantVariables("paper"),
        unit=most / STEP_REQUESTS,
        worth=max(tenant.weight * max(tenant.accuracies) for tenant in problem.tenants) or 1.0,
        held=[[] for _ in problem.tenants],
        tasks=tasks,
    )


def _open_configs(problem: Problem, configs: Sequence[Multiset]) -> tuple[frozenset[int], ...]:
    by_step: list[frozenset[int]] = []
    for begin, end, mask in problem.unavailable_spans:
        feasible = set(feasible_multisets(problem.gpu, problem.profile_names, mask))
        is_open = frozenset(index for index, counts in enumerate(configs) if counts in feasible)
        by_step += [is_open] * (end - begin)
    return tuple(by_step)


def _most_capacity(problem: Problem, m: int) -> float:
    """The most requests that any multiset of tenant m's inference can serve in a step."""
    tenant = problem.tenants[m]
    rates = [tenant.capability_rps.get(name, 0.0) for name in problem.profile_names]
    return problem.step_s * max(
        sum(n * rate for n, rate in zip(multiset, rates, strict=True)) for multiset in tenant_multisets(problem, tenant)
    )


def _allocation(model: PaperModel, s: int) -> None:
    """X, and formulas 1a, 1b and 2: one configuration is chosen, and each of its instances has one task at most."""
    problem, variables = model.problem, model.variables
    for m, tenant in enumerate(problem.tenants):
        usable = {problem.profile_names.index(name) for name in tenant.capability_rps}
        model.held[m].append(_decisions(model, f"Xi_{m}_{s}", usable))
        for task in model.tasks[m]:
            task.held.append(_decisions(model, f"Xr_{task.name}_{s}", set(task.durations)))
    held = [own[s] for own in model.held] + [task.held[s] for tasks in model.tasks for task in tasks]
    takers = [[xs[i] for xs in held if i in xs] for i in range(len(model.instances))]
    chosen = []
    for config in range(len(model.configs)):
        own = [xs for i, xs in enumerate(takers) if xs and model.instances[i].config == config]
        total = pulp.lpSum(x for xs in own for x in xs)
        chosen.append(variables.binary(f"F_{config}_{s}", meaning_positive(total)))
        variables.require(chosen[-1] <= total, len(own) * chosen[-1] >= total)
        if own and config not in model.open_configs[s]:
            variables.require(total <= 0)
    variables.require(pulp.lpSum(chosen) == 1)
    variables.require(*(pulp.lpSum(xs) <= 1 for xs in takers if len(xs) > 1))


def _decisions(model: PaperModel, name: str, usable: set[int]) -> Held:
    return {
        i: model.variables.decision(f"{name}_{i}")
        for i, instance in enumerate(model.instances)
        if instance.profile_index in usable
    }


def _running(model: PaperModel, task: RetrainingTask, s: int) -> None:
    """Formulas 3a to 3e: whether the task runs, starts, and holds the profile that it held."""
    variables, held = model.variables, task.held[s]
    n_held = pulp.lpSum(held.values())
    runs = variables.binary(f"C_{task.name}_{s}", lambda: present_value(n_held))
    variables.require(n_held <= 1, runs <= n_held, runs >= n_held)
    ran = task.runs[-1] if s else 0
    starts = variables.binary(f"z_{task.name}_{s}", lambda: max(0.0, present_value(runs - ran)))
    variables.require(starts <= 1 - ran, starts <= runs, starts >= runs - ran)
    task.runs.append(runs)
    task.starts.append(starts)
    if s == 0:
        task.same.append(0)
        return
    before, now, most = _number(model, task.held[s - 1]), _number(model, held), len(model.problem.profile_names)
    task.same.append(variables.equals(f"E_{task.name}_{s}", before, now, most))


def _number(model: PaperModel, held: Held) -> Expression:
    """Y: the number of the profile that is held, from 1; 0 when none is."""
    return pulp.lpSum((model.instances[i].profile_index + 1) * x for i, x in held.items())


def _no_interruption(model: PaperModel, task: RetrainingTask) -> None:
    """Formulas 3f and 4: from its start the task holds its profile for RT steps, then nothing, within the window."""
    n_steps, variables = model.problem.n_steps, model.variables
    for s, starts in enumerate(task.starts):
        for profile_index, n_run in task.durations.items():
            begins = starts + model.count(task.held[s], profile_index) - 1  # 1 iff it starts here on this profile
            end = s + n_run
            if end > n_steps:
                variables.require(begins <= 0)
                continue
            variables.require(pulp.lpSum(task.same[s + 1 : end]) >= (n_run - 1) * begins)
            if end < n_steps:
                variables.require(task.runs[end] <= 1 - begins)


def _launch(model: PaperModel, tenant: TenantTerms, tasks: Sequence[RetrainingTask]) -> None:
    """Formula 4: one of the tenant's retraining tasks starts, once; none or one where that is left open."""
    n_starts = pulp.lpSum(z for task in tasks for z in task.starts)
    if tasks:
        model.variables.require(n_starts == 1 if tenant.must_retrain else n_starts <= 1)


def _completion(model: PaperModel, task: RetrainingTask, s: int) -> None:
    """Formula 12: whether the task has ended before step s."""
    variables, runs = model.variables, task.runs[s]
    ran, was_done = (task.runs[s - 1], task.done[s - 1]) if s else (0, 0)
    ended = variables.binary(f"k_{task.name}_{s}", lambda: max(0.0, present_value(ran - runs)))
    variables.require(ended >= ran - runs, ended <= ran, ended <= 1 - runs)
    done = variables.binary(f"Completion_{task.name}_{s}", lambda: present_value(was_done + ended))
    variables.require(done >= was_done, done >= ended, done <= was_done + ended)
    task.done.append(done)


def _deployment(model: PaperModel, m: int, s: int) -> None:
    """Formulas 5a and 5b: inference holds an instance as large as its least."""
    problem = model.problem
    enough = [problem.profile_names.index(p.name) for p in large_enough_profiles(problem, problem.tenants[m])]
    model.variables.require(pulp.lpSum(model.count(model.held[m][s], p) for p in enough) >= 1)


def _changed(model: PaperModel, m: int, s: int) -> pulp.LpVariable | None:
    """Formula 11: R, 1 iff inference holds another number of some profile than before; ``None`` where that is free."""
    problem, variables, held = model.problem, model.variables, model.held[m]
    initial = initial_multisets(problem)[m]
    if s == 0 and initial is None:
        return None
    differ = []
    for p, name in enumerate(problem.profile_names):
        n_before = 0 if s or initial is None else initial[p]
        if name in problem.tenants[m].capability_rps or n_before:
            before, now = model.count(held[s - 1], p) if s else n_before, model.count(held[s], p)
            most = max(n_before, *(counts[p] for counts in model.configs))
            differ.append(1 - variables.equals(f"equal_{m}_{s}_{p}", before, now, most))
    changed = variables.binary(f"R_{m}_{s}", lambda: max(map(present_value, differ)))
    variables.require(*(changed >= differs for differs in differ), changed <= pulp.lpSum(differ))
    return changed


def _salvage(model: PaperModel, m: int) -> Expression:
    """What tenant m's retraining adds to its salvage, in units of the objective; no formula of the paper's."""
    none, *ended = model.problem.tenants[m].salvages
    tasks = zip(ended, model.tasks[m], strict=True)
    return pulp.lpSum(model.scale * (own - none) * z for own, task in tasks for z in task.starts)


def _goodput(model: PaperModel, m: int, s: int) -> Expression:
    """Formula 9: Throughput at the present accuracy, in units of the objective; 10 bounds Throughput."""
    problem, variables = model.problem, model.variables
    tenant = problem.tenants[m]
    received = float(tenant.arrivals_rps[s]) * problem.step_s / model.unit
    debt_factor = max(0.0, tenant.overhead_s / problem.step_s - 1.0)
    least = -debt_factor * _most_capacity(problem, m) / model.unit
    capability = _capability(model, m, s)
    done = [task.done[s] for task in model.tasks[m]]
    levels = [1 - pulp.lpSum(done), *done]
    parts = []
    for level, is_level in enumerate(levels):
        served = partial(_served, received, capability, is_level)
        part = variables.real(f"G_{m}_{level}_{s}", least, received, served)
        variables.require(part <= received * is_level, part >= least * is_level)
        parts.append(part)
    variables.require(pulp.lpSum(parts) <= capability)  # Throughput = minimum(Recv, capability)
    worth = [tenant.weight * accuracy / model.worth for accuracy in tenant.accuracies]
    return pulp.lpSum(w * part for w, part in zip(worth, parts, strict=True))


def _served(received: float, capability: Expression, is_level: Expression) -> float:
    return present_value(is_level) * min(received, present_value(capability))


def _capability(model: PaperModel, m: int, s: int) -> Expression:
    """Formula 10: capability of all that is held, less what a change costs."""
    problem, held = model.problem, model.held[m][s]
    capability_rps = problem.tenants[m].capability_rps
    rates = [capability_rps.get(name, 0.0) * problem.step_s / model.unit for name in problem.profile_names]
    steady = pulp.lpSum(rates[model.instances[i].profile_index] * x for i, x in held.items())
    changed = _changed(model, m, s)
    return steady if changed is None else steady - _loss(model, (m, s), steady, changed)


def _loss(model: PaperModel, at: tuple[int, int], steady: Expression, changed: pulp.LpVariable) -> Expression:
    """R · Ψ / N · capability of all that is held: each N has a binary, and the one that holds bounds the loss."""
    (m, s), problem, variables = at, model.problem, model.variables
    tenant = problem.tenants[m]
    share = tenant.overhead_s / problem.step_s
    most = share * _most_capacity(problem, m) / model.unit
    n_held = pulp.lpSum(model.held[m][s].values())

    def meaning() -> float:
        return present_value(changed) * share / present_value(n_held) * present_value(steady)

    loss = variables.real(f"loss_{m}_{s}", 0.0, most, meaning)
    counted = []
    for n in range(1, max(map(sum, tenant_multisets(problem, tenant))) + 1):
        is_count = variables.binary(f"N_{m}_{s}_{n}", meaning_number(n_held, n))
        variables.require(loss >= share / n * steady - most / n * (2 - changed - is_count))
        counted.append(is_count)
    variables.require(pulp.lpSum(counted) == 1, pulp.lpSum(n * x for n, x in enumerate(counted, start=1)) == n_held)
    return loss
