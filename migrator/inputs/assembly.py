"""From a config to the setting that it describes: its tenants, GPU model and forecaster; and to its traces' traffic.

All that can be wrong with a config's traces, profiles and SLOs shows here, before anything is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, assert_never

import numpy as np

from executor.catalogue import is_cut
from executor.mig import GpuModel
from executor.names import spelled_as
from forecaster.forecast import Forecaster
from forecaster.neural import FitError, Learned
from forecaster.registry import make_forecaster
from forecaster.seconds import BySeconds, steps_per_second
from migrator.config.sections import (
    ArrivalsConfig,
    Config,
    ForecastConfig,
    TenantConfig,
    load_doubts,
)
from migrator.errors import ConfigError, ConfigSloError
from migrator.extras import lacking
from migrator.inputs.arrival_store import UNKNOWN, ArrivalStore
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.doubts import doubts_of
from migrator.inputs.estimates import as_profiled, service_factors
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import CLIENTS, Origin, RecordedTraffic, Traffic
from workloads.arrays import IntArray
from workloads.errors import ProfileTableError, TraceError, UnmetSloError, WorkloadError
from workloads.profiles.operating_point import OperatingPoint, highest_capability_rps, operating_points, servable_rows
from workloads.profiles.share_table import ShareTable, on_shares, read_share_table
from workloads.profiles.shares import Sensitivity
from workloads.profiles.table import ServiceProfiles, launch_free, read_profiles, shipped_profiles
from workloads.tenants import Drift, Tenant, WindowAccuracy, WorkerStart, retraining_times_s, worker_start
from workloads.traffic.arrivals import PoissonSource, Source, Span, Trace, mean_rps
from workloads.traffic.gaps import Gaps
from workloads.traffic.scaling import Arrivals, Scale, ScaleMethod, method_of, scaled_arrivals
from workloads.traffic.servegen import RATE_WINDOW_S, SERVEGEN_TRACE, servegen_piece
from workloads.traffic.trace_file import Reading, TraceFormat
from workloads.traffic.trace_store import trace_once
from workloads.traffic.trace_times import TimeUnit
from workloads.training import CURVES, Curve, TrainingOption


@dataclass(frozen=True)
class _TenantArrivals:
    config: TenantConfig
    arrivals: Arrivals
    load: float


def assemble(config: Config, origin: str, gpu: GpuModel | None = None) -> tuple[Setting, RecordedTraffic]:
    """The setting that a config describes, and its traffic; ``origin`` (the config's file) begins every message.

    ``gpu`` is what the driver says of the GPU; without it, the catalogue's word counts.

    Raises:
        ConfigSloError: No profile meets a tenant's SLO.
        ConfigError: A tenant's trace, profile or scale does not work out; names the tenant.
    """
    for entry in config.tenants:
        if entry.arrivals.live:
            what = "nothing arrives before clients come; a trace or rate_rps is needed here"
            raise ConfigError(f"{origin}: tenants.{entry.name}.arrivals.live: {what}")
    setting, parts = untraced(config, origin, gpu), []
    for entry in setting.config.tenants:
        with _naming(f"{origin}: tenants.{entry.name}"):
            parts.append(_tenant_arrivals(config, entry, setting, origin))
    setting = replace(
        setting,
        config=config.model_copy(update={"tenants": [part.config for part in parts]}),
        forecaster=forecaster_of(config.forecast, config.step_s, origin, config.n_steps),
    )
    arrivals, loads = [part.arrivals for part in parts], [part.load for part in parts]
    return setting, RecordedTraffic(setting.tenants, arrivals, loads, config.seed)


def assemble_run(
    config: Config, origin: str, gpu: GpuModel | None = None, store: ArrivalStore | None = None
) -> tuple[Setting, Traffic]:
    """As :func:`assemble`, also of a config whose clients are yet to come: there the traffic knows the past alone.

    ``store`` is that of a run that was begun: the stored part of the past before it is not read again.

    Raises:
        ConfigSloError: No profile meets a tenant's SLO.
        ConfigError: A tenant's trace, profile or scale does not work out; names the tenant.
    """
    if not config.has_live_arrivals:
        return assemble(config, origin, gpu)
    setting, parts = untraced(config, origin, gpu), []
    n_seconds = math.ceil(config.forecast.history_s)
    stored = np.full((n_seconds, len(config.tenants)), UNKNOWN) if store is None else store.read(-n_seconds, 0)
    for place, entry in enumerate(setting.config.tenants):
        with _naming(f"{origin}: tenants.{entry.name}"):
            parts.append(_past(entry, stored[:, place]))
    forecaster = forecaster_of(config.forecast, config.step_s, origin, config.n_steps)
    origins, past = [source for source, _ in parts], [counts for _, counts in parts]
    names = [entry.name for entry in setting.config.tenants]
    return replace(setting, forecaster=forecaster), LiveTraffic(names, origins, past)


def _past(entry: TenantConfig, stored: IntArray) -> tuple[Origin, IntArray]:
    """What is taken for a tenant's past before its clients come: what was ``stored`` then, if all of it was."""
    given, notes, counts = entry.arrivals, tuple[str, ...](), stored
    source = CLIENTS
    if given.history is not None:
        source += f", after {Path(given.history).name}"
    elif given.expect_rps is not None:
        source += f", before them {given.expect_rps:g}/s expected"
    if (stored == UNKNOWN).any():
        counts, notes = _past_given(given, len(stored))
    mean = float(counts.mean())
    dispersion = float(counts.var()) / mean if mean else 0.0
    return Origin(source, Scale(ScaleMethod.THIN), 0.0, dispersion, dispersion, notes=notes), counts


def _past_given(given: ArrivalsConfig, history_s: int) -> tuple[IntArray, tuple[str, ...]]:
    """The past that the config says, of so many seconds, and what else a reader should know of it.

    Raises:
        WorkloadError: It says none, or the file cannot be used.
    """
    if given.history is not None:
        trace = trace_once(given.history, Path(), reading_of(given))
        if trace.n_seconds < history_s:
            what = f"{trace.n_seconds} s; forecast.history_s = {history_s} s are needed"
            raise WorkloadError(f"arrivals.history: {given.history}: has {what}")
        if trace.last_s is not None and trace.last_s > time.time():
            what = f"{datetime.fromtimestamp(trace.last_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
            raise WorkloadError(f"arrivals.history: {given.history}: goes on to {what}, which is later than now")
        return trace.counts[-history_s:], trace.notes
    if given.expect_rps is None:
        raise WorkloadError("arrivals: nothing is known of the past; history or expect_rps is needed")
    return np.diff(np.floor(given.expect_rps * np.arange(history_s + 1) + 1e-9)).astype(np.int64), ()


def untraced(config: Config, origin: str, gpu: GpuModel | None = None) -> Setting:
    """The same without what needs traces: there is no forecaster, and scales are as the config has them.

    Raises:
        ConfigSloError: No profile meets a tenant's SLO.
        ConfigError: A tenant's profile does not work out; names the tenant.
    """
    gpu = gpu or config.gpu.cut
    with _naming(f"{origin}: profiles"):
        profiles = service_profiles(config, gpu)
    with _naming(f"{origin}: share_profiles"):
        shares = share_table(config, gpu, profiles)
    if shares is not None and is_cut(gpu.name):
        profiles = _on_shares(config, gpu, profiles, shares)
    entries, tenants = [], []
    for given in config.tenants:
        with _naming(f"{origin}: tenants.{given.name}"):
            entries.append(_as_known(given, gpu, profiles))
            tenants.append(_tenant(config, entries[-1], gpu, profiles))
    known = tuple(as_profiled(config.estimates, config.seed, gpu, tenant) for tenant in tenants)
    return Setting(
        config=config.model_copy(update={"tenants": entries}),
        gpu=gpu,
        tenants=tuple(tenants),
        known_tenants=known,
        forecaster=None,
        profiles=profiles,
        shares=shares,
        warnings=(
            *profiles.warnings,
            *(() if shares is None else shares.warnings),
            *load_doubts(config.load),
            *doubts_of(config, gpu, known),
        ),
    )


def unmoved_by_load(option: str, origin: str, tenants: Sequence[TenantConfig]) -> tuple[str, ...]:
    """Whom the option's load does not move, in a sentence; nothing where it moves all.

    Raises:
        ConfigError: It moves none of them.
    """
    own = [tenant.name for tenant in tenants if tenant.arrivals.scale.factor is not None]
    if len(own) == len(tenants):
        raise ConfigError(f"{option}: {origin} has a scale.factor for every tenant, so that no load moves them")
    return (f"{option} does not move {', '.join(own)} of {origin}, with a scale.factor of its own",) if own else ()


def _as_known(entry: TenantConfig, gpu: GpuModel, profiles: ServiceProfiles) -> TenantConfig:
    """The entry with its model and profile spelled as the table and the GPU spell them."""
    spelled = {"model": spelled_as(entry.model, profiles.models(gpu.name))}
    if entry.min_profile is not None:
        spelled["min_profile"] = spelled_as(entry.min_profile, gpu.profile_names)
    return entry.model_copy(update=spelled)


def service_profiles(config: Config, gpu: GpuModel | None = None) -> ServiceProfiles:
    """The table that the config names, or the shipped one, in the config's variant, for the GPU's own profiles.

    Raises:
        ProfileTableError: No such file, a malformed row, or the GPU has none of the profiles.
    """
    card = gpu or config.gpu.cut
    profiles = shipped_profiles() if config.profiles is None else read_profiles(Path(config.profiles), card)
    return (launch_free(profiles) if config.profile_variant == "launch-free" else profiles).on(card)


def share_table(config: Config, gpu: GpuModel, profiles: ServiceProfiles) -> ShareTable | None:
    """What the config's ``share_profiles`` has of shares of the GPU; ``None`` where it names no file.

    Raises:
        ProfileTableError: The file is none, or lacks a tenant's model, its batch, or its processes.
    """
    if config.share_profiles is None:
        return None
    if config.profile_variant != "recorded":
        raise ProfileTableError(
            f"profile_variant is {config.profile_variant}, and shares are as recorded: recorded is needed"
        )
    found = read_share_table(Path(config.share_profiles), gpu)
    for tenant in config.tenants:
        batches = found.knees(spelled_as(tenant.model, profiles.models(gpu.name)))
        if tenant.processes not in ("auto", 1):
            raise ProfileTableError(
                f"tenants.{tenant.name}.processes is {tenant.processes}; shares have one: 1, or auto"
            )
        if tenant.batch != "auto" and tenant.batch not in batches:
            allowed = ", ".join(map(str, sorted(batches)))
            raise ProfileTableError(
                f"tenants.{tenant.name}.batch is {tenant.batch}; {found.name} has {allowed}, or auto"
            )
        if tenant.max_batch is not None and tenant.max_batch < min(batches):
            raise ProfileTableError(
                f"tenants.{tenant.name}.max_batch is {tenant.max_batch}; {found.name} has {min(batches)} at least"
            )
    return found


def _on_shares(config: Config, gpu: GpuModel, profiles: ServiceProfiles, shares: ShareTable) -> ServiceProfiles:
    """The table of a GPU that is cut in shares, with what was measured on them: beside trainings, if there are any."""
    known = profiles.models(gpu.name)
    trainers = [spelled_as(one.model, known) for one in config.tenants if one.retraining is not None]
    longer = {
        model: shares.sensitivity(model, Sensitivity(1.0, 1.0), trainers).beside_retraining if trainers else 1.0
        for model in (spelled_as(one.model, known) for one in config.tenants)
    }
    return on_shares(profiles, gpu, shares, longer)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Puts the config's name and key before a workload's error."""
    try:
        yield
    except UnmetSloError as error:
        raise ConfigSloError(f"{where}: {error}") from None
    except WorkloadError as error:
        raise ConfigError(f"{where}: {error}") from None


def _tenant_arrivals(config: Config, entry: TenantConfig, setting: Setting, origin: str) -> _TenantArrivals:
    most_rps = highest_capability_rps(setting.gpu, _points(entry, setting.gpu, setting.profiles).values())
    source, span, load_span = _source(config, entry)
    factor = _factor(config, entry, most_rps, source, load_span)
    method = entry.arrivals.scale.method
    scale = Scale(
        method=method_of(source, factor) if method is None else ScaleMethod(method),
        factor=factor,
        smooth_s=entry.arrivals.scale.smooth_s,
    )
    window_s = round(config.window_s)
    arrivals = scaled_arrivals(source, scale, span, seed=config.seed, tenant=entry.name, window_s=window_s)
    if arrivals.history_counts.size < config.forecast.history_s:
        offset_s = _span(config, entry).offset_s
        raise ConfigError(
            f"{origin}: tenants.{entry.name}.arrivals.offset_s is {offset_s}; the forecaster needs "
            f"forecast.history_s = {config.forecast.history_s:g} s of the trace before it (or loop: true)"
        )
    if arrivals.history_counts.size and not arrivals.history_counts.any():
        empty = f"no request in the {arrivals.history_counts.size:,} s before window 0, from which is forecast"
        arrivals = replace(arrivals, notes=(*arrivals.notes, empty))
    return _TenantArrivals(_with_scale(entry, scale), arrivals, float(arrivals.counts.mean()) / most_rps)


def _tenant(config: Config, entry: TenantConfig, gpu: GpuModel, profiles: ServiceProfiles) -> Tenant:
    misjudged = service_factors(config.estimates, config.seed, gpu, entry.model)
    points = _points(entry, gpu, profiles, misjudged)
    # 3g and 4g of an A100 have as many memory slices.
    min_profile = entry.min_profile or min(
        points, key=lambda name: (gpu.profile(name).memory_slices, gpu.profile(name).compute_slices)
    )
    if min_profile not in gpu.profile_names:
        raise WorkloadError(f"min_profile is {min_profile!r}; {gpu.name} has {', '.join(gpu.profile_names)}")
    training_s: Mapping[str, float] = {}
    if entry.retraining is not None:
        n_samples, n_epochs = entry.retraining.samples, entry.retraining.epochs
        training_s = retraining_times_s(profiles, gpu.name, entry.model, n_samples=n_samples, n_epochs=n_epochs)
    start_up = _start_up(config, worker_start(profiles, gpu.name, entry.model), entry.worker_start_s)
    return Tenant(
        name=entry.name,
        model=entry.model,
        slo_s=entry.slo_ms / 1000,
        operating_points=points,
        retraining_time_s=training_s,
        accuracy=tuple(WindowAccuracy(item.before, item.after) for item in entry.accuracies),
        min_profile=min_profile,
        weight=entry.weight,
        worker_start=start_up,
        retraining_start=_start_up(config, start_up, entry.retraining_start_s),
        n_retraining_windows=None if entry.retraining is None else entry.retraining.windows,
        measured_retraining=frozenset(profiles.training_rps(gpu.name, entry.model)),
        drift=Drift(config.retraining.drift),
        rows=servable_rows(profiles, gpu.name, entry.model, entry.batch, entry.processes, entry.max_batch),
        alone=entry.alone,
        **_decisions(config, entry, training_s),
    )


def _points(
    entry: TenantConfig, gpu: GpuModel, profiles: ServiceProfiles, misjudged: Mapping[str, float] = MappingProxyType({})
) -> Mapping[str, OperatingPoint]:
    """How the tenant is served on each profile; batches and processes are chosen by ``misjudged`` latencies."""
    chosen = (entry.batch, entry.processes, entry.max_batch)
    return operating_points(profiles, gpu.name, entry.model, entry.slo_ms / 1000, *chosen, misjudged)


def _decisions(config: Config, entry: TenantConfig, training_s: Mapping[str, float]) -> dict[str, Any]:
    """What is to be decided of a tenant's retrainings, as :class:`Tenant` has it."""
    own, all_ = entry.retraining, config.retraining
    if own is None:
        return {}
    is_pinned = config.pins_layout or not config.pin.retraining or entry.pin.weights is not None
    curve = _curve(all_.curve if own.curve is None else own.curve)
    options = []
    for option in own.options:
        part = (option.samples or own.samples) * (option.epochs or own.epochs) / (own.samples * own.epochs)
        gain = curve.gain(part) if option.gain is None else option.gain
        options.append(TrainingOption(option.name, {name: part * s for name, s in training_s.items()}, gain))
    return {
        "retraining_required": all_.required if own.required is None else own.required,
        "max_skipped": all_.max_skipped if own.max_skipped is None else own.max_skipped,
        "retrain_below": 0.0 if is_pinned else own.below,  # no accuracy is lower: it still falls behind
        "other_options": tuple(options),
        "checkpoints": tuple((part, curve.gain(part)) for part in all_.checkpoints),
        "checkpoint_s": all_.checkpoint_s,
        "swap_s": all_.swap_s,
    }


def _curve(given: str | Sequence[Sequence[float]]) -> Curve:
    if isinstance(given, str):
        return CURVES[given]
    return Curve(points=tuple((part, gain) for part, gain in given))


def _start_up(config: Config, default: WorkerStart, base_s: float | None) -> WorkerStart:
    """The start-up of a tenant's workers: the config's seconds if it has any, with the default's slowdown."""
    jitter = config.simulation.start_jitter
    if base_s is None:
        return replace(default, jitter=jitter)
    return replace(default.lasting(base_s, "config"), jitter=jitter)


def _source(config: Config, entry: TenantConfig) -> tuple[Source, Span, Span]:
    """Where the tenant's requests come from, and the parts of it that the run uses, and that ``load`` is of."""
    span, given = _span(config, entry), entry.arrivals
    load_span = replace(span, duration_s=round(config.n_load_windows * config.window_s))
    if given.trace is None:
        return PoissonSource(given.rate_rps or 0.0), span, load_span
    if given.trace == SERVEGEN_TRACE:
        is_longer = _follows_load(config, entry) and load_span.duration_s > span.duration_s
        margin_s = max(RATE_WINDOW_S, given.scale.smooth_s)
        trace, piece = servegen_piece(load_span if is_longer else span, config.seed, margin_s)
        return trace, replace(piece, duration_s=span.duration_s), replace(piece, duration_s=load_span.duration_s)
    return trace_once(given.trace, Path(), reading_of(given)), span, load_span


def reading_of(given: ArrivalsConfig) -> Reading:
    """How the config has its trace file read."""
    return Reading(
        format=None if given.format is None else TraceFormat(given.format),
        sort=given.sort,
        gaps=None if given.gaps is None else Gaps(given.gaps),
        column=given.column,
        unit=None if given.unit is None else TimeUnit(given.unit),
        time_column=given.time_column,
    )


def _span(config: Config, entry: TenantConfig) -> Span:
    history_s = math.ceil(config.forecast.history_s)
    offset_s = history_s if entry.arrivals.offset_s is None else entry.arrivals.offset_s
    return Span(
        offset_s=offset_s,
        duration_s=round(config.windows * config.window_s),
        history_s=history_s,
        loop=entry.arrivals.loop,
    )


def _follows_load(config: Config, entry: TenantConfig) -> bool:
    return config.load is not None and entry.arrivals.scale.factor is None


def _factor(config: Config, entry: TenantConfig, most_rps: float, source: Source, load_span: Span) -> float:
    """The scale factor: the config's, or what brings the tenant to its share of ``load``, or 1."""
    if entry.arrivals.scale.factor is not None:
        return entry.arrivals.scale.factor
    if config.load is None:
        return 1.0
    try:
        source_rps = mean_rps(source, load_span)
    except TraceError as error:
        if config.n_load_windows == config.windows:
            raise
        raise TraceError(f"load is over load_windows = {config.n_load_windows} windows, and {error}") from None
    if source_rps <= 0:
        told = "".join(f"; {note}" for note in source.notes) if isinstance(source, Trace) else ""
        raise WorkloadError(
            f"arrivals: the chosen part of the trace holds no request, so no factor brings it to a load{told}"
        )
    share = entry.load_share / sum(tenant.load_share for tenant in config.tenants)
    return config.load * share * most_rps / source_rps


def _with_scale(entry: TenantConfig, made: Scale) -> TenantConfig:
    scale = entry.arrivals.scale.model_copy(update={"method": made.method.value, "factor": made.factor})
    return entry.model_copy(update={"arrivals": entry.arrivals.model_copy(update={"scale": scale})})


def forecaster_of(
    settings: ForecastConfig, step_s: float, origin: str, n_steps: int | None = None
) -> Forecaster | None:
    """The configured forecaster, its seconds turned into steps; ``None`` where arrivals are known.

    For steps that are parts of a second, seconds are forecast. ``n_steps`` are those of a window, for which a fitted
    model has to be made.

    Raises:
        ConfigError: It needs more history than ``forecast.history_s``, a season of whole steps, or a library that
            is not there.
    """
    forecaster: Forecaster
    if lacks := lacking_for(settings.method):
        raise ConfigError(f"{origin}: forecast.method {settings.method} {lacks}")
    each = steps_per_second(step_s)
    unit_s = step_s if each == 1 else 1.0
    n_units = None if n_steps is None else math.ceil(n_steps / each)
    match settings.method:
        case "ewma":
            forecaster = make_forecaster("ewma", half_life_steps=settings.half_life_s / unit_s)
        case "seasonal-naive":
            season_steps = round(settings.season_s / unit_s)
            if abs(settings.season_s / unit_s - season_steps) > 1e-6 or season_steps < 1:
                needed = f"a whole number of steps of {unit_s:g} s is" if each == 1 else "whole seconds are"
                raise ConfigError(f"{origin}: forecast.season_s is {settings.season_s:g}; {needed} needed")
            forecaster = make_forecaster("seasonal-naive", season_steps=season_steps)
        case "informer" | "nhits":
            forecaster = _learned(settings, unit_s, origin, n_units)
        case "auto" | "window" | "short-term" | "lightgbm":
            forecaster = make_forecaster(settings.method)
        case "known":
            return None
        case _:
            assert_never(settings.method)
    if forecaster.min_history_steps > round(settings.history_s / unit_s):
        raise ConfigError(
            f"{origin}: forecast.history_s is {settings.history_s:g}; {settings.method} needs at least "
            f"{forecaster.min_history_steps * unit_s:g} s"
        )
    return forecaster if each == 1 else BySeconds(forecaster, each)


def lacking_for(method: str) -> str | None:
    """Which library the forecaster lacks, to be put after its name; ``None`` where it has all."""
    return lacking("forecast") if method == "lightgbm" else None


def _learned(settings: ForecastConfig, step_s: float, origin: str, n_steps: int | None) -> Learned:
    """The fitted model that the config names.

    Raises:
        ConfigError: It cannot be used, is another network, or was fitted for other windows.
    """
    assert settings.model is not None  # as the config is validated
    try:
        model = Learned(Path(settings.model))
    except FitError as error:
        raise ConfigError(f"{origin}: forecast.model: {error}") from None
    if model.name != settings.method:
        raise ConfigError(
            f"{origin}: forecast.method is {settings.method}; the model in {model.folder} is {model.name}"
        )
    fitted = model.recipe.window_steps
    if step_s != 1 or n_steps not in (None, fitted):
        raise ConfigError(
            f"{origin}: forecast.model: {model.folder} was fitted for windows of {fitted} steps of 1 s; "
            f"the config has {n_steps} of {step_s:g} s"
        )
    return model
