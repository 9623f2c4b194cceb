"""A cluster on Ray, on this machine: a head and two nodes, stand-in services, and clients that follow the routes.

Whatever is killed, services go on as the same processes, and no request is lost but those of a machine that died whole.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
import yaml

from executor.processes import born, started_with
from migrator.cluster.engine import ROUTES_FILE, ClusterSetup, RunningCluster
from migrator.commands import nodes
from tests.migrator.cluster.standin_service import START_S
from tests.migrator.cluster.test_services import PROGRAM

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

PROFILES = Path(__file__).parents[3] / "configs" / "live-cpu-profiles.csv"

TUNED = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",
}


def until(holds: Callable[[], object], limit_s: float = 90.0) -> float:
    """Seconds until it holds; what is away for a while may raise."""
    begin_s, said = time.monotonic(), None
    while time.monotonic() < begin_s + limit_s:
        try:
            if holds():
                return time.monotonic() - begin_s
        except Exception as error:  # noqa: BLE001 - Ray's are many
            said = error
        time.sleep(0.05)
    raise AssertionError(said or "it does not hold")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


class Clients:
    """One a tenant, which asks the door that the routes say, again and again."""

    def __init__(self, routes: Path, tenants: tuple[str, ...]) -> None:
        self._routes, self._is_over = routes, False
        self.sent = dict.fromkeys(tenants, 0)
        self.lost: list[tuple[str, str]] = []
        self._threads = [threading.Thread(target=self._ask, args=(name,)) for name in tenants]
        for thread in self._threads:
            thread.start()

    def _ask(self, name: str) -> None:
        while not self._is_over:
            self.sent[name] += 1
            if why := self.refusal(name):
                self.lost.append((name, why))
            time.sleep(0.02)

    def refusal(self, name: str) -> str:
        """Why a request is not answered; empty where it is."""
        begin_s, door = time.monotonic(), None
        try:
            (door,) = json.loads(self._routes.read_bytes())["tenants"][name]
            asked = HTTPConnection(door["url"].removeprefix("http://"), timeout=10)
            asked.request("GET", f"/v2/models/{door['model']}/infer")
            status = asked.getresponse().status
            asked.close()
        except (OSError, HTTPException, LookupError, ValueError) as error:
            return f"{door}: {error!r} after {time.monotonic() - begin_s:.2f} s"
        return "" if status == 200 else f"{door}: {status} after {time.monotonic() - begin_s:.2f} s"

    def end(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()


class Site:
    """Ray's head and nodes ``n1`` and ``n2`` on this machine, and a cluster on them."""

    TENANTS = ("one", "two", "three", "four")

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.token = folder, free_port(), secrets.token_hex(16)
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}
        disk = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder / "gcs")}
        (folder / "gcs").mkdir()
        self.environment = {**os.environ, **TUNED, **own, **disk}
        os.environ.update({**TUNED, **own, **disk})
        self.address = f"127.0.0.1:{self.port}"
        self.config, self.out = folder / "two.yaml", folder / "up"
        self.config.write_text(yaml.safe_dump(self.document()))

    def document(self) -> dict[str, Any]:
        gpu = {"model": "cpu-1.6-in-7", "backend": "cpu"}
        serves = {
            "input": {"dtype": "float32", "shape": [4]},
            "classes": 3,
            "arrivals": {"live": True, "expect_rps": 5},
        }
        entries = [{**gpu, "name": "a", "node": "n1"}, {**gpu, "name": "b", "node": "n2", "index": 1}]
        tenants = [{"name": name, "model": "cnn_wide", "slo_ms": 400, "accuracy": 0.9} for name in self.TENANTS]
        return {
            "name": "two",
            "cluster": {"gpus": entries},
            "window_s": 60,
            "profiles": str(PROFILES),
            "front_door": {"port": free_port()},
            "forecast": {"history_s": 60},
            "tenants": [{**one, **serves} for one in tenants],
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).with_name("ray"))
        sizes = ("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "80000000", "--disable-usage-stats")
        with (self.folder / "ray.log").open("ab") as log:
            return subprocess.Popen(
                [ray, "start", *sizes, *arguments],
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def start_head(self) -> None:
        head = ("--head", "--port", str(self.port), "--node-name", "head", "--include-dashboard", "false")
        assert self.start(*head, "--temp-dir", str(self.folder / "r")).wait() == 0

    def start_nodes(self, *names: str) -> None:
        for name in names:  # at once they would take each other's ports
            assert self.start("--address", self.address, "--node-name", name).wait() == 0

    def pids(self, *words: str) -> list[int]:
        """Processes of this Ray whose command line has these words in it."""
        found = []
        for pid in started_with("RAY_AUTH_TOKEN", self.token):
            with suppress(OSError):
                if pid != os.getpid() and all(word in " ".join(command(pid)) for word in words):
                    found.append(pid)
        return found

    def raylet(self, node: str) -> int:
        (pid,) = self.pids("raylet/raylet", f"--node-name={node}")
        return pid

    def agent(self, node: str) -> int:
        """The agent that the node's raylet began."""
        began = f"RAY_RAYLET_PID={self.raylet(node)}"
        (pid,) = [
            pid
            for pid in self.pids("ray::AgentActor")
            if began in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        ]
        return pid

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = RunningCluster.of("two").ask("status")
        return found

    @property
    def served(self) -> set[str]:
        return {one["name"] for one in yaml.safe_load(self.config.read_text())["tenants"]}

    @property
    def services(self) -> Mapping[str, int]:
        """By GPU, what the pid files say."""
        files = self.out.glob("*/*/pid")
        return {file.parent.name: int(file.read_text().split()[0]) for file in files}

    def state(self, node: str) -> str:
        return next(str(one["state"]) for one in self.status["nodes"] if one["name"] == node)

    def is_settled(self) -> bool:
        """All tenants are routed where they are to be, and nobody leaves."""
        status = self.status
        numbers = {one["number"] for one in status["nodes"] if one["state"] != "lost"}
        lost = {one["name"] for one in status["nodes"] if one["state"] == "lost"}
        gpus = status["gpus"]
        return (
            numbers == {status["number"]}
            and not any(gpu["tenants"] for gpu in gpus if gpu["node"] in lost)
            and all(sorted(gpu["routed"]) == sorted(gpu["tenants"]) and not gpu["leaving"] for gpu in gpus)
            and sorted(name for gpu in gpus for name in gpu["tenants"]) == sorted(self.served)
        )

    def end(self) -> None:
        import ray

        ray.shutdown()
        for pid in [*self.pids(), *self.services.values()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("RAY_"):
                patch.delenv(name)
        own = Site(Path(tempfile.mkdtemp(prefix="mr", dir="/tmp")))  # short: sockets lie in it
        patch.setattr(nodes, "ClusterSetup", partial(ClusterSetup, program=PROGRAM))
        try:
            own.start_head()
            own.start_nodes("n1", "n2")
            nodes.up_command(own.config, address=own.address, out=own.out, routes=f"127.0.0.1:{free_port()}")
            patch.setattr(nodes, "connect", lambda _: None)  # this process is
            until(own.is_settled)
            yield own
        finally:
            own.end()


@pytest.fixture
def clients(site: Site) -> Iterator[Clients]:
    until(site.is_settled)
    own = Clients(site.out / ROUTES_FILE, site.TENANTS)
    yield own
    own.end()


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    def told(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {line}")

    return told


Tell = Callable[[str], None]


def test_an_agent_that_is_killed_is_begun_again_and_adopts_its_service(
    site: Site, clients: Clients, tell: Tell
) -> None:
    before, killed = site.services, site.agent("n1")
    os.kill(killed, signal.SIGKILL)
    took_s = until(lambda: site.agent("n1") != killed and site.is_settled())
    tell(f"agent killed: a new one answers after {took_s:.1f} s")
    clients.end()
    assert site.services == before
    assert clients.lost == []


def test_services_are_no_nicer_than_other_programs(site: Site) -> None:
    assert all(os.getpriority(os.PRIO_PROCESS, pid) <= max(0, os.nice(0)) for pid in site.services.values())


def test_a_coordinator_that_is_killed_is_begun_again_and_knows_all(site: Site, clients: Clients, tell: Tell) -> None:
    before, number = site.services, site.status["number"]
    (killed,) = site.pids("ray::CoordinatorActor")
    os.kill(killed, signal.SIGKILL)
    took_s = until(lambda: killed not in site.pids("ray::CoordinatorActor") and site.is_settled())
    tell(f"coordinator killed: a new one answers after {took_s:.1f} s")
    clients.end()
    assert (site.services, site.status["number"]) == (before, number)
    assert clients.lost == []


def test_services_go_on_while_ray_s_store_is_gone(site: Site, clients: Clients, tell: Tell) -> None:
    before = site.services
    (killed,) = site.pids("gcs_server", f"--gcs_server_port={site.port}")
    began_with = command(killed)[:-1]
    os.kill(killed, signal.SIGKILL)
    time.sleep(5)
    subprocess.Popen(began_with, env=site.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took_s = until(site.is_settled)
    tell(f"GCS dead for 5 s: all is known again {took_s:.1f} s after it is back")
    clients.end()
    assert site.services == before
    assert clients.lost == []


def test_services_of_a_node_whose_raylet_dies_go_on_until_others_are_ready(
    site: Site, clients: Clients, tell: Tell
) -> None:
    before = site.services
    os.kill(site.raylet("n2"), signal.SIGKILL)
    noticed_s = until(lambda: site.state("n2") == "lost")
    moved_s = until(site.is_settled)
    tell(f"raylet killed: noticed after {noticed_s:.1f} s, its tenants elsewhere {moved_s:.1f} s later")
    assert site.services == before
    site.start_nodes("n2")
    back_s = until(lambda: site.state("n2") == "there" and site.is_settled())
    tell(f"node back: all have taken the newer sets after {back_s:.1f} s")
    clients.end()
    assert site.services["a.0"] == before["a.0"]
    assert clients.lost == []


def test_a_node_that_is_cut_off_serves_on_and_gives_up_who_was_moved(site: Site, clients: Clients, tell: Tell) -> None:
    before, number = site.services, site.status["number"]
    stopped = [site.raylet("n2"), site.agent("n2")]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    noticed_s = until(lambda: site.state("n2") == "lost")
    tell(f"raylet and agent stopped: noticed after {noticed_s:.1f} s")
    until(site.is_settled)
    assert site.services == before
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in stopped))
    site.start_nodes("n2")
    until(lambda: site.state("n2") == "there" and site.is_settled())
    clients.end()
    assert site.status["number"] > number
    assert clients.lost == []


def test_a_drained_node_loses_no_request(site: Site, clients: Clients, tell: Tell) -> None:
    begin_s = time.monotonic()
    nodes.drain_command("n2", address=site.address)
    tell(f"drain: {time.monotonic() - begin_s:.1f} s")
    assert [gpu["tenants"] for gpu in site.status["gpus"] if gpu["node"] == "n2"] == [[]]
    nodes.drain_command("n2", undo=True, address=site.address)
    until(lambda: site.state("n2") == "there" and site.is_settled())
    clients.end()
    assert clients.lost == []


def test_a_changed_config_is_taken_up_while_all_are_served(site: Site, clients: Clients, tell: Tell) -> None:
    before = {gpu: pid for gpu, pid in site.services.items() if born(pid) is not None}
    document = site.document()
    document["front_door"] = yaml.safe_load(site.config.read_text())["front_door"]
    document["tenants"].append({**document["tenants"][0], "name": "five", "slo_ms": 500})
    site.config.write_text(yaml.safe_dump(document))
    begin_s = time.monotonic()
    nodes.apply_command(site.config, address=site.address, yes=True)
    until(site.is_settled, 180.0)
    tell(f"a tenant comes: planned, and routed after {time.monotonic() - begin_s:.1f} s")
    clients.end()
    assert {gpu: pid for gpu, pid in site.services.items() if gpu in before} == before
    assert clients.lost == []


def test_tenants_of_a_machine_that_dies_whole_are_answered_elsewhere(site: Site, clients: Clients, tell: Tell) -> None:
    (gpu,) = [one for one in site.status["gpus"] if one["node"] == "n1"]
    own = [site.raylet("n1"), site.agent("n1"), site.services["a.0"]]
    for pid in own:
        os.kill(pid, signal.SIGKILL)
    noticed_s = until(lambda: site.state("n1") == "lost")
    answered_s = until(lambda: not any(clients.refusal(name) for name in gpu["tenants"]))
    tell(
        f"machine dead: noticed after {noticed_s:.1f} s, answered elsewhere {answered_s:.1f} s later; start {START_S} s"
    )
    clients.end()
    kept = set(site.TENANTS) - set(gpu["tenants"])
    assert [one for one in clients.lost if one[0] in kept] == []
    site.start_nodes("n1")
    until(lambda: site.state("n1") == "there" and site.is_settled())


def test_down_ends_services_and_actors(site: Site) -> None:
    pids = site.services.values()
    nodes.down_command(address=site.address)
    assert [pid for pid in pids if born(pid) is not None] == []
    until(lambda: not site.pids("ray::AgentActor") and not site.pids("ray::CoordinatorActor"))
    assert RunningCluster.names() == []
