"""In which keys two configs of a service differ, and which of them may change while it serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.config.sections import Config
from migrator.errors import ConfigError
from planner.files.strict import as_text

DOOR = ("tokens", "origins")
"""The keys of ``front_door`` that may change."""

TERMS = ("slo_ms", "min_slo_attainment", "weight", "alone", "retraining", "pin")
"""The keys of a tenant that may change."""


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """A key whose value is another one.

    Attributes:
        path: Its names from the config's root; of lists only ``tenants`` are looked into, by name.
        was: Its value before; ``None``: it had none.
        now: Its value from now on, likewise.
    """

    path: tuple[str, ...]
    was: object
    now: object

    @property
    def may_be(self) -> bool:
        """Whether a service may take it up."""
        match self.path:
            case ("front_door", key, *_):
                return key in DOOR
            case ("tenants", _, key, *_):
                return key in TERMS
            case ("tenants", _) | ("pin", *_) | ("sharing", "pools", *_):
                return True
            case _:
                return False

    @property
    def is_of_set(self) -> bool:
        """Whether a tenant comes or goes."""
        return self.path[0] == "tenants" and len(self.path) == 2

    @property
    def is_of_plans(self) -> bool:
        """Whether plans depend on it."""
        return self.path[0] != "front_door"

    def __str__(self) -> str:
        if self.is_of_set:
            weights = self.now.get("weights_from") if isinstance(self.now, Mapping) else None
            said = "goes" if self.now is None else "comes" if weights is None else f"comes; its weights are {weights}"
            return f"tenant {self.path[1]} {said}"
        return f"{'.'.join(self.path)}: {_shown(self.was)} becomes {_shown(self.now)}"


def _shown(value: object) -> str:
    return "nothing" if value is None else as_text(value)


def changes_of(before: Config, after: Config, origin: str) -> tuple[ChangedKey, ...]:
    """What changes where a service with the one config takes the other up; ``origin`` names that in messages.

    The run's name stays, whatever the file's is.

    Raises:
        ConfigError: Something differs that may not change while it serves: the first such key.
    """
    was, now = (_by_name(one.model_dump(mode="json", exclude={"name", "windows"})) for one in (before, after))
    found = tuple(_differences(was, now))
    if kept := next((one for one in found if not one.may_be), None):
        raise ConfigError(f"{origin}: {kept}; a service keeps it: set it as it was, or serve with another --out")
    return found


def _by_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with its tenants by name."""
    return {**config, "tenants": {tenant["name"]: tenant for tenant in config["tenants"]}}


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], *path: str) -> Iterator[ChangedKey]:
    for key in dict.fromkeys([*before, *after]):
        was, now = before.get(key), after.get(key)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _differences(was, now, *path, key)
        elif was != now:
            yield ChangedKey((*path, key), was, now)


def in_words(changes: Sequence[ChangedKey]) -> tuple[str, ...]:
    """The changes, a line each."""
    return tuple(map(str, changes))


def require_layout(config: Config, changes: Iterable[ChangedKey], origin: str) -> None:
    """Refuse other terms beside a layout that was chosen for those that there were; ``origin`` names their config.

    Raises:
        ConfigError: The first of them.
    """
    key = next((change for change in changes if change.is_of_plans), None)
    if key is not None and config.planner.layout == "auto":
        raise ConfigError(f"{origin}: {key}; planner.layout: auto was chosen without it: stop the service, serve again")


def restarts(config: Config, changes: Sequence[ChangedKey]) -> str:
    """Which workers start again where a service takes up this config with these changes, before there is a plan.

    A layout that stays is what a plan may not change; any other is for the plan to say, which is not made yet.
    """
    is_of_set, is_held = any(change.is_of_set for change in changes), config.pins_layout or bool(config.layout)
    if not is_of_set:
        of_plans = any(change.is_of_plans for change in changes) and not is_held
        return "nothing restarts" + ("; plans go by it from the next window on" if of_plans else "")
    if is_held:
        return "nothing restarts: the layout stays, who goes ends, and who comes starts in it or beside it"
    return "who goes ends, who comes starts; the plan of the window's rest says what else (pin.layout: nothing)"
