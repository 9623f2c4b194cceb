"""Which weights a live run's tenants answer with, by its log and its folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from migrator.log.records import Finished, RolledBack, TenantsChanged
from migrator.log.runlog import ReadLog

FIRST = "first"
"""The version of the weights that a tenant begins with."""


@dataclass(frozen=True, slots=True)
class Served:
    """The weights that a tenant's workers are to answer with; without a ``file`` those that the model is made with."""

    file: Path | None
    version: str
    accuracy: float


def served_weights(log: ReadLog) -> dict[str, Served]:
    """Those that each tenant's retrainings have brought last, or that serve again, if they are still there.

    What a tenant learned before it left does not count once it has come again.
    """
    found: dict[str, Served] = {}
    for entry in log.entries:
        match entry.record:
            case TenantsChanged(accuracies=came):
                found = {name: own for name, own in found.items() if name not in came}
            case (Finished(rejected=None) | RolledBack()) as one:
                for own in _there(log.folder, one):
                    found[one.tenant] = own
            case _:
                pass
    return found


def kept_weights(log: ReadLog) -> dict[str, list[Served]]:
    """By tenant all weights that its retrainings have brought since it came and that are still there, in order."""
    found: dict[str, list[Served]] = {}
    for entry in log.entries:
        match entry.record:
            case TenantsChanged(accuracies=came):
                found = {name: own for name, own in found.items() if name not in came}
            case Finished(rejected=None) as ended:
                found.setdefault(ended.tenant, []).extend(_there(log.folder, ended))
            case _:
                pass
    return found


def _there(run: Path, told: Finished | RolledBack) -> Iterator[Served]:
    if told.weights is not None and told.version is not None and (run / told.weights).is_file():
        yield Served(run / told.weights, told.version, told.accuracy)


def first_weights(run: Path, tenant: str) -> Path | None:
    """The first weights that were trained for the tenant in a run's folder, where they are still there."""
    return next(iter(sorted(run.glob(f"live*/weights/{tenant}/first/final.safetensors"))), None)
