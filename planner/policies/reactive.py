"""``reactive``: follows the last seconds' arrivals, as an autoscaler does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.arrays import Bools, Floats
from planner.engines.answer import relaxed_bound
from planner.engines.physical.held_sets import Entries, HeldSets
from planner.engines.physical.plan import held_in, retrainings_in, with_held
from planner.engines.schedule import PlacedSchedule, WindowFacts
from planner.gains import gain_tables
from planner.plan import MigPlan
from planner.policies.paper.realised import busy_in
from planner.policies.policy import Knows, Policy, Window
from planner.problem import Problem, with_arrivals, without_floors
from planner.solve import solve


@dataclass(frozen=True)
class Reactive(Policy):
    """Changes the layout when that of the last seconds' load is better by a threshold, as soon as it may.

    Source: threshold autoscaling, the common practice for serving. Knows: the arrivals of the steps before each
    decision, and nothing of those to come. At a window's start it takes the best fixed layout, and the best
    retrainings beside it, for a load that goes on as in the last seconds (engine ``static``, else ``greedy``);
    retrainings stay as they are then.
    Adaptations: it compares layouts by goodput, not by utilisation, so that it weighs accuracy like the others.
    Parameters: fixed on the first halves of the traces (docs/policies.md).

    Attributes:
        n_seen: Steps over which the load is averaged.
        threshold: By what share another layout has to be better to be changed to.
    """

    name: str = "reactive"
    knows: Knows = Knows.PAST
    n_seen: int = 80
    threshold: float = 0.01

    def plan(self, window: Window) -> MigPlan:
        """What it does in the window, decision after decision."""
        started_s = working_s()
        problem = without_floors(window.problem)
        steady = _at_load(problem, window.past_rps[-self.n_seen :].mean(axis=0))
        first = solve(steady, "static", window.budget)
        if not first.status.has_plan:  # no fixed layout leaves room for the retrainings
            first = solve(steady, "greedy", window.budget)
        if not first.status.has_plan:
            return first
        facts = WindowFacts.of(problem)
        placed = retrainings_in(problem, first)
        held = [*held_in(problem, first)]
        arrivals = np.concatenate([window.past_rps, np.array([t.arrivals_rps for t in problem.tenants]).T])
        n_past, sets = len(window.past_rps), HeldSets.of(problem)
        has_changed = facts.is_free or len(held) > 1
        step = held[-1][0] + facts.epoch_steps if has_changed else facts.first_step
        while step < problem.n_steps:
            seen = arrivals[max(0, n_past + step - self.n_seen) : n_past + step].mean(axis=0)
            better = self._better(facts, sets, (*facts.running, *placed), held[-1][1], step, seen)
            if better is not None:
                held.append((step, better))
            step += facts.epoch_steps if better is not None else 1
        bound = relaxed_bound(facts)
        return with_held(facts, held, placed, bound, self.name, started_s)

    def _better(
        self,
        facts: WindowFacts,
        sets: HeldSets,
        runs: PlacedSchedule[Placement],
        held: Entries,
        step: int,
        rates_rps: Floats,
    ) -> Entries | None:
        """The best held set at this load from ``step`` on, if it is enough better than the one that is held."""
        tables = gain_tables(_at_load(facts.problem, rates_rps))
        columns, value = sets.columns(tables), np.zeros(len(sets))
        for m, table in enumerate(tables):
            level = max((run.level for run, _ in runs if run.tenant == m and run.end_step <= step), default=0)
            value += table.steady[level, 0][columns[:, m]]
        number = sets.index(held)
        now = -np.inf if number is None else float(value[number])
        value[~_fits(facts, sets, runs, step)] = -np.inf
        best = int(value.argmax())
        return sets.entries(best) if value[best] > now + self.threshold * abs(now) else None


def _at_load(problem: Problem, rates_rps: Floats) -> Problem:
    """The problem if these rates came in every step."""
    return with_arrivals(problem, np.tile(rates_rps, (problem.n_steps, 1)))


def _fits(facts: WindowFacts, sets: HeldSets, runs: PlacedSchedule[Placement], step: int) -> Bools:
    """Whether each held set fits beside retrainings and others' instances from ``step`` to the end, ``(n,)``."""
    mask, table = facts.problem.unavailable_in(step, facts.n_steps), sets.table
    beside = busy_in(runs, step, facts.n_steps)
    fits = [table.memory & mask == 0, *(table.fits_beside(facts.problem.gpu, tuple(busy)) for busy in beside)]
    return np.asarray(np.all(fits, axis=0)[sets.layout])
