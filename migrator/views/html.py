"""A comparison of policies as one HTML page: where the arrivals go, goodput, the gap closed. Opens without a network.

Bars are the figures of ``compare``'s tables. What is not known, such as a gap that is not there, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import TYPE_CHECKING

from migrator.compare import CEILING, FLOOR, LEAST_SEGMENTS, Score, Standing, Terms, standings
from migrator.views.whatif_plot import require_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True)
class _Class:
    colour: str
    meaning: str


_CLASSES = {
    "goodput": _Class("#C9D6DF", "in time and right"),
    "wrong_old": _Class("#E69F00", "in time, wrong, by the model of the window's beginning"),
    "wrong_new": _Class("#F0E442", "in time, wrong, by the model retrained in the window"),
    "capacity": _Class("#D55E00", "missed, beyond what serving and changing instances could have answered"),
    "reconfiguration": _Class("#0072B2", "missed, of what instances could have answered while they start or stop"),
    "forecast": _Class("#CC79A7", f"missed, but answered by {CEILING}, which knows the arrivals"),
    "queueing": _Class("#009E73", "missed otherwise: bursts, waits for a batch"),
}
"""By the class of an account: a calm colour for what went well, and Okabe and Ito's for the losses."""

_POLICY_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
_PATTERNS = ("", "/", "x")
"""For more policies than there are colours."""

_TERMS = {
    Terms.POLICY_ONLY: "Policy only: all have free batching, the same forecaster and the same way of switching.",
    Terms.AS_PUBLISHED: "As published: each policy with its own batching, forecast and switching.",
}

_LEAST_WIDTH_PX = 900
_ROW_PX = 24
_GAP_PX = 50
"""Between panels: the title of the next."""

_MARGIN_PX = {"t": 50, "b": 60, "l": 160, "r": 170}
_LEGEND_PX = 160
"""Height of the classes' names."""

_LEAST_SHARE_PCT = -100.0
"""Where the axis of the gap closed ends: how far a policy is below the floor would leave no room for the rest."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A workload, or all of them, with its policies."""

    title: str
    standings: tuple[Standing, ...]


def comparison_to_html(scores: Sequence[Score], terms: Terms) -> str:
    """The page, with all that it needs inside; the same for the same scores, simulated on these terms.

    Raises:
        MigratorError: plotly is not installed.
    """
    require_plotly()
    groups = _groups(scores)
    knows = any(score.policy == CEILING for score in scores)
    classes = [name for name in _CLASSES if knows or name != "forecast"]
    return _PAGE.substitute(
        plotly=_plotly_js(),
        terms=_TERMS[terms],
        workloads="\n".join(f"<li>{line}</li>" for line in _told_workloads(scores)),
        notes="\n".join(f"<li>{line}</li>" for line in _told_notes(scores)),
        account=_drawn(_account_figure(groups, classes), "account"),
        classes="; ".join(f"<b>{_shown(name)}</b>: {escape(_CLASSES[name].meaning)}" for name in classes),
        forecast="" if knows else f" What a wrong forecast costs is told only where {CEILING} takes part.",
        goodput=_drawn(_goodput_figure(groups), "goodput"),
        gap=_gap_section(groups),
        least_segments=LEAST_SEGMENTS,
        floor=FLOOR,
        ceiling=CEILING,
    )


def _groups(scores: Sequence[Score]) -> tuple[_Group, ...]:
    """All workloads together if there are several, then one after the other."""
    names = list(dict.fromkeys(score.workload for score in scores))
    each = [_Group(name, standings([score for score in scores if score.workload == name])) for name in names]
    return (_Group(f"all {len(names)} workloads", standings(scores)), *each) if len(names) > 1 else tuple(each)


