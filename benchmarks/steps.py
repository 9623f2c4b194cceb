"""How soon plans follow traffic that changes at once, in simulation: `python -m benchmarks.steps`.

Two tenants with shipped service profiles share an A100-80GB at load 0.7 for two windows of 200 s. A minute after the
first began, traffic changes: a burst, a ramp, a new level, a tenant that dies, a trace that stops and begins again.
Plans made once a window and anew every few seconds, with two forecasters, stand beside `static`, which knows all
arrivals, `reactive`, and a plan that knows its window's arrivals. What is told of each is when it answers as much as
the last of these, and what it loses until then. Results are kept as those of `make reproduce`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.online import KNOWN, REACTIVE, STATIC, Arm
from benchmarks.paper.matches import ROOT, Json, kept, results_of
from benchmarks.paper.plots import FAINT, INK, WIDTH_IN, drawing, style_of, svg_of
from migrator.compare import CEILING, Match
from migrator.config import AccuracyConfig, Config, read_config
from migrator.outputs import write_output
from migrator.setting import assemble
from migrator.views.palette import VALUES

FloatArray = NDArray[np.float64]

Knots = tuple[tuple[float, float], ...]
"""Seconds after the step, and by what the rate is multiplied; straight lines between."""

STEADY: Knots = ((0, 1),)


@dataclass(frozen=True, slots=True)
class Kind:
    """What traffic does.

    Attributes:
        name: Short.
        label: In tables and plots.
        vision: Of the first tenant.
        language: Of the second.
        from_s: Seconds after the step from which on it can be held: where a ramp ends, where a trace begins again.
    """

    name: str
    label: str
    vision: Knots
    language: Knots = STEADY
    from_s: int = 0


KINDS = (
    Kind("burst", "three times as much for 30 s", ((0, 1), (0, 3), (30, 3), (30, 1))),
    Kind("ramp", "twice as much within 60 s", ((0, 1), (60, 2)), from_s=60),
    Kind("shift", "twice as much from now on", ((0, 1), (0, 2))),
    Kind("dead", "a tenant dies, the other has twice as much", ((0, 1), (0, 2)), ((0, 1), (0, 0))),
    Kind(
        "restart",
        "a trace stops, the other has twice as much; after 60 s all is as before",
        ((0, 1), (0, 0), (60, 0), (60, 1)),
        ((0, 1), (0, 2), (60, 2), (60, 1)),
        from_s=60,
    ),
)

EVERY_S = 10.0

REFERENCE = f"{KNOWN}, once"

ARMS = (
    Arm(STATIC, STATIC, {"method": "ewma"}),
    Arm(REACTIVE, REACTIVE, {"method": "ewma"}),
    *(
        Arm(f"{method}, {pace}", "migrator", {"method": method}, every_s)
        for method in ("auto", "ewma")
        for pace, every_s in (("once", None), (f"every {EVERY_S:g} s", EVERY_S))
    ),
    Arm(REFERENCE, "migrator", {"method": KNOWN}),
)

N_DRAWS = 1

HISTORY_S, MARGIN_S = 600, 60
WINDOW_S, N_WINDOWS = 200, 2
STEP_S, STEP_SPREAD_S = 60, 10
"""The step comes in a second drawn from this many, so that no pace of planning is in luck."""

BEFORE_S, AFTER_S = 20, 200
"""Of the step: what is shown, and what is measured."""

TRACE_RPS = 1000.0
"""A trace's mean before it is scaled to the load; so high that whole numbers are fine enough."""

WOBBLE, WOBBLE_S = 0.1, 20.0
"""How much rates vary apart from steps (standard deviation of their logarithm), and for how long they do."""

_ALL_RIGHT = AccuracyConfig(before=1.0, after=1.0)

TOLERANCE, STAYS_S = 0.05, 5
"""A second is held if it is at most so much below arrivals known; traffic, if so many seconds in a row are."""


def step_second(draw: int) -> int:
    """The run's second in which traffic changes."""
    return STEP_S + int(np.random.default_rng(draw).integers(STEP_SPREAD_S))


