"""What shares are expected to be worth to the window's end; the ways to retrain with which they are worth most.

Thefts are tried by the thousand, so what a moment says of its tenants is laid out in tables for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from executor.compiled import compiled
from planner.arrays import Bools, Floats, Int64s
from planner.policies.shares import QUANTA, Answer, Moment, Shares


class _Tables(NamedTuple):
    """A moment's tenants, n of them, and Q twentieths of the GPU.

    Attributes:
        rate_rps: Requests a second within the SLO by how many retrainings run, ``(n, n + 1, Q + 1)``.
        training_s: Seconds until the retraining ends, infinite where there is none, ``(n, Q + 1)``.
        weight: What a correct answer in time is worth, ``(n,)``.
        accuracy: Of the old model and of the new one, ``(n, 2)``.
        salvage: What they are worth beyond the window, ``(n, 2)``.
        mean_rps: Arrivals a second, ``(n,)``.
        is_due: Whether there is a retraining that has to end, ``(n,)``.
    """

    rate_rps: Floats
    training_s: Floats
    weight: Floats
    accuracy: Floats
    salvage: Floats
    mean_rps: Floats
    is_due: Bools


def expected_worths(moment: Moment, mean_rps: Sequence[float], held: Int64s) -> Floats:
    """Right answers in time to the window's end, weighted, and what the models are worth beyond it.

    With arrivals of ``mean_rps`` by tenant, for each of several shares as :func:`as_held` has them,
    ``(n_shares, n_tenants, 2) → (n_shares,)``. Shares of an ended retraining go to the first one that is due, has none,
    and ends with them, else back to the tenant. One that is due and does not end costs as much as all of the window may
    be worth. As published every retraining is taken to disturb the others to the end, run or not.
    """
    return _worths(_tables(moment, mean_rps), moment.left_s, held)


def expected_worth(moment: Moment, mean_rps: Sequence[float], shares: Shares) -> float:
    """What one division of the GPU is worth, as :func:`expected_worths` has it of several."""
    return float(expected_worths(moment, mean_rps, as_held(moment, shares)[None])[0])


def as_held(moment: Moment, shares: Shares) -> Int64s:
    """Twentieths of each tenant's inference and retraining, ``(n_tenants, 2)``."""
    return np.array([(shares[own.inference], shares.get(own.retraining, 0)) for own in moment.tenants], dtype=np.int64)


def _tables(moment: Moment, mean_rps: Sequence[float]) -> _Tables:
    tenants, n_most, published = moment.tenants, len(moment.tenants) + 1, moment.as_published
    never = [np.inf] * (QUANTA + 1)
    return _Tables(
        np.array(
            [[own.rate_rps if published else own.rate_while(n) for n in range(n_most)] for own in tenants], dtype=float
        ),
        np.array([[*map(own.training_s, range(QUANTA + 1))] if own.is_to_retrain else never for own in tenants]),
        np.array([own.weight for own in tenants], dtype=float),
        np.array([(own.accuracy_before, own.accuracy_after) for own in tenants], dtype=float),
        np.array([own.salvage for own in tenants], dtype=float),
        np.array(mean_rps, dtype=float),
        np.array([own.is_due and own.is_to_retrain for own in tenants]),
    )


@compiled
def _worths(tables: _Tables, left_s: float, held: Int64s) -> Floats:
    """What each of ``held`` is worth: quanta of inference and of retraining by tenant, ``(n_shares, n, 2)``."""
    found = np.empty(len(held))
    for number in range(len(held)):
        found[number] = _worth(tables, left_s, held[number])
    return found


