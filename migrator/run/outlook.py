"""What a model is worth after its window, as far as a run has seen: the outlook, and the salvage that follows from it.

A plan that ends with its window would leave out every retraining that pays later. *Salvage* is what the model that a
window leaves is expected to earn in the windows after it. Nothing here looks ahead: the drift is the median of what the
models have lost so far.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from migrator.config import DecisionConfig
from workloads.serving.requests import AccuracyTimeline
from workloads.tenants import Tenant

HORIZON = 3
"""Windows after a plan's own that count, as long as the run goes on."""

RETRAINED_PRIOR = 0.5
"""Before there is any, one window counts as retrained to this part."""

DIGITS = 6
"""As the log has shares, so that a window can be posed anew from it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of one tenant's model after a window.

    Attributes:
        drift: r̂, the part of its accuracy that it keeps from one window to the next, in [0, 1].
        stays: γ, the probability that a window passes without another retraining, in [0, 1].
        in_time: The share of its requests that are answered in time, in [0, 1].
    """

    drift: float
    stays: float
    in_time: float

    def to_json(self) -> dict[str, float]:
        """Its figures, as they stand in the log."""
        return asdict(self)


def outlook_of(told: Mapping[str, Any]) -> Outlook:
    """The outlook that :meth:`Outlook.to_json` told."""
    return Outlook(float(told["drift"]), float(told["stays"]), float(told["in_time"]))


def outlooks(
    tenants: Sequence[Tenant],
    decision: DecisionConfig,
    window: int,
    window_s: float,
    seen: Sequence[AccuracyTimeline],
    trained: Collection[tuple[str, int]],
    in_time: Sequence[float],
) -> tuple[Outlook, ...]:
    """Each tenant's outlook as ``window`` begins.

    Args:
        tenants: In the config's order.
        decision: What the config says of retrainings.
        window: The window's number.
        window_s: Seconds a window.
        seen: Each tenant's accuracy up to the window's start, that included.
        trained: Which retrainings have ended: tenant, and with which window's data.
        in_time: By tenant, the share of the last window's requests that were answered in time.
    """
    found = []
    for tenant, timeline, share in zip(tenants, seen, in_time, strict=True):
        past = [k for k in range(window) if tenant.retrains_in(k)]
        kept = [one for k in past if (one := _kept(timeline, (k + 1) * window_s)) is not None]
        n_trained = sum((tenant.name, k) in trained for k in past)
        retrained = (n_trained + RETRAINED_PRIOR) / (len(past) + 1)
        drift = median(kept) if kept else decision.drift_prior
        found.append(Outlook(round(drift, DIGITS), round(1 - retrained, DIGITS), round(share, DIGITS)))
    return tuple(found)


def _kept(timeline: AccuracyTimeline, at_s: float) -> float | None:
    """Which part of the accuracy just before this moment was left at it; ``None`` where there was none, or no word."""
    before = [accuracy for from_s, accuracy in zip(timeline.from_s, timeline.accuracy, strict=True) if from_s < at_s]
    if not before or before[-1] == 0 or at_s not in timeline.from_s:
        return None
    return min(1.0, timeline.at(at_s) / before[-1])


def horizon(decision: DecisionConfig, window: int, n_windows: int) -> int:
    """How many windows after this one count: three, and in a run that ends no more than are left."""
    return min(HORIZON, n_windows - 1 - window) if decision.ends else HORIZON


def salvage_of(outlook: Outlook, n_requests: float, weight: float, accuracies: Sequence[float], n: int) -> list[float]:
    """S[ℓ], requests by level: what the model that a window leaves earns in the ``n`` windows after it.

    S[ℓ] = weight · N̂ · r̂ · acc[ℓ] · Σ_{j<n} (γ·r̂)^j, where N̂ are ``n_requests`` of a window that are answered in time.
    """
    lasting = sum((outlook.stays * outlook.drift) ** j for j in range(n))
    return [weight * n_requests * outlook.in_time * outlook.drift * accuracy * lasting for accuracy in accuracies]
