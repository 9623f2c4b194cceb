"""``migrator gpu watch``, with a clock whose waits are the moments at which others act."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from executor.clock import VirtualClock
from executor.gpu import GpuInstance
from executor.nvml import NvmlGpu
from migrator.commands.gpu import watch
from tests.standin.cards import A100_40
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import READ, UNKNOWN, StandIn

Deed = Callable[[], object]


@pytest.fixture
def a100(make_standin: MakeStandIn, tmp_path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_standin(A100_40)


@pytest.fixture
def watched(call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[str], str]]:
    """Watches while the deeds are done, one a wait, and is then interrupted."""

    def watch_while(*deeds: Deed, options: tuple[str, ...] = ()) -> tuple[int, list[str], str]:
        left = list(deeds)

        class Clock(VirtualClock):
            def sleep_until(self, time_s: float) -> None:
                super().sleep_until(time_s)
                if not left:
                    raise KeyboardInterrupt
                left.pop(0)()

        monkeypatch.setattr(watch, "WallClock", Clock)
        code, out, err = call("gpu", "watch", *options)
        return code, [line.partition(" ")[2] for line in out.splitlines()], err

    return watch_while


every_backend = pytest.mark.parametrize("backend", ["nvml", "smi"])


@every_backend
def test_what_stands_comes_first_and_then_what_changes(watched, a100: StandIn, backend: str) -> None:
    first = a100.put("1g.5gb", 6)
    code, lines, err = watched(
        lambda: a100.put("3g.20gb", 0),
        lambda: a100.take_away(first.gi_id),
        lambda: None,
        options=("--backend", backend),
    )
    second = a100.standing()[0]
    assert (code, err) == (130, "error: interrupted\n")
    assert lines == [
        f"  1g.5gb@6 others' (GPU instance ID {first.gi_id})",
        f"+ 3g.20gb@0 others' (GPU instance ID {second.gi_id})",
        f"− 1g.5gb@6 others' (GPU instance ID {first.gi_id})",
    ]


@pytest.mark.usefixtures("a100")
def test_without_an_event_nothing_is_read(watched, monkeypatch: pytest.MonkeyPatch) -> None:
    instances, reads_s = NvmlGpu.instances, []

    def counted(gpu: NvmlGpu) -> tuple[GpuInstance, ...]:
        reads_s.append(moment_s)
        return instances(gpu)

    moment_s = 0

    def pass_by() -> None:
        nonlocal moment_s
        moment_s += 1

    monkeypatch.setattr(NvmlGpu, "instances", counted)
    watched(*[pass_by] * 4)
    assert (reads_s, moment_s) == ([0], 4)


def test_a_driver_that_forgets_to_tell_is_asked_now_and_then(
    watched, a100: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executor.nvml.NvmlGpu.changed", lambda _: False)
    lines = watched(lambda: a100.put("3g.20gb", 0), *[lambda: None] * 9)[1]
    assert [line.split()[:2] for line in lines] == [["+", "3g.20gb@0"]]


def test_by_polling_everything_is_read_each_time(watched, a100: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.nvml.NvmlGpu.changed", lambda _: False)
    lines = watched(lambda: a100.put("3g.20gb", 0), options=("--every", "0.5"))[1]
    assert [line.split()[:2] for line in lines] == [["+", "3g.20gb@0"]]


@pytest.mark.usefixtures("a100")
def test_what_is_ours_is_seen_as_ours_while_a_controller_works(watched, call) -> None:
    call("gpu", "apply", "2g.10gb@0")
    lines = watched(lambda: call("gpu", "apply", "3g.20gb@4"))[1]
    assert [line.split()[:3] for line in lines] == [["−", "2g.10gb@0", "ours"], ["+", "3g.20gb@4", "ours"]]


def test_an_instance_that_loses_its_compute_instance_has_changed(watched, a100: StandIn) -> None:
    item = a100.put("1g.5gb", 6, with_ci=False)

    def repair() -> None:
        with NvmlGpu() as gpu:
            gpu.make_whole(item.gi_id)

    lines = watched(repair)[1]
    assert lines == [
        f"  1g.5gb@6 others' (GPU instance ID {item.gi_id}, no compute instance)",
        f"~ 1g.5gb@6 others' (GPU instance ID {item.gi_id})",
    ]


def test_as_json_every_line_is_an_object(call, a100: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    item = a100.put("1g.5gb", 6)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("executor.clock.WallClock.sleep_until", interrupt)
    (line,) = call("gpu", "watch", "--json")[1].splitlines()
    seen = json.loads(line)
    assert seen.pop("time").endswith("+00:00")
    assert seen == {
        "what": "stands",
        "placement": "1g.5gb@6",
        "gi_id": item.gi_id,
        "uuid": item.uuids[0],
        "ours": False,
    }


@pytest.mark.usefixtures("a100")
@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf", "x"])
def test_an_interval_that_is_no_positive_number_is_bad_input(call, every: str) -> None:
    code, _, err = call("gpu", "watch", "--every", every)
    assert (code, err.count("\n")) == (2, 1)


def test_a_driver_that_fails_for_a_moment_is_asked_again(watched, a100: StandIn) -> None:
    def trouble() -> None:
        a100.fail(READ, UNKNOWN, count=2)  # the look at what has happened, then the one at what stands
        a100.put("1g.5gb", 6)

    _, lines, err = watched(trouble, lambda: None, lambda: None)
    assert [line.split()[0] for line in lines] == ["+"]
    assert "; looking again" in err


def test_a_gpu_that_is_lost_ends_the_watch(watched, a100: StandIn) -> None:
    code, _, err = watched(lambda: setattr(a100.state.gpus[0], "lost", 1))
    assert (code, err.count("\n")) == (4, 1)
    assert "GPU is lost" in err
