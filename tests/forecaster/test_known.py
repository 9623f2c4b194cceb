"""Hindsight says what will be, and that it is hindsight."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.known import HINDSIGHT, known
from forecaster.registry import forecaster_names

RATES = np.array([[1.0, 20.0], [0.0, 30.0], [5.0, 10.0]])


def test_mean_quantiles_and_the_one_path_are_the_rates() -> None:
    forecast = known(RATES)
    assert (forecast.mean_rps == RATES).all()
    assert forecast.paths_rps.tolist() == [RATES.tolist()]
    assert (forecast.quantiles_rps == RATES).all()


def test_hindsight_bears_no_forecaster_s_name() -> None:
    assert known(RATES).method == HINDSIGHT
    assert HINDSIGHT not in forecaster_names()


def test_the_rates_given_stay_writeable() -> None:
    rates = RATES.copy()
    known(rates)
    assert rates.flags.writeable


def test_negative_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="finite and at least 0"):
        known(-RATES)
