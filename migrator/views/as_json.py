"""What commands print with ``--json``, and the lines of ``whatif``'s CSV.

Fields have the names of the values' attributes unless a function here says otherwise, in the order given.
``null`` stands for what could not be measured; percentages go from 0 to 100, steps are half-open.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from migrator.views.figures import EXPECTED, FIGURES, JUDGED, OUTCOMES, TENANTS, TOTALS
from migrator.views.table import in_json

if TYPE_CHECKING:  # a command needs one kind of these values, and should not wait for the others' imports
    from executor.mig import GpuModel
    from migrator.comparison.matches import MatchScore
    from migrator.execution.reposing import CheckedPlan
    from migrator.fidelity.live import FidelityVerdict, LiveFidelity, Nearness
    from migrator.log.diff import Diff
    from migrator.log.live import LiveFacts
    from migrator.log.report import Figures, Report, WindowReport
    from migrator.log.surprise import Surprise
    from migrator.log.trouble import Trouble
    from migrator.whatif.confirm import Confirmed, Trial
    from migrator.whatif.goals import Goal
    from migrator.whatif.grid import Choice, Point
    from migrator.whatif.search import Found
    from migrator.whatif.sweep import PointOutcome, Sweep
    from planner.attainment import Attainment
    from planner.explain import Explanation, LayoutChoice
    from planner.verify import Verification

Json = dict[str, Any]

_DIGITS = 6
"""After the decimal point, of a report's figures."""


def _picked(value: object, *names: str) -> Json:
    return {name: getattr(value, name) for name in names}


def _rounded(fields: Mapping[str, Any]) -> Json:
    return {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in fields.items()}


def report_to_json(report: Report, goals: Sequence[Goal] = ()) -> Json:
    """The whole report, and what was to be kept; its fields are documented in ``docs/log.md``."""
    return {
        "run": {key: value for key, value in to_builtins(report.header).items() if key != "kind"},
        **_goals(goals),
        "ending": report.ending,
        **({} if report.reason is None else {"reason": report.reason}),
        **({"blind_s": report.blind_s, "blind": list(map(asdict, report.blind))} if report.blind else {}),
        "surprises": [_surprise(item) for item in report.surprises],
        **({"failed_forecasts": list(report.failed_forecasts)} if report.failed_forecasts else {}),
        **({"unknown_s": dict(report.unknown_s)} if report.unknown_s else {}),
        **({"outside": outside} if (outside := _outside(report)) else {}),
        **({} if report.replans is None else {"replans": asdict(report.replans)}),
        **({"stayed": report.stayed} if report.stayed else {}),
        **({} if report.trouble is None else {"trouble": _trouble(report.trouble)}),
        **({} if report.live is None else {"live": _live(report.live)}),
        "windows": [_window(window) for window in report.windows],
        **_figures_of_all(report),
        "start_ups": {
            name: {phase: _rounded(asdict(spent)) for phase, spent in phases.items()}
            for name, phases in report.start_ups.items()
        },
    }


def _outside(report: Report) -> Json:
    """By tenant, requests in no window, and of how many nobody knows what became."""
    names = ("arrivals", "in_time", "late", "dropped", "refused", "failed")
    return {
        name: {
            **{key: getattr(report.outside[name], key) if name in report.outside else 0 for key in names},
            "unknown": report.unknown.get(name, 0),
        }
        for name in dict.fromkeys([*report.outside, *report.unknown])
    }


def _goals(goals: Sequence[Goal]) -> Json:
    """What was to be kept, where anything was."""
    found = [
        {"keep": str(goal.condition), "kept": goal.is_kept, **_picked(goal, "share", "requests", "reason")}
        for goal in goals
    ]
    return {"goals": found} if found else {}


def _surprise(item: Surprise) -> Json:
    return _rounded({**asdict(item), "points": item.points})


def _live(facts: LiveFacts) -> Json:
    more = {"unaccounted": facts.unaccounted, "of_others": facts.of_others, "void": facts.is_void}
    return {**to_builtins(facts), **more}


