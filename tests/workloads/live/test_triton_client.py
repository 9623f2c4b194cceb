"""NVIDIA's own client, as it comes, before the front door while workers come and go and take new weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from live_site import PATIENCE_S, Site, becomes_serving, site_in

from executor.messages import as_text
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import Replay
from workloads.learning.models import classifier
from workloads.live.front_door import DoorSetup, ServedModel
from workloads.live.messages import Changed, Drain, Load, Loaded, State
from workloads.live.open_inference import Tensor

pytestmark = pytest.mark.live

N_REQUESTS = 1000
MODELS = {"mlp": "digits-rotated", "cnn": "digits"}
"""The tenants: each is called as its model, with its benchmark."""


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("s") / "run") as site:  # sockets have short names
        yield site


def starts(site: Site, instance: str, model: str, weights: Path, *, shared: bool) -> None:
    """A tenant's worker, in an instance of its own or one that the others share."""
    name, options = f"{instance}/{model}", benchmark(MODELS[model]).model_options
    usual = site.worker_setup(name, "Echo", tenant=model, lane=instance if shared else "")
    usual = replace(usual, model=model, options={**options, "weights": "random"}, weights=weights, version="v1")
    site.start("workloads.live.worker", as_text(replace(usual, sample_bytes=64)))
    becomes_serving(site, name)


def opened(site: Site) -> str:
    """A door's address; its tenants take images of digits and give labels."""
    image, label = Tensor("image", "UINT8", (1, 8, 8)), Tensor("label", "UINT16", (1,))
    tenants = tuple(ServedModel(model, PATIENCE_S - 5, image, label) for model in MODELS)
    process = site.start("workloads.live.front_door", as_text(DoorSetup(site.folder, tenants, request_s=PATIENCE_S)))
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["url"]).removeprefix("http://")


def answers(address: str, model: str, samples: list[Any], changed: Event) -> list[tuple[str, int]]:
    """Version and label of each sample, then from the first again until all has changed, and once more."""
    triton = pytest.importorskip("tritonclient.http")
    client, told = triton.InferenceServerClient(address), []
    given = triton.InferInput("image", [1, 1, 8, 8], "UINT8")
    is_last = False
    while len(told) < len(samples) or not is_last:
        is_last = changed.is_set()
        given.set_data_from_numpy(samples[len(told) % len(samples)])
        result = client.infer(model, [given])
        told.append((result.get_response()["model_version"], int(result.as_numpy("label")[0, 0])))
    client.close()
    return told


@pytest.mark.parametrize("shared", [False, True])
def test_every_answer_is_that_of_the_model_alone_while_workers_or_pools_come_and_go(
    site: Site, tmp_path: Path, shared: bool
) -> None:
    models, samples = {}, {}
    for number, (model, data) in enumerate(MODELS.items()):
        options, replay = benchmark(data).model_options, Replay(benchmark(data), 0, seed=number)
        models[model] = {f"v{seed}": classifier(model, **options, seed=seed, weights="random") for seed in (1, 2)}
        for version, made in models[model].items():
            made.save(tmp_path / f"{model}-{version}", {})
        payloads = [replay.request(index).payload for index in range(N_REQUESTS)]
        samples[model] = [np.frombuffer(payload, np.uint8).reshape(1, 1, 8, 8) for payload in payloads]
    site.dispatcher(*MODELS)
    for model in MODELS:
        starts(site, "a", model, tmp_path / f"{model}-v1", shared=shared)
    address, changed = opened(site), Event()
    with ThreadPoolExecutor(len(MODELS)) as pool:
        asking = {model: pool.submit(answers, address, model, samples[model], changed) for model in MODELS}
        try:
            for model in MODELS:
                starts(site, "b", model, tmp_path / f"{model}-v1", shared=shared)
                site.order(Drain(f"a/{model}"))
                site.heard(Changed, lambda one, name=f"a/{model}": (one.worker, one.state) == (name, State.GONE))
                site.order(Load(f"b/{model}", str(tmp_path / f"{model}-v2"), "v2"))
                site.heard(Loaded, lambda one, name=f"b/{model}": one.worker == name)
        finally:
            changed.set()
        told = {model: future.result() for model, future in asking.items()}
    for model, versions in models.items():
        stacked = np.concatenate(samples[model])
        right = {version: made.labels(stacked).tolist() for version, made in versions.items()}
        assert told[model][-1][0] == "v2"
        assert told[model] == [
            (version, right[version][place % N_REQUESTS]) for place, (version, _) in enumerate(told[model])
        ]
    counts = site.finish()
    assert counts["arrived"] == counts["in_time"] + counts["late"] == sum(map(len, told.values())) >= 2 * N_REQUESTS


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_the_clients_other_ways_are_understood(site: Site, packing: str) -> None:
    triton = pytest.importorskip("tritonclient.http")
    site.dispatcher()
    site.worker("a")
    becomes_serving(site, "a")
    patch = Tensor("patch", "FP32", (2, 2))
    setup = DoorSetup(site.folder, (ServedModel("vision", 20.0, patch, replace(patch, name="same")),))
    process = site.start("workloads.live.front_door", as_text(setup))
    assert process.stdout is not None
    url = str(json.loads(process.stdout.readline())["url"])
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    given = triton.InferInput("patch", [3, 2, 2], "FP32")
    numbers = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    assert client.is_server_live()
    assert client.get_model_metadata("vision")["inputs"][0]["shape"] == [-1, 2, 2]
    for as_bytes in (True, False):
        given.set_data_from_numpy(numbers, binary_data=as_bytes)
        wanted = triton.InferRequestedOutput("same", binary_data=as_bytes)
        result = client.infer("vision", [given], outputs=[wanted], request_compression_algorithm=packing)
        assert np.array_equal(result.as_numpy("same"), numbers)
    with pytest.raises(Exception, match=r"\[404\] no model 'nobody'"):
        client.infer("nobody", [given])
    given.set_shape([1, 2, 2])
    with pytest.raises(Exception, match=r"\[400\] inputs\[0\].data: 12 numbers; shape \[1, 2, 2\] has 4"):
        client.infer("vision", [given])
    client.close()
