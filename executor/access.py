"""Who may reach what this machine serves: loopback addresses, and tokens in files that nobody else may read."""

from __future__ import annotations

import stat
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from executor.errors import ExecutorError
from executor.files import read_input

LEAST_TOKEN = 16
"""Characters of a token."""


class TokenError(ExecutorError):
    """A token file cannot be read, others may read it, or it holds no token."""


def is_loopback(host: str) -> bool:
    """Whether the address, or ``localhost``, can be reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_header(host: bytes) -> bool:
    """Whether a ``Host`` is this machine's own."""
    try:
        return is_loopback(urlsplit(f"//{host.decode('latin-1')}").hostname or "")
    except ValueError:
        return False


def token_in(path: Path) -> bytes:
    """The token in the file.

    Raises:
        TokenError: It cannot be read, others may read it, or it holds none.
    """
    try:
        token = read_input(path, 2**20).strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise TokenError(f"token file {path}: {error.strerror}") from error
    if mode & 0o077:
        raise TokenError(f"token file {path}: has mode {mode:04o}, so that others may read it; 0600 is needed")
    if not LEAST_TOKEN <= len(token) <= 1000 or not all(0x21 <= byte <= 0x7E for byte in token):
        raise TokenError(f"token file {path}: {LEAST_TOKEN} to 1000 printable ASCII characters are needed in it")
    return token
