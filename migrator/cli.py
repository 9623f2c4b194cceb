"""The command line: what users type, and the one place where errors become exit codes.

A command imports what it needs when it runs. Importing this module brings in neither numpy, numba nor PuLP, so
``--help`` and the checks of arguments are quick.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from signal import Signals
from typing import Annotated, Literal

import typer

from executor.compiled import listen
from migrator import __version__
from migrator.console import complain, let_streams_take_any_text, note
from migrator.errors import ExitCode, MigratorError, exit_code_of
from migrator.signals import terminations_interrupt
from planner.errors import PolicyError
from planner.solve import PAPER, PHYSICAL, default_engine, engine_names

app = typer.Typer(
    name="migrator",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Share a MIG GPU among continually retrained models so that goodput is highest.",
    epilog="Start with: [bold]migrator init quickstart[/], then [bold]migrator run quickstart.yaml[/]. "
    "Pages that this help names are printed by [bold]migrator docs PAGE[/].",
)
gpu_app = typer.Typer(invoke_without_command=True, help="GPU models, and what stands on a real GPU.")
app.add_typer(gpu_app, name="gpu")
forecast_app = typer.Typer(invoke_without_command=True, help="What forecasts of arrivals are worth.")
app.add_typer(forecast_app, name="forecast")

_ENGINES_HELP = "; ".join(
    f"{model}: {', '.join(engine_names(model))} (default {default_engine(model)})" for model in (PAPER, PHYSICAL)
)

LONGEST_NAME = 255
"""Bytes of a file's name, without its folders."""

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the config by its dotted path, e.g. tenants.NAME.slo_ms=100; may be given several times.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of tables.")]


def _print_version(value: bool) -> None:  # typer calls it by position, and by this name
    if value:
        typer.echo(f"migrator {__version__}")
        raise typer.Exit


def _nameable(path: Path | None) -> Path | None:
    """The path of what is to be made, if its names can be: the folders above it are made before it."""
    for name in () if path is None else path.parts:
        if (n_bytes := len(os.fsencode(name))) > LONGEST_NAME:
            raise typer.BadParameter(f"{name}: its name has {n_bytes} bytes; {LONGEST_NAME} at most are allowed")
    return path


@gpu_app.callback()
def _gpu(context: typer.Context) -> None:
    _help_without_command(context)


@forecast_app.callback()
def _forecast(context: typer.Context) -> None:
    _help_without_command(context)


