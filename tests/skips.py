"""How many tests may be skipped, and why: a skip that nobody expects is a test that nobody runs.

Counted with gcc and curl, as CI has them, and without a GPU: the larger number of ``make test`` and ``make test-live``.
A run that skips more fails. One that skips fewer, as of some folders alone, does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

Table = Mapping[tuple[str, str], int]
"""By folder of ``tests`` and beginning of the reason."""

ALLOWED: Table = {
    ("executor", "MIGRATOR_TEST_GPU does not name a GPU"): 80,
    ("executor", "NOT TESTED on this machine: CPU shares by control groups v1"): 45,
    ("executor", "NOT TESTED on this machine: CPU shares by control groups v2"): 45,
    ("executor", "NOT TESTED: MPS on a real card"): 41,
    ("executor", "no GPU here is in MIG mode"): 1,
    ("executor", "there is no nvidia-smi here"): 4,
    ("forecaster", "NOT TESTED: needs the extra `neural`"): 7,
    ("forecaster", "could not import 'lightgbm'"): 1,
    ("forecaster", "needs the extra `forecast`"): 7,
    ("migrator", "NOT TESTED: needs the extra `live`"): 1,
    ("migrator", "NOT TESTED: needs the extra `neural`"): 1,
    ("migrator", "NOT TESTED: pages in a browser"): 36,
    ("planner", "gurobipy is not installed"): 26,
    ("tests", "NOT TESTED: the newest versions"): 1,
    ("workloads", "NOT TESTED: pools on a real card"): 1,
}
DATA = Path(__file__).parents[2] / "shared" / "data"
WITHOUT_DATA: Table = {
    ("forecaster", "needs the Azure LLM 2023 trace beside the repository"): 4,
    ("workloads", "the project's measured data is not beside this checkout"): 17,
}
"""What may be skipped besides where :data:`DATA` is absent."""


def surplus(skipped: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each folder and reason with more skips than may be; ``skipped`` are node ids, each with its reason."""
    allowed = ALLOWED if DATA.is_dir() else {**ALLOWED, **WITHOUT_DATA}
    counts: Counter[tuple[str, str]] = Counter()
    for node_id, reason in set(skipped):
        folder = _folder(node_id)
        known = (text for where, text in allowed if where == folder and reason.startswith(text))
        counts[folder, next(known, reason)] += 1
    return [
        f"{folder}: {number}, {allowed.get((folder, reason), 0)} may be: {reason}"
        for (folder, reason), number in sorted(counts.items())
        if number > allowed.get((folder, reason), 0)
    ]


def _folder(node_id: str) -> str:
    """The folder of ``tests`` in which a test is; of those at the top, ``tests`` itself."""
    parts = Path(node_id.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 else "tests"
