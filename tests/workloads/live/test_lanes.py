"""Lanes of the dispatcher against the simulation's on a virtual clock, and what only real workers do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from serving_cases import ALWAYS, INF, factor, random_curve

from tests.seeds import daily
from workloads.live.lanes import Lanes
from workloads.live.messages import Status
from workloads.live.queues import TenantQueue
from workloads.profiles.latency import LatencyCurve
from workloads.serving.pool import Lane, PoolState, advance
from workloads.serving.requests import Requests
from workloads.serving.servers import Server
from workloads.traffic.luck import ServiceJitter

FLAT = LatencyCurve((1, 100), (1.0, 1.0))


@dataclass(frozen=True)
class Group:
    """The processes of a tenant in a lane."""

    tenant: str
    lane: str
    latency: LatencyCurve
    limit: int
    processes: int
    ready_s: float
    end_s: float

    @property
    def names(self) -> list[str]:
        return [f"{self.lane}/{self.tenant}/{number}" for number in range(self.processes)]

    @property
    def server(self) -> Server:
        """What the simulation has in their place."""
        latency, limit = self.latency.of_processes(self.processes, self.limit), self.processes * self.limit
        return Server(self.tenant, f"{self.lane}/{self.tenant}", self.ready_s, self.end_s, latency, limit)


@dataclass(frozen=True)
class Case:
    requests: Sequence[Requests]
    groups: Sequence[Group]
    weights: Sequence[float]
    turn_cost: float
    jitter: ServiceJitter | None


Turn = tuple[str, str, float, float]
"""Tenant, lane, begin and end."""


def drawn(seed: int) -> Case:
    """Tenants that often want the same lane at once: where nobody has to wait, any rule of turns would do."""
    rng = np.random.default_rng([seed, 32])
    tenants = [f"t{number}" for number in range(rng.integers(2, 6))]
    longest_s = float(rng.choice([0.4, 2.0]))
    groups = []
    for lane in range(rng.integers(1, 4)):
        members = [name for name in tenants if rng.random() < 0.9] or tenants[:1]
        for name in members:
            ready_s = float(rng.choice([0.0, rng.uniform(0, 3)]))
            end_s = float(rng.choice([INF, INF, rng.uniform(2, 8)]))
            processes, latency = int(rng.integers(1, 3)), random_curve(rng, longest_s)
            groups.append(Group(name, f"l{lane}", latency, int(rng.integers(1, 9)), processes, ready_s, end_s))
    requests = []
    for name in tenants:
        arrival_s = np.sort(rng.uniform(0, 8, rng.integers(0, 80)))
        requests.append(Requests(name, float(rng.uniform(0.5, 4)), arrival_s, np.full(len(arrival_s), 0.5)))
    weights = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0], len(tenants)).tolist()
    jitter = ServiceJitter(seed, 0.3) if rng.random() < 0.5 else None
    return Case(requests, groups, weights, float(rng.choice([0.0, 0.05, 0.5])), jitter)


def simulated(case: Case) -> tuple[list[Turn], list[list[float | None]]]:
    by_lane: dict[str, list[Server]] = {}
    for group in case.groups:
        by_lane.setdefault(group.lane, []).append(group.server)
    names = sorted(by_lane)
    _, piece = advance(
        case.requests,
        PoolState.at_start(len(case.requests)),
        [Lane(name, tuple(by_lane[name])) for name in names],
        [ALWAYS] * len(case.requests),
        INF,
        case.jitter,
        weights=case.weights,
        turn_cost=case.turn_cost,
    )
    own = piece.batches
    turns = zip(own.tenant_index.tolist(), own.rank.tolist(), own.begin_s.tolist(), own.end_s.tolist(), strict=True)
    answers = [[None if math.isnan(at_s) else at_s for at_s in one.answer_s.tolist()] for one in piece.outcomes]
    return [(case.requests[member].tenant, names[rank], *times_s) for member, rank, *times_s in turns], answers


class Live:
    """Queues and lanes whose workers answer after the time that they should take."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.queues = {one.tenant: TenantQueue(one.tenant) for one in case.requests}
        self.lanes = Lanes(self.queues, case.turn_cost)
        self.lanes.worth = dict(zip(self.queues, case.weights, strict=True))
        self.turns: list[Turn] = []
        self.ends: dict[str, tuple[float, str, list[int]]] = {}
        self._holders: dict[str, str] = {}
        self._n_turns: Counter[str] = Counter()
        self._seen = Counter[str]()

    def at(self, now_s: float) -> None:
        """Everything that happens at a moment."""
        for worker in [worker for worker, (end_s, _, _) in self.ends.items() if end_s <= now_s]:
            _, tenant, numbers = self.ends.pop(worker)
            self.queues[tenant].answer(worker, numbers, [b""] * len(numbers), "", now_s)
            self.queues[tenant].credit(worker, 1000)
        for group in self.case.groups:
            for worker in group.names:
                if group.ready_s == now_s:
                    self.queues[group.tenant].join(worker, group.latency, group.limit)
                    self.queues[group.tenant].credit(worker, 1000)
                    self.lanes.join(group.lane, group.tenant, worker, is_shared=True)
                if group.end_s <= now_s and group.ready_s <= now_s:
                    self.queues[group.tenant].drain(worker)
        for own in self.case.requests:
            while (number := self._seen[own.tenant]) < len(own) and own.arrival_s[number] <= now_s:
                self.queues[own.tenant].arrive(b"", number, own.arrival_s[number], own.deadline_s[number], b"", now_s)
                self._seen[own.tenant] += 1
        sizes: dict[tuple[str, str], dict[str, list[int]]] = {}
        for worker, batch in self.lanes.hand_out(now_s):
            lane, tenant, _ = worker.split("/")
            sizes.setdefault((tenant, lane), {})[worker] = [request.number for request in batch]
        for (tenant, lane), parts in sizes.items():
            self._begin(tenant, lane, parts, now_s)

    def _begin(self, tenant: str, lane: str, parts: Mapping[str, list[int]], now_s: float) -> None:
        own = next(one for one in self.case.groups if (one.tenant, one.lane) == (tenant, lane))
        is_first = self._holders.get(lane, tenant) == tenant
        longer = 1.0 if is_first else 1.0 + self.case.turn_cost
        takes_s = own.latency.at(max(map(len, parts.values())))
        end_s = now_s + takes_s * factor(self.case.jitter, tenant, self._n_turns[tenant]) * longer
        self._n_turns[tenant] += 1
        self._holders[lane] = tenant
        self.turns.append((tenant, lane, now_s, end_s))
        self.ends |= {worker: (end_s, tenant, numbers) for worker, numbers in parts.items()}

    def run(self) -> list[list[float | None]]:
        due = {at_s for one in self.case.requests for at_s in one.arrival_s.tolist()}
        due |= {at_s for group in self.case.groups for at_s in (group.ready_s, group.end_s)}
        while due or self.ends:
            now_s = min([*due, *(end_s for end_s, _, _ in self.ends.values())])
            if now_s == INF:
                break
            due.discard(now_s)
            self.at(now_s)
            for queue in self.queues.values():
                queue.check_integrity()
        return [self._answers(one) for one in self.case.requests]

    def _answers(self, own: Requests) -> list[float | None]:
        resolved = self.queues[own.tenant].resolved()
        answered = {one.request.number: one.at_s for one in resolved if one.status in (Status.IN_TIME, Status.LATE)}
        return [answered.get(number) for number in range(len(own))]


