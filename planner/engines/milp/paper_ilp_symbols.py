"""The symbols of the paper's integer program: its Table 2.

===================== ==============================================================================
paper                 here
===================== ==============================================================================
s of S                step s of ``problem.n_steps``, from 0
(m,i), (m,r)          inference of tenant m; for each of its options one retraining task, of which one runs
λ of Λ, (λ,γ)         a configuration; an instance of it: ``Instance``
X(m,i), X(m,r)        binaries ``held[s]`` of a task, by instance
N, Y                  sums of X; Y of a retraining is the number of its profile, from 1
F                     binary of each configuration: something is held of it
C, z, E, k, Compl.    binaries of each retraining task: runs, starts, holds what it held, has just ended, is done
equal, R              binaries of each tenant: as many of a profile as before; its multiset has changed
RT, L, Ψ              ``durations``, ``min_profile``, ``overhead_s``
capability, Recv      capacity and arrivals of a step, in ``unit`` requests
Throughput            Σ G, where G[level] is Throughput at the level that the tenant has and 0 at the others
H                     the least number that is large enough, instead of 10000
===================== ==============================================================================

Source: MIGRator, section 4.1 and Table 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulp

from executor.mig import Multiset
from planner.counts import tenant_multisets
from planner.engines.milp.meant_variables import Expression, MeantVariables
from planner.problem import Problem

STEP_REQUESTS = 1e3
"""The most requests of a step after scaling: large beside a solver's absolute tolerances."""

Held = Mapping[int, pulp.LpVariable]
"""X of one task in one step, by the index of the instance."""


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
class PaperSymbols:
    """The symbols of one problem's program.

    Attributes:
        problem: The problem.
        configs: Λ: counts over ``problem.profile_names``.
        instances: (λ, γ), by configuration.
        variables: The program that they are of; to be minimised.
        unit: Requests that are one unit of capability and throughput.
        worth: Weight times accuracy that is one unit of the objective.
        held: X of (m, i), by tenant and step.
        tasks: (m, r), by tenant and option.
    """

    problem: Problem
    configs: tuple[Multiset, ...]
    instances: tuple[Instance, ...]
    variables: MeantVariables
    unit: float
    worth: float
    held: list[list[Held]]
    tasks: list[list[RetrainingTask]]

    def count(self, held: Held, profile_index: int) -> Expression:
        """How many instances of the profile are held."""
        return pulp.lpSum(x for i, x in held.items() if self.instances[i].profile_index == profile_index)


def paper_symbols(problem: Problem, configs: Sequence[Multiset]) -> PaperSymbols:
    """The symbols of a problem's program over these configurations, before any formula."""
    instances = [
        Instance(config, p) for config, counts in enumerate(configs) for p, n in enumerate(counts) for _ in range(n)
    ]
    most = max(
        max(most_capacity(problem, m), float(tenant.arrivals_rps.max()) * problem.step_s)
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
    return PaperSymbols(
        problem=problem,
        configs=tuple(configs),
        instances=tuple(instances),
        variables=MeantVariables("paper"),
        unit=most / STEP_REQUESTS,
        worth=max(tenant.weight * max(tenant.accuracies) for tenant in problem.tenants) or 1.0,
        held=[[] for _ in problem.tenants],
        tasks=tasks,
    )


def most_capacity(problem: Problem, m: int) -> float:
    """The most requests that any multiset of tenant m's inference can serve in a step."""
    tenant = problem.tenants[m]
    rates = [tenant.capability_rps.get(name, 0.0) for name in problem.profile_names]
    return problem.step_s * max(
        sum(n * rate for n, rate in zip(multiset, rates, strict=True)) for multiset in tenant_multisets(problem, tenant)
    )
