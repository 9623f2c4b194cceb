"""Every policy answers by the rules, with what it is said to hold."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from windows import tenant, window

from planner.attainment import attainments
from planner.budget import Budget
from planner.engines.physical.static import best_held_set, solve_static_among
from planner.errors import EngineError, PolicyError
from planner.plan import MigPlan
from planner.policies.policy import Batching, Knows, Policy, Traits, Window
from planner.policies.reactive import Reactive
from planner.policies.registry import MIG_POLICIES, POLICIES, VARIANTS, policy_of
from planner.problem import (
    AttainmentFloor,
    HeldInstance,
    Per,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    Task,
)
from planner.replan import state_at
from planner.solve import solve
from planner.unavailable import Unavailable
from planner.verify import verify
from tests.seeds import daily

N_STEPS = 40


def problem_of(seed: int, retraining_s: dict[str, float] | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    capability = {"1g.5gb": 40.0, "2g.10gb": 85.0, "3g.20gb": 130.0}
    training = {"1g.5gb": 12.0, "2g.10gb": 7.0} if retraining_s is None else retraining_s
    tenants = [
        tenant(name, 60 + 100 * rng.random(N_STEPS), capability_rps=capability, retraining_s=training, overhead_s=1.0)
        for name in ("a", "b")
    ]
    return window(*tenants, model=Reconfiguration.PHYSICAL)


PAST_RPS = np.full((20, 2), 100.0)

SHARED = (
    (Unavailable((6, 7)),),
    (Unavailable((0, 1), 15),),
    (Unavailable((4, 5, 6, 7), 0, 10),),
    (Unavailable((0, 1), 0, 20), Unavailable((6, 7), 20)),
)
"""What others hold: some slices throughout, others that come, go, or change."""


def answered(name: str, problem: Problem) -> MigPlan:
    policy = MIG_POLICIES[name]()
    if policy.knows is Knows.RUN:
        policy = policy.prepared([problem])
    return policy.plan(Window(0, problem, Budget(max_nodes=200), PAST_RPS))


def held(problem: Problem, plan: MigPlan, step: int) -> dict[str, list[str]]:
    serving = [item for item in plan.lifetimes if item.is_inference and item.create_step <= step < item.end_step]
    names = problem.tenant_names
    return {n: sorted(i.placement.profile.name for i in serving if i.owner.tenant == n) for n in names}


KEEP_FLOORS = ("migrator", "oracle", "window")


def floored(problem: Problem) -> Problem:
    """The same problem, where a has a floor that nothing keeps."""
    floor = AttainmentFloor(1.0, Per.STEP)
    return replace(problem, tenants=(replace(problem.tenants[0], min_slo_attainment=floor), *problem.tenants[1:]))


@pytest.mark.parametrize("name", sorted(set(MIG_POLICIES) - set(KEEP_FLOORS)))
def test_a_policy_that_knows_no_floors_ignores_them(name: str) -> None:
    problem = problem_of(1)
    assert answered(name, floored(problem)).lifetimes == answered(name, problem).lifetimes


@pytest.mark.parametrize("name", KEEP_FLOORS)
def test_a_policy_that_keeps_floors_comes_as_near_as_it_can(name: str) -> None:
    problem = floored(problem_of(1))
    free, plan = answered(name, problem_of(1)), answered(name, problem)
    assert attainments(problem, plan)[0].in_time > attainments(problem, free)[0].in_time


@pytest.mark.parametrize("name", MIG_POLICIES)
def test_every_policy_s_plan_keeps_the_rules_and_retrains(name: str) -> None:
    problem = problem_of(1)
    plan = answered(name, problem)
    assert verify(problem, plan).violations == ()
    assert {item.owner.tenant for item in plan.lifetimes if item.owner.task is Task.RETRAINING} == {"a", "b"}


BLIND = pytest.mark.parametrize("name", ["equal", "paris", "paris-changing"])
"""Those that do not ask what a retraining yields."""


def free(problem: Problem, *hopeless: str) -> Problem:
    """The same problem, where retrainings may be left out; these tenants' take longer than the window."""
    tenants = tuple(replace(own, retraining_required=False) for own in problem.tenants)
    slow = (RetrainingOption("full", {"1g.5gb": 2.0 * N_STEPS}, 0.8),)
    return replace(problem, tenants=tuple(replace(t, options=slow) if t.name in hopeless else t for t in tenants))


