"""A real model behind the real dispatcher: what drift costs its answers, and what new weights win back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from live_site import PATIENCE_S, Site, becomes_serving, site_in

from executor.messages import as_text
from workloads.learning.course import Finished, Option
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import Replay, encoded
from workloads.learning.retraining import RetrainingJob, retrained
from workloads.live.messages import Load, Loaded, Request

pytestmark = pytest.mark.live

BENCHMARK, N_REQUESTS = "digits-rotated", 200


def weights_of(experience: int, out: Path, begin: Path | None = None) -> Path:
    """A retraining's last weights."""
    option = Option("full", "replay", n_epochs=4)
    ended = retrained(RetrainingJob("mlp", BENCHMARK, experience, option, out, weights=begin), lambda _told: None)
    assert isinstance(ended, Finished)
    return Path(ended.file)


def share_right(site: Site, experience: int) -> float:
    """Of replayed requests about an experience, asked now: each is answered once, and so many rightly."""
    replay, first = Replay(benchmark(BENCHMARK), experience, seed=0), site.n_asked
    requests = [replay.request(index) for index in range(N_REQUESTS)]
    for request in requests:
        now_s = monotonic()
        right = encoded(request.label)
        site.client.send(Request(site.n_asked, "vision", now_s, now_s + PATIENCE_S, request.payload, right))
        site.n_asked += 1
    answers = site.answers()[first:]
    return (
        sum(request.judge(answer.payload or b"") for request, answer in zip(requests, answers, strict=True))
        / N_REQUESTS
    )


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "run"  # sockets have short names


def test_answers_get_worse_as_data_drifts_and_better_with_new_weights_in_place(folder: Path, tmp_path: Path) -> None:
    old = weights_of(0, tmp_path / "0")
    new = weights_of(1, tmp_path / "1", old)
    with site_in(folder) as site:
        site.dispatcher()
        usual, options = site.worker_setup("w", "Echo"), benchmark(BENCHMARK).model_options
        setup = replace(usual, model="mlp", options=options, weights=old, sample_bytes=64)
        site.start("workloads.live.worker", as_text(setup))
        becomes_serving(site, "w")
        at_first, drifted = share_right(site, 0), share_right(site, 1)
        site.order(Load("w", str(new), "v2"))
        assert site.heard(Loaded).error == ""
        renewed = share_right(site, 1)
    assert drifted < at_first - 0.2
    assert renewed > drifted + 0.2
