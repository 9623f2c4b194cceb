"""``whole``: no partition at all; tenants take turns on the whole GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.policies.policy import AnyPolicy, Knows

SecondsByBatch = Mapping[int, float]
"""Seconds of one batch on the whole GPU by batch size, one process; at least one."""


@dataclass(frozen=True)
class Whole(AnyPolicy):
    """Serves one tenant's batch at a time on the whole GPU, the earliest deadline first, and trains in the gaps.

    Source: none publishes it as a policy of its own. It is the usual way to share an accelerator in time: one batch at
    a time, as in Clockwork (OSDI '20), in the order of deadlines, as large as what waits, and training at low priority.
    It is there to ask why to use MIG at all.
    Knows: the arrivals before the window, for batch limits and the order of retrainings. While serving it knows only
    which requests wait.
    Adaptations: a batch is limited so that a request that just missed one is answered in time after the longest batch
    of any tenant and its own (MIG policies count two of its own). Among these limits those are taken that sustain the
    most of the mix. A retraining gives way after each step; its batch is as large as the tightest SLO allows beside a
    batch, so it may lose rate against an instance that trains undisturbed. The order of retrainings is by right answers
    gained for a second of work. Kind to it: all models and training states fit into memory, and changing from one to
    another takes no time.

    Attributes:
        slowdown: What every batch's and training step's time is multiplied by, > 0. One batch at a time disturbs
            no other, so it is 1; higher values show at which cost of taking turns partitions win.
        trains_in_slack: Whether a retraining does a step also while requests wait, if all of them can still be answered
            by the earliest deadline. Without it, it trains only when no request waits. That hardly happens
            at high load, as an idle GPU takes what waits at once, in small batches.
    """

    name: str = "whole"
    knows: Knows = Knows.PAST
    slowdown: float = 1.0
    trains_in_slack: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.slowdown < math.inf:
            raise ValueError(f"{self.name}: slowdown {self.slowdown}: must be finite and above 0")

    @property
    def needs_hindsight(self) -> bool:
        """Never: its decisions use the past, which is known when they are made."""
        return False


def batch_limits(
    latency_s: Sequence[SecondsByBatch], slo_s: Sequence[float], rate_rps: Sequence[float], slowdown: float = 1.0
) -> tuple[int, ...]:
    """By tenant, the most requests in a batch: of the choices that meet all SLOs the one that sustains the most.

    A choice B meets them if, for every tenant, the longest of all tenants' batches and then its own, both times
    ``slowdown``, last no longer than its SLO. It sustains f times the mix if the GPU's time,
    Σ f · rate · latency(B) / B, is 1. Where no choice meets all SLOs, each takes its smallest batch.
    Without any arrivals all rates count as equal. All arguments go by tenant.
    """
    if not any(rate_rps):
        rate_rps = [1.0] * len(rate_rps)
    best, least_busy = tuple(min(own) for own in latency_s), math.inf
    # Only the longest batch ties tenants to each other: with it given, each one's best is found alone.
    for longest_s in sorted({seconds for own in latency_s for seconds in own.values()}):
        choice = [
            _cheapest(own, min(longest_s, slo / slowdown - longest_s))
            for own, slo in zip(latency_s, slo_s, strict=True)
        ]
        found = tuple(batch for batch in choice if batch is not None)
        if len(found) < len(choice):
            continue
        busy = sum(rate * own[batch] / batch for rate, own, batch in zip(rate_rps, latency_s, found, strict=True))
        if busy < least_busy:
            best, least_busy = found, busy
    return best


def _cheapest(latency_s: SecondsByBatch, longest_s: float) -> int | None:
    """The batch with the least time a request among those short enough, ties to the smaller; ``None`` without one."""
    allowed = [(seconds / batch, batch) for batch, seconds in latency_s.items() if seconds <= longest_s]
    return min(allowed)[1] if allowed else None


def training_batch(step_s: SecondsByBatch, rate_rps: Mapping[int, float], longest_s: float) -> int:
    """The batch with the highest rate among those whose training step lasts at most so long; else the shortest step.

    Ties go to the smaller batch. ``rate_rps`` has the same keys as ``step_s``.
    """
    allowed = [batch for batch, seconds in step_s.items() if seconds <= longest_s]
    if not allowed:
        return min(step_s, key=lambda batch: (step_s[batch], batch))
    return min(allowed, key=lambda batch: (-rate_rps[batch], batch))


def retraining_order(gain: Sequence[float], rate_rps: Sequence[float], work_s: Sequence[float]) -> list[int]:
    """Places of the retrainings, those first that gain the most right answers for a second of work; ties as given.

    ``gain`` is in right answers a request.
    """
    worth = [own * rate / work for own, rate, work in zip(gain, rate_rps, work_s, strict=True)]
    return sorted(range(len(worth)), key=lambda place: -worth[place])
