"""The table of many GPUs, from rows made by hand and from those that are kept."""

from __future__ import annotations

from benchmarks.cluster import LOADS
from benchmarks.paper.clusters import PLANNED, SIMULATED, kept, lead, table

ROWS = [
    {"part": "gaps", "seed": seed, "load": 0.7, "gap": 1.0, "over_spread": float(seed), "over_best-fit": 9.0}
    for seed in (1, 2, 3)
]


def test_a_cell_has_the_mean_of_seeds_its_interval_and_the_least_of_them() -> None:
    (row,) = table(ROWS, "gaps", PLANNED).itertuples()
    assert list(row) == ["0.7", "3", "1.00", "+2.0 [-0.5, +4.5], +1.0", "+9.0 [+9.0, +9.0], +9.0"]


def test_of_one_seed_no_interval_is_told() -> None:
    (row,) = table(ROWS[:1], "gaps", PLANNED).itertuples()
    assert list(row) == ["0.7", "1", "1.00", "+1.0", "+9.0"]


def test_kept_rows_are_of_all_loads_and_each_seed_once() -> None:
    rows = kept()
    keys = [(row["part"], row["load"], row["seed"]) for row in rows]
    assert len(keys) == len(set(keys))
    for part, columns in (("gaps", PLANNED), ("simulated", SIMULATED)):
        assert [*table(rows, part, columns).index] == [f"{load:g}" for load in LOADS]


def test_a_lead_is_told_by_load() -> None:
    rows = [{"part": "simulated", "load": load, "over_spread": points} for load, points in ((0.9, 3.0), (0.5, 1.0))]
    assert lead(rows, "spread") == "+1.0 at 0.5, +3.0 at 0.9"
