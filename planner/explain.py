"""Why a plan holds what it holds in a step: that layout against every other that could take its place.

A *stretch* is a range of steps over which what inference holds does not change. Another layout is
put in its place, from the step asked about to the stretch's end, while the rest of the plan stays as
it is: the retrainings, what was held before, what is held after. What that would have earned once
everything serves, and what the changes into it and out of it would have cost, says why it was not chosen.

Beside a layout that the problem sets there is no other to put in its place. There the loans are explained: each against
the plan without it, all else as it is.

In ``physical`` two epochs are at least Ω steps apart. Where the step asked about lies closer than that to
the stretch's beginning or end, the layout is exchanged over the whole stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import mul, sub

import numpy as np

from planner.arrays import Bools, Floats, Int64s, sums_before
from planner.counts import multiset_of, profiles_of
from planner.course import Course, Holding, courses, held_by_step, in_order
from planner.engines.physical.held_sets import HeldSets
from planner.errors import ProblemError
from planner.gains import carried_over_in_turn, order_of_service
from planner.plan import Lifetime, MigPlan, salvage_of
from planner.problem import Problem, Reconfiguration

HELD, BEFORE, AFTER = "held", "before", "after"
"""Roles of a layout: held by the plan over the stretch, just before it, just after it."""

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
class PoolStep:
    """What it is worth in the step asked about that a pool shares what serves it; goodput in requests.

    Both figures are by the step's own arrivals, without what waits from the step before.

    Attributes:
        members: The pool's tenants.
        together: What they earn together.
        apart: The most that they would earn if each of the instances were one member's alone, at that member's own
            rates; a member without an instance earns nothing.
    """

    members: tuple[str, ...]
    together: float
    apart: float


@dataclass(frozen=True, slots=True)
class LoanWorth:
    """What a loan costs and wins, against the plan without it; goodput in requests.

    Attributes:
        tenant: Whose retraining it is for.
        option: By which option; ``None`` where it ran as the window began.
        placement: What is lent.
        create_step: Its trainer starts here, beside those who serve, or ran before.
        serve_step: It serves nobody from here on.
        end_step: It serves all again from here on.
        meanwhile: By tenant, in the problem's order, what is more earned while it is lent; less where negative.
        later: What all earn more in the other steps, and beyond the window by salvage.
    """

    tenant: str
    option: str | None
    placement: str
    create_step: int
    serve_step: int
    end_step: int
    meanwhile: tuple[float, ...]
    later: float

    @property
    def net(self) -> float:
        """What the plan wins by it."""
        return sum(self.meanwhile) + self.later


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """One layout in the stretch; all figures are expected goodput in requests, over all tenants.

    Attributes:
        roles: Whether it is what the plan holds there, ``before`` or ``after`` that; empty for others.
        holds: By tenant, the profiles (``paper``) or placements (``physical``) that inference holds.
        step_goodput: What it earns in the step asked about, once everything serves.
        stretch_goodput: What it earns over the steps compared, once everything serves.
        switching: What changing to it at their beginning and from it at their end takes away, and where nothing could
            be changed, that it has to get ready.
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
        pools: What sharing is worth in the step itself, by pool.
        loans: All of the plan, in order.
    """

    step: int
    from_step: int
    to_step: int
    tenants: tuple[TenantStep, ...]
    held: LayoutChoice
    alternatives: tuple[LayoutChoice, ...]
    n_compared: int
    reason: str
    pools: tuple[PoolStep, ...] = ()
    loans: tuple[LoanWorth, ...] = ()


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
    own = courses(problem, plan)
    if problem.layout:
        return _beside_one_layout(problem, plan, own, step)
    stretch = _stretch(problem, own, step)
    layouts = _Layouts(problem, own, stretch, step)
    held, others = layouts.choice(layouts.roles[HELD]), tuple(map(layouts.choice, layouts.listed(n_alternatives)))
    return Explanation(
        step=step,
        from_step=stretch.from_step,
        to_step=stretch.to_step,
        tenants=tuple(_tenant_step(course, step) for course in own),
        held=held,
        alternatives=others,
        n_compared=len(np.unique(layouts.columns, axis=0)),
        reason=_reason(problem, plan, stretch, layouts, held, others),
        pools=tuple(_pool_step(problem, own, members, step) for members in problem.partition if len(members) > 1),
    )


def _beside_one_layout(problem: Problem, plan: MigPlan, own: Sequence[Course], step: int) -> Explanation:
    """The loans of a plan, and what they leave to serve in the step; no other layout could take its place."""
    worth = tuple(_loan_worth(problem, plan, own, item) for item in plan.lifetimes if item.lent)
    by_tenant = [[item for item in course.lifetimes if item.is_inference] for course in own]
    holds = (
        tuple(str(item.placement) for item in items if item.create_step <= step < item.end_step) for items in by_tenant
    )
    earned = np.sum([course.goodput for course in own], axis=0)
    return Explanation(
        step=step,
        from_step=0,
        to_step=problem.n_steps,
        tenants=tuple(_tenant_step(course, step) for course in own),
        held=LayoutChoice((HELD,), tuple(holds), float(earned[step]), float(earned.sum()), 0.0),
        alternatives=(),
        n_compared=0,
        reason=_what_is_lent(worth, step),
        pools=tuple(_pool_step(problem, own, members, step) for members in problem.partition if len(members) > 1),
        loans=tuple(sorted(worth, key=lambda one: one.create_step)),
    )


def _loan_worth(problem: Problem, plan: MigPlan, own: Sequence[Course], loan: Lifetime) -> LoanWorth:
    """The loan against the plan without it: its tenant is not retrained, and all go on being served there."""
    kept = tuple(item for item in plan.lifetimes if item is not loan)
    more = [
        course.goodput - other.goodput
        for course, other in zip(own, courses(problem, replace(plan, lifetimes=kept)), strict=True)
    ]
    meanwhile = tuple(float(gained[loan.serve_step : loan.end_step].sum()) for gained in more)
    salvage = salvage_of(problem, (), plan.lifetimes) - salvage_of(problem, (), kept)
    return LoanWorth(
        tenant=loan.owner.tenant,
        option=loan.option,
        placement=str(loan.placement),
        create_step=loan.create_step,
        serve_step=loan.serve_step,
        end_step=loan.end_step,
        meanwhile=meanwhile,
        later=sum(float(gained.sum()) for gained in more) - sum(meanwhile) + salvage,
    )


def _what_is_lent(loans: Sequence[LoanWorth], step: int) -> str:
    now = next((one for one in loans if one.create_step <= step < one.end_step), None)
    if now is None:
        later = min((one.create_step for one in loans if one.create_step > step), default=None)
        then = "and no loan begins later" if later is None else f"and the next loan's trainer starts at step {later}"
        return f"Nothing is lent: the whole layout serves, {then}."
    who = f"{now.placement} to {now.tenant}"
    if step < now.serve_step:
        return f"The trainer for the loan of {who} starts; the whole layout serves until step {now.serve_step}."
    return (
        f"The loan of {who} takes {-sum(now.meanwhile):,.2f} requests while the rest of the layout serves all, "
        f"until step {now.end_step}, and wins {now.later:,.2f} in the other steps and beyond the window."
    )


def _pool_step(problem: Problem, own: Sequence[Course], members: tuple[int, ...], step: int) -> PoolStep:
    """The pool of these tenants in a step."""
    order = order_of_service(problem, members)
    serving = np.max([own[m].serving[step] for m in members], axis=0)
    worth = {m: own[m].tenant.weight * own[m].tenant.accuracies[int(own[m].level[step])] for m in members}
    arrived = {m: problem.step_s * float(own[m].tenant.arrivals_rps[step]) for m in members}
    came = [np.full((1, 1), arrived[m]) for m in order]
    most = [np.full((1, 1), problem.step_s * (own[m].serving[step] @ problem.rates_rps(own[m].tenant))) for m in order]
    (served,) = carried_over_in_turn(came, most, [np.zeros((1, 1)) for _ in order])
    together = sum(worth[m] * float(own_served[0, 0]) for m, own_served in zip(order, served, strict=True))
    # The best deal of the instances: one member after the other, by what those before it have taken.
    best = {tuple(serving.tolist()): 0.0}
    for m in members:
        rates = [own[m].tenant.capability_rps.get(name, 0.0) for name in problem.profile_names]
        after: dict[tuple[int, ...], float] = {}
        for left, value in best.items():
            for taken in product(*(range(count + 1) for count in left)):
                rest = tuple(map(sub, left, taken))
                can_serve = problem.step_s * sum(map(mul, taken, rates))
                after[rest] = max(after.get(rest, 0.0), value + worth[m] * min(arrived[m], can_serve))
        best = after
    return PoolStep(tuple(problem.tenant_names[m] for m in members), together, max(best.values()))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The steps compared, and what the plan holds in them, before them and after them.

    Attributes:
        from_step: First step compared.
        to_step: End of the steps compared.
        held: What the plan holds there.
        before: What it holds, or would without them, just before; ``None`` where the first layout is free.
        after: What it holds just after; ``None`` at the window's end.
        fixed_because: Why nothing else could be held there; empty where something could.
    """

    from_step: int
    to_step: int
    held: Holding
    before: Holding | None
    after: Holding | None
    fixed_because: str = ""

    @property
    def steps(self) -> slice:
        """Those compared."""
        return slice(self.from_step, self.to_step)


