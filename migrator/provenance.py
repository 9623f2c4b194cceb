"""What of a setting was not measured, for all who tell results."""

from __future__ import annotations

from migrator.setting import Setting
from migrator.traffic import Traffic
from migrator.views.provenance import MEASURED_JITTER, SYNTHETIC, derived_profiles


def simulated_provenance(setting: Setting, traffic: Traffic) -> tuple[tuple[str, str], ...]:
    """What is to be said of a simulation: what is to be said of a plan, and batches that vary as other work does."""
    notes = provenance(setting, traffic)
    if setting.config.simulation.service_jitter == "measured":
        notes = (*notes, ("service jitter", MEASURED_JITTER))
    return notes


def provenance(setting: Setting, traffic: Traffic) -> tuple[tuple[str, str], ...]:
    """What is to be said of a plan. (kind, text) for each: profiles that were altered or derived, synthetic traces."""
    notes = []
    if setting.config.profile_variant != "recorded":
        notes.append(("profiles", f"{setting.config.profile_variant}, no longer as recorded"))
    for tenant, origin in zip(setting.tenants, traffic.origins, strict=True):
        if SYNTHETIC in origin.source:
            notes.append(("trace", f"{tenant.name}: {origin.source}"))
        derived = derived_profiles({name: point.derived for name, point in tenant.operating_points.items()})
        if derived:
            notes.append(("derived", f"{tenant.name}: {derived}"))
    return tuple(notes)
