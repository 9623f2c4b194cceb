"""A plan for people: its promise and proof, who holds what over the window, and why it holds that in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, assert_never

from rich.console import Console
from rich.table import Table
from rich.text import Text

from executor.mig import OwnedLayout, Profile, memory_slices_in
from migrator.terminal.console import counted, escape
from migrator.views.palette import SHORT
from migrator.views.sentences import floors_in_words
from migrator.views.strips import (
    COLOURS,
    GUTTER,
    NOT_OURS,
    Bar,
    TimeScale,
    gantt,
    layout_strip,
    print_chart,
    print_line,
    sparkline,
    tenant_letters,
)
from migrator.views.table import WORDS, Column, Sheet
from planner.arrays import Floats
from planner.attainment import Attainment, attainments
from planner.course import Course, courses
from planner.explain import HELD, Explanation, LayoutChoice, LoanWorth, TenantStep
from planner.plan import InferenceSpan, Lifetime, MigPlan
from planner.problem import Owner, Problem, Reconfiguration, Task
from planner.verify import TOLERANCE, Verification, Violation

LEAST_TOLD_S = 0.1
"""Seconds of loading that are worth a word."""

FEW_CHANGES = 12
"""Rows up to which a timetable is printed without ``--changes``."""

_LEAST_TEXT = 10
"""Columns below which names and layouts are not narrowed; figures are left out instead."""


@dataclass(frozen=True, slots=True)
class SimplePlan:
    """What a simple engine makes of the same problem; ``objective`` is ``None`` where it found no plan."""

    engine: str
    objective: float | None


def print_plan(
    problem: Problem,
    plan: MigPlan,
    verification: Verification | None,
    console: Console,
    *,
    floors: Sequence[SimplePlan] = (),
    notes: Sequence[tuple[str, str]] = (),
    all_changes: bool = False,
) -> None:
    """Print the plan's figures, its chart and its timetable, or why there is no plan.

    Args:
        problem: The problem.
        plan: Its plan.
        verification: What the independent check found; ``None`` where there was nothing to check.
        console: Where to print; its width sets the scale.
        floors: What to measure the plan against.
        notes: More lines for its figures, a word and a text each.
        all_changes: Print the timetable also where it is long.
    """
    console.print(
        f"[bold]{plan.status}[/] {problem.reconfiguration} plan by {escape(plan.engine)} on {problem.gpu.name}: "
        f"{counted(plan.n_steps, 'step')} of {problem.step_s:g} s"
    )
    if plan.infeasibility is not None:
        console.print(f"  {escape(str(plan.infeasibility))}", soft_wrap=True)
    if not plan.status.has_plan:
        return
    console.print(_figures(problem, plan, verification, floors, notes))
    for violation in () if verification is None else _broken(plan, verification):
        console.print(f"[bold red]breaks[/] {escape(str(violation))}")
    if verification is None or verification.objective is not None:
        _print_over_time(problem, plan, console)
    _print_changes(problem, plan, console, all_changes=all_changes)


def _figures(
    problem: Problem,
    plan: MigPlan,
    verification: Verification | None,
    floors: Sequence[SimplePlan],
    notes: Sequence[tuple[str, str]],
) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=True)
    most, objective, goodput = problem.most_goodput, plan.objective or 0.0, plan.expected_goodput or 0.0
    share = f", {100 * goodput / most:.2f} % of {most:,.2f} arrivals" if most > 0 else ""
    table.add_row("goodput", f"[bold]{goodput:,.2f}[/] requests expected{share}")
    if plan.salvage:
        table.add_row("salvage", f"{plan.salvage:,.2f} requests beyond the window: {objective:,.2f} in all")
    for word, gap, bound, by in (
        ("gap", plan.gap, plan.bound, "by its certificate"),
        ("claimed gap", plan.claimed_gap, plan.claimed_bound, "by its engine's word"),
    ):
        said = "–: nothing is proven" if gap is None else f"{_percent(gap)}: {by} no plan exceeds {bound:,.2f}"
        table.add_row(word, said)
    if problem.has_floors:
        table.add_row("in time", ", ".join(map(_promised, attainments(problem, plan))))
        if told := floors_in_words(plan.missed, plan.floor_costs, plan.keeping_costs):
            table.add_row("floors", escape(told))
    table.add_row("solved", f"in {plan.solve_s:.2f} s{_work(plan)}{_loading(plan)}")
    if verification is not None:
        n_broken = len(_broken(plan, verification))
        wrong = f"[bold red]breaks {counted(n_broken, 'rule')}[/]"
        table.add_row("checked", wrong if n_broken else "valid by every rule")
    if problem.unavailable:
        table.add_row("not ours", "; ".join(map(str, problem.unavailable)))
    for heading in ("beats", "equals", "short of"):
        some = [floor for floor in floors if _standing(floor, objective) == heading]
        if some:
            table.add_row(heading, ", ".join(_against(floor, objective) for floor in some))
    for word, text in notes:
        table.add_row(word, escape(text))
    return table


def _promised(attained: Attainment) -> str:
    share = "–" if attained.share is None else f"{100 * attained.share:.2f} %"
    floor = "" if attained.floor is None else f" (floor {100 * attained.floor.share:g} % per {attained.floor.per})"
    return f"{escape(attained.tenant)} {share}{floor}"


def _loading(plan: MigPlan) -> str:
    return f", after {plan.load_s:.2f} s of loading" if plan.load_s >= LEAST_TOLD_S else ""


def _work(plan: MigPlan) -> str:
    done = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in plan.work)
    return f" ({escape(done)})" if done else ""


def _broken(plan: MigPlan, verification: Verification) -> tuple[Violation, ...]:
    """What is wrong with the plan; one that may miss floors and says so is separate."""
    return verification.broken_rules if plan.missed else verification.violations


def _standing(floor: SimplePlan, objective: float) -> str:
    if floor.objective is None:
        return "beats"
    if abs(objective - floor.objective) <= TOLERANCE * max(1.0, abs(floor.objective)):
        return "equals"
    return "beats" if objective > floor.objective else "short of"


def _against(floor: SimplePlan, objective: float) -> str:
    if floor.objective is None:
        return f"{floor.engine}, which finds no plan"
    share = abs(objective / floor.objective - 1) if floor.objective else 0.0
    by = f" by {_percent(share)}" if share > TOLERANCE else ""
    return f"{floor.engine} {floor.objective:,.2f}{by}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _print_over_time(problem: Problem, plan: MigPlan, console: Console) -> None:
    """The chart of what is held, then arrivals and capability of each tenant, on one time scale."""
    scale = TimeScale.within(plan.n_steps, console.width - GUTTER)
    letters = tenant_letters(problem.tenant_names)
    chart = chart_of(problem, plan, letters)
    console.print()
    lines = gantt(chart.bars, len(chart.row_names), scale, letters)
    not_ours = f", {NOT_OURS} not ours" if problem.unavailable else ""
    print_chart(console, lines, chart.row_names, scale, "step", more=not_ours)
    for course, letter, colour in zip(courses(problem, plan), letters, COLOURS, strict=False):
        _print_tenant(course, console, scale, f"[bold {colour}]{letter} {escape(course.tenant.name)}[/]")


def _print_tenant(course: Course, console: Console, scale: TimeScale, title: str) -> None:
    tenant, share = course.tenant, course.share
    arrivals, capability = (scale.means(values) for values in (tenant.arrivals_rps, course.capability_rps))
    top = float(max(arrivals.max(), capability.max()))
    earned = f"{course.goodput.sum():,.2f} requests{'' if share is None else f', {100 * share:.2f} % of arrivals'}"
    console.print(f"\n{title}  {earned}  [dim]█ is {top:,.4g} requests/s[/]")
    if course.retraining is not None:
        print_line(console, "retrains", Text(_retraining(course, course.retraining)), no_wrap=False)
    print_line(console, "arrivals", Text(sparkline(arrivals, top)))
    print_line(console, "capability", _capability_line(arrivals, capability, top))


def _retraining(course: Course, run: Lifetime) -> str:
    option = course.tenant.options[course.tenant.level_of(run.option) - 1]
    before, after = course.tenant.accuracy_before, option.accuracy_after
    name = f"{option.name} on " if len(course.tenant.options) > 1 else ""
    trains = f", trains from {run.serve_step}" if run.serve_step > run.create_step else ""
    return f"{name}{run.where}, steps {run.create_step}–{run.end_step}{trains}, accuracy {before:.3f} → {after:.3f}"


def _capability_line(arrivals: Floats, capability: Floats, top: float) -> Text:
    """The sparkline of capability, in another colour where it is below the arrivals."""
    line = Text()
    for char, is_short in zip(sparkline(capability, top), capability < arrivals, strict=True):
        line.append(char, style=SHORT if is_short else "")
    return line


def _print_changes(problem: Problem, plan: MigPlan, console: Console, *, all_changes: bool) -> None:
    table = _timetable(problem, plan, console)
    if all_changes or table.row_count <= FEW_CHANGES:
        console.print(table)
    else:
        console.print(f"\n{table.row_count:,} changes; --changes lists them, --explain STEP says why", style="dim")


def _timetable(problem: Problem, plan: MigPlan, console: Console) -> Table:
    """A row for each span (``paper``) or for each step at which something changes (``physical``).

    On a narrow console the task (``paper``) or the slices (``physical``) are left out, which the rest tells as well.
    """
    is_paper = problem.reconfiguration is Reconfiguration.PAPER
    return (_paper_sheet(plan) if is_paper else _physical_sheet(problem, plan)).fitted(console)[0]


_STEP: Column[Any] = Column("step", form="d", get=lambda step: step, layout={"no_wrap": True})
_LEFT = {"justify": "left"}
_FRAME = {"padding": (0, 1)}


def _paper_sheet(plan: MigPlan) -> Sheet[tuple[str, ...]]:
    """A row for each span: the tenant, its task, the steps, the profiles."""
    sections: list[list[tuple[str, ...]]] = [[]]
    for schedule, colour in zip(plan.schedules, COLOURS, strict=False):
        for span in schedule.inference:
            held = ", ".join(f"{count} × {profile}" for profile, count in Counter(span.profiles).items())
            sections[-1].append((schedule.name, "inference", str(span.from_step), str(span.to_step), held, colour))
        if (run := schedule.retraining) is not None:
            task = f"retraining ({run.option})"
            sections[-1].append((schedule.name, task, str(run.start_step), str(run.end_step), run.profile, colour))
            sections.append([])
    names = {"tenant": WORDS, "task": WORDS, "from": _STEP.layout, "to": _STEP.layout, "holds": WORDS}
    columns: list[Column[tuple[str, ...]]] = [
        Column(name, get=itemgetter(place), layout=how) for place, (name, how) in enumerate(names.items())
    ]
    return Sheet(columns, sections, itemgetter(-1), ("task",), frame=_FRAME)


def _physical_sheet(problem: Problem, plan: MigPlan) -> Sheet[int]:
    """A row for each step at which something changes: the slices, what starts, what ends."""
    told = _from_when_lent(plan)
    moments = {item.create_step for item in told} | {item.end_step for item in told}
    moments |= {begin for begin, _, _ in problem.unavailable_spans} if problem.unavailable else set()

    def slices(step: int) -> Text:
        alive = [item for item in _in_slices(plan) if item.create_step <= step < item.end_step]
        layout = OwnedLayout.of((item.placement, item.owner) for item in alive)
        not_ours = problem.unavailable_in(step, step + 1)
        return layout_strip(layout, problem.tenant_names, problem.gpu.memory_slices, not_ours)

    def starts(step: int) -> Text:
        return _by_owner(problem, [item for item in told if item.create_step == step < item.end_step], _ready)

    def ends(step: int) -> Text:
        return _by_owner(problem, [item for item in told if item.end_step == step], lambda _: "")

    columns = [
        _STEP,
        Column("slices", text=slices, layout={**_LEFT, "no_wrap": True}),
        Column("starts", text=starts, layout=_LEFT),
        Column("ends", text=ends, layout=_LEFT),
    ]
    return Sheet(
        columns, [sorted(moment for moment in moments if moment < plan.n_steps)], spare=("slices",), frame=_FRAME
    )


def _ready(item: Lifetime) -> str:
    if not item.is_inference:
        return f"{' lent' if item.lent else ''} until {item.end_step}"
    return f" from {item.serve_step}" if item.serve_step > item.create_step else ""


def _by_owner(problem: Problem, items: Sequence[Lifetime], note: Callable[[Lifetime], str]) -> Text:
    """A line for each owner: its letter, a small one where it retrains, its placements, and the note on them."""
    lines: dict[tuple[Owner, str], list[str]] = {}
    for item in sorted(items, key=lambda item: item.owner):
        lines.setdefault((item.owner, note(item)), []).append(str(item.placement))
    letters, found = tenant_letters(problem.tenant_names), []
    for (owner, words), placements in lines.items():
        index = problem.tenant_names.index(owner.tenant)
        letter = "+".join(letters[problem.tenant_names.index(name)] for name in owner.members)
        letter = letter if owner.task is Task.INFERENCE else letter.lower()
        found.append(Text(f"{letter} {' '.join(placements)}{words}", style=COLOURS[index]))
    return Text("\n").join(found)


@dataclass(frozen=True, slots=True)
class Chart:
    """The bars of a plan, and the names of the rows that they lie on."""

    bars: tuple[Bar, ...]
    row_names: tuple[str, ...]


def chart_of(problem: Problem, plan: MigPlan, letters: Sequence[str]) -> Chart:
    """The chart of a plan that exists; ``letters`` are the tenants'."""
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            return _stacked(problem, plan, letters)
        case Reconfiguration.PHYSICAL:
            return _on_slices(problem, plan)
        case _:
            assert_never(problem.reconfiguration)


