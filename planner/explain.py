"""Why a plan holds what it holds in a step: that layout against every other that could stand in its place.

A *stretch* is a range of steps over which what inference holds does not change. Another layout is
put in its place, from the step asked about to the stretch's end, while the rest of the plan stays as
it is: the retrainings, what was held before, what is held after. What that would have earned once
everything serves, and what the changes into it and out of it would have cost, says why it was not chosen.

In ``physical`` two epochs are at least Ω steps apart. Where the step asked about lies closer than that to
the stretch's beginning or end, the layout is exchanged over the whole stretch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from executor.mig import Placement
from planner.counts import BoolArray, IntArray, joint_states, multiset_of, profiles_of, states_left, tenant_multisets
from planner.course import Course, courses
from planner.engines.physical.held_sets import HeldSets
from planner.errors import ProblemError
from planner.gains import gain_tables
from planner.plan import MigPlan
from planner.problem import FloatArray, GainTable, PaperState, PhysicalState, Problem, Reconfiguration, TenantTerms
from planner.verify.holdings import ANYWHERE, lifetimes_of

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
    stretch = _stretch(problem, plan, step)
    found = _candidates(problem, tables, own, stretch, step)
    listed = _listed(found, n_alternatives)
    choices = {row: found.choice(row) for row in (found.roles[HELD], *listed)}
    return Explanation(
        step=step,
        from_step=stretch.from_step,
        to_step=stretch.to_step,
        tenants=tuple(_tenant_step(course, step) for course in own),
        held=choices[found.roles[HELD]],
        alternatives=tuple(choices[row] for row in listed),
        n_compared=len(np.unique(found.columns, axis=0)),
        reason=_reason(problem, plan, stretch, found, choices),
    )


Holding = tuple[tuple[Placement, int], ...]
"""(placement, tenant index) of all that inference holds, sorted; in ``paper`` each sits ``ANYWHERE``."""


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


def _stretch(problem: Problem, plan: MigPlan, step: int) -> _Stretch:
    """From the step, where it may be an epoch (in ``paper`` any may), else from where its stretch begins."""
    state, is_paper = problem.initial, problem.reconfiguration is Reconfiguration.PAPER
    apart = 1 if is_paper else problem.epoch_steps
    first = state.next_epoch_step if isinstance(state, PhysicalState) else 0
    changes = _changes(problem, plan)
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
        begin, before, earliest = first, held, first
    if earliest <= step <= latest:
        return _Stretch(step, end, held, held, after)
    if before is None or begin <= min(step, latest):
        return _Stretch(begin, end, held, before, after)
    why = f"what was in progress when the window opened keeps it as it is until step {first}"
    if step >= first:
        why = f"epochs are at least {apart} steps apart, and the next one is at step {end}"
    return _Stretch(step, end, held, held, after, why)


def _changes(problem: Problem, plan: MigPlan) -> list[tuple[int, Holding]]:
    """(step, what inference holds from there on); begins with the initial state's where there is one."""
    names, inference = problem.tenant_names, [item for item in lifetimes_of(problem, plan) if item.is_inference]
    edges = {edge for item in inference for edge in (item.create_step, item.end_step) if edge < problem.n_steps}
    changes = [] if problem.initial is None else [(0, _opening(problem))]
    for step in sorted({0, *edges}):
        alive = (item for item in inference if item.create_step <= step < item.end_step)
        held = _sorted((item.placement, names.index(item.owner.tenant)) for item in alive)
        if not changes or held != changes[-1][1]:
            changes.append((step, held))
    return changes


def _opening(problem: Problem) -> Holding:
    """What inference holds when the window opens."""
    names, state = problem.tenant_names, problem.initial
    if isinstance(state, PhysicalState):
        return _sorted((item.placement, names.index(item.tenant)) for item in state.held)
    held = state.held if isinstance(state, PaperState) else {}
    return _sorted((_anywhere(problem, profile), names.index(name)) for name in held for profile in held[name])


def _anywhere(problem: Problem, profile_name: str) -> Placement:
    return Placement(problem.gpu.profile(profile_name), ANYWHERE)


def _sorted(entries: Iterable[tuple[Placement, int]]) -> Holding:
    return tuple(sorted(entries, key=lambda entry: (*entry[0].sort_key, entry[1])))


