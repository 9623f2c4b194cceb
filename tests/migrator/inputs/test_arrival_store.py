"""Arrivals on the disk: each second once, whole or unknown, whatever happens to the process or to the files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.inputs.arrival_store import DAY_S, UNKNOWN, ArrivalStore

NAMES = ("a", "a-1")


class Stored(ArrivalStore):
    """A store that keeps what it tells."""

    def __init__(self, folder: Path, tenants: Sequence[str] = NAMES) -> None:
        self.said: list[str] = []
        super().__init__(folder, tenants, self.said.append)


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "arrivals")


def test_what_is_written_is_read_again_over_the_border_of_days(store: Stored) -> None:
    counts = np.arange(20, dtype=np.int64).reshape(10, 2)
    store.write(DAY_S - 4, counts)
    again = Stored(store.path("a", 0).parent)
    assert again.read(DAY_S - 6, DAY_S + 7).tolist() == [[UNKNOWN] * 2] * 2 + counts.tolist() + [[UNKNOWN] * 2]
    assert (again.end_s, again.read(5, 5).shape) == (DAY_S + 6, (0, 2))
    assert sorted(path.name for path in store.path("a", 0).parent.iterdir()) == ["0-a", "0-a-1", "1-a", "1-a-1"]


def test_nothing_is_made_before_something_is_written(store: Stored) -> None:
    assert (store.end_s, store.read(0, 3).tolist(), store.said) == (0, [[UNKNOWN] * 2] * 3, [])
    assert not store.path("a", 0).parent.exists()


def test_a_write_that_was_cut_off_leaves_the_seconds_before_it(store: Stored) -> None:
    store.write(0, np.full((9, 2), 5))
    whole = store.path("a", 0).read_bytes()
    for n_bytes in range(len(whole)):
        store.path("a", 0).write_bytes(whole[:n_bytes])
        read = Stored(store.path("a", 0).parent).read(0, 9)
        assert read[:, 0].tolist() == [5] * (n_bytes // 8) + [UNKNOWN] * (9 - n_bytes // 8)
        assert read[:, 1].tolist() == [5] * 9


@given(place=st.integers(0, 8 * 9 - 1), bit=st.integers(0, 7))
def test_no_bit_changes_unseen(tmp_path_factory: pytest.TempPathFactory, place: int, bit: int) -> None:
    own = Stored(tmp_path_factory.mktemp("own"))
    own.write(100, np.full((9, 2), 3))
    raw = bytearray(own.path("a", 0).read_bytes())
    raw[800 + place] ^= 1 << bit
    own.path("a", 0).write_bytes(raw)
    assert own.read(100, 109)[:, 0].tolist() == [UNKNOWN if n == place // 8 else 3 for n in range(9)]
    assert own.said == [f"{own.path('a', 0)}: 1 s are damaged; what came then is taken as unknown"]


def test_a_place_of_another_second_or_tenant_is_none(store: Stored) -> None:
    store.write(0, np.full((2, 2), 3))
    raw = store.path("a", 0).read_bytes()
    store.path("a-1", 0).write_bytes(raw)
    store.path("a", 0).write_bytes(raw[8:] + raw[:8])
    assert (store.read(0, 2) == UNKNOWN).all()
    assert len(store.said) == 2


def test_seconds_that_are_not_as_the_log_sums_them_are_unknown(store: Stored) -> None:
    store.write(0, np.full((9, 2), 5))
    sums = [
        (first, first + 3, name, told) for first in (0, 3, 6) for name, told in store.sums(first, first + 3).items()
    ]
    store.write(4, np.full((1, 2), 6))
    store.hold_against(sums)
    assert store.read(2, 8)[:, 0].tolist() == [5, *[UNKNOWN] * 3, 5, 5]
    assert [said.partition(": ")[2][:46] for said in store.said] == [
        "seconds 3 to 6 are not as they were counted; w"
    ] * 2
    assert store.sums(DAY_S, DAY_S) == dict.fromkeys(NAMES, "00000000")


@pytest.mark.parametrize("thing", ["folder", "pipe"])
def test_what_is_no_file_is_told_and_taken_as_unknown(store: Stored, thing: str) -> None:
    path = store.path("a", 0)
    path.parent.mkdir()
    if thing == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert (store.read(0, 2) == UNKNOWN).all()
    assert store.said == [f"{path}: it is a {thing}; a file is needed; what came then is taken as unknown"]
    with pytest.raises(OSError, match=r"needed|directory"):
        store.write(0, np.zeros((1, 2), np.int64))


def test_other_files_in_the_folder_do_not_matter(store: Stored) -> None:
    store.write(3, np.zeros((1, 2), np.int64))
    (store.path("a", 0).parent / "notes").write_text("mine")
    (store.path("a", 0).parent / "9-b").write_text("")
    store.sync(0, 2 * DAY_S)
    assert store.end_s == 4
