"""``migrator whatif``: a config's window planned at every point of a grid, several at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from forecaster.registry import HINDSIGHT
from migrator.commands.options import Assignments, ConfigFile, Jobs, Json, PlotThem, in_groups, with_examples
from migrator.config.reading import files_in, read_config
from migrator.config.sections import Config
from migrator.errors import ConfigError, GridError, InfeasibleError, MigratorError
from migrator.inputs.assembly import assemble, untraced
from migrator.terminal.console import escape, output, print_json, progress, warn_of
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.terminal.parallel import Processes, n_cores
from migrator.views.as_json import sweep_to_csv, sweep_to_json
from migrator.views.page import require_plot_extra
from migrator.views.progress import GridView
from migrator.views.traffic import print_traffic, trace_notes
from migrator.views.whatif import print_sweep, trial_text
from migrator.views.whatif_page import sweep_to_html
from migrator.whatif.confirm import Confirmed, Kept, Trial, confirm, run_of, with_seed
from migrator.whatif.grid import Choice, Grid, Point, Variation, doubts_of, point_text, read_grid, shown
from migrator.whatif.search import N_HALVINGS, UNMEASURED, Condition, Found, GoalSearch, read_conditions, read_search
from migrator.whatif.search import find as search_for
from migrator.whatif.sweep import Case, PointOutcome, Sweep, cases_of, check, misfit, outcome_of, unmoved
from planner.problem import Reconfiguration
from workloads.traffic.servegen import SERVEGEN_LABEL, SERVEGEN_TRACE
from workloads.traffic.trace_store import keep_traces, kept_traces


@with_examples(
    "whatif quickstart.yaml --vary load=0.5,0.7,0.9 --vary slo_ms=x0.5,x1",
    "whatif quickstart.yaml --find max:load --keep 'slo_attainment>=0.9'",
    "whatif quickstart.yaml --vary engine=physical,greedy --vary window=0,1 --plot grid.html",
)
@in_groups(
    {
        "What is planned": "vary find keep assignments",
        "How": "plans_only known_arrivals time_limit jobs",
        "What it prints": "out plot as_json",
        "Else": "help",
    }
)
def whatif_command(
    config: ConfigFile,
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
            "one tenant (max:NAME.load) or in a range (max:load=0.2..2), min:gpu, or max:tenants (the config's first "
            "so many, with its sharing.pools). Plans promise a value; runs of all windows with three seeds are then "
            "simulated, and the answer is what they keep.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="What a run has to keep, e.g. 'goodput>=0.8' or, of one tenant, 'goodput:NAME>=0.8'; with --find.",
        ),
    ] = None,
    plans_only: Annotated[
        bool, typer.Option("--plans-only", help="With --find: what plans promise, at once; nothing is simulated.")
    ] = False,
    known_arrivals: Annotated[
        bool, typer.Option("--known-arrivals", help="Plan with the true arrivals (hindsight) instead of a forecast.")
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Seconds a point until its best plan found is taken; not of simulated runs.",
        ),
    ] = None,
    jobs: Jobs = None,
    out: Annotated[Path | None, typer.Option(help="Also write the results to this file, .json or .csv.")] = None,
    plot: PlotThem = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Print the expected goodput of the config's window at every point, and write it to files where asked.

    Raises:
        GridError: A choice cannot be used, or what is to be found or kept; nothing is solved then.
        ConfigError: The config cannot be used, as it is or at some point; nothing is solved then.
        InfeasibleError: No point has a plan, or keeps what is to be kept; the table is printed (and written) first.
    """
    if keep and find is None:
        raise GridError(f"--keep {shown(keep[0])}: what is to be found? --find is missing, such as --find max:load")
    if plans_only and find is None:
        raise GridError("--plans-only is for --find, which is missing; --vary shows plans alone in any case")
    grid = read_grid(vary or ()) if vary or find is None else Grid(())
    base = read_config(config, assignments or ())
    _check_files(out, plot, config, *files_in(base))
    if known_arrivals:
        base = base.model_copy(update={"forecast": base.forecast.model_copy(update={"method": "known"})})
    search = None if find is None else read_search(find, base)
    tried = grid.variations if search is None else (Variation(search.choices), *grid.variations)
    option = "--vary" if search is None else "--find"
    warn_of((*untraced(base, str(config)).warnings, *doubts_of(tried), *unmoved(option, tried, base, str(config))))
    found, confirmed = None, None
    if search is None:
        cases = cases_of(grid, base, str(config), time_limit)
        outcomes = _outcomes(cases, min(jobs or n_cores(), len(cases)))
    else:
        asked = _Asked(grid, base, str(config), time_limit)
        conditions = read_conditions(keep or (), [tenant.name for tenant in base.tenants])
        _refuse_what_no_run_can(search, conditions, grid, plans_only=plans_only)
        found, confirmed = _found(search, conditions, asked, jobs or n_cores(), plans_only=plans_only)
        outcomes, grid = found.outcomes, Grid((Variation(found.choices), *grid.variations))
    _, traffic = assemble(base, str(config))
    print_traffic(base, traffic, progress())
    notes = (*_notes(base), *trace_notes(base, traffic))
    forecast = HINDSIGHT if base.forecast.method == "known" else base.forecast.method
    sweep = Sweep(base.name, forecast, grid, outcomes, notes)
    document = sweep_to_json(sweep, found, confirmed)
    if out is not None:
        text = (
            sweep_to_csv(sweep, found)
            if _kind_of(out) is Kind.TABLE
            else json.dumps(document, indent=2, allow_nan=False)
        )
        write_output("--out", out, text, _kind_of(out))
    if plot is not None:
        write_output("--plot", plot, sweep_to_html(sweep, found, confirmed), Kind.PAGE)
    if as_json:
        print_json(document)
    else:
        print_sweep(sweep, output(), found, confirmed)
    if found is None:
        _require_a_plan(sweep)
    elif (found if confirmed is None else confirmed).holds is None:
        kept = " and ".join(map(str, found.conditions))
        if confirmed is None:
            raise InfeasibleError(f"--find {find}: plans promise {kept} at none up to the first that does not hold")
        raise InfeasibleError(f"--find {find}: none keeps {kept}, not even {confirmed.trials[0].choice}, simulated")


