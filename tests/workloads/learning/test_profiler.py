"""What micro-profiling measures on real digits, and how far from the truth its estimates are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.messages import as_text
from workloads.learning.course import Option
from workloads.learning.curve import Correction, estimates, fitted
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import Benchmark
from workloads.learning.models import Classifier, classifier
from workloads.learning.profiler import (
    LEAST_SAMPLES,
    N_EPOCHS,
    Found,
    Prepared,
    Refused,
    Tried,
    found_in,
    measured,
    prepare,
    try_out,
)
from workloads.learning.retraining import RetrainingJob
from workloads.learning.training import fit

pytestmark = pytest.mark.live

OPTION = Option("full", "replay", n_epochs=4)


class Unwatched:
    """Lets a training be."""

    def step(self, loss: float, n_steps: int) -> None:
        """Nothing happens."""


def trained(model: Classifier, bench: Benchmark, number: int, seed: int, option: Option = OPTION) -> Classifier:
    fit(
        model,
        bench.train(number, option.n_samples, seed),
        bench.memory(number, 200, seed),
        option,
        seed=seed,
        steps=Unwatched(),
    )
    return model


def served(seed: int = 0) -> tuple[Classifier, Benchmark]:
    """A model that knows the first experience."""
    bench = benchmark("digits-rotated", seed=seed)
    return trained(classifier("mlp", seed=seed, **bench.model_options), bench, 0, seed), bench


def test_estimates_from_a_small_subset_are_within_8_points_of_the_truth_in_the_mean_and_15_at_most() -> None:
    errors = []
    for seed in range(4):
        model, bench = served(seed)
        half = Option("half", "replay", n_samples=600, n_epochs=4)
        curve = fitted(measured(model, bench, 1, OPTION, seed=seed, budget_s=60.0))
        for found in estimates(curve, [half, OPTION], n_all=len(bench.train(1, None, seed)), slowdown={}):
            test = bench.test(1)
            truth = trained(model.copied(), bench, 1, seed, found.option).accuracy(test.inputs, test.labels)
            errors.append(abs(found.raw - truth))
    assert np.mean(errors) < 0.08
    assert max(errors) < 0.15


def test_a_remembered_error_makes_later_estimates_of_a_hard_curve_better() -> None:
    """Class by class, accuracy falls before it rises, which the formula cannot follow: it is too low each window."""
    raw, corrected = [], []
    for seed in range(2):
        bench = benchmark("digits", seed=seed, asked="seen")
        option = Option("long", "replay", n_epochs=16)
        model = trained(classifier("mlp", seed=seed, **bench.model_options), bench, 0, seed, option)
        correction = Correction()
        for number in range(1, 5):
            curve = fitted(measured(model, bench, number, option, seed=seed, budget_s=60.0))
            n_all = len(bench.train(number, None, seed))
            (found,) = estimates(curve, [option], n_all=n_all, slowdown={}, correction=correction)
            test = bench.test(number)
            truth = trained(model, bench, number, seed, option).accuracy(test.inputs, test.labels)
            raw.append(abs(found.raw - truth))
            corrected.append(abs(found.accuracy - truth))
            correction = correction.learned([(found.raw, truth)])
    assert np.mean(corrected) < np.mean(raw)


def test_the_served_model_is_left_as_it_is() -> None:
    model, bench = served()
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    measured(model, bench, 1, OPTION, seed=0, budget_s=60.0)
    assert all(bool((tensor == before[name]).all()) for name, tensor in model.module.state_dict().items())


def test_a_point_is_measured_after_each_epoch_of_each_subset() -> None:
    model, bench = served()
    points = measured(model, bench, 1, OPTION, seed=0, budget_s=60.0, shares=(0.0, 0.25))
    assert [point.passes for point in points[:N_EPOCHS]] == [LEAST_SAMPLES * epoch for epoch in range(1, N_EPOCHS + 1)]
    assert len(points) == 2 * N_EPOCHS


def test_options_of_avalanche_are_measured_by_avalanche() -> None:
    model, bench = served()
    option = Option("ewc", "ewc", trainer="avalanche", n_epochs=2)
    assert measured(model, bench, 1, option, seed=0, budget_s=60.0)


def test_the_same_seed_measures_the_same_accuracies() -> None:
    model, bench = served()
    one, other = (measured(model, bench, 1, OPTION, seed=0, budget_s=60.0) for _ in range(2))
    assert [point.accuracy for point in one] == [point.accuracy for point in other]


def test_a_budget_that_is_used_up_ends_it_with_what_there_is() -> None:
    model, bench = served()
    readings = iter(range(1000))
    points = measured(model, bench, 1, OPTION, seed=0, budget_s=12.0, now=lambda: float(next(readings)))
    assert 0 < len(points) < 2 * N_EPOCHS


# --- the operator's own weights


MLP = {"model": "mlp", "options": {"shape": [1, 8, 8], "n_classes": 10, "dtype": "uint8", "seed": 3}, "input_bytes": 64}


def prepared(folder: Path, weights: Path) -> Found:
    job = RetrainingJob("mlp", "digits-rotated", 0, OPTION, folder / "weights" / "first", weights)
    assert prepare(None, job=as_text(job), requests=None, n_by_window=[], out=str(folder / "out")) == 0
    return found_in(folder / "out")


def tried(folder: Path, weights: Path | None = None, **changes: Any) -> Found:
    asked = {**MLP, "weights": None if weights is None else str(weights), **changes}
    assert try_out(None, **asked, out=str(folder / "out")) == 0
    return found_in(folder / "out")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Those of a model that knows the first experience."""
    model, _ = served()
    model.save(tmp_path / "own.safetensors", {})
    return tmp_path / "own.safetensors"


