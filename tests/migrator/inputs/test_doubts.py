"""What a config asks for and no plan can do is told, with its figures; of usual configs nothing is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import migrator
from migrator.config.reading import read_config
from migrator.inputs.assembly import untraced
from tests.migrator.conftest import WriteConfig

Call = Callable[..., tuple[int, str, str]]

CONFIGS = [
    path
    for path in sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
    if "\ncluster:" not in path.read_text("utf-8")
]
"""Those of runs."""

LEFT_OUT = {"retraining.required": False}


def told(write_config: WriteConfig, changes: dict[str, Any]) -> list[str]:
    path = write_config(changes)
    return [line for line in untraced(read_config(path), str(path)).warnings if line.startswith("tenants.")]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_shipped_configs_leave_no_doubt(path: Path) -> None:
    assert untraced(read_config(path), str(path)).warnings == ()


@pytest.mark.parametrize(
    ("changes", "patterns"),
    [
        (
            {"tenants.0.retraining.samples": 40_000_000},
            [r"vision\.retraining fits into no window of 60 s, .* is 77,523 s, .* 77,520 s are training, on 4g\.40gb"],
        ),
        (
            {"tenants.1.worker_start_s": 3000},
            [r"language\.worker_start_s is 3,000 s: more than a tenth of a window of 60 s, and every change"],
        ),
        (
            {"tenants.0.retraining_start_s": 59},
            [r"vision\.retraining_start_s is 59 s: .* and every retraining", r"vision\.retraining fits into no window"],
        ),
        ({"tenants.0.worker_start_s": 6.0}, []),
        ({"tenants.0.worker_start_s": 6.1}, [r"vision\.worker_start_s is 6\.1 s"]),
        ({"tenants.1.slo_ms": 60_001}, [r"language\.slo_ms is 60,001, in milliseconds: longer than a window of 60 s"]),
        ({"tenants.1.slo_ms": 60_000}, []),
        (
            {"tenants.0.accuracy.after": 0.5},
            [r"vision\.accuracy falls by retraining, from 0\.6 to 0\.5 in window 0 and"],
        ),
        ({"tenants.1.accuracy.0.after": 0.1}, []),  # which is never retrained
    ],
)
def test_a_doubt_names_its_key_and_its_figures(
    write_config: WriteConfig, changes: dict[str, Any], patterns: list[str]
) -> None:
    found = told(write_config, changes | LEFT_OUT)
    assert len(found) == len(patterns), found
    assert all(re.match(rf"tenants\.{pattern}", line) for pattern, line in zip(patterns, found, strict=True)), found


@pytest.mark.parametrize("samples", [28_000, 30_000])
def test_a_retraining_is_doubted_exactly_where_no_plan_has_it(write_config: WriteConfig, samples: int) -> None:
    changes = {
        "windows": 1,
        "tenants.0.retraining.samples": samples,
        "tenants.0.accuracy": {"before": 0.01, "after": 0.99},
    }
    path = write_config(changes | LEFT_OUT)
    plan = migrator.plan(migrator.load_config(path))
    has_one = any(item["task"] == "retraining" for item in plan.instances())
    assert has_one is not any("fits into no window" in line for line in told(write_config, changes | LEFT_OUT))


@pytest.mark.usefixtures("in_this_process")
def test_every_verb_that_plans_a_config_tells_it(call: Call, write_config: WriteConfig) -> None:
    config = write_config({"windows": 1, "window_s": 20, "tenants.0.retraining.samples": 40_000_000} | LEFT_OUT)
    for verb in (
        ("run", config, "--policy", "whole"),
        ("plan", config),
        ("whatif", config, "--vary", "window=0", "--jobs", 1),
        ("compare", config, "--policies", "whole", "--jobs", 1),
    ):
        code, _, err = call(*verb)
        assert code == 0, err
        assert err.count("warning: tenants.vision.retraining fits into no window of 20 s") == 1, verb