@BLIND
def test_what_may_be_left_out_is_retrained_by_a_policy_that_is_blind_to_it(name: str) -> None:
    problem = problem_of(1)
    plan = answered(name, free(problem))
    assert verify(free(problem), plan).violations == ()
    assert plan.lifetimes == answered(name, problem).lifetimes


@BLIND
@pytest.mark.parametrize(("hopeless", "retrained"), [("a", ["b"]), ("ab", [])])
def test_a_retraining_that_cannot_end_keeps_no_other_from_its_room(
    name: str, hopeless: str, retrained: list[str]
) -> None:
    plan = answered(name, free(problem_of(1), *hopeless))
    assert [item.owner.tenant for item in plan.lifetimes if item.owner.task is Task.RETRAINING] == retrained


@BLIND
def test_where_not_all_retrainings_have_room_those_that_may_be_left_out_claim_none(name: str) -> None:
    problem = problem_of(1, retraining_s={"3g.20gb": 30.0})  # one after the other is too long, and two at once too much
    plan = answered(name, free(problem))
    assert plan.status.has_plan
    assert verify(free(problem), plan).violations == ()
    assert sum(item.owner.task is Task.RETRAINING for item in plan.lifetimes) < 2


@pytest.mark.parametrize("name", ["window", "equal", "static", "static-history"])
def test_fixed_layouts_never_change(name: str) -> None:
    problem = problem_of(2)
    plan = answered(name, problem)
    assert all(held(problem, plan, step) == held(problem, plan, 0) for step in range(N_STEPS))


def test_a_layout_fitted_on_the_past_is_the_best_for_its_windows() -> None:
    problem, rng = problem_of(5), np.random.default_rng(0)
    past_rps = rng.uniform((20.0, 150.0), (60.0, 250.0), (2 * N_STEPS + 7, 2))
    pieces = [
        replace(
            problem,
            tenants=tuple(
                replace(one, arrivals_rps=past_rps[7 + first : 7 + first + N_STEPS, m])
                for m, one in enumerate(problem.tenants)
            ),
        )
        for first in (0, N_STEPS)
    ]
    best = best_held_set(pieces)
    assert best is not None
    plan = MIG_POLICIES["static-history"]().plan(Window(0, problem, Budget(), past_rps))
    assert plan.lifetimes == solve_static_among(problem, [best]).lifetimes


def test_a_layout_fitted_on_the_past_is_kept_whatever_comes() -> None:
    problem = problem_of(5)
    policy = MIG_POLICIES["static-history"]()
    first = policy.plan(Window(0, problem, Budget(), np.full((N_STEPS, 2), (20.0, 200.0))))
    after = replace(problem, initial=state_at(problem, first, N_STEPS))
    second = policy.plan(Window(1, after, Budget(), np.full((N_STEPS, 2), (200.0, 20.0)), (first,)))
    assert held(after, second, 5) == held(problem, first, N_STEPS - 1)


@pytest.mark.parametrize("n_past", [0, 3])
def test_a_short_past_is_enough_to_fit_a_layout(n_past: int) -> None:
    plan = MIG_POLICIES["static-history"]().plan(Window(0, problem_of(5), Budget(), np.full((n_past, 2), 100.0)))
    assert plan.status.has_plan


def test_an_equal_share_is_equal() -> None:
    problem = problem_of(3)
    own = held(problem, answered("equal", problem), 0)
    assert own["a"] == own["b"]


def test_an_equal_share_is_the_largest_that_leaves_room_to_retrain() -> None:
    with_room = problem_of(4)
    assert held(with_room, answered("equal", with_room), 0)["a"] == ["1g.5gb", "2g.10gb"]
    without = problem_of(4, retraining_s={})
    assert held(without, answered("equal", without), 0)["a"] == ["3g.20gb"]


def swinging() -> Problem:
    """First a has the load, then b."""
    high, low = np.full(60, 200.0), np.full(60, 20.0)
    capability = {"1g.5gb": 40.0, "2g.10gb": 85.0, "4g.20gb": 170.0}
    tenants = [
        tenant(name, np.concatenate(load), capability_rps=capability, retraining_s={}, overhead_s=1.0)
        for name, load in (("a", (high, low)), ("b", (low, high)))
    ]
    return window(*tenants, model=Reconfiguration.PHYSICAL)


def slices_of(problem: Problem, plan: MigPlan, step: int) -> dict[str, int]:
    profile = problem.gpu.profile
    return {name: sum(profile(p).compute_slices for p in own) for name, own in held(problem, plan, step).items()}