def test_weights_that_are_given_are_measured_and_nothing_is_trained(tmp_path: Path, weights: Path) -> None:
    model, bench = served()
    found, test = prepared(tmp_path, weights), bench.test(0)
    assert isinstance(found, Prepared)
    assert (found.weights, found.began_with) == (str(weights), str(weights))
    assert found.accuracy == model.accuracy(test.inputs, test.labels) > 0.8
    assert list((tmp_path / "weights").iterdir()) == []  # where its retrainings will write


def test_weights_of_another_model_are_refused_by_the_first_name_that_does_not_fit(tmp_path: Path) -> None:
    own = tmp_path / "cnn.safetensors"
    classifier("cnn", **served()[1].model_options).save(own, {})
    for found in (prepared(tmp_path, own), tried(tmp_path, own)):
        assert found == Refused(f"{own}: tensor 1.weight is missing")


def test_a_model_that_only_serves_is_tried_with_its_weights(tmp_path: Path, weights: Path) -> None:
    assert tried(tmp_path, weights) == Tried(str(weights))
    assert tried(tmp_path) == Tried("random")
    assert tried(tmp_path, model="live_models:Label", options={}) == Tried("")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "no_module:at_all"}, "model 'no_module:at_all': cannot import no_module"),
        ({"model": "live_models:Raises", "options": {}, "input_bytes": 5}, "it answers with 5 bytes; a label has 2"),
        ({"input_bytes": 63}, "the model raised ModelError: mlp: input 0 has 63 bytes; 64 are needed"),
        ({"options": {"shape": [4], "n_classes": 2, "dtype": "float32"}}, "inputs are float32 of shape [4]; uint8"),
        ({"weights": "/nowhere"}, "/nowhere: [Errno 2] No such file or directory"),
        ({"options": {"size": 3}}, "model 'mlp' with size=3: TypeError"),
    ],
)
def test_a_model_that_cannot_serve_so_is_refused_in_a_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    found = tried(tmp_path, **changes)
    assert isinstance(found, Refused)
    assert said in found.reason
    assert "\n" not in found.reason
