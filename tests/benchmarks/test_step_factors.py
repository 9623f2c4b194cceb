"""How the spread of MISO's steps was made: what is left out, how runs are weighed, and that it is what is shipped."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from benchmarks.step_factors import N_LEAST, factors_of, steady_s, steps_of_epoch, table

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "mig_profiles" / "miso_step_seconds.npz"

STEADY = np.full(20 + N_LEAST, 0.05)
"""A run cut short in its first epoch, with just enough left after its warm-up."""


@pytest.mark.skipif(not RECORDED.is_file(), reason="the project's measured data is not beside this checkout")
def test_the_shipped_table_is_made_from_the_source() -> None:
    with np.load(RECORDED) as runs:
        assert table(runs) == (files("workloads.data") / "step_factors.csv").read_text("utf-8")


def test_the_first_epoch_and_the_ends_of_others_are_left_out() -> None:
    assert steady_s(np.arange(24.0), 8).tolist() == [11, 12, 13, 14, 19, 20, 21, 22]


def test_a_run_without_a_second_epoch_loses_its_first_steps() -> None:
    assert steady_s(np.arange(23.0), 30).tolist() == [20, 21, 22]


def test_epochs_are_as_long_as_the_data_set() -> None:
    assert [steps_of_epoch("resnet50", 64), steps_of_epoch("bert", 6)] == [782, 167]


def test_every_factor_is_a_step_over_its_own_run_s_mean() -> None:
    run = np.concatenate([np.full(20, 9.0), np.tile([0.04, 0.06], 40)])
    (factors,) = factors_of({"1g.5gb__bert__b2": run})
    assert sorted(set(factors.round(9).tolist())) == [0.8, 1.2]


@pytest.mark.parametrize(
    "runs",
    [
        {"1g.5gb__deepspeech2__b2": STEADY},
        {"1g.5gb__glove-textcnn__b64": STEADY},
        {"1g.5gb__bert__b2": STEADY[1:]},
        {"1g.5gb__bert__b2": 3 * STEADY},
    ],
    ids=["inputs of many sizes", "pauses inside epochs", "too few steps", "longer than any batch"],
)
def test_runs_that_tell_nothing_of_serving_are_left_out(runs: dict[str, np.ndarray]) -> None:
    assert list(factors_of(runs)) == []


def test_a_long_run_weighs_as_much_as_a_short_one() -> None:
    short, long = STEADY.copy(), np.full(20 + 8 * N_LEAST, 0.05)
    short[20::2] *= 1.2
    rows = dict(line.split(",") for line in table({"1g.5gb__bert__b2": short, "2g.10gb__bert__b2": long}).split()[1:])
    assert {factor: float(share) for factor, share in rows.items()} == {"0.910": 0.25, "1.000": 0.5, "1.090": 0.25}
