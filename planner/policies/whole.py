"""``whole``: no partition at all; tenants take turns on the whole GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.policies.policy import Knows
from planner.policies.turns import (
    PacedRetraining,
    TurnOption,
    TurnPolicy,
    TurnSchedule,
    TurnTenant,
    in_steps,
    least_busy,
)


@dataclass(frozen=True)
class Whole(TurnPolicy):
    """Serves one tenant's batch at a time on the whole GPU, the earliest deadline first, and trains in the gaps.

    Source: none publishes it as a policy of its own. It is the usual way to share an accelerator in time: one batch at
    a time, as in Clockwork (OSDI '20), in the order of deadlines, as large as what waits, and training at low priority.
    It is there to ask why to use MIG at all.
    Knows: the arrivals before the window, for batch limits and the order of retrainings. While serving it knows only
    which requests wait.
    Adaptations: a batch is limited so that a request that just missed one is answered in time after the longest batch
    of any tenant and its own (MIG policies count two of its own). Among these limits those are taken that sustain the
    most of the mix. A retraining yields after each step; its batch is as large as the tightest SLO allows beside a
    batch, so it may lose rate against an instance that trains undisturbed. The order of retrainings is by right answers
    gained for a second of work; none is left out. Of several ways to retrain a tenant it takes the one that gains most,
    in an equal part of the gaps, to the window's end and in what the model is worth beyond it; the full one where none
    gains anything. Kind to it: all models and training states fit into memory, and changing from one to another takes
    no time.

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

    def course(self, tenants: Sequence[TurnTenant], window_s: float) -> TurnSchedule:
        """Batch limits for the mix, and all retrainings in the gaps."""
        limits = batch_limits(tenants, self.slowdown)
        full_s = [tenant.serving_s[limit] * self.slowdown for tenant, limit in zip(tenants, limits, strict=True)]
        longest_s = min(tenant.slo_s for tenant in tenants) - max(full_s)
        served_s = sum(
            tenant.rate_rps * own_s / limit for tenant, own_s, limit in zip(tenants, full_s, limits, strict=True)
        )
        retrainings = self._retrainings(tenants, longest_s, 1.0 - served_s, window_s)
        # Those first that gain the most right answers for a second of work.
        retrainings.sort(key=lambda one: -_gain(tenants[one.tenant_index], one.option) / one.work_s)
        return TurnSchedule(limits, tuple(retrainings), ((0.0, 0.0),) * len(tenants))

    def _retrainings(
        self, tenants: Sequence[TurnTenant], longest_s: float, gaps: float, window_s: float
    ) -> list[PacedRetraining]:
        """All there are, in steps of at most so long where there are such; ``gaps`` is the share of time for them."""
        n_due = sum(tenant.retraining is not None for tenant in tenants)
        found = []
        for index, tenant in enumerate(tenants):
            asked = tenant.retraining
            if asked is None:
                continue
            ways = []
            for option in asked.options:
                paced = in_steps(index, asked, option, longest_s, self.slowdown)
                paced = replace(paced, work_s=paced.work_s * self.slowdown, piece_s=paced.piece_s * self.slowdown)
                left_s = window_s - asked.ready_s - paced.work_s * n_due / max(gaps, 1e-9)
                ways.append((max(0.0, _worth(tenant, option, left_s)), paced))
            # Where none gains anything, the full one, whether or not it ends in the window.
            found.append(max(ways, key=lambda way: way[0])[1])
        return found


def _worth(tenant: TurnTenant, option: TurnOption, left_s: float) -> float:
    """Right answers, weighted, that a model gains which is ready so long before the window's end, and beyond it."""
    if left_s < 0:
        return 0.0
    return _gain(tenant, option) * left_s + option.salvage - tenant.salvage


def _gain(tenant: TurnTenant, option: TurnOption) -> float:
    """Right answers, weighted, that a model gains in a second."""
    return tenant.weight * (option.accuracy_after - tenant.accuracy_before) * tenant.rate_rps


def batch_limits(tenants: Sequence[TurnTenant], slowdown: float = 1.0) -> tuple[int, ...]:
    """By tenant, the most requests in a batch: of the choices that meet all SLOs the one that sustains the most.

    A choice B meets them if, for every tenant, the longest of all tenants' batches and then its own, both times
    ``slowdown``, last no longer than its SLO. It sustains f times the mix if the GPU's time,
    Σ f · rate · latency(B) / B, is 1. Where no choice meets all SLOs, each takes its smallest batch.
    Without any arrivals all rates count as equal.
    """
    rates_rps = [tenant.rate_rps for tenant in tenants]
    if not any(rates_rps):
        rates_rps = [1.0] * len(tenants)
    longest_s = (seconds for tenant in tenants for seconds in tenant.serving_s.values())
    found = least_busy(tenants, rates_rps, longest_s, lambda most, slo: min(most, slo / slowdown - most))
    return found or tuple(min(tenant.serving_s) for tenant in tenants)
