"""The experts that have been best on each tenant's own history, recalibrated.

Every expert is asked at past origins of the history what it would have said there, and judged by the pinball loss of
that against what came; the last quarter of an hour counts most. The better it was, the more it weighs in the mean of
the experts' quantiles, for each tenant by itself, and apart for the next ten steps and for what follows: the near past
tells much of the one and little of the other. The mean is recalibrated by lead (:mod:`forecaster.calibration`) and
becomes sample paths in the order of past error paths (:mod:`forecaster.spread`).

All of it is a function of the history handed in, and is computed anew each time: nothing is kept between calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.calibration import calibrated
from forecaster.expert import (
    LEVELS,
    N_NEAR_GROUPS,
    Expert,
    IntArray,
    RecentWindow,
    group_of,
    outcomes_at,
    pinball,
    scored_leads,
)
from forecaster.forecast import FloatArray, Forecast
from forecaster.short_term import SPANS, ShortTerm, sums_of
from forecaster.spread import check_counts, error_targets, forecast_from_bands

WINDOWS = tuple(map(RecentWindow, (30, 60, 120, 300, 600, 1800)))
"""In the order in which they are preferred where they are as good; of a short history the longer ones see all."""

LAST_RESORT = RecentWindow(300)
"""What is asked where every expert failed."""

FAILED = " failed "
"""Between an expert that was left out and why, in a forecast's ``method``."""

MAX_ORIGINS = 32
"""Past origins at which experts are asked, evenly over the history."""

HALF_LIFE_STEPS = 900
"""The age at which an origin counts half when experts are judged."""

SHARPNESS = 30.0
"""How fast an expert loses weight with its loss; fitted to the first halves of the traces, as are the figures above."""

SHARED = 0.1
"""Weight that all share, however bad they have been: one that was wrong in quiet minutes may be right in the next."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Forecasts by the experts that were best in the past, with calibrated spread.

    The history may have gaps (NaN) or be empty (:mod:`forecaster.auto`). An expert that raises, or whose answer is
    not one, is left out. Either is said in the forecast's ``method``, after the experts that weigh most.

    Attributes:
        experts: At least one; one alone is recalibrated.
        name: As configs, logs and reports call this set of experts.
        min_history_steps: None: without history windows forecast a prior, whatever the experts.
    """

    min_history_steps = 0
    experts: tuple[Expert, ...] = (*WINDOWS, ShortTerm())
    name: str = "auto"

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps after ``history_rps``.

        Shapes: history ``(T, n)``, NaN where nothing is known → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

        Raises:
            ValueError: The history is not two-dimensional, a rate is negative or infinite, or a count is below 1.
        """
        check_counts(self.name, n_steps, n_paths)
        known = filled(history_rps, self.name)
        experts = WINDOWS if np.isnan(history_rps).all() else self.experts  # the prior has no order to learn from
        mixture = _Mixture(experts, known.rates_rps, n_steps)
        errors = _error_paths(known.rates_rps, n_steps, mixture.level_steps)
        said = f"{self.name}: {'; '.join((mixture.said, *mixture.failed, *known.notes))}"
        return forecast_from_bands(said, mixture.bands_rps, errors, len(known.rates_rps), n_paths, rng)


class _Mixture:
    """What the experts say, weighed by how good they have been, and recalibrated.

    Attributes:
        bands_rps: Quantiles of the steps to come, ``(L, H, n)``.
        said: Which expert weighs most, in words.
        failed: Which experts were left out and why, a phrase each.
        level_steps: By tenant, over how many steps the level reaches that errors refer to.
    """

    def __init__(self, experts: tuple[Expert, ...], history_rps: FloatArray, n_steps: int) -> None:
        n_history = len(history_rps)
        origins, leads = _past_origins(n_history), scored_leads(n_steps)
        came, groups = outcomes_at(history_rps, origins, leads), group_of(leads)
        answered, told, self.failed = _answers(experts, history_rps, np.append(origins, n_history), leads)
        ages = 0.5 ** ((n_history - origins) / HALF_LIFE_STEPS)
        weights = _weights(np.stack([_losses(bands[:-1], came, groups, ages) for bands in told]))
        bands = np.zeros(told[0].shape)
        for weight, own in zip(weights, told, strict=True):
            bands += weight[groups] * own
        now = calibrated(bands[:-1], came, origins, leads, bands[-1])
        nearest = np.minimum(np.searchsorted(leads, np.arange(n_steps)), len(leads) - 1)
        self.bands_rps = now[:, nearest]
        self.said = _named([expert.name for expert in answered], weights)
        self.level_steps = [_level_steps(answered[best]) for best in weights[:, -1].argmax(axis=0)]


def _weights(losses: FloatArray) -> FloatArray:
    """The weight of each expert, ``(E, G, n)``, from its losses ``(E, G, n)``; they add up to 1.

    An expert whose loss is x times the lowest weighs exp(−``SHARPNESS``·(x − 1)): one that is 2 % worse half as much
    (exponential weights; Cesa-Bianchi and Lugosi, *Prediction, Learning, and Games*, 2006, chapter 2). Losses are
    averaged over the near groups and over the others. ``SHARED`` of the weight goes to all alike.
    """
    weights = np.empty(losses.shape)
    for part in (slice(N_NEAR_GROUPS), slice(N_NEAR_GROUPS, None)):
        if losses[:, part].size:
            loss = losses[:, part].mean(axis=1)
            lowest = loss.min(axis=0)
            excess = np.divide(loss - lowest, lowest, out=np.where(loss > lowest, np.inf, 0.0), where=lowest > 0)
            weight = np.exp(-SHARPNESS * excess)
            weight = (1 - SHARED) * weight / weight.sum(axis=0) + SHARED / len(weight)
            weights[:, part] = weight[:, np.newaxis]
    return weights


def _named(names: list[str], weights: FloatArray) -> str:
    """Which expert weighs most for each tenant's near and far steps; said once where all tenants have the same."""
    each = []
    for near, far in zip(weights[:, 0].argmax(axis=0), weights[:, -1].argmax(axis=0), strict=True):
        each.append(names[near] if near == far else f"{names[near]} then {names[far]}")
    return each[0] if len(set(each)) == 1 else " | ".join(each)


