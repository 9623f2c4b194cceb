"""The page of a grid of plans: what each tenant gets at every point, against what is to be kept.

A column of panels a figure, a curve a tenant; what plans took and how far they are from the best is in the table
alone. Plotly reads HTML, so that names are escaped for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product

from migrator.views.page import INK, Json, page, panel, require_plot_extra
from migrator.views.palette import PAGE_TENANTS
from migrator.views.whatif import answer_lines, confirmed_lines, question_text, sheet_of, tenant_names
from migrator.whatif.confirm import Confirmed
from migrator.whatif.grid import Factor, Point, Variation, point_text
from migrator.whatif.search import UNMEASURED, Condition, Found
from migrator.whatif.sweep import PointOutcome, Sweep

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down")
"""By tenant: they differ also for readers who see no colours."""

_NO_PLAN = "#8C8C8C"

MOST_FACETS = 8
"""Combinations of the keys that do not lie along x which are drawn; the table has all of them."""

_MEASURES = {"slo_attainment": "in time, % of arrivals", "goodput": "in time and right, % of arrivals"}
"""A panel each, by the figure's name in conditions."""


@dataclass(frozen=True)
class _Roles:
    """What each key of the grid does; keys with one value have no role.

    Attributes:
        x: The first key with several values lies along x.
        facets: Every combination of the others has panels of its own.
    """

    x: Variation
    facets: tuple[Point, ...]

    @classmethod
    def of(cls, sweep: Sweep) -> _Roles:
        several = [variation for variation in sweep.grid.variations if len(variation.choices) > 1]
        x, *rest = several or sweep.grid.variations[:1]
        return cls(x, tuple(product(*(variation.choices for variation in rest))))

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


def sweep_to_html(sweep: Sweep, found: Found | None = None, confirmed: Confirmed | None = None) -> str:
    """The page of a grid; the same for the same sweep. The question and what was found are on top, as printed.

    Shares that are to be kept are lines.

    Raises:
        MigratorError: The libraries of the extra are not installed.
    """
    require_plot_extra()
    roles = _Roles.of(sweep)
    alone = [variation.choices[0] for variation in sweep.grid.variations if len(variation.choices) == 1]
    unmeasured: dict[str, list[str]] = {}
    for outcome in sweep.outcomes:
        if outcome.status == UNMEASURED:
            unmeasured.setdefault(outcome.reason or "", []).append(point_text(outcome.point))
    answer = list(_best_lines(sweep)) if found is None else list(answer_lines(found))
    if found is not None and confirmed is not None:
        answer = [*confirmed_lines(found, confirmed), *answer]
    conditions = () if found is None else found.conditions
    drawn = {
        (place, metric): _panel(sweep, roles, facet, metric, conditions)
        for place, facet in enumerate(roles.facets[:MOST_FACETS])
        for metric in _MEASURES
    }
    return page(
        "whatif.html.j2",
        {f"{metric}-{place}": figure for (place, metric), figure in drawn.items()},
        sweep=sweep,
        sheet=sheet_of(sweep, found),
        is_of_plans=confirmed is None,
        question=question_text(sweep, found),
        answer=answer,
        fixed=[choice for choice in alone if choice not in roles.x.choices],
        assumed=sweep.assumed,
        unmeasured=unmeasured,
        n_left_out=len(roles.facets) - min(MOST_FACETS, len(roles.facets)),
    )


def _best_lines(sweep: Sweep) -> Iterator[str]:
    """Where plans promise the most, and which tenant gets the least where."""
    best = sweep.best
    if best is None or best.goodput_pct is None:
        yield "No point has a plan."
        return
    yield f"Plans promise the largest share in time and right at {point_text(best.point)}: {best.goodput_pct:.2f} %"
    shares = [
        (own.slo_attainment_pct, own.name, outcome)
        for outcome in sweep.outcomes
        for own in outcome.tenants
        if own.slo_attainment_pct is not None
    ]
    if shares:
        share_pct, name, outcome = min(shares, key=lambda one: one[0])
        yield f"The least in time: {name}, {share_pct:.2f} % at {point_text(outcome.point)}"


