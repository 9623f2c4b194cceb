"""GPU models that a file describes, in the form of the catalogue's: ``migrator gpu describe`` writes it from a driver.

A driver is believed; what a person may have changed is checked, and every refusal names the line and the key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from executor.errors import InvalidGpuModelError
from executor.files import alike_to, read_input
from executor.mig import GpuModel, Profile, Variant
from executor.names import did_you_mean

SUFFIX = ".toml"
"""How the name of such a file ends."""

MOST_BYTES = 2**20
"""Size of the largest file that is read."""

MOST_SLICES = 16
"""Compute and memory slices of a GPU; the largest known has 12."""

MOST_LAYOUTS = 100_000
"""Layouts of the standard profiles, which plans go through; the richest card known has 722."""

_LEFT_OUT = {"variant": Variant.STANDARD, "sm_total": None, "notes": (), "sources": ()}
"""What a description leaves out, because it is so where nothing is said."""

_OF_GPU = tuple(field.name for field in fields(GpuModel))
_OF_PROFILE = tuple(field.name for field in fields(Profile))


def read_model(path: Path) -> GpuModel:
    """The GPU model that the file describes.

    Raises:
        InvalidGpuModelError: It cannot be read, or is no description; names file, line, key and what is allowed.
    """
    try:
        text = read_input(path, MOST_BYTES).decode("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise InvalidGpuModelError(f"{path}: cannot be read: {error.strerror or error}{alike_to(path)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidGpuModelError(f"{path}: no TOML file: {error}") from None
    try:
        return model_of(document)
    except _KeyError as error:
        raise InvalidGpuModelError(f"{path} line {_line(text, error.key)}: {error}") from None


def model_of(document: Mapping[str, Any]) -> GpuModel:
    """The GPU model that a description states, as :func:`described` makes one.

    Raises:
        InvalidGpuModelError: It holds together in no such GPU; names the key, its value and what is allowed.
    """
    _require_known(document)
    try:
        model = msgspec.convert(document, GpuModel, strict=True)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$")
        key = re.sub(r"\[(\d+)\]", r".\1", where.rstrip("`")).lstrip(".")
        missing = re.search(r"missing required field `(\w+)`", said)
        raise _KeyError(".".join(filter(None, (key, missing and missing[1]))), said) from None
    for key, said in _faults(model):
        raise _KeyError(key, said)
    return model


def described(model: GpuModel) -> dict[str, Any]:
    """The description of a GPU model, of plain values only; :func:`model_of` reads it."""
    return {
        **_given(model, [name for name in _OF_GPU if name != "profiles"]),
        "profiles": [_given(profile, _OF_PROFILE) for profile in model.profiles],
    }


def toml_of(model: GpuModel) -> str:
    """The description as the file that :func:`read_model` reads."""
    document = described(model)
    profiles = document.pop("profiles")
    blocks = [_lines(document), *(f"[[profiles]]\n{_lines(profile)}" for profile in profiles)]
    return "\n".join(blocks)


class _KeyError(InvalidGpuModelError):
    """A key's value does not hold; ``key`` is its dotted path."""

    def __init__(self, key: str, said: str) -> None:
        super().__init__(f"{key}: {said}" if key else said)
        self.key = key


def _given(item: GpuModel | Profile, names: list[str] | tuple[str, ...]) -> dict[str, Any]:
    found = {name: getattr(item, name) for name in names}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    is_left_out = {name: _LEFT_OUT.get(name) == value for name, value in found.items()}
    return {
        name: str(v) if isinstance(v, Variant) else v
        for name, v in plain.items()
        if not is_left_out[name] and v is not None
    }


def _lines(values: Mapping[str, Any]) -> str:
    # What JSON writes of text, numbers and lists of them is TOML, too; it escapes the one control character of TOML's.
    return "".join(
        f"{key} = {json.dumps(value).replace(chr(127), chr(92) + 'u007f')}\n" for key, value in values.items()
    )


