"""The models that answer, over a run: as accurate as the config says, or, in a live run, as measured.

And what a model is worth after its window, from what a run has seen: the *outlook*, and the *salvage* that follows from
it. A plan that ends with its window would leave out every retraining that pays later. Salvage is what the model that a
window leaves is expected to earn in the windows after it. Nothing looks ahead: the drift is the median of what the
models have lost, and in which windows a tenant may be retrained is in the config.
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
from migrator.log.accuracies import LASTING, AccuracyHistory
from migrator.log.records import Outlook
from workloads.serving.servers import AccuracyTimeline
from workloads.tenants import Tenant, accuracy_at_start
from workloads.training import FULL, reached


class Lessons:
    """Which retrainings have ended; of windows before the last two only how many."""

    def __init__(
        self, ended: Iterable[tuple[str, int]] = (), n_before: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """``ended`` are retrainings by tenant and with which window's data; so many were ``n_before`` these."""
        self._recent, self._n_before = {*ended}, n_before
        self._folded: dict[str, _Folded] = {}
        self._rolled_back = dict[str, int]()  # by tenant that answers with older weights, their window

    def add(self, tenant: str, window: int) -> None:
        """A retraining has ended."""
        self._recent.add((tenant, window))
        self._rolled_back.pop(tenant, None)

    def roll_back(self, tenant: str, window: int) -> None:
        """What was retrained with that window's data answers again."""
        self._rolled_back[tenant] = window

    def last(self, tenant: str) -> int:
        """With which window's data its model was retrained last; −1 for what it came with."""
        if tenant in self._rolled_back:
            return self._rolled_back[tenant]
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
        return folded.n_past, folded.n_trained + self._n_before.get(tenant.name, 0)

    def _with(self, folded: _Folded, tenant: Tenant, k: int) -> _Folded:
        learns, learned = tenant.retrains_in(k), (tenant.name, k) in self._recent
        last = k if learned else folded.last
        return _Folded(k + 1, folded.n_past + learns, folded.n_trained + (learns and learned), last)

    def but(self, more: Iterable[tuple[str, int]] = (), less: Iterable[tuple[str, int]] = ()) -> Lessons:
        """These, with some retrainings more, and others less, of the last two windows."""
        added = {*more}
        other = Lessons({*self._recent, *added} - {*less}, self._n_before)
        other._folded, new = dict(self._folded), {name for name, _ in added}
        other._rolled_back = {name: window for name, window in self._rolled_back.items() if name not in new}
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
        """Each tenant's accuracy, by name."""

    @property
    def estimates(self) -> Sequence[Estimate] | None:
        """Of the window that was opened last, what was estimated of its retrainings by tenant; ``None``: by config."""

    def version(self, tenant: str) -> str:
        """Of the weights that the tenant is to answer with; empty where models have none."""

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
        """The model's accuracy from now on that was retrained in ``window``, or up to a checkpoint of that."""


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
        accuracies: Each tenant's accuracy, by name.
    """

    estimates = None

    def __init__(self, tenants: Sequence[Tenant], window_s: float) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._known, self._window_s = self._tenants, window_s  # who left is known, whose retraining may still end
        self._learned = defaultdict[str, _Learned](_Learned)
        self._opened: dict[int, dict[str, float]] = {}
        self.accuracies = {tenant.name: AccuracyHistory() for tenant in tenants}

    def version(self, tenant: str) -> str:  # noqa: ARG002 - it has none
        """Empty."""
        return ""

    def change_tenants(self, tenants: Sequence[Tenant], window: int, now_s: float) -> None:
        """Who comes counts as retrained before the window."""
        for tenant in tenants:
            if tenant.name not in self._tenants:
                self._learned[tenant.name] = _Learned(window - 1)
                accuracy = accuracy_at_start(tenant, window, window - 1)
                self.accuracies[tenant.name] = AccuracyHistory({now_s: accuracy})
                self._opened.setdefault(window, {})[tenant.name] = accuracy
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._known = {**self._known, **self._tenants}

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
        """The model's accuracy from now on; a late one meets the drift since then.

        A checkpoint is named by the part of the retraining that it comes after. It is served only where it is better
        than what is served.
        """
        own = self._known[tenant]
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
        lasting = seen[tenant.name].lasting(config.window_s).items()
        kept = [part for k, part in lasting if 0 < k <= window and tenant.retrains_in(k - 1)]
        n_past, n_trained = trained.counted(tenant, window)
        retrained = (n_trained + RETRAINED_PRIOR) / (n_past + 1)
        drift = median(kept) if kept else _first_drift(tenant, config, window, seen[tenant.name])
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


def _first_drift(tenant: Tenant, config: Config, window: int, seen: AccuracyHistory) -> float:
    """The share of its accuracy that a model is expected to keep, before the run has seen it keep one.

    A model that was retrained in the window before is expected to begin the next one as it began that one: at a run's
    begin every model counts as retrained just before.
    """
    begun_s = window * config.window_s - config.ahead_steps * config.step_s
    shown = seen.behind((window - 1) * config.window_s, begun_s) if tenant.retrains_in(window - 1) else None
    return config.retraining.drift_prior if shown is None else shown


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
