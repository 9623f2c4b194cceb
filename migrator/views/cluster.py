"""A cluster's answer, its runs, and rivals, as tables and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from migrator.cluster.answer import ClusterPlan, plan_to_json
from migrator.cluster.simulation import ClusterOutcome, GpuOutcome
from migrator.config.cluster import ClusterConfig
from migrator.terminal.console import counted, escape
from migrator.views.figures import REQUESTS, TOTALS
from migrator.views.table import WORDS, Column, Sheet, in_json, named
from workloads.serving.tally import Totals


def print_cluster_plan(cluster: ClusterConfig, plan: ClusterPlan, console: Console) -> None:
    """Print each GPU's tenants, and below what all are worth and what none exceeds."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("GPU", "node", "tenants", "worth", "expected"):
        table.add_column(heading, justify="right" if heading in ("worth", "expected") else "left", overflow="fold")
    rows = zip(cluster.gpus, plan.found.sets, plan.found.worths, plan.expected, strict=True)
    for gpu, members, worth, expected in rows:
        names = ", ".join(members) or "–"
        table.add_row(*map(escape, (gpu.name, gpu.node, names, f"{worth:,.0f}", f"{expected:,.0f}")))
    console.print(table)
    proven = f"{plan.found.bound.value:,.0f}"
    if plan.gap is None:
        said = f"no bound is known with pools; of plans without pools none exceeds {proven}"
    else:
        said = f"none exceeds {proven} (gap {100 * plan.gap:.2f} %)"
    moved = f"; {counted(len(plan.found.moved), 'tenant')} moved" if plan.found.moved else ""
    console.print(f"worth {plan.found.worth:,.0f} requests, salvage included; {said}{moved}")
    for one in plan.found.unplaced:
        console.print(f"{escape(one.tenant)} is on no GPU: {escape(one.reason)}")


_REQUESTS = named(REQUESTS, ("arrivals", "goodput", "in time", "accuracy"))

_GPUS: Sequence[Column[GpuOutcome]] = (
    Column("GPU", "name", layout=WORDS),
    Column("tenants", get=lambda one: ", ".join(one.answered) or None, layout=WORDS),
)


def print_cluster_outcome(name: str, found: ClusterOutcome, console: Console) -> None:
    """Print the outcomes of each GPU's requests, and of all of them."""
    console.print(f"[bold]{escape(name)}[/]: every GPU's run, simulated")
    whole = GpuOutcome("all", "", {}, found.expected)
    totals = {"all": found.total, **{one.name: one.total for one in found.gpus}}
    columns = [*_GPUS, *(column.of(lambda one: totals[one.name]) for column in _REQUESTS)]
    console.print(Sheet(columns, [found.gpus, [whole]], lambda one: "bold" if one is whole else None).drawn())
    console.print(f"first window: {_off(found)}; sums of the runs' logs", style="dim")


def _off(found: ClusterOutcome) -> str:
    """What was expected of the first window beside what was answered."""
    off = f" ({100 * (found.expected / found.first_goodput - 1):+.1f} %)" if found.first_goodput else ""
    return f"{found.expected:,.0f} expected by plans{off}, {found.first_goodput:,.0f} answered in time and right"


def _totals(totals: Totals) -> dict[str, Any]:
    return {**in_json(TOTALS, totals), "late": totals.late, "dropped": totals.dropped}


def cluster_outcome_to_json(cluster: ClusterConfig, plan: ClusterPlan, found: ClusterOutcome) -> dict[str, object]:
    """The runs' sums by GPU, by tenant and in all, beside what plans of the first window expected."""
    return {
        "schema": 1,
        "name": cluster.run.name,
        "basis": "simulated",
        "windows": cluster.run.windows,
        "expected_goodput": found.expected,
        "first_window_goodput": found.first_goodput,
        "total": _totals(found.total),
        "gpus": [
            {
                "name": gpu.name,
                "node": gpu.node,
                "run": gpu.name if gpu.answered else None,
                "tenants": list(gpu.answered),
                "expected_goodput": gpu.expected,
                "total": _totals(gpu.total),
            }
            for gpu in found.gpus
        ],
        "tenants": {name: _totals(sum(windows, Totals())) for name, windows in sorted(found.answered.items())},
        "plan": plan_to_json(cluster, plan),
    }


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to say who goes where, and its result.

    Attributes:
        name: ``ours``, or a rival.
        plan: Its sets, each planned in full.
        requests: Their outcomes, simulated; ``None`` where nothing was.
        ours: The plan of ours.
    """

    name: str
    plan: ClusterPlan
    requests: Totals | None
    ours: ClusterPlan

    @property
    def ours_over_it_pct(self) -> float:
        """By how much ours is worth more, planned, of this one's worth."""
        own = self.plan.found.worth
        return 100 * (self.ours.found.worth / own - 1) if own > 0 else 0.0


