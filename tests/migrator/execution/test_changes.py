from __future__ import annotations

import numpy as np
import pytest

from executor.catalogue import gpu_model
from migrator.execution.changes import changes_of
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import HeldInstance, Owner, PhysicalState, Pool, Problem, Reconfiguration, Task, TenantTerms

GPU = gpu_model("a100-80gb")
A, B = Owner("a", Task.INFERENCE), Owner("b", Task.INFERENCE)
TRAINING = Owner("a", Task.RETRAINING)


def at(text: str):
    return GPU.placement(text)


def plan_of(*lifetimes: Lifetime, n_steps: int = 100, next_epoch_step: int = 0) -> MigPlan:
    return MigPlan(
        status=Status.FEASIBLE,
        objective=1.0,
        claimed_bound=1.0,
        solve_s=0.0,
        engine="test",
        reconfiguration=Reconfiguration.PHYSICAL,
        n_steps=n_steps,
        lifetimes=lifetimes,
        next_epoch_step=next_epoch_step,
    )


PLAN = plan_of(
    Lifetime(at("2g.20gb@0"), A, 0, 0, 100),
    Lifetime(at("2g.20gb@2"), B, 0, 0, 95),
    Lifetime(at("1g.10gb@4"), TRAINING, 10, 15, 40, "full"),
    Lifetime(at("3g.40gb@4"), B, 93, 104, 100),
    next_epoch_step=104,
)


def test_there_is_a_change_at_every_step_where_something_starts_or_ends() -> None:
    assert [change.planned_s for change in changes_of(PLAN, 1000.0, 2.0)] == [1000, 1020, 1080, 1186, 1190]


def test_the_first_change_is_at_step_0_even_if_nothing_starts_there() -> None:
    assert changes_of(plan_of(), 7.0, 1.0)[0].planned_s == 7.0


def test_a_change_says_who_holds_what_from_then_on() -> None:
    layouts = [[str(p) for p in change.layout.layout] for change in changes_of(PLAN, 0.0, 1.0)]
    assert layouts[1] == ["2g.20gb@0", "2g.20gb@2", "1g.10gb@4"]
    assert layouts[4] == ["2g.20gb@0", "3g.40gb@4"]


def test_promises_are_made_for_what_begins() -> None:
    assert changes_of(PLAN, 0.0, 1.0)[1].promised_s == ((at("1g.10gb@4"), 15.0),)


def test_a_retraining_that_was_in_progress_is_not_begun_again() -> None:
    running = Lifetime(at("1g.10gb@4"), TRAINING, 0, 0, 30)
    opening = changes_of(plan_of(Lifetime(at("2g.20gb@0"), A, 0, 0, 100), running), 0.0, 1.0)[0]
    assert opening.layout.owner(at("1g.10gb@4")) == TRAINING
    assert [str(placement) for placement, _ in opening.promised_s] == ["2g.20gb@0"]


AB = Owner("a", Task.INFERENCE, ("b",))


def problem_of(next_epoch_step: int) -> Problem:
    """Tenant a holds an instance alone; from now on it is in a pool with b."""
    tenants = tuple(TenantTerms(name, np.ones(100), {"2g.20gb": 9.0}, 0.5, 1.0, "1g.10gb") for name in ("a", "b"))
    pool = Pool(("a", "b"), {"2g.20gb": {"a": 8.0, "b": 8.0}}, overhead_s=3.0)
    state = PhysicalState((HeldInstance(at("2g.20gb@0"), "a", 0),), next_epoch_step=next_epoch_step)
    return Problem(GPU, 1.0, 100, Reconfiguration.PHYSICAL, tenants, switch_s=1.0, initial=state, pools=(pool,))


@pytest.mark.parametrize("first", [0, 6])
def test_what_a_pool_keeps_of_others_is_its_own_from_the_first_step_at_which_anything_may_change(first: int) -> None:
    changes = changes_of(plan_of(Lifetime(at("2g.20gb@0"), AB, 0, 0, 100)), 1000.0, 1.0, problem=problem_of(first))
    owners = [(change.planned_s, change.layout.owner(at("2g.20gb@0"))) for change in changes]
    assert owners == [*([(1000.0, A)] if first else []), (1000.0 + first, AB)]
    assert changes[-1].promised_s == ((at("2g.20gb@0"), 1000.0 + first + 4.0),)
