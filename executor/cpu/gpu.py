"""A machine's CPU as a ``Gpu``: its instances are real shares of CPU time, so that all else is as on a real GPU.

A process enters an instance when it is warm, so that loading is not slowed down, and may move to another one::

    with CpuGpu(Cut(cores=1.6, slices=7), state) as gpu, Zygote(["torch"]) as zygote:
        instance = gpu.create(gpu.model.placement("2c@0"))
        worker = zygote.start("my_module:serve", {"model": "mlp"}, log=state / "serve.log")
        events = (event for some in iter(lambda: zygote.events(60.0), ()) for event in some)
        next(event for event in events if isinstance(event, Reached))  # serve calls reporter.reached("ready")
        gpu.enter(instance.uuid, zygote.workers[worker])  # from here on it has 0.46 of a core

The period of 10 ms: with 5 ms control groups fell 10 % short of the shares (0.205, 0.41 and 0.81 of a core, where
0.229, 0.457 and 0.914 were due).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from executor.catalogue import gpu_model
from executor.cpu.duty import duty_shares
from executor.cpu.shares import NoSharesError, Shares, cgroup_shares
from executor.cuts import CpuCut, in_hundredths
from executor.errors import GpuError, NoGpuError
from executor.folders import FolderGpu
from executor.gpu import GpuInstance
from executor.mig import Placement
from executor.processes import boot_id

Ways = dict[str, Callable[[str], Shares]]


def ways(state: Path) -> Ways:
    """How shares could be had, the best first; each is tried with the name of the shares' folder."""
    return {
        "control groups v2": lambda name: cgroup_shares(2, name),
        "control groups v1": lambda name: cgroup_shares(1, name),
        "duty cycle": lambda name: duty_shares(state, name),
    }


def find_shares(found: Ways, name: str) -> tuple[Shares, tuple[str, ...]]:
    """The shares called ``name`` in the first way that works here, and why the ways before it do not.

    Raises:
        NoGpuError: None does.
    """
    reasons: list[str] = []
    for way, attempt in found.items():
        try:
            return attempt(name), tuple(reasons)
        except NoSharesError as error:
            reasons.append(f"no {way}: {error}")
    raise NoGpuError(f"no shares of this machine's CPU can be had: {'; '.join(reasons)}")


def standing_cuts(state: Path, found: Ways | None = None) -> tuple[CpuCut, ...]:
    """The cuts of which something stands for this state folder, by name: those of a controller that was killed, too.

    Raises:
        NoGpuError: No shares can be had here.
    """
    prefix = f"{_own_name(state)}-"
    shares, _ = find_shares(found or ways(state), prefix.removesuffix("-"))
    names = shares.files.folders(shares.folder.parent)
    cuts = (CpuCut.named(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
    return tuple(cut for cut in cuts if cut is not None)


class CpuGpu(FolderGpu):
    """A machine's CPU, cut; ``backend`` says so wherever it is reported. For one thread.

    Two of different state folders do not meet. Those of one state folder and another cut do not, either:
    :func:`standing_cuts` tells of them.

    Attributes:
        uuid: Of this cut of the CPU, for this state folder; not of the machine.
        turns_by: The kernel schedules them as all others.
        cut: How the CPU is cut.
        shares: Where the shares are.
        why_not: Why better ways to have shares do not work here.
    """

    backend = "cpu"
    is_entered_warm = True
    turns_by = "the kernel's scheduler"
    kept_as = "shares of the CPU"
    uuid_prefix = "MIG-CPU-"

    def __init__(self, cut: CpuCut, state: Path, found: Ways | None = None, *, in_parts: bool = False) -> None:
        """The CPU, cut; nothing is changed.

        ``in_parts`` it has instances of hundredths, which are apart from the cut's own.

        Raises:
            NoGpuError: The machine has fewer cores, or no shares can be had here.
        """
        super().__init__(0)
        n_cores = len(os.sched_getaffinity(0))
        if cut.cores > n_cores:
            raise NoGpuError(f"{cut.cores:g} cores are asked for; this machine lets us use {n_cores}")
        self.cut = cut
        name, self.model = f"{_own_name(state)}-{cut.name}", gpu_model(cut.name)
        if in_parts:
            name, self.model = f"{name}-parts", in_hundredths(self.model)
        self.uuid = f"CPU-{name.removeprefix('migrator-')}"
        self.shares, self.why_not = find_shares(found or ways(state), name)
        self.folder, self.files = self.shares.folder, self.shares.files

    @property
    def boot(self) -> str | None:
        """The machine's where the shares are control groups, which are the kernel's alone."""
        return super().boot if self.shares.is_coarse else boot_id()

    @property
    def label(self) -> str:
        """What this is, in a few words, for reports."""
        coarse = ", coarse" if self.shares.is_coarse else ""
        return f"emulated{coarse}: {self.cut.cores:g} CPU cores in {self.cut.slices} slices by {self.shares.way}"

    def environment(self, gi_uuid: str) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing: see :meth:`enter`, by which a process and what it forks also come from one instance to another."""
        return {}

    def close(self) -> None:
        """End what keeps to the limits for us, if anything does; shares stay, but no folder without any."""
        self.shares.close()
        with suppress(GpuError):
            if not self.instances():
                self.shares.forget()

    def _prepare(self) -> None:
        self.shares.prepare()

    def _limit(self, name: str, placement: Placement) -> None:
        profile = placement.profile
        cores = self.cut.cores * profile.compute_slices / self.model.compute_slices
        self.shares.limit(name, cores, profile.compute_slices)

    def _let_in(self, item: GpuInstance, pid: int) -> None:
        self.shares.enter(self._folder(item) / item.uuid, pid)

    def _remove(self, folder: Path) -> None:
        self.shares.remove(folder)

    def _destroy(self, gi_id: int) -> None:
        super()._destroy(gi_id)
        if not self.instances():
            self.shares.forget()

    def _pids(self, item: GpuInstance) -> tuple[int, ...]:
        """Processes in the instance, also those that were put past its compute instance."""
        folder = self._folder(item)
        inner = (pid for name in self._inner(folder.name) for pid in self.shares.pids(folder / name))
        return tuple(sorted({*self.shares.pids(folder), *inner}))


def _own_name(state: Path) -> str:
    """What begins the name of all shares of a state folder: the same for every process of this machine."""
    return f"migrator-{hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:12]}"
