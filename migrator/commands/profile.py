"""``migrator profile``: service profiles of models, measured on this machine, as a table that configs take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, Self, cast, get_args

import typer
from rich import box
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from executor.clock import WallClock
from executor.cpu.gpu import CpuGpu, standing_cuts
from executor.cuts import CpuCut, MpsCut
from executor.driver import DriverGpu
from executor.journal import Journal, file_of
from executor.mig import GpuModel
from executor.mps import MpsGpu
from executor.names import spelled_as
from executor.opening import BackendName, open_gpu
from executor.reconcile import Reconciler
from migrator import __version__
from migrator.commands.options import BesideOthers, Index, State, nameable, with_examples
from migrator.commands.where import mind_other_managers, state_folder
from migrator.errors import MigratorError
from migrator.execution.real import RealGpu
from migrator.profiling.record import (
    Figure,
    Figures,
    StageLog,
    StageView,
    Stretch,
    failures,
    figures,
    measured_start,
    rounds_costs,
    rows,
    share_rows,
    turn_costs,
)
from migrator.profiling.stages import MeasuringPlan, SharePlan, Stage, stages
from migrator.profiling.subjects import Named, Subject, named, require_live, subject
from migrator.terminal.console import escape, note, output, progress, warn, warn_of
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.views.progress import moving_line
from workloads.errors import ProfileTableError
from workloads.profiles.knee import LEAST_SAMPLES
from workloads.profiles.share_table import ShareRow, beside_unseen, parse_share_table, share_text
from workloads.profiles.table import parse_profiles, text_of
from workloads.profiles.unseen import guessed

PLENTY, COARSE = (3.0, (1, 2, 4, 8, 16, 32)), (0.75, (1, 8, 32))
"""Seconds a stage, and batch sizes, where nothing is said; and those of a coarse measurement."""

ENOUGH_CORES = 0.9
"""A process that has got less of what its share of the CPU should give was disturbed by other programs."""


ENOUGH_RATE = 0.9
"""A larger profile that does less than this share of what a smaller one does is no larger one's figure."""


MOST_SPREAD = 0.2
"""By how much rounds of turns may differ, as shares; those that do say little."""