def test_reactive_follows_the_load_and_not_before_it_has_come() -> None:
    problem = swinging()
    plan = Reactive(n_seen=10).plan(Window(0, problem, Budget(), np.array([[200.0, 20.0]] * 20)))
    assert verify(problem, plan).violations == ()
    before, after = (slices_of(problem, plan, step) for step in (60, 100))
    assert before["a"] > before["b"]
    assert after["b"] > after["a"]


def test_reactive_decides_nothing_by_what_is_to_come() -> None:
    problem, cut = swinging(), 75
    altered = tuple(
        replace(t, arrivals_rps=np.concatenate([t.arrivals_rps[:cut], 7.0 + 0 * t.arrivals_rps[cut:]]))
        for t in problem.tenants
    )
    other = replace(problem, tenants=altered)
    plans = [Reactive(n_seen=10).plan(Window(0, p, Budget(), PAST_RPS)) for p in (problem, other)]
    assert all(held(problem, plans[0], step) == held(other, plans[1], step) for step in range(cut + 1))


def test_reactive_leaves_a_steady_load_alone() -> None:
    steady = [tenant(n, [100.0] * N_STEPS, retraining_s={}, overhead_s=1.0) for n in "ab"]
    problem = window(*steady, model=Reconfiguration.PHYSICAL)
    plan = MIG_POLICIES["reactive"]().plan(Window(0, problem, Budget(), PAST_RPS))
    assert {item.create_step for item in plan.lifetimes} == {0}


@pytest.mark.parametrize("name", MIG_POLICIES)
@pytest.mark.parametrize("seed", daily(range(5), range(1)))
def test_windows_follow_each_other(name: str, seed: int) -> None:
    first = problem_of(seed)
    plan = answered(name, first)
    state = state_at(first, plan, N_STEPS)
    second = replace(problem_of(seed + 50), initial=state)
    policy = MIG_POLICIES[name]()
    if policy.knows is Knows.RUN:
        policy = policy.prepared([first, problem_of(seed + 50)])
        plan = policy.plan(Window(0, first, Budget(), PAST_RPS))
        second = replace(second, initial=state_at(first, plan, N_STEPS))
    following = policy.plan(Window(1, second, Budget(max_nodes=200), PAST_RPS))
    assert following.status.has_plan
    assert verify(second, following).violations == ()


def test_no_equal_share_is_told() -> None:
    capability = ({"1g.5gb": 40.0}, {"2g.10gb": 80.0})
    tenants = [
        tenant(n, [9.0] * 8, capability_rps=c, min_profile=next(iter(c))) for n, c in zip("ab", capability, strict=True)
    ]
    assert not answered("equal", window(*tenants, model=Reconfiguration.PHYSICAL)).status.has_plan


def test_the_order_of_what_policies_are_worth_follows_from_what_they_may_do() -> None:
    problem = problem_of(5)
    value = {name: answered(name, problem).objective or 0.0 for name in MIG_POLICIES}
    assert value["equal"] <= value["static"] == pytest.approx(value["window"])
    assert value["window"] <= value["migrator"] == value["oracle"]


@pytest.mark.parametrize("seed", daily(range(3), range(1)))
def test_the_best_layout_in_hindsight_is_worth_most_over_all_windows(seed: int) -> None:
    problems = [problem_of(10 * seed + i, None if i != 1 else {}) for i in range(3)]
    best = best_held_set(problems)
    assert best is not None

    def worth(number: int) -> float:
        plans = [solve_static_among(problem, [number]) for problem in problems]
        return sum(plan.objective if plan.objective is not None else -np.inf for plan in plans)

    rng = np.random.default_rng(seed)
    others = rng.choice(1500, 8, replace=False)
    assert all(worth(int(other)) <= worth(best) * (1 + 1e-9) for other in others)


def test_one_window_in_hindsight_is_what_static_says() -> None:
    problem = problem_of(6)
    best = best_held_set([problem])
    assert best is not None
    assert solve_static_among(problem, [best]).objective == pytest.approx(solve(problem, "static").objective)


def test_static_names_the_first_window_for_whose_retrainings_no_layout_has_room() -> None:
    full = problem_of(1, retraining_s={"3g.20gb": 30.0})
    halves = [replace(problem_of(1), unavailable=(Unavailable(taken),)) for taken in ((0, 1, 2, 3), (4, 5, 6, 7))]
    for run, which in (
        ([problem_of(1), full, full], "window 1$"),
        (halves, "all windows together, though for each window's some has$"),
    ):
        with pytest.raises(EngineError, match=f"^static: no fixed layout has room for the retrainings of {which}"):
            MIG_POLICIES["static"]().prepared(run)


