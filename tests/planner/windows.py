"""Small planning problems made by hand; shared by this folder's tests of files, states, gains and engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from executor.catalogue import gpu_model
from planner.problem import InitialState, Problem, Reconfiguration, RetrainingOption, TenantTerms

NAMES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
"""The standard profiles of an A100-40GB."""


def tenant(
    name: str = "resnet50",
    arrivals_rps: Sequence[float] = (100.0,) * 6,
    capability_rps: Mapping[str, float] | None = None,
    retraining_s: Mapping[str, float] | None = None,
    **changes: object,
) -> TenantTerms:
    """A tenant that serves 40 requests/s per compute slice and, unless told, retrains in 2 s on a 2g."""
    per_slice = {"1g.5gb": 40.0, "2g.10gb": 80.0, "3g.20gb": 120.0, "4g.20gb": 160.0, "7g.40gb": 280.0}
    time_s = {"2g.10gb": 2.0} if retraining_s is None else dict(retraining_s)
    fields: dict[str, object] = {
        "name": name,
        "arrivals_rps": np.array(arrivals_rps, dtype=np.float64),
        "capability_rps": per_slice if capability_rps is None else dict(capability_rps),
        "accuracy_before": 0.5,
        "overhead_s": 0.5,
        "min_profile": "1g.5gb",
        "options": (RetrainingOption("full", time_s, 0.8),) if time_s else (),
    }
    return TenantTerms(**{**fields, **changes})  # type: ignore[arg-type]


def window(
    *tenants: TenantTerms,
    step_s: float = 1.0,
    model: Reconfiguration = Reconfiguration.PAPER,
    gpu: str = "a100-40gb",
    initial: InitialState | None = None,
    switch_s: float | None = None,
) -> Problem:
    """A problem of these tenants (one ``tenant()`` if none is given), as many steps as their arrivals."""
    given = tenants or (tenant(),)
    n_steps = len(given[0].arrivals_rps)
    return Problem(gpu_model(gpu), step_s, n_steps, model, given, switch_s=switch_s, initial=initial)
