"""``paper``: the proven best plan, without a solver.

At most two tenants that retrain: every schedule is valued or bounded from shared prefixes and suffixes
(``pairs``). Three and more, side by side, in turns:

* plans: moves that put two tenants' retrainings anew in the best way beside the others', until none helps;
* bounds: sweeps of the relaxation of ``statuses``; the schedules that it favours are valued too.

When few combinations of schedules are left between bound and plan, they are valued, best bound first;
that proves the plan best, or finds a better one. Otherwise a gap remains. Prices of instances (``prices``) are the
plan's certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, combinations, cycle, islice
from threading import Event, Thread

import numpy as np

from executor.compiled import working_s
from planner.budget import Budget
from planner.engines.answer import require_model, without_plan
from planner.engines.effort import N_THREADS
from planner.engines.paper.alone import TenantSubproblem
from planner.engines.paper.greedy import improved_schedules, schedules_to_try
from planner.engines.paper.pairs import PairSearch
from planner.engines.paper.plan import decisions_of, schedule_in, value_of, with_decisions
from planner.engines.paper.states import JointStates
from planner.engines.paper.statuses import StatusRelaxation, from_prices
from planner.engines.prices import Descent, InstancePrices, Subgradient, certificate
from planner.engines.schedule import Incumbent, Schedule, WindowFacts, above, earliest_schedule
from planner.feasibility import RULE_RETRAINING, infeasibility
from planner.plan import Infeasibility, MigPlan, Status
from planner.problem import Problem, Reconfiguration

ENGINE = "exact"

_Work = tuple[tuple[str, int], ...]

_PRICE_ROUNDS = 600
"""Rounds of the prices of instances; they take a tenth of a second for two tenants over 200 steps."""

_FIRST_ROUNDS = 300
"""Rounds before the first sweep of statuses; from then on sweeps lower the bound faster than rounds do."""

_SHARES = (0.02, 0.05, 0.1, 0.25)
"""Shares of successive sweeps, in turn. Small ones spread what they move over the steps, large ones move more."""

_MOST_SWEEPS = 160
"""Sweeps without a time limit, about five seconds. With one they go on as long as they lower the bound."""

_STALLED = 1e-3
"""Share of the gap by which a turn's sweeps must lower the bound to go on."""

_FAVOURED = 8
"""Combinations of the least slack that are valued after a turn."""

_MOST_TO_ENUMERATE = 200
"""So few combinations are valued at once: more sweeps would take longer."""

_HOPELESS = 100
"""No enumeration is begun with more than this many times the schedules that may be valued."""

_QUICK, _QUICK_SHARE = 6, 0.2
"""Greedy's schedules that are looked at before anything else, and the share of a limit of seconds that may take."""

_WATCH_S = 0.01
"""Seconds between looks at the clock while loops run that do not look themselves."""

_MOST_VALUED = 5_000
"""Schedules enumerated where no budget says otherwise, about ten seconds with four tenants."""


