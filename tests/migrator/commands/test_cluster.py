"""``migrator cluster`` on the command line, in this process: beside ``plan``, and with answers that are wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from migrator.cluster import posing
from migrator.config.cluster import ClusterConfig
from tests.migrator.cluster.test_cluster import A, B, document, gpus, tenant, written
from tests.migrator.conftest import Inline

Answer = dict[str, Any]

Mutation = Callable[[np.random.Generator, Answer], object]

FREE = ["free-0", "free-1", "free-2", "free-3"]
"""Tenants that may be anywhere."""


@pytest.fixture
def call_here(call, monkeypatch: pytest.MonkeyPatch):
    """Calls the command line; all is done in this process, and a window or a set that comes again is not made again."""
    windows = dict[str, posing.FirstWindow]()

    def foreseen(cluster: ClusterConfig, origin: str, n_processes: int) -> posing.FirstWindow:
        key = repr((cluster, origin))
        if key not in windows:
            windows[key] = posing.first_window(cluster, origin, n_processes)
        return windows[key]

    monkeypatch.setattr(posing, "Processes", Inline)
    monkeypatch.setattr(posing, "_summary", cache(posing._summary))
    monkeypatch.setattr("migrator.commands.cluster.first_window", foreseen)
    return call


def _names(file: Answer) -> list[str]:
    return [name for gpu in file["gpus"] for name in gpu["tenants"]]


def _any(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def _put(file: Answer, gpu: int, *names: str) -> None:
    """These tenants on that GPU, and on no other."""
    for one in file["gpus"]:
        one["tenants"] = [name for name in one["tenants"] if name not in names]
    file["gpus"][gpu]["tenants"] += names


def _changed(file: Answer, key: str, by: float) -> None:
    """One GPU's figure, with the sum and the gap that then belong to it."""
    file["gpus"][0][key] += by
    file[key] += by
    file["gap"] = (file["bound"] - file["worth"]) / file["bound"]


def _rebound(rng: np.random.Generator, file: Answer) -> None:
    """Another bound above the worth, and the gap that then belongs to it."""
    value = file["worth"] + (file["bound"] - file["worth"]) * _any(rng, [rng.uniform(0.1, 0.9), rng.uniform(1.1, 3)])
    file.update(bound=value, bound_exclusive=value, gap=(value - file["worth"]) / value)


def _more(rng: np.random.Generator, least: float, most: float) -> float:
    return float(rng.choice([-1, 1]) * rng.uniform(least, most))


def _dearer(rng: np.random.Generator, file: Answer) -> None:
    by = float(file["bound"] * rng.uniform(0.5, 2))
    file["prices"] = [[[memory + by, compute] for memory, compute in own] for own in file["prices"]]


def _lost(rng: np.random.Generator, file: Answer) -> None:
    lost = _any(rng, _names(file))
    for gpu in file["gpus"]:
        gpu["tenants"] = [name for name in gpu["tenants"] if name != lost]


def _unplaced(rng: np.random.Generator, file: Answer) -> None:
    file["unplaced"].append({"tenant": _any(rng, _names(file)), "reason": "said so"})
    file["status"] = "infeasible"


def _traded(_: np.random.Generator, file: Answer) -> None:
    first, second = file["gpus"]
    first["worth"], second["worth"] = second["worth"], first["worth"]


