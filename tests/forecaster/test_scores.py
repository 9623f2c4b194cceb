"""Measures against figures worked out by hand, and origins that see nothing of what comes."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast, Forecaster
from forecaster.registry import forecaster_names, make_forecaster
from forecaster.scores import (
    BANDS,
    ForecastScore,
    Share,
    Trials,
    origins_between,
    pooled,
    rolling,
    score,
    score_of_total,
)

SETTINGS = {"ewma": {"half_life_steps": 20.0}, "seasonal-naive": {"season_steps": 50}}


def trials(came: FloatArray, mean: FloatArray, low: float, high: float, n_steps_apart: int = 1) -> Trials:
    """With one tenant, all quantiles below the median at ``low`` and all above it at ``high``; shapes ``(k, H)``."""
    each = [*3 * [low], (low + high) / 2, *3 * [high]]
    quantiles = np.stack([np.full_like(came, value) for value in each], axis=1)[..., np.newaxis]
    return Trials(
        origins=np.arange(len(came), dtype=np.int64) * n_steps_apart,
        came_rps=came[..., np.newaxis],
        mean_rps=mean[..., np.newaxis],
        quantiles_rps=quantiles,
        total_quantiles_rps=quantiles.mean(axis=2),
        took_s=np.zeros(len(came)),
    )


def within_80_pct(*scores: ForecastScore) -> Share:
    return pooled(scores).coverage[0.8]


def rates(n_steps: int, n_tenants: int = 2) -> FloatArray:
    return np.random.default_rng(1).poisson(20, (n_steps, n_tenants)).astype(np.float64)


def test_errors_are_as_by_hand() -> None:
    found = score(trials(np.array([[1.0, 3.0]]), np.array([[2.0, 6.0]]), 0.0, 5.0))
    assert (found.came_rps, found.bias_rps, found.mae_rps, found.wape) == (2.0, 2.0, 2.0, 1.0)


def test_pinball_is_as_by_hand() -> None:
    # For 4: (0.05 + 0.1 + 0.25)·(4 − 1), 0.5·(4 − 2), (0.75 + 0.9 + 0.95)·(4 − 3); for 0 the same, mirrored.
    found = score(trials(np.array([[4.0, 0.0]]), np.array([[2.0, 2.0]]), 1.0, 3.0))
    assert found.pinball_rps == pytest.approx((1.2 + 1.0 + 2.6) / 7)
    assert pooled([found]).relative_pinball == pytest.approx(4.8 / 7 / 2)


def test_a_lead_is_one_step() -> None:
    both = trials(np.array([[1.0, 9.0], [3.0, 9.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]), 0.0, 2.0)
    assert (score(both, 1).mae_rps, score(both, 2).mae_rps) == (1.0, 9.0)
    assert [within_80_pct(score(both, lead)).value for lead in (1, 2)] == [0.5, 0.0]
    with pytest.raises(ValueError, match="lead 3: 1 to 2 are there"):
        score(both, 3)


def test_the_windows_total_is_judged_by_its_own_quantiles() -> None:
    found = score_of_total(trials(np.array([[0.0, 10.0]]), np.array([[5.0, 5.0]]), 4.0, 6.0))
    assert (found.mae_rps, within_80_pct(found).value) == (0.0, 1.0)


def test_where_nothing_came_shares_of_it_are_unknown() -> None:
    found = score(trials(np.zeros((1, 3)), np.ones((1, 3)), 0.0, 1.0))
    assert (found.wape, found.mae_rps) == (None, 1.0)
    assert (pooled([found]).wape, pooled([found]).relative_pinball) == (None, None)


def test_bands_are_the_levels_that_lie_opposite() -> None:
    assert BANDS == (0.9, 0.8, 0.5)
    assert [1 - level for level in reversed(QUANTILE_LEVELS)] == pytest.approx(QUANTILE_LEVELS)


def test_intervals_resample_blocks_and_not_single_values() -> None:
    came = np.repeat(np.array([0.0, 9.0, 0.0, 9.0, 0.0, 9.0, 0.0, 9.0]), 10)[:, np.newaxis]
    blocked = trials(np.repeat(came, 10, axis=1), np.repeat(came, 10, axis=1), 0.0, 5.0)
    found = within_80_pct(score(blocked))
    assert found.value == 0.5
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 0.5  # of 800 independent values it would be 0.07


def test_a_few_blocks_have_no_interval() -> None:
    few, enough = (score(trials(np.zeros((n, 1)), np.zeros((n, 1)), 0.0, 5.0)) for n in (4, 5))
    for scores in ([few], [few, few], [enough, few]):
        found = within_80_pct(*scores)
        assert (found.value, found.low, found.high) == (1.0, None, None)
    assert within_80_pct(enough, enough).low is not None


def test_series_pool_with_the_same_weight_however_long() -> None:
    inside = score(trials(np.zeros((90, 1)), np.zeros((90, 1)), 0.0, 5.0))
    outside = score(trials(np.full((10, 1), 9.0), np.zeros((10, 1)), 0.0, 5.0))
    assert within_80_pct(inside, outside).value == 0.5


def test_origins_leave_a_whole_window() -> None:
    assert origins_between(10, 100, 40, 25).tolist() == [10, 35, 60]
    with pytest.raises(ValueError, match="must leave 40 of 100 steps"):
        rolling(
            make_forecaster("ewma", half_life_steps=2.0), rates(100), np.array([61]), n_steps=40, n_history=9, n_paths=1
        )


class Oracle:
    """Says what it is told to, and remembers how much it was shown."""

    name = "oracle"
    min_history_steps = 1

    def __init__(self, truth: FloatArray) -> None:
        self._truth = truth
        self.n_seen: list[int] = []

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        del rng
        self.n_seen.append(len(history_rps))
        origin = int(history_rps[-1, 0]) + 1  # the test's rates count their own steps
        came = self._truth[origin : origin + n_steps].copy()
        return Forecast("oracle", came, np.stack([came] * len(QUANTILE_LEVELS)), np.stack([came] * n_paths))


def test_a_perfect_forecast_has_no_loss_and_full_coverage() -> None:
    counting = np.tile(np.arange(300.0)[:, np.newaxis], (1, 2))
    oracle = Oracle(counting)
    ticks = count()
    found = rolling(
        oracle,
        counting,
        origins_between(50, 300, 60, 30),
        n_steps=60,
        n_history=80,
        n_paths=3,
        clock=lambda: float(next(ticks)),
    )
    for one in (score(found), score(found, 60), score_of_total(found)):
        assert (one.mae_rps, one.pinball_rps, within_80_pct(one).value) == (0.0, 0.0, 1.0)
    assert oracle.n_seen == [50, *[80] * 6]
    assert found.took_s.tolist() == [1.0] * 7


@pytest.mark.parametrize("name", forecaster_names())
def test_nothing_after_the_origin_is_seen(name: str) -> None:
    if name == "lightgbm":
        pytest.importorskip("lightgbm")
    forecaster: Forecaster = make_forecaster(name, **SETTINGS.get(name, {}))
    known, origin = rates(1000), 700
    poisoned = known.copy()
    poisoned[origin:] = np.nan
    real, blind = (
        rolling(forecaster, one, np.array([origin]), n_steps=100, n_history=600, n_paths=8) for one in (known, poisoned)
    )
    np.testing.assert_array_equal(real.mean_rps, blind.mean_rps)
    np.testing.assert_array_equal(real.quantiles_rps, blind.quantiles_rps)
    np.testing.assert_array_equal(real.total_quantiles_rps, blind.total_quantiles_rps)
    assert np.isnan(blind.came_rps).all()
