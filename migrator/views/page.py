"""What pages have in common: each is one file that opens without a network, in one design, light and dark.

Figures are plotly's, written as JSON into the page; a script of the page draws them in the reader's colours. The
library itself lies in the page compressed, and the browser unpacks it.
"""

from __future__ import annotations

import gzip
import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from migrator.errors import MigratorError
from migrator.extras import lacking
from migrator.views.palette import IN_THE_DARK

if TYPE_CHECKING:
    from jinja2 import Environment

Json = dict[str, Any]

INK, PAPER = "ink", "paper"
"""In a figure, the colours of the page's text and of its ground, which differ in the light and in the dark."""


def require_plot_extra(option: str = "--plot") -> None:
    """Refuse a page where it cannot be made; ``option`` asked for it.

    Raises:
        MigratorError: A library is not installed; names the extra that brings it.
    """
    if lacks := lacking("plot"):
        raise MigratorError(f"{option} {lacks}")


def page(template: str, figures: Mapping[str, Json | None], **parts: object) -> str:
    """The template filled with ``parts``, whose text is escaped, and with ``figures``, by the ids of their places.

    A figure has ``data`` and ``layout`` as plotly has them; a ``title`` and a ``note`` may be above and below it.
    ``panels``, title and vertical axis each, are those whose numbers no table of the page has. The page is the
    same for the same parts.
    """
    drawn = {name: one for name, one in figures.items() if one}
    return (
        _templates()
        .get_template(template)
        .render(parts, figures=drawn, data=_as_json(drawn), dark=_as_json(IN_THE_DARK), plotly=_packed_plotly())
    )


def panel(title: str, data: Sequence[Json], height: int = 300, *, has_table: bool = False, **layout: object) -> Json:
    """A figure of one panel, as wide as there is room: a title, which is text of the page, then a legend above it.

    ``has_table``: a table of the page has its numbers.
    """
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}
    places = {"legend": legend, "margin": {"l": 50, "r": 10, "t": 60, "b": 45}}
    told = {} if has_table else {"panels": [[title, "y"]]}
    return {"title": title, "data": [*data], "layout": {"height": height, **places, **layout}, **told}


@cache
def _packed_plotly() -> str:
    """The library, by gzip and then in letters that may be within a script; packed once a process."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - heavy, and an optional extra

    return b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _as_json(value: object) -> str:
    """The value as JSON that may be within a script."""
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The value with ``None`` for numbers that are none, which JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def _templates() -> Environment:
    """The environment of all templates, each of them compiled once a process."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an optional extra

    return Environment(
        loader=PackageLoader("migrator", "views"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
