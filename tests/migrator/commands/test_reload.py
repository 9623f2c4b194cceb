"""``migrator reload``: what cannot be taken up is refused in a line before a service hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import config_yaml, read_config
from migrator.inputs.in_force import service_of
from migrator.log.orders import AnyOrder, Orders
from migrator.log.records import Answer, OrderRefused, Reloaded, Wall
from migrator.log.runlog import RunLog
from tests.migrator.config.test_models import SERVES, both_live
from tests.migrator.conftest import WriteConfig
from tests.migrator.log import records

Call = Callable[..., tuple[int, str, str]]
OTHER = {"front_door": {"port": 0, "origins": ["https://a.example"]}}


@pytest.fixture
def write(write_config: WriteConfig) -> Callable[[dict[str, Any]], Path]:
    """Writes the service's config anew."""

    def written(changes: dict[str, Any]) -> Path:
        path = write_config({**both_live(SERVES, SERVES), "windows": None, **changes})
        path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.endswith(": null")))
        return path

    return written


@pytest.fixture
def service(write: Callable[[dict[str, Any]], Path], call: Call) -> Iterator[RunLog]:  # noqa: ARG001 - it goes there
    """A service that runs, in ``run``."""
    file, folder = write({}), Path("run")
    header, *_ = records.tiny()
    with RunLog(folder, config_yaml(service_of(read_config(file), "shop"), folder)) as log:
        log.append(records.record_of({**header, "service": True}), 0.0, Wall(config_file=str(file)))
        Orders(folder)
        yield log


def answers(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> list[AnyOrder]:
    """Has the service answer so; the orders that it hears."""
    given: list[AnyOrder] = []

    def give(_: Path, order: AnyOrder) -> Answer:
        given.append(order)
        return answer

    monkeypatch.setattr("migrator.commands.reload.give", give)
    return given


@pytest.mark.usefixtures("service")
def test_it_says_what_changes_and_that_it_was_taken_up(
    write: Callable[[dict[str, Any]], Path], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(OTHER)
    given = answers(monkeypatch, Reloaded(config="", changes=()))
    code, out, err = call("reload", "run", "--check")
    assert (code, out, err) == (
        0,
        "would change: front_door.origins: [] becomes ['https://a.example']\nnothing restarts\n",
        "",
    )
    assert given == []
    code, out, err = call("reload", "run")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "taken up; token files were read anew"
    (order,) = given
    assert (order.file, "https://a.example" in order.config) == (str(file), True)
    write({})
    assert call("reload", "run", "--check")[1] == f"no key of {file} differs\nnothing restarts\n"


@pytest.mark.usefixtures("service")
def test_what_the_service_refuses_is_said_in_a_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, OrderRefused(what="reload", reason="a newer one came"))
    code, _, err = call("reload", "run")
    assert (code, err) == (2, "error: a newer one came\n")


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"window_s": 120}, "window_s: 60.0 becomes 120.0; a service keeps it"),
        ({"tenants.0.model": "mystery"}, "mystery"),
        (
            {"tenants.0.pin": {"weights": "window-1"}},
            "tenants.vision.pin.weights: 'window-1' is not kept; there is: first",
        ),
        ({"tenants.1.name": "vision"}, "vision"),
        ({"sharing": {"pools": [["vision", "who"]]}}, "who"),
        ({"windows": 3}, "windows: a service goes on until it is stopped"),
        ({"tenants": []}, "tenants"),
    ],
)
def test_bad_configs_are_refused_before_the_service_hears_of_them(
    write: Callable[[dict[str, Any]], Path],
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    said: str,
) -> None:
    given = answers(monkeypatch, Reloaded(config="", changes=()))
    write(changes)
    code, _, err = call("reload", "run")
    assert (code, len(err.splitlines()), given) == (2, 1, [])
    assert said in err


def test_where_no_service_runs_it_says_so(service: RunLog, call: Call) -> None:
    service.close()
    code, _, err = call("reload", "run")
    assert (code, err) == (2, "error: run: no service runs there; migrator serve starts it again\n")
    records.write(Path("other"), *records.tiny())
    code, _, err = call("reload", "other")
    assert (code, err) == (2, "error: other: holds a run, which is no service\n")
    assert call("reload", "nothing")[0] == 2
    header, *_ = records.tiny()
    records.write(Path("unnamed"), {**header, "service": True})
    code, _, err = call("reload", "unnamed")
    assert (code, "its log does not name the config's file; name it by --config" in err) == (2, True)
