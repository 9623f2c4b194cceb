"""What ``bench_planner.py`` measures: cases, their problems, and what is asked of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.speed.problems import (
    N_TRACE_PROBLEMS,
    mid_window,
    profiles_with_double_memory,
    random_problem,
    trace_problem,
)
from planner.files.plan_file import plan_of
from planner.files.problem_file import problem_to_json
from planner.plan import MigPlan
from planner.problem import Problem
from planner.replan import remaining_plan

N_RANDOM_PROBLEMS = 20
RANDOM_PER_TRACE = N_RANDOM_PROBLEMS // N_TRACE_PROBLEMS

WINDOW_PLANS = Path(__file__).with_name("window_plans.json")
"""Plans of whole windows, kept so that the windows to re-plan stay the same when the engine gets better."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a case over all its problems; ``None`` where nothing is.

    Gaps and values are shares: a gap of 0.01 is 1 %, a value of 0.995 is 99.5 % of the best known.
    """

    median_s: float | None = None
    worst_s: float | None = None
    is_proven: bool = False
    median_gap: float | None = None
    worst_gap: float | None = None
    least_value: float | None = None
    most_mib: float | None = None

    def __str__(self) -> str:
        parts = {
            "proven": self.is_proven or None,
            "median ≤ {:g} s": self.median_s,
            "worst ≤ {:g} s": self.worst_s,
            "median gap ≤ {:.1%}": self.median_gap,
            "worst gap ≤ {:.1%}": self.worst_gap,
            "value ≥ {:.1%}": self.least_value,
            "≤ {:g} MiB": self.most_mib,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    Attributes:
        name: What ``--only`` takes.
        engine: Who solves.
        model: ``paper`` or ``physical``.
        n_tenants: How many tenants.
        target: What is asked.
        n_steps: Steps of the window.
        step_s: Seconds a step.
        gpu: The GPU model.
        has_double_memory: Whether the 1g with double memory may be held.
        time_limit_s: What the engine is given; ``None`` for as long as it takes.
        is_replan: Whether windows are planned anew midway, warm-started from the rest of their plan.
        is_command: Whether the whole process of ``migrator plan --problem`` is measured.
        n_most: Most problems; slow cases take a few.
    """

    name: str
    engine: str
    model: str
    n_tenants: int
    target: Target
    n_steps: int = 200
    step_s: float = 1.0
    gpu: str = "a100-40gb"
    has_double_memory: bool = False
    time_limit_s: float | None = None
    is_replan: bool = False
    is_command: bool = False
    n_most: int = N_RANDOM_PROBLEMS + N_TRACE_PROBLEMS

    @property
    def problem_set(self) -> str:
        """Cases of one problem set share their best known values."""
        memory = "+double-memory" if self.has_double_memory else ""
        midway = " midway" if self.is_replan else ""
        return f"{self.model} {self.n_tenants} × {self.n_steps} × {self.step_s:g} s {self.gpu}{memory}{midway}"


CASES = (
    Case("paper-2", "exact", "paper", 2, Target(median_s=0.3, worst_s=2, is_proven=True, most_mib=500)),
    Case("paper-2-fine", "exact", "paper", 2, Target(median_s=2, is_proven=True), n_steps=400, step_s=0.5),
    Case(
        "paper-2-h100",
        "exact",
        "paper",
        2,
        Target(median_s=1, is_proven=True),
        gpu="h100-80gb",
        has_double_memory=True,
    ),
    # An engine is given a little less than the target, for what it does after its clock has run out.
    Case("paper-3", "exact", "paper", 3, Target(worst_s=2, worst_gap=0.01), time_limit_s=1.9),
    Case("paper-4", "exact", "paper", 4, Target(worst_s=2, worst_gap=0.03), time_limit_s=1.9),
    Case(
        "physical-2",
        "physical",
        "physical",
        2,
        Target(worst_s=2, median_gap=0.01, worst_gap=0.02, least_value=0.995),
        time_limit_s=1.9,
    ),
    Case("physical-2-long", "physical", "physical", 2, Target(worst_s=20, worst_gap=0.005), time_limit_s=19.5),
    Case(
        "physical-2-midway",
        "physical",
        "physical",
        2,
        Target(worst_s=0.3, least_value=0.995),
        time_limit_s=0.26,
        is_replan=True,
    ),
    Case("physical-3", "physical", "physical", 3, Target(worst_s=4, least_value=0.99), time_limit_s=3.8),
    Case("command-paper-2", "exact", "paper", 2, Target(median_s=3), is_command=True, n_most=6),
    Case(
        "command-physical-2", "physical", "physical", 2, Target(median_s=3), time_limit_s=1.9, is_command=True, n_most=6
    ),
)
"""The cases of the targets."""

SLOW_CASES = (
    Case("milp-2", "milp", "paper", 2, Target(), time_limit_s=60, n_most=3),
    Case("paper-ilp-2", "paper-ilp", "paper", 2, Target(), time_limit_s=60, n_most=3),
)
"""General solvers (HiGHS) on the problems of ``paper-2``, for comparison."""


@dataclass(frozen=True)
class Task:
    """One problem of a case.

    Attributes:
        label: ``random-<seed>`` or ``trace-<index>``.
        problem: The problem.
        initial: The plan that the engine may start from.
    """

    label: str
    problem: Problem
    initial: MigPlan | None = None

    @property
    def fingerprint(self) -> str:
        """Differs whenever the problem does; a stored value with another one is void."""
        text = json.dumps(problem_to_json(self.problem), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def labels(n_problems: int) -> Iterator[str]:
    """The names of the first problems of a case: five random ones, one from traces, and so on."""
    for number in range(n_problems):
        block, place = divmod(number, RANDOM_PER_TRACE + 1)
        is_trace = place == RANDOM_PER_TRACE
        yield f"trace-{block}" if is_trace else f"random-{block * RANDOM_PER_TRACE + place}"


def tasks(case: Case, n_problems: int | None = None) -> Iterator[Task]:
    """The case's problems, the first ``n_problems`` of them."""
    for label in labels(min(case.n_most, n_problems or case.n_most)):
        whole = Task(label, whole_window(case, label))
        yield _midway(whole) if case.is_replan else whole


def whole_window(case: Case, label: str) -> Problem:
    """The whole window called ``label``."""
    kind, _, number = label.partition("-")
    make = random_problem if kind == "random" else trace_problem
    return make(
        int(number),
        n_tenants=case.n_tenants,
        n_steps=case.n_steps,
        step_s=case.step_s,
        gpu=case.gpu,
        model=case.model,
        profiles=profiles_with_double_memory(case.gpu) if case.has_double_memory else None,
    )


def _midway(whole: Task) -> Task:
    """The window at a step drawn from its second fifth to its seventh tenth, after the plan that is kept for it."""
    kept = json.loads(WINDOW_PLANS.read_text("utf-8"))
    plan = plan_of(kept[whole.label], whole.problem, f"{WINDOW_PLANS.name}: {whole.label}")
    number = int(whole.fingerprint, 16)
    n_steps = whole.problem.n_steps
    step = int(np.random.default_rng(number).integers(n_steps // 5, 7 * n_steps // 10))
    return Task(whole.label, mid_window(whole.problem, plan, step, seed=number), remaining_plan(plan, step))
