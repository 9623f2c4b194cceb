"""What the results page shows beside matches of policies: studies of their own, each kept by its code's content."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paper import motivation, motivation_page
from benchmarks.paper.experiments import WORKLOADS
from benchmarks.paper.matches import CACHE, ROOT
from benchmarks.paper.pre_initialisation import (
    COLD,
    PAPER,
    added,
    gained_points,
    hidden_as_goodput,
    hidden_in_seconds,
    study,
)
from benchmarks.paper.results import PACKAGES
from benchmarks.paper.solver_times import solver_times
from benchmarks.paper.tables import table
from migrator.config import read_config
from migrator.outputs import write_output
from migrator.parallel import Processes, n_cores

PRE_INITIALISATION_LOADS = (0.3, 0.7)

_PRE_INITIALISATION = (
    "The paper says 83 %, and not of what. Here, of all the time that new inference instances spend between creation "
    "and service, **hidden, seconds** is the share of those at whose creation nobody gave up an instance; **hidden as "
    f"goodput** is 1 − requests lost to reconfiguration by `{PAPER}` over those lost by `{COLD}`. All sixteen "
    "workloads, two windows, policies only."
)

_SOLVER = (
    "The other half of the paper's Figure 10: window 0 of all sixteen workloads, planned from nothing with a run's "
    "budget of work, one after the other on one core of the machine above. Times are of one run, and of that machine."
)


@dataclass(frozen=True)
class Study:
    """A part of the page that is no match of policies.

    Attributes:
        name: Of its results.
        title: What it is about.
        files: Patterns of the files in this folder that make it.
        made: Makes its results, such that JSON can hold them.
        lines: Its section, from its results alone.
    """

    name: str
    title: str
    files: tuple[str, ...]
    made: Callable[[], object]
    lines: Callable[[Any], list[str]]


def pre_initialisation() -> list[dict[str, object]]:
    """By load, the studies of all sixteen workloads added up, two windows each."""
    configs = [
        read_config(ROOT / "configs" / f"{name}.yaml", windows=2, load=load)
        for load in PRE_INITIALISATION_LOADS
        for name in WORKLOADS
    ]
    with Processes(n_cores()) as processes:
        found: dict[int, Mapping[str, Mapping[str, float]]] = dict(processes.each(study, configs))
    n = len(WORKLOADS)
    return [
        {"load": load, "policies": added([found[place] for place in range(number * n, number * n + n)])}
        for number, load in enumerate(PRE_INITIALISATION_LOADS)
    ]


def _pre_initialisation_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    header = (
        *("load", "policy", "s, slices idle", "s, left by a retraining", "s, others gave up", "hidden, seconds %"),
        *("requests lost to reconfiguration", "goodput %"),
    )
    cells, sentences = [], []
    for row in rows:
        for name, own in row["policies"].items():
            hidden = hidden_in_seconds(own)
            cells.append(
                (
                    f"{row['load']:g}",
                    f"`{name}`",
                    *(f"{own[key]:.0f}" for key in ("idle_s", "left_s", "exposed_s")),
                    "" if hidden is None else f"{100 * hidden:.1f}",
                    f"{own['reconfiguration']:.0f}",
                    f"{100 * own['goodput'] / own['arrivals']:.2f}",
                )
            )
        as_goodput = hidden_as_goodput(row["policies"])
        lost = "nothing is lost without it" if as_goodput is None else f"hidden as goodput {100 * as_goodput:.1f} %"
        gain = gained_points(row["policies"])
        sentences.append(f"- Load {row['load']:g}: {lost}, worth {gain:+.3f} points of goodput. The paper: 83 %.")
    return [
        _PRE_INITIALISATION,
        "",
        *table(header, cells),
        *sentences,
        "",
    ]


def _solver_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    header = ("granularity", "cost model", "engine", "median s", "worst s", "worst gap %", "proven")
    cells = [
        (
            f"{row['step_s']:g} s",
            row["cost_model"],
            ", ".join(f"`{engine}`" for engine in row["engines"]),
            f"{row['median_s']:.2f}",
            f"{row['worst_s']:.2f}",
            f"{row['worst_gap_pct']:.2f}",
            f"{row['n_proven']} of {row['n']}",
        )
        for row in rows
    ]
    return [
        _SOLVER,
        "",
        *table(header, cells),
    ]


STUDIES = (
    Study(
        "solver",
        "How long planning takes",
        ("solver_times.py", "experiments.py"),
        solver_times,
        _solver_lines,
    ),
    Study(
        "pre-initialisation",
        "Pre-initialisation: how much of the overhead is hidden?",
        ("pre_initialisation.py", "studies.py", "experiments.py"),
        pre_initialisation,
        _pre_initialisation_lines,
    ),
    Study(
        "motivation",
        "The studies that motivate the paper",
        ("motivation.py", "motivation_[!p]*.py", "figure_*.py", "accuracies.py"),
        motivation.studies,
        motivation_page.sections,
    ),
)
"""In the order of the page."""


def results_of_studies() -> dict[str, object]:
    """By study its results; what is not known yet is made, and kept."""
    return {one.name: _kept(one) for one in STUDIES}


def lines_of_studies(found: Mapping[str, Any]) -> Iterator[str]:
    """The sections of the studies that were made."""
    for one in STUDIES:
        if one.name in found:
            yield from (f"## {one.title}", "", *one.lines(found[one.name]))


def _kept(one: Study) -> object:
    path = CACHE / f"study-{one.name}-{_digest(one)[:16]}.json"
    if not path.is_file():
        print(f"study: {one.name}", file=sys.stderr)
        CACHE.mkdir(parents=True, exist_ok=True)
        write_output("the cache", path, json.dumps(one.made()))
    return json.loads(path.read_text("utf-8"))


def _digest(one: Study) -> str:
    """Of all that decides about the study: the product, the configs and its own files."""
    digest = hashlib.sha256()
    product = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    own = (path for pattern in one.files for path in Path(__file__).parent.glob(pattern))
    for path in sorted([*product, *own, *(ROOT / "configs").glob("*.yaml")]):
        if "__pycache__" not in path.parts:
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
