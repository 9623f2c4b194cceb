"""How files are read and written: input files whole, ours whole or not at all, and lines that carry a checksum each.

Whatever a user, a run's folder or a state folder names is opened here, and ``make check`` holds all other modules to
that. An input file is a regular one within a limit of size; else there is an ``OSError`` whose ``strerror`` says what
it is. A name may lead to a device that never ends, to a pipe without a writer, or to a few bytes that unpack to
gigabytes.

Of a file of ours a power cut leaves the old one or the new one. There is one way to write a line of JSON with a
checksum, so that no byte of it can change unseen.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from io import BufferedReader, BufferedWriter, BytesIO, FileIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from executor.names import nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of a gzipped file."""

UNFINISHED = r"\.migrator-[0-9a-f]{16}\.tmp"
"""The names, as a pattern, of what :func:`write_whole` leaves where it is killed."""

MOST_BYTES = 2**30
"""Size of the largest input file, and of what a packed one unpacks to, unless its reader has a limit of its own."""

MOST_TIMES, ALWAYS_BYTES = 32, 4 * 2**20
"""A packed file unpacks to at most so many times its size beyond what any may; tables of traffic have 3 to 15."""

_MIB = 2**20

_MOST_NAMES = 10_000
"""Of a folder in which a name like a missing one is looked for."""

_PIECE = 2**16
"""Bytes that are unpacked at a time; they become a thousand times as many at most."""

_ZEROS = re.compile(rb"\0*")

_STRING_OR_VALUE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(,|[\[{](?!\s*[\]}]))', re.DOTALL)

_KINDS = (
    (stat.S_ISDIR, "a folder", errno.EISDIR),
    (stat.S_ISFIFO, "a pipe", errno.ESPIPE),
    (stat.S_ISSOCK, "a socket", errno.ENXIO),
    (stat.S_ISCHR, "a device", errno.ENXIO),
    (stat.S_ISBLK, "a device", errno.ENXIO),
)


def alike_to(path: Path) -> str:
    """The question whether the file or folder was meant whose name is most like a missing one's, to be put behind it.

    Empty where the path exists, or nothing is like it.
    """
    try:
        gap = next((one for one in (path, *path.parents) if one.parent.is_dir()), path)
        if os.path.lexists(gap):
            return ""
        with os.scandir(gap.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES) if entry.name.isprintable()]
    except (OSError, ValueError):
        return ""
    meant = nearest(gap.name, names)
    if meant is None:
        return ""
    rest = path.relative_to(gap)
    whole = gap.with_name(meant) / rest
    return f" (did you mean {whole if whole.exists() else gap.with_name(meant)}?)"


@dataclass(slots=True)
class Limit:
    """How much of an input this process reads where the reader has no limit of its own.

    Attributes:
        said_bytes: What ``--max-bytes`` says; it holds for packed files, too, however small.
    """

    said_bytes: int | None = None

    @property
    def bytes(self) -> int:
        """Size of the largest file."""
        return MOST_BYTES if self.said_bytes is None else self.said_bytes

    def unpacked_bytes(self, n_packed: int) -> int:
        """To what so many packed bytes may unpack."""
        allowed = ALWAYS_BYTES + MOST_TIMES * n_packed
        return min(MOST_BYTES, allowed) if self.said_bytes is None else self.said_bytes


LIMIT = Limit()
"""This process's; others that it starts are handed it."""


def read_input(path: Path, most_bytes: int | None = None) -> bytes:
    """What the regular file at ``path`` holds, at most ``most_bytes``, by default as :data:`LIMIT` has it.

    Raises:
        OSError: It is missing (``FileNotFoundError``), no regular file, larger, or cannot be read; ``strerror`` says
            so in words.
    """
    most = LIMIT.bytes if most_bytes is None else most_bytes
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Files that the kernel makes up have size 0, whatever they hold.
        n_bytes = size or most + 1
        raw = b"" if n_bytes > most + 1 else file.read(n_bytes) or b""
    if max(len(raw), size) > most:
        raise _too_large(f"it is larger than {_shown(most)}", path, is_own=most_bytes is not None)
    return raw


