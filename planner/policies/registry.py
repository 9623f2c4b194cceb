"""Policies by name, or from a file of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from executor.names import did_you_mean, spelled_as
from planner.errors import PolicyError
from planner.policies.astraea import Astraea
from planner.policies.beside import Sgdrc, Sirius
from planner.policies.ekya import Ekya
from planner.policies.mudi import Mudi
from planner.policies.ours import Lookahead, Migrator, Oracle
from planner.policies.own import policy_in
from planner.policies.paper.method import MigratorPaper, MigratorPaperCold
from planner.policies.paris import Paris, ParisChanging
from planner.policies.policy import Policy
from planner.policies.reactive import Reactive
from planner.policies.salus import Salus
from planner.policies.shares import SharePolicy
from planner.policies.static import Equal, FixedByWindow, FixedInHindsight, FixedOnHistory
from planner.policies.time_sharing import TimeSharing
from planner.policies.turns import TurnPolicy
from planner.policies.whole import Whole

POLICIES: Mapping[str, Callable[[], Policy | SharePolicy | TurnPolicy]] = MappingProxyType(
    {
        policy().name: policy
        for policy in (
            Migrator,
            MigratorPaper,
            MigratorPaperCold,
            Paris,
            ParisChanging,
            Reactive,
            FixedByWindow,
            Equal,
            FixedInHindsight,
            FixedOnHistory,
            Oracle,
            Ekya,
            Astraea,
            Whole,
            TimeSharing,
        )
    }
)
"""All that ``migrator compare`` compares by default; to add one, add its class here."""

VARIANTS: Mapping[str, Callable[[], Policy | SharePolicy | TurnPolicy]] = MappingProxyType(
    {
        **{f"lookahead-{ahead_s}": partial(Lookahead.of, ahead_s) for ahead_s in (1, 5, 10, 30, 200)},
        **{f"time-sharing-{percent}": partial(TimeSharing.at_cost, percent) for percent in (0, 10)},
        "salus": Salus,
        "salus-srtf": partial(Salus.by, "srtf"),
        "salus-pack": partial(Salus.by, "pack"),
        "salus-fair": partial(Salus.by, "fair"),
        "sirius": Sirius,
        "sirius-discarding": Sirius.discarding,
        "sgdrc": Sgdrc,
        "mudi": Mudi,
    }
)
"""Others of a kind, and rivals that train beside serving: compared where they are named."""

MIG_POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {name: policy for name, policy in POLICIES.items() if isinstance(policy, type) and issubclass(policy, Policy)}
)
"""Those of them that plan with MIG instances."""


def policy_of(named: str) -> Policy | SharePolicy | TurnPolicy:
    """The policy of that name, in whatever case, or the ``POLICY`` of the Python file that is named.

    Raises:
        PolicyError: One line with the name and what is allowed, or the file and what is wrong with it.
    """
    if named.endswith(".py"):
        return policy_in(named)
    known = {**POLICIES, **VARIANTS}
    name = spelled_as(named, known)
    if name not in known:
        hint = did_you_mean(named, known)
        raise PolicyError(f"policy {named!r}{hint}: known are {', '.join(known)}, or a file that ends in .py")
    return known[name]()