class _Counted:
    """``paper``: the joint states, without placements."""

    def __init__(self, problem: Problem, tables: Sequence[GainTable]) -> None:
        self._problem, self._tables, self._states = problem, tables, joint_states(problem)
        own = [[table.column[k] for k in tenant_multisets(problem, t)] for t, table in self._by_tenant()]
        self.columns = np.stack([np.array(c, dtype=np.int64)[s] for c, s in zip(own, self._states.T, strict=True)], 1)

    def fits(self, busy: Sequence[str], unavailable: int) -> BoolArray:
        """Which fit beside retrainings on these profiles, off these memory slices, ``(n,)``."""
        return states_left(self._problem, self._states, unavailable, multiset_of(self._problem, busy))

    def row(self, holding: Holding) -> int | None:
        """The number of what this holds; ``None`` if it is none of them."""
        found = np.flatnonzero((self._columns_of(holding) == self.columns).all(axis=1))
        return int(found[0]) if len(found) else None

    def kept(self, holding: Holding) -> IntArray:
        """Each tenant's column by what it keeps of this: all, or −1 where it changes, ``(n, n_tenants)``."""
        return np.where(self.columns == self._columns_of(holding), self.columns, -1)

    def holds(self, row: int) -> tuple[tuple[str, ...], ...]:
        """By tenant, the profiles that inference holds."""
        own = zip(self._tables, self.columns[row], strict=True)
        return tuple(profiles_of(self._problem, table.multisets[column]) for table, column in own)

    def _by_tenant(self) -> Iterable[tuple[TenantTerms, GainTable]]:
        return zip(self._problem.tenants, self._tables, strict=True)

    def _columns_of(self, holding: Holding) -> IntArray:
        own = [[place.profile.name for place, tenant in holding if tenant == m] for m in range(len(self._tables))]
        keys = (multiset_of(self._problem, names) for names in own)
        return np.array([table.column.get(key, -1) for table, key in zip(self._tables, keys, strict=True)])


