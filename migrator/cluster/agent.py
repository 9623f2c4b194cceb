"""A node's agent: keeps the newest assignment on its disk, and the services of its GPUs as that has them.

Whoever asks it may be an old coordinator, or a new one may be there as well: of two assignments the one with the higher
number counts, whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import MsgspecError
from msgspec.json import encode

from executor.files import read_input, write_whole
from migrator.cluster.assigned import ASSIGNED, Assigned, GpuReport, LastGoodput, NodeReport, Stamp
from migrator.config.sections import Config

ASSIGNED_FILE = "assigned.json"


class KeptService(Protocol):
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
        self._services: dict[str, KeptService] = {}
        self.held: Assigned | None = None
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, MsgspecError):  # the first one, or a damaged disk: a coordinator tells it anew
            self.held = ASSIGNED.decode(read_input(folder / ASSIGNED_FILE))
        self._wanted = {} if self.held is None else self.held.services_of(node)

    def keep(self, offered: Assigned | None, expected: Stamp) -> NodeReport:
        """Take what is offered if its number is above the own; then do the next thing that each GPU needs.

        ``expected`` is the assignment of whoever asks, who hears if another one is in force.
        """
        if offered is not None and (self.held is None or offered.number > self.held.number):
            wanted = offered.services_of(self._node)
            write_whole(self._folder / ASSIGNED_FILE, encode(offered))
            self.held, self._wanted = offered, wanted
        if self.held is None:
            return NodeReport(None, {})
        standing = {path.name for path in self._folder.iterdir() if path.is_dir()}
        reports = {}
        for gpu in sorted(standing | self._wanted.keys()):
            if gpu not in self._services:
                self._services[gpu] = self._service(self._folder / gpu)
            reports[gpu] = self._services[gpu].keep(self._wanted.get(gpu), self.held.number)
        is_other = self.held.stamp != expected and self.held.number >= expected[0]
        return NodeReport(self.held.stamp, reports, self.held if is_other else None)

    def goodput(self) -> dict[str, LastGoodput]:
        """By GPU what its service's last window came to."""
        return {gpu: service.goodput() for gpu, service in self._services.items()}
