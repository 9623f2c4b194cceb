"""What a service does with orders: what it takes up is in the log before anything else, and what it refuses, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from msgspec import to_builtins

from executor.files import summed

pytest.importorskip("zmq")

from migrator.config.reading import config_yaml, read_config
from migrator.config.sections import ENDLESS, Config, TenantConfig
from migrator.errors import ConfigError, MigratorError
from migrator.execution.live.orders import Attending, Reloading, RollingBack, Serving
from migrator.execution.tenancies import Tenancy
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.assembly import assemble_run
from migrator.inputs.in_force import config_in, config_in_force, given_in, order_of, service_of
from migrator.inputs.setting import Setting
from migrator.log.orders import ORDERS, Reload, Rollback
from migrator.log.records import OrderRefused, Reloaded, Resumed, RolledBack, Snapshot, Wall
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import RunLog, read_log, whole_log
from migrator.log.weights import Served
from planner.policies.ours import Migrator
from tests.migrator.config.test_models import SERVES, both_live
from tests.migrator.conftest import SMALL, changed
from tests.migrator.log import records
from workloads.tenants import Tenant


class Kept:
    """Models of which one other version is kept, and the workers that are to load it."""

    def __init__(self, folder: Path) -> None:
        self.now, self.other = (Served(folder / name, name, 0.5) for name in ("window-2", "window-1"))
        self.is_busy, self.fails = False, False
        self.at_s: list[float] = []
        self.config = SimpleNamespace(tenants=[])

    def pin(self, version: str | None) -> None:
        self.config.tenants = [SimpleNamespace(name="vision", pin=SimpleNamespace(weights=version))]

    def pinned(self, _: str) -> str | None:
        return next((one.pin.weights for one in self.config.tenants), None)

    def older(self, tenant: str, version: str | None) -> Served:
        if tenant != "vision":
            raise MigratorError(f"there is no tenant {tenant!r}")
        if version not in (None, self.other.version):
            raise MigratorError(f"{tenant}: weights {version!r} are not kept")
        return self.other

    def served(self, _: str) -> Served:
        return self.now

    def is_swapping(self, _: str) -> bool:
        return self.is_busy

    def roll_back(self, _: str, served: Served, *more: Any) -> None:
        if len(more) == 1:
            self.now = served
            self.at_s += more
        elif self.fails:
            more[1]()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def rolling(kept: Kept, tmp_path: Path) -> tuple[RollingBack, Callable[[str | None], list[Any]]]:
    own: Any = kept
    clock: Any = SimpleNamespace(now_s=7.123456789)
    back = RollingBack(tmp_path, clock, own, own)
    attend = Attending(tmp_path, {Rollback: back}, back.later)

    def order(tenant: str | None) -> list[Any]:
        if tenant is not None:
            (tmp_path / ORDERS / "1").write_bytes(summed(to_builtins(Rollback(tenant=tenant))))
        return [answer for answer, _ in attend(False)]

    return back, order


def test_older_weights_serve_from_when_the_log_has_it(kept: Kept, tmp_path: Path) -> None:
    _, order = rolling(kept, tmp_path)
    (answer,) = order("vision")
    own = {"order": "1", "tenant": "vision", "version": "window-1", "before": "window-2", "weights": "window-1"}
    assert answer == RolledBack(**own, served_s=7.123457, accuracy=0.5, learned=1)
    assert (kept.now.version, kept.at_s) == ("window-1", [7.123457])


def test_weights_that_cannot_be_loaded_are_said_to_serve_no_more(kept: Kept, tmp_path: Path) -> None:
    kept.fails = True
    _, order = rolling(kept, tmp_path)
    there, back = order("vision")
    assert [(one.version, one.before, one.order) for one in (there, back)] == [
        ("window-1", "window-2", "1"),
        ("window-2", "window-1", None),
    ]
    assert kept.now.version == "window-2"


@pytest.mark.parametrize(("tenant", "is_busy", "said"), [("nobody", False, "there is no"), ("vision", True, "being")])
def test_what_cannot_be_rolled_back_changes_nothing(
    kept: Kept, tmp_path: Path, tenant: str, is_busy: bool, said: str
) -> None:
    kept.is_busy = is_busy
    _, order = rolling(kept, tmp_path)
    (refused,) = order(tenant)
    assert isinstance(refused, OrderRefused)
    assert said in refused.reason
    assert (refused.what, kept.now.version) == ("rollback", "window-2")


def test_what_is_pinned_serves_from_then_on_and_no_other_weights_are_asked_for(kept: Kept, tmp_path: Path) -> None:
    _, order = rolling(kept, tmp_path)
    kept.pin("window-1")
    kept.is_busy = True
    assert order(None) == []  # first what is being taken over
    kept.is_busy = False
    (told,) = order(None)
    assert (told.version, told.before, told.order, kept.now.version) == ("window-1", "window-2", None, "window-1")
    assert order(None) == []
    (refused,) = order("vision")
    assert refused.reason == "tenants.vision.pin.weights is window-1: change it, and reload"


@pytest.mark.parametrize("version", ["window-1", "window-0"])
def test_a_pin_that_cannot_be_kept_is_told_once(kept: Kept, tmp_path: Path, version: str) -> None:
    kept.fails = True
    _, order = rolling(kept, tmp_path)
    kept.pin(version)
    told = [*order(None), *order(None), *order(None)]
    assert [one.version for one in told] == ["window-1", "window-2"] * (version == "window-1")
    assert kept.now.version == "window-2"
    kept.fails = False
    kept.pin(None)
    assert order(None) == []
    kept.pin("window-1")
    assert [one.version for one in order(None)] == ["window-1"]


TOKENS = {"vision": "a", "language": "b"}


class Service:
    """A service as far as orders are concerned: its config's file, its log, and what its door was told."""

    logs: ExitStack

    def __init__(self, folder: Path) -> None:
        self.file, self.run, self.doors = folder / "shop.yaml", folder / "run", list[str]()
        self.write({})
        config = service_of(read_config(self.file), "shop")
        self.log = RunLog(self.run, config_yaml(config, self.run))
        header = records.header(3.0, "vision", "language", simulated=False, backend="cpu", index=0)
        given = Wall(config_file=str(self.file), started_at="2026-01-01T00:00:00+00:00")
        self.log.append(records.record_of({**header, "service": True}), 0.0, given)
        self.clock, self.sets = SimpleNamespace(now_s=70.0), list[list[str]]()
        site = SimpleNamespace(change_door=self.doors.append, change_tenants=self.sets.append)
        self.models, self.waits_for = self.models_of(config), list[str]()
        setting, traffic = assemble_run(config, "shop")
        assert isinstance(traffic, LiveTraffic)
        gpu: Any = SimpleNamespace(model=setting.gpu, turns_by="MPS")
        parts: dict[str, Any] = {"clock": self.clock, "site": site, "models": self.models, "gpu": gpu}
        self.coming: deque[Tenancy] = deque()
        serving = Serving(
            run=self.run,
            policy=Migrator(),
            traffic=traffic,
            coming=self.coming,
            check=lambda _: None,
            door=self.door_of,
            **parts,
        )
        self.reloading = Reloading(serving, setting)
        self.attend = Attending(self.run, {Reload: self.reloading})

    def made(self, entries: Sequence[TenantConfig], _: Sequence[Tenant]) -> Iterator[bool]:
        """Models of who comes; not there while it waits for them."""
        while any(entry.name in self.waits_for for entry in entries):
            yield False
        yield True

    def models_of(self, config: Config) -> SimpleNamespace:
        return SimpleNamespace(coming=self.made, config=config, require_versions=self.refuse_unkept)

    def refuse_unkept(self, entries: Sequence[TenantConfig]) -> None:
        """The first weights are kept, and no others."""
        for entry in entries:
            if entry.pin.weights not in (None, "first"):
                raise ConfigError(f"tenants.{entry.name}.pin.weights: is not kept")

    @property
    def config(self) -> Config:
        return self.reloading.setting.config

    def killed(self) -> Service:
        """One that goes on in its folder, with the config in force, after it was killed."""
        self.log.close()
        other = copy(self)
        other.log = self.logs.enter_context(ResumedLog(self.run, is_whole=False))
        other.log.take_up()
        config, other.coming = config_in_force(other.log.stands), deque()
        setting, _ = assemble_run(config, "shop")
        other.models = other.models_of(config)
        serving = replace(self.reloading._serving, coming=other.coming, models=cast("Any", other.models))
        other.reloading = Reloading(serving, setting)
        other.attend = Attending(self.run, {Reload: other.reloading})
        other.begin(setting)
        return other

    def begin(self, setting: Setting) -> None:
        """The tenants and the door are those of the setting."""
        self.sets.append([tenant.name for tenant in setting.tenants])
        self.doors.append(self.door_of(setting))

    def write(self, changes: Mapping[str, Any]) -> None:
        given = changed(SMALL, {**both_live(SERVES, SERVES), "windows": None, **changes})
        self.file.write_text(yaml.safe_dump({key: one for key, one in given.items() if one is not None}))

    def door_of(self, setting: Setting) -> str:
        door = setting.config.front_door
        assert door is not None
        slos_s = [tenant.slo_s for tenant in setting.tenants]
        if "bad" in "".join(door.tokens.values()):
            raise ConfigError("front_door: token file bad: is empty")
        return repr(([*door.tokens.values()], slos_s))

    def order(self, name: str, changes: Mapping[str, Any]) -> None:
        self.write(changes)
        order = order_of(self.file, ())[1]
        (self.run / ORDERS / name).write_bytes(summed(to_builtins(order)))

    def looks(self, *, hears_hup: bool = False) -> list[Reloaded | OrderRefused]:
        """What it answers; each answer is in its log before the door is told."""
        found = []
        for answer, wall in self.attend(hears_hup):
            n_doors = len(self.doors)
            self.log.append(answer, 1.0, wall)
            assert len(self.doors) == n_doors
            assert isinstance(answer, Reloaded | OrderRefused)
            found.append(answer)
        return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    with ExitStack() as stack:
        service.logs = stack
        stack.enter_context(service.log)
        yield service


