"""The paper's evaluation: simulate it and write ``docs/results.json`` and, from that alone, the pages and their plots.

``make reproduce`` runs what takes minutes, ``make reproduce FULL=1`` everything; ``TRACES=FILE`` names per-second
counts of the Twitter stream, which are not ours to ship, and adds them; ``SECTIONS="load planning"`` keeps to some
sections and studies, in full, beside the two tables that others are compared with. Each match of a policy on a
workload is kept under ``runs/reproduce``, by the content of its config and of the product's code: what was simulated
once is not simulated again, and a run that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.paper.experiments import EXPERIMENTS, GIVEN, MAIN, SECTIONS, Experiment
from benchmarks.paper.matches import (
    COLUMNS,
    ROOT,
    make_folder,
    matches_of,
    require_two_weeks,
    results_of,
    rows_of,
    versions,
)
from benchmarks.paper.page import pages
from benchmarks.paper.plots import plots
from benchmarks.paper.studies import STUDIES, results_of_studies
from migrator.comparison.matches import CEILING
from migrator.errors import OutputError
from migrator.terminal.outputs import write_output
from workloads.errors import TraceError

RESULTS = ROOT / "docs" / "results.json"
PAGES = ROOT / "docs"
PLOTS = ROOT / "docs" / "results"

Json = dict[str, object]


def chosen(*, is_full: bool, traces: Path | None, sections: Sequence[str] = ()) -> list[Experiment]:
    """What a run simulates, in the order of the page; what its figures compare with is always part of it.

    Raises:
        ValueError: There is no such section.
    """
    known: dict[str, Sequence[Experiment]] = {section.name: section.experiments for section in SECTIONS}
    known |= {study.name: () for study in STUDIES}
    if unknown := [name for name in sections if name not in known]:
        raise ValueError(f"{', '.join(unknown)}: sections and studies are {', '.join(known)}")
    asked = [MAIN, GIVEN, *(one for name in sections for one in known[name])] if sections else EXPERIMENTS
    is_long = is_full or bool(sections)
    return [one for one in EXPERIMENTS if one in asked and (traces if one.n_segments else is_long or not one.is_long)]


def document(experiments: Sequence[Experiment], traces: Path | None, command: str, studies: Collection[str]) -> Json:
    """All results of the experiments, and of these studies, with what made them."""
    made = {"command": command, "versions": f"{versions()}, on {processor()}"}
    matches = [matches_of(experiment, traces) for experiment in experiments]
    results = results_of([match for own in matches for match in own])
    hosts = {experiment.joins for experiment in experiments}
    found = []
    ceilings: dict[str | None, list[dict[str, Any]]] = {}
    for experiment, matched in zip(experiments, matches, strict=True):
        own = list(islice(results, len(matched)))
        found.append({"name": experiment.name, "rows": rows_of(own, ceilings.get(experiment.joins, ()))})
        if experiment.name in hosts:
            ceilings[experiment.name] = [one for one in own if one["policy"] == CEILING]
    known = {"schema": 2, "made": made, "studies": results_of_studies(studies)}
    known["columns"] = list(COLUMNS)
    return {**known, "experiments": found}


def processor() -> str:
    """Its model; others round differently in the last digit."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "an unknown processor")


def as_text(found: Json) -> str:
    """The document as JSON, a line a row."""
    experiments = found["experiments"]
    assert isinstance(experiments, list)
    lines = [
        f'"{key}": {json.dumps(value, ensure_ascii=False)},' for key, value in found.items() if key != "experiments"
    ]
    blocks = []
    for experiment in experiments:
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in experiment["rows"])
        rest = {key: value for key, value in experiment.items() if key != "rows"}
        blocks.append(f'{json.dumps(rest)[:-1]}, "rows": [\n{rows}\n]}}')
    return "\n".join(["{", *lines, '"experiments": [', ",\n".join(blocks), "]", "}", ""])


def write_plots(folder: Path, drawn: Mapping[str, str]) -> None:
    """Write the plots into the folder, and remove those of other runs."""
    make_folder(folder)
    for name, text in drawn.items():
        write_output("plots", folder / name, text, None)
    for path in folder.glob("*.svg"):
        if path.name not in drawn:
            path.unlink()


def main() -> None:
    """Run what is asked for; write the figures, the plots and the pages."""
    is_full = os.environ.get("FULL", "") not in ("", "0")
    traces = Path(os.environ["TRACES"]) if os.environ.get("TRACES") else None
    sections = os.environ.get("SECTIONS", "").split()
    try:
        if traces is not None:
            require_two_weeks(traces)
    except (TraceError, ValueError) as error:
        print(f"TRACES: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        experiments = chosen(is_full=is_full, traces=traces, sections=sections)
    except ValueError as error:
        print(f"SECTIONS: {error}", file=sys.stderr)
        sys.exit(2)
    command = f"make reproduce{' FULL=1' if is_full else ''}{f' TRACES=…/{traces.name}' if traces else ''}"
    command += f" SECTIONS='{' '.join(sections)}'" if sections else ""
    try:
        studies = sections or [one.name for one in STUDIES if is_full]
        found = document(experiments, traces, command, studies)
        drawn, texts = plots(found), pages(found)
        write_output("results", RESULTS, as_text(found), None)
        write_plots(PLOTS, drawn)
        for name, text in texts.items():
            write_output("results", PAGES / name, text, None)
    except OutputError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    print(f"wrote {RESULTS.relative_to(ROOT)}, docs/results*.md and their plots")


if __name__ == "__main__":
    main()
