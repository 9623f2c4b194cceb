"""``sirius`` and ``sgdrc``: serving first on the whole GPU, and a training in what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from planner.policies.turns import GivingWay, MemoryRule
from planner.policies.whole import Whole

GIVE_WAY_S = 0.005
"""Sirius, §4.1: how long it takes on average until a training has handed over."""

DISCARD_S = 0.050
"""Of a training's work, what is lost with the micro-batch that runs."""

WATERMARK_MIB = 1e9 / 2**20
"""W, what serving keeps of memory for models that come back: 1 GB (§6.1)."""

IDLE_S = 5.0
"""T_idle, after which a model that nobody asked for may go (§6.1)."""

LOAD_MIB_S = 317e6 / 26.6e-3 / 2**20
"""How fast a model comes by PCIe: 317 MB in 26.6 ms (Figure 1(b))."""

SLOWDOWN = 1.05
"""SGDRC, Figure 17: latency of serving beside a training over that alone."""

MEMORY = MemoryRule(WATERMARK_MIB, IDLE_S, LOAD_MIB_S, DISCARD_S)

_HANDS_OVER = GivingWay(give_way_s=GIVE_WAY_S, has_interference=True, memory=MEMORY)


@dataclass(frozen=True)
class Sirius(Whole):
    """Serves first, with all that a batch needs; a training yields, and has the processors that are left.

    Source: Wang et al., "Sirius" (USENIX ATC '25): serving is never restricted (§3); a training leaves in
    ``GIVE_WAY_S`` (§4.1); the training has all processors but those that the served model needs not to be degraded (§5,
    "Dynamic GPU SM sharing"), found by profiling.
    Knows: as ``whole``.
    Given beyond the paper: batches, their limits and the choice among ways to retrain, as ``whole`` has them; several
    retrainings, the shortest first; floors from our profiles; requests that wait while all of them can; no training
    beside batches that it would slow down by more than it gains.
    Memory, where the profiles have the weights of all models: it changes hands by Algorithm 1, as models are
    indivisible. A cold start comes before its batch, which the paper overlaps with it. Where memory is taken, the
    micro-batch that runs is lost. Else all is resident, which the log says.
    Not built: batches of the training that grow and shrink with its memory: it is as fast with less, and needs none of
    it. ``sirius-discarding`` loses a micro-batch at every handover.

    Attributes:
        gives_way: How the training does.
    """

    name: str = "sirius"
    trains_in_slack: bool = False
    shortest_first: bool = True
    gives_way: GivingWay | None = field(default=_HANDS_OVER)

    @classmethod
    def discarding(cls) -> Self:
        """The same where each handover costs the micro-batch that runs."""
        return cls(name="sirius-discarding", gives_way=replace(_HANDS_OVER, discard_s=DISCARD_S))


@dataclass(frozen=True)
class Sgdrc(Whole):
    """Serves and trains side by side: the training has all but the floor of what is served, the largest of late.

    Source: Zhang et al., "SGDRC" (PPoPP '25): the training has all while nobody is served (§7.2, monopolization), else
    all but the fewest processors with which what is served is as fast as it can be, the most of any in a sliding window
    (§7.1, tidal masking); it is preempted at once (§7.1), and loses nothing. One batch is served at a time (§4).
    Knows: as ``whole``.
    Given beyond the paper: a training where it has best-effort inference; batches, which it leaves out (§9.2), and all
    that ``sirius`` is given. The window is in kernels there, and ``window_s`` here.
    Not built: the driver's part (channel colouring, bimodal tensors). Its gain is the paper's: beside a
    training, serving lasts ``SLOWDOWN`` as long, whatever the interference.

    Attributes:
        gives_way: How the training does.
    """

    name: str = "sgdrc"
    trains_in_slack: bool = False
    shortest_first: bool = True
    gives_way: GivingWay | None = field(default=GivingWay(window_s=0.1, slowdown=SLOWDOWN))
