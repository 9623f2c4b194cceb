"""``migrator plan``: solve one window of a config, or a problem file, without any GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Assignments, Json, with_examples
from migrator.config.reading import files_in, read_config
from migrator.config.sections import Config
from migrator.errors import InfeasibleError, MigratorError
from migrator.execution.ahead import Seen, plan_through
from migrator.execution.planning import Solving, none_found, require_plan
from migrator.execution.windows import PlannedWindow
from migrator.inputs.assembly import assemble
from migrator.inputs.assumed import assumed_in, assumed_in_problem, assumed_to_json
from migrator.inputs.provenance import provenance
from migrator.log.changes import with_overhead_of_run
from migrator.log.records import Assumed, WindowStarted
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, read_log
from migrator.terminal.console import output, print_json, progress, warn, warn_of
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.views.as_json import explanation_to_json, promised_to_json
from migrator.views.emit import Emitted, Form, emitted
from migrator.views.plan import SimplePlan, print_explanation, print_plan
from migrator.views.sentences import assumed_lines
from migrator.views.traffic import print_traffic
from planner.attainment import attainments
from planner.budget import FLOOR_COSTS_AT_MOST, Budget, EngineOptions
from planner.errors import PlanFileError
from planner.explain import explain
from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_text, read_problem
from planner.files.strict import read_document
from planner.plan import MigPlan
from planner.problem import Problem, Reconfiguration
from planner.solve import PAPER, PHYSICAL, default_engine, engine_names, size_note, solve, start_misfit
from planner.verify import verify, with_proof
from workloads.tenants import Tenant

FLOORS = ("static", "greedy")
"""Engines that a plan is measured against, simplest first."""

_ENGINES_HELP = "; ".join(
    f"{model}: {', '.join(engine_names(model))} (default {default_engine(model)})" for model in (PAPER, PHYSICAL)
)


@dataclass(frozen=True, slots=True)
class PlanOutput:
    """What to do with the plan.

    Attributes:
        out: File to write it to as JSON.
        problem_out: File to write the problem to that it answers.
        as_json: Print JSON instead of tables.
        explain_step: Step of which the layout is to be explained.
        changes: Print the whole timetable.
        floors: Measure the plan against simple engines.
        emit: Print the plan for another tool instead.
    """

    out: Path | None = None
    problem_out: Path | None = None
    as_json: bool = False
    explain_step: int | None = None
    changes: bool = False
    floors: bool = True
    emit: Form | None = None


@with_examples(
    "plan quickstart.yaml --window 1",
    "plan --problem problem.json --explain 40",
    "plan --problem problem.json --engine paper-ilp --solver cbc --json",
)
def plan_command(
    config: Annotated[Path | None, typer.Argument(help="A run's config, to plan one of its windows.")] = None,
    *,
    window: Annotated[
        int | None, typer.Option(min=0, help="Which window of the config; those before it are planned too. Default: 0.")
    ] = None,
    problem: Annotated[Path | None, typer.Option(help="A problem file (JSON or YAML) instead of a config.")] = None,
    engine: Annotated[str | None, typer.Option(help=_ENGINES_HELP)] = None,
    solver: Annotated[
        str | None, typer.Option(help="paper-ilp: highs (the default), cbc or gurobi (needs its package).")
    ] = None,
    configs: Annotated[
        str | None, typer.Option(help="paper-ilp: paper12, the paper's twelve configurations, or all (the default).")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, metavar="SECONDS", help="Seconds until the best plan found is taken.")
    ] = None,
    warm_start: Annotated[
        Path | None, typer.Option(help="A plan file of a like problem, to start from; with --problem.")
    ] = None,
    overhead_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A run's folder: take the overheads that it measured last; with a paper problem."
        ),
    ] = None,
    explain: Annotated[
        int | None,
        typer.Option(min=0, metavar="STEP", help="Compare what is held in this step with its best alternatives."),
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", help="List every change, however many there are.")] = False,
    floors: Annotated[
        bool, typer.Option("--floors/--no-floors", help="Compare the plan with those of static and greedy.")
    ] = True,
    may_miss_floors: Annotated[
        bool,
        typer.Option(
            "--may-miss-floors",
            help="Plan as a run does: floors of in-time answers may be missed where keeping them costs too much.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the plan as JSON to this file.")] = None,
    problem_out: Annotated[
        Path | None, typer.Option(help="Also write the problem that was posed, for verify, to this JSON file.")
    ] = None,
    emit: Annotated[
        Form | None,
        typer.Option(
            case_sensitive=False,
            help="Print the plan for another tool instead: a shell script of commands by time, or a configuration.",
        ),
    ] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Print the plan of a config's window, or of a problem file.

    Raises:
        MigratorError: A file cannot be used, or the config has fewer windows.
        PlannerError: A file cannot be used; or no such engine, or it does not take this model or an option.
        InfeasibleError: There is no plan; for a problem, the answer without one is printed (and written) first.
    """
    if (config is None) == (problem is None):
        raise typer.BadParameter("give either a CONFIG or --problem FILE")
    options = EngineOptions(solver=solver, configs=configs)
    must_meet = not may_miss_floors
    solving = Solving(engine=engine, options=options, time_limit_s=time_limit, must_meet_floors=must_meet)
    if emit is not None and (as_json or explain is not None):
        raise typer.BadParameter("--emit takes the place of the report; it goes with neither --json nor --explain")
    shown = PlanOutput(out, problem_out, as_json, explain, changes, floors, emit)
    if problem is not None:
        if window is not None:
            raise typer.BadParameter("--window goes with a CONFIG; a problem file holds one window")
        if assignments:
            raise typer.BadParameter("--set goes with a CONFIG; a problem file is changed itself")
        _plan_problem(problem, warm_start=warm_start, overhead_from=overhead_from, solving=solving, shown=shown)
    elif config is not None:
        if warm_start is not None or overhead_from is not None:
            raise typer.BadParameter("--warm-start and --overhead-from go with --problem; a config has its own")
        _plan_config(config, window=window or 0, solving=solving, shown=shown, assignments=assignments or ())


