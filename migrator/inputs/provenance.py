"""What of a result was not measured: altered or derived profiles, synthetic traces, jitter of other work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a report is made from the log alone, and should not wait for what a run imports
    from migrator.config.sections import Config, SimulationConfig
    from migrator.inputs.traffic import Traffic
    from migrator.log.records import SimulatedFaults
    from workloads.tenants import Tenant

SYNTHETIC = "synthetic"
"""Part of the name of every source whose requests were made up at some scale."""

MEASURED_JITTER = "batches vary as measured steps of training (MISO) do; serving itself was not measured"
"""The note on ``service_jitter: measured``."""


def provenance(config: Config, tenants: Sequence[Tenant], traffic: Traffic) -> tuple[tuple[str, str], ...]:
    """The notes on a plan, (kind, text) each."""
    notes = []
    if config.profile_variant != "recorded":
        notes.append(("profiles", f"{config.profile_variant}, no longer as recorded"))
    if config.estimates.service_spread:
        notes.append(("estimates", misjudged_text(config.estimates.service_spread)))
    for tenant, origin in zip(tenants, traffic.origins, strict=True):
        if SYNTHETIC in origin.source:
            notes.append(("trace", f"{tenant.name}: {origin.source}"))
        notes += [("trace", f"{tenant.name}: {note}") for note in origin.notes]
        derived = derived_profiles({name: point.derived for name, point in tenant.operating_points.items()})
        if derived:
            notes.append(("derived", f"{tenant.name}: {derived}"))
    return tuple(notes)


def simulated_provenance(config: Config, tenants: Sequence[Tenant], traffic: Traffic) -> tuple[tuple[str, str], ...]:
    """The notes on a simulation: those on its plans, and one where service times vary as other work's do."""
    notes = provenance(config, tenants, traffic)
    if config.simulation.service_jitter == "measured":
        notes = (*notes, ("service jitter", MEASURED_JITTER))
    if config.simulation.has_faults:
        notes = (*notes, ("simulated faults", faults_text(config.simulation)))
    return notes


def misjudged_text(spread: float) -> str:
    """That planning goes by wrong latencies, in words; ``spread`` is ``estimates.service_spread``, above 0."""
    return f"each model's latency on each profile is planned with as {1 - spread:.3g} to {1 + spread:.3g} times itself"


def faults_text(faults: SimulationConfig | SimulatedFaults) -> str:
    """What the simulated GPU does beyond what it is asked to, in words."""
    driver, parts = faults.driver, []
    if driver.error_share > 0:
        parts.append(f"{driver.error_share:.3g} of the driver's calls are refused")
    if driver.in_use_share > 0:
        parts.append(f"{driver.in_use_share:.3g} of the instances will not go for {driver.in_use_s:g} s")
    for other in faults.others:
        begin = "the beginning" if other.from_s is None else f"{other.from_s:g} s"
        end = "the end" if other.to_s is None else f"{other.to_s:g} s"
        parts.append(f"somebody else has {other.placement} from {begin} to {end}")
    return "; ".join(parts)


def scaling_text(method: str, factor: float, smooth_s: int | None) -> str:
    """What scaling does to a trace's requests, in words."""
    match method:
        case "thin" if factor == 1:
            return "replayed as recorded"
        case "thin":
            return f"thin × {factor:,.4g}: requests are left out at random"
        case "copies":
            return f"copies × {factor:,.4g}: each copy at a time of its own inside the second"
        case _:
            bursts = "bursts" if smooth_s is None else f"bursts within {smooth_s} s"
            return f"{method} × {factor:,.4g}: {bursts} are redrawn"


def derived_profiles(derived: Mapping[str, str]) -> str:
    """``profiles = what they were computed from``, from origins by profile name; an empty origin is a measurement."""
    profiles: dict[str, list[str]] = {}
    for name, origin in derived.items():
        if origin:
            profiles.setdefault(origin, []).append(name)
    return "; ".join(f"{', '.join(names)} = {origin}" for origin, names in profiles.items())


def without_folder(name: str) -> str:
    """The name of a table or trace; where that is a file, its name alone: logs are shown to others."""
    return Path(name).name if Path(name).is_absolute() else name
