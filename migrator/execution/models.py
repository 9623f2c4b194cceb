"""The models that answer, over a run: as accurate as the config says, or, in a live run, as measured.

And what a model is worth after its window, as far as a run has seen: the *outlook*, and the *salvage* that follows from
it. A plan that ends with its window would leave out every retraining that pays later. Salvage is what the model that a
window leaves is expected to earn in the windows after it. Nothing looks ahead: the drift is the median of what the
models have lost so far, and in which windows a tenant may be retrained stands in the config.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from migrator.config import Config
from migrator.estimates import Estimate
from migrator.log.records import Outlook
from workloads.serving.requests import AccuracyTimeline
from workloads.tenants import Tenant, accuracy_at_start
from workloads.training import FULL, reached


class Models(Protocol):
    """The models that answer, over a run."""

    @property
    def timelines(self) -> list[AccuracyTimeline]:
        """Each tenant's accuracy so far."""

    @property
    def estimates(self) -> Sequence[Estimate] | None:
        """Of the window that was opened last, what was estimated of its retrainings by tenant; ``None``: by config."""

    def open(self, window: int) -> tuple[float, ...]:
        """What the models in service give from the window's start on, by tenant, once that is known."""

    def opened(self, window: int) -> tuple[float, ...] | None:
        """As :meth:`open`; ``None`` where it is still being measured, to be asked again."""

    def trained(
        self, tenant: str, window: int, at_s: float, option: str = FULL, checkpoint: float | None = None
    ) -> float:
        """What the model gives from now on that was retrained in ``window``, or up to a checkpoint of that."""


@dataclass(slots=True)
class _Learned:
    """What a model learned last: in which window, and what that gave where it is not what the config says."""

    window: int = -1
    gave: float | None = None


def last_trained(tenant: str, trained: Collection[tuple[str, int]]) -> int:
    """With which window's data its model was retrained last; −1 for what it came with.

    ``trained`` are the retrainings that have ended: tenant, and with which window's data.
    """
    return max((window for own, window in trained if own == tenant), default=-1)


class TabledModels:
    """Models as accurate as the config says; all of them count as retrained before window 0.

    Attributes:
        estimates: By config.
    """

    estimates = None

    def __init__(self, tenants: Sequence[Tenant], window_s: float) -> None:
        self._tenants = tenants
        self._index = {tenant.name: index for index, tenant in enumerate(tenants)}
        self._window_s = window_s
        self._learned = [_Learned() for _ in tenants]
        self._opened: dict[int, tuple[float, ...]] = {}
        self._accuracies: list[dict[float, float]] = [{} for _ in tenants]

    @property
    def timelines(self) -> list[AccuracyTimeline]:
        """Each tenant's accuracy so far."""
        return list(map(AccuracyTimeline.of, self._accuracies))

    def open(self, window: int) -> tuple[float, ...]:
        """What the models in service give from the window's start on, by tenant."""
        found = tuple(
            accuracy_at_start(tenant, window, learned.window, learned.gave)
            for tenant, learned in zip(self._tenants, self._learned, strict=True)
        )
        for own, accuracy in zip(self._accuracies, found, strict=True):
            own[window * self._window_s] = accuracy
        self._opened[window] = found
        return found

    def opened(self, window: int) -> tuple[float, ...]:
        """The same: it is known at once."""
        return self.open(window)

    def trained(
        self, tenant: str, window: int, at_s: float, option: str = FULL, checkpoint: float | None = None
    ) -> float:
        """What the model gives from now on; a late one meets the drift since then.

        A checkpoint is named by the part of the retraining that it comes after. It is served only where it is better
        than what is served.
        """
        index = self._index[tenant]
        gave = self._gave(index, window, option, checkpoint)
        at_window = int(at_s // self._window_s)
        if at_window != window:
            accuracy = accuracy_at_start(self._tenants[index], at_window, window, gave)
        else:
            accuracy = self._tenants[index].accuracy_in(window).after if gave is None else gave
        if checkpoint is not None and accuracy <= (served := self.timelines[index].at(at_s)):
            return served
        if window >= self._learned[index].window:
            self._learned[index] = _Learned(window, gave)
        self._accuracies[index][at_s] = accuracy
        return accuracy

    def _gave(self, index: int, window: int, option: str, checkpoint: float | None) -> float | None:
        """What the retraining comes to in its own window; ``None`` for what the config says of it."""
        tenant = self._tenants[index]
        gain = 1.0 if option == FULL else tenant.option(option).gain
        if checkpoint is not None:
            gain *= dict(tenant.checkpoints)[checkpoint]
        if gain == 1 and option == FULL:
            return None
        return reached(self._opened[window][index], tenant.accuracy_in(window).after, gain)


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
