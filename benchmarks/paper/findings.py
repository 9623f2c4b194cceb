"""What the results come to, in sentences: every figure of ours is computed from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.paper.experiments import EXPERIMENTS, MAIN, Experiment
from benchmarks.paper.pre_initialisation import COLD, hidden_as_goodput, hidden_in_seconds
from benchmarks.paper.statistics import (
    Rows,
    by_workload,
    interval,
    mean_of_workloads,
    of_policy,
    order_of,
    policies_of,
    segment_differences,
    swapped,
    tie,
    window_differences,
)
from benchmarks.paper.tables import (
    BLOCK_SEGMENTS,
    BLOCK_WINDOWS,
    LEAST_AHEAD_POINTS,
    OURS,
    PAPER_GAIN_PCT,
    PAPERS,
    Results,
    gap_closed_pct,
    more_than,
)
from migrator.compare import CEILING, FLOOR
from planner.policies.registry import MIG_POLICIES as POLICIES

Finding = Callable[[Results, Mapping[str, Any]], str | None]


def findings(results: Results, studies: Mapping[str, Any]) -> Iterator[str]:
    """Two sections: what comes out, and where and why it is not what the paper has."""
    for title, sentences in (("What comes out", COMES_OUT), ("What differs from the paper, and why", DIFFERS)):
        found = [sentence for one in sentences if (sentence := one(results, studies)) is not None]
        if found:
            yield from (f"## {title}", "", *(f"- {sentence}" for sentence in found), "")


def _means(results: Results, name: str) -> dict[str, float]:
    """Goodput % by policy, mean of workloads."""
    return {policy: mean_of_workloads(of_policy(results[name], policy)) for policy in policies_of(results[name])}


def _gain_pct(results: Results, experiment: str, policy: str, of: str = OURS) -> float:
    """By how much one policy's goodput, mean of workloads, exceeds another's, relative.

    Where an experiment has the other policy alone, the first is as in the main table.
    """
    means = {**_means(results, MAIN.name), **_means(results, experiment)}
    return 100 * (means[of] / means[policy] - 1)


def _headline(results: Results, _: Mapping[str, Any]) -> str:
    means = _means(results, MAIN.name)
    closed = [(name, label) for name, label in _CLOSED if name in results]
    gaps = ((label, gap_closed_pct(_means(results, name), OURS)) for name, label in closed)
    listed = ", ".join(f"{label} {f'{gap:.0f} %' if gap is not None else 'there is none'}" for label, gap in gaps)
    return (
        f"At load 0.7 `{OURS}` answers {means[OURS]:.1f} % of the requests right and in time (mean of workloads), the "
        f"best layout that never changes {means[FLOOR]:.1f} %, and planning with the arrivals known "
        f"{means[CEILING]:.1f} %. Of the gap between these two it closes: {listed}. Of all its requests "
        f"{_loss(results, 'capacity'):.1f} % are beyond what its layouts could serve, "
        f"{_loss(results, 'wrong_old', 'wrong_new'):.1f} % are answered in time and wrong, "
        f"{_loss(results, 'forecast'):.1f} % are lost to the forecast and "
        f"{_loss(results, 'reconfiguration'):.1f} % to changes."
    )


_CLOSED = (
    (MAIN.name, "in the first two windows"),
    ("whole-runs", "in all windows"),
    ("load-0.5", "at load 0.5"),
    ("load-0.3", "at load 0.3"),
)


def _loss(results: Results, *kinds: str, policy: str = OURS, workloads: Sequence[str] | None = None) -> float:
    """Which share of all requests of the main table falls into these classes, %."""
    rows = of_policy(results[MAIN.name], policy)
    rows = [row for row in rows if workloads is None or row["workload"] in workloads]
    lost, arrivals = (sum(float(row[key]) for row in rows for key in keys) for keys in (kinds, ("arrivals",)))
    return 100.0 * lost / arrivals


def _own_method(results: Results, _: Mapping[str, Any]) -> str | None:
    means = _means(results, MAIN.name)
    if PAPERS not in means or (closed := gap_closed_pct(means, PAPERS)) is None:
        return None
    return (
        f"The paper's own method, carried out by hardware's rules, closes {closed:.0f} % of it in the first two "
        f"windows; `{OURS}` is {_gain_pct(results, MAIN.name, PAPERS):.1f} % ahead of it, relative."
    )


def _over_time(results: Results, _: Mapping[str, Any]) -> str | None:
    parts = []
    for name, differences, block, of in (
        ("whole-runs", window_differences, BLOCK_WINDOWS, "all windows, half an hour of one day"),
        ("twitter", segment_differences, BLOCK_SEGMENTS, "a week of the Twitter counts"),
    ):
        if name in results:
            rows = results[name]
            n = len({row["workload"] for row in rows})
            ahead = []
            for policy in (FLOOR, PAPERS, "paris-changing", "paris"):
                if policy in policies_of(rows):
                    found = interval(differences(rows, policy, OURS), block)
                    ahead.append(f"`{policy}` {-found.mean:.2f} [{-found.high:.2f}, {-found.low:.2f}]")
            parts.append(f"{of}, {n} workloads: {', '.join(ahead)}")
    if not parts:
        return None
    return f"By how many points of goodput % `{OURS}` is ahead, with 95 % intervals, {'; '.join(parts)}."


def _without_partitions(results: Results, _: Mapping[str, Any]) -> str:
    ours = _means(results, MAIN.name)[OURS]
    points = [(one.at, _means(results, one.name)["ekya"] - ours) for one in _interference(results)]
    at = tie(points)
    lead = "" if at is None else f"`ekya` ties with us at {at:.2f} of the interference that Mudi measured. "
    return (
        f"**Without partitions everything depends on interference.** {lead}Its lead over us, in points: "
        f"{points[0][1]:+.1f} with none, {points[-1][1]:+.1f} with Mudi's figures as printed, which hold contention of "
        "the host, too. We know of no measurement on these models."
    )


def _interference(results: Results) -> list[Experiment]:
    return [one for one in EXPERIMENTS if one.name.startswith("interference-") and one.name in results]


def _whole(results: Results, _: Mapping[str, Any]) -> str:
    rows = results[MAIN.name]
    ours, whole = by_workload(of_policy(rows, OURS)), by_workload(of_policy(rows, "whole"))
    better = [name for name, own in ours.items() if whole[name] > own]
    others = [name for name in ours if name not in better]
    return (
        f"**Why MIG at all?** Time sharing on the whole GPU (`whole`) beats us on {', '.join(better) or 'nothing'}, if "
        "changing between models costs nothing. On the others it answers "
        f"{_loss(results, 'wrong_old', policy='whole', workloads=others):.0f} % wrong by old models, we "
        f"{_loss(results, 'wrong_old', workloads=others):.0f} %: its retrainings have low priority and end late. "
        "A rule that reserves time for them might do better."
    )


_REASONS = {
    ("load-0.3", "w1"): "on w1 BERT's load in the second window is forecast a tenth too low",
    ("load-0.3", "w5"): "on w5 instances added in a window's last seconds stand where the next retraining should start",
}
"""Why ``static`` is ahead, where we looked into it."""


def _behind_static(results: Results, _: Mapping[str, Any]) -> str | None:
    loads = [one for one in EXPERIMENTS if one.name.startswith("load-") and one.name in results]
    if not loads:
        return None
    parts, reasons, n_ahead = [], [], 0
    for one in loads:
        ours, floor = (by_workload(of_policy(results[one.name], policy)) for policy in (OURS, FLOOR))
        ahead = [name for name, own in ours.items() if floor[name] > own + LEAST_AHEAD_POINTS]
        reasons += [_REASONS[one.name, name] for name in ahead if (one.name, name) in _REASONS]
        n_ahead += len(ahead)
        if ahead:
            most = max(floor[name] - ours[name] for name in ahead)
            parts.append(f"at {one.label} on {len(ahead)} of {len(ours)} workloads, by at most {most:.2f} points")
    if not parts:
        return f"`{FLOOR}` is ahead of `{OURS}` at no load that was tried."
    why = f" Of {len(reasons)} of these {n_ahead} we know why: {'; '.join(reasons)}." if reasons else ""
    return (
        f"**Where one fixed layout is enough**: `{FLOOR}` is ahead of `{OURS}` {'; '.join(parts)}.{why}"
        f"{_elsewhere_behind_static(results)}"
    )


def _elsewhere_behind_static(results: Results) -> str:
    """The same in the tables that are not about load."""
    others = [one for one in EXPERIMENTS if not one.name.startswith("load-") and one.name in results]
    by_experiment = {one.name: more_than([one], results, (FLOOR,), OURS) for one in others}
    found = [(name, item) for name, (items, _) in by_experiment.items() for item in items]
    if not found:
        return ""
    n_runs = sum(n for _, n in by_experiment.values())
    name, most = max(found, key=lambda one: one[1].points)
    own = next(row for row in of_policy(results[name], OURS) if row["workload"] == most.workload)
    return (
        f" In the other tables it is in {len(found)} of {n_runs} runs, most on {most.workload} ({most.label}), by "
        f"{most.points:.2f} points; there `{OURS}` loses {100 * own['forecast'] / own['arrivals']:.0f} % of the "
        "requests to the forecast."
    )


_FAR_ABOVE = {
    ("profiles-4", "w1"): (
        "its plan of the first window ends with an epoch that changes nothing and costs nothing there, but puts off "
        "the second window's first change"
    ),
    ("estimates-all", "w16"): "it knows arrivals, not what retrainings bring, and is misled like the others",
}
"""Why a policy gets more than 1 % more than ``oracle``, where we looked into it."""


def _above_oracle(results: Results, _: Mapping[str, Any]) -> str | None:
    if "whole-runs" not in results:
        return None
    others = tuple(name for name in POLICIES if name != CEILING)
    by_experiment = {one.name: more_than([one], results, others, CEILING) for one in EXPERIMENTS if one.name in results}
    found, n_runs = by_experiment["whole-runs"]
    most = max((item.relative_pct for item in found), default=0.0)
    far = [
        f"`{item.policy}` on {item.workload} ({item.label}) {item.relative_pct:+.2f} %: "
        f"{_FAR_ABOVE.get((name, item.workload), 'we have not looked into it')}"
        for name, (items, _) in by_experiment.items()
        for item in items
        if item.relative_pct > 1
    ]
    return (
        f"**`{CEILING}` is no bound of whole runs.** By window, from one state and on the tables that plans are made "
        f"of, no policy's plan is worth more (a test holds that); over all windows {len(found)} of {n_runs} runs get "
        f"more, by {most:.2f} % at most. Where we looked: it plans window by window, and of plans worth the same it "
        "may take one that leaves the next window a worse start (w10); and warm-ups are planned at about seven seconds "
        "where they take two, so that plans of equal promise gain unequal amounts (w7). In all tables of this page "
        f"more than 1 % above it: {'; '.join(far) or 'none'}."
    )


def _estimates(results: Results, _: Mapping[str, Any]) -> str | None:
    names = ("exact", "short", "long")
    if not all(f"estimates-{name}" in results for name in names):
        return None
    exact, short, long = (_means(results, f"estimates-{name}")[OURS] for name in names)
    return (
        f"**Estimates of retraining time matter, those of accuracy hardly.** 30 % too long costs `{OURS}` "
        f"{exact - long:.1f} points: retrainings get larger instances than they need (w1). 30 % too short changes it "
        f"by {short - exact:+.1f}: start-ups are planned at about seven seconds where they take two, which rules out "
        "retrainings one after the other that would fit into the window (w1), and estimates that are too short make up "
        "for it."
    )


def _ranking(results: Results, _: Mapping[str, Any]) -> str | None:
    draws = [one for one in EXPERIMENTS if one.perturbation is not None and one.name in results]
    if not draws:
        return None
    order = order_of(_means(results, MAIN.name))
    orders = [order_of(_means(results, one.name)) for one in draws]
    pairs = sorted({f"`{second}` and `{first}`" for other in orders for first, second in swapped(order, other)})
    n_first = sum(next(name for name in other if name != CEILING) == OURS for other in orders)
    return (
        f"With every profile multiplied by 0.8 to 1.2 `{OURS}` stays the best of those that do not know the arrivals "
        f"in {n_first} of {len(draws)} draws; pairs that change places in some draw: {', '.join(pairs) or 'none'}."
    )


def _gains(results: Results, _: Mapping[str, Any]) -> str:
    known = [name for name in PAPER_GAIN_PCT if name in policies_of(results[MAIN.name])]
    ours = ", ".join(f"{_gain_pct(results, MAIN.name, name):+.0f} % over `{name}`" for name in known)
    without = {name: _gain_pct(results, "interference-0", name) for name in ("ekya", "astraea") if name in known}
    at_0 = ", ".join(f"{gain:+.0f} % over `{name}`" for name, gain in without.items())
    papers = ", ".join(f"{PAPER_GAIN_PCT[name]:+d} %" for name in known)
    changing = ""
    if "whole-runs" in results:
        gain = _gain_pct(results, "whole-runs", "paris-changing")
        changing = f" Over `paris-changing`, which is the stronger, {gain:+.0f} % in all windows."
    return (
        f"**Gains.** `{OURS}`: {ours} (paper: {papers}); without interference {at_0}.{changing} These compare `{OURS}` "
        "with free batches for all. What the paper compares is its own method with the batch given to all:"
        f"{_published(results)}"
    )


def _published(results: Results) -> str:
    parts = []
    for batch in (1, 4):
        name = f"published-{batch}-recorded"
        if name in results:
            known = [policy for policy in PAPER_GAIN_PCT if policy in policies_of(results[name])]
            gains = ", ".join(f"{_gain_pct(results, name, policy, PAPERS):+.0f} % over `{policy}`" for policy in known)
            parts.append(f" batch {batch}: {gains}")
    return f"{';'.join(parts)} (`{PAPERS}`, with Mudi's interference)." if parts else " not in this run."


def _answers(results: Results, _: Mapping[str, Any]) -> str:
    rows = results[MAIN.name]
    slo, accuracy = ({name: _share(of_policy(rows, name), *keys) for name in policies_of(rows)} for keys in _SHARES)
    listed = ", ".join(
        f"`{name}` {100 * (slo[OURS] / slo[name] - 1):+.0f} % / {100 * (accuracy[OURS] / accuracy[name] - 1):+.0f} %"
        for name in ("ekya", "astraea", "paris")
        if name in slo
    )
    return (
        f"**SLO attainment and accuracy**, ours over theirs, relative, all requests: {listed}. The paper: +17 %, +6 % "
        "and +13 % in SLO attainment over Ekya, Astraea and PARIS, +19 % and +12 % in accuracy over Astraea and PARIS."
    )


_SHARES = ((("in_time",), ("arrivals",)), (("correct", "correct_late"), ("in_time", "late")))
"""SLO attainment and accuracy: what is counted, and of what."""


def _share(rows: Rows, counted: Sequence[str], of: Sequence[str]) -> float:
    part, whole = (sum(float(row[key]) for row in rows for key in keys) for keys in (counted, of))
    return part / whole


def _astraea(results: Results, _: Mapping[str, Any]) -> str | None:
    if "astraea" not in policies_of(results[MAIN.name]):
        return None
    capacity, old = (_loss(results, kind, policy="astraea") for kind in ("capacity", "wrong_old"))
    return (
        f"**Astraea** comes out far lower than in the paper with Mudi's interference: {capacity:.0f} % of the requests "
        f"are beyond what its shares serve, {old:.0f} % are answered wrong by old models. It knows nothing of "
        "accuracy: a retraining gets what ends it with the window, so that it always runs, and always disturbs. Its "
        "own text is not among those we worked from."
    )


def _hidden(_: Results, studies: Mapping[str, Any]) -> str | None:
    if "pre-initialisation" not in studies:
        return None
    parts = []
    for row in studies["pre-initialisation"]:
        own = row["policies"][PAPERS]
        known = (hidden_in_seconds(own), hidden_in_seconds(row["policies"][COLD]), hidden_as_goodput(row["policies"]))
        seconds, without, goodput = (f"{100 * value:.0f} %" if value is not None else "none" for value in known)
        idle = 100 * own["idle_s"] / (own["idle_s"] + own["left_s"] + own["exposed_s"])
        parts.append(
            f"at load {row['load']:g} {seconds} in seconds ({without} without pre-initialisation, as growing into what "
            f"a retraining left takes nothing from anybody; {idle:.0f} % on slices idle before), {goodput} as goodput"
        )
    return (
        f"**The 83 % of overhead hidden**: {'; '.join(parts)}. The forecast's mean is flat within a window, so that "
        "plans change where retrainings start and end, and the slices that a change needs are held by the retraining "
        "until then ([policies.md](policies.md))."
    )


def _granularity(results: Results, _: Mapping[str, Any]) -> str | None:
    steps = [one for one in EXPERIMENTS if one.name.startswith("step-") and one.name in results]
    if len(steps) < 2:
        return None
    ours, papers = ([_means(results, one.name)[name] for one in steps] for name in (OURS, PAPERS))
    listed = ", ".join(
        f"{own:.2f} / {theirs:.2f} at {one.at:g} s" for one, own, theirs in zip(steps, ours, papers, strict=True)
    )
    return (
        f"**Granularity (Figure 10).** The paper: best at 0.5 s, much the same at 1 s, clearly lower at 10 s. Ours "
        f"(`{OURS}` / `{PAPERS}`): {listed}. Changes cannot come more often than Ω anyway, which the paper's program "
        "does not know, and our requests follow a rate smoothed over 10 s. At 3 s a window has 198 s."
    )


def _traces(_: Results, studies: Mapping[str, Any]) -> str | None:
    if "motivation" not in studies:
        return None
    return (
        "**The best allocation changes from second to second (Figure 3)** only with the raw counts of the trace; the "
        "study below has both. Our workloads draw requests from a rate smoothed over 10 s, because counts of 5 "
        "requests a second scaled to hundreds would make noise into bursts; then what a policy gains by changing "
        "comes around retrainings. A trace that truly varies by the second would favour frequent changes more."
    )


def _setting(_: Results, __: Mapping[str, Any]) -> str:
    return (
        "**Setting.** The paper had an A100 with 40 GB and its own profiles, traces and loads, of which it prints "
        "little; ours has 80 GB and others' measurements. Accuracies are read off the paper's figures where it has "
        "them, so that agreement in accuracy is no evidence."
    )


COMES_OUT: Sequence[Finding] = (
    _headline,
    _own_method,
    _over_time,
    _without_partitions,
    _whole,
    _behind_static,
    _estimates,
    _ranking,
    _above_oracle,
)

DIFFERS: Sequence[Finding] = (_gains, _answers, _astraea, _hidden, _granularity, _traces, _setting)
