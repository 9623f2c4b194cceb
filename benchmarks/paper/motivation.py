"""The studies that motivate the paper (its Figures 2 to 5), made anew in simulation and printed as JSON.

Usage: python -m benchmarks.paper.motivation
"""

from __future__ import annotations

import json

from benchmarks.paper.figure_2 import figure_2
from benchmarks.paper.figure_3 import figure_3
from benchmarks.paper.figure_4 import figure_4
from benchmarks.paper.figure_5 import figure_5


def studies() -> dict[str, object]:
    """By figure: ``title``, ``text`` (what was varied, with what), ``rows``, ``found`` and ``paper`` (sentences).

    The same every time, on any machine.
    """
    return {"figure-2": figure_2(), "figure-3": figure_3(), "figure-4": figure_4(), "figure-5": figure_5()}


if __name__ == "__main__":
    print(json.dumps(studies(), indent=1))
