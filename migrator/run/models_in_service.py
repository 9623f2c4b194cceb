"""What each tenant's model gives, as windows begin and retrainings end."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.run.planning import accuracy_at_start
from workloads.tenants import Tenant


class ModelsInService:
    """The accuracies of the models that answer, over a run; all of them count as retrained before window 0."""

    def __init__(self, tenants: Sequence[Tenant], window_s: float) -> None:
        self._tenants = tenants
        self._window_s = window_s
        self._retrainings: list[list[tuple[int, float]]] = [[] for _ in tenants]

    def at_start(self, window: int) -> list[float]:
        """What the models in service give from the start of ``window`` on, by tenant."""
        start_s = window * self._window_s
        done = [[begun for begun, finish_s in own if finish_s <= start_s] for own in self._retrainings]
        return [
            accuracy_at_start(tenant, window, max(begun, default=-1))
            for tenant, begun in zip(self._tenants, done, strict=True)
        ]

    def retrained(self, tenant_index: int, window: int, finish_s: float) -> float:
        """What the model retrained in ``window`` gives from ``finish_s`` on; a late one meets the drift since then."""
        self._retrainings[tenant_index].append((window, finish_s))
        tenant = self._tenants[tenant_index]
        finish_window = int(finish_s // self._window_s)
        if finish_window == window:
            return tenant.accuracy_in(window).after
        return accuracy_at_start(tenant, finish_window, window)
