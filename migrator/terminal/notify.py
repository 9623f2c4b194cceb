"""A word to systemd, where it has started the program and asks for one: sd_notify(3), without its library."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Tell the service manager, such as ``READY=1``; nothing where there is none, or it hears nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.settimeout(0.2)
        to.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        to.sendall(state.encode())
