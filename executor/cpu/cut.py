"""How a machine's CPU is cut: so many cores in so many slices, with the geometry of a GPU that has as many.

The profiles ``1c``, ``2c``, ``3c``, ``4c`` and ``7c`` sit where an A100's ``1g`` to ``7g`` do, so that the same
layouts, plans and transitions apply. What is not a CPU's (memory slices that are memory, SMs) is not claimed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

from executor.errors import InvalidCutError
from executor.mig import GpuModel, Profile

PERIOD_S = 0.01
"""A share's quota is counted anew this often. At 5 ms, a kernel that ticks 250 times a second gives 10 % too little."""

LEAST_QUOTA_S = 0.001
"""The least quota a period that Linux takes."""

_CHANGE_S = 0.01
"""A share comes or goes within this: measured, a few control-group calls of some 0.1 ms each."""

_ROWS = {
    # compute slices: memory slices, starts, ID; the ids are those of the GPU whose geometry it is.
    7: (
        8,
        {
            1: (1, (0, 1, 2, 3, 4, 5, 6), 19),
            2: (2, (0, 2, 4), 14),
            3: (4, (0, 4), 9),
            4: (4, (0,), 5),
            7: (8, (0,), 0),
        },
    ),
    4: (4, {1: (1, (0, 1, 2, 3), 14), 2: (2, (0, 2), 5), 4: (4, (0,), 0)}),
}
"""Geometries by number of slices: the A100's and the A30's."""

_NAME = re.compile(r"cpu-(\d+(?:\.\d+)?)-in-(\d+)")


@dataclass(frozen=True)
class Cut:
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
        if self.slices not in _ROWS:
            allowed = " or ".join(map(str, sorted(_ROWS)))
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

    @classmethod
    def named(cls, name: str) -> Cut | None:
        """The cut of this name, whatever the case of its letters; ``None`` if the name is not of that form.

        Raises:
            InvalidCutError: It is, but there is no such cut.
        """
        found = _NAME.fullmatch(name.casefold())
        return None if found is None else cls(float(found[1]), int(found[2]))

    def cores_of(self, profile: Profile) -> float:
        """Cores that an instance of the profile has: CPU seconds a second."""
        return self.cores * profile.compute_slices / self.slices

    @cached_property
    def model(self) -> GpuModel:
        """What the CPU can be cut into, as a planner sees it."""
        memory_slices, rows = _ROWS[self.slices]
        return GpuModel(
            name=self.name,
            title=f"{self.cores:g} CPU cores (emulated)",
            compute_slices=self.slices,
            memory_slices=memory_slices,
            profiles=tuple(
                Profile(
                    name=f"{compute}c",
                    compute_slices=compute,
                    memory_slices=memory,
                    starts=starts,
                    gi_profile_id=gi_profile_id,
                    max_instances=len(starts),
                    create_s=_CHANGE_S,
                    destroy_s=_CHANGE_S,
                )
                for compute, (memory, starts, gi_profile_id) in rows.items()
            ),
            notes=(
                f"no GPU: an instance is a share of {self.cores:g} CPU cores, {self.cores / self.slices:.3g} a slice",
                "memory slices say where an instance may start; no memory is set apart, so GiB and SMs are unknown",
            ),
            sources=(
                f"geometry of NVIDIA's {'A100' if self.slices == 7 else 'A30'}",
                "driver times: control-group calls, measured in fractions of a millisecond and rounded up",
            ),
        )
