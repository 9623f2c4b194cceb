"""The plots of the results page as SVG, from the figures of ``docs/results.json`` alone.

All have one width, a look for each policy, and the same bytes for the same figures.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

from benchmarks.paper.experiments import MAIN, SECTIONS, PageSection
from benchmarks.paper.matches import CLASSES
from benchmarks.paper.plot_list import Plot, plots_of, run_of
from benchmarks.paper.statistics import (
    BLOCK,
    OURS,
    Results,
    ahead_of_ours,
    goodput_pct,
    interval,
    means_of,
    results_in,
    tie,
)
from migrator.comparison.matches import CEILING, FLOOR
from migrator.views.palette import LOSSES, POLICIES, UNKNOWN_POLICY

WIDTH_IN = 8.0
"""Of every plot; 768 px in a browser."""

POINTS_PER_IN = 72

INK, FAINT = "#222222", "#DDDDDD"

_LOOK = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 6,
    "svg.fonttype": "none",
    "svg.hashsalt": "migrator",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
"""Text stays text, which a page can find; without the salt, names inside the file would be drawn anew each time."""


@dataclass(frozen=True)
class Style:
    """How a policy is drawn.

    Attributes:
        colour: The policy's on every page, by ``migrator.views.palette``.
        marker: Tells apart policies whose colours are close.
        line: The same.
    """

    colour: str
    marker: str
    line: str = "-"


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "migrator": Style(POLICIES["migrator"], "o"),
        "migrator-paper": Style(POLICIES["migrator-paper"], "s"),
        "migrator-paper-cold": Style(POLICIES["migrator-paper-cold"], "p", "--"),
        "ekya": Style(POLICIES["ekya"], "^"),
        "astraea": Style(POLICIES["astraea"], "v"),
        "paris": Style(POLICIES["paris"], "D"),
        "paris-changing": Style(POLICIES["paris-changing"], "d", "--"),
        "whole": Style(POLICIES["whole"], "P"),
        "time-sharing-0": Style(POLICIES["time-sharing"], "1", ":"),
        "time-sharing": Style(POLICIES["time-sharing"], "2"),
        "time-sharing-10": Style(POLICIES["time-sharing"], "3", "--"),
        "reactive": Style(POLICIES["reactive"], ">"),
        "window": Style(POLICIES["window"], "<"),
        "equal": Style(POLICIES["equal"], "h"),
        "static": Style(POLICIES["static"], "X", "--"),
        "static-history": Style(POLICIES["static-history"], "x", "--"),
        "mudi": Style(POLICIES["mudi"], "8"),
        "oracle": Style(POLICIES["oracle"], "*", ":"),
    }
)

_UNKNOWN = Style(UNKNOWN_POLICY, "H", "-.")
"""Of a policy that has no look of its own yet."""


def style_of(policy: str) -> Style:
    """The policy's look, the same in every plot, whatever label follows its name."""
    return STYLES.get(policy.partition(", ")[0], _UNKNOWN)


@contextmanager
def drawing() -> Iterator[None]:
    """Inside, figures have the look of the page, whatever the user's own settings are."""
    with matplotlib.style.context(_LOOK, after_reset=True):
        yield


def canvas(
    title: str, height_in: float, *, left_in: float, right_in: float = 0.25, top_in: float = 0.5, bottom_in: float = 0.5
) -> tuple[Figure, Axes]:
    """An empty plot with its title and these margins."""
    figure = Figure(figsize=(WIDTH_IN, height_in), facecolor="white")
    width, height = WIDTH_IN - left_in - right_in, height_in - top_in - bottom_in
    axes = figure.add_axes((left_in / WIDTH_IN, bottom_in / height_in, width / WIDTH_IN, height / height_in))
    figure.text(0.12 / WIDTH_IN, 1 - 0.12 / height_in, title, va="top", fontsize=11, fontweight="bold")
    return figure, axes


def svg_of(figure: Figure, title: str) -> str:
    """The figure as text; holds no date, version or name that differs from run to run."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def readable_on(colour: str) -> str:
    """Black or white, whichever stands out more against the colour."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return INK if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "white"


def labels(rows: pd.DataFrame) -> dict[str, str]:
    """By policy that has numbers its name, with how many of its rows have them where not all do."""
    counts = rows.groupby("policy", sort=False)["arrivals"].agg(["count", "size"])
    known = counts[counts["count"] > 0].itertuples(name=None)
    return {name: name if n_known == n else f"{name} ({n_known} of {n})" for name, n_known, n in known}