def _from_when_lent(plan: MigPlan) -> list[Lifetime]:
    """The lifetimes, loans without their trainer's start, which passes beside those who serve."""
    return [replace(item, create_step=item.serve_step) if item.lent else item for item in plan.lifetimes]


def _in_slices(plan: MigPlan) -> Sequence[Lifetime]:
    """The lifetimes without what of them is lent, so that no two are in one slice."""
    found = _from_when_lent(plan)
    for loan in [item for item in found if item.lent]:
        for item in [own for own in found if own.is_inference and own.placement == loan.placement]:
            before = replace(item, end_step=min(item.end_step, loan.create_step))
            after = replace(item, create_step=max(item.create_step, loan.end_step))
            found.remove(item)
            found += [part for part in (before, after) if part.create_step < part.end_step]
    return found


def _on_slices(problem: Problem, plan: MigPlan) -> Chart:
    """A row for each memory slice."""
    bars = [
        Bar(
            first_row=item.placement.start,
            end_row=item.placement.end,
            create_step=item.create_step,
            serve_step=item.serve_step,
            end_step=item.end_step,
            tenant=problem.tenant_names.index(item.owner.tenant),
            is_retraining=not item.is_inference,
            label=_label(problem, item.placement.profile),
            others=tuple(map(problem.tenant_names.index, item.owner.others)),
            is_lent=item.lent,
        )
        for item in _in_slices(plan)
    ]
    bars += _others_bars(problem, range(problem.gpu.memory_slices))
    return Chart(tuple(bars), tuple(f"slice {number}" for number in range(problem.gpu.memory_slices)))