@pytest.mark.parametrize("seed", daily(range(300), range(0, 300, 5)))
def test_turns_and_drops_are_those_of_the_simulation(seed: int) -> None:
    case = drawn(seed)
    live, (turns, answers) = Live(case), simulated(case)
    assert live.run() == answers
    assert sorted(live.turns) == sorted(turns)


# --- what only real workers do


def lanes_of(*workers: str) -> Lanes:
    """Idle workers ``lane/tenant``, of batches of one, and a request of each tenant that waits."""
    tenants = dict.fromkeys(worker.split("/")[1] for worker in workers)
    queues = {tenant: TenantQueue(tenant) for tenant in tenants}
    lanes = Lanes(queues)
    for worker in workers:
        lane, tenant = worker.split("/")
        queues[tenant].join(worker, FLAT, 1)
        queues[tenant].credit(worker, 1)
        lanes.join(lane, tenant, worker, is_shared=True)
    for number, queue in enumerate(queues.values()):
        queue.arrive(b"", number, 0.0, 90.0 + number, b"", 0.0)
    return lanes


def test_a_lane_is_kept_for_new_weights_once_it_is_free_and_until_they_are_loaded() -> None:
    lanes = lanes_of("x/a", "x/b", "x/c")
    ((worker, _),) = lanes.hand_out(1.0)
    assert worker == "x/a"
    lanes.keep("x/b")
    lanes.keep("x/c")
    assert (lanes.kept(), lanes.hand_out(2.0)) == ([], [])
    lanes.leave("a", "x/a")
    assert (lanes.kept(), lanes.kept(), lanes.hand_out(3.0)) == (["x/b"], [], [])
    lanes.release("x/b")
    assert (lanes.kept(), lanes.hand_out(4.0)) == (["x/c"], [])
    lanes.leave("c", "x/c")  # it died over it
    assert "x/b" in [worker for worker, _ in lanes.hand_out(5.0)]


