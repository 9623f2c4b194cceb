"""What ``make reproduce`` simulates: which policies on which workloads, with what changed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from migrator.comparison.matches import Fairness
from planner.policies.registry import VARIANTS

AT_ONCE: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {"planner": {"planning_s": 0.0, "replan_every_s": "never"}, "sharing": {"pools": "off"}}
)
"""Keys of every config of the results: plans are there as their windows begin, and are followed to their end.

So it is in the paper, and under all policies alike; and every tenant has instances of its own.
"""

LOOKAHEADS = tuple(name for name in VARIANTS if name.startswith("lookahead-"))

WORKLOADS = tuple(f"w{number}" for number in range(1, 17))
FOUR = ("w1", "w4", "w8", "w11")
"""Where many runs are compared."""

PAPER = ("migrator", "migrator-paper", "ekya", "astraea", "paris", "whole", "static", "oracle")

ALL = (
    *("migrator", "migrator-paper", "migrator-paper-cold", "ekya", "astraea", "paris", "paris-changing", "whole"),
    *("reactive", "window", "equal", "static", "oracle"),
)

OURS = ("migrator", "migrator-paper", "static", "oracle")

RIVALS = ("migrator", "migrator-paper", "time-sharing", "static", "static-history", "oracle")
"""Ours, the paper's, and what a competent engineer would do without planning, on partitions or the whole GPU."""

TURN_COSTS_PCT: Mapping[str, float] = MappingProxyType(
    {"time-sharing-0": 0.0, "time-sharing": 5.0, "time-sharing-10": 10.0}
)
"""What a turn costs under each, which nobody has measured on these models."""

HEADLINE = (
    *("migrator", "migrator-paper", *TURN_COSTS_PCT),
    *("reactive", "window", "static", "static-history", "oracle"),
)

BURSTY = ("migrator", *TURN_COSTS_PCT, "reactive", "static", "oracle")

OBLIGED: Mapping[str, object] = MappingProxyType({"required": True, "drift": "as_given"})
FREE_AS_GIVEN: Mapping[str, object] = MappingProxyType({"required": False, "drift": "as_given"})
FREE: Mapping[str, object] = MappingProxyType({"required": False, "drift": "compound", "ends": True})
"""Configs' ``retraining``: the paper's, with retrainings left out, and with accuracies that fall on when they are.

With the last, every policy knows that the run ends with its last window, beyond which nothing is counted.
"""
AS_SHIPPED: Mapping[str, object] = MappingProxyType(
    {"planner": {**AT_ONCE["planner"], "replan_every_s": 10.0}, "retraining": dict(FREE)}
)
"""What the product does by default, but that planning takes no time, the run ends, and no instance is shared."""
CHARGED: Mapping[str, object] = MappingProxyType({"planner": {"replan_every_s": 10.0}, "retraining": dict(FREE)})
"""The same, and planning takes what a run is charged for it."""

SHIPPED: Mapping[str, object] = MappingProxyType({**CHARGED, "sharing": {"pools": "auto"}})
"""What the product does by default, but that the run ends."""

SHORT_WINDOWS = 2
"""Of each workload in README's table, unless the run is full: so it is drawn in minutes."""

SHORT_INTERFERENCE = (0.0, 0.25, 1.0)
"""The strengths that every run has."""

SEVEN_HOURS_S = 25_373
"""Of no whole number of hours: segments that far apart come from all hours of the day."""

N_TWITTER = 28
"""Segments of the Twitter counts, which lie in a week."""


@dataclass(frozen=True)
class Bursts:
    """A process of two states, under which a rate is low or high: ``ratio`` apart, ``dwell_s`` long on average."""

    ratio: float
    dwell_s: float


View = Literal["tables", "windows", "segments", "sweep", "ties"]
"""How a section shows its experiments.

- tables: a row a policy in ``policies.csv`` and ``accounts.csv``;
- windows, segments: the same, and differences with intervals over windows, or over segments of the traces, in
  ``ahead.csv``;
- sweep: a row an experiment and policy in ``sweeps.csv``;
- ties: a sweep, and where a policy ties with ours in ``ties.csv``.
"""