@with_examples(
    "profile mlp cnn --gpu cpu-1.6-in-7 --coarse",
    "profile mlp --beside cnn --gpu cpu-1.6-in-7 --coarse",
    "profile mlp --gpu cpu-1.6-in-7 --shares 10,30,50,70,90 --beside-trainer cnn",
    "profile resnet50:cifar10 my_module:make_model:digits --gpu nvml --processes 1,2,3",
)
def profile_command(
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="The table (CSV), for profiles: in a config. Default: profiles.csv; with --shares it is for "
            "share_profiles:, and shares.csv.",
            show_default=False,
        ),
    ] = None,
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
        float | None,
        typer.Option(min=0.1, max=3600, metavar="S", help="Seconds for each stage. Default: 3; coarse: 0.75."),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL[:BENCHMARK]", help="Measure, too, what it costs to take turns with this one in an instance."
        ),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT,…",
            help="Measure latency on these shares of the card instead, five or more, one process each.",
        ),
    ] = None,
    beside_trainer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL[:BENCHMARK]", help="With --shares: again while this one trains on the rest; several times."
        ),
    ] = None,
    guess_trainer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL[:BENCHMARK]",
            help="With --beside-trainer: rows beside this one, which is not run, by its modules; several times.",
        ),
    ] = None,
    training: Annotated[
        Literal["naive", "replay"],
        typer.Option(case_sensitive=False, help="How a retraining goes through its samples."),
    ] = "replay",
    sample: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One input for a model of your own that has no BENCHMARK.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", callback=nameable, help="Where data sets lie. See docs/learning.md.")
    ] = None,
    state: State = None,
    beside_others: BesideOthers = False,
) -> None:
    """Measure the models, print what was found, and write the table.

    Raises:
        MigratorError: Options do not go together, something that was asked for is not there, or an earlier measurement
            was another one.
        NoGpuError: There is no such GPU, or the catalogue does not know it.
        OtherControllerError: Another controller has the GPU.
    """
    default_s, default_batches = COARSE if coarse else PLENTY
    sizes = tuple(sorted(set(default_batches if batches is None else _counts("--batches", batches))))
    if shares is not None:
        _refuse_with_shares(profiles=profiles, beside=beside, processes=None if processes == "1,2" else processes)
        on_shares = SharePlan(
            models=tuple(_named_once(models)),
            trainers=tuple(_named_once(beside_trainer or (), "--beside-trainer ")),
            guessed=tuple(_named_once(guess_trainer or (), "--guess-trainer ")),
            percents=_percents(shares),
            batches=sizes,
            seconds=seconds or default_s,
            training=training,
        )
        where = _Where(gpu, index, state or state_folder(), out or Path("shares.csv"), beside_others)
        _profile_shares(on_shares, where, sample, data)
        return
    if beside_trainer or guess_trainer:
        which = "--beside-trainer" if beside_trainer else "--guess-trainer"
        raise MigratorError(f"{which} is of shares: --shares is needed, as --shares 10,30,50,70,90")
    out = out or Path("profiles.csv")
    other = None if beside is None else named(beside)
    asked = MeasuringPlan(
        profiles=(),  # the GPU's, once it is open
        batches=sizes,
        processes=tuple(sorted(set(_counts("--processes", processes)))),
        seconds=seconds or default_s,
        training=training,
        is_coarse=coarse,
        beside=None if other is None else other.text,
    )
    asked_for = _named_once(models)
    require_writable("--out", out, Kind.TABLE)
    require_live(asked_for if other is None else [*asked_for, other])
    folder = state or state_folder()
    with _opened(gpu, index, folder, beside_others=beside_others) as (real, label), TemporaryDirectory() as files:
        subjects = {item.model: subject(item, sample, data, Path(files)) for item in asked_for}
        if other is not None:
            subjects |= {other.text: subject(other, sample, data, Path(files))}
        asked = replace(asked, profiles=_profiles(real.gpu.model, profiles))
        others = tuple(item for item in real.gpu.instances() if not real.journal.is_ours(item))
        plan = stages(
            real.gpu.model,
            asked,
            [(item.model, subjects[item.model].lesson is not None) for item in asked_for],
            [item.placement for item in others],
        )
        settings = {
            "version": __version__,
            "gpu": label,
            "index": index,
            "models": [item.text for item in asked_for],
            "profiles": list(asked.profiles),
            "batches": list(asked.batches),
            "processes": list(asked.processes),
            "seconds": asked.seconds,
            "training": asked.training,
            "sample": None if sample is None else str(sample),
            "data": None if data is None else str(data),
            "coarse": asked.is_coarse,
            "beside": asked.beside,
            "others' instances": [str(item.placement) for item in others],
        }
        with StageLog(out.with_name(f"{out.name}.partial"), settings) as record:
            _measure(real, subjects, plan, record, asked.seconds, Path(files))
            _tell(real.gpu, label, asked, plan, record, out)


@dataclass(frozen=True, slots=True)
class _Where:
    """On which card, under whose state, and into which file."""

    gpu: str
    index: int
    state: Path
    out: Path
    beside_others: bool