def _stacked(problem: Problem, plan: MigPlan, letters: Sequence[str]) -> Chart:
    """Rows by tenant, one for each compute slice that its inference holds at most, then those of its retraining.

    Last come the memory slices that are not ours in some step.
    """
    bars: list[Bar] = []
    names: list[str] = []
    for m, (schedule, course) in enumerate(zip(plan.schedules, courses(problem, plan), strict=True)):
        spans = [_span_bars(problem, span, course, m, len(names)) for span in schedule.inference]
        bars += [bar for span in spans for bar in span]
        n_rows = max(span[-1].end_row for span in spans) - len(names)
        names += [f"{letters[m]} serves", *[""] * (n_rows - 1)]
        run = schedule.retraining
        if run is not None:
            profile, first = problem.gpu.profile(run.profile), len(names)
            rows = (first, first + profile.compute_slices)
            steps = (run.start_step, run.start_step, run.end_step)
            bars.append(Bar(*rows, *steps, m, is_retraining=True, label=_label(problem, profile)))
            names += [f"{letters[m]} retrains", *[""] * (profile.compute_slices - 1)]
    others = memory_slices_in(problem.unavailable_in(0, problem.n_steps))
    bars += _others_bars(problem, {number: len(names) + row for row, number in enumerate(others)})
    return Chart(tuple(bars), (*names, *(f"not ours {number}" for number in others)))


