"""What of a workload was not measured: profiles that were computed, traces that were made up, jitter of other work."""

from __future__ import annotations

from collections.abc import Mapping

SYNTHETIC = "synthetic"
"""Stands in the name of every source whose requests were made up at some scale."""


MEASURED_JITTER = "batches vary as measured steps of training (MISO) do; serving itself was not measured"
"""What there is to say of ``service_jitter: measured``."""


def derived_profiles(derived: Mapping[str, str]) -> str:
    """``profiles = what they were computed from``, where that is told (by profile name); empty for none."""
    profiles: dict[str, list[str]] = {}
    for name, origin in derived.items():
        if origin:
            profiles.setdefault(origin, []).append(name)
    return "; ".join(f"{', '.join(names)} = {origin}" for origin, names in profiles.items())