def _outcomes(cases: Sequence[Case], n_processes: int) -> tuple[PointOutcome, ...]:
    """The outcomes of the cases, in their order."""
    by_setting = {(case.config.model_dump_json(), case.solving.reconfiguration): case for case in reversed(cases)}
    different = list(by_setting.values())[::-1]
    outcomes: dict[int, PointOutcome] = {}
    prepare = partial(keep_traces, kept_traces())
    with Processes(n_processes, prepare) as processes, GridView(len(cases), n_processes, progress()) as view:
        for n_done, _ in enumerate(processes.each(check, different), start=1):
            view.checking(n_done, len(different))
        view.checked()
        for index, outcome in processes.each(outcome_of, cases):
            outcomes[index] = outcome
            view.planned(outcome)
    return tuple(outcomes[index] for index in range(len(cases)))


@dataclass(frozen=True)
class _Asked:
    """What a search is about.

    Attributes:
        fixed: What else is changed: keys with one value each.
        config: The config.
        origin: Its file.
        time_limit_s: For each solve.
    """

    fixed: Grid
    config: Config
    origin: str
    time_limit_s: float | None

    def cases(self, choices: Sequence[Choice]) -> tuple[Case, ...]:
        """A case for each choice."""
        grid = Grid((Variation(tuple(choices)), *self.fixed.variations))
        return cases_of(grid, self.config, self.origin, self.time_limit_s)


def _refuse_what_no_run_can(
    search: GoalSearch, conditions: Sequence[Condition], fixed: Grid, *, plans_only: bool
) -> None:
    """Refuse options that do not go with a search."""
    for variation in fixed.variations:
        if len(variation.choices) > 1 or variation.name == search.name:
            raise GridError(
                f"--vary {variation.name}: beside --find {search.name} another key, with one value, is needed"
            )
        if variation.name in ("model", "engine") and not plans_only:
            raise GridError(f"--vary {variation.name}: runs have engine physical; beside --find, give --plans-only")
    for condition in conditions:
        if search.name == "tenants" and condition.tenant is not None:
            raise GridError(
                f"--keep {condition}: max:tenants leaves tenants out; one of all, without a name, is needed"
            )