def _others_bars(problem: Problem, row_of: Mapping[int, int] | Sequence[int]) -> list[Bar]:
    """A bar for each memory slice and stretch in which it is not ours, on the slice's row."""
    return [
        Bar(row_of[number], row_of[number] + 1, begin, begin, end, None, is_retraining=False, label="")
        for begin, end, mask in problem.unavailable_spans
        for number in memory_slices_in(mask)
    ]


def _span_bars(problem: Problem, span: InferenceSpan, course: Course, tenant: int, first_row: int) -> list[Bar]:
    """One bar an instance, the largest first; they do not serve in a step that pays for a change."""
    serve_step = span.from_step + int(course.has_changed[span.from_step])
    found, row = [], first_row
    for profile in sorted(map(problem.gpu.profile, span.profiles), key=lambda profile: -profile.compute_slices):
        rows = (row, row + profile.compute_slices)
        steps = (span.from_step, serve_step, span.to_step)
        found.append(Bar(*rows, *steps, tenant, is_retraining=False, label=_label(problem, profile)))
        row = rows[1]
    return found


def _label(problem: Problem, profile: Profile) -> str:
    """``2g``; the whole name where another profile of the problem is called the same."""
    short = profile.name.partition(".")[0]
    alike = [name for name in problem.profile_names if name.partition(".")[0] == short]
    return profile.name if len(alike) > 1 else short


