"""What the generator appended, as the ledger counts it: in pieces, out of order, early, and at a run's end."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from workloads.errors import LearningError
from workloads.live.generator import OUTCOME, STATUSES
from workloads.live.messages import Status
from workloads.serving.requests import Requests

pytest.importorskip("zmq")

from migrator.config.reading import validate_config
from migrator.config.sections import FrontDoorConfig, InputConfig, LearningConfig
from migrator.errors import ConfigError, ExitCode, exit_code_of
from migrator.execution.live.opening import (
    AGAIN_S,
    GRACE_S,
    N_WEIGHTS,
    LiveQueues,
    _check_learning,
    _configured_input,
    _door,
    _refuse_unknown,
    _refuse_unserved,
    forget_old,
)
from migrator.execution.live.site import Site
from migrator.inputs.assembly import assemble
from tests.migrator.conftest import SMALL, changed
from workloads.profiles.table import shipped_profiles, text_of


class StandIn(Site):
    """A site of which only the file of outcomes is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes.touch()
        self.n_dropped = 0

    def drop_rest(self) -> None:
        self.n_dropped += 1

    def append(self, *records: tuple[int, int, Status, bool, float]) -> None:
        with self.outcomes.open("ab") as file:
            for stream, place, status, right, at_s in records:
                file.write(OUTCOME.pack(stream, place, STATUSES.index(status), right, at_s))


ARRIVAL_S = np.array([0.5, 1.0, 1.5, 2.0])
ALL = {name: Requests(name, 0.5, ARRIVAL_S, np.zeros(4)) for name in "ab"}


def before(until_s: float) -> dict[str, Requests]:
    return {name: own.before(until_s) for name, own in ALL.items()}


