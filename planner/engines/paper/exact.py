"""``paper``: the proven best plan, without a solver.

Side by side, in turns:

* plans: moves of a tenant's retraining beside the others', until none helps;
* bounds: sweeps of the relaxation of ``statuses``, from what prices of instances (``prices``) imply; the schedules
  that it favours are valued too.

The multipliers that the sweeps end with are the plan's certificate. When few combinations of schedules are left
between bound and plan, they are valued, best bound first; that finds a better plan, or shows that this is the best one.
Otherwise a gap remains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, combinations, cycle, islice, permutations
from threading import Event

import numpy as np

from executor.compiled import working_s
from planner.budget import Budget
from planner.engines.answer import require_model, without_plan
from planner.engines.paper.alone import TenantSubproblem
from planner.engines.paper.plan import decisions_of, schedule_in, value_of, with_decisions, without_room
from planner.engines.paper.states import JointStates
from planner.engines.paper.static import best_beside, improved_schedules, schedules_to_try
from planner.engines.paper.statuses import StatusRelaxation, from_prices
from planner.engines.prices import Descent, InstancePrices, Subgradient
from planner.engines.schedule import (
    Incumbent,
    Schedule,
    WindowFacts,
    above,
    earliest_schedule,
    with_retraining,
)
from planner.feasibility import infeasibility
from planner.plan import MigPlan, Status, StatusCertificate
from planner.problem import Problem, Reconfiguration, Retraining

ENGINE = "exact"

_PRICE_ROUNDS = 300
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

_QUICK, _QUICK_SHARE = 6, 0.2
"""Greedy's schedules that are looked at before anything else, and the share of a limit of seconds that may take."""

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


def solve_exact(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """The best plan of a ``paper`` problem that is found, with its gap: none where it is proven best.

    Args:
        problem: A ``paper`` problem.
        budget: ``time_limit_s`` ends the search with the best plan so far and its bound;
            ``max_nodes`` counts the schedules that are valued one by one. A proof is always looked for:
            ``rel_gap`` is not used.
        initial: A plan of an earlier solve; the search begins with it where it still is one.

    Raises:
        EngineError: The problem is not ``paper``.
    """
    started_s = working_s()
    require_model(problem, Reconfiguration.PAPER, ENGINE)
    reason = infeasibility(problem)
    if reason is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, started_s, infeasibility=reason)
    return _Solve(problem, budget or Budget(), initial, started_s).run()


