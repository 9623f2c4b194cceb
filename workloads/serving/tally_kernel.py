"""The compiled pass over resolved requests: each is counted by its second of arrival, and by its latency.

The loop has one signature, so it is compiled once and kept on disk.
"""

from __future__ import annotations

import math

import numpy as np

from workloads.serving.pull import Bools, Floats, Ints, compiled

ARRIVALS, IN_TIME, LATE, DROPPED, CORRECT, CORRECT_LATE = range(6)
"""The rows of ``counts``."""


@compiled
def count(
    arrival_s: Floats,
    index: Ints,
    answer_s: Floats,
    in_time: Bools,
    correct: Bools,
    first_second: int,
    counts: Ints,
    n_by_ms: Ints,
    beyond_ms: Floats,
) -> int:
    """How many of the answered lie outside the bins of ``n_by_ms``; those that arrived in other seconds are left out.

    Latencies are rounded as ``numpy.round(…, 6)`` does it, to the last bit: scaled, rounded half to even, divided.

    What goes in, and out:
        arrival_s: Of all the tenant's requests, ``(N,)``.
        index: Places in it, ``(k,)``, and so are ``answer_s`` (NaN: dropped), ``in_time`` and ``correct``.
        first_second: That of the first column of ``counts``.
        counts: Added to, ``(6, n_seconds)``: by the rows above.
        n_by_ms: Added to, ``(n_bins,)``: bin b has latencies in (b − 1, b] ms.
        beyond_ms: Out, ``(k,)``: the latencies outside, in whole milliseconds, rounded up; the rest as it was.
    """
    n_seconds, n_bins, n_beyond = counts.shape[1], len(n_by_ms), 0
    for place in range(len(index)):
        came_s = arrival_s[index[place]]
        second = math.floor(came_s) - first_second
        if 0 <= second < n_seconds:
            counts[ARRIVALS, second] += 1
            if np.isnan(answer_s[place]):
                counts[DROPPED, second] += 1
            else:
                if in_time[place]:
                    counts[IN_TIME, second] += 1
                    counts[CORRECT, second] += correct[place]
                else:
                    counts[LATE, second] += 1
                    counts[CORRECT_LATE, second] += correct[place]
                upper_ms = np.ceil(np.rint((answer_s[place] - came_s) * 1e3 * 1e6) / 1e6)
                if 0 <= upper_ms < n_bins:
                    n_by_ms[int(upper_ms)] += 1
                else:
                    beyond_ms[n_beyond] = upper_ms
                    n_beyond += 1
    return n_beyond
