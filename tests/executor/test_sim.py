from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.errors import (
    GpuError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
)
from executor.mig import GpuModel, Placement
from executor.sim import SimGpu

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


SimGpuMachine.TestCase.settings = settings(deadline=None, derandomize=True, max_examples=60, stateful_step_count=40)
TestSimGpuMachine = SimGpuMachine.TestCase
