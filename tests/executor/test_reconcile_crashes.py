"""Whoever changes a GPU dies at every moment of a change; whoever comes next reaches the target all the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from executor.catalogue import mps_cut
from executor.clock import VirtualClock
from executor.cpu.gpu import CpuGpu
from executor.cuts import CpuCut
from executor.driver import DriverGpu
from executor.folders import FolderGpu
from executor.gpu import GpuInstance
from executor.journal import Journal
from executor.mig import Layout
from executor.mps import Daemon, MpsGpu
from executor.nvml import NvmlGpu
from executor.reconcile import Patience, Reconciler
from executor.sim_card import SimCard
from executor.smi import SmiGpu
from tests.executor.cpu.kernel import Kernel
from tests.executor.mortal import Crash, Fate, mortal
from tests.seeds import daily
from tests.standin.cards import A30, A100_40, Card
from tests.standin.fixtures import MakeStandIn
from tests.standin.mps import MpsStandIn
from tests.standin.near_smi import NearSmiGpu
from tests.standin.standin import Programs, StandIn


@dataclass(frozen=True)
class Stood:
    profile: str
    start: int
    gi_id: int
    uuid: str


class FolderStandIn:
    """Others on a GPU whose instances are folders."""

    def __init__(self, gpu: FolderGpu) -> None:
        self.gpu = gpu

    def put(self, profile: str, start: int) -> Stood:
        made = self.gpu.create(self.gpu.model.placement(f"{profile}@{start}"))
        return Stood(profile, start, made.gi_id, made.uuid)

    def standing(self) -> list[Stood]:
        found = self.gpu.instances()
        return [Stood(item.placement.profile.name, item.placement.start, item.gi_id, item.uuid) for item in found]

    def limits_hold(self) -> bool:
        return not isinstance(self.gpu, CpuGpu) or all(
            self.gpu.shares.limit_of(f"{item.placement}.{item.gi_id}")
            == pytest.approx(self.gpu.cut.cores_of(item.placement.profile), abs=1e-4)
            for item in self.gpu.instances()
        )


QUICK = Patience(n_attempts=4, longest_s=1.0)


def apply(gpu: DriverGpu, path: Path, target: Layout, doubted: list[GpuInstance]) -> bool:
    """Settle and apply as a new process does; whether the target stands, all of it known as ours.

    What may be ours, and is not proven to be, is ``doubted``, and taken over.
    """
    with Journal(path, "a boot") as journal:
        reconciler = Reconciler(gpu, journal, VirtualClock(), QUICK)
        reconciler.settle()
        found = [item for item in gpu.instances() if journal.is_perhaps_ours(item)]
        assert len(journal.untold()) == len(found)
        for item in found:
            journal.stands(item)
        doubted += found
        outcome = reconciler.apply(target)
        return outcome.is_complete and {item.placement for item in gpu.instances() if journal.is_ours(item)} == set(
            target
        )


def dies(gpu: DriverGpu, path: Path, target: Layout, fate: Fate) -> bool:
    """Apply, unless fate comes in between."""
    with Journal(path, "a boot") as journal, mortal(gpu, fate):
        try:
            Reconciler(gpu, journal, VirtualClock(), QUICK).apply(target)
        except Crash:
            return True
    return False


def hold_at_every_moment(standin: StandIn | FolderStandIn, gpu: DriverGpu, path: Path, seed: int) -> None:
    """A random change beside somebody else's instance, cut off at the first moment, the second, … until it ends."""
    chance = random.Random(seed)
    foreign = chance.choice(gpu.model.placements([gpu.model.profiles[0].name]))
    theirs = standin.put(foreign.profile.name, foreign.start)
    free = [item for item in gpu.model.layouts() if gpu.model.fits((*item, foreign))]
    before, target = chance.choice(free), chance.choice(free)
    n_survived, doubted = 0, list[GpuInstance]()
    while True:
        assert apply(gpu, path, before, doubted)
        kept = [item for item in standin.standing() if f"{item.profile}@{item.start}" in set(map(str, target))]
        fate = Fate(n_survived)
        has_died = dies(gpu, path, target, fate)
        assert apply(gpu, path, target, doubted)
        assert not isinstance(standin, FolderStandIn) or standin.limits_hold()
        standing = standin.standing()
        assert {f"{item.profile}@{item.start}" for item in standing} == {str(foreign), *map(str, target)}
        assert {theirs, *kept} <= set(standing)
        if not has_died:
            break
        n_survived += 1
    # Each instance that changed took two writes and at least one call, each with two moments or three.
    assert n_survived >= 8 * len(set(before) ^ set(target))
    # A creation has one moment after it, and two or three at its record, of which the last leaves a proof.
    whole = [item for item in doubted if item.is_whole]
    assert 2 * len(set(target) - set(before)) <= len(whole) <= 5 * len(set(target) - set(before))
    assert {item.placement for item in whole} == set(target) - set(before)
    # Without its compute instance nothing tells one of ours from another's: as it comes, and as it goes.
    assert {item.placement for item in doubted} == set(target) ^ set(before)


