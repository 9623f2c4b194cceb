"""The best objective of a tiny problem with one layout, by trying every sequence of loans, each valued step by step.

Shares no code with `planner` beyond the `Problem` value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from stages import arrived, floor_per_step, floor_per_window, in_time, is_kept, rates_rps, stage, training_steps

from executor.mig import Placement
from planner.problem import Problem, TenantTerms


class Lending(NamedTuple):
    """A loan: whose, by which option, in what; from ``begin`` on it starts up, from ``serve`` to ``end`` it trains."""

    m: int
    number: int
    place: Placement
    begin: int
    serve: int
    end: int
    was_running: bool = False


def best(problem: Problem) -> float:
    """The most that any plan earns; −inf where there is none."""
    so_far = running(problem)
    if not _all_may_serve(problem):
        return -math.inf
    sequences = _sequences(problem, so_far, _begin(problem, so_far))
    return max((_value(problem, loans) for loans in sequences), default=-math.inf)


def worth(problem: Problem, loans: frozenset[Lending]) -> float:
    """What a plan with these loans earns; −inf where it breaks a rule."""
    so_far = running(problem)
    if not loans.issuperset(so_far) or not _all_may_serve(problem):
        return -math.inf
    begin = _begin(problem, so_far)
    for one in sorted(loans - {*so_far}, key=lambda one: one.begin):
        if one not in _next(problem, so_far, begin):
            return -math.inf
        so_far, begin = (*so_far, one), one.end
    return _value(problem, so_far)


def _all_may_serve(problem: Problem) -> bool:
    return all(
        place.profile.name in rates_rps(problem, m) for m in range(len(problem.tenants)) for place in problem.layout
    )


def running(problem: Problem) -> tuple[Lending, ...]:
    """What was lent as the window began."""
    state, names = problem.physical_initial, [own.name for own in problem.tenants]
    return tuple(
        Lending(names.index(run.tenant), 0, run.placement, 0, run.lent_from or 0, run.end_step, was_running=True)
        for run in (() if state is None else state.retrainings)
    )


def _begin(problem: Problem, so_far: tuple[Lending, ...]) -> int:
    return max([_first(problem), *(one.end for one in so_far)])


def _warm(seconds: float, problem: Problem) -> int:
    return max(1, math.ceil(seconds / problem.step_s - 1e-9))


def _pool_warm(problem: Problem) -> int:
    start_s = problem.pools[0].overhead_s if problem.pools else problem.tenants[0].overhead_s
    return _warm((problem.switch_s or 0.0) + start_s, problem)


def _since(problem: Problem) -> dict[Placement, tuple[int, int]]:
    """From when and until when each place serves."""
    state = problem.physical_initial
    if state is None:
        return dict.fromkeys(problem.layout, (0, problem.n_steps))
    held = {item.placement: item.serve_step for item in state.held}
    epoch = state.next_epoch_step
    found = {place: (step, problem.n_steps if place in problem.layout else epoch) for place, step in held.items()}
    for place in problem.layout:
        if place not in held:
            found[place] = (epoch + _pool_warm(problem), problem.n_steps)
    return found


def _first(problem: Problem) -> int:
    """From when on all of the layout serves, and nothing else stands."""
    since = _since(problem)
    ready = [begin if place in problem.layout else end for place, (begin, end) in since.items()]
    return max(ready)


def _is_enough(problem: Problem, tenant: TenantTerms, places: list[Placement]) -> bool:
    least = problem.gpu.profile(tenant.min_profile)
    return any(
        place.profile.compute_slices >= least.compute_slices and place.profile.memory_slices >= least.memory_slices
        for place in places
    )


def _sequences(problem: Problem, so_far: tuple[Lending, ...], begin: int) -> Iterator[tuple[Lending, ...]]:
    """These loans, and these with any that may follow."""
    yield so_far
    for one in _next(problem, so_far, begin):
        yield from _sequences(problem, (*so_far, one), one.end)


def _next(problem: Problem, so_far: tuple[Lending, ...], begin: int) -> Iterator[Lending]:
    """The loans that may come next, from this step on."""
    for m, tenant in enumerate(problem.tenants):
        if any(one.m == m for one in so_far):
            continue
        start_s = tenant.overhead_s if tenant.retraining_start_s is None else tenant.retraining_start_s
        for number, option in enumerate(tenant.options):
            for place in problem.layout:
                rest = [other for other in problem.layout if other != place]
                if place.profile.name not in option.time_s:
                    continue
                if not all(_is_enough(problem, other, rest) for other in problem.tenants):
                    continue
                warm = _warm(start_s, problem)
                n_held = warm + training_steps(problem, option, place.profile.name)
                for step in range(begin, problem.n_steps - n_held + 1):
                    yield Lending(m, number, place, step, step + warm, step + n_held)


def _value(problem: Problem, loans: tuple[Lending, ...]) -> float:
    """What this earns; −inf where it breaks a rule."""
    since, total, state = _since(problem), 0.0, problem.physical_initial
    held_until = {place: end for place, (_, end) in since.items()}
    opening = {} if state is None else {item.placement for item in state.held}
    epoch = 0 if state is None else state.next_epoch_step
    for m, tenant in enumerate(problem.tenants):
        own = next((one for one in loans if one.m == m), None)
        if own is None and tenant.options and tenant.retraining_required:
            return -math.inf
        salvage = tenant.salvage or (0.0,) * (1 + len(tenant.options))
        total += salvage[0 if own is None else 1 + own.number]
        got, floor = 0.0, tenant.min_slo_attainment
        for s in range(problem.n_steps):
            held = [p for p, end in held_until.items() if (s < end and (p in opening or state is None or s >= epoch))]
            if not _is_enough(problem, tenant, held):
                return -math.inf
            if any(place.profile.name not in rates_rps(problem, m) for place in held):
                return -math.inf
            lent = [one.place for one in loans if one.serve <= s < one.end]
            names = [p.profile.name for p, (a, b) in since.items() if a <= s < b and p not in lent]
            names = [name for name in names if name in rates_rps(problem, m)]
            served = in_time(problem, m, s, names)
            got += served
            accuracy, share = tenant.accuracy_before, 1.0
            if own is not None:
                name = own.place.profile.name
                accuracy, share = stage(problem, tenant, own.number, name, own.end, s, in_progress=own.was_running)
            total += share * accuracy * tenant.weight * served
            least = floor_per_step(problem, m, s)
            if least is not None and served < least - 1e-9 * arrived(problem, m, s):
                at_first = [p.profile.name for p in opening if since[p][0] <= s]
                would_do = in_time(problem, m, s, [n for n in at_first if n in rates_rps(problem, m)]) >= least
                if state is None or s >= epoch + _pool_warm(problem) or would_do:
                    return -math.inf
        if floor is not None and floor.per == "window":
            asked = floor_per_window(problem, m)
            assert asked is not None
            if not is_kept(got, asked):
                return -math.inf
    return total
