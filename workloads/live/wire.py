"""The sockets between the processes: files in a folder of the run that only its user may enter.

A controller starts the dispatcher and the workers (:mod:`workloads.live.process`), connects by ``Peer(folder, WORKERS,
CONTROLLER, …)``, sends ``Watch``, and then hears states, heartbeats and counts. The last ``Counts`` of a tenant and
second holds. Counts are kept for two hours for a controller that connects late.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from time import monotonic
from typing import Generic

import zmq

from executor.messages import Allowed, Kind, MessageError, packed
from workloads.errors import WorkloadError
from workloads.live.messages import MOST_BYTES, Message

CLIENTS = "clients"
"""Where the dispatcher takes requests."""

WORKERS = "workers"
"""Where it talks with workers and controllers."""

WORKER, HEART, CONTROLLER = b"w", b"h", b"c"
"""What the identity of a peer at ``WORKERS`` begins with; the worker's or controller's name follows."""

_LINGER_MS = 1000


class WireError(WorkloadError):
    """The folder of the sockets cannot be used; the message says what it must be like."""


def private_folder(folder: Path) -> Path:
    """The folder, made in one that is there where it is missing, which only its user may enter.

    Raises:
        WireError: It cannot be made, is not ours, or its name is too long for a socket.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.geteuid():
            raise WireError(f"folder of sockets {folder}: belongs to user {status.st_uid}; it must be this user's own")
        if stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
    except OSError as error:
        raise WireError(f"folder of sockets {folder}: {error.strerror}") from error
    address(folder, WORKERS)
    return folder


def address(folder: Path, name: str) -> str:
    """Where the socket of this name is.

    Raises:
        WireError: The folder's name is too long.
    """
    path = str(folder.absolute() / f"{name}.sock")
    if len(os.fsencode(path)) > zmq.IPC_PATH_MAX_LEN:
        raise WireError(
            f"socket {path}: its name is too long; allowed: {zmq.IPC_PATH_MAX_LEN} bytes, so put runs higher"
        )
    return f"ipc://{path}"


class Peer(Generic[Kind]):
    """One end of a connection to the dispatcher; it belongs to the thread that made it.

    Nothing is lost if the dispatcher is not there yet: what is sent waits for it, unless ``waits`` is false.

    Attributes:
        n_refused: Messages that were none, or none of those that are allowed here.
    """

    def __init__(self, folder: Path, name: str, identity: bytes, allowed: Allowed[Kind], *, waits: bool = True) -> None:
        self._allowed, self.n_refused = allowed, 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.setsockopt(zmq.IMMEDIATE, 0 if waits else 1)
        if identity:
            self._socket.setsockopt(zmq.IDENTITY, identity)
        self._socket.connect(address(folder, name))

    def watched_by(self, poller: zmq.Poller) -> None:
        """Have the poller see when something can be received."""
        poller.register(self._socket, zmq.POLLIN)

    def send(self, message: Message) -> None:
        """Send the message; never waits.

        Raises:
            MessageError: It is too large.
            WireError: The dispatcher is not there, and the message may not wait for it.
        """
        try:
            self._socket.send(packed(message), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            raise WireError("the dispatcher is not there") from None

    @property
    def is_connected(self) -> bool:
        """Whether a message could go out now; of a peer whose messages wait always."""
        return bool(self._socket.poll(0, zmq.POLLOUT))

    def fileno(self) -> int:
        """A file that becomes readable when messages may be there.

        It tells of them once: receive until there is nothing, also after each other call.
        """
        return self._socket.fileno()

    def receive(self, timeout_s: float) -> list[Kind]:
        """All messages that are there; without any, the first that comes within ``timeout_s``."""
        messages: list[Kind] = []
        until_s = monotonic() + timeout_s
        while True:
            try:
                while True:
                    messages.append(self._allowed.message(self._socket.recv(zmq.NOBLOCK)))
            except zmq.Again:
                left_s = until_s - monotonic()
                if messages or left_s <= 0:
                    return messages
                # Half a millisecond more: the poll counts whole ones, and would spin through the last.
                self._socket.poll(int(1000 * left_s + 0.5))
            except MessageError:
                self.n_refused += 1

    def close(self) -> None:
        """Let what was sent go out, for a second at most, and close."""
        self._socket.close()
        self._context.term()


def router(context: zmq.Context[zmq.Socket[bytes]], folder: Path, name: str, most_bytes: int) -> zmq.Socket[bytes]:
    """The dispatcher's end of all connections to one address.

    Raises:
        WireError: The socket cannot be made.
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, _LINGER_MS)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say so where no peer is there, instead of dropping in silence
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a peer that connects anew takes over its name
    socket.setsockopt(zmq.SNDHWM, 100_000)
    socket.setsockopt(zmq.MAXMSGSIZE, max(most_bytes, MOST_BYTES))
    try:
        socket.bind(address(folder, name))
    except zmq.ZMQError as error:
        socket.close()
        raise WireError(f"socket {folder / name}.sock: {error.strerror}") from error
    return socket
