"""Which models a config has served, what they are asked, and which of that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.errors import ConfigError

SERVES = {"input": {"dtype": "float32", "shape": [4]}, "classes": 3}
LEARNS = {"learning": {"benchmark": "digits"}}
DOOR = {"gpu.backend": "nvml", "front_door": {"port": 0}}


def both_live(*tenants: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of the small config whose tenants get these keys, and live arrivals; with ``None`` they have no such."""
    changes: dict[str, Any] = {**DOOR, "tenants.0.retraining": None}
    for place, own in enumerate(tenants):
        given = {"arrivals": {"live": True, "expect_rps": 5}, **own}
        changes |= {f"tenants.{place}.{key}": one for key, one in given.items() if one is not None}
    return changes


@pytest.mark.parametrize("tenants", [(SERVES, SERVES), (SERVES, LEARNS), (LEARNS, LEARNS)])
def test_with_live_arrivals_any_tenant_may_learn_or_only_serve(write_config, tenants) -> None:
    assert read_config(write_config(both_live(*tenants))).is_live


def test_a_config_without_a_model_to_serve_says_nothing_of_it(write_config) -> None:
    config = read_config(write_config())
    assert not config.is_live
    assert (
        not {"weights", "input", "classes", "model_options"} & yaml.safe_load(config_yaml(config))["tenants"][0].keys()
    )


def test_weights_lie_where_the_config_does_and_stand_so_in_the_run_s_folder(write_config, tmp_path: Path) -> None:
    config = read_config(write_config(both_live({**SERVES, "weights": "w/own.safetensors"}, LEARNS)))
    assert config.tenants[0].weights == str(tmp_path / "w" / "own.safetensors")
    assert yaml.safe_load(config_yaml(config, tmp_path / "runs"))["tenants"][0]["weights"] == "../w/own.safetensors"
    assert validate_config(yaml.safe_load(config_yaml(config)), "again") == config


def test_one_share_is_the_accuracy_of_a_model_that_learns_nothing(write_config) -> None:
    config = read_config(write_config(both_live({**SERVES, "accuracy": 0.83}, LEARNS)))
    assert [(one.before, one.after) for one in config.tenants[0].accuracies] == [(0.83, 0.83)]


def test_history_lies_where_the_config_does(write_config, tmp_path: Path) -> None:
    own = {**SERVES, "arrivals": {"live": True, "history": "past.csv", "column": "n"}}
    assert read_config(write_config(both_live(own, LEARNS))).tenants[0].arrivals.history == str(tmp_path / "past.csv")


READS = {
    "learning": {"benchmark": "folder", "folder": "new"},
    "input": {"dtype": "uint8", "shape": [4]},
    "classes": 3,
    "weights": "own.safetensors",
}


def test_who_learns_from_a_folder_says_what_lies_there(write_config, tmp_path: Path) -> None:
    (first, _) = read_config(write_config(both_live(READS, LEARNS))).tenants
    assert first.learning is not None
    assert (first.reads, first.learning.folder) == (True, str(tmp_path / "new"))


def arrivals(**own: object) -> dict[str, Any]:
    """Changes with live arrivals, of which the first tenant's have these keys, too."""
    return both_live({**SERVES, "arrivals": {"live": True, **own}}, LEARNS)


BOTH_SERVE = both_live(SERVES, SERVES)
BAD = [
    (both_live({**SERVES, "arrivals": {"rate_rps": 5}}, LEARNS), "vision.arrivals: are a trace's, and others are live"),
    ({**BOTH_SERVE, "gpu.backend": "sim"}, "gpu.backend is sim; live arrivals need workers that are"),
    ({**BOTH_SERVE, "load": 0.5}, "load: is of traces, and live arrivals come as they come; leave it"),
    ({key: one for key, one in BOTH_SERVE.items() if "front_door" not in key}, "front_door: it is missing, and live"),
    ({**BOTH_SERVE, "forecast.method": "known"}, "forecast.method is known, and nobody knows what clients ask"),
    (arrivals(trace="azure-conv"), "tenants.vision.arrivals: trace is of traces, and live arrivals come from clients"),
    (arrivals(scale={"factor": 2.0}), "tenants.vision.arrivals: scale is of traces, and live arrivals come from"),
    (arrivals(loop=True), "tenants.vision.arrivals: loop is of traces, and live arrivals come from clients"),
    (arrivals(column="n"), "tenants.vision.arrivals: column is of trace files, and there is no history"),
    ({"tenants.0.arrivals.expect_rps": 5}, "tenants.vision.arrivals: expect_rps is of live arrivals; live: true is"),
    ({"tenants.0.accuracy": 83}, "tenants.vision.accuracy: {before, after} is needed, shares of at most 1; percent?"),
    (both_live({**LEARNS, "accuracy": 0.8}, LEARNS), "tenants.vision.accuracy: {before, after} is needed"),
    (both_live({**SERVES, "classes": None}, LEARNS), "tenants.vision.classes: it is missing, and needed of a model"),
    (both_live({**SERVES, "input": None}, LEARNS), "tenants.vision.input: it is missing, and needed of a model"),
    (both_live({**SERVES, "retraining": {"samples": 9}}, LEARNS), "tenants.vision.retraining: the model has no 'learn"),
    (both_live({**SERVES, **LEARNS}, LEARNS), "tenants.vision.input: is that of learning.benchmark; leave it out"),
    *(
        (both_live({**READS, key: None}, LEARNS), f"vision.{key}: it is missing, and")
        for key in READS
        if key != "learning"
    ),
    (both_live({**READS, "learning": {"benchmark": "folder"}}, LEARNS), "vision.learning.folder: it is missing; label"),
    (
        both_live({**READS, "input": SERVES["input"]}, LEARNS),
        "vision.input.dtype is float32; uint8 or uint16 is needed",
    ),
    (
        {**DOOR, "tenants.0.learning": READS["learning"], "tenants.1.learning": {"benchmark": "digits"}},
        "has no samples",
    ),
    ({**DOOR, "tenants.0.learning": {"benchmark": "digits"}}, "tenants.language: has no 'learning', whose samples are"),
    ({"gpu.backend": "nvml", "tenants.1.weights": "w"}, "tenants.language.weights: no model is served here; arrivals"),
    (both_live({**SERVES, "input": {"dtype": "uint8", "shape": [0]}}, LEARNS), "input.shape.0: at least 1 is needed"),
    ({"pin": {"layout": "always"}}, "pin.layout: "),
    ({"pin": True}, "pin: "),
    ({"pin": {"weights": "first"}}, "pin: unknown key 'weights'"),
    ({"tenants.0.pin": {"layout": True}}, "tenants.vision.pin: unknown key 'layout'"),
    ({"tenants.0.pin": {"weights": "first"}}, "tenants.vision.pin.weights: simulated models have no versions"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_model_that_cannot_be_served_so_is_told_in_one_line_with_file_and_key(write_config, changes, message) -> None:
    path = write_config(changes)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    text = str(caught.value)
    assert (text.startswith(f"{path}: "), message in text, "\n" in text) == (True, True, False), text


def test_a_policy_that_knows_what_comes_is_refused_before_anything_is_begun(write_config, call) -> None:
    path = write_config(BOTH_SERVE)
    code, _, err = call("run", path, "--policy", "oracle")
    said = f"{path}: arrivals are live, and policy oracle needs recorded ones; one that forecasts is needed"
    assert (code, said in " ".join(err.split())) == (2, True)
