"""The config of a cluster: a run's config with ``cluster`` in place of ``gpu``.

Tenants have three more keys there: ``only_on``, ``keep_apart`` and ``replicas``. A tenant of ``replicas: k`` becomes k
tenants ``name.0 … name.(k-1)``, each with 1/k of the arrivals; each of them is retrained by itself.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from executor.described import SUFFIX
from executor.names import did_you_mean
from migrator.config.reading import config_data, rooted, validate_config, validated
from migrator.config.sections import (
    ENDLESS,
    Config,
    Count,
    GpuConfig,
    Name,
    NonNegative,
    Section,
    SharingConfig,
    TenantConfig,
)
from migrator.errors import ConfigError
from planner.files.strict import Text

MOST_GPUS = 1000
"""Of a cluster; beyond it a count is a slip."""


class GpusConfig(GpuConfig):
    """GPUs of one model on one node: ``name.0 … name.(count-1)``; ``index`` is the first one's on the node.

    ``profiles`` is a table of service profiles for this model alone, instead of the config's.
    """

    name: Name
    node: Name
    count: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    profiles: Text | None = None


class MoveConfig(Section):
    """What taking a tenant to another GPU costs, beside its warm-up, and over how many windows it has to pay."""

    transfer_s: NonNegative = 6.0
    horizon_windows: Count = 6


class ClusterSection(Section):
    """The GPUs, and what a move costs."""

    gpus: Annotated[list[GpusConfig], Field(min_length=1)]
    move: MoveConfig = MoveConfig()

    @model_validator(mode="after")
    def _gpus_differ(self) -> ClusterSection:
        for one, other in combinations(self.gpus, 2):
            if one.name == other.name:
                raise ValueError(f"gpus: two entries are called {one.name!r}; names must differ")
            if one.node == other.node and one.index < other.index + other.count and other.index < one.index + one.count:
                raise ValueError(
                    f"gpus.{other.name}.index is {other.index}, and {one.name} has {_numbers(one)} of node {one.node}; "
                    f"an index from {one.index + one.count} is needed"
                )
        if (n := sum(one.count for one in self.gpus)) > MOST_GPUS:
            raise ValueError(f"gpus: {n:,} given; at most {MOST_GPUS:,} are allowed")
        return self


class PlacedTenantConfig(TenantConfig):
    """A tenant of a cluster, and where it may be: ``only_on`` has models or nodes, ``keep_apart`` other tenants."""

    only_on: Annotated[list[Name], Field(default_factory=list)]
    keep_apart: Annotated[list[Name], Field(default_factory=list)]
    replicas: Annotated[int, Field(ge=1)] = 1

    @property
    def names(self) -> list[str]:
        """The tenant's, or its replicas'."""
        return [self.name] if self.replicas == 1 else [f"{self.name}.{n}" for n in range(self.replicas)]


class _Placed(Section):
    """What a cluster's config has that a run's has not, checked together."""

    cluster: ClusterSection
    tenants: Annotated[list[PlacedTenantConfig], Field(min_length=1)]
    sharing: SharingConfig = SharingConfig()

    @model_validator(mode="after")
    def _parts_go_together(self) -> _Placed:
        for objection in self._objections():
            raise ValueError(objection)
        return self

    def _objections(self) -> Iterator[str]:
        names = [tenant.name for tenant in self.tenants]
        places = dict.fromkeys([one for gpus in self.cluster.gpus for one in (gpus.model, gpus.node)])
        for tenant in self.tenants:
            where = f"tenants.{tenant.name}"
            for place in tenant.only_on:
                if place not in places:
                    yield (
                        f"{where}.only_on: {place!r} is no model and no node of the cluster"
                        f"{did_you_mean(place, places)}; there is: {', '.join(places)}"
                    )
            for other in tenant.keep_apart:
                if other == tenant.name:
                    yield f"{where}.keep_apart: {other!r} is the tenant itself; replicas are apart in any case"
                if other not in names:
                    yield f"{where}.keep_apart: {other!r} is no tenant; there is: {', '.join(names)}"
            n_gpus = sum(gpus.count for gpus in self.cluster.gpus if _may_be_on(tenant, gpus))
            if tenant.replicas > n_gpus:
                yield (
                    f"{where}.replicas is {tenant.replicas}; each needs a GPU of its own, and {n_gpus} may have it: "
                    f"1 to {n_gpus} are allowed"
                )
        for name, n in Counter(own for tenant in self.tenants for own in tenant.names).items():
            if n > 1 and name not in names:
                yield f"tenants: two are called {name!r}; names must differ, of replicas too"
            if n > 1:
                yield f"tenants: {name!r} is a tenant, and so would a replica be called; names must differ"
        if self.sharing.listed is not None:
            yield "sharing.pools: a cluster's plan says who shares a GPU; off or auto is needed"


@dataclass(frozen=True, slots=True)
class ClusterGpu:
    """One GPU of the cluster.

    Attributes:
        name: ``a.0`` is the first of the entry ``a``.
        node: Where it is.
        config: As a run's config has it, with its index on the node.
        profiles: The table of service profiles; ``None`` for the shipped one.
    """

    name: str
    node: str
    config: GpuConfig
    profiles: str | None


@dataclass(frozen=True)
class ClusterConfig:
    """A validated config of a cluster.

    Attributes:
        gpus: Every GPU, in the config's order.
        move: What moves cost.
        run: All else, with the first GPU's model, and every replica as a tenant of its own.
        asked: The tenants as the config has them, with their ``replicas``.
        lost: Nodes whose GPUs may have nobody.
    """

    gpus: tuple[ClusterGpu, ...]
    move: MoveConfig
    run: Config
    asked: tuple[PlacedTenantConfig, ...]
    lost: frozenset[str] = frozenset()

    def allowed(self, tenant: str) -> tuple[int, ...]:
        """Which GPUs may have the tenant, or replica, by place."""
        own = self.asked_for(tenant)
        return tuple(
            n
            for n, gpu in enumerate(self.gpus)
            if gpu.node not in self.lost and (not own.only_on or _is_named(own, gpu.config, gpu.node))
        )

    def without(self, nodes: Iterable[str]) -> ClusterConfig:
        """The same, where GPUs of these nodes may have nobody."""
        return replace(self, lost=frozenset(nodes))

    def replicas_of(self) -> tuple[tuple[str, ...], ...]:
        """The names of each tenant's replicas, of tenants that have more than one."""
        return tuple(tuple(one.names) for one in self.asked if one.replicas > 1)

    def apart(self) -> tuple[tuple[str, str], ...]:
        """Pairs that may not be on one GPU, each once, in the tenants' order: as asked for, and a tenant's replicas."""
        found: dict[tuple[str, str], None] = {}
        order = {tenant.name: n for n, tenant in enumerate(self.run.tenants)}
        by_name = {one.name: one for one in self.asked}
        for one in self.asked:
            pairs = [*combinations(one.names, 2)]
            pairs += [(a, b) for name in one.keep_apart for a in one.names for b in by_name[name].names]
            found |= dict.fromkeys((a, b) if order[a] < order[b] else (b, a) for a, b in pairs)
        return tuple(sorted(found, key=lambda pair: (order[pair[0]], order[pair[1]])))

    def config_of(self, gpu: ClusterGpu, tenants: Sequence[TenantConfig]) -> Config:
        """The run of one GPU with these tenants, which have their factors: no load moves them any more.

        Its front door's port is the config's and the GPU's index; with live arrivals it is a service, without an end,
        unless the config says how many windows there are.
        """
        door, names = self.run.front_door, {tenant.name for tenant in tenants}
        if door is not None:
            tokens = {name: file for name, file in door.tokens.items() if name in names}
            door = door.model_copy(update={"port": door.port + gpu.config.index if door.port else 0, "tokens": tokens})
        update = {
            "name": f"{self.run.name}-{gpu.name}"[:100],
            "gpu": gpu.config,
            "profiles": gpu.profiles,
            "load": None,
            "front_door": door,
            "tenants": list(tenants),
        }
        if self.run.has_live_arrivals and "windows" not in self.run.model_fields_set:
            update["windows"] = ENDLESS
        return self.run.model_copy(update=update)

    def asked_for(self, tenant: str) -> PlacedTenantConfig:
        """The tenant of the config that this one is, or is a replica of."""
        return next(one for one in self.asked if tenant in one.names)


