"""Orders to a service that runs: files in its folder, which it takes one after the other and answers in its log.

An order is one file in ``orders``, written whole under a name that no other has. The service takes it by deleting it,
before it does anything, so that no order is done twice. Its answer is a record of its log that names the order. What
lies there as a service is started is taken by that one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from msgspec import Struct, ValidationError, convert, to_builtins

from executor.files import fields_in, read_input, summed, write_whole
from migrator.errors import LiveError, LogError, MigratorError
from migrator.log.follow import FollowedLog, RunState
from migrator.log.records import Answer
from migrator.log.runlog import ReadLog, is_being_written, whole_log

ORDERS = "orders"
"""The folder of orders in a service's own."""

MOST_BYTES = 2**22
"""Of one order."""

LOOK_S = 0.1
"""How often the answer to an order is looked for."""


class Order(Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """A thing for a service to do."""

    @property
    def kind(self) -> str:
        """By the name of its verb."""
        return str(self.__struct_config__.tag)


class Reload(Order, frozen=True, tag="reload"):
    """Take up another config.

    Attributes:
        config: All of it, as YAML, with absolute file names.
        file: The file that it came from,
        assigned: and what was changed of it.
    """

    config: str
    file: str
    assigned: tuple[str, ...] = ()


class Rollback(Order, frozen=True, tag="rollback"):
    """Answer with older weights again.

    Attributes:
        tenant: Whose.
        version: Which; ``None`` for those before.
    """

    tenant: str
    version: str | None = None


AnyOrder = Reload | Rollback
"""All kinds."""


class Orders:
    """What lies in the folder of the service that takes it."""

    def __init__(self, run: Path) -> None:
        """``run`` is the run's folder.

        Raises:
            OSError: The folder cannot be made.
        """
        self._folder = run / ORDERS
        self._stuck: set[str] = set()  # what cannot be taken away, and was answered
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def taken(self) -> Iterator[tuple[str, AnyOrder | MigratorError]]:
        """The names of orders and what they say, the oldest first; each is taken as it is yielded.

        In place of one that cannot be read is what is wrong with it.
        """
        try:
            names = sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return  # it was moved or deleted; nobody can have an order answered then
        for name in names:
            if name not in self._stuck and (found := self._take(self._folder / name)) is not None:
                yield name, found

    def _take(self, path: Path) -> AnyOrder | MigratorError | None:
        """The order, or what is wrong with it; ``None`` where it was taken back."""
        try:
            raw = read_input(path, MOST_BYTES)
            path.unlink()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._stuck.add(path.name)
            return MigratorError(f"{path}: {error.strerror or error}")
        try:
            order: AnyOrder = convert(fields_in(raw), AnyOrder)
        except (ValueError, ValidationError) as error:
            return MigratorError(f"{path}: it is no order of {', '.join(_KINDS)}: {error}")
        return order


_KINDS = [str(kind.__struct_config__.tag) for kind in get_args(AnyOrder)]


def log_of_service(folder: Path) -> ReadLog:
    """The whole log in a folder, of a service.

    Raises:
        MigratorError: It is that of a run, which takes no orders.
        LogError: There is none, or it is damaged.
    """
    log = whole_log(folder)
    if not log.header.service:
        raise MigratorError(f"{folder}: holds a run, which is no service")
    return log


def give(run: Path, order: AnyOrder, wait: Callable[[], object] = lambda: time.sleep(LOOK_S)) -> Answer:
    """Give the service in a run's folder an order; what it answers.

    ``wait`` is called before each further look for that.

    Raises:
        MigratorError: No service runs there, or none that takes orders.
        LiveError: It ended before it answered; an order that it had not taken is taken back.
        LogError: Its log is damaged.
        OSError: The order cannot be written.
    """
    followed, path = FollowedLog(run), run / ORDERS / f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    followed.read()
    if not is_being_written(run) or not path.parent.is_dir():
        raise MigratorError(f"{run}: no service runs there; migrator serve starts it again")
    write_whole(path, summed(to_builtins(order)))
    try:
        while True:
            news = followed.read()
            for entry in news.entries:
                if isinstance(entry.record, Answer) and entry.record.order == path.name:
                    return entry.record
            if followed.damage:
                raise LogError(followed.damage)
            if news.state is not RunState.RUNNING:
                raise LiveError(f"{run}: the service ended before it answered")
            wait()
    finally:
        path.unlink(missing_ok=True)
