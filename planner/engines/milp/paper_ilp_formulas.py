"""The paper's formulas 1 to 12, each in one place; ``docs/paper-ilp.md`` says what was corrected and why.

The symbols stand in ``paper_ilp_symbols``. N and Y are sums of X and are written out; the step
before the first one held, ran and ended nothing.

Source: MIGRator, section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pulp

from executor.mig import Multiset
from planner.counts import large_enough_profiles, tenant_multisets
from planner.engines.milp.meant_variables import (
    Expression,
    meaning_number,
    meaning_positive,
    present_value,
)
from planner.engines.milp.paper_ilp_symbols import (
    Held,
    PaperSymbols,
    RetrainingTask,
    most_capacity,
    paper_symbols,
)
from planner.engines.paper.plan import initial_multisets
from planner.problem import Problem, TenantTerms


def formulate(problem: Problem, configs: Sequence[Multiset]) -> PaperSymbols:
    """The paper's program for a ``paper`` problem over these configurations."""
    symbols = paper_symbols(problem, configs)
    goodput: list[Expression] = []
    for s in range(problem.n_steps):
        _allocation(symbols, s)
        for m, tasks in enumerate(symbols.tasks):
            _deployment(symbols, m, s)
            for task in tasks:
                _running(symbols, task, s)
                _completion(symbols, task, s)
            goodput.append(_goodput(symbols, m, s))
    for tenant, tasks in zip(problem.tenants, symbols.tasks, strict=True):
        _launch(symbols, tenant, tasks)
        for task in tasks:
            _no_interruption(symbols, task)
    symbols.variables.program.setObjective(-pulp.lpSum(goodput))  # formulas 7 and 8
    return symbols


def _allocation(symbols: PaperSymbols, s: int) -> None:
    """X, and formulas 1a, 1b and 2: one configuration is chosen, and each of its instances has one task at most."""
    problem, variables = symbols.problem, symbols.variables
    for m, tenant in enumerate(problem.tenants):
        usable = {problem.profile_names.index(name) for name in tenant.capability_rps}
        symbols.held[m].append(_decisions(symbols, f"Xi_{m}_{s}", usable))
        for task in symbols.tasks[m]:
            task.held.append(_decisions(symbols, f"Xr_{task.name}_{s}", set(task.durations)))
    held = [own[s] for own in symbols.held] + [task.held[s] for tasks in symbols.tasks for task in tasks]
    takers = [[xs[i] for xs in held if i in xs] for i in range(len(symbols.instances))]
    chosen = []
    for config in range(len(symbols.configs)):
        own = [xs for i, xs in enumerate(takers) if xs and symbols.instances[i].config == config]
        total = pulp.lpSum(x for xs in own for x in xs)
        chosen.append(variables.binary(f"F_{config}_{s}", meaning_positive(total)))
        variables.require(chosen[-1] <= total, len(own) * chosen[-1] >= total)
    variables.require(pulp.lpSum(chosen) == 1)
    variables.require(*(pulp.lpSum(xs) <= 1 for xs in takers if len(xs) > 1))


def _decisions(symbols: PaperSymbols, name: str, usable: set[int]) -> Held:
    return {
        i: symbols.variables.decision(f"{name}_{i}")
        for i, instance in enumerate(symbols.instances)
        if instance.profile_index in usable
    }


def _running(symbols: PaperSymbols, task: RetrainingTask, s: int) -> None:
    """Formulas 3a to 3e: whether the task runs, starts, and holds the profile that it held."""
    variables, held = symbols.variables, task.held[s]
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
    before, now, most = _number(symbols, task.held[s - 1]), _number(symbols, held), len(symbols.problem.profile_names)
    task.same.append(variables.equals(f"E_{task.name}_{s}", before, now, most))


def _number(symbols: PaperSymbols, held: Held) -> Expression:
    """Y: the number of the profile that is held, from 1; 0 when none is."""
    return pulp.lpSum((symbols.instances[i].profile_index + 1) * x for i, x in held.items())


def _no_interruption(symbols: PaperSymbols, task: RetrainingTask) -> None:
    """Formulas 3f and 4: from its start the task holds its profile for RT steps, then nothing, within the window."""
    n_steps, variables = symbols.problem.n_steps, symbols.variables
    for s, starts in enumerate(task.starts):
        for profile_index, n_run in task.durations.items():
            begins = starts + symbols.count(task.held[s], profile_index) - 1  # 1 iff it starts here on this profile
            end = s + n_run
            if end > n_steps:
                variables.require(begins <= 0)
                continue
            variables.require(pulp.lpSum(task.same[s + 1 : end]) >= (n_run - 1) * begins)
            if end < n_steps:
                variables.require(task.runs[end] <= 1 - begins)


