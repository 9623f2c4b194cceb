"""``oracle``: this product's planner with the true arrivals."""

from __future__ import annotations

from dataclasses import dataclass

from planner.policies.ours import Migrator
from planner.policies.policy import Knows


@dataclass(frozen=True)
class Oracle(Migrator):
    """``migrator`` told each window's true arrivals: no real policy, but what forecasting better could gain.

    Source: this product. Knows: the window's arrivals. It plans window by window like ``migrator``, so that over a
    whole run it may lose to a plan that gives up something in one window for the next.
    """

    name: str = "oracle"
    knows: Knows = Knows.WINDOW
