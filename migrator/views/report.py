"""A run's report as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter

from rich import box
from rich.console import Console
from rich.table import Table

from migrator.inputs.provenance import MEASURED_JITTER, derived_profiles, faults_text, misjudged_text, scaling_text
from migrator.inputs.traffic import CLIENTS
from migrator.log.live import BECAME, LiveFacts, ModelWindow
from migrator.log.records import Cause, RunStarted, Scale, Tenant
from migrator.log.report import PHASES, Figures, Phase, Report, WindowReport
from migrator.log.trouble import Replans, Trouble
from migrator.terminal.console import counted, escape
from migrator.views.figures import EXPECTED, FIGURES
from migrator.views.sentences import assumed_lines, floors_in_words, surprise_lines
from migrator.views.table import NAME, Column, Sheet, named
from workloads.serving.tally import Totals

_SHOWN = (
    *("arrivals", "forecast error", "in time", "accuracy", "goodput", "p50", "p99", "reconfigured", "outage"),
    "capacity lost",
)
_SPARE = (
    *("capacity lost", "p50", "forecast error", "reconfigured", "outage", "accuracy", "p99", "model age"),
    "arrivals",
)
"""Figures that a narrower terminal does without, the first named first."""

_TOTAL = "all"

_SHARINGS = {
    "instances": "on MIG instances",
    "shares": "on shares of the processors (MPS), without partitions",
    "turns": "by turns on the whole GPU, without partitions",
}
"""What a policy's answers become on the GPU."""


_CAUSES = {
    Cause.PACE: "at this pace",
    Cause.BAND: "as arrivals left what was expected",
    Cause.TRAINED: "as a retraining ended early or late",
    Cause.MEASURED: "as a window's models were measured, planned ahead",
    Cause.FAILED: "as a worker failed",
    Cause.FEEDBACK: "as clients called too many answers wrong",
}
"""Why the rest of a window was planned anew."""


def print_report(report: Report, console: Console) -> None:
    """Print the run's setting, a row for each window and tenant, totals, and what was assumed."""
    _print_header(report, console)
    _sheet(report).print(console)
    if (total := report.total) is not None and not report.is_labelled:
        in_time_pct = _number(total.requests.slo_attainment_pct, 1)
        worth = f"expected goodput {_number(total.expected_goodput_pct, 1)} % (in time × the accuracy in force)"
        offered = f"{total.requests.arrivals:,} offered · {total.requests.refused:,} refused"
        console.print(f"{worth} · in time {in_time_pct} % of {offered}")
    for line in surprise_lines(report.surprises):
        console.print(f"[bold red]far from its plan:[/] {escape(line)}")
    if report.live is not None:
        _print_live(report.live, console)
    for seen in _of_blind(report):
        console.print(seen)
    for span in report.blind:
        console.print(f"  {escape(str(span))}")
    if report.trouble is not None:
        _print_trouble(report.trouble, console)
    for line in _of_forecasts(report):
        console.print(line)
    if report.replans is not None:
        _print_replans(report.replans, console)
    if report.stayed:
        what = "a layout that stays took the place of plans that might lose much by bursts"
        console.print(f"{what}: {_times(report.stayed)}")
    _print_driver_changes(report, console)
    _print_gaps(report, console)
    _print_floors(report, console)
    _print_start_ups(report, console)
    _print_ending(report, console)
    for line in assumed_lines(report.header.assumed, left_out=("capability",)):
        console.print(f"assumed: {escape(line)}", style="dim")


def print_by_window(report: Report, console: Console) -> None:
    """Print a row for each window and tenant, and totals."""
    _sheet(report).print(console)
    console.print(_LEGEND, style="dim")


def print_assumed(header: RunStarted, console: Console) -> None:
    """Print what was neither given nor measured: whose, its value, and where that comes from."""
    for line in lines_of_assumed(header) or ("nothing was assumed",):
        console.print(line)


def lines_of_assumed(header: RunStarted) -> list[str]:
    """The same as lines of markup, derived service profiles last."""
    lines = assumed_lines(header.assumed, left_out=("capability",), most=len(header.assumed))
    derived = [(escape(tenant.name), text) for tenant in header.tenants if (text := _derived(tenant))]
    return [
        *map(escape, lines),
        *(f"service profiles of {name}: derived, not measured: {text}" for name, text in derived),
    ]


