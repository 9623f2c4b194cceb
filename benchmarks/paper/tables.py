"""The CSV files beside the results page: what is too much for a page, from the same figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.paper import clusters, nine, pre_initialisation
from benchmarks.paper.experiments import SECTIONS, PageSection
from benchmarks.paper.statistics import BLOCK, gap_closed_pct, shown
from migrator.comparison.matches import CEILING, FLOOR
from planner.policies.registry import MIG_POLICIES

if TYPE_CHECKING:
    from benchmarks.paper.page import Figures

Studies = Mapping[str, Any]

TABLED = ("tables", "windows", "segments")
"""Views of sections whose policies have a row each in ``policies.csv`` and ``accounts.csv``."""


def tables(figures: Figures, studies: Studies) -> dict[str, str]:
    """The files as text, by name; without those that would be empty."""
    frames = {name: made(figures, studies) for name, (_, made) in TABLES.items()}
    return {
        name: frame.fillna("").to_csv(index=False, lineterminator="\n") for name, frame in frames.items() if len(frame)
    }


def _runs(figures: Figures, views: Sequence[str] = (), without: Sequence[str] = ()) -> list[tuple[PageSection, Any]]:
    """The experiments that were run, of sections with one of these views, or with none of those."""
    sections = [one for one in SECTIONS if one.view not in without and (not views or one.view in views)]
    return [(section, one) for section in sections for one in section.experiments if one.name in figures.means]


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _by_policy(frame: pd.DataFrame, **named: str) -> pd.DataFrame:
    """The rows with these columns before them, and their index as ``policy``."""
    found = frame.rename_axis("policy").reset_index()
    for column, value in reversed(named.items()):
        found.insert(0, column, value)
    return found.rename(columns=lambda name: name.replace("`", ""))


def _experiments(figures: Figures, _: Studies) -> pd.DataFrame:
    found = []
    for section in SECTIONS:
        run = {one.joins or one.name: None for one in section.experiments if (one.joins or one.name) in figures.means}
        if run:
            found.append((section.name, section.title, " ".join(run), _plain(section.text)))
    return pd.DataFrame(found, columns=["section", "question", "experiments", "how"])


def _plain(text: str) -> str:
    """Markdown without bullets and links."""
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"^- ", "", text, flags=re.MULTILINE)).split())


def _policies(figures: Figures, _: Studies) -> pd.DataFrame:
    return _joined([_by_policy(figures.summary(one), experiment=one.name) for _, one in _runs(figures, TABLED)])


def _accounts(figures: Figures, _: Studies) -> pd.DataFrame:
    """The classes of the loss account as shares of the arrivals, by policy (``all``) and by workload."""
    found = []
    for _section, one in _runs(figures, TABLED):
        whole = figures.account(one.name, "policy").assign(workload="all").set_index("workload", append=True)
        parts = pd.concat([whole, figures.account(one.name, "policy", "workload")])
        found.append(shown(parts, ".2f").reset_index().assign(experiment=one.name))
    own = _joined(found)
    return own[["experiment", *own.columns.drop("experiment")]] if len(own) else own


def _ahead(figures: Figures, _: Studies) -> pd.DataFrame:
    found = []
    for section, one in _runs(figures, tuple(BLOCK)):
        rows = figures.differences(one.name, section.view)
        known = rows.rename(columns=lambda name: name.replace("windows", "pieces").replace("segments", "pieces"))
        found.append(_by_policy(known, experiment=one.name, pieces=section.view))
    return _joined(found)


def _sweeps(figures: Figures, _: Studies) -> pd.DataFrame:
    found = []
    for section, one in _runs(figures, without=TABLED):
        means = figures.means[one.name]
        own = pd.DataFrame({"goodput %": shown(means, ".2f")})
        if {FLOOR, CEILING} <= set(means.index):
            closers = [name for name in means.index if name in MIG_POLICIES and name not in (FLOOR, CEILING)]
            own["gap closed %"] = shown(gap_closed_pct(means)[closers], ".0f")
        found.append(_by_policy(own, section=section.name, experiment=one.name, label=one.label))
    return _joined(found)


def _ties(figures: Figures, _: Studies) -> pd.DataFrame:
    found = []
    for section in SECTIONS:
        own = [one for one in section.experiments if one.name in figures.means]
        if section.view == "ties" and own:
            found.append(_by_policy(figures.ties(own), section=section.name))
    return _joined(found)


def _more(figures: Figures, _: Studies) -> pd.DataFrame:
    """Runs that have more than ``migrator`` or ``oracle`` where it is not expected; each experiment's own."""
    found = [runs[runs["is_more"]].assign(than=other) for other, runs in figures.beside.items()]
    own = _joined(found)[["than", "experiment", "workload", "policy", "points", "relative_pct"]]
    return own.assign(points=shown(own["points"], "+.2f"), relative_pct=shown(own["relative_pct"], "+.2f"))


