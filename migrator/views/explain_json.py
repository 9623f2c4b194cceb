"""An explanation as JSON values; goodput in requests, steps half-open."""

from __future__ import annotations

from planner.explain.explain import Choice, Explanation


def explanation_to_json(found: Explanation) -> dict[str, object]:
    """The whole explanation; ``holds`` is by tenant, and ``net`` = ``stretch_goodput`` − ``switching``."""
    names = [tenant.name for tenant in found.tenants]
    return {
        "step": found.step,
        "from_step": found.from_step,
        "to_step": found.to_step,
        "tenants": [
            {
                "name": tenant.name,
                "retraining": tenant.retraining,
                "arrivals_rps": tenant.arrivals_rps,
                "capability_rps": tenant.capability_rps,
                "accuracy": tenant.accuracy,
                "goodput": tenant.goodput,
            }
            for tenant in found.tenants
        ],
        "held": _choice(found.held, names),
        "alternatives": [_choice(choice, names) for choice in found.alternatives],
        "n_compared": found.n_compared,
        "reason": found.reason,
    }


def _choice(choice: Choice, names: list[str]) -> dict[str, object]:
    return {
        "roles": list(choice.roles),
        "holds": {name: list(held) for name, held in zip(names, choice.holds, strict=True)},
        "step_goodput": choice.step_goodput,
        "stretch_goodput": choice.stretch_goodput,
        "switching": choice.switching,
        "net": choice.net,
    }
