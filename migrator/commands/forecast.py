"""``migrator forecast``: what forecasters are worth on traces and past runs, and one window's forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from forecaster.neural import Check, FitError, FittedOn, Recipe, fit
from forecaster.seconds import steps_per_second
from migrator.commands.options import Assignments, ConfigFile, Json, PlotThem, nameable, with_examples
from migrator.commands.pages import require_page
from migrator.comparison.forecasts import SeriesError, Terms, evaluate, methods_of, read_series
from migrator.config.reading import files_in, read_config
from migrator.config.sections import Config
from migrator.errors import MigratorError
from migrator.execution.foresight import Foresight, observe
from migrator.extras import lacking
from migrator.inputs.assembly import assemble
from migrator.terminal.console import escape, output, print_json, progress, warn_of
from migrator.terminal.outputs import Kind, write_output
from migrator.views.forecast import (
    ShownForecast,
    evaluations_to_html,
    evaluations_to_json,
    fit_to_json,
    print_evaluations,
    print_fit,
    print_shown,
    shown_to_html,
    shown_to_json,
)
from migrator.views.traffic import print_traffic

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE…", help="Shipped traces by name, trace files, or folders of past runs."),
]
Seconds = Annotated[
    str | None, typer.Option(metavar="FROM:TO", help="Only these seconds of each source. Default: all of them.")
]


@with_examples("forecast eval azure-conv azure-code", "forecast eval runs/quickstart --method ewma --plot eval.html")
def eval_command(
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
    plot: PlotThem = None,
    as_json: Json = False,
) -> None:
    """Print what every method is worth on each source, and write the page if asked.

    Raises:
        SeriesError: A source or a method cannot be used, or no method has enough history.
        TraceError: A trace cannot be read.
        LogError: A folder holds no log of ours.
    """
    terms = Terms(window_s=window, history_s=history, share=share, stride_s=stride)
    stretch = _stretch(seconds)
    if plot is not None:
        require_page(
            plot, *map(Path, sources), *(file for one in models or () for file in one.rglob("*")), option="--plot"
        )
    known = methods_of(methods or (), models or ())
    series = [read_series(source, stretch) for source in sources]
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
        write_output("--plot", plot, evaluations_to_html(evaluations), Kind.PAGE)
    if as_json:
        print_json(evaluations_to_json(evaluations))
    else:
        print_evaluations(evaluations, output())


@with_examples(
    "forecast fit nhits azure-conv azure-code --out models/nhits",
    "forecast fit nhits azure-conv azure-code --out models/nhits --updates 4000 --resume",
)
def fit_command(
    method: Annotated[Literal["informer", "nhits"], typer.Argument(help="Which network.")],
    sources: Sources,
    *,
    out: Annotated[Path, typer.Option(callback=nameable, help="The model's folder.")],
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
    """Fit a network on the beginnings of the sources, save it, and print its learning curve.

    Raises:
        MigratorError: The extra is not installed.
        SeriesError: A source cannot be used, or nothing can be fitted on them.
        TraceError: A trace cannot be read.
        LogError: A folder holds no log of ours.
    """
    recipe = Recipe(method, window_steps=window, history_steps=history, seed=seed)
    stretch = _stretch(seconds)
    if lacks := lacking("neural"):
        raise MigratorError(f"forecast fit {method} {lacks}")
    parts, seen = [], []
    for source in sources:
        series = read_series(source, stretch)
        n_seconds = round(share * series.n_seconds)
        parts.append(series.rates_rps[:n_seconds])
        seen.append(FittedOn(series.name, series.first_s, n_seconds, series.fingerprint(n_seconds)))
    with _bar() as bar:
        bar.console.print(f"fitting {method} on {sum(one.n_seconds for one in seen):,} s", soft_wrap=True)
        task = bar.add_task("first steps", total=updates)

        def show(update: int, check: Check | None) -> None:
            loss = None if check is None else f"held-out loss {check.held_out:.4f}"
            bar.update(task, completed=update, description=loss)

        try:
            curve = fit(out, recipe, parts, seen, n_updates=updates, resume=resume, on_update=show)
        except FitError as error:
            raise SeriesError(str(error)) from None
    if as_json:
        print_json(fit_to_json(out, method, seen, curve))
    else:
        print_fit(out, method, curve, output())


@with_examples("forecast show quickstart.yaml --window 1")
def show_command(
    config: ConfigFile,
    *,
    window: Annotated[int, typer.Option(min=0, help="Which window of the config.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Also draw it in this HTML file; needs the extra plot.")] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Print the forecast with which a config's window is planned, beside what then comes.

    Raises:
        ConfigError: The config cannot be used, or asks for hindsight.
        MigratorError: It has fewer windows.
    """
    asked = read_config(config, assignments or ())
    if plot is not None:
        require_page(plot, config, *files_in(asked), option="--plot")
    shown = _forecast_of(asked, config, window)
    if plot is not None:
        write_output("--plot", plot, shown_to_html(shown), Kind.PAGE)
    if as_json:
        print_json(shown_to_json(shown))
    else:
        print_shown(shown, output())


def _forecast_of(config: Config, config_path: Path, window: int) -> ShownForecast:
    """The forecast for the window, and what then comes."""
    if window >= config.windows:
        raise MigratorError(f"--window is {window}; {config_path} has windows 0 to {config.windows - 1}")
    if config.forecast.method == "known":
        raise MigratorError(f"{config_path}: forecast.method is known, which is no forecast; another is needed")
    setting, traffic = assemble(config, str(config_path))
    warn_of(setting.warnings)
    print_traffic(config, traffic, progress())
    ahead_steps = config.ahead_steps if window else 0
    opening = observe(setting, traffic, window, [0.0] * len(setting.tenants), ahead_steps=ahead_steps)
    start_s, each = window * config.window_s, steps_per_second(config.step_s)
    unit_s = config.step_s if each == 1 else 1.0
    return ShownForecast(
        title=config.name,
        window=window,
        start_s=start_s,
        known_until_s=start_s - ahead_steps * config.step_s,
        step_s=config.step_s,
        tenants=tuple(tenant.name for tenant in setting.tenants),
        past_rps=opening.past_rps,
        forecast=Foresight(setting, traffic).forecast(opening),
        came_rps=traffic.rates_before(start_s + config.window_s, unit_s, config.n_steps // each).repeat(each, axis=0),
    )


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
