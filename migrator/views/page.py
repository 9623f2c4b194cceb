"""What pages have in common: each is one file that opens without a network."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from migrator.errors import MigratorError
from migrator.extras import lacking

if TYPE_CHECKING:
    from jinja2 import Environment


def require_plot_extra(option: str = "--plot") -> None:
    """Refuse a page where it cannot be made; ``option`` asked for it.

    Raises:
        MigratorError: A library is not installed; names the extra that brings it.
    """
    if lacks := lacking("plot"):
        raise MigratorError(f"{option} {lacks}")


def page(template: str, **parts: object) -> str:
    """The template filled with ``parts``; figures are drawn, all other text is escaped."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2
    from plotly.graph_objects import Figure  # noqa: PLC0415 - heavy, and an optional extra
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - an optional extra

    def drawn(name: str, figure: Figure) -> Markup:
        settings = {"displaylogo": False, "responsive": True}
        return Markup(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=settings))  # noqa: S704

    figures = {name: drawn(name, part) for name, part in parts.items() if isinstance(part, Figure)}
    plotly = Markup(get_plotlyjs())  # noqa: S704 - a script, from the library itself
    return _templates().get_template(template).render(parts | figures, plotly=plotly)


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
