from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.errors import (
    DriverError,
    GpuError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
)
from executor.gpu import GpuInstance, PartialChangeError
from executor.mig import GpuModel, Placement
from executor.sim import Faults, OthersInstance, SimGpu
from tests.seeds import examples

A100 = gpu_model("a100-40gb")


@dataclass
class StoppedClock:
    """Writes down until when it was asked to wait, and stays at 0."""

    asked_s: list[float] = field(default_factory=list)
    now_s: float = 0.0

    def sleep_until(self, time_s: float) -> None:
        self.asked_s.append(time_s)


def a100(seed: int = 0) -> tuple[SimGpu, VirtualClock]:
    clock = VirtualClock()
    return SimGpu(A100, clock, seed=seed), clock


def test_simulated_gpu_says_that_it_is_simulated() -> None:
    assert a100()[0].backend == "sim"


def test_creating_takes_the_profiles_time() -> None:
    gpu, clock = a100()
    gpu.create(A100.placement("4g.20gb@0"))
    assert clock.now_s == 0.21


def test_destroying_takes_the_profiles_time() -> None:
    gpu, clock = a100()
    gi_id = gpu.create(A100.placement("7g.40gb@0")).gi_id
    clock.sleep_until(10.0)
    gpu.destroy(gi_id)
    assert clock.now_s == 10.22


def test_times_are_the_gpu_models_own() -> None:
    clock = VirtualClock()
    gpu = SimGpu(gpu_model("h100-80gb"), clock)
    gpu.create(gpu_model("a100-80gb").placement("3g.40gb@0"))
    assert clock.now_s == 0.33


def test_calls_queue_for_the_driver() -> None:
    clock = StoppedClock()
    gpu = SimGpu(A100, clock)
    for start in (0, 1):
        gpu.create(A100.placement(f"1g.5gb@{start}"))
    assert clock.asked_s == [0.0, 0.16, 0.16, 0.32]


def test_destruction_queues_behind_a_creation() -> None:
    clock = StoppedClock()
    gpu = SimGpu(A100, clock)
    gpu.destroy(gpu.create(A100.placement("3g.20gb@4")).gi_id)
    assert clock.asked_s == pytest.approx([0.0, 0.20, 0.20, 0.41])


def test_refused_call_takes_no_time() -> None:
    gpu, clock = a100()
    with pytest.raises(InvalidArgumentError):
        gpu.create(gpu_model("a30-24gb").placement("1g.6gb@0"))
    assert clock.now_s == 0.0


@dataclass
class WatchingClock:
    """Stands at 0 and notes what the GPU lists whenever a call waits."""

    gpu: SimGpu | None = None
    seen: list[list[int]] = field(default_factory=list)
    now_s: float = 0.0

    def sleep_until(self, time_s: float) -> None:  # noqa: ARG002 - a Clock's signature
        if self.gpu is not None:
            self.seen.append([gpu_instance.gi_id for gpu_instance in self.gpu.instances()])


def test_slices_are_held_from_creations_start_to_destructions_end() -> None:
    clock = WatchingClock()
    clock.gpu = gpu = SimGpu(A100, clock)
    gi_id = gpu.create(A100.placement("7g.40gb@0")).gi_id
    gpu.destroy(gi_id)
    assert clock.seen == [[], [gi_id], [gi_id], [gi_id]]


def test_overlap_is_refused_in_the_drivers_words_naming_the_holder() -> None:
    gpu, _ = a100()
    gi_id = gpu.create(A100.placement("1g.5gb@5")).gi_id
    text = rf"on GPU  0 using profile 9: Insufficient Resources \(3g.20gb@4: memory slice 5 is held by .* ID +{gi_id}\)"
    with pytest.raises(InsufficientResourcesError, match=text):
        gpu.create(A100.placement("3g.20gb@4"))


def test_second_media_instance_is_refused() -> None:
    gpu, _ = a100()
    gpu.create(A100.placement("1g.5gb+me@0"))
    with pytest.raises(InsufficientResourcesError, match=r"at most 1 1g.5gb\+me at once"):
        gpu.create(A100.placement("1g.5gb+me@1"))


def test_compute_slices_run_out_even_where_memory_is_free() -> None:
    gpu = SimGpu(GpuModel("cut", "A100 with six GPCs", 6, 8, A100.profiles), VirtualClock())
    gpu.create(A100.placement("4g.20gb@0"))
    with pytest.raises(InsufficientResourcesError, match="2 compute slices are left"):
        gpu.create(A100.placement("3g.20gb@4"))


