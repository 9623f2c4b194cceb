"""Tables of the results page, from rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.paper.experiments import MAIN, Experiment, Section, View
from benchmarks.paper.results import CLASSES
from benchmarks.paper.statistics import (
    Differences,
    Row,
    Rows,
    by_number,
    by_workload,
    goodput_pct,
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
from migrator.compare import CEILING, FLOOR, Terms
from planner.policies.registry import MIG_POLICIES as POLICIES

OURS, PAPERS = "migrator", "migrator-paper"

PAPER_GAIN_PCT = {"ekya": 17, "astraea": 21, "paris": 20}
"""By how much MIGRator's goodput exceeds each on average: paper, §5.2, which does not say of what."""

BLOCK_WINDOWS, BLOCK_SEGMENTS = 2, 4
"""What is resampled together."""

LEAST_GAP_POINTS = 0.1
"""A gap between ``static`` and ``oracle`` below this is none that could be closed."""

LEAST_AHEAD_POINTS = 0.005
"""Less is not told."""

MOST_LISTED = 10
"""Runs that are named one by one."""

Results = Mapping[str, Rows]
"""Rows by experiment."""


def section_lines(section: Section, results: Results) -> Iterator[str]:
    """The tables of a section of which at least one experiment was run."""
    experiments = [one for one in section.experiments if results.get(one.name)]
    if section.view in (View.TABLES, View.WINDOWS, View.SEGMENTS):
        for experiment in experiments:
            rows = results[experiment.name]
            if len(experiments) > 1:
                yield from (f"### {_capital(experiment.label)}", "")
            yield from _tables(rows, experiment.terms)
            if experiment is MAIN:
                yield from _by_workload(rows)
            if section.view is View.WINDOWS:
                yield from _differences(rows, window_differences, BLOCK_WINDOWS, "windows")
            elif section.view is View.SEGMENTS:
                yield from _differences(rows, segment_differences, BLOCK_SEGMENTS, "segments")
    elif section.view is View.TIES:
        yield from _ties(experiments, results)
    else:
        yield from _sweep(experiments, results)
        if section.view is View.RANKING:
            yield from _ranking(experiments, results)
    yield from _more_than(experiments, results, (FLOOR,), OURS)
    yield from _more_than(experiments, results, tuple(name for name in POLICIES if name != CEILING), CEILING)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table and an empty line."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _tables(rows: Rows, terms: Terms) -> Iterator[str]:
    own = {name: of_policy(rows, name) for name in policies_of(rows)}
    yield from _summary(own, terms)
    yield from ("Where the arrivals go, % of all requests:", "")
    yield from _accounts({f"`{name}`": found for name, found in own.items()}, "policy")
    if CEILING in own:
        yield f"*forecast* is what `{CEILING}` answers in time in the same second; for a policy that keeps its layout"
        yield from ("that is what keeping it costs, no error of a forecast.", "")
    yield from ("Goodput %, by workload:", "")
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    cells = []
    for name, found in own.items():
        by_name = by_workload(found)
        cells.append((f"`{name}`", *(f"{by_name[workload]:.1f}" for workload in workloads)))
    yield from table(("policy", *workloads), cells)


def _by_workload(rows: Rows) -> Iterator[str]:
    """Our own account, workload by workload."""
    own = of_policy(rows, OURS)
    yield from (
        f"Where the arrivals go under `{OURS}`, %, by workload (`migrator compare --plot` draws it for all):",
        "",
    )
    workloads = dict.fromkeys(row["workload"] for row in own)
    yield from _accounts({name: [row for row in own if row["workload"] == name] for name in workloads}, "workload")


def _accounts(own: Mapping[str, Rows], of: str) -> list[str]:
    """A row a name: the shares of the classes of the loss account in its arrivals."""
    lines = []
    for name, found in own.items():
        arrivals = _sum(found, "arrivals")
        lines.append((name, *(f"{100 * sum(row[key] for row in found) / arrivals:.2f}" for key in CLASSES)))
    return table((of, *(name.replace("_", " ") for name in CLASSES)), lines)


