"""``mudi``: the least share that keeps each tenant's SLO, and what is left for up to three trainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from planner.policies.policy import Batching, Knows, Traits
from planner.policies.shares import (
    QUANTA,
    Answer,
    Batches,
    Moment,
    RetrainingStage,
    SharePolicy,
    Shares,
    ShareTenant,
    Switching,
    filled,
    quanta_for,
)
from planner.policies.worth import best_answer
from planner.problem import Owner
from workloads.profiles.operating_point import BATCHES_PER_SLO

N_TRIALS = 4
"""How often each size of batches is tried: 24 trials of the paper's six, where it needs up to 25."""

Tried = TypeVar("Tried")


def best_tried(choices: Sequence[Tried], trial: Callable[[Tried], float], n_trials: int = N_TRIALS) -> Tried:
    """The choice whose trials, so many of each, have the least mean; of equal ones the first."""
    means = [fmean(trial(choice) for _ in range(n_trials)) for choice in choices]
    return choices[means.index(min(means))]


@dataclass(frozen=True)
class Mudi(SharePolicy):
    """Sets inference to the least share that keeps its SLO, and trainings to the rest in equal parts.

    Source: Chen et al., "Mudi" (EuroSys '25), §5.3 and §5.5. Of arrivals W, batches of b and latency P(b, share) beside
    the trainings that are to run: the share is the least with W/b · P ≤ 1 and 2P ≤ SLO, 10 % more (§5.3.2). Up to three
    trainings have what is left in equal parts (§5.5). It decides anew when a tenant's rate has changed by half since,
    or a training comes or ends; shadow processes take over once they are ready; where no share keeps the SLO, training
    is paused (§5.3.2).
    Knows: the last seconds' arrivals; nothing of accuracy.
    Read otherwise than printed: equation 4, W/b · P ≤ SLO, holds a part of time against seconds. A request waits for
    the batch before its own, at most P here, where batches gather while the one before is served.
    Batches: the size with the least mean iteration time of the trainings, each tried ``N_TRIALS`` times; the paper has
    a Gaussian process, which gains 0.3 % of an iteration with 5 % of noise (``benchmarks.seeds.mudi``). Here an
    iteration takes what its share says. So one trial says all, and trials cost nothing: kind to it.
    Given beyond the paper, which has one inference service a GPU: each of several tenants by the same rule; several
    processes where that needs less; a retraining that is due goes first, and keeps a twentieth where an SLO is lost;
    where nothing trains, inference has all; where not all SLOs can be kept, shares are in proportion to the needs. Of
    several ways to retrain, and, not as published, of turns and shares side by side, those are taken with which its
    shares are expected to be worth most.
    Not built: memory that is swapped (§5.6). All is resident.

    Attributes:
        n_seen: Seconds over which rates are taken; the paper does not say.
        change: By which part of itself a rate changes until it decides anew.
        margin: By which part the share is larger than the least.
        most_trainings: How many run at once at most.
    """

    name: str = "mudi"
    knows: Knows = Knows.PAST
    traits: Traits = field(default=Traits(batching=Batching.OWN))
    switching: Switching = Switching.SHADOW
    period_s: int | None = 1
    n_seen: int = 10
    change: float = 0.5
    margin: float = 0.1
    most_trainings: int = 3

    def reconsiders(self, moment: Moment) -> bool:
        """Whether a tenant's rate has changed by half since it last decided, or which retrainings there are."""
        if moment.decided is None or _named(_to_train(moment)) != _named(_to_train(moment.decided)):
            return True
        then, now = self._rates(moment.decided), self._rates(moment)
        return any(abs(new - old) > self.change * old for old, new in zip(then, now, strict=True))

    def answer(self, moment: Moment) -> Answer:
        """Its shares and batches, for the ways to retrain and to share with which they are worth most."""
        found = best_answer(moment, self.shares, self._rates(moment))
        settled = moment.if_settled(found.options, in_turns=found.in_turns)
        return replace(found, batches=self._divided(settled).batches)

    def shares(self, moment: Moment) -> Shares:
        """The least shares that keep the SLOs beside as many trainings as leave them, and the rest for these."""
        return self._divided(moment).shares

    def _rates(self, moment: Moment) -> list[float]:
        """Arrivals a second by tenant."""
        rates: list[float] = moment.past_rps[-self.n_seen :].mean(axis=0).tolist()
        return rates

    def _divided(self, moment: Moment) -> Answer:
        training = _to_train(moment)
        room = min(QUANTA - len(moment.tenants), self.most_trainings)
        most = min(len(training), room)
        least = min(sum(tenant.is_due for tenant in training), room)
        for n_training in range(most, least - 1, -1):
            needs = self._needs(moment, n_training)
            for margin in (self.margin, 0.0) if n_training == least else (self.margin,):
                serving = {owner: need.quanta(margin) for owner, need in needs.items()}
                if all(need.is_met for need in needs.values()) and sum(serving.values()) <= QUANTA - n_training:
                    return _divided(needs, serving, training[:n_training])
        needs = self._needs(moment, least)
        wanted = {owner: need.least for owner, need in needs.items()}
        return _divided(needs, filled(wanted, dict.fromkeys(wanted, 1), QUANTA - least), training[:least])

    def _needs(self, moment: Moment, n_training: int) -> dict[Owner, _Need]:
        """What each tenant's inference needs beside so many trainings, in the batches that leave these most."""
        rates = zip(moment.tenants, self._rates(moment), strict=True)
        return {
            tenant.inference: best_tried([_need(tenant, own, rps, n_training) for own in tenant.batches], _taken, 1)
            for tenant, rps in rates
        }


