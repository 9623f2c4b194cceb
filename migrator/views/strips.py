"""What a terminal shows as strips of characters: a layout, slices over time, numbers over time.

Tenants have a letter and a colour each: a capital letter serves, a small one retrains, ``·`` is idle, ``×`` is not
ours. A pool's instance has its members' letters in turn, in the colour of the first; in a layout, ``+`` where it has
fewer slices than members. Over time a
column stands for a stretch of steps (:class:`TimeScale`), and its character tells what fills most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from string import ascii_uppercase
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from executor.mig import OwnedLayout
from migrator.views.palette import TENANTS
from planner.arrays import Floats
from planner.problem import Owner, Task

_LETTERS = ascii_uppercase + "ΓΔΘΛΞΠΣΦΨΩ"

COLOURS = TENANTS * 9
"""By tenant index: again from the first where there are more tenants."""

IDLE = "·"

SHARED = "+"
"""A pool's instance that is too small for its members' letters."""

NOT_OURS = "×"
"""A memory slice that others' instances occupy."""

WARMING = "░"
"""An instance whose worker does not serve, or train, yet."""

LENT = "╱"
"""Hatches an instance that is lent to a retraining, between the letters of its tenant."""

BLOCKS = " ▁▂▃▄▅▆▇█"
"""The levels of a sparkline; the first, a blank, is for 0 alone."""

GUTTER = 11
"""Columns before every line over time."""

_TICK_COLUMNS = 8
"""Columns between two numbers of an axis, at least."""

_MOST_COLUMNS = 8
"""Columns of one step, at most, so that three steps do not fill a whole line."""

_ROUNDING = 1e-9
"""Steps; shares of a column that differ by less are equal."""


def tenant_letters(names: Sequence[str]) -> tuple[str, ...]:
    """One capital letter a tenant: the first of its name where those differ, else one after the other from A.

    Of very many tenants some have the same.
    """
    firsts = [name[0].upper() for name in names]
    if len(set(firsts)) == len(names) and all(first.isascii() and first.isalpha() for first in firsts):
        return tuple(firsts)
    return tuple(_LETTERS[number % len(_LETTERS)] for number in range(len(names)))


def layout_strip(layout: OwnedLayout[Owner], names: Sequence[str], memory_slices: int, unavailable: int = 0) -> Text:
    """One character a memory slice; capital letters serve, small letters retrain, ``│`` parts instances.

    ``unavailable`` are the slices that are not ours, one bit each.
    """
    letters = tenant_letters(names)
    empty = "".join(NOT_OURS if unavailable >> number & 1 else IDLE for number in range(memory_slices))
    strip, at = Text(), 0
    for placement, owner in layout.entries:
        strip.append(empty[at : placement.start], style="dim")
        index, n_slices = names.index(owner.tenant), placement.profile.memory_slices
        own = "".join(letters[names.index(name)] for name in owner.members)
        own = own.lower() if owner.task is Task.RETRAINING else own
        own = SHARED if len(own) > n_slices else own
        strip.append("│" + (own * n_slices)[:n_slices], style=COLOURS[index])
        at = placement.end
    strip.append("│" if layout.entries else "", style="dim")
    strip.append(empty[at:], style="dim")
    return strip


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The steps of a window on the columns of a terminal: several steps a column, or several columns a step.

    Attributes:
        n_steps: Steps of the window.
        width: Columns.
    """

    n_steps: int
    width: int

    @classmethod
    def within(cls, n_steps: int, n_columns: int) -> TimeScale:
        """The scale that fills at most ``n_columns``; short windows get whole columns for every step."""
        columns = max(1, n_columns)
        return cls(n_steps, columns if n_steps >= columns else n_steps * min(_MOST_COLUMNS, columns // n_steps))

    @property
    def edges(self) -> Floats:
        """Where columns begin and end, in steps, ``(width + 1,)``."""
        return np.linspace(0.0, self.n_steps, self.width + 1)

    def overlaps(self, from_step: int, to_step: int) -> Floats:
        """The part of each column that lies within ``[from_step, to_step)``, in steps, ``(width,)``."""
        edges = self.edges
        shared = np.minimum(edges[1:], to_step) - np.maximum(edges[:-1], from_step)
        return np.asarray(np.maximum(0.0, shared), dtype=np.float64)

    def means(self, values: Floats) -> Floats:
        """The mean over each column of values by step: ``(n_steps,) → (width,)``."""
        sums = np.concatenate([[0.0], np.cumsum(values)])
        at_edges = np.interp(self.edges, np.arange(self.n_steps + 1), sums)
        return np.asarray(np.diff(at_edges) * self.width / self.n_steps, dtype=np.float64)

    def axis(self) -> str:
        """Step numbers, each where its step begins, and the window's end if there is room for it."""
        line = ""
        for step in range(0, self.n_steps, self._tick()):
            column = round(step / self.n_steps * self.width)
            line = line.ljust(column) + f"{step:,}"
        end = f"{self.n_steps:,}"
        return line.ljust(self.width - len(end)) + end if len(line) < self.width - len(end) else line

    def _tick(self) -> int:
        """Steps between two numbers: the least 1, 2 or 5 times a power of ten that does not crowd them."""
        least = max(_TICK_COLUMNS, len(f"{self.n_steps:,}") + 3)
        for power, digit in product(range(len(str(self.n_steps)) + 1), (1, 2, 5)):
            step: int = digit * 10**power
            if step / self.n_steps * self.width >= least:
                return step
        return self.n_steps