def _help_without_command(context: typer.Context) -> None:
    """Print the help and end, as done: whoever names no command asks what there is."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - an option of its own, with a callback
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    _help_without_command(context)


@app.command(epilog="Examples: [bold]migrator init quickstart[/]   [bold]migrator init my-traces try[/]")
def init(
    example: Annotated[
        str,
        typer.Argument(
            help="quickstart, w1 to w16 (the paper's), live-cpu, live-gpu, my-traces, or problem (a problem file)."
        ),
    ] = "quickstart",
    folder: Annotated[Path, typer.Argument(callback=_nameable, help="Where to; made if it is not there.")] = Path(),
) -> None:
    """Write a commented example config, and the files that it reads, to begin with."""
    from migrator.commands.init import init_command  # noqa: PLC0415

    init_command(example, folder)


Index = Annotated[int, typer.Option("--index", "-i", min=0, help="Which GPU, as in nvidia-smi -i.")]
Driver = Annotated[
    Literal["auto", "nvml", "smi"],
    typer.Option("--backend", case_sensitive=False, help="How to speak to the driver; auto: NVML, else nvidia-smi."),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        callback=_nameable,
        help="Where is written which instances are ours. Default: the user's own.",
    ),
]
BesideOthers = Annotated[
    bool,
    typer.Option(
        "--beside-other-managers",
        help="Go on although another manager of MIG runs on this node and may undo it (real GPU only).",
    ),
]


@app.command(
    epilog="Examples: [bold]migrator run quickstart.yaml --windows 2 --out runs/try[/]   "
    "[bold]migrator run --resume runs/try[/]"
)
def run(
    config: Annotated[
        Path | None, typer.Argument(help="The config file (YAML); see docs/configuration.md. Not with --resume.")
    ] = None,
    *,
    windows: Annotated[int | None, typer.Option(min=1, help="How many of the config's windows, or more.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed, instead of the config's.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=_nameable, help="The run's folder, in which no other was begun. Default: runs/NAME, if it is free."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Who decides: a sharing policy's name, or a .py file; see docs/policies.md. Default: migrator."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="Simulate this policy, too, and say what was won over it, e.g. static."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds a plan until the best so far is taken; the run is then not repeatable."),
    ] = None,
    gpu: Annotated[
        Literal["sim", "nvml", "smi", "mps", "cpu"] | None,
        typer.Option(
            case_sensitive=False,
            help="A simulated GPU; a real one by NVML, nvidia-smi or MPS; or this machine's CPU; over the config.",
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option("--index", "-i", min=0, help="Which real GPU, as in nvidia-smi -i; over the config.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=_nameable,
            help="Where is written which instances are ours (real GPU only). See gpu list.",
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Take over what others made (real GPU only): what the plan does not want is destroyed as the run "
            "begins, the rest at its end.",
        ),
    ] = False,
    beside_other_managers: BesideOthers = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan the first window, print its nvidia-smi commands, and do nothing.")
    ] = False,
    assignments: Assignments = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Instead of a CONFIG: go on with the run in this folder, which was cut off."),
    ] = None,
) -> None:
    """Run a multi-tenant workload and report its goodput per window."""
    from migrator.commands.mig import Manner  # noqa: PLC0415
    from migrator.commands.run import OnGpu, run_command  # noqa: PLC0415

    if resume is not None:
        options: dict[str, object] = {"--windows": windows, "--seed": seed, "--out": out, "--time-limit": time_limit}
        options |= {"--set": assignments, "--gpu": gpu, "--index": index, "--dry-run": dry_run or None}
        given = [name for name, value in {"CONFIG": config, **options}.items() if value not in (None, [])]
        if given:
            raise typer.BadParameter(f"--resume goes on with a run as it was begun: without {', '.join(given)}")
        from migrator.commands.resume import resume_command  # noqa: PLC0415

        where = OnGpu(state=state, manner=Manner(adopt=adopt, beside_others=beside_other_managers))
        resume_command(resume, policy=policy, against=against, on_gpu=where)
        return
    if config is None:
        raise typer.BadParameter("give a CONFIG, or --resume DIR")

    run_command(
        config,
        windows=windows,
        seed=seed,
        out=out,
        policy=policy or "migrator",
        against=against,
        time_limit_s=time_limit,
        on_gpu=OnGpu(gpu, index, state, Manner(dry_run, adopt, beside_other_managers)),
        assignments=assignments or (),
    )


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
    epilog="Examples: [bold]migrator plan quickstart.yaml --window 1[/]   "
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
    problem_out: Annotated[
        Path | None, typer.Option(help="Also write the problem that was posed, for verify, to this JSON file.")
    ] = None,
    emit: Annotated[
        Literal["nvidia-smi", "mig-parted"] | None,
        typer.Option(
            case_sensitive=False,
            help="Print the plan for another tool instead: a shell script of commands by time, or a configuration.",
        ),
    ] = None,
    assignments: Assignments = None,
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
    if emit is not None and (as_json or explain is not None):
        raise typer.BadParameter("--emit takes the place of the report; it goes with neither --json nor --explain")
    shown = Shown(out, problem_out, as_json, explain, changes, floors, emit)
    if problem is not None:
        if window is not None:
            raise typer.BadParameter("--window goes with a CONFIG; a problem file holds one window")
        if assignments:
            raise typer.BadParameter("--set goes with a CONFIG; a problem file is changed itself")
        plan_problem_command(problem, warm_start=warm_start, overhead_from=overhead_from, solving=solving, shown=shown)
    elif config is not None:
        if warm_start is not None or overhead_from is not None:
            raise typer.BadParameter("--warm-start and --overhead-from go with --problem; a config has its own")
        plan_config_command(config, window=window or 0, solving=solving, shown=shown, assignments=assignments or ())


@app.command(
    epilog="Examples: [bold]migrator whatif quickstart.yaml --vary load=0.5,0.7,0.9 --vary slo_ms=x0.5,x1[/]   "
    "[bold]migrator whatif quickstart.yaml --find max:load --keep 'slo_attainment>=0.9'[/]   "
    "[bold]migrator whatif quickstart.yaml --vary engine=physical,greedy --vary window=0,1 --plot grid.html[/]"
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
    find: Annotated[
        str | None,
        typer.Option(
            metavar="max:KEY|min:KEY",
            help="Find the last value that keeps what --keep asks for: max:load, min:slo_ms, max:overhead_s, also of "
            "one tenant (max:NAME.load) or in a range (max:load=0.2..2), or min:gpu.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="What a plan has to promise, e.g. 'goodput>=0.8' or 'slo_attainment:NAME>=0.99'; with --find.",
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
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Plan one window under every combination of changes and compare what is expected of the plans."""
    from migrator.commands.whatif import whatif_command  # noqa: PLC0415

    whatif_command(
        config,
        vary=vary or [],
        find=find,
        keep=keep or (),
        known_arrivals=known_arrivals,
        time_limit_s=time_limit,
        jobs=jobs,
        out=out,
        plot=plot,
        assignments=assignments or (),
        as_json=as_json,
    )


