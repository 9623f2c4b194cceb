"""``migrator docs``: the pages of the documentation that are shipped with the program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from executor.files import read_input
from executor.names import did_you_mean
from migrator.commands.options import with_examples
from migrator.errors import MigratorError
from migrator.terminal.console import output

DOCS = Path(__file__).parents[1] / "docs"
"""A link to the folder at the top of the repository; a wheel has the files."""


@with_examples("docs configuration")
def docs_command(
    page: Annotated[
        str | None, typer.Argument(help="A page's name, such as configuration for docs/configuration.md.")
    ] = None,
) -> None:
    """Print a page as it is written, or say which there are and where they lie.

    Raises:
        MigratorError: There is no such page.
    """
    known = pages()
    if page is None:
        console, told = output(), f"{', '.join(known)}\nThey are files of {DOCS}; `docs PAGE` prints one."
        console.print(told, soft_wrap=not console.is_terminal)
        return
    name = page.partition("#")[0].removeprefix("docs/").removesuffix(".md")
    if name not in known:
        hint = did_you_mean(name, known)
        raise MigratorError(f"no page {page!r}{hint}; there are {', '.join(known)}")
    typer.echo(read_input(known[name], 2**20).decode(), nl=False)


def pages() -> dict[str, Path]:
    """The documentation's pages by name."""
    return {path.stem: path for path in sorted(DOCS.glob("*.md"))}
