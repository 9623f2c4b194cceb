"""A grid of plans as one HTML page: goodput, gap and solve time over the grid. Opens without a network.

The first key with several values lies along x, the second is the colour; every combination of the others has a column
of panels of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import TYPE_CHECKING

from migrator.errors import MigratorError
from migrator.whatif.grid import Choice, Factor, Point, Variation, shown, shown_point
from migrator.whatif.sweep import Outcome, Sweep

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which people tell apart who see colours differently."""

_SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open", "cross-open")
"""Open, so that marks on top of each other are seen; and for whoever cannot tell the colours apart at all."""

_PANEL_PX = (420, 250)
_LEAST_WIDTH_PX = 800
_AROUND_PX = 190
"""Height of title, column titles, x axis and legend."""


@dataclass(frozen=True)
class _Measure:
    title: str
    of: Callable[[Outcome], float | None]


_MEASURES = (
    _Measure("goodput, % of arrivals", lambda outcome: outcome.goodput_pct),
    _Measure("gap, %", lambda outcome: None if outcome.gap is None else 100 * outcome.gap),
    _Measure("solve time, s", lambda outcome: None if outcome.goodput is None else outcome.solve_s),
)


@dataclass(frozen=True)
class _Roles:
    """What lies along x, what is the colour, and what makes columns; keys with one value are none of these."""

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

    def position(self, outcome: Outcome) -> float | str:
        """Where the outcome lies along x."""
        value = next(choice.value for choice in outcome.point if choice in self.x.choices)
        if self.is_numeric:
            assert isinstance(value, (int, float, Factor))
            return value.by if isinstance(value, Factor) else float(value)
        return shown(value)

    @property
    def series(self) -> tuple[Choice | None, ...]:
        """The choices of the second key; ``None`` stands for everything where there is none."""
        return (None,) if self.colour is None else self.colour.choices


def require_plotly() -> None:
    """Refuse a plot where it cannot be made.

    Raises:
        MigratorError: plotly is not installed; names the extra that brings it.
    """
    try:
        import plotly  # noqa: F401, PLC0415 - an optional extra
    except ImportError:
        raise MigratorError("--plot needs plotly; install the extra: pip install 'migrator[plot]'") from None


def sweep_to_html(sweep: Sweep) -> str:
    """The page, with all that it needs inside; the same for the same sweep.

    Raises:
        MigratorError: plotly is not installed.
    """
    require_plotly()
    html: str = _figure(sweep).to_html(include_plotlyjs=True, div_id="whatif", config={"displaylogo": False})
    return html


def _figure(sweep: Sweep) -> Figure:
    from plotly.subplots import make_subplots  # noqa: PLC0415 - heavy, and an optional extra

    roles = _Roles.of(sweep)
    figure = make_subplots(
        rows=len(_MEASURES),
        cols=len(roles.facets),
        shared_xaxes=True,
        shared_yaxes=True,
        vertical_spacing=0.05,
        horizontal_spacing=0.1 / len(roles.facets),
        column_titles=[escape(shown_point(facet)) for facet in roles.facets],
    )
    for column, facet in enumerate(roles.facets, start=1):
        inside = [outcome for outcome in sweep.outcomes if set(facet) <= set(outcome.point)]
        _add_lines(figure, column, inside, roles)
        _add_planless(figure, column, inside, roles, _floor(sweep))
    _lay_out(figure, sweep, roles)
    return figure


def _add_lines(figure: Figure, column: int, outcomes: Sequence[Outcome], roles: _Roles) -> None:
    for index, choice in enumerate(roles.series):
        own = [outcome for outcome in outcomes if choice is None or choice in outcome.point]
        if roles.is_numeric:
            own.sort(key=roles.position)
        for row, measure in enumerate(_MEASURES, start=1):
            figure.add_scatter(
                row=row,
                col=column,
                x=[roles.position(outcome) for outcome in own],
                y=[measure.of(outcome) for outcome in own],
                mode="lines+markers" if roles.is_numeric else "markers",
                marker=_marker(index),
                cliponaxis=False,
                name="" if choice is None else escape(shown(choice.value)),
                legendgroup=str(choice),
                showlegend=choice is not None and (row, column) == (1, 1),
                hovertext=[_told(outcome) for outcome in own],
                hoverinfo="text",
            )


