"""``paper``: three and more tenants that retrain: plans from exact moves, bounds from prices of statuses.

Side by side, in turns:

* plans: two tenants' retrainings at once put anew in the best way beside the others'
  (``exact_pair``), until no such move helps;
* bounds: a round of the relaxation of ``exact_status`` after the other; the schedules that it favours
  are valued too.

When few combinations of schedules are left between bound and plan, they are valued, best bound first;
that proves the plan best, or finds a better one. Otherwise the gap is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, islice

import numpy as np

from planner.engines.exact_kernel import Floats
from planner.engines.exact_pair import TOLERANCE, Found, PairSearch
from planner.engines.exact_status import Statuses
from planner.engines.joint import Joint
from planner.engines.prices import Descent, Lowering
from planner.engines.schedule import RetrainingChoices

DESCENT = Descent(step=0.3, momentum=0.7, patience=4, shrink=0.6, least=-np.inf)
"""Far fewer rounds are affordable than for prices of instances, and they begin near the end."""

_ROUNDS_A_TURN = 24
"""Rounds of the relaxation in a turn, shared by the tenants: one takes longer the more there are."""

_MOST_ROUNDS = 240
_FAVOURED = 8
"""Combinations of the least slack that are valued after a turn."""

_MOST_TO_ENUMERATE = 30_000
"""Combinations up to which valuing all of them is tried before the rounds are at their end."""

_HOPELESS = 100
"""So many times the schedules that may be valued are not begun with."""

_MOST_VALUED = 20_000
"""Schedules valued in the end where no budget says otherwise: half a minute at most."""


class ManySearch:
    """The search over all tenants' retrainings.

    Args:
        joint: The problem.
        actors: The tenants that may retrain.
        pool: For the tables of moves.
        known: A schedule with its value to begin with.
        multipliers: To begin with, as ``Statuses.from_prices`` makes them.
        is_over: Whether time is up.
        most_valued: Schedules to value in the end; ``None`` for the default.
    """

    def __init__(
        self,
        joint: Joint,
        statuses: Statuses,
        actors: tuple[int, ...],
        pool: Executor,
        known: Found,
        multipliers: Floats,
        is_over: Callable[[], bool],
        most_valued: int | None,
    ) -> None:
        self._joint, self._statuses, self._actors, self._pool = joint, statuses, actors, pool
        self._best = known
        self._is_over = is_over
        self._most_valued = _MOST_VALUED if most_valued is None else most_valued
        self._lowering = Lowering(statuses, multipliers, DESCENT)
        self._valued: dict[RetrainingChoices, float] = {known.choices: known.value}
        self._slack: dict[int, float] = {}
        self._n_left = _MOST_TO_ENUMERATE + 1

    @property
    def n_rounds(self) -> int:
        """Rounds of the relaxation."""
        return self._lowering.n_rounds

    def run(self) -> Found:
        """The best schedule found, with a bound on all."""
        moves, n_rounds = self._moves(), max(1, _ROUNDS_A_TURN // len(self._actors))
        with ThreadPoolExecutor(1) as aside:
            while not self._is_finished():
                turn = aside.submit(self._lowering.run, self._best.value, n_rounds, self._is_over)
                next(moves, None)
                for choices in dict.fromkeys(turn.result()):
                    self._value(choices)
                if not self._is_over():
                    self._value_favoured()
        # Far more than can be valued cannot be proven either.
        is_hopeless = self._n_left > _HOPELESS * self._most_valued
        return self._unfinished() if is_hopeless or self._is_over() else self._enumerated()

    def _unfinished(self) -> Found:
        bound = max(self._lowering.bound, self._best.value)
        return Found(self._best.value, self._best.choices, bound, len(self._valued))

    def _is_finished(self) -> bool:
        is_settled = self._lowering.bound <= self._to_beat or self._n_left <= _MOST_TO_ENUMERATE
        return is_settled or self._lowering.n_rounds >= _MOST_ROUNDS or self._is_over()

    def _moves(self) -> Iterator[None]:
        """Improve the best schedule by moving two tenants' retrainings at once, one such move a turn."""
        for movers in self._endlessly():
            found = PairSearch(self._joint, movers, self._pool, self._best).run(self._is_over)
            self._valued[found.choices] = found.value
            if found.value > self._to_beat:
                self._best = replace(found, bound=np.inf)
            yield

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
        """Value the combinations that fall short least, and leave out schedules that fall too short."""
        bound, _ = self._statuses(self._lowering.multipliers)
        for _, choices in islice(self._statuses.combinations(bound - self._best.value), _FAVOURED):
            self._value(choices)
        self._slack = self._statuses.slack_of(self._best.choices)
        self._n_left = self._statuses.narrow(bound - self._best.value)

    def _value(self, choices: RetrainingChoices) -> None:
        if choices not in self._valued:
            self._valued[choices] = self._joint.value(choices)
            if self._valued[choices] > self._to_beat:
                self._best = Found(self._valued[choices], choices, np.inf)

    def _enumerated(self) -> Found:
        """Value what is left between plan and bound, best bound first."""
        if not self._n_left:
            return Found(self._best.value, self._best.choices, self._best.value, len(self._valued))
        bound, _ = self._statuses(self._lowering.multipliers)
        left = self._best.value
        combinations_left = self._statuses.combinations(bound - self._best.value)
        for n_valued, (slack, choices) in enumerate(combinations_left):
            left = bound - slack
            if left <= self._to_beat:
                left = self._best.value
                break
            if n_valued >= self._most_valued or (self._is_over() and n_valued):
                break
            self._value(choices)
        else:
            left = self._best.value
        return Found(self._best.value, self._best.choices, max(left, self._best.value), len(self._valued))

    @property
    def _to_beat(self) -> float:
        return self._best.value + TOLERANCE * abs(self._best.value)