def _summary(own: Mapping[str, Rows], terms: Terms) -> list[str]:
    """A row a policy; gains and gaps are of means of workloads, as the paper's."""
    means = {name: mean_of_workloads(rows) for name, rows in own.items()}
    has_floor = terms is Terms.POLICY_ONLY and FLOOR in own
    references = [name for name in (OURS, PAPERS) if name in own]
    header = ["policy", "goodput %, all requests", "mean of workloads", "SLO %", "accuracy %"]
    header += [f"over {FLOOR} %"] * has_floor + ["gap closed %"] * (has_floor and CEILING in own)
    header += [f"`{name}`'s gain over it %" for name in references]
    header += ["the paper's %"] * (PAPERS in own) + ["changes"]
    lines = []
    for name, rows in own.items():
        answered = _sum(rows, "in_time") + _sum(rows, "late")
        right = _sum(rows, "correct") + _sum(rows, "correct_late")
        cells = [f"`{name}`", f"{goodput_pct(rows):.2f}", f"{means[name]:.2f}"]
        cells.append(f"{100 * _sum(rows, 'in_time') / _sum(rows, 'arrivals'):.2f}")
        cells.append(f"{100 * right / answered:.2f}" if answered else "")
        if has_floor:
            cells.append(f"{100 * (means[name] / means[FLOOR] - 1):+.1f}")
            cells += [shown_gap(means, name)] * (CEILING in own)
        cells += ["" if one == name else f"{100 * (means[one] / means[name] - 1):+.1f}" for one in references]
        if PAPERS in own:
            cells.append(f"+{PAPER_GAIN_PCT[name]}" if name in PAPER_GAIN_PCT else "")
        lines.append((*cells, str(_sum(rows, "changes"))))
    return table(header, lines)


def gap_closed_pct(means: Mapping[str, float], policy: str) -> float | None:
    """Which part of the gap between ``static`` and ``oracle`` the policy closes, %; ``None`` if there is hardly one."""
    gap = means[CEILING] - means[FLOOR]
    return None if gap < LEAST_GAP_POINTS else 100 * (means[policy] - means[FLOOR]) / gap


def shown_gap(means: Mapping[str, float], policy: str) -> str:
    """The same in whole per cent; empty if there is hardly a gap."""
    closed = gap_closed_pct(means, policy)
    return "" if closed is None else f"{closed:.0f}"


def _sum(rows: Rows, key: str) -> int:
    return sum(int(row[key]) for row in rows)


def _differences(
    rows: Rows, of_policy_and_ours: Callable[[Rows, str, str], Differences], block: int, of: str
) -> Iterator[str]:
    """How far each policy is ahead of us, with intervals."""
    yield from (f"Points of goodput % ahead of `{OURS}`, mean of workloads, with intervals from resampled {of}:", "")
    lines = []
    for name in policies_of(rows):
        if name != OURS:
            differences = of_policy_and_ours(rows, name, OURS)
            found, each = interval(differences, block), by_number(differences)
            better = sum(value > 0 for value in each)
            shown = f"[{found.low:+.2f}, {found.high:+.2f}]"
            lines.append((f"`{name}`", f"{found.mean:+.2f}", shown, f"{better} of {len(each)}"))
    yield from table(("policy", "points", "95 %", f"{of} in which it is ahead"), lines)


@dataclass(frozen=True)
class More:
    """A policy that gets more than another over a whole run.

    Attributes:
        label: Of the experiment.
        policy: Its name.
        workload: Where.
        points: By how many points of goodput %.
        relative_pct: By how much of the other's goodput.
    """

    label: str
    policy: str
    workload: str
    points: float
    relative_pct: float


def more_than(
    experiments: Sequence[Experiment], results: Results, policies: Sequence[str], other: str
) -> tuple[list[More], int]:
    """Where these policies get more than the other, and of how many runs that both have."""
    found, n_runs = [], 0
    for one in experiments:
        rows = results[one.name]
        limit = by_workload(of_policy(rows, other))
        for name in policies_of(rows) if limit else ():
            if name in policies:
                own = by_workload(of_policy(rows, name))
                n_runs += len(own)
                found += [
                    More(one.label, name, workload, value - limit[workload], 100 * (value / limit[workload] - 1))
                    for workload, value in own.items()
                    if value > limit[workload] + LEAST_AHEAD_POINTS
                ]
    return found, n_runs


