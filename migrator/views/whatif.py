"""A grid of plans as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from rich.console import Console

from migrator.terminal.console import escape
from migrator.views.figures import OUTCOMES, TENANTS
from migrator.views.sentences import assumed_lines
from migrator.views.table import WORDS, Column, Sheet, named, stacked
from migrator.whatif.confirm import Confirmed, KeptShare, Trial
from migrator.whatif.grid import Choice, Variation, point_text
from migrator.whatif.search import UNMEASURED, Condition, Found, Verdict
from migrator.whatif.sweep import PointOutcome, Sweep, TenantOutcome

_BOUNDLESS = 10_000
"""Columns of a console on which every table fits, to measure a table's own width."""


def print_sweep(sweep: Sweep, console: Console, found: Found | None = None, confirmed: Confirmed | None = None) -> None:
    """Print a row for each point, the best one bold, and below why points have no plan, what was found and assumed."""
    run = "nothing was run" if confirmed is None else "simulated runs are below"
    console.print(
        f"[bold]{escape(sweep.name)}[/]: expected goodput of plans, {run}; arrivals: {escape(sweep.forecast)}"
    )
    for note in sweep.notes:
        console.print(f"  {escape(note)}")
    shows_retrainings = _print_table(sweep, console, found)
    for line in _reasons(sweep):
        console.print(f"  {escape(line)}")
    retrains = "; retrains: where, and in which steps" if shows_retrainings else ""
    planned = "planned, nothing was simulated" if confirmed is None else "planned"
    salvage = "salvage: what models are worth beyond the window; " if _counts_salvage(sweep.outcomes) else ""
    with_it = ", salvage counted" if salvage else ""
    console.print(
        f"{planned}. goodput: requests in time and correct, and their share of the expected arrivals; {salvage}"
        f"in time: correct or not, of the same; gap: to what no plan exceeds by the certificate{with_it}, claimed: "
        f"by the engine's word; solve: with all processes at work{retrains}.",
        style="dim",
    )
    if found is not None:
        console.print()
        if confirmed is not None:
            for line in confirmed_lines(found, confirmed):
                console.print(escape(line), style="bold")
            console.print(_SIMULATED, style="dim")
            console.print()
        for line in answer_lines(found):
            console.print(escape(line), style="bold" if confirmed is None else None)
        console.print(_STANDS_ON, style="dim")
    for line in assumed_lines(sweep.assumed):
        console.print(f"assumed: {escape(line)}", style="dim")


_SIMULATED = (
    "simulated: the mean of whole runs with these seeds, over all windows, ± its standard error. kept: with room for "
    "39 of 40 such means of three other seeds, and for what values beside it keep less. assumed: what is kept at a "
    "value is kept at every easier one."
)

_STANDS_ON = (
    "planned: holds: a plan was found that promises it. fails: on goodput of all, its certificate proves that no plan "
    "can; on SLO attainment or one tenant, the plan of most goodput (and salvage), proven the best, does not (another "
    "one might). not shown: the plan does not, and nothing proves that no better one does, whatever its engine claims."
)


def trial_text(trial: Trial, conditions: Sequence[Condition]) -> str:
    """A value, what was kept there with which seeds, and whether that will do."""
    seeds = f"seed{'s' if len(trial.seeds) > 1 else ''} {', '.join(map(str, trial.seeds))}"
    word = {Verdict.HOLDS: "kept", Verdict.FAILS: "not kept", Verdict.NOT_SHOWN: "kept by too little"}
    shares = ", ".join(map(_share_text, conditions, trial.shares))
    return f"{trial.choice}: {shares} ({seeds}): {word[trial.verdict]}"


def _share_text(condition: Condition, share: KeptShare) -> str:
    metric = condition.metric if condition.tenant is None else f"{condition.metric}:{condition.tenant}"
    if share.mean is None:
        return f"{metric} none: no run can begin, or nothing arrives"
    return f"{metric} {100 * share.mean:.2f} %" + ("" if share.error is None else f" ± {100 * share.error:.2f}")


