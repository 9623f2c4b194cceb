"""Arrivals second by second, of a trace or of a run that was logged, and what forecasters are worth on them.

Every forecaster is judged on the same series: at the same origins, from as much history, beside what then came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forecaster.auto import FAILED
from forecaster.forecast import FloatArray, Forecaster
from forecaster.neural import METHODS, FitError, FittedOn, Learned
from forecaster.registry import forecaster_names
from forecaster.scores import LEADS_S, Pooled, Trials, origins_between, pooled, rolling, score, score_of_total
from migrator.config.sections import ForecastConfig
from migrator.errors import MigratorError
from migrator.extras import model_text
from migrator.inputs.assembly import forecaster_of, lacking_for
from migrator.log.runlog import read_log
from workloads.traffic.arrivals import Span, cut
from workloads.traffic.servegen import SERVEGEN_TRACE, servegen_piece
from workloads.traffic.trace_store import trace_once

SERVEGEN_S = 86_400
"""Of the synthetic trace so many seconds are drawn where no number is given; all of its fourteen days take long."""


class SeriesError(MigratorError):
    """What was named has no arrivals to work with; names it, and what is needed."""


@dataclass(frozen=True, eq=False)
class Series:
    """Arrivals of n tenants in T consecutive seconds. The array is read-only.

    Attributes:
        name: Of the trace or the run.
        tenants: Their names; a trace is one tenant.
        rates_rps: Requests in each second, ``(T, n)``.
        first_s: The second of the trace, or of the run, at which they begin.
        notes: What was left out or made up, a sentence each.
    """

    name: str
    tenants: tuple[str, ...]
    rates_rps: FloatArray
    first_s: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.rates_rps.setflags(write=False)

    @property
    def n_seconds(self) -> int:
        """Its length, T."""
        return len(self.rates_rps)

    def fingerprint(self, n_seconds: int, first: int = 0) -> str:
        """SHA-256 of ``n_seconds`` from second ``first`` on, by which a fitted model tells what it has seen."""
        part = np.ascontiguousarray(self.rates_rps[first : first + n_seconds])
        return sha256(repr(part.shape).encode() + part.tobytes()).hexdigest()


def read_series(source: str, seconds: tuple[int, int] | None = None) -> Series:
    """The arrivals of a run's folder, of a shipped trace by its name, or of a trace file.

    ``seconds`` is the half-open part that is wanted, in seconds of the trace or the run; everything by default, and a
    day of the synthetic trace.

    Raises:
        SeriesError: The part lies outside, or a run has no finished window.
        LogError: The folder holds no log of ours.
        TraceError: The file holds no trace.
    """
    path = Path(source)
    if source == SERVEGEN_TRACE:
        return _synthetic(seconds)
    if path.is_dir():
        whole = _of_run(path)
    else:
        trace = trace_once(source, Path())
        whole = Series(source, (source,), trace.counts[:, np.newaxis].astype(np.float64), notes=trace.notes)
    if seconds is None:
        return whole
    first, end = seconds
    begin, known_end = whole.first_s, whole.first_s + whole.n_seconds
    if first < begin or end > known_end:
        raise SeriesError(f"--seconds {first}:{end}: {source} has seconds {begin} to {known_end}")
    return Series(whole.name, whole.tenants, whole.rates_rps[first - begin : end - begin], first, whole.notes)


def _synthetic(seconds: tuple[int, int] | None) -> Series:
    first, end = seconds or (0, SERVEGEN_S)
    trace, span = servegen_piece(Span(first, end - first), seed=0)
    counts = cut(trace, span.offset_s, span.duration_s).counts
    note = f"{trace.name}: seconds {first:,} to {end:,} of its fourteen days, drawn with seed 0"
    return Series(SERVEGEN_TRACE, (SERVEGEN_TRACE,), counts[:, np.newaxis].astype(np.float64), first, (note,))


def _of_run(folder: Path) -> Series:
    """The arrivals in the longest unbroken stretch of seconds that a run's finished windows count."""
    log = read_log(folder)
    settled, window_s = log.settled, round(log.header.window_s)
    names = tuple(tenant.name for tenant in log.header.tenants)
    rates = np.full((window_s * (1 + max(settled, default=-1)), len(names)), np.nan)
    for window, closing in settled.items():
        nobody = [np.nan] * window_s
        own = [closing.tenants[name].arrivals if name in closing.tenants else nobody for name in names]
        rates[window * window_s : (window + 1) * window_s] = np.array(own).T
        rates[sorted(closing.blind_seconds)] = np.nan
    first, end = _longest_stretch(~np.isnan(rates).any(axis=1))
    if first == end:
        raise SeriesError(f"{folder}: no window of the run is finished, so that its log holds no arrivals")
    notes: tuple[str, ...] = ()
    if end - first < window_s * len(settled):
        notes = (f"{folder}: of seconds with gaps between them the longest stretch, {first:,} to {end:,}",)
    return Series(str(folder), names, rates[first:end], first, notes)