def read_cluster(path: Path, assignments: Sequence[str] = (), /, **overrides: object) -> ClusterConfig:
    """The validated config of a cluster in ``path``; the rest is as :func:`migrator.config.reading.read_config` has it.

    Raises:
        ConfigError: It is missing, unreadable or not YAML, is one of a single GPU, or has an unknown key or a value
            outside its range.
    """
    return cluster_in(*config_data(path, assignments, **overrides), path)


def cluster_in(data: dict[str, Any], origin: str, path: Path) -> ClusterConfig:
    """The same of a document that was read; files that it names are relative to the folder of ``path``.

    Raises:
        ConfigError: As above.
    """
    if "cluster" not in data:
        raise ConfigError(
            f"{origin}: cluster is missing; this is the config of one GPU, which migrator plan and run take"
        )
    if "gpu" in data:
        raise ConfigError(f"{origin}: gpu is beside cluster; cluster.gpus has the GPUs, and gpu is one GPU's")
    _root_models(data["cluster"], path)
    placed = validated(_Placed, {key: data[key] for key in _Placed.model_fields if key in data}, origin)
    first = placed.cluster.gpus[0]
    rest = {key: value for key, value in data.items() if key != "cluster"}
    tenants = [one for tenant in placed.tenants for one in _replicas(tenant, has_load=data.get("load") is not None)]
    door = rest.get("front_door")
    if isinstance(door, Mapping) and isinstance(tokens := door.get("tokens"), Mapping):
        rest["front_door"] = {**door, "tokens": _by_replica(tokens, placed.tenants)}
    config = rooted(validate_config({**rest, "gpu": _gpu(first, 0), "tenants": tenants}, origin), path)
    most = config.front_door.port + MOST_GPUS if config.front_door is not None else 0
    if most > 2**16:
        raise ConfigError(
            f"{origin}: front_door.port is {most - MOST_GPUS}; each GPU of a node has the next, so that at most "
            f"{2**16 - MOST_GPUS} is allowed"
        )
    return ClusterConfig(_gpus(placed.cluster, config, path), placed.cluster.move, config, tuple(placed.tenants))


