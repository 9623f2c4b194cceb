"""``migrator serve``: what is no service is refused in a line before anything is begun; live tests have the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.commands import serve
from migrator.commands.running import shareable_on
from migrator.commands.serve import ServiceManager
from migrator.config.reading import config_yaml, validate_config
from migrator.config.sections import ENDLESS
from migrator.errors import ConfigError
from migrator.inputs.in_force import service_of
from migrator.log.runlog import read_log
from tests.migrator.config.test_models import SERVES, both_live
from tests.migrator.conftest import WriteConfig
from tests.migrator.log import records
from tests.migrator.views.test_progress import COUNTED

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "windows: a service goes on until it is stopped; leave it out"),
        ({"windows": None}, "tenants.vision.arrivals: a service answers clients: live: true is needed; migrator run"),
    ],
)
def test_what_ends_or_plays_a_trace_is_no_service(
    changes: dict[str, Any], said: str, call: Call, write_config: WriteConfig
) -> None:
    code, out, err = call("serve", write_config(changes))
    assert (code, out) == (2, "")
    assert said in err
    assert not Path("runs").exists()


def test_a_policy_that_knows_what_comes_cannot_serve(
    call: Call, write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.commands.running.require_live", lambda *_: None)
    config = write_config({**both_live(SERVES, SERVES), "windows": None, "gpu.model": "cpu-0.7-in-7"})
    code, _, err = call("serve", config, "--policy", "oracle", "--state", "state", "--out", "run")
    assert (code, "oracle" in err, "recorded" in err) == (2, True, True), err
    assert not Path("run").exists()


def test_a_service_has_no_last_window_and_its_config_names_none(write_config: WriteConfig) -> None:
    asked = validate_config({**plain(write_config), "name": "shop"}, "shop")
    endless = service_of(asked, "shop")
    assert (endless.windows, endless.is_endless, asked.is_endless) == (ENDLESS, True, False)
    assert "windows:" not in config_yaml(endless).replace("_windows:", "")


def plain(write_config: WriteConfig) -> dict[str, Any]:
    from planner.files.strict import read_document

    document = read_document(write_config({**both_live(SERVES, SERVES), "windows": None}), ValueError)
    return {key: value for key, value in document.items() if value is not None}


def test_a_folder_with_a_run_or_another_service_is_refused(
    call: Call, write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.commands.serve.require_live", lambda *_: None)
    config = write_config({**both_live(SERVES, SERVES), "windows": None, "gpu.model": "cpu-0.7-in-7"})
    records.write(Path("run"), *records.tiny())
    code, _, err = call("serve", config, "--out", "run")
    assert (code, "run: holds a run, which is no service; give --out another folder" in err) == (2, True)
    header, *_ = records.tiny()
    records.write(Path("other"), {**header, "service": True, "policy": "static"})
    code, _, err = call("serve", config, "--out", "other")
    assert (code, "--policy migrator: the service in other was begun under static" in err) == (2, True)


def test_a_service_goes_on_with_the_config_that_it_had_but_for_what_may_change(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    asked = service_of(validate_config(plain(write_config) | {"name": "shop"}, "shop"), "shop")
    header, *_ = records.tiny()
    run, whole = tmp_path / "run", config_yaml(asked, tmp_path / "run")
    records.write(run, {**header, "service": True})
    stands = read_log(run)
    (run / "config.yaml").write_text(whole.replace("seed: 3\n", ""))  # as before a version had the key
    assert serve._changes(asked.model_copy(update={"seed": 0}), stands, "shop.yaml") == ()
    (run / "config.yaml").write_text(whole)
    assert serve._changes(asked, stands, "shop.yaml") == ()
    assert serve._taken_up(asked, (), run) == ()
    said = "shop.yaml: not as .* was served: seed: 3 becomes 4; a service keeps it: set it as it was, or serve with"
    with pytest.raises(ConfigError, match=said):
        serve._changes(asked.model_copy(update={"seed": 4}), stands, "shop.yaml")
    assert asked.front_door is not None
    door = asked.front_door.model_copy(update={"origins": ["https://a.example"]})
    other = asked.model_copy(update={"front_door": door})
    (told,) = serve._taken_up(other, serve._changes(other, stands, "shop.yaml"), run)
    assert told.changes == ("front_door.origins: [] becomes ['https://a.example']",)
    assert "https://a.example" in told.config


def test_the_service_manager_hears_that_it_is_ready_then_alive_and_then_that_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(serve, "notify", told.append)
    view = ServiceManager()
    for second in range(3):
        view.reached(float(second), COUNTED, None, second)
    view.draining()
    assert told == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]


def test_where_an_instance_takes_one_process_pools_are_off_at_every_start(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = service_of(validate_config(plain(write_config) | {"sharing": {"pools": "auto"}}, "shop"), "shop")
    alone: Any = SimpleNamespace(gpu=SimpleNamespace(index=3, turns_by=None))
    assert shareable_on(alone, asked).sharing.pools == "off"
    assert "sharing.pools: off, as an instance of GPU 3 takes one process" in " ".join(capsys.readouterr().err.split())
    several: Any = SimpleNamespace(gpu=SimpleNamespace(index=3, turns_by="MPS"))
    assert shareable_on(several, asked) is asked
    assert capsys.readouterr().err == ""
