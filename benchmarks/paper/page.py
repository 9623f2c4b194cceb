"""The results page from ``docs/results.json``: its template has the sentences, and the figures come from here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from benchmarks.paper import clusters, nine, pre_initialisation
from benchmarks.paper.experiments import (
    EXPERIMENTS,
    GIVEN,
    MAIN,
    SECTIONS,
    TURN_COSTS_PCT,
    WITH_LOANS,
    Experiment,
)
from benchmarks.paper.matches import CLASSES
from benchmarks.paper.plot_list import plots_of
from benchmarks.paper.statistics import (
    BLOCK,
    OURS,
    PAPERS,
    Interval,
    Results,
    ahead_of_ours,
    comparable,
    gap_closed_pct,
    goodput_pct,
    interval,
    order_of,
    over_workloads,
    results_in,
    shown,
    tie,
    without_largest,
)
from benchmarks.paper.studies import STUDIES
from benchmarks.paper.tables import TABLES, tables
from migrator.comparison.matches import CEILING, FLOOR, Fairness
from migrator.views.palette import shown as policy_name
from planner.policies.registry import MIG_POLICIES

PAPER_GAIN_PCT = {"ekya": 17, "astraea": 21, "paris": 20}
"""By how much MIGRator's goodput exceeds each on average: paper, §5.2, which does not say of what."""

SHIPPED = "shipped"
"""The experiment of the first table."""

POOLS = "migrator, with pools"
"""The policy in tables of experiments that have no pools by themselves."""

OFF, DEAR = "migrator, pools off", "migrator, turns at 10 %"
"""Policies of the first table."""

LEAST_AHEAD_POINTS = 0.005
"""A lead below this is not mentioned."""

SAME_RUN = ["policy", "workload", "goodput", "points"]
"""What tells runs apart: some experiments differ in nothing that reaches the policy, and simulate the same again."""

LEAST_BLOCKS = 4
"""Of fewer blocks of windows or segments no interval is shown."""

LEAST_LOSS_POINTS = 0.1
"""Smaller differences of a class of losses are left out."""


def pages(document: Mapping[str, Any]) -> dict[str, str]:
    """The page as Markdown, and its tables as CSV, by the name of their file in ``docs``."""
    results, studies = results_in(document), document.get("studies", {})
    figures = Figures(results)
    rows, files = pd.concat(results.values()), tables(figures, studies)
    known = {
        "made": document["made"],
        "sections_of": _sections_of,
        "said_of": _said_of,
        "pools": POOLS,
        "off": OFF,
        "dear": DEAR,
        "shipped": SHIPPED if SHIPPED in figures.means else None,
        "drawn": _drawn(document, SHIPPED),
        "n_unplanned": int(rows["windows_without_plan"].sum()),
        "n_windows": rows["windows"].dropna().map(len).sum(),
        "figures": figures,
        "paper_gain_pct": PAPER_GAIN_PCT,
        "tie": tie,
        "hidden": pre_initialisation,
        "with_loans": WITH_LOANS,
        "clusters": clusters,
        "nine": nine,
        "sections": [section for section in SECTIONS if any(one.name in results for one in section.experiments)],
        "plots_of": lambda section: plots_of(section, results),
        "studies": studies,
        "tables": {name: TABLES[name][0] for name in files},
        "without_plan": [
            (name, row) for name, own in results.items() for row in own[own["arrivals"].isna()].itertuples()
        ],
        "missing": [
            *(one.title for one in SECTIONS if not all((own.joins or own.name) in results for own in one.experiments)),
            *(one.title for one in STUDIES if one.name not in studies),
        ],
    }
    text = re.sub(r"\n {2,}", " ", _TEMPLATES.get_template("results.md.j2").render(known)).rstrip("\n") + "\n"
    return {"results.md": text, **{f"results/{name}": own for name, own in files.items()}}