def test_a_config_is_taken_up_and_the_door_hears_of_it(service: Service) -> None:
    service.order("1", {"front_door": {"port": 0, "tokens": TOKENS}})
    (answer,) = service.looks()
    assert isinstance(answer, Reloaded)
    assert answer.order == "1"
    assert sorted(one.partition(": nothing becomes ")[0] for one in answer.changes) == [
        "front_door.tokens.language",
        "front_door.tokens.vision",
    ]
    (door,) = service.doors
    assert sorted(eval(door)[0]) == [str(service.file.parent / file) for file in sorted(TOKENS.values())]  # noqa: S307 - ours
    in_force = config_in_force(read_log(service.run))
    assert in_force == service.config.model_copy(update={"name": in_force.name})
    assert service.looks() == []


def test_what_is_refused_changes_nothing(service: Service) -> None:
    before = service.config
    service.order("1", {"seed": 8})
    service.order("2", {"front_door": {"port": 0, "tokens": dict.fromkeys(TOKENS, "bad")}})
    (service.run / ORDERS / "3").write_bytes(b"half an or")
    assert [one.order for one in service.looks()] == ["1", "2", "3"]
    reasons = [one.reason for one in read_log(service.run).of(OrderRefused)]
    assert reasons[0] == "a newer one came"
    assert reasons[1] == "front_door: token file bad: is empty"
    assert "it is no order of reload" in reasons[2]
    service.order("4", {"seed": 8})
    (refused,) = service.looks()
    assert isinstance(refused, OrderRefused)
    assert "seed: 3 becomes 8; a service keeps it" in refused.reason
    assert (service.doors, service.config) == ([], before)
    assert config_in_force(read_log(service.run)) == before


