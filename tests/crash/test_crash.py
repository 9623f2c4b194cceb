"""A few kills in ``make test``; ``make test-crash`` has many."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.kinds import Simulated
from tests.seeds import daily

ROOT = Path(__file__).parents[2]


def test_runs_that_are_killed_and_resumed_come_out_as_undisturbed_ones() -> None:
    command = [sys.executable, "-m", "tests.crash", "--kills", "8", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("every run came out as an undisturbed one\n")
    if shutil.which("gcc") is None:
        pytest.skip("gcc IS ABSENT: simulated runs were killed, none on the stand-in of NVIDIA's driver")


@pytest.mark.parametrize("n", daily([40, 4], [4]))
def test_runs_that_signals_end_leave_nothing_or_name_the_command_that_clears(n: int) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc IS ABSENT: no run on the stand-in of NVIDIA's driver was ended by a signal")
    command = [sys.executable, "-m", "tests.crash.endings", "--n", str(n), "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("every run ended in order\n")


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"seed": 3}, None),
        ({"seed": 4}, "totals are"),
        ({"name": "other"}, "the log is not that of an undisturbed run"),
    ],
)
def test_a_run_that_comes_out_otherwise_is_noticed(tmp_path: Path, changes: dict[str, Any], wrong: str | None) -> None:
    kinds = [Simulated("turns", "whole", one) for one in ({"seed": 3}, changes)]
    folders = [tmp_path / "undisturbed", tmp_path / "killed"]
    for kind, folder in zip(kinds, folders, strict=True):
        kind.begin(folder)
    found = kinds[0].wrong(folders[1], folders[0])
    assert found == wrong if wrong is None else found is not None and found.startswith(wrong)