@dataclass(frozen=True)
class _Need:
    """The least share on which batches of one size keep a tenant's SLO.

    Attributes:
        batches: The size.
        least: Quanta, with fractions; all where no share does.
        lacks: What batches take on all of the GPU, over what they may; > 1 where no share keeps the SLO.
    """

    batches: Batches
    least: float
    lacks: float

    @property
    def is_met(self) -> bool:
        return self.lacks <= 1.0

    def quanta(self, margin: float) -> int:
        """The least, more by this share, in whole quanta."""
        return max(1, min(QUANTA, math.ceil(self.least * (1 + margin) - 1e-9)))


def _need(tenant: ShareTenant, batches: Batches, rate_rps: float, n_training: int) -> _Need:
    longer = tenant.slowdown_while(n_training)
    wanted = longer * max(rate_rps / (batches.most * batches.processes), BATCHES_PER_SLO / tenant.slo_s)
    return _Need(batches, quanta_for(batches.speed, wanted), wanted / float(batches.speed[QUANTA]))


def _taken(need: _Need) -> float:
    """What iterations of the trainings hang on: the quanta that inference takes. Where no SLO is kept, it is more."""
    return need.least if need.is_met else QUANTA * need.lacks


def _to_train(moment: Moment) -> list[ShareTenant]:
    """Whose retraining waits or runs: those that are due first, then those that run."""
    return sorted(
        (tenant for tenant in moment.tenants if tenant.is_to_retrain),
        key=lambda tenant: (not tenant.is_due, tenant.stage is not RetrainingStage.RUNNING),
    )


def _named(tenants: Sequence[ShareTenant]) -> set[str]:
    return {tenant.name for tenant in tenants}


def _divided(needs: Mapping[Owner, _Need], serving: Mapping[Owner, int], training: Sequence[ShareTenant]) -> Answer:
    """These shares of inference, and the rest in equal parts for the trainings; without any, for inference by need."""
    batches = {owner.tenant: need.batches for owner, need in needs.items()}
    if not training:
        return Answer(
            filled({owner: need.least for owner, need in needs.items()}, dict(serving), QUANTA), batches=batches
        )
    each, more = divmod(QUANTA - sum(serving.values()), len(training))
    parts = {tenant.retraining: each + (place < more) for place, tenant in enumerate(training)}
    return Answer({**serving, **parts}, batches=batches)
