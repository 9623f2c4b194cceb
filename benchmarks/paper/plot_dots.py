"""Plots of dots in rows: differences with intervals, groups of policies, and draws."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.paper.experiments import MAIN, Section
from benchmarks.paper.plot_canvas import INK, canvas, handle, labelled, name_rows, style_of
from benchmarks.paper.plot_list import BLOCKS, Kind, Plot, beside_ours, compared_policies, run_of
from benchmarks.paper.statistics import (
    by_number,
    interval,
    mean_of_workloads,
    of_policy,
    policies_of,
    segment_differences,
    window_differences,
)
from benchmarks.paper.tables import OURS, Results

_BAND = "#F4F4F4"

_BELOW = 0.3
"""Where what a mean is made of stands in its row."""

_SMALL: Any = {"markersize": 3.5, "markeredgewidth": 0}


def differences(plot: Plot, section: Section, results: Results) -> Figure:
    """A row a policy: its mean difference from the reference with the 95 % interval, and each difference, faintly."""
    rows = results[run_of(section, results)[0].name]
    known = beside_ours(rows)
    names = compared_policies(rows)
    of_each = window_differences if plot.kind is Kind.WINDOWS else segment_differences
    figure, axes = canvas(plot.title, 1.4 + 0.265 * len(names), left_in=1.75, right_in=1.75, top_in=0.7)
    axes.axvline(0, color=style_of(OURS).colour, linewidth=1.2)
    for place, name in enumerate(names):
        apart = of_each(known, name, OURS)
        points, found = by_number(apart), interval(apart, BLOCKS[plot.kind])
        style = style_of(name)
        axes.plot(points, [place + _BELOW] * len(points), "o", color=style.colour, alpha=0.4, **_SMALL)
        axes.plot([found.low, found.high], [place, place], color=style.colour, linewidth=1.8)
        axes.plot(found.mean, place, style.marker, color=style.colour)
        _tell(axes, place, f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]")
    name_rows(axes, [labelled(name, known, rows) for name in names])
    axes.set_xlabel(plot.axis)
    each = "window" if plot.kind is Kind.WINDOWS else "segment"
    marks = (
        Line2D([], [], color=INK, marker="o", linewidth=1.8, label="mean and its 95 % interval"),
        Line2D([], [], color=INK, alpha=0.4, marker="o", linestyle="none", **_SMALL, label=f"a {each}"),
    )
    axes.legend(handles=marks, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=2)
    return figure


def _tell(axes: Axes, place: float, text: str) -> None:
    """The row's figures right of the axes."""
    shown = text.replace("-", "\N{MINUS SIGN}")
    axes.text(1.02, place, shown, transform=axes.get_yaxis_transform(), va="center", fontsize=8)


def groups(plot: Plot, section: Section, results: Results) -> Figure:
    """A band an experiment, in it a dot a policy, one below the other."""
    experiments = run_of(section, results)
    names = list(dict.fromkeys(name for one in experiments for name in policies_of(results[one.name])))
    figure, axes = canvas(plot.title, 1.3 + 0.55 * len(experiments), left_in=2.4, top_in=0.75)
    for place, one in enumerate(experiments):
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color=_BAND, linewidth=0, zorder=0)
        for number, name in enumerate(names):
            own = of_policy(results[one.name], name)
            if own:
                style = style_of(name)
                height = place + 0.8 * ((number + 0.5) / len(names) - 0.5)
                axes.plot(mean_of_workloads(own), height, style.marker, color=style.colour)
    name_rows(axes, [_wrapped(one.label) for one in experiments])
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel(plot.axis)
    rows = [row for one in experiments for row in results[one.name]]
    marks = [handle(name, labelled(name, rows, rows)) for name in names if of_policy(rows, name)]
    axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=len(marks), columnspacing=1.2)
    return figure


def _wrapped(text: str) -> str:
    """Parts between commas on lines of their own."""
    return text.replace(", ", ",\n")


def draws(plot: Plot, section: Section, results: Results) -> Figure:
    """A row a policy: a dot a draw, and a bar where nothing was changed."""
    experiments = run_of(section, results)
    rows = [row for one in experiments for row in results[one.name]]
    names = [name for name in policies_of(rows) if of_policy(rows, name)]
    figure, axes = canvas(plot.title, 1.4 + 0.32 * len(names), left_in=1.75, top_in=0.7)
    for place, name in enumerate(names):
        style = style_of(name)
        unchanged = of_policy(results.get(MAIN.name, ()), name)
        if unchanged:
            axes.plot(mean_of_workloads(unchanged), place, "|", color=INK, markersize=16, markeredgewidth=1.6)
        found = [of_policy(results[one.name], name) for one in experiments]
        means = [mean_of_workloads(own) for own in found if own]
        axes.plot(means, [place] * len(means), style.marker, color=style.colour, alpha=0.7)
    name_rows(axes, [labelled(name, rows, rows) for name in names])
    axes.set_xlabel(plot.axis)
    marks = (
        Line2D([], [], color=INK, marker="o", alpha=0.7, linestyle="none", label="a draw"),
        Line2D([], [], color=INK, marker="|", markersize=12, linestyle="none", label="profiles as they are"),
    )
    axes.legend(handles=marks, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=2)
    return figure
