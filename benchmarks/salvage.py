"""How much of what short-sighted plans lose the salvage term wins back: `python -m benchmarks.salvage`.

Three windows of random problems with two tenants (`paper` model, proven plans): a model that is not retrained keeps a
part of its accuracy from window to window, which is drawn and which no plan is told. Beside each other stand plans that
see their own window alone, plans that count salvage as runs do (`migrator.run.outlook`), and the best course of all:
every choice of who is retrained in which window, each with its best plan. Only instances in which the first lose more
than 1 % of the last count. Settings are chosen on the first half of them, and figures are told of the second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from statistics import fmean, median

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.speed.problems import random_problem
from migrator.config import DecisionConfig
from migrator.parallel import Processes, n_cores
from migrator.run.outlook import HORIZON, RETRAINED_PRIOR, STILL, Outlook, salvage_of
from planner.plan import MigPlan
from planner.problem import Problem, TenantTerms
from planner.solve import solve
from planner.verify import verify

N_WINDOWS, N_STEPS, STEP_S = 3, 10, 20.0

LEAST_LOSS = 0.01
"""Instances in which short-sighted plans lose a smaller part of the best course are left out."""

Accuracies = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class How:
    """What salvage is made of.

    Attributes:
        horizon: Windows that count, at most.
        retrained_prior: To which part one window counts as retrained before there is any.
        still: For which part of a window a model still answers that the window replaces.
    """

    horizon: int = min(HORIZON, N_WINDOWS - 1)
    retrained_prior: float = RETRAINED_PRIOR
    still: float = STILL


IN_USE = How()

TRIED = tuple(How(*settings) for settings in product((1, 2), (0.25, 0.5, 0.75), (0.5, 1.0)))


@dataclass(frozen=True)
class Instance:
    """Three windows.

    Attributes:
        windows: Their problems, with the accuracies of the first.
        drift: By tenant, the part of its accuracy that a model keeps from window to window.
    """

    windows: tuple[Problem, ...]
    drift: Accuracies

    @classmethod
    def drawn(cls, seed: int) -> Instance:
        """The instance numbered ``seed``: a random problem whose arrivals shift from window to window."""
        first = random_problem(seed, n_tenants=2, n_steps=N_STEPS, step_s=STEP_S)
        rng = np.random.default_rng([seed, 7])
        windows = []
        for _ in range(N_WINDOWS):
            factors, shifts = rng.uniform(0.6, 1.2, 2), rng.integers(0, N_STEPS, 2)
            tenants = [
                replace(own, arrivals_rps=np.round(np.roll(own.arrivals_rps, int(shift)) * factor, 2))
                for own, factor, shift in zip(first.tenants, factors, shifts, strict=True)
            ]
            windows.append(replace(first, tenants=tuple(tenants)))
        return cls(tuple(windows), tuple(rng.uniform(0.6, 0.98, 2).tolist()))

    def at(self, window: int, accuracies: Accuracies, retrained: Sequence[bool | None]) -> Problem:
        """A window's problem from these accuracies; by tenant, whether it is retrained, or ``None`` for as it pays."""
        tenants = [
            replace(
                own,
                accuracy_before=accuracy,
                options=() if must is False or own.options[0].accuracy_after <= accuracy else own.options,
                retraining_required=bool(must),
            )
            for own, accuracy, must in zip(self.windows[window].tenants, accuracies, retrained, strict=True)
        ]
        return replace(self.windows[window], tenants=tuple(tenants))

    def after(self, window: int, accuracies: Accuracies, retrained: Sequence[bool]) -> Accuracies:
        """With which accuracies the next window begins."""
        ended = [
            own.options[0].accuracy_after if is_new else accuracy
            for own, accuracy, is_new in zip(self.windows[window].tenants, accuracies, retrained, strict=True)
        ]
        return tuple(round(accuracy * kept, 9) for accuracy, kept in zip(ended, self.drift, strict=True))

    @property
    def first(self) -> Accuracies:
        """The accuracies that the first window begins with."""
        return tuple(tenant.accuracy_before for tenant in self.windows[0].tenants)


def best_course(instance: Instance) -> float:
    """The goodput of the best course through all windows."""

    @cache
    def best_from(window: int, accuracies: Accuracies) -> float:
        if window == N_WINDOWS:
            return 0.0
        found = []
        for retrained in product((False, True), repeat=len(accuracies)):
            plan = _proven(instance.at(window, accuracies, retrained))
            if plan is not None:
                found.append(_goodput(plan) + best_from(window + 1, instance.after(window, accuracies, retrained)))
        return max(found)

    return best_from(0, instance.first)


def _proven(problem: Problem) -> MigPlan | None:
    """The best plan; ``None`` where the retrainings have no room."""
    plan = solve(problem, "exact")
    if not plan.status.has_plan:
        return None
    if plan.gap is None or plan.gap > 1e-6:
        raise RuntimeError(f"no proven plan: {plan.status.value}, gap {plan.gap}")
    return plan


def _goodput(plan: MigPlan) -> float:
    assert plan.expected_goodput is not None
    return plan.expected_goodput