@app.command(
    epilog="Examples: [bold]migrator compare quickstart.yaml[/]   "
    "[bold]migrator compare w1.yaml w2.yaml --policies migrator,static --windows 2 --segments 3[/]"
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
        typer.Option(
            case_sensitive=False,
            help="Compare decisions alone, or policies with their own batching, forecast and switching.",
        ),
    ] = "policy-only",
    segments: Annotated[
        int, typer.Option(min=1, max=1000, help="How many pieces of the traces, one after the other.")
    ] = 1,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1, help="Seconds from the begin of a segment to the next. Default: one begins where one ends."
        ),
    ] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="Windows a segment, instead of the config's.")] = None,
    load: Annotated[float | None, typer.Option(help="The load, instead of the config's.")] = None,
    profiles: Annotated[
        Path | None, typer.Option(help="A table of service profiles (CSV), instead of the config's.")
    ] = None,
    assignments: Assignments = None,
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
        stride_s=stride,
        windows=windows,
        load=load,
        profiles=profiles,
        assignments=assignments or (),
        jobs=jobs,
        out=out,
        plot=plot,
        as_json=as_json,
    )


@app.command(
    epilog="Examples: [bold]migrator verify plan.json problem.json --max-gap 0.01[/]   "
    "[bold]migrator verify runs/quickstart --trust-bound[/]"
)
def verify(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN|RUN", help="A plan, as written by plan --json or --out; or a run's folder.")
    ],
    problem: Annotated[
        Path | None, typer.Argument(help="The problem file that the plan answers; plan --problem-out writes one.")
    ] = None,
    *,
    window: Annotated[int | None, typer.Option(min=0, help="Of a run: only this window's plan.")] = None,
    trust_bound: Annotated[
        bool, typer.Option("--trust-bound", help="Take the bound that a plan claims without a proof.")
    ] = False,
    max_gap: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="G", help="Fail beyond this proven gap (with --trust-bound: claimed gap); 0.01 is 1 %."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a plan, or those of a run, against every rule and recompute goodput, with code that no engine uses."""
    if (problem is None) is not plan.is_dir():
        raise typer.BadParameter("give a PLAN and the PROBLEM that it answers, or a RUN's folder alone")
    from migrator.commands.verify import Demands, verify_command, verify_run_command  # noqa: PLC0415

    demands = Demands(trust_bound, max_gap)
    if problem is None:
        verify_run_command(plan, window=window, demands=demands, as_json=as_json)
    elif window is not None:
        raise typer.BadParameter("--window goes with a RUN; a plan file holds one window")
    else:
        verify_command(plan, problem, demands=demands, as_json=as_json)


@app.command(
    epilog="Examples: [bold]migrator profile mlp cnn --gpu cpu-1.6-in-7 --coarse[/]   "
    "[bold]migrator profile resnet50:cifar10 my_module:make_model:digits --gpu nvml --processes 1,2,3[/]"
)
def profile(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL[:BENCHMARK]…",
            help="Names of the catalogue, or module:callable; with whose samples. See docs/profile.md.",
        ),
    ],
    *,
    gpu: Annotated[
        str,
        typer.Option(
            help="auto, nvml or smi for a GPU in MIG mode; mps-a100-80gb-in-7 for shares by MPS, cpu-1.6-in-7 for this "
            "machine's CPU, cut so."
        ),
    ] = "auto",
    index: Index = 0,
    out: Annotated[Path, typer.Option(help="The table (CSV), for profiles: in a config.")] = Path("profiles.csv"),
    coarse: Annotated[
        bool, typer.Option("--coarse", help="Quickly: fewer batches, each for less long; some profiles are computed.")
    ] = False,
    profiles: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Only these profiles. Default: the standard ones.")
    ] = None,
    batches: Annotated[
        str | None, typer.Option(metavar="N,…", help="Batch sizes. Default: 1,2,4,8,16,32; coarse: 1,8,32.")
    ] = None,
    processes: Annotated[str, typer.Option(metavar="N,…", help="Processes in an instance.")] = "1,2",
    seconds: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="How long each stage is measured. Default: 3; coarse: 0.75.")
    ] = None,
    training: Annotated[
        Literal["naive", "replay"],
        typer.Option(case_sensitive=False, help="How a retraining goes through its samples."),
    ] = "replay",
    sample: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One input for a model of your own that has no BENCHMARK.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", callback=_nameable, help="Where data sets lie. See docs/learning.md.")
    ] = None,
    state: State = None,
    beside_other_managers: BesideOthers = False,
) -> None:
    """Measure how fast models answer, learn and start on this machine, and write the table that configs take."""
    from migrator.commands.profile import Inputs, Wanted, profile_command  # noqa: PLC0415

    wanted = Wanted(
        profiles=None if profiles is None else tuple(filter(None, (name.strip() for name in profiles.split(",")))),
        batches=None if batches is None else _counts("--batches", batches),
        processes=_counts("--processes", processes),
        seconds=seconds,
        training=training,
        is_coarse=coarse,
    )
    profile_command(
        models,
        wanted,
        gpu=gpu,
        index=index,
        state=state,
        inputs=Inputs(sample, data),
        out=out,
        beside_others=beside_other_managers,
    )


def _counts(option: str, text: str) -> tuple[int, ...]:
    """The numbers that the text lists."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        raise typer.BadParameter(f"{option} {text}: whole numbers from 1 to 4096, separated by commas, are needed")
    return tuple(map(int, parts))