def _trouble(trouble: Trouble) -> Json:
    kept = {"troubled": trouble.troubled, "quiet": trouble.quiet}
    return {
        **asdict(trouble),
        **{
            name: None if one is None else _rounded({**asdict(one), "lost_points": one.lost_points})
            for name, one in kept.items()
        },
    }


def _window(window: WindowReport) -> Json:
    plan = {"status": window.plan_status, **_picked(window, "expected_goodput", "gap", "claimed_gap")}
    if window.floor_costs is not None:
        plan |= _picked(window, "floor_costs", "keeping_costs")
    if window.violation is not None:
        plan["violation"] = window.violation
    promised = {"promised": {name: asdict(one) for name, one in window.promised.items()}} if window.promised else {}
    if window.salvage:
        plan["salvage"] = window.salvage
    told = {"window": window.window, "void": window.is_void, "plan": plan, "model_age": dict(window.model_ages)}
    blind = {"blind_s": window.blind_s} if window.blind_s else {}
    made = {} if window.driver_changes is None else _picked(window, "driver_changes")
    return {**told, **blind, **made, **promised, **_figures_of_all(window)}


def _figures_of_all(part: Report | WindowReport) -> Json:
    tenants = {name: _figures(figures) for name, figures in part.tenants.items()}
    return {"tenants": tenants, "total": None if part.total is None else _figures(part.total)}


def _figures(figures: Figures) -> Json:
    columns = FIGURES if figures.expected_goodput is None else (*FIGURES, *EXPECTED)
    columns = columns if figures.judged is None else (*columns, *JUDGED)
    return _rounded(in_json(columns, figures))


def diff_to_json(diff: Diff) -> Json:
    """Two runs side by side; ``gains`` are points, which add up to ``points`` over windows, tenants and rows."""
    return {
        "schema": 1,
        **_picked(diff, "same_requests", "unlike", "left_out", "n_requests", "windows", "goodput_pct", "points"),
        **_picked(diff, "by_row", "layouts_differ_s", "knows_forecast"),
        "gains": [
            {**_picked(gain, "window", "tenant", "points"), **{row: gain.by_row[row] for row in diff.by_row}}
            for gain in diff.gains
        ],
        "causes": list(map(asdict, diff.causes)),
    }


def fidelity_to_json(runs: Sequence[LiveFidelity], verdict: FidelityVerdict) -> Json:
    """Live runs beside their simulation; ``docs/fidelity.md`` explains the figures."""
    return {
        "schema": 1,
        "runs": [_live_fidelity(run) for run in runs],
        "verdict": {
            **_rounded(asdict(verdict)),
            "near": not verdict.shortfalls,
            "shortfalls": list(verdict.shortfalls),
        },
    }


def _live_fidelity(run: LiveFidelity) -> Json:
    from migrator.fidelity.live import total_of  # noqa: PLC0415 - as the imports for types

    def part(tenants: Mapping[str, Nearness]) -> Json:
        return {
            "tenants": {name: _nearness(one) for name, one in tenants.items()},
            "total": _nearness(total_of(tenants.values())),
        }

    lost = run.lost
    return {
        "run": str(run.folder),
        "n_windows": run.n_windows,
        "resumed": run.is_resumed,
        "void": run.facts.is_void,
        "stolen_share": run.facts.stolen_share,
        "others_share": run.facts.others_share,
        "sent_late_s": None if run.facts.sent_late_s is None else list(run.facts.sent_late_s),
        "windows": [{"window": window, **part(run.of_window(window))} for window in run.windows],
        **part(run.of_tenants),
        "lost_goodput_by_10_s": None if lost is None else _rounded(asdict(lost) | {"ratio": lost.ratio}),
    }


def _nearness(one: Nearness) -> Json:
    return _rounded(asdict(one) | _picked(one, "in_time_points", "goodput_pct"))