def test_instance_in_use_names_its_clients_in_the_drivers_words() -> None:
    gpu, _ = a100()
    gi_id = gpu.create(A100.placement("3g.20gb@4")).gi_id
    gpu.attach(gi_id, "resnet/inference")
    gpu.attach(gi_id, "bert/inference")
    text = rf"ID +{gi_id} from GPU  0: In use by another client \(3g.20gb@4 is held by bert/inference, resnet/inf"
    with pytest.raises(InUseError, match=text):
        gpu.destroy(gi_id)


def test_unknown_id_is_refused_naming_those_that_stand() -> None:
    gpu, _ = a100()
    gi_id = gpu.create(A100.placement("1g.5gb@5")).gi_id
    with pytest.raises(InstanceNotFoundError, match=rf"ID 99 from GPU  0: Not Found \(GPU instance IDs: {gi_id}\)"):
        gpu.destroy(99)


def test_client_attaches_once() -> None:
    gpu, _ = a100()
    gi_id = gpu.create(A100.placement("1g.5gb@5")).gi_id
    gpu.attach(gi_id, "bert")
    with pytest.raises(InvalidArgumentError, match="attached already"):
        gpu.attach(gi_id, "bert")


def test_only_an_attached_client_detaches() -> None:
    gpu, _ = a100()
    gi_id = gpu.create(A100.placement("1g.5gb@5")).gi_id
    with pytest.raises(InvalidArgumentError, match="attached clients: none"):
        gpu.detach(gi_id, "bert")


def test_placement_does_not_tell_the_id() -> None:
    ids = {a100(seed)[0].create(A100.placement("3g.20gb@0")).gi_id for seed in range(20)}
    assert len(ids) > 1


def test_order_of_creation_does_not_tell_the_id() -> None:
    gpu, _ = a100()
    ids = [gpu.create(placement).gi_id for placement in A100.placements(["1g.5gb"])]
    assert ids != sorted(ids)


def test_same_seed_gives_the_same_ids_and_uuids() -> None:
    first, second = a100(seed=5)[0], a100(seed=5)[0]
    for placement in A100.placements(["1g.5gb"]):
        assert first.create(placement) == second.create(placement)


def test_uuid_never_comes_again() -> None:
    gpu, _ = a100()
    uuids = []
    for _ in range(50):
        created = gpu.create(A100.placement("7g.40gb@0"))
        uuids.append(created.uuid)
        gpu.destroy(created.gi_id)
    assert len(set(uuids)) == 50


def faulty(*others: OthersInstance, seed: int = 0, **faults: float) -> tuple[SimGpu, VirtualClock]:
    clock = VirtualClock()
    return SimGpu(A100, clock, seed=seed, faults=Faults(**faults), others=others), clock


def test_refused_creation_takes_half_of_its_time_and_changes_nothing() -> None:
    gpu, clock = faulty(error_share=1, half_share=0)
    with pytest.raises(DriverError, match=r"on GPU  0 using profile 5: Unknown Error$"):
        gpu.create(A100.placement("4g.20gb@0"))
    assert (clock.now_s, gpu.instances()) == (0.105, ())


def half_made(gpu: SimGpu, text: str) -> GpuInstance:
    with pytest.raises(PartialChangeError) as refused:
        gpu.create(A100.placement(text))
    return refused.value.standing


def test_creation_refused_too_late_leaves_an_instance_without_compute_instance() -> None:
    gpu, _ = faulty(error_share=1, half_share=1)
    half = half_made(gpu, "3g.20gb@4")
    assert not half.is_whole
    assert gpu.instances() == (half,)


def test_half_an_instance_lets_nobody_in() -> None:
    gpu, _ = faulty(error_share=1, half_share=1)
    with pytest.raises(InvalidArgumentError, match="it has no compute instance"):
        gpu.attach(half_made(gpu, "3g.20gb@4").gi_id, "bert")


def test_making_whole_can_be_refused_and_changes_nothing() -> None:
    gpu, _ = faulty(error_share=1, half_share=1)
    half = half_made(gpu, "3g.20gb@4")
    with pytest.raises(DriverError, match=r"in GPU instance ID +\d+: Unknown Error$"):
        gpu.make_whole(half.gi_id)
    assert gpu.instances() == (half,)


def test_making_whole_takes_a_tenth_of_a_creation_and_keeps_the_id() -> None:
    gpu, clock = faulty(error_share=1, half_share=1)
    half = half_made(gpu, "4g.20gb@0")
    gpu._faults = Faults()
    made = gpu.make_whole(half.gi_id)
    assert clock.now_s == pytest.approx(0.105 + 0.021)
    assert (made.gi_id, made.placement, made.is_whole) == (half.gi_id, half.placement, True)


