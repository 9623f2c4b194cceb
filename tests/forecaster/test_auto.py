"""The experts that were best so far, recalibrated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.auto import LAST_RESORT, PRIOR_RPS, PRIOR_STEPS, WINDOWS, Auto, filled
from forecaster.expert import LEVELS, Expert, IntArray, RecentWindow, outcomes_at
from forecaster.forecast import FloatArray, Forecast
from forecaster.registry import make_forecaster
from forecaster.short_term import ShortTerm
from tests.seeds import examples

EXPERTS: tuple[Expert, ...] = (*WINDOWS, ShortTerm())
anything = settings(derandomize=True, max_examples=examples(15))
HISTORIES = st.builds(
    lambda n_steps, n_tenants, seed, shape: np.random.default_rng(seed).gamma(shape, 8 / shape, (n_steps, n_tenants)),
    st.integers(1, 260),
    st.integers(1, 3),
    st.integers(0, 99),
    st.sampled_from([0.05, 0.5, 5.0]),
)


def forecast_of(history: FloatArray, n_steps: int = 40, n_paths: int = 8, auto: Auto | None = None) -> Forecast:
    return (auto or Auto()).forecast(history, n_steps, n_paths, np.random.default_rng(0))


@dataclass(frozen=True)
class Broken:
    name: str = "broken"

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:  # noqa: ARG002
        raise OSError("no such model")


@dataclass(frozen=True)
class Nonsense:
    value: float
    name: str = "nonsense"

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
        return np.full((len(origins), len(LEVELS), len(leads), history_rps.shape[1]), self.value)


@dataclass(frozen=True)
class Clairvoyant:
    """Knows what came, except after the history's end."""

    name: str = "clairvoyant"

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
        came = np.nan_to_num(outcomes_at(history_rps, origins, leads), nan=1234.0)
        return np.repeat(came[:, np.newaxis], len(LEVELS), axis=1)


@anything
@given(HISTORIES, st.integers(1, 70), st.integers(1, 9))
def test_any_history_gives_a_forecast_in_order(history: FloatArray, n_steps: int, n_paths: int) -> None:
    forecast = forecast_of(history, n_steps, n_paths)
    assert forecast.mean_rps.shape == (n_steps, history.shape[1])
    assert forecast.paths_rps.shape == (n_paths, n_steps, history.shape[1])
    for values in (forecast.mean_rps, forecast.quantiles_rps, forecast.paths_rps):
        assert (np.isfinite(values) & (values >= 0)).all()
    assert (np.diff(forecast.quantiles_rps, axis=0) >= 0).all()


@anything
@given(HISTORIES)
def test_the_same_history_gives_the_same_forecast(history: FloatArray) -> None:
    first, second = forecast_of(history), forecast_of(history.copy())
    assert first.method == second.method
    np.testing.assert_array_equal(first.quantiles_rps, second.quantiles_rps)
    np.testing.assert_array_equal(first.paths_rps, second.paths_rps)


@anything
@given(HISTORIES)
def test_tenants_in_another_order_have_the_same_forecasts(history: FloatArray) -> None:
    forecast, turned = forecast_of(history), forecast_of(history[:, ::-1])
    np.testing.assert_allclose(turned.mean_rps, forecast.mean_rps[:, ::-1])
    np.testing.assert_allclose(turned.quantiles_rps, forecast.quantiles_rps[..., ::-1])
    np.testing.assert_allclose(turned.paths_rps, forecast.paths_rps[..., ::-1])


