"""The decision over every pair of layouts, and its effects on drivers that refuse, half-do and die under us."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Self

import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.driver import DriverGpu
from executor.errors import DriverError, GpuError, InUseError, UnrecordedError
from executor.gpu import Gpu, GpuInstance
from executor.journal import Journal, Remembered
from executor.mig import GpuModel, Layout, Placement
from executor.nvml import NvmlGpu
from executor.reconcile import Decision, Going, Patience, Reconciler, Users, carried_out, decide
from executor.sim import SimGpu
from executor.smi import SmiGpu
from tests.standin.cards import A100_40
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import CREATE_CI, CREATE_GI, DESTROY_CI, DESTROY_GI, READ, UNKNOWN, StandIn

QUICK = Patience(n_attempts=4, longest_s=1.0)


def standing(layout: Layout, first_id: int = 1) -> tuple[GpuInstance, ...]:
    return tuple(GpuInstance(first_id + n, placement, f"MIG-{n}") for n, placement in enumerate(layout))


def after(decision: Decision) -> set[Placement]:
    kept = {item.placement for item in (*decision.kept, *decision.repaired)}
    return kept | set(decision.created)


@pytest.mark.parametrize("name", ["a30-24gb", "a100-40gb"])
def test_every_layout_becomes_every_other_and_what_both_have_is_untouched(name: str) -> None:
    layouts = gpu_model(name).layouts()
    for before, target in product(layouts, layouts):
        decision = decide(standing(before), lambda _: True, target)
        assert after(decision) == set(target)
        assert {item.placement for item in decision.kept} == set(before) & set(target)


def legal_with_others(model: GpuModel) -> Iterator[tuple[Layout, Layout]]:
    """Every pair of ours and others' instances that stand beside each other."""
    layouts = model.layouts()
    for ours, others in product(layouts, layouts):
        if model.fits((*ours, *others)) and not set(ours) & set(others):
            yield ours, others


def test_others_are_never_touched_and_stand_in_nobodys_way() -> None:
    model = gpu_model("a30-24gb")
    for (ours, others), target in product(legal_with_others(model), model.layouts()):
        own = standing(ours)
        decision = decide((*own, *standing(others, 10)), own.__contains__, target)
        assert set(decision.destroyed) <= set(own)
        assert model.fits((*after(decision), *others))
        assert {item.placement for item in decision.blocked} == {
            wanted for wanted in target if any(wanted.overlaps(other) for other in others)
        }


def test_a_half_instance_that_is_wanted_is_repaired() -> None:
    half = GpuInstance(3, gpu_model("a30-24gb").placement("2g.12gb@2"), "")
    decision = decide([half], lambda _: True, Layout((half.placement,)))
    assert (decision.repaired, decision.kept, decision.created) == ((half,), (), ())


Bench = tuple[Gpu, Callable[[], list[tuple[str, int]]], StandIn | None]
"""A GPU, what really stands on it, and its driver's control side."""


def sim() -> Bench:
    gpu = SimGpu(gpu_model("a100-40gb"), VirtualClock(), seed=2)
    return gpu, lambda: [(i.placement.profile.name, i.placement.start) for i in gpu.instances()], None


@pytest.fixture(params=["nvml", "smi"])
def driver(request: pytest.FixtureRequest, make_standin: MakeStandIn) -> Iterator[tuple[StandIn, DriverGpu]]:
    standin = make_standin(A100_40)
    gpu = {"nvml": NvmlGpu, "smi": SmiGpu}[request.param]()
    yield standin, gpu
    gpu.close()


@pytest.fixture
def nvml(make_standin: MakeStandIn) -> Iterator[tuple[StandIn, DriverGpu]]:
    standin = make_standin(A100_40)
    with NvmlGpu() as gpu:
        yield standin, gpu


def layout(gpu: Gpu, *texts: str) -> Layout:
    return gpu.model.layout(map(gpu.model.placement, texts))


def names(standin: StandIn) -> list[str]:
    return [f"{item.profile}@{item.start}" for item in standin.standing()]


def test_the_target_stands_and_kept_instances_are_the_same(driver, tmp_path: Path) -> None:
    standin, gpu = driver
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        first = reconciler.apply(layout(gpu, "2g.10gb@0", "1g.5gb@2", "3g.20gb@4"))
        second = reconciler.apply(layout(gpu, "2g.10gb@0", "2g.10gb@2", "1g.5gb@6"))
        assert first.is_complete
        assert second.is_complete
    assert names(standin) == ["2g.10gb@0", "2g.10gb@2", "1g.5gb@6"]
    assert second.standing[0] == first.standing[0]