@dataclass(frozen=True)
class Experiment:
    """Policies on workloads.

    Attributes:
        name: Of its results.
        label: In a table or as a heading.
        policies: The first is the reference of differences.
        workloads: Configs by name.
        windows: Windows of each; ``None`` for as many as the config has.
        fairness: What is compared.
        batch: The config's ``batch``; where batches are free it sets the load only.
        changes: Keys of the config that are replaced.
        gain: Share of correct answers that every retraining gains: ``before`` is as far below the config's ``after``.
        perturbation: Every profile's latencies are multiplied by factors in [0.8, 1.2] drawn from this seed.
        n_segments: Of the Twitter counts, which then replace both tenants' traces; 0 for the config's own traces.
        stride_s: How far apart these begin.
        is_replayed: Whether the counts come as recorded, each request as often as the load asks, instead of drawn anew
            around a smoothed rate; without segments those of the Azure trace replace both tenants' traces.
        bursts: What that trace's smoothed rate is multiplied by; it then replaces both tenants' traces.
        joins: The experiment whose tables and plots have these rows, too, with the label behind their policies.
        at: Its place on its section's axis.
        is_long: Whether only a full run has it.
        short_windows: Windows of each in a run that is not full; ``None`` for as many as in one.
    """

    name: str
    label: str
    policies: tuple[str, ...] = PAPER
    workloads: tuple[str, ...] = WORKLOADS
    windows: int | None = 2
    fairness: Fairness = Fairness.POLICY_ONLY
    batch: int | Literal["auto"] = "auto"
    changes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    gain: float | None = None
    perturbation: int | None = None
    n_segments: int = 0
    stride_s: int = SEVEN_HOURS_S
    is_replayed: bool = False
    bursts: Bursts | None = None
    joins: str | None = None
    at: float = 0.0
    is_long: bool = True
    short_windows: int | None = None


@dataclass(frozen=True)
class PageSection:
    """A group of experiments, with its plots.

    Attributes:
        name: Of its plots.
        title: The question, under its plots.
        text: How it was simulated; a row of ``experiments.csv``.
        experiments: In the order of the page.
        view: Which tables show them.
    """

    name: str
    title: str
    text: str
    experiments: tuple[Experiment, ...]
    view: View = "sweep"


MAIN = Experiment(
    "main",
    "load 0.7",
    (*PAPER[:-2], *TURN_COSTS_PCT, "static", "static-history", "oracle"),
    is_long=False,
)


def _interference(strength: float) -> Experiment:
    return Experiment(
        f"interference-{strength:g}",
        f"{strength:g}",
        ("ekya", "astraea"),
        changes={"simulation": {"interference": strength}, "retraining": dict(FREE_AS_GIVEN)},
        at=strength,
        is_long=strength not in SHORT_INTERFERENCE,
    )


def _mudi(strength: float) -> Experiment:
    return replace(_interference(strength), name=f"mudi-{strength:g}", policies=("mudi",), is_long=True)


def _as_published(batch: int) -> Experiment:
    return Experiment(
        f"published-{batch}",
        f"batch {batch}",
        fairness=Fairness.AS_PUBLISHED,
        batch=batch,
    )


def _at_load(load: float) -> Experiment:
    return Experiment(f"load-{load:g}", f"load {load:g}", RIVALS, changes={"load": load}, at=load)