def _panel(sweep: Sweep, roles: _Roles, facet: Point, metric: str, conditions: Sequence[Condition]) -> Json:
    """A curve of all together and of each tenant, crosses where there is no plan, and lines of what is to be kept."""
    outcomes = [one for one in sweep.outcomes if set(facet) <= set(one.point) and one.status != UNMEASURED]
    if roles.is_numeric:
        outcomes.sort(key=roles.position)
    planned = [one for one in outcomes if one.goodput is not None]
    mode = "lines+markers" if roles.is_numeric else "markers"
    names = tenant_names(sweep)
    curves = [_curve(planned, roles, metric, whose) for whose in (None, *names)]
    looks = [(INK, "circle-open", 2.5), *((*_look(n), 1.5) for n in range(len(names)))]
    data: list[Json] = [
        {
            **curve,
            "mode": mode,
            "line": {"color": colour, "width": width},
            "marker": {"color": colour, "symbol": symbol, "size": 9},
            "cliponaxis": False,
        }
        for curve, (colour, symbol, width) in zip(curves, looks, strict=True)
    ]
    if planless := [one for one in outcomes if one.goodput is None]:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "no plan",
                "x": [roles.position(one) for one in planless],
                "y": [0.0] * len(planless),
                "hovertext": [_outcome_text(one) for one in planless],
                "hoverinfo": "text",
                "marker": {"color": _NO_PLAN, "symbol": "x", "size": 9},
                "cliponaxis": False,
            }
        )
    return panel(
        _MEASURES[metric] + (f"; {point_text(facet)}" if facet else ""),
        data,
        height=340,
        has_table=True,
        xaxis=_axis(roles),
        yaxis={"range": [0, 103]},
        showlegend=len(names) <= len(PAGE_TENANTS),  # else it would be higher than the figure
        hovermode="closest",
        **_goals([one for one in conditions if one.metric == metric], names),
    )


def _look(place: int) -> tuple[str, str]:
    """Colour and mark of a tenant."""
    return PAGE_TENANTS[place % len(PAGE_TENANTS)], _SYMBOLS[place // len(PAGE_TENANTS) % len(_SYMBOLS)]


def _curve(outcomes: Sequence[PointOutcome], roles: _Roles, metric: str, tenant: str | None) -> Json:
    """Where the marks lie, and what they say when they are pointed at: of all together, everything that is known."""
    condition, name = Condition(metric, tenant, ">=", 0.0), escape(tenant or "all")
    shares = [condition.value(one) for one in outcomes]
    shares_pct = [None if share is None else 100 * share for share in shares]
    own = {
        "text": [escape(point_text(one.point)) for one in outcomes],
        "hovertemplate": f"<b>{name}</b>, %{{text}}: %{{y:.2f}} %<extra></extra>",
    }
    every = {"hovertext": [_outcome_text(one) for one in outcomes], "hoverinfo": "text"}
    at = {"x": [roles.position(one) for one in outcomes], "y": shares_pct}
    return {"type": "scatter", "name": name, **at, **(every if tenant is None else own)}


def _axis(roles: _Roles) -> Json:
    title = {"title": {"text": roles.x_title}}
    if roles.is_numeric:
        return title
    names = [choice.text for choice in roles.x.choices]
    return {
        **title,
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
        "range": [-0.5, len(names) - 0.5],
    }


def _goals(conditions: Sequence[Condition], names: Sequence[str]) -> Json:
    """A dashed line for each share that is to be kept, in the colour of whose it is, with its condition above it."""
    own: dict[str | None, str] = {None: INK, **{name: _look(n)[0] for n, name in enumerate(names)}}
    at: dict[float, list[Condition]] = {}
    for one in conditions:
        at.setdefault(100 * one.share, []).append(one)
    place = {"type": "line", "xref": "paper", "x0": 0, "x1": 1}
    return {
        "shapes": [
            {**place, "y0": y, "y1": y, "line": {"color": own.get(same[0].tenant, INK), "width": 1.5, "dash": "dash"}}
            for y, same in at.items()
        ],
        "annotations": [
            {
                "text": f"goal: {escape(' and '.join(_goal_text(one) for one in same))}",
                "showarrow": False,
                "xref": "paper",
                "x": 1,
                "xanchor": "right",
                "y": y,
                "yanchor": "bottom" if y < 90 else "top",
            }
            for y, same in at.items()
        ],
    }


def _goal_text(condition: Condition) -> str:
    sign = "≥" if condition.sign == ">=" else "≤"
    return f"{condition.tenant or 'all'} {sign} {100 * condition.share:g} %"


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
