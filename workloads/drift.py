"""What becomes of a model's accuracy from window to window: the one place that knows the rule.

A tenant's config gives by window w the accuracy before and after its retraining (the option ``full``). A model that was
retrained so in w begins w + 1 with ``before`` of w + 1; every other one is behind, and falls by its tenant's *drift*.
"""

from __future__ import annotations

from typing import assert_never

from workloads.tenants import Drift, Tenant


def drift_in(tenant: Tenant, window: int) -> float:
    """r_w, in [0, 1]: the part of its accuracy that a model keeps as the window ends.

    It is ``before`` of the next window over ``after`` of this one, as far as the config says that the retrained model
    loses; 1 where the window has nothing to learn.
    """
    after = tenant.accuracy_in(window).after
    if after == 0 or not tenant.retrains_in(window):
        return 1.0
    return min(1.0, tenant.accuracy_in(window + 1).before / after)


def accuracy_at_start(tenant: Tenant, window: int, last_retrained: int, gave: float | None = None) -> float:
    """What the model in service gives at the start of ``window``, last retrained with data of ``last_retrained``.

    The model deployed at first counts as retrained in window −1. ``gave`` is what the last retraining came to, where
    that is not what the config says of it: by another option, or by a part of one.
    """
    is_behind = gave is not None
    accuracy = tenant.accuracy_in(last_retrained + 1).before if gave is None else _fallen(tenant, last_retrained, gave)
    for passed in range(last_retrained + 1, window):
        is_behind = is_behind or tenant.retrains_in(passed)
        accuracy = _fallen(tenant, passed, accuracy) if is_behind else tenant.accuracy_in(passed + 1).before
    return accuracy


def _fallen(tenant: Tenant, window: int, accuracy: float) -> float:
    """What a model that is behind, and gives ``accuracy`` as the window ends, gives as the next begins."""
    match tenant.drift:
        case Drift.COMPOUND:
            return accuracy * drift_in(tenant, window)
        case Drift.AS_GIVEN:
            return min(accuracy, tenant.accuracy_in(window + 1).before)
        case _:
            assert_never(tenant.drift)
