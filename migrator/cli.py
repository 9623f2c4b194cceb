"""The command line: what users type, and the one place where errors become exit codes.

A command imports what it needs when it runs. Importing this module brings in neither numpy, numba nor PuLP, so
``--help`` and the checks of arguments are quick.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from executor.compiled import listen
from migrator.console import complain, note
from migrator.errors import ExitCode, MigratorError, exit_code_of
from planner.solve import PAPER, PHYSICAL, default_engine, engine_names

app = typer.Typer(
    name="migrator",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Share a MIG GPU among continually retrained models so that goodput is highest.",
    epilog="Start with: [bold]migrator run configs/quickstart.yaml[/]",
)
gpu_app = typer.Typer(no_args_is_help=True, help="GPU models and the layouts that they can take.")
app.add_typer(gpu_app, name="gpu")

_ENGINES_HELP = "; ".join(
    f"{model}: {', '.join(engine_names(model))} (default {default_engine(model)})" for model in (PAPER, PHYSICAL)
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of tables.")]


def _print_version(value: bool) -> None:  # typer calls it by position, and by this name
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - rarely needed

        typer.echo(f"migrator {version('migrator')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: [bold]migrator run configs/quickstart.yaml --windows 2 --out runs/try[/]")
def run(
    config: Annotated[Path, typer.Argument(help="The config file (YAML); see docs/configuration.md.")],
    *,
    windows: Annotated[int | None, typer.Option(min=1, help="How many windows, instead of the config's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed, instead of the config's.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; it must not exist. Default: runs/NAME.")] = None,
    policy: Annotated[
        str, typer.Option(help="Who decides: a sharing policy's name, or a .py file; see docs/policies.md.")
    ] = "migrator",
) -> None:
    """Run a multi-tenant workload and report its goodput per window."""
    from migrator.commands.run import run_command  # noqa: PLC0415

    run_command(config, windows=windows, seed=seed, out=out, policy=policy)


@app.command(epilog="Example: [bold]migrator report runs/quickstart --json[/]")
def report(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    *,
    as_json: Json = False,
) -> None:
    """Show what a run came to: per window and tenant, and totals."""
    from migrator.commands.report import report_command  # noqa: PLC0415

    report_command(run, as_json=as_json)


@app.command(
    epilog="Examples: [bold]migrator plan configs/quickstart.yaml --window 1[/]   "
    "[bold]migrator plan --problem problem.json --explain 40[/]   "
    "[bold]migrator plan --problem problem.json --engine milp --solver cbc --json[/]"
)
def plan(
    config: Annotated[Path | None, typer.Argument(help="A run's config, to plan one of its windows.")] = None,
    *,
    window: Annotated[
        int | None, typer.Option(min=0, help="Which window of the config; those before it are planned too. Default: 0.")
    ] = None,
    problem: Annotated[Path | None, typer.Option(help="A problem file (JSON or YAML) instead of a config.")] = None,
    engine: Annotated[str | None, typer.Option(help=_ENGINES_HELP)] = None,
    solver: Annotated[
        str | None, typer.Option(help="milp and paper-ilp: highs (the default), cbc or gurobi (needs its package).")
    ] = None,
    configs: Annotated[
        str | None, typer.Option(help="paper-ilp: paper12, the paper's twelve configurations, or all (the default).")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds until the best plan so far is taken.")
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
    out: Annotated[Path | None, typer.Option(help="Also write the plan as JSON to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Solve one window offline and show its plan, without any GPU."""
    from migrator.commands.plan import Shown, plan_config_command, plan_problem_command  # noqa: PLC0415
    from migrator.run.planning import Solving  # noqa: PLC0415
    from planner.budget import EngineOptions  # noqa: PLC0415

    if (config is None) == (problem is None):
        raise typer.BadParameter("give either a CONFIG or --problem FILE")
    options = EngineOptions(solver=solver, configs=configs)
    solving = Solving(engine=engine, options=options, time_limit_s=time_limit)
    shown = Shown(out, as_json, explain, changes, floors)
    if problem is not None:
        if window is not None:
            raise typer.BadParameter("--window goes with a CONFIG; a problem file holds one window")
        plan_problem_command(problem, warm_start=warm_start, overhead_from=overhead_from, solving=solving, shown=shown)
    elif config is not None:
        if warm_start is not None or overhead_from is not None:
            raise typer.BadParameter("--warm-start and --overhead-from go with --problem; a config has its own")
        plan_config_command(config, window=window or 0, solving=solving, shown=shown)


@app.command(
    epilog="Examples: [bold]migrator whatif configs/quickstart.yaml --vary load=0.5,0.7,0.9 --vary slo_ms=x0.5,x1[/]   "
    "[bold]migrator whatif configs/quickstart.yaml --vary engine=physical,greedy --vary window=0,1 --plot grid.html[/]"
)
def whatif(
    config: Annotated[Path, typer.Argument(help="The config file (YAML); see docs/configuration.md.")],
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="May be given several times; all combinations are planned. KEY: gpu, tenants, slo_ms, load, batch, "
            "overhead_s, step_s, window, model or engine; for one tenant: TENANT.slo_ms, .load, .batch, .overhead_s. "
            "A value x1.5 is a factor. See docs/whatif.md.",
        ),
    ] = None,
    known_arrivals: Annotated[
        bool, typer.Option("--known-arrivals", help="Plan with the true arrivals (hindsight) instead of a forecast.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds a point until its best plan so far is taken.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many processes. Default: one a core.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the results to this file, .json or .csv.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw them in this HTML file; needs the extra plot.")] = None,
    as_json: Json = False,
) -> None:
    """Plan one window under every combination of changes and compare what is expected of the plans."""
    from migrator.commands.whatif import whatif_command  # noqa: PLC0415

    whatif_command(
        config,
        vary=vary or [],
        known_arrivals=known_arrivals,
        time_limit_s=time_limit,
        jobs=jobs,
        out=out,
        plot=plot,
        as_json=as_json,
    )