def handle(policy: str, label: str) -> Line2D:
    """The policy's mark for a legend."""
    style = style_of(policy)
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", label=label)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows from the top down, one for each name."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Places at least ``gap`` apart, in the order of the values and, by least squares, nearest to them."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    blocks: list[tuple[float, int]] = []  # sums and sizes of runs of labels that touch, each label moved down by rank
    for rank, place in enumerate(order):
        total, size = values[place] - rank * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            before, n_before = blocks.pop()
            total, size = total + before, size + n_before
        blocks.append((total, size))
    level = [total / size for total, size in blocks for _ in range(size)]
    found = {place: level[rank] + rank * gap for rank, place in enumerate(order)}
    return [found[place] for place in range(len(values))]


_LEAST_SHOWN_PCT = 3.0
"""Narrower parts of a bar have no room for their number."""

_LEGEND: Any = {"columnspacing": 1.0, "handlelength": 1.0, "handletextpad": 0.5, "borderaxespad": 0.3}


def account(plot: Plot, section: PageSection, results: Results) -> Figure:
    """A bar a policy: the shares of the loss account, all workloads together."""
    rows = results[run_of(section, results)[0].name]
    sums = rows.groupby("policy", sort=False)[["arrivals", *CLASSES]].sum(min_count=1).dropna()
    shares_pct = 100 * sums[list(CLASSES)].div(sums["arrivals"], axis=0)
    figure, axes = canvas(plot.title, 1.4 + 0.37 * len(shares_pct), left_in=1.75, top_in=0.8)
    for place, shares in enumerate(shares_pct.to_dict("records")):
        start_pct = 0.0
        for key, share_pct in shares.items():
            colour = LOSSES[str(key)]
            axes.barh(place, share_pct, 0.74, left=start_pct, color=colour, edgecolor="white", linewidth=0.5)
            if share_pct >= _LEAST_SHOWN_PCT:
                middle = start_pct + share_pct / 2
                inside = readable_on(colour)
                axes.text(middle, place, f"{share_pct:.1f}", ha="center", va="center", fontsize=8, color=inside)
            start_pct += share_pct
    name_rows(axes, list(labels(rows).values()))
    axes.set_xlim(0, 100)
    axes.set_xlabel(plot.axis)
    parts = [Patch(color=LOSSES[key], label=key.replace("_", " ")) for key in CLASSES]
    axes.legend(handles=parts, loc="lower left", bbox_to_anchor=(-0.28, 1.0), ncols=len(parts), **_LEGEND)
    return figure


def _shade(share: float) -> str:
    """From nearly white at 0 to a blue at 1 on which dark text can still be read."""
    return to_hex(colormaps["Blues"](0.05 + 0.6 * share))


