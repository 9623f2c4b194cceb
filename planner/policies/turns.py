"""Policies that give the whole GPU to one tenant or task at a time: what they are asked, what they answer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.arrays import Floats
from planner.policies.policy import AnyPolicy

SecondsByBatch = Mapping[int, float]
"""Seconds of one turn on the whole GPU by the requests, or samples, that it takes; at least one."""


@dataclass(frozen=True)
class TurnOption:
    """One way to do a retraining.

    Attributes:
        name: As in the config.
        work_s: Seconds of the whole GPU at the batch with the highest rate, as estimated, > 0.
        accuracy_after: Of the retrained model, as estimated.
        salvage: What its model is worth beyond the window, in weighted right answers.
        checkpoints: Parts of the work, ascending in (0, 1), after which its weights may be served, and the accuracy
            that they give then, as estimated.
    """

    name: str
    work_s: float
    accuracy_after: float
    salvage: float = 0.0
    checkpoints: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class TurnRetraining:
    """What is known of a tenant's retraining in the window.

    Attributes:
        options: Ways to do it, at least one; the full one first.
        step_s: Seconds of a training step by batch.
        rate_rps: Samples a second, up to a factor, by the same batches.
        ready_s: Seconds into the window at which it may begin.
        is_required: Whether it must be done, also where that does not pay.
    """

    options: tuple[TurnOption, ...]
    step_s: SecondsByBatch
    rate_rps: Mapping[int, float]
    ready_s: float
    is_required: bool = True


@dataclass(frozen=True)
class TurnTenant:
    """A tenant as a window begins.

    Attributes:
        rate_rps: Arrivals a second, as expected by what the policy knows.
        slo_s: Seconds within which an answer counts.
        serving_s: Seconds of a turn by requests.
        weight: What a correct answer in time is worth.
        accuracy_before: Of the model in service.
        salvage: What the model in service is worth beyond the window, in weighted right answers.
        retraining: ``None`` without one in the window.
        paths_rps: Ways in which its arrivals may go, in equal steps of the window, ``(n_paths, n_steps)``; those of
            all tenants are drawn together. ``None`` where only ``rate_rps`` is known.
    """

    rate_rps: float
    slo_s: float
    serving_s: SecondsByBatch
    weight: float
    accuracy_before: float
    salvage: float = 0.0
    retraining: TurnRetraining | None = None
    paths_rps: Floats | None = field(default=None, compare=False)

    @property
    def options(self) -> tuple[TurnOption, ...]:
        """Ways to retrain it in the window."""
        return () if self.retraining is None else self.retraining.options


@dataclass(frozen=True, slots=True)
class PacedRetraining:
    """A retraining, or what of it lies between two checkpoints, as it is to be done.

    Attributes:
        tenant_index: Whose.
        option: In which way.
        work_s: Seconds of the GPU in steps of that length, > 0.
        piece_s: Seconds of a step, after which requests may go first, > 0.
        pace: Share of the GPU that it is to have until it is due; 0: it never goes before requests.
        due_s: Seconds into the window at which it is to be done.
        worth: Tenants whose seconds are worth more do not come to be late by its going first.
        checkpoint: The part of the retraining that is done then; ``None`` for all of it.
        is_last: Whether it is done then, or another part of it follows, so that others may go between.
    """

    tenant_index: int
    option: TurnOption
    work_s: float
    piece_s: float
    pace: float = 0.0
    due_s: float = math.inf
    worth: float = 0.0
    checkpoint: float | None = None
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class TurnSchedule:
    """What is settled when a window begins; whose turn it is shows as requests come.

    Attributes:
        limits: By tenant, most requests in a turn, each a key of ``serving_s``.
        retrainings: Those to be done, the first one first; at most one a tenant, perhaps from checkpoint to checkpoint.
        worth: By tenant, what a second of its turns is worth at first, and after each of its ``retrainings``; only the
            order matters.
    """

    limits: tuple[int, ...]
    retrainings: tuple[PacedRetraining, ...]
    worth: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """How serving and retrainings share a GPU's memory, where weights are known: Sirius's Algorithm 1.

    Attributes:
        watermark_mib: What serving keeps, or takes, beyond its active models (W).
        idle_s: For how long after its last batch began a model stays active (T_idle).
        load_mib_s: At how many MiB a second a model comes that was gone.
        discard_s: Of a retraining's work, what is lost where memory is taken from it.
    """

    watermark_mib: float
    idle_s: float
    load_mib_s: float
    discard_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("watermark_mib", "idle_s", "discard_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)}: must be finite and not below 0")
        if not 0 < self.load_mib_s < math.inf:
            raise ValueError(f"load_mib_s {self.load_mib_s}: must be finite and above 0")


@dataclass(frozen=True, slots=True)
class GivingWay:
    """How retrainings give way to requests, and go on beside them, in place of taking turns with them.

    Attributes:
        give_way_s: Until one has left, if it has all of the GPU.
        discard_s: Of its work, what is lost then.
        window_s: For how long the processors that a batch needs are kept from it afterwards.
        slack_s: For how long requests leave one alone if all can wait until it has left after that; 0: never.
        slowdown: What latencies are multiplied by while one is to be done; also how much longer a batch may last on the
            processors that it needs than on all.
        has_interference: Whether the config's interference slows serving down as well, as it does with MPS.
        memory: How memory changes hands; ``None``: all is resident. A model with a batch of one has to fit then.
    """

    give_way_s: float = 0.0
    discard_s: float = 0.0
    window_s: float = 0.0
    slack_s: float = 0.005
    slowdown: float = 1.05
    has_interference: bool = False
    memory: MemoryRule | None = None

    def __post_init__(self) -> None:
        for name in ("give_way_s", "discard_s", "window_s", "slack_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)}: must be finite and not below 0")
        if not 1 <= self.slowdown < math.inf:
            raise ValueError(f"slowdown {self.slowdown}: must be finite and at least 1")


class TurnPolicy(AnyPolicy):
    """One way to take turns on the whole GPU: answers with a course for each window.

    Attributes:
        slowdown: What every batch's and training step's time is multiplied by, > 0.
        trains_in_slack: Whether a retraining does a step also while requests wait, if all of them can still be answered
            by the earliest deadline.
        turn_cost: The share by which what does not follow something of the same tenant and task lasts longer, ≥ 0.
        chooses: Whether it may leave retrainings out. Else it does all, and one that a window's end meets goes on; with
            it, one is given up where its tenant has a newer one.
        has_joint_turns: Whether all processes of a tenant serve in its turn, one batch each; else it has one.
        shortest_first: Whether retrainings go by what is left of them as a window begins; else as the course has them.
        gives_way: How retrainings give way to requests; ``None``: both take turns.
        serves_checkpoints: Whether a retraining's weights are written and served at its checkpoints; else there are
            none.
    """

    slowdown: float = 1.0
    trains_in_slack: bool = True
    turn_cost: float = 0.0
    chooses: bool = False
    has_joint_turns: bool = False
    shortest_first: bool = False
    gives_way: GivingWay | None = None
    serves_checkpoints: bool = False

    @property
    def needs_hindsight(self) -> bool:
        """Never: its decisions use the past, or the forecast, which are known when they are made."""
        return False

    @abstractmethod
    def course(self, tenants: Sequence[TurnTenant], window_s: float) -> TurnSchedule:
        """What is settled for a window of so many seconds."""


def cheapest(serving_s: SecondsByBatch, longest_s: float) -> int | None:
    """The batch with the least time a request among those short enough, ties to the smaller; ``None`` without one."""
    allowed = [(seconds / batch, batch) for batch, seconds in serving_s.items() if seconds <= longest_s]
    return min(allowed)[1] if allowed else None


def least_busy(
    tenants: Sequence[TurnTenant],
    rates_rps: Sequence[float],
    longest_s: Iterable[float],
    room_s: Callable[[float, float], float],
) -> tuple[int, ...] | None:
    """By tenant, the requests in a turn with which the GPU is least busy; ``None`` where no choice meets all SLOs.

    Only the longest turn ties tenants to each other: with it given, each one's best is found alone.

    Args:
        tenants: Who takes turns.
        rates_rps: By tenant, the arrivals by which they keep it busy.
        longest_s: What the longest turn of any of them may last.
        room_s: What a turn may last, by the longest one's seconds and the tenant's SLO.
    """
    best, least = None, math.inf
    for own_s in sorted(set(longest_s)):
        limits = [cheapest(tenant.serving_s, room_s(own_s, tenant.slo_s)) for tenant in tenants]
        chosen = tuple(limit for limit in limits if limit is not None)
        if len(chosen) < len(tenants):
            continue
        terms = zip(rates_rps, tenants, chosen, strict=True)
        busy = sum(rate * tenant.serving_s[limit] / limit for rate, tenant, limit in terms)
        if busy < least:
            best, least = chosen, busy
    return best


def training_batch(step_s: SecondsByBatch, rate_rps: Mapping[int, float], longest_s: float) -> int:
    """The batch with the highest rate among those whose training step lasts at most so long; else the shortest step.

    Ties go to the smaller batch. ``rate_rps`` has the same keys as ``step_s``.
    """
    allowed = [batch for batch, seconds in step_s.items() if seconds <= longest_s]
    if not allowed:
        return min(step_s, key=lambda batch: (step_s[batch], batch))
    return min(allowed, key=lambda batch: (-rate_rps[batch], batch))


def in_steps(
    index: int, retraining: TurnRetraining, option: TurnOption, longest_s: float, longer: float = 1.0
) -> PacedRetraining:
    """The retraining in the best steps that last no longer, ``longer`` times as long as measured; else the shortest."""
    step_s = {batch: longer * seconds for batch, seconds in retraining.step_s.items()}
    batch = training_batch(step_s, retraining.rate_rps, longest_s)
    relative_rate = retraining.rate_rps[batch] / max(retraining.rate_rps.values())
    return PacedRetraining(index, option, option.work_s / relative_rate, retraining.step_s[batch])