def test_of_several_configs_the_newest_is_taken_up(service: Service) -> None:
    for name in "123":
        service.order(name, {"front_door": {"port": 0, "origins": [f"https://{name}.example"]}})
    first, second, last = service.looks()
    assert [one.order for one in (first, second)] == ["1", "2"]
    assert {type(one) for one in (first, second)} == {OrderRefused}
    assert isinstance(last, Reloaded)
    assert last.changes == ("front_door.origins: [] becomes ['https://3.example']",)


def test_hup_takes_up_the_file_that_the_log_names_and_a_reload_names_another(service: Service) -> None:
    service.write({"front_door": {"port": 0, "origins": ["https://a.example"]}})
    (answer,) = service.looks(hears_hup=True)
    assert isinstance(answer, Reloaded)
    assert answer.order is None
    service.file = service.file.with_name("other.yaml")
    service.order("1", {})
    service.looks()
    assert given_in(read_log(service.run)) == (service.file, ())
    service.file.write_text("tenants: [")
    (refused,) = service.looks(hears_hup=True)
    assert isinstance(refused, OrderRefused)
    assert str(service.file) in refused.reason


def test_a_segment_that_begins_later_has_the_config_in_force(service: Service) -> None:
    service.order("1", {"front_door": {"port": 0, "origins": ["https://a.example"]}})
    service.looks()
    before = config_in_force(read_log(service.run))
    service.log.begin_segment(0, 2.0)
    (older,) = service.run.glob("events-*.jsonl")
    older.unlink()
    log = whole_log(service.run)
    assert isinstance(log.begins, Snapshot)
    assert config_in_force(log) == before
    assert given_in(log) == (service.file, ())
    assert [one.seed for one in (before, read_config(service.run / "config.yaml"))] == [3, 3]


