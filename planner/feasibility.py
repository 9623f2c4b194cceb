"""Why a problem has no plan, as far as counts alone show it, without its loads.

For ``paper`` the answer is exact: per-step feasibility depends on nothing but which retrainings
run, so a schedule exists iff one exists in which every retraining starts as early as those placed
before it allow, in some order. For ``physical`` the same counts are a relaxation, beside the placements at step 0: a
reason that is given is true, but the engine may still refuse what passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from executor.mig import Multiset
from planner.attainment import least_by_step, out_of_reach, required, served_at_start, slack
from planner.counts import (
    IntArray,
    feasible_multisets,
    joint_states,
    large_enough_profiles,
    tenant_multisets,
    unit_multiset,
)
from planner.gains import gain_tables
from planner.plan import Infeasibility
from planner.problem import (
    FloatArray,
    GainTable,
    Per,
    PhysicalState,
    Problem,
    Reconfiguration,
    Retraining,
    RetrainingOption,
    TenantTerms,
)
from planner.unavailable import slices_text

RULE_LAYOUT = "rule 1"
RULE_RETRAINING = "rule 3"
RULE_MIN_PROFILE = "rule 4"
RULE_FLOOR = "min_slo_attainment"

MAX_TRIALS = 50_000
"""Placements of a retraining that the search for a schedule tries before it gives up without an answer."""


class SearchLimitError(Exception):
    """The search for a schedule of retrainings reached its limit before it knew the answer."""


def infeasibility(problem: Problem) -> Infeasibility | None:
    """The first reason found why no plan exists, naming tenant and rule; ``None`` when none is known."""
    checks = (
        _no_large_profile,
        _frozen_where_not_ours,
        _retraining_where_not_ours,
        _frozen_set_too_small,
        _minimum_does_not_fit,
        _no_place_beside_running,
        _retraining_too_long,
    )
    for check in checks:
        reason = check(problem)
        if reason is not None:
            return reason
    return _retraining_beside_minimum(problem) or _retrainings_together(problem)


def required_tenants(problem: Problem) -> tuple[TenantTerms, ...]:
    """The tenants for which a retraining has to start in this window, in order."""
    state = problem.initial
    running = {item.tenant for item in state.retrainings} if isinstance(state, PhysicalState) else set()
    return tuple(tenant for tenant in problem.tenants if tenant.must_retrain and tenant.name not in running)


def earliest_retrainings(problem: Problem, max_trials: int = MAX_TRIALS) -> tuple[Retraining, ...] | None:
    """A schedule of all required retrainings that fits beside everyone's minimum, or ``None`` if there is none.

    Depth first over the order in which retrainings are placed and the profiles that they use, each
    placed as early as it fits. Such schedules contain a shortest one (every feasible schedule can
    be shifted left until it is one of them), so finding none proves that there is none.

    Raises:
        SearchLimitError: ``max_trials`` placements were tried without an answer.
    """
    search = _Search(problem, max_trials)
    return search.run(required_tenants(problem))


class _Search:
    """Depth-first search over orders and profiles; counts its trials."""

    def __init__(self, problem: Problem, max_trials: int) -> None:
        self._problem = problem
        self._n_left = max_trials
        self._room = {mask: _room_beside_minimum(problem, mask) for _, _, mask in problem.unavailable_spans}
        state = problem.initial
        running = state.retrainings if isinstance(state, PhysicalState) else ()
        self._fixed = [(0, item.end_step, unit_multiset(problem, item.placement.profile.name)) for item in running]

    def run(self, waiting: Sequence[TenantTerms]) -> tuple[Retraining, ...] | None:
        return self._extend((), tuple(waiting))

    def _extend(
        self, placed: tuple[Retraining, ...], waiting: tuple[TenantTerms, ...]
    ) -> tuple[Retraining, ...] | None:
        if not waiting:
            return placed
        for tenant in waiting:
            index = self._problem.tenants.index(tenant)
            others = tuple(other for other in waiting if other is not tenant)
            for option, profile, n_steps in shortest_options(self._problem, tenant):
                self._n_left -= 1
                if self._n_left < 0:
                    raise SearchLimitError
                start = self._earliest(placed, profile, n_steps)
                if start is None:
                    continue
                item = Retraining(index, 1 + tenant.options.index(option), profile, start, start + n_steps)
                found = self._extend((*placed, item), others)
                if found is not None:
                    return found
        return None

    def _earliest(self, placed: Iterable[Retraining], profile: str, n_steps: int) -> int | None:
        spans = [(item.start_step, item.end_step, unit_multiset(self._problem, item.profile)) for item in placed]
        spans += self._fixed
        # A start earlier by one step meets something that has ended by then: a retraining, or others' instances.
        starts = sorted({*(begin for begin, _, _ in self._problem.unavailable_spans), *(end for _, end, _ in spans)})
        own = unit_multiset(self._problem, profile)
        return next(
            (
                start
                for start in starts
                if start + n_steps <= self._problem.n_steps and self._fits(spans, start, start + n_steps, own)
            ),
            None,
        )

    def _fits(self, spans: Sequence[tuple[int, int, Multiset]], start: int, end: int, own: Multiset) -> bool:
        edges = [*(span[:2] for span in spans), *(span[:2] for span in self._problem.unavailable_spans)]
        borders = sorted({start, end, *(step for span in edges for step in span if start < step < end)})
        for step, _ in pairwise(borders):
            beside = [multiset for first, last, multiset in spans if first <= step < last]
            if _total([own, *beside]) not in self._room[self._problem.unavailable_in(step, step + 1)]:
                return False
        return True


def shortest_options(problem: Problem, tenant: TenantTerms) -> tuple[tuple[RetrainingOption, str, int], ...]:
    """(option, profile, steps occupied): the shortest option on each profile that can hold it in the window."""
    best: dict[str, tuple[RetrainingOption, str, int]] = {}
    for option in tenant.options:
        for profile in option.time_s:
            n_steps = problem.occupied_steps(tenant, option, profile)
            if n_steps <= problem.n_steps and (profile not in best or n_steps < best[profile][2]):
                best[profile] = (option, profile, n_steps)
    return tuple(sorted(best.values(), key=lambda entry: (entry[2], problem.profile_names.index(entry[1]))))


def _total(multisets: Iterable[Multiset]) -> Multiset:
    return tuple(map(sum, zip(*multisets, strict=True)))


def _minimum_sums(problem: Problem, tenants: Iterable[TenantTerms], unavailable: int) -> set[Multiset]:
    """All feasible sums of one large enough instance for each of the tenants beside memory slices that are not ours."""
    feasible = set(feasible_multisets(problem.gpu, problem.profile_names, unavailable))
    sums: set[Multiset] = {(0,) * len(problem.profile_names)}
    for tenant in tenants:
        units = [unit_multiset(problem, profile.name) for profile in large_enough_profiles(problem, tenant)]
        sums = {total for held in sums for unit in units if (total := _total((held, unit))) in feasible}
    return sums


def _room_beside_minimum(problem: Problem, unavailable: int) -> frozenset[Multiset]:
    """The multisets that retrainings can hold while everyone's inference holds its minimum, where slices are ours."""
    feasible = feasible_multisets(problem.gpu, problem.profile_names, unavailable)
    known = set(feasible)
    minima = _minimum_sums(problem, problem.tenants, unavailable)
    return frozenset(m for m in feasible if any(_total((m, minimum)) in known for minimum in minima))


