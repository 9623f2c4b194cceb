"""Who stays on a GPU since which assignment, and with which weights; those of a tenant that moves follow it.

A tenant that comes to a GPU is served there once its weights have come from where it leaves, or none can. One that went
on being served where its node was cut off comes anew: what it learned there meanwhile is dropped, as others answer for
it since.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from executor.errors import brief
from executor.files import read_input, write_whole
from migrator.cluster.assigned import Assigned, LearnedWeights, Moved
from migrator.config.sections import AccuracyConfig, TenantConfig

STAYING_FILE = "staying.json"

WEIGHTS = "weights"
"""The folder of weights that came, in a GPU's own."""

MOST_BYTES = 2**40
"""Of a tenant's weights."""


class LearningService(Protocol):
    """What there is to know of a GPU's service."""

    @property
    def serves(self) -> tuple[str, ...]:
        """Whom it serves, or still drains."""

    @property
    def ends(self) -> bool:
        """Whether it ends, and another one begins without what this one learned."""

    def learned(self, tenant: str) -> LearnedWeights | None:
        """The newest weights that the tenant answers with, if it has learned any there."""


class _Stay(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant's stay on the GPU, under the number of the assignment that put it there."""

    number: int
    file: str = ""
    """The weights with which it came; none for the config's."""
    told: str = ""
    """Which those are, in words."""
    accuracy: float | None = None
    handed: str = ""
    """The version that another GPU was given."""


class _Stays(Struct, frozen=True, kw_only=True):
    stays: dict[str, _Stay] = {}
    dropped: dict[str, str] = {}
    """By tenant the version of what it learned here and nobody took over."""


class Staying:
    """The tenants of one GPU, by what lies in its folder."""

    def __init__(self, gpu: str, node: str, folder: Path) -> None:
        self._gpu, self._node, self._folder = gpu, node, folder
        self._lacks, self._own, self._is_known = frozenset[str](), _Stays(), False
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, MsgspecError):  # the first time, or a damaged disk: who is served here stays
            self._own, self._is_known = decode(read_input(folder / STAYING_FILE), type=_Stays), True

    @property
    def told(self) -> dict[str, str]:
        """By tenant which weights it came with, where those are not the config's from the first."""
        return {name: stay.told for name, stay in self._own.stays.items() if stay.told}

    @property
    def dropped(self) -> dict[str, str]:
        """As in :class:`migrator.cluster.assigned.GpuReport`."""
        return self._own.dropped

    @property
    def lacks(self) -> frozenset[str]:
        """Likewise."""
        return self._lacks

    def follow(self, held: Assigned, service: LearningService) -> None:
        """Know who comes and goes by the assignment in force."""
        names, since = held.served_by(self._gpu), held.since.get(self._gpu, {})
        stays, dropped = dict(self._own.stays), {} if held.is_closed else dict(self._own.dropped)
        if not self._is_known:
            stays = {name: _Stay(number=since.get(name, 0)) for name in names if name in service.serves}
        for name, stay in list(stays.items()):
            if name in names and stay.number >= since.get(name, 0):
                if service.ends and (own := service.learned(name)) is not None:
                    stays[name] = replace(stay, file=str(own.file), told=self._words(own), accuracy=own.accuracy)
            elif name in names and (
                held.target_of(name) != self._gpu  # it was cut off, and serves on until the target is ready
                or (held.lost.get(name) == self._node and not held.sources_of(name, self._gpu))  # nobody else served
            ):
                stays[name] = replace(stay, number=since.get(name, 0))
            else:
                del stays[name]
                own = service.learned(name) if held.target_of(name) is not None else None
                if own is not None and own.accuracy is not None and own.version != stay.handed:
                    dropped[name] = own.version
        absent = [name for name in names if name not in stays and name not in service.serves]
        learners = {one.name for one in held.tenants_of(self._gpu) if one.learning is not None}
        for name in absent:
            if held.target_of(name) == self._gpu and not held.sources_of(name, self._gpu):
                node = held.lost.get(name) if name in learners else None
                told = f"the config's, as what it had learned was lost with node {node}" if node else ""
                stays[name] = _Stay(number=since.get(name, 0), told=told)
        self._lacks = frozenset(absent) - stays.keys()
        self._keep(_Stays(stays=stays, dropped=dropped))

    def served(self, tenants: Iterable[TenantConfig]) -> list[TenantConfig]:
        """Those of the tenants that may be served now, with the weights that they came with."""
        return [_with(one, self._own.stays[one.name]) for one in tenants if one.name in self._own.stays]

    def hand(self, tenant: str, service: LearningService) -> Moved | None:
        """What the tenant answers with here, for where it goes; ``None``: it is not here."""
        stay = self._own.stays.get(tenant)
        if stay is None:
            return None
        own = service.learned(tenant)
        file, told, accuracy = stay.file, stay.told, stay.accuracy
        if own is not None:
            file, told, accuracy = str(own.file), self._words(own), own.accuracy
        try:
            raw = read_input(Path(file), MOST_BYTES) if file else b""
        except OSError as error:
            return Moved(told=f"the config's, as {file} of {self._gpu} cannot be read: {brief(str(error))}")
        if own is not None:
            handed = replace(stay, handed=own.version)
            self._keep(replace(self._own, stays=self._own.stays | {tenant: handed}))
        return Moved(weights=raw, told=told, accuracy=accuracy)

    def take(self, held: Assigned, tenant: str, moved: Moved) -> None:
        """Have the tenant begin with what it answered with elsewhere, unless that came before."""
        if tenant not in self._lacks:
            return
        number, file = held.since.get(self._gpu, {}).get(tenant, 0), ""
        if moved.weights:
            folder = self._folder / WEIGHTS
            folder.mkdir(exist_ok=True)
            file = str(folder / f"{tenant}-{number}.safetensors")
            used = {stay.file for stay in self._own.stays.values()}
            for old in folder.iterdir():
                if str(old) not in used:
                    old.unlink(missing_ok=True)
            write_whole(Path(file), moved.weights)
        stay = _Stay(number=number, file=file, told=moved.told, accuracy=moved.accuracy)
        self._lacks -= {tenant}
        self._keep(replace(self._own, stays=self._own.stays | {tenant: stay}))

    def _words(self, own: LearnedWeights) -> str:
        return f"{own.version} of {self._gpu}"

    def _keep(self, own: _Stays) -> None:
        if own != self._own or not self._is_known:
            write_whole(self._folder / STAYING_FILE, encode(own))
            self._own, self._is_known = own, True


def _with(one: TenantConfig, stay: _Stay) -> TenantConfig:
    update: dict[str, object] = {"weights_from": stay.told or None}
    if stay.file:
        update["weights"] = stay.file
    if stay.file and stay.accuracy is not None:
        after = max(stay.accuracy, one.accuracies[-1].after)
        update["accuracy"] = AccuracyConfig(before=stay.accuracy, after=after)
    return one.model_copy(update=update)