def _account_figure(groups: Sequence[_Group], classes: Sequence[str]) -> Figure:
    """A panel for each group with a stacked bar for each policy; the first policy on top."""
    from plotly.subplots import make_subplots  # noqa: PLC0415 - heavy, and an optional extra

    panel_px = 1.4 * _ROW_PX * max(len(group.standings) for group in groups)
    inner_px = max(_LEGEND_PX, panel_px * len(groups) + _GAP_PX * (len(groups) - 1))
    figure = make_subplots(
        rows=len(groups),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=_GAP_PX / inner_px,
        subplot_titles=[escape(group.title) for group in groups],
    )
    for row, group in enumerate(groups, start=1):
        for name in classes:
            _add_class(figure, row, group, name)
    figure.update_layout(
        barmode="stack",
        template="simple_white",
        width=_LEAST_WIDTH_PX,
        height=inner_px + _MARGIN_PX["t"] + _MARGIN_PX["b"],
        margin=_MARGIN_PX,
        uniformtext={"minsize": 9, "mode": "hide"},
        legend_traceorder="normal",
    )
    figure.update_xaxes(range=[0, 100])
    figure.update_xaxes(title_text="% of arrivals", row=len(groups))
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def _add_class(figure: Figure, row: int, group: _Group, name: str) -> None:
    shares_pct = [100 * item.account.shares[name] for item in group.standings]
    figure.add_bar(
        row=row,
        col=1,
        orientation="h",
        x=shares_pct,
        y=[escape(item.policy) for item in group.standings],
        name=_shown(name),
        legendgroup=name,
        showlegend=row == 1,
        marker={"color": _CLASSES[name].colour},
        text=[f"{share:.1f}" for share in shares_pct],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        hovertext=[
            f"<b>{escape(item.policy)}</b>, {escape(group.title)}<br>{_shown(name)} {share:.2f} %, "
            f"{getattr(item.account, name):,.0f} of {item.account.arrivals:,.0f} requests"
            for item, share in zip(group.standings, shares_pct, strict=True)
        ],
        hoverinfo="text",
    )


def _goodput_figure(groups: Sequence[_Group]) -> Figure:
    """Groups along x, a bar for each policy."""
    from plotly.graph_objects import Figure  # noqa: PLC0415 - heavy, and an optional extra

    figure = Figure()
    names = _policies(groups)
    for index, name in enumerate(names):
        own = [(group, item) for group in groups for item in group.standings if item.policy == name]
        figure.add_bar(
            x=[escape(group.title) for group, _ in own],
            y=[item.total.goodput_pct for _, item in own],
            name=escape(name),
            marker=_marker(index),
            hovertext=[_told(group, item) for group, item in own],
            hoverinfo="text",
        )
    around_px = _MARGIN_PX["l"] + _MARGIN_PX["r"]
    figure.update_layout(
        barmode="group",
        template="simple_white",
        width=max(_LEAST_WIDTH_PX, around_px + len(groups) * (7 * len(names) + 20)),
        height=450,
        margin={**_MARGIN_PX, "t": 120, "l": 70},
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.04, "yanchor": "bottom"},  # in sight however wide the plot is
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text="goodput, % of arrivals", rangemode="tozero", showgrid=True, gridcolor="#e6e6e6")
    return figure


def _gap_section(groups: Sequence[_Group]) -> str:
    """The third plot, or why there is none."""
    if all(item.gap_closed is None for group in groups for item in group.standings):
        return (
            f"<p>Not told: it needs both {FLOOR} and {CEILING}, "
            "and at least a thousandth of the arrivals between them.</p>"
        )
    return _drawn(_gap_figure(groups), "gap")


def _gap_figure(groups: Sequence[_Group]) -> Figure:
    """A bar for each policy over the first group, and a circle for each of the others."""
    from plotly.graph_objects import Figure  # noqa: PLC0415 - heavy, and an optional extra

    figure = Figure()
    first, *others = groups
    overall = [(item.policy, 100 * item.gap_closed) for item in first.standings if item.gap_closed is not None]
    figure.add_bar(
        orientation="h",
        x=[share for _, share in overall],
        y=[escape(name) for name, _ in overall],
        name=escape(first.title),
        marker={"color": "#8FB0C7"},
        hovertext=[f"<b>{escape(name)}</b>, {escape(first.title)}<br>{share:.1f} %" for name, share in overall],
        hoverinfo="text",
    )
    each = [(group.title, item) for group in others for item in group.standings]
    each_pct = [(title, item.policy, 100 * item.gap_closed) for title, item in each if item.gap_closed is not None]
    if each_pct:
        figure.add_scatter(
            x=[share for _, _, share in each_pct],
            y=[escape(name) for _, name, _ in each_pct],
            mode="markers",
            name="each workload",
            marker={"color": "#222222", "symbol": "circle-open", "size": 8},
            hovertext=[f"<b>{escape(name)}</b>, {escape(title)}<br>{share:.1f} %" for title, name, share in each_pct],
            hoverinfo="text",
        )
    shares_pct = [share for _, share in overall] + [share for _, _, share in each_pct]
    _lay_out_gap(figure, first, shares_pct, _policies(groups))
    return figure