def _no_large_profile(problem: Problem) -> Infeasibility | None:
    for tenant in problem.tenants:
        if not large_enough_profiles(problem, tenant):
            known = ", ".join(tenant.capability_rps)
            text = f"no profile of its capability_rps ({known}) is as large as its min_profile {tenant.min_profile}"
            return Infeasibility(tenant.name, RULE_MIN_PROFILE, text)
    return None


def _frozen_where_not_ours(problem: Problem) -> Infeasibility | None:
    """``physical``: what inference holds when the window opens cannot be dropped before its slices are others'."""
    state = problem.initial
    if not isinstance(state, PhysicalState):
        return None
    for item in state.held:
        for begin, _, mask in problem.unavailable_spans:
            lost = item.placement.memory_mask & mask
            if lost and begin < state.next_epoch_step:
                text = (
                    f"it holds {item.placement} when the window opens, but {_not_ours(lost)} from step {begin} on, "
                    f"and the held set cannot change before step {state.next_epoch_step}"
                )
                return Infeasibility(item.tenant, RULE_LAYOUT, text)
    return None


def _retraining_where_not_ours(problem: Problem) -> Infeasibility | None:
    """``physical``: a retraining in progress is never moved, and sits where slices are others' before its end."""
    state = problem.initial
    for item in state.retrainings if isinstance(state, PhysicalState) else ():
        for begin, _, mask in problem.unavailable_spans:
            lost = item.placement.memory_mask & mask
            if lost and begin < item.end_step:
                text = (
                    f"its retraining in progress holds {item.placement} until step {item.end_step}, "
                    f"but {_not_ours(lost)} from step {begin} on"
                )
                return Infeasibility(item.tenant, RULE_LAYOUT, text)
    return None


