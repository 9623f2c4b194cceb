"""Why counts alone show that a problem, without its loads, has no plan.

For ``paper`` the answer is exact: per-step feasibility depends on nothing but which retrainings
run, so a schedule exists iff one exists in which every retraining starts as early as those placed
before it allow, in some order. For ``physical`` the same counts are a relaxation, beside the placements at step 0: a
reason that is given is true, but the engine may still refuse what passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from executor.mig import Multiset, Placement
from planner.arrays import Floats, Int64s
from planner.attainment import least_by_step, out_of_reach, required, served_at_start, slack
from planner.counts import (
    codes_fit,
    codes_of,
    feasible_multisets,
    joint_states,
    large_enough_profiles,
    multiset_of,
    tenant_multisets,
)
from planner.gains import gain_tables
from planner.lending import without_layout_for
from planner.plan import Infeasibility, Rule
from planner.problem import GainTable, Per, Problem, Reconfiguration, Retraining, RetrainingOption, TenantTerms
from planner.unavailable import slices_text

MAX_TRIALS = 50_000
"""Placements of a retraining that the search for a schedule tries before it gives up without an answer."""


class SearchLimitError(Exception):
    """The search for a schedule of retrainings reached its limit before it knew the answer."""


def infeasibility(problem: Problem) -> Infeasibility | None:
    """The first reason found why no plan exists, naming tenant and rule; ``None`` when none is known."""
    if problem.layout:
        return next(without_layout_for(problem), None)
    checks = (
        _no_large_profile,
        _frozen_where_not_ours,
        _frozen_without_use,
        _frozen_set_too_small,
        _minimum_does_not_fit,
        _no_place_beside_running,
        _retraining_too_long,
        _retraining_beside_minimum,
        _retrainings_together,
    )
    return next((reason for check in checks for reason in check(problem)), None)


def required_tenants(problem: Problem) -> tuple[TenantTerms, ...]:
    """The tenants for which a retraining has to start in this window, in order."""
    running = {item.tenant for item in problem.opening.retrainings}
    return tuple(tenant for tenant in problem.tenants if tenant.must_retrain and tenant.name not in running)


def earliest_retrainings(problem: Problem, max_trials: int = MAX_TRIALS) -> tuple[Retraining, ...] | None:
    """A schedule of all required retrainings that fits beside everyone's minimum, or ``None`` if there is none.

    Depth first over the order in which retrainings are placed and the profiles that they use, each
    placed as early as it fits. Such schedules contain a shortest one (every feasible schedule can
    be shifted left until it is one of them), so finding none proves that there is none.

    Raises:
        SearchLimitError: ``max_trials`` placements were tried without an answer.
    """
    return _Search(problem, max_trials).extended((), required_tenants(problem))


class _Search:
    """Depth-first search over orders and profiles; counts its trials."""

    def __init__(self, problem: Problem, max_trials: int) -> None:
        self._problem, self._n_left = problem, max_trials
        masks = {mask for _, _, mask in problem.unavailable_spans}
        self._room = {mask: _room(problem, problem.tenants, mask) for mask in masks}

    def extended(self, placed: tuple[Retraining, ...], waiting: Sequence[TenantTerms]) -> tuple[Retraining, ...] | None:
        """The placed retrainings with those of the tenants that wait; ``None`` if there is no way."""
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
                found = self.extended((*placed, item), others)
                if found is not None:
                    return found
        return None

    def _earliest(self, placed: Iterable[Retraining], profile: str, n_steps: int) -> int | None:
        problem = self._problem
        spans = [(0, item.end_step, item.placement.profile.name) for item in problem.opening.retrainings]
        spans += [(item.start_step, item.end_step, item.profile) for item in placed]
        begins = {begin for begin, _, _ in problem.unavailable_spans}
        moments = begins | {begin for begin, _, _ in spans}

        def fits(step: int) -> bool:
            beside = [name for begin, end, name in spans if begin <= step < end]
            return multiset_of(problem, [profile, *beside]) in self._room[problem.unavailable_in(step, step + 1)]

        # A start earlier by one step meets something that has just ended: a retraining, or others' instances.
        for start in sorted(begins | {end for _, end, _ in spans}):
            steps = {start, *(step for step in moments if start < step < start + n_steps)}
            if start + n_steps <= problem.n_steps and all(map(fits, steps)):
                return start
        return None


def shortest_options(problem: Problem, tenant: TenantTerms) -> tuple[tuple[RetrainingOption, str, int], ...]:
    """(option, profile, steps occupied): the shortest option on each profile that can hold it in the window."""
    best: dict[str, tuple[RetrainingOption, str, int]] = {}
    for option in tenant.options:
        for profile in option.time_s:
            n_steps = problem.occupied_steps(tenant, option, profile)
            if n_steps <= problem.n_steps and (profile not in best or n_steps < best[profile][2]):
                best[profile] = (option, profile, n_steps)
    return tuple(sorted(best.values(), key=lambda entry: (entry[2], problem.profile_names.index(entry[1]))))


def _needs(problem: Problem, tenants: Sequence[TenantTerms]) -> list[list[tuple[str, ...]]]:
    """By holder of any of the tenants, the profiles of which it has to hold one, for each of its tenants' minima."""
    found: dict[int, dict[tuple[str, ...], None]] = {}
    for tenant in tenants:
        own = found.setdefault(problem.holder_of[problem.tenant_names.index(tenant.name)], {})
        own[tuple(profile.name for profile in large_enough_profiles(problem, tenant))] = None
    return [[*own] for own in found.values()]


