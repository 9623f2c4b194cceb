"""Strict reading of JSON and YAML files: every failure is one line that names file, key and what is allowed."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from executor.errors import ExecutorError
from executor.mig import GpuModel, Placement
from planner.errors import PlannerError

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number; neither a boolean nor a number in quotes."""

Text = Annotated[StrictStr, Field(min_length=1)]
"""A string that is not empty."""

Count = StrictInt
"""A whole number written without a point."""

LONGEST_VALUE = 60
"""Characters of an offending value that a message shows."""


class StrictModel(BaseModel):
    """A mapping whose keys are all known; the base of every file format here."""

    model_config = ConfigDict(extra="forbid")


ModelT = TypeVar("ModelT", bound=StrictModel)


def read_document(path: Path, error: type[Exception]) -> dict[str, object]:
    """The mapping that a JSON or YAML file holds; ``.json`` is read as JSON, ``.yaml`` and ``.yml`` as YAML.

    Any other name is JSON if its text begins with a brace. Keys given twice are refused.

    Raises:
        PlannerError: As ``error``: the file is missing, is not text, does not parse, or holds no mapping.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        what = reason.strerror if isinstance(reason, OSError) else "it is not UTF-8 text"
        raise error(f"{path}: cannot be read: {what}") from None
    suffix = path.suffix.lower()
    is_json = suffix == ".json" or (suffix not in {".yaml", ".yml"} and text.lstrip().startswith("{"))
    try:
        document = json.loads(text, object_pairs_hook=_unique_pairs) if is_json else yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (ValueError, yaml.YAMLError, RecursionError) as reason:
        raise error(f"{path}: is no {'JSON' if is_json else 'YAML'}: {' '.join(str(reason).split())}") from None
    if not isinstance(document, dict):
        raise error(f"{path}: holds {_as_text(document)}; a mapping of keys to values is needed")
    return document


def value_in(text: str) -> object:
    """What a YAML file holds where it says ``text``.

    Raises:
        ValueError: It does not parse.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (LookupError, TypeError, ValueError, yaml.YAMLError, RecursionError) as reason:
        raise ValueError(f"is no YAML: {' '.join(str(reason).split())}") from None


def validated(
    model: type[ModelT], document: object, origin: str, error: type[PlannerError], *, below: str = ""
) -> ModelT:
    """``document`` as a ``model``.

    Args:
        model: The format.
        document: What the file held.
        origin: The file, for messages.
        error: The error to raise.
        below: The key below which the document stood in the file.

    Raises:
        PlannerError: As ``error``, one line on the first key that is wrong.
    """
    try:
        return model.model_validate(document)
    except ValidationError as reason:
        raise error(f"{origin}: {_first_line(model, reason, (below,) if below else ())}") from None


def placement_of(text: str, gpu: GpuModel, where: str, error: type[PlannerError]) -> Placement:
    """The placement that the key ``where`` of a file gives as ``profile@start``.

    Raises:
        PlannerError: As ``error``: it is none of the GPU model's.
    """
    try:
        return gpu.placement(text)
    except ExecutorError as reason:
        raise error(f"{where} is {text!r}: {reason}") from None


def _first_line(model: type[StrictModel], error: ValidationError, below: tuple[str, ...]) -> str:
    details = error.errors(include_url=False)
    # An unknown key comes first: it usually explains the missing one that is reported beside it.
    first = next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])
    location = (*below, *first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key {key_path(location)}{_nearest(model, first['loc'])}"
        case "missing":
            return f"{key_path(location)} is missing"
        case _:
            wanted = re.sub(r"^\w+ should (be |have )?", "", without_classes(first["msg"]))
            return f"{key_path(location)} is {_as_text(first['input'])}; {wanted} is needed"


def without_classes(message: str) -> str:
    """A message of pydantic's, which may offer an instance of our own class beside a mapping."""
    return message.partition(" or instance of ")[0]


def key_path(location: tuple[str | int, ...]) -> str:
    """``("tenants", 0, "weight")`` as ``tenants[0].weight``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".") or "the document"


def _nearest(model: type[StrictModel], location: tuple[str | int, ...]) -> str:
    owner = _model_at(model, location[:-1])
    known = [field.alias or name for name, field in owner.model_fields.items()]
    nearest = get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    hint = f" (did you mean {nearest[0]}?)" if nearest else ""
    return f"{hint}; known: {', '.join(known)}"


def _model_at(model: type[StrictModel], location: tuple[str | int, ...]) -> type[StrictModel]:
    for part in location:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = _inner_model(field.annotation) or model
    return model


def _inner_model(annotation: object) -> type[StrictModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return annotation
    if get_origin(annotation) in (list, tuple, Union, UnionType):
        return next((found for found in map(_inner_model, get_args(annotation)) if found), None)
    return None


def _as_text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return document


class _Loader(yaml.SafeLoader):
    """YAML that refuses keys given twice, and reads ``1e5`` as a number, as YAML 1.2 and JSON do."""

    def compose_mapping_node(self, anchor: object) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)  # type: ignore[arg-type]  # the stub says dict; it is a name
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} is given twice")
                seen.add(key.value)
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