def _planning(_: Figures, studies: Studies) -> pd.DataFrame:
    rows = [{**row, "engines": " ".join(row["engines"])} for row in studies.get("planning", ())]
    return pd.DataFrame(rows).round(2)


def _hidden(_: Figures, studies: Studies) -> pd.DataFrame:
    found = []
    for row in studies.get("pre-initialisation", ()):
        for policy, own in row["policies"].items():
            seconds = pre_initialisation.hidden_in_seconds(own)
            hidden = None if seconds is None else round(100 * seconds, 1)
            points = pre_initialisation.gained_points(row["policies"])
            known = {"load": row["load"], "points gained": points, "policy": policy, "hidden, seconds %": hidden}
            found.append({**known, **own})
    return pd.DataFrame(found).round(3)


def _clusters(_: Figures, studies: Studies) -> pd.DataFrame:
    rows = studies.get("clusters", ())
    parts = (("gaps", clusters.PLANNED), ("simulated", clusters.SIMULATED)) if rows else ()
    return _joined(
        [
            clusters.table(rows, part, columns)
            .rename(columns=lambda name: name.replace("`", ""))
            .rename_axis("load")
            .reset_index()
            .assign(part=part)
            for part, columns in parts
        ]
    )


def _nine(_: Figures, studies: Studies) -> pd.DataFrame:
    return nine.by_workload(studies.get("nine-systems", ()))


def _terms(_: Figures, studies: Studies) -> pd.DataFrame:
    return _by_policy(nine.terms_table()) if studies.get("nine-systems") else pd.DataFrame()


TABLES: Mapping[str, tuple[str, Callable[[Figures, Studies], pd.DataFrame]]] = MappingProxyType(
    {
        "experiments.csv": ("every section of experiments, and how it was simulated", _experiments),
        "policies.csv": (
            "goodput, in time, accuracy, gains, gaps closed, changes, by experiment and policy",
            _policies,
        ),
        "accounts.csv": ("where the arrivals go, %, by experiment, policy and workload", _accounts),
        "ahead.csv": ("points ahead of `migrator`, with intervals, by experiment and policy", _ahead),
        "sweeps.csv": ("goodput and gap closed by what an experiment varies, mean of workloads", _sweeps),
        "ties.csv": ("at which interference a policy ties with `migrator`, by workload", _ties),
        "more.csv": ("runs of `static` with more than `migrator`, and any with more than `oracle`", _more),
        "planning.csv": ("schedules valued by granularity, and claimed gaps (Figure 10's other half)", _planning),
        "hidden.csv": ("seconds of warm-up by what they wait for, with and without pre-initialisation", _hidden),
        "clusters.csv": ("eight GPUs and twenty tenants: gaps, and goodput beside rivals, means of seeds", _clusters),
        "nine-systems.csv": ("nine systems: goodput and in time, %, by terms, interference and workload", _nine),
        "nine-terms.csv": ("nine systems: source, what each has beyond it, and what is not built", _terms),
    }
)
"""By file: what its rows are, and what makes them."""
