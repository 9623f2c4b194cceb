"""A log in which tenants came and went, cut into parts of one set of tenants each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from migrator.log.records import Finished, Reloaded, Resumed, RolledBack, TenantsChanged, WindowStarted
from migrator.log.runlog import ReadLog
from migrator.log.sets import with_tenants


def eras_of(log: ReadLog) -> Iterator[ReadLog]:
    """The log cut where tenants changed; each part has who was there in its header, and the windows begun with them.

    A window in whose course they changed is of the part in which it began, up to then. Of configs that were taken up
    each part has the one in force, also where it counts only from a start on, as the service was killed before. A part
    without a window is left out.
    """
    edges, has_other = list[float]([-1]), False
    for entry in log.entries:
        has_other |= isinstance(entry.record, Reloaded)
        if isinstance(entry.record, TenantsChanged) or (has_other and isinstance(entry.record, Resumed)):
            edges.append(entry.n)
            has_other = False
    edges.append(math.inf)
    for begin, end in pairwise(edges):
        known = tuple(entry for entry in log.entries if entry.n < end)
        first = next((one for one in log.entries_of(WindowStarted) if begin < one.n < end), None)
        if first is None:
            continue
        changed = [one.record.tenants for one in known if isinstance(one.record, TenantsChanged)]
        configs = [one for one in known if isinstance(one.record, Reloaded) and one.n < first.n]
        cut = replace(log, entries=known)
        part = cut if begin < 0 else cut.since(first.record.window)
        tenants = changed[-1] if changed else log.header.tenants
        names = {tenant.name for tenant in tenants}
        rest = (
            one
            for one in part.entries
            if not isinstance(one.record, Reloaded | TenantsChanged)
            and not (isinstance(one.record, Finished | RolledBack) and one.record.tenant not in names)
        )
        own = with_tenants(rest, tenants)
        yield replace(part, entries=tuple(sorted([*own, *configs[-1:]], key=lambda one: one.n)))
