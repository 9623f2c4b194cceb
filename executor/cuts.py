"""What is cut without MIG: a machine's CPU into shares of its cores, a whole GPU by MPS into shares of its SMs.

The profiles ``1c``, ``2c``, … of a CPU sit where an A100's or an A30's ``1g``, ``2g``, … do; MPS's ``1m``, ``2m``, …
sit where the card's own do. So the same layouts, plans and transitions apply. What a CPU does not have (memory slices
that are memory, SMs) is not claimed, nor what MPS does not give (memory and bandwidth of one's own, SMs that no
other process uses).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from executor.errors import InvalidCutError
from executor.mig import GpuModel, Profile

PERIOD_S = 0.01
"""A share's quota is counted anew this often. At 5 ms, a kernel that ticks 250 times a second is 10 % short."""

LEAST_QUOTA_S = 0.001
"""The least quota a period that Linux takes."""

DEFAULT_CARD = "a100-80gb"
"""The card whose geometry those have that MIG cannot cut, or that the catalogue does not know."""

NO_ISOLATION = "MPS, no memory isolation"
"""What is said of MPS's shares wherever they are reported."""

_CHANGE_S = 0.01
"""A share comes or goes within this: a few control-group calls of some 0.1 ms each were measured, and MPS has folders
that are made or removed. Its daemon starts with the first one."""

_CPU_GEOMETRIES = {7: "a100-40gb", 4: "a30-24gb"}
"""The GPU that is cut into as many slices."""

_CPU_NAME = re.compile(r"cpu-(\d+(?:\.\d+)?)-in-(\d+)")

_MPS_NAME = re.compile(r"mps-([a-z0-9]+(?:-[a-z0-9]+)*)-in-(\d+)")

_MPS_NOTES = (
    "a share is a limit of SMs for each process, by MPS's thread percentage: it reserves nothing",
    "no isolation of memory, of bandwidth, or of faults: a process that fails may end those of all shares",
    "memory slices say where an instance may start, and limit what a process in it allocates; no share owns GiB or SMs",
)


@dataclass(frozen=True)
class CpuCut:
    """``cores`` of a machine's CPU in ``slices`` equal slices; the rest of the machine is the controller's.

    Attributes:
        cores: Cores that all instances have together, such as 1.6 of two.
        slices: 7 or 4.

    Raises:
        InvalidCutError: There is no such number of slices, or one slice is less than Linux can give.
    """

    cores: float
    slices: int = 7

    def __post_init__(self) -> None:
        if self.slices not in _CPU_GEOMETRIES:
            allowed = " or ".join(map(str, sorted(_CPU_GEOMETRIES)))
            raise InvalidCutError(f"a CPU cannot be cut into {self.slices} slices; allowed: {allowed}")
        least = self.slices * LEAST_QUOTA_S / PERIOD_S
        if not (math.isfinite(self.cores) and self.cores >= least - 1e-9):
            raise InvalidCutError(
                f"{self.cores:g} cores cannot be cut into {self.slices} slices; allowed: {least:g} or more, "
                f"since a slice gets {LEAST_QUOTA_S * 1000:g} ms each {PERIOD_S * 1000:g} ms at least"
            )

    @property
    def name(self) -> str:
        """Of the model, such as ``cpu-1.6-in-7``; no catalogued GPU is called so."""
        return f"cpu-{self.cores:.10g}-in-{self.slices}"

    @property
    def geometry(self) -> str:
        """The GPU whose geometry it has."""
        return _CPU_GEOMETRIES[self.slices]

    @classmethod
    def named(cls, name: str) -> CpuCut | None:
        """The cut of this name, whatever the case of its letters; ``None`` if the name is not of that form.

        Raises:
            InvalidCutError: It is, but there is no such cut.
        """
        found = _CPU_NAME.fullmatch(name.casefold())
        return None if found is None else cls(float(found[1]), int(found[2]))

    def cores_of(self, profile: Profile) -> float:
        """Cores that an instance of the profile has: CPU seconds a second."""
        return self.cores * profile.compute_slices / self.slices

    def model_on(self, geometry: GpuModel) -> GpuModel:
        """What the CPU can be cut into, as a planner sees it; ``geometry`` is that of the GPU of this name."""
        return GpuModel(
            name=self.name,
            title=f"{self.cores:g} CPU cores (emulated)",
            compute_slices=self.slices,
            memory_slices=geometry.memory_slices,
            profiles=_shares(geometry, "c"),
            notes=(
                f"no GPU: an instance is a share of {self.cores:g} CPU cores, {self.cores / self.slices:.3g} a slice",
                "memory slices say where an instance may start; no memory is set apart, so GiB and SMs are unknown",
            ),
            sources=(
                f"geometry of NVIDIA's {'A100' if self.slices == 7 else 'A30'}",
                "driver times: control-group calls, measured in fractions of a millisecond and rounded up",
            ),
        )


