"""``migrator forecast``: what forecasters are worth on traces and past runs, and one window's forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from forecaster.neural import Check, ModelError, Recipe, Seen, fit
from migrator.config import read_config
from migrator.console import escape, output, print_json, progress, warn_of
from migrator.errors import MigratorError
from migrator.evaluation import Terms, evaluate, methods_of
from migrator.extras import lacking
from migrator.outputs import require_writable, write_output
from migrator.run.foresight import Foresight, observe
from migrator.series import SeriesError, read_series
from migrator.setting import assemble
from migrator.views.forecast import (
    Shown,
    evaluations_to_html,
    evaluations_to_json,
    fit_to_json,
    print_evaluations,
    print_fit,
    print_shown,
    shown_to_html,
    shown_to_json,
)
from migrator.views.html import require_plot_extra


def eval_command(
    sources: Sequence[str],
    terms: Terms,
    *,
    methods: Sequence[str] = (),
    models: Sequence[Path] = (),
    seconds: tuple[int, int] | None = None,
    plot: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print what every method is worth on each source, and write the page if asked.

    Raises:
        SeriesError: A source or a method cannot be used, or no method has enough history.
        TraceError: A trace cannot be read.
        LogError: A folder holds no log of ours.
    """
    _check_plot(plot, *map(Path, sources))
    known = methods_of(methods, models)
    series = [read_series(source, seconds) for source in sources]
    with _bar() as bar:
        evaluations = []
        for one in series:
            task = bar.add_task(escape(one.name), total=terms.origins(one).size * len(known.forecasters))

            def advance(name: str, task: TaskID = task) -> None:
                bar.update(task, advance=1, description=escape(name))

            evaluations.append(evaluate(one, known, terms, advance))
            bar.remove_task(task)
    if not any(evaluation.trials for evaluation in evaluations):
        name, reason = next(iter(evaluations[0].left_out.items()))
        raise SeriesError(f"{series[0].name}: no method could be tested; {name}: {reason}")
    if plot is not None:
        write_output("--plot", plot, evaluations_to_html(evaluations))
    if as_json:
        print_json(evaluations_to_json(evaluations))
    else:
        print_evaluations(evaluations, output())


@dataclass(frozen=True, slots=True)
class Fitting:
    """What to fit, and on what.

    Attributes:
        recipe: The network, window, history and seed.
        share: The part at each source's beginning that is used.
        n_updates: How long.
        out: The model's folder.
        resume: Whether to go on with what is in it.
    """

    recipe: Recipe
    share: float
    n_updates: int
    out: Path
    resume: bool = False


def fit_command(sources: Sequence[str], fitting: Fitting, *, seconds: tuple[int, int] | None, as_json: bool) -> None:
    """Fit a network on the beginnings of the sources, save it, and print its learning curve.

    Raises:
        MigratorError: The extra is not installed.
        SeriesError: A source cannot be used, or nothing can be fitted on them.
        TraceError: A trace cannot be read.
        LogError: A folder holds no log of ours.
    """
    if lacks := lacking("neural"):
        raise MigratorError(f"forecast fit {fitting.recipe.method} {lacks}")
    parts, seen = [], []
    for source in sources:
        series = read_series(source, seconds)
        n_seconds = round(fitting.share * series.n_seconds)
        parts.append(series.rates_rps[:n_seconds])
        seen.append(Seen(series.name, series.first_s, n_seconds, series.fingerprint(n_seconds)))
    with _bar() as bar:
        bar.console.print(
            f"fitting {fitting.recipe.method} on {sum(one.n_seconds for one in seen):,} s", soft_wrap=True
        )
        task = bar.add_task("first steps", total=fitting.n_updates)

        def show(update: int, check: Check | None) -> None:
            loss = None if check is None else f"held-out loss {check.held_out:.4f}"
            bar.update(task, completed=update, description=loss)

        try:
            curve = fit(
                fitting.out,
                fitting.recipe,
                parts,
                seen,
                n_updates=fitting.n_updates,
                resume=fitting.resume,
                on_update=show,
            )
        except ModelError as error:
            raise SeriesError(str(error)) from None
    if as_json:
        print_json(fit_to_json(fitting.out, fitting.recipe.method, seen, curve))
    else:
        print_fit(fitting.out, fitting.recipe.method, curve, output())


def show_command(
    config_path: Path, *, window: int, assignments: Sequence[str], plot: Path | None, as_json: bool
) -> None:
    """Print the forecast with which a config's window is planned, beside what then comes.

    Raises:
        ConfigError: The config cannot be used, or asks for hindsight.
        MigratorError: It has fewer windows.
    """
    _check_plot(plot, config_path)
    config = read_config(config_path, assignments)
    if window >= config.windows:
        raise MigratorError(f"--window is {window}; {config_path} has windows 0 to {config.windows - 1}")
    if config.forecast.method == "known":
        raise MigratorError(f"{config_path}: forecast.method is known, which is no forecast; another is needed")
    setting, traffic = assemble(config, str(config_path))
    warn_of(setting.warnings)
    opening = observe(setting, traffic, window, [0.0] * len(setting.tenants))
    start_s = window * config.window_s
    shown = Shown(
        title=config.name,
        window=window,
        start_s=start_s,
        step_s=config.step_s,
        tenants=tuple(tenant.name for tenant in setting.tenants),
        past_rps=opening.past_rps,
        forecast=Foresight(setting, traffic).forecast(opening),
        came_rps=traffic.hindsight.rates_rps(start_s, config.step_s, config.n_steps),
    )
    if plot is not None:
        write_output("--plot", plot, shown_to_html(shown))
    if as_json:
        print_json(shown_to_json(shown))
    else:
        print_shown(shown, output())


def _check_plot(plot: Path | None, *inputs: Path) -> None:
    if plot is not None:
        require_writable("--plot", plot, *inputs)
        require_plot_extra()


def _bar() -> Progress:
    console = progress()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
