"""Jitter as measured, as luck of a run."""

from __future__ import annotations

import pytest

from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter
from workloads.traffic.step_factors import step_factors


def test_batch_by_batch_and_by_blocks_the_factors_are_the_same() -> None:
    jitter = ServiceJitter(3, "measured")
    one_by_one = [jitter.factor("a", number) for number in range(JITTER_BLOCK, 2 * JITTER_BLOCK)]
    assert one_by_one == jitter.factors("a", 1).tolist()


def test_all_factors_were_measured() -> None:
    assert set(ServiceJitter(3, "measured").factors("a", 0).tolist()) <= set(step_factors().factors.tolist())


@pytest.mark.parametrize(("seed", "tenant", "block"), [(4, "a", 0), (3, "b", 0), (3, "a", 1)])
def test_seed_tenant_and_block_decide_the_factors(seed: int, tenant: str, block: int) -> None:
    first = ServiceJitter(3, "measured").factors("a", 0).tolist()
    assert ServiceJitter(3, "measured").factors("a", 0).tolist() == first
    assert ServiceJitter(seed, "measured").factors(tenant, block).tolist() != first
