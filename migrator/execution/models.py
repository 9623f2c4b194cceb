"""The models that answer, over a run: as accurate as the config says, or, in a live run, as measured.

And what a model is worth after its window, as far as a run has seen: the *outlook*, and the *salvage* that follows from
it. A plan that ends with its window would leave out every retraining that pays later. Salvage is what the model that a
window leaves is expected to earn in the windows after it. Nothing looks ahead: the drift is the median of what the
models have lost so far, and in which windows a tenant may be retrained stands in the config.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import NamedTuple, Protocol

from migrator.config.sections import Config
from migrator.inputs.estimates import Estimate
from migrator.log.records import Outlook
from workloads.serving.servers import AccuracyTimeline
from workloads.tenants import Tenant, accuracy_at_start
from workloads.training import FULL, reached


class AccuracyHistory:
    """A tenant's accuracy: of the last windows from moment to moment, of those before only what each begin left of it.

    So it does not grow with the run but for a number a window.
    """

    def __init__(self, by_s: Mapping[float, float] = MappingProxyType({})) -> None:
        """``by_s`` are accuracies by the second of the run from which on they hold."""
        self._by_s, self._kept = dict(by_s), dict[float, float | None]()
        self._timeline: AccuracyTimeline | None = None

    def note(self, at_s: float, accuracy: float) -> None:
        """The model in service gives this from now on."""
        self._by_s[at_s], self._timeline = accuracy, None

    @property
    def timeline(self) -> AccuracyTimeline:
        """From moment to moment; there is at least one."""
        if self._timeline is None:
            self._timeline = AccuracyTimeline.of(self._by_s)
        return self._timeline

    @property
    def newest(self) -> float:
        """What the model in service gives."""
        return self.timeline.accuracy[-1]

    def kept(self, at_s: float) -> float | None:
        """Which part of the accuracy before a window's begin was left at it; ``None``: there was none, or no word."""
        if at_s in self._kept:
            return self._kept[at_s]
        before = max((from_s for from_s in self._by_s if from_s < at_s), default=None)
        if before is None or self._by_s[before] == 0 or at_s not in self._by_s:
            return None
        return min(1.0, self._by_s[at_s] / self._by_s[before])

    def forget(self, window: int, window_s: float) -> None:
        """Keep of all before the last two windows only what their begins left; ``window`` begins."""
        least_s = (window - LASTING) * window_s
        if not any(at_s < least_s for at_s in self._by_s):
            return
        begins = (at_s for at_s in self._by_s if at_s <= least_s and at_s == round(at_s / window_s) * window_s)
        self._kept |= {at_s: self.kept(at_s) for at_s in begins}
        last_s = max(at_s for at_s in self._by_s if at_s < least_s)
        self._by_s = {at_s: accuracy for at_s, accuracy in self._by_s.items() if at_s >= last_s}
        self._timeline = None


LASTING = 2
"""What is remembered whole of a run are the last windows, as many as this: a retraining may end one window late."""


class Lessons:
    """Which retrainings have ended; of windows before the last two only how many."""

    def __init__(self, ended: Iterable[tuple[str, int]] = ()) -> None:
        """``ended`` are retrainings by tenant and with which window's data."""
        self._recent = {*ended}
        self._folded: dict[str, _Folded] = {}

    def add(self, tenant: str, window: int) -> None:
        """A retraining has ended."""
        self._recent.add((tenant, window))

    def last(self, tenant: str) -> int:
        """With which window's data its model was retrained last; −1 for what it came with."""
        folded = self._folded.get(tenant, _Folded()).last
        return max((window for name, window in self._recent if name == tenant), default=folded)

    def counted(self, tenant: Tenant, window: int) -> tuple[int, int]:
        """Windows before this one that had something to learn, and in how many of them it was learned."""
        folded = self._folded.get(tenant.name, _Folded())
        for k in range(folded.end, window - LASTING):
            folded = self._with(folded, tenant, k)
            self._recent.discard((tenant.name, k))
        self._folded[tenant.name] = folded
        for k in range(folded.end, window):
            folded = self._with(folded, tenant, k)
        return folded.n_past, folded.n_trained

    def _with(self, folded: _Folded, tenant: Tenant, k: int) -> _Folded:
        learns, learned = tenant.retrains_in(k), (tenant.name, k) in self._recent
        last = k if learned else folded.last
        return _Folded(k + 1, folded.n_past + learns, folded.n_trained + (learns and learned), last)

    def but(self, more: Iterable[tuple[str, int]] = (), less: Iterable[tuple[str, int]] = ()) -> Lessons:
        """These, with some retrainings more, and others less, of the last two windows."""
        other = Lessons({*self._recent, *more} - {*less})
        other._folded = dict(self._folded)
        return other


class _Folded(NamedTuple):
    """What is left of the windows before ``end``: those with something to learn, those retrained, and the last one."""

    end: int = 0
    n_past: int = 0
    n_trained: int = 0
    last: int = -1


