"""Push dispatch: a request is sent to a server as it arrives, and waits there.

Source: ELSA, the scheduler of Kim, Choi and Rhu, "PARIS and ELSA" (DAC 2022). A new request there waits for the rest
of the batch in service and for all that is queued, then it is served by itself. We take one thing from ELSA: a request
goes where it would be answered first. Our own additions: waiting requests share batches, requests that cannot be
answered in time are dropped by the rule of :mod:`workloads.serving.pull`, and servers come and go.

What happens at one moment, in this order:

1. A server that is not open (``ready_s`` ≤ now < ``end_s``) sends back what waits there. Requests whose deadline has
   passed are dropped.
2. Requests that have arrived or come back are sent, the oldest first, to the open server that would answer them first
   if what waits there is served in full batches and nothing else comes; ties: the smaller ``server_id``. A request
   waits before those that arrived after it. Where no server is open, it waits for the first.
3. Each idle server that is open drops its oldest request while that one's deadline is before
   now + latency(min(its queue length, batch limit)), then takes min(its queue length, batch limit) of the oldest.

The rule looks neither at servers that will be ready nor at ends that will come, so outcomes do not depend on the
pieces in which time is advanced.

The symbols of the loop are those of :mod:`workloads.serving.pull`, and:

=========  ====================================================================================================
place      a request's index less ``origin``, that of the first unresolved one
queues     ``(3, n_servers + 1)``: the first place, the last place (−1: none) and the number of those that wait, by
           rank; the last column has those that were sent to no server yet
follows    ``(tail - origin,)``: the place that is next in the same queue; −1: none
taken      ``(n_servers, most + 1)``: size of the last batch that each began, then its places. Updated
=========  ====================================================================================================

Queues are in the order of arrival, so the requests whose deadline has passed are in front.
"""

from __future__ import annotations

import numpy as np

from executor.compiled import compiled, inlined
from workloads.arrays import BoolArray, FloatArray, IntArray

FIRST, LAST, COUNT = 0, 1, 2


@inlined
def _insert(queues: IntArray, follows: IntArray, queue: int, place: int) -> None:
    """Put a request into a queue, behind those that arrived before it."""
    first, last = queues[FIRST, queue], queues[LAST, queue]
    queues[COUNT, queue] += 1
    if first < 0 or place < first:
        follows[place] = first
        queues[FIRST, queue] = place
    else:
        before = first if place < last else last
        while 0 <= follows[before] < place:
            before = follows[before]
        follows[place] = follows[before]
        follows[before] = place
    if place > last:
        queues[LAST, queue] = place


@inlined
def _pop(queues: IntArray, follows: IntArray, queue: int) -> int:
    """Take the oldest request out of a queue."""
    place: int = queues[FIRST, queue]
    queues[FIRST, queue] = follows[place]
    queues[COUNT, queue] -= 1
    if follows[place] < 0:
        queues[LAST, queue] = -1
    return place


@inlined
def _drop_expired(
    queues: IntArray, follows: IntArray, deadline_s: FloatArray, origin: int, now_s: float, is_resolved: BoolArray
) -> None:
    """Drop from all queues the requests whose deadline has passed."""
    for queue in range(queues.shape[1]):
        while queues[COUNT, queue] > 0 and deadline_s[origin + queues[FIRST, queue]] <= now_s:
            is_resolved[_pop(queues, follows, queue)] = True


@inlined
def _first_to_answer(
    is_open: BoolArray, servers: FloatArray, latency_s: FloatArray, limits: IntArray, queues: IntArray, now_s: float
) -> int:
    """The open server that would answer a new request first, ties by rank; at least one is open."""
    best, best_s = -1, np.inf
    for rank in range(len(is_open)):
        if is_open[rank]:
            n_ahead, limit = queues[COUNT, rank], limits[rank]
            n_full = n_ahead // limit if n_ahead >= limit else 0
            answer_s = max(servers[1, rank], now_s) + n_full * latency_s[rank, limit]
            answer_s += latency_s[rank, n_ahead - n_full * limit + 1]
            if best < 0 or answer_s < best_s:
                best, best_s = rank, answer_s
    return best


@inlined
def _next_moment(servers: FloatArray, queues: IntArray, now_s: float) -> float:
    """The first moment after ``now_s`` at which anything but an arrival may happen; inf: none will come."""
    moment_s = np.inf
    n_servers = servers.shape[1]
    for rank in range(n_servers):
        if queues[COUNT, rank] > 0:
            moment_s = min(moment_s, servers[1, rank], servers[2, rank])
        if queues[COUNT, n_servers] > 0 and servers[3, rank] > now_s:
            moment_s = min(moment_s, servers[3, rank])
    return moment_s


