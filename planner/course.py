"""What a plan means for each tenant, step by step: what it holds, what serves, and what that is expected to earn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Floats, Int64s
from planner.counts import codes_of, multiset_of
from planner.gains import gain_tables
from planner.levels import LevelChange, changes_by, levels_of, lowered, shares_of, swap_shares
from planner.plan import ANYWHERE, Lifetime, MigPlan
from planner.problem import GainTable, PaperState, Problem, Reconfiguration, TenantTerms
from planner.verify.holdings import lifetimes_of

Holding = tuple[tuple[Placement, int], ...]
"""All that inference holds, with whose place in ``Problem.partition``, sorted; in ``paper`` it is ``ANYWHERE``."""


@dataclass(frozen=True, eq=False)
class Course:
    """One tenant's window under a plan; what is by step has shape ``(n_steps,)``.

    Attributes:
        problem: The problem.
        tenant: The tenant.
        table: Its gain table.
        lifetimes: All that it holds.
        loans: What its pool lends meanwhile, to whomever.
    """

    problem: Problem
    tenant: TenantTerms
    table: GainTable
    lifetimes: Sequence[Lifetime]
    loans: Sequence[Lifetime] = ()

    @property
    def retraining(self) -> Lifetime | None:
        """Its retraining; ``None`` if it has none in the window."""
        return next((item for item in self.lifetimes if not item.is_inference), None)

    @cached_property
    def held(self) -> Int64s:
        """Instances that inference holds, ``(n_steps, n_profiles)``, by ``Problem.profile_names``."""
        return self._counts((item, item.create_step) for item in self.lifetimes)

    @cached_property
    def serving(self) -> Int64s:
        """Those of them that serve it, ``(n_steps, n_profiles)``; fewer while some warm up."""
        joins_at = self.problem.joins_at
        counts = self._counts(
            (item, max(item.serve_step, 0 if item.create_step else joins_at(item.placement, self.tenant)))
            for item in self.lifetimes
        )
        for item in self.loans:
            counts[item.serve_step : item.end_step, self.problem.profile_names.index(item.placement.profile.name)] -= 1
        return np.maximum(counts, 0)

    @cached_property
    def has_changed(self) -> Bools:
        """``paper``: whether the step pays for a change of what is held."""
        if self.problem.reconfiguration is not Reconfiguration.PAPER:
            return np.zeros(self.problem.n_steps, dtype=np.bool_)
        state, before = self.problem.paper_initial, self.held[0]
        if state is not None:
            before = np.array(multiset_of(self.problem, state.held.get(self.tenant.name, ())))
        return np.asarray((np.diff(self.held, axis=0, prepend=before[None, :]) != 0).any(axis=1), dtype=np.bool_)

    @cached_property
    def level(self) -> Int64s:
        """That of ``TenantTerms.accuracies``: 0 until a checkpoint is served or the retraining has ended."""
        return levels_of(self._level_changes, self.problem.n_steps)

    @cached_property
    def swap_share(self) -> Floats:
        """What taking new weights over leaves of each step's gains."""
        return shares_of(self._level_changes, swap_shares(self.problem, self.tenant), self.problem.n_steps)

    @cached_property
    def capability_rps(self) -> Floats:
        """Requests a second that what serves can answer in time; what a change leaves of it, at least 0."""
        lost = self.tenant.overhead_s / self.problem.step_s / np.maximum(1, self.serving.sum(axis=1))
        capability: Floats = self.serving @ self.problem.rates_rps(self.tenant)
        return np.where(self.has_changed, np.maximum(0.0, 1.0 - lost), 1.0) * capability

    @cached_property
    def goodput(self) -> Floats:
        """Expected goodput in requests, weight included."""
        return lowered(self._of_step(self.table.steady, self.table.changed, self.level), self.swap_share)

    @cached_property
    def in_time(self) -> Floats | None:
        """Requests that are expected to be answered in time; ``None`` where the problem's gain tables do not say."""
        table = self.table
        return None if table.in_time is None else self._of_step(table.in_time, table.in_time_changed)

    @property
    def share(self) -> float | None:
        """Expected goodput over what it would be if every answer were in time and right; ``None`` without arrivals."""
        most = self.tenant.weight * float(self.tenant.arrivals_rps.sum()) * self.problem.step_s
        return float(self.goodput.sum()) / most if most > 0 else None

    def earned(self, gains: Floats, steps: slice) -> Floats:
        """What each column of a gain table earns at the plan's levels: ``(n_levels, n_steps, n) → (n_of_steps, n)``."""
        at = np.arange(len(self.level))[steps]
        return lowered(gains[self.level[at], at], self.swap_share[at, None])

    @property
    def _level_changes(self) -> tuple[LevelChange, ...]:
        return () if self.retraining is None else changes_by(self.problem, self.tenant, self.retraining)

    def _counts(self, since: Iterable[tuple[Lifetime, int]]) -> Int64s:
        counts = np.zeros((self.problem.n_steps, len(self.problem.profile_names)), dtype=np.int64)
        for item, step in since:
            if item.is_inference:
                counts[step : item.end_step, self.problem.profile_names.index(item.placement.profile.name)] += 1
        return counts

    def _of_step(self, settled: Floats, changed: Floats | None, *levels: Int64s) -> Floats:
        """The gain table's entry for what serves in each step."""
        at = (*levels, np.arange(self.problem.n_steps), column_of(self.problem, self.table, self.serving))
        values: Floats = settled[at]
        return values if changed is None else np.where(self.has_changed, changed[at], values)


