"""Live runs from the command line to the log: real requests, weights and deaths, on shares of this machine's CPU.

The service profiles here are made up, far below what machines do, and windows long for what has to happen in them.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
import yaml

from executor.cpu.gpu import CpuGpu
from migrator.log import records as recorded
from migrator.log.live import LiveFacts, known_of, live_facts
from migrator.log.runlog import EVENTS_FILE, LOST, ReadLog, read_log
from tests.ending import PATIENCE_S, ends
from tests.seeds import daily
from workloads.learning.models import classifier

pytestmark = pytest.mark.live

WINDOW_S = 30

CONFIG = f"""
gpu: {{model: cpu-0.7-in-7, backend: cpu}}
window_s: {WINDOW_S}
windows: 2
profiles: profiles.csv
forecast: {{history_s: 20, half_life_s: 10}}
planner: {{planning_s: 1, switch_s: 0.5, max_schedules: 50}}
estimates: {{delay_s: 4}}
tenants:
  - name: turned
    model: mlp
    slo_ms: 2000
    arrivals: {{rate_rps: 20}}
    accuracy: {{before: 0.4, after: 0.9}}
    retraining: {{samples: 400, epochs: 4, options: [{{name: half, epochs: 2}}]}}
    worker_start_s: 1
    learning: {{benchmark: digits-rotated}}
  - name: grown
    model: cnn
    slo_ms: 2000
    arrivals: {{rate_rps: 20}}
    accuracy: {{before: 0.0, after: 0.9}}
    retraining: {{samples: 200, epochs: 4}}
    worker_start_s: 1
    learning: {{benchmark: digits}}
"""


def made_up_profiles() -> str:
    rows = ["source,gpu,model,profile,batch,processes,latency_ms,throughput_rps,derived"]
    for model in ("mlp", "cnn"):
        for slices in (1, 2, 3, 4, 7):
            for batch in (1, 8, 64):
                latency_ms = 40 / slices + batch / 2
                figures = f"{latency_ms:.3f},{1000 * batch / latency_ms:.3f}"
                rows.append(f"made-up,cpu-0.7-in-7,{model},{slices}c,{batch},1,{figures},made up for tests")
    return "\n".join(rows) + "\n"


@dataclass
class Site:
    """A folder with a config, and what is run in it."""

    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "migrator", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"},
        )
        self.processes.append(process)
        return process

    def run(self, *more: str) -> subprocess.Popen[str]:
        return self.start("run", "config.yaml", "--out", "run", "--state", "state", *more)

    @property
    def log(self) -> ReadLog:
        return read_log(self.folder / "run")

    @property
    def facts(self) -> LiveFacts:
        found = live_facts(self.log)
        assert found is not None
        return found

    def until(self, kind: str, n_needed: int = 1, **fields: object) -> None:
        """Wait until so many records of the kind, with these fields, stand in the log."""
        until_s = monotonic() + 4 * PATIENCE_S
        while monotonic() < until_s:
            with suppress(Exception):  # there is none yet
                told = (one.record for one in self.log.entries if one.record.kind == kind)
                found = [one for one in told if all(getattr(one, key) == value for key, value in fields.items())]
                if len(found) >= n_needed:
                    return
            assert self.processes[-1].poll() is None, self.processes[-1].communicate()[0]
            threading.Event().wait(0.1)
        raise AssertionError(f"no {kind} with {fields}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "profiles.csv").write_text(made_up_profiles())
    site = Site(tmp_path)
    yield site
    for process in site.processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def finished(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=20 * PATIENCE_S)
    assert process.returncode == 0, said
    return said


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def warm_process(pid: int) -> int:
    """The run's process that its workers are forked from, as soon as it has forked one."""
    until_s = monotonic() + PATIENCE_S
    while monotonic() < until_s:
        for child in descendants(pid):
            if descendants(child):
                return child
        threading.Event().wait(0.1)
    raise AssertionError("no worker was forked")


def accounted(site: Site, of: Sequence[str] = ("turned", "grown")) -> None:
    """What was sent, heard of, counted by the dispatcher and by the log is the same."""
    facts = site.facts
    assert facts.unaccounted == 0
    assert facts.of_others == 0
    for name in of:
        own = facts.requests[name]
        counted = own.dispatcher
        assert counted.arrived == own.sent == counted.in_time + counted.late + counted.dropped
        assert (counted.in_time, counted.late) == (own.in_time, own.late)
        settled = [record.tenants[name] for record in site.log.of(recorded.WindowFinished)]
        assert sum(sum(one.arrivals) for one in settled) == own.sent
        assert sum(sum(one.correct) for one in settled) == counted.goodput