def alarms(report: Report) -> Iterator[str]:
    """What somebody who reads nothing else has to know, most pressing first, as lines of markup."""
    yield from _of_ending(report)
    yield from _of_blind(report)
    if report.live is not None and report.live.sent_late_s is not None and report.live.unaccounted:
        yield f"{report.live.unaccounted:,} requests are not accounted for"
    if report.trouble is not None:
        yield _of_trouble(report.trouble)
    yield from _of_forecasts(report)
    failed = [] if report.live is None else [_untrained(one) for one in report.live.learned if one.failure]
    furthest = sorted(report.surprises, key=lambda one: (one.tenant is not None, -abs(one.points)))
    notes = [f"trace of {escape(one.name)}: {escape(note)}" for one in report.header.tenants for note in one.notes]
    for told in (failed, [f"far from its plan: {escape(str(one))}" for one in furthest], _of_floors(report), notes):
        if told:
            yield told[0] + (f" (and {len(told) - 1} more like this: --full)" if len(told) > 1 else "")


def _print_header(report: Report, console: Console) -> None:
    header = report.header
    console.print(
        f"[bold]{escape(header.name)}[/]: {what_is_simulated(header)}{escape(header.gpu)}, windows of "
        f"{header.window_s:g} s, steps of {header.step_s:g} s, seed {header.seed}, "
        f"forecast by {escape(header.forecaster)}"
    )
    for line in unusual(header):
        console.print(f"  {line}")
    for tenant in header.tenants:
        console.print("  " + _tenant_line(tenant))
        for note in tenant.notes:
            console.print(f"    trace: {escape(note)}")
        if derived := _derived(tenant):
            console.print(f"    derived, not measured: {derived}")


def _derived(tenant: Tenant) -> str:
    """Which of the tenant's service profiles were not measured, as markup; empty where all were."""
    return escape(derived_profiles({name: point.derived for name, point in tenant.operating_points.items()}))


def unusual(header: RunStarted) -> Iterator[str]:
    """How the run differs from one of ``migrator`` with what was measured, as lines of markup."""
    if not header.repeatable:
        limit = header.time_limit_s
        within = (
            "" if limit is None else f": each plan is the best found within {limit:g} s, which another run may not find"
        )
        yield f"[bold yellow]not repeatable[/]{within}"
    if header.policy != "migrator":
        yield f"policy: {escape(header.policy)}, {_SHARINGS[header.sharing]}"
    if header.interference is not None:
        whose = "Mudi measured, or share_profiles say"
        yield f"interference: {header.interference:g} of what {whose}; see docs/policies.md"
    if header.profile_variant != "recorded":
        yield f"service profiles: {escape(header.profile_variant)}, no longer as recorded"
    if header.service_jitter == "measured":
        yield f"service jitter: {MEASURED_JITTER}"
    if header.service_spread:
        yield f"estimates: {misjudged_text(header.service_spread)}"
    if header.pinned:
        yield f"[bold yellow]pinned[/]: {escape(', '.join(header.pinned))}"
    if header.simulated_faults is not None:
        yield f"[bold yellow]simulated faults[/]: {escape(faults_text(header.simulated_faults))}"


def what_is_simulated(header: RunStarted) -> str:
    """All, or all but the instances."""
    backend = header.backend
    if backend is None:
        return "[bold yellow]simulated[/] "
    what, where = "real MIG instances", f"GPU {header.index}, by {backend}"
    if backend == "cpu":
        what, where = "[bold yellow]emulated[/] instances", "shares of this machine's CPU"
    elif backend == "mps":
        what = "MPS shares [bold yellow]without memory isolation[/]"
    requests = "[bold yellow]simulated requests[/]" if header.simulated else "real requests and workers"
    return f"{requests} on {what} ({where}), "


def _tenant_line(tenant: Tenant) -> str:
    if tenant.trace.startswith(CLIENTS):
        return (
            f"[bold]{escape(tenant.name)}[/]: {escape(tenant.model)}, SLO {tenant.slo_ms:,g} ms, {escape(tenant.trace)}"
        )
    return (
        f"[bold]{escape(tenant.name)}[/]: {escape(tenant.model)}, SLO {tenant.slo_ms:,g} ms, load "
        f"{tenant.load:.2f}, {escape(_origin(tenant.trace, tenant.scale))} "
        f"(variance/mean {tenant.dispersion_before:.2f} → {tenant.dispersion_after:.2f})"
    )


def _origin(source: str, scale: Scale) -> str:
    """Where the requests come from: a rate, of which all are drawn, or a trace and its scale."""
    if source.startswith("poisson "):
        return f"{source}, drawn × {scale.factor:,.4g}"
    return f"trace {source}, {scaling_text(scale.method, scale.factor, scale.smooth_s)}"


