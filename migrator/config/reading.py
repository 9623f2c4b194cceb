"""A config from its YAML file, and back into one; what is wrong with it, in one line.

Paths are relative to the config file. Whether traces, profiles and SLOs fit together is checked when the run is put
together (:mod:`migrator.inputs.assembly`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from executor.described import SUFFIX
from migrator.config.assignments import assigned
from migrator.config.sections import SHIPPED_TRACES, Config, Section, TenantConfig
from migrator.errors import ConfigError
from planner.files.strict import as_text, read_document
from planner.files.words import NAME, needed

SectionT = TypeVar("SectionT", bound=Section)


def read_config(path: Path, assignments: Sequence[str] = (), /, **overrides: object) -> Config:
    """The validated config in ``path``; ``overrides`` replace top-level keys when not ``None``.

    Other ``windows`` only cut or extend the run: ``load_windows`` keeps what the file says of them.
    ``assignments`` change keys by their dotted path, as ``--set`` does.
    The run's name defaults to the file's stem. Relative file names in it become relative to the file.

    Raises:
        ConfigError: It is missing, unreadable or not YAML, or has an unknown key or a value outside its range.
    """
    data, origin = config_data(path, assignments, **overrides)
    return rooted(validate_config(data, origin), path)


def config_data(path: Path, assignments: Sequence[str] = (), /, **overrides: object) -> tuple[dict[str, Any], str]:
    """What is to be validated of the file in ``path``, and what it goes by in messages.

    Raises:
        ConfigError: It is missing, unreadable or not YAML, or a key is given twice.
    """
    twice = {item.partition("=")[0].strip() for item in assignments} & {
        k for k, v in overrides.items() if v is not None
    }
    if twice:
        raise ConfigError(f"--set {min(twice)}: it is given by an option of its own, too; once is needed")
    data: dict[str, Any] = assigned(read_document(path, ConfigError), assignments)
    gpu = data.get("gpu")
    if isinstance(gpu, dict) and isinstance(model := gpu.get("model"), str) and model.endswith(SUFFIX):
        data["gpu"] = {**gpu, "model": os.path.realpath(path.parent / model)}
    data.setdefault("name", re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "run")
    own_windows = data.get("windows", Config.model_fields["windows"].default)
    if overrides.get("windows") is not None and isinstance(own_windows, int):
        data.setdefault("load_windows", own_windows)
    data.update({key: value for key, value in overrides.items() if value is not None})
    return data, f"{path} with {', '.join(assignments)}" if assignments else str(path)


def rooted(config: Config, path: Path) -> Config:
    """The config with file names relative to the folder of ``path`` made absolute."""
    return _with_paths(config, lambda text: os.path.realpath(path.parent / text))


def validate_config(data: Mapping[Any, Any], origin: str) -> Config:
    """The config of one GPU in ``data``; ``origin`` names it in the message.

    Raises:
        ConfigError: One line for the first thing that is wrong.
    """
    if "cluster" in data:
        raise ConfigError(
            f"{origin}: cluster: this is the config of many GPUs, which migrator cluster takes; gpu is needed"
        )
    return validated(Config, data, origin)


def validated(section: type[SectionT], data: Mapping[Any, Any], origin: str) -> SectionT:
    """The section in ``data``; ``origin`` names it in the message.

    Raises:
        ConfigError: One line for the first thing that is wrong.
    """
    try:
        return section.model_validate(dict(data))
    except ValidationError as error:
        first = _most_telling(error)
        key, value = _key_of(first, data), first.get("input")
        message = _in_our_words(first, key)
        shown = f" (got {as_text(value)})" if isinstance(value, (str, int, float, bool)) or value is None else ""
        raise ConfigError(f"{origin}: {key + ': ' if key else ''}{message}{shown}") from None


def _most_telling(error: ValidationError) -> ErrorDetails:
    """The first error; if that is of one of several ways to write a value, the one of the way that went furthest."""
    first, *others = error.errors()
    *above, way = first["loc"] or ("",)
    ways = (
        [first, *(other for other in others if [*other["loc"][: len(above)]] == above)] if _is_branch_tag(way) else []
    )
    return max(ways, key=lambda one: (len(one["loc"]), one["type"] != "model_type"), default=first)


def _key_of(error: ErrorDetails, data: Mapping[Any, Any]) -> str:
    """The dotted path of the key, with the name of its tenant, or of its GPUs, where that is one."""
    # Tags of the branches that pydantic tried are no keys of the user's file.
    parts = [part for part in error["loc"] if not _is_branch_tag(part)]
    for above in (["tenants"], ["cluster", "gpus"]):
        n = len(above)
        if parts[:n] == above and len(parts) > n:
            entry: Any = reduce(getitem, parts[: n + 1], data)
            name = entry.get("name") if isinstance(entry, Mapping) else getattr(entry, "name", None)
            if isinstance(name, str) and re.fullmatch(NAME, name):
                parts[n] = name
    return ".".join(map(str, parts))


_NUMBERS = {"float_type": ("a number", r"[0-9]{1,9}(\.[0-9]{1,9})?"), "int_type": ("a whole number", "[0-9]{1,9}")}
"""What is needed, and how it is written."""

_UNITS = {"ms": "milliseconds", "s": "seconds", "rps": "requests a second"}
"""By the ends of keys."""


def _in_our_words(error: ErrorDetails, key: str) -> str:
    """What is needed; where a number was quoted, or written with its unit, also that number."""
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return "it is missing, and needed"
    if error["type"] not in _NUMBERS:
        return f"{needed(error)}{_keys_of(error)} is needed"
    what, pattern = _NUMBERS[error["type"]]
    unit = next((unit for unit in _UNITS if key.endswith(f"_{unit}")), "")
    number = str(error["input"]).strip().removesuffix(unit).strip()
    such = f", as {number}" if re.fullmatch(pattern, number) else ""
    return f"{what}{f' of {_UNITS[unit]}' if unit else ''} is needed{such}"


def _keys_of(error: ErrorDetails) -> str:
    """The first keys of the section that should be a mapping, in parentheses; empty if no section is meant."""
    name = error.get("ctx", {}).get("class_name")
    section = next((one for one in Section.__subclasses__() if one.__name__ == name), None)
    if section is None:
        return ""
    # Those that are needed come first.
    first, *others = sorted(section.model_fields, key=lambda key: not section.model_fields[key].is_required())
    return f" ({', '.join([first, *others[:3]])}{' …' if len(others) > 3 else ''})"


_BRANCHES = ("AccuracyConfig", "int", "float", "str", "none")


def _is_branch_tag(part: int | str) -> bool:
    tags = ("constrained-", "list[", "literal[", "function-")
    return isinstance(part, str) and (part in _BRANCHES or part.startswith(tags))


def _with_paths(config: Config, changed: Callable[[str], str]) -> Config:
    """The config with every file and folder that it names changed; shipped traces are no files."""

    def of_tenant(tenant: TenantConfig) -> TenantConfig:
        arrivals, learning = tenant.arrivals, tenant.learning
        update: dict[str, Section] = {}
        if arrivals.trace is not None and arrivals.trace not in SHIPPED_TRACES:
            update["arrivals"] = arrivals.model_copy(update={"trace": changed(arrivals.trace)})
        if arrivals.history is not None:
            update["arrivals"] = arrivals.model_copy(update={"history": changed(arrivals.history)})
        if learning is not None and learning.folder is not None:
            update["learning"] = learning.model_copy(update={"folder": changed(learning.folder)})
        weights = None if tenant.weights is None else changed(tenant.weights)
        return tenant.model_copy(update={**update, "weights": weights})

    update: dict[str, object] = {"tenants": [of_tenant(tenant) for tenant in config.tenants]}
    if config.profiles is not None:
        update["profiles"] = changed(config.profiles)
    if config.share_profiles is not None:
        update["share_profiles"] = changed(config.share_profiles)
    if config.forecast.model is not None:
        update["forecast"] = config.forecast.model_copy(update={"model": changed(config.forecast.model)})
    if config.front_door is not None:
        files = {name: changed(file) for name, file in config.front_door.tokens.items()}
        update["front_door"] = config.front_door.model_copy(update={"tokens": files})
    return config.model_copy(update=update)


def files_in(config: Config) -> tuple[Path, ...]:
    """Every file and folder that the config names, and all that lies in such a folder."""
    named: list[str] = []

    def noted(text: str) -> str:
        named.append(text)
        return text

    _with_paths(config, noted)
    return tuple(file for path in map(Path, named) for file in (path, *path.rglob("*")))


def config_yaml(config: Config, folder: Path | None = None) -> str:
    """The config as YAML, every default written out.

    File names are relative to ``folder``, where it is to lie; as they are without one.
    """
    if folder is not None:
        begin = folder.resolve()
        config = _with_paths(config, lambda text: os.path.relpath(text, begin))
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
