"""Samples that others write: what is taken up, what is not, and what is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.errors import LearningError
from workloads.learning import inbox
from workloads.learning.experiences import Benchmark
from workloads.learning.inbox import REJECTED, TAKEN, Inbox, benchmark_in


@pytest.fixture
def own(tmp_path: Path) -> Inbox:
    (tmp_path / "theirs").mkdir()
    return Inbox(tmp_path / "theirs", tmp_path / "ours", "uint8", (1, 2), 4, seed=1)


def write(own: Inbox, name: str, n: int = 40, value: int = 0, **changes: Any) -> None:
    arrays = {"x": np.full((n, 1, 2), value, np.uint8), "y": np.arange(n) % 4}
    np.savez(own.folder / name, **{key: own for key, own in (arrays | changes).items() if own is not None})


def kept(own: Inbox) -> Benchmark:
    assert own.newest is not None
    return benchmark_in(own.newest[1], "new")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_has_come_is_the_windows_and_a_tenth_of_each_class_is_held_out(own: Inbox) -> None:
    write(own, "a.npz")
    write(own, "b.npz", value=1)
    assert own.newest is None
    assert own.take_up(3) == []
    assert names(own.folder) == [TAKEN]
    assert names(own.folder / TAKEN) == ["a.npz", "b.npz"]
    (one,) = kept(own).experiences
    assert own.newest == (3, own.kept / "window-3.npz")
    assert (len(one.train), len(one.test), one.classes) == (72, 8, (0, 1, 2, 3))
    assert np.bincount(one.test.labels).tolist() == [2, 2, 2, 2]
    assert int(one.train.inputs.sum() + one.test.inputs.sum()) == 80
    assert kept(own).model_options == {"shape": [1, 2], "n_classes": 4, "dtype": "uint8"}


def test_nothing_or_too_little_waits_for_more(own: Inbox) -> None:
    assert own.take_up(0) == []
    write(own, "a.npz", n=inbox.LEAST_SAMPLES - 1)
    assert own.take_up(1) == []
    assert (own.newest, names(own.folder)) == (None, ["a.npz"])
    write(own, "b.npz", n=1)
    own.take_up(2)
    assert own.newest is not None
    assert own.newest[0] == 2


def test_who_is_still_writing_is_left_alone(own: Inbox) -> None:
    (own.folder / ".half.npz").write_bytes(b"PK")
    assert own.take_up(0) == []
    assert names(own.folder) == [".half.npz"]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("a.txt", {}, "its name does not end in .npz"),
        ("a.npz", {"x": None}, "it has no array x"),
        ("a.npz", {"y": None}, "it has no array y"),
        ("a.npz", {"x": np.zeros((40, 2), np.uint8)}, "x is uint8 of shape (40, 2); uint8 of (n, 1, 2) is needed"),
        ("a.npz", {"x": np.zeros((40, 1, 2))}, "x is float64 of shape (40, 1, 2); uint8 of (n, 1, 2) is needed"),
        ("a.npz", {"y": np.zeros(39, int)}, "y is int64 of shape (39,); a whole number for each of 40 is needed"),
        ("a.npz", {"y": np.zeros(40)}, "y is float64 of shape (40,); a whole number for each of 40 is needed"),
        ("a.npz", None, "it is no file of arrays"),
    ],
)
def test_what_cannot_be_taken_is_moved_and_told_and_the_rest_is_taken(
    own: Inbox, name: str, changes: dict[str, Any] | None, said: str
) -> None:
    if name == "a.txt" or changes is None:
        (own.folder / name).write_bytes(b"PK\x03")
    else:
        write(own, name, **changes)
    write(own, "good.npz")
    (told,) = own.take_up(0)
    assert told.startswith(f"{name}: {said}")
    assert told.endswith("; it lies in rejected/")
    assert (names(own.folder / REJECTED), names(own.folder / TAKEN)) == ([name], ["good.npz"])
    assert own.newest is not None


def test_labels_outside_the_classes_are_set_aside_and_counted(own: Inbox) -> None:
    write(own, "a.npz", y=np.arange(40) % 5 - 1)
    assert own.take_up(0) == ["8 samples are set aside, whose labels are not from 0 to 3"]
    (one,) = kept(own).experiences
    assert len(one.train) + len(one.test) == 32


def test_later_windows_remember_the_earlier_ones_and_two_files_stay(own: Inbox) -> None:
    for window, value in enumerate((1, 2, 4)):
        write(own, "a.npz", value=value)
        own.take_up(window)
    assert names(own.kept) == ["window-1.npz", "window-2.npz"]
    assert len(names(own.folder / TAKEN)) == 3  # of one name each
    old, new = kept(own).experiences
    assert np.unique(new.train.inputs).tolist() == np.unique(new.test.inputs).tolist() == [4]
    assert np.unique(old.train.inputs).tolist() == np.unique(old.test.inputs).tolist() == [1, 2]


def test_no_more_is_remembered_than_that(own: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "N_REMEMBERED", 50)
    for window in range(4):
        write(own, "a.npz", n=100)
        own.take_up(window)
    old, new = kept(own).experiences
    assert (len(old.train), len(old.test), len(new.train)) == (50, 24, 92)


def test_what_a_killed_process_had_kept_is_taken_once(own: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    write(own, "a.npz")
    write(own, "b.npz")
    with monkeypatch.context() as patched:
        patched.delattr(inbox, "_move")
        with pytest.raises(NameError):
            own.take_up(0)
    write(own, "b.npz", value=1, n=60)  # anew, under an old name
    own.take_up(1)
    old, new = kept(own).experiences
    assert (len(old.train) + len(old.test), len(new.train) + len(new.test)) == (80, 60)
    assert names(own.folder / TAKEN) == ["a.npz", "b.npz"]


def test_a_folder_that_is_gone_is_told(own: Inbox) -> None:
    own.folder.rmdir()
    with pytest.raises(LearningError, match=r"theirs: No such file or directory$"):
        own.take_up(0)