@pytest.fixture
def site(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


def test_each_status_is_counted_as_what_it_is(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", 10.0)
    site.append(
        (0, 0, Status.IN_TIME, True, 0.6),
        (0, 1, Status.LATE, True, 1.9),
        (0, 2, Status.DROPPED, True, 2.1),
        (0, 3, Status.FAILED, False, 2.2),
        (1, 0, Status.IN_TIME, False, 0.7),
    )
    first, second = queues.advance(before(3.0), {}, {}, 3.0).values()
    assert first.index.tolist() == [0, 1, 2, 3]
    assert first.in_time.tolist() == [True, False, False, False]
    assert first.late.tolist() == [False, True, False, False]
    assert first.dropped.tolist() == [False, False, True, True]
    assert first.correct.tolist() == [True, True, False, False]  # what was dropped is not right, whatever it says
    assert (second.answer_s.tolist(), second.correct.tolist()) == ([0.7], [False])


def test_the_head_is_the_oldest_of_which_nothing_is_known(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", 10.0)
    site.append((0, 1, Status.IN_TIME, True, 1.1))
    queues.advance(before(3.0), {}, {}, 3.0)
    assert [state.head for state in queues.states.values()] == [0, 0]
    site.append((0, 0, Status.IN_TIME, True, 1.2))
    outcomes = queues.advance(before(3.0), {}, {}, 3.1)["a"]
    assert (outcomes.index.tolist(), queues.states["a"].head, queues.now_s) == ([0], 2, 3.1)


def test_an_answer_is_kept_until_its_request_has_arrived_for_the_loop_too(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", 10.0)
    site.append((0, 2, Status.IN_TIME, True, 1.6))
    assert [len(one.index) for one in queues.advance(before(1.2), {}, {}, 1.2).values()] == [0, 0]
    assert [one.index.tolist() for one in queues.advance(before(1.8), {}, {}, 1.8).values()] == [[2], []]


def test_half_a_record_is_left_for_the_next_time(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", 10.0)
    record = OUTCOME.pack(1, 3, STATUSES.index(Status.IN_TIME), 1, 2.1)
    site.outcomes.write_bytes(record[:7])
    assert [len(one.index) for one in queues.advance(before(3.0), {}, {}, 3.0).values()] == [0, 0]
    site.outcomes.write_bytes(record)
    assert [one.index.tolist() for one in queues.advance(before(3.0), {}, {}, 3.0).values()] == [[], [3]]


def test_a_run_that_goes_on_counts_from_its_first_request(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", 10.0)
    queues.begin({name: own.end for name, own in before(1.2).items()}, 1.2)
    site.append((0, 0, Status.IN_TIME, True, 1.6))  # the first that is sent
    outcomes = queues.advance(before(3.0), {}, {}, 3.0)["a"]
    assert (outcomes.index.tolist(), queues.states["a"].head) == ([2], 3)


def test_after_the_last_deadline_the_loop_waits_for_what_is_open_and_then_it_is_dropped(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", end_s=2.5)
    site.append(*((1, place, Status.IN_TIME, True, 2.2) for place in range(4)))
    queues.advance(before(2.4), {}, {}, 2.4)
    assert [dict(state.busy_until) for state in queues.states.values()] == [{}, {}]
    queues.advance(before(3.0), {}, {}, 2.6)
    assert [dict(state.busy_until) for state in queues.states.values()] == [{"answers": 2.6 + AGAIN_S}, {}]
    assert site.n_dropped == 0
    queues.advance(before(3.0), {}, {}, 2.6 + GRACE_S)
    assert site.n_dropped == 1
    site.append(*((0, place, Status.DROPPED, False, 13.0) for place in range(4)))
    queues.advance(before(3.0), {}, {}, 13.0)
    assert [dict(state.busy_until) for state in queues.states.values()] == [{}, {}]


def test_what_nobody_answers_does_not_hold_up_the_end_for_ever(site: StandIn) -> None:
    queues = LiveQueues(site, "ab", end_s=2.5)
    queues.advance(before(3.0), {}, {}, 2.6 + 4 * GRACE_S)
    assert [(dict(state.busy_until), state.head) for state in queues.states.values()] == [({}, 4), ({}, 4)]


def test_members_too_large_for_every_instance_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    table = tmp_path / "own.csv"
    rows = [replace(row, weights_mib=None) for row in shipped_profiles().rows]
    for weights_mib, fits in ((30_000.0, True), (50_000.0, False)):
        first = {row.model: place for place, row in reversed(list(enumerate(rows)))}
        for model in ("resnet50", "bert-large"):
            rows[first[model]] = replace(rows[first[model]], weights_mib=weights_mib)
        table.write_text(text_of(rows))
        changes = {"profiles": str(table), "sharing.pools": [["vision", "language"]]}
        setting, _ = assemble(validate_config(changed(SMALL, changes), "small"), "small")
        if fits:
            _refuse_unserved(setting)
            continue
        said = (
            r"sharing.pools: the pool of vision, language \(.*own.csv\): .*on 7g.80gb, .* MiB .* they take 10\d,\d+ at"
        )
        with pytest.raises(ConfigError, match=said) as caught:
            _refuse_unserved(setting)
        assert exit_code_of(caught.value) is ExitCode.BAD_INPUT


def test_a_file_of_weights_that_is_not_there_is_told_before_anything_is_started(tmp_path: Path) -> None:
    setting, _ = assemble(validate_config(SMALL, "small"), "small")
    own = setting.config.tenants[0].model_copy(update={"weights": str(tmp_path / "none.safetensors")})
    config = setting.config.model_copy(update={"tenants": [own, setting.config.tenants[1]]})
    with pytest.raises(
        ConfigError, match=r"^tenants\.vision\.weights: .*none\.safetensors: No such file or directory$"
    ):
        _refuse_unknown(replace(setting, config=config))


@pytest.mark.parametrize(("mode", "said"), [(None, "No such file"), (0o777, "others may write it, and this is root")])
def test_a_folder_that_is_missing_or_in_which_others_teach_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, said: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder = tmp_path / "theirs"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    learning = LearningConfig(benchmark="folder", folder=str(folder))
    own = validate_config(SMALL, "small").tenants[0].model_copy(update={"learning": learning})
    with pytest.raises(LearningError, match=rf"^learning\.folder .*theirs: {said}"):
        _check_learning(own)


def test_the_door_is_told_what_the_config_says_of_inputs() -> None:
    setting, _ = assemble(validate_config(SMALL, "small"), "small")
    own = setting.config.tenants[0].model_copy(update={"input": InputConfig(dtype="float32", shape=[3, 4])})
    config = setting.config.model_copy(update={"tenants": [own, setting.config.tenants[1]]})
    setting = replace(setting, config=config)
    door = _door(setting, Path("/nowhere"), FrontDoorConfig(), _configured_input(setting))
    assert [(one.input.datatype, one.input.shape) for one in door.tenants] == [("FP32", (3, 4)), ("UINT8", (1,))]


def test_a_service_keeps_the_newest_weights_and_what_it_serves_and_began_with(tmp_path: Path) -> None:
    old_s, now_s = time.time() - 31 * 86400, time.time()
    for start, windows in (("live", range(8)), ("live-2", range(8, 12)), ("live-3", range(12, 20))):
        made = [tmp_path / start / "weights" / "vision" / f"window-{n}-1" for n in windows]
        made += [tmp_path / "live" / "weights" / "vision" / "first"] * (start == "live")
        for age, folder in enumerate(reversed(made)):
            folder.mkdir(parents=True)
            (folder / "final.safetensors").touch()
            os.utime(
                folder, 2 * (now_s - 60 * age if start == "live-3" else old_s - 60 * age - 3600 * (start == "live"),)
            )
        (tmp_path / start / "outcomes").touch()
        if start != "live-3":
            for path in (tmp_path / start, *(tmp_path / start).iterdir()):
                os.utime(path, (old_s, old_s))
    served = tmp_path / "live" / "weights" / "vision" / "window-2-1" / "final.safetensors"
    config = validate_config(SMALL, "small")
    models = SimpleNamespace(files_in_use=lambda name: [served] * (name == "vision"), config=config)
    forget_old(tmp_path, tmp_path / "live-3", cast("Any", models), 0.0)
    left = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("final.safetensors")}
    newest = {f"live-{2 if n < 12 else 3}/weights/vision/window-{n}-1" for n in range(20 - N_WEIGHTS, 20)}
    assert left == newest | {"live/weights/vision/first", "live/weights/vision/window-2-1"}
    assert [path.parent.name for path in tmp_path.rglob("outcomes")] == ["live-3"]
    forget_old(tmp_path, tmp_path / "live-3", cast("Any", models), 0.0)
    assert {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("final.safetensors")} == left


def test_folders_of_earlier_starts_stay_as_long_as_segments_do_and_go_whole_where_nothing_is_served(
    tmp_path: Path,
) -> None:
    config = validate_config(SMALL, "small")
    models = SimpleNamespace(files_in_use=lambda _: [], config=config)
    for name, days in (("live", 31), ("live-2", 29), ("live-3", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "outcomes").touch()
        for path in (tmp_path / name / "outcomes", tmp_path / name):
            os.utime(path, 2 * (time.time() - 86400 * days,))
    forget_old(tmp_path, tmp_path / "live-3", cast("Any", models), 0.0)
    assert sorted(path.name for path in tmp_path.glob("live*")) == ["live-2", "live-3"]
