"""GPUs as drivers describe them, for the stand-in; facts from public sources, never from our own catalogue.

Sources, by figure. Names, ids, placements, memory, SMs and counts: NVIDIA MIG User Guide ("Supported MIG Profiles",
"Getting Started with MIG"), the ``-lgip`` and ``-lgipp`` dumps in NVIDIA/mig-parted#120 (H200), gpu-operator PR#1242
and #1351, bigstack-oss/cubecos#312 (RTX PRO 6000), HAMi#1422 (SMs of an H20). Profile enumerators: ``nvml.h``. Times:
for A100s artecs-group/RL_MIG_scheduler, for the A30 FAR_MIG_scheduler; other cards have the A100's. Spans of Hopper's
compute instances: ``-lci`` dumps.
"""

from __future__ import annotations

from dataclasses import dataclass

ENGINES = (1, 0, 0, 0, 0)
"""Copy engines, decoders, encoders, JPEG engines, OFAs: no test looks at them."""


@dataclass(frozen=True)
class ProfileFacts:
    """One row of ``-lgip`` with its ``-lgipp`` line, its NVML enumerator, and its own compute instance."""

    name: str
    id: int
    enumerator: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    max_instances: int
    memory_gib: float
    sms: int
    ci_profile: int
    ci_span: int
    create_s: float
    destroy_s: float


@dataclass(frozen=True)
class Card:
    """One GPU model as its driver presents it."""

    name: str
    compute_slices: int
    memory_slices: int
    memory_mib: int
    profiles: tuple[ProfileFacts, ...]
    keeps_mig_mode: bool = True
    """Whether MIG mode outlives a reboot: on Ampere, not on Hopper and later."""


_SEVEN = tuple(range(7))


def _a100(names: tuple[str, ...], gib: tuple[float, ...]) -> tuple[ProfileFacts, ...]:
    one, media, double, two, three, four, seven = names
    g1, g2, g4, g7 = gib
    return (
        ProfileFacts(one, 19, 0x0, 1, 1, _SEVEN, 7, g1, 14, 0, 1, 0.16, 0.20),
        ProfileFacts(media, 20, 0x7, 1, 1, _SEVEN, 1, g1, 14, 0, 1, 0.16, 0.20),
        ProfileFacts(double, 15, 0x9, 1, 2, (0, 2, 4, 6), 4, g2, 14, 0, 1, 0.16, 0.20),
        ProfileFacts(two, 14, 0x1, 2, 2, (0, 2, 4), 3, g2, 28, 1, 2, 0.17, 0.20),
        ProfileFacts(three, 9, 0x2, 3, 4, (0, 4), 2, g4, 42, 2, 3, 0.20, 0.21),
        ProfileFacts(four, 5, 0x3, 4, 4, (0,), 1, g4, 56, 3, 4, 0.21, 0.21),
        ProfileFacts(seven, 0, 0x4, 7, 8, (0,), 1, g7, 98, 4, 7, 0.24, 0.22),
    )


def _hopper(names: tuple[str, ...], gib: tuple[float, ...]) -> tuple[ProfileFacts, ...]:
    one, media, double, two, three, four, seven = names
    g1, g2, g4, g7 = gib
    return (
        ProfileFacts(one, 19, 0x0, 1, 1, _SEVEN, 7, g1, 16, 0, 1, 0.16, 0.20),
        ProfileFacts(media, 20, 0x7, 1, 1, _SEVEN, 1, g1, 16, 0, 1, 0.16, 0.20),
        ProfileFacts(double, 15, 0x9, 1, 2, (0, 2, 4, 6), 4, g2, 26, 7, 2, 0.16, 0.20),
        ProfileFacts(two, 14, 0x1, 2, 2, (0, 2, 4), 3, g2, 32, 1, 2, 0.17, 0.20),
        ProfileFacts(three, 9, 0x2, 3, 4, (0, 4), 2, g4, 60, 2, 4, 0.20, 0.21),
        ProfileFacts(four, 5, 0x3, 4, 4, (0,), 1, g4, 64, 3, 4, 0.21, 0.21),
        ProfileFacts(seven, 0, 0x4, 7, 8, (0,), 1, g7, 132, 4, 8, 0.24, 0.22),
    )


