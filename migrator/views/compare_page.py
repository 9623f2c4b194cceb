"""The page of a comparison of policies.

Bars and marks are the figures of the tables that the commands print. A figure that is unknown is left out. The text of
the pages is in the templates beside this file; plotly reads HTML as well, so what goes into a figure is escaped here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from migrator.comparison.matches import CEILING, FLOOR, LEAST_SEGMENTS, Fairness, MatchScore, Standing, standings
from migrator.views.compare import (
    STANDINGS,
    accounts_sheet,
    assumed_by_all,
    by_workload,
    extent,
    far_from_plans,
    setup_text,
    standings_sheet,
)
from migrator.views.held import colour_legend, held_bars, rows_axis, shown_phases
from migrator.views.page import INK, PAPER, Json, page, panel, require_plot_extra
from migrator.views.palette import ALL_WORKLOADS, LOSSES, policy_looks, shown
from migrator.views.table import named

_MARKS = ("circle", "square", "diamond", "cross")
"""For policies from files beyond the colours that they have."""

_ROW_PX = 31

_LAYOUT_PX = 170

_CLASSES = {
    "goodput": "in time and right",
    "wrong_old": "in time, wrong, by the model of the window's beginning",
    "wrong_new": "in time, wrong, by the model retrained in the window",
    "capacity": "missed, beyond what serving and changing instances could have answered",
    "reconfiguration": "missed, of what instances could have answered while they start or stop",
    "forecast": f"missed, but answered with the {shown(CEILING)}",
    "queueing": "missed otherwise: bursts, waits for a batch",
}
"""What each class of an account means."""

_FAIRNESS = {
    Fairness.POLICY_ONLY: "Policy only: all have free batching, the same forecaster and the same way of switching.",
    Fairness.AS_PUBLISHED: "As published: each policy with its own batching, forecast and switching.",
}

_LEAST_SHARE_PCT = -100.0
"""Where the axis of the gap closed ends: a policy far below the floor would leave no room for the others."""


_Groups = Mapping[str, Sequence[Standing]]
"""The standings of all workloads together, if there are several, then those of each, by title."""


def comparison_to_html(scores: Sequence[MatchScore], fairness: Fairness, stride_s: int | None = None) -> str:
    """The page of a comparison with this fairness; the same for the same scores.

    Raises:
        MigratorError: The libraries of the extra are not installed.
    """
    require_plot_extra()
    groups = _groups(scores)
    placed = {
        workload: [(shown(policy), f"layout-{at}-{n}", figure) for n, (policy, figure) in enumerate(own.items())]
        for at, (workload, own) in enumerate(_layouts(scores).items())
    }
    notes: dict[tuple[str, str], list[str]] = {}
    for score in scores:
        for note in score.notes:
            kind, text = note
            notes.setdefault((kind, without_folders(text)), []).append(score.workload)
    return page(
        "compare.html.j2",
        {
            **{
                f"account-{n}": _account_figure(title, own, tuple(_CLASSES))
                for n, (title, own) in enumerate(groups.items())
            },
            "goodput": _goodput_figure(groups),
            "gap": _gap_figure(groups),
            **{place: figure for own in placed.values() for _, place, figure in own},
        },
        answer=_answer(next(iter(groups.values()))),
        sheets={title: (standings_sheet(own), accounts_sheet(own)) for title, own in groups.items()},
        placed=placed,
        phases=shown_phases(one.holding for one in scores if one.holding is not None),
        tenants={one.workload: colour_legend(one.holding) for one in scores if one.holding is not None},
        terms=_FAIRNESS[fairness],
        workloads={
            name: (extent(own, stride_s), without_folders(setup_text(own))) for name, own in by_workload(scores).items()
        },
        refusals=[
            (score.workload, score.segment, shown(score.policy), text) for score in scores for text in score.refusals
        ],
        notes=notes,
        assumed=assumed_by_all(scores),
        far_from_plans=far_from_plans(scores),
        classes=_CLASSES,
        least_segments=LEAST_SEGMENTS,
        floor=FLOOR,
        ceiling=CEILING,
        shown_ceiling=shown(CEILING),
    )


def _answer(found: Sequence[Standing]) -> str:
    """Who answered most in time and right, the first policy beside the best."""
    known = [(one.total.goodput_pct, one) for one in found if one.total.goodput_pct is not None]
    if not known:
        return "No requests came."
    ranked = [one for _, one in sorted(known, key=lambda pair: -pair[0])]
    told = ", ".join(f"{shown(one.policy)} {one.total.goodput_pct:.1f} %" for one in ranked)
    return f"In time and right of all arrivals: {told}"


def without_folders(text: str) -> str:
    """The text with files instead of their full paths, which say something of this machine alone."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/;,]+/)+", "", text)


