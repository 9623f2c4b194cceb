"""What to vary: ``KEY=V1,V2 …`` as values, and the points of the grid that several of them span.

A key may stand for one tenant, ``TENANT.KEY``. A value ``x1.5`` is a factor on what the config has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from executor.catalogue import gpu_model
from executor.described import SUFFIX
from executor.errors import ExecutorError
from executor.names import did_you_mean
from migrator.config.sections import MOST_LOAD, Load, NonNegative, Positive, load_doubts
from migrator.errors import GridError
from planner.solve import PAPER, PHYSICAL, engine_names

MAX_POINTS = 10_000
"""A larger grid is a slip; at a tenth of a second each this one takes a quarter of an hour."""


MAX_VALUES = 1_000
"""Values of one key; more are a slip as well."""

_LONGEST_SHOWN = 60
"""Characters of an argument that a message shows."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A multiple of what the config has."""

    by: float

    def __str__(self) -> str:
        return f"x{self.by:g}"


Value: TypeAlias = "str | int | float | Factor"


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of one key.

    Attributes:
        key: What is changed.
        tenant: Whose, for a key that tenants have; ``None`` for every tenant's, and for the other keys.
        value: To what, or by what factor.
    """

    key: str
    tenant: str | None
    value: Value

    @property
    def name(self) -> str:
        """The key, after the tenant's name if it has one."""
        return self.key if self.tenant is None else f"{self.tenant}.{self.key}"

    @property
    def text(self) -> str:
        """The value as it would be typed."""
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


Point: TypeAlias = "tuple[Choice, ...]"
"""A choice for each variation, in the grid's order."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The choices for one key (of one tenant): at least one, all distinct, in the order given."""

    choices: tuple[Choice, ...]

    @property
    def name(self) -> str:
        """What is varied, as it was typed."""
        return self.choices[0].name


@dataclass(frozen=True, slots=True)
class Grid:
    """The full product of its variations."""

    variations: tuple[Variation, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """Every combination; the last variation changes fastest."""
        return tuple(product(*(variation.choices for variation in self.variations)))


def point_text(point: Point) -> str:
    """The point in a line: ``load=x1.5, vision.slo_ms=100``."""
    return ", ".join(map(str, point))


def _catalogued(name: str) -> str:
    try:
        model = gpu_model(name)
        return name if name.endswith(SUFFIX) else model.name
    except ExecutorError as error:
        raise GridError(f"--vary gpu={name}: {error}") from None


_Whole = Annotated[int, BeforeValidator(int), Field(le=10**6)]
"""No 1.0, which pydantic would take for an integer, and no slips."""


@dataclass(frozen=True, slots=True)
class _Key:
    """What may be given to a key.

    Attributes:
        values: The type of its values, as the config's key has it.
        allowed: The same for people.
        of_tenant: Whether it may stand for one tenant.
        factors: The type of its factors; ``None`` where no value may be one.
    """

    values: Any
    allowed: str
    of_tenant: bool = False
    factors: Any = None

    def read(self, text: str) -> Value:
        """The value; raises ``ValidationError`` for anything else."""
        is_factor = self.factors is not None and text[:1] in ("x", "×")
        values = self.factors if is_factor else self.values
        adapter: TypeAdapter[Any] = TypeAdapter(values, config=ConfigDict(allow_inf_nan=False))
        value: str | int | float = adapter.validate_python(text[1:] if is_factor else text)
        return Factor(value) if is_factor and isinstance(value, float) else value


_KEYS = {
    "gpu": _Key(Annotated[str, AfterValidator(_catalogued)], "a GPU model"),
    "tenants": _Key(Annotated[_Whole, Field(ge=1)], "a number of tenants, 1 or more,"),
    "slo_ms": _Key(Positive, "milliseconds > 0, or a factor such as x0.5,", of_tenant=True, factors=Positive),
    "load": _Key(
        Load,
        f"a load > 0 and at most {MOST_LOAD:g} (percent? 70 % are 0.7), or a factor on the arrivals such as x1.5,",
        of_tenant=True,
        factors=Positive,
    ),
    "batch": _Key(
        Annotated[_Whole, Field(ge=1)] | Literal["auto"],
        "the largest batch size to consider, 1 or more, or auto",
        of_tenant=True,
    ),
    "overhead_s": _Key(NonNegative, "seconds ≥ 0, or a factor such as x0.5,", of_tenant=True, factors=NonNegative),
    "step_s": _Key(Positive, "a number of seconds > 0"),
    "window": _Key(Annotated[_Whole, Field(ge=0)], "a window's number, 0 or more,"),
    "model": _Key(Literal[PHYSICAL, PAPER], f"{PHYSICAL} or {PAPER}"),
    "engine": _Key(Literal[engine_names()], f"one of {', '.join(engine_names())}"),
}


def read_grid(arguments: Sequence[str]) -> Grid:
    """The grid of ``KEY=V1,V2`` arguments.

    Raises:
        GridError: No argument, an unknown key, a key given twice, a value that it does not take, or too many points.
    """
    if not arguments:
        raise GridError(f"--vary KEY=V1,V2 is missing; keys: {', '.join(_KEYS)}")
    variations = tuple(map(_read_variation, arguments))
    names = [variation.name for variation in variations]
    for name in names:
        if names.count(name) > 1:
            raise GridError(
                f"--vary {name} is given {names.count(name)} times; give its values once, separated by commas"
            )
    n_points = math.prod(len(variation.choices) for variation in variations)
    if n_points > MAX_POINTS:
        raise GridError(f"--vary: the grid has {n_points:,} points; at most {MAX_POINTS:,} are allowed")
    return Grid(variations)


def shown(text: str) -> str:
    """The text, cut where it is too long for a message."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _read_variation(argument: str) -> Variation:
    name, equals, texts = argument.partition("=")
    tenant, _, key = name.strip().rpartition(".")
    if not equals or key not in _KEYS:
        hint = did_you_mean(key, _KEYS) if equals else ""
        raise GridError(f"--vary {shown(argument)}{hint}: KEY=V1,V2 is needed, KEY one of {', '.join(_KEYS)}")
    if tenant and not _KEYS[key].of_tenant:
        of_tenants = ", ".join(name for name, entry in _KEYS.items() if entry.of_tenant)
        raise GridError(f"--vary {shown(name)}: {key} is no key of a single tenant; those are {of_tenants}")
    n_values = texts.count(",") + 1
    if n_values > MAX_VALUES:
        raise GridError(f"--vary {shown(name)}: {n_values:,} values are given; at most {MAX_VALUES:,} are allowed")
    choices: list[Choice] = []
    for text in map(str.strip, texts.split(",")):
        choice = choice_of("--vary", key, tenant or None, text)
        if choice in choices:
            raise GridError(f"--vary {shown(argument)}: {choice.text} is given twice")
        choices.append(choice)
    return Variation(tuple(choices))


def doubts_of(variations: Iterable[Variation]) -> tuple[str, ...]:
    """What is doubtful of the largest load that is tried, in a sentence; factors are none."""
    choices = [choice for variation in variations for choice in variation.choices if choice.key == "load"]
    return load_doubts(max((one.value for one in choices if isinstance(one.value, float)), default=None))


def choice_of(option: str, key: str, tenant: str | None, text: str) -> Choice:
    """The value of the key in the text.

    Raises:
        GridError: It is none that the key takes; begins with the option.
    """
    try:
        return Choice(key, tenant, _KEYS[key].read(text))
    except ValidationError:
        name = key if tenant is None else f"{tenant}.{key}"
        raise GridError(f"{option} {shown(f'{name}={text}')}: {_KEYS[key].allowed} is needed") from None