@dataclass(frozen=True)
class MpsCut:
    """A GPU of the kind ``card`` in ``slices`` shares; ``7/7`` is 100 % of its SMs.

    Attributes:
        card: The catalogue's name, such as ``a100-80gb``; else made of the driver's, as ``geforce-rtx-4090``.
        slices: As many as MIG has compute slices on the card; 7 on one that the catalogue does not know.
    """

    card: str
    slices: int = 7

    @property
    def name(self) -> str:
        """Of the model, such as ``mps-a100-80gb-in-7``; no catalogued GPU is called so."""
        return f"mps-{self.card}-in-{self.slices}"

    @property
    def geometry(self) -> str:
        """The GPU whose geometry it has, if the catalogue knows that; else it is that of :data:`DEFAULT_CARD`."""
        return self.card

    @classmethod
    def named(cls, name: str) -> MpsCut | None:
        """The cut of this name, whatever the case of its letters; ``None`` if the name is not of that form."""
        found = _MPS_NAME.fullmatch(name.casefold())
        return None if found is None else cls(found[1], int(found[2]))

    def percentage_of(self, profile: Profile) -> int:
        """Per cent of the card's SMs that a process in an instance of the profile may use, rounded down."""
        return 100 * profile.compute_slices // self.slices

    def model_on(self, geometry: GpuModel) -> GpuModel:
        """What the card can be cut into, as a planner sees it.

        Raises:
            InvalidCutError: MIG has another number of compute slices there.
        """
        if self.slices != geometry.compute_slices:
            allowed = MpsCut(self.card, geometry.compute_slices).name
            raise InvalidCutError(f"{self.card} cannot be cut into {self.slices} shares; allowed: {allowed}")
        is_own = geometry.name == self.card
        unknown = f"the catalogue does not know this card: geometry of an {geometry.title.removeprefix('NVIDIA ')}"
        return GpuModel(
            name=self.name,
            title=f"{geometry.title if is_own else self.card} ({NO_ISOLATION})",
            compute_slices=self.slices,
            memory_slices=geometry.memory_slices,
            profiles=_shares(geometry, "m"),
            notes=_MPS_NOTES if is_own else (*_MPS_NOTES, unknown),
            sources=(
                f"geometry: {geometry.name} in this catalogue",
                "driver times: there is no driver call; folders, rounded up",
            ),
        )


def in_hundredths(model: GpuModel) -> GpuModel:
    """The cut card for measuring: an instance of any hundredths of it, ``30pc``, beside one of the rest, and no other.

    Of a CPU there are none that are less than Linux can give.
    """
    cpu = CpuCut.named(model.name)
    least = 1 if cpu is None else math.ceil(100 * LEAST_QUOTA_S / PERIOD_S / cpu.cores - 1e-9)
    profiles = tuple(
        Profile(
            name=f"{part}pc",
            compute_slices=part,
            memory_slices=1,
            starts=(0, 1),
            gi_profile_id=part,
            max_instances=min(2, 100 // part),
            create_s=_CHANGE_S,
            destroy_s=_CHANGE_S,
        )
        for part in range(least, 101 - least)
    )
    return replace(model, compute_slices=100, memory_slices=2, profiles=profiles)


def _shares(geometry: GpuModel, letter: str) -> tuple[Profile, ...]:
    """A profile for each standard one of the geometry, without what no share owns."""
    return tuple(
        Profile(
            name=f"{profile.compute_slices}{letter}",
            compute_slices=profile.compute_slices,
            memory_slices=profile.memory_slices,
            starts=profile.starts,
            gi_profile_id=profile.gi_profile_id,
            max_instances=profile.max_instances,
            create_s=_CHANGE_S,
            destroy_s=_CHANGE_S,
        )
        for profile in map(geometry.profile, geometry.standard_profile_names)
    )
