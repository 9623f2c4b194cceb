"""Random `physical` plans carried out on the simulated GPU: its driver and its clock break no promise.

Each chain of problems starts with a free first layout. The next ones begin with what was left: the window after, or
the rest of the same window, planned anew with retrainings running and instances warming. Every change meets servers
that are busy for the longest time, and workers that start as slowly as the plan allows for if all start at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.mig import GpuModel, OwnedLayout
from executor.sim import SimGpu
from migrator.execution.applier import Applier, Backend
from migrator.execution.changes import Change, changes_of
from migrator.execution.happenings import Failed, Finished, Ready
from migrator.execution.simulated import SimWorkers
from migrator.log.records import Record, Wall
from planner.budget import Budget
from planner.plan import MigPlan
from planner.problem import DRAIN_S, Problem, Task
from planner.solve import engine_names, solve
from planner.verify import verify
from tests.migrator.execution.physical_chains import problem_of, rest_of, tenant_of, window_after
from workloads.tenants import Tenant

EPS_S = 1e-9

LINKS = 3
"""Problems of a chain, if each can be met."""


@dataclass
class Facts:
    """What happened on the way; each list names the offenders."""

    n_problems: int = 0
    late: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


class Chain:
    """One GPU, and the problems that it lives through."""

    def __init__(self, seed: int, gpu: GpuModel, facts: Facts) -> None:
        self._rng = np.random.default_rng([seed, 7])
        self._where = f"{gpu.name} {seed}"
        self._clock = VirtualClock(-100.0)
        self._gpu = SimGpu(gpu, self._clock, seed=seed)
        self._tenants: dict[str, Tenant] = {}
        self._workers = SimWorkers(self._gpu, self._clock, self._tenants, seed, window_s=1e9)
        self._applier = Applier(Backend(self._gpu, self._clock, self._workers), self._tenants, self._clock.now_s)
        self._n_notes = count()
        self._facts = facts
        self._ends_s: dict[tuple[str, str], float] = {}

    def run(self) -> None:
        problem, plan = self._first()
        fresh, start_s = problem, 0.0
        self._bring_up(problem, plan)
        for _ in range(LINKS - 1):
            until = problem.n_steps if self._rng.random() < 0.5 else int(self._rng.integers(1, problem.n_steps + 1))
            self._carry_out(problem, plan, start_s, until)
            start_s += until * problem.step_s
            if until < problem.n_steps:
                problem = rest_of(self._rng, problem, plan, until)
            else:
                problem = window_after(self._rng, problem, plan, fresh)
            plan = solve(problem, budget=Budget(max_nodes=10))
            if not plan.status.has_plan:
                return
        self._carry_out(problem, plan, start_s, problem.n_steps)
        self._hear_until(self._clock.now_s + 1000)

    def _first(self) -> tuple[Problem, MigPlan]:
        """A problem, and a plan for it by any of the engines."""
        while True:
            problem = problem_of(self._rng, self._gpu.model)
            plan = solve(problem, str(self._rng.choice(engine_names("physical"))), Budget(max_nodes=10))
            if plan.status.has_plan:
                return problem, plan

    def _bring_up(self, problem: Problem, plan: MigPlan) -> None:
        self._tenants |= {terms.name: tenant_of(terms, problem.gpu, plan) for terms in problem.tenants}
        opening = changes_of(plan, 0.0, problem.step_s)[0]
        serving = [entry for entry in opening.layout.entries if entry[1].task is Task.INFERENCE]
        self._applier.apply(replace(opening, layout=OwnedLayout.of(serving)), 0, {}, self._noted)

    def _carry_out(self, problem: Problem, plan: MigPlan, start_s: float, until: int) -> None:
        assert verify(problem, plan).violations == ()
        self._tenants |= {terms.name: tenant_of(terms, problem.gpu, plan) for terms in problem.tenants}
        self._note(problem, plan)
        for item in plan.lifetimes:
            if item.option is not None:
                key = (item.owner.tenant, str(item.placement))
                self._ends_s[key] = start_s + item.end_step * problem.step_s
        for change in changes_of(plan, start_s, problem.step_s):
            if change.planned_s < start_s + until * problem.step_s:
                self._apply(change)

    def _apply(self, change: Change) -> None:
        applier = self._applier
        self._hear_until(change.planned_s + EPS_S)
        if applier.is_blocked(change):
            self._facts.killed.append(f"{self._where} at {change.planned_s} s")
            return
        before = dict(applier.layout.entries)
        ids = {instance.placement: instance.gi_id for instance in self._gpu.instances()}
        servers = [server for own in applier.servers.values() for server in own]
        busy_until_s = {server.server_id: self._clock.now_s + DRAIN_S for server in servers}
        outcome = applier.apply(change, 0, busy_until_s, self._noted)
        assert outcome is not None
        assert outcome.undone == ()
        after = dict(change.layout.entries)
        ids_after = {instance.placement: instance.gi_id for instance in self._gpu.instances()}
        assert ids_after.keys() == after.keys()
        kept = [placement for placement in after if before.get(placement) == after[placement]]
        self._facts.moved += [f"{self._where} {p}" for p in kept if ids[p] != ids_after[p]]

    def _hear_until(self, until_s: float) -> None:
        """Let the workers go on until then, and hold what happens to them against the plan's promises."""
        while happenings := self._workers.happenings(until_s):
            for happening in happenings:
                live = self._applier.live(happening.instance_id)
                assert live is not None
                match happening:
                    case Ready():
                        self._applier.ready(live, happening)
                        is_late, found = happening.at_s > live.started.promised_s, self._facts.late
                    case Finished():
                        live.end()
                        promised_s = self._ends_s[live.owner.tenant, str(live.placement)]
                        is_late, found = happening.at_s > promised_s + EPS_S, self._facts.killed
                    case Failed():
                        raise AssertionError(happening)
                found += [f"{self._where} {happening}"] * is_late

    def _noted(self, record: Record, wall: Wall | None = None) -> int:
        del record, wall
        return next(self._n_notes)

    def _note(self, problem: Problem, plan: MigPlan) -> None:
        self._facts.n_problems += 1
        self._facts.seen.update(features(problem, plan))