class _Placed:
    """``physical``: the held sets."""

    def __init__(self, problem: Problem, tables: Sequence[GainTable]) -> None:
        self._problem, self._tables, self._sets = problem, tables, HeldSets.of(problem)
        self.columns = self._sets.columns(tables)

    def fits(self, busy: Sequence[str], unavailable: int) -> BoolArray:
        """Which fit beside retrainings at these placements, off these memory slices, ``(n,)``."""
        gpu = self._problem.gpu
        return self._sets.table.fits_beside(gpu, [*map(gpu.placement, busy)], unavailable)[self._sets.layout]

    def row(self, holding: Holding) -> int | None:
        """The number of what this holds; ``None`` if it is none of them."""
        return self._sets.index(frozenset(holding))

    def kept(self, holding: Holding) -> IntArray:
        """Each tenant's column by what it keeps of this, ``(n, n_tenants)``."""
        return self._sets.columns(self._tables, frozenset(holding))

    def holds(self, row: int) -> tuple[tuple[str, ...], ...]:
        """By tenant, the placements that inference holds."""
        held = _sorted(self._sets.entries(row))
        return tuple(tuple(str(place) for place, tenant in held if tenant == m) for m in range(len(self._tables)))


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Layouts in the place of the one held; all figures are goodput in requests.

    Attributes:
        listing: All layouts of the problem.
        rows: The numbers there of those that fit, ``(n,)``.
        columns: Each tenant's column of its gain table once everything serves, ``(n, n_tenants)``.
        roles: Which is held, before and after; the latter two are missing where there is none or it does not fit.
        step: What each earns in the step asked about, ``(n,)``.
        stretch: What each earns over the steps compared, ``(n,)``.
        switching: What changing to it and from it takes away, ``(n,)``.
    """

    listing: _Counted | _Placed
    rows: IntArray
    columns: IntArray
    roles: dict[str, int]
    step: FloatArray
    stretch: FloatArray
    switching: FloatArray

    @property
    def net(self) -> FloatArray:
        return self.stretch - self.switching

    def choice(self, row: int) -> Choice:
        return Choice(
            roles=tuple(role for role, at in self.roles.items() if at == row),
            holds=self.listing.holds(int(self.rows[row])),
            step_goodput=float(self.step[row]),
            stretch_goodput=float(self.stretch[row]),
            switching=float(self.switching[row]),
        )


def _candidates(
    problem: Problem, tables: Sequence[GainTable], own: Sequence[Course], stretch: _Stretch, step: int
) -> _Candidates:
    """What fits beside the retrainings, and others' instances, of every step compared, valued in the plan's courses."""
    listing = (_Counted if problem.reconfiguration is Reconfiguration.PAPER else _Placed)(problem, tables)
    around = {HELD: stretch.held, BEFORE: stretch.before, AFTER: stretch.after}
    numbers = {role: listing.row(holding) for role, holding in around.items() if holding is not None}
    runs = [course.retraining for course in own if course.retraining is not None]
    steps = range(stretch.from_step, stretch.to_step)
    beside = {
        (tuple(run.where for run in runs if run.from_step <= s < run.to_step), problem.unavailable_in(s, s + 1))
        for s in steps
    }
    rows = np.flatnonzero(np.all([listing.fits(*which) for which in beside], axis=0))
    if stretch.fixed_because:
        rows = np.array([numbers[HELD]], dtype=np.int64)
    columns = listing.columns[rows]
    in_step, over_stretch, switching = np.zeros((3, len(rows)))
    for m, (table, course) in enumerate(zip(tables, own, strict=True)):
        earned = course.earned(table.steady, slice(stretch.from_step, stretch.to_step))
        in_step += earned[step - stretch.from_step][columns[:, m]]
        over_stretch += earned.sum(axis=0)[columns[:, m]]
        if stretch.before is not None:
            kept = listing.kept(stretch.before)[rows, m]
            switching += _lost(problem, table, course, stretch.from_step, columns[:, m], kept)
        if stretch.after is not None:
            kept = listing.kept(stretch.after)[rows, m]
            switching += _lost(problem, table, course, stretch.to_step, listing.columns[numbers[AFTER], m], kept)
    position = {int(number): row for row, number in enumerate(rows)}
    roles = {role: position[number] for role, number in numbers.items() if number in position}
    return _Candidates(listing, rows, columns, roles, in_step, over_stretch, switching)


def _lost(
    problem: Problem, table: GainTable, course: Course, step: int, columns: IntArray, kept: IntArray
) -> FloatArray:
    """What a change in ``step`` to what earns as ``columns`` takes away, if so much is kept on the way, ``(n,)``."""
    if problem.reconfiguration is Reconfiguration.PAPER:
        assert table.changed is not None
        settled, changed = (course.earned(gains, slice(step, step + 1))[0] for gains in (table.steady, table.changed))
        return np.asarray(np.where(kept == columns, 0.0, (settled - changed)[columns]), dtype=np.float64)
    so_far = np.cumsum(np.pad(course.earned(table.steady, slice(None)), ((1, 0), (0, 0))), axis=0)
    settled = so_far[min(step + problem.warm_up_steps(course.tenant), problem.n_steps)] - so_far[step]
    return np.asarray(settled[columns] - settled[kept], dtype=np.float64)


def _listed(found: _Candidates, n_alternatives: int) -> list[int]:
    """Rows by descending ``net``: the best of each joint multiset, and what is held before and after."""
    listed: list[int] = []
    net, held = found.net, found.roles[HELD]
    seen = {tuple(found.columns[held])}
    for row in map(int, np.argsort(-net, kind="stable")):
        if len(listed) == n_alternatives:
            break
        key = tuple(found.columns[row])
        if key not in seen:
            seen.add(key)
            listed.append(row)
    named = {row for row in found.roles.values() if row != held}
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


def _reason(problem: Problem, plan: MigPlan, stretch: _Stretch, found: _Candidates, choices: dict[int, Choice]) -> str:
    if stretch.fixed_because:
        return f"The plan has no choice here: {stretch.fixed_because}."
    is_last = stretch.to_step == problem.n_steps
    held, until = choices[found.roles[HELD]], "until the window ends" if is_last else f"until step {stretch.to_step}"
    others = [choice for row, choice in choices.items() if row != found.roles[HELD]]
    slack = TOLERANCE * max(1.0, abs(plan.objective or 0.0))
    best = max(others, key=lambda choice: choice.net, default=None)
    if best is None:
        return "The plan has no choice here: nothing else fits."
    if best.net > held.net + slack:
        better = best.net - held.net
        return f"Another layout would be {better:.2f} requests better {until}: the plan is not the best there is."
    if stretch.before is not None and stretch.before != stretch.held:
        return _why_it_changes(problem, found, choices, until)
    richest = int(found.stretch.argmax())
    more = float(found.stretch[richest]) - held.stretch_goodput
    if more <= slack:
        return f"The plan stays: no layout that fits earns more {until}."
    cost = float(found.switching[richest]) - held.switching
    return (
        f"The plan stays: the layout that earns most {until} would bring {more:.2f} requests more, but changing to it "
        f"{'' if is_last else 'and on from it '}takes away {cost:.2f}."
    )


def _what_is_beside(problem: Problem) -> str:
    return "the retrainings and the memory slices that are not ours" if problem.unavailable else "the retrainings"


def _why_it_changes(problem: Problem, found: _Candidates, choices: dict[int, Choice], until: str) -> str:
    held, row = choices[found.roles[HELD]], found.roles.get(BEFORE)
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
