"""Policies by name, or from a file of one's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from executor.names import spelled_as
from planner.errors import PlannerError
from planner.plan import MigPlan
from planner.policies.astraea import Astraea
from planner.policies.ekya import Ekya
from planner.policies.fixed import Equal, FixedByWindow, FixedInHindsight
from planner.policies.ours import Migrator, Oracle
from planner.policies.paper.method import MigratorPaper, MigratorPaperCold
from planner.policies.paris import Paris, ParisChanging
from planner.policies.policy import Knows, Policy, Traits, Window
from planner.policies.reactive import Reactive
from planner.policies.shares import SharePolicy
from planner.policies.whole import Whole
from planner.problem import Problem

POLICIES: Mapping[str, Callable[[], Policy | SharePolicy | Whole]] = MappingProxyType(
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
            Ekya,
            Astraea,
            Whole,
        )
    }
)
"""All that ``migrator compare`` knows; to add one, add its class here."""

MIG_POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {name: policy for name, policy in POLICIES.items() if isinstance(policy, type) and issubclass(policy, Policy)}
)
"""Those of them that plan with MIG instances."""


class PolicyError(PlannerError):
    """There is no such policy, or its file cannot be used."""


def policy_of(named: str) -> Policy | SharePolicy | Whole:
    """The policy of that name, in whatever case, or the ``POLICY`` of the Python file that is named.

    Raises:
        PolicyError: One line with the name and what is allowed.
    """
    if named.endswith(".py"):
        return _from_file(named)
    name = spelled_as(named, POLICIES)
    if name not in POLICIES:
        raise PolicyError(f"policy {named!r}: known are {', '.join(POLICIES)}, or a file that ends in .py")
    return POLICIES[name]()


def _from_file(named: str) -> Policy | SharePolicy | Whole:
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
    if isinstance(policy, (Policy, SharePolicy, Whole)):
        return policy
    if not callable(getattr(policy, "plan", None)):
        raise PolicyError(f"policy {named}: POLICY() needs plan, a method that takes a Window")
    return _Adopted(policy)


@dataclass(frozen=True)
class _Adopted(Policy):
    """A policy from a file whose class does not inherit from :class:`Policy`; what it lacks is as there."""

    own: Any

    @property
    def name(self) -> str:
        return str(self.own.name)

    @property
    def knows(self) -> Knows:
        return Knows(self.own.knows)

    @property
    def traits(self) -> Traits:
        traits = getattr(self.own, "traits", None)
        return traits if isinstance(traits, Traits) else super().traits

    def prepared(self, run: Sequence[Problem]) -> Self:
        return replace(self, own=self.own.prepared(run)) if hasattr(self.own, "prepared") else self

    def plan(self, window: Window) -> MigPlan:
        plan: MigPlan = self.own.plan(window)
        return plan