@dataclass(frozen=True, slots=True)
class _Row:
    """What a tenant came to in a window; all of it in the totals, nothing in a void window."""

    window: str
    tenant: str
    figures: Figures | None
    model_age: int | None = None


_COLUMNS: Sequence[Column[_Row]] = (
    Column("window", "window", heading="win-\ndow"),
    Column("tenant", "tenant", layout=NAME),
    Column("model age", "model_age", unknown="", heading="mo-\ndel\nage"),
    *(column.of(attrgetter("figures")) for column in named(FIGURES, _SHOWN)),
)


def _sheet(report: Report) -> Sheet[_Row]:
    """A row for each window and tenant, then totals."""
    totals = [_Row(_TOTAL, name, figures) for name, figures in report.tenants.items()]
    total = None if report.total is None else _Row(_TOTAL, _TOTAL, report.total)
    columns = _COLUMNS
    if not report.is_labelled:
        unknown = ("accuracy", "goodput")
        columns = [one for one in _COLUMNS if one.name not in unknown]
        columns += [column.of(attrgetter("figures")) for column in named(EXPECTED, ("refused", "expected goodput"))]
    return Sheet(
        columns,
        [*_blocks(report.windows), [*totals, *([total] if total else [])]],
        style=lambda row: "bold" if row is total else "dim" if row.figures is None else None,
        spare=_SPARE,
        layout={"no_wrap": True},
        frame={"padding": (0, 0)},
    )


_FEW = 3
"""As many void windows one after the other have a row each, and windows with changes are named."""


def _blocks(windows: Sequence[WindowReport]) -> Iterator[list[_Row]]:
    """The rows of each window; of many void ones, as while a service was not there, one row."""
    for is_void, group in groupby(windows, lambda window: window.is_void):
        own = [*group]
        if is_void and len(own) > _FEW:
            yield [_Row(f"{own[0].window}–{own[-1].window}", "void", None)]
        else:
            yield from map(_rows, own)


def _rows(window: WindowReport) -> list[_Row]:
    if window.total is None:
        return [_Row(str(window.window), "void", None)]
    return [
        _Row("" if place else str(window.window), name, figures, window.model_ages.get(name))
        for place, (name, figures) in enumerate(window.tenants.items())
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


_LEARNED: Sequence[Column[ModelWindow]] = (
    Column("window", "window", form="d", heading="win-\ndow"),
    Column("tenant", "tenant", layout=NAME),
    Column("model age", "age", heading="model age\nin windows"),
    Column("before", "before_pct", "%", ",.1f", heading="right before\nretraining %"),
    Column("after", "after_pct", "%", ",.1f", heading="right\nafter %"),
    Column("new weights", "finish_s", "s", ",.1f", heading="new weights\nat second"),
    Column("expected", "estimated_pct", "%", ",.1f", heading="expected\nof them %"),
    Column("tested", "tested_pct", "%", ",.1f", heading="their test\nset %"),
    Column("load", "", "ms", ",.1f", lambda one: max(one.swap_s, default=None), 1000, heading="load ms"),
)


def _print_live(facts: LiveFacts, console: Console) -> None:
    """Print what was learned, window by window, and whether each request is accounted for."""
    spare = ("expected", "tested", "load", "model age", "new weights", "before")
    told = [one for one in facts.learned if (one.before_pct, one.finish_s, one.failure) != (None, None, "")]
    if told:
        Sheet(_LEARNED, [told], spare=spare, layout={"no_wrap": True}).print(console)
    for one in facts.learned:
        if one.failure:
            console.print(_untrained(one))
    if facts.from_window and facts.requests:
        console.print(f"What follows is from window {facts.from_window} on, where the run was joined again:")
    if facts.sent_late_s is not None:
        parts = [f"{facts.total(key):,} {key.replace('_', ' ')}" for key in BECAME]
        missing = f"; [bold red]{facts.unaccounted:,} are not accounted for[/]" if facts.unaccounted else ""
        others = f"; {facts.of_others:,} more by others, in no figure here" if facts.of_others else ""
        console.print(f"requests: {facts.total('sent'):,} sent = {' + '.join(parts)}{missing}{others}")
    if facts.sent_late_s is not None:
        median_ms, _, worst_ms = (1000 * late_s for late_s in facts.sent_late_s)
        console.print(f"sent late by the generator itself: median {median_ms:,.1f} ms, at most {worst_ms:,.0f} ms")
    if facts.is_void:
        console.print(f"[bold red]void[/]: {facts.void_because}, so that times say nothing")


def _untrained(one: ModelWindow) -> str:
    return f"window {one.window}: {escape(one.tenant)} was not retrained: {escape(one.failure)}"


def _of_blind(report: Report) -> Iterator[str]:
    if report.blind_s:
        yield f"[bold yellow]blind[/]: {report.blind_s:,} s are in no figure, as the GPU's state is unknown"


def _of_forecasts(report: Report) -> Iterator[str]:
    if n_failed := len(report.failed_forecasts):
        yield f"[bold yellow]the forecaster failed {_times(n_failed)}[/]: {escape(report.failed_forecasts[0])}"
    if report.unknown_s:
        window, most_s = max(report.unknown_s.items(), key=lambda one: one[1])
        what = f"in forecasts of {counted(len(report.unknown_s), 'window')}, at most {most_s:,} s (window {window})"
        yield f"[bold yellow]nobody counted[/] some seconds of clients' past, which were filled {what}"


def _print_trouble(trouble: Trouble, console: Console) -> None:
    """Print what was refused, with which consequences, and what it may have cost."""
    console.print(_of_trouble(trouble))
    for where, kept in (("with it", trouble.troubled), ("without", trouble.quiet)):
        if kept is not None:
            console.print(f"  {counted(kept.windows, 'window')} {where}: {kept}")


def _of_trouble(trouble: Trouble) -> str:
    parts = [f"{trouble.refused:,} of {trouble.calls:,} driver calls refused"]
    if trouble.undone:
        parts.append(f"{trouble.undone:,} things left undone")
    if trouble.others:
        parts.append(f"others seen at work {_times(trouble.others)}")
    if trouble.revised:
        parts.append(f"the rest of a window planned anew {_times(trouble.revised)}")
    if trouble.not_revised:
        parts.append(f"no new plan found {_times(trouble.not_revised)}")
    return f"[bold yellow]trouble with the GPU:[/] {', '.join(parts)}"


def _print_replans(replans: Replans, console: Console) -> None:
    """Print how often the rest of a window was planned anew, by cause, and how often that helped."""
    changed = sum(replans.changed.values())
    solved = "" if replans.solve_s is None else f", solved in {replans.solve_s:.2f} s (median)"
    console.print(
        f"the rest of a window planned anew every {replans.every_s:g} s and when something happened: "
        f"{_times(replans.total)}{solved}; another plan was better {_times(changed)}"
    )
    for cause, what in _CAUSES.items():
        if total := replans.changed.get(cause, 0) + replans.kept.get(cause, 0):
            console.print(f"  {what}: {_times(total)}, another plan {_times(replans.changed.get(cause, 0))}")
    if replans.late:
        console.print(f"  not there in time: {_times(replans.late)}")


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count:,} times")


