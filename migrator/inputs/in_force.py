"""The config with which a service goes on, and the file from which another one is taken up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from migrator.config.reading import config_yaml, read_config, rooted, validate_config
from migrator.config.sections import ENDLESS, Config, TenantConfig
from migrator.errors import ConfigError
from migrator.log.orders import Reload
from migrator.log.records import Reloaded
from migrator.log.runlog import CONFIG_FILE, ReadLog
from migrator.log.weights import FIRST, kept_weights, served_weights
from planner.files.strict import as_text, value_in


def config_in_force(log: ReadLog) -> Config:
    """The config with which the run in the log goes on: what was taken up last, or what it began with.

    Raises:
        ConfigError: It cannot be used any more.
    """
    path = log.folder / CONFIG_FILE
    taken_up = log.of(Reloaded)
    config = config_in(taken_up[-1].config, str(log.folder), path) if taken_up else read_config(path)
    return config.model_copy(update={"windows": ENDLESS}) if log.header.service else config


def config_in(text: str, origin: str, path: Path | None = None) -> Config:
    """The config in a text, as if it lay in ``path``.

    Raises:
        ConfigError: It cannot be used; ``origin`` names it.
    """
    try:
        document = value_in(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{origin}: holds {as_text(document)}; a mapping of keys to values is needed")
    config = validate_config(document, origin)
    return config if path is None else rooted(config, path)


def require_versions(entries: Iterable[TenantConfig], kept: Mapping[str, Iterable[str]]) -> None:
    """Refuse pins of other weights than the first ones, and than the versions that are ``kept`` of the tenant.

    Raises:
        ConfigError: Naming the tenant, the version and those that are kept.
    """
    for entry in entries:
        there = dict.fromkeys([FIRST, *kept.get(entry.name, ())])
        if entry.pin.weights is not None and entry.pin.weights not in there:
            raise ConfigError(
                f"tenants.{entry.name}.pin.weights: {entry.pin.weights!r} is not kept; there is: {', '.join(there)}"
            )


def kept_versions(log: ReadLog) -> dict[str, list[str]]:
    """By tenant the versions of weights that the service in the log has trained and still keeps."""
    served = {name: [one.version] for name, one in served_weights(log).items()}
    return served | {
        name: list(dict.fromkeys([*served.get(name, ()), *(one.version for one in kept)]))
        for name, kept in kept_weights(log).items()
    }


def given_in(log: ReadLog) -> tuple[Path, tuple[str, ...]] | None:
    """The file that the service in the log was given last, and what was changed of it."""
    told = [entry.wall for entry in log.entries if entry.wall.config_file is not None]
    return (Path(str(told[-1].config_file)), told[-1].assigned) if told else None


def order_of(file: Path, assigned: tuple[str, ...]) -> tuple[Config, Reload]:
    """The service's config in a file, and the order to take it up.

    Raises:
        ConfigError: It cannot be used, or is no service's.
    """
    config = service_of(read_config(file, assigned), str(file))
    return config, Reload(config=config_yaml(config), file=str(file.absolute()), assigned=assigned)


def service_of(config: Config, origin: str) -> Config:
    """The config without an end.

    Raises:
        ConfigError: It says how many windows there are, or its requests are no clients'; ``origin`` names it.
    """
    if "windows" in config.model_fields_set:
        raise ConfigError(f"{origin}: windows: a service goes on until it is stopped; leave it out")
    for tenant in config.tenants:
        if not tenant.arrivals.live:
            what = "a service answers clients: live: true is needed; migrator run plays traces"
            raise ConfigError(f"{origin}: tenants.{tenant.name}.arrivals: {what}")
    return config.model_copy(update={"windows": ENDLESS})
