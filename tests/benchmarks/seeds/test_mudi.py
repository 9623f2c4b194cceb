"""Mudi's fits and tuners on drawn curves: which one wins, and that they are what the paper says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.seeds.mudi import (
    BETWEEN,
    FITS,
    PAPER,
    SHARES,
    SIZES,
    TRIALS,
    by_gaussian_process,
    by_means,
    drawn_curves,
    fit_errors,
    placed,
    tuning_losses,
    unseen_errors,
)


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    return fit_errors(100)


def test_the_least_squares_are_the_best_fit_of_nine_samples(errors: dict[str, list[float]]) -> None:
    *others, ours = (own[-1] for own in errors.values())
    assert ours < 1.5
    assert ours < min(others)


def test_the_printed_knee_is_worse_than_the_least_squares_at_every_size(errors: dict[str, list[float]]) -> None:
    *_, printed, ours = errors.values()
    assert all(own < other for own, other in zip(ours, printed, strict=True))


def test_every_fit_of_the_paper_stands_beside_it(errors: dict[str, list[float]]) -> None:
    assert set(PAPER) < set(errors)
    assert {len(own) for own in (*errors.values(), *PAPER.values())} == {len(SIZES)}


@pytest.mark.parametrize("name", [name for name in FITS if "printed" not in name])
def test_without_noise_a_straight_line_is_fitted(name: str) -> None:
    samples = np.array([[10 - 4 * share for share in SHARES]])
    assert FITS[name](SHARES, samples)[0] == pytest.approx(10 - 4 * BETWEEN, rel=0.02)


def test_curves_fall_and_are_steeper_before_the_knee() -> None:
    assert all(curve.before < curve.after < 0 for curve in drawn_curves(50))


@pytest.mark.parametrize("tuner", [by_means, by_gaussian_process])
@pytest.mark.parametrize("best", range(6))
def test_without_noise_tuners_find_the_best_and_try_as_often_as_told(tuner, best: int) -> None:
    tried = list[int]()

    def trial(place: int) -> float:
        tried.append(place)
        return 100.0 + 20 * abs(place - best)

    assert tuner(trial, 24) == best
    assert len(tried) == 24


def test_24_trials_lose_less_than_a_hundredth() -> None:
    losses = tuning_losses(100)
    assert [len(own) for own in losses.values()] == [len(TRIALS)] * 2
    assert all(own[-1] <= 1.0 for own in losses.values())


def test_a_training_never_seen_is_guessed_beside_the_mean_for_each_model() -> None:
    found = unseen_errors()
    assert {"mean", "ridge"} <= set(found)
    assert {tuple(own) for own in found.values()} == {("cnn", "cnn_wide", "mlp", "mobilenet_v2")}
    assert all(0 <= error < 1 for own in found.values() for error in own.values())


def test_a_placement_is_made_on_every_gpu_in_turn() -> None:
    assert placed(30).place_ms[0] > 0
