"""The ``gpu`` verbs, one after the other, cut off at any moment, among others who make instances at the same places.

Always: others' instances stand. Whatever the verbs call ours is ours, and all else of ours is called perhaps ours, with
a line that says what to do. What is ours is taken away by ``clear``, and the rest by ``apply --adopt``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

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

from executor.catalogue import gpu_model
from executor.errors import GpuError
from executor.mig import Layout, Placement
from migrator.commands.gpu.changing import apply_command, clear_command, restore_command
from migrator.commands.gpu.standing import list_command
from migrator.errors import MigratorError
from tests.executor.mortal import Crash, Fate, mortal
from tests.standin.cards import A30
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import CREATE_CI, CREATE_GI, DESTROY_GI, UNKNOWN, Standing

N_HISTORIES = int(os.environ.get("MIGRATOR_TEST_HISTORIES", "40"))
"""How often it is all begun anew; more of them are other ones."""

MODEL = gpu_model("a30-24gb")

any_layout = st.sampled_from(MODEL.layouts())


class Verbs(RuleBasedStateMachine):
    """One command after the other on one GPU, and everybody else."""

    now: ClassVar[Verbs]

    def __init__(self, capsys: pytest.CaptureFixture[str], make_standin: MakeStandIn, state: Path) -> None:
        super().__init__()
        self.capsys, self.make_standin, self.state = capsys, make_standin, state
        for file in state.glob("*"):
            file.unlink()
        Verbs.now = self

    @initialize()
    def begin(self) -> None:
        self.standin = self.make_standin(A30)
        self.others: set[Standing] = set()
        self.n_boots, self.is_well = 1, True
        self.of_boots_before: dict[tuple[int, str, int], tuple[str, ...]] = {}
        self.places: list[Placement] = []

    def ours(self) -> set[Standing]:
        return set(self.standin.standing()) - self.others

    def is_done(self, verb: Callable[..., None], *arguments: object, **options: object) -> bool:
        """Whether the verb has done what it says; else it has said why not."""
        try:
            verb(*arguments, backend="nvml", state=self.state, **options)
        except (GpuError, MigratorError):
            return False
        return True

    def applied(self, wanted: Layout, *, adopt: bool = False) -> bool:
        """Whether the layout stands, by ``gpu apply``."""
        return self.is_done(apply_command, ",".join(map(str, wanted)), adopt=adopt)

    def listed(self) -> dict[str, set[Standing]]:
        """What the list calls ours, perhaps ours and others'; of what is perhaps ours it says what to do."""
        self.capsys.readouterr()
        list_command(index=0, backend="nvml", state=self.state, as_json=True)
        out, err = self.capsys.readouterr()
        found: dict[str, set[Standing]] = {"ours": set(), "perhaps ours": set(), "others'": set()}
        standing = {item.gi_id: item for item in self.standin.standing()}
        for item in json.loads(out)["gpus"][0]["instances"]:
            whose = "ours" if item["ours"] else "perhaps ours" if item["perhaps_ours"] else "others'"
            found[whose].add(standing[item["gi_id"]])
        said = [line for line in err.splitlines() if "may be ours, left by a call that was cut off" in line]
        assert len(said) == len(found["perhaps ours"])
        assert all("--adopt takes it over" in line for line in said)
        return found

    @rule(wanted=any_layout, adopt=st.sampled_from([False, False, False, True]))
    def apply(self, wanted: Layout, adopt: bool) -> None:
        is_done = self.applied(wanted, adopt=adopt)
        if adopt:
            self.others.clear()
        self.places = list(wanted)
        if is_done:
            own = {f"{item.profile}@{item.start}" for item in self.listed()["ours"]}
            assert own == set(map(str, wanted))

    @rule()
    def clear(self) -> None:
        is_done = self.is_done(clear_command)
        found = self.listed()
        assert is_done or found["perhaps ours"] or not self.is_well
        assert not (is_done and found["ours"] | found["perhaps ours"])

    @rule()
    def restore(self) -> None:
        self.is_done(restore_command)

    @rule(
        data=st.data(),
        wanted=any_layout,
        n_survived=st.integers(0, 12) | st.integers(0, 40),
        then=st.sampled_from(["others", "nothing", "others", "reboot"]),
    )
    def is_killed(self, data: st.DataObject, wanted: Layout, n_survived: int, then: str) -> None:
        with suppress(Crash), mortal(None, Fate(n_survived)):
            self.applied(wanted)
        self.places = list(wanted)
        if then == "others":
            self.put(data)
        elif then == "reboot":
            self.reboot(data, others_are_faster=True)

    @rule(data=st.data(), others_are_faster=st.booleans())
    def reboot(self, data: st.DataObject, others_are_faster: bool) -> None:
        standing = self.standin.standing()
        self.of_boots_before |= {(item.start, item.profile, item.gi_id): item.uuids for item in standing}
        self.standin.reboot()
        self.n_boots += 1
        self.others.clear()
        if others_are_faster:
            self.put(data)
        found = self.listed()
        assert not found["ours"] | found["perhaps ours"]

    @rule(data=st.data())
    def others_come(self, data: st.DataObject) -> None:
        self.put(data)

    def put(self, data: st.DataObject) -> None:
        """Others make an instance, most often where a verb has just been at work; ids and UUIDs come again."""
        standing = self.standin.standing()
        held = [MODEL.placement(f"{item.profile}@{item.start}") for item in standing]
        free = [placement for placement in MODEL.placements() if MODEL.fits((*held, placement))]
        if not free:
            return
        inviting = [placement for placement in free if placement in self.places]
        placement = data.draw(st.sampled_from(inviting or free) | st.sampled_from(free), label="theirs")
        name, start, is_whole = placement.profile.name, placement.start, data.draw(st.booleans(), label="whole")
        made = self.standin.put(name, start, with_ci=is_whole)
        again = {gi_id for at, of, gi_id in self.of_boots_before if (at, of) == (start, name)} | {0, 1, 2}
        unused = sorted(again - {item.gi_id for item in standing})
        gi_id = data.draw(st.sampled_from([made.gi_id, *unused]), label="id")
        with self.standin.locked() as state:
            gi = next(item for item in state.gpus[0].gis if item.used and item.id == made.gi_id)
            gi.id = gi_id
            for uuid in self.of_boots_before.get((start, name, gi_id), ())[: int(is_whole)]:
                next(ci for ci in gi.cis if ci.used).uuid = uuid.encode()
        self.others |= {item for item in self.standin.standing() if item.gi_id == gi_id}

    @precondition(lambda self: any(not item.uuids for item in self.others))
    @rule()
    def others_finish(self) -> None:
        for half in [item for item in self.others if not item.uuids]:
            self.standin.finish(half.gi_id)
            self.others.remove(half)
            self.others |= {item for item in self.standin.standing() if item.gi_id == half.gi_id}

    @precondition(lambda self: self.standin.standing())
    @rule(data=st.data())
    def somebody_destroys_one(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.standin.standing()), label="instance")
        self.standin.take_away(gone.gi_id)
        self.others.discard(gone)

    @rule(after_effect=st.booleans())
    def calls_fail_from_now_on(self, after_effect: bool) -> None:
        self.standin.heal()
        for op in (CREATE_GI, CREATE_CI, DESTROY_GI):
            self.standin.fail(op, UNKNOWN, per_mille=300, after_effect=after_effect)
        self.is_well = False

    @precondition(lambda self: not self.is_well)
    @rule()
    def all_is_well_again(self) -> None:
        self.standin.heal()
        self.is_well = True

    @invariant()
    def others_have_what_they_made(self) -> None:
        assert self.others <= set(self.standin.standing())

    @invariant()
    def what_is_ours_is_known_or_told(self) -> None:
        found = self.listed()
        assert found["ours"] <= self.ours()
        assert self.ours() <= found["ours"] | found["perhaps ours"]

    def teardown(self) -> None:
        """Nothing is leaked."""
        if not hasattr(self, "standin"):
            return
        self.standin.heal()
        is_done, found = self.is_done(clear_command), self.listed()
        assert is_done is not bool(found["perhaps ours"])
        assert (found["ours"], self.ours() - found["perhaps ours"]) == (set(), set())
        assert self.applied(Layout(), adopt=True)
        assert not self.standin.standing()
        self.standin.close()


def test_whatever_is_typed_and_cut_off_others_instances_stand_and_ours_are_known_or_told(
    capsys: pytest.CaptureFixture[str], make_standin: MakeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executor.processes.PROC", tmp_path / "proc")
    monkeypatch.setattr("executor.clock.WallClock.sleep_until", lambda *_: None)
    monkeypatch.setattr("executor.driver.boot_id", lambda: f"boot {Verbs.now.n_boots}")
    run_state_machine_as_test(
        lambda: Verbs(capsys, make_standin, tmp_path / "state"),
        settings=settings(derandomize=True, max_examples=N_HISTORIES, stateful_step_count=15),
    )
