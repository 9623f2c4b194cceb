"""``--set KEY=VALUE``: keys of a config changed by their dotted path, before the config is validated.

A value is written as in the file (YAML). An entry of a list is named by its place from 0, a tenant by its name as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.errors import ConfigError
from planner.files.strict import value_in

LONGEST = 10_000
"""Characters of one assignment; what needs more belongs into the file."""


def assigned(document: Mapping[str, object], assignments: Sequence[str]) -> dict[str, object]:
    """The document with every assignment made; itself it stays as it is.

    Raises:
        ConfigError: One is no ``KEY=VALUE``, names a key twice, or goes through something that has no such entry.
    """
    changed, seen = dict(document), set[str]()
    for text in assignments:
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts) or len(text) > LONGEST:
            raise ConfigError(f"--set {shown}: KEY=VALUE is needed, KEY a dotted path such as tenants.NAME.slo_ms")
        if key.strip() in seen:
            raise ConfigError(f"--set {shown}: {key.strip()} is given twice")
        seen.add(key.strip())
        try:
            new = value_in(value)
        except ValueError as error:
            raise ConfigError(f"--set {shown}: {error}") from None
        try:
            result = _with(changed, parts, new, ())
        except LookupError as error:
            raise ConfigError(f"--set {shown}: {error.args[0]}") from None
        assert isinstance(result, dict)
        changed = result
    return changed


def _with(node: object, parts: Sequence[str], value: object, above: tuple[str, ...]) -> object:
    """A copy of the node in which what the parts lead to is the value; sections that are missing are made."""
    if not parts:
        return value
    where = ".".join(above)
    if node is None:
        node = {}
    if isinstance(node, dict):
        first, rest = parts[0], parts[1:]
        return node | {first: _with(node.get(first), rest, value, (*above, first))}
    if isinstance(node, list):
        place, n_parts = _entry(node, parts, where)
        changed = _with(node[place], parts[n_parts:], value, (*above, *parts[:n_parts]))
        return [*node[:place], changed, *node[place + 1 :]]
    raise LookupError(f"{where} is {node!r:.60}, which has no key {parts[0]!r}")


def _entry(entries: Sequence[object], parts: Sequence[str], where: str) -> tuple[int, int]:
    """Which entry of a list is meant, and how many parts name it: a name may hold dots."""
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
    for n_parts in range(len(parts), 0, -1):
        name = ".".join(parts[:n_parts])
        if name in names:
            return names.index(name), n_parts
    if parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) < 10 and int(parts[0]) < len(entries):
        return int(parts[0]), 1
    known = ", ".join(str(name) for name in names if name is not None)
    allowed = f"it has {known}" if known else f"a place from 0 to {len(entries) - 1} is needed"
    raise LookupError(f"{where} has no entry {parts[0]!r}; {allowed}")
