"""Agents and coordinators without Ray: whatever is lost, late, doubled or there twice, numbers grow and all agree."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as replaced
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from msgspec.json import encode
from msgspec.structs import replace

from migrator.cluster.agent import ASSIGNED_FILE, Agent
from migrator.cluster.assigned import Assigned, GpuReport, LastGoodput, LearnedWeights, Move, Moved, NodeReport, Stamp
from migrator.cluster.coordinator import GRACE_S, JOIN_S, Coordinator
from migrator.cluster.routes import Routes, routes_in
from migrator.config.cluster import ClusterConfig
from migrator.config.sections import Config, TenantConfig
from migrator.errors import InfeasibleError, MigratorError
from tests.migrator.cluster.test_cluster import A, document, gpus, live

NODES = ("n1", "n2", "n3")


def three_nodes() -> dict[str, Any]:
    data = document()
    live(data)
    one = {**A, "backend": "nvml"}
    gpus(one, {**one, "name": "b", "node": "n2"}, {**one, "name": "c", "node": "n3", "count": 2})(data)
    (learner,) = [own for own in data["tenants"] if own["name"] == "language"]
    del learner["input"], learner["classes"]
    learner["learning"] = {"benchmark": "digits"}
    return data


class Steady:
    """A service that is ready as soon as it is told; ``slow`` ones are ready a look later.

    It outlives its agent. Weights are files that say what was learned, in order; none may change while they are served.
    """

    slow: ClassVar[set[str]] = set()
    there: ClassVar[dict[Path, Steady]] = {}

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._gpu, self._folder, self._before = folder.name, folder, frozenset[str]()
        self.tenants: dict[str, TenantConfig] = {}
        self._learned: dict[str, LearnedWeights] = {}
        self.ends = False

    @classmethod
    def of(cls, folder: Path) -> Steady:
        return cls.there.setdefault(folder, cls(folder))

    @property
    def serves(self) -> tuple[str, ...]:
        return tuple(sorted(self.tenants))

    def keep(self, config: Config | None, number: int) -> GpuReport:
        del number
        told = {} if config is None else {one.name: one for one in config.tenants}
        for name in told.keys() & self.tenants.keys():
            assert self.ends or told[name].weights == self.tenants[name].weights, "what a tenant began with stays"
        self._learned = {name: own for name, own in self._learned.items() if name in told}
        names, self.tenants = frozenset(told), told
        ready = names & self._before if self._gpu in self.slow else names
        self._before = names
        return GpuReport(1 if names else None, f"http://{self._gpu}", self.serves, ready)

    def learn(self, tenant: str) -> None:
        """Learn something, on top of what is known."""
        file = self._folder / f"{len([*self._folder.iterdir()])}.safetensors"
        file.write_text(f"{self.knows(tenant)}{self._gpu} ")
        self._learned[tenant] = LearnedWeights(file, file.stem, 0.5)

    def knows(self, tenant: str) -> str:
        """Where it was learned what the tenant answers with."""
        if tenant in self._learned:
            return self._learned[tenant].file.read_text()
        weights = self.tenants[tenant].weights
        return "" if weights is None else Path(weights).read_text()

    def learned(self, tenant: str) -> LearnedWeights | None:
        return self._learned.get(tenant)

    def goodput(self) -> LastGoodput:
        return LastGoodput(expected_goodput_pct=71.25)


class Nodes:
    """Agents in this process, as coordinators reach them; of a node that is lost the agent goes on, unheard."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now_s, self.up = folder, 1000.0, set(NODES)
        self.agents = {node: self.agent(node) for node in NODES}
        self.silent: set[str] = set()
        self.sent: list[tuple[str, Assigned]] = []
        self.calls = dict.fromkeys(NODES, 0)
        self.handed: list[tuple[str, Stamp, str, str, Moved | None]] = []

    def join(self, node: str) -> None:
        """Be there, which was not before."""
        self.agents[node], self.calls[node] = self.agent(node), 0
        self.up |= {node}

    def agent(self, node: str) -> Agent:
        return Agent(node, self.folder / node, Steady.of)

    def service(self, gpu: str) -> Steady:
        return next(own for folder, own in Steady.there.items() if folder == self.folder / folder.parent.name / gpu)

    def alive(self, nodes: Collection[str]) -> frozenset[str]:
        return frozenset(self.up.intersection(nodes))

    def held(self, nodes: Collection[str]) -> Mapping[str, Assigned | None]:
        return {node: self.agents[node].held for node in self._answering(nodes)}

    def keep(self, offers: Mapping[str, Assigned | None], expected: Stamp) -> Mapping[str, NodeReport]:
        self.sent += [(node, one) for node, one in offers.items() if one is not None]
        return {node: self.agents[node].keep(offers[node], expected) for node in self._answering(offers)}

    def carry(self, moves: Sequence[Move]) -> None:
        for one in moves:
            (source, gpu), (target, to) = one.source, one.target
            if not self.silent.intersection((source, target)):
                moved = self.agents[source].hand(gpu, one.tenant)
                self.handed.append((target, one.stamp, to, one.tenant, moved))
                self.agents[target].take(one.stamp, to, one.tenant, moved)

    def _answering(self, nodes: Collection[str]) -> list[str]:
        found = [node for node in nodes if node not in self.silent]
        for node in found:
            self.calls[node] += 1
        return found

    def coordinator(self, number: int = 0) -> Coordinator:
        self.told: list[Routes] = []
        return Coordinator(f"{number:06}", NODES, self, placed, self.told.append, lambda: self.now_s)


