"""``sirius`` and ``sgdrc``: serving first on the whole GPU, and a training in what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from planner.policies.turns import GivingWay
from planner.policies.whole import Whole

GIVE_WAY_S = 0.005
"""Sirius, §4.1: how long it takes on average until a training has handed over."""

DISCARD_S = 0.050
"""Of a training's work, what is lost with the micro-batch that runs."""

SLOWDOWN = 1.05
"""SGDRC, Figure 17: latency of serving beside a training over that alone."""


@dataclass(frozen=True)
class Sirius(Whole):
    """Serves first, with all that a batch needs; a training gives way, and has the processors that are left.

    Source: Wang et al., "Sirius" (USENIX ATC '25): serving is never restricted (§3); a training leaves in
    ``GIVE_WAY_S`` (§4.1); the training has all processors but those that the served model needs not to be degraded (§5,
    "Dynamic GPU SM sharing"), found by profiling.
    Knows: as ``whole``.
    Given beyond the paper: batches, their limits and the choice among ways to retrain, as ``whole`` has them; several
    retrainings, the shortest first; floors from our profiles; requests that wait while all of them can; no training
    beside batches that it would slow down by more than it gains.
    Not built: memory that changes hands. All is resident, as the log says, so that nothing is reloaded, and no
    micro-batch has to be discarded to free memory: kind to it. ``sirius-discarding`` loses one at every handover.

    Attributes:
        gives_way: How the training does.
    """

    name: str = "sirius"
    trains_in_slack: bool = False
    shortest_first: bool = True
    gives_way: GivingWay | None = field(default=GivingWay(give_way_s=GIVE_WAY_S, has_interference=True))

    @classmethod
    def discarding(cls) -> Self:
        """The same where each handover costs the micro-batch that runs."""
        way = GivingWay(give_way_s=GIVE_WAY_S, discard_s=DISCARD_S, has_interference=True)
        return cls(name="sirius-discarding", gives_way=way)


@dataclass(frozen=True)
class Sgdrc(Whole):
    """Serves and trains side by side: the training has all but the floor of what is served, the largest of late.

    Source: Zhang et al., "SGDRC" (PPoPP '25): the training has all while nobody is served (§7.2, monopolization), else
    all but the fewest processors with which what is served is as fast as it can be, the most of any in a sliding window
    (§7.1, tidal masking); it is preempted at once (§7.1), and loses nothing. One batch is served at a time (§4).
    Knows: as ``whole``.
    Given beyond the paper: a training where it has best-effort inference; batches, which it leaves out (§9.2), and all
    that ``sirius`` is given. The window is in kernels there, and ``window_s`` here.
    Not built: the driver's part (channel colouring, bimodal tensors). What it gives is taken from the paper: beside a
    training, serving lasts ``SLOWDOWN`` as long, whatever the interference.

    Attributes:
        gives_way: How the training does.
    """

    name: str = "sgdrc"
    trains_in_slack: bool = False
    shortest_first: bool = True
    gives_way: GivingWay | None = field(default=GivingWay(window_s=0.1, slowdown=SLOWDOWN))