def _named_once(models: Sequence[str], option: str = "") -> list[Named]:
    """The models; ``option`` begins messages.

    Raises:
        MigratorError: One is unknown, or given twice.
    """
    try:
        found = [named(text) for text in models]
    except MigratorError as error:
        raise MigratorError(f"{option}{error}") from None
    names = [item.model for item in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MigratorError(f"{option}model {twice} is given twice; a table holds it once")
    return found


def _refuse_with_shares(**given: str | None) -> None:
    """Refuse options that are of instances.

    Raises:
        MigratorError: One is given.
    """
    for name, value in given.items():
        if value is not None:
            raise MigratorError(f"--{name} {value}: is of instances, and not of --shares; leave it out")


def _percents(text: str) -> tuple[int, ...]:
    """The shares that the text lists."""
    parts = [part.strip().removesuffix("%").strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 0 < int(part) < 100 for part in parts):
        raise typer.BadParameter(f"--shares {text}: whole hundredths from 1 to 99, separated by commas, are needed")
    found = tuple(sorted(set(map(int, parts))))
    if len(found) < LEAST_SAMPLES:
        raise typer.BadParameter(f"--shares {text}: {len(found)} given; a curve needs {LEAST_SAMPLES} or more")
    return found


def _profile_shares(asked: SharePlan, where: _Where, sample: Path | None, data: Path | None) -> None:
    """Measure on shares, print what was found, and write the table.

    Raises:
        MigratorError: A model that is to train cannot, or nothing was measured.
    """
    if lacks := next((item.model for item in (*asked.trainers, *asked.guessed) if item.benchmark is None), None):
        raise MigratorError(f"a trainer, {lacks}, has nothing to learn; {lacks}:BENCHMARK is needed")
    if asked.guessed and not asked.trainers:
        raise MigratorError(
            f"--guess-trainer {asked.guessed[0].text}: from trainings that are run; --beside-trainer is needed"
        )
    if twice := {one.model for one in asked.trainers} & {one.model for one in asked.guessed}:
        raise MigratorError(f"--guess-trainer {min(twice)}: it is run, too (--beside-trainer); leave one of both out")
    require_writable("--out", where.out, Kind.TABLE)
    require_live([*asked.models, *asked.trainers, *asked.guessed])
    with (
        _opened(where.gpu, where.index, where.state, beside_others=where.beside_others, in_parts=True) as (real, label),
        TemporaryDirectory() as files,
    ):
        plan = asked.stages(real.gpu.model)
        subjects = {item.model: subject(item, sample, data, Path(files)) for item in asked.models}
        subjects |= {item.text: subject(item, sample, data, Path(files)) for item in asked.trainers}
        settings = {
            "version": __version__,
            "gpu": label,
            "index": where.index,
            "models": [item.text for item in asked.models],
            "shares": list(asked.percents),
            "beside a training of": [item.text for item in asked.trainers],
            "guessed beside": [item.text for item in asked.guessed],
            "batches": list(asked.batches),
            "seconds": asked.seconds,
            "training": asked.training,
            "sample": None if sample is None else str(sample),
            "data": None if data is None else str(data),
        }
        with StageLog(where.out.with_name(f"{where.out.name}.partial"), settings) as record:
            _measure(real, subjects, plan, record, asked.seconds, Path(files), asked.training)
            warn_of(failures(plan, record))
            found = list(share_rows(real.gpu.model.name, asked, plan, record))
            found += _guessed_rows(real.gpu.model, asked, found, where.out, data)
            _tell_shares(real.gpu.model, label, found, where)
            record.finish()


def _require_guessable(asked: SharePlan) -> None:
    """Refuse guesses from nothing, of what is run, and of models whose modules are not known.

    Raises:
        MigratorError: Names the first.
    """
    if not asked.guessed:
        return
    first, run = asked.guessed[0].text, {one.model for one in asked.trainers}
    if not run:
        raise MigratorError(f"--guess-trainer {first}: from trainings that are run; --beside-trainer is needed")
    if twice := run & {one.model for one in asked.guessed}:
        raise MigratorError(f"--guess-trainer {min(twice)}: it is run, too (--beside-trainer); leave one of both out")
    if own := [one.model for one in (*asked.trainers, *asked.guessed) if ":" in one.model]:
        raise MigratorError(
            f"--guess-trainer {first}: modules are known of the catalogue's models, and not of {own[0]}"
        )


def _guessed_rows(
    gpu: GpuModel, asked: SharePlan, found: Sequence[ShareRow], out: Path, data: Path | None
) -> list[ShareRow]:
    """Rows beside the trainings that were not run, by their modules; says how each factor came about."""
    if not asked.guessed:
        return []
    from workloads.learning.datasets import benchmark  # noqa: PLC0415 - only with the extra live
    from workloads.learning.models import classifier  # noqa: PLC0415
    from workloads.learning.modules import module_counts  # noqa: PLC0415

    try:
        table = parse_share_table(str(out), share_text(found), gpu)
    except ProfileTableError:  # which the table's own error says
        return []
    counts: dict[str, tuple[int, ...]] = {}
    for one in (*asked.trainers, *asked.guessed):
        made = classifier(one.model.replace("-", "_"), **benchmark(one.benchmark or "", folder=data).model_options)
        counts[one.model] = module_counts(made.module)
    beside = {name: own for name in table.models if (own := table.beside(name))}
    rows: list[ShareRow] = []
    for one in asked.guessed:
        guesses = {name: guessed(counts, own, counts[one.model]) for name, own in beside.items()}
        for name, guess in guesses.items():
            told = f"{name} beside {one.model}, not run: × {guess.factor:.3f}, {guess.told}"
            output().print(escape(told), soft_wrap=True)
        rows += beside_unseen(found, one.model, guesses)
    return rows


def _tell_shares(gpu: GpuModel, label: str, found: Sequence[ShareRow], where: _Where) -> None:
    """Print the figures and doubts, and write the table."""
    if not any(not row.beside for row in found):
        raise MigratorError("no model answered on any share, so there is no table")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("model", "batch", "share %", "beside", "mean ms", "p99", "step ms"):
        table.add_column(heading, justify="left" if heading in ("model", "beside") else "right", no_wrap=True)
    for row in sorted(found, key=lambda row: row.key):
        times = [f"{1000 * seconds:,.2f}" for seconds in (row.mean_s, row.p99_s)]
        step = "" if row.step_s is None else f"{1000 * row.step_s:,.2f}"
        table.add_row(escape(row.model), str(row.batch), f"{100 * row.share:g}", escape(row.beside), *times, step)
    output().print(f"[bold]{escape(label)}[/]", soft_wrap=True)
    output().print(table)
    text = share_text(found)
    try:
        warn_of(parse_share_table(str(where.out), text, gpu).warnings)
    except ProfileTableError as error:
        warn(str(error))
    write_output("--out", where.out, text, Kind.TABLE)
    output().print(f"written to {escape(str(where.out))}: for [bold]share_profiles:[/] in a config", soft_wrap=True)


def _counts(option: str, text: str) -> tuple[int, ...]:
    """The numbers that the text lists."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        raise typer.BadParameter(f"{option} {text}: whole numbers from 1 to 4096, separated by commas, are needed")
    return tuple(map(int, parts))


def _measure(
    real: RealGpu,
    subjects: Mapping[str, Subject],
    plan: Sequence[Stage],
    record: StageLog,
    seconds: float,
    folder: Path,
    on_shares: str | None = None,
) -> None:
    """Measure what is not recorded yet, with a line of progress; with ``on_shares`` the training beside on shares."""
    from migrator.profiling.profiler import Profiler, ShareProfiler  # noqa: PLC0415 - only with the extra live

    n_before = sum(record.has(stage.key) for stage in plan)
    if n_before:
        note(f"{n_before} of {len(plan)} stages are in {record.path} already")
    try:
        with _Progress(len(plan), n_before, seconds, progress()) as view:
            parts = (real, subjects, record, seconds, folder, view)
            (Profiler(*parts) if on_shares is None else ShareProfiler(*parts, on_shares)).measure(plan)
    except KeyboardInterrupt:
        note(f"what was measured is in {record.path}; the same command goes on from there")
        raise
    finally:
        if real.left:
            warn(f"still there: {'; '.join(real.left)}; the next command that takes this GPU takes it away")


def _tell(gpu: DriverGpu, label: str, asked: MeasuringPlan, plan: Sequence[Stage], record: StageLog, out: Path) -> None:
    """Print the figures and doubts, and write the table."""
    found = list(figures(plan, record))
    warn_of(failures(plan, record))
    if not any(figure.stage.load.strategy is None for figure in found):
        raise MigratorError("no model answered on any profile, so there is no table")
    _print(found, record, label)
    turns = turn_costs(plan, record)
    for (model, profile), costs in turns.items():
        each = ", ".join(f"batch {batch} {100 * median(own):+.1f} %" for batch, own in costs.items())
        output().print(escape(f"{model} in turns with {asked.beside} on {profile}: {each}"), soft_wrap=True)
    warn_of((*_disturbed(gpu, found), *_reversed(gpu, found), *_unsure(turns)))
    text = text_of(list(rows(gpu.model, f"migrator profile, {label}", asked.profiles, found, record, turns)))
    warn_of(parse_profiles(str(out), text).warnings)
    write_output("--out", out, text, Kind.TABLE)
    record.finish()
    output().print(f"written to {escape(str(out))}: for [bold]profiles:[/] in a config", soft_wrap=True)


def _profiles(model: GpuModel, text: str | None) -> tuple[str, ...]:
    """The profiles that the text lists, in the GPU model's order; without a text, the standard ones.

    Raises:
        ExecutorError: It has no such profile.
    """
    listed = () if text is None else tuple(filter(None, (name.strip() for name in text.split(","))))
    names = listed or model.standard_profile_names
    chosen = {model.profile(spelled_as(name, model.profile_names)).name for name in names}
    return tuple(name for name in model.profile_names if name in chosen)


@contextmanager
def _opened(
    name: str, index: int, state: Path, *, beside_others: bool, in_parts: bool = False
) -> Iterator[tuple[RealGpu, str]]:
    """The GPU, with its journal held, so that we are the only controller; and what it is, for people.

    Raises:
        NoGpuError: It is not there, or no table can be of it.
        OtherControllerError: Another controller has it.
    """
    cut = CpuCut.named(name)
    if cut is None:
        mind_other_managers(may_refuse=not beside_others)
    else:
        warn_of(
            f"instances of {other.name} exist, too, and may disturb" for other in standing_cuts(state) if other != cut
        )
    with _driven(name, cut, index, state, in_parts=in_parts) as gpu:
        label = gpu.label if isinstance(gpu, CpuGpu | MpsGpu) else f"{gpu.model.title}, by {gpu.backend}"
        with Journal(file_of(state, gpu.uuid), gpu.boot) as journal:
            Reconciler(gpu, journal, WallClock()).settle()
            warn_of(journal.untold())
            yield RealGpu(gpu, journal, WallClock), label


def _driven(name: str, cut: CpuCut | None, index: int, state: Path, *, in_parts: bool) -> DriverGpu:
    if cut is not None:
        return CpuGpu(cut, state, in_parts=in_parts)
    if (share := MpsCut.named(name)) is not None:
        return MpsGpu(share, index, state, in_parts=in_parts)
    if in_parts and name.casefold() in get_args(BackendName):
        raise MigratorError(f"--shares: --gpu {name} has MIG instances; shares are of mps-a100-80gb-in-7, say")
    if (backend := name.casefold()) in get_args(BackendName):
        return open_gpu(cast("BackendName", backend), index)
    raise MigratorError(
        f"--gpu {name}: auto, nvml, smi, shares by MPS, as mps-a100-80gb-in-7, or this machine's CPU, cut, as "
        "cpu-1.6-in-7, are allowed"
    )


def _disturbed(gpu: DriverGpu, found: Sequence[Figure]) -> Iterator[str]:
    """Where processes did not get the CPU time that their share should give: those that never wait, as to train."""
    if not isinstance(gpu, CpuGpu):
        return
    short = []
    trained = [figure for figure in found if figure.stage.load.strategy is not None]
    for figure in trained:
        due = min(figure.stage.processes, gpu.cut.cores_of(gpu.model.profile(figure.profile)))
        if figure.cores < ENOUGH_CORES * due:
            short.append((figure.cores / due, figure, due))
    if short:
        _, worst, due = min(short, key=lambda item: item[0])
        yield (
            f"other programs took CPU time, so figures are too low ({len(short)} of {len(trained)} retrainings tell): "
            f"{worst.profile} got {worst.cores:.2f} of {due:.2f} cores ({worst.stage.key})"
        )


def _reversed(gpu: DriverGpu, found: Sequence[Figure]) -> Iterator[str]:
    """Where a larger profile is clearly slower than a smaller one."""
    pairs = [
        (small, large)
        for small in found
        for large in found
        if replace(small.stage, layout=large.stage.layout, profiles=large.stage.profiles) == large.stage
        and gpu.model.profile(small.profile).compute_slices < gpu.model.profile(large.profile).compute_slices
        and large.rate_rps < ENOUGH_RATE * small.rate_rps
    ]
    if pairs:
        small, large = min(pairs, key=lambda pair: pair[1].rate_rps / pair[0].rate_rps)
        yield (
            f"{len(pairs)} × a larger profile was slower than a smaller one: the batch fills neither, the "
            f"machine was disturbed, or processes waited for their batches; at worst {large.profile} "
            f"({large.rate_rps:,.0f}/s) than {small.profile} ({small.rate_rps:,.0f}/s), {large.stage.key}"
        )


def _unsure(turns: Mapping[tuple[str, str], Mapping[int, Sequence[float]]]) -> Iterator[str]:
    """Where rounds of turns contradict each other, but for the two outermost."""
    middles = [(own[1], own[-2], *key, batch) for key, costs in turns.items() for batch, own in costs.items()]
    unsure = [one for one in middles if one[1] - one[0] > MOST_SPREAD]
    if unsure:
        low, high, model, profile, batch = max(unsure, key=lambda one: one[1] - one[0])
        yield (
            f"{len(unsure)} of {len(middles)} costs of turns are unsure, because the machine was disturbed or rounds "
            f"were too short (--seconds); at worst {model} on {profile}, batch {batch}: "
            f"{100 * low:+.0f} to {100 * high:+.0f} %"
        )


def _print(found: Sequence[Figure], record: StageLog, label: str) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("model", "profile", "processes", "batch", "mean ms", "median", "p95", "a second"):
        table.add_column(heading, justify="left" if heading in ("model", "profile") else "right", no_wrap=True)
    models = list(dict.fromkeys(figure.stage.model for figure in found))
    for figure in sorted(found, key=lambda one: (models.index(one.stage.model), one.stage.load.strategy is not None)):
        stage = figure.stage
        batch = str(stage.load.batch) if stage.load.strategy is None else f"train {stage.load.batch}"
        times = (f"{1000 * seconds:,.2f}" for seconds in (figure.mean_s, figure.median_s, figure.p95_s))
        table.add_row(
            escape(stage.model), figure.profile, str(stage.processes), batch, *times, f"{figure.rate_rps:,.1f}"
        )
    console = output()
    console.print(f"[bold]{escape(label)}[/]", soft_wrap=True)
    console.print(table)
    for model in models:
        console.print(_start_line(model, record), soft_wrap=True)


def _start_line(model: str, record: StageLog) -> str:
    alone = record.alone.get(model, ())
    if not alone:
        return f"{escape(model)}: no start was seen"
    phases = ", ".join(
        f"{what} {sorted(getattr(one, key) for one in alone)[len(alone) // 2]:.3f}"
        for what, key in (
            ("fork", "fork_s"),
            ("libraries", "library_s"),
            ("model", "model_s"),
            ("first batch", "warm_up_s"),
            ("entering", "enter_s"),
        )
    )
    start = measured_start(model, record)
    slower = "slowdown by others was not seen, so the table says nothing of starts"
    if start is not None:
        slower = f"{100 * start.slowdown_per_other:.0f} % more for each other one at the same time"
    total_s = sorted(one.total_s for one in alone)[len(alone) // 2]
    return f"{escape(model)}: a worker starts in {total_s:.2f} s ({phases}); {slower}"


class _Progress(StageView):
    """A bar with the time left in a terminal, a line a stage anywhere else."""

    def __init__(self, n_stages: int, n_before: int, seconds: float, console: Console) -> None:
        self._n_stages, self._n_done, self._seconds, self._console = n_stages, n_before, seconds, console
        self._n_timed, self._begin_s = 0, time.monotonic()  # of what is timed: stages, with what goes before them
        left = TextColumn("{task.fields[left]}")
        self._bar = moving_line(console, MofNCompleteColumn(), TimeElapsedColumn(), left)
        self._task = self._bar.add_task("starting", total=n_stages, completed=n_before, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def warming(self) -> None:
        """Libraries are being loaded."""
        self._bar.update(self._task, description="loading libraries", left=self._left)

    def measuring(self, stage: Stage) -> None:
        """A stage begins; what was loaded before the first is none of its time."""
        if not self._n_timed:
            self._begin_s = time.monotonic()
        self._bar.update(self._task, description=escape(stage.key), left=self._left)

    def measured(self, stage: Stage, figures: Figures) -> None:
        """A stage is done."""
        self._n_done, self._n_timed = self._n_done + 1, self._n_timed + 1
        self._bar.update(self._task, advance=1, left=self._left)
        if not self._console.is_terminal:
            text_of_one = _rate_text if stage.load.beside is None else _turn_text
            n = stage.processes if stage.load.beside is None else None  # a training beside is none of the model's
            shown = {name: found if isinstance(found, str) else found[:n] for name, found in figures.items()}
            rates = ", ".join(f"{name} {text_of_one(found)}" for name, found in shown.items())
            done = f"{self._n_done} of {self._n_stages}, {self._left}"
            self._console.print(f"{done}: {escape(stage.key)}: {escape(rates)}", soft_wrap=True)

    @property
    def _left(self) -> str:
        n_left = self._n_stages - self._n_done
        each_s = (time.monotonic() - self._begin_s) / self._n_timed if self._n_timed else 1.5 * self._seconds
        return f"about {n_left * each_s:,.0f} s left" if n_left else "done"


def _rate_text(found: tuple[Stretch, ...] | str) -> str:
    return "none" if isinstance(found, str) else f"{sum(one.n_samples / one.span_s for one in found):,.1f}/s"


def _turn_text(found: tuple[Stretch, ...] | str) -> str:
    return "none" if isinstance(found, str) else f"{100 * median(rounds_costs(found)):+.1f} % in turns"