@anything
@given(HISTORIES, st.sampled_from([0.25, 16.0, 1024.0]))
def test_forecasts_grow_with_the_history(history: FloatArray, factor: float) -> None:
    # Powers of four, of which roots are exact: ties stay ties.
    forecast, grown = forecast_of(history), forecast_of(factor * history)
    np.testing.assert_allclose(grown.quantiles_rps, factor * forecast.quantiles_rps, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(grown.mean_rps, factor * forecast.mean_rps, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("expert", EXPERTS, ids=lambda expert: expert.name)
@pytest.mark.parametrize("origin", [1, 2, 50, 300])
def test_experts_look_at_nothing_behind_an_origin(expert: Expert, origin: int) -> None:
    history = np.random.default_rng(1).gamma(0.5, 8, (400, 2))
    poisoned = history.copy()
    poisoned[origin:] = np.nan
    origins, leads = np.array([origin]), np.array([0, 3, 30, 150])
    with np.errstate(invalid="ignore"):
        told = [expert.quantiles_at(own, origins, leads) for own in (history, poisoned)]
    assert np.isfinite(told[0]).all()
    np.testing.assert_array_equal(*told)


@pytest.mark.parametrize("expert", EXPERTS, ids=lambda expert: expert.name)
def test_experts_say_nothing_at_an_origin_that_a_later_one_would_change(expert: Expert) -> None:
    history = np.random.default_rng(1).gamma(0.5, 8, (400, 2))
    origins, leads = np.arange(40, 400, 11), np.array([0, 3, 30, 150])
    poisoned = history.copy()
    poisoned[300:] = 1e6
    told = [expert.quantiles_at(own, origins, leads)[origins <= 300] for own in (history, poisoned)]
    np.testing.assert_array_equal(*told)


def test_the_expert_that_was_right_so_far_is_followed() -> None:
    history = np.random.default_rng(2).gamma(2, 8, (500, 1))
    forecast = forecast_of(history, auto=Auto((*WINDOWS, Clairvoyant())))
    assert forecast.method == "auto: clairvoyant"
    assert forecast.mean_rps.mean() > 1000


def test_each_tenant_has_its_own_experts_and_the_next_steps_others_than_the_far_ones() -> None:
    generator = np.random.default_rng(3)
    swinging = 100 + 50 * np.sin(np.arange(900) / 6)
    steady = generator.normal(100, 10, 900)
    forecast = forecast_of(np.stack([swinging, steady], axis=1), n_steps=200)
    first, second = forecast.method.removeprefix("auto: ").split(" | ")
    assert first.startswith("short-term")
    assert second.count("window") == 2


@pytest.mark.parametrize("expert", [Broken(), Nonsense(np.nan), Nonsense(-1.0)], ids=lambda expert: expert.name)
def test_an_expert_that_fails_is_left_out_and_it_is_said(expert: Expert) -> None:
    history = np.random.default_rng(2).gamma(2, 8, (300, 1))
    forecast = forecast_of(history, auto=Auto((expert, RecentWindow(60))))
    assert forecast.method.startswith(f"auto: window 60; {expert.name} failed (")
    np.testing.assert_array_equal(forecast.mean_rps, forecast_of(history, auto=Auto((RecentWindow(60),))).mean_rps)


def test_where_every_expert_fails_a_window_takes_over() -> None:
    forecast = forecast_of(np.full((100, 1), 7.0), auto=Auto((Broken(),)))
    assert forecast.method == f"auto: {LAST_RESORT.name}; broken failed (OSError: no such model)"
    np.testing.assert_allclose(forecast.mean_rps, 7.0)


@pytest.mark.parametrize("name", ["auto", "short-term", "lightgbm"])
def test_without_history_windows_forecast_the_prior_and_it_is_said(name: str) -> None:
    own, windows = (
        make_forecaster(method).forecast(np.empty((0, 2)), 40, 8, np.random.default_rng(0))
        for method in (name, "window")
    )
    assert own.method == f"{name}: window 60 then window 30; no history: prior of 1 requests a second"
    assert 0.9 < own.mean_rps.mean() < 1.1
    np.testing.assert_array_equal(own.quantiles_rps, windows.quantiles_rps)


def test_gaps_are_filled_and_it_is_said() -> None:
    history = np.random.default_rng(5).gamma(2, 8, (400, 2))
    history[100:160, 0] = np.nan
    history[390:, :] = np.nan
    forecast = forecast_of(history)
    assert forecast.method.endswith("; 70 of 400 past steps missing")
    assert forecast.mean_rps.mean() == pytest.approx(16, rel=0.3)


def test_totals_of_paths_hold_what_comes_of_a_wandering_level() -> None:
    generator = np.random.default_rng(6)
    level = np.repeat(generator.gamma(20, 5, 60), 100)
    rates = generator.poisson(level).astype(float)[:, np.newaxis]
    inside = []
    for origin in range(600, 5800, 200):
        totals = forecast_of(rates[origin - 600 : origin], 200, 100).paths_rps.sum(axis=1)
        low, high = np.quantile(totals, [0.1, 0.9])
        inside.append(low <= rates[origin : origin + 200].sum() <= high)
    assert 0.65 < np.mean(inside) < 0.95


NAN = np.nan


def column(*rates: float) -> FloatArray:
    return np.array(rates)[:, np.newaxis]


def test_a_whole_history_stays_and_nothing_is_said() -> None:
    known = filled(column(1, 2, 3), "m")
    assert known.rates_rps[:, 0].tolist() == [1, 2, 3]
    assert known.notes == ()


def test_gaps_are_filled_with_what_lies_before_read_backwards() -> None:
    known = filled(column(1, 2, 3, NAN, NAN, NAN, NAN, 7, NAN), "m")
    assert known.rates_rps[:, 0].tolist() == [1, 2, 3, 3, 2, 1, 3, 7, 7]
    assert known.notes == ("5 of 9 past steps missing",)


def test_a_gap_at_the_beginning_is_filled_with_what_lies_behind() -> None:
    assert filled(column(NAN, NAN, NAN, 5, 6), "m").rates_rps[:, 0].tolist() == [5, 6, 5, 5, 6]


def test_without_history_there_is_a_prior() -> None:
    known = filled(np.empty((0, 2)), "m")
    assert known.rates_rps.shape == (PRIOR_STEPS, 2)
    assert known.rates_rps.mean() == pytest.approx(PRIOR_RPS, rel=0.05)
    assert known.notes == ("no history: prior of 1 requests a second",)


def test_a_tenant_never_seen_has_the_others_mean() -> None:
    known = filled(np.stack([np.full(500, 40.0), np.full(500, NAN)], axis=1), "m")
    assert known.rates_rps[:, 1].mean() == pytest.approx(40, rel=0.05)
    assert known.notes == ("1 of 2 tenants without history: prior of 40 requests a second",)


@pytest.mark.parametrize("rate", [-1.0, np.inf])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and finite"):
        filled(column(1, rate), "m")


@pytest.mark.parametrize("shape", [(5,), (5, 0)])
def test_histories_without_tenants_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"steps, tenants"):
        filled(np.ones(shape), "m")


@settings(derandomize=True, max_examples=examples(200))
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 70.0, NAN]), min_size=2, max_size=2), min_size=1, max_size=30))
def test_any_gaps_are_filled_and_known_steps_stay(rows: list[list[float]]) -> None:
    history = np.array(rows)
    known = filled(history, "m").rates_rps
    assert (np.isfinite(known) & (known >= 0)).all()
    seen = ~np.isnan(history)
    np.testing.assert_array_equal(known[seen], history[seen])
