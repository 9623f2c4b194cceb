"""What a run is about: one value, made of a config by :mod:`migrator.inputs.assembly`, taken by plans and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from executor.mig import GpuModel
from forecaster.forecast import Forecaster
from migrator.config.sections import Config
from workloads.profiles.operating_point import OperatingPoint, point_of
from workloads.profiles.pool_points import JointPoints
from workloads.profiles.shares import TURN_COST
from workloads.profiles.table import ServiceProfiles
from workloads.tenants import Tenant


@dataclass(frozen=True)
class Setting:
    """All that a run is about, before it has a GPU, and apart from its traffic.

    Attributes:
        config: As resolved: every scale's method and factor stand in it.
        gpu: The GPU model.
        tenants: In the config's order, as everywhere.
        known_tenants: The same with the batch latencies and rates that planning takes theirs for; what runs is
            ``tenants``.
        forecaster: As configured; ``None`` where the config asks for hindsight.
        profiles: The table that the operating points came from.
        warnings: What is doubtful of the inputs, a sentence each.
    """

    config: Config
    gpu: GpuModel
    tenants: tuple[Tenant, ...]
    known_tenants: tuple[Tenant, ...]
    forecaster: Forecaster | None
    profiles: ServiceProfiles
    warnings: tuple[str, ...] = ()

    @property
    def turn_cost(self) -> float:
        """By which share a turn lasts longer that follows another tenant's: as configured, else the dearest measured.

        It is one figure for all instances. A tenant that may share and was not measured counts with :data:`TURN_COST`.
        """
        given = self.config.sharing.turn_cost
        costs = self.measured_turn_costs.values()
        return given if given is not None else max((TURN_COST if t is None else t for t in costs), default=TURN_COST)

    @property
    def measured_turn_costs(self) -> Mapping[str, float | None]:
        """What was measured of a turn, the dearest of each tenant that may share; ``None`` where nothing was."""
        sharing = self.config.sharing
        apart = {pool[0] for pool in sharing.listed or () if len(pool) == 1}
        return {
            tenant.name: max((row.turn_cost for row in tenant.rows if row.turn_cost is not None), default=None)
            for tenant in self.tenants
            if sharing.may_pool and not tenant.alone and tenant.name not in apart
        }

    @cached_property
    def joint_points(self) -> JointPoints:
        """How pools are served, as planning takes it; what runs has the same batches and processes."""
        return JointPoints(self.gpu, self.known_tenants, self.turn_cost)

    def joint_servings(self, members: Sequence[str]) -> Mapping[str, Mapping[str, OperatingPoint]]:
        """How an instance really serves each member of a pool, by profile: in the batches that planning chose."""
        found = self.joint_points.of(members)
        rows = {tenant.name: {row.key: row for row in tenant.rows} for tenant in self.tenants if tenant.name in members}
        return {
            profile: {name: point_of(rows[name][point.row.key], rows[name].values()) for name, point in points.items()}
            for profile, points in found.by_member.items()
        }