def _stretch(problem: Problem, own: Sequence[Course], step: int) -> _Stretch:
    """From the step, where it may be an epoch (in ``paper`` any may), else from where its stretch begins."""
    state, is_paper = problem.initial, problem.reconfiguration is Reconfiguration.PAPER
    apart = 1 if is_paper else problem.epoch_steps
    first = problem.opening.next_epoch_step
    # What a pool holds is in the course of each of its members.
    firsts = [own[members[0]] for members in problem.partition]
    changes = [*held_by_step(problem, (item for course in firsts for item in course.lifetimes))]
    number = max(n for n, (since, _) in enumerate(changes) if since <= step)
    before: Holding | None
    held = changes[number][1]
    end, after = changes[number + 1] if number + 1 < len(changes) else (problem.n_steps, None)
    latest = end - 1 if after is None else end - apart
    if number:
        begin, before = changes[number][0], changes[number - 1][1]
        earliest = begin + apart
    elif state is None:
        begin, before, earliest = 0, None, 1
    else:
        begin, before, earliest = first, held, first + (apart if problem.is_repartitioned else 0)
    if earliest <= step <= latest:
        return _Stretch(step, end, held, held, after)
    if before is None or begin <= min(step, latest):
        return _Stretch(begin, end, held, before, after)
    why = f"what was in progress when the window opened keeps it as it is until step {first}"
    if step >= first:
        why = f"epochs are at least {apart} steps apart, and the next one is at step {end}"
    return _Stretch(step, end, held, held, after, why)