class _Solve:
    """One solve: the joint states, the relaxation, and the search."""

    def __init__(self, problem: Problem, budget: Budget, initial: MigPlan | None, started_s: float) -> None:
        self._problem, self._budget, self._initial = problem, budget, initial
        self._started_s = started_s
        self._joint = JointStates(WindowFacts.of(problem))

    def run(self) -> MigPlan:
        problem, facts, actors = self._problem, self._joint.facts, self._joint.facts.actors
        known, work = self._known(), self._work(1)
        statuses = self._statuses(known.value) if actors else None
        if statuses is None:  # then the path that is known is the best, and the checker finds it by itself
            certificate = StatusCertificate((), np.zeros((problem.n_steps, 0)))
            found = replace(known, bound=known.value)
        else:
            search = self._search(statuses, known)
            found = search.run(schedules_to_try(self._joint))
            work = (*self._work(search.n_valued), ("sweeps", search.n_sweeps))
            certificate = statuses.certificate()
        if np.isneginf(found.bound):
            return without_room(problem, ENGINE, self._started_s)
        if not np.isfinite(found.value):
            return without_plan(problem, Status.TIMEOUT, ENGINE, self._started_s, found.bound)
        decisions = self._joint.path(found.answer)
        assert decisions is not None
        value = value_of(problem, facts.gains, decisions)
        # Up to here values were summed in another order.
        bound = value if found.bound <= found.value else max(value, found.bound)
        plan = with_decisions(problem, Incumbent(value, decisions), bound, ENGINE, self._started_s, work)
        return replace(plan, certificate=certificate)

    def _work(self, n_valued: int) -> tuple[tuple[str, int], ...]:
        return ("states", self._joint.n_states), ("schedules", n_valued)

    def _search(self, statuses: StatusRelaxation, known: Incumbent[Schedule]) -> ScheduleSearch:
        return ScheduleSearch(
            self._joint,
            statuses,
            self._joint.facts.actors,
            known,
            self._is_over,
            self._budget.max_nodes,
            is_timed=self._budget.time_limit_s is not None,
        )

    def _statuses(self, lower: float) -> StatusRelaxation:
        """The relaxation, from multipliers that prices of instances imply; ``lower`` is the best plan's value."""
        alone = [TenantSubproblem.of(self._joint.facts, m) for m in range(len(self._joint.facts.gains))]
        dual = InstancePrices(self._problem, alone)
        descent = Subgradient(dual, np.zeros(dual.shape), Descent())
        # Without a plan to aim at, half of the first bound will do.
        descent.run(lower if np.isfinite(lower) else 0.0, _PRICE_ROUNDS, self._is_over)
        dual(descent.prices)
        actors, switched = self._joint.facts.actors, [own.switched for own in alone]
        return StatusRelaxation(self._joint, actors, from_prices(self._joint, actors, descent.prices, switched))

    def _known(self) -> Incumbent[Schedule]:
        """The best of the schedules that need no search: the earlier plan's, and the earliest.

        With a limit of seconds also those that greedy makes in some of the time: what follows may need all of it.
        """
        best: Incumbent[Schedule] = Incumbent(-np.inf, ())
        decisions = None if self._initial is None else decisions_of(self._problem, self._initial)
        earlier = None if decisions is None else schedule_in(decisions)
        n_quick = 0 if self._budget.time_limit_s is None else _QUICK
        quick = islice(improved_schedules(self._joint), n_quick)
        for schedule in chain((earlier, earliest_schedule(self._problem)), quick):
            value = -np.inf if schedule is None else self._joint.value(schedule)
            if schedule is not None and value > best.value:
                best = Incumbent(value, schedule)
            if np.isfinite(best.value) and self._is_over(_QUICK_SHARE):
                break
        return best

    def _is_over(self, share: float = 1.0) -> bool:
        """Whether time, or that share of it, is up."""
        limit_s = self._budget.time_limit_s
        return limit_s is not None and working_s() - self._started_s >= share * limit_s