def test_who_joins_a_lane_in_which_a_worker_loads_waits_and_so_does_a_loan() -> None:
    lanes = lanes_of("x/a", "x/b")
    lanes.loads("x/a")
    lanes.lend("x", "trainer")
    assert (lanes.hand_out(1.0), lanes.kept()) == ([], [])
    lanes.keep("x/a")  # newer weights
    lanes.release("x/a")
    assert lanes.kept() == ["trainer"]
    lanes.give_back("trainer")
    assert (lanes.kept(), lanes.hand_out(2.0)) == (["x/a"], [])
    lanes.loads("x/b")
    lanes.leave("b", "x/b")
    lanes._queues["b"].leave("x/b", 2.0, to_blame=False)
    lanes.release("x/a")
    assert [worker for worker, _ in lanes.hand_out(3.0)] == ["x/a"]


def test_a_lane_is_kept_twice_for_who_is_asked_twice() -> None:
    lanes = lanes_of("x/a", "x/b")
    lanes.keep("x/b")
    assert lanes.kept() == ["x/b"]
    lanes.keep("x/b")
    lanes.release("x/b")
    assert (lanes.hand_out(1.0), lanes.kept()) == ([], ["x/b"])
    lanes.release("x/b")
    assert [worker for worker, _ in lanes.hand_out(2.0)] == ["x/a"]


def test_an_instance_passes_to_a_pool_and_back_without_two_tenants_ever_in_it() -> None:
    lanes = lanes_of("x/a", "x/b")
    lanes.share("x/a", is_shared=False)
    queue = lanes._queues["b"]
    lanes.leave("b", "x/b")
    queue.leave("x/b", 0.0, to_blame=False)
    assert [worker for worker, _ in lanes.hand_out(1.0)] == ["x/a"]
    queue.join("x/b", FLAT, 1)
    queue.credit("x/b", 1)
    lanes.join("x", "b", "x/b", is_shared=True)  # a's batch is from before
    assert lanes.hand_out(2.0) == []
    lanes.leave("a", "x/a")
    assert [worker for worker, _ in lanes.hand_out(3.0)] == ["x/b"]


def test_a_lane_is_lent_once_it_is_free_and_serves_again_when_it_is_given_back() -> None:
    lanes = lanes_of("x/a", "x/b")
    assert [worker for worker, _ in lanes.hand_out(1.0)] == ["x/a"]
    lanes.lend("x", "trainer")
    assert (lanes.kept(), lanes.hand_out(2.0)) == ([], [])
    lanes._queues["a"].answer("x/a", [0], [b""], "", 3.0)
    assert (lanes.kept(), lanes.kept(), lanes.hand_out(3.0)) == (["trainer"], [], [])
    lanes.give_back("trainer")
    assert [worker for worker, _ in lanes.hand_out(4.0)] == ["x/b"]
    lanes.give_back("trainer")  # once is enough


def test_a_loan_outlives_all_workers_of_its_lane_and_those_that_join_it_wait() -> None:
    lanes = lanes_of("x/a", "x/b")
    lanes.lend("x", "trainer")
    assert lanes.kept() == ["trainer"]
    for tenant in "ab":
        lanes.leave(tenant, f"x/{tenant}")
        lanes._queues[tenant].leave(f"x/{tenant}", 1.0, to_blame=False)
    lanes._queues["b"].join("x/b2", FLAT, 1)
    lanes._queues["b"].credit("x/b2", 1)
    lanes.join("x", "b", "x/b2", is_shared=True)
    assert (lanes.hand_out(2.0), lanes.kept()) == ([], [])
    lanes.give_back("trainer")
    assert [worker for worker, _ in lanes.hand_out(3.0)] == ["x/b2"]


def test_a_lane_without_workers_is_lent_at_once_and_forgotten_after() -> None:
    lanes = lanes_of("x/a")
    lanes.lend("y", "trainer")
    assert lanes.kept() == ["trainer"]
    assert [worker for worker, _ in lanes.hand_out(1.0)] == ["x/a"]
    lanes.give_back("trainer")
    assert lanes.kept() == []


def test_new_weights_and_loans_wait_for_each_other() -> None:
    lanes = lanes_of("x/a", "x/b")
    lanes.keep("x/a")
    lanes.lend("x", "trainer")
    lanes.keep("x/b")
    assert lanes.kept() == ["x/a"]
    lanes.release("x/a")
    assert lanes.kept() == ["trainer"]
    lanes.give_back("trainer")
    assert (lanes.kept(), lanes.hand_out(1.0)) == (["x/b"], [])