class Models(Protocol):
    """The models that answer, over a run."""

    @property
    def accuracies(self) -> Mapping[str, AccuracyHistory]:
        """Each tenant's accuracy so far, by name."""

    @property
    def estimates(self) -> Sequence[Estimate] | None:
        """Of the window that was opened last, what was estimated of its retrainings by tenant; ``None``: by config."""

    def change_tenants(self, tenants: Sequence[Tenant], window: int, now_s: float) -> None:
        """These are the tenants from now on; who comes has the model that is given for the window.

        Raises:
            MigratorError: Nothing is known of the model of who comes.
        """

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


def timelines(models: Models) -> dict[str, AccuracyTimeline]:
    """What the models give from moment to moment, by tenant."""
    return {name: own.timeline for name, own in models.accuracies.items()}


class TabledModels:
    """Models as accurate as the config says; all of them count as retrained before window 0.

    Attributes:
        estimates: By config.
        accuracies: Each tenant's accuracy so far, by name.
    """

    estimates = None

    def __init__(self, tenants: Sequence[Tenant], window_s: float) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._window_s = window_s
        self._learned = defaultdict[str, _Learned](_Learned)
        self._opened: dict[int, dict[str, float]] = {}
        self.accuracies = {tenant.name: AccuracyHistory() for tenant in tenants}

    def change_tenants(self, tenants: Sequence[Tenant], window: int, now_s: float) -> None:
        """Who comes counts as retrained before the window."""
        for tenant in tenants:
            if tenant.name not in self._tenants:
                self._learned[tenant.name] = _Learned(window - 1)
                accuracy = accuracy_at_start(tenant, window, window - 1)
                self.accuracies[tenant.name] = AccuracyHistory({now_s: accuracy})
                self._opened.setdefault(window, {})[tenant.name] = accuracy
        self._tenants = {tenant.name: tenant for tenant in tenants}

    def open(self, window: int) -> tuple[float, ...]:
        """What the models in service give from the window's start on, by tenant."""
        found = {
            name: accuracy_at_start(tenant, window, self._learned[name].window, self._learned[name].gave)
            for name, tenant in self._tenants.items()
        }
        for name, accuracy in found.items():
            self.accuracies[name].note(window * self._window_s, accuracy)
            self.accuracies[name].forget(window, self._window_s)
        self._opened[window] = found
        self._opened.pop(window - LASTING, None)
        return tuple(found.values())

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
        own = self._tenants[tenant]
        gave = self._gave(own, window, option, checkpoint)
        at_window = int(at_s // self._window_s)
        if at_window != window:
            accuracy = accuracy_at_start(own, at_window, window, gave)
        else:
            accuracy = own.accuracy_in(window).after if gave is None else gave
        if checkpoint is not None and accuracy <= (served := self.accuracies[tenant].timeline.at(at_s)):
            return served
        if window >= self._learned[tenant].window:
            self._learned[tenant] = _Learned(window, gave)
        self.accuracies[tenant].note(at_s, accuracy)
        return accuracy

    def _gave(self, tenant: Tenant, window: int, option: str, checkpoint: float | None) -> float | None:
        """What the retraining comes to in its own window; ``None`` for what the config says of it."""
        gain = 1.0 if option == FULL else tenant.option(option).gain
        if checkpoint is not None:
            gain *= dict(tenant.checkpoints)[checkpoint]
        if gain == 1 and option == FULL:
            return None
        return reached(self._opened[window][tenant.name], tenant.accuracy_in(window).after, gain)


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
    seen: Mapping[str, AccuracyHistory],
    trained: Lessons,
    in_time: Mapping[str, float],
) -> tuple[Outlook, ...]:
    """Each tenant's outlook as ``window`` begins.

    Args:
        tenants: In the config's order.
        config: What it says of retrainings, and how many windows there are, and how long.
        window: The window's number.
        seen: Each tenant's accuracy up to the window's start, that included.
        trained: Which retrainings have ended.
        in_time: By tenant, the share of the last window's requests that were answered in time.
    """
    found = []
    for tenant in tenants:
        begins_s = ((k + 1) * config.window_s for k in range(window) if tenant.retrains_in(k))
        kept = [one for at_s in begins_s if (one := seen[tenant.name].kept(at_s)) is not None]
        n_past, n_trained = trained.counted(tenant, window)
        retrained = (n_trained + RETRAINED_PRIOR) / (n_past + 1)
        drift = median(kept) if kept else config.retraining.drift_prior
        found.append(
            Outlook(
                drift=round(drift, DIGITS),
                stays=round(1 - retrained, DIGITS),
                in_time=round(in_time[tenant.name], DIGITS),
                ahead=windows_ahead(tenant, config, window),
                still=STILL,
            )
        )
    return tuple(found)


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
