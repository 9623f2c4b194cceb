"""``migrator cluster``: which tenant on which GPU, the check of such an answer, its simulated runs, and rivals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from migrator.cluster.answer import ClusterPlan, PlanFile, plan_to_json, read_plan_file
from migrator.cluster.fewest import Fewest, numbers_of, require_known
from migrator.cluster.planning import check_cluster, plan_cluster, plan_rival
from migrator.cluster.posing import Valuing, first_window
from migrator.cluster.simulation import (
    Answered,
    GpuRun,
    carry_out,
    gpu_configs,
    likeness,
    outcome_of,
    require_simulated,
    total,
)
from migrator.commands.options import RUNS, Assignments, ConfigFile, Jobs, Json, nameable, with_examples
from migrator.config.cluster import ClusterConfig, read_cluster
from migrator.config.reading import config_yaml, files_in
from migrator.errors import GridError, InfeasibleError, MigratorError, OutputError, RunFolderError
from migrator.log.runlog import free_run_folder
from migrator.terminal.console import counted, escape, note, output, print_json, program, progress, warn
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.terminal.parallel import n_cores
from migrator.views.as_json import sweep_to_json
from migrator.views.cluster import (
    Contender,
    cluster_outcome_to_json,
    contenders_to_json,
    print_cluster_outcome,
    print_cluster_plan,
    print_contenders,
)
from migrator.views.progress import GridView
from migrator.views.whatif import print_sweep, trial_text
from migrator.whatif.grid import Grid, Variation
from migrator.whatif.search import N_HALVINGS, read_conditions
from migrator.whatif.sweep import Sweep
from planner.cluster.rivals import RIVALS
from workloads.serving.tally import Totals

OURS = "ours"
"""What the planner of the cluster is called among rivals."""

PLAN_FILE, SUMMARY_FILE = "plan.json", "summary.json"
"""Beside the runs' folders."""

Windows = Annotated[int | None, typer.Option(min=1, help="How many windows, instead of the config's.")]
Out = Annotated[Path | None, typer.Option(help="Also write the answer as JSON to this file.")]


@with_examples("cluster plan cluster-6.yaml --out plan.json", "cluster plan cluster-6.yaml --from plan.json --json")
def plan_command(
    config: ConfigFile,
    *,
    out: Out = None,
    begun: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="An answer in force: a tenant moves only where that pays."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=nameable,
            help="Also write each GPU's config, for run, into this new folder.",
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(metavar="min:gpus", help="Find how few of the config's GPUs, the first of them, keep --keep."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help="With --find: what runs have to keep, e.g. 'goodput>=0.7'."),
    ] = None,
    plans_only: Annotated[
        bool, typer.Option("--plans-only", help="With --find: what plans promise, at once; nothing is simulated.")
    ] = False,
    jobs: Jobs = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Print which tenants each GPU of a cluster should have, and how near that is to the best.

    Raises:
        MigratorError: A file cannot be used.
        PlannerError: The answer to begin from cannot be read.
        InfeasibleError: A tenant is on no GPU; the answer is printed (and written) first.
    """
    if find is None and (keep or plans_only):
        raise GridError("--keep and --plans-only are for --find, which is missing")
    if find is not None and (begun is not None or write is not None):
        raise GridError("--find looks for a number of GPUs; it goes with neither --from nor --write")
    cluster, n = read_cluster(config, assignments or ()), jobs or n_cores()
    if out is not None:
        inputs = [config, *files_in(cluster.run), *([] if begun is None else [begun])]
        require_writable("--out", out, Kind.DOCUMENT, *inputs)
    if write is not None:
        _require_new(write, "--write")
    if find is not None:
        _find(cluster, config, find, keep or (), n, plans_only=plans_only, out=out, as_json=as_json)
        return
    file = None if begun is None else read_plan_file(begun)
    with _valuing(cluster, config, n) as values:
        plan = _planned(cluster, values, file)
        configs = gpu_configs(cluster, values.window, plan)
    document = plan_to_json(cluster, plan)
    if out is not None:
        write_output("--out", out, _text(document), Kind.DOCUMENT)
    if write is not None:
        _make(write, "--write")
        for name, own in configs.items():
            write_output("--write", write / f"{name}.yaml", config_yaml(own, write), None)
    if as_json:
        print_json(document)
    else:
        print_cluster_plan(cluster, plan, output())
        if write is not None:
            output().print(f"Written: {counted(len(configs), 'config')} in {escape(str(write))}")
    _require_placed(plan, config)


def _text(document: dict[str, object]) -> str:
    return json.dumps(document, indent=2, allow_nan=False)


@contextmanager
def _valuing(cluster: ClusterConfig, config: Path, n_processes: int) -> Iterator[Valuing]:
    """Processes that value sets of the cluster's tenants, each forecast before."""
    with progress().status(f"forecasting {counted(len(cluster.run.tenants), 'tenant')}"):
        window = first_window(cluster, str(config), n_processes)
    with Valuing(window, n_processes) as values:
        yield values


