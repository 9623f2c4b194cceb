"""The paper's feedback: a tenant's overhead of a change is what the last window's changes were measured to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.errors import ProblemError
from planner.problem import Problem, Reconfiguration


def with_measured_overhead(problem: Problem, measured_s: Mapping[str, float]) -> Problem:
    """``problem`` with these overheads in the place of its own; tenants that are not named keep theirs.

    Gain tables lose what they say of steps with a change: it rests on the overhead, and is worked
    out anew from the arrivals.

    Args:
        problem: A ``paper`` problem. In ``physical``, where a change takes driver calls and a worker's
            start apart, one number for both is no overhead.
        measured_s: Seconds from the beginning of a change until its new instances serve, by tenant.

    Raises:
        ProblemError: The problem is not ``paper``, a name is none of its tenants, or a value is below 0.

    Source: MIGRator, Table 2, Ψ: "the average reconfiguration overhead … during the last retraining window".
    """
    if problem.reconfiguration is not Reconfiguration.PAPER:
        raise ProblemError(f"a measured overhead is for paper problems; this one is {problem.reconfiguration}")
    names = problem.tenant_names
    unknown = sorted(set(measured_s) - set(names))
    if unknown:
        raise ProblemError(f"measured overhead: {unknown[0]!r} is no tenant; there are {', '.join(names)}")
    overheads_s = {tenant.name: tenant.overhead_s for tenant in problem.tenants} | dict(measured_s)
    tenants = tuple(replace(tenant, overhead_s=overheads_s[tenant.name]) for tenant in problem.tenants)
    gains = None if problem.gains is None else tuple(replace(table, changed=None) for table in problem.gains)
    return replace(problem, tenants=tenants, gains=gains)