def _longest_stretch(known: NDArray[np.bool_]) -> tuple[int, int]:
    """The first of the longest stretches of what is known, half-open; an empty one if nothing is."""
    edges = np.flatnonzero(np.diff(known, prepend=False, append=False)).tolist()
    return max(zip(edges[::2], edges[1::2], strict=True), key=lambda stretch: stretch[1] - stretch[0], default=(0, 0))


MOST_ORIGINS = 300
"""Without a stride given, origins lie apart enough that there are no more than these."""

_LEAST_STRIDE = 10
"""Without a stride given, a window's length holds no more origins than these."""

SHOWN_BAND = 0.8
"""The band that tables and plots show."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what forecasters are judged. All in seconds, which are steps here.

    Attributes:
        window_s: How far ahead each forecast goes.
        history_s: How much before the origin a forecaster sees.
        share: The part at the series' end from which origins are taken, in (0, 1].
        stride_s: Between origins; ``None`` for a tenth of the window, or as much as makes ``MOST_ORIGINS``.
        n_paths: Sample paths of each forecast; the window's total is judged by them.
        seed: Of the sample paths.
    """

    window_s: int = 200
    history_s: int = 600
    share: float = 1 / 3
    stride_s: int | None = None
    n_paths: int = 200
    seed: int = 0

    def first_origin(self, series: Series) -> int:
        """Second of the series from which on it is tested."""
        return min(series.n_seconds, round((1 - self.share) * series.n_seconds))

    def stride(self, series: Series) -> int:
        """Seconds between origins."""
        if self.stride_s is not None:
            return self.stride_s
        tested_s = series.n_seconds - self.first_origin(series) - self.window_s
        return max(1, self.window_s // _LEAST_STRIDE, tested_s // MOST_ORIGINS + 1)

    def origins(self, series: Series) -> NDArray[np.int64]:
        """Seconds of the series at which forecasts begin; none where it is too short."""
        first = self.first_origin(series)
        return origins_between(max(1, first), series.n_seconds, self.window_s, self.stride(series))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What each method was worth on one series.

    Attributes:
        series: The series.
        terms: As asked.
        trials: By method.
        left_out: Why a method has no trials, by method.
        notes: What else a reader should know, a sentence each.
    """

    series: Series
    terms: Terms
    trials: Mapping[str, Trials]
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def leads(self) -> tuple[int, ...]:
        """The leads at which it is judged, in seconds: those within the window."""
        return tuple(lead for lead in LEADS_S if lead <= self.terms.window_s)

    @property
    def history(self) -> str:
        """How much the forecasts saw, in words: that of ``terms``, or up to what there is before the last origin."""
        asked_s, origins = self.terms.history_s, self.terms.origins(self.series)
        return f"{asked_s} s" if origins[0] >= asked_s else f"up to {min(asked_s, origins[-1])} s"


@dataclass(frozen=True, eq=False)
class Scored:
    """What one method was worth on one series, or on several together.

    Attributes:
        overall: Over all steps.
        leads: By lead in seconds.
        total: Of the window's total.
        took_s: The median of what a forecast took.
    """

    overall: Pooled
    leads: Mapping[int, Pooled]
    total: Pooled
    took_s: float


def scored(evaluations: Sequence[Evaluation]) -> dict[str, Scored]:
    """The scores by method, of methods that have trials on every series; leads that every series has."""
    names = [name for name in evaluations[0].trials if all(name in one.trials for one in evaluations)]
    leads = [lead for lead in evaluations[0].leads if all(lead in one.leads for one in evaluations)]
    found = {}
    for name in names:
        own = [one.trials[name] for one in evaluations]
        found[name] = Scored(
            overall=pooled([score(trials) for trials in own]),
            leads={lead: pooled([score(trials, lead) for trials in own]) for lead in leads},
            total=pooled([score_of_total(trials) for trials in own]),
            took_s=float(np.median(np.concatenate([trials.took_s for trials in own]))),
        )
    return found


@dataclass(frozen=True)
class Methods:
    """What is to be judged.

    Attributes:
        forecasters: By name.
        missing: Why others cannot take part here, by name.
    """

    forecasters: Mapping[str, Forecaster]
    missing: Mapping[str, str] = field(default_factory=dict)


def methods_of(only: Sequence[str] = (), models: Sequence[Path] = ()) -> Methods:
    """The forecasters of these names, as configs make them without further settings, and the fitted models.

    Without names they are all of the registry, but those that need a library that is not installed.

    Raises:
        SeriesError: A name is unknown, its library is absent, or a folder holds no model that can be used.
    """
    unknown = [name for name in only if name not in forecaster_names()]
    if unknown and unknown[0] in METHODS:
        raise SeriesError(f"--method {unknown[0]}: is a network; give by --model {model_text(unknown[0])}")
    if unknown:
        raise SeriesError(f"--method {unknown[0]}: unknown; there are {', '.join(forecaster_names())}")
    made: dict[str, Forecaster] = {}
    missing = {}
    for name in only or forecaster_names():
        settings = ForecastConfig().model_copy(update={"method": name})
        if lacks := lacking_for(name):
            if only:
                raise SeriesError(f"--method {name} {lacks}")
            missing[name] = lacks
            continue
        forecaster = forecaster_of(settings, 1.0, f"--method {name}")
        assert forecaster is not None  # only hindsight is none, and it is no forecaster's name
        made[name] = forecaster
    for folder in models:
        try:
            model = Learned(folder)
        except FitError as error:
            raise SeriesError(f"--model {error}") from None
        made[model.name if model.name not in made else f"{model.name} ({folder})"] = model
    return Methods(made, missing)


def evaluate(
    series: Series,
    methods: Methods,
    terms: Terms,
    on_trial: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Every method's trials at the same origins; ``on_trial`` is called with the method after each.

    Methods that need more history than there is, or another window, are left out with the reason.

    Raises:
        SeriesError: The series is too short for a single origin.
    """
    origins = terms.origins(series)
    if not origins.size:
        first = terms.first_origin(series)
        raise SeriesError(
            f"{series.name}: {series.n_seconds} s, of which {series.n_seconds - first} are tested; a history before "
            f"them and a window of {terms.window_s} s in them are needed"
        )
    trials, left_out = {}, dict(methods.missing)
    for name, forecaster in methods.forecasters.items():
        try:
            trials[name] = rolling(
                forecaster,
                series.rates_rps,
                origins,
                n_steps=terms.window_s,
                n_history=terms.history_s,
                n_paths=terms.n_paths,
                seed=terms.seed,
                on_trial=partial(on_trial, name),
            )
        except ValueError as error:
            left_out[name] = str(error)
    notes = (*series.notes, *_seen_before(series, methods, int(origins[0])), *_failures(trials))
    return Evaluation(series, terms, trials, left_out, notes)


def _failures(trials: Mapping[str, Trials]) -> Iterator[str]:
    """A note for every method some of whose forecasts are without an expert that failed."""
    for name, own in trials.items():
        failed = [method for method in own.methods if FAILED in method]
        if failed:
            yield f"{name}: {len(failed)} of {len(own.methods)} forecasts by {failed[0]}"


def _seen_before(series: Series, methods: Methods, first: int) -> Iterator[str]:
    """A note for every fitted model that has seen seconds on which it is tested."""
    for name, method in methods.forecasters.items():
        for seen in method.seen if isinstance(method, Learned) else ():
            begin = seen.first_s - series.first_s
            n_tested = min(begin + seen.n_seconds, series.n_seconds) - max(begin, first)
            if n_tested > 0 and _is_of(seen, series, begin):
                yield f"{name} was fitted on {n_tested:,} of the seconds on which it is tested here"


def _is_of(seen: FittedOn, series: Series, begin: int) -> bool:
    """Whether what was seen is the series from ``begin`` on: by its rates where all are there, else by its name."""
    if begin >= 0 and begin + seen.n_seconds <= series.n_seconds:
        return seen.sha256 == series.fingerprint(seen.n_seconds, begin)
    return seen.name == series.name
