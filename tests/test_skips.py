"""A run with more skips than the table has fails, also in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import daily
from tests.skips import ALLOWED, WITHOUT_DATA, surplus

ROOT = Path(__file__).parents[1]
FOLDER, REASON = "forecaster", "needs the extra `forecast`"
N_ALLOWED = ALLOWED[FOLDER, REASON]

SKIPPING = f"""import pytest

@pytest.mark.parametrize("number", range({N_ALLOWED}))
def test_a(number):
    pytest.skip("{REASON}, of such a version")

@pytest.mark.skipif(True, reason="{REASON}")
def test_b():
    pass

def test_c():
    pass
"""


def skips(number: int, reason: str = REASON, folder: str = FOLDER) -> list[tuple[str, str]]:
    return [(f"tests/{folder}/test_a.py::test_a[{n}]", reason) for n in range(number)]


def test_as_many_as_the_table_has_may_be_skipped_and_not_one_more() -> None:
    assert surplus(skips(N_ALLOWED)) == []
    assert surplus(skips(N_ALLOWED + 1)) == [f"{FOLDER}: {N_ALLOWED + 1}, {N_ALLOWED} may be: {REASON}"]


def test_a_test_whose_skip_is_told_twice_counts_once() -> None:
    assert surplus(skips(N_ALLOWED) * 2) == []


def test_a_reason_is_another_folder_s_or_nobody_s_elsewhere() -> None:
    assert surplus(skips(1, folder="planner/engines")) == [f"planner: 1, 0 may be: {REASON}"]
    assert surplus([("tests/test_docs.py::test_a", "the moon is full")]) == ["tests: 1, 0 may be: the moon is full"]


def test_data_may_be_missed_only_where_it_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder, reason), number = next(iter(WITHOUT_DATA.items()))
    for data, n_told in ((tmp_path, 1), (tmp_path / "absent", 0)):
        monkeypatch.setattr("tests.skips.DATA", data)
        assert len(surplus(skips(number, reason, folder))) == n_told


@pytest.mark.parametrize("processes", daily(["0", "2"], ["2"]))
def test_a_run_that_skips_too_many_fails_and_says_which(tmp_path: Path, processes: str) -> None:
    file = tmp_path / "tests" / FOLDER / "test_skipping.py"
    file.parent.mkdir(parents=True)
    file.write_text(SKIPPING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = live: as ours\n")

    def ran(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--import-mode=importlib", "-n", processes]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    failed = ran()
    assert failed.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"TOO MANY SKIPPED in {FOLDER}: {N_ALLOWED + 1}, {N_ALLOWED} may be: {REASON}" in failed.stdout
    assert ran("-k", "test_a or test_c").returncode == pytest.ExitCode.OK
