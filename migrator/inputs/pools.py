"""What the config's ``sharing.pools`` means to a policy, and whether its tenants have room under it.

A policy without pools takes ``auto`` for ``off``, so that all policies can be held against each other on one config.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.config.sections import Config
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
    if config.planner.layout and not policy.has_pools:
        raise ConfigError(
            f"{origin}: planner.layout is held by one pool of all tenants, and policy {policy.name} has no pools; "
            "migrator has them"
        )
    if config.sharing.listed is not None and not policy.has_pools:
        raise ConfigError(
            f"{origin}: sharing.pools lists pools, and policy {policy.name} has none; off or auto is needed"
        )


def without_turns(config: Config, turns_by: str | None) -> Config:
    """The config of a live run, with ``off`` for ``auto`` where nothing lets processes take turns in an instance."""
    if turns_by is not None or not config.is_live or config.sharing.pools != "auto":
        return config
    return config.model_copy(update={"sharing": config.sharing.model_copy(update={"pools": "off"})})


def require_turns(config: Config, index: int, turns_by: str | None) -> None:
    """Refuse pools where an instance of GPU ``index`` takes one process alone.

    Raises:
        ConfigError: Naming the GPU, and the command that allows several.
    """
    if turns_by is None and config.sharing.may_pool:
        raise ConfigError(
            f"config {config.name}: sharing.pools: an instance of GPU {index} takes one process alone, by its compute "
            f"mode; off is needed, or as root: nvidia-smi -i {index} -c DEFAULT"
        )


def sharing_in_words(config: Config, policy: AnyPolicy) -> str | None:
    """What it means that the plan chooses pools; ``None`` where it does not, or there is one tenant."""
    if config.sharing.pools != "auto" or not policy.has_pools or len(config.tenants) < 2:
        return None
    sharers = [tenant.name for tenant in config.tenants if not tenant.alone]
    if len(sharers) < 2:
        return "sharing.pools: as off, since at most one tenant is not `alone: true`"
    names = ", ".join(sharers[:-1]) + f" and {sharers[-1]}" if len(sharers) < 5 else f"{len(sharers)} tenants"
    return (
        f"{names} may share instances by turns, where the plan finds that better: each then feels the others' surges "
        f"and faults (sharing.pools: off keeps them apart, `alone: true` one tenant)"
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
        config = config.model_copy(update={"sharing": config.sharing.model_copy(update={"pools": "off"})})
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
