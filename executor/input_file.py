"""Input files, read whole: a regular file within a limit of size, or an ``OSError`` whose ``strerror`` says what it is.

A name may lead to a device that never ends, to a pipe without a writer, or to a few bytes that unpack to
gigabytes. None of them is an input file.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of a gzipped file."""

_MIB = 2**20

_KINDS = (
    (stat.S_ISDIR, "a folder", errno.EISDIR),
    (stat.S_ISFIFO, "a pipe", errno.ESPIPE),
    (stat.S_ISSOCK, "a socket", errno.ENXIO),
    (stat.S_ISCHR, "a device", errno.ENXIO),
    (stat.S_ISBLK, "a device", errno.ENXIO),
)


def read_input(path: Path, most_bytes: int) -> bytes:
    """What the regular file at ``path`` holds, at most ``most_bytes``.

    Raises:
        OSError: It is missing (``FileNotFoundError``), no regular file, larger, or cannot be read; ``strerror`` says
            so in words.
    """
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "its name holds a NUL character", name.replace("\0", "\\0"))
    try:
        # Without O_NONBLOCK the opening of a pipe waits for a writer.
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError:  # a name that the file system cannot encode
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), ascii(name)) from None
    try:
        status = os.fstat(fd)
        _require_regular(status.st_mode, name)
        # Files that the kernel makes up have size 0, whatever they hold.
        n_bytes = status.st_size or most_bytes + 1
        with os.fdopen(fd, "rb", closefd=False) as file:
            raw = b"" if n_bytes > most_bytes + 1 else file.read(n_bytes) or b""
    finally:
        os.close(fd)
    if max(len(raw), status.st_size) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes // _MIB} MiB, the most that is read", name)
    return raw


def _require_regular(mode: int, name: str) -> None:
    for is_kind, kind, number in _KINDS:
        if is_kind(mode):
            raise OSError(number, f"it is {kind}; a file is needed", name)


def gunzipped(raw: bytes, most_bytes: int) -> bytes:
    """What gzipped bytes unpack to, at most ``most_bytes``; several members follow one another, as ``cat`` joins them.

    Raises:
        OSError: They are damaged, cut off, or unpack to more; ``strerror`` says which.
    """
    parts: list[bytes] = []
    left = most_bytes
    while raw:
        unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            parts.append(unpacker.decompress(raw, left + 1))
        except zlib.error as error:
            raise OSError(errno.EILSEQ, f"broken gzip file: {error}") from None
        left -= len(parts[-1])
        if left < 0:
            raise OSError(errno.EFBIG, f"it unpacks to more than {most_bytes // _MIB} MiB, the most that is read")
        if not unpacker.eof:
            raise OSError(errno.EILSEQ, "broken gzip file: it ends before its end marker")
        raw = unpacker.unused_data.lstrip(b"\0")
    return b"".join(parts)