def test_static_keeps_its_layout_from_window_to_window() -> None:
    problem = problem_of(7)
    policy = MIG_POLICIES["static"]().prepared([problem, problem_of(8)])
    first = policy.plan(Window(0, problem, Budget(), PAST_RPS))
    state = PhysicalState(
        tuple(HeldInstance(i.placement, i.owner.tenant, 0) for i in first.lifetimes if i.is_inference)
    )
    second = replace(problem_of(8), initial=state)
    plan = policy.plan(Window(1, second, Budget(), PAST_RPS))
    assert held(second, plan, N_STEPS - 1) == held(problem, first, 0)


def test_the_documented_example_is_a_policy(tmp_path: Path) -> None:
    problem = problem_of(9)
    policy = policy_of(str(documented(tmp_path)))
    assert isinstance(policy, Policy)
    plan = policy.plan(Window(0, problem, Budget(max_nodes=50), PAST_RPS))
    assert (policy.name, verify(problem, plan).violations) == ("quick", ())


def test_a_policy_in_a_file_need_not_inherit(tmp_path: Path) -> None:
    text = documented(tmp_path).read_text("utf-8").replace("class Quick(Policy)", "class Quick")
    path = tmp_path / "bare.py"
    path.write_text(text, "utf-8")
    problem, policy = problem_of(9), policy_of(str(path))
    assert isinstance(policy, Policy)
    assert (policy.name, policy.knows, policy.traits) == ("quick", Knows.FORECAST, Traits())
    assert policy.prepared([problem]) == policy
    assert policy.plan(Window(0, problem, Budget(max_nodes=50), PAST_RPS)).status.has_plan


def test_what_a_policy_in_a_file_has_of_its_own_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from planner.policies.policy import Batching, Knows, Traits\n"
        "class POLICY:\n"
        "    name, knows, traits, plan = 'own', Knows.RUN, Traits(Batching.GIVEN, pushes=True), len\n"
        "    def prepared(self, run):\n"
        "        self.name = f'prepared with {len(run)}'\n"
        "        return self\n",
        "utf-8",
    )
    policy = policy_of(str(path))
    assert isinstance(policy, Policy)
    assert policy.traits == Traits(Batching.GIVEN, pushes=True)
    assert policy.prepared([problem_of(9)] * 2).name == "prepared with 2"


def test_every_policy_is_known_by_its_name() -> None:
    assert [make().name for make in POLICIES.values()] == list(POLICIES)
    assert list(POLICIES) == [*MIG_POLICIES, "ekya", "astraea", "whole", "time-sharing"]


def test_what_looks_ahead_or_plans_a_window_by_its_past_needs_hindsight() -> None:
    assert {name for name, make in POLICIES.items() if make().needs_hindsight} == {"reactive", "static", "oracle"}


def documented(folder: Path) -> Path:
    text = (Path(__file__).parents[3] / "docs" / "policies.md").read_text("utf-8")
    path = folder / "quick.py"
    path.write_text(text.split("```python\n")[1].split("```")[0], "utf-8")
    return path


@pytest.mark.parametrize(
    ("named", "text", "message"),
    [
        ("statik", None, "policy 'statik' (did you mean static?): known are migrator, "),
        ("nobody", None, f"policy 'nobody': known are {', '.join([*POLICIES, *VARIANTS])}, or a file"),
        ("gone.py", None, "there is no such file"),
        ("bad.py", "POLICY = 3", "cannot be loaded: TypeError"),
        ("none.py", "", "cannot be loaded: AttributeError"),
        ("half.py", "class POLICY:\n    name = 'half'", "needs a name, a str, and knows, a Knows"),
        (
            "mute.py",
            "from planner.policies.policy import Knows\nclass POLICY:\n    name, knows = 'mute', Knows.PAST",
            "needs plan, a method that takes a Window",
        ),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, named: str, text: str | None, message: str) -> None:
    path = tmp_path / named
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(PolicyError, match=re.escape(message)):
        policy_of(str(path) if named.endswith(".py") else named)


@pytest.mark.parametrize("items", daily(SHARED, SHARED[::2]), ids=str)
@pytest.mark.parametrize("name", MIG_POLICIES)
def test_no_policy_touches_what_is_not_ours(name: str, items: tuple[Unavailable, ...]) -> None:
    problem = replace(problem_of(1), unavailable=items)
    plan = answered(name, problem)
    if plan.status.has_plan:
        assert verify(problem, plan).violations == ()
    assert plan.status.has_plan