A100_40 = Card(
    "NVIDIA A100-SXM4-40GB",
    7,
    8,
    40_960,
    _a100(
        ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
        (4.75, 9.62, 19.50, 39.25),
    ),
)
A100_80 = Card(
    "NVIDIA A100-SXM4-80GB",
    7,
    8,
    81_920,
    _a100(
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
        (9.50, 19.50, 39.25, 79.00),
    ),
)
H100_80 = Card(
    "NVIDIA H100 80GB HBM3",
    7,
    8,
    81_559,
    _hopper(
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
        (9.75, 19.62, 39.50, 79.25),
    ),
    keeps_mig_mode=False,
)
H20 = Card(
    "NVIDIA H20",
    7,
    8,
    143_771,
    (
        ProfileFacts("1g.18gb", 19, 0x0, 1, 1, _SEVEN, 7, 16.00, 8, 0, 1, 0.16, 0.20),
        ProfileFacts("1g.18gb+me", 20, 0x7, 1, 1, _SEVEN, 1, 16.00, 8, 0, 1, 0.16, 0.20),
        ProfileFacts("1g.35gb", 15, 0x9, 1, 2, (0, 2, 4, 6), 4, 32.25, 12, 7, 2, 0.16, 0.20),
        ProfileFacts("2g.35gb", 14, 0x1, 2, 2, (0, 2, 4), 3, 32.25, 16, 1, 2, 0.17, 0.20),
        ProfileFacts("3g.71gb", 9, 0x2, 3, 4, (0, 4), 2, 69.50, 32, 2, 4, 0.20, 0.21),
        ProfileFacts("4g.71gb", 5, 0x3, 4, 4, (0,), 1, 69.50, 32, 3, 4, 0.21, 0.21),
        ProfileFacts("7g.141gb", 0, 0x4, 7, 8, (0,), 1, 139.75, 60, 4, 8, 0.24, 0.22),
    ),
    keeps_mig_mode=False,
)
"""Cut as an H200, with fewer SMs; those of 4g and 7g are inferred from the others."""

A30 = Card(
    "NVIDIA A30",
    4,
    4,
    24_576,
    (
        ProfileFacts("1g.6gb", 14, 0x0, 1, 1, (0, 1, 2, 3), 4, 5.81, 14, 0, 1, 0.13, 0.10),
        ProfileFacts("1g.6gb+me", 21, 0x7, 1, 1, (0, 1, 2, 3), 1, 5.81, 14, 0, 1, 0.13, 0.10),
        ProfileFacts("2g.12gb", 5, 0x1, 2, 2, (0, 2), 2, 11.69, 28, 1, 2, 0.14, 0.10),
        ProfileFacts("2g.12gb+me", 6, 0x8, 2, 2, (0, 2), 1, 11.69, 28, 1, 2, 0.14, 0.10),
        ProfileFacts("4g.24gb", 0, 0x3, 4, 4, (0,), 1, 23.44, 56, 3, 4, 0.16, 0.11),
    ),
)
RTX_PRO_6000 = Card(
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    4,
    12,
    97_887,
    (
        ProfileFacts("1g.24gb", 14, 0x0, 1, 3, (0, 3, 6, 9), 4, 23.62, 46, 0, 1, 0.16, 0.20),
        ProfileFacts("1g.24gb+me", 21, 0x7, 1, 3, (0, 3, 6, 9), 1, 23.62, 46, 0, 1, 0.16, 0.20),
        ProfileFacts("1g.24gb+gfx", 47, 0xA, 1, 3, (0, 3, 6, 9), 4, 23.62, 46, 0, 1, 0.16, 0.20),
        ProfileFacts("1g.24gb+me.all", 65, 0xF, 1, 3, (0, 3, 6, 9), 1, 23.62, 46, 0, 1, 0.16, 0.20),
        ProfileFacts("1g.24gb-me", 67, 0xD, 1, 3, (0, 3, 6, 9), 4, 23.62, 46, 0, 1, 0.16, 0.20),
        ProfileFacts("2g.48gb", 5, 0x1, 2, 6, (0, 6), 2, 47.38, 94, 1, 2, 0.17, 0.20),
        ProfileFacts("4g.96gb", 0, 0x3, 4, 12, (0,), 1, 95.12, 188, 3, 4, 0.21, 0.21),
    ),
    keeps_mig_mode=False,
)
TWO_HALVES = Card(
    "Imaginary two-way GPU",
    2,
    2,
    32_768,
    (
        ProfileFacts("1g.15gb", 27, 0x0, 1, 1, (0, 1), 2, 15.0, 20, 0, 1, 0.15, 0.15),
        ProfileFacts("2g.31gb", 28, 0x1, 2, 2, (0,), 1, 31.0, 40, 1, 2, 0.15, 0.15),
    ),
)
"""No real card: two instances at most, and profiles that no catalogue knows."""

CARDS = (A100_40, A100_80, H100_80, H20, A30, RTX_PRO_6000, TWO_HALVES)