def _planned(cluster: ClusterConfig, values: Valuing, begun: PlanFile | None = None) -> ClusterPlan:
    with progress().status(f"looking for who goes on which of {counted(len(cluster.gpus), 'GPU')}"):
        return plan_cluster(cluster, values, None if begun is None else begun.sets)


def _require_placed(plan: ClusterPlan, config: Path) -> None:
    if plan.shortfall is not None:
        raise InfeasibleError(f"{config}: {plan.shortfall}")


def _require_new(folder: Path, option: str) -> None:
    """Refuse a folder that holds anything.

    Raises:
        RunFolderError: It does, or cannot be read.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise RunFolderError(f"{option} {folder} is not empty; another folder is needed, nothing is overwritten")
    except OSError as error:
        raise RunFolderError(f"{option} {folder}: cannot be read: {error.strerror or error}") from None


def _make(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{option} {folder}: cannot be made: {error.strerror or error}") from None


def _find(
    cluster: ClusterConfig,
    config: Path,
    find: str,
    keep: Sequence[str],
    n_processes: int,
    *,
    plans_only: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print how few GPUs keep the conditions.

    Raises:
        GridError: Something else is to be found, or what is to be kept is no condition.
        InfeasibleError: All of the GPUs do not keep it; the table is printed (and written) first.
    """
    require_known(find)
    if not plans_only:
        require_simulated(cluster, str(config))
    conditions = read_conditions(keep, [tenant.name for tenant in cluster.run.tenants])
    search, console = numbers_of(cluster), progress()
    with _valuing(cluster, config, n_processes) as values:
        fewest = Fewest(cluster, values, n_processes)
        with GridView(len(search.choices) + N_HALVINGS, n_processes, console) as view:
            view.checked()
            fewest.planned = view.planned
            found = fewest.find(conditions)
        confirmed = None
        if not plans_only:
            with console.status("simulating") as status:
                confirmed = fewest.confirm(
                    found,
                    lambda trial: console.print(f"simulated: {escape(trial_text(trial, conditions))}", soft_wrap=True),
                    lambda n_done: status.update(f"simulating: {counted(n_done, 'run')} of a fleet done"),
                )
    grid = Grid((Variation(found.choices),))
    sweep = Sweep(cluster.run.name, cluster.run.forecast.method, grid, found.outcomes)
    document = sweep_to_json(sweep, found, confirmed)
    if out is not None:
        write_output("--out", out, _text(document), Kind.DOCUMENT)
    if as_json:
        print_json(document)
    else:
        print_sweep(sweep, output(), found, confirmed)
    if (found if confirmed is None else confirmed).holds is None:
        kept = " and ".join(map(str, conditions))
        raise InfeasibleError(f"--find {find}: not even all {counted(len(cluster.gpus), 'GPU')} keep {kept}")