def confirmed_lines(found: Found, confirmed: Confirmed) -> Iterator[str]:
    """What simulations keep, in sentences."""
    kept, search = " and ".join(map(str, found.conditions)), found.search
    holds, breaks = confirmed.holds, confirmed.breaks
    name = "GPU" if search.is_of_models else "number of tenants" if search.name == "tenants" else search.name
    most = "largest" if search.direction == "max" else "smallest"
    if holds is None:
        yield f"No {name} keeps {kept}, simulated: not even the easiest does"
    else:
        where = "" if breaks is None else f"; the limit lies between {holds.choice.text} and {breaks.choice.text}"
        yield f"The {most} {name} that keeps {kept}, simulated: {holds.choice.text}{where}"
        yield f"  {trial_text(holds, found.conditions)}"
    if breaks is not None:
        yield f"  {trial_text(breaks, found.conditions)}"
    else:
        yield f"  nothing fails up to the {most} tried, so that the limit lies there or beyond"
    start = next(trial for trial in confirmed.trials if trial.choice == confirmed.start)
    if found.holds is not None and start not in (holds, breaks):
        yield f"  where plans promise it last: {trial_text(start, found.conditions)}"


def question_text(sweep: Sweep, found: Found | None) -> str:
    """What was asked, in a sentence."""
    if found is None:
        varied = (f"{one.name}={','.join(choice.text for choice in one.choices)}" for one in sweep.grid.variations)
        return f"What do plans promise at {' and '.join(varied)}?"
    kept, name = " and ".join(map(str, found.conditions)), found.search.name
    if found.search.is_of_models:
        return f"Which is the smallest GPU that keeps {kept}?"
    return f"Which is the {'largest' if found.search.direction == 'max' else 'smallest'} {name} that keeps {kept}?"


def answer_lines(found: Found) -> Iterator[str]:
    """What plans promise, in sentences."""
    search, kept = found.search, " and ".join(map(str, found.conditions))
    if search.is_of_models:
        yield f"Plans promise {kept} on the smallest GPU: {_text(found.holds) or 'none of those measured'}"
        smaller = found.choices[: found.choices.index(found.holds)] if found.holds else found.choices
        judged = zip(found.choices, found.verdicts, strict=True)
        told = [f"{choice.text} {verdict}" for choice, verdict in judged if choice in smaller]
        told = [text for text in told if text.split()[0] not in {choice.text for choice in found.unmeasured}]
        if told:
            yield f"  smaller ones: {', '.join(told)}"
        if found.unmeasured:
            yield f"  nothing is said of {', '.join(map(_text, found.unmeasured))}: they cannot be planned, see above"
        return
    yield from _limit_lines(found, kept)


def _limit_lines(found: Found, kept: str) -> Iterator[str]:
    """Both ends of what was found of a number, and what else there is to know."""
    name = found.search.name
    is_most = found.search.direction == "max"
    most, least, far = ("largest", "smallest", "up") if is_most else ("smallest", "largest", "down")
    if found.holds is None:
        yield f"Plans promise {kept} at no {name} up to the first where they do not, the {least} tried"
    else:
        yield f"Plans promise {kept} {far} to {name} {_text(found.holds)}"
    if found.breaks is None:
        yield f"  at every value {far} to the {most} tried, so that the limit lies beyond"
    else:
        verdict = found.verdicts[found.choices.index(found.breaks)]
        broken = found.outcomes[found.choices.index(found.breaks)]
        counted = ", salvage counted" if broken.salvage is not None else ""
        within = "" if broken.gap is None else f" (proven within {100 * broken.gap:.2f} % of the best{counted})"
        shown = "fails" if verdict is Verdict.FAILS else f"not shown to fail{within}"
        yield f"  the {least} where they do not: {_text(found.breaks)}, {shown}"
    if found.fails not in (None, found.breaks):
        yield f"  the {least} that is shown to fail: {_text(found.fails)}"
    if found.not_shown:
        more = "a larger planner.max_schedules"
        if _counts_salvage(found.outcomes):
            more += ", or retraining.salvage: false,"
        yield f"  not shown: {_few(found.not_shown)}; {more} may show more"
    if found.again:
        yield f"  beyond that it holds again at {', '.join(map(_text, found.again))}: it is no simple limit"


_MOST_NAMED = 3


def _few(choices: Sequence[Choice]) -> str:
    """The choices, or how many there are and between which."""
    if len(choices) <= _MOST_NAMED:
        return ", ".join(map(_text, choices))
    return f"{len(choices):,} values from {_text(choices[0])} to {_text(choices[-1])}"


def _text(choice: Choice | None) -> str:
    return "" if choice is None else choice.text


def _reasons(sweep: Sweep) -> Iterator[str]:
    """Each reason why there is no plan, with its first point and the number of others."""
    first: dict[tuple[str, str], PointOutcome] = {}
    n_more: Counter[tuple[str, str]] = Counter()
    for outcome in sweep.outcomes:
        if outcome.reason is not None:
            key = (outcome.status, outcome.reason)
            n_more[key] += key in first
            first.setdefault(key, outcome)
    for (status, reason), outcome in first.items():
        more = n_more[status, reason]
        others = f" and {more:,} more" if more else ""
        yield f"{point_text(outcome.point)}{others}: {status}: {reason}"