@app.command(epilog="Example: [bold]migrator fidelity runs/live-cpu runs/live-cpu-2 runs/live-cpu-3[/]")
def fidelity(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of live runs; medians are taken.")],
    *,
    check: Annotated[bool, typer.Option("--check", help="End with 1 unless the simulation is near enough.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate the requests of live runs with what these recorded, and tell how near that comes to what was counted."""
    from migrator.commands.fidelity import fidelity_command  # noqa: PLC0415

    fidelity_command(runs, must_be_near=check, as_json=as_json)


@app.command(epilog="Example: [bold]migrator docs configuration[/]")
def docs(
    page: Annotated[
        str | None, typer.Argument(help="A page's name, such as configuration for docs/configuration.md.")
    ] = None,
) -> None:
    """Print a page of the documentation, or say which there are."""
    from migrator.commands.docs import docs_command  # noqa: PLC0415

    docs_command(page)


@gpu_app.command("models", epilog="Examples: [bold]migrator gpu models[/]   [bold]migrator gpu models A100-80GB[/]")
def gpu_models(
    models: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]…", help="Only these.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """List the GPU models of the catalogue with their profiles."""
    from migrator.commands.gpu import models_command  # noqa: PLC0415

    models_command(models or [], as_json=as_json)


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


DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the nvidia-smi commands, and change nothing.")]
LayoutText = Annotated[str, typer.Argument(metavar="LAYOUT", help="Placements, e.g. 2g.10gb@0,3g.20gb@4.")]


@gpu_app.command("list", epilog="Examples: [bold]migrator gpu list[/]   [bold]migrator gpu list --index 1 --json[/]")
def gpu_list(
    *,
    index: Annotated[
        int | None, typer.Option("--index", "-i", min=0, help="Only this GPU, as in nvidia-smi -i. Default: all.")
    ] = None,
    backend: Driver = "auto",
    state: State = None,
    as_json: Json = False,
) -> None:
    """List the instances on real GPUs: ours and others', with their processes."""
    from migrator.commands.mig import list_command  # noqa: PLC0415

    list_command(index, backend, state, as_json=as_json)


@gpu_app.command("diff", epilog="Example: [bold]migrator gpu diff 2g.10gb@0,3g.20gb@4[/]")
def gpu_diff(
    layout: LayoutText, *, index: Index = 0, backend: Driver = "auto", state: State = None, as_json: Json = False
) -> None:
    """Show what would have to change on a real GPU for a layout to stand."""
    from migrator.commands.mig import Where, diff_command  # noqa: PLC0415

    diff_command(layout, Where(index, backend, state), as_json=as_json)


@gpu_app.command("apply", epilog="Example: [bold]migrator gpu apply 2g.10gb@0,3g.20gb@4 --dry-run[/]")
def gpu_apply(
    layout: LayoutText,
    *,
    index: Index = 0,
    backend: Driver = "auto",
    state: State = None,
    dry_run: DryRun = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over what others made, too; it may be destroyed.")
    ] = False,
    beside_others: BesideOthers = False,
) -> None:
    """Bring a real GPU to a layout: only what differs changes, and others' instances stay."""
    from migrator.commands.mig import Manner, Where, apply_command  # noqa: PLC0415

    apply_command(layout, Where(index, backend, state), Manner(dry_run, adopt, beside_others))


@gpu_app.command("clear", epilog="Example: [bold]migrator gpu clear --dry-run[/]")
def gpu_clear(
    *,
    index: Index = 0,
    backend: Driver = "auto",
    state: State = None,
    dry_run: DryRun = False,
    beside_others: BesideOthers = False,
) -> None:
    """Take away every instance of ours on a real GPU."""
    from migrator.commands.mig import Manner, Where, clear_command  # noqa: PLC0415

    clear_command(Where(index, backend, state), Manner(dry_run, beside_others=beside_others))


@gpu_app.command("restore", epilog="Example: [bold]migrator gpu restore --dry-run[/]")
def gpu_restore(
    *,
    index: Index = 0,
    backend: Driver = "auto",
    state: State = None,
    dry_run: DryRun = False,
    beside_others: BesideOthers = False,
) -> None:
    """Bring back the layout that was last asked for on a real GPU, as after a reboot."""
    from migrator.commands.mig import Manner, Where, restore_command  # noqa: PLC0415

    restore_command(Where(index, backend, state), Manner(dry_run, beside_others=beside_others))


@app.command(epilog="Example: [bold]migrator doctor[/]")
def doctor(*, backend: Driver = "auto", state: State = None, as_json: Json = False) -> None:
    """Check whether a run on a real GPU could work on this machine, and say what to do."""
    from migrator.commands.doctor import doctor_command  # noqa: PLC0415

    doctor_command(backend, state, as_json=as_json)


@gpu_app.command("watch", epilog="Example: [bold]migrator gpu watch --json[/]")
def gpu_watch(
    *,
    index: Index = 0,
    backend: Driver = "auto",
    state: State = None,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Read everything so often. Default: when the driver tells of a change."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print what stands on a real GPU, then a line whenever that changes, until Ctrl-C."""
    if every is not None and not 0.1 <= every <= 86_400:
        raise typer.BadParameter(f"--every is {every:g}; 0.1 to 86400 seconds are allowed")
    from migrator.commands.mig import Where  # noqa: PLC0415
    from migrator.commands.watch import watch_command  # noqa: PLC0415

    watch_command(Where(index, backend, state), every_s=every, as_json=as_json)


@gpu_app.command("assert", epilog="Example: [bold]migrator gpu assert 2g.10gb@0,3g.20gb@4[/]")
def gpu_assert(layout: LayoutText, *, index: Index = 0, backend: Driver = "auto") -> None:
    """End with 0 if just this layout stands on a real GPU, else with 1 and what differs."""
    from migrator.commands.mig import Where, assert_command  # noqa: PLC0415

    assert_command(layout, Where(index, backend))


@gpu_app.command("export", epilog="Example: [bold]migrator gpu export --format mig-parted > config.yaml[/]")
def gpu_export(
    *,
    index: Index = 0,
    backend: Driver = "auto",
    form: Annotated[
        Literal["mig-parted", "nvidia-smi"], typer.Option("--format", help="mig-parted's file, or commands.")
    ] = "mig-parted",
) -> None:
    """Print what stands on a real GPU for other tools."""
    from migrator.commands.mig import Where, export_command  # noqa: PLC0415

    export_command(Where(index, backend), form)


Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE…", help="Shipped traces by name, trace files, or folders of past runs."),
]
Seconds = Annotated[
    str | None, typer.Option(metavar="FROM:TO", help="Only these seconds of each source. Default: all of them.")
]


@forecast_app.command(
    "eval",
    epilog="Examples: [bold]migrator forecast eval azure-conv azure-code[/]   "
    "[bold]migrator forecast eval runs/quickstart --method ewma --plot eval.html[/]",
)
def forecast_eval(
    sources: Sources,
    *,
    methods: Annotated[
        list[str] | None, typer.Option("--method", help="Only this one; may be given several times. Default: all.")
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option("--model", metavar="DIR", help="A fitted model beside them; may be given several times."),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=0.999,
            show_default=False,
            help="The part at the end that is forecast. Default: the last third.",
        ),
    ] = 1 / 3,
    window: Annotated[int, typer.Option(min=1, max=100_000, help="How many seconds each forecast goes ahead.")] = 200,
    history: Annotated[int, typer.Option(min=1, max=100_000, help="Seconds that a forecaster sees before it.")] = 600,
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="Seconds from one forecast to the next. Default: a tenth of the window, or more."),
    ] = None,
    seconds: Seconds = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw them in this HTML file; needs the extra plot.")] = None,
    as_json: Json = False,
) -> None:
    """Judge forecasters on traces and past runs: forecasts at rolling origins, beside what then came."""
    from migrator.commands.forecast import eval_command  # noqa: PLC0415
    from migrator.evaluation import Terms  # noqa: PLC0415

    terms = Terms(window_s=window, history_s=history, share=share, stride_s=stride)
    eval_command(
        sources,
        terms,
        methods=methods or (),
        models=models or (),
        seconds=_stretch(seconds),
        plot=plot,
        as_json=as_json,
    )