def solve_exact(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """The best plan of a ``paper`` problem: proven for at most two tenants that retrain, else with its gap.

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
    with ThreadPoolExecutor(N_THREADS) as pool:
        solve = _Solve(problem, budget or Budget(), initial, pool, started_s)
        with solve.watched():
            return solve.run()


class _Solve:
    """One solve: the joint states, the prices, and the search that fits the number of tenants."""

    def __init__(
        self, problem: Problem, budget: Budget, initial: MigPlan | None, pool: Executor, started_s: float
    ) -> None:
        self._problem, self._budget, self._initial, self._pool = problem, budget, initial, pool
        self._started_s = started_s
        facts = WindowFacts.of(problem)
        self._joint = JointStates(facts)
        self._alone = [TenantSubproblem.of(facts, m) for m in range(len(facts.gains))]
        self._dual = InstancePrices(problem, self._alone)
        self._prices = Subgradient(self._dual, np.zeros(self._dual.shape), Descent())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have long loops leave off when time is up; without a limit nobody looks."""
        is_done = Event()

        def watch() -> None:
            while not is_done.wait(_WATCH_S):
                self._joint.stop[0] |= self._is_over()

        watcher = Thread(target=watch, daemon=True)
        if self._budget.time_limit_s is not None:
            watcher.start()
        try:
            yield
        finally:
            is_done.set()

    def run(self) -> MigPlan:
        problem, facts, actors = self._problem, self._joint.facts, self._joint.facts.actors
        known = self._known()
        if len(actors) <= 2 and facts.is_plain:
            found, work = self._pair(actors, known)
        else:
            found, work = self._many(actors, known)
        if not np.isfinite(found.value):
            return self._no_plan(is_proven=bool(np.isneginf(found.bound)))
        decisions = self._joint.path(found.answer)
        assert decisions is not None
        value = value_of(problem, facts.gains, decisions)
        # Up to here values were summed in another order.
        bound = value if found.bound <= found.value else max(value, found.bound)
        plan = with_decisions(problem, Incumbent(value, decisions), bound, ENGINE, self._started_s, work)
        return replace(plan, certificate=certificate(problem, self._prices.prices))

    def _pair(self, actors: tuple[int, ...], known: Incumbent[Schedule]) -> tuple[Incumbent[Schedule], _Work]:
        prices = self._pool.submit(self._lower_prices, known.value)
        search = PairSearch(self._joint, actors, self._pool, known)
        found = search.run(self._is_over)
        prices.result()
        found = replace(found, bound=min(found.bound, max(found.value, self._prices.bound)))
        return found, (("states", self._joint.n_states), ("schedules", search.n_valued))

    def _many(self, actors: tuple[int, ...], known: Incumbent[Schedule]) -> tuple[Incumbent[Schedule], _Work]:
        self._lower_prices(known.value, _FIRST_ROUNDS)
        if self._is_over():
            return replace(known, bound=max(known.value, self._prices.bound)), ()
        self._dual(self._prices.prices)
        switched = [alone.switched for alone in self._alone]
        multipliers = from_prices(self._joint, actors, self._prices.prices, switched)
        statuses = StatusRelaxation(self._joint, actors, multipliers)
        search = ManySearch(
            self._joint,
            statuses,
            actors,
            self._pool,
            known,
            self._is_over,
            self._budget.max_nodes,
            is_timed=self._budget.time_limit_s is not None,
        )
        found = search.run(self._starts(known.value))
        found = replace(found, bound=min(found.bound, max(found.value, self._prices.bound)))
        work = (("states", self._joint.n_states), ("schedules", search.n_valued), ("sweeps", search.n_sweeps))
        return found, work

    def _starts(self, lower: float) -> Iterator[Schedule]:
        """Schedules that look good; then the rest of the prices."""
        yield from schedules_to_try(self._joint)
        self._lower_prices(lower, _PRICE_ROUNDS - _FIRST_ROUNDS)

    def _lower_prices(self, lower: float, n_rounds: int = _PRICE_ROUNDS) -> None:
        # Without a plan to aim at, half of the first bound will do.
        aim = lower if np.isfinite(lower) else 0.0
        self._prices.run(aim, n_rounds, self._is_over)

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

    def _no_plan(self, *, is_proven: bool) -> MigPlan:
        if not is_proven:
            return without_plan(self._problem, Status.TIMEOUT, ENGINE, self._started_s, self._prices.bound)
        text = "no schedule of the required retrainings fits beside every tenant's min_profile"
        reason = Infeasibility(None, RULE_RETRAINING, text)
        return without_plan(self._problem, Status.INFEASIBLE, ENGINE, self._started_s, infeasibility=reason)


class ManySearch:
    """The search over all tenants' retrainings.

    Args:
        joint: The problem.
        statuses: Its relaxation.
        actors: The tenants that may retrain.
        pool: For the tables of moves.
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
        pool: Executor,
        known: Incumbent[Schedule],
        is_over: Callable[[], bool],
        most_valued: int | None,
        *,
        is_timed: bool,
    ) -> None:
        self._joint, self._statuses, self._actors, self._pool = joint, statuses, actors, pool
        self._best = known
        self._is_over, self._is_timed = is_over, is_timed
        self._most_valued = _MOST_VALUED if most_valued is None else most_valued
        self.n_sweeps = 0
        self._valued: dict[Schedule, float] = {}
        if np.isfinite(known.value):  # else the value is that of no known schedule
            self._valued[known.answer] = known.value
        self._slack: dict[int, float] = {}
        self._is_awaited, self._is_left = Event(), Event()
        self._has_stalled = False

    @property
    def n_valued(self) -> int:
        """Schedules that were valued."""
        return len(self._valued)

    def run(self, starts: Iterable[Schedule]) -> Incumbent[Schedule]:
        """The best schedule found, with a bound on all; begins with ``starts``, made while the bound is lowered."""
        work = chain(self._begin(starts), self._moves())
        with ThreadPoolExecutor(1) as aside:
            while not self._is_finished(self._best.value):
                self._is_awaited.clear()
                bound, sweeps = self._statuses.bound, aside.submit(self._sweep, self._best.value)
                try:
                    is_at_work = next(work, False)
                except BaseException:
                    self._is_left.set()
                    raise
                self._is_awaited.set()
                sweeps.result()
                least = _STALLED * (bound - self._best.value)
                self._has_stalled = not is_at_work and bound - self._statuses.bound < least
                self._value_favoured()
        # Far more than can be valued cannot be proven either.
        is_hopeless = self._statuses.n_left > _HOPELESS * self._most_valued
        return self._unfinished() if is_hopeless or self._is_over() else self._enumerated()

    def _sweep(self, value: float) -> None:
        """Sweep with each of the shares; if timed, on until the other work of the turn is done."""
        for n_sweeps, share in enumerate(cycle(_SHARES), 1):
            known = self._best.value if self._is_timed else value
            self._statuses.sweep(share, known)
            self.n_sweeps += 1
            is_enough = n_sweeps >= len(_SHARES) and (self._is_awaited.is_set() or not self._is_timed)
            if is_enough or self._is_left.is_set() or self._is_finished(known):
                return

    def _unfinished(self) -> Incumbent[Schedule]:
        return replace(self._best, bound=max(self._statuses.bound, self._best.value))

    def _is_finished(self, value: float) -> bool:
        """Whether sweeps are at their end, ``value`` being known."""
        is_settled = self._statuses.bound <= above(value) or self._statuses.n_left <= _MOST_TO_ENUMERATE
        is_enough = self._has_stalled or (self.n_sweeps >= _MOST_SWEEPS and not self._is_timed)
        return is_settled or is_enough or self._is_over()

    def _begin(self, starts: Iterable[Schedule]) -> Iterator[bool]:
        for schedule in starts:
            self._value(schedule)
            if self._is_over():
                break
        yield True

    def _moves(self) -> Iterator[bool]:
        """Improve the best schedule by moving two tenants' retrainings at once, one such move a turn.

        Tables of pairs know levels that change where retrainings end; otherwise nothing is moved.
        """
        if not self._joint.facts.is_plain:
            return
        while not np.isfinite(self._best.value):
            yield True
        for movers in self._endlessly():
            found = PairSearch(self._joint, movers, self._pool, self._best).run(self._is_over)
            self._valued[found.answer] = found.value
            if found.value > above(self._best.value):
                self._best = replace(found, bound=np.inf)
            yield True

    def _endlessly(self) -> Iterator[tuple[int, ...]]:
        """Pairs of tenants, those whose retrainings fall shortest first, until none has made a difference."""
        groups = list(combinations(self._actors, 2))
        tried: set[tuple[int, ...]] = set()
        settled = self._best.answer
        while len(tried) < len(groups):
            left = [group for group in groups if group not in tried]
            chosen = max(left, key=lambda group: sum(self._slack.get(m, 0.0) for m in group))
            yield chosen
            if self._best.answer != settled:
                tried, settled = set(), self._best.answer
            tried.add(chosen)

    def _value_favoured(self) -> None:
        """Value the combinations that fall short least."""
        favoured = (schedule for _, schedule in self._statuses.combinations(np.inf))
        for schedule in islice((some for some in favoured if some not in self._valued), _FAVOURED):
            if self._is_over():
                return
            self._value(schedule)
        self._slack = self._statuses.slack_of(self._best.answer)

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
