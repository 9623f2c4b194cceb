"""What ``make reproduce`` simulates: which policies on which workloads, with what changed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from migrator.compare import Terms

WORKLOADS = tuple(f"w{number}" for number in range(1, 17))

PAPER = ("migrator", "migrator-paper", "ekya", "astraea", "paris", "whole", "static", "oracle")


@dataclass(frozen=True)
class Experiment:
    """One table of the results page.

    Attributes:
        name: Of its results.
        title: Heading.
        text: What is asked, and what to look at.
        policies: The first is the reference of differences.
        workloads: Configs by name.
        windows: Windows of each.
        terms: What is compared.
        batch: The config's ``batch``; where batches are free it sets the load only.
        changes: Keys of the config that are replaced.
        is_long: Whether only a full run has it.
    """

    name: str
    title: str
    text: str
    policies: tuple[str, ...] = PAPER
    workloads: tuple[str, ...] = WORKLOADS
    windows: int = 2
    terms: Terms = Terms.POLICY_ONLY
    batch: int | Literal["auto"] = "auto"
    changes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    is_long: bool = False


def _interference(strength: float, *, is_long: bool) -> Experiment:
    return Experiment(
        name=f"interference-{strength:g}",
        title=f"Interference {strength:g} of what Mudi measured",
        text="Only who shares processors is touched. From which strength on do partitions win?",
        policies=("migrator", "ekya", "astraea"),
        changes={"simulation": {"interference": strength}},
        is_long=is_long,
    )


def _as_published(batch: int, variant: str) -> Experiment:
    return Experiment(
        name=f"published-{batch}-{variant}",
        title=f"As published, batch {batch}, {variant} profiles",
        text="Each policy with its own batching, forecast and switching; who has no batching gets the batch given.",
        terms=Terms.AS_PUBLISHED,
        batch=batch,
        changes={"profile_variant": variant},
        is_long=True,
    )


def _at_load(load: float) -> Experiment:
    return Experiment(
        name=f"load-{load:g}",
        title=f"Load {load:g}",
        text="Where does a fixed layout do?",
        policies=("migrator", "migrator-paper", "static", "oracle"),
        changes={"load": load},
        is_long=True,
    )


def _at_step(step_s: float) -> Experiment:
    return Experiment(
        name=f"step-{step_s:g}",
        title=f"Granularity {step_s:g} s",
        text="The paper's Figure 10: how often may the layout change? A window is as many whole steps as 200 s hold.",
        policies=("migrator", "migrator-paper"),
        changes={"step_s": step_s, "window_s": 200.0 // step_s * step_s},
        is_long=True,
    )


EXPERIMENTS = (
    Experiment(
        name="main",
        title="Policies only, batches free, recorded profiles, load 0.7",
        text="Decisions alone: everybody chooses batches freely, and who forecasts has the same forecaster.",
    ),
    _interference(0.0, is_long=False),
    _interference(0.25, is_long=False),
    _interference(0.5, is_long=True),
    *(_as_published(batch, variant) for batch in (1, 4) for variant in ("recorded", "launch-free")),
    Experiment(
        name="launch-free",
        title="Policies only, batches free, launch-free profiles",
        text="The same with latencies as if launching took no time.",
        changes={"profile_variant": "launch-free"},
        is_long=True,
    ),
    Experiment(
        name="pre-initialisation",
        title="With and without pre-initialisation, load 0.3",
        text="The paper's own method on hardware's rules; at this load slices may be idle before a change.",
        policies=("migrator-paper", "migrator-paper-cold", "migrator"),
        changes={"load": 0.3},
        is_long=True,
    ),
    *map(_at_load, (0.3, 0.5, 0.9, 1.1, 1.3)),
    *map(_at_step, (0.5, 3.0, 5.0, 10.0)),
)
"""In the order of the page."""
