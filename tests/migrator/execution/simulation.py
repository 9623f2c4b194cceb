"""Whole simulated runs of a policy, and what their logs tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from migrator.comparison.matches import Fairness, simulated
from migrator.execution.loop import View
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records as recorded
from migrator.log.account import Account, SecondAccounts, accounts
from migrator.log.runlog import ReadLog
from planner.policies.policy import AnyPolicy
from workloads.serving.tally import COUNTED, Totals

Assembled = tuple[Setting, RecordedTraffic]


def run_of(assembled: Assembled, policy: AnyPolicy, *, as_published: bool = False) -> Run:
    fairness = Fairness.AS_PUBLISHED if as_published else Fairness.POLICY_ONLY
    return Run(simulated(*assembled, policy, View(), fairness))


@dataclass(frozen=True)
class Run:
    """A run by its log."""

    log: ReadLog

    @property
    def totals(self) -> list[Totals]:
        """Requests of all tenants by window."""
        finished = self.log.of(recorded.WindowFinished)
        return [sum(map(_totals, event.tenants.values()), Totals()) for event in finished]

    @cached_property
    def accounts(self) -> Mapping[str, SecondAccounts]:
        """Where each tenant's requests went."""
        return accounts(self.log)

    @property
    def account(self) -> Account:
        """Where all tenants' requests went."""
        return sum((own.total for own in self.accounts.values()), Account())

    @property
    def retrainings(self) -> Sequence[recorded.Finished]:
        """Those that ended, in order."""
        return self.log.of(recorded.Finished)

    @property
    def n_share_changes(self) -> int:
        """How often shares came into force, the first time excepted."""
        return len(self.log.of(recorded.Shares)) - 1


def _totals(counts: recorded.Counts) -> Totals:
    return Totals(*(sum(getattr(counts, name)) for name in COUNTED))
