"""A GPU's service is a process of its own: begun once, adopted, ended, and begun again; a stand-in serves."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.processes import born
from migrator.cluster import services
from migrator.cluster.assigned import GpuReport, LastGoodput, LearnedWeights
from migrator.cluster.services import GpuService
from migrator.config.sections import Config
from migrator.log.report import report_of
from migrator.log.runlog import read_log
from tests.migrator.cluster.test_coordination import begun
from tests.migrator.log import records

PROGRAM = (sys.executable, str(Path(__file__).with_name("standin_service.py")))


@pytest.fixture
def config() -> Config:
    """One tenant, at a port that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = begun().cluster
    tenants = [one for one in cluster.run.tenants if one.name == "mobile"]
    found = cluster.config_of(cluster.gpus[0], tenants)
    assert found.front_door is not None
    return found.model_copy(update={"front_door": found.front_door.model_copy(update={"port": port})})


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuService]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    own = GpuService(tmp_path / "a.0", program=PROGRAM)
    yield own
    if (pid := own.keep(None, 99).pid) is not None:
        os.kill(pid, signal.SIGKILL)


def until(service: GpuService, config: Config | None, holds: Callable[[GpuReport], bool], number: int = 1) -> GpuReport:
    for _ in range(100_000):
        if holds(report := service.keep(config, number)):
            return report
    raise AssertionError(report)


def ready(report: GpuReport) -> bool:
    return report.pid is not None and report.ready == set(report.serves) != set()


def test_a_service_is_adopted_by_who_comes_later_and_ends_when_it_is_told(
    service: GpuService, config: Config, tmp_path: Path
) -> None:
    first = service.keep(config, 1)
    assert first.serves == ("mobile",)
    report = until(service, config, ready)
    assert report.pid is not None
    assert (os.getsid(report.pid), report.said) != (os.getsid(0), "x")
    assert report.said == ""
    assert b"CUDA_VISIBLE" not in Path(f"/proc/{report.pid}/environ").read_bytes()
    later = GpuService(tmp_path / "a.0", program=PROGRAM)
    adopted = later.keep(config, 1)
    assert (adopted.pid, adopted.since_s) == (report.pid, report.since_s)
    until(later, None, lambda one: one.pid is None)
    assert born(report.pid) is None
    assert later.keep(None, 2) == GpuReport()


def test_goodput_is_of_the_last_settled_window(service: GpuService, config: Config, tmp_path: Path) -> None:
    assert service.goodput() == LastGoodput()
    service.keep(config, 1)
    records.write(tmp_path / "a.0" / "run-1", *records.tiny())
    (window,) = [one for one in report_of(read_log(tmp_path / "a.0" / "run-1")).windows if one.total is not None][-1:]
    assert window.total is not None
    assert window.total.requests.goodput_pct is not None
    assert service.goodput() == LastGoodput(window.total.requests.goodput_pct, window.total.expected_goodput_pct)


def test_what_a_tenant_learned_is_what_serves_by_the_log_or_what_the_service_trained_first(
    service: GpuService, config: Config, tmp_path: Path
) -> None:
    run = tmp_path / "a.0" / "run-1"
    learned = records.finished(0, None, 1.0, "mobile") | {"version": "window-0", "weights": "w"}
    records.write(run, records.header(3.0, "mobile"), learned)
    assert (service.serves, service.learned("mobile")) == ((), None)
    service.keep(config, 1)
    assert (service.serves, service.learned("mobile")) == (("mobile",), None)
    first = run / "live" / "weights" / "mobile" / "first" / "final.safetensors"
    first.parent.mkdir(parents=True)
    first.touch()
    assert service.learned("mobile") == LearnedWeights(first, "first", None)
    (run / "w").touch()
    assert service.learned("mobile") == LearnedWeights(run / "w", "window-0", 0.9)
    assert service.learned("vision.0") is None


