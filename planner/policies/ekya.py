"""``ekya``: the thief scheduler, which moves shares to the task that gains most over the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.arrays import Int64s
from planner.policies.policy import Batching, Knows, Traits
from planner.policies.shares import (
    QUANTA,
    Answer,
    Moment,
    SharePolicy,
    Shares,
    Switching,
    least_shares,
)
from planner.policies.worth import as_held, best_answer, expected_worth, expected_worths
from planner.problem import Owner, Task


@dataclass(frozen=True)
class Ekya(SharePolicy):
    """Divides processors for the best goodput of the window, anew when it begins and when a retraining ends.

    Source: Bhardwaj et al., "Ekya" (NSDI '22), as the MIGRator paper describes it (§5.1, §5.2: MPS; "adjusts SM
    allocations for both inference and retraining tasks at the start and end of retraining processes", aware of what
    retraining gains, not of how arrivals change). We do not have its text. Taken from it, from memory: the thief,
    which begins with equal shares and lets every task in turn steal a quantum from every other while the estimate for
    the window grows; micro-profiled accuracies, here the estimates that all policies get, and MPS.
    Knows: as published the mean arrivals of as many seconds as are left, just past; else the forecast's mean.
    Adaptations: the objective is goodput, not accuracy alone, so that requests that are not served count. Thefts are
    tried by the best gain, of one to four quanta. A retraining may be left without a share, and then the old model
    serves on; it knows what interference that saves (not as published). One that is due has to end in time; the thief
    begins with one retraining alone as well, for which others that are due wait. Where tenants have several ways to
    retrain, the thief goes through its round with other ones as long as that pays, and what models are worth beyond the
    window counts, as it does for our planner. As published processes restart with their new share, else new ones start
    beside the old. Not as published, the thief also divides the time of the whole GPU, where processes take turns and
    do not disturb each other, and what is worth more is taken; changing between the two starts all processes anew
    beside the old ones.
    """

    name: str = "ekya"
    knows: Knows = Knows.FORECAST
    traits: Traits = field(default=Traits(batching=Batching.GIVEN))
    switching: Switching = Switching.RESTART
    period_s: int | None = None

    def answer(self, moment: Moment) -> Answer:
        """What the thief ends with, for the ways to retrain and to share that are worth most."""
        return best_answer(moment, self.shares, _mean_rps(moment))

    def shares(self, moment: Moment) -> Shares:
        """What the thief ends with; the best of where it may begin."""
        mean_rps = _mean_rps(moment)
        ends = [_robbed(moment, mean_rps, held) for held in _starts(moment)]
        return max(ends, key=lambda end: end[0])[1]


def _robbed(moment: Moment, mean_rps: Sequence[float], shares: Shares) -> tuple[float, Shares]:
    """What is left when no theft is worth anything any more, and what that is worth."""
    held = as_held(moment, shares)
    place_of = {tenant.name: 2 * m for m, tenant in enumerate(moment.tenants)}
    tasks = np.array([place_of[owner.tenant] + (owner.task is Task.RETRAINING) for owner in shares])
    value = expected_worth(moment, mean_rps, shares)
    while len(thefts := _thefts(held, tasks)):
        worths = expected_worths(moment, mean_rps, thefts)
        best = int(worths.argmax())
        if worths[best] <= value + 1e-9 * abs(value):
            break
        value, held = float(worths[best]), thefts[best]
    return value, dict(zip(shares, held.ravel()[tasks].tolist(), strict=True))


def _mean_rps(moment: Moment) -> list[float]:
    """By tenant, the arrivals a second that it goes by."""
    known = moment.past_rps[-max(1, round(moment.left_s)) :] if moment.as_published else moment.ahead_rps
    mean_rps: list[float] = known.mean(axis=0).tolist()
    return mean_rps


def _starts(moment: Moment) -> list[dict[Owner, int]]:
    """Equal shares for all tasks; and one retraining alone, for which others wait. What is due has what ends it."""
    least = least_shares(moment)
    serving = {tenant.inference: 1 for tenant in moment.tenants}
    training = {tenant.retraining: tenant for tenant in moment.tenants if tenant.is_to_retrain}
    none, most = dict.fromkeys(training, 0), QUANTA - len(serving)
    alone = [
        none | _equal({**serving, owner: min(max(1, tenant.least_training(moment.left_s)), most)})
        for owner, tenant in training.items()
        if len(training) > 1
    ]
    return [_equal(least), *alone]


def _equal(least: Mapping[Owner, int]) -> dict[Owner, int]:
    """All quanta, as equal as the least that every task needs allows; of equal tasks the first have one more."""
    held = dict(least)
    for _ in range(QUANTA - sum(held.values())):
        held[min(held, key=held.__getitem__)] += 1
    return held


def _thefts(held: Int64s, tasks: Int64s) -> Int64s:
    """What is held after every theft of one to four quanta by one task from another; inference keeps one.

    Args:
        held: Before, ``(n_tenants, 2)``.
        tasks: The places in it of the tasks that may have a share, thieves and victims in this order.
    """
    thief, victim, quanta = (axis.ravel() for axis in np.meshgrid(tasks, tasks, np.arange(1, 5), indexing="ij"))
    may_be = (thief != victim) & (held.ravel()[victim] - quanta >= (victim + 1) % 2)
    n, thief, victim, quanta = int(may_be.sum()), thief[may_be], victim[may_be], quanta[may_be]
    after = np.tile(held.ravel(), (n, 1))
    after[np.arange(n), thief] += quanta
    after[np.arange(n), victim] -= quanta
    return after.reshape(n, *held.shape)