@contextmanager
def nothing_left(process: subprocess.Popen[str]) -> Iterator[None]:
    """All that the process has started is gone in the end."""
    started = descendants(process.pid)
    assert started
    yield
    assert [ends(pid) for pid in started] == [True] * len(started)


def test_models_learn_in_the_run_and_every_request_is_accounted_for(site: Site) -> None:
    process = site.run()
    site.until("ready", 2, task="inference")
    with nothing_left(process):
        said = finished(process)
    accounted(site)
    assert "real requests and workers on emulated instances" in said
    learned = {(one.window, one.tenant): one for one in site.facts.learned}
    assert len(learned) == 4
    for one in learned.values():
        assert one.failure == "", one
        assert one.tested_pct is not None
        assert one.tested_pct > 60
    starts = {(r.window, r.tenant): r.accuracy_before for r in site.log.of(recorded.Finished)}
    assert max(starts.values()) < 0.6  # each window's data is news
    # A retraining may end before its window's first second does: then nothing was answered with the old weights.
    gains = [one.after_pct - 100 * starts[key] for key, one in learned.items() if one.after_pct is not None]
    assert len(gains) == 4
    assert min(gains) > 15
    estimates = [known_of(site.log)[window] for window in (0, 1)]
    assert [one.window for one in site.log.of(recorded.Measured)] == [1]  # its plan was made before it began
    sources = [tenant.estimate.source for told in estimates for tenant in told.values()]
    assert len(sources) == 4
    assert not [source for source in sources if source.startswith("the config")]
    gains = [told["turned"].estimate.gains["half"] for told in estimates]
    assert all(0 < gain <= 1 for gain in gains)
    assert 0.5**0.5 not in gains  # the config's curve; these are measured
    for finish in site.log.of(recorded.Finished):
        told = estimates[finish.window][finish.tenant]
        share = told.estimate.gains.get(finish.option or "full", 1.0)
        expected = told.accuracy_before + share * (told.estimate.accuracy_after - told.accuracy_before)
        assert learned[finish.window, finish.tenant].estimated_pct == pytest.approx(100 * expected)
    checked = finished(site.start("verify", "run"))  # problems are posed anew with what was measured
    assert checked.count("is valid") >= 2


@pytest.mark.alone
def test_the_shipped_example_moves_instances_and_swaps_weights(site: Site) -> None:
    measured = ("--gpu", "cpu-1.6-in-7", "--coarse", "--seconds", "0.4", "--out", "own.csv", "--state", "state")
    finished(site.start("profile", "cnn_wide", *measured))
    finished(site.start("init", "live-cpu", "."))
    (site.folder / "config.yaml").write_bytes((site.folder / "live-cpu.yaml").read_bytes())
    finished(site.run("--windows", "1", "--set", f"profiles={site.folder / 'own.csv'}"))
    accounted(site)
    moves = [
        change
        for change in site.log.of(recorded.Change)
        if change.begin_s > 0 and any(one.task == "inference" for one in change.started + change.stopped)
    ]
    assert moves
    (ending,) = site.log.of(recorded.RunFinished)
    assert ending.swaps >= 1


def test_somebody_else_s_client_asks_while_instances_and_weights_change(site: Site) -> None:
    client = pytest.importorskip("tritonclient.http")
    process = site.run("--set", "front_door.port=0")
    site.until("ready", 2, task="inference")
    (opened,) = (line for line in said_until(process, "the front door is open") if "front door" in line)
    url = opened.split("http://")[1].split("/")[0]
    answered: Counter[str] = Counter()

    def ask(tenant: str) -> None:
        with client.InferenceServerClient(url) as connection:
            pixels = np.zeros((1, 1, 8, 8), np.uint8)
            for number in range(1000):
                pixels[0, 0] = number % 256
                tensor = client.InferInput("input", pixels.shape, "UINT8")
                tensor.set_data_from_numpy(pixels)
                try:
                    answer = connection.infer(tenant, [tensor])
                except InferenceServerException as error:
                    answered[f"{tenant} {error.status()}"] += 1
                except OSError:  # this machine is so slow that the run is over
                    answered[f"{tenant} over"] += 1
                else:
                    answered[f"{tenant} {answer.as_numpy('label').shape}"] += 1

    from tritonclient.utils import InferenceServerException

    clients = [threading.Thread(target=ask, args=(name,)) for name in ("turned", "grown")]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    finished(process)
    assert sum(answered.values()) == 2000
    assert {key.split()[1] for key in answered} <= {"(1,", "503", "429", "over"}
    n_answered = sum(n for key, n in answered.items() if "(1," in key)
    assert n_answered > 100
    assert site.facts.unaccounted == 0
    assert site.facts.of_others >= n_answered


