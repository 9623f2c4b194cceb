"""Start-up: packages of other distributions in the place of ours are told in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from migrator.__main__ import BESIDE, shadowed

ROOT = Path(__file__).parents[2]


def started(folder: Path) -> subprocess.CompletedProcess[str]:
    """``migrator --version`` where ``folder`` is looked in first."""
    paths = os.pathsep.join((str(folder), str(ROOT)))
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[1:] = ['--version']; from migrator.__main__ import main; main()",
    ]
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_our_own_packages_are_not_taken_for_others() -> None:
    assert list(shadowed(ROOT)) == []


def test_a_package_from_elsewhere_is_told(tmp_path: Path) -> None:
    (found,) = (one for one in shadowed(tmp_path) if "executor" in one)
    assert found.startswith(
        f"the package executor would come from {ROOT / 'executor'}, not from {tmp_path / 'executor'}"
    )


def test_start_up_says_in_one_line_that_a_package_is_anothers(tmp_path: Path) -> None:
    (tmp_path / "forecaster").mkdir()
    (tmp_path / "forecaster" / "__init__.py").touch()
    ran = started(tmp_path)
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
    assert f"the package forecaster would come from {tmp_path / 'forecaster'}" in ran.stderr


def test_start_up_says_nothing_where_all_is_our_own(tmp_path: Path) -> None:
    ran = started(tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_cannot_be_imported_from_anothers_package_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "planner.py").write_text("")
    ran = started(tmp_path)
    assert (ran.returncode, "Traceback" in ran.stderr) == (1, False)
    assert "'planner' is not a package: something else takes the place" in ran.stderr


def test_the_four_packages_beside_migrator_are_looked_at() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert {*BESIDE, "migrator"} == packages
