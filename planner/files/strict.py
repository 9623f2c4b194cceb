"""Strict reading of JSON and YAML files: every failure is one line that names file, key and what is allowed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from executor.errors import Refusal
from executor.files import alike_to, has_more_values, read_input
from executor.names import did_you_mean
from planner.errors import PlannerError
from planner.files.words import needed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Number = Annotated[float, Field(allow_inf_nan=False)]
"""A finite number."""


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "text without NUL characters")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_without_nul)]
"""A string that is not empty and could be a file's name."""

try:  # the loader in C, ten times as fast, is not everywhere
    from yaml import CSafeLoader as _SafeLoader
except ImportError:
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

LONGEST_VALUE = 60
"""Characters of an offending value that a message shows."""

MOST_BYTES = 64 * 2**20
"""Size of the largest file that is read as a document."""

MOST_VALUES = 2_000_000
"""Keys and values of the largest document, those that YAML aliases repeat counted each time."""

MOST_LEVELS = 64
"""Levels of the deepest document; none of ours has ten."""

MOST_DIGITS = 4000
"""Digits of the longest whole number that is read as one; Python converts no more than 4300."""


class StrictModel(BaseModel):
    """A mapping whose keys are all known; the base of every file format here.

    Its values are of the very types that it names, dataclasses among them: neither a boolean nor text is a number, and
    a number with a point is no ``int``.
    """

    model_config = ConfigDict(extra="forbid", strict=True)


KindT = TypeVar("KindT", bound="DataclassInstance")
ModelT = TypeVar("ModelT", bound=StrictModel)


def read_by(find: Callable[[Any, str], object]) -> PlainValidator:
    """Text in a file stands for what ``find`` makes of it and of the context of :func:`validated`.

    What ``find`` refuses is refused where the text is.
    """

    def found(text: object, info: ValidationInfo) -> object:
        if not isinstance(text, str):
            raise PydanticCustomError("text", "text")
        try:
            return find(info.context, text)
        except Refusal as error:
            raise ValueError(str(error)) from None

    return PlainValidator(found)


def made_of(kind: type[KindT], content: StrictModel, **others: object) -> KindT:
    """A dataclass of the values in ``content`` that have the names of its fields, and of ``others`` before them."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in content if name in names} | others)


def one_or_all(names: tuple[str, ...]) -> str | list[str]:
    """Who holds an instance, as files have it: a tenant's name, or the list of those of a pool."""
    return names[0] if len(names) == 1 else list(names)


def given(**values: object) -> dict[str, object]:
    """The values that are not ``None``."""
    return {name: value for name, value in values.items() if value is not None}


def read_document(path: Path, error: type[Exception]) -> dict[str, object]:
    """The mapping that a JSON or YAML file holds; ``.json`` is read as JSON, ``.yaml`` and ``.yml`` as YAML.

    Any other name is JSON if its text begins with a brace. Keys given twice are refused.

    Raises:
        PlannerError: As ``error``: the file is missing, is not text, does not parse, or holds no mapping.
    """
    try:
        text = read_input(path, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        what = reason.strerror if isinstance(reason, OSError) else "it is not UTF-8 text"
        raise error(f"{path}: cannot be read: {what}{alike_to(path)}") from None
    suffix = path.suffix.lower()
    is_json = suffix == ".json" or (suffix not in {".yaml", ".yml"} and text.lstrip().startswith("{"))
    try:
        document = value_in(text, is_json=is_json)
    except ValueError as reason:
        raise error(f"{path}: {reason}") from None
    if not isinstance(document, dict):
        raise error(f"{path}: holds {as_text(document)}; a mapping of keys to values is needed")
    return document


def value_in(text: str, *, is_json: bool = False) -> object:
    """What ``text`` says in YAML, or in JSON.

    Raises:
        ValueError: It does not parse, has a key twice, has tags, or is too large or too deep.
    """
    try:
        if is_json:
            return _from_json(text)
        _check_yaml(text)
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (LookupError, TypeError, ValueError, yaml.YAMLError, RecursionError) as reason:
        said = _of_yaml(text, reason) if isinstance(reason, yaml.MarkedYAMLError) else " ".join(str(reason).split())
        raise ValueError(f"is no {'JSON' if is_json else 'YAML'}: {said}") from None


def _of_yaml(text: str, error: yaml.MarkedYAMLError) -> str:
    """What is wrong, and where; a tab, by which somebody indented, is called one."""
    mark = error.problem_mark
    if mark is None:
        return " ".join(str(error).split())
    line = [*text.split("\n"), ""][min(mark.line, text.count("\n"))]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {mark.line + 1} begins with a tab; YAML is indented with spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}"


@contextmanager
def told_of(origin: str, error: type[PlannerError]) -> Iterator[None]:
    """Lets an ``error`` that is raised inside begin with ``origin``: the file, or what stands for it."""
    try:
        yield
    except error as reason:
        raise error(f"{origin}: {reason}") from None


def validated(model: type[ModelT], document: object, error: type[PlannerError], context: object = None) -> ModelT:
    """``document`` as a ``model``; ``context`` is what :func:`read_by` finds things in.

    Raises:
        PlannerError: As ``error``, one line on the first key that is wrong.
    """
    try:
        # As JSON a list may become a tuple, a mapping a dataclass and text an enumeration's member, yet no number.
        text = json.dumps(document, ensure_ascii=False).encode()
        return model.model_validate_json(text, context=context)
    except UnicodeEncodeError as reason:
        shown = ascii(reason.object[max(0, reason.start - LONGEST_VALUE) : reason.end])
        raise error(f"text with half a character, at the end of {shown}; whole ones are needed") from None
    except ValidationError as reason:
        raise error(_first_line(model, reason)) from None


