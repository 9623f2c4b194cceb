"""``ekya``: the thief scheduler, which moves shares to the task that gains most over the window."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.policies.policy import Batching, Knows, Traits
from planner.policies.shares import QUANTA, Moment, SharePolicy, Shares, ShareTenant, Switching
from planner.problem import Owner


@dataclass(frozen=True)
class Ekya(SharePolicy):
    """Divides processors for the best goodput of the window, anew when it begins and when a retraining ends.

    Source: Bhardwaj et al., "Ekya" (NSDI '22), as the MIGRator paper describes it (§5.1, §5.2: MPS; "adjusts SM
    allocations for both inference and retraining tasks at the start and end of retraining processes", aware of what
    retraining gains, not of how arrivals change). We do not have its text. Taken from it, from memory: the thief,
    which begins with equal shares and lets every task in turn steal a quantum from every other while the estimate for
    the window grows; micro-profiled accuracies, here the estimates that all policies get, and MPS.
    Knows: as published the mean arrivals of as many seconds as are left, just past; else the forecast's mean.
    Adaptations: the objective is goodput, not accuracy alone, so that requests that are not served count. Thefts are
    tried by the best gain, of one to four quanta. There is one way to retrain, as configs have it. A retraining may be
    left without a share, and then the old model serves on; it knows what interference that saves (not as published).
    As published processes restart with their new share, else
    new ones start beside the old.
    """

    name: str = "ekya"
    knows: Knows = Knows.FORECAST
    traits: Traits = field(default=Traits(batching=Batching.GIVEN))
    switching: Switching = Switching.RESTART
    period_s: int | None = None

    def shares(self, moment: Moment) -> Shares:
        """What the thief ends with."""
        known = moment.past_rps[-max(1, round(moment.left_s)) :] if moment.as_published else moment.ahead_rps
        mean_rps = known.mean(axis=0)
        tasks = [tenant.inference for tenant in moment.tenants]
        tasks += [tenant.retraining for tenant in moment.tenants if tenant.is_to_retrain]
        held = dict.fromkeys(tasks, QUANTA // len(tasks))
        for spare in range(QUANTA - sum(held.values())):
            held[tasks[spare % len(tasks)]] += 1
        value = _goodput(moment, mean_rps.tolist(), held)
        while True:
            better = max(
                (
                    (_goodput(moment, mean_rps.tolist(), stolen), number, stolen)
                    for number, stolen in enumerate(_thefts(moment.tenants, held))
                ),
                key=lambda item: (item[0], -item[1]),
                default=None,
            )
            if better is None or better[0] <= value + 1e-9 * abs(value):
                return held
            value, _, held = better


def _thefts(tenants: tuple[ShareTenant, ...], held: dict[Owner, int]) -> list[dict[Owner, int]]:
    """Every way in which one task takes one to four quanta from another; inference keeps one."""
    least = {tenant.inference: 1 for tenant in tenants}
    return [
        {**held, thief: held[thief] + quanta, victim: held[victim] - quanta}
        for thief in held
        for victim in held
        for quanta in range(1, 5)
        if thief != victim and held[victim] - quanta >= least.get(victim, 0)
    ]


def _goodput(moment: Moment, mean_rps: list[float], held: dict[Owner, int]) -> float:
    """Expected requests right and in time to the window's end; shares of ended retrainings go back to their tenant.

    As published every retraining is taken to disturb the others to the end, run or not.
    """
    ends_s = [_end_s(tenant, held, moment.left_s) for tenant in moment.tenants]
    total, begin_s = 0.0, 0.0
    for end_s in sorted({*(min(end_s, moment.left_s) for end_s in ends_s if end_s > 0), moment.left_s}):
        n_training = sum(own_s > begin_s for own_s in ends_s)
        for tenant, rate_rps, own_s in zip(moment.tenants, mean_rps, ends_s, strict=True):
            has_ended = 0 < own_s <= begin_s
            quanta = held[tenant.inference] + (held[tenant.retraining] if has_ended else 0)
            rates = tenant.rate_rps if moment.as_published else tenant.rate_while(n_training)
            accuracy = tenant.accuracy_after if has_ended else tenant.accuracy_before
            total += tenant.weight * accuracy * min(rate_rps, float(rates[quanta])) * (end_s - begin_s)
        begin_s = end_s
    return total


def _end_s(tenant: ShareTenant, held: dict[Owner, int], left_s: float) -> float:
    """When its retraining ends, the window's end at the latest + 1; 0 where none runs."""
    quanta = held.get(tenant.retraining, 0)
    if not tenant.is_to_retrain or quanta == 0 or tenant.training_rate[quanta] <= 0:
        return 0.0
    end_s = (1 - tenant.done) / float(tenant.training_rate[quanta])
    return end_s if end_s < left_s else left_s + 1
