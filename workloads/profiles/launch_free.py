"""A table of service profiles without the time that small batches wait for the CPU that launches them.

Measured with one eager framework process, some models take as long for batch 1 on the whole GPU as on
a seventh of it: the CPU cannot launch kernels faster. A server that records its kernels once (CUDA
graphs, TensorRT) does not pay this. What it would take is read off the larger batches, where the GPU
sets the pace: ``latency = a + b · batch``, fitted for each profile and process count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from executor.catalogue import gpu_model
from workloads.profiles.derived import LARGE_BATCH
from workloads.profiles.table import ServiceProfiles, ServiceRow

LAUNCH_BOUND_SPEED_UP = 2.0
"""A model whose batch 1 gains less than this from the smallest to the largest profile is bound by launching."""

DERIVED = f"launch-free: fit on batches ≥ {LARGE_BATCH}"


def launch_free(profiles: ServiceProfiles) -> ServiceProfiles:
    """The table with the small batches of launch-bound models as the fit says, where that is faster.

    Batches from ``LARGE_BATCH`` on and models that are not launch-bound stay as recorded, and so do profiles
    and process counts of which the large batches say too little: fewer than two of them, or a fit that
    crosses zero above batch 0. Changed rows say so in ``derived``.
    """
    rows: list[ServiceRow] = []
    for gpu in profiles.gpus:
        for model in profiles.models(gpu):
            own = profiles.of(gpu, model)
            rows += _freed(own) if is_launch_bound(own) else own
    return ServiceProfiles(f"{profiles.name}, launch-free", tuple(rows))


def is_launch_bound(rows: Sequence[ServiceRow]) -> bool:
    """Whether one process at batch 1 hardly gains from a larger profile. ``rows`` are of one model and GPU."""
    rate_rps = {row.profile: row.throughput_rps for row in rows if (row.batch, row.processes) == (1, 1)}
    if not rate_rps:
        return False
    gpu = gpu_model(rows[0].gpu)
    ascending = sorted(rate_rps, key=lambda name: gpu.profile(name).compute_slices)
    spread = gpu.profile(ascending[-1]).compute_slices / gpu.profile(ascending[0]).compute_slices
    return spread > LAUNCH_BOUND_SPEED_UP > rate_rps[ascending[-1]] / rate_rps[ascending[0]]


def linear_fit(batches: Sequence[int], latency_s: Sequence[float]) -> tuple[float, float]:
    """``(a, b)`` of ``a + b · batch`` with the least sum of squared relative errors.

    Relative, because the sizes span a factor of 30: else the largest batch alone would set ``a``.
    """
    batch, seconds = np.asarray(batches, dtype=np.float64), np.asarray(latency_s, dtype=np.float64)
    slope, intercept = np.polyfit(batch, seconds, 1, w=1 / seconds)
    return float(intercept), float(slope)


def _freed(rows: Sequence[ServiceRow]) -> list[ServiceRow]:
    groups: dict[tuple[str, int], list[ServiceRow]] = {}
    for row in rows:
        groups.setdefault((row.profile, row.processes), []).append(row)
    fits = {key: fit for key, group in groups.items() if (fit := _fit(group)) is not None}
    return [_without_launching(row, fits.get((row.profile, row.processes))) for row in rows]


def _fit(group: Sequence[ServiceRow]) -> tuple[float, float] | None:
    large = [row for row in group if row.batch >= LARGE_BATCH]
    if len(large) < 2:
        return None
    intercept_s, slope_s = linear_fit([row.batch for row in large], [row.latency_s for row in large])
    return None if intercept_s < 0 else (intercept_s, slope_s)


def _without_launching(row: ServiceRow, fit: tuple[float, float] | None) -> ServiceRow:
    if fit is None or row.batch >= LARGE_BATCH:
        return row
    latency_s = fit[0] + fit[1] * row.batch
    if not 0 < latency_s < row.latency_s:
        return row
    rate_rps = row.batch * row.processes / latency_s
    derived = " and ".join(filter(None, (row.derived, DERIVED)))
    return replace(row, latency_s=latency_s, throughput_rps=rate_rps, derived=derived)
