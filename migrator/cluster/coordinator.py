"""The coordinator of a cluster: decides who serves whom when nodes are lost or back, tells agents, and routes clients.

It stores nothing. A new one asks the agents, each of which keeps the newest assignment, of all nodes, that it was
offered, and goes on above every number that it heard. Where another one went further, it follows that one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from migrator.cluster.assigned import Assigned, GpuReport, Move, NodeReport, Stamp, newest_of
from migrator.cluster.routes import Routes, routes_of
from migrator.config.cluster import ClusterConfig
from migrator.errors import InfeasibleError, MigratorError

JOIN_S = 30.0
"""For so long a new coordinator waits for nodes that it has not seen yet, before their tenants go elsewhere."""

GRACE_S = 5.0
"""For so long the former door answers after the new one was published: clients read routes every second, or try to."""

_TRIES = 20
"""So often agents are asked what they keep, before those that do not answer are gone without."""

Sets = Mapping[str, Sequence[str]]
"""By GPU whom it has."""

Placing = Callable[[ClusterConfig, Sets], tuple[dict[str, tuple[str, ...]], dict[str, str]]]
"""Who goes where, given where tenants are now; and who goes nowhere, with the reason."""


class Agents(Protocol):
    """The agents of all nodes, as the engine reaches them. Who does not answer in time is left out of replies."""

    def alive(self, nodes: Collection[str]) -> frozenset[str]:
        """Which of the nodes are there."""

    def held(self, nodes: Collection[str]) -> Mapping[str, Assigned | None]:
        """What agents keep."""

    def keep(self, offers: Mapping[str, Assigned | None], expected: Stamp) -> Mapping[str, NodeReport]:
        """Offer assignments to agents, which are expected to keep the one of this stamp then; what they report."""

    def carry(self, moves: Sequence[Move]) -> object:
        """Have agents hand weights to each other; what is still on its way is asked for again."""


class Coordinator:
    """One at a time is meant to be at work; several do no harm.

    Attributes:
        newest: The assignment in force; ``None`` until agents have said what they keep.
        has_heard: Whether they have; they may keep nothing.
        routes: As published; a new one that is given those of the one before it has nobody routed elsewhere meanwhile.
        reports: What agents last said, of nodes that are there.
        alive: The nodes that are there.
    """

    def __init__(
        self,
        author: str,
        nodes: Iterable[str],
        agents: Agents,
        place: Placing,
        publish: Callable[[Routes], object],
        now_s: Callable[[], float],
    ) -> None:
        """``nodes`` are to be asked as long as no assignment is known."""
        self._author, self._nodes = author, tuple(nodes)
        self._agents, self._place, self._publish, self._now_s = agents, place, publish, now_s
        self._began_s = now_s()
        self._seen: frozenset[str] = frozenset()
        self._stamps: dict[str, Stamp | None] = {}
        self._since_s: dict[tuple[str, str], float] = {}
        self._tries = 0
        self.newest: Assigned | None = None
        self.has_heard = False
        self.routes: Routes | None = None
        self.reports: dict[str, NodeReport] = {}
        self.alive: frozenset[str] = frozenset()

    # --- what it does again and again

    def step(self) -> None:
        """Hear, decide, tell and route, once."""
        self.alive = self._agents.alive(self.nodes)
        self._seen |= self.alive
        self.reports = {node: own for node, own in self.reports.items() if node in self.alive}
        if self.newest is None:
            self._hear()
        if self.newest is not None:
            self._follow_nodes(self.newest)
            self._tell(self.newest)
            self._route(self.newest)
            self._agents.carry(self._moves(self.newest))
            self._let_go(self.newest)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the config."""
        if self.newest is None:
            return self._nodes
        return tuple(dict.fromkeys(gpu.node for gpu in self.newest.cluster.gpus))

    def _hear(self) -> None:
        heard = self._agents.held(self.alive)
        self._tries += 1
        if not heard or (len(heard) < len(self.alive) and self._tries < _TRIES):
            return
        self.has_heard, self._tries = True, 0
        if found := [one for one in heard.values() if one is not None]:
            self.newest = newest_of(found, self._author)

    def _next(self, base: Assigned) -> Assigned:
        """The same under the next number."""
        return base.follower(self._author)

    def _follow_nodes(self, newest: Assigned) -> None:
        """Place everybody anew if a node was lost, or is back; and have those serve on who are asked, and no others."""
        may_join = set(newest.nodes) - self.alive - self._away
        usable = tuple(n for n in self.nodes if n not in newest.drained and (n in self.alive or n in may_join))
        if newest.is_closed or not self.alive.intersection(usable):
            return
        if usable == newest.nodes:
            if self._leaving(newest, newest.sets) != newest.leaving:
                self.newest = self._moved(newest, newest.sets)
            return
        try:
            self.newest = self._placed(replace(newest, nodes=usable))
        except MigratorError as error:  # nobody is moved; who was on a lost node is served by nobody
            node_of = {gpu.name: gpu.node for gpu in newest.cluster.gpus}
            sets = {gpu: own for gpu, own in newest.sets.items() if node_of[gpu] in usable}
            lost = [name for gpu, own in newest.sets.items() if gpu not in sets for name in own]
            unplaced = {**newest.unplaced, **dict.fromkeys(lost, str(error))}
            after = replace(newest, nodes=usable, sets=sets, leaving={}, unplaced=unplaced)
            self.newest = self._next(replace(after, lost=self._lost(newest, sets)))

    @property
    def _away(self) -> set[str]:
        """Nodes that are lost; a young coordinator does not know it of those that it has not seen yet."""
        is_young = self._now_s() < self._began_s + JOIN_S
        return (set(self._seen) if is_young else set(self.nodes)) - self.alive

    def _placed(self, base: Assigned) -> Assigned:
        """The next assignment, with tenants on the nodes of ``base`` alone."""
        cluster = base.cluster
        cluster = cluster.without(node for node in self.nodes if node not in base.nodes)
        here = {gpu.name: base.sets.get(gpu.name, ()) for gpu in cluster.gpus if gpu.node in base.nodes}
        sets, unplaced = self._place(cluster, here)
        return self._moved(replace(base, unplaced=unplaced), sets)

    def _moved(self, base: Assigned, sets: Mapping[str, tuple[str, ...]]) -> Assigned:
        """The next assignment: who has another GPU stays where it is served now, until that one is ready."""
        leaving, lost = self._leaving(base, sets), self._lost(base, sets)
        return self._next(replace(base, sets=dict(sets), leaving=leaving, lost=lost))

    def _leaving(self, base: Assigned, sets: Sets) -> dict[str, tuple[str, ...]]:
        """By GPU whom it serves on, if these are the sets after ``base``.

        So it does who is asked for on a node that is back, as it is not ready elsewhere yet.
        """
        placed = {name for own in sets.values() for name in own}
        asked = [] if self.routes is None else [*self.routes.gpu_of.items()]
        found = {}
        for gpu in sorted(gpu.name for gpu in base.cluster.gpus if gpu.node not in self._away):
            report = self.gpus.get(gpu)
            routed = [name for name, at in asked if at == gpu and (report is None or name in report.serves)]
            there = dict.fromkeys([*base.served_by(gpu), *routed])
            if own := tuple(name for name in there if name in placed and name not in sets.get(gpu, ())):
                found[gpu] = own
        return found

    def _lost(self, base: Assigned, sets: Sets) -> dict[str, str]:
        """Whose weights cannot come from where they were, if these are the sets after ``base``, and that node."""
        node_of = {gpu.name: gpu.node for gpu in base.cluster.gpus}
        lost = dict(base.lost)
        for one in base.cluster.run.tenants:
            had = [*base.sources_of(one.name, ""), *filter(None, (base.target_of(one.name),))]
            has = [gpu for gpu, own in sets.items() if one.name in own]
            gone = [gpu for gpu in had if node_of.get(gpu) in self._away and gpu not in has]
            if gone:
                lost[one.name] = node_of[gone[0]]
            elif had and has and has[0] not in had:
                lost.pop(one.name, None)
        return lost

    def _tell(self, newest: Assigned) -> None:
        """Have all agents keep it; if another coordinator went further, have all keep that one's."""
        for _ in range(2):
            offers = {node: None if self._stamps.get(node) == newest.stamp else newest for node in sorted(self.alive)}
            reports = self._agents.keep(offers, newest.stamp)
            self.reports.update(reports)
            self._stamps.update({node: one.stamp for node, one in reports.items()})
            if not (others := [one.held for one in reports.values() if one.held is not None]):
                break
            newest = self.newest = newest_of([newest, *others], self._author)

    def _route(self, newest: Assigned) -> None:
        routes = routes_of(newest, self.gpus, self.routes)
        if routes != self.routes:
            self._publish(routes)
            self.routes = routes
        now_s, pairs = self._now_s(), routes.gpu_of.items()
        self._since_s = {pair: self._since_s.get(pair, now_s) for pair in pairs}

    def _moves(self, newest: Assigned) -> list[Move]:
        """Weights that are to go where tenants come, from where clients ask for them, or else where they are served."""
        node_of = {gpu.name: gpu.node for gpu in newest.cluster.gpus}
        routed = {} if self.routes is None else self.routes.gpu_of
        found = []
        for target, report in self.gpus.items():
            for name in sorted(report.lacks):
                sources = [gpu for gpu in newest.sources_of(name, target) if gpu in self.gpus]
                having = [gpu for gpu in sources if name not in self.gpus[gpu].lacks]
                if having:
                    source = routed[name] if routed.get(name) in having else having[0]
                    found.append(Move(name, (node_of[source], source), (node_of[target], target), newest.stamp))
        return found

    def _let_go(self, newest: Assigned) -> None:
        """Have former GPUs drain whom clients ask elsewhere; who never was served on one need not wait."""
        now_s = self._now_s()
        old = (pair for pair, since_s in self._since_s.items() if since_s + GRACE_S <= now_s)
        gone = {name for name, gpu in old if newest.target_of(name) == gpu}
        lacks = {gpu: report.lacks for gpu, report in self.gpus.items()}
        leaving = {
            gpu: left
            for gpu, own in newest.leaving.items()
            if (left := tuple(name for name in own if name not in gone and name not in lacks.get(gpu, ())))
        }
        if leaving != newest.leaving:
            self.newest = self._next(replace(newest, leaving=leaving))

    @property
    def gpus(self) -> dict[str, GpuReport]:
        """What is known of every GPU whose node is there."""
        return {gpu: own for report in self.reports.values() for gpu, own in report.gpus.items()}

    # --- what it is asked to do

    def begin(self, base: Assigned) -> Assigned:
        """Have this assignment in force, under the next number.

        Raises:
            MigratorError: Agents have not said yet what they keep.
        """
        if not self.has_heard:
            raise MigratorError("agents have not answered yet")
        if self.newest is None:
            self.newest = self._next(base)
        else:
            served = self.newest
            kept = {"sets": served.sets, "leaving": served.leaving, "since": served.since, "lost": served.lost}
            before = replace(base, number=served.number, **kept)
            self.newest = self._moved(before, base.sets)
        return self.newest

    def drain(self, node: str) -> Assigned:
        """Have the node serve nobody.

        Raises:
            MigratorError: There is no such node, or no other.
            InfeasibleError: Somebody that is served could not be any more; nothing is changed.
        """
        newest = self._in_force
        if node not in self.nodes:
            raise MigratorError(f"{node}: is no node of the cluster; those are {', '.join(self.nodes)}")
        left = tuple(one for one in newest.nodes if one != node)
        if not self.alive.intersection(left):
            raise MigratorError(f"{node}: is the last node that serves; nobody would be served")
        after = self._placed(replace(newest, nodes=left, drained=tuple({*newest.drained, node})))
        if lost := sorted(after.unplaced.keys() - newest.unplaced.keys()):
            raise InfeasibleError(f"{node}: without it tenant {lost[0]} is on no GPU: {after.unplaced[lost[0]]}")
        self.newest = after
        return after

    def undrain(self, node: str) -> Assigned:
        """Let the node serve again; tenants move there only where that pays.

        Raises:
            MigratorError: It is not drained.
        """
        newest = self._in_force
        if node not in newest.drained:
            raise MigratorError(f"{node}: is not drained; {', '.join(newest.drained) or 'no node'} is")
        self.newest = self._next(replace(newest, drained=tuple(one for one in newest.drained if one != node)))
        return self.newest

    def close(self) -> Assigned:
        """Have all services end."""
        self.newest = self._next(replace(self._in_force, sets={}, leaving={}, is_closed=True))
        return self.newest

    @property
    def _in_force(self) -> Assigned:
        if self.newest is None:
            raise MigratorError("no assignment is known yet")
        return self.newest
