"""What a policy is asked, what it may know, and what it answers: the base of every policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from planner.arrays import Floats
from planner.budget import FLOOR_COSTS_AT_MOST, Budget
from planner.bursts import Scenarios
from planner.plan import MigPlan
from planner.problem import Problem


class Knows(StrEnum):
    """Which arrivals a policy is given when it answers for a window."""

    FORECAST = "forecast"
    """The window's arrivals as the run's forecaster predicts them from the past."""

    PAST = "past"
    """The true arrivals; a decision at a step may use only those before that step."""

    AHEAD = "ahead"
    """The true arrivals of the next seconds, and the forecast beyond them."""

    WINDOW = "window"
    """The window's true arrivals: an upper bound for planning window by window."""

    RUN = "run"
    """All windows' true arrivals, before the first."""

    @property
    def needs_hindsight(self) -> bool:
        """Whether a policy that plans whole windows can be given this only where the arrivals are recorded.

        ``PAST`` counts as well: such a policy answers for the whole window at once, so ``window.problem`` holds the
        window's true arrivals. Nothing but the policy itself keeps it to those before each decision step.
        """
        return self is not Knows.FORECAST


class Batching(StrEnum):
    """What sets how many requests an instance takes at once."""

    OWN = "own"
    """The policy: the batch sizes and process counts of the highest rate within the SLO."""

    GIVEN = "given"
    """The config's ``batch``."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy has from its own source beside its decisions.

    Attributes:
        batching: As published; in a comparison of decisions alone, every policy chooses freely.
        pushes: Whether each request goes at once to the instance that would answer it first (ELSA). Otherwise
            requests wait in one queue for the next idle instance.
    """

    batching: Batching = Batching.OWN
    pushes: bool = False


@dataclass(frozen=True, eq=False)
class Window:
    """A window that a policy is to answer for.

    Attributes:
        number: From 0.
        problem: A ``physical`` problem with the arrivals and gain tables that the policy may know. Its initial
            state is what the policy's last answer has left; ``None`` in the first window.
        budget: What an engine may spend.
        past_rps: Arrival rates of the steps before the plan was begun, oldest first, ``(n_past, n_tenants)``; where the
            policy knows the ``PAST``, of those before the problem's first.
        plans: What was in force in the last two windows before, oldest first; in all of them where the policy
            ``recalls_all``.
        as_published: Whether the policy forecasts and switches as its source does. Otherwise it does both as
            ``migrator`` does, so that only its decisions differ.
        running: What is left of the plan in force, where the rest of a window is planned anew; else ``None``.
        scenarios: Arrivals that may come, against which a plan is to be safe; ``None`` where none are asked for.
        floor_costs_at_most: What floors of in-time answers may cost, in hundredths of the requests that arrive.
    """

    number: int
    problem: Problem
    budget: Budget
    past_rps: Floats
    plans: tuple[MigPlan, ...] = ()
    as_published: bool = False
    running: MigPlan | None = None
    scenarios: Scenarios | None = None
    floor_costs_at_most: float = FLOOR_COSTS_AT_MOST


class AnyPolicy(ABC):
    """What all policies have, whether they answer with plans, with shares or with turns on the whole GPU."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What ``--policies`` takes."""

    @property
    @abstractmethod
    def knows(self) -> Knows:
        """Which arrivals it is given."""

    @property
    def traits(self) -> Traits:
        """What it has from its source beside its decisions."""
        return Traits()

    @property
    def has_pools(self) -> bool:
        """Whether it plans pools: tenants whose inference holds instances together."""
        return False

    def pools_in(self, window: int) -> Sequence[tuple[str, ...]] | None:  # noqa: ARG002
        """The pools of a window, by their members, where it is settled already who they are; else ``None``."""
        return None

    @property
    def looks_ahead_s(self) -> float | None:
        """For how many seconds it knows the true arrivals, where it ``knows`` those ``AHEAD``; else ``None``."""
        return None

    @property
    def needs_hindsight(self) -> bool:
        """Whether it can answer only where the arrivals to come are recorded."""
        return self.knows.needs_hindsight


class Policy(AnyPolicy):
    """One way to share a MIG GPU: answers with a plan for each window.

    A subclass is a frozen dataclass with ``name`` and ``knows`` as fields, ``traits`` where they differ.
    """

    @property
    def replans(self) -> bool:
        """Whether the rest of a window is planned anew as it goes, where the config asks for that.

        Where a plan cannot be followed any more, every policy is asked anew.
        """
        return False

    @property
    def recalls_all(self) -> bool:
        """Whether it sees the plans of all windows before, which are then kept for as long as a run lasts."""
        return False

    def prepared(self, run: Sequence[Problem]) -> Self:  # noqa: ARG002 (most policies plan window by window)
        """The policy once it has seen all windows' true problems; called only where it ``knows`` the run."""
        return self

    @abstractmethod
    def plan(self, window: Window) -> MigPlan:
        """A plan that keeps the rules of ``window.problem``, or one without lifetimes that says why there is none."""
