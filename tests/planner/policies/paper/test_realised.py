"""A paper plan on hardware: when held sets change, where retrainings sit, and what is kept."""

from __future__ import annotations

from windows import tenant, window

from executor.mig import Placement
from planner.engines.physical.held_sets import Entries
from planner.engines.schedule import WindowFacts
from planner.plan import InferenceSpan, MigPlan, RetrainingSpan, Status, TenantSchedule
from planner.policies.paper.realised import Realised, busy_in, realised
from planner.problem import HeldInstance, PhysicalState, Problem, Reconfiguration, Retraining

N_STEPS = 30
OMEGA = 3

Spans = list[tuple[int, str]]


def problem_of(initial: PhysicalState | None = None, **changes: object) -> Problem:
    tenants = [tenant(name, [90.0] * N_STEPS, overhead_s=0.5, **changes) for name in "ab"]  # type: ignore[arg-type]
    return window(*tenants, model=Reconfiguration.PHYSICAL, initial=initial, switch_s=2.5)


def schedule_of(name: str, spans: Spans, run: RetrainingSpan | None, n_steps: int) -> TenantSchedule:
    ends = [*(start for start, _ in spans[1:]), n_steps]
    held = (InferenceSpan(at, end, tuple(what.split())) for (at, what), end in zip(spans, ends, strict=True))
    return TenantSchedule(name, tuple(held), run)


def paper_plan(a: Spans, b: Spans, *runs: RetrainingSpan | None, n_steps: int = N_STEPS) -> MigPlan:
    own = [*runs, None, None]
    both = (schedule_of("a", a, own[0], n_steps), schedule_of("b", b, own[1], n_steps))
    return MigPlan(Status.FEASIBLE, 0.0, 0.0, 0.0, "by hand", Reconfiguration.PAPER, n_steps, schedules=both)


def realise(problem: Problem, plan: MigPlan) -> Realised:
    found = realised(WindowFacts.of(problem), plan)
    assert found is not None
    return found


def profiles(entries: Entries, m: int) -> list[str]:
    return sorted(place.profile.name for place, owner in entries if owner == m)


def place(text: str) -> Placement:
    return problem_of().gpu.placement(text)


def test_a_change_that_is_wanted_too_early_waits_and_then_takes_what_is_wanted_then() -> None:
    plan = paper_plan([(0, "3g.20gb"), (5, "4g.20gb"), (6, "2g.10gb"), (7, "1g.5gb")], [(0, "3g.20gb")])
    held = realise(problem_of(retraining_s={}), plan).held
    assert [(step, profiles(entries, 0)) for step, entries in held] == [
        (0, ["3g.20gb"]),
        (5, ["4g.20gb"]),
        (5 + OMEGA, ["1g.5gb"]),
    ]


def test_a_wish_that_is_over_before_it_may_come_is_left_out() -> None:
    plan = paper_plan([(0, "3g.20gb"), (5, "4g.20gb"), (6, "2g.10gb"), (7, "4g.20gb")], [(0, "3g.20gb")])
    held = realise(problem_of(retraining_s={}), plan).held
    assert [step for step, _ in held] == [0, 5]


def test_what_can_be_kept_is_kept() -> None:
    state = PhysicalState((HeldInstance(place("3g.20gb@4"), "a", 0), HeldInstance(place("2g.10gb@2"), "b", 0)))
    plan = paper_plan([(0, "3g.20gb"), (9, "2g.10gb 3g.20gb")], [(0, "2g.10gb")])
    held = realise(problem_of(state, retraining_s={}), plan).held
    assert [step for step, _ in held] == [0, 9]
    assert held[0][1] | {(place("2g.10gb@0"), 0)} == held[1][1]


