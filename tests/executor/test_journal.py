"""What is ours outlives us, and nothing else is taken for ours."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from executor.catalogue import gpu_model
from executor.errors import OtherControllerError
from executor.gpu import GpuInstance
from executor.journal import Intent, Journal, JournalError, Remembered, recorded
from executor.mig import Layout

PLACEMENT = gpu_model("a30-24gb").placement("2g.12gb@2")
OTHER_PLACE = gpu_model("a30-24gb").placement("2g.12gb@0")
MADE = GpuInstance(3, PLACEMENT, "MIG-a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gpu.jsonl"


def test_what_was_made_is_ours_for_the_next_controller(path: Path) -> None:
    with Journal(path) as journal:
        journal.begin("create", PLACEMENT)
        journal.stands(MADE)
    with Journal(path) as journal:
        assert journal.is_ours(MADE)


@pytest.mark.parametrize(
    "other",
    [GpuInstance(3, PLACEMENT, "MIG-b"), GpuInstance(4, PLACEMENT, "MIG-a"), GpuInstance(3, OTHER_PLACE, "MIG-a")],
    ids=["another uuid", "another id", "another place"],
)
def test_an_instance_that_differs_in_one_thing_is_not_ours(path: Path, other: GpuInstance) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
        assert not journal.is_ours(other)


def test_what_is_gone_is_not_ours(path: Path) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
        journal.gone(3)
        assert not journal.is_ours(MADE)


def test_what_a_creation_that_was_cut_off_has_made_is_ours(path: Path) -> None:
    with Journal(path) as journal:
        journal.begin("create", PLACEMENT, others=[7])
    with Journal(path) as journal:
        assert journal.is_ours(GpuInstance(3, PLACEMENT, ""))
        assert not journal.is_ours(GpuInstance(7, PLACEMENT, "MIG-c"))
        journal.settle([MADE])
        assert journal.open_intent is None
        assert journal.is_ours(MADE)


def test_what_a_destruction_that_was_cut_off_has_left_is_ours(path: Path) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
        journal.begin("destroy", PLACEMENT, 3)
    with Journal(path) as journal:
        assert journal.is_ours(GpuInstance(3, PLACEMENT, ""))


def test_whose_id_comes_again_after_a_destruction_that_was_cut_off_is_not_ours(path: Path) -> None:
    theirs = GpuInstance(3, PLACEMENT, "MIG-b")
    with Journal(path) as journal:
        journal.stands(MADE)
        journal.begin("destroy", PLACEMENT, 3)
        assert not journal.is_ours(theirs)
        journal.settle([theirs])
        assert not journal.is_ours(theirs)


def test_after_a_reboot_nothing_is_ours(path: Path) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
        journal.settle([])
        assert not journal.is_ours(MADE)


def test_a_line_that_was_cut_short_is_left_out(path: Path) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole + whole[:length])
        with Journal(path) as journal:
            assert journal.is_ours(MADE)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("line", ["{}", "[]", "no json", '{"stands": "x", "placement": "a", "uuid": "b"}', "null"])
def test_a_file_that_is_not_ours_is_refused_with_its_line(path: Path, line: str) -> None:
    path.parent.mkdir()
    path.write_text(f"{line}\n")
    with pytest.raises(JournalError, match=r"gpu\.jsonl line 1: not a record of ours"):
        Journal(path)


def test_a_second_controller_is_refused_until_the_first_has_left(path: Path) -> None:
    with Journal(path), pytest.raises(OtherControllerError, match=f"one at a time: process {os.getpid()} "):
        Journal(path)
    with Journal(path) as journal:
        assert journal.open_intent is None


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path / "file" / "gpu.jsonl")


def test_every_record_is_on_the_disk_before_the_next_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with Journal(path) as journal:
        assert len(synced) == 1  # its folder: else a crash may lose the file with all that is in it
        journal.begin("create", PLACEMENT)
        assert synced[-1] == path.stat().st_size
        journal.stands(MADE)
        assert synced[-1] == path.stat().st_size
    assert len(synced) == 3


def test_a_record_that_does_not_fit_on_the_disk_leaves_the_others_readable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
        size = path.stat().st_size

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            journal.gone(3)
        assert path.stat().st_size == size


def test_the_layout_that_was_asked_for_is_remembered(path: Path) -> None:
    with Journal(path) as journal:
        assert journal.target is None
        journal.aim(Layout((OTHER_PLACE, PLACEMENT)))
        journal.stands(MADE)
    with Journal(path) as journal:
        assert journal.target == ("2g.12gb@0", "2g.12gb@2")
        journal.aim(Layout())
        assert journal.target == ()


def test_a_layout_is_asked_for_without_closing_what_was_begun(path: Path) -> None:
    with Journal(path) as journal:
        journal.begin("create", PLACEMENT)
        journal.aim(Layout((PLACEMENT,)))
    with Journal(path) as journal:
        assert journal.open_intent is not None


def test_whoever_only_looks_needs_no_lock_and_writes_nothing(path: Path) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
        with path.open("ab") as file:
            file.write(b'{"gone": ')
        before = path.read_bytes()
        assert recorded(path).is_ours(MADE)
        assert path.read_bytes() == before


def test_looking_makes_no_file(path: Path) -> None:
    assert recorded(path).target is None
    assert not path.parent.exists()


def test_a_full_disk_is_told_with_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Journal(path) as journal:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*gpu\.jsonl'"):
            journal.stands(MADE)


def test_a_folder_that_cannot_lock_is_not_taken_for_another_controller(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(JournalError, match="cannot be locked: No locks available; take another folder"):
        Journal(path)


def test_what_is_only_remembered_is_ours_without_a_file() -> None:
    with Remembered() as journal:
        journal.aim(Layout((PLACEMENT,)))
        journal.stands(MADE)
        assert (journal.is_ours(MADE), journal.target) == (True, ("2g.12gb@2",))


def test_a_long_file_is_shortened_and_holds_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        journal.aim(Layout((PLACEMENT,)))
        for _ in range(50):
            journal.stands(MADE)
        journal.begin("destroy", PLACEMENT, MADE.gi_id)
    length = len(path.read_bytes())
    monkeypatch.setattr("executor.journal.LARGEST_BYTES", 1000)
    with Journal(path) as journal:
        assert len(path.read_bytes()) < length / 10
        assert journal.is_ours(MADE)
        assert (journal.target, journal.open_intent) == (
            (str(PLACEMENT),),
            Intent("destroy", str(PLACEMENT), MADE.gi_id),
        )
        with pytest.raises(OtherControllerError):
            Journal(path)
        journal.gone(MADE.gi_id)
    assert not recorded(path).is_ours(MADE)


def test_a_file_that_cannot_be_shortened_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(path) as journal:
        for _ in range(50):
            journal.stands(MADE)
    before = path.read_bytes()
    monkeypatch.setattr("executor.journal.LARGEST_BYTES", 1000)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Journal(path)
    assert path.read_bytes() == before
    assert recorded(path).is_ours(MADE)


def test_whoever_waited_at_a_file_that_was_shortened_takes_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(path) as journal:
        journal.stands(MADE)
    lock = fcntl.flock
    stale = [True]

    def replaced_meanwhile(file: Any, how: int) -> None:
        lock(file, how)
        if stale.pop():
            stale.append(False)
            (path.parent / "new").write_bytes(path.read_bytes())
            (path.parent / "new").replace(path)

    monkeypatch.setattr("fcntl.flock", replaced_meanwhile)
    with Journal(path) as journal:
        journal.gone(MADE.gi_id)
    assert not recorded(path).is_ours(MADE)