def _room(problem: Problem, tenants: Sequence[TenantTerms], unavailable: int) -> frozenset[Multiset]:
    """The multisets that fit beside a large enough instance for each of the tenants, where memory slices are ours."""
    gpu, names, codes = problem.gpu, problem.profile_names, np.zeros(1, dtype=np.int64)
    for needs in _needs(problem, tenants):
        # One instance may be large enough for several members of a pool.
        least = {multiset_of(problem, sorted(set(chosen))) for chosen in product(*needs)}
        codes = np.unique(codes[:, None] + codes_of(np.array([*least], dtype=np.int64).reshape(-1, len(names))))
        codes = codes[codes_fit(gpu, names, codes, unavailable)]
    feasible = feasible_multisets(gpu, names, unavailable)
    is_left = codes_fit(gpu, names, codes_of(np.array(feasible))[:, None] + codes, unavailable).any(axis=1)
    return frozenset(feasible[number] for number in np.flatnonzero(is_left))


def _no_large_profile(problem: Problem) -> Iterator[Infeasibility]:
    for tenant in problem.tenants:
        if not large_enough_profiles(problem, tenant):
            known = ", ".join(problem.capability_rps(tenant))
            text = f"no profile of its capability_rps ({known}) is as large as its min_profile {tenant.min_profile}"
            yield Infeasibility(tenant.name, Rule.MIN_PROFILE, text)


def _frozen_where_not_ours(problem: Problem) -> Iterator[Infeasibility]:
    """``physical``: what cannot leave its slices before they are others'.

    That is what inference holds when the window opens until the first epoch, and a retraining in progress to its end.
    """
    state = problem.opening
    texts = (
        "it holds {} when the window opens, but {} from step {} on, and the held set cannot change before step {}",
        "its retraining in progress holds {0} until step {3}, but {1} from step {2} on",
    )
    held = [(item.tenant, item.placement, state.next_epoch_step, texts[0]) for item in state.held]
    runs = [(item.tenant, item.placement, item.end_step, texts[1]) for item in state.retrainings]
    for tenant, placement, end, text in (*held, *runs):
        for begin, _, mask in problem.unavailable_spans:
            lost = placement.memory_mask & mask
            if lost and begin < end:
                yield Infeasibility(tenant, Rule.LAYOUT, text.format(placement, _not_ours(lost), begin, end))


def _frozen_without_use(problem: Problem) -> Iterator[Infeasibility]:
    """``physical``: what cannot serve those who keep it, and cannot go at step 0."""
    next_epoch_step = problem.opening.next_epoch_step
    for item, heir in zip(problem.opening.held, problem.heirs, strict=True) if next_epoch_step else ():
        if not problem.may_serve(heir, item.placement):
            text = (
                f"it holds {item.placement} when the window opens, which cannot serve {problem.owner(heir)}, "
                f"and the held set cannot change before step {next_epoch_step}"
            )
            yield Infeasibility(item.tenant, Rule.PROFILE, text)