def test_new_instances_come_to_idle_slices_where_they_can() -> None:
    # b's 2g becomes a 1g; of the places for it only 6 is idle before.
    state = PhysicalState((HeldInstance(place("4g.20gb@0"), "a", 0), HeldInstance(place("2g.10gb@4"), "b", 0)))
    held = realise(
        problem_of(state, retraining_s={}), paper_plan([(0, "4g.20gb")], [(0, "2g.10gb"), (9, "1g.5gb")])
    ).held
    assert held[1][1] - held[0][1] == {(place("1g.5gb@6"), 1)}


def test_nothing_changes_before_the_first_step_that_allows_it() -> None:
    held = (HeldInstance(place("3g.20gb@4"), "a", 2), HeldInstance(place("2g.10gb@2"), "b", 2))
    problem = problem_of(PhysicalState(held, next_epoch_step=4), retraining_s={})
    plan = paper_plan([(0, "2g.10gb")], [(0, "3g.20gb")], n_steps=N_STEPS - 4)
    assert [step for step, _ in realise(problem, plan).held] == [0, 4]


def test_a_retraining_starts_when_the_plan_says_and_has_room() -> None:
    run = RetrainingSpan("2g.10gb", 10, 10 + OMEGA + 2, "full")
    plan = paper_plan([(0, "4g.20gb"), (10, "2g.10gb"), (15, "4g.20gb")], [(0, "3g.20gb")], run)
    found = realise(problem_of(), plan)
    ((retraining, where),) = found.placed
    assert (retraining.start_step, retraining.end_step) == (10, 15)
    assert all(not where.overlaps(other) for step, entries in found.held if step == 10 for other, _ in entries)


def test_a_retraining_sits_where_most_of_what_is_wanted_fits() -> None:
    # Beside a 2g at 0 or 2 there is no room for the 4g.
    run = RetrainingSpan("2g.10gb", 5, 5 + OMEGA + 2, "full")
    plan = paper_plan([(0, "4g.20gb")], [(0, "1g.5gb")], run)
    assert [str(where) for _, where in realise(problem_of(), plan).placed] == ["2g.10gb@4"]


def test_a_wish_waits_for_the_retraining_that_is_about_to_start() -> None:
    run = RetrainingSpan("2g.10gb", 10, 10 + OMEGA + 2, "full")
    plan = paper_plan([(0, "1g.5gb"), (9, "4g.20gb"), (10, "2g.10gb")], [(0, "3g.20gb")], run)
    held = realise(problem_of(), plan).held
    assert [(step, profiles(entries, 0)) for step, entries in held] == [(0, ["1g.5gb"]), (10, ["2g.10gb"])]


def test_the_best_that_fits_stands_for_what_does_not() -> None:
    # With a 2g that may not move, 1g + 3g + 3g cannot be: the plan that asks for it is no paper plan, but it tells.
    run = RetrainingSpan("2g.10gb", 0, OMEGA + 2, "full")
    found = realise(problem_of(), paper_plan([(0, "3g.20gb")], [(0, "3g.20gb")], run))
    assert found.held[0][0] == 0
    own = sorted(profile for m in (0, 1) for profile in profiles(found.held[0][1], m))
    assert own == ["2g.10gb", "3g.20gb"]


def test_what_retrains_together_is_told_moment_by_moment() -> None:
    first = (Retraining(0, 1, "2g.10gb", 2, 6), place("2g.10gb@0"))
    second = (Retraining(1, 1, "2g.10gb", 4, 8), place("2g.10gb@2"))
    alone, both = frozenset({first[1]}), frozenset({first[1], second[1]})
    assert busy_in((first, second), 3, 6) == {alone, both}


def test_no_way_is_none() -> None:
    # Two 4g to retrain on at once are no layout.
    runs = (RetrainingSpan("4g.20gb", 0, OMEGA + 2, "full"),) * 2
    problem = problem_of(retraining_s={"4g.20gb": 2.0})
    assert realised(WindowFacts.of(problem), paper_plan([(0, "1g.5gb")], [(0, "1g.5gb")], *runs)) is None