def test_stubborn_instance_goes_when_its_time_is_up() -> None:
    gpu, clock = faulty(in_use_share=1, in_use_s=5, half_share=0)
    made = gpu.create(A100.placement("1g.5gb@0"))
    for _ in range(2):
        with pytest.raises(InUseError, match=r"In use by another client$"):
            gpu.destroy(made.gi_id)
    assert gpu.instances() == (made,)
    clock.sleep_until(5.2)
    gpu.destroy(made.gi_id)
    assert gpu.instances() == ()


def test_stubborn_instance_may_have_lost_its_compute_instance() -> None:
    gpu, _ = faulty(in_use_share=1, half_share=1)
    made = gpu.create(A100.placement("1g.5gb@0"))
    with pytest.raises(PartialChangeError, match=r"In use by another client; 1g.5gb@0 is left without") as refused:
        gpu.destroy(made.gi_id)
    assert refused.value.standing == GpuInstance(made.gi_id, made.placement, "")
    assert gpu.instances() == (refused.value.standing,)


def test_shares_of_refused_calls_are_as_asked_for() -> None:
    gpu, _ = faulty(error_share=0.1, half_share=0)
    n_refused = 0
    for _ in range(1000):
        try:
            gpu.destroy(gpu.create(A100.placement("7g.40gb@0")).gi_id)
        except DriverError:
            n_refused += 1
            while left := gpu.instances():
                with suppress(DriverError):
                    gpu.destroy(left[0].gi_id)
    assert n_refused == pytest.approx(190, abs=40)


def test_faults_do_not_change_ids_and_uuids() -> None:
    plain, _ = a100(seed=4)
    gpu, _ = faulty(in_use_share=1, seed=4)
    for placement in A100.placements(["1g.5gb"]):
        assert gpu.create(placement) == plain.create(placement)


def refusals(seed: int) -> list[bool]:
    gpu, found = faulty(error_share=0.5, half_share=0, seed=seed)[0], []
    for placement in A100.placements(["1g.5gb"]):
        try:
            gpu.create(placement)
        except DriverError:
            found.append(True)
        else:
            found.append(False)
    return found


def test_the_seed_decides_which_calls_are_refused() -> None:
    assert refusals(5) == refusals(5) != refusals(6)


def put(text: str, from_s: float, to_s: float) -> OthersInstance:
    return OthersInstance(A100.placement(text), from_s, to_s)


def seen(gpu: SimGpu) -> list[str]:
    return [str(gpu_instance.placement) for gpu_instance in gpu.instances()]


def test_others_instance_comes_and_goes_at_its_moments() -> None:
    gpu, clock = faulty(put("1g.5gb@6", 10, 20))
    found = []
    for now_s in (9, 10, 19, 20):
        clock.sleep_until(now_s)
        found.append(seen(gpu))
    assert found == [[], ["1g.5gb@6"], ["1g.5gb@6"], []]


def test_others_instance_waits_for_room() -> None:
    gpu, _ = faulty(put("2g.10gb@4", 0.1, 20))
    ours = gpu.create(A100.placement("3g.20gb@4"))
    assert gpu.instances() == (ours,)
    gpu.destroy(ours.gi_id)
    assert seen(gpu) == ["2g.10gb@4"]


def test_others_instance_that_found_no_room_in_its_time_never_comes() -> None:
    gpu, clock = faulty(put("2g.10gb@4", 10, 20))
    ours = gpu.create(A100.placement("3g.20gb@4"))
    clock.sleep_until(20)
    gpu.destroy(ours.gi_id)
    assert gpu.instances() == ()


def test_others_instance_takes_its_slices() -> None:
    gpu, _ = faulty(put("1g.5gb@6", 0, 20))
    with pytest.raises(InsufficientResourcesError, match="memory slice 6 is held"):
        gpu.create(A100.placement("3g.20gb@4"))


def test_others_instance_has_a_process_and_cannot_be_destroyed() -> None:
    gpu, _ = faulty(put("1g.5gb@6", 0, 20))
    (theirs,) = gpu.instances()
    ((gi_id, (pid,)),) = gpu.processes().items()
    assert gi_id == theirs.gi_id
    with pytest.raises(InUseError, match=f"1g.5gb@6 is held by process {pid}"):
        gpu.destroy(theirs.gi_id)


