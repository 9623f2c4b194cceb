"""Loans in a check: what a plan beside one layout may lend, and the most that any such plan could earn.

The bound is a longest path, forwards over steps and the levels of up to ``MOST_TOLD`` tenants. An edge is a step
without a loan, or a whole loan, from the start-up of its trainer to its end. All other tenants have in each step the
best level there is, and their best salvage. What taking weights over costs is left out but for what of it falls within
the tenant's own loan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from executor.mig import Multiset, Placement
from planner.arrays import Floats, Int64s, sums_before
from planner.levels import changes_until, levels_of, running_changes
from planner.plan import Certificate, Lifetime, Rule
from planner.problem import Problem, TenantTerms
from planner.verify.floors import with_floor
from planner.verify.holdings import continues, counts_of, gains_of, most_goodput, rounding
from planner.verify.verification import Violation

MOST_TOLD, MOST_STATES = 4, 256
"""Tenants whose levels are distinguished, and combinations of them."""


def loan_violations(problem: Problem, lifetimes: Sequence[Lifetime]) -> Iterator[Violation]:
    """What is lent is held, ready and spared by all; one loan at a time; beside a layout nothing else is made."""
    loans = sorted((item for item in lifetimes if item.lent), key=lambda item: (item.create_step, item.end_step))
    held = [item for item in lifetimes if item.is_inference]
    for item in held if problem.layout else ():
        was_there = item.create_step == 0 and (item.placement, item.owner) in problem.kept_at_start
        goes = was_there and item.end_step <= problem.opening.next_epoch_step
        if item.placement not in problem.layout and not goes:
            yield Violation(Rule.LOAN, f"{item.placement} is not of the layout", item.owner.tenant, item.create_step)
    if problem.layout:
        yield from _missing(problem, held)
    for item in lifetimes:
        if problem.layout and not item.is_inference and not item.lent:
            message = f"{item.placement} is not lent; beside a layout retrainings are"
            yield Violation(Rule.LOAN, message, item.owner.tenant)
        if item.lent and (item.is_inference or not problem.layout):
            message = f"{item.placement} is lent, which only a layout's is, to a retraining"
            yield Violation(Rule.LOAN, message, item.owner.tenant)
    ended = 0
    for item in loans if problem.layout else ():
        tenant = item.owner.tenant
        if item.create_step < ended:
            message = f"the loan of {item.placement} begins before the last one ends, at step {ended}"
            yield Violation(Rule.LOAN, message, tenant, item.create_step)
        ended = max(ended, item.end_step)
        hosts = [own for own in held if own.placement == item.placement and tenant in own.owner.members]
        if not any(own.create_step <= item.create_step and item.end_step <= own.end_step for own in hosts):
            message = f"{item.placement} is lent, and its tenant's pool does not hold it all the time"
            yield Violation(Rule.LOAN, message, tenant, item.create_step)
        first = _from(problem, held)
        if item.create_step < first and not continues(problem, item):
            message = f"the loan of {item.placement} begins before the layout serves all, at step {first}"
            yield Violation(Rule.LOAN, message, tenant, item.create_step)
        if not _is_spared(problem, item.placement) and not continues(problem, item):
            message = f"without {item.placement} a tenant has nothing as large as its min_profile"
            yield Violation(Rule.MIN_PROFILE, message, tenant, item.serve_step)


def _missing(problem: Problem, held: Sequence[Lifetime]) -> Iterator[Violation]:
    """What of the layout is not held from when it can be to the window's end."""
    first = problem.opening.next_epoch_step if problem.initial is not None else 0
    opening = {own.placement for own in problem.opening.held}
    for placement in problem.layout:
        since = 0 if placement in opening else first
        own = [item for item in held if item.placement == placement and item.end_step == problem.n_steps]
        if since < problem.n_steps and not any(item.create_step <= since for item in own):
            message = f"{placement} of the layout is not held from step {since} to the end"
            yield Violation(Rule.LOAN, message, None, since)


def _is_spared(problem: Problem, placement: Placement) -> bool:
    left = [other.profile for other in problem.layout if other != placement]
    needs = [problem.gpu.profile(tenant.min_profile) for tenant in problem.tenants]
    return all(any(profile.is_at_least(need) for profile in left) for need in needs)