class Asker(threading.Thread):
    """A client that asks one tenant's model at these paces, each for so many seconds, and counts what it is told."""

    def __init__(self, url: str, model: str, paces: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        self._place, self._model, self._paces = url.removeprefix("http://").removesuffix("/v2"), model, paces
        self.told = Counter[str]()

    def run(self) -> None:
        tensor = {"name": "input", "datatype": "UINT8", "shape": [1, 1, 8, 8], "data": list(range(64))}
        body = json.dumps({"inputs": [tensor]})
        for rps, seconds in self._paces:
            begin_s = monotonic()
            for number in range(round(rps * seconds)):
                threading.Event().wait(max(0.0, begin_s + number / rps - monotonic()))
                with closing(HTTPConnection(self._place, timeout=PATIENCE_S)) as connection:
                    connection.request("POST", f"/v2/models/{self._model}/infer", body)
                    answer = connection.getresponse()
                    raw = json.loads(answer.read())
                in_time = answer.status == 200 and raw["parameters"]["in_time"]
                self.told["in_time" if in_time else "late" if answer.status == 200 else "dropped"] += 1


def asked_by_clients(folder: Path) -> None:
    """A config whose first model learns, and whose second one has the operator's weights, and only serves."""
    config = yaml.safe_load(CONFIG) | {"front_door": {"port": 0}}
    learns, serves = config["tenants"]
    for tenant in (learns, serves):
        tenant["arrivals"] = {"live": True, "expect_rps": 10}
    del serves["learning"], serves["retraining"]
    takes = {"input": {"dtype": "uint8", "shape": [1, 8, 8]}, "classes": 10}
    serves |= takes | {"accuracy": 0.7, "weights": "own.safetensors"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for model in ("cnn", "mlp"):
        file = folder / ("own.safetensors" if model == "cnn" else "other.safetensors")
        classifier(model, shape=[1, 8, 8], n_classes=10, weights="random").save(file, {})


def test_what_clients_were_told_is_what_the_log_counts(site: Site) -> None:
    asked_by_clients(site.folder)
    process = site.run()
    url = said_until(process, "the front door is open")[-1].split()[-1]
    # One doubles, one leaves.
    clients = [Asker(url, "turned", [(10, 20), (20, 20)]), Asker(url, "grown", [(15, 25)])]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    with nothing_left(process):
        said = finished(process)
    assert "expected goodput" in said
    for name, one in zip(("turned", "grown"), clients, strict=True):
        counts = [record.tenants[name] for record in site.log.of(recorded.WindowFinished)]
        logged = {key: sum(sum(getattr(own, key)) for own in counts) for key in ("in_time", "late", "dropped")}
        assert +Counter(logged) == +one.told
        assert not any(own.is_labelled for own in counts)
    assert {ended.tenant for ended in site.log.of(recorded.Finished)} == {"turned"}
    assumed = [one for one in site.log.header.assumed if one.what == "accuracy"]
    assert [(one.tenant, one.value) for one in assumed] == [("grown", 0.7)]
    assert finished(site.start("verify", "run")).count("is valid") >= 2


def test_weights_of_another_model_end_a_run_before_it_begins(site: Site) -> None:
    asked_by_clients(site.folder)
    process = site.run("--set", "tenants.grown.weights=other.safetensors")
    said, _ = process.communicate(timeout=4 * PATIENCE_S)
    assert (process.returncode, (site.folder / "run").exists()) == (2, False)
    assert said.splitlines()[-1] == f"error: tenants.grown: {site.folder}/other.safetensors: tensor 0.weight is missing"


def said_until(process: subprocess.Popen[str], what: str) -> list[str]:
    """What the process says up to the line with these words."""
    assert process.stdout is not None
    said: list[str] = []
    while not said or what not in said[-1]:
        said.append(process.stdout.readline())
        assert said[-1], said
    return said


@pytest.mark.parametrize("pools", daily(["off", "[[turned, grown]]"], ["[[turned, grown]]"]))
def test_workers_and_trainers_may_be_killed_or_stopped_at_any_moment(site: Site, pools: str) -> None:
    process = site.run("--set", f"sharing.pools={pools}")
    site.until("change")
    killed: set[int] = set()
    until_s = monotonic() + 1.5 * WINDOW_S
    with nothing_left(process):
        zygote = warm_process(process.pid)
        while monotonic() < until_s and process.poll() is None and len(killed) < 8:
            workers = [pid for pid in descendants(zygote) if pid not in killed]
            if workers:  # the newest: it starts, is warm, serves or learns
                blow = signal.SIGSTOP if len(killed) % 2 else signal.SIGKILL
                killed.add(workers[-1])
                with suppress(ProcessLookupError):
                    os.kill(workers[-1], blow)
            threading.Event().wait(WINDOW_S / 10)
        finished(process)
    assert len(killed) > 3
    assert site.log.of(recorded.Failed)
    accounted(site)
    held = {instance.tenant for change in site.log.of(recorded.Change) for instance in change.started}
    assert (("turned", "grown") in held) == (pools != "off")
    assert finished(site.start("verify", "run")).count("is valid") >= 2


def dispatcher_of(pid: int) -> int:
    """The process of a run that keeps its requests."""
    commands = {one: (Path("/proc") / str(one) / "cmdline").read_bytes() for one in descendants(pid)}
    (found,) = (one for one, command in commands.items() if b"workloads.live.dispatcher" in command)
    return found


@pytest.mark.parametrize("killed", ["controller", "dispatcher"])
def test_controller_and_dispatcher_may_stand_still_or_be_killed_and_the_run_is_resumed(site: Site, killed: str) -> None:
    process = site.run("--windows", "3", "--set", "sharing.pools=[[turned, grown]]")
    site.until("finished")
    with nothing_left(process):
        pids = {"controller": process.pid, "dispatcher": dispatcher_of(process.pid)}
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
            threading.Event().wait(1.0)
            os.kill(pid, signal.SIGCONT)
        os.kill(pids[killed], signal.SIGKILL)
        said, _ = process.communicate(timeout=4 * PATIENCE_S)
    if killed == "dispatcher":
        assert process.returncode == 1
        assert "the dispatcher is gone, with code -9" in said.splitlines()[-1]
    before = [one.version for one in site.log.of(recorded.Finished)]
    said = finished(site.start("run", "--resume", "run", "--state", "state"))
    assert f"joined at window {site.facts.from_window}" in said
    assert site.facts.from_window in (1, 2)  # 2, where the kill came too late for window 1
    after = [one.version for one in site.log.of(recorded.Finished)]
    assert after[: len(before)] == before
    assert f"window-{site.facts.from_window}" in after
    assert site.facts.unaccounted == 0
    finished(site.start("verify", "run"))  # both parts learned what windows began with


def test_a_pool_is_refused_where_an_instance_takes_one_process(
    site: Site, call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuGpu, "turns_by", None)
    config, out = str(site.folder / "config.yaml"), site.folder / "run"
    pools = ("--set", "sharing.pools=[[turned, grown]]", "--state", str(site.folder / "state"))
    code, _, err = call("run", config, "--out", str(out), *pools)
    assert (code, out.exists()) == (2, False)
    assert "sharing.pools: an instance of GPU 0 takes one process alone" in err


@pytest.mark.parametrize("loss", ["deleted", "full"])
def test_a_run_that_loses_its_folder_says_so_within_a_window_and_leaves_no_process(site: Site, loss: str) -> None:
    process = site.run("--windows", "4")
    site.until("change")
    with nothing_left(process):
        if loss == "deleted":
            shutil.rmtree(site.folder / "run")
        else:  # as a disk is for a file that may not grow
            size = (site.folder / "run" / EVENTS_FILE).stat().st_size
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
        said, _ = process.communicate(timeout=2 * WINDOW_S + 4 * PATIENCE_S)
    assert process.returncode == 1, said
    assert said.splitlines()[-1] == f"error: run/{EVENTS_FILE}: {LOST if loss == 'deleted' else 'File too large'}"
    assert (site.folder / "run").exists() == (loss == "full")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("tenants.0.learning.benchmark=mnist", "tenants.turned: learning.benchmark 'mnist': unknown; digits, "),
        ("tenants.0.learning.checkpoints=[0.5,0.2]", "tenants.turned: retraining option 'full': checkpoints are"),
        (
            "front_door.host=0.0.0.0",
            "front_door: host: 0.0.0.0: others can reach it, so every tenant needs",
        ),
        ("front_door.origins=[evil.example]", "front_door: origins: 'evil.example'; allowed: scheme://host or"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_no_run(site: Site, change: str, said: str) -> None:
    process = site.run("--set", change)
    told, _ = process.communicate(timeout=10 * PATIENCE_S)
    assert process.returncode == 2
    assert said in told.splitlines()[-1]
    assert not (site.folder / "run").exists()
