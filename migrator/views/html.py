"""Pages of a comparison of policies and of a grid of plans.

Bars and marks are the figures of the tables that the commands print. A figure that is unknown is left out. The text of
the pages is in the templates beside this file; plotly reads HTML as well, so what goes into a figure is escaped here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import TYPE_CHECKING

from migrator.comparison.matches import CEILING, FLOOR, LEAST_SEGMENTS, Fairness, MatchScore, Standing, standings
from migrator.views.compare import STANDINGS, assumed_by_all, by_workload, extent, far_from_plans, setup_text
from migrator.views.page import page, require_plot_extra
from migrator.views.palette import ALL_WORKLOADS, LOSSES, VALUES, policy_looks, shown
from migrator.views.table import named
from migrator.views.whatif import answer_lines, confirmed_lines
from migrator.whatif.confirm import Confirmed
from migrator.whatif.grid import Choice, Factor, Point, Variation, point_text
from migrator.whatif.search import METRICS, UNMEASURED, Condition, Found
from migrator.whatif.sweep import PointOutcome, Sweep

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MARKS = ("circle", "square", "diamond", "cross")
"""For policies from files beyond the colours that they have."""

_SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open", "cross-open")
"""Open, so that marks on top of each other are seen; they differ also for readers who see no colours."""

_GRID = {"showgrid": True, "gridcolor": "#e6e6e6"}

_ROW_PX = 24
_GAP_PX = 50
"""Between panels: the title of the next."""

_MARGIN_PX = {"t": 90, "b": 60, "l": 160, "r": 20}
_LEGEND = {"orientation": "h", "x": 0, "y": 1, "yanchor": "top", "yref": "container", "traceorder": "normal"}
"""Above the panels, in sight however wide the page is."""

_CLASSES_PX = 120
"""Above the account's panels: four rows of the legend on a narrow page, and the first panel's title."""

_PANEL_PX = (420, 250)
_AROUND_PX = 150
"""Height of column titles, x axis and margins around a grid's panels."""


# --- a comparison of policies


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
    notes: dict[tuple[str, str], list[str]] = {}
    for score in scores:
        for note in score.notes:
            kind, text = note
            notes.setdefault((kind, without_folders(text)), []).append(score.workload)
    return page(
        "compare.html.j2",
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
        account=_account_figure(groups, tuple(_CLASSES)),
        goodput=_goodput_figure(groups),
        gap=_gap_figure(groups),
        least_segments=LEAST_SEGMENTS,
        floor=FLOOR,
        ceiling=CEILING,
        shown_ceiling=shown(CEILING),
    )


