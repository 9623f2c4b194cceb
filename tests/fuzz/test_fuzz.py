"""Some dozens of wrong inputs of each kind, drawn from a seed; ``python -m tests.fuzz`` draws as many as wanted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.cases import KINDS
from tests.fuzz.judge import Originals, judged, kind_of, originals_of

SEED, N_CASES = 12, 80


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    return originals_of(tmp_path_factory.mktemp("originals") / "here")


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_inputs_are_refused_in_one_line_or_do_no_harm(kind: str, originals: Originals) -> None:
    verdicts = [judged(SEED, number, originals) for number in range(N_CASES) if kind_of(number) == kind]
    broken = [f"python -m tests.fuzz --seed {SEED} --case {one.number}: {one}" for one in verdicts if one.broken]
    assert not broken, "\n".join(broken)


def verdict_of(number: int, originals: Originals) -> tuple[str, ...]:
    return judged(SEED, number, originals, in_process=True).broken


A_REPORT = next(number for number in range(100) if kind_of(number) == "log")


def test_an_unforeseen_error_is_noticed(originals: Originals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.log.runlog.log_of", lambda *_: {}["missing"])
    assert "unforeseen in the output" in verdict_of(A_REPORT, originals)


def test_a_file_written_outside_the_output_is_noticed(originals: Originals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.cli.let_streams_take_any_text", lambda: Path("stray").touch())
    assert any("stray" in promise for promise in verdict_of(A_REPORT, originals))


def test_an_escape_sequence_is_noticed(originals: Originals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.cli.let_streams_take_any_text", lambda: print("\x1b[31m"))  # noqa: T201
    assert "control characters in the output" in verdict_of(A_REPORT, originals)


def test_a_case_can_be_made_again(originals: Originals) -> None:
    one, again = (judged(SEED, A_REPORT, originals, in_process=True) for _ in range(2))
    assert (one.arguments, one.err, one.code) == (again.arguments, again.err, again.code)


SPINS = """
from tests.fuzz import __main__ as fuzz
fuzz.HANGS_CPU_S = 0.1
with fuzz.given_up_if_it_hangs():
    sum(range(10**15))
"""


def test_a_case_that_spins_is_given_up_by_its_cpu_time_and_shows_where() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SPINS], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, "line 5 in <module>" in ended.stderr) == (-signal.SIGPROF, True)
