"""What a config makes of its traces: which requests come, whatever part of the run is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecaster.neural import Recipe
from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.config.sections import Config
from migrator.errors import ConfigError
from migrator.execution.foresight import Foresight, observe
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from tests.fitted import fitted_folder
from tests.migrator.conftest import SMALL, WriteConfig, changed

CONFIGS = Path(__file__).parents[3] / "configs"
FOLLOWS_LOAD = {
    "load": 0.4,
    "tenants.0.arrivals": {"trace": "azure-conv", "offset_s": 700},
    "tenants.1.arrivals.scale": {},
}


def assembled(changes: Mapping[str, Any]) -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, changes), "small.yaml"), "small.yaml")


def in_window_0(config: Config) -> list[list[float]]:
    setting, traffic = assemble(config, "a.yaml")
    return [own.arrival_s.tolist() for own in traffic.requests(0, round(setting.config.window_s))]


@pytest.mark.parametrize("scale", [{}, {"method": "poisson"}, {"method": "thin", "factor": 0.5}, {"method": "copies"}])
@pytest.mark.parametrize("windows", [1, 3, 5])
def test_window_0_has_the_same_requests_however_many_windows_are_asked_for(
    windows: int, scale: dict[str, Any], write_config: WriteConfig
) -> None:
    path = write_config({**FOLLOWS_LOAD, "windows": 3, "tenants.1.arrivals.scale": scale})
    assert in_window_0(read_config(path, windows=windows)) == in_window_0(read_config(path))


def test_window_0_has_the_same_requests_of_the_synthetic_trace() -> None:
    path = CONFIGS / "w8.yaml"
    assert in_window_0(read_config(path, windows=1)) == in_window_0(read_config(path))


def test_the_load_is_that_of_the_configs_own_windows(write_config: WriteConfig) -> None:
    path = write_config({**FOLLOWS_LOAD, "windows": 3})
    cut, whole = (assemble(read_config(path, windows=windows), "a.yaml")[0].config for windows in (1, None))
    assert [one.arrivals.scale.factor for one in cut.tenants] == [one.arrivals.scale.factor for one in whole.tenants]


def test_load_windows_may_be_given(write_config: WriteConfig) -> None:
    given = read_config(write_config({**FOLLOWS_LOAD, "windows": 3, "load_windows": 1}))
    short = read_config(write_config({**FOLLOWS_LOAD, "windows": 1}))
    assert in_window_0(given) == in_window_0(short)


@pytest.mark.parametrize(
    ("factor", "method"), [(None, "thin"), (1.0, "thin"), (0.5, "thin"), (1.0001, "poisson"), (4.0, "poisson")]
)
def test_a_method_that_is_not_given_follows_from_the_factor(factor: float | None, method: str) -> None:
    scale = {} if factor is None else {"factor": factor}
    setting, _ = assembled({"tenants.1.arrivals.scale": scale})
    assert setting.config.tenants[1].arrivals.scale.method == method


@pytest.mark.parametrize(("load", "method"), [(0.0004, "thin"), (0.4, "poisson")])
def test_a_method_that_is_not_given_follows_from_the_load(load: float, method: str) -> None:
    setting, _ = assembled({**FOLLOWS_LOAD, "load": load})
    assert [one.arrivals.scale.method for one in setting.config.tenants] == [method, method]


@pytest.mark.parametrize("method", ["poisson", "copies", "thin"])
def test_a_given_method_stays(method: str) -> None:
    setting, _ = assembled({"tenants.1.arrivals.scale": {"method": method}})
    assert setting.config.tenants[1].arrivals.scale.method == method


def test_poisson_arrivals_are_drawn_whatever_the_factor() -> None:
    setting, _ = assembled({"tenants.0.arrivals.scale": {"factor": 0.5}})
    assert setting.config.tenants[0].arrivals.scale.method == "poisson"


def test_a_factor_of_1_replays_the_requests_own_times(tmp_path: Path) -> None:
    trace = tmp_path / "times.csv"
    times_s = np.sort(np.random.default_rng(0).uniform(0, 300, 2000)).round(3)
    trace.write_text("\n".join(map(str, times_s)))
    _, traffic = assembled({"tenants.1.arrivals": {"trace": str(trace), "offset_s": 60}})
    replayed = traffic.requests(0, 120)[1].arrival_s
    assert replayed == pytest.approx(times_s[(times_s >= 60) & (times_s < 180)] - 60, abs=1e-9)


def test_a_history_without_requests_is_noted(tmp_path: Path) -> None:
    trace = tmp_path / "counts.csv"
    trace.write_text("second,count\n" + "".join(f"{second},{5 * (second >= 60)}\n" for second in range(200)))
    _, traffic = assembled({"tenants.1.arrivals": {"trace": str(trace), "offset_s": 60}})
    assert traffic.origins[1].notes == ("no request in the 60 s before window 0, from which is forecast",)


def test_how_a_file_is_read_is_the_configs(tmp_path: Path) -> None:
    trace = tmp_path / "counts.csv"
    trace.write_text("a,b\n" + "".join(f"{second},5\n" for second in range(299, -1, -1) if second != 100))
    given = {"trace": str(trace), "offset_s": 60, "format": "timestamp-counts", "sort": True, "gaps": "zero"}
    _, traffic = assembled({"tenants.1.arrivals": given})
    assert traffic.requests(0, 120)[1].arrival_s.size == 119 * 5


def test_the_column_is_the_configs(tmp_path: Path) -> None:
    trace = tmp_path / "panel.csv"
    trace.write_text("Time,api,web\n" + "".join(f"{1715340000 + 15 * n},2.2,7\n" for n in range(12)))
    given = {"trace": str(trace), "offset_s": 60, "format": "rates", "column": "api"}
    config = validate_config(changed(SMALL, {"tenants.1.arrivals": given}), "small.yaml")
    assert assemble(config, "small.yaml")[1].requests(0, 120)[1].arrival_s.size == 264
    assert "column: api" in config_yaml(config)


@pytest.mark.parametrize("profiles", [("3g.40gb", "4g.40gb", "7g.80gb"), ("7g.80gb", "4g.40gb", "3g.40gb")])
def test_the_least_profile_is_the_smallest_in_whatever_order_the_table_has_them(
    profiles: tuple[str, ...], tmp_path: Path
) -> None:
    vision = SMALL["tenants"][0]
    rows = [f"mine,a100-80gb,{vision['model']},{name},8,1,10,800\n" for name in profiles]
    table = tmp_path / "mine.csv"
    table.write_text("source,gpu,model,profile,batch,processes,latency_ms,throughput_rps\n" + "".join(rows))
    (tenant,) = assembled({"tenants": [vision], "profiles": str(table)})[0].tenants
    assert tenant.min_profile == "3g.40gb"


def test_a_trace_too_short_for_the_loads_windows_is_told_though_the_run_is_cut(write_config: WriteConfig) -> None:
    path = write_config({**FOLLOWS_LOAD, "windows": 60})
    with pytest.raises(ConfigError, match="load is over load_windows = 60 windows, and azure-conv: 3600 s from second"):
        assemble(read_config(path, windows=1), "a.yaml")


@pytest.mark.parametrize("method", ["auto", "window", "short-term"])
def test_forecasters_made_of_experts_take_any_history(method: str) -> None:
    setting, _ = assembled({"forecast": {"method": method, "history_s": 1}})
    assert setting.forecaster is not None
    assert setting.forecaster.name == method


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("auto", {}),
        ("window", {}),
        ("short-term", {}),
        ("ewma", {"half_life_s": 10}),
        ("seasonal-naive", {"season_s": 9}),
    ],
)
def test_what_is_expected_does_not_depend_on_how_short_steps_are(method: str, own: dict[str, Any]) -> None:
    means = []
    for step_s in (1.0, 0.1):
        setting, traffic = assembled({"step_s": step_s, "forecast": {"method": method, "history_s": 60, **own}})
        foresight = Foresight(setting, traffic)
        means.append(foresight.forecast(observe(setting, traffic, 1, (0.5, 0.5))).mean_rps)
        assert not foresight.failures
    assert np.array_equal(means[0].repeat(10, axis=0), means[1])


@pytest.mark.parametrize(
    ("step_s", "season_s", "needed"),
    [
        (1, 0.4, "0.4; a whole number of steps of 1 s is needed"),
        (2, 9, "9; a whole number of steps of 2 s is needed"),
        (0.5, 2.5, "2.5; whole seconds are needed"),
    ],
)
def test_a_season_of_parts_of_a_step_is_refused(step_s: float, season_s: float, needed: str) -> None:
    changes = {"step_s": step_s, "forecast.season_s": season_s}
    with pytest.raises(ConfigError, match=rf"small.yaml: forecast.season_s is {needed}$"):
        assembled({**changes, "forecast.method": "seasonal-naive"})
    assembled({**changes, "forecast.method": "window"})


def test_a_forecaster_whose_library_is_absent_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name == "lightgbm" else name)
    with pytest.raises(
        ConfigError, match=r"small.yaml: forecast.method lightgbm needs lightgbm: pip install '.*\[forecast\]'"
    ):
        assembled({"forecast.method": "lightgbm"})


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("informer", {}, "forecast.method is informer; the model in .*model is nhits"),
        ("nhits", {"window_s": 50}, "was fitted for windows of 60 steps of 1 s; the config has 50 of 1 s"),
        ("nhits", {"step_s": 2}, "was fitted for windows of 60 steps of 1 s; the config has 30 of 2 s"),
        ("nhits", {"forecast.history_s": 30}, "forecast.history_s is 30; nhits needs at least 40 s"),
        ("nhits", {"forecast.model": "."}, "forecast.model: . is no fitted model"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_the_run(
    method: str, changes: Mapping[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe("nhits", window_steps=60, history_steps=40)
    folder = fitted_folder(tmp_path / "model", recipe, (), monkeypatch)
    with pytest.raises(ConfigError, match=f"^small.yaml: .*{message}"):
        assembled({"forecast.method": method, "forecast.model": str(folder), **changes})


def test_a_model_is_found_beside_its_config(write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config({"forecast.method": "nhits", "forecast.model": "model"})
    recipe = Recipe("nhits", window_steps=60, history_steps=40)
    fitted_folder(path.parent / "model", recipe, (), monkeypatch)
    config = read_config(path, step_s=0.5)  # it was fitted to seconds
    setting, _ = assemble(config, "a.yaml")
    assert setting.forecaster is not None
    assert setting.forecaster.name == "nhits"
    assert "model: ../model" in config_yaml(config, path.parent / "run")


@pytest.mark.parametrize(("load", "n_doubts"), [(None, 0), (3.0, 0), (3.1, 1), (10.0, 1)])
def test_a_load_above_three_is_a_warning(load: float | None, n_doubts: int) -> None:
    setting, _ = assembled({} if load is None else {"load": load})
    assert sum(text.startswith(f"load is {load or 0:g}: ") for text in setting.warnings) == n_doubts
