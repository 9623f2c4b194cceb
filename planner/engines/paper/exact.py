"""``paper``: the proven best plan, without a solver.

Greedy's schedules come first, and prices of instances (``prices``), which imply a relaxation's first multipliers. Then
in turns:

* bounds: sweeps of the relaxation of ``statuses``;
* plans: moves of two tenants' retrainings beside the others', and schedules that the relaxation favours.

The multipliers that the sweeps end with are the plan's certificate. When few combinations of schedules are left
between bound and plan, they are valued, best bound first; that finds a better plan, or shows that this is the best one.
Otherwise a gap remains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations, islice, permutations

import numpy as np

from executor.compiled import working_s
from planner.budget import Budget
from planner.engines.answer import Engine
from planner.engines.paper.plan import decisions_of, schedule_in, value_of, with_decisions, without_room
from planner.engines.paper.states import JointStates
from planner.engines.paper.static import best_beside, schedules_to_try
from planner.engines.paper.statuses import StatusRelaxation, from_prices
from planner.engines.prices import InstancePrices, Subgradient
from planner.engines.schedule import Incumbent, Schedule, WindowFacts, above, earliest_schedule, with_retraining
from planner.plan import MigPlan, Status, without_plan
from planner.problem import Reconfiguration, Retraining

ENGINE = "exact"

_PRICE_ROUNDS = 200
"""Rounds of the prices before the first sweep; from then on sweeps lower the bound faster than rounds do."""

_SHARES = (0.02, 0.1, 0.5)
"""Shares of successive sweeps, in turn. Small ones spread what they move over the steps, large ones move more."""

_MOST_SWEEPS = 160
"""Sweeps without a time limit, about five seconds. With one they go on as long as they lower the bound."""

_STALLED = 1e-3
"""Share of the gap by which a turn's sweeps must lower the bound to go on."""

_FAVOURED = 8
"""Combinations of the least slack that are valued after a turn."""

_MOST_TO_ENUMERATE = 200
"""So few combinations are valued at once, as a check of the plan does, too: more sweeps would take longer."""

_HOPELESS = 100
"""No enumeration is begun with more than this many times the schedules that may be valued."""

_START_SHARE = 0.2
"""Share of a limit of seconds that greedy's schedules may take: what follows may need all of the rest."""

_NEAR = 64
"""Combinations of two tenants' retrainings of the least slack that are valued in a turn."""

_EASY = 10
"""Sweeps with which two tenants' retrainings are most often proven best."""

_SPREAD = 8
"""Starts of each way, spread over the window, to which one of the two is moved."""

_SHIFTS = tuple(sign * 2**power for power in range(4, -1, -1) for sign in (-1, 1))
"""By how many steps a retraining is moved, the widest first."""

_MOST_VALUED = 5_000
"""Schedules enumerated where no budget says otherwise, about ten seconds with four tenants."""


def _exact(facts: WindowFacts, budget: Budget, initial: MigPlan | None, started_s: float) -> MigPlan:
    """The best plan of a ``paper`` problem that is found, with its gap: none where it is proven best.

    Args:
        facts: The problem.
        budget: ``time_limit_s`` ends the search with the best plan found and its bound;
            ``max_nodes`` counts the schedules that are valued one by one. A proof is always looked for:
            ``rel_gap`` is not used.
        initial: A plan of an earlier solve; the search begins with it where it still is one.
        started_s: When the solve began.
    """
    problem, limit_s = facts.problem, budget.time_limit_s

    def is_over(share: float = 1.0) -> bool:
        return limit_s is not None and working_s() - started_s >= share * limit_s

    joint, valued = JointStates(facts), dict[Schedule, float]()
    for schedule in _starts(joint, initial):
        if schedule not in valued:
            valued[schedule] = joint.value(schedule)
        if max(valued.values()) > -np.inf and is_over(_START_SHARE):
            break
    statuses = _relaxation(joint, max(valued.values(), default=-np.inf), is_over)
    most_sweeps = _MOST_SWEEPS if limit_s is None else np.inf
    search = ScheduleSearch(joint, statuses, valued, is_over, most_sweeps, budget.max_nodes)
    found = search.run()
    if np.isneginf(found.bound):
        return without_room(problem, ENGINE, started_s)
    if np.isneginf(found.value):
        return without_plan(problem, Status.TIMEOUT, ENGINE, started_s, found.bound)
    decisions = joint.fullest_path(found.answer)
    assert decisions is not None
    value = value_of(joint.facts, decisions)
    # Up to here values were summed in another order.
    bound = value if found.bound <= found.value else max(value, found.bound)
    work = ("states", joint.n_states), ("schedules", len(valued)), ("sweeps", search.n_sweeps)
    plan = with_decisions(problem, Incumbent(value, decisions), bound, ENGINE, started_s, work)
    return replace(plan, certificate=statuses.certificate())


