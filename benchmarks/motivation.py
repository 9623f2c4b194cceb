"""The studies that motivate the paper (its Figures 2 to 5), made anew in simulation and printed as JSON.

Usage: python benchmarks/motivation.py
"""

from __future__ import annotations

import json

from motivation_figure_2 import figure_2
from motivation_figure_3 import figure_3
from motivation_figure_4 import figure_4
from motivation_figure_5 import figure_5


def studies() -> dict[str, object]:
    """By figure: ``title``, ``text`` (what was varied, with what), ``rows``, ``found`` and ``paper`` (sentences).

    The same every time, on any machine.
    """
    return {"figure-2": figure_2(), "figure-3": figure_3(), "figure-4": figure_4(), "figure-5": figure_5()}


if __name__ == "__main__":
    print(json.dumps(studies(), indent=1))
