"""The bound that a plan's prices prove: each tenant, alone on the GPU, does its best and pays for all that it holds.

That is of prices of instances; those of statuses have a bound of their own, in ``planner.verify.statuses``.

Both models are one longest path over what inference holds, a multiset k. In a step without a change all of k serves.
A change from k' to k takes ``apart`` steps, and the next comes no sooner: in the first ``warm_up`` of them what
k' and k have in common serves, then all of k (``paper``: 1 and 0 steps, earning what a changed step does). A
retraining ends at some step, within a change as well, and its level holds from there on; what a level is worth beyond
the window is paid when it is reached. Memory slices that are not ours are free alone, and missing where prices pay for
what fits. Given gain tables are taken to be monotone, as :class:`~planner.problem.GainTable` says.
"""

from __future__ import annotations

import math

import numpy as np

from planner.arrays import Floats, Int64s, sums_before
from planner.plan import AnyCertificate, Certificate, StatusCertificate
from planner.problem import Problem, Reconfiguration
from planner.verify.holdings import (
    are_enough,
    counts_at_start,
    fits_gpu,
    in_common,
    most_goodput,
    rounding,
    that_serve,
)
from planner.verify.loans import lent_bound
from planner.verify.pooled import best_pooled, member_of


def certified_bound(problem: Problem, certificate: AnyCertificate, known: float = math.inf) -> float:
    """No plan earns more requests; −inf where a tenant alone has no plan, NaN where a given gain table has gaps.

    Prices of statuses prove more with what some plan is worth: ``known``.
    """
    if isinstance(certificate, StatusCertificate):
        from planner.verify.statuses import status_bound  # noqa: PLC0415 (heavy: it has a compiled loop)

        return status_bound(problem, certificate, known)
    if problem.layout:
        return lent_bound(problem, certificate)
    given = dict(zip(certificate.profile_names, certificate.prices.T, strict=True))
    prices = np.stack([given.get(name, np.zeros(problem.n_steps)) for name in problem.profile_names], axis=1)
    fitting = np.array(problem.gpu.multisets(problem.profile_names))
    found = [
        best_pooled(problem, members, prices, fitting, certificate)
        if len(members) > 1
        else _best_alone(problem, members[0], prices, fitting, certificate)
        for members in problem.partition
    ]
    alone = sum(best for best, _ in found)
    size = most_goodput(problem) + len(problem.tenants) * (np.abs(prices) @ fitting.T).max(axis=1).sum()
    size += sum(size_of for _, size_of in found)
    return float(_dearest(problem, prices, fitting) + alone + rounding(problem, size))


def _dearest(problem: Problem, prices: Floats, fitting: Int64s) -> float:
    """The sum over steps of the price of the dearest counts that fit the memory slices that are ours."""
    worth = prices @ fitting.T
    for begin, end, mask in problem.unavailable_spans if problem.unavailable else ():
        worth[begin:end, ~fits_gpu(problem, fitting, mask)] = -np.inf
    return float(worth.max(axis=1).sum())


def _best_alone(
    problem: Problem, m: int, prices: Floats, fitting: Int64s, certificate: Certificate
) -> tuple[float, float]:
    """The most that tenant m can earn less what it pays, under its floor; and the size of what a floor adds."""
    tenant, n_steps, state = problem.tenants[m], problem.n_steps, problem.opening
    counts = that_serve(problem, tenant, fitting)
    # Until the first epoch what is held at the start stays, and serves once it is ready; without such a
    # start any multiset may be the first. One that may not serve the tenant counts as empty: it has to change.
    start = counts_at_start(problem, tenant, state.next_epoch_step)
    index = {tuple(multiset): k for k, multiset in enumerate(counts.tolist())}
    first = slice(None) if start is None else [index.get(start, 0)]
    own = member_of(problem, m, prices, counts, first, certificate)
    settled, changed, costs = sums_before(own.gains, axis=1), sums_before(own.changed, axis=1), own.costs
    paid = sums_before(prices @ counts.T)
    is_paper = problem.reconfiguration is Reconfiguration.PAPER
    # What lasts longer than the window is as long as it.
    lasting = (0, 1) if is_paper else (problem.warm_up_steps(tenant), problem.epoch_steps)
    warm_up, apart = (min(steps, n_steps + 1) for steps in lasting)
    common = in_common(counts)
    barred = np.where(are_enough(problem, tenant, counts), 0.0, -np.inf)
    value = np.full((len(settled), n_steps + 1, len(index)), -np.inf)
    value[0, 0, first] = 0.0

    # What a retraining that ends within a change loses against one that had ended before, by the step of its end.
    most = min(warm_up, apart - 1)
    at_once = _most_ahead((settled[:1] - settled[1:] - costs[:, :, None])[:, :n_steps], 1, most)
    later = _most_ahead((changed[:1] - changed[1:] - costs[:, :, None])[:, :n_steps], most + 1, apart - 1)
    for s in range(n_steps):
        value[1:, s] = np.maximum(value[1:, s], value[0, s] - costs[:, s, None])
        stay = value[:, s] + settled[:, s + 1] - settled[:, s] - paid[s + 1] + paid[s] + barred
        value[:, s + 1] = np.maximum(value[:, s + 1], stay)
        if s < state.next_epoch_step:
            continue
        warm, end = min(s + warm_up, n_steps), min(s + apart, n_steps)
        due, kept = barred - paid[end] + paid[s], settled[:, warm] - settled[:, s]
        best = (value[:, s, :, None] + kept[:, common]).max(axis=1) + changed[:, end] - changed[:, warm] + due
        value[:, end] = np.maximum(value[:, end], best)
        if most + 1 < apart:
            opening = (value[0, s, :, None] + kept[0, common]).max(axis=0) - changed[0, warm]
            value[1:, end] = np.maximum(value[1:, end], opening + later[:, s] + changed[1:, end] + due)
        if most:
            kept = at_once[:, s] - settled[0, s] + settled[1:, warm]
            best = (value[0, s, :, None] + kept[:, common]).max(axis=1) + changed[1:, end] - changed[1:, warm] + due
            value[1:, end] = np.maximum(value[1:, end], best)
    trained = np.maximum(value[1:, n_steps], value[0, n_steps] - costs[:, n_steps, None]).max(initial=-np.inf)
    best = trained if own.is_required else max(trained, value[0, n_steps].max())
    return float(best) + own.salvage - own.asked, own.size


def _most_ahead(values: Floats, first: int, last: int) -> Floats:
    """For each s the most of ``values[:, s + first : s + last + 1]``, −inf where that is empty; of the same shape."""
    n_steps, width = values.shape[1], last - first + 1
    if width < 1:
        return np.full_like(values, -np.inf)
    beyond = np.full((values.shape[0], last, values.shape[2]), -np.inf)
    most, covered = np.concatenate([values, beyond], axis=1)[:, first:], 1
    while covered < width:
        step = min(covered, width - covered)
        most, covered = np.maximum(most[:, :-step], most[:, step:]), covered + step
    return most[:, :n_steps]
