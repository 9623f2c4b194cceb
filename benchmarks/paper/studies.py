"""What the results page shows beside matches of policies: studies of their own, each kept by its code's content."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper import motivation
from benchmarks.paper.experiments import WORKLOADS
from benchmarks.paper.matches import CACHE, ROOT, digest_of, product_files
from benchmarks.paper.pre_initialisation import added, study
from benchmarks.paper.solver_times import solver_times
from migrator.config import read_config
from migrator.outputs import write_output
from migrator.parallel import Processes, n_cores

PRE_INITIALISATION_LOADS = (0.3, 0.7)


@dataclass(frozen=True)
class Study:
    """A part of the page that is no match of policies.

    Attributes:
        name: Of its results.
        title: What it is about.
        files: Patterns of the files in this folder that make it.
        made: Makes its results, such that JSON can hold them.
    """

    name: str
    title: str
    files: tuple[str, ...]
    made: Callable[[], object]


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


STUDIES = (
    Study(
        "solver",
        "How long planning takes",
        ("solver_times.py", "experiments.py"),
        solver_times,
    ),
    Study(
        "pre-initialisation",
        "Pre-initialisation: how much of the overhead is hidden?",
        ("pre_initialisation.py", "studies.py", "experiments.py"),
        pre_initialisation,
    ),
    Study(
        "motivation",
        "The studies that motivate the paper",
        ("motivation.py", "motivation_*.py", "figure_*.py", "accuracies.py"),
        motivation.studies,
    ),
)
"""In the order of the page."""


def results_of_studies() -> dict[str, object]:
    """By study its results; what is not known yet is made, and kept."""
    return {one.name: _kept(one) for one in STUDIES}


def _kept(one: Study) -> object:
    path = CACHE / f"study-{one.name}-{_digest(one)[:16]}.json"
    if not path.is_file():
        print(f"study: {one.name}", file=sys.stderr)
        CACHE.mkdir(parents=True, exist_ok=True)
        write_output("the cache", path, json.dumps(one.made()))
    return json.loads(path.read_text("utf-8"))


def _digest(one: Study) -> str:
    """Of all that decides about the study: the product, the configs and its own files."""
    own = [path for pattern in one.files for path in Path(__file__).parent.glob(pattern)]
    return digest_of([*product_files(), *own, *(ROOT / "configs").glob("*.yaml")])