def test_a_service_that_was_killed_twice_since_its_log_s_last_border_goes_on(service: Service) -> None:
    service.log.append(records.record_of(records.window_started(0, 3.0, *TOKENS)), 0.0)
    service.log.begin_segment(1, 3.0)
    service.log.append(records.record_of(records.window_started(1, 3.0, *TOKENS)), 3.0)
    nothing = records.counts([0] * 3, [0] * 3, [0] * 3)
    service.log.append(records.record_of(records.window_finished(0, **dict.fromkeys(TOKENS, nothing))), 3.0)
    again = service.killed()
    again.log.append(Resumed(window=2, void=(1,)), 6.0)
    assert again.killed().log.at_s == 6.0


THIRD = {
    "tenants.1.name": "third",
    "front_door": {"port": 0, "tokens": {"vision": "a", "third": "b"}},
}


def test_other_terms_count_from_the_next_window_on_and_deadlines_with_them(service: Service) -> None:
    slo_s = service.reloading.setting.tenants[1].slo_s
    service.order("1", {"tenants.1.slo_ms": 5000, "front_door": {"port": 0, "origins": ["https://a.example"]}})
    (answer,) = service.looks()
    assert isinstance(answer, Reloaded)
    (tenancy,) = service.coming
    assert tenancy.from_s == 120.0
    assert [eval(door)[1][1] for door in service.doors] == [slo_s]  # noqa: S307 - ours
    tenancy.begins()
    assert [eval(door)[1][1] for door in service.doors] == [slo_s, 5.0]  # noqa: S307 - ours
    assert service.sets == [["vision", "language"]]
    assert service.models.config.tenants[1].slo_ms == 5000
    service.coming.clear()
    service.order("2", {"tenants.1.slo_ms": 6000})
    service.order("3", {"tenants.1.slo_ms": 7000})
    service.looks()
    assert [one.setting.tenants[1].slo_s for one in service.coming] == [7.0]
    service.order("4", {})
    service.looks()
    assert [one.setting.tenants[1].slo_s for one in service.coming] == [slo_s]  # the newest counts


def test_a_set_of_tenants_changes_once_the_models_of_those_who_come_are_there(service: Service) -> None:
    service.waits_for.append("third")
    service.order("1", THIRD)
    assert service.looks() == service.looks() == []
    assert not service.coming
    service.waits_for.clear()
    (answer,) = service.looks()
    assert isinstance(answer, Reloaded)
    assert {"tenant language goes", "tenant third comes"} <= {*answer.changes}
    (tenancy,) = service.coming
    assert (tenancy.from_s, service.doors) == (70.0, [])
    tenancy.begins()
    assert service.sets == [["vision", "third"]]
    assert len(service.doors) == 1
    assert list(tenancy.traffic.sums(0, 0)) == []


