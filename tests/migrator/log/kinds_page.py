"""The tables of ``docs/log.md``, made from the types of records and what their source says of them.

``python -m tests.migrator.log.kinds_page`` writes them anew; ``test_kinds_page.py`` holds that the page has them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

from migrator.log import records
from migrator.log.records import AnyRecord, InWindow, Part, Record, Wall

PAGE = Path(__file__).parents[3] / "docs" / "log.md"
ALIKE = 5
"""So many fields, all of which another kind has too, are told once."""
BEGIN, END = "<!-- made from migrator/log/records.py -->\n", "<!-- end of what is made from it -->\n"


def rendered() -> str:
    """A section for each kind of record: when it is written, and its fields, with those of what they hold."""
    kinds, lines = get_args(AnyRecord), list[str]()
    places: dict[type[Part], str] = {}
    of_none = ", ".join(f"`{_name(kind)}`" for kind in kinds if not issubclass(kind, InWindow))
    lines.append(f"All have `window`, the number of the window that they concern, but for {of_none}.")
    shown = {kind: _own_fields(kind) for kind in kinds}
    for kind in kinds:
        lines += ["", f"### `{_name(kind)}`", "", _sentence(_when(kind))]
        fields, link = shown[kind], f"[`{_name(kind)}`](#{_name(kind)})"
        alike = [other for other in places if len(fields) >= ALIKE and {*fields} <= {*shown.get(other, ())}]
        if alike:
            less = ", ".join(f"`{name}`" for name in shown[alike[0]] if name not in fields)
            lines[-1] += f" Its fields are those of {places[alike[0]]} but {less}."
        elif fields:
            lines += ["", "| field | meaning |", "|---|---|", *_rows(kind, fields, "", link, places)]
        places[kind] = link
    lines += ["", "### `wall`", "", _sentence(_when(Wall)), "", "| field | meaning |", "|---|---|"]
    return "\n".join([*lines, *_rows(Wall, _own_fields(Wall), "", "", places)]) + "\n"


def _own_fields(of: type[Part]) -> list[str]:
    """All but the window, which nearly all have."""
    return [name for name in of.__struct_fields__ if name != "window"]


def _parts_in(hint: Any) -> Iterator[type[Part]]:
    if isinstance(hint, type) and issubclass(hint, Part):
        yield hint
    for inner in get_args(hint):
        yield from _parts_in(inner)


def _name(kind: type[Record]) -> str:
    return str(kind.__struct_config__.tag)


def _when(of: type[Part]) -> str:
    return as_phrase(inspect.getdoc(of) or "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _rows(of: type[Part], names: list[str], under: str, place: str, places: dict[type[Part], str]) -> Iterator[str]:
    """First those without a meaning or fields of their own, in one row; then a row for each other."""
    told, hints = docs_of(of, records), get_type_hints(of, include_extras=False)
    bare = [name for name in names if name not in told and not [*_parts_in(hints[name])]]
    if bare:
        yield f"| {', '.join(f'`{under}{name}`' for name in bare)} | |"
    for name in names:
        part = next(_parts_in(hints[name]), None)
        if name in bare:
            continue
        meaning = told.get(name) or _when(part or of)
        if part is None:
            yield f"| `{under}{name}` | {meaning} |"
        elif part in places:
            also = "" if "as of " in meaning or "as in " in meaning else f"as {places[part]}"
            yield f"| `{under}{name}` | {'; '.join(filter(None, (told.get(name), also)))} |"
        else:
            places[part] = f"`{under}{name}`" + (f" of {place}" if place else "")
            of_part = docs_of(part, records)
            inside = get_type_hints(part, include_extras=False)
            plain = [each for each in part.__struct_fields__ if each not in of_part and not [*_parts_in(inside[each])]]
            also = f"; has {', '.join(f'`{each}`' for each in plain)}" if plain else ""
            yield f"| `{under}{name}` | {meaning}{also} |"
            more = [each for each in part.__struct_fields__ if each not in plain]
            yield from _rows(part, more, f"{under}{name}.", place, places)


def docs_of(of: type, module: ModuleType) -> dict[str, str]:
    """What a class and those that it is made from, of this module, say of their fields."""
    found: dict[str, str] = {}
    for own in reversed(of.__mro__):
        if own.__module__ != module.__name__:
            continue
        (tree,) = ast.parse(inspect.getsource(own)).body
        assert isinstance(tree, ast.ClassDef)
        for line, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            match line, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    found[name] = as_phrase(inspect.cleandoc(doc))
    return found


def as_phrase(doc: str) -> str:
    """A docstring as a phrase of Markdown."""
    text = re.sub(r"\s+", " ", doc.replace("``", "`")).rstrip(".,")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def page(rendered_: str) -> str:
    """The page with these tables."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + rendered_ + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(rendered()), "utf-8")