def courses(problem: Problem, plan: MigPlan) -> tuple[Course, ...]:
    """One course a tenant, in the problem's order; their goodput adds up to the plan's objective.

    The plan must be one that answers ``problem`` and keeps its rules.
    """
    lifetimes, tables = tuple(lifetimes_of(problem, plan)), gain_tables(problem)
    loans = [item for item in lifetimes if item.lent]
    return tuple(
        Course(problem, tenant, table, [item for item in lifetimes if tenant.name in item.owner.members], loans)
        for tenant, table in zip(problem.tenants, tables, strict=True)
    )


def column_of(problem: Problem, table: GainTable, counts: Int64s) -> Int64s:
    """The table's column of each row of counts over ``problem.profile_names``: ``(n, n_profiles) → (n,)``."""
    rows = counts.reshape(-1, len(problem.profile_names))
    _, first, inverse = np.unique(codes_of(rows), return_index=True, return_inverse=True)
    columns = [table.column[tuple(row)] for row in rows[first].tolist()]
    return np.array(columns, dtype=np.int64)[inverse.reshape(-1)]


def opening_columns(problem: Problem, tenant: TenantTerms, table: GainTable, n_steps: int) -> Int64s:
    """The table's column of what serves the tenant in each of the first steps, while the initial set is held."""
    names, rates = problem.profile_names, problem.capability_rps(tenant)
    counts = np.zeros((n_steps, len(names)), dtype=np.int64)
    for (place, owner), item in problem.kept_at_start.items():
        if tenant.name in item.members and tenant.name in owner.members and place.profile.name in rates:
            counts[item.serve_step :, names.index(place.profile.name)] += 1
    return column_of(problem, table, counts)


def held_by_step(problem: Problem, lifetimes: Iterable[Lifetime]) -> Iterator[tuple[int, Holding]]:
    """(step, what inference holds from there on); begins with the initial state's where there is one."""
    holder, state, last = dict(zip(problem.tenant_names, problem.holder_of, strict=True)), problem.initial, None
    held = [(item, holder[item.owner.tenant]) for item in lifetimes if item.is_inference]
    if state is not None:
        opening = [(placement, holder[owner.tenant]) for placement, owner in problem.kept_at_start]
        for name, profiles in state.held.items() if isinstance(state, PaperState) else ():
            opening += [(Placement(problem.gpu.profile(profile), ANYWHERE), holder[name]) for profile in profiles]
        last = in_order(opening)
        yield 0, last
    edges = {edge for item, _ in held for edge in (item.create_step, item.end_step) if edge < problem.n_steps}
    for step in sorted({0, *edges}):
        now = in_order((item.placement, m) for item, m in held if item.create_step <= step < item.end_step)
        if now != last:
            yield step, now
        last = now


def in_order(held: Iterable[tuple[Placement, int]]) -> Holding:
    """What is held, by placement, then holder."""
    return tuple(sorted(held, key=lambda entry: (*entry[0].sort_key, entry[1])))
