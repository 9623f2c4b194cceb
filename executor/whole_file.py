"""Files that are written whole or not at all: a power cut leaves the old one or the new one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, raw: bytes) -> None:
    """Put a file of ``raw`` in the place of ``path``, with the permissions of the one that was there.

    It is written beside it, under another name, so that no half file is seen; if that fails, the earlier file is as
    it was and nothing else is left behind.

    Raises:
        OSError: The disk is full or gone, or the folder is missing or may not be written to.
    """
    beside = path.with_name(f".migrator-{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())  # or a crash soon after could leave the new name with nothing in it
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on the disk; not where it may not be read, or has nothing to sync.

    Raises:
        OSError: The disk is gone.
    """
    with suppress(PermissionError):  # a folder may be one to write in that is none to read
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system that has nothing to sync of a folder
                raise
        finally:
            os.close(descriptor)
