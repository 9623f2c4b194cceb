"""``migrator whatif``: a config's window planned at every point of a grid, several at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from forecaster.registry import HINDSIGHT
from migrator.config import Config, read_config
from migrator.console import output, print_json, progress, warn_of
from migrator.errors import InfeasibleError, MigratorError
from migrator.outputs import require_writable, write_output
from migrator.parallel import Processes, n_cores
from migrator.setting import assemble, service_profiles
from migrator.views.as_json import sweep_to_csv, sweep_to_json
from migrator.views.html import require_plot_extra, sweep_to_html
from migrator.views.live import GridView
from migrator.views.traffic import print_traffic, trace_notes
from migrator.views.whatif import print_sweep
from migrator.whatif.cases import Case, cases_of, check
from migrator.whatif.grid import point_text, read_grid
from migrator.whatif.sweep import Outcome, Sweep, outcome_of
from workloads.traffic.servegen import SERVEGEN_LABEL, SERVEGEN_TRACE


def whatif_command(
    config_path: Path,
    *,
    vary: Sequence[str],
    known_arrivals: bool,
    time_limit_s: float | None,
    jobs: int | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Print the expected goodput of the config's window at every point, and write it to files where asked.

    Raises:
        GridError: A choice cannot be used; nothing is solved then.
        ConfigError: The config cannot be used, as it is or at some point; nothing is solved then.
        InfeasibleError: No point has a plan; the table is printed (and written) first.
    """
    grid = read_grid(vary)
    _check_files(config_path, out, plot)
    config = read_config(config_path)
    if known_arrivals:
        config = config.model_copy(update={"forecast": config.forecast.model_copy(update={"method": "known"})})
    cases = cases_of(grid, config, str(config_path), time_limit_s)
    warn_of(service_profiles(config).warnings)
    outcomes = _outcomes(cases, min(jobs or n_cores(), len(cases)))
    setting, traffic = assemble(config, str(config_path))
    print_traffic(config, setting, traffic, progress())
    sweep = Sweep(
        config.name, _forecast_name(config), grid, outcomes, (*_notes(config), *trace_notes(setting, traffic))
    )
    if out is not None:
        write_output("--out", out, _for_programs(sweep, out.suffix))
    if plot is not None:
        write_output("--plot", plot, sweep_to_html(sweep))
    if as_json:
        print_json(sweep_to_json(sweep))
    else:
        print_sweep(sweep, output())
    _require_a_plan(sweep)


def _outcomes(cases: Sequence[Case], n_processes: int) -> tuple[Outcome, ...]:
    """The outcomes of the cases, in their order."""
    different = list({case.config.model_dump_json(): case for case in reversed(cases)}.values())[::-1]
    outcomes: dict[int, Outcome] = {}
    with Processes(n_processes) as processes, GridView(len(cases), n_processes, progress()) as view:
        for n_done, _ in enumerate(processes.each(check, different), start=1):
            view.checking(n_done, len(different))
        view.checked()
        for index, outcome in processes.each(outcome_of, cases):
            outcomes[index] = outcome
            view.planned(outcome)
    return tuple(outcomes[index] for index in range(len(cases)))


def _for_programs(sweep: Sweep, suffix: str) -> str:
    return sweep_to_csv(sweep) if suffix == ".csv" else json.dumps(sweep_to_json(sweep), indent=2, allow_nan=False)


def _forecast_name(config: Config) -> str:
    return HINDSIGHT if config.forecast.method == "known" else config.forecast.method


def _notes(config: Config) -> tuple[str, ...]:
    """What of the config's traces and profiles is not as recorded."""
    synthetic = [tenant.name for tenant in config.tenants if tenant.arrivals.trace == SERVEGEN_TRACE]
    notes = [f"trace of {', '.join(synthetic)}: {SERVEGEN_LABEL}"] if synthetic else []
    if config.profile_variant != "recorded":
        notes.append(f"service profiles: {config.profile_variant}")
    return tuple(notes)


def _check_files(config_path: Path, out: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written, before anything is solved."""
    if out is not None and out.suffix not in (".json", ".csv"):
        raise MigratorError(f"--out {out}: a name that ends in .json or .csv is needed")
    if out is not None:
        require_writable("--out", out, config_path)
    if plot is not None:
        require_writable("--plot", plot, config_path, *([] if out is None else [out]))
        require_plot_extra()


def _require_a_plan(sweep: Sweep) -> None:
    if all(outcome.goodput is None for outcome in sweep.outcomes):
        first = sweep.outcomes[0]
        kind = MigratorError if all(outcome.status == "failed" for outcome in sweep.outcomes) else InfeasibleError
        raise kind(f"no point of the grid has a plan; at {point_text(first.point)}: {first.reason}")
