"""A grid of plans for programs: JSON, and CSV with one line a point."""

from __future__ import annotations

import csv
import io
from typing import Any

from migrator.whatif.grid import Point, Value, shown
from migrator.whatif.sweep import Outcome, Sweep, TenantOutcome


def sweep_to_json(sweep: Sweep) -> dict[str, Any]:
    """What ``whatif --json`` prints; docs/whatif.md describes it."""
    return {
        "schema": 1,
        "name": sweep.name,
        "forecast": sweep.forecast,
        "notes": list(sweep.notes),
        "vary": [
            {"key": variation.name, "values": [_plain(choice.value) for choice in variation.choices]}
            for variation in sweep.grid.variations
        ],
        "results": [_outcome(outcome) for outcome in sweep.outcomes],
    }


def sweep_to_csv(sweep: Sweep) -> str:
    """A heading and a line for each point: its values, then its figures, then each tenant's."""
    rows = [_row(outcome) for outcome in sweep.outcomes]
    text = io.StringIO()
    writer = csv.DictWriter(text, tuple(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(value: Value) -> str | int | float:
    """A number as one, and everything else as it would be typed."""
    return value if isinstance(value, (int, float)) else shown(value)


def _values(point: Point) -> dict[str, Any]:
    return {choice.name: _plain(choice.value) for choice in point}


def _figures(outcome: Outcome) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "model": outcome.model,
        "engine": outcome.engine,
        "arrivals": outcome.arrivals,
        "goodput": outcome.goodput,
        "goodput_pct": outcome.goodput_pct,
        "bound": outcome.bound,
        "gap": outcome.gap,
        "solve_s": outcome.solve_s,
        "reason": outcome.reason,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    tenants = {tenant.name: _tenant(tenant) for tenant in outcome.tenants}
    return {"values": _values(outcome.point), **_figures(outcome), "tenants": tenants}


def _tenant(tenant: TenantOutcome) -> dict[str, Any]:
    run = tenant.retraining
    retraining = None
    if run is not None:
        retraining = {
            "option": run.option,
            "where": run.where,
            "start_step": run.start_step,
            "end_step": run.end_step,
        }
    return {
        "arrivals": tenant.arrivals,
        "goodput": tenant.goodput,
        "goodput_pct": tenant.goodput_pct,
        "retraining": retraining,
    }


def _row(outcome: Outcome) -> dict[str, Any]:
    # A varied model or engine is named the same as its figure, and says the same.
    row = {**_values(outcome.point), **_figures(outcome)}
    for tenant in outcome.tenants:
        run = tenant.retraining
        row[f"{tenant.name}.arrivals"] = tenant.arrivals
        row[f"{tenant.name}.goodput"] = tenant.goodput
        row[f"{tenant.name}.goodput_pct"] = tenant.goodput_pct
        row[f"{tenant.name}.retraining"] = None if run is None else f"{run.where} {run.start_step}-{run.end_step}"
    return row
