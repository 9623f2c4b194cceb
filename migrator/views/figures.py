"""The figures of reports, each once: its name, its field in JSON, its unit and digits, and how it is got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from migrator.views.sentences import latency_text
from migrator.views.table import WORDS, Column

if TYPE_CHECKING:  # a command needs one kind of these values, and should not wait for the others' imports
    from migrator.log.report import Figures
    from migrator.whatif.sweep import PointOutcome, TenantOutcome
    from workloads.serving.tally import Totals


def fields(*keys: str) -> Sequence[Column[Any]]:
    """Figures that programs alone have."""
    return [Column("", key) for key in keys]


GOODPUT: Column[Totals] = Column("goodput", "goodput_pct", "%")
IN_TIME: Column[Totals] = Column("in time", "slo_attainment_pct", "%")
ACCURACY: Column[Totals] = Column("accuracy", "accuracy_pct", "%")

REQUESTS: Sequence[Column[Totals]] = (
    Column("arrivals", "arrivals"),
    *fields("in_time", "late", "dropped"),
    *fields("goodput"),
    *(replace(GOODPUT, heading="good-\nput\n%"), IN_TIME, ACCURACY),
)
"""Of a run's requests."""

TOTALS: Sequence[Column[Totals]] = (
    *fields("arrivals", "in_time", "correct"),
    *(GOODPUT, IN_TIME, ACCURACY),
)
"""Of a compared policy's requests."""

FIGURES: Sequence[Column[Figures]] = (
    *(column.of(attrgetter("requests")) for column in REQUESTS),
    Column("forecast error", "forecast_error_pct", "%", ",.1f", heading="fore-\ncast\nerr %"),
    Column("p50", "p50_ms", "ms", get=lambda one: one.p50.ms, text=lambda one: latency_text(one.p50)),
    Column("", "p50_over_slo", get=lambda one: one.p50.is_over_slo),
    Column("", "p50_answered_ms", get=lambda one: one.p50.answered_ms),
    Column("p99", "p99_ms", "ms", get=lambda one: one.p99.ms, text=lambda one: latency_text(one.p99)),
    Column("", "p99_over_slo", get=lambda one: one.p99.is_over_slo),
    Column("", "p99_answered_ms", get=lambda one: one.p99.answered_ms),
    Column("reconfigured", "reconfigurations", heading="recon-\nfigu-\nred"),
    *fields("retrainings"),
    Column("outage", "outage_s", "s", ",.1f", heading="out-\nage\ns"),
    Column("capacity lost", "capacity_lost_s", "s", ",.1f", heading="capa-\ncity\nlost s"),
    *fields("late_ready_s"),
)


EXPECTED: Sequence[Column[Figures]] = (
    Column("refused", "refused", get=lambda one: one.requests.refused),
    *fields("expected_goodput"),
    Column("expected goodput", "expected_goodput_pct", "%", heading="expected\ngoodput\n%"),
)
"""Beside them, where nobody knows what is right."""

JUDGED: Sequence[Column[Figures]] = (
    Column("labels", "labels", get=lambda one: None if one.judged is None else one.judged[0]),
    Column("right by labels", "right_by_labels", get=lambda one: None if one.judged is None else one.judged[1]),
)
"""Beside those, where clients said which label was right."""


def _of_plans(column: Column[PointOutcome]) -> Column[PointOutcome]:
    return column.of(lambda one: None if one.goodput is None else one)


OUTCOMES: Sequence[Column[PointOutcome]] = (
    Column("status", "status", layout=WORDS),
    *fields("model", "engine", "arrivals"),
    Column("goodput", "goodput", form=",.0f", unknown=""),
    Column("share", "goodput_pct", "%", unknown="", heading="\n%"),
    Column("in time", "slo_attainment_pct", "%", unknown=""),
    Column("salvage", "salvage", form=",.0f", unknown=""),
    *fields("bound", "goodput_bound"),
    _of_plans(Column("gap", "gap", "%", ",.3f", factor=100)),
    *fields("claimed_bound"),
    _of_plans(Column("claimed gap", "claimed_gap", "%", ",.3f", factor=100, heading="claimed\ngap %")),
    Column("solve", "solve_s", "s", unknown=""),
    *fields("reason"),
)
"""Of a planned point."""


def _retrains(tenant: TenantOutcome) -> str:
    run = tenant.retraining
    return "–" if run is None else f"{run.where} {run.start_step}–{run.end_step}"


TENANTS: Sequence[Column[TenantOutcome]] = (
    *fields("arrivals", "goodput"),
    Column("share", "goodput_pct", "%", unknown=""),
    Column("", "retraining", get=lambda one: None if one.retraining is None else asdict(one.retraining)),
    Column("in time", "slo_attainment_pct", "%", unknown=""),
    Column("retrains", text=_retrains, heading="\nretrains", layout=WORDS),
)
"""Of one of its tenants."""