@pytest.mark.parametrize("backend", ["cpu", "nvml"])
def test_each_share_of_a_cpu_is_another_one(
    service: GpuService, config: Config, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_with: list[list[str]] = []
    monkeypatch.setattr(services.subprocess, "run", lambda asked, **_: begun_with.append(asked))
    service.keep(config.model_copy(update={"gpu": config.gpu.model_copy(update={"backend": backend})}), 1)
    (asked,) = begun_with
    state = ["--state", str(tmp_path / "a.0" / "state")] if backend == "cpu" else []
    assert asked[asked.index("--out") + 2 :] == state


def test_who_has_come_is_ready_by_its_own_word_at_first_and_by_that_for_all_from_then_on(
    service: GpuService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    up = {"/v2/health/ready", "/v2/health/live", "/v2/models/mobile/ready"}
    monkeypatch.setattr(GpuService, "_answers", lambda _own, _host, _port, path: asked.append(path) or path in up)
    for _ in range(2):
        assert service._ready("", 0, ("mobile", "comes")) == {"mobile"}
    up.add("/v2/models/comes/ready")
    assert service._ready("", 0, ("mobile", "comes")) == {"mobile", "comes"}
    asked.clear()
    assert service._ready("", 0, ("mobile", "comes")) == {"mobile", "comes"}
    assert asked == ["/v2/health/ready"]
    up -= {"/v2/health/ready", "/v2/models/mobile/ready"}
    assert service._ready("", 0, ("mobile", "comes")) == {"comes"}
    up -= {"/v2/health/live"}
    assert service._ready("", 0, ("mobile", "comes")) == frozenset()


def test_one_that_died_is_begun_again_in_its_folder(
    service: GpuService, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = until(service, config, ready)
    assert report.pid is not None
    os.kill(report.pid, signal.SIGKILL)
    until(service, config, lambda one: one.pid is None)
    assert "begun; " in service.keep(config, 2).said, "not at once, or it would be begun without end"
    monkeypatch.setattr(services, "RETRY_S", 0.5)
    again = until(service, config, ready, number=2)
    assert (again.pid != report.pid, again.since_s) == (True, report.since_s)


def with_another(config: Config, name: str) -> Config:
    (mobile,) = config.tenants
    return config.model_copy(update={"tenants": [mobile, mobile.model_copy(update={"name": name})]})


def test_a_service_takes_another_set_up_while_it_serves(service: GpuService, config: Config, tmp_path: Path) -> None:
    report, other = until(service, config, ready), with_another(config, "more")
    assert service.keep(other, 2).said == "is asked to take up another set"
    again = until(service, other, lambda one: ready(one) and len(one.serves) == 2, number=2)
    assert again.pid == report.pid
    assert again.since_s > report.since_s
    adopted = GpuService(tmp_path / "a.0", program=PROGRAM).keep(other, 2)
    assert (adopted.pid, adopted.serves) == (report.pid, ("mobile", "more"))


def test_one_that_refuses_another_set_ends_and_one_with_that_set_begins(service: GpuService, config: Config) -> None:
    report, other = until(service, config, ready), with_another(config, "refused")
    until(service, other, lambda one: one.said.startswith("drains, and begins with another set"), number=2)
    again = until(service, other, lambda one: ready(one) and len(one.serves) == 2, number=2)
    assert again.pid != report.pid


def test_one_of_which_nothing_is_known_ends_before_another_begins(
    service: GpuService, config: Config, tmp_path: Path
) -> None:
    report = until(service, config, ready)
    (tmp_path / "a.0" / "service.json").write_bytes(b"{")
    later = GpuService(tmp_path / "a.0", program=PROGRAM)
    assert later.keep(config, 2).pid == report.pid
    again = until(later, config, ready, number=2)
    assert again.pid != report.pid


def test_a_number_that_another_process_has_now_is_no_service(
    service: GpuService, config: Config, tmp_path: Path
) -> None:
    report = until(service, config, ready)
    file = tmp_path / "a.0" / "pid"
    pid, ticks, boot = file.read_text().split()
    assert pid == str(report.pid)
    file.write_text(f"{os.getpid()} {ticks} {boot}")
    assert service.keep(config, 1).pid is None
    file.write_text(f"{pid} {ticks} another-boot")
    assert service.keep(config, 1).pid is None
    file.write_text(f"{pid} {ticks} {boot}")
    assert service.keep(config, 1).pid == report.pid
