"""The page of words has each term that a report prints."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

PLAIN = {
    *("after", "arrive/s", "asked for", "before", "can serve/s", "ends", "later", "load ms", "ms", "new weights"),
    *("not served", "ours over it", "promises\nit", "retrains", "retrains on", "wins"),
}
"""Headings that say in plain words what they mean."""


def headings() -> set[str]:
    """The names of columns in reports."""
    found = set[str]()
    for file in (ROOT / "migrator" / "views").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Column"), args=[ast.Constant(value=str(name)), *_]) if name:
                    found.add(name)
    return found


def test_each_heading_of_a_report_is_in_the_glossary() -> None:
    words = " ".join((ROOT / "docs" / "glossary.md").read_text("utf-8").lower().split())
    assert len(headings()) > 40
    assert sorted(name for name in headings() - PLAIN if name.lower() not in words) == []


def test_each_word_is_explained_in_one_sentence_and_once() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    told = [(word, text) for word, text in rows if word not in ("word", "cause", "---")]
    assert [text for _, text in told if not text.endswith(".") or re.search(r"\.\s+[A-Z]", text)] == []
    assert len({word for word, _ in told}) == len(told)
