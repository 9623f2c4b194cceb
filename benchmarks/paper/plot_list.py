"""Which plots the results page has: their files, titles and what each shows. Draws nothing, as the page need not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.paper.experiments import Experiment, PageSection
from benchmarks.paper.statistics import BLOCK, OURS, Results, ahead_of_ours

Kind = Literal["account", "grid", "lines", "windows", "segments", "groups", "draws", "foresight"]
"""How a plot shows the experiments of its section.

- account: stacked bars of where the arrivals go;
- grid: policies by workloads, goodput as colour and number;
- lines: goodput over the place of each experiment on the section's axis, a line a policy;
- windows, segments: differences from ours with intervals;
- groups: a group of dots an experiment, a dot a policy;
- draws: a row a policy, a dot an experiment;
- foresight: goodput by policy, in the order of how much of the arrivals each knows, a line an experiment.
"""


@dataclass(frozen=True)
class Plot:
    """A plot of a section.

    Attributes:
        section: Its section's name.
        kind: How it is drawn.
        title: In the plot; ends in the unit.
        alt: What it shows, for those who do not see it.
        axis: What the horizontal axis says; of lines, what places the experiments.
        has_log_axis: Whether that axis is logarithmic.
        part: In its file's name, where a section has several.
    """

    section: str
    kind: Kind
    title: str
    alt: str
    axis: str = "goodput, % of arrivals, mean of workloads"
    has_log_axis: bool = False
    part: str = ""

    @property
    def file(self) -> str:
        """Its name in ``docs/results``."""
        return f"{self.section}-{self.part}.svg" if self.part else f"{self.section}.svg"


_POINTS = f"points of goodput % ahead of {OURS}"

PLOTS = (
    Plot(
        "headline",
        "windows",
        f"Simulated: free to skip, compound drift, ahead of {OURS}, points of %",
        f"Dots with intervals: points of simulated goodput % ahead of {OURS}, by policy, over windows",
        _POINTS,
    ),
    Plot(
        "bursts",
        "groups",
        "Simulated: goodput on bursty traffic, %",
        "Dots: simulated goodput in % of each policy by how far apart bursts are and how long they last",
    ),
    Plot(
        "retraining",
        "groups",
        "Simulated: goodput by what retrainings may do, %",
        "Dots: simulated goodput in % of each policy, obliged to retrain, free to skip, and with checkpoints",
    ),
    Plot(
        "main",
        "account",
        "Simulated: where the arrivals go, all workloads together, %",
        "Stacked bars: the simulated arrivals of all workloads by policy, from goodput to queueing, in %",
        "% of arrivals",
        part="account",
    ),
    Plot(
        "main",
        "grid",
        "Simulated: goodput by workload, % of arrivals",
        "Grid: simulated goodput in % of each policy on each workload",
        "workload",
        part="goodput",
    ),
    Plot(
        "interference",
        "lines",
        "Simulated: goodput by strength of interference, %",
        f"Lines: simulated goodput in % over the strength of interference, against {OURS}, which has none",
        "strength of interference (1: as measured by Mudi)",
    ),
    Plot(
        "whole-runs",
        "windows",
        f"Simulated: all windows, goodput ahead of {OURS}, points of %",
        f"Dots with intervals: points of simulated goodput % ahead of {OURS}, by policy, over windows",
        _POINTS,
    ),
    Plot(
        "twitter",
        "segments",
        f"Simulated: Twitter counts, goodput ahead of {OURS}, points of %",
        f"Dots with intervals: points of simulated goodput % ahead of {OURS}, by policy, over segments",
        _POINTS,
    ),
    Plot(
        "load",
        "lines",
        "Simulated: goodput by load, %",
        "Lines: simulated goodput in % over load, one for each policy",
        "load",
    ),
    Plot(
        "step",
        "lines",
        "Simulated: goodput by granularity, %",
        "Lines: simulated goodput in % over the length of a step in seconds, one for each policy",
        "step, s (logarithmic)",
        has_log_axis=True,
    ),
    Plot(
        "estimates",
        "groups",
        "Simulated: goodput by error of the estimates, %",
        "Dots: simulated goodput in % of each policy by what is wrong with the estimates",
    ),
    Plot(
        "foresight",
        "foresight",
        "Simulated: goodput by how many seconds of arrivals are known, %",
        "Lines: simulated goodput in % from no foresight to all of the window's arrivals",
        "arrivals known before they come",
    ),
    Plot(
        "profiles",
        "draws",
        "Simulated: goodput with profiles times 0.8 to 1.2, three draws, %",
        "Dots: simulated goodput in % of each policy with profiles as they are and in three draws of others",
    ),
)
"""In the order of the page."""


def plots_of(section: PageSection, results: Results) -> list[Plot]:
    """The section's plots that have anything to show."""
    rows = [results[one.name].dropna(subset="arrivals") for one in run_of(section, results)]
    plots = [plot for plot in PLOTS if plot.section == section.name and any(map(len, rows))]
    return [plot for plot in plots if plot.kind not in BLOCK or ahead_of_ours(rows[0], plot.kind)]


def run_of(section: PageSection, results: Results) -> list[Experiment]:
    """The section's experiments that were run."""
    return [one for one in section.experiments if one.name in results]