def _not_ours(mask: int) -> str:
    return f"{slices_text(mask)} {'are' if mask.bit_count() > 1 else 'is'} not ours"


def _frozen_set_too_small(problem: Problem) -> Infeasibility | None:
    """``physical``: the window begins with a held set that breaks rule 4 and cannot change at step 0."""
    state = problem.initial
    if not isinstance(state, PhysicalState) or state.next_epoch_step == 0:
        return None
    for tenant in problem.tenants:
        enough = {profile.name for profile in large_enough_profiles(problem, tenant)}
        if not any(item.tenant == tenant.name and item.placement.profile.name in enough for item in state.held):
            text = (
                f"it holds nothing as large as its min_profile {tenant.min_profile} when the window opens, "
                f"and the held set cannot change before step {state.next_epoch_step}"
            )
            return Infeasibility(tenant.name, RULE_MIN_PROFILE, text)
    return None


def _minimum_does_not_fit(problem: Problem) -> Infeasibility | None:
    for begin, _, mask in problem.unavailable_spans:
        for n_tenants, tenant in enumerate(problem.tenants, start=1):
            if not _minimum_sums(problem, problem.tenants[:n_tenants], mask):
                others = ", ".join(other.name for other in problem.tenants[: n_tenants - 1])
                text = (
                    f"no layout of {problem.gpu.name} gives it an instance as large as its min_profile "
                    f"{tenant.min_profile}{f' beside those of {others}' if others else ''}"
                    f"{f', as {_not_ours(mask)} in step {begin}' if mask else ''}"
                )
                return Infeasibility(tenant.name, RULE_MIN_PROFILE, text)
    return None


def _no_place_beside_running(problem: Problem) -> Infeasibility | None:
    """``physical``: retrainings in progress sit where some tenant's smallest instance would have to be at step 0."""
    state = problem.initial
    if not isinstance(state, PhysicalState) or state.next_epoch_step > 0:
        return None
    running = tuple(item.placement for item in state.retrainings)
    layouts = {running}
    for tenant in problem.tenants:
        enough = [profile.name for profile in large_enough_profiles(problem, tenant)]
        own = [place for place in problem.gpu.placements(enough) if problem.is_ours(place, 0, 1)]
        layouts = {
            tuple(sorted((*layout, place), key=lambda item: item.sort_key))
            for layout in layouts
            for place in own
            if problem.gpu.fits((*layout, place))
        }
        if not layouts:
            text = (
                f"no placement of an instance as large as its min_profile {tenant.min_profile} is left at step 0 "
                f"beside those of the tenants before it and the retrainings in progress "
                f"({', '.join(map(str, running)) or 'none'}){_and_others(problem)}"
            )
            return Infeasibility(tenant.name, RULE_MIN_PROFILE, text)
    return None


def _retraining_too_long(problem: Problem) -> Infeasibility | None:
    for tenant in required_tenants(problem):
        if not shortest_options(problem, tenant):
            occupied = {
                profile: problem.occupied_steps(tenant, option, profile)
                for option in tenant.options
                for profile in option.time_s
            }
            text = (
                f"its retraining takes {_steps_by_profile(occupied)} steps{_start_up(problem)}, "
                f"more than the window's {problem.n_steps}"
            )
            return Infeasibility(tenant.name, RULE_RETRAINING, text)
    return None


def _steps_by_profile(occupied: Mapping[str, int]) -> str:
    return ", ".join(f"{n_steps} on {profile}" for profile, n_steps in occupied.items())


def _start_up(problem: Problem) -> str:
    return " with its start-up" if problem.reconfiguration is Reconfiguration.PHYSICAL else ""


def _and_others(problem: Problem) -> str:
    return " and the memory slices that are not ours" if problem.unavailable else ""


def _retraining_beside_minimum(problem: Problem) -> Infeasibility | None:
    room = {counts for _, _, mask in problem.unavailable_spans for counts in _room_beside_minimum(problem, mask)}
    for tenant in required_tenants(problem):
        profiles = [profile for _, profile, _ in shortest_options(problem, tenant)]
        if not any(unit_multiset(problem, profile) in room for profile in profiles):
            text = (
                f"its retraining would end in the window on {', '.join(profiles)}, but no layout of "
                f"{problem.gpu.name} holds that beside every tenant's min_profile{_and_others(problem)}"
            )
            return Infeasibility(tenant.name, RULE_RETRAINING, text)
    return None