def _print_driver_changes(report: Report, console: Console) -> None:
    """Print how many instances were made and destroyed, and in which windows."""
    if report.driver_changes is not None:
        own = [(window.window, window.driver_changes) for window in report.windows if window.driver_changes]
        where = [f"window {window}: {made:,}" for window, made in own[:_FEW]]
        where += [f"{counted(len(own) - _FEW, 'window')} more"] if len(own) > _FEW else []
        told = f"{report.driver_changes:,} ({', '.join(where)})" if own else "none"
        console.print(f"instances made or destroyed after the first layout: {told}")


def _print_gaps(report: Report, console: Console) -> None:
    """Print how far windows' plans are from the best at most: what certificates prove, and what engines claim."""
    planned = [window for window in report.windows if window.expected_goodput is not None]
    proven = {window.window: window.gap for window in planned if window.gap is not None}
    if not proven:
        if planned:
            console.print("plans of whole windows: not proven as they were made; migrator verify RUN proves them")
        return
    unproven = [str(window.window) for window in planned if window.window not in proven]
    worst = max(proven, key=lambda window: proven[window])
    parts = [f"proven within {100 * proven[worst]:.2f} % of the best (the worst, window {worst})"]
    if unproven:
        parts.append(f"nothing proven of window{'s' if len(unproven) > 1 else ''} {', '.join(unproven)}")
    if claimed := [window.claimed_gap for window in planned if window.claimed_gap is not None]:
        parts.append(f"claimed within {100 * max(claimed):.2f} %")
    console.print(f"plans of whole windows: {'; '.join(parts)}")


