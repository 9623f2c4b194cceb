"""Ray, as a cluster uses it: an agent on every node and one coordinator, which outlive whoever began them.

Nothing else imports Ray, and this module only where it is used. Agents are called after their node's life in Ray: a
node that is back has a new one, which finds on its disk what the former one left.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.json import encode

from executor.errors import brief
from executor.files import write_whole
from migrator.cluster.agent import Agent
from migrator.cluster.assigned import Assigned, GpuReport, LastGoodput, Move, Moved, NodeReport, Stamp
from migrator.cluster.coordinator import Coordinator
from migrator.cluster.planning import TenantPlacer
from migrator.cluster.routes import Routes, RoutesDoor, routes_in
from migrator.cluster.services import GpuService
from migrator.config.cluster import ClusterConfig
from migrator.errors import AgentError, MigratorError
from migrator.extras import lacking
from migrator.terminal.parallel import n_cores

NAMESPACE = "migrator"

ROUTES_FILE = "routes.json"

COORDINATOR = "/coordinator"
"""Behind the cluster's name: the coordinator's."""

HEAD = "node:__internal_head__"
"""The resource of Ray's that the head's node alone has."""

EVERY_S = 0.25
"""How often the coordinator looks."""

ANSWER_S = 5.0
"""An agent that does not answer within this is gone without for now."""

BEGIN_S = 60.0
"""The coordinator and all agents have begun within this."""

END_S = 600.0
"""Tenants have been placed, or have moved, or services have drained and ended, within this."""

PREVIEW_S = 10.0
"""Whoever sees where tenants would go has them go there within this, or later, for which they are placed again."""


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node that Ray knows: its life, its address and its GPUs."""

    life: str
    address: str
    n_gpus: int


@dataclass(frozen=True, slots=True)
class ClusterSetup:
    """What the actors of a cluster are begun with.

    Attributes:
        name: The cluster's.
        folder: On each node; a node's own lies in it.
        gpus: By node, how many of Ray's its agent takes, so that nothing else is put there.
        door: Host and port of ``GET /routes``.
        program: The command line that services are begun with; by default the node's own migrator.
    """

    name: str
    folder: str
    gpus: Mapping[str, int]
    door: tuple[str, int]
    program: tuple[str, ...] = ()


def gpus_taken(cluster: ClusterConfig) -> dict[str, int]:
    """By node how many of Ray's GPUs its agent takes: all that are no share of a CPU."""
    gpus: dict[str, int] = {}
    for gpu in cluster.gpus:
        gpus[gpu.node] = gpus.get(gpu.node, 0) + (gpu.config.backend in ("nvml", "mps"))
    return gpus


def nodes_of_ray() -> dict[str, RayNode]:
    """The nodes that are alive: by the name that they were started with, their host's and their address."""
    import ray  # noqa: PLC0415 - the extra

    found: dict[str, RayNode] = {}
    alive = [one for one in ray.nodes() if one["Alive"]]
    for key in ("NodeManagerAddress", "NodeManagerHostname", "NodeName"):
        for one in alive:
            own = RayNode(one["NodeID"], one["NodeManagerAddress"], int(one["Resources"].get("GPU", 0)))
            found[one[key]] = own
    return found


def _be_no_nicer() -> None:
    """Run as other programs do: Ray starts workers at niceness 15, which services would inherit."""
    with suppress(PermissionError):  # who is not root needs RAY_worker_niceness=0
        os.setpriority(os.PRIO_PROCESS, 0, 0)


class AgentActor:
    """The actor of a node's agent."""

    def __init__(self, begun: ClusterSetup, node: str, address: str) -> None:
        _be_no_nicer()
        folder = Path(begun.folder) / node
        self._agent = Agent(node, folder, partial(GpuService, address=address, program=begun.program))

    def held(self) -> Assigned | None:
        """What it keeps."""
        return self._agent.held

    def keep(self, offered: Assigned | None, expected: Stamp) -> NodeReport:
        """As :meth:`migrator.cluster.agent.Agent.keep`."""
        return self._agent.keep(offered, expected)

    def hand(self, gpu: str, tenant: str) -> Moved | None:
        """As :meth:`migrator.cluster.agent.Agent.hand`."""
        return self._agent.hand(gpu, tenant)

    def take(self, stamp: Stamp, gpu: str, tenant: str, moved: list[Any]) -> None:
        """As :meth:`migrator.cluster.agent.Agent.take`; what is lost on its way is asked for again."""
        import ray  # noqa: PLC0415 - the extra

        with suppress(ray.exceptions.RayError):
            self._agent.take(stamp, gpu, tenant, ray.get(moved[0], timeout=BEGIN_S))

    def goodput(self) -> dict[str, LastGoodput]:
        """As :meth:`migrator.cluster.agent.Agent.goodput`."""
        return self._agent.goodput()


