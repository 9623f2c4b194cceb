"""What a policy is asked, what it may know, and what it answers: the base of every policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from planner.budget import Budget
from planner.plan import MigPlan
from planner.problem import FloatArray, Problem


class Knows(StrEnum):
    """Of which arrivals a policy is told when it answers for a window."""

    FORECAST = "forecast"
    """Those of the window as the run's forecaster predicts them from the past."""

    PAST = "past"
    """The true arrivals, of which it may use for a decision at a step only those before it."""

    WINDOW = "window"
    """The window's true arrivals: an upper bound for planning window by window."""

    RUN = "run"
    """All windows' true arrivals, before the first."""

    @property
    def needs_hindsight(self) -> bool:
        """Whether a policy that plans whole windows can be told this only where the arrivals are recorded.

        ``PAST`` counts, too: such a policy answers for the window at once and finds the window's true arrivals in
        ``window.problem``. That it uses those before each decision step only is left to the policy.
        """
        return self is not Knows.FORECAST


class Batching(StrEnum):
    """Who says how many requests an instance takes at once."""

    OWN = "own"
    """The policy: the batch sizes and process counts of the highest rate within the SLO."""

    GIVEN = "given"
    """The config's ``batch``."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy's own source gives it beside its decisions.

    Attributes:
        batching: As published; in a comparison of decisions alone, every policy chooses freely.
        pushes: Whether each request is sent to the instance that would answer it first (ELSA), instead of
            waiting in one queue for whichever is idle.
    """

    batching: Batching = Batching.OWN
    pushes: bool = False


@dataclass(frozen=True, eq=False)
class Window:
    """A window that a policy is to answer for.

    Attributes:
        number: From 0.
        problem: A ``physical`` problem, its arrivals and gain tables those that the policy may know; its initial
            state is what the policy's last answer has left, ``None`` in the first window.
        budget: What an engine may spend.
        past_rps: Arrival rates of the steps before the window, oldest first, ``(n_past, n_tenants)``.
        plans: What was in force in the windows before, oldest first.
        as_published: Whether the policy is to forecast and to switch as its source does; else as ``migrator``
            does, so that only its decisions differ.
    """

    number: int
    problem: Problem
    budget: Budget
    past_rps: FloatArray
    plans: tuple[MigPlan, ...] = ()
    as_published: bool = False


class AnyPolicy(ABC):
    """What all policies have, whether they answer with plans, with shares or with turns on the whole GPU."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What ``--policies`` takes."""

    @property
    @abstractmethod
    def knows(self) -> Knows:
        """Of which arrivals it is told."""

    @property
    def traits(self) -> Traits:
        """What its source gives it beside its decisions."""
        return Traits()

    @property
    def needs_hindsight(self) -> bool:
        """Whether it can answer only where the arrivals to come are recorded."""
        return self.knows.needs_hindsight


class Policy(AnyPolicy):
    """One way to share a MIG GPU: answers with a plan for each window.

    A subclass is a frozen dataclass that gives ``name`` and ``knows`` as fields, ``traits`` where they differ.
    """

    def prepared(self, run: Sequence[Problem]) -> Self:  # noqa: ARG002 (most policies plan window by window)
        """The policy once it has seen all windows' true problems; called only where it ``knows`` the run."""
        return self

    @abstractmethod
    def plan(self, window: Window) -> MigPlan:
        """A plan that keeps the rules of ``window.problem``, or one without lifetimes that says why there is none."""