def rates_of(knots: Knots, draw: int, tenant: int) -> FloatArray:
    """Expected requests of each second, history first, ``(n_seconds,)``; the wobble is the same for all kinds."""
    n = HISTORY_S + N_WINDOWS * WINDOW_S + MARGIN_S
    after_s = np.arange(n) + 0.5 - HISTORY_S - step_second(draw)
    factors = np.interp(after_s, [at_s for at_s, _ in knots], [factor for _, factor in knots])
    drawn = np.random.default_rng([draw, tenant]).standard_normal(n)
    keeps = math.exp(-1 / WOBBLE_S)
    wobble = np.zeros(n)
    for second in range(1, n):
        wobble[second] = keeps * wobble[second - 1] + math.sqrt(1 - keeps**2) * drawn[second]
    rates_rps: FloatArray = TRACE_RPS * factors * np.exp(WOBBLE * wobble)
    return rates_rps


def match_of(kind: Kind, arm: Arm, draw: int) -> Match:
    """The arm on a draw of the kind; traces are scaled by what brings them to the load where nothing steps."""
    origin = f"steps, {kind.name}"
    config = read_config(
        ROOT / "configs" / "quickstart.yaml",
        name=kind.name,
        seed=draw,
        windows=N_WINDOWS,
        load_windows=N_WINDOWS,
        forecast=dict(arm.forecast),
        planner={"replan_every_s": "never" if arm.every_s is None else arm.every_s},
    )
    steady = assemble(_on_traces(config, (STEADY, STEADY), draw), origin)[0].config
    return Match(arm.policy, _on_traces(steady, (kind.vision, kind.language), draw), origin, draw)


def _on_traces(config: Config, knots: Sequence[Knots], draw: int) -> Config:
    """The config on these traces; nothing is retrained, all answers are right, goodput is what is in time."""
    tenants = []
    for place, (tenant, own) in enumerate(zip(config.tenants, knots, strict=True)):
        lines = ["second,count", *(f"{second},{round(rate)}" for second, rate in enumerate(rates_of(own, draw, place)))]
        scale = tenant.arrivals.scale.model_copy(update={"smooth_s": 1})
        trace = kept("steps", "\n".join(lines) + "\n")
        arrivals = {"trace": str(trace), "format": "counts", "offset_s": HISTORY_S, "scale": scale}
        known = {"arrivals": tenant.arrivals.model_copy(update=arrivals), "accuracy": _ALL_RIGHT, "retraining": None}
        tenants.append(tenant.model_copy(update=known))
    return config.model_copy(update={"tenants": tenants})


@dataclass(frozen=True, eq=False)
class Course:
    """What came of one draw under one arm, all tenants together, around the step.

    Attributes:
        goodput: Answers in time of the requests of each second, ``(BEFORE_S + AFTER_S,)``.
        arrivals: Requests of each second, likewise.
        changes: Of the layout, over the run.
    """

    goodput: FloatArray
    arrivals: FloatArray
    changes: int


def course_of(result: Json, draw: int) -> Course:
    """The seconds around the step.

    Raises:
        ValueError: The policy had no plan.
    """
    if "error" in result:
        raise ValueError(f"{result['policy']} on {result['workload']}, draw {draw}: {result['error']}")
    shown = slice(step_second(draw) - BEFORE_S, step_second(draw) + AFTER_S)
    seconds = result["seconds"].values()
    goodput, arrivals = (np.sum([own[key] for own in seconds], axis=0)[shown] for key in ("goodput", "arrivals"))
    return Course(goodput, arrivals, result["changes"])


def held_after_s(goodput: FloatArray, known: FloatArray) -> int | None:
    """The first second from which on ``STAYS_S`` seconds are held; ``None`` if there is none.

    Shapes:
        both ``(n_seconds,)``, from where it can be held.
    """
    is_held = goodput >= (1 - TOLERANCE) * known
    stays = np.lib.stride_tricks.sliding_window_view(is_held, STAYS_S).all(axis=1)
    return int(np.argmax(stays)) if stays.any() else None


@dataclass(frozen=True, slots=True)
class Measured:
    """One draw under one arm; losses are requests fewer than arrivals known answers in time.

    Attributes:
        held_after_s: Seconds until it is held; ``None`` if that takes longer than ``AFTER_S`` after the step.
        lost_till_then: From the step on; all of ``AFTER_S`` if it is never held. Negative where it answers more.
        behind_s: Seconds of ``AFTER_S`` that are not held, whenever they come.
        lost_pct: In ``AFTER_S``, of their arrivals.
        changes: Of the layout, over the run; an instance that changes hands is none.
    """

    held_after_s: int | None
    lost_till_then: float
    behind_s: int
    lost_pct: float
    changes: int


