"""What was measured, and what it comes to as rows of a table.

The record is a file beside the table to be, a line a stage, from which the same command goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, MsgspecError, Struct, json

from executor.files import open_appended, read_input, write_all
from executor.messages import Mebibytes, Seconds
from executor.mig import GpuModel
from migrator.errors import MigratorError, OutputError
from migrator.profiling.stages import SharePlan, Stage
from workloads.profiles.share_table import ShareRow
from workloads.profiles.table import MeasuredStart, ServiceRow


class Stretch(Struct, frozen=True, forbid_unknown_fields=True):
    """What one process did from one batch's begin to a later one's end, without a pause.

    Attributes:
        n_passes: Batches answered, or steps made.
        n_samples: Requests in them, or new samples.
        span_s: Seconds that they took together.
        median_s: Of one.
        p95_s: Of 95 in 100, no longer than this.
        cpu_s: CPU time of the process meanwhile.
        weights_mib: What the model took as the process made it; ``None``: it is not known, as the others.
        context_mib: What else the process held before its first measured batch.
        batch_mib: What a batch takes at work.
        p99_s: Of 99 in 100, no longer than this.
    """

    n_passes: Annotated[int, Meta(ge=1)]
    n_samples: Annotated[float, Meta(gt=0)]
    span_s: Annotated[float, Meta(gt=0)]
    median_s: Seconds
    p95_s: Seconds
    cpu_s: Seconds
    weights_mib: Mebibytes | None = None
    context_mib: Mebibytes | None = None
    batch_mib: Mebibytes | None = None
    p99_s: Seconds | None = None

    @property
    def mean_s(self) -> float:
        """Mean seconds of a batch, or of a step."""
        return self.span_s / self.n_passes


class StartPhases(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of one start, from being asked for until it could serve in its instance.

    Attributes:
        fork_s: Until the process ran.
        library_s: Until its libraries were loaded.
        model_s: Until the model was made.
        warm_up_s: Until it had answered a first batch.
        enter_s: Until it was in its instance, where its environment does not say that from the beginning.
    """

    fork_s: Seconds
    library_s: Seconds
    model_s: Seconds
    warm_up_s: Seconds
    enter_s: Seconds

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.fork_s + self.library_s + self.model_s + self.warm_up_s + self.enter_s


Figures = Mapping[str, tuple[Stretch, ...] | str]
"""Of one stage, by profile: a stretch of each process in one instance, or why there is none.

In turns: of the one process and that of the other model, four a round, as ``Crew.measured`` has them.
"""


class _Line(Struct, frozen=True, tag_field="record", tag=str.lower, forbid_unknown_fields=True):
    """A line of the file."""


class Begun(_Line, frozen=True):
    """The first line: by what the measurement was begun, as JSON has it."""

    settings: dict[str, Any]
    schema: Literal[2] = 2


class Measured(_Line, frozen=True):
    """A stage is done."""

    stage: str
    figures: dict[str, tuple[Stretch, ...] | str]


class Started(_Line, frozen=True):
    """So many workers of the model were started at the same time, or one alone."""

    model: str
    phases: tuple[StartPhases, ...]


_LINE: json.Decoder[Begun | Measured | Started] = json.Decoder(Begun | Measured | Started)