def _not_ours(mask: int) -> str:
    return f"{slices_text(mask)} {'are' if mask.bit_count() > 1 else 'is'} not ours"


def _frozen_set_too_small(problem: Problem) -> Iterator[Infeasibility]:
    """``physical``: the window begins with a held set that breaks rule 4 and cannot change at step 0."""
    state = problem.opening
    for tenant in problem.tenants if state.next_epoch_step else ():
        enough, kept = large_enough_profiles(problem, tenant), problem.kept_at_start
        if not any(tenant.name in owner.members and place.profile in enough for place, owner in kept):
            text = (
                f"it holds nothing as large as its min_profile {tenant.min_profile} when the window opens, "
                f"and the held set cannot change before step {state.next_epoch_step}"
            )
            yield Infeasibility(tenant.name, Rule.MIN_PROFILE, text)


def _minimum_does_not_fit(problem: Problem) -> Iterator[Infeasibility]:
    for begin, _, mask in problem.unavailable_spans:
        for number, tenant in enumerate(problem.tenants):
            if not _room(problem, problem.tenants[: number + 1], mask):
                others = ", ".join(other.name for other in problem.tenants[:number])
                text = (
                    f"no layout of {problem.gpu.name} gives it an instance as large as its min_profile "
                    f"{tenant.min_profile}{f' beside those of {others}' if others else ''}"
                    f"{f', as {_not_ours(mask)} in step {begin}' if mask else ''}"
                )
                yield Infeasibility(tenant.name, Rule.MIN_PROFILE, text)


def _no_place_beside_running(problem: Problem) -> Iterator[Infeasibility]:
    """``physical``: retrainings in progress sit where some tenant's smallest instance would have to be at step 0."""
    if problem.physical_initial is None or problem.physical_initial.next_epoch_step > 0:
        return
    running = tuple(item.placement for item in problem.physical_initial.retrainings)
    layouts = {(frozenset(running), frozenset[Placement]())}
    for members in problem.partition:
        layouts = {(held, frozenset[Placement]()) for held, _ in layouts}
        for tenant in (problem.tenants[m] for m in members):
            enough = [profile.name for profile in large_enough_profiles(problem, tenant)]
            places = {place for place in problem.gpu.placements(enough) if problem.is_ours(place, 0, 1)}
            # One instance may be large enough for several members of a pool.
            layouts = {
                (held | {place}, own | {place})
                for held, own in layouts
                for place in (own & places or places)
                if place in own or problem.gpu.fits((*held, place))
            }
            if not layouts:
                text = (
                    f"no placement of an instance as large as its min_profile {tenant.min_profile} is left at step 0 "
                    f"beside those of the tenants before it and the retrainings in progress "
                    f"({', '.join(map(str, running)) or 'none'}){_and_others(problem)}"
                )
                yield Infeasibility(tenant.name, Rule.MIN_PROFILE, text)
                return


def _retraining_too_long(problem: Problem) -> Iterator[Infeasibility]:
    for tenant in required_tenants(problem):
        if not shortest_options(problem, tenant):
            ways = [(option, profile) for option in tenant.options for profile in option.time_s]
            occupied = {profile: problem.occupied_steps(tenant, option, profile) for option, profile in ways}
            text = (
                f"its retraining takes {', '.join(f'{n_steps} on {profile}' for profile, n_steps in occupied.items())} "
                f"steps{_start_up(problem)}, more than the window's {problem.n_steps}"
            )
            yield Infeasibility(tenant.name, Rule.RETRAINING, text)


def _start_up(problem: Problem) -> str:
    return " with its start-up" if problem.reconfiguration is Reconfiguration.PHYSICAL else ""


def _and_others(problem: Problem) -> str:
    return " and the memory slices that are not ours" if problem.unavailable else ""