@forecast_app.command(
    "fit",
    epilog="Examples: [bold]migrator forecast fit nhits azure-conv azure-code --out models/nhits[/]   "
    "[bold]migrator forecast fit nhits azure-conv azure-code --out models/nhits --updates 4000 --resume[/]",
)
def forecast_fit(
    method: Annotated[Literal["informer", "nhits"], typer.Argument(help="Which network.")],
    sources: Sources,
    *,
    out: Annotated[Path, typer.Option(callback=_nameable, help="The model's folder.")],
    updates: Annotated[int, typer.Option(min=1, max=10**7, help="Steps of the descent.")] = 1000,
    share: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1.0,
            show_default=False,
            help="The part at each source's beginning. Default: the first two thirds.",
        ),
    ] = 2 / 3,
    window: Annotated[int, typer.Option(min=1, max=100_000, help="How many seconds a forecast goes ahead.")] = 200,
    history: Annotated[int, typer.Option(min=16, max=100_000, help="Seconds that the network reads.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and batches.")] = 0,
    seconds: Seconds = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a network on traces or past runs, for forecast.model in a config; needs the extra neural."""
    from forecaster.neural import Recipe  # noqa: PLC0415
    from migrator.commands.forecast import Fitting, fit_command  # noqa: PLC0415

    recipe = Recipe(method, window_steps=window, history_steps=history, seed=seed)
    fitting = Fitting(recipe, share, updates, out, resume)
    fit_command(sources, fitting, seconds=_stretch(seconds), as_json=as_json)


@forecast_app.command("show", epilog="Example: [bold]migrator forecast show quickstart.yaml --window 1[/]")
def forecast_show(
    config: Annotated[Path, typer.Argument(help="The config file (YAML); see docs/configuration.md.")],
    *,
    window: Annotated[int, typer.Option(min=0, help="Which window of the config.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Also draw it in this HTML file; needs the extra plot.")] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Show the forecast with which a window is planned, beside what then comes."""
    from migrator.commands.forecast import show_command  # noqa: PLC0415

    show_command(config, window=window, assignments=assignments or (), plot=plot, as_json=as_json)


