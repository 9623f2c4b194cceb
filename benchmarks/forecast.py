"""What every forecaster is worth on the last thirds of real traces: `python -m benchmarks.forecast [FILE …]`.

Shipped traces that are long enough for windows of 200 s, then trace files, which may be the long ones that are not
shipped. `--model DIR` adds a fitted network; fit it on first thirds or two thirds, as `migrator forecast fit` does. The
tables are those of `migrator forecast eval`; below them is how far each method is from the best one of each trace,
and how long a forecast of eight tenants takes. `--out FILE` writes every figure as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from forecaster.forecast import Forecaster
from migrator.comparison.forecasts import Evaluation, Scored, Series, Terms, evaluate, methods_of, read_series, scored
from migrator.views.forecast import evaluations_to_json, methods_sheet, print_evaluations
from migrator.views.table import Column

SHIPPED = ("azure-conv", "azure-code", "alibaba-servegen")
"""The others are shorter than a window and its history."""

N_TENANTS = 8
N_PATHS = 32
"""Of the configs, for the time that a forecast takes."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="trace files beside the shipped ones")
    parser.add_argument("--model", action="append", default=[], type=Path, help="a fitted model")
    parser.add_argument("--method", action="append", default=[], help="only this one")
    parser.add_argument("--stride", type=int, help="seconds between origins")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    asked = parser.parse_args()
    methods = methods_of(asked.method, asked.model)
    terms = Terms(stride_s=asked.stride)
    evaluations = [evaluate(read_series(str(name)), methods, terms) for name in (*SHIPPED, *asked.files)]
    console = Console(width=140, highlight=False)
    print_evaluations(evaluations, console)
    console.print(behind_table(evaluations))
    times_s = {name: seconds_for_tenants(method, evaluations[0].series) for name, method in methods.forecasters.items()}
    for name, seconds in times_s.items():
        console.print(f"{name}: {1000 * seconds:.0f} ms a forecast of {N_TENANTS} tenants")
    if asked.out is not None:
        found = {**evaluations_to_json(evaluations), "wall": {"eight_tenants_s": times_s}}
        asked.out.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")


def mean_over_leads(own: Scored) -> float:
    """The mean over leads of pinball / mean rate."""
    losses = [one.relative_pinball for one in own.leads.values()]
    return float(np.mean([loss for loss in losses if loss is not None]))


def worst_lead(name: str, found: Mapping[str, Scored]) -> tuple[int, float]:
    """The lead at which a method is farthest behind the best of that lead, and by what share."""
    behind = {}
    for lead, one in found[name].leads.items():
        least = min(own.leads[lead].relative_pinball or 0.0 for own in found.values())
        behind[lead] = (one.relative_pinball or 0.0) / least - 1 if least > 0 else 0.0
    return max(behind.items(), key=lambda item: item[1])


def behind_pct(name: str, found: Mapping[str, Scored]) -> float:
    """How far a method's mean over leads is from the best one's."""
    return 100 * (mean_over_leads(found[name]) / min(map(mean_over_leads, found.values())) - 1)


def behind_table(evaluations: Sequence[Evaluation]) -> Table:
    """How far each method is from the best one, trace by trace, in percent."""
    each = [scored([one]) for one in evaluations]

    def of_trace(evaluation: Evaluation, found: Mapping[str, Scored]) -> Column[str]:
        def text(name: str) -> str:
            lead, share = worst_lead(name, found)
            return f"{behind_pct(name, found):.1f} ({lead} s: {100 * share:.0f})"

        trace = Path(evaluation.series.name).name
        return Column(trace, get=lambda name: text(name) if name in found else None, heading=trace)

    def mean_pct(name: str) -> float | None:
        own = [behind_pct(name, found) for found in each if name in found]
        return sum(own) / len(own) if len(own) == len(each) else None

    columns = [*map(of_trace, evaluations, each), Column("mean", form=".1f", get=mean_pct)]
    return methods_sheet(
        "behind the best, % (worst lead)", {name: name for found in each for name in found}, columns
    ).drawn()


def seconds_for_tenants(method: Forecaster, series: Series) -> float:
    """The median time of three forecasts of 200 s for eight tenants from 600 s."""
    rates = np.repeat(series.rates_rps[:600, :1], N_TENANTS, axis=1)
    method.forecast(rates, 200, N_PATHS, np.random.default_rng(0))  # what is made or compiled once
    took_s = []
    for _ in range(3):
        begun_s = time.perf_counter()
        method.forecast(rates, 200, N_PATHS, np.random.default_rng(0))
        took_s.append(time.perf_counter() - begun_s)
    return float(np.median(took_s))


if __name__ == "__main__":
    main()
