"""What of a setting's traces and profiles was not measured, for all who tell results."""

from __future__ import annotations

from migrator.assembly import Setting
from migrator.reporters.provenance import SYNTHETIC, derived_profiles


def provenance(setting: Setting) -> tuple[tuple[str, str], ...]:
    """(kind, text) for each: a variant of the profiles, a synthetic trace, profiles that were derived."""
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