def _require_known(document: Mapping[str, Any]) -> None:
    profiles = document.get("profiles")
    tables = [("", document, _OF_GPU)]
    for number, profile in enumerate(profiles if isinstance(profiles, list) else ()):
        if isinstance(profile, Mapping):
            tables.append((f"profiles.{number}.", profile, _OF_PROFILE))
    for where, table, known in tables:
        for key in table:
            if key not in known:
                raise _KeyError(f"{where}{key}", f"unknown key{did_you_mean(key, known)}; known: {', '.join(known)}")


def _faults(model: GpuModel) -> Iterator[tuple[str, str]]:
    """Which keys do not hold, and why; their order is that of the file."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,99}", model.name):
        yield "name", f"{model.name!r} is no name; small letters, digits and hyphens are allowed"
    for key in ("compute_slices", "memory_slices"):
        if not 1 <= getattr(model, key) <= MOST_SLICES:
            yield key, f"is {getattr(model, key)}; 1 to {MOST_SLICES} are allowed"
    if not model.profiles:
        yield "profiles", "there is none; at least one is needed"
    for number, profile in enumerate(model.profiles):
        for key, said in _faults_of(profile, model):
            yield f"profiles.{number}.{key}", f"{profile.name} {said}"
        if profile.name in [other.name for other in model.profiles[:number]]:
            yield f"profiles.{number}.name", f"{profile.name} is there twice"
    if (n_layouts := _n_layouts(model)) > MOST_LAYOUTS:
        yield "profiles", f"they make {n_layouts:,} layouts; at most {MOST_LAYOUTS:,} are allowed"


def _faults_of(profile: Profile, model: GpuModel) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[^\s@:,]{1,40}", profile.name):
        yield "name", "is no name; 1 to 40 characters without spaces, @, : and commas are allowed"
    for key in ("compute_slices", "memory_slices"):
        value, most = getattr(profile, key), getattr(model, key)
        if not 1 <= value <= most:
            yield key, f"takes {value}; the GPU has {most}"
    yield from (("starts", said) for said in _faults_of_starts(profile, model.memory_slices))
    if not 1 <= profile.max_instances <= len(profile.starts):
        yield (
            "max_instances",
            f"is {profile.max_instances}; 1 to {len(profile.starts)}, the number of starts, is allowed",
        )
    for key, least in (("gi_profile_id", 0), ("memory_gib", 1e-3), ("sm_count", 1), ("create_s", 0), ("destroy_s", 0)):
        value = getattr(profile, key)
        if value is not None and not least <= value <= 1e6:
            yield key, f"is {value}; a number from {least:g} to 1e6 is needed"


def _faults_of_starts(profile: Profile, memory_slices: int) -> Iterator[str]:
    size = profile.memory_slices
    if not profile.starts:
        yield "has none; at least one is needed"
    for first, second in pairwise(profile.starts):
        if second < first + size:
            yield f"at {first} and {second} overlap; each takes {size} memory slices, and they ascend"
    for start in profile.starts:
        if start < 0 or start + size > memory_slices:
            yield f"at {start} takes {size} memory slices; the GPU has {memory_slices}"


def _n_layouts(model: GpuModel) -> int:
    """At most how many layouts the standard profiles make: ways to fill the memory slices, one after the other."""
    starting = list(map(model.profile, model.standard_profile_names))
    ways = [1] * (model.memory_slices + 1)
    for slice_ in reversed(range(model.memory_slices)):
        ways[slice_] = ways[slice_ + 1] + sum(ways[slice_ + p.memory_slices] for p in starting if slice_ in p.starts)
    return ways[0]


def _line(text: str, key: str) -> int:
    """The line with the key of a dotted path; that of the table that lacks it, or 1."""
    first, *rest = key.split(".")
    lines = text.splitlines()
    at, end = 0, len(lines)
    if rest and first == "profiles":
        tables = [n for n, line in enumerate(lines) if re.match(r"\s*\[\[\s*profiles\s*\]\]", line)]
        if int(rest[0]) < len(tables):
            at, end = [*tables, end][int(rest[0]) : int(rest[0]) + 2]
            first = rest[-1]
    wanted = re.compile(rf"\s*(\[\[\s*)?[\"']?{re.escape(first)}[\"']?\s*(=|\]\])")
    return 1 + next((n for n in range(at, end) if wanted.match(lines[n])), at)
