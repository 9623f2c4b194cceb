"""``migrator cluster up``, ``status`` and ``down`` without Ray: what is refused in a line, and what is printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.cluster.assigned import Assigned
from migrator.cluster.coordinator import Coordinator
from migrator.cluster.engine import ClusterSetup, CoordinatorActor, RayNode
from migrator.commands import nodes
from migrator.errors import AgentError, MigratorError
from tests.migrator.cluster.test_coordination import Nodes, placed, three_nodes

Call = Callable[..., tuple[int, str, str]]


class Actor(CoordinatorActor):
    """A coordinator in this process, which takes a step whenever it is asked something."""

    def __init__(self, own: Coordinator) -> None:
        self._own, self._said, self._placer = own, "", placed


class Engine:
    """Stands for Ray: one cluster, three nodes with a GPU or two."""

    def __init__(self, folder: Path) -> None:
        self.agents = Nodes(folder)
        self.up: list[str] = []
        self.name, self.actor = "", Actor(self.agents.coordinator(1))
        self.lasting, self.token, self.begun_with = True, True, list[ClusterSetup]()

    def names(self) -> list[str]:
        return self.up

    def of(self, name: str | None) -> Engine:
        self.name = name or "small"
        return self

    @contextmanager
    def begun(self, begun: ClusterSetup) -> Iterator[Engine]:
        self.begun_with.append(begun)
        self.up.append(begun.name)
        try:
            yield self
        except BaseException:
            self.kill()
            raise

    def ask(self, method: str, *arguments: Any) -> Any:
        self.actor._own.step()
        match method:
            case "is_lasting":
                return self.lasting
            case "has_token":
                return self.token
            case "assign":
                return self.actor._own.begin(*arguments).number
            case "close" | "drain" | "undrain":
                return getattr(self.actor._own, method)(*arguments)
            case "goodput":
                agents = self.agents.agents
                return {gpu: own for agent in agents.values() for gpu, own in agent.goodput().items()}
            case "status" | "place":
                return getattr(self.actor, method)(*arguments)
        raise AgentError(method)

    def kill(self) -> None:
        self.up.clear()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    engine = Engine(tmp_path / "nodes")
    known = {node: RayNode("1", "10.0.0.1", 2) for node in ("n1", "n2", "n3")}
    monkeypatch.setattr(nodes, "connect", lambda _: None)
    monkeypatch.setattr(nodes, "nodes_of_ray", lambda: known)
    monkeypatch.setattr(nodes, "RunningCluster", engine)
    return engine


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[dict[str, Any]], object] = lambda _: None) -> Path:
        data = three_nodes()
        change(data)
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return write


def test_a_cluster_is_begun_shown_and_ended(call: Call, config: Callable[..., Path], ray: Engine) -> None:
    code, out, err = call("cluster", "up", config(), "--out", "shop")
    assert (code, err) == (0, "")
    assert "small is up, with assignment 1" in out
    assert ray.begun_with == [
        ClusterSetup("small", str(Path("shop").absolute()), {"n1": 1, "n2": 1, "n3": 2}, ("127.0.0.1", 8700))
    ]
    code, out, _ = call("cluster", "status")
    assert code == 0
    assert all(word in out for word in ("n3", "a.0", "vision.0", "mobile", "71.2 % expected"))
    found = json.loads(call("cluster", "status", "small", "--json")[1])
    assert {name for gpu in found["gpus"] for name in gpu["routed"]} == {"vision.0", "vision.1", "language", "mobile"}
    assert {(gpu["goodput_pct"], gpu["expected_goodput_pct"]) for gpu in found["gpus"]} == {(None, 71.25)}
    code, out, _ = call("cluster", "down")
    assert (code, out) == (0, "small is down\n")
    assert ray.up == []


def test_a_node_is_drained_and_may_serve_again(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes.time, "sleep", lambda s: setattr(ray.agents, "now_s", ray.agents.now_s + s))
    call("cluster", "up", config())
    code, out, err = call("cluster", "drain", "n1")
    assert (code, out, err) == (0, "n1 serves nobody\n", "")
    found = json.loads(call("cluster", "status", "--json")[1])
    assert [one["state"] for one in found["nodes"]] == ["drained", "there", "there"]
    assert [(gpu["tenants"], gpu["serves"], gpu["pid"]) for gpu in found["gpus"] if gpu["node"] == "n1"] == [
        ([], [], None)
    ]
    code, _, err = call("cluster", "drain", "n9")
    assert (code, "n9: is no node of the cluster; those are n1, n2, n3" in err) == (2, True)
    code, _, err = call("cluster", "drain", "n2", "--undo")
    assert (code, "n2: is not drained; n1 is" in err) == (2, True)
    code, out, _ = call("cluster", "drain", "n1", "--undo")
    assert (code, "n1 may serve again" in out) == (0, True)
    found = json.loads(call("cluster", "status", "--json")[1])
    assert [one["state"] for one in found["nodes"]] == ["there", "there", "there"]


def test_a_changed_config_is_shown_first_and_then_applied(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(data: dict[str, Any]) -> None:
        tenants = data["tenants"]
        tenants[:] = [one for one in tenants if one["name"] != "language"]
        tenants[-1].update(keep_apart=[], slo_ms=90)
        tenants.append({**tenants[-1], "name": "more"})

    monkeypatch.setattr(nodes.time, "sleep", lambda s: setattr(ray.agents, "now_s", ray.agents.now_s + s))
    call("cluster", "up", config())
    before = json.loads(call("cluster", "status", "--json")[1])
    code, out, err = call("cluster", "apply", config(changed))
    at = {name: gpu["name"] for gpu in before["gpus"] for name in gpu["tenants"]}
    assert (code, err) == (0, "")
    assert f"language: {at['language']} -> nowhere" in out
    assert "more: nowhere -> " in out
    assert out.endswith("nothing is changed; --yes does it\n")
    assert json.loads(call("cluster", "status", "--json")[1])["number"] == before["number"]
    code, out, err = call("cluster", "apply", config(changed), "--yes")
    assert (code, err) == (0, "")
    after = json.loads(call("cluster", "status", "--json")[1])
    assert {name for gpu in after["gpus"] for name in gpu["routed"]} == {"vision.0", "vision.1", "mobile", "more"}
    agent = ray.agents.agents["n1"].held
    assert agent is not None
    assert [one.slo_ms for one in agent.cluster.run.tenants if one.name == "mobile"] == [90]


def test_a_config_may_bring_a_node_and_leave_out_one_that_is_drained(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes.time, "sleep", lambda s: setattr(ray.agents, "now_s", ray.agents.now_s + s))
    call("cluster", "up", config())
    monkeypatch.setattr(nodes, "nodes_of_ray", lambda: {n: RayNode("1", "", 2) for n in ("n1", "n2", "n3", "n4")})
    ray.agents.join("n4")
    other = config(lambda data: data["cluster"]["gpus"][0].update(node="n4"))
    code, _, err = call("cluster", "apply", other)
    assert (code, "cluster.gpus: node n1: is left out, and there; " in err) == (2, True)
    assert "cluster drain n1 comes first" in err
    call("cluster", "drain", "n1")

    def moved(data: dict[str, Any]) -> None:
        data["cluster"]["gpus"][0].update(node="n4")
        data["tenants"].append({**data["tenants"][-1], "name": "more", "only_on": ["n4"], "keep_apart": []})

    other = config(moved)
    code, _, err = call("cluster", "apply", other, "--yes")
    assert (code, err) == (0, "")
    found = json.loads(call("cluster", "status", "--json")[1])
    assert [(one["name"], one["state"]) for one in found["nodes"]] == [(n, "there") for n in ("n4", "n2", "n3")]
    assert [gpu["routed"] for gpu in found["gpus"] if gpu["node"] == "n4"] == [["more"]]


def test_a_config_with_which_a_tenant_is_on_no_gpu_is_not_applied(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("cluster", "up", config())
    monkeypatch.setattr(ray.actor, "_placer", lambda *_: ({}, {"mobile": "no room"}))
    code, _, err = call("cluster", "apply", config())
    assert (code, "tenant mobile is on no GPU: no room" in err, ray.up) == (3, True, ["small"])


def test_what_a_drained_node_would_serve_stays_elsewhere_as_a_config_is_applied(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes.time, "sleep", lambda s: setattr(ray.agents, "now_s", ray.agents.now_s + s))
    call("cluster", "up", config())
    call("cluster", "drain", "n1")
    code, out, _ = call("cluster", "apply", config(lambda data: data["tenants"][0].update(slo_ms=140)), "--yes")
    assert (code, "->" in out) == (0, False)
    found = json.loads(call("cluster", "status", "--json")[1])
    assert [one["state"] for one in found["nodes"]] == ["drained", "there", "there"]


def test_status_says_with_which_weights_tenants_came_and_what_was_dropped(
    call: Call, config: Callable[..., Path], ray: Engine
) -> None:
    call("cluster", "up", config())
    call("cluster", "status")
    ray.agents.up -= {"n1"}
    for _ in range(3):
        call("cluster", "status")
    ray.agents.service("a.0").learn("language")
    ray.agents.up |= {"n1"}
    for _ in range(3):
        found = json.loads(call("cluster", "status", "--json")[1])
    told = "the config's, as what it had learned was lost with node n1"
    (version,) = next(one["dropped"] for one in found["gpus"] if one["name"] == "a.0").values()
    home = next(gpu["name"] for gpu in found["gpus"] if "language" in gpu["tenants"])
    assert told == next(gpu["weights"]["language"] for gpu in found["gpus"] if gpu["name"] == home)
    _, out, _ = call("cluster", "status")
    said = " ".join(out.split())
    assert f"tenant language came to {home} with these weights: {told}" in said
    assert f"tenant language had to leave a.0; what it learned there last, {version}, is dropped" in said


def test_a_node_that_others_cannot_stand_in_for_is_not_drained(
    call: Call, config: Callable[..., Path], ray: Engine
) -> None:
    call("cluster", "up", config())
    ray.agents.up -= {"n2"}
    call("cluster", "status")
    code, _, err = call("cluster", "drain", "n3")
    assert (code, "n3: without it tenant " in err, "is on no GPU: " in err) == (3, True, True)


def test_a_node_that_is_lost_is_shown_and_not_waited_for(call: Call, config: Callable[..., Path], ray: Engine) -> None:
    call("cluster", "up", config())
    ray.agents.up -= {"n1"}
    found = json.loads(call("cluster", "status", "--json")[1])
    assert [one["state"] for one in found["nodes"]] == ["lost", "there", "there"]
    assert call("cluster", "down")[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(windows=3), "windows: services go on until they are stopped; leave it out"),
        (lambda data: data["front_door"].update(port=0), "front_door.port: clients have to know where doors are"),
        (
            lambda data: data["tenants"][0].update(pin={"weights": "window-3"}),
            "tenants.vision.pin.weights: versions are each service's own, and tenants move; leave it out",
        ),
        (lambda data: data["cluster"]["gpus"][0].update(node="n7"), "node n7: Ray knows none; there is n1, n2, n3"),
        (lambda data: data["cluster"]["gpus"][0].update(count=3), "node n1: Ray has 2 GPUs there, and 3 are needed"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_begun(
    change: Callable[[dict[str, Any]], object], said: str, call: Call, config: Callable[..., Path], ray: Engine
) -> None:
    code, out, err = call("cluster", "up", config(change))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert ray.begun_with == []


@pytest.mark.usefixtures("ray")
def test_traces_are_no_clients(call: Call, config: Callable[..., Path]) -> None:
    def traced(data: dict[str, Any]) -> None:
        for one in data["tenants"]:
            one["arrivals"] = {"rate_rps": 5}
            for key in ("input", "classes", "learning"):
                one.pop(key, None)
        for gpu in data["cluster"]["gpus"]:
            gpu.pop("backend")
        del data["front_door"]

    code, _, err = call("cluster", "up", config(traced))
    assert (code, "tenants.vision.arrivals: services answer clients: live: true is needed" in err) == (2, True), err


def test_a_second_one_of_the_name_is_refused(call: Call, config: Callable[..., Path], ray: Engine) -> None:
    call("cluster", "up", config())
    code, _, err = call("cluster", "up", config())
    assert (code, "a cluster small is up; " in err) == (2, True)
    assert len(ray.begun_with) == 1


def test_a_store_that_forgets_is_refused_unless_that_is_wanted(
    call: Call, config: Callable[..., Path], ray: Engine
) -> None:
    ray.lasting = ray.token = False
    code, _, err = call("cluster", "up", config())
    assert (code, "--volatile" in err, ray.up) == (2, True, [])
    code, _, err = call("cluster", "up", config(), "--volatile")
    assert (code, "RAY_AUTH_MODE is not token" in err) == (0, True)


def test_a_tenant_that_is_on_no_gpu_is_named(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray.actor, "_placer", lambda *_: ({}, {"vision.1": "no room"}))
    code, _, err = call("cluster", "up", config())
    assert (code, "tenant vision.1 is on no GPU: no room" in err, ray.up) == (3, True, [])


def test_agents_that_cannot_be_begun_are_an_error_of_devices(
    call: Call, config: Callable[..., Path], ray: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise AgentError("not every node's agent has begun")

    monkeypatch.setattr(ray, "ask", fails)
    assert call("cluster", "up", config())[0] == 4
    assert ray.up == []


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("door", ["8700", "host:", "host:0", "host:70000", ":8700"])
def test_a_door_for_routes_needs_host_and_port(door: str, call: Call, config: Callable[..., Path]) -> None:
    code, _, err = call("cluster", "up", config(), "--routes", door)
    assert (code, f"--routes {door}: HOST:PORT is needed" in err) == (2, True)


@pytest.mark.parametrize("verb", ["status", "down", "drain", "up", "apply"])
def test_without_ray_its_extra_is_named(
    verb: str, call: Call, config: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name == "ray" else name)
    code, _, err = call("cluster", verb, *({"up": [config()], "apply": [config()], "drain": ["n1"]}.get(verb, [])))
    assert (code, "a cluster on several nodes needs ray: pip install" in err) == (2, True), err


def test_only_who_asks_for_ray_imports_it() -> None:
    modules = "migrator, migrator.cli, migrator.api, migrator.commands.nodes, migrator.commands.cluster"
    code = f"import sys, {modules}; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_for_kubernetes_has_what_the_page_asks_for() -> None:
    root = Path(__file__).parents[3]
    spec = yaml.safe_load((root / "deploy" / "raycluster.yaml").read_text())["spec"]
    (worker,) = spec["workerGroupSpecs"]
    head, own = (group["template"]["spec"]["containers"][0] for group in (spec["headGroupSpec"], worker))
    names = {one["name"] for one in head["env"]}
    page = (root / "docs" / "cluster.md").read_text()
    assert names == set(re.findall(r"\b(RAY_(?:AUTH|health|worker)\w+)=", page))
    assert own["env"] == head["env"]
    assert own["securityContext"]["privileged"]
    assert worker["rayStartParams"]["node-name"] == worker["groupName"]
    assert "redisAddress" in spec["gcsFaultToleranceOptions"]


def test_a_name_is_needed_where_several_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.RunningCluster, "names", staticmethod(lambda: ["a", "b"]))
    monkeypatch.setitem(sys.modules, "ray", object())
    for name, said in ((None, "NAME is missing; there is a, b"), ("c", "no cluster c is up; there is a, b")):
        with pytest.raises(MigratorError, match=said):
            nodes.RunningCluster.of(name)


def test_an_assignment_survives_its_file() -> None:
    from msgspec.json import encode

    from migrator.cluster.assigned import ASSIGNED

    one = Assigned(number=3, author="a", path="/c.yaml", document=three_nodes(), sets={"a.0": ("mobile",)})
    again = ASSIGNED.decode(encode(one))
    assert again == one
    assert [gpu for gpu in again.gpus_of("n1") if again.config_of(gpu, again.tenants_of(gpu)) is not None] == ["a.0"]
