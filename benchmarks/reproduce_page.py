"""``docs/results.md`` from ``docs/results.json``: tables only, no figure of its own but the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reproduce_experiments import EXPERIMENTS

from migrator.compare import CEILING, FLOOR

PAPER_GAIN_PCT = {"ekya": 17, "astraea": 21, "paris": 20}
"""By how much MIGRator's goodput exceeds each on average: paper, §5.2, which does not say of what."""

CLASSES = ("goodput", "wrong_old", "wrong_new", "capacity", "reconfiguration", "queueing")
"""Of the loss account; what forecasts cost is not told here, it is part of capacity and reconfiguration."""

Rows = Sequence[Mapping[str, Any]]


def page(document: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    made = document["made"]
    lines = [
        "# Results",
        "",
        f"Made by `{made['command']}` with migrator {made['version']}, Python {made['python']}, on {made['machine']};",
        "the figures are in [results.json](results.json), and this page is made from that alone. **Everything is",
        "simulated**: no GPU took part. The *Alibaba* trace is synthetic at second scale, and some service profiles",
        "are derived; [workloads.md](workloads.md) says which. [policies.md](policies.md) says what each policy knows",
        "and does, and what the columns mean. There is one segment a workload: no intervals over time, and a",
        "difference of a few tenths is none. The paper does not say whether its gains are relative or in points; ours",
        "beside them are relative.",
        "",
        "How `ekya` and `astraea` do depends on how much tenants on MPS disturb each other: the first table takes",
        "Mudi's figures as printed, which hold contention that MIG does not take away either; the tables below it take",
        "less.",
        "",
    ]
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    for found in document["experiments"]:
        experiment = known[found["name"]]
        lines += [f"## {experiment.title}", "", experiment.text, "", *_tables(found["results"]), ""]
    missing = [experiment.title for experiment in EXPERIMENTS if experiment.name not in _names(document)]
    if missing:
        lines += ["## Not in this run", "", "`make reproduce FULL=1` adds:", "", *(f"- {title}" for title in missing)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _names(document: Mapping[str, Any]) -> set[str]:
    return {found["name"] for found in document["experiments"]}


def _tables(rows: Rows) -> Iterator[str]:
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    own = {name: [row for row in rows if row["policy"] == name] for name in policies}
    yield from _summary(own)
    yield ""
    yield "Where the arrivals go, %:"
    yield ""
    yield f"| policy | {' | '.join(name.replace('_', ' ') for name in CLASSES)} |"
    yield "|---|" + "---|" * len(CLASSES)
    for name, found in own.items():
        arrivals = _sum(found, "arrivals")
        shares = (100 * sum(row["account"][key] for row in found) / arrivals for key in CLASSES)
        yield f"| `{name}` | {' | '.join(f'{share:.2f}' for share in shares)} |"
    yield ""
    yield "Goodput %, by workload:"
    yield ""
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    yield f"| policy | {' | '.join(workloads)} |"
    yield "|---|" + "---|" * len(workloads)
    for name, found in own.items():
        by_workload = {row["workload"]: 100 * row["correct"] / row["arrivals"] for row in found}
        yield f"| `{name}` | {' | '.join(f'{by_workload[workload]:.1f}' for workload in workloads)} |"


def _summary(own: Mapping[str, Rows]) -> Iterator[str]:
    """A row a policy; goodput is of all requests together, the mean counts each workload once."""
    ours = _sum(own["migrator"], "correct") if "migrator" in own else 0
    yield (
        f"| policy | goodput % | mean of workloads | SLO % | accuracy % | gap closed % | over {FLOOR} % | "
        "migrator's gain over it, relative % | the paper's % | changes |"
    )
    yield "|---|" + "---|" * 9
    floor, ceiling = (_sum(own[name], "correct") if name in own else None for name in (FLOOR, CEILING))
    for name, rows in own.items():
        correct, arrivals = _sum(rows, "correct"), _sum(rows, "arrivals")
        answered = _sum(rows, "in_time") + _sum(rows, "late")
        mean = sum(row["correct"] / row["arrivals"] for row in rows) / len(rows)
        right = correct + _sum(rows, "correct_late")
        cells = [
            f"{100 * correct / arrivals:.2f}",
            f"{100 * mean:.2f}",
            f"{100 * _sum(rows, 'in_time') / arrivals:.2f}",
            f"{100 * right / answered:.2f}" if answered else "",
            "" if floor is None or ceiling is None else f"{100 * (correct - floor) / (ceiling - floor):.0f}",
            "" if floor is None else f"{100 * (correct / floor - 1):+.1f}",
            f"{100 * (ours / correct - 1):+.1f}" if ours and name != "migrator" else "",
            f"+{PAPER_GAIN_PCT[name]}" if name in PAPER_GAIN_PCT else "",
            str(_sum(rows, "changes")),
        ]
        yield f"| `{name}` | {' | '.join(cells)} |"


def _sum(rows: Rows, key: str) -> int:
    return sum(int(row[key]) for row in rows)
