"""The answer of ``migrator cluster plan``: as JSON, and read back to be checked or to begin from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from migrator.cluster.posing import Planned
from migrator.config.cluster import ClusterConfig
from planner.cluster.fleet import Assignment, Fleet, FleetBound, Unplaced
from planner.errors import PlanFileError
from planner.files.strict import Number, StrictModel, Text, read_document, told_of, validated
from planner.plan import Status, gap_between, status_of
from planner.verify.verification import TOLERANCE


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """An assignment whose sets are planned in full.

    Attributes:
        fleet: What was assigned.
        found: The assignment; its worths are those of the full plans.
        planned: By GPU what its plan comes to; ``None`` where it has no tenants, or cannot serve them.
        has_pools: Whether tenants may share instances: no bound is known then.
    """

    fleet: Fleet
    found: Assignment
    planned: tuple[Planned | None, ...]
    has_pools: bool

    @property
    def expected(self) -> tuple[float, ...]:
        """By GPU what its plan is expected to answer in time and right in the window."""
        return tuple(0.0 if one is None else one.expected for one in self.planned)

    @property
    def unserved(self) -> tuple[str, ...]:
        """Tenants on no GPU, or on one that cannot serve all that it has."""
        pairs = zip(self.found.sets, self.planned, strict=True)
        return (
            *(one.tenant for one in self.found.unplaced),
            *(name for own, one in pairs if one is None for name in own),
        )

    @property
    def bound(self) -> float | None:
        """What no assignment exceeds; ``None`` where that is not known."""
        return None if self.has_pools else self.found.bound.value

    @property
    def gap(self) -> float | None:
        """(bound − worth) / bound."""
        return gap_between(self.bound, self.found.worth)

    @property
    def status(self) -> Status:
        """``optimal``, ``feasible``, or ``infeasible`` where a tenant is not served."""
        return _status(self.found.worth, self.bound, serves_all=not self.unserved)

    @property
    def shortfall(self) -> str | None:
        """A tenant that is not served, and why; ``None`` where all are."""
        for one in self.found.unplaced:
            return f"tenant {one.tenant} is on no GPU: {one.reason}"
        return next((f"tenant {name} is on a GPU that cannot serve all that it has" for name in self.unserved), None)


def _status(worth: float, bound: float | None, *, serves_all: bool) -> Status:
    served = Status.FEASIBLE if bound is None else status_of(worth, bound)
    return served if serves_all else Status.INFEASIBLE


def plan_to_json(cluster: ClusterConfig, plan: ClusterPlan) -> dict[str, object]:
    """The answer's document; ``prices`` are what ``bound_exclusive`` is recomputed from."""
    found = plan.found
    by_gpu = zip(cluster.gpus, found.sets, found.worths, plan.expected, strict=True)
    return {
        "schema": 1,
        "status": plan.status,
        "worth": found.worth,
        "bound": plan.bound,
        "gap": plan.gap,
        "bound_exclusive": found.bound.value,
        "expected_goodput": sum(plan.expected),
        "gpus": [
            {
                "name": gpu.name,
                "model": gpu.config.model,
                "node": gpu.node,
                "tenants": list(members),
                "worth": worth,
                "expected_goodput": expected,
            }
            for gpu, members, worth, expected in by_gpu
        ],
        "unplaced": [{"tenant": one.tenant, "reason": one.reason} for one in found.unplaced],
        "moved": list(found.moved),
        "evaluations": found.evaluations,
        "columns": found.columns,
        "prices": [[list(pair) for pair in own] for own in found.bound.prices],
    }


class _GpuEntry(StrictModel):
    name: Text
    model: Text
    node: Text
    tenants: list[Text]
    worth: Number
    expected_goodput: Number


class _UnplacedEntry(StrictModel):
    tenant: Text
    reason: Text


class PlanFile(StrictModel):
    """A file of ``migrator cluster plan``."""

    schema_: Annotated[int, Field(alias="schema", ge=1, le=1)]
    status: Text
    worth: Number
    bound: Number | None
    gap: Number | None
    bound_exclusive: Number
    expected_goodput: Number
    gpus: list[_GpuEntry]
    unplaced: list[_UnplacedEntry]
    moved: list[Text]
    evaluations: int
    columns: int
    prices: list[list[tuple[Number, Number]]]

    @property
    def sets(self) -> dict[str, list[str]]:
        """By GPU its tenants."""
        return {one.name: one.tenants for one in self.gpus}


def read_plan_file(path: Path) -> PlanFile:
    """The file in ``path``.

    Raises:
        PlanFileError: It cannot be read as one.
    """
    document = read_document(path, PlanFileError)
    with told_of(str(path), PlanFileError):
        return validated(PlanFile, document, PlanFileError)


def assignment_in(file: PlanFile) -> Assignment:
    """The assignment that the file says; its GPUs are in the file's order."""
    return Assignment(
        sets=tuple(tuple(sorted(one.tenants)) for one in file.gpus),
        worths=tuple(one.worth for one in file.gpus),
        bound=FleetBound(file.bound_exclusive, tuple(tuple(own) for own in file.prices)),
        unplaced=tuple(Unplaced(one.tenant, one.reason) for one in file.unplaced),
        evaluations=file.evaluations,
        columns=file.columns,
        moved=tuple(file.moved),
    )


def wrong_totals(
    file: PlanFile, cluster: ClusterConfig, expected: Sequence[float | None], *, has_pools: bool
) -> list[str]:
    """What is wrong with the file's GPUs and sums, a sentence each; ``expected`` is what plans made anew promise."""
    said = [f"{one.name} on {one.node}, {one.model}" for one in file.gpus]
    known = [f"{gpu.name} on {gpu.node}, {gpu.config.model}" for gpu in cluster.gpus]
    if said != known:
        return [f"the GPUs are {'; '.join(said)}; the config has {'; '.join(known)}"]
    bound = None if has_pools else file.bound_exclusive
    worth = sum(one.worth for one in file.gpus)
    claims: Mapping[str, tuple[str | float | None, str | float | None]] = {
        "status": (file.status, _status(worth, bound, serves_all=not file.unplaced)),
        "worth": (file.worth, worth),
        "bound": (file.bound, bound),
        "gap": (file.gap, gap_between(bound, worth)),
        "expected_goodput": (file.expected_goodput, sum(one.expected_goodput for one in file.gpus)),
        **{
            f"gpus.{one.name}.expected_goodput": (one.expected_goodput, own)
            for one, own in zip(file.gpus, expected, strict=True)
            if own is not None
        },
    }
    return [
        f"{key} is {claimed}; recomputed {own}" for key, (claimed, own) in claims.items() if not _alike(claimed, own)
    ]


def _alike(claimed: str | float | None, own: str | float | None) -> bool:
    if not isinstance(claimed, float) or not isinstance(own, float):
        return claimed == own
    return abs(claimed - own) <= TOLERANCE * max(1.0, abs(own))