def _plan_config(
    config_path: Path, *, window: int, solving: Solving, shown: PlanOutput, assignments: Sequence[str]
) -> None:
    """Print the plan of ``window``, if every plan before it is carried out as promised.

    With a run's own config it is the plan that the run has made, as its log tells what it had seen, if ``solving`` says
    nothing else and may miss floors as a run may.

    Raises:
        ConfigError: The config cannot be used, or has fewer windows.
        EngineError: No such engine, or it does not take this model or an option.
        InfeasibleError: The window has no plan.
    """
    config = read_config(config_path, assignments)
    _check_out(shown, config_path, config_path.with_name(EVENTS_FILE), *files_in(config))
    if window >= config.windows:
        raise MigratorError(f"--window is {window}; {config_path} has windows 0 to {config.windows - 1}")
    _check_step(shown, config.n_steps, config_path)
    setting, traffic = assemble(config, str(config_path))
    warn_of(setting.warnings)
    with progress().status(f"planning windows 0 to {window}" if window else "planning window 0"):
        seen = _seen_by(config_path, setting.config, setting.tenants)
        planned = plan_through(setting, traffic, window, solving, seen)[-1]
    _check_step(shown, planned.problem.n_steps, config_path)
    print_traffic(config, traffic, progress())
    assumed = assumed_in(setting)
    begins_s = planned.plan_from_step * planned.problem.step_s
    begins = f"{begins_s:g} s into the window; steps count from there, the old layout serves before"
    notes = (
        *([("begins", begins)] if planned.plan_from_step else []),
        *_partitions(planned),
        *provenance(setting.config, setting.tenants, traffic),
        *_assumed_notes(assumed),
    )
    extra = {"plan_from_step": planned.plan_from_step, "assumed": assumed_to_json(assumed)}
    if planned.judged:
        names = planned.problem.tenant_names
        found = [{"pools": one.named(names), "worth": one.worth, "lacks": one.lacks} for one in planned.judged]
        extra["partitions"] = found
    if shown.emit is not None:
        require_plan(planned)
    what = Emitted(planned.problem, planned.plan, begins_s, f"{config_path.name}, window {window}")
    _show(what, shown, notes, extra)
    require_plan(planned)


