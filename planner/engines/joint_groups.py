"""``paper``: the groups of agreeing states within each state list, numbered without gaps.

The best of the groups of a subset of changing tenants comes from those of a subset with one tenant less,
of which there are fewer than states. That, and reading along lists, makes ``exact_status_kernel`` quick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.engines.exact_kernel import Ints
from planner.engines.joint import Joint

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ListGroups:
    """Arrays for ``status_path``, which describes them, of all lists that a ``Joint`` has numbered so far."""

    lists: Ints
    bounds: Int64s
    slots: Ints
    parent: Int64s
    raised: Ints
    raised_bounds: Int64s
    n_groups: Ints

    @classmethod
    def of(cls, joint: Joint) -> ListGroups:
        """The groups of all lists of a problem."""
        lists, bounds = joint.lists()
        n_lists, n_subsets = len(bounds) - 1, len(joint.group)
        slots = np.zeros((n_lists, *joint.group.shape), dtype=np.int32)
        n_groups = np.zeros((n_lists, n_subsets), dtype=np.int32)
        raised_bounds = np.zeros((n_lists, n_subsets + 1), dtype=np.int64)
        # Which parent makes least work hardly differs from list to list: the one with the fewest groups of all.
        sizes = joint.group.max(axis=1) + 1
        parents = [
            min(
                (c ^ 1 << m for m in range(n_subsets.bit_length() - 1) if c >> m & 1),
                key=lambda p: (sizes[p], p),
                default=0,
            )
            for c in range(n_subsets)
        ]
        raised: list[NDArray[np.int32]] = []
        n_raised = 0
        for number in range(n_lists):
            states = lists[bounds[number] : bounds[number + 1]]
            slots[number, 0, states] = np.arange(len(states))
            n_groups[number, 0] = len(states)
            raised_bounds[number, :2] = n_raised
            for c in range(1, n_subsets):
                names, own = np.unique(joint.group[c, states], return_inverse=True)
                slots[number, c, states] = own.reshape(-1)
                n_groups[number, c] = len(names)
                to = np.zeros(n_groups[number, parents[c]], dtype=np.int32)
                to[slots[number, parents[c], states]] = own.reshape(-1)
                raised.append(to)
                n_raised += len(to)
                raised_bounds[number, c + 1] = n_raised
        empty = np.zeros(0, dtype=np.int32)
        return cls(
            lists,
            bounds,
            slots,
            np.array(parents, dtype=np.int64),
            np.concatenate([empty, *raised]),
            raised_bounds,
            n_groups,
        )