class RayAgents:
    """The agents as :class:`migrator.cluster.coordinator.Agents`; one that is missing is begun.

    Attributes:
        gpus: By node, how many of Ray's an agent takes that is begun there.
    """

    def __init__(self, begun: ClusterSetup) -> None:
        self._begun, self.gpus = begun, begun.gpus
        self._handles: dict[str, tuple[str, Any]] = {}
        self._asked: dict[tuple[str, str], Any] = {}
        self._carried: dict[Move, Any] = {}

    def alive(self, nodes: Collection[str]) -> frozenset[str]:
        """Which of the nodes are there."""
        known = nodes_of_ray()
        for node in nodes:
            if node in known and self._handles.get(node, ("",))[0] != known[node].life:
                self._handles[node] = known[node].life, self._begin(node, known[node])
        return frozenset(node for node in nodes if node in known)

    def known(self) -> frozenset[str]:
        """Nodes that had agents; those that a config brought later are not among what the cluster was begun with."""
        import ray  # noqa: PLC0415 - the extra

        prefix = f"{self._begun.name}/agent/"
        names = (one.removeprefix(prefix) for one in ray.util.list_named_actors() if one.startswith(prefix))
        return frozenset(one.rpartition("/")[0] for one in names)

    def _begin(self, node: str, own: RayNode) -> Any:
        import ray  # noqa: PLC0415 - the extra
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - the extra

        prefix = f"{self._begun.name}/agent/{node}/"
        name = f"{prefix}{own.life}"
        for former in ray.util.list_named_actors():
            if former.startswith(prefix) and former != name:
                with suppress(ValueError):
                    ray.kill(ray.get_actor(former))
        self._asked = {key: ref for key, ref in self._asked.items() if key[0] != node}
        actor = ray.remote(num_cpus=0, num_gpus=self.gpus.get(node, 0), max_restarts=-1)(AgentActor)
        return actor.options(
            name=name,
            lifetime="detached",
            get_if_exists=True,
            scheduling_strategy=NodeAffinitySchedulingStrategy(own.life, soft=False),
        ).remote(self._begun, node, own.address)

    def held(self, nodes: Collection[str]) -> Mapping[str, Assigned | None]:
        """What agents keep."""
        return self._all("held", dict.fromkeys(nodes, ()))

    def keep(self, offers: Mapping[str, Assigned | None], expected: Stamp) -> Mapping[str, NodeReport]:
        """What agents report, of those that answer in time."""
        return self._all("keep", {node: (offered, expected) for node, offered in offers.items()})

    def carry(self, moves: Sequence[Move]) -> None:
        """As :meth:`migrator.cluster.coordinator.Agents.carry`: from object store to object store."""
        import ray  # noqa: PLC0415 - the extra

        self._carried = {move: ref for move, ref in self._carried.items() if move in moves}
        for move in moves:
            if move not in self._carried:
                node, gpu = move.source
                self._carried[move] = self._handles[node][1].hand.remote(gpu, move.tenant)
        refs = {ref: move for move, ref in self._carried.items()}
        ready = ray.wait([*refs], num_returns=len(refs), timeout=EVERY_S, fetch_local=False)[0] if refs else []
        for move in (refs[ref] for ref in ready):
            node, gpu = move.target
            self._handles[node][1].take.remote(move.stamp, gpu, move.tenant, [self._carried.pop(move)])

    def goodput(self, nodes: Collection[str]) -> dict[str, LastGoodput]:
        """By GPU what its service's last window came to."""
        replies = self._all("goodput", dict.fromkeys(nodes, ()))
        return {gpu: own for reply in replies.values() for gpu, own in reply.items()}

    def _all(self, method: str, arguments: Mapping[str, tuple[object, ...]]) -> dict[str, Any]:
        """The replies; whoever has not answered the last call is waited for, not called again."""
        import ray  # noqa: PLC0415 - the extra

        for node, own in arguments.items():
            if (node, method) not in self._asked:
                self._asked[node, method] = getattr(self._handles[node][1], method).remote(*own)
        refs = {self._asked[node, method]: node for node in arguments}
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=ANSWER_S) if refs else ([], [])
        found = {}
        for ref in ready:
            del self._asked[refs[ref], method]
            with suppress(ray.exceptions.RayError):
                found[refs[ref]] = ray.get(ref)
        return found