def _plan_problem(
    problem_path: Path, *, warm_start: Path | None, overhead_from: Path | None, solving: Solving, shown: PlanOutput
) -> None:
    """Print the plan of a problem file.

    Args:
        problem_path: The problem file.
        warm_start: A plan file of a like problem to start from.
        overhead_from: A run's folder; what its changes took replaces the problem's overheads (``paper``).
        solving: How; the cost model is the problem's own.
        shown: What to do with the plan.

    Raises:
        ProblemError: The file is no problem, or no ``paper`` one though ``overhead_from`` is given.
        LogError: ``overhead_from`` is no run, or measured nothing of the problem's tenants.
        PlanFileError: ``warm_start`` is no plan of its tenants, profiles and model.
        EngineError: No such engine, or it does not take this model or an option.
        InfeasibleError: There is no plan; the answer without one is printed (and written) first.
    """
    _check_out(shown, problem_path, *([] if overhead_from is None else [overhead_from / EVENTS_FILE]))
    problem = read_problem(problem_path)
    if shown.emit is not None and problem.reconfiguration is not Reconfiguration.PHYSICAL:
        raise MigratorError(f"--emit: {problem_path} is a paper problem, whose plans have no placements; physical has")
    _check_step(shown, problem.n_steps, problem_path)
    assumed = assumed_in_problem(problem)
    extra: dict[str, object] = {"assumed": assumed_to_json(assumed)} if assumed else {}
    notes = _assumed_notes(assumed)
    if overhead_from is not None:
        problem, measured = with_overhead_of_run(problem, overhead_from)
        own = {name: value for name, value in measured.last_s.items() if name in problem.tenant_names}
        extra["overhead_from"] = {"run": str(overhead_from), "simulated": measured.is_simulated, "overhead_s": own}
        values = ", ".join(f"{name} {value:.2f} s" for name, value in own.items())
        simulated = " (simulated)" if measured.is_simulated else ""
        notes.append(("overhead", f"{values}, measured in {overhead_from}{simulated}"))
    initial = None if warm_start is None else _start(problem, warm_start, solving.engine)
    size = size_note(problem, solving.engine, solving.options)
    if size is not None:
        warn(size)
    with progress().status("solving"):
        budget = Budget(time_limit_s=solving.time_limit_s)
        costs = None if solving.must_meet_floors else FLOOR_COSTS_AT_MOST
        plan = solve(
            problem, solving.engine, budget=budget, initial=initial, options=solving.options, floor_costs_at_most=costs
        )
    _show(Emitted(problem, plan, 0.0, problem_path.name), shown, notes, extra)
    if not plan.status.has_plan:
        raise InfeasibleError(f"{problem_path}: {plan.infeasibility or none_found(plan)}")


def _seen_by(config_path: Path, config: Config, tenants: Sequence[Tenant]) -> Mapping[int, Seen]:
    """What the run had seen by each window, where the config is that of a run's folder.

    Raises:
        LogError: The run's log is damaged.
    """
    from migrator.execution.reposing import seen_in  # noqa: PLC0415 (a plan of a problem file needs no log)

    if config_path.name != CONFIG_FILE or not (config_path.parent / EVENTS_FILE).is_file():
        return {}
    begun = read_log(config_path.parent).of(WindowStarted)
    return {started.window: seen_in(started, config, tenants) for started in begun}


