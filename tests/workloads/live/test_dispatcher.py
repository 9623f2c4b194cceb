"""Dispatcher and workers as real processes: whoever dies, hangs or misbehaves, every request is accounted for.

Nothing here waits for time to pass: each step waits for the message, or the end of the process, that shows it.
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import zmq
from live_site import PATIENCE_S, SURROUNDINGS, Site, site_in

from executor.messages import as_text, packed
from tests.ending import ends
from tests.seeds import daily
from workloads.live.dispatcher import DispatcherSetup
from workloads.live.messages import (
    MOST_BYTES,
    TO_CLIENT,
    TO_WORKER,
    Beat,
    Changed,
    Closed,
    Counts,
    Credit,
    Drain,
    DrainAll,
    Drained,
    Draining,
    Heartbeat,
    Hello,
    Hung,
    Lend,
    Lent,
    Load,
    Loaded,
    NotDone,
    Request,
    Return,
    Serve,
    Share,
    State,
    Status,
    Stop,
    Tenants,
    ToWorker,
    TurnedAway,
    Watch,
    Worth,
)
from workloads.live.process import command
from workloads.live.wire import CLIENTS, HEART, WORKER, WORKERS, Peer, WireError, address, private_folder


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path / "s") as site:
        yield site


def becomes(name: str, state: State) -> Callable[[Changed], bool]:
    return lambda changed: (changed.worker, changed.state) == (name, state)


def statuses(site: Site) -> Counter[Status]:
    return Counter(answer.status for answer in site.answers())


TWENTY = [b"%d" % number for number in range(20)]


# --- what should happen


def test_requests_are_answered(site: Site) -> None:
    site.dispatcher()
    site.worker("a")
    site.ask(*TWENTY)
    assert [(answer.status, answer.payload) for answer in site.answers()] == [(Status.IN_TIME, one) for one in TWENTY]


def test_counts_say_what_became_of_the_requests(site: Site) -> None:
    site.dispatcher()
    site.worker("a")
    site.ask(*TWENTY)
    site.answers()
    counts = site.finish()
    assert (counts["arrived"], counts["in_time"], counts["correct"], counts["goodput"]) == (20, 20, 20, 20)


def test_counts_are_told_while_the_run_goes_on(site: Site) -> None:
    site.dispatcher()
    site.ask(b"x")
    assert site.heard(Counts).waiting == 1


def test_closed_seconds_are_told_and_nothing_counts_in_them_any_more(site: Site) -> None:
    site.dispatcher(closes_s=0.2, tick_s=0.05)
    site.ask(b"x")
    first = site.heard(Counts, lambda counts: counts.arrived == 1).second
    site.client.send(TurnedAway("vision", monotonic(), 3))
    site.heard(Counts, lambda counts: counts.turned_away == 3)
    closed = site.heard(Closed, lambda closed: closed.second > first).second
    site.client.send(TurnedAway("vision", site.origin_s, 4))  # told too late
    assert site.heard(Counts, lambda counts: counts.turned_away == 4).second >= closed


def test_where_seconds_are_closed_latencies_are_counted(site: Site) -> None:
    site.dispatcher(closes_s=1.0)
    site.worker("a")
    site.ask(*TWENTY)
    site.answers()
    site.finish()
    latest = {one.second: one for one in site.told if isinstance(one, Counts)}
    assert sum(n for one in latest.values() for _, n in one.latency_ms) == 20


def test_a_worker_goes_through_its_states(site: Site) -> None:
    site.dispatcher()
    process = site.worker("a", hold=True)
    site.heard(Changed, becomes("a", State.WARM))
    site.order(Serve("a"))
    site.heard(Changed, becomes("a", State.SERVING))
    site.order(Drain("a"))
    site.heard(Changed, becomes("a", State.GONE))
    assert [one.state for one in site.told if isinstance(one, Changed)] == list(State)
    assert process.wait(PATIENCE_S) == 0


def test_a_warm_worker_tells_how_long_its_phases_took(site: Site) -> None:
    site.dispatcher()
    site.worker("a", "Busy", options={"batch_s": 0.05})
    ready = site.heard(Changed, becomes("a", State.WARM))
    assert ready.warm_up_s >= 0.05
    assert min(ready.library_s, ready.model_s) > 0


def test_a_worker_that_is_held_takes_nothing(site: Site) -> None:
    site.dispatcher()
    site.worker("a", hold=True)
    site.heard(Changed, becomes("a", State.WARM))
    site.ask(b"x", slo_s=0.05)
    assert statuses(site) == {Status.DROPPED: 1}


def test_requests_go_to_their_own_tenant(site: Site) -> None:
    site.dispatcher("vision", "text")
    site.worker("a", options={"prefix": "v"})
    site.worker("b", options={"prefix": "t"}, tenant="text")
    site.ask(b"1", tenant="text")
    site.ask(b"2", tenant="vision")
    assert [answer.payload for answer in site.answers()] == [b"t1", b"v2"]


def test_what_nobody_answers_is_dropped_at_its_deadline(site: Site) -> None:
    site.dispatcher()
    site.ask(b"x", slo_s=0.05)
    assert statuses(site) == {Status.DROPPED: 1}


def test_a_dispatcher_that_drains_answers_what_waits_takes_nothing_more_and_says_when_it_is_empty(site: Site) -> None:
    site.dispatcher()
    site.ask(b"waits")
    site.heard(Counts, lambda counts: counts.waiting == 1)
    site.order(DrainAll(9.0))
    assert site.heard(Draining).retry_after_s == 9.0
    site.ask(b"too late")
    site.heard(Counts, lambda counts: counts.refused == 1)
    assert not [one for one in site.told if isinstance(one, Drained)]
    site.worker("a")
    site.heard(Drained)
    assert [one.status for one in site.answers()] == [Status.IN_TIME, Status.REFUSED]
    assert site.answers()[1].reason == "no further request is taken"


def test_tenants_may_come_and_go_while_what_waits_is_answered(site: Site) -> None:
    site.dispatcher()
    site.ask(b"waits")
    site.heard(Counts, lambda counts: counts.waiting == 1)
    site.order(Tenants(("text",)))
    site.ask(b"too late")
    site.heard(Counts, lambda counts: counts.refused == 1)
    site.worker("a")
    assert {one.status for one in site.answers()} == {Status.IN_TIME, Status.REFUSED}
    assert "no further request of this tenant is taken" in {one.reason for one in site.answers()}
    site.worker("b", tenant="text")
    site.ask(b"new", tenant="text")
    site.heard(Counts, lambda counts: counts.tenant == "text" and counts.in_time == 1)
    site.order(Tenants(("vision", "text")))
    site.ask(b"here again")
    site.heard(Counts, lambda counts: counts.tenant == "vision" and counts.in_time == 1)


def test_whoever_watches_late_hears_that_the_dispatcher_drains(site: Site) -> None:
    site.dispatcher()
    site.order(DrainAll(9.0))
    site.heard(Drained)
    site.told.clear()
    site.controller.send(Watch())
    site.heard(Draining)


def test_draining_loses_nothing(site: Site) -> None:
    site.dispatcher()
    leaving = site.worker("a", "Busy", options={"batch_s": 0.002})
    site.heard(Changed, becomes("a", State.SERVING))
    site.ask(*TWENTY * 10)
    site.order(Drain("a"))
    site.worker("b")
    assert statuses(site) == {Status.IN_TIME: 200}
    assert leaving.wait(PATIENCE_S) == 0


def test_a_terminated_worker_drains(site: Site) -> None:
    site.dispatcher()
    leaving = site.worker("a", "Busy", options={"batch_s": 0.002})
    site.heard(Changed, becomes("a", State.SERVING))
    site.ask(*TWENTY * 10)
    leaving.terminate()
    site.worker("b")
    assert statuses(site) == {Status.IN_TIME: 200}
    assert leaving.wait(PATIENCE_S) == 0


def test_ctrl_c_is_left_to_the_controller(site: Site) -> None:
    dispatcher, worker = site.dispatcher(), site.worker("a")
    site.heard(Changed, becomes("a", State.SERVING))
    dispatcher.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGINT)
    site.ask(b"x")
    assert statuses(site) == {Status.IN_TIME: 1}


def test_the_end_of_a_run_sends_all_away(site: Site) -> None:
    processes = [site.dispatcher(), site.worker("a", hold=True)]
    site.heard(Changed, becomes("a", State.WARM))
    site.ask(b"x")
    site.heard(Counts)
    assert site.finish()["dropped"] == 1
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0]
    assert [answer.reason for answer in site.answers()] == ["the run has ended"]


def test_a_forked_worker_serves_and_leaves(site: Site) -> None:
    site.dispatcher()
    script = """
