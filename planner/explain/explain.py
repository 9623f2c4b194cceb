"""Why a plan holds what it holds in a step: that layout against every other that could stand in its place.

A *stretch* is a range of steps over which what inference holds does not change. Another layout is
put in its place, from the step asked about to the stretch's end, while the rest of the plan stays as
it is: the retrainings, what was held before, what is held after. What that would have earned once
everything serves, and what the changes into it and out of it would have cost, says why it was not chosen.

In ``physical`` two epochs are at least Ω steps apart. Where the step asked about lies closer than that to
the stretch's beginning or end, the layout is exchanged over the whole stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from planner.course import Course, courses
from planner.errors import ProblemError
from planner.explain.paper import paper_candidates
from planner.explain.physical import physical_candidates
from planner.explain.stretch import AFTER, BEFORE, HELD, Candidates
from planner.gains import gain_tables
from planner.levels import lowered
from planner.plan import MigPlan
from planner.problem import FloatArray, GainTable, Problem, Reconfiguration

__all__ = ["AFTER", "BEFORE", "HELD", "Choice", "Explanation", "TenantStep", "explain"]

N_ALTERNATIVES = 5
"""How many alternatives an explanation lists by default, beside the layouts before and after."""

TOLERANCE = 1e-9
"""Relative to the window's goodput; differences this small are rounding."""


@dataclass(frozen=True, slots=True)
class TenantStep:
    """One tenant in the step asked about.

    Attributes:
        name: The tenant.
        retraining: What its retraining holds in the step; ``None`` if it runs none.
        arrivals_rps: Expected requests a second.
        capability_rps: Requests a second that what serves can answer in time.
        accuracy: Share of answers that are correct.
        goodput: Expected goodput of the step in requests.
    """

    name: str
    retraining: str | None
    arrivals_rps: float
    capability_rps: float
    accuracy: float
    goodput: float