class _Layouts:
    """All that fits beside the retrainings, and others' instances, of every step of a stretch.

    Attributes:
        columns: Each tenant's column of its gain table once everything serves, ``(n, n_tenants)``.
        roles: Row by role; ``before`` and ``after`` are missing where there is none or it does not fit.
        step, stretch, switching: Goodput as that of a :class:`LayoutChoice`, ``(n,)`` each.
    """

    def __init__(self, problem: Problem, own: Sequence[Course], stretch: _Stretch, step: int) -> None:
        self._problem, self._own, self._tables = problem, own, [course.table for course in own]
        self._is_paper = problem.reconfiguration is Reconfiguration.PAPER
        self._sets = HeldSets.of(problem, is_counted=self._is_paper)
        all_columns = self._sets.columns(self._tables)
        around = {HELD: stretch.held, BEFORE: stretch.before, AFTER: stretch.after}
        numbers = {role: self._sets.index(holding) for role, holding in around.items() if holding is not None}
        self._rows = np.flatnonzero(self._fits(stretch))
        if self._is_paper:  # in the order of the joint states
            self._rows = self._rows[np.lexsort(all_columns[self._rows].T[::-1])]
        if stretch.fixed_because:
            self._rows = np.array([numbers[HELD]], dtype=np.int64)
        position = {int(number): row for row, number in enumerate(self._rows)}
        self.roles = {role: position[number] for role, number in numbers.items() if number in position}
        self.columns = all_columns[self._rows]
        self.step, self.stretch, self.switching = np.zeros((3, len(self._rows)))
        for course, column in zip(own, self.columns.T, strict=True):
            earned = course.earned(course.table.steady, stretch.steps)
            self.step += earned[step - stretch.from_step][column]
            self.stretch += earned.sum(axis=0)[column]
        if stretch.before is not None:
            self.switching += self._lost(stretch.from_step, self.columns, stretch.before)
        if stretch.after is not None:
            self.switching += self._lost(stretch.to_step, all_columns[numbers[AFTER]][None, :], stretch.after)
        if stretch.fixed_because:  # what is there may have to get ready yet
            self.switching += self.stretch - sum(float(course.goodput[stretch.steps].sum()) for course in own)
        self.net = self.stretch - self.switching

    def _fits(self, stretch: _Stretch) -> Bools:
        problem, steps = self._problem, range(stretch.from_step, stretch.to_step)
        runs = [course.retraining for course in self._own if course.retraining is not None]
        busy = (tuple(run.placement for run in runs if run.create_step <= s < run.end_step) for s in steps)
        beside = {(held, problem.unavailable_in(s, s + 1)) for s, held in zip(steps, busy, strict=True)}
        fits = np.ones(len(self._sets.table.layouts), dtype=np.bool_)
        for held, unavailable in beside:
            fits &= self._sets.table.fits_beside(problem.gpu, held, unavailable)
        return fits[self._sets.layout]

    def _lost(self, step: int, columns: Int64s, other: Holding) -> Floats:
        """What a change in ``step`` between each layout and another takes away; ``columns`` serve after it, ``(n,)``.

        In ``paper`` a tenant of which anything changes pays for a step. In ``physical`` it is served by what both have
        of it until the rest has warmed up.
        """
        lost = np.zeros(len(self._rows))
        kept = self.columns
        if not self._is_paper:
            joined = self._problem.joins_at
            serving = [frozenset(item for item in other if joined(item[0], c.tenant) <= step) for c in self._own]
            kept = self._sets.columns(self._tables, serving)[self._rows]
        for m, course in enumerate(self._own):
            table = course.table
            if self._is_paper:
                assert table.changed is not None
                names = [place.profile.name for place, tenant in other if tenant == m]
                changed = self.columns[:, m] != table.column.get(multiset_of(self._problem, names), -1)
                gains = (course.earned(gains, slice(step, step + 1))[0] for gains in (table.steady, table.changed))
                lost += changed * np.subtract(*gains)[columns[:, m]]
            else:
                so_far = sums_before(course.earned(table.steady, slice(None)))
                until = min(step + self._problem.warm_up_steps(course.tenant), self._problem.n_steps)
                settled = so_far[until] - so_far[step]
                lost += settled[columns[:, m]] - settled[kept[:, m]]
        return lost

    def choice(self, row: int) -> LayoutChoice:
        """The layout in that row."""
        number, held_by = int(self._rows[row]), self._problem.holder_of
        held = in_order(self._sets.entries(number))
        holds = [tuple(str(place) for place, holder in held if holder == own) for own in held_by]
        if self._is_paper:
            own = [table.multisets[column] for table, column in zip(self._tables, self.columns[row], strict=True)]
            holds = [profiles_of(self._problem, multiset) for multiset in own]
        roles = tuple(role for role, at in self.roles.items() if at == row)
        return LayoutChoice(roles, tuple(holds), *(float(f[row]) for f in (self.step, self.stretch, self.switching)))

    def listed(self, n_alternatives: int) -> list[int]:
        """Rows by descending ``net``: the best of each joint multiset, and what is held before and after."""
        held, order = self.roles[HELD], np.argsort(-self.net, kind="stable")
        is_other = (self.columns[order] != self.columns[held]).any(axis=1)
        _, first = np.unique(self.columns[order][is_other], axis=0, return_index=True)
        best = order[is_other][np.sort(first)][:n_alternatives]
        named = {row for row in self.roles.values() if row != held}
        return sorted({*map(int, best), *named}, key=lambda row: (-self.net[row], row))


