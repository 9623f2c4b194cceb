"""What a policy is asked, what it may know, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

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


class Batching(StrEnum):
    """Who says how many requests an instance takes at once."""

    OWN = "own"
    """The policy: the batch sizes and process counts of the highest rate within the SLO."""

    GIVEN = "given"
    """The config's ``batch``."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy's own source gives it beside its decisions; a policy without ``traits`` has these defaults.

    Attributes:
        batching: As published; in a comparison of policies only, everybody chooses freely.
        pushes: Whether each request is sent to the instance that would answer it first (ELSA), instead of
            waiting in one queue for whichever is idle.
    """

    batching: Batching = Batching.OWN
    pushes: bool = False


def traits_of(policy: object) -> Traits:
    """The policy's traits, the defaults where it names none."""
    traits = getattr(policy, "traits", None)
    return traits if isinstance(traits, Traits) else Traits()


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


class Policy(Protocol):
    """One way to share a MIG GPU.

    Attributes:
        name: What ``--policies`` takes.
        knows: Of which arrivals it is told.
    """

    @property
    def name(self) -> str:
        """What ``--policies`` takes."""
        ...

    @property
    def knows(self) -> Knows:
        """Of which arrivals it is told."""
        ...

    def prepared(self, run: Sequence[Problem]) -> Self:
        """The policy once it has seen all windows' true problems; called only where it ``knows`` the run."""
        ...

    def plan(self, window: Window) -> MigPlan:
        """A plan that keeps the rules of ``window.problem``, or one without lifetimes that says why there is none."""
        ...
