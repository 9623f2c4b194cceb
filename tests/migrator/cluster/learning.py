"""A cluster's config with a tenant that learns, and one that has the operator's weights; and what they are asked."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from migrator.cluster.routes import Route
from tests.migrator.execution.live.test_run import made_up_profiles
from workloads.learning.datasets import benchmark
from workloads.learning.models import classifier

TENANTS = ("learns", "serves")

SHAPE = [1, 8, 8]


def document(folder: Path, port: int) -> dict[str, Any]:
    """The config, for a file in the folder, where its own files are written.

    A window is so long that the first retraining, and a drain after it, have time in it.
    """
    (folder / "learned.csv").write_text(made_up_profiles())
    for name, model in zip(TENANTS, ("mlp", "cnn"), strict=True):
        made = classifier(model, shape=SHAPE, n_classes=10, weights="random", device="cpu")
        made.save(folder / f"{name}.safetensors", {})
    gpu = {"model": "cpu-0.7-in-7", "backend": "cpu"}
    both = {"slo_ms": 4000, "arrivals": {"live": True, "expect_rps": 10}, "worker_start_s": 1}
    learns = {
        "model": "mlp",
        "accuracy": {"before": 0.4, "after": 0.9},
        "retraining": {"samples": 400, "epochs": 4, "required": True},
        "learning": {"benchmark": "digits-rotated"},
    }
    serves = {"model": "cnn", "accuracy": 0.7, "input": {"dtype": "uint8", "shape": SHAPE}, "classes": 10}
    return {
        "name": "two",
        "cluster": {"gpus": [{**gpu, "name": "a", "node": "n1"}, {**gpu, "name": "b", "node": "n2", "index": 1}]},
        "window_s": 180,
        "profiles": "learned.csv",
        "front_door": {"port": port},
        "forecast": {"history_s": 60, "half_life_s": 10},
        "planner": {"planning_s": 1, "switch_s": 0.5, "max_schedules": 50},
        "estimates": {"delay_s": 4},
        "tenants": [
            {**both, **own, "name": name, "weights": f"{name}.safetensors"}
            for name, own in zip(TENANTS, (learns, serves), strict=True)
        ],
    }


def images(n: int) -> list[str]:
    """Requests, each with another image."""
    pixels = benchmark("digits-rotated", seed=3).test(1).inputs[:n]
    tensor = {"name": "input", "datatype": "UINT8", "shape": [1, *SHAPE]}
    return [json.dumps({"inputs": [{**tensor, "data": one.ravel().tolist()}]}) for one in pixels]


def answers(door: Route, bodies: list[str]) -> tuple[str, list[int]]:
    """The version that answers, and its labels."""
    found, version = list[int](), ""
    for body in bodies:
        with closing(HTTPConnection(door.url.removeprefix("http://"), timeout=30)) as asked:
            asked.request("POST", f"/v2/models/{door.model}/infer", body)
            said = json.loads(asked.getresponse().read())
        found += said["outputs"][0]["data"]
        version = said["model_version"]
    return version, found
