"""Jitter as measured, as luck of a run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter, Spread, service_jitter, step_factors


def test_all_factors_were_measured() -> None:
    assert set(ServiceJitter(3, "measured").factors("a", 0).tolist()) <= set(step_factors().factors.tolist())


@pytest.mark.parametrize(("seed", "tenant", "block"), [(4, "a", 0), (3, "b", 0), (3, "a", 1)])
def test_seed_tenant_and_block_decide_the_factors(seed: int, tenant: str, block: int) -> None:
    first = ServiceJitter(3, "measured").factors("a", 0).tolist()
    assert ServiceJitter(3, "measured").factors("a", 0).tolist() == first
    assert ServiceJitter(seed, "measured").factors(tenant, block).tolist() != first


@pytest.mark.parametrize("spread", [0.5, "measured"])
def test_jitter_keeps_the_mean_latency(spread: Spread) -> None:
    factors = [ServiceJitter(3, spread).factors("bert", block) for block in range(80)]
    assert np.mean(factors) == pytest.approx(1.0, abs=0.02)


def test_jitter_of_neighbouring_batches_differs_across_blocks() -> None:
    factors = np.concatenate([ServiceJitter(3, 0.5).factors("bert", block) for block in range(4)])
    assert len(set(factors.tolist())) == 4 * JITTER_BLOCK


def test_negative_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"spread -0\.1: must be 'measured', or finite"):
        ServiceJitter(0, -0.1)


def test_a_spread_of_0_is_no_jitter() -> None:
    assert service_jitter(3, 0.0) is None


@pytest.mark.parametrize("spread", [0.5, "measured"])
def test_any_other_spread_is_jitter(spread: Spread) -> None:
    assert service_jitter(3, spread) == ServiceJitter(3, spread)


# --- the shipped distribution of steps

SHARES = np.diff(step_factors().up_to, prepend=0.0)


class Even:
    """Uniform numbers in which none is left out, in place of random ones."""

    def random(self, n: int) -> np.ndarray:
        return (np.arange(n) + 0.5) / n


def test_the_mean_is_1() -> None:
    assert (step_factors().factors * SHARES).sum() == pytest.approx(1.0, abs=1e-12)


def test_factors_ascend_from_above_0() -> None:
    factors = step_factors().factors.tolist()
    assert factors[0] > 0
    assert all(a < b for a, b in pairwise(factors))


def test_every_factor_has_a_share_and_shares_are_complete() -> None:
    assert (SHARES > 0).all()
    assert step_factors().up_to[-1] == 1


def test_steps_were_steady_with_a_tail_of_slow_ones() -> None:
    table = step_factors()
    found = [table.factors[np.searchsorted(table.up_to, share)] for share in (0.5, 0.95, 0.99, 0.999)]
    assert [round(float(factor), 2) for factor in found] == [1.0, 1.04, 1.08, 1.16]


def test_factors_are_drawn_as_often_as_they_were_measured() -> None:
    n = 10**6
    drawn = step_factors().drawn(Even(), n)  # type: ignore[arg-type]
    often = [np.count_nonzero(drawn == factor) for factor in step_factors().factors]
    assert np.abs(np.array(often) - SHARES * n).max() <= 1


def test_the_ends_of_the_uniform_numbers_have_a_factor() -> None:
    class Ends:
        def random(self, _: int) -> np.ndarray:
            return np.array([0.0, np.nextafter(1.0, 0.0)])

    table = step_factors()
    assert table.drawn(Ends(), 2).tolist() == table.factors[[0, -1]].tolist()  # type: ignore[arg-type]


def test_the_table_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        step_factors().factors[0] = 1.0
