"""What every ``Gpu`` has to do. A new implementation is one more entry of ``BENCHES``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.driver import DriverGpu
from executor.errors import (
    GpuError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
)
from executor.gpu import Gpu, GpuInstance
from executor.mig import GpuModel, Layout, Placement
from executor.nvml import NvmlGpu
from executor.sim import SimGpu
from executor.smi import SmiGpu
from executor.transition import Destroy, transition
from tests.standin.cards import CARDS, Card
from tests.standin.fixtures import MakeStandIn


@dataclass(frozen=True)
class Bench:
    """An empty GPU, and how a process gets into one of its GPU instances."""

    gpu: Gpu
    client_in: Callable[[GpuInstance], AbstractContextManager[None]]


def sim_bench(model_name: str) -> Bench:
    gpu = SimGpu(gpu_model(model_name), VirtualClock(), seed=3)

    @contextmanager
    def client_in(gpu_instance: GpuInstance) -> Iterator[None]:
        gpu.attach(gpu_instance.gi_id, "worker")
        yield
        gpu.detach(gpu_instance.gi_id, "worker")

    return Bench(gpu, client_in)


def sim_maker(model_name: str) -> Callable[[pytest.FixtureRequest], Bench]:
    return lambda _: sim_bench(model_name)


def driver_maker(kind: type[NvmlGpu | SmiGpu], card: Card) -> Callable[[pytest.FixtureRequest], Bench]:
    def make(request: pytest.FixtureRequest) -> Bench:
        make_standin: MakeStandIn = request.getfixturevalue("make_standin")
        standin = make_standin(card)
        gpu = kind()

        @contextmanager
        def client_in(gpu_instance: GpuInstance) -> Iterator[None]:
            standin.attach(gpu_instance.gi_id, 4711)
            yield
            standin.detach(gpu_instance.gi_id, 4711)

        return Bench(gpu, client_in)

    return make


BENCHES = [
    pytest.param(sim_maker("a100-40gb"), id="sim-a100-40gb"),
    pytest.param(sim_maker("h100-80gb"), id="sim-h100-80gb"),
    pytest.param(sim_maker("a30-24gb"), id="sim-a30-24gb"),
    pytest.param(sim_maker("rtx-pro-6000-96gb"), id="sim-rtx-pro-6000-96gb"),
    *(
        pytest.param(driver_maker(kind, card), id=f"{kind.backend}-{card.name}")
        for kind in (NvmlGpu, SmiGpu)
        for card in CARDS
    ),
]


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made: Bench = request.param(request)
    yield made
    if isinstance(made.gpu, DriverGpu):
        made.gpu.close()


@pytest.fixture
def gpu(bench: Bench) -> Gpu:
    return bench.gpu


def all_ones(gpu: Gpu) -> tuple[Placement, ...]:
    """Every placement of the smallest profile; all of them fit together."""
    return gpu.model.placements([gpu.model.profiles[0].name])


def whole(gpu: Gpu) -> Placement:
    return gpu.model.placements()[-1]


def layout_on(gpu: Gpu) -> Layout:
    return Layout(tuple(gpu_instance.placement for gpu_instance in gpu.instances()))


def carry_out(gpu: Gpu, after: Layout) -> None:
    """The loop of every executor: ids are looked up, never predicted."""
    gi_id_at = {gpu_instance.placement: gpu_instance.gi_id for gpu_instance in gpu.instances()}
    for step in transition(layout_on(gpu), after).steps:
        if isinstance(step, Destroy):
            gpu.destroy(gi_id_at[step.placement])
        else:
            gpu.create(step.placement)


def unused_gi_id(gpu: Gpu) -> int:
    return max((gpu_instance.gi_id for gpu_instance in gpu.instances()), default=0) + 1


def test_backend_is_named(gpu: Gpu) -> None:
    assert gpu.backend


def test_index_counts_from_zero(gpu: Gpu) -> None:
    assert gpu.index >= 0


def test_model_says_what_the_gpu_can_be_cut_into(gpu: Gpu) -> None:
    assert isinstance(gpu.model, GpuModel)


def test_bench_starts_empty(gpu: Gpu) -> None:
    assert gpu.instances() == ()


def test_created_instance_sits_where_it_was_asked_to(gpu: Gpu) -> None:
    for placement in all_ones(gpu):
        assert gpu.create(placement).placement == placement


def test_created_instance_is_listed(gpu: Gpu) -> None:
    created = gpu.create(all_ones(gpu)[-1])
    assert gpu.instances() == (created,)


def test_instances_are_sorted_by_placement_whatever_the_order_of_creation(gpu: Gpu) -> None:
    for placement in reversed(all_ones(gpu)):
        gpu.create(placement)
    assert tuple(gpu_instance.placement for gpu_instance in gpu.instances()) == all_ones(gpu)


def test_ids_and_uuids_are_unique(gpu: Gpu) -> None:
    created = list(map(gpu.create, all_ones(gpu)))
    assert len({c.gi_id for c in created}) == len({c.uuid for c in created}) == len(created)


def test_uuid_is_that_of_a_mig_device(gpu: Gpu) -> None:
    assert gpu.create(whole(gpu)).uuid.startswith("MIG-")


def test_destroyed_instance_is_gone_and_its_neighbours_are_untouched(gpu: Gpu) -> None:
    first, *others = map(gpu.create, all_ones(gpu))
    gpu.destroy(first.gi_id)
    assert gpu.instances() == tuple(others)


def test_new_instance_leaves_its_neighbours_untouched(gpu: Gpu) -> None:
    first, second, *_ = all_ones(gpu)
    neighbour = gpu.create(second)
    gpu.create(first)
    assert gpu.instances()[1] == neighbour


def test_freed_slices_can_be_taken_by_a_larger_instance(gpu: Gpu) -> None:
    gpu.destroy(gpu.create(all_ones(gpu)[0]).gi_id)
    assert gpu.create(whole(gpu)).placement == whole(gpu)


def test_overlapping_instance_is_refused_for_lack_of_room(gpu: Gpu) -> None:
    gpu.create(all_ones(gpu)[-1])
    with pytest.raises(InsufficientResourcesError):
        gpu.create(whole(gpu))


def test_placement_that_is_taken_is_refused_for_lack_of_room(gpu: Gpu) -> None:
    gpu.create(whole(gpu))
    with pytest.raises(InsufficientResourcesError):
        gpu.create(whole(gpu))


def test_refused_creation_changes_nothing(gpu: Gpu) -> None:
    created = gpu.create(all_ones(gpu)[-1])
    with pytest.raises(GpuError):
        gpu.create(whole(gpu))
    assert gpu.instances() == (created,)


def test_start_that_the_profile_does_not_have_is_an_invalid_argument(gpu: Gpu) -> None:
    with pytest.raises(InvalidArgumentError):
        gpu.create(Placement(whole(gpu).profile, 1))


def test_profile_of_another_model_is_an_invalid_argument(gpu: Gpu) -> None:
    with pytest.raises(InvalidArgumentError):
        gpu.create(gpu_model("h200-141gb").placement("3g.71gb@0"))


def test_destroying_an_unknown_id_finds_nothing(gpu: Gpu) -> None:
    gpu.create(whole(gpu))
    with pytest.raises(InstanceNotFoundError):
        gpu.destroy(unused_gi_id(gpu))


def test_destroying_twice_finds_nothing(gpu: Gpu) -> None:
    created = gpu.create(whole(gpu))
    gpu.destroy(created.gi_id)
    with pytest.raises(InstanceNotFoundError):
        gpu.destroy(created.gi_id)


def test_instance_with_a_client_is_in_use(bench: Bench) -> None:
    created = bench.gpu.create(whole(bench.gpu))
    with bench.client_in(created), pytest.raises(InUseError):
        bench.gpu.destroy(created.gi_id)


def test_instance_in_use_survives_the_attempt(bench: Bench) -> None:
    created = bench.gpu.create(whole(bench.gpu))
    with bench.client_in(created), pytest.raises(InUseError):
        bench.gpu.destroy(created.gi_id)
    assert bench.gpu.instances() == (created,)


def test_instance_is_destroyed_once_its_client_has_left(bench: Bench) -> None:
    created = bench.gpu.create(whole(bench.gpu))
    with bench.client_in(created):
        pass
    bench.gpu.destroy(created.gi_id)
    assert bench.gpu.instances() == ()


def test_neighbour_of_an_instance_in_use_can_be_destroyed(bench: Bench) -> None:
    busy, idle, *_ = map(bench.gpu.create, all_ones(bench.gpu))
    with bench.client_in(busy):
        bench.gpu.destroy(idle.gi_id)
    assert idle not in bench.gpu.instances()


def test_every_maximal_layout_is_reached_and_read_back(gpu: Gpu) -> None:
    for layout in gpu.model.maximal_layouts():
        carry_out(gpu, layout)
        assert layout_on(gpu) == layout


def test_carrying_out_a_layout_twice_does_nothing_more(gpu: Gpu) -> None:
    layout = gpu.model.maximal_layouts()[-1]
    carry_out(gpu, layout)
    standing = gpu.instances()
    carry_out(gpu, layout)
    assert gpu.instances() == standing


def test_what_two_layouts_share_keeps_its_id_and_uuid(gpu: Gpu) -> None:
    first, second, *_ = all_ones(gpu)
    carry_out(gpu, Layout((first, second)))
    kept = gpu.instances()[0]
    carry_out(gpu, Layout((first,)))
    assert gpu.instances() == (kept,)
