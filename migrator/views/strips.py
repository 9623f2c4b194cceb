"""Who holds which slice when, as rows of coloured characters over time.

A row is a slice, a column a stretch of time; a character tells what fills most of it: a capital
letter serves, a small one retrains, ``░`` starts up, ``·`` is idle. Every instance begins with its profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from migrator.views.strip import COLOURS, IDLE
from migrator.views.timescale import FloatArray, TimeScale

WARMING = "░"
"""An instance whose worker does not serve, or train, yet."""

_ROUNDING = 1e-9
"""Steps; shares of a column that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One instance over the rows and steps that it takes, both half-open.

    Attributes:
        first_row: Its first row.
        end_row: The row after its last one.
        create_step: Takes its slices from here on.
        serve_step: Serves, or trains, from here on.
        end_step: Gone from here on.
        tenant: Index of its tenant.
        is_retraining: Whether it retrains.
        label: What to write at its beginning, where there is room.
    """

    first_row: int
    end_row: int
    create_step: int
    serve_step: int
    end_step: int
    tenant: int
    is_retraining: bool
    label: str


def gantt(bars: Sequence[Bar], n_rows: int, scale: TimeScale, letters: Sequence[str]) -> tuple[Text, ...]:
    """One line a row, ``scale.width`` characters each; ``letters`` are the tenants'."""
    phases = [phase for bar in bars for phase in _phases(bar, letters, scale)]
    filling = _filling(phases, n_rows, scale)
    chars = np.array([IDLE, *(phase.char for phase in phases)])[filling + 1]
    styles = np.array(["dim", *(phase.style for phase in phases)])[filling + 1]
    for number, phase in enumerate(phases):
        _write_label(chars[phase.bar.first_row], filling[phase.bar.first_row] == number, phase.label)
    return tuple(_line(*row) for row in zip(chars.tolist(), styles.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _Phase:
    """A bar while it warms or serves: how it looks, and how much of each column it fills."""

    bar: Bar
    char: str
    style: str
    label: str
    overlap: FloatArray


def _phases(bar: Bar, letters: Sequence[str], scale: TimeScale) -> tuple[_Phase, _Phase]:
    letter, colour = letters[bar.tenant], COLOURS[bar.tenant]
    own = (letter.lower(), f"bold {colour}") if bar.is_retraining else (letter, f"black on {colour}")
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