import os, sys
from workloads.live import worker
class Told:
    def reached(self, phase):
        print(phase, flush=True)
child = os.fork()
if not child:
    os._exit(worker.forked(Told(), setup=sys.argv[1]))
print(os.waitpid(child, 0)[1])
"""
    command_line = [sys.executable, "-c", script, as_text(site.worker_setup("a", "Echo"))]
    nest = subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True, env=SURROUNDINGS)
    site.processes.append(nest)
    site.ask(b"x")
    assert statuses(site) == {Status.IN_TIME: 1}
    site.order(Drain("a"))
    assert nest.communicate(timeout=PATIENCE_S)[0].split() == ["warm", "0"]


# --- new weights


def test_new_weights_answer_from_then_on_and_nothing_is_lost(site: Site, tmp_path: Path) -> None:
    weights = tmp_path / "w2"
    weights.write_bytes(b"new-")
    site.dispatcher()
    site.worker("a")
    site.heard(Changed, becomes("a", State.SERVING))
    site.ask(*TWENTY)
    site.order(Load("a", str(weights), "v2"))
    site.ask(*TWENTY)
    swapped = site.heard(Loaded)
    site.ask(b"last")
    answers = site.answers()
    assert {(one.version, (one.payload or b"")[:4] == b"new-") for one in answers} <= {("0", False), ("v2", True)}
    assert (swapped.version, swapped.error, swapped.swap_s > 0) == ("v2", "", True)
    assert (answers[-1].version, answers[-1].payload) == ("v2", b"new-last")


@pytest.mark.parametrize(("content", "said"), [(b"corrupt", "no weights"), (None, "FileNotFoundError")])
def test_with_weights_that_do_not_fit_the_old_ones_answer(
    site: Site, tmp_path: Path, content: bytes | None, said: str
) -> None:
    weights = tmp_path / "w2"
    if content is not None:
        weights.write_bytes(content)
    site.dispatcher()
    site.worker("a")
    site.heard(Changed, becomes("a", State.SERVING))
    site.order(Load("a", str(weights), "v2"))
    swapped = site.heard(Loaded)
    site.ask(b"x")
    assert said in swapped.error
    assert [(one.version, one.payload) for one in site.answers()] == [("0", b"x")]


def test_while_one_loads_the_others_answer(site: Site) -> None:
    site.dispatcher(hang_s=10 * PATIENCE_S)
    site.worker("a", "Hangs")
    site.worker("b")
    for name in "ab":
        site.heard(Changed, becomes(name, State.SERVING))
    site.order(Load("a", "hang", "v2"))
    site.order(Drain("nobody"))
    site.heard(NotDone)  # so the other order has been heard, too
    site.ask(*TWENTY)
    assert statuses(site) == {Status.IN_TIME: 20}


# --- kills, in each of a worker's states


def busy_as_it_serves(name: str, longer_than_s: float = 0.0) -> Callable[[Heartbeat], bool]:
    """A worker that starts is busy, too."""
    return lambda beat: beat.worker == name and beat.state is State.SERVING and beat.busy_s > longer_than_s


def into_starting(site: Site, name: str = "a", lane: str = "") -> subprocess.Popen[str]:
    worker = site.worker(name, "never_made", lane=lane)
    site.heard(Changed, becomes(name, State.STARTING))
    return worker


def into_warm(site: Site, name: str = "a", lane: str = "") -> subprocess.Popen[str]:
    worker = site.worker(name, hold=True, lane=lane)
    site.heard(Changed, becomes(name, State.WARM))
    return worker


def into_serving(site: Site, name: str = "a", lane: str = "") -> subprocess.Popen[str]:
    """In the middle of a batch."""
    worker = site.worker(name, "Hangs", lane=lane)
    site.heard(Changed, becomes(name, State.SERVING))
    site.ask(b"hang", b"hang")
    site.heard(Heartbeat, busy_as_it_serves(name))
    return worker


def into_loading(site: Site, name: str = "a", lane: str = "") -> subprocess.Popen[str]:
    """Busy with new weights."""
    worker = site.worker(name, "Hangs", lane=lane)
    site.heard(Changed, becomes(name, State.SERVING))
    site.order(Load(name, "hang", "v2"))
    site.heard(Heartbeat, busy_as_it_serves(name))
    return worker


def into_draining(site: Site, name: str = "a", lane: str = "") -> subprocess.Popen[str]:
    worker = into_serving(site, name, lane)
    site.order(Drain(name))
    site.heard(Changed, becomes(name, State.DRAINING))
    return worker


def into_gone(site: Site) -> subprocess.Popen[str]:
    """Ordered to stop, which a stopped process does not hear."""
    worker = into_serving(site)
    worker.send_signal(signal.SIGSTOP)
    site.order(Stop("a", "test"))
    site.heard(Changed, becomes("a", State.GONE))
    return worker


STATES = [into_starting, into_warm, into_serving, into_loading, into_draining]


@pytest.mark.parametrize("into_state", [*STATES, into_gone])
def test_a_worker_may_be_killed_in_any_state(site: Site, into_state: Callable[[Site], subprocess.Popen[str]]) -> None:
    site.dispatcher()
    worker = into_state(site)
    site.ask(*TWENTY)
    worker.kill()
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL
    site.heard(Changed, becomes("a", State.GONE))
    site.worker("b")
    n_asked = site.n_asked
    assert statuses(site) == {Status.IN_TIME: n_asked}
    counts = site.finish()
    assert (counts["arrived"], counts["in_time"]) == (n_asked, n_asked)


def test_a_killed_controller_leaves_nothing_running_and_no_request_open(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "s")
    script = f"""
