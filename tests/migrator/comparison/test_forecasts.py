"""Methods side by side, on the same origins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from executor.extras import install
from forecaster.auto import Auto
from forecaster.ewma import Ewma
from forecaster.expert import IntArray
from forecaster.forecast import FloatArray
from forecaster.naive import SeasonalNaive
from forecaster.neural import FittedOn, Recipe
from forecaster.registry import forecaster_names
from migrator.comparison.forecasts import (
    Methods,
    Series,
    SeriesError,
    Terms,
    _longest_stretch,
    evaluate,
    methods_of,
    read_series,
)
from migrator.errors import LogError
from migrator.log.runlog import read_log
from tests.fitted import fitted_folder
from tests.migrator.log import records
from workloads.errors import TraceError


def series(n_seconds: int) -> Series:
    rates: FloatArray = np.random.default_rng(0).poisson(9.0, (n_seconds, 1)).astype(np.float64)
    return Series("made", ("made",), rates)


def test_the_last_third_is_tested_from_origins_a_tenth_of_a_window_apart() -> None:
    origins = Terms(window_s=50).origins(series(900))
    assert (origins[0], origins[-1], set(np.diff(origins).tolist())) == (600, 850, {5})


def test_long_series_have_no_more_origins_than_it_takes() -> None:
    assert [Terms(window_s=50).origins(series(n_seconds)).size for n_seconds in (30_000, 27_150)] == [293, 291]


def test_every_method_has_trials_at_the_same_origins() -> None:
    told: list[str] = []
    methods = Methods({"short": Ewma(5), "long": Ewma(50)})
    found = evaluate(series(300), methods, Terms(window_s=20, stride_s=20, n_paths=4), told.append)
    assert [trials.origins.tolist() for trials in found.trials.values()] == [list(range(200, 281, 20))] * 2
    assert told == ["short"] * 5 + ["long"] * 5
    assert found.leads == (1, 5, 10)


def test_a_method_that_needs_more_history_is_left_out_with_the_reason() -> None:
    methods = Methods({"ewma": Ewma(5), "season": SeasonalNaive(100)})
    found = evaluate(series(300), methods, Terms(window_s=20, history_s=60, n_paths=4))
    assert list(found.trials) == ["ewma"]
    assert found.left_out == {"season": "seasonal-naive: a history of 60 steps is too short, 100 are needed"}


def test_a_series_without_room_for_a_window_is_refused() -> None:
    with pytest.raises(SeriesError, match=r"made: 300 s, of which 100 are tested; .* a window of 200 s"):
        evaluate(series(300), Methods({"ewma": Ewma(5)}), Terms())


def test_the_methods_are_those_of_the_registry() -> None:
    found = methods_of()
    assert {*found.forecasters, *found.missing} == set(forecaster_names())
    assert tuple(methods_of(["ewma"]).forecasters) == ("ewma",)
    with pytest.raises(SeriesError, match="--method oracle: unknown; there are "):
        methods_of(["oracle"])


def test_a_method_whose_library_is_missing_is_told_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name == "lightgbm" else name)
    found = methods_of()
    assert found.missing == {"lightgbm": f"needs lightgbm: {install('forecast')}"}
    assert "seasonal-naive" in found.forecasters
    with pytest.raises(SeriesError, match=r"^--method lightgbm needs lightgbm: pip install '.*\[forecast\]'$"):
        methods_of(["lightgbm"])


@dataclass(frozen=True)
class Broken:
    """An expert that has no answer."""

    name: str = "broken"

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:  # noqa: ARG002
        raise OSError("no such model")


def test_forecasts_without_an_expert_that_failed_are_told() -> None:
    methods = Methods({"broken": Auto((Broken(),), "broken")})
    (note,) = evaluate(series(300), methods, Terms(window_s=20, stride_s=20, n_paths=4)).notes
    assert note == "broken: 5 of 5 forecasts by broken: window 300; broken failed (OSError: no such model)"


def test_a_model_that_has_seen_what_it_is_tested_on_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = series(300)
    seen = (
        FittedOn("made", 0, 220, whole.fingerprint(220)),
        FittedOn("made", 0, 200, whole.fingerprint(200)),
        FittedOn("copy", 210, 30, whole.fingerprint(30, 210)),
        FittedOn("made", 0, 300, series(301).fingerprint(300, 1)),  # another run has the name now
        FittedOn("made", 250, 100, "of more than is tested"),
        FittedOn("made", 300, 100, "of what follows"),
        FittedOn("copy", 250, 100, "of more than is tested"),
    )
    folder = fitted_folder(tmp_path / "model", Recipe("nhits", window_steps=10, history_steps=250), seen, monkeypatch)
    found = evaluate(whole, methods_of(["ewma"], [folder]), Terms(window_s=20))
    told = [f"nhits was fitted on {n_tested} of the seconds on which it is tested here" for n_tested in (20, 30, 50)]
    assert found.notes == tuple(told)
    assert found.left_out["nhits"].startswith("nhits: a history of 200 steps is too short, 250 are needed")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeriesError, match=r"--model .* is no fitted model"):
        methods_of(models=[tmp_path])


def test_a_shipped_trace_is_one_tenant() -> None:
    series = read_series("azure-conv")
    assert series.tenants == ("azure-conv",)
    assert series.rates_rps.shape == (3502, 1)
    assert series.rates_rps.sum() == 19366


def test_a_part_of_a_file_is_its_seconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("second,count\n" + "".join(f"{second},{second % 7}\n" for second in range(50)))
    series = read_series(str(path), (10, 20))
    assert (series.first_s, series.rates_rps[:, 0].tolist()) == (10, [second % 7 for second in range(10, 20)])
    with pytest.raises(SeriesError, match=r"--seconds 10:60: .*trace.csv has seconds 0 to 50"):
        read_series(str(path), (10, 60))


def test_the_synthetic_trace_says_so() -> None:
    series = read_series("alibaba-servegen", (1200, 1500))
    assert (series.n_seconds, series.first_s) == (300, 1200)
    assert series.notes == (
        "alibaba-servegen (synthetic at second scale): seconds 1,200 to 1,500 of its fourteen days, drawn with seed 0",
    )


def test_a_run_gives_each_tenants_arrivals(call, write_config) -> None:
    assert call("run", write_config(), "--policy", "equal", "--out", "past")[0] == 0
    series = read_series("past")
    assert (series.tenants, series.rates_rps.shape) == (("vision", "language"), (120, 2))
    arrivals = [window.tenants["language"].arrivals for window in read_log(Path("past")).settled.values()]
    np.testing.assert_array_equal(series.rates_rps[:, 1], np.concatenate(arrivals))


def test_seconds_that_no_count_has_are_not_taken_for_quiet_ones(tmp_path: Path) -> None:
    begun = [records.header(4.0, "a"), *(records.window_started(window, 4.0) for window in (0, 1))]
    first = records.window_finished(0, a=records.counts([4] * 4, [1] * 4, [2] * 4))
    second = records.window_finished(1, a=records.counts([4, 0, 4, 4], [1, 0, 1, 1], [2, 0, 2, 2]))
    records.write(tmp_path, *begun, first, {**second, "blind": [[5, 6]]})
    series = read_series(str(tmp_path))
    assert (series.first_s, series.rates_rps[:, 0].tolist()) == (0, [5.0] * 5)
    assert series.notes == (f"{tmp_path}: of seconds with gaps between them the longest stretch, 0 to 5",)


def test_a_part_of_a_run_with_gaps_is_of_the_runs_own_seconds(tmp_path: Path) -> None:
    begun = [records.header(4.0, "a"), *(records.window_started(window, 4.0) for window in (0, 1))]
    first = records.window_finished(0, a=records.counts([4, 0, 4, 4], [1, 0, 1, 1], [2, 0, 2, 2]))
    second = records.window_finished(1, a=records.counts([4, 5, 6, 7], [1] * 4, [2] * 4))
    records.write(tmp_path, *begun, {**first, "blind": [[1, 2]]}, second)
    whole, part = read_series(str(tmp_path), (2, 8)), read_series(str(tmp_path), (5, 7))
    assert (whole.first_s, whole.n_seconds) == (2, 6)
    assert (part.first_s, part.rates_rps.tolist()) == (5, whole.rates_rps[3:5].tolist())
    with pytest.raises(SeriesError, match=r"--seconds 0:4: .* has seconds 2 to 8"):
        read_series(str(tmp_path), (0, 4))


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is no run"):
        read_series(str(tmp_path))
    with pytest.raises(TraceError, match=r"no such trace file \(did you mean azure-conv\?"):
        read_series("azure-con")


def test_of_seconds_with_gaps_the_longest_stretch_counts() -> None:
    found = [tuple(_longest_stretch(np.array(known, np.bool_))) for known in ([], [0], [1], [1, 0, 1, 1, 0], [1, 0, 1])]
    assert found == [(0, 0), (0, 0), (0, 1), (2, 4), (0, 1)]


def test_the_fingerprint_is_of_what_was_seen() -> None:
    first, second = (Series("a", ("a",), np.array([[1.0], [2.0], [last]])) for last in (3.0, 4.0))
    assert first.fingerprint(2) == second.fingerprint(2)
    assert first.fingerprint(3) != second.fingerprint(3)