def comparison_to_json(
    scores: Sequence[MatchScore], n_segments: int, stride_s: int | None = None, goals: Sequence[Goal] = ()
) -> Json:
    """Every score, the standings by workload and over all of them, and what the first policy was to keep."""
    from migrator.comparison.matches import standings  # noqa: PLC0415
    from migrator.inputs.assumed import assumed_to_json  # noqa: PLC0415 - as the imports for types
    from migrator.views.compare import STANDINGS, assumed_by_all, by_workload  # noqa: PLC0415

    workloads = {name: standings(own) for name, own in by_workload(scores).items()}
    return {
        "schema": 1,
        "simulated": True,
        **_goals(goals),
        "segments": n_segments,
        **({} if stride_s is None else {"stride_s": stride_s}),
        "setup": {score.workload: dict(score.setup) for score in scores},
        "workloads": {name: [in_json(STANDINGS, item) for item in found] for name, found in workloads.items()},
        "not_measured": {score.workload: score.notes for score in scores},
        "assumed": {name: assumed_to_json(assumed_by_all(own)) for name, own in by_workload(scores).items()},
        "overall": [in_json(STANDINGS, item) for item in standings(scores)],
        "scores": [
            {
                **_picked(score, "policy", "workload", "segment"),
                "surprises": [_surprise(item) for item in score.surprises],
                "windows": [in_json(TOTALS, window) for window in score.totals],
                "changes": score.n_changes,
                "windows_without_plan": score.n_unplanned,
                **({"refusals": list(score.refusals)} if score.refusals else {}),
            }
            for score in scores
        ],
    }


def promised_to_json(attained: Sequence[Attainment]) -> Json:
    """By tenant the share of in-time answers that a plan promises, and its floor."""
    return {
        one.tenant: {
            "promised": one.share,
            "floor": None if one.floor is None else {"share": one.floor.share, "per": one.floor.per.value},
        }
        for one in attained
    }


def explanation_to_json(found: Explanation) -> Json:
    """The whole explanation; ``holds`` and ``meanwhile`` are by tenant; what ``net`` is, its value says."""

    def choice_to_json(choice: LayoutChoice) -> Json:
        holds = zip((tenant.name for tenant in found.tenants), choice.holds, strict=True)
        return {**asdict(choice), "holds": dict(holds), "net": choice.net}

    alternatives = [choice_to_json(choice) for choice in found.alternatives]
    names = [tenant.name for tenant in found.tenants]
    loans = [
        {**asdict(one), "meanwhile": dict(zip(names, one.meanwhile, strict=True)), "net": one.net}
        for one in found.loans
    ]
    return {**asdict(found), "held": choice_to_json(found.held), "alternatives": alternatives, "loans": loans}


def verification_to_json(found: Verification) -> Json:
    """The check of a plan: every broken rule, the recomputed goodput, what is proven and what is claimed."""
    proven, claimed = ("bound", "gap"), ("claimed_bound", "claimed_gap")
    return {
        "valid": found.is_valid,
        **_picked(found, "objective", "claimed_objective", *proven, *claimed),
        "claim_proven": found.is_claim_proven,
        "violations": [_picked(item, "rule", "tenant", "step", "message") for item in found.violations],
    }


def checked_plan_to_json(item: CheckedPlan) -> Json:
    """A plan of a run that was checked; without a check, ``valid`` is null and ``reason`` says why.

    A run may carry out a plan that misses floors of in-time answers, which is not valid: ``floors_told`` is whether its
    log names them all.
    """
    rest = {} if item.anew_from_step is None else {"anew_from_step": item.anew_from_step}
    if item.verification is None:
        return {"window": item.window, **rest, "valid": None, "reason": item.reason}
    return {"window": item.window, **rest, **verification_to_json(item.verification), "floors_told": item.tells_floors}


def gpu_to_json(model: GpuModel) -> Json:
    """A GPU model of the catalogue with its profiles."""
    size = ("compute_slices", "memory_slices")
    limits = ("starts", "max_instances", "memory_gib", "sm_count", "create_s", "destroy_s")
    return {
        **_picked(model, "name", "title", *size, "sm_total", "notes", "sources"),
        "profiles": [_picked(item, "name", "gi_profile_id", "variant", *size, *limits) for item in model.profiles],
    }


