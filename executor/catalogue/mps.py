"""How a whole GPU is cut by MPS: shares of its SMs with the geometry that MIG has on the card.

The profiles ``1m``, ``2m``, … sit where the card's standard MIG profiles do, so that the same layouts, plans and
transitions apply. What MPS does not give (memory and bandwidth of one's own, SMs that nobody else uses) is not claimed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from executor.errors import InvalidCutError
from executor.mig import GpuModel, Profile

GEOMETRY = "a100-80gb"
"""The card whose geometry those have that MIG cannot cut, or that the catalogue does not know."""

NO_ISOLATION = "MPS, no memory isolation"
"""What is said of such shares wherever they are reported."""

_CHANGE_S = 0.01
"""A share comes or goes within this: nothing but folders is made or removed. The daemon starts with the first one."""

_NOTES = (
    "a share is a limit of SMs for each process, by MPS's thread percentage: it reserves nothing",
    "no isolation of memory, of bandwidth, or of faults: a process that fails may end those of all shares",
    "memory slices say where an instance may start, and limit what a process in it allocates; GiB and SMs are nobody's",
)

_NAME = re.compile(r"mps-([a-z0-9]+(?:-[a-z0-9]+)*)-in-(\d+)")


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

    @classmethod
    def named(cls, name: str) -> MpsCut | None:
        """The cut of this name, whatever the case of its letters; ``None`` if the name is not of that form."""
        found = _NAME.fullmatch(name.casefold())
        return None if found is None else cls(found[1], int(found[2]))

    def percentage_of(self, profile: Profile) -> int:
        """Per cent of the card's SMs that a process in an instance of the profile may use, rounded down."""
        return 100 * profile.compute_slices // self.slices

    def model_on(self, geometry: GpuModel) -> GpuModel:
        """What the card can be cut into, as a planner sees it; ``geometry`` is the card's own, or :data:`GEOMETRY`'s.

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
            profiles=tuple(
                Profile(
                    name=f"{profile.compute_slices}m",
                    compute_slices=profile.compute_slices,
                    memory_slices=profile.memory_slices,
                    starts=profile.starts,
                    gi_profile_id=profile.gi_profile_id,
                    max_instances=profile.max_instances,
                    create_s=_CHANGE_S,
                    destroy_s=_CHANGE_S,
                )
                for profile in map(geometry.profile, geometry.standard_profile_names)
            ),
            notes=_NOTES if is_own else (*_NOTES, unknown),
            sources=(
                f"geometry: {geometry.name} in this catalogue",
                "driver times: there is no driver call; folders, rounded up",
            ),
        )
