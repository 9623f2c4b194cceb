"""``salus``: turns on the whole GPU by iteration, nothing forecast; retrainings by one of Salus's four schedulers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.policies.turns import PacedRetraining, TurnSchedule, TurnTenant
from planner.policies.whole import Whole

PACKED_GAIN = 1.07
"""By how much several retrainings together are faster when packed than one by one (§5.2, ResNet-50)."""

SERVICE_S = 1.0
"""Seconds of work after which the next one has its turn, where retrainings share the time equally (§5.1.2)."""


@dataclass(frozen=True)
class Salus(Whole):
    """Serves one tenant's batch at a time, and trains iteration by iteration between batches, all in one pool.

    Source: Yu and Chowdhury, "Salus" (arXiv 1902.04610): jobs switch between iterations at no cost (§3.2), weights of
    all stay (§3.3), and the schedulers of §4 and §5.1: FIFO as retrainings come, SRTF the least left first, PACK as
    many side by side as fit, FAIR equal service. A batch of requests is an iteration of an inference job (§5.3).
    Knows: as ``whole``; its order does not go by accuracy.
    Given beyond the paper: batching and its limits, the earliest deadline first, training also while all that waits
    can still be answered, and the choice among several ways to retrain, all as ``whole`` has them. PACK gains what the
    paper measured of ResNet-50 (7 %), for all models, as if all of a window's retrainings could begin together. FAIR is
    among those of one window.
    Not built: lanes and their memory (Algorithm 1): all models and training states fit, and the log says so.

    Attributes:
        scheduler: In which order retrainings have the time that serving leaves; SRTF needs ``shortest_first``, which
            counts what windows before have left.
    """

    name: str = "salus"
    scheduler: Literal["fifo", "srtf", "pack", "fair"] = "fifo"
    shortest_first: bool = False

    @classmethod
    def by(cls, scheduler: Literal["srtf", "pack", "fair"]) -> Salus:
        """The same with another scheduler, and its name."""
        return cls(name=f"salus-{scheduler}", scheduler=scheduler, shortest_first=scheduler == "srtf")

    def course(self, tenants: Sequence[TurnTenant], window_s: float) -> TurnSchedule:
        """Batch limits for the mix, and all retrainings in the scheduler's order."""
        whole = super().course(tenants, window_s)
        ready_s = [one.retraining.ready_s if one.retraining else math.inf for one in tenants]
        retrainings = sorted(whole.retrainings, key=lambda one: (ready_s[one.tenant_index], one.tenant_index))
        if self.scheduler == "pack":
            retrainings = packed(retrainings)
        if self.scheduler in ("pack", "fair"):
            retrainings = in_turns(retrainings)
        return replace(whole, retrainings=tuple(retrainings))


def packed(retrainings: Sequence[PacedRetraining]) -> list[PacedRetraining]:
    """The retrainings if those that run side by side gain :data:`PACKED_GAIN`; the last one's rest, alone, does not."""
    by_work = sorted(one.work_s for one in retrainings)
    together_s = by_work[-2] if len(by_work) > 1 else 0.0
    return [
        replace(one, work_s=one.work_s - min(one.work_s, together_s) * (1 - 1 / PACKED_GAIN)) for one in retrainings
    ]


def in_turns(retrainings: Sequence[PacedRetraining]) -> list[PacedRetraining]:
    """The retrainings in parts of :data:`SERVICE_S`, one of each in turn as long as it has any: equal service."""
    parts = []
    for place, one in enumerate(retrainings):
        n_parts = max(1, math.ceil(one.work_s / SERVICE_S))
        parts += [
            (number, place, replace(one, work_s=one.work_s / n_parts, is_last=number == n_parts - 1))
            for number in range(n_parts)
        ]
    return [part for _, _, part in sorted(parts, key=lambda found: found[:2])]