class CoordinatorActor:
    """The actor of the coordinator, on the head."""

    def __init__(self, begun: ClusterSetup) -> None:
        _be_no_nicer()
        self._folder = Path(begun.folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._placer, self._door, self._said = TenantPlacer(min(4, n_cores())), RoutesDoor(*begun.door), ""
        author = f"{time.time():.3f}-{secrets.token_hex(4)}"
        self._agents, self._rehearsed, self._placed_s = RayAgents(begun), dict[str, Any](), -PREVIEW_S
        nodes = sorted({*begun.gpus, *self._agents.known()})
        self._own = Coordinator(author, nodes, self._agents, self._placer, self._publish, time.time)
        self._own.routes = self._door.routes = routes_in(self._folder / ROUTES_FILE)
        self._lock = threading.RLock()
        threading.Thread(target=self._go_on, daemon=True).start()
        threading.Thread(target=self._rehearse, daemon=True).start()

    def _publish(self, routes: Routes) -> None:
        write_whole(self._folder / ROUTES_FILE, encode(routes))
        self._door.routes = routes

    def _go_on(self) -> None:
        while True:
            try:
                with self._lock:
                    if self._own.newest is not None:
                        self._agents.gpus = gpus_taken(self._own.newest.cluster)
                    self._own.step()
                self._said = ""
            except Exception as error:
                self._said = f"{type(error).__name__}: {error}"
                logging.getLogger(__name__).exception("a step of the coordinator failed")
            time.sleep(EVERY_S)

    def _rehearse(self) -> None:
        """Place everybody once after each change of the config, for nothing: where a node is lost it is quick then.

        What was placed a moment ago is waited for: it may be about to be in force.
        """
        while True:
            newest, is_over = self._own.newest, time.monotonic() > self._placed_s + PREVIEW_S
            if newest is not None and not newest.is_closed and newest.document != self._rehearsed and is_over:
                self._rehearsed = newest.document
                with suppress(MigratorError):
                    self._placer(newest.cluster, newest.sets)
            time.sleep(EVERY_S)

    def place(self, base: Assigned) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """By GPU its tenants on the nodes of ``base``, where its sets have them now; who is on none, with the reason.

        Raises:
            MigratorError: The cluster cannot be planned.
        """
        cluster = base.cluster
        try:
            return self._placer(cluster.without({gpu.node for gpu in cluster.gpus} - {*base.nodes}), base.sets)
        finally:
            self._rehearsed, self._placed_s = base.document, time.monotonic()

    def is_lasting(self) -> bool:
        """Whether Ray keeps what it knows over a restart of the head: by Redis, or on the disk."""
        is_on_disk = os.environ.get("RAY_gcs_storage") == "rocksdb"  # noqa: SIM112 - Ray's own spelling
        return is_on_disk or bool(os.environ.get("RAY_REDIS_ADDRESS"))

    def has_token(self) -> bool:
        """Whether Ray asks for a token; without one whoever reaches its port runs code."""
        return os.environ.get("RAY_AUTH_MODE") == "token"

    def has_heard(self) -> bool:
        """Whether all agents have said what they keep."""
        return self._own.has_heard

    def assign(self, assigned: Assigned) -> int:
        """Have it in force; its number."""
        with self._lock:
            return self._own.begin(assigned).number

    def drain(self, node: str) -> int:
        """Have the node serve nobody; the number of the assignment."""
        with self._lock:
            return self._own.drain(node).number

    def undrain(self, node: str) -> int:
        """Let the node serve again; the number of the assignment."""
        with self._lock:
            return self._own.undrain(node).number

    def close(self) -> None:
        """Have all services end."""
        with self._lock:
            self._own.close()

    def goodput(self) -> dict[str, LastGoodput]:
        """By GPU what its service's last window came to, where its agent answers."""
        with self._lock:
            return self._agents.goodput(self._own.alive)

    def status(self) -> dict[str, Any]:
        """What there is to say of the cluster."""
        own, newest = self._own, self._own.newest
        reports, routes = own.reports, own.routes
        stamps = {node: None if one.stamp is None else one.stamp[0] for node, one in reports.items()}
        routed = {} if routes is None else routes.gpu_of
        return {
            "schema": 1,
            "number": None if newest is None else newest.number,
            "closed": newest is not None and newest.is_closed,
            "nodes": [
                {
                    "name": node,
                    "state": _state(node, own),
                    "number": stamps.get(node),
                }
                for node in own.nodes
            ],
            "gpus": []
            if newest is None
            else [
                {
                    "name": gpu.name,
                    "node": gpu.node,
                    "tenants": list(newest.sets.get(gpu.name, ())),
                    "leaving": list(newest.leaving.get(gpu.name, ())),
                    **_as_json(own, gpu.name),
                    "routed": sorted(name for name, at in routed.items() if at == gpu.name),
                }
                for gpu in newest.cluster.gpus
            ],
            "unplaced": [] if newest is None else [{"tenant": t, "reason": r} for t, r in newest.unplaced.items()],
            "said": self._said,
        }


def _state(node: str, own: Coordinator) -> str:
    if node not in own.alive:
        return "lost"
    if own.newest is not None and node in own.newest.drained:
        return "drained"
    return "there" if node in own.reports else "silent"


def _as_json(own: Coordinator, gpu: str) -> dict[str, Any]:
    report = own.gpus.get(gpu)
    if report is None:
        report, said = GpuReport(), "nothing is known of it"
    else:
        said = report.said
    return {
        "pid": report.pid,
        "url": report.url or None,
        "serves": list(report.serves),
        "ready": sorted(report.ready),
        "since_s": report.since_s or None,
        "said": said,
        "lacks": sorted(report.lacks),
        "weights": dict(report.weights),
        "dropped": dict(report.dropped),
    }


# --- from outside


def connect(address: str) -> None:
    """Be a driver of the Ray cluster at the address; ``auto`` is the one of this machine.

    Raises:
        MigratorError: Ray is not installed, or no cluster answers.
    """
    if (lacks := lacking("ray")) is not None:
        raise MigratorError(f"a cluster on several nodes {lacks}")
    import ray  # noqa: PLC0415 - the extra

    host, colon, port = address.rpartition(":")
    try:
        if colon and port.isdecimal():  # Ray would wait for a minute
            socket.create_connection((host, int(port)), ANSWER_S).close()
        ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        said = brief(str(error))
        raise MigratorError(f"--address {address}: no Ray cluster answers there, or not us: {said}") from None


class RunningCluster:
    """A cluster's coordinator, as commands ask it."""

    def __init__(self, name: str, handle: Any) -> None:
        self.name, self._handle = name, handle

    @staticmethod
    def names() -> list[str]:
        """The clusters that are up."""
        import ray  # noqa: PLC0415 - the extra

        return sorted(
            one.removesuffix(COORDINATOR) for one in ray.util.list_named_actors() if one.endswith(COORDINATOR)
        )

    @classmethod
    def of(cls, name: str | None) -> RunningCluster:
        """The one of this name, or the only one.

        Raises:
            MigratorError: There is none, or there are several.
        """
        import ray  # noqa: PLC0415 - the extra

        names = cls.names()
        if name is None and len(names) == 1:
            (name,) = names
        if name is None or name not in names:
            there = f"there is {', '.join(names)}" if names else "none is up"
            raise MigratorError(f"{'NAME is missing' if name is None else f'no cluster {name} is up'}; {there}")
        return cls(name, ray.get_actor(name + COORDINATOR))

    @classmethod
    @contextmanager
    def begun(cls, begun: ClusterSetup) -> Iterator[RunningCluster]:
        """One whose coordinator and agents have answered; they end if the context does so by an error.

        Raises:
            AgentError: They did not within :data:`BEGIN_S`.
        """
        import ray  # noqa: PLC0415 - the extra

        actor = ray.remote(num_cpus=0, resources={HEAD: 0.001}, max_restarts=-1, max_concurrency=4)(CoordinatorActor)
        own = cls(begun.name, actor.options(name=begun.name + COORDINATOR, lifetime="detached").remote(begun))
        try:
            own.await_agents()
            yield own
        except BaseException:
            own.kill()
            raise

    def await_agents(self) -> None:
        """Return once every agent has said what it keeps.

        Raises:
            AgentError: One did not within :data:`BEGIN_S`.
        """
        end_s = time.monotonic() + BEGIN_S
        while not self.ask("has_heard"):
            if time.monotonic() > end_s:
                raise AgentError(f"not every node's agent has begun within {BEGIN_S:g} s; see Ray's logs there")
            time.sleep(EVERY_S)

    def ask(self, method: str, *arguments: object) -> Any:
        """The coordinator's answer.

        Raises:
            MigratorError: As it raises it.
            AgentError: It does not answer.
        """
        import ray  # noqa: PLC0415 - the extra

        try:
            timeout_s = END_S if method == "place" else BEGIN_S
            return ray.get(getattr(self._handle, method).remote(*arguments), timeout=timeout_s)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, MigratorError):
                raise error.cause from None
            raise AgentError(f"the coordinator of {self.name} failed: {brief(str(error.cause))}") from None
        except ray.exceptions.RayError as error:
            raise AgentError(f"the coordinator of {self.name} does not answer: {brief(str(error))}") from None

    def kill(self) -> None:
        """End the actors; services that serve go on."""
        import ray  # noqa: PLC0415 - the extra

        for name in ray.util.list_named_actors():
            if name.startswith((self.name + COORDINATOR, f"{self.name}/agent/")):
                with suppress(ValueError):
                    ray.kill(ray.get_actor(name))