def open_input(path: Path) -> BufferedReader:
    """The regular file at ``path``, to be read in pieces.

    Raises:
        OSError: As :func:`read_input`.
    """
    try:
        return open(_nameable(path), "rb", opener=_regular)
    except ValueError:  # a name that the file system cannot encode
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), ascii(os.fspath(path))) from None


def open_appended(path: Path) -> FileIO:
    """The regular file at ``path``, made if there is none, unbuffered; all that is written goes to its end.

    Raises:
        OSError: It is no regular file, or cannot be read and written; ``strerror`` says so in words.
    """
    return FileIO(_nameable(path), "a+", opener=_regular)


def open_updated(path: Path) -> FileIO:
    """The regular file at ``path``, made if there is none, unbuffered: for what is written at places in it.

    Raises:
        OSError: It is no regular file, or cannot be read and written; ``strerror`` says so in words.
    """
    return FileIO(_nameable(path), "r+", opener=lambda name, flags: _regular(name, flags | os.O_CREAT))


def open_emptied(path: Path) -> FileIO:
    """The regular file at ``path``, emptied or made, unbuffered: for what is written anew in one call.

    Raises:
        OSError: It is no regular file, or cannot be written; ``strerror`` says so in words.
    """
    return FileIO(_nameable(path), "w", opener=_regular)


def open_in_place(path: Path) -> BufferedWriter:
    """The file, device or pipe at ``path``, emptied, to be written where it is; a pipe that nobody reads is an error.

    Raises:
        OSError: It cannot be written; ``strerror`` says so in words.
    """
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(fd, True)
    return os.fdopen(fd, "wb")


def make_new(path: Path, raw: bytes = b"") -> None:
    """Make the file of ``raw``, which is not there.

    Raises:
        FileExistsError: Something has the name.
        OSError: It cannot be written.
    """
    with FileIO(_nameable(path), "x") as file:
        write_all(file, raw)


def write_all(file: FileIO, raw: bytes) -> None:
    """Write all of ``raw``; an unbuffered write may take only a part.

    Raises:
        OSError: The disk is full or gone.
    """
    view = memoryview(raw)
    while view:
        view = view[file.write(view) :]


def read_shipped(package: str, name: str) -> bytes:
    """A file that is shipped with one of our packages."""
    return (files(package) / name).read_bytes()


def read_arrays(path: Path, most_bytes: int) -> dict[str, NDArray[np.generic]]:
    """The arrays of an ``.npz`` file by name; packed and unpacked at most ``most_bytes``.

    Raises:
        OSError: As :func:`read_input`, or it holds something else; ``strerror`` says so in words.
    """
    import numpy as np  # noqa: PLC0415 - processes that start often import this module, and must not wait for it

    raw = read_input(path, most_bytes)
    try:
        with ZipFile(BytesIO(raw)) as parts:
            n_bytes = sum(part.file_size for part in parts.infolist())
        if n_bytes > most_bytes:
            raise _too_large(f"it unpacks to more than {_shown(most_bytes)}", path, is_own=True)
        with np.load(BytesIO(raw), allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, EOFError, BadZipFile, MemoryError) as error:
        raise OSError(errno.EILSEQ, f"it is no file of arrays: {error}", os.fspath(path)) from None


def _nameable(path: Path) -> str:
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(errno.EINVAL, "its name holds a NUL character", name.replace("\0", "\\0"))
    return name


def _regular(name: str, flags: int) -> int:
    """Open a regular file, as ``opener`` of Python's own ``open``; nothing else is waited for or changed.

    Raises:
        OSError: It is none.
    """
    try:
        # Without O_NONBLOCK the opening of a pipe waits for its other end.
        fd = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            _require_regular(os.stat(name).st_mode, name)  # noqa: PTH116 - a name, not a Path
        raise
    try:
        _require_regular(os.fstat(fd).st_mode, name)
        os.set_blocking(fd, True)  # for processes that it is handed to
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_regular(mode: int, name: str) -> None:
    for is_kind, kind, number in _KINDS:
        if is_kind(mode):
            raise OSError(number, f"it is {kind}; a file is needed", name)


