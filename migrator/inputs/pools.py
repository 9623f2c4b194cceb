"""What the config's ``sharing.pools`` means to a policy, and whether its tenants have room under it.

A policy without pools takes ``auto`` for ``off``, so that all policies can be held against each other on one config.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.config.sections import Config, SharingConfig
from migrator.errors import ConfigError, InfeasibleError
from migrator.inputs.setting import Setting
from planner.policies.policy import AnyPolicy, Policy
from planner.policies.shares import QUANTA, SharePolicy


def require_shareable(config: Config, origin: str, policy: AnyPolicy) -> None:
    """Refuse pools that a config lists, if the policy has none, and more tenants than shares; ``origin`` names it.

    Raises:
        ConfigError: It lists pools, or has too many tenants for shares.
    """
    if isinstance(policy, SharePolicy) and len(config.tenants) > QUANTA:
        raise ConfigError(
            f"{origin}: tenants: {len(config.tenants)} given; policy {policy.name} divides a GPU into {QUANTA} shares "
            f"and gives every tenant one: {QUANTA} tenants at most are allowed"
        )
    if config.sharing.listed is not None and not policy.has_pools:
        raise ConfigError(
            f"{origin}: sharing.pools lists pools, and policy {policy.name} has none; off or auto is needed"
        )


def lacks_pools(config: Config, policy: AnyPolicy) -> bool:
    """Whether the config leaves pools to the plan, and the policy has none."""
    return config.sharing.pools == "auto" and not policy.has_pools


def as_shared(setting: Setting, policy: AnyPolicy) -> Setting:
    """The setting with tenants that share only where the policy has pools.

    Raises:
        ConfigError: The config lists pools, and the policy has none; or it has more tenants than the policy's shares.
        InfeasibleError: More tenants, or pools, need an instance of their own than there are compute slices.
    """
    config, gpu = setting.config, setting.gpu
    require_shareable(config, f"config {config.name}", policy)
    if lacks_pools(config, policy):
        config = config.model_copy(update={"sharing": SharingConfig(turn_cost=config.sharing.turn_cost)})
        setting = replace(setting, config=config)
    if isinstance(policy, Policy) and config.sharing.pools != "auto":
        _require_room(config, gpu.name, gpu.compute_slices, policy)
    return setting


def _require_room(config: Config, gpu: str, n_slices: int, policy: AnyPolicy) -> None:
    pools = config.sharing.listed or [[tenant.name] for tenant in config.tenants]
    if len(pools) <= n_slices:
        return
    what = "tenants" if config.sharing.listed is None else "sharing.pools"
    hint = "; with sharing.pools auto tenants may share" if policy.has_pools else ""
    raise InfeasibleError(
        f"config {config.name}: {what}: {len(pools)} given, each with an instance of its own under policy "
        f"{policy.name}, and {gpu} has {n_slices} compute slices: none is left for {', '.join(pools[n_slices])}{hint}"
    )
