from __future__ import annotations

import numpy as np

from migrator.views.sparkline import sparkline


def test_blocks_rise_to_the_top() -> None:
    assert sparkline(np.array([0.0, 1.0, 4.0, 8.0]), 8.0) == " ▁▄█"


def test_whatever_is_above_zero_shows() -> None:
    assert sparkline(np.array([1e-9, 0.0]), 100.0) == "▁ "


def test_nothing_above_zero_is_blank() -> None:
    assert sparkline(np.zeros(3), 0.0) == "   "
