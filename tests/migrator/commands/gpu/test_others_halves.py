"""Others make halves, GPU instances without a compute instance, at every moment at which a command of ours is at work.

A history: a layout of ours stands; a command changes it, and at its first, second, … moment (before, in the middle of
and after each journal write, before and after each driver call) others make a half wherever there is room at a place
of ours. There the command is cut off, or it goes on; cut off, others also replace what is ours by halves with its ids.
Then comes another command. Always: others' halves stand as they are, the list shows each, and whichever may be taken
for ours is named by each command. ``--adopt`` alone takes them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from executor.catalogue import gpu_model
from tests.executor.mortal import Fate, mortal
from tests.standin.cards import A100_80
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import DriverClock, StandIn, Standing

N_HISTORIES = int(os.environ.get("MIGRATOR_TEST_HISTORIES", "100"))
"""How many; more of them are other ones."""

N_MOMENTS, N_TOGETHER = 44, 4
"""Moments at which a change of two instances for two others can be cut off, and its end; histories of one test."""

MODEL = gpu_model("a100-80gb")
PAIRS = [layout for layout in MODEL.layouts() if len(layout) == 2]
CHANGES = [(before, target) for before, target in product(PAIRS, PAIRS) if not set(before) & set(target)]
SHORT = {"windows": 1, "window_s": 20, "tenants.0.retraining.samples": 100, "retraining.required": False}


class Moment(Fate):
    """A moment of a command; there it is cut off, or others act, and it goes on."""

    def __init__(self, n_before: int, others_act: Callable[[], None], *, cuts_off: bool) -> None:
        super().__init__(n_before)
        self._n_before, self._others_act, self._cuts_off = n_before, others_act, cuts_off
        self.has_others_acted = False

    @property
    def has_come(self) -> bool:
        """Whether the command is cut off here."""
        is_now = self.n_met == self._n_before
        has_come = super().has_come
        if is_now and not self._cuts_off:
            self._others_act()
            self.has_others_acted = True
        return has_come and self._cuts_off


@dataclass
class History:
    """One GPU, our commands, and others."""

    number: int
    standin: StandIn
    type_in: Callable[..., tuple[int, str, str]]
    config: Path
    state: Path
    halves: set[Standing] = field(default_factory=set)
    n_runs: int = 0

    def __post_init__(self) -> None:
        chance = random.Random(self.number // (2 * N_MOMENTS))
        self.before, self.target = chance.choice(CHANGES)
        self.cuts_off = self.number // N_MOMENTS % 2 == 0

    def command(self, verb: str) -> tuple[int, str, str]:
        where = ("--state", self.state)
        if verb == "run":
            self.n_runs += 1
            return self.type_in("run", self.config, "--gpu", "nvml", *where, "--out", self.state / f"run {self.n_runs}")
        layout = [",".join(map(str, self.target))] if verb == "apply" else []
        return self.type_in("gpu", verb, *layout, *where)

    def others_act(self) -> None:
        """Halves come to every place of ours where there is room; cut off, in place of ours, too."""
        ours = {(item.start, item.profile): item.gi_id for item in self.ours_before}
        for place in dict.fromkeys((*self.before, *self.target)):
            standing = self.standin.standing()
            at = (place.start, place.profile.name)
            there = next((item for item in standing if (item.start, item.profile) == at), None)
            if there is not None and there not in self.halves and self.cuts_off and self.number % 3 == 0:
                self.standin.take_away(there.gi_id)
                self.put(place.profile.name, place.start, there.gi_id)
            elif MODEL.fits((*(MODEL.placement(f"{i.profile}@{i.start}") for i in standing), place)):
                free = ours.get(at) if ours.get(at) not in {item.gi_id for item in standing} else None
                self.put(place.profile.name, place.start, free)

    def put(self, profile: str, start: int, gi_id: int | None) -> None:
        self.halves.add(self.standin.put(profile, start, with_ci=False, gi_id=gi_id))

    def lives(self) -> int:
        """Carry it out; how many halves others have made."""
        assert self.type_in("gpu", "apply", ",".join(map(str, self.before)), "--state", self.state)[0] == 0
        self.ours_before = self.standin.standing()
        first = "run" if self.number % 20 == 7 or self.number // (2 * N_MOMENTS) % 5 == 4 else "apply"
        first = "clear" if self.number % 10 == 3 else first
        moment = Moment(self.number % N_MOMENTS, self.others_act, cuts_off=self.cuts_off)
        with mortal(None, moment):
            self.command(first)
        if self.cuts_off or not moment.has_others_acted:
            self.others_act()
        for verb in (("clear", "apply", "restore")[self.number % 3], "run" if self.number % 20 == 11 else "clear"):
            doubted = self.named_as_perhaps_ours()
            _, out, err = self.command(verb)
            assert [name for name in doubted if name not in out + err] == [], (verb, err)
            self.named_as_perhaps_ours()
        self.type_in("gpu", "apply", "7g.80gb@0", "--adopt", "--state", self.state)
        assert [(item.profile, len(item.uuids)) for item in self.standin.standing()] == [("7g.80gb", 1)]
        return len(self.halves)

    def named_as_perhaps_ours(self) -> list[str]:
        """Others' halves stand, and are listed as nobody's of ours; those that may be taken for ours, by name."""
        assert self.halves <= set(self.standin.standing())
        _, out, err = self.type_in("gpu", "list", "--json", "--state", self.state)
        listed = {item["gi_id"]: item for item in json.loads(out)["gpus"][0]["instances"]}
        assert not any(listed[half.gi_id]["ours"] for half in self.halves)
        perhaps = [half for half in self.halves if listed[half.gi_id]["perhaps_ours"]]
        names = [f"{half.profile}@{half.start} (GPU instance ID {half.gi_id})" for half in perhaps]
        assert all(name in err for name in names)
        return names


def with_nobody_at_the_driver(proc: Path) -> Path:
    """The processes of a machine that shows all of them: an administrator between two commands leaves none."""
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    (proc / "1").mkdir()
    (proc / "sys" / "kernel" / "random").mkdir(parents=True)
    (proc / "sys" / "kernel" / "random" / "boot_id").write_text("a boot")
    return proc


@pytest.mark.parametrize("first", range(0, N_HISTORIES, N_TOGETHER))
def test_others_halves_stand_and_are_named_wherever_ours_can_be_cut_off(
    call, write_config, make_standin: MakeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr("executor.clock.WallClock.sleep_until", lambda *_: None)
    monkeypatch.setattr("executor.processes.PROC", with_nobody_at_the_driver(tmp_path / "proc"))
    n_made = 0
    for number in range(first, min(first + N_TOGETHER, N_HISTORIES)):
        standin = make_standin(A100_80)
        monkeypatch.setattr(
            "migrator.execution.real.WallClock", lambda start_s=0.0, own=standin: DriverClock(own, start_s)
        )
        n_made += History(number, standin, call, write_config(SHORT), tmp_path / f"state {number}").lives()
    is_cut_off = first // N_MOMENTS % 2 == 0
    assert n_made > 0 or not is_cut_off  # a command that goes on may leave no room at the places of ours
