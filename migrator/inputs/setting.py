"""What a run is about: one value, made of a config by :mod:`migrator.inputs.assembly`, taken by plans and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from executor.mig import GpuModel
from forecaster.forecast import Forecaster
from migrator.config.sections import Config
from workloads.profiles.knee import Knee
from workloads.profiles.operating_point import OperatingPoint, point_of
from workloads.profiles.pool_points import JointPoints, lends
from workloads.profiles.share_table import ShareTable
from workloads.profiles.shares import TURN_COST, Sensitivity, sensitivity_of
from workloads.profiles.table import ServiceProfiles
from workloads.tenants import Tenant


@dataclass(frozen=True)
class Setting:
    """All that a run is about, before it has a GPU, and apart from its traffic.

    Attributes:
        config: As resolved, with every scale's method and factor.
        gpu: The GPU model.
        tenants: In the config's order, as everywhere.
        known_tenants: The same with the batch latencies and rates that planning takes theirs for; what runs is
            ``tenants``.
        forecaster: As configured; ``None`` where the config asks for hindsight.
        profiles: The table that the operating points came from.
        warnings: What is doubtful of the inputs, a sentence each.
        shares: What was measured on shares of the GPU; ``None`` where the config names no such table.
    """

    config: Config
    gpu: GpuModel
    tenants: tuple[Tenant, ...]
    known_tenants: tuple[Tenant, ...]
    forecaster: Forecaster | None
    profiles: ServiceProfiles
    warnings: tuple[str, ...] = ()
    shares: ShareTable | None = None

    @property
    def weights_mib(self) -> tuple[float, ...] | None:
        """By tenant, what its model's weights take; ``None`` where the profiles do not tell all of them."""
        rows = [self.profiles.with_memory(self.gpu.name, tenant.model)[0] for tenant in self.tenants]
        known = [row.weights_mib for row in rows if row.weights_mib is not None]
        return tuple(known) if len(known) == len(rows) else None

    def knees(self, model: str) -> Mapping[int, Knee]:
        """Seconds of a batch of the model by share, by batch; empty where no shares were measured."""
        return {} if self.shares is None else self.shares.knees(model)

    def sensitivity(self, model: str) -> Sensitivity:
        """What neighbours cost the model: as measured on shares, else as Mudi prints it."""
        printed = sensitivity_of(model)
        if self.shares is None:
            return printed
        trainers = [tenant.model for tenant in self.tenants if tenant.retraining_time_s]
        return self.shares.sensitivity(model, printed, trainers)

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

    def may_lend(self, profile: str, tenant: str) -> bool:
        """Whether an instance that all tenants serve in has memory for this one's trainer beside them.

        Both are there while the trainer starts up. What is not known counts as in
        :func:`workloads.profiles.pool_points.memory_mib`; an instance that does not serve them lends nothing.
        """
        points = self.joint_points.of([one.name for one in self.known_tenants]).by_member.get(profile)
        rows = (one.rows for one in self.known_tenants if one.name == tenant)
        trainer = next((row for own in rows for row in own if row.profile == profile), None)
        if points is None or trainer is None:
            return False
        return lends(self.gpu.profile(profile), [point.row for point in points.values()], trainer)

    def joint_servings(self, members: Sequence[str]) -> Mapping[str, Mapping[str, OperatingPoint]]:
        """How an instance really serves each member of a pool, by profile: in the batches that planning chose."""
        found = self.joint_points.of(members)
        rows = {tenant.name: {row.key: row for row in tenant.rows} for tenant in self.tenants if tenant.name in members}
        return {
            profile: {name: point_of(rows[name][point.row.key], rows[name].values()) for name, point in points.items()}
            for profile, points in found.by_member.items()
        }