Opened = Callable[[Card], tuple[StandIn, DriverGpu]]


@pytest.fixture
def opened(request: pytest.FixtureRequest, make_standin: MakeStandIn, programs: Programs) -> Iterator[Opened]:
    """Makes a driver and opens its GPU by ``request.param``; ``nvidia-smi`` runs in this process."""
    made: list[DriverGpu] = []

    def opened(card: Card) -> tuple[StandIn, DriverGpu]:
        standin = make_standin(card)
        made.append(NvmlGpu() if request.param == "nvml" else NearSmiGpu(programs))
        return standin, made[0]

    yield opened
    made[0].close()


SEEDS = [
    *(
        pytest.param(
            backend, seed, marks=() if seed in range(5) and backend == ("nvml", "smi")[seed % 2] else pytest.mark.long
        )
        for backend in ("nvml", "smi")
        for seed in range(25)
    ),
]


@pytest.mark.parametrize(("opened", "seed"), SEEDS, indirect=["opened"])
def test_after_a_crash_at_any_moment_of_a_change_the_target_is_reached(
    opened: Opened, tmp_path: Path, seed: int
) -> None:
    standin, gpu = opened(A100_40)
    hold_at_every_moment(standin, gpu, tmp_path / "journal", seed)


@pytest.mark.parametrize("seed", daily(range(6), range(1)))
def test_the_same_where_instances_are_shares_of_a_cpu(tmp_path: Path, seed: int) -> None:
    gpu = CpuGpu(CpuCut(1.6), tmp_path, Kernel(tmp_path / "cgroup", version=1 + seed % 2).ways())
    hold_at_every_moment(FolderStandIn(gpu), gpu, tmp_path / "journal", seed)


@pytest.mark.parametrize("seed", daily(range(6), range(1)))
def test_the_same_where_instances_are_mps_shares(
    mps: MpsStandIn, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Daemon, "ensure", lambda daemon: daemon._make_folders())
    gpu = MpsGpu(mps_cut("a100-80gb"), 0, mps.state)
    hold_at_every_moment(FolderStandIn(gpu), gpu, tmp_path / "journal", seed)


@pytest.mark.parametrize("seed", daily(range(6), range(1)))
def test_the_same_where_the_card_is_simulated_and_remembers(tmp_path: Path, seed: int) -> None:
    gpu = SimCard("a100-80gb", tmp_path)
    hold_at_every_moment(FolderStandIn(gpu), gpu, tmp_path / "journal", seed)


def test_the_same_where_nvidia_smi_is_a_process(make_standin: MakeStandIn, tmp_path: Path) -> None:
    hold_at_every_moment(make_standin(A30), SmiGpu(), tmp_path / "journal", seed=1)