def print_explanation(found: Explanation, console: Console) -> None:
    """Print the step, the alternatives, and why the plan stays or changes."""
    console.print(f"\n[bold]Step {found.step}[/]")
    console.print(_step_sheet(found).fitted(console)[0])
    for pool in found.pools:
        console.print(
            f"  {escape(' + '.join(pool.members))} share what they hold: {pool.together:,.2f} requests of this step by "
            f"turns, {pool.apart:,.2f} at most if each instance were one's alone",
            soft_wrap=True,
        )
    if not found.n_compared:  # the problem sets the layout
        if found.loans:
            console.print("[bold]The loans[/], each against the plan without it, all else as it is")
            console.print(_loans_sheet(found).fitted(console)[0])
        console.print(escape(found.reason))
        return
    console.print(
        f"[bold]What could be held in steps {found.from_step}–{found.to_step}[/], all else as in the plan: "
        f"{counted(found.n_compared, 'layout')} to choose from"
    )
    console.print(_choices_sheet(found).fitted(console)[0])
    console.print(escape(found.reason))


def _letters(found: Explanation) -> tuple[str, ...]:
    return tenant_letters([tenant.name for tenant in found.tenants])


def _step_sheet(found: Explanation) -> Sheet[tuple[str, TenantStep, str]]:
    def figures(row: tuple[str, TenantStep, str]) -> TenantStep:
        return row[1]

    names: Column[tuple[str, TenantStep, str]] = Column(
        "tenant", get=lambda row: f"{row[0]} {row[1].name}", layout={**WORDS, "min_width": _LEAST_TEXT}
    )
    return Sheet(
        [names, *(column.of(figures) for column in _STEP_FIGURES)],
        [list(zip(_letters(found), found.tenants, COLOURS, strict=False))],
        itemgetter(2),
        spare=("can serve/s", "arrive/s", "accuracy", "retrains on"),
        layout={"no_wrap": True},
        frame=_FRAME,
    )


