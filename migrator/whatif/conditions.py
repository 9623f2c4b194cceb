"""What is to be kept, ``goodput>=0.8`` or ``slo_attainment:vision>=0.99``, and whether the plan of a point keeps it.

Everything here is *planned*: what plans promise, not what a simulation answers. A plan that keeps a condition shows
that it can be kept. One that does not is the last word only where nothing better can be had: where its bound on goodput
lies below what is asked, or where it is proven best. Else nothing is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from migrator.errors import GridError
from migrator.whatif.grid import shown
from migrator.whatif.sweep import Outcome
from planner.plan import OPTIMAL_GAP, Status

METRICS = ("goodput", "slo_attainment")
"""Shares of the expected arrivals: in time and right, and in time."""

_TEXT = re.compile(r"\s*(\w+)\s*(?::\s*([^<>=\s]+)\s*)?(>=|<=)\s*([0-9.eE+-]+)\s*(%?)\s*")

_EPS = 1e-9


class Verdict(StrEnum):
    """Whether a condition is kept at a point."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Condition:
    """A share that is to be kept.

    Attributes:
        metric: One of ``METRICS``.
        tenant: Whose; ``None`` for all together.
        sign: In which direction.
        share: From 0 to 1.
    """

    metric: str
    tenant: str | None
    sign: Literal[">=", "<="]
    share: float

    def __str__(self) -> str:
        return f"{self.metric}{'' if self.tenant is None else f':{self.tenant}'}{self.sign}{self.share:g}"

    def value(self, outcome: Outcome) -> float | None:
        """What the plan of a point promises, as a share; ``None`` where it cannot be told."""
        found: float | None
        if self.tenant is None:
            found = outcome.goodput_pct if self.metric == "goodput" else outcome.slo_attainment_pct
        else:
            own = next((item for item in outcome.tenants if item.name == self.tenant), None)
            shares = (None, None) if own is None else (own.goodput_pct, own.slo_attainment_pct)
            found = shares[METRICS.index(self.metric)]
        return None if found is None else found / 100

    def verdict(self, outcome: Outcome) -> Verdict:
        """Whether the plan of a point keeps it, as far as that plan shows."""
        if outcome.status == Status.INFEASIBLE:
            return Verdict.FAILS
        value = self.value(outcome)
        if value is None:
            return Verdict.NOT_SHOWN
        is_of_all = self.metric == "goodput" and self.tenant is None
        most = outcome.bound / outcome.arrivals if is_of_all and outcome.bound and outcome.arrivals else None
        if self.sign == "<=" and most is not None:
            # A better plan would have more, so the bound has to keep it.
            return _first(most <= self.share + _EPS, value > self.share + _EPS)
        holds = value >= self.share - _EPS if self.sign == ">=" else value <= self.share + _EPS
        is_last_word = outcome.gap is not None and outcome.gap <= OPTIMAL_GAP
        return _first(holds, is_last_word or (most is not None and most < self.share - _EPS))


def _first(holds: bool, fails: bool) -> Verdict:
    return Verdict.HOLDS if holds else Verdict.FAILS if fails else Verdict.NOT_SHOWN


def verdict_of(conditions: Sequence[Condition], outcome: Outcome) -> Verdict:
    """Whether all of them are kept: fails if one does, else not shown if one is not."""
    found = [condition.verdict(outcome) for condition in conditions]
    return next((one for one in (Verdict.FAILS, Verdict.NOT_SHOWN) if one in found), Verdict.HOLDS)


def read_conditions(texts: Sequence[str], tenant_names: Sequence[str]) -> tuple[Condition, ...]:
    """The conditions of ``--keep`` arguments.

    Raises:
        GridError: None is given, or one that is no condition, or of an unknown metric or tenant, or of no share.
    """
    if not texts:
        raise GridError("--find needs at least one --keep, such as --keep 'goodput>=0.8'")
    return tuple(_read(text, tenant_names) for text in texts)


def _read(text: str, tenant_names: Sequence[str]) -> Condition:
    option = f"--keep {shown(text)}"
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise GridError(f"{option}: METRIC>=SHARE or METRIC<=SHARE is needed, such as 'goodput:NAME>=0.8'")
    metric, tenant, sign, number, percent = parts.groups()
    if metric not in METRICS:
        raise GridError(f"{option}: {metric} is no metric; those are {', '.join(METRICS)}")
    if tenant is not None and tenant not in tenant_names:
        raise GridError(f"{option}: {tenant} is no tenant; those are {', '.join(tenant_names)}")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise GridError(f"{option}: a share from 0 to 1 is needed, such as 0.8 or 80%")
    return Condition(metric, tenant, ">=" if sign == ">=" else "<=", share)
