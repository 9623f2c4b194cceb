"""The paper's evaluation: simulate it and write ``docs/results.json`` and, from that alone, the page and its plots.

``make reproduce`` runs what takes minutes, ``make reproduce FULL=1`` everything; ``TRACES=FILE`` names per-second
counts of the Twitter stream, which are not ours to ship, and adds them. Each match of a policy on a workload is kept
under ``runs/reproduce``, by the content of its config and of the product's code: what was simulated once is not
simulated again, and a run that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from benchmarks.paper.experiments import EXPERIMENTS, Experiment
from benchmarks.paper.matches import COLUMNS, ROOT, matches_of, require_two_weeks, results_of, rows_of, versions
from benchmarks.paper.page import page
from benchmarks.paper.plots import plots
from benchmarks.paper.studies import results_of_studies
from migrator.errors import OutputError
from migrator.outputs import write_output
from migrator.parallel import n_cores
from workloads.errors import TraceError

RESULTS = ROOT / "docs" / "results.json"
PAGE = ROOT / "docs" / "results.md"
PLOTS = ROOT / "docs" / "results"

Json = dict[str, object]


def chosen(*, is_full: bool, traces: Path | None) -> list[Experiment]:
    """What a run simulates, in the order of the page."""
    return [one for one in EXPERIMENTS if (traces if one.n_segments else is_full or not one.is_long)]


def document(experiments: Sequence[Experiment], traces: Path | None, command: str, *, with_studies: bool) -> Json:
    """All results of the experiments, and of the studies, with what made them."""
    made = {"command": command, "versions": versions()}
    machine = f"{n_cores()} cores of {_processor()}, {platform.system()}"
    matches = [matches_of(experiment, traces) for experiment in experiments]
    results = results_of([match for own in matches for match in own])
    found = [
        {"name": experiment.name, "rows": rows_of(list(islice(results, len(own))))}
        for experiment, own in zip(experiments, matches, strict=True)
    ]
    studies = results_of_studies() if with_studies else {}
    known = {"schema": 2, "made": {**made, "machine": machine}, "studies": studies, "columns": list(COLUMNS)}
    return {**known, "experiments": found}


def _processor() -> str:
    """The processor's model, as Linux names it, or its architecture."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text("utf-8").splitlines() if known.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()


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
    folder.mkdir(exist_ok=True)
    for name, text in drawn.items():
        write_output("plots", folder / name, text)
    for path in folder.glob("*.svg"):
        if path.name not in drawn:
            path.unlink()


def main() -> None:
    """Run what is asked for; write the figures, the plots and the page."""
    is_full = os.environ.get("FULL", "") not in ("", "0")
    traces = Path(os.environ["TRACES"]) if os.environ.get("TRACES") else None
    try:
        if traces is not None:
            require_two_weeks(traces)
    except (TraceError, ValueError) as error:
        print(f"TRACES: {error}", file=sys.stderr)
        sys.exit(2)
    command = f"make reproduce{' FULL=1' if is_full else ''}{f' TRACES=…/{traces.name}' if traces else ''}"
    try:
        found = document(chosen(is_full=is_full, traces=traces), traces, command, with_studies=is_full)
        write_output("results", RESULTS, as_text(found))
        write_plots(PLOTS, plots(found))
        write_output("results", PAGE, page(found))
    except OutputError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    print(f"wrote {RESULTS.relative_to(ROOT)}, {PAGE.relative_to(ROOT)} and its plots")


if __name__ == "__main__":
    main()
