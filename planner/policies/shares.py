"""Policies that divide a GPU's processors without partitions, as MPS does: what they are asked, what they answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from planner.policies.policy import AnyPolicy, Knows
from planner.problem import FloatArray, Owner, Task

QUANTA = 20
"""Shares are whole twentieths of the GPU: 5 % are the 5 or 6 of an A100's 108 processors that MPS tells apart."""


class Stage(StrEnum):
    """How far a tenant's retraining of this window is."""

    NONE = "none"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


class Switching(StrEnum):
    """How processes get another share, which MPS fixes when a process starts."""

    RESTART = "restart"
    """They end, and start anew: nothing is served meanwhile."""

    SHADOW = "shadow"
    """New ones start beside the old, which serve until those are ready."""

    POOL = "pool"
    """Processes of every share stand ready: it changes at once."""


@dataclass(frozen=True, eq=False)
class ShareTenant:
    """A tenant at the moment of a decision. Arrays are ``(QUANTA + 1,)``, by twentieths of the GPU.

    Attributes:
        name: As in the config.
        weight: What a correct answer in time is worth.
        accuracy_before: Of the model in service.
        accuracy_after: Of the retrained one.
        rate_rps: Requests a second within the SLO, with the interference to be expected.
        training_rate: Part of a retraining that a second does; all 0 without one.
        done: Part of this window's retraining that is done.
        stage: How far it is.
        rate_beside: ``rate_rps`` by how many retrainings run at once, from none on; empty where that does not matter.
    """

    name: str
    weight: float
    accuracy_before: float
    accuracy_after: float
    rate_rps: FloatArray
    training_rate: FloatArray
    done: float
    stage: Stage
    rate_beside: tuple[FloatArray, ...] = ()

    def rate_while(self, n_training: int) -> FloatArray:
        """Requests a second within the SLO while so many retrainings run, its own included; ``(QUANTA + 1,)``."""
        return self.rate_beside[min(n_training, len(self.rate_beside) - 1)] if self.rate_beside else self.rate_rps

    @property
    def is_to_retrain(self) -> bool:
        """Whether its retraining waits or runs."""
        return self.stage in (Stage.WAITING, Stage.RUNNING)

    @property
    def inference(self) -> Owner:
        """Its inference task."""
        return Owner(self.name, Task.INFERENCE)

    @property
    def retraining(self) -> Owner:
        """Its retraining task."""
        return Owner(self.name, Task.RETRAINING)


Shares = Mapping[Owner, int]
"""Twentieths of the GPU by task: every inference ≥ 1, retrainings that wait or run ≥ 0, together ≤ ``QUANTA``."""


@dataclass(frozen=True, eq=False)
class Moment:
    """When a policy may decide: at a window's start, when a retraining ends, and as often as it asks.

    Attributes:
        left_s: Seconds to the window's end.
        tenants: In the config's order.
        ahead_rps: Arrivals a second of the steps from now to the window's end as the policy may know them,
            ``(n_steps_left, n_tenants)``.
        past_rps: Those of the seconds before now, oldest first, ``(n_past, n_tenants)``.
        shares: In force; empty before the first decision.
        as_published: As in :class:`planner.policies.policy.Window`.
        window: Its number.
    """

    left_s: float
    tenants: tuple[ShareTenant, ...]
    ahead_rps: FloatArray
    past_rps: FloatArray
    shares: Shares
    as_published: bool
    window: int = 0


class SharePolicy(AnyPolicy):
    """One way to divide a GPU's processors: answers with shares at each moment."""

    @property
    @abstractmethod
    def switching(self) -> Switching:
        """How shares change as published; in a comparison of decisions alone nothing restarts."""

    @property
    @abstractmethod
    def period_s(self) -> int | None:
        """Seconds between decisions; ``None`` to decide only when windows begin and retrainings end."""

    @property
    def needs_hindsight(self) -> bool:
        """Whether it looks ahead; it decides moment by moment, so the past is known when it is needed."""
        return self.knows in (Knows.WINDOW, Knows.RUN)

    @abstractmethod
    def shares(self, moment: Moment) -> Shares:
        """Which task gets what from now on."""


def violation(shares: Shares, moment: Moment) -> str | None:
    """Why the shares are refused; ``None`` if they are allowed."""
    allowed = {tenant.inference for tenant in moment.tenants}
    allowed |= {tenant.retraining for tenant in moment.tenants if tenant.is_to_retrain}
    strangers = [owner for owner in shares if owner not in allowed]
    if strangers:
        return f"{strangers[0]} gets a share; only inference and retrainings that wait or run may"
    for tenant in moment.tenants:
        if shares.get(tenant.inference, 0) < 1:
            return f"{tenant.inference} gets no share; at least 1 of {QUANTA} is needed"
    if min(shares.values()) < 0 or sum(shares.values()) > QUANTA:
        return f"shares are {sorted(shares.values())}; from 0 on, and {QUANTA} together, are allowed"
    return None
