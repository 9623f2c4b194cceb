"""``simulation.driver`` and ``simulation.others`` from the config file on: what the GPU then does, and what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from executor.errors import DriverError, InUseError, RetryableGpuError
from executor.gpu import Gpu
from migrator.config.reading import read_config
from migrator.execution.applier import Backend
from migrator.execution.simulated import simulated_backend
from migrator.inputs.assembly import assemble
from migrator.log.runlog import read_log

Opened = Callable[[dict[str, Any]], Backend]

NOT_BEFORE_THE_END = {"others": [{"placement": "1g.10gb@6", "from_s": 9000, "to_s": 9100}]}
"""Somebody else's instance that no run of two minutes meets."""


@pytest.fixture
def opened(write_config: Callable[..., Path]) -> Opened:
    """The backend of the small config with this ``simulation``, ten seconds before the run."""

    def made(simulation: dict[str, Any]) -> Backend:
        path = write_config({"simulation": simulation, "tenants.1.arrivals": {"rate_rps": 5}})
        setting, _ = assemble(read_config(path), str(path))
        return simulated_backend(setting)(-10.0)

    return made


def seen(gpu: Gpu) -> list[str]:
    return [str(item.placement) for item in gpu.instances()]


def test_without_keys_the_gpu_is_empty_and_refuses_nothing(opened: Opened) -> None:
    gpu = opened({}).gpu
    for _ in range(50):
        gpu.destroy(gpu.create(gpu.model.placement("7g.80gb@0")).gi_id)
    assert gpu.instances() == ()


def test_calls_are_refused_as_the_config_says(opened: Opened) -> None:
    gpu = opened({"driver": {"error_share": 1, "half_share": 0}}).gpu
    with pytest.raises(DriverError):
        gpu.create(gpu.model.placement("7g.80gb@0"))


def test_instances_stay_for_as_long_as_the_config_says(opened: Opened) -> None:
    backend = opened({"driver": {"in_use_share": 1, "in_use_s": 30, "half_share": 0}})
    gpu, clock = backend.gpu, backend.clock
    made, begin_s = gpu.create(gpu.model.placement("7g.80gb@0")), clock.now_s
    while True:
        try:
            gpu.destroy(made.gi_id)
        except InUseError:
            clock.sleep_until(clock.now_s + 1)
        else:
            break
    assert 30 <= clock.now_s - begin_s < 32


def test_the_seed_decides_what_is_refused(opened: Opened) -> None:
    def refused() -> list[str]:
        gpu, found = opened({"driver": {"error_share": 0.5}}).gpu, []
        for placement in gpu.model.placements(["1g.10gb"]):
            try:
                gpu.create(placement)
            except RetryableGpuError as error:
                found.append(str(error))
        return found

    assert refused() == refused() != []


def test_others_instances_without_moments_are_there_from_the_beginning(opened: Opened) -> None:
    assert seen(opened({"others": [{"placement": "1g.10gb@6"}]}).gpu) == ["1g.10gb@6"]


def test_others_instances_come_and_go_by_the_seconds_of_the_run(opened: Opened) -> None:
    backend = opened({"others": [{"placement": "1g.10gb@6", "from_s": 0, "to_s": 50}]})
    found = []
    for now_s in (-1, 0, 49, 50):
        backend.clock.sleep_until(now_s)
        found.append(seen(backend.gpu))
    assert found == [[], ["1g.10gb@6"], ["1g.10gb@6"], []]


@pytest.fixture
def run(write_config: Callable[..., Path], call: Callable[..., Any]) -> Callable[[dict[str, Any]], str]:
    """Runs the small config with this ``simulation`` into the folder ``run``, and says what was printed."""

    def made(simulation: dict[str, Any], *arguments: str) -> str:
        code, printed, _ = call(
            "run", write_config({"windows": 1, "simulation": simulation}), "--out", "run", *arguments
        )
        assert code == 0
        return " ".join(printed.split())

    return made


def test_a_run_without_faults_says_nothing_of_them(run) -> None:
    assert "simulated faults" not in run({})
    assert read_log(Path("run")).header.simulated_faults is None


def test_a_run_that_may_meet_faults_says_so_in_its_log(run) -> None:
    run(NOT_BEFORE_THE_END)
    told = to_builtins(read_log(Path("run")).header.simulated_faults)
    assert list(told["others"]) == NOT_BEFORE_THE_END["others"]


def test_a_report_says_that_faults_were_simulated(run) -> None:
    printed = run(NOT_BEFORE_THE_END)
    assert "simulated faults: somebody else has 1g.10gb@6 from 9000 s to 9100 s" in printed


def test_a_policy_without_instances_meets_no_faults_and_says_nothing_of_them(run) -> None:
    assert "simulated faults" not in run({"driver": {"error_share": 1}}, "--policy", "ekya")


def test_a_report_tells_what_was_refused_and_what_came_of_promises(run, call: Callable[..., Any]) -> None:
    printed = run({"driver": {"error_share": 0.6, "half_share": 0}})
    assert "trouble with the GPU:" in printed
    assert "driver calls refused" in printed
    assert "by their first plans" in call("report", "run", "--full")[1]
    _, found, _ = call("report", "run", "--json")
    trouble = json.loads(found)["trouble"]
    assert 0 < trouble["refused"] < trouble["calls"]
    assert trouble["troubled"]["windows"] == 1


def test_a_report_without_refusals_tells_of_no_trouble(run, call: Callable[..., Any]) -> None:
    assert "trouble" not in run({})
    _, found, _ = call("report", "run", "--json")
    assert "trouble" not in json.loads(found)
