"""Anything may happen to a GPU: changes, others, processes, refusals, silence, crashes, reboots; and what holds then.

Always: what stands is a layout. Others' instances are those that others made and did not take away. All else that
stands is ours; the journal knows it, or tells that it may be: where we were cut off, and of what is half. Instances
that were ours, whole and wanted are the same ones after a change. When all is well again, whatever is known as ours
can be taken away, and whatever is not known once it is adopted.

Others make instances where we were cut off, too, and take ids of ours: no half is ours but by what this controller
remembers. After a boot the driver gives ids and UUIDs once more.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from executor.catalogue import gpu_model, mps_cut
from executor.clock import VirtualClock
from executor.cpu.gpu import CpuGpu
from executor.cuts import CpuCut
from executor.driver import DriverGpu
from executor.errors import GpuError
from executor.folders import FolderGpu
from executor.gpu import Gpu, GpuInstance
from executor.journal import Journal
from executor.mig import Layout, Placement
from executor.mps import Daemon, MpsGpu
from executor.nvml import NvmlGpu
from executor.processes import born
from executor.reconcile import Patience, Reconciler
from executor.sim import Faults, SimGpu
from tests.executor.cpu.kernel import Faulty, Kernel
from tests.executor.mortal import Crash, Fate, mortal
from tests.standin.cards import A30, A100_40
from tests.standin.fixtures import MakeMps, MakeStandIn
from tests.standin.mps import MpsStandIn
from tests.standin.near_smi import NearSmiGpu
from tests.standin.standin import CREATE_CI, CREATE_GI, DESTROY_CI, DESTROY_GI, READ, UNKNOWN, Programs, StandIn

N_HISTORIES = int(os.environ.get("MIGRATOR_TEST_HISTORIES", "15"))
"""How often it is all begun anew; more of them are other ones."""

LONG = [pytest.param(backend, 100, marks=pytest.mark.long) for backend in ("nvml", "cpu-v2")]

QUICK = Patience(n_attempts=3, longest_s=1.0)


class World(ABC):
    """A GPU, the clock, and all that others can do to it past our doors."""

    gpu: Gpu
    clock: VirtualClock

    @abstractmethod
    def standing(self) -> tuple[GpuInstance, ...]:
        """The truth."""

    @property
    def boot(self) -> str:
        """What no instance outlives."""
        return f"boot {self.n_boots}"

    n_boots = 1
    outlive_boots = False

    @abstractmethod
    def put(self, placement: Placement, gi_id: int | None, uuid: str | None, *, is_whole: bool) -> None:
        """Somebody else's instance, with an id and a UUID that come again, if any."""

    @abstractmethod
    def finish(self, gi_id: int) -> None:
        """Somebody else's half instance is whole."""

    @abstractmethod
    def take_away(self, gi_id: int) -> None: ...

    @abstractmethod
    def attach(self, gi_id: int) -> None: ...

    @abstractmethod
    def detach_all(self) -> None: ...

    @abstractmethod
    def make_stubborn(self, gi_id: int, times: int) -> None: ...

    @abstractmethod
    def let_calls_fail(self, per_mille: int, *, after_effect: bool) -> None: ...

    @abstractmethod
    def fall_silent(self, n_calls: int) -> None: ...

    @abstractmethod
    def heal(self) -> None: ...

    @abstractmethod
    def reboot(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class SimWorld(World):
    def __init__(self, model_name: str) -> None:
        self.clock = VirtualClock()
        self.gpu: SimGpu = SimGpu(gpu_model(model_name), self.clock, seed=1)

    def standing(self) -> tuple[GpuInstance, ...]:
        return self.gpu._sorted()

    def put(self, placement: Placement, gi_id: int | None, uuid: str | None, *, is_whole: bool) -> None:
        made = self.gpu._put(placement, is_whole=is_whole)
        if gi_id is not None:
            self.gpu._drop(made.gi_id)
            again = replace(made, gi_id=gi_id, uuid=uuid if uuid and is_whole else made.uuid)
            self.gpu._instances[gi_id], self.gpu._clients[gi_id] = again, set()

    def finish(self, gi_id: int) -> None:
        self.gpu._instances[gi_id] = replace(self.gpu._instances[gi_id], uuid=self.gpu._new_uuid())

    def take_away(self, gi_id: int) -> None:
        self.gpu._drop(gi_id)

    def attach(self, gi_id: int) -> None:
        self.gpu._clients[gi_id].add("a process")

    def detach_all(self) -> None:
        for clients in self.gpu._clients.values():
            clients.clear()

    def make_stubborn(self, gi_id: int, times: int) -> None:
        self.gpu._refuses_until_s[gi_id] = self.clock.now_s + times

    def let_calls_fail(self, per_mille: int, *, after_effect: bool) -> None:
        self.gpu._faults = Faults(error_share=per_mille / 1000, half_share=0.5 if after_effect else 0.0)

    def fall_silent(self, n_calls: int) -> None:
        """A simulated GPU always says what stands."""

    def heal(self) -> None:
        self.gpu._faults = Faults()
        self.gpu._refuses_until_s.clear()

    def reboot(self) -> None:
        self.gpu.reset()

    def close(self) -> None:
        """There is no driver."""


class DriverWorld(World):
    def __init__(self, standin: StandIn, gpu: DriverGpu) -> None:
        self.standin, self.gpu, self.clock = standin, gpu, VirtualClock()

    def standing(self) -> tuple[GpuInstance, ...]:
        place = self.gpu.model.placement
        return tuple(
            GpuInstance(item.gi_id, place(f"{item.profile}@{item.start}"), *(item.uuids or ("",)))
            for item in self.standin.standing()
        )

    def put(self, placement: Placement, gi_id: int | None, uuid: str | None, *, is_whole: bool) -> None:
        made = self.standin.put(placement.profile.name, placement.start, with_ci=is_whole)
        if gi_id is not None:
            with self.standin.locked() as state:
                gi = next(item for item in state.gpus[0].gis if item.used and item.id == made.gi_id)
                gi.id = gi_id
                if uuid and is_whole:
                    next(ci for ci in gi.cis if ci.used).uuid = uuid.encode()

    def finish(self, gi_id: int) -> None:
        self.standin.finish(gi_id)

    def take_away(self, gi_id: int) -> None:
        self.standin.take_away(gi_id)

    def attach(self, gi_id: int) -> None:
        with suppress(StopIteration):  # no room for more
            self.standin.attach(gi_id, 4711)

    def detach_all(self) -> None:
        for item in self.standin.standing():
            for _ in range(8):
                self.standin.detach(item.gi_id, 4711)

    def make_stubborn(self, gi_id: int, times: int) -> None:
        self.standin.make_stubborn(gi_id, times)

    def let_calls_fail(self, per_mille: int, *, after_effect: bool) -> None:
        for op in (CREATE_GI, CREATE_CI, DESTROY_CI, DESTROY_GI):
            self.standin.fail(op, UNKNOWN, per_mille=per_mille, after_effect=after_effect)

    def fall_silent(self, n_calls: int) -> None:
        self.standin.fail(READ, UNKNOWN, per_mille=30 * n_calls)

    def heal(self) -> None:
        self.standin.heal()
        for item in self.standin.standing():
            self.standin.make_stubborn(item.gi_id, 0)

    def reboot(self) -> None:
        self.standin.reboot()

    def close(self) -> None:
        self.gpu.close()


class FolderWorld(World):
    """Instances that are folders, in which calls fail.

    ``truth`` is the same GPU by way of calls that never do.
    """

    gpu: FolderGpu

    def __init__(self, gpu: FolderGpu, truth: FolderGpu) -> None:
        self.clock, self.chance = VirtualClock(), random.Random(1)
        self.gpu, self.truth = gpu, truth
        self.gpu._random = self.chance
        self.files = Faulty(truth.files)
        self.stubborn: dict[str, int] = {}
        self.heal()

    def standing(self) -> tuple[GpuInstance, ...]:
        return self.truth.instances()

    def put(self, placement: Placement, gi_id: int | None, uuid: str | None, *, is_whole: bool) -> None:  # noqa: ARG002
        taken = {item.gi_id for item in self.standing()}
        own_id = next(n for n in range(99) if n not in taken) if gi_id is None else gi_id
        self.truth._prepare()
        self.truth.files.make(self.truth.folder / f"{placement}.{own_id}")
        if is_whole:
            self.finish(own_id)

    def finish(self, gi_id: int) -> None:
        (found,) = (item for item in self.standing() if item.gi_id == gi_id)
        self.truth._finish(f"{found.placement}.{gi_id}", found.placement)

    def make_stubborn(self, gi_id: int, times: int) -> None:
        (found,) = (item for item in self.standing() if item.gi_id == gi_id)
        self.stubborn[f"{found.placement}.{gi_id}"] = times

    def _refuses(self, call: str, path: Path) -> int:
        name = path.parent.name if path.name.startswith("MIG-") else path.name
        if call == "remove" and self.stubborn.get(name, 0) > 0:
            self.stubborn[name] -= 1
            return errno.EBUSY
        per_mille = self.silent_per_mille if call == "folders" else self.before_per_mille
        return errno.EIO * (self.chance.random() < per_mille / 1000)

    def _refuses_after(self, call: str, path: Path) -> int:  # noqa: ARG002
        return errno.EIO * (self.chance.random() < self.after_per_mille / 1000)

    def let_calls_fail(self, per_mille: int, *, after_effect: bool) -> None:
        self.before_per_mille, self.after_per_mille = (0, per_mille) if after_effect else (per_mille, 0)

    def fall_silent(self, n_calls: int) -> None:
        self.silent_per_mille = 30 * n_calls

    def heal(self) -> None:
        self.stubborn.clear()
        self.before_per_mille = self.after_per_mille = self.silent_per_mille = 0
        self.files.refuses, self.files.refuses_after = self._refuses, self._refuses_after

    def reboot(self) -> None:
        shutil.rmtree(self.truth.folder, ignore_errors=True)

    def close(self) -> None:
        self.gpu.close()


class CpuWorld(FolderWorld):
    """Shares of a CPU, on a kernel that is a folder."""

    def __init__(self, base: Path, version: int, slices: int) -> None:
        shutil.rmtree(base, ignore_errors=True)
        self.kernel, self.next_pid = Kernel(base, version), 4711
        gpu, truth = (CpuGpu(CpuCut(1.0, slices), base, self.kernel.ways()) for _ in range(2))
        super().__init__(gpu, truth)
        gpu.files = gpu.shares.files = self.files

    def take_away(self, gi_id: int) -> None:
        for pid in self.truth.processes().get(gi_id, ()):
            self.kernel.end(pid)
        self.truth.destroy(gi_id)

    def attach(self, gi_id: int) -> None:
        (found,) = (item for item in self.standing() if item.gi_id == gi_id)
        self.truth.enter(found.uuid, self.next_pid)
        self.next_pid += 1

    def detach_all(self) -> None:
        for pids in self.truth.processes().values():
            for pid in pids:
                self.kernel.end(pid)


class MpsWorld(FolderWorld):
    """MPS shares; their processes are this one, written down as often as it takes."""

    outlive_boots, boot = True, "any"

    def __init__(self, standin: MpsStandIn, card: str) -> None:
        gpu, truth = (MpsGpu(mps_cut(card), 0, standin.state) for _ in range(2))
        super().__init__(gpu, truth)
        gpu.files = self.files

    def _marks(self, gi_id: int) -> list[Path]:
        (found,) = (item for item in self.standing() if item.gi_id == gi_id)
        return list(self.truth._folder(found).glob("*/*.*"))

    def take_away(self, gi_id: int) -> None:
        for mark in self._marks(gi_id):
            mark.rmdir()
        self.truth.destroy(gi_id)

    def attach(self, gi_id: int) -> None:
        (found,) = (item for item in self.standing() if item.gi_id == gi_id)
        pid = os.getpid()
        (self.truth._folder(found) / found.uuid / f"{pid}.{born(pid)}").mkdir(exist_ok=True)

    def detach_all(self) -> None:
        for item in self.standing():
            for mark in self._marks(item.gi_id):
                mark.rmdir()

    reboot = detach_all


MakeWorld = Callable[[str], World]


class Happenings(RuleBasedStateMachine):
    """One controller after the other on one GPU, and everybody else."""

    others: set[GpuInstance]

    def __init__(self, folder: Path, make_world: MakeWorld) -> None:
        super().__init__()
        self.path, self.make_world = folder / "journal", make_world
        self.path.unlink(missing_ok=True)

    @initialize(model_name=st.sampled_from(["a30-24gb", "a100-40gb"]))
    def begin(self, model_name: str) -> None:
        self.world = self.make_world(model_name)
        self.others = set()
        self.busy: set[int] = set()
        self.is_well, self.fails, self.is_silent = True, False, False
        self.model = self.world.gpu.model
        self.layouts = self.model.layouts()
        self.of_boots_before: dict[tuple[Placement, int], str] = {}
        self.cut_off: set[str] = set()
        self.new_controller()

    def new_controller(self) -> None:
        self.open_journal()
        self.settle()

    def open_journal(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
        self.journal = Journal(self.path, self.world.boot)
        if self.journal.begun is not None:
            self.cut_off.add(self.journal.begun.placement)

    def settle(self) -> None:
        self.reconciler = Reconciler(self.world.gpu, self.journal, self.world.clock, QUICK)
        try:
            self.reconciler.settle()
        except GpuError:
            assert not self.is_well

    def ours(self) -> set[GpuInstance]:
        return set(self.world.standing()) - self.others

    def known(self) -> set[GpuInstance]:
        return set(filter(self.journal.is_ours, self.world.standing()))

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self.layouts), label="target")
        kept = {item for item in self.ours() if item.is_whole and item.placement in target}
        if self.is_silent:  # a call may be refused, and nobody tell whether it was made all the same
            self.cut_off |= set(map(str, target))
        try:
            outcome = self.reconciler.apply(target)
        except GpuError:
            assert not self.is_well
            return
        finally:
            assert kept <= self.ours()
        standing = {item for item in self.known() if item.is_whole and item.placement in target}
        assert set(outcome.standing) == standing
        told = {item.placement for item in (*outcome.undone, *outcome.blocked)}
        assert set(target) - {item.placement for item in standing} <= told
        if outcome.is_complete:
            assert standing == self.known()
        if self.is_well:
            assert not outcome.undone

    @rule(
        data=st.data(),
        n_survived=st.integers(0, 10) | st.integers(0, 40),
        then=st.sampled_from(["others", "nothing", "others", "reboot"]),
    )
    def crash(self, data: st.DataObject, n_survived: int, then: str) -> None:
        target = data.draw(st.sampled_from(self.layouts), label="target")
        kept = {item for item in self.ours() if item.is_whole and item.placement in target}
        if self.is_silent:
            self.cut_off |= set(map(str, target))
        with suppress(Crash, GpuError), mortal(self.world.gpu, Fate(n_survived)):
            self.reconciler.apply(target)
        assert kept <= self.ours()
        if then == "reboot":
            self.all_is_gone()
        self.open_journal()
        if then == "others":
            self.put_where_there_is_room(data)
        self.settle()

    @rule()
    def restart(self) -> None:
        self.new_controller()

    @rule(data=st.data(), others_are_faster=st.booleans())
    def reboot(self, data: st.DataObject, others_are_faster: bool) -> None:
        self.all_is_gone()
        if others_are_faster:
            self.put_where_there_is_room(data)
        self.new_controller()
        if not self.world.outlive_boots:
            assert not self.known()
            assert not any(map(self.journal.is_perhaps_ours, self.world.standing()))

    def all_is_gone(self) -> None:
        standing = self.world.standing()
        self.of_boots_before |= {(item.placement, item.gi_id): item.uuid for item in standing if item.is_whole}
        self.world.reboot()
        self.world.n_boots += 1
        self.busy.clear()
        if not self.world.outlive_boots:
            self.others.clear()
            self.cut_off.clear()

    @rule(data=st.data())
    def others_come(self, data: st.DataObject) -> None:
        self.put_where_there_is_room(data)

    def put_where_there_is_room(self, data: st.DataObject) -> None:
        """Where we were cut off, too: before whatever we have begun there, or after it is gone again."""
        standing = self.world.standing()
        places = [item.placement for item in standing]
        free = [placement for placement in self.model.placements() if self.model.fits((*places, placement))]
        if not free:
            return
        before = {placement for placement, _ in self.of_boots_before} if not standing else set()
        inviting = [placement for placement in free if str(placement) in self.cut_off or placement in before]
        begun, seen_half = self.journal.begun, self.journal._vouched
        inviting = [place for place in free if begun is not None and str(place) == begun.placement] or inviting
        placement = data.draw(st.sampled_from(inviting or free) | st.sampled_from(free), label="theirs")
        known = {*self.journal._made, *([] if begun is None or not begun.gi_id else [begun.gi_id])}
        again = {gi_id for place, gi_id in self.of_boots_before if place == placement}
        # What a living controller has itself left half is known to it by its id.
        is_half = {g for g in seen_half if self.journal._made.get(g) == (str(placement), "")}
        taken = {item.gi_id for item in standing} | is_half
        unused = [*([] if is_half else [None]), *sorted(({1, 2, 15} | known | again) - taken)]
        gi_id = data.draw(st.sampled_from(sorted(again - taken) or unused) | st.sampled_from(unused), label="id")
        uuid = None if gi_id is None else self.of_boots_before.get((placement, gi_id))
        self.world.put(placement, gi_id, uuid, is_whole=data.draw(st.booleans(), label="whole"))
        (theirs,) = (item for item in self.world.standing() if item.placement == placement)
        self.others.add(theirs)

    @precondition(lambda self: any(not item.is_whole for item in self.others))
    @rule(data=st.data())
    def others_finish(self, data: st.DataObject) -> None:
        half = self.draw_one(data, {item for item in self.others if not item.is_whole})
        self.world.finish(half.gi_id)
        self.others.remove(half)
        (whole,) = (item for item in self.world.standing() if item.gi_id == half.gi_id)
        self.others.add(whole)

    @precondition(lambda self: self.others)
    @rule(data=st.data())
    def others_go(self, data: st.DataObject) -> None:
        theirs = data.draw(st.sampled_from(sorted(self.others, key=lambda item: item.gi_id)), label="theirs")
        self.world.take_away(theirs.gi_id)
        self.others.remove(theirs)
        self.busy.discard(theirs.gi_id)

    def draw_one(self, data: st.DataObject, among: set[GpuInstance]) -> GpuInstance:
        return data.draw(st.sampled_from(sorted(among, key=lambda item: item.gi_id)), label="instance")

    def idle(self) -> set[GpuInstance]:
        """Ours that may be taken from us; not in the moment after the driver has named what it made, shown nothing."""
        named = None if self.journal.begun is None else self.journal._named
        return {item for item in self.ours() if item.gi_id not in self.busy and item.gi_id != named}

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def somebody_destroys_ours(self, data: st.DataObject) -> None:
        self.world.take_away(self.draw_one(data, self.idle()).gi_id)

    @precondition(lambda self: any(item.is_whole for item in self.world.standing()))
    @rule(data=st.data())
    def a_process_comes(self, data: st.DataObject) -> None:
        chosen = self.draw_one(data, {item for item in self.world.standing() if item.is_whole})
        self.world.attach(chosen.gi_id)
        self.busy.add(chosen.gi_id)
        self.is_well = False

    @precondition(lambda self: self.ours())
    @rule(data=st.data(), times=st.sampled_from([1, 2, 99]))
    def an_instance_becomes_stubborn(self, data: st.DataObject, times: int) -> None:
        self.world.make_stubborn(self.draw_one(data, self.ours()).gi_id, times)
        self.is_well = False

    @precondition(lambda self: not self.fails)
    @rule(per_mille=st.sampled_from([100, 400]), after_effect=st.booleans())
    def calls_fail(self, per_mille: int, after_effect: bool) -> None:
        self.world.let_calls_fail(per_mille, after_effect=after_effect)
        self.is_well, self.fails = False, True

    @precondition(lambda self: not self.is_silent)
    @rule(n_calls=st.sampled_from([1, 5]))
    def the_driver_is_silent_at_times(self, n_calls: int) -> None:
        self.world.fall_silent(n_calls)
        self.is_well, self.is_silent = False, True

    @precondition(lambda self: not self.is_well)
    @rule()
    def all_is_well_again(self) -> None:
        self.world.heal()
        self.world.detach_all()
        self.busy.clear()
        self.is_well, self.fails, self.is_silent = True, False, False

    @precondition(lambda self: self.others)
    @rule()
    def adopt(self) -> None:
        try:
            self.reconciler.adopt()
        except GpuError:
            assert not self.is_well
        else:
            self.others.clear()
            assert self.known() == self.ours()

    @invariant()
    def a_layout_stands(self) -> None:
        assert self.model.fits([item.placement for item in self.world.standing()])

    @invariant()
    def others_have_what_they_made(self) -> None:
        assert self.others <= set(self.world.standing())

    @invariant()
    def the_journal_knows_what_is_ours_or_tells_that_it_may_be(self) -> None:
        assert self.known() <= self.ours()
        for item in self.ours() - self.known():
            assert self.journal.is_perhaps_ours(item)
            assert not item.is_whole or str(item.placement) in self.cut_off

    def teardown(self) -> None:
        """Nothing is leaked."""
        if not hasattr(self, "world"):
            return
        self.all_is_well_again()
        self.restart()
        where_ours_were = {item.gi_id for item in self.world.standing() if self.journal._is_where_ours_was(item)}
        assert set(self.journal._made) == {item.gi_id for item in self.known()} | where_ours_were
        told = {item for item in self.world.standing() if self.journal.is_perhaps_ours(item)}
        assert len(self.journal.untold()) == len(told)
        assert self.reconciler.apply(Layout()).is_complete
        assert set(self.world.standing()) == self.others | (told - self.others)
        assert set(self.journal._made) <= {item.gi_id for item in told}
        self.adopt()
        assert self.reconciler.apply(Layout()).is_complete
        assert not self.world.standing()
        self.journal.close()
        self.world.close()


