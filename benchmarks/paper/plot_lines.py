"""Plots of goodput over what a section varies, a line a policy, each line with its name at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

from benchmarks.paper.experiments import MAIN, Section, View
from benchmarks.paper.plot_canvas import INK, POINTS_PER_IN, canvas, spread, style_of
from benchmarks.paper.plot_list import Plot, run_of
from benchmarks.paper.statistics import mean_of_workloads, of_policy, policies_of, tie
from benchmarks.paper.tables import OURS, Results

_HEIGHT_IN = 4.2

_LABEL_POINTS = 12.0
"""Between names, one below the other."""

_LEAST_APART_IN = 0.32
"""Between ticks, so that their numbers do not touch."""


@dataclass(frozen=True)
class _Line:
    """A policy's means of workloads.

    Attributes:
        policy: Whose.
        places: On the axis.
        means: Goodput %.
        has_all: Whether each is of all workloads of the experiment.
    """

    policy: str
    places: Sequence[float]
    means: Sequence[float]
    has_all: Sequence[bool]


def lines(plot: Plot, section: Section, results: Results) -> Figure:
    """Goodput %, mean of workloads, over the places of the experiments; hollow where a workload has no numbers.

    Where the section is about ties, the reference without what is varied is a level line, and a policy's tie is told.
    """
    varied = _lines(section, results)
    found = list(varied)
    level = of_policy(results.get(MAIN.name, ()), OURS) if section.view is View.TIES else []
    places = sorted({place for line in found for place in line.places})
    if level:
        mean = mean_of_workloads(level)
        found.append(_Line(OURS, (places[0], places[-1]), (mean, mean), ()))
    figure, axes = canvas(plot.title, _HEIGHT_IN, left_in=0.75, right_in=1.65)
    for line in found:
        style = style_of(line.policy)
        axes.plot(line.places, line.means, color=style.colour, linestyle=style.line, linewidth=1.6)
        for place, mean_pct, has_all in zip(line.places, line.means, line.has_all, strict=False):
            fill = style.colour if has_all else "white"
            axes.plot(place, mean_pct, style.marker, color=style.colour, markerfacecolor=fill)
    _lay_out(axes, plot, places)
    if level:
        _tell_ties(axes, varied, mean_of_workloads(level))
    _name_ends(axes, found)
    if not all(all(line.has_all) for line in found):
        axes.set_title("hollow: some workloads without a plan are left out", loc="right", fontsize=8)
    return figure


def _lines(section: Section, results: Results) -> list[_Line]:
    """By policy; experiments in which it has no number at all are left out."""
    experiments = run_of(section, results)
    found = []
    for name in dict.fromkeys(name for one in experiments for name in policies_of(results[one.name])):
        points = []
        for one in sorted(experiments, key=lambda experiment: experiment.at):
            own = [row for row in results[one.name] if row["policy"] == name]
            known = of_policy(own, name)
            if known:
                points.append((one.at, mean_of_workloads(known), len(known) == len(own)))
        if points:
            found.append(_Line(name, *map(tuple, zip(*points, strict=True))))
    return found


def _lay_out(axes: Axes, plot: Plot, places: Sequence[float]) -> None:
    if plot.has_log_axis:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_apart(axes, places)))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(plot.axis)
    axes.set_ylabel("goodput, % of arrivals, mean of workloads")
    axes.grid(visible=True, axis="y")


def _apart(axes: Axes, places: Sequence[float]) -> list[float]:
    """The places whose numbers have room, from the left; the last one always has."""
    width_in = _size_in(axes)[0]
    low, high = axes.transScale.transform([(axes.get_xlim()[0], 1), (axes.get_xlim()[1], 1)])[:, 0]
    kept: list[tuple[float, float]] = []
    for place in places:
        at_in = width_in * (axes.transScale.transform((place, 1))[0] - low) / (high - low)
        if not kept or at_in - kept[-1][1] >= _LEAST_APART_IN:
            kept.append((place, at_in))
    return [place for place, _ in kept]


def _size_in(axes: Axes) -> tuple[float, float]:
    """Width and height of the axes."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    place = axes.get_position()
    return place.width * figure.get_figwidth(), place.height * figure.get_figheight()


def _tell_ties(axes: Axes, found: Sequence[_Line], level: float) -> None:
    """A dotted line down from where the mean ties with the reference, with the place at its foot."""
    low = axes.get_ylim()[0]
    for number, line in enumerate(found):
        place = tie([(at, mean_pct - level) for at, mean_pct in zip(line.places, line.means, strict=True)])
        if place is not None:
            axes.plot([place, place], [low, level], ":", color=style_of(line.policy).colour, linewidth=1.2)
            offset = (4, 4 + _LABEL_POINTS * number)
            axes.annotate(f"tie {place:.2f}", (place, low), offset, textcoords="offset points", fontsize=8)
    axes.set_ylim(bottom=low)


def _name_ends(axes: Axes, found: Sequence[_Line]) -> None:
    """Names right of the axes, at the ends of the lines, moved apart where they would touch."""
    low, high = axes.get_ylim()
    height_points = _size_in(axes)[1] * POINTS_PER_IN
    ends = [line.means[-1] for line in found]
    heights = spread(ends, _LABEL_POINTS * (high - low) / height_points)
    for line, end, height in zip(found, ends, heights, strict=True):
        axes.annotate(
            line.policy,
            (line.places[-1], end),
            (1.04, height),
            textcoords=("axes fraction", "data"),
            va="center",
            color=INK,
            arrowprops={
                "arrowstyle": "-",
                "color": style_of(line.policy).colour,
                "linewidth": 1,
                "relpos": (0, 0.5),
                "shrinkA": 0,
                "shrinkB": 5,
            },
        )