import sys, time
from pathlib import Path
from live_site import Site, becomes_serving
from workloads.live.messages import Counts
site = Site(Path({str(folder)!r}), time.monotonic())
site.dispatcher()
site.worker("a", "Hangs")
becomes_serving(site, "a")
site.heard(Counts, lambda counts: counts.arrived == 3)
site.worker("b", "never_made")
print(*(process.pid for process in site.processes), flush=True)
sys.stdin.read()
"""
    client = Peer(folder, CLIENTS, b"", TO_CLIENT)
    for number, now_s in enumerate([monotonic()] * 3):
        client.send(Request(number, "vision", now_s, now_s + 1000, b"hang"))
    controller = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=SURROUNDINGS
    )
    assert controller.stdout is not None
    pids = [int(pid) for pid in controller.stdout.readline().split()]
    controller.kill()
    controller.communicate()
    answers = [answer for _ in range(3) for answer in client.receive(1.0)]
    client.close()
    assert [answer.reason for answer in answers] == ["the run has ended"] * 3
    assert [ends(pid) for pid in pids] == [True, True, True]


def test_workers_leave_a_dispatcher_that_is_gone(site: Site) -> None:
    dispatcher = site.dispatcher()
    workers = [site.worker(name, model, silence_s=0.5) for name, model in (("a", "Echo"), ("b", "never_made"))]
    site.heard(Changed, becomes("a", State.SERVING))
    site.heard(Changed, becomes("b", State.STARTING))
    dispatcher.kill()
    assert [worker.wait(PATIENCE_S) for worker in workers] == [1, 1]


# --- lanes


def test_in_a_lane_one_tenant_computes_at_a_time_with_all_its_processes_and_all_are_answered(
    site: Site, tmp_path: Path
) -> None:
    tenants = ("vision", "sound", "text")
    site.dispatcher(*tenants, turn_cost=0.05)
    (tmp_path / "lane").mkdir()
    names = {f"x/{tenant}/{number}": tenant for tenant in tenants for number in range(2)}
    for name, tenant in names.items():
        options = {"folder": str(tmp_path / "lane"), "tenant": tenant, "batch_s": 0.002}
        site.worker(name, "Turns", tenant=tenant, lane="x", options=options, sample_bytes=None)
    for name in names:
        site.heard(Changed, becomes(name, State.SERVING))
    for _ in range(20):
        for tenant in tenants:
            site.ask(b"one", b"two", tenant=tenant)
    assert Counter((one.status, one.payload) for one in site.answers()) == {
        (Status.IN_TIME, b"one"): 60,
        (Status.IN_TIME, b"two"): 60,
    }


def test_an_instance_passes_to_a_pool_and_back_under_load_without_two_tenants_ever_in_it(
    site: Site, tmp_path: Path
) -> None:
    site.dispatcher("vision", "sound")
    (tmp_path / "lane").mkdir()
    measured = (1, 4), (0.001, 0.001)
    for name, tenant, is_shared in (("x/a", "vision", False), ("x/b", "sound", True)):
        options = {"folder": str(tmp_path / "lane"), "tenant": tenant, "batch_s": 0.005}
        own = {"lane": "x", "is_shared": is_shared, "options": options, "sample_bytes": None}
        site.worker(name, "Turns", tenant=tenant, **own)
        site.heard(Changed, becomes(name, State.SERVING))
        for limit in (2, 4):
            site.ask(*TWENTY)
            site.order(Share("x/a", limit == 2, limit, *measured))
    site.ask(*TWENTY, tenant="sound")
    site.answers()
    site.order(Drain("x/b"))
    site.heard(Changed, becomes("x/b", State.GONE))
    site.ask(*TWENTY)
    answers = site.answers()
    assert {one.status for one in answers} == {Status.IN_TIME}
    assert (len(answers), b"clash" in {one.payload for one in answers}) == (6 * 20, False)


def test_new_weights_wait_for_the_lane_s_batch_and_the_lane_for_them(site: Site, tmp_path: Path) -> None:
    site.dispatcher("vision", "sound")
    (tmp_path / "lane").mkdir()
    (tmp_path / "new").write_bytes(b"new ")
    for name, tenant in (("x/a", "vision"), ("x/b", "sound")):
        options = {"folder": str(tmp_path / "lane"), "tenant": tenant, "batch_s": 0.05}
        site.worker(name, "Turns", tenant=tenant, lane="x", options=options, batch_limit=1, sample_bytes=None)
        site.heard(Changed, becomes(name, State.SERVING))
    site.ask(b"one", b"two", b"three")
    site.heard(Heartbeat, lambda beat: beat.worker == "x/a" and beat.batches > 0)
    site.ask(*TWENTY)
    site.order(Load("x/b", str(tmp_path / "new"), "1"))
    assert site.heard(Loaded).error == ""
    site.ask(b"four", tenant="sound")
    assert {one.status for one in site.answers()} == {Status.IN_TIME}
    assert site.answers()[-1].payload == b"new four"


def test_a_lane_is_lent_when_its_batches_are_answered_and_serves_nobody_until_it_is_given_back(
    site: Site, tmp_path: Path
) -> None:
    site.dispatcher("vision", "sound")
    folder = tmp_path / "lane"
    folder.mkdir()
    for name, tenant in (("x/a", "vision"), ("x/b", "sound")):
        options = {"folder": str(folder), "tenant": tenant, "batch_s": 0.05}
        site.worker(name, "Turns", tenant=tenant, lane="x", options=options, batch_limit=1, sample_bytes=None)
        site.heard(Changed, becomes(name, State.SERVING))
    site.ask(b"one", b"two", b"three")
    site.heard(Heartbeat, lambda beat: beat.worker == "x/a" and beat.batches > 0)
    site.order(Lend("x", "trainer"))
    assert site.heard(Lent).worker == "trainer"
    assert [*folder.iterdir()] == []  # nobody computes
    site.ask(b"other", tenant="sound")
    site.heard(Counts, lambda counts: counts.tenant == "sound" and counts.waiting == 1)
    site.order(Return("trainer"))
    assert [(one.status, one.payload) for one in site.answers()] == [
        (Status.IN_TIME, payload) for payload in (b"one", b"two", b"three", b"other")
    ]


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_worker_that_is_struck_over_its_batch_keeps_its_lane_from_no_trainer(
    site: Site, blow: signal.Signals
) -> None:
    site.dispatcher("vision", "sound", hang_s=0.3)
    struck = into_serving(site, "x/a", "x")
    struck.send_signal(blow)
    site.order(Lend("x", "trainer"))
    assert site.heard(Lent).worker == "trainer"
    assert struck.wait(PATIENCE_S) == -signal.SIGKILL
    site.worker("x/b", lane="x")
    site.heard(Changed, becomes("x/b", State.SERVING))
    site.heard(Counts, lambda counts: counts.waiting == site.n_asked)  # it waits, too
    site.order(Return("trainer"))
    assert statuses(site) == {Status.IN_TIME: site.n_asked}


@pytest.mark.parametrize("blow", daily([signal.SIGKILL, signal.SIGSTOP], [signal.SIGKILL]), ids=["killed", "stopped"])
@pytest.mark.parametrize("into_state", STATES)
def test_a_worker_in_a_lane_may_be_killed_or_stopped_in_any_state_and_the_others_go_on(
    site: Site, into_state: Callable[..., subprocess.Popen[str]], blow: signal.Signals
) -> None:
    site.dispatcher("vision", "sound", silence_s=2.0, hang_s=PATIENCE_S)
    neighbour = site.worker("x/b", tenant="sound", lane="x")
    site.heard(Changed, becomes("x/b", State.SERVING))
    struck = into_state(site, "x/a", "x")
    site.ask(*TWENTY, tenant="sound")
    struck.send_signal(blow)
    reason = site.heard(Changed, becomes("x/a", State.GONE)).reason
    assert reason in ("its process is gone", "its connection is gone") or reason.startswith("not heard for")
    assert struck.wait(PATIENCE_S) == -signal.SIGKILL
    site.worker("c")
    site.ask(*TWENTY)
    n_asked = site.n_asked
    assert statuses(site) == {Status.IN_TIME: n_asked}
    counts = site.finish()
    assert (counts["arrived"], counts["in_time"]) == (n_asked, n_asked)
    assert neighbour.wait(PATIENCE_S) == 0


def test_a_worker_that_hangs_in_a_lane_is_killed_and_the_others_go_on(site: Site) -> None:
    site.dispatcher("vision", "sound", hang_s=0.3)
    site.worker("x/b", tenant="sound", lane="x")
    site.heard(Changed, becomes("x/b", State.SERVING))
    hanging = site.worker("x/a", "Hangs", lane="x")
    site.heard(Changed, becomes("x/a", State.SERVING))
    site.ask(b"hang")
    site.ask(b"y", tenant="sound")
    assert site.heard(Changed, becomes("x/a", State.GONE)).reason.startswith("it had a batch for")
    assert hanging.wait(PATIENCE_S) == -signal.SIGKILL
    site.worker("c")
    assert statuses(site) == {Status.IN_TIME: 2}


def test_what_answers_are_worth_is_taken_for_known_tenants_only(site: Site) -> None:
    site.dispatcher()
    site.order(Worth("sound", 0.5))
    assert site.heard(NotDone).reason == "Worth: no tenant 'sound'"


# --- silence and hanging


def test_a_silent_worker_is_killed_and_what_it_had_goes_to_another(site: Site) -> None:
    site.dispatcher(silence_s=4.0, hang_s=PATIENCE_S)
    worker = into_serving(site)
    worker.send_signal(signal.SIGSTOP)
    gone = site.heard(Changed, becomes("a", State.GONE))
    site.worker("b")
    assert statuses(site) == {Status.IN_TIME: 2}
    assert gone.reason.startswith("not heard for")
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_worker_that_is_heard_is_not_given_up(site: Site) -> None:
    site.dispatcher(silence_s=8.0)
    site.worker("a")
    beats: list[Heartbeat] = []
    site.heard(Heartbeat, lambda beat: beats.append(beat) is None and len(beats) == 25)
    assert not any(isinstance(one, Changed) and one.state is State.GONE for one in site.told)


def test_what_a_hanging_worker_has_goes_to_another(site: Site) -> None:
    site.dispatcher(hang_s=0.3)
    worker = into_serving(site)
    hung = site.heard(Hung)
    site.worker("b")
    assert statuses(site) == {Status.IN_TIME: 2}
    assert (hung.requests > 0, worker.poll()) == (True, None)


def test_heartbeats_tell_for_how_long_a_worker_is_busy(site: Site) -> None:
    site.dispatcher()
    into_serving(site)
    site.heard(Heartbeat, busy_as_it_serves("a", longer_than_s=0.3))


def test_heartbeats_count_what_was_answered(site: Site) -> None:
    site.dispatcher()
    site.worker("a", "Raises", batch_limit=1)
    site.ask(b"x", b"raise", b"y")
    site.answers()
    assert site.heard(Heartbeat, lambda beat: beat.batches == 3 and (beat.answers, beat.failures) == (3, 1))


def test_a_hanging_worker_heeds_an_order_to_stop(site: Site) -> None:
    site.dispatcher()
    worker = into_serving(site)
    site.order(Stop("a", "it hangs"))
    assert worker.wait(PATIENCE_S) == 0


def test_a_worker_that_never_starts_heeds_an_order_to_drain(site: Site) -> None:
    site.dispatcher()
    worker = into_starting(site)
    site.order(Drain("a"))
    assert worker.wait(PATIENCE_S) == 0


# --- what models and users do wrong


@pytest.mark.parametrize("misbehaving", [b"raise", b"short", b"text"])
def test_one_bad_input_fails_alone(site: Site, misbehaving: bytes) -> None:
    site.dispatcher()
    site.worker("a", "Raises", hold=True)
    site.heard(Changed, becomes("a", State.WARM))
    site.ask(b"1", misbehaving, b"2")
    site.heard(Counts, lambda counts: counts.arrived == 3)
    site.order(Serve("a"))
    answers = site.answers()
    assert [answer.status for answer in answers] == [Status.IN_TIME, Status.FAILED, Status.IN_TIME]
    assert answers[1].reason.startswith("the model ")


def test_a_request_of_which_workers_die_fails_and_the_others_are_answered(site: Site) -> None:
    site.dispatcher()
    for name in "abc":
        site.worker(name, "Raises", batch_limit=1)
    site.ask(b"die")
    assert statuses(site) == {Status.FAILED: 1}
    site.worker("d", "Raises")
    site.ask(b"x")
    assert site.answers()[-1].status is Status.IN_TIME


def test_a_model_that_cannot_be_had_is_told(site: Site) -> None:
    site.dispatcher()
    worker = site.worker("a", "Nothing")
    gone = site.heard(Changed, becomes("a", State.GONE))
    assert "has no such name: Nothing" in gone.reason
    assert worker.wait(PATIENCE_S) == 1


def test_libraries_that_are_missing_are_told(site: Site) -> None:
    site.dispatcher()
    site.worker("a", imports=("no_such_library",))
    assert "cannot import no_such_library" in site.heard(Changed, becomes("a", State.GONE)).reason


def test_weights_to_begin_with_that_do_not_fit_are_told(site: Site) -> None:
    site.dispatcher()
    site.worker("a", weights=Path("/no/such/weights"))
    assert "FileNotFoundError" in site.heard(Changed, becomes("a", State.GONE)).reason


def test_a_request_for_nobody_is_refused(site: Site) -> None:
    site.dispatcher("vision", "text")
    site.ask(b"x", tenant="sound")
    assert [(one.status, one.reason) for one in site.answers()] == [
        (Status.REFUSED, "no tenant 'sound'; there is: vision text")
    ]


def test_what_is_over_the_limit_of_memory_is_refused(site: Site) -> None:
    site.dispatcher(queue_bytes=10_000)
    site.ask(bytes(4000), bytes(4000))
    site.heard(Counts, lambda counts: counts.refused == 1)
    assert site.finish()["refused"] == 1
    assert [one.status for one in site.answers()] == [Status.DROPPED, Status.REFUSED]


def test_garbage_is_told_and_the_service_goes_on(site: Site) -> None:
    site.dispatcher()
    site.client._socket.send(packed(Stop("a", "b")))
    site.client._socket.send_multipart([b"x", b"y"])
    assert "Invalid value 'Stop' - at `$.type`; kinds allowed here: Labelled Request" in site.heard(NotDone).reason
    site.worker("a")
    site.ask(b"x")
    assert statuses(site) == {Status.IN_TIME: 1}


def test_who_sends_too_much_at_once_is_cut_off_and_the_service_goes_on(site: Site) -> None:
    site.dispatcher()
    site.worker("a")
    hostile = zmq.Context()
    socket = hostile.socket(zmq.DEALER)
    events = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    socket.connect(address(site.folder, CLIENTS))
    socket.send(bytes(MOST_BYTES + 1))
    assert events.poll(1000 * PATIENCE_S)
    socket.disable_monitor()
    hostile.destroy(linger=0)
    site.ask(b"x")
    assert statuses(site) == {Status.IN_TIME: 1}


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (Hello("sound", 1, 1, (1,), (0.1,)), "no tenant 'sound'; there is: vision"),
        (Hello("vision", 1, 0, (1,), (0.1,)), "must lie in 1–4096"),
        (Hello("vision", 1, 1, (2, 1), (0.1, 0.1)), "needs ascending batches"),
    ],
)
def test_a_worker_that_makes_no_sense_is_sent_away(site: Site, hello: Hello, said: str) -> None:
    site.dispatcher()
    worker = Peer(site.folder, WORKERS, WORKER + b"a", TO_WORKER)
    worker.send(hello)
    (stop,) = worker.receive(PATIENCE_S)
    worker.close()
    assert isinstance(stop, Stop)
    assert said in stop.reason


def test_a_worker_that_never_said_hello_is_sent_away(site: Site) -> None:
    site.dispatcher()
    worker = Peer(site.folder, WORKERS, WORKER + b"a", TO_WORKER)
    worker.send(Credit(1))
    assert worker.receive(PATIENCE_S) == [Stop("a", "it is not known")]
    worker.close()


def heart_of(site: Site, name: str) -> Peer[ToWorker]:
    return Peer(site.folder, WORKERS, HEART + name.encode(), TO_WORKER)


def test_a_heartbeat_that_is_faster_than_its_hello_is_welcome(site: Site) -> None:
    site.dispatcher()
    heart = heart_of(site, "a")
    heart.send(Heartbeat("a", State.SERVING, 0.0, 0, 0, 0))
    assert heart.receive(PATIENCE_S) == [Beat()]
    heart.close()


def test_a_heart_whose_worker_never_says_hello_is_stopped_in_the_end(site: Site) -> None:
    site.dispatcher(silence_s=0.3)
    heart, heard = heart_of(site, "a"), []
    until_s = monotonic() + PATIENCE_S
    while Stop("a", "it is not known") not in heard and monotonic() < until_s:
        heart.send(Heartbeat("a", State.SERVING, 0.0, 0, 0, 0))
        heard += heart.receive(PATIENCE_S)
    heart.close()
    assert heard[0] == Beat()
    assert heard[-1] == Stop("a", "it is not known")


def test_an_order_to_a_worker_that_is_not_there_is_answered(site: Site) -> None:
    site.dispatcher()
    site.order(Drain("nobody"))
    assert site.heard(NotDone).reason == "Drain nobody: it is not known"


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("{", "DispatcherSetup: Input data was truncated"),
        ('{"folder": "/tmp/x"}', "DispatcherSetup: Object missing required field `tenants`"),
        ('{"folder": "/tmp/x", "tenants": ["a"], "hang_s": 0}', "hang_s: 0.0: must be above 0"),
        ('{"folder": "/tmp/x", "tenants": ["a"], "queue_bytes": 0}', "queue_bytes: 0: must lie in 1–536870912"),
        ('{"folder": "/proc/x", "tenants": ["a"]}', "folder of sockets /proc/x"),
    ],
)
def test_a_dispatcher_without_sense_says_so_in_one_line(setup: str, said: str) -> None:
    ran = subprocess.run(
        command("workloads.live.dispatcher", setup), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert said in ran.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "worker: '': must have 1 to 200 bytes"),
        ({"name": "w" * 201}, "must have 1 to 200 bytes"),
        ({"heartbeat_s": 0.0}, "heartbeat_s: 0.0: must be above 0 and below silence_s, 30.0"),
        ({"silence_s": 0.1}, "heartbeat_s: 0.1: must be above 0 and below silence_s, 0.1"),
    ],
)
def test_a_worker_s_setup_without_sense_is_refused(site: Site, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        site.worker_setup(**{"name": "a", "model": "Echo", **change})


@pytest.mark.parametrize("module", ["dispatcher", "worker", "generator"])
@pytest.mark.parametrize("arguments", [[], ["me", "{}"], ["1"]])
def test_a_process_without_its_arguments_says_so(module: str, arguments: list[str]) -> None:
    main = importlib.import_module(f"workloads.live.{module}").main
    assert main(arguments) == 2


# --- the sockets


def test_only_the_user_may_enter_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


def test_a_folder_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(WireError, match="it must be this user's own"):
        private_folder(tmp_path)


def test_a_name_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WireError, match=f"too long; allowed: {zmq.IPC_PATH_MAX_LEN} bytes"):
        address(tmp_path / ("x" * 100), CLIENTS)


def test_a_client_that_does_not_wait_is_told_that_nobody_is_there(tmp_path: Path) -> None:
    peer = Peer(private_folder(tmp_path / "s"), CLIENTS, b"", TO_CLIENT, waits=False)
    try:
        assert not peer.is_connected
        with pytest.raises(WireError, match="the dispatcher is not there"):
            peer.send(Request(0, "vision", 0.0, 1.0, b""))
    finally:
        peer.close()


@pytest.mark.parametrize("cost", [-0.01, math.nan, math.inf])
def test_a_turn_costs_a_share_that_has_an_end(tmp_path: Path, cost: float) -> None:
    assert DispatcherSetup(tmp_path, ("a",), turn_cost=1.5).turn_cost == 1.5
    with pytest.raises(ValueError, match=r"^turn_cost: .*: must be finite and at least 0$"):
        DispatcherSetup(tmp_path, ("a",), turn_cost=cost)
