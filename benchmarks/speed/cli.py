"""What the command line takes, as whole processes: seconds until ``--help`` is there, and CPU seconds of a run.

A run's are those of one window of 200 s of W7's two tenants, without what a run takes once: by how much a run of five
windows takes more than one of one, shared by four.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N_RUNS = 5
MORE_WINDOWS = 5
CONFIG = Path(__file__).parents[2] / "configs" / "w7.yaml"


def main() -> None:
    """Print medians and ranges: seconds of a bare interpreter and of ``--help``; CPU seconds of a run's window."""
    for label, command in (
        ("python -c pass", [sys.executable, "-c", "pass"]),
        ("migrator --help", [sys.executable, "-m", "migrator", "--help"]),
    ):
        seconds = [_taken_s(command)[0] for _ in range(N_RUNS + 1)][1:]
        print(f"{label:<28} {_summary(seconds)} s; target ≤ 1 s")
    for pools in ("off", "auto"):
        _run_s(pools, 1)  # what is compiled is kept
        own = [(_run_s(pools, MORE_WINDOWS) - _run_s(pools, 1)) / (MORE_WINDOWS - 1) for _ in range(N_RUNS)]
        print(f"{f'a window of w7, pools {pools}':<28} {_summary(own)} CPU s; target ≤ 2.3 s")


def _summary(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"


def _run_s(pools: str, windows: int) -> float:
    """CPU seconds of a run, simulated."""
    with tempfile.TemporaryDirectory() as folder:
        terms = ["--set", f"sharing.pools={pools}", "--windows", str(windows), "--out", f"{folder}/run"]
        return _taken_s([sys.executable, "-m", "migrator", "run", str(CONFIG), *terms])[1]


def _taken_s(command: list[str]) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a process."""
    begin_s, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin_s, cpu_s


if __name__ == "__main__":
    main()
