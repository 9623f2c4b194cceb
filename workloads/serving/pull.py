"""Pull dispatch: a tenant's requests wait in one queue, from which idle servers take batches.

A batch can begin only at a moment at which a server is free *and* a request waits. At such a moment:

1. Requests whose deadline has passed are dropped.
2. Of the idle servers the one with the smallest latency for the batch that it would take goes first; ties: the smaller
   ``server_id``. It drops the oldest request while that one's deadline is before
   now + latency(min(queue length, batch limit)), then takes min(queue length, batch limit) of the oldest.
3. So it goes on with the next idle server while a request waits.

A server may begin a batch in ``[ready_s, end_s)``; a batch in service is finished even after ``end_s``.

Step 1 does not depend on when it is done: latencies are above 0, so any server that looks would drop the expired
requests before it takes a batch. Outcomes are therefore independent of the pieces in which time is advanced.

The queue is first in, first out, so it is always a range ``[head, seen)`` of the arrivals, and what one piece resolves
is a range too. As time only goes forward, the two ends move on one by one, and so does the accuracy's era.

Symbols of the loop:

=========  ====================================================================================================
requests   ``(3, N)``: arrival, deadline and luck of the requests that are not resolved
servers    ``(4, n_servers)`` by rank: free from, in service until (−inf: never was), end, ready. The first two are
           updated
latency_s  ``(n_servers, most + 1)``: seconds by batch size
limits     ``(n_servers,)``: most requests in one batch
factors    ``(n_factors,)``: what the latencies of the batches to come are multiplied by; empty: nothing
accuracy   ``(2, n_eras)``: from when, and how much
taken      ``(2, n_servers)``: first request and size of the last batch that each began. Updated
=========  ====================================================================================================

The loop has one signature, so it is compiled once and kept on disk. The functions that it calls become part of it,
which halves the time to compile and avoids reference counts.
"""

from __future__ import annotations

import numpy as np

from executor.compiled import compiled, inlined
from workloads.arrays import BoolArray, FloatArray, IntArray


@inlined
def _first_after(times_s: FloatArray, first: int, end: int, time_s: float) -> int:
    """The first place in ``[first, end)`` with a time after ``time_s``; or ``end``. Times ascend."""
    while first < end and times_s[first] <= time_s:
        first += 1
    return first


@inlined
def _next_chance(servers: FloatArray, oldest_s: float) -> float:
    """The first moment from ``oldest_s`` on at which a server may begin a batch; inf: never."""
    chance_s = np.inf
    for rank in range(servers.shape[1]):
        at_s = max(servers[0, rank], oldest_s)
        if at_s < servers[2, rank]:
            chance_s = min(chance_s, at_s)
    return chance_s


@inlined
def _fastest(is_idle: BoolArray, latency_s: FloatArray, limits: IntArray, n_waiting: int) -> int:
    """The idle server with the smallest latency for the batch that it would take, ties by rank; −1: none is idle."""
    best, best_s = -1, np.inf
    for rank in range(len(is_idle)):
        if is_idle[rank]:
            for_batch_s = latency_s[rank, min(n_waiting, limits[rank])]
            if best < 0 or for_batch_s < best_s:
                best, best_s = rank, for_batch_s
    return best


@inlined
def _first_in_time(
    deadline_s: FloatArray, head: int, seen: int, now_s: float, latency_s: FloatArray, limit: int
) -> int:
    """The oldest of ``[head, seen)`` that the batch which would then be taken answers in time; or ``seen``."""
    while head < seen and deadline_s[head] < now_s + latency_s[min(seen - head, limit)]:
        head += 1
    return head


@compiled
def pull(  # noqa: PLR0917 (compiled code takes arrays by position)
    arrival_s: FloatArray,
    deadline_s: FloatArray,
    luck: FloatArray,
    servers: FloatArray,
    latency_s: FloatArray,
    limits: IntArray,
    factors: FloatArray,
    accuracy: FloatArray,
    taken: IntArray,
    head: int,
    tail: int,
    now_s: float,
    until_s: float,
    answer_s: FloatArray,
    in_time: BoolArray,
    correct: BoolArray,
) -> tuple[int, int, float]:
    """The new head, the number of batches begun, and ``until_s``; or the time at which the factors were used up.

    In that case call again, with that time, that head, and further factors.

    Beside the symbols above:
        arrival_s: ``(N,)``, and so are ``deadline_s`` and ``luck``.
        head: The oldest request that is not resolved.
        tail: Number of arrivals before ``until_s``.
        now_s: No decision comes before it.
        answer_s: Out: by request from the first unresolved one on, ``(tail - head of the first call,)``. As it was
            where a request is dropped, and so ``in_time`` and ``correct``.
    """
    origin = tail - len(answer_s)
    n_begun, era, seen = 0, 0, head
    is_idle = np.zeros(servers.shape[1], np.bool_)
    while head < tail:
        chance_s = _next_chance(servers, max(arrival_s[head], now_s))
        if chance_s >= until_s:
            break
        now_s = chance_s
        for rank in range(len(is_idle)):
            is_idle[rank] = servers[0, rank] <= now_s < servers[2, rank]
        head = _first_after(deadline_s, head, tail, now_s)
        seen = _first_after(arrival_s, max(seen, head), tail, now_s)
        era = _first_after(accuracy[0], era + 1, accuracy.shape[1], now_s) - 1
        while head < seen:
            rank = _fastest(is_idle, latency_s, limits, seen - head)
            if rank < 0:
                break
            if n_begun == len(factors) > 0:
                return head, n_begun, now_s
            head = _first_in_time(deadline_s, head, seen, now_s, latency_s[rank], limits[rank])
            if head < seen:
                n_taken = min(seen - head, limits[rank])
                service_s = latency_s[rank, n_taken]
                if len(factors) > 0:
                    service_s *= factors[n_begun]
                until = now_s + service_s
                for request in range(head, head + n_taken):
                    answer_s[request - origin] = until
                    in_time[request - origin] = until <= deadline_s[request]
                    correct[request - origin] = luck[request] < accuracy[1, era]
                servers[0, rank] = servers[1, rank] = until
                taken[0, rank], taken[1, rank] = head, n_taken
                is_idle[rank] = False
                n_begun += 1
                head += n_taken
    return _first_after(deadline_s, head, tail, until_s), n_begun, until_s
