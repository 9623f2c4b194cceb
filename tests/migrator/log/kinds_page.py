"""The tables of ``docs/log.md``, made from the types of records and what their source says of them.

``python -m tests.migrator.log.kinds_page`` writes them anew; ``test_kinds_page.py`` holds that the page has them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from migrator.log import records
from migrator.log.records import AnyRecord, InWindow, Part, Record, Wall

PAGE = Path(__file__).parents[3] / "docs" / "log.md"
BEGIN, END = "<!-- made from migrator/log/records.py -->\n", "<!-- end of what is made from it -->\n"


def rendered() -> str:
    """The table of kinds, with the fields of each, and those of what their fields hold."""
    kinds = get_args(AnyRecord)
    parts: dict[type[Part], list[str]] = {Wall: ["`wall`"]}
    for kind in kinds:
        _find_parts(kind, f"`{_name(kind)}`", parts)
    lines = ["| kind | when |", "|---|---|"]
    lines += [f"| [`{_name(kind)}`](#{_anchor(_name(kind))}) | {_when(kind)} |" for kind in kinds]
    of_none = ", ".join(f"`{_name(kind)}`" for kind in kinds if not issubclass(kind, InWindow))
    lines += ["", f"All have `window`, the number of the window that they concern, but for {of_none}."]
    for kind in kinds:
        lines += ["", f"### `{_name(kind)}`", "", *_fields(kind, parts)]
    lines += ["", "## What fields hold", "", "Fields of the records above that have fields of their own."]
    for part, (place, *more) in parts.items():
        also = f" Likewise {', '.join(more)}." if more else ""
        lines += ["", f"### {place}", "", f"{_sentence(_when(part))}{also}", "", *_fields(part, parts)]
    return "\n".join(lines) + "\n"


def _find_parts(of: type[Part], name: str, found: dict[type[Part], list[str]]) -> None:
    hints = get_type_hints(of, include_extras=False)
    for field in of.__struct_fields__:
        for part in _parts_in(hints[field]):
            place = f"`{field}` of {name}"
            is_new = part not in found
            places = found.setdefault(part, [])
            if place not in places:
                places.append(place)
            if is_new:
                _find_parts(part, f"`{field}`", found)


def _parts_in(hint: Any) -> Iterator[type[Part]]:
    if isinstance(hint, type) and issubclass(hint, Part):
        yield hint
    for inner in get_args(hint):
        yield from _parts_in(inner)


def _name(kind: type[Record]) -> str:
    return str(kind.__struct_config__.tag)


def _anchor(heading: str) -> str:
    return heading.replace("`", "").replace(" ", "-")


def _when(of: type[Part]) -> str:
    return _text(inspect.getdoc(of) or "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _fields(of: type[Part], parts: dict[type[Part], list[str]]) -> Iterator[str]:
    """Their table: a row for each that is told of or has fields of its own, one for others that stand together."""
    told, hints, named = _docs_of(of), get_type_hints(of, include_extras=False), list[str]()
    yield from ("| field | meaning |", "|---|---|")
    for field in of.__struct_fields__:
        if field == "window":  # of nearly all kinds, and told once
            continue
        part = next(_parts_in(hints[field]), None)
        name = f"`{field}`" if part is None else f"[`{field}`](#{_anchor(parts[part][0])})"
        if part is None and field not in told:
            named.append(name)
            continue
        if named:
            yield f"| {', '.join(named)} | |"
            named = []
        yield f"| {name} | {told[field] if part is None or field in told else _when(part)} |"
    if named:
        yield f"| {', '.join(named)} | |"


def _docs_of(of: type[Part]) -> dict[str, str]:
    found: dict[str, str] = {}
    for own in reversed(of.__mro__):
        if own.__module__ != records.__name__:
            continue
        (tree,) = ast.parse(inspect.getsource(own)).body
        assert isinstance(tree, ast.ClassDef)
        for line, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            match line, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    found[name] = _text(inspect.cleandoc(doc))
    return found


def _text(doc: str) -> str:
    """A docstring as a phrase of Markdown."""
    text = re.sub(r"\s+", " ", doc.replace("``", "`")).rstrip(".,")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def page(rendered_: str) -> str:
    """The page with these tables."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + rendered_ + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(rendered()), "utf-8")
