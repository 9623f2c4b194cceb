"""What agents of a cluster keep: who serves whom on all nodes, whole, under a number that only grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from migrator.config.cluster import ClusterConfig, cluster_in
from migrator.config.sections import ENDLESS, Config

Stamp = tuple[int, str]
"""The number of an assignment and who made it: no two assignments have the same."""


class Assigned(Struct, frozen=True, kw_only=True):
    """Who serves whom, of all nodes, with all that a new coordinator has to know.

    Attributes:
        number: Above that of every assignment before.
        author: The coordinator that made it; a later one sorts behind an earlier one.
        path: The config's file; files that the config names are relative to its folder.
        document: The config.
        sets: By GPU whom it serves.
        leaving: By GPU whom it serves until another one is ready to.
        unplaced: Tenants that nobody serves, with the reason.
        nodes: Those that may have tenants.
        drained: Nodes that shall have none.
        is_closed: Whether the cluster ends: nobody is served any more.
    """

    number: int
    author: str
    path: str
    document: dict[str, Any]
    sets: dict[str, tuple[str, ...]]
    leaving: dict[str, tuple[str, ...]] = {}
    unplaced: dict[str, str] = {}
    nodes: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    is_closed: bool = False

    @property
    def stamp(self) -> Stamp:
        """What tells it from all others."""
        return self.number, self.author

    @property
    def cluster(self) -> ClusterConfig:
        """The config."""
        return _cluster(encode(self.document), self.path)

    def served_by(self, gpu: str) -> tuple[str, ...]:
        """Whom the GPU serves."""
        return (*self.sets.get(gpu, ()), *self.leaving.get(gpu, ()))

    def target_of(self, tenant: str) -> str | None:
        """The GPU that is to serve the tenant."""
        return next((gpu for gpu, names in self.sets.items() if tenant in names), None)

    def services_of(self, node: str) -> dict[str, Config | None]:
        """By GPU of the node its service; ``None`` where it serves nobody."""
        cluster = self.cluster
        found: dict[str, Config | None] = {}
        for gpu in cluster.gpus:
            if gpu.node == node:
                names = self.served_by(gpu.name)
                own = [one for one in cluster.run.tenants if one.name in names]
                config = cluster.config_of(gpu, own).model_copy(update={"windows": ENDLESS})
                found[gpu.name] = config if own else None
        return found


@lru_cache(maxsize=4)
def _cluster(document: bytes, path: str) -> ClusterConfig:
    return cluster_in(decode(document), path, Path(path))


ASSIGNED = Decoder(Assigned)
"""Reads what ``msgspec.json.encode`` made of one."""


@dataclass(frozen=True, slots=True)
class LastGoodput:
    """Of a GPU's last settled window, shares of all requests; ``None`` where nobody knows, or no window is settled.

    Attributes:
        goodput_pct: Answered in time and right.
        expected_goodput_pct: In time, each worth the accuracy in force.
    """

    goodput_pct: float | None = None
    expected_goodput_pct: float | None = None


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What a GPU's service is at.

    Attributes:
        pid: Its process; ``None`` where there is none.
        url: Its front door.
        serves: Whom it was last told to serve, by its config.
        ready: Whom it can answer for now.
        since_s: Since when its set is as it is, in seconds since 1970.
        said: Why it does not answer for all whom it serves, in a line; empty where it does.
    """

    pid: int | None = None
    url: str = ""
    serves: tuple[str, ...] = ()
    ready: frozenset[str] = frozenset()
    since_s: float = 0.0
    said: str = ""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node's agent says.

    Attributes:
        stamp: Of the assignment that it keeps.
        gpus: By name, its GPUs.
        held: That assignment, where it is another one than was expected and its number is no lower.
    """

    stamp: Stamp | None
    gpus: Mapping[str, GpuReport]
    held: Assigned | None = None


def newest_of(known: Iterable[Assigned], author: str) -> Assigned:
    """The one with the highest number; where two have it, the later coordinator's under the author's next number."""
    *others, newest = sorted({one.stamp: one for one in known}.values(), key=lambda one: one.stamp)
    is_disputed = bool(others) and others[-1].number == newest.number
    return replace(newest, number=newest.number + 1, author=author) if is_disputed else newest