def without_folders(text: str) -> str:
    """The text with files instead of their full paths, which say something of this machine alone."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/;,]+/)+", "", text)


def _groups(scores: Sequence[MatchScore]) -> _Groups:
    each = {name: standings(own) for name, own in by_workload(scores).items()}
    return {f"all {len(each)} workloads": standings(scores), **each} if len(each) > 1 else each


def _account_figure(groups: _Groups, classes: Sequence[str]) -> Figure:
    """A panel for each group with a stacked bar for each policy; the first policy on top."""
    from plotly.subplots import make_subplots  # noqa: PLC0415 - heavy, and an optional extra

    panel_px = 1.4 * _ROW_PX * max(map(len, groups.values()))
    inner_px = max(3 * _GAP_PX, panel_px * len(groups) + _GAP_PX * (len(groups) - 1))
    figure = make_subplots(
        rows=len(groups),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=_GAP_PX / inner_px,
        subplot_titles=list(map(escape, groups)),
    )
    for row, (title, found) in enumerate(groups.items(), start=1):
        for name in classes:
            _add_class(figure, row, title, found, name)
    figure.update_layout(
        barmode="stack",
        template="simple_white",
        height=inner_px + _CLASSES_PX + _MARGIN_PX["b"],
        margin={**_MARGIN_PX, "t": _CLASSES_PX},
        uniformtext={"minsize": 9, "mode": "hide"},
        legend=_LEGEND,
    )
    figure.update_xaxes(range=[0, 100])
    figure.update_xaxes(title_text="% of arrivals", row=len(groups))
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def _add_class(figure: Figure, row: int, title: str, found: Sequence[Standing], name: str) -> None:
    """The bars of one class of an account, for each policy of the panel."""
    shares_pct = [100 * item.account.shares[name] for item in found]
    label = name.replace("_", " ")
    figure.add_bar(
        row=row,
        col=1,
        orientation="h",
        x=shares_pct,
        y=[escape(shown(item.policy)) for item in found],
        name=label,
        legendgroup=name,
        showlegend=row == 1,
        marker={"color": LOSSES[name]},
        text=[f"{share:.1f}" for share in shares_pct],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        hovertext=[
            f"{_heading(item.policy, title)}<br>{label} {share:.2f} %, "
            f"{getattr(item.account, name):,.0f} of {item.account.arrivals:,.0f} requests"
            for item, share in zip(found, shares_pct, strict=True)
        ],
        hoverinfo="text",
    )


def _goodput_figure(groups: _Groups) -> Figure:
    """A row for each policy: a mark over the first group, and an open one for each of the others."""
    from plotly.graph_objects import Figure  # noqa: PLC0415 - heavy, and an optional extra

    figure, first = Figure(), next(iter(groups))
    names = _policies(groups)
    known: list[float] = []
    for name, (colour, look) in policy_looks(names).items():
        own = [(title, item) for title, found in groups.items() for item in found if item.policy == name]
        for is_first in (False, True):
            marked = [pair for pair in own if (pair[0] == first) is is_first and pair[1].total.goodput_pct is not None]
            shares_pct = [item.total.goodput_pct for _, item in marked if item.total.goodput_pct is not None]
            known += shares_pct
            symbol = _MARKS[look % len(_MARKS)]
            figure.add_scatter(
                mode="markers",
                x=shares_pct,
                y=[escape(shown(name))] * len(marked),
                name=escape(shown(name)),
                marker={
                    "color": colour,
                    "size": 13 if is_first else 8,
                    "symbol": symbol if is_first else f"{symbol}-open",
                },
                hovertext=[_standing_text(title, item, groups[title][0].policy) for title, item in marked],
                hoverinfo="text",
                showlegend=False,
            )
    overall = {item.policy: item.total.goodput_pct for item in groups[first]}
    labels = {name: "–" if overall[name] is None else f"{overall[name]:.1f}" for name in names}
    around = max(0.5, 0.05 * (max(known) - min(known))) if known else 0.0
    _lay_out_rows(figure, labels)
    if known:
        figure.update_xaxes(range=[min(known) - around, max(known) + around])
    figure.update_xaxes(title_text="goodput, % of arrivals", **_GRID)
    return figure


def _gap_figure(groups: _Groups) -> Figure | None:
    """A bar for each policy over the first group, and a circle for each of the others; ``None`` without any gap."""
    from plotly.graph_objects import Figure  # noqa: PLC0415 - heavy, and an optional extra

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
    figure = Figure()
    figure.add_bar(orientation="h", name=escape(first), marker={"color": ALL_WORKLOADS}, **_gap_marks(overall))
    if each:
        circle = {"color": "#222222", "symbol": "circle-open", "size": 8}
        figure.add_scatter(mode="markers", name="each workload", marker=circle, **_gap_marks(each))
    known, shares_pct = {name: share for _, name, share in overall}, [share for _, _, share in gaps]
    low, high = max(_LEAST_SHARE_PCT, min(0.0, *shares_pct)), max(100.0, *shares_pct)
    _lay_out_rows(figure, {name: f"{known[name]:.0f}" if name in known else "–" for name in _policies(groups)})
    figure.update_layout(showlegend=len(figure.data) > 1, legend=_LEGEND)
    figure.update_xaxes(title_text="gap closed, %", range=[low - 5, high + 5], **_GRID)
    for share_pct in (0, 100):
        figure.add_vline(x=share_pct, line={"color": "#555555", "width": 1, "dash": "dot"}, opacity=1)
    return figure


def _gap_marks(gaps: Sequence[tuple[str, str, float]]) -> dict[str, object]:
    """Marks for gaps closed: group, policy and percentage each."""
    return {
        "x": [share for _, _, share in gaps],
        "y": [escape(shown(name)) for _, name, _ in gaps],
        "hovertext": [f"{_heading(name, title)}<br>{share:.1f} %" for title, name, share in gaps],
        "hoverinfo": "text",
    }


def _lay_out_rows(figure: Figure, labels: Mapping[str, str]) -> None:
    """Give each policy a row, the first on top, with its label beside its name."""
    figure.update_layout(
        template="simple_white",
        height=1.3 * _ROW_PX * len(labels) + _MARGIN_PX["t"] + _MARGIN_PX["b"],
        margin=_MARGIN_PX,
    )
    figure.update_yaxes(
        type="category",
        categoryorder="array",
        categoryarray=[escape(shown(name)) for name in labels],
        range=[len(labels) - 0.5, -0.5],
        tickvals=[escape(shown(name)) for name in labels],
        ticktext=[f"{escape(shown(name))}  {label}" for name, label in labels.items()],
    )


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


# --- a grid of plans

_MEASURES: tuple[tuple[str, Callable[[PointOutcome], float | None]], ...] = (
    ("goodput, % of arrivals", lambda outcome: outcome.goodput_pct),
    ("planned in time, % of arrivals", lambda outcome: outcome.slo_attainment_pct),
    ("gap, %", lambda outcome: None if outcome.gap is None else 100 * outcome.gap),
    ("solve time, s", lambda outcome: None if outcome.goodput is None else outcome.solve_s),
)
"""A row of panels each."""


@dataclass(frozen=True)
class _Roles:
    """What each key of the grid does; keys with one value have no role.

    Attributes:
        x: The first key with several values lies along x.
        colour: The second is the colour.
        facets: Every combination of the others has a column of panels.
    """

    x: Variation
    colour: Variation | None
    facets: tuple[Point, ...]

    @classmethod
    def of(cls, sweep: Sweep) -> _Roles:
        several = [variation for variation in sweep.grid.variations if len(variation.choices) > 1]
        x, *rest = several or sweep.grid.variations[:1]
        facets = product(*(variation.choices for variation in rest[1:]))
        return cls(x, rest[0] if rest else None, tuple(facets))

    @property
    def is_numeric(self) -> bool:
        """Whether x is a line of numbers, or of factors, and not of names."""
        kinds = {type(choice.value) for choice in self.x.choices}
        return kinds in ({int}, {float}, {Factor})

    @property
    def x_title(self) -> str:
        are_factors = isinstance(self.x.choices[0].value, Factor) and self.is_numeric
        return escape(self.x.name) + (", × the config's" if are_factors else "")

    def position(self, outcome: PointOutcome) -> float | str:
        """Where the outcome lies along x."""
        choice = next(choice for choice in outcome.point if choice in self.x.choices)
        value = choice.value.by if isinstance(choice.value, Factor) else choice.value
        return float(value) if self.is_numeric else choice.text

    @property
    def series(self) -> tuple[Choice | None, ...]:
        """The choices of the second key; ``None`` stands for everything where there is none."""
        return (None,) if self.colour is None else self.colour.choices


def sweep_to_html(sweep: Sweep, found: Found | None = None, confirmed: Confirmed | None = None) -> str:
    """The page of a grid; the same for the same sweep. What was found stands above it, as it is printed.

    Shares that all tenants together are to keep are lines.

    Raises:
        MigratorError: The libraries of the extra are not installed.
    """
    require_plot_extra()
    roles = _Roles.of(sweep)
    alone = [variation.choices[0] for variation in sweep.grid.variations if len(variation.choices) == 1]
    fixed = [choice for choice in alone if choice not in roles.x.choices]
    unmeasured: dict[str, list[str]] = {}
    for outcome in sweep.outcomes:
        if outcome.status == UNMEASURED:
            unmeasured.setdefault(outcome.reason or "", []).append(point_text(outcome.point))
    answer = [] if found is None else list(answer_lines(found))
    if found is not None and confirmed is not None:
        answer = [*confirmed_lines(found, confirmed), *answer]
    return page(
        "whatif.html.j2",
        sweep=sweep,
        is_of_plans=confirmed is None,
        answer=answer,
        fixed=fixed,
        assumed=sweep.assumed,
        unmeasured=unmeasured,
        grid=_grid_figure(sweep, roles, () if found is None else found.conditions),
    )


def _grid_figure(sweep: Sweep, roles: _Roles, conditions: Sequence[Condition]) -> Figure:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - heavy, and an optional extra

    figure = make_subplots(
        rows=len(_MEASURES),
        cols=len(roles.facets),
        shared_xaxes=True,
        shared_yaxes=True,
        vertical_spacing=0.05,
        horizontal_spacing=0.1 / len(roles.facets),
        column_titles=[escape(point_text(facet)) for facet in roles.facets],
    )
    for column, facet in enumerate(roles.facets, start=1):
        inside = [outcome for outcome in sweep.outcomes if set(facet) <= set(outcome.point)]
        _add_lines(figure, column, inside, roles)
        _add_planless(figure, column, inside, roles, _foot(sweep))
    for row, metric in enumerate(METRICS, start=1):
        own = [condition for condition in conditions if condition.metric == metric and condition.tenant is None]
        for condition in own:
            figure.add_hline(y=100 * condition.share, row=row, line={"width": 1, "dash": "dash"}, opacity=1)
        if own:  # above the panel, where no data are
            figure.add_annotation(
                row=row,
                col=1,
                text=f"dashed: {escape(' and '.join(map(str, own)))}",
                showarrow=False,
                xref="x domain",
                x=1,
                xanchor="right",
                yref="y domain",
                y=1,
                yanchor="bottom",
            )
    _lay_out_grid(figure, roles)
    return figure


def _add_lines(figure: Figure, column: int, outcomes: Sequence[PointOutcome], roles: _Roles) -> None:
    for index, choice in enumerate(roles.series):
        own = [outcome for outcome in outcomes if choice is None or choice in outcome.point]
        if roles.is_numeric:
            own.sort(key=roles.position)
        colour, symbol = VALUES[index % len(VALUES)], _SYMBOLS[index % len(_SYMBOLS)]
        for row, (_, measure) in enumerate(_MEASURES, start=1):
            figure.add_scatter(
                row=row,
                col=column,
                y=[measure(outcome) for outcome in own],
                mode="lines+markers" if roles.is_numeric else "markers",
                marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2}},
                cliponaxis=False,
                name="" if choice is None else escape(choice.text),
                legendgroup=str(choice),
                showlegend=choice is not None and (row, column) == (1, 1),
                **_along_x(own, roles),
            )


def _add_planless(figure: Figure, column: int, outcomes: Sequence[PointOutcome], roles: _Roles, foot: float) -> None:
    """Crosses at the foot of the goodput panel, where there is no plan."""
    planless = [outcome for outcome in outcomes if outcome.goodput is None and outcome.status != UNMEASURED]
    if planless:
        figure.add_scatter(
            row=1,
            col=column,
            y=[foot] * len(planless),
            mode="markers",
            marker={"color": "#777777", "symbol": "x", "size": 9},
            name="no plan",
            legendgroup="no plan",
            showlegend=column == 1,
            **_along_x(planless, roles),
        )


def _along_x(outcomes: Sequence[PointOutcome], roles: _Roles) -> dict[str, object]:
    """Where the marks of outcomes lie along x, and what they say when they are pointed at."""
    return {
        "x": [roles.position(outcome) for outcome in outcomes],
        "hovertext": [_outcome_text(outcome) for outcome in outcomes],
        "hoverinfo": "text",
    }


def _foot(sweep: Sweep) -> float:
    """A height just below every share of goodput."""
    shares = [outcome.goodput_pct for outcome in sweep.outcomes if outcome.goodput_pct is not None]
    return min(shares) - max(1.0, 0.1 * (max(shares) - min(shares))) if shares else 0.0


def _outcome_text(outcome: PointOutcome) -> str:
    """All that is known of an outcome."""
    lines = [f"<b>{escape(point_text(outcome.point))}</b>", f"{outcome.status}, {outcome.model} by {outcome.engine}"]
    if outcome.reason is not None:
        lines.append(escape(outcome.reason))
    if outcome.goodput is not None and outcome.goodput_pct is not None:
        lines.append(f"goodput {outcome.goodput:,.0f} requests, {outcome.goodput_pct:.2f} % of {outcome.arrivals:,.0f}")
    if outcome.salvage is not None:
        lines.append(f"salvage {outcome.salvage:,.0f} requests beyond the window")
    if outcome.slo_attainment_pct is not None:
        lines.append(f"planned in time {outcome.slo_attainment_pct:.2f} %")
    if outcome.goodput is not None:
        gaps = (("gap", outcome.gap), ("claimed gap", outcome.claimed_gap))
        told = (f"{name} {'–' if gap is None else f'{100 * gap:.3f} %'}" for name, gap in gaps)
        lines.append(f"{', '.join(told)}, solved in {outcome.solve_s:.2f} s")
    for tenant in outcome.tenants:
        share = "–" if tenant.goodput_pct is None else f"{tenant.goodput_pct:.2f} %"
        share += "" if tenant.slo_attainment_pct is None else f", in time {tenant.slo_attainment_pct:.2f} %"
        run = tenant.retraining
        retrains = "" if run is None else f", retrains on {run.where}, steps {run.start_step}–{run.end_step}"
        lines.append(f"{escape(tenant.name)}: {share}{escape(retrains)}")
    return "<br>".join(lines)


def _lay_out_grid(figure: Figure, roles: _Roles) -> None:
    width, height = _PANEL_PX
    figure.update_layout(
        template="simple_white",
        **({"width": width * len(roles.facets)} if len(roles.facets) > 2 else {}),
        height=height * len(_MEASURES) + _AROUND_PX,
        margin={"t": 60},
        hovermode="closest",
        showlegend=True,
        legend_title_text="" if roles.colour is None else escape(roles.colour.name),
    )
    figure.update_xaxes(title_text=roles.x_title, separatethousands=True, row=len(_MEASURES))
    if not roles.is_numeric:
        names = [choice.text for choice in roles.x.choices]
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    for row, (title, _) in enumerate(_MEASURES, start=1):
        figure.update_yaxes(title_text=title, row=row, col=1)
        figure.update_yaxes(row=row, rangemode="normal" if row == 1 else "tozero", **_GRID)
