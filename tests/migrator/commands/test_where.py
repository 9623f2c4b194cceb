"""Where what is ours on a GPU is written down."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from migrator.commands.where import state_folder


def test_state_lies_where_xdg_has_it_else_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert state_folder() == tmp_path / ".local" / "state" / "migrator"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_folder() == tmp_path / "state" / "migrator"


def test_another_users_home_is_not_taken_for_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "theirs"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    stat = Path.stat

    def seen(path: Path, **options: bool) -> object:
        found = stat(path, **options)
        return SimpleNamespace(st_uid=found.st_uid + 1, st_mode=found.st_mode) if path.name == "theirs" else found

    monkeypatch.setattr(Path, "stat", seen)
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "mine")))
    assert state_folder() == tmp_path / "mine" / ".local" / "state" / "migrator"