def _marker(index: int) -> dict[str, object]:
    colour, symbol = _COLOURS[index % len(_COLOURS)], _SYMBOLS[index % len(_SYMBOLS)]
    return {"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2}}


def _add_planless(figure: Figure, column: int, outcomes: Sequence[Outcome], roles: _Roles, floor: float) -> None:
    """Crosses at the foot of the goodput panel, where there is no plan."""
    planless = [outcome for outcome in outcomes if outcome.goodput is None]
    if planless:
        figure.add_scatter(
            row=1,
            col=column,
            x=[roles.position(outcome) for outcome in planless],
            y=[floor] * len(planless),
            mode="markers",
            marker={"color": "#777777", "symbol": "x", "size": 9},
            name="no plan",
            legendgroup="no plan",
            showlegend=column == 1,
            hovertext=[_told(outcome) for outcome in planless],
            hoverinfo="text",
        )


def _floor(sweep: Sweep) -> float:
    """A height just below every share of goodput."""
    shares = [outcome.goodput_pct for outcome in sweep.outcomes if outcome.goodput_pct is not None]
    return min(shares) - max(1.0, 0.1 * (max(shares) - min(shares))) if shares else 0.0


def _told(outcome: Outcome) -> str:
    """All of an outcome, for whoever points at it."""
    lines = [f"<b>{escape(shown_point(outcome.point))}</b>", f"{outcome.status}, {outcome.model} by {outcome.engine}"]
    if outcome.reason is not None:
        lines.append(escape(outcome.reason))
    if outcome.goodput is not None and outcome.goodput_pct is not None:
        lines.append(f"goodput {outcome.goodput:.0f} requests, {outcome.goodput_pct:.2f} % of {outcome.arrivals:.0f}")
    if outcome.gap is not None:
        lines.append(f"gap {100 * outcome.gap:.3f} %, solved in {outcome.solve_s:.2f} s")
    for tenant in outcome.tenants:
        share = "–" if tenant.goodput_pct is None else f"{tenant.goodput_pct:.2f} %"
        run = tenant.retraining
        retrains = "" if run is None else f", retrains on {run.where}, steps {run.start_step}–{run.end_step}"
        lines.append(f"{escape(tenant.name)}: {share}{escape(retrains)}")
    return "<br>".join(lines)


def _lay_out(figure: Figure, sweep: Sweep, roles: _Roles) -> None:
    fixed = [variation.choices for variation in sweep.grid.variations if len(variation.choices) == 1]
    also = "".join(f", {escape(str(choices[0]))}" for choices in fixed if choices is not roles.x.choices)
    notes = "".join(f"; {escape(note)}" for note in sweep.notes)
    width, height = _PANEL_PX
    figure.update_layout(
        title={
            "text": f"{escape(sweep.name)}: expected goodput of plans, nothing was run"
            f"<br><sup>arrivals: {escape(sweep.forecast)}{also}{notes}; point at a mark for its figures</sup>"
        },
        template="simple_white",
        width=max(_LEAST_WIDTH_PX, width * len(roles.facets)),
        height=height * len(_MEASURES) + _AROUND_PX,
        hovermode="closest",
        showlegend=True,
        legend_title_text="" if roles.colour is None else escape(roles.colour.name),
    )
    figure.update_xaxes(title_text=roles.x_title, row=len(_MEASURES))
    if not roles.is_numeric:
        names = [shown(choice.value) for choice in roles.x.choices]
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    for row, measure in enumerate(_MEASURES, start=1):
        figure.update_yaxes(title_text=measure.title, row=row, col=1)
        figure.update_yaxes(showgrid=True, gridcolor="#e6e6e6", row=row, rangemode="normal" if row == 1 else "tozero")