def _level_steps(expert: Expert) -> int:
    return expert.length_steps if isinstance(expert, RecentWindow) else SPANS[-1]


def _past_origins(n_history: int) -> IntArray:
    """Where in the history experts are asked: from a quarter of it to the step before its end."""
    if n_history < 2:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.linspace(max(1, n_history // 4), n_history - 1, MAX_ORIGINS).astype(np.int64))


def _losses(bands_rps: FloatArray, came_rps: FloatArray, groups: IntArray, weights: FloatArray) -> FloatArray:
    """Mean pinball loss of each group of leads, ``(G, n)``, over origins with these weights."""
    loss = pinball(bands_rps, came_rps)
    known = ~np.isnan(loss)
    counted = known * weights[:, np.newaxis, np.newaxis]
    weighted = np.where(known, loss, 0.0) * counted
    members = (groups == np.arange(groups[-1] + 1)[:, np.newaxis]).astype(np.float64)
    sums, counts = (np.einsum("gj,kjn->gn", members, part) for part in (weighted, counted))
    means: FloatArray = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return means


def _answers(
    experts: tuple[Expert, ...], history_rps: FloatArray, origins: IntArray, leads: IntArray
) -> tuple[list[Expert], list[FloatArray], tuple[str, ...]]:
    """The experts that answered, their quantiles, and a phrase on each that did not; a window where none does."""
    kept, told, failed = [], [], []
    shape = (len(origins), len(LEVELS), len(leads), history_rps.shape[1])
    for expert in experts:
        try:
            bands = expert.quantiles_at(history_rps, origins, leads)
        except Exception as error:  # noqa: BLE001 - an expert is anybody's code; the others take over, and it is said
            failed.append(f"{expert.name}{FAILED}({type(error).__name__}: {error})")
            continue
        if bands.shape == shape and np.isfinite(bands).all() and bands.min() >= 0:
            kept.append(expert)
            told.append(bands)
        else:
            failed.append(f"{expert.name}{FAILED}(its quantiles are none)")
    if not kept:
        kept, told = [LAST_RESORT], [LAST_RESORT.quantiles_at(history_rps, origins, leads)]
    return kept, told, tuple(failed)


def _error_paths(history_rps: FloatArray, n_steps: int, level_steps: list[int]) -> FloatArray:
    """What came after past origins, less the level before them, ``(k, H, n)``."""
    n_history = len(history_rps)
    first = min(60, n_history // 4)
    targets = error_targets(first, n_history, n_steps)
    origins = targets[:, 0]
    sums = sums_of(history_rps)
    errors = history_rps[targets]
    for tenant, span in enumerate(level_steps):
        since = np.maximum(origins - span, 0)
        errors[:, :, tenant] -= ((sums[origins, tenant] - sums[since, tenant]) / np.maximum(origins - since, 1))[
            :, np.newaxis
        ]
    return errors


PRIOR_RPS = 1.0
"""Mean rate that is assumed where no tenant has any history."""

PRIOR_STEPS = 60
"""Length of the history that stands for none."""

_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Filled:
    """A history without gaps.

    Attributes:
        rates_rps: ``(T, n)``, T ≥ 1, finite and ≥ 0.
        notes: What was made up, a phrase each; empty where nothing was.
    """

    rates_rps: FloatArray
    notes: tuple[str, ...] = ()


def filled(history_rps: FloatArray, method: str) -> Filled:
    """The history with its gaps closed.

    A gap (NaN) is filled with what lies before it, read backwards, as often as it takes; at the beginning with what
    lies behind it. So it has the level and the bursts of its neighbourhood, and adds no calm that was not there. A
    tenant of which nothing is known gets the *prior*: exponentially distributed rates with the mean of the other
    tenants', or of :data:`PRIOR_RPS` where there are none. An empty history is one of :data:`PRIOR_STEPS` steps of
    which nothing is known.

    Raises:
        ValueError: It is not two-dimensional, or a rate is negative or infinite.
    """
    history = np.array(history_rps, dtype=np.float64)
    if history.ndim != 2 or history.shape[1] < 1:
        raise ValueError(f"{method}: the history must be (steps, tenants), got shape {history.shape}")
    missing: NDArray[np.bool_] = np.isnan(history)
    if (history[~missing] < 0).any() or np.isinf(history).any():
        raise ValueError(
            f"{method}: past rates must be at least 0 and finite; NaN stands for a step of which nothing is known"
        )
    if len(history) == 0:
        history = np.full((PRIOR_STEPS, history.shape[1]), np.nan)
        missing = np.isnan(history)
    if not missing.any():
        return Filled(history)
    return _filled(history, missing)


def _filled(history: FloatArray, missing: NDArray[np.bool_]) -> Filled:
    unseen = np.atleast_1d(missing.all(axis=0))
    prior_rps = PRIOR_RPS if unseen.all() else float(np.nanmean(history[:, ~unseen]))
    notes = []
    if unseen.any():
        history[:, unseen] = _prior(len(history), prior_rps)[:, np.newaxis]
        who = "no history" if unseen.all() else f"{int(unseen.sum())} of {len(unseen)} tenants without history"
        notes.append(f"{who}: prior of {prior_rps:.3g} requests a second")
    n_missing = missing[:, ~unseen].any(axis=1).sum()
    if n_missing:
        notes.append(f"{int(n_missing)} of {len(history)} past steps missing")
    for tenant in np.flatnonzero(~unseen & missing.any(axis=0)):
        history[:, tenant] = _mirrored(history[:, tenant], missing[:, tenant])
    return Filled(history, tuple(notes))


def _prior(n_steps: int, mean_rps: float) -> FloatArray:
    """Exponentially distributed rates, evenly over the distribution and without order in time."""
    share = (np.arange(n_steps) * _GOLDEN) % 1.0
    return -mean_rps * np.log1p(-(share * n_steps // 1 + 0.5) / n_steps)


def _mirrored(rates: FloatArray, missing: NDArray[np.bool_]) -> FloatArray:
    """One tenant's rates, gaps filled with the known ones before them, latest first."""
    known = np.flatnonzero(~missing)
    made = rates.copy()
    made[: known[0]] = rates[known[np.arange(known[0]) % len(known)][::-1]]
    for step in np.flatnonzero(missing):
        if step > known[0]:
            before = known[: np.searchsorted(known, step)]
            made[step] = rates[before[-1 - (step - before[-1] - 1) % len(before)]]
    return made