def grid(plot: Plot, section: PageSection, results: Results) -> Figure:
    """Goodput % of every policy on every workload; bold where none but the clairvoyant plan gets more."""
    goodput = goodput_pct(results[run_of(section, results)[0].name])
    best = goodput.drop(columns=CEILING, errors="ignore").max(axis=1)
    title = f"{plot.title} (bold: the most, {CEILING} apart)"
    figure, axes = canvas(title, 1.1 + 0.36 * goodput.shape[1], left_in=1.3, right_in=0.1)
    low, high = goodput.min().min(), goodput.max().max()
    for place, (name, own) in enumerate(goodput.items()):
        for column, (value, most) in enumerate(zip(own, best, strict=True)):
            if np.isnan(value):
                axes.text(column, place, "none", ha="center", va="center", fontsize=8)
                continue
            colour = _shade((value - low) / max(high - low, 1.0))
            axes.add_patch(Rectangle((column - 0.5, place - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
            weight = "bold" if name != CEILING and value == most else "normal"
            look: Any = {"color": readable_on(colour), "fontweight": weight, "fontsize": 8}
            axes.text(column, place, f"{value:.1f}", ha="center", va="center", **look)
    name_rows(axes, list(goodput.columns))
    axes.set_xticks(range(len(goodput)), goodput.index)
    axes.set_xlim(-0.5, len(goodput) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(plot.axis)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    return figure


_HEIGHT_IN = 4.2

_LABEL_POINTS = 12.0
"""Between names, one below the other."""

_LEAST_APART_IN = 0.32
"""Between ticks, so that their numbers do not touch."""


def lines(plot: Plot, section: PageSection, results: Results) -> Figure:
    """Goodput %, mean of workloads, over the places of the experiments; hollow where a workload has no numbers.

    In a section about ties, ours of the main table is a level line, and the place of each tie is written down.
    """
    goodput = {one.at: goodput_pct(results[one.name]) for one in run_of(section, results)}
    means = pd.concat({at: own.mean() for at, own in goodput.items()}, axis=1).T.sort_index()
    means = means.dropna(how="all").dropna(axis=1, how="all")
    figure, axes = canvas(plot.title, _HEIGHT_IN, left_in=0.75, right_in=1.65)
    ends, is_whole = {}, True
    for name, known in means.items():
        policy, own = str(name), known.dropna()
        style = style_of(policy)
        axes.plot(own.index, own, color=style.colour, linestyle=style.line, linewidth=1.6)
        for place, mean_pct in zip(own.index, own, strict=True):
            has_all = bool(goodput[place][policy].notna().all())
            fill = style.colour if has_all else "white"
            axes.plot(place, mean_pct, style.marker, color=style.colour, markerfacecolor=fill)
            is_whole = is_whole and has_all
        ends[policy] = (own.index[-1], own.iloc[-1])
    level = means_of(results[MAIN.name]).dropna().get(OURS) if section.view == "ties" and MAIN.name in results else None
    if level is not None:
        style, ends[OURS] = style_of(OURS), (means.index[-1], level)
        axes.plot(means.index[[0, -1]], [level, level], color=style.colour, linestyle=style.line, linewidth=1.6)
    _lay_out(axes, plot, list(means.index))
    if level is not None:
        _tell_ties(axes, means, level)
    _name_ends(axes, ends)
    if not is_whole:
        axes.set_title("hollow: some workloads without a plan are left out", loc="right", fontsize=8)
    return figure


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


def _tell_ties(axes: Axes, means: pd.DataFrame, level: float) -> None:
    """A dotted line down from where the mean ties with the reference, with the place at its foot."""
    low = axes.get_ylim()[0]
    for number, (policy, known) in enumerate(means.items()):
        own = known.dropna()
        place = tie(own.index, own - level)
        if place is not None:
            axes.plot([place, place], [low, level], ":", color=style_of(str(policy)).colour, linewidth=1.2)
            offset = (4, 4 + _LABEL_POINTS * number)
            axes.annotate(f"tie {place:.2f}", (place, low), offset, textcoords="offset points", fontsize=8)
    axes.set_ylim(bottom=low)


def _name_ends(axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """Names right of the axes, at the ends of the lines, moved apart where they would touch."""
    low, high = axes.get_ylim()
    height_points = _size_in(axes)[1] * POINTS_PER_IN
    heights = spread([end for _, end in ends.values()], _LABEL_POINTS * (high - low) / height_points)
    arrow = {"arrowstyle": "-", "linewidth": 1, "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 5}
    look: Any = {"textcoords": ("axes fraction", "data"), "va": "center", "color": INK}
    for (policy, end), height in zip(ends.items(), heights, strict=True):
        axes.annotate(policy, end, (1.04, height), arrowprops={**arrow, "color": style_of(policy).colour}, **look)


_MOST_MARKS = 6
"""Of a legend, in one line."""

_BAND = "#F4F4F4"

_BELOW = 0.3
"""The places of a mean's parts in its row."""

_SMALL: Any = {"markersize": 3.5, "markeredgewidth": 0}


def differences(plot: Plot, section: PageSection, results: Results) -> Figure:
    """A row a policy: its mean difference from the reference with the 95 % interval, and each difference, faintly."""
    of = plot.kind
    rows = results[run_of(section, results)[0].name]
    found = ahead_of_ours(rows, of)
    named = labels(_beside_ours(rows))
    left_in = max(1.75, 0.083 * max(len(named[name]) for name in found))
    figure, axes = canvas(plot.title, 1.4 + 0.265 * len(found), left_in=left_in, right_in=1.75, top_in=0.7)
    axes.axvline(0, color=style_of(OURS).colour, linewidth=1.2)
    for place, (name, ahead) in enumerate(found.items()):
        points, mean = ahead.mean(axis=1), interval(ahead, BLOCK[of])
        style = style_of(name)
        axes.plot(points, [place + _BELOW] * len(points), "o", color=style.colour, alpha=0.4, **_SMALL)
        axes.plot([mean.low, mean.high], [place, place], color=style.colour, linewidth=1.8)
        axes.plot(mean.mean, place, style.marker, color=style.colour)
        _tell(axes, place, f"{mean.mean:+z.2f} [{mean.low:+z.2f}, {mean.high:+z.2f}]")
    name_rows(axes, [named[name] for name in found])
    axes.set_xlabel(plot.axis)
    marks = (
        Line2D([], [], color=INK, marker="o", linewidth=1.8, label="mean and its 95 % interval"),
        Line2D([], [], color=INK, alpha=0.4, marker="o", linestyle="none", **_SMALL, label=f"a {of[:-1]}"),
    )
    axes.legend(handles=marks, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=2)
    return figure


def _beside_ours(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, without numbers where ours has none."""
    places = pd.MultiIndex.from_frame(rows[["workload", "segment"]])
    is_known = places.isin(places[(rows["policy"] == OURS) & rows["arrivals"].notna()])
    return rows.assign(arrivals=rows["arrivals"].where(is_known))


def _tell(axes: Axes, place: float, text: str) -> None:
    """The row's figures right of the axes."""
    shown = text.replace("-", "\N{MINUS SIGN}")
    axes.text(1.02, place, shown, transform=axes.get_yaxis_transform(), va="center", fontsize=8)


def groups(plot: Plot, section: PageSection, results: Results) -> Figure:
    """A band an experiment, in it a dot a policy, one below the other."""
    experiments = run_of(section, results)
    rows = pd.concat([results[one.name] for one in experiments])
    names = list(dict.fromkeys(rows["policy"]))
    top_in = 0.75 if len(names) <= _MOST_MARKS else 0.95
    figure, axes = canvas(plot.title, 0.55 + top_in + 0.55 * len(experiments), left_in=2.4, top_in=top_in)
    for place, one in enumerate(experiments):
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color=_BAND, linewidth=0, zorder=0)
        means = means_of(results[one.name]).dropna()
        for number, name in enumerate(names):
            if name in means:
                style = style_of(name)
                height = place + 0.8 * ((number + 0.5) / len(names) - 0.5)
                axes.plot(means[name], height, style.marker, color=style.colour)
    name_rows(axes, [one.label.replace(", ", ",\n") for one in experiments])
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel(plot.axis)
    marks = [handle(name, label) for name, label in labels(rows).items()]
    n_columns = math.ceil(len(marks) / math.ceil(len(marks) / _MOST_MARKS))
    axes.legend(handles=marks, loc="lower right", bbox_to_anchor=(1.01, 1.0), ncols=n_columns, columnspacing=1.2)
    return figure


def draws(plot: Plot, section: PageSection, results: Results) -> Figure:
    """A row a policy: a dot a draw, and a bar where nothing was changed."""
    experiments = run_of(section, results)
    named = labels(pd.concat([results[one.name] for one in experiments]))
    means = pd.DataFrame({one.name: means_of(results[one.name]) for one in experiments})
    unchanged = means_of(results[MAIN.name]).dropna() if MAIN.name in results else pd.Series(dtype=float)
    figure, axes = canvas(plot.title, 1.4 + 0.32 * len(named), left_in=1.75, top_in=0.7)
    for place, name in enumerate(named):
        style = style_of(name)
        if name in unchanged:
            axes.plot(unchanged[name], place, "|", color=INK, markersize=16, markeredgewidth=1.6)
        own = means.loc[name].dropna()
        axes.plot(own, [place] * len(own), style.marker, color=style.colour, alpha=0.7)
    name_rows(axes, list(named.values()))
    axes.set_xlabel(plot.axis)
    marks = (
        Line2D([], [], color=INK, marker="o", alpha=0.7, linestyle="none", label="a draw"),
        Line2D([], [], color=INK, marker="|", markersize=12, linestyle="none", label="profiles as they are"),
    )
    axes.legend(handles=marks, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=2)
    return figure


def foresight(plot: Plot, section: PageSection, results: Results) -> Figure:
    """Goodput %, mean of workloads, of policies that know ever more; the best fixed layout is a level."""
    experiments = run_of(section, results)
    named = labels(pd.concat([results[one.name] for one in experiments]))
    known = [name for name in named if name != FLOOR]
    figure, axes = canvas(plot.title, 3.4, left_in=0.75, right_in=0.35, top_in=0.75, bottom_in=0.65)
    style = style_of(OURS)
    marks = []
    for one, line, fill in zip(experiments, ("-", "--"), (style.colour, "white"), strict=False):
        own = means_of(results[one.name]).dropna()
        found = [(place, own[name]) for place, name in enumerate(known) if name in own]
        look: Any = {"color": style.colour, "marker": style.marker, "markerfacecolor": fill, "linestyle": line}
        axes.plot(*zip(*found, strict=True), **look)
        marks.append(Line2D([], [], label=one.label, **look))
        if FLOOR in own and line == "-":
            floor = style_of(FLOOR)
            level: Any = {"color": floor.colour, "linestyle": floor.line, "linewidth": 1.6}
            axes.axhline(own[FLOOR], **level)
            marks.append(Line2D([], [], label=named[FLOOR], **level))
    axes.set_xticks(range(len(known)), [named[name] for name in known])
    axes.set_xlabel(plot.axis)
    axes.set_ylabel("goodput, % of arrivals,\nmean of workloads")
    axes.grid(visible=True, axis="y")
    axes.legend(handles=marks, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(marks))
    return figure


_DRAWN: Mapping[str, Callable[[Plot, PageSection, Results], Figure]] = MappingProxyType(
    {
        "account": account,
        "grid": grid,
        "lines": lines,
        "windows": differences,
        "segments": differences,
        "groups": groups,
        "draws": draws,
        "foresight": foresight,
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
