"""A report as one JSON object; percentages from 0 to 100, ``null`` where there was nothing to measure."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.log.report import Figures, Phase, Report, WindowReport

_DIGITS = 6


def report_to_json(report: Report) -> dict[str, object]:
    """The whole report; its fields are documented in ``docs/log.md``."""
    header = {key: value for key, value in report.header.items() if key not in ("kind", "wall")}
    return {
        "run": header,
        "ending": report.ending,
        "windows": [_window(window) for window in report.windows],
        "tenants": {name: _figures(figures) for name, figures in report.tenants.items()},
        "total": None if report.total is None else _figures(report.total),
        "start_ups": {name: _phases(phases) for name, phases in report.start_ups.items()},
    }


def _phases(phases: Mapping[str, Phase]) -> dict[str, object]:
    return {name: {"count": phase.count, "total_s": _rounded(phase.total_s)} for name, phase in phases.items()}


def _window(window: WindowReport) -> dict[str, object]:
    return {
        "window": window.window,
        "void": window.is_void,
        "plan": {
            "status": window.plan_status,
            "expected_goodput": window.expected_goodput,
            "gap": window.gap,
        },
        "tenants": {name: _figures(figures) for name, figures in window.tenants.items()},
        "total": None if window.total is None else _figures(window.total),
    }


def _figures(figures: Figures) -> dict[str, object]:
    requests = figures.requests
    return {
        "arrivals": requests.arrivals,
        "in_time": requests.in_time,
        "late": requests.late,
        "dropped": requests.dropped,
        "goodput": requests.correct,
        "goodput_pct": _rounded(requests.goodput_pct),
        "slo_attainment_pct": _rounded(requests.slo_attainment_pct),
        "accuracy_pct": _rounded(requests.accuracy_pct),
        "forecast_error_pct": _rounded(figures.forecast_error_pct),
        "p50_ms": figures.p50_ms,
        "p99_ms": figures.p99_ms,
        "reconfigurations": figures.reconfigurations,
        "retrainings": figures.retrainings,
        "outage_s": _rounded(figures.outage_s),
        "capacity_lost_s": _rounded(figures.capacity_lost_s),
        "late_ready_s": _rounded(figures.late_ready_s),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