def _lay_out_gap(figure: Figure, first: _Group, shares_pct: Sequence[float], names: Sequence[str]) -> None:
    """Each policy's place with its overall figure beside its name, known or not, on the axis or beyond its end."""
    shares = {item.policy: item.gap_closed for item in first.standings}
    labels = [f"{name}  {_percent(shares.get(name))}" for name in names]
    low, high = max(_LEAST_SHARE_PCT, min(0.0, *shares_pct)), max(100.0, *shares_pct)
    figure.update_layout(
        template="simple_white",
        width=_LEAST_WIDTH_PX,
        height=1.3 * _ROW_PX * len(names) + _MARGIN_PX["t"] + _MARGIN_PX["b"],
        margin=_MARGIN_PX,
        showlegend=len(figure.data) > 1,
    )
    figure.update_xaxes(title_text="gap closed, %", range=[low - 5, high + 5], showgrid=True, gridcolor="#e6e6e6")
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=[escape(name) for name in names],
        range=[len(names) - 0.5, -0.5],
        tickvals=[escape(name) for name in names],
        ticktext=[escape(label) for label in labels],
    )
    for share_pct in (0, 100):
        figure.add_vline(x=share_pct, line={"color": "#555555", "width": 1, "dash": "dot"})


def _told(group: _Group, item: Standing) -> str:
    """All of a standing that is known, for whoever points at its bar."""
    total = item.total
    lines = [f"<b>{escape(item.policy)}</b>, {escape(group.title)}"]
    for name, pct in (
        ("goodput", total.goodput_pct),
        ("in time", total.slo_attainment_pct),
        ("right, of the answered", total.accuracy_pct),
    ):
        if pct is not None:
            lines.append(f"{name} {pct:.2f} %")
    if item.relative_gain is not None:
        lines.append(f"over {FLOOR} {100 * item.relative_gain:+.2f} %")
    if item.ahead is not None:
        ahead, reference = item.ahead, escape(group.standings[0].policy)
        known = ahead.low is not None and ahead.high is not None
        interval = f" [{ahead.low:+.2f}, {ahead.high:+.2f}]" if known else ""
        lines.append(f"ahead of {reference} {ahead.points:+.2f} points{interval}")
    return "<br>".join(lines)


def _policies(groups: Sequence[_Group]) -> list[str]:
    return list(dict.fromkeys(item.policy for group in groups for item in group.standings))


def _marker(index: int) -> dict[str, object]:
    turn, place = divmod(index, len(_POLICY_COLOURS))
    return {"color": _POLICY_COLOURS[place], "pattern": {"shape": _PATTERNS[turn % len(_PATTERNS)]}}


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def _shown(name: str) -> str:
    return name.replace("_", " ")


def _told_workloads(scores: Sequence[Score]) -> list[str]:
    """Of each workload how much was simulated."""
    lines = []
    for name in dict.fromkeys(score.workload for score in scores):
        own = [score for score in scores if score.workload == name]
        n_segments, n_windows = len({score.segment for score in own}), len(own[0].totals)
        segments = "one segment" if n_segments == 1 else f"{n_segments} segments"
        windows = "1 window" if n_windows == 1 else f"{n_windows} windows"
        n_requests = sum(score.total.arrivals for score in own if score.policy == own[0].policy)
        lines.append(f"<b>{escape(name)}</b>: {segments} of {windows}, {n_requests:,} requests")
    return lines


def _told_notes(scores: Sequence[Score]) -> list[str]:
    """What was not measured, each note once with the workloads that it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for score in scores:
        for note in score.notes:
            about.setdefault(note, []).append(score.workload)
    return [
        f"{escape(', '.join(dict.fromkeys(names)))}: {escape(kind)}: {escape(text)}"
        for (kind, text), names in about.items()
    ]


def _drawn(figure: Figure, div_id: str) -> str:
    html: str = figure.to_html(full_html=False, include_plotlyjs=False, div_id=div_id, config={"displaylogo": False})
    return html


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - an optional extra

    js: str = get_plotlyjs()
    return js


_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>migrator compare</title>
<style>
body { font-family: "Open Sans", verdana, arial, sans-serif; color: #2a3f5f; margin: 24px; max-width: 1000px; }
li, p { line-height: 1.4; font-size: 14px; }
</style>
<script>$plotly</script>
</head>
<body>
<h1>Sharing policies compared</h1>
<p><b>Simulated</b>: the same requests under every policy; nothing ran on a GPU. $terms Point at a bar for its
figures.</p>
<ul>
$workloads
</ul>
<ul>
$notes
</ul>
<h2>Where the arrivals go</h2>
<p>$classes.$forecast</p>
$account
<h2>Goodput</h2>
<p>Answered in time and right, of all arrivals. <i>Ahead</i> has the interval that holds 95 % of the means of resampled
segments where there are at least $least_segments.</p>
$goodput
<h2>Gap closed</h2>
<p>Of what lies between $floor (0: the best that one layout could do, in hindsight) and $ceiling (100: the arrivals
known). The figure stands beside the name; a double click also shows what lies beyond the end of the axis.</p>
$gap
</body>
</html>
""")