def measured(own: Course, known: Course, from_s: int) -> Measured:
    """The arm's course beside that of arrivals known."""
    goodput, reference = own.goodput[BEFORE_S:], known.goodput[BEFORE_S:]
    held_s = held_after_s(goodput[from_s:], reference[from_s:])
    lost = reference - goodput
    return Measured(
        held_after_s=held_s,
        lost_till_then=float(lost[: None if held_s is None else from_s + held_s].sum()),
        behind_s=int((goodput < (1 - TOLERANCE) * reference).sum()),
        lost_pct=float(100 * lost.sum() / own.arrivals[BEFORE_S:].sum()),
        changes=own.changes,
    )


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a kind, by arm, a value a draw."""

    kind: Kind
    courses: Mapping[str, Sequence[Course]]

    @property
    def measured(self) -> dict[str, list[Measured]]:
        """By arm."""
        known = self.courses[REFERENCE]
        return {
            label: [measured(own, other, self.kind.from_s) for own, other in zip(courses, known, strict=True)]
            for label, courses in self.courses.items()
        }

    def mean(self, label: str, of: str = "goodput") -> FloatArray:
        """The mean of the draws, second by second, ``(BEFORE_S + AFTER_S,)``."""
        mean: FloatArray = np.mean([getattr(course, of) for course in self.courses[label]], axis=0)
        return mean


def outcomes_of(kinds: Sequence[Kind], n_draws: int) -> list[Outcome]:
    """Every arm on every draw of the kinds; what is not kept yet is simulated."""
    places = [(kind, arm, draw) for kind in kinds for arm in ARMS for draw in range(1, n_draws + 1)]
    found = results_of([match_of(*place) for place in places])
    courses: dict[str, dict[str, list[Course]]] = {kind.name: {arm.label: [] for arm in ARMS} for kind in kinds}
    for (kind, arm, draw), result in zip(places, found, strict=True):
        courses[kind.name][arm.label].append(course_of(result, draw))
    return [Outcome(kind, courses[kind.name]) for kind in kinds]


def shown_seconds(draws: Sequence[Measured]) -> str:
    """The median of when it is held, and in brackets the least and the most where they differ."""
    seconds = sorted(math.inf if one.held_after_s is None else one.held_after_s for one in draws)
    middle, least, most = (_number(value) for value in (median(seconds), seconds[0], seconds[-1]))
    return middle if least == most else f"{middle} [{least}, {most}]"


def _number(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:g}"


def table_of(found: Sequence[Outcome]) -> Table:
    """Medians over draws."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title="Simulated", title_justify="left")
    table.add_column("")
    table.add_column("")
    headings = ("held after\ns", "requests lost\ntill then", "seconds\nbehind", f"lost in {AFTER_S} s\n%", "changes")
    for heading in headings:
        table.add_column(heading, justify="right")
    for one in found:
        for number, (label, draws) in enumerate(one.measured.items()):
            if label != REFERENCE:
                table.add_row("" if number else one.kind.name, label, *_cells(draws), end_section=False)
        changes = median(course.changes for course in one.courses[REFERENCE])
        table.add_row("", REFERENCE, "", "", "", "", f"{changes:g}", end_section=True)
    return table


def _cells(draws: Sequence[Measured]) -> tuple[str, ...]:
    medians = {key: median(getattr(one, key) for one in draws) for key in ("lost_till_then", "behind_s", "lost_pct")}
    return (
        shown_seconds(draws),
        f"{medians['lost_till_then']:,.0f}",
        f"{medians['behind_s']:g}",
        f"{medians['lost_pct']:.1f}",
        f"{median(one.changes for one in draws):g}",
    )


def document(found: Sequence[Outcome]) -> Json:
    """Every figure: by kind and arm each draw's, and the mean course around the step."""
    return {
        "simulated": True,
        "first_second": -BEFORE_S,
        "kinds": {
            one.kind.name: {
                "label": one.kind.label,
                "arrivals": _rounded(one.mean(REFERENCE, "arrivals")),
                "arms": {
                    label: {"draws": [asdict(draw) for draw in draws], "goodput": _rounded(one.mean(label))}
                    for label, draws in one.measured.items()
                },
            }
            for one in found
        },
    }


def _rounded(values: FloatArray) -> list[float]:
    return [round(value, 1) for value in values.tolist()]


