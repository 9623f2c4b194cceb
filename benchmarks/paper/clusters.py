"""Many GPUs: what ours and rivals come to, from rows that ``make bench-cluster`` made and that are kept beside this."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.paper.statistics import over_workloads

ROWS = Path(__file__).with_name("cluster.jsonl")
"""``make bench-cluster ARGS='gaps simulated --out benchmarks/paper/cluster.jsonl'``: hours, so it is not made anew."""

PLANNED = {"gap %": ("gap", ".2f"), "over `spread`, %": ("over_spread", "+.1f")}
PLANNED["over `best-fit`, %"] = ("over_best-fit", "+.1f")

SIMULATED = {"`ours`": ("ours", ".1f"), "`spread`": ("spread", ".1f"), "`best-fit`": ("best-fit", ".1f")}
SIMULATED |= {"over `spread`, points": ("over_spread", "+.1f"), "over `best-fit`, points": ("over_best-fit", "+.1f")}
SIMULATED["expected, % off"] = ("expected_off", "+.1f")


def kept() -> list[dict[str, Any]]:
    """The rows: a part and a load of a seed each."""
    return [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]


def table(rows: Sequence[Mapping[str, Any]], part: str, columns: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """By load the mean over seeds of each figure, with its 95 % interval and the least of them."""
    own = pd.DataFrame([row for row in rows if row["part"] == part])
    found = {
        f"{load:g}": {"seeds": str(len(at)), **{name: _shown(at[key], spec) for name, (key, spec) in columns.items()}}
        for load, at in own.groupby("load")
    }
    return pd.DataFrame.from_dict(found, orient="index")


def lead(rows: Sequence[Mapping[str, Any]], rival: str) -> str:
    """Points of goodput ahead of the rival, mean of seeds, by load."""
    own = pd.DataFrame([row for row in rows if row["part"] == "simulated"])
    means = own.groupby("load")[f"over_{rival}"].mean()
    return ", ".join(f"{points:+.1f} at {load:g}" for load, points in means.items())


def _shown(values: pd.Series[float], spec: str) -> str:
    mean, low, high = over_workloads(values.to_frame().T)
    if not spec.startswith("+") or len(values) == 1:
        return format(mean, spec)
    return f"{mean:{spec}} [{low:{spec}}, {high:{spec}}], {values.min():{spec}}"
