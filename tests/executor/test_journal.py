"""What is ours outlives us, and nothing else is taken for ours."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executor.catalogue import gpu_model
from executor.errors import OtherControllerError
from executor.gpu import GpuInstance
from executor.journal import Intent, Journal, JournalError, Records, Remembered, Verb, recorded
from executor.mig import Layout
from executor.processes import Process, user_name

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


HALF = GpuInstance(3, PLACEMENT, "")


def cut_off(path: Path, verb: Verb, boot: str | None = "a boot") -> None:
    """A controller has died at work on the place."""
    with Journal(path, boot) as journal:
        if verb == "create":
            journal.begin("create", PLACEMENT, others=[7])
        else:
            journal.stands(MADE if verb == "destroy" else HALF)
            journal.begin(verb, PLACEMENT, 3)


@pytest.mark.parametrize("verb", ["create", "destroy", "repair"])
def test_half_an_instance_where_a_call_was_cut_off_is_told_and_not_ours(path: Path, verb: Verb) -> None:
    cut_off(path, verb)
    with Journal(path, "a boot") as journal:
        assert (journal.is_ours(HALF), journal.is_perhaps_ours(HALF)) == (False, True)
        journal.settle([HALF])
        assert (journal.is_ours(HALF), journal.begun) == (False, None)
        (said,) = journal.untold()
        assert said.startswith("2g.12gb@2 (GPU instance ID 3) may be ours, left by a call that was cut off")
        assert "--adopt takes it over" in said
        assert journal.untold() == []
    with Journal(path, "a boot") as journal:
        journal.settle([HALF])
        assert not journal.is_ours(HALF)
        assert len(journal.untold()) == 1


def test_half_an_instance_where_ours_was_is_told_and_not_ours_and_ours_is_when_it_is_seen_again(path: Path) -> None:
    with Journal(path, "a boot") as journal:
        journal.stands(MADE)
        journal.settle([HALF])
        assert (journal.is_ours(HALF), journal.is_perhaps_ours(HALF), len(journal.untold())) == (False, True, 1)
        journal.settle([MADE])
        assert journal.is_ours(MADE)
        journal.settle([HALF])
        journal.settle([GpuInstance(3, PLACEMENT, "MIG-b")])
        journal.settle([HALF])
        assert not journal.is_perhaps_ours(HALF)


def test_half_an_instance_that_stood_no_more_is_forgotten_by_the_controller_that_left_it(path: Path) -> None:
    with Journal(path, "a boot") as journal:
        journal.stands(HALF)
        journal.settle([HALF])
        assert journal.is_ours(HALF)
        journal.settle([])
        assert not journal.is_ours(HALF)


@pytest.mark.parametrize("verb", ["create", "repair"])
def test_a_whole_instance_where_a_call_was_cut_off_is_told_and_not_ours(path: Path, verb: Verb) -> None:
    cut_off(path, verb)
    with Journal(path, "a boot") as journal:
        journal.settle([MADE])
        assert (journal.is_ours(MADE), journal.is_perhaps_ours(MADE)) == (False, True)
    assert recorded(path, "a boot").is_perhaps_ours(MADE)
    with Journal(path, "a boot") as journal:
        journal.settle([MADE])
        assert len(journal.untold()) == 1
        journal.stands(MADE)
        assert (journal.is_ours(MADE), journal.is_perhaps_ours(MADE)) == (True, False)
    assert recorded(path, "a boot").is_ours(MADE)


def test_an_id_that_was_there_before_a_creation_is_not_what_it_made(path: Path) -> None:
    cut_off(path, "create")
    with Journal(path, "a boot") as journal:
        theirs = [GpuInstance(7, PLACEMENT, uuid) for uuid in ("", "MIG-c")]
        assert not any(map(journal.is_perhaps_ours, theirs))
        journal.settle(theirs[:1])
        assert not journal.is_ours(theirs[0])


@pytest.mark.parametrize("made", [MADE, HALF], ids=["whole", "half"])
def test_what_the_driver_has_named_is_ours_as_long_as_the_controller_lives(path: Path, made: GpuInstance) -> None:
    with Journal(path, "a boot") as journal:
        journal.begin("create", PLACEMENT, others=[7])
        journal.named(made.gi_id)
        journal.settle([made])
        assert journal.is_ours(made)
        journal.begin("create", OTHER_PLACE)
        journal.settle([GpuInstance(4, OTHER_PLACE, "MIG-b")])
        assert len(journal.untold()) == 1


def test_another_id_than_the_driver_has_named_is_perhaps_ours(path: Path) -> None:
    with Journal(path, "a boot") as journal:
        journal.begin("create", PLACEMENT, others=[7])
        journal.named(4)
        journal.settle([MADE])
        assert (journal.is_ours(MADE), journal.is_perhaps_ours(MADE)) == (False, True)


def test_half_an_instance_that_was_written_down_proves_nothing_to_the_next_controller(path: Path) -> None:
    with Journal(path, "a boot") as journal:
        journal.stands(HALF)
        assert journal.is_ours(HALF)
    with Journal(path, "a boot") as journal:
        journal.settle([HALF])
        assert (journal.is_ours(HALF), journal.is_perhaps_ours(HALF)) == (False, True)


def test_what_is_doubtful_is_forgotten_when_it_is_gone(path: Path) -> None:
    cut_off(path, "create")
    with Journal(path, "a boot") as journal:
        journal.settle([MADE])
        journal.settle([GpuInstance(3, PLACEMENT, "MIG-b")])
        assert not journal.is_perhaps_ours(MADE)


@pytest.mark.parametrize("verb", ["create", "destroy", "repair"])
def test_after_another_boot_nothing_is_ours_and_nothing_may_be(path: Path, verb: Verb) -> None:
    cut_off(path, verb)
    with Journal(path, "another boot") as journal:
        for records in (recorded(path, "another boot"), journal):
            assert records.begun is None
            assert not any(records.is_ours(item) or records.is_perhaps_ours(item) for item in (HALF, MADE))
    assert recorded(path, "a boot").begun is not None


def test_a_controller_of_another_boot_begins_anew_and_remembers_the_layout(path: Path) -> None:
    with Journal(path, "a boot") as journal:
        journal.aim(Layout((PLACEMENT,)))
        journal.stands(MADE)
    other = GpuInstance(4, OTHER_PLACE, "MIG-b")
    with Journal(path, "another boot") as journal:
        journal.stands(other)
    records = recorded(path, "another boot")
    assert (records.is_ours(MADE), records.is_ours(other), records.target) == (False, True, ("2g.12gb@2",))


def test_where_no_boot_is_told_from_another_only_a_uuid_proves_anything(path: Path) -> None:
    cut_off(path, "destroy", None)
    with Journal(path) as journal:
        assert journal.is_ours(MADE)
        journal.settle([HALF])
        assert (journal.is_ours(HALF), journal.is_perhaps_ours(HALF)) == (False, True)


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


def whats_in(records: Records) -> tuple[object, ...]:
    return records.target, records.begun, dict(records._made), dict(records._unproven), records._written_boot


def some_lines(path: Path) -> bytes:
    """One line of each kind, as they follow upon each other."""
    cut_off(path, "create")
    with Journal(path, "a boot") as journal:
        journal.settle([MADE])
        journal.aim(Layout((OTHER_PLACE,)))
        journal.begin("create", OTHER_PLACE, others=[3])
        journal.nothing_done()
        journal.begin("create", OTHER_PLACE, others=[3])
        journal.stands(GpuInstance(4, OTHER_PLACE, "MIG-b"))
        journal.gone(4)
        journal.stands(GpuInstance(5, OTHER_PLACE, "MIG-c"))
    return path.read_bytes()


def test_a_file_of_which_one_byte_differs_is_refused(path: Path) -> None:
    raw = some_lines(path)
    told: set[str] = set()
    for position in range(len(raw)):
        others = {*range(position % 8, 256, 8), *(raw[position] ^ 1 << bit for bit in range(8))}
        for byte in others - {raw[position]}:
            try:
                Records(path)._read(raw[:position] + bytes([byte]) + raw[position + 1 :])
            except JournalError as error:
                told.add(str(error))
            else:
                pytest.fail(f"byte {position} may be {byte}")
    assert [one for one in told if not re.search(r"gpu\.jsonl line \d+: not a record of ours", one)] == []


def test_a_file_that_was_cut_short_says_what_its_whole_lines_say(path: Path) -> None:
    raw = some_lines(path)
    lines = raw.splitlines(keepends=True)
    for length in range(len(raw)):
        cut, whole = Records(path), Records(path)
        torn = cut._read(raw[:length])
        n_whole = raw[:length].count(b"\n")
        assert whole._read(b"".join(lines[:n_whole])) == 0
        assert torn == length - len(b"".join(lines[:n_whole]))
        assert whats_in(cut) == whats_in(whole)


def test_a_line_that_is_missing_doubled_or_swapped_is_refused(path: Path) -> None:
    lines = some_lines(path).splitlines(keepends=True)
    for n, line in enumerate(lines):
        rest, last = lines[n + 1 :], n == len(lines) - 1
        spoiled = [[*lines[:n], line, line, *rest]] + ([] if last else [lines[:n] + rest])
        spoiled += [] if last else [[*lines[:n], rest[0], line, *rest[1:]]]
        for wrong in spoiled:
            with pytest.raises(JournalError, match="lines are missing, doubled or swapped"):
                Records(path)._read(b"".join(wrong))


def test_a_refusal_says_what_to_do(path: Path) -> None:
    raw = some_lines(path)
    path.write_bytes(raw.replace(b"MIG-b", b"MIG-x"))
    with pytest.raises(JournalError, match=r"migrator gpu list\), delete the file, then .*gpu apply LAYOUT --adopt"):
        Journal(path)


@pytest.mark.parametrize("opened", [recorded, Journal])
@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_a_journal_that_is_no_file_or_too_large_is_refused_and_neither_waited_for_nor_read(
    path: Path, opened: Callable[[Path], Records], kind: str
) -> None:
    path.parent.mkdir(exist_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.touch()
            os.truncate(path, 2**40)
    with pytest.raises(JournalError, match=f"it is a {kind}; a file is needed|it is larger than 256 MiB"):
        opened(path)


def test_a_second_controller_is_refused_until_the_first_has_left(path: Path) -> None:
    with Journal(path), pytest.raises(OtherControllerError, match=f"one at a time: process {os.getpid()} "):
        Journal(path)
    with Journal(path) as journal:
        assert journal.begun is None


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (None, "one at a time; --state DIR keeps"),
        (Process(2**30), "process 1073741824 is gone; wait until what it has called ends, or --state DIR keeps"),
        (
            Process(os.getpid(), "migrator run x.yaml", "somebody-else"),
            r"process \d+ \(migrator run x.yaml, somebody-else\), of another user; wait for it, or --state DIR keeps",
        ),
        (
            Process(os.getpid(), "migrator run x.yaml", user_name(os.geteuid())),
            r"run x.yaml, \w+\); wait for it, or end it, or --state DIR keeps",
        ),
    ],
)
def test_only_a_living_process_of_our_own_user_is_one_to_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, holder: Process | None, words: str
) -> None:
    monkeypatch.setattr("executor.journal.holder_of_lock", lambda _: holder)
    with Journal(path), pytest.raises(OtherControllerError, match=words):
        Journal(path)


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
        assert journal.begun is not None


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


@pytest.mark.parametrize("boot", ["a boot", None], ids=["the boot is known", "it is not"])
def test_a_long_file_is_shortened_and_holds_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, boot: str | None
) -> None:
    doubtful = GpuInstance(4, OTHER_PLACE, "MIG-b")
    with Journal(path, "a boot") as journal:
        journal.aim(Layout((PLACEMENT,)))
        journal.begin("create", OTHER_PLACE)
        journal.settle([doubtful])
        for _ in range(50):
            journal.stands(MADE)
        journal.begin("destroy", PLACEMENT, MADE.gi_id)
    length = len(path.read_bytes())
    monkeypatch.setattr("executor.journal.LARGEST_BYTES", 1000)
    with Journal(path, boot) as journal:
        assert len(path.read_bytes()) < length / 9
        assert journal.is_perhaps_ours(doubtful)
        assert journal.is_ours(MADE)
        assert (journal.target, journal.begun) == (
            (str(PLACEMENT),),
            Intent("destroy", str(PLACEMENT), MADE.gi_id),
        )
        with pytest.raises(OtherControllerError):
            Journal(path)
        journal.gone(MADE.gi_id)
    assert not recorded(path, "a boot").is_ours(MADE)
    assert recorded(path, "a boot").is_perhaps_ours(doubtful)
    assert recorded(path, "another boot").target == (str(PLACEMENT),)
    assert not recorded(path, "another boot").is_perhaps_ours(doubtful)


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
    assert [item.name for item in path.parent.iterdir()] == [path.name]
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