def test_applying_twice_does_nothing_more(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        reconciler.apply(layout(gpu, "4g.20gb@0", "3g.20gb@4"))
        n_calls = standin.state.n_calls
        assert reconciler.apply(layout(gpu, "4g.20gb@0", "3g.20gb@4")).is_complete
        assert standin.state.n_calls == n_calls


def test_others_instances_block_and_stay(driver, tmp_path: Path) -> None:
    standin, gpu = driver
    theirs = standin.put("1g.5gb", 5, pids=[77])
    with Journal(tmp_path / "journal") as journal:
        outcome = Reconciler(gpu, journal, VirtualClock(), QUICK).apply(layout(gpu, "4g.20gb@0", "3g.20gb@4"))
    assert names(standin) == ["4g.20gb@0", "1g.5gb@5"]
    assert [str(item) for item in outcome.blocked] == [
        f"3g.20gb@4 is not free: 1g.5gb@5 (GPU instance ID {theirs.gi_id}) is not ours"
    ]


def test_adopted_instances_are_ours(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    standin.put("1g.5gb", 5)
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        assert [str(item.placement) for item in reconciler.adopt()] == ["1g.5gb@5"]
        assert reconciler.apply(layout(gpu, "3g.20gb@4")).is_complete
    assert names(standin) == ["3g.20gb@4"]


def test_adopting_forgets_nothing_that_was_cut_off(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    with Journal(tmp_path / "journal") as journal:
        journal.begin("create", gpu.model.placement("3g.20gb@4"))
        standin.put("3g.20gb", 4)
        standin.put("1g.5gb", 0)
        Reconciler(gpu, journal, VirtualClock(), QUICK).adopt()
        assert all(map(journal.is_ours, gpu.instances()))


def test_an_instance_in_use_is_waited_for(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    clock = VirtualClock()
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, clock, QUICK)
        made = reconciler.apply(layout(gpu, "1g.5gb@0")).standing[0]
        standin.make_stubborn(made.gi_id, 2)
        assert reconciler.apply(layout(gpu, "2g.10gb@0")).is_complete
    assert names(standin) == ["2g.10gb@0"]
    assert clock.now_s > 0


def test_a_holder_is_named_and_the_rest_is_done(driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = driver
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "cmdline").write_text("python\0train.py\0")
    monkeypatch.setattr("executor.processes.PROC", tmp_path)
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        made = reconciler.apply(layout(gpu, "1g.5gb@0", "1g.5gb@6")).standing[0]
        standin.attach(made.gi_id, 4711)
        outcome = reconciler.apply(layout(gpu, "2g.10gb@0", "2g.10gb@4"))
    assert names(standin) == ["1g.5gb@0", "2g.10gb@4"]
    assert {str(item.placement) for item in outcome.undone} == {"1g.5gb@0", "2g.10gb@0"}
    assert all("held by process 4711 (python train.py)" in str(item) for item in outcome.undone)


def test_what_will_not_go_is_made_whole_again(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        made = reconciler.apply(layout(gpu, "1g.5gb@0")).standing[0]
        standin.make_stubborn(made.gi_id, 99)
        outcome = reconciler.apply(layout(gpu, "2g.10gb@0"))
        (left,) = gpu.instances()
        assert not outcome.is_complete
        assert left.is_whole
        assert journal.is_ours(left)


def test_a_creation_left_half_is_finished_at_the_next_attempt(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    standin.fail(CREATE_CI, UNKNOWN, count=1)
    standin.fail(DESTROY_GI, UNKNOWN, count=1)
    with Journal(tmp_path / "journal") as journal:
        assert Reconciler(gpu, journal, VirtualClock(), QUICK).apply(layout(gpu, "3g.20gb@4")).is_complete
    assert [len(item.uuids) for item in standin.standing()] == [1]


def test_what_is_made_and_taken_away_at_once_is_told(nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standin, gpu = nvml
    make = gpu.create

    def stolen(placement: Placement) -> GpuInstance:
        made = make(placement)
        standin.take_away(made.gi_id)
        return made

    monkeypatch.setattr(gpu, "create", stolen)
    with Journal(tmp_path / "journal") as journal:
        outcome = Reconciler(gpu, journal, VirtualClock(), QUICK).apply(layout(gpu, "3g.20gb@4"))
    assert [str(item) for item in outcome.undone] == ["3g.20gb@4: made, and gone again"]


def random_layout(gpu: Gpu, chance: random.Random) -> Layout:
    return chance.choice(gpu.model.layouts())


def test_whose_id_comes_again_during_a_change_is_not_destroyed(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        made = reconciler.apply(layout(gpu, "1g.5gb@0", "1g.5gb@6")).standing
        destroy = gpu._destroy

        def slow(gi_id: int) -> None:
            destroy(gi_id)
            if gi_id == made[0].gi_id:
                standin.take_away(made[1].gi_id)
                standin.put("1g.5gb", 5)
                with standin.locked() as state:
                    next(item for item in state.gpus[0].gis if item.used).id = made[1].gi_id

        gpu._destroy = slow
        assert reconciler.apply(Layout()).is_complete
    assert names(standin) == ["1g.5gb@5"]


def test_half_an_instance_that_others_make_with_the_id_of_what_has_just_gone_is_not_destroyed(
    driver, tmp_path: Path
) -> None:
    standin, gpu = driver
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        reconciler.apply(layout(gpu, "1g.5gb@0"))
        destroy, theirs = gpu._destroy, set[GpuInstance]()

        def then_others(gi_id: int) -> None:
            destroy(gi_id)
            standin.put("1g.5gb", 0, with_ci=False, gi_id=gi_id)
            theirs.update(gpu.instances())

        gpu._destroy = then_others
        assert reconciler.apply(Layout()).is_complete
        assert set(gpu.instances()) == theirs
        assert len(journal.untold()) == 1


def test_what_was_made_while_nothing_could_be_read_is_ours_at_the_next_attempt(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    make = gpu._create

    def then_silent(placement: Placement) -> None:
        make(placement)
        standin.fail(READ, UNKNOWN, count=1)

    gpu._create = then_silent
    with Journal(tmp_path / "journal") as journal:
        outcome = Reconciler(gpu, journal, VirtualClock(), QUICK).apply(layout(gpu, "3g.20gb@4"))
        assert outcome.is_complete
        assert outcome.standing == gpu.instances()
        assert all(map(journal.is_ours, gpu.instances()))


@pytest.mark.parametrize("seed", range(40))
def test_with_a_tenth_of_the_calls_refused_nothing_is_lost_track_of(nvml, tmp_path: Path, seed: int) -> None:
    standin, gpu = nvml
    standin.state.random = seed
    chance = random.Random(seed)
    for op, after_effect in ((CREATE_GI, False), (CREATE_GI, True), (CREATE_CI, False), (DESTROY_GI, True)):
        standin.fail(op, UNKNOWN, per_mille=100, after_effect=after_effect)
    clock = VirtualClock()
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, clock, QUICK)
        for _ in range(10):
            reconciler.apply(random_layout(gpu, chance))
            # What a call has made although it was refused is not named by the driver.
            assert all(journal.is_ours(item) or journal.is_perhaps_ours(item) for item in gpu.instances())
        assert clock.now_s > 0  # calls were refused, and waited for
        standin.heal()
        reconciler.adopt()
        assert reconciler.apply(Layout()).is_complete
    assert standin.standing() == ()


def test_a_reboot_leaves_nothing_that_we_believe_in(nvml, tmp_path: Path) -> None:
    standin, gpu = nvml
    target = layout(gpu, "4g.20gb@0", "3g.20gb@4")
    with Journal(tmp_path / "journal") as journal:
        Reconciler(gpu, journal, VirtualClock(), QUICK).apply(target)
    standin.reboot()
    foreign = standin.put("3g.20gb", 4)
    with Journal(tmp_path / "journal") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        reconciler.settle()
        outcome = reconciler.apply(target)
    assert [str(item.placement) for item in outcome.blocked] == ["3g.20gb@4"]
    assert foreign in standin.standing()


def test_layouts_of_a_gpu_with_two_instances_only_work() -> None:
    pairs = list(combinations(gpu_model("a30-24gb").layouts(["2g.12gb"]), 2))
    assert all(after(decide(standing(a), lambda _: True, b)) == set(b) for a, b in pairs)


def test_a_simulated_gpu_is_reconciled_like_a_real_one(tmp_path: Path) -> None:
    gpu, really, _ = sim()
    with Journal(tmp_path / "journal") as journal:
        assert Reconciler(gpu, journal, VirtualClock(), QUICK).apply(layout(gpu, "3g.20gb@4", "1g.5gb@0")).is_complete
    assert really() == [("1g.5gb", 0), ("3g.20gb", 4)]


IN_USE, UNNAMED = InUseError("in use"), DriverError("unknown")


def test_a_refusal_without_a_reason_is_tried_again_sooner_than_an_instance_in_use() -> None:
    assert Patience().wait_s(UNNAMED, 1) < Patience().wait_s(IN_USE, 1)


class Refusing(SimGpu):
    """Refuses destructions with these errors, one after the other."""

    def refusing(self, *errors: GpuError) -> Self:
        self.errors = list(errors)
        self.asked_s: list[float] = []
        return self

    def destroy(self, gi_id: int) -> None:
        self.asked_s.append(self._clock.now_s)
        if self.errors:
            raise self.errors.pop(0)
        super().destroy(gi_id)


def refusing(*errors: GpuError) -> Refusing:
    return Refusing(gpu_model("a100-40gb"), VirtualClock(), seed=2).refusing(*errors)


def pauses_s(gpu: Refusing) -> list[float]:
    return [later - sooner for sooner, later in pairwise(gpu.asked_s)]


def test_waits_grow_only_while_refusals_are_alike() -> None:
    gpu = refusing(IN_USE, IN_USE, UNNAMED, IN_USE)
    reconciler = Reconciler(gpu, Remembered(), gpu._clock)
    reconciler.apply(layout(gpu, "3g.20gb@0"))
    assert reconciler.apply(Layout()).is_complete
    assert pauses_s(gpu) == pytest.approx([1.0, 1.5, 0.2, 1.0])


def test_what_would_not_go_before_is_asked_once() -> None:
    gpu = refusing(*[IN_USE] * 9)
    journal = Remembered()
    reconciler = Reconciler(gpu, journal, gpu._clock)
    (made,) = reconciler.apply(layout(gpu, "3g.20gb@0")).standing
    (undone,) = carried_out(reconciler.change([Going(made, is_left_over=True)], []), gpu._clock)
    assert (undone.placement, len(gpu.asked_s)) == (made.placement, 1)


def created_beside(going: str, coming: str) -> float:
    """When an instance stands while another, elsewhere, will not go for some seconds."""
    gpu = refusing(*[IN_USE] * 3)
    reconciler = Reconciler(gpu, Remembered(), gpu._clock)
    (made,) = reconciler.apply(layout(gpu, going)).standing
    stands_s: list[float] = []

    class Watching(Users):
        def made(self, instance: GpuInstance) -> None:  # noqa: ARG002 (only when counts)
            stands_s.append(gpu._clock.now_s)

    begin_s = gpu._clock.now_s
    carried_out(reconciler.change([Going(made)], [gpu.model.placement(coming)], users=Watching()), gpu._clock)
    return stands_s[0] - begin_s


def test_nothing_waits_for_an_instance_of_its_profile_where_geometry_alone_is_the_limit() -> None:
    assert created_beside("1g.5gb@0", "1g.5gb@1") < 1


def test_what_exists_only_once_waits_for_the_one_that_goes() -> None:
    assert created_beside("1g.5gb+me@0", "1g.5gb+me@1") > 4


def full_from(n_writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal takes so many more records, then the disk is full."""
    sync, room = os.fsync, iter(range(n_writes))

    def full(descriptor: int) -> None:
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr("executor.journal.os.fsync", full)


def written_until_full(driver, path: Path, monkeypatch: pytest.MonkeyPatch, n_writes: int) -> tuple[StandIn, Journal]:
    """Apply two instances to an empty GPU; what the next controller is told."""
    standin, gpu = driver
    with Journal(path, "a boot") as journal, monkeypatch.context() as patch:
        full_from(n_writes, patch)
        with pytest.raises(OSError, match="No space left"):
            Reconciler(gpu, journal, VirtualClock(), QUICK).apply(layout(gpu, "3g.20gb@4", "1g.5gb@0"))
    with Journal(path, "a boot") as journal:
        Reconciler(gpu, journal, VirtualClock(), QUICK).settle()
        return standin, journal


@pytest.mark.parametrize("n_writes", range(4))
def test_what_could_not_be_written_down_is_taken_away_again(
    driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_writes: int
) -> None:
    standin, journal = written_until_full(driver, tmp_path / "journal", monkeypatch, n_writes)
    assert (names(standin), journal.untold()) == (["3g.20gb@4"] * (n_writes >= 2), [])


def test_what_was_made_unseen_and_could_not_be_written_down_is_taken_away_again(
    nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin, gpu = nvml
    make = gpu._create

    def then_silent(placement: Placement) -> None:
        make(placement)
        standin.fail(READ, UNKNOWN, count=1)

    gpu._create = then_silent
    standin, journal = written_until_full(nvml, tmp_path / "journal", monkeypatch, 1)
    assert (standin.standing(), journal.untold()) == ((), [])


def test_what_can_neither_be_written_down_nor_taken_away_is_named_with_what_takes_it_away(
    driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin, gpu = driver
    for op in (DESTROY_CI, DESTROY_GI):
        standin.fail(op, UNKNOWN, per_mille=1000)
    with Journal(tmp_path / "journal") as journal:
        full_from(1, monkeypatch)
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        with pytest.raises(UnrecordedError) as error:
            reconciler.apply(layout(gpu, "3g.20gb@4"))
    (left,) = standin.standing()
    assert f"3g.20gb@4 (GPU instance ID {left.gi_id}) was made, and cannot be written down: " in str(error.value)
    by_hand = f"nvidia-smi mig -i 0 -dci -gi {left.gi_id}; nvidia-smi mig -i 0 -dgi -gi {left.gi_id}"
    assert str(error.value).endswith(f"once it lets go: {by_hand}")