@inlined
def _gather(servers: FloatArray, queues: IntArray, follows: IntArray, now_s: float, is_open: BoolArray) -> int:
    """The number of open servers; ``is_open`` says which. The others send back what waits there."""
    nowhere, n_open = len(is_open), 0
    for rank in range(nowhere):
        is_open[rank] = servers[3, rank] <= now_s < servers[2, rank]
        n_open += is_open[rank]
        while not is_open[rank] and queues[COUNT, rank] > 0:
            _insert(queues, follows, nowhere, _pop(queues, follows, rank))
    return n_open


@inlined
def _next_batch(
    queues: IntArray,
    follows: IntArray,
    rank: int,
    deadline_s: FloatArray,
    origin: int,
    now_s: float,
    latency_s: FloatArray,
    limit: int,
    is_resolved: BoolArray,
) -> int:
    """The size of the batch that a server takes, once it has dropped what it cannot answer in time."""
    n_waiting: int = queues[COUNT, rank]
    while n_waiting > 0 and deadline_s[origin + queues[FIRST, rank]] < now_s + latency_s[min(n_waiting, limit)]:
        is_resolved[_pop(queues, follows, rank)] = True
        n_waiting -= 1
    return min(n_waiting, limit)


@compiled
def push(  # noqa: PLR0917 (compiled code takes arrays by position)
    arrival_s: FloatArray,
    deadline_s: FloatArray,
    luck: FloatArray,
    servers: FloatArray,
    latency_s: FloatArray,
    limits: IntArray,
    factors: FloatArray,
    accuracy: FloatArray,
    queues: IntArray,
    follows: IntArray,
    taken: IntArray,
    seen: int,
    tail: int,
    now_s: float,
    until_s: float,
    answer_s: FloatArray,
    in_time: BoolArray,
    correct: BoolArray,
    is_resolved: BoolArray,
) -> tuple[int, int, float]:
    """Arrivals seen, batches begun, and ``until_s``; or the time at which the factors were used up.

    In that case call again, with that time, those arrivals, and further factors.

    Beside the symbols above:
        arrival_s: ``(N,)``, and so are ``deadline_s`` and ``luck``.
        seen: Number of arrivals that are in queues or resolved.
        tail: Number of arrivals before ``until_s``.
        now_s: The first moment.
        answer_s: Out: by place. As it was where a request is dropped, and so ``in_time`` and ``correct``.
        is_resolved: Out: by place, true once it is.
    """
    origin = tail - len(answer_s)
    n_servers, n_begun, era = servers.shape[1], 0, 0
    is_open = np.zeros(n_servers, np.bool_)
    while now_s < until_s:
        n_open = _gather(servers, queues, follows, now_s, is_open)
        while seen < tail and arrival_s[seen] <= now_s:
            _insert(queues, follows, n_servers, seen - origin)
            seen += 1
        _drop_expired(queues, follows, deadline_s, origin, now_s, is_resolved)
        while n_open > 0 and queues[COUNT, n_servers] > 0:
            rank = _first_to_answer(is_open, servers, latency_s, limits, queues, now_s)
            _insert(queues, follows, rank, _pop(queues, follows, n_servers))
        while era + 1 < accuracy.shape[1] and accuracy[0, era + 1] <= now_s:
            era += 1
        for rank in range(n_servers):
            if not is_open[rank] or servers[1, rank] > now_s or queues[COUNT, rank] == 0:
                continue
            if n_begun == len(factors) > 0:
                return seen, n_begun, now_s
            n_taken = _next_batch(
                queues, follows, rank, deadline_s, origin, now_s, latency_s[rank], limits[rank], is_resolved
            )
            if n_taken > 0:
                factor = factors[n_begun] if len(factors) > 0 else 1.0
                servers[1, rank] = now_s + latency_s[rank, n_taken] * factor
                n_begun += 1
                taken[rank, 0] = n_taken
            for number in range(n_taken):
                place = _pop(queues, follows, rank)
                taken[rank, number + 1] = place
                is_resolved[place] = True
                answer_s[place] = servers[1, rank]
                in_time[place] = answer_s[place] <= deadline_s[origin + place]
                correct[place] = luck[origin + place] < accuracy[1, era]
        now_s = _next_moment(servers, queues, now_s)
        if seen < tail:
            now_s = min(now_s, arrival_s[seen])
    _drop_expired(queues, follows, deadline_s, origin, until_s, is_resolved)
    return seen, n_begun, until_s