def _stretch(text: str | None) -> tuple[int, int] | None:
    """The seconds that ``FROM:TO`` means."""
    if text is None:
        return None
    parts = text.split(":")
    if not (len(parts) == 2 and all(part.isascii() and part.isdecimal() for part in parts)):
        raise typer.BadParameter(f"--seconds {text}: FROM:TO is needed, such as 0:3600")
    first, end = map(int, parts)
    if end <= first:
        raise typer.BadParameter(f"--seconds {text}: TO must be more than FROM")
    return first, end


def main() -> None:
    """Run the command line; every error ends in one line and its exit code, never in a traceback.

    ``MIGRATOR_TRACEBACK=1`` shows the traceback of unforeseen errors, for bug reports, and of a policy's own.
    """
    let_streams_take_any_text()
    listen(note)
    with terminations_interrupt() as received:
        try:
            code = app(standalone_mode=False) or 0  # a command returns nothing; --version and --help their code
            if sys.stdout is not None:
                sys.stdout.flush()
        except typer.Exit as ending:
            code = ending.exit_code
        except BaseException as error:  # noqa: BLE001 - the last line of defence of the whole program
            code = _report(_cause(error))
        if code == ExitCode.INTERRUPTED:  # by our own table, or by typer, which makes an interrupt its code
            code = _interrupted(received)
    sys.exit(code)


