"""How long the command line takes to say --help, as whole processes: median of five after a warm-up."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

N_RUNS = 5


def main() -> None:
    """Print the median and the range in seconds, for a bare interpreter and for ``migrator --help``."""
    for label, command in (
        ("python -c pass", [sys.executable, "-c", "pass"]),
        ("migrator --help", [sys.executable, "-m", "migrator", "--help"]),
    ):
        seconds = [_run_s(command) for _ in range(N_RUNS + 1)][1:]
        print(f"{label:<20} {statistics.median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f}; target ≤ 1 s)")


def _run_s(command: list[str]) -> float:
    begin_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
