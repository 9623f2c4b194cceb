"""Partitions by compute demand: what they give to whom, when they change, and what has no influence on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from claims import Claims
from hypothesis import given, settings
from problems import physical_problem
from strategies import Case, cases
from windows import tenant, window

from migrator.execution.windows import state_after
from planner.budget import Budget
from planner.engines.physical.held_sets import HeldSets
from planner.plan import Lifetime, MigPlan, Status
from planner.policies.paris import Paris, ParisChanging, Ranking, knee_profile, wanted_slices
from planner.policies.policy import Window
from planner.problem import Problem, Reconfiguration
from planner.replan import state_at
from planner.solve import solve
from planner.verify import verify
from tests.seeds import daily, examples

N_STEPS = 60
BOTH = pytest.mark.parametrize("policy", [Paris(), ParisChanging()], ids=lambda policy: policy.name)
EITHER_WAY = pytest.mark.parametrize("as_published", [False, True])
TIMES = {"1g.5gb": 12.0, "2g.10gb": 7.0}


def problem_of(
    rates_rps: Sequence[float] = (150.0, 50.0), times: dict[str, float] | None = None, **changes: object
) -> Problem:
    own = TIMES if times is None else times
    tenants = [
        tenant(name, [rate] * N_STEPS, retraining_s=own, overhead_s=1.0, **changes)
        for name, rate in zip("abcdef", rates_rps, strict=False)
    ]
    return window(*tenants, model=Reconfiguration.PHYSICAL)


def answered(
    policy: Paris | ParisChanging,
    problem: Problem,
    past_rps: Sequence[float] | None = None,
    *,
    as_published: bool = False,
) -> MigPlan:
    n_tenants = len(problem.tenants)
    past = np.zeros((0, n_tenants)) if past_rps is None else np.array([past_rps] * 20)
    return policy.plan(Window(0, problem, Budget(), past, as_published=as_published))


def after(problem: Problem, plan: MigPlan, following: Problem) -> Problem:
    return replace(following, initial=state_at(problem, plan, problem.n_steps))


Held = frozenset[tuple[str, str]]


def held(plan: MigPlan, step: int) -> Held:
    alive = (i for i in plan.lifetimes if i.is_inference and i.create_step <= step < i.end_step)
    return frozenset((str(item.placement), item.owner.tenant) for item in alive)


def steps_of_change(plan: MigPlan) -> list[int]:
    return [step for step in range(1, plan.n_steps) if held(plan, step) != held(plan, step - 1)]


def slices_of(plan: MigPlan, step: int, name: str) -> int:
    alive = (i for i in plan.lifetimes if i.is_inference and i.create_step <= step < i.end_step)
    return sum(item.placement.profile.compute_slices for item in alive if item.owner.tenant == name)


def retrainings(plan: MigPlan) -> list[Lifetime]:
    return [item for item in plan.lifetimes if not item.is_inference]


def last_end(plan: MigPlan) -> int:
    return max(item.end_step for item in retrainings(plan))


@pytest.mark.parametrize("seed", daily(range(40), range(0, 40, 3)))
def test_plans_of_awkward_problems_keep_the_rules(seed: int) -> None:
    problem = physical_problem(seed, n_steps=8)
    can_stay = solve(problem, "static").status.has_plan
    with Claims(f"seed {seed}") as claim:
        for policy, as_published in product((Paris(), ParisChanging()), (False, True)):
            plan = answered(policy, problem, as_published=as_published)
            who = f"{policy.name}, as published: {as_published}"
            claim(plan.status.has_plan == can_stay, f"{who}: {plan.status}, though static's has a plan: {can_stay}")
            claim(not plan.status.has_plan or verify(problem, plan).violations == (), f"{who}: rules are broken")


@BOTH
@given(case=cases(Reconfiguration.PHYSICAL))
@settings(max_examples=examples(60))
def test_plans_of_drawn_problems_keep_the_rules(policy: Paris | ParisChanging, case: Case) -> None:
    for as_published in (False, True):
        plan = answered(policy, case.problem, as_published=as_published)
        assert not plan.status.has_plan or verify(case.problem, plan).violations == ()


@BOTH
@EITHER_WAY
@pytest.mark.parametrize("seed", daily(range(6), range(1)))
def test_windows_follow_each_other(policy: Paris | ParisChanging, *, as_published: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(rng.uniform(20, 200, 3))
    for _ in range(4):
        plan = answered(policy, problem, rng.uniform(20, 200, 3), as_published=as_published)
        assert plan.status.has_plan
        assert verify(problem, plan).violations == ()
        times = {"3g.20gb": 8.0} if rng.random() < 0.3 else TIMES
        problem = replace(problem_of(rng.uniform(20, 200, 3), times), initial=state_after(plan))


@BOTH
def test_a_heavier_tenant_gets_more(policy: Paris | ParisChanging) -> None:
    plan = answered(policy, problem_of((150.0, 50.0)))
    assert slices_of(plan, 0, "a") > slices_of(plan, 0, "b")


@BOTH
def test_what_counts_is_the_load_on_the_capability(policy: Paris | ParisChanging) -> None:
    light = {"1g.5gb": 400.0, "2g.10gb": 800.0, "3g.20gb": 1200.0, "4g.20gb": 1600.0, "7g.40gb": 2800.0}
    problem = problem_of((100.0, 100.0))
    tenants = (problem.tenants[0], replace(problem.tenants[1], capability_rps=light))
    plan = answered(policy, replace(problem, tenants=tenants))
    assert slices_of(plan, 0, "a") > slices_of(plan, 0, "b")


def test_all_slices_are_shared_out_in_proportion_to_demand() -> None:
    problem = problem_of((150.0, 50.0))
    assert wanted_slices(problem, np.array([150.0, 50.0])) == pytest.approx([5.25, 1.75])


def test_tenants_without_load_are_alike() -> None:
    assert wanted_slices(problem_of(), np.zeros(2)) == pytest.approx([3.5, 3.5])


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ({"1g.5gb": 40.0, "2g.10gb": 80.0}, "1g.5gb"),
        ({"1g.5gb": 30.0, "2g.10gb": 80.0}, "2g.10gb"),
        ({"1g.5gb": 32.0, "2g.10gb": 80.0}, "1g.5gb"),
        ({"2g.10gb": 85.0, "7g.40gb": 140.0}, "2g.10gb"),
        ({"1g.5gb": 1.0, "2g.10gb": 50.0, "3g.20gb": 120.0, "4g.20gb": 160.0}, "3g.20gb"),
    ],
)
def test_the_knee_is_the_smallest_profile_nearly_as_good_per_slice(rates: dict[str, float], knee: str) -> None:
    own = tenant("a", [1.0] * N_STEPS, capability_rps=rates)
    assert knee_profile(window(own, model=Reconfiguration.PHYSICAL), own) == knee


@pytest.mark.parametrize(
    ("rates", "profiles"),
    [
        ({"1g.5gb": 40.0, "2g.10gb": 80.0, "4g.20gb": 160.0}, ["1g.5gb"] * 4),
        ({"1g.5gb": 10.0, "2g.10gb": 80.0, "4g.20gb": 160.0}, ["2g.10gb"] * 2),
        ({"1g.5gb": 10.0, "2g.10gb": 20.0, "4g.20gb": 160.0}, ["4g.20gb"]),
    ],
)
def test_a_share_is_held_in_knee_profiles(rates: dict[str, float], profiles: list[str]) -> None:
    a = tenant("a", [4 / 3 * 160.0] * N_STEPS, capability_rps=rates, retraining_s={})
    b = tenant("b", [160.0] * N_STEPS, capability_rps={"1g.5gb": 40.0, "4g.20gb": 160.0}, retraining_s={})
    plan = answered(Paris(), window(a, b, model=Reconfiguration.PHYSICAL))
    assert sorted(i.placement.profile.name for i in plan.lifetimes if i.owner.tenant == "a") == profiles


def test_no_slice_stays_idle_where_no_retraining_needs_it() -> None:
    plan = answered(Paris(), problem_of((100.0, 100.0, 100.0), times={}))
    assert sum(slices_of(plan, 0, name) for name in "abc") == 7


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_falls_least_short(seed: int) -> None:
    rates = np.random.default_rng(seed).uniform(5, 200, 2)
    problem = problem_of(rates, times={})
    sets, wanted = HeldSets.of(problem), wanted_slices(problem, rates)

    def short(number: int) -> float:
        own = [0, 0]
        for placement, m in sets.entries(number):
            own[m] += placement.profile.compute_slices
        return sum(max(0.0, w - n) ** 2 / w for w, n in zip(wanted, own, strict=True))

    nearest = next(Ranking.of(sets, rates).nearest(None))
    assert short(nearest) == pytest.approx(min(map(short, range(len(sets)))), abs=1e-8)


def test_of_sets_equally_near_the_one_is_taken_that_keeps_most() -> None:
    rates = np.array([100.0, 100.0])
    ranking = Ranking.of(HeldSets.of(problem_of(rates)), rates)
    best = ranking.keys[next(ranking.nearest(None))]
    tied = np.flatnonzero((ranking.keys == best).all(axis=1))
    last = ranking.sets.entries(int(tied[-1]))
    assert len(tied) > 1
    assert ranking.sets.entries(next(ranking.nearest(last))) == last


def test_of_sets_equally_near_the_one_is_taken_that_leaves_the_largest_retraining() -> None:
    times = {"3g.20gb": 14.0, "4g.20gb": 12.0}
    plan = answered(Paris(), problem_of((100.0,), times, capability_rps={"3g.20gb": 120.0}))
    assert held(plan, 0) == {("3g.20gb@4", "a")}
    assert [item.placement.profile.name for item in retrainings(plan)] == ["4g.20gb"]


def test_paris_holds_one_layout_in_every_window() -> None:
    first = problem_of((150.0, 50.0))
    plan = answered(Paris(), first)
    following = answered(Paris(), after(first, plan, problem_of((50.0, 150.0))))
    layouts = {held(p, step) for p in (plan, following) for step in range(N_STEPS)}
    assert len(layouts) == 1


def test_paris_changes_where_retrainings_have_no_room_else() -> None:
    first = problem_of((150.0, 50.0))
    plan = answered(Paris(), first)
    second = after(first, plan, problem_of((150.0, 50.0), times={"3g.20gb": 8.0}))
    following = answered(Paris(), second)
    assert verify(second, following).violations == ()
    assert held(following, 0) != held(plan, 0)
    assert steps_of_change(following) == []


def test_the_changing_one_grows_when_the_last_retraining_has_ended() -> None:
    plan = answered(ParisChanging(), problem_of())
    assert len(retrainings(plan)) == 2
    assert steps_of_change(plan) == [last_end(plan)]
    used = [slices_of(plan, step, "a") + slices_of(plan, step, "b") for step in (0, N_STEPS - 1)]
    assert used[0] < used[1] == 7


@EITHER_WAY
@pytest.mark.parametrize("seed", daily(range(5), range(2)))
def test_the_changing_one_changes_at_starts_and_after_retrainings_only(*, as_published: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(rng.uniform(20, 200, 2))
    for _ in range(3):
        plan = answered(ParisChanging(), problem, rng.uniform(20, 200, 2), as_published=as_published)
        assert set(steps_of_change(plan)) <= {last_end(plan)}
        problem = replace(problem_of(rng.uniform(20, 200, 2)), initial=state_after(plan))


def test_the_changing_one_waits_until_a_change_is_allowed_again() -> None:
    first = problem_of((150.0, 50.0))
    plan = answered(ParisChanging(), first)
    following = problem_of((50.0, 150.0), times={"1g.5gb": 1.0, "2g.10gb": 1.0}, retraining_start_s=0.0)
    slow = replace(following, tenants=tuple(replace(t, overhead_s=30.0) for t in following.tenants))
    second = after(first, plan, slow)
    changed = answered(ParisChanging(), second)
    assert verify(second, changed).violations == ()
    assert held(changed, 0) != held(plan, N_STEPS - 1)
    assert steps_of_change(changed) == [second.epoch_steps] != [last_end(changed)]


def test_the_changing_one_stays_if_the_window_ends_before_a_change_is_allowed() -> None:
    problem = problem_of(times={"1g.5gb": 24.0})
    waits = replace(problem, initial=replace(state_after(answered(Paris(), problem)), next_epoch_step=N_STEPS))
    plan = answered(ParisChanging(), waits)
    assert plan.status.has_plan
    assert steps_of_change(plan) == []


def without_1g(rates_rps: Sequence[float]) -> Problem:
    """Of what a retraining on 1g leaves idle, nothing can be used without dropping a 2g for a 3g."""
    return problem_of(rates_rps, capability_rps={"2g.10gb": 80.0, "3g.20gb": 120.0, "4g.20gb": 160.0})


@pytest.mark.parametrize("seed", range(6))
def test_the_changing_one_drops_nothing_after_retrainings_unless_as_published(seed: int) -> None:
    plan = answered(ParisChanging(), without_1g(np.random.default_rng(seed).uniform(20, 200, 2)))
    assert held(plan, 0) <= held(plan, N_STEPS - 1)


@pytest.mark.parametrize("seed", range(6))
def test_as_published_the_changing_one_ends_with_the_nearest_of_all(seed: int) -> None:
    rates = np.random.default_rng(seed).uniform(20, 200, 2)
    problem = without_1g(rates)
    plan = answered(ParisChanging(), problem, rates, as_published=True)
    ranking = Ranking.of(HeldSets.of(problem), rates)
    entries = frozenset((i.placement, "ab".index(i.owner.tenant)) for i in plan.lifetimes if i.end_step == N_STEPS)
    number = ranking.sets.index(entries)
    assert number is not None
    assert ranking.keys[number].tolist() == ranking.keys[next(ranking.nearest(None))].tolist()


@BOTH
@EITHER_WAY
def test_accuracy_has_no_influence_on_the_layout(policy: Paris | ParisChanging, *, as_published: bool) -> None:
    problem = problem_of((120.0, 90.0))
    b = problem.tenants[1]
    better = replace(b, accuracy_before=0.1, options=(replace(b.options[0], accuracy_after=0.99),), weight=3.0)
    plans = [
        answered(policy, replace(problem, tenants=(problem.tenants[0], own)), (120.0, 90.0), as_published=as_published)
        for own in (b, better)
    ]
    layouts = [[held(plan, 0), held(plan, N_STEPS - 1)] for plan in plans]
    assert layouts[0] == layouts[1]


@BOTH
def test_as_published_the_past_decides_and_else_the_forecast(policy: Paris | ParisChanging) -> None:
    problem, past = problem_of((50.0, 150.0)), (150.0, 50.0)
    more = [
        slices_of(plan, 0, "a") > slices_of(plan, 0, "b")
        for plan in (answered(policy, problem, past, as_published=known) for known in (True, False))
    ]
    assert more == [True, False]


@BOTH
def test_what_cannot_be_is_told(policy: Paris | ParisChanging) -> None:
    assert answered(policy, problem_of(times={"1g.5gb": 2.0 * N_STEPS})).status is Status.INFEASIBLE


@BOTH
def test_they_push_and_take_the_batch_as_given(policy: Paris | ParisChanging) -> None:
    assert (policy.traits.pushes, policy.traits.batching.value) == (True, "given")
