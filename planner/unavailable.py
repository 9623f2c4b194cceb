"""Memory slices of the GPU that are not ours to plan with, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from executor.mig import memory_slices_in


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Memory slices that others' instances occupy over ``[from_step, to_step)``, so that no plan may touch them.

    Whatever fits the other memory slices also fits the compute slices that are left: so it is on every catalogued GPU.

    Attributes:
        memory_slices: Numbers of the slices, from 0.
        from_step: First step in which they are not ours.
        to_step: First step in which they are ours again; ``None`` for none in this window.
    """

    memory_slices: tuple[int, ...]
    from_step: int = 0
    to_step: int | None = None

    def __str__(self) -> str:
        until = "on" if self.to_step is None else f"to {self.to_step}"
        return f"{slices_text(self.memory_mask)} from step {self.from_step} {until}"

    @property
    def memory_mask(self) -> int:
        """The memory slices, one bit each."""
        return sum(1 << number for number in self.memory_slices)


def slices_text(mask: int) -> str:
    """``memory slices 4, 5`` for a mask of one bit each."""
    numbers = memory_slices_in(mask)
    return f"memory slice{'s' if len(numbers) != 1 else ''} {', '.join(map(str, numbers))}"


def unavailable_within(found: Iterable[Unavailable], step: int, n_steps: int) -> tuple[Unavailable, ...]:
    """What is left of them in ``n_steps`` steps from ``step`` on, counted from there."""
    left = []
    for item in found:
        begin, end = max(0, item.from_step - step), n_steps if item.to_step is None else item.to_step - step
        if begin < min(end, n_steps):
            left.append(replace(item, from_step=begin, to_step=end if end < n_steps else None))
    return tuple(left)


def unavailable_later(found: Iterable[Unavailable], step: int) -> tuple[Unavailable, ...]:
    """The same in steps from ``step`` steps earlier: what :func:`unavailable_within` makes into ``found``."""
    return tuple(
        replace(item, from_step=item.from_step + step, to_step=None if item.to_step is None else item.to_step + step)
        for item in found
    )