def sparkline(values: Floats, top: float) -> str:
    """One block a value, 0 to ``top``; every value above 0 is visible."""
    n_levels = len(BLOCKS) - 1
    levels = [0 if value <= 0 or top <= 0 else max(1, min(n_levels, round(value / top * n_levels))) for value in values]
    return "".join(BLOCKS[level] for level in levels)


@dataclass(frozen=True, slots=True)
class Bar:
    """One instance over the rows and steps that it takes, both half-open.

    Attributes:
        first_row: Its first row.
        end_row: The row after its last one.
        create_step: Takes its slices from here on.
        serve_step: Serves, or trains, from here on.
        end_step: Gone from here on.
        tenant: Index of its tenant; ``None`` for an instance that is not ours.
        is_retraining: Whether it retrains.
        label: What to write at its beginning, where there is room.
        others: Indices of the further members of a pool.
        is_lent: Whether it is lent to its retraining.
    """

    first_row: int
    end_row: int
    create_step: int
    serve_step: int
    end_step: int
    tenant: int | None
    is_retraining: bool
    label: str
    others: tuple[int, ...] = ()
    is_lent: bool = False


def gantt(bars: Sequence[Bar], n_rows: int, scale: TimeScale, letters: Sequence[str]) -> tuple[Text, ...]:
    """One line a row, ``scale.width`` characters each; ``letters`` are the tenants'."""
    phases = [phase for bar in bars for phase in _phases(bar, letters, scale)]
    filling = _filling(phases, n_rows, scale)
    chars = np.array([IDLE, *(phase.chars[0] for phase in phases)])[filling + 1]
    styles = np.array(["dim", *(phase.style for phase in phases)])[filling + 1]
    for number, phase in enumerate(phases):
        for row, column in zip(*np.nonzero(filling == number), strict=True) if len(phase.chars) > 1 else ():
            chars[row, column] = phase.chars[column % len(phase.chars)]
        _write_label(chars[phase.bar.first_row], filling[phase.bar.first_row] == number, phase.label)
    return tuple(_line(*row) for row in zip(chars.tolist(), styles.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _Phase:
    """A bar while it warms or serves: how it looks, and how much of each column it fills."""

    bar: Bar
    chars: str
    style: str
    label: str
    overlap: Floats


def _phases(bar: Bar, letters: Sequence[str], scale: TimeScale) -> tuple[_Phase, ...]:
    if bar.tenant is None:
        return (_Phase(bar, NOT_OURS, "dim", "", scale.overlaps(bar.create_step, bar.end_step)),)
    letter, colour = letters[bar.tenant], COLOURS[bar.tenant]
    shared = "".join(letters[m] for m in (bar.tenant, *bar.others))
    learns = letter.lower() + (LENT if bar.is_lent else "")
    own = (learns, f"bold {colour}") if bar.is_retraining else (shared, f"black on {colour}")
    ready = min(max(bar.serve_step, bar.create_step), bar.end_step)
    return (
        _Phase(bar, WARMING, colour, "", scale.overlaps(bar.create_step, ready)),
        _Phase(bar, *own, bar.label, scale.overlaps(ready, bar.end_step)),
    )


def _filling(phases: Sequence[_Phase], n_rows: int, scale: TimeScale) -> NDArray[np.int64]:
    """The phase that fills most of each row and column, −1 where nothing does, ``(n_rows, width)``."""
    most = np.tile(np.diff(scale.edges), (n_rows, 1))
    for phase in phases:
        most[phase.bar.first_row : phase.bar.end_row] -= phase.overlap
    filling = np.full(most.shape, -1, dtype=np.int64)
    for number, phase in enumerate(phases):
        rows = slice(phase.bar.first_row, phase.bar.end_row)
        wins = phase.overlap > most[rows] + _ROUNDING
        filling[rows][wins] = number
        most[rows] = np.maximum(most[rows], phase.overlap)
    return filling


def _write_label(chars: NDArray[np.str_], is_own: NDArray[np.bool_], label: str) -> None:
    """Write the label over the first run of the phase's characters, if some of them stay."""
    own = np.flatnonzero(is_own)
    if label and len(own) > len(label) and own[len(label)] - own[0] == len(label):
        chars[own[0] : own[0] + len(label)] = list(label)


def _line(chars: Sequence[str], styles: Sequence[str]) -> Text:
    line = Text(no_wrap=True)
    for style, run in groupby(zip(chars, styles, strict=True), key=lambda cell: cell[1]):
        line.append("".join(char for char, _ in run), style=style)
    return line


def print_chart(
    console: Console,
    lines: Sequence[Text],
    row_names: Sequence[str],
    scale: TimeScale,
    unit: Literal["step", "second"],
    more: str = "",
) -> None:
    """Print the lines of :func:`gantt` with their names, an axis and what the characters mean, ``more`` included."""
    for name, line in zip(row_names, lines, strict=True):
        print_line(console, name, line)
    print_line(console, unit, Text(scale.axis(), style="dim"))
    per_column = scale.n_steps / scale.width
    column = f"; 1 column = {per_column:.3g} {unit}s" if per_column > 1 else ""
    lent = f", {LENT} lent" if any(LENT in line.plain for line in lines) else ""
    console.print(
        f"  capital: serves, small: retrains, {WARMING} starts up, {IDLE} idle{lent}{more}{column}", style="dim"
    )


def print_line(console: Console, name: str, line: Text, *, no_wrap: bool = True) -> None:
    """Print one line over time behind its name; cut at the console's width, or wrapped."""
    console.print(
        Text(f"{name:>{GUTTER - 1}} ").append_text(line), no_wrap=no_wrap, overflow="crop" if no_wrap else None
    )