solve_exact = Engine(Reconfiguration.PAPER, ENGINE, _exact)
"""The best plan of a ``paper`` problem."""


def _starts(joint: JointStates, initial: MigPlan | None) -> Iterator[Schedule]:
    """The earlier plan's schedule, the earliest one, and those of greedy, each made when it is asked for."""
    decisions = None if initial is None else decisions_of(joint.problem, initial)
    known = (None if decisions is None else schedule_in(decisions), earliest_schedule(joint.problem))
    yield from (schedule for schedule in known if schedule is not None)
    yield from schedules_to_try(joint)


def _relaxation(joint: JointStates, lower: float, is_over: Callable[[], bool]) -> StatusRelaxation:
    """The relaxation, from multipliers that prices of instances imply; ``lower`` is the best plan's value."""
    dual = InstancePrices(joint.facts)
    descent = Subgradient(dual, np.zeros(dual.shape))
    # Without a plan to aim at, half of the first bound will do.
    descent.run(lower if np.isfinite(lower) else 0.0, _PRICE_ROUNDS, is_over)
    dual(descent.prices)
    return StatusRelaxation(joint, from_prices(joint, descent.prices, dual.switched))


class ScheduleSearch:
    """The search over all tenants' retrainings.

    Args:
        joint: The problem.
        statuses: Its relaxation.
        valued: Schedules with their values to begin with; all others that are valued are added.
        is_over: Whether time is up.
        most_sweeps: Sweeps at most; ∞ to sweep as long as that lowers the bound.
        most_valued: Schedules to value in the end; ``None`` for the default.

    Attributes:
        n_sweeps: Sweeps of the relaxation.
    """

    def __init__(
        self,
        joint: JointStates,
        statuses: StatusRelaxation,
        valued: dict[Schedule, float],
        is_over: Callable[[], bool],
        most_sweeps: float = np.inf,
        most_valued: int | None = None,
    ) -> None:
        self._joint, self._statuses, self._actors = joint, statuses, joint.facts.actors
        self._valued, self._is_over = valued, is_over
        known = (Incumbent(value, schedule) for schedule, value in valued.items())
        self._best: Incumbent[Schedule] = max(known, key=lambda one: one.value, default=Incumbent(-np.inf, ()))
        self._most_sweeps = most_sweeps
        self._most_valued = _MOST_VALUED if most_valued is None else most_valued
        self.n_sweeps = 0
        self._pairs: deque[tuple[int, ...]] = deque(
            combinations(self._actors, 2) if len(self._actors) > 1 else [self._actors]
        )
        self._moved_from: set[tuple[Schedule, tuple[int, ...]]] = set()

    def run(self) -> Incumbent[Schedule]:
        """The best schedule found, with a bound on all."""
        has_stalled = False
        while not (has_stalled or self._is_finished()):
            bound, is_at_work = self._statuses.bound, not self.n_sweeps or self._look_around()
            for share in _SHARES:
                self._statuses.sweep(share)
                self.n_sweeps += 1
                if self._is_finished():
                    break
            least = _STALLED * (bound - self._best.value)
            has_stalled = not is_at_work and bound - self._statuses.bound < least
            self._value_favoured()
        # Far more than can be valued cannot be proven either.
        if self._statuses.n_left(self._best.value) > _HOPELESS * self._most_valued or self._is_over():
            return replace(self._best, bound=max(self._statuses.bound, self._best.value))
        return self._enumerated()

    def _is_finished(self) -> bool:
        """Whether sweeps are at their end."""
        bound, value = self._statuses.bound, self._best.value
        if bound <= above(value) or self.n_sweeps >= self._most_sweeps or self._is_over():
            return True
        left = islice(self._statuses.combinations(bound - value), _MOST_TO_ENUMERATE + 1)
        return len(list(left)) <= _MOST_TO_ENUMERATE

    def _look_around(self) -> bool:
        """Value two tenants' retrainings anew, beside the others' of the best schedule; whether there were any.

        Each one earlier, later and another way; one anywhere and the other where it then is worth most by per-step
        maxima; and both as the relaxation favours them. Pairs take turns; where all of a pair's is valued, the next
        one has its turn.
        """
        own = {run.tenant: run for run in self._best.answer}
        for _ in range(len(self._pairs)) if np.isfinite(self._best.value) else ():
            movers = self._pairs[0]
            self._pairs.rotate(-1)
            settled = {m: own.get(m) for m in self._actors if m not in movers}
            favoured = (schedule for _, schedule in self._statuses.combinations(np.inf, settled))
            near = chain(self._moved_alone(movers), self._moved_away(movers), islice(favoured, _NEAR))
            if new := dict.fromkeys(schedule for schedule in near if schedule not in self._valued):
                self._value_all(new)
                return True
        return False

    def _beside(self, *movers: int) -> Schedule:
        """The best schedule without these tenants' retrainings."""
        return tuple(run for run in self._best.answer if run.tenant not in movers)

    def _moved_alone(self, movers: tuple[int, ...]) -> Iterator[Schedule]:
        own = {run.tenant: run for run in self._best.answer}
        for m in movers:
            yield from (with_retraining(self._beside(m), other) for other in self._moved(m, own.get(m)))

    def _moved_away(self, movers: tuple[int, ...]) -> Iterator[Schedule]:
        """Once for each best schedule and pair, after some sweeps: it takes longer than to value what is found."""
        if self.n_sweeps < _EASY or (self._best.answer, movers) in self._moved_from:
            return
        self._moved_from.add((self._best.answer, movers))
        for m, partner in permutations(movers, 2):
            for way in self._joint.facts.ways(m):
                n_starts = self._joint.problem.n_steps - way.n_steps + 1
                for start in range(0, n_starts, max(1, n_starts // _SPREAD)):
                    others = with_retraining(self._beside(m, partner), way.at(start))
                    own = best_beside(self._joint, others, partner)
                    if own is not None or None in self._joint.facts.choices[partner]:
                        yield with_retraining(others, own)

    def _moved(self, m: int, own: Retraining | None) -> Iterator[Retraining | None]:
        """None where that is allowed, ``own`` earlier and later, and every way that begins or ends as it does."""
        if None in self._joint.facts.choices[m]:
            yield None
        n_steps = self._joint.problem.n_steps
        for way in self._joint.facts.ways(m):
            starts = [0, n_steps - way.n_steps] if own is None else [own.start_step, own.end_step - way.n_steps]
            if own is not None and way.at(own.start_step) == own:
                starts = [own.start_step + shift for shift in _SHIFTS]
            yield from (way.at(start) for start in starts if 0 <= start <= n_steps - way.n_steps)

    def _value_favoured(self) -> None:
        """Value the combinations that fall short least."""
        favoured = (schedule for _, schedule in self._statuses.combinations(np.inf))
        self._value_all(islice((some for some in favoured if some not in self._valued), _FAVOURED))

    def _value_all(self, schedules: Iterable[Schedule]) -> None:
        """Value these until time is up."""
        for schedule in schedules:
            if self._is_over():
                return
            self._value(schedule)

    def _value(self, schedule: Schedule) -> None:
        if schedule not in self._valued:
            self._valued[schedule] = self._joint.value(schedule)
            if self._valued[schedule] > above(self._best.value):
                self._best = Incumbent(self._valued[schedule], schedule)

    def _enumerated(self) -> Incumbent[Schedule]:
        """Value what is left between plan and bound, best bound first."""
        bound, left = self._statuses.bound, self._best.value
        for n_valued, (slack, schedule) in enumerate(self._statuses.combinations(bound - self._best.value)):
            if bound - slack <= above(self._best.value):
                break
            if n_valued >= self._most_valued or (self._is_over() and n_valued):
                left = bound - slack
                break
            self._value(schedule)
        return replace(self._best, bound=max(left, self._best.value))
