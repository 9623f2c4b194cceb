"""Schedules: what a tenant may retrain, and which retrainings can stand beside each other and those in progress."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from claims import Claims
from problems import paper_problem, physical_problem, with_checkpoints, with_salvage
from windows import tenant, window

from planner.counts import feasible_multisets, multiset_of
from planner.engines.schedule import Schedule, WindowFacts, choices_of, earliest_schedule, may_start
from planner.problem import Retraining


def some_schedule(facts: WindowFacts, seed: int) -> Schedule:
    rng = np.random.default_rng(seed)
    ways = [own[int(rng.integers(len(own)))] for own in facts.choices if own]
    return tuple(way.at(int(rng.integers(facts.n_steps - way.n_steps + 1))) for way in ways if way is not None)


def test_retrainings_can_stand_where_every_step_holds_a_layout() -> None:
    with Claims("retrainings beside each other") as claim:
        for seed in range(60):
            check_standing(claim, seed)


def check_standing(claim: Claims, seed: int) -> None:
    facts = WindowFacts.of(physical_problem(seed, n_tenants=1 + seed % 4))
    schedule = some_schedule(facts, seed)

    def fits(places) -> bool:
        spans = [*zip(schedule, places, strict=True), *facts.running]
        return all(
            facts.problem.gpu.fits(place for run, place in spans if run.start_step <= step < run.end_step)
            for step in range(facts.n_steps)
        )

    ways = list(product(*map(facts.placements, schedule)))
    stand = [facts.can_stand(tuple(zip(schedule, places, strict=True))) for places in ways]
    claim(stand == list(map(fits, ways)), f"seed {seed}: {stand}, which is not what layouts hold")


def test_what_must_retrain_has_no_choice_of_not_retraining() -> None:
    must, may = tenant("a"), replace(tenant("b"), retraining_required=False)
    problem = window(must, may, tenant("c", retraining_s={}))
    assert [None in choices_of(problem, m) for m in range(3)] == [False, True, True]
    assert choices_of(problem, 2) == (None,)


def test_choices_start_at_step_0_and_end_within_the_window() -> None:
    problem = window(tenant(retraining_s={"1g.5gb": 3.0, "2g.10gb": 2.0, "3g.20gb": 600.0}))
    assert [(way.profile, way.start_step, way.end_step) for way in choices_of(problem, 0) if way] == [
        ("1g.5gb", 0, 3),
        ("2g.10gb", 0, 2),
    ]


def test_a_retraining_may_start_as_long_as_it_ends_in_time() -> None:
    problem = window(tenant(retraining_s={"1g.5gb": 2.0}))
    (way,) = choices_of(problem, 0)
    assert way is not None
    starts = [start for start in range(-1, problem.n_steps + 1) if may_start(problem, 0, way.at(start))]
    assert starts == list(range(problem.n_steps - 1))


def test_the_earliest_schedule_is_one_of_the_tenants_choices() -> None:
    with Claims("earliest schedules") as claim:
        for seed in range(20):
            problem = paper_problem(seed)
            schedule = earliest_schedule(problem) or ()
            claim(list(schedule) == sorted(schedule), f"seed {seed}: {schedule} is not in order")
            is_theirs = all(may_start(problem, retraining.tenant, retraining) for retraining in schedule)
            claim(is_theirs, f"seed {seed}: {schedule} has what may not start")


@pytest.mark.parametrize("swap_s", [0.0, 1.5])
def test_all_starts_at_once_earn_what_each_earns_by_itself(swap_s: float) -> None:
    with Claims(f"starts with swaps of {swap_s} s") as claim:
        for seed in range(20):
            check_starts(claim, seed, swap_s)


def check_starts(claim: Claims, seed: int, swap_s: float) -> None:
    problem = with_checkpoints(physical_problem(seed), seed)
    facts = WindowFacts.of(replace(problem, tenants=tuple(replace(terms, swap_s=swap_s) for terms in problem.tenants)))
    for m, table in enumerate(facts.gains):
        gains = table.steady
        earned = np.concatenate([np.zeros_like(gains[:, :1]), np.cumsum(gains, axis=1)], axis=1)
        for way in facts.ways(m):
            found = facts.by_start(way, gains, earned)
            single = [facts.along(way.at(start), gains).sum(axis=0) for start in range(found.shape[1])]
            is_same = found == pytest.approx(np.array(single).T, rel=1e-12, abs=1e-9)
            claim(is_same, f"seed {seed}: tenant {m} earns {found} on {way.profile}, {single} start by start")


def test_a_way_adds_its_salvage_and_step_by_step_the_most_that_its_checkpoints_earn_more() -> None:
    n_with_checkpoints = 0
    with Claims("what ways add") as claim:
        for make, seed in product((paper_problem, physical_problem), range(12)):
            facts = WindowFacts.of(with_salvage(with_checkpoints(make(seed), seed), seed))
            for way in (way for m in facts.movers for way in facts.ways(m)):
                expected = [added_by(facts, way.at(start)) for start in range(facts.n_steps - way.n_steps + 1)]
                found = facts.added(way)
                claim(found == pytest.approx(expected), f"seed {seed}: {way} adds {found}, step by step {expected}")
                n_with_checkpoints += bool(facts.problem.tenants[way.tenant].kept_checkpoints(way.level))
    assert n_with_checkpoints > 20


def added_by(facts: WindowFacts, run: Retraining) -> float:
    """What holdings that fit beside the retraining earn more by its checkpoints, and after it any; and its salvage."""
    problem, table = facts.problem, facts.gains[run.tenant]
    fitting = feasible_multisets(problem.gpu, problem.profile_names)
    own = multiset_of(problem, [run.profile])
    beside = [tuple(map(sum, zip(multiset, own, strict=True))) in fitting for multiset in table.multisets]
    total, level, changes = problem.tenants[run.tenant].salvages[run.level], 0, dict(facts.changes(run))
    for step in range(run.start_step, facts.n_steps):
        level = changes.get(step, level)
        least, holdings = (0, beside) if step < run.end_step else (run.level, slice(None))
        kinds = [gains[:, step, holdings] for gains in (table.steady, table.changed) if gains is not None]
        total += max(0.0, *(float((own[level] - own[least]).max(initial=0.0)) for own in kinds))
    return total
