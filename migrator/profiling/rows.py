"""From what was measured to the rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from executor.mig import GpuModel
from migrator.profiling.record import Record, Stretch
from migrator.profiling.stages import Stage
from workloads.profiles.table import MeasuredStart, ServiceRow


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
    """

    stage: Stage
    profile: str
    mean_s: float
    median_s: float
    p95_s: float
    rate_rps: float
    cores: float


def figures(stages: Iterable[Stage], record: Record) -> Iterator[Figure]:
    """Of all stages that are done, those that there are."""
    for stage in stages:
        for profile, found in record.stages.get(stage.key, {}).items():
            if not isinstance(found, str):
                yield _figure(stage, profile, found)


def failures(stages: Iterable[Stage], record: Record) -> Iterator[str]:
    """What was tried and has no figure, a sentence each."""
    for stage in stages:
        for profile, found in record.stages.get(stage.key, {}).items():
            if isinstance(found, str):
                yield f"{stage.key}: nothing of {profile}: {found}"


def rows(
    gpu: GpuModel, source: str, profiles: Sequence[str], found: Sequence[Figure], record: Record
) -> Iterator[ServiceRow]:
    """The table's rows, by model, profile, processes and batch.

    What no stage measured of ``profiles`` is computed from their neighbours, and marked as derived.
    """
    for model in dict.fromkeys(figure.stage.model for figure in found):
        own = [figure for figure in found if figure.stage.model == model]
        serving = [_row(gpu, source, figure) for figure in own if figure.stage.load.strategy is None]
        training = {figure.profile: figure.rate_rps for figure in own if figure.stage.load.strategy is not None}
        for profile in profiles:
            between = _between(gpu, {row.profile for row in serving}, profile)
            if between is not None:
                serving += _derived_rows(profile, serving, *between)
                training |= _derived_training(profile, training, *between)
        serving.sort(key=lambda row: (profiles.index(row.profile), row.processes, row.batch))
        first = {row.profile: row.key for row in reversed(serving)}
        start = measured_start(model, record)
        for row in serving:
            is_first = first[row.profile] == row.key
            yield replace(
                row,
                training_rps=training.get(row.profile) if is_first else None,
                start=start if row is serving[0] else None,
            )


def measured_start(model: str, record: Record) -> MeasuredStart | None:
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
        mean_s=sum(one.span_s for one in stretches) / sum(one.n_passes for one in stretches),
        median_s=median(one.median_s for one in stretches),
        p95_s=max(one.p95_s for one in stretches),
        rate_rps=sum(one.n_samples / one.span_s for one in stretches),
        cores=sum(one.cpu_s / one.span_s for one in stretches),
    )


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