def _from(problem: Problem, held: Sequence[Lifetime]) -> int:
    """The first step in which all of the layout serves all tenants, nothing else is there, and no loan is left."""
    steps = [run.end_step for run in problem.opening.retrainings]
    for item in held:
        steps += [item.serve_step] if item.placement in problem.layout else [item.end_step]
        if item.create_step == 0:
            steps += [problem.joins_at(item.placement, tenant) for tenant in problem.tenants]
    return max(steps, default=0)


def lent_bound(problem: Problem, certificate: Certificate) -> float:
    """No plan beside the problem's layout earns more under its floors, by the certificate's multipliers."""
    layout, opening = problem.layout, problem.opening
    spared = [place for place in layout if _is_spared(problem, place)]
    # Each of the layout counts as serving all from the beginning, unless less is known to be there at first.
    whole = counts_of(problem, [place.profile.name for place in layout])
    multisets = [whole]
    for place in (*spared, *(run.placement for run in opening.retrainings)):
        multisets += [counts_of(problem, [own.profile.name for own in layout if own != place])]
    column = {place: 1 + number for number, place in enumerate(spared)}
    running = [(1 + len(spared) + number, run) for number, run in enumerate(opening.retrainings)]
    gains, asked, size = list[Floats](), 0.0, most_goodput(problem)
    early = [_early(problem, tenant) for tenant in problem.tenants]
    first = max([0, *(run.end_step for run in opening.retrainings), *map(len, early)])
    for m in range(len(problem.tenants)):
        every = list(dict.fromkeys([*multisets, *early[m]]))
        own, _, owed, more = with_floor(problem, m, every, certificate, gains_of(problem, m, every))
        asked, size = asked + owed, size + more
        table = own[:, :, [every.index(one) for one in multisets]].copy()
        for s, one in enumerate(early[m]):
            table[:, s, :] = own[:, s, [every.index(one)]]
        gains.append(table)
    for number, run in running:
        for own in gains:
            own[:, run.lent_from or 0 : run.end_step, 0] = own[:, run.lent_from or 0 : run.end_step, number]
    return _longest(problem, gains, column, first) - asked + rounding(problem, size)


def _early(problem: Problem, tenant: TenantTerms) -> list[Multiset]:
    """What serves the tenant in each of the first steps, until all of the layout does; nothing if it does at once."""
    state, own = problem.opening, list[Multiset]()
    if problem.initial is None:
        return own
    stands = {item.placement: max(item.serve_step, problem.joins_at(item.placement, tenant)) for item in state.held}
    since = {
        place: stands.get(place, state.next_epoch_step + problem.warm_up_steps(tenant)) for place in problem.layout
    }
    until = dict.fromkeys(stands.keys() - since.keys(), state.next_epoch_step)
    for s in range(min(problem.n_steps, max([*since.values(), *until.values()]))):
        serving = [place for place, step in since.items() if step <= s]
        serving += [place for place, step in until.items() if stands[place] <= s < step]
        own.append(counts_of(problem, [place.profile.name for place in serving]))
    return own


def _told(problem: Problem, gains: Sequence[Floats]) -> list[int]:
    """The tenants whose levels are distinguished: first those that must retrain, then those with most to gain."""
    running, told, n_states = {run.tenant for run in problem.opening.retrainings}, list[int](), 1

    def rank(m: int) -> tuple[bool, float, int]:
        own = problem.tenants[m]
        rises = gains[m][1 : 1 + len(own.options), :, 0].sum(axis=1) - gains[m][0, :, 0].sum()
        return not own.must_retrain, -float((rises + np.array(own.salvages[1:]) - own.salvages[0]).max()), m

    for m in sorted((m for m, own in enumerate(problem.tenants) if own.options and own.name not in running), key=rank):
        n_more = 1 + len(problem.tenants[m].options)
        if len(told) < MOST_TOLD and n_states * n_more <= MOST_STATES:
            told.append(m)
            n_states *= n_more
    return told


