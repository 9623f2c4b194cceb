"""Who holds which memory slice, as a strip of coloured characters: one letter a tenant, ``·`` where idle."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from rich.text import Text

from executor.mig import OwnedLayout
from planner.problem import Owner, Task

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
"""By tenant index; a problem has at most as many tenants."""

IDLE = "·"


def tenant_letters(names: Sequence[str]) -> tuple[str, ...]:
    """One capital letter a tenant: the first of its name where those differ, else one after the other from A."""
    firsts = [name[0].upper() for name in names]
    if len(set(firsts)) == len(names) and all(first.isascii() and first.isalpha() for first in firsts):
        return tuple(firsts)
    return tuple(ascii_uppercase[: len(names)])


def layout_strip(layout: OwnedLayout[Owner], names: Sequence[str], memory_slices: int) -> Text:
    """One character a memory slice; capital letters serve, small letters retrain, ``│`` parts instances."""
    letters = tenant_letters(names)
    strip, at = Text(), 0
    for placement, owner in layout.entries:
        strip.append(IDLE * (placement.start - at), style="dim")
        index = names.index(owner.tenant)
        letter = letters[index].lower() if owner.task is Task.RETRAINING else letters[index]
        strip.append("│" + letter * placement.profile.memory_slices, style=COLOURS[index])
        at = placement.end
    strip.append("│" if layout.entries else "", style="dim")
    strip.append(IDLE * (memory_slices - at), style="dim")
    return strip