def _more_than(
    experiments: Sequence[Experiment], results: Results, policies: Sequence[str], other: str
) -> Iterator[str]:
    """The same in a sentence; of many runs only the number and the most."""
    found, n_runs = more_than(experiments, results, policies, other)
    if not n_runs:
        return
    if not found:
        yield from (f"More than `{other}` over a whole run: none of {n_runs}.", "")
        return
    most = max(found, key=lambda one: one.relative_pct)
    listed = [
        f"{f'{one.label}, ' if len(experiments) > 1 else ''}`{one.policy}` on {one.workload} {one.points:+.2f}"
        for one in (found if len(found) <= MOST_LISTED else [most])
    ]
    kind = "points" if len(found) <= MOST_LISTED else "the most, in points"
    yield f"More than `{other}` over a whole run: {len(found)} of {n_runs}; {kind}: {'; '.join(listed)} "
    yield from (f"(relative at most {most.relative_pct:.2f} %).", "")


def _sweep(experiments: Sequence[Experiment], results: Results) -> list[str]:
    """Goodput %, and gaps closed, mean of workloads."""
    policies = list(dict.fromkeys(name for one in experiments for name in policies_of(results[one.name])))
    has_gap = {FLOOR, CEILING} <= set(policies)
    closers = [name for name in policies if name in POLICIES and name not in (FLOOR, CEILING)] if has_gap else []
    lines = []
    for one in experiments:
        rows = results[one.name]
        cells = [f"{mean_of_workloads(of_policy(rows, name)):.2f}" for name in policies]
        lines.append((one.label, *cells, *(shown_gap(_means(rows), name) for name in closers)))
    gaps = (f"`{name}` closes %" for name in closers)
    return ["Goodput %, mean of workloads:", "", *table(("", *(f"`{name}`" for name in policies), *gaps), lines)]


def _ties(experiments: Sequence[Experiment], results: Results) -> Iterator[str]:
    """How far each policy is ahead, by strength, over workloads and for each; and where it ties."""
    policies = policies_of(results[experiments[0].name])
    workloads = common_workloads([MAIN, *experiments], results)
    ours = {
        name: value for name, value in by_workload(of_policy(results[MAIN.name], OURS)).items() if name in workloads
    }
    mean_of_ours = fmean(ours.values())
    own = {
        name: [(one.at, by_workload(of_policy(results[one.name], name))) for one in experiments] for name in policies
    }
    ahead = {
        name: [(at, fmean(values[workload] for workload in workloads) - mean_of_ours) for at, values in found]
        for name, found in own.items()
    }
    lines = []
    for place, one in enumerate(experiments):
        points = (ahead[name][place][1] for name in policies)
        lines.append((one.label, *(f"{mean_of_ours + value:.2f} ({value:+.2f})" for value in points)))
    yield f"Goodput %, mean of workloads, and points ahead of `{OURS}` ({mean_of_ours:.2f}):"
    yield ""
    yield from table(("", *(f"`{name}`" for name in policies)), lines)
    yield from (f"Where it ties with `{OURS}`; of single workloads, each a run of 400 s:", "")
    cells = []
    for name in policies:
        each = ([(at, values[workload] - ours[workload]) for at, values in own[name]] for workload in workloads)
        cells.append((f"`{name}`", *map(_shown_tie, (ahead[name], *each))))
    yield from table(("policy", "mean", *workloads), cells)


def common_workloads(experiments: Sequence[Experiment], results: Results) -> list[str]:
    """The workloads that all experiments have, in the order of the first."""
    known = [dict.fromkeys(row["workload"] for row in results[one.name]) for one in experiments]
    return [name for name in known[0] if all(name in other for other in known)]


def _shown_tie(points: Sequence[tuple[float, float]]) -> str:
    found = tie(points)
    if found is not None:
        return f"{found:.2f}"
    if all(value >= 0 for _, value in points):
        return "ahead"
    return "behind" if all(value < 0 for _, value in points) else "mixed"


def _ranking(experiments: Sequence[Experiment], results: Results) -> Iterator[str]:
    """Whether the order of the policies is that of the main table."""
    order = order_of(_means(results[MAIN.name]))
    yield f"Order in the first table: {', '.join(f'`{name}`' for name in order)}."
    for one in experiments:
        pairs = swapped(order, order_of(_means(results[one.name])))
        text = ", ".join(f"`{second}` before `{first}`" for first, second in pairs) or "the same order"
        yield f"{_capital(one.label)}: {text}."
    yield ""


def _means(rows: Rows) -> dict[str, float]:
    return {name: mean_of_workloads(of_policy(rows, name)) for name in policies_of(rows)}


def missing_rows(rows: Rows) -> list[Row]:
    """Those without numbers: the policy had no plan for its first window."""
    return [row for row in rows if row["arrivals"] is None]