class ScheduleSearch:
    """The search over all tenants' retrainings.

    Args:
        joint: The problem.
        statuses: Its relaxation.
        actors: The tenants that may retrain.
        known: A schedule with its value to begin with.
        is_over: Whether time is up.
        is_timed: Whether there is a time limit. If so, sweeps go on until the turn's other work is done, and use at
            once what it finds. That gets more done, but makes the result depend on the machine.
        most_valued: Schedules to value in the end; ``None`` for the default.

    Attributes:
        n_sweeps: Sweeps of the relaxation.
    """

    def __init__(
        self,
        joint: JointStates,
        statuses: StatusRelaxation,
        actors: tuple[int, ...],
        known: Incumbent[Schedule],
        is_over: Callable[[], bool],
        most_valued: int | None,
        *,
        is_timed: bool,
    ) -> None:
        self._joint, self._statuses, self._actors = joint, statuses, actors
        self._best = known
        self._is_over, self._is_timed = is_over, is_timed
        self._most_valued = _MOST_VALUED if most_valued is None else most_valued
        self.n_sweeps = 0
        self._valued: dict[Schedule, float] = {}
        if np.isfinite(known.value):  # else the value is that of no known schedule
            self._valued[known.answer] = known.value
        self._pairs: deque[tuple[int, ...]] = deque(combinations(actors, 2) if len(actors) > 1 else [actors])
        self._near: list[Schedule] = []
        self._moved_from: set[tuple[Schedule, tuple[int, ...]]] = set()
        self._is_awaited, self._is_left = Event(), Event()
        self._has_stalled = False

    @property
    def n_valued(self) -> int:
        """Schedules that were valued."""
        return len(self._valued)

    def run(self, starts: Iterable[Schedule]) -> Incumbent[Schedule]:
        """The best schedule found, with a bound on all; begins with ``starts``, made while the bound is lowered."""
        begun = self._begin(starts)
        with ThreadPoolExecutor(1) as aside:
            while not self._is_finished(self._best.value):
                if self.n_sweeps:
                    self._look_around()
                self._is_awaited.clear()
                bound, sweeps = self._statuses.bound, aside.submit(self._sweep, self._best.value)
                try:
                    is_at_work = next(begun, False) or self._move()
                except BaseException:
                    self._is_left.set()
                    raise
                self._is_awaited.set()
                sweeps.result()
                least = _STALLED * (bound - self._best.value)
                self._has_stalled = not is_at_work and bound - self._statuses.bound < least
                self._value_favoured()
        # Far more than can be valued cannot be proven either.
        is_hopeless = self._statuses.n_left(self._best.value) > _HOPELESS * self._most_valued
        return self._unfinished() if is_hopeless or self._is_over() else self._enumerated()

    def _sweep(self, value: float) -> None:
        """Sweep with each of the shares; if timed, on until the other work of the turn is done."""
        for n_sweeps, share in enumerate(cycle(_SHARES), 1):
            known = self._best.value if self._is_timed else value
            self._statuses.sweep(share)
            self.n_sweeps += 1
            is_enough = n_sweeps >= len(_SHARES) and (self._is_awaited.is_set() or not self._is_timed)
            if is_enough or self._is_left.is_set() or self._is_finished(known):
                return

    def _unfinished(self) -> Incumbent[Schedule]:
        return replace(self._best, bound=max(self._statuses.bound, self._best.value))

    def _is_finished(self, value: float) -> bool:
        """Whether sweeps are at their end, ``value`` being known."""
        is_settled = self._statuses.bound <= above(value) or self._is_nearly_settled(value)
        is_enough = self._has_stalled or (self.n_sweeps >= _MOST_SWEEPS and not self._is_timed)
        return is_settled or is_enough or self._is_over()

    def _is_nearly_settled(self, value: float) -> bool:
        """Whether few enough combinations may be worth more than ``value``."""
        left = self._statuses.combinations(self._statuses.bound - value)
        return len(list(islice(left, _MOST_TO_ENUMERATE + 1))) <= _MOST_TO_ENUMERATE

    def _begin(self, starts: Iterable[Schedule]) -> Iterator[bool]:
        for schedule in starts:
            self._value(schedule)
            if self._is_over():
                break
        yield True

    def _move(self) -> bool:
        """Value the schedules near the best one; whether there were any."""
        for schedule in self._near:
            if self._is_over():
                break
            self._value(schedule)
        return bool(self._near)

    def _look_around(self) -> None:
        """Choose what the next turn values: two tenants' retrainings anew, beside the others' of the best schedule.

        Each one earlier, later and another way; one anywhere and the other where it then is worth most by per-step
        maxima; and both as the relaxation favours them. Pairs take turns; where all of a pair's is valued, the next
        one has its turn.
        """
        self._near = []
        if not np.isfinite(self._best.value):
            return
        own = {run.tenant: run for run in self._best.answer}
        for _ in range(len(self._pairs)):
            movers = self._pairs[0]
            self._pairs.rotate(-1)
            settled = {m: own.get(m) for m in self._actors if m not in movers}
            favoured = (schedule for _, schedule in self._statuses.combinations(np.inf, settled))
            near = chain(self._moved_alone(movers), self._moved_away(movers), islice(favoured, _NEAR))
            new = dict.fromkeys(schedule for schedule in near if schedule not in self._valued)
            if new:
                self._near = list(new)
                return

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
        for schedule in islice((some for some in favoured if some not in self._valued), _FAVOURED):
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