def _retrainings_together(problem: Problem) -> Infeasibility | None:
    """The required retrainings in order; the first that cannot be scheduled beside those before it is to blame."""
    required = required_tenants(problem)
    for n_tenants, tenant in enumerate(required, start=1):
        try:
            if _Search(problem, MAX_TRIALS).run(required[:n_tenants]) is not None:
                continue
        except SearchLimitError:
            return None
        others = ", ".join(other.name for other in required[: n_tenants - 1]) or "those already running"
        text = (
            f"its retraining cannot end inside the window's {problem.n_steps} steps{_start_up(problem)} beside "
            f"that of {others} and every tenant's min_profile{_and_others(problem)}"
        )
        return Infeasibility(tenant.name, RULE_RETRAINING, text)
    return None


_CHUNK = 1024
"""Steps for which layouts are looked at together."""


def floor_out_of_reach(problem: Problem) -> Infeasibility | None:
    """The first floor of in-time answers that no layout allows, whatever came before it; ``None`` if none is known.

    Per step with the best reachable share, beside the floors of the tenants before it; per window with the sum of the
    best that each step could have.
    """
    tables, states = gain_tables(problem), joint_states(problem)
    if not len(states):
        return None
    for m, (tenant, table) in enumerate(zip(problem.tenants, tables, strict=True)):
        floor = tenant.min_slo_attainment
        if floor is not None and floor.per is Per.WINDOW:
            reason = _window_out_of_reach(problem, tenant, table, np.unique(states[:, m]))
            if reason is not None:
                return reason
    for begin in range(0, problem.n_steps, _CHUNK):
        reason = _step_out_of_reach(problem, tables, states, slice(begin, begin + _CHUNK))
        if reason is not None:
            return reason
    return None


def _in_time(problem: Problem, tenant: TenantTerms, table: GainTable) -> FloatArray:
    """T by what the tenant may hold, ``(n_steps, n_multisets)``."""
    assert table.in_time is not None
    return table.in_time[:, [table.column[multiset] for multiset in tenant_multisets(problem, tenant)]]


def _window_out_of_reach(
    problem: Problem, tenant: TenantTerms, table: GainTable, holdings: IntArray
) -> Infeasibility | None:
    floor, arrived = tenant.min_slo_attainment, table.arrived
    assert floor is not None
    assert arrived is not None
    most = _in_time(problem, tenant, table)[:, holdings].max(axis=1)
    before = served_at_start(problem, tenant, table)
    if before is not None:
        most[: len(before)] = before
    asked, total = required(floor, table), float(arrived.sum())
    if float(most.sum()) >= asked - slack(asked):
        return None
    text = out_of_reach(floor, float(most.sum()) / total if total > 0 else None, is_reached=False)
    return Infeasibility(tenant.name, RULE_FLOOR, text)


def _step_out_of_reach(
    problem: Problem, tables: Sequence[GainTable], states: IntArray, steps: slice
) -> Infeasibility | None:
    allowed = np.ones((len(range(problem.n_steps)[steps]), len(states)), dtype=np.bool_)
    before: list[str] = []
    for m, (tenant, table) in enumerate(zip(problem.tenants, tables, strict=True)):
        floor = tenant.min_slo_attainment
        if floor is None or floor.per is not Per.STEP:
            continue
        least = least_by_step(problem, tenant, table)
        start = served_at_start(problem, tenant, table)
        # What was held when the window opened need be none of these layouts.
        least[: 0 if start is None else len(start)] = -np.inf
        served = _in_time(problem, tenant, table)[steps][:, states[:, m]]
        reached = np.where(allowed, served, -np.inf).max(axis=1)
        short = np.flatnonzero(reached < least[steps])
        if len(short):
            assert table.arrived is not None
            step = int(short[0]) + steps.start
            beside = f" beside the floors of {', '.join(before)}" if before else ""
            text = (
                f"no layout of {problem.gpu.name} answers {100 * floor.share:.6g} % of its requests in time in step "
                f"{step}{beside}; its best reachable share is {_percent(float(reached[short[0]]), table.arrived[step])}"
            )
            return Infeasibility(tenant.name, RULE_FLOOR, text)
        allowed &= served >= least[steps, None]
        before.append(tenant.name)
    return None


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.6g} %"
