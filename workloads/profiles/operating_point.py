"""Operating points: at which batch size and process count a model is served on each profile, given the SLO.

A request that just missed a batch waits for that batch, then for its own. So a point meets the SLO when 2 × its batch
latency ≤ SLO, and of those points the one with the highest rate is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from executor.mig import GpuModel
from workloads.errors import ProfileTableError, UnmetSloError
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.table import ServiceProfiles, ServiceRow

Chosen = int | Literal["auto"]
"""A fixed batch size or process count, or the one with the highest rate."""

BATCHES_PER_SLO = 2
"""Batches that must pass within the SLO: the one ahead and one's own."""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How one instance of a profile serves one model.

    Attributes:
        profile: The MIG profile's name.
        batch: Most requests in a batch.
        processes: Processes in the instance, each with its own batches: as many servers.
        rate_rps: Capability: requests a second of the whole instance, all processes together.
        batch_latency_s: Seconds for a full batch on one process, its siblings running.
        latency: The same for smaller batches, all measured ones up to ``batch``.
        derived: From what the figures were computed; empty where all of them were measured.
    """

    profile: str
    batch: int
    processes: int
    rate_rps: float
    batch_latency_s: float
    latency: LatencyCurve
    derived: str = ""

    def stretched(self, factor: float) -> OperatingPoint:
        """The point if every batch took ``factor`` > 0 times as long."""
        return replace(
            self,
            rate_rps=self.rate_rps / factor,
            batch_latency_s=self.batch_latency_s * factor,
            latency=self.latency.stretched(factor),
        )


def operating_points(
    profiles: ServiceProfiles,
    gpu: str,
    model: str,
    slo_s: float,
    batch: Chosen = "auto",
    processes: Chosen = "auto",
    max_batch: int | None = None,
    misjudged: Mapping[str, float] = MappingProxyType({}),
) -> Mapping[str, OperatingPoint]:
    """The best operating point of every profile that meets the SLO, by profile name; at least one.

    Where rates are equal the shorter batch latency wins. A profile on which the chosen batch and
    processes never ran, or never met the SLO, is absent. Batches above ``max_batch`` are not considered.

    ``misjudged`` has by profile name what latencies are taken for, as a factor on what they are. By that points are
    chosen; each is as the table has it, so that it may miss the SLO.

    Raises:
        ProfileTableError: Unknown GPU or model, or a batch or process count that never ran on any profile.
        UnmetSloError: No profile meets the SLO; names the smallest SLO that one would meet, and which.
    """
    rows = _chosen_rows(profiles, gpu, model, batch, processes, max_batch)
    latency_s = {row.key: row.latency_s * misjudged.get(row.profile, 1.0) for row in rows}
    meeting = [row for row in rows if BATCHES_PER_SLO * latency_s[row.key] <= slo_s]
    if not meeting:
        fastest = min(rows, key=lambda row: latency_s[row.key])
        raise UnmetSloError(_unmet(profiles, fastest, latency_s[fastest.key], slo_s))
    best: dict[str, ServiceRow] = {}
    for row in meeting:
        if row.profile not in best or _preference(row) > _preference(best[row.profile]):
            best[row.profile] = row
    return MappingProxyType({name: point_of(row, profiles.of(gpu, model)) for name, row in best.items()})


def servable_rows(
    profiles: ServiceProfiles,
    gpu: str,
    model: str,
    batch: Chosen = "auto",
    processes: Chosen = "auto",
    max_batch: int | None = None,
) -> tuple[ServiceRow, ...]:
    """The rows among which a point is chosen, whatever the SLO, with what the table says of their memory and turns.

    Raises:
        ProfileTableError: As :func:`operating_points`.
    """
    chosen = {row.key for row in _chosen_rows(profiles, gpu, model, batch, processes, max_batch)}
    return profiles.with_memory(gpu, model, chosen)


def point_of(row: ServiceRow, rows: Iterable[ServiceRow]) -> OperatingPoint:
    """How the row serves its model; ``rows`` are the model's, with what was measured of smaller batches."""
    up_to_it = sorted(
        (
            other
            for other in rows
            if (other.profile, other.processes) == (row.profile, row.processes) and other.batch <= row.batch
        ),
        key=lambda other: other.batch,
    )
    curve = LatencyCurve(tuple(r.batch for r in up_to_it), tuple(r.latency_s for r in up_to_it))
    derived = " and ".join(dict.fromkeys(r.derived for r in up_to_it if r.derived))
    return OperatingPoint(row.profile, row.batch, row.processes, row.throughput_rps, row.latency_s, curve, derived)


def highest_capability_rps(gpu: GpuModel, points: Iterable[OperatingPoint]) -> float:
    """The highest total rate over all layouts of ``gpu`` when every instance serves at these points.

    A tenant's load is its mean arrivals over this.
    """
    rate_rps = {point.profile: point.rate_rps for point in points}
    return max(
        sum(count * rate for count, rate in zip(multiset, rate_rps.values(), strict=True))
        for multiset in gpu.multisets(tuple(rate_rps))
    )


def _preference(row: ServiceRow) -> tuple[float, float, int]:
    return (row.throughput_rps, -row.latency_s, -row.processes)


def _chosen_rows(
    profiles: ServiceProfiles, gpu: str, model: str, batch: Chosen, processes: Chosen, max_batch: int | None
) -> list[ServiceRow]:
    rows = profiles.of(gpu, model)
    found = [
        row
        for row in rows
        if batch in ("auto", row.batch)
        and processes in ("auto", row.processes)
        and (max_batch is None or row.batch <= max_batch)
    ]
    if not found:
        batches = ", ".join(map(str, sorted({row.batch for row in rows})))
        counts = ", ".join(map(str, sorted({row.processes for row in rows})))
        limit = "" if max_batch is None else f" (at most {max_batch})"
        raise ProfileTableError(
            f"{profiles.name}: {model} on {gpu} fits no instance with batch {batch}{limit} and processes {processes}; "
            f"it has batches {batches} and processes {counts}, not every pair of them"
        )
    return found


def _unmet(profiles: ServiceProfiles, fastest: ServiceRow, latency_s: float, slo_s: float) -> str:
    # Rounded up, so that the SLO named is one that works.
    least_ms = math.ceil(BATCHES_PER_SLO * latency_s * 1e5) / 100
    taken = "" if latency_s == fastest.latency_s else ", as planning misjudges it"
    return (
        f"{profiles.name}: {fastest.model} on {fastest.gpu} meets an SLO of {slo_s * 1000:,g} ms on no profile "
        f"({BATCHES_PER_SLO} × batch latency ≤ SLO is needed{taken}); {least_ms:,g} ms or more "
        f"would do, on {fastest.profile} with batch {fastest.batch} and "
        f"{fastest.processes} process{'es' if fastest.processes > 1 else ''}"
    )
