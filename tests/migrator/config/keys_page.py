"""The tables of ``docs/configuration.md``, made from the sections of a config and what their source says of each key.

``python -m tests.migrator.config.keys_page`` writes them anew; ``test_keys_page.py`` holds that the page has them, and
in them every key that a config may have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from migrator.config import sections
from migrator.config.sections import Config, Section
from tests.migrator.log.kinds_page import docs_of

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"

SECTIONS: dict[str, type[Section]] = {
    "top-level": Config,
    "gpu": sections.GpuConfig,
    "tenants": sections.TenantConfig,
    "a-tenants-retraining": sections.RetrainingConfig,
    "retraining": sections.DecisionConfig,
    "learning": sections.LearningConfig,
    "arrivals": sections.ArrivalsConfig,
    "forecast": sections.ForecastConfig,
    "planner": sections.PlannerConfig,
    "estimates": sections.EstimatesConfig,
    "sharing": sections.SharingConfig,
    "simulation": sections.SimulationConfig,
}
"""Those with a heading of their own; the keys of others are told with their path."""

_TABLE = re.compile(r"<!-- made from (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)


def section_in(hint: Any) -> type[Section] | None:
    """The section that a key holds: itself, one or none, or a list of them."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return hint
    return next(filter(None, map(section_in, get_args(hint))), None)


def rows(of: type[Section], under: str = "") -> Iterator[tuple[str, str, str]]:
    """Key, default and meaning, with the keys of sections that have no heading."""
    told, headings = docs_of(of, sections), {own: heading for heading, own in SECTIONS.items()}
    for name, field in of.model_fields.items():
        inside = section_in(field.annotation)
        meaning = told.get(name, "")
        if inside in headings:
            meaning = f"see [below](#{headings[inside]})"
        own = re.match(r"default: (.+?)\. (?=\S)", meaning)
        default = own[1] if own else _default(field)
        if meaning:
            yield f"{under}{name}", default, meaning[own.end() :] if own else f"{meaning[:1].upper()}{meaning[1:]}"
        if inside is not None and inside not in headings:
            yield from rows(inside, f"{under}{name}.")


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value in ([], {}) or isinstance(value, Section):
        return "none" if not isinstance(value, Section) else ""
    return f"`{value}`" if isinstance(value, str) else f"{value:g}" if type(value) is float else json.dumps(value)


def page(text: str) -> str:
    """The page with tables of today's keys."""
    classes = {own.__name__: own for own in SECTIONS.values()}

    def made(found: re.Match[str]) -> str:
        lines = [f"| `{key}` | {default} | {meaning} |" for key, default, meaning in rows(classes[found[1]])]
        table = "\n".join(["| key | default | meaning |", "|---|---|---|", *lines])
        return f"<!-- made from {found[1]} -->\n{table}\n<!-- end -->\n"

    return _TABLE.sub(made, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
