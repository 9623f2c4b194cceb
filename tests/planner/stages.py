"""What a tenant's retraining makes of a step, for the oracles: straight from the definitions, step by step.

Shares no code with `planner` beyond the `Problem` value.
"""

from __future__ import annotations

import math

from planner.problem import Problem, RetrainingOption, TenantTerms


def training_steps(problem: Problem, option: RetrainingOption, profile: str) -> int:
    """d: each checkpoint adds its seconds, served or not."""
    seconds = option.time_s[profile] + len(option.checkpoints) * option.checkpoint_s
    return max(1, math.ceil(seconds / problem.step_s - 1e-9))


def is_staged(tenant: TenantTerms) -> bool:
    """Whether more than the end of a retraining matters."""
    return tenant.swap_s > 0 or any(option.checkpoints for option in tenant.options)


def stage(
    problem: Problem, tenant: TenantTerms, number: int, profile: str, end: int, s: int, *, in_progress: bool = False
) -> tuple[float, float]:
    """Accuracy in step s and the share of the step's gains that swaps leave; `in_progress` when the window opened."""
    option, comes = tenant.options[number], {}
    best: float | None = None
    if profile in option.time_s:
        d = training_steps(problem, option, profile)
        for checkpoint in option.checkpoints:
            if checkpoint.accuracy > max(tenant.accuracy_before, best or 0.0):
                best = checkpoint.accuracy
                comes[end - d + max(1, math.ceil(checkpoint.fraction * d - 1e-9))] = best
        if best is None and in_progress and option.checkpoints:
            best = tenant.accuracy_before
    if best is None or option.accuracy_after > best:
        comes[end] = option.accuracy_after
    accuracy, share = tenant.accuracy_before, 1.0
    for e in sorted(comes):
        if 0 <= e <= s:
            accuracy = comes[e]
            share *= 1.0 - min(1.0, max(0.0, tenant.swap_s / problem.step_s - (s - e)))
    return accuracy, share
