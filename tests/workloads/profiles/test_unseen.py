"""Trainings that were never run beside a model: guessed by modules where that is better than the mean."""

from __future__ import annotations

import numpy as np
import pytest

from executor.catalogue import gpu_model
from tests.workloads.profiles.share_rows import share_rows, share_text
from workloads.profiles.share_table import beside_unseen, parse_share_table
from workloads.profiles.share_table import share_text as table_text
from workloads.profiles.unseen import MEAN, Guess, guessed

GPU = gpu_model("a100-80gb")


def counts(n: int, seed: int = 1) -> dict[str, tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return {f"t{k}": tuple(rng.integers(0, 60, 11).tolist()) for k in range(n)}


@pytest.mark.parametrize("n", [1, 2])
def test_of_fewer_than_three_the_mean_is_taken_unjudged(n: int) -> None:
    factors = {"t0": 1.2, "t1": 1.4}
    found = guessed(counts(3), dict(list(factors.items())[:n]), counts(3)["t2"])
    assert (found.way, found.errors, found.factor) == (MEAN, {}, pytest.approx(1.2 if n == 1 else 1.3))
    assert found.told == "mean of the measured trainings"


def test_where_factors_follow_the_modules_they_are_guessed_by_them() -> None:
    known = counts(12)
    true = {name: 1.1 + 0.2 * float(np.log1p(own[0])) for name, own in known.items()}
    unseen = (60, *[20] * 10)
    found = guessed(known, true, unseen)
    assert found.way != MEAN
    assert found.errors[found.way] < found.errors[MEAN]
    mean = float(np.mean(list(true.values())))
    assert abs(found.factor - (1.1 + 0.2 * np.log1p(60))) < abs(mean - (1.1 + 0.2 * np.log1p(60)))
    assert found.told.startswith(f"{found.way} on counts of modules; errors with one left out: mean ")


def test_where_factors_do_not_depend_on_modules_the_mean_stays() -> None:
    known = counts(9)
    rng = np.random.default_rng(3)
    found = guessed(known, {name: 1.3 + rng.normal(0, 0.01) for name in known}, counts(10, 5)["t9"])
    assert (found.way, found.factor) == (MEAN, pytest.approx(1.3, abs=0.02))


def test_a_training_speeds_nobody_up() -> None:
    known = {"a": (1,) * 11, "b": (20,) * 11, "c": (60,) * 11}
    assert guessed(known, {"a": 1.0, "b": 1.3, "c": 1.6}, (0,) * 11).factor >= 1.0


def test_rows_beside_it_say_that_they_were_derived_and_are_read_again() -> None:
    rows = parse_share_table("s", share_text(share_rows(beside={"bert-large": 1.2})), GPU).rows
    guess = Guess(1.5, MEAN, {})
    made = beside_unseen(rows, "vit-b-16", {"resnet50": guess})
    assert len(made) == 10
    table = parse_share_table("s", table_text([*rows, *made]), GPU)
    assert table.beside("resnet50") == pytest.approx({"bert-large": 1.2, "vit-b-16": 1.5})
    assert table.derived("resnet50") == {"vit-b-16": "mean of the measured trainings"}
    assert table.derived("bert-large") == {}
