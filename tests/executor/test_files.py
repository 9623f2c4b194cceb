"""Input files: what is no regular file, or too large, is refused at once and in words."""

from __future__ import annotations

import errno
import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.files import (
    ALWAYS_BYTES,
    LIMIT,
    MOST_TIMES,
    alike_to,
    gunzipped,
    has_more_values,
    make_new,
    open_appended,
    open_emptied,
    open_input,
    read_arrays,
    read_input,
    sync_folder,
    write_whole,
)

MIB = 2**20


def refusal(path: Path, most_bytes: int = MIB) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011 (what it says is asserted)
        read_input(path, most_bytes)
    return str(caught.value.strerror)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * MIB)
    assert read_input(tmp_path / "file", MIB) == b"x" * MIB


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert read_input(tmp_path / "file", MIB) == b""


def test_a_file_that_the_kernel_makes_up_is_read() -> None:
    assert read_input(Path("/proc/self/stat"), MIB).startswith(b"%d " % os.getpid())


def test_a_larger_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (MIB + 1))
    assert refusal(tmp_path / "file") == "it is larger than 1 MiB, the most that is read"


def test_a_pipe_without_a_writer_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "it is a pipe; a file is needed"


def test_a_device_without_end_is_refused() -> None:
    assert refusal(Path("/dev/zero")) == "it is a device; a file is needed"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "it is a folder; a file is needed"


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name may have 100 characters only
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        assert refusal(Path("socket")) in ("it is a socket; a file is needed", "No such device or address")


def test_a_name_with_a_nul_is_refused() -> None:
    assert refusal(Path("a\0b")) == "its name holds a NUL character"


@pytest.mark.parametrize("name", ["none", "\ud800"])
def test_a_missing_file_is_told_apart(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        read_input(tmp_path / name, MIB)


@pytest.mark.parametrize("opened", [open_input, open_appended, open_emptied])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop"])
def test_nothing_but_a_file_is_opened_and_nothing_is_waited_for(
    tmp_path: Path, opened: Callable[[Path], Any], kind: str
) -> None:
    path = tmp_path / kind
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(path)
    with pytest.raises(OSError, match=f"it is a {kind}; a file is needed|Is a directory|Too many levels"):
        opened(path)


def test_what_is_appended_to_a_file_follows_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one ")
    with open_appended(tmp_path / "file") as file:
        file.seek(0)
        file.write(b"two")
        assert os.get_blocking(file.fileno())
    assert (tmp_path / "file").read_bytes() == b"one two"


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    make_new(tmp_path / "file", b"one")
    with pytest.raises(FileExistsError):
        make_new(tmp_path / "file", b"two")
    assert (tmp_path / "file").read_bytes() == b"one"


def test_arrays_are_read_by_name(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "arrays.npz", a=np.arange(3), b=np.eye(2))
    found = read_arrays(tmp_path / "arrays.npz", MIB)
    assert (sorted(found), found["a"].tolist()) == (["a", "b"], [0, 1, 2])


def test_arrays_that_unpack_to_more_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "arrays.npz", a=np.zeros(MIB))
    with pytest.raises(OSError, match="it unpacks to more than 1 MiB, the most that is read"):
        read_arrays(tmp_path / "arrays.npz", MIB)


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04", b"no arrays"])
def test_what_holds_no_arrays_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "arrays.npz").write_bytes(raw)
    with pytest.raises(OSError, match="it is no file of arrays"):
        read_arrays(tmp_path / "arrays.npz", MIB)


def test_gzip_members_are_joined() -> None:
    assert gunzipped(gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0", MIB) == b"one two"


def test_a_gzip_bomb_is_refused_without_being_unpacked() -> None:
    with pytest.raises(OSError, match="it unpacks to more than 1 MiB, the most that is read"):
        gunzipped(gzip.compress(bytes(64 * MIB)), MIB)


def test_many_small_members_are_a_bomb_as_well() -> None:
    with pytest.raises(OSError, match="it unpacks to more than 1 MiB"):
        gunzipped(gzip.compress(bytes(MIB // 2)) * 3, MIB)


def test_a_small_file_unpacks_to_so_many_times_its_size_unless_more_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = gzip.compress(bytes(64 * MIB))
    assert ALWAYS_BYTES + MOST_TIMES * len(raw) < 64 * MIB
    with pytest.raises(OSError, match=r"it unpacks to more than \d MiB, .*; migrator --max-bytes N VERB … reads more"):
        gunzipped(raw)
    monkeypatch.setattr(LIMIT, "said_bytes", 64 * MIB)
    assert gunzipped(raw) == bytes(64 * MIB)


def test_as_much_is_read_as_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1001)
    assert len(read_input(tmp_path / "file")) == 1001
    monkeypatch.setattr(LIMIT, "said_bytes", 1000)
    with pytest.raises(OSError, match=r"it is larger than 1,000 bytes, the most that is read; migrator --max-bytes"):
        read_input(tmp_path / "file")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\\\,[]{} '),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='b",[{', max_size=3), inner, max_size=4)
    ),
)


def n_values(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(n_values, inner))


@given(JSON, st.sampled_from([None, 1]))
def test_values_of_json_are_counted_before_it_is_parsed(value: object, indent: int | None) -> None:
    text, n = json.dumps(value, indent=indent), n_values(value)
    assert not has_more_values(text, n)
    assert n == 1 or has_more_values(text, n - 1)


@pytest.mark.parametrize(
    "damaged",
    [b"\x1f\x8b", b"\x1f\x8bxxxxxxxxx", gzip.compress(b"x" * 99)[:-9], gzip.compress(b"x") + b"rubbish"],
    ids=["short", "header", "cut", "tail"],
)
def test_a_damaged_gzip_file_is_refused(damaged: bytes) -> None:
    with pytest.raises(OSError, match="broken gzip file"):
        gunzipped(damaged, MIB)


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


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("configs/quickstrat.yaml", "configs/quickstart.yaml"),
        ("confgs/quickstart.yaml", "configs/quickstart.yaml"),
        ("confgs/other.yaml", "configs"),
        ("configs/quickstart.yaml", None),
        ("configs/zzz", None),
        ("zzz/zzz/zzz", None),
        ("configs/new", None),
    ],
)
def test_a_missing_path_is_offered_the_nearest(tmp_path: Path, asked: str, meant: str | None) -> None:
    (tmp_path / "configs").mkdir()
    for name in ("quickstart.yaml", "two\nlines.yaml", "new\x1b.yaml"):
        (tmp_path / "configs" / name).touch()
    assert alike_to(tmp_path / asked) == ("" if meant is None else f" (did you mean {tmp_path / meant}?)")


def test_a_name_that_no_file_system_has_is_offered_none(tmp_path: Path) -> None:
    assert alike_to(tmp_path / "a\0b") == ""
    assert alike_to(tmp_path / ("x" * 5000)) == ""
