"""Files written whole, and on the disk then."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from executor.whole_file import sync_folder, write_whole


def test_file_and_name_are_on_the_disk_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, bool]] = []

    def seen(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink(), (tmp_path / "new").exists()))

    monkeypatch.setattr("os.fsync", seen)
    write_whole(tmp_path / "new", b"all")
    assert (tmp_path / "new").read_bytes() == b"all"
    (first, named_first), second = synced
    assert (first.parent, named_first, second) == (tmp_path, False, (tmp_path, True))


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "old").write_bytes(b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "old", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("old", b"old")]


@pytest.mark.parametrize(("number", "is_told"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_without_anything_to_sync_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_told: bool
) -> None:
    def refuses(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", refuses)
    if is_told:
        with pytest.raises(OSError, match="Input/output error"):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)
