"""Two lines with a knee: held against a fine grid of knees, against bisection, and against noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrays import FloatArray
from workloads.profiles.knee import Knee, fitted, fitted_all

SHARES = [k / 10 for k in range(1, 10)]
FINE = np.linspace(0.1, 0.9, 161)


def curves(n: int, seed: int = 1) -> Iterator[Knee]:
    """Curves as Mudi draws them: knees at a sample, the first line four to twenty times as steep as the second."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        knee, level = float(rng.choice(SHARES[1:-2])), rng.uniform(20, 100)
        after = -rng.uniform(0.02, 0.25) * level
        yield Knee(knee, level, after * rng.uniform(4, 20), after, SHARES[0], SHARES[-1])


def noisy(curve: Knee, noise: float, rng: np.random.Generator) -> FloatArray:
    return np.array([curve.at(share) for share in SHARES]) * rng.lognormal(0, noise, len(SHARES))


@cache
def residuals(knee: float) -> FloatArray:
    """What latencies are multiplied by to leave what two lines that meet there do not explain."""
    beyond = np.array(SHARES) - knee
    design = np.stack([np.ones_like(beyond), np.minimum(beyond, 0), np.maximum(beyond, 0)], axis=1)
    solved = np.stack([np.linalg.lstsq(design, one)[0] for one in np.eye(len(SHARES))])
    left: FloatArray = np.eye(len(SHARES)) - solved @ design.T
    return left


def squares(knee: float, latency_s: FloatArray) -> float:
    """What two lines that meet there leave, by NumPy's own least squares."""
    return float(((latency_s @ residuals(knee)) ** 2).sum())


def error(found: Knee, curve: Knee) -> float:
    return float(np.mean([abs(found.at(share) / curve.at(share) - 1) for share in np.linspace(0.1, 0.9, 41).tolist()]))


def test_without_noise_the_fit_is_the_curve_and_that_of_a_fine_grid() -> None:
    for curve in curves(200):
        latency_s = noisy(curve, 0.0, np.random.default_rng(0))
        found = fitted(SHARES, latency_s)
        assert error(found, curve) < 1e-9
        finest = min(FINE.tolist(), key=lambda knee: squares(knee, latency_s))
        assert squares(found.share, latency_s) == pytest.approx(squares(finest, latency_s), abs=1e-9)
        if curve.share > SHARES[1]:  # one sample before it leaves the first line free
            assert found.share == pytest.approx(finest)


def test_with_noise_no_knee_at_a_sample_leaves_less() -> None:
    rng = np.random.default_rng(2)
    for curve in curves(200):
        latency_s = noisy(curve, 0.02, rng)
        found = fitted(SHARES, latency_s)
        left = sum((found.at(share) - own) ** 2 for share, own in zip(SHARES, latency_s.tolist(), strict=True))
        assert left == pytest.approx(min(squares(knee, latency_s) for knee in SHARES[1:-1]))


def test_with_2_percent_noise_the_curve_is_a_hundredth_off_and_four_knees_of_five_are_found() -> None:
    rng = np.random.default_rng(3)
    pairs = [(fitted(SHARES, noisy(curve, 0.02, rng)), curve) for curve in curves(500)]
    assert float(np.mean([error(found, curve) for found, curve in pairs])) <= 0.01
    assert float(np.mean([found.share == curve.share for found, curve in pairs])) > 0.8


def test_many_curves_are_fitted_as_one_by_one() -> None:
    rng = np.random.default_rng(4)
    latency_s = np.stack([noisy(curve, 0.02, rng) for curve in curves(20)])
    assert fitted_all(SHARES, latency_s) == [fitted(SHARES, own) for own in latency_s]


KNEES = st.builds(
    Knee,
    share=st.floats(0.15, 0.85),
    latency_s=st.floats(1, 100),
    before=st.floats(-500, 1),
    after=st.floats(-1, 10),
    least=st.just(0.1),
    most=st.just(0.9),
)


@given(KNEES, st.floats(0.5, 1000))
def test_the_least_share_is_that_of_a_search(curve: Knee, latency_s: float) -> None:
    found = curve.least_share(latency_s)
    grid = [share for share in np.linspace(0.001, 1, 1000).tolist() if curve.at(share) <= latency_s]
    if found is None:
        assert not grid
        return
    assert found <= 1
    assert curve.at(found) <= latency_s * (1 + 1e-9)
    if grid:
        assert found <= grid[0] * (1 + 1e-9)
    if found > 0.001:
        assert curve.at(found * (1 - 1e-6)) > latency_s * (1 - 1e-4)


def test_the_least_share_is_that_of_bisection() -> None:
    for curve in curves(200):
        for latency_s in np.linspace(curve.at(1.0), curve.at(0.02), 9).tolist():
            low, high = 1e-9, 1.0
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (low, middle) if curve.at(middle) <= latency_s else (middle, high)
            assert curve.least_share(latency_s) == pytest.approx(high, rel=1e-6)


@given(KNEES)
def test_outside_of_the_samples_a_batch_gains_no_more_than_its_share(curve: Knee) -> None:
    for outside in ([0.01, 0.05, 0.1], [0.9, 0.95, 1.0]):
        for less, more in pairwise(outside):
            assert curve.at(less) >= curve.at(more) * (1 - 1e-12)
            assert curve.at(more) * more >= curve.at(less) * less * (1 - 1e-12)


@pytest.mark.parametrize("shares", [[0.1, 0.3, 0.5, 0.9], [0.1, 0.3, 0.2, 0.5, 0.9], [0.1, 0.3, 0.3, 0.5, 0.9]])
def test_too_few_shares_or_shares_out_of_order_are_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="5 ascending shares or more"):
        fitted(shares, [1.0] * len(shares))
