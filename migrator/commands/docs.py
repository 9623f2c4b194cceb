"""``migrator docs``: the pages of the documentation that are shipped with the program."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from executor.files import read_input
from executor.names import did_you_mean
from migrator.commands.options import with_examples
from migrator.errors import MigratorError
from migrator.terminal.console import escape, output

DOCS = Path(__file__).parents[1] / "docs"
"""A link to the folder at the top of the repository; a wheel has the files."""


@with_examples("docs configuration")
def docs_command(
    page: Annotated[
        str | None, typer.Argument(help="A page's name, such as configuration for docs/configuration.md.")
    ] = None,
) -> None:
    """Show a page in a pager, or print it as it is written where no terminal is; or list the pages, a line each.

    Raises:
        MigratorError: There is no such page.
    """
    known, console = pages(), output()
    if page is None:
        width = max(map(len, known))
        for name, path in known.items():
            console.print(f"{name:<{width}}  {escape(_title(path))}", soft_wrap=not console.is_terminal)
        console.print(f"\n`migrator docs PAGE` shows one; they are files of {DOCS}.", soft_wrap=True)
        return
    name = page.partition("#")[0].removeprefix("docs/").removesuffix(".md")
    if name not in known:
        hint = did_you_mean(name, known)
        raise MigratorError(f"no page {page!r}{hint}; there are {', '.join(known)}")
    text = read_input(known[name], 2**20).decode()
    if not console.is_terminal:
        typer.echo(text, nl=False)
        return
    from rich.markdown import Markdown  # noqa: PLC0415 - the list of pages should not wait for it

    with console.pager(styles=_keeps_styles()):
        console.print(Markdown(text, hyperlinks=False))


def _title(path: Path) -> str:
    """The page's first line, which is its heading."""
    return read_input(path, 2**20).decode().partition("\n")[0].removeprefix("# ")


def _keeps_styles() -> bool:
    """Whether the pager shows colours; ``less`` is asked to, and to end by itself where all fits on the screen."""
    os.environ.setdefault("LESS", "FRX")
    asked = shlex.split(os.environ.get("MANPAGER") or os.environ.get("PAGER") or "less")
    return Path(next(iter(asked), "")).name == "less" and "R" in os.environ["LESS"] and shutil.which("less") is not None


def pages() -> dict[str, Path]:
    """The documentation's pages by name."""
    return {path.stem: path for path in sorted(DOCS.glob("*.md"))}
