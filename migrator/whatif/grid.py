"""What to vary: ``KEY=V1,V2 …`` as values, and the points of the grid that several of them span.

A key may stand for one tenant, ``TENANT.KEY``. A value ``x1.5`` is a factor on what the config gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from typing import TypeAlias

from executor.catalogue import gpu_model
from executor.errors import ExecutorError
from migrator.errors import GridError
from planner.solve import PAPER, PHYSICAL, engine_names

MAX_POINTS = 10_000
"""A larger grid is a slip; at a tenth of a second each this one takes a quarter of an hour."""

MAX_NUMBER = 1e6
"""As the config's: numbers beyond any use are slips."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A multiple of what the config gives."""

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

    def __str__(self) -> str:
        return f"{self.name}={shown(self.value)}"


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


def shown(value: Value) -> str:
    """The value as it would be typed."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown_point(point: Point) -> str:
    """The point in a line: ``load=x1.5, vision.slo_ms=100``."""
    return ", ".join(map(str, point))


@dataclass(frozen=True, slots=True)
class _Key:
    """What may be given to a key; ``parse`` raises ``ValueError`` for anything else."""

    parse: Callable[[str], Value]
    allowed: str
    of_tenant: bool = False


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
        raise GridError(f"--vary: the grid has {n_points} points; at most {MAX_POINTS} are allowed")
    return Grid(variations)


def _read_variation(argument: str) -> Variation:
    name, equals, texts = argument.partition("=")
    tenant, _, key = name.strip().rpartition(".")
    if not equals or key not in _KEYS:
        nearest = get_close_matches(key, _KEYS, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest and equals else ""
        raise GridError(f"--vary {argument}: KEY=V1,V2 is needed, KEY one of {', '.join(_KEYS)}{hint}")
    if tenant and not _KEYS[key].of_tenant:
        of_tenants = ", ".join(name for name, entry in _KEYS.items() if entry.of_tenant)
        raise GridError(f"--vary {name}: {key} is no key of a single tenant; those are {of_tenants}")
    choices: list[Choice] = []
    for text in texts.split(","):
        choice = Choice(key, tenant or None, _read_value(name, key, text.strip()))
        if choice in choices:
            raise GridError(f"--vary {name}={texts}: {choice.value} is given twice")
        choices.append(choice)
    return Variation(tuple(choices))


def _read_value(name: str, key: str, text: str) -> Value:
    entry = _KEYS[key]
    try:
        return entry.parse(text)
    except ValueError:
        raise GridError(f"--vary {name}={text}: {entry.allowed} is needed") from None


def _number(text: str, *, above_zero: bool) -> float:
    value = float(text)
    if not (value > 0 if above_zero else value >= 0) or value > MAX_NUMBER:
        raise ValueError(text)
    return value


def _positive(text: str) -> float:
    return _number(text, above_zero=True)


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MAX_NUMBER:
        raise ValueError(text)
    return value


def _window(text: str) -> int:
    value = int(text)
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError(text)
    return value


def _value_or_factor(*, above_zero: bool) -> Callable[[str], Value]:
    def parse(text: str) -> Value:
        if text[:1] in ("x", "×"):
            return Factor(_number(text[1:], above_zero=above_zero))
        return _number(text, above_zero=above_zero)

    return parse


def _one_of(*names: str) -> Callable[[str], Value]:
    def parse(text: str) -> Value:
        if text not in names:
            raise ValueError(text)
        return text

    return parse


def _gpu(text: str) -> Value:
    try:
        return gpu_model(text).name
    except ExecutorError as error:
        raise GridError(f"--vary gpu={text}: {error}") from None


def _batch(text: str) -> Value:
    return text if text == "auto" else _count(text)


_KEYS = {
    "gpu": _Key(_gpu, "a GPU model"),
    "tenants": _Key(_count, "a number of tenants, 1 or more,"),
    "slo_ms": _Key(_value_or_factor(above_zero=True), "milliseconds > 0, or a factor such as x0.5,", of_tenant=True),
    "load": _Key(
        _value_or_factor(above_zero=True), "a load > 0, or a factor on the arrivals such as x1.5,", of_tenant=True
    ),
    "batch": _Key(_batch, "the largest batch size to consider, 1 or more, or auto", of_tenant=True),
    "overhead_s": _Key(_value_or_factor(above_zero=False), "seconds ≥ 0, or a factor such as x0.5,", of_tenant=True),
    "step_s": _Key(_positive, "a number of seconds > 0"),
    "window": _Key(_window, "a window's number, 0 or more,"),
    "model": _Key(_one_of(PHYSICAL, PAPER), f"{PHYSICAL} or {PAPER}"),
    "engine": _Key(_one_of(*engine_names()), f"one of {', '.join(engine_names())}"),
}
