"""A node's agent: keeps the newest assignment on its disk, and the services of its GPUs as that has them.

Whoever asks it may be an old coordinator, or a new one may be there as well: of two assignments the one with the higher
number counts, whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from msgspec import MsgspecError
from msgspec.json import encode

from executor.files import read_input, write_whole
from migrator.cluster.assigned import ASSIGNED, Assigned, GpuReport, LastGoodput, Moved, NodeReport, Stamp
from migrator.cluster.staying import LearningService, Staying
from migrator.config.sections import Config

ASSIGNED_FILE = "assigned.json"


class KeptService(LearningService, Protocol):
    """One GPU's service."""

    def keep(self, config: Config | None, number: int) -> GpuReport:
        """Do the next thing towards this config, which has the number; ``None``: nothing is served."""

    def goodput(self) -> LastGoodput:
        """What its log says of the last window."""


class Agent:
    """The agent of a node; its folder there outlives it.

    Attributes:
        held: The newest assignment that it was offered.
    """

    def __init__(self, node: str, folder: Path, service: Callable[[Path], KeptService]) -> None:
        """``service`` begins or adopts what is in the folder of a GPU."""
        self._node, self._folder, self._service = node, folder, service
        self._services: dict[str, tuple[KeptService, Staying]] = {}
        self.held: Assigned | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, MsgspecError):  # the first one, or a damaged disk: a coordinator tells it anew
            self.held = ASSIGNED.decode(read_input(folder / ASSIGNED_FILE))

    def keep(self, offered: Assigned | None, expected: Stamp) -> NodeReport:
        """Take what is offered if its number is above the own; then do the next thing that each GPU needs.

        ``expected`` is the assignment of whoever asks, who hears if another one is in force.
        """
        if offered is not None and (self.held is None or offered.number > self.held.number):
            offered.gpus_of(self._node)  # raises where this node cannot read it
            write_whole(self._folder / ASSIGNED_FILE, encode(offered))
            self.held = offered
        if self.held is None:
            return NodeReport(None, {})
        held = self.held
        standing = {path.name for path in self._folder.iterdir() if path.is_dir()}
        reports = {gpu: self._kept(gpu, held) for gpu in sorted({*standing, *held.gpus_of(self._node)})}
        is_other = held.stamp != expected and held.number >= expected[0]
        return NodeReport(held.stamp, reports, held if is_other else None)

    def _kept(self, gpu: str, held: Assigned) -> GpuReport:
        if gpu not in self._services:
            self._services[gpu] = self._service(self._folder / gpu), Staying(gpu, self._node, self._folder / gpu)
        service, staying = self._services[gpu]
        staying.follow(held, service)
        served = staying.served(held.tenants_of(gpu))
        report = service.keep(held.config_of(gpu, served) if served else None, held.number)
        lacks = staying.lacks
        said = f"weights of {', '.join(sorted(lacks))} have not come yet" if lacks else ""
        return replace(
            report,
            ready=report.ready.intersection(one.name for one in served),
            said="; ".join(filter(None, (report.said, said))),
            lacks=lacks,
            weights=staying.told,
            dropped=staying.dropped,
        )

    def hand(self, gpu: str, tenant: str) -> Moved | None:
        """What the tenant answers with on the GPU, for where it goes; ``None``: it is not there."""
        if gpu not in self._services:
            return None
        service, staying = self._services[gpu]
        return staying.hand(tenant, service)

    def take(self, stamp: Stamp, gpu: str, tenant: str, moved: Moved | None) -> None:
        """What the tenant answered with elsewhere, under the assignment of this stamp, for its begin on the GPU."""
        if moved is not None and self.held is not None and self.held.stamp == stamp and gpu in self._services:
            self._services[gpu][1].take(self.held, tenant, moved)

    def goodput(self) -> dict[str, LastGoodput]:
        """By GPU what its service's last window came to."""
        return {gpu: service.goodput() for gpu, (service, _) in self._services.items()}