def _groups(scores: Sequence[MatchScore]) -> _Groups:
    each = {name: standings(own) for name, own in by_workload(scores).items()}
    return {f"all {len(each)} workloads": standings(scores), **each} if len(each) > 1 else each


def _account_figure(title: str, found: Sequence[Standing], classes: Sequence[str]) -> Json:
    """A stacked bar for each policy; the first policy on top."""
    bars = [_class_bars(title, found, name) for name in classes]
    return panel(
        title,
        bars,
        height=round(_ROW_PX * len(found) + 150),
        has_table=True,
        barmode="stack",
        margin={"l": 10, "r": 10, "t": 90, "b": 50},
        uniformtext={"minsize": 9, "mode": "hide"},
        xaxis={"range": [0, 100], "title": {"text": "% of arrivals"}},
        yaxis={"type": "category", "autorange": "reversed"},
    )


def _class_bars(title: str, found: Sequence[Standing], name: str) -> Json:
    """The bars of one class of an account, for each policy."""
    shares_pct = [100 * item.account.shares[name] for item in found]
    label = name.replace("_", " ")
    return {
        "type": "bar",
        "orientation": "h",
        "x": shares_pct,
        "y": [escape(shown(item.policy)) for item in found],
        "name": label,
        "marker": {"color": LOSSES[name]},
        "text": [f"{share:.1f}" for share in shares_pct],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertext": [
            f"{_heading(item.policy, title)}<br>{label} {share:.2f} %, "
            f"{getattr(item.account, name):,.0f} of {item.account.arrivals:,.0f} requests"
            for item, share in zip(found, shares_pct, strict=True)
        ],
        "hoverinfo": "text",
    }


def _goodput_figure(groups: _Groups) -> Json:
    """A row for each policy: a mark over the first group, and an open one for each of the others."""
    first = next(iter(groups))
    names = _policies(groups)
    data: list[Json] = []
    for name, (colour, look) in policy_looks(names).items():
        own = [(title, item) for title, found in groups.items() for item in found if item.policy == name]
        for is_first in (False, True):
            marked = [pair for pair in own if (pair[0] == first) is is_first and pair[1].total.goodput_pct is not None]
            symbol = _MARKS[look % len(_MARKS)]
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [item.total.goodput_pct for _, item in marked],
                    "y": [escape(shown(name))] * len(marked),
                    "name": escape(shown(name)),
                    "marker": {
                        "color": colour,
                        "size": 13 if is_first else 8,
                        "symbol": symbol if is_first else f"{symbol}-open",
                    },
                    "hovertext": [_standing_text(title, item, groups[title][0].policy) for title, item in marked],
                    "hoverinfo": "text",
                }
            )
    known = [share for mark in data for share in mark["x"]]
    overall = {item.policy: item.total.goodput_pct for item in groups[first]}
    labels = {name: "–" if overall[name] is None else f"{overall[name]:.1f}" for name in names}
    around = max(0.5, 0.05 * (max(known) - min(known))) if known else 0.0
    low, high = (min(known) - around, max(known) + around) if known else (0.0, 100.0)
    is_broken = low > high / 4  # else there is room for the zero
    low = low if is_broken else 0.0
    note = {"note": f"The axis is broken: it begins at {low:.1f} %, not at 0."} if is_broken else {}
    axis = {"range": [low, high], "title": {"text": "goodput, % of arrivals"}}
    foot = {"yref": "paper", "yanchor": 0}
    return note | _rows_figure(data, labels, axis, _break(INK, **foot) if is_broken else [], shows_legend=False)


def _break(colour: str, **place: object) -> list[Json]:
    """Two strokes over what begins beyond the left end of the panel, at this height."""
    across = {"type": "line", "xref": "paper", "xsizemode": "pixel", "ysizemode": "pixel", "xanchor": 0, **place}
    line = {"color": colour, "width": 2}
    return [{**across, "x0": at, "x1": at + 6, "y0": -8, "y1": 8, "line": line} for at in (8, 14)]