def test_what_is_lent_of_a_tenant_s_own_instances_waits_and_the_others_serve() -> None:
    queues = {"a": TenantQueue("a")}
    lanes = Lanes(queues)
    for worker in ("x/0", "x/1", "y/0"):
        queues["a"].join(worker, FLAT, 1)
        queues["a"].credit(worker, 1)
        lanes.join(worker[0], "a", worker, is_shared=False)
    for number in range(3):
        queues["a"].arrive(b"", number, 0.0, 90.0, b"", 0.0)
    lanes.lend("x", "trainer")
    assert [worker for worker, _ in lanes.hand_out(1.0)] == ["y/0"]
    assert lanes.kept() == ["trainer"]
    lanes.give_back("trainer")
    assert [worker for worker, _ in lanes.hand_out(2.0)] == ["x/0", "x/1"]


def test_where_one_tenant_alone_is_served_no_process_waits_for_another() -> None:
    queues = {"a": TenantQueue("a")}
    lanes = Lanes(queues)
    for worker in ("x/0", "x/1"):
        queues["a"].join(worker, FLAT, 1)
        queues["a"].credit(worker, 1)
        lanes.join("x", "a", worker, is_shared=False)
    queues["a"].arrive(b"", 0, 0.0, 90.0, b"", 0.0)
    assert len(lanes.hand_out(1.0)) == 1
    queues["a"].arrive(b"", 1, 0.0, 90.0, b"", 1.0)
    assert len(lanes.hand_out(2.0)) == 1
    lanes.share("x/0", is_shared=True)
    queues["a"].answer("x/0", [0], [b""], "", 3.0)
    queues["a"].credit("x/0", 1)
    queues["a"].arrive(b"", 2, 0.0, 90.0, b"", 3.0)
    assert lanes.hand_out(3.0) == []  # in turns, the whole lane is busy until all of a turn is answered


@pytest.mark.parametrize("seed", daily(range(200), range(0, 200, 4)))
def test_nothing_computes_at_once_in_an_instance_however_it_changes_hands_or_is_lent(seed: int) -> None:
    rng = np.random.default_rng([seed, 65])
    queues = {name: TenantQueue(name) for name in "abc"}
    lanes, where = Lanes(queues), dict[str, tuple[str, str]]()
    under_way: dict[str, list[int]] = {}
    lent, training = dict[str, str](), dict[str, str]()  # lanes by loan: asked for, and had
    for step in range(120):
        now_s, deed = float(step), rng.integers(0, 8)
        tenant, lane = str(rng.choice([*queues])), str(rng.choice(["x", "y"]))
        if deed == 0 and len(where) < 8:
            worker = f"{lane}/{tenant}/{step}"
            queues[tenant].join(worker, FLAT, int(rng.integers(1, 4)))
            queues[tenant].credit(worker, 9)
            lanes.join(lane, tenant, worker, is_shared=bool(rng.integers(0, 2)))
            where[worker] = lane, tenant
        elif deed == 1 and where:
            lanes.share(str(rng.choice([*where])), is_shared=bool(rng.integers(0, 2)))
        elif deed == 2 and where:
            worker = str(rng.choice([*where]))
            own = where.pop(worker)[1]
            lanes.leave(own, worker)
            queues[own].leave(worker, now_s, to_blame=False)
            under_way.pop(worker, None)
        elif deed in (3, 4) and under_way:
            worker = str(rng.choice([*under_way]))
            numbers = under_way.pop(worker)
            queues[where[worker][1]].answer(worker, numbers, [b""] * len(numbers), "", now_s)
            queues[where[worker][1]].credit(worker, 9)
        elif deed == 6 and len(lent) < 3:
            lanes.lend(lane, f"loan {step}")
            lent[f"loan {step}"] = lane
        elif deed == 7 and lent:
            loan = str(rng.choice([*lent]))
            lanes.give_back(loan)
            del lent[loan]
            training.pop(loan, None)
        queues[tenant].arrive(b"", step, now_s, now_s + 50, b"", now_s)
        for worker, batch in lanes.hand_out(now_s):
            under_way[worker] = [one.number for one in batch]
        training |= {loan: lent[loan] for loan in lanes.kept()}
        for lane in ("x", "y"):
            in_it = {where[worker][1] for worker in under_way if where[worker][0] == lane}
            in_it |= {loan for loan, own in training.items() if own == lane}
            assert len(in_it) <= 1, (lane, in_it)
            assert in_it or lane not in lent.values(), (lane, lent)  # what is free is lent
