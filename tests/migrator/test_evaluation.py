"""Methods side by side, on the same origins."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from forecaster.ewma import Ewma
from forecaster.forecast import FloatArray
from forecaster.naive import SeasonalNaive
from forecaster.registry import forecaster_names
from migrator.errors import ConfigError
from migrator.evaluation import Terms, evaluate, forecasters
from migrator.series import Series, SeriesError


def series(n_seconds: int) -> Series:
    rates: FloatArray = np.random.default_rng(0).poisson(9.0, (n_seconds, 1)).astype(np.float64)
    return Series("made", ("made",), rates)


def test_the_last_third_is_tested_from_origins_a_tenth_of_a_window_apart() -> None:
    origins = Terms(window_s=50).origins(series(900))
    assert (origins[0], origins[-1], set(np.diff(origins).tolist())) == (600, 850, {5})


def test_long_series_have_no_more_origins_than_it_takes() -> None:
    assert Terms(window_s=50).origins(series(30_000)).size <= 301


def test_every_method_has_trials_at_the_same_origins() -> None:
    told: list[str] = []
    methods = {"short": Ewma(5), "long": Ewma(50)}
    found = evaluate(series(300), methods, Terms(window_s=20, stride_s=20, n_paths=4), told.append)
    assert [trials.origins.tolist() for trials in found.trials.values()] == [list(range(200, 281, 20))] * 2
    assert told == ["short"] * 5 + ["long"] * 5
    assert found.leads == (1, 5, 10)


def test_a_method_that_needs_more_history_is_left_out_with_the_reason() -> None:
    methods = {"ewma": Ewma(5), "season": SeasonalNaive(100)}
    found = evaluate(series(300), methods, Terms(window_s=20, history_s=60, n_paths=4))
    assert list(found.trials) == ["ewma"]
    assert found.left_out == {"season": "seasonal-naive: a history of 60 steps is too short, 100 are needed"}


def test_a_series_without_room_for_a_window_is_refused() -> None:
    with pytest.raises(SeriesError, match=r"made: 300 s, of which 100 are tested; .* a window of 200 s"):
        evaluate(series(300), {"ewma": Ewma(5)}, Terms())


def test_the_methods_are_those_of_the_registry() -> None:
    has_lightgbm = find_spec("lightgbm") is not None
    assert tuple(forecasters()) == tuple(name for name in forecaster_names() if name != "lightgbm" or has_lightgbm)
    assert tuple(forecasters(["ewma"])) == ("ewma",)
    with pytest.raises(SeriesError, match="--method oracle: unknown; there are auto"):
        forecasters(["oracle"])


def test_a_method_whose_library_is_not_there_is_left_out_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("migrator.setting.find_spec", lambda _: None)
    assert "lightgbm" not in forecasters()
    assert "lightgbm is left out: " in capsys.readouterr().err
    with pytest.raises(ConfigError, match="it needs pip install 'migrator-mig\\[forecast\\]'"):
        forecasters(["lightgbm"])
