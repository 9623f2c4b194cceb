"""Plans in other tools' words; the script is run against the stand-in of NVIDIA's driver."""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from plans import continued_case, lent_case, physical_case
from problems import physical_problem

from executor.catalogue import gpu_model
from executor.mig import Placement
from migrator.views.emit import Emitted, emitted
from planner.plan import Lifetime, MigPlan
from planner.problem import (
    HeldInstance,
    Owner,
    PhysicalState,
    Problem,
    Reconfiguration,
    RunningRetraining,
    Task,
    TenantTerms,
)
from planner.solve import solve
from tests.standin.cards import A30, A100_40, A100_80, H100_80
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import StandIn

CARDS = {"a30-24gb": A30, "a100-40gb": A100_40, "a100-80gb": A100_80, "h100-80gb": H100_80}

SLEEP = """#!/bin/sh
echo "waits"
nvidia-smi mig -i 0 -lgi
exit 0
"""
"""Instead of waiting: what stands by then."""


def what(problem: Problem, plan: MigPlan, begins_s: float = 0.0) -> Emitted:
    return Emitted(problem, plan, begins_s, "problem.json")


def commands(text: str) -> list[str]:
    """The script without its functions and comments."""
    lines = text.partition('    nvidia-smi mig -i "$gpu" -cgi "$1:$2" -C\n}\n')[2].splitlines()
    return [line.partition(" #")[0] for line in lines if line and not line.startswith("#")]


def layouts_of(told: Emitted) -> list[set[tuple[str, int]]]:
    """Every layout of the plan, one after the other, from what it begins with."""
    found = [told.before.layout, *(change.layout.layout for change in told.changes)]
    named = [{(placement.profile.name, placement.start) for placement in layout} for layout in found]
    return [layout for n, layout in enumerate(named) if n == 0 or layout != named[n - 1]]