def _root_models(cluster: object, path: Path) -> None:
    """Let files that describe GPUs' models be relative to the config."""
    for one in cluster.get("gpus") or () if isinstance(cluster, dict) else ():
        if isinstance(one, dict) and isinstance(model := one.get("model"), str) and model.endswith(SUFFIX):
            one["model"] = os.path.realpath(path.parent / model)


def _gpus(cluster: ClusterSection, config: Config, path: Path) -> tuple[ClusterGpu, ...]:
    return tuple(
        ClusterGpu(
            name=f"{one.name}.{n}",
            node=one.node,
            config=_gpu(one, n),
            profiles=config.profiles if one.profiles is None else os.path.realpath(path.parent / one.profiles),
        )
        for one in cluster.gpus
        for n in range(one.count)
    )


def _gpu(one: GpusConfig, n: int) -> GpuConfig:
    own = {key: getattr(one, key) for key in GpuConfig.model_fields}
    return GpuConfig.model_validate({**own, "index": one.index + n})


def _replicas(tenant: PlacedTenantConfig, *, has_load: bool) -> list[TenantConfig]:
    """The tenants made of one, each with its part of the arrivals."""
    own = TenantConfig.model_validate({key: getattr(tenant, key) for key in TenantConfig.model_fields})
    k = tenant.replicas
    if k == 1:
        return [own]
    scale = own.arrivals.scale
    update: dict[str, object] = {}
    if scale.factor is None and has_load:
        update["load_share"] = own.load_share / k
    else:
        factor = (1.0 if scale.factor is None else scale.factor) / k
        update["arrivals"] = own.arrivals.model_copy(update={"scale": scale.model_copy(update={"factor": factor})})
    return [own.model_copy(update={**update, "name": name}) for name in tenant.names]


def _by_replica(tokens: Mapping[object, object], tenants: Sequence[PlacedTenantConfig]) -> dict[object, object]:
    names = {tenant.name: tenant.names for tenant in tenants}
    return {own: file for name, file in tokens.items() for own in names.get(str(name), [name])}


def _may_be_on(tenant: PlacedTenantConfig, gpus: GpusConfig) -> bool:
    return not tenant.only_on or _is_named(tenant, gpus, gpus.node)


def _is_named(tenant: PlacedTenantConfig, gpu: GpuConfig, node: str) -> bool:
    return gpu.model in tenant.only_on or node in tenant.only_on


def _numbers(one: GpusConfig) -> str:
    return f"{one.index}" if one.count == 1 else f"{one.index} to {one.index + one.count - 1}"
