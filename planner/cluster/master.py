"""The best assignment of sets that were valued: a set-packing program over all of them, and one that places tenants.

Variables say which set is on which group of like GPUs. Where sets are worth more on a GPU of the group, as tenants that
are there already need not move, the set has a variable of its own for that GPU. HiGHS runs with one thread and a fixed
seed, so that a program has the same answer every time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import highspy
import numpy as np

from planner.arrays import Bools, Floats
from planner.cluster.fleet import Fleet, TenantSet
from planner.highs import SilentHighs
from planner.partition import Members

MOST_NODES = 2_000
"""Nodes of HiGHS's search; seldom more than one is needed."""


class _Program:
    """Binary variables, and rows that say how many of them may be chosen."""

    def __init__(self) -> None:
        self._weights: list[float] = []
        self._rows: defaultdict[object, dict[int, float]] = defaultdict(dict)
        self._sides: dict[object, tuple[float, float]] = {}

    def add(self, weight: float, in_rows: Mapping[object, float]) -> None:
        """One more variable, and how often each row counts it."""
        for row, times in in_rows.items():
            self._rows[row][len(self._weights)] = times
        self._weights.append(weight)

    def limit(self, row: object, most: float, least: float = -math.inf) -> None:
        """How much a row may count; a row without limits counts for nothing."""
        self._sides[row] = least, most

    def chosen(self) -> Bools | None:
        """The variables of the choice that weighs most; ``None`` where none was found."""
        rows = [(own, *self._sides[row]) for row, own in self._rows.items() if row in self._sides]
        model, n = highspy.HighsLp(), len(self._weights)
        scale = max(1.0, *map(abs, self._weights))
        model.num_col_, model.num_row_, model.sense_ = n, len(rows), highspy.ObjSense.kMaximize
        model.col_cost_, model.integrality_ = np.array(self._weights) / scale, [highspy.HighsVarType.kInteger] * n
        model.col_lower_, model.col_upper_ = np.zeros(n), np.ones(n)
        model.row_lower_, model.row_upper_ = (np.array([row[side] for row in rows]) for side in (1, 2))
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.cumsum([0, *(len(own) for own, _, _ in rows)])
        model.a_matrix_.index_ = np.array([k for own, _, _ in rows for k in own], dtype=np.int32)
        model.a_matrix_.value_ = np.array([times for own, _, _ in rows for times in own.values()])
        solver = SilentHighs()
        options = {"threads": 1, "random_seed": 0, "mip_rel_gap": 0.0, "mip_max_nodes": MOST_NODES}
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.passModel(model)
        solver.run()
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        taken: Bools = np.array(solver.getSolution().col_value) > 0.5
        return taken


def best_of_sets(
    fleet: Fleet, worths: Mapping[TenantSet, float], stays: Floats, n_placed: int
) -> tuple[Members, ...] | None:
    """Each GPU's tenants, of the known sets those that are worth most together and place ``n_placed`` tenants or more.

    ``stays`` is what a tenant adds on a GPU, ``(n_gpus, n_tenants)``. ``None`` where the program was not solved.
    """
    program, columns = _Program(), list[tuple[int, int | None, Members]]()
    for number, group in enumerate(fleet.alike):
        program.limit(("group", number), len(group))
        for known, worth in worths.items():
            members = known.members
            if fleet.gpus[group[0]].gpu_class != known.gpu_class or not fleet.may_hold(group[0], members):
                continue
            bonus = stays[list(group)][:, list(members)].sum(axis=1)
            for g in (None, *(g for g, more in zip(group, bonus, strict=True) if more > 0)):
                program.add(
                    worth + (0.0 if g is None else float(bonus[group.index(g)])),
                    {
                        ("group", number): 1.0,
                        "placed": float(len(members)),
                        **({} if g is None else {("gpu", g): 1.0}),
                        **{("tenant", i): 1.0 for i in members},
                        **_by_node(fleet, group[0], members),
                    },
                )
                columns.append((number, g, members))
    for i in range(len(fleet.tenants)):
        program.limit(("tenant", i), 1.0)
    for g in range(len(fleet.gpus)):
        program.limit(("gpu", g), 1.0)
    program.limit("placed", math.inf, n_placed)
    _limit_nodes(fleet, program)
    taken = program.chosen() if columns else None
    return None if taken is None else _on_gpus(fleet, [own for own, is_in in zip(columns, taken, strict=True) if is_in])


def most_placed(fleet: Fleet) -> tuple[Members, ...]:
    """Each GPU's tenants, as many as rules allow, whatever they are worth."""
    program, columns = _Program(), list[tuple[int, int]]()
    for g, gpu in enumerate(fleet.gpus):
        program.limit(("gpu", g), fleet.classes[gpu.gpu_class].most_tenants)
        for i in np.flatnonzero(fleet.may_go[g]).tolist():
            rows: dict[object, float] = {("gpu", g): 1.0, ("tenant", i): 1.0, **_by_node(fleet, g, (i,))}
            rows |= {("apart", k, g): 1.0 for k, (own, _, _) in enumerate(fleet.limits) if i in own}
            program.add(1.0, rows)
            columns.append((g, i))
        for k, (_, _, most) in enumerate(fleet.limits):
            program.limit(("apart", k, g), most)
    for i in range(len(fleet.tenants)):
        program.limit(("tenant", i), 1.0)
    _limit_nodes(fleet, program)
    taken = program.chosen() if columns else None
    chosen = [] if taken is None else [own for own, is_in in zip(columns, taken, strict=True) if is_in]
    return tuple(tuple(sorted(i for at, i in chosen if at == g)) for g in range(len(fleet.gpus)))


def _by_node(fleet: Fleet, gpu: int, members: Members) -> dict[object, float]:
    """The rows of limits by node that count these tenants on that GPU's node."""
    node = int(fleet.nodes[gpu])
    counts = {k: len(own.intersection(members)) for k, (own, per_node, _) in enumerate(fleet.limits) if per_node}
    return {("node", k, node): float(n) for k, n in counts.items() if n}


def _limit_nodes(fleet: Fleet, program: _Program) -> None:
    for k, (_, per_node, most) in enumerate(fleet.limits):
        for node in set(fleet.nodes.tolist()) if per_node else ():
            program.limit(("node", k, node), most)


def _on_gpus(fleet: Fleet, chosen: Sequence[tuple[int, int | None, Members]]) -> tuple[Members, ...]:
    """Each GPU's tenants: sets chosen for a GPU there, the others of a group on those of its GPUs that are left."""
    sets: dict[int, Members] = {g: members for _, g, members in chosen if g is not None}
    for number, g, members in sorted(chosen, key=lambda own: own[2]):
        if g is None:
            sets[next(free for free in fleet.alike[number] if free not in sets)] = members
    return tuple(sets.get(g, ()) for g in range(len(fleet.gpus)))
