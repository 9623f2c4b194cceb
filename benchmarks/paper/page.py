"""``docs/results.md`` from ``docs/results.json``: no figure of its own but the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.paper.experiments import SECTIONS
from benchmarks.paper.findings import findings
from benchmarks.paper.plot_list import plots_of
from benchmarks.paper.results import as_row
from benchmarks.paper.statistics import comparable
from benchmarks.paper.studies import STUDIES, lines_of_studies
from benchmarks.paper.tables import Results, missing_rows, section_lines

_ALL = "`make reproduce FULL=1 TRACES=FILE`, FILE being per-second counts of two weeks of the Twitter stream,"

_LEFT_OUT = "Where one policy has none, tables leave the workload out for all."


def results_in(document: Mapping[str, Any]) -> Results:
    """The document's rows by experiment."""
    columns = document["columns"]
    return {one["name"]: [as_row(columns, row) for row in one["rows"]] for one in document["experiments"]}


def page(document: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    results = results_in(document)
    shown = {name: comparable(rows) for name, rows in results.items()}
    lines = [*_head(document["made"], results), *findings(shown, document.get("studies", {}))]
    for section in SECTIONS:
        if any(one.name in results for one in section.experiments):
            lines += [f"## {section.title}", "", section.text, ""]
            for plot in plots_of(section, results):
                lines += [f"![{plot.alt}](results/{plot.file})", ""]
            lines += section_lines(section, shown)
    lines += lines_of_studies(document.get("studies", {}))
    lines += _unplanned(results)
    missing = [section.title for section in SECTIONS if not all(one.name in results for one in section.experiments)]
    missing += [one.title for one in STUDIES if one.name not in document.get("studies", {})]
    if missing:
        lines += ["## Not in this run", "", f"{_ALL} adds to:", ""]
        lines += [f"- {title}" for title in missing]
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(made: Mapping[str, str], results: Results) -> Iterator[str]:
    yield from ("# Results", "")
    yield f"Made by `{made['command']}` with {made['versions']}, on {made['machine']};"
    yield from (
        "the figures are in [results.json](results.json), and this page is made from that alone. **Everything is",
        "simulated**: no GPU took part. The *Alibaba* trace is synthetic at second scale, and some service profiles",
        "are derived; [workloads.md](workloads.md) says which. [policies.md](policies.md) says what each policy knows",
        "and does, and what the columns mean. The paper does not say whether its gains are relative or in points; ours",
        "beside them are relative. Gains and gaps are of means of workloads, each counted once, as in the paper.",
    )
    rows = [row for found in results.values() for row in found if row["arrivals"] is not None]
    n_unplanned = sum(row["windows_without_plan"] for row in rows)
    n_windows = sum(len(row["windows"]) for row in rows)
    yield from (f"In {n_unplanned} of {n_windows} windows a policy had no plan and kept its layout.", "")


def _unplanned(results: Results) -> Iterator[str]:
    found = [
        f"`{row['policy']}` on {row['workload']} ({name})"
        for name, rows in results.items()
        for row in missing_rows(rows)
    ]
    if found:
        yield from ("## Without a plan", "", f"No plan for the first window: {', '.join(found)}.", _LEFT_OUT, "")