def test_others_instance_is_seen_by_a_call_that_waited_past_its_moment() -> None:
    gpu, _ = faulty(put("1g.5gb@6", 0.1, 20))
    gpu.create(A100.placement("1g.5gb@0"))
    with pytest.raises(InsufficientResourcesError, match="memory slice 6 is held"):
        gpu.create(A100.placement("1g.5gb@6"))


def test_others_instance_is_one_of_the_gpus_own() -> None:
    with pytest.raises(InvalidArgumentError, match=r"has no placement 1g.6gb@0"):
        SimGpu(A100, VirtualClock(), others=[OthersInstance(gpu_model("a30-24gb").placement("1g.6gb@0"))])


class SimGpuMachine(RuleBasedStateMachine):
    """A simulated GPU beside the simplest thing that could be one: sets of slices and of clients by id.

    Compute slices are left out: on these GPU models memory slices always run out first.
    """

    CLIENTS = ("resnet", "bert")
    MODELS = ("a100-40gb", "a30-24gb", "rtx-pro-6000-96gb")

    @initialize(model_name=st.sampled_from(MODELS), seed=st.integers(0, 9))
    def open(self, model_name: str, seed: int) -> None:
        self.model = gpu_model(model_name)
        self.clock = VirtualClock()
        self.gpu = SimGpu(self.model, self.clock, seed=seed)
        self.standing: dict[int, Placement] = {}
        self.clients: dict[int, set[str]] = {}
        self.now_s = 0.0

    def slices(self) -> set[int]:
        return {s for placement in self.standing.values() for s in range(placement.start, placement.end)}

    def has_room_for(self, placement: Placement) -> bool:
        held = [p.profile.name for p in self.standing.values()]
        return self.slices().isdisjoint(range(placement.start, placement.end)) and (
            held.count(placement.profile.name) < placement.profile.max_instances
        )

    def refused(self, error: type[GpuError], gi_id: int) -> None:
        with pytest.raises(error):
            self.gpu.destroy(gi_id)

    def draw_id(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.standing)), label="gi_id")

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        placement = data.draw(st.sampled_from(self.model.placements(self.model.profile_names)))
        if not self.has_room_for(placement):
            with pytest.raises(InsufficientResourcesError):
                self.gpu.create(placement)
            return
        gi_id = self.gpu.create(placement).gi_id
        assert gi_id not in self.standing
        self.standing[gi_id], self.clients[gi_id] = placement, set()
        self.now_s += placement.profile.create_s

    @rule(data=st.data())
    @precondition(lambda self: self.standing)
    def destroy(self, data: st.DataObject) -> None:
        gi_id = self.draw_id(data)
        if self.clients[gi_id]:
            self.refused(InUseError, gi_id)
            return
        self.gpu.destroy(gi_id)
        self.now_s += self.standing.pop(gi_id).profile.destroy_s
        del self.clients[gi_id]

    @rule(gi_id=st.integers(-1, 30))
    def destroy_nothing(self, gi_id: int) -> None:
        if gi_id not in self.standing:
            self.refused(InstanceNotFoundError, gi_id)

    @rule(data=st.data(), client=st.sampled_from(CLIENTS))
    @precondition(lambda self: self.standing)
    def attach_or_detach(self, data: st.DataObject, client: str) -> None:
        gi_id = self.draw_id(data)
        is_attached = client in self.clients[gi_id]
        (self.gpu.detach if is_attached else self.gpu.attach)(gi_id, client)
        self.clients[gi_id] ^= {client}

    @rule(wait_s=st.floats(0, 100))
    def wait(self, wait_s: float) -> None:
        self.now_s += wait_s
        self.clock.sleep_until(self.now_s)

    @invariant()
    def lists_exactly_what_stands(self) -> None:
        assert {g.gi_id: g.placement for g in self.gpu.instances()} == self.standing

    @invariant()
    def holds_a_layout(self) -> None:
        assert self.model.fits(self.standing.values())

    @invariant()
    def took_the_time_of_its_calls(self) -> None:
        assert self.clock.now_s == pytest.approx(self.now_s)


SimGpuMachine.TestCase.settings = settings(derandomize=True, max_examples=examples(60), stateful_step_count=40)
TestSimGpuMachine = SimGpuMachine.TestCase


def test_after_a_reset_nothing_stands() -> None:
    model = gpu_model("a100-80gb")
    gpu = SimGpu(model, VirtualClock(), others=[OthersInstance(model.placement("1g.10gb@6"))])
    gpu.attach(gpu.create(model.placement("3g.40gb@0")).gi_id, "worker")
    gpu.reset()
    assert gpu.instances() == ()
