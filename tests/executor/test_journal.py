"""What is ours outlives us, and nothing else is taken for ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from executor.catalogue import gpu_model
from executor.gpu import GpuInstance
from executor.journal import Journal, JournalError

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
    with Journal(path), pytest.raises(JournalError, match="another controller has this GPU; one at a time"):
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