def features(problem: Problem, plan: MigPlan) -> Iterator[str]:
    state = problem.physical_initial
    yield f"{len(problem.tenants)} tenants"
    yield f"steps of {problem.step_s} s"
    yield "no initial state" if state is None else "an initial state"
    if state is not None and state.retrainings:
        yield "a retraining in progress"
    if state is not None and any(item.serve_step > 0 for item in state.held):
        yield "an instance that warms"
    if state is not None and state.next_epoch_step > 0:
        yield "an epoch that has to wait"
    created = [item for item in plan.lifetimes if item.is_inference and item.create_step > 0]
    if created:
        yield "a change of the layout"
    if any(len(terms.options) == 2 for terms in problem.tenants):
        yield "two ways to retrain"
    if any(item.option is not None for item in plan.lifetimes):
        yield "a retraining that starts"
    ends = {(item.placement, item.end_step) for item in plan.lifetimes if item.is_inference}
    if any((item.placement, item.create_step) in ends for item in plan.lifetimes):
        yield "a placement that is handed over"


COVERED = (
    "1 tenants",
    "2 tenants",
    "3 tenants",
    "steps of 0.5 s",
    "steps of 2.0 s",
    "no initial state",
    "an initial state",
    "a retraining in progress",
    "an instance that warms",
    "an epoch that has to wait",
    "a change of the layout",
    "two ways to retrain",
    "a retraining that starts",
    "a placement that is handed over",
)


FEW = {"a30-24gb": range(35), "a100-80gb": range(4), "h100-80gb": range(1)}
MORE = {"a30-24gb": range(35, 310), "a100-80gb": range(4, 30), "h100-80gb": range(1, 6)}
"""Seeds of chains on each GPU model; a thousand problems in all."""


@pytest.mark.parametrize(
    ("chains", "n_each"),
    [pytest.param(FEW, 1, id="few"), pytest.param(MORE, 16, id="more", marks=pytest.mark.long)],
)
def test_plans_are_carried_out_as_they_promise(chains: Mapping[str, range], n_each: int) -> None:
    """Each feature is seen so often at least."""
    facts = Facts()
    for gpu_name, seeds in chains.items():
        n_before = facts.n_problems
        for seed in seeds:
            Chain(seed, gpu_model(gpu_name), facts).run()  # the simulated GPU raises where a slice is taken
        assert facts.n_problems - n_before >= 2.5 * len(seeds), gpu_name
    assert {"late": facts.late, "moved": facts.moved, "killed": facts.killed} == {"late": [], "moved": [], "killed": []}
    assert {name: facts.seen[name] for name in COVERED if facts.seen[name] < n_each} == {}
