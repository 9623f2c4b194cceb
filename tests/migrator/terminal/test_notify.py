"""What a service manager is told, in this process: the socket is of the test."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.terminal.notify import notify


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(name.replace("@", "\0", 1))
        hears.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield hears


def test_the_manager_is_told_each_word(manager: socket.socket) -> None:
    for word in ("READY=1", "WATCHDOG=1"):
        notify(word)
    assert [manager.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]


@pytest.mark.parametrize("address", ["", "vsock:1:2", "/nowhere/notify", "@nobody-hears-this"])
def test_without_a_manager_that_hears_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