@dataclass(frozen=True, slots=True)
class Choice:
    """One layout in the stretch; all figures are expected goodput in requests, over all tenants.

    Attributes:
        roles: Whether it is what the plan holds there, ``before`` or ``after`` that; empty for others.
        holds: By tenant, the profiles (``paper``) or placements (``physical``) that inference holds.
        step_goodput: What it earns in the step asked about, once everything serves.
        stretch_goodput: What it earns over the steps compared, once everything serves.
        switching: What changing to it at their beginning and from it at their end takes away.
    """

    roles: tuple[str, ...]
    holds: tuple[tuple[str, ...], ...]
    step_goodput: float
    stretch_goodput: float
    switching: float

    @property
    def net(self) -> float:
        """What the plan would have of it."""
        return self.stretch_goodput - self.switching


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the plan holds what it holds in a step.

    Attributes:
        step: The step asked about.
        from_step: First step compared.
        to_step: End of the steps compared: the next change, or the window's end.
        tenants: The step itself, by tenant.
        held: What the plan holds.
        alternatives: The best others by ``net``, and what is held before and after where it fits.
        n_compared: How many layouts that differ in what tenants hold were compared.
        reason: Why the plan stays or changes, in a sentence or two.
    """

    step: int
    from_step: int
    to_step: int
    tenants: tuple[TenantStep, ...]
    held: Choice
    alternatives: tuple[Choice, ...]
    n_compared: int
    reason: str


def explain(problem: Problem, plan: MigPlan, step: int, n_alternatives: int = N_ALTERNATIVES) -> Explanation:
    """The gain of the layout held at ``step`` against its best alternatives.

    Args:
        problem: The problem.
        plan: A plan of it that keeps the rules.
        step: 0 to n_steps − 1.
        n_alternatives: How many of the best alternatives are listed.

    Raises:
        ProblemError: The window has no such step, or the plan holds nothing.
    """
    if not plan.status.has_plan:
        raise ProblemError(f"nothing to explain: the status is {plan.status}")
    if not 0 <= step < problem.n_steps:
        raise ProblemError(f"step is {step}; the window has steps 0 to {problem.n_steps - 1}")
    tables, own = gain_tables(problem), courses(problem, plan)
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            found = paper_candidates(problem, tables, own, step)
        case Reconfiguration.PHYSICAL:
            found = physical_candidates(problem, plan, tables, own, step)
        case _:
            assert_never(problem.reconfiguration)
    values = _Values.of(tables, own, found, step)
    listed = _listed(found, values.net, n_alternatives)
    choices = {row: values.choice(found, row) for row in (found.held, *listed)}
    return Explanation(
        step=step,
        from_step=found.from_step,
        to_step=found.to_step,
        tenants=tuple(_tenant_step(course, step) for course in own),
        held=choices[found.held],
        alternatives=tuple(choices[row] for row in listed),
        n_compared=len(np.unique(found.columns, axis=0)),
        reason=_reason(problem, plan, found, choices, values),
    )


@dataclass(frozen=True, eq=False)
class _Values:
    """Goodput of every candidate in the step asked about and over the steps compared, and what is left of it."""

    step: FloatArray
    stretch: FloatArray
    net: FloatArray

    @classmethod
    def of(cls, tables: Sequence[GainTable], courses: Sequence[Course], found: Candidates, step: int) -> _Values:
        in_step, stretch = np.zeros(len(found.switching)), np.zeros(len(found.switching))
        steps = np.arange(found.from_step, found.to_step)
        for m, (table, course) in enumerate(zip(tables, courses, strict=True)):
            earned = lowered(table.steady[course.level[steps], steps], course.swap_share[steps, None])
            in_step += earned[step - found.from_step][found.columns[:, m]]
            stretch += earned.sum(axis=0)[found.columns[:, m]]
        return cls(in_step, stretch, stretch - found.switching)

    def choice(self, found: Candidates, row: int) -> Choice:
        return Choice(
            roles=tuple(role for role, at in found.roles.items() if at == row),
            holds=found.names(row),
            step_goodput=float(self.step[row]),
            stretch_goodput=float(self.stretch[row]),
            switching=float(found.switching[row]),
        )


def _listed(found: Candidates, net: FloatArray, n_alternatives: int) -> list[int]:
    """Rows by descending ``net``: the best of each joint multiset, and what is held before and after."""
    listed: list[int] = []
    seen = {tuple(found.columns[found.held])}
    for row in map(int, np.argsort(-net, kind="stable")):
        if len(listed) == n_alternatives:
            break
        key = tuple(found.columns[row])
        if key not in seen:
            seen.add(key)
            listed.append(row)
    named = {row for row in found.roles.values() if row != found.held}
    return sorted({*listed, *named}, key=lambda row: (-net[row], row))


def _tenant_step(course: Course, step: int) -> TenantStep:
    run = course.retraining
    is_running = run is not None and run.from_step <= step < run.to_step
    return TenantStep(
        name=course.tenant.name,
        retraining=run.where if run is not None and is_running else None,
        arrivals_rps=float(course.tenant.arrivals_rps[step]),
        capability_rps=float(course.capability_rps[step]),
        accuracy=course.tenant.accuracies[int(course.level[step])],
        goodput=float(course.goodput[step]),
    )


def _reason(problem: Problem, plan: MigPlan, found: Candidates, choices: dict[int, Choice], values: _Values) -> str:
    if found.fixed_because:
        return f"The plan has no choice here: {found.fixed_because}."
    is_last = found.to_step == problem.n_steps
    held, until = choices[found.held], "until the window ends" if is_last else f"until step {found.to_step}"
    others = [choice for row, choice in choices.items() if row != found.held]
    slack = TOLERANCE * max(1.0, abs(plan.objective or 0.0))
    best = max(others, key=lambda choice: choice.net, default=None)
    if best is None:
        return "The plan has no choice here: nothing else fits."
    if best.net > held.net + slack:
        better = best.net - held.net
        return f"Another layout would be {better:.2f} requests better {until}: the plan is not the best there is."
    if found.is_change:
        return _why_it_changes(problem, found, choices, until)
    richest = int(values.stretch.argmax())
    more = float(values.stretch[richest]) - held.stretch_goodput
    if more <= slack:
        return f"The plan stays: no layout that fits earns more {until}."
    cost = float(found.switching[richest]) - held.switching
    return (
        f"The plan stays: the layout that earns most {until} would bring {more:.2f} requests more, but changing to it "
        f"{'' if is_last else 'and on from it '}takes away {cost:.2f}."
    )


def _what_is_beside(problem: Problem) -> str:
    return "the retrainings and the memory slices that are not ours" if problem.unavailable else "the retrainings"


def _why_it_changes(problem: Problem, found: Candidates, choices: dict[int, Choice], until: str) -> str:
    held, row = choices[found.held], found.roles.get(BEFORE)
    if row is None:
        return f"The plan changes here: what was held before does not fit beside {_what_is_beside(problem)}."
    less = held.stretch_goodput - choices[row].stretch_goodput
    cost = held.switching - choices[row].switching
    if less <= 0:
        return (
            f"The plan changes here for what follows: what was held before would earn {-less:.2f} requests more "
            f"{until}, but the change to what is held then would take away {-cost:.2f} more."
        )
    price = f"changing takes away {cost:.2f}" if cost > 0 else f"the change then would take away {-cost:.2f} more"
    return f"The plan changes here: what was held before would earn {less:.2f} requests less {until}; {price}."
