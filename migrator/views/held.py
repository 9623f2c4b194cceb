"""Who holds what of a GPU over time, as bars of a page's figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from migrator.log.timeline import ON_LOAN, PHASES, Holding
from migrator.views.page import Json
from migrator.views.palette import PAGE_TENANTS

OTHERS = "#8C8C8C"
"""What is nobody's of ours."""

_PATTERNS = {
    "creating": "x",
    "starting": "/",
    "serving": "",
    "retraining": ".",
    ON_LOAN: "\\",
    "ending": "-",
    "others": "+",
}
"""By phase, so that it is seen without colours."""

_THIN_ROWS = 0.3
"""Bars below this height have no outline, which would cover them."""


def rows_text(whole: Holding) -> str:
    """What the rows of a figure are."""
    return "who holds which memory slices" if whole.is_sliced else "who has which twentieths of the GPU"


def rows_axis(whole: Holding) -> Json:
    """The vertical axis: the first row on top, and slices by their numbers."""
    numbers = range(whole.n_rows)
    ticks = {"tickvals": [row + 0.5 for row in numbers], "ticktext": [str(row) for row in numbers]}
    return {"range": [whole.n_rows, 0], "showgrid": False, "zeroline": False, **(ticks if whole.is_sliced else {})}


def are_by_model(whole: Holding) -> bool:
    """Whether there are more tenants than colours, so that a colour is a model's."""
    return len(whole.tenants) > len(PAGE_TENANTS)


def tenant_colours(whole: Holding) -> dict[str, str]:
    """By tenant; of more tenants than there are colours, those of one model have one."""
    models = list(dict.fromkeys(model for _, model in whole.tenants))
    places = [models.index(model) if are_by_model(whole) else n for n, (_, model) in enumerate(whole.tenants)]
    return {name: PAGE_TENANTS[at % len(PAGE_TENANTS)] for (name, _), at in zip(whole.tenants, places, strict=True)}


def colour_legend(whole: Holding) -> dict[str, str]:
    """What each colour stands for: a tenant, or a model."""
    colours = tenant_colours(whole)
    return {model if are_by_model(whole) else name: colours[name] for name, model in whole.tenants}


def shown_phases(wholes: Iterable[Holding]) -> tuple[str, ...]:
    """The phases to explain: all, but loans only where there are any."""
    has_loans = any(span.phase == ON_LOAN for whole in wholes for span in whole.spans)
    return tuple(phase for phase in PHASES if has_loans or phase != ON_LOAN)


def held_bars(whole: Holding) -> Iterator[Json]:
    """A bar a span, in its tenant's colour with its phase's pattern, and with its name where colours are of models."""
    colours = tenant_colours(whole)
    owners: list[tuple[str | None, str]] = [(name, phase) for name in colours for phase in PHASES if phase != "others"]
    for tenant, phase in [*owners, (None, "others")]:
        own = [span for span in whole.spans if (span.tenant, span.phase) == (tenant, phase)]
        if not own:
            continue
        whose = "others" if tenant is None else f"{escape(tenant)}, {phase}"
        behind = f" {escape(tenant)}" if tenant is not None and are_by_model(whole) else ""
        is_told = phase in ("serving", "retraining", ON_LOAN)
        heights = [span.end_row - span.first_row for span in own]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": whose,
            "base": [round(span.begin_s, 3) for span in own],
            "x": [round(span.end_s - span.begin_s, 3) for span in own],
            "y": [(span.first_row + span.end_row) / 2 for span in own],
            "width": [height - min(0.08, 0.15 * height) for height in heights],
            "text": [escape(span.what.partition(".")[0]) + behind if is_told else "" for span in own],
            "textposition": "inside",
            "insidetextanchor": "start",
            "textangle": 0,
            "marker": {
                "color": colours.get(tenant or "", OTHERS),
                "pattern": {"shape": _PATTERNS[phase], "fillmode": "overlay", "fgcolor": "#ffffff", "size": 6},
                "line": {"width": [0.5 if height >= _THIN_ROWS else 0 for height in heights], "color": "#ffffff"},
            },
            "customdata": [[span.what, round(span.begin_s, 3), round(span.end_s, 3)] for span in own],
            "hovertemplate": "%{customdata[0]}: %{customdata[1]:,.1f} to %{customdata[2]:,.1f} s<extra>"
            + whose
            + "</extra>",
        }
