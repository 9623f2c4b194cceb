"""The studies of ``motivation`` as Markdown for the results page, made from their JSON alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "figure-2": {
        "window": "window",
        "split": "split",
        "inference": "inference",
        "capability_rps": "answers, requests/s",
        "retraining": "retraining",
        "slo_pct": "SLO %",
        "accuracy_pct": "accuracy %",
        "goodput_pct": "goodput %",
        "paper_slo_pct": "paper's SLO %",
        "paper_accuracy_pct": "paper's accuracy %",
        "paper_product_pct": "paper's product %",
    },
    "figure-3": {
        "scaling": "scaling",
        "allocation": "allocation",
        "inception": "Inception",
        "resnet50": "ResNet-50",
        "best_s": "best, s",
        "among_best_s": "among the best, s",
        "alone_best_s": "alone the best, s",
        "in_time_if_held_pct": "in time if held, %",
        "paper_s": "the paper's best, s",
    },
    "figure-4": {
        "window": "window",
        "split": "split",
        "inception": "Inception's retraining",
        "resnet50": "ResNet-50's retraining",
        "slo_pct": "SLO %",
        "accuracy_pct": "accuracy %",
        "goodput_pct": "goodput %",
        "paper_accuracy_pct": "paper's accuracy %",
    },
    "figure-5": {
        "model": "model",
        "in_figure": "in the figure",
        "is_measured": "worker measured",
        "destruction_ms": "destruction, ms",
        "initialisation_ms": "initialisation, ms",
        "library_load_ms": "library load, ms",
        "model_load_ms": "model load, ms",
        "total_ms": "in all, ms",
        "planned_ms": "planned, ms",
    },
}
"""By study, what of its rows the page shows, and each column's heading."""

HIGHEST = {"figure-2": ("goodput_pct", "paper_product_pct"), "figure-4": ("accuracy_pct", "paper_accuracy_pct")}
"""Columns whose highest number in each window is printed bold."""

Rows = Sequence[Mapping[str, Any]]


def sections(studies: Mapping[str, Any]) -> list[str]:
    """A part for each study, in their order: what was asked, a table, what came of it, what the paper printed."""
    lines: list[str] = []
    for name, study in studies.items():
        lines += [f"### {study['title']}", "", study["text"], "", *_table(name, study["rows"]), ""]
        lines += [f"- {sentence}" for sentence in study["found"]]
        lines += [f"- Paper: {sentence}." for sentence in study["paper"]]
        lines.append("")
    return lines


def _table(name: str, rows: Rows) -> Iterator[str]:
    columns = COLUMNS[name]
    yield f"| {' | '.join(columns.values())} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(_cell(row, key, name, rows) for key in columns)} |"


def _cell(row: Mapping[str, Any], key: str, name: str, rows: Rows) -> str:
    text = _shown(row[key])
    if key not in HIGHEST.get(name, ()) or row[key] is None:
        return text
    beside = [other[key] for other in rows if other["window"] == row["window"]]
    return f"**{text}**" if row[key] == max(beside) else text


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.2f}"
        case _:
            return str(value)
