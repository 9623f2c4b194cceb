"""The plots of the results page as SVG, from the figures of ``docs/results.json`` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure

from benchmarks.paper.experiments import SECTIONS, Section
from benchmarks.paper.page import results_in
from benchmarks.paper.plot_bars import account, grid
from benchmarks.paper.plot_canvas import drawing, svg_of
from benchmarks.paper.plot_dots import differences, draws, groups
from benchmarks.paper.plot_lines import lines
from benchmarks.paper.plot_list import Kind, Plot, plots_of
from benchmarks.paper.tables import Results

_DRAWN: Mapping[Kind, Callable[[Plot, Section, Results], Figure]] = MappingProxyType(
    {
        Kind.ACCOUNT: account,
        Kind.GRID: grid,
        Kind.LINES: lines,
        Kind.WINDOWS: differences,
        Kind.SEGMENTS: differences,
        Kind.GROUPS: groups,
        Kind.DRAWS: draws,
    }
)


def plots(document: Mapping[str, Any]) -> dict[str, str]:
    """SVG by name of the file, of what was run; the same bytes for the same document."""
    found = figures(document)
    with drawing():
        return {plot.file: svg_of(figure, plot.title) for plot, figure in found.items()}


def figures(document: Mapping[str, Any]) -> dict[Plot, Figure]:
    """The plots that have anything to show, drawn."""
    results = results_in(document)
    with drawing():
        return {
            plot: _DRAWN[plot.kind](plot, section, results)
            for section in SECTIONS
            for plot in plots_of(section, results)
        }
