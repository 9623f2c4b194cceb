"""What forecasts are worth: made at rolling origins of a series, and held against what then came.

A *trial* is one forecast from one origin. The forecaster is handed a copy of what lies before the origin, so that it
cannot see what comes. With values y that came, the forecast's mean m and its quantiles f_q:

=============  =================================================================================================
MAE            mean of |y − m|
WAPE           Σ |y − m| / Σ y
pinball        mean over quantile levels q of max(q·(y − f_q), (q − 1)·(y − f_q)); lower is better, for the whole spread
coverage       share of y within [f_q, f_(1−q)], which should be 1 − 2q
=============  =================================================================================================

They are taken over all steps, at single leads (the step that ends so long after the origin), and of the window's
total, whose quantiles are those of the sample paths' totals: a method with the right quantiles and independent steps
has the wrong band there.

Neighbouring trials overlap, so that their coverage hangs together. Intervals therefore resample *blocks*: all trials
whose origins lie within one window's length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecaster, is_within

BANDS = tuple(round(1 - 2 * level, 9) for level in QUANTILE_LEVELS if level < 0.5)
"""The bands that the quantiles of forecasts make, widest first: 0.9 is the one from 5 to 95 %."""

LEADS_S = (1, 5, 10, 30, 60, 200)
"""Seconds after the origin at which forecasts are judged."""

LEAST_BLOCKS = 5
"""Of fewer blocks resampling says nothing."""

_N_RESAMPLES = 2_000


@dataclass(frozen=True, eq=False)
class Trials:
    """One method's forecasts from k origins of one series of n tenants, and what then came. Arrays are read-only.

    Attributes:
        origins: The step in which each forecast begins, ascending, ``(k,)``.
        came_rps: ``(k, H, n)``.
        mean_rps: ``(k, H, n)``.
        quantiles_rps: ``(k, Q, H, n)``.
        total_quantiles_rps: Of the mean rate over the window, from the sample paths, ``(k, Q, n)``.
        took_s: Seconds that each forecast took, ``(k,)``.
        methods: What each forecast says that it was made by.
    """

    origins: NDArray[np.int64]
    came_rps: FloatArray
    mean_rps: FloatArray
    quantiles_rps: FloatArray
    total_quantiles_rps: FloatArray
    took_s: FloatArray
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.came_rps, self.mean_rps, self.quantiles_rps, self.total_quantiles_rps, self.took_s):
            array.setflags(write=False)

    @property
    def n_steps(self) -> int:
        """Steps of each forecast, H."""
        return int(self.came_rps.shape[1])


@dataclass(frozen=True, slots=True)
class Share:
    """A share with the interval that holds 95 % of those of resampled blocks; ``None`` with too few in a series."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class ForecastScore:
    """How well trials did, over all steps, at one lead, or on the window's total. Rates are in requests a second.

    Attributes:
        came_rps: Mean of what came.
        bias_rps: Mean of forecast − came.
        mae_rps: Mean of |forecast − came|.
        wape: Σ |forecast − came| / Σ came; ``None`` where nothing came.
        pinball_rps: Mean over quantile levels and values.
        within: By band, how many of a block's values lay in it, and how many there
            were, ``(2, n_blocks)``.
    """

    came_rps: float
    bias_rps: float
    mae_rps: float
    wape: float | None
    pinball_rps: float
    within: Mapping[float, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Pooled:
    """The scores of one series, or of several with the same weight each, as figures. Rates are in requests a second.

    Attributes:
        mae_rps: As of a :class:`ForecastScore`, as are the next three.
        bias_rps: Mean of forecast − came.
        wape: ``None`` where nothing came in one of the series.
        pinball_rps: Mean over quantile levels and values.
        relative_pinball: The pinball loss over the mean of what came; ``None`` where nothing came in one of the series.
        coverage: By band, widest first, the share of values in it.
    """

    mae_rps: float
    bias_rps: float
    wape: float | None
    pinball_rps: float
    relative_pinball: float | None
    coverage: Mapping[float, Share]


def origins_between(first: int, n_total: int, n_steps: int, stride: int) -> NDArray[np.int64]:
    """Origins from ``first`` on, every ``stride`` steps, whose ``n_steps`` steps lie within ``n_total``."""
    return np.arange(first, n_total - n_steps + 1, stride, dtype=np.int64)


def rolling(
    forecaster: Forecaster,
    rates_rps: FloatArray,
    origins: NDArray[np.int64],
    *,
    n_steps: int,
    n_history: int,
    n_paths: int,
    seed: int = 0,
    on_trial: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Trials:
    """A trial at each origin: a forecast of ``n_steps`` from the ``n_history`` steps (or as many as there are) before.

    Sample paths depend on the seed and the origin alone. ``on_trial`` is called after each.

    Shapes: rates ``(T, n)``.

    Raises:
        ValueError: There is no origin, one has less than ``n_steps`` steps after it, or the forecaster refuses a
            history.
    """
    if not origins.size or origins[0] < 0 or origins[-1] + n_steps > len(rates_rps):
        raise ValueError(f"origins must leave {n_steps} of {len(rates_rps)} steps after them, and there must be one")
    forecasts, took_s = [], []
    for origin in origins.tolist():
        history = rates_rps[max(0, origin - n_history) : origin].copy()  # and nothing of what comes
        rng = np.random.default_rng([seed, origin])
        begun_s = clock()
        forecasts.append(forecaster.forecast(history, n_steps, n_paths, rng))
        took_s.append(clock() - begun_s)
        on_trial()
    return Trials(
        origins=origins,
        came_rps=np.stack([rates_rps[origin : origin + n_steps] for origin in origins.tolist()]),
        mean_rps=np.stack([one.mean_rps for one in forecasts]),
        quantiles_rps=np.stack([one.quantiles_rps for one in forecasts]),
        total_quantiles_rps=np.stack(
            [np.quantile(one.paths_rps.mean(axis=1), QUANTILE_LEVELS, axis=0) for one in forecasts]
        ),
        took_s=np.array(took_s),
        methods=tuple(one.method for one in forecasts),
    )


def score(trials: Trials, lead: int | None = None) -> ForecastScore:
    """The score over all steps, or at the step ``lead`` (1 is the first) alone.

    Raises:
        ValueError: The trials have no such step.
    """
    if lead is not None and not 1 <= lead <= trials.n_steps:
        raise ValueError(f"lead {lead}: 1 to {trials.n_steps} are there")
    steps = slice(None) if lead is None else slice(lead - 1, lead)
    return _score(
        trials,
        trials.came_rps[:, steps],
        trials.mean_rps[:, steps],
        np.moveaxis(trials.quantiles_rps, 1, 0)[:, :, steps],
    )


def score_of_total(trials: Trials) -> ForecastScore:
    """The score on the window's total, as the mean rate over the window."""
    total_quantiles = np.moveaxis(trials.total_quantiles_rps, 1, 0)
    return _score(trials, trials.came_rps.mean(axis=1), trials.mean_rps.mean(axis=1), total_quantiles)


def pooled(scores: Sequence[ForecastScore]) -> Pooled:
    """The scores as figures: means over series, and coverages with intervals."""
    relative = [one.pinball_rps / one.came_rps if one.came_rps > 0 else None for one in scores]
    return Pooled(
        mae_rps=float(np.mean([one.mae_rps for one in scores])),
        bias_rps=float(np.mean([one.bias_rps for one in scores])),
        wape=_mean([one.wape for one in scores]),
        pinball_rps=float(np.mean([one.pinball_rps for one in scores])),
        relative_pinball=_mean(relative),
        coverage={band: _coverage([one.within[band] for one in scores]) for band in BANDS},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _coverage(within: Sequence[NDArray[np.int64]]) -> Share:
    """The mean of the series' coverages; blocks are resampled inside their series."""
    rng = np.random.default_rng(0)
    means, drawn = [], []
    for hits, counts in within:
        means.append(hits.sum() / counts.sum())
        picked = rng.integers(0, hits.size, (_N_RESAMPLES, hits.size))
        drawn.append(hits[picked].sum(axis=1) / counts[picked].sum(axis=1))
    value = float(np.mean(means))
    if min(one.shape[1] for one in within) < LEAST_BLOCKS:
        return Share(value, None, None)
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975]).tolist()
    return Share(value, low, high)


def _score(trials: Trials, came: FloatArray, mean: FloatArray, quantiles: FloatArray) -> ForecastScore:
    """Of values that came and their forecasts, ``(k, …)``, quantiles ``(Q, k, …)``."""
    errors, below = mean - came, came - quantiles
    weights = np.array(QUANTILE_LEVELS).reshape(-1, *[1] * came.ndim)
    absolute, total = np.abs(errors), float(came.sum())
    return ForecastScore(
        came_rps=float(came.mean()),
        bias_rps=float(errors.mean()),
        mae_rps=float(absolute.mean()),
        wape=float(absolute.sum()) / total if total > 0 else None,
        pinball_rps=float(np.maximum(weights * below, (weights - 1) * below).mean()),
        within=_within(trials, came, quantiles),
    )


def _within(trials: Trials, came: FloatArray, quantiles: FloatArray) -> dict[float, NDArray[np.int64]]:
    blocks = np.unique((trials.origins - trials.origins[0]) // trials.n_steps, return_inverse=True)[1]
    per_trial = came[0].size
    found = {}
    for place, band in enumerate(BANDS):
        inside = is_within(came, quantiles[place], quantiles[-1 - place]).reshape(len(came), -1).sum(axis=1)
        hits = np.bincount(blocks, weights=inside).astype(np.int64)
        found[band] = np.stack([hits, np.bincount(blocks) * per_trial])
    return found
