from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from migrator.config.reading import validate_config
from migrator.errors import InfeasibleError
from migrator.execution.ahead import plan_through
from migrator.execution.planning import Solving, require_plan, with_begun, with_ends
from migrator.execution.windows import PlannedWindow
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from planner.partition import Judged
from planner.plan import Lifetime, Rule, Status
from planner.problem import Owner, Reconfiguration, Task
from planner.replan import remaining_plan, remaining_problem
from planner.solve import solve
from planner.verify import verify
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_posing import at, plan_of
from tests.planner.problems import physical_problem
from tests.seeds import daily


def assembled() -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, {"window_s": 30}), "small.yaml"), "small.yaml")


PAPER = Solving(Reconfiguration.PAPER, "greedy")


def test_the_windows_before_the_last_are_planned_as_a_run_does_it() -> None:
    as_run = plan_through(*assembled(), 1)
    otherwise = plan_through(*assembled(), 1, Solving(engine="greedy"))
    assert [planned.plan.engine for planned in otherwise] == ["physical", "greedy"]
    assert otherwise[0].plan.lifetimes == as_run[0].plan.lifetimes
    assert otherwise[1].problem.initial == as_run[1].problem.initial


def test_only_the_window_that_is_asked_about_has_to_keep_its_floors() -> None:
    floor = {"tenants.0.arrivals.rate_rps": 30_000, "tenants.0.min_slo_attainment": {"share": 0.9, "per": "step"}}
    config = validate_config(changed(SMALL, {"window_s": 30, **floor}), "small.yaml")
    before, asked = plan_through(*assemble(config, "small.yaml"), 1, Solving())
    assert (before.is_planned, bool(before.plan.missed)) == (True, True)
    assert asked.plan.status is Status.INFEASIBLE


def test_a_window_without_a_plan_says_what_the_nearest_one_lacks() -> None:
    changes = {f"tenants.{place}.min_slo_attainment": {"share": 0.999} for place in (0, 1)}
    changes |= {"tenants.0.arrivals.rate_rps": 2200, "tenants.1.arrivals.scale.factor": 16.0, "window_s": 30}
    config = validate_config(changed(SMALL, changes), "small.yaml")
    (asked,) = plan_through(*assemble(config, "small.yaml"), 0, Solving())
    assert asked.plan.status is Status.TIMEOUT
    with pytest.raises(InfeasibleError, match=r"^window 0: engine physical found no plan that keeps .*: vision: 99\.2"):
        require_plan(asked)
    judged = tuple(Judged(partition, None) for partition in (((0,), (1,)), ((0, 1),)))
    with pytest.raises(InfeasibleError, match="; this is with the pools vision, language; none of 2 ways"):
        require_plan(replace(asked, judged=judged))


def test_a_paper_window_starts_from_the_profiles_held() -> None:
    first, second = plan_through(*assembled(), 1, PAPER)
    assert second.problem.paper_initial is not None
    held = {
        name: sorted(item.placement.profile.name for item in first.next_state.held if item.tenant == name)
        for name in ("vision", "language")
    }
    assert {name: sorted(names) for name, names in second.problem.paper_initial.held.items()} == held
    assert second.is_planned


def test_a_paper_retraining_takes_its_start_up_as_well() -> None:
    physical, paper = (plan_through(*assembled(), 0, how)[0].problem.tenants[0] for how in (None, PAPER))
    assert physical.retraining_start_s is not None
    with_start_s = {name: s + physical.retraining_start_s for name, s in physical.options[0].time_s.items()}
    assert dict(paper.options[0].time_s) == pytest.approx(with_start_s)


def test_a_retraining_that_ended_early_is_over_for_the_plan() -> None:
    own = Owner("vision", Task.RETRAINING)
    plan = plan_of(Lifetime(at("1g.10gb@0"), own, 2, 5, 9, "full"))
    setting, traffic = assembled()
    (window, *_) = plan_through(setting, traffic, 0)
    (ended,) = with_ends(replace(window, plan=plan), {own: 4}, 4).plan.lifetimes
    assert (ended.create_step, ended.serve_step, ended.end_step) == (2, 4, 4)


def test_a_retraining_that_began_before_its_step_is_under_way_and_not_offered_again() -> None:
    own, other = Owner("vision", Task.RETRAINING), Owner("language", Task.RETRAINING)
    plan = plan_of(Lifetime(at("1g.10gb@0"), own, 6, 8, 19, "full"), Lifetime(at("1g.10gb@1"), other, 6, 8, 19, "full"))
    config = changed(SMALL, {"tenants.1.retraining": {"samples": 100}})
    setting, traffic = assemble(validate_config(config, "small.yaml"), "small.yaml")
    (window, *_) = plan_through(setting, traffic, 0)
    planned = replace(window, plan=plan)
    begun, kept = with_begun(planned, {own}, 4).plan.lifetimes
    assert (begun.create_step, begun.serve_step, begun.end_step) == (3, 5, 16)
    assert kept == plan.lifetimes[1]
    left = remaining_problem(window.problem, with_begun(planned, {own}, 4).plan, 4)
    assert [item.tenant for item in left.physical_initial.retrainings] == ["vision"]
    assert with_begun(planned, {own, other}, 7).plan == plan  # begun when it was to


