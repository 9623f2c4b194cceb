"""Files that a command is asked to write: refused before anything is solved, written after it."""

from __future__ import annotations

import os
from pathlib import Path

from migrator.errors import MigratorError


def require_writable(option: str, path: Path, *others: Path) -> None:
    """Nothing, if ``path`` can be written and is none of ``others``, which the command reads or writes as well.

    Raises:
        MigratorError: It cannot, or is; names the option, the file and the reason.
    """
    reason = _obstacle(path, others)
    if reason is not None:
        raise MigratorError(f"{option} {path}: {reason}")


def write_output(option: str, path: Path, text: str) -> None:
    """Write ``text``, ended by a line break.

    Raises:
        MigratorError: The file cannot be written; names the option, the file and the reason.
    """
    try:
        path.write_text(text if text.endswith("\n") else text + "\n", "utf-8")
    except OSError as error:
        raise MigratorError(f"{option} {path}: cannot be written: {error.strerror or error}") from None


def _obstacle(path: Path, others: tuple[Path, ...]) -> str | None:
    if path.is_dir():
        return "is a folder; a file is needed"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "cannot be written: no permission"
    same = next((other for other in others if other.resolve() == path.resolve()), None)
    return None if same is None else f"is the same file as {same}; another name is needed"