def followed(instance: Instance, how: How | None) -> float:
    """The goodput of windows that are planned one after the other, with salvage or, with ``None``, without."""
    accuracies, total = instance.first, 0.0
    seen: list[list[float]] = [[] for _ in accuracies]
    n_trained, in_time = [0] * len(accuracies), [1.0] * len(accuracies)
    for window in range(N_WINDOWS):
        problem = instance.at(window, accuracies, [None] * len(accuracies))
        if how is not None:
            ahead = (True,) * min(how.horizon, N_WINDOWS - 1 - window)
            views = [
                Outlook(
                    drift=median(kept) if kept else DecisionConfig().drift_prior,
                    stays=1 - (number + how.retrained_prior) / (window + 1),
                    in_time=share,
                    ahead=ahead,
                    still=how.still,
                )
                for kept, number, share in zip(seen, n_trained, in_time, strict=True)
            ]
            tenants = [_with_salvage(own, view) for own, view in zip(problem.tenants, views, strict=True)]
            problem = replace(problem, tenants=tuple(tenants))
        plan = _proven(problem)
        assert plan is not None  # nothing is required
        total += _goodput(plan)
        trained = {item.name for item in plan.schedules if item.retraining is not None}
        in_time = [_in_time(problem, plan, m) for m in range(len(accuracies))]
        retrained = [own.name in trained for own in problem.tenants]
        n_trained = [number + is_new for number, is_new in zip(n_trained, retrained, strict=True)]
        for kept, drift in zip(seen, instance.drift, strict=True):
            kept.append(drift)
        accuracies = instance.after(window, accuracies, retrained)
    return total


def _with_salvage(tenant: TenantTerms, view: Outlook) -> TenantTerms:
    levels = [tenant.accuracy_before, *(option.accuracy_after for option in tenant.options)]
    n_requests = float(tenant.arrivals_rps.sum() * STEP_S)
    return replace(tenant, salvage=tuple(salvage_of(view, n_requests, tenant.weight, levels)))


def _in_time(problem: Problem, plan: MigPlan, m: int) -> float:
    """The share of a tenant's requests that the plan answers in time."""
    tenants = [
        replace(
            own,
            accuracy_before=1.0,
            salvage=(),
            weight=float(number == m),
            options=tuple(replace(option, accuracy_after=1.0) for option in own.options),
        )
        for number, own in enumerate(problem.tenants)
    ]
    served = verify(replace(problem, tenants=tuple(tenants)), plan).objective
    assert served is not None
    return served / max(float(problem.tenants[m].arrivals_rps.sum() * STEP_S), 1e-9)


@dataclass(frozen=True, slots=True)
class Found:
    """What an instance came to: without salvage, with it by :data:`TRIED`, and the best course."""

    without: float
    with_salvage: tuple[float, ...]
    best: float

    def recovered(self, number: int) -> float:
        """The part of the loss that one of :data:`TRIED` wins back; below 0 where it loses more."""
        return (self.with_salvage[number] - self.without) / (self.best - self.without)


def found_of(seed: int) -> Found | None:
    """The instance's figures; ``None`` where short-sighted plans lose too little."""
    instance = Instance.drawn(seed)
    without, best = followed(instance, None), best_course(instance)
    if best - without <= LEAST_LOSS * best:
        return None
    return Found(without, tuple(map(partial(followed, instance), TRIED)), best)


def main() -> None:
    """Print what each setting wins back, and the best of them on the other half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=300, help="drawn; about a fifth of them count")
    asked = parser.parse_args()
    by_seed: dict[int, Found | None] = {}
    with Processes(n_cores()) as processes:
        for seed, own in processes.each(found_of, range(asked.instances)):
            by_seed[seed] = own
            print(f"\r  {len(by_seed)} of {asked.instances} solved", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    found = [own for _, own in sorted(by_seed.items()) if own is not None]
    if len(found) < 2:
        parser.error(
            f"--instances {asked.instances}: {len(found)} of them count, and each half needs one; ask for more"
        )
    halves = found[: len(found) // 2], found[len(found) // 2 :]
    table = Table(box=box.SIMPLE_HEAD)
    for heading in (
        "windows",
        "retrained prior",
        "still",
        "first half, %",
        "second half, %",
        "of all loss, %",
        "worst, %",
    ):
        table.add_column(heading, justify="right")
    for number, how in enumerate(TRIED):
        first, second = (100 * fmean(own.recovered(number) for own in half) for half in halves)
        won = sum(own.with_salvage[number] - own.without for own in halves[1])
        pooled = 100 * won / sum(own.best - own.without for own in halves[1])
        worst = 100 * min(own.recovered(number) for own in halves[1])
        cells = [f"{how.horizon}", f"{how.retrained_prior:g}", f"{how.still:g}"]
        shown = [*cells, *(f"{value:.1f}" for value in (first, second, pooled, worst))]
        table.add_row(*shown, style="bold" if how == IN_USE else None)
    losses = [100 * (1 - own.without / own.best) for own in found]
    console = Console(width=120, highlight=False)
    console.print(
        f"{len(found)} of {asked.instances} instances count; without salvage they lose {fmean(losses):.1f} % "
        f"of the best course on average, at most {max(losses):.1f} %. Won back of that, mean of instances:"
    )
    console.print(table)


if __name__ == "__main__":
    main()
