"""``migrator cluster up``, ``apply``, ``status``, ``drain`` and ``down``: services on several nodes, by Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from migrator.cluster.assigned import Assigned, LastGoodput
from migrator.cluster.engine import (
    END_S,
    EVERY_S,
    ClusterSetup,
    RayNode,
    RunningCluster,
    connect,
    gpus_taken,
    nodes_of_ray,
)
from migrator.commands.options import RUNS, Assignments, ConfigFile, Json, nameable, with_examples
from migrator.config.cluster import ClusterConfig, cluster_in
from migrator.config.reading import config_data
from migrator.errors import AgentError, ConfigError, InfeasibleError, MigratorError
from migrator.terminal.console import counted, escape, output, print_json, program, progress, warn
from migrator.views.cluster import print_cluster_status

Address = Annotated[str, typer.Option(metavar="HOST:PORT", help="The Ray cluster's. Default: the one of this machine.")]
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The cluster's; not needed where one is up.")]


@with_examples("cluster up shop.yaml --address head:6379")
def up_command(
    config: ConfigFile,
    *,
    address: Address = "auto",
    out: Annotated[
        Path | None,
        typer.Option(callback=nameable, help="The folder of services and routes, on every node. Default: runs/NAME."),
    ] = None,
    routes: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where GET /routes is answered on the head.")
    ] = "127.0.0.1:8700",
    volatile: Annotated[
        bool, typer.Option("--volatile", help="Although Ray forgets agents when the head's store ends.")
    ] = False,
    assignments: Assignments = None,
) -> None:
    """Plan a cluster, begin an agent on every node and a service on every GPU, and tell clients where tenants are.

    Services outlive agents, Ray and this command; migrator cluster down ends them.

    Raises:
        MigratorError: A file, node, GPU or store cannot be used, or the cluster is up.
        InfeasibleError: A tenant is on no GPU; no service is begun then.
        AgentError: No agent could be begun.
    """
    data, origin = config_data(config, assignments or ())
    cluster = cluster_in(data, origin, config)
    gpus = _require_services(cluster, origin)
    door = _door_of(routes)
    connect(address)
    _require_nodes(gpus, nodes_of_ray(), origin)
    if cluster.run.name in RunningCluster.names():
        raise MigratorError(f"a cluster {cluster.run.name} is up; {program()} cluster down {cluster.run.name} ends it")
    folder = (out or RUNS / cluster.run.name).absolute()
    base = Assigned(number=0, author="", path=str(config.absolute()), document=data, sets={}, nodes=tuple(gpus))
    begun = ClusterSetup(cluster.run.name, str(folder), gpus, door)
    with ExitStack() as stack:
        with progress().status("beginning agents"):
            running = stack.enter_context(RunningCluster.begun(begun))
        if not volatile:
            _require_lasting(running, address)
        if not running.ask("has_token"):
            warn("RAY_AUTH_MODE is not token on the head: whoever reaches Ray's port runs code there")
        number = running.ask("assign", replace(base, sets=_all_placed(running, base, origin)))
    name = escape(cluster.run.name)
    output().print(f"{name} is up, with assignment {number}; services begin in {escape(str(folder))}")
    output().print(f"  {escape(program())} cluster status {name}", soft_wrap=True)


def _require_lasting(running: RunningCluster, address: str) -> None:
    """Refuse a Ray that forgets.

    Raises:
        MigratorError: It keeps its actors in memory alone.
    """
    if not running.ask("is_lasting"):
        raise MigratorError(
            f"--address {address}: Ray keeps actors in memory alone, which a head that ends takes with it; "
            "give the head Redis or RAY_gcs_storage=rocksdb (migrator docs cluster), or this command --volatile"
        )


def _require_services(cluster: ClusterConfig, origin: str) -> dict[str, int]:
    """By node how many of Ray's GPUs it has to have.

    Raises:
        ConfigError: The config's GPUs would serve no clients, or nobody could find them.
    """
    if "windows" in cluster.run.model_fields_set:
        raise ConfigError(f"{origin}: windows: services go on until they are stopped; leave it out")
    for tenant in cluster.run.tenants:
        if not tenant.arrivals.live:
            what = "services answer clients: live: true is needed"
            raise ConfigError(f"{origin}: tenants.{cluster.asked_for(tenant.name).name}.arrivals: {what}")
        if tenant.pin.weights is not None:
            what = "versions are each service's own, and tenants move; leave it out"
            raise ConfigError(f"{origin}: tenants.{cluster.asked_for(tenant.name).name}.pin.weights: {what}")
    if cluster.run.front_door is None or cluster.run.front_door.port == 0:
        raise ConfigError(f"{origin}: front_door.port: clients have to know where doors are; a port is needed")
    return gpus_taken(cluster)


def _require_nodes(gpus: Mapping[str, int], known: Mapping[str, RayNode], origin: str) -> None:
    """Refuse a node that Ray does not know, or that has fewer GPUs there.

    Raises:
        ConfigError: Names the first.
    """
    for node, n_gpus in gpus.items():
        if node not in known:
            raise ConfigError(f"{origin}: cluster.gpus: node {node}: Ray knows none; there is {', '.join(known)}")
        if known[node].n_gpus < n_gpus:
            has = f"Ray has {counted(known[node].n_gpus, 'GPU')} there, and {n_gpus} are needed"
            raise ConfigError(f"{origin}: cluster.gpus: node {node}: {has}")


def _door_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise MigratorError(f"--routes {text}: HOST:PORT is needed, the port 1 to {2**16 - 1}")
    return host, int(port)


def _all_placed(running: RunningCluster, base: Assigned, origin: str) -> dict[str, tuple[str, ...]]:
    """By GPU its tenants, where those of ``base`` are served now.

    Raises:
        InfeasibleError: A tenant is on no GPU.
    """
    with progress().status(f"looking for who goes on which of {counted(len(base.cluster.gpus), 'GPU')}"):
        found: tuple[dict[str, tuple[str, ...]], dict[str, str]] = running.ask("place", base)
    sets, unplaced = found
    if unplaced:
        tenant, reason = next(iter(unplaced.items()))
        raise InfeasibleError(f"{origin}: tenant {tenant} is on no GPU: {reason}")
    return sets


@with_examples("cluster apply shop.yaml", "cluster apply shop.yaml --yes")
def apply_command(
    config: ConfigFile,
    *,
    address: Address = "auto",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; else who would come, go and move is printed alone.")
    ] = False,
    assignments: Assignments = None,
) -> None:
    """Plan a cluster that is up anew, with another config of the same name; print moves, and make them.

    Raises:
        MigratorError: The config cannot be used, or no cluster of its name is up.
        InfeasibleError: A tenant would be on no GPU; nothing is changed then.
        AgentError: The coordinator does not answer, or tenants have not moved in ten minutes.
    """
    data, origin = config_data(config, assignments or ())
    cluster = cluster_in(data, origin, config)
    gpus = _require_services(cluster, origin)
    connect(address)
    _require_nodes(gpus, nodes_of_ray(), origin)
    running = RunningCluster.of(cluster.run.name)
    status = running.ask("status")
    state_of = {one["name"]: one["state"] for one in status["nodes"]}
    for node in sorted(state_of.keys() - gpus.keys()):
        if state_of[node] != "drained":
            first = f"{program()} cluster drain {node} comes first"
            raise ConfigError(f"{origin}: cluster.gpus: node {node}: is left out, and {state_of[node]}; {first}")
    usable = tuple(node for node in gpus if state_of.get(node, "there") in ("there", "silent"))
    standing = {gpu.name for gpu in cluster.gpus if gpu.node in usable}
    known, now = {one.name for one in cluster.run.tenants}, {one["name"]: one["tenants"] for one in status["gpus"]}
    here = {gpu: tuple(name for name in own if name in known) for gpu, own in now.items() if gpu in standing}
    drained = tuple(node for node in gpus if state_of.get(node) == "drained")
    path = str(config.absolute())
    base = Assigned(number=0, author="", path=path, document=data, sets=here, nodes=usable, drained=drained)
    sets = _all_placed(running, base, origin)
    before, after = ({name: gpu for gpu, own in each.items() for name in own} for each in (now, sets))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            output().print(escape(f"{name}: {before.get(name, 'nowhere')} -> {after.get(name, 'nowhere')}"))
    if not yes:
        output().print("nothing is changed; --yes does it")
        return
    number = running.ask("assign", replace(base, sets=sets))
    _await(running, "tenants move", _not_moved)
    output().print(f"{escape(running.name)} has assignment {number}")


@with_examples("cluster status", "cluster status shop --json")
def status_command(name: Name = None, *, address: Address = "auto", as_json: Json = False) -> None:
    """Print a cluster's nodes, and each GPU with its tenants, routes, and goodput in its last window.

    Raises:
        MigratorError: No such cluster is up.
        AgentError: Its coordinator does not answer.
    """
    connect(address)
    running = RunningCluster.of(name)
    found: dict[str, Any] = running.ask("status")
    goodput: dict[str, LastGoodput] = running.ask("goodput")
    for gpu in found["gpus"]:
        gpu.update(asdict(goodput.get(gpu["name"], LastGoodput())))
    if as_json:
        print_json(found)
    else:
        print_cluster_status(running.name, found, output())


@with_examples("cluster drain n2", "cluster drain n2 --undo")
def drain_command(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node, as the config calls it.")],
    name: Name = None,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Let the node serve again.")] = False,
    address: Address = "auto",
) -> None:
    """Have a node serve nobody: each of its tenants once it is ready, and clients ask for it, elsewhere.

    Raises:
        MigratorError: No such cluster is up, or it has no such node, or no other.
        InfeasibleError: A tenant would be on no GPU; nothing is changed then.
        AgentError: The coordinator does not answer, or tenants have not moved in ten minutes.
    """
    connect(address)
    running = RunningCluster.of(name)
    if undo:
        number = running.ask("undrain", node)
        output().print(f"{escape(node)} may serve again, from assignment {number} on")
        return
    running.ask("drain", node)
    _await(running, "tenants move", _not_moved)
    output().print(f"{escape(node)} serves nobody")


def _not_moved(status: Mapping[str, Any]) -> list[str]:
    """Tenants that leave a GPU, and GPUs of drained nodes whose services have not ended."""
    drained = {one["name"] for one in status["nodes"] if one["state"] == "drained"}
    leaving = [name for gpu in status["gpus"] for name in gpu["leaving"]]
    return leaving or [one["name"] for one in status["gpus"] if one["node"] in drained and one["pid"] is not None]


def _await(running: RunningCluster, what: str, left_of: Callable[[Mapping[str, Any]], list[str]]) -> None:
    """Return once nothing is left.

    Raises:
        AgentError: Something is after :data:`END_S`.
    """
    end_s = time.monotonic() + END_S
    with progress().status(what) as status:
        while left := left_of(running.ask("status")):
            status.update(f"{what}: {', '.join(left)}")
            if time.monotonic() > end_s:
                raise AgentError(f"{running.name}: {what}; not done within {END_S:g} s: {', '.join(left)}")
            time.sleep(EVERY_S)


@with_examples("cluster down", "cluster down shop")
def down_command(name: Name = None, *, address: Address = "auto") -> None:
    """Stop a cluster's services in order, each answers those that wait; then end its agents.

    Raises:
        MigratorError: No such cluster is up.
        AgentError: Its coordinator does not answer, or a service has not ended in ten minutes.
    """
    connect(address)
    running = RunningCluster.of(name)
    running.ask("close")
    _await(running, "services drain", _left)
    running.kill()
    output().print(f"{escape(running.name)} is down")


def _left(status: Mapping[str, Any]) -> list[str]:
    """GPUs whose services have not ended, of nodes that are there; a lost one's are left alone."""
    there = {one["name"] for one in status["nodes"] if one["state"] != "lost"}
    told = {one["name"] for one in status["nodes"] if one["number"] == status["number"]}
    gpus = [one for one in status["gpus"] if one["node"] in there]
    return [one["name"] for one in gpus if one["pid"] is not None or one["node"] not in told]
