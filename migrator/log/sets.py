"""Who was there in a log in which tenants came and went, and when."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from msgspec import structs

from migrator.log.line import Entry
from migrator.log.records import Record, RunStarted, Tenant, TenantsChanged

Spans = tuple[tuple[float, float], ...]
"""From when to when, in order."""


def with_everybody(entries: Sequence[Entry[Record]]) -> tuple[tuple[Entry[Record], ...], Mapping[str, Spans]]:
    """The records as if their header had all tenants that ever were there, each as it was last, and the last pins.

    With them, by tenant, the spans in which it was not there; empty for a set that never changed.
    """
    sets = _sets_in(entries)
    if len(sets) == 1:
        return tuple(entries), {}
    told: dict[str, Tenant] = {}
    for tenant in (tenant for _, tenants in sets for tenant in tenants):
        points = told[tenant.name].operating_points if tenant.name in told else {}
        told[tenant.name] = structs.replace(tenant, operating_points={**points, **tenant.operating_points})
    absent: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for (from_s, tenants), (to_s, _) in pairwise([*sets, (math.inf, ())]):
        for name in told.keys() - {tenant.name for tenant in tenants}:
            absent[name].append((from_s, to_s))
    pinned = [entry.record.pinned for entry in entries if isinstance(entry.record, TenantsChanged)][-1]
    found = tuple(with_tenants(entries, tuple(told.values()), pinned))
    return found, {name: tuple(spans) for name, spans in sorted(absent.items())}


def with_tenants(
    entries: Iterable[Entry[Record]], tenants: tuple[Tenant, ...], pinned: tuple[str, ...] = ()
) -> Iterator[Entry[Record]]:
    """The records as if their header had these tenants, and pins."""
    for entry in entries:
        header = entry.record
        if isinstance(header, RunStarted):
            yield replace(entry, record=structs.replace(header, tenants=tenants, pinned=pinned))
        else:
            yield entry


def _sets_in(entries: Iterable[Entry[Record]]) -> list[tuple[float, tuple[Tenant, ...]]]:
    """The tenants of the header, and those of each change, with when it was."""
    found = list[tuple[float, tuple[Tenant, ...]]]()
    for entry in entries:
        if isinstance(entry.record, RunStarted):
            found.append((-math.inf, entry.record.tenants))
        elif isinstance(entry.record, TenantsChanged):
            found.append((entry.at_s, entry.record.tenants))
    return found
