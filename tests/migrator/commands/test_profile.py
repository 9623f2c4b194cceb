"""``migrator profile`` with processes of this machine, on shares of its CPU and against the stand-in of a driver."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from executor.catalogue import gpu_model
from executor.cpu.gpu import CpuGpu, standing_cuts
from executor.cuts import CpuCut
from executor.extras import install
from migrator.commands import profile as command
from migrator.profiling.record import Figure
from migrator.profiling.stages import BusyLoad, Stage
from tests.standin.cards import A100_40
from tests.standin.fixtures import MakeStandIn
from workloads.profiles.table import ServiceProfiles, read_profiles

CUT = CpuCut(0.7)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "input"
    path.write_bytes(b"hello")
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def quick(sample: Path, state: Path) -> Sequence[object]:
    """Options that measure two stages: one batch in two layouts."""
    options = ("--gpu", CUT.name, "--state", state, "--sample", sample, "--seconds", 0.1)
    return (*options, "--processes", 1, "--batches", 2, "--profiles", "1c,7c")


def nothing_stands(state: Path) -> bool:
    with CpuGpu(CUT, state) as gpu:
        return gpu.instances() == () and standing_cuts(state) == ()


def table() -> ServiceProfiles:
    return read_profiles(Path("profiles.csv"))


def test_a_table_is_written_that_configs_can_read(call, quick: Sequence[object], state: Path) -> None:
    code, out, err = call("profile", "live_models:Echo", *quick)
    assert (code, "written to profiles.csv" in out) == (0, True), err
    rows = table().of(CUT.name, "live_models:Echo")
    assert [(row.profile, row.batch, row.processes, row.derived) for row in rows] == [
        ("1c", 2, 1, ""),
        ("7c", 2, 1, ""),
    ]
    assert all(row.source.startswith("migrator profile, emulated") for row in rows)
    assert not Path("profiles.csv.partial").exists()
    assert nothing_stands(state)


def test_starts_are_measured_alone_and_together(call, quick: Sequence[object]) -> None:
    assert call("profile", "live_models:Echo", *quick)[0] == 0
    found = table().start(CUT.name, "live_models:Echo")
    assert found is not None
    assert found[0].library_s > 0
    assert found[0].model_s > 0


def test_progress_says_how_much_is_left(call, quick: Sequence[object]) -> None:
    _, _, err = call("profile", "live_models:Echo", *quick)
    first, last = (line for line in err.splitlines() if line[:1].isdigit())
    assert first.startswith("1 of 2, about ")
    assert " s left: live_models:Echo: batch 2, 1 process, on " in first
    assert last.startswith("2 of 2, done: ")


def test_several_processes_serve_side_by_side(call, quick: Sequence[object]) -> None:
    assert call("profile", "live_models:Echo", *quick, "--profiles", "7c", "--processes", "1,2")[0] == 0
    assert [row.processes for row in table().rows] == [1, 2]


def test_beside_another_one_batches_take_turns_and_never_overlap(
    call, quick: Sequence[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    options = (*quick, "--profiles", "7c", "--beside", "live_models:AlsoNoted")
    code, out, err = call("profile", "live_models:Noted", *options)
    assert (code, "live_models:Noted in turns with live_models:AlsoNoted on 7c: batch 2 " in out) == (0, True), err
    notes = (tmp_path / "notes").read_text()
    assert re.fullmatch(r"(Aa){6,}Bb((Aa){5,}(Bb){5,}(AaBb){5,}(Aa)?){5}", notes), notes
    (row,) = table().rows  # of the other one there is none
    assert row.model == "live_models:Noted"
    assert row.turn_cost is not None
    assert "in turns with live_models:AlsoNoted, 1 process, on 7c@0: 7c " in err
    assert " % in turns" in err


def test_what_dies_beside_another_one_has_no_cost_of_turns_and_all_else(
    call, quick: Sequence[object], sample: Path
) -> None:
    sample.write_bytes(b"raise")
    code, _, err = call("profile", "live_models:Echo", *quick, "--beside", "live_models:Raises")
    assert (code, "in turns with live_models:Raises, 1 process, on 7c@0: nothing of 7c: " in err) == (0, True), err
    assert [(row.profile, row.turn_cost) for row in table().rows] == [("1c", None), ("7c", None)]
    code, _, err = call("profile", "live_models:Echo", *quick, "--beside", "nothing")
    assert (code, "error: model 'nothing': unknown" in err) == (2, True)


def test_what_a_process_holds_is_measured(call, quick: Sequence[object]) -> None:
    options = ("--profiles", "7c", "--batches", "1,3", "--processes", "1,2")
    code, out, err = call("profile", "live_models:Heavy", *quick, *options)
    assert (code, "written to profiles.csv" in out) == (0, True), err
    rows = table().with_memory(CUT.name, "live_models:Heavy")
    assert {round((row.weights_mib or 0.0) / 32, 1) for row in rows} == {1.0}
    assert all(row.context_mib for row in rows)
    found = {(row.batch, row.processes): row.batch_mib for row in rows}
    assert found == {(n, p): pytest.approx(4 * n * p, abs=1 + p) for n in (1, 3) for p in (1, 2)}


def test_an_interrupt_leaves_what_was_measured_and_nothing_else(
    call, quick: Sequence[object], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command._Progress, "measured", interrupted)
        code, _, err = call("profile", "live_models:Echo", *quick)
    assert (code, "the same command goes on from there" in err) == (130, True)
    assert nothing_stands(state)
    assert not Path("profiles.csv").exists()
    code, _, err = call("profile", "live_models:Echo", *quick)
    assert (code, "1 of 2 stages are in profiles.csv.partial already" in err) == (0, True)
    assert len(table().rows) == 2


def test_other_options_do_not_go_on_with_what_was_measured(
    call, quick: Sequence[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command._Progress, "measured", interrupted)
    call("profile", "live_models:Echo", *quick)
    code, _, err = call("profile", "live_models:Echo", *quick, "--batches", "4")
    assert (code, "batches was [2], and is [4]" in err) == (2, True)
    code, _, err = call("profile", "live_models:Echo", *quick, "--beside", "live_models:Busy")
    assert (code, "beside was None, and is live_models:Busy" in err) == (2, True)
    other = tmp_path / "other"
    other.write_bytes(b"a longer one")
    code, _, err = call("profile", "live_models:Echo", *quick, "--sample", other)
    assert (code, f"and is {other}; give the same options" in err) == (2, True)


def test_what_a_killed_measurement_has_made_goes_with_the_next(call, quick: Sequence[object], state: Path) -> None:
    arguments = [sys.executable, "-m", "migrator", "profile", "live_models:Echo", *map(str, quick)]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=surroundings) as killed:
        assert killed.stderr is not None
        assert killed.stderr.readline().startswith("1 of 2")
        killed.send_signal(signal.SIGKILL)
    assert call("profile", "live_models:Echo", *quick)[0] == 0
    assert len(table().rows) == 2
    assert nothing_stands(state)


def test_what_dies_has_no_row_and_says_why(call, quick: Sequence[object], sample: Path, state: Path) -> None:
    sample.write_bytes(b"die")
    code, _, err = call("profile", "live_models:Raises", *quick)
    assert (code, "nothing of 1c: ended with code 9" in err) == (2, True)
    assert "error: no model answered on any profile, so there is no table" in err
    assert nothing_stands(state)
    sample.write_bytes(b"hello")
    assert call("profile", "live_models:Raises", *quick)[0] == 0


def test_a_model_that_raises_is_quoted(call, quick: Sequence[object], sample: Path) -> None:
    sample.write_bytes(b"raise")
    assert "nothing of 7c: the model raised RuntimeError: asked to" in call("profile", "live_models:Raises", *quick)[2]


def test_a_batch_that_fails_as_a_whole_has_no_figure_though_its_inputs_can_be_answered(
    call, quick: Sequence[object]
) -> None:
    code, _, err = call("profile", "live_models:Small", *quick, "--batches", "1,2")
    assert (code, "batch 2, 1 process, on 7c@0: nothing of 7c: the model raised RuntimeError: out of" in err) == (
        0,
        True,
    )
    assert {row.batch for row in table().rows} == {1}


def test_a_process_that_says_nothing_is_given_up(
    call, quick: Sequence[object], sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.profiling.crew.STUCK_S", 1.0)
    sample.write_bytes(b"hang")
    code, _, err = call("profile", "live_models:Hangs", *quick, "--profiles", "7c")
    assert (code, "nothing of 7c: it said nothing for 1 s" in err) == (2, True)


def test_on_a_mig_gpu_processes_are_given_their_devices_and_others_keep_theirs(
    call, make_standin: MakeStandIn, sample: Path, state: Path
) -> None:
    a100 = make_standin(A100_40)
    a100.put("1g.5gb", 6)
    options = ("--gpu", "smi", "--state", state, "--sample", sample, "--seconds", 0.1, "--processes", 1)
    code, _, err = call("profile", "live_models:InMig", *options, "--batches", 1, "--profiles", "1g.5gb,2g.10gb")
    assert code == 0, err
    rows = table().of("a100-40gb", "live_models:InMig")
    assert [row.profile for row in rows] == ["1g.5gb", "2g.10gb"]
    assert [f"{item.profile}@{item.start}" for item in a100.standing()] == ["1g.5gb@6"]


def figure(profile: str, rate_rps: float, cores: float = 1.0, strategy: str | None = None) -> Figure:
    gpu = gpu_model(CUT.name)
    stage = Stage(gpu.layout([gpu.placement(f"{profile}@0")]), "m", BusyLoad(32, strategy), 1, (profile,))
    return Figure(stage, profile, 0.1, 0.1, 0.1, rate_rps, cores)


@pytest.fixture
def gpu(state: Path) -> CpuGpu:
    return CpuGpu(CUT, state)


def test_a_larger_profile_that_is_slower_is_doubted(gpu: CpuGpu) -> None:
    (said,) = command._reversed(gpu, [figure("1c", 100.0), figure("2c", 95.0), figure("4c", 50.0)])
    assert said.startswith("2 × a larger profile was slower")
    assert "at worst 4c (50/s) than 1c (100/s), m: batch 32, 1 process, on 4c@0" in said


def test_larger_profiles_that_are_about_as_fast_are_not(gpu: CpuGpu) -> None:
    assert list(command._reversed(gpu, [figure("1c", 100.0), figure("2c", 95.0)])) == []


def test_retrainings_tell_whether_other_programs_took_cpu_time(gpu: CpuGpu) -> None:
    busy, robbed = figure("7c", 1.0, 0.69, "naive"), figure("1c", 1.0, 0.05, "naive")
    assert list(command._disturbed(gpu, [busy, figure("1c", 1.0, 0.01)])) == []
    (said,) = command._disturbed(gpu, [busy, robbed])
    assert "(1 of 2 retrainings tell): 1c got 0.05 of 0.10 cores" in said


def test_rounds_that_contradict_each_other_are_told() -> None:
    agreed = [-9.0, 0.0, 0.1, 0.2, 9.0]
    assert list(command._unsure({("m", "1c"): {1: agreed}})) == []
    (said,) = command._unsure({("m", "1c"): {1: agreed, 8: [0.0, 0.0, 0.1, 0.3, 0.3]}, ("m", "7c"): {1: agreed}})
    assert said.startswith("1 of 3 costs of turns are unsure")
    assert said.endswith("at worst m on 1c, batch 8: +0 to +30 %")


ON_SHARES = ("--gpu", CUT.name, "--shares", "15,30,50,70,85", "--batches", 2, "--seconds", 0.1)


def test_latency_by_share_is_written_as_configs_can_read_it(call, sample: Path, state: Path) -> None:
    code, out, err = call("profile", "live_models:Echo", *ON_SHARES, "--state", state, "--sample", sample)
    assert (code, "written to shares.csv: for share_profiles:" in out) == (0, True), err
    found = [line.split(",") for line in Path("shares.csv").read_text().splitlines()[1:]]
    assert [(gpu, share, beside) for gpu, _, _, share, beside, *_ in found] == [
        (CUT.name, share, "") for share in ("15", "30", "50", "70", "85")
    ]
    assert all(float(p99) >= float(mean) > 0 and not step for *_, mean, p99, step in found)
    assert not Path("shares.csv.partial").exists()
    with CpuGpu(CUT, state, in_parts=True) as gpu:
        assert gpu.instances() == ()


def test_shares_that_were_cut_off_go_on(
    call, sample: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    arguments = ("profile", "live_models:Echo", *ON_SHARES, "--state", state, "--sample", sample)
    with monkeypatch.context() as patched:
        patched.setattr(command._Progress, "measured", interrupted)
        assert call(*arguments)[0] == 130
    code, _, err = call(*arguments)
    assert (code, "1 of 5 stages are in shares.csv.partial already" in err) == (0, True), err


BAD = {
    "four shares": (("mlp", "--shares", "10,20,30,40"), "--shares 10,20,30,40: 4 given; a curve needs 5 or more"),
    "all of it": (("mlp", "--shares", "20,40,60,80,100"), "whole hundredths from 1 to 99, separated by commas"),
    "too small a share": (
        ("live_models:Echo", "--gpu", CUT.name, "--shares", "5,30,50,70,90"),
        "error: --shares: 5 %: 0.7 CPU cores (emulated) has shares of 15 to 85 %",
    ),
    "shares of MIG": (
        ("live_models:Echo", "--gpu", "nvml", "--shares", "10,30,50,70,90"),
        "error: --shares: --gpu nvml has MIG instances; shares are of mps-",
    ),
    "an unknown trainer": (
        ("mlp", "--shares", "10,30,50,70,90", "--beside-trainer", "nothing"),
        "error: --beside-trainer model 'nothing': unknown; mlp, ",
    ),
    "a trainer without lessons": (
        ("mlp", "--shares", "10,30,50,70,90", "--beside-trainer", "live_models:Echo"),
        "a trainer, live_models:Echo, has nothing to learn; live_models:Echo:BENCHMARK is needed",
    ),
    "a guess from nothing": (
        ("mlp", "--shares", "10,30,50,70,90", "--guess-trainer", "cnn"),
        "error: --guess-trainer cnn:digits: from trainings that are run; --beside-trainer is needed",
    ),
    "a guess of what is run": (
        ("mlp", "--shares", "10,30,50,70,90", "--beside-trainer", "cnn", "--guess-trainer", "cnn:digits"),
        "error: --guess-trainer cnn: it is run, too",
    ),
    "a guess without shares": (("mlp", "--guess-trainer", "cnn"), "error: --guess-trainer is of shares"),
    "a trainer without shares": (("mlp", "--beside-trainer", "cnn"), "error: --beside-trainer is of shares"),
    "shares of instances": (
        ("mlp", "--shares", "10,30,50,70,90", "--profiles", "1c"),
        "error: --profiles 1c: is of instances, and not of --shares",
    ),
    "unknown": (("nothing",), "error: model 'nothing': unknown; mlp, "),
    "too many parts": (("mlp:digits:more",), "error: model 'mlp:digits:more': unknown"),
    "twice": (("live_models:Echo", "live_models:Echo:digits"), "error: model live_models:Echo is given twice"),
    "no input": (("live_models:Echo", "--gpu", CUT.name), "error: model live_models:Echo: no input; give --sample"),
    "another GPU": (("live_models:Echo", "--gpu", "tpu"), "error: --gpu tpu: auto, nvml, smi, shares"),
    "too fine a cut": (("live_models:Echo", "--gpu", "cpu-0.1-in-7"), "error: 0.1 cores cannot be cut"),
    "no count": (("live_models:Echo", "--batches", "1,x"), "--batches 1,x: whole numbers from 1 to 4096"),
    "no profile": (("live_models:Echo", "--gpu", CUT.name, "--profiles", "5c"), "has no MIG profile '5c'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_measured_is_refused_in_one_line(call, case: str, state: Path, sample: Path) -> None:
    arguments, told = BAD[case]
    extra = () if case == "no input" else ("--sample", sample)
    present = lambda _: True  # noqa: E731 - whatever is installed here
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("migrator.extras.find_spec", present)
        code, _, err = call("profile", *arguments, "--state", state, *extra)
    assert (code, told in err, "Traceback" in err) == (2, True, False), err


def test_what_is_missing_is_named_with_what_to_install(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.extras.find_spec", lambda name: None if name == "torch" else name)
    code, _, err = call("profile", "mlp", "--gpu", CUT.name)
    assert (code, err) == (2, f"error: profile needs torch: {install('live')}\n")


@pytest.mark.live
def test_a_model_that_learns_is_retrained_on_every_profile(call, state: Path) -> None:
    options = ("--gpu", CUT.name, "--state", state, "--coarse", "--seconds", 0.2, "--batches", "1")
    code, _, err = call("profile", "mlp", *options)
    assert code == 0, err
    found = table()
    rates = found.training_rps(CUT.name, "mlp")
    assert list(rates) == ["1c", "2c", "3c", "4c", "7c"]
    assert {row.profile for row in found.rows if row.derived} == {"3c"}
    assert found.start(CUT.name, "mlp") is not None


@pytest.mark.live
def test_turns_of_two_models_that_learn_and_their_memory_are_measured(call, state: Path) -> None:
    options = ("--gpu", CUT.name, "--state", state, "--coarse", "--seconds", 0.2, "--batches", "8", "--profiles", "7c")
    code, _, err = call("profile", "mlp", "--beside", "cnn", *options, "--processes", 1)
    assert code == 0, err
    (row,) = table().rows
    assert row.turn_cost is not None
    assert 0.1 < (row.weights_mib or 0.0) < 50
    assert (row.context_mib or 0.0) > 20  # torch
    assert (row.batch_mib or 0.0) < 50


@pytest.mark.live
def test_latency_is_measured_beside_a_training_that_takes_the_rest(call, state: Path) -> None:
    options = ("--gpu", "cpu-1.4-in-7", "--state", state, "--seconds", 0.2, "--batches", "8")
    beside = ("--beside-trainer", "cnn", "--guess-trainer", "mlp")
    code, out, err = call("profile", "mlp", *options, "--shares", "10,30,50,70,90", *beside)
    assert code == 0, err
    *found, _, _, _, _, last = [line.split(",") for line in Path("shares.csv").read_text().splitlines()[1:]]
    assert [row[3:5] for row in found] == [
        [share, b] for share in ("10", "30", "50", "70", "90") for b in ("", "cnn")
    ], out
    assert last[4::4] == ["mlp", "mean of the measured trainings"]
    assert "mlp beside mlp, not run: × 1." in out
    steps = [float(row[7]) for row in found if row[4] == "cnn"]
    assert steps[-1] > steps[0]  # on 10 % of the card, after 90