def _too_large(what: str, path: Path | None, *, is_own: bool) -> OSError:
    """``is_own``: the limit is the reader's own."""
    more = "" if is_own else "; migrator --max-bytes N VERB … reads more"
    return OSError(errno.EFBIG, f"{what}, the most that is read{more}", None if path is None else os.fspath(path))


def _shown(n_bytes: int) -> str:
    if n_bytes % 2**30 == 0:
        return f"{n_bytes // 2**30} GiB"
    return f"{n_bytes // _MIB} MiB" if n_bytes >= _MIB else f"{n_bytes:,} bytes"


def gunzipped(raw: bytes, most_bytes: int | None = None) -> bytes:
    """What gzipped bytes unpack to, at most ``most_bytes``, by default as :data:`LIMIT` has it.

    Several members follow one another, as ``cat`` joins them. Nothing is kept before all is known to be within the
    limit.

    Raises:
        OSError: They are damaged, cut off, or unpack to more; ``strerror`` says which.
    """
    most, n_bytes = LIMIT.unpacked_bytes(len(raw)) if most_bytes is None else most_bytes, 0
    for piece in _unpacked(raw):
        n_bytes += len(piece)
        if n_bytes > most:
            raise _too_large(f"it unpacks to more than {_shown(most)}", None, is_own=most_bytes is not None)
    return b"".join(_unpacked(raw))


def _unpacked(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        unpacker, fed = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), b""
        while not unpacker.eof:
            if not fed:
                fed = raw[at : at + _PIECE]
                at += len(fed)
            try:
                piece = unpacker.decompress(fed, 16 * _PIECE)
            except zlib.error as error:
                raise OSError(errno.EILSEQ, f"broken gzip file: {error}") from None
            if not (piece or fed):
                raise OSError(errno.EILSEQ, "broken gzip file: it ends before its end marker")
            fed = unpacker.unconsumed_tail
            yield piece
        zeros = _ZEROS.match(raw, at - len(unpacker.unused_data))
        at = len(raw) if zeros is None else zeros.end()


def has_more_values(text: str, most: int) -> bool:
    """Whether a text of JSON holds more than ``most`` values, lists and objects among them, before it is parsed.

    Parsed, a value takes up to a hundred bytes where it is written in two.
    """
    if text.count(",") + text.count("[") + text.count("{") < most:
        return False
    n_values = 1
    for found in _STRING_OR_VALUE.finditer(text):
        n_values += found[1] is not None
        if n_values > most:
            return True
    return False


def write_whole(path: Path, raw: bytes, *, waits: bool = True) -> None:
    """Put a file of ``raw`` in the place of ``path``, with the permissions of the one that was there.

    It is written beside it, under another name, so that no half file is seen; if that fails, the earlier file is as
    it was and nothing else is left behind. ``waits`` is for the disk; without it a power cut may leave half a file.

    Raises:
        OSError: The disk is full or gone, or the folder is missing or may not be written to.
    """
    beside = path.with_name(f".migrator-{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(raw)
            file.flush()
            if waits:
                os.fsync(file.fileno())  # or a crash soon after could leave the new name with nothing in it
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    if waits:
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
    """The fields and their checksum, a CRC-32 of what is before it, as an object.

    Raises:
        ValueError: A number is infinite or none, which JSON does not have.
    """
    return _with_sum(canonical(fields))


def _with_sum(body: bytes) -> bytes:
    return body[:-1] + (b'"sum":"%08x"}' if body == b"{}" else b',"sum":"%08x"}') % zlib.crc32(body)


_SUM_BYTES = len(b'"sum":"01234567"}')


def without_sum(line: bytes) -> bytes:
    """The object, as it is in the line, that :func:`summed` checksummed.

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
