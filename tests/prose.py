"""Whether the documentation can be read and followed: ``python -m tests.prose [PAGE …]``, a part of ``make check``.

It holds the limits of a sentence, a bullet and a table's cell; links and their headings exist, and so do the commands
and options that pages tell readers to type. Code in a line counts as one word; blocks of code, headings and tables are
no sentences.

Without a page it also prints the words of each page and the phrases of :data:`PHRASES` by folder, and compares them
with ``tests/prose.toml``. Numbers there may only fall: ``python -m tests.prose --lower`` writes those that fell.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from migrator.cli import command_line
from migrator.commands.verbs import Verb

ROOT = Path(__file__).parents[1]

MOST_WORDS, MOST_SENTENCES, MOST_CELL = 35, 3, 200
"""Words of a sentence, sentences of a bullet, characters of a cell."""

LIMITS = ROOT / "tests" / "prose.toml"

GENERATED = ("configuration.md", "log.md")
"""Reference made from types: one looks things up in it."""

PACKAGES = ("benchmarks", "executor", "forecaster", "planner", "workloads", "migrator")
"""Whose docstrings, comments and messages are counted; of ``migrator`` by folder."""

PHRASES = {
    "is told": r"\b(?:is|are|was|were|be|been|being|not|also) told\b",
    "by now": r"\bby (?:now|then)\b",
    "as far as": r"\b(?:as|so) far\b",
    "what comes of": r"\b(?:come|comes|came|become|becomes|became) of\b",
    "stands": r"\b(?:stand|stands|stood)\b(?!-ins?\b| (?:still|alone|for)\b)",
    "gives": r"\b(?:gives|gave)\b",
}
"""Phrases that hide who does what: a plain verb says it."""

_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[*_\"'(\[]*[A-Z0-9`])")
_NO_END = re.compile(r"\b(e\.g|i\.e|cf|vs|etc|approx|No|Fig)\.$")
_CODE, _LINK = re.compile(r"`[^`]+`"), re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")


def pages() -> list[Path]:
    """README and all pages of ``docs``."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


CONTRIBUTING = ROOT / "CONTRIBUTING.md"
"""For those who change the code; checked as pages are, and not counted with those for users."""


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
    name = page.relative_to(ROOT)
    for kind, line, text in blocks(page.read_text("utf-8")):
        if kind == "row":
            for cell in re.split(r"(?<!\\)\|", text):
                shown = _LINK.sub(r"\1", cell).strip()
                if len(shown) > MOST_CELL:
                    yield f"{name}:{line}: a cell of {len(shown)} characters; at most {MOST_CELL}: {shown[:60]} …"
            continue
        found = sentences(text)
        if kind == "bullet" and len(found) > MOST_SENTENCES:
            yield f"{name}:{line}: a bullet of {len(found)} sentences; at most {MOST_SENTENCES}: {text[:60]} …"
        for sentence in found:
            if len(sentence.split()) > MOST_WORDS:
                shown = f"{sentence[:60]} …"
                yield f"{name}:{line}: a sentence of {len(sentence.split())} words; at most {MOST_WORDS}: {shown}"


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


def prose_of(file: Path) -> str:
    """What a reader reads of a file: a page as it is, of Python its comments and strings."""
    text = file.read_text("utf-8")
    if file.suffix != ".py":
        return text
    comments = [
        token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    shown = [token.string.lstrip("#") for token in comments] + [each for each in strings if isinstance(each, str)]
    return "\n".join(shown)


def phrases(text: str) -> int:
    """How often the phrases occur."""
    joined = " ".join(text.split())
    return sum(len(re.findall(pattern, joined, re.IGNORECASE)) for pattern in PHRASES.values())


def folders() -> dict[str, list[Path]]:
    """The files to count phrases in, by folder."""
    found = {"docs": [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            inside = file.relative_to(ROOT).parts
            own = package == "migrator" and len(inside) > 2
            found.setdefault("/".join(inside[:2]) if own else package, []).append(file)
    return found


def measured() -> dict[str, dict[str, int]]:
    """What the limits are compared with: words and number of pages, words of each page, phrases of each folder."""
    words = {page.name: len(page.read_text("utf-8").split()) for page in pages()}
    by_hand = [n for name, n in words.items() if name not in GENERATED]
    made = sum(words.values()) - sum(by_hand)
    pages_ = {"by hand": len(by_hand), "words by hand": sum(by_hand), "words generated": made, "longest": max(by_hand)}
    pages_["words of CONTRIBUTING"] = len(CONTRIBUTING.read_text("utf-8").split())
    counted = {name: sum(phrases(prose_of(file)) for file in files) for name, files in folders().items()}
    return {"pages": pages_, "phrases": counted, "words": words}


def beyond(found: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Numbers above their limit, and those that have none."""
    for table in ("pages", "phrases"):
        for name, n in found[table].items():
            most = limits[table].get(name, 0)
            if n > most:
                yield f"tests/prose.toml: {table}: {name}: {n}; at most {most}"


def _lower(found: Mapping[str, Mapping[str, int]], limits: Mapping[str, Mapping[str, int]]) -> str:
    """The file of limits with those that fell."""
    lines = [line for line in LIMITS.read_text("utf-8").splitlines() if line.startswith("#")]
    for table in ("pages", "phrases"):
        lines += ["", f"[{table}]"]
        lines += [f'"{name}" = {min(n, limits[table].get(name, n))}' for name, n in found[table].items()]
    return "\n".join(lines) + "\n"


def _compared(is_lower: bool) -> list[str]:
    """Print words and phrases, and return what is beyond the limits; where wished, lower them."""
    found, limits = measured(), tomllib.loads(LIMITS.read_text("utf-8"))
    for name, n in sorted(found["words"].items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{n:7,}  {name}{' (generated)' if name in GENERATED else ''}\n")
    for table in ("pages", "phrases"):
        for name, n in found[table].items():
            sys.stdout.write(f"{n:7,}  {table}: {name} (at most {limits[table].get(name, 0):,})\n")
    sys.stdout.write(f"{sum(found['phrases'].values()):7,}  phrases in all\n")
    if is_lower:
        LIMITS.write_text(_lower(found, limits), "utf-8")
    return list(beyond(found, limits))


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong with the pages that are named, or with all; 1 if anything is."""
    root = command_line()
    named = [Path(argument).resolve() for argument in arguments if argument != "--lower"]
    found = [] if named else _compared("--lower" in arguments)
    for page in named or [*pages(), CONTRIBUTING]:
        found += [*too_long(page), *dead_links(page), *unknown_commands(page, root)]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