@with_examples("cluster verify plan.json cluster-6.yaml")
def verify_command(
    plan: Annotated[Path, typer.Argument(metavar="FILE", help="An answer, as cluster plan --out or --json writes it.")],
    config: ConfigFile,
    *,
    jobs: Jobs = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Print whether an answer keeps every rule, and is worth what it says; plans and bound are made anew.

    Raises:
        MigratorError: The answer is wrong; ends with exit code 2.
        PlannerError: A file cannot be read.
    """
    cluster, file = read_cluster(config, assignments or ()), read_plan_file(plan)
    with _valuing(cluster, config, jobs or n_cores()) as values, progress().status("planning every GPU anew"):
        broken = check_cluster(cluster, values, file)
    if as_json:
        print_json({"schema": 1, "valid": not broken, "violations": list(broken)})
    elif not broken:
        output().print(f"{escape(str(plan))} keeps every rule; worth and bound are what it says")
    if broken:
        raise MigratorError(f"{plan}: {broken[0]}{f' (and {len(broken) - 1} more)' if len(broken) > 1 else ''}")


@with_examples("cluster run cluster-6.yaml --windows 2", "cluster run cluster-6.yaml --out runs/try --json")
def run_command(
    config: ConfigFile,
    *,
    windows: Windows = None,
    out: Annotated[
        Path | None,
        typer.Option(callback=nameable, help="The folder of all runs, a new one. Default: runs/NAME, if it is free."),
    ] = None,
    jobs: Jobs = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Plan a cluster, then simulate each GPU as an ordinary run in a folder of its own, and add up what they answer.

    Raises:
        MigratorError: A file cannot be used, a GPU is no simulated one, or the folder is not free.
        InfeasibleError: A tenant is on no GPU; nothing is run then.
    """
    cluster, n = read_cluster(config, assignments or (), windows=windows), jobs or n_cores()
    require_simulated(cluster, str(config))
    if out is not None:
        _require_new(out, "--out")
    with _valuing(cluster, config, n) as values:
        plan = _planned(cluster, values)
        configs = gpu_configs(cluster, values.window, plan)
    _require_placed(plan, config)
    folder = out or free_run_folder(RUNS, cluster.run.name)
    _make(folder, "--out")
    write_output("--out", folder / PLAN_FILE, _text(plan_to_json(cluster, plan)), None)
    runs = [GpuRun(own, str(config), folder / name) for name, own in configs.items()]
    answered = dict(zip(configs, _carried_out(runs, n, folder), strict=True))
    found = outcome_of(cluster, plan, answered)
    document = cluster_outcome_to_json(cluster, plan, found)
    write_output("--out", folder / SUMMARY_FILE, _text(document), None)
    if as_json:
        print_json(document)
        return
    print_cluster_outcome(cluster.run.name, found, output())
    first = next(iter(configs))
    output().print(f"\nThe runs are in [bold]{escape(str(folder))}[/]. To look further:")
    output().print(f"  {escape(program())} report {escape(str(folder / first))}", soft_wrap=True)
    output().print(f"  {escape(program())} cluster verify {escape(f'{folder / PLAN_FILE} {config}')}", soft_wrap=True)


def _carried_out(runs: Sequence[GpuRun], n_processes: int, folder: Path | None = None) -> list[Answered]:
    with progress().status(f"simulating 0 of {counted(len(runs), 'run')}") as status:
        try:
            return carry_out(
                runs, n_processes, lambda done: status.update(f"simulating {done:,} of {counted(len(runs), 'run')}")
            )
        except KeyboardInterrupt:
            if folder is not None:
                note(f"cut off; what is done is in {folder}, and {program()} run --resume {folder}/GPU ends a run")
            raise


@with_examples("cluster compare cluster-6.yaml --plans-only", "cluster compare cluster-6.yaml --policies ours,spread")
def compare_command(
    config: ConfigFile,
    *,
    policies: Annotated[
        str, typer.Option(metavar="NAME,…", help=f"Which of {OURS}, {', '.join(RIVALS)}, separated by commas.")
    ] = ",".join((OURS, *RIVALS)),
    plans_only: Annotated[
        bool, typer.Option("--plans-only", help="What plans are worth; nothing is simulated.")
    ] = False,
    windows: Windows = None,
    jobs: Jobs = None,
    out: Out = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Compare who goes where under several policies: what plans are worth, and what simulated runs answer.

    Raises:
        MigratorError: A policy is not known, a file cannot be used, or a GPU is no simulated one.
        InfeasibleError: A tenant is on no GPU whoever decides.
    """
    names = _policies(policies)
    cluster, n = read_cluster(config, assignments or (), windows=windows), jobs or n_cores()
    if out is not None:
        require_writable("--out", out, Kind.DOCUMENT, config, *files_in(cluster.run))
    if not plans_only:
        require_simulated(cluster, str(config))
    with _valuing(cluster, config, n) as values:
        ours = _planned(cluster, values)
        _require_placed(ours, config)
        plans = {name: ours if name == OURS else plan_rival(cluster, values, name, ours.found.bound) for name in names}
        runs = {name: list(gpu_configs(cluster, values.window, plan).values()) for name, plan in plans.items()}
    requests: dict[str, Totals | None] = dict.fromkeys(names)
    if not plans_only:
        each = {likeness(own): own for configs in runs.values() for own in configs}
        done = _carried_out([GpuRun(own, str(config)) for own in each.values()], n)
        by_run = dict(zip(each, done, strict=True))
        arrivals = {name: sum(one.arrivals for one in own) for run in done for name, own in run.items()}
        for name, configs in runs.items():
            requests[name] = _of_all([by_run[likeness(own)] for own in configs], arrivals)
    found = [Contender(name, plan, requests[name], ours) for name, plan in plans.items()]
    if lost := sorted({name for one in found for name in one.plan.unserved}):
        warn(f"not served under every policy, and counted as dropped there: {', '.join(lost)}")
    document = contenders_to_json(cluster, found)
    if out is not None:
        write_output("--out", out, _text(document), Kind.DOCUMENT)
    if as_json:
        print_json(document)
    else:
        print_contenders(cluster.run.name, found, output())


def _of_all(answered: Sequence[Answered], arrivals: dict[str, int]) -> Totals:
    """The outcomes of all tenants' requests; those of tenants without a run are dropped."""
    missing = sum(n for name, n in arrivals.items() if not any(name in own for own in answered))
    return total(answered) + Totals(arrivals=missing, dropped=missing)


def _policies(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (OURS, *RIVALS):
            raise MigratorError(f"--policies: {name!r} is none; those are {', '.join((OURS, *RIVALS))}")
        if names.count(name) > 1:
            raise MigratorError(f"--policies: {name!r} is given twice")
    return names
