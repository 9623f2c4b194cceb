"""Files that a command is asked to write: checked before anything is solved, written whole or not at all after it."""

from __future__ import annotations

import os
from pathlib import Path

from executor.files import open_in_place, write_whole
from migrator.errors import MigratorError, OutputError


def require_writable(option: str, path: Path, *others: Path) -> None:
    """Refuse a ``path`` that cannot be written, or is one of ``others``, which the command reads or writes as well.

    Raises:
        MigratorError: Names the option, the file and the reason.
    """
    reason = _obstacle(path, others)
    if reason is not None:
        raise MigratorError(f"{option} {path}: {reason}")


def write_output(option: str, path: Path, text: str) -> None:
    """Write ``text``, ended by a line break. If that fails, an earlier file at ``path`` is as it was.

    A symbolic link is followed. Files that cannot be replaced by another are written in place: devices, pipes, a file
    that is open already (``/dev/stdout``), another user's.

    Raises:
        OutputError: The file cannot be written; names the option, the file and the reason.
    """
    content = text if text.endswith("\n") else text + "\n"
    try:
        if path.exists() and not _can_be_replaced(path):
            _overwrite(path, content)
        else:
            write_whole(Path(os.path.realpath(path)), content.encode())
    except OSError as error:
        raise OutputError(f"{option} {path}: cannot be written: {error.strerror or error}") from None


def _can_be_replaced(path: Path) -> bool:
    opened = (fd for fd in Path("/dev/fd").glob("*") if fd.exists())
    return (
        path.is_file()
        and path.stat().st_uid == os.geteuid()
        and os.access(path.resolve().parent, os.W_OK)
        and not any(path.samefile(fd) for fd in opened)
    )


def _overwrite(path: Path, content: str) -> None:
    """Write in place. A pipe that no process reads is an error and not waited for."""
    with open_in_place(path) as file:
        file.write(content.encode())


def _obstacle(path: Path, others: tuple[Path, ...]) -> str | None:
    if path.is_dir():
        return "is a folder; a file is needed"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "cannot be written: no permission"
    same = next((other for other in others if os.path.realpath(other) == os.path.realpath(path)), None)
    return None if same is None else f"is the same file as {same}; another name is needed"
