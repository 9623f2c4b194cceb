"""Orders to a service: each is taken once, whole, and answered by a record; what is none is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import to_builtins

from executor.files import summed
from migrator.errors import LiveError, MigratorError
from migrator.log.orders import ORDERS, AnyOrder, Orders, Reload, give
from migrator.log.records import OrderRefused, Reloaded
from migrator.log.runlog import EVENTS_FILE, RunLog
from tests.migrator.log import records

ORDER = Reload(config="seed: 1\n", file="/etc/shop.yaml", assigned=("gpu.index=1",))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    """That of a service that runs."""
    header, *_ = records.tiny()
    with RunLog(tmp_path / "run", "") as found:
        found.append(records.record_of({**header, "service": True}), 0.0)
        yield found


def taking(log: RunLog, answer: Callable[[str, AnyOrder | MigratorError], Reloaded]) -> Callable[[], None]:
    """What a service does in the place of a wait."""
    orders = Orders(log.folder)

    def look() -> None:
        for name, order in orders.taken():
            log.append(answer(name, order), 1.0)

    return look


def test_an_order_is_taken_as_it_was_given_and_its_answer_comes_back(log: RunLog) -> None:
    found: list[AnyOrder | MigratorError] = []

    def answer(name: str, order: AnyOrder | MigratorError) -> Reloaded:
        found.append(order)
        log.append(OrderRefused(order="another", what="reload", reason="not this one"), 1.0)
        return Reloaded(order=name, config="", changes=("one",))

    answered = give(log.folder, ORDER, taking(log, answer))
    assert isinstance(answered, Reloaded)
    assert (found, answered.changes) == ([ORDER], ("one",))
    assert not [*(log.folder / ORDERS).iterdir()]


def test_orders_are_taken_once_and_the_oldest_first(tmp_path: Path) -> None:
    orders, given = Orders(tmp_path), [Reload(config=f"seed: {seed}", file="f") for seed in range(3)]
    for place in (2, 0, 1):
        (tmp_path / ORDERS / f"{place}").write_bytes(summed(to_builtins(given[place])))
    assert [*orders.taken()] == [(str(place), one) for place, one in enumerate(given)]
    assert [*orders.taken()] == []


def test_where_no_service_runs_nothing_is_left_behind(log: RunLog) -> None:
    with pytest.raises(MigratorError, match="no service runs there"):  # one that takes no orders
        give(log.folder, ORDER)
    Orders(log.folder)
    log.close()
    with pytest.raises(MigratorError, match="no service runs there; migrator serve starts it again"):
        give(log.folder, ORDER)
    assert not [*(log.folder / ORDERS).iterdir()]


def test_an_order_of_a_service_that_ends_is_taken_back(log: RunLog) -> None:
    orders = Orders(log.folder)
    with pytest.raises(LiveError, match="the service ended before it answered"):
        give(log.folder, ORDER, log.close)
    assert [*orders.taken()] == []


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"kind":"reload"}', b'{"kind":"dance","sum":"00000000"}', b"\xff" * 30])
def test_what_is_no_order_is_told_and_goes(tmp_path: Path, raw: bytes) -> None:
    orders = Orders(tmp_path)
    (tmp_path / ORDERS / "0").write_bytes(raw)
    ((name, found),) = orders.taken()
    assert isinstance(found, MigratorError)
    assert (name, "it is no order of reload" in str(found)) == ("0", True)
    assert [*orders.taken()] == []


def test_what_cannot_be_taken_is_told_once(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    (tmp_path / ORDERS / "folder").mkdir()
    (tmp_path / ORDERS / ".migrator-half.tmp").write_bytes(b"")
    ((_, found),) = orders.taken()
    assert isinstance(found, MigratorError)
    assert [*orders.taken()] == []
    (tmp_path / ORDERS / "folder").rmdir()
    (tmp_path / ORDERS / ".migrator-half.tmp").unlink()
    (tmp_path / ORDERS).rmdir()
    assert [*orders.taken()] == []


def test_a_service_s_folder_is_no_new_one(log: RunLog) -> None:
    Orders(log.folder)
    log.close()
    (log.folder / EVENTS_FILE).write_bytes(b"")
    RunLog(log.folder, "").close()  # what was killed before it began is in nobody's way
