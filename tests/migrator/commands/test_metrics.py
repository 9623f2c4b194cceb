"""``--metrics`` of a run: its metrics by a process of its own, which ends with it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from migrator.views.progress import RunView
from tests.migrator.conftest import WriteConfig
from tests.migrator.execution.resuming import SHORT

Call = Callable[..., Any]


@pytest.fixture
def taken() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def scraped(port: int) -> str:
    line = HTTPConnection("127.0.0.1", port)
    line.request("GET", "/metrics")
    return line.getresponse().read().decode()


def test_a_port_in_use_is_refused_before_anything_begins(call: Call, write_config: WriteConfig, taken: int) -> None:
    code, _, err = call("run", write_config(SHORT), "--metrics", taken, "--out", "run")
    reason = "Address already in use; 0 takes any that is free"
    assert (code, err) == (2, f"error: --metrics {taken} at 127.0.0.1: {reason}\n")
    assert not list(Path().iterdir())


def test_a_dry_run_and_a_machine_without_the_extra_have_none(
    call: Call, write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = call("run", write_config(SHORT), "--metrics", 0, "--dry-run")
    assert (code, "--dry-run carries none out" in err) == (2, True)
    monkeypatch.setattr("migrator.commands.metrics.lacking", lambda _: "needs it")
    assert call("run", write_config(SHORT), "--metrics", 0) == (2, "", "error: --metrics needs it\n")


def test_it_answers_while_the_run_goes_on_and_ends_with_it(
    call: Call, write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, told = list[str](), list[str]()
    monkeypatch.setattr("migrator.commands.metrics.note", told.append)
    monkeypatch.setattr(RunView, "settled", lambda *_: texts.append(scraped(port_in(told[0]))))
    code, _, _ = call("run", write_config(SHORT), "--metrics", 0, "--out", "run")
    found = [re.search('_requests_total{outcome="in_time",tenant="vision"} (.*)', text) for text in texts]
    counts = [float(one[1]) for one in found if one is not None]
    assert (code, len(counts), 0 < counts[0] < counts[1] < counts[2]) == (0, 3, True)
    with pytest.raises(ConnectionRefusedError):
        scraped(port_in(told[0]))


def test_it_ends_where_the_run_is_killed(write_config: WriteConfig, tmp_path: Path) -> None:
    loops = {f"tenants.{number}.arrivals.loop": True for number in (0, 1)}
    config = write_config({**SHORT, "windows": 2000, **loops})
    command = [sys.executable, "-m", "migrator", "run", config, "--metrics", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as run:
        assert run.stderr is not None
        port = port_in(run.stderr.readline())
        assert "migrator_log_ok 1.0" in scraped(port)
        with socket.create_connection(("127.0.0.1", port)) as line:
            run.kill()
            assert line.recv(1) == b""  # the process is gone, or the line would be held
    with pytest.raises(ConnectionError):
        scraped(port)


def port_in(told: str) -> int:
    found = re.search(r"127\.0\.0\.1:(\d+)", told)
    assert found is not None
    return int(found[1])
