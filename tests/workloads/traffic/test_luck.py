"""Jitter as measured, as luck of a run."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter, Spread, service_jitter
from workloads.traffic.step_factors import step_factors


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