def test_who_is_waited_for_gives_way_to_a_newer_config(service: Service) -> None:
    service.waits_for.append("third")
    service.order("1", THIRD)
    assert service.looks() == []
    service.order("2", {"front_door": {"port": 0, "origins": ["https://a.example"]}})
    first, second = service.looks()
    assert isinstance(first, OrderRefused)
    assert isinstance(second, Reloaded)
    assert (first.order, second.order) == ("1", "2")
    assert service.looks() == []
    assert not service.coming


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tenants.1.model": "mystery", "tenants.1.name": "third"}, "mystery"),
        ({"tenants.1.slo_ms": 0.001}, "slo"),
        ({"tenants.1.pin": {"weights": "window-7"}}, "tenants.language.pin.weights: is not kept"),
    ],
)
def test_tenants_that_cannot_be_served_are_refused(service: Service, changes: dict[str, Any], said: str) -> None:
    before = service.reloading.setting
    service.order("1", changes)
    (answer,) = service.looks()
    assert isinstance(answer, OrderRefused)
    assert said in answer.reason.lower()
    assert (service.reloading.setting, [*service.coming], service.doors) == (before, [], [])


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (["3g.40gb", "4g.40gb"], None),
        ("auto", "tenants.vision.weight: 1.0 becomes 2.0; planner.layout: auto was chosen without it: stop"),
    ],
)
def test_beside_a_layout_that_is_listed_other_terms_are_taken_up(
    service: Service, layout: Any, said: str | None
) -> None:
    held = {"planner.layout": layout, "sharing": {"pools": "auto"}}
    service.write(held)
    config = service_of(read_config(service.file), "shop")
    service.reloading.setting = assemble_run(config, "shop")[0]
    service.order("1", {**held, "tenants.0.weight": 2})
    (answer,) = service.looks()
    if said is None:
        assert isinstance(answer, Reloaded)
        assert [one.setting.tenants[0].weight for one in service.coming] == [2.0]
    else:
        assert isinstance(answer, OrderRefused)
        assert said in answer.reason
    service.order("2", {**held, "front_door": {"port": 0, "origins": ["https://a.example"]}})
    assert isinstance(service.looks()[0], Reloaded)  # the door may change in any case


CONFIGS: list[dict[str, Any]] = [
    {},
    {"tenants.1.slo_ms": 5000},
    {"tenants.0.weight": 3},
    {"tenants.0.pin": {"weights": "first"}, "pin": {"layout": True}},
    {"front_door": {"port": 0, "tokens": TOKENS}},
    {"tenants.1.name": "third"},
    {"tenants.1.name": "third", "tenants.0.weight": 3},
    {"tenants.0.name": "fourth", "front_door": {"port": 0, "origins": ["https://a.example"]}},
    THIRD,
    {"tenants.0.pin": {"weights": "window-7"}},
    {"seed": 9},
    {"front_door": {"port": 0, "tokens": dict.fromkeys(TOKENS, "bad")}},
]
"""What files say; the last three are refused."""


def test_200_reloads_with_kills_and_borders_end_as_a_service_that_began_with_the_last_config(service: Service) -> None:
    rng, expected = Random(3), service.config
    for n in range(200):
        n_given = rng.choice([1, 1, 1, 2])
        chosen = [rng.randrange(len(CONFIGS)) for _ in range(n_given)]
        for k, one in enumerate(chosen):
            service.order(f"{n:03}-{k}", CONFIGS[one])
        answers = service.looks()
        assert len(answers) == n_given
        *older, newest = answers
        assert all(isinstance(answer, OrderRefused) for answer in older)
        assert isinstance(newest, OrderRefused) == (chosen[-1] >= len(CONFIGS) - 3)
        if isinstance(newest, Reloaded):
            expected = service.config
        match rng.randrange(4):
            case 0:
                service = service.killed()
            case 1:
                service.log.begin_segment(0, service.log.at_s)
            case _:
                pass
        if rng.randrange(2):  # the moment has come
            for tenancy in (one for one in service.coming):
                tenancy.begins()
            service.coming.clear()
    for tenancy in service.coming:
        tenancy.begins()
    wanted, _ = assemble_run(config_in(config_yaml(expected), "shop"), "shop")
    assert config_in_force(whole_log(service.run)) == service.config
    keeps = {"windows": ENDLESS, "name": service.config.name}
    assert service.config == wanted.config.model_copy(update=keeps)
    assert service.sets[-1] == [tenant.name for tenant in wanted.tenants]
    assert service.doors[-1] == service.door_of(wanted)