def test_a_retraining_that_goes_on_is_not_over_for_the_plan() -> None:
    plan = plan_of(Lifetime(at("1g.10gb@0"), Owner("vision", Task.RETRAINING), 2, 5, 9, "full"))
    setting, traffic = assembled()
    (window, *_) = plan_through(setting, traffic, 0)
    assert with_ends(replace(window, plan=plan), {}, 4).plan == plan


def test_a_change_waits_for_a_retraining_that_is_late_and_later_ones_for_the_change() -> None:
    tenant, other = Owner("vision", Task.INFERENCE), Owner("language", Task.INFERENCE)
    own = Owner("vision", Task.RETRAINING)
    (window, *_) = plan_through(*assembled(), 0)
    plan = plan_of(
        Lifetime(at("1g.10gb@0"), own, 2, 5, 9, "full"),
        Lifetime(at("1g.10gb@1"), tenant, 0, 0, 9),
        Lifetime(at("1g.10gb@2"), other, 0, 0, 30),
        Lifetime(at("1g.10gb@0"), tenant, 9, 12, 14),
        Lifetime(at("1g.10gb@0"), other, 14, 17, 29),
        Lifetime(at("1g.10gb@1"), Owner("language", Task.RETRAINING), 14, 17, 25, "full"),
        Lifetime(at("1g.10gb@0"), tenant, 29, 32, 30),
    )
    epoch_steps = window.problem.epoch_steps
    assert epoch_steps == 3
    for end_step, second in {9: 14, 10: 14, 12: 15}.items():
        late = with_ends(replace(window, plan=plan), {own: end_step}, 8).plan.lifetimes
        serving = [("0", 2, end_step), ("1", 0, end_step), ("2", 0, 30), ("0", end_step, second)]
        serving += [("0", second, 29), ("1", second, second + 11), ("0", 29, 30)]
        assert [(str(item.placement)[-1], item.create_step, item.end_step) for item in late] == serving
        assert [item.serve_step - item.create_step for item in late] == [3, 0, 0, 3, 3, 3, 3]
    too_late = with_ends(replace(window, plan=plan), {own: 20}, 8).plan.lifetimes  # the other one would end at 34
    assert [(item.create_step, item.end_step) for item in too_late[3:]] == [(20, 23), (23, 30)]
    over = with_ends(replace(window, plan=plan), {own: 30}, 8).plan.lifetimes
    assert [(item.create_step, item.end_step) for item in over] == [(2, 30), (0, 30), (0, 30)]


@pytest.fixture(scope="module")
def window() -> PlannedWindow:
    return plan_through(*assembled(), 0)[0]


@pytest.mark.parametrize("seed", daily(range(60), range(0, 60, 3)))
def test_a_plan_can_be_followed_on_while_a_retraining_is_late(window: PlannedWindow, seed: int) -> None:
    problem = physical_problem(seed, 12)
    plan = solve(problem)
    runs = [item for item in plan.lifetimes if not item.is_inference and item.end_step < 11]
    for run, extra in product(runs, (1, 3)):
        for step in range(run.create_step + 1, min(run.end_step + extra, 12)):
            planned = with_ends(
                replace(window, problem=problem, plan=plan), {run.owner: min(12, run.end_step + extra)}, step
            )
            rest, left = remaining_problem(problem, planned.plan, step), remaining_plan(planned.plan, step)
            assert {run.tenant: run.end_step for run in rest.physical_initial.retrainings}[run.owner.tenant] > 0
            broken = verify(rest, left).broken_rules
            lost = len(planned.plan.lifetimes) < len(plan.lifetimes)  # another retraining came too late
            assert [one for one in broken if one.rule not in (Rule.OBJECTIVE, *[Rule.RETRAINING] * lost)] == []


def test_plans_one_after_the_other_skip_and_fall_behind() -> None:
    changes = {"retraining.required": False, "retraining.drift": "compound", "retraining.salvage": False}
    changes |= {"tenants.0.retraining.samples": 200_000}
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small.yaml"), "small.yaml")
    first, second = plan_through(setting, traffic, 1)
    assert first.retrained == {}
    assert second.problem.tenants[0].accuracy_before == pytest.approx(0.6 * 0.6 / 0.9)
