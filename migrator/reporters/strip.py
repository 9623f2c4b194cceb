"""Who holds which memory slice, as a strip of coloured characters: the first letters of tenants, ``·`` where idle."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from executor.mig import OwnedLayout
from planner.problem import Owner, Task

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
"""By tenant index; a problem has at most as many tenants."""

IDLE = "·"


def tenant_letters(names: Sequence[str]) -> tuple[str, ...]:
    """One letter a tenant: its first letter or digit that no other tenant has, else its number."""
    taken: list[str] = []
    for number, name in enumerate(names, start=1):
        own = (char for char in name.upper() if char.isalnum() and char not in taken)
        taken.append(next(own, str(number)))
    return tuple(taken)


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
