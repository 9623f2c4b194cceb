"""``migrator compare``: the same requests under several sharing policies, several at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from migrator.commands.options import Assignments, Jobs, Json, Keep, PlotThem, with_examples
from migrator.comparison.matches import (
    MOST_SEGMENTS,
    Fairness,
    Match,
    MatchScore,
    matches_of,
    score_of,
    told_apart,
    with_hindsight,
)
from migrator.config.reading import files_in, read_config
from migrator.errors import MigratorError
from migrator.inputs.assembly import assemble, unmoved_by_load, untraced
from migrator.terminal.console import output, print_json, progress, warn_of
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.terminal.parallel import Processes, n_cores
from migrator.views.as_json import comparison_to_json
from migrator.views.compare import print_comparison
from migrator.views.compare_page import comparison_to_html
from migrator.views.page import require_plot_extra
from migrator.views.sentences import print_goals
from migrator.views.traffic import print_load_of_segments, print_traffic
from migrator.whatif.goals import conditions_of, goals_of_policy, require_kept
from planner.policies.registry import POLICIES, policy_of
from workloads.traffic.trace_store import keep_traces, kept_traces


@with_examples("compare quickstart.yaml", "compare w1.yaml w2.yaml --policies migrator,static --windows 2 --segments 3")
def compare_command(
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
        int, typer.Option(min=1, max=MOST_SEGMENTS, help="How many pieces of the traces, one after the other.")
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
    keep: Keep = None,
    jobs: Jobs = None,
    out: Annotated[Path | None, typer.Option(help="Also write the results to this JSON file.")] = None,
    plot: PlotThem = None,
    as_json: Json = False,
) -> None:
    """Simulate every policy on every segment of every config, and print what each gets.

    Raises:
        PolicyError: A policy is not known, or its file cannot be used.
        ConfigError: A config cannot be used, or has too short a trace; nothing is simulated then.
        GridError: What the first policy is to keep is no condition, or names no tenant or figure.
        InfeasibleError: A policy has no plan for a first window.
        MissedGoalError: What the first policy was to keep it did not; all results are written.
    """
    fairness, specs = Fairness(terms), _specs(policies)
    if stride is not None and segments == 1:
        raise MigratorError(f"--stride {stride} is between segments; give --segments as well")
    table = None if profiles is None else str(profiles.absolute())
    asked = [read_config(path, assignments or (), windows=windows, load=load, profiles=table) for path in configs]
    conditions = conditions_of(keep, list(dict.fromkeys(tenant.name for config in asked for tenant in config.tenants)))
    inputs = [*configs, *(file for config in asked for file in files_in(config))]
    if out is not None:
        require_writable("--out", out, Kind.DOCUMENT, *inputs)
    if plot is not None:
        require_writable("--plot", plot, Kind.PAGE, *inputs, *([] if out is None else [out]))
        require_plot_extra()
    matches: list[Match] = []
    warnings: list[str] = []
    for path, config in zip(configs, asked, strict=True):
        if load is not None:
            warnings += unmoved_by_load(f"--load {load:g}", str(path), config.tenants)
        matches += matches_of(config, str(path), specs, segments, fairness, stride)
        warnings += untraced(config, str(path)).warnings
    _require_distinct_names(matches, configs)
    warn_of(dict.fromkeys(warnings))
    _print_traffic(matches)
    wanted = with_hindsight(matches)
    scores = told_apart(_scores(wanted, min(jobs or n_cores(), len(wanted))), len(matches))
    goals = goals_of_policy(scores, conditions)
    document = comparison_to_json(scores, segments, stride, goals)
    if out is not None:
        write_output("--out", out, json.dumps(document, indent=2, allow_nan=False), Kind.DOCUMENT)
    if plot is not None:
        write_output("--plot", plot, comparison_to_html(scores, fairness, stride), Kind.PAGE)
    if as_json:
        print_json(document)
    else:
        print_goals(goals, output())
        print_comparison(scores, output(), stride)
    require_kept(goals)


def _specs(policies: str | None) -> list[str]:
    specs = list(POLICIES) if policies is None else policies.split(",")
    names = [policy_of(spec).name for spec in specs]
    for spec, name in zip(specs, names, strict=True):
        if names.count(name) > 1:
            raise MigratorError(f"--policies: {spec!r}: the policy {name!r} is given twice")
    return specs


def _require_distinct_names(matches: Sequence[Match], paths: Sequence[Path]) -> None:
    names = {match.config.name: match.origin for match in matches}
    if len(names) < len(paths):
        raise MigratorError(f"two of the configs have the same name; known by name are {', '.join(names)}")


def _print_traffic(matches: Sequence[Match]) -> None:
    """Print what arrives in the first segment of each config, and of which seconds its load is."""
    console = progress()
    for match in {match.config.name: match for match in matches if match.segment == 0}.values():
        print_load_of_segments(match.config, console)
        print_traffic(match.config, assemble(match.config, match.origin)[1], console)


def _scores(matches: Sequence[Match], n_processes: int) -> tuple[MatchScore, ...]:
    """The matches' scores, in their order, whichever was done first."""
    scores: dict[int, MatchScore] = {}
    console = progress()
    prepare = partial(keep_traces, kept_traces())
    with Processes(n_processes, prepare) as processes, console.status(f"simulating 0 of {len(matches):,}") as status:
        for index, score in processes.each(score_of, matches):
            scores[index] = score
            status.update(f"simulating {len(scores):,} of {len(matches):,}")
    return tuple(scores[index] for index in range(len(matches)))