MUTATIONS: dict[str, tuple[str, Mutation]] = {
    "a tenant twice": (
        "is assigned 2 times",
        lambda rng, file: _any(rng, file["gpus"])["tenants"].append(_any(rng, FREE)),
    ),
    "a forbidden GPU": ("tenant mobile is on GPU b.0, where it may not be", lambda _, file: _put(file, 1, "mobile")),
    "a GPU with too many": (
        "has 8 tenants; at most 7 are allowed",
        lambda rng, file: _put(file, int(rng.integers(2)), *_names(file)),
    ),
    "two that are kept apart": (
        "tenants language, mobile are on one GPU",
        lambda _, file: _put(file, 0, "language", "mobile"),
    ),
    "two replicas on one GPU": (
        "tenants vision.0, vision.1 are on one",
        lambda rng, file: _put(file, int(rng.integers(2)), "vision.0", "vision.1"),
    ),
    "a tenant that is nowhere": ("is neither on a GPU nor unplaced", _lost),
    "a tenant that is placed and not": ("is on a GPU and unplaced", _unplaced),
    "a tenant that there is not": (
        "'nobody' is no tenant of the fleet",
        lambda rng, file: _any(rng, file["gpus"])["tenants"].append("nobody"),
    ),
    "a GPU's worth": ("is said to be worth", lambda rng, file: _changed(file, "worth", -rng.uniform(1, 900))),
    "the worths of two GPUs": ("is said to be worth", _traded),
    "a GPU's expected goodput": (
        "gpus.a.0.expected_goodput is",
        lambda rng, file: _changed(file, "expected_goodput", _more(rng, 1, 900)),
    ),
    "the worth": ("worth is", lambda rng, file: file.update(worth=file["worth"] + _more(rng, 1, 900))),
    "the expected goodput": (
        "expected_goodput is",
        lambda rng, file: file.update(expected_goodput=file["expected_goodput"] + _more(rng, 1, 900)),
    ),
    "the bound": (
        "the bound is said to be",
        _rebound,
    ),
    "the bound alone": ("bound is", lambda rng, file: file.update(bound=file["bound"] * (1 + rng.uniform(1e-4, 0.3)))),
    "the prices": ("the bound is said to be", _dearer),
    "the gap": ("gap is", lambda rng, file: file.update(gap=file["gap"] * rng.uniform(0, 0.9))),
    "the status": (
        "status is",
        lambda rng, file: file.update(status=_any(rng, ["optimal", "infeasible", "proven"])),
    ),
    "a GPU twice": ("the GPUs are", lambda rng, file: file["gpus"].append(_any(rng, file["gpus"]))),
    "a GPU of another name, model or node": (
        "the GPUs are",
        lambda rng, file: _any(rng, file["gpus"]).update({_any(rng, ["name", "model", "node"]): "z"}),
    ),
}
"""What is changed in an answer, and what the refusal then says first; sums that follow from it are changed along."""


def test_200_mutated_answers_are_refused_each_in_a_line_that_names_the_cause(call_here, tmp_path: Path) -> None:
    def eight(data: dict[str, Any]) -> None:
        gpus(A, B)(data)
        data["tenants"][2].update(only_on=["n1"])
        data["tenants"] += [tenant(name, "mobilenet-v2", 100, 900, load_share=0.1) for name in FREE]

    config, path = written(tmp_path, eight), tmp_path / "plan.json"
    assert call_here("cluster", "plan", config, "--out", path)[0] == 0
    assert call_here("cluster", "verify", path, config)[0] == 0
    answer = json.loads(path.read_text())
    assert 0 < answer["gap"] < 0.2
    for what, (message, mutate) in MUTATIONS.items():
        for seed in range(200 // len(MUTATIONS)):
            mutate(np.random.default_rng(seed), mutated := copy.deepcopy(answer))
            path.write_text(json.dumps(mutated))
            code, out, err = call_here("cluster", "verify", path, config)
            line = err.splitlines()[-1]
            assert (code, out) == (2, ""), (what, seed)
            assert line.startswith(f"error: {path}: "), (what, line)
            assert message in line, (what, line)


def test_with_one_gpu_its_plan_is_that_of_plan_to_the_byte(call_here, tmp_path: Path) -> None:
    tenants = [tenant("vision", "resnet50", 150, 900), tenant("language", "bert-large", 330, 1500)]
    config = written(tmp_path, lambda data: (data.update(tenants=tenants), gpus(A)(data)))
    alone = {key: value for key, value in document().items() if key != "cluster"}
    one = tmp_path / "one.yaml"
    one.write_text(yaml.safe_dump({**alone, "tenants": tenants, "gpu": {"model": "a100-80gb"}}))
    code, out, _ = call_here("cluster", "plan", config, "--write", tmp_path / "gpus", "--json")
    plans = [
        _without_seconds(call_here("plan", path, "--may-miss-floors", "--json"))
        for path in (one, tmp_path / "gpus" / "a.0.yaml")
    ]
    assert (code, plans[0]) == (0, plans[1])
    assert json.loads(out)["worth"] == json.loads("\n".join(plans[0]))["objective"]


def _without_seconds(called: tuple[int, str, str]) -> list[str]:
    """The lines of a plan but for how long it took."""
    code, out, _ = called
    assert code == 0
    kept = [line for line in out.splitlines() if not line.lstrip().startswith(('"solve_s"', '"load_s"'))]
    assert len(kept) == len(out.splitlines()) - 2
    return kept


def test_names_of_gpus_and_the_order_of_tenants_change_no_value(call_here, tmp_path: Path) -> None:
    def answered(change: Callable[[dict[str, Any]], object]) -> Answer:
        code, out, _ = call_here("cluster", "plan", written(tmp_path, change), "--json")
        assert code == 0
        found: Answer = json.loads(out)
        return found

    first = answered(gpus(A, B))
    swapped = answered(lambda data: (gpus({**A, "name": "b"}, {**B, "name": "a"})(data), data["tenants"].reverse()))
    names = {"a.0": "b.0", "b.0": "a.0"}
    assert swapped == {**first, "gpus": [{**gpu, "name": names[gpu["name"]]} for gpu in first["gpus"]]}
