"""The models that answer, over a run: as accurate as the config says, or, in a live run, as measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.estimates import Estimate
from workloads.drift import accuracy_at_start
from workloads.serving.requests import AccuracyTimeline
from workloads.tenants import Tenant
from workloads.training import FULL, reached


class Models(Protocol):
    """The models that answer, over a run."""

    @property
    def timelines(self) -> list[AccuracyTimeline]:
        """Each tenant's accuracy so far."""
        ...

    @property
    def estimates(self) -> Sequence[Estimate] | None:
        """Of the window that was opened last, what was estimated of its retrainings by tenant; ``None``: by config."""
        ...

    def open(self, window: int) -> tuple[float, ...]:
        """What the models in service give from the window's start on, by tenant, once that is known."""
        ...

    def opened(self, window: int) -> tuple[float, ...] | None:
        """As :meth:`open`; ``None`` where it is still being measured, to be asked again."""
        ...

    def trained(
        self, tenant: str, window: int, at_s: float, option: str = FULL, checkpoint: float | None = None
    ) -> float:
        """What the model gives from now on that was retrained in ``window``, or up to a checkpoint of that."""
        ...


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
    """Models as accurate as the config says; all of them count as retrained before window 0."""

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
        ordered = (sorted(own.items()) for own in self._accuracies)
        return [AccuracyTimeline(tuple(at for at, _ in own), tuple(value for _, value in own)) for own in ordered]

    @property
    def estimates(self) -> None:
        """By config."""
        return

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
