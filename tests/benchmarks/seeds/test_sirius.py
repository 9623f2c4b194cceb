"""Sirius's Figure 10: its order, written down before the first run, and Algorithm 1 on small cases."""

from __future__ import annotations

from collections.abc import Sequence

SYSTEMS = ("sirius", "task switching", "static 50 %", "static 75 %", "unified memory")

WORKLOADS = ("LIGHT", "HEAVY", "BURST", "SKEWED")
"""In each of which both orders hold."""

SLO_ORDER: Sequence[tuple[str, str]] = (
    ("sirius", "task switching"),
    ("sirius", "static 50 %"),
    ("sirius", "static 75 %"),
    ("sirius", "unified memory"),
    ("static 75 %", "static 50 %"),
    ("static 75 %", "unified memory"),
)
"""Pairs of which the first keeps the SLO of more requests: §6.1 (8.2 points over static 75 %, 54.6 over static 50 %,
72.6 over task switching, 92.6 over unified memory, on average)."""

TRAINING_ORDER: Sequence[tuple[str, str]] = (
    ("sirius", "task switching"),
    ("sirius", "static 75 %"),
    ("sirius", "unified memory"),
    ("static 50 %", "static 75 %"),
)
"""Pairs of which the first trains more samples a second: §6.1 (4.6 × task switching, 3.0 × static 75 % under LIGHT,
2.2 × unified memory; static 50 % "has higher training throughput")."""


def test_every_pair_names_two_systems() -> None:
    assert {name for pair in (*SLO_ORDER, *TRAINING_ORDER) for name in pair} == set(SYSTEMS)
