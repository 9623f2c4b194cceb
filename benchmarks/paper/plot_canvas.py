"""What all plots have in common: a look for each policy, size, room for text, the same bytes for the same figures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.paper.statistics import Rows, of_policy

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
        colour: Okabe and Ito's, which the colour-blind tell apart; darker kin where these are used up.
        marker: Tells apart policies whose colours are close.
        line: The same.
    """

    colour: str
    marker: str
    line: str = "-"


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "migrator": Style("#0072B2", "o"),
        "migrator-paper": Style("#56B4E9", "s"),
        "migrator-paper-cold": Style("#2F6F94", "p", "--"),
        "ekya": Style("#D55E00", "^"),
        "astraea": Style("#E69F00", "v"),
        "paris": Style("#009E73", "D"),
        "paris-changing": Style("#00664A", "d", "--"),
        "whole": Style("#CC79A7", "P"),
        "reactive": Style("#8A7A00", ">"),
        "window": Style("#882255", "<"),
        "equal": Style("#6B4C2A", "h"),
        "static": Style("#7F7F7F", "X", "--"),
        "oracle": Style("#000000", "*", ":"),
    }
)

_UNKNOWN = Style("#555555", "H", "-.")
"""Of a policy that has no look of its own yet."""


def style_of(policy: str) -> Style:
    """The policy's look, the same in every plot."""
    return STYLES.get(policy, _UNKNOWN)


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


def labelled(policy: str, shown: Rows, rows: Rows) -> str:
    """The policy's name, and how many of its rows with numbers are shown if that is not all its rows."""
    n_shown, n_rows = len(of_policy(shown, policy)), sum(row["policy"] == policy for row in rows)
    return policy if n_shown == n_rows else f"{policy} ({n_shown} of {n_rows})"


def handle(policy: str, label: str | None = None) -> Line2D:
    """The policy's mark for a legend."""
    style = style_of(policy)
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", label=label or policy)


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
