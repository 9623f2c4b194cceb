"""Two CUDA processes of one pool on a real card: ``pytest -m gpu``, where torch sees one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_site import Site, becomes_serving, site_in

from executor.messages import as_text
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import Replay
from workloads.learning.models import classifier
from workloads.live.messages import Status

pytestmark = pytest.mark.gpu

N_REQUESTS = 200
MODELS = {"mlp": "digits-rotated", "cnn": "digits"}
"""The members: each is called as its model, with its benchmark."""


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    torch = pytest.importorskip("torch", reason="NOT TESTED: pools on a real card: torch is absent")
    if not torch.cuda.is_available():
        pytest.skip("NOT TESTED: pools on a real card: torch sees none")
    with site_in(tmp_path_factory.mktemp("s") / "run") as site:  # sockets have short names
        yield site


def test_members_of_a_pool_answer_as_each_model_alone(site: Site, tmp_path: Path) -> None:
    site.dispatcher(*MODELS, turn_cost=0.05)
    right: list[int] = []
    asked: list[tuple[str, bytes]] = []
    for number, (model, data) in enumerate(MODELS.items()):
        options, weights = {**benchmark(data).model_options, "weights": "random"}, tmp_path / model
        alone = classifier(model, **{**options, "seed": number})
        alone.save(weights, {})
        usual = site.worker_setup(f"x/{model}", "Echo", tenant=model, lane="x")
        setup = replace(usual, model=model, options=options, weights=weights, sample_bytes=64)
        site.start("workloads.live.worker", as_text(setup))
        becomes_serving(site, f"x/{model}")
        replay = Replay(benchmark(data), 0, seed=number)
        payloads = [replay.request(index).payload for index in range(N_REQUESTS)]
        samples = np.stack([np.frombuffer(payload, np.uint8).reshape(1, 8, 8) for payload in payloads])
        right += alone.labels(samples).tolist()
        asked += [(model, payload) for payload in payloads]
    for model, payload in asked:
        site.ask(payload, tenant=model)
    answers = site.answers()
    assert {answer.status for answer in answers} == {Status.IN_TIME}
    assert [int.from_bytes(answer.payload or b"", "little") for answer in answers] == right