def _launch(symbols: PaperSymbols, tenant: TenantTerms, tasks: Sequence[RetrainingTask]) -> None:
    """Formula 4: one of the tenant's retraining tasks starts, once; none or one where that is left open."""
    n_starts = pulp.lpSum(z for task in tasks for z in task.starts)
    if tasks:
        symbols.variables.require(n_starts == 1 if tenant.must_retrain else n_starts <= 1)


def _completion(symbols: PaperSymbols, task: RetrainingTask, s: int) -> None:
    """Formula 12: whether the task has ended before step s."""
    variables, runs = symbols.variables, task.runs[s]
    ran, was_done = (task.runs[s - 1], task.done[s - 1]) if s else (0, 0)
    ended = variables.binary(f"k_{task.name}_{s}", lambda: max(0.0, present_value(ran - runs)))
    variables.require(ended >= ran - runs, ended <= ran, ended <= 1 - runs)
    done = variables.binary(f"Completion_{task.name}_{s}", lambda: present_value(was_done + ended))
    variables.require(done >= was_done, done >= ended, done <= was_done + ended)
    task.done.append(done)


def _deployment(symbols: PaperSymbols, m: int, s: int) -> None:
    """Formulas 5a and 5b: inference holds an instance as large as its least."""
    problem = symbols.problem
    enough = [problem.profile_names.index(p.name) for p in large_enough_profiles(problem, problem.tenants[m])]
    symbols.variables.require(pulp.lpSum(symbols.count(symbols.held[m][s], p) for p in enough) >= 1)


def _changed(symbols: PaperSymbols, m: int, s: int) -> pulp.LpVariable | None:
    """Formula 11: R, 1 iff inference holds another number of some profile than before; ``None`` where that is free."""
    problem, variables, held = symbols.problem, symbols.variables, symbols.held[m]
    initial = initial_multisets(problem)[m]
    if s == 0 and initial is None:
        return None
    differ = []
    for p, name in enumerate(problem.profile_names):
        n_before = 0 if s or initial is None else initial[p]
        if name in problem.tenants[m].capability_rps or n_before:
            before, now = symbols.count(held[s - 1], p) if s else n_before, symbols.count(held[s], p)
            most = max(n_before, *(counts[p] for counts in symbols.configs))
            differ.append(1 - variables.equals(f"equal_{m}_{s}_{p}", before, now, most))
    changed = variables.binary(f"R_{m}_{s}", lambda: max(map(present_value, differ)))
    variables.require(*(changed >= differs for differs in differ), changed <= pulp.lpSum(differ))
    return changed


def _goodput(symbols: PaperSymbols, m: int, s: int) -> Expression:
    """Formula 9: Throughput at the present accuracy, in units of the objective; 10 bounds Throughput."""
    problem, variables = symbols.problem, symbols.variables
    tenant = problem.tenants[m]
    received = float(tenant.arrivals_rps[s]) * problem.step_s / symbols.unit
    debt_factor = max(0.0, tenant.overhead_s / problem.step_s - 1.0)
    least = -debt_factor * most_capacity(problem, m) / symbols.unit
    capability = _capability(symbols, m, s)
    done = [task.done[s] for task in symbols.tasks[m]]
    levels = [1 - pulp.lpSum(done), *done]
    parts = []
    for level, is_level in enumerate(levels):
        served = partial(_served, received, capability, is_level)
        part = variables.real(f"G_{m}_{level}_{s}", least, received, served)
        variables.require(part <= received * is_level, part >= least * is_level)
        parts.append(part)
    variables.require(pulp.lpSum(parts) <= capability)  # Throughput = minimum(Recv, capability)
    worth = [tenant.weight * accuracy / symbols.worth for accuracy in tenant.accuracies]
    return pulp.lpSum(w * part for w, part in zip(worth, parts, strict=True))


def _served(received: float, capability: Expression, is_level: Expression) -> float:
    return present_value(is_level) * min(received, present_value(capability))


def _capability(symbols: PaperSymbols, m: int, s: int) -> Expression:
    """Formula 10: capability of all that is held, less what a change costs."""
    problem, held = symbols.problem, symbols.held[m][s]
    capability_rps = problem.tenants[m].capability_rps
    rates = [capability_rps.get(name, 0.0) * problem.step_s / symbols.unit for name in problem.profile_names]
    steady = pulp.lpSum(rates[symbols.instances[i].profile_index] * x for i, x in held.items())
    changed = _changed(symbols, m, s)
    return steady if changed is None else steady - _loss(symbols, (m, s), steady, changed)


def _loss(symbols: PaperSymbols, at: tuple[int, int], steady: Expression, changed: pulp.LpVariable) -> Expression:
    """R · Ψ / N · capability of all that is held: a binary tells each N, and the one that holds bounds the loss."""
    (m, s), problem, variables = at, symbols.problem, symbols.variables
    tenant = problem.tenants[m]
    share = tenant.overhead_s / problem.step_s
    most = share * most_capacity(problem, m) / symbols.unit
    n_held = pulp.lpSum(symbols.held[m][s].values())

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