def carried_out(told: Emitted, standin: StandIn, folder: Path, monkeypatch) -> list[set[tuple[str, int]]]:
    """What stands at each wait of the script, and at its end."""
    for placement in told.before.layout:
        standin.put(placement.profile.name, placement.start)
    (folder / "bin").mkdir()
    (folder / "bin" / "sleep").write_text(SLEEP)
    (folder / "bin" / "sleep").chmod(0o755)
    (folder / "plan.sh").write_text(emitted("nvidia-smi", told))
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    done = subprocess.run(["sh", str(folder / "plan.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pieces = done.stdout.split("waits\n")[1:]
    seen = [{(name, int(at)) for name, at in re.findall(r"MIG (\S+) .* (\d+):\d+ ", piece)} for piece in pieces]
    return [*seen, {(item.profile, item.start) for item in standin.standing()}]


def walk(card: str, seed: int, n_steps: int = 8) -> tuple[Problem, MigPlan]:
    """From one layout to the next; what two of them share lives on, sometimes with another owner."""
    rng = random.Random(seed)
    gpu = gpu_model(card)
    layouts = gpu.layouts()
    terms = TenantTerms("a", np.full(n_steps, 1.0), {gpu.profile_names[-1]: 1.0}, 1.0, 0.0, gpu.profile_names[-1])
    problem = Problem(gpu, 1.0, n_steps, Reconfiguration.PHYSICAL, (terms,))
    alive: dict[Placement, Lifetime] = {}
    ended: list[Lifetime] = []
    for step in range(n_steps):
        layout = rng.choice(layouts)
        leaving = [placement for placement in alive if placement not in layout or rng.random() < 0.2]
        ended += [replace(alive.pop(placement), end_step=step) for placement in leaving]
        for placement in (p for p in layout if p not in alive):
            alive[placement] = Lifetime(placement, Owner("a", rng.choice(list(Task))), step, step, n_steps)
    lifetimes = tuple(sorted((*ended, *alive.values()), key=lambda item: (item.create_step, item.placement.sort_key)))
    return problem, replace(physical_case()[1], n_steps=n_steps, lifetimes=lifetimes)


@pytest.mark.parametrize("case", [*((card, seed) for card in CARDS for seed in range(3))], ids=str)
def test_the_script_makes_every_layout_of_the_plan_in_order(
    make_standin: MakeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, int]
) -> None:
    problem, plan = walk(*case)
    told = what(problem, plan, begins_s=3600.0)  # so late that every change waits
    seen = carried_out(told, make_standin(CARDS[problem.gpu.name]), tmp_path, monkeypatch)
    assert len(seen) > 4
    assert seen == layouts_of(told)


def test_the_script_goes_on_from_what_a_window_begins_with(
    make_standin: MakeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = physical_problem(11)  # an initial state, and three changes
    told = what(problem, solve(problem, engine="greedy"), begins_s=3600.0)
    assert len(told.before.layout) > 0
    assert carried_out(told, make_standin(A30), tmp_path, monkeypatch) == layouts_of(told)


def test_only_what_differs_is_commanded() -> None:
    assert commands(emitted("nvidia-smi", what(*physical_case()))) == [
        "until_second 0",
        "create 5 0",
        "create 14 2",
        "create 14 3",
    ]


def test_what_a_window_begins_with_is_expected_and_not_made() -> None:
    text = emitted("nvidia-smi", what(*continued_case()))
    assert "# It expects: 2g.12gb@0 1g.6gb@2 1g.6gb@3\n" in text
    assert commands(text) == []


def test_an_instance_that_changes_hands_is_told() -> None:
    text = emitted("nvidia-smi", what(*continued_case()))
    assert "# Second 4: 2g.12gb@0 1g.6gb@2 1g.6gb@3\n" in text
    assert "# 1g.6gb@3: from a/retraining to b/inference, in the same instance\n" in text


def test_seconds_are_those_of_the_window_and_whole() -> None:
    problem, plan = physical_case()
    text = emitted("nvidia-smi", what(replace(problem, step_s=0.5), plan, begins_s=6.5))
    assert "# Second 6.5: " in text
    assert "until_second 7 # rounded up\n" in text


def test_a_name_cannot_leave_its_comment() -> None:
    problem, plan = physical_case()
    text = emitted("nvidia-smi", Emitted(problem, plan, 0.0, "x\nreboot\n"))
    assert "\nreboot" not in text


def test_an_instance_that_is_not_there_ends_the_script(make_standin: MakeStandIn, tmp_path: Path) -> None:
    standin = make_standin(A30)
    problem, plan = continued_case()
    told = what(problem, replace(plan, lifetimes=plan.lifetimes[:2]))
    (tmp_path / "plan.sh").write_text(emitted("nvidia-smi", told))
    done = subprocess.run(["sh", str(tmp_path / "plan.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "no GPU instance of profile 14 at 3\n")
    assert standin.standing() == ()


def test_mig_parted_gets_a_configuration_for_each_layout() -> None:
    problem, plan = continued_case()
    text = emitted("mig-parted", what(problem, replace(plan, lifetimes=plan.lifetimes[:3]), begins_s=20.0))
    assert "no placements" in text
    assert yaml.safe_load(text) == {
        "version": "v1",
        "mig-configs": {
            "second-20": [{"devices": [0], "mig-enabled": True, "mig-devices": {"2g.12gb": 1, "1g.6gb": 2}}],
            "second-24": [{"devices": [0], "mig-enabled": True, "mig-devices": {"2g.12gb": 1, "1g.6gb": 1}}],
        },
    }


def test_a_loan_changes_no_instance() -> None:
    problem, plan = lent_case()
    held = tuple(HeldInstance(item.placement, "a", 0, ("b",)) for item in plan.lifetimes[:2])
    run = RunningRetraining(plan.lifetimes[2].placement, "a", 3, 1)
    goes_on = replace(problem, initial=PhysicalState(held, (run,)))
    for told, n_layouts in ((what(problem, plan), 2), (what(goes_on, plan), 1)):
        assert len(layouts_of(told)) == n_layouts
        assert layouts_of(told)[-1] == {("2g.12gb", 0), ("1g.6gb", 2)}


@pytest.mark.parametrize("seed", range(12))
def test_mig_parteds_counts_are_those_of_the_plans_layouts(seed: int) -> None:
    told = what(*walk("a100-40gb", seed))
    configs = yaml.safe_load(emitted("mig-parted", told))["mig-configs"]
    counts = [Counter(name for name, _ in layout) for layout in layouts_of(told)[1:]]
    assert [Counter(device["mig-devices"]) for (device,) in configs.values()] == counts