@compiled
def _worth(tables: _Tables, left_s: float, held: Int64s) -> float:
    """What one of them is worth: from one end of a retraining to the next, and beyond the window."""
    n, begin_s, total = len(held), 0.0, 0.0
    serving, training, has_ended = held[:, 0].copy(), held[:, 1].copy(), np.zeros(n, np.bool_)
    end_s = np.array([tables.training_s[m, training[m]] for m in range(n)])
    waits = tables.is_due & np.isinf(end_s)
    running = np.flatnonzero(np.isfinite(end_s))  # in the order of their starts
    while begin_s < left_s:
        until_s = left_s
        for own_s in end_s[running]:
            until_s = min(until_s, own_s)
        for m in range(n):
            served_rps = min(tables.mean_rps[m], tables.rate_rps[m, len(running), serving[m]])
            total += tables.weight[m] * tables.accuracy[m, int(has_ended[m])] * served_rps * (until_s - begin_s)
        begin_s = until_s
        if begin_s == left_s:
            break
        ended, running = running[end_s[running] == begin_s], running[end_s[running] > begin_s]
        for m in ended:
            has_ended[m] = True
            follower = _follower(tables, waits, training[m], begin_s, left_s)
            if follower < 0:
                serving[m] += training[m]
                continue
            waits[follower], training[follower] = False, training[m]
            end_s[follower] = begin_s + tables.training_s[follower, training[m]]
            running = np.append(running, follower)
    return _with_models(tables, left_s, has_ended, total)


@compiled
def _follower(tables: _Tables, waits: Bools, quanta: int, begin_s: float, left_s: float) -> int:
    """The first tenant whose retraining waits and ends in the window if it gets these quanta now; −1: there is none."""
    for m in range(len(waits)):
        if waits[m] and begin_s + tables.training_s[m, quanta] < left_s:
            return m
    return -1


@compiled
def _with_models(tables: _Tables, left_s: float, has_ended: Bools, total: float) -> float:
    """The total and what models are worth beyond the window, less what it costs that some are due and not retrained."""
    n_missed, salvage, all_rps, most = 0, 0.0, 0.0, 0.0
    for m in range(len(has_ended)):
        n_missed += int(tables.is_due[m] and not has_ended[m])
        salvage += tables.salvage[m, int(has_ended[m])]
        all_rps += tables.weight[m] * tables.mean_rps[m]
        most += max(tables.salvage[m, 0], tables.salvage[m, 1])
    return total + salvage - n_missed * (1.0 + all_rps * left_s + most)


def best_answer(moment: Moment, shares: Callable[[Moment], Shares], mean_rps: Sequence[float]) -> Answer:
    """Of the ways to retrain, and of turns where they may be taken, those with which the shares are worth most.

    The shares are asked for anew for whatever is tried, and judged by :func:`expected_worth`. Other ways to retrain are
    tried tenant by tenant, as long as one is better. Ties go side by side, and to the first option.
    """
    choosing = [tenant for tenant in moment.tenants if len(tenant.options) > 1]
    may_take_turns = all(tenant.turns_rps is not None for tenant in moment.tenants)
    if not choosing and not may_take_turns:
        return Answer(shares(moment))

    def tried(options: Mapping[str, str], *, in_turns: bool) -> tuple[float, Answer]:
        settled = moment.if_settled(options, in_turns=in_turns)
        found = shares(settled)
        return expected_worth(settled, mean_rps, found), Answer(found, in_turns, options)

    best_worth, best = tried({}, in_turns=False)
    for in_turns in (False, True) if may_take_turns else (False,):
        worth, found = tried({}, in_turns=True) if in_turns else (best_worth, best)
        is_better = True
        while is_better:
            is_better = False
            for tenant in choosing:
                first = tenant.options[0].name
                for option in tenant.options:
                    if option.name == found.options.get(tenant.name, first):
                        continue
                    other_worth, other = tried({**found.options, tenant.name: option.name}, in_turns=in_turns)
                    if other_worth > worth + 1e-9 * abs(worth):
                        worth, found, is_better = other_worth, other, True
        if worth > best_worth + 1e-9 * abs(best_worth):
            best_worth, best = worth, found
    return best
