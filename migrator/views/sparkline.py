"""Numbers over time as one line of blocks."""

from __future__ import annotations

from migrator.views.timescale import FloatArray

BLOCKS = " ▁▂▃▄▅▆▇█"
"""From nothing to the top; nothing at all is a blank."""


def sparkline(values: FloatArray, top: float) -> str:
    """One block a value, 0 to ``top``; whatever is above 0 shows."""
    n_levels = len(BLOCKS) - 1
    levels = [0 if value <= 0 or top <= 0 else max(1, min(n_levels, round(value / top * n_levels))) for value in values]
    return "".join(BLOCKS[level] for level in levels)
