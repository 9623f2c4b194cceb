"""A cluster on Ray, on this machine: a head, two nodes with cuts of its CPU, services, and clients that follow routes.

Whatever is killed, services go on as the same processes, and no request is lost but those of a machine that died whole.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from msgspec.json import decode

from executor.processes import born, started_with
from migrator.cluster.engine import ROUTES_FILE, RunningCluster
from migrator.cluster.routes import Route, Routes
from migrator.commands import nodes
from migrator.commands.verify import verify_command
from migrator.log import records as recorded
from migrator.log.runlog import ReadLog, has_begun, read_log
from migrator.log.weights import served_weights
from tests.migrator.cluster import labels

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

TENANTS = runpy.run_path(str(Path(__file__).parents[3] / "deploy" / "cluster_client.py"))["Tenants"]

GPU = "cpu-0.7-in-7"

NODES = ("n1", "n2", "n3")

WINDOW_S = 10

ASKED = json.dumps({"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 4], "data": [2, 0, 0, 0]}]})

UNANSWERED = {429: "refused", 500: "failed", 503: "dropped"}
"""By HTTP status what became of a request that was taken, and has no answer."""

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


def free_port(n: int = 1) -> int:
    """The first of ``n`` ports in a row that nobody has, nor is given by the kernel unasked."""
    while True:
        first = random.randrange(20_000, 30_000)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + n):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


class Clients:
    """One a tenant, which asks the door that the routes say, again and again; and counts what it is told."""

    def __init__(self, routes: str, tenants: tuple[str, ...], *, follow: bool = True, body: str = ASKED) -> None:
        """Those that do not ``follow`` ask the doors that the routes say at first."""
        self._body, self._is_over = body, False
        self._own = {name: TENANTS(routes, *(() if follow else (1e9,))) for name in tenants}
        for name, own in self._own.items():
            until(partial(own.door, name))
        self.sent = dict.fromkeys(tenants, 0)
        self.told = Counter[tuple[str, str, str]]()
        self.lost: list[tuple[str, str]] = []
        self._threads = [threading.Thread(target=self._go_on, args=(name,)) for name in tenants]
        for thread in self._threads:
            thread.start()

    def _go_on(self, name: str) -> None:
        while not self._is_over:
            self.sent[name] += 1
            gpu, told, said = self.ask(name)
            if told == "lost":
                self.lost.append((name, said))
            else:
                self.told[name, gpu, told] += 1
            time.sleep(0.1)

    def ask(self, name: str) -> tuple[str, str, str]:
        """Whose door was asked, what became of the request, and what was said."""
        begin_s, door = time.monotonic(), {"gpu": "none"}
        try:
            door = self._own[name].door(name)
            with closing(HTTPConnection(door["url"].removeprefix("http://"), timeout=30)) as asked:
                asked.request("POST", f"/v2/models/{door['model']}/infer", self._body)
                answer = asked.getresponse()
                status, said = answer.status, json.loads(answer.read())
        except (OSError, HTTPException, LookupError, ValueError) as error:
            return door["gpu"], "lost", f"{door}: {error!r} after {time.monotonic() - begin_s:.2f} s"
        if status == 200:
            return door["gpu"], "in_time" if said["parameters"]["in_time"] else "late", ""
        is_taken = "no further request" not in said["error"]
        return door["gpu"], UNANSWERED.get(status, "lost") if is_taken else "lost", f"{door}: {status} {said}"

    def end(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def must_have_lost_none(self) -> str:
        """End; sent = in time + late + dropped + refused + failed. Says how many of which."""
        self.end()
        assert self.lost == []
        for name, n_sent in self.sent.items():
            assert n_sent == sum(n for (own, *_), n in self.told.items() if own == name) > 0
        totals = Counter[str]()
        for (_, _, told), n in self.told.items():
            totals[told] += n
        return f"sent {sum(self.sent.values())}: {dict(totals)}"


class Site:
    """Ray's head and nodes on this machine, of which ``n3`` comes later, and a cluster on them."""

    TENANTS = ("one", "two", "three", "four")

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.token = folder, free_port(), secrets.token_hex(16)
        own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}
        disk = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder / "gcs")}
        (folder / "gcs").mkdir()
        found = filter(None, (str(Path(labels.__file__).parent), os.environ.get("PYTHONPATH")))
        path = {"PYTHONPATH": os.pathsep.join(found)}
        self.environment = {**os.environ, **TUNED, **own, **disk, **path}
        os.environ.update({**TUNED, **own, **disk})
        (folder / "profiles.csv").write_text(labels.made_up_profiles(GPU))
        (folder / "first").write_bytes(b"none")
        self.address = f"127.0.0.1:{self.port}"
        self.config, self.out = folder / "two.yaml", folder / "up"
        self.start_s = 0.0
        self.routes, self.clients = f"127.0.0.1:{free_port()}", list[Clients]()
        self.config.write_text(yaml.safe_dump(self.document()))

    def document(self) -> dict[str, Any]:
        gpu = {"model": GPU, "backend": "cpu"}
        entries = [{**gpu, "name": "a", "node": "n1"}, {**gpu, "name": "b", "node": "n2", "index": 1}]
        tenant = {
            "model": labels.MODEL,
            "weights": str(self.folder / "first"),
            "input": {"dtype": "uint8", "shape": [4]},
            "classes": 3,
            "accuracy": 0.9,
            "slo_ms": 2000,
            "worker_start_s": 1,
            "arrivals": {"live": True, "expect_rps": 10},
        }
        return {
            "name": "two",
            "cluster": {"gpus": entries},
            "window_s": WINDOW_S,
            "profiles": str(self.folder / "profiles.csv"),
            "front_door": {"port": free_port(3)},
            "forecast": {"history_s": 2 * WINDOW_S, "half_life_s": WINDOW_S},
            "planner": {"planning_s": 1, "switch_s": 0.5, "max_schedules": 50},
            "tenants": [{"name": name, **tenant} for name in self.TENANTS],
        }

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).with_name("ray"))
        sizes = ("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "80000000", "--disable-usage-stats")
        with (self.folder / "ray.log").open("ab") as log:
            return subprocess.Popen(
                [ray, "start", *sizes, *arguments],
                env=self.environment | environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def start_head(self) -> None:
        head = ("--head", "--port", str(self.port), "--node-name", "head", "--include-dashboard", "false")
        assert self.start(*head, "--temp-dir", str(self.folder / "r")).wait() == 0

    def start_nodes(self, *names: str) -> None:
        for name in names:  # at once they would take each other's ports
            begun = self.start("--address", self.address, "--node-name", name, XDG_STATE_HOME=self.home(name))
            assert begun.wait() == 0

    def home(self, node: str) -> str:
        """Where the node's controllers keep what is theirs: here both have the same CPU."""
        return str(self.folder / f"home-{node}")

    def kill_all_of(self, node: str) -> None:
        """Kill whatever runs on a node, all at once: Ray, its agent, and its services."""
        for pid in started_with("XDG_STATE_HOME", self.home(node)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

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

    def asked(self, *names: str, follow: bool = True) -> Clients:
        """Clients of these tenants, by default of all."""
        self.clients.append(Clients(f"http://{self.routes}/routes", names or self.TENANTS, follow=follow))
        return self.clients[-1]

    def told_by(self, gpu: str) -> Counter[tuple[str, str]]:
        """By tenant and outcome, what the GPU's services told clients."""
        found = Counter[tuple[str, str]]()
        for clients in self.clients:
            for (name, at, told), n in clients.told.items():
                if at == gpu:
                    found[name, "dropped" if told in UNANSWERED.values() else told] += n
        return found

    def runs(self, gpu: str) -> list[Path]:
        """The folders of its services, in their order."""
        folders = sorted(self.out.glob(f"*/{gpu}/run-*"), key=lambda one: int(one.name.removeprefix("run-")))
        return [one for one in folders if has_begun(one)]

    def logs(self, gpu: str) -> list[ReadLog]:
        """What they have logged."""
        return [read_log(one) for one in self.runs(gpu)]

    def logged_by(self, gpu: str) -> Counter[tuple[str, str]]:
        """By tenant and outcome, what the GPU's services have logged."""
        found = Counter[tuple[str, str]]()
        for log in self.logs(gpu):
            for kind in (recorded.WindowFinished, recorded.Outside):
                for name, own in ((name, own) for one in log.of(kind) for name, own in one.tenants.items()):
                    for told in ("in_time", "late", "dropped"):
                        found[name, told] += int(np.sum(getattr(own, told)))
        return +found

    def n_settled(self, gpu: str) -> int:
        """Windows that its newest service has settled."""
        return len(self.logs(gpu)[-1].of(recorded.WindowFinished))

    @property
    def busiest(self) -> Mapping[str, Any]:
        """What there is to say of the GPU with most tenants."""
        found: Mapping[str, Any] = max(self.status["gpus"], key=lambda one: len(one["tenants"]))
        return found

    @property
    def sets(self) -> dict[str, list[str]]:
        """By GPU its tenants."""
        return {one["name"]: one["tenants"] for one in self.status["gpus"]}

    def door(self, tenant: str) -> Route:
        """Where the tenant is asked now."""
        (door,) = decode((self.out / ROUTES_FILE).read_bytes(), type=Routes).tenants[tenant]
        return door

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
        for node in NODES:
            self.kill_all_of(node)
        for pid in self.pids():
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
        try:
            own.start_head()
            own.start_nodes("n1", "n2")
            nodes.up_command(own.config, address=own.address, out=own.out, routes=own.routes)
            patch.setattr(nodes, "connect", lambda _: None)  # this process is
            until(own.is_settled)
            yield own
        finally:
            own.end()


@pytest.fixture
def clients(site: Site) -> Iterator[Clients]:
    until(site.is_settled)
    own = site.asked()
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
    tell(clients.must_have_lost_none())
    assert site.services == before


def test_services_are_no_nicer_than_other_programs(site: Site) -> None:
    assert all(os.getpriority(os.PRIO_PROCESS, pid) <= max(0, os.nice(0)) for pid in site.services.values())


def test_a_coordinator_that_is_killed_is_begun_again_and_knows_all(site: Site, clients: Clients, tell: Tell) -> None:
    before, number, sets = site.services, site.status["number"], site.sets
    (killed,) = site.pids("ray::CoordinatorActor")
    os.kill(killed, signal.SIGKILL)
    took_s = until(lambda: killed not in site.pids("ray::CoordinatorActor") and site.is_settled())
    tell(f"coordinator killed: a new one answers after {took_s:.1f} s")
    tell(clients.must_have_lost_none())
    assert (site.services, site.status["number"], site.sets) == (before, number, sets)


def test_services_go_on_while_ray_s_store_is_gone(site: Site, clients: Clients, tell: Tell) -> None:
    before, sets = site.services, site.sets
    (killed,) = site.pids("gcs_server", f"--gcs_server_port={site.port}")
    began_with = command(killed)[:-1]
    os.kill(killed, signal.SIGKILL)
    time.sleep(5)
    subprocess.Popen(began_with, env=site.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took_s = until(site.is_settled)
    tell(f"GCS dead for 5 s: all is known again {took_s:.1f} s after it is back")
    tell(clients.must_have_lost_none())
    assert (site.services, site.sets) == (before, sets)


def test_services_of_a_node_whose_raylet_dies_go_on_until_others_are_ready(
    site: Site, clients: Clients, tell: Tell
) -> None:
    before, lost = site.services, site.busiest
    node, others = lost["node"], before.keys() - {lost["name"]}
    os.kill(site.raylet(node), signal.SIGKILL)
    noticed_s = until(lambda: site.state(node) == "lost", 4.0)
    moved_s = until(site.is_settled)
    tell(f"raylet killed: noticed after {noticed_s:.1f} s, its tenants elsewhere {moved_s:.1f} s later")
    assert site.services == before
    site.start_nodes(node)
    back_s = until(lambda: site.state(node) == "there" and site.is_settled())
    tell(f"node back: all have taken the newer sets after {back_s:.1f} s")
    tell(clients.must_have_lost_none())
    assert {gpu: site.services[gpu] for gpu in others} == {gpu: before[gpu] for gpu in others}


def test_a_node_that_is_cut_off_serves_on_and_gives_up_who_was_moved(site: Site, clients: Clients, tell: Tell) -> None:
    before, lost, number = site.services, site.busiest, site.status["number"]
    node, gpu = lost["node"], lost["name"]
    cut_off, n_settled = site.asked(*lost["tenants"], follow=False), site.n_settled(gpu)
    stopped = [site.raylet(node), site.agent(node)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    noticed_s = until(lambda: site.state(node) == "lost", 8.0)
    tell(f"raylet and agent stopped: noticed after {noticed_s:.1f} s")
    until(site.is_settled)
    until(lambda: site.n_settled(gpu) >= n_settled + 4)  # the first of them began before
    tell(f"those that were cut off, too: {cut_off.must_have_lost_none()}")
    assert site.services[gpu] == before[gpu]
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in stopped))
    site.start_nodes(node)
    until(lambda: site.state(node) == "there")
    (back,) = [one for one in site.status["nodes"] if one["name"] == node]
    assert back["number"] == site.status["number"] > number, "it takes the newer set at the first call"
    until(site.is_settled)
    tell(clients.must_have_lost_none())
    verify_command(site.runs(gpu)[-1])


def test_a_drained_node_loses_no_request(site: Site, clients: Clients, tell: Tell) -> None:
    drained, begin_s = site.busiest, time.monotonic()
    node = drained["node"]
    nodes.drain_command(node, address=site.address)
    tell(f"drain: {time.monotonic() - begin_s:.1f} s for {len(drained['tenants'])} tenants")
    assert site.sets[drained["name"]] == []
    nodes.drain_command(node, undo=True, address=site.address)
    until(lambda: site.state(node) == "there" and site.is_settled())
    tell(clients.must_have_lost_none())


def test_a_config_with_another_tenant_and_node_is_taken_up_while_all_are_served(
    site: Site, clients: Clients, tell: Tell
) -> None:
    before = {gpu: pid for gpu, pid in site.services.items() if born(pid) is not None}
    site.start_nodes("n3")
    document = site.document()
    document["front_door"] = yaml.safe_load(site.config.read_text())["front_door"]
    document["cluster"]["gpus"].append({**document["cluster"]["gpus"][0], "name": "c", "node": "n3", "index": 2})
    document["tenants"].append({**document["tenants"][0], "name": "five", "only_on": ["n3"]})
    site.config.write_text(yaml.safe_dump(document))
    begin_s = time.monotonic()
    nodes.apply_command(site.config, address=site.address)
    shown_s = time.monotonic()
    assert "five" not in {name for own in site.sets.values() for name in own}
    nodes.apply_command(site.config, address=site.address, yes=True)
    until(site.is_settled)
    site.start_s = time.monotonic() - shown_s
    tell(f"a tenant comes, with a node: planned after {shown_s - begin_s:.1f} s, routed {site.start_s:.1f} s later")
    tell(clients.must_have_lost_none())
    assert {gpu: pid for gpu, pid in site.services.items() if gpu in before} == before


def test_logs_have_all_that_clients_were_told(site: Site) -> None:
    until(lambda: all(site.logged_by(gpu) == site.told_by(gpu) for gpu in site.sets))


def test_tenants_of_a_machine_that_dies_whole_are_answered_elsewhere(site: Site, clients: Clients, tell: Tell) -> None:
    gpu = site.busiest
    node = gpu["node"]
    site.kill_all_of(node)
    noticed_s = until(lambda: site.state(node) == "lost")
    answered_s = until(lambda: all(clients.ask(name)[1] == "in_time" for name in gpu["tenants"]))
    start = f"a service's start took {site.start_s:.1f} s"
    tell(f"machine dead: noticed after {noticed_s:.1f} s, answered elsewhere {answered_s:.1f} s later; {start}")
    clients.end()
    kept = set(site.TENANTS) - set(gpu["tenants"])
    assert [one for one in clients.lost if one[0] in kept] == []
    site.start_nodes(node)
    until(lambda: site.state(node) == "there" and site.is_settled())


def test_routes_are_in_a_file_and_who_follows_them_is_answered(site: Site) -> None:
    assert json.loads((site.out / ROUTES_FILE).read_bytes())["tenants"].keys() == site.served
    client = TENANTS(f"http://{site.routes}/routes")
    assert all(client.ask(name, ASKED.encode())["outputs"][0]["data"] == [2] for name in site.served)


def test_down_ends_services_and_actors(site: Site) -> None:
    pids = site.services.values()
    nodes.down_command(address=site.address)
    assert [pid for pid in pids if born(pid) is not None] == []
    until(lambda: not site.pids("ray::AgentActor") and not site.pids("ray::CoordinatorActor"))
    assert RunningCluster.names() == []


def test_what_was_learned_follows_a_tenant_off_a_drained_node_and_answers_as_it_did(site: Site, tell: Tell) -> None:
    pytest.importorskip("torch", reason="NOT TESTED: needs the extra `live`")
    from tests.migrator.cluster import learning

    if RunningCluster.names():
        nodes.down_command(address=site.address)
    site.config.write_text(yaml.safe_dump(learning.document(site.folder, free_port(2))))
    site.out = site.folder / "learning"
    site.routes = f"127.0.0.1:{free_port()}"
    nodes.up_command(site.config, address=site.address, out=site.out, routes=site.routes)
    tell(f"services that learn: ready after {until(site.is_settled, 240.0):.1f} s")
    (home,) = [gpu for gpu in site.status["gpus"] if "learns" in gpu["tenants"]]
    learned_s = until(lambda: "learns" in served_weights(site.logs(home["name"])[-1]))
    own = served_weights(site.logs(home["name"])[-1])["learns"]
    bodies = learning.images(40)
    clients = Clients(f"http://{site.routes}/routes", learning.TENANTS, body=bodies[0])
    try:
        until(lambda: all(clients.sent.values()))
        before, begin_s = learning.answers(site.door("learns"), bodies), time.monotonic()
        nodes.drain_command(home["node"], address=site.address)
        tell(f"first retraining after another {learned_s:.1f} s; drain: {time.monotonic() - begin_s:.1f} s")
        after = learning.answers(site.door("learns"), bodies)
    finally:
        clients.end()
    tell(clients.must_have_lost_none())
    assert own.file is not None
    assert before[0] == own.version
    assert after == ("first", before[1])
    assert len({*after[1]}) > 1
    (there,) = [gpu for gpu in site.status["gpus"] if "learns" in gpu["tenants"]]
    assert there["weights"]["learns"] == f"{own.version} of {home['name']}"
    (came,) = (site.out / there["node"] / there["name"] / "weights").iterdir()
    assert came.read_bytes() == own.file.read_bytes()
    changes = [line for one in site.logs(there["name"])[-1].of(recorded.Reloaded) for line in one.changes]
    assert changes == [f"tenant learns comes; its weights are {own.version} of {home['name']}"]
