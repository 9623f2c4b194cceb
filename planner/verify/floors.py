"""Floors of in-time answers in a check: what a plan promises each tenant, and what a certificate makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from executor.mig import Multiset
from planner.arrays import Floats
from planner.plan import AnyCertificate, Lifetime, Rule
from planner.problem import FLOOR_TOLERANCE, Per, Problem, Reconfiguration
from planner.verify.holdings import counts_at_start, served_of, serving
from planner.verify.verification import Violation

TOLERANCE = 1e-9
"""Share of what arrives by which a floor may be missed beside ``FLOOR_TOLERANCE``: sums in another order."""


def floor_violations(problem: Problem, lifetimes: Sequence[Lifetime]) -> Iterator[Violation]:
    """Every floor that what is held misses, with tenant, step and share."""
    for m, tenant in enumerate(problem.tenants):
        floor = tenant.min_slo_attainment
        if floor is None:
            continue
        served, arrived = _served(problem, m, lifetimes), _arrived(problem, m)
        if floor.per is Per.WINDOW:
            asked, got = asked_of_window(problem, m), float(served.sum())
            if not got >= asked - _slack(asked):
                due = f" with {floor.due:+,.6g} requests due from before" if floor.due else ""
                share = _percent(got, float(arrived.sum()))
                message = f"{share} of its requests are in time; {100 * floor.share:.6g} % is the floor{due}"
                yield Violation(Rule.FLOOR, message, tenant.name)
            continue
        short = ~(served >= _least(problem, m) - TOLERANCE * arrived)
        for step in np.flatnonzero(short & ~np.insert(short, 0, False)[:-1]).tolist():
            share = _percent(float(served[step]), float(arrived[step]))
            message = f"{share} of its requests are in time; {100 * floor.share:.6g} % is the floor of each step"
            yield Violation(Rule.FLOOR, message, tenant.name, step)


def _slack(asked: float) -> float:
    return (FLOOR_TOLERANCE + TOLERANCE) * max(1.0, abs(asked))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.6g} %" if whole > 0 else f"{part:,.6g}"


def asked_of_window(problem: Problem, m: int) -> float:
    """Requests in time that tenant m's floor per window asks for."""
    floor = problem.tenants[m].min_slo_attainment
    assert floor is not None
    return floor.share * float(_arrived(problem, m).sum()) + floor.due


def _arrived(problem: Problem, m: int) -> Floats:
    given = None if problem.gains is None else problem.gains[m].arrived
    return problem.tenants[m].arrivals_rps * problem.step_s if given is None else given


def _in_time(problem: Problem, m: int, multisets: Sequence[Multiset]) -> tuple[Floats, Floats]:
    """T, settled and just changed, ``(n_steps, n_multisets)`` each; NaN where the problem's tables have none."""
    settled, just_changed = served_of(problem, m, multisets)
    if problem.gains is None:
        return settled, just_changed
    table = problem.gains[m]
    if table.in_time is None:
        return np.full_like(settled, np.nan), np.full_like(settled, np.nan)
    columns = [table.column.get(multiset, -1) for multiset in multisets]
    settled = table.in_time[:, columns] + np.where(np.array(columns) < 0, np.nan, 0.0)
    if problem.reconfiguration is not Reconfiguration.PAPER:
        return settled, settled
    # A table of a `paper` problem may leave to the overhead what a changed step is worth.
    owed = just_changed if table.in_time_changed is None else table.in_time_changed[:, columns]
    return settled, np.minimum(settled, owed)


def _served(problem: Problem, m: int, lifetimes: Sequence[Lifetime]) -> Floats:
    """T of what is held, step by step."""
    multisets, kind, has_changed = serving(problem, m, lifetimes)
    settled, just_changed = _in_time(problem, m, multisets)
    at = (np.arange(problem.n_steps), kind)
    return np.where(has_changed, just_changed[at], settled[at])


def _least(problem: Problem, m: int) -> Floats:
    """T that a floor per step asks for in each step; −inf where no decision could give it.

    That is before anything new can serve, unless what was held when the window opened would do.
    """
    tenant, state = problem.tenants[m], problem.opening
    floor = tenant.min_slo_attainment
    assert floor is not None
    least = floor.share * _arrived(problem, m) - FLOOR_TOLERANCE
    if problem.physical_initial is not None:
        steps = range(min(problem.n_steps, state.next_epoch_step + problem.warm_up_steps(tenant)))
        found = [counts_at_start(problem, tenant, step) or () for step in steps]
        multisets = sorted(set(found))
        settled, _ = _in_time(problem, m, multisets)
        would_do = [settled[step, multisets.index(found[step])] >= least[step] for step in steps]
        least[: len(steps)] = np.where(would_do, least[: len(steps)], -np.inf)
    return np.asarray(least, dtype=np.float64)


def with_floor(
    problem: Problem,
    m: int,
    multisets: Sequence[Multiset],
    certificate: AnyCertificate,
    gains: tuple[Floats, Floats],
) -> tuple[Floats, Floats, float, float]:
    """Gains under tenant m's floor, what its multiplier takes off the bound, and how large the numbers get.

    Per step, what is below the floor loses more than all goodput: a plan that keeps it pays nothing, so no bound gets
    too low by it. Per window, requests in time are worth the certificate's multiplier.
    """
    floor = problem.tenants[m].min_slo_attainment
    if floor is None:
        return *gains, 0.0, 0.0
    settled, just_changed = gains
    in_time, in_time_changed = _in_time(problem, m, multisets)
    if floor.per is Per.STEP:
        penalty = 1.0 + 2.0 * problem.most_goodput
        least = (_least(problem, m) - TOLERANCE * _arrived(problem, m))[:, None]
        lowered = (settled - penalty * (in_time < least), just_changed - penalty * (in_time_changed < least))
        return *lowered, 0.0, problem.n_steps * penalty
    multiplier = dict(certificate.multipliers).get(problem.tenants[m].name, 0.0)
    asked = asked_of_window(problem, m)
    asked = multiplier * (asked - _slack(asked))
    size = abs(asked) + multiplier * float(_arrived(problem, m).sum())
    if not multiplier:
        return *gains, 0.0, 0.0
    return settled + multiplier * in_time, just_changed + multiplier * in_time_changed, asked, size
