"""``migrator``: this product as it runs; ``oracle`` and ``lookahead-K``: the same with true arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from planner.bursts import held_to_floor
from planner.plan import MigPlan
from planner.policies.policy import Knows, Policy, Window
from planner.solve import solve


@dataclass(frozen=True)
class Migrator(Policy):
    """Plans each window with the engine ``physical``: placements, real transition costs, pre-initialisation.

    Source: this product; the idea of a goodput program over MIG layouts and retrainings is MIGRator's (its section 4).
    Knows: the forecast, estimates of accuracy and retraining time. Adaptations: none.
    """

    name: str = "migrator"
    knows: Knows = Knows.FORECAST

    @property
    def replans(self) -> bool:
        """At the config's ``planner.replan_every_s``, and at once where something did not go as planned."""
        return True

    @property
    def has_pools(self) -> bool:
        """As the config's ``sharing.pools`` has them."""
        return True

    def plan(self, window: Window) -> MigPlan:
        """The best plan within the budget that is safe from bursts, where that is asked for.

        Floors of in-time answers are kept if they cost no more than allowed.
        """
        costs = window.floor_costs_at_most
        plan = solve(window.problem, "physical", window.budget, window.running, floor_costs_at_most=costs)
        return held_to_floor(window.problem, plan, window.running, window.scenarios)


@dataclass(frozen=True)
class Oracle(Migrator):
    """``migrator`` with each window's true arrivals: not a real policy, it shows what better forecasts could gain.

    Source: this product. Knows: the window's arrivals. It plans window by window like ``migrator``, so that over a
    whole run it may lose to a plan that gives up something in one window for the next.
    """

    name: str = "oracle"
    knows: Knows = Knows.WINDOW


@dataclass(frozen=True)
class Lookahead(Migrator):
    """``migrator`` with the true arrivals of the next seconds: not a real policy, it shows what foresight is worth.

    Source: this product. Knows: the true arrivals of the next ``ahead_s`` seconds and, beyond them, the forecast from
    what has arrived before. So that it always knows as much, the rest of a window is planned anew at least as often.

    Attributes:
        ahead_s: Seconds.
    """

    name: str = "lookahead-30"
    knows: Knows = Knows.AHEAD
    ahead_s: float = 30.0

    @classmethod
    def of(cls, ahead_s: int) -> Self:
        """The policy that knows so many seconds."""
        return cls(f"lookahead-{ahead_s}", ahead_s=ahead_s)

    @property
    def looks_ahead_s(self) -> float:
        """``ahead_s``."""
        return self.ahead_s
