"""The paper's evaluation: simulate it and write ``docs/results.json`` and, from that alone, the pages and their plots.

``make reproduce`` runs what takes minutes, README's table first, ``make reproduce FULL=1`` everything; ``TRACES=FILE``
names per-second counts of the Twitter stream, which are not ours to ship, and adds them; ``SECTIONS="load planning"``
keeps to some sections and studies, in full but for README's table, beside the two tables that others are compared with,
unless they are drawn. What a run does not
draw stays as it was drawn; the file says which command drew what, at which commit. Each match of a policy on a
workload is kept under ``runs/reproduce``, by the content of its config and of the product's code: what was simulated
once is not simulated again, and a run that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
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
from benchmarks.paper.page import pages, with_headline
from benchmarks.paper.plots import plots
from benchmarks.paper.studies import STUDIES, results_of_studies
from migrator.comparison.matches import CEILING
from migrator.errors import OutputError
from migrator.terminal.outputs import write_output
from workloads.errors import TraceError

RESULTS = ROOT / "docs" / "results.json"
PAGES = ROOT / "docs"
PLOTS = ROOT / "docs" / "results"
SHOWING = (ROOT / "README.md", PAGES / "start.md")
"""Pages written by hand that show the first table."""

SCHEMA = 3
"""Of ``results.json``."""

Json = dict[str, Any]


def chosen(
    *, is_full: bool, traces: Path | None, sections: Sequence[str] = (), known: Collection[str] = ()
) -> list[Experiment]:
    """What a run simulates, in the order of the page, with what figures compare with unless that is ``known``.

    Raises:
        ValueError: There is no such section.
    """
    every: dict[str, Sequence[Experiment]] = {section.name: section.experiments for section in SECTIONS}
    every |= {study.name: () for study in STUDIES}
    if unknown := [name for name in sections if name not in every]:
        raise ValueError(f"{', '.join(unknown)}: sections and studies are {', '.join(every)}")
    beside = [one for one in (MAIN, GIVEN) if one.name not in known]
    asked = [*beside, *(one for name in sections for one in every[name])] if sections else EXPERIMENTS
    is_long = is_full or bool(sections)
    found = [one for one in EXPERIMENTS if one in asked and (traces if one.n_segments else is_long or not one.is_long)]
    return [one if is_full or one.short_windows is None else replace(one, windows=one.short_windows) for one in found]


def document(experiments: Sequence[Experiment], traces: Path | None, command: str, studies: Collection[str]) -> Json:
    """All results of the experiments, and of these studies, with what made them."""
    names = [*(one.name for one in experiments), *(one.name for one in STUDIES if one.name in studies)]
    made = {"command": command, "commit": commit(), "versions": f"{versions()}, on {processor()}", "of": names}
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
    known = {"schema": SCHEMA, "made": [made], "studies": results_of_studies(studies)}
    known["columns"] = list(COLUMNS)
    return {**known, "experiments": found}


def merged(found: Mapping[str, Any], known: Mapping[str, Any]) -> Json:
    """What was found, and of what is known all else, in the order of the page and with what drew it.

    Rows of other columns are left out.
    """
    if (known.get("schema"), known.get("columns")) != (found["schema"], found["columns"]):
        return dict(found)
    drawn = {name for one in found["made"] for name in one["of"]}
    earlier = [{**one, "of": [name for name in one["of"] if name not in drawn]} for one in known["made"]]
    rows = {one["name"]: one for one in (*known["experiments"], *found["experiments"])}
    return {
        **found,
        "made": [*found["made"], *(one for one in earlier if one["of"])],
        "studies": {**known["studies"], **found["studies"]},
        "experiments": [rows[one.name] for one in EXPERIMENTS if one.name in rows],
    }


def commit() -> str | None:
    """The commit that is checked out, with ``+`` where code or configs are not as there; ``None`` without git."""
    code = ["executor", "forecaster", "workloads", "planner", "migrator", "benchmarks", "configs"]
    try:
        found, changed = (
            subprocess.run(["git", "-C", str(ROOT), *asked], check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603, S607 - our own command
            for asked in (["rev-parse", "--short=8", "HEAD"], ["status", "--porcelain", "--", *code])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{found}+" if changed else found


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


def known_already() -> Json:
    """What earlier runs wrote, if anything."""
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}


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
        earlier = known_already()
        drawn = [one["name"] for one in earlier["experiments"]] if earlier.get("schema") == SCHEMA else []
        experiments = chosen(is_full=is_full, traces=traces, sections=sections, known=drawn)
    except ValueError as error:
        print(f"SECTIONS: {error}", file=sys.stderr)
        sys.exit(2)
    command = f"make reproduce{' FULL=1' if is_full else ''}{f' TRACES=…/{traces.name}' if traces else ''}"
    command += f" SECTIONS='{' '.join(sections)}'" if sections else ""
    try:
        studies = sections or [one.name for one in STUDIES if is_full]
        found = merged(document(experiments, traces, command, studies), earlier)
        pictures, texts = plots(found), pages(found)
        shown = {path: with_headline(path.read_text("utf-8"), found) for path in SHOWING}
        write_output("results", RESULTS, as_text(found), None)
        write_plots(PLOTS, pictures)
        for name, text in texts.items():
            write_output("results", PAGES / name, text, None)
        for path, text in shown.items():
            write_output("results", path, text, None)
    except OutputError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    print(f"wrote {RESULTS.relative_to(ROOT)}, docs/results.md and its files, and tables of README and start.md")


if __name__ == "__main__":
    main()
