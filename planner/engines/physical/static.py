"""``physical``: engines ``static``, the best plan with one held set, and ``greedy``, the best held sets around it.

``static``: without an initial state a held set serves from step 0. With one, the initial set is held until
``next_epoch_step``; there is one epoch, or none. A retraining occupies one placement that is free beside the initial
set before that step, and beside the other from there on. Where what is held must change for the retrainings, or for
others' instances, there are plans but none of this kind: the status is ``timeout`` then, with a bound and no plan.

``greedy``: when, where and how each retraining runs is taken from ``static``. What inference holds around them is the
exact best, with every epoch and pre-initialisation, so the plan is never worse than that of ``static``. Where
``static`` has no plan, one placement is set aside, and the required retrainings run in it back to back as soon as the
held set may change, or from a step on in which slices become ours or others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Floats, Int64s
from planner.budget import Budget
from planner.engines.answer import Engine, relaxed_bound
from planner.engines.physical.fullest import fullest
from planner.engines.physical.held_sets import HeldSets
from planner.engines.physical.nodes import nodes_of
from planner.engines.physical.path import HeldSetPath
from planner.engines.physical.plan import held_along, with_held
from planner.engines.schedule import Incumbent, PlacedSchedule, WindowFacts, best_of
from planner.engines.static import StaticSearch
from planner.plan import MigPlan, Status, without_plan
from planner.problem import Problem, Reconfiguration, Retraining


def _static(
    facts: WindowFacts, budget: Budget, initial: MigPlan | None, started_s: float, among: Iterable[int] | None = None
) -> MigPlan:
    del budget, initial
    search, bound = search_of(facts), relaxed_bound(facts)
    found = search.run(among=among)
    if found is None:
        return without_plan(facts.problem, Status.TIMEOUT, "static", started_s, bound)
    chosen, opening = HeldSets.of(facts.problem).entries(found.answer[0]), facts.initial_held
    held = [(0, chosen if opening is None else opening)]
    if facts.first_step < facts.n_steps and chosen != held[0][1]:
        held.append((facts.first_step, chosen))
    return with_held(facts, held, found.answer[1], bound, "static", started_s, (*search.work.items(),))


def _greedy(facts: WindowFacts, budget: Budget, initial: MigPlan | None, started_s: float) -> MigPlan:
    del budget, initial
    nodes, bound = nodes_of(facts), relaxed_bound(facts)
    paths = HeldSetPath(facts, nodes)
    chosen = static_schedule(facts) or greedy_schedule(facts, paths)
    if chosen is None:
        return without_plan(facts.problem, Status.TIMEOUT, "greedy", started_s, bound)
    held = fullest(facts, held_along(paths.path(chosen.answer), nodes), chosen.answer)
    return with_held(facts, held, chosen.answer, bound, "greedy", started_s)


solve_static = Engine(Reconfiguration.PHYSICAL, "static", _static)
"""The best static plan."""

solve_greedy = Engine(Reconfiguration.PHYSICAL, "greedy", _greedy)
"""A plan no worse than that of ``static``."""


def solve_static_among(problem: Problem, numbers: Iterable[int]) -> MigPlan:
    """The best static plan with one of these held sets, numbered as by ``HeldSets``.

    Where the held set may not change in the window, each of them stands for the initial one.
    """
    return replace(solve_static, find=partial(_static, among=numbers))(problem)


def best_held_set(problems: Sequence[Problem]) -> int | None:
    """The held set, by its number, that is worth most to these ``physical`` problems together; ``None`` if none fits.

    The problems are of the same tenants on the same GPU; the value of each is that of its best retrainings beside
    the set. As exact as ``StaticSearch``: sets are valued in the order of what they would be worth if no
    retraining hindered another.
    """
    searches = [search_of(WindowFacts.of(problem)) for problem in problems]
    total = np.sum([search.bounds for search in searches], axis=0)
    best, best_value = None, -np.inf
    for number in np.argsort(-total, kind="stable").tolist():
        if total[number] <= best_value:
            break
        found = [search.run(among=[number]) for search in searches]
        value = sum(-np.inf if one is None else one.value for one in found)
        if value > best_value:
            best, best_value = number, value
    return best


def search_of(facts: WindowFacts) -> StaticSearch[Placement]:
    """The search over held sets by their number, each held from the first step that allows it."""
    problem, initial, first = facts.problem, facts.initial_held, facts.first_step
    held_sets, opening = HeldSets.of(problem), [placement for placement, _ in initial or ()]
    columns = held_sets.columns(facts.gains)
    kept = columns if initial is None else held_sets.columns(facts.gains, facts.kept_by_tenant)
    if first == problem.n_steps:  # then each of them stands for the initial one
        columns = kept = np.zeros_like(columns)
    pairs = [np.unique(kept[:, m] << 32 | columns[:, m], return_inverse=True) for m in range(columns.shape[1])]

    def fits(step: int, places: tuple[Placement, ...]) -> Bools:
        mask = problem.unavailable_in(step, step + 1)
        busy = [*places, *(place for run, place in facts.running if step < run.end_step)]
        if step >= first:
            return held_sets.table.fits_beside(problem.gpu, busy, mask)
        is_ours = all(not place.memory_mask & mask for place in (*opening, *busy))
        return np.full(len(held_sets.table.layouts), is_ours and problem.gpu.fits([*opening, *busy]))

    return StaticSearch(
        facts=facts,
        gains=tuple(_gains(facts, m, codes >> 32, codes & 0xFFFFFFFF) for m, (codes, _) in enumerate(pairs)),
        holdings=np.column_stack([inverse.reshape(-1) for _, inverse in pairs]),
        room=held_sets.layout,
        tokens={name: problem.gpu.placements([name]) for name in problem.profile_names},
        fits=fits,
        shape=_shape,
    )


def _shape(places: Sequence[Placement]) -> object:
    """Which of the memory slices that any of the placements takes each of them takes, and its profile."""
    taken = sorted({at for place in places for at in range(place.start, place.end)})
    return tuple((place.profile.name, taken.index(place.start), taken.index(place.end - 1)) for place in places)


def _gains(facts: WindowFacts, m: int, kept: Int64s, held: Int64s) -> Floats:
    """By level and step, for pairs of columns: what is kept through the epoch, and what is held after it."""
    steady, first = facts.gains[m].steady, facts.first_step
    warm = first if facts.is_free else min(first + int(facts.warm_steps[m]), facts.n_steps)
    initial = steady[:, np.arange(first), facts.initial_columns[:, m]]
    parts = [np.repeat(initial[:, :, None], len(held), axis=2), steady[:, first:warm, kept], steady[:, warm:, held]]
    gains: Floats = np.concatenate(parts, axis=1)
    for retraining, _ in facts.running:
        if retraining.tenant == m:
            gains[0] = facts.along(retraining, gains)
    return gains


def static_schedule(
    facts: WindowFacts, is_over: Callable[[], bool] | None = None
) -> Incumbent[PlacedSchedule[Placement]] | None:
    """The retrainings of the best plan with one held set, and what that plan is worth; ``None`` if there is none.

    Once ``is_over``, it is the best plan found.
    """
    found = search_of(facts).run(is_over)
    return None if found is None else Incumbent(found.value, found.answer[1])


def greedy_schedule(facts: WindowFacts, paths: HeldSetPath) -> Incumbent[PlacedSchedule[Placement]] | None:
    """The best schedule back to back in one place, by what steady held sets earn; ``None`` if none fits the window.

    Where some slices are not ours, steady ones may not do: held sets change then as often as they like.
    """
    is_steady = not facts.problem.unavailable
    found = [Incumbent(paths.value(placed, is_steady=is_steady), placed) for placed in _back_to_back(facts)]
    return best_of(one for one in found if not np.isneginf(one.value))


def _back_to_back(facts: WindowFacts) -> Iterator[PlacedSchedule[Placement]]:
    """The required retrainings one after the other, each in its shortest way, by place and first start."""
    required = [facts.ways(m) for m, choices in enumerate(facts.choices) if None not in choices]
    if not required:
        yield ()
        return
    spans = facts.problem.unavailable_spans
    begins = {facts.first_step, *(begin for begin, _, _ in spans if begin > facts.first_step)}
    for place, begin in product(facts.problem.gpu.placements(facts.problem.profile_names), sorted(begins)):
        placed, step = list[tuple[Retraining, Placement]](), begin
        for ways in required:
            here = (way for way in ways if way.profile == place.profile.name)
            shortest = min(here, key=lambda way: (way.n_steps, way.level), default=None)
            if shortest is not None:
                placed.append((shortest.at(step), place))
                step += shortest.n_steps
        if len(placed) == len(required) and step <= facts.n_steps and facts.can_stand(tuple(placed)):
            yield tuple(placed)
