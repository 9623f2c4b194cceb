"""How files are read and written: input files whole, ours whole or not at all, and lines that carry a checksum each.

An input file is a regular one within a limit of size; else there is an ``OSError`` whose ``strerror`` says what it is.
A name may lead to a device that never ends, to a pipe without a writer, or to a few bytes that unpack to gigabytes.

Of a file of ours a power cut leaves the old one or the new one. There is one way to write a line of JSON with a
checksum, so that no byte of it can change unseen.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

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


def canonical(fields: Mapping[str, object]) -> bytes:
    """The one way in which the fields are written.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    return _ENCODER.encode(fields).encode()


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def summed(fields: Mapping[str, object]) -> bytes:
    """The fields and their checksum, a CRC-32 of what stands before it, as an object.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    return _with_sum(canonical(fields))


def _with_sum(body: bytes) -> bytes:
    return body[:-1] + (b'"sum":"%08x"}' if body == b"{}" else b',"sum":"%08x"}') % zlib.crc32(body)


_SUM_BYTES = len(b'"sum":"01234567"}')


def without_sum(line: bytes) -> bytes:
    """The object, as it stands in the line, that :func:`summed` gave its checksum.

    Raises:
        ValueError: The checksum is not there, or does not match.
    """
    body = line[:-_SUM_BYTES].removesuffix(b",") + b"}"
    if _with_sum(body) != line:
        raise ValueError("checksum does not match")
    return body


def fields_in(line: bytes) -> dict[str, Any]:
    """The fields of a line that is as :func:`summed` writes it.

    Raises:
        ValueError: It is not.
    """
    return dict(json.loads(without_sum(line)))


def is_torn(tail: bytes) -> bool:
    """Whether a kill can have left ``tail`` after the last whole line: the beginning of one record, or nothing."""
    try:
        _, end = json.JSONDecoder().raw_decode(tail.decode("latin-1"))
    except (ValueError, RecursionError):
        return True
    return end == len(tail)
