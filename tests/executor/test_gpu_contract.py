"""What every ``Gpu`` has to do. A new implementation is one more entry of ``BENCHES``."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from executor.catalogue import gpu_model, mps_cut
from executor.clock import VirtualClock
from executor.cpu.gpu import CpuGpu, ways
from executor.cuts import CpuCut
from executor.discovery import card_name
from executor.driver import DriverGpu
from executor.errors import (
    GpuError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    RetryableGpuError,
)
from executor.folders import FolderGpu
from executor.gpu import Gpu, GpuInstance, PartialChangeError
from executor.mig import GpuModel, Layout, Placement, transition
from executor.mps import MpsGpu
from executor.nvml import NvmlGpu
from executor.sim import Faults, SimGpu
from executor.sim_card import SimCard
from executor.smi import SmiGpu
from tests.executor.cpu.kernel import Faulty, Kernel, never
from tests.executor.cpu.real import in_share, real_way
from tests.executor.mps.card import real_mps_gpu
from tests.standin.cards import A30, A100_80, CARDS, Card
from tests.standin.fixtures import MakeMps, MakeStandIn
from tests.standin.mps import running
from tests.standin.standin import CREATE_CI, CREATE_GI, DESTROY_GI, UNKNOWN

MAY_CHANGE = "MIGRATOR_TEST_GPU"
"""The variable of the environment that names a real GPU for the tests."""


@dataclass(frozen=True)
class Bench:
    """An empty GPU, how a process gets into one of its GPU instances, and how its driver is brought to refuse.

    Attributes:
        gpu: The GPU.
        client_in: Meanwhile a process is in the instance.
        refusing: Meanwhile the driver creates nothing, and names no reason.
        halving: Meanwhile creations and destructions stop half way.
    """

    gpu: Gpu
    client_in: Callable[[GpuInstance], AbstractContextManager[None]]
    refusing: Callable[[], AbstractContextManager[None]]
    halving: Callable[[], AbstractContextManager[None]]


def sim_bench(model_name: str) -> Bench:
    gpu = SimGpu(gpu_model(model_name), VirtualClock(), seed=3)

    @contextmanager
    def client_in(gpu_instance: GpuInstance) -> Iterator[None]:
        gpu.attach(gpu_instance.gi_id, "worker")
        yield
        gpu.detach(gpu_instance.gi_id, "worker")

    @contextmanager
    def with_faults(faults: Faults) -> Iterator[None]:
        gpu._faults = faults
        yield
        gpu._faults = Faults()

    return Bench(
        gpu,
        client_in,
        lambda: with_faults(Faults(error_share=1, half_share=0)),
        lambda: with_faults(Faults(error_share=1, half_share=1)),
    )


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

        @contextmanager
        def failing(*ops: int) -> Iterator[None]:
            for op in ops:
                standin.fail(op, UNKNOWN, per_mille=1000)
            yield
            standin.heal()

        return Bench(gpu, client_in, lambda: failing(CREATE_GI), lambda: failing(CREATE_CI, DESTROY_GI))

    return make


def card_maker(kind: type[NvmlGpu | SmiGpu]) -> Callable[[pytest.FixtureRequest], Bench]:
    """A real card, freed afterwards of what was made here: only where somebody says that it may be changed."""

    def make(request: pytest.FixtureRequest) -> Bench:
        index = os.environ.get(MAY_CHANGE)
        if index is None:
            pytest.skip(f"{MAY_CHANGE} does not name a GPU, as in nvidia-smi -i, whose MIG instances may be changed")
        gpu = kind(int(index))
        if gpu.instances():
            gpu.close()
            pytest.skip(f"GPU {index} has instances; the suite begins with an empty one")
        made: set[tuple[int, Placement]] = set()
        create = gpu.create

        def noted(placement: Placement) -> GpuInstance:
            item = create(placement)
            made.add((item.gi_id, item.placement))
            return item

        def free() -> None:
            with gpu:
                for item in gpu.instances():
                    if (item.gi_id, item.placement) in made:
                        gpu.destroy(item.gi_id)

        gpu.create = noted
        request.addfinalizer(free)

        def impossible(*_: object) -> AbstractContextManager[None]:
            pytest.skip("a real driver cannot be brought to this")

        return Bench(gpu, impossible, impossible, impossible)

    return make


def folder_bench(
    gpu: FolderGpu, files: Faulty, client_in: Callable[[GpuInstance], AbstractContextManager[None]]
) -> Bench:

    @contextmanager
    def failing(refuses: Callable[[str, str], bool]) -> Iterator[None]:
        files.refuses = lambda call, path: errno.EIO if refuses(call, path.name) else 0
        yield
        files.refuses = never

    def halves(call: str, name: str) -> bool:
        return (call, name.startswith("MIG-")) in (("make", True), ("remove", False))

    return Bench(gpu, client_in, lambda: failing(lambda call, _: call == "make"), lambda: failing(halves))


def cpu_bench(gpu: CpuGpu, client_in: Callable[[GpuInstance], AbstractContextManager[None]]) -> Bench:
    files = gpu.files = gpu.shares.files = Faulty(gpu.shares.files)
    return folder_bench(gpu, files, client_in)


def environment_bench(gpu: MpsGpu | SimCard) -> Bench:
    """Of a GPU whose processes say in their environment in which instance they are."""
    files = gpu.files = Faulty(gpu.files)

    @contextmanager
    def client_in(gpu_instance: GpuInstance) -> Iterator[None]:
        with running(gpu.environment(gpu_instance.uuid)):
            yield

    return folder_bench(gpu, files, client_in)


def mps_maker(card: Card) -> Callable[[pytest.FixtureRequest], Bench]:
    def make(request: pytest.FixtureRequest) -> Bench:
        make_mps: MakeMps = request.getfixturevalue("make_mps")
        state = make_mps(card).state
        return environment_bench(MpsGpu(mps_cut(card_name(card.name, card.memory_mib / 1024)), 0, state))

    return make


def real_mps_maker(request: pytest.FixtureRequest) -> Bench:
    """Shares of a real card: only where somebody says that an MPS daemon may be started for it."""
    gpu = real_mps_gpu(request)
    request.addfinalizer(lambda: carry_out(gpu, Layout()))
    return environment_bench(gpu)


def sim_card_maker(model_name: str) -> Callable[[pytest.FixtureRequest], Bench]:
    return lambda request: environment_bench(SimCard(model_name, request.getfixturevalue("tmp_path") / "state"))


def fake_cpu_maker(version: int, slices: int) -> Callable[[pytest.FixtureRequest], Bench]:
    def make(request: pytest.FixtureRequest) -> Bench:
        kernel = Kernel(request.getfixturevalue("tmp_path") / "cgroup", version)
        gpu = CpuGpu(CpuCut(0.8, slices), kernel.base, kernel.ways())

        @contextmanager
        def client_in(gpu_instance: GpuInstance) -> Iterator[None]:
            gpu.enter(gpu_instance.uuid, 4711)
            yield
            kernel.end(4711)

        return cpu_bench(gpu, client_in)

    return make


def real_cpu_maker(way: str) -> Callable[[pytest.FixtureRequest], Bench]:
    def make(request: pytest.FixtureRequest) -> Bench:
        state = request.getfixturevalue("tmp_path")
        gpu = CpuGpu(CpuCut(0.8), state, real_way(way, state))
        request.addfinalizer(lambda: carry_out(gpu, Layout()))
        return cpu_bench(gpu, lambda gpu_instance: in_share(gpu, gpu_instance))

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
    *(pytest.param(card_maker(kind), id=f"card-{kind.backend}", marks=pytest.mark.gpu) for kind in (NvmlGpu, SmiGpu)),
    *(
        pytest.param(fake_cpu_maker(version, slices), id=f"cpu-fake-v{version}-in-{slices}")
        for version in (1, 2)
        for slices in (7, 4)
    ),
    *(pytest.param(real_cpu_maker(way), id=f"cpu-{way.replace(' ', '-')}") for way in ways(Path())),
    *(
        pytest.param(sim_card_maker(name), id=f"sim-card-{name}")
        for name in ("a100-80gb", "a30-24gb", "rtx-pro-6000-96gb")
    ),
    *(pytest.param(mps_maker(card), id=f"mps-{card.name}") for card in (A30, A100_80)),
    pytest.param(real_mps_maker, id="card-mps", marks=pytest.mark.gpu),
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
    change = transition(layout_on(gpu), after)
    for placement in change.destroyed:
        gpu.destroy(gi_id_at[placement])
    for placement in change.created:
        gpu.create(placement)


def unused_gi_id(gpu: Gpu) -> int:
    return max((gpu_instance.gi_id for gpu_instance in gpu.instances()), default=0) + 1


def test_backend_is_named(gpu: Gpu) -> None:
    assert gpu.backend


def test_index_counts_from_zero(gpu: Gpu) -> None:
    assert gpu.index >= 0


def test_whoever_asks_for_the_first_time_has_to_look(gpu: Gpu) -> None:
    assert gpu.changed()


def test_a_gpu_that_works_answers(gpu: Gpu) -> None:
    gpu.check()
    gpu.create(whole(gpu))
    gpu.check()


def test_a_change_of_ours_is_told(gpu: Gpu) -> None:
    gpu.changed()
    gpu.create(whole(gpu))
    assert gpu.changed()


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
        gpu.create(gpu_model("b200-180gb").placement("3g.90gb@0"))


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


def test_refusal_without_a_reason_is_worth_another_attempt_and_changes_nothing(bench: Bench) -> None:
    with bench.refusing(), pytest.raises(RetryableGpuError):
        bench.gpu.create(whole(bench.gpu))
    assert bench.gpu.instances() == ()
    assert bench.gpu.create(whole(bench.gpu)).is_whole


def half_made(bench: Bench, placement: Placement) -> GpuInstance:
    with bench.halving(), pytest.raises(PartialChangeError) as refused:
        bench.gpu.create(placement)
    return refused.value.standing


def half_gone(bench: Bench, placement: Placement) -> tuple[GpuInstance, GpuInstance]:
    """An instance before and after its destruction stopped half way."""
    created = bench.gpu.create(placement)
    with bench.halving(), pytest.raises(PartialChangeError) as refused:
        bench.gpu.destroy(created.gi_id)
    return created, refused.value.standing


def test_creation_that_stops_half_way_names_what_stands(bench: Bench) -> None:
    half = half_made(bench, whole(bench.gpu))
    assert (half.placement, half.is_whole) == (whole(bench.gpu), False)
    assert bench.gpu.instances() == (half,)


def test_destruction_that_stops_half_way_names_what_stands(bench: Bench) -> None:
    created, half = half_gone(bench, whole(bench.gpu))
    assert half == GpuInstance(created.gi_id, created.placement, "")
    assert bench.gpu.instances() == (half,)


def test_half_an_instance_holds_its_slices(bench: Bench) -> None:
    half_made(bench, all_ones(bench.gpu)[-1])
    with pytest.raises(InsufficientResourcesError):
        bench.gpu.create(whole(bench.gpu))


def test_half_an_instance_can_be_destroyed(bench: Bench) -> None:
    bench.gpu.destroy(half_made(bench, whole(bench.gpu)).gi_id)
    assert bench.gpu.instances() == ()


def test_half_an_instance_is_made_whole_where_it_stands(bench: Bench) -> None:
    half = half_made(bench, whole(bench.gpu))
    made = bench.gpu.make_whole(half.gi_id)
    assert (made.gi_id, made.placement, made.is_whole) == (half.gi_id, half.placement, True)
    assert bench.gpu.instances() == (made,)


def test_what_is_made_whole_again_has_another_uuid(bench: Bench) -> None:
    created, half = half_gone(bench, whole(bench.gpu))
    assert bench.gpu.make_whole(half.gi_id).uuid != created.uuid


def test_making_whole_leaves_neighbours_untouched(bench: Bench) -> None:
    first, second, *_ = all_ones(bench.gpu)
    neighbour = bench.gpu.create(second)
    bench.gpu.make_whole(half_made(bench, first).gi_id)
    assert bench.gpu.instances()[1] == neighbour


def test_a_whole_instance_is_left_as_it_is(gpu: Gpu) -> None:
    created = gpu.create(whole(gpu))
    assert gpu.make_whole(created.gi_id) == created
    assert gpu.instances() == (created,)


def test_making_an_unknown_id_whole_finds_nothing(gpu: Gpu) -> None:
    with pytest.raises(InstanceNotFoundError):
        gpu.make_whole(unused_gi_id(gpu))


def test_an_idle_gpu_has_no_processes(gpu: Gpu) -> None:
    gpu.create(whole(gpu))
    assert dict(gpu.processes()) == {}
