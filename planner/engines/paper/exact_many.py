"""``paper``: three and more tenants that retrain: plans from exact moves, bounds from prices of statuses.

Side by side, in turns:

* plans: two tenants' retrainings at once put anew in the best way beside the others'
  (``exact_pair``), until no such move helps;
* bounds: sweeps of the relaxation of ``exact_status``; the schedules that it favours are valued too.

When few combinations of schedules are left between bound and plan, they are valued, best bound first;
that proves the plan best, or finds a better one. Otherwise the gap is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, combinations, cycle, islice
from threading import Event

import numpy as np

from planner.engines.paper.pairs import TOLERANCE, Found, PairSearch
from planner.engines.paper.states import Joint
from planner.engines.paper.statuses import Statuses
from planner.engines.schedule import RetrainingChoices

_SHARES = (0.02, 0.05, 0.1, 0.25)
"""Shares of sweeps, over and over: small ones spread what they move over the steps, large ones move more."""

_MOST_SWEEPS = 160
"""Where no time is given: five seconds or so. With a time limit they go on as long as they lower the bound."""

_STALLED = 1e-3
"""Share of the gap; less progress than that in a turn's sweeps, and they are at their end."""

_FAVOURED = 8
"""Combinations of the least slack that are valued after a turn."""

_MOST_TO_ENUMERATE = 200
"""Combinations that are valued sooner than a few more sweeps are made."""

_HOPELESS = 100
"""So many times the schedules that may be valued are not begun with."""

_MOST_VALUED = 5_000
"""Schedules valued in the end where no budget says otherwise: ten seconds or so with four tenants."""


class ManySearch:
    """The search over all tenants' retrainings.

    Args:
        joint: The problem.
        statuses: Its relaxation.
        actors: The tenants that may retrain.
        pool: For the tables of moves.
        known: A schedule with its value to begin with.
        is_over: Whether time is up.
        is_timed: Whether it ever is. If so, sweeps go on until a turn's other work is done, and heed at once what
            that finds: more is done in the time, but what is found depends on the machine.
        most_valued: Schedules to value in the end; ``None`` for the default.
    """

    def __init__(
        self,
        joint: Joint,
        statuses: Statuses,
        actors: tuple[int, ...],
        pool: Executor,
        known: Found,
        is_over: Callable[[], bool],
        most_valued: int | None,
        *,
        is_timed: bool,
    ) -> None:
        self._joint, self._statuses, self._actors, self._pool = joint, statuses, actors, pool
        self._best = known
        self._is_over, self._is_timed = is_over, is_timed
        self._most_valued = _MOST_VALUED if most_valued is None else most_valued
        self._n_sweeps = 0
        self._valued: dict[RetrainingChoices, float] = {}
        if np.isfinite(known.value):  # else it stands for nothing known, not for these choices
            self._valued[known.choices] = known.value
        self._slack: dict[int, float] = {}
        self._is_awaited, self._is_left = Event(), Event()
        self._has_stalled = False

    @property
    def n_sweeps(self) -> int:
        """Sweeps of the relaxation."""
        return self._n_sweeps

    def run(self, starts: Iterable[RetrainingChoices]) -> Found:
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
            self._n_sweeps += 1
            is_enough = n_sweeps >= len(_SHARES) and (self._is_awaited.is_set() or not self._is_timed)
            if is_enough or self._is_left.is_set() or self._is_finished(known):
                return

    def _unfinished(self) -> Found:
        bound = max(self._statuses.bound, self._best.value)
        return Found(self._best.value, self._best.choices, bound, len(self._valued))

    def _is_finished(self, value: float) -> bool:
        """Whether sweeps are at their end, ``value`` being known."""
        is_settled = self._statuses.bound <= _beyond(value) or self._statuses.n_left <= _MOST_TO_ENUMERATE
        is_enough = self._has_stalled or (self._n_sweeps >= _MOST_SWEEPS and not self._is_timed)
        return is_settled or is_enough or self._is_over()

    def _begin(self, starts: Iterable[RetrainingChoices]) -> Iterator[bool]:
        for choices in starts:
            self._value(choices)
            if self._is_over():
                break
        yield True

    def _moves(self) -> Iterator[bool]:
        """Improve the best schedule by moving two tenants' retrainings at once, one such move a turn."""
        while not np.isfinite(self._best.value):
            yield True
        for movers in self._endlessly():
            found = PairSearch(self._joint, movers, self._pool, self._best).run(self._is_over)
            self._valued[found.choices] = found.value
            if found.value > _beyond(self._best.value):
                self._best = replace(found, bound=np.inf)
            yield True

    def _endlessly(self) -> Iterator[tuple[int, ...]]:
        """Pairs of tenants, those whose retrainings fall shortest first, until none has made a difference."""
        groups = list(combinations(self._actors, 2))
        tried: set[tuple[int, ...]] = set()
        settled = self._best.choices
        while len(tried) < len(groups):
            left = [group for group in groups if group not in tried]
            chosen = max(left, key=lambda group: sum(self._slack.get(m, 0.0) for m in group))
            yield chosen
            if self._best.choices != settled:
                tried, settled = set(), self._best.choices
            tried.add(chosen)

    def _value_favoured(self) -> None:
        """Value the combinations that fall short least."""
        favoured = (choices for _, choices in self._statuses.combinations(np.inf))
        for choices in islice((some for some in favoured if some not in self._valued), _FAVOURED):
            if self._is_over():
                return
            self._value(choices)
        self._slack = self._statuses.slack_of(self._best.choices)

    def _value(self, choices: RetrainingChoices) -> None:
        if choices not in self._valued:
            self._valued[choices] = self._joint.value(choices)
            if self._valued[choices] > _beyond(self._best.value):
                self._best = Found(self._valued[choices], choices, np.inf)

    def _enumerated(self) -> Found:
        """Value what is left between plan and bound, best bound first."""
        bound, left = self._statuses.bound, self._best.value
        for n_valued, (slack, choices) in enumerate(self._statuses.combinations(bound - self._best.value)):
            if bound - slack <= _beyond(self._best.value):
                break
            if n_valued >= self._most_valued or (self._is_over() and n_valued):
                left = bound - slack
                break
            self._value(choices)
        return Found(self._best.value, self._best.choices, max(left, self._best.value), len(self._valued))


def _beyond(value: float) -> float:
    """What differs from a value by more than rounding, above it; anything does from none."""
    return value + TOLERANCE * abs(value) if np.isfinite(value) else value
