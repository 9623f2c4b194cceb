"""What a model is worth after its window, as far as a run has seen: the outlook, and the salvage that follows from it.

A plan that ends with its window would leave out every retraining that pays later. *Salvage* is what the model that a
window leaves is expected to earn in the windows after it. Nothing here looks ahead: the drift is the median of what the
models have lost so far, and in which windows a tenant may be retrained stands in the config.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from migrator.config import Config
from migrator.log.records import Outlook
from workloads.serving.requests import AccuracyTimeline
from workloads.tenants import Tenant

HORIZON = 3
"""Windows after a plan's own that count, as long as the run goes on."""

RETRAINED_PRIOR = 0.75
"""Before there is any, one window counts as retrained to this part."""

STILL = 0.5
"""Where a window retrains a model, the old one still answers for this part of it: until the retraining ends."""

DIGITS = 6
"""As the log has shares, so that a window can be posed anew from it."""


def unseen(tenant: Tenant, config: Config, window: int) -> Outlook:
    """A tenant's outlook while nothing was seen yet."""
    ahead = windows_ahead(tenant, config, window)
    return Outlook(config.retraining.drift_prior, 1 - RETRAINED_PRIOR, 1.0, ahead, STILL)


def outlooks(
    tenants: Sequence[Tenant],
    config: Config,
    window: int,
    seen: Sequence[AccuracyTimeline],
    trained: Collection[tuple[str, int]],
    in_time: Sequence[float],
) -> tuple[Outlook, ...]:
    """Each tenant's outlook as ``window`` begins.

    Args:
        tenants: In the config's order.
        config: What it says of retrainings, and how many windows there are, and how long.
        window: The window's number.
        seen: Each tenant's accuracy up to the window's start, that included.
        trained: Which retrainings have ended: tenant, and with which window's data.
        in_time: By tenant, the share of the last window's requests that were answered in time.
    """
    found = []
    for tenant, timeline, share in zip(tenants, seen, in_time, strict=True):
        past = [k for k in range(window) if tenant.retrains_in(k)]
        kept = [one for k in past if (one := _kept(timeline, (k + 1) * config.window_s)) is not None]
        n_trained = sum((tenant.name, k) in trained for k in past)
        retrained = (n_trained + RETRAINED_PRIOR) / (len(past) + 1)
        drift = median(kept) if kept else config.retraining.drift_prior
        found.append(
            Outlook(
                drift=round(drift, DIGITS),
                stays=round(1 - retrained, DIGITS),
                in_time=round(share, DIGITS),
                ahead=windows_ahead(tenant, config, window),
                still=STILL,
            )
        )
    return tuple(found)


def _kept(timeline: AccuracyTimeline, at_s: float) -> float | None:
    """Which part of the accuracy just before this moment was left at it; ``None`` where there was none, or no word."""
    before = [accuracy for from_s, accuracy in zip(timeline.from_s, timeline.accuracy, strict=True) if from_s < at_s]
    if not before or before[-1] == 0 or at_s not in timeline.from_s:
        return None
    return min(1.0, timeline.at(at_s) / before[-1])


def windows_ahead(tenant: Tenant, config: Config, window: int) -> tuple[bool, ...]:
    """Of each window after this one that counts, whether the config has something to learn in it for the tenant.

    Three count, and in a run that ends no more than are left.
    """
    n = min(HORIZON, config.windows - 1 - window) if config.retraining.ends else HORIZON
    return tuple(tenant.retrains_in(window + 1 + j) for j in range(n))


def salvage_of(outlook: Outlook, n_requests: float, weight: float, accuracies: Sequence[float]) -> list[float]:
    """S[ℓ], requests by level: what the model that a window leaves earns in the H windows after it.

    S[ℓ] = weight · N̂ · acc[ℓ] · Σ_{j=1..H} Π_{i≤j} r_i · Π_{i<j} γ_i · (γ_j + τ (1 − γ_j)), where N̂ are those of a
    window's ``n_requests`` that are answered in time. r_i and γ_i are r̂ and γ where the i-th window has something to
    learn, and 1 elsewhere.
    """
    lasting, left = 0.0, 1.0
    for learns in outlook.ahead:
        drift, stays = (outlook.drift, outlook.stays) if learns else (1.0, 1.0)
        left *= drift
        lasting += left * (stays + outlook.still * (1 - stays))
        left *= stays
    return [weight * n_requests * outlook.in_time * accuracy * lasting for accuracy in accuracies]