CARDS = {"a30-24gb": A30, "a100-40gb": A100_40}


def worlds(backend: str, request: pytest.FixtureRequest) -> MakeWorld:
    if backend == "sim":
        return SimWorld
    if backend == "mps":
        make_mps: MakeMps = request.getfixturevalue("make_mps")
        return lambda model_name: MpsWorld(make_mps(CARDS[model_name]), model_name)
    if backend.startswith("cpu"):
        base, slices_of = request.getfixturevalue("tmp_path") / "cgroup", {"a30-24gb": 4, "a100-40gb": 7}
        return lambda model_name: CpuWorld(base, int(backend[-1]), slices_of[model_name])
    make_standin: MakeStandIn = request.getfixturevalue("make_standin")
    programs: Programs = request.getfixturevalue("programs")

    def make(model_name: str) -> World:
        standin = make_standin(CARDS[model_name])
        return DriverWorld(standin, NvmlGpu() if backend == "nvml" else NearSmiGpu(programs))

    return make


@pytest.mark.parametrize(
    ("backend", "n_histories"),
    [*((backend, N_HISTORIES) for backend in ("sim", "nvml", "smi", "cpu-v1", "cpu-v2", "mps")), *LONG],
)
def test_whatever_happens_nothing_is_lost_and_nothing_of_others_is_touched(
    backend: str, n_histories: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its daemon and the processes of this machine are others' business: tests/executor/mps.
    monkeypatch.setattr(Daemon, "ensure", lambda daemon: daemon._make_folders())
    monkeypatch.setattr(Daemon, "quit", lambda _: None)
    monkeypatch.setattr("executor.mps.started_with", lambda *_: ())
    make_world = worlds(backend, request)
    run_state_machine_as_test(
        lambda: Happenings(tmp_path, make_world),
        settings=settings(derandomize=True, max_examples=n_histories, stateful_step_count=30),
    )