_STEP_FIGURES: Sequence[Column[TenantStep]] = (
    Column("retrains on", "retraining", unknown="", heading="retrains on", layout=_LEFT),
    Column("arrive/s", "arrivals_rps", form=",.1f"),
    Column("can serve/s", "capability_rps", form=",.1f", heading="can serve/s"),
    Column("accuracy", "accuracy", form=".3f", heading="accuracy"),
    Column("goodput", "goodput"),
)


def _choices_sheet(found: Explanation) -> Sheet[LayoutChoice]:
    def layout(choice: LayoutChoice) -> Text:
        own = zip(_letters(found), choice.holds, COLOURS, strict=False)
        return Text("\n").join(Text(f"{letter} {_grouped(held)}", style=colour) for letter, held, colour in own)

    def net(choice: LayoutChoice) -> str:
        return f"{choice.net:,.2f}" if HELD in choice.roles else f"{choice.net - found.held.net:+z,.2f}"

    step, stretch = f"step {found.step}", f"{found.from_step}–{found.to_step}"
    return Sheet(
        [
            Column("", text=lambda choice: Text("\n".join(choice.roles)), layout=_LEFT),
            Column("layout", text=layout, layout={**WORDS, "min_width": _LEAST_TEXT}),
            Column(step, "step_goodput", heading=step),
            Column(stretch, "stretch_goodput"),
            Column("switching", text=lambda choice: f"{-choice.switching:,.2f}" if choice.switching else "0"),
            Column("net", "net", text=net),
        ],
        [[choice] for choice in sorted((found.held, *found.alternatives), key=lambda choice: -choice.net)],
        lambda choice: "bold" if HELD in choice.roles else "",
        spare=("switching", step, stretch),
        layout={"no_wrap": True},
        frame={**_FRAME, "caption": _CAPTION, "caption_justify": "left"},
    )


def _loans_sheet(found: Explanation) -> Sheet[LoanWorth]:
    """A row a loan: what is lent to whom, in which steps, and what that takes and wins, in requests."""

    def of_tenant(place: int) -> Column[LoanWorth]:
        return Column(meanwhile[place], get=lambda one: one.meanwhile[place], form="+z,.2f")

    letters, names = _letters(found), [tenant.name for tenant in found.tenants]
    meanwhile = [f"meanwhile {letter}" for letter in letters]

    def to_whom(one: LoanWorth) -> Text:
        place = names.index(one.tenant)
        return Text(f"{letters[place].lower()} {one.placement}", style=COLOURS[place])

    def when(one: LoanWorth) -> str:
        start = f"{one.create_step}, " if one.serve_step > one.create_step else ""
        return f"{start}{one.serve_step}–{one.end_step}"

    return Sheet(
        [
            Column("lent", text=to_whom, layout=_LEFT),
            Column("trainer, lent", text=when, layout=_LEFT),
            *map(of_tenant, range(len(names))),
            Column("later", "later", form="+z,.2f"),
            Column("wins", "net", form="+z,.2f"),
        ],
        [[*found.loans]],
        lambda one: "bold" if one.create_step <= found.step < one.end_step else "",
        spare=(*meanwhile, "later"),
        layout={"no_wrap": True},
        frame={**_FRAME, "caption": _LOANS_CAPTION, "caption_justify": "left"},
    )


_LOANS_CAPTION = "goodput in requests: of each tenant while the instance is lent, then of all in other steps"

_CAPTION = "goodput in requests, once everything serves; net: what is left of it, for others the difference"


def _grouped(held: Sequence[str]) -> str:
    """Profiles that are held more than once with their number; placements as they are."""
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in Counter(held).items())