def placed(cluster: ClusterConfig, here: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Who stands stays; everybody else goes to the first GPU that may have them and has fewer than two."""
    sets = {gpu.name: tuple(here.get(gpu.name, ())) for gpu in cluster.gpus}
    apart, unplaced = cluster.apart(), dict[str, str]()
    for one in cluster.run.tenants:
        if any(one.name in own for own in sets.values()):
            continue
        for n in cluster.allowed(one.name):
            gpu = cluster.gpus[n].name
            near = {name for pair in apart if one.name in pair for name in pair} - {one.name}
            if len(sets[gpu]) < 2 and not near.intersection(sets[gpu]):
                sets[gpu] = (*sets[gpu], one.name)
                break
        else:
            unplaced[one.name] = "no room"
    return sets, unplaced


def begun() -> Assigned:
    base = Assigned(number=0, author="", path="/cluster.yaml", document=three_nodes(), sets={}, nodes=NODES)
    sets, unplaced = placed(base.cluster, {})
    assert not unplaced
    return Assigned(number=0, author="", path=base.path, document=base.document, sets=sets, nodes=NODES)


TENANTS = {one.name for one in begun().cluster.run.tenants}


class Cluster(RuleBasedStateMachine):
    """Joins, losses, restarts, late and doubled calls, and several coordinators at once."""

    coordinators = Bundle("coordinators")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.nodes = Nodes(self.folder)
        self.stamps: dict[str, Stamp] = dict.fromkeys(NODES, (0, ""))
        self.authors = count(1)
        self.known: list[Coordinator] = []

    @initialize(target=coordinators)
    def up(self) -> Coordinator:
        own = self.another()
        own.step()
        own.begin(begun())
        return own

    @rule(target=coordinators)
    def another(self) -> Coordinator:
        routes = self.known[-1].routes if self.known else None
        self.known.append(self.nodes.coordinator(next(self.authors)))
        self.known[-1].routes = routes
        return self.known[-1]

    @rule(own=coordinators, later_s=st.sampled_from([0.0, 1.0, GRACE_S, JOIN_S]))
    def step(self, own: Coordinator, later_s: float) -> None:
        self.nodes.now_s += later_s
        own.step()

    @rule(node=st.sampled_from(NODES))
    def lose_or_join(self, node: str) -> None:
        self.nodes.up ^= {node}

    @rule(node=st.sampled_from(NODES))
    def fall_silent_or_speak(self, node: str) -> None:
        self.nodes.silent ^= {node}

    @rule(node=st.sampled_from(NODES))
    def restart(self, node: str) -> None:
        self.nodes.agents[node] = self.nodes.agent(node)

    @rule(data=st.data())
    def come_late(self, data: st.DataObject) -> None:
        if self.nodes.sent:
            node, offered = data.draw(st.sampled_from(self.nodes.sent))
            self.nodes.agents[node].keep(offered, offered.stamp)

    @rule(data=st.data())
    def learn(self, data: st.DataObject) -> None:
        gpus = [own for folder, own in Steady.there.items() if self.folder in folder.parents and own.tenants]
        if gpus:
            service = data.draw(st.sampled_from(gpus))
            service.learn(data.draw(st.sampled_from(service.serves)))

    @rule(data=st.data())
    def weights_come_late(self, data: st.DataObject) -> None:
        if self.nodes.handed:
            node, *handed = data.draw(st.sampled_from(self.nodes.handed))
            self.nodes.agents[node].take(*handed)

    @rule(own=coordinators, node=st.sampled_from(NODES))
    def drain(self, own: Coordinator, node: str) -> None:
        before = own.newest
        try:
            own.drain(node)
        except MigratorError:
            assert own.newest is before, "a refusal changes nothing"

    @invariant()
    def no_agent_goes_back(self) -> None:
        for node, agent in self.nodes.agents.items():
            stamp = (0, "") if agent.held is None else agent.held.stamp
            assert stamp == self.stamps[node] or stamp[0] > self.stamps[node][0]
            self.stamps[node] = stamp

    @invariant()
    def everybody_is_served_once_or_listed(self) -> None:
        held = [agent.held for agent in self.nodes.agents.values()]
        for one in [*held, *(own.newest for own in self.known)]:
            if one is not None:
                served = [name for own in one.sets.values() for name in own]
                assert sorted([*served, *one.unplaced]) == sorted(TENANTS)

    def teardown(self) -> None:
        """After the last disturbance all agree, within two calls an agent."""
        self.nodes.silent.clear()
        self.nodes.up |= {"n1"}
        self.nodes.now_s += JOIN_S
        last = self.known[-1] if self.known else self.another()
        self.nodes.calls = dict.fromkeys(NODES, 0)
        last.step()
        stamps = {agent.held and agent.held.stamp for node, agent in self.nodes.agents.items() if node in self.nodes.up}
        assert len(stamps) == 1
        assert max(self.nodes.calls.values()) <= 2
        for _ in range(6):
            self.nodes.now_s += GRACE_S
            last.step()
        if last.newest is not None and self.nodes.up.intersection(last.newest.nodes):
            assert last.newest.leaving == {}
            for gpu, report in last.gpus.items():
                assert report.ready == set(last.newest.served_by(gpu)), "everybody has weights, and is served"
        shutil.rmtree(self.folder)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(stateful_step_count=30)


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def up(nodes: Nodes) -> Coordinator:
    own = nodes.coordinator(1)
    own.step()
    own.begin(begun())
    own.step()
    return own


def test_tenants_of_a_lost_node_go_elsewhere_and_the_rest_stays(nodes: Nodes) -> None:
    own = up(nodes)
    assert own.newest is not None
    before = own.newest.sets
    nodes.up -= {"n1"}
    own.step()
    assert own.newest.sets["a.0"] == ()
    assert {*before["a.0"]} <= {name for gpu, names in own.newest.sets.items() if gpu != "a.0" for name in names}
    assert all(set(before[gpu]) <= set(own.newest.sets[gpu]) for gpu in ("b.0", "c.0", "c.1"))
    assert nodes.agents["n1"].held != own.newest


def test_of_a_lost_node_tenants_stay_routed_until_they_are_ready_elsewhere(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = up(nodes)
    assert own.newest is not None
    moved = own.newest.sets["a.0"]
    monkeypatch.setattr(Steady, "slow", {"b.0", "c.0", "c.1"})
    nodes.up -= {"n1"}
    own.step()
    assert {own.routes.gpu_of[name] for name in moved if own.routes} == {"a.0"}
    own.step()
    assert own.routes is not None
    assert set(moved) <= own.routes.gpu_of.keys()
    assert "a.0" not in own.routes.gpu_of.values()


@pytest.mark.parametrize("is_drained", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_who_was_cut_off_for_a_moment_is_served_on_until_it_is_ready_elsewhere(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, is_drained: bool, is_new: bool
) -> None:
    own = up(nodes)
    assert own.newest is not None
    moved = own.newest.sets["a.0"]
    monkeypatch.setattr(Steady, "slow", {"b.0", "c.0", "c.1"})
    monkeypatch.setattr(Steady, "keep", lambda self, config, _, keep=Steady.keep: never(keep(self, config, 0), moved))
    if is_drained:
        own.drain("n1")
        own.step()
    nodes.service("a.0").learn("language")
    nodes.up -= {"n1"}
    own.step()
    nodes.up |= {"n1"}
    if is_new:
        routes, own = own.routes, nodes.coordinator(2)
        own.routes = routes
    for _ in range(3):
        nodes.now_s += GRACE_S
        own.step()
        assert own.routes is not None
        assert {own.routes.gpu_of[name] for name in moved} == {"a.0"}
        assert set(moved) <= set(nodes.service("a.0").serves)
    monkeypatch.undo()
    until_settled(nodes, own)
    assert own.newest is not None
    assert own.newest.sets["a.0"] == ()
    n_told = len(nodes.told)
    number = own.newest.number
    own.step()
    assert (own.newest.number, len(nodes.told)) == (number, n_told)


def never(report: GpuReport, names: Collection[str]) -> GpuReport:
    """The report of a GPU where these are not ready, unless it is the first one's."""
    return report if report.url.endswith("a.0") else replaced(report, ready=report.ready.difference(names))


def test_a_node_that_was_cut_off_takes_the_newer_set_at_the_first_call(nodes: Nodes) -> None:
    own = up(nodes)
    nodes.up -= {"n1"}
    own.step()
    nodes.up |= {"n1"}
    nodes.calls = dict.fromkeys(NODES, 0)
    own.step()
    assert own.newest is not None
    assert nodes.agents["n1"].held == own.newest
    assert nodes.calls["n1"] == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_of_two_that_went_as_far_neither_is_followed_but_what_is_above_both(nodes: Nodes, is_new: bool) -> None:
    own, other = up(nodes), nodes.coordinator(2)
    other.step()
    for each, drained, silent in ((own, "n1", {"n2", "n3"}), (other, "n2", {"n1"})):
        nodes.silent = silent
        each.drain(drained)
        each.step()
    assert nodes.agents["n1"].held == own.newest != other.newest == nodes.agents["n2"].held
    nodes.silent, nodes.calls = set(), dict.fromkeys(NODES, 0)
    last = nodes.coordinator(3) if is_new else own
    last.step()
    assert last.newest is not None
    assert other.newest is not None
    assert {agent.held and agent.held.stamp for agent in nodes.agents.values()} == {last.newest.stamp}
    assert (last.newest.number, last.newest.drained) == (other.newest.number + 1, other.newest.drained)
    assert max(nodes.calls.values()) <= 2


def test_a_tenant_is_routed_once_it_is_ready_and_only_then_the_former_gpu_lets_it_go(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = up(nodes)
    assert own.newest is not None
    moved = own.newest.sets["a.0"]
    monkeypatch.setattr(Steady, "slow", {"b.0", "c.0", "c.1"})
    own.drain("n1")
    for _ in range(2):  # weights come, and a service is told
        own.step()
        assert {own.routes.gpu_of[name] for name in moved if own.routes} == {"a.0"}
    own.step()
    assert own.routes is not None
    assert "a.0" not in own.routes.gpu_of.values()
    assert set(own.newest.leaving["a.0"]) == set(moved), "clients are given a moment"
    nodes.now_s += GRACE_S
    own.step()
    assert own.newest.leaving == {}
    own.step()
    assert own.gpus["a.0"].serves == ()


def test_the_last_node_is_not_drained_nor_one_that_others_cannot_stand_in_for(nodes: Nodes) -> None:
    own = up(nodes)
    with pytest.raises(MigratorError, match=r"n9: is no node of the cluster; those are n1, n2, n3"):
        own.drain("n9")
    nodes.up -= {"n1", "n2"}
    own.step()
    with pytest.raises(MigratorError, match="n3: is the last node that serves"):
        own.drain("n3")
    nodes.up |= {"n2"}
    own.step()
    with pytest.raises(InfeasibleError, match=r"without it tenant .* is on no GPU"):
        own.drain("n3")


def test_a_new_coordinator_waits_for_nodes_that_it_has_not_seen(nodes: Nodes) -> None:
    before = up(nodes).newest
    nodes.up -= {"n1"}
    young = nodes.coordinator(2)
    young.step()
    assert young.newest == before
    nodes.now_s += JOIN_S
    young.step()
    assert young.newest is not None
    assert young.newest.nodes == ("n2", "n3")


def test_where_nothing_can_be_planned_who_was_lost_is_listed(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    own = up(nodes)
    assert own.newest is not None
    lost = own.newest.sets["a.0"]

    def cannot(*_: object) -> Any:
        raise MigratorError("no profiles")

    monkeypatch.setattr(own, "_place", cannot)
    nodes.up -= {"n1"}
    own.step()
    assert own.newest.unplaced == dict.fromkeys(lost, "no profiles")


def test_all_services_end_and_nobody_is_placed_any_more(nodes: Nodes) -> None:
    own = up(nodes)
    own.close()
    nodes.up -= {"n1"}
    own.step()
    assert own.newest is not None
    assert (own.newest.is_closed, own.newest.sets) == (True, {})
    assert all(one.pid is None for one in own.gpus.values())
    own.begin(begun())
    own.step()
    assert not own.newest.is_closed


def test_an_agent_whose_disk_was_damaged_is_told_anew(nodes: Nodes) -> None:
    own = up(nodes)
    (nodes.folder / "n2" / ASSIGNED_FILE).write_bytes(b"{")
    nodes.agents["n2"] = nodes.agent("n2")
    assert nodes.agents["n2"].held is None
    own.step()
    own.step()
    assert nodes.agents["n2"].held == own.newest


def test_replicas_are_routed_each_with_its_share(nodes: Nodes) -> None:
    routes = up(nodes).routes
    assert routes is not None
    assert [(one.model, one.share) for one in routes.tenants["vision"]] == [("vision.0", 0.5), ("vision.1", 0.5)]
    assert len({one.gpu for one in routes.tenants["vision"]}) == 2


# --- what tenants have learned


def until_settled(nodes: Nodes, own: Coordinator) -> None:
    for _ in range(6):
        nodes.now_s += GRACE_S
        own.step()
    assert own.newest is not None
    assert own.newest.leaving == {}
    assert all(report.ready == set(own.newest.served_by(gpu)) for gpu, report in own.gpus.items())


def move(own: Coordinator, tenant: str, gpu: str) -> None:
    assert own.newest is not None
    sets = {name: tuple(one for one in names if one != tenant) for name, names in own.newest.sets.items()}
    own.begin(replace(begun(), sets=sets | {gpu: (*sets.get(gpu, ()), tenant)}))


def home_of(own: Coordinator, tenant: str) -> str:
    gpu = None if own.newest is None else own.newest.target_of(tenant)
    assert gpu is not None
    return gpu


def told_of(own: Coordinator, tenant: str) -> str:
    return own.gpus[home_of(own, tenant)].weights.get(tenant, "")


def known(nodes: Nodes, own: Coordinator, tenant: str) -> str:
    return nodes.service(home_of(own, tenant)).knows(tenant)


def test_the_newest_weights_follow_a_tenant_that_moves_and_come_with_its_accuracy(nodes: Nodes) -> None:
    own = up(nodes)
    nodes.service("a.0").learn("language")
    nodes.service("a.0").learn("language")
    move(own, "language", "c.1")
    until_settled(nodes, own)
    entry = nodes.service("c.1").tenants["language"]
    assert known(nodes, own, "language") == "a.0 a.0 "
    assert re.fullmatch(r"\d+ of a\.0", told_of(own, "language"))
    assert entry.weights_from == told_of(own, "language")
    assert [(one.before, one.after) for one in entry.accuracies] == [(0.5, 0.85)]
    assert own.gpus["a.0"].dropped == {}
    for gpu, knows in (("c.0", "a.0 a.0 "), ("a.0", "a.0 a.0 c.0 ")):
        move(own, "language", gpu)
        until_settled(nodes, own)
        assert nodes.service(gpu).knows("language") == knows
        nodes.service(gpu).learn("language")


def test_who_has_learned_nothing_begins_with_the_config_s_weights(nodes: Nodes) -> None:
    own = up(nodes)
    own.drain("n1")
    until_settled(nodes, own)
    assert (told_of(own, "language"), known(nodes, own, "language")) == ("", "")


def test_weights_that_are_lost_with_their_node_are_said_to_be(nodes: Nodes) -> None:
    own = up(nodes)
    nodes.service("a.0").learn("language")
    nodes.up -= {"n1"}
    until_settled(nodes, own)
    assert told_of(own, "language") == "the config's, as what it had learned was lost with node n1"
    assert known(nodes, own, "language") == ""
    assert nodes.service(home_of(own, "language")).tenants["language"].weights_from == told_of(own, "language")
    assert told_of(own, "vision.0") == "", "which learns nothing"


@pytest.mark.parametrize("returns", [False, True], ids=["stays away", "goes back at once"])
def test_what_was_learned_on_a_node_that_was_cut_off_is_dropped(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    own = up(nodes)
    assert own.newest is not None
    before = own.newest.sets
    nodes.up -= {"n1"}
    until_settled(nodes, own)
    away = nodes.service(home_of(own, "language"))
    nodes.service("a.0").learn("language")
    version = nodes.service("a.0").learned("language")
    away.learn("language")
    learned = away.knows("language")
    if returns:
        monkeypatch.setattr(own, "_place", lambda *_: (before, {}))
    nodes.up |= {"n1"}
    own.step()
    assert own.routes is not None
    assert own.routes.gpu_of["language"] != "a.0", "others answer for it until its weights have come"
    until_settled(nodes, own)
    assert version is not None
    assert own.gpus["a.0"].dropped == {"language": version.version}
    assert known(nodes, own, "language") == learned
    assert (home_of(own, "language") == "a.0") == returns


def test_a_node_that_is_back_keeps_what_a_tenant_learned_for_which_nobody_answered_meanwhile(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> Any:
        raise MigratorError("no profiles")

    own = up(nodes)
    with monkeypatch.context() as patch:
        patch.setattr(own, "_place", cannot)
        nodes.up -= {"n1"}
        own.step()
    nodes.service("a.0").learn("language")
    nodes.up |= {"n1"}
    until_settled(nodes, own)
    assert (home_of(own, "language"), known(nodes, own, "language"), told_of(own, "language")) == ("a.0", "a.0 ", "")


def test_a_tenant_waits_for_its_weights_until_they_come_or_cannot(nodes: Nodes) -> None:
    own = up(nodes)
    nodes.service("a.0").learn("language")
    nodes.silent = {"n1"}
    for gpu in ("c.1", "c.0"):
        move(own, "language", gpu)
        for _ in range(3):
            own.step()
        nodes.agents["n3"].take((0, ""), gpu, "language", Moved(told="of no assignment"))
        assert own.gpus[gpu].lacks == {"language"}
        assert own.gpus[gpu].said == "weights of language have not come yet"
        assert "language" not in nodes.service(gpu).serves
    assert own.newest is not None
    assert own.newest.sources_of("language", "c.0") == ["a.0"], "it never was on the other one"
    nodes.up -= {"n1"}
    until_settled(nodes, own)
    assert told_of(own, "language").endswith("lost with node n1")


def test_weights_that_came_are_kept_by_an_agent_that_is_begun_again(nodes: Nodes) -> None:
    own = up(nodes)
    nodes.service("a.0").learn("language")
    own.drain("n1")
    until_settled(nodes, own)
    nodes.agents = {node: nodes.agent(node) for node in NODES}
    n_handed = len(nodes.handed)
    until_settled(nodes, own)
    assert (known(nodes, own, "language"), len(nodes.handed)) == ("a.0 ", n_handed)


def test_weights_that_cannot_be_read_are_said_to_be(nodes: Nodes) -> None:
    own = up(nodes)
    nodes.service("a.0").learn("language")
    learned = nodes.service("a.0").learned("language")
    assert learned is not None
    learned.file.unlink()
    own.drain("n1")
    until_settled(nodes, own)
    assert re.fullmatch(r"the config's, as .* of a\.0 cannot be read: .*", told_of(own, "language"))


def test_where_a_service_is_replaced_its_tenants_go_on_with_what_they_learned(nodes: Nodes) -> None:
    own = up(nodes)
    service = nodes.service("a.0")
    service.learn("language")
    service.ends = True
    own.step()
    Steady.there[nodes.folder / "n1" / "a.0"] = again = Steady(nodes.folder / "n1" / "a.0")
    nodes.agents["n1"] = nodes.agent("n1")
    own.step()
    assert again.knows("language") == "a.0 "


def test_what_was_published_last_is_read_where_it_can_be(nodes: Nodes, tmp_path: Path) -> None:
    file = tmp_path / "routes.json"
    assert routes_in(file) is None
    file.write_bytes(encode(up(nodes).routes))
    assert routes_in(file) == nodes.told[-1]
    file.write_bytes(b"{")
    assert routes_in(file) is None
