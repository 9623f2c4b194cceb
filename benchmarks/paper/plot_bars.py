"""Plots of one experiment: where the arrivals go, and goodput by policy and workload."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from benchmarks.paper.experiments import Section
from benchmarks.paper.plot_canvas import canvas, labelled, name_rows, readable_on
from benchmarks.paper.plot_list import Plot, run_of
from benchmarks.paper.results import CLASSES
from benchmarks.paper.statistics import Rows, by_workload, of_policy, policies_of
from benchmarks.paper.tables import Results
from migrator.compare import CEILING

_CLASS_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "goodput": "#C9D6DF",
        "wrong_old": "#E69F00",
        "wrong_new": "#F0E442",
        "capacity": "#D55E00",
        "reconfiguration": "#0072B2",
        "forecast": "#CC79A7",
        "queueing": "#009E73",
    }
)
"""Those of the plots of ``migrator compare``."""

_LEAST_SHOWN_PCT = 3.0
"""Narrower parts of a bar have no room for their number."""

_LEGEND: Any = {"columnspacing": 1.0, "handlelength": 1.0, "handletextpad": 0.5, "borderaxespad": 0.3}


def account(plot: Plot, section: Section, results: Results) -> Figure:
    """A bar a policy: the shares of the loss account, all workloads together."""
    rows = results[run_of(section, results)[0].name]
    names = [name for name in policies_of(rows) if of_policy(rows, name)]
    figure, axes = canvas(plot.title, 1.4 + 0.37 * len(names), left_in=1.75, top_in=0.8)
    for place, name in enumerate(names):
        start_pct = 0.0
        for key, share_pct in _shares_pct(of_policy(rows, name)).items():
            colour = _CLASS_COLOURS[key]
            axes.barh(place, share_pct, 0.74, left=start_pct, color=colour, edgecolor="white", linewidth=0.5)
            if share_pct >= _LEAST_SHOWN_PCT:
                middle = start_pct + share_pct / 2
                inside = readable_on(colour)
                axes.text(middle, place, f"{share_pct:.1f}", ha="center", va="center", fontsize=8, color=inside)
            start_pct += share_pct
    name_rows(axes, [labelled(name, rows, rows) for name in names])
    axes.set_xlim(0, 100)
    axes.set_xlabel(plot.axis)
    parts = [Patch(color=_CLASS_COLOURS[key], label=key.replace("_", " ")) for key in CLASSES]
    axes.legend(handles=parts, loc="lower left", bbox_to_anchor=(-0.28, 1.0), ncols=len(parts), **_LEGEND)
    return figure


def _shares_pct(rows: Rows) -> dict[str, float]:
    n_arrivals = sum(row["arrivals"] for row in rows)
    return {key: 100 * sum(row[key] for row in rows) / n_arrivals for key in CLASSES}


def _shade(share: float) -> str:
    """From nearly white at 0 to a blue at 1 on which dark text can still be read."""
    return to_hex(colormaps["Blues"](0.05 + 0.6 * share))


def grid(plot: Plot, section: Section, results: Results) -> Figure:
    """Goodput % of every policy on every workload; bold where none but the clairvoyant plan gets more."""
    rows = results[run_of(section, results)[0].name]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    goodput = {name: by_workload(of_policy(rows, name)) for name in policies_of(rows)}
    known = [value for own in goodput.values() for value in own.values()]
    best = {one: max(own.get(one, 0.0) for name, own in goodput.items() if name != CEILING) for one in workloads}
    title = f"{plot.title} (bold: the most, {CEILING} apart)"
    figure, axes = canvas(title, 1.1 + 0.36 * len(goodput), left_in=1.3, right_in=0.1)
    low, high = min(known), max(known)
    for place, (name, own) in enumerate(goodput.items()):
        for column, workload in enumerate(workloads):
            if workload not in own:
                axes.text(column, place, "none", ha="center", va="center", fontsize=8)
                continue
            colour = _shade((own[workload] - low) / max(high - low, 1.0))
            axes.add_patch(Rectangle((column - 0.5, place - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
            weight = "bold" if name != CEILING and own[workload] == best[workload] else "normal"
            look: Any = {"color": readable_on(colour), "fontweight": weight, "fontsize": 8}
            axes.text(column, place, f"{own[workload]:.1f}", ha="center", va="center", **look)
    name_rows(axes, list(goodput))
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_xlim(-0.5, len(workloads) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(plot.axis)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    return figure
