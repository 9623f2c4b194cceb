"""Gaps of a history, and no history at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.forecast import FloatArray
from forecaster.history import PRIOR_RPS, PRIOR_STEPS, filled

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


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 70.0, NAN]), min_size=2, max_size=2), min_size=1, max_size=30))
def test_any_gaps_are_filled_and_known_steps_stay(rows: list[list[float]]) -> None:
    history = np.array(rows)
    known = filled(history, "m").rates_rps
    assert (np.isfinite(known) & (known >= 0)).all()
    seen = ~np.isnan(history)
    np.testing.assert_array_equal(known[seen], history[seen])
