"""What agents of a cluster keep: who serves whom on all nodes, whole, under a number that only grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from migrator.config.cluster import ClusterConfig, cluster_in
from migrator.config.sections import ENDLESS, Config, TenantConfig

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
        since: By GPU and tenant, the number of the assignment that put it there.
        lost: Tenants that had to leave where nothing could be asked any more what they had learned, with the node.
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
    since: dict[str, dict[str, int]] = {}
    lost: dict[str, str] = {}
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

    def sources_of(self, tenant: str, target: str) -> list[str]:
        """The other GPUs that still serve the tenant, which may have its weights."""
        return [gpu for gpu, names in self.leaving.items() if tenant in names and gpu != target]

    def follower(self, author: str) -> Assigned:
        """The same under the next number; who is put on a GPU is there since then."""
        number = self.number + 1
        served = {gpu: self.served_by(gpu) for gpu in (*self.sets, *self.leaving)}
        since = {gpu: {name: self.since.get(gpu, {}).get(name, number) for name in own} for gpu, own in served.items()}
        return replace(self, number=number, author=author, since=since)

    def gpus_of(self, node: str) -> list[str]:
        """The GPUs of the node."""
        return [gpu.name for gpu in self.cluster.gpus if gpu.node == node]

    def tenants_of(self, gpu: str) -> list[TenantConfig]:
        """The tenants that the GPU serves."""
        names = self.served_by(gpu)
        return [one for one in self.cluster.run.tenants if one.name in names]

    def config_of(self, gpu: str, tenants: Sequence[TenantConfig]) -> Config | None:
        """The service of the GPU with these tenants; ``None`` where there are none."""
        (own,) = [one for one in self.cluster.gpus if one.name == gpu]
        return self.cluster.config_of(own, tenants).model_copy(update={"windows": ENDLESS}) if tenants else None


@lru_cache(maxsize=4)
def _cluster(document: bytes, path: str) -> ClusterConfig:
    return cluster_in(decode(document), path, Path(path))


ASSIGNED = Decoder(Assigned)
"""Reads what ``msgspec.json.encode`` made of one."""


class Moved(Struct, frozen=True, kw_only=True):
    """What a tenant answers with on one GPU, on its way to another.

    Attributes:
        weights: A file's bytes; none for the config's.
        told: Which those are, in words.
        accuracy: As it was measured there, if it was.
    """

    weights: bytes = b""
    told: str = ""
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class LearnedWeights:
    """Weights that a tenant learned on a GPU.

    Attributes:
        file: Where they lie.
        version: As the service calls them.
        accuracy: As it was measured there; ``None``: they are the first, which the service trained.
    """

    file: Path
    version: str
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Move:
    """A tenant's weights that are to go from GPU to GPU, each with its node, under an assignment."""

    tenant: str
    source: tuple[str, str]
    target: tuple[str, str]
    stamp: Stamp


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
        lacks: Whom it is to serve, once it has the weights.
        weights: Which weights tenants came with, in words, where those are not the config's from the first.
        dropped: By tenant the version of weights that it learned there, which nobody took over when it had to go.
        said: Why it does not answer for all whom it serves, in a line; empty where it does.
    """

    pid: int | None = None
    url: str = ""
    serves: tuple[str, ...] = ()
    ready: frozenset[str] = frozenset()
    since_s: float = 0.0
    said: str = ""
    lacks: frozenset[str] = frozenset()
    weights: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


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
