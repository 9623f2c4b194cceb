"""``physical``: idle slices given out beside a plan's retrainings, where that costs nothing (``ties``).

A search values what is expected, and of paths of one value takes the one that holds least. What that leaves idle is
given out here, once, when the plan is settled: one instance after the other, the one that adds most to what tenants
have in reserve first. Nothing is held in another's place. So what was held stays where it is, and what was added can be
dropped at once when a retraining, or the next window, needs its slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Floats
from planner.engines.physical.held_sets import Entry, Held
from planner.engines.physical.plan import Worth, may_hold, merged, tidied, worth
from planner.engines.schedule import PlacedSchedule, WindowFacts, above, schedule_of
from planner.engines.ties import costs_nobody, reserve


def fullest(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> Held:
    """What to hold instead beside these retrainings: that and more, where it costs no tenant anything; tidied."""
    held = tidied(facts, held, placed)
    least = worth(facts, held, placed)
    while (found := _with_one_more(facts, held, placed, least)) is not None:
        held, least = found
    return held


def _with_one_more(
    facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement], least: Worth
) -> tuple[Held, Worth] | None:
    """The held sets with one instance more for as long as it can be held, and their worth; ``None`` if none helps."""
    for entry, begin, end in _idle(facts, held, placed):
        other = _with(held, entry, begin, end, facts.n_steps)
        if may_hold(facts, other, placed):
            now = worth(facts, other, placed)
            if costs_nobody(now.goodput, least.goodput) and now.reserve > above(least.reserve):
                return other, now
    return None


def _idle(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> list[tuple[Entry, int, int]]:
    """What could be held from step to step where slices are free, what adds most to a reserve first."""
    problem, found = facts.problem, list[tuple[float, Entry, int, int]]()
    held_steps = [step for step, _ in held]

    runs = (*schedule_of(facts.running), *schedule_of(placed))
    near = facts.around({facts.first_step, *facts.borders(runs), *held_steps})
    may_change = sorted(_changes(facts, held_steps, near))
    capacity = _capacity(facts, held)
    for place in problem.gpu.placements(problem.profile_names):
        is_free = _free(facts, held, placed, place)
        for begin, end in _stretches(is_free, may_change, facts.epoch_steps):
            for holder, members in enumerate(problem.partition):
                if problem.may_serve(holder, place):
                    gain = 0.0
                    for m in members:
                        own, now = problem.tenants[m], capacity[m, begin:end]
                        more = problem.step_s * problem.capability_rps(own)[place.profile.name]
                        gain += float((reserve(problem, own, now + more) - reserve(problem, own, now)).sum())
                    found.append((gain, (place, holder), begin, end))
    found.sort(key=lambda item: (-item[0], item[1][0].sort_key, item[1][1]))
    return [item[1:] for item in found]


def _changes(facts: WindowFacts, epochs: list[int], near: Iterable[int]) -> Iterator[int]:
    """The steps at which there may be an epoch beside those that there are: these, and what is far enough from them."""
    first = 1 if facts.is_free else facts.first_step
    own = set(epochs[1:])
    yield from ({0} if facts.is_free else set()) | own
    yield from (s for s in near if s >= first and all(abs(s - other) >= facts.epoch_steps for other in own))


def _stretches(is_free: Bools, may_change: list[int], epoch_steps: int) -> Iterator[tuple[int, int]]:
    """Each stretch of free steps, cut to where it may begin and end: both may be new epochs, which lie apart."""
    n_steps = len(is_free)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_free, [False]]).astype(np.int8)))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        begin = next((step for step in may_change if step >= first), n_steps)
        end = n_steps if last == n_steps else max((step for step in may_change if step <= last), default=0)
        if begin + epoch_steps <= end or begin < end == n_steps:
            yield begin, end


def _free(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement], place: Placement) -> Bools:
    """Whether its slices are free in each step, ``(n_steps,)``."""
    free, ends = np.ones(facts.n_steps, dtype=np.bool_), [*(step for step, _ in held[1:]), facts.n_steps]
    for (begin, entries), end in zip(held, ends, strict=True):
        free[begin:end] = not any(place.memory_mask & other.memory_mask for other, _ in entries)
    for run, other in (*placed, *facts.running):
        if place.memory_mask & other.memory_mask:
            free[run.start_step : run.end_step] = False
    for begin, end, mask in facts.problem.unavailable_spans:
        if place.memory_mask & mask:
            free[begin:end] = False
    return free


def _capacity(facts: WindowFacts, held: Held) -> Floats:
    """Requests that what is held can serve of each tenant in each step, warm or not, ``(n_tenants, n_steps)``."""
    problem, out = facts.problem, np.zeros((len(facts.problem.tenants), facts.n_steps))
    ends = [*(step for step, _ in held[1:]), facts.n_steps]
    for (begin, entries), end in zip(held, ends, strict=True):
        for m, own in enumerate(problem.tenants):
            rates = problem.capability_rps(own)
            holder = problem.holder_of[m]
            out[m, begin:end] = problem.step_s * sum(rates[p.profile.name] for p, h in entries if h == holder)
    return out


def _with(held: Held, entry: Entry, begin: int, end: int, n_steps: int) -> Held:
    """The held sets with the entry from step to step."""
    known = dict(held)
    for at in {begin, end} - known.keys():
        known[at] = known[max(step for step, _ in held if step < at)]
    found = ((step, own | {entry} if begin <= step < end else own) for step, own in sorted(known.items()))
    return merged(tuple((step, own) for step, own in found if step < n_steps))
