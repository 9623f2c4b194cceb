"""A plan as bars for the Gantt chart: on memory slices where it has placements, else stacked by tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from executor.mig import Profile
from migrator.views.strips import Bar
from planner.course import Course, courses
from planner.plan import InferenceSpan, MigPlan
from planner.problem import Problem, Reconfiguration


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars with the names of the rows that they lie on."""

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
        )
        for item in plan.lifetimes
    ]
    return Chart(tuple(bars), tuple(f"slice {number}" for number in range(problem.gpu.memory_slices)))


def _stacked(problem: Problem, plan: MigPlan, letters: Sequence[str]) -> Chart:
    """Rows by tenant, one for each compute slice that its inference holds at most, then those of its retraining."""
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
    return Chart(tuple(bars), tuple(names))


def _span_bars(problem: Problem, span: InferenceSpan, course: Course, tenant: int, first_row: int) -> list[Bar]:
    """One bar an instance, the largest first; in a step that pays for a change they are not there yet."""
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