def sweep_to_json(sweep: Sweep, found: Found | None = None, confirmed: Confirmed | None = None) -> Json:
    """A grid of plans, and what was found in it; docs/whatif.md describes it."""
    from migrator.inputs.assumed import assumed_to_json  # noqa: PLC0415 - as the imports for types

    return {
        "schema": 1,
        **_picked(sweep, "name", "forecast", "notes"),
        "assumed": assumed_to_json(sweep.assumed),
        "basis": "planned",
        **({} if found is None else {"find": _find(found, confirmed)}),
        "vary": [
            {"key": variation.name, "values": [_plain(choice) for choice in variation.choices]}
            for variation in sweep.grid.variations
        ],
        "results": [
            {
                "values": _values(outcome.point),
                **in_json(OUTCOMES, outcome),
                **_verdict(found, index),
                "tenants": {tenant.name: in_json(TENANTS, tenant) for tenant in outcome.tenants},
            }
            for index, outcome in enumerate(sweep.outcomes)
        ],
    }


def _find(found: Found, confirmed: Confirmed | None) -> Json:
    """What was looked for, what plans promise, and what simulated runs keep."""
    return {
        "direction": found.search.direction,
        "key": found.search.name,
        "keep": list(map(str, found.conditions)),
        **{name: _plain(getattr(found, name)) for name in ("holds", "breaks", "fails")},
        **{name: list(map(_plain, getattr(found, name))) for name in ("again", "not_shown", "unmeasured")},
        "simulated": None if confirmed is None else _simulated(found, confirmed),
    }


def _simulated(found: Found, confirmed: Confirmed) -> Json:
    """The answer, where the limit lies, and what was kept at every value that was simulated, ends included."""

    def kept(trial: Trial) -> Json:
        shares = zip(map(str, found.conditions), trial.shares, strict=True)
        return {
            "value": _plain(trial.choice),
            "seeds": list(trial.seeds),
            "verdict": trial.verdict.value,
            "conditions": {name: {"value": share.mean, "error": share.error} for name, share in shares},
        }

    ends = {name: getattr(confirmed, name) for name in ("holds", "breaks")}
    return {
        **{name: None if trial is None else _plain(trial.choice) for name, trial in ends.items()},
        "seeds": list(confirmed.seeds),
        "values": list(map(kept, confirmed.trials)),
    }


def _verdict(found: Found | None, index: int) -> Json:
    if found is None:
        return {}
    outcome = found.outcomes[index]
    conditions = {
        str(condition): {"value": condition.value(outcome), "verdict": condition.verdict(outcome).value}
        for condition in found.conditions
    }
    return {"verdict": found.verdicts[index].value, "conditions": conditions}


def sweep_to_csv(sweep: Sweep, found: Found | None = None) -> str:
    """A heading and a line for each point: its values, then its figures, then each tenant's."""
    rows = [_row(outcome) for outcome in sweep.outcomes]
    if found is not None:
        rows = [row | {"verdict": verdict.value} for row, verdict in zip(rows, found.verdicts, strict=True)]
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(choice: Choice | None) -> str | int | float | None:
    """A number as one, and everything else as it would be typed."""
    return None if choice is None else choice.value if isinstance(choice.value, (int, float)) else choice.text


def _values(point: Point) -> Json:
    return {choice.name: _plain(choice) for choice in point}


def _row(outcome: PointOutcome) -> Json:
    # A varied model or engine has the name of its figure, and the same value.
    row = _values(outcome.point) | in_json(OUTCOMES, outcome)
    for tenant in outcome.tenants:
        run = tenant.retraining
        cells = in_json(TENANTS, tenant) | {"retraining": run and f"{run.where} {run.start_step}-{run.end_step}"}
        row |= {f"{tenant.name}.{name}": value for name, value in cells.items()}
    return row
