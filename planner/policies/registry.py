"""Policies by name, or from a file of one's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from planner.errors import PlannerError
from planner.policies.astraea import Astraea
from planner.policies.ekya import Ekya
from planner.policies.equal import Equal
from planner.policies.fixed import FixedInHindsight
from planner.policies.oracle import Oracle
from planner.policies.ours import Migrator
from planner.policies.paper.method import MigratorPaper, MigratorPaperCold
from planner.policies.paris import Paris, ParisChanging
from planner.policies.policy import Knows, Policy
from planner.policies.reactive import Reactive
from planner.policies.shares import SharePolicy
from planner.policies.whole import Whole
from planner.policies.window import FixedByWindow

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
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
            Oracle,
        )
    }
)
"""Every policy that plans with MIG; to add one, add its class here."""

SHARE_POLICIES: Mapping[str, Callable[[], SharePolicy]] = MappingProxyType(
    {policy().name: policy for policy in (Ekya, Astraea)}
)
"""Every policy that divides the GPU without partitions."""

POLICY_NAMES = (*POLICIES, *SHARE_POLICIES, Whole().name)
"""All that ``migrator compare`` knows."""


class PolicyError(PlannerError):
    """There is no such policy, or its file cannot be used."""


def policy_of(named: str) -> Policy | SharePolicy | Whole:
    """The policy of that name, or the ``POLICY`` of the Python file that is named.

    Raises:
        PolicyError: One line with the name and what is allowed.
    """
    if not named.endswith(".py"):
        if named in SHARE_POLICIES:
            return SHARE_POLICIES[named]()
        if named == Whole().name:
            return Whole()
        if named not in POLICIES:
            raise PolicyError(f"policy {named!r}: known are {', '.join(POLICY_NAMES)}, or a file that ends in .py")
        return POLICIES[named]()
    path = Path(named)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PolicyError(f"policy {named}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        policy = module.POLICY()
    except Exception as error:
        raise PolicyError(f"policy {named}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(getattr(policy, "knows", None), Knows) or not isinstance(getattr(policy, "name", None), str):
        raise PolicyError(f"policy {named}: POLICY() needs a name, a str, and knows, a Knows")
    return cast("Policy | SharePolicy", policy)
