"""What of a setting was not measured, for all who tell results."""

from __future__ import annotations

from migrator.setting import Setting
from migrator.views.provenance import MEASURED_JITTER, SYNTHETIC, derived_profiles


def simulated_provenance(setting: Setting) -> tuple[tuple[str, str], ...]:
    """What is to be said of a simulation: what is to be said of a plan, and batches that vary as other work does."""
    notes = provenance(setting)
    if setting.config.simulation.service_jitter == "measured":
        notes = (*notes, ("service jitter", MEASURED_JITTER))
    return notes


def provenance(setting: Setting) -> tuple[tuple[str, str], ...]:
    """What is to be said of a plan. (kind, text) for each: profiles that were altered or derived, synthetic traces."""
    notes = []
    if setting.config.profile_variant != "recorded":
        notes.append(("profiles", f"{setting.config.profile_variant}, no longer as recorded"))
    for tenant, arrivals in zip(setting.tenants, setting.arrivals, strict=True):
        if SYNTHETIC in arrivals.source:
            notes.append(("trace", f"{tenant.name}: {arrivals.source}"))
        derived = derived_profiles({name: point.derived for name, point in tenant.operating_points.items()})
        if derived:
            notes.append(("derived", f"{tenant.name}: {derived}"))
    return tuple(notes)