def _at_step(step_s: float) -> Experiment:
    # A window is as many whole steps as 200 s hold, and so is the history.
    changes = {"step_s": step_s, "window_s": 200.0 // step_s * step_s}
    return Experiment(f"step-{step_s:g}", f"{step_s:g} s", ("migrator", "migrator-paper"), changes=changes, at=step_s)


TWITTER = Experiment("twitter", "obliged to retrain, planned once", RIVALS, ("w1", "w4", "w8"), n_segments=N_TWITTER)


def _bursty(ratio: float, dwell_s: float) -> Experiment:
    return Experiment(
        f"bursts-{ratio:g}-{dwell_s:g}",
        f"{ratio:g} times, {dwell_s:g} s",
        BURSTY,
        FOUR,
        changes=AS_SHIPPED,
        bursts=Bursts(ratio, dwell_s),
    )


def _shipped(
    name: str, label: str, policies: tuple[str, ...] = ("migrator",), **changes: Mapping[str, object]
) -> Experiment:
    """Rows of README's table: what is shipped, and what differs from it in these keys."""
    joins = None if name == "shipped" else "shipped"
    return Experiment(
        name,
        label,
        policies,
        windows=None,
        short_windows=SHORT_WINDOWS,
        is_long=False,
        joins=joins,
        changes={**SHIPPED, **changes},
    )


def _with_pools(experiment: Experiment) -> Experiment:
    """What ``migrator`` comes to where plans may let tenants share instances, as rows of the experiment."""
    changes = {**experiment.changes, "sharing": {"pools": "auto"}}
    name, label = f"{experiment.name}-pools", "with pools"
    return replace(experiment, name=name, label=label, policies=("migrator",), changes=changes, joins=experiment.name)


def _and_with_pools(*experiments: Experiment) -> tuple[Experiment, ...]:
    return tuple(one for experiment in experiments for one in (experiment, _with_pools(experiment)))


LAYOUTS = ("2g.20gb", "2g.20gb", "3g.40gb"), ("4g.40gb", "3g.40gb")
"""What stays where retrainings run on loans: of maximal layouts the better one at loads above 0.3, and at 0.3."""

WITH_LOANS = "migrator, one layout with loans"
"""The policy in tables."""


def _on_one_layout(load: float) -> Mapping[str, object]:
    """The key ``planner`` of what plans anew every 10 s, with one layout that stays."""
    return {"replan_every_s": 10.0, "layout": list(LAYOUTS[0] if load > 0.3 else LAYOUTS[1])}


def _and_with_loans(name: str, load: float, workloads: tuple[str, ...], *policies: str) -> tuple[Experiment, ...]:
    """With pools and layouts that change, and with pools and one that stays."""
    changes = {**AS_SHIPPED, "sharing": {"pools": "auto"}, "load": load}
    free = Experiment(name, f"load {load:g}", ("migrator", *policies), workloads, changes=changes, at=load)
    planner = {**AT_ONCE["planner"], **_on_one_layout(load)}
    stays = replace(
        free,
        name=f"{name}-loans",
        label=WITH_LOANS.partition(", ")[2],
        policies=("migrator",),
        changes={**changes, "planner": planner},
        joins=name,
    )
    return free, stays


def _foreseen(name: str, label: str, policies: tuple[str, ...], **planner: object) -> Experiment:
    changes = {"planner": {**AT_ONCE["planner"], **planner}}
    return Experiment(name, label, policies, FOUR, changes=changes)


def _retraining(
    name: str,
    label: str,
    retraining: Mapping[str, object],
    curve: str | None = None,
    policies: tuple[str, ...] = RIVALS,
    *,
    is_long: bool = True,
) -> Experiment:
    parts = {} if curve is None else {"curve": curve, "checkpoints": [0.25, 0.5, 0.75]}
    changes = {"retraining": {**retraining, **parts}}
    return Experiment(f"retraining-{name}", label, policies, changes=changes, is_long=is_long)


GIVEN = _retraining("given", "free, as given", FREE_AS_GIVEN, is_long=False)
"""What policies that may leave retrainings out are compared with."""


_DRAWN = ("migrator", "ekya", "paris", "static", "oracle")


def _misled(name: str, label: str, **errors: float) -> Experiment:
    policies = ("migrator", "migrator-paper", "ekya", "static", "oracle")
    return Experiment(f"estimates-{name}", label, policies, changes={"estimates": errors})


def _misjudged(spread: float) -> Experiment:
    policies = ("migrator", "migrator-paper", "time-sharing", "static", "oracle")
    label = f"latencies ± {100 * spread:g} %" if spread else "exact"
    changes = {"estimates": {"service_spread": spread}}
    return Experiment(f"misjudged-{spread:g}", label, policies, changes=changes, at=100 * spread)


def _gaining(points: int, name: str, label: str, retraining: Mapping[str, object]) -> Experiment:
    return Experiment(
        f"gain-{points}-{name}",
        f"{points} points, {label}",
        ("migrator", "time-sharing", "static", "oracle"),
        changes={"retraining": dict(retraining)},
        gain=points / 100,
        at=points,
    )


SECTIONS = (
    PageSection(
        "shipped",
        "As shipped",
        "The table of README and of the top of [results.md](results.md), which `make reproduce` draws whole.\n\n"
        "- `migrator` is as `migrator init` writes its config: tenants may share instances by turns, a turn costs 5 %, "
        "planning takes the time that it is charged for, and is done anew every 10 s.\n"
        "- Retrainings may be left out, and accuracies fall on while they are (*compound*).\n"
        "- *Pools off*: every tenant has instances of its own. *Turns at 0 or 10 %*: what a turn in a shared instance "
        "costs. *One layout with loans*: `2g 2g 3g`, made once for all tenants, who retrain in its instances.\n"
        "- `time-sharing` gives the whole GPU to one task at a time. A turn costs 5 %, or what its name says. `static` "
        "is the best layout that never changes, chosen in hindsight.\n"
        "- `make reproduce` takes the first two windows of each workload, scaled to load 0.7; `FULL=1` takes all.",
        (
            _shipped("shipped", "as shipped", ("migrator", *TURN_COSTS_PCT, "static")),
            _shipped("shipped-off", "pools off", sharing={"pools": "off"}),
            _shipped("shipped-turns-0", "turns at 0 %", sharing={"pools": "auto", "turn_cost": 0.0}),
            _shipped("shipped-turns-10", "turns at 10 %", sharing={"pools": "auto", "turn_cost": 0.1}),
            _shipped("shipped-loans", WITH_LOANS.partition(", ")[2], planner=_on_one_layout(0.7)),
        ),
        "windows",
    ),
    PageSection(
        "headline",
        "All windows, planned every 10 s",
        "As `migrator` runs by default:\n\n"
        "- Retrainings may be left out, and accuracies fall on while they are (*compound*).\n"
        "- `migrator` and `oracle` plan the rest of a window anew every 10 s, and when something is not as expected. "
        "The others decide once a window, `static` and `static-history` once for the run.\n"
        "- `migrator-paper` plans by the paper's method, and counts what models are worth later as `migrator` does.\n"
        "- `time-sharing` gives the whole GPU to one task at a time. A turn costs 5 %, or what its name says.\n"
        "- Each config runs to its end: nine windows, or four for W3 and W5 to W8, as NC-CIFAR-10 has no more. A "
        "window is a piece of the traces that no other window of the run has.\n"
        "- Workloads share traces. Intervals over windows come from resampling windows, each with all its workloads, "
        "in blocks of two. Over workloads each counts as one, as if they were independent.\n"
        "- Nine windows are half an hour of one day. Neither interval says anything of other days.\n"
        "- What a model is worth later is not counted. All that look beyond a window know it (`retraining.ends`).\n"
        "- What the last retraining of a run is worth was put right after `migrator` had come out badly on W1 and W2 "
        "here, by 4.0 and 2.6 points. All policies count it.",
        (
            *_and_with_pools(
                Experiment(
                    "headline",
                    "free to skip, compound drift",
                    HEADLINE,
                    windows=None,
                    changes=AS_SHIPPED,
                )
            ),
            Experiment(
                "headline-apart",
                "without interference",
                ("ekya", "astraea"),
                windows=None,
                changes={**AS_SHIPPED, "simulation": {"interference": 0.0}},
                joins="headline",
            ),
            Experiment(
                "headline-charged",
                "as shipped",
                ("migrator", "time-sharing"),
                windows=None,
                changes=CHARGED,
                joins="headline",
            ),
        ),
        "windows",
    ),
    PageSection(
        "bursts",
        "Traffic that is bursty by the second",
        "In the terms of the table above, two windows of four workloads.\n\n"
        "- *Ratio, dwell*: the rate of the Azure trace, smoothed over a minute, goes up and down between two levels "
        "that are so many times apart. It stays on either so long on average, by the toss of a coin a second. Tenants "
        "toss coins of their own.\n"
        "- *As recorded*: each request of the Azure trace, or of the Twitter counts, comes as often as the load asks, "
        "in its second. Of five requests a second that makes bursts which no service of hundreds a second would see.\n"
        "- A partition cannot lend a slice for some seconds, turns and pools can.",
        _and_with_pools(
            *(_bursty(ratio, dwell_s) for ratio in (2.0, 4.0, 8.0) for dwell_s in (2.0, 10.0, 60.0)),
            Experiment("replayed", "Azure as recorded", BURSTY, FOUR, changes=AS_SHIPPED, is_replayed=True),
            Experiment(
                "replayed-twitter",
                "Twitter as recorded",
                BURSTY,
                TWITTER.workloads,
                changes=AS_SHIPPED,
                n_segments=7,
                stride_s=4 * SEVEN_HOURS_S,
                is_replayed=True,
            ),
        ),
    ),
    PageSection(
        "twenty",
        "Twenty tenants on one GPU",
        "`configs/twenty.yaml` has seventeen light tenants and three heavier ones at load 0.5, more than a GPU has "
        "slices. With an instance of its own for each there is no plan. Four windows, in the terms of *All "
        "windows, planned every 10 s*.",
        (
            Experiment(
                "twenty",
                "twenty tenants",
                ("migrator", "whole", *TURN_COSTS_PCT),
                ("twenty",),
                windows=4,
                changes={**AS_SHIPPED, "sharing": {"pools": "auto", "turn_cost": 0.05}},
            ),
        ),
    ),
    PageSection(
        "retraining",
        "What is it worth to leave retrainings out, and to use weights as they come?",
        "Two windows, planned once each.\n\n"
        "- *As given*: a model that is not retrained is as right as the paper says, whatever was left out before.\n"
        "- *Compound*: its accuracy falls on, and the run ends with its second window.\n"
        "- *Checkpoints*: weights are taken over after a quarter, a half and three quarters of a retraining. How much "
        "of the gain they have is an assumption ([configuration.md](configuration.md#retraining)), and is swept.\n"
        "- `migrator` and `oracle` alone have checkpoints: they show what these are worth to us, not a lead.",
        (
            _retraining("obliged", "obliged", OBLIGED),
            GIVEN,
            _retraining("compound", "free, compound", FREE),
            _retraining(
                "linear", "free, as given, checkpoints, linear", FREE_AS_GIVEN, "linear", ("migrator", "oracle")
            ),
            _retraining(
                "root", "free, as given, checkpoints, square root", FREE_AS_GIVEN, "square-root", ("migrator", "oracle")
            ),
        ),
    ),
    PageSection(
        "main",
        "Policies only, batches free, recorded profiles, load 0.7",
        "Decisions alone: everybody chooses batches freely, and who forecasts has the same forecaster.\n\n"
        "- `ekya` and `astraea` are at interference 1, Mudi's figures as printed, which hold contention of the host, "
        "too. They take turns where that is better. The next section has less interference.\n"
        "- Every window has its retrainings, under all policies. The first two windows of each workload are 400 s, "
        "the same of the Azure trace for all sixteen. There are no intervals: a difference of a few tenths is none.",
        (MAIN,),
        "tables",
    ),
    PageSection(
        "interference",
        "How much interference makes partitions worthwhile?",
        "The strength scales by how much tenants without partitions slow each other down: 1 is what Mudi measured, 0 "
        "is none. Where it costs them more, they take turns on their shares, at 5 %. All may leave retrainings out, "
        "with accuracies as given. `migrator` suffers no interference. A tie is where the straight line between two "
        "strengths crosses `migrator`.",
        tuple(_interference(strength) for strength in (0.0, 0.1, 0.2, 0.25, 0.5, 1.0)),
        "ties",
    ),
    PageSection(
        "mudi",
        "A rival from its paper: Mudi",
        "**Re-implemented from the paper** (EuroSys '25, §5), **on a simulator**, not run against its authors' code. "
        "In the terms of the section above.\n\n"
        "- *What it does*: inference gets the least share that keeps its SLO, and a tenth more. Up to three "
        "retrainings have the rest. Where no share keeps an SLO, they are paused.\n"
        "- *What it has here beyond the paper*: several inference tenants by one rule; several processes; "
        "all of the GPU for them where nothing retrains; turns where interference costs more. Trials of batches cost "
        "nothing.\n"
        "- *What it lacks*: it does not ask what a retraining brings, puts SLOs before it, and lets all that train "
        "have equal parts. On W3 that is a twentieth each, and no retraining ends in its window.",
        tuple(_mudi(strength) for strength in (0.0, 0.25, 1.0)),
        "ties",
    ),
    PageSection(
        "whole-runs",
        "All windows of every workload, all policies",
        "The windows and intervals of *All windows, planned every 10 s* in the paper's terms: every "
        "window has its retrainings, and is planned once.",
        (Experiment("whole-runs", "all windows", ALL, windows=None),),
        "windows",
    ),
    PageSection(
        "twitter",
        "A week of another trace",
        "Per-second counts of the Twitter stream, days 8 to 14, in the place of both traces. The second tenant's are "
        "half a week and three hours from the first's. A segment is two windows, from nothing, every seven hours. "
        "Each is scaled to load 0.7 by its own mean, so that quiet and busy hours look alike. Intervals come from "
        "resampling segments in blocks of four, about a day.",
        (
            replace(
                TWITTER,
                name="twitter-free",
                label="free to skip, compound drift, planned every 10 s",
                changes=AS_SHIPPED,
            ),
            TWITTER,
        ),
        "segments",
    ),
    PageSection(
        "published",
        "As published",
        "Each policy with its own batching, forecast and switching.\n\n"
        "- `migrator`, `static`, `oracle` and `whole` choose batches freely. The others get the batch given, at a "
        "load of 0.7 of what that batch can serve.\n"
        "- What compares with the paper's Figures 7 (batch 1) and 9 (batch 4) is `migrator-paper` with `ekya`, "
        "`astraea` and `paris`. The rest shows what free batches are worth.",
        tuple(map(_as_published, (1, 4))),
        "tables",
    ),
    PageSection(
        "launch-free",
        "Policies only, batches free, launch-free profiles",
        "[The same with recorded profiles](#policies-only-batches-free-recorded-profiles-load-07), but with latencies "
        "as if launching took no time.",
        (Experiment("launch-free", "launch-free profiles", OURS, changes={"profile_variant": "launch-free"}),),
        "tables",
    ),
    PageSection(
        "jitter",
        "With batches that vary",
        "[The same with recorded profiles](#policies-only-batches-free-recorded-profiles-load-07), but with latencies "
        "that vary as measured steps of training do. Plans do not know of it.",
        (Experiment("jitter", "measured jitter", OURS, changes={"simulation": {"service_jitter": "measured"}}),),
        "tables",
    ),
    PageSection(
        "load",
        "Load",
        "When is a layout that never changes good enough?",
        tuple(map(_at_load, (0.3, 0.5, 0.7, 0.9, 1.1))),
    ),
    PageSection(
        "loans",
        "One layout that stays, with loans",
        "What does it bring to change MIG while requests are served? In the terms of *All windows, planned every 10 "
        "s*, with pools, two windows. *One layout with loans*: `2g 2g 3g`, at load 0.3 `4g 3g`, is made once for one "
        "pool of all tenants. "
        "Retrainings run in its instances, which serve nobody then; no driver call follows. `static` has no pools.",
        (
            *_and_with_loans("lent", 0.7, WORKLOADS, "static"),
            *_and_with_loans("lent-0.5", 0.5, ("w3", "w5", "w8", "w15")),
            *_and_with_loans("lent-0.3", 0.3, ("w3", "w5", "w8", "w15")),
        ),
        "tables",
    ),
    PageSection(
        "step",
        "Granularity",
        "The paper's Figure 10: how often may the layout change? A window is as many whole steps as 200 s hold, which "
        "is 198 s at 3 s.",
        tuple(map(_at_step, (0.5, 1.0, 3.0, 5.0, 10.0))),
    ),
    PageSection(
        "estimates",
        "What if the estimates are wrong?",
        "Everybody is misled alike, `static` and `oracle` too: they know arrivals, not what a retraining brings. "
        "[configuration.md](configuration.md) has the sources of these errors. They are drawn once for each of six "
        "models and two windows, twelve in all. Workloads that share a model share its errors. Those twelve of a "
        "spread of 30 % come out 17 % too short on average.",
        (
            _misled("exact", "exact"),
            _misled("accuracy", "accuracy ± 8.6 points", accuracy_sigma=0.086),
            _misled("short", "time 30 % too short", time_bias=-0.3),
            _misled("long", "time 30 % too long", time_bias=0.3),
            _misled(
                "all",
                "accuracy ± 8.6 points, time spread 30 %, profiling 2 GPU-s, plan 10 s late",
                accuracy_sigma=0.086,
                time_sigma=0.3,
                cost_gpu_s=2.0,
                delay_s=10.0,
            ),
        ),
    ),
    PageSection(
        "foresight",
        "What is foresight worth?",
        "`lookahead-K` is `migrator` with the true arrivals of the next K seconds, and the forecast after them. "
        "`migrator` knows none, `oracle` all that are left of the window. *Planned every 10 s*: the rest of a window "
        "is made anew at that pace (`planner.replan_every_s`), by `lookahead-1` and `-5` every 1 and 5 s. Four "
        "workloads.",
        (
            _foreseen(
                "foresight", "planned every 10 s", ("migrator", *LOOKAHEADS, "oracle", "static"), replan_every_s=10.0
            ),
            _foreseen("foresight-once", "planned once a window", ("migrator", "oracle", "static")),
        ),
    ),
    PageSection(
        "profiles",
        "Would other profiles change the ranking?",
        "The latency of every model on every MIG profile is multiplied by a factor of its own, evenly drawn from 0.8 "
        "to 1.2. Everybody plans with it, and it is what is simulated. Arrivals are scaled to load 0.7 of it. Three "
        "draws. The next section has profiles that are wrong.",
        tuple(Experiment(f"profiles-{seed}", f"draw {seed}", _DRAWN, perturbation=seed) for seed in range(1, 4)),
    ),
    PageSection(
        "misjudged",
        "What if the profiles are wrong?",
        "Workers are as fast as the recorded profiles say. Planning takes the latency of every model on every MIG "
        "profile for itself times a factor of its own, evenly drawn from 1 − x to 1 + x, and is never corrected.\n\n"
        "- Everybody is misled alike, `static` and `oracle` too: they know arrivals, not latencies.\n"
        "- Wrong latencies decide which batch seems to meet an SLO, too, so that one may in truth be too long. "
        "Workers know their own latencies, and drop what they cannot answer in time. Retrainings take as long as "
        "planned.\n"
        "- One draw, of six models on five profiles: a wider spread has the same thirty factors further out. At ± 20 "
        "% they come out 2 % too fast on average. `time-sharing` uses the whole GPU alone, so that only six reach it.\n"
        "- `ekya`, `astraea` and `paris` are left out, as the errors would not reach all that they decide. Processes "
        "of the first two choose batches by what they measure, and the dispatch of the third goes by true latencies.",
        tuple(map(_misjudged, (0.0, 0.1, 0.2, 0.3))),
    ),
    PageSection(
        "gain",
        "How much has a retraining to bring?",
        "Every retraining brings as many points of accuracy as the row says: a model ends it as right as in the "
        "config, and begins its window so much lower. Retrainings may be left out.\n\n"
        "- *As given*: who leaves one out begins the next window as if it had not been left out.\n"
        "- *Compound*: its accuracy falls on, by the share that the window's new data cost a model that was "
        "retrained. That share is larger than the gain says where the config's accuracies after retraining fall from "
        "window to window. So these rows sweep the drift, too.\n"
        "- With 5, 10, 20 and 30 points a model keeps 93, 87, 76 and 65 % of its accuracy by window (medians).\n"
        "- Two windows, planned once each, show little of what a model is worth later. [The first "
        "table](#all-windows-planned-every-10-s) has all windows.",
        tuple(
            _gaining(points, name, label, retraining)
            for name, label, retraining in (
                ("given", "as given", FREE_AS_GIVEN),
                ("compound", "compound", FREE),
            )
            for points in (5, 10, 20, 30)
        ),
    ),
)
"""In the order of the page."""

EXPERIMENTS = tuple(experiment for section in SECTIONS for experiment in section.experiments)
"""Every experiment, in the order of the page."""
