"""``migrator cluster``: which tenant on which GPU, and the check of such an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from migrator.cluster.answer import ClusterPlan, plan_to_json, read_plan_file
from migrator.cluster.planning import check_cluster, plan_cluster
from migrator.cluster.posing import Valuing, first_window
from migrator.commands.options import Assignments, ConfigFile, Jobs, Json, with_examples
from migrator.config.cluster import ClusterConfig, read_cluster
from migrator.config.reading import files_in
from migrator.errors import InfeasibleError, MigratorError
from migrator.terminal.console import counted, escape, output, print_json, progress
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.terminal.parallel import n_cores


@with_examples("cluster plan cluster-6.yaml --out plan.json", "cluster plan cluster-6.yaml --from plan.json --json")
def plan_command(
    config: ConfigFile,
    *,
    out: Annotated[Path | None, typer.Option(help="Also write the answer as JSON to this file.")] = None,
    begun: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="An answer in force: a tenant moves only where that pays."),
    ] = None,
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
    cluster = read_cluster(config, assignments or ())
    if out is not None:
        inputs = [config, *files_in(cluster.run), *([] if begun is None else [begun])]
        require_writable("--out", out, Kind.DOCUMENT, *inputs)
    file, n = None if begun is None else read_plan_file(begun), jobs or n_cores()
    with progress().status("forecasting each tenant"):
        window = first_window(cluster, str(config), n)
    looking = progress().status(f"looking for who goes on which of {counted(len(cluster.gpus), 'GPU')}")
    with looking, Valuing(window, n) as values:
        plan = plan_cluster(cluster, values, file)
    document = plan_to_json(cluster, plan)
    if out is not None:
        write_output("--out", out, json.dumps(document, indent=2, allow_nan=False), Kind.DOCUMENT)
    if as_json:
        print_json(document)
    else:
        _print(cluster, plan)
    if plan.found.unplaced:
        first = plan.found.unplaced[0]
        raise InfeasibleError(f"{config}: tenant {first.tenant} is on no GPU: {first.reason}")


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
    cluster, file, n = read_cluster(config, assignments or ()), read_plan_file(plan), jobs or n_cores()
    with progress().status("planning every GPU anew"), Valuing(first_window(cluster, str(config), n), n) as values:
        broken = check_cluster(cluster, values, file)
    if as_json:
        print_json({"schema": 1, "valid": not broken, "violations": list(broken)})
    elif not broken:
        output().print(f"{escape(str(plan))} keeps every rule; worth and bound are what it says")
    if broken:
        raise MigratorError(f"{plan}: {broken[0]}{f' (and {len(broken) - 1} more)' if len(broken) > 1 else ''}")


def _print(cluster: ClusterConfig, plan: ClusterPlan) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("GPU", "node", "tenants", "worth", "expected"):
        table.add_column(heading, justify="right" if heading in ("worth", "expected") else "left", overflow="fold")
    rows = zip(cluster.gpus, plan.found.sets, plan.found.worths, plan.expected, strict=True)
    for gpu, members, worth, expected in rows:
        names = ", ".join(members) or "–"
        table.add_row(*map(escape, (gpu.name, gpu.node, names, f"{worth:,.0f}", f"{expected:,.0f}")))
    output().print(table)
    proven = f"{plan.found.bound.value:,.0f}"
    if plan.gap is None:
        said = f"no bound is known with pools; of plans without pools none exceeds {proven}"
    else:
        said = f"none exceeds {proven} (gap {100 * plan.gap:.2f} %)"
    moved = f"; {counted(len(plan.found.moved), 'tenant')} moved" if plan.found.moved else ""
    output().print(f"worth {plan.found.worth:,.0f} requests, salvage included; {said}{moved}")
    for one in plan.found.unplaced:
        output().print(f"{escape(one.tenant)} is on no GPU: {escape(one.reason)}")
