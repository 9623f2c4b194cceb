"""``migrator plan``: solve one window of a config, or a problem file, without any GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from migrator.config import read_config
from migrator.console import output, print_json, progress, warn
from migrator.errors import InfeasibleError, MigratorError
from migrator.log.overhead import MeasuredOverhead, with_overhead_of_run
from migrator.outputs import require_writable, write_output
from migrator.provenance import provenance
from migrator.run.planning import Solving, plan_through, require_plan
from migrator.setting import assemble
from migrator.views.as_json import explanation_to_json
from migrator.views.plan import Floor, print_explanation, print_plan
from planner.budget import Budget
from planner.explain.explain import Explanation, explain
from planner.files.plan_file import plan_to_json, read_plan
from planner.files.problem_file import read_problem
from planner.options import EngineOptions
from planner.plan import MigPlan
from planner.problem import Problem
from planner.solve import solve, start_misfit
from planner.verify import verify

FLOORS = ("static", "greedy")
"""Engines that a plan is measured against, simplest first."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How to solve, as the command line has it; ``None`` leaves a choice open.

    Attributes:
        engine: One of :func:`planner.solve.engine_names`.
        options: What only some engines know.
        time_limit_s: Seconds until the best plan so far is taken.
    """

    engine: str | None = None
    options: EngineOptions = field(default_factory=EngineOptions)
    time_limit_s: float | None = None

    @property
    def is_anything(self) -> bool:
        """Whether anything was asked for."""
        return self != Asked()


@dataclass(frozen=True, slots=True)
class Shown:
    """What to do with the plan.

    Attributes:
        out: File to write it to as JSON.
        as_json: Print JSON instead of tables.
        explain_step: Step of which the layout is to be explained.
        changes: Print the whole timetable.
        floors: Measure the plan against simple engines.
    """

    out: Path | None = None
    as_json: bool = False
    explain_step: int | None = None
    changes: bool = False
    floors: bool = True


@dataclass(frozen=True, slots=True)
class Measured:
    """Overheads that a run measured in the place of a problem's own.

    Attributes:
        run: Its folder.
        is_simulated: Whether its GPU was.
        overhead_s: By tenant; tenants of which it measured nothing are left out.
    """

    run: Path
    is_simulated: bool
    overhead_s: Mapping[str, float]

    @classmethod
    def of(cls, problem: Problem, run: Path, measured: MeasuredOverhead) -> Measured:
        """What a run measured of the problem's tenants."""
        own = {name: value for name, value in measured.last_s.items() if name in problem.tenant_names}
        return cls(run, measured.is_simulated, own)

    @property
    def told(self) -> str:
        """For people."""
        values = ", ".join(f"{name} {value:.2f} s" for name, value in self.overhead_s.items())
        return f"{values}, measured in {self.run}{' (simulated)' if self.is_simulated else ''}"

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {"run": str(self.run), "simulated": self.is_simulated, "overhead_s": dict(self.overhead_s)}


def plan_config_command(config_path: Path, *, window: int, asked: Asked, shown: Shown) -> None:
    """Print the plan of ``window``, if every plan before it is carried out as promised.

    It is the plan that a run of the config makes, unless another way to solve the window is ``asked`` for.

    Raises:
        ConfigError: The config cannot be used, or has fewer windows.
        EngineError: No such engine, or it does not take this model or an option.
        InfeasibleError: The window has no plan.
    """
    _check_out(shown, config_path)
    config = read_config(config_path)
    if window >= config.windows:
        raise MigratorError(f"--window is {window}; {config_path} has windows 0 to {config.windows - 1}")
    _check_step(shown, config.n_steps, config_path)
    setting = assemble(config, str(config_path))
    solving = Solving(engine=asked.engine, options=asked.options, time_limit_s=asked.time_limit_s)
    with progress().status(f"planning windows 0 to {window}"):
        planned = plan_through(setting, window, solving if asked.is_anything else None)[-1]
    _check_step(shown, planned.problem.n_steps, config_path)
    _show(planned.problem, planned.plan, shown, notes=provenance(setting))
    require_plan(planned)