def _others(problem: Problem, gains: Sequence[Floats], told: Sequence[int]) -> tuple[Floats, float]:
    """What all but those told apart earn at most, ``(n_steps, n_multisets)``, and what they are worth at the end."""
    running = {run.tenant: run for run in problem.opening.retrainings}
    others, beyond = np.zeros(gains[0].shape[1:]), 0.0
    for m, tenant in enumerate(problem.tenants):
        if m in told:
            continue
        if (run := running.get(tenant.name)) is not None:
            changes = running_changes(problem, tenant, run.placement.profile.name, run.end_step)
            others += gains[m][levels_of(changes, problem.n_steps), np.arange(problem.n_steps)]
            beyond += tenant.salvages[1]
        else:
            others += gains[m].max(axis=0)
            beyond += max(tenant.salvages)
    return others, beyond


def _longest(problem: Problem, gains: Sequence[Floats], column: Mapping[Placement, int], first: int) -> float:
    """The longest path; ``gains`` are ``(n_levels, n_steps, n_multisets)``, the whole layout's first."""
    n, tenants = problem.n_steps, problem.tenants
    told = _told(problem, gains)
    others, beyond = _others(problem, gains, told)
    rows = [*product(*(range(1 + len(tenants[m].options)) for m in told))]
    by_row = [
        sum((gains[m][_ended(problem, m, level)] for m, level in zip(told, row, strict=True)), others) for row in rows
    ]
    before = sums_before(np.stack(by_row), axis=1)
    edges = []
    for at, m in enumerate(told):
        mine, sources = sums_before(gains[m][0], axis=0), [i for i, row in enumerate(rows) if row[at] == 0]
        rest = before[sources] - mine
        for level, k, n_warming, n_held, own in _edges(problem, m, gains[m], column, first):
            targets = [rows.index((*rows[i][:at], level, *rows[i][at + 1 :])) for i in sources]
            edges.append((k, n_warming, n_held, own, rest, sources, targets))
    value = np.full((n + 1, len(rows)), -np.inf)
    value[0, 0] = 0.0
    for s in range(n):
        value[s + 1] = np.maximum(value[s + 1], value[s] + before[:, s + 1, 0] - before[:, s, 0])
        for k, n_warming, n_held, own, rest, sources, targets in edges:
            serve, end = s + n_warming, s + n_held
            if s < first or end > n:
                continue
            theirs = rest[:, serve, 0] - rest[:, s, 0] + rest[:, end, k] - rest[:, serve, k]
            value[end, targets] = np.maximum(value[end, targets], value[s, sources] + theirs + own[s])
    ends = [
        value[n, i] + sum(tenants[m].salvages[level] for m, level in zip(told, row, strict=True))
        for i, row in enumerate(rows)
        if all(level or not tenants[m].must_retrain for m, level in zip(told, row, strict=True))
    ]
    return float(max(ends) + beyond)


def _ended(problem: Problem, m: int, level: int) -> int:
    """The level of accuracies after a retraining to ``level``: that of its last checkpoint where that is better."""
    tenant = problem.tenants[m]
    if level == 0:
        return 0
    kept = tenant.kept_checkpoints(level)
    return kept[-1][0] if kept and kept[-1][1].accuracy >= tenant.options[level - 1].accuracy_after else level


_Edge = tuple[int, int, int, int, Floats]
"""A loan's level, multiset, steps of start-up and in all, and what the tenant earns meanwhile by start."""


def _edges(problem: Problem, m: int, gains: Floats, column: Mapping[Placement, int], first: int) -> Iterator[_Edge]:
    tenant, n = problem.tenants[m], problem.n_steps
    n_warming, seen = problem.retraining_warm_up_steps(tenant), set[tuple[int, str]]()
    for place, k in column.items():
        name = place.profile.name
        for level, option in enumerate(tenant.options, start=1):
            if name not in option.time_s or (level, name) in seen:
                continue
            seen.add((level, name))
            n_held = problem.occupied_steps(tenant, option, name)
            own = np.zeros(n + 1)
            for s in range(first, n - n_held + 1):
                levels: Int64s = levels_of(changes_until(problem, tenant, level, name, s + n_held), n)
                at, lent = np.arange(s, s + n_warming), np.arange(s + n_warming, s + n_held)
                own[s] = gains[levels[at], at, 0].sum() + gains[levels[lent], lent, k].sum()
            yield level, k, n_warming, n_held, own
