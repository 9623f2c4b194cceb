"""Nine systems on the same requests: what each comes to, was given beyond its paper, and lacks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd

from benchmarks.paper.experiments import AS_SHIPPED, WORKLOADS, Experiment
from benchmarks.paper.matches import matches_of, results_of
from benchmarks.paper.statistics import OURS, PAPERS, over_workloads, shown
from migrator.comparison.matches import Fairness

WINDOWS = 2
BATCH = 4
"""As published; its load is that of this batch under all systems."""

INTERFERENCE = (0.0, 1.0)
"""The strengths at which systems that it disturbs are simulated; the others come to the same at each."""


@dataclass(frozen=True)
class Entrant:
    """One of the nine.

    Attributes:
        name: The policy's.
        source: Its paper.
        given: What it has here that its paper does not have.
        lacks: What of its paper is not built.
        is_disturbed: Whether the config's interference slows it down.
        sharing: The config's ``sharing``, where it has one of its own.
    """

    name: str
    source: str
    given: str
    lacks: str
    is_disturbed: bool = False
    sharing: Mapping[str, object] | None = None


SYSTEMS = (
    Entrant(
        OURS,
        "this product",
        "our profiles and forecast; planned anew every 10 s; `sharing.pools: auto`, as shipped",
        "–",
        sharing={"pools": "auto"},
    ),
    Entrant(
        PAPERS,
        "MIGRator, §4",
        "our profiles and forecast; exact plans; what models are worth later; slices that a retraining leaves",
        "changes at any second: here they are Ω apart, as MIG has them",
    ),
    Entrant(
        "ekya",
        "Ekya, NSDI '22, as MIGRator describes it",
        "our profiles and forecast (as published the past); retrainings may be left out; turns (not as published)",
        "micro-profiling: it has the estimates that all have; the rest is unknown, as its text was not at hand",
        is_disturbed=True,
    ),
    Entrant(
        "astraea",
        "Astraea, ASPLOS '22, as MIGRator describes it",
        "our profiles; processes of every share that stand ready; ways to retrain; turns (not as published)",
        "unknown: its text was not at hand",
        is_disturbed=True,
    ),
    Entrant(
        "paris",
        "PARIS and ELSA, DAC '22, from memory",
        "our profiles and forecast (as published the past); room for retrainings, which it does not know",
        "batch sizes by segment: here a tenant stands for one; the rest is unknown, as its text was not at hand",
    ),
    Entrant(
        "salus",
        "Salus, MLSys '20, §3.2, §4",
        "our profiles; batches and their limits; earliest deadline first; training while requests can wait",
        "lanes and their memory (Algorithm 1): all fits",
    ),
    Entrant(
        "sirius",
        "Sirius, ATC '25, §3, §4.1, §5",
        "our profiles, and floors from them; batches and their limits; requests that wait while all of them can",
        "batches of the training that shrink with its memory; loading that overlaps with a batch",
        is_disturbed=True,
    ),
    Entrant(
        "sgdrc",
        "SGDRC, PPoPP '25, §7",
        "our profiles, and floors from them; batches and their limits; a window in seconds, not in kernels",
        "the driver's part (channel colouring, bimodal tensors): the paper's 1.05 stands for it",
    ),
    Entrant(
        "mudi",
        "Mudi, EuroSys '25, §5.3, §5.5",
        "our profiles; several inference services; several processes; trials at no cost; turns (not as published)",
        "its Gaussian process; memory that is swapped (§5.6)",
        is_disturbed=True,
    ),
)
"""In the order of the page."""

COLUMNS = ("system", "terms", "interference", "workload", "arrivals", "in_time", "correct")
"""Of a row; ``interference`` is null where it does not disturb the system."""


SHARES: Mapping[str, str] = MappingProxyType({"goodput": "correct", "in time": "in_time"})
"""Counts that are shares of the arrivals."""


def experiments(workloads: Sequence[str] = WORKLOADS) -> Iterator[tuple[Entrant, float | None, Experiment]]:
    """What is simulated: decisions alone in the terms of :data:`AS_SHIPPED`, and all as published."""
    for terms in Fairness:
        is_published = terms is Fairness.AS_PUBLISHED
        for system in SYSTEMS:
            for strength in INTERFERENCE if system.is_disturbed else (None,):
                changes = {} if is_published else dict(AS_SHIPPED)
                if strength is not None:
                    changes["simulation"] = {"interference": strength}
                if system.sharing is not None:
                    changes["sharing"] = system.sharing
                name = f"nine-{system.name}-{terms.value}"
                batch: int | Literal["auto"] = BATCH if is_published else "auto"
                one = Experiment(name, name, (system.name,), tuple(workloads), WINDOWS, terms, batch, changes)
                yield system, strength, one


def rows(workloads: Sequence[str] = WORKLOADS) -> list[list[object]]:
    """A row a system, term, strength and workload, by :data:`COLUMNS`; counts are null where it has no plan."""
    asked = [
        ((system.name, one.fairness.value, strength), match)
        for system, strength, one in experiments(workloads)
        for match in matches_of(one)
    ]
    results = results_of([match for _, match in asked])
    return [
        [*key, result["workload"], *(result.get(name) for name in COLUMNS[4:])]
        for (key, _), result in zip(asked, results, strict=True)
    ]


def goodput_pct(found: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """A row a workload, a column each of terms, strength and system; NaN where there is no plan."""
    own = pd.DataFrame(found, columns=list(COLUMNS))
    undisturbed = own["interference"].isna()
    own = pd.concat([own[~undisturbed], *(own[undisturbed].assign(interference=at) for at in INTERFERENCE)])
    own["goodput"] = 100 * own["correct"].astype(float) / own["arrivals"]
    return own.pivot_table("goodput", "workload", ["terms", "interference", "system"], dropna=False, sort=False)


def table(found: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """By system its goodput, mean of workloads, and how far it is ahead of ours [95 % over workloads].

    A workload counts only where all systems have a plan.
    """
    cells = goodput_pct(found).dropna()
    columns = {}
    for terms in Fairness:
        for strength in INTERFERENCE:
            own = cells[terms.value][strength]
            columns[f"{terms.value}, {strength:g}"] = {
                system.name: _cell(own[system.name], own[OURS]) for system in SYSTEMS
            }
    return pd.DataFrame(columns)


def _cell(goodput: pd.Series[float], ours: pd.Series[float]) -> str:
    if goodput.name == ours.name:
        return f"{goodput.mean():.2f}"
    ahead = over_workloads((goodput - ours).to_frame().T)
    return f"{goodput.mean():.2f} ({ahead.mean:+z.1f} [{ahead.low:+z.1f}, {ahead.high:+z.1f}])"


def by_workload(found: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """The rows with shares of the requests, %, in place of counts."""
    own = pd.DataFrame(found, columns=list(COLUMNS))
    counts = own[["arrivals", *SHARES.values()]].astype(float)
    shares = {f"{name} %": shown(100 * counts[one] / counts["arrivals"], ".2f") for name, one in SHARES.items()}
    return own[list(COLUMNS[:4])].assign(interference=shown(own["interference"].astype(float), "g"), **shares)


def without_plan(found: Sequence[Sequence[Any]]) -> list[str]:
    """Which system has no plan on which workload."""
    return sorted({f"`{row[0]}` on {row[3]}" for row in found if row[4] is None})


def terms_table() -> pd.DataFrame:
    """By system what it was given beyond its paper, and what is not built."""
    cells = {one.name: (one.source, one.given, one.lacks) for one in SYSTEMS}
    return pd.DataFrame.from_dict(cells, orient="index", columns=["source", "given beyond it", "not built"])
