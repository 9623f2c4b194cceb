"""``migrator forecast`` through the command line."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from executor.extras import install

SHORT = ("--window", 60, "--history", 200, "--stride", 100)


def test_a_trace_is_judged_by_every_measure(call, tmp_path: Path) -> None:
    page = tmp_path / "eval.html"
    code, out, _ = call("forecast", "eval", "azure-conv", *SHORT, "--json", "--plot", page)
    assert code == 0
    (series,) = json.loads(out)["series"]
    assert (series["name"], series["n_seconds"], series["tested_from_s"], series["n_origins"]) == (
        "azure-conv",
        3502,
        2335,
        12,
    )
    ewma = series["methods"]["ewma"]
    assert set(ewma["leads"]) == {"1", "5", "10", "30", "60"}
    assert 0 < ewma["all"]["pinball_over_mean_rate"] < 1
    assert 0 < ewma["total"]["wape"] < ewma["all"]["wape"] < 1
    assert 0.7 < ewma["all"]["coverage"]["0.9"]["share"] <= 1
    assert ewma["all"]["coverage"]["0.9"]["low"] is not None
    assert "Within the band" in page.read_text()


def test_the_same_question_has_the_same_answer_but_for_times(call) -> None:
    answers = []
    for _ in range(2):
        series = json.loads(call("forecast", "eval", "azure-conv", *SHORT, "--json")[1])["series"]
        for method in series[0]["methods"].values():
            del method["wall"]
        answers.append(series)
    assert answers[0] == answers[1]


def test_several_sources_are_shown_each_and_pooled(call) -> None:
    code, out, _ = call("forecast", "eval", "azure-conv", "azure-code", *SHORT, "--method", "ewma")
    assert code == 0
    assert all(
        text in out for text in ("azure-conv: 3,502 s", "azure-code: 3,436 s", "all 2 series", "% band, %, at lead")
    )
    assert "seasonal-naive" not in out


def test_past_runs_are_sources(call, write_config) -> None:
    assert call("run", write_config(), "--policy", "equal", "--out", "past")[0] == 0
    code, out, _ = call("forecast", "eval", "past", "--window", 10, "--history", 60, "--method", "ewma")
    assert code == 0
    assert "past: 120 s of 2 tenants" in out


def test_a_window_is_shown_beside_what_came(call, write_config, tmp_path: Path) -> None:
    page = tmp_path / "window.html"
    code, out, err = call("forecast", "show", write_config(), "--window", 1, "--plot", page)
    assert code == 0
    assert "language: azure-conv, 19,366 requests over 3,502 s, mean 5.53/s, peak 16/s; poisson × 4" in err
    assert "small, window 1, seconds 60 to 120: forecast by ewma from the 60 s before" in out
    assert "language: expected" in out
    assert "which the forecast did not see" in page.read_text()
    ahead = call("forecast", "show", write_config(), "--window", 1, "--set", "planner.planning_s=6")[1]
    assert "from the 60 s before second 54" in " ".join(ahead.split())


@pytest.mark.parametrize(
    ("changes", "known_until_s"),
    [
        ({}, 60),
        ({"planner.planning_s": 6}, 54),
        ({"step_s": 0.5}, 60),
        ({"step_s": 0.5, "planner.planning_s": 6.5}, 53),
    ],
)
def test_the_forecast_shown_is_the_runs(call, write_config, changes: dict[str, object], known_until_s: float) -> None:
    config = write_config(changes)
    assert call("run", config, "--policy", "equal", "--out", "past")[0] == 0
    shown = json.loads(call("forecast", "show", config, "--window", 1, "--json")[1])
    lines = [json.loads(line) for line in Path("past/events.jsonl").read_text().splitlines()]
    (started,) = (line for line in lines if line["kind"] == "window_started" and line["window"] == 1)
    (finished,) = (line for line in lines if line["kind"] == "window_finished" and line["window"] == 1)
    each = round(1 / shown["step_s"])
    assert shown["known_until_s"] == known_until_s == started.get("asked_s", 60)
    for name, tenant in shown["tenants"].items():
        assert tenant["mean_rps"] == pytest.approx(started["forecast"]["tenants"][name]["mean_rps"], abs=1e-3)
        assert tenant["came_rps"] == np.repeat(finished["tenants"][name]["arrivals"], each).tolist()
        assert tenant["total"]["came"] == sum(finished["tenants"][name]["arrivals"])


BAD = [
    (("eval", "nosuch.csv"), "nosuch.csv: no such trace file"),
    (("eval", "azure-conv", "--method", "oracle"), "--method oracle: unknown; there are "),
    (("eval", "azure-conv", "--seconds", "9"), "--seconds 9: FROM:TO is needed"),
    (("eval", "azure-conv", "--seconds", "9:9"), "TO must be more than FROM"),
    (("eval", "azure-conv", "--seconds", "9:9999"), "azure-conv has seconds 0 to 3502"),
    (("eval", "apollo"), "apollo: 300 s, of which 100 are tested"),
    (("eval", "azure-conv", "--method", "nhits"), "--method nhits: is a network; give by --model the folder that migr"),
    (("eval", "azure-conv", "--model", "."), "--model . is no fitted model"),
    (("eval", "azure-conv", "--plot", "nosuch/a.html"), "there is no folder nosuch"),
    (("show", "CONFIG", "--window", "2"), "--window is 2; "),
    (("show", "CONFIG", "--set", "forecast.method=known"), "which is no forecast"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_wrong_is_one_line(call, write_config, arguments: tuple[str, ...], message: str) -> None:
    config = write_config()
    code, out, err = call("forecast", *(config if argument == "CONFIG" else argument for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_without_plotly_a_page_is_refused_naming_the_extra(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, out, err = call("forecast", "eval", "azure-conv", "--plot", "page.html")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert install("plot") in err


def test_without_the_extra_nothing_is_fitted(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name == "torch" else name)
    code, out, err = call("forecast", "fit", "nhits", "azure-conv", "--out", "model")
    assert (code, out) == (2, "")
    assert err == f"error: forecast fit nhits needs torch: {install('neural')}\n"
    assert not Path("model").exists()


def test_the_group_alone_prints_its_help(call) -> None:
    code, out, _ = call("forecast")
    assert code == 0
    assert "eval" in out
    assert "show" in out


@pytest.mark.live
@pytest.mark.skipif(find_spec("neuralforecast") is None, reason="NOT TESTED: needs the extra `neural`")
@pytest.mark.filterwarnings("ignore")  # of what neuralforecast and ray import
def test_a_network_is_fitted_judged_and_used_in_a_run(call, write_config) -> None:
    import torch

    torch.set_num_threads(1)
    fitting = ("azure-conv", "--window", 60, "--history", 50, "--out", "model")
    code, out, _ = call("forecast", "fit", "nhits", *fitting, "--updates", 25)
    assert code == 0
    assert "To use it: forecast: {method: nhits, model: model}" in out
    code, out, _ = call("forecast", "fit", "nhits", *fitting, "--updates", 50, "--resume", "--json")
    assert (code, [check["update"] for check in json.loads(out)["learning_curve"]]) == (0, [25, 50])
    code, out, _ = call("forecast", "eval", "azure-conv", *SHORT, "--model", "model", "--method", "ewma", "--json")
    assert code == 0
    (series,) = json.loads(out)["series"]
    assert (list(series["methods"]), series["notes"]) == (["ewma", "nhits"], [])
    config = write_config({"forecast.method": "nhits", "forecast.model": str(Path("model").resolve())})
    assert call("run", config, "--policy", "equal", "--out", "first")[0] == 0
    assert call("run", config, "--policy", "equal", "--out", "second")[0] == 0
    logs = [
        [{**json.loads(line), "wall": 0, "sum": 0} for line in Path(name, "events.jsonl").read_text().splitlines()]
        for name in ("first", "second")
    ]
    assert logs[0] == logs[1]
    assert logs[0][0]["forecaster"] == "nhits"
    assert sorted(path.name for path in Path().iterdir()) == ["first", "model", "second"]