def _tenant_step(course: Course, step: int) -> TenantStep:
    run = course.retraining
    is_running = run is not None and run.create_step <= step < run.end_step
    return TenantStep(
        name=course.tenant.name,
        retraining=run.where if run is not None and is_running else None,
        arrivals_rps=float(course.tenant.arrivals_rps[step]),
        capability_rps=float(course.capability_rps[step]),
        accuracy=course.tenant.accuracies[int(course.level[step])],
        goodput=float(course.goodput[step]),
    )


def _reason(
    problem: Problem,
    plan: MigPlan,
    stretch: _Stretch,
    layouts: _Layouts,
    held: LayoutChoice,
    others: Sequence[LayoutChoice],
) -> str:
    if stretch.fixed_because:
        return f"The plan has no choice here: {stretch.fixed_because}."
    if not others:
        return "The plan has no choice here: nothing else fits."
    is_last = stretch.to_step == problem.n_steps
    until = "until the window ends" if is_last else f"until step {stretch.to_step}"
    slack = TOLERANCE * max(1.0, abs(plan.objective or 0.0))
    better = max(choice.net for choice in others) - held.net
    if better > slack:
        verdict = (
            "if it keeps the floors of in-time answers" if problem.has_floors else "the plan is not the best there is"
        )
        return f"Another layout would be {better:,.2f} requests better {until}: {verdict}."
    if stretch.before not in (None, stretch.held):
        before = next((choice for choice in others if BEFORE in choice.roles), None)
        return f"The plan changes here{_why_it_changes(problem, held, before, until)}"
    richest = int(layouts.stretch.argmax())
    more = float(layouts.stretch[richest]) - held.stretch_goodput
    if more <= slack:
        return f"The plan stays: no layout that fits earns more {until}."
    cost = float(layouts.switching[richest]) - held.switching
    return (
        f"The plan stays: the layout that earns most {until} would bring {more:,.2f} requests more, but changing to it "
        f"{'' if is_last else 'and on from it '}takes away {cost:,.2f}."
    )


def _why_it_changes(problem: Problem, held: LayoutChoice, before: LayoutChoice | None, until: str) -> str:
    if before is None:
        others = " and the memory slices that are not ours" if problem.unavailable else ""
        return f": what was held before does not fit beside the retrainings{others}."
    less, cost = held.stretch_goodput - before.stretch_goodput, held.switching - before.switching
    if less <= 0:
        return (
            f" for what follows: what was held before would earn {-less:,.2f} requests more "
            f"{until}, but the change to what is held then would take away {-cost:,.2f} more."
        )
    price = f"changing takes away {cost:,.2f}" if cost >= 0 else f"the change then would take away {-cost:,.2f} more"
    return f": what was held before would earn {less:,.2f} requests less {until}; {price}."
