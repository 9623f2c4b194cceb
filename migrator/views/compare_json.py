"""A comparison of policies for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from migrator.compare import Score, Standing, standings
from workloads.serving.tally import Totals


def comparison_to_json(scores: Sequence[Score], n_segments: int) -> dict[str, object]:
    """Every score, and the standings by workload and over all of them. Goodput and the like are percent."""
    workloads = list(dict.fromkeys(score.workload for score in scores))
    return {
        "schema": 1,
        "simulated": True,
        "segments": n_segments,
        "workloads": {
            name: [_standing(item) for item in standings([score for score in scores if score.workload == name])]
            for name in workloads
        },
        "not_measured": {score.workload: [list(note) for note in score.notes] for score in scores},
        "overall": [_standing(item) for item in standings(scores)],
        "scores": [
            {
                "policy": score.policy,
                "workload": score.workload,
                "segment": score.segment,
                "windows": [_totals(window) for window in score.totals],
                "changes": score.n_changes,
                "windows_without_plan": score.n_unplanned,
            }
            for score in scores
        ],
    }


def _standing(item: Standing) -> dict[str, object]:
    return {
        "policy": item.policy,
        **_totals(item.total),
        "changes": item.n_changes,
        "windows_without_plan": item.n_unplanned,
        "gap_closed": item.gap_closed,
        "relative_gain": item.relative_gain,
        "account": asdict(item.account),
        "ahead": None if item.ahead is None else asdict(item.ahead),
    }


def _totals(totals: Totals) -> dict[str, object]:
    return {
        "arrivals": totals.arrivals,
        "in_time": totals.in_time,
        "correct": totals.correct,
        "goodput_pct": totals.goodput_pct,
        "slo_attainment_pct": totals.slo_attainment_pct,
        "accuracy_pct": totals.accuracy_pct,
    }
