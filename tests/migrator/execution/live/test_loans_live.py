"""Loans of a live run, in memory: nothing computes twice in one instance, and what was lent serves again in time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("zmq")

from migrator.execution.happenings import Failed, Finished
from tests.migrator.execution.live.loans_world import Server, Trainer, World
from tests.migrator.execution.live.test_workers import JOINT
from tests.seeds import examples

LANES = (0, 1)


class Loans(RuleBasedStateMachine):
    """What a loop may ask for, what processes and messages may do, in any order: one loan at a time, by its word."""

    def __init__(self) -> None:
        super().__init__()
        self.folder, self.patch = Path(tempfile.mkdtemp()), pytest.MonkeyPatch()
        self.world = World(self.folder, self.patch)
        self.there: dict[tuple[int, str], bool] = {}  # who serves where, and whether it waits to be started again
        self.loan: tuple[int, str, str] | None = None
        self.n_loans = 0

    def teardown(self) -> None:
        """In the end, once all may do what they can, nothing is lent any more."""
        try:
            if self.loan is not None:
                self.loan_ends_with_its_window()
            for one in self.world.processes.values():
                one.is_stopped = False
            self.world.settle(4.0)
            assert not any(map(self.world.is_lent, LANES))
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    @initialize(tenants=st.sampled_from(["a", "ab", "ab"]), is_lent=st.booleans())
    def all_serve(self, tenants: str, is_lent: bool) -> None:
        for lane in LANES:
            for tenant in tenants:
                self.world.serve(lane, tenant, is_shared=len(tenants) > 1)
                self.there[lane, tenant] = True
        self.world.settle(1.0)
        if is_lent:
            self.lend(0, "a")
            self.world.settle(0.5)

    # --- the loop

    @precondition(lambda self: self.loan is None)
    @rule(lane=st.sampled_from(LANES), tenant=st.sampled_from("ab"))
    def lend(self, lane: int, tenant: str) -> None:
        if any(own == tenant for _, own in self.there):
            self.n_loans += 1
            self.loan = lane, tenant, self.world.lend(lane, tenant, self.n_loans)

    @precondition(lambda self: self.loan is not None)
    @rule()
    def loan_ends_with_its_window(self) -> None:
        assert self.loan is not None
        _, tenant, name = self.loan
        self.world.workers.stop(name, tenant)
        self.loan = None

    @rule()
    def hears(self) -> None:
        for one in self.world.hear():
            if self.loan is not None and one.instance_id == self.loan[2] and isinstance(one, Failed | Finished):
                if isinstance(one, Finished):
                    self.world.workers.stop(self.loan[2], self.loan[1])
                self.loan = None
            elif isinstance(one, Failed) and one.tenant is not None:
                self.there[int(one.instance_id[3]), one.tenant] = False

    @rule()
    def starts_again_who_failed(self) -> None:
        for (lane, tenant), serves in self.there.items():
            if not serves:
                self.world.serve(lane, tenant, is_shared=self.is_shared)
                self.there[lane, tenant] = True

    @property
    def is_shared(self) -> bool:
        return len({tenant for _, tenant in self.there}) > 1

    @rule()
    def b_goes_or_comes(self) -> None:
        if self.is_shared:
            for lane in LANES:
                self.world.workers.drain(f"1c@{lane}#0", "b")
                self.world.workers.stop(f"1c@{lane}#0", "b")
                del self.there[lane, "b"]
            if self.loan is not None and self.loan[1] == "b":
                self.loan_ends_with_its_window()
        else:
            for lane in LANES:
                self.world.serve(lane, "b")
                self.there[lane, "b"] = True
        for lane in LANES:
            self.world.workers.serve_by(f"1c@{lane}#0", "a", JOINT if self.is_shared else None)

    # --- processes, messages and time

    @rule(tenants=st.lists(st.sampled_from("ab"), min_size=1, max_size=9))
    def requests_come_and_are_handed_out(self, tenants: list[str]) -> None:
        for tenant in tenants:
            self.world.ask(tenant)
        self.world.deliver(0)

    @rule(most=st.integers(0, 4))
    def some_is_delivered(self, most: int) -> None:
        self.world.deliver(most)

    @rule(numbers=st.lists(st.integers(0, 40), max_size=6))
    def some_act(self, numbers: list[int]) -> None:
        alive = [one for one in self.world.processes.values() if one.is_alive]
        for number in numbers:
            self.world.act(alive[number % len(alive)]) if alive else None

    @rule(rounds=st.integers(1, 6), well=st.booleans(), ends=st.booleans())
    def trainers_go_on_alone(self, rounds: int, well: bool, ends: bool) -> None:
        """No server answers meanwhile."""
        for _ in range(rounds):
            for one in [*self.world.processes.values()]:
                if isinstance(one, Trainer):
                    self.world.act(one)
                    self.world.ends(one, well=well) if ends else None
            self.world.deliver()
            self.hears()

    @rule(number=st.integers(0, 40), how=st.sampled_from(["kill", "stop", "go on", "go on"]))
    def one_is_struck(self, number: int, how: str) -> None:
        alive = [one for one in self.world.processes.values() if one.is_alive]
        if not alive:
            return
        one = alive[number % len(alive)]
        if how == "kill":
            self.world.kill(one)
        else:
            one.is_stopped = how == "stop"

    @rule(for_s=st.sampled_from([0.0, 0.1, 0.5, 2.5, 6.0]))
    def time_passes(self, for_s: float) -> None:
        self.world.step(for_s)

    @rule()
    def all_settles(self) -> None:
        for _ in range(4):
            for one in [*self.world.processes.values()]:
                self.world.act(one)
            self.world.deliver()
            self.hears()

    # --- what is true

    @invariant()
    def nothing_computes_twice_in_one_instance(self) -> None:
        for lane in LANES:
            own = self.world.computing(lane)
            assert len(own) <= 1, own

    @invariant()
    def every_request_is_in_one_place(self) -> None:
        for queue in self.world.dispatcher._queues.values():
            queue.check_integrity()


Loans.TestCase.settings = settings(derandomize=True, max_examples=examples(100), stateful_step_count=50, deadline=None)
TestLoans = Loans.TestCase


# --- how soon what was lent serves again

SOON_S = 1.0


def lent(world: World, *, by_s: float = 0.01) -> Trainer:
    """The trainer, at work on a loan of the first instance, which both tenants share with the second."""
    for lane in LANES:
        for tenant in "ab":
            world.serve(lane, tenant)
    world.settle(1.0)
    world.lend(0, "a", 1)
    world.settle(1.0, by_s)
    (trainer,) = (one for one in world.processes.values() if isinstance(one, Trainer))
    assert trainer.computes
    return trainer


def passes_until(world: World, is_so: Callable[[], bool], most_s: float = 200.0) -> float:
    """When it is so, in seconds of the run."""
    until_s = world.clock.now_s + most_s
    while not is_so() and world.clock.now_s < until_s:
        world.settle(0.01, 0.01)
    assert is_so()
    return float(world.clock.now_s)


def served_in(world: World, lane: int) -> bool:
    """Whether a batch goes there now."""
    for tenant in "ab" * 4:
        world.ask(tenant)
    world.deliver()
    return any(isinstance(one, Server) and one.lane == f"uuid-{lane}" and one.batch for one in world.processes.values())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        yield World(tmp_path, patch)


@pytest.mark.parametrize("how", ["killed", "stopped", "fails", "learns"])
def test_an_instance_serves_again_within_a_second_of_what_noticed_that_its_trainer_was_struck(
    world: World, how: str
) -> None:
    trainer = lent(world)
    noticed_s = world.clock.now_s
    if how == "killed":
        world.kill(trainer)
    elif how == "stopped":
        trainer.is_stopped = True
        (noticed_s,) = (own.until_s for _, own in world.workers._training)
        world.settle(noticed_s - world.clock.now_s - 0.05)
        assert world.is_lent(0)
    else:
        world.settle(0.1, 0.01)
        world.ends(trainer, well=how == "learns")
    free_s = passes_until(world, lambda: not world.is_lent(0))
    assert free_s - noticed_s <= SOON_S
    world.settle(1.0, 0.01)  # new weights are loaded
    assert served_in(world, 0)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_instance_is_lent_within_a_second_of_what_noticed_that_a_worker_was_struck_over_its_batch(
    world: World, how: str
) -> None:
    for lane in LANES:
        for tenant in "ab":
            world.serve(lane, tenant)
    world.settle(1.0)
    assert served_in(world, 0)
    (struck,) = (
        one for one in world.processes.values() if isinstance(one, Server) and one.lane == "uuid-0" and one.batch
    )
    noticed_s = world.clock.now_s
    if how == "killed":
        world.kill(struck)
    else:
        struck.is_stopped = True
        noticed_s += world.dispatcher._setup.hang_s
    world.lend(0, "b", 1)
    (trainer,) = (one for one in world.processes.values() if isinstance(one, Trainer))
    lent_s = passes_until(world, lambda: trainer.computes)
    assert 0 <= lent_s - noticed_s <= SOON_S
    assert world.computing(0) == {trainer.name}


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_worker_that_is_struck_beside_a_loan_holds_up_neither_the_trainer_nor_the_end_of_the_loan(
    world: World, how: str
) -> None:
    trainer = lent(world)
    for one in world.processes.values():
        if isinstance(one, Server) and one.lane == "uuid-0":
            if how == "killed":
                world.kill(one)
            one.is_stopped = True
    world.settle(7.0)  # beyond the limit of silence
    assert trainer.computes
    assert {one.tenant for one in world.news if isinstance(one, Failed)} == {"a", "b"}
    for tenant in "ab":
        world.serve(0, tenant)  # as a loop starts them again
    world.settle(1.0)
    assert world.computing(0) == {trainer.name}
    ended_s = world.clock.now_s
    world.ends(trainer)
    assert passes_until(world, lambda: not world.is_lent(0)) - ended_s <= SOON_S
    world.settle(1.0, 0.01)
    assert served_in(world, 0)
