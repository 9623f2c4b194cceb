"""Moments at which a policy divides a GPU's processors: made by hand, and drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from planner.arrays import Floats
from planner.policies.shares import QUANTA, Moment, RetrainingStage, ShareOption, Shares, ShareTenant

STEPS = np.arange(QUANTA + 1, dtype=np.float64)


def share_tenant(
    name: str = "a",
    rps_each: float = 10.0,
    *,
    accuracy: tuple[float, float] = (0.6, 0.8),
    weight: float = 1.0,
    training_s: float | None = None,
    done: float = 0.0,
    stage: RetrainingStage = RetrainingStage.WAITING,
) -> ShareTenant:
    """A tenant that serves so much on each twentieth, and that trains so long on the whole GPU, if at all."""
    training_rate = STEPS * 0.0 if training_s is None else STEPS / QUANTA / training_s
    own_stage = RetrainingStage.NONE if training_s is None else stage
    return ShareTenant(name, weight, *accuracy, rps_each * STEPS, training_rate, done, own_stage)


def with_options(tenant: ShareTenant, **others: tuple[float, float]) -> ShareTenant:
    """The tenant with further ways to retrain: by name their accuracy, and seconds on the whole GPU."""
    full = ShareOption("full", tenant.accuracy_after, tenant.training_rate, tenant.salvage[1])
    options = [ShareOption(name, after, STEPS / QUANTA / own_s) for name, (after, own_s) in others.items()]
    return replace(tenant, options=(full, *options))


def with_turns(tenant: ShareTenant, rps_each: float) -> ShareTenant:
    """The tenant where all may take turns, and it then serves so much on each twentieth."""
    return replace(tenant, turns_rps=rps_each * STEPS)


def moment_of(
    *tenants: ShareTenant,
    ahead_rps: Sequence[Sequence[float]] | None = None,
    past_rps: Sequence[Sequence[float]] | None = None,
    left_s: float = 100.0,
    as_published: bool = False,
    shares: Shares | None = None,
) -> Moment:
    """A moment with arrivals by (step, tenant); 0 where none are given."""
    none = [[0.0] * len(tenants)]
    ahead, past = (np.array(none if rates is None else rates, dtype=np.float64) for rates in (ahead_rps, past_rps))
    return Moment(left_s, tenants, ahead, past, shares or {}, as_published)


@st.composite
def share_tenants(draw: st.DrawFn, name: str) -> ShareTenant:
    """Rates that never fall with the share, 0 everywhere included; a retraining at any stage."""
    stage = draw(st.sampled_from(RetrainingStage))
    unit = st.floats(0, 1)
    return ShareTenant(
        name=name,
        weight=draw(st.just(0.0) | st.floats(1e-6, 3)),
        accuracy_before=draw(unit),
        accuracy_after=draw(unit),
        rate_rps=_rising(draw, st.integers(0, 50)),
        training_rate=STEPS * 0.0 if stage is RetrainingStage.NONE else _rising(draw, st.integers(1, 50)) / 1000,
        done=draw(st.floats(0, 0.99)) if stage is RetrainingStage.RUNNING else float(stage is RetrainingStage.DONE),
        stage=stage,
        is_due=draw(st.booleans()),
        start_s=draw(st.floats(0, 3)),
    )


@st.composite
def moments(draw: st.DrawFn, most_tenants: int = 3) -> Moment:
    """From no load at all to far more than the GPU carries."""
    tenants = [draw(share_tenants(name)) for name in "abcdef"[: draw(st.integers(1, most_tenants))]]
    arrivals = st.lists(st.integers(0, 1500), min_size=len(tenants), max_size=len(tenants))
    rows = st.lists(arrivals, min_size=1, max_size=5)
    return moment_of(
        *tenants,
        ahead_rps=draw(rows),
        past_rps=draw(rows),
        left_s=draw(st.floats(0.01, 200)),
        as_published=draw(st.booleans()),
    )


def _rising(draw: st.DrawFn, steps: st.SearchStrategy[int]) -> Floats:
    own = draw(st.lists(steps, min_size=QUANTA, max_size=QUANTA))
    return np.concatenate([[0.0], np.cumsum(own, dtype=np.float64)])