def _print_table(sweep: Sweep, console: Console, found: Found | None) -> bool:
    """Print the widest table that fits: with tenants, SLO and retrainings, or fewer; whether it has the last."""
    boundless = console.options.update(width=_BOUNDLESS)
    for n_tenant_cells, shows_claims in ((3, True), (2, True), (1, True), (1, False), (0, True), (0, False)):
        table = sheet_of(sweep, found, n_tenant_cells, shows_claims=shows_claims).drawn()
        if console.measure(table, options=boundless).maximum <= console.width:
            break
    console.print(table)
    left_out = [] if shows_claims else ["claimed gaps"]
    if any(outcome.tenants for outcome in sweep.outcomes):
        left_out += (["tenants", "retrainings"], ["shares in time", "retrainings"], ["retrainings"], [])[n_tenant_cells]
    if left_out:
        what = " and ".join((", ".join(left_out[:-1]), left_out[-1])) if len(left_out) > 1 else left_out[0]
        console.print(f"{what} are left out for want of width; --json and --out have them", style="dim")
    return n_tenant_cells == 3


_SHOWN = ("status", "goodput", "share", "salvage", "in time", "gap", "claimed gap", "solve")
"""Of an outcome's figures, those in a terminal."""

_Line = tuple[PointOutcome, str]
"""An outcome, and whether it promises what is looked for."""


def sheet_of(sweep: Sweep, found: Found | None, n_tenant_cells: int = 3, *, shows_claims: bool = True) -> Sheet[_Line]:
    """A row a point, the best one bold, with so many figures of each tenant."""
    left_out = {"salvage": not _counts_salvage(sweep.outcomes), "claimed gap": not shows_claims}
    figures = named(OUTCOMES, [name for name in _SHOWN if not left_out.get(name)])
    columns = [_varied(place, variation) for place, variation in enumerate(sweep.grid.variations)]
    columns += [] if found is None else [Column("promises\nit", get=itemgetter(1), layout=WORDS)]
    columns += [column.of(itemgetter(0)) for column in figures]
    for name in tenant_names(sweep):
        columns += _of_tenant(name)[:n_tenant_cells]
    verdicts = [""] * len(sweep.outcomes) if found is None else [verdict.value for verdict in found.verdicts]
    lines = [
        (one, "–" if one.status == UNMEASURED else verdict)
        for one, verdict in zip(sweep.outcomes, verdicts, strict=True)
    ]
    best = _best(sweep, found)
    return Sheet(columns, [lines], lambda line: "bold" if line[0] is best else None, layout={"overflow": "fold"})


def _varied(place: int, variation: Variation) -> Column[_Line]:
    choice = variation.choices[0]
    heading = choice.key if choice.tenant is None else f"{escape(choice.tenant)}.\n{choice.key}"
    return Column(choice.name, get=lambda line: line[0].point[place].text, heading=heading)


def _of_tenant(name: str) -> list[Column[_Line]]:
    def tenant(line: _Line) -> TenantOutcome | None:
        return next((one for one in line[0].tenants if one.name == name), None)

    share, *others = (column.of(tenant) for column in named(TENANTS, ("share", "in time", "retrains")))
    told = [replace(share, heading=f"{escape(name)}\n%"), *others]
    headings = [stacked(one.title) if one.heading is None else one.heading for one in told]
    return [
        replace(one, name=f"{name}: {one.name}", heading=heading) for one, heading in zip(told, headings, strict=True)
    ]


def _best(sweep: Sweep, found: Found | None) -> PointOutcome | None:
    """The outcome to show first: what was found, or else the one with the most goodput."""
    if found is None:
        return sweep.best
    return next((item for item in found.outcomes if found.holds is not None and found.holds in item.point), None)


def tenant_names(sweep: Sweep) -> tuple[str, ...]:
    """The tenants of the outcome with the most, in the config's order; others have the first of them."""
    return max((tuple(tenant.name for tenant in outcome.tenants) for outcome in sweep.outcomes), key=len, default=())


def _counts_salvage(outcomes: Sequence[PointOutcome]) -> bool:
    """Whether plans count what models are worth beyond the window, at any point."""
    return any(outcome.salvage is not None for outcome in outcomes)