def with_headline(text: str, document: Mapping[str, Any]) -> str:
    """A page by hand with README's table, or with the goodput of its own rows, as the document has them.

    README's table begins with its header and ends with the line that says who drew it.
    """
    results = results_in(document)
    if SHIPPED not in results:
        return text
    figures = Figures(results)
    found = figures.headline()
    lines = ["| policy | goodput % | ahead of `migrator` | in time % | right % |", "|---|---|---|---|---|"]
    lines += [f"| `{policy}` | {' | '.join(row)} |" for policy, row in zip(found.index, found.to_numpy(), strict=True)]
    lines += ["", f"Drawn by {_said_of(_drawn(document, SHIPPED))}, {figures.n_windows_of(SHIPPED)} windows of each."]
    anew = "\n".join(lines)
    table = re.compile(r"^\| policy \| goodput % \| ahead of .*?^Drawn by [^\n]*", re.MULTILINE | re.DOTALL)
    text = table.sub(lambda _: anew, text)
    for policy, goodput in found["goodput %"].items():
        row = re.compile(rf"^(\| `{re.escape(str(policy))}` \| )[\d.]+ \|", re.MULTILINE)
        text = row.sub(rf"\g<1>{goodput} |", text)
    return text


def _drawn(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What drew it; empty if nothing did."""
    return next((one for one in document["made"] if name in one["of"]), {})


def _said_of(made: Mapping[str, Any]) -> str:
    where = f"at commit `{made['commit']}`" if made["commit"] else "at several earlier commits"
    return f"`{made['command']}` {where}"


def _sections_of(made: Mapping[str, Any]) -> list[str]:
    """The titles of the sections and studies of which this drew something, in the order of the page."""
    names = set(made["of"])
    titles = [section.title for section in SECTIONS if names & {one.name for one in section.experiments}]
    return titles + [one.title for one in STUDIES if one.name in names]


class Figures:
    """The figures of the page's sentences and tables.

    A workload or segment counts only where all policies of the experiment have numbers.

    Attributes:
        rows: By experiment.
        goodput: By experiment, goodput % of each policy (column) on each workload (row).
        means: By experiment, the mean of workloads of each policy.
        beside: ``static`` compared with ours, and all policies with partitions compared with ``oracle``, run by run;
            see :meth:`_beside`.
    """

    def __init__(self, results: Results) -> None:
        known = {name: comparable(rows) for name, rows in results.items()}
        self.rows = {name: rows for name, rows in known.items() if len(rows)}
        self.goodput = {name: goodput_pct(rows) for name, rows in self.rows.items()}
        self.means = {name: goodput.mean() for name, goodput in self.goodput.items()}
        others = [name for name in MIG_POLICIES if name != CEILING]
        self.beside = {OURS: self._beside(OURS, [FLOOR]), CEILING: self._beside(CEILING, others)}

    def run(self, prefix: str) -> list[Experiment]:
        """The experiments that were run and whose names begin with ``prefix``."""
        return [one for one in EXPERIMENTS if one.name.startswith(prefix) and one.name in self.rows]

    def _beside(self, other: str, policies: Sequence[str]) -> pd.DataFrame:
        """A row a run of these policies: how far it is ahead of ``other`` on the same workload of the experiment."""
        found = []
        for one in self.run(""):
            goodput = self.goodput[one.name]
            if other in goodput:
                own = goodput.loc[:, goodput.columns.isin(policies)]
                runs = own.melt(ignore_index=False, var_name="policy", value_name="goodput").reset_index()
                limit = runs["workload"].map(goodput[other])
                points, relative_pct = runs["goodput"] - limit, 100 * (runs["goodput"] / limit - 1)
                ahead = {"points": points, "relative_pct": relative_pct, "is_more": points > LEAST_AHEAD_POINTS}
                place = one.name + " " + runs["workload"]
                found.append(runs.assign(experiment=one.name, label=one.label, place=place, **ahead))
        return pd.concat(found, ignore_index=True)

    def runs_beside_ours_by_load(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The runs of ``static`` beside ours at the loads of their own section, and all others; none twice."""
        runs = self.beside[OURS]
        is_load = runs["experiment"].str.startswith("load-")
        is_first = ~pd.concat([runs[is_load], runs[~is_load]]).duplicated(SAME_RUN)
        return runs[is_load & is_first], runs[~is_load & is_first]

    def runs_beside(self, other: str, experiments: Sequence[Experiment]) -> pd.DataFrame:
        """Of :attr:`beside`, the runs of these experiments; none twice."""
        runs = self.beside[other]
        return runs[runs["experiment"].isin([one.name for one in experiments])].drop_duplicates(SAME_RUN)

    def summary(self, one: Experiment) -> pd.DataFrame:
        """A row a policy; gains and gaps are of means of workloads, as the paper's."""
        sums, means, answers = self._sums(one.name), self.means[one.name], self.answers(one.name)
        found = {
            "goodput %, all requests": shown(100 * sums["correct"] / sums["arrivals"], ".2f"),
            "mean of workloads": shown(means, ".2f"),
            "SLO %": shown(100 * answers["slo"], ".2f"),
            "accuracy %": shown(100 * answers["accuracy"], ".2f"),
        }
        if one.fairness is Fairness.POLICY_ONLY and FLOOR in means:
            found[f"over {FLOOR} %"] = shown(100 * (means / means[FLOOR] - 1), "+.1f")
            if CEILING in means:
                found["gap closed %"] = shown(gap_closed_pct(means), ".0f")
        for name in (OURS, PAPERS):
            if name in means:
                found[f"`{name}`'s gain over it %"] = shown(100 * (means[name] / means.drop(name) - 1), "+.1f")
        if PAPERS in means:
            found["the paper's %"] = shown(pd.Series(PAPER_GAIN_PCT), "+d")
        return pd.DataFrame({**found, "changes": shown(sums["changes"], ".0f")}, index=means.index).fillna("")

    def _sums(self, name: str) -> pd.DataFrame:
        return self.rows[name].groupby("policy", sort=False).sum(numeric_only=True)

    def answers(self, name: str) -> pd.DataFrame:
        """By policy, ``slo`` (in time, of all arrivals) and ``accuracy`` (right, of all answers)."""
        sums = self._sums(name)
        right, answered = sums["correct"] + sums["correct_late"], sums["in_time"] + sums["late"]
        return pd.DataFrame({"slo": sums["in_time"] / sums["arrivals"], "accuracy": right / answered})

    def account(self, name: str, *by: str) -> pd.DataFrame:
        """The loss account's classes as shares of the arrivals, %, by these columns."""
        sums = self.rows[name].groupby(list(by), sort=False).sum(numeric_only=True)
        return 100 * sums[list(CLASSES)].div(sums["arrivals"], axis=0)

    def differences(self, name: str, of: str) -> pd.DataFrame:
        """How far each policy is ahead of ours over ``windows`` or ``segments``, with intervals."""
        found = {}
        for policy, ahead in ahead_of_ours(self.rows[name], of).items():
            *beside, workloads = _beside_ours(ahead, of)
            alone = ahead.stack().dropna()
            most = f"{(alone > LEAST_AHEAD_POINTS).sum()} of {len(alone)}, at most {alone.max():+z.1f}"
            found[policy] = (*beside, _n_ahead(ahead.mean(axis=1)), workloads, most)
        columns = ["points", f"95 %, over {of}", "95 %, over workloads", f"{of} in which it is ahead", "workloads"]
        columns.append(f"{of} of one workload")
        return pd.DataFrame.from_dict(found, orient="index", columns=columns)

    def ties(self, experiments: Sequence[Experiment]) -> pd.DataFrame:
        """Where each policy (row) ties with ours, over the workloads that all experiments have: their mean, and each.

        Ours is free to skip, as they are.
        """
        own = pd.concat({one.at: self.goodput[one.name] for one in experiments}, axis=1, join="inner")
        ours = self.goodput[GIVEN.name][OURS]
        own, ours = own.align(ours, join="inner", axis=0)
        own = own.loc[[name for name in self.goodput[MAIN.name].index if name in own.index]]
        ahead = own.sub(ours, axis=0)
        ahead.loc["mean"] = own.mean() - ours.mean()
        places = {
            name: {where: _shown_tie(points) for where, points in ahead.xs(name, axis=1, level=1).iterrows()}
            for name in self.means[experiments[0].name].index
        }
        return pd.DataFrame(places).T[["mean", *own.index]]

    def lead(self, policy: str, experiments: Sequence[Experiment]) -> pd.Series[float]:
        """Points by which the policy is ahead of ours, free to skip as it is, by the place of each experiment."""
        return pd.Series({one.at: self.means[one.name][policy] - self.means[GIVEN.name][OURS] for one in experiments})

    def leads_by_turn_cost(self, name: str) -> pd.Series[float]:
        """Points by which sharing by time is ahead of ours, mean of windows, by what a turn costs, %."""
        ahead = ahead_of_ours(self.rows[name], "windows")
        known = {cost: ahead[policy].mean().mean() for policy, cost in TURN_COSTS_PCT.items() if policy in ahead}
        return pd.Series(known, dtype=float)

    def leads(self, name: str, of: str, policies: Sequence[str]) -> dict[str, Interval]:
        """How far these policies are ahead of ours over ``windows`` or ``segments``."""
        found = ahead_of_ours(self.rows[name], of)
        return {policy: interval(found[policy], BLOCK[of]) for policy in policies if policy in found}

    def lead_over(self, name: str, policy: str, other: str) -> tuple[Interval, Interval, pd.Series[float]]:
        """How far a policy is ahead of another, over windows and over workloads; and by workload."""
        found = ahead_of_ours(self.rows[name], "windows")
        ahead = found[policy] if other == OURS else found[policy] - found[other]
        return interval(ahead, BLOCK["windows"]), over_workloads(ahead), ahead.mean()

    def leads_over_workloads(self, name: str, of: str) -> dict[str, Interval]:
        """The same of each policy, with intervals from how far workloads are apart."""
        return {policy: over_workloads(ahead) for policy, ahead in ahead_of_ours(self.rows[name], of).items()}

    def lead_without_largest(self, name: str, of: str, policy: str) -> tuple[Interval, int, float] | None:
        """How far it is ahead without the window or segment that makes most of that; which it is, and its part.

        ``None`` if there is but one.
        """
        ahead = ahead_of_ours(self.rows[name], of).get(policy)
        if ahead is None or len(ahead) < 2:
            return None
        rest, number, part = without_largest(ahead)
        return interval(rest, BLOCK[of]), int(number), part

    def first_table(self, name: str) -> pd.DataFrame:
        """A row a policy, ours first: goodput, how far it is ahead of ours over windows, with both intervals."""
        answers, means = self.answers(name), self.means[name]
        ahead = ahead_of_ours(self.rows[name], "windows")
        found = {}
        for policy in means.index:
            beside = _beside_ours(ahead[policy], "windows") if policy in ahead else ("", "", "", "")
            slo, accuracy = (f"{100 * answers.loc[policy, kind]:.1f}" for kind in ("slo", "accuracy"))
            found[policy] = (f"{means[policy]:.2f}", *beside, slo, accuracy)
        columns = ["goodput %", "points ahead", "95 %, over windows", "95 %, over workloads", "workloads ahead"]
        return pd.DataFrame.from_dict(found, orient="index", columns=[*columns, "in time %", "right %"])

    def n_windows_of(self, name: str) -> str:
        """How many windows its runs have."""
        return " or ".join(map(str, sorted({len(windows) for windows in self.rows[name]["windows"]})))

    def headline(self) -> pd.DataFrame:
        """README's rows: of the first table's what differs most, and how far each is ahead with one interval."""
        found = self.first_table(SHIPPED)
        ahead = (found["points ahead"] + " " + found["95 %, over workloads"]).str.strip()
        return pd.DataFrame({"goodput %": found["goodput %"], "ahead": ahead, **found[["in time %", "right %"]]})

    def leads_in(self, experiments: Sequence[Experiment], policy: str) -> pd.Series[float]:
        """Points by which the policy is ahead of ours, by the experiments' labels."""
        means = {one.label: self.means[one.name] for one in experiments}
        return pd.Series({label: own[policy] - own[OURS] for label, own in means.items()}, dtype=float)

    def workloads_ahead(self, name: str, policy: str) -> list[str]:
        """The workloads on which the policy's goodput is above ours, mean of windows."""
        ahead = ahead_of_ours(self.rows[name], "windows")[policy].mean()
        return list(ahead.index[ahead > 0])

    def losses_where_ahead(self, name: str, policy: str) -> pd.Series[float]:
        """By class, points that it loses more than ours: means of the workloads on which it is ahead, largest first."""
        losses = self.account(name, "policy", "workload").drop(columns="goodput")
        theirs, ours = (losses.loc[[one]].droplevel("policy") for one in (policy, OURS))
        more = (theirs - ours).loc[self.workloads_ahead(name, policy)].mean()
        return more[more.abs() >= LEAST_LOSS_POINTS].sort_values(ascending=False)

    def means_at(self, policy: str, names: Sequence[str]) -> list[float | None]:
        """Its mean in each of these experiments; ``None`` for those that were not run."""
        return [self.means[name][policy] if name in self.means else None for name in names]

    def gap_closed(self, name: str, policy: str) -> float | None:
        """Which part of the gap between ``static`` and ``oracle`` it closes, %; ``None`` if there is hardly one."""
        means = self.means[name]
        closed = gap_closed_pct(means).get(policy)
        return None if closed is None or pd.isna(closed) else float(closed)

    def gain(self, name: str, policy: str, of: str = OURS) -> float:
        """By how much one policy's goodput, mean of workloads, exceeds another's, %.

        A policy that the experiment lacks is taken from the table of those free to skip, then from the main one.
        """
        means = self.means[name].combine_first(self.means[GIVEN.name]).combine_first(self.means[MAIN.name])
        return float(100 * (means[of] / means[policy] - 1))

    def loss(
        self, *kinds: str, policy: str = OURS, workloads: Sequence[str] | None = None, name: str = MAIN.name
    ) -> float:
        """The share of all requests that falls into these classes, %."""
        rows = self.rows[name]
        own = rows[(rows["policy"] == policy) & (rows["workload"].isin(workloads or rows["workload"]))]
        return float(100.0 * own[list(kinds)].sum().sum() / own["arrivals"].sum())

    def n_first(self, experiments: Sequence[Experiment]) -> int:
        """The number of these experiments in which ours is the best policy but ``oracle``."""
        return sum(order_of(self.means[one.name].drop(CEILING))[0] == OURS for one in experiments)


def _beside_ours(ahead: pd.DataFrame, of: str) -> tuple[str, str, str, str]:
    """How far a policy is ahead of ours, over ``of`` and over workloads with intervals, and on how many workloads."""
    mean = interval(ahead, BLOCK[of])
    own, apart = (f"[{one.low:+z.2f}, {one.high:+z.2f}]" for one in (mean, over_workloads(ahead)))
    if len(ahead) < LEAST_BLOCKS * BLOCK[of]:
        own = "–"  # so few, drawn anew, are nearly the same each time
    return f"{mean.mean:+z.2f}", own, apart, _n_ahead(ahead.mean().dropna())


def _n_ahead(points: pd.Series[float]) -> str:
    return f"{(points > 0).sum()} of {len(points)}"


def _shown_tie(ahead: pd.Series[float]) -> str:
    found = tie(map(float, ahead.index), ahead)
    if found is not None:
        return f"{found:.2f}"
    if (ahead >= 0).all():
        return "ahead"
    return "behind" if (ahead < 0).all() else "mixed"


def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "code": "`{}`".format,
        "known": lambda text: text.replace(f"`{CEILING}`", policy_name(CEILING)),
        "fixed": lambda value, digits: f"{value:.{digits}f}",
        "signed": lambda value, digits: f"{value:+.{digits}f}",
        "plain": "{:g}".format,
        "percent": lambda share: "none" if share is None else f"{100 * share:.0f} %",
        "capitalised": lambda text: text[:1].upper() + text[1:],
    }
    return made


_TEMPLATES = _templates()