def _interrupted(received: list[Signals]) -> int:
    """Say what ended the program, and return the exit code that shells expect: 128 and the signal's number."""
    by = f" by {received[0].name}" if received else ""
    complain(f"interrupted{by}")
    return 128 + received[0] if received else ExitCode.INTERRUPTED


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
        return code
    if isinstance(error, BrokenPipeError):
        _forget_output()
        return ExitCode.DONE
    if isinstance(error, PolicyError) and error.__cause__ is not None and os.environ.get("MIGRATOR_TRACEBACK"):
        raise error
    if isinstance(error, OSError):
        _complain_of_system(error)
    elif isinstance(error, MigratorError) or code is not ExitCode.FAILED:
        complain(str(error))
    elif isinstance(error, MemoryError):
        complain("out of memory")
    elif os.environ.get("MIGRATOR_TRACEBACK"):
        raise error
    else:
        complain(f"unforeseen {type(error).__name__}: {error}; MIGRATOR_TRACEBACK=1 shows where, please report it")
    return code


def _complain_of_system(error: OSError) -> None:
    """Name what the system refused. All files of ours are named where they are written; what is not is an output."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    is_long = error.errno == errno.ENAMETOOLONG
    allowed = f"; {LONGEST_NAME} bytes at most are allowed, with all folders 4095" if is_long else ""
    named = error.filename or ("standard output" if is_full else "input/output")
    complain(f"{named}: {error.strerror or error}{allowed}")
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """Let what is still in the buffer go nowhere, without another complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_usage(error: BaseException) -> bool:
    return hasattr(error, "format_message") and hasattr(error, "exit_code")
