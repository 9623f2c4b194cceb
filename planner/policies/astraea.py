"""``astraea``: shares follow load and compute intensity, second by second."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from planner.policies.policy import Batching, Knows, Traits
from planner.policies.shares import (
    QUANTA,
    Answer,
    Moment,
    SharePolicy,
    Shares,
    ShareTenant,
    Switching,
    filled,
    least_shares,
    quanta_for,
)
from planner.policies.worth import best_answer
from planner.problem import Owner


@dataclass(frozen=True)
class Astraea(SharePolicy):
    """Sets each task's share to the one that its load and compute intensity ask for, anew every second.

    Source: Zhang et al., "Astraea" (ASPLOS '22), as the MIGRator paper describes it (§5.1, §5.2: MPS; "dynamically
    allocates SMs among tasks", "based on the compute intensity"; "could allocate more resources to retraining tasks
    based on the retraining compute intensity", "not aware of the benefits"). We do not have its text. Taken from it:
    inference gets what its load needs within the SLO, tasks of more work get more, changes are frequent and cheap.
    Knows: the last seconds' arrivals, which say more of the next second than a window's forecast; nothing of accuracy.
    Adaptations: inference comes first. What it needs is the least share whose rate carries the expected load with
    ``headroom``. Retrainings have a floor each, more where one is due and would not end with it, and what inference
    leaves, in proportion to what would end them in the window. If inference needs more than the floors leave, its needs
    shrink alike; where nothing trains, they are filled up alike. Processes of every share are ready (a pool, as the
    authors' earlier Laius has), so that changes cost nothing: kinder than real, as their memory is not counted.
    Chosen for it, by accuracies that it does not look at: where tenants have several ways to retrain, those with which
    its shares are expected to be worth most to the window's end and beyond; and, not as published, whether shares are
    of the processors, side by side, or of the time of the whole GPU, where tasks take turns and disturb no other.
    Parameters: fixed on the first halves of the traces (docs/policies.md).

    Attributes:
        n_seen: Seconds over which the load is taken.
        headroom: By how much the share's rate is to exceed the expected load.
        floor: Twentieths that every retraining has, fewer where there are too many.
    """

    name: str = "astraea"
    knows: Knows = Knows.PAST
    traits: Traits = field(default=Traits(batching=Batching.GIVEN))
    switching: Switching = Switching.POOL
    period_s: int | None = 1
    n_seen: int = 1
    headroom: float = 2.0
    floor: int = 7

    def answer(self, moment: Moment) -> Answer:
        """Its shares, for the ways to retrain and to share with which they are worth most."""
        return best_answer(moment, self.shares, moment.past_rps[-self.n_seen :].mean(axis=0).tolist())

    def shares(self, moment: Moment) -> Shares:
        """Inference's needs, and the rest for retrainings."""
        expected_rps = (self.headroom * moment.past_rps[-self.n_seen :].mean(axis=0)).tolist()
        pairs = zip(moment.tenants, expected_rps, strict=True)
        serving = {tenant.inference: quanta_for(tenant.rate_rps, rate_rps) for tenant, rate_rps in pairs}
        training = {
            one.retraining: _retraining_share(one, moment.left_s) for one in moment.tenants if one.is_to_retrain
        }
        floors = self._floors(moment, training)
        left = QUANTA - sum(floors.values())
        wanted = {owner: max(1, math.ceil(need)) for owner, need in serving.items()}
        if not training or sum(wanted.values()) > left:
            return filled(serving, dict.fromkeys(serving, 1), left) | floors
        return wanted | filled(training, floors, QUANTA - sum(wanted.values()))

    def _floors(self, moment: Moment, training: Collection[Owner]) -> dict[Owner, int]:
        """What every retraining has, where inference keeps a twentieth each; what is due has more if it needs it."""
        room, least = QUANTA - len(moment.tenants), least_shares(moment)
        for floor in range(self.floor, 0, -1):
            floors = {owner: max(floor, least[owner]) for owner in training}
            if sum(floors.values()) <= room:
                return floors
        return {owner: least[owner] for owner in training}


def _retraining_share(tenant: ShareTenant, left_s: float) -> float:
    """Quanta that end the retraining with the window."""
    return quanta_for(tenant.training_rate, (1 - tenant.done) / max(left_s, 1.0))