def _found(
    search: GoalSearch, conditions: Sequence[Condition], asked: _Asked, n_processes: int, *, plans_only: bool
) -> tuple[Found, Confirmed | None]:
    """What plans promise, and runs then keep; unmeasured GPU models are left out, other misfits refused."""
    cases = asked.cases(search.choices)
    n_processes = min(n_processes, len(cases))
    n_points = len(cases) + (0 if search.name in ("gpu", "tenants") else N_HALVINGS)
    prepare = partial(keep_traces, kept_traces())
    with Processes(n_processes, prepare) as processes:
        with GridView(n_points, n_processes, progress()) as view:
            reasons = dict(processes.each(misfit, cases))
            refused = {case.point: reason for n, case in enumerate(cases) if (reason := reasons[n]) is not None}
            if refused and (not search.is_of_models or len(refused) == len(cases)):
                first = next(case for case in cases if case.point in refused)
                raise ConfigError(f"{first.origin}: {refused[first.point]}")
            view.checked()

            def planned(choices: Sequence[Choice]) -> list[PointOutcome]:
                every = asked.cases(choices)
                usable = [case for case in every if case.point not in refused]
                outcomes = {}
                for index, outcome in processes.each(outcome_of, usable):
                    outcomes[usable[index].point] = outcome
                    view.planned(outcome)
                points = [case.point for case in every]
                return [outcomes.get(point) or _unmeasured(point, refused[point]) for point in points]

            found = search_for(search, conditions, planned)
        return found, None if plans_only else _confirmed(found, asked, processes)


def _confirmed(found: Found, asked: _Asked, processes: Processes) -> Confirmed:
    """What simulated runs keep, with a line for each value that they judge."""
    console, n_done = progress(), 0
    with console.status("simulating") as status:

        def simulate(wanted: Sequence[tuple[Choice, int]]) -> list[Kept | None]:
            nonlocal n_done
            cases = asked.cases(list(dict.fromkeys(choice for choice, _ in wanted)))
            by_choice = {choice: case for case in cases for choice in case.point}
            runs: dict[int, Kept | None] = {}
            seeded = [with_seed(by_choice[choice], seed) for choice, seed in wanted]
            for index, run in processes.each(run_of, seeded):
                runs[index] = run
                n_done += 1
                status.update(f"simulating whole runs: {n_done} done; 10 to 20 are usual")
            return [runs[index] for index in range(len(wanted))]

        def tell(trial: Trial) -> None:
            console.print(f"simulated: {escape(trial_text(trial, found.conditions))}", soft_wrap=True)

        weights = {tenant.name: tenant.weight for tenant in asked.config.tenants}
        return confirm(found, asked.config.seed, weights, simulate, tell)


def _unmeasured(point: Point, reason: str) -> PointOutcome:
    # Without its name the reason is the same for all of them, and told once.
    name = next(choice.text for choice in point if choice.key == "gpu")
    shared = reason.replace(f"for the GPU model {name!r}", "for this GPU model")
    return PointOutcome(point, UNMEASURED, Reconfiguration.PHYSICAL.value, "", reason=shared)


def _notes(config: Config) -> tuple[str, ...]:
    """What of the config's traces and profiles is not as recorded."""
    synthetic = [tenant.name for tenant in config.tenants if tenant.arrivals.trace == SERVEGEN_TRACE]
    notes = [f"trace of {', '.join(synthetic)}: {SERVEGEN_LABEL}"] if synthetic else []
    if config.profile_variant != "recorded":
        notes.append(f"service profiles: {config.profile_variant}")
    return tuple(notes)


def _kind_of(out: Path) -> Kind:
    return Kind.TABLE if out.suffix == ".csv" else Kind.DOCUMENT


def _check_files(out: Path | None, plot: Path | None, *inputs: Path) -> None:
    """Refuse files that cannot be written, before anything is solved."""
    if out is not None and out.suffix not in (".json", ".csv"):
        raise MigratorError(f"--out {out}: a name that ends in .json or .csv is needed")
    if out is not None:
        require_writable("--out", out, _kind_of(out), *inputs)
    if plot is not None:
        require_writable("--plot", plot, Kind.PAGE, *inputs, *([] if out is None else [out]))
        require_plot_extra()


def _require_a_plan(sweep: Sweep) -> None:
    if all(outcome.goodput is None for outcome in sweep.outcomes):
        first = sweep.outcomes[0]
        kind = MigratorError if all(outcome.status == "failed" for outcome in sweep.outcomes) else InfeasibleError
        raise kind(f"no point of the grid has a plan; at {point_text(first.point)}: {first.reason}")