def _first_line(model: type[StrictModel], error: ValidationError) -> str:
    details = error.errors(include_url=False)
    # An unknown key comes first: it usually explains the missing one that is reported beside it.
    unknown = ("extra_forbidden", "unexpected_keyword_argument")
    first = next((detail for detail in details if detail["type"] in unknown), details[0])
    key = _key_path(first["loc"])
    match first["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"unknown key {key}{_nearest(model, first['loc'])}"
        case "missing":
            return f"{key} is missing"
        case "value_error":
            return f"{key}: {first['ctx']['error']}"
        case _:
            return f"{key} is {as_text(first['input'])}; {needed(first)} is needed"


def _key_path(location: tuple[str | int, ...]) -> str:
    """``("tenants", 0, "weight")`` as ``tenants[0].weight``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".") or "the document"


def _nearest(model: type[StrictModel], location: tuple[str | int, ...]) -> str:
    owner: Any = model
    for part in location[:-1]:
        owner = _mapping_in(get_type_hints(owner).get(str(part))) or owner
    found = owner.__dataclass_fields__ if is_dataclass(owner) else owner.model_fields
    known = [getattr(field, "alias", None) or name for name, field in found.items()]
    hint = did_you_mean(str(location[-1]), known)
    return f"{hint}; known: {', '.join(known)}"


def _mapping_in(kind: object) -> object:
    """What of a type, or of what it is a list or an alternative of, is a mapping whose keys are known."""
    if is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, StrictModel)):
        return kind
    return next(filter(None, map(_mapping_in, get_args(kind))), None)


def as_text(value: object) -> str:
    """The value as a message shows it, in at most :data:`LONGEST_VALUE` characters, however large it is."""
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


_SHORT = Repr()
# Aliases make a few lines a list of billions of values: only the beginnings of the first few are looked at.
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxtuple, _SHORT.maxdict = 3, 20, 20, 20
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 2 * LONGEST_VALUE


def _from_json(text: str) -> object:
    if has_more_values(text, MOST_VALUES):
        _check_extent(MOST_VALUES + 1, 0)
    document = json.loads(text, object_pairs_hook=_unique_pairs, parse_int=_whole_number)
    level, n_levels, n_values = [document], 0, 0
    while level:
        n_values += len(level)
        _check_extent(n_values, n_levels)
        opened = (
            value.values() if isinstance(value, dict) else value for value in level if type(value) in (dict, list)
        )
        level, n_levels = list(chain.from_iterable(opened)), n_levels + 1
    return document


def _whole_number(text: str) -> int | float:
    return int(text) if len(text) <= MOST_DIGITS else float(text)  # infinite, and refused where its key is known


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {as_text(key)} is given twice")
    return document


def _check_extent(n_values: int, n_levels: int) -> None:
    if n_values > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES} values, the most that are read")
    if n_levels > MOST_LEVELS:
        raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep")


@dataclass(slots=True)
class _Open:
    """A YAML list or mapping whose end has not been read.

    Attributes:
        anchor: Its name for aliases.
        keys: Those of a mapping, until here; ``None`` in a list.
        n_values: Values in it until here, itself included.
        n_nodes: Nodes directly in it until here; of a mapping's, each second one is a key.
    """

    anchor: str | None
    keys: set[str] | None
    n_values: int = 1
    n_nodes: int = 0

    def take(self, n_values: int, key: str | None, line: int) -> None:
        """Count a node; ``key`` is its text if it is a scalar."""
        if self.keys is not None and key is not None and self.n_nodes % 2 == 0:
            if key in self.keys:
                raise yaml.YAMLError(f"line {line}: the key {as_text(key)} is given twice")
            self.keys.add(key)
        self.n_values += n_values
        self.n_nodes += 1


def _check_yaml(text: str) -> None:
    """Refuse, before anything is built of them, keys given twice, tags, and documents too large or too deep.

    Lists and mappings count as often as aliases repeat them.
    """
    document = _Open(None, None)
    opened = [document]
    anchored: dict[str, tuple[int, str | None]] = {}
    event: Any  # the stubs know neither its marks nor its tag
    for event in yaml.parse(text, _Loader):
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise yaml.YAMLError(f"line {line}: the tag {as_text(event.tag)}; values without a tag are needed")
        match event:
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                opened.append(_Open(event.anchor, set() if isinstance(event, yaml.MappingStartEvent) else None))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = opened.pop()
                if done.anchor is not None:
                    anchored[done.anchor] = (done.n_values, None)
                opened[-1].take(done.n_values, None, line)
            case yaml.ScalarEvent():
                if event.anchor is not None:
                    anchored[event.anchor] = (1, event.value)
                opened[-1].take(1, event.value, line)
            case yaml.AliasEvent():
                if event.anchor not in anchored:
                    raise yaml.YAMLError(f"line {line}: *{event.anchor} is before or inside what it names")
                opened[-1].take(*anchored[event.anchor], line)
        _check_extent(opened[-1].n_values, len(opened) - 1)


class _Loader(_SafeLoader):
    """YAML whose numbers are those of YAML 1.2 and JSON: ``1e5`` is one, and ``010``, ``1_000`` and ``1:30`` are text.

    Dates are text as well.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(rf"^[-+]?(0|[1-9]\d{{0,{MOST_DIGITS - 1}}})$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^([-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+.0123456789"),
)
