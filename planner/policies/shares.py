"""Policies that divide a GPU's processors without partitions, as MPS does: what they are asked, what they answer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from planner.arrays import Floats
from planner.policies.policy import AnyPolicy, Knows
from planner.problem import Owner, Task
from workloads.profiles.shares import TURN_COST, TWENTIETHS

QUANTA = TWENTIETHS
"""Shares are whole twentieths of the GPU: 5 % are the 5 or 6 of an A100's 108 processors that MPS tells apart."""


class RetrainingStage(StrEnum):
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
    """Processes of every share are ready: it changes at once."""


@dataclass(frozen=True, eq=False)
class ShareOption:
    """One way to do a retraining.

    Attributes:
        name: As in the config.
        accuracy_after: Of the retrained model, as estimated.
        training_rate: Part of it that a second does, ``(QUANTA + 1,)``, by twentieths of the GPU.
        salvage: What its model is worth beyond the window, in weighted right answers.
    """

    name: str
    accuracy_after: float
    training_rate: Floats
    salvage: float = 0.0


@dataclass(frozen=True)
class Batches:
    """One size of batches, and number of processes, in which a tenant may be served.

    Attributes:
        most: Requests in a batch at most.
        processes: Processes that divide the share, each with its own batches.
        speed: Full batches a second of one process, nothing beside, ``(QUANTA + 1,)``, by twentieths of the GPU.
    """

    most: int
    processes: int
    speed: Floats = field(compare=False)

    @property
    def kind(self) -> tuple[int, int]:
        """Processes and requests, which tell sizes apart."""
        return (self.processes, self.most)


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
        turns_rps: Requests a second within the SLO if all tenants take turns; ``None`` where none may.
        options: Ways to do a retraining that waits, the one that the other attributes tell of first; at most one, where
            there is nothing to choose.
        salvage: What its model is worth beyond the window, before and after the retraining; 0 where plans count none.
        is_due: Whether this window's retraining may not be left out.
        start_s: Seconds until a retraining that gets a share trains.
        slo_s: Seconds within which an answer counts.
        batches: Sizes in which it may be served, those of few processes first, then small ones.
        slowdowns: How many times as long its batches take by how many retrainings run at once, from none on.
    """

    name: str
    weight: float
    accuracy_before: float
    accuracy_after: float
    rate_rps: Floats
    training_rate: Floats
    done: float
    stage: RetrainingStage
    rate_beside: tuple[Floats, ...] = ()
    turns_rps: Floats | None = None
    options: tuple[ShareOption, ...] = ()
    salvage: tuple[float, float] = (0.0, 0.0)
    is_due: bool = False
    start_s: float = 0.0
    slo_s: float = math.inf
    batches: tuple[Batches, ...] = ()
    slowdowns: tuple[float, ...] = (1.0,)

    def slowdown_while(self, n_training: int) -> float:
        """How many times as long its batches take while so many retrainings run, its own included."""
        return self.slowdowns[min(n_training, len(self.slowdowns) - 1)]

    def rate_while(self, n_training: int) -> Floats:
        """Requests a second within the SLO while so many retrainings run, its own included; ``(QUANTA + 1,)``."""
        return self.rate_beside[min(n_training, len(self.rate_beside) - 1)] if self.rate_beside else self.rate_rps

    def retrained_by(self, name: str) -> ShareTenant:
        """The tenant if its retraining is done in the way of that name, one of ``options``."""
        option = next(option for option in self.options if option.name == name)
        return replace(
            self,
            accuracy_after=option.accuracy_after,
            training_rate=option.training_rate,
            salvage=(self.salvage[0], option.salvage),
        )

    def in_turns(self) -> ShareTenant:
        """The tenant while everybody takes turns; ``turns_rps`` is not ``None``."""
        assert self.turns_rps is not None
        return replace(
            self,
            rate_rps=self.turns_rps,
            training_rate=speed_in_turns(self.training_rate),
            rate_beside=(),
            batches=tuple(replace(own, speed=speed_in_turns(own.speed)) for own in self.batches),
            slowdowns=(1.0,),
        )

    def training_s(self, quanta: int) -> float:
        """Seconds until its retraining ends with so many twentieths; infinite where they do not train."""
        rate = float(self.training_rate[quanta])
        return self.start_s + (1 - self.done) / rate if rate > 0 else math.inf

    def least_training(self, left_s: float) -> int:
        """Twentieths that end a retraining that is due within so many seconds, 1 if none do; 0 where none is due."""
        if not (self.is_due and self.is_to_retrain):
            return 0
        return next((quanta for quanta in range(1, QUANTA + 1) if self.training_s(quanta) < left_s), 1)

    @property
    def is_to_retrain(self) -> bool:
        """Whether its retraining waits or runs."""
        return self.stage in (RetrainingStage.WAITING, RetrainingStage.RUNNING)

    @property
    def inference(self) -> Owner:
        """Its inference task."""
        return Owner(self.name, Task.INFERENCE)

    @property
    def retraining(self) -> Owner:
        """Its retraining task."""
        return Owner(self.name, Task.RETRAINING)


Shares = Mapping[Owner, int]
"""Twentieths of the GPU by task: every inference ≥ 1, retrainings that wait or run ≥ 0, together ≤ ``QUANTA``. One that
is due waits at 0 only for another one's end."""


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
        decided: The last one at which the policy decided; ``None`` at the first.
    """

    left_s: float
    tenants: tuple[ShareTenant, ...]
    ahead_rps: Floats
    past_rps: Floats
    shares: Shares
    as_published: bool
    window: int = 0
    decided: Moment | None = None

    def if_settled(self, options: Mapping[str, str], *, in_turns: bool) -> Moment:
        """The moment if tenants retrain in these ways, by name of the tenant, and take turns or do not."""
        tenants = [
            tenant.retrained_by(options[tenant.name]) if tenant.name in options else tenant for tenant in self.tenants
        ]
        return replace(self, tenants=tuple(tenant.in_turns() if in_turns else tenant for tenant in tenants))


@dataclass(frozen=True)
class Answer:
    """What is to be from now on.

    Attributes:
        shares: What each owner gets.
        in_turns: Whether a share is that part of the time with the whole GPU, else that part of its processors.
        options: How the retrainings that wait are to be done, by name of the tenant; others by their first option.
        batches: In which of its sizes a tenant is served, by name; others in those of the highest rate.
    """

    shares: Shares
    in_turns: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    batches: Mapping[str, Batches] = field(default_factory=dict)


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

    def reconsiders(self, moment: Moment) -> bool:  # noqa: ARG002 (most decide whenever they are asked)
        """Whether it decides anew at a moment of its period, where ``moment.decided`` is what it last decided by."""
        return True

    def answer(self, moment: Moment) -> Answer:
        """All that is settled from now on: by default shares side by side, retrainings by their first option."""
        return Answer(self.shares(moment))


def least_shares(moment: Moment) -> dict[Owner, int]:
    """What every task that may have a share has to get: inference 1, retrainings what ends those that are due.

    Where all of that is too much, 1 for as many retrainings that are due as have room, in the order of the tenants.
    """
    least = {tenant.inference: 1 for tenant in moment.tenants}
    training = {
        tenant.retraining: tenant.least_training(moment.left_s) for tenant in moment.tenants if tenant.is_to_retrain
    }
    room = QUANTA - len(least)
    if sum(training.values()) > room:
        first = [owner for owner, quanta in training.items() if quanta > 0][:room]
        training = {owner: int(owner in first) for owner in training}
    return least | training


def speed_in_turns(by_share: Floats) -> Floats:
    """What a second does by twentieths of the time with the whole GPU; ``by_share`` is by those of its processors."""
    rates: Floats = np.arange(QUANTA + 1) / QUANTA * by_share[-1] / (1 + TURN_COST)
    return rates


def quanta_for(by_share: Floats, wanted: float) -> float:
    """Quanta, with fractions, at which what rises with the share is as much as wanted; all if it never is."""
    if wanted >= by_share[-1]:
        return float(QUANTA)
    above = int(np.argmax(by_share >= wanted))
    if above == 0:
        return 0.0
    low, high = float(by_share[above - 1]), float(by_share[above])
    return above - 1 + (wanted - low) / (high - low)


def filled(needs: Mapping[Owner, float], floors: Mapping[Owner, int], n_quanta: int) -> dict[Owner, int]:
    """So many quanta: the floors, and the rest in proportion to the needs; the largest fractions are rounded up."""
    spare = n_quanta - sum(floors.values())
    total = sum(needs.values())
    wanted = {owner: spare * need / total if total > 0 else spare / len(needs) for owner, need in needs.items()}
    held = {owner: floors[owner] + math.floor(quanta) for owner, quanta in wanted.items()}
    rests = sorted(wanted, key=lambda owner: (math.floor(wanted[owner]) - wanted[owner], str(owner)))
    for owner in rests[: n_quanta - sum(held.values())]:
        held[owner] += 1
    return held


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
    if not any(shares.get(tenant.retraining, 0) > 0 for tenant in moment.tenants):
        most = QUANTA - len(moment.tenants)
        for tenant in moment.tenants:
            if tenant.is_due and tenant.is_to_retrain and tenant.training_s(most) < moment.left_s:
                return (
                    f"{tenant.retraining} gets no share, is due (retraining.required, max_skipped), could end in time, "
                    "and waits for no other"
                )
    if min(shares.values()) < 0 or sum(shares.values()) > QUANTA:
        return f"shares are {sorted(shares.values())}; from 0 on, and {QUANTA} together, are allowed"
    return None