def _retraining_beside_minimum(problem: Problem) -> Iterator[Infeasibility]:
    masks = {mask for _, _, mask in problem.unavailable_spans}
    room = {counts for mask in masks for counts in _room(problem, problem.tenants, mask)}
    for tenant in required_tenants(problem):
        profiles = [profile for _, profile, _ in shortest_options(problem, tenant)]
        if not any(multiset_of(problem, [profile]) in room for profile in profiles):
            text = (
                f"its retraining would end in the window on {', '.join(profiles)}, but no layout of "
                f"{problem.gpu.name} holds that beside every tenant's min_profile{_and_others(problem)}"
            )
            yield Infeasibility(tenant.name, Rule.RETRAINING, text)


def _retrainings_together(problem: Problem) -> Iterator[Infeasibility]:
    """The required retrainings in order; the first that cannot be scheduled beside those before it is to blame."""
    required = required_tenants(problem)
    for number, tenant in enumerate(required):
        try:
            if _Search(problem, MAX_TRIALS).extended((), required[: number + 1]) is not None:
                continue
        except SearchLimitError:
            return
        others = ", ".join(other.name for other in required[:number]) or "those already running"
        text = (
            f"its retraining cannot end inside the window's {problem.n_steps} steps{_start_up(problem)} beside "
            f"that of {others} and every tenant's min_profile{_and_others(problem)}"
        )
        yield Infeasibility(tenant.name, Rule.RETRAINING, text)


def floor_out_of_reach(problem: Problem) -> Infeasibility | None:
    """The first floor of in-time answers that no layout allows, whatever came before it; ``None`` if none is known.

    Per step with the best reachable share, beside the floors of the tenants before it; per window with the sum of the
    best that each step could have.
    """
    tables, states = gain_tables(problem), joint_states(problem)
    if not len(states):
        return None
    checks = _window_out_of_reach, _step_out_of_reach
    return next((reason for check in checks for reason in check(problem, tables, states)), None)


def _in_time(problem: Problem, tenant: TenantTerms, table: GainTable) -> Floats:
    """T by what the tenant may hold, ``(n_steps, n_multisets)``."""
    assert table.in_time is not None
    return table.in_time[:, [table.column[multiset] for multiset in tenant_multisets(problem, tenant)]]


def _window_out_of_reach(problem: Problem, tables: Sequence[GainTable], states: Int64s) -> Iterator[Infeasibility]:
    for m, (tenant, table) in enumerate(zip(problem.tenants, tables, strict=True)):
        floor, arrived = tenant.min_slo_attainment, table.arrived
        if floor is None or floor.per is not Per.WINDOW:
            continue
        assert arrived is not None
        most = _in_time(problem, tenant, table)[:, np.unique(states[:, problem.holder_of[m]])].max(axis=1)
        before = served_at_start(problem, tenant, table)
        if before is not None:
            most[: len(before)] = before
        asked, total, reached = required(floor, table), float(arrived.sum()), float(most.sum())
        if reached < asked - slack(asked):
            text = out_of_reach(floor, reached / total if total > 0 else None, is_reached=False)
            yield Infeasibility(tenant.name, Rule.FLOOR, text)


def _step_out_of_reach(problem: Problem, tables: Sequence[GainTable], states: Int64s) -> Iterator[Infeasibility]:
    allowed = np.ones((problem.n_steps, len(states)), dtype=np.bool_)
    before: list[str] = []
    for m, (tenant, table) in enumerate(zip(problem.tenants, tables, strict=True)):
        floor = tenant.min_slo_attainment
        if floor is None or floor.per is not Per.STEP:
            continue
        least = least_by_step(problem, tenant, table)
        start = served_at_start(problem, tenant, table)
        # What was held when the window opened need be none of these layouts.
        least[: 0 if start is None else len(start)] = -np.inf
        served = _in_time(problem, tenant, table)[:, states[:, problem.holder_of[m]]]
        reached = np.where(allowed, served, -np.inf).max(axis=1)
        short = np.flatnonzero(reached < least)
        if len(short):
            assert table.arrived is not None
            step = int(short[0])
            beside = f" beside the floors of {', '.join(before)}" if before else ""
            text = (
                f"no layout of {problem.gpu.name} answers {100 * floor.share:.6g} % of its requests in time in step "
                f"{step}{beside}; its best reachable share is {100 * reached[step] / table.arrived[step]:.6g} %"
            )
            yield Infeasibility(tenant.name, Rule.FLOOR, text)
        allowed &= served >= least[:, None]
        before.append(tenant.name)