def plan_problem_command(
    problem_path: Path, *, warm_start: Path | None, overhead_from: Path | None, asked: Asked, shown: Shown
) -> None:
    """Print the plan of a problem file.

    Args:
        problem_path: The problem file.
        warm_start: A plan file of a like problem to start from.
        overhead_from: A run's folder; what its changes took replaces the problem's overheads (``paper``).
        asked: How to solve.
        shown: What to do with the plan.

    Raises:
        ProblemError: The file is no problem, or no ``paper`` one though ``overhead_from`` is given.
        LogError: ``overhead_from`` is no run, or measured nothing of the problem's tenants.
        PlanFileError: ``warm_start`` is no plan of its tenants, profiles and model.
        EngineError: No such engine, or it does not take this model or an option.
        InfeasibleError: There is no plan; it is printed (and written) all the same.
    """
    _check_out(shown, problem_path)
    problem = read_problem(problem_path)
    _check_step(shown, problem.n_steps, problem_path)
    measured = None
    if overhead_from is not None:
        problem, run = with_overhead_of_run(problem, overhead_from)
        measured = Measured.of(problem, overhead_from, run)
    initial = None if warm_start is None else _start(problem, warm_start, asked.engine)
    with progress().status("solving"):
        budget = Budget(time_limit_s=asked.time_limit_s)
        plan = solve(problem, engine=asked.engine, budget=budget, initial=initial, options=asked.options)
    _show(problem, plan, shown, measured, () if measured is None else (("overhead", measured.told),))
    if not plan.status.has_plan:
        reason = plan.infeasibility or f"engine {plan.engine} found no plan; that does not prove that there is none"
        raise InfeasibleError(f"{problem_path}: {reason}")


def _start(problem: Problem, path: Path, engine: str | None) -> MigPlan:
    """The plan to start from; a user who gave one that the engine will pass over should know."""
    plan = read_plan(path, problem)
    reason = start_misfit(problem, plan, engine)
    if reason is not None:
        warn(f"--warm-start {path} is not used: {reason}")
    return plan


def _check_out(shown: Shown, origin: Path) -> None:
    if shown.out is not None:
        require_writable("--out", shown.out, origin)


def _check_step(shown: Shown, n_steps: int, origin: Path) -> None:
    if shown.explain_step is not None and shown.explain_step >= n_steps:
        raise MigratorError(f"--explain is {shown.explain_step}; {origin} has steps 0 to {n_steps - 1}")


def _show(
    problem: Problem,
    plan: MigPlan,
    shown: Shown,
    measured: Measured | None = None,
    notes: Sequence[tuple[str, str]] = (),
) -> None:
    if shown.out is not None:
        write_output("--out", shown.out, json.dumps(plan_to_json(plan), indent=2, allow_nan=False))
    explanation = None
    if shown.explain_step is not None and plan.status.has_plan:
        explanation = explain(problem, plan, shown.explain_step)
    if shown.as_json:
        source = {} if measured is None else {"overhead_from": measured.to_json()}
        print_json(plan_to_json(plan) | source | _explanation_json(explanation))
        return
    verification = verify(problem, plan) if plan.status.has_plan else None
    floors = _floors(problem, plan) if shown.floors and plan.status.has_plan else ()
    print_plan(problem, plan, verification, output(), floors=floors, notes=notes, all_changes=shown.changes)
    if explanation is not None:
        print_explanation(explanation, output())


def _explanation_json(explanation: Explanation | None) -> dict[str, object]:
    return {} if explanation is None else {"explain": explanation_to_json(explanation)}


def _floors(problem: Problem, plan: MigPlan) -> tuple[Floor, ...]:
    names = [name for name in FLOORS if name != plan.engine]
    with progress().status(f"solving with {' and '.join(names)} to compare"):
        return tuple(Floor(name, solve(problem, engine=name).objective) for name in names)
