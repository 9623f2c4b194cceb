"""The benchmark of a folder writes what it says it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed import inbox
from workloads.learning.inbox import Inbox


def test_all_files_but_the_torn_one_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "N_FILES", 501)
    monkeypatch.setattr(inbox, "N_SAMPLES", 1)
    (tmp_path / "theirs").mkdir()
    inbox.write(tmp_path / "theirs", 0)
    own = Inbox(tmp_path / "theirs", tmp_path / "kept", "uint8", inbox.SHAPE, inbox.N_CLASSES, seed=1)
    (told,) = own.take_up(0)
    assert told.startswith("0-0500.npz: ")
    assert len([*(tmp_path / "theirs" / "taken").iterdir()]) == 500