class StageLog:
    """The stages that are done and the starts that were seen. A context that closes the file.

    Attributes:
        path: The file.
        stages: The figures of each stage that is done, by its key.
        alone: Starts of one worker, by model.
        at_once: Starts of several workers at the same time, by model: how many, and each one's.
    """

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        """Begin the file, or take up what is in it; ``settings`` as JSON has them.

        Raises:
            MigratorError: It is of other settings, or none of ours.
            OutputError: It cannot be written.
        """
        self.path = path
        self.stages: dict[str, Figures] = {}
        self.alone: dict[str, list[StartPhases]] = {}
        self.at_once: dict[str, list[tuple[StartPhases, ...]]] = {}
        lines, n_bytes = self._lines()
        if lines:
            self._check(lines[0], settings)
            for number, line in enumerate(lines[1:], start=2):
                self._take(number, line)
        try:
            self._file = open_appended(path)
            self._file.truncate(n_bytes)  # a line that was cut short
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
        if not lines:
            self._write(Begun(dict(settings)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def finish(self) -> None:
        """Remove the file: the table is written."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def has(self, key: str) -> bool:
        """Whether the stage is done; one of which something failed is to be tried again."""
        return key in self.stages and not any(isinstance(found, str) for found in self.stages[key].values())

    def add_stage(self, key: str, figures: Figures) -> None:
        """A stage is done."""
        self.stages[key] = figures
        self._write(Measured(key, dict(figures)))

    def add_starts(self, model: str, starts: tuple[StartPhases, ...]) -> None:
        """So many workers of the model were started at the same time, or one alone."""
        self._add_starts(model, starts)
        self._write(Started(model, starts))

    def _add_starts(self, model: str, starts: tuple[StartPhases, ...]) -> None:
        if len(starts) == 1:
            self.alone.setdefault(model, []).append(starts[0])
        else:
            self.at_once.setdefault(model, []).append(starts)

    def _lines(self) -> tuple[list[bytes], int]:
        """The whole lines, and their bytes."""
        try:
            raw = read_input(self.path)
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise MigratorError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        whole = raw[: raw.rfind(b"\n") + 1]
        return whole.splitlines(), len(whole)

    def _check(self, line: bytes, settings: Mapping[str, object]) -> None:
        """That the file was begun by the same command.

        Raises:
            MigratorError: It was not; names the first setting that differs.
        """
        begun = self._parsed(1, line)
        if not isinstance(begun, Begun):
            raise self._foreign(1)
        old = begun.settings
        key = next((key for key, value in settings.items() if old.get(key) != value), None)
        if key is None:
            return
        how = f"{key} was {old.get(key)}, and is {settings[key]}"
        raise MigratorError(
            f"{self.path}: an earlier measurement was cut off, and this one differs: {how}; "
            "give the same options to go on with it, or remove the file"
        )

    def _take(self, number: int, line: bytes) -> None:
        match self._parsed(number, line):
            case Measured(stage=stage, figures=figures):
                self.stages[stage] = figures
            case Started(model=model, phases=phases):
                self._add_starts(model, phases)
            case Begun():
                raise self._foreign(number)

    def _parsed(self, number: int, line: bytes) -> Begun | Measured | Started:
        try:
            return _LINE.decode(line)
        except (MsgspecError, ValueError):
            raise self._foreign(number) from None

    def _foreign(self, number: int) -> MigratorError:
        return MigratorError(f"{self.path} line {number}: not a record of a measurement; remove the file to begin anew")

    def _write(self, line: Begun | Measured | Started) -> None:
        try:
            write_all(self._file, json.encode(line) + b"\n")
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror or error}") from None


class StageView:
    """Hears how far the measurement is; these methods do nothing."""

    def warming(self) -> None:
        """Libraries are being loaded."""

    def measuring(self, stage: Stage) -> None:
        """A stage begins."""

    def measured(self, stage: Stage, figures: Figures) -> None:
        """A stage is done."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What an instance came to in one stage, all its processes together.

    Attributes:
        stage: Which.
        profile: Of the instance.
        mean_s: Mean seconds of a batch, or of a step, on one process: what is planned with.
        median_s: The median.
        p95_s: 95 of 100 took no longer, on the worst process.
        rate_rps: Requests a second, or new samples of a retraining.
        cores: CPU seconds a second that the processes used.
        weights_mib: Of the model in one process, the largest; ``None``: it is not known.
        context_mib: What else one process holds, the largest; likewise.
        batch_mib: What the batches of all processes take together; likewise.
    """

    stage: Stage
    profile: str
    mean_s: float
    median_s: float
    p95_s: float
    rate_rps: float
    cores: float
    weights_mib: float | None = None
    context_mib: float | None = None
    batch_mib: float | None = None


def figures(stages: Iterable[Stage], record: StageLog) -> Iterator[Figure]:
    """Of all stages that are done, those that there are, but for turns."""
    for stage in stages:
        if stage.load.beside is not None:
            continue
        for profile, found in record.stages.get(stage.key, {}).items():
            if not isinstance(found, str):
                yield _figure(stage, profile, found)


def turn_costs(stages: Iterable[Stage], record: StageLog) -> dict[tuple[str, str], dict[int, list[float]]]:
    """By model and profile, then by batch: by which share turns took longer, as :func:`rounds_costs` has it."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for stage in stages:
        for profile, told in record.stages.get(stage.key, {}).items() if stage.load.beside is not None else ():
            if not isinstance(told, str):
                found.setdefault((stage.model, profile), {})[stage.load.batch] = rounds_costs(told)
    return found


def rounds_costs(rounds: Sequence[Stretch]) -> list[float]:
    """By which share two batches in turns, one of each model, took longer than in succession: each round's, ascending.

    Both are counted together, because what one has used up of a CPU's quota, or left of a cache, the other waits for.
    The four figures of a round are of about the same time, so that what slows all of them down is not in their ratio.
    """
    means_s = [stretch.mean_s for stretch in rounds]
    fours = (means_s[first : first + 4] for first in range(0, len(means_s), 4))
    return sorted(sum(four[2:]) / sum(four[:2]) - 1 for four in fours)


def failures(stages: Iterable[Stage], record: StageLog) -> Iterator[str]:
    """What was tried and has no figure, a sentence each."""
    for stage in stages:
        for profile, found in record.stages.get(stage.key, {}).items():
            if isinstance(found, str):
                yield f"{stage.key}: nothing of {profile}: {found}"


def rows(
    gpu: GpuModel,
    source: str,
    profiles: Sequence[str],
    found: Sequence[Figure],
    record: StageLog,
    turns: Mapping[tuple[str, str], Mapping[int, Sequence[float]]] = MappingProxyType({}),
) -> Iterator[ServiceRow]:
    """The table's rows, by model, profile, processes and batch; ``turns`` as :func:`turn_costs` has them.

    What no stage measured of ``profiles`` is computed from their neighbours, and marked as derived. A turn's cost is
    the median over batches of the median over rounds, and no less than 0.
    """
    for model in dict.fromkeys(figure.stage.model for figure in found):
        own = [figure for figure in found if figure.stage.model == model]
        serving = [_row(gpu, source, figure) for figure in own if figure.stage.load.strategy is None]
        contexts_mib = {figure.profile: figure.context_mib for figure in own if figure.context_mib is not None}
        training = {figure.profile: figure.rate_rps for figure in own if figure.stage.load.strategy is not None}
        for profile in profiles:
            between = _between(gpu, {row.profile for row in serving}, profile)
            if between is not None:
                serving += _derived_rows(profile, serving, *between)
                training |= _derived_training(profile, training, *between)
                if between[0] in contexts_mib and between[1] in contexts_mib:
                    contexts_mib[profile] = max(contexts_mib[between[0]], contexts_mib[between[1]])
        serving.sort(key=lambda row: (profiles.index(row.profile), row.processes, row.batch))
        first = {row.profile: row.key for row in reversed(serving)}
        start = measured_start(model, record)
        weights_mib = max((figure.weights_mib for figure in own if figure.weights_mib), default=None)
        for row in serving:
            is_first = first[row.profile] == row.key
            costs = [median(each) for each in turns.get((model, row.profile), {}).values()]
            yield replace(
                row,
                training_rps=training.get(row.profile) if is_first else None,
                start=start if row is serving[0] else None,
                weights_mib=weights_mib if row is serving[0] else None,
                context_mib=contexts_mib.get(row.profile) if is_first else None,
                turn_cost=max(0.0, median(costs)) if is_first and costs else None,
            )


def share_rows(gpu: str, asked: SharePlan, stages: Iterable[Stage], record: StageLog) -> Iterator[ShareRow]:
    """The table's rows, of the stages that have figures."""
    trainers = {one.text: one.model for one in asked.trainers}
    for stage in stages:
        for profile, found in record.stages.get(stage.key, {}).items():
            if isinstance(found, str):
                continue
            served, *trained = found
            trainer = stage.load.trainer
            yield ShareRow(
                gpu=gpu,
                model=stage.model,
                batch=stage.load.batch,
                share=int(profile.removesuffix("pc")) / 100,
                beside="" if trainer is None else trainers[trainer],
                mean_s=served.mean_s,
                p99_s=max(served.mean_s, served.p95_s if served.p99_s is None else served.p99_s),
                step_s=trained[0].mean_s if trained else None,
            )


def measured_start(model: str, record: StageLog) -> MeasuredStart | None:
    """Medians of the starts that were seen; ``None`` where none was seen alone, or none together with others."""
    alone, at_once = record.alone.get(model, ()), record.at_once.get(model, ())
    if not alone or not at_once:
        return None
    library_s = median(start.fork_s + start.library_s for start in alone)
    base_s = median(start.total_s for start in alone)
    slowdowns = [(median(start.total_s for start in group) / base_s - 1) / (len(group) - 1) for group in at_once]
    return MeasuredStart(library_s, max(0.0, base_s - library_s), max(0.0, median(slowdowns)))


def _figure(stage: Stage, profile: str, stretches: Sequence[Stretch]) -> Figure:
    return Figure(
        stage=stage,
        profile=profile,
        # Of what all do in a second: a process that was slow may have been watched for longer than the others.
        mean_s=len(stretches) / sum(one.n_passes / one.span_s for one in stretches),
        median_s=median(one.median_s for one in stretches),
        p95_s=max(one.p95_s for one in stretches),
        rate_rps=sum(one.n_samples / one.span_s for one in stretches),
        cores=sum(one.cpu_s / one.span_s for one in stretches),
        weights_mib=_all_of(max, [one.weights_mib for one in stretches]),
        context_mib=_all_of(max, [one.context_mib for one in stretches]),
        batch_mib=_all_of(sum, [one.batch_mib for one in stretches]),
    )


def _all_of(how: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """What they come to, where all are known."""
    known = [value for value in values if value is not None]
    return how(known) if len(known) == len(values) else None


def _row(gpu: GpuModel, source: str, figure: Figure) -> ServiceRow:
    stage = figure.stage
    return ServiceRow(
        source=source,
        gpu=gpu.name,
        model=stage.model,
        profile=figure.profile,
        batch=stage.load.batch,
        processes=stage.processes,
        latency_s=figure.mean_s,
        throughput_rps=figure.rate_rps,
        batch_mib=figure.batch_mib,
    )


def _between(gpu: GpuModel, measured: Iterable[str], profile: str) -> tuple[str, str, float] | None:
    """The next smaller and the next larger measured profile, and how far from the one to the other it is."""
    if profile in (known := set(measured)):
        return None
    size = {name: gpu.profile(name).compute_slices for name in known}
    own = gpu.profile(profile).compute_slices
    below = max((name for name in known if size[name] < own), key=size.__getitem__, default=None)
    above = min((name for name in known if size[name] > own), key=size.__getitem__, default=None)
    if below is None or above is None:
        return None
    return below, above, (own - size[below]) / (size[above] - size[below])


def _derived_rows(
    profile: str, serving: Sequence[ServiceRow], below: str, above: str, share: float
) -> list[ServiceRow]:
    larger = {(row.batch, row.processes): row for row in serving if row.profile == above and not row.derived}
    made = []
    for row in serving:
        other = larger.get((row.batch, row.processes))
        if row.profile != below or row.derived or other is None:
            continue
        rate_rps = row.throughput_rps + share * (other.throughput_rps - row.throughput_rps)
        made.append(
            replace(
                row,
                profile=profile,
                latency_s=row.batch * row.processes / rate_rps,
                throughput_rps=rate_rps,
                batch_mib=_all_of(max, [row.batch_mib, other.batch_mib]),
                derived=f"throughput between {below} and {above}, by compute slices",
            )
        )
    return made


def _derived_training(
    profile: str, training: Mapping[str, float], below: str, above: str, share: float
) -> dict[str, float]:
    if below not in training or above not in training:
        return {}
    return {profile: training[below] + share * (training[above] - training[below])}