_LINES: Mapping[str, Any] = {
    REFERENCE: {"color": style_of(CEILING).colour, "linestyle": ":", "linewidth": 1.6},
    STATIC: {"color": style_of(STATIC).colour, "linestyle": "-", "linewidth": 1.2},
    "auto, once": {"color": VALUES[1], "linestyle": (0, (4, 1.5)), "linewidth": 1.4},
    f"ewma, every {EVERY_S:g} s": {"color": VALUES[3], "linestyle": "-", "linewidth": 1.4},
    f"auto, every {EVERY_S:g} s": {"color": VALUES[0], "linestyle": "-", "linewidth": 1.8},
}
"""What is drawn, from the back to the front; the table has all arms."""

TITLE = "Simulated: answers in time around a step of traffic, requests/s"

_PANEL_IN, _GAP_IN = 1.4, 0.35
_LEFT_IN, _RIGHT_IN, _TOP_IN, _BOTTOM_IN = 0.65, 2.35, 0.95, 0.5


def figure_of(found: Sequence[Outcome]) -> Figure:
    """A panel a kind: arrivals as an area, an arm's answers in time as a line, and when each held it."""
    height_in = _TOP_IN + _BOTTOM_IN + len(found) * (_PANEL_IN + _GAP_IN) - _GAP_IN
    figure = Figure(figsize=(WIDTH_IN, height_in), facecolor="white")
    figure.text(0.12 / WIDTH_IN, 1 - 0.12 / height_in, TITLE, va="top", fontsize=11, fontweight="bold")
    width = (WIDTH_IN - _LEFT_IN - _RIGHT_IN) / WIDTH_IN
    for place, one in enumerate(found):
        low_in = height_in - _TOP_IN - _PANEL_IN - place * (_PANEL_IN + _GAP_IN)
        axes = figure.add_axes((_LEFT_IN / WIDTH_IN, low_in / height_in, width, _PANEL_IN / height_in))
        _panel(axes, one)
        axes.tick_params(labelbottom=one is found[-1])
    axes.set_xlabel("seconds after the step")
    marks: list[Any] = [Patch(color=FAINT, label="arrivals")]
    marks += [Line2D([], [], label=label, **look) for label, look in _LINES.items()]
    place_in = (0.12 / WIDTH_IN, 1 - 0.4 / height_in)
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=place_in, ncols=len(marks), columnspacing=1.2)
    return figure


def _panel(axes: Axes, one: Outcome) -> None:
    seconds = np.arange(-BEFORE_S, AFTER_S)
    axes.fill_between(seconds, one.mean(REFERENCE, "arrivals"), color=FAINT, linewidth=0)
    axes.axvline(one.kind.from_s, color=INK, linewidth=0.6)
    for label, look in _LINES.items():
        axes.plot(seconds, one.mean(label), **look)
    axes.set_xlim(-BEFORE_S, AFTER_S)
    axes.set_ylim(bottom=0)
    axes.set_title(f"{one.kind.name}: {one.kind.label}", loc="left", fontsize=9)
    told = [label for label in reversed(list(_LINES)) if label != REFERENCE]
    axes.text(1.02, 1.0, "held after, s (behind, s)", transform=axes.transAxes, va="top", fontsize=8, fontweight="bold")
    for row, label in enumerate(told, 1):
        draws = one.measured[label]
        text = f"{label}: {shown_seconds(draws)} ({median(draw.behind_s for draw in draws):g})"
        axes.text(1.02, 1 - 0.17 * row, text, transform=axes.transAxes, va="top", fontsize=8)


def main() -> None:
    """Simulate what is not kept yet, print the table, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [kind.name for kind in KINDS]
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(names)}; all by default")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="of each kind")
    parser.add_argument("--out", type=Path, help="write every figure as JSON")
    parser.add_argument("--plot", type=Path, help="draw them, as SVG")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(names)}")
    if asked.draws < 1:
        parser.error(f"--draws {asked.draws}: at least 1 is needed")
    found = outcomes_of([kind for kind in KINDS if kind.name in (asked.kinds or names)], asked.draws)
    Console(width=120, highlight=False).print(table_of(found))
    if asked.out is not None:
        write_output("--out", asked.out, json.dumps(document(found), indent=1) + "\n")
    if asked.plot is not None:
        with drawing():
            write_output("--plot", asked.plot, svg_of(figure_of(found), TITLE))


if __name__ == "__main__":
    main()