def _gap_figure(groups: _Groups) -> Json | None:
    """A bar for each policy over the first group, and a circle for each of the others; ``None`` without any gap.

    Bars that go on beyond the end of the axis are broken.
    """
    gaps = [
        (title, item.policy, 100 * item.gap_closed)
        for title, found in groups.items()
        for item in found
        if item.gap_closed is not None
    ]
    if not gaps:
        return None
    first = next(iter(groups))
    overall, each = ([gap for gap in gaps if (gap[0] == first) is is_first] for is_first in (True, False))
    bars = {"type": "bar", "orientation": "h", "name": escape(first), "marker": {"color": ALL_WORKLOADS}}
    data: list[Json] = [{**bars, **_gap_marks(overall)}]
    if each:
        circle = {"color": INK, "symbol": "circle-open", "size": 8}
        data.append(
            {"type": "scatter", "mode": "markers", "name": "each workload", "marker": circle, **_gap_marks(each)}
        )
    known, shares_pct = {name: share for _, name, share in overall}, [share for _, _, share in gaps]
    low, high = max(_LEAST_SHARE_PCT, min(0.0, *shares_pct)), max(100.0, *shares_pct)
    names = _policies(groups)
    ends = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": INK, "width": 1, "dash": "dot"}}
    shapes: list[Json] = [{**ends, "x0": share_pct, "x1": share_pct} for share_pct in (0, 100)]
    cut = [place for place, name in enumerate(names) if known.get(name, 0.0) < low]
    for place in cut:
        shapes += _break(PAPER, yref="y", yanchor=place)
    note = {"note": f"Broken bars go on beyond {low:.0f} %, where the axis ends."} if cut else {}
    axis = {"range": [low - 5, high + 5], "title": {"text": "gap closed, %"}}
    labels = {name: f"{known[name]:.0f}" if name in known else "–" for name in names}
    return note | _rows_figure(data, labels, axis, shapes, shows_legend=len(data) > 1)


def _gap_marks(gaps: Sequence[tuple[str, str, float]]) -> Json:
    """Marks for gaps closed: group, policy and percentage each."""
    return {
        "x": [share for _, _, share in gaps],
        "y": [escape(shown(name)) for _, name, _ in gaps],
        "hovertext": [f"{_heading(name, title)}<br>{share:.1f} %" for title, name, share in gaps],
        "hoverinfo": "text",
    }


def _rows_figure(
    data: Sequence[Json], labels: Mapping[str, str], xaxis: Json, shapes: Sequence[Json], *, shows_legend: bool
) -> Json:
    """A row for each policy, the first on top, with its label beside its name."""
    names = [escape(shown(name)) for name in labels]
    rows = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "range": [len(labels) - 0.5, -0.5],
        "tickvals": names,
        "ticktext": [f"{name}  {label}" for name, label in zip(names, labels.values(), strict=True)],
    }
    top_px = 50 if shows_legend else 10
    return panel(
        "",
        data,
        height=_ROW_PX * len(labels) + top_px + 50,
        has_table=True,
        margin={"l": 10, "r": 10, "t": top_px, "b": 50},
        hovermode="closest",
        shapes=[*shapes],
        xaxis=xaxis,
        yaxis=rows,
        showlegend=shows_legend,
    )


def _layouts(scores: Sequence[MatchScore]) -> dict[str, dict[str, Json | None]]:
    """By workload and policy, who held what in its first segment; ``None`` where tenants had no parts of the GPU."""
    found: dict[str, dict[str, Json | None]] = {}
    for score in scores:
        if (whole := score.holding) is not None:
            end_s = max((span.end_s for span in whole.spans), default=0.0)
            figure = panel(
                shown(score.policy),
                [*held_bars(whole)],
                height=_LAYOUT_PX,
                barmode="overlay",
                showlegend=False,
                hovermode="closest",
                uniformtext={"minsize": 9, "mode": "hide"},
                margin={"l": 30, "r": 10, "t": 8, "b": 40},
                xaxis={"range": [0, end_s], "title": {"text": "second"}},
                yaxis=rows_axis(whole),
            )
            found.setdefault(score.workload, {})[score.policy] = figure if whole.spans else None
    return found


def _heading(policy: str, title: str) -> str:
    return f"<b>{escape(shown(policy))}</b>, {escape(title)}"


def _standing_text(title: str, item: Standing, reference: str) -> str:
    """All that is known of a standing, for its bar."""
    *figures, ahead = named(STANDINGS, ("goodput", "in time", "accuracy", f"over {FLOOR}", "ahead"))
    known = (column for column in figures if column.value(item) is not None)
    lines = [_heading(item.policy, title), *(f"{one.name} {one.shown(item)} {one.unit}" for one in known)]
    if item.ahead is not None:
        points, _, interval = str(ahead.shown(item)).partition(" ")
        lines.append(f"ahead of {escape(shown(reference))} {points} points {interval}".rstrip())
    return "<br>".join(lines)


def _policies(groups: _Groups) -> list[str]:
    return list(dict.fromkeys(item.policy for found in groups.values() for item in found))
