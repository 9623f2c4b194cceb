"""The live queue's rule against the simulation's on a virtual clock; and that no request is lost or counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from serving_cases import (
    ALWAYS,
    INF,
    TENANT,
    arrivals,
    factor,
    listed,
    random_case,
    request_lists,
    server,
    server_lists,
)

from tests.seeds import examples
from workloads.live.messages import Status
from workloads.live.queues import MOST_ATTEMPTS, TenantQueue
from workloads.profiles.latency import LatencyCurve
from workloads.serving.advance import advance
from workloads.serving.requests import QueueState, Requests
from workloads.serving.servers import Server
from workloads.traffic.luck import ServiceJitter

FLAT = LatencyCurve((1, 100), (1.0, 1.0))


# --- against the simulation


def live_answers(requests: Requests, servers: Sequence[Server], jitter: ServiceJitter | None) -> list[float | None]:
    """When each request is answered by the live queue, whose workers answer after the time that they should take."""
    queue, n_batches = TenantQueue(TENANT), 0
    ends: dict[str, tuple[float, list[int]]] = {}
    due = sorted({*requests.arrival_s.tolist(), *(one.ready_s for one in servers), *(one.end_s for one in servers)})
    seen = 0
    while due or ends:
        now_s = min([*due[:1], *(end_s for end_s, _ in ends.values())])
        if now_s == INF:
            break
        due = [time_s for time_s in due if time_s > now_s]
        for name in [name for name, (end_s, _) in ends.items() if end_s <= now_s]:
            _, numbers = ends.pop(name)
            queue.answer(name, numbers, [b""] * len(numbers), "", now_s)
            queue.credit(name, 1000)
        for one in servers:
            if one.ready_s == now_s:
                queue.join(one.server_id, one.latency, one.batch_limit)
                queue.credit(one.server_id, 1000)
            if one.end_s <= now_s and one.ready_s <= now_s:
                queue.drain(one.server_id)
        while seen < len(requests) and requests.arrival_s[seen] <= now_s:
            queue.arrive(b"", seen, requests.arrival_s[seen], requests.deadline_s[seen], b"", now_s)
            seen += 1
        for name, batch in queue.hand_out(now_s):
            latency = next(one.latency for one in servers if one.server_id == name)
            ends[name] = (
                now_s + latency.at(len(batch)) * factor(jitter, TENANT, n_batches),
                [request.number for request in batch],
            )
            n_batches += 1
    answered = {one.request.number: one.at_s for one in queue.resolved() if one.status in (Status.IN_TIME, Status.LATE)}
    return [answered.get(number) for number in range(len(requests))]


def simulated_answers(
    requests: Requests, servers: Sequence[Server], jitter: ServiceJitter | None
) -> list[float | None]:
    return listed(advance(requests, QueueState(), servers, ALWAYS, INF, jitter)[1])


@settings(derandomize=True, max_examples=examples(300))
@given(request_lists(), server_lists(), st.sampled_from([None, 0.4]))
def test_requests_are_answered_and_dropped_as_in_the_simulation(
    requests: Requests, servers: list[Server], spread: float | None
) -> None:
    jitter = None if spread is None else ServiceJitter(5, spread)
    assert live_answers(requests, servers, jitter) == simulated_answers(requests, servers, jitter)


@pytest.mark.parametrize("seed", range(6))
def test_random_cases_agree_with_the_simulation(seed: int) -> None:
    requests, servers, _ = random_case(seed)
    assert live_answers(requests, servers, None) == simulated_answers(requests, servers, None)


def test_a_hopeless_request_is_dropped_for_the_batch_that_would_be_taken() -> None:
    requests, workers = arrivals(0.0, 0.1, 0.3, 0.6, slo_s=3.0), [server(limit=3)]
    assert live_answers(requests, workers, None) == [1.0, None, 3.0, 3.0]


# --- one thing at a time


def queue_of(n_requests: int, *workers: str, limit: int = 8) -> TenantQueue:
    """Requests that arrived at 0 and expire at 9, and idle workers."""
    queue = TenantQueue(TENANT)
    for name in workers:
        queue.join(name, FLAT, limit)
        queue.credit(name, limit)
    for number in range(n_requests):
        queue.arrive(b"client", number, 0.0, 9.0, b"%d" % number, 0.0, expected=b"right")
    return queue


def handed(queue: TenantQueue, now_s: float = 0.0) -> dict[str, list[int]]:
    return {name: [request.number for request in batch] for name, batch in queue.hand_out(now_s)}


def outcomes(queue: TenantQueue) -> dict[int, Status]:
    return {one.request.number: one.status for one in queue.resolved()}


def test_what_a_dead_worker_had_goes_ahead_of_what_came_later() -> None:
    queue = queue_of(2, "a", limit=2)
    handed(queue)
    queue.arrive(b"client", 2, 1.0, 10.0, b"", 1.0)
    queue.leave("a", 1.0, to_blame=True)
    queue.join("b", FLAT, 2)
    queue.credit("b", 2)
    assert handed(queue, 1.0) == {"b": [0, 1]}


def test_a_worker_without_credit_gets_nothing() -> None:
    queue = queue_of(1)
    queue.join("a", FLAT, 8)
    assert handed(queue) == {}


def test_no_more_is_handed_out_than_there_is_credit_for() -> None:
    queue = queue_of(3)
    queue.join("a", FLAT, 8)
    queue.credit("a", 2)
    assert handed(queue) == {"a": [0, 1]}


def test_credit_is_for_one_batch() -> None:
    queue = queue_of(3, "a", limit=2)
    assert (handed(queue), handed(queue)) == ({"a": [0, 1]}, {})


def test_after_its_batch_a_worker_needs_new_credit() -> None:
    queue = queue_of(3, "a", limit=2)
    handed(queue)
    queue.answer("a", [0, 1], [b"right"] * 2, "v1", 1.0)
    assert handed(queue, 1.0) == {}


def test_an_answer_at_the_deadline_is_in_time() -> None:
    queue = queue_of(1, "a")
    handed(queue)
    queue.answer("a", [0], [b"right"], "v1", 9.0)
    assert outcomes(queue) == {0: Status.IN_TIME}


def test_a_paused_worker_gets_nothing_until_it_goes_on() -> None:
    queue = queue_of(1, "a")
    queue.pause("a")
    before = handed(queue)
    queue.pause("a", paused=False)
    assert (before, handed(queue)) == ({}, {"a": [0]})


def test_a_draining_worker_finishes_its_batch() -> None:
    queue = queue_of(1, "a")
    handed(queue)
    queue.drain("a")
    queue.answer("a", [0], [b"right"], "v1", 1.0)
    assert outcomes(queue) == {0: Status.IN_TIME}


def test_a_draining_worker_gets_no_other_batch() -> None:
    queue = queue_of(1, "a")
    queue.drain("a")
    queue.credit("a", 8)
    assert handed(queue) == {}


def test_what_a_worker_leaves_out_of_its_answers_waits_again() -> None:
    queue = queue_of(2, "a")
    handed(queue)
    queue.answer("a", [1], [b"right"], "v1", 1.0)
    queue.credit("a", 8)
    assert handed(queue, 1.0) == {"a": [0]}


def test_the_first_answer_counts() -> None:
    queue = queue_of(1, "a", "b")
    handed(queue)
    queue.give_back("a", 3.0)
    handed(queue, 3.0)
    queue.answer("a", [0], [b"right"], "v1", 4.0)
    queue.answer("b", [0], [b"wrong"], "v1", 5.0)
    assert ([one.answer for one in queue.resolved()], queue.n_repeated) == ([b"right"], 1)


def test_a_late_answer_is_taken_while_the_request_waits_again() -> None:
    queue = queue_of(1, "a")
    handed(queue)
    queue.give_back("a", 3.0)
    queue.answer("a", [0], [b"right"], "v1", 4.0)
    assert (outcomes(queue), queue.n_waiting) == ({0: Status.IN_TIME}, 0)


def test_answers_to_what_the_worker_was_not_given_are_passed_over() -> None:
    queue = queue_of(2, "a", limit=1)
    handed(queue)
    queue.answer("a", [1], [b"right"], "v1", 1.0)
    assert (outcomes(queue), queue.n_open) == ({}, 2)


def test_a_worker_is_overdue_by_its_own_latency() -> None:
    queue = queue_of(1, "a")
    handed(queue)
    assert (
        queue.overdue(2.0, lambda latency_s: 2 * latency_s),
        queue.overdue(2.1, lambda latency_s: 2 * latency_s),
    ) == (
        [],
        [("a", 0.0)],
    )


def test_what_was_given_back_is_not_overdue_again() -> None:
    queue = queue_of(1, "a")
    handed(queue)
    queue.give_back("a", 3.0)
    assert queue.overdue(9.0, lambda latency_s: latency_s) == []


def test_a_request_of_which_workers_die_fails() -> None:
    queue = queue_of(1)
    for attempt in range(MOST_ATTEMPTS):
        queue.join(f"w{attempt}", FLAT, 1)
        queue.credit(f"w{attempt}", 1)
        handed(queue)
        queue.leave(f"w{attempt}", 0.0, to_blame=True)
    assert outcomes(queue) == {0: Status.FAILED}


def test_a_request_outlives_any_number_of_workers_that_leave() -> None:
    queue = queue_of(1)
    for attempt in range(5):
        queue.join(f"w{attempt}", FLAT, 1)
        queue.credit(f"w{attempt}", 1)
        handed(queue)
        queue.leave(f"w{attempt}", 0.0, to_blame=False)
    assert queue.n_waiting == 1


def test_a_text_instead_of_an_answer_is_a_failure() -> None:
    queue = queue_of(1, "a")
    handed(queue)
    queue.answer("a", [0], ["the model raised"], "v1", 1.0)
    assert [(one.status, one.answer) for one in queue.resolved()] == [(Status.FAILED, "the model raised")]


def test_a_full_queue_refuses() -> None:
    queue = TenantQueue(TENANT, most_bytes=2000)
    for number in range(3):
        queue.arrive(b"client", number, 0.0, 9.0, bytes(400), 0.0)
    assert outcomes(queue) == {2: Status.REFUSED}


def test_what_is_answered_makes_room() -> None:
    queue = queue_of(3, "a")
    handed(queue)
    queue.answer("a", [0, 1, 2], [b""] * 3, "v1", 1.0)
    assert queue.held_bytes == 0


def test_counts_belong_to_the_second_of_arrival() -> None:
    queue = TenantQueue(TENANT, origin_s=100.0)
    queue.arrive(b"client", 0, 102.5, 103.0, b"", 102.6)
    queue.hand_out(104.0)
    assert [(one.second, one.arrived, one.dropped) for one in queue.changed_counts()] == [(2, 1, 1)]


@pytest.mark.parametrize(("arrival_s", "second"), [(3.0, 0), (900.0, 20)])
def test_an_arrival_of_another_time_counts_within_the_run(arrival_s: float, second: int) -> None:
    queue = TenantQueue(TENANT, origin_s=100.0)
    queue.arrive(b"client", 0, arrival_s, 1e9, b"", 120.0)
    assert [one.second for one in queue.all_counts()] == [second]


def test_answers_are_judged_where_the_right_one_is_known() -> None:
    queue = queue_of(3, "a")
    queue.arrive(b"client", 3, 0.0, 9.0, b"", 0.0)
    handed(queue)
    queue.answer("a", [0, 1, 3], [b"right", b"wrong", b"?"], "v1", 1.0)
    queue.credit("a", 8)
    handed(queue, 2.0)
    queue.answer("a", [2], [b"right"], "v1", 10.0)
    (count,) = queue.all_counts()
    assert (count.in_time, count.late, count.judged, count.correct, count.goodput) == (3, 1, 3, 2, 1)


def test_only_what_changed_is_told_again() -> None:
    queue = queue_of(1)
    queue.changed_counts()
    queue.arrive(b"client", 1, 5.0, 9.0, b"", 5.0)
    assert [one.second for one in queue.changed_counts()] == [5]


def test_old_seconds_are_forgotten_once_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.live.queues.MOST_SECONDS", 2)
    queue = TenantQueue(TENANT)
    for second in range(5):
        queue.arrive(b"client", second, second, 99.0 if second == 1 else second, b"", second)
        queue.hand_out(second)
    queue.changed_counts()
    assert [one.second for one in queue.all_counts()] == [1, 3, 4]


def test_in_the_end_everything_is_dropped() -> None:
    queue = queue_of(3, "a", limit=2)
    handed(queue)
    queue.drop_all(1.0, "the run has ended")
    assert (outcomes(queue), queue.n_open) == (dict.fromkeys(range(3), Status.DROPPED), 0)


@pytest.mark.parametrize(
    ("latency", "limit", "said"),
    [
        (FLAT, 0, "must lie in 1–4096"),
        (FLAT, 4097, "must lie in 1–4096"),
        (LatencyCurve((1,), (0.0,)), 4, "must be finite and above 0"),
    ],
)
def test_a_worker_without_sense_is_refused(latency: LatencyCurve, limit: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TenantQueue(TENANT).join("a", latency, limit)


def test_two_workers_have_two_names() -> None:
    with pytest.raises(ValueError, match="has one of this name"):
        queue_of(0, "a").join("a", FLAT, 1)


# --- whatever happens


class Workplace(RuleBasedStateMachine):
    """Workers come, take, answer, fall silent, drain and leave in any order, while requests come and time goes by."""

    workers = Bundle("workers")

    def __init__(self) -> None:
        super().__init__()
        self.queue = TenantQueue(TENANT, most_bytes=12_000)
        self.now_s, self.n_arrived, self.n_workers = 0.0, 0, 0
        self.given: dict[str, list[int]] = {}
        self.told: Counter[int] = Counter()

    @rule(n_requests=st.integers(1, 6), slo_s=st.sampled_from([0.5, 2.0, 9.0]), n_bytes=st.sampled_from([0, 900]))
    def arrive(self, n_requests: int, slo_s: float, n_bytes: int) -> None:
        for _ in range(n_requests):
            self.queue.arrive(b"", self.n_arrived, self.now_s, self.now_s + slo_s, bytes(n_bytes), self.now_s, b"")
            self.n_arrived += 1

    @rule(target=workers, limit=st.integers(1, 4), latency_s=st.sampled_from([0.25, 1.0]))
    def join(self, limit: int, latency_s: float) -> str:
        self.n_workers += 1
        name = f"w{self.n_workers}"
        self.queue.join(name, LatencyCurve((1, 9), (latency_s, latency_s)), limit)
        self.queue.credit(name, limit)
        self.given[name] = []
        return name

    @rule(passing_s=st.sampled_from([0.0, 0.25, 1.0, 3.0]))
    def hand_out(self, passing_s: float) -> None:
        self.now_s += passing_s
        for name, batch in self.queue.hand_out(self.now_s):
            self.given[name] += [request.number for request in batch]

    @rule(name=workers, data=st.data())
    def answer(self, name: str, data: st.DataObject) -> None:
        numbers = data.draw(st.lists(st.sampled_from(self.given[name]), max_size=6)) if self.given[name] else []
        answers = [data.draw(st.sampled_from([b"", b"wrong", "failed"])) for _ in numbers]
        self.queue.answer(name, numbers, answers, "v1", self.now_s)
        self.queue.credit(name, 4)

    @rule(name=workers)
    def hang(self, name: str) -> None:
        self.queue.give_back(name, self.now_s)

    @rule(name=workers, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        self.queue.pause(name, paused)

    @rule(name=workers)
    def drain(self, name: str) -> None:
        self.queue.drain(name)

    @rule(name=consumes(workers), to_blame=st.booleans())
    def leave(self, name: str, to_blame: bool) -> None:
        self.queue.leave(name, self.now_s, to_blame=to_blame)

    @rule(target=workers)
    def nothing(self) -> object:
        return multiple()

    @invariant()
    def each_request_is_at_one_place(self) -> None:
        self.queue.check_integrity()

    @invariant()
    def arrived_is_in_time_and_late_and_dropped_and_waiting(self) -> None:
        self.told.update(one.request.number for one in self.queue.resolved())
        counts = self.queue.all_counts()
        assert sum(one.arrived for one in counts) == self.n_arrived
        assert sum(one.in_time + one.late + one.dropped for one in counts) == len(self.told)
        assert sum(one.waiting for one in counts) == self.queue.n_open

    @invariant()
    def no_request_is_told_twice(self) -> None:
        assert set(self.told.values()) <= {1}

    def teardown(self) -> None:
        self.queue.hand_out(np.inf)
        for name in list(self.queue._workers):
            self.queue.leave(name, self.now_s, to_blame=False)
        self.queue.hand_out(np.inf)
        self.told.update(one.request.number for one in self.queue.resolved())
        assert dict(self.told) == dict.fromkeys(range(self.n_arrived), 1)


Workplace.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestWorkplace = Workplace.TestCase
