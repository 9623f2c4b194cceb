"""The best starts of two retrainings, told by trying every pair."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.engines.fixed import Startable, best_starts, free_starts


def every_pair(first: Startable, second: Startable, together: np.ndarray) -> float:
    best = -np.inf
    for a, b in product(range(len(first.values)), range(len(second.values))):
        shared = range(max(a, b), min(a + first.n_steps, b + second.n_steps))
        if all(together[step] for step in shared):
            best = max(best, first.values[a] + second.values[b])
    return best


@pytest.mark.parametrize("seed", range(200))
def test_no_pair_of_starts_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_steps = int(rng.integers(1, 12))
    lengths = rng.integers(0, n_steps + 1, size=2)
    parts = [Startable(rng.uniform(-9, 9, n_steps - n + 1 if n else 1), int(n)) for n in lengths]
    for part in parts:
        part.values[rng.random(len(part.values)) < 0.2] = -np.inf
    together = rng.random(n_steps) < rng.choice([0.0, 0.5, 0.8, 1.0])
    value, a, b = best_starts(parts[0], parts[1], together)
    assert value == every_pair(parts[0], parts[1], together)
    if np.isfinite(value):
        assert parts[0].values[a] + parts[1].values[b] == value


def test_equal_values_start_as_early_as_they_can() -> None:
    parts = (Startable(np.zeros(4), 2), Startable(np.zeros(4), 2))
    assert best_starts(*parts, np.zeros(5, dtype=np.bool_)) == (0.0, 0, 2)


def test_starts_are_free_where_every_step_is_open() -> None:
    assert free_starts(np.array([True, True, False, True, True, True]), 2).tolist() == [True, False, False, True, True]