def _print_floors(report: Report, console: Console) -> None:
    """Print what was promised and achieved in time, if any tenant has a floor, and what floors cost."""
    if not any(window.promised for window in report.windows):
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for heading in ("window", "tenant", "in time: floor %", "promised %", "achieved %"):
        table.add_column(heading, justify="left" if heading == "tenant" else "right", overflow="fold")
    for window in report.windows:
        for name, promise in window.promised.items():
            figures = window.tenants.get(name)
            achieved_pct = None if figures is None else figures.requests.slo_attainment_pct
            floor = f"{promise.floor_pct:g} / {promise.per}"
            cells = (_number(promise.promised_pct, 2), _number(achieved_pct, 2))
            table.add_row(str(window.window), escape(name), floor, *cells)
    console.print(table)
    for line in _of_floors(report):
        console.print(line)


def _of_floors(report: Report) -> list[str]:
    """Who ended short of a floor, and what plans miss of floors and pay for them."""
    lines = []
    for window in report.windows:
        for name, promise in window.promised.items():
            figures = window.tenants.get(name)
            achieved_pct = None if figures is None else figures.requests.slo_attainment_pct
            if achieved_pct is not None and achieved_pct < promise.floor_pct:
                short = promise.floor_pct - achieved_pct
                lines.append(f"Window {window.window}: {name} ended {short:.2f} points short of its floor.")
        missed = [promise.missed for promise in window.promised.values() if promise.missed is not None]
        if told := floors_in_words(missed, window.floor_costs, window.keeping_costs):
            lines.append(f"Window {window.window}: the plan {told}.")
    return [escape(line) for line in lines]


def _print_start_ups(report: Report, console: Console) -> None:
    """Print the mean seconds of a start-up by phase, if any change was made."""
    if report.start_ups:
        rows = list(report.start_ups.items())
        Sheet(_START_UP, [rows], spare=PHASES, layout={"no_wrap": True}).print(console)


def _phase(name: str) -> Column[tuple[str, Mapping[str, Phase]]]:
    def text(row: tuple[str, Mapping[str, Phase]]) -> str:
        phase = row[1][name]
        return "–" if phase.mean_s is None else f"{phase.mean_s:.2f} ({phase.count:,})"

    return Column(name, text=text, heading=name.replace("_", "\n"))


_START_UP: Sequence[Column[tuple[str, Mapping[str, Phase]]]] = (
    Column("tenant", get=itemgetter(0), heading="start-up,\nmean s (count)", layout=NAME),
    *map(_phase, PHASES),
)


def _print_ending(report: Report, console: Console) -> None:
    for line in _of_ending(report):
        console.print(line)
    late_s = 0.0 if report.total is None else report.total.late_ready_s
    if late_s > 0:
        console.print(f"Instances were ready {late_s:,.1f} s later than planned, summed.")
    console.print(_LEGEND, style="dim")


_LEGEND = (
    "model age: windows since its newest data, as the window began; accuracy: of answered requests; goodput: in "
    "time and correct, of all arrivals; p50, p99: latency of all arrivals, > SLO: on one never answered; "
    "capacity lost: seconds of the whole GPU's compute held by inference instances that did not serve yet or no "
    "more."
)


def _of_ending(report: Report) -> Iterator[str]:
    """How the run was cut off, if it was, and which windows had no plan of their own."""
    n_void = sum(window.is_void for window in report.windows)
    void = f"; {counted(n_void, 'window')} void and in no total" if n_void else ""
    match report.ending:
        case "finished":
            if n_void:
                yield f"The run was cut off and joined again{void}."
        case "stopped":
            yield f"The service was stopped in order{void}."
        case "interrupted":
            why = (
                f"The run was interrupted{void}." if report.reason is None else f"The run ended: {report.reason}{void}."
            )
            yield escape(why)
        case _ if report.header.service:
            yield f"The service goes on, or was cut off{void}."
        case _:
            call = f" while the driver was asked to {escape(report.open_call)}" if report.open_call else ""
            yield f"The log ends early{call}{void}."
    outside = sum(report.outside.values(), Totals())
    if outside.arrivals:
        shares = f"{outside.in_time:,} in time, {outside.late:,} late, {outside.dropped:,} dropped"
        yield f"Before the first window after a start, and in none: {outside.arrivals:,} offered, {shares}."
    if unknown := sum(report.unknown.values()):
        yield f"Offered before a kill, and in no window: {unknown:,}; their outcome is unknown."
    without = [window for window in report.windows if window.plan_status in ("infeasible", "timeout")]
    unplanned = [str(window.window) for window in without if window.violation is None]
    if unplanned:
        yield f"No plan for window {', '.join(unplanned)}: the layout before it was kept."
    for window in without:
        if window.violation is not None:
            instead = "the layout before it was kept" if window.window else "one fixed layout was held, none retrained"
            broken = f"the plan of {escape(report.header.policy)} breaks a rule: {escape(window.violation)}"
            yield f"Window {window.window}: {broken}; {instead}."