def _partitions(planned: PlannedWindow) -> list[tuple[str, str]]:
    """What came into question of who shares, by plans that were made in a short while, the chosen one first."""
    names = planned.problem.tenant_names
    found = [
        f"{' | '.join('+'.join(group) for group in one.named(names))} {one.worth:.2f}"
        + (f" ({one.lacks:.0f} in-time answers short of floors)" if one.lacks else "")
        for one in planned.judged
        if one.worth is not None
    ]
    return [("sharing", f"{'; '.join(found)}: requests, by plans made in a short while")] if found else []


def _assumed_notes(assumed: Sequence[Assumed]) -> list[tuple[str, str]]:
    return [("assumed", line) for line in assumed_lines(assumed, left_out=("capability",))]


def _start(problem: Problem, path: Path, engine: str | None) -> MigPlan:
    """The plan to start from, with a warning if the engine will not use it; its certificate is of its own problem."""
    document = read_document(path, PlanFileError)
    own = {key: value for key, value in document.items() if key not in ("certificate", "bound", "gap")}
    plan = plan_of(own, problem, str(path))
    reason = start_misfit(problem, plan, engine)
    if reason is not None:
        warn(f"--warm-start {path} is not used: {reason}")
    return plan


def _check_out(shown: PlanOutput, *inputs: Path) -> None:
    if shown.out is not None:
        require_writable("--out", shown.out, Kind.DOCUMENT, *inputs)
    if shown.problem_out is not None:
        beside = [shown.out] if shown.out else []
        require_writable("--problem-out", shown.problem_out, Kind.DOCUMENT, *inputs, *beside)


def _check_step(shown: PlanOutput, n_steps: int, origin: Path) -> None:
    if shown.explain_step is not None and shown.explain_step >= n_steps:
        raise MigratorError(f"--explain is {shown.explain_step}; {origin} has steps 0 to {n_steps - 1}")


def _show(what: Emitted, shown: PlanOutput, notes: Sequence[tuple[str, str]], extra: Mapping[str, object]) -> None:
    """Write, print and explain the plan as asked; ``extra`` are more fields of its JSON."""
    problem, plan = what.problem, what.plan
    has_plan = plan.status.has_plan
    verification = verify(problem, plan) if has_plan else None
    plan = plan if verification is None else with_proof(plan, verification)
    if shown.problem_out is not None:
        write_output("--problem-out", shown.problem_out, problem_text(problem), Kind.DOCUMENT)
    if shown.out is not None:
        write_output("--out", shown.out, json.dumps(plan_to_json(plan), indent=2, allow_nan=False), Kind.DOCUMENT)
    if shown.emit is not None:
        typer.echo(emitted(shown.emit, what) if has_plan else "", nl=False)
        return
    explanation = explain(problem, plan, shown.explain_step) if shown.explain_step is not None and has_plan else None
    if shown.as_json:
        explained = {} if explanation is None else {"explain": explanation_to_json(explanation)}
        promised = {"in_time": promised_to_json(attainments(problem, plan))} if has_plan and problem.has_floors else {}
        print_json({**plan_to_json(plan), **promised, **extra, **explained})
        return
    floors = _floors(problem, plan) if shown.floors and has_plan else ()
    print_plan(problem, plan, verification, output(), floors=floors, notes=notes, all_changes=shown.changes)
    if explanation is not None:
        print_explanation(explanation, output())
        if problem.has_floors:
            output().print("Some of these layouts may miss a floor of in-time answers, which comes before goodput.")


def _floors(problem: Problem, plan: MigPlan) -> tuple[SimplePlan, ...]:
    """What simple engines reach; beside a given layout they make the same plan, so that there is nothing to compare."""
    if problem.layout:
        return ()
    names = [name for name in FLOORS if name != plan.engine]
    with progress().status(f"solving with {' and '.join(names)} to compare"):
        return tuple(SimplePlan(name, solve(problem, engine=name).objective) for name in names)
