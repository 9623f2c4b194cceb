"""How long a retraining takes on each profile, estimated from the inference measurements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from workloads.errors import ProfileTableError
from workloads.profiles.table import ServiceProfiles

RETRAINING_TO_INFERENCE = 3.0
"""Training time over inference time for the same data: a forward pass, and a backward pass twice as long."""


def retraining_times_s(
    profiles: ServiceProfiles, gpu: str, model: str, *, n_samples: int, n_epochs: int
) -> Mapping[str, float]:
    """Seconds to train the model on ``n_samples`` × ``n_epochs``, by profile name; start-up not included.

    Three times the inference time of the same data, at the batch size with the highest throughput
    of a single process: a retraining is one process, and no SLO bounds its batch. A profile on
    which the model never ran with one process is absent.

    Source: MIGRator's paper, at its formulas 3a-3f ("three times the inference latency with the same
    volume of data and the same amount of GPU resources"); the best batch is this project's choice.

    Raises:
        ProfileTableError: Unknown GPU or model, counts below 1, or it never ran with one process.
    """
    if n_samples < 1 or n_epochs < 1:
        raise ProfileTableError(f"retraining of {model}: {n_samples} samples × {n_epochs} epochs; both must be ≥ 1")
    rate_rps: dict[str, float] = {}
    for row in profiles.of(gpu, model):
        if row.processes == 1:
            rate_rps[row.profile] = max(rate_rps.get(row.profile, 0.0), row.throughput_rps)
    if not rate_rps:
        raise ProfileTableError(f"{profiles.name}: {model} on {gpu} has no row with processes 1; retraining needs one")
    work = RETRAINING_TO_INFERENCE * n_samples * n_epochs
    return MappingProxyType({profile: work / rate for profile, rate in rate_rps.items()})