@app.command(
    epilog="Examples: [bold]migrator compare configs/quickstart.yaml[/]   "
    "[bold]migrator compare configs/w1.yaml configs/w2.yaml --policies migrator,static --windows 2 --segments 3[/]"
)
def compare(
    configs: Annotated[list[Path], typer.Argument(help="Config files (YAML); see docs/configuration.md.")],
    *,
    policies: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Which, separated by commas: names, or .py files; see docs/policies.md. The first is the reference.",
        ),
    ] = None,
    terms: Annotated[
        Literal["policy-only", "as-published"],
        typer.Option(help="Compare decisions alone, or policies with their own batching, forecast and switching."),
    ] = "policy-only",
    segments: Annotated[
        int, typer.Option(min=1, max=1000, help="How many pieces of the traces, one after the other.")
    ] = 1,
    windows: Annotated[int | None, typer.Option(min=1, help="Windows a segment, instead of the config's.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many processes. Default: one a core.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the results to this JSON file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw them in this HTML file; needs the extra plot.")] = None,
    as_json: Json = False,
) -> None:
    """Simulate the same requests under several sharing policies, and compare what each answers in time and right."""
    from migrator.commands.compare import compare_command  # noqa: PLC0415
    from migrator.compare import Fairness  # noqa: PLC0415

    compare_command(
        configs,
        policies=policies,
        fairness=Fairness(terms),
        n_segments=segments,
        windows=windows,
        jobs=jobs,
        out=out,
        plot=plot,
        as_json=as_json,
    )


@app.command(epilog="Example: [bold]migrator verify plan.json problem.json[/]")
def verify(
    plan: Annotated[Path, typer.Argument(help="A plan, as written by plan --problem --json or --out.")],
    problem: Annotated[Path, typer.Argument(help="The problem file that it answers.")],
    *,
    as_json: Json = False,
) -> None:
    """Check a plan against every rule and recompute its goodput, with code that no engine uses."""
    from migrator.commands.verify import verify_command  # noqa: PLC0415

    verify_command(plan, problem, as_json=as_json)


@gpu_app.command("models", epilog="Example: [bold]migrator gpu models[/]")
def gpu_models(*, as_json: Json = False) -> None:
    """List the GPU models of the catalogue with their profiles."""
    from migrator.commands.gpu import models_command  # noqa: PLC0415

    models_command(as_json=as_json)


@gpu_app.command("layouts", epilog="Example: [bold]migrator gpu layouts a100-40gb[/]")
def gpu_layouts(
    model: Annotated[str, typer.Argument(help="A GPU model, e.g. a100-80gb; see gpu models.")],
    *,
    every: Annotated[bool, typer.Option("--all", help="Every layout, not only the maximal ones.")] = False,
    profiles: Annotated[str | None, typer.Option(help="Comma-separated; default: the standard ones.")] = None,
    as_json: Json = False,
) -> None:
    """Show the layouts that a GPU model can take, derived from its placements."""
    from migrator.commands.gpu import layouts_command  # noqa: PLC0415

    layouts_command(model, every=every, profiles=profiles, as_json=as_json)


def main() -> None:
    """Run the command line; every error ends in one line and its exit code, never in a traceback.

    ``MIGRATOR_TRACEBACK=1`` shows the traceback of unforeseen errors, for bug reports.
    """
    listen(note)
    try:
        code = app(standalone_mode=False) or 0  # a command returns nothing; --version and --help their code
        if code == ExitCode.INTERRUPTED:
            complain("interrupted")  # typer has made the interrupt its code
    except typer.Exit as ending:
        code = ending.exit_code
    except BaseException as error:  # noqa: BLE001 - the last line of defence of the whole program
        code = _report(_cause(error))
    sys.exit(code)


def _cause(error: BaseException) -> BaseException:
    """The error itself, or the closed pipe that typer turned into an end of the program."""
    cause = error.__context__
    return cause if isinstance(error, SystemExit) and isinstance(cause, BrokenPipeError) else error


def _report(error: BaseException) -> int:
    """Report an error in one line and return its exit code."""
    if _is_usage(error):
        complain(error.format_message())  # type: ignore[attr-defined]
        return ExitCode.BAD_INPUT
    code = exit_code_of(error)
    if code is ExitCode.INTERRUPTED:
        complain("interrupted")
    elif isinstance(error, BrokenPipeError):
        # The reader has left: what is still in the buffer goes nowhere, without another complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    elif isinstance(error, MigratorError) or code is not ExitCode.FAILED:
        complain(str(error))
    elif isinstance(error, OSError):
        complain(f"{error.filename or 'input/output'}: {error.strerror or error}")
    elif os.environ.get("MIGRATOR_TRACEBACK"):
        raise error
    else:
        complain(f"unforeseen {type(error).__name__}: {error}; MIGRATOR_TRACEBACK=1 shows where, please report it")
    return code


def _is_usage(error: BaseException) -> bool:
    return hasattr(error, "format_message") and hasattr(error, "exit_code")
