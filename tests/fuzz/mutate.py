"""What may be wrong with a document, a table or a file: a few changes, drawn from a seeded generator."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import yaml

# Nothing from a thousand to ten million: what asks for much work, and is allowed, may take long.
NUMBERS = (0, -1, 1, 2, 3, 7, 0.5, -0.0, 1e-9, 1e-300, 5e-324, 1e12, 1e308, -1e308, 2**31, 2**63, 10**30, 10**400)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "",
    " ",
    "x",
    "no",
    "1e5",
    "-",
    "x" * 3000,
    "é日本\u202e\u2028x",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "two\nlines\r\tand",
    "[red]x[/red]",
    "[/]",
    "[bold",
    ":smile: {0} %s \\",
    "a\0b",
    "\ud800",
    "../../x",
    "/dev/zero",
    "/",
    ".",
    "trace.csv",
    "pipe.csv",
    "loop.csv",
    "bomb.csv.gz",
    "azure-conv",
    "1g.10gb",
    "9g.90gb@0",
    "1g.5gb@" + "9" * 5000,
)
SHAPES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"a": {"b": []}}, {"": 1}, [1, 2, 3], [["x"]] * 9)

NAMES = ("nobody", "", "vision", "language", "1g.10gb", "7g.80gb@0")
"""Of tenants, profiles and placements, some of which a run has."""

RAW = (
    "!!bool maybe",
    "!!int x",
    "!!float ''",
    "!!timestamp x",
    "!!binary '='",
    "!!python/object/apply:os.getcwd []",
    "!!set {a, b}",
    "&again [*again]",
    "*nothing",
    "2024-99-99",
    "2024-01-01",
    "0x1F",
    "010",
    "1_000",
    "1:30:00",
    ".nan",
    "yes",
    "1" * 5000,
    "{<<: {a: 1}}",
    "[" * 300,
    "- " * 300,
    "'open",
    "{a: 1, a: 2}",
    "? [a]",
    "\t",
)
"""Text in the place of a value, as no value is written."""

_MARK = "RAW-TEXT-HERE"


def value(random: Random) -> Any:
    """Something that rarely belongs where it is put."""
    return copy.deepcopy(random.choice(random.choice((NUMBERS, NOT_FINITE, TEXTS, SHAPES))))


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key and index of a document, from the top."""
    found = []
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, inner in items:
        found += [(*path, key), *places(inner, (*path, key))]
    return found


def mutated(document: Any, random: Random) -> Any:
    """A copy with one to three changes: keys and items removed, doubled, renamed, or given another value."""
    result = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        known = places(result)
        if not known:
            return value(random)
        _change(*_owner(result, random.choice(known)), random)
    return result


def slightly_changed(document: dict[str, Any], random: Random) -> dict[str, Any]:
    """A copy in which one place holds a value that might well stand there, or has gone."""
    result = copy.deepcopy(document)
    owner, last = _owner(result, random.choice(places(result)))
    if random.random() < 0.2 or not isinstance(owner, (dict, list)):
        del owner[last]
    else:
        owner[last] = _near(owner[last], owner, random)
    return result


def with_another_name(document: dict[str, Any], random: Random) -> dict[str, Any]:
    """A copy in which a text, or the key of a value that is no plain one, is another or that of its neighbour."""
    result = copy.deepcopy(document)
    texts = [path for path in places(result) if isinstance(_at(result, path), str)]
    keys = [path for path in places(result) if isinstance(path[-1], str) and len(path) > 1]
    owner, last = _owner(result, random.choice(random.choice([one for one in (texts, keys) if one])))
    others = [*NAMES, *(key for key in owner if isinstance(key, str))]
    if isinstance(owner[last], str) and random.random() < 0.7:
        owner[last] = random.choice(others)
    elif isinstance(owner, dict):
        owner[random.choice(others)] = owner.pop(last)
    return result


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _owner(document: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    """What holds the place, and under which key or index."""
    return _at(document, path[:-1]), path[-1]


def _change(owner: Any, key: Any, random: Random) -> None:
    old = owner[key]
    match random.randrange(12):
        case 8 | 9 | 10 | 11:
            owner[key] = _near(old, owner, random)
        case 0:
            del owner[key]
        case 1 if isinstance(owner, list):
            owner.insert(random.randrange(len(owner) + 1), copy.deepcopy(old))
        case 1:
            owner[random.choice((f"{key}x", str(key)[:-1], *TEXTS))] = owner.pop(key)
        case 2 if isinstance(old, (int, float)) and not isinstance(old, bool):
            factor = random.choice((-1, 0, 0.5, 2, 1e-9, 1e12))
            owner[key] = old * factor if abs(old) < 1e18 else -1
        case 3 if isinstance(old, str):
            at = random.randrange(len(old) + 1)
            owner[key] = old[:at] + random.choice(TEXTS)[:200] + old[at:]
        case 4:
            owner[key] = str(old)
        case 5:
            owner[key] = [old]
        case _:
            owner[key] = value(random)


def _near(old: Any, owner: Any, random: Random) -> Any:
    """A value that might well stand there: nearly the same number, or what stands beside it."""
    if isinstance(old, (int, float)) and not isinstance(old, bool) and abs(old) < 1e18:
        return random.choice((old + 1, old - 1, old / 2, old * 2, -old, old * 0.9, 0))
    return copy.deepcopy(random.choice(list(owner.values() if isinstance(owner, dict) else owner)))


def as_json(document: Any) -> bytes:
    """As JSON, with NaN and what else Python writes."""
    return json.dumps(document).encode("utf-8", "surrogatepass")


def as_yaml(document: Any, random: Random, raw_share: float = 0.1) -> bytes:
    """As YAML; now and then with a text in the place of a value that no value is written as."""
    raw = None
    if random.random() < raw_share and (known := places(document)):
        document, raw = copy.deepcopy(document), random.choice(RAW)
        *above, last = random.choice(known)
        owner = document
        for key in above:
            owner = owner[key]
        owner[last] = _MARK
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=random.random() < 0.5)
    return (text if raw is None else text.replace(_MARK, raw)).encode("utf-8", "surrogatepass")


def damaged(raw: bytes, random: Random) -> bytes:
    """With some bytes cut, changed or added, or lines moved."""
    if random.random() < 0.4:
        at = random.randrange(len(raw) + 1)
        text = random.choice((*TEXTS, *RAW)).encode("utf-8", "surrogatepass")[:400]
        byte = bytes([random.randrange(256)])
        return random.choice((raw[:at], raw[:at] + byte + raw[at + 1 :], raw[:at] + text + raw[at:]))
    lines = raw.splitlines(keepends=True) or [b""]
    match random.randrange(6):
        case 0:
            lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
        case 1:
            lines.pop(random.randrange(len(lines)))
        case 2:
            random.shuffle(lines)
        case 3:
            one, other = random.randrange(len(lines)), random.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one]
        case 4:
            return random.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"\0\0")) + raw
        case _:
            return b"" if random.random() < 0.2 else raw.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"")))
    return b"".join(lines)


def table(text: str, random: Random) -> bytes:
    """Rows of comma-separated cells, one to three cells changed."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(random.choice((1, 1, 2, 3))):
        row = random.choice(rows)
        cell = random.randrange(len(row))
        match random.randrange(5):
            case 0:
                row.pop(cell)
            case 1:
                row.insert(cell, random.choice(row) if row else "")
            case 2:
                row[cell] = "1" * 5000
            case _:
                row[cell] = str(value(random))
        row[:] = row or [""]
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass") + b"\n"
