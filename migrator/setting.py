"""What a run is about: one value, which :mod:`migrator.inputs` makes of a config, and which plans and runs take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from executor.mig import GpuModel
from forecaster.forecast import Forecaster
from migrator.config import Config
from workloads.profiles.operating_point import OperatingPoint, point_of
from workloads.profiles.pool_points import JointPoints
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

    @cached_property
    def joint_points(self) -> JointPoints:
        """How pools are served, as planning takes it; what runs has the same batches and processes."""
        return JointPoints(self.gpu, self.known_tenants, self.config.sharing.turn_cost)

    def joint_servings(self, members: Sequence[str]) -> Mapping[str, Mapping[str, OperatingPoint]]:
        """How an instance really serves each member of a pool, by profile: in the batches that planning chose."""
        found = self.joint_points.of(members)
        rows = {tenant.name: {row.key: row for row in tenant.rows} for tenant in self.tenants if tenant.name in members}
        return {
            profile: {name: point_of(rows[name][point.row.key], rows[name].values()) for name, point in points.items()}
            for profile, points in found.by_member.items()
        }