_CONTENDERS: Sequence[Column[Contender]] = (
    Column("policy", "policy", get=lambda one: one.name, layout=WORDS),
    Column("worth", "worth", form=",.0f", get=lambda one: one.plan.found.worth),
    Column("ours over it", "ours_over_it_pct", "%", "+z.2f"),
    Column("expected", "expected_goodput", form=",.0f", get=lambda one: sum(one.plan.expected)),
    Column("not served", "unserved", get=lambda one: len(one.plan.unserved)),
)


def print_contenders(name: str, found: Sequence[Contender], console: Console) -> None:
    """Print a row for each."""
    is_run = any(one.requests is not None for one in found)
    console.print(f"[bold]{escape(name)}[/]: who goes where, {'simulated' if is_run else 'planned; nothing was run'}")
    simulated = [column.of(attrgetter("requests")) for column in _REQUESTS] if is_run else []
    console.print(Sheet([*_CONTENDERS, *simulated], [found]).drawn())
    bound = found[0].ours.bound
    said = "" if bound is None else f"; none can be worth more than {bound:,.0f}"
    rest = "; arrivals and what follows: of all tenants' requests in ordinary runs" if is_run else ""
    console.print(f"worth: of the first window's plans, salvage included{said}{rest}", style="dim")


def contenders_to_json(cluster: ClusterConfig, found: Sequence[Contender]) -> dict[str, object]:
    """What each comes to, and who goes where."""
    ours = found[0].ours
    return {
        "schema": 1,
        "name": cluster.run.name,
        "bound": ours.bound,
        "bound_exclusive": ours.found.bound.value,
        "policies": [
            {
                **in_json(_CONTENDERS, one),
                "simulated": None if one.requests is None else _totals(one.requests),
                "gpus": {gpu.name: list(own) for gpu, own in zip(cluster.gpus, one.plan.found.sets, strict=True)},
            }
            for one in found
        ],
    }


def print_cluster_status(name: str, status: Mapping[str, Any], console: Console) -> None:
    """Print what a cluster's coordinator says of its nodes, GPUs and routes."""
    console.print(f"{escape(name)}: assignment {status['number']}{', which ends it' if status['closed'] else ''}")
    nodes = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("node", "state", "assignment"):
        nodes.add_column(heading, overflow="fold")
    for one in status["nodes"]:
        number = "–" if one["number"] is None else str(one["number"])
        nodes.add_row(escape(one["name"]), one["state"], number)
    console.print(nodes)
    gpus = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("GPU", "node", "tenants", "routed to it", "process", "since", "last window", "what is in its way"):
        gpus.add_column(heading, overflow="fold")
    for one in status["gpus"]:
        names = [*one["tenants"], *(f"{own} (leaves)" for own in one["leaving"])]
        since_s = one["since_s"]
        since = "–" if since_s is None else f"{datetime.fromtimestamp(since_s, UTC).astimezone():%Y-%m-%d %H:%M}"
        pid = "–" if one["pid"] is None else str(one["pid"])
        named = (("goodput_pct", ""), ("expected_goodput_pct", " expected"))
        shown = [f"{one[key]:.1f} %{word}" for key, word in named if one[key] is not None]
        tenants, routed = ", ".join(names) or "–", ", ".join(one["routed"]) or "–"
        row = (one["name"], one["node"], tenants, routed, pid, since, ", ".join(shown) or "–")
        gpus.add_row(*map(escape, (*row, one["said"])))
    console.print(gpus)
    for one in status["gpus"]:
        for tenant, told in one["weights"].items():
            console.print(f"tenant {escape(tenant)} came to {escape(one['name'])} with these weights: {escape(told)}")
        for tenant, version in one["dropped"].items():
            said = f"tenant {tenant} had to leave {one['name']}; what it learned there last, {version}, is dropped"
            console.print(escape(said))
    for one in status["unplaced"]:
        console.print(f"tenant {escape(one['tenant'])} is served by nobody: {escape(one['reason'])}")
    if status["said"]:
        console.print(f"the coordinator: {escape(status['said'])}")
