"""Whether the documentation can be read and followed: ``python -m tests.prose [PAGE …]``, a part of ``make check``.

Held are the limits of a sentence, a bullet, a table's cell and a page; links, and their headings, lead somewhere; the
commands that pages tell readers to type exist, with these options. Code counts as one word, wherever it stands in a
line; blocks of code, headings and tables are no sentences.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from migrator.cli import command_line
from migrator.commands.verbs import Verb

ROOT = Path(__file__).parents[1]

MOST_WORDS, MOST_SENTENCES, MOST_CELL, MOST_PAGE = 35, 3, 200, 1500
"""Words of a sentence, sentences of a bullet, characters of a cell, words of a page."""

REFERENCE = ("configuration.md", "log.md", "policies.md", "problem-file.md", "results-appendix.md")
"""Pages that may be longer: one looks things up in them."""

_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[*_\"'(\[]*[A-Z0-9`])")
_NO_END = re.compile(r"\b(e\.g|i\.e|cf|vs|etc|approx|No|Fig)\.$")
_CODE, _LINK = re.compile(r"`[^`]+`"), re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")


def pages() -> list[Path]:
    """README and all pages of ``docs``."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sentences(text: str) -> list[str]:
    """Those of a paragraph, code standing as one word."""
    found = list[str]()
    for part in _END.split(_LINK.sub(r"\1", _CODE.sub("`code`", text)).strip()):
        if found and _NO_END.search(found[-1]):
            found[-1] += f" {part}"
        elif part:
            found.append(part)
    return found


def blocks(text: str) -> Iterator[tuple[str, int, str]]:
    """Of a page what it has, with its line: each a ``row`` of a table, a ``bullet``, or a ``paragraph``."""
    kind, begin, lines, is_code = "", 0, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        is_fence = bare.startswith(("```", "~~~"))
        is_own = is_code or is_fence or not bare or bare.startswith(("#", "|", "<!--", ">"))
        is_bullet = not is_code and re.match(r"\s*(?:[-*+]|\d+\.)\s", line) is not None
        if lines and (is_own or is_bullet):
            yield kind, begin, " ".join(lines)
            lines = []
        if is_fence:
            is_code = not is_code
        elif not is_code and bare.startswith("|"):
            yield "row", number, bare
        elif not is_own or (is_bullet and not is_code):
            if not lines:
                kind, begin = "bullet" if is_bullet else "paragraph", number
            lines.append(re.sub(r"^(?:[-*+]|\d+\.)\s+", "", bare) if is_bullet else bare)


def too_long(page: Path) -> Iterator[str]:
    """Where the page goes beyond a limit."""
    n_words, name = 0, page.relative_to(ROOT)
    for kind, line, text in blocks(page.read_text("utf-8")):
        if kind == "row":
            for cell in re.split(r"(?<!\\)\|", text):
                shown = _LINK.sub(r"\1", cell).strip()
                n_words += len(shown.split())
                if len(shown) > MOST_CELL:
                    yield f"{name}:{line}: a cell of {len(shown)} characters; at most {MOST_CELL}: {shown[:60]} …"
            continue
        found = sentences(text)
        n_words += len(text.split())
        if kind == "bullet" and len(found) > MOST_SENTENCES:
            yield f"{name}:{line}: a bullet of {len(found)} sentences; at most {MOST_SENTENCES}: {text[:60]} …"
        for sentence in found:
            if len(sentence.split()) > MOST_WORDS:
                shown = f"{sentence[:60]} …"
                yield f"{name}:{line}: a sentence of {len(sentence.split())} words; at most {MOST_WORDS}: {shown}"
    if n_words > MOST_PAGE and page.name not in REFERENCE:
        yield f"{name}: {n_words} words; at most {MOST_PAGE}"


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as links give them."""
    heads = re.findall(r"^#+\s+(.*)$", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", _LINK.sub(r"\1", head).lower()).strip().replace(" ", "-") for head in heads}


def dead_links(page: Path) -> Iterator[str]:
    """Links to files and headings that are not there."""
    for _, target in _LINK.findall(page.read_text("utf-8")):
        file, _, heading = target.partition("#")
        if ":" in file:
            continue
        there = page.parent / file if file else page
        if not there.exists() or (heading and there.suffix == ".md" and heading not in anchors(there)):
            yield f"{page.relative_to(ROOT)}: the link {target} leads nowhere"


def unknown_commands(page: Path, root: TyperGroup) -> Iterator[str]:
    """Commands and options of ours that do not exist, in blocks of code and in code within a line."""
    text = page.read_text("utf-8")
    shown = [line for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    shown += _CODE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in shown:
        for typed in re.findall(r"(?:^\$ |[`/ ]|^)migrator ([a-z][^`#|&;]*)", line):
            words = typed.split()
            command: Any = root
            while words and isinstance(command, TyperGroup) and words[0] in command.commands:
                command = command.commands[words.pop(0)]
            loaded = command.load() if isinstance(command, Verb) else command
            options = {name for parameter in loaded.params for name in (*parameter.opts, *parameter.secondary_opts)}
            name = page.relative_to(ROOT)
            if isinstance(command, TyperGroup) and words and re.fullmatch(r"[a-z]+", words[0]):
                yield f"{name}: migrator {typed}: there is no command {words[0]}"
            for word in words:
                option = word.partition("=")[0].rstrip(".,)")
                if re.fullmatch(r"--[a-z-]+", option) and option not in {*options, "--help"}:
                    yield f"{name}: migrator {typed}: there is no option {option}"


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong with the pages that are named, or with all; 1 if anything is."""
    root = command_line()
    chosen = [Path(argument).resolve() for argument in arguments] or pages()
    found = [line for page in chosen for line in (*too_long(page), *dead_links(page), *unknown_commands(page, root))]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
