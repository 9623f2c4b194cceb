"""Gain tables in problem files: what each multiset of profiles is expected to answer in time, step by step.

Goodput follows from it, weight · accuracy · in time, so a table is once in the file and not once for each
level. What is written is read back bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from executor.mig import Multiset
from planner.arrays import Floats
from planner.counts import multiset_of, profiles_of
from planner.errors import ProblemError
from planner.files.strict import Number, StrictModel, given
from planner.gains import gain_tables, make_monotone, table_of, worth_of
from planner.problem import MOST_NUMBER, GainTable, Problem, Reconfiguration

ROUNDING = 1e-9
"""Share by which a table may miss what it has to keep; of requests below one."""


_Requests = Annotated[Number, Field(ge=0, le=MOST_NUMBER)]


class GainEntry(StrictModel):
    """``tenants.gains`` of a problem file."""

    multisets: list[list[str]]
    in_time: list[list[_Requests]]
    in_time_changed: list[list[Annotated[Number, Field(ge=-MOST_NUMBER, le=MOST_NUMBER)]]] | None = None
    arrived: list[_Requests] | None = None


def gains_to_json(problem: Problem, index: int) -> dict[str, object]:
    """The gain table of a tenant, which :func:`gains_of` reads back.

    Raises:
        ProblemError: It is not of the form weight · accuracy · in time, which is the only one that files know.
    """
    assert problem.gains is not None
    tenant, table = problem.tenants[index], problem.gains[index]
    lacks_changed = problem.reconfiguration is Reconfiguration.PAPER and table.in_time_changed is None
    if lacks_changed or table.in_time is None or not np.array_equal(table.steady, worth_of(tenant) * table.in_time):
        raise ProblemError(f"tenants.{tenant.name}: gains are not weight · accuracy · in_time; no file can hold them")
    return given(
        multisets=[list(profiles_of(problem, multiset)) for multiset in table.multisets],
        in_time=table.in_time.tolist(),
        in_time_changed=None if table.in_time_changed is None else table.in_time_changed.tolist(),
        arrived=None if table.arrived is None else table.arrived.tolist(),
    )


def gains_of(problem: Problem, entries: Sequence[GainEntry | None]) -> tuple[GainTable, ...] | None:
    """The gain tables in a file for the problem's tenants; ``None`` without any.

    Raises:
        ProblemError: Only some tenants have one, or one does not fit the problem; names the key.
    """
    tabled = [entry for entry in entries if entry is not None]
    if not tabled:
        return None
    if len(tabled) < len(entries):
        raise ProblemError(f"tenants[{entries.index(None)}].gains is missing; all tenants have one, or none has")
    tables = tuple(_table(problem, index, entry) for index, entry in enumerate(tabled))
    gain_tables(replace(problem, gains=tables))  # refuses what no engine could plan with
    return tables


def _table(problem: Problem, index: int, entry: GainEntry) -> GainTable:
    where, is_paper = f"tenants[{index}].gains", problem.reconfiguration is Reconfiguration.PAPER
    if is_paper != (entry.in_time_changed is not None):
        needed = "is missing; a paper problem needs it" if is_paper else "is given; only paper problems have one"
        raise ProblemError(f"{where}.in_time_changed {needed}")
    multisets = _multisets(problem, entry.multisets, f"{where}.multisets")
    steps, columns = ("n_steps is", problem.n_steps), ("multisets has", len(multisets))
    in_time = _array(f"{where}.in_time", entry.in_time, steps, columns)
    if _is_above(make_monotone(multisets, in_time), in_time):
        raise ProblemError(f"{where}.in_time is lower for a multiset than for a part of it")
    changed = None
    if entry.in_time_changed is not None:
        changed = _array(f"{where}.in_time_changed", entry.in_time_changed, steps, columns)
        if _is_above(changed, in_time):
            raise ProblemError(f"{where}.in_time_changed is above in_time; a change serves no more")
    arrived = None if entry.arrived is None else _array(f"{where}.arrived", entry.arrived, steps)
    limits = problem.tenants[index].arrivals_rps * problem.step_s if arrived is None else arrived
    if _is_above(in_time, limits[:, None]):
        raise ProblemError(f"{where}.in_time is above what arrives in a step")
    return table_of(problem.tenants[index], multisets, in_time, changed, arrived)


def _is_above(values: Floats, limits: Floats) -> bool:
    """Whether a value is above its limit by more than rounding, which sums in another order leave in what we write."""
    return bool((values > limits + ROUNDING * np.maximum(1.0, np.abs(limits))).any())


def _multisets(problem: Problem, rows: Sequence[Sequence[str]], where: str) -> tuple[Multiset, ...]:
    for index, names in enumerate(rows):
        for name in names:
            if name not in problem.profile_names:
                allowed = ", ".join(problem.profile_names)
                raise ProblemError(f"{where}[{index}] names {name!r}; the problem's profiles are {allowed}")
    multisets = tuple(multiset_of(problem, names) for names in rows)
    if not multisets or any(multisets[0]):
        raise ProblemError(f"{where}[0] has to be the empty multiset, []")
    for index, multiset in enumerate(multisets):
        if multiset in multisets[:index]:
            raise ProblemError(f"{where}[{index}] is {list(rows[index])}, which is given twice")
    return multisets


def _array(where: str, values: Sequence[Any], *lengths: tuple[str, int]) -> Floats:
    """The numbers as an array of these lengths, each with what is as long."""
    (name, length), *inner = lengths
    if len(values) != length:
        raise ProblemError(f"{where} has {len(values)} entries; {name} {length}")
    for index, row in enumerate(values if inner else ()):
        _array(f"{where}[{index}]", row, *inner)
    return np.array(values, dtype=np.float64)
